/** The machine that the extension runs on. */

import { execFile } from "node:child_process";
import { constants } from "node:fs";
import { access, stat } from "node:fs/promises";
import { homedir } from "node:os";
import { dirname } from "node:path";

import type { Host } from "./resolution.js";

const ASK_S = 20;
/** Both are looked up, not imported: that takes a tenth of the time. */
const HAS_SERVER =
  "import sys; sys.path[:] = [p for p in sys.path if p]; from importlib.util import find_spec; " +
  "sys.exit(0 if find_spec('dlcheck') and find_spec('pygls') else 1)";

export function hostOf(starter: string, log: (line: string) => void): Host {
  return {
    platform: process.platform,
    env: process.env,
    home: homedir(),
    starter,
    isExecutable,
    hasServer: (python) =>
      new Promise((done) => {
        const options = { cwd: dirname(starter), timeout: ASK_S * 1000, windowsHide: true };
        execFile(python, ["-c", HAS_SERVER], options, (error, _stdout, stderr) => {
          if (error !== null) log(`${python} cannot run the server: ${stderr.trim() || "dlcheck or pygls is missing"}`);
          done(error === null);
        });
      }),
  };
}

async function isExecutable(file: string): Promise<boolean> {
  try {
    await access(file, constants.X_OK);
    return (await stat(file)).isFile();
  } catch {
    return false;
  }
}
