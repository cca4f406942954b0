/** Which command is the server. */

import { environmentOf, expanded, located, type Machine } from "./paths.js";

/** What settings and the workspace say of the server. */
export interface Wishes {
  readonly path: string;
  readonly interpreter: string;
  readonly args: readonly string[];
  /** The interpreter that the Python extension has selected. */
  readonly selected: string | undefined;
  /** `python.defaultInterpreterPath`, where somebody has set it. */
  readonly defaultInterpreter: string | undefined;
  readonly folders: readonly string[];
  readonly trusted: boolean;
}

export interface Host extends Machine {
  /** The script that runs dlcheck in an interpreter. */
  readonly starter: string;
  /** Whether an interpreter has dlcheck and what its server needs. */
  hasServer(python: string): Promise<boolean>;
}

/** A command that `lsp`, `measure` and the like are appended to. */
export interface Command {
  readonly command: string;
  readonly args: readonly string[];
  /** Where it comes from, in words. */
  readonly origin: string;
  /** The interpreter, where it is one that was started. */
  readonly python: string | undefined;
}

/** Nothing can be started; what was tried, in words. */
export interface Missing {
  readonly tried: readonly string[];
}

export function isMissing(found: Command | Missing): found is Missing {
  return "tried" in found;
}

/** The command of the server: what the settings name, else the first of the usual places that has it. */
export async function resolve(wishes: Wishes, host: Host): Promise<Command | Missing> {
  const [folder] = wishes.folders;
  const args = wishes.args.map((argument) => expanded(argument, host, folder));
  if (wishes.path !== "") {
    const wanted = expanded(wishes.path, host, folder);
    const command = await located(wanted, host, folder);
    if (command === undefined) return { tried: [`\`dlcheck.path\`: there is no command \`${wanted}\``] };
    return { command, args, origin: "dlcheck.path", python: undefined };
  }
  if (wishes.interpreter !== "") {
    const wanted = expanded(wishes.interpreter, host, folder);
    const python = await located(wanted, host, folder);
    if (python === undefined) return { tried: [`\`dlcheck.interpreter\`: there is no \`${wanted}\``] };
    return inInterpreter(python, args, "dlcheck.interpreter", host);
  }
  return found(wishes, args, host);
}

async function found(wishes: Wishes, args: readonly string[], host: Host): Promise<Command | Missing> {
  const [folder] = wishes.folders;
  const tried: string[] = [];
  for (const [wanted, origin] of interpreters(wishes, host)) {
    const python = await located(expanded(wanted, host, folder), host, folder);
    if (python === undefined) continue;
    if (await host.hasServer(python)) return inInterpreter(python, args, origin, host);
    tried.push(`${origin}: \`${python}\` has no dlcheck with its server`);
  }
  const command = await located("dlcheck", host, undefined);
  if (command !== undefined) return { command, args, origin: "the search path", python: undefined };
  return { tried: [...tried, "the search path: there is no command `dlcheck`"] };
}

/** Interpreters to look into; of a workspace that nobody trusts, none that it could have named or brought along. */
function interpreters(wishes: Wishes, host: Host): [string, string][] {
  const known: [string | undefined, string][] = [
    [wishes.trusted ? wishes.selected : undefined, "the Python extension"],
    [wishes.defaultInterpreter, "python.defaultInterpreterPath"],
    ...(wishes.trusted ? wishes.folders : []).map((folder): [string, string] => [environmentOf(folder, host), ".venv"]),
  ];
  return known.filter((entry): entry is [string, string] => entry[0] !== undefined && entry[0] !== "");
}

function inInterpreter(python: string, args: readonly string[], origin: string, host: Host): Command {
  return { command: python, args: [host.starter, ...args], origin, python };
}
