//! The disk of a simulated replica: a [`MemDisk`] that takes time, can lose power at any step, and lets the
//! oracles see what was synced.
//!
//! A *step* is whatever a crash can come before or after: an operation that changes the disk, or a flush of the
//! network. A turn that is cut at every one of its steps has been cut everywhere that matters.

use crate::fault::Fault as Named;
use quorate_storage::{Disk, Fault, Keep, MemDisk};
use quorate_types::rng::Rng;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What a disk and the work of a turn cost in virtual time. Means of what is drawn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Costs {
    /// One write.
    pub write_ns: u64,
    /// One sync.
    pub sync_ns: u64,
    /// Executing one block, or checking one batch of bodies.
    pub work_ns: u64,
    /// Until a replica that waits begins its turn on what arrives; what arrives meanwhile is part of that turn.
    pub wake_ns: u64,
}

impl Costs {
    /// Nothing takes time: for counting message delays.
    pub const NONE: Self = Self { write_ns: 0, sync_ns: 0, work_ns: 0, wake_ns: 0 };

    /// A good solid-state disk.
    pub const USUAL: Self = Self { write_ns: 5_000, sync_ns: 150_000, work_ns: 20_000, wake_ns: 0 };
}

/// What a crash leaves of what was written and not synced.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Survives {
    /// Nothing.
    Nothing,
    /// Any part, in sectors.
    Some,
    /// All of it.
    Everything,
    /// All of it, and it still is not synced: only the process died.
    Cached,
}

/// What a disk does wrong on purpose, to see that an oracle notices.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum DiskFlaw {
    /// Nothing.
    #[default]
    None,
    /// Reports syncs that it does not do.
    Sync,
    /// Has lost what was synced last when it is opened.
    LosesLast,
    /// Ends where it is damaged when it is opened.
    DamageIsTail,
    /// Is refused when it ends in the middle of a write.
    TailIsDamage,
}

/// What goes wrong with a disk until somebody has seen to it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum DiskTrouble {
    /// Nothing.
    #[default]
    None,
    /// Writes and syncs take a hundred times as long.
    Slow,
    /// There is no room for anything more.
    Full,
    /// Reading fails.
    Reads,
    /// Syncing fails.
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

    /// The fault that it is.
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

/// How much slower a slow disk is …
const SLOW_FACTOR: u64 = 100;
/// … and an executor that labours.
const LABOUR_FACTOR: u64 = 500;

/// What a turn has used and changed so far, shared by the disk, the network and the world.
#[derive(Debug, Default)]
pub(crate) struct DiskWatch {
    costs: Option<Costs>,
    /// What costs time takes exactly that, and not that in the mean.
    pub(crate) is_exact: bool,
    /// Virtual time that the turn has taken so far.
    pub(crate) spent_ns: u64,
    /// Bytes that were written since the last sync.
    written: Vec<u8>,
    /// Bytes that were synced and that no oracle has taken yet.
    pub(crate) synced: Vec<u8>,
    /// Steps so far, over the life of the replica.
    pub(crate) steps: u64,
    /// The step during which the power goes.
    fuse: Option<u64>,
    /// The power is gone.
    pub(crate) is_dead: bool,
    pub(crate) syncs: u64,
    pub(crate) writes: u64,
    pub(crate) trouble: DiskTrouble,
    /// Executing takes longer than it should.
    pub(crate) labours: bool,
    /// The next write goes somewhere else.
    pub(crate) misdirects: bool,
    /// All writes in their order, for a disk that ends where it is damaged.
    all_writes: Option<Vec<(u32, u32, usize)>>,
    /// A power cut has left parts of a write.
    pub(crate) is_torn: bool,
    /// Where the last write went, and how long it was.
    last_write: Option<(u32, u32, usize)>,
    /// How often each fault was felt.
    pub(crate) felt: BTreeMap<Named, u64>,
}

impl DiskWatch {
    /// Begins a turn.
    pub(crate) fn begin(&mut self) {
        self.spent_ns = 0;
    }

    /// A step is about to be made: false when the power goes during it.
    pub(crate) fn step(&mut self) -> bool {
        self.steps = self.steps.saturating_add(1);
        if self.fuse.is_some_and(|fuse| self.steps >= fuse) {
            self.is_dead = true;
        }
        !self.is_dead
    }

    /// Cuts the power during the `steps`-th step from now.
    pub(crate) fn set_fuse(&mut self, steps: u64) {
        self.fuse = Some(self.steps.saturating_add(steps));
    }

    /// Takes the fuse out again.
    pub(crate) fn disarm(&mut self) {
        if !self.is_dead {
            self.fuse = None;
        }
    }

    /// The power is back. `keeps`: what was written still waits for its sync.
    pub(crate) fn revive(&mut self, keeps: bool) {
        self.fuse = None;
        self.is_dead = false;
        if !keeps {
            self.written.clear();
        }
    }

    /// A fault was felt.
    pub(crate) fn count_fault(&mut self, fault: Named) {
        let count = self.felt.entry(fault).or_default();
        *count = count.saturating_add(1);
    }

    /// Fails, if this is what is wrong with the disk.
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

    /// Time passes; `slowed` says what makes it longer now, and by how much.
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

    /// The disk does something.
    fn spin(&mut self, rng: &mut Rng, mean: impl Fn(&Costs) -> u64) {
        let slowed = (self.trouble == DiskTrouble::Slow).then_some((Named::SlowDisk, SLOW_FACTOR));
        self.spend(rng, mean, slowed);
    }

    /// Executing a block or checking a batch takes its time.
    pub(crate) fn work(&mut self, rng: &mut Rng, executes: bool) {
        let slowed = (self.labours && executes).then_some((Named::SlowExecutor, LABOUR_FACTOR));
        self.spend(rng, |costs| costs.work_ns, slowed);
    }
}

#[derive(Debug)]
struct Inside {
    watch: DiskWatch,
    disk: MemDisk,
    /// What was there at the last sync and at the one before, for a disk that loses what was synced last.
    synced: Option<(MemDisk, MemDisk)>,
}

/// A disk and its [`DiskWatch`], looked at by the host that writes to it and by the world. A world runs on one
/// thread; the lock is never waited for.
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

    /// Looks at the watch.
    pub(crate) fn watch<R>(&self, look: impl FnOnce(&mut DiskWatch) -> R) -> R {
        look(&mut self.inside().watch)
    }

    /// A step that is none of the disk's is about to be made: false when the power goes before it.
    pub(crate) fn step(&self) -> bool {
        self.inside().watch.step()
    }

    /// What would be there after a crash right now, if nothing unsynced survived.
    pub(crate) fn synced_image(&self) -> MemDisk {
        let mut image = self.inside().disk.clone();
        image.crash(Keep::Nothing);
        image
    }

    /// The power is gone and comes back: of what was not synced, `keep` is left.
    pub(crate) fn crash(&self, keep: Keep<'_>) {
        let mut inside = self.inside();
        inside.disk.crash(keep);
        inside.watch.revive(false);
    }

    /// The process is gone: what it wrote waits for somebody's sync.
    pub(crate) fn kill(&self) {
        let mut inside = self.inside();
        inside.disk.kill();
        inside.watch.revive(true);
    }

    /// Before somebody opens it: does what it is made to do wrong. False when it is refused.
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

    /// Cuts the log off at a page: what was written there and later is gone.
    fn cut_off_at(inside: &mut Inside, page: (u32, u32)) {
        let Some(writes) = inside.watch.all_writes.take() else { return };
        let covers = |(slot, offset, length): &(u32, u32, usize)| {
            let to = offset.saturating_add(u32::try_from(*length).unwrap_or(u32::MAX));
            *slot == page.0 && (*offset..to).contains(&page.1)
        };
        let first = writes.iter().position(covers).unwrap_or(writes.len());
        for (slot, offset, length) in writes.iter().skip(first) {
            // A page that cannot be written is no page of this disk.
            let _ = inside.disk.write(*slot, *offset, &vec![0; *length]);
        }
        let _ = inside.disk.sync();
        inside.watch.all_writes = Some(writes.into_iter().take(first).collect());
    }

    /// Changes one bit of what was written last. False when nothing was.
    pub(crate) fn rot_at_tail(&self, rng: &mut Rng) -> bool {
        let Inside { watch, disk, .. } = &mut *self.inside();
        let Some((slot, offset, length)) = watch.last_write else { return false };
        // What follows the last record of a page is zeros, which nobody reads.
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

    /// Changes one bit of a page of the log that is not among those that were written last. False when there is none.
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

    /// Changes one bit of a snapshot. False when there is none.
    pub(crate) fn rot_in_snapshot(&self, rng: &mut Rng) -> bool {
        let Inside { disk, .. } = &mut *self.inside();
        let blobs = disk.blobs().unwrap_or_default();
        let Some((name, length)) = rng.pick(&blobs).cloned() else { return false };
        let at = usize::try_from(rng.below(length.max(1))).unwrap_or(0);
        disk.flip_blob(&name, at, bit(rng))
    }

    /// Whether something was written that is not synced.
    pub(crate) fn is_unsynced(&self) -> bool {
        self.inside().disk.unsynced_bytes() > 0
    }

    /// Puts another disk in its place.
    pub(crate) fn replace(&self, disk: MemDisk) {
        self.inside().disk = disk;
    }

    /// Bytes that the disk holds.
    pub(crate) fn used_bytes(&self) -> u64 {
        self.inside().disk.used_bytes()
    }
}

/// One of the eight.
fn bit(rng: &mut Rng) -> u8 {
    u8::try_from(rng.below(8)).unwrap_or(0)
}

/// See the module.
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
            // The operation is under way when the power goes: the disk decides what comes of it.
            disk.cut_power_after(1);
        }
        watch.spin(&mut self.rng, |costs| costs.write_ns);
        doing(disk)
    }

    /// Fails, if this is what is wrong with the disk.
    fn fails(&self, trouble: DiskTrouble, doing: &'static str) -> Result<(), Fault> {
        self.shared.inside().watch.fails(trouble, doing)
    }

    /// Where a write goes.
    fn aim(&mut self, slot: u32, offset: u32, length: usize) -> (u32, u32) {
        let Inside { watch, disk, .. } = &mut *self.shared.inside();
        if !std::mem::take(&mut watch.misdirects) {
            watch.last_write = Some((slot, offset, length));
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
        self.fails(DiskTrouble::Full, "adding a segment to the log")?;
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
        self.fails(DiskTrouble::Full, "writing a snapshot file")?;
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
    fn only_what_was_synced_counts_as_synced() {
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
    fn the_power_goes_at_the_step_that_was_asked_for() {
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
    fn a_flush_that_kills_leaves_a_disk_that_fails() {
        let (mut disk, shared) = disk();
        disk.grow().unwrap();
        shared.watch(|watch| watch.set_fuse(1));
        assert!(!shared.step());
        assert!(disk.write(0, 0, &[7; 512]).is_err());
    }
}
