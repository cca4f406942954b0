import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { fileURLToPath } from "node:url";

import { listFiles, PackageManager } from "@vscode/vsce";

const FOLDER = fileURLToPath(new URL("..", import.meta.url));

test("nothing is packed but what runs and what is read", async () => {
  const files = await listFiles({ cwd: FOLDER, packageManager: PackageManager.None });
  const expected = [
    "CHANGELOG.md",
    "LICENSE",
    "README.md",
    "bundled/start.py",
    "dist/NOTICES.txt",
    "dist/extension.js",
    "images/findings.png",
    "images/icon.png",
    "package.json",
  ];
  assert.deepEqual(
    files.filter((file) => !file.startsWith("dist/")).sort(),
    expected.filter((file) => !file.startsWith("dist/")),
  );
  assert.ok(
    files.every((file) => expected.includes(file)),
    files.join(),
  );
});

test("the licence is the project's", () => {
  assert.equal(readFileSync(`${FOLDER}/LICENSE`, "utf8"), readFileSync(`${FOLDER}/../../LICENSE`, "utf8"));
});

test("the lock names no registry", () => {
  assert.ok(!readFileSync(`${FOLDER}/package-lock.json`, "utf8").includes('"resolved"'));
});
