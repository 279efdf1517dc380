//! An application that panics: the panic goes on, and its text says where that was.

use super::*;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Panics in the function that is named here, and in `apply` for the operation `boom`.
struct Bomb(&'static str);

impl Bomb {
    fn at(&self, place: &str) {
        assert!(self.0 != place, "cannot {place}");
    }
}

impl Application for Bomb {
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
        Digest::ZERO
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

/// The words about the panic that this leads to.
fn said<R>(what: impl FnOnce() -> R) -> String {
    let panic = catch_unwind(AssertUnwindSafe(what)).err().unwrap();
    crate::panic_text(&*panic).to_owned()
}

fn bomb(place: &'static str) -> Execution {
    Execution::new(&genesis(), Box::new(Bomb(place))).unwrap()
}

#[test]
fn a_panic_in_apply_names_height_client_bundle_and_operation() {
    let mut execution = bomb("nowhere");
    let session = session_of(&mut execution, ALICE, 1);
    let text = said(|| run(&mut execution, &ask(ALICE, session, 7, &["one", "boom \"\n\u{1b}", "three"])));
    let expected = format!(
        "the application has panicked in apply at height 2, client {ALICE}, bundle 7 of session 1.0, \
         operation 1: \"boom \\\"\\n\\x1b\": this operation is too much"
    );
    assert_eq!(text, expected);
}

#[test]
fn a_long_operation_is_told_by_its_start() {
    let mut execution = bomb("nowhere");
    let session = session_of(&mut execution, ALICE, 1);
    let long = format!("boom{}", "x".repeat(200_000));
    let text = said(|| run(&mut execution, &ask(ALICE, session, 1, &[&long])));
    assert!(text.len() < 400 && text.contains("xxx… (200004 bytes)"), "{text}");
}

#[test]
fn results_that_are_taken_away_are_the_applications_fault() {
    let mut execution = bomb("nowhere");
    let session = session_of(&mut execution, ALICE, 1);
    let text = said(|| run(&mut execution, &ask(ALICE, session, 1, &["take"])));
    assert!(text.contains("operation 0: \"take\": an application took results out of its reply"), "{text}");
}

#[test]
fn a_panic_elsewhere_in_the_application_names_the_function() {
    let expect = |text: &str, function: &str, place: &str| {
        assert_eq!(text, format!("the application has panicked in {place}: cannot {function}"));
    };
    expect(&said(|| bomb("digest").digest()), "digest", "digest at height 0");
    expect(&said(|| bomb("snapshot").snapshot()), "snapshot", "snapshot at height 0");
    let query = || bomb("query").query(b"get \xff", &mut Vec::new());
    expect(&said(query), "query", "query at height 0, operation \"get \\xff\"");
    let good = bomb("nowhere").snapshot();
    let restore = || bomb("restore").restore(good.header(), &mut good.chunks());
    expect(&said(restore), "restore", "restore of the snapshot at height 0");
}
