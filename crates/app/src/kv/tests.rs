use super::*;
use crate::application::Application;
use proptest::prelude::*;

const ROOMY: At = At {
    height: quorate_types::Height(1),
    time_ns: 1,
    client: quorate_types::PublicKey([0; 32]),
    room: 1 << 20,
};

fn run_in(store: &mut Kv, room: usize, op: &KvOp<'_>) -> (KvResult, usize) {
    let mut reply = vec![0xee; 3];
    store.apply(&At { room, ..ROOMY }, &op.to_bytes(), &mut reply);
    assert_eq!(reply[..3], [0xee; 3], "earlier bytes of the reply were changed");
    let result = KvResult::from_bytes(&reply[3..]).unwrap();
    assert_eq!(result.to_bytes(), &reply[3..], "the result is not canonical");
    (result, reply.len() - 3)
}

fn run(store: &mut Kv, op: &KvOp<'_>) -> KvResult {
    run_in(store, ROOMY.room, op).0
}

fn put<'a>(key: &'a [u8], value: &'a [u8]) -> KvOp<'a> {
    KvOp::Put { key, value }
}

fn get(key: &[u8]) -> KvOp<'_> {
    KvOp::Get { key }
}

#[test]
fn key_is_put_read_and_deleted() {
    let mut store = Kv::new();
    assert_eq!(run(&mut store, &get(b"k")), KvResult::Absent);
    assert_eq!(run(&mut store, &put(b"k", b"v")), KvResult::Done);
    assert_eq!(run(&mut store, &get(b"k")), KvResult::Value(b"v".to_vec()));
    assert_eq!(run(&mut store, &put(b"k", b"")), KvResult::Done);
    assert_eq!(run(&mut store, &get(b"k")), KvResult::Value(vec![]), "an empty value counts as absent");
    assert_eq!(run(&mut store, &KvOp::Delete { key: b"k" }), KvResult::Done);
    assert_eq!(run(&mut store, &KvOp::Delete { key: b"k" }), KvResult::Absent);
    assert_eq!(run(&mut store, &get(b"k")), KvResult::Absent);
}

#[test]
fn compare_and_swap_needs_the_expected_value() {
    let mut store = Kv::new();
    let cas = |expect, value| KvOp::CompareAndSwap { key: b"k", expect, value };
    for (op, result, then) in [
        (cas(Some(b"a"), b"x"), KvResult::Mismatch, None),
        (cas(None, b"a"), KvResult::Done, Some(b"a")),
        (cas(None, b"x"), KvResult::Mismatch, Some(b"a")),
        (cas(Some(b"a"), b"b"), KvResult::Done, Some(b"b")),
        (cas(Some(b"a"), b"c"), KvResult::Mismatch, Some(b"b")),
    ] {
        assert_eq!(run(&mut store, &op), result, "{op:?}");
        assert_eq!(store.map().get(b"k"), then.map(|v: &[u8; 1]| &v[..]), "after {op:?}");
    }
}

#[test]
fn increment_changes_decimal_text() {
    let mut store = Kv::new();
    let incr = |by| KvOp::Increment { key: b"n", by };
    assert_eq!(run(&mut store, &incr(7)), KvResult::Number(7));
    assert_eq!(run(&mut store, &incr(-10)), KvResult::Number(-3));
    assert_eq!(run(&mut store, &get(b"n")), KvResult::Value(b"-3".to_vec()));
    for (value, by, error) in [
        ("9223372036854775807", 1, KvError::Overflow),
        ("-9223372036854775808", -1, KvError::Overflow),
        ("9223372036854775808", 0, KvError::NotANumber),
        ("", 1, KvError::NotANumber),
        ("1 ", 1, KvError::NotANumber),
        ("1.0", 1, KvError::NotANumber),
    ] {
        run(&mut store, &put(b"n", value.as_bytes()));
        assert_eq!(run(&mut store, &incr(by)), KvResult::Error(error), "{value:?}");
        assert_eq!(run(&mut store, &get(b"n")), KvResult::Value(value.as_bytes().to_vec()), "unchanged");
    }
    run(&mut store, &KvOp::Put { key: b"n", value: &[0xff, 0xfe] });
    assert_eq!(run(&mut store, &incr(1)), KvResult::Error(KvError::NotANumber));
}

fn scan_all(store: &mut Kv, from: &[u8], to: Option<&[u8]>, limit: u32, room: usize) -> Vec<Vec<u8>> {
    let (mut from, mut keys) = (from.to_vec(), Vec::new());
    loop {
        let op = KvOp::Scan { from: &from, to, limit };
        let (result, bytes) = run_in(store, room, &op);
        assert!(bytes <= room, "{bytes} in {room}");
        let KvResult::Entries { entries, more } = result else {
            panic!("{result:?}");
        };
        assert!(u32::try_from(entries.len()).unwrap() <= limit);
        keys.extend(entries.into_iter().map(|(key, _)| key));
        if !more {
            return keys;
        }
        from = successor(keys.last().unwrap());
    }
}

#[test]
fn scan_returns_keys_in_order_page_by_page() {
    let mut store = Kv::new();
    let keys: Vec<Vec<u8>> = (0..2_500).map(|i| format!("k{i:05}").into_bytes()).collect();
    for key in keys.iter().rev() {
        run(&mut store, &put(key, b"0123456789"));
    }
    for (limit, room) in [(u32::MAX, 1 << 20), (u32::MAX, 100), (7, 1 << 20), (1_000, 4_096)] {
        let room_enough = limit.min(SCAN_ENTRIES_MAX);
        assert_eq!(scan_all(&mut store, b"", None, room_enough, room), keys, "{limit} {room}");
    }
    let prefix = b"k0001";
    let end = prefix_end(prefix);
    assert_eq!(scan_all(&mut store, prefix, end.as_deref(), 3, 1_000), keys[10..20]);
    let empty = KvResult::Entries { entries: vec![], more: false };
    let backwards = KvOp::Scan { from: b"z", to: Some(b"a"), limit: 9 };
    assert_eq!(run(&mut store, &backwards), empty);
    let unlimited = KvOp::Scan { from: b"", to: None, limit: u32::MAX };
    let KvResult::Entries { entries, more } = run(&mut store, &unlimited) else {
        panic!("no entries");
    };
    assert_eq!((entries.len(), more), (1_000, true));
}

#[test]
fn prefix_end_is_the_first_key_beyond_the_prefix() {
    for (prefix, end) in [
        (b"a" as &[u8], Some(b"b" as &[u8])),
        (b"a\xff", Some(b"b")),
        (b"a\xffc", Some(b"a\xffd")),
        (b"\xff\xff", None),
        (b"", None),
    ] {
        assert_eq!(prefix_end(prefix).as_deref(), end, "{prefix:?}");
    }
}

/// A result with a variable length never exceeds its room.
#[test]
fn long_results_never_exceed_their_room() {
    let mut store = Kv::new();
    run(&mut store, &put(b"key", &[1; 100]));
    let scan = KvOp::Scan { from: b"", to: None, limit: 5 };
    let echo = KvOp::Echo { reply_bytes: 101, padding: b"xyz" };
    for (op, exactly) in [(get(b"key"), 101), (scan, 6 + 8 + 3 + 100), (echo, 101)] {
        assert_eq!(run_in(&mut store, exactly, &op).1, exactly, "{op:?}");
        for room in 0..exactly {
            let (result, bytes) = run_in(&mut store, room, &op);
            assert_eq!((result, bytes), (KvResult::Error(KvError::NoRoom), 2), "{op:?} in {room}");
        }
    }
    let unreasonable = KvOp::Echo { reply_bytes: u32::MAX, padding: b"" };
    assert_eq!(run_in(&mut store, usize::MAX, &unreasonable).0, KvResult::Error(KvError::NoRoom));
    for bytes in [0, 1, 4_096] {
        let op = KvOp::Echo { reply_bytes: bytes, padding: b"" };
        assert_eq!(run(&mut store, &op), KvResult::Padding(bytes));
    }
}

#[test]
fn query_never_writes() {
    let mut store = Kv::new();
    run(&mut store, &put(b"k", b"v"));
    let before = store.digest();
    let query = |op: &KvOp<'_>| {
        let mut reply = Vec::new();
        store.query(&op.to_bytes(), 1_000, &mut reply);
        KvResult::from_bytes(&reply).unwrap()
    };
    assert_eq!(query(&get(b"k")), KvResult::Value(b"v".to_vec()));
    let cas = KvOp::CompareAndSwap { key: b"k", expect: None, value: b"" };
    for op in [put(b"k", b"w"), KvOp::Delete { key: b"k" }, cas, KvOp::Increment { key: b"k", by: 1 }] {
        assert_eq!(query(&op), KvResult::Error(KvError::NotAQuery));
    }
    assert_eq!(store.digest(), before);
}

#[test]
fn too_long_key_is_refused() {
    let mut store = Kv::new();
    let (longest, too_long) = (vec![7; KEY_BYTES_MAX], vec![7; KEY_BYTES_MAX + 1]);
    assert_eq!(run(&mut store, &put(&longest, b"")), KvResult::Done);
    assert_eq!(run(&mut store, &put(&too_long, b"")), KvResult::Error(KvError::Malformed));
}

#[test]
fn results_round_trip() {
    let mut results = vec![
        KvResult::Done,
        KvResult::Value(b"x".to_vec()),
        KvResult::Value(vec![]),
        KvResult::Absent,
        KvResult::Mismatch,
        KvResult::Number(i64::MIN),
        KvResult::Entries { entries: vec![(b"k".to_vec(), b"v".to_vec())], more: true },
        KvResult::Padding(0),
        KvResult::Padding(1),
        KvResult::Padding(9),
    ];
    results.extend(ERRORS.map(KvResult::Error));
    for result in results {
        assert_eq!(KvResult::from_bytes(&result.to_bytes()), Ok(result));
    }
    assert_eq!(KvResult::from_bytes(&[tag::PADDING, 1]), Err(DecodeError::Value("padding")));
    assert_eq!(KvResult::from_bytes(&[tag::ERROR, 99]), Err(DecodeError::Tag("error")));
}

fn any_op() -> impl Strategy<Value = Vec<u8>> {
    let bytes = || prop::collection::vec(any::<u8>(), 0..6);
    (0u8..7, bytes(), prop::option::of(bytes()), bytes(), any::<i64>()).prop_map(|(tag, a, b, c, n)| {
        let (key, value, number) = (&a, &c, u32::try_from(n % 500).unwrap_or(3));
        match tag {
            0 => put(key, value),
            1 => get(key),
            2 => KvOp::Delete { key },
            3 => KvOp::CompareAndSwap { key, expect: b.as_deref(), value },
            4 => KvOp::Increment { key, by: n },
            5 => KvOp::Scan { from: key, to: b.as_deref(), limit: number },
            _ => KvOp::Echo { reply_bytes: number, padding: value },
        }
        .to_bytes()
    })
}

proptest! {
    #[test]
    fn operations_have_one_encoding(op in any_op()) {
        prop_assert_eq!(KvOp::parse(&op).unwrap().to_bytes(), op.clone());
        for cut in 0..op.len() {
            prop_assert!(KvOp::parse(&op[..cut]).is_err());
        }
        let mut trailing = op;
        trailing.push(0);
        prop_assert!(KvOp::parse(&trailing).is_err());
    }

    /// The store answers arbitrary bytes. They change nothing unless they decode as an operation.
    #[test]
    fn arbitrary_bytes_are_answered(
        ops in prop::collection::vec((any_op(), any::<u16>(), any::<u8>(), any::<bool>()), 1..12),
        noise in prop::collection::vec(any::<u8>(), 0..40),
        room in 0usize..200,
    ) {
        let mut store = Kv::new();
        let ops = ops.into_iter().map(|(mut op, at, byte, damage)| {
            let at = usize::from(at) % op.len();
            if damage {
                op[at] = byte;
            }
            op
        });
        for op in ops.chain([noise]) {
            let before = store.digest();
            let mut reply = Vec::new();
            store.apply(&At { room, ..ROOMY }, &op, &mut reply);
            let result = KvResult::from_bytes(&reply).unwrap();
            match KvOp::parse(&op) {
                Err(_) => {
                    prop_assert_eq!(&result, &KvResult::Error(KvError::Malformed));
                    prop_assert_eq!(store.digest(), before);
                }
                Ok(_) => prop_assert_ne!(&result, &KvResult::Error(KvError::Malformed)),
            }
            if matches!(result, KvResult::Error(_)) {
                prop_assert_eq!(store.digest(), before);
            }
            prop_assert!(reply.len() <= room.max(9), "{} in {}", reply.len(), room);
        }
    }
}
