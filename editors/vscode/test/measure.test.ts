import assert from "node:assert/strict";
import { test } from "node:test";

import { codeOf, isMeasurable, measureLine } from "../src/measure.js";
import type { Command } from "../src/resolution.js";

const OWN: Command = { command: "/bin/dlcheck", args: [], origin: "the search path", python: undefined };
const INTERPRETER: Command = { command: "/py", args: ["/x/start.py"], origin: ".venv", python: "/py" };
const FINDING = { file: "/code/-train it.py", code: "DLC202" };

test("a stand-in: the rule, and behind `--` the file, whatever its name", () => {
  assert.deepEqual(measureLine(OWN, FINDING, { kind: "standIn", quick: false }, {}, undefined), {
    command: "/bin/dlcheck",
    args: ["measure", "--select", "DLC202", "--", "/code/-train it.py"],
  });
  assert.ok(measureLine(OWN, FINDING, { kind: "standIn", quick: true }, {}, undefined).args.includes("--quick"));
});

test("a program and a factory are one argument each, which no shell reads", () => {
  const run = 'python "my train.py" --epochs 1; rm x';
  const program = measureLine(OWN, FINDING, { kind: "program", run, extract: true }, {}, undefined).args;
  assert.deepEqual(program.slice(3), ["--run", run, "--extract", "--", FINDING.file]);
  assert.ok(
    !measureLine(OWN, FINDING, { kind: "program", run, extract: false }, {}, undefined).args.includes("--extract"),
  );
  const factory = measureLine(OWN, FINDING, { kind: "factory", factory: "data:make" }, {}, undefined).args;
  assert.deepEqual(factory.slice(3), ["--factory", "data:make", "--", FINDING.file]);
});

test("the project's interpreter is named where dlcheck runs in another one", () => {
  const subject = { kind: "standIn", quick: false } as const;
  assert.deepEqual(measureLine(OWN, FINDING, subject, {}, "/py").args.slice(3, 5), ["--python", "/py"]);
  const same = measureLine(INTERPRETER, FINDING, subject, {}, "/py");
  assert.deepEqual(same.args.slice(0, 2), ["/x/start.py", "measure"]);
  assert.ok(!same.args.includes("--python"));
});

test("what the editor's settings make of findings holds for the measurement", () => {
  const settings = { minConfidence: "low", targetTorch: "2.4", targetPython: "", ignore: ["DLC1"] };
  const args = measureLine(OWN, FINDING, { kind: "standIn", quick: false }, settings, undefined).args;
  assert.deepEqual(args.slice(1, -2), ["--select", "DLC202", "--min-confidence", "low", "--target-torch", "2.4"]);
});

test("the code of a diagnostic, however it is written", () => {
  assert.equal(codeOf("DLC101"), "DLC101");
  assert.equal(codeOf({ value: "DLC101", target: "https://example.com" }), "DLC101");
  for (const other of [undefined, null, 101, "dlc101", "DLC101 --run x", { value: 3 }])
    assert.equal(codeOf(other), undefined);
  assert.ok(isMeasurable("DLC101") && !isMeasurable("DLC002"));
});
