use super::show::{scan_json, to_json};
use super::*;
use clap::Parser;
use quorate_client::Fate;
use std::time::Duration;

#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    args: Args,
}

fn action(line: &str) -> Action {
    let words = std::iter::once("kv").chain(line.split_whitespace());
    Cli::try_parse_from(words).unwrap_or_else(|error| panic!("{line}: {error}")).args.action
}

fn inputs(action: &Action, stdin: &[u8]) -> Result<Inputs, Failure> {
    Inputs::of(action, 100, &mut &*stdin)
}

#[test]
fn words_become_operations() {
    for (line, expected) in [
        ("get k", KvOp::Get { key: b"k" }),
        ("put k v", KvOp::Put { key: b"k", value: b"v" }),
        ("del k", KvOp::Delete { key: b"k" }),
        ("cas k old new", KvOp::CompareAndSwap { key: b"k", expect: Some(b"old"), value: b"new" }),
        ("cas --absent k new", KvOp::CompareAndSwap { key: b"k", expect: None, value: b"new" }),
        ("cas k new --absent", KvOp::CompareAndSwap { key: b"k", expect: None, value: b"new" }),
        ("incr k", KvOp::Increment { key: b"k", by: 1 }),
        ("incr k -5", KvOp::Increment { key: b"k", by: -5 }),
        ("incr k 7 --json", KvOp::Increment { key: b"k", by: 7 }),
    ] {
        let action = action(line);
        match Request::of(&action, &inputs(&action, b"").unwrap()) {
            Request::Single(op) => assert_eq!(op, expected, "{line}"),
            other @ Request::Scan(_) => panic!("{line}: {other:?}"),
        }
    }
}

/// Values may be no text, and longer than a command line.
#[test]
fn values_come_from_files_and_standard_input() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, bytes: &[u8]| {
        let path = folder.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let (bytes, old) = (file("bytes", b"\xff\0\n"), file("old", b"\0"));
    let stdin = b"\x80in\n";
    for (line, expect, value) in [
        (format!("put k --file {bytes}"), None, &b"\xff\0\n"[..]),
        ("put k -".to_owned(), None, stdin),
        ("put k --file -".to_owned(), None, stdin),
        (format!("cas k old --file {bytes}"), Some(&b"old"[..]), b"\xff\0\n"),
        (format!("cas k --expect-file {old} new"), Some(b"\0"), b"new"),
        (format!("cas k --expect-file {old} --file {bytes}"), Some(b"\0"), b"\xff\0\n"),
        (format!("cas k --absent --file {bytes}"), None, b"\xff\0\n"),
        ("cas k - new".to_owned(), Some(stdin), b"new"),
        ("cas --absent k -".to_owned(), None, stdin),
    ] {
        let got = inputs(&action(&line), stdin).unwrap();
        assert_eq!((got.expect.as_deref(), got.value.as_slice()), (expect, value), "{line}");
    }
    let large = file("large", &[7; 101]);
    for (line, says) in [
        (format!("put k --file {large}"), "more than 100 bytes, the cluster's request_bytes_max"),
        (format!("put k --file {bytes}-missing"), "No such file"),
        ("cas k - -".to_owned(), "only once"),
    ] {
        let failure = inputs(&action(&line), stdin).unwrap_err();
        assert_eq!(failure.code(), 2, "{line}");
        assert!(failure.to_string().contains(says), "{line}: {failure}");
    }
    assert_eq!(inputs(&action("put k -"), &[7; 101]).unwrap_err().code(), 2);
}

#[test]
fn answer_no_has_an_exit_code_of_its_own() {
    let cas = KvOp::CompareAndSwap { key: b"k", expect: Some(b"a"), value: b"b" };
    let absent = KvOp::CompareAndSwap { key: b"k", expect: None, value: b"b" };
    for (op, result, says) in [
        (KvOp::Get { key: b"k\x1b" }, KvResult::Absent, "the key \"k\\u{1b}\" has no value"),
        (cas, KvResult::Mismatch, "the key \"k\" does not have the expected value: nothing was changed"),
        (absent, KvResult::Mismatch, "the key \"k\" has a value: nothing was changed"),
    ] {
        let failure = show::print(&op, &result, None).unwrap_err();
        assert_eq!((failure.code(), failure.to_string().as_str()), (3, says));
    }
    show::check_yes(&KvOp::Get { key: b"k" }, &KvResult::Value(b"(no value)".to_vec())).unwrap();
    show::check_yes(&KvOp::Delete { key: b"k" }, &KvResult::Absent).unwrap();
}

#[test]
fn unknown_outcome_is_reported_with_advice() {
    let (key, value) = (&b"k"[..], &b"v"[..]);
    let late = |fate| ClientError::Timeout {
        waited: Duration::from_secs(3),
        tried: "sent to replicas 0, 1, 2, 3, 2 times, none has answered".to_owned(),
        fate,
        trouble: "all connections are up".to_owned(),
    };
    let get = without_answer(&KvOp::Get { key }, &late(Fate::Unknown)).to_string();
    let put = without_answer(&KvOp::Put { key, value }, &late(Fate::Unknown)).to_string();
    let unsent = without_answer(&KvOp::Put { key, value }, &late(Fate::NotExecuted)).to_string();
    let lost = ClientError::Failed(quorate_client::Failure::SessionLost);
    let lost = without_answer(&KvOp::Delete { key }, &lost).to_string();
    let sent = "no answer within 3s: sent to replicas 0, 1, 2, 3, 2 times, none has answered; ";
    for (text, says) in [
        (&get, "safe to ask again"),
        (&put, "the outcome is unknown: it may still take effect, once at most"),
        (&put, "read the key before you write again"),
        (&unsent, "it was not executed and will not take effect"),
        (&lost, "unknown"),
    ] {
        assert!(text.contains(says), "{text}");
    }
    assert!(
        get.starts_with(sent) && put.starts_with(sent) && !unsent.contains("again"),
        "{get} {put} {unsent}"
    );
}

#[test]
fn scan_has_a_range() {
    for (line, from, to, limit) in [
        ("scan", "", None, 1_000),
        ("scan --prefix ab --limit 5", "ab", Some("ac"), 5),
        ("scan --from a --to b", "a", Some("b"), 1_000),
    ] {
        let expected = KeyRange { from: from.into(), to: to.map(Into::into), limit };
        match Request::of(&action(line), &Inputs::default()) {
            Request::Scan(range) => assert_eq!(range, expected, "{line}"),
            other @ Request::Single(_) => panic!("{line}: {other:?}"),
        }
    }
}

#[test]
fn wrong_usage_is_refused() {
    for line in [
        "",
        "get",
        "put k",
        "put k v --file f",
        "cas k a --absent --expect-file f",
        "get k --file f --json",
        "incr k x",
        "scan --prefix a --from b",
        "get k extra",
        "fly",
    ] {
        let words = std::iter::once("kv").chain(line.split_whitespace());
        assert!(Cli::try_parse_from(words).is_err(), "{line:?}");
    }
    for line in ["cas k", "cas k only", "cas --absent k expected value", "cas k a b --file f"] {
        let failure = inputs(&action(line), b"").unwrap_err();
        assert_eq!(failure.code(), 2, "{line}");
    }
}

#[test]
fn json_has_the_form_of_a_history() {
    for (line, result, expected) in [
        ("get k", KvResult::Value(b"v".to_vec()), r#"{"key":"k","kind":"get","result":"v"}"#),
        ("get k", KvResult::Absent, r#"{"key":"k","kind":"get","result":null}"#),
        ("get k", KvResult::Value(vec![0xff]), r#"{"key":"k","kind":"get","result":{"hex":"ff"}}"#),
        ("put k v", KvResult::Done, r#"{"key":"k","kind":"put","result":"ok"}"#),
        ("del k", KvResult::Absent, r#"{"key":"k","kind":"del","result":"ok"}"#),
        ("cas k a b", KvResult::Mismatch, r#"{"key":"k","kind":"cas","result":"no"}"#),
        ("cas k a b", KvResult::Done, r#"{"key":"k","kind":"cas","result":"ok"}"#),
        ("incr k", KvResult::Number(-3), r#"{"key":"k","kind":"incr","result":"-3"}"#),
    ] {
        let action = action(line);
        let inputs = inputs(&action, b"").unwrap();
        let Request::Single(op) = Request::of(&action, &inputs) else { panic!("{line}") };
        assert_eq!(to_json(&op, &result).to_string(), expected, "{line}");
    }
    let entries = vec![(b"a".to_vec(), b"1".to_vec())];
    assert_eq!(scan_json(&entries).to_string(), r#"{"entries":[{"key":"a","value":"1"}],"kind":"scan"}"#);
}

#[test]
fn order_is_for_operations_that_change_the_store() {
    for (line, is_read) in [
        ("put k v", false),
        ("del k", false),
        ("incr k", false),
        ("cas k old new", false),
        ("get k", true),
        ("scan", true),
    ] {
        let words = ["kv", "--order"].into_iter().chain(line.split_whitespace());
        let args = Cli::try_parse_from(words).unwrap().args;
        assert!(args.order);
        let inputs = inputs(&args.action, b"").unwrap();
        assert_eq!(Request::of(&args.action, &inputs).is_read(), is_read, "{line}");
    }
}
