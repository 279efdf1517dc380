//! The golden schedules of `optsync` §20. Of five replicas 0 and 1 lie, and lead views 1 and 2. `R` decides by q_R votes, and
//! the others, `Q` and `P`, learn of the decision only by its NOTIFY.

use crate::support::{incr, spread_bundle};
use crate::sync_exact_world::{DELTA_NS, NEAR_NS, view};
use crate::sync_planned_run::{End, PlannedRun};
use quorate_consensus::Entry;
use quorate_consensus::parts::recovery::RecoveryStage;
use quorate_protocols::sync_hotstuff::{Header, Lock, SyncMessage};
use quorate_sim::{DiskTrouble, Failure, Plan, Survives, World, ms};
use quorate_types::{ReplicaId, View};

const R: u16 = 2;
const Q: u16 = 3;
const P: u16 = 4;

fn end_of(header: &Header) -> End {
    (header.block.height, header.block.id())
}

/// `R` and `Q` vote for B; `P` is shown B', and leaves the view when the vote of `Q` arrives. The liars' votes complete q_R
/// at `R` just before or just after evidence of the end of the view arrives there. All other messages between `R` and the
/// others take Δ.
fn hidden_decision(entry: &Entry, is_after: bool, stalls: bool) -> Result<(), Failure> {
    let sync_ns = if stalls { DELTA_NS / 100 } else { 0 };
    let mut planned = PlannedRun::new(entry, 5, &[0, 1], |settings| settings.costs.sync_ns = sync_ns);
    decide_in_secret(&mut planned, DELTA_NS, is_after, stalls)?;
    planned.run(6 * DELTA_NS)?;
    planned.world.heal();
    planned.close()
}

/// Runs until the liars have led the second view.
pub(crate) fn decide_in_secret(
    planned: &mut PlannedRun,
    notify_ns: u64,
    is_after: bool,
    stalls: bool,
) -> Result<(), Failure> {
    let tip = planned.tip();
    let lock = planned.lock(View(1), tip);
    let (one, two) = (planned.first(tip, 1), planned.first(tip, 2));
    planned.takes(&[R], &[Q, P], None, DELTA_NS);
    planned.takes(&[Q, P], &[R], None, DELTA_NS);
    // Other messages that contain a certificate of B.
    planned.takes(&[R], &[Q, P], Some("notify"), notify_ns);
    planned.takes(&[R], &[Q, P], Some("certified"), notify_ns);
    planned.propose(&[R, Q], &one);
    planned.run(ms(5))?;
    planned.propose(&[P], &two);
    planned.run(ms(45))?;
    if stalls {
        planned.world.plan(planned.world.now(), Plan::Disk(ReplicaId(R), DiskTrouble::Slow));
    }
    // The vote of `Q` arrives Δ + δ after the proposal left, and the evidence of `P` δ later.
    planned.run(if is_after { ms(75) } else { ms(40) })?;
    planned.liars_vote(&[R], &one);
    planned.run(2 * DELTA_NS)?;
    planned.lead(View(2), lock, &[Q, P], 1)
}

/// no-notify, wait-one-delta: NOTIFY takes Δ.
pub(crate) fn decided_just_before_the_end(entry: &Entry) -> Result<(), Failure> {
    hidden_decision(entry, false, false)
}

/// notify-held: the disk of `R` stalls for Δ when it decides.
pub(crate) fn decided_and_a_disk_that_stalls(entry: &Entry) -> Result<(), Failure> {
    hidden_decision(entry, false, true)
}

/// commit-after-quit: `R` has just left the view when the votes arrive.
pub(crate) fn votes_just_after_the_end(entry: &Entry) -> Result<(), Failure> {
    hidden_decision(entry, true, false)
}

/// §10, 4: `R` and `Q` have voted for B, `P` is shown B', and all leave the view before q_R votes reach anybody. After the
/// next view has begun below B, the liars show `R` the certificate of these votes and their own.
pub(crate) fn votes_of_a_finished_view(entry: &Entry) -> Result<(), Failure> {
    let mut planned = PlannedRun::new(entry, 5, &[0, 1], |_| {});
    let tip = planned.tip();
    let lock = planned.lock(View(1), tip);
    let (one, two) = (planned.first(tip, 1), planned.first(tip, 2));
    planned.propose(&[R, Q], &one);
    planned.propose(&[P], &two);
    while [R, Q, P].iter().any(|id| view(&planned.world, ReplicaId(*id)) < View(2)) {
        planned.run(ms(5))?;
    }
    let withheld = planned.certificate_of(View(1), end_of(&one), 4).unwrap();
    planned.send(0, &[R], &SyncMessage::Notify(withheld));
    planned.run(2 * NEAR_NS)?;
    planned.lead(View(2), lock, &[Q, P], 1)?;
    planned.run(6 * DELTA_NS)?;
    planned.close()
}

/// Scenario 13: NOTIFY takes 3 Δ, which breaks the bound, and `Q` and `P` continue without it.
pub(crate) fn notify_that_is_late(planned: &mut PlannedRun) -> Result<(), Failure> {
    decide_in_secret(planned, 3 * DELTA_NS, false, false)?;
    planned.run(2 * DELTA_NS)
}

/// quorum-off-by-one: B for one of three, B' for another, and the liar votes for both.
pub(crate) fn two_blocks_and_two_votes(entry: &Entry) -> Result<(), Failure> {
    let mut planned = PlannedRun::new(entry, 3, &[0], |_| {});
    let tip = planned.tip();
    for (to, time_ns) in [(1, 1), (2, 2)] {
        let header = planned.first(tip, time_ns);
        planned.propose(&[to], &header);
        planned.liars_vote(&[to], &header);
    }
    planned.run(6 * DELTA_NS)?;
    planned.close()
}

/// lexicographic-lock, scenario 8: all vote for A', and then for B above it, which the timer of the first honest replica
/// commits. In the next view the liars show q_R votes for A', their own among them.
fn hidden_ancestor(entry: &Entry, n: usize) -> Result<(), Failure> {
    let f = u16::try_from((n - 1) / 2).unwrap();
    let liars: Vec<u16> = (0..f).collect();
    let others: Vec<u16> = (f + 1..u16::try_from(n).unwrap()).collect();
    let all: Vec<u16> = (f..u16::try_from(n).unwrap()).collect();
    let mut planned = PlannedRun::new(entry, n, &liars, |_| {});
    let below = planned.first(planned.tip(), 1);
    planned.propose(&all, &below);
    planned.run(2 * DELTA_NS + 4 * NEAR_NS)?;
    let (one, two) = (planned.first(end_of(&below), 1), planned.first(end_of(&below), 2));
    planned.takes(&[f], &others, None, DELTA_NS);
    planned.propose(&[f], &one);
    planned.run(2 * DELTA_NS + NEAR_NS)?;
    planned.propose(&others, &two);
    // The replica has committed, and the others leave the view before they do.
    planned.run(3 * DELTA_NS)?;
    let responsive = planned.certificate_of(View(1), end_of(&below), n * 3 / 4 + 1).unwrap();
    let lock = Lock { responsive: Some(responsive.clone()), tip: responsive };
    planned.lead(View(2), lock, &others, 1)?;
    planned.run(6 * DELTA_NS)?;
    planned.close()
}

/// See [`hidden_ancestor`].
pub(crate) fn hidden_ancestor_of_five(entry: &Entry) -> Result<(), Failure> {
    hidden_ancestor(entry, 5)
}

/// See [`hidden_ancestor`].
pub(crate) fn hidden_ancestor_of_seven(entry: &Entry) -> Result<(), Failure> {
    hidden_ancestor(entry, 7)
}

/// The same among three, where the liar leads no two consecutive views. The honest leader of the first view proposes A' and
/// B, and loses power before it commits B, while `R` commits it. The liar withholds its vote for A' until the next view,
/// which it leads after the first leader has recovered.
pub(crate) fn hidden_ancestor_of_three(entry: &Entry) -> Result<(), Failure> {
    const LIAR: u16 = 1;
    let (crashed, committed) = (ReplicaId(0), ReplicaId(2));
    let mut planned = PlannedRun::new(entry, 3, &[LIAR], |_| {});
    let (below, one) = (next_block(&mut planned)?, next_block(&mut planned)?);
    let at = planned.message_log.borrow().proposed((View(1), one.0)).unwrap();
    planned.world.run_until(at.plus(2 * DELTA_NS - 1))?;
    planned.world.crash(crashed, Survives::Nothing);
    planned.run(2 * NEAR_NS)?;
    assert!(planned.world.decided(committed) >= one.0, "it has committed alone");
    let is_blamed = |planned: &PlannedRun| {
        planned.message_log.borrow().count(|sent| matches!(sent.message, SyncMessage::Blame(_)))
    };
    while is_blamed(&planned) == 0 {
        planned.run(ms(5))?;
    }
    planned.send(LIAR, &[committed.0], &SyncMessage::Blame(View(1)));
    planned.run(2 * NEAR_NS)?;
    planned.world.start(crashed).unwrap();
    for _ in 0..3 {
        planned.run(DELTA_NS / 2)?;
        planned.answers(&[crashed.0], RecoveryStage::Running);
    }
    let has_entered = |world: &World| world.honest().all(|id| view(world, id) == View(2));
    planned.world.run_while("both are in the next view", 8 * DELTA_NS, |world| !has_entered(world))?;
    assert!(planned.world.decided(crashed) < one.0, "the crashed replica has no news of B");
    let responsive = planned.certificate_of(View(1), below, 3).unwrap();
    let lock = Lock { responsive: Some(responsive.clone()), tip: responsive };
    planned.lead(View(2), lock, &[0, 2], 1)?;
    planned.run(6 * DELTA_NS)?;
    planned.close()
}

/// Returns the next proposal of an honest leader of the first view.
fn next_block(planned: &mut PlannedRun) -> Result<End, Failure> {
    let last = planned.tip();
    while planned.tip() == last {
        planned.run(ms(1))?;
    }
    Ok(planned.tip())
}

/// cold-no-R: of seven, 0, 1 and 2 lie. 3, 4 and 5 have voted for B, and only 3 receives the liars' votes and decides. All
/// honest replicas lose power: three repeated votes form no certificate.
pub(crate) fn cut_just_after_a_decision(entry: &Entry) -> Result<(), Failure> {
    let mut planned = PlannedRun::new(entry, 7, &[0, 1, 2], |_| {});
    let tip = planned.tip();
    let lock = planned.lock(View(1), tip);
    // An empty block would be executed later, so the test could not know on which disks it is at the power cut.
    planned.world.submit(0, &[incr("n")]);
    let payload = spread_bundle(&mut planned.world, ReplicaId(0));
    planned.run(2 * NEAR_NS)?;
    let mut header = planned.first(tip, 1);
    header.block.payload = payload.id();
    planned.takes(&[3, 4, 5], &[6], None, DELTA_NS / 2);
    planned.propose(&[3, 4, 5], &header);
    planned.liars_vote(&[3], &header);
    planned.run(2 * NEAR_NS + 1)?;
    assert_eq!(planned.world.executed(ReplicaId(3)), header.block.height, "decided, and on its disk");
    for id in 3..7 {
        planned.world.crash(ReplicaId(id), Survives::Nothing);
    }
    planned.run(ms(50))?;
    for id in 3..7 {
        planned.world.start(ReplicaId(id)).unwrap();
    }
    for _ in 0..3 {
        planned.run(DELTA_NS)?;
        planned.answers(&[3, 4, 5, 6], RecoveryStage::Voting);
    }
    // No replica leads the first view, and the honest replicas blame it. Before they have left it, 6 would vote for B after a
    // certificate of its parent.
    while planned.message_log.borrow().count(|sent| matches!(sent.message, SyncMessage::Evidence(_))) == 0 {
        planned.run(ms(5))?;
    }
    planned.run(DELTA_NS)?;
    planned.lead(View(2), lock, &[4, 5, 6], 1)?;
    planned.run(6 * DELTA_NS)?;
    planned.close()
}
