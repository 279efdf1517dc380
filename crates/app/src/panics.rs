//! Panics of the application get a text that names their place.
//!
//! A replica must stop after a panic, because its state is half applied. The panic is therefore passed on to the
//! runtime. This module gives it a text that names the operation.

use quorate_types::{Bundle, Height};
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// The largest number of bytes of an operation in the text.
const OP_BYTES_SHOWN: usize = 64;

/// The beginning of the text of each panic of the application.
pub const APPLICATION_PANIC: &str = "the application has panicked";

/// Calls the application. A panic in it is passed on with a text as its payload: its place and its own text.
pub(crate) fn locate_panic<R>(place: impl FnOnce() -> String, call: impl FnOnce() -> R) -> R {
    // The closure is unwind safe, because no code uses its data after the panic.
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(result) => result,
        Err(payload) => {
            let text = panic_text(&*payload);
            resume_unwind(Box::new(format!("{APPLICATION_PANIC} in {}: {text}", place())))
        }
    }
}

/// Returns the text of a panic's payload.
#[must_use]
pub fn panic_text(payload: &(dyn Any + Send)) -> &str {
    let text = payload.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| payload.downcast_ref::<&str>().copied()).unwrap_or("a panic without a text")
}

/// Returns the beginning of an operation in readable form, with escapes.
pub(crate) fn escaped_start(op: &[u8]) -> String {
    let start = op.get(..OP_BYTES_SHOWN).unwrap_or(op).escape_ascii();
    if op.len() > OP_BYTES_SHOWN { format!("{start}… ({} bytes)", op.len()) } else { start.to_string() }
}

/// Describes the operation at `index` (counted from 0) of a bundle.
pub(crate) fn operation_place(height: Height, bundle: &Bundle, index: usize) -> String {
    format!(
        "apply at height {height}, client {}, bundle {} of session {:?}, operation {index}: \"{}\"",
        bundle.client(),
        bundle.number(),
        bundle.session(),
        escaped_start(bundle.requests().nth(index).unwrap_or_default())
    )
}
