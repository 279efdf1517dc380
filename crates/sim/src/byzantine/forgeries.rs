//! Messages of Byzantine hosts: changed, repeated, late or too many.

use super::sent_messages::ForgeAbout;
use super::{Behaviour, Mood};
use crate::fault::Fault;
use bytes::Bytes;
use quorate_consensus::{Auth, Entry, Message, Scene};
use quorate_replica::HostMessage;
use quorate_types::codec::Wire as _;
use quorate_types::rng::Rng;
use quorate_types::wire::{FromReplica, frame};
use quorate_types::{Committee, Kind, Reader, ReplicaId, Signature, Statement};

/// Largest number of attempts to change a message so that it still decodes.
const ATTEMPTS: u32 = 12;
/// Share of well-formed forgeries that get a wrong signature: one in this number.
const BAD_SIGNATURE_ONE_IN: u64 = 24;
/// Mean delay of a repeated message.
const AGAIN_NS: u64 = 60_000_000;
/// Largest number of copies of one message in a flood.
const FLOOD_MAX: u64 = 24;

/// A frame that leaves instead of the original one.
#[derive(Clone, Debug)]
pub(crate) struct Forged {
    pub(crate) after_ns: u64,
    pub(crate) frame_type: u8,
    pub(crate) body: Bytes,
    /// The fault that the frame is, where it differs from the original.
    pub(crate) fault: Option<Fault>,
}

/// The tools of a host that forges messages.
pub(crate) struct LiarTools<'a> {
    pub(crate) entry: &'a Entry,
    pub(crate) committee: &'a Committee,
    pub(crate) me: ReplicaId,
    pub(crate) sign: &'a dyn Fn(&Statement) -> Signature,
}

impl Behaviour {
    /// Whether the host changes messages now, or must remember them to change later ones.
    pub(crate) fn forges(&self) -> bool {
        self.kind.forges()
    }

    /// Pushes the frames that leave for `to` instead of the original frame.
    pub(crate) fn forge(
        &mut self,
        tools: &LiarTools<'_>,
        to: ReplicaId,
        (frame_type, kind, body): (u8, Kind, &Bytes),
        out: &mut Vec<Forged>,
    ) {
        let plain = Forged { after_ns: 0, frame_type, body: body.clone(), fault: None };
        match self.mood {
            Mood::Late(after_ns) => {
                out.push(Forged { after_ns, fault: Some(Fault::JustInTime), ..plain });
            }
            Mood::Echo => {
                out.push(plain);
                if self.rng.chance(300_000)
                    && let Some((frame_type, body)) = self.sent.any(&mut self.rng)
                {
                    let after_ns = self.rng.exponential_ns(AGAIN_NS);
                    out.push(Forged { after_ns, frame_type, body, fault: Some(Fault::Replay) });
                }
            }
            Mood::Twist { ppm, what } if what.covers(frame_type) && self.rng.chance(ppm) => {
                out.push(self.changed(tools, (frame_type, kind, body)).unwrap_or(plain));
            }
            Mood::Flood { ref mut left } => {
                let copies = self.rng.between(1, FLOOD_MAX).min(*left);
                *left = left.saturating_sub(copies);
                let fault = (copies > 0).then_some(Fault::Flood);
                out.extend((0..copies).map(|_| Forged { fault, ..plain.clone() }));
                out.push(plain);
            }
            Mood::Attack(_) if frame_type == frame::PROTOCOL => self.attack(tools, to, plain, out),
            _ => out.push(plain),
        }
        self.sent.remember((frame_type, kind), body.clone());
    }

    /// Returns a frame with other content that is still well formed.
    fn changed(
        &mut self,
        tools: &LiarTools<'_>,
        (frame_type, kind, body): (u8, Kind, &Bytes),
    ) -> Option<Forged> {
        let earlier = self.sent.of((frame_type, kind));
        let rng = &mut self.rng;
        let sent = |body: Vec<u8>, fault| {
            Some(Forged { after_ns: 0, frame_type, body: Bytes::from(body), fault: Some(fault) })
        };
        if frame_type != frame::PROTOCOL && frame_type != frame::HOST {
            // A digest names a body, so any other bytes are a forgery.
            return sent(mutate(rng, body, &earlier), Fault::LieInCatchUp);
        }
        let own = without_signature(tools.entry, frame_type, body)?;
        for _ in 0..ATTEMPTS {
            let bytes = mutate(rng, own, &earlier);
            let Some((again, auth)) = read(tools.entry, frame_type, &bytes) else { continue };
            if again != bytes || bytes == own {
                continue;
            }
            let mut body = bytes;
            let mut fault = if frame_type == frame::HOST { Fault::LieInCatchUp } else { Fault::BadContent };
            if let Auth::Signed(statement) = auth {
                let mut signature = (tools.sign)(&statement);
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

    /// Pushes the messages of an attack that the protocol's folder defines.
    fn attack(&mut self, tools: &LiarTools<'_>, to: ReplicaId, plain: Forged, out: &mut Vec<Forged>) {
        let own = without_signature(tools.entry, plain.frame_type, &plain.body);
        let message = own.and_then(|own| tools.entry.decode_message(own).ok());
        let (Some(message), Some(attack)) = (message, self.attack.as_mut()) else {
            return out.push(plain);
        };
        let mut scene =
            Scene { me: tools.me, committee: tools.committee, rng: &mut self.rng, sign: tools.sign };
        for message in attack.says(&mut scene, to, message) {
            let body = Bytes::from(seal(message.as_ref(), tools.sign));
            let fault = (body != plain.body).then_some(Fault::OwnAttack);
            out.push(Forged { body, fault, ..plain.clone() });
        }
    }

    /// Shows a message to its replica to an attack that listens.
    pub(crate) fn hear(&mut self, entry: &Entry, frame_type: u8, body: &[u8]) {
        let attack = self.attack.as_mut().filter(|attack| attack.listens());
        let (Mood::Attack(_), frame::PROTOCOL, Some(attack)) = (&self.mood, frame_type, attack) else {
            return;
        };
        let own = without_signature(entry, frame_type, body);
        if let Some(message) = own.and_then(|own| entry.decode_message(own).ok()) {
            attack.hears(message);
        }
    }

    /// Returns the reply that a client receives instead, and whether it is false.
    pub(crate) fn forge_reply_body(&mut self, body: Bytes) -> (Bytes, bool) {
        let key = (u8::MAX, super::REPLY);
        let mut forged = body.clone();
        if let Mood::Twist { ppm, what: ForgeAbout::Replies } = self.mood
            && self.rng.chance(ppm)
        {
            let earlier = self.sent.of(key);
            for _ in 0..ATTEMPTS {
                let bytes = mutate(&mut self.rng, &body, &earlier);
                if FromReplica::from_bytes(&bytes).is_ok() && bytes != body {
                    forged = Bytes::from(bytes);
                    break;
                }
            }
        }
        self.sent.remember(key, body.clone());
        let is_lie = forged != body;
        (forged, is_lie)
    }
}

/// Returns a frame's body without its sender's signature, if it has one.
fn without_signature<'a>(entry: &Entry, frame_type: u8, body: &'a [u8]) -> Option<&'a [u8]> {
    let is_whole = |bytes: &[u8]| read(entry, frame_type, bytes).is_some_and(|(_, auth)| !auth.is_signed());
    if is_whole(body) {
        return Some(body);
    }
    body.split_last_chunk::<64>().map(|(message, _)| message)
}

/// Returns a message as it is encoded, with its authentication.
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

/// Returns a message as a frame carries it: with its signature, where the message is signed.
pub(crate) fn seal(message: &dyn Message, sign: &dyn Fn(&Statement) -> Signature) -> Vec<u8> {
    let mut body = Vec::new();
    message.encode(&mut body);
    if let Auth::Signed(statement) = message.auth() {
        sign(&statement).encode(&mut body);
    }
    body
}

/// Returns slightly different bytes: one value changed by one, or replaced by the value of an earlier message at that
/// position.
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
    use super::super::sent_messages::SentMessages;
    use super::*;

    #[test]
    fn forged_bytes_differ_a_little() {
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
    fn host_remembers_the_newest_messages_of_each_kind() {
        let (mut sent, key) = (SentMessages::default(), (1, Kind::new("vote")));
        for number in 0..40u8 {
            sent.remember(key, Bytes::from(vec![number]));
        }
        let all: Vec<u8> = sent.of(key).iter().map(|body| body[0]).collect();
        assert_eq!(all, (28..40).collect::<Vec<u8>>());
        assert!(sent.of((2, Kind::new("vote"))).is_empty());
        assert_eq!(sent.any(&mut Rng::new(1)).map(|(frame_type, _)| frame_type), Some(1));
    }
}
