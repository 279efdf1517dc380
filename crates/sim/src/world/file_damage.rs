//! Damage to single files of a stopped replica's disk.

use super::World;
use crate::replica_slot::Damage;
use crate::trace::Who;
use quorate_storage::{Disk as _, MemDisk};
use quorate_types::ReplicaId;

/// Damage to a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FileDamage {
    /// The file of the log ends at this byte, counted over all segments.
    LogEnds(u64),
    /// A segment has zeros from this byte on.
    LogLost(u32, u32),
    /// A bit of this byte of a segment flips.
    LogFlip(u32, u32, u8),
    /// A snapshot file ends at this byte.
    FileEnds(String, u64),
    /// A bit of this byte of a snapshot file flips.
    FileFlip(String, u64, u8),
}

impl FileDamage {
    /// Returns the bytes of a segment that the damage may change; `None` for a snapshot file.
    fn range(&self, disk: &MemDisk, slot: u32) -> Option<(u32, u32)> {
        let all = disk.segment_bytes();
        match self {
            Self::LogEnds(byte) => {
                let before = u64::from(slot).saturating_mul(u64::from(all));
                let from = u32::try_from(byte.saturating_sub(before)).unwrap_or(u32::MAX);
                (from < all).then_some((from, all))
            }
            Self::LogLost(at, byte) => (*at == slot).then_some((*byte, all)),
            Self::LogFlip(at, byte, _) => (*at == slot).then_some((*byte, byte.saturating_add(1))),
            Self::FileEnds(..) | Self::FileFlip(..) => None,
        }
    }

    fn apply(&self, disk: &mut MemDisk) {
        let place = |byte: u64| usize::try_from(byte).unwrap_or(usize::MAX);
        match self {
            Self::LogEnds(byte) => disk.truncate_log(*byte),
            Self::LogLost(slot, byte) => disk.lose_from(*slot, *byte),
            Self::LogFlip(slot, byte, bit) => {
                disk.flip(*slot, *byte, *bit);
            }
            Self::FileEnds(name, byte) => disk.truncate_blob(name, place(*byte)),
            Self::FileFlip(name, byte, bit) => {
                disk.flip_blob(name, place(*byte), *bit);
            }
        }
    }
}

impl World {
    /// Returns the bytes of each segment of a replica's log up to its last byte that is not zero, and the snapshot files with their
    /// sizes.
    #[must_use]
    pub fn disk_files(&self, id: ReplicaId) -> (Vec<u32>, Vec<(String, u64)>) {
        let Some(slot) = self.slot(id) else { return (Vec::new(), Vec::new()) };
        slot.machine.disk.below(|_, disk| {
            let mut bytes = vec![0; usize::try_from(disk.segment_bytes()).unwrap_or(0)];
            let mut used = |slot| {
                let _ = disk.read(slot, 0, &mut bytes);
                let last = bytes.iter().rposition(|byte| *byte != 0);
                last.map_or(0, |last| u32::try_from(last.saturating_add(1)).unwrap_or(u32::MAX))
            };
            ((0..disk.segments()).map(&mut used).collect(), disk.blobs().unwrap_or_default())
        })
    }

    /// Returns the places and lengths of the writes that the last sync of a replica has made durable, and of later ones: segment,
    /// byte, bytes.
    #[must_use]
    pub fn newest_writes(&self, id: ReplicaId) -> Vec<(u32, u32, usize)> {
        let Some(slot) = self.slot(id) else { return Vec::new() };
        slot.machine.disk.watch(|watch| watch.newest_writes.iter().flatten().copied().collect())
    }

    /// Damages the disk of a stopped replica. Damage to what the last sync has made durable, or to later writes, can look like a torn
    /// write: the replica may break promises. Any other damage has to be noticed, so the oracles judge the replica on.
    /// Returns whether it may look so.
    pub fn damage_files(&mut self, id: ReplicaId, all: &[FileDamage]) -> bool {
        let now = self.now;
        let Some(slot) = self.slot_mut(id).filter(|slot| slot.running.is_none()) else { return false };
        let is_tail = slot.machine.disk.below(|watch, disk| {
            let newest = watch.newest_writes.iter().flatten();
            let touches = |(slot, offset, length): &(u32, u32, usize), damage: &FileDamage| {
                let to = offset.saturating_add(u32::try_from(*length).unwrap_or(u32::MAX));
                damage.range(disk, *slot).is_some_and(|(from, end)| from < to && *offset < end)
            };
            let mut newest = newest.flat_map(|write| all.iter().map(move |damage| (write, damage)));
            let is_tail = newest.any(|(write, damage)| touches(write, damage));
            all.iter().for_each(|damage| damage.apply(disk));
            is_tail
        });
        let damage = if is_tail { Damage::Forgetful } else { Damage::Broken };
        slot.machine.damage = slot.machine.damage.max(damage);
        self.trace.note(now, Who::Replica(id), "damage", &[b"files"], || format!("disk: {all:?}"));
        is_tail
    }

    /// Returns the reason for which a replica has stopped by itself or did not open, the last time that it did.
    #[must_use]
    pub fn why_stopped(&self, id: ReplicaId) -> Option<&str> {
        self.slot(id).and_then(|slot| slot.why_stopped.as_deref())
    }

    /// Returns the number of peers that have refused a connection with a replica, or were refused by it, since it was opened.
    #[must_use]
    pub fn refusals(&self, id: ReplicaId) -> usize {
        self.slot(id).map_or(0, |slot| slot.refused.len())
    }
}
