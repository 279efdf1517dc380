//! Histories of the key-value store: keys have nothing to do with each other, so each is an object of its own.

use super::{BUDGET, Judgement, Leaves, Sequential, Span, Stuck, search};
use crate::history::{OpId, Record};
use crate::model::{Model, Op};
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
        // Some answers are written down without saying all: they fit whatever happened.
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
    /// The operations around the place where the longest explanation ends, for people.
    pub picture: String,
}

/// What was found in a history.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Findings {
    /// Operations that were judged.
    pub operations: usize,
    /// Keys that were judged.
    pub keys: usize,
    /// Those of them whose operations no order explains.
    pub illegal: Vec<Illegal>,
    /// Those of them that were given up: nothing is known of them.
    pub undecided: Vec<String>,
}

impl Findings {
    /// Whether each key was judged and found to be in order.
    #[must_use]
    pub fn is_ok(&self) -> bool {
        self.illegal.is_empty() && self.undecided.is_empty()
    }
}

/// Whether what clients saw of a store that was empty is linearizable, key by key.
#[must_use]
pub fn judge(records: &[Record]) -> Findings {
    judge_from(records, &BTreeMap::new(), BUDGET)
}

/// As [`judge`], of a store that held `begin`, with a budget for each key.
#[must_use]
pub fn judge_from(records: &[Record], begin: &BTreeMap<String, String>, budget: u64) -> Findings {
    let mut by_key: BTreeMap<&str, Vec<Span<usize>>> = BTreeMap::new();
    for (what, record) in records.iter().enumerate() {
        // A read without an answer says nothing.
        if record.answered.is_some() || !matches!(record.op, Op::Get { .. }) {
            let Record { client, call, answered, .. } = *record;
            let span = Span { client, call, answered, what };
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

/// Whether an order that somebody proposes explains what clients saw of a store that was empty. Who proposes it need not
/// be believed: an order that explains everything is a proof, whoever it comes from.
#[must_use]
pub fn is_explained_by(records: &[Record], order: impl IntoIterator<Item = OpId>) -> bool {
    let (mut store, mut done) = (Model::default(), vec![false; records.len()]);
    let mut latest_call = Time::ZERO;
    // Of each client the latest call, and whether it took any time.
    let mut own: BTreeMap<usize, (Time, bool)> = BTreeMap::new();
    for id in order {
        let place = usize::try_from(id.0).ok();
        let Some((record, done)) = place.and_then(|place| Some((records.get(place)?, done.get_mut(place)?)))
        else {
            return false;
        };
        let result = store.apply(&record.op);
        let fits = record.result.as_ref().is_none_or(|seen| *seen == result);
        // Nothing comes after what was called only when it had been answered.
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
        let shown = places.iter().filter_map(|at| records.get(spans.get(*at)?.what));
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
