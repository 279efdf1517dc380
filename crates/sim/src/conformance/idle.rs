//! What a cluster costs while nobody wants anything.

use super::{Bench, LONG_NS, Line, Measured, NotMeasured, UNIT_NS, each_and_all, size};
use crate::World;
use quorate_consensus::{Entry, Figures, Idle};

/// Messages and syncs of idle blocks.
pub(super) fn blocks(
    entry: &Entry,
    n: usize,
    figures: &Figures,
    idle: Idle,
) -> Result<Vec<Line>, NotMeasured> {
    let mut bench = Bench::new(entry, n, UNIT_NS, 0)?;
    let syncs = |bench: &Bench| bench.world.replicas().map(|id| bench.world.syncs(id)).sum::<u64>();
    // From one moment at which everybody has decided something to another: it may be executed with the next one.
    let next = |bench: &mut Bench| {
        let height = bench.world.highest();
        let apart = |world: &World| world.honest().any(|id| world.decided(id) <= height);
        bench.world.run_while("every replica has decided a block", LONG_NS, apart)
    };
    next(&mut bench)?;
    *bench.tally.borrow_mut() = super::Tally::default();
    let (from, before) = (bench.world.highest(), syncs(&bench));
    // No checkpoint is among so few.
    while bench.world.highest().since(from) < idle.blocks {
        next(&mut bench)?;
    }
    let of = bench.world.highest().since(from);
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
