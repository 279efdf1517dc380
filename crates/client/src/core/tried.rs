//! Attempts at operations that have no answer yet, in words for people.

use super::flight::Flight;
use super::{Core, Session, Slot};
use quorate_types::wire::Refusal;
use quorate_types::{Digest, ReplicaSet, quorum};
use std::fmt::{self, Write as _};

/// The attempts so far.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Tried {
    /// Whether any of the operations has left: then it may be executed, and nobody can call it back.
    pub is_sent: bool,
    /// To whom it was sent, how often, and what became of it.
    pub text: String,
}

impl Core {
    /// The attempts at those bundles without an answer whose `Ticket::bundle` is asked for.
    #[must_use]
    pub fn tried(&self, is_asked: &dyn Fn(u64) -> bool) -> Tried {
        let mut flying = self.slots.iter().filter_map(|slot| match slot {
            Slot::Flying(flight) if is_asked(flight.ticket) => Some(flight),
            _ => None,
        });
        if let Some(flight) = flying.next() {
            let mut text = self.story(flight);
            let others = flying.count();
            if others > 0 {
                let _ = write!(text, "; {others} more bundles have no answer");
            }
            return Tried { is_sent: flight.is_out() || others > 0, text };
        }
        let text = match &self.session {
            Session::Opening(flight, _) => format!("no session was opened yet: {}", self.story(flight)),
            Session::Closed => "no session is open".to_owned(),
            Session::Open(_) if self.waits(is_asked) => {
                "not sent yet: it waits for the answers to bundles before it".to_owned()
            }
            Session::Open(_) => "nothing was sent".to_owned(),
        };
        Tried { is_sent: false, text }
    }

    /// The fate of one bundle.
    fn story(&self, flight: &Flight) -> String {
        let mut text = String::new();
        if flight.is_out() {
            let _ = write!(text, "sent to {}", Replicas(flight.sent_to));
            if flight.repeats > 0 {
                let _ = write!(text, ", {} times", flight.repeats.saturating_add(1));
            }
        } else {
            text.push_str("sent to nobody");
        }
        let answered = flight.answered();
        let refusals = flight.refusals().iter().filter(|(by, _)| !answered.contains(*by));
        let refused = refusals.clone().count();
        let silent = self.settings.n.saturating_sub(answered.len()).saturating_sub(refused);
        let mut parts = Vec::new();
        for (digest, count) in flight.answers() {
            parts.push(format!("{} digest {}", said(count), short(digest)));
        }
        for why in REFUSALS {
            let count = refusals.clone().filter(|(_, reason)| *reason == why).count();
            if count > 0 {
                parts.push(format!("{} \"{}\"", said(count), words(why)));
            }
        }
        if silent > 0 {
            parts.push(format!("{} nothing", said(silent)));
        }
        let needed = quorum::weak(self.settings.f);
        let _ = match (flight.answers().count(), refused) {
            (0, 0) => write!(text, ", none has answered"),
            (0, _) => write!(text, ": {}", parts.join(", ")),
            (1, _) => write!(text, ": {}; {needed} equal answers are needed", parts.join(", ")),
            _ => write!(
                text,
                ": replicas answer differently: {}; {needed} equal answers are needed",
                parts.join(", ")
            ),
        };
        if !self.displaced.is_empty() {
            let _ = write!(text, "; {} now answer newer connections with this key", Replicas(self.displaced));
        }
        text
    }
}

fn said(count: usize) -> String {
    if count == 1 { "1 says".to_owned() } else { format!("{count} say") }
}

/// Enough of a digest to tell it from others.
fn short(digest: Digest) -> String {
    let hex = quorate_types::digest::hex(&digest.0);
    format!("{}…", hex.get(..8).unwrap_or(&hex))
}

const REFUSALS: [Refusal; 9] = [
    Refusal::Busy,
    Refusal::BadSignature,
    Refusal::Malformed,
    Refusal::NoSession,
    Refusal::NumberReused,
    Refusal::OutOfWindow,
    Refusal::NotRegistered,
    Refusal::Forgotten,
    Refusal::Behind,
];

/// A refusal in a person's words.
pub(super) fn words(why: Refusal) -> &'static str {
    match why {
        Refusal::Busy => "busy",
        Refusal::BadSignature => "bad signature",
        Refusal::Malformed => "malformed, or beyond a limit",
        Refusal::NoSession => "no such session",
        Refusal::NumberReused => "the number was used before",
        Refusal::OutOfWindow => "the number lies outside the window",
        Refusal::NotRegistered => "the key is not registered",
        Refusal::Forgotten => "executed, and the result is no longer kept",
        Refusal::Behind => "not that far yet",
    }
}

/// Replicas by their numbers.
struct Replicas(ReplicaSet);

impl fmt::Display for Replicas {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.len() == 1 { "replica" } else { "replicas" })?;
        for (index, id) in self.0.iter().enumerate() {
            write!(f, "{} {id}", if index == 0 { "" } else { "," })?;
        }
        Ok(())
    }
}
