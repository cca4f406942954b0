// A real front end of Visual Studio Code (code-server, in Chromium) with the packed extension: findings, fixes, the
// page of a rule, a notebook, and a measurement that is run in the terminal and then shown. README.md says what it needs.
import assert from "node:assert/strict";
import { spawn, spawnSync } from "node:child_process";
import { cpSync, existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
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
  mkdirSync(join(scratch, "user", "User"), { recursive: true });
  const settings = {
    "dlcheck.interpreter": PYTHON,
    "security.workspace.trust.enabled": false,
    "workbench.startupEditor": "none",
    "workbench.tips.enabled": false,
    "chat.commandCenter.enabled": false,
    "workbench.colorTheme": "Default Light Modern",
    "editor.minimap.enabled": false,
    "files.autoSave": "off",
  };
  writeFileSync(join(scratch, "user", "User", "settings.json"), JSON.stringify(settings));
  const packed = readdirSync(HERE).filter((name) => name.endsWith(".vsix"));
  assert.equal(packed.length, 1, "run `npm run package` first, once");
  const done = spawnSync(process.execPath, [SERVER, ...profile, "--install-extension", join(HERE, packed[0])], { encoding: "utf8" });
  assert.equal(done.status, 0, done.stdout + done.stderr);
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

function step(text) {
  console.log(`- ${text}`);
}

class Front {
  constructor(page) {
    this.page = page;
  }

  async command(title) {
    await this.page.keyboard.press("F1");
    await this.page.locator(".quick-input-widget .quick-input-box input").first().fill(`>${title}`);
    await this.page.locator(".quick-input-list .monaco-list-row", { hasText: title }).first().click();
  }

  async open(name, ready = ".monaco-editor .view-lines") {
    await this.page.keyboard.press("Control+P");
    await this.page.locator(".quick-input-widget .quick-input-box input").first().fill(name);
    await this.page.locator(".quick-input-list .monaco-list-row", { hasText: name }).first().click();
    await this.page.locator(`.tab.active[aria-label*="${name}"]`).waitFor();
    await this.page.locator(ready).first().waitFor();
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
    console.log("passed");
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
