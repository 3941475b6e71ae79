#!/usr/bin/env bash
# Checks the types in the scripts of all pages with TypeScript (tsconfig.json). Nothing is compiled, so neither the build
# nor the program needs Node. The compiler is kept in target/typescript; where it cannot be had, one loud line.
set -euo pipefail
cd "$(dirname "$0")/../../.."

version=5.9.3 sha256=10e108c9cf7d5f2879053dff18515fb405abf2ccef63eaaf017d9c571687a1d3
folder=${CARGO_TARGET_DIR:-$PWD/target}/typescript

skip() { printf '\n!!! NOT CHECKED: the types of the page scripts: %s\n\n' "$*" >&2; exit 0; }

command -v node >/dev/null && command -v npm >/dev/null || skip "Node is not here (Debian: apt-get install nodejs npm)"
if [ ! -f "$folder/package-$version/lib/tsc.js" ]; then
    mkdir -p "$folder"
    (cd "$folder" && npm pack --silent "typescript@$version" >/dev/null) || skip "TypeScript cannot be fetched"
    echo "$sha256  $folder/typescript-$version.tgz" | sha256sum --check --quiet
    tar -xzf "$folder/typescript-$version.tgz" -C "$folder"
    mv "$folder/package" "$folder/package-$version"
fi
node "$folder/package-$version/lib/tsc.js" -p tsconfig.json
