/** What the Python extension knows, where it is installed. */

import * as vscode from "vscode";

import { isSet } from "./settings.js";

const ID = "ms-python.python";

/** The part of its interface that is used here. */
interface Api {
  readonly environments: {
    getActiveEnvironmentPath(resource?: vscode.Uri): { readonly path: string };
    resolveEnvironment(path: unknown): Promise<{ readonly executable: { readonly uri?: vscode.Uri } } | undefined>;
    readonly onDidChangeActiveEnvironmentPath: vscode.Event<unknown>;
  };
}

function isApi(value: unknown): value is Api {
  if (typeof value !== "object" || value === null || !("environments" in value)) return false;
  const { environments } = value;
  return (
    typeof environments === "object" &&
    environments !== null &&
    ["getActiveEnvironmentPath", "resolveEnvironment", "onDidChangeActiveEnvironmentPath"].every(
      (name) => name in environments,
    )
  );
}

async function api(): Promise<Api | undefined> {
  const extension = vscode.extensions.getExtension<unknown>(ID);
  if (extension === undefined) return undefined;
  try {
    const exported = extension.isActive ? extension.exports : await extension.activate();
    return isApi(exported) ? exported : undefined;
  } catch {
    return undefined; // its fault shows there; here it is as if it were not installed
  }
}

/** The interpreter that is selected for a folder. */
export async function selectedInterpreter(folder: vscode.Uri | undefined): Promise<string | undefined> {
  const python = await api();
  if (python === undefined) return undefined;
  const environment = await python.environments.resolveEnvironment(
    python.environments.getActiveEnvironmentPath(folder),
  );
  return environment?.executable.uri?.fsPath;
}

export async function onInterpreterChange(changed: () => void): Promise<vscode.Disposable | undefined> {
  return (await api())?.environments.onDidChangeActiveEnvironmentPath(changed);
}

/** `python.defaultInterpreterPath` where it is set; of a workspace that nobody trusts only the user's own. */
export function defaultInterpreter(folder: vscode.Uri | undefined): string | undefined {
  const configuration = vscode.workspace.getConfiguration("python", folder ?? null);
  const inspected = configuration.inspect<string>("defaultInterpreterPath");
  if (!vscode.workspace.isTrusted) return inspected?.globalValue;
  return isSet(inspected) ? configuration.get<string>("defaultInterpreterPath") : undefined;
}
