//! The synchrony guard in whole replicas, for any protocol, because the host has the guard. In these tests PBFT claims to
//! assume a bound on delays, and to have votes that are not durable.

use crate::support::{ask, begin, cut, go, incr, pbft, r, settle, world_of};
use quorate_consensus::{Entry, Spec, Synchrony};
use quorate_sim::{Change, NetworkFault, Places, Plan, Survives, World, ms, secs};
use quorate_types::Kind;

const DELTA_NS: u64 = ms(50);

fn bounded() -> Entry {
    Entry {
        spec: Spec { votes_are_durable: false, ..pbft().spec },
        synchrony: |_| Ok(Some(Synchrony { delta_ns: DELTA_NS, guarded: true })),
        ..*pbft()
    }
}

/// Returns four connected replicas.
fn calm(seed: u64) -> World {
    let mut world = world_of(&bounded(), seed, |_| {});
    begin(&mut world);
    go(world.run_for(secs(2)), &world);
    world
}

/// Returns the state of a replica's guard. A macro, because these tests do not know its type.
macro_rules! guard {
    ($world:expr, $id:expr) => {
        $world.status(r($id)).unwrap().guard.unwrap()
    };
}

fn doubts(world: &World) -> Vec<(bool, u64)> {
    (0..4).map(|id| guard!(world, id)).map(|guard| (guard.doubt, guard.doubts)).collect()
}

fn late(world: &World, id: u16) -> Vec<u16> {
    guard!(world, id).late.iter().map(|(id, _)| id.0).collect()
}

#[test]
fn no_peer_is_late_on_a_fast_network() {
    for seed in 0..5 {
        let mut world = calm(20_000 + seed);
        let before = doubts(&world);
        for _ in 0..50 {
            ask(&mut world, 0, incr("n"));
        }
        settle(&mut world);
        assert_eq!(doubts(&world), before, "seed {seed}");
        assert!(before.iter().all(|(doubt, _)| !doubt));
        for id in 0..4 {
            let guard = guard!(world, id);
            assert!(late(&world, id).is_empty());
            // A round trip, a little work, and messages that are held for the disk.
            assert!((ms(1)..ms(25)).contains(&guard.p999_ns), "{guard}");
        }
        let count = |kind| world.sent().get(&Kind::new(kind)).copied().unwrap_or(0);
        assert!(count("host.probe") > 0 && count("host.probe") - count("host.probed") < 40);
    }
}

/// Each quarter of Δ with work and each 2 Δ without; or a little earlier, and often all together.
#[test]
fn idle_replica_probes_less() {
    let mut world = calm(20_050);
    let probes = |world: &World| -> Vec<u64> { (0..4).map(|id| guard!(world, id).probes).collect() };
    let sent = |before: Vec<u64>, world: &World| -> Vec<u64> {
        probes(world).iter().zip(before).map(|(now, before)| now - before).collect()
    };
    let often = secs(2) / (DELTA_NS / 4) * 3;
    let before = probes(&world);
    go(world.run_for(secs(2)), &world);
    let idle = sent(before, &world);
    // PBFT sends its status each second: 3 Δ of work.
    assert!(idle.iter().all(|sent| (often / 8..often / 4).contains(sent)), "{idle:?} of {often}");
    let (start, before) = (world.now(), probes(&world));
    while world.now().since(start) < secs(2) {
        ask(&mut world, 0, incr("n"));
    }
    let busy = sent(before, &world);
    assert!(busy.iter().all(|sent| (often - 12..often * 9 / 8 + 12).contains(sent)), "{busy:?} of {often}");
}

#[test]
fn slow_network_causes_doubt_until_it_recovers() {
    // Within Δ and a probe period, which is longer without work.
    for (works, period_ns) in [(true, DELTA_NS / 4), (false, DELTA_NS * 2)] {
        slow_and_doubted(works, period_ns);
    }
}

fn slow_and_doubted(works: bool, period_ns: u64) {
    let mut world = calm(20_100);
    if works {
        ask(&mut world, 0, incr("n"));
    }
    let before = doubts(&world);
    let slow = Change::Slow { delay_ns: ms(60), jitter_ns: 0 };
    let network_fault =
        NetworkFault { from: Places::ALL, to: Places::ALL, both_ways: true, change: slow, fault: None };
    let number = world.begin_fault(network_fault);
    go(world.run_for(period_ns + DELTA_NS + ms(1)), &world);
    let during = doubts(&world);
    assert!(during.iter().zip(&before).all(|(now, old)| *now == (true, old.1 + 1)), "{during:?}");
    go(world.run_for(secs(1)), &world);
    assert_eq!(doubts(&world), during);
    world.end_fault(number);
    // Messages on their way arrive, and then the next probe is answered.
    go(world.run_for(ms(300)), &world);
    assert!(doubts(&world).iter().all(|(doubt, _)| !doubt));
    settle(&mut world);
}

#[test]
fn isolated_peer_is_late_and_causes_no_doubt() {
    let mut world = calm(20_200);
    let before = doubts(&world);
    let number = cut(&mut world, 3);
    go(world.run_for(secs(3)), &world);
    for id in 0..3 {
        assert_eq!((late(&world, id), guard!(world, id).doubts), (vec![3], before[usize::from(id)].1));
    }
    assert!(guard!(world, 3).doubt, "the isolated replica receives no answers");
    world.end_fault(number);
    go(world.run_for(secs(2)), &world);
    assert!((0..4).all(|id| late(&world, id).is_empty() && !guard!(world, id).doubt));
}

#[test]
fn restarted_peer_is_late_until_it_answers() {
    let mut world = calm(20_300);
    world.crash(r(2), Survives::Nothing);
    go(world.run_for(secs(1)), &world);
    assert!((0..4).filter(|id| *id != 2).all(|id| late(&world, id) == [2]));
    world.start(r(2)).unwrap();
    go(world.run_for(secs(3)), &world);
    assert!((0..4).all(|id| late(&world, id).is_empty() && !guard!(world, id).doubt));
    settle(&mut world);
}

#[test]
fn clock_drift_is_measured() {
    let mut world = calm(20_400);
    world.plan(world.now(), Plan::Drift(r(1), 400));
    go(world.run_for(secs(120)), &world);
    for id in 0..4 {
        let drift = guard!(world, id).drift_ppm.unwrap();
        // The clock was right for two seconds, and the two directions have different delays.
        let expected = if id == 1 { -400 } else { 400 };
        assert!((drift - expected).abs() < 40, "replica {id} reports {drift} ppm");
    }
}
