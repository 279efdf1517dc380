//! What a cluster costs while nobody wants anything.

use super::{Bench, Line, Measured, NotMeasured, UNIT_NS, each_and_all, size};
use quorate_consensus::{Entry, Figures, Idle};

/// So many times the blocks that the figure is about.
const TIMES: u64 = 2;

/// Messages and syncs of idle blocks.
pub(super) fn blocks(
    entry: &Entry,
    n: usize,
    figures: &Figures,
    idle: Idle,
) -> Result<Vec<Line>, NotMeasured> {
    let mut bench = Bench::new(entry, n, UNIT_NS, 0)?;
    let syncs = |bench: &Bench| bench.world.replicas().map(|id| bench.world.syncs(id)).sum::<u64>();
    // From one moment at which everybody has executed something to another.
    let next = |bench: &mut Bench| {
        let height = bench.world.height();
        bench.run_past(height)?;
        bench.run_until_level()
    };
    next(&mut bench)?;
    *bench.tally.borrow_mut() = super::Tally::default();
    let (from, before) = (bench.world.height(), syncs(&bench));
    while bench.world.height().since(from) < idle.blocks.saturating_mul(TIMES) {
        next(&mut bench)?;
    }
    let of = bench.world.height().since(from);
    let mut messages = each_and_all(figures.block, n, &bench.tally.borrow(), of, "for a block while idle");
    let total = syncs(&bench).saturating_sub(before);
    let what = match idle.blocks {
        1 => "syncs of all replicas for a block while idle".to_owned(),
        blocks => format!("syncs of all replicas for {blocks} blocks while idle"),
    };
    let measured = Measured { total, of: of.checked_div(idle.blocks).unwrap_or(0) };
    let line = Line::new(what, idle.syncs.text, (idle.syncs.of)(size(n)), measured);
    // Of each kind there are as many as for any block; their sum will do.
    Ok(messages.pop().into_iter().chain([line]).collect())
}
