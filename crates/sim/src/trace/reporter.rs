//! Reports of events to a reader, in the order of time.

use super::event::{Event, EventDetails};
use super::transits::{Transit, Transits};
use super::who::Who;
use quorate_types::{ReplicaId, Time, View};
use std::collections::BTreeMap;
use std::fmt;

/// The reader of a trace.
pub(crate) type Reader = Box<dyn FnMut(&Event)>;

/// A reporter. A trace without a reader has none.
pub(crate) struct Reporter {
    reader: Reader,
    transits: Transits,
    /// Events of a turn that are later than the present.
    later: BTreeMap<(Time, u64), Event>,
    reported: u64,
    now: Time,
    /// Last known view of each replica.
    views: BTreeMap<Who, (View, ReplicaId)>,
}

impl fmt::Debug for Reporter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Reporter({} events)", self.reported)
    }
}

impl Reporter {
    pub(crate) fn new(reader: Reader) -> Self {
        Self {
            reader,
            transits: Transits::default(),
            later: BTreeMap::new(),
            reported: 0,
            now: Time::ZERO,
            views: BTreeMap::new(),
        }
    }

    pub(crate) fn report(&mut self, at: Time, who: Who, what: &'static str, mut details: EventDetails) {
        let number = self.number(at, who, &mut details);
        let event = Event { at, who, what, number, details };
        self.reported = self.reported.saturating_add(1);
        if at <= self.now {
            (self.reader)(&event);
        } else {
            self.later.insert((at, self.reported), event);
        }
    }

    /// Returns the number of a message or fault.
    fn number(&mut self, at: Time, who: Who, details: &mut EventDetails) -> Option<u64> {
        let (from, to) = (details.from, details.to.first().copied());
        let Self { transits, .. } = self;
        let sent = match details.transit {
            Transit::None => None,
            Transit::Numbered(number) => return Some(number),
            Transit::Leaves(fingerprint) => {
                return Some(transits.leaves(at, from.unwrap_or(who), &details.to, fingerprint));
            }
            Transit::Arrives(fingerprint) => {
                let (number, left) = transits.arrives(from?, who, fingerprint)?;
                let took = at.since(left) / 1_000;
                let took = format!("after {}.{:03} ms", took / 1_000, took % 1_000);
                details.text =
                    if details.text.is_empty() { took } else { format!("{took}, {}", details.text) };
                Some((number, left))
            }
            Transit::Meets(fingerprint) => transits.meets(from?, to?, fingerprint),
            Transit::Ends(fingerprint) => transits.ends(from?, to?, fingerprint),
            Transit::Becomes(old, new) => transits.becomes(from?, to?, (old, new)),
        };
        sent.map(|(number, _)| number)
    }

    /// Records the view of a replica. Returns whether it has changed.
    pub(crate) fn enters(&mut self, who: Who, view: (View, ReplicaId)) -> bool {
        self.views.insert(who, view) != Some(view)
    }

    /// Forgets the view of a replica, which may recover in any view.
    pub(crate) fn forget(&mut self, who: Who) {
        self.views.remove(&who);
    }

    /// Advances the time and reports the events up to now.
    pub(crate) fn advance(&mut self, now: Time) {
        self.now = self.now.max(now);
        while let Some(first) = self.later.first_entry().filter(|first| first.key().0 <= self.now) {
            (self.reader)(&first.remove());
        }
    }
}

impl Drop for Reporter {
    fn drop(&mut self) {
        self.advance(Time(u64::MAX));
    }
}
