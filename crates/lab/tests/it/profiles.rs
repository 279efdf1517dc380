//! Profiles: the advice of a program without a profiler.

#![cfg(not(feature = "profile"))]

use crate::support::quorate;

#[test]
fn program_without_a_profiler_gives_advice() {
    for option in ["--profile", "--profile=alloc"] {
        quorate(&["bench", option]).refuses(option, &["no profiler", "--features profile"]);
    }
    assert_eq!(quorate(&["bench", "--profile=disk"]).code, Some(2));
}
