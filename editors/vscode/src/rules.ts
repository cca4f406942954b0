/** The pages of rules. */

import * as vscode from "vscode";

import { findingsAt } from "./findings.js";

/** The server's command, which the client registers under the same name. */
export const SHOW_RULE = "dlcheck.showRule";

/** The rule that a command is about: its argument, the finding at the cursor, or what is typed. */
export async function wantedRule(argument: unknown): Promise<string | undefined> {
  if (typeof argument === "string") return argument;
  const editor = vscode.window.activeTextEditor;
  const [here] = editor === undefined ? [] : findingsAt(editor.document.uri, editor.selection);
  const typed = await vscode.window.showInputBox({
    title: "dlcheck: show a rule",
    prompt: "The code or the name of a rule",
    value: here?.code ?? "",
    placeHolder: "DLC101",
  });
  return typed === undefined || typed.trim() === "" ? undefined : typed.trim();
}

/** Show a page as a preview, in which nothing can be typed; false where this is no page. */
export async function showPage(uri: vscode.Uri): Promise<boolean> {
  if (uri.scheme !== "file" || !uri.path.endsWith(".md")) return false;
  await vscode.commands.executeCommand("markdown.showPreviewToSide", uri);
  return true;
}
