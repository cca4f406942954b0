import assert from "node:assert/strict";
import { test } from "node:test";

import { type Command, type Host, isMissing, type Missing, resolve, type Wishes } from "../src/resolution.js";

const NOTHING: Wishes = {
  path: "",
  interpreter: "",
  args: [],
  selected: undefined,
  defaultInterpreter: undefined,
  folders: ["/code/one", "/code/two"],
  trusted: true,
};

interface Given {
  readonly files?: readonly string[];
  readonly servers?: readonly string[];
  readonly path?: string;
  readonly platform?: NodeJS.Platform;
}

/** A machine with some executables, of which some are interpreters that have the server. */
function host({
  files = [],
  servers = [],
  path = "/usr/bin:/bin",
  platform = "linux",
}: Given): Host & { asked: string[] } {
  const asked: string[] = [];
  return {
    asked,
    platform,
    env: { PATH: path, TOOLS: "/tools" },
    home: "/home/me",
    starter: "/extension/start.py",
    isExecutable: (file) => Promise.resolve([...files, ...servers].includes(file)),
    hasServer: (python) => {
      asked.push(python);
      return Promise.resolve(servers.includes(python));
    },
  };
}

async function commandOf(wishes: Partial<Wishes>, given: Given): Promise<Command> {
  const found = await resolve({ ...NOTHING, ...wishes }, host(given));
  assert.ok(!isMissing(found), JSON.stringify(found));
  return found;
}

async function missingOf(wishes: Partial<Wishes>, given: Given): Promise<Missing> {
  const found = await resolve({ ...NOTHING, ...wishes }, host(given));
  assert.ok(isMissing(found), JSON.stringify(found));
  return found;
}

test("the path of the settings comes first, with its arguments", async () => {
  const wishes = {
    path: "uv",
    args: ["run", "--project", "${workspaceFolder}", "dlcheck"],
    interpreter: "/py",
    selected: "/sel",
  };
  const found = await commandOf(wishes, { files: ["/usr/bin/uv"], servers: ["/py", "/sel"] });
  assert.equal(found.command, "/usr/bin/uv");
  assert.deepEqual(found.args, ["run", "--project", "/code/one", "dlcheck"]);
  assert.equal(found.python, undefined);
});

test("a path that is not there is said, and nothing else is started in its place", async () => {
  const found = await missingOf(
    { path: "/gone/dlcheck", selected: "/sel" },
    { files: ["/usr/bin/dlcheck"], servers: ["/sel"] },
  );
  assert.deepEqual(found.tried, ["`dlcheck.path`: there is no command `/gone/dlcheck`"]);
});

test("variables and relative paths start where they say", async () => {
  for (const [path, file] of [
    ["~/bin/dlcheck", "/home/me/bin/dlcheck"],
    ["${userHome}/bin/dlcheck", "/home/me/bin/dlcheck"],
    ["${env:TOOLS}/dlcheck", "/tools/dlcheck"],
    ["${workspaceFolder}/env/dlcheck", "/code/one/env/dlcheck"],
    ["env/dlcheck", "/code/one/env/dlcheck"],
  ] as const) {
    assert.equal((await commandOf({ path }, { files: [file] })).command, file);
  }
  const unknown = await missingOf({ path: "${config:x}/dlcheck" }, {});
  assert.match(unknown.tried.join(), /\$\{config:x\}\/dlcheck/);
});

test("an interpreter of the settings runs the starter, without being asked", async () => {
  const machine = host({ files: ["/py"] });
  const found = await resolve({ ...NOTHING, interpreter: "/py", selected: "/sel" }, machine);
  assert.deepEqual(found, {
    command: "/py",
    args: ["/extension/start.py"],
    origin: "dlcheck.interpreter",
    python: "/py",
  });
  assert.deepEqual(machine.asked, []);
});

test("the first interpreter that has the server is taken", async () => {
  const all = { selected: "/sel", defaultInterpreter: "/default" };
  const environment = "/code/two/.venv/bin/python";
  for (const [servers, expected] of [
    [["/sel", "/default", environment], "/sel"],
    [["/default", environment], "/default"],
    [[environment], environment],
  ] as const) {
    const found = await commandOf(all, { files: ["/sel", "/default", "/usr/bin/dlcheck"], servers });
    assert.equal(found.command, expected);
  }
});

test("where no interpreter has it, the command on the search path is taken", async () => {
  const found = await commandOf({ selected: "/sel" }, { files: ["/sel", "/bin/dlcheck"] });
  assert.equal(found.command, "/bin/dlcheck");
  assert.deepEqual(found.args, []);
});

test("where nothing is found, all that was tried is said", async () => {
  const found = await missingOf({ selected: "/sel" }, { files: ["/sel"] });
  assert.deepEqual(found.tried, [
    "the Python extension: `/sel` has no dlcheck with its server",
    "the search path: there is no command `dlcheck`",
  ]);
});

test("of a workspace that nobody trusts no interpreter is started", async () => {
  const machine = host({ servers: ["/sel", "/code/one/.venv/bin/python"], files: ["/usr/bin/dlcheck"] });
  const found = await resolve({ ...NOTHING, trusted: false, selected: "/sel" }, machine);
  assert.ok(!isMissing(found));
  assert.equal(found.command, "/usr/bin/dlcheck");
  assert.deepEqual(machine.asked, []);
});

test("a name is never looked up in the current folder", async () => {
  const given = { path: ".::bin:/usr/bin", files: ["dlcheck", "./dlcheck", "bin/dlcheck", "/code/one/dlcheck"] };
  await missingOf({}, given);
  await missingOf({ path: "dlcheck" }, given);
});

test("Windows has its own names", async () => {
  const windows = { platform: "win32", path: "C:\\Tools;.;D:\\bin" } as const;
  const python = "C:\\code\\.venv\\Scripts\\python.exe";
  const own = await commandOf({ folders: ["C:\\code"] }, { ...windows, servers: [python] });
  assert.equal(own.command, python);
  const onPath = await commandOf(
    { folders: ["C:\\code"] },
    { ...windows, files: ["D:\\bin\\dlcheck.exe", "D:\\bin\\dlcheck.cmd"] },
  );
  assert.equal(onPath.command, "D:\\bin\\dlcheck.exe");
});
