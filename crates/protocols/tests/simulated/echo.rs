//! The teaching protocol in the simulator: the basics, and random runs as for any other protocol.

use crate::support::{TRANSPORTS, begin, go, incr, r, settle, wait_for, world_of};
use quorate_consensus::Entry;
use quorate_sim::{Op, Survives, ms, secs, seed};

fn echo() -> &'static Entry {
    quorate_protocols::find("echo").unwrap()
}

#[test]
fn hundred_requests_lead_to_one_state() {
    for transport in TRANSPORTS {
        let mut world = world_of(echo(), 50, |settings| settings.transport = transport);
        begin(&mut world);
        let mut ids = Vec::new();
        for bundle in 0..25 {
            let ops: Vec<Op> = (0..4).map(|op| incr(&format!("n{}", (bundle + op) % 3))).collect();
            ids.extend(world.submit(bundle % 4, &ops));
            go(world.run_for(ms(2)), &world);
        }
        wait_for(&mut world, &ids, secs(20));
        settle(&mut world);
    }
}

#[test]
fn requests_survive_a_restart_of_any_replica() {
    for id in 0..4 {
        let mut world = world_of(echo(), 51, |_| {});
        begin(&mut world);
        let mut ids = world.submit(0, &[incr("n")]);
        go(world.run_for(ms(3)), &world);
        world.crash(r(id), Survives::Some);
        ids.extend(world.submit(1, &[incr("n")]));
        go(world.run_for(ms(300)), &world);
        world.start(r(id)).unwrap();
        wait_for(&mut world, &ids, secs(20));
        settle(&mut world);
    }
}

#[test]
fn random_runs_pass() {
    let mut byzantine = 0;
    for number in 0..20 {
        let report = seed::run(echo(), None, number).unwrap();
        assert_eq!(report.failure, None, "{report}; again: {}", seed::again("echo", None, number));
        byzantine += report.byzantine.len();
        assert!(!report.byzantine.contains_key(&r(0)), "nothing replaces the leader of echo");
    }
    assert!(byzantine > 3, "{byzantine}");
}
