//! Opening a log: finds its valid records and its end, and distinguishes a torn tail from damage.

use super::record::{self, Location, ParsedRecord, Start};
use super::segments::Segments;
use super::{Budget, Log, PageBuffer, Pending, Totals};
use crate::disk::Disk;
use crate::fault::Fault;
use crate::number::{to_u32, to_usize};
use quorate_types::{Ledger, Wire};
use std::collections::{BTreeMap, VecDeque};

/// A function that takes one record of a log that is being opened: kind, location and data. It returns the number
/// that the start of a segment after it has.
pub(crate) type Each<'a> = dyn FnMut(u8, Location, &[u8]) -> Result<u64, Fault> + 'a;

/// The valid segment starts of all slots.
struct Inventory {
    starts: Vec<Option<(u32, u64, Start)>>,
    slots: BTreeMap<u32, u32>,
    /// The first generation that is not released.
    floor: u32,
}

/// The end of the log.
struct Tail {
    /// The last generation with a valid record; 0 for none.
    generation: u32,
    /// The offset of the first invalid byte in that generation.
    offset: usize,
    /// Whether that byte is inside a write.
    inside: bool,
    /// The expected sync number at the end.
    sync: u64,
    /// The start of the last segment.
    start: Option<Start>,
    /// The number in the start of the next segment.
    note: u64,
}

impl<D: Disk> Log<D> {
    /// Opens the log. Gives every record in order to `each`, cuts a torn tail off, and makes the cut durable.
    ///
    /// # Errors
    /// Fails with [`Fault::Damaged`] when a record before the tail is invalid, without writing anything. Fails with
    /// each error of `each` and of the disk.
    pub(crate) fn open(disk: D, budget: Budget, each: &mut Each<'_>) -> Result<Self, Fault> {
        let seed = crc32c::crc32c(&disk.salt().to_le_bytes());
        let inventory = take_inventory(&disk, seed)?;
        let mut segment = vec![0; to_usize(disk.segment_bytes())];
        let tail = walk(&disk, seed, &inventory, &mut segment, each)?;
        refuse_damage(&disk, seed, &inventory, &tail, &mut segment)?;
        drop(segment);
        let mut log = Self::resume(disk, seed, budget, &inventory, &tail)?;
        if tail.generation == 0 {
            log.roll()?;
        }
        // This ends the sync number in progress. Stale data beyond the tail has that number or a lower one.
        log.end_sync()?;
        log.ledger = Ledger::default();
        log.syncs_before = log.disk.syncs();
        Ok(log)
    }

    /// Returns the log in its state at `tail`.
    fn resume(disk: D, seed: u32, budget: Budget, inventory: &Inventory, tail: &Tail) -> Result<Self, Fault> {
        let page_bytes = disk.page_bytes();
        let segment_bytes = to_usize(disk.segment_bytes());
        let mut log = Self {
            disk,
            seed,
            segment_bytes,
            page_bytes,
            segments: Segments::new(inventory.floor, budget),
            pending: Pending {
                position: tail.offset,
                buffer: PageBuffer::new(page_bytes),
                sync: tail.sync,
                is_dirty: true,
                written_bytes: 0,
            },
            totals: Totals::default(),
            note: tail.note,
            is_stopped: false,
            scratch: Vec::new(),
            ledger: Ledger::default(),
            syncs_before: 0,
        };
        let declared = tail.start.map_or(0, |start| start.oldest);
        let mut begun = VecDeque::new();
        for (generation, slot) in &inventory.slots {
            if *generation > tail.generation {
                // The segment was begun and never synced. Another slot may get its generation.
                log.disk.write(*slot, 0, &vec![0; page_bytes])?;
                begun.push_back(*slot);
            } else if *generation >= inventory.floor {
                log.segments.live.push_back(*slot);
            } else if *generation >= declared {
                log.segments.released.push(*slot);
            } else {
                log.segments.free.push_back(*slot);
            }
        }
        let unused = (0..).zip(&inventory.starts).filter(|(_, start)| start.is_none());
        log.segments.free.extend(unused.map(|(slot, _)| slot));
        // These slots come first. A segment that is begun before the zeros are synced then overwrites the slot that may
        // have had its generation. No generation is thus ever in two slots.
        begun.append(&mut log.segments.free);
        log.segments.free = begun;
        if tail.inside {
            // The torn write is ended at the cut, so its last page is written once more.
            let page = tail.offset.saturating_sub(1) / page_bytes * page_bytes;
            let mut prefix = vec![0; tail.offset - page];
            log.disk.read(log.segments.last_slot(), to_u32(page), &mut prefix)?;
            log.pending.buffer.extend(&prefix);
            log.pending.position = page;
        }
        Ok(log)
    }
}

fn take_inventory<D: Disk>(disk: &D, seed: u32) -> Result<Inventory, Fault> {
    let mut inventory = Inventory { starts: Vec::new(), slots: BTreeMap::new(), floor: 1 };
    let mut page = vec![0; disk.page_bytes()];
    let mut unreadable = None;
    for slot in 0..disk.segments() {
        disk.read(slot, 0, &mut page)?;
        let found = write_start(seed, 0, &page).filter(|found| found.kind == record::START);
        let start = found.and_then(|found| Some((found, Start::from_bytes(found.data).ok()?)));
        let Some((found, start)) = start else {
            inventory.starts.push(None);
            if page.iter().any(|byte| *byte != 0) {
                unreadable = Some(slot);
            }
            continue;
        };
        check_geometry(disk, &start)?;
        check_numbers(&found, &start)?;
        inventory.starts.push(Some((found.generation, found.sync, start)));
        inventory.floor = inventory.floor.max(start.oldest);
        if let Some(other) = inventory.slots.insert(found.generation, slot) {
            return Err(Fault::Damaged {
                generation: found.generation,
                offset: 0,
                why: format!("two slots have it, {other} and {slot}"),
            });
        }
    }
    match unreadable {
        // The first start of a log fits into one sector, so a crash leaves all of it or nothing.
        Some(slot) if inventory.slots.is_empty() => Err(Fault::Damaged {
            generation: 1,
            offset: 0,
            why: format!(
                "slot {slot} has content, but no segment can be read; the FORMAT file may belong to another log"
            ),
        }),
        _ => Ok(inventory),
    }
}

fn check_geometry<D: Disk>(disk: &D, start: &Start) -> Result<(), Fault> {
    let sizes = |segment: u32, page: u32| format!("segments of {segment} bytes and pages of {page}");
    let found = sizes(start.segment_bytes, start.page_bytes);
    let expected = sizes(disk.segment_bytes(), to_u32(disk.page_bytes()));
    if found == expected { Ok(()) } else { Err(Fault::Geometry { found, expected }) }
}

fn check_numbers(found: &ParsedRecord<'_>, start: &Start) -> Result<(), Fault> {
    let (generations, syncs) = record::LIMITS;
    let generation = found.generation.max(start.oldest);
    if generation < generations && found.sync < syncs {
        return Ok(());
    }
    let why = format!("no log reaches {generation} segments and {} syncs", found.sync);
    Err(Fault::Damaged { generation: found.generation, offset: 0, why })
}

/// Parses the record that begins a write at the beginning of `page`.
fn write_start(seed: u32, offset: usize, page: &[u8]) -> Option<ParsedRecord<'_>> {
    // Both kinds are short, so no more bytes than this are parsed for any length field.
    let found = record::parse(seed, offset, page.get(..record::START_BYTES)?)?;
    matches!(found.kind, record::START | record::BEGIN).then_some(found)
}

/// Reads the log from its oldest segment to the first invalid byte.
fn walk<D: Disk>(
    disk: &D,
    seed: u32,
    inventory: &Inventory,
    segment: &mut [u8],
    each: &mut Each<'_>,
) -> Result<Tail, Fault> {
    let mut tail =
        Tail { generation: 0, offset: segment.len(), inside: false, sync: 1, start: None, note: 0 };
    let mut generation = inventory.floor;
    while let Some(slot) = inventory.slots.get(&generation) {
        let start = inventory.starts.get(to_usize(*slot)).copied().flatten();
        let sync = start.map_or(0, |(_, sync, _)| sync);
        if tail.generation == 0 {
            tail.sync = sync;
        }
        if sync != tail.sync {
            break;
        }
        disk.read(*slot, 0, segment)?;
        tail.generation = generation;
        if !walk_segment(disk.page_bytes(), seed, &mut tail, segment, each)? {
            break;
        }
        generation += 1;
    }
    Ok(tail)
}

/// Reads one segment. Returns false when the log ends in it.
fn walk_segment(
    page_bytes: usize,
    seed: u32,
    tail: &mut Tail,
    segment: &[u8],
    each: &mut Each<'_>,
) -> Result<bool, Fault> {
    tail.offset = 0;
    tail.inside = false;
    while tail.offset < segment.len() {
        let rest = segment.get(tail.offset..).unwrap_or_default();
        let found = record::parse(seed, tail.offset, rest);
        let expected =
            |found: &ParsedRecord<'_>| found.generation == tail.generation && found.sync == tail.sync;
        let Some(found) = found.filter(expected) else {
            return Ok(false);
        };
        let after = tail.offset + found.size;
        match (found.kind, tail.inside) {
            (record::START, false) if tail.offset == 0 => {
                tail.start = Start::from_bytes(found.data).ok();
                tail.inside = true;
                tail.note = each(found.kind, Location::default(), found.data)?;
            }
            (record::BEGIN, false) => tail.inside = true,
            (record::START | record::BEGIN, true) | (_, false) => return Ok(false),
            (record::WRITE_END | record::SYNC_END, true) => {
                tail.inside = false;
                tail.sync += u64::from(found.kind == record::SYNC_END);
                tail.offset = after.next_multiple_of(page_bytes);
                continue;
            }
            (record::SEGMENT_END, true) => {
                tail.inside = false;
                tail.offset = segment.len();
                return Ok(true);
            }
            (kind, true) => {
                let location = Location {
                    generation: tail.generation,
                    offset: to_u32(tail.offset),
                    length: to_u32(found.data.len()),
                };
                tail.note = each(kind, location, found.data)?;
            }
        }
        tail.offset = after;
    }
    Ok(!tail.inside)
}

/// Refuses an invalid record at the tail that is damage: data was written after the record's sync.
fn refuse_damage<D: Disk>(
    disk: &D,
    seed: u32,
    inventory: &Inventory,
    tail: &Tail,
    segment: &mut [u8],
) -> Result<(), Fault> {
    // If no record is valid at the tail, any valid write elsewhere proves damage.
    let sync = if tail.generation == 0 { 0 } else { tail.sync };
    for (slot, start) in (0..).zip(&inventory.starts) {
        let from = match start {
            Some((generation, ..)) if *generation == tail.generation => {
                tail.offset.next_multiple_of(disk.page_bytes())
            }
            Some((generation, ..)) if (inventory.floor..tail.generation).contains(generation) => continue,
            _ => 0,
        };
        disk.read(slot, 0, segment)?;
        for at in (from..segment.len()).step_by(disk.page_bytes()) {
            let later = segment.get(at..).and_then(|rest| write_start(seed, at, rest));
            let later = later.filter(|found| found.generation >= tail.generation && found.sync > sync);
            if let Some(later) = later {
                return Err(Fault::Damaged {
                    generation: tail.generation.max(inventory.floor),
                    offset: to_u32(tail.offset),
                    why: format!(
                        "the data at that place was synced, because segment {} continues at byte {at}",
                        later.generation
                    ),
                });
            }
        }
    }
    Ok(())
}
