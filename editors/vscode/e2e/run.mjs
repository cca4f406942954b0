// A real front end of Visual Studio Code (code-server, in Chromium) with the packed extension: findings, fixes, the
// page of a rule, a notebook, and a measurement that is run in the terminal and then shown. README.md says what it needs.
import assert from "node:assert/strict";
import { spawn, spawnSync } from "node:child_process";
import {
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { chromium } from "playwright-core";
import { Front, until } from "./front.mjs";

const ROOT = resolve(import.meta.dirname, "..", "..", "..");
const HERE = resolve(import.meta.dirname, "..");
const SERVER = process.env.CODE_SERVER ?? join(HERE, ".e2e/node_modules/code-server/out/node/entry.js");
const CHROMIUM = process.env.CHROMIUM ?? "/usr/bin/chromium";
const PYTHON = process.env.DLCHECK_PYTHON ?? join(ROOT, ".venv/bin/python");
const FIXED = "value.to(device, non_blocking=True)";
const NOTEBOOK_CELL = [
  "import torch\n",
  "from torch.utils.data import DataLoader\n",
  "loader = DataLoader(torch.arange(9), num_workers=2, pin_memory=True)\n",
  "for x in loader:\n",
  "    x = x.cuda()\n",
];

for (const file of [SERVER, CHROMIUM, PYTHON]) {
  if (!existsSync(file)) throw new Error(`${file} is not there: README.md says what this test needs`);
}
const scratch = mkdtempSync(join(tmpdir(), "dlcheck-e2e-"));
const project = join(scratch, "faulty");
const profile = ["--user-data-dir", join(scratch, "user"), "--extensions-dir", join(scratch, "extensions")];

function prepare() {
  cpSync(join(ROOT, "examples", "faulty"), project, { recursive: true });
  const cell = { cell_type: "code", metadata: {}, outputs: [], execution_count: null, source: NOTEBOOK_CELL };
  const notebook = { cells: [cell], metadata: { language_info: { name: "python" } }, nbformat: 4, nbformat_minor: 5 };
  writeFileSync(join(project, "training.ipynb"), JSON.stringify(notebook));
  configure();
  const packed = readdirSync(HERE).filter((name) => name.endsWith(".vsix"));
  assert.equal(packed.length, 1, "run `npm run package` first, once");
  install(join(HERE, packed[0]));
}

function install(vsix) {
  const done = spawnSync(process.execPath, [SERVER, ...profile, "--install-extension", vsix], { encoding: "utf8" });
  assert.equal(done.status, 0, done.stdout + done.stderr);
}

/** Write the settings: those of the user, and beside them those of this machine, which name paths. */
function configure(interpreter = PYTHON, trust = false) {
  const settings = {
    "security.workspace.trust.enabled": trust,
    "security.workspace.trust.startupPrompt": "never",
    "security.workspace.trust.banner": "never",
    "workbench.startupEditor": "none",
    "workbench.tips.enabled": false,
    "chat.commandCenter.enabled": false,
    "workbench.colorTheme": "Default Light Modern",
    "editor.minimap.enabled": false,
    "files.autoSave": "off",
  };
  for (const [folder, values] of [
    ["User", settings],
    ["Machine", { "dlcheck.interpreter": interpreter }],
  ]) {
    mkdirSync(join(scratch, "user", folder), { recursive: true });
    writeFileSync(join(scratch, "user", folder, "settings.json"), JSON.stringify(values));
  }
}

function freePort() {
  return new Promise((found) => {
    const probe = createServer().listen(0, "127.0.0.1", () => {
      const { port } = probe.address();
      probe.close(() => found(port));
    });
  });
}

const begun = Date.now();

function step(text) {
  console.log(`${((Date.now() - begun) / 1000).toFixed(0).padStart(4)} s: ${text}`);
}

async function playFixes(front, page) {
  step("findings are listed and underlined");
  await front.visit(`folder=${project}`);
  await front.command("Problems: Focus on Problems View");
  await front.open("devices.py");
  await front.problem("DLC101");
  await page.locator(".squiggly-warning, .squiggly-info, .squiggly-error").first().waitFor();

  step("its fix is applied, and the file is right");
  await front.goTo(17, 20);
  await front.action("Add `non_blocking=True`");
  await page.screenshot({ path: join(HERE, "images", "findings.png") });
  await page.keyboard.press("Enter");
  await page.keyboard.press("Control+S");
  const devices = join(project, "devices.py");
  const before = readFileSync(join(ROOT, "examples", "faulty", "devices.py"), "utf8");
  await until("the fixed file", () => readFileSync(devices, "utf8").includes(FIXED));
  assert.equal(readFileSync(devices, "utf8"), before.replace("value.to(device)", FIXED));
  await until("no problem any more", async () => !(await front.problems()).includes("DLC101"));

  step("the command applies all safe fixes");
  await page.keyboard.press("Control+Z");
  await front.problem("DLC101");
  await front.command("dlcheck: Apply All Safe Fixes of This File");
  await until("no problem any more", async () => !(await front.problems()).includes("DLC101"));
  await page.keyboard.press("Control+S");
}

async function playPage(front, page) {
  step("the page of a rule is shown in a preview");
  await front.command("dlcheck: Show a Rule");
  await page.locator(".quick-input-widget .quick-input-box input").first().fill("DLC202");
  await page.keyboard.press("Enter");
  await page.locator('.tab[aria-label*="Preview DLC202"]').waitFor();
  await until("the page", async () => (await front.textOfFrames()).includes("Why is this bad?"));
  await front.command("View: Close All Editors");
}

async function playMeasurement(front, page) {
  step("a finding is measured in a terminal, and says what came of it");
  await front.open("loaders.py");
  await front.problem("DLC202");
  await front.goTo(14, 14);
  await front.action("measure DLC202 (runs code)");
  await page.keyboard.press("Enter");
  await page.locator(".quick-input-list .monaco-list-row", { hasText: "With a stand-in, quickly" }).click();
  const records = join(project, ".dlcheck", "measurements");
  await until(
    "a record",
    () => existsSync(records) && readdirSync(records).some((name) => name.endsWith(".json")),
    180,
  );
  await front.command("Problems: Focus on Problems View");
  const filter = page.locator('.panel input[placeholder^="Filter"]').first();
  await filter.fill("Measured: here on"); // only the rows that are in view can be read
  await front.problem("Measured: here on");

  step("records that come and go with their folders count at once");
  const aside = join(scratch, "aside");
  renameSync(join(project, ".dlcheck"), aside);
  await until("no measurement", async () => !(await front.problems()).includes("Measured: here on"));
  cpSync(aside, join(project, ".dlcheck"), { recursive: true });
  await front.problem("Measured: here on");
  await filter.fill("");
  await front.command("View: Close All Editors");
}

async function playNotebook(front) {
  step("a notebook's cell is checked");
  await front.open("training.ipynb", ".notebookOverlay .cell .monaco-editor");
  await front.problem("DLC101");
  await front.command("View: Close All Editors");
}

async function playFailures(front, page) {
  step("a server that cannot start is said once, with what to install");
  await front.open("data.py");
  await front.problem("DLC304");
  configure(process.execPath);
  const message = page.locator(".notifications-toasts .notification-toast", { hasText: 'pip install "dlcheck[lsp]"' });
  await message.waitFor();
  assert.equal(await page.locator(".notifications-toasts .notification-toast").count(), 1);
  await until("no findings", async () => !(await front.problems()).includes("DLC304"));
  await message.getByRole("button", { name: "Show Output" }).click();
  configure();
  await front.command("Problems: Focus on Problems View");
  await front.problem("DLC304");

  step("a server that ends by itself is started again");
  const first = serverProcess();
  process.kill(first, "SIGKILL");
  await until("another server", () => ![undefined, first].includes(serverProcess()));
  await front.problem("DLC304");
  await page.locator('[id="status.languageStatus"]').hover();
  await page.locator(".hover-language-status", { hasText: /dlcheck \d+\.\d+/ }).waitFor();
  await page.keyboard.press("Escape");
}

async function playSettings(front) {
  step("settings count at once");
  mkdirSync(join(project, ".vscode"));
  writeFileSync(join(project, ".vscode", "settings.json"), JSON.stringify({ "dlcheck.extendIgnore": ["DLC304"] }));
  await until("DLC301 without DLC304", async () => {
    const listed = await front.problems();
    return listed.includes("DLC301") && !listed.includes("DLC304");
  });
}

/** The process of the server, by the folder of the extension that started it. */
function serverProcess() {
  const listed = spawnSync("pgrep", ["-f", `${scratch}/extensions/.*/bundled/start.py lsp`], {
    encoding: "utf8",
  }).stdout.trim();
  return listed === "" ? undefined : Number(listed.split("\n")[0]);
}

async function playFolders(front) {
  step("each folder of a workspace has its own configuration");
  const text =
    "from torch.utils.data import DataLoader\n\nfor x in DataLoader(range(9), num_workers=2, pin_memory=True):\n    x.cuda()\n";
  for (const [name, ignored] of [
    ["one", []],
    ["two", ["DLC101"]],
  ]) {
    mkdirSync(join(scratch, name));
    writeFileSync(join(scratch, name, "dlcheck.toml"), `extend-ignore = ${JSON.stringify(ignored)}\n`);
    writeFileSync(join(scratch, name, `of_${name}.py`), text);
  }
  const file = join(scratch, "both.code-workspace");
  writeFileSync(file, JSON.stringify({ folders: [{ path: "one" }, { path: "two" }] }));
  configure(); // in a window of its own, for the steps that follow
  await front.visit(`workspace=${file}`);
  await front.open("of_two.py");
  await front.command("Problems: Focus on Problems View");
  await front.problem("DLC601");
  await front.open("of_one.py");
  await front.problem("DLC101");
  assert.equal((await front.problems()).match(/DLC101/g).length, 1);
}

/** Stands in for the Python extension, which no registry of packages has: the part of its interface that counts here. */
const PYTHON_EXTENSION = `
const fs = require("fs");
const vscode = require("vscode");
const SELECTED = __SELECTED__;
exports.activate = () => {
  const changed = new vscode.EventEmitter();
  fs.watchFile(SELECTED, { interval: 200 }, () => changed.fire());
  return {
    environments: {
      getActiveEnvironmentPath: () => ({ id: "one", path: fs.readFileSync(SELECTED, "utf8") }),
      resolveEnvironment: async ({ path }) => ({ executable: { uri: vscode.Uri.file(path) } }),
      onDidChangeActiveEnvironmentPath: changed.event,
    },
  };
};
`;

function installPython(selected) {
  const folder = join(scratch, "python");
  mkdirSync(folder);
  const manifest = {
    name: "python",
    publisher: "ms-python",
    version: "1.0.0",
    main: "main.js",
    engines: { vscode: "^1.91.0" },
    activationEvents: ["onLanguage:python"],
  };
  writeFileSync(join(folder, "package.json"), JSON.stringify(manifest));
  writeFileSync(join(folder, "main.js"), PYTHON_EXTENSION.replace("__SELECTED__", JSON.stringify(selected)));
  const vsce = join(HERE, "node_modules", "@vscode", "vsce", "vsce");
  const options = [
    "--allow-missing-repository",
    "--skip-license",
    "--no-dependencies",
    "--out",
    join(scratch, "python.vsix"),
  ];
  const packed = spawnSync(process.execPath, [vsce, "package", ...options], { cwd: folder, encoding: "utf8" });
  assert.equal(packed.status, 0, packed.stdout + packed.stderr);
  install(join(scratch, "python.vsix"));
}

async function playPython(front, page) {
  step("the interpreter that the Python extension selects is taken, and another one when it changes");
  const selected = join(scratch, "selected");
  writeFileSync(selected, process.execPath);
  installPython(selected);
  configure("");
  await front.visit(`folder=${join(scratch, "one")}`);
  await front.open("of_one.py");
  const told = `Install it in \`${process.execPath}\``;
  await page.locator(".notifications-toasts .notification-toast", { hasText: told }).waitFor();
  writeFileSync(selected, PYTHON);
  await front.command("Problems: Focus on Problems View");
  await front.problem("DLC101");
}

/** A folder that brings along a command, an interpreter, and settings that name them. */
function prepareTrap() {
  const trace = join(scratch, "sprung");
  const trap = join(scratch, "trap");
  cpSync(join(ROOT, "examples", "faulty"), trap, { recursive: true });
  mkdirSync(join(trap, ".venv", "bin"), { recursive: true });
  mkdirSync(join(trap, ".vscode"));
  const python = join(trap, ".venv", "bin", "python");
  writeFileSync(python, `#!/bin/sh\ntouch ${trace}\nexec ${PYTHON} "$@"\n`, { mode: 0o755 });
  const settings = { "dlcheck.path": python, "dlcheck.interpreter": python, "python.defaultInterpreterPath": python };
  writeFileSync(join(trap, ".vscode", "settings.json"), JSON.stringify(settings));
  return { trap, trace };
}

async function playTrap(front, page) {
  const { trap, trace } = prepareTrap();
  step("in a folder that nobody trusts, findings come, and nothing of its own is run");
  configure(PYTHON, true);
  await front.visit(`folder=${trap}`);
  await front.open("data.py");
  await front.command("Problems: Focus on Problems View");
  await front.problem("DLC304");
  configure("", true);
  await page.locator(".notifications-toasts .notification-toast", { hasText: "found no server to start" }).waitFor();
  assert.ok(!existsSync(trace));

  step("once it is trusted, its settings count");
  await front.command("Workspaces: Manage Workspace Trust");
  await page.locator(".workspace-trust-editor").getByRole("button", { name: "Trust", exact: true }).click();
  await until("its own interpreter", () => existsSync(trace));
}

async function main() {
  prepare();
  const port = await freePort();
  const options = [
    "--auth",
    "none",
    "--bind-addr",
    `127.0.0.1:${port}`,
    "--disable-telemetry",
    "--disable-update-check",
  ];
  const log = [];
  const server = spawn(process.execPath, [SERVER, ...profile, ...options], { stdio: "pipe", detached: true });
  for (const stream of [server.stdout, server.stderr]) stream.on("data", (data) => log.push(String(data)));
  let browser, page;
  try {
    await until("the server", async () => (await fetch(`http://127.0.0.1:${port}/healthz`)).ok);
    browser = await chromium.launch({ executablePath: CHROMIUM, args: ["--no-sandbox"] });
    page = await browser.newPage({ viewport: { width: 1100, height: 640 } });
    page.setDefaultTimeout(30_000);
    const front = new Front(page, `http://127.0.0.1:${port}`);
    await playFixes(front, page);
    await playPage(front, page);
    await playMeasurement(front, page);
    await playNotebook(front);
    await playFailures(front, page);
    await playSettings(front);
    await playFolders(front);
    await playPython(front, page);
    await playTrap(front, page);
    step("passed");
  } catch (error) {
    await page?.screenshot({ path: join(HERE, ".e2e", "failure.png") }).catch(() => undefined);
    console.error(log.slice(-20).join(""));
    console.error(`the screen is in .e2e/failure.png, the profile in ${scratch}`);
    throw error;
  } finally {
    await browser?.close();
    process.kill(-server.pid);
  }
  rmSync(scratch, { recursive: true, force: true });
}

await main();
