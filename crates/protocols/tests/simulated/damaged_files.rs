//! Random truncations and bit flips of the log and the snapshots of one replica. It repairs a torn tail, or receives a state, or
//! refuses to open and says what to do. It never panics and never waits without an end, and with an empty disk it comes back.
//!
//! `QUORATE_DAMAGE_RUNS` is the number of seeds of each protocol; 200 is the long form, with 1,000 in total.

use crate::amnesia::load_until_back;
use crate::long_forms::{families, setting};
use crate::support::{begin, go, many, r, settle, short_window, world_of};
use quorate_consensus::Entry;
use quorate_sim::{FileDamage, ReplicaState, Survives, World, ms};
use quorate_types::rng::Rng;
use quorate_types::{Height, ReplicaId};
use std::collections::BTreeMap;

families!(damaged_files_are_repaired_or_refused_with_advice);

/// Seeds of a protocol without `QUORATE_DAMAGE_RUNS`.
const RUNS: u64 = 40;
/// A replica that is well has caught up after so many rounds of requests.
const ROUNDS_MAX: usize = 30;

/// The fate of the damaged replica.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Outcome {
    /// Nothing that it needs was damaged.
    Unharmed,
    /// The log was cut off where the damage began.
    TailRepaired,
    /// A damaged snapshot was skipped: an older one and the log give the state.
    SnapshotSkipped,
    /// No snapshot gives the state: one came from peers.
    StateReceived,
    /// It was not opened.
    Refused,
    /// It stopped when its peers showed it what it had forgotten, or its connections are refused.
    LeftOut,
}

fn world(entry: &Entry, seed: u64) -> World {
    let mut world = world_of(entry, seed, |settings| {
        short_window(settings);
        settings.storage.segment_bytes = 16 << 10;
        settings.storage.keep_bytes = 16 << 10;
        settings.storage.snapshot_every_bytes = 12 << 10;
        settings.bodies.bundle_bytes_max = 6 << 10;
        settings.bodies.block_bytes_max = 8 << 10;
        settings.bodies.block_bundles_max = 8;
    });
    begin(&mut world);
    many(&mut world, 40 + (seed % 7) as usize);
    world
}

/// Chooses damage to the log.
fn log_damage(rng: &mut Rng, segments: &[u32], newest: &[(u32, u32, usize)]) -> Vec<FileDamage> {
    let used: Vec<(u32, u32)> = (0..).zip(segments.iter().copied()).filter(|(_, used)| *used > 0).collect();
    let place = |rng: &mut Rng| {
        let (slot, used) = *rng.pick(&used).unwrap();
        (slot, rng.below(u64::from(used)) as u32)
    };
    match rng.below(6) {
        0 | 1 => {
            // This damage looks like a torn write.
            let (slot, from, length) = *rng.pick(newest).unwrap();
            let byte = from + rng.below(length as u64) as u32;
            let flip = FileDamage::LogFlip(slot, from + rng.below(16) as u32, rng.below(8) as u8);
            vec![if rng.below(2) == 0 { FileDamage::LogLost(slot, byte) } else { flip }]
        }
        2 => vec![FileDamage::LogEnds(rng.below(segments.len() as u64 * (16 << 10)))],
        3 => {
            let (slot, byte) = place(rng);
            vec![FileDamage::LogLost(slot, byte)]
        }
        _ => (0..=rng.below(3))
            .map(|_| {
                let (slot, byte) = place(rng);
                FileDamage::LogFlip(slot, byte, rng.below(8) as u8)
            })
            .collect(),
    }
}

/// Chooses damage to a snapshot, or to the newest manifest, which all of the newest state depends on.
fn snapshot_damage(rng: &mut Rng, files: &[(String, u64)]) -> Vec<FileDamage> {
    let newest = files.iter().rfind(|(name, _)| name.starts_with("snapshot-"));
    let file = if rng.below(2) == 0 { newest } else { rng.pick(files) };
    let Some((name, size)) = file.cloned() else { return Vec::new() };
    if rng.below(2) == 0 {
        return vec![FileDamage::FileEnds(name, rng.below(size.max(1)))];
    }
    (0..=rng.below(3))
        .map(|_| FileDamage::FileFlip(name.clone(), rng.below(size.max(1)), rng.below(8) as u8))
        .collect()
}

/// Chooses damage to the log, to the snapshots, or to both. Some of it loses all snapshots.
fn choose(rng: &mut Rng, world: &World, id: ReplicaId) -> Vec<FileDamage> {
    let (segments, files) = world.disk_files(id);
    let newest = world.newest_writes(id);
    let manifests = files.iter().filter(|(name, _)| name.starts_with("snapshot-"));
    match rng.below(8) {
        0..=3 => log_damage(rng, &segments, &newest),
        4 | 5 => snapshot_damage(rng, &files),
        6 => manifests.map(|(name, size)| FileDamage::FileEnds(name.clone(), rng.below(*size))).collect(),
        _ => [log_damage(rng, &segments, &newest), snapshot_damage(rng, &files)].concat(),
    }
}

/// Whether a text tells the operator what to do.
fn has_advice(why: &str) -> bool {
    ["start the node with --rejoin", "start the node again", "move the folder's snapshots away"]
        .iter()
        .any(|advice| why.contains(advice))
}

/// Makes requests until the replica is as good as the others. Returns whether it is.
fn catches_up(world: &mut World, id: ReplicaId) -> bool {
    let is_good = |world: &World| {
        let status = world.status(id);
        status
            .is_some_and(|status| status.state == ReplicaState::Current && status.executed == world.height())
    };
    for _ in 0..ROUNDS_MAX {
        many(world, 4);
        go(world.run_for(ms(500)), world);
        if is_good(world) || !world.is_running(id) {
            break;
        }
    }
    is_good(world)
}

/// A replica that is left out has advice for its operator, or its connections with more than f peers are refused, which its node
/// reports with advice.
fn is_left_out(world: &World, id: ReplicaId, case: &str) -> bool {
    match world.why_stopped(id).filter(|_| !world.is_running(id)) {
        Some(why) => {
            assert!(has_advice(why) || why.contains("its log does not have"), "{case}: no advice: {why}");
            true
        }
        None => world.refusals(id) > world.settings().f,
    }
}

fn outcome(world: &mut World, id: ReplicaId, rng: &mut Rng, case: &mut String) -> Outcome {
    let before = world.executed(id);
    world.crash(id, *rng.pick(&[Survives::Nothing, Survives::Everything]).unwrap());
    go(world.run_for(ms(50)), world);
    many(world, 2);
    let damage = choose(rng, world, id);
    let is_tail = world.damage_files(id, &damage);
    *case = format!("{case}, {damage:?}");
    if let Err(why) = world.start(id) {
        assert!(has_advice(&why), "{case}: no advice: {why}");
        return Outcome::Refused;
    }
    let opened = world.executed(id);
    if !catches_up(world, id) {
        assert!(is_tail, "{case}: {:?}", world.status(id).map(|status| status.to_string()));
        assert!(is_left_out(world, id, case), "{case}: {}", world.status(id).unwrap());
        return Outcome::LeftOut;
    }
    let is_of_log =
        |damage: &FileDamage| !matches!(damage, FileDamage::FileEnds(..) | FileDamage::FileFlip(..));
    match () {
        () if opened == Height::ZERO && before > Height::ZERO && !is_tail => Outcome::StateReceived,
        () if is_tail => Outcome::TailRepaired,
        () if damage.iter().any(is_of_log) => Outcome::Unharmed,
        () => Outcome::SnapshotSkipped,
    }
}

fn run(entry: &Entry, seed: u64) -> Outcome {
    let mut case = format!("{}, seed {seed}", entry.spec.name);
    let mut rng = Rng::new(seed);
    let mut world = world(entry, seed);
    let id = r((seed % world.settings().n as u64) as u16);
    let outcome = outcome(&mut world, id, &mut rng, &mut case);
    if matches!(outcome, Outcome::Refused | Outcome::LeftOut) {
        // The advice names an empty folder and --rejoin, so the replica begins anew.
        world.wipe(id);
        go(world.run_for(ms(50)), &world);
        world.start(id).unwrap_or_else(|why| panic!("{case}: {why}"));
        load_until_back(&mut world, id, 120);
        many(&mut world, 8);
    }
    settle(&mut world);
    let bytes = world.disk_bytes(id);
    assert!(bytes <= world.settings().storage.disk_bytes_max, "{case}: {bytes} bytes");
    outcome
}

fn damaged_files_are_repaired_or_refused_with_advice(entry: &Entry) {
    let mut counts: BTreeMap<Outcome, u64> = BTreeMap::new();
    for seed in 0..setting("QUORATE_DAMAGE_RUNS").unwrap_or(RUNS) {
        *counts.entry(run(entry, seed)).or_default() += 1;
    }
    println!("{}: {counts:?}", entry.spec.name);
    for kind in [Outcome::TailRepaired, Outcome::SnapshotSkipped, Outcome::StateReceived, Outcome::Refused] {
        assert!(counts.contains_key(&kind), "{}: no seed gives {kind:?}: {counts:?}", entry.spec.name);
    }
}
