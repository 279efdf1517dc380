//! Operations of a service of one's own: for load, torture and the simulator.

use quorate_types::rng::Rng;
use std::fmt;

/// A source of operations of one service.
///
/// ```
/// use quorate_lab::ServiceLoad;
/// use quorate_types::rng::Rng;
///
/// /// Calls of a lock service.
/// struct LockCalls;
///
/// impl ServiceLoad for LockCalls {
///     fn next(&self, rng: &mut Rng, operation: &mut Vec<u8>) {
///         let verb = ["acquire", "release", "look"][rng.index(3)];
///         operation.extend_from_slice(format!("{verb} lock{}", rng.below(100)).as_bytes());
///     }
///     fn is_error(&self, result: &[u8]) -> bool {
///         result.starts_with(b"expected")
///     }
/// }
///
/// let mut operation = Vec::new();
/// LockCalls.next(&mut Rng::new(7), &mut operation);
/// assert!(operation.contains(&b' '));
/// ```
pub trait ServiceLoad: Sync {
    /// Appends the next operation. It depends on the random numbers alone, so that a seed decides a run.
    fn next(&self, rng: &mut Rng, operation: &mut Vec<u8>);

    /// Whether a result is an error of the service: such a request counts as failed.
    fn is_error(&self, result: &[u8]) -> bool;
}

/// The load of a service, to hand around.
#[derive(Clone, Copy)]
pub struct ServiceMix(pub &'static dyn ServiceLoad);

impl fmt::Debug for ServiceMix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ServiceMix")
    }
}

/// Equal where both are the same value in memory.
impl PartialEq for ServiceMix {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::addr_eq(self.0, other.0)
    }
}
