//! Checks that the log of a folder is the newest log of its replica.
//!
//! A replica must not take part with a log that lacks some of its promises. Such a log was emptied, or replaced by an
//! older copy. Such a log itself shows nothing of that, so two more files do:
//!
//! * `LIVES` has the number of the last incarnation. A log with a smaller number was emptied or replaced alone.
//! * `REFUSED` has the reason why the replica takes part no more. Peers that remember more than the log are another
//!   way to detect an old log. The file keeps their finding, because restarted peers forget it.

use super::{FolderError, FolderGuard, write_atomically};
use std::fs;
use std::io::{self, ErrorKind, Read as _};

const LIVES_FILE: &str = "LIVES";
const REFUSED_FILE: &str = "REFUSED";
/// The largest number of bytes that are read of either file.
const BYTES_MAX: u64 = 4096;

impl FolderGuard {
    /// Records the incarnation that the log counts. Returns the reason if the replica must not take part. The caller
    /// calls this function when the incarnation is durable in the log and no message was sent.
    ///
    /// # Errors
    /// Fails with [`FolderError::Io`], also when `LIVES` has no number.
    pub fn record_incarnation(&self, incarnation: u64) -> Result<Option<String>, FolderError> {
        let why = self.exclusion(incarnation)?;
        match &why {
            Some(why) => self.refuse(why)?,
            None => self.write(LIVES_FILE, &incarnation.to_string())?,
        }
        Ok(why)
    }

    /// Returns the reason why a replica whose log counts this incarnation must not take part, and records nothing.
    ///
    /// # Errors
    /// Fails with [`FolderError::Io`], also when `LIVES` has no number.
    pub fn exclusion(&self, incarnation: u64) -> Result<Option<String>, FolderError> {
        if let Some(why) = self.read(REFUSED_FILE)? {
            return Ok(Some(why.trim().to_owned()));
        }
        let last = match self.read(LIVES_FILE)? {
            None => 0,
            Some(text) => {
                let no_number = |_| io::Error::new(ErrorKind::InvalidData, "LIVES has no number");
                text.trim().parse().map_err(no_number).map_err(|error| self.io(error))?
            }
        };
        Ok((incarnation <= last).then(|| {
            format!(
                "the log is older than the folder: it counts {incarnation} openings, but the file {LIVES_FILE} counts {last}; the log \
                was emptied, or an older one was put in its place"
            )
        }))
    }

    /// Stores, for all later openings, the reason why this replica takes part no more.
    ///
    /// # Errors
    /// Fails with [`FolderError::Io`].
    pub fn refuse(&self, why: &str) -> Result<(), FolderError> {
        self.write(REFUSED_FILE, why)
    }

    fn write(&self, name: &str, text: &str) -> Result<(), FolderError> {
        write_atomically(&self.path, name, &format!("{text}\n")).map_err(|error| self.io(error))
    }

    fn read(&self, name: &str) -> Result<Option<String>, FolderError> {
        let mut text = String::new();
        match fs::File::open(self.path.join(name))
            .and_then(|file| file.take(BYTES_MAX).read_to_string(&mut text))
        {
            Ok(_) => Ok(Some(text)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(self.io(error)),
        }
    }

    fn io(&self, error: io::Error) -> FolderError {
        FolderError::Io { path: self.path.clone(), error }
    }
}
