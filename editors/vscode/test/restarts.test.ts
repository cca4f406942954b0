import assert from "node:assert/strict";
import { test } from "node:test";

import { RESTARTS, Restarts, WITHIN_MS } from "../src/restarts.js";

test("a server that ends again and again is left alone", () => {
  const restarts = new Restarts();
  const answers = Array.from({ length: RESTARTS + 2 }, (_, number) => restarts.allows(number));
  assert.deepEqual(answers, [...Array<boolean>(RESTARTS).fill(true), false, false]);
});

test("one that ends now and then is always started again", () => {
  const restarts = new Restarts();
  for (let time = 0; time < 20 * WITHIN_MS; time += WITHIN_MS / RESTARTS) assert.ok(restarts.allows(time));
});
