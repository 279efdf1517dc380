#!/usr/bin/env bash
# cc 1.11.1 with cargo: `debug = "line-tables-only"` makes full debug information for C code.
#
# Expectation: a profile with line tables only gives line tables only, for the C code of a build script too (`-g1`).
# Observation: cargo hands a build script `DEBUG=true` for every level above none, and cc compiles with plain `-g`. Each
# object then describes all types, parameters and variables, as with `debug = "full"`.
# Affected: every crate that compiles C. The optimised archive of aws-lc-sys 0.47.0 has 33 MB instead of 7 MB, and
# takes longer to compile.
# Remedy: `[profile.dev.package.NAME] debug = false` for crates whose C code nobody debugs.
#
# The script needs cargo, a C compiler, readelf and the network. It exits with 1 if the behaviour has changed.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
mkdir "$folder/src"
cat > "$folder/Cargo.toml" <<'T'
[package]
name = "finding"
version = "0.0.0"
edition = "2021"
build = "build.rs"
[build-dependencies]
cc = "=1.11.1"
[profile.dev]
debug = "line-tables-only"
[workspace]
T
cat > "$folder/build.rs" <<'T'
fn main() {
    println!("cargo::warning=DEBUG={}", std::env::var("DEBUG").unwrap());
    cc::Build::new().file("src/sum.c").compile("sum");
}
T
cat > "$folder/src/sum.c" <<'T'
struct pair { int left; int right; };
int sum(struct pair *pair) { int both = pair->left + pair->right; return both; }
T
echo 'fn main() {}' > "$folder/src/main.rs"
said=$(cd "$folder" && cargo build 2>&1 | grep -o 'DEBUG=[a-z]*')
archive=$(find "$folder/target" -name libsum.a)
tags=$(readelf --debug-dump=info "$archive" 2>/dev/null | grep -oE 'DW_TAG_(structure_type|formal_parameter|variable)' | sort -u | tr '\n' ' ')
echo "$said; the object describes: ${tags:-nothing}"
[ "$said" = "DEBUG=true" ] && [[ "$tags" == *formal_parameter*structure_type*variable* ]]
