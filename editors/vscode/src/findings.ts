/** Findings of dlcheck among what the editor shows. */

import * as vscode from "vscode";

import { codeOf, isMeasurable } from "./measure.js";

export interface Shown {
  readonly code: string;
  readonly diagnostic: vscode.Diagnostic;
}

export function isOurs(diagnostic: vscode.Diagnostic): boolean {
  return diagnostic.source === "dlcheck";
}

export function findingsIn(uri: vscode.Uri): Shown[] {
  return vscode.languages.getDiagnostics(uri).flatMap((diagnostic) => {
    const code = isOurs(diagnostic) ? codeOf(diagnostic.code) : undefined;
    return code === undefined ? [] : [{ code, diagnostic }];
  });
}

export function findingsAt(uri: vscode.Uri, range: vscode.Range): Shown[] {
  return findingsIn(uri).filter(({ diagnostic }) => diagnostic.range.intersection(range) !== undefined);
}

/** Offers to measure what is found; only where code may be run. */
export class MeasureActions implements vscode.CodeActionProvider {
  static readonly kinds = [vscode.CodeActionKind.QuickFix];

  constructor(private readonly command: string) {}

  provideCodeActions(
    document: vscode.TextDocument,
    _range: vscode.Range,
    context: vscode.CodeActionContext,
  ): vscode.CodeAction[] {
    if (!vscode.workspace.isTrusted || document.isUntitled) return [];
    return context.diagnostics.flatMap((diagnostic) => {
      const code = isOurs(diagnostic) ? codeOf(diagnostic.code) : undefined;
      if (code === undefined || !isMeasurable(code)) return [];
      const action = new vscode.CodeAction(`dlcheck: measure ${code} (runs code)`, vscode.CodeActionKind.QuickFix);
      action.diagnostics = [diagnostic];
      action.command = { title: action.title, command: this.command, arguments: [document.uri, code] };
      return [action];
    });
  }
}
