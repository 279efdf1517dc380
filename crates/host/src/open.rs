//! Opening a host from the data on its disk.

use crate::executor::Executor;
use crate::fault::{HostFault, OpenFault};
use crate::log_reads::LogReads;
use crate::outgoing::Outgoing;
use crate::release_gate::ReleaseGate;
use crate::snapshots::SnapshotProgress;
use crate::transfer::Transfer;
use crate::turn::Host;
use quorate_app::{Application, Execution, Snapshot};
use quorate_consensus::{CheckpointProof, Entry};
use quorate_crypto::{Scheme, SigningKey};
use quorate_replica::{Passed, Replica, ReplicaSetup, RestoredLog};
use quorate_storage::{BoxedStore, Disk, Store, StoreConfig};
use quorate_types::codec::Wire as _;
use quorate_types::{Genesis, Height, Incarnation, Ledger, LogEntry, Mark, ReplicaSet, Time};
use std::collections::BTreeSet;
use std::sync::Arc;

/// The log grows at most by this part of `disk_bytes_max` before a snapshot is due.
const SNAPSHOTS_PER_DISK: u64 = 8;

/// The default of [`HostSetup::far_heights`].
pub const FAR_HEIGHTS: u64 = 8_192;

/// Parameters of a host, apart from its disk.
pub struct HostSetup {
    /// The protocol.
    pub entry: Entry,
    /// The parameters of its replica.
    pub replica: ReplicaSetup,
    /// The key that signs its statements.
    pub key: SigningKey,
    /// The signature scheme.
    pub scheme: Scheme,
    /// The service, in its initial state.
    pub application: Box<dyn Application>,
    /// Bytes of log that are kept for peers that are behind.
    pub keep_bytes: u64,
    /// The maximum of disk bytes in all.
    pub disk_bytes_max: u64,
    /// With more missing blocks than this, the replica may take a state of its peers although they keep the blocks.
    pub far_heights: u64,
    /// For a replica that has lost an earlier disk: a number above that of each of its earlier openings. It makes no
    /// statement until its forgotten promises no longer matter. `None` for any other replica.
    pub amnesiac_from: Option<Incarnation>,
    /// Growth of the log in bytes after which a snapshot is due; at least as much as the last snapshot wrote.
    pub snapshot_every_bytes: u64,
}

/// A state that differs from the one that a quorum has signed.
#[derive(Debug)]
pub struct DivergedState {
    /// The height of the checkpoint that shows the difference.
    pub height: Height,
    /// The wrong state, at this height or a later one.
    pub state: Snapshot,
}

impl Host {
    /// Opens a host: the newest snapshot, then the decided blocks of the log after it, then the replica with its
    /// promises. The new incarnation is durable when this returns, so links may come up.
    ///
    /// Where the disk gives no usable state ([`Host::missing_state`]), the replica has its promises and begins before the
    /// first height. A transfer then brings a state. So it is where the log gives another state than a quorum has signed
    /// ([`Host::take_diverged`]).
    ///
    /// # Errors
    /// Fails when the disk fails or holds contradictory data.
    pub fn open(setup: HostSetup, disk: Box<dyn Disk>, out: &mut dyn Outgoing) -> Result<Self, HostFault> {
        let genesis = Arc::clone(&setup.replica.genesis);
        let config = store_config(&genesis, (setup.keep_bytes, setup.disk_bytes_max));
        let (mut store, mut log) = open_store(disk, config)?;
        let mut execution = execution(&genesis, setup.application)?;
        let (mut replayed_bytes, mut diverged) = (0, None);
        if store.missing_state().is_none() {
            let first = execution.snapshot();
            match restore(&genesis, &mut execution, &mut store, &mut log, Height::MAX) {
                Ok(bytes) => replayed_bytes = bytes,
                Err(HostFault::Open(OpenFault::Diverged { height })) => {
                    store.distrust(height)?;
                    diverged = Some(DivergedState { height, state: execution.snapshot() });
                    log.states.clear();
                    execution.restore(first.header(), &mut first.chunks()).map_err(OpenFault::from)?;
                }
                Err(fault) => return Err(fault),
            }
        }
        log.executed = execution.height();
        let lacks_base = genesis.base.is_some() && store.missing_state().is_some();
        log.awaits_state = store.distrusted() > Height::ZERO || lacks_base;
        log.kept = store.kept().0;
        if let Some(from) = setup.amnesiac_from {
            log.is_amnesiac = true;
            log.incarnation = log.incarnation.max(from);
        }
        for digest in log.wanted_bodies() {
            log.bodies.extend(store.body(digest)?);
        }
        let domain = setup.replica.committee.domain();
        let recorder = out.recorder(&log);
        let mut replica = Replica::open(&setup.entry, setup.replica, log).map_err(OpenFault::from)?;
        if let Some(sink) = recorder {
            replica.record(sink);
        }
        // A small disk needs snapshots more often, so that the log can be reclaimed.
        let every = setup.snapshot_every_bytes.min(setup.disk_bytes_max / SNAPSHOTS_PER_DISK);
        let pace = (every, genesis.checkpoint_every);
        let mut host = Self {
            intake: replica.intake(setup.scheme),
            gate: ReleaseGate::new(replica.delta_ns()),
            replica,
            snapshots: SnapshotProgress::new(pace, execution.height(), replayed_bytes),
            transfer: Transfer::new(setup.far_heights),
            executor: Executor::new(execution),
            kept: store.kept().0,
            checkpoint_every: genesis.checkpoint_every,
            order_askers: BTreeSet::new(),
            store,
            key: setup.key,
            domain,
            inputs: Vec::new(),
            passed: Passed::default(),
            sync_wanted: Mark(0),
            log_reads: LogReads::default(),
            unchecked: ReplicaSet::EMPTY,
            own: Ledger::default(),
            diverged,
        };
        host.turn(Time::ZERO, None, true, &mut |_| true, out)?;
        Ok(host)
    }
}

fn store_config(genesis: &Genesis, (keep_bytes, disk_bytes_max): (u64, u64)) -> StoreConfig {
    StoreConfig {
        limits: genesis.bodies,
        window: genesis.window,
        keep_bytes,
        disk_bytes_max,
        begins_with_snapshot: genesis.base.is_some(),
        ..StoreConfig::default()
    }
}

/// Opens the store, and reads its log.
fn open_store(disk: Box<dyn Disk>, config: StoreConfig) -> Result<(BoxedStore, RestoredLog), HostFault> {
    let mut log = RestoredLog::default();
    let mut bad = None;
    let store = Store::open(disk, config, &mut |entry| {
        if let Err(why) = log.absorb(entry) {
            bad.get_or_insert(why);
        }
    })?;
    if let Some(why) = bad {
        return Err(OpenFault::from(why).into());
    }
    // A received snapshot brings the proof of a stable checkpoint that the log may lack.
    let proven = store.newest_proven().map(|height| store.proven_snapshot(height)).transpose()?.flatten();
    if let Some(snapshot) = proven {
        log.absorb(LogEntry::Proof(snapshot.proof().to_vec()))
            .map_err(|_| OpenFault::Proof { height: snapshot.height() })?;
    }
    Ok((store, log))
}

fn execution(genesis: &Genesis, application: Box<dyn Application>) -> Result<Execution, HostFault> {
    let execution = Execution::new(genesis, application);
    Ok(execution.map_err(|wrong| OpenFault::Application(wrong.to_string()))?)
}

/// The moment whose state is read from a disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StateAt {
    /// The last decided height in the log.
    End,
    /// The stable checkpoint, whose state a quorum has signed.
    Stable,
    /// This height.
    Height(Height),
}

/// Reads a state from a disk, without opening the replica. Returns it with the proof of the stable checkpoint.
///
/// # Errors
/// Fails when the disk fails or holds contradictory data, and with [`OpenFault::NoStateAt`] when log and snapshots do not give
/// the state of that height.
pub fn read_state(
    genesis: &Genesis,
    application: Box<dyn Application>,
    disk: Box<dyn Disk>,
    at: StateAt,
) -> Result<(Execution, CheckpointProof), HostFault> {
    let config = store_config(genesis, (u64::MAX, u64::MAX));
    let (store, log) = open_store(disk, config)?;
    let proof = newest_proof(&store, log.stable)?;
    let stable = proof.checkpoint.height;
    let height = match at {
        StateAt::End => Height::MAX,
        StateAt::Stable => stable,
        StateAt::Height(height) => height,
    };
    // Some heights are below the newest snapshot, so the store chooses again.
    let (mut store, mut log) = open_store(store.into_disk(), StoreConfig { snapshot_max: height, ..config })?;
    let missing = |why: &str| OpenFault::NoStateAt { height, why: why.to_owned() };
    if let Some(why) = store.missing_state() {
        return Err(missing(why).into());
    }
    let mut execution = execution(genesis, application)?;
    restore(genesis, &mut execution, &mut store, &mut log, height)?;
    if at != StateAt::End && execution.height() != height {
        let why = format!("log and snapshots end at height {}", execution.height());
        return Err(missing(&why).into());
    }
    Ok((execution, proof))
}

/// Returns the proof of the newest checkpoint whose state the disk gives. The proof of the stable one may be ahead of the blocks.
fn newest_proof(store: &BoxedStore, stable: CheckpointProof) -> Result<CheckpointProof, HostFault> {
    let last = store.kept().1.max(store.newest_height());
    let height = store.newest_proven().filter(|_| stable.checkpoint.height > last);
    let Some(snapshot) = height.map(|height| store.proven_snapshot(height)).transpose()?.flatten() else {
        return Ok(stable);
    };
    let height = snapshot.height();
    Ok(CheckpointProof::from_bytes(snapshot.proof()).map_err(|_| OpenFault::Proof { height })?)
}

/// Restores the state from the newest snapshot and the log after it, at most up to a height. Returns the bytes of that part of
/// the log.
fn restore(
    genesis: &Genesis,
    execution: &mut Execution,
    store: &mut BoxedStore,
    log: &mut RestoredLog,
    most: Height,
) -> Result<u64, HostFault> {
    if let Some(snapshot) = store.newest_snapshot()? {
        let mut failed = None;
        let mut chunks =
            (0..snapshot.chunks()).map_while(|index| match store.snapshot_chunk(&snapshot, index) {
                Ok(chunk) => Some(chunk),
                Err(fault) => {
                    failed = Some(fault);
                    None
                }
            });
        let restored = execution.restore(snapshot.header(), &mut chunks);
        drop(chunks);
        if let Some(fault) = failed {
            return Err(fault.into());
        }
        let state = restored.map_err(OpenFault::from)?;
        if snapshot.height() == Height::ZERO && genesis.base != Some(state) {
            return Err(OpenFault::OtherBase.into());
        }
        if execution.height().0.checked_rem(genesis.checkpoint_every) == Some(0) {
            log.states.push((execution.height(), state));
        }
    }
    let stable = log.stable.checkpoint;
    let (_, last) = store.kept();
    let replayed_bytes = store.bytes_after(execution.height());
    while execution.height() < last.min(most) {
        let height = execution.height().next();
        let block = store.load(height)?.ok_or(OpenFault::Gap { missing: height })?;
        // Peers no longer ask for the states of older checkpoints.
        if height < stable.height {
            execution.execute_without_digest(&block);
        } else if let Some(state) = execution.execute(&block).state {
            if height == stable.height && state != stable.state {
                return Err(OpenFault::Diverged { height }.into());
            }
            log.states.push((height, state));
        }
    }
    Ok(replayed_bytes)
}
