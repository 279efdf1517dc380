//! The departure that belongs to an arrival. Messages have no number of their own, so they are identified by sender,
//! receiver and content. The first departure belongs to the first arrival.

use super::who::Who;
use quorate_types::digest::Context;
use quorate_types::{DigestWriter, Time};
use std::collections::{BTreeMap, VecDeque};

static CONTEXT: Context = Context::new("quorate simulation passage v1");

/// The step of a message or fault that an event is about.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) enum Transit {
    /// No step.
    #[default]
    None,
    /// The number of a fault.
    Numbered(u64),
    /// A message leaves.
    Leaves(Fingerprint),
    /// A message arrives.
    Arrives(Fingerprint),
    /// Something happens to a message in flight.
    Meets(Fingerprint),
    /// A message is lost.
    Ends(Fingerprint),
    /// A message in flight changes.
    Becomes(Fingerprint, Fingerprint),
}

/// A fingerprint of bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Fingerprint([u8; 16]);

impl Fingerprint {
    pub(crate) fn of(bytes: &[u8]) -> Self {
        let mut writer = DigestWriter::new(&CONTEXT);
        writer.update(bytes);
        Self(writer.finish().0.first_chunk().copied().unwrap_or_default())
    }
}

/// Number and time of a departure.
type Sent = (u64, Time);

#[derive(Default, Debug)]
struct Same {
    waiting: VecDeque<Sent>,
    /// The last arrival: the message may arrive once more.
    last: Option<Sent>,
}

/// Messages in flight.
#[derive(Default, Debug)]
pub(crate) struct Transits {
    known: BTreeMap<(Who, Who, Fingerprint), Same>,
    next: u64,
}

impl Transits {
    /// Records a departure. Returns its number.
    pub(crate) fn leaves(&mut self, at: Time, from: Who, to: &[Who], fingerprint: Fingerprint) -> u64 {
        self.next = self.next.saturating_add(1);
        for to in to {
            self.known.entry((from, *to, fingerprint)).or_default().waiting.push_back((self.next, at));
        }
        self.next
    }

    /// Returns the departure of an arrival, which may come twice.
    pub(crate) fn arrives(&mut self, from: Who, to: Who, fingerprint: Fingerprint) -> Option<Sent> {
        let same = self.known.get_mut(&(from, to, fingerprint))?;
        same.last = same.waiting.pop_front().or(same.last);
        same.last
    }

    /// Returns the departure of a message in flight.
    pub(crate) fn meets(&self, from: Who, to: Who, fingerprint: Fingerprint) -> Option<Sent> {
        let same = self.known.get(&(from, to, fingerprint))?;
        same.waiting.back().copied().or(same.last)
    }

    /// Returns the departure of a lost message. An old copy of it may still arrive.
    pub(crate) fn ends(&mut self, from: Who, to: Who, fingerprint: Fingerprint) -> Option<Sent> {
        let same = self.known.get_mut(&(from, to, fingerprint))?;
        let sent = same.waiting.pop_back().or(same.last);
        same.last = same.last.or(sent);
        sent
    }

    /// Returns the departure of a message that changes in flight.
    pub(crate) fn becomes(
        &mut self,
        from: Who,
        to: Who,
        (old, new): (Fingerprint, Fingerprint),
    ) -> Option<Sent> {
        let same = self.known.get_mut(&(from, to, old))?;
        let sent = same.waiting.pop_back().or(same.last)?;
        self.known.entry((from, to, new)).or_default().waiting.push_back(sent);
        Some(sent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quorate_types::ReplicaId;

    const A: Who = Who::Replica(ReplicaId(0));
    const B: Who = Who::Replica(ReplicaId(1));
    const C: Who = Who::Client(0);

    #[test]
    fn first_departure_belongs_to_the_first_arrival() {
        let mut transits = Transits::default();
        let [vote, other] = ["vote", "other"].map(|body| Fingerprint::of(body.as_bytes()));
        assert_eq!(transits.leaves(Time(1), A, &[B, C], vote), 1);
        assert_eq!(transits.leaves(Time(2), A, &[B], vote), 2);
        assert_eq!(transits.arrives(A, B, vote), Some((1, Time(1))));
        assert_eq!(transits.arrives(A, B, vote), Some((2, Time(2))));
        assert_eq!(transits.arrives(A, B, vote), Some((2, Time(2))), "it came twice");
        assert_eq!(transits.arrives(A, C, vote), Some((1, Time(1))));
        assert_eq!((transits.arrives(B, A, vote), transits.arrives(A, B, other)), (None, None));
    }

    #[test]
    fn lost_message_does_not_arrive_and_changed_message_does() {
        let mut transits = Transits::default();
        let [vote, other] = ["vote", "other"].map(|body| Fingerprint::of(body.as_bytes()));
        transits.leaves(Time(1), A, &[B], vote);
        transits.leaves(Time(2), A, &[B], vote);
        assert_eq!(transits.meets(A, B, vote), Some((2, Time(2))));
        assert_eq!(transits.ends(A, B, vote), Some((2, Time(2))), "losses are told at once");
        assert_eq!(transits.becomes(A, B, (vote, other)), Some((1, Time(1))));
        assert_eq!(transits.arrives(A, B, other), Some((1, Time(1))));
        assert_eq!(transits.arrives(A, B, vote), Some((2, Time(2))), "an old copy of what was lost");
    }
}
