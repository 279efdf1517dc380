#!/usr/bin/env bash
# hdrhistogram (Rust) 7.6.0: the largest value that a histogram of latencies reports was never recorded.
#
# Guess: one value of 31 917 865 ns goes in, and max() gives it back; a percentile is never above the largest sample.
# Seen: with 3 significant digits max() and the 100 % quantile give 31 932 415, which is 14 550 more than anything that
# was recorded. mean() is not the value either. A value beyond the range goes in by saturating_record() without a
# trace: the count is right, and max() names the end of the range.
# For whom: everybody who reports "the longest request" of a benchmark, or compares a maximum with a timeout.
# Remedy: keep maximum, sum and the number of clamped values beside the histogram.
#
# Needs cargo and the network. Exit code 1 where the behaviour has changed.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
mkdir "$folder/src"
cat > "$folder/Cargo.toml" <<'T'
[package]
name = "finding"
version = "0.0.0"
edition = "2021"
[dependencies]
hdrhistogram = { version = "=7.6.0", default-features = false }
[workspace]
T
cat > "$folder/src/main.rs" <<'T'
fn main() {
    let mut one = hdrhistogram::Histogram::<u64>::new_with_bounds(1, 60_000_000_000, 3).unwrap();
    one.record(31_917_865).unwrap();
    println!("max {} quantile {} mean {}", one.max(), one.value_at_quantile(1.0), one.mean());
    let mut beyond = hdrhistogram::Histogram::<u64>::new_with_bounds(1, 1_000_000, 3).unwrap();
    beyond.saturating_record(30_000_000_000);
    println!("count {} max {}", beyond.len(), beyond.max());
}
T
seen=$(cargo run --quiet --manifest-path "$folder/Cargo.toml")
printf '%s\n' "$seen"
expected='max 31932415 quantile 31932415 mean 31924224
count 1 max 1000447'
if [ "$seen" != "$expected" ]; then
    echo "the behaviour has changed" >&2
    exit 1
fi
