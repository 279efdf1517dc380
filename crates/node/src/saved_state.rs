//! A state in a folder of its own: a backup, or a wrong state that is kept for inspection.
//!
//! ```text
//! DIR/manifest   genesis, proof of the checkpoint, header of the snapshot, ids of its chunks
//! DIR/chunks     the chunks, each once, in order
//! ```
//!
//! The manifest is the last file to get its name: with it the folder is complete. A backup can be checked without any node: its
//! proof has the signatures of a quorum of the replicas in its genesis, and covers header and chunk ids.

use crate::exit::Failure;
use crate::service::Service;
use quorate_app::Execution;
use quorate_consensus::{CheckpointProof, Claim, Claims};
use quorate_crypto::{CommitteeKeys, Scheme, statement_preimage};
use quorate_types::chunk::CHUNK_ID_BYTES;
use quorate_types::codec::{put_bytes, put_list};
use quorate_types::limits::SNAPSHOT_CHUNKS_MAX;
use quorate_types::{ChunkId, Digest, Genesis, Height, Ledger, Reader, Wire};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

const MANIFEST: &str = "manifest";
const CHUNKS: &str = "chunks";
/// The first bytes of a manifest, with the version of the format.
const MAGIC: &[u8] = b"quorate state 1\n";
/// The largest manifest: one of a proof by all replicas, and of all chunk ids.
const MANIFEST_BYTES_MAX: u64 = 16 << 20;

/// The description of a saved state.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Manifest {
    /// The cluster that the state comes from.
    pub(crate) genesis: Genesis,
    /// The proof that a quorum has signed the state; `None` for a wrong state.
    pub(crate) proof: Option<CheckpointProof>,
    /// The header of the snapshot.
    pub(crate) header: Vec<u8>,
    pub(crate) ids: Vec<ChunkId>,
}

impl Manifest {
    fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        put_bytes(&mut bytes, &self.genesis.to_bytes());
        put_bytes(&mut bytes, &self.proof.as_ref().map(Wire::to_bytes).unwrap_or_default());
        put_bytes(&mut bytes, &self.header);
        put_list(&mut bytes, &self.ids);
        bytes
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader::new(bytes.strip_prefix(MAGIC)?);
        let mut part = |what| reader.bytes(what, usize::MAX).ok();
        let (genesis, proof, header) = (part("genesis")?, part("proof")?, part("header")?);
        let ids = reader.list("chunk ids", SNAPSHOT_CHUNKS_MAX, CHUNK_ID_BYTES, ChunkId::decode).ok()?;
        reader.finish().ok()?;
        Some(Self {
            genesis: Genesis::from_bytes(genesis).ok()?,
            proof: if proof.is_empty() { None } else { Some(CheckpointProof::from_bytes(proof).ok()?) },
            header: header.to_vec(),
            ids,
        })
    }

    /// Returns the bytes of the chunks. Equal chunks count once.
    pub(crate) fn bytes(&self) -> u64 {
        let distinct: BTreeSet<&ChunkId> = self.ids.iter().collect();
        distinct.into_iter().map(|id| u64::from(id.length)).sum()
    }
}

fn failed(path: &Path) -> impl Fn(io::Error) -> Failure + '_ {
    move |error| Failure::run(format!("{}: {error}", path.display()))
}

/// Writes a state to a folder that does not exist or is empty. `chunk` returns the chunk of an index.
///
/// # Errors
/// Fails when the folder is not empty, a chunk cannot be read or has another id, or a file cannot be written. An incomplete
/// folder has no manifest.
pub(crate) fn write(
    dir: &Path,
    manifest: &Manifest,
    chunk: &mut dyn FnMut(usize) -> Result<Vec<u8>, Failure>,
) -> Result<(), Failure> {
    fs::create_dir_all(dir).map_err(failed(dir))?;
    if fs::read_dir(dir).map_err(failed(dir))?.next().is_some() {
        return Err(Failure::usage(format!("{} is not empty; choose another folder", dir.display())));
    }
    let path = dir.join(CHUNKS);
    let io = failed(&path);
    let mut file = BufWriter::with_capacity(1 << 20, File::create_new(&path).map_err(&io)?);
    let mut written = BTreeSet::new();
    for (index, id) in manifest.ids.iter().enumerate() {
        if !written.insert(*id) {
            continue;
        }
        let bytes = chunk(index)?;
        if ChunkId::of(&bytes) != *id {
            return Err(Failure::run(format!("chunk {index} of the state is damaged")));
        }
        file.write_all(&bytes).map_err(&io)?;
    }
    let file = file.into_inner().map_err(|error| io(error.into_error()))?;
    file.sync_all().map_err(&io)?;
    let (unfinished, path) = (dir.join("manifest.new"), dir.join(MANIFEST));
    let io = failed(&path);
    let mut file = File::create_new(&unfinished).map_err(&io)?;
    file.write_all(&manifest.to_bytes()).and_then(|()| file.sync_all()).map_err(&io)?;
    fs::rename(&unfinished, &path).map_err(&io)?;
    File::open(dir).and_then(|dir| dir.sync_all()).map_err(&io)
}

/// A complete folder with a state.
#[derive(Debug)]
pub(crate) struct SavedState {
    pub(crate) manifest: Manifest,
    dir: PathBuf,
    chunks: File,
    /// The place of each chunk.
    offsets: BTreeMap<ChunkId, u64>,
}

/// Whether a folder has a saved state.
pub(crate) fn is_saved_state(dir: &Path) -> bool {
    dir.join(MANIFEST).is_file()
}

impl SavedState {
    /// Opens a folder.
    ///
    /// # Errors
    /// Fails when the folder is incomplete, or another version has written it.
    pub(crate) fn open(dir: &Path) -> Result<Self, Failure> {
        let path = dir.join(MANIFEST);
        let wrong = |why: &str| Failure::usage(format!("{}: {why}", path.display()));
        let size = match fs::metadata(&path) {
            Ok(metadata) => metadata.len(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(wrong(
                    "the file is missing: the folder is no backup, or its backup was interrupted",
                ));
            }
            Err(error) => return Err(failed(&path)(error)),
        };
        let bytes =
            if size <= MANIFEST_BYTES_MAX { fs::read(&path).map_err(failed(&path))? } else { Vec::new() };
        let manifest = Manifest::read(&bytes).filter(|manifest| manifest.genesis.check().is_ok());
        let manifest = manifest
            .ok_or_else(|| wrong("the file is damaged, or another version of Quorate has written it"))?;
        let path = dir.join(CHUNKS);
        let chunks = File::open(&path).map_err(failed(&path))?;
        let (mut offsets, mut end) = (BTreeMap::new(), 0u64);
        for id in &manifest.ids {
            offsets.entry(*id).or_insert_with(|| {
                let at = end;
                end = end.saturating_add(u64::from(id.length));
                at
            });
        }
        let found = chunks.metadata().map_err(failed(&path))?.len();
        if found != end {
            let problem =
                format!("{}: expected {end} bytes, found {found}; the folder is damaged", path.display());
            return Err(Failure::run(problem));
        }
        Ok(Self { manifest, dir: dir.to_owned(), chunks, offsets })
    }

    /// Reads a chunk, and checks it.
    ///
    /// # Errors
    /// Fails when the chunk cannot be read or is damaged.
    pub(crate) fn chunk(&self, index: usize) -> Result<Vec<u8>, Failure> {
        let damaged =
            || Failure::run(format!("{}: chunk {index} is damaged", self.dir.join(CHUNKS).display()));
        let id = self.manifest.ids.get(index).ok_or_else(damaged)?;
        let at = self.offsets.get(id).ok_or_else(damaged)?;
        let mut bytes = vec![0; usize::try_from(id.length).map_err(Failure::run)?];
        self.chunks.read_exact_at(&mut bytes, *at).map_err(failed(&self.dir))?;
        if ChunkId::of(&bytes) == *id { Ok(bytes) } else { Err(damaged()) }
    }

    /// Returns the state, whose chunks agree with its header.
    ///
    /// # Errors
    /// Fails when the state belongs to another service, or is damaged.
    pub(crate) fn load(&self, service: Service) -> Result<Execution, Failure> {
        let wrong = |why: &dyn std::fmt::Display| Failure::usage(format!("{}: {why}", self.dir.display()));
        let mut execution =
            Execution::new(&self.manifest.genesis, service.open()).map_err(|error| wrong(&error))?;
        let mut problem = None;
        let mut chunks = (0..self.manifest.ids.len()).map_while(|index| match self.chunk(index) {
            Ok(chunk) => Some(chunk),
            Err(failure) => {
                problem = Some(failure);
                None
            }
        });
        let restored = execution.restore(&self.manifest.header, &mut chunks);
        drop(chunks);
        match (problem, restored) {
            (Some(failure), _) => Err(failure),
            (None, Err(error)) => Err(wrong(&error)),
            (None, Ok(_)) => Ok(execution),
        }
    }

    /// Returns the state of a backup. A quorum of the cluster in its genesis has signed exactly this state.
    ///
    /// # Errors
    /// Fails in the cases of [`SavedState::load`], and when the proof does not hold.
    pub(crate) fn verify(&self, service: Service) -> Result<(Execution, Verified), Failure> {
        let wrong = |why: &str| Failure::run(format!("{}: {why}", self.dir.display()));
        let proof = self.manifest.proof.as_ref();
        let proof =
            proof.ok_or_else(|| wrong("no quorum has signed this state: it is kept for inspection only"))?;
        let signers = check_proof(&self.manifest.genesis, proof).map_err(|why| wrong(&why))?;
        let mut execution = self.load(service)?;
        let (height, state) = (proof.checkpoint.height, proof.checkpoint.state);
        if (execution.height(), execution.digest()) != (height, state) {
            return Err(wrong("the state is not the one that the signatures are for"));
        }
        Ok((execution, Verified { height, state, signers }))
    }
}

/// A checkpoint whose signatures hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Verified {
    pub(crate) height: Height,
    pub(crate) state: Digest,
    /// The number of replicas that have signed the state.
    pub(crate) signers: usize,
}

/// Checks that a quorum of a cluster has signed a checkpoint. Returns the number of signers.
fn check_proof(genesis: &Genesis, proof: &CheckpointProof) -> Result<usize, String> {
    let committee = genesis.committee();
    let entry = quorate_protocols::find(genesis.protocol.as_str())
        .ok_or_else(|| format!("its protocol {} is not known", genesis.protocol))?;
    if proof.is_genesis() {
        return Err("its proof has no signatures".to_owned());
    }
    let mut claims = Claims::new(&committee, (entry.spec.checkpoint_quorum)(committee.n(), committee.f));
    claims.checkpoint(proof);
    let keys = CommitteeKeys::new(Scheme::Ed25519, &committee).map_err(|error| error.to_string())?;
    let claims = claims.finish()?;
    let [Claim::Certificate(certificate)] = claims.as_slice() else {
        return Err("its proof has no signatures".to_owned());
    };
    let preimage = statement_preimage(&committee.domain(), &certificate.statement);
    if keys.verify_aggregate(&certificate.signers, &preimage, &certificate.proof, &mut Ledger::default()) {
        Ok(certificate.signers.len())
    } else {
        Err("a signature of its checkpoint is wrong".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quorate_consensus::{Certificate, Checkpoint};
    use quorate_crypto::SigningKey;
    use quorate_types::{BodyLimits, ClientAuth, Member, PublicKey, ReplicaId};

    /// Among six, pbft with f = 1 needs a quorum of 4, optsync with f = 2 needs f + 1 = 3.
    #[test]
    fn proof_of_a_saved_state_has_the_signatures_that_its_protocol_needs() {
        for (protocol, f, needed) in [("pbft", 1, 4), ("optsync", 2, 3)] {
            let keys: Vec<_> = (0..6).map(|id| SigningKey::from_seed(Scheme::Ed25519, [id; 32])).collect();
            let genesis = genesis(protocol, f, &keys);
            let checkpoint = Checkpoint { height: Height(8), ..Checkpoint::GENESIS };
            let preimage = statement_preimage(&genesis.committee().domain(), &checkpoint.statement());
            let signed_by = |count: usize| {
                let signed = (0..).map(ReplicaId).zip(&keys[..count]);
                let votes: Vec<_> = signed.map(|(id, key)| (id, key.sign(&preimage))).collect();
                let certificate = Certificate::of(checkpoint.statement(), &votes);
                check_proof(&genesis, &CheckpointProof { checkpoint, certificate }).ok()
            };
            let expected = [2, 3, 4, 5, 6].map(|count| (count >= needed).then_some(count));
            assert_eq!([2, 3, 4, 5, 6].map(signed_by), expected, "{protocol}");
        }
    }

    fn genesis(protocol: &str, f: u16, keys: &[SigningKey]) -> Genesis {
        let members = keys.iter().map(|key| Member { sign: key.public(), link: key.public() });
        Genesis {
            protocol: quorate_protocols::find(protocol).unwrap().spec.name,
            f,
            members: members.collect(),
            client_auth: ClientAuth::Signature,
            bodies: BodyLimits::default(),
            client_window: 8,
            clients_max: 8,
            checkpoint_every: 4,
            window: 8,
            application: String::new(),
            admin: PublicKey([1; 32]),
            clients: Vec::new(),
            params: String::new(),
            salt: [0; 32],
            base: None,
        }
    }
}
