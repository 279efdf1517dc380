//! One append to the log with its sync, by bytes: files with direct I/O, with the page cache, and the disk in memory.

use divan::Bencher;
use divan::counter::BytesCount;
use quorate_storage::folder::{self, Identity};
use quorate_storage::{
    Disk, FileDisk, FileDiskConfig, MemDisk, PAGE_BYTES, SEGMENT_BYTES, Store, StoreConfig,
};
use quorate_types::{ClusterId, LogEntry, Mark, ProtocolId, ReplicaId};

/// Bytes that are filled before the measurement, so that no write makes a file grow.
const PREPARED: u64 = 8 << 24;

#[divan::bench(args = [512, 4 << 10, 64 << 10, 1 << 20], sample_count = 100, sample_size = 1)]
fn direct(bencher: Bencher<'_, '_>, bytes: usize) {
    on_files(bencher, bytes, true);
}

#[divan::bench(args = [512, 4 << 10, 64 << 10, 1 << 20], sample_count = 100, sample_size = 1)]
fn page_cache(bencher: Bencher<'_, '_>, bytes: usize) {
    on_files(bencher, bytes, false);
}

#[divan::bench(args = [512, 4 << 10], sample_count = 100, sample_size = 64)]
fn memory(bencher: Bencher<'_, '_>, bytes: usize) {
    append(bencher, bytes, MemDisk::volatile(SEGMENT_BYTES, PAGE_BYTES));
}

fn on_files(bencher: Bencher<'_, '_>, bytes: usize, direct: bool) {
    let folder = tempfile::tempdir().unwrap();
    let protocol = ProtocolId::new("echo");
    let identity = Identity { cluster: ClusterId::ZERO, replica: ReplicaId(0), protocol };
    folder::format(folder.path(), &identity, 1).unwrap();
    let config = FileDiskConfig { direct, prepared_bytes: PREPARED, ..FileDiskConfig::default() };
    append(bencher, bytes, FileDisk::open(folder.path(), config).unwrap());
}

fn append(bencher: Bencher<'_, '_>, bytes: usize, disk: impl Disk) {
    let mut store = Store::open(disk, StoreConfig::default(), &mut |_| {}).unwrap();
    let entry = LogEntry::Record(vec![7; bytes].into());
    let mut mark = 0;
    bencher.counter(BytesCount::new(bytes)).bench_local(|| {
        mark += 1;
        store.append(Mark(mark), &entry).unwrap();
        store.write_and_sync().unwrap();
    });
}
