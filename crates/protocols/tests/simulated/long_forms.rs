//! The lengths of tests that have a long form: `CONTRIBUTING.md` names their variables.

/// Returns the number in a variable of the environment, if there is one.
#[allow(clippy::disallowed_methods, reason = "how far a test goes is its user's choice")]
pub(crate) fn setting(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}
