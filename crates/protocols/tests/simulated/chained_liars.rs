//! Scenarios of chained protocols (`hotstuff` §14, `jolteon` §14) in which a test writes the messages of one replica.
//! The oracles check safety, and that no honest replica is accused.

use crate::chained_support::{
    Content, HotStuff, Listener, PROPOSE, Rules, VOTE, boxed, entry, for_each_rule_set, listen, read,
};
use crate::support::{
    begin, go, incr, level, put, r, refused, settle_honest, spread_bundle, view, wait_for, world_of,
};
use quorate_consensus::parts::chain::{bind_certificate, empty_payload};
use quorate_consensus::parts::timeouts::{TimeoutCertificate, ViewProof};
use quorate_consensus::parts::votes::BlockVote;
use quorate_consensus::{Certificate, Entry, Signed, To};
use quorate_sim::{Audience, ControlledInput, Frame, OpId, Settings, Verdict, World, ms, secs};
use quorate_types::{Block, Digest, Height, Kind, Payload, ReplicaId, ReplicaSet, Statement, View};
use std::cell::RefCell;
use std::rc::Rc;

for_each_rule_set! {
    s04_leader_equivocates_to_two_halves
    s05_leader_proposes_to_few
    s05_collector_withholds_the_certificate
    s05_proposal_on_an_old_certificate_gets_no_vote
    s07_invalid_certificates_are_refused
    s09_timeouts_of_far_views_have_no_effect
    j06_timeout_with_a_low_certificate_does_no_harm
}

/// An idle world in which the leader of a view is a controlled replica, and a listener.
pub(crate) struct ControlledLeader {
    pub(crate) world: World,
    pub(crate) listener: Rc<RefCell<Listener>>,
    pub(crate) controlled: ReplicaId,
    /// The view of all replicas.
    pub(crate) view: View,
}

fn pass(_: &Frame, _: &Listener) -> Verdict {
    Verdict::Pass
}

impl ControlledLeader {
    /// Makes a controlled replica of the leader of the view that is `ahead` views after the idle one.
    fn new<R: Rules>(seed: u64, ahead: u64, change: impl FnOnce(&mut Settings)) -> Self {
        Self::of::<R>(entry::<R>(), seed, ahead, change)
    }

    /// The same with another protocol that has the messages of `R`.
    pub(crate) fn of<R: Rules>(
        entry: &Entry,
        seed: u64,
        ahead: u64,
        change: impl FnOnce(&mut Settings),
    ) -> Self {
        let mut world = world_of(entry, seed, |settings| {
            (settings.checkpoint_every, settings.window) = (64, 128);
            settings.client.audience = Audience::All;
            change(settings);
        });
        let listener = listen::<R>(&mut world, pass);
        begin(&mut world);
        level(&mut world);
        go(world.run_for(secs(1)), &world);
        let at = view(&world, r(0));
        assert!(world.replicas().all(|id| view(&world, id) == at), "idle, and in one view");
        let controlled = r(u16::try_from((at.0 + ahead) % 4).unwrap());
        world.take_control(controlled);
        listener.borrow_mut().ignores = Some(controlled);
        Self { world, listener, controlled, view: at }
    }

    pub(crate) fn send<R: Rules>(&mut self, to: To, said: Content) {
        self.world.send_as(self.controlled, to, boxed::<R>(said).as_ref());
    }

    /// Returns a block of the controlled replica in the current view, on the highest certificate.
    fn block(&self, payload: &Payload, time_ns: u64) -> Block {
        self.block_on(&self.listener.borrow().high(), self.view, payload, time_ns)
    }

    pub(crate) fn block_on(&self, qc: &Certificate, view: View, payload: &Payload, time_ns: u64) -> Block {
        Block {
            parent: qc.block(),
            height: self.listener.borrow().height(qc.block()).next(),
            view,
            proposer: self.controlled,
            time_ns,
            payload: payload.id(),
            extra: bind_certificate(qc.view(), qc.block()),
        }
    }

    pub(crate) fn others(&self) -> Vec<ReplicaId> {
        self.world.replicas().filter(|id| *id != self.controlled).collect()
    }

    /// Runs until all requests are answered and all honest replicas agree.
    pub(crate) fn recovers(&mut self, ids: &[OpId]) {
        wait_for(&mut self.world, ids, secs(10));
        settle_honest(&mut self.world);
    }

    /// Returns the replicas that have sent votes of a view to others.
    pub(crate) fn voters(&self, view: View) -> ReplicaSet {
        let listener = self.listener.borrow();
        listener.votes.iter().filter(|(_, vote)| vote.body.view == view).map(|(_, vote)| vote.by).collect()
    }
}

fn some(ids: &[ReplicaId]) -> To {
    To::Some(ids.iter().copied().collect::<ReplicaSet>())
}

pub(crate) fn follows(qc: Certificate) -> ViewProof {
    ViewProof { qc, timeouts: None }
}

/// S4: the leader sends two blocks to two halves, and votes for both. At most one block is certified, and each request is
/// executed once.
fn s04_leader_equivocates_to_two_halves<R: Rules>() {
    for (seed, first, second) in [(1, 0..1, 1..3), (2, 0..2, 1..3), (3, 0..3, 0..0)] {
        let mut setup = ControlledLeader::new::<R>(400 + seed, 0, |_| {});
        let ids = setup.world.submit(0, &[incr("n"), incr("n")]);
        let payload = spread_bundle(&mut setup.world, setup.controlled);
        let others = setup.others();
        let proof = follows(setup.listener.borrow().high());
        for (group, time_ns) in [(first, 1), (second, 2)] {
            let block = setup.block(&payload, time_ns);
            let vote = BlockVote { view: setup.view, block: block.id() };
            let group = &others[group];
            setup.send::<R>(some(group), Content::Propose(block, proof.clone()));
            setup.send::<R>(To::All, Content::Vote(vote));
        }
        setup.recovers(&ids);
    }
}

/// S5: f + 1 replicas alone receive a proposal. It may be certified with the leader's own vote. It costs two views at most.
fn s05_leader_proposes_to_few<R: Rules>() {
    for (seed, votes) in [(1, true), (2, false)] {
        let mut setup = ControlledLeader::new::<R>(500 + seed, 0, |_| {});
        let ids = setup.world.submit(0, &[incr("n"), incr("n")]);
        let payload = spread_bundle(&mut setup.world, setup.controlled);
        let (block, others) = (setup.block(&payload, 1), setup.others());
        let proof = follows(setup.listener.borrow().high());
        let vote = BlockVote { view: setup.view, block: block.id() };
        setup.send::<R>(some(&others[..2]), Content::Propose(block, proof));
        if votes {
            setup.send::<R>(To::All, Content::Vote(vote));
        }
        let before = setup.view;
        let failed = |world: &World| world.status(others[0]).unwrap().view_changes;
        let so_far = failed(&setup.world);
        wait_for(&mut setup.world, &ids, secs(10));
        assert!(failed(&setup.world) - so_far <= 2, "two views at most from {before}");
        setup.recovers(&ids);
    }
}

/// S5, and test 3 of Jolteon: the collector of the votes for a block is silent. Timeouts carry the votes as well, so the block is
/// certified and committed all the same.
fn s05_collector_withholds_the_certificate<R: Rules>() {
    let mut setup = ControlledLeader::new::<R>(510, 1, |_| {});
    let at = setup.view;
    let ids = setup.world.submit(0, &[incr("n")]);
    wait_for(&mut setup.world, &ids, secs(10));
    let listener = Rc::clone(&setup.listener);
    let qc = listener.borrow().certificate(at).cloned().unwrap();
    let voters = setup.voters(at);
    assert!(qc.signers.iter().all(|by| voters.contains(by)));
    let block = listener.borrow().blocks[&qc.block()].clone();
    assert!(block.payload != empty_payload() && setup.world.height() >= block.height, "{block:?}");
    setup.recovers(&ids);
}

/// S5, and test 5 of Jolteon: after a failed view a leader proposes on an old certificate. The proposal gets no vote.
fn s05_proposal_on_an_old_certificate_gets_no_vote<R: Rules>() {
    let mut setup = ControlledLeader::new::<R>(520, 1, |_| {});
    let (at, controlled) = (setup.view, setup.controlled);
    // The view before the controlled replica's fails: its proposal is lost.
    let listener = listen::<R>(&mut setup.world, move |frame, _| {
        let lost = frame.content.kind == PROPOSE && frame.content.view == at;
        if lost { Verdict::Drop } else { Verdict::Pass }
    });
    std::mem::swap(&mut *listener.borrow_mut(), &mut *setup.listener.borrow_mut());
    setup.listener = listener;
    let ids = setup.world.submit(0, &[incr("n")]);
    let next = at.next();
    let others = setup.others();
    go(
        setup
            .world
            .run_while("the view fails", secs(10), |world| others.iter().any(|id| view(world, *id) < next)),
        &setup.world,
    );
    let proof = setup.listener.borrow().proof();
    let timeouts = proof.timeouts.clone().unwrap();
    // Listed certificates let the intake refuse the proposal. A lock lets each replica refuse its vote.
    let (listed, age, refusals) =
        if R::TIMEOUTS_LIST_CERTIFICATES { (proof.qc.view(), 1, 3) } else { (View::ZERO, 2, 0) };
    assert_eq!((timeouts.view, timeouts.high()), (at, listed));
    let older = View(proof.qc.view().0 - age);
    let older = setup.listener.borrow().certificate(older).cloned().unwrap();
    let wrong = setup.block_on(&older, next, &Payload::default(), 1);
    let before = refused(&setup.world, "certificate below what timeouts list");
    setup
        .send::<R>(To::All, Content::Propose(wrong.clone(), ViewProof { qc: older.clone(), timeouts: None }));
    let wrong = setup.block_on(&older, next, &Payload::default(), 2);
    let shown = ViewProof { qc: older, timeouts: Some(timeouts) };
    setup.send::<R>(To::All, Content::Propose(wrong, shown));
    go(setup.world.run_for(ms(100)), &setup.world);
    assert_eq!(refused(&setup.world, "certificate below what timeouts list") - before, refusals);
    assert!(setup.voters(next).is_empty() && !setup.world.is_honest(controlled), "no replica votes for it");
    setup.recovers(&ids);
}

/// Invalid proofs, and what is wrong with each.
fn wrong_proofs<R: Rules>(setup: &ControlledLeader) -> Vec<(&'static str, ViewProof)> {
    let world = &setup.world;
    let good = setup.listener.borrow().high();
    let view = setup.view;
    let sign = |by: ReplicaId, statement: &Statement| (by, world.sign(by, statement));
    let all: Vec<ReplicaId> = world.replicas().collect();
    let votes = |kind: Kind, view: View, by: &[ReplicaId]| {
        let block = good.block();
        let statement = BlockVote { view, block }.statement(kind);
        let listed: Vec<_> = by.iter().map(|by| sign(*by, &statement)).collect();
        (statement, listed)
    };
    let qc_of = |(statement, listed): (Statement, Vec<_>)| Certificate::of(statement, &listed);
    let controlled = setup.controlled;
    let mut cases = Vec::new();
    // One replica alone.
    cases.push(("one vote", follows(qc_of(votes(VOTE, view, &[controlled])))));
    let (statement, listed) = votes(VOTE, view, &[controlled]);
    cases.push(("one vote three times", follows(Certificate::of(statement, &[listed[0]; 3]))));
    // The signatures of another certificate.
    let mut moved = good.clone();
    moved.statement.view = view;
    cases.push(("votes of another view", follows(moved)));
    let mut other = good.clone();
    other.statement.subject = Digest([7; 32]);
    other.statement.view = view;
    cases.push(("votes for another block", follows(other)));
    // Valid signatures under other statements than votes.
    cases.push(("timeouts as votes", follows(qc_of(votes(R::TIMEOUT, view, &all[..3])))));
    let mut renamed = qc_of(votes(R::TIMEOUT, view, &all[..3]));
    renamed.statement.kind = VOTE;
    cases.push(("timeouts renamed to votes", follows(renamed)));
    let mut high = votes(VOTE, view, &all[..3]).0;
    high.height = Height(9);
    let listed: Vec<_> = all[..3].iter().map(|by| sign(*by, &high)).collect();
    cases.push(("votes with a height", follows(Certificate::of(high, &listed))));
    let mut nobody = Certificate::genesis(VOTE);
    nobody.statement.view = view;
    cases.push(("no votes", follows(nobody)));
    let mut genesis = Certificate::genesis(VOTE);
    genesis.statement.subject = good.statement.subject;
    cases.push(("another genesis", follows(genesis)));
    let timeouts = |view: View, listed: &[(ReplicaId, View, View)]| {
        let listed = listed.iter().map(|(by, shown, signed)| {
            let statement = quorate_consensus::parts::timeouts::timeout_statement(R::TIMEOUT, view, *signed);
            Signed { body: *shown, by: *by, signature: world.sign(*by, &statement) }
        });
        let timeouts = Some(TimeoutCertificate { view, listed: listed.collect() });
        ViewProof { qc: good.clone(), timeouts }
    };
    let (high, none) = (good.view(), View::ZERO);
    let by = |at: usize| (all[at], high, high);
    cases.push(("two timeouts", timeouts(view, &[by(0), by(1)])));
    cases.push(("a timeout twice", timeouts(view, &[by(0), by(0), by(1)])));
    cases.push(("out of order", timeouts(view, &[by(1), by(0), by(2)])));
    cases.push(("lists less than was signed", timeouts(view, &[by(0), by(1), (all[2], none, high)])));
    cases.push(("lists more than was signed", timeouts(view, &[by(0), by(1), (all[2], high, none)])));
    cases.push(("lists its own view", timeouts(view, &[by(0), by(1), (all[2], view, view)])));
    cases.push(("no timeouts", timeouts(view, &[])));
    cases
}

/// S7, and test 8 of Jolteon: all replicas refuse each invalid proof in each message, and stay in their view.
fn s07_invalid_certificates_are_refused<R: Rules>() {
    let mut setup = ControlledLeader::new::<R>(700, 0, |_| {});
    let (at, others) = (setup.view, setup.others());
    for (what, proof) in wrong_proofs::<R>(&setup) {
        let total = |world: &World| world.rejected().values().sum::<u64>();
        let before = total(&setup.world);
        setup.send::<R>(To::All, Content::Advance(proof.clone()));
        setup.send::<R>(To::All, Content::Timeout(at, proof.clone(), None));
        let block = setup.block_on(&proof.qc, at, &Payload::default(), 1);
        setup.send::<R>(To::All, Content::Propose(block, proof));
        go(setup.world.run_for(ms(100)), &setup.world);
        assert!(total(&setup.world) - before >= 9, "{what}: three replicas refuse three messages");
        assert!(others.iter().all(|id| view(&setup.world, *id) == at), "{what}");
        assert!(setup.voters(at).is_empty(), "{what}");
    }
    // A vote in a timeout that its replica has not signed.
    let proof = follows(setup.listener.borrow().high());
    let body = BlockVote { view: at, block: proof.qc.block() };
    let signature = setup.world.sign(setup.controlled, &body.statement(R::TIMEOUT));
    for by in [setup.controlled, others[0]] {
        let vote = Some(Signed { body, by, signature });
        setup.send::<R>(To::All, Content::Timeout(at, proof.clone(), vote));
    }
    go(setup.world.run_for(ms(100)), &setup.world);
    let ids = setup.world.submit(0, &[incr("n")]);
    setup.recovers(&ids);
}

/// S9: one replica sends thousands of timeouts of views far ahead. No view changes, and the others keep none of them.
fn s09_timeouts_of_far_views_have_no_effect<R: Rules>() {
    let mut setup = ControlledLeader::new::<R>(900, 0, |_| {});
    let (at, others) = (setup.view, setup.others());
    let proof = follows(setup.listener.borrow().high());
    for number in 0..2_000u64 {
        let far = View((1 << 60) + number);
        setup.send::<R>(To::All, Content::Timeout(far, proof.clone(), None));
        setup.send::<R>(To::All, Content::Timeout(View(at.0 + 1 + number % 8), proof.clone(), None));
        let vote = BlockVote { view: View(at.0 + number), block: proof.qc.block() };
        setup.send::<R>(To::All, Content::Vote(vote));
        go(setup.world.run_for(50_000), &setup.world);
    }
    go(setup.world.run_for(secs(2)), &setup.world);
    assert!(others.iter().all(|id| view(&setup.world, *id) == at));
    let ids = setup.world.submit(0, &[incr("n")]);
    setup.recovers(&ids);
}

/// S12: complaints go to the next leader alone, which sends the certificate of them to one replica. That replica's answers to
/// the others' complaints let these on.
#[test]
fn s12_collector_of_complaints_sends_the_certificate_to_one() {
    let mut setup = ControlledLeader::new::<HotStuff>(1200, 1, |settings| {
        settings.set("complaints", "linear");
    });
    let at = setup.view;
    let listener = listen::<HotStuff>(&mut setup.world, move |frame, _| {
        let lost = frame.content.kind == PROPOSE && frame.content.view == at;
        if lost { Verdict::Drop } else { Verdict::Pass }
    });
    std::mem::swap(&mut *listener.borrow_mut(), &mut *setup.listener.borrow_mut());
    setup.listener = listener;
    let ids = setup.world.submit(0, &[incr("n")]);
    let mut listed = std::collections::BTreeMap::new();
    for _ in 0..5_000 {
        go(setup.world.run_for(ms(1)), &setup.world);
        for heard in setup.world.received(setup.controlled) {
            let ControlledInput::Frame { from, body, .. } = heard else { continue };
            let Some((bytes, signature)) = body.split_last_chunk::<64>() else { continue };
            if let Some(Content::Timeout(view, proof, _)) = read::<HotStuff>(bytes)
                && view == at
            {
                let signature = quorate_types::Signature(*signature);
                listed.insert(from, Signed { body: proof.qc.view(), by: from, signature });
            }
        }
        if listed.len() == 3 {
            break;
        }
    }
    assert_eq!(listed.len(), 3, "all complain to the next leader");
    let timeouts = TimeoutCertificate { view: at, listed: listed.into_values().collect() };
    let proof = ViewProof { qc: setup.listener.borrow().high(), timeouts: Some(timeouts) };
    let one = setup.others()[0];
    setup.send::<HotStuff>(To::One(one), Content::Advance(proof));
    setup.recovers(&ids);
}

/// Test 6 of Jolteon: a timeout of a Byzantine replica carries the certificate of genesis. Those of a quorum are high enough all
/// the same.
fn j06_timeout_with_a_low_certificate_does_no_harm<R: Rules>() {
    let mut setup = ControlledLeader::new::<R>(1300, 0, |_| {});
    let ids = setup.world.submit(0, &[put("k", 1)]);
    let low = follows(Certificate::genesis(VOTE));
    for _ in 0..10 {
        let at = setup.others().iter().map(|id| view(&setup.world, *id)).max().unwrap();
        let proof = setup.listener.borrow().proof();
        let timeouts = proof.timeouts.filter(|timeouts| timeouts.high() == View::ZERO);
        setup.send::<R>(To::All, Content::Timeout(at, low.clone(), None));
        setup.send::<R>(To::All, Content::Timeout(at, ViewProof { timeouts, ..low.clone() }, None));
        go(setup.world.run_for(ms(100)), &setup.world);
    }
    setup.recovers(&ids);
}
