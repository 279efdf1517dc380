use super::*;
use crate::mem_disk::{Keep, MemDisk};
use quorate_types::rng::Rng;

const KIND: u8 = record::FIRST_FREE;
const SEGMENT: u32 = 4096;
const PAGE: usize = 512;

const BUDGET: Budget = Budget { segments: 64, disk_bytes_max: 64 * 4096 };

type Records = Vec<Vec<u8>>;

fn open(disk: MemDisk) -> Result<(Log<MemDisk>, Records), Fault> {
    let mut records = Vec::new();
    let log = Log::open(disk, BUDGET, &mut |kind, location, data| {
        if kind == KIND {
            assert_eq!(location.length as usize, data.len());
            records.push(data.to_vec());
        }
        Ok(0)
    })?;
    Ok((log, records))
}

/// Returns the n-th record of every test, which has its number and at least `length` bytes.
fn content(n: usize, length: usize) -> Vec<u8> {
    let mut bytes = format!("record {n:05} ").into_bytes();
    bytes.resize(length.max(bytes.len()), n as u8);
    bytes
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Append(usize),
    Sync,
    /// Releases all segments but the newest `n`.
    KeepSegments(u32),
}
use Step::{Append, KeepSegments, Sync};

/// The history of a run up to its end or the power cut.
#[derive(Default, Clone)]
struct Ran {
    /// All appended records.
    appended: Records,
    /// The generation of each record.
    generations: Vec<u32>,
    /// The number of synced records.
    synced: usize,
    /// The number of first records that may be gone because their segment was released.
    released: usize,
}

/// Runs the steps until one fails. The records continue those of `ran`.
fn run(log: &mut Log<MemDisk>, steps: &[Step], ran: &mut Ran) -> Result<(), Fault> {
    for step in steps {
        match *step {
            Append(length) => {
                let bytes = content(ran.appended.len(), length);
                ran.appended.push(bytes.clone());
                ran.generations.push(u32::MAX);
                let location = log.append(KIND, &[&bytes[..5], &bytes[5..]])?;
                *ran.generations.last_mut().unwrap() = location.generation;
            }
            Sync => {
                log.write_and_sync()?;
                ran.synced = ran.appended.len();
            }
            KeepSegments(count) => {
                log.release((log.generation() + 1).saturating_sub(count));
                let gone =
                    ran.generations.iter().take_while(|generation| **generation < log.oldest()).count();
                ran.released = ran.released.max(gone);
            }
        }
    }
    Ok(())
}

/// Compares the recovered records with the history, and returns the history from the log's view.
fn check_survivors(found: &Records, ran: &Ran, what: &str) -> Ran {
    let first = match found.first() {
        Some(first) => ran.appended.iter().position(|bytes| bytes == first),
        None => Some(ran.appended.len().min(ran.released.max(ran.synced))),
    };
    let first = first.unwrap_or_else(|| panic!("{what}: found a record that was not appended"));
    assert!(first <= ran.released, "{what}: begins at {first}, released {}", ran.released);
    let last = first + found.len();
    assert!(last >= ran.synced, "{what}: ends at {last}, synced {}", ran.synced);
    assert!(found[..] == ran.appended[first..last], "{what}");
    Ran {
        appended: ran.appended[..last].to_vec(),
        generations: ran.generations[..last].to_vec(),
        synced: last,
        released: ran.released,
    }
}

fn small_steps() -> Vec<Step> {
    vec![
        Append(20),
        Append(100),
        Sync,
        Append(700),
        Sync,
        Append(0),
        Append(467),
        Sync,
        Append(1500),
        Append(1500),
        Append(1500),
        Append(30),
        Sync,
        Append(3000),
        Sync,
        Append(8),
        Sync,
        Append(2500),
        Append(2500),
        Append(2500),
        Sync,
        Append(1),
        Sync,
    ]
}

fn recycling_steps() -> Vec<Step> {
    let mut steps = Vec::new();
    for round in 0..14 {
        steps.extend([
            Append(900),
            Append(40 + round * 13),
            Sync,
            Append(1400),
            KeepSegments(2),
            Append(900),
        ]);
        if round % 3 != 1 {
            steps.push(Sync);
        }
    }
    steps.push(Sync);
    steps
}

#[test]
fn synced_records_are_recovered() {
    let (mut log, found) = open(MemDisk::new(SEGMENT, PAGE)).unwrap();
    assert!(found.is_empty());
    let mut ran = Ran::default();
    run(&mut log, &small_steps(), &mut ran).unwrap();
    let mut disk = log.disk;
    for _ in 0..40 {
        disk.crash(Keep::Nothing);
        let (mut log, found) = open(disk).unwrap();
        assert_eq!(found, ran.appended);
        run(&mut log, &[Append(33), Sync], &mut ran).unwrap();
        disk = log.disk;
    }
}

#[test]
fn record_is_read_at_its_location() {
    let (mut log, _) = open(MemDisk::new(SEGMENT, PAGE)).unwrap();
    let mut placed = Vec::new();
    for n in 0..40 {
        let bytes = content(n, n * 37);
        placed.push((log.append(KIND, &[&bytes]).unwrap(), bytes));
        if n % 5 == 4 {
            log.write_and_sync().unwrap();
        }
        for (location, bytes) in &placed {
            assert_eq!(log.read(*location).unwrap(), Some(bytes.as_slice()));
        }
    }
    log.release(3);
    assert_eq!(log.read(placed[0].0).unwrap(), None);
    assert_eq!(log.oldest(), 3);
}

/// One write and one sync serve all records since the last ones.
#[test]
fn many_appends_take_one_write_and_one_sync() {
    let (mut log, _) = open(MemDisk::new(1 << 20, 4096)).unwrap();
    assert_eq!(log.ledger.syncs, 0);
    for _ in 0..10 {
        log.append(KIND, &[&[1; 300]]).unwrap();
    }
    assert!(log.write_and_sync().unwrap());
    assert!(!log.write_and_sync().unwrap(), "there is nothing to sync");
    let ledger = log.ledger;
    assert_eq!((ledger.log_writes, ledger.syncs, ledger.log_bytes), (1, 1, 4096));
}

/// Cuts the power at every single operation, with several choices of surviving unsynced data.
fn cut_everywhere(steps: &[Step]) {
    let mut seeds = Rng::new(11);
    let mut cuts = 0;
    for cut in 1.. {
        let (mut log, _) = open(MemDisk::new(SEGMENT, PAGE)).unwrap();
        log.disk.cut_power_after(cut);
        let mut ran = Ran::default();
        let ended = run(&mut log, steps, &mut ran);
        for keep in 0..8 {
            let mut disk = log.disk.clone();
            let mut rng = seeds.fork();
            disk.crash(match keep {
                0 => Keep::Nothing,
                1 => Keep::Everything,
                _ => Keep::Sectors(&mut rng),
            });
            let what = format!("cut at {cut}, kept by {keep}");
            let (again, found) = open(disk).unwrap_or_else(|fault| panic!("{what}: {fault}"));
            let left = check_survivors(&found, &ran, &what);
            cuts += 1;
            go_on_and_cut_again(again, left, &mut rng, &what);
        }
        if ended.is_ok() {
            break;
        }
    }
    assert!(cuts > 200, "{cuts}");
}

/// Uses the log after a crash and cuts the power again. The log must still have all synced records.
fn go_on_and_cut_again(mut log: Log<MemDisk>, mut ran: Ran, rng: &mut Rng, what: &str) {
    log.disk.cut_power_after(rng.between(1, 12));
    let steps = [Append(600), Append(60), Sync, Append(1800), Sync, Append(900), Sync];
    let _ = run(&mut log, &steps, &mut ran);
    let mut disk = log.disk;
    disk.crash(Keep::Sectors(rng));
    let (_, found) = open(disk).unwrap_or_else(|fault| panic!("{what}, again: {fault}"));
    check_survivors(&found, &ran, what);
}

#[test]
fn log_survives_a_power_cut_at_every_operation() {
    cut_everywhere(&small_steps());
}

#[test]
fn log_survives_a_power_cut_while_segments_are_used_again() {
    cut_everywhere(&recycling_steps());
}

/// Opening writes too. The test cuts the power at each of its operations, again and again.
#[test]
fn log_survives_power_cuts_while_it_is_opened() {
    let mut rng = Rng::new(5);
    for cut in 1..120 {
        let (mut log, _) = open(MemDisk::new(SEGMENT, PAGE)).unwrap();
        log.disk.cut_power_after(cut);
        let mut ran = Ran::default();
        let _ = run(&mut log, &recycling_steps(), &mut ran);
        let mut disk = log.disk;
        disk.crash(Keep::Sectors(&mut rng));
        for opening in 1..8 {
            let mut attempt = disk.clone();
            attempt.cut_power_after(opening);
            // The failed log drops its disk, so the test uses a copy behind a shared handle.
            let shared = Shared::new(attempt);
            let _ = Log::open(shared.clone(), BUDGET, &mut |_, _, _| Ok(0));
            let mut attempt = shared.take();
            attempt.crash(Keep::Sectors(&mut rng));
            let what = format!("cut at {cut}, opening cut at {opening}");
            let (log, found) = open(attempt.clone()).unwrap_or_else(|fault| panic!("{what}: {fault}"));
            let left = check_survivors(&found, &ran, &what);
            go_on_and_cut_again(log, left, &mut rng, &what);
            disk = attempt;
        }
    }
}

#[test]
fn released_segments_are_used_again() {
    let (mut log, _) = open(MemDisk::new(SEGMENT, PAGE)).unwrap();
    let mut ran = Ran::default();
    for _ in 0..20 {
        run(&mut log, &recycling_steps(), &mut ran).unwrap();
        let disk = log.disk;
        assert!(disk.segments() <= 6, "{}", disk.segments());
        let (again, found) = open(disk).unwrap();
        assert_eq!(found.last(), ran.appended.last());
        log = again;
    }
    assert!(log.generation() > 100);
}

/// Flips every single bit of a small log. Data before the last sync is never lost silently, and no record is invented.
#[test]
fn every_bit_flip_is_refused_or_harmless_or_cuts_the_tail() {
    let (mut log, _) = open(MemDisk::new(SEGMENT, PAGE)).unwrap();
    let mut ran = Ran::default();
    let mut steps = vec![Append(20), Append(100), Sync, Append(480), Append(0), Sync, Append(3000), Sync];
    steps.extend([Append(1200), Append(40), Sync]);
    run(&mut log, &steps, &mut ran).unwrap();
    let before_last = ran.appended.len() - 2;
    let disk = log.disk;
    let (mut refused, mut harmless, mut cut) = (0, 0, 0);
    for slot in 0..disk.segments() {
        for byte in 0..SEGMENT {
            for bit in 0..8 {
                let mut damaged = disk.clone();
                assert!(damaged.flip(slot, byte, bit));
                match open(damaged) {
                    Err(Fault::Damaged { .. }) => refused += 1,
                    Ok((_, found)) if found == ran.appended => harmless += 1,
                    Ok((_, found)) => {
                        assert!(found.len() >= before_last, "{slot}/{byte}/{bit} lost a synced record");
                        assert_eq!(found[..], ran.appended[..found.len()], "{slot}/{byte}/{bit}");
                        cut += 1;
                    }
                    Err(fault) => panic!("{slot}/{byte}/{bit}: {fault}"),
                }
            }
        }
    }
    assert!(refused > 8 * 3600 && harmless > 0 && cut > 8 * 1200, "{refused} {harmless} {cut}");
}

/// A damaged byte before the tail is refused at any place, also in a length.
#[test]
fn damage_before_the_last_sync_is_refused() {
    let (mut log, _) = open(MemDisk::new(SEGMENT, PAGE)).unwrap();
    let mut ran = Ran::default();
    run(&mut log, &small_steps(), &mut ran).unwrap();
    let first = log.append(KIND, &[b"more"]).unwrap();
    log.write_and_sync().unwrap();
    let disk = log.disk;
    for slot in 0..first.generation - 1 {
        for byte in 0..record::START_BYTES as u32 {
            let mut damaged = disk.clone();
            damaged.flip(slot, byte, 3);
            let refused = open(damaged).err();
            // Only the padding of the start to eight bytes has no meaning.
            let padding = byte as usize >= record::HEADER_BYTES + record::Start::DATA_BYTES;
            assert_eq!(
                matches!(refused, Some(Fault::Damaged { .. })),
                !padding,
                "{slot}/{byte}: {refused:?}"
            );
        }
    }
}

#[test]
fn log_with_another_salt_or_geometry_is_refused() {
    let (mut log, _) = open(MemDisk::new(SEGMENT, PAGE)).unwrap();
    log.append(KIND, &[b"x"]).unwrap();
    log.write_and_sync().unwrap();
    let disk = log.disk;
    let mut other = disk.clone();
    other.set_salt(8);
    let refused = open(other).err();
    assert!(matches!(refused, Some(Fault::Damaged { .. })), "{refused:?}");

    let mut larger = MemDisk::new(2 * SEGMENT, PAGE);
    larger.grow().unwrap();
    let mut first = vec![0; SEGMENT as usize];
    disk.read(0, 0, &mut first).unwrap();
    larger.write(0, 0, &first).unwrap();
    let refused = Log::open(larger, BUDGET, &mut |_, _, _| Ok(0)).err();
    assert!(matches!(refused, Some(Fault::Geometry { .. })), "{refused:?}");
}

/// A body may have bytes that look like the start of a later write on every page. Without the salt they prove
/// nothing, even if the body's own record is torn.
#[test]
fn body_cannot_forge_a_later_write() {
    let forged = |offset: usize| {
        let mut buffer = PageBuffer::new(PAGE);
        let seed = crc32c::crc32c(&0u64.to_le_bytes());
        record::push(&mut buffer, seed, offset, (1, 99, record::BEGIN), &[]);
        buffer.as_slice().to_vec()
    };
    let mut disk = MemDisk::new(SEGMENT, PAGE);
    disk.set_salt(1);
    let (mut log, _) = open(disk).unwrap();
    run(&mut log, &[Append(20), Sync], &mut Ran::default()).unwrap();
    let at = log.pending.position + record::EMPTY_BYTES + record::HEADER_BYTES;
    let mut body = vec![1; 2000];
    for page in (0..SEGMENT as usize).step_by(PAGE) {
        let forged = forged(page);
        if let Some(place) = page.checked_sub(at).and_then(|from| body.get_mut(from..from + forged.len())) {
            place.copy_from_slice(&forged);
        }
    }
    log.append(KIND, &[&body]).unwrap();
    log.write_and_sync().unwrap();
    let offset = log.pending.position as u32 - 1024;
    let mut disk = log.disk;
    disk.flip(0, offset, 0);
    let (_, found) = open(disk).unwrap();
    assert_eq!(found.len(), 1);
}

/// Only a forger of checksums writes such numbers. Counting from them would overflow.
#[test]
fn numbers_beyond_the_limits_are_refused() {
    let forged = |generation: u32, sync: u64, oldest: u32| {
        let mut disk = MemDisk::new(SEGMENT, PAGE);
        disk.grow().unwrap();
        let mut page = PageBuffer::new(PAGE);
        let start = record::Start { segment_bytes: SEGMENT, page_bytes: PAGE as u32, oldest, note: 0 };
        let seed = crc32c::crc32c(&0u64.to_le_bytes());
        let end = record::START_BYTES;
        record::push(&mut page, seed, 0, (generation, sync, record::START), &[&start.to_bytes()]);
        record::push(&mut page, seed, end, (generation, sync, record::SYNC_END), &[]);
        page.pad_to(PAGE);
        disk.write(0, 0, page.as_slice()).unwrap();
        open(disk).map(drop)
    };
    let (generations, syncs) = record::LIMITS;
    assert_eq!(forged(1, 1, 1), Ok(()));
    assert_eq!(forged(1, syncs - 1, 1), Ok(()));
    assert_eq!(forged(generations - 1, 1, generations - 1), Ok(()));
    for (generation, sync, oldest) in [
        (1, syncs, 1),
        (1, u64::MAX, 1),
        (generations, 1, generations),
        (u32::MAX, 1, u32::MAX),
        (1, 1, u32::MAX),
    ] {
        let refused = forged(generation, sync, oldest);
        assert!(matches!(refused, Err(Fault::Damaged { .. })), "{generation} {sync} {oldest}: {refused:?}");
    }
}

#[test]
fn full_disk_stops_the_log_and_loses_no_synced_record() {
    let mut disk = MemDisk::new(SEGMENT, PAGE);
    disk.set_capacity(u64::from(SEGMENT) * 3);
    let (mut log, _) = open(disk).unwrap();
    let mut ran = Ran::default();
    let steps = [Append(1000), Sync].repeat(20);
    assert_eq!(run(&mut log, &steps, &mut ran), Err(Fault::Full { doing: "adding a segment to the log" }));
    assert_eq!(log.write_and_sync(), Err(Fault::Stopped));
    assert_eq!(log.append(KIND, &[b"x"]), Err(Fault::Stopped));
    let mut disk = log.disk;
    disk.crash(Keep::Nothing);
    disk.set_capacity(u64::MAX);
    let (mut log, found) = open(disk).unwrap();
    check_survivors(&found, &ran, "full disk");
    assert!(found.len() > 5);
    run(&mut log, &[Append(1000), Sync], &mut ran).unwrap();
}

#[test]
fn failed_write_or_sync_stops_the_log() {
    for failing_sync in [false, true] {
        let (mut log, _) = open(MemDisk::new(SEGMENT, PAGE)).unwrap();
        let mut ran = Ran::default();
        run(&mut log, &[Append(10), Sync, Append(20)], &mut ran).unwrap();
        log.disk.fail_writes(!failing_sync);
        log.disk.fail_syncs(failing_sync);
        assert!(matches!(log.write_and_sync(), Err(Fault::Io { .. })));
        log.disk.fail_writes(false);
        log.disk.fail_syncs(false);
        assert_eq!(log.write_and_sync(), Err(Fault::Stopped), "a failed sync was tried again");
        let mut disk = log.disk;
        disk.crash(Keep::Nothing);
        assert_eq!(open(disk).unwrap().1, ran.appended[..1]);
    }
}

#[test]
fn record_larger_than_a_segment_is_refused() {
    let (mut log, _) = open(MemDisk::new(SEGMENT, PAGE)).unwrap();
    let most = log.record_bytes_max();
    let refused = log.append(KIND, &[&vec![1; most + 1]]);
    assert!(matches!(refused, Err(Fault::TooLarge { .. })));
    log.append(KIND, &[&vec![1; most]]).unwrap();
    log.append(KIND, &[&vec![2; most]]).unwrap();
    log.write_and_sync().unwrap();
    let (_, found) = open(log.disk).unwrap();
    assert_eq!(found, [vec![1; most], vec![2; most]]);
}

#[test]
fn log_never_exceeds_its_budget() {
    let two = Budget { segments: 2, disk_bytes_max: 9000 };
    let mut log = Log::open(MemDisk::new(SEGMENT, PAGE), two, &mut |_, _, _| Ok(0)).unwrap();
    let filled = (0..20).try_for_each(|_| log.append(KIND, &[&[0; 1000]]).map(|_| ()));
    assert_eq!(filled, Err(Fault::Budget { limit: 9000 }));
}

/// A disk that a test can take back after the log that owned it has failed.
#[derive(Clone)]
struct Shared(std::sync::Arc<std::sync::Mutex<MemDisk>>);

impl Shared {
    fn new(disk: MemDisk) -> Self {
        Self(std::sync::Arc::new(std::sync::Mutex::new(disk)))
    }
    fn take(&self) -> MemDisk {
        self.0.lock().unwrap().clone()
    }
}

impl Disk for Shared {
    fn page_bytes(&self) -> usize {
        PAGE
    }
    fn segment_bytes(&self) -> u32 {
        SEGMENT
    }
    fn segments(&self) -> u32 {
        self.0.lock().unwrap().segments()
    }
    fn grow(&mut self) -> Result<u32, Fault> {
        self.0.lock().unwrap().grow()
    }
    fn prepare(&mut self) -> Result<bool, Fault> {
        Ok(false)
    }
    fn write(&mut self, slot: u32, offset: u32, pages: &[u8]) -> Result<(), Fault> {
        self.0.lock().unwrap().write(slot, offset, pages)
    }
    fn sync(&mut self) -> Result<(), Fault> {
        self.0.lock().unwrap().sync()
    }
    fn syncs(&self) -> u64 {
        self.0.lock().unwrap().syncs()
    }
    fn read(&self, slot: u32, offset: u32, into: &mut [u8]) -> Result<(), Fault> {
        self.0.lock().unwrap().read(slot, offset, into)
    }
    fn blob_begin(&mut self, _: &str) -> Result<(), Fault> {
        unreachable!()
    }
    fn blob_append(&mut self, _: &[u8]) -> Result<(), Fault> {
        unreachable!()
    }
    fn blob_sync(&mut self) -> Result<(), Fault> {
        unreachable!()
    }
    fn blob_commit(&mut self) -> Result<(), Fault> {
        unreachable!()
    }
    fn blobs(&self) -> Result<Vec<(String, u64)>, Fault> {
        unreachable!()
    }
    fn blob_read(&self, _: &str, _: u64, _: &mut [u8]) -> Result<(), Fault> {
        unreachable!()
    }
    fn blob_delete(&mut self, _: &str) -> Result<(), Fault> {
        unreachable!()
    }
}

fn mixed_log() -> (MemDisk, Ran) {
    let (mut log, _) = open(MemDisk::new(SEGMENT, PAGE)).unwrap();
    let mut ran = Ran::default();
    run(&mut log, &small_steps(), &mut ran).unwrap();
    (log.disk, ran)
}

#[test]
fn record_in_another_place_is_invalid() {
    let mut buffer = PageBuffer::new(PAGE);
    record::push(&mut buffer, 1, 512, (1, 1, KIND), &[b"data"]);
    assert_eq!(record::parse(1, 512, buffer.as_slice()).unwrap().data, b"data");
    assert!(record::parse(1, 1024, buffer.as_slice()).is_none());
    assert!(record::parse(2, 512, buffer.as_slice()).is_none());
}

/// The disk writes a page to the place of another. The log refuses it, unless no reader needs that page.
#[test]
fn misdirected_writes_are_refused_or_harmless() {
    let (disk, ran) = mixed_log();
    let pages = disk.segments() * SEGMENT / PAGE as u32;
    let place = |page: u32| (page * PAGE as u32 / SEGMENT, page * PAGE as u32 % SEGMENT);
    let (mut refused, mut fine) = (0, 0);
    for from in 0..pages {
        for to in (0..pages).filter(|to| *to != from) {
            let mut damaged = disk.clone();
            let mut content = vec![0; PAGE];
            let ((from_slot, from_offset), (to_slot, to_offset)) = (place(from), place(to));
            damaged.read(from_slot, from_offset, &mut content).unwrap();
            damaged.write(to_slot, to_offset, &content).unwrap();
            match open(damaged) {
                Err(Fault::Damaged { .. }) => refused += 1,
                Ok((_, found)) => {
                    // The last sync may be lost, as with every torn tail.
                    assert!(found.len() >= ran.appended.len() - 1, "{from} to {to}: {}", found.len());
                    assert_eq!(found[..], ran.appended[..found.len()], "{from} to {to}");
                    fine += 1;
                }
                Err(fault) => panic!("{from} to {to}: {fault}"),
            }
        }
    }
    assert!(refused > 1000 && fine > 100, "{refused} {fine}");
}

mod properties {
    use super::*;
    use proptest::prelude::{Just, ProptestConfig, Strategy, any, prop, prop_oneof};
    use proptest::{prop_assert, prop_assert_eq, proptest};

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            6 => (0..2600usize).prop_map(Append),
            3 => Just(Sync),
            1 => (1..6u32).prop_map(KeepSegments),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(400))]

        /// For any steps and any power cut, the log recovers all synced records and invents none.
        #[test]
        fn log_keeps_synced_records(
            lives in prop::collection::vec((prop::collection::vec(step(), 0..40), 0..60u64, any::<u64>()), 1..5),
        ) {
            let (mut log, _) = open(MemDisk::new(SEGMENT, PAGE)).unwrap();
            let mut ran = Ran::default();
            for (steps, cut, seed) in lives {
                log.disk.cut_power_after(cut);
                let _ = run(&mut log, &steps, &mut ran);
                let mut disk = log.disk;
                disk.crash(Keep::Sectors(&mut Rng::new(seed)));
                let (again, found) = open(disk).unwrap();
                ran = check_survivors(&found, &ran, "property");
                log = again;
            }
        }

        /// For any content of a disk, opening neither panics nor invents a record.
        #[test]
        fn any_damage_is_refused_or_harmless(
            places in prop::collection::vec((any::<u32>(), prop::collection::vec(any::<u8>(), 1..40)), 1..6),
        ) {
            let (mut disk, ran) = mixed_log();
            for (place, bytes) in places {
                for (i, byte) in (0..).zip(bytes) {
                    let at = place.wrapping_add(i) % (disk.segments() * SEGMENT);
                    let mut page = vec![0; PAGE];
                    let start = at % SEGMENT / PAGE as u32 * PAGE as u32;
                    disk.read(at / SEGMENT, start, &mut page).unwrap();
                    page[(at % PAGE as u32) as usize] = byte;
                    disk.write(at / SEGMENT, start, &page).unwrap();
                }
            }
            match open(disk) {
                Err(fault) => prop_assert!(matches!(fault, Fault::Damaged { .. }), "{}", fault),
                Ok((_, found)) => prop_assert_eq!(&found[..], &ran.appended[..found.len()]),
            }
        }
    }
}
