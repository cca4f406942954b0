/** Paths as settings write them, and commands on the search path. */

import * as nodePath from "node:path";

export interface Machine {
  readonly platform: NodeJS.Platform;
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly home: string;
  /** Whether a file is there and may be run. */
  isExecutable(file: string): Promise<boolean>;
}

function pathsOf(machine: Machine): nodePath.PlatformPath {
  return machine.platform === "win32" ? nodePath.win32 : nodePath.posix;
}

/** A text of the settings with its variables replaced; an unknown one stays, so that the error shows it. */
export function expanded(text: string, machine: Machine, folder: string | undefined): string {
  const home = text === "~" || /^~[\\/]/.test(text) ? machine.home + text.slice(1) : text;
  return home.replace(
    /\$\{(?:env:([^}]+)|([^}]+))\}/g,
    (whole, variable: string | undefined, name: string | undefined) => {
      if (variable !== undefined) return machine.env[variable] ?? "";
      if (name === "userHome") return machine.home;
      return name === "workspaceFolder" && folder !== undefined ? folder : whole;
    },
  );
}

/**
 * The absolute path of a command, undefined where there is none.
 *
 * A bare name is looked up on the search path only: a system that tries the current folder first would run what lies
 * in the workspace. Any other relative path starts at the folder.
 */
export async function located(
  command: string,
  machine: Machine,
  folder: string | undefined,
): Promise<string | undefined> {
  const path = pathsOf(machine);
  if (path.isAbsolute(command)) return firstExecutable([command], machine);
  if (command.includes("/") || command.includes(path.sep)) {
    return folder === undefined ? undefined : firstExecutable([path.join(folder, command)], machine);
  }
  const listed = machine.env.PATH ?? machine.env.Path ?? "";
  const folders = listed.split(path.delimiter).filter((entry) => path.isAbsolute(entry));
  return firstExecutable(
    folders.map((entry) => path.join(entry, command)),
    machine,
  );
}

async function firstExecutable(files: readonly string[], machine: Machine): Promise<string | undefined> {
  // Scripts of the shell (.cmd) cannot be started without one, and with one their arguments are not safe.
  const endings = machine.platform === "win32" ? ["", ".exe", ".com"] : [""];
  for (const file of files) {
    for (const ending of endings) {
      if (await machine.isExecutable(file + ending)) return file + ending;
    }
  }
  return undefined;
}

/** The interpreter of a folder's virtual environment, where it has the usual name. */
export function environmentOf(folder: string, machine: Machine): string {
  const path = pathsOf(machine);
  return machine.platform === "win32"
    ? path.join(folder, ".venv", "Scripts", "python.exe")
    : path.join(folder, ".venv", "bin", "python");
}
