//! Three judges of linearizability, written by three parties, agree on small random histories of an atomic register,
//! with and without damage.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test")]

use quorate_app::KvResult;
use quorate_history::{Op, Record, judge};
use quorate_types::Time;
use quorate_types::rng::Rng;
use stateright::semantics::{ConsistencyTester as _, LinearizabilityTester, SequentialSpec};
use todc_utils::linearizability::WGLChecker;
use todc_utils::linearizability::history::{Action, History};
use todc_utils::specifications::Specification;

const SEEDS: u64 = 4_000;

/// Returns a history of a register: operations of one key by clients that wait for each answer, at different moments.
/// The last operation of a client may have no answer.
fn history(rng: &mut Rng) -> Vec<Record> {
    let clients = rng.index(3) + 2;
    let mut records = Vec::new();
    let mut effects = Vec::new();
    // The low bits number the moments, so all of them differ.
    let mut moments = 0u64;
    let mut after = |rng: &mut Rng, time: u64| {
        moments += 1;
        (time / 64 + 1 + rng.below(40)) * 64 + moments
    };
    for client in 0..clients {
        let mut time = 0;
        let count = rng.index(4) + 1;
        for at in 0..count {
            let call = after(rng, time);
            let effect = after(rng, call);
            time = after(rng, effect);
            let is_lost = at + 1 == count && rng.below(4) == 0;
            // Half of the operations without an answer never take effect.
            if !is_lost || rng.below(2) == 0 {
                effects.push((effect, records.len()));
            }
            let answered = (!is_lost).then_some(Time(time));
            records.push(Record { client, op: op(rng), call: Time(call), answered, result: None });
        }
    }
    effects.sort_unstable();
    let mut register = None;
    for (_, at) in effects {
        let (value, result) = records[at].op.apply(register.as_deref());
        register = value;
        records[at].result = records[at].answered.map(|_| result);
    }
    records
}

fn op(rng: &mut Rng) -> Op {
    let key = || "k".to_owned();
    // Few values, so that several operations explain a result.
    let mut value = || rng.below(3).to_string();
    let (value, expect) = (value(), value());
    match rng.below(5) {
        0 => Op::Put { key: key(), value },
        1 => Op::Delete { key: key() },
        2 => Op::Cas { key: key(), expect: (expect != "2").then_some(expect), value },
        3 => Op::Increment { key: key(), by: 1 },
        _ => Op::Get { key: key() },
    }
}

/// Changes one answer.
fn damage(rng: &mut Rng, records: &mut [Record]) {
    let answered: Vec<usize> = (0..records.len()).filter(|at| records[*at].answered.is_some()).collect();
    let Some(at) = rng.pick(&answered) else { return };
    let record = &mut records[*at];
    record.result = Some(match (&record.op, record.result.clone().unwrap()) {
        (Op::Get { .. }, _) if rng.below(3) == 0 => KvResult::Absent,
        (Op::Get { .. }, _) => KvResult::Value(rng.below(5).to_string().into_bytes()),
        (Op::Cas { .. }, KvResult::Done) => KvResult::Mismatch,
        (Op::Delete { .. }, KvResult::Done) => KvResult::Absent,
        (_, KvResult::Number(number)) => KvResult::Number(number + 1),
        _ => KvResult::Done,
    });
}

/// Returns the events of a history in order: the operation, and whether it ends.
fn events(records: &[Record]) -> Vec<(usize, bool)> {
    let mut events: Vec<(Time, usize, bool)> = Vec::new();
    for (at, record) in records.iter().enumerate() {
        events.push((record.call, at, false));
        events.extend(record.answered.map(|time| (time, at, true)));
    }
    events.sort_unstable();
    events.into_iter().map(|(_, at, is_end)| (at, is_end)).collect()
}

fn ours(records: &[Record]) -> bool {
    let findings = judge(records);
    assert!(findings.undecided.is_empty(), "{records:?}");
    findings.is_ok()
}

#[derive(Clone)]
struct Register(Option<String>);

impl SequentialSpec for Register {
    type Op = Op;
    type Ret = KvResult;

    fn invoke(&mut self, op: &Op) -> KvResult {
        let (value, result) = op.apply(self.0.as_deref());
        self.0 = value;
        result
    }
}

fn stateright(records: &[Record]) -> bool {
    let mut tester = LinearizabilityTester::new(Register(None));
    for (at, is_end) in events(records) {
        let record = &records[at];
        if is_end {
            tester.on_return(record.client, record.result.clone().unwrap()).unwrap();
        } else {
            tester.on_invoke(record.client, record.op.clone()).unwrap();
        }
    }
    tester.is_consistent()
}

struct Todc;

impl Specification for Todc {
    type State = Option<String>;
    type Operation = (Op, Option<KvResult>);

    fn init() -> Self::State {
        None
    }

    fn apply((op, seen): &Self::Operation, state: &Self::State) -> (bool, Self::State) {
        let (after, result) = op.apply(state.as_deref());
        (seen.as_ref().is_none_or(|seen| *seen == result), after)
    }
}

/// Judges with todc, which needs an answer to every operation. An operation without one either ends last, with any
/// answer, or is left out.
fn todc(records: &[Record]) -> bool {
    let open: Vec<usize> = (0..records.len()).filter(|at| records[*at].answered.is_none()).collect();
    (0..1u64 << open.len()).any(|choice| {
        let is_done =
            |at: usize| open.iter().position(|open| *open == at).is_none_or(|bit| choice >> bit & 1 == 1);
        let mut actions = Vec::new();
        let end = |at: usize| {
            let record = &records[at];
            (record.client, Action::Response((record.op.clone(), record.result.clone())))
        };
        for (at, is_end) in events(records).into_iter().filter(|(at, _)| is_done(*at)) {
            let record = &records[at];
            actions.push(if is_end {
                end(at)
            } else {
                (record.client, Action::Call((record.op.clone(), None)))
            });
        }
        actions.extend(open.iter().filter(|at| is_done(**at)).map(|at| end(*at)));
        actions.is_empty() || WGLChecker::<Todc>::is_linearizable(History::from_actions(actions))
    })
}

#[test]
fn three_judges_of_linearizability_agree() {
    let (mut legal, mut illegal, mut hidden) = (0, 0, (0, 0));
    for seed in 0..SEEDS {
        let mut rng = Rng::new(seed);
        let mut records = history(&mut rng);
        assert!(ours(&records), "seed {seed}: the history of a register is refused: {records:?}");
        for damages in 0..3 {
            let verdicts = (ours(&records), stateright(&records), todc(&records));
            let all = verdicts.0 == verdicts.1 && verdicts.1 == verdicts.2;
            assert!(all, "seed {seed}, damages {damages}: {verdicts:?} of {records:#?}");
            *(if verdicts.0 { &mut legal } else { &mut illegal }) += 1;
            damage(&mut rng, &mut records);
        }
        // A result that the file of a history leaves out fits any result. Stateright has no such results.
        let deletes = records.iter_mut().filter(|record| matches!(record.op, Op::Delete { .. }));
        deletes.for_each(|record| record.result = None);
        let verdicts = (ours(&records), todc(&records));
        assert_eq!(verdicts.0, verdicts.1, "seed {seed}, answers of deletes hidden: {records:#?}");
        *(if verdicts.0 { &mut hidden.0 } else { &mut hidden.1 }) += 1;
    }
    assert!(hidden.0 > SEEDS / 8 && hidden.1 > SEEDS / 8, "{hidden:?}");
    // Neither verdict is rare, so the agreement is significant.
    assert!(legal > SEEDS && illegal > SEEDS, "{legal} legal, {illegal} illegal");
}
