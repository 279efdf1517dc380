//! The disk of a simulated replica: a [`MemDisk`] that takes time, can lose power at any step, and shows the oracles
//! the synced bytes.
//!
//! A *step* is an event that a crash can precede or follow: an operation that changes the disk, or a flush of the
//! network. Cutting a turn at each of its steps therefore covers every relevant crash.

use crate::fault::Fault as Named;
use quorate_storage::{Disk, Fault, Keep, MemDisk};
use quorate_types::rng::Rng;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Mean costs in virtual time of a disk and of the work of a turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Costs {
    /// Time of a write.
    pub write_ns: u64,
    /// Time of a sync.
    pub sync_ns: u64,
    /// Time to execute one block, or to check one batch of bodies.
    pub work_ns: u64,
    /// Time until a waiting replica begins its turn on an arrival. Arrivals in that time belong to the turn.
    pub wake_ns: u64,
}

impl Costs {
    /// No costs: for counting message delays.
    pub const NONE: Self = Self { write_ns: 0, sync_ns: 0, work_ns: 0, wake_ns: 0 };

    /// Costs with a good solid-state disk.
    pub const USUAL: Self = Self { write_ns: 5_000, sync_ns: 150_000, work_ns: 20_000, wake_ns: 0 };
}

/// Unsynced bytes that survive a crash.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Survives {
    /// No bytes survive.
    Nothing,
    /// Any part survives, in units of sectors.
    Some,
    /// All bytes survive.
    Everything,
    /// All bytes survive and remain unsynced: only the process died.
    Cached,
}

/// A deliberate flaw of a disk, which an oracle has to notice.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum DiskFlaw {
    /// No flaw.
    #[default]
    None,
    /// The disk reports syncs without doing them.
    Sync,
    /// The disk loses the bytes of the last sync when it is opened.
    LosesLast,
    /// The log ends at its first damage when the disk is opened.
    DamageIsTail,
    /// The disk is refused when its log ends in the middle of a write.
    TailIsDamage,
}

/// A failure of a disk that lasts until it is repaired.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum DiskTrouble {
    /// No failure.
    #[default]
    None,
    /// Writes and syncs take a hundred times as long.
    Slow,
    /// The disk is full.
    Full,
    /// Reads fail.
    Reads,
    /// Syncs fail.
    Syncs,
}

impl DiskTrouble {
    pub(crate) const fn tag(self) -> u8 {
        match self {
            Self::None => 0,
            Self::Slow => 1,
            Self::Full => 2,
            Self::Reads => 3,
            Self::Syncs => 4,
        }
    }

    /// Returns the fault of this failure.
    pub(crate) const fn fault(self) -> Option<Named> {
        match self {
            Self::None => None,
            Self::Slow => Some(Named::SlowDisk),
            Self::Full => Some(Named::FullDisk),
            Self::Reads => Some(Named::ReadError),
            Self::Syncs => Some(Named::SyncError),
        }
    }
}

/// Factor by which a slow disk is slower.
const SLOW_FACTOR: u64 = 100;
/// Factor by which a slow executor is slower.
const SLOW_EXECUTOR_FACTOR: u64 = 500;

/// Costs and changes of the current turn. The disk, the network and the world share them.
#[derive(Debug, Default)]
pub(crate) struct DiskWatch {
    costs: Option<Costs>,
    /// Whether costs are exact instead of random around their mean.
    pub(crate) is_exact: bool,
    /// Virtual time of the turn so far.
    pub(crate) spent_ns: u64,
    /// Bytes written since the last sync.
    written: Vec<u8>,
    /// Synced bytes that no oracle has read yet.
    pub(crate) synced: Vec<u8>,
    /// Number of steps over the life of the replica.
    pub(crate) steps: u64,
    /// The step at which the power fails.
    fuse: Option<u64>,
    /// Whether the power is off.
    pub(crate) is_dead: bool,
    pub(crate) syncs: u64,
    pub(crate) writes: u64,
    pub(crate) trouble: DiskTrouble,
    /// The number of segments and writes to snapshot files until the disk is full; `None` if it is never full.
    pub(crate) room: Option<u64>,
    /// Whether execution is slow.
    pub(crate) is_slow: bool,
    /// Whether the next write goes to a wrong place.
    pub(crate) misdirects: bool,
    /// All writes in order, for a disk whose log ends at its first damage.
    all_writes: Option<Vec<(u32, u32, usize)>>,
    /// Whether a power cut has left part of a write.
    pub(crate) is_torn: bool,
    /// Place and length of the last write.
    last_write: Option<(u32, u32, usize)>,
    /// Places and lengths of all writes since the last sync, and of those that the last sync has made durable.
    pub(crate) newest_writes: [Vec<(u32, u32, usize)>; 2],
    /// Effects of each fault.
    pub(crate) felt: BTreeMap<Named, u64>,
}

impl DiskWatch {
    /// Begins a turn.
    pub(crate) fn begin(&mut self) {
        self.spent_ns = 0;
    }

    /// Makes a step. Returns false when the power fails during it.
    pub(crate) fn step(&mut self) -> bool {
        self.steps = self.steps.saturating_add(1);
        if self.fuse.is_some_and(|fuse| self.steps >= fuse) {
            self.is_dead = true;
        }
        !self.is_dead
    }

    /// Plans a power cut for the `steps`-th step from now.
    pub(crate) fn set_fuse(&mut self, steps: u64) {
        self.fuse = Some(self.steps.saturating_add(steps));
    }

    /// Returns the step at which the power fails.
    pub(crate) fn fuse(&self) -> Option<u64> {
        self.fuse
    }

    /// Plans a power cut again that [`Self::fuse`] has returned.
    pub(crate) fn restore_fuse(&mut self, fuse: Option<u64>) {
        self.fuse = fuse;
    }

    /// Cancels a planned power cut.
    pub(crate) fn disarm(&mut self) {
        if !self.is_dead {
            self.fuse = None;
        }
    }

    /// Restores the power. `keeps`: unsynced bytes still wait for their sync.
    pub(crate) fn revive(&mut self, keeps: bool) {
        self.fuse = None;
        self.is_dead = false;
        if !keeps {
            self.written.clear();
        }
    }

    /// Counts an effect of a fault.
    pub(crate) fn count_fault(&mut self, fault: Named) {
        let count = self.felt.entry(fault).or_default();
        *count = count.saturating_add(1);
    }

    /// Fails if the disk has this failure.
    fn fails(&mut self, trouble: DiskTrouble, doing: &'static str) -> Result<(), Fault> {
        if self.trouble != trouble {
            return Ok(());
        }
        if let Some(fault) = trouble.fault() {
            self.count_fault(fault);
        }
        Err(match trouble {
            DiskTrouble::Full => Fault::Full { doing },
            _ => Fault::Io { doing, error: "made to fail".to_owned() },
        })
    }

    /// Takes a unit of free space. The disk is full when none is left.
    fn take_space(&mut self, doing: &'static str) -> Result<(), Fault> {
        self.fails(DiskTrouble::Full, doing)?;
        match &mut self.room {
            None => Ok(()),
            Some(0) => {
                self.count_fault(Named::FullDisk);
                Err(Fault::Full { doing })
            }
            Some(room) => {
                *room = room.saturating_sub(1);
                Ok(())
            }
        }
    }

    /// Spends time; `slowed` is the fault that slows the work now, and its factor.
    fn spend(&mut self, rng: &mut Rng, mean: impl Fn(&Costs) -> u64, slowed: Option<(Named, u64)>) {
        let mean = self.costs.as_ref().map_or(0, mean);
        if mean > 0 {
            let mut drawn = mean;
            if !self.is_exact {
                drawn = (mean / 2).saturating_add(rng.exponential_ns(mean / 2));
            }
            if let Some((fault, factor)) = slowed {
                drawn = drawn.saturating_mul(factor);
                self.count_fault(fault);
            }
            self.spent_ns = self.spent_ns.saturating_add(drawn);
        }
    }

    /// Spends the time of a disk operation.
    fn spin(&mut self, rng: &mut Rng, mean: impl Fn(&Costs) -> u64) {
        let slowed = (self.trouble == DiskTrouble::Slow).then_some((Named::SlowDisk, SLOW_FACTOR));
        self.spend(rng, mean, slowed);
    }

    /// Spends the time of executing a block or checking a batch.
    pub(crate) fn work(&mut self, rng: &mut Rng, executes: bool) {
        let slowed = (self.is_slow && executes).then_some((Named::SlowExecutor, SLOW_EXECUTOR_FACTOR));
        self.spend(rng, |costs| costs.work_ns, slowed);
    }
}

#[derive(Debug)]
struct Inside {
    watch: DiskWatch,
    disk: MemDisk,
    /// Images at the last sync and at the one before, for a disk that loses its last sync.
    synced: Option<(MemDisk, MemDisk)>,
}

/// A disk and its [`DiskWatch`], shared by the host that writes and the world. A world runs on one thread, so no
/// caller waits for the lock.
#[derive(Clone, Debug)]
pub(crate) struct SharedDisk(Arc<Mutex<Inside>>);

impl SharedDisk {
    pub(crate) fn new(disk: MemDisk, costs: Costs) -> Self {
        let watch = DiskWatch { costs: Some(costs), ..DiskWatch::default() };
        Self(Arc::new(Mutex::new(Inside { watch, disk, synced: None })))
    }

    fn inside(&self) -> MutexGuard<'_, Inside> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls a function with the watch.
    pub(crate) fn watch<R>(&self, look: impl FnOnce(&mut DiskWatch) -> R) -> R {
        look(&mut self.inside().watch)
    }

    /// Makes a step of the network. Returns false when the power fails before it.
    pub(crate) fn step(&self) -> bool {
        self.inside().watch.step()
    }

    /// Returns the image that a crash would leave now if no unsynced byte survived.
    pub(crate) fn synced_image(&self) -> MemDisk {
        let mut image = self.inside().disk.clone();
        image.crash(Keep::Nothing);
        image
    }

    /// Cuts the power and restores it. `keep` selects the unsynced bytes that remain.
    pub(crate) fn crash(&self, keep: Keep<'_>) {
        let mut inside = self.inside();
        inside.disk.crash(keep);
        inside.watch.revive(false);
    }

    /// Kills the process. Its written bytes wait for a later sync.
    pub(crate) fn kill(&self) {
        let mut inside = self.inside();
        inside.disk.kill();
        inside.watch.revive(true);
    }

    /// Applies a flaw before the disk is opened. Returns false when the disk is refused.
    pub(crate) fn open_wrongly(&self, disk_flaw: DiskFlaw) -> bool {
        let inside = &mut *self.inside();
        match disk_flaw {
            DiskFlaw::None | DiskFlaw::Sync => {}
            DiskFlaw::LosesLast => {
                if let Some((_, before)) = inside.synced.take() {
                    inside.disk = before;
                }
            }
            DiskFlaw::DamageIsTail => {
                inside.watch.all_writes = Some(inside.watch.all_writes.take().unwrap_or_default());
            }
            DiskFlaw::TailIsDamage => return !std::mem::take(&mut inside.watch.is_torn),
        }
        true
    }

    /// Cuts the log at a page: later writes are gone.
    fn cut_off_at(inside: &mut Inside, page: (u32, u32)) {
        let Some(writes) = inside.watch.all_writes.take() else { return };
        let covers = |(slot, offset, length): &(u32, u32, usize)| {
            let to = offset.saturating_add(u32::try_from(*length).unwrap_or(u32::MAX));
            *slot == page.0 && (*offset..to).contains(&page.1)
        };
        let first = writes.iter().position(covers).unwrap_or(writes.len());
        for (slot, offset, length) in writes.iter().skip(first) {
            // The page exists, because an earlier write reached it.
            let _ = inside.disk.write(*slot, *offset, &vec![0; *length]);
        }
        let _ = inside.disk.sync();
        inside.watch.all_writes = Some(writes.into_iter().take(first).collect());
    }

    /// Flips a bit of the last write. Returns false when there was none.
    pub(crate) fn rot_at_tail(&self, rng: &mut Rng) -> bool {
        let Inside { watch, disk, .. } = &mut *self.inside();
        let Some((slot, offset, length)) = watch.last_write else { return false };
        // Zeros follow the last record of a page, and nothing reads them.
        let mut bytes = vec![0; length];
        if disk.read(slot, offset, &mut bytes).is_err() {
            return false;
        }
        let used = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last.saturating_add(1));
        if used == 0 {
            return false;
        }
        let at = u32::try_from(rng.index(used)).unwrap_or(0);
        disk.flip(slot, offset.saturating_add(at), bit(rng))
    }

    /// Flips a bit of a log page that the last write did not touch. Returns false when there is none.
    pub(crate) fn rot_in_log(&self, rng: &mut Rng) -> bool {
        let inside = &mut *self.inside();
        let Inside { watch, disk, .. } = inside;
        let page = u32::try_from(disk.page_bytes()).unwrap_or(u32::MAX);
        let mut bytes = vec![0; disk.page_bytes()];
        let mut used = Vec::new();
        for slot in 0..disk.segments() {
            for offset in (0..disk.segment_bytes()).step_by(disk.page_bytes()) {
                let is_last = watch.last_write.is_some_and(|(last, from, length)| {
                    let to = from.saturating_add(u32::try_from(length).unwrap_or(u32::MAX));
                    last == slot && (from..to).contains(&offset)
                });
                if !is_last && disk.read(slot, offset, &mut bytes).is_ok() && bytes.iter().any(|b| *b != 0) {
                    used.push((slot, offset));
                }
            }
        }
        let Some((slot, offset)) = rng.pick(&used).copied() else { return false };
        if watch.all_writes.is_some() {
            Self::cut_off_at(inside, (slot, offset));
            return true;
        }
        let at = u32::try_from(rng.below(u64::from(page))).unwrap_or(0);
        disk.flip(slot, offset.saturating_add(at), bit(rng))
    }

    /// Flips a bit of a snapshot. Returns false when there is none.
    pub(crate) fn rot_in_snapshot(&self, rng: &mut Rng) -> bool {
        let Inside { disk, .. } = &mut *self.inside();
        let blobs = disk.blobs().unwrap_or_default();
        let Some((name, length)) = rng.pick(&blobs).cloned() else { return false };
        let at = usize::try_from(rng.below(length.max(1))).unwrap_or(0);
        disk.flip_blob(&name, at, bit(rng))
    }

    /// Calls a function with the watch and the disk below it.
    pub(crate) fn below<R>(&self, look: impl FnOnce(&mut DiskWatch, &mut MemDisk) -> R) -> R {
        let Inside { watch, disk, .. } = &mut *self.inside();
        look(watch, disk)
    }

    /// Whether written bytes wait for a sync.
    pub(crate) fn is_unsynced(&self) -> bool {
        self.inside().disk.unsynced_bytes() > 0
    }

    /// Replaces the disk.
    pub(crate) fn replace(&self, disk: MemDisk) {
        self.inside().disk = disk;
    }

    /// Returns the number of bytes on the disk.
    pub(crate) fn used_bytes(&self) -> u64 {
        self.inside().disk.used_bytes()
    }
}

/// Returns a random bit number of a byte.
fn bit(rng: &mut Rng) -> u8 {
    u8::try_from(rng.below(8)).unwrap_or(0)
}

/// The disk that a host writes to.
#[derive(Debug)]
pub(crate) struct SimDisk {
    shared: SharedDisk,
    rng: Rng,
    disk_flaw: DiskFlaw,
}

impl SimDisk {
    pub(crate) fn new(shared: SharedDisk, rng: Rng, disk_flaw: DiskFlaw) -> Self {
        Self { shared, rng, disk_flaw }
    }

    /// Makes a step that changes the disk.
    fn change<R>(&mut self, doing: impl FnOnce(&mut MemDisk) -> Result<R, Fault>) -> Result<R, Fault> {
        let Inside { watch, disk, .. } = &mut *self.shared.inside();
        if watch.is_dead {
            disk.cut_power_after(0);
        } else if !watch.step() {
            // The power fails during the operation, so the disk decides its effect.
            disk.cut_power_after(1);
        }
        watch.spin(&mut self.rng, |costs| costs.write_ns);
        doing(disk)
    }

    /// Fails if the disk has this failure.
    fn fails(&self, trouble: DiskTrouble, doing: &'static str) -> Result<(), Fault> {
        self.shared.inside().watch.fails(trouble, doing)
    }

    fn take_space(&self, doing: &'static str) -> Result<(), Fault> {
        self.shared.inside().watch.take_space(doing)
    }

    /// Returns the place that a write goes to.
    fn aim(&mut self, slot: u32, offset: u32, length: usize) -> (u32, u32) {
        let Inside { watch, disk, .. } = &mut *self.shared.inside();
        if !std::mem::take(&mut watch.misdirects) {
            watch.last_write = Some((slot, offset, length));
            watch.newest_writes[0].push((slot, offset, length));
            if let Some(writes) = &mut watch.all_writes {
                writes.push((slot, offset, length));
            }
            return (slot, offset);
        }
        watch.count_fault(Named::MisdirectedWrite);
        let page = u32::try_from(disk.page_bytes()).unwrap_or(u32::MAX);
        let length = u32::try_from(length).unwrap_or(u32::MAX);
        let places = disk.segment_bytes().saturating_sub(length).checked_div(page).unwrap_or(0);
        let place = u32::try_from(self.rng.below(u64::from(places).saturating_add(1))).unwrap_or(0);
        let slot = u32::try_from(self.rng.below(u64::from(disk.segments().max(1)))).unwrap_or(slot);
        (slot, place.saturating_mul(page))
    }
}

impl Disk for SimDisk {
    fn page_bytes(&self) -> usize {
        self.shared.inside().disk.page_bytes()
    }

    fn segment_bytes(&self) -> u32 {
        self.shared.inside().disk.segment_bytes()
    }

    fn segments(&self) -> u32 {
        self.shared.inside().disk.segments()
    }

    fn grow(&mut self) -> Result<u32, Fault> {
        self.take_space("adding a segment to the log")?;
        self.change(MemDisk::grow)
    }

    fn prepare(&mut self) -> Result<bool, Fault> {
        self.shared.inside().disk.prepare()
    }

    fn write(&mut self, slot: u32, offset: u32, pages: &[u8]) -> Result<(), Fault> {
        let (slot, offset) = self.aim(slot, offset, pages.len());
        self.change(|disk| disk.write(slot, offset, pages))?;
        let watch = &mut self.shared.inside().watch;
        watch.writes = watch.writes.saturating_add(1);
        watch.written.extend_from_slice(pages);
        Ok(())
    }

    fn sync(&mut self) -> Result<(), Fault> {
        if self.disk_flaw == DiskFlaw::Sync {
            return Ok(());
        }
        self.fails(DiskTrouble::Syncs, "syncing the log")?;
        self.change(MemDisk::sync)?;
        if self.disk_flaw == DiskFlaw::LosesLast {
            let inside = &mut *self.shared.inside();
            let last = inside.disk.clone();
            let before = inside.synced.take().map_or_else(|| last.clone(), |(last, _)| last);
            inside.synced = Some((last, before));
        }
        let watch = &mut self.shared.inside().watch;
        watch.spin(&mut self.rng, |costs| costs.sync_ns);
        watch.syncs = watch.syncs.saturating_add(1);
        watch.synced.append(&mut watch.written);
        watch.newest_writes[1] = std::mem::take(&mut watch.newest_writes[0]);
        Ok(())
    }

    fn syncs(&self) -> u64 {
        self.shared.inside().disk.syncs()
    }

    fn read(&self, slot: u32, offset: u32, into: &mut [u8]) -> Result<(), Fault> {
        self.fails(DiskTrouble::Reads, "reading the log")?;
        self.shared.inside().disk.read(slot, offset, into)
    }

    fn blob_begin(&mut self, name: &str) -> Result<(), Fault> {
        self.change(|disk| disk.blob_begin(name))
    }

    fn blob_append(&mut self, bytes: &[u8]) -> Result<(), Fault> {
        self.take_space("writing a snapshot file")?;
        self.change(|disk| disk.blob_append(bytes))
    }

    fn blob_sync(&mut self) -> Result<(), Fault> {
        self.fails(DiskTrouble::Syncs, "syncing a snapshot file")?;
        self.change(MemDisk::blob_sync)
    }

    fn blob_commit(&mut self) -> Result<(), Fault> {
        self.change(MemDisk::blob_commit)
    }

    fn blobs(&self) -> Result<Vec<(String, u64)>, Fault> {
        self.shared.inside().disk.blobs()
    }

    fn blob_read(&self, name: &str, offset: u64, into: &mut [u8]) -> Result<(), Fault> {
        self.fails(DiskTrouble::Reads, "reading a snapshot file")?;
        self.shared.inside().disk.blob_read(name, offset, into)
    }

    fn blob_delete(&mut self, name: &str) -> Result<(), Fault> {
        self.change(|disk| disk.blob_delete(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn disk() -> (SimDisk, SharedDisk) {
        let shared = SharedDisk::new(MemDisk::new(4_096, 512), Costs::USUAL);
        (SimDisk::new(shared.clone(), Rng::new(1), DiskFlaw::None), shared)
    }

    #[test]
    fn only_synced_bytes_count_as_synced() {
        let (mut disk, shared) = disk();
        disk.grow().unwrap();
        disk.sync().unwrap();
        disk.write(0, 0, &[7; 512]).unwrap();
        assert!(shared.watch(|watch| watch.synced.is_empty() && watch.spent_ns > 0));
        let mut page = [1; 512];
        shared.synced_image().read(0, 0, &mut page).unwrap();
        assert_eq!(page, [0; 512]);
        disk.sync().unwrap();
        shared.watch(|watch| assert_eq!(watch.synced, [7; 512]));
    }

    #[test]
    fn power_fails_at_the_planned_step() {
        for fuse in 1..=4 {
            let (mut disk, shared) = disk();
            shared.watch(|watch| watch.set_fuse(fuse));
            let steps = [
                disk.grow().is_ok(),
                disk.write(0, 0, &[7; 512]).is_ok(),
                shared.step(),
                disk.sync().is_ok(),
            ];
            let lived = steps.iter().filter(|step| **step).count();
            assert_eq!(u64::try_from(lived).unwrap(), fuse - 1, "fuse {fuse}");
            assert!(shared.watch(|watch| watch.is_dead));
            assert!(disk.sync().is_err(), "and nothing works after that");
            shared.crash(Keep::Nothing);
            assert!(disk.sync().is_ok(), "until the power is back");
        }
    }

    #[test]
    fn disk_fails_after_a_flush_that_cut_the_power() {
        let (mut disk, shared) = disk();
        disk.grow().unwrap();
        shared.watch(|watch| watch.set_fuse(1));
        assert!(!shared.step());
        assert!(disk.write(0, 0, &[7; 512]).is_err());
    }
}
