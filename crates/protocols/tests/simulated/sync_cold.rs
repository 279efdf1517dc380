//! Golden schedules of `sync-hotstuff` §23 with a power cut or a slowdown.

use crate::sync_exact_world::{DELTA_NS, NEAR_NS};
use crate::sync_planned_run::{End, PlannedRun};
use quorate_consensus::Entry;
use quorate_consensus::parts::recovery::RecoveryStage;
use quorate_protocols::sync_hotstuff::{Header, Lock, SyncMessage};
use quorate_sim::{Change, Failure, LinkConditions, NetworkFault, OpId, Places, Plan, Survives, World, ms};
use quorate_types::{ReplicaId, Time, View};

/// Of three replicas 1 lies from the cut on, and leads the second view.
const LIAR: u16 = 1;
const LATE: u16 = 2;

fn three(entry: &Entry) -> PlannedRun {
    PlannedRun::honest(entry, 3, |settings| settings.set("heartbeat_ms", 500))
}

fn is_open(world: &World, id: OpId) -> bool {
    world.history().get(id).unwrap().answered.is_none()
}

/// 0 and 1 acknowledge an operation; messages to and from 2 take Δ. All lose power as soon as the client has its answer, when
/// 2 has voted and its disk has no certificate. Returns the parent of the block.
fn cut_after_an_answer(planned: &mut PlannedRun, more: bool) -> Result<End, Failure> {
    planned.takes(&[0, 1], &[LATE], None, DELTA_NS);
    planned.takes(&[LATE], &[0, 1], None, DELTA_NS);
    // The last empty block is finished, and the next one is not due: no disk has anything else to write.
    let last = planned.tip();
    while planned.tip() == last {
        planned.run(ms(5))?;
    }
    planned.run(7 * DELTA_NS / 2)?;
    let below = planned.tip();
    let id = planned.world.submit(0, &[crate::support::incr("n")])[0];
    if more {
        // A block above it reaches 0 and 1, and is on its way to 2 at the cut: their last votes name different blocks.
        planned.run(DELTA_NS + 3 * NEAR_NS)?;
        planned.world.submit(1, &[crate::support::incr("m")]);
    }
    planned.world.run_while("it is answered", ms(2_000), |world| is_open(world, id))?;
    planned.liars = vec![ReplicaId(LIAR)];
    planned.world.take_control(ReplicaId(LIAR));
    for id in [0, LATE] {
        planned.world.crash(ReplicaId(id), Survives::Nothing);
    }
    planned.run(ms(50))?;
    Ok(below)
}

/// cold-early-riser: 2 is opened first, and the liar helps it through a view change onto the parent of the acknowledged
/// block. 0 is opened 18 Δ later, within `boot_wait`.
pub(crate) fn early_riser(entry: &Entry) -> Result<(), Failure> {
    let mut planned = three(entry);
    let below = cut_after_an_answer(&mut planned, false)?;
    let lock = planned.lock(View(1), below);
    planned.world.start(ReplicaId(LATE)).unwrap();
    planned.world.plan(planned.world.now().plus(18 * DELTA_NS), Plan::Start(ReplicaId(0)));
    for _ in 0..3 {
        planned.run(DELTA_NS)?;
        planned.answers(&[LATE], RecoveryStage::Voting);
        planned.send(LIAR, &[LATE], &SyncMessage::Blame(View(1)));
    }
    planned.run(6 * DELTA_NS)?;
    planned.lead(View(2), lock, &[LATE], 1)?;
    planned.run(6 * DELTA_NS)?;
    planned.close()
}

/// cold-no-record: all are opened at once. The last votes of 0 and 2 name different blocks, so repeating them certifies
/// nothing. The liar leads the next view onto the parent of the acknowledged block.
pub(crate) fn repeated_votes(entry: &Entry) -> Result<(), Failure> {
    let mut planned = three(entry);
    let below = cut_after_an_answer(&mut planned, true)?;
    let lock = planned.lock(View(1), below);
    planned.takes(&[0, LATE], &[0, LATE], None, NEAR_NS);
    for id in [0, LATE] {
        planned.world.start(ReplicaId(id)).unwrap();
    }
    for _ in 0..3 {
        planned.run(DELTA_NS)?;
        planned.answers(&[0, LATE], RecoveryStage::Voting);
        planned.send(LIAR, &[0, LATE], &SyncMessage::Blame(View(1)));
    }
    planned.run(5 * DELTA_NS)?;
    planned.lead(View(2), lock, &[LATE], 1)?;
    planned.run(6 * DELTA_NS)?;
    planned.close()
}

fn end_of(header: &Header) -> End {
    (header.block.height, header.block.id())
}

/// 0 and 1 of five lie. 2 votes for B, and 3 and 4 have the proof against it just after that Δ is over. From then on all
/// honest messages are 5 Δ late for a while. 2 has a certificate of B, and shows it, long before the slowdown or when it has
/// begun.
fn slow_after_delta(
    entry: &Entry,
    guarded: bool,
    is_shown: bool,
    span_ns: u64,
) -> Result<(PlannedRun, Header), Failure> {
    let near_ns = ms(1);
    let mut planned = PlannedRun::honest(entry, 5, |settings| {
        settings.conditions = LinkConditions::constant(near_ns);
        settings.set("guarded", guarded);
    });
    planned.run(30 * DELTA_NS)?;
    planned.corrupt(&[0, 1]);
    let tip = planned.tip();
    let (one, two) = (planned.first(tip, 1), planned.first(tip, 2));
    planned.takes(&[2], &[3, 4], Some("vote"), DELTA_NS);
    // It votes 10 ms after one of its probes, so it sends one 90 ms after the vote, and the next one 115 ms after it: too late
    // to be missed by the end of the 2 Δ.
    let probes = |world: &World| world.status(ReplicaId(2)).unwrap().guard.unwrap().probes;
    let before = probes(&planned.world);
    if guarded {
        planned.world.run_while("it probes", ms(100), |world| probes(world) == before)?;
    }
    planned.run(ms(10) - near_ns)?;
    planned.propose(&[2], &one);
    if is_shown {
        planned.liars_vote(&[2], &one);
    }
    let vote = planned.world.now().plus(near_ns);
    if !is_shown {
        // They arrive during the slowdown.
        planned.world.run_until(vote.plus(DELTA_NS - 2 * near_ns + near_ns / 4))?;
        planned.liars_vote(&[2], &one);
    }
    // B' arrives half a millisecond before the header of B does, and after the front has come; the vote enters its link just
    // before that.
    planned.world.run_until(vote.plus(DELTA_NS - near_ns - near_ns / 2))?;
    planned.propose(&[3, 4], &two);
    planned.world.run_until(vote.plus(DELTA_NS - near_ns))?;
    planned.run(1)?;
    let honest = Places::of([2, 3, 4]);
    let change = Change::Late { by_ns: 5 * DELTA_NS, until: Time::ZERO };
    let slow = planned.world.begin_fault(NetworkFault {
        from: honest,
        to: honest,
        both_ways: true,
        change,
        fault: None,
    });
    planned.run(span_ns)?;
    planned.world.end_fault(slow);
    planned.world.run_until(vote.plus(4 * DELTA_NS))?;
    Ok((planned, two))
}

/// late-slowdown: 2 is not in doubt yet when its 2 Δ are over, because its probes were answered until then.
pub(crate) fn late_slowdown(entry: &Entry) -> Result<(), Failure> {
    let (mut planned, two) = slow_after_delta(entry, true, true, 3 * DELTA_NS)?;
    // Blocks follow each other for longer than any wait after a doubt.
    // A replica that received the certificate of B in time has not voted for B'.
    if let Some(tip) = planned.certificate(View(1), end_of(&two)) {
        planned.lead(View(2), Lock { responsive: None, tip }, &[3, 4], 40)?;
    }
    planned.run(6 * DELTA_NS)?;
    planned.close()
}

/// §19, "not promised": the same for less than a probe period, so 2 sends no probe meanwhile. The liars' votes are so late
/// that no replica receives a certificate in time.
pub(crate) fn short_slowdown(entry: &Entry, span_ns: u64, guarded: bool) -> Result<(), Failure> {
    let (mut planned, two) = slow_after_delta(entry, guarded, false, span_ns)?;
    let tip = planned.certificate(View(1), end_of(&two)).unwrap();
    planned.lead(View(2), Lock { responsive: None, tip }, &[3, 4], 40)?;
    planned.run(6 * DELTA_NS)?;
    planned.close()
}
