//! A service of one's own inside the simulator, with an oracle for determinism.
//!
//! Each simulated replica runs two fresh instances of the service beside the simulator's own store. Every operation of the
//! simulator's clients brings one operation of the service with it, which a seed decides. So the service goes through the
//! blocks, crashes, snapshots and restarts that the replicas go through. The oracle reports:
//!
//! * replies or digests of the two instances that differ;
//! * a snapshot that is not restored to the same digest; a restored instance then takes the place of the second one;
//! * a query that changes the state, or that appends more than it may;
//! * states of replicas that differ at a checkpoint, and everything else that the simulator's oracles find.

use crate::service_load::ServiceMix;
use quorate_app::{Application, At, RestoreError, Snapshot};
use quorate_consensus::Entry;
use quorate_node::service::Service;
use quorate_sim::{Companion, Plan, Settings, Survives, Workload, World, ms, secs};
use quorate_types::digest::{Context, hex};
use quorate_types::rng::Rng;
use quorate_types::{Digest, ReplicaId};
use std::fmt::Display;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Crashes of one replica each in a run.
const CRASHES: u64 = 4;
/// Operations of each client.
const OPERATIONS: u32 = 80;
/// Bytes of the header of a snapshot in front of the two inner headers.
const LENGTHS_BYTES: usize = 8;

static STATE: Context = Context::new("quorate service in the simulator v1");

/// Work of the service in a run, over all replicas.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Tally {
    /// Operations applied.
    pub operations: u64,
    /// Snapshots that were restored and compared.
    pub snapshots: u64,
    /// Restores after a restart of a replica.
    pub restarts: u64,
}

impl Tally {
    /// Adds another run's.
    pub fn add(&mut self, other: Self) {
        self.operations = self.operations.saturating_add(other.operations);
        self.snapshots = self.snapshots.saturating_add(other.snapshots);
        self.restarts = self.restarts.saturating_add(other.restarts);
    }
}

/// The work of all replicas of a run, and the first finding.
#[derive(Default, Debug)]
struct Notes {
    tally: Tally,
    finding: Option<String>,
}

#[derive(Clone, Default, Debug)]
struct Notebook(Arc<Mutex<Notes>>);

impl Notebook {
    fn open(&self) -> MutexGuard<'_, Notes> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn find(&self, text: String) {
        self.open().finding.get_or_insert(text);
    }

    fn expect_equal<T: PartialEq>(&self, one: &T, other: &T, difference: impl FnOnce() -> String) {
        if one != other {
            self.find(difference());
        }
    }
}

/// Runs the service inside simulated replicas of a protocol, as a seed decides.
///
/// # Errors
/// The first finding.
pub fn run(entry: &Entry, service: Service, mix: ServiceMix, seed: u64) -> Result<Tally, String> {
    let notes = Notebook::default();
    let mut settings = Settings::new(entry, seed);
    // Many checkpoints and snapshots in a short run.
    (settings.checkpoint_every, settings.window) = (4, 8);
    settings.storage.snapshot_every_bytes = 12 << 10;
    let notebook = notes.clone();
    settings.companion = Some(Companion(Arc::new(move |store| {
        Box::new(Observed {
            store,
            service,
            mix,
            seed,
            first: service.open(),
            second: service.open(),
            notes: notebook.clone(),
        })
    })));
    let mut world = World::new(settings).map_err(|error| error.to_string())?;
    let ran = drive(&mut world, entry, seed).map_err(|failure| failure.to_string());
    let notes = notes.open();
    match &notes.finding {
        Some(finding) => Err(finding.clone()),
        None => ran.map(|()| notes.tally),
    }
}

/// Load, and crashes of one replica after the other.
fn drive(world: &mut World, entry: &Entry, seed: u64) -> Result<(), quorate_sim::Failure> {
    let mut rng = Rng::new(seed ^ 0x5e41_1ce5);
    world.load_all(Workload {
        operations: OPERATIONS,
        pause_ns: ms(40),
        together_max: 3,
        outstanding_max: 4,
        keys: 4,
    });
    let replicas: Vec<ReplicaId> = world.replicas().collect();
    for _ in 0..CRASHES {
        world.run_for(ms(rng.between(100, 600)))?;
        // A leader that cannot be replaced has to stay.
        let first = usize::from(!entry.spec.replaces_leader);
        let Some(id) = rng.pick(replicas.get(first..).unwrap_or_default()).copied() else { break };
        world.crash(id, Survives::Everything);
        world.run_for(ms(rng.between(50, 400)))?;
        world.plan(world.now(), Plan::Start(id));
        world.run_for(secs(2))?;
    }
    world.run_while("all clients have their answers", secs(60), |world| !world.all_done())?;
    world.run_for(secs(2))
}

/// The simulator's store with two instances of the service beside it.
struct Observed {
    store: Box<dyn Application>,
    service: Service,
    mix: ServiceMix,
    seed: u64,
    first: Box<dyn Application>,
    second: Box<dyn Application>,
    notes: Notebook,
}

impl Observed {
    /// The operation of the service that comes with one of the simulator; the number of the latter decides it.
    fn operation(&self, op: &[u8]) -> Option<Vec<u8>> {
        let number = u64::from_le_bytes(*op.first_chunk()?);
        let mut rng = Rng::new(self.seed.rotate_left(32) ^ number);
        let mut operation = Vec::new();
        self.mix.0.next(&mut rng, &mut operation);
        Some(operation)
    }

    fn apply_both(&mut self, at: &At, operation: &[u8]) {
        self.notes.open().tally.operations += 1;
        let (mut one, mut other) = (Vec::new(), Vec::new());
        self.first.apply(at, operation, &mut one);
        self.second.apply(at, operation, &mut other);
        let place = || format!("operation {} at height {}", shown(operation), at.height);
        self.notes.expect_equal(&one, &other, || {
            format!(
                "two instances with the same inputs give different replies to {}: {} and {}",
                place(),
                shown(&one),
                shown(&other)
            )
        });
        self.query_both(at.room, operation, &place);
    }

    /// A query may change nothing, so it may be made at any time.
    fn query_both(&mut self, room: usize, operation: &[u8], place: &dyn Fn() -> String) {
        let before = self.first.digest();
        let (mut one, mut other) = (Vec::new(), Vec::new());
        self.first.query(operation, room, &mut one);
        self.second.query(operation, room, &mut other);
        self.notes.expect_equal(&one, &other, || {
            format!("two instances with the same inputs answer the query {} differently", place())
        });
        if one.len() > room {
            self.notes.find(format!(
                "the query {} appends {} bytes; it has room for {room}",
                place(),
                one.len()
            ));
        }
        self.notes.expect_equal(&before, &self.first.digest(), || {
            format!("the query {} changes the state", place())
        });
    }

    fn digest_of_both(&mut self) -> Digest {
        let (one, other) = (self.first.digest(), self.second.digest());
        self.notes.expect_equal(&one, &other, || {
            format!("two instances with the same inputs have different digests: {one} and {other}")
        });
        one
    }

    /// Restores a snapshot into a fresh instance, which takes the place of the second one.
    fn compare_restored(&mut self, snapshot: &Snapshot, digest: Digest) {
        let mut fresh = self.service.open();
        match fresh.restore(snapshot.header(), &mut snapshot.chunks()) {
            Err(error) => self.notes.find(format!("a snapshot cannot be restored: {error}")),
            Ok(()) => {
                let restored = fresh.digest();
                self.notes.expect_equal(&restored, &digest, || {
                    format!("a restored snapshot has digest {restored}; the state that it was taken of has {digest}")
                });
                self.notes.open().tally.snapshots += 1;
                self.second = fresh;
            }
        }
    }
}

impl Application for Observed {
    fn name(&self) -> &'static str {
        self.store.name()
    }

    fn version(&self) -> u32 {
        self.store.version()
    }

    fn apply(&mut self, at: &At, op: &[u8], reply: &mut Vec<u8>) {
        self.store.apply(at, op, reply);
        if let Some(operation) = self.operation(op) {
            self.apply_both(at, &operation);
        }
    }

    fn query(&self, op: &[u8], room: usize, reply: &mut Vec<u8>) {
        self.store.query(op, room, reply);
    }

    fn digest(&mut self) -> Digest {
        let digests = [self.store.digest(), self.digest_of_both()];
        Digest::of(&STATE, digests.map(|digest| digest.0).as_flattened())
    }

    /// The header holds the number of the store's chunks, the length of the store's header, and both headers.
    fn snapshot(&mut self) -> Snapshot {
        let digest = self.digest_of_both();
        let own = self.first.snapshot();
        self.compare_restored(&own, digest);
        let mut snapshot = Snapshot::default();
        let store = snapshot.append(self.store.snapshot());
        let length = |length: usize| u32::try_from(length).unwrap_or(u32::MAX).to_le_bytes();
        let mut header = [length(snapshot.digests().len()), length(store.len())].concat();
        header.extend_from_slice(&store);
        header.extend_from_slice(own.header());
        let mut whole = Snapshot::new(header);
        whole.append(snapshot);
        whole.append(own);
        whole
    }

    fn restore(
        &mut self,
        header: &[u8],
        chunks: &mut dyn Iterator<Item = Vec<u8>>,
    ) -> Result<(), RestoreError> {
        let (lengths, headers) = header.split_at_checked(LENGTHS_BYTES).ok_or(RestoreError::Missing)?;
        let number = |at: usize| {
            let bytes = lengths.get(at..).and_then(|bytes| bytes.first_chunk());
            bytes
                .and_then(|bytes| usize::try_from(u32::from_le_bytes(*bytes)).ok())
                .ok_or(RestoreError::Missing)
        };
        let (store, own) = headers.split_at_checked(number(4)?).ok_or(RestoreError::Missing)?;
        self.store.restore(store, &mut Iterator::take(&mut *chunks, number(0)?))?;
        let rest: Vec<Vec<u8>> = chunks.collect();
        for instance in [&mut self.first, &mut self.second] {
            let mut fresh = self.service.open();
            fresh.restore(own, &mut rest.iter().cloned())?;
            *instance = fresh;
        }
        self.notes.open().tally.restarts += 1;
        Ok(())
    }
}

/// Bytes as text where they are text, else as hexadecimal digits.
fn shown(bytes: &[u8]) -> Box<dyn Display + '_> {
    match std::str::from_utf8(bytes) {
        Ok(text) => Box::new(text.escape_debug()),
        Err(_) => Box::new(hex(bytes)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quorate_app::{BucketMap, MapApplication, OnMap};
    use std::sync::atomic::{AtomicU64, Ordering};

    struct Names;

    impl crate::ServiceLoad for Names {
        fn next(&self, rng: &mut Rng, operation: &mut Vec<u8>) {
            operation.extend_from_slice(format!("name {}", rng.below(20)).as_bytes());
        }
        fn is_error(&self, _: &[u8]) -> bool {
            false
        }
    }

    fn findings<A: Application + Default + 'static>(seed: u64) -> Result<Tally, String> {
        run(quorate_protocols::find("pbft").unwrap(), Service::of::<A>(), ServiceMix(&Names), seed)
    }

    /// Counts each name.
    struct Counts;

    impl MapApplication for Counts {
        const NAME: &'static str = "counts";
        const VERSION: u32 = 1;
        fn apply(map: &mut BucketMap, _: &At, op: &[u8], reply: &mut Vec<u8>) {
            let count = map.get(op).and_then(|count| count.first()).copied().unwrap_or(0).wrapping_add(1);
            map.insert(op, &[count]);
            reply.push(count);
        }
        fn query(map: &BucketMap, op: &[u8], room: usize, reply: &mut Vec<u8>) {
            reply.extend(map.get(op).unwrap_or_default().iter().take(room));
        }
    }

    #[test]
    fn deterministic_service_passes_and_is_restored() {
        for seed in 0..2 {
            let tally = findings::<OnMap<Counts>>(seed).unwrap();
            assert!(tally.operations > 1_000 && tally.snapshots > 8 && tally.restarts > 0, "{tally:?}");
            assert_eq!(findings::<OnMap<Counts>>(seed), Ok(tally), "a seed is a run");
        }
    }

    /// A number that each instance takes from the process.
    struct Drawn;

    static NEXT: AtomicU64 = AtomicU64::new(0);

    impl MapApplication for Drawn {
        const NAME: &'static str = "drawn";
        const VERSION: u32 = 1;
        fn apply(map: &mut BucketMap, _: &At, op: &[u8], _: &mut Vec<u8>) {
            map.insert(op, &NEXT.fetch_add(1, Ordering::Relaxed).to_le_bytes());
        }
        fn query(_: &BucketMap, _: &[u8], _: usize, _: &mut Vec<u8>) {}
    }

    #[test]
    fn state_from_outside_is_found_by_the_digests() {
        let finding = findings::<OnMap<Drawn>>(1).unwrap_err();
        assert!(
            finding.starts_with("two instances with the same inputs have different digests"),
            "{finding}"
        );
    }

    struct Told;

    impl MapApplication for Told {
        const NAME: &'static str = "told";
        const VERSION: u32 = 1;
        fn apply(_: &mut BucketMap, _: &At, _: &[u8], reply: &mut Vec<u8>) {
            reply.extend_from_slice(&NEXT.fetch_add(1, Ordering::Relaxed).to_le_bytes());
        }
        fn query(_: &BucketMap, _: &[u8], _: usize, _: &mut Vec<u8>) {}
    }

    #[test]
    fn replies_from_outside_are_found() {
        let finding = findings::<OnMap<Told>>(1).unwrap_err();
        assert!(finding.contains("different replies to operation name "), "{finding}");
    }

    /// Its snapshot leaves the last name out.
    #[derive(Default)]
    struct Forgetful {
        map: OnMap<Counts>,
        last: Vec<u8>,
    }

    impl Application for Forgetful {
        fn name(&self) -> &'static str {
            "forgetful"
        }
        fn version(&self) -> u32 {
            1
        }
        fn apply(&mut self, at: &At, op: &[u8], reply: &mut Vec<u8>) {
            self.last = op.to_vec();
            self.map.apply(at, op, reply);
        }
        fn query(&self, op: &[u8], room: usize, reply: &mut Vec<u8>) {
            self.map.query(op, room, reply);
        }
        fn digest(&mut self) -> Digest {
            Digest::of(&STATE, &[&self.map.digest().0[..], &self.last].concat())
        }
        fn snapshot(&mut self) -> Snapshot {
            self.map.snapshot()
        }
        fn restore(
            &mut self,
            header: &[u8],
            chunks: &mut dyn Iterator<Item = Vec<u8>>,
        ) -> Result<(), RestoreError> {
            self.map.restore(header, chunks)
        }
    }

    #[test]
    fn state_outside_of_the_snapshot_is_found() {
        let finding = findings::<Forgetful>(1).unwrap_err();
        assert!(finding.starts_with("a restored snapshot has digest "), "{finding}");
    }

    /// Answers a query with more than it has room for.
    struct Long;

    impl MapApplication for Long {
        const NAME: &'static str = "long";
        const VERSION: u32 = 1;
        fn apply(_: &mut BucketMap, _: &At, _: &[u8], _: &mut Vec<u8>) {}
        fn query(_: &BucketMap, _: &[u8], room: usize, reply: &mut Vec<u8>) {
            reply.resize(reply.len() + room + 1, 0);
        }
    }

    #[test]
    fn query_without_regard_to_room_is_found() {
        let finding = findings::<OnMap<Long>>(1).unwrap_err();
        assert!(finding.contains("it has room for"), "{finding}");
    }
}
