//! A panic of the application is told with all that says where it happened.
//!
//! The replica must not go on after one: its state is half applied. So the panic goes on up to whoever runs the
//! replica; on its way here it gets a text that names the operation.

use quorate_types::{Bundle, Height};
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// Of an operation so many bytes are told.
const OP_BYTES_TOLD: usize = 64;

/// How the text of a panic of the application begins.
pub const APPLICATION_PANIC: &str = "the application has panicked";

/// Calls the application. A panic in it goes on with a text as its payload: where it was, and what it said.
pub(crate) fn told<R>(place: impl FnOnce() -> String, call: impl FnOnce() -> R) -> R {
    // Nothing that the call has touched is looked at again: the panic goes on.
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(result) => result,
        Err(payload) => {
            let said = said(&*payload);
            resume_unwind(Box::new(format!("{APPLICATION_PANIC} in {}: {said}", place())))
        }
    }
}

/// The text that a panic came with.
#[must_use]
pub fn said(payload: &(dyn Any + Send)) -> &str {
    let text = payload.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| payload.downcast_ref::<&str>().copied()).unwrap_or("a panic without a text")
}

/// An operation as people can read it: its start, escaped.
pub(crate) fn start_of(op: &[u8]) -> String {
    let start = op.get(..OP_BYTES_TOLD).unwrap_or(op).escape_ascii();
    if op.len() > OP_BYTES_TOLD { format!("{start}… ({} bytes)", op.len()) } else { start.to_string() }
}

/// Which operation of a bundle was applied: the `index`-th, counted from 0.
pub(crate) fn place(height: Height, bundle: &Bundle, index: usize) -> String {
    format!(
        "apply at height {height}, client {}, bundle {} of session {:?}, operation {index}: \"{}\"",
        bundle.client(),
        bundle.number(),
        bundle.session(),
        start_of(bundle.requests().nth(index).unwrap_or_default())
    )
}
