//! Synchronous protocols: standard seeds within the bound, and forks beyond it that the agreement oracle notices.

use crate::side_by_side::run_all;
use crate::support::{go, r, world_of};
use quorate_consensus::parts::chain::empty_payload;
use quorate_consensus::parts::recovery::RecoveryStage;
use quorate_consensus::{Certificate, Entry, Signed, To};
use quorate_protocols::sync_hotstuff::{Answer, Header, SyncMessage, VOTE};
use quorate_sim::{
    Change, Costs, Fault, LinkConditions, NetworkFault, Oracle, Places, Report, Transport, World, ms, secs,
    seed,
};
use quorate_types::digest::context;
use quorate_types::{Block, BlockId, Digest, Height, Incarnation, ReplicaId, View};
use std::collections::BTreeMap;

/// Δ of these worlds.
const DELTA_NS: u64 = ms(100);

fn entries() -> [&'static Entry; 2] {
    ["sync-hotstuff", "optsync"].map(|name| quorate_protocols::find(name).unwrap())
}

/// Scenario 13: three replicas, the leader of the first view is a controlled replica, and replicas 1 and 2 run.
fn with_a_leader_that_lies(entry: &Entry, guarded: bool) -> World {
    let mut world = world_of(entry, 13, |settings| {
        settings.transport = Transport::Links;
        settings.parameters.delta_ns = DELTA_NS;
        settings.parameters.guarded = guarded;
        settings.conditions = LinkConditions::constant(ms(1));
        settings.costs = Costs::NONE;
    });
    world.take_control(r(0));
    go(world.run_for(3 * DELTA_NS), &world);
    let answer = Answer::bare(Incarnation::ZERO, RecoveryStage::Running);
    world.send_as(r(0), To::All, &SyncMessage::Answer(Box::new(answer)));
    go(world.run_for(ms(20)), &world);
    world
}

/// Returns a first block of the first view; different times make different blocks.
fn first_block(time_ns: u64) -> Header {
    let mut base = b"sync-hotstuff: base of the view".to_vec();
    base.extend_from_slice(&BlockId::ZERO.0.0);
    let block = Block {
        parent: BlockId::ZERO,
        height: Height(1),
        view: View(1),
        proposer: r(0),
        time_ns,
        payload: empty_payload(),
        extra: Digest::of(&context::PROTOCOL, &base),
    };
    Header { block, base: BlockId::ZERO }
}

/// Sends the leader's proposal and vote for a block to one replica.
fn shows(world: &mut World, to: ReplicaId, header: Header) {
    let parent = Certificate::genesis(VOTE);
    let signature = world.sign(r(0), &header.statement());
    world.send_as(r(0), To::One(to), &SyncMessage::Propose { header: header.clone(), parent });
    world.send_as(r(0), To::One(to), &SyncMessage::Vote(Signed { body: header, by: r(0), signature }));
}

/// Shows B to replica 1 and B' to replica 2 while messages between the two are 5 Δ late.
fn equivocates(world: &mut World) {
    let change = Change::Late { by_ns: 5 * DELTA_NS, until: quorate_types::Time::ZERO };
    let (from, to) = (Places::one(1), Places::one(2));
    world.begin_fault(NetworkFault { from, to, both_ways: true, change, fault: Some(Fault::BeyondDelta) });
    shows(world, r(1), first_block(1));
    shows(world, r(2), first_block(2));
}

/// Scenario 13: beyond Δ and without the guard the fork happens 2 Δ after the votes, and the oracle notices it. Both replicas
/// notice as soon as their messages reach each other.
#[test]
fn s13_unguarded_replicas_fork_beyond_delta_and_are_caught() {
    for entry in entries() {
        let mut world = with_a_leader_that_lies(entry, false);
        equivocates(&mut world);
        let failure = world.run_for(3 * DELTA_NS).unwrap_err();
        assert_eq!(failure.oracle, Oracle::Agreement, "{}: {failure}", entry.spec.name);
        let mut world = with_a_leader_that_lies(entry, false);
        world.tolerate(Oracle::Agreement);
        equivocates(&mut world);
        go(world.run_for(3 * DELTA_NS), &world);
        assert_eq!([r(1), r(2)].map(|id| world.decided(id)), [Height(1); 2], "each has committed its own");
        // Their votes leave a millisecond later, and take 5 Δ and one more.
        go(world.run_for(2 * DELTA_NS + ms(1)), &world);
        let doubted = |world: &World| [r(1), r(2)].map(|id| world.status(id).unwrap().alarms.doubts);
        let before = doubted(&world);
        go(world.run_for(ms(2)), &world);
        for (now, before) in doubted(&world).into_iter().zip(before) {
            assert!(now > before, "{}: both notice the fork when their messages arrive", entry.spec.name);
        }
    }
}

/// The same with the guard on: replicas 1 and 2 receive no answers in time, and commit nothing.
#[test]
fn s16_guarded_replicas_commit_nothing_beyond_delta() {
    for entry in entries() {
        let mut world = with_a_leader_that_lies(entry, true);
        equivocates(&mut world);
        go(world.run_for(30 * DELTA_NS), &world);
        assert_eq!(world.highest(), Height::ZERO, "{}", entry.spec.name);
    }
}

fn must_pass(entry: &Entry, n: usize, seeds: u64) -> Vec<Report> {
    let reports = run_all(&(0..seeds).collect::<Vec<_>>(), |seed| seed::run(entry, Some(n), seed).unwrap());
    for report in &reports {
        assert!(report.failure.is_none(), "{} n = {n} {report}", entry.spec.name);
    }
    reports
}

/// Standard seeds within the bound: faults of four classes, a replica or two of them Byzantine.
#[test]
fn seeds_within_the_bound_pass() {
    for entry in entries() {
        let mut felt: BTreeMap<Fault, u64> = BTreeMap::new();
        for (n, seeds) in [(3, 12), (5, 4)] {
            for report in must_pass(entry, n, seeds) {
                assert!(report.requests >= 400 && report.virtual_ns >= secs(60), "{report}");
                report.felt.iter().for_each(|(fault, count)| *felt.entry(*fault).or_default() += count);
            }
        }
        assert!(felt.contains_key(&Fault::PowerCut), "{felt:?}");
    }
}
