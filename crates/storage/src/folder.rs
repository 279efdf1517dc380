//! Which folder belongs to which replica.
//!
//! A data folder is made by [`format()`] and says in its file `FORMAT` whose it is. A node opens it with [`open`],
//! which refuses every other folder, and holds it for itself until the guard is dropped.
//!
//! ```text
//! # The data of one Quorate replica. Do not edit.
//! format = 1
//! cluster = "1b3f…"
//! replica = 2
//! protocol = "pbft"
//! salt = "90c2…"
//! ```
//!
//! Beside it stand the file `LIVES`, and perhaps `REFUSED`: see [`FolderGuard::begin_life`].

mod lives;

use crate::file_disk::LOG_FILE;
use quorate_types::digest::{from_hex, hex};
use quorate_types::{ClusterId, Digest, ProtocolId, ReplicaId};
use std::fs::{self, File, TryLockError};
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

/// The format of data folders that this version writes and reads.
pub const FORMAT_VERSION: u32 = 1;
const FORMAT_FILE: &str = "FORMAT";
const FORMAT_BYTES_MAX: u64 = 4096;

/// Whose folder it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Identity {
    /// Which cluster.
    pub cluster: ClusterId,
    /// Which of its replicas.
    pub replica: ReplicaId,
    /// Which protocol.
    pub protocol: ProtocolId,
}

/// Why a folder cannot be used. Each text is one line that says what to do.
#[derive(Debug, thiserror::Error)]
pub enum FolderError {
    /// Nobody has formatted it.
    #[error(
        "{0} is not a formatted data folder: check data_dir. Each replica has one, made once, by `quorate testnet`; where it is \
         lost, this replica is one of the f that may fail, and stays stopped"
    )]
    NotFormatted(PathBuf),
    /// Formatting was asked for and it is formatted already.
    #[error("{0} is formatted already: start the node with it, or choose another folder")]
    AlreadyFormatted(PathBuf),
    /// Formatting was asked for and there is data of something else.
    #[error("{0} is not empty: choose an empty folder")]
    NotEmpty(PathBuf),
    /// It is another cluster's.
    #[error("{path} belongs to cluster {found}, not to {expected}: check data_dir and the cluster file")]
    OtherCluster {
        /// The folder.
        path: PathBuf,
        /// Whose it is.
        found: ClusterId,
        /// Who asked.
        expected: ClusterId,
    },
    /// It is another replica's.
    #[error("{path} belongs to replica {found}, not to {expected}: check id and data_dir")]
    OtherReplica {
        /// The folder.
        path: PathBuf,
        /// Whose it is.
        found: ReplicaId,
        /// Who asked.
        expected: ReplicaId,
    },
    /// It was written by another protocol.
    #[error("{path} was written by protocol {found}, not by {expected}: check the cluster file")]
    OtherProtocol {
        /// The folder.
        path: PathBuf,
        /// Who wrote it.
        found: ProtocolId,
        /// Who asked.
        expected: ProtocolId,
    },
    /// Another process uses it.
    #[error("{0} is in use by another process: stop that one first")]
    InUse(PathBuf),
    /// It has a format that this version does not know.
    #[error("{path} has format {found}, this version reads {FORMAT_VERSION}: use the version that wrote it")]
    UnknownVersion {
        /// The folder.
        path: PathBuf,
        /// Its format.
        found: u32,
    },
    /// Its `FORMAT` file is not one.
    #[error(
        "{path}/FORMAT is damaged ({why}): nothing was changed. This file is never written again: put a copy of it from any \
         backup of this folder in its place, and nothing else"
    )]
    Malformed {
        /// The folder.
        path: PathBuf,
        /// What is wrong.
        why: &'static str,
    },
    /// The operating system says no.
    #[error("{path}: {error}: check that the folder exists and may be read and written")]
    Io {
        /// The folder.
        path: PathBuf,
        /// What the system said.
        error: io::Error,
    },
}

/// A folder that is held for this process. Dropping it, or dying, lets go of it.
#[derive(Debug)]
pub struct FolderGuard {
    path: PathBuf,
    salt: u64,
    /// Carries the lock.
    _file: File,
}

impl FolderGuard {
    /// The folder.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The salt of its log; see [`crate::Disk::salt`].
    #[must_use]
    pub fn salt(&self) -> u64 {
        self.salt
    }
}

/// Makes `path` the data folder of a replica. `salt` is random; nobody else needs to know it. The folder may
/// exist and hold other files (keys, settings), but no data.
///
/// # Errors
/// [`FolderError::AlreadyFormatted`], [`FolderError::NotEmpty`] when a log or snapshots lie there,
/// [`FolderError::Io`].
pub fn format(path: &Path, identity: &Identity, salt: u64) -> Result<(), FolderError> {
    let io = |error| FolderError::Io { path: path.to_owned(), error };
    fs::create_dir_all(path).map_err(io)?;
    if path.join(FORMAT_FILE).try_exists().map_err(io)? {
        return Err(FolderError::AlreadyFormatted(path.to_owned()));
    }
    // The log is made here and never at opening: a log that was deleted must not look like a new one.
    match File::create_new(path.join(LOG_FILE)) {
        Ok(log) => log.sync_all().map_err(io)?,
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            // An empty one is what formatting leaves that was cut off.
            if fs::metadata(path.join(LOG_FILE)).map_err(io)?.len() > 0 {
                return Err(FolderError::NotEmpty(path.to_owned()));
            }
        }
        Err(error) => return Err(io(error)),
    }
    replace(path, FORMAT_FILE, &render(identity, salt)).map_err(io)
}

/// Whether `path` is a formatted folder, of whomever.
#[must_use]
pub fn is_formatted(path: &Path) -> bool {
    path.join(FORMAT_FILE).is_file()
}

/// Checks that `path` is the data folder of this replica, and holds it.
///
/// # Errors
/// One for each way in which it is not; see [`FolderError`].
pub fn open(path: &Path, identity: &Identity) -> Result<FolderGuard, FolderError> {
    let io = |error| FolderError::Io { path: path.to_owned(), error };
    let file = match File::open(path.join(FORMAT_FILE)) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            return Err(FolderError::NotFormatted(path.to_owned()));
        }
        Err(error) => return Err(io(error)),
    };
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Err(FolderError::InUse(path.to_owned())),
        Err(TryLockError::Error(error)) => return Err(io(error)),
    }
    let mut text = String::new();
    let read = (&file).take(FORMAT_BYTES_MAX).read_to_string(&mut text);
    match read {
        Ok(_) => {}
        Err(error) if error.kind() == ErrorKind::InvalidData => {
            return Err(malformed(path, "it is not text"));
        }
        Err(error) => return Err(io(error)),
    }
    let salt = check(path, &text, identity)?;
    if !path.join(LOG_FILE).try_exists().map_err(io)? {
        return Err(malformed(path, "the log beside it is gone"));
    }
    Ok(FolderGuard { path: path.to_owned(), salt, _file: file })
}

fn malformed(path: &Path, why: &'static str) -> FolderError {
    FolderError::Malformed { path: path.to_owned(), why }
}

fn render(identity: &Identity, salt: u64) -> String {
    let Identity { cluster, replica, protocol } = identity;
    let salt = hex(&salt.to_be_bytes());
    format!(
        "# The data of one Quorate replica. Do not edit.\nformat = {FORMAT_VERSION}\ncluster = \"{cluster}\"\n\
         replica = {replica}\nprotocol = \"{protocol}\"\nsalt = \"{salt}\"\n"
    )
}

/// Compares what the file says with who asks, the version first: another one may say the rest differently.
fn check(path: &Path, text: &str, identity: &Identity) -> Result<u64, FolderError> {
    let field = |name: &str| {
        let values = text.lines().filter_map(|line| line.split_once(" = "));
        let value = values.filter(|(key, _)| *key == name).map(|(_, value)| value).next();
        value.map(|value| value.trim_matches('"'))
    };
    let found: Option<u32> = field("format").and_then(|value| value.parse().ok());
    let found = found.ok_or_else(|| malformed(path, "no format"))?;
    let owned = path.to_owned();
    if found != FORMAT_VERSION {
        return Err(FolderError::UnknownVersion { path: owned, found });
    }
    let bytes = field("cluster").and_then(from_hex).and_then(|bytes| <[u8; 32]>::try_from(bytes).ok());
    let cluster = bytes.map(|bytes| ClusterId(Digest(bytes)));
    let cluster = cluster.ok_or_else(|| malformed(path, "no cluster"))?;
    let replica: Option<u16> = field("replica").and_then(|value| value.parse().ok());
    let replica = ReplicaId(replica.ok_or_else(|| malformed(path, "no replica"))?);
    let protocol = field("protocol").and_then(ProtocolId::parse);
    let protocol = protocol.ok_or_else(|| malformed(path, "no protocol"))?;
    let bytes = field("salt").and_then(from_hex).and_then(|bytes| <[u8; 8]>::try_from(bytes).ok());
    let salt = bytes.map(u64::from_be_bytes).ok_or_else(|| malformed(path, "no salt"))?;
    if cluster != identity.cluster {
        return Err(FolderError::OtherCluster { path: owned, found: cluster, expected: identity.cluster });
    }
    if replica != identity.replica {
        return Err(FolderError::OtherReplica { path: owned, found: replica, expected: identity.replica });
    }
    if protocol != identity.protocol {
        return Err(FolderError::OtherProtocol { path: owned, found: protocol, expected: identity.protocol });
    }
    Ok(salt)
}

/// Writes a file of the folder so that it is always there as a whole: the old one or the new one, also after a power cut.
fn replace(folder: &Path, name: &str, text: &str) -> io::Result<()> {
    let unfinished = folder.join(format!("{name}.tmp"));
    let mut options = File::options();
    let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(&unfinished)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(&unfinished, folder.join(name))?;
    File::open(folder).and_then(|folder| folder.sync_all())
}

#[cfg(test)]
mod tests;
