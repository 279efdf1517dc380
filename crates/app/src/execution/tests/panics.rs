//! Panics of the application: each is passed on, and its text names the place.

use super::*;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// An application that panics in the named function, and in `apply` for the operation `boom`.
struct Panicking(&'static str);

impl Panicking {
    fn at(&self, place: &str) {
        assert!(self.0 != place, "cannot {place}");
    }
}

impl Application for Panicking {
    fn name(&self) -> &'static str {
        "recorder"
    }
    fn version(&self) -> u32 {
        3
    }
    fn apply(&mut self, _at: &At, op: &[u8], reply: &mut Vec<u8>) {
        assert!(!op.starts_with(b"boom"), "this operation is too much");
        if op == b"take" {
            reply.clear();
        }
    }
    fn query(&self, _op: &[u8], _room: usize, _reply: &mut Vec<u8>) {
        self.at("query");
    }
    fn digest(&mut self) -> Digest {
        self.at("digest");
        Snapshot::default().digest()
    }
    fn snapshot(&mut self) -> Snapshot {
        self.at("snapshot");
        Snapshot::new(Vec::new())
    }
    fn restore(
        &mut self,
        _header: &[u8],
        _chunks: &mut dyn Iterator<Item = Vec<u8>>,
    ) -> Result<(), RestoreError> {
        self.at("restore");
        Ok(())
    }
}

/// Returns the text of the panic in `call`.
fn panic_in<R>(call: impl FnOnce() -> R) -> String {
    let panic = catch_unwind(AssertUnwindSafe(call)).err().unwrap();
    crate::panic_text(&*panic).to_owned()
}

fn panicking(place: &'static str) -> Execution {
    Execution::new(&genesis(), Box::new(Panicking(place))).unwrap()
}

#[test]
fn panic_in_apply_names_height_client_bundle_and_operation() {
    let mut execution = panicking("nowhere");
    let session = session_of(&mut execution, ALICE, 1);
    let text =
        panic_in(|| run(&mut execution, &ask(ALICE, session, 7, &["one", "boom \"\n\u{1b}", "three"])));
    let expected = format!(
        "the application has panicked in apply at height 2, client {ALICE}, bundle 7 of session 1.0, \
         operation 1: \"boom \\\"\\n\\x1b\": this operation is too much"
    );
    assert_eq!(text, expected);
}

#[test]
fn long_operation_is_shown_by_its_beginning() {
    let mut execution = panicking("nowhere");
    let session = session_of(&mut execution, ALICE, 1);
    let long = format!("boom{}", "x".repeat(200_000));
    let text = panic_in(|| run(&mut execution, &ask(ALICE, session, 1, &[&long])));
    assert!(text.len() < 400 && text.contains("xxx… (200004 bytes)"), "{text}");
}

#[test]
fn application_that_removes_other_results_panics() {
    let mut execution = panicking("nowhere");
    let session = session_of(&mut execution, ALICE, 1);
    let text = panic_in(|| run(&mut execution, &ask(ALICE, session, 1, &["take"])));
    assert!(
        text.contains("operation 0: \"take\": the application removed other results from the reply"),
        "{text}"
    );
}

#[test]
fn panic_outside_apply_names_the_function() {
    let expect = |text: &str, function: &str, place: &str| {
        assert_eq!(text, format!("the application has panicked in {place}: cannot {function}"));
    };
    expect(&panic_in(|| panicking("digest").digest()), "digest", "digest at height 0");
    expect(&panic_in(|| panicking("snapshot").snapshot()), "snapshot", "snapshot at height 0");
    let query = || panicking("query").query(b"get \xff", &mut Vec::new());
    expect(&panic_in(query), "query", "query at height 0, operation \"get \\xff\"");
    let good = panicking("nowhere").snapshot();
    let restore = || panicking("restore").restore(good.header(), &mut good.chunks());
    expect(&panic_in(restore), "restore", "restore of the snapshot at height 0");
}
