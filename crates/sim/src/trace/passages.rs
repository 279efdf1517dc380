//! Which arrival belongs to which sending: messages have no number of their own, so they are told apart by who
//! sends what to whom, and the first that was sent is taken for the first that arrives.

use super::Who;
use quorate_types::digest::Context;
use quorate_types::{DigestWriter, Time};
use std::collections::{BTreeMap, VecDeque};

static CONTEXT: Context = Context::new("quorate simulation passage v1");

/// What an event says about the way of a message.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) enum Passage {
    /// Nothing.
    #[default]
    None,
    /// This is the number of a fault.
    Numbered(u64),
    /// Bytes leave.
    Leaves(Print),
    /// Bytes are there.
    Arrives(Print),
    /// Bytes are on their way, and something happens to them.
    Meets(Print),
    /// They go no further.
    Ends(Print),
    /// They are others from here on.
    Becomes(Print, Print),
}

/// What tells bytes apart.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Print([u8; 16]);

impl Print {
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
pub(crate) struct Passages {
    known: BTreeMap<(Who, Who, Print), Same>,
    next: u64,
}

impl Passages {
    /// Something is sent. Its number.
    pub(crate) fn leaves(&mut self, at: Time, from: Who, to: &[Who], print: Print) -> u64 {
        self.next = self.next.saturating_add(1);
        for to in to {
            self.known.entry((from, *to, print)).or_default().waiting.push_back((self.next, at));
        }
        self.next
    }

    /// Something arrives, once or twice.
    pub(crate) fn arrives(&mut self, from: Who, to: Who, print: Print) -> Option<Sent> {
        let same = self.known.get_mut(&(from, to, print))?;
        same.last = same.waiting.pop_front().or(same.last);
        same.last
    }

    /// Something is on its way.
    pub(crate) fn meets(&self, from: Who, to: Who, print: Print) -> Option<Sent> {
        let same = self.known.get(&(from, to, print))?;
        same.waiting.back().copied().or(same.last)
    }

    /// Something goes no further; an old copy of it may still come.
    pub(crate) fn ends(&mut self, from: Who, to: Who, print: Print) -> Option<Sent> {
        let same = self.known.get_mut(&(from, to, print))?;
        let sent = same.waiting.pop_back().or(same.last);
        same.last = same.last.or(sent);
        sent
    }

    /// Something is changed on its way.
    pub(crate) fn becomes(&mut self, from: Who, to: Who, (old, new): (Print, Print)) -> Option<Sent> {
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
        let mut passages = Passages::default();
        let [vote, other] = ["vote", "other"].map(|body| Print::of(body.as_bytes()));
        assert_eq!(passages.leaves(Time(1), A, &[B, C], vote), 1);
        assert_eq!(passages.leaves(Time(2), A, &[B], vote), 2);
        assert_eq!(passages.arrives(A, B, vote), Some((1, Time(1))));
        assert_eq!(passages.arrives(A, B, vote), Some((2, Time(2))));
        assert_eq!(passages.arrives(A, B, vote), Some((2, Time(2))), "it came twice");
        assert_eq!(passages.arrives(A, C, vote), Some((1, Time(1))));
        assert_eq!((passages.arrives(B, A, vote), passages.arrives(A, B, other)), (None, None));
    }

    #[test]
    fn what_is_lost_does_not_arrive_and_what_is_changed_does() {
        let mut passages = Passages::default();
        let [vote, other] = ["vote", "other"].map(|body| Print::of(body.as_bytes()));
        passages.leaves(Time(1), A, &[B], vote);
        passages.leaves(Time(2), A, &[B], vote);
        assert_eq!(passages.meets(A, B, vote), Some((2, Time(2))));
        assert_eq!(passages.ends(A, B, vote), Some((2, Time(2))), "losses are told at once");
        assert_eq!(passages.becomes(A, B, (vote, other)), Some((1, Time(1))));
        assert_eq!(passages.arrives(A, B, other), Some((1, Time(1))));
        assert_eq!(passages.arrives(A, B, vote), Some((2, Time(2))), "an old copy of what was lost");
    }
}
