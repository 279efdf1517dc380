//! Golden schedules of `sync-hotstuff` §23 in which the power goes, or the network slows down.

use crate::sync_plot::{End, Plot};
use crate::sync_stage::{DELTA_NS, NEAR_NS};
use quorate_consensus::Entry;
use quorate_consensus::parts::returning::Standing;
use quorate_protocols::sync_hotstuff::{Header, Lock, SyncMessage};
use quorate_sim::{Change, Failure, LinkConditions, NetworkFault, OpId, Places, Plan, Survives, World, ms};
use quorate_types::{ReplicaId, Time, View};

/// Of three replicas 1 lies from the cut on, and leads the second view.
const LIAR: u16 = 1;
const LATE: u16 = 2;

fn three(entry: &Entry) -> Plot {
    Plot::honest(entry, 3, |settings| settings.set("heartbeat_ms", 500))
}

fn is_open(world: &World, id: OpId) -> bool {
    world.history().get(id).unwrap().answered.is_none()
}

/// 0 and 1 acknowledge an operation; what is said to 2 and by it takes Δ. All are cut as soon as the client has its answer,
/// when 2 has voted and its disk knows of no certificate. What was below the block.
fn cut_after_an_answer(plot: &mut Plot, more: bool) -> Result<End, Failure> {
    plot.takes(&[0, 1], &[LATE], None, DELTA_NS);
    plot.takes(&[LATE], &[0, 1], None, DELTA_NS);
    // All of the last empty block is over, and the next one is not due: no disk has anything else to write down.
    let last = plot.tip();
    while plot.tip() == last {
        plot.run(ms(5))?;
    }
    plot.run(7 * DELTA_NS / 2)?;
    let below = plot.tip();
    let id = plot.world.submit(0, &[crate::support::incr("n")])[0];
    if more {
        // A block above it for 0 and 1, under way to 2 at the cut: their last votes name different blocks.
        plot.run(DELTA_NS + 3 * NEAR_NS)?;
        plot.world.submit(1, &[crate::support::incr("m")]);
    }
    plot.world.run_while("it is answered", ms(2_000), |world| is_open(world, id))?;
    plot.liars = vec![ReplicaId(LIAR)];
    plot.world.take_control(ReplicaId(LIAR));
    for id in [0, LATE] {
        plot.world.crash(ReplicaId(id), Survives::Nothing);
    }
    plot.run(ms(50))?;
    Ok(below)
}

/// cold-early-riser: 2 is opened first, and the liar helps it through a view change, onto what is below the acknowledged
/// block. 0 is opened 18 Δ later, within `boot_wait`.
pub(crate) fn early_riser(entry: &Entry) -> Result<(), Failure> {
    let mut plot = three(entry);
    let below = cut_after_an_answer(&mut plot, false)?;
    let lock = plot.lock(View(1), below);
    plot.world.start(ReplicaId(LATE)).unwrap();
    plot.world.plan(plot.world.now().plus(18 * DELTA_NS), Plan::Start(ReplicaId(0)));
    for _ in 0..3 {
        plot.run(DELTA_NS)?;
        plot.answers(&[LATE], Standing::Voting);
        plot.say(LIAR, &[LATE], &SyncMessage::Blame(View(1)));
    }
    plot.run(6 * DELTA_NS)?;
    plot.lead(View(2), lock, &[LATE], 1)?;
    plot.run(6 * DELTA_NS)?;
    plot.close()
}

/// cold-no-record: all are opened at once. The last votes of 0 and 2 name different blocks, so nothing comes of saying them
/// again; the liar leads the next view onto what is below the acknowledged block.
pub(crate) fn votes_said_again(entry: &Entry) -> Result<(), Failure> {
    let mut plot = three(entry);
    let below = cut_after_an_answer(&mut plot, true)?;
    let lock = plot.lock(View(1), below);
    plot.takes(&[0, LATE], &[0, LATE], None, NEAR_NS);
    for id in [0, LATE] {
        plot.world.start(ReplicaId(id)).unwrap();
    }
    for _ in 0..3 {
        plot.run(DELTA_NS)?;
        plot.answers(&[0, LATE], Standing::Voting);
        plot.say(LIAR, &[0, LATE], &SyncMessage::Blame(View(1)));
    }
    plot.run(5 * DELTA_NS)?;
    plot.lead(View(2), lock, &[LATE], 1)?;
    plot.run(6 * DELTA_NS)?;
    plot.close()
}

fn end_of(header: &Header) -> End {
    (header.block.height, header.block.id())
}

/// 0 and 1 of five lie. 2 votes for B, and 3 and 4 have the proof against it just after that Δ is over, when
/// all that the honest say is late by 5 Δ, for so long. 2 knows of a certificate of B, and shows it, long before that, or when it has begun.
fn slow_after_delta(
    entry: &Entry,
    guarded: bool,
    is_shown: bool,
    span_ns: u64,
) -> Result<(Plot, Header), Failure> {
    let near_ns = ms(1);
    let mut plot = Plot::honest(entry, 5, |settings| {
        settings.conditions = LinkConditions::constant(near_ns);
        settings.set("guarded", guarded);
    });
    plot.run(30 * DELTA_NS)?;
    plot.corrupt(&[0, 1]);
    let tip = plot.tip();
    let (one, two) = (plot.first(tip, 1), plot.first(tip, 2));
    plot.takes(&[2], &[3, 4], Some("vote"), DELTA_NS);
    // It votes 10 ms after one of its probes, so it sends one 90 ms after the vote, and the next one 115 ms after it: too late
    // to be missed by the end of the 2 Δ.
    let probes = |world: &World| world.status(ReplicaId(2)).unwrap().guard.unwrap().probes;
    let before = probes(&plot.world);
    if guarded {
        plot.world.run_while("it probes", ms(100), |world| probes(world) == before)?;
    }
    plot.run(ms(10) - near_ns)?;
    plot.propose(&[2], &one);
    if is_shown {
        plot.liars_vote(&[2], &one);
    }
    let vote = plot.world.now().plus(near_ns);
    if !is_shown {
        // They arrive when it is slow already.
        plot.world.run_until(vote.plus(DELTA_NS - 2 * near_ns + near_ns / 4))?;
        plot.liars_vote(&[2], &one);
    }
    // B' arrives half a millisecond before the header of B does, and after the front has come; the vote enters its link just
    // before that.
    plot.world.run_until(vote.plus(DELTA_NS - near_ns - near_ns / 2))?;
    plot.propose(&[3, 4], &two);
    plot.world.run_until(vote.plus(DELTA_NS - near_ns))?;
    plot.run(1)?;
    let honest = Places::of([2, 3, 4]);
    let change = Change::Late { by_ns: 5 * DELTA_NS, until: Time::ZERO };
    let slow = plot.world.begin_fault(NetworkFault {
        from: honest,
        to: honest,
        both_ways: true,
        change,
        fault: None,
    });
    plot.run(span_ns)?;
    plot.world.end_fault(slow);
    plot.world.run_until(vote.plus(4 * DELTA_NS))?;
    Ok((plot, two))
}

/// late-slowdown: 2 is not in doubt yet when its 2 Δ are over, because its probes were answered until then.
pub(crate) fn late_slowdown(entry: &Entry) -> Result<(), Failure> {
    let (mut plot, two) = slow_after_delta(entry, true, true, 3 * DELTA_NS)?;
    // Blocks come one after another for longer than anybody waits after a doubt.
    // Whoever was shown in time that B is certified has not voted for B'.
    if let Some(tip) = plot.certificate(View(1), end_of(&two)) {
        plot.lead(View(2), Lock { responsive: None, tip }, &[3, 4], 40)?;
    }
    plot.run(6 * DELTA_NS)?;
    plot.close()
}

/// §19, "not promised": the same for less than a probe period, so that 2 sends no probe meanwhile. The liars' votes come so
/// late that nobody is shown a certificate in time.
pub(crate) fn short_slowdown(entry: &Entry, span_ns: u64, guarded: bool) -> Result<(), Failure> {
    let (mut plot, two) = slow_after_delta(entry, guarded, false, span_ns)?;
    let tip = plot.certificate(View(1), end_of(&two)).unwrap();
    plot.lead(View(2), Lock { responsive: None, tip }, &[3, 4], 40)?;
    plot.run(6 * DELTA_NS)?;
    plot.close()
}
