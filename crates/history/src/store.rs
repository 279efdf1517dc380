//! Judgement of histories of the key-value store. Keys are independent, so each key is an object of its own.

#[cfg(test)]
mod tests;

use crate::operation::{Model, Op};
use crate::record::{OpId, Record};
use crate::search::{BUDGET, Judgement, Leaves, Sequential, Span, Stuck, search};
use quorate_app::KvResult;
use quorate_types::Time;
use std::collections::BTreeMap;

/// One key of the store; its calls are places in the history.
struct Register<'a>(&'a [Record]);

impl Sequential for Register<'_> {
    type State = Option<String>;
    type Call = usize;

    fn step(&self, state: &Self::State, call: &Self::Call) -> Option<Self::State> {
        let call = self.0.get(*call)?;
        let (after, result) = call.op.apply(state.as_deref());
        let seen = call.result.as_ref();
        let refused = matches!((seen, &result), (Some(KvResult::Error(_)), KvResult::Error(_)));
        // A result that the file does not hold fits every outcome.
        (seen.is_none_or(|seen| *seen == result) || refused).then_some(after)
    }

    fn leaves(&self, call: &Self::Call) -> Leaves<Self::State> {
        let Some(Record { op, result, .. }) = self.0.get(*call) else { return Leaves::Anything };
        match (op, result) {
            (Op::Get { .. }, _)
            | (Op::Delete { .. }, Some(KvResult::Absent))
            | (Op::Cas { .. }, Some(KvResult::Mismatch))
            | (Op::Increment { .. }, Some(KvResult::Error(_))) => Leaves::Same,
            (Op::Put { value, .. } | Op::Cas { value, .. }, _) => Leaves::This(Some(value.clone())),
            (Op::Delete { .. }, _) => Leaves::This(None),
            (Op::Increment { .. }, Some(KvResult::Number(number))) => Leaves::This(Some(number.to_string())),
            (Op::Increment { .. }, _) => Leaves::Anything,
        }
    }
}

/// A key whose operations no order explains.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Illegal {
    /// The key.
    pub key: String,
    /// The operations around the end of the longest explanation, for people.
    pub picture: String,
}

/// The verdict on a history.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Findings {
    /// Operations that were judged.
    pub operations: usize,
    /// Keys that were judged.
    pub keys: usize,
    /// Keys whose operations no order explains.
    pub illegal: Vec<Illegal>,
    /// Keys whose search used up its budget: nothing is known of them.
    pub undecided: Vec<String>,
}

impl Findings {
    /// Whether each key was judged and found to be in order.
    #[must_use]
    pub fn is_ok(&self) -> bool {
        self.illegal.is_empty() && self.undecided.is_empty()
    }
}

/// Judges, key by key, whether a history of a store that was empty is linearizable.
#[must_use]
pub fn judge(records: &[Record]) -> Findings {
    judge_from(records, &BTreeMap::new(), BUDGET)
}

/// Judges as [`judge`] does, for a store that held `begin`, with a budget for each key.
#[must_use]
pub fn judge_from(records: &[Record], begin: &BTreeMap<String, String>, budget: u64) -> Findings {
    let mut by_key: BTreeMap<&str, Vec<Span<usize>>> = BTreeMap::new();
    for (operation, record) in records.iter().enumerate() {
        // A read without an answer shows nothing.
        if record.answered.is_some() || !matches!(record.op, Op::Get { .. }) {
            let Record { client, call, answered, .. } = *record;
            let span = Span { client, call, answered, operation };
            by_key.entry(record.op.key()).or_default().push(span);
        }
    }
    let mut findings = Findings { operations: records.len(), keys: by_key.len(), ..Findings::default() };
    for (key, spans) in by_key {
        match search(&Register(records), begin.get(key).cloned(), &spans, budget) {
            Judgement::Ok => {}
            Judgement::Undecided => findings.undecided.push(key.to_owned()),
            Judgement::Illegal(stuck) => {
                let picture = picture(records, key, &spans, &stuck);
                findings.illegal.push(Illegal { key: key.to_owned(), picture });
            }
        }
    }
    findings
}

/// Whether a proposed order explains the history of a store that was empty. An order that explains all operations is a
/// proof by itself: its source need not be trusted.
#[must_use]
pub fn is_explained_by(records: &[Record], order: impl IntoIterator<Item = OpId>) -> bool {
    let (mut store, mut done) = (Model::default(), vec![false; records.len()]);
    let mut latest_call = Time::ZERO;
    // The latest call of each client, and whether it took any time.
    let mut own: BTreeMap<usize, (Time, bool)> = BTreeMap::new();
    for id in order {
        let place = usize::try_from(id.0).ok();
        let Some((record, done)) = place.and_then(|place| Some((records.get(place)?, done.get_mut(place)?)))
        else {
            return false;
        };
        let result = store.apply(&record.op);
        let fits = record.result.as_ref().is_none_or(|seen| *seen == result);
        // No operation comes after one that was called only after the operation's answer.
        let latest = own.entry(record.client).or_insert((record.call, false));
        let touches = record.answered == Some(latest.0) && (record.answered > Some(record.call) || latest.1);
        let in_time = !touches && record.answered.is_none_or(|answered| answered >= latest_call);
        if std::mem::replace(done, true) || !fits || !in_time {
            return false;
        }
        latest_call = latest_call.max(record.call);
        *latest = (*latest).max((record.call, record.answered != Some(record.call)));
    }
    records.iter().zip(done).all(|(record, done)| done || record.answered.is_none())
}

fn picture(records: &[Record], key: &str, spans: &[Span<usize>], stuck: &Stuck<Option<String>>) -> String {
    let answered = spans.iter().filter(|span| span.answered.is_some()).count();
    let lines = |places: &[usize]| -> String {
        let shown = places.iter().filter_map(|at| records.get(spans.get(*at)?.operation));
        shown.map(|record| format!("\n  {}", record.to_json_line())).collect()
    };
    format!(
        "{key}: {} of {answered} answered operations can be explained, the last of them are{}\n\
         then the key holds {:?}, and none of these leads on{}",
        stuck.explained,
        lines(&stuck.before),
        stuck.state,
        lines(&stuck.next),
    )
}
