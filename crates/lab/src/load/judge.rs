//! The judge of a history. The values that a fresh client reads contain every acknowledged request exactly once, and one
//! order of all operations explains every answer. The replicas' own counters do not count.
//!
//! An order puts an operation after all operations that were answered before its call. If an answer and a call have the
//! same time, only calls of one client are in order: the client made the second call after the first answer.

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
    /// Operations whose effect is present more than once.
    pub doubled: u64,
    /// Results and final values that the operations on a key of one client cannot have.
    pub wrong: u64,
    /// Keys without an order of operations that explains all answers.
    pub illegal: u64,
    /// Keys that were too hard to judge.
    pub undecided: u64,
    /// The first findings, for people.
    pub findings: Vec<String>,
}

impl Verdict {
    /// Whether everything was judged and nothing was found.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        !self.is_wrong() && self.undecided == 0
    }

    /// Whether an answer or a final value is impossible.
    #[must_use]
    pub fn is_wrong(&self) -> bool {
        self.lost > 0 || self.doubled > 0 || self.wrong > 0 || self.illegal > 0
    }

    fn add_finding(&mut self, text: String) {
        if self.findings.len() < 10 {
            self.findings.push(text);
        }
    }

    /// Adds the verdict on another part of the same run.
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
        other.findings.into_iter().for_each(|finding| self.add_finding(finding));
    }

    /// Searches for an order of the operations that explains all answers.
    fn search(&mut self, history: &History) {
        let found = judge_from(history.records(), history.held(), BUDGET);
        let count = |keys: usize| u64::try_from(keys).unwrap_or(u64::MAX);
        self.judged = count(found.operations);
        self.illegal = count(found.illegal.len());
        self.undecided = count(found.undecided.len());
        found.illegal.into_iter().for_each(|illegal| self.add_finding(illegal.picture));
        for key in found.undecided {
            self.add_finding(format!("{key}: too hard to judge within {} steps", BUDGET));
        }
    }
}

/// Judges a history without final values. It finds a lost or doubled operation only if no order explains the answers.
#[must_use]
pub fn judge_alone(history: &History) -> Verdict {
    let mut verdict = Verdict::default();
    verdict.search(history);
    verdict
}

/// Judges the operations of [`super::Mix::Judged`]. `finals` has the values that a fresh client read after the end of the
/// load; a missing key was absent.
#[must_use]
pub fn judge(history: &History, finals: &BTreeMap<String, String>) -> Verdict {
    let mut by_key: BTreeMap<&str, Vec<&Record>> = BTreeMap::new();
    for record in history.records().iter().filter(|record| !matches!(record.op, Op::Get { .. })) {
        by_key.entry(record.op.key()).or_default().push(record);
    }
    let mut verdict = Verdict::default();
    for (key, mut records) in by_key {
        records.sort_by_key(|record| record.call);
        let held = history.held().get(key).map(String::as_str);
        let found = finals.get(key).map(String::as_str);
        let history = KeyHistory { key, records, held, found };
        match kind_of(key) {
            Some(NUMBER) => history.judge_counter(&mut verdict),
            Some(REGISTER) => history.judge_register(&mut verdict),
            // On keys that clients share, only an order of all operations shows the possible values.
            _ => {}
        }
    }
    verdict.search(history);
    verdict
}

/// The writes on a key of one client, with the values of the key before and after them.
struct KeyHistory<'a> {
    key: &'a str,
    records: Vec<&'a Record>,
    held: Option<&'a str>,
    found: Option<&'a str>,
}

impl KeyHistory<'_> {
    /// Judges increments by one. The final number counts the operations, and each result has a different number.
    fn judge_counter(&self, verdict: &mut Verdict) {
        let Self { key, records, held, found } = self;
        let number = |text: Option<&str>| -> u64 { text.and_then(|text| text.parse().ok()).unwrap_or(0) };
        let (first, last) = (number(*held), number(*found));
        let total = u64::try_from(records.len()).unwrap_or(0);
        let unknown = records.iter().filter(|record| record.answered.is_none()).count();
        let acknowledged = total.saturating_sub(u64::try_from(unknown).unwrap_or(0));
        let (least, most) = (first.saturating_add(acknowledged), first.saturating_add(total));
        if last < least {
            verdict.lost = verdict.lost.saturating_add(least.saturating_sub(last));
            verdict.add_finding(format!(
                "{key}: {acknowledged} increments acknowledged from {first} on, the number is {last}"
            ));
        }
        if last > most {
            verdict.doubled = verdict.doubled.saturating_add(last.saturating_sub(most));
            verdict.add_finding(format!(
                "{key}: {total} increments called from {first} on, the number is {last}"
            ));
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
                verdict.add_finding(format!(
                    "{key}: an increment returned {result:?}, the final number is {last}"
                ));
            }
        }
    }

    /// Judges puts of one client. The final value is that of the last acknowledged put, or of a put with unknown outcome. If
    /// puts overlap, several of them may be the last.
    fn judge_register(&self, verdict: &mut Verdict) {
        let Self { key, records, held, found } = self;
        fn value(record: &Record) -> Option<&str> {
            match &record.op {
                Op::Put { value, .. } => Some(value),
                _ => None,
            }
        }
        let last_call =
            records.iter().filter(|record| record.answered.is_some()).map(|record| record.call).max();
        // A put with unknown outcome may take effect at any time after its call, also after later puts.
        let is_last = |record: &&&Record| record.answered.is_none_or(|end| Some(end) >= last_call);
        let mut possible: Vec<Option<&str>> =
            records.iter().filter(is_last).map(|record| value(record)).collect();
        if last_call.is_none() {
            possible.push(*held);
        }
        if !possible.contains(found) {
            let known = found == held || records.iter().any(|record| value(record) == *found);
            if known || found.is_none() {
                verdict.lost = verdict.lost.saturating_add(1);
            } else {
                verdict.wrong = verdict.wrong.saturating_add(1);
            }
            verdict.add_finding(format!("{key}: the value is {found:?}; possible values were {possible:?}"));
        }
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
    fn lost_and_doubled_increments_are_found() {
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
    fn counters_of_a_later_stretch_are_judged() {
        let two = || vec![incr(1, Some(8)), incr(5, Some(9))];
        assert_eq!(verdict(two(), &[("n", "7")], &[("n", "9")]), (0, 0, 0));
        assert_eq!(verdict(two(), &[("n", "7")], &[("n", "2")]).0, 7, "what was counted before is lost");
        assert_eq!(verdict(vec![incr(1, Some(7))], &[("n", "7")], &[("n", "8")]).2, 1, "a number of before");
    }

    #[test]
    fn lost_and_wrong_puts_are_found() {
        let puts = || vec![put(1, "a", true), put(5, "b", true)];
        assert_eq!(verdict(puts(), &[], &[("p", "b")]), (0, 0, 0));
        assert_eq!(verdict(puts(), &[], &[("p", "a")]).0, 1, "the last put is lost");
        assert_eq!(verdict(puts(), &[], &[]).0, 1);
        assert_eq!(verdict(puts(), &[], &[("p", "x")]).2, 1, "no client wrote that");
        assert_eq!(verdict(puts(), &[("p", "x")], &[("p", "x")]).0, 1, "as it was before");
        let unknown = || vec![put(1, "a", true), put(5, "b", false)];
        assert_eq!(verdict(unknown(), &[], &[("p", "a")]), (0, 0, 0));
        assert_eq!(verdict(unknown(), &[], &[("p", "b")]), (0, 0, 0));
        assert_eq!(verdict(vec![put(1, "a", false)], &[], &[]), (0, 0, 0));
        assert_eq!(verdict(vec![put(1, "a", false)], &[("p", "x")], &[("p", "x")]), (0, 0, 0));
        assert_eq!(verdict(vec![put(1, "a", false)], &[("p", "x")], &[]).0, 1);
    }

    /// A client with many requests in flight may put to a key again before the answer to its last put.
    #[test]
    fn overlapping_puts_may_take_effect_in_any_order() {
        let slow = || Record { answered: Some(Time(9)), ..put(1, "a", true) };
        let puts = || vec![slow(), put(5, "b", true)];
        assert_eq!(verdict(puts(), &[], &[("p", "a")]), (0, 0, 0));
        assert_eq!(verdict(puts(), &[], &[("p", "b")]), (0, 0, 0));
        assert_eq!(verdict(puts(), &[("p", "x")], &[("p", "x")]).0, 1, "both are lost");
        let then = || vec![slow(), put(5, "b", true), put(20, "c", true)];
        assert_eq!(verdict(then(), &[], &[("p", "a")]).0, 1, "the last one came after both");
    }

    #[test]
    fn shared_keys_are_judged_by_an_order() {
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
