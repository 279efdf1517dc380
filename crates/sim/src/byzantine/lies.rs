//! What Byzantine hosts make of what their replicas say: changed, said again, late, too much of it.

use super::{Conduct, Mood};
use crate::fault::Fault;
use bytes::Bytes;
use quorate_consensus::{Auth, Entry, Message, Scene};
use quorate_replica::HostMessage;
use quorate_types::codec::Wire as _;
use quorate_types::rng::Rng;
use quorate_types::wire::{FromReplica, frame};
use quorate_types::{Committee, Kind, Reader, ReplicaId, Signature, Statement};
use std::collections::{BTreeMap, VecDeque};

/// Frames of each kind that are remembered.
const SAID_MAX: usize = 12;
/// So many attempts are made to change a message so that it still is one.
const ATTEMPTS: u32 = 12;
/// One in so many well-formed lies has a signature that is wrong.
const BAD_SIGNATURE_ONE_IN: u64 = 24;
/// What is said again comes this much later, in the mean.
const AGAIN_NS: u64 = 60_000_000;
/// A flood says everything so many times at most.
const FLOOD_MAX: u64 = 24;

/// What leaves in the place of a frame.
#[derive(Clone, Debug)]
pub(crate) struct Sent {
    pub(crate) after_ns: u64,
    pub(crate) frame_type: u8,
    pub(crate) body: Bytes,
    /// What that is, where it is a lie.
    pub(crate) fault: Option<Fault>,
}

/// What a liar needs to know.
pub(crate) struct Means<'a> {
    pub(crate) entry: &'a Entry,
    pub(crate) committee: &'a Committee,
    pub(crate) me: ReplicaId,
    pub(crate) sign: &'a dyn Fn(&Statement) -> Signature,
}

/// What a liar has said, the newest of each kind last.
#[derive(Default, Debug)]
pub(crate) struct Said(BTreeMap<(u8, Kind), VecDeque<Bytes>>);

impl Said {
    fn remember(&mut self, key: (u8, Kind), body: Bytes) {
        let known = self.0.entry(key).or_default();
        if known.len() >= SAID_MAX {
            known.pop_front();
        }
        known.push_back(body);
    }

    fn of(&self, key: (u8, Kind)) -> Vec<&Bytes> {
        self.0.get(&key).into_iter().flatten().collect()
    }

    fn any(&self, rng: &mut Rng) -> Option<(u8, Bytes)> {
        let keys: Vec<_> = self.0.keys().copied().collect();
        let key = *rng.pick(&keys)?;
        let all = self.of(key);
        Some((key.0, (*rng.pick(&all)?).clone()))
    }
}

impl Conduct {
    /// Whether it changes what is said just now, or must remember it to do so later.
    pub(crate) fn twists(&self) -> bool {
        self.kind.twists()
    }

    /// What leaves for `to` in the place of a frame of this type with this body.
    pub(crate) fn twist(
        &mut self,
        means: &Means<'_>,
        to: ReplicaId,
        (frame_type, kind, body): (u8, Kind, &Bytes),
        out: &mut Vec<Sent>,
    ) {
        let plain = Sent { after_ns: 0, frame_type, body: body.clone(), fault: None };
        match self.mood {
            Mood::Late(after_ns) => {
                out.push(Sent { after_ns, fault: Some(Fault::JustInTime), ..plain });
            }
            Mood::Echo => {
                out.push(plain);
                if self.rng.chance(300_000)
                    && let Some((frame_type, body)) = self.said.any(&mut self.rng)
                {
                    let after_ns = self.rng.exponential_ns(AGAIN_NS);
                    out.push(Sent { after_ns, frame_type, body, fault: Some(Fault::Replay) });
                }
            }
            Mood::Twist { ppm, what } if what.covers(frame_type) && self.rng.chance(ppm) => {
                out.push(self.changed(means, (frame_type, kind, body)).unwrap_or(plain));
            }
            Mood::Flood { ref mut left } => {
                let copies = self.rng.between(1, FLOOD_MAX).min(*left);
                *left = left.saturating_sub(copies);
                let fault = (copies > 0).then_some(Fault::Flood);
                out.extend((0..copies).map(|_| Sent { fault, ..plain.clone() }));
                out.push(plain);
            }
            Mood::Attack(_) if frame_type == frame::PROTOCOL => self.attack(means, to, plain, out),
            _ => out.push(plain),
        }
        self.said.remember((frame_type, kind), body.clone());
    }

    /// A frame that says something else and is well formed.
    fn changed(&mut self, means: &Means<'_>, (frame_type, kind, body): (u8, Kind, &Bytes)) -> Option<Sent> {
        let earlier = self.said.of((frame_type, kind));
        let rng = &mut self.rng;
        let sent = |body: Vec<u8>, fault| {
            Some(Sent { after_ns: 0, frame_type, body: Bytes::from(body), fault: Some(fault) })
        };
        if frame_type != frame::PROTOCOL && frame_type != frame::HOST {
            // Bodies are named by their digests: any other bytes are a lie.
            return sent(mutate(rng, body, &earlier), Fault::LieInCatchUp);
        }
        let own = words(means.entry, frame_type, body)?;
        for _ in 0..ATTEMPTS {
            let bytes = mutate(rng, own, &earlier);
            let Some((again, auth)) = read(means.entry, frame_type, &bytes) else { continue };
            if again != bytes || bytes == own {
                continue;
            }
            let mut body = bytes;
            let mut fault = if frame_type == frame::HOST { Fault::LieInCatchUp } else { Fault::BadContent };
            if let Auth::Signed(statement) = auth {
                let mut signature = (means.sign)(&statement);
                if rng.below(BAD_SIGNATURE_ONE_IN) == 0 {
                    fault = Fault::InvalidSignature;
                    if let Some(byte) = signature.0.first_mut() {
                        *byte = byte.wrapping_add(1);
                    }
                }
                signature.encode(&mut body);
            }
            return sent(body, fault);
        }
        None
    }

    /// What an attack of the protocol's own says.
    fn attack(&mut self, means: &Means<'_>, to: ReplicaId, plain: Sent, out: &mut Vec<Sent>) {
        let own = words(means.entry, plain.frame_type, &plain.body);
        let message = own.and_then(|own| means.entry.decode_message(own).ok());
        let (Some(message), Some(attack)) = (message, self.attack.as_mut()) else {
            return out.push(plain);
        };
        let mut scene =
            Scene { me: means.me, committee: means.committee, rng: &mut self.rng, sign: means.sign };
        for message in attack.says(&mut scene, to, message) {
            let body = Bytes::from(seal(message.as_ref(), means.sign));
            let fault = (body != plain.body).then_some(Fault::OwnAttack);
            out.push(Sent { body, fault, ..plain.clone() });
        }
    }

    /// What a client is told in the place of this.
    pub(crate) fn twist_reply(&mut self, body: Bytes) -> (Bytes, bool) {
        let key = (u8::MAX, super::REPLY);
        let mut told = body.clone();
        if let Mood::Twist { ppm, what: What::Replies } = self.mood
            && self.rng.chance(ppm)
        {
            let earlier = self.said.of(key);
            for _ in 0..ATTEMPTS {
                let bytes = mutate(&mut self.rng, &body, &earlier);
                if FromReplica::from_bytes(&bytes).is_ok() && bytes != body {
                    told = Bytes::from(bytes);
                    break;
                }
            }
        }
        self.said.remember(key, body.clone());
        let is_lie = told != body;
        (told, is_lie)
    }
}

/// What is lied about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum What {
    /// The protocol's messages.
    Votes,
    /// What was decided, checkpoints, blocks, and bodies: all that who lags has to believe.
    Tales,
    /// What clients are told.
    Replies,
}

impl What {
    fn covers(self, frame_type: u8) -> bool {
        match self {
            Self::Votes => frame_type == frame::PROTOCOL,
            Self::Tales => frame_type != frame::PROTOCOL,
            Self::Replies => false,
        }
    }
}

/// A frame without its sender's signature, if it has one.
fn words<'a>(entry: &Entry, frame_type: u8, body: &'a [u8]) -> Option<&'a [u8]> {
    let is_whole = |bytes: &[u8]| read(entry, frame_type, bytes).is_some_and(|(_, auth)| !auth.is_signed());
    if is_whole(body) {
        return Some(body);
    }
    body.split_last_chunk::<64>().map(|(message, _)| message)
}

/// A message as it is encoded, and who vouches for it.
fn read(entry: &Entry, frame_type: u8, bytes: &[u8]) -> Option<(Vec<u8>, Auth)> {
    let mut again = Vec::with_capacity(bytes.len());
    if frame_type == frame::PROTOCOL {
        let message = entry.decode_message(bytes).ok()?;
        message.encode(&mut again);
        return Some((again, message.auth()));
    }
    let mut reader = Reader::new(bytes);
    let message = HostMessage::decode(&mut reader).ok()?;
    message.encode(&mut again);
    Some((again, message.auth()))
}

/// A message as a frame has it: with its signature, where it is signed.
pub(crate) fn seal(message: &dyn Message, sign: &dyn Fn(&Statement) -> Signature) -> Vec<u8> {
    let mut body = Vec::new();
    message.encode(&mut body);
    if let Auth::Signed(statement) = message.auth() {
        sign(&statement).encode(&mut body);
    }
    body
}

/// Bytes that are a little different: a value one more or less, or that of an earlier message in the same place.
fn mutate(rng: &mut Rng, bytes: &[u8], earlier: &[&Bytes]) -> Vec<u8> {
    let mut changed = bytes.to_vec();
    let at = rng.index(changed.len());
    let old = rng.pick(earlier).copied();
    let choice = if old.is_some() { rng.below(4) } else { 0 };
    match (choice, old) {
        (1..=3, Some(old)) => {
            let width = match choice {
                1 => 8,
                2 => 32,
                _ => changed.len(),
            };
            let end = at.saturating_add(width).min(changed.len()).min(old.len());
            if let (Some(target), Some(source)) = (changed.get_mut(at..end), old.get(at..end)) {
                target.copy_from_slice(source);
            }
        }
        _ => {
            if let Some(byte) = changed.get_mut(at) {
                *byte = if rng.chance(500_000) { byte.wrapping_add(1) } else { byte.wrapping_sub(1) };
            }
        }
    }
    changed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_changed_is_a_little_different() {
        let mut rng = Rng::new(3);
        let old = Bytes::from(vec![9; 48]);
        let (mut by_one, mut by_old) = (0, 0);
        for _ in 0..400 {
            let bytes = mutate(&mut rng, &[5; 40], &[&old]);
            assert_eq!(bytes.len(), 40);
            let changed: Vec<u8> = bytes.into_iter().filter(|byte| *byte != 5).collect();
            if changed.iter().all(|byte| *byte == 9) {
                by_old += usize::from(!changed.is_empty());
            } else {
                assert!(changed == [4] || changed == [6]);
                by_one += 1;
            }
        }
        assert!(by_one > 50 && by_old > 200, "{by_one} {by_old}");
    }

    #[test]
    fn a_liar_remembers_the_newest_of_each_kind() {
        let (mut said, key) = (Said::default(), (1, Kind::new("vote")));
        for number in 0..40u8 {
            said.remember(key, Bytes::from(vec![number]));
        }
        let all: Vec<u8> = said.of(key).iter().map(|body| body[0]).collect();
        assert_eq!(all, (28..40).collect::<Vec<u8>>());
        assert!(said.of((2, Kind::new("vote"))).is_empty());
        assert_eq!(said.any(&mut Rng::new(1)).map(|(frame_type, _)| frame_type), Some(1));
    }
}
