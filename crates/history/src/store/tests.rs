use super::*;
use quorate_app::KvResult;
use quorate_types::rng::Rng;
use std::collections::BTreeMap;

/// A call of a register: from, to (0: no answer), operation, result.
fn record(call: u64, answered: u64, op: Op, result: Option<KvResult>) -> Record {
    Record { client: 0, op, call: Time(call), answered: (answered > 0).then_some(Time(answered)), result }
}

fn key() -> String {
    "k".to_owned()
}

fn put(call: u64, answered: u64, value: &str) -> Record {
    let result = (answered > 0).then_some(KvResult::Done);
    record(call, answered, Op::Put { key: key(), value: value.to_owned() }, result)
}

fn get(call: u64, answered: u64, value: &str) -> Record {
    let result = if value.is_empty() { KvResult::Absent } else { KvResult::Value(value.into()) };
    record(call, answered, Op::Get { key: key() }, Some(result))
}

fn del(call: u64, answered: u64, result: Option<KvResult>) -> Record {
    record(call, answered, Op::Delete { key: key() }, result)
}

fn cas(call: u64, answered: u64, expect: Option<&str>, value: &str, done: bool) -> Record {
    let op = Op::Cas { key: key(), expect: expect.map(str::to_owned), value: value.to_owned() };
    record(call, answered, op, Some(if done { KvResult::Done } else { KvResult::Mismatch }))
}

fn incr(call: u64, answered: u64, result: i64) -> Record {
    let result = (answered > 0).then_some(KvResult::Number(result));
    record(call, answered, Op::Increment { key: key(), by: 1 }, result)
}

fn of(client: usize, record: Record) -> Record {
    Record { client, ..record }
}

fn check(name: &str, records: &[Record], linearizable: bool) {
    let findings = judge(records);
    assert_eq!(findings.is_ok(), linearizable, "{name}: {findings:?}");
    assert_eq!((findings.operations, findings.undecided.len()), (records.len(), 0), "{name}");
}

#[test]
fn sequential_histories_are_judged_by_their_only_order() {
    check("nothing", &[], true);
    check("absent at first", &[get(1, 2, "")], true);
    check("something at first", &[get(1, 2, "a")], false);
    check("put, get", &[put(1, 2, "a"), get(3, 4, "a")], true);
    check("lost", &[put(1, 2, "a"), get(3, 4, "")], false);
    check("stale", &[put(1, 2, "a"), put(3, 4, "b"), get(5, 6, "a")], false);
    check("deleted", &[put(1, 2, "a"), del(3, 4, Some(KvResult::Done)), get(5, 6, "")], true);
    check("deleted nothing", &[put(1, 2, "a"), del(3, 4, Some(KvResult::Absent))], false);
    check("who knows what was deleted", &[del(1, 2, None), put(3, 4, "a"), del(5, 6, None)], true);
    check("still there", &[put(1, 2, "a"), del(3, 4, None), get(5, 6, "a")], false);
    check("swapped", &[cas(1, 2, None, "a", true), cas(3, 4, Some("a"), "b", true), get(5, 6, "b")], true);
    check("swapped wrongly", &[put(1, 2, "a"), cas(3, 4, Some("b"), "c", true)], false);
    check("not swapped wrongly", &[put(1, 2, "a"), cas(3, 4, Some("a"), "c", false)], false);
    check("counted", &[incr(1, 2, 1), incr(3, 4, 2), get(5, 6, "2")], true);
    check("counted twice", &[incr(1, 2, 1), incr(3, 4, 3)], false);
    check("a text", &[put(1, 2, "x"), incr(3, 4, 1)], false);
    let refused = Some(KvResult::Error(quorate_app::KvError::NotANumber));
    let refused = record(3, 4, Op::Increment { key: key(), by: 1 }, refused);
    check("a text refused", &[put(1, 2, "x"), refused.clone(), get(5, 6, "x")], true);
    check("a number refused", &[put(1, 2, "7"), refused], false);
}

#[test]
fn overlapping_calls_take_effect_in_any_order() {
    check("seen early", &[put(1, 9, "a"), get(2, 3, "a"), get(4, 5, "a")], true);
    check("seen, then not", &[put(1, 9, "a"), get(2, 3, "a"), get(4, 5, "")], false);
    let reversed = |last: &str| {
        [put(1, 20, "a"), put(1, 20, "b"), put(1, 20, "c"), get(2, 3, "c"), get(4, 5, "b"), get(6, 7, last)]
    };
    check("in reverse", &reversed("a"), true);
    check("back and forth", &reversed("c"), false);
    check("at the same moment", &[put(1, 5, "a"), of(1, get(5, 9, ""))], true);
    check("one moment later", &[put(1, 5, "a"), get(6, 9, "")], false);
    // Writing what is there already is not for nothing: it may have to come later.
    check(
        "the same again",
        &[incr(1, 9, 1), put(2, 9, "1"), incr(1, 9, 2), get(3, 9, "2"), get(10, 11, "1")],
        true,
    );
    check("both won", &[cas(1, 9, None, "a", true), cas(1, 9, None, "b", true)], false);
    check("doubled", &[incr(1, 9, 1), incr(1, 9, 1)], false);
    // What changes nothing where it could come first may be what makes the difference later.
    check("the delete came last", &[del(1, 5, None), put(1, 5, "a"), get(6, 7, "")], true);
    let again = [put(1, 2, "a"), put(3, 6, "b"), put(3, 6, "a"), get(7, 8, "a")];
    check("the same value came last", &again, true);
}

/// A client calls when it has an answer, also where its clock shows the same moment for both.
#[test]
fn calls_of_one_client_keep_their_order_where_their_times_touch() {
    let touching = [
        ("an answer and the next call", vec![put(1, 5, "a"), get(5, 9, "")], false),
        ("in the order of the file or not", vec![get(5, 9, ""), put(1, 5, "a")], false),
        ("two clients", vec![put(1, 5, "a"), of(1, get(5, 9, ""))], true),
        ("in order", vec![put(1, 5, "a"), get(5, 9, "a")], true),
        ("a call that took no time", vec![put(5, 5, "a"), get(5, 9, "")], false),
        ("after a call that took no time", vec![put(1, 5, "a"), get(5, 5, "")], false),
        ("two that took no time", vec![put(5, 5, "a"), get(5, 5, "")], true),
        ("a chain", vec![put(1, 5, "a"), put(5, 9, "b"), get(9, 12, "a")], false),
        ("no answer to the second", vec![put(1, 5, "a"), put(5, 0, "b"), get(6, 9, "a")], true),
        ("the second cannot come first", vec![incr(1, 5, 2), incr(5, 0, 0), get(6, 9, "2")], false),
        ("overlapping by a moment", vec![put(1, 6, "a"), get(5, 9, "")], true),
    ];
    for (name, records, linearizable) in touching {
        check(name, &records, linearizable);
        if linearizable || records.len() > 2 {
            continue;
        }
        for order in [[0, 1], [1, 0]] {
            assert!(!is_explained_by(&records, order.map(OpId)), "{name}: {order:?}");
        }
    }
    let ordered = |records: &[Record]| is_explained_by(records, [OpId(1), OpId(0)]);
    assert!(ordered(&[put(1, 5, "a"), of(1, get(5, 9, ""))]), "two clients");
    assert!(ordered(&[put(5, 5, "a"), get(5, 5, "")]), "two that took no time");
}

#[test]
fn unanswered_call_takes_effect_late_or_never() {
    check("never", &[put(1, 0, "a"), get(5, 6, ""), get(7, 8, "")], true);
    check("late", &[put(1, 0, "a"), get(5, 6, ""), get(7, 8, "a")], true);
    check("not before its call", &[get(1, 2, "a"), put(3, 0, "a")], false);
    check("once", &[put(1, 0, "a"), get(2, 3, "a"), put(4, 5, "b"), get(6, 7, "a")], false);
    check("late over another", &[put(1, 0, "a"), put(4, 5, "b"), get(6, 7, "a")], true);
    check("one of two", &[incr(1, 0, 0), incr(1, 0, 0), incr(5, 6, 2), get(7, 8, "2")], true);
    check("not three of two", &[incr(1, 0, 0), incr(1, 0, 0), incr(5, 6, 4)], false);
}

#[test]
fn keys_are_judged_apart_from_their_initial_values() {
    let other = |mut record: Record| {
        if let Op::Put { key, .. } | Op::Get { key } = &mut record.op {
            *key = "other".to_owned();
        }
        record
    };
    let records = [put(1, 2, "a"), other(get(3, 4, "a")), get(5, 6, "a")];
    let findings = judge(&records);
    assert_eq!((findings.keys, findings.illegal.len()), (2, 1));
    assert_eq!(findings.illegal[0].key, "other");
    let begin = BTreeMap::from([("other".to_owned(), "a".to_owned())]);
    assert!(judge_from(&records, &begin, BUDGET).is_ok());
    assert!(!judge_from(&[get(1, 2, "")], &BTreeMap::from([(key(), "a".to_owned())]), BUDGET).is_ok());
}

#[test]
fn picture_shows_the_end_of_the_longest_explanation() {
    let mut records: Vec<Record> = (0..50).map(|n| put(n * 10, n * 10 + 1, &format!("v{n}"))).collect();
    records.push(get(1_000, 1_001, "v48"));
    records.extend((0..50).map(|n| put(2_000 + n * 10, 2_001 + n * 10, "later")));
    let findings = judge(&records);
    let picture = &findings.illegal[0].picture;
    assert!(picture.starts_with("k: 50 of 101 answered operations can be explained"), "{picture}");
    assert!(picture.contains("holds Some(\"v49\")") && picture.contains("\"v48\""), "{picture}");
    assert!(picture.lines().count() <= 8 && !picture.contains("v45"), "{picture}");
}

#[test]
fn used_up_budget_gives_no_verdict() {
    let records: Vec<Record> = (0..40).map(|n| put(1, 100, &n.to_string())).collect();
    let impossible = [&records[..], &[get(200, 201, "nobody")]].concat();
    let findings = judge_from(&impossible, &BTreeMap::new(), 10_000);
    assert_eq!((findings.undecided, findings.illegal.len()), (vec![key()], 0));
}

/// A history of a correct register whose operations overlap by `overlap`. One operation in `lost` has no answer, and half
/// of those are not done.
fn history(seed: u64, operations: u64, overlap: u64, lost: u64) -> Vec<Record> {
    let mut rng = Rng::new(seed);
    let mut register = None;
    let mut records = Vec::new();
    for n in 0..operations {
        // It takes effect at n * 10, somewhere between call and answer.
        let (before, after) = (rng.below(overlap), rng.below(overlap));
        let (call, answered) = ((n * 10).saturating_sub(before), n * 10 + after + 1);
        let op = match rng.below(5) {
            0 => Op::Get { key: key() },
            1 => Op::Cas { key: key(), expect: register.clone(), value: (n * 100).to_string() },
            2 => Op::Increment { key: key(), by: 1 },
            3 if n.is_multiple_of(7) => Op::Delete { key: key() },
            _ => Op::Put { key: key(), value: (n * 100).to_string() },
        };
        let (value, result) = op.apply(register.as_deref());
        let is_lost = rng.below(lost) == 0;
        if !is_lost || rng.below(2) == 0 {
            register = value;
        }
        records.push(record(call, if is_lost { 0 } else { answered }, op, (!is_lost).then_some(result)));
    }
    records
}

#[test]
fn long_histories_are_judged_within_the_budget() {
    for (seed, operations, overlap, lost) in
        [(1, 20_000, 80, u64::MAX), (2, 20_000, 20, 5_000), (3, 2_000, 40, 400)]
    {
        let mut records = history(seed, operations, overlap, lost);
        check(&format!("seed {seed}"), &records, true);
        let numbers = records.iter().rposition(|record| matches!(record.result, Some(KvResult::Number(_))));
        records[numbers.unwrap()].result = Some(KvResult::Number(-5));
        check(&format!("seed {seed} with a number that nobody left"), &records, false);
    }
}

/// An order is a proof if it explains everything, and nothing if it does not.
#[test]
fn proposed_order_is_verified() {
    let records =
        [put(1, 4, "a"), put(2, 6, "b"), get(5, 7, "a"), incr(8, 9, 0), put(10, 0, "c"), get(11, 12, "b")];
    let explained = |order: &[u64]| is_explained_by(&records, order.iter().map(|id| OpId(*id)));
    let records_of =
        |order: &[u64], records: &[Record]| is_explained_by(records, order.iter().map(|id| OpId(*id)));
    assert!(!explained(&[0, 1, 2, 3, 5]), "the increment of a word was answered with a number");
    let without: Vec<Record> = [0, 1, 2, 4, 5].map(|at: usize| records[at].clone()).to_vec();
    // 0 put a, 1 put b, 2 get a, 3 put c without an answer, 4 get b.
    assert!(records_of(&[0, 2, 1, 4], &without), "what has no answer need not have happened");
    assert!(!records_of(&[0, 2, 1, 3, 4], &without), "c would be read");
    assert!(!records_of(&[0, 1, 2, 4], &without), "b would be read");
    assert!(!records_of(&[0, 2, 1], &without), "an answered one is missing");
    assert!(!records_of(&[0, 2, 2, 1, 4], &without), "twice");
    assert!(!records_of(&[0, 2, 1, 4, 9], &without), "never called");
    let late = [put(1, 2, "a"), put(3, 4, "a")];
    assert!(records_of(&[0, 1], &late) && !records_of(&[1, 0], &late), "real time is respected");
}
