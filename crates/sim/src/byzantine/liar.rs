//! A Byzantine host for frames of a real network: the same lies as in the simulator, over the time of a caller.

use super::{Behaviour, Forged, LiarContext, LiarTools};
use crate::arrival::TwinHalf;
use crate::byzantine_kind::Byzantine;
use crate::frame::Content;
use bytes::Bytes;
use quorate_consensus::Entry;
use quorate_crypto::{SigningKey, statement_preimage};
use quorate_storage::MemDisk;
use quorate_types::rng::Rng;
use quorate_types::{Committee, ReplicaId, Time};

/// The liar of a replica: it decides the frames that leave instead of those of its replica.
#[derive(Debug)]
pub struct Liar {
    behaviour: Behaviour,
    entry: Entry,
    committee: Committee,
    me: ReplicaId,
    key: SigningKey,
    /// The end of the current mood.
    until: Time,
    /// Frames that were changed, invented or withheld.
    lies: u64,
}

impl Liar {
    /// Hosts that need neither a second replica, nor another disk, nor a later time of sending.
    pub const HOSTS: [Byzantine; 7] = [
        Byzantine::Mute,
        Byzantine::Favourites,
        Byzantine::Replay,
        Byzantine::Mutate,
        Byzantine::CatchUp,
        Byzantine::Flood,
        Byzantine::Own,
    ];

    /// Creates the liar of replica `me`, which signs with `key`. The seed decides its moods and its lies.
    #[must_use]
    pub fn new(
        host: Byzantine,
        seed: u64,
        (entry, committee): (&Entry, &Committee),
        (me, key): (ReplicaId, SigningKey),
    ) -> Self {
        let behaviour = Behaviour::new(host, Rng::new(seed), entry.attacks);
        let (entry, committee) = (*entry, committee.clone());
        Self { behaviour, entry, committee, me, key, until: Time::ZERO, lies: 0 }
    }

    /// Returns the number of frames that were changed, invented or withheld.
    #[must_use]
    pub fn lies(&self) -> u64 {
        self.lies
    }

    /// Pushes the frames that leave for `to` instead of this one, each with its type. Frames of another time leave now.
    pub fn says(
        &mut self,
        now: Time,
        to: ReplicaId,
        (frame_type, body): (u8, &Bytes),
        out: &mut Vec<(u8, Bytes)>,
    ) {
        if now >= self.until {
            self.until = now.plus(self.behaviour.spans().0);
            let context = LiarContext { places: self.committee.n(), patience_ns: 0 };
            // Its disk stays as it is.
            let _ = self.behaviour.change(context, || MemDisk::new(0, 0));
        }
        let kind = Content::of(&self.entry, frame_type, body).kind;
        if !self.behaviour.mood.allows(TwinHalf::First, kind, to.index()) {
            self.lies = self.lies.saturating_add(1);
            return;
        }
        let Self { behaviour, entry, committee, me, key, lies, .. } = self;
        let domain = committee.domain();
        let sign = |statement: &_| key.sign(&statement_preimage(&domain, statement));
        let tools = LiarTools { entry, committee, me: *me, sign: &sign };
        let mut frames = Vec::new();
        behaviour.forge(&tools, to, (frame_type, kind, body), &mut frames);
        for Forged { frame_type, body, fault, .. } in frames {
            *lies = lies.saturating_add(u64::from(fault.is_some()));
            out.push((frame_type, body));
        }
    }

    /// Shows a frame of another replica to the liar.
    pub fn hears(&mut self, frame_type: u8, body: &[u8]) {
        self.behaviour.hear(&self.entry, frame_type, body);
    }
}
