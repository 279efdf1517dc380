//! The golden schedules of `sync-hotstuff` §23 and `optsync` §20. In each a flawed variant forks, or loses an acknowledged
//! request, and the right protocol does not. Liars send only messages that they can sign at that moment.
//!
//! Of five replicas 0 and 1 lie, and lead views 1 and 2. `R` commits a block that the others, `Q` and `P`, do not.

use crate::support::incr;
use crate::sync_exact_world::{DELTA_NS, NEAR_NS};
use crate::sync_planned_run::{End, PlannedRun};
use quorate_consensus::{Entry, Signed, To};
use quorate_protocols::sync_hotstuff::{Header, LeaderStatement, Lock, QuitEvidence, SyncMessage};
use quorate_sim::{Audience, ControlledInput, DiskTrouble, Failure, Plan, ms};
use quorate_types::bundle::bundle_digest;
use quorate_types::codec::Wire as _;
use quorate_types::wire::{FromClient, frame};
use quorate_types::{Payload, ReplicaId, View};

const R: u16 = 2;
const Q: u16 = 3;
const P: u16 = 4;

fn end_of(header: &Header) -> End {
    (header.block.height, header.block.id())
}

/// Sends B and liars' votes to `R`; the header of B reaches the others Δ after the vote. They receive B' just after that, or
/// before it without its body: then they cannot vote for it and have no proof yet. Their messages take so long to `R`.
fn late_proof(entry: &Entry, is_after: bool, back_ns: u64, stalls: bool) -> Result<(), Failure> {
    // A slow disk takes a hundred times as long.
    let sync_ns = if stalls { 3 * DELTA_NS / 100 } else { 0 };
    let mut planned = PlannedRun::new(entry, 5, &[0, 1], |settings| settings.costs.sync_ns = sync_ns);
    let tip = planned.tip();
    let lock = planned.lock(View(1), tip);
    let (one, mut two) = (planned.first(tip, 1), planned.first(tip, 2));
    two.block.payload = Payload { bundles: vec![bundle_digest(b"nobody has it")] }.id();
    planned.takes(&[R], &[Q, P], None, DELTA_NS);
    planned.takes(&[Q, P], &[R], None, back_ns);
    if stalls {
        let now = planned.world.now();
        [Q, P].iter().for_each(|id| planned.world.plan(now, Plan::Disk(ReplicaId(*id), DiskTrouble::Slow)));
    }
    planned.propose(&[R], &one);
    planned.liars_vote(&[R], &one);
    // The vote leaves when it is durable, and messages take `NEAR_NS`.
    let vote = planned.world.now().plus(sync_ns + NEAR_NS);
    let shown = match () {
        () if is_after => vote.plus(DELTA_NS + 1),
        // In one turn with the header, so all messages wait for the same sync as the vote.
        () if stalls => vote.plus(DELTA_NS),
        () => vote.plus(DELTA_NS / 2),
    };
    planned.world.run_until(shown.minus(NEAR_NS))?;
    planned.propose(&[Q, P], &two);
    planned.world.run_until(vote.plus(DELTA_NS + NEAR_NS))?;
    planned.lead(View(2), lock, &[Q, P], 1)?;
    planned.run(6 * DELTA_NS)?;
    planned.world.heal();
    planned.close()
}

/// Sends a client's bundle to all, and returns a payload of it.
fn spread_bundle(planned: &mut PlannedRun) -> Result<Payload, Failure> {
    let liar = ReplicaId(0);
    planned.world.submit(0, &[incr("n")]);
    for _ in 0..1_000 {
        planned.run(ms(1))?;
        for heard in planned.world.received(liar) {
            let ControlledInput::Client(_, message) = heard else { continue };
            let Ok(FromClient::Bundle { content, .. }) = FromClient::from_bytes(&message) else { continue };
            planned.world.send_frame_as(liar, To::All, frame::BUNDLE, message.slice(1..));
            planned.run(2 * NEAR_NS)?;
            return Ok(Payload { bundles: vec![bundle_digest(&content)] });
        }
    }
    panic!("no bundle has reached the leader");
}

/// asked-once: `R` receives B from a liar without its body, and shows the header in an answer. A proof that the next leader
/// equivocates makes the others ask `R`. So they ask it for the body, in vain. Then `R` receives the body and votes. The
/// others leave the view for another block when the 2 Δ of `R` are almost over.
pub(crate) fn asked_before_it_has_voted(entry: &Entry) -> Result<(), Failure> {
    let mut planned = PlannedRun::new(entry, 5, &[0, 1], |settings| settings.client.audience = Audience::All);
    let payload = spread_bundle(&mut planned)?;
    let tip = planned.tip();
    let lock = planned.lock(View(1), tip);
    let (mut one, two) = (planned.first(tip, 1), planned.first(tip, 2));
    one.block.payload = payload.id();
    planned.votes(1, &[R], &one);
    planned.run(NEAR_NS + ms(1))?;
    let lie = |time_ns| {
        let header = planned.header(View(2), tip, tip.1, time_ns);
        let (by, signature) = (ReplicaId(1), planned.world.sign(ReplicaId(1), &header.statement()));
        Signed { body: LeaderStatement::Header(header), by, signature }
    };
    let evidence = QuitEvidence::Conflict(Box::new((lie(1), lie(2))));
    planned.send(1, &[Q, P], &SyncMessage::Evidence(evidence));
    // A question and its answer, a quarter of Δ, a request and its answer.
    planned.run(5 * NEAR_NS + DELTA_NS / 4 + ms(5))?;
    planned.world.send_frame_as(
        ReplicaId(0),
        To::One(ReplicaId(R)),
        frame::PAYLOAD,
        payload.to_bytes().into(),
    );
    planned.liars_vote(&[R], &one);
    // `R` votes when the body arrives.
    let commits = planned.world.now().plus(NEAR_NS + 2 * DELTA_NS);
    planned.world.run_until(commits.minus(NEAR_NS + ms(5)))?;
    planned.propose(&[Q, P], &two);
    planned.world.run_until(commits.plus(2 * DELTA_NS))?;
    planned.lead(View(2), lock, &[Q, P], 1)?;
    planned.run(6 * DELTA_NS)?;
    planned.close()
}

/// voted-past: `R` votes for B, whose header takes Δ to the others. `Q` receives the block above with the certificate of B,
/// asks `R` for B, receives it at once, and votes. Just after the header of B has arrived, for which it votes no more, `P`
/// learns of another block and leaves the view with two votes for B.
pub(crate) fn voted_past_a_missed_header(entry: &Entry) -> Result<(), Failure> {
    let mut planned = PlannedRun::new(entry, 5, &[0, 1], |_| {});
    let tip = planned.tip();
    let lock = planned.lock(View(1), tip);
    let (one, other) = (planned.first(tip, 1), planned.first(tip, 2));
    let above = planned.first(end_of(&one), 3);
    planned.takes(&[R], &[Q, P], None, DELTA_NS);
    planned.takes(&[Q, P], &[R], None, DELTA_NS);
    planned.takes(&[Q], &[P], None, DELTA_NS);
    planned.takes(&[Q], &[R], Some("host.ask-block"), NEAR_NS);
    planned.takes(&[R], &[Q], Some("host.block"), NEAR_NS);
    planned.propose(&[R], &one);
    planned.liars_vote(&[R], &one);
    let heard = planned.world.now().plus(NEAR_NS + DELTA_NS);
    planned.run(NEAR_NS + 1)?;
    planned.propose(&[Q], &above);
    planned.world.run_until(heard.plus(1).minus(NEAR_NS))?;
    planned.propose(&[P], &other);
    planned.world.run_until(heard.plus(DELTA_NS + NEAR_NS))?;
    planned.lead(View(2), lock, &[P], 1)?;
    planned.run(6 * DELTA_NS)?;
    planned.close()
}

/// no-wait: `Q` and `P` have voted for B and leave the view before their votes reach each other.
pub(crate) fn no_wait(entry: &Entry) -> Result<(), Failure> {
    late_proof(entry, true, DELTA_NS, false)
}

/// tick-first, and a commit timer that is too short: the proof reaches `R` exactly 2 Δ after its vote.
pub(crate) fn proof_at_the_last_moment(entry: &Entry) -> Result<(), Failure> {
    late_proof(entry, false, DELTA_NS, false)
}

/// evidence-held: the disks of `Q` and `P` stall for 3 Δ when they leave the view.
pub(crate) fn evidence_and_a_disk_that_stalls(entry: &Entry) -> Result<(), Failure> {
    late_proof(entry, false, NEAR_NS, true)
}

/// late-vote: the disk of `Q` stalls for 3 Δ during its vote for B'. The liars receive no vote, and show B to the others,
/// which commit it meanwhile. That vote would certify B', and `Q` would extend it with the next leader. `Q` is asked for a
/// block that only its log has, so its turn continues when the disk does.
pub(crate) fn vote_that_leaves_after_a_conflicting_message(entry: &Entry) -> Result<(), Failure> {
    let mut planned =
        PlannedRun::new(entry, 5, &[0, 1], |settings| settings.costs.sync_ns = 3 * DELTA_NS / 100);
    let tip = planned.tip();
    let (one, two) = (planned.first(tip, 1), planned.first(tip, 2));
    planned.world.plan(planned.world.now(), Plan::Disk(ReplicaId(Q), DiskTrouble::Slow));
    planned.propose(&[Q], &two);
    planned.ask_for(0, Q, tip);
    planned.liars_vote(&[Q], &two);
    planned.run(NEAR_NS + ms(5))?;
    planned.world.heal();
    planned.propose(&[R, P], &one);
    planned.liars_vote(&[R, P], &one);
    planned.run(4 * DELTA_NS)?;
    assert!(
        planned.world.decided(ReplicaId(R)) >= one.block.height,
        "the schedule took place: the block is decided"
    );
    if let Some(tip) = planned.certificate(View(1), end_of(&two)) {
        planned.lead(View(2), Lock { responsive: None, tip }, &[Q], 1)?;
    }
    planned.run(6 * DELTA_NS)?;
    planned.close()
}

/// timer-at-handler: the disk of `R` takes 2 Δ for its vote, and the others vote for B' meanwhile.
pub(crate) fn vote_and_a_disk_that_stalls(entry: &Entry) -> Result<(), Failure> {
    let mut planned =
        PlannedRun::new(entry, 5, &[0, 1], |settings| settings.costs.sync_ns = 2 * DELTA_NS / 100);
    let tip = planned.tip();
    let (one, two) = (planned.first(tip, 1), planned.first(tip, 2));
    planned.takes(&[Q, P], &[R], None, DELTA_NS);
    planned.world.plan(planned.world.now(), Plan::Disk(ReplicaId(R), DiskTrouble::Slow));
    planned.propose(&[R], &one);
    planned.run(ms(5))?;
    planned.liars_vote(&[R], &one);
    planned.run(DELTA_NS + NEAR_NS)?;
    planned.propose(&[Q, P], &two);
    planned.run(2 * DELTA_NS)?;
    planned.lead(View(2), planned.lock(View(1), end_of(&two)), &[Q, P], 1)?;
    planned.run(6 * DELTA_NS)?;
    planned.world.heal();
    planned.close()
}

/// first-vote-timer: of seven, 0, 1 and 2 lie. X is certified at 3 alone, and a higher Y above another block at 4 alone. The
/// next leader shows X, and all but 4 extend it; the one after it shows Y, and all but 3 extend it.
pub(crate) fn bases_of_two_heights(entry: &Entry) -> Result<(), Failure> {
    let mut planned = PlannedRun::new(entry, 7, &[0, 1, 2], |_| {});
    let tip = planned.tip();
    let (low, other) = (planned.first(tip, 1), planned.first(tip, 2));
    let high = planned.first(end_of(&other), 3);
    planned.takes(&[3], &[4, 5, 6], None, DELTA_NS);
    planned.takes(&[4], &[3, 5, 6], None, DELTA_NS);
    planned.propose(&[3], &low);
    planned.propose(&[4], &other);
    planned.run(2 * NEAR_NS)?;
    planned.propose(&[4], &high);
    planned.run(2 * NEAR_NS)?;
    let (low, high) = (planned.lock(View(1), end_of(&low)), planned.lock(View(1), end_of(&high)));
    planned.send(0, &[3], &SyncMessage::Certified(low.tip.clone()));
    planned.send(0, &[4], &SyncMessage::Certified(high.tip.clone()));
    // Runs until all have left the first view, and waited.
    planned.run(3 * DELTA_NS)?;
    planned.takes(&[3, 4], &[3, 4, 5, 6], None, NEAR_NS);
    let base = (low.tip.statement.height, low.tip.block());
    planned.send(1, &[3, 5, 6], &SyncMessage::NewView { view: View(2), lock: low });
    planned.liars_send(&[3], &SyncMessage::FirstVote { view: View(2), height: base.0, base: base.1 });
    planned.run(3 * DELTA_NS)?;
    planned.liars_send(&[3, 4, 5, 6], &SyncMessage::Blame(View(2)));
    planned.lead(View(3), high, &[4, 5, 6], 1)?;
    planned.run(6 * DELTA_NS)?;
    planned.close()
}

/// lock-rises, scenario 10: of five, 0 and 2 lie, and 1 leads the second view. A block for which only 3 has voted in the
/// first view is certified, and the certificate is shown to 3 during the second. Returns the next proposal of 1.
pub(crate) fn show_a_withheld_certificate(planned: &mut PlannedRun) -> Result<Header, Failure> {
    let tip = planned.tip();
    let (hidden, other) = (planned.first(tip, 1), planned.first(tip, 2));
    planned.propose(&[3], &hidden);
    planned.propose(&[1, 4], &other);
    let is_shown = |planned: &PlannedRun| {
        let message_log = planned.message_log.borrow();
        message_log.count(|sent| matches!(sent.message, SyncMessage::NewView { .. })) > 0
    };
    while !is_shown(planned) {
        planned.run(ms(5))?;
    }
    planned.run(2 * NEAR_NS)?;
    let certificate = planned.certificate(View(1), end_of(&hidden)).unwrap();
    planned.send(0, &[3], &SyncMessage::Certified(certificate));
    let place = (View(2), tip.0.next());
    while !planned.message_log.borrow().headers.contains_key(&place) {
        planned.run(ms(5))?;
    }
    let proposed = planned.message_log.borrow().headers[&place].clone();
    Ok(proposed)
}

/// 4 commits the next proposal, and without a vote of 3 no other replica receives enough votes. The view ends, and the next
/// leader, which lies, begins below.
pub(crate) fn force_locking(entry: &Entry) -> Result<(), Failure> {
    let mut planned = PlannedRun::new(entry, 5, &[0, 2], |_| {});
    let tip = planned.tip();
    let proposed = show_a_withheld_certificate(&mut planned)?;
    planned.votes(0, &[4], &proposed);
    planned.run(3 * DELTA_NS)?;
    planned.liars_send(&[1, 3, 4], &SyncMessage::Blame(View(2)));
    planned.lead(View(3), planned.lock(View(2), tip), &[1, 3], 1)?;
    planned.run(6 * DELTA_NS)?;
    planned.close()
}
