//! A mutation for each oracle: an oracle that never fires proves nothing.

use super::exhibit::Exhibit;
use super::runs;
use crate::disk::{DiskFlaw, Survives};
use crate::exam::ShortRun;
use crate::frame::Verdict;
use crate::instrumented_store::StoreFlaw;
use crate::oracles::{Failure, Oracle};
use crate::report::Report;
use crate::seed::{ByzantineChoice, StandardRun};
use crate::settings::BadSettings;
use crate::trace::Trace;
use crate::world::World;
use crate::{Byzantine, ms, secs};
use quorate_consensus::{CHECKPOINT_KIND, Entry};
use quorate_types::{Height, Kind, ReplicaId};

/// Mutations for all oracles but replay, whose mutation is a test of its own.
pub const ORACLE_MUTATIONS: &[Exhibit] = &[
    Exhibit {
        id: "agreement",
        failure: "two replicas execute different things",
        variant: "the service of one replica skips every thirtieth operation",
        caught_by: &[Oracle::Agreement],
        within: 5,
        run: |entry, seed| {
            let last = entry.smallest(1).saturating_sub(1);
            with_flawed_service(entry, seed, StoreFlaw::Never(30), last, &[])
        },
    },
    Exhibit {
        id: "exactly once",
        failure: "an operation is applied twice, by all replicas alike",
        variant: "every service applies its first operation after a restart twice",
        caught_by: &[Oracle::ExactlyOnce],
        within: 5,
        run: |entry, seed| with_flawed_service(entry, seed, StoreFlaw::Often(1), 0, &[]),
    },
    Exhibit {
        id: "right results",
        failure: "clients receive wrong results",
        variant: "every service answers every thirtieth operation with a wrong result",
        caught_by: &[Oracle::Results],
        within: 5,
        run: |entry, seed| with_flawed_service(entry, seed, StoreFlaw::Wrong(30), 0, &[]),
    },
    Exhibit {
        id: "durability",
        failure: "answered operations are lost",
        variant: "disks report syncs without doing them, all machines lose power, and the oracles for promises are \
                  off",
        caught_by: &[Oracle::Durability],
        within: 5,
        run: all_is_lost,
    },
    Exhibit {
        id: "linearizable",
        failure: "no order explains the answers of clients",
        variant: "as for right results, and the oracle that asks replicas is off",
        caught_by: &[Oracle::Linearizable],
        within: 5,
        run: |entry, seed| {
            with_flawed_service(entry, seed, StoreFlaw::Wrong(30), 0, &[Oracle::Results, Oracle::Durability])
        },
    },
    Exhibit {
        id: "same slot",
        failure: "a replica signs two statements for one slot",
        variant: "a replica recovers with an older disk, and the oracles judge it as honest",
        caught_by: &[Oracle::SameSlot],
        within: 100,
        run: |entry, seed| trusted(entry, seed, Byzantine::Rollback, &[Oracle::Held, Oracle::Links]),
    },
    Exhibit {
        id: "held until durable",
        failure: "a promise leaves before it is on disk",
        variant: "disks report syncs without doing them",
        caught_by: &[Oracle::Held],
        within: 20,
        run: runs::votes_leave_early,
    },
    Exhibit {
        id: "bounds",
        failure: "a replica keeps data that it should have dropped",
        variant: "no checkpoint becomes stable, the window is large, and the bound is that of a small one",
        caught_by: &[Oracle::Bounds],
        within: 5,
        run: no_checkpoints,
    },
    Exhibit {
        id: "liveness",
        failure: "progress stops",
        variant: "no message of f + 1 replicas leaves",
        caught_by: &[Oracle::Liveness],
        within: 5,
        run: too_many_silent,
    },
    Exhibit {
        id: "livelock",
        failure: "views change for ever",
        variant: "no message about a height from the fifth on leaves, and all about views do",
        caught_by: &[Oracle::Livelock],
        within: 50,
        run: nothing_of_heights,
    },
    Exhibit {
        id: "stopped",
        failure: "an honest replica stops and stays down",
        variant: "a log that ends in the middle of a write is refused",
        caught_by: &[Oracle::Stopped],
        within: 100,
        run: runs::tail_is_damage,
    },
    Exhibit {
        id: "links",
        failure: "an honest replica closes its link to another",
        variant: "a forgotten incarnation is used a second time",
        caught_by: &[Oracle::Links],
        within: 100,
        run: |entry, seed| {
            runs::with_disk_flaw(entry, seed, DiskFlaw::Sync, &[Oracle::Held, Oracle::SameSlot])
        },
    },
    Exhibit {
        id: "accusation",
        failure: "an honest replica is treated as Byzantine",
        variant: "a Byzantine replica that the oracles judge as honest",
        caught_by: &[Oracle::Accusation],
        within: 50,
        run: |entry, seed| trusted(entry, seed, Byzantine::Mutate, &[Oracle::SameSlot, Oracle::Held]),
    },
    Exhibit {
        id: "no panic",
        failure: "an assertion fails",
        variant: "an assertion fails at the five-hundredth frame",
        caught_by: &[Oracle::Panic],
        within: 5,
        run: one_frame_too_many,
    },
];

/// Runs Byzantine replicas that the oracles take for honest ones.
fn trusted(entry: &Entry, seed: u64, kind: Byzantine, ignored: &[Oracle]) -> Result<Report, BadSettings> {
    let mut standard = StandardRun::with(entry, None, ByzantineChoice::All(kind), seed)?;
    let world = standard.world();
    let liars: Vec<ReplicaId> = world.replicas().filter(|id| !world.is_honest(*id)).collect();
    liars.into_iter().for_each(|id| world.trust_liar(id));
    ignored.iter().for_each(|oracle| world.tolerate(*oracle));
    Ok(standard.run())
}

/// Runs flawed services: those of replica `from` and all after it, from their second start on. Their first life ends
/// soon.
fn with_flawed_service(
    entry: &Entry,
    seed: u64,
    store_flaw: StoreFlaw,
    from: usize,
    ignored: &[Oracle],
) -> Result<Report, BadSettings> {
    let mut short = runs::short(entry, seed, ignored)?;
    let world = short.world();
    for id in world.replicas().skip(from) {
        world.break_service(id, store_flaw);
        runs::restart(world, id, Survives::Everything, 1);
    }
    Ok(short.run(|world, _| world.run_for(secs(4))))
}

fn too_many_silent(entry: &Entry, seed: u64) -> Result<Report, BadSettings> {
    let mut short = runs::short(entry, seed, &[])?;
    let world = short.world();
    let (n, f) = (world.settings().n, world.settings().f);
    world.hook(move |_, frame| {
        let speaks = frame.from.index().saturating_add(f).saturating_add(1) < n;
        if speaks { Verdict::Pass } else { Verdict::Drop }
    });
    Ok(short.run(|world, _| world.run_for(secs(4))))
}

fn all_is_lost(entry: &Entry, seed: u64) -> Result<Report, BadSettings> {
    let mut short = runs::short(entry, seed, &[Oracle::Held, Oracle::Links, Oracle::SameSlot])?;
    let world = short.world();
    for id in world.replicas() {
        world.break_disk(id, DiskFlaw::Sync);
        // The disk's flaw begins with the next start.
        runs::restart(world, id, Survives::Everything, 5);
    }
    Ok(short.run(|world, _| {
        world.run_while("all operations are answered", secs(60), |world| !world.all_done())?;
        for id in world.replicas() {
            runs::restart(world, id, Survives::Nothing, 5);
        }
        world.run_for(ms(100))?;
        world.run_while("all replicas are where they were", secs(20), |world| !world.is_level())
    }))
}

fn nothing_of_heights(entry: &Entry, seed: u64) -> Result<Report, BadSettings> {
    let mut short = runs::short(entry, seed, &[])?;
    short.world().hook(|_, frame| {
        let of_height = frame.content.statement.is_some_and(|said| said.height >= Height(5));
        if of_height && !is_about_checkpoints(frame.content.kind) { Verdict::Drop } else { Verdict::Pass }
    });
    Ok(short.run(|world, _| world.run_for(secs(4))))
}

/// Whether a frame is about checkpoints.
fn is_about_checkpoints(kind: Kind) -> bool {
    kind == CHECKPOINT_KIND || kind == Kind::new("host.checkpoint") || kind == Kind::new("host.proof")
}

fn no_checkpoints(entry: &Entry, seed: u64) -> Result<Report, BadSettings> {
    let mut short = ShortRun::new((entry, entry.smallest(1), seed), Trace::default(), |settings, _| {
        settings.window = 640;
    })?;
    let world = short.world();
    world.tighten_bounds();
    world.hook(
        |_, frame| {
            if is_about_checkpoints(frame.content.kind) { Verdict::Drop } else { Verdict::Pass }
        },
    );
    Ok(short.run(|world, _| world.run_for(secs(8))))
}

fn one_frame_too_many(entry: &Entry, seed: u64) -> Result<Report, BadSettings> {
    let mut short = runs::short(entry, seed, &[])?;
    let mut frames = 0u32;
    short.world().hook(move |_, _| {
        frames = frames.saturating_add(1);
        assert!(frames < 500, "on purpose");
        Verdict::Pass
    });
    Ok(short.run(|world: &mut World, _| -> Result<(), Failure> { world.run_for(secs(8)) }))
}
