//! The promise of `sync-hotstuff` §18 and `apollo` §17: all replicas lose power at any moment, f of them lie afterwards, and the others
//! restart within `boot_wait` of each other. No acknowledged request is lost, and no conflicting block is committed.

use crate::support::{SURVIVES, begin, go, settle, world_of};
use crate::sync_flaws::NoRecord;
use quorate_consensus::Entry;
use quorate_consensus::flawed::Flawed;
use quorate_protocols::sync_hotstuff::{Plain, SyncHotStuff};
use quorate_sim::{
    Bodies, Byzantine, Costs, DelayPattern, Delays, Failure, LinkConditions, Oracle, Plan, Settings,
    Survives, Transport, Workload, World, ms, secs,
};
use quorate_types::ReplicaId;
use quorate_types::rng::Rng;

/// Clients, and requests of each: 120 in total.
const CLIENTS: usize = 4;
const OPERATIONS: u32 = 30;
/// Replicas restart within so many Δ of each other; the exam's `boot_wait` is 20 Δ.
const BACK_WITHIN_DELTAS: u64 = 17;

/// Number of replicas, and pause of a client.
type Run = (usize, u64);
/// Many requests wait, and blocks are full.
const BUSY: Run = (3, ms(1));
/// Hardly any request waits.
const CALM: Run = (3, ms(12));

/// Behaviour of f replicas after the restart.
const AFTERWARDS: [Byzantine; 5] =
    [Byzantine::Rollback, Byzantine::Own, Byzantine::Mute, Byzantine::Favourites, Byzantine::Mutate];

macro_rules! synchronous {
    ($($name:ident => $protocol:literal,)*) => {
        $(mod $name {
            #[test]
            fn s18_power_cut_of_all_at_every_log_write_loses_nothing() {
                super::s18_power_cut_of_all_at_every_log_write_loses_nothing(quorate_protocols::find($protocol).unwrap());
            }
        })*
    };
}

synchronous! {
    sync_hotstuff => "sync-hotstuff",
    optsync => "optsync",
    rotating => "sync-hotstuff-rr",
    apollo => "apollo",
    artemis => "artemis",
}

fn loaded(entry: &Entry, (n, pause_ns): Run, seed: u64) -> World {
    let mut world = world_of(entry, seed, |settings: &mut Settings| {
        *settings = settings.clone().with_n(n);
        settings.transport = Transport::Links;
        settings.clients = CLIENTS;
        settings.parameters.guarded = seed.is_multiple_of(2);
        // One replica has the longest delay that the bound permits: it learns of decisions last.
        settings.parameters.delta_ns = ms(60);
        let (delta_ns, link_ns) =
            (settings.parameters.delta_ns, Delays::link_ns(settings.parameters.delta_ns));
        settings.conditions = LinkConditions {
            delay_ns: 100_000,
            jitter_ns: 50_000,
            delay_ns_max: link_ns,
            ..LinkConditions::GOOD
        };
        settings.costs = Costs { sync_ns: 100_000, wake_ns: 100_000, ..Costs::USUAL };
        let far = DelayPattern::Replica(ReplicaId(u16::try_from(seed % n as u64).unwrap()));
        settings.delays = Some(Delays::within(delta_ns, settings.parameters.guarded, Bodies::AreThere, far));
        settings.client.retry_ns = ms(400);
        settings.client.retry_ns_max = ms(800);
    });
    begin(&mut world);
    world.load_all(Workload {
        operations: OPERATIONS,
        pause_ns,
        together_max: 4,
        outstanding_max: 12,
        keys: 5,
    });
    world
}

/// Returns the steps of a replica's disk and network in a run without faults, from the first request to the last answer:
/// writes, syncs and flushes.
fn steps(entry: &Entry, run: Run, seed: u64, id: ReplicaId) -> u64 {
    let mut world = loaded(entry, run, seed);
    let before = world.steps(id);
    go(world.run_while("all is answered", secs(60), |world| !world.all_done()), &world);
    let steps = world.steps(id) - before;
    settle(&mut world);
    steps
}

/// Each replica's steps have their own run: another replica has the long delay, and the guard is on in every second run.
fn seed(id: ReplicaId) -> u64 {
    u64::from(id.0) + 1
}

/// Cuts the power of all replicas at one step of one replica.
fn cut_at(entry: &Entry, run: Run, seed: u64, (first, step): (ReplicaId, u64)) -> Result<(), Failure> {
    let mut rng = Rng::new(step.wrapping_mul(100) + u64::from(first.0));
    let survives = |rng: &mut Rng| *rng.pick(&SURVIVES).unwrap_or(&Survives::Nothing);
    let mut world = loaded(entry, run, seed);
    world.crash_at_step(first, step, survives(&mut rng));
    world.run_while("the power goes", secs(60), |world| world.is_running(first))?;
    for id in world.replicas() {
        world.crash(id, survives(&mut rng));
    }
    let mut all: Vec<ReplicaId> = world.replicas().collect();
    rng.shuffle(&mut all);
    for liar in all.into_iter().take(world.settings().f) {
        world.corrupt_now(liar, *rng.pick(&AFTERWARDS).unwrap_or(&Byzantine::Own));
    }
    world.run_for(ms(30))?;
    let back_ns = world.settings().parameters.delta_ns * BACK_WITHIN_DELTAS;
    for id in world.replicas() {
        world.plan(world.now().plus(rng.below(back_ns)), Plan::Start(id));
    }
    let is_done = |world: &World| world.all_done() && world.is_level();
    world.run_while("all is answered, everywhere", secs(60), |world| !is_done(world))?;
    world.read_back()?;
    world.run_while("the reads are answered, everywhere", secs(10), |world| !is_done(world))?;
    assert_eq!(world.failed_ops(), 0, "step {step} of {first}");
    world.check_settled()
}

/// Steps at which the power is cut at least. Protocols with few writes need several worlds for them.
const STEPS_MIN: u64 = 150;

/// Among three replicas the power is cut at each step of each with much work, and at every third step with little. Among
/// five, two of which lie, it is cut at every twentieth step.
fn s18_power_cut_of_all_at_every_log_write_loses_nothing(entry: &Entry) {
    for (run, each) in [(BUSY, 1), (CALM, 3), ((5, CALM.1), 20)] {
        let (mut all, mut first) = (0, 0);
        while all < STEPS_MIN {
            for id in (0..u16::try_from(run.0).unwrap()).map(ReplicaId) {
                let seed = seed(id) + first;
                let steps = steps(entry, run, seed, id);
                for step in (1..=steps).step_by(each) {
                    let result = cut_at(entry, run, seed, (id, step));
                    assert_eq!(
                        result,
                        Ok(()),
                        "{} {run:?}, seed {seed}, step {step} of {id}",
                        entry.spec.name
                    );
                }
                all += steps;
            }
            first += run.0 as u64;
        }
    }
}

/// The oracle fires: without recorded certificates there is a step after which a conflicting block is decided.
#[test]
fn s18_unrecorded_certificates_lose_acknowledged_requests() {
    let sound = Entry::of::<SyncHotStuff<Plain>>();
    let broken = Entry { attacks: sound.attacks, ..Entry::of::<Flawed<SyncHotStuff<Plain>, NoRecord>>() };
    let forks = |(seed, id, step)| {
        cut_at(&broken, BUSY, seed, (id, step)).is_err_and(|failure| failure.oracle == Oracle::Agreement)
    };
    let of = |(seed, id)| (1..=steps(&broken, BUSY, seed, id)).map(move |step| (seed, id, step));
    // No seed below 4 forks.
    let runs = (4..7).flat_map(|seed| (0..3).map(move |id| (seed, ReplicaId(id))));
    assert!(runs.flat_map(of).any(forks));
}
