//! Opening a store: reads the log into the index, and finds the snapshot that the state begins with.

use super::base::Base;
use super::{Store, StoreConfig, budget, damaged, undecodable};
use crate::disk::Disk;
use crate::entry::{self, DecidedRecord};
use crate::fault::Fault;
use crate::index::{self, Index};
use crate::log::Log;
use crate::log::record::{self, Location, Start};
use crate::snapshot::Snapshots;
use quorate_types::{DecodeError, Height, LogEntry, Mark, Wire};

impl<D: Disk> Store<D> {
    /// Opens the store on a new or used disk. Where log and snapshots give no state, [`Store::missing_state`] has the
    /// reason, and the state must come from peers. Gives every entry but bodies to `each`, in the order of their appends.
    /// Blocks that were written again come again. All these entries are durable when the function returns.
    ///
    /// # Errors
    /// Fails with:
    ///
    /// * [`Fault::Damaged`] when synced data is invalid, without a change of the disk;
    /// * [`Fault::TooLarge`] when a body that the limits allow would not fit into a segment;
    /// * each fault of the disk.
    pub fn open(disk: D, config: StoreConfig, each: &mut dyn FnMut(LogEntry)) -> Result<Self, Fault> {
        let mut index = Index::new(index::named_max(config.window, config.limits.block_bundles_max));
        let mut base = Base::default();
        let snapshots = Snapshots::find(&disk)?;
        let budget = budget(&config, snapshots.bytes(), disk.segment_bytes());
        let log = Log::open(disk, budget, &mut |kind, location, data| {
            let entry = index_record(&mut index, &mut base, kind, location, data);
            if let Some(entry) = entry.map_err(|why| damaged(location, undecodable(why)))? {
                each(entry);
            }
            Ok(index.last().0)
        })?;
        let (bytes, limit) = (entry::bytes_max(&config.limits), log.record_bytes_max());
        if bytes > limit {
            return Err(Fault::TooLarge { bytes, limit });
        }
        index.forget_below(log.oldest());
        index.end_reading();
        base.reopened(log.generation());
        let mut store = Self {
            generation: log.generation(),
            log,
            config,
            index,
            base,
            snapshots,
            appended: Mark::default(),
            durable: Mark::default(),
            releasing: None,
            scratch: Vec::new(),
            decided: DecidedRecord::default(),
            missing_state: None,
        };
        let newest = store.choose_snapshot()?;
        store.release(newest)?;
        Ok(store)
    }
}

/// Adds a record to the index. Returns the entry of the record; `None` for a record that only the store uses.
fn index_record(
    index: &mut Index,
    base: &mut Base,
    kind: u8,
    location: Location,
    data: &[u8],
) -> Result<Option<LogEntry>, DecodeError> {
    match kind {
        record::START => {
            index.begin_after(Height(Start::from_bytes(data)?.note));
        }
        entry::JUMP => index.jump(Height::from_bytes(data)?),
        entry::BODY => {
            let digest = entry::body_digest(data)?;
            index.insert_body(digest, location);
        }
        entry::BASE_BEGIN => base.begin(location.generation, 0),
        entry::BASE_END => base.end(0, 0),
        entry::DECIDED => {
            let decided = DecidedRecord::from_bytes(data)?;
            if decided.height > index.last() {
                if decided.height != index.last().next() {
                    return Err(DecodeError::Value("decided heights, which have a gap"));
                }
                index.decide((decided.height, decided.id), location, decided.oldest());
            }
        }
        _ => {}
    }
    let entry = entry::decode(kind, data)?;
    if let Some(LogEntry::Block(block, payload)) = &entry {
        index.insert_block((block.height, block.id()), location, payload);
    }
    Ok(entry)
}
