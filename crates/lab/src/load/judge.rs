//! Judges a history: every acknowledged request is in what a fresh client reads afterwards exactly once, and one
//! order of all operations explains what every client was told. The replicas' own counters have no say.
//!
//! An order puts an operation after all that were answered before it was called. Where an answer and a call have the same
//! moment, only the calls of one client are in order: it made the second when it had the answer to the first.

use super::workload::{NUMBER, REGISTER, kind_of};
use quorate_app::KvResult;
use quorate_history::{BUDGET, History, Op, Record, judge_from};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// The findings of a judgement.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Verdict {
    /// Operations that were judged.
    pub judged: u64,
    /// Acknowledged operations whose effect is missing.
    pub lost: u64,
    /// Operations whose effect is there more than once.
    pub doubled: u64,
    /// Results and final values that the operations on a key of one client cannot have.
    pub wrong: u64,
    /// Keys whose operations no order explains.
    pub illegal: u64,
    /// Keys that were too hard to judge: nothing is known of them.
    pub undecided: u64,
    /// The first findings, for people.
    pub findings: Vec<String>,
}

impl Verdict {
    /// Whether everything was judged, and nothing was found.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        !self.is_wrong() && self.undecided == 0
    }

    /// Whether clients were told what cannot be.
    #[must_use]
    pub fn is_wrong(&self) -> bool {
        self.lost > 0 || self.doubled > 0 || self.wrong > 0 || self.illegal > 0
    }

    fn find(&mut self, text: String) {
        if self.findings.len() < 10 {
            self.findings.push(text);
        }
    }

    /// Adds what another part of the same run came to.
    pub fn add(&mut self, other: Self) {
        for (sum, part) in [
            (&mut self.judged, other.judged),
            (&mut self.lost, other.lost),
            (&mut self.doubled, other.doubled),
            (&mut self.wrong, other.wrong),
            (&mut self.illegal, other.illegal),
            (&mut self.undecided, other.undecided),
        ] {
            *sum = sum.saturating_add(part);
        }
        other.findings.into_iter().for_each(|finding| self.find(finding));
    }

    /// Looks for an order of the operations that explains what clients were told.
    fn search(&mut self, history: &History) {
        let found = judge_from(history.records(), history.held(), BUDGET);
        let count = |keys: usize| u64::try_from(keys).unwrap_or(u64::MAX);
        self.judged = count(found.operations);
        self.illegal = count(found.illegal.len());
        self.undecided = count(found.undecided.len());
        found.illegal.into_iter().for_each(|illegal| self.find(illegal.picture));
        for key in found.undecided {
            self.find(format!("{key}: too hard to judge within {} steps", BUDGET));
        }
    }
}

/// Judges a history alone: nothing is known of lost and doubled operations but what no order explains.
#[must_use]
pub fn judge_alone(history: &History) -> Verdict {
    let mut verdict = Verdict::default();
    verdict.search(history);
    verdict
}

/// Judges the operations of [`super::Mix::Judged`]: `finals` is what a fresh client read after the load had ended; a
/// key that is not there was absent.
#[must_use]
pub fn judge(history: &History, finals: &BTreeMap<String, String>) -> Verdict {
    let mut by_key: BTreeMap<&str, Vec<&Record>> = BTreeMap::new();
    for record in history.records().iter().filter(|record| !matches!(record.op, Op::Get { .. })) {
        by_key.entry(record.op.key()).or_default().push(record);
    }
    let mut verdict = Verdict::default();
    for (key, mut records) in by_key {
        records.sort_by_key(|record| record.call);
        let (held, found) =
            (history.held().get(key).map(String::as_str), finals.get(key).map(String::as_str));
        match kind_of(key) {
            Some(NUMBER) => judge_counter(key, &records, held, found, &mut verdict),
            Some(REGISTER) => judge_register(key, &records, held, found, &mut verdict),
            // Keys that clients share: only an order of all operations says what they may hold.
            _ => {}
        }
    }
    verdict.search(history);
    verdict
}

/// Every increment adds one: the final number counts the operations, and each result names a different count.
fn judge_counter(
    key: &str,
    records: &[&Record],
    held: Option<&str>,
    found: Option<&str>,
    verdict: &mut Verdict,
) {
    let number = |text: Option<&str>| -> u64 { text.and_then(|text| text.parse().ok()).unwrap_or(0) };
    let (first, last) = (number(held), number(found));
    let total = u64::try_from(records.len()).unwrap_or(0);
    let unknown = records.iter().filter(|record| record.answered.is_none()).count();
    let acknowledged = total.saturating_sub(u64::try_from(unknown).unwrap_or(0));
    let (least, most) = (first.saturating_add(acknowledged), first.saturating_add(total));
    if last < least {
        verdict.lost = verdict.lost.saturating_add(least.saturating_sub(last));
        verdict.find(format!(
            "{key}: {acknowledged} increments acknowledged from {first} on, the number is {last}"
        ));
    }
    if last > most {
        verdict.doubled = verdict.doubled.saturating_add(last.saturating_sub(most));
        verdict.find(format!("{key}: {total} increments called from {first} on, the number is {last}"));
    }
    let mut seen = BTreeSet::new();
    for record in records.iter().filter(|record| record.answered.is_some()) {
        let number = match record.result {
            Some(KvResult::Number(number)) => u64::try_from(number).ok(),
            _ => None,
        };
        if number.is_none_or(|number| number <= first || number > last || !seen.insert(number)) {
            verdict.wrong = verdict.wrong.saturating_add(1);
            let result = &record.result;
            verdict.find(format!("{key}: an increment returned {result:?}, the final number is {last}"));
        }
    }
}

/// Puts of one client: the final value is that of an acknowledged one that no other was called after, or of one
/// whose outcome is unknown. Where the client had much in flight, puts overlap, and there are several of the former.
fn judge_register(
    key: &str,
    records: &[&Record],
    held: Option<&str>,
    found: Option<&str>,
    verdict: &mut Verdict,
) {
    fn value(record: &Record) -> Option<&str> {
        match &record.op {
            Op::Put { value, .. } => Some(value),
            _ => None,
        }
    }
    let last_call = records.iter().filter(|record| record.answered.is_some()).map(|record| record.call).max();
    // One whose outcome is unknown may take effect at any time after its call, also after later ones.
    let is_last = |record: &&&Record| record.answered.is_none_or(|end| Some(end) >= last_call);
    let mut possible: Vec<Option<&str>> =
        records.iter().filter(is_last).map(|record| value(record)).collect();
    if last_call.is_none() {
        possible.push(held);
    }
    if !possible.contains(&found) {
        let known = found == held || records.iter().any(|record| value(record) == found);
        if known || found.is_none() {
            verdict.lost = verdict.lost.saturating_add(1);
        } else {
            verdict.wrong = verdict.wrong.saturating_add(1);
        }
        verdict.find(format!("{key}: holds {found:?}, possible were {possible:?}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quorate_types::Time;

    fn incr(call: u64, result: Option<i64>) -> Record {
        let op = Op::Increment { key: "n".to_owned(), by: 1 };
        let answered = result.map(|_| Time(call + 1));
        Record { client: 1, op, call: Time(call), answered, result: result.map(KvResult::Number) }
    }

    fn put(call: u64, value: &str, is_answered: bool) -> Record {
        let op = Op::Put { key: "p".to_owned(), value: value.to_owned() };
        let answered = is_answered.then_some(Time(call + 1));
        Record { client: 1, op, call: Time(call), answered, result: is_answered.then_some(KvResult::Done) }
    }

    fn map(values: &[(&str, &str)]) -> BTreeMap<String, String> {
        values.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
    }

    fn verdict(records: Vec<Record>, begin: &[(&str, &str)], finals: &[(&str, &str)]) -> (u64, u64, u64) {
        let verdict = judge(&History::of(map(begin), records), &map(finals));
        (verdict.lost, verdict.doubled, verdict.wrong)
    }

    #[test]
    fn counters() {
        let two = || vec![incr(1, Some(1)), incr(5, Some(2))];
        assert_eq!(verdict(two(), &[], &[("n", "2")]), (0, 0, 0));
        assert_eq!(verdict(two(), &[], &[("n", "1")]).0, 1, "lost");
        assert_eq!(verdict(two(), &[], &[("n", "3")]).1, 1, "doubled");
        assert_eq!(verdict(two(), &[], &[]).0, 2, "all lost");
        assert_eq!(
            verdict(vec![incr(1, Some(1)), incr(5, Some(1))], &[], &[("n", "2")]).2,
            1,
            "the same number"
        );
        let unknown = || vec![incr(1, Some(1)), incr(5, None)];
        assert_eq!(verdict(unknown(), &[], &[("n", "1")]), (0, 0, 0));
        assert_eq!(verdict(unknown(), &[], &[("n", "2")]), (0, 0, 0));
        assert_eq!(verdict(unknown(), &[], &[("n", "3")]).1, 1);
    }

    #[test]
    fn counters_that_go_on() {
        let two = || vec![incr(1, Some(8)), incr(5, Some(9))];
        assert_eq!(verdict(two(), &[("n", "7")], &[("n", "9")]), (0, 0, 0));
        assert_eq!(verdict(two(), &[("n", "7")], &[("n", "2")]).0, 7, "what was counted before is lost");
        assert_eq!(verdict(vec![incr(1, Some(7))], &[("n", "7")], &[("n", "8")]).2, 1, "a number of before");
    }

    #[test]
    fn registers() {
        let puts = || vec![put(1, "a", true), put(5, "b", true)];
        assert_eq!(verdict(puts(), &[], &[("p", "b")]), (0, 0, 0));
        assert_eq!(verdict(puts(), &[], &[("p", "a")]).0, 1, "the last put is lost");
        assert_eq!(verdict(puts(), &[], &[]).0, 1);
        assert_eq!(verdict(puts(), &[], &[("p", "x")]).2, 1, "nobody wrote that");
        assert_eq!(verdict(puts(), &[("p", "x")], &[("p", "x")]).0, 1, "as it was before");
        let unknown = || vec![put(1, "a", true), put(5, "b", false)];
        assert_eq!(verdict(unknown(), &[], &[("p", "a")]), (0, 0, 0));
        assert_eq!(verdict(unknown(), &[], &[("p", "b")]), (0, 0, 0));
        assert_eq!(verdict(vec![put(1, "a", false)], &[], &[]), (0, 0, 0));
        assert_eq!(verdict(vec![put(1, "a", false)], &[("p", "x")], &[("p", "x")]), (0, 0, 0));
        assert_eq!(verdict(vec![put(1, "a", false)], &[("p", "x")], &[]).0, 1);
    }

    /// A client with much in flight may come back to a key before its last put there was answered.
    #[test]
    fn puts_that_overlap_may_take_effect_in_any_order() {
        let slow = || Record { answered: Some(Time(9)), ..put(1, "a", true) };
        let puts = || vec![slow(), put(5, "b", true)];
        assert_eq!(verdict(puts(), &[], &[("p", "a")]), (0, 0, 0));
        assert_eq!(verdict(puts(), &[], &[("p", "b")]), (0, 0, 0));
        assert_eq!(verdict(puts(), &[("p", "x")], &[("p", "x")]).0, 1, "both are lost");
        let then = || vec![slow(), put(5, "b", true), put(20, "c", true)];
        assert_eq!(verdict(then(), &[], &[("p", "a")]).0, 1, "the last one came after both");
    }

    #[test]
    fn keys_that_are_shared_are_judged_by_an_order() {
        let shared = |op: fn(String) -> Op, call: u64, result| {
            let (op, answered) = (op("s1".to_owned()), Some(Time(call + 1)));
            Record { client: 1, op, call: Time(call), answered, result: Some(result) }
        };
        let put = || shared(|key| Op::Put { key, value: "5".to_owned() }, 1, KvResult::Done);
        let incr = |result| shared(|key| Op::Increment { key, by: 1 }, 3, KvResult::Number(result));
        let judged = |result| judge(&History::of(map(&[]), vec![put(), incr(result)]), &map(&[("s1", "6")]));
        assert!(judged(6).is_clean());
        let wrong = judged(7);
        assert_eq!((wrong.illegal, wrong.lost, wrong.judged), (1, 0, 2));
        assert!(!wrong.is_clean() && wrong.findings[0].contains("s1"), "{:?}", wrong.findings);
        let mut sum = judged(6);
        sum.add(wrong);
        assert_eq!((sum.illegal, sum.judged, sum.findings.len()), (1, 4, 1));
    }
}
