//! Costs of one silent replica in Apollo and Artemis, to the nanosecond (`apollo` §9, `artemis` §9).

use crate::support::{begin, incr, level, r, wait_for};
use crate::sync_exact_world::{DELTA_NS, NEAR_NS, exact};
use quorate_sim::{Audience, Survives, Verdict, Workload, World, ms, secs};
use quorate_types::{Kind, ReplicaId, Time, View};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

/// τ of these worlds. S of Artemis is thus 4 Δ.
const HEARTBEAT_NS: u64 = 3 * DELTA_NS;
const SILENCE_NS: u64 = 4 * DELTA_NS;
/// Turns of the silent replica that are measured.
const TURNS: u64 = 3;

/// Time at which the first message of a kind left, by view or round, and by height for messages with one.
type Sent = Rc<RefCell<BTreeMap<(Kind, View, u64), Time>>>;

fn world_of(protocol: &str, n: usize) -> (World, Sent) {
    let entry = quorate_protocols::find(protocol).unwrap();
    let mut world = exact(entry, n, 5, |settings| {
        settings.set("heartbeat_ms", i64::try_from(HEARTBEAT_NS / ms(1)).unwrap());
        settings.client.audience = Audience::All;
    });
    let sent = Sent::default();
    let shared = Rc::clone(&sent);
    world.hook(move |at, frame| {
        let place = (frame.content.kind, frame.content.view, frame.content.height.0);
        shared.borrow_mut().entry(place).or_insert(at);
        Verdict::Pass
    });
    begin(&mut world);
    level(&mut world);
    (world, sent)
}

fn author(round: View, n: usize) -> ReplicaId {
    ReplicaId(u16::try_from((round.0 - 1) % n as u64).unwrap())
}

/// Returns the rounds in which an entry left, each with the time.
fn entries(sent: &Sent, kind: Kind, since: Time) -> Vec<(View, Time)> {
    let sent = sent.borrow();
    let of = |(&(of, round, _), &at): (&(Kind, View, u64), &Time)| {
        (of == kind && at >= since).then_some((round, at))
    };
    sent.iter().filter_map(of).collect()
}

/// The author before the silent one begins its wait with its own entry, one hop before the others. So two blames are at the next
/// author at the end of its own wait, and a third one takes another hop.
fn gap_ns(n: usize, wait_ns: u64) -> u64 {
    let weak = (n - 1) / 2 + 1;
    wait_ns + if weak > 2 { 2 * NEAR_NS } else { NEAR_NS }
}

/// Lets one replica fall silent under load. Its rounds cost one wait each. Returns the spans between the other rounds.
fn silent_author_costs_one_wait(protocol: &str, kind: &'static str, wait_ns: u64) -> Vec<u64> {
    let mut others = Vec::new();
    for n in [3, 5, 7] {
        let (mut world, sent) = world_of(protocol, n);
        let silent = r(2);
        world.load_all(Workload {
            operations: 20_000,
            pause_ns: ms(1),
            together_max: 4,
            outstanding_max: 20_000,
            keys: 5,
        });
        world.run_for(ms(200)).unwrap();
        world.crash(silent, Survives::Everything);
        // Messages that have left before arrive.
        world.run_for(2 * NEAR_NS).unwrap();
        let since = world.now();
        world.run_for((TURNS + 1) * (wait_ns + 8 * NEAR_NS)).unwrap();
        let all = entries(&sent, Kind::new(kind), since);
        let mut turns = 0;
        for pair in all.windows(2) {
            let [(before, left), (after, right)] = [pair[0], pair[1]];
            if after == before.next() {
                others.push(right.since(left));
                continue;
            }
            assert_eq!(
                (before.0 + 2, author(before.next(), n)),
                (after.0, silent),
                "only its rounds are skipped"
            );
            assert_eq!(right.since(left), gap_ns(n, wait_ns), "{protocol}, n = {n}, after {before}");
            turns += 1;
        }
        assert!(turns >= TURNS, "n = {n}: {turns} turns of the silent replica");
    }
    others
}

#[test]
fn silent_leader_of_apollo_costs_4_delta_tau_and_two_hops_once_per_rotation() {
    let others = silent_author_costs_one_wait("apollo", "propose", 4 * DELTA_NS + HEARTBEAT_NS);
    assert!(!others.is_empty() && others.iter().all(|span| *span == NEAR_NS), "{others:?}");
}

/// The coordinator's blocks go on during the wait, and the next votes cover them.
#[test]
fn silent_voter_of_artemis_costs_4_delta_s_and_two_hops_once_per_rotation() {
    let others = silent_author_costs_one_wait("artemis", "vote", 4 * DELTA_NS + SILENCE_NS);
    assert!(others.contains(&NEAR_NS), "{others:?}");
}

/// The coordinator falls silent in a round of its successor. That one notices it S after the last block. It and f further voters
/// say so, one hop after the other. The last of these votes takes one hop to the new coordinator, which sends a block at once.
#[test]
fn silent_coordinator_of_artemis_costs_s_and_one_hop_for_each_of_its_accusers() {
    for (n, f) in [(3, 1), (5, 2), (7, 3)] {
        let (mut world, sent) = world_of("artemis", n);
        let is_of_first = |world: &World| {
            let votes = entries(&sent, Kind::new("vote"), Time::ZERO);
            votes
                .last()
                .is_some_and(|(round, at)| author(*round, n) == r(0) && world.now() == at.plus(NEAR_NS))
        };
        world.run_while("a vote of the coordinator arrives", secs(20), |world| !is_of_first(world)).unwrap();
        world.crash(r(0), Survives::Everything);
        let crashed = world.now();
        let request = world.submit(0, &[incr("n")]);
        wait_for(&mut world, &request, secs(20));
        let blocks = entries(&sent, Kind::new("cblock"), Time::ZERO);
        let last = blocks.iter().filter(|(view, _)| *view == View(1)).map(|(_, at)| *at).max().unwrap();
        let first = blocks.iter().filter(|(view, _)| *view == View(2)).map(|(_, at)| *at).min().unwrap();
        let noticed = last.plus(NEAR_NS + SILENCE_NS);
        let votes: Vec<Time> = entries(&sent, Kind::new("vote"), crashed).iter().map(|(_, at)| *at).collect();
        let accusers: Vec<Time> = (0..=f).map(|hop| noticed.plus(hop * NEAR_NS)).collect();
        assert!(votes.starts_with(&accusers), "n = {n}: {votes:?}, and not {accusers:?}");
        assert_eq!(first, noticed.plus((f + 1) * NEAR_NS), "n = {n}");
    }
}
