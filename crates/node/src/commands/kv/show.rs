//! Output of keys and values: exact for programs, escaped for people.

use crate::commands::client::put_result;
use crate::commands::escape::{escaped, text};
use crate::exit::Failure;
use crate::out;
use quorate_app::{KvOp, KvResult};
use quorate_client::driver::Ordered;
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::path::Path;

/// Prints the result of an operation as text.
///
/// # Errors
/// Fails when the result cannot be printed or written, and with exit code 3 and without output if the answer is no.
pub(super) fn print(op: &KvOp<'_>, result: &KvResult, file: Option<&Path>) -> Result<(), Failure> {
    match result {
        KvResult::Value(value) => put_result(value, file),
        KvResult::Number(number) => out::line(number),
        KvResult::Entries { entries, .. } => print_entries(entries),
        KvResult::Padding(_) | KvResult::Error(_) => out::line(format_args!("{result:?}")),
        KvResult::Done | KvResult::Absent | KvResult::Mismatch => {
            check_yes(op, result)?;
            out::line("ok")
        }
    }
}

/// Checks that the answer is not no.
///
/// # Errors
/// Fails when a key has no value, or another value than expected.
pub(super) fn check_yes(op: &KvOp<'_>, result: &KvResult) -> Result<(), Failure> {
    match (op, result) {
        (KvOp::Get { key }, KvResult::Absent) => {
            Err(Failure::no(format!("the key \"{}\" has no value", escaped(key))))
        }
        (KvOp::CompareAndSwap { key, expect, .. }, KvResult::Mismatch) => {
            let found = if expect.is_some() { "does not have the expected value" } else { "has a value" };
            Err(Failure::no(format!("the key \"{}\" {found}: nothing was changed", escaped(key))))
        }
        _ => Ok(()),
    }
}

/// Prints one line for each entry, for any bytes in keys and values.
pub(super) fn print_entries(entries: &[(Vec<u8>, Vec<u8>)]) -> Result<(), Failure> {
    out::bytes(lines(entries).as_bytes())
}

/// Returns the lines: escaped key, tab, escaped value.
fn lines(entries: &[(Vec<u8>, Vec<u8>)]) -> String {
    let mut text = String::new();
    for (key, value) in entries {
        let _ = writeln!(text, "{}\t{}", escaped(key), escaped(value));
    }
    text
}

/// Returns `{"kind", "key", "result"}`: `get` and `incr` result in the value or null, `put` and `del` in "ok", `cas` in
/// "ok" or "no".
pub(super) fn to_json(op: &KvOp<'_>, result: &KvResult) -> Value {
    let (kind, key) = match op {
        KvOp::Put { key, .. } => ("put", *key),
        KvOp::Get { key } => ("get", *key),
        KvOp::Delete { key } => ("del", *key),
        KvOp::CompareAndSwap { key, .. } => ("cas", *key),
        KvOp::Increment { key, .. } => ("incr", *key),
        KvOp::Scan { from, .. } => ("scan", *from),
        KvOp::Echo { padding, .. } => ("echo", *padding),
    };
    let result = match (op, result) {
        (KvOp::Delete { .. }, KvResult::Absent) | (_, KvResult::Done) => Value::from("ok"),
        (_, KvResult::Value(value)) => text(value),
        (_, KvResult::Mismatch) => Value::from("no"),
        (_, KvResult::Number(number)) => Value::from(number.to_string()),
        (_, KvResult::Entries { entries, .. }) => scan_json(entries),
        (_, KvResult::Absent | KvResult::Padding(_) | KvResult::Error(_)) => Value::Null,
    };
    json!({ "kind": kind, "key": text(key), "result": result })
}

/// Returns the place of an operation as text.
pub(super) fn order(ordered: &Ordered) -> String {
    let Ordered { position, by } = ordered;
    format!(
        "ordered at height {}, place {}; proved by one replica ({by}), without a result",
        position.height, position.index
    )
}

/// Returns `{"height", "place", "block", "by"}`.
pub(super) fn order_json(ordered: &Ordered) -> Value {
    let Ordered { position, by } = ordered;
    let block = position.block.to_string();
    json!({ "height": position.height.0, "place": position.index, "block": block, "by": by.0 })
}

/// Returns `{"kind": "scan", "entries": [{"key", "value"}]}`.
pub(super) fn scan_json(entries: &[(Vec<u8>, Vec<u8>)]) -> Value {
    let entries: Vec<Value> =
        entries.iter().map(|(key, value)| json!({ "key": text(key), "value": text(value) })).collect();
    json!({ "kind": "scan", "entries": entries })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entry_is_one_line() {
        let entries = vec![(b"a\n".to_vec(), b"\t1".to_vec()), (b"b".to_vec(), vec![0xff])];
        assert_eq!(lines(&entries), "a\\n\t\\t1\nb\t\\xff\n");
    }
}
