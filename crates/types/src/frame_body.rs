//! Bodies of frames.

use crate::bundle::Bundle;
use bytes::Bytes;
use std::ops::Deref;

/// The body of a frame. A clone for each peer of a broadcast copies no byte.
#[derive(Clone, Debug)]
pub enum FrameBody {
    /// An encoded message.
    Bytes(Bytes),
    /// A bundle that the pool holds.
    Bundle(Bundle),
}

impl FrameBody {
    /// Returns the same bytes without their kind.
    #[must_use]
    pub fn to_bytes(&self) -> Bytes {
        match self {
            Self::Bytes(bytes) => bytes.clone(),
            Self::Bundle(bundle) => Bytes::from_owner(bundle.clone()),
        }
    }
}

impl Deref for FrameBody {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Bytes(bytes) => bytes,
            Self::Bundle(bundle) => bundle.sealed(),
        }
    }
}

impl From<Bytes> for FrameBody {
    fn from(bytes: Bytes) -> Self {
        Self::Bytes(bytes)
    }
}

impl From<Vec<u8>> for FrameBody {
    fn from(bytes: Vec<u8>) -> Self {
        Self::Bytes(bytes.into())
    }
}

impl From<Bundle> for FrameBody {
    fn from(bundle: Bundle) -> Self {
        Self::Bundle(bundle)
    }
}
