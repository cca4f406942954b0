import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";

const STARTER = fileURLToPath(new URL("../bundled/start.py", import.meta.url));
const PYTHON = ["python3", "python"].find((name) => spawnSync(name, ["--version"]).status === 0);

test(
  "the starter imports nothing from the current folder",
  { skip: PYTHON === undefined && "there is no Python here" },
  () => {
    const scratch = mkdtempSync(join(tmpdir(), "dlcheck-start-"));
    try {
      const project = join(scratch, "project");
      const library = join(scratch, "library", "dlcheck");
      mkdirSync(project);
      mkdirSync(library, { recursive: true });
      const main = "import queue, sys\nprint(hasattr(queue, 'Queue'), sys.argv[1:], __name__)\n";
      writeFileSync(join(library, "__init__.py"), "");
      writeFileSync(join(library, "__main__.py"), main);
      writeFileSync(join(project, "queue.py"), "raise SystemExit('of the project')\n");
      writeFileSync(join(project, "dlcheck.py"), "raise SystemExit('of the project')\n");
      const env = { ...process.env, PYTHONPATH: join(scratch, "library") };
      const done = spawnSync(PYTHON ?? "", [STARTER, "lsp"], { cwd: project, env, encoding: "utf8" });
      assert.equal(done.stdout, "True ['lsp'] __main__\n", done.stderr);
    } finally {
      rmSync(scratch, { recursive: true });
    }
  },
);
