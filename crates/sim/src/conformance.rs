//! The costs of a protocol, compared with its specification. Messages, message delays and syncs are counted in a
//! world without faults where every message takes equally long. The results are compared with the protocol's own
//! [`Figures`].
//!
//! Every frame that leaves a replica for another one counts. Own copies do not travel. Messages that the host sends
//! for every protocol do not count. CHECKPOINT is the exception: its number is the same for all protocols and is
//! defined here.

mod busy;
mod idle;
mod metered;
mod report;
mod table;

pub use report::{FigureLine, FiguresReport, Measured, NotMeasured};
pub use table::markdown;

use crate::frame::Verdict;
use metered::{
    Elapsed, INTERVALS, MeteredWorld, SentCounts, UNIT_NS, each_and_all, good_case_lines, unstated_kinds,
};
use quorate_consensus::{Entry, Figures, LeaderChange};
use quorate_types::ReplicaId;
use std::cell::Cell;

/// Number of requests whose syncs are counted.
const REQUESTS: u64 = 10;

/// Returns the sizes at which a protocol is measured: the smallest that tolerate one, two and three faults.
#[must_use]
pub fn sizes(entry: &Entry) -> [usize; 3] {
    [1, 2, 3].map(|f| entry.smallest(f))
}

/// Measures a protocol of n replicas.
///
/// # Errors
/// Returns an error when the protocol states no figures, or does not run.
pub fn measure(entry: &Entry, n: usize) -> Result<FiguresReport, NotMeasured> {
    let protocol = entry.spec.name;
    let figures = entry.figures.ok_or(NotMeasured::NoFigures(protocol))?;
    // With rotating leaders, the next block carries a block's certificate, so blocks are counted while there are many.
    let mut lines = if entry.spec.rotates_leaders {
        busy::good_case(entry, n, &figures)?
    } else {
        good_case(entry, n, &figures)?
    };
    lines.push(syncs(entry, n, &figures)?);
    if let Some(idle) = figures.idle {
        lines.extend(idle::blocks(entry, n, &figures, idle)?);
    }
    if let Some(change) = &figures.leader_change {
        lines.extend(leader_change(entry, n, &figures, change)?);
    }
    Ok(FiguresReport { protocol, n, lines, remarks: figures.remarks })
}

/// Counts messages and delays of one request after the other.
fn good_case(entry: &Entry, n: usize, figures: &Figures) -> Result<Vec<FigureLine>, NotMeasured> {
    let mut metered = MeteredWorld::new(entry, n, UNIT_NS, 0)?;
    let proposal = figures.block.first().map(|count| count.kind);
    let interval = metered.world.settings().checkpoint_every;
    while !metered.world.height().0.is_multiple_of(interval) {
        let id = metered.ask();
        metered.run_until_answered(id)?;
    }
    metered.rest()?;
    *metered.sent_counts.borrow_mut() = SentCounts::default();
    let from = metered.world.height();
    let (mut commits, mut replies, mut requests) = (Elapsed::default(), Elapsed::default(), 0u64);
    while metered.world.height().since(from) < INTERVALS.saturating_mul(interval) {
        metered.sent_counts.borrow_mut().first.clear();
        let height = metered.world.highest();
        let id = metered.ask();
        metered.run_past(height)?;
        metered.run_until_level()?;
        commits.add(metered.sent_counts.borrow().since(proposal, metered.world.now()), metered.delta_ns);
        replies.add(metered.run_until_answered(id)?, metered.delta_ns);
        requests = requests.saturating_add(1);
    }
    metered.rest()?;
    let sent_counts = metered.sent_counts.borrow();
    let blocks = (&*sent_counts, metered.world.height().since(from));
    let (commits, replies) = ((commits, requests), (replies, requests));
    Ok(good_case_lines(figures, n, blocks, commits, replies, metered.delta_ns))
}

/// Measures syncs: only they take time, so the answer takes as long as consecutive syncs.
fn syncs(entry: &Entry, n: usize, figures: &Figures) -> Result<FigureLine, NotMeasured> {
    let mut metered = MeteredWorld::new(entry, n, 0, UNIT_NS)?;
    let mut total = Elapsed::default();
    for _ in 0..REQUESTS {
        let id = metered.ask();
        total.add(metered.run_until_answered(id)?, metered.delta_ns);
        metered.rest()?;
    }
    let measured = Measured { total: total.rest_ns, of: REQUESTS.saturating_mul(UNIT_NS) };
    let (text, of) = (figures.serial_syncs.text, figures.serial_syncs.of);
    Ok(FigureLine::new("syncs in a row from request to reply", text, of(metered::size(n)), measured))
}

/// Measures a change of leader: the proposals of the first leader are lost.
fn leader_change(
    entry: &Entry,
    n: usize,
    figures: &Figures,
    change: &LeaderChange,
) -> Result<Vec<FigureLine>, NotMeasured> {
    let mut metered = MeteredWorld::new(entry, n, UNIT_NS, 0)?;
    let leader = metered.world.status(ReplicaId(0)).map(|status| status.leader);
    let proposal = figures.block.first().map(|count| count.kind);
    let only = Cell::new(None);
    metered.watch(move |frame| {
        let is_its = Some(frame.from) == leader && Some(frame.content.kind) == proposal;
        // The same replica may lead a later view.
        if is_its && only.get().is_none() {
            only.set(Some(frame.content.view));
        }
        if is_its && only.get() == Some(frame.content.view) { Verdict::Drop } else { Verdict::Pass }
    });
    let height = metered.world.highest();
    let id = metered.ask();
    metered.run_past(height)?;
    let first = change.messages.first().map(|count| count.kind);
    let mut took = Elapsed::default();
    took.add(metered.sent_counts.borrow().since(first, metered.world.now()), metered.delta_ns);
    let sent_counts = metered.sent_counts.replace(SentCounts::default());
    metered.run_until_level()?;
    metered.run_until_answered(id)?;
    let mut lines = each_and_all(change.messages, n, &sent_counts, 1, "for a change of leader");
    let what = format!("from `{}` to execution", first.map(|kind| kind.to_string()).unwrap_or_default());
    lines.extend(took.lines(&what, 1, (change.commit_delays, change.commit_deltas), metered.delta_ns, 0));
    lines.extend(unstated_kinds(figures, change.messages, &sent_counts));
    Ok(lines)
}
