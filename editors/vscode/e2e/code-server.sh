#!/bin/sh
# Puts code-server into .e2e/, from npm alone: its own installation wants to fetch binaries from elsewhere.
# It needs Node.js 20 with its headers, a compiler, Python, ripgrep, pkg-config and the headers of Kerberos
# (on Debian: build-essential python3 ripgrep pkg-config libkrb5-dev); Chromium for the test itself.
set -eu
cd "$(dirname "$0")/.."
VERSION=4.99.4 # with Visual Studio Code 1.99.3
mkdir -p .e2e
cd .e2e
echo '{"private": true}' >package.json
npm install --ignore-scripts --no-audit --no-fund "code-server@$VERSION"
node_gyp=$(dirname "$(dirname "$(node -p 'fs.realpathSync(process.argv[1])' "$(command -v npm)")")")/node_modules/node-gyp/bin/node-gyp.js
nodedir=$(dirname "$(dirname "$(node -p process.execPath)")")
vscode=$PWD/node_modules/code-server/lib/vscode
(cd "$vscode" && npm install --omit=dev --ignore-scripts --no-audit --no-fund)

build() { # FOLDER [OPTION...]
  (cd "$1" && shift && node "$node_gyp" rebuild --nodedir="$nodedir" "$@" >build.log 2>&1) || {
    tail -n 20 "$1/build.log"
    exit 1
  }
}

for module in node-pty native-watchdog kerberos @vscode/spdlog; do
  echo "building $module"
  build "$vscode/node_modules/$module"
done
echo "building argon2"
argon2=$PWD/node_modules/argon2
build "$argon2" --module_name=argon2 --module_path="$argon2/lib/binding/napi-v3" --module="$argon2/lib/binding/napi-v3/argon2.node" \
  --napi_version=9 --napi_build_version=3 --node_napi_label=napi-v3
mkdir -p "$vscode/node_modules/@vscode/ripgrep/bin"
ln -sf "$(command -v rg)" "$vscode/node_modules/@vscode/ripgrep/bin/rg"
ln -sfn node_modules "$vscode/node_modules.asar"
node node_modules/code-server/out/node/entry.js --version
