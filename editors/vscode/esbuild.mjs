// Bundles the extension into dist/, with the licences of what is in the bundle; with --tests the tests into out/.
import { build } from "esbuild";
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";

const common = { bundle: true, platform: "node", target: "node20", external: ["vscode"], logLevel: "warning" };

async function bundleExtension(production) {
  rmSync("dist", { recursive: true, force: true });
  const { metafile } = await build({
    ...common,
    entryPoints: ["src/extension.ts"],
    outfile: "dist/extension.js",
    format: "cjs",
    minify: production,
    sourcemap: !production,
    metafile: true,
  });
  mkdirSync("dist", { recursive: true });
  writeFileSync("dist/NOTICES.txt", notices(Object.keys(metafile.inputs)));
}

async function bundleTests() {
  rmSync("out", { recursive: true, force: true });
  const entryPoints = readdirSync("test").filter((name) => name.endsWith(".test.ts"));
  await build({
    ...common,
    entryPoints: entryPoints.map((name) => join("test", name)),
    outdir: "out",
    outExtension: { ".js": ".mjs" },
    format: "esm",
    packages: "external",
    sourcemap: true,
  });
}

function notices(inputs) {
  const folders = new Set(inputs.map(packageOf).filter((folder) => folder !== undefined));
  const texts = [...folders].sort().map((folder) => {
    const { name, version, license } = JSON.parse(readFileSync(join(folder, "package.json"), "utf8"));
    const file = readdirSync(folder).find((entry) => /^licen[cs]e/i.test(entry));
    if (file === undefined) throw new Error(`${name} has no licence file`);
    return `${name} ${version} (${license})\n\n${readFileSync(join(folder, file), "utf8").trim()}\n`;
  });
  return `dist/extension.js holds these packages.\n\n${texts.join("\n----\n\n")}`;
}

function packageOf(input) {
  if (!input.startsWith("node_modules/")) return undefined;
  let folder = dirname(input);
  while (
    !existsSync(join(folder, "package.json")) ||
    !("version" in JSON.parse(readFileSync(join(folder, "package.json"), "utf8")))
  )
    folder = dirname(folder);
  return folder;
}

if (process.argv.includes("--tests")) await bundleTests();
else await bundleExtension(process.argv.includes("--production"));
