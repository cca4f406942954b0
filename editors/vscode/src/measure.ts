/** The command line that measures a finding. */

import type { Command } from "./resolution.js";
import type { ServerSettings } from "./settings.js";

export interface Finding {
  readonly file: string;
  readonly code: string;
}

/** What is run to measure it. */
export type Subject =
  | { readonly kind: "standIn"; readonly quick: boolean }
  | { readonly kind: "program"; readonly run: string; readonly extract: boolean }
  | { readonly kind: "factory"; readonly factory: string };

export interface Line {
  readonly command: string;
  readonly args: readonly string[];
}

export function measureLine(
  dlcheck: Command,
  finding: Finding,
  subject: Subject,
  settings: ServerSettings,
  python: string | undefined,
): Line {
  const args = [...dlcheck.args, "measure", "--select", finding.code, ...shared(settings)];
  if (python !== undefined && python !== dlcheck.python) args.push("--python", python);
  if (subject.kind === "standIn" && subject.quick) args.push("--quick");
  if (subject.kind === "program") args.push("--run", subject.run, ...(subject.extract ? ["--extract"] : []));
  if (subject.kind === "factory") args.push("--factory", subject.factory);
  return { command: dlcheck.command, args: [...args, "--", finding.file] };
}

/** What the editor's settings change about findings holds here too: else the one that is seen is not found. */
function shared(settings: ServerSettings): string[] {
  const options: [string, unknown][] = [
    ["--min-confidence", settings.minConfidence],
    ["--target-torch", settings.targetTorch],
    ["--target-python", settings.targetPython],
  ];
  return options.flatMap(([option, value]) => (typeof value === "string" && value !== "" ? [option, value] : []));
}

/** The code of a diagnostic, undefined where it has none that names a rule. */
export function codeOf(code: unknown): string | undefined {
  const value = typeof code === "object" && code !== null && "value" in code ? code.value : code;
  return typeof value === "string" && isCode(value) ? value : undefined;
}

export function isCode(text: string): boolean {
  return /^[A-Z]{3}\d{3}$/.test(text);
}

/** Whether there is anything to measure about a rule's findings: DLC0xx are about texts and comments. */
export function isMeasurable(code: string): boolean {
  return !code.startsWith("DLC0");
}
