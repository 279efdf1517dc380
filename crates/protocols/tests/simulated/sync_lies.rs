//! More scenarios of `sync-hotstuff` §14: what liars say when, what everything costs, and a disk that stalls. Of five
//! replicas 0 and 1 lie where nothing else is said.

use crate::support::{begin, go, level, put, r, settle, wait_for};
use crate::sync_museum::ROWS;
use crate::sync_plot::{End, Plot};
use crate::sync_schedules::{
    evidence_and_a_disk_that_stalls, show_what_was_withheld, vote_and_a_disk_that_stalls,
};
use crate::sync_stage::{DELTA_NS, NEAR_NS, both_synchronous, exact, listen, optsync, sync_hotstuff, view};
use quorate_consensus::{Entry, Signed, To};
use quorate_protocols::sync_hotstuff::{Evidence, Header, SyncMessage};
use quorate_sim::{Bytes, Plan, Trouble, Verdict, World, ms, secs};
use quorate_types::wire::frame;
use quorate_types::{Height, ReplicaId, View};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;

both_synchronous! {
    s05_two_bases_of_different_height
    s09_votes_for_one_replica_only
    s10_a_withheld_certificate_stops_nobody
    s11_nonsense_makes_no_certificate
    s18_a_disk_that_stalls
}

const R: u16 = 2;
const Q: u16 = 3;
const P: u16 = 4;

fn end_of(header: &Header) -> End {
    (header.block.height, header.block.id())
}

/// S1: each block is committed 2 Δ after its replica's vote has left: that of the leader a sync after the proposal, those of
/// the others δ and a sync. Eight messages.
#[test]
fn s01_what_a_block_costs() {
    for sync_ns in [0, ms(5)] {
        let mut world = exact(sync_hotstuff(), 3, 1, |settings| {
            settings.costs.sync_ns = sync_ns;
            settings.client_retry_ns = secs(3);
        });
        let ear = listen(&mut world, |_, _| Verdict::Pass);
        begin(&mut world);
        level(&mut world);
        for _ in 0..5 {
            // Empty blocks, one at a time: each by itself.
            let height = world.decided(r(0));
            let mut took = BTreeMap::new();
            let mut look = |world: &World| {
                for id in world.replicas().filter(|id| world.decided(*id) > height) {
                    took.entry(id).or_insert(world.now());
                }
                took.len() < 3
            };
            go(world.run_while("all have committed a block", secs(2), &mut look), &world);
            let at = ear.borrow().proposed((View(1), height.next())).unwrap();
            for (id, decided) in took {
                let delay_ns = if id == r(0) { 0 } else { NEAR_NS };
                let expected = delay_ns + sync_ns + 2 * DELTA_NS;
                let took = decided.since(at);
                // A nanosecond for each turn.
                assert!((expected..expected + 10).contains(&took), "{id}: {took}, not {expected}");
            }
            let messages = ear.borrow().count(|sent| match &sent.message {
                SyncMessage::Propose { header, .. } => header.block.height == height.next(),
                SyncMessage::Vote(header) => header.body.block.height == height.next(),
                _ => false,
            });
            assert_eq!(messages, 8);
        }
    }
}

/// S5: two NEW-VIEWs with bases of different height, for `R` and for the others, each of whom goes on from its own: the
/// bases contradict each other, all leave, and no timer commits on either branch.
fn s05_two_bases_of_different_height(entry: &Entry) {
    let mut plot = Plot::new(entry, 5, &[0, 1], |_| {});
    let tip = plot.tip();
    let (high, other) = (plot.first(tip, 1), plot.first(tip, 2));
    plot.propose(&[R], &high);
    plot.liars_vote(&[R], &high);
    plot.propose(&[Q, P], &other);
    // `R` has a certificate that the others have not, and all leave the first view.
    plot.run(4 * NEAR_NS + 2 * DELTA_NS).unwrap();
    assert!(
        plot.world
            .honest()
            .all(|id| view(&plot.world, id) == View(2) || entry.spec.name == optsync().spec.name)
    );
    plot.takes(&[R], &[Q, P], None, DELTA_NS);
    plot.takes(&[Q, P], &[R], None, DELTA_NS);
    plot.run(2 * NEAR_NS).unwrap();
    for (to, base) in [(&[R][..], end_of(&high)), (&[Q, P][..], tip)] {
        let lock = plot.lock(View(1), base);
        plot.say(1, to, &SyncMessage::NewView { view: View(2), lock });
        // As many votes as make a certificate, and not as many as would decide at once.
        let first = SyncMessage::FirstVote { view: View(2), height: base.0, base: base.1 };
        (0..2).take(3 - to.len()).for_each(|liar| plot.say(liar, to, &first));
    }
    plot.run(2 * NEAR_NS + ms(1)).unwrap();
    let mut proposed = Vec::new();
    for (to, base) in [(&[R][..], end_of(&high)), (&[Q, P][..], tip)] {
        assert!(!plot.voters(View(2), base).is_empty(), "{base:?} is gone on from");
        let header = plot.header(View(2), base, base.1, 9);
        plot.propose(to, &header);
        (0..2).take(3 - to.len()).for_each(|liar| plot.votes(liar, to, &header));
        proposed.push(end_of(&header));
    }
    plot.run(2 * NEAR_NS).unwrap();
    assert!(proposed.iter().all(|end| !plot.voters(View(2), *end).is_empty()), "both are voted for");
    plot.run(2 * DELTA_NS).unwrap();
    let left = |id: u16| {
        plot.ear.borrow().count(|sent| {
            let is_it = matches!(&sent.message, SyncMessage::Evidence(Evidence::Conflict(both)) if both.0.body.view() == View(2));
            is_it && sent.from == ReplicaId(id)
        })
    };
    assert!([R, Q, P].iter().all(|id| left(*id) > 0), "all have left for it");
    for (id, end) in [(R, proposed[0]), (Q, proposed[1]), (P, proposed[1])] {
        assert!(plot.world.decided(ReplicaId(id)) < end.0, "{id} has committed nothing on its branch");
    }
    plot.close().unwrap();
}

/// S9: f liars vote for `R` alone, so that it alone has a certificate early; the others are late and leave the view as soon
/// as they may. When they enter the next one they all hold the certificate of what `R` has committed (Lemma 1).
fn s09_votes_for_one_replica_only(entry: &Entry) {
    let mut plot = Plot::new(entry, 5, &[0, 1], |_| {});
    let tip = plot.tip();
    let (one, two) = (plot.first(tip, 1), plot.first(tip, 2));
    plot.takes(&[R], &[Q, P], None, DELTA_NS);
    plot.takes(&[Q, P], &[R, Q, P], None, DELTA_NS);
    plot.propose(&[R], &one);
    plot.liars_vote(&[R], &one);
    plot.run(DELTA_NS).unwrap();
    plot.world.run_until(plot.world.now().plus(1)).unwrap();
    plot.propose(&[Q, P], &two);
    plot.run(DELTA_NS + NEAR_NS).unwrap();
    assert!(plot.world.decided(ReplicaId(R)) >= one.block.height, "it has committed");
    plot.run(3 * DELTA_NS).unwrap();
    let ear = plot.ear.borrow();
    let locks: BTreeMap<ReplicaId, End> = ear
        .sent
        .iter()
        .filter_map(|sent| match &sent.message {
            SyncMessage::Status { view: View(2), lock } => {
                Some((sent.from, (lock.tip.statement.height, lock.tip.block())))
            }
            _ => None,
        })
        .collect();
    drop(ear);
    assert_eq!(locks.len(), 3);
    assert!(locks.values().all(|lock| *lock == end_of(&one)), "{locks:?}");
    plot.close().unwrap();
}

/// S10: force-locking. Who is shown a withheld certificate in the middle of a view votes for what its leader proposes all
/// the same, and blocks are committed in that view.
fn s10_a_withheld_certificate_stops_nobody(entry: &Entry) {
    let mut plot = Plot::new(entry, 5, &[0, 2], |_| {});
    let proposed = show_what_was_withheld(&mut plot).unwrap();
    plot.run(2 * DELTA_NS + 3 * NEAR_NS).unwrap();
    assert_eq!(plot.voters(View(2), end_of(&proposed)), [1, 3, 4].map(ReplicaId));
    for id in [1, 3, 4].map(ReplicaId) {
        assert!(plot.world.decided(id) >= proposed.block.height && view(&plot.world, id) == View(2), "{id}");
    }
    plot.close().unwrap();
    assert!([1, 3, 4].iter().all(|id| view(&plot.world, ReplicaId(*id)) == View(2)));
}

/// S11: replica 4 of five says its vote again and again, in other names, for other views, and garbage. Replica 2 hears
/// nobody else's votes: what it hears makes no certificate, and nothing stops.
fn s11_nonsense_makes_no_certificate(entry: &Entry) {
    let mut world = exact(entry, 5, 11, |_| {});
    let deaf: Rc<Cell<Option<Height>>> = Rc::default();
    let hears = Rc::clone(&deaf);
    let ear = listen(&mut world, move |_, frame| {
        let kind = frame.content.kind.as_str();
        // Neither votes nor what has certificates in it, nor what others have decided; of proposals one.
        let tells =
            ["vote", "notify", "certified", "propose", "host.decided", "host.heights"].contains(&kind);
        let is_it = kind == "propose" && hears.get() == Some(frame.content.height);
        let drops = hears.get().is_some() && frame.to == r(2) && tells && !is_it;
        if drops { Verdict::Drop } else { Verdict::Pass }
    });
    begin(&mut world);
    level(&mut world);
    world.take_over(r(4));
    let height = world.highest();
    deaf.set(Some(height.next()));
    let id = world.submit(0, &[put("k", 1)])[0];
    let place = (View(1), height.next());
    go(world.run_while("it is proposed", secs(2), |_| ear.borrow().proposed(place).is_none()), &world);
    let header = ear.borrow().headers[&place].clone();
    let signature = world.sign(r(0), &header.statement());
    let vote = |header: &Header| SyncMessage::Vote(Signed { body: header.clone(), by: r(0), signature });
    let mut moved = header.clone();
    moved.block.view = View(2);
    let first =
        SyncMessage::FirstVote { view: View(9), height: header.block.height, base: header.block.id() };
    let in_anothers_name = world.seal(r(1), &vote(&header));
    for round in 0..20u8 {
        for message in [vote(&header), vote(&moved), first.clone()] {
            world.say(r(4), To::All, &message);
        }
        world.say_frame(r(4), To::All, frame::PROTOCOL, in_anothers_name.clone());
        world.say_frame(r(4), To::All, frame::PROTOCOL, Bytes::from(vec![round; usize::from(round) * 7]));
        go(world.run_for(ms(10)), &world);
    }
    wait_for(&mut world, &[id], secs(2));
    go(world.run_for(DELTA_NS), &world);
    // Its own vote and the liar's are two of three.
    assert_eq!(world.decided(r(2)), height, "no certificate");
    let doubted = world.status(r(2)).unwrap().alarms.last_doubt.unwrap_or_default();
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

/// S14: a commit timer of 1.2 Δ, and no wait after leaving a view: their schedules fork.
#[test]
fn s14_the_mutations_fork() {
    for id in ["Y1", "Y9"] {
        let row = ROWS.iter().find(|row| row.id == id).unwrap();
        assert!(row.catch().is_some(), "{}", row.variant);
    }
}

/// S18: a disk stalls for 5 Δ: the votes of its replica are late by that, and nothing else is. Nor does anybody commit early:
/// not in the schedules that fork where something else waits for the disk, or does not.
fn s18_a_disk_that_stalls(entry: &Entry) {
    evidence_and_a_disk_that_stalls(entry).unwrap();
    vote_and_a_disk_that_stalls(entry).unwrap();
    let sync_ns = 5 * DELTA_NS / 100;
    let slow = r(2);
    let mut world = exact(entry, 3, 18, |settings| settings.costs.sync_ns = sync_ns);
    let ear = listen(&mut world, move |_, frame| {
        // It is not told what others have decided.
        let tells = ["notify", "host.decided", "host.heights"].contains(&frame.content.kind.as_str());
        if frame.to == slow && tells { Verdict::Drop } else { Verdict::Pass }
    });
    begin(&mut world);
    level(&mut world);
    world.plan(world.now(), Plan::Disk(slow, Trouble::Slow));
    let height = world.highest();
    let id = world.submit(0, &[put("k", 1)])[0];
    wait_for(&mut world, &[id], secs(1));
    let place = (View(1), height.next());
    let proposed = ear.borrow().proposed(place).unwrap();
    assert!(
        world.now().since(proposed) <= 2 * DELTA_NS + 6 * NEAR_NS + 3 * sync_ns,
        "the others wait for nobody"
    );
    world.plan(world.now(), Plan::Disk(slow, Trouble::None));
    let is_behind = |world: &World| world.decided(slow) < height.next();
    go(world.run_while("it has committed", secs(3), is_behind), &world);
    let votes = |sent: &crate::sync_stage::Sent| {
        matches!(&sent.message, SyncMessage::Vote(header) if header.body.block.height == height.next())
            && sent.from == slow
    };
    let voted = ear.borrow().first(votes).unwrap();
    assert!(voted.since(proposed) >= 5 * DELTA_NS, "its vote is late: {}", voted.since(proposed));
    let is_fast = entry.spec.name == optsync().spec.name;
    assert!(is_fast || world.now().since(voted) >= 2 * DELTA_NS, "it has waited since its vote left");
    assert!(world.replicas().all(|id| view(&world, id) == View(1)), "nobody is blamed");
    world.unhook();
    settle(&mut world);
}
