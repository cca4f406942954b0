/** Measures a finding in a terminal, after asking what may be run. */

import * as vscode from "vscode";

import { findingsAt, findingsIn, type Shown } from "./findings.js";
import { isMeasurable, measureLine, type Subject } from "./measure.js";
import { selectedInterpreter } from "./python.js";
import { currentSettings, type Session } from "./session.js";

const LAST_PROGRAM = "dlcheck.lastProgram";
const LAST_FACTORY = "dlcheck.lastFactory";

export async function measureFinding(
  session: Session,
  memory: vscode.Memento,
  uri: unknown,
  code: unknown,
): Promise<void> {
  const dlcheck = session.server;
  if (dlcheck === undefined || !vscode.workspace.isTrusted) return;
  const file = uri instanceof vscode.Uri ? uri : vscode.window.activeTextEditor?.document.uri;
  if (file === undefined) return;
  const wanted = typeof code === "string" ? code : await chosenCode(file);
  if (wanted === undefined) return;
  const subject = await chosenSubject(memory, wanted);
  if (subject === undefined || !(await saved(file))) return;
  const folder = vscode.workspace.getWorkspaceFolder(vscode.Uri.file(file.fsPath));
  const python = await selectedInterpreter(folder?.uri);
  const line = measureLine(dlcheck, { file: file.fsPath, code: wanted }, subject, currentSettings(), python);
  const options = folder === undefined ? {} : { cwd: folder.uri.fsPath };
  const task = new vscode.Task(
    { type: "process", dlcheck: wanted },
    folder ?? vscode.TaskScope.Workspace,
    `measure ${wanted}`,
    "dlcheck",
    new vscode.ProcessExecution(line.command, [...line.args], options),
    [],
  );
  task.presentationOptions = {
    reveal: vscode.TaskRevealKind.Always,
    panel: vscode.TaskPanelKind.Dedicated,
    echo: true,
    clear: true,
  };
  const execution = await vscode.tasks.executeTask(task);
  const listener = vscode.tasks.onDidEndTask((event) => {
    if (event.execution !== execution) return;
    listener.dispose();
    void session.lookAgain(vscode.Uri.joinPath(folder?.uri ?? vscode.Uri.file(file.fsPath), ".dlcheck"));
  });
}

async function chosenCode(file: vscode.Uri): Promise<string | undefined> {
  const editor = vscode.window.activeTextEditor;
  const here = editor === undefined ? [] : findingsAt(file, editor.selection).filter(canBeMeasured);
  const known = here.length > 0 ? here : findingsIn(file).filter(canBeMeasured);
  const codes = [...new Map(known.map((one) => [one.code, one])).values()];
  if (codes.length === 0) {
    void vscode.window.showInformationMessage("dlcheck: nothing is found in this file that could be measured.");
    return undefined;
  }
  if (here.length > 0 && codes.length === 1) return codes[0]?.code;
  const items = codes.map(({ code, diagnostic }) => ({
    label: code,
    description: diagnostic.message.split("\n", 1)[0] ?? "",
  }));
  return (await vscode.window.showQuickPick(items, { title: "Which finding is to be measured?" }))?.label;
}

function canBeMeasured(shown: Shown): boolean {
  return isMeasurable(shown.code);
}

type Choice = vscode.QuickPickItem & { readonly subject: () => Promise<Subject | undefined> };

async function chosenSubject(memory: vscode.Memento, code: string): Promise<Subject | undefined> {
  const program = async (extract: boolean): Promise<Subject | undefined> => {
    const run = await asked(memory, LAST_PROGRAM, "The command that runs your program", "python train.py --epochs 1");
    return run === undefined ? undefined : { kind: "program", run, extract };
  };
  const choices: Choice[] = [
    {
      label: "With a stand-in, quickly",
      detail: "Four rounds: shows large effects only. Not your program, nor your data.",
      subject: () => Promise.resolve({ kind: "standIn", quick: true }),
    },
    {
      label: "With a stand-in",
      detail: "Shows what such a fault costs, and not what it costs you.",
      subject: () => Promise.resolve({ kind: "standIn", quick: false }),
    },
    {
      label: "In your program…",
      detail: "Runs it; it is measured from inside, and the files that it writes are put back.",
      subject: () => program(false),
    },
    {
      label: "At your program's loader…",
      detail: "Runs your program up to its loader, and measures that alone.",
      subject: () => program(true),
    },
    {
      label: "With a function that returns a DataLoader…",
      detail: "Imports the function's module and calls it.",
      subject: async () => {
        const factory = await asked(memory, LAST_FACTORY, "The function, as MODULE:FUNCTION", "data:make_loader");
        return factory === undefined ? undefined : { kind: "factory", factory };
      },
    },
  ];
  const title = `What is to be run to measure ${code}?`;
  return (await vscode.window.showQuickPick(choices, { title, ignoreFocusOut: true }))?.subject();
}

async function asked(
  memory: vscode.Memento,
  key: string,
  prompt: string,
  placeHolder: string,
): Promise<string | undefined> {
  const value = memory.get<string>(key, "");
  const typed = (await vscode.window.showInputBox({ prompt, placeHolder, value, ignoreFocusOut: true }))?.trim();
  if (typed === undefined || typed === "") return undefined;
  await memory.update(key, typed);
  return typed;
}

/** What is measured is what is on the disk. */
async function saved(file: vscode.Uri): Promise<boolean> {
  const text = vscode.workspace.textDocuments.find(
    (one) => one.uri.fsPath === file.fsPath && one.uri.scheme === "file",
  );
  if (text !== undefined) return !text.isDirty || text.save();
  const notebook = vscode.workspace.notebookDocuments.find((one) => one.uri.fsPath === file.fsPath);
  return notebook === undefined || !notebook.isDirty || notebook.save();
}
