//! The header of a snapshot of sessions and application.

use crate::snapshot::RestoreError;
use quorate_types::codec::put_bytes;
use quorate_types::{Digest, Height, Reader, Wire};

/// The format of the header.
const FORMAT: u16 = 2;

/// See the module.
pub(super) struct Header {
    /// Name and version of the application.
    pub(super) application: String,
    pub(super) height: Height,
    pub(super) time_ns: u64,
    /// The clock of the sessions.
    pub(super) clock: u64,
    /// The digest of the state.
    pub(super) state: Digest,
    /// The header of the application's own snapshot.
    pub(super) rest: Vec<u8>,
}

impl Header {
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        FORMAT.encode(&mut bytes);
        put_bytes(&mut bytes, self.application.as_bytes());
        self.height.encode(&mut bytes);
        self.time_ns.encode(&mut bytes);
        self.clock.encode(&mut bytes);
        self.state.encode(&mut bytes);
        bytes.extend_from_slice(&self.rest);
        bytes
    }

    pub(super) fn read(bytes: &[u8]) -> Result<Self, RestoreError> {
        let mut reader = Reader::new(bytes);
        let format = reader.u16()?;
        if format != FORMAT {
            return Err(RestoreError::WrongFormat(format));
        }
        Ok(Self {
            application: reader.text("application", 256)?.to_owned(),
            height: Height::decode(&mut reader)?,
            time_ns: reader.u64()?,
            clock: reader.u64()?,
            state: Digest::decode(&mut reader)?,
            rest: reader.take_rest().to_vec(),
        })
    }
}
