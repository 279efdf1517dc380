//! The good case of a protocol in which each block carries the certificate of the one before it. Blocks are counted
//! one by one while there is always something to decide.

use super::metered::{
    CHECKPOINT, Elapsed, INTERVALS, MeteredWorld, SentCounts, UNIT_NS, good_case_lines, whole,
};
use super::report::{FigureLine, NotMeasured};
use crate::client::Workload;
use crate::frame::{Frame, Verdict};
use crate::{ms, secs};
use quorate_consensus::{Entry, Figures};
use quorate_types::{Height, Kind, Time, View};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

/// Number of first blocks that are not counted.
const BEFORE: u64 = 8;
/// Number of requests of each client in flight at all times.
const OUTSTANDING: usize = 6;

/// Number of clients: enough for a new request in each block, however many blocks a commit takes.
const CLIENTS: usize = 16;

/// Messages about each block.
#[derive(Default)]
struct BlockCounts {
    /// Proposed height by view.
    heights: BTreeMap<View, Height>,
    /// Time of proposal by height.
    proposed: BTreeMap<Height, Time>,
    /// Number of messages by kind and view.
    sent: BTreeMap<(Kind, View), u64>,
    /// Number of CHECKPOINT messages by height.
    checkpoints: BTreeMap<Height, u64>,
}

impl BlockCounts {
    fn note(&mut self, now: Time, frame: &Frame, proposal: Option<Kind>) {
        let content = &frame.content;
        if Some(content.kind) == proposal {
            self.heights.insert(content.view, content.height);
            self.proposed.entry(content.height).or_insert(now);
        }
        if content.kind == CHECKPOINT {
            let sent = self.checkpoints.entry(content.height).or_default();
            *sent = sent.saturating_add(1);
        }
        let sent = self.sent.entry((content.kind, content.view)).or_default();
        *sent = sent.saturating_add(1);
    }

    fn sent(&self, kind: Kind, from: Height, to: Height) -> u64 {
        let of = |view| self.heights.get(view).is_some_and(|height| *height > from && *height <= to);
        let counts = self.sent.iter().filter(|((of_kind, view), _)| *of_kind == kind && of(view));
        counts.fold(0, |sum: u64, (_, count)| sum.saturating_add(*count))
    }
}

/// Counts messages for each block, and delays from its proposal to its execution at every replica. Then measures one
/// request that arrives while the cluster is idle.
pub(super) fn good_case(entry: &Entry, n: usize, figures: &Figures) -> Result<Vec<FigureLine>, NotMeasured> {
    let mut metered = MeteredWorld::with_clients(entry, n, UNIT_NS, 0, CLIENTS)?;
    let proposal = figures.block.first().map(|count| count.kind);
    let id = metered.ask();
    let mut reply = Elapsed::default();
    reply.add(metered.run_until_answered(id)?, metered.delta_ns);
    metered.rest()?;
    let (blocks, sent_counts) =
        (Rc::new(RefCell::new(BlockCounts::default())), Rc::clone(&metered.sent_counts));
    let seen = Rc::clone(&blocks);
    metered.world.hook(move |now, frame| {
        sent_counts.borrow_mut().note(now, frame);
        seen.borrow_mut().note(now, frame, proposal);
        Verdict::Pass
    });
    metered.world.load_all(Workload {
        operations: u32::MAX,
        pause_ns: UNIT_NS / 2,
        together_max: 1,
        outstanding_max: OUTSTANDING,
        keys: 1,
    });
    let interval = metered.world.settings().checkpoint_every;
    let from = Height(metered.world.height().plus(BEFORE).0.next_multiple_of(interval));
    metered.run_until_executed(from)?;
    let to = from.plus(INTERVALS.saturating_mul(interval));
    let (mut at, mut commits) = (from, Elapsed::default());
    while at < to {
        at = at.next();
        metered.run_until_executed(at)?;
        let proposed = blocks.borrow().proposed.get(&at).copied().unwrap_or_default();
        commits.add(whole(metered.world.now().since(proposed)), metered.delta_ns);
    }
    // The block's last votes are in flight.
    metered.world.run_for(ms(10))?;
    let blocks_sent = blocks.borrow();
    let checkpoints = blocks_sent.checkpoints.range(from.next()..=to);
    let checkpoints = checkpoints.fold(0, |sum: u64, (_, count)| sum.saturating_add(*count));
    let mut sent_counts = metered.sent_counts.replace(SentCounts::default());
    sent_counts.sent.insert(CHECKPOINT, checkpoints);
    for count in figures.block {
        sent_counts.sent.insert(count.kind, blocks_sent.sent(count.kind, from, to));
    }
    let count = to.since(from);
    let (commits, replies) = ((commits, count), (reply, 1));
    Ok(good_case_lines(figures, n, (&sent_counts, count), commits, replies, metered.delta_ns))
}

impl MeteredWorld {
    /// Runs until every replica has executed a height.
    fn run_until_executed(&mut self, height: Height) -> Result<(), NotMeasured> {
        let lacks = |world: &crate::World| world.replicas().any(|id| world.executed(id) < height);
        Ok(self.world.run_while("every replica has executed a height", secs(60), lacks)?)
    }
}
