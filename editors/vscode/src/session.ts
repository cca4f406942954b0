/** The server while it runs: started, told of settings, started again. */

import * as vscode from "vscode";
import {
  CloseAction,
  ErrorAction,
  FileChangeType,
  LanguageClient,
  State as ClientState,
} from "vscode-languageclient/node";
import type {
  CloseHandlerResult,
  ErrorHandler,
  LanguageClientOptions,
  ServerOptions,
} from "vscode-languageclient/node";

import { hostOf } from "./host.js";
import { defaultInterpreter, selectedInterpreter } from "./python.js";
import { type Command, isMissing, resolve, type Wishes } from "./resolution.js";
import { Restarts } from "./restarts.js";
import { showPage, SHOW_RULE, wantedRule } from "./rules.js";
import { type Configuration, type ServerSettings, serverSettings } from "./settings.js";
import { failedMessage, missingMessage, type State } from "./status.js";

const STDERR_LINES = 20;

export const SELECTOR: { scheme: string; language: string }[] = [
  { scheme: "file", language: "python" },
  { scheme: "untitled", language: "python" },
  { scheme: "vscode-notebook-cell", language: "python" },
];

export function currentSettings(): ServerSettings {
  const configuration: Configuration = vscode.workspace.getConfiguration("dlcheck");
  return serverSettings(configuration);
}

export class Session implements vscode.Disposable {
  private client: LanguageClient | undefined;
  private queue: Promise<void> = Promise.resolve();
  private current: State = { kind: "stopped" };
  private readonly changed = new vscode.EventEmitter<State>();
  readonly onStateChange = this.changed.event;

  constructor(
    private readonly output: vscode.LogOutputChannel,
    private readonly starter: string,
  ) {}

  /** The command that was started, while it runs. */
  get server(): Command | undefined {
    return this.current.kind === "ready" ? this.current.server : undefined;
  }

  /** Stop what runs and start what the settings say now; one after the other, however often it is asked for. */
  restart(): Promise<void> {
    this.queue = this.queue
      .then(() => this.startAgain())
      .catch((error: unknown) => {
        this.become({ kind: "error", message: String(error) });
      });
    return this.queue;
  }

  /** Start again if the settings lead to another command now. */
  async reconsider(): Promise<void> {
    await this.queue;
    const found = await resolve(await wishes(), this.host());
    const server = this.server;
    const same = server !== undefined && !isMissing(found) && JSON.stringify(found) === JSON.stringify(server);
    if (!same) await this.restart();
  }

  async configure(): Promise<void> {
    await this.client?.sendNotification("workspace/didChangeConfiguration", {
      settings: { dlcheck: currentSettings() },
    });
  }

  /** Have everything checked once more: files have come that the editor may not have seen coming. */
  async lookAgain(uri: vscode.Uri): Promise<void> {
    const changes = [{ uri: uri.toString(), type: FileChangeType.Changed }];
    await this.client?.sendNotification("workspace/didChangeWatchedFiles", { changes });
  }

  async stop(): Promise<void> {
    await this.queue;
    await this.stopClient();
  }

  dispose(): void {
    this.changed.dispose();
  }

  private host(): ReturnType<typeof hostOf> {
    return hostOf(this.starter, (line) => {
      this.output.info(line);
    });
  }

  private become(state: State): void {
    this.current = state;
    void vscode.commands.executeCommand("setContext", "dlcheck.running", state.kind === "ready");
    this.changed.fire(state);
  }

  private async startAgain(): Promise<void> {
    await this.stopClient();
    if (!vscode.workspace.getConfiguration("dlcheck").get<boolean>("enable", true)) {
      this.become({ kind: "off" });
      return;
    }
    const wanted = await wishes();
    const found = await resolve(wanted, this.host());
    if (isMissing(found)) {
      for (const line of found.tried) this.output.warn(line);
      this.become({ kind: "missing", missing: found });
      this.complain(missingMessage(wanted.selected));
      return;
    }
    await this.start(found);
  }

  private async start(server: Command): Promise<void> {
    this.become({ kind: "starting", server });
    this.output.info(`starting ${[server.command, ...server.args, "lsp"].join(" ")} (${server.origin})`);
    const said: string[] = [];
    const client = this.clientFor(server, said);
    this.client = client;
    try {
      await client.start();
    } catch (error) {
      this.client = undefined;
      this.output.error(String(error));
      const message = failedMessage(server, said);
      this.become({ kind: "error", message });
      this.complain(message);
      return;
    }
    const ready = (): State => ({ kind: "ready", server, version: client.initializeResult?.serverInfo?.version });
    client.hasStarted = true;
    this.become(ready());
    client.onDidChangeState(({ newState }) => {
      if (this.client !== client) return;
      if (newState === ClientState.Running) this.become(ready());
      else if (newState === ClientState.Starting) this.become({ kind: "starting", server });
      else this.become({ kind: "stopped" });
    });
  }

  private clientFor(server: Command, said: string[]): Client {
    const folder = firstFolder();
    const options: ServerOptions = {
      command: server.command,
      args: [...server.args, "lsp"],
      ...(folder === undefined ? {} : { options: { cwd: folder.fsPath } }),
    };
    const listen = (stream: NodeJS.ReadableStream, output: vscode.LogOutputChannel): void => {
      stream.on("data", (data: Buffer | string) => {
        const lines = data
          .toString()
          .split(/\r?\n/)
          .filter((line) => line.trim() !== "");
        for (const line of lines) output.info(line);
        said.push(...lines);
        said.splice(0, said.length - STDERR_LINES);
      });
    };
    const clientOptions: LanguageClientOptions = {
      documentSelector: SELECTOR,
      outputChannel: this.output,
      traceOutputChannel: this.output,
      initializationOptions: () => ({ ...currentSettings(), trusted: vscode.workspace.isTrusted }),
      initializationFailedHandler: () => false,
      errorHandler: new Endings(() => this.current.kind === "ready"),
      stdioOptions: { stdout: () => undefined, stderr: listen },
      middleware: {
        workspace: {
          configuration: (params) =>
            params.items.map((item) => (item.section === "dlcheck" ? currentSettings() : null)),
        },
        window: {
          showDocument: async (params, token, next) =>
            (await showPage(vscode.Uri.parse(params.uri))) ? { success: true } : next(params, token),
        },
        executeCommand: async (command, args: unknown[], next) => {
          if (command !== SHOW_RULE) return next(command, args) as unknown;
          const code = await wantedRule(args[0]);
          return code === undefined ? undefined : (next(command, [code]) as unknown);
        },
      },
    };
    return new Client("dlcheck", "dlcheck", options, clientOptions);
  }

  private complain(message: string): void {
    const show = "Show Output";
    void vscode.window.showErrorMessage(message, show).then((chosen) => {
      if (chosen === show) this.output.show();
    });
  }

  private async stopClient(): Promise<void> {
    const client = this.client;
    this.client = undefined;
    if (client === undefined) return;
    this.become({ kind: "stopped" });
    try {
      await client.dispose();
    } catch (error) {
      this.output.warn(`the server did not end by itself: ${String(error)}`);
    }
  }
}

/** Leaves it to the session to say that there is no server: the client would say it once more, in words for developers. */
class Client extends LanguageClient {
  hasStarted = false;

  override error(message: string, data?: unknown, showNotification: boolean | "force" = true): void {
    super.error(message, data, this.hasStarted && showNotification);
  }
}

/** A server that never answered is not tried again; one that did is, unless it ends again and again. */
class Endings implements ErrorHandler {
  private readonly restarts = new Restarts();

  constructor(private readonly hasRun: () => boolean) {}

  error(): { action: ErrorAction } {
    return { action: ErrorAction.Continue };
  }

  closed(): CloseHandlerResult {
    if (!this.hasRun()) return { action: CloseAction.DoNotRestart, handled: true };
    if (this.restarts.allows(Date.now())) return { action: CloseAction.Restart, handled: true };
    const message = "The server of dlcheck ends again and again, and is not started any more.";
    return { action: CloseAction.DoNotRestart, message };
  }
}

function firstFolder(): vscode.Uri | undefined {
  return vscode.workspace.workspaceFolders?.find((folder) => folder.uri.scheme === "file")?.uri;
}

async function wishes(): Promise<Wishes> {
  const configuration = vscode.workspace.getConfiguration("dlcheck");
  const folder = firstFolder();
  const folders = (vscode.workspace.workspaceFolders ?? []).filter((one) => one.uri.scheme === "file");
  return {
    path: configuration.get<string>("path", "").trim(),
    interpreter: configuration.get<string>("interpreter", "").trim(),
    args: configuration.get<string[]>("args", []),
    selected: vscode.workspace.isTrusted ? await selectedInterpreter(folder) : undefined,
    defaultInterpreter: defaultInterpreter(folder),
    folders: folders.map((one) => one.uri.fsPath),
    trusted: vscode.workspace.isTrusted,
  };
}
