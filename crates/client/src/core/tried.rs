//! A description of the attempts at operations without an answer, for people.

use super::flight::Flight;
use super::{BundleSlot, Core, SessionStage};
use quorate_types::wire::Refusal;
use quorate_types::{Digest, ReplicaSet, quorum};
use std::collections::BTreeMap;
use std::fmt::{self, Write as _};

/// The attempts at operations so far.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Tried {
    /// Whether any of the operations has left: it may then be executed, and cannot be withdrawn.
    pub is_sent: bool,
    /// The receivers, the number of attempts, and the answers.
    pub text: String,
}

impl Core {
    /// Returns the attempts at the asked bundles without an answer; `is_asked` takes a `Ticket::bundle`.
    #[must_use]
    pub fn tried(&self, is_asked: &dyn Fn(u64) -> bool) -> Tried {
        let mut flying = self.slots.iter().filter_map(|slot| match slot {
            BundleSlot::Flying(flight) if is_asked(flight.ticket) => Some(flight),
            _ => None,
        });
        if let Some(flight) = flying.next() {
            let mut text = self.describe(flight);
            let others = flying.count();
            if others > 0 {
                let _ = write!(text, "; {others} more bundles have no answer");
            }
            return Tried { is_sent: flight.is_out() || others > 0, text };
        }
        let text = match &self.session {
            SessionStage::Opening(flight, _) => {
                format!("no session was opened yet: {}", self.describe(flight))
            }
            SessionStage::Closed => "no session is open".to_owned(),
            SessionStage::Open(_) if self.waits(is_asked) => {
                "not sent yet: the bundle waits for the answers to earlier bundles".to_owned()
            }
            SessionStage::Open(_) => "nothing was sent".to_owned(),
        };
        Tried { is_sent: false, text }
    }

    /// Describes the attempts at one bundle.
    fn describe(&self, flight: &Flight) -> String {
        let mut text = String::new();
        if flight.is_out() {
            let _ = write!(text, "sent to {}", Replicas(flight.sent_to));
            if flight.repeats > 0 {
                let _ = write!(text, ", {} times", flight.repeats.saturating_add(1));
            }
        } else {
            text.push_str("sent to no replica");
        }
        let answered = flight.answered();
        let refusals = flight.refusals().iter().filter(|(by, _)| !answered.contains(*by));
        let refused = refusals.clone().count();
        let mut reasons: BTreeMap<Refusal, usize> = BTreeMap::new();
        for (_, why) in refusals {
            reasons.entry(*why).and_modify(|count| *count = count.saturating_add(1)).or_insert(1);
        }
        let silent = self.settings.n.saturating_sub(answered.len()).saturating_sub(refused);
        let mut parts = Vec::new();
        for (digest, count) in flight.answers() {
            parts.push(format!("{} digest {}", count_with(count, "reports", "report"), short(digest)));
        }
        for (why, count) in reasons {
            parts.push(format!("{} ({})", count_with(count, "refuses", "refuse"), self::text(why)));
        }
        if silent > 0 {
            parts.push(count_with(silent, "has not answered", "have not answered"));
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
        if let Some(wait) = &flight.order {
            let _ = match wait.asked() {
                asked if asked.is_empty() => write!(text, "; no replica is asked for a proof of order"),
                asked => write!(text, "; a proof of order is expected from {}", Replicas(asked)),
            };
            for (by, why) in wait.bad() {
                let _ = write!(text, "; replica {by} has shown a bad proof: {why}");
            }
        }
        if !self.displaced.is_empty() {
            let _ = write!(text, "; {} now answer newer connections with this key", Replicas(self.displaced));
        }
        text
    }
}

/// Puts a count of replicas before its verb.
fn count_with(count: usize, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

/// Returns the first digits of a digest, enough to distinguish it from others.
fn short(digest: Digest) -> String {
    let hex = quorate_types::digest::hex(&digest.0);
    format!("{}…", hex.get(..8).unwrap_or(&hex))
}

/// Returns the text of a refusal, for people.
pub(super) fn text(why: Refusal) -> &'static str {
    match why {
        Refusal::Busy => "busy",
        Refusal::BadSignature => "bad signature",
        Refusal::Malformed => "malformed, or beyond a limit",
        Refusal::NoSession => "no such session",
        Refusal::NumberReused => "the number was used before",
        Refusal::OutOfWindow => "the number is outside the window",
        Refusal::NotRegistered => "the key is not registered",
        Refusal::Forgotten => "executed, and the result is no longer kept",
        Refusal::Behind => "it is behind",
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
