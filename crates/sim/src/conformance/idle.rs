//! The costs of an idle cluster.

use super::metered::{LONG_NS, MeteredWorld, SentCounts, UNIT_NS, each_and_all, size};
use super::report::{FigureLine, Measured, NotMeasured};
use crate::World;
use quorate_consensus::{Entry, Figures, Idle};

/// Counts messages and syncs of idle blocks.
pub(super) fn blocks(
    entry: &Entry,
    n: usize,
    figures: &Figures,
    idle: Idle,
) -> Result<Vec<FigureLine>, NotMeasured> {
    let mut metered = MeteredWorld::new(entry, n, UNIT_NS, 0)?;
    let syncs =
        |metered: &MeteredWorld| metered.world.replicas().map(|id| metered.world.syncs(id)).sum::<u64>();
    // The count runs between two moments at which every replica has decided something: execution may wait for the
    // next block.
    let next = |metered: &mut MeteredWorld| {
        let height = metered.world.highest();
        let apart = |world: &World| world.honest().any(|id| world.decided(id) <= height);
        metered.world.run_while("every replica has decided a block", LONG_NS, apart)
    };
    next(&mut metered)?;
    *metered.sent_counts.borrow_mut() = SentCounts::default();
    let (from, before) = (metered.world.highest(), syncs(&metered));
    // So few blocks include no checkpoint.
    while metered.world.highest().since(from) < idle.blocks {
        next(&mut metered)?;
    }
    let of = metered.world.highest().since(from);
    let mut messages = each_and_all(
        idle.messages.unwrap_or(figures.block),
        n,
        &metered.sent_counts.borrow(),
        of,
        "for a block while idle",
    );
    let total = syncs(&metered).saturating_sub(before);
    let what = match idle.blocks {
        1 => "syncs of all replicas for a block while idle".to_owned(),
        blocks => format!("syncs of all replicas for {blocks} blocks while idle"),
    };
    let measured = Measured { total, of: of.checked_div(idle.blocks).unwrap_or(0) };
    let line = FigureLine::new(what, idle.syncs.text, (idle.syncs.of)(size(n)), measured);
    // Each kind occurs as often as for any block, so the sum is enough.
    Ok(messages.pop().into_iter().chain([line]).collect())
}
