//! Messages of controlled replicas: recorded messages with a mutation.

use crate::frame::{BUNDLE, PAYLOAD};
use quorate_consensus::{Auth, CheckpointProof, Entry, Message, Place};
use quorate_replica::{HostMessage, ReplicaStatus};
use quorate_types::codec::Wire as _;
use quorate_types::mutate::{mutate, nudge};
use quorate_types::rng::Rng;
use quorate_types::wire::frame;
use quorate_types::{BlockId, Height, Incarnation, Kind, Payload, Statement, Time, View};
use std::collections::{BTreeMap, VecDeque};

/// Largest number of remembered messages of each kind: the newest, and some old ones for good.
const REMEMBERED_MAX: usize = 48;
/// Largest number of mutations that are tried until one decodes.
const TRIES_MAX: usize = 12;

/// Whether frames of this type are messages of protocol or host.
pub(super) fn is_message(frame_type: u8) -> bool {
    matches!(frame_type, frame::PROTOCOL | frame::HOST)
}

/// A mutated message.
pub(super) struct FuzzedMessage {
    pub(super) kind: Kind,
    pub(super) frame_type: u8,
    /// The encoded message, without a signature.
    pub(super) bytes: Vec<u8>,
    /// The statement that the sender has to sign.
    pub(super) statement: Option<Statement>,
}

/// A decoded message.
struct ParsedMessage {
    kind: Kind,
    /// The encoded message, without a signature.
    bytes: Vec<u8>,
    statement: Option<Statement>,
    place: Place,
    /// Whether the message relays signatures of others.
    is_relay: bool,
}

/// A pool of recorded messages.
pub(super) struct MessagePool {
    entry: Entry,
    rng: Rng,
    recorded: BTreeMap<(u8, Kind), VecDeque<Vec<u8>>>,
}

impl MessagePool {
    pub(super) fn new(entry: Entry, rng: Rng) -> Self {
        let mut pool = Self { entry, rng, recorded: BTreeMap::new() };
        // Hosts exchange these messages in rare cases only. The run records the others soon enough.
        let id = BlockId::null(Height(1));
        for message in [
            HostMessage::AskProof,
            HostMessage::AskDecided(Height(1)),
            HostMessage::Decided(Height(1), vec![id]),
            HostMessage::AskBlock { id, height: Height(1), above: Height::ZERO },
            HostMessage::NoBlock(id),
            HostMessage::Probe { incarnation: Incarnation(1), number: 0 },
            HostMessage::ProbeAnswer { incarnation: Incarnation(1), number: 0, oldest_ns: 0, at: Time::ZERO },
            HostMessage::AskShow {
                incarnation: Incarnation(1),
                round: 1,
                stable: Height::ZERO,
                view: View::ZERO,
            },
            HostMessage::ShownProof(Box::new(CheckpointProof::genesis())),
            HostMessage::Shown {
                incarnation: Incarnation(1),
                round: 1,
                view: View::ZERO,
                stable: Height::ZERO,
            },
        ] {
            pool.record(frame::HOST, message.kind(), &message.to_bytes());
        }
        pool
    }

    /// Records a frame.
    pub(super) fn record(&mut self, frame_type: u8, kind: Kind, body: &[u8]) {
        let without = body.split_last_chunk::<64>().map(|(message, _)| message);
        let read = |bytes| self.read(frame_type, bytes);
        // As in the intake, the message itself shows whether a signature follows it.
        let parsed = read(body).filter(|parsed| parsed.statement.is_none());
        let Some(parsed) = parsed.or_else(|| without.and_then(read)) else { return };
        let recorded = self.recorded.entry((frame_type, kind)).or_default();
        if recorded.len() >= REMEMBERED_MAX {
            // Half of the places are for the newest messages, so that rare ones are kept.
            recorded.remove(REMEMBERED_MAX / 2);
        }
        recorded.push_back(parsed.bytes);
    }

    fn read(&self, frame_type: u8, bytes: &[u8]) -> Option<ParsedMessage> {
        let anywhere = Place::ANYWHERE;
        let is_relay = false;
        let of = |kind, statement, place| ParsedMessage {
            kind,
            bytes: bytes.to_vec(),
            statement,
            place,
            is_relay,
        };
        match frame_type {
            frame::PROTOCOL => {
                let message = self.entry.decode_message(bytes).ok()?;
                let message: &dyn Message = message.as_ref();
                let is_relay = matches!(message.auth(), Auth::Relay);
                let parsed = of(message.kind(), signed(message.auth()), message.place());
                Some(ParsedMessage { is_relay, ..parsed })
            }
            frame::HOST => {
                let message = HostMessage::from_bytes(bytes).ok()?;
                Some(of(message.kind(), signed(message.auth()), anywhere))
            }
            // Only its client's signature makes a bundle valid, and only the client can sign. So only its bytes
            // change.
            frame::BUNDLE => Some(of(BUNDLE, None, anywhere)),
            frame::PAYLOAD => Payload::from_bytes(bytes).ok().map(|_| of(PAYLOAD, None, anywhere)),
            _ => None,
        }
    }

    /// Makes a message that decodes, for a replica with this status.
    pub(super) fn make(&mut self, status: &ReplicaStatus) -> Option<FuzzedMessage> {
        // Most messages are the protocol's: its handlers are its own, and all protocols share those of hosts.
        let wanted: &[u8] = match self.rng.below(100) {
            0..8 => &[frame::BUNDLE, frame::PAYLOAD],
            8..30 => &[frame::HOST],
            _ => &[frame::PROTOCOL],
        };
        let kinds: Vec<(u8, Kind)> =
            self.recorded.keys().filter(|(frame_type, _)| wanted.contains(frame_type)).copied().collect();
        let (frame_type, kind) = self.rng.pick(&kinds).copied()?;
        let base = self.some(frame_type, kind)?;
        let other = self.some(frame_type, kind)?;
        let ParsedMessage { place, is_relay, .. } = self.read(frame_type, &base)?;
        for _ in 0..TRIES_MAX {
            let mut bytes = base.clone();
            // A change within relayed content would break its signature, and no handler would receive the message.
            if is_relay && self.rng.chance(500_000) {
                return Some(FuzzedMessage { kind, frame_type, bytes, statement: None });
            }
            if self.rng.chance(500_000) {
                self.move_to(&mut bytes, place, status);
            }
            match self.rng.below(10) {
                0..3 => {}
                3..8 => nudge(&mut self.rng, &mut bytes, &other),
                _ => mutate(&mut self.rng, &mut bytes, &other),
            }
            if let Some(parsed) = self.read(frame_type, &bytes) {
                let ParsedMessage { kind, bytes, statement, .. } = parsed;
                return Some(FuzzedMessage { kind, frame_type, bytes, statement });
            }
        }
        None
    }

    /// Returns a message of this kind, often the newest.
    fn some(&mut self, frame_type: u8, kind: Kind) -> Option<Vec<u8>> {
        let recorded = self.recorded.get(&(frame_type, kind))?;
        let at = if self.rng.chance(300_000) {
            recorded.len().saturating_sub(1)
        } else {
            self.rng.index(recorded.len())
        };
        recorded.get(at).cloned()
    }

    /// Replaces view and height of a message, mostly by values that are relevant to the replica now.
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

    /// Returns a number at or slightly above this one; rarely one below it, zero, or the largest.
    fn near(&mut self, number: u64, above: u64) -> u64 {
        match self.rng.below(24) {
            0 => 0,
            1 => u64::MAX.saturating_sub(self.rng.below(2)),
            2 | 3 => number.saturating_sub(self.rng.below(3)),
            4..12 => number,
            _ => number.saturating_add(self.rng.below(above.saturating_add(1))),
        }
    }

    /// Replaces a number at one of its positions: the first, or a random one.
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

/// Returns the statement that has to be signed.
fn signed(auth: Auth) -> Option<Statement> {
    match auth {
        Auth::Signed(statement) => Some(statement),
        Auth::Linked(_) | Auth::Relay => None,
    }
}
