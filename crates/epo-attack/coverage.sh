#!/usr/bin/env bash
# Builds libFuzzer with the parsers of this crate and with counters in every branch (the options of `cargo fuzz` without
# a sanitizer; they work with stable Rust), and prints the path of the program. `./check long` calls it.
set -eu
cd "$(dirname "$0")/../.."

counters="-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
-Cllvm-args=-sanitizer-coverage-pc-table -Cllvm-args=-sanitizer-coverage-trace-compares -Ccodegen-units=1"
target=x86_64-unknown-linux-gnu # named, so that build scripts are built without counters
RUSTFLAGS="$counters" CARGO_PROFILE_RELEASE_LTO=off cargo build --quiet --release --package epo-attack --features coverage \
    --target $target --target-dir target/coverage >&2
echo "$PWD/target/coverage/$target/release/epo-attack"
