//! Snapshots: a list of chunks, of which only those are written that the snapshot before does not have.
//!
//! A snapshot is a *manifest* (`snapshot-HEIGHT`: header, and for each chunk its digest, its place and its
//! checksum) over files of chunks (`chunks-NUMBER`). A new one writes its changed chunks to one new file, makes it
//! durable, and then makes the manifest visible, atomically; only then the oldest of three snapshots goes, and
//! the files that no manifest names any more.
//!
//! So that files do not live on for a few chunks, a chunk is written again although it did not change where less
//! than half of its file is still in use, or where the files would become too many.

use crate::disk::Disk;
use crate::fault::Fault;
use crate::number::{to_u32, to_u64, to_usize};
use quorate_types::{DecodeError, Digest, Height, Reader, Wire};
use std::collections::{BTreeMap, BTreeSet};

/// Snapshots that are kept at most.
const KEPT_MAX: usize = 2;
/// Files of chunks that a snapshot may use; beyond it the emptiest are given up until half of them are left.
const FILES_MAX: usize = 32;
/// Bytes of chunks that are gathered into one write.
const WRITE_BYTES: usize = 256 << 10;

/// Where a chunk lies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct ChunkAt {
    digest: Digest,
    /// Number of the file.
    file: u64,
    offset: u64,
    length: u32,
    checksum: u32,
}

impl ChunkAt {
    /// Whether all of it lies in its file, by the sizes of the files. An empty chunk lies nowhere.
    fn lies_in(&self, sizes: &BTreeMap<u64, u64>) -> bool {
        let end = self.offset.checked_add(u64::from(self.length));
        let size = sizes.get(&self.file).copied();
        self.length == 0 || end.is_some_and(|end| size.is_some_and(|size| end <= size))
    }
}

const CHUNK_AT_BYTES: usize = 32 + 8 + 8 + 4 + 4;

impl Wire for ChunkAt {
    fn encode(&self, out: &mut Vec<u8>) {
        self.digest.encode(out);
        self.file.encode(out);
        self.offset.encode(out);
        self.length.encode(out);
        self.checksum.encode(out);
    }
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self {
            digest: Digest::decode(reader)?,
            file: reader.u64()?,
            offset: reader.u64()?,
            length: reader.u32()?,
            checksum: reader.u32()?,
        })
    }
}

/// A durable snapshot.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StoredSnapshot {
    height: Height,
    header: Vec<u8>,
    chunks: Vec<ChunkAt>,
}

impl StoredSnapshot {
    /// The height whose state it is.
    #[must_use]
    pub fn height(&self) -> Height {
        self.height
    }

    /// What stands before the chunks.
    #[must_use]
    pub fn header(&self) -> &[u8] {
        &self.header
    }

    /// How many chunks there are.
    #[must_use]
    pub fn chunks(&self) -> usize {
        self.chunks.len()
    }
}

impl Wire for StoredSnapshot {
    fn encode(&self, out: &mut Vec<u8>) {
        self.height.encode(out);
        quorate_types::codec::put_bytes(out, &self.header);
        quorate_types::codec::put_list(out, &self.chunks);
    }
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self {
            height: Height::decode(reader)?,
            header: reader.bytes("header", usize::MAX)?.to_vec(),
            chunks: reader.list("chunks", usize::MAX, CHUNK_AT_BYTES, ChunkAt::decode)?,
        })
    }
}

/// A snapshot that is being written. Dropping it gives it up.
#[derive(Debug)]
pub struct SnapshotWriter {
    snapshot: StoredSnapshot,
    needed: BTreeSet<usize>,
    /// Number of the file of its new chunks.
    file: u64,
    /// Whether the file was begun.
    begun: bool,
    waiting: Vec<u8>,
    /// Bytes of the new chunks so far.
    bytes: u64,
    /// Whether bytes were appended since the last sync.
    dirty: bool,
    /// What comes next once all chunks are written.
    stage: Stage,
}

/// The steps of making a snapshot durable: each ends with one sync, and a power cut after any of them leaves
/// either the snapshot or something that is swept away.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    /// The bytes of the chunks.
    Chunks,
    /// The name of their file.
    ChunksName,
    /// The bytes of the manifest.
    Manifest,
    /// Its name, which makes the snapshot visible.
    ManifestName,
}

impl SnapshotWriter {
    /// The height whose state it is.
    #[must_use]
    pub fn height(&self) -> Height {
        self.snapshot.height
    }

    /// The indexes of the chunks that must still be written.
    #[must_use]
    pub fn needed(&self) -> &BTreeSet<usize> {
        &self.needed
    }

    /// Bytes of chunks written so far.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

/// The snapshots of a disk.
#[derive(Debug, Default)]
pub(crate) struct Snapshots {
    /// Heights of the snapshots that are kept, in order.
    heights: Vec<Height>,
    /// Bytes of all files.
    bytes: u64,
}

fn manifest_name(height: Height) -> String {
    format!("snapshot-{:020}", height.0)
}

fn chunks_name(file: u64) -> String {
    format!("chunks-{file:020}")
}

fn number_of(name: &str, prefix: &str) -> Option<u64> {
    name.strip_prefix(prefix)?.parse().ok()
}

fn not_so(height: Height, why: &'static str) -> Fault {
    Fault::Snapshot { height, why }
}

impl Snapshots {
    /// Looks what is there.
    pub(crate) fn find<D: Disk>(disk: &D) -> Result<Self, Fault> {
        let mut found = Self::default();
        for (name, bytes) in disk.blobs()? {
            found.bytes = found.bytes.saturating_add(bytes);
            found.heights.extend(number_of(&name, "snapshot-").map(Height));
        }
        found.heights.sort_unstable();
        Ok(found)
    }

    /// Bytes of all files.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Heights of the snapshots, in order.
    pub(crate) fn heights(&self) -> &[Height] {
        &self.heights
    }

    /// Takes a snapshot for one that is not there; its manifest goes with the next commit.
    pub(crate) fn distrust(&mut self, height: Height) {
        self.heights.retain(|kept| *kept != height);
    }

    /// Reads a manifest.
    pub(crate) fn read<D: Disk>(&self, disk: &D, height: Height) -> Result<StoredSnapshot, Fault> {
        let name = manifest_name(height);
        let damaged = |why: &str| Fault::DamagedSnapshot { name: name.clone(), why: why.to_owned() };
        let files = disk.blobs()?;
        let size = files.iter().find(|(found, _)| *found == name).map(|(_, size)| *size);
        let size = size.ok_or_else(|| damaged("it is gone"))?;
        let mut bytes = vec![0; usize::try_from(size).unwrap_or(usize::MAX)];
        disk.blob_read(&name, 0, &mut bytes)?;
        let mut reader = Reader::new(&bytes);
        let checksum = reader.u32().map_err(|_| damaged("it is empty"))?;
        if checksum != crc32c::crc32c(reader.rest()) {
            return Err(damaged("its checksum does not hold"));
        }
        let snapshot = StoredSnapshot::from_bytes(reader.rest());
        let snapshot = snapshot.map_err(|_| damaged("it cannot be decoded; another version wrote it"))?;
        if snapshot.height != height {
            return Err(damaged("it is of another height"));
        }
        let sizes: BTreeMap<u64, u64> =
            files.iter().filter_map(|(name, size)| Some((number_of(name, "chunks-")?, *size))).collect();
        let outside = snapshot.chunks.iter().position(|chunk| !chunk.lies_in(&sizes));
        // Before anybody makes room for a chunk: a length is believed only as far as there are bytes.
        match outside {
            None => Ok(snapshot),
            Some(index) => Err(damaged(&format!("chunk {index} does not lie inside of its file"))),
        }
    }

    /// Reads a chunk and checks it.
    pub(crate) fn chunk<D: Disk>(
        &self,
        disk: &D,
        snapshot: &StoredSnapshot,
        index: usize,
    ) -> Result<Vec<u8>, Fault> {
        let at = snapshot.chunks.get(index);
        let at = at.ok_or_else(|| not_so(snapshot.height, "a chunk was asked for that it does not have"))?;
        let name = chunks_name(at.file);
        let mut bytes = vec![0; to_usize(at.length)];
        let read = disk.blob_read(&name, at.offset, &mut bytes);
        if read.is_ok() && crc32c::crc32c(&bytes) == at.checksum {
            return Ok(bytes);
        }
        let why = match read {
            Ok(()) => format!("the checksum of chunk {index} does not hold"),
            Err(fault) => format!("chunk {index} cannot be read: {fault}"),
        };
        Err(Fault::DamagedSnapshot { name, why })
    }

    /// Begins a snapshot. Equal digests mean equal chunks.
    pub(crate) fn begin<D: Disk>(
        &mut self,
        disk: &mut D,
        height: Height,
        header: Vec<u8>,
        digests: &[Digest],
    ) -> Result<SnapshotWriter, Fault> {
        if self.heights.last().is_some_and(|newest| height <= *newest) {
            return Err(not_so(height, "a newer one is durable already"));
        }
        // What an attempt has left that was cut off goes now, or many attempts would fill the disk.
        self.sweep(disk)?;
        let before = match self.heights.last() {
            Some(newest) => self.read(disk, *newest)?.chunks,
            None => Vec::new(),
        };
        let files = disk.blobs()?;
        let number = |(name, _): &(String, u64)| number_of(name, "chunks-");
        let file = files.iter().filter_map(number).max().map_or(1, |last| last.saturating_add(1));
        let known: BTreeMap<Digest, ChunkAt> =
            before.into_iter().map(|chunk| (chunk.digest, chunk)).collect();
        let given_up = files_given_up(&files, digests.iter().filter_map(|digest| known.get(digest)));
        let mut needed = BTreeSet::new();
        let chunk = |(index, digest): (usize, &Digest)| match known.get(digest) {
            Some(chunk) if !given_up.contains(&chunk.file) => *chunk,
            _ => {
                needed.insert(index);
                ChunkAt { digest: *digest, file, offset: 0, length: 0, checksum: 0 }
            }
        };
        let chunks = digests.iter().enumerate().map(chunk).collect();
        Ok(SnapshotWriter {
            snapshot: StoredSnapshot { height, header, chunks },
            needed,
            file,
            begun: false,
            waiting: Vec::new(),
            bytes: 0,
            dirty: false,
            stage: Stage::Chunks,
        })
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
            return Err(not_so(height, "a chunk was written that is not needed"));
        };
        if u32::try_from(chunk.len()).is_err() {
            return Err(not_so(height, "a chunk has more than 4 GiB"));
        }
        at.offset = writer.bytes;
        at.length = to_u32(chunk.len());
        at.checksum = crc32c::crc32c(chunk);
        writer.bytes = writer.bytes.saturating_add(to_u64(chunk.len()));
        writer.waiting.extend_from_slice(chunk);
        if writer.waiting.len() >= WRITE_BYTES {
            flush(disk, writer)?;
        }
        Ok(())
    }

    /// Makes durable what was written so far, with one sync, so that none of them takes long.
    pub(crate) fn sync<D: Disk>(disk: &mut D, writer: &mut SnapshotWriter) -> Result<(), Fault> {
        flush(disk, writer)?;
        if writer.dirty {
            disk.blob_sync()?;
            writer.dirty = false;
        }
        Ok(())
    }

    /// One step, with one sync, of making the snapshot durable and visible. True after the last one, which also
    /// lets go of what the snapshot replaces.
    pub(crate) fn commit<D: Disk>(
        &mut self,
        disk: &mut D,
        writer: &mut SnapshotWriter,
    ) -> Result<bool, Fault> {
        let height = writer.snapshot.height;
        if !writer.needed.is_empty() {
            return Err(not_so(height, "chunks are missing"));
        }
        if self.heights.last().is_some_and(|newest| height <= *newest) {
            return Err(not_so(height, "a newer one is durable already"));
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
                self.sweep(disk)?;
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Deletes the manifests that are not kept, and then the files that no manifest names.
    fn sweep<D: Disk>(&mut self, disk: &mut D) -> Result<(), Fault> {
        let surplus = self.heights.len().saturating_sub(KEPT_MAX);
        self.heights.drain(..surplus);
        for (name, _) in disk.blobs()? {
            if number_of(&name, "snapshot-").is_some_and(|height| !self.heights.contains(&Height(height))) {
                disk.blob_delete(&name)?;
            }
        }
        let mut used = BTreeSet::new();
        for height in &self.heights {
            // The older one may have been damaged since: its files go with it, the newest needs none of them.
            let older = Some(height) != self.heights.last();
            match self.read(disk, *height) {
                Ok(snapshot) => used.extend(snapshot.chunks.iter().map(|chunk| chunk.file)),
                Err(Fault::DamagedSnapshot { .. }) if older => {}
                Err(fault) => return Err(fault),
            }
        }
        self.bytes = 0;
        for (name, bytes) in disk.blobs()? {
            if number_of(&name, "chunks-").is_some_and(|file| !used.contains(&file)) {
                disk.blob_delete(&name)?;
            } else {
                self.bytes = self.bytes.saturating_add(bytes);
            }
        }
        Ok(())
    }
}

fn flush<D: Disk>(disk: &mut D, writer: &mut SnapshotWriter) -> Result<(), Fault> {
    if writer.waiting.is_empty() && (writer.begun || writer.bytes == 0) {
        // An empty chunk lies nowhere: a file is needed only for bytes.
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

/// Files whose chunks are written again although they did not change: those of which less than half would be in
/// use, and the emptiest of too many.
fn files_given_up<'a>(files: &[(String, u64)], reused: impl Iterator<Item = &'a ChunkAt>) -> BTreeSet<u64> {
    let mut live: BTreeMap<u64, BTreeMap<u64, u64>> = BTreeMap::new();
    for chunk in reused {
        let offsets = live.entry(chunk.file).or_default();
        offsets.insert(chunk.offset, u64::from(chunk.length));
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
