//! Messages that a Byzantine replica has sent, and the messages that it forges.

use bytes::Bytes;
use quorate_types::Kind;
use quorate_types::rng::Rng;
use quorate_types::wire::frame;
use std::collections::{BTreeMap, VecDeque};

/// Largest number of remembered frames of each kind.
const REMEMBERED_MAX: usize = 12;

/// Messages that a replica has sent, the newest of each kind last.
#[derive(Default, Debug)]
pub(crate) struct SentMessages(BTreeMap<(u8, Kind), VecDeque<Bytes>>);

impl SentMessages {
    pub(super) fn remember(&mut self, key: (u8, Kind), body: Bytes) {
        let known = self.0.entry(key).or_default();
        if known.len() >= REMEMBERED_MAX {
            known.pop_front();
        }
        known.push_back(body);
    }

    pub(super) fn of(&self, key: (u8, Kind)) -> Vec<&Bytes> {
        self.0.get(&key).into_iter().flatten().collect()
    }

    pub(super) fn any(&self, rng: &mut Rng) -> Option<(u8, Bytes)> {
        let keys: Vec<_> = self.0.keys().copied().collect();
        let key = *rng.pick(&keys)?;
        let all = self.of(key);
        Some((key.0, (*rng.pick(&all)?).clone()))
    }
}

/// The group of messages that a host forges.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ForgeAbout {
    /// Messages of the protocol.
    Votes,
    /// Decided blocks, checkpoints, blocks and bodies: everything that a lagging peer fetches.
    Tales,
    /// Replies to clients.
    Replies,
}

impl ForgeAbout {
    pub(super) fn covers(self, frame_type: u8) -> bool {
        match self {
            Self::Votes => frame_type == frame::PROTOCOL,
            Self::Tales => frame_type != frame::PROTOCOL,
            Self::Replies => false,
        }
    }
}
