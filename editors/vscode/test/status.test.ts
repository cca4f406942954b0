import assert from "node:assert/strict";
import { test } from "node:test";

import type { Command } from "../src/resolution.js";
import { failedMessage, missingMessage, type State, statusOf } from "../src/status.js";

const INTERPRETER: Command = { command: "/py", args: ["/x/start.py"], origin: ".venv", python: "/py" };
const OWN: Command = { command: "/bin/dlcheck", args: [], origin: "the search path", python: undefined };

test("each state says what it is, and what can be done", () => {
  const rows: [State, string, string, string, string][] = [
    [{ kind: "off" }, "dlcheck is off", "`dlcheck.enable` is false", "information", "dlcheck.showOutput"],
    [
      { kind: "starting", server: OWN },
      "dlcheck: starting",
      "/bin/dlcheck (the search path)",
      "information",
      "dlcheck.showOutput",
    ],
    [
      { kind: "ready", server: INTERPRETER, version: "1.2.3" },
      "dlcheck 1.2.3",
      "/py (.venv)",
      "information",
      "dlcheck.restart",
    ],
    [
      { kind: "ready", server: INTERPRETER, version: undefined },
      "dlcheck",
      "/py (.venv)",
      "information",
      "dlcheck.restart",
    ],
    [{ kind: "stopped" }, "dlcheck: stopped", "", "warning", "dlcheck.restart"],
    [
      { kind: "missing", missing: { tried: [] } },
      "dlcheck: no server",
      'pip install "dlcheck[lsp]"',
      "error",
      "dlcheck.showOutput",
    ],
    [{ kind: "error", message: "It broke.\nThere." }, "dlcheck: error", "It broke.", "error", "dlcheck.showOutput"],
  ];
  for (const [state, text, detail, severity, command] of rows) {
    const status = statusOf(state);
    assert.deepEqual(
      [status.text, status.detail, status.severity, status.action.command],
      [text, detail, severity, command],
    );
    assert.equal(status.busy, state.kind === "starting");
  }
});

test("a server that is missing: what to install, and where", () => {
  assert.equal(
    missingMessage("/py"),
    'dlcheck found no server to start. Install it in `/py`: pip install "dlcheck[lsp]"',
  );
  assert.match(missingMessage(undefined), /in the environment of your project: pip install "dlcheck\[lsp\]"$/);
});

test("a server that ended at once: the last that it said, and what to install, once", () => {
  const said = ["Traceback:", 'dlcheck: the language server needs pygls: `pip install "dlcheck[lsp]"`'];
  assert.equal(
    failedMessage(INTERPRETER, said),
    'dlcheck could not start its server with `/py` (.venv). It said: dlcheck: the language server needs pygls: `pip install "dlcheck[lsp]"`',
  );
  assert.equal(
    failedMessage(OWN, ["No module named dlcheck"]),
    "dlcheck could not start its server with `/bin/dlcheck` (the search path). It said: No module named dlcheck. " +
      'If it is not installed there: pip install "dlcheck[lsp]"',
  );
  assert.ok(!failedMessage(OWN, []).includes("It said"));
});
