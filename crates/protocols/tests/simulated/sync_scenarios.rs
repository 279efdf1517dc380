//! Scenarios of `sync-hotstuff` §14 and `optsync` §11, by their numbers, for both protocols if they concern both.

use crate::support::{begin, go, incr, level, put, r, settle, settle_honest, wait_for};
use crate::sync_exact_world::{
    ControlledLeader, DELTA_NS, HEARTBEAT_NS, NEAR_NS, Sent,
    acknowledged_request_survives_a_power_cut_of_all, both_synchronous, exact, listen, optsync, view,
};
use quorate_consensus::Entry;
use quorate_consensus::parts::recovery::RecoveryStage;
use quorate_protocols::sync_hotstuff::{QuitEvidence, SyncMessage};
use quorate_sim::{Survives, Verdict, World, ms, secs};
use quorate_types::{BlockId, Height, ReplicaId, Time, View};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;

both_synchronous! {
    s01_block_period_does_not_depend_on_delta
    s02_leader_that_crashes_before_it_proposes_is_replaced
    s02_leader_that_crashes_is_replaced_in_time
    s03_leader_that_crashes_after_one_proposal_leaves_agreement
    s04_equivocating_leader_is_left_without_a_commit
    s06_f_replicas_without_votes_delay_no_commit
    s07_f_false_blames_change_no_view
    s08_delays_of_exactly_delta_are_tolerated
    s12_restart_within_the_wait_ends_it
    s15_acknowledged_request_survives_a_power_cut_of_all
}

/// Kinds of messages that decide at once.
const DECIDING: [&str; 2] = ["vote", "notify"];

/// Returns 3Δ + τ, the wait for a leader after the last vote; after a start it is Δ longer.
fn patience_ns() -> u64 {
    3 * DELTA_NS + HEARTBEAT_NS
}

/// §9, and `optsync` §8: returns the time from a crash of the leader to the next commit, with Δ for a late entry. Two of
/// three replicas are too few for the fast path.
fn after_a_crash(entry: &Entry, n: usize) -> u64 {
    let most = match (entry.spec.name == optsync().spec.name, n > 3) {
        (false, _) => 8 * DELTA_NS + 4 * NEAR_NS,
        (true, false) => 9 * DELTA_NS + 4 * NEAR_NS,
        (true, true) => 7 * DELTA_NS + 5 * NEAR_NS,
    };
    most + HEARTBEAT_NS + DELTA_NS
}

/// S2: the first leader never starts. All enter the second view 4Δ + τ, blames and a wait after they have begun to vote.
/// Nothing is committed in the first view, and a block soon in the second.
fn s02_leader_that_crashes_before_it_proposes_is_replaced(entry: &Entry) {
    for n in [3, 5, 7] {
        let mut world = exact(entry, n, 2, |settings| settings.client.audience = quorate_sim::Audience::All);
        let message_log = listen(&mut world, |_, _| Verdict::Pass);
        world.crash(r(0), Survives::Everything);
        let id = world.submit(1, &[put("k", 0)])[0];
        let votes = |world: &World| world.replicas().skip(1).all(|id| world.status(id).unwrap().normal);
        go(world.run_while("all may vote", secs(5), |world| !votes(world)), &world);
        let began = world.now();
        let is_next = |world: &World| world.replicas().skip(1).all(|id| view(world, id) == View(2));
        go(world.run_while("all are in the next view", secs(5), |world| !is_next(world)), &world);
        let took = world.now().since(began);
        // Blames go to all; a replica that leaves the view waits Δ, with Opt Sync 2 Δ.
        let least = 4 * DELTA_NS + HEARTBEAT_NS + NEAR_NS + DELTA_NS;
        assert!((least - NEAR_NS..=least + DELTA_NS + 2 * NEAR_NS).contains(&took), "n = {n}: {took}");
        assert_eq!(world.highest().0, 0, "n = {n}: nothing was committed");
        let is_old = |world: &World| world.highest().0 == 0;
        go(world.run_while("something is committed", secs(5), is_old), &world);
        // The wait for a leader is Δ longer in the first view. Timers commit when all replicas run, or after the second
        // `boot_wait`, which is 20 Δ in these worlds (§18).
        let needs_timers = entry.spec.name != optsync().spec.name || n == 3;
        let runs = if needs_timers { 20 * DELTA_NS + HEARTBEAT_NS + 2 * DELTA_NS + 2 * NEAR_NS } else { 0 };
        let (took, bound) = (world.now().since(began), runs.max(after_a_crash(entry, n) + DELTA_NS));
        assert!(took <= bound, "{} n = {n}: {took} ns exceed {bound} ns", entry.spec.name);
        wait_for(&mut world, &[id], secs(5));
        let in_first = |sent: &Sent| matches!(sent.message, SyncMessage::Vote(_));
        assert!(message_log.borrow().first(in_first) > Some(began), "n = {n}");
    }
}

/// S2, and §9: cost of a crash of the leader ([`after_a_crash`]).
fn s02_leader_that_crashes_is_replaced_in_time(entry: &Entry) {
    for n in [3, 5, 7] {
        let mut world = exact(entry, n, 2, |settings| settings.client.audience = quorate_sim::Audience::All);
        begin(&mut world);
        level(&mut world);
        world.crash(r(0), Survives::Everything);
        let crashed = world.now();
        // A request waits, or the next leader lets a heartbeat pass.
        world.submit(1, &[put("k", 0)]);
        let is_next = |world: &World| world.replicas().skip(1).all(|id| view(world, id) == View(2));
        go(world.run_while("all are in the next view", secs(5), |world| !is_next(world)), &world);
        let before = world.highest();
        go(world.run_while("something is committed", secs(5), |world| world.highest() == before), &world);
        let took = world.now().since(crashed);
        let (least, bound) = (patience_ns() - HEARTBEAT_NS, after_a_crash(entry, n));
        assert!(
            (least..=bound).contains(&took),
            "{} n = {n}: {took}, not {least} to {bound}",
            entry.spec.name
        );
        let id = world.submit(0, &[put("k", 1)])[0];
        wait_for(&mut world, &[id], secs(5));
    }
}

/// S3: one replica alone receives the last proposal. Its vote hands the header on, the body is fetched, and all agree on the
/// fate of the block.
fn s03_leader_that_crashes_after_one_proposal_leaves_agreement(entry: &Entry) {
    for n in [3, 5] {
        let mut world =
            exact(entry, n, 3, |settings| settings.client.audience = quorate_sim::Audience::One(r(0)));
        let last = Rc::new(Cell::new(None));
        let only = Rc::clone(&last);
        let message_log = listen(&mut world, move |_, frame| {
            let is_proposal = frame.from == r(0) && frame.content.kind.as_str() == "propose";
            let is_last = only.get().is_some_and(|height| is_proposal && frame.content.height >= height);
            if is_last && frame.to != r(1) { Verdict::Drop } else { Verdict::Pass }
        });
        begin(&mut world);
        level(&mut world);
        let highest = message_log.borrow().headers.keys().map(|(_, height)| *height).max().unwrap();
        last.set(Some(highest.next()));
        let ids = world.submit(0, &[incr("n"), incr("n")]);
        let height = world.highest();
        let place = (View(1), last.get().unwrap());
        let is_quiet = |_: &World| message_log.borrow().proposed(place).is_none();
        go(world.run_while("the leader proposes", secs(2), is_quiet), &world);
        // Messages on their way are lost with their sender.
        go(world.run_for(NEAR_NS + 1), &world);
        world.crash(r(0), Survives::Everything);
        wait_for(&mut world, &ids, secs(20));
        assert!(world.highest() > height);
        // Only replica 1 has received the proposal, and its vote has handed the header on.
        let voters: Vec<ReplicaId> = {
            let message_log = message_log.borrow();
            let is_for = |sent: &&Sent| matches!(&sent.message, SyncMessage::Vote(header) if (header.body.block.view, header.body.block.height) == place);
            message_log.sent.iter().filter(is_for).map(|sent| sent.from).filter(|by| *by != r(0)).collect()
        };
        assert_eq!(voters[0], r(1), "{n}: the voter has received the proposal");
        assert!(voters[1..].iter().any(|by| *by != r(1)), "{n}: others receive the header from its vote");
        world.unhook();
        let _ = world.start(r(0));
        settle(&mut world);
    }
}

/// S4: some receive B, the others B' at any moment within Δ. Every honest replica leaves the view, no timer commits that
/// height in it, and one branch continues.
fn s04_equivocating_leader_is_left_without_a_commit(entry: &Entry) {
    for (n, later) in [(3, 0), (3, DELTA_NS / 2), (5, 0), (5, DELTA_NS - 1), (7, DELTA_NS / 3)] {
        let mut setup = ControlledLeader::new(entry, n, 4, |_, _| Verdict::Pass);
        let ids = setup.world.submit(0, &[incr("n")]);
        let tip = setup.tip();
        let (one, two) = (setup.header(tip, 1), setup.header(tip, 2));
        let others = setup.others();
        let (first, second) = others.split_at(others.len() / 2);
        let height = tip.0.next();
        let proposal = setup.proposal(tip, &one);
        setup.send(first, &proposal);
        go(setup.world.run_for(later), &setup.world);
        let proposal = setup.proposal(tip, &two);
        setup.send(second, &proposal);
        let left = |world: &World| {
            others.iter().all(|id| !world.status(*id).unwrap().normal || view(world, *id) > View(1))
        };
        go(setup.world.run_while("all have left the view", 3 * DELTA_NS, |world| !left(world)), &setup.world);
        // With Opt Sync B may have all honest votes when B' is shown: then it was decided at once.
        let decided = entry.spec.name == optsync().spec.name && later >= 2 * NEAR_NS;
        assert!(
            others.iter().all(|id| decided || !setup.has(*id, height)),
            "{n} {later}: nothing was committed at {height}"
        );
        let shown = setup.message_log.borrow().count(|sent| {
            matches!(&sent.message, SyncMessage::Evidence(QuitEvidence::Conflict(_)))
                && sent.from != setup.controlled
        });
        assert_eq!(shown, others.len() * (n - 1), "each shows it to all, once");
        wait_for(&mut setup.world, &ids, secs(20));
        // One branch is certified in the next view, and extended.
        let message_log = setup.message_log.borrow();
        let next = message_log.headers.keys().find(|(view, _)| *view > View(1)).unwrap().0;
        let bases: Vec<(ReplicaId, BlockId)> = message_log
            .sent
            .iter()
            .filter_map(|sent| match &sent.message {
                SyncMessage::FirstVote { view, base, .. } if *view == next => Some((sent.from, *base)),
                _ => None,
            })
            .collect();
        assert!(
            others.iter().all(|id| bases.iter().any(|(by, _)| by == id)),
            "{n} {later}: all vote for the base"
        );
        assert!(bases.iter().all(|(_, base)| *base == bases[0].1), "{n} {later}: from one block");
        drop(message_log);
        settle_honest(&mut setup.world);
    }
}

/// S6: certificates still form from f + 1 votes, as quickly as before.
fn s06_f_replicas_without_votes_delay_no_commit(entry: &Entry) {
    let n = 7;
    let mut world = exact(entry, n, 6, |_| {});
    let message_log = listen(&mut world, |_, frame| {
        let is_silent = frame.from >= r(4) && frame.content.kind.as_str() == "vote";
        if is_silent { Verdict::Drop } else { Verdict::Pass }
    });
    begin(&mut world);
    level(&mut world);
    let height = world.highest();
    world.submit(0, &[put("k", 1)]);
    let missing = |world: &World| world.replicas().find(|id| world.decided(*id) == height);
    while let Some(id) = missing(&world) {
        go(world.run_while("it is committed", secs(1), |world| world.decided(id) == height), &world);
    }
    let took = world.now().since(message_log.borrow().proposed((View(1), height.next())).unwrap());
    assert!(took <= 2 * DELTA_NS + NEAR_NS + ms(1), "the last replica took {took} ns");
    assert!(world.replicas().all(|id| view(&world, id) == View(1)));
}

/// S7: f replicas blame an honest leader in every view.
fn s07_f_false_blames_change_no_view(entry: &Entry) {
    for n in [3, 7] {
        let f = (n - 1) / 2;
        let mut world = exact(entry, n, 7, |_| {});
        begin(&mut world);
        level(&mut world);
        let liars: Vec<ReplicaId> = world.replicas().skip(n - f).collect();
        for liar in &liars {
            world.take_control(*liar);
        }
        for number in 0..20 {
            for liar in &liars {
                for ahead in 0..3 {
                    world.send_as(*liar, quorate_consensus::To::All, &SyncMessage::Blame(View(1 + ahead)));
                }
            }
            let id = world.submit(0, &[put("k", number)])[0];
            wait_for(&mut world, &[id], secs(2));
        }
        assert!(world.honest().all(|id| view(&world, id) == View(1)), "{n}");
    }
}

/// S8: votes, forwarded headers and all other messages take exactly Δ: blocks are committed, and no replica is blamed.
fn s08_delays_of_exactly_delta_are_tolerated(entry: &Entry) {
    for n in [3, 5] {
        let mut world = exact(entry, n, 8, |settings| {
            // Bodies arrive with their headers, so each message alone may take Δ: timers come after it.
            settings.conditions = quorate_sim::LinkConditions::constant(DELTA_NS);
            settings.client.audience = quorate_sim::Audience::All;
            settings.client.retry_ns = secs(2);
        });
        let blames = listen(&mut world, |_, _| Verdict::Pass);
        begin(&mut world);
        for number in 0..10 {
            let id = world.submit(0, &[put("k", number)])[0];
            wait_for(&mut world, &[id], secs(4));
        }
        let blamed = blames.borrow().count(|sent| matches!(sent.message, SyncMessage::Blame(_)));
        assert_eq!(blamed, 0, "{n}");
        assert!(world.replicas().all(|id| view(&world, id) == View(1)));
        settle(&mut world);
    }
}

/// S12: a restart within 2Δ of the own vote. The earlier wait commits nothing afterwards, no other block is voted for at that
/// height, and the replica catches up.
fn s12_restart_within_the_wait_ends_it(entry: &Entry) {
    let mut world = exact(entry, 3, 12, |_| {});
    // Two of three vote, which is not enough for the fast path.
    let message_log = listen(&mut world, |_, frame| {
        let hushed = frame.from == r(1) && DECIDING.contains(&frame.content.kind.as_str());
        if hushed { Verdict::Drop } else { Verdict::Pass }
    });
    begin(&mut world);
    level(&mut world);
    for step in 0..8 {
        let id = world.submit(0, &[incr("n")])[0];
        let before = message_log.borrow().sent.len();
        let vote = || votes_of(&message_log.borrow().sent[before..], r(2)).next();
        go(world.run_while("the replica has voted", secs(1), |_| vote().is_none()), &world);
        let (voted, _, height, _) = vote().unwrap();
        // All replicas know the block.
        go(world.run_for(NEAR_NS + 1 + step * DELTA_NS * 9 / 40), &world);
        assert!(!has(&world, r(2), height), "{step}");
        world.crash(r(2), Survives::Nothing);
        go(world.run_for(ms(5)), &world);
        world.start(r(2)).unwrap();
        // The others commit δ later than this at the earliest, or now, and report it.
        go(world.run_until(voted.plus(2 * DELTA_NS + 1)), &world);
        assert!(!has(&world, r(2), height), "{step}: the wait from before the restart commits nothing");
        wait_for(&mut world, &[id], secs(10));
        level(&mut world);
        assert!(has(&world, r(2), height), "{step}: the replica has caught up");
        // The replica runs again, and votes as early as the others.
        go(world.run_for(6 * DELTA_NS), &world);
        level(&mut world);
    }
    let mut voted = BTreeMap::new();
    for (_, view, height, id) in votes_of(&message_log.borrow().sent, r(2)) {
        assert_eq!(*voted.entry((view, height)).or_insert(id), id, "one vote at {height}");
    }
    settle(&mut world);
}

/// Returns time, view and block of each vote of a replica.
fn votes_of(sent: &[Sent], by: ReplicaId) -> impl Iterator<Item = (Time, View, Height, BlockId)> {
    sent.iter().filter(move |sent| sent.from == by).filter_map(|sent| match &sent.message {
        SyncMessage::Vote(header) => {
            let block = &header.body.block;
            Some((sent.at, block.view, block.height, block.id()))
        }
        _ => None,
    })
}

/// Whether a replica has committed that height.
fn has(world: &World, id: ReplicaId, height: Height) -> bool {
    world.decided(id) >= height
}

/// S15, with the messages of the stable form.
fn s15_acknowledged_request_survives_a_power_cut_of_all(entry: &Entry) {
    acknowledged_request_survives_a_power_cut_of_all(entry, |world| {
        let message_log = listen(world, |_, _| Verdict::Pass);
        let is = |sent: &Sent| matches!(&sent.message, SyncMessage::Answer(answer) if answer.stage == RecoveryStage::Running);
        move || {
            std::mem::take(&mut message_log.borrow_mut().sent)
                .into_iter()
                .filter(is)
                .map(|sent| sent.from)
                .collect()
        }
    });
}

/// Opt Sync S1, S2, S3: with q_R prompt voters every replica commits each block 2δ after its proposal, for every Δ. With
/// fewer it takes δ + 2Δ, and 2Δ at the leader.
#[test]
fn o1_o2_o3_number_of_votes_decides_the_path() {
    for (n, silent, is_fast, delta_ns) in [
        (3, 0, true, DELTA_NS),
        (3, 1, false, DELTA_NS),
        (3, 0, true, 5 * DELTA_NS),
        (3, 1, false, 5 * DELTA_NS),
        (7, 1, true, DELTA_NS),
        (7, 2, false, DELTA_NS),
    ] {
        let mut world = exact(optsync(), n, 1, |settings| {
            settings.client.audience = quorate_sim::Audience::Leader;
            settings.parameters.delta_ns = delta_ns;
        });
        let quiet = r(u16::try_from(n - silent).unwrap());
        let message_log = listen(&mut world, move |_, frame| {
            let hushed = frame.from >= quiet && DECIDING.contains(&frame.content.kind.as_str());
            if hushed { Verdict::Drop } else { Verdict::Pass }
        });
        begin(&mut world);
        level(&mut world);
        let speaking: Vec<ReplicaId> = world.replicas().filter(|id| *id < quiet).collect();
        for number in 0..10 {
            let height = world.highest();
            world.submit(0, &[put("k", number)]);
            for id in speaking.clone() {
                let is_old = |world: &World| world.decided(id) <= height;
                go(world.run_while("it is committed", secs(5), is_old), &world);
                let at = message_log.borrow().proposed((View(1), height.next())).unwrap();
                let took = world.now().since(at);
                let own_copy = if id == r(0) { 0 } else { NEAR_NS };
                let expected = if is_fast { 2 * NEAR_NS } else { own_copy + 2 * delta_ns };
                assert!(
                    (expected..expected + ms(1)).contains(&took),
                    "n = {n}, {silent} silent: {id} {took}"
                );
            }
            level(&mut world);
            let notified = message_log.borrow().count(|sent| {
                let of = |certificate: &quorate_consensus::Certificate| certificate.statement.height > height;
                matches!(&sent.message, SyncMessage::Notify(certificate) if of(certificate))
                    && sent.from < quiet
            });
            assert_eq!(notified > 0, is_fast);
        }
        // A remaining timer would cause a second commit, which the oracles would have noticed.
        assert!(world.replicas().all(|id| view(&world, id) == View(1)));
    }
}

/// §9, and `optsync` §8: under load there is a block in each 2δ + 2s, for every Δ. Opt Sync S2: also if one of three sends no
/// deciding messages.
fn s01_block_period_does_not_depend_on_delta(entry: &Entry) {
    for sync_ns in [0, ms(5)] {
        let expected = secs(1) / (2 * NEAR_NS + 2 * sync_ns);
        for (is_mute, delta_ns) in [(false, DELTA_NS), (true, DELTA_NS), (false, 3 * DELTA_NS)] {
            let blocks = blocks_in_a_second(entry, is_mute, delta_ns, sync_ns);
            assert!(
                blocks.abs_diff(expected) <= 1,
                "{} mute {is_mute}, delta {delta_ns}, sync {sync_ns}: {blocks}, not {expected}",
                entry.spec.name
            );
        }
    }
}

fn blocks_in_a_second(entry: &Entry, is_mute: bool, delta_ns: u64, sync_ns: u64) -> u64 {
    let mut world = exact(entry, 3, 2, |settings| {
        (settings.bodies.bundle_requests_max, settings.bodies.block_requests_max) = (1, 1);
        settings.parameters.delta_ns = delta_ns;
        settings.costs.sync_ns = sync_ns;
        (settings.client.in_flight_max, settings.client.retry_ns) = (400, secs(5));
    });
    let message_log = listen(&mut world, move |_, frame| {
        let hushed = is_mute && frame.from == r(2) && DECIDING.contains(&frame.content.kind.as_str());
        if hushed { Verdict::Drop } else { Verdict::Pass }
    });
    begin(&mut world);
    level(&mut world);
    for client in 0..2 {
        world.submit(client, &(0..400).map(|number| put("k", number)).collect::<Vec<_>>());
    }
    // Clients begin with few requests in flight.
    go(world.run_for(secs(2)), &world);
    let before = message_log.borrow().headers.len();
    go(world.run_for(secs(1)), &world);
    u64::try_from(message_log.borrow().headers.len() - before).unwrap()
}

/// Opt Sync S4: one of three is silent for a second and returns: paths change block by block, and the view does not.
#[test]
fn o4_path_changes_without_messages() {
    let mut world = exact(optsync(), 3, 4, |_| {});
    let mute = Rc::new(Cell::new(false));
    let is_mute = Rc::clone(&mute);
    let message_log = listen(&mut world, move |_, frame| {
        let hushed = is_mute.get() && frame.from == r(2) && DECIDING.contains(&frame.content.kind.as_str());
        if hushed { Verdict::Drop } else { Verdict::Pass }
    });
    begin(&mut world);
    let fast = |message_log: &crate::sync_exact_world::MessageLog| {
        message_log.count(|sent| matches!(sent.message, SyncMessage::Notify(_)) && sent.from != r(2))
    };
    let mut counts = Vec::new();
    for phase in [false, true, false] {
        mute.set(phase);
        let before = fast(&message_log.borrow());
        go(world.run_for(secs(1)), &world);
        let id = world.submit(0, &[put("k", 1)])[0];
        wait_for(&mut world, &[id], secs(2));
        counts.push(fast(&message_log.borrow()) - before);
    }
    assert!(counts[0] > 0 && counts[2] > 0 && counts[1] <= 6, "{counts:?}");
    assert!(world.replicas().all(|id| view(&world, id) == View(1)));
    settle(&mut world);
}
