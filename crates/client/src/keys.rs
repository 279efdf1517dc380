//! Private keys and their files: a key file is for its owner alone.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "reads and writes key files, and takes randomness for new keys"
)]

use quorate_crypto::{Scheme, Secret, SigningKey};
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// A PEM file of an Ed25519 key is far smaller; a larger file holds something else.
const FILE_BYTES_MAX: u64 = 4_096;
/// The mode of a key file: readable and writable by the owner only.
const MODE: u32 = 0o600;
/// The rights of the group and of others.
const OTHERS: u32 = 0o077;

/// Reasons why a key file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// The file cannot be read or written.
    #[error("{}: {error}", .file.display())]
    Io {
        /// The file.
        file: PathBuf,
        /// The reason.
        error: io::Error,
    },
    /// Others than the owner can read the file.
    #[error("{file} can be read by others than its owner (mode {mode:04o}); run: chmod 600 {file}", file = .file.display())]
    Exposed {
        /// The file.
        file: PathBuf,
        /// Its mode.
        mode: u32,
    },
    /// The file holds no key.
    #[error("{}: {reason}; restore the key from where it was made", .file.display())]
    NotAKey {
        /// The file.
        file: PathBuf,
        /// The expected content.
        reason: String,
    },
    /// The machine gives no random bytes.
    #[error("no random bytes from the operating system: {0}")]
    Random(String),
}

/// Returns 32 random bytes.
///
/// # Errors
/// Fails when the operating system gives none.
pub fn random() -> Result<[u8; 32], KeyError> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).map_err(|error| KeyError::Random(error.to_string()))?;
    Ok(bytes)
}

/// Returns a random number.
///
/// # Errors
/// Fails when the operating system gives none.
pub fn random_u64() -> Result<u64, KeyError> {
    getrandom::u64().map_err(|error| KeyError::Random(error.to_string()))
}

/// Makes a new Ed25519 key.
///
/// # Errors
/// Fails when the operating system gives no random bytes.
pub fn generate() -> Result<SigningKey, KeyError> {
    random().map(|seed| SigningKey::from_seed(Scheme::Ed25519, seed))
}

/// Writes a key to a new file that only its owner may read.
///
/// # Errors
/// Fails when the file exists already or cannot be written.
pub fn write_private(file: &Path, key: &SigningKey) -> Result<(), KeyError> {
    let fail = |error| KeyError::Io { file: file.to_owned(), error };
    let pem = key.to_pkcs8_pem().ok_or_else(|| KeyError::NotAKey {
        file: file.to_owned(),
        reason: "a key of this kind has no file form".to_owned(),
    })?;
    let mut handle = OpenOptions::new().write(true).create_new(true).mode(MODE).open(file).map_err(fail)?;
    handle.write_all(pem.expose().as_bytes()).and_then(|()| handle.sync_all()).map_err(fail)
}

/// Reads a key from a file that only its owner may read.
///
/// # Errors
/// Fails when it cannot be read, could be read by others, or holds no key.
pub fn read_private(file: &Path) -> Result<SigningKey, KeyError> {
    let fail = |error| KeyError::Io { file: file.to_owned(), error };
    let handle = File::open(file).map_err(fail)?;
    // The mode is that of the open file, so that no other file can take its place in between.
    let mode = handle.metadata().map_err(fail)?.mode() & 0o7777;
    if mode & OTHERS != 0 {
        return Err(KeyError::Exposed { file: file.to_owned(), mode });
    }
    // The full capacity is reserved, so that growth leaves no copy of the secret behind.
    let mut text = String::with_capacity(usize::try_from(FILE_BYTES_MAX).unwrap_or_default());
    let read = handle.take(FILE_BYTES_MAX).read_to_string(&mut text);
    let text = Secret::new(text);
    read.map_err(fail)?;
    SigningKey::from_pkcs8_pem(text.expose())
        .map_err(|reason| KeyError::NotAKey { file: file.to_owned(), reason: reason.to_string() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn written_key_is_read_again() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.key");
        let key = generate().unwrap();
        write_private(&file, &key).unwrap();
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(read_private(&file).unwrap().public(), key.public());
        assert_ne!(generate().unwrap().public(), key.public());
        let again = write_private(&file, &key).unwrap_err().to_string();
        assert!(again.contains("exists"), "{again}");
    }

    #[test]
    fn exposed_and_foreign_files_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.key");
        write_private(&file, &generate().unwrap()).unwrap();
        for mode in [0o640, 0o604, 0o660, 0o620, 0o777] {
            fs::set_permissions(&file, Permissions::from_mode(mode)).unwrap();
            let error = read_private(&file).unwrap_err().to_string();
            assert!(error.contains("chmod 600") && error.contains(&format!("{mode:04o}")), "{error}");
        }
        for text in [
            "",
            "not a key",
            "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n",
            &"x".repeat(100_000),
        ] {
            fs::remove_file(&file).unwrap();
            fs::write(&file, text).unwrap();
            fs::set_permissions(&file, Permissions::from_mode(0o600)).unwrap();
            assert!(matches!(read_private(&file), Err(KeyError::NotAKey { .. })), "{text:.40}");
        }
        assert!(matches!(read_private(&folder.path().join("none")), Err(KeyError::Io { .. })));
    }
}
