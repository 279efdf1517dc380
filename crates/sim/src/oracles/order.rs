//! The oracle for the order of execution: agreement, exactly once, right results, durability.

use super::finding::{Judged, Oracle};
use quorate_app::KvResult;
use quorate_history::{History, Model, OpId, result_text};
use quorate_types::{BlockId, Digest, Height, ReplicaId};
use std::collections::BTreeMap;

/// Facts about one operation.
#[derive(Clone, Default, Debug)]
struct OperationState {
    /// Place in the agreed order, counted from 1.
    place: Option<u64>,
    /// Result at that place.
    result: Option<KvResult>,
    /// Greatest place of an operation that was answered before this one was called.
    after: u64,
}

/// Decisions of one replica since it was opened.
#[derive(Default, Debug)]
struct ReplicaProgress {
    /// Last executed height; `None` while the replica does not run.
    executed: Option<Height>,
    /// Decided blocks that are not executed: the disk may not have them yet.
    decided: BTreeMap<Height, BlockId>,
}

/// The order of execution, as the first honest replica at each height shows it.
#[derive(Default, Debug)]
pub(crate) struct OrderOracle {
    /// Whether the votes that decide a block are on disks. Then a decided block is final at once. Otherwise only an
    /// executed one is: a replica that loses power before its disk has a decision may have been the only one that
    /// knew.
    votes_are_durable: bool,
    /// The final block of each height from 1 on, and the replica that decided it first.
    blocks: Vec<Option<(BlockId, ReplicaId)>>,
    progress: BTreeMap<ReplicaId, ReplicaProgress>,
    /// Applied operations of each height from 1 on.
    contents: Vec<Vec<OpId>>,
    ops: Vec<OperationState>,
    model: Model,
    applied: u64,
    /// Greatest place of any answered operation.
    answered: u64,
    /// The newest states, by height, with the replica that stated each first.
    states: BTreeMap<Height, (Digest, ReplicaId)>,
}

fn index(height: Height) -> Option<usize> {
    usize::try_from(height.0.checked_sub(1)?).ok()
}

/// Fails if two decisions at a height differ.
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

    /// Returns the greatest executed height.
    pub(crate) fn height(&self) -> Height {
        Height(u64::try_from(self.contents.len()).unwrap_or(u64::MAX))
    }

    /// Returns the number of applied operations.
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

    /// Records the call of an operation.
    pub(crate) fn called(&mut self, id: OpId) {
        let answered = self.answered;
        if let Some(known) = self.known(id) {
            known.after = answered;
        }
    }

    /// Judges a decision: the final block of the height is no other one, and no running replica of `judged` has
    /// decided another one.
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

    /// Makes everything that a replica has executed final, whatever becomes of the replica.
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

    /// Records that a replica was opened at an executed height. Its decisions above that are gone.
    pub(crate) fn opened(&mut self, by: ReplicaId, executed: Height) -> Judged {
        self.progress.entry(by).or_default().executed = Some(executed);
        self.settle(by)?;
        if let Some(progress) = self.progress.get_mut(&by) {
            progress.decided.clear();
        }
        Ok(())
    }

    /// Records that a replica stopped. Its decisions bind no other replica until its disk proves to have them.
    pub(crate) fn stopped(&mut self, by: ReplicaId) {
        if let Some(progress) = self.progress.get_mut(&by) {
            progress.executed = None;
        }
    }

    /// Judges a replica's statement of its state after a height.
    pub(crate) fn stated(&mut self, by: ReplicaId, height: Height, state: Digest) -> Judged {
        let (known, first) = *self.states.entry(height).or_insert((state, by));
        if known == state {
            return Ok(());
        }
        let what =
            format!("the state after height {height}: replica {first} states {known}, replica {by} {state}");
        Err((Oracle::Agreement, what))
    }

    /// Returns the agreed order so far.
    pub(crate) fn operations(&self) -> impl Iterator<Item = OpId> {
        self.contents.iter().flatten().copied()
    }

    /// Judges the operations that a replica has applied between two heights. A replica that was just opened may have
    /// begun at a snapshot whose height only the replica knows.
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
        // Operations that a log repeats were seen before, or were written and never reached the executor.
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

    /// Compares the operations of a height with those of an earlier replica.
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
        let what = format!("at height {height} replica {by} applied {ids:?}, others {known:?}");
        Err((Oracle::Agreement, what))
    }

    /// Accepts the operations of the first replica at a height as the order.
    fn first(&mut self, history: &History, height: Height, applied: &[(Height, OpId)]) -> Judged {
        for (_, id) in applied {
            let Some(record) = history.get(*id) else {
                return Err((
                    Oracle::Results,
                    format!("at height {height} operation {id:?} was never called"),
                ));
            };
            let place = self.applied.saturating_add(1);
            let result = self.model.apply(&record.op);
            let Some(known) = self.known(*id) else { continue };
            if let Some(earlier) = known.place {
                let what = format!(
                    "operation {id:?} is applied at height {height} as number {place}, and was applied as number \
                     {earlier} before"
                );
                return Err((Oracle::ExactlyOnce, what));
            }
            if known.after >= place {
                let what = format!(
                    "operation {id:?} was called after the answer to number {}, and is applied as number {place}",
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

    /// Judges an accepted answer of a client.
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

    /// Judges a report that an operation was not executed and never will be.
    pub(crate) fn not_executed(&mut self, id: OpId) -> Judged {
        match self.known(id) {
            Some(OperationState { place: Some(place), .. }) => Err((
                Oracle::Results,
                format!("operation {id:?} was reported as not executed, and is number {place} of the order"),
            )),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quorate_history::Op;
    use quorate_types::Time;

    const R0: ReplicaId = ReplicaId(0);
    const R1: ReplicaId = ReplicaId(1);

    fn incr() -> Op {
        Op::Increment { key: "n".to_owned(), by: 1 }
    }

    /// Calls three increments one after the other before any is answered.
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
    fn equal_replicas_agree() {
        let (mut order, history, ids) = begin();
        let applied = [(Height(1), ids[0]), (Height(3), ids[1])];
        assert_eq!(order.executed(&history, R0, Height(0), Height(3), &applied), Ok(()));
        assert_eq!(order.executed(&history, R1, Height(0), Height(2), &applied[..1]), Ok(()));
        assert_eq!(order.executed(&history, R1, Height(2), Height(3), &applied[1..]), Ok(()));
        assert_eq!(order.answered(ids[1], &KvResult::Number(2)), Ok(()));
        // After opening, the replica applies operations of its log again.
        assert_eq!(order.executed(&history, R1, Height(3), Height(3), &applied[1..]), Ok(()));
    }

    #[test]
    fn different_operations_at_a_height_are_found() {
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

    /// Opens two replicas that have executed nothing.
    fn both_opened() -> (OrderOracle, History) {
        let mut order = OrderOracle::default();
        BOTH.iter().for_each(|id| order.opened(*id, Height(0)).unwrap());
        (order, History::default())
    }

    #[test]
    fn different_blocks_at_a_height_are_found() {
        let (mut order, _) = both_opened();
        assert_eq!(order.decided(R0, Height(2), block(1), &BOTH), Ok(()));
        assert_eq!(order.decided(R1, Height(2), block(1), &BOTH), Ok(()));
        assert_eq!(oracle(order.decided(R1, Height(2), block(2), &BOTH)), Some(Oracle::Agreement));
        let (mut order, _) = both_opened();
        assert_eq!(order.decided(R0, Height(2), block(1), &BOTH), Ok(()));
        assert_eq!(oracle(order.decided(R1, Height(2), block(2), &BOTH)), Some(Oracle::Agreement));
        assert_eq!(order.decided(R1, Height(2), block(2), &[R1]), Ok(()), "nobody else is judged");
    }

    /// A decision binds running replicas. An executed block, or one that a crash has left, binds all.
    #[test]
    fn decision_lost_in_a_power_cut_binds_no_replica() {
        for (executed, kept) in [(0, 0), (0, 1), (1, 1)] {
            let (mut order, history) = both_opened();
            assert_eq!(order.decided(R0, Height(1), block(1), &BOTH), Ok(()));
            assert_eq!(order.executed(&history, R0, Height(0), Height(executed), &[]), Ok(()));
            order.stopped(R0);
            let binds = executed > 0;
            let verdict = order.decided(R1, Height(1), block(2), &BOTH);
            assert_eq!(oracle(verdict), binds.then_some(Oracle::Agreement), "while it is down");
            if !binds {
                assert_eq!(order.executed(&history, R1, Height(0), Height(1), &[]), Ok(()));
                let verdict = order.opened(R0, Height(kept));
                assert_eq!(oracle(verdict), (kept > 0).then_some(Oracle::Agreement), "{kept}");
            }
        }
        // No decision remains that the disk did not have, and none can be taken for executed later.
        let (mut order, history) = both_opened();
        assert_eq!(order.decided(R0, Height(1), block(1), &BOTH), Ok(()));
        order.stopped(R0);
        assert_eq!(order.opened(R0, Height(0)), Ok(()));
        assert_eq!(order.decided(R0, Height(1), block(2), &BOTH), Ok(()));
        assert_eq!(order.executed(&history, R0, Height(0), Height(1), &[]), Ok(()));
        assert_eq!(oracle(order.decided(R1, Height(1), block(1), &BOTH)), Some(Oracle::Agreement));
    }

    #[test]
    fn decision_by_durable_votes_is_final_at_once() {
        let mut order = OrderOracle::new(true);
        BOTH.iter().for_each(|id| order.opened(*id, Height(0)).unwrap());
        assert_eq!(order.decided(R0, Height(2), block(2), &BOTH), Ok(()));
        order.stopped(R0);
        assert_eq!(order.decided(R1, Height(2), block(2), &BOTH), Ok(()));
        assert_eq!(oracle(order.decided(R1, Height(2), block(1), &BOTH)), Some(Oracle::Agreement));
        assert_eq!(order.opened(R0, Height(0)), Ok(()));
        assert_eq!(oracle(order.decided(R0, Height(2), block(1), &[R0])), Some(Oracle::Agreement));
    }

    #[test]
    fn different_states_after_a_height_are_found() {
        let mut order = OrderOracle::default();
        assert_eq!(order.stated(R0, Height(8), Digest([1; 32])), Ok(()));
        assert_eq!(order.stated(R1, Height(8), Digest([1; 32])), Ok(()));
        assert_eq!(order.stated(R1, Height(16), Digest([2; 32])), Ok(()));
        assert_eq!(oracle(order.stated(R0, Height(16), Digest([3; 32]))), Some(Oracle::Agreement));
    }

    #[test]
    fn operation_applied_twice_is_found() {
        let (mut order, history, ids) = begin();
        let applied = [(Height(1), ids[0]), (Height(2), ids[0])];
        let verdict = order.executed(&history, R0, Height(0), Height(2), &applied);
        assert_eq!(oracle(verdict), Some(Oracle::ExactlyOnce));
    }

    #[test]
    fn wrong_and_unfounded_answers_are_found() {
        let (mut order, history, ids) = begin();
        assert_eq!(oracle(order.answered(ids[0], &KvResult::Number(1))), Some(Oracle::Durability));
        assert_eq!(order.executed(&history, R0, Height(0), Height(1), &[(Height(1), ids[0])]), Ok(()));
        assert_eq!(oracle(order.answered(ids[0], &KvResult::Number(2))), Some(Oracle::Results));
        assert_eq!(oracle(order.not_executed(ids[0])), Some(Oracle::Results));
        assert_eq!(order.not_executed(ids[1]), Ok(()));
    }

    #[test]
    fn order_respects_real_time() {
        let (mut order, mut history, ids) = begin();
        let applied = [(Height(1), ids[0])];
        assert_eq!(order.executed(&history, R0, Height(0), Height(1), &applied), Ok(()));
        assert_eq!(order.answered(ids[0], &KvResult::Number(1)), Ok(()));
        let later = history.call(Time(9), 0, incr());
        order.called(later);
        // The operation is given a place before an operation that was answered before its call.
        order.applied = 0;
        let verdict = order.executed(&history, R0, Height(1), Height(2), &[(Height(2), later)]);
        assert_eq!(oracle(verdict), Some(Oracle::Results));
    }
}
