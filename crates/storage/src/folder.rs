//! Data folders, and the replica that each belongs to.
//!
//! [`format()`] makes a data folder, whose file `FORMAT` identifies its replica. A node opens the folder with
//! [`open`], which refuses every other folder. The guard locks the folder until it is dropped.
//!
//! ```text
//! # The data of one Quorate replica. Do not edit.
//! format = 2
//! cluster = "1b3f…"
//! replica = 2
//! protocol = "pbft"
//! salt = "90c2…"
//! ```
//!
//! The folder of a replica that has lost its disk has one more line, `amnesiac_from`, with the number from which its
//! openings count.
//!
//! The folder also has the file `LIVES`, and perhaps `REFUSED`; see [`FolderGuard::record_incarnation`].

mod incarnations;

use quorate_types::digest::{from_hex, hex};
use quorate_types::{ClusterId, Digest, ProtocolId, ReplicaId};
use std::fs::{self, File, TryLockError};
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

/// The format of data folders that this version writes and reads.
pub const FORMAT_VERSION: u32 = 2;
/// The name of the file with the log's segments.
pub(crate) const LOG_FILE: &str = "log";
const FORMAT_FILE: &str = "FORMAT";
const FORMAT_BYTES_MAX: u64 = 4096;
/// The field of `FORMAT` that a replica without memory has.
const AMNESIAC_FROM: &str = "amnesiac_from";

/// The replica that a folder belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Identity {
    /// The id of the cluster.
    pub cluster: ClusterId,
    /// The id of the replica.
    pub replica: ReplicaId,
    /// The protocol that the cluster runs.
    pub protocol: ProtocolId,
}

/// The reason why a folder cannot be used. Each text is one line that says what to do.
#[derive(Debug, thiserror::Error)]
pub enum FolderError {
    /// The folder is not formatted.
    #[error(
        "{0} is not a formatted data folder: check data_dir. `quorate testnet` makes the folder of each replica once. If the \
         folder is lost, start the node with --rejoin: it begins with an empty folder and counts as one of the f that may fail \
         until it is back"
    )]
    NotFormatted(PathBuf),
    /// The folder to be formatted is formatted already.
    #[error("{0} is formatted already: start the node with it, or choose another folder")]
    AlreadyFormatted(PathBuf),
    /// A replica that has its disk must not begin anew.
    #[error("{0}: {REJOIN_ADVICE}")]
    HasPromises(PathBuf),
    /// The folder to be formatted has other data.
    #[error("{0} is not empty: choose an empty folder")]
    NotEmpty(PathBuf),
    /// The folder belongs to another cluster.
    #[error("{path} belongs to cluster {found}, not to {expected}: check data_dir and the cluster file")]
    OtherCluster {
        /// The folder.
        path: PathBuf,
        /// The owner of the folder.
        found: ClusterId,
        /// The expected owner.
        expected: ClusterId,
    },
    /// The folder belongs to another replica.
    #[error("{path} belongs to replica {found}, not to {expected}: check id and data_dir")]
    OtherReplica {
        /// The folder.
        path: PathBuf,
        /// The owner of the folder.
        found: ReplicaId,
        /// The expected owner.
        expected: ReplicaId,
    },
    /// Another protocol has written the folder.
    #[error("{path} was written by protocol {found}, not by {expected}: check the cluster file")]
    OtherProtocol {
        /// The folder.
        path: PathBuf,
        /// The protocol that has written the folder.
        found: ProtocolId,
        /// The expected owner.
        expected: ProtocolId,
    },
    /// Another process uses the folder.
    #[error("{0} is in use by another process: stop that process first")]
    InUse(PathBuf),
    /// The folder has a format that this version does not know.
    #[error(
        "{path} has format {found}, but this version reads {FORMAT_VERSION}: use the version that wrote it"
    )]
    UnknownVersion {
        /// The folder.
        path: PathBuf,
        /// The format of the folder.
        found: u32,
    },
    /// The folder's `FORMAT` file is damaged.
    #[error(
        "{path}/FORMAT is damaged ({why}). The node has changed nothing. Replace this file, and no other, by its copy from any \
         backup of this folder; the file never changes"
    )]
    Malformed {
        /// The folder.
        path: PathBuf,
        /// The reason.
        why: &'static str,
    },
    /// The operating system reports an error.
    #[error("{path}: {error}: check that the folder exists and may be read and written")]
    Io {
        /// The folder.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
}

/// The replica has data where an empty folder is needed to begin anew.
const REJOIN_ADVICE: &str = "it is formatted already, and has the promises of this replica: start the node without --rejoin. Where \
    its disk is damaged, or the node takes no part because its log is too old, move the folder away first and keep it for inspection";

/// A folder that this process has locked. Dropping the guard, or the end of the process, unlocks it.
#[derive(Debug)]
pub struct FolderGuard {
    path: PathBuf,
    salt: u64,
    amnesiac_from: Option<u64>,
    /// The file with the lock.
    _file: File,
}

impl FolderGuard {
    /// Returns the folder.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns a number above that of each earlier opening, if the replica has begun anew after the loss of its disk; see
    /// [`format_amnesiac`]. `None` for any other replica.
    #[must_use]
    pub fn amnesiac_from(&self) -> Option<u64> {
        self.amnesiac_from
    }

    /// Returns the salt of the log; see [`crate::Disk::salt`].
    #[must_use]
    pub fn salt(&self) -> u64 {
        self.salt
    }
}

/// Makes `path` the data folder of a replica. `salt` is random, and no one else needs to know it. The folder may
/// exist and have other files (keys, settings), but no data.
///
/// # Errors
/// Fails with [`FolderError::AlreadyFormatted`], with [`FolderError::NotEmpty`] for a folder with a log, or with
/// [`FolderError::Io`].
pub fn format(path: &Path, identity: &Identity, salt: u64) -> Result<(), FolderError> {
    format_as(path, identity, salt, None)
}

/// Makes `path` the data folder of a replica that has lost its disk. `from` is above the number of each earlier opening,
/// such as the time in milliseconds. Returns false, and changes nothing, if the folder was made in this way before.
///
/// # Errors
/// Fails with [`FolderError::HasPromises`] for the folder of a replica that has not lost its disk, and otherwise in the cases
/// of [`format()`].
pub fn format_amnesiac(path: &Path, identity: &Identity, salt: u64, from: u64) -> Result<bool, FolderError> {
    match format_as(path, identity, salt, Some(from)) {
        Ok(()) => Ok(true),
        Err(FolderError::AlreadyFormatted(_)) => match open(path, identity)?.amnesiac_from() {
            Some(_) => Ok(false),
            None => Err(FolderError::HasPromises(path.to_owned())),
        },
        Err(error) => Err(error),
    }
}

fn format_as(path: &Path, identity: &Identity, salt: u64, from: Option<u64>) -> Result<(), FolderError> {
    let io = |error| FolderError::Io { path: path.to_owned(), error };
    fs::create_dir_all(path).map_err(io)?;
    if path.join(FORMAT_FILE).try_exists().map_err(io)? {
        return Err(FolderError::AlreadyFormatted(path.to_owned()));
    }
    // Only formatting makes the log, because opening must not take a deleted log for a new one.
    match File::create_new(path.join(LOG_FILE)) {
        Ok(log) => log.sync_all().map_err(io)?,
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            // An interrupted formatting leaves an empty log.
            if fs::metadata(path.join(LOG_FILE)).map_err(io)?.len() > 0 {
                return Err(FolderError::NotEmpty(path.to_owned()));
            }
        }
        Err(error) => return Err(io(error)),
    }
    write_atomically(path, FORMAT_FILE, &render(identity, salt, from)).map_err(io)
}

/// Checks that `path` is the data folder of this replica, and locks it.
///
/// # Errors
/// Fails with a variant for each way in which it is not; see [`FolderError`].
pub fn open(path: &Path, identity: &Identity) -> Result<FolderGuard, FolderError> {
    let io = |error| FolderError::Io { path: path.to_owned(), error };
    let file = open_format(path)?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Err(FolderError::InUse(path.to_owned())),
        Err(TryLockError::Error(error)) => return Err(io(error)),
    }
    let (salt, amnesiac_from) = check(path, &read_format(path, &file)?, identity)?;
    if !path.join(LOG_FILE).try_exists().map_err(io)? {
        return Err(malformed(path, "the log of the folder is gone"));
    }
    Ok(FolderGuard { path: path.to_owned(), salt, amnesiac_from, _file: file })
}

/// Checks that `path` is the data folder of this replica, for a reader of snapshots while the replica runs.
///
/// # Errors
/// As [`open`], without [`FolderError::InUse`].
pub fn identify(path: &Path, identity: &Identity) -> Result<(), FolderError> {
    check(path, &read_format(path, &open_format(path)?)?, identity).map(drop)
}

fn open_format(path: &Path) -> Result<File, FolderError> {
    File::open(path.join(FORMAT_FILE)).map_err(|error| match error.kind() {
        ErrorKind::NotFound => FolderError::NotFormatted(path.to_owned()),
        _ => FolderError::Io { path: path.to_owned(), error },
    })
}

fn read_format(path: &Path, file: &File) -> Result<String, FolderError> {
    let mut text = String::new();
    match file.take(FORMAT_BYTES_MAX).read_to_string(&mut text) {
        Ok(_) => Ok(text),
        Err(error) if error.kind() == ErrorKind::InvalidData => Err(malformed(path, "the file is not text")),
        Err(error) => Err(FolderError::Io { path: path.to_owned(), error }),
    }
}

fn malformed(path: &Path, why: &'static str) -> FolderError {
    FolderError::Malformed { path: path.to_owned(), why }
}

fn render(identity: &Identity, salt: u64, from: Option<u64>) -> String {
    let Identity { cluster, replica, protocol } = identity;
    let salt = hex(&salt.to_be_bytes());
    let from = from.map(|from| format!("{AMNESIAC_FROM} = {from}\n")).unwrap_or_default();
    format!(
        "# The data of one Quorate replica. Do not edit.\nformat = {FORMAT_VERSION}\ncluster = \"{cluster}\"\n\
         replica = {replica}\nprotocol = \"{protocol}\"\nsalt = \"{salt}\"\n{from}"
    )
}

/// Compares the file with the expected identity, and returns the salt and the number of [`FolderGuard::amnesiac_from`]. The version comes first, because another
/// version may have other fields.
fn check(path: &Path, text: &str, identity: &Identity) -> Result<(u64, Option<u64>), FolderError> {
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
    let from =
        field(AMNESIAC_FROM).map(|value| value.parse().map_err(|_| malformed(path, "no number of openings")));
    Ok((salt, from.transpose()?))
}

/// Writes a file of the folder atomically. After a power cut the folder has the whole old file or the whole new one.
fn write_atomically(folder: &Path, name: &str, text: &str) -> io::Result<()> {
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
