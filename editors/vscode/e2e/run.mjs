// A real front end of Visual Studio Code (code-server, in Chromium) with the packed extension: findings, fixes, the
// page of a rule, a notebook, and a measurement that is run in the terminal and then shown. README.md says what it needs.
import assert from "node:assert/strict";
import { spawn, spawnSync } from "node:child_process";
import { cpSync, existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { chromium } from "playwright-core";

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
  const done = spawnSync(process.execPath, [SERVER, ...profile, "--install-extension", join(HERE, packed[0])], { encoding: "utf8" });
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
  for (const [folder, values] of [["User", settings], ["Machine", { "dlcheck.interpreter": interpreter }]]) {
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

async function until(what, ask, seconds = 60) {
  const end = Date.now() + seconds * 1000;
  let last;
  while (Date.now() < end) {
    try {
      last = await ask();
      if (last) return last;
    } catch (error) {
      last = error;
    }
    await sleep(250);
  }
  throw new Error(`not within ${seconds} s: ${what} (${last})`);
}

const begun = Date.now();

function step(text) {
  console.log(`${((Date.now() - begun) / 1000).toFixed(0).padStart(4)} s: ${text}`);
}

class Front {
  constructor(page) {
    this.page = page;
  }

  async command(title) {
    await this.pick("F1", `>${title}`, title);
  }

  async open(name, ready = ".monaco-editor .view-lines") {
    await this.pick("Control+P", name, name);
    await this.page.locator(`.tab.active[aria-label*="${name}"]`).waitFor();
    await this.page.locator(ready).first().waitFor();
  }

  /** Choose a row of a quick pick, which closes by itself whenever something else takes the focus. */
  async pick(key, typed, row) {
    await until(`${row} in a list`, async () => {
      await this.page.keyboard.press(key);
      await this.page.locator(".quick-input-widget .quick-input-box input").first().fill(typed, { timeout: 5000 });
      const found = this.page.locator(".quick-input-list .monaco-list-row", { hasText: row }).first();
      await found.click({ timeout: 5000 });
      return true;
    });
  }

  async goTo(line, column) {
    await this.page.keyboard.press("Control+G");
    await this.page.locator(".quick-input-widget .quick-input-box input").first().fill(`:${line}:${column}`);
    await this.page.keyboard.press("Enter");
  }

  async problems() {
    const rows = this.page.locator(".markers-panel .monaco-list-row");
    const labels = await rows.evaluateAll((found) => found.map((row) => `${row.getAttribute("aria-label") ?? ""} ${row.textContent ?? ""}`));
    return labels.join("\n");
  }

  async problem(text, seconds) {
    return until(`a problem with ${text}`, async () => (await this.problems()).includes(text), seconds);
  }

  /** Open the menu of actions at the cursor and go to one; Enter chooses it. */
  async action(title) {
    await this.page.keyboard.press("Control+.");
    await this.page.locator(".action-widget .monaco-list-row", { hasText: title }).first().waitFor();
    const focused = this.page.locator(".action-widget .monaco-list-row.focused");
    for (let row = 0; !(await focused.textContent())?.includes(title); row++) {
      if (row > 30) throw new Error(`the menu has no row ${title}`);
      await this.page.keyboard.press("ArrowDown");
    }
  }
}

async function play(front, page) {
  step("findings are listed and underlined");
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

  step("the page of a rule is shown in a preview");
  await front.command("dlcheck: Show a Rule");
  await page.locator(".quick-input-widget .quick-input-box input").first().fill("DLC202");
  await page.keyboard.press("Enter");
  await page.locator('.tab[aria-label*="Preview DLC202"]').waitFor();
  await until("the page", async () => (await textOfFrames(page)).includes("Why is this bad?"));
  await front.command("View: Close All Editors");

  step("a finding is measured in a terminal, and says what came of it");
  await front.open("loaders.py");
  await front.problem("DLC202");
  await front.goTo(14, 14);
  await front.action("measure DLC202 (runs code)");
  await page.keyboard.press("Enter");
  await page.locator(".quick-input-list .monaco-list-row", { hasText: "With a stand-in, quickly" }).click();
  const records = join(project, ".dlcheck", "measurements");
  await until("a record", () => existsSync(records) && readdirSync(records).some((name) => name.endsWith(".json")), 180);
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

  step("a notebook's cell is checked");
  await front.open("training.ipynb", ".notebookOverlay .cell .monaco-editor");
  await front.problem("DLC101");
  await front.command("View: Close All Editors");

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

  step("settings count at once");
  mkdirSync(join(project, ".vscode"));
  writeFileSync(join(project, ".vscode", "settings.json"), JSON.stringify({ "dlcheck.extendIgnore": ["DLC304"] }));
  await until("no DLC304", async () => !(await front.problems()).includes("DLC304"));
  assert.ok((await front.problems()).includes("DLC301"));
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

async function playTrap(front, page, address) {
  const { trap, trace } = prepareTrap();
  step("in a folder that nobody trusts, findings come, and nothing of its own is run");
  configure(PYTHON, true);
  await page.goto(`${address}/?folder=${trap}`);
  await page.locator(".monaco-workbench .explorer-folders-view").waitFor();
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

async function textOfFrames(page) {
  const texts = await Promise.all(page.frames().map((frame) => frame.locator("body").innerText({ timeout: 1000 }).catch(() => "")));
  return texts.join("\n");
}

async function main() {
  prepare();
  const port = await freePort();
  const options = ["--auth", "none", "--bind-addr", `127.0.0.1:${port}`, "--disable-telemetry", "--disable-update-check"];
  const log = [];
  const server = spawn(process.execPath, [SERVER, ...profile, ...options], { stdio: "pipe", detached: true });
  for (const stream of [server.stdout, server.stderr]) stream.on("data", (data) => log.push(String(data)));
  let browser, page;
  try {
    await until("the server", async () => (await fetch(`http://127.0.0.1:${port}/healthz`)).ok);
    browser = await chromium.launch({ executablePath: CHROMIUM, args: ["--no-sandbox"] });
    page = await browser.newPage({ viewport: { width: 1100, height: 640 } });
    page.setDefaultTimeout(30_000);
    await page.goto(`http://127.0.0.1:${port}/?folder=${project}`);
    await page.locator(".monaco-workbench .explorer-folders-view").waitFor();
    await play(new Front(page), page);
    await playTrap(new Front(page), page, `http://127.0.0.1:${port}`);
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
