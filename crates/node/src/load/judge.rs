//! Judges a history against what a fresh client reads afterwards: every acknowledged request is in the final
//! state exactly once. The replicas' own counters have no say.

use super::history::{Entry, History, Kind};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// What was found.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Verdict {
    /// Operations that were judged.
    pub judged: u64,
    /// Acknowledged operations whose effect is missing.
    pub lost: u64,
    /// Operations whose effect is there more than once.
    pub doubled: u64,
    /// Results and final values that no order of the operations explains.
    pub wrong: u64,
    /// The first findings, for people.
    pub findings: Vec<String>,
}

impl Verdict {
    /// Whether nothing was found.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.lost == 0 && self.doubled == 0 && self.wrong == 0
    }

    fn find(&mut self, text: String) {
        if self.findings.len() < 10 {
            self.findings.push(text);
        }
    }
}

/// Judges the operations of [`super::Mix::Judged`]: `finals` are the values that a fresh client read after
/// the load had ended, for every key of the history; a key that is not there was absent.
#[must_use]
pub fn judge(history: &History, finals: &BTreeMap<String, String>) -> Verdict {
    let mut by_key: BTreeMap<&str, Vec<&Entry>> = BTreeMap::new();
    // The final reads are in the history for other checkers; this one has read for itself.
    for entry in history.entries().iter().filter(|entry| entry.operation.kind != Kind::Get) {
        by_key.entry(&entry.operation.key).or_default().push(entry);
    }
    let mut verdict = Verdict::default();
    for (key, mut entries) in by_key {
        verdict.judged = verdict.judged.saturating_add(u64::try_from(entries.len()).unwrap_or(0));
        entries.sort_by_key(|entry| entry.operation.call);
        let found = finals.get(key).map(String::as_str);
        match entries.first().map(|entry| entry.operation.kind) {
            Some(Kind::Incr) => judge_counter(key, &entries, found, &mut verdict),
            _ => judge_register(key, &entries, found, &mut verdict),
        }
    }
    verdict
}

/// Every increment adds one: the final number counts the operations, and each result names a different count.
fn judge_counter(key: &str, entries: &[&Entry], found: Option<&str>, verdict: &mut Verdict) {
    let total = u64::try_from(entries.len()).unwrap_or(0);
    let unknown = u64::try_from(entries.iter().filter(|entry| entry.returned.is_none()).count()).unwrap_or(0);
    let acknowledged = total.saturating_sub(unknown);
    let last: u64 = found.and_then(|number| number.parse().ok()).unwrap_or(0);
    if last < acknowledged {
        verdict.lost = verdict.lost.saturating_add(acknowledged.saturating_sub(last));
        verdict.find(format!("{key}: {acknowledged} increments acknowledged, the number is {last}"));
    }
    if last > total {
        verdict.doubled = verdict.doubled.saturating_add(last.saturating_sub(total));
        verdict.find(format!("{key}: {total} increments called, the number is {last}"));
    }
    let mut seen = BTreeSet::new();
    for entry in entries.iter().filter(|entry| entry.returned.is_some()) {
        let number = entry.result.as_ref().and_then(|result| result.parse::<u64>().ok());
        if number.is_none_or(|number| number == 0 || number > last || !seen.insert(number)) {
            verdict.wrong = verdict.wrong.saturating_add(1);
            verdict
                .find(format!("{key}: an increment returned {:?}, the final number is {last}", entry.result));
        }
    }
}

/// Puts of one client that never overlap: the final value is that of the last acknowledged one, or of one
/// after it whose outcome is unknown.
fn judge_register(key: &str, entries: &[&Entry], found: Option<&str>, verdict: &mut Verdict) {
    let last = entries.iter().rposition(|entry| entry.returned.is_some());
    // One whose outcome is unknown may take effect at any time after its call, also after later ones.
    let unknown = entries.iter().filter(|entry| entry.returned.is_none());
    let possible: Vec<Option<&str>> = last
        .and_then(|last| entries.get(last))
        .into_iter()
        .chain(unknown)
        .map(|entry| entry.operation.arg.as_deref())
        .collect();
    let unwritten = last.is_none() && found.is_none();
    if !unwritten && !possible.contains(&found) {
        let known = entries.iter().any(|entry| entry.operation.arg.as_deref() == found);
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
    use super::super::history::Operation;
    use super::*;
    use quorate_types::Time;

    fn entry(kind: Kind, key: &str, arg: &str, call: u64, result: Option<&str>) -> Entry {
        let operation =
            Operation { client: 1, kind, key: key.to_owned(), arg: Some(arg.to_owned()), call: Time(call) };
        Entry { operation, returned: result.map(|_| Time(call + 1)), result: result.map(str::to_owned) }
    }

    fn verdict(entries: Vec<Entry>, finals: &[(&str, &str)]) -> (u64, u64, u64) {
        let finals = finals.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        let verdict = judge(&History::of(entries), &finals);
        (verdict.lost, verdict.doubled, verdict.wrong)
    }

    #[test]
    fn counters() {
        let two =
            || vec![entry(Kind::Incr, "n", "1", 1, Some("1")), entry(Kind::Incr, "n", "1", 5, Some("2"))];
        assert_eq!(verdict(two(), &[("n", "2")]), (0, 0, 0));
        assert_eq!(verdict(two(), &[("n", "1")]).0, 1, "lost");
        assert_eq!(verdict(two(), &[("n", "3")]).1, 1, "doubled");
        assert_eq!(verdict(two(), &[]).0, 2, "all lost");
        let twice =
            vec![entry(Kind::Incr, "n", "1", 1, Some("1")), entry(Kind::Incr, "n", "1", 5, Some("1"))];
        assert_eq!(verdict(twice, &[("n", "2")]).2, 1, "two say the same number");
        let unknown =
            || vec![entry(Kind::Incr, "n", "1", 1, Some("1")), entry(Kind::Incr, "n", "1", 5, None)];
        assert_eq!(verdict(unknown(), &[("n", "1")]), (0, 0, 0));
        assert_eq!(verdict(unknown(), &[("n", "2")]), (0, 0, 0));
        assert_eq!(verdict(unknown(), &[("n", "3")]).1, 1);
    }

    #[test]
    fn registers() {
        let puts =
            || vec![entry(Kind::Put, "p", "a", 1, Some("ok")), entry(Kind::Put, "p", "b", 5, Some("ok"))];
        assert_eq!(verdict(puts(), &[("p", "b")]), (0, 0, 0));
        assert_eq!(verdict(puts(), &[("p", "a")]).0, 1, "the last put is lost");
        assert_eq!(verdict(puts(), &[]).0, 1);
        assert_eq!(verdict(puts(), &[("p", "x")]).2, 1, "nobody wrote that");
        let unknown = || vec![entry(Kind::Put, "p", "a", 1, Some("ok")), entry(Kind::Put, "p", "b", 5, None)];
        assert_eq!(verdict(unknown(), &[("p", "a")]), (0, 0, 0));
        assert_eq!(verdict(unknown(), &[("p", "b")]), (0, 0, 0));
        assert_eq!(verdict(vec![entry(Kind::Put, "p", "a", 1, None)], &[]), (0, 0, 0));
    }
}
