/** What the status item says. */

import type { Command, Missing } from "./resolution.js";

export type State =
  | { readonly kind: "off" }
  | { readonly kind: "starting"; readonly server: Command }
  | { readonly kind: "ready"; readonly server: Command; readonly version: string | undefined }
  | { readonly kind: "stopped" }
  | { readonly kind: "missing"; readonly missing: Missing }
  | { readonly kind: "error"; readonly message: string };

export interface Status {
  readonly text: string;
  readonly detail: string;
  readonly severity: "information" | "warning" | "error";
  readonly busy: boolean;
  readonly action: { readonly title: string; readonly command: string };
}

const OUTPUT = { title: "Show Output", command: "dlcheck.showOutput" };
const RESTART = { title: "Restart", command: "dlcheck.restart" };

export const INSTALL = 'pip install "dlcheck[lsp]"';

export function statusOf(state: State): Status {
  const calm = { severity: "information", busy: false, action: OUTPUT } as const;
  switch (state.kind) {
    case "off":
      return { ...calm, text: "dlcheck is off", detail: "`dlcheck.enable` is false" };
    case "starting":
      return { ...calm, text: "dlcheck: starting", detail: whereOf(state.server), busy: true };
    case "ready":
      return { ...calm, text: `dlcheck ${state.version ?? ""}`.trim(), detail: whereOf(state.server), action: RESTART };
    case "stopped":
      return { ...calm, text: "dlcheck: stopped", detail: "", severity: "warning", action: RESTART };
    case "missing":
      return { ...calm, text: "dlcheck: no server", detail: INSTALL, severity: "error" };
    case "error":
      return { ...calm, text: "dlcheck: error", detail: firstLine(state.message), severity: "error" };
  }
}

function whereOf(server: Command): string {
  return `${server.python ?? server.command} (${server.origin})`;
}

function firstLine(text: string): string {
  return text.split("\n", 1)[0] ?? "";
}

/** The one message for a server that is not there. */
export function missingMessage(python: string | undefined): string {
  const where = python === undefined ? "the environment of your project" : `\`${python}\``;
  return `dlcheck found no server to start. Install it in ${where}: ${INSTALL}`;
}

/** The one message for a server that was started and ended; `said` are the last lines of its standard error. */
export function failedMessage(server: Command, said: readonly string[]): string {
  const reason = said.at(-1)?.trim() ?? "";
  const why = reason === "" ? "" : ` It said: ${/[.!?`]$/.test(reason) ? reason : `${reason}.`}`;
  const hint = reason.includes("dlcheck[lsp]") ? "" : ` If it is not installed there: ${INSTALL}`;
  return `dlcheck could not start its server with \`${server.python ?? server.command}\` (${server.origin}).${why}${hint}`;
}
