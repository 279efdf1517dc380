//! Scenarios of `artemis` §12, by their numbers. Scenario 10 and the equivocation at an anchor of scenario 11 are unit tests as
//! well (`a1_*`, `a5_*`).

use crate::artemis_flaws::TimerWithoutS;
use crate::artemis_run::{
    Controlled, HEARTBEAT_NS, Protocol, SILENCE_NS, SharedLog, against, count, listen, registered, view,
    with_attack, world_of,
};
use crate::side_by_side::run_all;
use crate::support::{begin, go, incr, level, put, r, settle, settle_honest, wait_for};
use crate::sync_exact_world::{DELTA_NS, NEAR_NS};
use quorate_consensus::Entry;
use quorate_consensus::flawed::Flawed;
use quorate_consensus::parts::chain::empty_payload;
use quorate_protocols::unique_chain::Entry as _;
use quorate_protocols::unique_chain::artemis::{CBlock, Evidence, VoteKind};
use quorate_sim::{Byzantine, LinkConditions, Survives, Verdict, World, ms, secs, seed};
use quorate_types::{BlockId, Digest, Height, ReplicaId, Time, View};
use std::collections::{BTreeMap, BTreeSet};

/// Standard seeds within the bound.
#[test]
fn seeds_within_the_bound_pass() {
    for (n, seeds) in [(3, 12), (5, 4), (7, 2)] {
        let reports =
            run_all(&(0..seeds).collect::<Vec<_>>(), |seed| seed::run(registered(), Some(n), seed).unwrap());
        for report in reports {
            assert!(report.failure.is_none(), "n = {n} {report}");
            assert!(report.requests >= 400 && report.virtual_ns >= secs(60), "{report}");
        }
    }
}

/// Submits an operation in each δ. Returns the times at which the first and the last replica have committed each height.
fn commit_times(world: &mut World, operations: u64) -> BTreeMap<Height, (Time, Time)> {
    let (mut times, known) = (BTreeMap::new(), world.highest());
    for step in 0..operations * 10 {
        if step.is_multiple_of(10) {
            world.submit(usize::try_from(step / 10 % 2).unwrap(), &[incr("n")]);
        }
        go(world.run_for(ms(1)), world);
        let now = world.now();
        let lowest = world.replicas().map(|id| world.decided(id)).min().unwrap();
        for height in known.0 + 1..=world.highest().0 {
            times.entry(Height(height)).or_insert((now, Time::MAX));
        }
        for (_, (_, last)) in times.range_mut(..=lowest) {
            *last = now.min(*last);
        }
    }
    times
}

const KINDS: [&str; 3] = ["cblock", "vote", "relay"];

/// S1, S2: rounds take δ, and a block is committed (f + 2) δ to (f + 3) δ after it has left. Messages are those of §9.
fn steady_load(n: u64, earliest: u64, latest: u64) {
    let mut world = world_of(registered(), usize::try_from(n).unwrap(), 1, |_| {});
    let log = listen(&mut world, |_, _| Verdict::Pass);
    begin(&mut world);
    level(&mut world);
    // Relays are flagged for n rounds, and answered.
    go(world.run_for(2 * n * HEARTBEAT_NS), &world);
    let (rounds, blocks) = (log.borrow().votes.len(), log.borrow().blocks.len());
    let before = KINDS.map(|kind| count(&world, kind));
    // The first votes of the load have other intervals.
    let since = world.now().plus(ms(100));
    let committed = commit_times(&mut world, 60);
    let log = log.borrow();
    let votes: Vec<Time> = log.since(since).iter().map(|(at, _)| *at).collect();
    let periods: BTreeSet<u64> = votes.windows(2).map(|pair| pair[1].since(pair[0])).collect();
    assert!(periods.iter().all(|period| (ms(9)..=ms(11)).contains(period)), "n = {n} {periods:?}");
    let mut judged = 0;
    for (at, block) in log.blocks.iter().filter(|(at, block)| *at >= since && has_requests(block)) {
        let Some((first, last)) = committed.get(&block.block.height).filter(|times| times.1 < Time::MAX)
        else {
            continue;
        };
        let (first, last) = (first.since(*at), last.since(*at));
        // The last voter commits with its own vote, a δ before the others. Times are read in each millisecond.
        assert!(first + NEAR_NS >= earliest, "n = {n}: {first} at the first replica");
        assert!((earliest..=latest + ms(1)).contains(&last), "n = {n}: {last} at the last replica");
        judged += 1;
    }
    assert!(judged >= 20, "n = {n}: {judged}");
    let (rounds, blocks) = ((log.votes.len() - rounds) as u64, (log.blocks.len() - blocks) as u64);
    let expected = [blocks * (n - 1), rounds * (n - 1), rounds * (n - 2)];
    for ((kind, before), expected) in KINDS.into_iter().zip(before).zip(expected) {
        // Messages of the first and last round may be on their way.
        let sent = count(&world, kind) - before;
        assert!(sent.abs_diff(expected) <= 2 * n, "n = {n}: {sent} {kind}, not {expected}");
    }
    drop(log);
    settle(&mut world);
}

fn has_requests(block: &CBlock) -> bool {
    block.block.payload != empty_payload()
}

#[test]
fn s01_blocks_of_three_replicas_commit_after_three_to_four_delays() {
    steady_load(3, 3 * NEAR_NS, 4 * NEAR_NS);
}

#[test]
fn s02_blocks_of_seven_replicas_commit_after_five_to_six_delays() {
    steady_load(7, 5 * NEAR_NS, 6 * NEAR_NS);
}

/// S3: a Data vote and f Endorse votes commit the request. After that there is a block and a round in each heartbeat.
#[test]
fn s03_request_before_a_pause_is_endorsed_and_committed() {
    for (n, f) in [(3, 1), (5, 2)] {
        let mut world = world_of(registered(), n, 3, |_| {});
        let log = listen(&mut world, |_, _| Verdict::Pass);
        begin(&mut world);
        level(&mut world);
        go(world.run_for(2 * HEARTBEAT_NS), &world);
        let since = world.now();
        let id = world.submit(0, &[incr("n")])[0];
        wait_for(&mut world, &[id], DELTA_NS);
        go(world.run_for(HEARTBEAT_NS / 2), &world);
        let kinds: Vec<VoteKind> = log.borrow().since(since).into_iter().map(|(_, vote)| vote.kind).collect();
        let data = kinds.iter().filter(|kind| **kind == VoteKind::Data).count();
        let endorsed = kinds.iter().filter(|kind| **kind == VoteKind::Endorse).count();
        assert_eq!(endorsed, f, "n = {n} {kinds:?}");
        assert!(data <= 2 && kinds.len() == data + endorsed, "n = {n} {kinds:?}");
        go(world.run_for(HEARTBEAT_NS), &world);
        let sent = |world: &World| KINDS.map(|kind| count(world, kind));
        let before = sent(&world);
        go(world.run_for(10 * HEARTBEAT_NS), &world);
        let each = u64::try_from(n).unwrap() - 1;
        let spent: Vec<u64> = sent(&world).iter().zip(before).map(|(after, before)| after - before).collect();
        for (spent, expected) in spent.iter().zip([10 * each, 10 * each, 10 * (each - 1)]) {
            assert!(spent.abs_diff(expected) <= 2 * each, "n = {n}: {spent}, not {expected}");
        }
        assert_eq!((view(&world, 1), count(&world, "blame")), (View(1), 0));
    }
}

/// S4: a burst of requests. No vote adds more than 16 blocks.
#[test]
fn s04_burst_is_voted_for_in_portions() {
    let mut world = world_of(registered(), 3, 4, |settings| settings.clients = 4);
    let log = listen(&mut world, |_, _| Verdict::Pass);
    begin(&mut world);
    level(&mut world);
    let mut ids = Vec::new();
    for client in 0..200 {
        ids.extend(world.submit(client % 4, &[incr("n")]));
    }
    wait_for(&mut world, &ids, secs(5));
    let log = log.borrow();
    let heights: BTreeMap<BlockId, u64> =
        log.blocks.iter().map(|(_, block)| (block.block.id(), block.block.height.0)).collect();
    let named: Vec<u64> =
        log.votes.iter().filter_map(|(_, vote)| heights.get(&vote.block).copied()).collect();
    assert!(named.windows(2).all(|pair| pair[1] >= pair[0] && pair[1] - pair[0] <= 16), "{named:?}");
    drop(log);
    assert_eq!(view(&world, 1), View(1));
    settle(&mut world);
}

/// S5: a crashed coordinator is flagged by f + 1 voters after S, and the next one continues on the head at the anchor.
#[test]
fn s05_crashed_coordinator_is_replaced_in_time() {
    for (n, f) in [(3_u16, 1_u64), (5, 2)] {
        let mut world = world_of(registered(), usize::from(n), 5, |_| {});
        let log = listen(&mut world, |_, _| Verdict::Pass);
        begin(&mut world);
        for number in 0..10 {
            let id = world.submit(0, &[put("k", number)])[0];
            wait_for(&mut world, &[id], secs(2));
        }
        level(&mut world);
        world.crash(r(0), Survives::Everything);
        let crashed = world.now();
        let id = world.submit(0, &[incr("n")])[0];
        wait_for(&mut world, &[id], secs(20));
        let took = world.now().since(crashed);
        // S, a round of the crashed voter, f + 1 votes, the first block, and its commit.
        let rounds = 4 * DELTA_NS + SILENCE_NS + 2 * NEAR_NS;
        let bound = SILENCE_NS + HEARTBEAT_NS + 2 * rounds + 4 * DELTA_NS + (3 * f + 8) * NEAR_NS;
        assert!(took <= bound, "n = {n}: {took} of {bound}");
        let flags = against(&log, crashed);
        let voters: BTreeSet<ReplicaId> = flags.iter().map(|(_, by, _)| *by).collect();
        assert_eq!(voters.len() as u64, f + 1, "n = {n}: {flags:?}");
        assert!(flags.iter().all(|(of, _, is_evidence)| *of == View(1) && !is_evidence), "{flags:?}");
        assert_eq!((view(&world, n - 1), world.status(r(n - 1)).unwrap().leader), (View(2), r(1)));
        world.start(r(0)).unwrap();
        settle(&mut world);
        assert_eq!(view(&world, 0), View(2));
    }
}

/// S4, with K_max: forty blocks at once.
#[test]
fn s04_vote_adds_sixteen_blocks_at_most() {
    let mut c = Controlled::new(3, 44, &[0], |_, _| Verdict::Pass);
    let since = c.world.now();
    let (mut on, mut heights) = (c.last.clone(), BTreeMap::new());
    heights.insert(on.id(), on.height.0);
    for _ in 0..40 {
        let block = Controlled::block(&on, 0);
        c.emit(&[1, 2], &block);
        heights.insert(block.block.id(), block.block.height.0);
        on = block.block;
    }
    c.run(4 * SILENCE_NS);
    let votes = c.log.borrow().since(since);
    let mut named = vec![c.last.height.0];
    named.extend(
        votes.iter().filter(|(_, vote)| vote.kind == VoteKind::Data).map(|(_, vote)| heights[&vote.block]),
    );
    let steps: Vec<u64> = named.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert_eq!(steps.first(), Some(&16), "{steps:?}");
    assert_eq!((steps.iter().sum::<u64>(), steps.iter().max()), (40, Some(&16)), "{steps:?}");
    c.end();
}

/// S6: an Equivocation vote leaves within two honest rounds, and changes the view at once. The branch with votes stays.
#[test]
fn s06_equivocating_coordinator_is_replaced_at_once() {
    let mut c = Controlled::new(5, 6, &[0], |_, _| Verdict::Pass);
    let since = c.world.now();
    let (one, other) = (Controlled::block(&c.last, 1), Controlled::block(&c.last, 2));
    c.emit(&[1, 2], &one);
    c.emit(&[3, 4], &other);
    c.run(2 * (4 * DELTA_NS + SILENCE_NS));
    let votes = c.log.borrow().since(since);
    let shown = votes.iter().position(|(_, vote)| matches!(vote.kind, VoteKind::Equivocation(_)));
    let named: Vec<BlockId> =
        votes.iter().filter(|(_, vote)| vote.kind == VoteKind::Data).map(|(_, vote)| vote.block).collect();
    assert!(shown.is_some_and(|place| place <= 2), "{votes:?}");
    assert!((1..5).all(|id| view(&c.world, id) == View(2)), "{votes:?}");
    assert!(named.first().is_some_and(|first| [one.block.id(), other.block.id()].contains(first)));
    let stays = c
        .log
        .borrow()
        .blocks
        .iter()
        .any(|(_, block)| block.block.view == View(2) && named.contains(&block.block.parent));
    assert!(stays, "the next coordinator extends the head at the anchor");
    c.end();
}

/// S7: blocks of the coordinator reach one honest replica alone. Its votes name them, and the others fetch them.
#[test]
fn s07_coordinator_that_serves_one_replica_makes_progress() {
    let mut world = world_of(registered(), 5, 7, |_| {});
    let log = listen(&mut world, |_, frame| {
        let is_withheld = frame.content.kind.as_str() == "cblock" && frame.from == r(0) && frame.to != r(1);
        if is_withheld { Verdict::Drop } else { Verdict::Pass }
    });
    begin(&mut world);
    let since = world.now();
    for number in 0..10 {
        let id = world.submit(number % 2, &[incr("n")])[0];
        wait_for(&mut world, &[id], secs(5));
    }
    // Each of the other honest voters may flag it. f + 1 of them replace it, and that is as well.
    let voters: BTreeSet<ReplicaId> = against(&log, since).iter().map(|(_, by, _)| *by).collect();
    assert!(!voters.contains(&r(1)), "{voters:?}");
    assert_eq!(count(&world, "blame"), 0);
    settle(&mut world);
}

/// S8: f voters flag the coordinator in each of their turns.
#[test]
fn s08_false_flags_of_f_voters_replace_no_coordinator() {
    let entry = with_attack("false flags");
    for (n, liars) in [(3, vec![2]), (5, vec![2, 4])] {
        let mut world = world_of(&entry, n, 8, |settings| {
            settings.byzantine.replicas = liars.iter().map(|id| (r(*id), Byzantine::Own)).collect();
        });
        let log = listen(&mut world, |_, _| Verdict::Pass);
        begin(&mut world);
        for number in 0..30 {
            let id = world.submit(number % 2, &[incr("n")])[0];
            wait_for(&mut world, &[id], secs(5));
        }
        go(world.run_for(20 * HEARTBEAT_NS), &world);
        let flags = against(&log, Time::ZERO);
        assert!(flags.len() > 2 * liars.len(), "{flags:?}");
        assert!(flags.iter().all(|(_, by, _)| liars.contains(&by.0)), "{flags:?}");
        assert_eq!(view(&world, 0), View(1), "n = {n}");
        settle_honest(&mut world);
    }
}

/// S9: a voter is silent, late, equivocates, or sends to one replica. No honest voter is skipped.
#[test]
fn s09_byzantine_voters_break_nothing() {
    let attacks = [
        "equivocate",
        "late votes",
        "told to one",
        "false blames",
        "unanswered",
        "endorse alone",
        "older branch",
    ];
    for name in attacks {
        let entry = with_attack(name);
        for (n, liar) in [(3, 2), (5, 3)] {
            let mut world = world_of(&entry, n, 9, |settings| {
                settings.byzantine.replicas = BTreeMap::from([(r(liar), Byzantine::Own)]);
            });
            begin(&mut world);
            for number in 0..12 {
                let id = world.submit(number % 2, &[incr("n")])[0];
                wait_for(&mut world, &[id], secs(20));
            }
            for id in (0..u16::try_from(n).unwrap()).filter(|id| *id != liar) {
                assert_eq!(world.status(r(id)).unwrap().alarms.doubts, 0, "{name}: replica {id} of {n}");
            }
            settle_honest(&mut world);
        }
    }
    let mut world = world_of(registered(), 5, 9, |_| {});
    begin(&mut world);
    world.crash(r(3), Survives::Everything);
    for number in 0..12 {
        let id = world.submit(number % 2, &[incr("n")])[0];
        wait_for(&mut world, &[id], secs(20));
    }
    assert_eq!(view(&world, 0), View(1));
    world.start(r(3)).unwrap();
    settle(&mut world);
}

/// S10: Data votes of a Byzantine voter for a block that is no descendant, after a gap, and without its body.
#[test]
fn s10_invalid_data_votes_are_skipped() {
    for case in 0..3 {
        let mut world = world_of(registered(), 3, 10, |_| {});
        let log = listen(&mut world, |_, _| Verdict::Pass);
        begin(&mut world);
        level(&mut world);
        Controlled::wait_for_voter(&mut world, &log, 0);
        // Replica 0 is coordinator and next voter.
        let mut c = Controlled::take(world, log, &[0]);
        let tip = c.tip();
        let named = match case {
            0 => c.last.parent,
            1 => {
                let mut gap = Controlled::block(&c.last, 0);
                gap.block.height = gap.block.height.next();
                c.emit(&[1, 2], &gap);
                gap.block.id()
            }
            _ => BlockId(Digest([7; 32])),
        };
        let vote = c.vote(&tip, named, VoteKind::Data);
        let since = c.world.now();
        c.cast(&[1, 2], &vote);
        c.run(4 * DELTA_NS + SILENCE_NS + 3 * DELTA_NS + SILENCE_NS);
        let later = c.log.borrow().since(since);
        assert!(later.iter().skip(1).all(|(_, later)| later.parent.id != vote.id()), "{case}: {later:?}");
        assert!(later.iter().any(|(_, later)| later.round > vote.round), "{case}: the round was skipped");
        assert_eq!([1, 2].map(|id| c.world.status(r(id)).unwrap().alarms.doubts), [0, 0]);
        c.end();
    }
}

/// S11: the voter at the anchor equivocates: one vote opens view 2, and one does not. The next honest voter decides.
#[test]
fn s11_votes_that_equivocate_at_the_anchor_leave_one_chain() {
    let mut world = world_of(registered(), 5, 11, |_| {});
    let log = listen(&mut world, |_, _| Verdict::Pass);
    begin(&mut world);
    level(&mut world);
    Controlled::wait_for_voter(&mut world, &log, 0);
    let mut c = Controlled::take(world, log, &[0]);
    let tip = c.tip();
    let (one, other) = (Controlled::block(&c.last, 1), Controlled::block(&c.last, 2));
    let evidence = Evidence { first: c.signed(&one), second: c.signed(&other) };
    let opens = c.vote(&tip, tip.block, VoteKind::Equivocation(Box::new(evidence)));
    let stays = c.vote(&tip, tip.block, VoteKind::Endorse);
    c.cast(&[1, 2], &stays);
    c.cast(&[3, 4], &opens);
    c.run(8 * (4 * DELTA_NS + SILENCE_NS));
    let views: BTreeSet<View> = (1..5).map(|id| view(&c.world, id)).collect();
    assert_eq!(views.len(), 1, "{views:?}");
    c.end();
}

/// S12: all delays are exactly Δ.
#[test]
fn s12_delays_of_exactly_delta_are_tolerated() {
    for n in [3, 5] {
        let mut world = world_of(registered(), n, 12, |settings| {
            settings.conditions = LinkConditions::constant(DELTA_NS);
            settings.client.retry_ns = secs(3);
        });
        let log = listen(&mut world, |_, _| Verdict::Pass);
        begin(&mut world);
        for number in 0..10 {
            let id = world.submit(0, &[put("k", number)])[0];
            wait_for(&mut world, &[id], secs(5));
        }
        go(world.run_for(20 * HEARTBEAT_NS), &world);
        assert_eq!(count(&world, "blame"), 0, "n = {n}");
        assert_eq!((against(&log, Time::ZERO), view(&world, 1)), (vec![], View(1)), "n = {n}");
        settle(&mut world);
    }
}

/// Runs a cluster in which the coordinator's link to one replica takes Δ. Votes commit each block before its direct copy
/// arrives there. Returns the votes against the coordinator.
pub(crate) fn coordinator_at_the_end_of_a_slow_link(
    entry: &Entry,
    n: usize,
    far: u16,
) -> Vec<(View, ReplicaId, bool)> {
    let mut world = world_of(entry, n, 120, |_| {});
    let log = listen(&mut world, move |_, frame| {
        let is_far = (frame.from, frame.to) == (r(0), r(far));
        if is_far { Verdict::Delay(DELTA_NS - NEAR_NS) } else { Verdict::Pass }
    });
    begin(&mut world);
    for number in 0..10 {
        let id = world.submit(0, &[put("k", number)])[0];
        wait_for(&mut world, &[id], secs(5));
        go(world.run_for(5 * HEARTBEAT_NS), &world);
    }
    assert_eq!((count(&world, "blame"), view(&world, 1)), (0, View(1)), "n = {n}");
    settle(&mut world);
    against(&log, Time::ZERO)
}

/// S12 with one slow link within the bound.
#[test]
fn s12_coordinator_at_the_end_of_a_slow_link_is_not_flagged() {
    for (n, far) in [(3, 2), (5, 3)] {
        assert_eq!(coordinator_at_the_end_of_a_slow_link(registered(), n, far), vec![], "n = {n}");
    }
}

/// S13: a coordinator and a voter restart again and again. The oracle of slots judges each vote and block.
#[test]
fn s13_restarts_reuse_no_height_and_no_round() {
    for survives in [Survives::Nothing, Survives::Everything] {
        let mut world = world_of(registered(), 3, 13, |_| {});
        let log = listen(&mut world, |_, _| Verdict::Pass);
        begin(&mut world);
        for step in 0..8_u16 {
            let ids: Vec<_> = (0..4).flat_map(|client| world.submit(client % 2, &[incr("n")])).collect();
            go(world.run_for(NEAR_NS / 2 + u64::from(step) * 3 * ms(1)), &world);
            let id = r(step % 3);
            world.crash(id, survives);
            go(world.run_for(ms(5)), &world);
            world.start(id).unwrap();
            wait_for(&mut world, &ids, secs(20));
            go(world.run_for(4 * DELTA_NS), &world);
        }
        let log = log.borrow();
        let rounds: BTreeSet<View> = log.votes.iter().map(|(_, vote)| vote.round).collect();
        assert_eq!(rounds.len(), log.votes.len(), "one vote in a round");
        let slots: BTreeSet<_> =
            log.blocks.iter().map(|(_, it)| (it.anchor, it.block.view, it.block.height)).collect();
        assert_eq!(slots.len(), log.blocks.len(), "one block at a height");
        drop(log);
        settle(&mut world);
    }
}

/// §22: peers serve votes of 1,024 rounds. A replica that was away for longer follows the votes again from a base point.
/// Peers keep all blocks, so the replica needs no transfer of state.
#[test]
fn replica_that_was_away_for_long_votes_again() {
    for (n, seed) in [(3, 16), (5, 17)] {
        let mut world = world_of(registered(), n, seed, |settings| {
            (settings.storage.keep_bytes, settings.storage.disk_bytes_max) = (8 << 20, 64 << 20);
        });
        let log = listen(&mut world, |_, _| Verdict::Pass);
        begin(&mut world);
        level(&mut world);
        let away = r(2);
        world.crash(away, Survives::Everything);
        let round = |log: &SharedLog| log.borrow().votes.last().unwrap().1.round.0;
        let until = round(&log) + 1_300;
        go(world.run_while("rounds pass", secs(3_000), |_| round(&log) < until), &world);
        let ids = world.submit(0, &[incr("n"), incr("n")]);
        wait_for(&mut world, &ids, secs(20));
        world.start(away).unwrap();
        let started = world.now();
        let votes = |log: &SharedLog| log.borrow().since(started).iter().any(|(_, vote)| vote.voter == away);
        go(world.run_while("the replica votes again", secs(60), |_| !votes(&log)), &world);
        settle(&mut world);
    }
}

/// S15: the coordinator crashes, and messages take Δ. A voter waits S for its suspicion. Returns whether it is blamed although
/// it is honest.
fn waiting_voter_is_blamed(entry: &Entry) -> bool {
    let mut world = world_of(entry, 3, 15, |settings| {
        settings.conditions = LinkConditions::constant(DELTA_NS);
    });
    let log = listen(&mut world, |_, _| Verdict::Pass);
    begin(&mut world);
    world.crash(r(0), Survives::Everything);
    let _ = world.run_for(2 * SILENCE_NS);
    let log = log.borrow();
    log.blames.iter().any(|(_, round)| (round.0 - 1) % 3 != 0)
}

/// S15. The schedules of the museum have the other mutations: a round without its grace, and no relay.
#[test]
fn s15_round_timer_without_the_voters_wait_blames_honest_voters() {
    assert!(waiting_voter_is_blamed(&Entry::of::<Flawed<Protocol, TimerWithoutS>>()));
    assert!(!waiting_voter_is_blamed(registered()));
}
