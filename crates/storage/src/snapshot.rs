//! Snapshots: lists of chunks. A new snapshot writes only the chunks that the snapshot before does not have.
//!
//! A snapshot is a *manifest* over files of chunks (`chunks-NUMBER`). The manifest (`snapshot-HEIGHT`) has the
//! header, and digest, place and checksum of each chunk. A new snapshot writes its changed chunks to one new file and
//! makes the file durable. Then it makes the manifest visible, atomically. Only then are the oldest of three
//! snapshots and the files that no manifest names deleted.
//!
//! A file must not survive for a few chunks. An unchanged chunk is therefore written again if less than half of its
//! file is in use, or if there are too many files.
//!
//! A manifest may also have the proof that a quorum has signed the state. Peers receive only such snapshots. The newest
//! snapshot with a proof is therefore kept until a newer one has a proof.

use crate::disk::Disk;
use crate::fault::Fault;
use crate::number::{to_u64, to_usize};
use quorate_types::chunk::CHUNK_ID_BYTES;
use quorate_types::{ChunkId, DecodeError, Height, Reader, Wire};
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// The number of files of chunks that a snapshot may use. Beyond it the emptiest are given up until half of them are
/// left.
const FILES_MAX: usize = 32;
/// The number of bytes of chunks that one write gathers.
const WRITE_BYTES: usize = 256 << 10;

/// The place of a chunk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct ChunkAt {
    id: ChunkId,
    /// The number of the file.
    file: u64,
    offset: u64,
    checksum: u32,
}

impl ChunkAt {
    /// Whether the whole chunk lies in its file, by the sizes of the files. An empty chunk needs no file.
    fn lies_in(&self, sizes: &BTreeMap<u64, u64>) -> bool {
        let end = self.offset.checked_add(u64::from(self.id.length));
        let size = sizes.get(&self.file).copied();
        self.id.length == 0 || end.is_some_and(|end| size.is_some_and(|size| end <= size))
    }
}

const CHUNK_AT_BYTES: usize = CHUNK_ID_BYTES + 8 + 8 + 4;

quorate_types::wire_struct!(ChunkAt { id, file, offset, checksum });

/// A durable snapshot.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StoredSnapshot {
    height: Height,
    header: Vec<u8>,
    /// The proof that a quorum has signed the state; empty without one.
    proof: Vec<u8>,
    chunks: Vec<ChunkAt>,
}

impl StoredSnapshot {
    /// Returns the height of the state.
    #[must_use]
    pub fn height(&self) -> Height {
        self.height
    }

    /// Returns the header, which precedes the chunks.
    #[must_use]
    pub fn header(&self) -> &[u8] {
        &self.header
    }

    /// Returns the encoded proof that a quorum has signed the state; empty without one.
    #[must_use]
    pub fn proof(&self) -> &[u8] {
        &self.proof
    }

    /// Returns the number of chunks.
    #[must_use]
    pub fn chunks(&self) -> usize {
        self.chunks.len()
    }

    /// Returns the ids of the chunks, in order.
    pub fn ids(&self) -> impl Iterator<Item = ChunkId> {
        self.chunks.iter().map(|chunk| chunk.id)
    }
}

impl Wire for StoredSnapshot {
    fn encode(&self, out: &mut Vec<u8>) {
        self.height.encode(out);
        quorate_types::codec::put_bytes(out, &self.header);
        quorate_types::codec::put_bytes(out, &self.proof);
        quorate_types::codec::put_list(out, &self.chunks);
    }
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self {
            height: Height::decode(reader)?,
            header: reader.bytes("header", usize::MAX)?.to_vec(),
            proof: reader.bytes("proof", usize::MAX)?.to_vec(),
            chunks: reader.list("chunks", usize::MAX, CHUNK_AT_BYTES, ChunkAt::decode)?,
        })
    }
}

/// A snapshot that is being written. Dropping the writer abandons it.
#[derive(Debug)]
pub struct SnapshotWriter {
    snapshot: StoredSnapshot,
    needed: BTreeSet<usize>,
    /// For a needed chunk, the later chunks that are equal to it. One write serves all.
    equal: BTreeMap<usize, Vec<usize>>,
    /// Chunks of earlier snapshots that a received snapshot uses again and that were not read yet, lowest first.
    unread: VecDeque<usize>,
    /// The number of the file of the new chunks.
    file: u64,
    /// Whether the file was begun.
    begun: bool,
    waiting: Vec<u8>,
    /// The bytes of the new chunks so far.
    bytes: u64,
    /// Whether bytes were appended since the last sync.
    dirty: bool,
    /// The next step after the last chunk.
    stage: Stage,
}

/// The steps of making a snapshot durable. Each ends with one sync. A power cut after any of them leaves either the
/// snapshot or files that are deleted later.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    /// The bytes of the chunks become durable.
    Chunks,
    /// The name of the chunks' file becomes durable.
    ChunksName,
    /// The bytes of the manifest become durable.
    Manifest,
    /// The name of the manifest becomes durable, which makes the snapshot visible.
    ManifestName,
}

impl SnapshotWriter {
    /// Returns the height of the state.
    #[must_use]
    pub fn height(&self) -> Height {
        self.snapshot.height
    }

    /// Returns the indexes of the chunks that must still be written.
    #[must_use]
    pub fn needed(&self) -> &BTreeSet<usize> {
        &self.needed
    }

    /// Returns the bytes of the chunks written so far.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the bytes of the chunks that must still be written. Equal chunks count once.
    #[must_use]
    pub fn needed_bytes(&self) -> u64 {
        let chunks = self.needed.iter().filter_map(|index| self.snapshot.chunks.get(*index));
        chunks.map(|chunk| u64::from(chunk.id.length)).sum()
    }

    /// Returns the id of a chunk.
    #[must_use]
    pub fn id(&self, index: usize) -> Option<ChunkId> {
        self.snapshot.chunks.get(index).map(|chunk| chunk.id)
    }

    /// Whether all chunks are written, and those that are used again were read.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.needed.is_empty() && self.unread.is_empty()
    }

    /// Returns the chunks that this writer has written.
    fn written(&self) -> impl Iterator<Item = &ChunkAt> {
        let mine = self.snapshot.chunks.iter().enumerate().filter(|(_, chunk)| chunk.file == self.file);
        // A chunk that is not written has no checksum yet, and the same place as the first one.
        let waiting: BTreeSet<usize> = self.equal.values().flatten().copied().collect();
        mine.filter(move |(index, _)| !self.needed.contains(index) && !waiting.contains(index))
            .map(|(_, chunk)| chunk)
    }

    /// Adds the encoded proof that a quorum has signed the state.
    pub fn prove(&mut self, proof: &[u8]) {
        self.snapshot.proof = proof.to_vec();
    }
}

/// The origin of a snapshot that is written.
pub(crate) enum Origin {
    /// The own service.
    Own,
    /// Peers. The chunks that an abandoned attempt has received are used again.
    Peers(Option<Box<SnapshotWriter>>),
}

/// The snapshots of a disk.
#[derive(Debug, Default)]
pub(crate) struct Snapshots {
    /// The heights of the kept snapshots, in order.
    heights: Vec<Height>,
    /// Those of them that have a proof.
    proven: BTreeSet<Height>,
    /// The bytes of all files.
    bytes: u64,
    /// The height from which on the own states differ from those that a quorum has signed; zero without one.
    distrusted: Height,
}

/// The file that names the height from which on the own states are wrong.
const DISTRUSTED: &str = "distrusted";
const DISTRUSTED_BYTES: u64 = 8 + 4;

fn manifest_name(height: Height) -> String {
    format!("snapshot-{:020}", height.0)
}

fn chunks_name(file: u64) -> String {
    format!("chunks-{file:020}")
}

fn number_of(name: &str, prefix: &str) -> Option<u64> {
    name.strip_prefix(prefix)?.parse().ok()
}

fn misuse(height: Height, why: &'static str) -> Fault {
    Fault::Snapshot { height, why }
}

impl Snapshots {
    /// Finds the snapshots of a disk.
    pub(crate) fn find<D: Disk>(disk: &D) -> Result<Self, Fault> {
        let (mut found, mut note) = (Self::default(), None);
        for (name, bytes) in disk.blobs()? {
            found.bytes = found.bytes.saturating_add(bytes);
            found.heights.extend(number_of(&name, "snapshot-").map(Height));
            if name == DISTRUSTED {
                note = Some(distrusted_from(disk, bytes)?);
            }
        }
        found.heights.sort_unstable();
        for height in found.heights.clone() {
            match found.read(disk, height) {
                Ok(snapshot) if !snapshot.proof.is_empty() => {
                    found.proven.insert(height);
                }
                Ok(_) | Err(Fault::DamagedSnapshot { .. }) => {}
                Err(fault) => return Err(fault),
            }
        }
        // If the note is damaged, every own state without a proof may be wrong.
        let after_proven = found.newest_proven().unwrap_or_default().next();
        found.distrusted = note.map_or(Height::ZERO, |height| height.unwrap_or(after_proven));
        Ok(found)
    }

    /// Returns the height of the newest snapshot with a proof.
    pub(crate) fn newest_proven(&self) -> Option<Height> {
        self.proven.last().copied()
    }

    /// Whether there is a snapshot of this height with a proof.
    pub(crate) fn has_proven(&self, height: Height) -> bool {
        self.proven.contains(&height)
    }

    /// Returns the bytes of all files.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the heights of the snapshots, in order.
    pub(crate) fn heights(&self) -> &[Height] {
        &self.heights
    }

    /// Notes, durably, that the own states from this height on are wrong. Only a snapshot with a proof, of this height or
    /// a later one, is trusted from then on.
    pub(crate) fn distrust<D: Disk>(&mut self, disk: &mut D, height: Height) -> Result<(), Fault> {
        disk.blob_begin(DISTRUSTED)?;
        let bytes = height.0.to_le_bytes();
        disk.blob_append(&[&bytes[..], &crc32c::crc32c(&bytes).to_le_bytes()].concat())?;
        disk.blob_sync()?;
        disk.blob_commit()?;
        self.distrusted = height;
        Ok(())
    }

    /// Returns the height from which on the own states are wrong; zero when all are trusted.
    pub(crate) fn distrusted(&self) -> Height {
        match self.newest_proven() {
            Some(proven) if proven >= self.distrusted => Height::ZERO,
            _ => self.distrusted,
        }
    }

    /// Excludes a snapshot. The next commit deletes its manifest.
    pub(crate) fn exclude(&mut self, height: Height) {
        self.heights.retain(|kept| *kept != height);
        self.proven.remove(&height);
    }

    /// Reads a manifest.
    pub(crate) fn read<D: Disk>(&self, disk: &D, height: Height) -> Result<StoredSnapshot, Fault> {
        let name = manifest_name(height);
        let damaged = |why: &str| Fault::DamagedSnapshot { name: name.clone(), why: why.to_owned() };
        let files = disk.blobs()?;
        let size = files.iter().find(|(found, _)| *found == name).map(|(_, size)| *size);
        let size = size.ok_or_else(|| damaged("the file is gone"))?;
        let mut bytes = vec![0; usize::try_from(size).unwrap_or(usize::MAX)];
        disk.blob_read(&name, 0, &mut bytes)?;
        let mut reader = Reader::new(&bytes);
        let checksum = reader.u32().map_err(|_| damaged("the file is empty"))?;
        if checksum != crc32c::crc32c(reader.rest()) {
            return Err(damaged("its checksum is wrong"));
        }
        let snapshot = StoredSnapshot::from_bytes(reader.rest());
        let snapshot = snapshot
            .map_err(|_| damaged("the file cannot be decoded; another version may have written it"))?;
        if snapshot.height != height {
            return Err(damaged("the file has another height"));
        }
        let sizes: BTreeMap<u64, u64> =
            files.iter().filter_map(|(name, size)| Some((number_of(name, "chunks-")?, *size))).collect();
        let outside = snapshot.chunks.iter().position(|chunk| !chunk.lies_in(&sizes));
        // This check precedes every allocation for a chunk, so that a length cannot exceed the real bytes.
        match outside {
            None => Ok(snapshot),
            Some(index) => Err(damaged(&format!("chunk {index} does not lie inside its file"))),
        }
    }

    /// Reads and checks a chunk.
    pub(crate) fn chunk<D: Disk>(
        &self,
        disk: &D,
        snapshot: &StoredSnapshot,
        index: usize,
    ) -> Result<Vec<u8>, Fault> {
        let at = snapshot.chunks.get(index);
        let at =
            at.ok_or_else(|| misuse(snapshot.height, "the host has requested a chunk beyond the last"))?;
        let name = chunks_name(at.file);
        let mut bytes = vec![0; to_usize(at.id.length)];
        let read = disk.blob_read(&name, at.offset, &mut bytes);
        if read.is_ok() && crc32c::crc32c(&bytes) == at.checksum {
            return Ok(bytes);
        }
        let why = match read {
            Ok(()) => format!("the checksum of chunk {index} is wrong"),
            Err(fault) => format!("chunk {index} cannot be read: {fault}"),
        };
        Err(Fault::DamagedSnapshot { name, why })
    }

    /// Reads a part of a chunk, without a check.
    pub(crate) fn piece<D: Disk>(
        &self,
        disk: &D,
        snapshot: &StoredSnapshot,
        (index, offset, length): (usize, u32, u32),
    ) -> Result<Vec<u8>, Fault> {
        let at = snapshot.chunks.get(index);
        let at = at.filter(|at| offset.checked_add(length).is_some_and(|end| end <= at.id.length));
        let at = at.ok_or_else(|| {
            misuse(snapshot.height, "the host has requested bytes beyond the end of a chunk")
        })?;
        let mut bytes = vec![0; to_usize(length)];
        if length > 0 {
            disk.blob_read(&chunks_name(at.file), at.offset.saturating_add(u64::from(offset)), &mut bytes)?;
        }
        Ok(bytes)
    }

    /// Returns the bytes of the chunks that neither the newest snapshot nor a carried writer has. Changes nothing.
    pub(crate) fn missing_bytes<D: Disk>(
        &self,
        disk: &D,
        ids: &[ChunkId],
        carried: Option<&SnapshotWriter>,
    ) -> Result<u64, Fault> {
        let newest = self.heights.last().map(|newest| self.read(disk, *newest)).transpose()?;
        let mut known: BTreeSet<ChunkId> =
            newest.iter().flat_map(|newest| &newest.chunks).map(|chunk| chunk.id).collect();
        known.extend(carried.into_iter().flat_map(SnapshotWriter::written).map(|chunk| chunk.id));
        let missing: BTreeSet<ChunkId> = ids.iter().filter(|id| !known.contains(id)).copied().collect();
        Ok(missing.iter().fold(0, |bytes, id| bytes.saturating_add(u64::from(id.length))))
    }

    /// Begins a snapshot. Equal ids mean equal chunks.
    pub(crate) fn begin<D: Disk>(
        &mut self,
        disk: &mut D,
        height: Height,
        (header, ids): (Vec<u8>, &[ChunkId]),
        origin: Origin,
    ) -> Result<SnapshotWriter, Fault> {
        if self.heights.last().is_some_and(|newest| height <= *newest) {
            return Err(misuse(height, "a newer snapshot is durable already"));
        }
        // Files of an interrupted attempt are deleted now, or many attempts would fill the disk.
        self.delete_unused(disk)?;
        let before = match self.heights.last() {
            Some(newest) => self.read(disk, *newest)?.chunks,
            None => Vec::new(),
        };
        let files = disk.blobs()?;
        let mut known: BTreeMap<ChunkId, ChunkAt> =
            before.into_iter().map(|chunk| (chunk.id, chunk)).collect();
        let (given_up, carried) = match origin {
            Origin::Own => (files_given_up(&files, ids.iter().filter_map(|id| known.get(id))), None),
            Origin::Peers(carried) => (BTreeSet::new(), Some(carried)),
        };
        let reads_again = carried.is_some();
        let carried = carried.flatten().filter(|writer| writer.stage == Stage::Chunks);
        let number = |(name, _): &(String, u64)| number_of(name, "chunks-");
        let next = files.iter().filter_map(number).max().map_or(1, |last| last.saturating_add(1));
        let file = carried.as_ref().map_or(next, |writer| writer.file);
        if let Some(writer) = &carried {
            known.extend(writer.written().map(|chunk| (chunk.id, *chunk)));
        }
        let (mut needed, mut unread) = (BTreeSet::new(), VecDeque::new());
        let mut first: BTreeMap<ChunkId, usize> = BTreeMap::new();
        let mut equal: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        let chunk = |(index, id): (usize, &ChunkId)| match known.get(id) {
            Some(chunk) if !given_up.contains(&chunk.file) => {
                if reads_again && chunk.file != file {
                    unread.push_back(index);
                }
                *chunk
            }
            _ => {
                match first.entry(*id) {
                    Entry::Occupied(first) => equal.entry(*first.get()).or_default().push(index),
                    Entry::Vacant(place) => {
                        place.insert(index);
                        needed.insert(index);
                    }
                }
                ChunkAt { id: *id, file, offset: 0, checksum: 0 }
            }
        };
        let chunks = ids.iter().enumerate().map(chunk).collect();
        let snapshot = StoredSnapshot { height, header, proof: Vec::new(), chunks };
        Ok(match carried {
            Some(writer) => SnapshotWriter { snapshot, needed, equal, unread, ..*writer },
            None => SnapshotWriter {
                snapshot,
                needed,
                equal,
                unread,
                file,
                begun: false,
                waiting: Vec::new(),
                bytes: 0,
                dirty: false,
                stage: Stage::Chunks,
            },
        })
    }

    /// Reads chunks that a received snapshot uses again, at most about `bytes`. Those that are damaged are needed.
    pub(crate) fn read_again<D: Disk>(
        &self,
        disk: &D,
        writer: &mut SnapshotWriter,
        mut bytes: u64,
    ) -> Result<(), Fault> {
        while bytes > 0
            && let Some(index) = writer.unread.pop_front()
        {
            let Some(id) = writer.id(index) else { continue };
            match self.chunk(disk, &writer.snapshot, index) {
                Ok(chunk) if ChunkId::of(&chunk) == id => {}
                Ok(_) | Err(Fault::DamagedSnapshot { .. }) => {
                    let file = writer.file;
                    if let Some(at) = writer.snapshot.chunks.get_mut(index) {
                        *at = ChunkAt { id, file, offset: 0, checksum: 0 };
                    }
                    writer.needed.insert(index);
                }
                Err(fault) => return Err(fault),
            }
            bytes = bytes.saturating_sub(u64::from(id.length).max(64));
        }
        Ok(())
    }

    /// Writes one of the needed chunks.
    pub(crate) fn write<D: Disk>(
        disk: &mut D,
        writer: &mut SnapshotWriter,
        index: usize,
        chunk: &[u8],
    ) -> Result<(), Fault> {
        let height = writer.snapshot.height;
        let at = writer.snapshot.chunks.get_mut(index);
        let Some(at) = at.filter(|_| writer.needed.remove(&index)) else {
            return Err(misuse(height, "the host has written a chunk that is not needed"));
        };
        if u32::try_from(chunk.len()) != Ok(at.id.length) {
            return Err(misuse(height, "a chunk has another length than its id says"));
        }
        at.offset = writer.bytes;
        at.checksum = crc32c::crc32c(chunk);
        let written = *at;
        for index in writer.equal.remove(&index).unwrap_or_default() {
            if let Some(at) = writer.snapshot.chunks.get_mut(index) {
                *at = written;
            }
        }
        writer.bytes = writer.bytes.saturating_add(to_u64(chunk.len()));
        writer.waiting.extend_from_slice(chunk);
        if writer.waiting.len() >= WRITE_BYTES {
            flush(disk, writer)?;
        }
        Ok(())
    }

    /// Makes the chunks written so far durable, with one sync. Frequent syncs are short ones.
    pub(crate) fn sync<D: Disk>(disk: &mut D, writer: &mut SnapshotWriter) -> Result<(), Fault> {
        flush(disk, writer)?;
        if writer.dirty {
            disk.blob_sync()?;
            writer.dirty = false;
        }
        Ok(())
    }

    /// Takes one step, with one sync, of making the snapshot durable and visible. Returns true after the last step,
    /// which also deletes the files that the snapshot replaces.
    pub(crate) fn commit<D: Disk>(
        &mut self,
        disk: &mut D,
        writer: &mut SnapshotWriter,
    ) -> Result<bool, Fault> {
        let height = writer.snapshot.height;
        if !writer.is_complete() {
            return Err(misuse(height, "chunks are missing"));
        }
        if self.heights.last().is_some_and(|newest| height <= *newest) {
            return Err(misuse(height, "a newer snapshot is durable already"));
        }
        if writer.stage == Stage::Chunks {
            flush(disk, writer)?;
            writer.stage = if writer.begun { Stage::ChunksName } else { Stage::Manifest };
            if writer.dirty {
                Self::sync(disk, writer)?;
                return Ok(false);
            }
        }
        match writer.stage {
            Stage::Chunks | Stage::ChunksName => {
                disk.blob_commit()?;
                writer.stage = Stage::Manifest;
            }
            Stage::Manifest => {
                let mut body = Vec::new();
                writer.snapshot.encode(&mut body);
                disk.blob_begin(&manifest_name(height))?;
                disk.blob_append(&crc32c::crc32c(&body).to_le_bytes())?;
                disk.blob_append(&body)?;
                disk.blob_sync()?;
                writer.stage = Stage::ManifestName;
            }
            Stage::ManifestName => {
                disk.blob_commit()?;
                self.heights.push(height);
                if !writer.snapshot.proof.is_empty() {
                    self.proven.insert(height);
                }
                self.delete_unused(disk)?;
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Forgets all snapshots but the newest and one before it: the newest with a proof, or the next one.
    fn forget_surplus(&mut self) {
        let Some(newest) = self.heights.last().copied() else { return };
        let mut before = self.heights.iter().rev().skip(1);
        let second = before.clone().next();
        let served = before.find(|height| self.proven.contains(height));
        // A snapshot with a proof is served until a newer one is.
        let older = if self.proven.contains(&newest) { second } else { served.or(second) }.copied();
        self.heights = older.into_iter().chain([newest]).collect();
        let kept = &self.heights;
        self.proven.retain(|height| kept.contains(height));
    }

    /// Deletes the manifests of snapshots that are not kept, and then the files that no manifest names.
    fn delete_unused<D: Disk>(&mut self, disk: &mut D) -> Result<(), Fault> {
        self.forget_surplus();
        for (name, _) in disk.blobs()? {
            if number_of(&name, "snapshot-").is_some_and(|height| !self.heights.contains(&Height(height))) {
                disk.blob_delete(&name)?;
            }
        }
        let mut used = BTreeSet::new();
        for height in &self.heights {
            // An older snapshot may be damaged by now. Its files are then deleted, because the newest needs none of
            // them.
            let older = Some(height) != self.heights.last();
            match self.read(disk, *height) {
                Ok(snapshot) => used.extend(snapshot.chunks.iter().map(|chunk| chunk.file)),
                Err(Fault::DamagedSnapshot { .. }) if older => {}
                Err(fault) => return Err(fault),
            }
        }
        self.bytes = 0;
        let is_trusted = self.distrusted() == Height::ZERO;
        for (name, bytes) in disk.blobs()? {
            let is_unused = number_of(&name, "chunks-").is_some_and(|file| !used.contains(&file));
            if is_unused || (name == DISTRUSTED && is_trusted) {
                disk.blob_delete(&name)?;
            } else {
                self.bytes = self.bytes.saturating_add(bytes);
            }
        }
        Ok(())
    }
}

/// Reads the height from which on the own states are wrong: a height, and its CRC-32C. `None` if the file is damaged.
fn distrusted_from<D: Disk>(disk: &D, size: u64) -> Result<Option<Height>, Fault> {
    let mut bytes = vec![0; usize::try_from(size.min(DISTRUSTED_BYTES)).unwrap_or(0)];
    disk.blob_read(DISTRUSTED, 0, &mut bytes)?;
    let mut reader = Reader::new(&bytes);
    let (height, checksum) = (reader.u64(), reader.u32());
    Ok(match (height, checksum, bytes.get(..8)) {
        (Ok(height), Ok(checksum), Some(of))
            if size == DISTRUSTED_BYTES && checksum == crc32c::crc32c(of) =>
        {
            Some(Height(height))
        }
        _ => None,
    })
}

fn flush<D: Disk>(disk: &mut D, writer: &mut SnapshotWriter) -> Result<(), Fault> {
    if writer.waiting.is_empty() && (writer.begun || writer.bytes == 0) {
        // Empty chunks need no file.
        return Ok(());
    }
    if !writer.begun {
        disk.blob_begin(&chunks_name(writer.file))?;
        writer.begun = true;
    }
    disk.blob_append(&writer.waiting)?;
    writer.dirty = true;
    writer.waiting.clear();
    Ok(())
}

/// Returns the files whose unchanged chunks are written again: those with less than half of their bytes in use, and the
/// emptiest of too many.
fn files_given_up<'a>(files: &[(String, u64)], reused: impl Iterator<Item = &'a ChunkAt>) -> BTreeSet<u64> {
    let mut live: BTreeMap<u64, BTreeMap<u64, u64>> = BTreeMap::new();
    for chunk in reused {
        let offsets = live.entry(chunk.file).or_default();
        offsets.insert(chunk.offset, u64::from(chunk.id.length));
    }
    let mut by_use: Vec<(u64, u64)> = Vec::new();
    let mut given_up = BTreeSet::new();
    for (file, offsets) in &live {
        let name = chunks_name(*file);
        let size = files.iter().find(|(found, _)| *found == name).map_or(0, |(_, size)| *size);
        let used: u64 = offsets.values().sum();
        if used.saturating_mul(2) < size {
            given_up.insert(*file);
        } else {
            by_use.push((used, *file));
        }
    }
    if by_use.len() >= FILES_MAX {
        by_use.sort_unstable();
        let surplus = by_use.len() - FILES_MAX / 2;
        given_up.extend(by_use.iter().take(surplus).map(|(_, file)| *file));
    }
    given_up
}

#[cfg(test)]
mod tests;
