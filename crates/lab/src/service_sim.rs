//! Any service inside the simulator, with an oracle for determinism.
//!
//! Each simulated replica runs two fresh instances of the service, in addition to the simulator's own store. Each operation
//! of the simulator's clients comes with one operation of the service, which a seed decides. The service thus meets the same
//! blocks, crashes, snapshots and restarts as the replicas. The oracle reports:
//!
//! * different replies or digests of the two instances;
//! * a restored snapshot with another digest; otherwise the restored instance replaces the second one;
//! * a query that changes the state, or that appends more bytes than it has room for;
//! * different states of replicas at a checkpoint, and all findings of the simulator's oracles.

use crate::service_load::ServiceLoad;
use quorate_app::{Application, At, RestoreError, Snapshot};
use quorate_consensus::Entry;
use quorate_node::service::Service;
use quorate_sim::{Companion, Settings, run_with_restarts};
use quorate_types::Digest;
use quorate_types::digest::hex;
use quorate_types::rng::Rng;
use std::fmt::Display;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Bytes of a snapshot's header before the two inner headers.
const LENGTHS_BYTES: usize = 8;

/// Work of the service in a run, over all replicas.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ServiceWork {
    /// Operations applied.
    pub operations: u64,
    /// Snapshots that were restored and compared.
    pub snapshots: u64,
    /// Restores after a restart of a replica.
    pub restarts: u64,
}

impl ServiceWork {
    /// Adds the work of another run.
    pub fn add(&mut self, other: Self) {
        self.operations = self.operations.saturating_add(other.operations);
        self.snapshots = self.snapshots.saturating_add(other.snapshots);
        self.restarts = self.restarts.saturating_add(other.restarts);
    }
}

/// The work of all replicas of a run, and the first finding.
#[derive(Default, Debug)]
struct RunFindings {
    work: ServiceWork,
    finding: Option<String>,
}

#[derive(Clone, Default, Debug)]
struct SharedFindings(Arc<Mutex<RunFindings>>);

impl SharedFindings {
    fn lock(&self) -> MutexGuard<'_, RunFindings> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn find(&self, text: String) {
        self.lock().finding.get_or_insert(text);
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
/// Fails with the first finding.
pub fn run(
    entry: &Entry,
    service: Service,
    load: &'static dyn ServiceLoad,
    seed: u64,
) -> Result<ServiceWork, String> {
    let findings = SharedFindings::default();
    let mut settings = Settings::new(entry, seed);
    // Many checkpoints and snapshots in a short run.
    (settings.checkpoint_every, settings.window) = (4, 8);
    settings.storage.snapshot_every_bytes = 12 << 10;
    let shared = findings.clone();
    settings.companion = Some(Companion(Arc::new(move |store| {
        Box::new(Observed {
            store,
            service,
            load,
            seed,
            first: service.open(),
            second: service.open(),
            findings: shared.clone(),
        })
    })));
    let ran = run_with_restarts(settings).map_err(|error| error.to_string())?;
    let findings = findings.lock();
    match &findings.finding {
        Some(finding) => Err(finding.clone()),
        None => ran.map(|()| findings.work).map_err(|failure| failure.to_string()),
    }
}

/// The simulator's store with two instances of the service.
struct Observed {
    store: Box<dyn Application>,
    service: Service,
    load: &'static dyn ServiceLoad,
    seed: u64,
    first: Box<dyn Application>,
    second: Box<dyn Application>,
    findings: SharedFindings,
}

impl Observed {
    /// Returns the operation of the service for an operation of the simulator, whose number decides it.
    fn operation(&self, op: &[u8]) -> Option<Vec<u8>> {
        let number = u64::from_le_bytes(*op.first_chunk()?);
        let mut rng = Rng::new(self.seed.rotate_left(32) ^ number);
        let mut operation = Vec::new();
        self.load.next(&mut rng, &mut operation);
        Some(operation)
    }

    fn apply_both(&mut self, at: &At, operation: &[u8]) {
        self.findings.lock().work.operations += 1;
        let (mut one, mut other) = (Vec::new(), Vec::new());
        self.first.apply(at, operation, &mut one);
        self.second.apply(at, operation, &mut other);
        let place = || format!("operation {} at height {}", shown(operation), at.height);
        self.findings.expect_equal(&one, &other, || {
            format!(
                "two instances with the same inputs give different replies to {}: {} and {}",
                place(),
                shown(&one),
                shown(&other)
            )
        });
        self.query_both(at.room, operation, &place);
    }

    /// Runs a query on both instances. A query must not change the state, so it may run at any time.
    fn query_both(&mut self, room: usize, operation: &[u8], place: &dyn Fn() -> String) {
        let before = self.first.digest();
        let (mut one, mut other) = (Vec::new(), Vec::new());
        self.first.query(operation, room, &mut one);
        self.second.query(operation, room, &mut other);
        self.findings.expect_equal(&one, &other, || {
            format!("two instances with the same inputs answer the query {} differently", place())
        });
        if one.len() > room {
            self.findings.find(format!(
                "the query {} appends {} bytes; there is room for {room}",
                place(),
                one.len()
            ));
        }
        self.findings.expect_equal(&before, &self.first.digest(), || {
            format!("the query {} changes the state", place())
        });
    }

    /// Returns the snapshot of store and service. The header holds the number of the store's chunks, the length of the
    /// store's header, and both headers.
    fn compose(&mut self, own: Snapshot) -> Snapshot {
        let mut snapshot = Snapshot::default();
        let store = snapshot.append(self.store.snapshot());
        let length = |length: usize| u32::try_from(length).unwrap_or(u32::MAX).to_le_bytes();
        let mut header = [length(snapshot.ids().len()), length(store.len())].concat();
        header.extend_from_slice(&store);
        header.extend_from_slice(own.header());
        let mut whole = Snapshot::new(header);
        whole.append(snapshot);
        whole.append(own);
        whole
    }

    fn digest_of_both(&mut self) -> Digest {
        let (one, other) = (self.first.digest(), self.second.digest());
        self.findings.expect_equal(&one, &other, || {
            format!("two instances with the same inputs have different digests: {one} and {other}")
        });
        one
    }

    /// Restores a snapshot into a fresh instance, which replaces the second instance.
    fn compare_restored(&mut self, snapshot: &Snapshot, digest: Digest) {
        let mut fresh = self.service.open();
        match fresh.restore(snapshot.header(), &mut snapshot.chunks()) {
            Err(error) => self.findings.find(format!("a snapshot cannot be restored: {error}")),
            Ok(()) => {
                let restored = fresh.digest();
                self.findings.expect_equal(&restored, &digest, || {
                    format!("a restored snapshot has digest {restored}; the original state has {digest}")
                });
                let described = snapshot.digest();
                self.findings.expect_equal(&described, &digest, || {
                    format!("the state has digest {digest}; its snapshot has {described}")
                });
                self.findings.lock().work.snapshots += 1;
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
        self.digest_of_both();
        let own = self.first.snapshot();
        self.compose(own).digest()
    }

    fn snapshot(&mut self) -> Snapshot {
        let digest = self.digest_of_both();
        let own = self.first.snapshot();
        self.compare_restored(&own, digest);
        self.compose(own)
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
        self.findings.lock().work.restarts += 1;
        Ok(())
    }
}

/// Shows bytes as text if they are valid text, else as hexadecimal digits.
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
    use quorate_types::digest::context;
    use std::sync::atomic::{AtomicU64, Ordering};

    #[derive(Debug)]
    struct Names;

    impl ServiceLoad for Names {
        fn next(&self, rng: &mut Rng, operation: &mut Vec<u8>) {
            operation.extend_from_slice(format!("name {}", rng.below(20)).as_bytes());
        }
        fn is_error(&self, _: &[u8]) -> bool {
            false
        }
    }

    fn findings<A: Application + Default + 'static>(seed: u64) -> Result<ServiceWork, String> {
        run(quorate_protocols::find("pbft").unwrap(), Service::of::<A>(), &Names, seed)
    }

    /// A service that counts each name.
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
            let work = findings::<OnMap<Counts>>(seed).unwrap();
            assert!(work.operations > 1_000 && work.snapshots > 8 && work.restarts > 0, "{work:?}");
            assert_eq!(findings::<OnMap<Counts>>(seed), Ok(work), "a seed is a run");
        }
    }

    /// A service whose instances use a counter of the process.
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
    fn state_from_outside_changes_the_digests() {
        let finding = findings::<OnMap<Drawn>>(1).unwrap_err();
        assert!(
            finding.starts_with("two instances with the same inputs have different digests"),
            "{finding}"
        );
    }

    struct Numbered;

    impl MapApplication for Numbered {
        const NAME: &'static str = "numbered";
        const VERSION: u32 = 1;
        fn apply(_: &mut BucketMap, _: &At, _: &[u8], reply: &mut Vec<u8>) {
            reply.extend_from_slice(&NEXT.fetch_add(1, Ordering::Relaxed).to_le_bytes());
        }
        fn query(_: &BucketMap, _: &[u8], _: usize, _: &mut Vec<u8>) {}
    }

    #[test]
    fn replies_from_outside_are_found() {
        let finding = findings::<OnMap<Numbered>>(1).unwrap_err();
        assert!(finding.contains("different replies to operation name "), "{finding}");
    }

    /// A service whose snapshot omits the last name.
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
            Digest::of(&context::PROTOCOL, &[&self.map.digest().0[..], &self.last].concat())
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
        assert!(finding.starts_with("the state has digest "), "{finding}");
    }

    /// A service whose queries answer with more bytes than there is room for.
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
        assert!(finding.contains("there is room for"), "{finding}");
    }
}
