//! Scenarios that differ for synchronous protocols. A replica that is cut off counts among the f from then on. Beyond
//! Δ nothing is promised, unless the guard is on and every message is late.

use super::short_run::{ShortRun, some_of};
use crate::fault::Fault;
use crate::network_fault::{Change, NetworkFault};
use crate::places::Places;
use crate::report::Report;
use crate::settings::{BadSettings, is_synchronous};
use crate::trace::Trace;
use crate::world::World;
use crate::{ms, secs};
use quorate_consensus::Entry;
use quorate_types::{ReplicaId, Time};

/// Δ until a replica has recovered after a doubt. For 16 of them it commits by no timer.
const CALM_DELTAS: u64 = 20;

/// Returns this time; for a synchronous protocol at least this many Δ.
pub(super) fn at_least(world: &World, span_ns: u64, deltas: u64) -> u64 {
    let least = world.settings().parameters.delta_ns.saturating_mul(deltas);
    if is_synchronous(&world.settings().entry) { span_ns.max(least) } else { span_ns }
}

/// Cuts one replica off several times. Without the guard the replica is always the same and is exempt from judgement.
pub(super) fn cut_off(entry: &Entry, n: usize, seed: u64, trace: Trace) -> Result<Report, BadSettings> {
    let short = ShortRun::new((entry, n, seed), trace, |_, _| {})?;
    Ok(short.run(|world, rng| {
        let guarded = world.settings().parameters.guarded;
        let mut victims: Vec<ReplicaId> = some_of(world, rng, 1);
        for _ in 0..3 {
            if guarded {
                victims = some_of(world, rng, 1);
            }
            let place = Places::of(victims.iter().map(|id| id.index()));
            let (both_ways, span_ns) = (rng.chance(700_000), rng.between(ms(200), secs(3)));
            let change = match guarded {
                true => Change::Late { by_ns: 0, until: world.now().plus(span_ns) },
                false => Change::Cut,
            };
            if !guarded {
                victims.iter().for_each(|id| world.exempt(*id));
            }
            let fault = Some(Fault::Isolation);
            let cut =
                world.begin_fault(NetworkFault { from: place, to: place.others(), both_ways, change, fault });
            world.run_for(span_ns)?;
            world.end_fault(cut);
            let calm_ns = world.settings().parameters.delta_ns.saturating_mul(CALM_DELTAS);
            world.run_for(rng.between(ms(1), ms(500)).saturating_add(calm_ns))?;
        }
        world.run_until(Time(secs(12)).max(world.now()))
    }))
}

/// Makes every message, or every message of one replica, later than Δ for a while. The guard is on.
pub(super) fn beyond_delta(entry: &Entry, n: usize, seed: u64, trace: Trace) -> Result<Report, BadSettings> {
    let short = ShortRun::new((entry, n, seed), trace, |settings, _| settings.parameters.guarded = true)?;
    Ok(short.run(|world, rng| {
        let delta_ns = world.settings().parameters.delta_ns;
        let mut longest_ns = 0;
        for _ in 0..4 {
            let by_ns = rng.between(delta_ns.saturating_add(1), delta_ns.saturating_mul(10));
            longest_ns = by_ns.max(longest_ns);
            let change = Change::Late { by_ns, until: Time::ZERO };
            let from = if rng.chance(750_000) { Places::ALL } else { Places::one(rng.index(n)) };
            let fault = Some(Fault::BeyondDelta);
            let late =
                world.begin_fault(NetworkFault { from, to: Places::ALL, both_ways: false, change, fault });
            world.run_for(rng.between(delta_ns, secs(3)))?;
            world.end_fault(late);
            world.run_for(rng.between(ms(1), ms(500)))?;
        }
        // Late messages are still in flight, and no message overtakes them.
        world.run_for(longest_ns)
    }))
}
