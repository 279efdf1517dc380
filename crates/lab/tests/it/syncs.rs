//! A turn makes at most one sync.

use quorate_sim::{Op, Settings, World, ms, secs};

fn expect_success(result: Result<(), quorate_sim::Failure>) {
    if let Err(failure) = result {
        panic!("{failure}");
    }
}

/// The replicas write many snapshots while load keeps the log busy.
#[test]
fn turn_syncs_a_snapshot_or_the_log() {
    let mut settings = Settings::new(quorate_protocols::find("pbft").unwrap(), 21);
    settings.checkpoint_every = 4;
    settings.window = 8;
    settings.storage.snapshot_every_bytes = 12 << 10;
    let clients = settings.clients;
    let mut world = World::new(settings).unwrap();
    expect_success(world.run_while("all clients have their sessions", secs(10), |world| {
        (0..clients).any(|client| world.session(client).is_none())
    }));
    let syncs = |world: &World| -> Vec<u64> {
        // All syncs of an incarnation without those of the log.
        world.replicas().map(|id| world.ledger(id).syncs.wrapping_sub(world.syncs(id))).collect()
    };
    let before = syncs(&world);
    for value in 0..150u64 {
        let client = usize::try_from(value).unwrap() % clients;
        let key = format!("key {}", value % 20);
        world.submit(client, &[Op::Put { key, value: value.to_string() }]);
        expect_success(world.run_for(ms(2)));
    }
    expect_success(world.run_while("all is answered", secs(20), |world| !world.all_done()));
    expect_success(world.run_for(secs(1)));
    for ((id, before), after) in world.replicas().zip(before).zip(syncs(&world)) {
        let (_, files) = world.disk_parts(id);
        assert!(files > 0, "replica {id} has written no snapshot");
        assert_eq!(world.ledger(id).turn_syncs_max, 1, "replica {id}");
        // A snapshot costs four: bytes and name of its chunks, bytes and name of its manifest.
        let others = after.wrapping_sub(before);
        assert!(
            others >= 8 && others.is_multiple_of(4),
            "replica {id}: {others} syncs that are not of the log"
        );
    }
}
