//! Scenarios of chained protocols (`hotstuff` §14, `jolteon` §14) in which one replica says what a test writes for it.
//! The oracles watch over safety, and that nobody honest is taken for a liar.

use crate::support::{
    begin, go, incr, level, put, r, refused, settle_honest, spread_bundle, view, wait_for, world_of,
};
use crate::words::{Ear, HotStuff, Said, Words, both_chained, listen};
use quorate_consensus::parts::chain::{bind_certificate, empty_payload};
use quorate_consensus::parts::timeouts::{TimeoutCertificate, ViewProof};
use quorate_consensus::parts::votes::BlockVote;
use quorate_consensus::{Certificate, Signed, To};
use quorate_sim::{Audience, ControlledInput, Frame, OpId, Settings, Verdict, World, ms, secs};
use quorate_types::{Block, Digest, Height, Kind, Payload, ReplicaId, ReplicaSet, Statement, View};
use std::cell::RefCell;
use std::rc::Rc;

both_chained! {
    s04_a_leader_tells_two_halves_two_things
    s05_a_leader_that_proposes_to_few
    s05_a_collector_that_keeps_the_certificate
    s05_a_justify_older_than_the_timeouts_list
    s07_what_is_no_certificate
    s09_complaints_of_views_that_nobody_has_seen
    j06_a_complaint_that_lists_too_little
}

/// A world at rest, the leader of whose view is a controlled replica, and an ear.
struct Stage {
    world: World,
    ear: Rc<RefCell<Ear>>,
    controlled: ReplicaId,
    /// The view in which everybody waits.
    view: View,
}

fn pass(_: &Frame, _: &Ear) -> Verdict {
    Verdict::Pass
}

impl Stage {
    /// The controlled replica is who leads the view so many after that in which all is quiet.
    fn new<W: Words>(seed: u64, ahead: u64, change: impl FnOnce(&mut Settings)) -> Self {
        let entry = quorate_protocols::find(W::NAME).unwrap();
        let mut world = world_of(entry, seed, |settings| {
            (settings.checkpoint_every, settings.window) = (64, 128);
            settings.client.audience = Audience::All;
            change(settings);
        });
        let ear = listen::<W>(&mut world, pass);
        begin(&mut world);
        level(&mut world);
        go(world.run_for(secs(1)), &world);
        let at = view(&world, r(0));
        assert!(world.replicas().all(|id| view(&world, id) == at), "quiet, and in one view");
        let controlled = r(u16::try_from((at.0 + ahead) % 4).unwrap());
        world.take_control(controlled);
        ear.borrow_mut().ignores = Some(controlled);
        Self { world, ear, controlled, view: at }
    }

    fn say<W: Words>(&mut self, to: To, said: Said) {
        self.world.send_as(self.controlled, to, W::say(said).as_ref());
    }

    /// A block of the controlled replica in the current view, on the highest certificate.
    fn block(&self, payload: &Payload, time_ns: u64) -> Block {
        self.block_on(&self.ear.borrow().high(), self.view, payload, time_ns)
    }

    fn block_on(&self, qc: &Certificate, view: View, payload: &Payload, time_ns: u64) -> Block {
        Block {
            parent: qc.block(),
            height: self.ear.borrow().height(qc.block()).next(),
            view,
            proposer: self.controlled,
            time_ns,
            payload: payload.id(),
            extra: bind_certificate(qc.view(), qc.block()),
        }
    }

    fn others(&self) -> Vec<ReplicaId> {
        self.world.replicas().filter(|id| *id != self.controlled).collect()
    }

    /// All is answered, and all honest replicas agree.
    fn recovers(&mut self, ids: &[OpId]) {
        wait_for(&mut self.world, ids, secs(10));
        settle_honest(&mut self.world);
    }

    /// Who has voted in a view, as far as it left for others.
    fn voters(&self, view: View) -> ReplicaSet {
        let ear = self.ear.borrow();
        ear.votes.iter().filter(|(_, vote)| vote.body.view == view).map(|(_, vote)| vote.by).collect()
    }
}

fn some(ids: &[ReplicaId]) -> To {
    To::Some(ids.iter().copied().collect::<ReplicaSet>())
}

fn follows(qc: Certificate) -> ViewProof {
    ViewProof { qc, timeouts: None }
}

/// S4: the leader shows two blocks to two halves, and votes for both. At most one of them is certified, and what was
/// asked is executed once.
fn s04_a_leader_tells_two_halves_two_things<W: Words>() {
    for (seed, first, second) in [(1, 0..1, 1..3), (2, 0..2, 1..3), (3, 0..3, 0..0)] {
        let mut stage = Stage::new::<W>(400 + seed, 0, |_| {});
        let ids = stage.world.submit(0, &[incr("n"), incr("n")]);
        let payload = spread_bundle(&mut stage.world, stage.controlled);
        let others = stage.others();
        let proof = follows(stage.ear.borrow().high());
        for (group, time_ns) in [(first, 1), (second, 2)] {
            let block = stage.block(&payload, time_ns);
            let vote = BlockVote { view: stage.view, block: block.id() };
            let group = &others[group];
            stage.say::<W>(some(group), Said::Propose(block, proof.clone()));
            stage.say::<W>(To::All, Said::Vote(vote));
        }
        stage.recovers(&ids);
    }
}

/// S5: a proposal for f + 1 only: with the leader's own vote it may be certified or not; it costs two views at most.
fn s05_a_leader_that_proposes_to_few<W: Words>() {
    for (seed, votes) in [(1, true), (2, false)] {
        let mut stage = Stage::new::<W>(500 + seed, 0, |_| {});
        let ids = stage.world.submit(0, &[incr("n"), incr("n")]);
        let payload = spread_bundle(&mut stage.world, stage.controlled);
        let (block, others) = (stage.block(&payload, 1), stage.others());
        let proof = follows(stage.ear.borrow().high());
        let vote = BlockVote { view: stage.view, block: block.id() };
        stage.say::<W>(some(&others[..2]), Said::Propose(block, proof));
        if votes {
            stage.say::<W>(To::All, Said::Vote(vote));
        }
        let before = stage.view;
        let failed = |world: &World| world.status(others[0]).unwrap().view_changes;
        let so_far = failed(&stage.world);
        wait_for(&mut stage.world, &ids, secs(10));
        assert!(failed(&stage.world) - so_far <= 2, "two views at most from {before}");
        stage.recovers(&ids);
    }
}

/// S5, and test 3 of Jolteon: the votes for a block go to somebody who says nothing. They are in the complaints as well,
/// so that the block is certified all the same, and committed where it stands.
fn s05_a_collector_that_keeps_the_certificate<W: Words>() {
    let mut stage = Stage::new::<W>(510, 1, |_| {});
    let at = stage.view;
    let ids = stage.world.submit(0, &[incr("n")]);
    wait_for(&mut stage.world, &ids, secs(10));
    let ear = Rc::clone(&stage.ear);
    let qc = ear.borrow().certificate(at).cloned().unwrap();
    let voters = stage.voters(at);
    assert!(qc.signers.iter().all(|by| voters.contains(by)));
    let block = ear.borrow().blocks[&qc.block()].clone();
    assert!(block.payload != empty_payload() && stage.world.height() >= block.height, "{block:?}");
    stage.recovers(&ids);
}

/// S5, and test 5 of Jolteon: a leader that shows who has given the view before up, and a certificate that is older than
/// what they list. Nobody votes for its block.
fn s05_a_justify_older_than_the_timeouts_list<W: Words>() {
    let mut stage = Stage::new::<W>(520, 1, |_| {});
    let (at, controlled) = (stage.view, stage.controlled);
    // The view before the controlled replica's leads to nothing: its proposal is lost.
    let ear = listen::<W>(&mut stage.world, move |frame, _| {
        let lost = frame.content.kind == W::PROPOSE && frame.content.view == at;
        if lost { Verdict::Drop } else { Verdict::Pass }
    });
    std::mem::swap(&mut *ear.borrow_mut(), &mut *stage.ear.borrow_mut());
    stage.ear = ear;
    let ids = stage.world.submit(0, &[incr("n")]);
    let next = at.next();
    let others = stage.others();
    go(
        stage.world.run_while("the view is given up", secs(10), |world| {
            others.iter().any(|id| view(world, *id) < next)
        }),
        &stage.world,
    );
    let proof = stage.ear.borrow().proof();
    let timeouts = proof.timeouts.clone().unwrap();
    assert_eq!((timeouts.view, timeouts.high()), (at, proof.qc.view()));
    let older = View(proof.qc.view().0 - 1);
    let older = stage.ear.borrow().certificate(older).cloned().unwrap();
    let wrong = stage.block_on(&older, next, &Payload::default(), 1);
    let before = refused(&stage.world, "certificate below what timeouts list");
    stage.say::<W>(To::All, Said::Propose(wrong.clone(), ViewProof { qc: older.clone(), timeouts: None }));
    let wrong = stage.block_on(&older, next, &Payload::default(), 2);
    let shown = ViewProof { qc: older, timeouts: Some(timeouts) };
    stage.say::<W>(To::All, Said::Propose(wrong, shown));
    go(stage.world.run_for(ms(100)), &stage.world);
    assert_eq!(refused(&stage.world, "certificate below what timeouts list") - before, 3);
    assert!(stage.voters(next).is_empty() && !stage.world.is_honest(controlled), "nobody votes for it");
    stage.recovers(&ids);
}

/// Certificates and timeouts that are none, and why.
fn wrong_proofs<W: Words>(stage: &Stage) -> Vec<(&'static str, ViewProof)> {
    let world = &stage.world;
    let good = stage.ear.borrow().high();
    let view = stage.view;
    let sign = |by: ReplicaId, statement: &Statement| (by, world.sign(by, statement));
    let all: Vec<ReplicaId> = world.replicas().collect();
    let votes = |kind: Kind, view: View, by: &[ReplicaId]| {
        let block = good.block();
        let statement = BlockVote { view, block }.statement(kind);
        let listed: Vec<_> = by.iter().map(|by| sign(*by, &statement)).collect();
        (statement, listed)
    };
    let qc_of = |(statement, listed): (Statement, Vec<_>)| Certificate::of(statement, &listed);
    let controlled = stage.controlled;
    let mut cases = Vec::new();
    // One replica alone.
    cases.push(("one vote", follows(qc_of(votes(W::VOTE, view, &[controlled])))));
    let (statement, listed) = votes(W::VOTE, view, &[controlled]);
    cases.push(("one vote three times", follows(Certificate::of(statement, &[listed[0]; 3]))));
    // The signatures of another certificate.
    let mut moved = good.clone();
    moved.statement.view = view;
    cases.push(("votes of another view", follows(moved)));
    let mut other = good.clone();
    other.statement.subject = Digest([7; 32]);
    other.statement.view = view;
    cases.push(("votes for another block", follows(other)));
    // Right signatures under what is no vote.
    cases.push(("complaints as votes", follows(qc_of(votes(W::GIVE_UP, view, &all[..3])))));
    let mut renamed = qc_of(votes(W::GIVE_UP, view, &all[..3]));
    renamed.statement.kind = W::VOTE;
    cases.push(("complaints called votes", follows(renamed)));
    let mut high = votes(W::VOTE, view, &all[..3]).0;
    high.height = Height(9);
    let listed: Vec<_> = all[..3].iter().map(|by| sign(*by, &high)).collect();
    cases.push(("votes with a height", follows(Certificate::of(high, &listed))));
    let mut nobody = Certificate::genesis(W::VOTE);
    nobody.statement.view = view;
    cases.push(("nobody's", follows(nobody)));
    let mut genesis = Certificate::genesis(W::VOTE);
    genesis.statement.subject = good.statement.subject;
    cases.push(("another genesis", follows(genesis)));
    let timeouts = |view: View, listed: &[(ReplicaId, View, View)]| {
        let listed = listed.iter().map(|(by, shown, signed)| {
            let statement = quorate_consensus::parts::timeouts::timeout_statement(W::GIVE_UP, view, *signed);
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
    cases.push(("none at all", timeouts(view, &[])));
    cases
}

/// S7, and test 8 of Jolteon: each is refused by all, whatever it stands in, and moves nobody.
fn s07_what_is_no_certificate<W: Words>() {
    let mut stage = Stage::new::<W>(700, 0, |_| {});
    let (at, others) = (stage.view, stage.others());
    for (what, proof) in wrong_proofs::<W>(&stage) {
        let total = |world: &World| world.rejected().values().sum::<u64>();
        let before = total(&stage.world);
        stage.say::<W>(To::All, Said::Show(proof.clone()));
        stage.say::<W>(To::All, Said::GiveUp(at, proof.clone(), None));
        let block = stage.block_on(&proof.qc, at, &Payload::default(), 1);
        stage.say::<W>(To::All, Said::Propose(block, proof));
        go(stage.world.run_for(ms(100)), &stage.world);
        assert!(total(&stage.world) - before >= 9, "{what}: three replicas refuse three messages");
        assert!(others.iter().all(|id| view(&stage.world, *id) == at), "{what}");
        assert!(stage.voters(at).is_empty(), "{what}");
    }
    // A vote in a complaint that its replica has not signed.
    let proof = follows(stage.ear.borrow().high());
    let body = BlockVote { view: at, block: proof.qc.block() };
    let signature = stage.world.sign(stage.controlled, &body.statement(W::GIVE_UP));
    for by in [stage.controlled, others[0]] {
        let vote = Some(Signed { body, by, signature });
        stage.say::<W>(To::All, Said::GiveUp(at, proof.clone(), vote));
    }
    go(stage.world.run_for(ms(100)), &stage.world);
    let ids = stage.world.submit(0, &[incr("n")]);
    stage.recovers(&ids);
}

/// S9: one liar gives up views that nobody has seen, thousands of times. No view changes, and nothing is kept of it.
fn s09_complaints_of_views_that_nobody_has_seen<W: Words>() {
    let mut stage = Stage::new::<W>(900, 0, |_| {});
    let (at, others) = (stage.view, stage.others());
    let proof = follows(stage.ear.borrow().high());
    for number in 0..2_000u64 {
        let far = View((1 << 60) + number);
        stage.say::<W>(To::All, Said::GiveUp(far, proof.clone(), None));
        stage.say::<W>(To::All, Said::GiveUp(View(at.0 + 1 + number % 8), proof.clone(), None));
        let vote = BlockVote { view: View(at.0 + number), block: proof.qc.block() };
        stage.say::<W>(To::All, Said::Vote(vote));
        go(stage.world.run_for(50_000), &stage.world);
    }
    go(stage.world.run_for(secs(2)), &stage.world);
    assert!(others.iter().all(|id| view(&stage.world, *id) == at));
    let ids = stage.world.submit(0, &[incr("n")]);
    stage.recovers(&ids);
}

/// S12, with complaints that go to the next leader alone: Jolteon has none.
#[test]
fn s12_a_collector_that_tells_one() {
    a_collector_tells_one::<HotStuff>();
}

/// The next leader, to whom all have complained, shows what it makes of them to one replica only. That one's answers
/// to the others' complaints let them on.
fn a_collector_tells_one<W: Words>() {
    let mut stage = Stage::new::<W>(1200, 1, |settings| {
        settings.set("complaints", "linear");
    });
    let at = stage.view;
    let ear = listen::<W>(&mut stage.world, move |frame, _| {
        let lost = frame.content.kind == W::PROPOSE && frame.content.view == at;
        if lost { Verdict::Drop } else { Verdict::Pass }
    });
    std::mem::swap(&mut *ear.borrow_mut(), &mut *stage.ear.borrow_mut());
    stage.ear = ear;
    let ids = stage.world.submit(0, &[incr("n")]);
    let mut listed = std::collections::BTreeMap::new();
    for _ in 0..5_000 {
        go(stage.world.run_for(ms(1)), &stage.world);
        for heard in stage.world.received(stage.controlled) {
            let ControlledInput::Frame { from, body, .. } = heard else { continue };
            let Some((bytes, signature)) = body.split_last_chunk::<64>() else { continue };
            if let Some(Said::GiveUp(view, proof, _)) = W::read(bytes)
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
    assert_eq!(listed.len(), 3, "all complain to the one who leads next");
    let timeouts = TimeoutCertificate { view: at, listed: listed.into_values().collect() };
    let proof = ViewProof { qc: stage.ear.borrow().high(), timeouts: Some(timeouts) };
    let one = stage.others()[0];
    stage.say::<W>(To::One(one), Said::Show(proof));
    stage.recovers(&ids);
}

/// Test 6 of Jolteon: a liar's complaint lists the certificate of genesis; what a quorum lists is high enough all the same.
fn j06_a_complaint_that_lists_too_little<W: Words>() {
    let mut stage = Stage::new::<W>(1300, 0, |_| {});
    let ids = stage.world.submit(0, &[put("k", 1)]);
    let low = follows(Certificate::genesis(W::VOTE));
    for _ in 0..10 {
        let at = stage.others().iter().map(|id| view(&stage.world, *id)).max().unwrap();
        let proof = stage.ear.borrow().proof();
        let timeouts = proof.timeouts.filter(|timeouts| timeouts.high() == View::ZERO);
        stage.say::<W>(To::All, Said::GiveUp(at, low.clone(), None));
        stage.say::<W>(To::All, Said::GiveUp(at, ViewProof { timeouts, ..low.clone() }, None));
        go(stage.world.run_for(ms(100)), &stage.world);
    }
    stage.recovers(&ids);
}
