#!/usr/bin/env bash
# hdrhistogram (Rust) 7.6.0: a histogram of latencies reports a largest value that was never recorded.
#
# Expectation: after recording one value of 31 917 865 ns, max() returns it. No percentile is above the largest sample.
# Observation: with 3 significant digits, max() and the 100 % quantile return 31 932 415. That is 14 550 more than any
# recorded value. mean() differs from the value too. saturating_record() accepts a value beyond the range without a
# trace: the count is right, but max() returns the end of the range.
# Affected: each benchmark that reports its longest request, or compares a maximum with a timeout.
# Remedy: keep maximum, sum and the number of clamped values next to the histogram.
#
# The script needs cargo and the network. It exits with 1 if the behaviour has changed.
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
    echo "the behaviour of hdrhistogram has changed: check the finding again" >&2
    exit 1
fi
