//! The lock service of `application.rs` with the commands that test it: `load`, `torture` and `sim`.
//!
//! ```text
//! cargo run --release -p quorate-lab --example service_lab -- sim
//! cargo run --release -p quorate-lab --example service_lab -- torture --minutes 1
//! cargo run --release -p quorate-lab --example service_lab -- load --cluster /tmp/locks     # while `up` runs on this folder
//! ```

#[allow(dead_code, unreachable_pub, reason = "the `main` of another example is unused")]
#[path = "application.rs"]
mod application;

use quorate_app::OnMap;
use quorate_lab::ServiceLoad;
use quorate_node::Service;
use quorate_types::rng::Rng;

/// Random calls of the lock service.
#[derive(Debug)]
struct LockCalls;

impl ServiceLoad for LockCalls {
    fn next(&self, rng: &mut Rng, operation: &mut Vec<u8>) {
        let verb = rng.pick(&["acquire", "release", "look"]).copied().unwrap_or_default();
        operation.extend_from_slice(format!("{verb} lock{}", rng.below(100)).as_bytes());
    }
    fn is_error(&self, result: &[u8]) -> bool {
        result.starts_with(b"expected")
    }
}

/// Reads the command line and runs the command.
pub fn main() -> std::process::ExitCode {
    quorate_lab::main(Service::of::<OnMap<application::Locks>>(), &LockCalls)
}
