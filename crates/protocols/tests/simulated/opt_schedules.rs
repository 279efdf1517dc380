//! The golden schedules of `optsync` §20. Of five replicas 0 and 1 lie, and lead views 1 and 2. `R` decides by q_R votes, and
//! the others, `Q` and `P`, learn of the decision only by its NOTIFY.

use crate::support::{incr, spread_bundle};
use crate::sync_plot::{End, Plot};
use crate::sync_stage::{DELTA_NS, NEAR_NS, view};
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
    let mut plot = Plot::new(entry, 5, &[0, 1], |settings| settings.costs.sync_ns = sync_ns);
    decide_in_secret(&mut plot, DELTA_NS, is_after, stalls)?;
    plot.run(6 * DELTA_NS)?;
    plot.world.heal();
    plot.close()
}

/// Runs until the liars have led the second view.
pub(crate) fn decide_in_secret(
    plot: &mut Plot,
    notify_ns: u64,
    is_after: bool,
    stalls: bool,
) -> Result<(), Failure> {
    let tip = plot.tip();
    let lock = plot.lock(View(1), tip);
    let (one, two) = (plot.first(tip, 1), plot.first(tip, 2));
    plot.takes(&[R], &[Q, P], None, DELTA_NS);
    plot.takes(&[Q, P], &[R], None, DELTA_NS);
    // Other messages that contain a certificate of B.
    plot.takes(&[R], &[Q, P], Some("notify"), notify_ns);
    plot.takes(&[R], &[Q, P], Some("certified"), notify_ns);
    plot.propose(&[R, Q], &one);
    plot.run(ms(5))?;
    plot.propose(&[P], &two);
    plot.run(ms(45))?;
    if stalls {
        plot.world.plan(plot.world.now(), Plan::Disk(ReplicaId(R), DiskTrouble::Slow));
    }
    // The vote of `Q` arrives Δ + δ after the proposal left, and the evidence of `P` δ later.
    plot.run(if is_after { ms(75) } else { ms(40) })?;
    plot.liars_vote(&[R], &one);
    plot.run(2 * DELTA_NS)?;
    plot.lead(View(2), lock, &[Q, P], 1)
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
    let mut plot = Plot::new(entry, 5, &[0, 1], |_| {});
    let tip = plot.tip();
    let lock = plot.lock(View(1), tip);
    let (one, two) = (plot.first(tip, 1), plot.first(tip, 2));
    plot.propose(&[R, Q], &one);
    plot.propose(&[P], &two);
    while [R, Q, P].iter().any(|id| view(&plot.world, ReplicaId(*id)) < View(2)) {
        plot.run(ms(5))?;
    }
    let withheld = plot.certificate_of(View(1), end_of(&one), 4).unwrap();
    plot.say(0, &[R], &SyncMessage::Notify(withheld));
    plot.run(2 * NEAR_NS)?;
    plot.lead(View(2), lock, &[Q, P], 1)?;
    plot.run(6 * DELTA_NS)?;
    plot.close()
}

/// Scenario 13: NOTIFY takes 3 Δ, which breaks the bound, and `Q` and `P` continue without it.
pub(crate) fn notify_that_is_late(plot: &mut Plot) -> Result<(), Failure> {
    decide_in_secret(plot, 3 * DELTA_NS, false, false)?;
    plot.run(2 * DELTA_NS)
}

/// quorum-off-by-one: B for one of three, B' for another, and the liar votes for both.
pub(crate) fn two_blocks_and_two_votes(entry: &Entry) -> Result<(), Failure> {
    let mut plot = Plot::new(entry, 3, &[0], |_| {});
    let tip = plot.tip();
    for (to, time_ns) in [(1, 1), (2, 2)] {
        let header = plot.first(tip, time_ns);
        plot.propose(&[to], &header);
        plot.liars_vote(&[to], &header);
    }
    plot.run(6 * DELTA_NS)?;
    plot.close()
}

/// lexicographic-lock, scenario 8: all vote for A', and then for B above it, which the timer of the first honest replica
/// commits. In the next view the liars show q_R votes for A', their own among them.
fn hidden_ancestor(entry: &Entry, n: usize) -> Result<(), Failure> {
    let f = u16::try_from((n - 1) / 2).unwrap();
    let liars: Vec<u16> = (0..f).collect();
    let others: Vec<u16> = (f + 1..u16::try_from(n).unwrap()).collect();
    let all: Vec<u16> = (f..u16::try_from(n).unwrap()).collect();
    let mut plot = Plot::new(entry, n, &liars, |_| {});
    let below = plot.first(plot.tip(), 1);
    plot.propose(&all, &below);
    plot.run(2 * DELTA_NS + 4 * NEAR_NS)?;
    let (one, two) = (plot.first(end_of(&below), 1), plot.first(end_of(&below), 2));
    plot.takes(&[f], &others, None, DELTA_NS);
    plot.propose(&[f], &one);
    plot.run(2 * DELTA_NS + NEAR_NS)?;
    plot.propose(&others, &two);
    // The replica has committed, and the others leave the view before they do.
    plot.run(3 * DELTA_NS)?;
    let responsive = plot.certificate_of(View(1), end_of(&below), n * 3 / 4 + 1).unwrap();
    let lock = Lock { responsive: Some(responsive.clone()), tip: responsive };
    plot.lead(View(2), lock, &others, 1)?;
    plot.run(6 * DELTA_NS)?;
    plot.close()
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
    let mut plot = Plot::new(entry, 3, &[LIAR], |_| {});
    let (below, one) = (next_block(&mut plot)?, next_block(&mut plot)?);
    let at = plot.ear.borrow().proposed((View(1), one.0)).unwrap();
    plot.world.run_until(at.plus(2 * DELTA_NS - 1))?;
    plot.world.crash(crashed, Survives::Nothing);
    plot.run(2 * NEAR_NS)?;
    assert!(plot.world.decided(committed) >= one.0, "it has committed alone");
    let is_blamed =
        |plot: &Plot| plot.ear.borrow().count(|sent| matches!(sent.message, SyncMessage::Blame(_)));
    while is_blamed(&plot) == 0 {
        plot.run(ms(5))?;
    }
    plot.say(LIAR, &[committed.0], &SyncMessage::Blame(View(1)));
    plot.run(2 * NEAR_NS)?;
    plot.world.start(crashed).unwrap();
    for _ in 0..3 {
        plot.run(DELTA_NS / 2)?;
        plot.answers(&[crashed.0], RecoveryStage::Running);
    }
    let has_entered = |world: &World| world.honest().all(|id| view(world, id) == View(2));
    plot.world.run_while("both are in the next view", 8 * DELTA_NS, |world| !has_entered(world))?;
    assert!(plot.world.decided(crashed) < one.0, "it has not heard what became of B");
    let responsive = plot.certificate_of(View(1), below, 3).unwrap();
    let lock = Lock { responsive: Some(responsive.clone()), tip: responsive };
    plot.lead(View(2), lock, &[0, 2], 1)?;
    plot.run(6 * DELTA_NS)?;
    plot.close()
}

/// Returns the next proposal of an honest leader of the first view.
fn next_block(plot: &mut Plot) -> Result<End, Failure> {
    let last = plot.tip();
    while plot.tip() == last {
        plot.run(ms(1))?;
    }
    Ok(plot.tip())
}

/// cold-no-R: of seven, 0, 1 and 2 lie. 3, 4 and 5 have voted for B, and only 3 receives the liars' votes and decides. All
/// honest replicas lose power: three repeated votes form no certificate.
pub(crate) fn cut_just_after_a_decision(entry: &Entry) -> Result<(), Failure> {
    let mut plot = Plot::new(entry, 7, &[0, 1, 2], |_| {});
    let tip = plot.tip();
    let lock = plot.lock(View(1), tip);
    // An empty block would be executed later, so the test could not know on which disks it is at the power cut.
    plot.world.submit(0, &[incr("n")]);
    let payload = spread_bundle(&mut plot.world, ReplicaId(0));
    plot.run(2 * NEAR_NS)?;
    let mut header = plot.first(tip, 1);
    header.block.payload = payload.id();
    plot.takes(&[3, 4, 5], &[6], None, DELTA_NS / 2);
    plot.propose(&[3, 4, 5], &header);
    plot.liars_vote(&[3], &header);
    plot.run(2 * NEAR_NS + 1)?;
    assert_eq!(plot.world.executed(ReplicaId(3)), header.block.height, "decided, and on its disk");
    for id in 3..7 {
        plot.world.crash(ReplicaId(id), Survives::Nothing);
    }
    plot.run(ms(50))?;
    for id in 3..7 {
        plot.world.start(ReplicaId(id)).unwrap();
    }
    for _ in 0..3 {
        plot.run(DELTA_NS)?;
        plot.answers(&[3, 4, 5, 6], RecoveryStage::Voting);
    }
    // Nobody leads the first view, and the honest replicas blame it. Before they have left it, 6 would vote for B after a
    // certificate of its parent.
    while plot.ear.borrow().count(|sent| matches!(sent.message, SyncMessage::Evidence(_))) == 0 {
        plot.run(ms(5))?;
    }
    plot.run(DELTA_NS)?;
    plot.lead(View(2), lock, &[4, 5, 6], 1)?;
    plot.run(6 * DELTA_NS)?;
    plot.close()
}
