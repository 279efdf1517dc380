//! What puppets say: what was heard, with something in it changed.

use crate::frame::{BUNDLE, PAYLOAD};
use quorate_consensus::{Auth, Entry, Message, Place};
use quorate_replica::{HostMessage, ReplicaStatus};
use quorate_types::codec::Wire as _;
use quorate_types::mutate::{mutate, nudge};
use quorate_types::rng::Rng;
use quorate_types::wire::frame;
use quorate_types::{BlockId, Height, Incarnation, Kind, Payload, Statement, Time, View};
use std::collections::{BTreeMap, VecDeque};

/// Words that are remembered of each kind at most: the newest, and a few for good.
const REMEMBERED_MAX: usize = 48;
/// Changes that are tried until one decodes.
const TRIES_MAX: usize = 12;

/// Whether frames of this type are messages, of protocol or host.
pub(super) fn is_message(frame_type: u8) -> bool {
    matches!(frame_type, frame::PROTOCOL | frame::HOST)
}

/// Something to say.
pub(super) struct Wrong {
    pub(super) kind: Kind,
    pub(super) frame_type: u8,
    /// The encoded message, without a signature.
    pub(super) bytes: Vec<u8>,
    /// What its sender has to sign.
    pub(super) statement: Option<Statement>,
}

/// A message as it was read.
struct Meaning {
    kind: Kind,
    /// Without a signature.
    bytes: Vec<u8>,
    statement: Option<Statement>,
    place: Place,
    /// Whether it hands on what others have signed.
    is_relay: bool,
}

/// See the module.
pub(super) struct Words {
    entry: Entry,
    rng: Rng,
    heard: BTreeMap<(u8, Kind), VecDeque<Vec<u8>>>,
}

impl Words {
    pub(super) fn new(entry: Entry, rng: Rng) -> Self {
        let mut words = Self { entry, rng, heard: BTreeMap::new() };
        // What hosts ask each other in rare cases only; the rest is heard soon enough.
        let id = BlockId::null(Height(1));
        for message in [
            HostMessage::AskProof,
            HostMessage::AskDecided(Height(1)),
            HostMessage::Decided(Height(1), vec![id]),
            HostMessage::AskBlock { id, height: Height(1), above: Height::ZERO },
            HostMessage::NoBlock(id),
            HostMessage::Probe { incarnation: Incarnation(1), number: 0 },
            HostMessage::ProbeAnswer { incarnation: Incarnation(1), number: 0, oldest_ns: 0, at: Time::ZERO },
        ] {
            words.hear(frame::HOST, message.kind(), &message.to_bytes());
        }
        words
    }

    /// A frame as it travelled.
    pub(super) fn hear(&mut self, frame_type: u8, kind: Kind, body: &[u8]) {
        let without = body.split_last_chunk::<64>().map(|(message, _)| message);
        let read = |bytes| self.read(frame_type, bytes);
        // As the intake does: whether a signature stands behind it, the message itself says.
        let meaning = read(body).filter(|meaning| meaning.statement.is_none());
        let Some(meaning) = meaning.or_else(|| without.and_then(read)) else { return };
        let heard = self.heard.entry((frame_type, kind)).or_default();
        if heard.len() >= REMEMBERED_MAX {
            // Half of the places are for the newest: what is rare must not be forgotten.
            heard.remove(REMEMBERED_MAX / 2);
        }
        heard.push_back(meaning.bytes);
    }

    fn read(&self, frame_type: u8, bytes: &[u8]) -> Option<Meaning> {
        let anywhere = Place::ANYWHERE;
        let is_relay = false;
        let of = |kind, statement, place| Meaning { kind, bytes: bytes.to_vec(), statement, place, is_relay };
        match frame_type {
            frame::PROTOCOL => {
                let message = self.entry.decode_message(bytes).ok()?;
                let message: &dyn Message = message.as_ref();
                let is_relay = matches!(message.auth(), Auth::Relay);
                let meaning = of(message.kind(), signed(message.auth()), message.place());
                Some(Meaning { is_relay, ..meaning })
            }
            frame::HOST => {
                let message = HostMessage::from_bytes(bytes).ok()?;
                Some(of(message.kind(), signed(message.auth()), anywhere))
            }
            // What makes a bundle valid is its client's signature, which nobody else has: only its bytes change.
            frame::BUNDLE => Some(of(BUNDLE, None, anywhere)),
            frame::PAYLOAD => Payload::from_bytes(bytes).ok().map(|_| of(PAYLOAD, None, anywhere)),
            _ => None,
        }
    }

    /// Something that decodes, made for a replica that stands here.
    pub(super) fn make(&mut self, status: &ReplicaStatus) -> Option<Wrong> {
        // Most of it is the protocol's: its handlers are its own, and those of hosts are everybody's.
        let wanted: &[u8] = match self.rng.below(100) {
            0..8 => &[frame::BUNDLE, frame::PAYLOAD],
            8..30 => &[frame::HOST],
            _ => &[frame::PROTOCOL],
        };
        let kinds: Vec<(u8, Kind)> =
            self.heard.keys().filter(|(frame_type, _)| wanted.contains(frame_type)).copied().collect();
        let (frame_type, kind) = self.rng.pick(&kinds).copied()?;
        let base = self.some(frame_type, kind)?;
        let other = self.some(frame_type, kind)?;
        let Meaning { place, is_relay, .. } = self.read(frame_type, &base)?;
        for _ in 0..TRIES_MAX {
            let mut bytes = base.clone();
            // Whatever is changed in what others have signed no signature fits, and no handler hears of it.
            if is_relay && self.rng.chance(500_000) {
                return Some(Wrong { kind, frame_type, bytes, statement: None });
            }
            if self.rng.chance(500_000) {
                self.move_to(&mut bytes, place, status);
            }
            match self.rng.below(10) {
                0..3 => {}
                3..8 => nudge(&mut self.rng, &mut bytes, &other),
                _ => mutate(&mut self.rng, &mut bytes, &other),
            }
            if let Some(meaning) = self.read(frame_type, &bytes) {
                let Meaning { kind, bytes, statement, .. } = meaning;
                return Some(Wrong { kind, frame_type, bytes, statement });
            }
        }
        None
    }

    /// A word of this kind: often the newest.
    fn some(&mut self, frame_type: u8, kind: Kind) -> Option<Vec<u8>> {
        let heard = self.heard.get(&(frame_type, kind))?;
        let at = if self.rng.chance(300_000) {
            heard.len().saturating_sub(1)
        } else {
            self.rng.index(heard.len())
        };
        heard.get(at).cloned()
    }

    /// Puts another view and height where its own stand: mostly such as are worth a look here and now.
    fn move_to(&mut self, bytes: &mut [u8], place: Place, status: &ReplicaStatus) {
        let view = self.near(status.view.0, 2);
        let height = match self.rng.below(8) {
            0 => self.near(status.stable.0, 40),
            _ => self.near(status.executed.next().0, 3),
        };
        if place.height != Height::ZERO {
            self.replace(bytes, place.height.0, height);
        }
        if place.view != View::MAX {
            self.replace(bytes, place.view.0, view);
        }
    }

    /// A number at or a little above this one, rarely below it, at zero or at the other end.
    fn near(&mut self, number: u64, above: u64) -> u64 {
        match self.rng.below(24) {
            0 => 0,
            1 => u64::MAX.saturating_sub(self.rng.below(2)),
            2 | 3 => number.saturating_sub(self.rng.below(3)),
            4..12 => number,
            _ => number.saturating_add(self.rng.below(above.saturating_add(1))),
        }
    }

    /// Replaces a number at one of the places where it stands, or at all of them.
    fn replace(&mut self, bytes: &mut [u8], old: u64, new: u64) {
        let (old, new) = (old.to_le_bytes(), new.to_le_bytes());
        let places: Vec<usize> =
            bytes.windows(8).enumerate().filter(|(_, window)| *window == old).map(|(at, _)| at).collect();
        let first = places.first().copied();
        let chosen = if self.rng.chance(600_000) { first } else { self.rng.pick(&places).copied() };
        let at = chosen.unwrap_or(bytes.len());
        if let Some(place) = bytes.get_mut(at..at.saturating_add(8)) {
            place.copy_from_slice(&new);
        }
    }
}

/// What has to be signed.
fn signed(auth: Auth) -> Option<Statement> {
    match auth {
        Auth::Signed(statement) => Some(statement),
        Auth::Linked(_) | Auth::Relay => None,
    }
}
