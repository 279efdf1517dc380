//! An application of somebody else in the simulated replicas.

use quorate_app::Application;
use std::fmt;
use std::sync::Arc;

/// Wraps the simulator's own application in each replica, so that another application can run beside it. The wrapper passes
/// every call on, keeps name and version, and returns the inner application's replies.
#[derive(Clone)]
pub struct Companion(pub Arc<CompanionFn>);

/// Wraps the application of one opening of a replica.
pub type CompanionFn = dyn Fn(Box<dyn Application>) -> Box<dyn Application> + Send + Sync;

impl fmt::Debug for Companion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Companion")
    }
}
