//! The run of a synchronous protocol. Such a protocol promises nothing while messages of honest replicas are late, or
//! while more than f replicas are away.
//!
//! So faults affect f replicas that are fixed for the run, and no others. Everything else that varies stays within Δ.
//! Byzantine hosts belong to these f where the seed draws any.
//!
//! A replica whose messages a fault makes late is exempt from then on, with two exceptions. A replica that merely
//! pauses or is slow handles all input before its timers. And with the guard on, a replica that is late to *all* of
//! its peers notices it.

use crate::delays::{Bodies, DelayPattern, Delays};
use crate::disk::Costs;
use crate::fault::{Fault, FaultClass};
use crate::link_conditions::LinkConditions;
use crate::ms;
use crate::settings::{Parameters, Settings, Transport};
use quorate_types::rng::Rng;
use quorate_types::{ReplicaId, Time};

/// The parameter for the time before a synchronous protocol proposes an empty block.
pub(crate) const HEARTBEAT: &str = "heartbeat_ms";
/// Number of Δ between empty blocks in one of four seeds, as by default. The exam's parameters have 2, with which a
/// cluster is never idle for long enough that its guard checks less often.
const LONG_HEARTBEAT_DELTAS: u64 = 20;
/// Draws Δ and everything that is small compared with it.
pub(crate) fn draw_bound(settings: &mut Settings, rng: &mut Rng) {
    settings.transport = Transport::Links;
    settings.parameters.guarded = rng.chance(500_000);
    settings.parameters.delta_ns = ms(rng.between(6, 10).saturating_mul(10));
    // A generator of its own keeps everything else that the seed decides as it is.
    if Rng::new(settings.seed ^ 0x4ea7_bea7).chance(250_000) {
        let heartbeat_ms = settings.parameters.delta_ns.saturating_mul(LONG_HEARTBEAT_DELTAS) / ms(1);
        settings.set(HEARTBEAT, i64::try_from(heartbeat_ms).unwrap_or(i64::MAX));
    }
    let link_ns = Delays::link_ns(settings.parameters.delta_ns);
    settings.conditions = LinkConditions {
        delay_ns: rng.between(10_000, link_ns / 3),
        jitter_ns: rng.between(5_000, link_ns / 10),
        delay_ns_max: link_ns,
        ..LinkConditions::GOOD
    };
    settings.costs =
        Costs { sync_ns: rng.between(20_000, 200_000), wake_ns: rng.between(0, 300_000), ..Costs::USUAL };
}

/// Draws delays within the bound. The Byzantine replicas are already drawn.
pub(crate) fn draw_delays(settings: &mut Settings, rng: &mut Rng) {
    let mut ids: Vec<ReplicaId> = (0..u16::try_from(settings.n).unwrap_or(0)).map(ReplicaId).collect();
    rng.shuffle(&mut ids);
    let first = ids.first().copied().unwrap_or(ReplicaId(0));
    let second = ids.get(1).copied().unwrap_or(first);
    let pattern = match rng.below(6) {
        0 => DelayPattern::Even(u32::try_from(rng.below(1_000_000)).unwrap_or(0)),
        1 => DelayPattern::Direction(first, second),
        2 => DelayPattern::Replica(first),
        _ => DelayPattern::Changing,
    };
    // Without Byzantine replicas, bodies arrive before their headers.
    let are_there = settings.byzantine.replicas.is_empty() && rng.chance(500_000);
    let bodies = if are_there { Bodies::AreThere } else { Bodies::MayLack };
    settings.delays =
        Some(Delays::within(settings.parameters.delta_ns, settings.parameters.guarded, bodies, pattern));
}

/// The replicas that faults may affect.
pub(super) struct BoundedFaults {
    /// At most f replicas, together with those that are corrupted later.
    members: Vec<ReplicaId>,
    pub(super) guarded: bool,
    pub(super) delta_ns: u64,
    /// The last affected replica.
    pub(super) met: ReplicaId,
    /// Replicas that are away, with beginning and end.
    pub(super) away: Vec<(ReplicaId, Time, Time)>,
    /// Times at which all replicas lose power.
    pub(super) cuts: Vec<Time>,
}

impl BoundedFaults {
    /// Draws the replicas: Byzantine hosts first.
    pub(super) fn draw(settings: &Settings, rng: &mut Rng) -> Self {
        let is_later = |kind: &crate::Byzantine| *kind == crate::Byzantine::Adaptive;
        // The leader that an adaptive host will corrupt takes the host's place.
        let later = settings.byzantine.replicas.values().filter(|kind| is_later(kind)).count();
        let liars = settings.byzantine.replicas.iter().filter(|(_, kind)| !is_later(kind)).map(|(id, _)| *id);
        let mut members: Vec<ReplicaId> = liars.collect();
        let all = (0..u16::try_from(settings.n).unwrap_or(0)).map(ReplicaId);
        let mut others: Vec<ReplicaId> =
            all.filter(|id| !settings.byzantine.replicas.contains_key(id)).collect();
        rng.shuffle(&mut others);
        members.extend(others);
        members.truncate(settings.f.saturating_sub(later));
        let met = members.first().copied().unwrap_or(ReplicaId(0));
        let Parameters { guarded, delta_ns, .. } = settings.parameters;
        Self { members, guarded, delta_ns, met, away: Vec::new(), cuts: Vec::new() }
    }

    /// Whether the fault may affect any replica.
    pub(super) fn suits(&self, fault: Fault) -> bool {
        use Fault::{ClockDrift, Duplication, LeaderCut, Partition, PowerCutOfAll};
        let cuts_others = matches!(fault, Partition | LeaderCut | Duplication);
        let meets_all = matches!(fault, ClockDrift | PowerCutOfAll) || fault.class() == FaultClass::Client;
        !cuts_others && (meets_all || !self.members.is_empty())
    }

    /// Returns honest replicas that may lose durable data.
    pub(super) fn may_forget(&self, settings: &Settings) -> Vec<ReplicaId> {
        self.members.iter().copied().filter(|id| !settings.byzantine.replicas.contains_key(id)).collect()
    }

    /// Draws one of the replicas.
    pub(super) fn pick(&mut self, rng: &mut Rng) -> Option<ReplicaId> {
        self.met = rng.pick(&self.members).copied()?;
        Some(self.met)
    }

    /// Records the affected replica.
    pub(super) fn meets(&mut self, id: ReplicaId) {
        self.met = id;
    }

    pub(super) fn deltas(&self, count: u64) -> u64 {
        self.delta_ns.saturating_mul(count)
    }
}
