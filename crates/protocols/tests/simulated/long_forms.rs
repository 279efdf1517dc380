//! Tests that have a long form: one protocol of each family, and the lengths, whose variables `CONTRIBUTING.md` names.

/// Returns the number in a variable of the environment, if there is one.
#[allow(clippy::disallowed_methods, reason = "how far a test goes is its user's choice")]
pub(crate) fn setting(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

/// Makes a test of a scenario for one protocol of each family.
macro_rules! families {
    ($scenario:ident) => {
        families! { $scenario:
            pbft => "pbft",
            chained => "hotstuff",
            sync_hotstuff => "sync-hotstuff",
            apollo => "apollo",
            artemis => "artemis",
        }
    };
    ($scenario:ident: $($name:ident => $protocol:literal,)*) => {
        $(mod $name {
            #[test]
            fn $scenario() {
                super::$scenario(quorate_protocols::find($protocol).unwrap());
            }
        })*
    };
}
pub(crate) use families;
