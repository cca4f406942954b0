import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";

import { type Inspected, SERVER_KEYS, serverSettings, STARTING_KEYS } from "../src/settings.js";

interface Property {
  readonly default?: unknown;
  readonly scope?: string;
}

interface Manifest {
  readonly capabilities: { readonly untrustedWorkspaces: { readonly restrictedConfigurations: readonly string[] } };
  readonly contributes: {
    readonly commands: readonly { readonly command: string }[];
    readonly configuration: { readonly properties: Readonly<Record<string, Property>> };
  };
}

function read(file: string): string {
  return readFileSync(new URL(`../${file}`, import.meta.url), "utf8");
}

const manifest = JSON.parse(read("package.json")) as Manifest;
const properties = manifest.contributes.configuration.properties;

/** Settings of which some are set; the others have their defaults. */
function settingsOf(set: Record<string, Inspected>): ReturnType<typeof serverSettings> {
  const valueOf = ({ globalValue, workspaceValue, workspaceFolderValue }: Inspected): unknown =>
    workspaceFolderValue ?? workspaceValue ?? globalValue;
  return serverSettings({
    get: (key) => (set[key] === undefined ? properties[`dlcheck.${key}`]?.default : valueOf(set[key])),
    inspect: (key) => set[key] ?? {},
  });
}

test("what nobody has set is not sent: it would override the project's file", () => {
  assert.deepEqual(settingsOf({}), {});
});

test("what is set is sent with the value that holds, also where it is the default", () => {
  const settings = settingsOf({
    minConfidence: { globalValue: "low", workspaceValue: "medium" },
    extendIgnore: { workspaceFolderValue: ["DLC1"] },
    forceExclude: { globalValue: false },
    path: { globalValue: "/opt/dlcheck" },
  });
  assert.deepEqual(settings, { minConfidence: "medium", extendIgnore: ["DLC1"], forceExclude: false });
});

test("each key of the server is a setting, and a key of dlcheck's own schema", () => {
  const schema = JSON.parse(read("../../dlcheck/dlcheck.schema.json")) as { properties: Record<string, unknown> };
  for (const key of SERVER_KEYS) {
    assert.ok(`dlcheck.${key}` in properties, key);
    assert.ok(key.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`) in schema.properties, key);
  }
  const known = [...SERVER_KEYS, ...STARTING_KEYS, "trace.server"].map((key) => `dlcheck.${key}`);
  assert.deepEqual(Object.keys(properties).sort(), known.sort());
});

test("a workspace that nobody trusts cannot name what is started", () => {
  const starting = STARTING_KEYS.filter((key) => key !== "enable").map((key) => `dlcheck.${key}`);
  assert.deepEqual([...manifest.capabilities.untrustedWorkspaces.restrictedConfigurations].sort(), starting.sort());
});

test("the README lists all settings and commands, with the defaults", () => {
  const readme = read("README.md");
  for (const [name, property] of Object.entries(properties)) {
    const shown = property.default === "" ? "" : ` \`${JSON.stringify(property.default)}\``.replaceAll('"', "");
    assert.ok(readme.includes(`| \`${name}\` |${shown} |`), `${name}:${shown}`);
  }
  for (const { command } of manifest.contributes.commands) assert.ok(readme.includes(`\`${command}\``), command);
});
