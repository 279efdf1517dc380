//! What a host keeps and reads: entries, bodies, decided blocks, snapshots.

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

/// What a store is opened with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StoreConfig {
    /// Limits that decide which bodies are valid.
    pub limits: BodyLimits,
    /// Heights of a window: blocks of some windows are remembered before they are decided.
    pub window: u64,
    /// Bytes of log that are kept for laggards, also below the newest snapshot.
    pub keep_bytes: u64,
    /// Bytes that log and snapshots may take together. Where this asks for it, less than `keep_bytes` is kept.
    pub disk_bytes_max: u64,
}

impl Default for StoreConfig {
    fn default() -> Self {
        Self { limits: BodyLimits::default(), window: 256, keep_bytes: 1 << 30, disk_bytes_max: 16 << 30 }
    }
}

/// A replica's log, its index, and its snapshots.
///
/// After any [`Fault`] from a call that writes, the store does nothing more: nobody knows what the disk holds.
///
/// What a host must do: append a block and then its bodies before it promises anything about the block, and again
/// before it says that the block is decided, however often it did before: what the store has is not written twice, and
/// it may have let go of bodies that no block named, and of blocks that lie high; write its base when
/// [`Store::rolled`] says so.
pub struct Store<D: Disk> {
    log: Log<D>,
    config: StoreConfig,
    index: Index,
    base: Base,
    snapshots: Snapshots,
    appended: Mark,
    durable: Mark,
    /// The generation in which the last append ended.
    generation: u32,
    /// Generations below the first number may go once the second, a sync number, is synced.
    leaving: Option<(u32, u64)>,
    /// Encodings on their way to the log.
    scratch: Vec<u8>,
    /// Memory of the last decided record.
    decided: DecidedRecord,
}

impl<D: Disk> std::fmt::Debug for Store<D> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (first, last) = self.kept();
        write!(f, "Store(heights {first} to {last}, durable {:?})", self.durable)
    }
}

impl<D: Disk> Store<D> {
    /// Adds an entry to what the next [`Store::write_and_sync`] makes durable. `mark` is durable with it.
    ///
    /// A body or a block that the log has, and a height that is decided already, are not written again.
    ///
    /// # Errors
    /// [`Fault::Contradiction`] when another block is decided at that height or heights are skipped,
    /// [`Fault::MissingBlock`] and [`Fault::MissingBody`] when what is decided was not appended, and whatever the
    /// disk reports.
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
                self.base.begin(location.generation, self.log.appended_bytes());
            }
            LogEntry::BaseEnd => {
                self.log.append(entry::BASE_END, &[])?;
                self.base.end(self.log.sync_number(), self.log.appended_bytes());
            }
        }
        self.appended = self.appended.max(mark);
        self.after_append()
    }

    /// The highest mark that was appended.
    #[must_use]
    pub fn appended(&self) -> Mark {
        self.appended
    }

    /// Everything up to this mark is on disk.
    #[must_use]
    pub fn durable(&self) -> Mark {
        self.durable
    }

    /// Bytes that were appended and that no sync has covered yet.
    #[must_use]
    pub fn buffered(&self) -> usize {
        self.log.unsynced_bytes()
    }

    /// Makes everything that was appended durable, with one write and one sync (two writes where a segment
    /// ends), and returns the mark up to which that holds. Does nothing when there is nothing to do.
    ///
    /// # Errors
    /// What the disk reports.
    pub fn write_and_sync(&mut self) -> Result<Mark, Fault> {
        self.log.write_and_sync()?;
        self.durable = self.appended;
        self.base.synced(self.log.sync_number());
        self.let_go();
        Ok(self.durable)
    }

    /// A body that is undecided or was decided not long ago, as far as the log has it.
    ///
    /// # Errors
    /// [`Fault::Damaged`], [`Fault::Io`].
    pub fn body(&mut self, digest: BundleDigest) -> Result<Option<Bundle>, Fault> {
        match self.index.body(&digest) {
            Some(location) => self.read_body(location),
            None => Ok(None),
        }
    }

    /// The decided block of a height with its bodies; `None` when it is not kept.
    ///
    /// # Errors
    /// [`Fault::Damaged`], [`Fault::Io`].
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
        // Each part holds by itself; that they belong together is checked here, before anybody executes them.
        let digests = bundles.iter().map(|bundle| bundle.digest());
        if block.id() != decided.id || !digests.eq(payload.bundles.iter().copied()) {
            return Err(damaged(at, "the block of a decided height is another one".to_owned()));
        }
        Ok(Some(FullBlock { height, id: decided.id, block: Some(Arc::unwrap_or_clone(block)), bundles }))
    }

    /// The ids of decided heights from `from` on, at most `most`; none when `from` is not kept.
    ///
    /// # Errors
    /// [`Fault::Damaged`], [`Fault::Io`].
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

    /// The first decided height that can be loaded, and the last decided height. The first lies above the last
    /// when none can.
    #[must_use]
    pub fn kept(&self) -> (Height, Height) {
        self.index.kept()
    }

    /// Records of the log that were read since it was opened: each may be a read of the disk.
    #[must_use]
    pub fn reads(&self) -> u64 {
        self.log.reads()
    }

    /// Bytes of the log's records that were read since it was opened: what reading for others costs.
    #[must_use]
    pub fn read_bytes(&self) -> u64 {
        self.log.read_bytes()
    }

    /// Bytes of the log from this height's decision to the last one; what lies between is counted, whatever it is.
    #[must_use]
    pub fn bytes_after(&self, height: Height) -> u64 {
        let place = |height| {
            let Location { generation, offset, .. } = self.index.decided(height)?;
            let segment = u64::from(generation).saturating_mul(u64::from(self.log.disk().segment_bytes()));
            Some(segment.saturating_add(u64::from(offset)))
        };
        let from = place(height.next());
        from.zip(place(self.index.last())).map_or(0, |(from, to)| to.saturating_sub(from))
    }

    /// True once after the log has begun a new segment: the host is to write its base
    /// ([`LogEntry::BaseBegin`] to [`LogEntry::BaseEnd`]), so that older segments can be used again.
    pub fn rolled(&mut self) -> bool {
        self.base.take_wanted(self.log.appended_bytes())
    }

    /// Gets a segment ready before it is needed: for moments in which there is nothing else to do. Takes about a
    /// millisecond; false when there is nothing left to prepare.
    ///
    /// # Errors
    /// What the disk reports.
    pub fn prepare(&mut self) -> Result<bool, Fault> {
        self.log.prepare()
    }

    /// What log and copies of bodies have cost so far.
    #[must_use]
    pub fn ledger(&self) -> &Ledger {
        self.log.ledger()
    }

    /// [`Disk::take_longest_sync_ns`].
    pub fn take_longest_sync_ns(&mut self) -> u64 {
        self.log.disk_mut().take_longest_sync_ns()
    }

    /// The disk.
    #[must_use]
    pub fn disk(&self) -> &D {
        self.log.disk()
    }

    /// The disk, to let it fail.
    pub fn disk_mut(&mut self) -> &mut D {
        self.log.disk_mut()
    }

    /// Gives the disk back. What was not synced is lost, as far as the disk has not seen it.
    #[must_use]
    pub fn into_disk(self) -> D {
        self.log.into_disk()
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
        // In a base a block is written again, so that it need not be moved later.
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
        let oldest = self.leaving.map_or(self.log.oldest(), |(generation, _)| generation);
        if self.index.has_body(&digest, oldest) {
            return Ok(());
        }
        self.scratch.clear();
        digest.encode(&mut self.scratch);
        bundle.authenticator().encode(&mut self.scratch);
        let location = self.log.append(entry::BODY, &[&self.scratch, bundle.content()])?;
        self.log.ledger_mut().body_bytes_copied += to_u64(bundle.size());
        self.index.insert_body(digest, location);
        Ok(())
    }

    fn append_decided(&mut self, height: Height, id: BlockId) -> Result<(), Fault> {
        let contradiction = |kept| Fault::Contradiction { height, id, kept };
        let last = self.index.last();
        if height <= last {
            // A restart may say so again.
            return match self.read_decided(height)? {
                Some(decided) if decided.id != id => Err(contradiction(decided.id.to_string())),
                _ => Ok(()),
            };
        }
        if height != last.next() {
            return Err(contradiction(format!("height {last} is the last")));
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
        self.log.set_note(height.0);
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
    format!("a record cannot be decoded ({why}); was it written by another version?")
}

fn damaged(location: Location, why: String) -> Fault {
    Fault::Damaged { generation: location.generation, offset: location.offset, why }
}

/// What of the disk is the log's, beside snapshots of so many bytes.
fn budget(config: &StoreConfig, snapshot_bytes: u64, segment_bytes: u32) -> Budget {
    let bytes = config.disk_bytes_max.saturating_sub(snapshot_bytes);
    Budget { segments: segments_in(bytes, segment_bytes), disk_bytes_max: config.disk_bytes_max }
}

/// How many segments of this size fit into so many bytes.
fn segments_in(bytes: u64, segment_bytes: u32) -> u32 {
    to_u32(usize::try_from(bytes / u64::from(segment_bytes).max(1)).unwrap_or(usize::MAX))
}

#[cfg(test)]
mod tests;
