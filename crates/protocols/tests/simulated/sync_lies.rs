//! More scenarios of `sync-hotstuff` §14: schedules of liars, costs, and a stalled disk. Of five replicas, 0 and 1 lie unless
//! a test states otherwise.

use crate::support::{begin, go, level, put, r, settle, wait_for};
use crate::sync_exact_world::{
    DELTA_NS, NEAR_NS, both_synchronous, exact, listen, optsync, sync_hotstuff, view,
};
use crate::sync_museum::ROWS;
use crate::sync_planned_run::{End, PlannedRun};
use crate::sync_schedules::{
    evidence_and_a_disk_that_stalls, show_a_withheld_certificate, vote_and_a_disk_that_stalls,
};
use quorate_consensus::{Entry, Signed, To};
use quorate_protocols::sync_hotstuff::{Header, QuitEvidence, SyncMessage};
use quorate_sim::{Bytes, DiskTrouble, Plan, Verdict, World, ms, secs};
use quorate_types::wire::frame;
use quorate_types::{Height, ReplicaId, View};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;

both_synchronous! {
    s05_two_bases_of_different_height_end_the_view
    s09_votes_to_one_replica_alone_cause_no_fork
    s10_withheld_certificate_stops_no_replica
    s11_repeated_votes_and_garbage_form_no_certificate
    s18_stalled_disk_delays_only_votes
}

const R: u16 = 2;
const Q: u16 = 3;
const P: u16 = 4;

fn end_of(header: &Header) -> End {
    (header.block.height, header.block.id())
}

/// S1: each replica commits a block 2 Δ after its vote has left. The vote of the leader leaves a sync after the proposal,
/// those of the others δ and a sync after it. There are eight messages.
#[test]
fn s01_block_has_its_documented_cost() {
    for sync_ns in [0, ms(5)] {
        let mut world = exact(sync_hotstuff(), 3, 1, |settings| {
            settings.costs.sync_ns = sync_ns;
            settings.client.retry_ns = secs(3);
        });
        let message_log = listen(&mut world, |_, _| Verdict::Pass);
        begin(&mut world);
        level(&mut world);
        for _ in 0..5 {
            // Empty blocks follow each other alone.
            let height = world.decided(r(0));
            let mut took = BTreeMap::new();
            let mut look = |world: &World| {
                for id in world.replicas().filter(|id| world.decided(*id) > height) {
                    took.entry(id).or_insert(world.now());
                }
                took.len() < 3
            };
            go(world.run_while("all have committed a block", secs(2), &mut look), &world);
            let at = message_log.borrow().proposed((View(1), height.next())).unwrap();
            for (id, decided) in took {
                let delay_ns = if id == r(0) { 0 } else { NEAR_NS };
                let expected = delay_ns + sync_ns + 2 * DELTA_NS;
                let took = decided.since(at);
                // A nanosecond for each turn.
                assert!((expected..expected + 10).contains(&took), "{id}: {took}, not {expected}");
            }
            let messages = message_log.borrow().count(|sent| match &sent.message {
                SyncMessage::Propose { header, .. } => header.block.height == height.next(),
                SyncMessage::Vote(header) => header.body.block.height == height.next(),
                _ => false,
            });
            assert_eq!(messages, 8);
        }
    }
}

/// S5: two NEW-VIEWs with bases of different height, one for `R` and one for the others. Each replica extends its own base.
/// The bases conflict, all leave, and no timer commits on either branch.
fn s05_two_bases_of_different_height_end_the_view(entry: &Entry) {
    let mut planned = PlannedRun::new(entry, 5, &[0, 1], |_| {});
    let tip = planned.tip();
    let (high, other) = (planned.first(tip, 1), planned.first(tip, 2));
    planned.propose(&[R], &high);
    planned.liars_vote(&[R], &high);
    planned.propose(&[Q, P], &other);
    // `R` has a certificate that the others have not, and all leave the first view.
    planned.run(4 * NEAR_NS + 2 * DELTA_NS).unwrap();
    assert!(
        planned
            .world
            .honest()
            .all(|id| view(&planned.world, id) == View(2) || entry.spec.name == optsync().spec.name)
    );
    planned.takes(&[R], &[Q, P], None, DELTA_NS);
    planned.takes(&[Q, P], &[R], None, DELTA_NS);
    planned.run(2 * NEAR_NS).unwrap();
    for (to, base) in [(&[R][..], end_of(&high)), (&[Q, P][..], tip)] {
        let lock = planned.lock(View(1), base);
        planned.send(1, to, &SyncMessage::NewView { view: View(2), lock });
        // Enough votes for a certificate, but fewer than decide at once.
        let first = SyncMessage::FirstVote { view: View(2), height: base.0, base: base.1 };
        (0..2).take(3 - to.len()).for_each(|liar| planned.send(liar, to, &first));
    }
    planned.run(2 * NEAR_NS + ms(1)).unwrap();
    let mut proposed = Vec::new();
    for (to, base) in [(&[R][..], end_of(&high)), (&[Q, P][..], tip)] {
        assert!(!planned.voters(View(2), base).is_empty(), "{base:?} is extended");
        let header = planned.header(View(2), base, base.1, 9);
        planned.propose(to, &header);
        (0..2).take(3 - to.len()).for_each(|liar| planned.votes(liar, to, &header));
        proposed.push(end_of(&header));
    }
    planned.run(2 * NEAR_NS).unwrap();
    assert!(proposed.iter().all(|end| !planned.voters(View(2), *end).is_empty()), "both are voted for");
    planned.run(2 * DELTA_NS).unwrap();
    let left = |id: u16| {
        planned.message_log.borrow().count(|sent| {
            let is_it = matches!(&sent.message, SyncMessage::Evidence(QuitEvidence::Conflict(both)) if both.0.body.view() == View(2));
            is_it && sent.from == ReplicaId(id)
        })
    };
    assert!([R, Q, P].iter().all(|id| left(*id) > 0), "all have left for it");
    for (id, end) in [(R, proposed[0]), (Q, proposed[1]), (P, proposed[1])] {
        assert!(planned.world.decided(ReplicaId(id)) < end.0, "{id} has committed nothing on its branch");
    }
    planned.close().unwrap();
}

/// S9: f liars send their votes to `R` alone, so only `R` has a certificate early. The others are late and leave the view as
/// soon as they may. They all hold the certificate of the block that `R` has committed when they enter the next view (Lemma
/// 1).
fn s09_votes_to_one_replica_alone_cause_no_fork(entry: &Entry) {
    let mut planned = PlannedRun::new(entry, 5, &[0, 1], |_| {});
    let tip = planned.tip();
    let (one, two) = (planned.first(tip, 1), planned.first(tip, 2));
    planned.takes(&[R], &[Q, P], None, DELTA_NS);
    planned.takes(&[Q, P], &[R, Q, P], None, DELTA_NS);
    planned.propose(&[R], &one);
    planned.liars_vote(&[R], &one);
    planned.run(DELTA_NS).unwrap();
    planned.world.run_until(planned.world.now().plus(1)).unwrap();
    planned.propose(&[Q, P], &two);
    planned.run(DELTA_NS + NEAR_NS).unwrap();
    assert!(planned.world.decided(ReplicaId(R)) >= one.block.height, "it has committed");
    planned.run(3 * DELTA_NS).unwrap();
    let message_log = planned.message_log.borrow();
    let locks: BTreeMap<ReplicaId, End> = message_log
        .sent
        .iter()
        .filter_map(|sent| match &sent.message {
            SyncMessage::Status { view: View(2), lock } => {
                Some((sent.from, (lock.tip.statement.height, lock.tip.block())))
            }
            _ => None,
        })
        .collect();
    drop(message_log);
    assert_eq!(locks.len(), 3);
    assert!(locks.values().all(|lock| *lock == end_of(&one)), "{locks:?}");
    planned.close().unwrap();
}

/// S10: force-locking. A replica that receives a withheld certificate during a view still votes for the leader's proposals,
/// and blocks are committed in that view.
fn s10_withheld_certificate_stops_no_replica(entry: &Entry) {
    let mut planned = PlannedRun::new(entry, 5, &[0, 2], |_| {});
    let proposed = show_a_withheld_certificate(&mut planned).unwrap();
    planned.run(2 * DELTA_NS + 3 * NEAR_NS).unwrap();
    assert_eq!(planned.voters(View(2), end_of(&proposed)), [1, 3, 4].map(ReplicaId));
    for id in [1, 3, 4].map(ReplicaId) {
        assert!(
            planned.world.decided(id) >= proposed.block.height && view(&planned.world, id) == View(2),
            "{id}"
        );
    }
    planned.close().unwrap();
    assert!([1, 3, 4].iter().all(|id| view(&planned.world, ReplicaId(*id)) == View(2)));
}

/// S11: replica 4 of five repeats its vote, in other names, for other views, and sends garbage. Replica 2 receives no other
/// votes: no certificate forms, and nothing stops.
fn s11_repeated_votes_and_garbage_form_no_certificate(entry: &Entry) {
    let mut world = exact(entry, 5, 11, |_| {});
    let deaf: Rc<Cell<Option<Height>>> = Rc::default();
    let hears = Rc::clone(&deaf);
    let message_log = listen(&mut world, move |_, frame| {
        let kind = frame.content.kind.as_str();
        // It receives no votes, no certificates and no decisions of others, and one proposal.
        let tells =
            ["vote", "notify", "certified", "propose", "host.decided", "host.heights"].contains(&kind);
        let is_it = kind == "propose" && hears.get() == Some(frame.content.height);
        let drops = hears.get().is_some() && frame.to == r(2) && tells && !is_it;
        if drops { Verdict::Drop } else { Verdict::Pass }
    });
    begin(&mut world);
    level(&mut world);
    world.take_control(r(4));
    let height = world.highest();
    deaf.set(Some(height.next()));
    let id = world.submit(0, &[put("k", 1)])[0];
    let place = (View(1), height.next());
    go(
        world.run_while("it is proposed", secs(2), |_| message_log.borrow().proposed(place).is_none()),
        &world,
    );
    let header = message_log.borrow().headers[&place].clone();
    let signature = world.sign(r(0), &header.statement());
    let vote = |header: &Header| SyncMessage::Vote(Signed { body: header.clone(), by: r(0), signature });
    let mut moved = header.clone();
    moved.block.view = View(2);
    let first =
        SyncMessage::FirstVote { view: View(9), height: header.block.height, base: header.block.id() };
    let in_anothers_name = world.seal(r(1), &vote(&header));
    for round in 0..20u8 {
        for message in [vote(&header), vote(&moved), first.clone()] {
            world.send_as(r(4), To::All, &message);
        }
        world.send_frame_as(r(4), To::All, frame::PROTOCOL, in_anothers_name.clone());
        world.send_frame_as(r(4), To::All, frame::PROTOCOL, Bytes::from(vec![round; usize::from(round) * 7]));
        go(world.run_for(ms(10)), &world);
    }
    wait_for(&mut world, &[id], secs(2));
    go(world.run_for(DELTA_NS), &world);
    // The own vote and the liar's are two of three.
    assert_eq!(world.decided(r(2)), height, "no certificate");
    let doubted = world.status(r(2)).unwrap().alarms.last_doubt.unwrap().to_string();
    assert!(doubted.contains("without a certificate"), "its timer ended: {doubted}");
    for reason in ["bad signature", "malformed message", "duplicate"] {
        assert!(world.rejected().contains_key(reason), "{reason}: {:?}", world.rejected());
    }
    deaf.set(None);
    world.unhook();
    let more = world.submit(1, &[put("k", 2)])[0];
    wait_for(&mut world, &[more], secs(5));
    crate::support::settle_honest(&mut world);
}

/// S14: the schedules of a commit timer of 1.2 Δ, and of no wait after leaving a view, fork.
#[test]
fn s14_mutations_fork() {
    for id in ["Y1", "Y9"] {
        let row = ROWS.iter().find(|row| row.id == id).unwrap();
        assert!(row.catch().is_some(), "{}", row.variant);
    }
}

/// S18: a disk stalls for 5 Δ. Only the votes of its replica are late by that, and no replica commits early. This holds also in
/// the schedules that fork if other messages wait for the disk, or votes do not.
fn s18_stalled_disk_delays_only_votes(entry: &Entry) {
    evidence_and_a_disk_that_stalls(entry).unwrap();
    vote_and_a_disk_that_stalls(entry).unwrap();
    let sync_ns = 5 * DELTA_NS / 100;
    let slow = r(2);
    let mut world = exact(entry, 3, 18, |settings| settings.costs.sync_ns = sync_ns);
    let message_log = listen(&mut world, move |_, frame| {
        // It does not receive decisions of others.
        let tells = ["notify", "host.decided", "host.heights"].contains(&frame.content.kind.as_str());
        if frame.to == slow && tells { Verdict::Drop } else { Verdict::Pass }
    });
    begin(&mut world);
    level(&mut world);
    world.plan(world.now(), Plan::Disk(slow, DiskTrouble::Slow));
    let height = world.highest();
    let id = world.submit(0, &[put("k", 1)])[0];
    wait_for(&mut world, &[id], secs(1));
    let place = (View(1), height.next());
    let proposed = message_log.borrow().proposed(place).unwrap();
    assert!(
        world.now().since(proposed) <= 2 * DELTA_NS + 6 * NEAR_NS + 3 * sync_ns,
        "the others do not wait"
    );
    world.plan(world.now(), Plan::Disk(slow, DiskTrouble::None));
    let is_behind = |world: &World| world.decided(slow) < height.next();
    go(world.run_while("it has committed", secs(3), is_behind), &world);
    let votes = |sent: &crate::sync_exact_world::Sent| {
        matches!(&sent.message, SyncMessage::Vote(header) if header.body.block.height == height.next())
            && sent.from == slow
    };
    let voted = message_log.borrow().first(votes).unwrap();
    assert!(voted.since(proposed) >= 5 * DELTA_NS, "its vote is late: {}", voted.since(proposed));
    let is_fast = entry.spec.name == optsync().spec.name;
    assert!(is_fast || world.now().since(voted) >= 2 * DELTA_NS, "it has waited since its vote left");
    assert!(world.replicas().all(|id| view(&world, id) == View(1)), "no replica is blamed");
    world.unhook();
    settle(&mut world);
}
