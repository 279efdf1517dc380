use super::*;
use clap::Parser;

#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    args: Args,
}

fn action(line: &str) -> Action {
    let words = std::iter::once("kv").chain(line.split_whitespace());
    Cli::try_parse_from(words).unwrap_or_else(|error| panic!("{line}: {error}")).args.action
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
        match Request::of(&action(line)) {
            Ok(Request::One(op)) => assert_eq!(op, expected, "{line}"),
            other => panic!("{line}: {other:?}"),
        }
    }
}

#[test]
fn a_scan_has_a_range() {
    for (line, from, to, limit) in [
        ("scan", "", None, 1_000),
        ("scan --prefix ab --limit 5", "ab", Some("ac"), 5),
        ("scan --from a --to b", "a", Some("b"), 1_000),
    ] {
        let expected = Range { from: from.into(), to: to.map(Into::into), limit };
        match Request::of(&action(line)) {
            Ok(Request::Scan(range)) => assert_eq!(range, expected, "{line}"),
            other => panic!("{line}: {other:?}"),
        }
    }
}

#[test]
fn wrong_usage_is_refused() {
    for line in ["", "get", "put k", "cas k", "incr k x", "scan --prefix a --from b", "get k extra", "fly"] {
        let words = std::iter::once("kv").chain(line.split_whitespace());
        assert!(Cli::try_parse_from(words).is_err(), "{line:?}");
    }
    for line in ["cas k only", "cas --absent k expected value"] {
        let failure = Request::of(&action(line)).unwrap_err();
        assert_eq!(failure.code(), 2, "{line}");
    }
}

#[test]
fn json_says_what_a_history_says() {
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
        let Ok(Request::One(op)) = Request::of(&action) else { panic!("{line}") };
        assert_eq!(to_json(&op, &result).to_string(), expected, "{line}");
    }
    let entries = vec![(b"a".to_vec(), b"1".to_vec())];
    assert_eq!(scan_json(&entries).to_string(), r#"{"entries":[{"key":"a","value":"1"}],"kind":"scan"}"#);
}

#[test]
fn the_key_lies_beside_the_cluster() {
    assert_eq!(default_key(Path::new("cluster.toml")), Path::new("clients/kv.key"));
    assert_eq!(default_key(Path::new("/a/b/cluster.toml")), Path::new("/a/b/clients/kv.key"));
}
