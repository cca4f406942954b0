// What a person does in the front end, for Playwright.
import { setTimeout as sleep } from "node:timers/promises";

export async function until(what, ask, seconds = 60) {
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

export class Front {
  constructor(page, address) {
    this.page = page;
    this.address = address;
  }

  async visit(query) {
    await this.page.goto(`${this.address}/?${query}`);
    await this.page.locator(".monaco-workbench .explorer-folders-view").waitFor();
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
    return (await rows.evaluateAll((found) => found.map((row) => row.textContent ?? ""))).join("\n");
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

  /** What previews show: each is a page of its own. */
  async textOfFrames() {
    const bodies = this.page.frames().map((frame) =>
      frame
        .locator("body")
        .innerText({ timeout: 1000 })
        .catch(() => ""),
    );
    return (await Promise.all(bodies)).join("\n");
  }
}
