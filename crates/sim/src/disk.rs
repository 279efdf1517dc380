//! The disk of a simulated replica: a [`MemDisk`] that takes time, can lose power at any step, and lets the
//! oracles see what was synced.
//!
//! A *step* is whatever a crash can come before or after: an operation that changes the disk, or a flush of the
//! network. A turn that is cut at every one of its steps has been cut everywhere that matters.

use quorate_storage::{Disk, Fault, Keep, MemDisk};
use quorate_types::rng::Rng;
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
}

impl Costs {
    /// Nothing takes time: for counting message delays.
    pub const NONE: Self = Self { write_ns: 0, sync_ns: 0, work_ns: 0 };

    /// A good solid-state disk.
    pub const USUAL: Self = Self { write_ns: 5_000, sync_ns: 150_000, work_ns: 20_000 };
}

/// What a disk does wrong on purpose, to see that an oracle notices.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Lie {
    /// Nothing.
    #[default]
    None,
    /// Reports syncs that it does not do.
    Sync,
}

/// What a turn has used and changed so far, shared by the disk, the network and the world.
#[derive(Debug, Default)]
pub(crate) struct Watch {
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
}

impl Watch {
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

    /// The power is back.
    pub(crate) fn revive(&mut self) {
        self.fuse = None;
        self.is_dead = false;
        self.written.clear();
    }

    fn spend(&mut self, rng: &mut Rng, cost: impl Fn(&Costs) -> u64) {
        let mean = self.costs.as_ref().map_or(0, cost);
        if self.is_exact {
            self.spent_ns = self.spent_ns.saturating_add(mean);
        } else if mean > 0 {
            let drawn = (mean / 2).saturating_add(rng.exponential_ns(mean / 2));
            self.spent_ns = self.spent_ns.saturating_add(drawn);
        }
    }

    /// Executing a block or checking a batch takes its time.
    pub(crate) fn work(&mut self, rng: &mut Rng) {
        self.spend(rng, |costs| costs.work_ns);
    }
}

#[derive(Debug)]
struct Inside {
    watch: Watch,
    disk: MemDisk,
}

/// A disk and its [`Watch`], looked at by the host that writes to it and by the world. A world runs on one
/// thread; the lock is never waited for.
#[derive(Clone, Debug)]
pub(crate) struct Shared(Arc<Mutex<Inside>>);

impl Shared {
    pub(crate) fn new(disk: MemDisk, costs: Costs) -> Self {
        let watch = Watch { costs: Some(costs), ..Watch::default() };
        Self(Arc::new(Mutex::new(Inside { watch, disk })))
    }

    fn inside(&self) -> MutexGuard<'_, Inside> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks at the watch.
    pub(crate) fn watch<R>(&self, look: impl FnOnce(&mut Watch) -> R) -> R {
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
        inside.watch.revive();
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

/// See the module.
#[derive(Debug)]
pub(crate) struct SimDisk {
    shared: Shared,
    rng: Rng,
    lie: Lie,
}

impl SimDisk {
    pub(crate) fn new(shared: Shared, rng: Rng, lie: Lie) -> Self {
        Self { shared, rng, lie }
    }

    /// Makes a step that changes the disk.
    fn change<R>(&mut self, doing: impl FnOnce(&mut MemDisk) -> Result<R, Fault>) -> Result<R, Fault> {
        let Inside { watch, disk } = &mut *self.shared.inside();
        if watch.is_dead {
            disk.cut_power_after(0);
        } else if !watch.step() {
            // The operation is under way when the power goes: the disk decides what comes of it.
            disk.cut_power_after(1);
        }
        watch.spend(&mut self.rng, |costs| costs.write_ns);
        doing(disk)
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
        self.change(MemDisk::grow)
    }

    fn prepare(&mut self) -> Result<bool, Fault> {
        self.shared.inside().disk.prepare()
    }

    fn write(&mut self, slot: u32, offset: u32, pages: &[u8]) -> Result<(), Fault> {
        self.change(|disk| disk.write(slot, offset, pages))?;
        let watch = &mut self.shared.inside().watch;
        watch.writes = watch.writes.saturating_add(1);
        watch.written.extend_from_slice(pages);
        Ok(())
    }

    fn sync(&mut self) -> Result<(), Fault> {
        if self.lie == Lie::Sync {
            return Ok(());
        }
        self.change(MemDisk::sync)?;
        let watch = &mut self.shared.inside().watch;
        watch.spend(&mut self.rng, |costs| costs.sync_ns);
        watch.syncs = watch.syncs.saturating_add(1);
        watch.synced.append(&mut watch.written);
        Ok(())
    }

    fn syncs(&self) -> u64 {
        self.shared.inside().disk.syncs()
    }

    fn read(&self, slot: u32, offset: u32, into: &mut [u8]) -> Result<(), Fault> {
        self.shared.inside().disk.read(slot, offset, into)
    }

    fn blob_begin(&mut self, name: &str) -> Result<(), Fault> {
        self.change(|disk| disk.blob_begin(name))
    }

    fn blob_append(&mut self, bytes: &[u8]) -> Result<(), Fault> {
        self.change(|disk| disk.blob_append(bytes))
    }

    fn blob_sync(&mut self) -> Result<(), Fault> {
        self.change(MemDisk::blob_sync)
    }

    fn blob_commit(&mut self) -> Result<(), Fault> {
        self.change(MemDisk::blob_commit)
    }

    fn blobs(&self) -> Result<Vec<(String, u64)>, Fault> {
        self.shared.inside().disk.blobs()
    }

    fn blob_read(&self, name: &str, offset: u64, into: &mut [u8]) -> Result<(), Fault> {
        self.shared.inside().disk.blob_read(name, offset, into)
    }

    fn blob_delete(&mut self, name: &str) -> Result<(), Fault> {
        self.change(|disk| disk.blob_delete(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn disk() -> (SimDisk, Shared) {
        let shared = Shared::new(MemDisk::new(4_096, 512), Costs::USUAL);
        (SimDisk::new(shared.clone(), Rng::new(1), Lie::None), shared)
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
