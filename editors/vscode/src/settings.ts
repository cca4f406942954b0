/** The editor's settings as the server takes them. */

/** The settings that are keys of `[tool.dlcheck]`: those that mean something to an editor. */
export const SERVER_KEYS = [
  "select",
  "extendSelect",
  "ignore",
  "extendIgnore",
  "perFileIgnores",
  "minConfidence",
  "exclude",
  "extendExclude",
  "forceExclude",
  "targetTorch",
  "targetPython",
  "baseline",
] as const;

export type ServerKey = (typeof SERVER_KEYS)[number];
export type ServerSettings = Partial<Record<ServerKey, unknown>>;

/** These start the server, and are not told to it. */
export const STARTING_KEYS = ["enable", "path", "interpreter", "args"] as const;

/** What `WorkspaceConfiguration.inspect` says of a setting. */
export interface Inspected {
  readonly globalValue?: unknown;
  readonly workspaceValue?: unknown;
  readonly workspaceFolderValue?: unknown;
}

export interface Configuration {
  get(key: string): unknown;
  inspect(key: string): Inspected | undefined;
}

/** Whether somebody has set a setting: a default must not override the project's configuration file. */
export function isSet(inspected: Inspected | undefined): boolean {
  return [inspected?.globalValue, inspected?.workspaceValue, inspected?.workspaceFolderValue].some(
    (value) => value !== undefined,
  );
}

export function serverSettings(configuration: Configuration): ServerSettings {
  const settings: ServerSettings = {};
  for (const key of SERVER_KEYS) {
    if (isSet(configuration.inspect(key))) settings[key] = configuration.get(key);
  }
  return settings;
}
