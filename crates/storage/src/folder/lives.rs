//! Whether the log of a folder is the newest that its replica has had.
//!
//! A replica must not take part with a log that knows less than the replica has said: emptied by hand, or put back from a
//! copy. Nothing in such a log tells, so two files beside it do:
//!
//! * `LIVES` holds the number of the last opening. A log that counts fewer was emptied or put back alone.
//! * `REFUSED` holds why the replica takes part no more. Peers that remember more than the log does are the other way to
//!   find out, and after their restart they remember nothing.

use super::{FolderError, FolderGuard, replace};
use std::fs;
use std::io::{self, ErrorKind, Read as _};

const LIVES_FILE: &str = "LIVES";
const REFUSED_FILE: &str = "REFUSED";
/// Bytes of either file that are read.
const BYTES_MAX: u64 = 4096;

impl FolderGuard {
    /// Notes that the replica was opened for the `life`-th time, as its log counts. Returns why it must not take part, if it
    /// must not. Called when the opening is durable in the log and nothing has been sent yet.
    ///
    /// # Errors
    /// [`FolderError::Io`], also where `LIVES` holds no number.
    pub fn begin_life(&self, life: u64) -> Result<Option<String>, FolderError> {
        if let Some(why) = self.read(REFUSED_FILE)? {
            return Ok(Some(why.trim().to_owned()));
        }
        let lives = match self.read(LIVES_FILE)? {
            None => 0,
            Some(text) => {
                let no_number = |_| io::Error::new(ErrorKind::InvalidData, "LIVES holds no number");
                text.trim().parse().map_err(no_number).map_err(|error| self.io(error))?
            }
        };
        if life <= lives {
            let why = format!(
                "the log is older than the folder: it counts {life} openings, the file {LIVES_FILE} {lives}; it was emptied, or an \
                 old one was put in its place"
            );
            self.refuse(&why)?;
            return Ok(Some(why));
        }
        self.write(LIVES_FILE, &life.to_string())?;
        Ok(None)
    }

    /// Keeps for all later openings why this replica takes part no more.
    ///
    /// # Errors
    /// [`FolderError::Io`].
    pub fn refuse(&self, why: &str) -> Result<(), FolderError> {
        self.write(REFUSED_FILE, why)
    }

    fn write(&self, name: &str, text: &str) -> Result<(), FolderError> {
        replace(&self.path, name, &format!("{text}\n")).map_err(|error| self.io(error))
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
