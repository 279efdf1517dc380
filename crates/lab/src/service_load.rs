//! A source of operations of a service: for load, torture and the simulator.

use quorate_types::rng::Rng;
use std::fmt;

/// A source of operations of a service.
///
/// ```
/// use quorate_lab::ServiceLoad;
/// use quorate_types::rng::Rng;
///
/// /// Calls of a lock service.
/// #[derive(Debug)]
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
pub trait ServiceLoad: Sync + fmt::Debug {
    /// Appends the next operation. It depends on the random numbers alone, so a seed decides a run.
    fn next(&self, rng: &mut Rng, operation: &mut Vec<u8>);

    /// Whether a result is an error of the service. Such a request counts as failed.
    fn is_error(&self, result: &[u8]) -> bool;
}
