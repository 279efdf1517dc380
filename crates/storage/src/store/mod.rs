//! The store of a host: entries, bodies, decided blocks, snapshots.

mod base;
mod open;
mod reclaim;
mod snapshots;

use crate::disk::Disk;
use crate::entry::{self, DecidedRecord};
use crate::fault::Fault;
use crate::index::Index;
use crate::log::record::Location;
use crate::log::{Budget, Log};
use crate::number::{to_u32, to_u64};
use crate::snapshot::Snapshots;
use base::Base;
use quorate_types::{
    Block, BlockId, BodyLimits, Bundle, BundleDigest, DecodeError, FullBlock, Height, Ledger, LogEntry, Mark,
    Payload, Wire,
};
use std::sync::Arc;

/// The configuration of a store.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StoreConfig {
    /// The limits that decide the validity of bodies.
    pub limits: BodyLimits,
    /// The heights of a window. The store remembers undecided blocks of several windows.
    pub window: u64,
    /// The bytes of log that are kept for laggards, also below the newest snapshot.
    pub keep_bytes: u64,
    /// The bytes that log and snapshots may use together. This limit takes precedence over `keep_bytes`.
    pub disk_bytes_max: u64,
    /// Whether the state before the first height is a snapshot of height 0. Without any snapshot there is no state then.
    pub begins_with_snapshot: bool,
    /// Newer snapshots than this height are not used: a reader wants an earlier state. A replica uses the newest.
    pub snapshot_max: Height,
}

impl Default for StoreConfig {
    fn default() -> Self {
        Self {
            limits: BodyLimits::default(),
            window: 256,
            keep_bytes: 1 << 30,
            disk_bytes_max: 16 << 30,
            begins_with_snapshot: false,
            snapshot_max: Height::MAX,
        }
    }
}

/// A store over a disk that is chosen at run time.
pub type BoxedStore = Store<Box<dyn Disk>>;

/// A replica's log, its index, and its snapshots.
///
/// After any [`Fault`] from a call that writes, the store refuses all work, because the content of the disk is unknown.
///
/// A host has two duties:
///
/// * It appends a block and then its bodies before it promises anything about the block. It does so again before it
///   appends the decision, after any number of earlier appends. The store writes nothing twice that it has, but it
///   may have dropped bodies that no block named, and high blocks.
/// * It writes its base when [`Store::take_base_due`] returns true.
pub struct Store<D: Disk> {
    log: Log<D>,
    config: StoreConfig,
    index: Index,
    base: Base,
    snapshots: Snapshots,
    appended: Mark,
    durable: Mark,
    /// The generation at the end of the last append.
    generation: u32,
    /// A generation and a sync number: generations below the first are released when the second is synced.
    releasing: Option<(u32, u64)>,
    /// A buffer for encodings.
    scratch: Vec<u8>,
    /// The last decided record, kept for its memory.
    decided: DecidedRecord,
    /// The reason why the disk has no usable state; `None` when it has one.
    missing_state: Option<String>,
}

impl<D: Disk> std::fmt::Debug for Store<D> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (first, last) = self.kept();
        write!(f, "Store(heights {first} to {last}, durable {:?})", self.durable)
    }
}

impl<D: Disk> Store<D> {
    /// Appends an entry. The next [`Store::write_and_sync`] makes it durable, and `mark` with it.
    ///
    /// A body or block that the log has, and a height that is decided already, are not written again.
    ///
    /// # Errors
    /// Fails with [`Fault::ConflictingDecision`] when another block is decided at that height or heights are skipped.
    /// Fails with [`Fault::MissingBlock`] or [`Fault::MissingBody`] when the decided block was not appended
    /// completely. Fails with each fault of the disk.
    pub fn append(&mut self, mark: Mark, entry: &LogEntry) -> Result<(), Fault> {
        match entry {
            LogEntry::Incarnation(incarnation) => self.append_encoded(entry::INCARNATION, incarnation)?,
            LogEntry::Record(bytes) => self.append_bytes(entry::RECORD, bytes)?,
            LogEntry::Guard(statement) => self.append_encoded(entry::GUARD, statement)?,
            LogEntry::Floors(floors) => self.append_encoded(entry::FLOORS, floors)?,
            LogEntry::Certificate(bytes) => self.append_bytes(entry::CERTIFICATE, bytes)?,
            LogEntry::Proof(bytes) => self.append_bytes(entry::PROOF, bytes)?,
            LogEntry::Block(block, payload) => self.append_block(block, payload)?,
            LogEntry::Body(bundle) => self.append_body(bundle)?,
            LogEntry::Decided { height, id } => self.append_decided(*height, *id)?,
            LogEntry::BaseBegin => {
                let location = self.log.append(entry::BASE_BEGIN, &[])?;
                self.base.begin(location.generation, self.log.totals.appended_bytes);
            }
            LogEntry::BaseEnd => {
                self.log.append(entry::BASE_END, &[])?;
                self.base.end(self.log.sync_number(), self.log.totals.appended_bytes);
            }
        }
        self.appended = self.appended.max(mark);
        self.after_append()
    }

    /// Returns the highest appended mark.
    #[must_use]
    pub fn appended(&self) -> Mark {
        self.appended
    }

    /// Returns the mark up to which everything is on disk.
    #[must_use]
    pub fn durable(&self) -> Mark {
        self.durable
    }

    /// Returns the appended bytes that are not synced.
    #[must_use]
    pub fn buffered(&self) -> usize {
        self.log.unsynced_bytes()
    }

    /// Makes all appended entries durable, and returns their highest mark. This takes one write and one sync, and two
    /// writes at the end of a segment. Without new entries it does nothing.
    ///
    /// # Errors
    /// Fails with each fault of the disk.
    pub fn write_and_sync(&mut self) -> Result<Mark, Fault> {
        self.log.write_and_sync()?;
        self.durable = self.appended;
        self.base.synced(self.log.sync_number());
        self.release_moved();
        Ok(self.durable)
    }

    /// Returns a body that is undecided or was decided recently; `None` if the log does not have it.
    ///
    /// # Errors
    /// Fails with [`Fault::Damaged`] or [`Fault::Io`].
    pub fn body(&mut self, digest: BundleDigest) -> Result<Option<Bundle>, Fault> {
        match self.index.body(&digest) {
            Some(location) => self.read_body(location),
            None => Ok(None),
        }
    }

    /// Returns the decided block of a height with its bodies; `None` when the height is not kept.
    ///
    /// # Errors
    /// Fails with [`Fault::Damaged`] or [`Fault::Io`].
    pub fn load(&mut self, height: Height) -> Result<Option<FullBlock>, Fault> {
        let Some(decided) = self.read_decided(height)? else {
            return Ok(None);
        };
        let Some(at) = decided.block else {
            return Ok(Some(FullBlock { id: decided.id, ..FullBlock::null(height) }));
        };
        let Some((block, payload)) = self.read(at, entry::decode_block)? else {
            return Ok(None);
        };
        let mut bundles = Vec::with_capacity(decided.bodies.len());
        for at in &decided.bodies {
            match self.read_body(*at)? {
                Some(bundle) => bundles.push(bundle),
                None => return Ok(None),
            }
        }
        // Each part is valid by itself. This check before the execution shows that they belong together.
        let digests = bundles.iter().map(|bundle| bundle.digest());
        if block.id() != decided.id || !digests.eq(payload.bundles.iter().copied()) {
            return Err(damaged(at, "a decided height has the parts of another block".to_owned()));
        }
        Ok(Some(FullBlock { height, id: decided.id, block: Some(Arc::unwrap_or_clone(block)), bundles }))
    }

    /// Returns the ids of decided heights from `from` on, at most `most`; none when `from` is not kept.
    ///
    /// # Errors
    /// Fails with [`Fault::Damaged`] or [`Fault::Io`].
    pub fn decided_ids(&mut self, from: Height, most: usize) -> Result<Vec<BlockId>, Fault> {
        let mut ids = Vec::new();
        let mut height = from;
        while ids.len() < most
            && let Some(decided) = self.read_decided(height)?
        {
            ids.push(decided.id);
            height = height.next();
        }
        Ok(ids)
    }

    /// Returns the first decided height that can be loaded, and the last decided height. The first lies above the
    /// last when none can be loaded.
    #[must_use]
    pub fn kept(&self) -> (Height, Height) {
        self.index.kept()
    }

    /// Returns the records of the log that were read since it was opened. Each may be a read of the disk.
    #[must_use]
    pub fn reads(&self) -> u64 {
        self.log.totals.reads
    }

    /// Returns the bytes of the log's records that were read since it was opened, which is the cost of reading for
    /// others.
    #[must_use]
    pub fn read_bytes(&self) -> u64 {
        self.log.totals.read_bytes
    }

    /// Returns the bytes of the log from this height's decision to the last decision. All records between them count.
    #[must_use]
    pub fn bytes_after(&self, height: Height) -> u64 {
        let place = |height| {
            let Location { generation, offset, .. } = self.index.decided(height)?;
            let segment = u64::from(generation).saturating_mul(u64::from(self.log.disk.segment_bytes()));
            Some(segment.saturating_add(u64::from(offset)))
        };
        let from = place(height.next());
        from.zip(place(self.index.last())).map_or(0, |(from, to)| to.saturating_sub(from))
    }

    /// Returns true once after the log has begun a new segment. The host must then write its base
    /// ([`LogEntry::BaseBegin`] to [`LogEntry::BaseEnd`]), so that older segments can be used again.
    pub fn take_base_due(&mut self) -> bool {
        self.base.take_due(self.log.totals.appended_bytes)
    }

    /// Prepares a segment before it is needed. A call takes about a millisecond, so it is for idle moments. Returns
    /// false when there is nothing left to prepare.
    ///
    /// # Errors
    /// Fails with each fault of the disk.
    pub fn prepare(&mut self) -> Result<bool, Fault> {
        self.log.prepare()
    }

    /// Returns the cost of log and copies of bodies so far.
    #[must_use]
    pub fn ledger(&self) -> &Ledger {
        &self.log.ledger
    }

    /// Returns [`Disk::take_longest_sync_ns`].
    pub fn take_longest_sync_ns(&mut self) -> u64 {
        self.log.disk.take_longest_sync_ns()
    }

    /// Returns the disk.
    #[must_use]
    pub fn disk(&self) -> &D {
        &self.log.disk
    }

    /// Returns the disk for a change, such as an injected fault.
    pub fn disk_mut(&mut self) -> &mut D {
        &mut self.log.disk
    }

    /// Returns the disk and drops the store. Buffered entries are lost.
    #[must_use]
    pub fn into_disk(self) -> D {
        self.log.disk
    }

    fn append_bytes(&mut self, kind: u8, bytes: &[u8]) -> Result<(), Fault> {
        self.log.append(kind, &[bytes]).map(|_| ())
    }

    fn append_encoded(&mut self, kind: u8, value: &impl Wire) -> Result<(), Fault> {
        self.scratch.clear();
        value.encode(&mut self.scratch);
        self.log.append(kind, &[&self.scratch]).map(|_| ())
    }

    fn append_block(&mut self, block: &Block, payload: &Arc<Payload>) -> Result<(), Fault> {
        let key = (block.height, block.id());
        // A base repeats blocks, so that they need not be moved later.
        let oldest = if self.base.is_open() { self.log.generation() } else { 0 };
        if self.index.block(&key).is_some_and(|location| location.generation >= oldest) {
            return Ok(());
        }
        self.scratch.clear();
        block.encode(&mut self.scratch);
        payload.encode(&mut self.scratch);
        let location = self.log.append(entry::BLOCK, &[&self.scratch])?;
        self.index.insert_block(key, location, payload);
        Ok(())
    }

    fn append_body(&mut self, bundle: &Bundle) -> Result<(), Fault> {
        let digest = bundle.digest();
        let oldest = self.releasing.map_or(self.log.oldest(), |(generation, _)| generation);
        if self.index.has_body(&digest, oldest) {
            return Ok(());
        }
        self.scratch.clear();
        digest.encode(&mut self.scratch);
        bundle.authenticator().encode(&mut self.scratch);
        let location = self.log.append(entry::BODY, &[&self.scratch, bundle.content()])?;
        self.log.ledger.body_bytes_copied += to_u64(bundle.size());
        self.index.insert_body(digest, location);
        Ok(())
    }

    fn append_decided(&mut self, height: Height, id: BlockId) -> Result<(), Fault> {
        let conflict = |kept| Fault::ConflictingDecision { height, id, kept };
        let last = self.index.last();
        if height <= last {
            // A restarted host may append the decision again.
            return match self.read_decided(height)? {
                Some(decided) if decided.id != id => Err(conflict(format!("the log has {}", decided.id))),
                _ => Ok(()),
            };
        }
        if height != last.next() {
            return Err(conflict(format!("height {last} is the last in the log")));
        }
        self.decided.height = height;
        self.decided.id = id;
        self.decided.bodies.clear();
        self.decided.block = self.index.block(&(height, id));
        if let Some(payload) = self.index.payload(&(height, id)) {
            for body in &payload.bundles {
                let missing = Fault::MissingBody { height, body: *body };
                self.decided.bodies.push(self.index.body(body).ok_or(missing)?);
            }
        } else if id != BlockId::null(height) {
            return Err(Fault::MissingBlock { height, id });
        }
        self.scratch.clear();
        self.decided.encode(&mut self.scratch);
        let location = self.log.append(entry::DECIDED, &[&self.scratch])?;
        self.index.decide((height, id), location, self.decided.oldest());
        self.log.note = height.0;
        Ok(())
    }

    fn read_decided(&mut self, height: Height) -> Result<Option<DecidedRecord>, Fault> {
        let Some(location) = self.index.decided(height) else {
            return Ok(None);
        };
        self.read(location, DecidedRecord::from_bytes)
    }

    fn read_body(&mut self, location: Location) -> Result<Option<Bundle>, Fault> {
        let limits = self.config.limits;
        let bundle = self.read(location, |data| entry::decode_body(data, &limits))?;
        Ok(bundle)
    }

    fn read<T>(
        &mut self,
        location: Location,
        decode: impl FnOnce(&[u8]) -> Result<T, DecodeError>,
    ) -> Result<Option<T>, Fault> {
        let Some(data) = self.log.read(location)? else {
            return Ok(None);
        };
        decode(data).map(Some).map_err(|why| damaged(location, undecodable(why)))
    }
}

fn undecodable(why: DecodeError) -> String {
    format!("a record cannot be decoded ({why}); another version may have written it")
}

fn damaged(location: Location, why: String) -> Fault {
    Fault::Damaged { generation: location.generation, offset: location.offset, why }
}

/// Returns the log's share of the disk, next to snapshots of `snapshot_bytes`.
fn budget(config: &StoreConfig, snapshot_bytes: u64, segment_bytes: u32) -> Budget {
    let bytes = config.disk_bytes_max.saturating_sub(snapshot_bytes);
    Budget { segments: segments_in(bytes, segment_bytes), disk_bytes_max: config.disk_bytes_max }
}

/// Returns the number of segments of `segment_bytes` that fit into `bytes`.
fn segments_in(bytes: u64, segment_bytes: u32) -> u32 {
    to_u32(usize::try_from(bytes / u64::from(segment_bytes).max(1)).unwrap_or(usize::MAX))
}

#[cfg(test)]
mod tests;
