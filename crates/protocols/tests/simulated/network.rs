//! A network that loses, duplicates, delays and cuts.

use crate::support::{
    DELAY_NS, TRANSPORTS, TREQ_NS, ask, begin, both, constant_of, cut, go, latency, no_view_change, put, r,
    recovery, settle, wait_for, world_of,
};
use quorate_consensus::{Entry, Model};
use quorate_protocols::pbft::{COMMIT, PREPARE};
use quorate_sim::{
    Change, Costs, LinkConditions, NetworkFault, Places, ReplicaState, Survives, Transport, Verdict,
    Workload, World, ms, secs,
};
use quorate_types::{Digest, Height, Kind, ReplicaId, View};
use std::cell::RefCell;
use std::rc::Rc;

both! {
    s10_backup_cut_off_for_a_minute_catches_up_and_votes
    s10_lost_vote_is_sent_again
    s10_backup_that_receives_only_leader_messages_catches_up
    s19_progress_resumes_after_five_bad_minutes
    backlog_of_a_trickling_link_does_not_grow
}

/// Votes of a replica from now on: kind, view, height and block of each PREPARE and COMMIT.
type Votes = Rc<RefCell<Vec<(Kind, View, Height, Digest)>>>;

fn votes_of(world: &mut World, by: ReplicaId) -> Votes {
    let votes = Votes::default();
    let seen = Rc::clone(&votes);
    world.hook(move |_, frame| {
        let content = &frame.content;
        if frame.from == by && [PREPARE, COMMIT].contains(&content.kind) {
            seen.borrow_mut().push((content.kind, content.view, content.height, content.subject()));
        }
        Verdict::Pass
    });
    votes
}

/// Scenario 10: one backup is cut off for a minute, and the others are not affected. After the heal the backup has
/// executed everything, no replica has left the view, and the backup votes in it again.
fn s10_backup_cut_off_for_a_minute_catches_up_and_votes(entry: &Entry) {
    let mut world = constant_of(entry, 20);
    begin(&mut world);
    let network_fault = cut(&mut world, 2);
    for value in 0..100 {
        let id = ask(&mut world, value % 4, put("k", value));
        assert_eq!(latency(&world, id), 5 * DELAY_NS, "the others are not affected");
        go(world.run_for(ms(600)), &world);
    }
    assert!(world.executed(r(2)) < world.height().minus(90));
    world.end_fault(network_fault);
    settle(&mut world);
    assert_eq!(world.status(r(2)).unwrap().state, ReplicaState::Current);
    no_view_change(&world);
    // The vote of the backup counts again: without another backup every quorum needs it.
    go(world.run_for(secs(2)), &world);
    cut(&mut world, 3);
    let votes = votes_of(&mut world, r(2));
    let id = ask(&mut world, 0, put("k", "with its vote"));
    assert_eq!(latency(&world, id), 5 * DELAY_NS, "at once");
    for kind in [PREPARE, COMMIT] {
        let is_it = |vote: &&(Kind, View, Height, Digest)| vote.0 == kind && vote.2 == world.height();
        assert_eq!(votes.borrow().iter().find(is_it).map(|vote| vote.1), Some(View(0)), "{kind:?}");
    }
    no_view_change(&world);
}

/// Scenario 10, in short: a cut loses the PREPARE of a backup that is needed. No further request follows, or the backup
/// restarts. The backup, or its link, sends the same vote for the same block in the same view again. No replica leaves
/// the view.
fn s10_lost_vote_is_sent_again(entry: &Entry) {
    for (transport, restarts) in [(Transport::Links, false), (Transport::Datagrams, true)] {
        let mut world = world_of(entry, 23, |settings| {
            settings.conditions = LinkConditions::constant(DELAY_NS);
            settings.costs = Costs::NONE;
            settings.transport = transport;
        });
        begin(&mut world);
        settle(&mut world);
        world.crash(r(3), Survives::Everything);
        let votes = votes_of(&mut world, r(2));
        let height = world.height();
        let id = world.submit(0, &[put("k", "needs it")])[0];
        // Votes of the backup are lost from now on. Messages of the others still reach it.
        let mute = Places::one(2);
        let network_fault = world.begin_fault(NetworkFault {
            from: mute,
            to: mute.others(),
            both_ways: false,
            change: Change::Cut,
            fault: None,
        });
        go(world.run_while("the backup votes", ms(20), |_| votes.borrow().is_empty()), &world);
        let first = votes.take()[0];
        assert_eq!((first.0, first.1, first.2), (PREPARE, View(0), height.next()));
        if restarts {
            world.crash(r(2), Survives::Everything);
        }
        go(world.run_for(TREQ_NS / 3), &world);
        assert_eq!(world.height(), height, "no block is decided without the vote");
        votes.take();
        world.end_fault(network_fault);
        world.start(r(2)).unwrap();
        wait_for(&mut world, &[id], TREQ_NS / 2);
        assert!(votes.borrow().iter().all(|vote| vote.1 == View(0)));
        assert_eq!(votes.borrow().contains(&first), restarts, "{:?}", votes.borrow());
        no_view_change(&world);
    }
}

/// Section 15, for every protocol: a replica was cut off while the others executed the last heights of a burst. It
/// learns these heights although no further message of the protocol names them.
#[test]
fn replica_that_missed_the_end_of_a_burst_catches_up_in_an_idle_cluster() {
    for entry in quorate_protocols::REGISTRY.iter().filter(|entry| entry.spec.replaces_leader) {
        for transport in TRANSPORTS {
            for who in 0..entry.smallest(1) {
                let mut world = world_of(entry, 22, |settings| {
                    settings.transport = transport;
                    // A protocol that decides by timers is never quite idle. Its periodic messages must not be the only
                    // ones that help.
                    if entry.spec.model == Model::Synchrony {
                        settings.set("heartbeat_ms", 9_000);
                    }
                });
                begin(&mut world);
                settle(&mut world);
                let network_fault = cut(&mut world, who);
                for value in 0..5 {
                    ask(&mut world, value % 4, put("k", value));
                }
                go(world.run_for(secs(60)), &world);
                let (height, lags) = (world.height(), world.executed(r(who as u16)));
                assert!(lags < height, "{} {who}: {lags} of {height}", entry.spec.name);
                world.end_fault(network_fault);
                let all = |world: &World| world.replicas().all(|id| world.executed(id) >= height);
                go(world.run_while("all have the last heights", secs(8), |world| !all(world)), &world);
            }
        }
    }
}

/// Scenario 10: only messages of the leader reach a backup, so it receives every proposal and no vote.
fn s10_backup_that_receives_only_leader_messages_catches_up(entry: &Entry) {
    for transport in TRANSPORTS {
        let mut world = world_of(entry, 21, |settings| settings.transport = transport);
        begin(&mut world);
        let network_fault = world.begin_fault(NetworkFault {
            from: Places::of([1, 3]),
            to: Places::one(2),
            both_ways: true,
            change: Change::Cut,
            fault: None,
        });
        for value in 0..60 {
            ask(&mut world, value % 4, put("k", value));
        }
        world.end_fault(network_fault);
        settle(&mut world);
    }
}

/// Scenario 19: five minutes of 10 % loss, 10 % duplication, reordering, and a partition now and then. The results at
/// the clients are linearizable: the oracles compare them with the order of execution. Progress resumes soon after the
/// heal.
fn s19_progress_resumes_after_five_bad_minutes(entry: &Entry) {
    for transport in TRANSPORTS {
        for seed in 0..2 {
            bad_minutes(entry, 30 + seed, transport);
        }
    }
}

fn bad_minutes(entry: &Entry, seed: u64, transport: Transport) {
    let mut world = world_of(entry, seed, |settings| {
        settings.transport = transport;
        settings.storage.keep_bytes = 4 << 20;
    });
    begin(&mut world);
    for change in
        [Change::Lossy(100_000), Change::Twice(100_000), Change::Slow { delay_ns: 0, jitter_ns: ms(30) }]
    {
        world.begin_fault(NetworkFault {
            from: Places::ALL,
            to: Places::ALL,
            both_ways: false,
            change,
            fault: None,
        });
    }
    world.load_all(Workload {
        operations: 250,
        // The load lasts about as long as the faults: 125 bundles.
        pause_ns: secs(300) / 150,
        together_max: 3,
        outstanding_max: 8,
        keys: 4,
    });
    for round in 0..15 {
        go(world.run_for(secs(12)), &world);
        let sides = [Places::of([0, 1]), Places::one(round % 4), Places::of([round % 4, 2])][round % 3];
        let to = Places(Places::of(0..4).0 & sides.others().0);
        let network_fault = world.begin_fault(NetworkFault {
            from: sides,
            to,
            both_ways: round % 2 == 0,
            change: Change::Cut,
            fault: None,
        });
        go(world.run_for(secs(8)), &world);
        world.end_fault(network_fault);
    }
    world.heal();
    let height = world.height();
    world.submit(0, &[put("k", "healed")]);
    // Every outage was shorter, and none had more than one cut.
    let bound = recovery(&world, secs(300));
    go(world.run_while("something is executed", bound, |world| world.height() == height), &world);
    go(world.run_while("all clients have their answers", secs(90), |world| !world.all_done()), &world);
    settle(&mut world);
    assert!(world.history().answered() >= 1_000);
    assert_eq!(world.failed_ops(), 0);
}

/// A trickling link is late, but not later and later. A growing backlog would be a fault without an end.
fn backlog_of_a_trickling_link_does_not_grow(entry: &Entry) {
    let mut world = world_of(entry, 23, |settings| settings.transport = Transport::Links);
    begin(&mut world);
    let all = Places::ALL;
    let trickle = NetworkFault { from: all, to: all, both_ways: false, change: Change::Trickle, fault: None };
    let network_fault = world.begin_fault(trickle);
    for value in 0..400 {
        world.submit(value % 4, &[put("k", value)]);
        go(world.run_for(ms(20)), &world);
    }
    world.end_fault(network_fault);
    let ids = world.submit(0, &[put("k", 1_000)]);
    wait_for(&mut world, &ids, secs(2));
    settle(&mut world);
}
