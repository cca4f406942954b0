/** dlcheck in Visual Studio Code: starts `dlcheck lsp`, and offers what an editor can do with findings. */

import * as vscode from "vscode";

import { MeasureActions } from "./findings.js";
import { measureFinding } from "./measuring.js";
import { onInterpreterChange } from "./python.js";
import { SELECTOR, Session } from "./session.js";
import { STARTING_KEYS } from "./settings.js";
import { type State, statusOf } from "./status.js";

const FIX_ALL = vscode.CodeActionKind.SourceFixAll.append("dlcheck");
const MEASURE = "dlcheck.measureFinding";

let session: Session | undefined;

export async function activate(context: vscode.ExtensionContext): Promise<void> {
  const output = vscode.window.createOutputChannel("dlcheck", { log: true });
  const starter = vscode.Uri.joinPath(context.extensionUri, "bundled", "start.py").fsPath;
  const running = new Session(output, starter);
  session = running;
  context.subscriptions.push(
    output,
    running,
    statusItem(running),
    vscode.languages.registerCodeActionsProvider(SELECTOR, new MeasureActions(MEASURE), {
      providedCodeActionKinds: MeasureActions.kinds,
    }),
    vscode.commands.registerCommand("dlcheck.restart", () => running.restart()),
    vscode.commands.registerCommand("dlcheck.showOutput", () => {
      output.show();
    }),
    vscode.commands.registerCommand("dlcheck.fixAll", fixAll),
    vscode.commands.registerCommand(MEASURE, (uri: unknown, code: unknown) =>
      measureFinding(running, context.workspaceState, uri, code),
    ),
    vscode.workspace.onDidGrantWorkspaceTrust(() => running.restart()),
    vscode.workspace.onDidChangeConfiguration((event) => onConfiguration(running, event)),
  );
  await running.restart();
  const interpreter = await onInterpreterChange(() => void running.reconsider());
  if (interpreter !== undefined) context.subscriptions.push(interpreter);
}

export async function deactivate(): Promise<void> {
  await session?.stop();
}

async function onConfiguration(running: Session, event: vscode.ConfigurationChangeEvent): Promise<void> {
  const starting = STARTING_KEYS.some((key) => event.affectsConfiguration(`dlcheck.${key}`));
  if (starting) await running.restart();
  else if (event.affectsConfiguration("python.defaultInterpreterPath")) await running.reconsider();
  else if (event.affectsConfiguration("dlcheck")) await running.configure();
}

const SEVERITIES = {
  information: vscode.LanguageStatusSeverity.Information,
  warning: vscode.LanguageStatusSeverity.Warning,
  error: vscode.LanguageStatusSeverity.Error,
};

function statusItem(running: Session): vscode.Disposable {
  const item = vscode.languages.createLanguageStatusItem("dlcheck.status", SELECTOR);
  item.name = "dlcheck";
  const show = (state: State): void => {
    const status = statusOf(state);
    item.text = status.text;
    item.detail = status.detail;
    item.severity = SEVERITIES[status.severity];
    item.busy = status.busy;
    item.command = status.action;
  };
  return vscode.Disposable.from(item, running.onStateChange(show));
}

/** Apply all safe fixes of the active text: as `source.fixAll.dlcheck` does on saving. */
async function fixAll(): Promise<void> {
  const document = vscode.window.activeTextEditor?.document;
  if (document === undefined) return;
  const range = new vscode.Range(0, 0, document.lineCount, 0);
  const actions = await vscode.commands.executeCommand<vscode.CodeAction[]>(
    "vscode.executeCodeActionProvider",
    document.uri,
    document.validateRange(range),
    FIX_ALL.value,
  );
  const edit = actions.find((action) => action.kind !== undefined && FIX_ALL.contains(action.kind))?.edit;
  if (edit === undefined) {
    void vscode.window.showInformationMessage("dlcheck: there is no safe fix to apply in this file.");
    return;
  }
  await vscode.workspace.applyEdit(edit);
}
