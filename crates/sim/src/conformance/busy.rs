//! The good case of a protocol in which one block is carried on by the next: counted while there is always something to
//! decide, block by block.

use super::{
    Bench, INTERVALS, Line, Measured, NotMeasured, Span, UNIT_NS, each_and_all, size, strangers, whole,
};
use crate::client::Workload;
use crate::frame::{Frame, Verdict};
use crate::{ms, secs};
use quorate_consensus::{Entry, Figures};
use quorate_types::{Height, Kind, Time, View};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

/// Blocks at the beginning that are not counted.
const BEFORE: u64 = 8;
/// Requests that are on their way all the time.
const OUTSTANDING: usize = 6;

/// What was sent about each block.
#[derive(Default)]
struct Blocks {
    /// The height that was proposed in each view.
    heights: BTreeMap<View, Height>,
    /// When each height was proposed.
    proposed: BTreeMap<Height, Time>,
    /// Messages of each kind in each view.
    sent: BTreeMap<(Kind, View), u64>,
    /// Words about the state after each height.
    checkpoints: BTreeMap<Height, u64>,
}

impl Blocks {
    fn note(&mut self, now: Time, frame: &Frame, proposal: Option<Kind>) {
        let content = &frame.content;
        if Some(content.kind) == proposal {
            self.heights.insert(content.view, content.height);
            self.proposed.entry(content.height).or_insert(now);
        }
        if content.kind == super::CHECKPOINT {
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

/// Messages for each block, delays from its proposal to its execution at every replica; then those of one request that
/// comes while all is quiet.
pub(super) fn good_case(entry: &Entry, n: usize, figures: &Figures) -> Result<Vec<Line>, NotMeasured> {
    let mut bench = Bench::new(entry, n, UNIT_NS, 0)?;
    let proposal = figures.block.first().map(|count| count.kind);
    let id = bench.ask();
    let mut reply = Span::default();
    reply.add(bench.run_until_answered(id)?, bench.delta_ns);
    bench.rest()?;
    let (blocks, tally) = (Rc::new(RefCell::new(Blocks::default())), Rc::clone(&bench.tally));
    let seen = Rc::clone(&blocks);
    bench.world.hook(move |now, frame| {
        tally.borrow_mut().note(now, frame);
        seen.borrow_mut().note(now, frame, proposal);
        Verdict::Pass
    });
    bench.world.load_all(Workload {
        operations: u32::MAX,
        pause_ns: UNIT_NS / 2,
        together_max: 1,
        outstanding_max: OUTSTANDING,
        keys: 1,
    });
    let interval = bench.world.settings().checkpoint_every;
    let from = Height(bench.world.height().plus(BEFORE).0.next_multiple_of(interval));
    bench.run_until_executed(from)?;
    let to = from.plus(INTERVALS.saturating_mul(interval));
    let (mut at, mut commits) = (from, Span::default());
    while at < to {
        at = at.next();
        bench.run_until_executed(at)?;
        let proposed = blocks.borrow().proposed.get(&at).copied().unwrap_or_default();
        commits.add(whole(bench.world.now().since(proposed)), bench.delta_ns);
    }
    // Its last votes are on their way.
    bench.world.run_for(ms(10))?;
    let blocks_sent = blocks.borrow();
    let checkpoints = blocks_sent.checkpoints.range(from.next()..=to);
    let checkpoints = checkpoints.fold(0, |sum: u64, (_, count)| sum.saturating_add(*count));
    let mut tally = bench.tally.replace(super::Tally::default());
    for count in figures.block {
        tally.sent.insert(count.kind, blocks_sent.sent(count.kind, from, to));
    }
    let mut lines = each_and_all(figures.block, n, &tally, to.since(from), "for a block");
    let what = format!("`{}` for a checkpoint", super::CHECKPOINT);
    let measured = Measured { total: checkpoints, of: INTERVALS };
    lines.push(Line::new(what, super::CHECKPOINTS.text, (super::CHECKPOINTS.of)(size(n)), measured));
    let (deltas, delta) = (figures.commit_deltas, bench.delta_ns);
    let commit = (figures.commit_delays, deltas);
    lines.extend(commits.lines("from proposal to execution", to.since(from), commit, delta));
    lines.extend(reply.lines("from request to reply", 1, (figures.reply_delays, deltas), delta));
    lines.extend(strangers(figures, &[], &tally));
    Ok(lines)
}

impl Bench {
    /// Until every replica has executed a height.
    fn run_until_executed(&mut self, height: Height) -> Result<(), NotMeasured> {
        let lacks = |world: &crate::World| world.replicas().any(|id| world.executed(id) < height);
        Ok(self.world.run_while("every replica has executed a height", secs(60), lacks)?)
    }
}
