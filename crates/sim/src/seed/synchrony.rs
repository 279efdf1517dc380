//! What is different in the run of a synchronous protocol: such a protocol promises nothing where messages of honest
//! replicas are late, or more than f replicas are away.
//!
//! So faults meet f replicas that are fixed for the run, and no others; all else that varies stays within Δ. The Byzantine
//! hosts are these f where the seed draws any. Where faults make messages late, nothing is promised to whom they meet from
//! then on, but for two cases: who merely stands still or is slow handles everything that has come before its timers; and
//! with the guard on a replica that is late to *all* of its peers notices.

use crate::delays::{Bodies, DelayPattern, Delays};
use crate::disk::Costs;
use crate::fault::{Fault, FaultClass};
use crate::link_conditions::LinkConditions;
use crate::ms;
use crate::settings::{Parameters, Settings, Transport};
use quorate_types::rng::Rng;
use quorate_types::{ReplicaId, Time};

/// The parameter that says how long a synchronous protocol waits before it proposes an empty block.
pub(crate) const HEARTBEAT: &str = "heartbeat_ms";
/// So many Δ in one of four seeds, as by default. The exam's parameters say 2, with which a cluster is never idle for so
/// long that its guard looks on more seldom.
const LONG_HEARTBEAT_DELTAS: u64 = 20;
/// Δ, and what is small beside it.
pub(crate) fn draw_bound(settings: &mut Settings, rng: &mut Rng) {
    settings.transport = Transport::Links;
    settings.parameters.guarded = rng.chance(500_000);
    settings.parameters.delta_ns = ms(rng.between(6, 10).saturating_mul(10));
    // Apart from what else the seed decides, which stays as it was without.
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

/// Delays within the bound, when it is known who is Byzantine.
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
    // Where nobody lies bodies are there before their headers.
    let are_there = settings.byzantine.replicas.is_empty() && rng.chance(500_000);
    let bodies = if are_there { Bodies::AreThere } else { Bodies::MayLack };
    settings.delays =
        Some(Delays::within(settings.parameters.delta_ns, settings.parameters.guarded, bodies, pattern));
}

/// Whom faults may meet.
pub(super) struct BoundedFaults {
    /// At most f, with those that are corrupted later.
    members: Vec<ReplicaId>,
    pub(super) guarded: bool,
    pub(super) delta_ns: u64,
    /// Who was met last.
    pub(super) met: ReplicaId,
    /// Who is away, and when.
    pub(super) away: Vec<(ReplicaId, Time, Time)>,
    /// When all lose power.
    pub(super) cuts: Vec<Time>,
}

impl BoundedFaults {
    /// Draws them: Byzantine hosts first.
    pub(super) fn draw(settings: &Settings, rng: &mut Rng) -> Self {
        let is_later = |kind: &crate::Byzantine| *kind == crate::Byzantine::Adaptive;
        // Whoever will lead when it is corrupted takes the place of an adaptive host.
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

    /// Whether this may happen to anybody.
    pub(super) fn suits(&self, fault: Fault) -> bool {
        use Fault::{ClockDrift, Duplication, LeaderCut, Partition, PowerCutOfAll};
        let cuts_others = matches!(fault, Partition | LeaderCut | Duplication);
        let meets_all = matches!(fault, ClockDrift | PowerCutOfAll) || fault.class() == FaultClass::Client;
        !cuts_others && (meets_all || !self.members.is_empty())
    }

    /// Honest replicas that may forget what they were told is safe.
    pub(super) fn may_forget(&self, settings: &Settings) -> Vec<ReplicaId> {
        self.members.iter().copied().filter(|id| !settings.byzantine.replicas.contains_key(id)).collect()
    }

    /// One of those that faults may meet.
    pub(super) fn pick(&mut self, rng: &mut Rng) -> Option<ReplicaId> {
        self.met = rng.pick(&self.members).copied()?;
        Some(self.met)
    }

    /// It has met this one.
    pub(super) fn meets(&mut self, id: ReplicaId) {
        self.met = id;
    }

    pub(super) fn deltas(&self, count: u64) -> u64 {
        self.delta_ns.saturating_mul(count)
    }
}
