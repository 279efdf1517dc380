//! A power cut of each replica in turn at every step of its disk and network, in a run of 300 requests during which another replica,
//! or the same one, receives a state from its peers. Nothing acknowledged is lost, and no promise is broken.
//!
//! `QUORATE_POWER_STRIDE` is the distance of the steps at which the power is cut; 1 is the long form, with every step.

use crate::long_forms::{families, setting};
use crate::support::{SURVIVES, begin, go, put, short_window, world_of};
use quorate_consensus::{Entry, Model};
use quorate_sim::{Failure, OpId, ReplicaState, Survives, World, ms, secs};
use quorate_types::ReplicaId;

families!(power_cut_at_every_step_beside_a_transfer_loses_nothing);

/// Rounds of requests, and requests of each: 300 in total.
const ROUNDS: usize = 60;
const TOGETHER: usize = 5;
/// The round at which the absent replica is started.
const RETURN: usize = 25;
/// Power cuts of a protocol without `QUORATE_POWER_STRIDE`.
const CUTS: u64 = 60;
/// Time from a power cut to the start of the replica.
const OUTAGE_NS: u64 = ms(50);
const SEED: u64 = 1;

/// The power cut of a run.
#[derive(Clone, Copy, Debug)]
struct Cut {
    replica: ReplicaId,
    step: u64,
    survives: Survives,
}

/// One run, with the replica that is off for long and comes back in its middle.
struct Run {
    world: World,
    absent: ReplicaId,
    cut: Option<Cut>,
    /// Steps of each replica before the power may be cut.
    before: Vec<u64>,
    /// Whether the replica that lost power was started again.
    restarted: bool,
}

impl Run {
    /// A synchronous protocol has a spare fault, so that requests go on while two replicas are away. Among the others progress
    /// waits for one of the two.
    fn new(entry: &Entry, cut: Option<Cut>) -> Self {
        let faults = if entry.spec.model == Model::Synchrony { 2 } else { 1 };
        let mut world = world_of(entry, SEED, |settings| {
            *settings = settings.clone().with_n(entry.smallest(faults));
            short_window(settings);
            settings.storage.segment_bytes = 32 << 10;
            settings.storage.keep_bytes = 32 << 10;
            settings.storage.snapshot_every_bytes = 24 << 10;
            settings.bodies.bundle_bytes_max = 6 << 10;
            settings.bodies.block_bytes_max = 8 << 10;
            settings.bodies.block_bundles_max = 8;
            settings.client.retry_ns = ms(300);
            settings.client.retry_ns_max = ms(600);
        });
        begin(&mut world);
        let absent = world.replicas().last().unwrap();
        world.crash(absent, Survives::Some);
        go(world.run_for(ms(20)), &world);
        let before = world.replicas().map(|id| world.steps(id)).collect();
        Self { world, absent, cut, before, restarted: false }
    }

    fn arm(&mut self, receiver: bool) {
        if let Some(cut) = self.cut.filter(|cut| (cut.replica == self.absent) == receiver) {
            self.world.crash_at_step(cut.replica, cut.step, cut.survives);
        }
    }

    /// The replica that is without power now and was not started again yet.
    fn lost_power(&self) -> Option<ReplicaId> {
        let armed = self.cut.filter(|_| !self.restarted)?.replica;
        (!self.world.is_running(armed)).then_some(armed)
    }

    /// Starts the replica that has lost power, after a moment.
    fn restore_power(&mut self, id: ReplicaId) -> Result<(), Failure> {
        self.world.run_for(OUTAGE_NS)?;
        self.world.disarm();
        self.world.start(id).unwrap_or_else(|why| panic!("{:?}: {why}", self.cut));
        self.restarted = true;
        Ok(())
    }

    fn wait_for(&mut self, ids: &[OpId], has_returned: bool) -> Result<(), Failure> {
        loop {
            let waits =
                |world: &World| ids.iter().any(|id| world.history().get(*id).unwrap().answered.is_none());
            let armed =
                self.cut.filter(|cut| !self.restarted && (has_returned || cut.replica != self.absent));
            let has_power = |world: &World| armed.is_none_or(|cut| world.is_running(cut.replica));
            let goes_on = |world: &World| waits(world) && has_power(world);
            self.world.run_while("operations are answered", secs(60), goes_on)?;
            match self.lost_power().filter(|id| has_returned || *id != self.absent) {
                Some(id) => self.restore_power(id)?,
                None => return Ok(()),
            }
        }
    }

    /// Makes all requests, and judges the end.
    fn play(&mut self) -> Result<(), Failure> {
        self.arm(false);
        for round in 0..ROUNDS {
            if round == RETURN {
                self.arm(true);
                // The power may go while the replica is opened.
                self.world.start(self.absent).unwrap_or_else(|why| panic!("{:?}: {why}", self.cut));
            }
            let ops: Vec<_> = (0..TOGETHER)
                .map(|at| put(&format!("k{at}"), format!("{:0>200}", round * TOGETHER + at)))
                .collect();
            let ids = self.world.submit(round % 4, &ops);
            self.wait_for(&ids, round >= RETURN)?;
            self.world.run_for(if round < RETURN { ms(4) } else { ms(20) })?;
        }
        Ok(())
    }

    fn end(&mut self) -> Result<(), Failure> {
        self.level()?;
        self.world.read_back()?;
        self.level()?;
        assert_eq!(self.world.failed_ops(), 0, "{:?}", self.cut);
        for id in self.world.replicas() {
            let status = self.world.status(id).unwrap();
            assert_eq!(status.state, ReplicaState::Current, "{:?}: {status}", self.cut);
        }
        self.world.check_settled()
    }

    fn level(&mut self) -> Result<(), Failure> {
        loop {
            let armed = self.cut.filter(|_| !self.restarted);
            let is_level = |world: &World| {
                let height = world.height();
                world.all_done() && world.replicas().all(|id| world.executed(id) == height)
            };
            let has_power = |world: &World| armed.is_none_or(|cut| world.is_running(cut.replica));
            let goes_on = |world: &World| !is_level(world) && has_power(world);
            self.world.run_while("all replicas are at one height", secs(60), goes_on)?;
            match self.lost_power() {
                Some(id) => self.restore_power(id)?,
                None => return Ok(()),
            }
        }
    }
}

/// Returns the steps of each replica in a run without a power cut, in which the absent replica receives a state before the last
/// request.
fn steps(entry: &Entry) -> Vec<(ReplicaId, u64)> {
    let name = entry.spec.name;
    let mut run = Run::new(entry, None);
    assert_eq!(run.play(), Ok(()), "{name}");
    let status = run.world.status(run.absent).unwrap();
    assert_eq!(run.world.transfers(), 1, "{name}: {status}");
    assert_eq!(status.state, ReplicaState::Current, "{name}: {status}");
    let counted = run.world.replicas().zip(&run.before);
    let steps = counted.map(|(id, before)| (id, run.world.steps(id) - before)).collect();
    assert_eq!(run.end(), Ok(()), "{name}");
    steps
}

fn cut_at(entry: &Entry, cut: Cut) {
    let mut run = Run::new(entry, Some(cut));
    let result = run.play().and_then(|()| run.end());
    assert_eq!(result, Ok(()), "{}, seed {SEED}, {cut:?}", entry.spec.name);
    assert!(run.restarted, "{}, {cut:?}: the power was never cut", entry.spec.name);
}

fn stride(steps: u64) -> u64 {
    setting("QUORATE_POWER_STRIDE").unwrap_or(steps / CUTS).max(1)
}

fn power_cut_at_every_step_beside_a_transfer_loses_nothing(entry: &Entry) {
    let steps = steps(entry);
    let all: u64 = steps.iter().map(|(_, steps)| steps).sum();
    let each = stride(all);
    let cuts = steps.iter().flat_map(|(replica, steps)| (1..=*steps).map(|step| (*replica, step)));
    let cuts = cuts.step_by(usize::try_from(each).unwrap()).zip(SURVIVES.iter().cycle());
    let mut made = 0;
    for ((replica, step), survives) in cuts {
        cut_at(entry, Cut { replica, step, survives: *survives });
        made += 1;
    }
    println!("{}: {made} power cuts at {all} steps: {steps:?}", entry.spec.name);
    assert!(made >= all / each && all > 500, "{}: {made} of {steps:?}", entry.spec.name);
}
