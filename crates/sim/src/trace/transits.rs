//! Which arrival belongs to which sending: messages have no number of their own, so they are told apart by who
//! sends what to whom, and the first that was sent is taken for the first that arrives.

use super::who::Who;
use quorate_types::digest::Context;
use quorate_types::{DigestWriter, Time};
use std::collections::{BTreeMap, VecDeque};

static CONTEXT: Context = Context::new("quorate simulation passage v1");

/// What an event says about the way of a message.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) enum Transit {
    /// Nothing.
    #[default]
    None,
    /// This is the number of a fault.
    Numbered(u64),
    /// Bytes leave.
    Leaves(Fingerprint),
    /// Bytes are there.
    Arrives(Fingerprint),
    /// Bytes are on their way, and something happens to them.
    Meets(Fingerprint),
    /// They go no further.
    Ends(Fingerprint),
    /// They are others from here on.
    Becomes(Fingerprint, Fingerprint),
}

/// What tells bytes apart.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Fingerprint([u8; 16]);

impl Fingerprint {
    pub(crate) fn of(bytes: &[u8]) -> Self {
        let mut writer = DigestWriter::new(&CONTEXT);
        writer.update(bytes);
        Self(writer.finish().0.first_chunk().copied().unwrap_or_default())
    }
}

/// One sending: its number and its time.
type Sent = (u64, Time);

#[derive(Default, Debug)]
struct Same {
    waiting: VecDeque<Sent>,
    /// What arrived last: it may arrive once more.
    last: Option<Sent>,
}

/// See the module.
#[derive(Default, Debug)]
pub(crate) struct Transits {
    known: BTreeMap<(Who, Who, Fingerprint), Same>,
    next: u64,
}

impl Transits {
    /// Something is sent. Its number.
    pub(crate) fn leaves(&mut self, at: Time, from: Who, to: &[Who], fingerprint: Fingerprint) -> u64 {
        self.next = self.next.saturating_add(1);
        for to in to {
            self.known.entry((from, *to, fingerprint)).or_default().waiting.push_back((self.next, at));
        }
        self.next
    }

    /// Something arrives, once or twice.
    pub(crate) fn arrives(&mut self, from: Who, to: Who, fingerprint: Fingerprint) -> Option<Sent> {
        let same = self.known.get_mut(&(from, to, fingerprint))?;
        same.last = same.waiting.pop_front().or(same.last);
        same.last
    }

    /// Something is on its way.
    pub(crate) fn meets(&self, from: Who, to: Who, fingerprint: Fingerprint) -> Option<Sent> {
        let same = self.known.get(&(from, to, fingerprint))?;
        same.waiting.back().copied().or(same.last)
    }

    /// Something goes no further; an old copy of it may still come.
    pub(crate) fn ends(&mut self, from: Who, to: Who, fingerprint: Fingerprint) -> Option<Sent> {
        let same = self.known.get_mut(&(from, to, fingerprint))?;
        let sent = same.waiting.pop_back().or(same.last);
        same.last = same.last.or(sent);
        sent
    }

    /// Something is changed on its way.
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
    fn what_arrives_is_what_was_sent_first() {
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
    fn what_is_lost_does_not_arrive_and_what_is_changed_does() {
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
