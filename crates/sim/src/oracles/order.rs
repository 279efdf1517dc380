//! Agreement, exactly once, right results, durability: everything about the order of what was executed.

use super::finding::{Judged, Oracle};
use crate::history::{History, OpId};
use crate::model::{Model, result_text};
use quorate_app::KvResult;
use quorate_types::{BlockId, Digest, Height, ReplicaId};
use std::collections::BTreeMap;

/// What is known of one operation.
#[derive(Clone, Default, Debug)]
struct OperationState {
    /// Its place in the agreed order, counted from 1.
    place: Option<u64>,
    /// What it results in there.
    result: Option<KvResult>,
    /// Operations at or before this place had been answered when it was called.
    after: u64,
}

/// What one replica has decided since it was opened.
#[derive(Default, Debug)]
struct ReplicaProgress {
    /// Up to where it has executed; nothing while it does not run.
    executed: Option<Height>,
    /// What it has decided and not executed: its disk may not have it yet.
    decided: BTreeMap<Height, BlockId>,
}

/// The order in which the honest replicas execute, as the first of them to reach each height shows it.
#[derive(Default, Debug)]
pub(crate) struct OrderOracle {
    /// The votes that decide a block are on disks, so what was decided stands at once. Else what was executed does: whoever is
    /// cut off from its power before its disk has a decision may have been the only one who knew.
    votes_are_durable: bool,
    /// What stands at each height from 1 on, and who decided it first.
    blocks: Vec<Option<(BlockId, ReplicaId)>>,
    progress: BTreeMap<ReplicaId, ReplicaProgress>,
    /// What was applied at each height from 1 on.
    contents: Vec<Vec<OpId>>,
    ops: Vec<OperationState>,
    model: Model,
    applied: u64,
    /// The greatest place of any operation that was answered.
    answered: u64,
    /// What the first replica to say so has stated of its state after a height; the newest.
    states: BTreeMap<Height, (Digest, ReplicaId)>,
}

fn index(height: Height) -> Option<usize> {
    usize::try_from(height.0.checked_sub(1)?).ok()
}

/// Whether somebody has decided something else than another at a height.
fn differs(
    height: Height,
    (known, first): (BlockId, ReplicaId),
    (block, by): (BlockId, ReplicaId),
) -> Judged {
    if known == block {
        return Ok(());
    }
    let what = format!("replica {first} decides {known:?} at height {height}, replica {by} {block:?}");
    Err((Oracle::Agreement, what))
}

impl OrderOracle {
    pub(crate) fn new(votes_are_durable: bool) -> Self {
        Self { votes_are_durable, ..Self::default() }
    }

    /// The height up to which anybody has executed.
    pub(crate) fn height(&self) -> Height {
        Height(u64::try_from(self.contents.len()).unwrap_or(u64::MAX))
    }

    /// How many operations were applied.
    pub(crate) fn applied(&self) -> u64 {
        self.applied
    }

    fn known(&mut self, id: OpId) -> Option<&mut OperationState> {
        let at = usize::try_from(id.0).ok()?;
        if at >= self.ops.len() {
            self.ops.resize_with(at.saturating_add(1), OperationState::default);
        }
        self.ops.get_mut(at)
    }

    /// A client calls an operation.
    pub(crate) fn called(&mut self, id: OpId) {
        let answered = self.answered;
        if let Some(known) = self.known(id) {
            known.after = answered;
        }
    }

    /// A replica has decided a block: nothing else stands there, and none of those that are `judged` and run has decided
    /// anything else.
    pub(crate) fn decided(
        &mut self,
        by: ReplicaId,
        height: Height,
        block: BlockId,
        judged: &[ReplicaId],
    ) -> Judged {
        let standing = index(height).and_then(|at| *self.blocks.get(at)?);
        let progress = judged.iter().filter_map(|id| Some((*id, self.progress.get(id)?)));
        let mut decided = progress
            .filter(|(_, progress)| progress.executed.is_some())
            .filter_map(|(id, progress)| Some((*progress.decided.get(&height)?, id)));
        let other = |(known, first)| differs(height, (known, first), (block, by));
        standing.map_or(Ok(()), other)?;
        if self.votes_are_durable {
            return self.stands(height, (block, by));
        }
        decided.try_for_each(other)?;
        self.progress.entry(by).or_default().decided.insert(height, block);
        self.settle(by)
    }

    /// What a replica has executed stands, whatever becomes of the replica.
    fn settle(&mut self, by: ReplicaId) -> Judged {
        let Some(progress) = self.progress.get_mut(&by) else { return Ok(()) };
        let Some(executed) = progress.executed else { return Ok(()) };
        let above = progress.decided.split_off(&executed.next());
        for (height, block) in std::mem::replace(&mut progress.decided, above) {
            self.stands(height, (block, by))?;
        }
        Ok(())
    }

    fn stands(&mut self, height: Height, (block, by): (BlockId, ReplicaId)) -> Judged {
        let Some(at) = index(height) else { return Ok(()) };
        if at >= self.blocks.len() {
            self.blocks.resize(at.saturating_add(1), None);
        }
        match self.blocks.get_mut(at) {
            Some(Some(known)) => differs(height, *known, (block, by))?,
            Some(slot) => *slot = Some((block, by)),
            None => {}
        }
        Ok(())
    }

    /// A replica is opened, and what it executes of its disk was there. What it had decided above that is gone.
    pub(crate) fn opened(&mut self, by: ReplicaId, executed: Height) -> Judged {
        self.progress.entry(by).or_default().executed = Some(executed);
        self.settle(by)?;
        if let Some(progress) = self.progress.get_mut(&by) {
            progress.decided.clear();
        }
        Ok(())
    }

    /// A replica does not run any more. What it had decided binds nobody until it is seen that its disk has it.
    pub(crate) fn falls(&mut self, by: ReplicaId) {
        if let Some(progress) = self.progress.get_mut(&by) {
            progress.executed = None;
        }
    }

    /// A replica states what its state is after a height.
    pub(crate) fn stated(&mut self, by: ReplicaId, height: Height, state: Digest) -> Judged {
        let (known, first) = *self.states.entry(height).or_insert((state, by));
        if known == state {
            return Ok(());
        }
        let what =
            format!("the state after height {height}: replica {first} states {known}, replica {by} {state}");
        Err((Oracle::Agreement, what))
    }

    /// The agreed order so far.
    pub(crate) fn operations(&self) -> impl Iterator<Item = OpId> {
        self.contents.iter().flatten().copied()
    }

    /// A replica has gone from one height to another and applied these operations on its way. When it was just
    /// opened, it may have begun at a snapshot that nobody outside knows the height of.
    pub(crate) fn executed(
        &mut self,
        history: &History,
        by: ReplicaId,
        from: Height,
        to: Height,
        applied: &[(Height, OpId)],
    ) -> Judged {
        let groups = applied.chunk_by(|(a, _), (b, _)| a == b);
        let mut groups = groups.filter_map(|group| Some((group.first()?.0, group))).peekable();
        // What a log gives again was seen before, or was written and never reached the executor.
        while let Some((height, group)) = groups.next_if(|(height, _)| *height <= from.min(self.height())) {
            self.same(by, height, group)?;
        }
        let mut height = from;
        while height < to {
            height = height.next();
            let group = groups.next_if(|(of, _)| *of == height).map(|(_, group)| group).unwrap_or_default();
            if height <= self.height() {
                self.same(by, height, group)?;
            } else {
                self.first(history, height, group)?;
            }
        }
        match groups.next() {
            Some((height, _)) => {
                Err((Oracle::Agreement, format!("replica {by} applied at height {height} out of order")))
            }
            None => {
                self.progress.entry(by).or_default().executed = Some(to);
                self.settle(by)
            }
        }
    }

    /// Somebody was there before: the same must have happened.
    fn same(&self, by: ReplicaId, height: Height, applied: &[(Height, OpId)]) -> Judged {
        let mut seen = std::collections::BTreeSet::new();
        if let Some((_, twice)) = applied.iter().find(|(_, id)| !seen.insert(*id)) {
            let what = format!("operation {twice:?} is applied twice at height {height} by replica {by}");
            return Err((Oracle::ExactlyOnce, what));
        }
        let known = index(height).and_then(|at| self.contents.get(at));
        if known.is_some_and(|known| known.iter().eq(applied.iter().map(|(_, id)| id))) {
            return Ok(());
        }
        let ids: Vec<OpId> = applied.iter().map(|(_, id)| *id).collect();
        let what = format!("height {height}: replica {by} applied {ids:?}, others {known:?}");
        Err((Oracle::Agreement, what))
    }

    /// Nobody was there before: this is the order from now on.
    fn first(&mut self, history: &History, height: Height, applied: &[(Height, OpId)]) -> Judged {
        for (_, id) in applied {
            let Some(record) = history.get(*id) else {
                return Err((Oracle::Results, format!("height {height}: operation {id:?} was never called")));
            };
            let place = self.applied.saturating_add(1);
            let result = self.model.apply(&record.op);
            let Some(known) = self.known(*id) else { continue };
            if let Some(earlier) = known.place {
                let what = format!(
                    "operation {id:?} is applied at height {height} as number {place}, and was as {earlier}"
                );
                return Err((Oracle::ExactlyOnce, what));
            }
            if known.after >= place {
                let what = format!(
                    "operation {id:?} was called after number {} was answered and comes as {place}",
                    known.after
                );
                return Err((Oracle::Results, what));
            }
            known.place = Some(place);
            known.result = Some(result);
            self.applied = place;
        }
        self.contents.push(applied.iter().map(|(_, id)| *id).collect());
        Ok(())
    }

    /// A client believes an answer.
    pub(crate) fn answered(&mut self, id: OpId, result: &KvResult) -> Judged {
        let Some(known) = self.known(id) else { return Ok(()) };
        let (Some(place), Some(expected)) = (known.place, &known.result) else {
            let what = format!(
                "operation {id:?} was answered with {}, and no honest replica has applied it",
                result_text(result)
            );
            return Err((Oracle::Durability, what));
        };
        if expected != result {
            let (told, right) = (result_text(result), result_text(expected));
            let what = format!("operation {id:?} was answered with {told} instead of {right}");
            return Err((Oracle::Results, what));
        }
        self.answered = self.answered.max(place);
        Ok(())
    }

    /// A client was told that an operation was not executed and never will be.
    pub(crate) fn not_executed(&mut self, id: OpId) -> Judged {
        match self.known(id) {
            Some(OperationState { place: Some(place), .. }) => Err((
                Oracle::Results,
                format!("operation {id:?} is said not to be executed, and is number {place}"),
            )),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Op;
    use quorate_types::Time;

    const R0: ReplicaId = ReplicaId(0);
    const R1: ReplicaId = ReplicaId(1);

    fn incr() -> Op {
        Op::Increment { key: "n".to_owned(), by: 1 }
    }

    /// Three increments, called one after the other before any is answered.
    fn begin() -> (OrderOracle, History, Vec<OpId>) {
        let (mut order, mut history) = (OrderOracle::default(), History::default());
        let ids: Vec<OpId> = (0..3).map(|_| history.call(Time(0), 0, incr())).collect();
        ids.iter().for_each(|id| order.called(*id));
        (order, history, ids)
    }

    fn oracle(verdict: Judged) -> Option<Oracle> {
        verdict.err().map(|(oracle, _)| oracle)
    }

    #[test]
    fn replicas_that_do_the_same_agree() {
        let (mut order, history, ids) = begin();
        let applied = [(Height(1), ids[0]), (Height(3), ids[1])];
        assert_eq!(order.executed(&history, R0, Height(0), Height(3), &applied), Ok(()));
        assert_eq!(order.executed(&history, R1, Height(0), Height(2), &applied[..1]), Ok(()));
        assert_eq!(order.executed(&history, R1, Height(2), Height(3), &applied[1..]), Ok(()));
        assert_eq!(order.answered(ids[1], &KvResult::Number(2)), Ok(()));
        // Opened again: from its log it applies again what it had applied.
        assert_eq!(order.executed(&history, R1, Height(3), Height(3), &applied[1..]), Ok(()));
    }

    #[test]
    fn other_operations_at_a_height_are_noticed() {
        for (applied, to) in [(vec![1], 1), (vec![], 1), (vec![0, 1], 1)] {
            let (mut order, history, ids) = begin();
            assert_eq!(order.executed(&history, R0, Height(0), Height(1), &[(Height(1), ids[0])]), Ok(()));
            let applied: Vec<_> = applied.into_iter().map(|op: usize| (Height(1), ids[op])).collect();
            let verdict = order.executed(&history, R1, Height(0), Height(to), &applied);
            assert_eq!(oracle(verdict), Some(Oracle::Agreement), "{applied:?}");
        }
    }

    const BOTH: [ReplicaId; 2] = [R0, R1];

    fn block(n: u64) -> BlockId {
        BlockId::null(Height(n))
    }

    /// Replicas that run, and have executed nothing.
    fn both_opened() -> (OrderOracle, History) {
        let mut order = OrderOracle::default();
        BOTH.iter().for_each(|id| order.opened(*id, Height(0)).unwrap());
        (order, History::default())
    }

    #[test]
    fn other_blocks_at_a_height_are_noticed() {
        let (mut order, _) = both_opened();
        assert_eq!(order.decided(R0, Height(2), block(1), &BOTH), Ok(()));
        assert_eq!(order.decided(R1, Height(2), block(1), &BOTH), Ok(()));
        assert_eq!(oracle(order.decided(R1, Height(2), block(2), &BOTH)), Some(Oracle::Agreement));
        let (mut order, _) = both_opened();
        assert_eq!(order.decided(R0, Height(2), block(1), &BOTH), Ok(()));
        assert_eq!(oracle(order.decided(R1, Height(2), block(2), &BOTH)), Some(Oracle::Agreement));
        assert_eq!(order.decided(R1, Height(2), block(2), &[R1]), Ok(()), "nobody else is judged");
    }

    /// What was decided binds who runs; what was executed, or is there after a crash, everybody.
    #[test]
    fn what_a_power_cut_takes_back_binds_nobody() {
        for (executed, kept) in [(0, 0), (0, 1), (1, 1)] {
            let (mut order, history) = both_opened();
            assert_eq!(order.decided(R0, Height(1), block(1), &BOTH), Ok(()));
            assert_eq!(order.executed(&history, R0, Height(0), Height(executed), &[]), Ok(()));
            order.falls(R0);
            let binds = executed > 0;
            let verdict = order.decided(R1, Height(1), block(2), &BOTH);
            assert_eq!(oracle(verdict), binds.then_some(Oracle::Agreement), "while it is down");
            if !binds {
                assert_eq!(order.executed(&history, R1, Height(0), Height(1), &[]), Ok(()));
                let verdict = order.opened(R0, Height(kept));
                assert_eq!(oracle(verdict), (kept > 0).then_some(Oracle::Agreement), "{kept}");
            }
        }
        // Of what its disk did not have nothing is left that could be taken for executed later.
        let (mut order, history) = both_opened();
        assert_eq!(order.decided(R0, Height(1), block(1), &BOTH), Ok(()));
        order.falls(R0);
        assert_eq!(order.opened(R0, Height(0)), Ok(()));
        assert_eq!(order.decided(R0, Height(1), block(2), &BOTH), Ok(()));
        assert_eq!(order.executed(&history, R0, Height(0), Height(1), &[]), Ok(()));
        assert_eq!(oracle(order.decided(R1, Height(1), block(1), &BOTH)), Some(Oracle::Agreement));
    }

    #[test]
    fn what_durable_votes_decide_stands_at_once() {
        let mut order = OrderOracle::new(true);
        BOTH.iter().for_each(|id| order.opened(*id, Height(0)).unwrap());
        assert_eq!(order.decided(R0, Height(2), block(2), &BOTH), Ok(()));
        order.falls(R0);
        assert_eq!(order.decided(R1, Height(2), block(2), &BOTH), Ok(()));
        assert_eq!(oracle(order.decided(R1, Height(2), block(1), &BOTH)), Some(Oracle::Agreement));
        assert_eq!(order.opened(R0, Height(0)), Ok(()));
        assert_eq!(oracle(order.decided(R0, Height(2), block(1), &[R0])), Some(Oracle::Agreement));
    }

    #[test]
    fn other_states_after_a_height_are_noticed() {
        let mut order = OrderOracle::default();
        assert_eq!(order.stated(R0, Height(8), Digest([1; 32])), Ok(()));
        assert_eq!(order.stated(R1, Height(8), Digest([1; 32])), Ok(()));
        assert_eq!(order.stated(R1, Height(16), Digest([2; 32])), Ok(()));
        assert_eq!(oracle(order.stated(R0, Height(16), Digest([3; 32]))), Some(Oracle::Agreement));
    }

    #[test]
    fn what_is_applied_twice_is_noticed() {
        let (mut order, history, ids) = begin();
        let applied = [(Height(1), ids[0]), (Height(2), ids[0])];
        let verdict = order.executed(&history, R0, Height(0), Height(2), &applied);
        assert_eq!(oracle(verdict), Some(Oracle::ExactlyOnce));
    }

    #[test]
    fn wrong_and_unfounded_answers_are_noticed() {
        let (mut order, history, ids) = begin();
        assert_eq!(oracle(order.answered(ids[0], &KvResult::Number(1))), Some(Oracle::Durability));
        assert_eq!(order.executed(&history, R0, Height(0), Height(1), &[(Height(1), ids[0])]), Ok(()));
        assert_eq!(oracle(order.answered(ids[0], &KvResult::Number(2))), Some(Oracle::Results));
        assert_eq!(oracle(order.not_executed(ids[0])), Some(Oracle::Results));
        assert_eq!(order.not_executed(ids[1]), Ok(()));
    }

    #[test]
    fn real_time_is_respected() {
        let (mut order, mut history, ids) = begin();
        let applied = [(Height(1), ids[0])];
        assert_eq!(order.executed(&history, R0, Height(0), Height(1), &applied), Ok(()));
        assert_eq!(order.answered(ids[0], &KvResult::Number(1)), Ok(()));
        let later = history.call(Time(9), 0, incr());
        order.called(later);
        // As if it had been put before what was answered before it was called.
        order.applied = 0;
        let verdict = order.executed(&history, R0, Height(1), Height(2), &[(Height(2), later)]);
        assert_eq!(oracle(verdict), Some(Oracle::Results));
    }
}
