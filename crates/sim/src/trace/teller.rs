//! Tells a reader what happens, in the order of time.

use super::event::{Event, Tale};
use super::passages::{Passage, Passages};
use super::{Reader, Who};
use quorate_types::{ReplicaId, Time, View};
use std::collections::BTreeMap;
use std::fmt;

/// See the module. Exists only while somebody reads along.
pub(crate) struct Teller {
    reader: Reader,
    passages: Passages,
    /// What a turn leads to later than the present.
    later: BTreeMap<(Time, u64), Event>,
    told: u64,
    now: Time,
    /// In which view each replica was when somebody looked last.
    views: BTreeMap<Who, (View, ReplicaId)>,
}

impl fmt::Debug for Teller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Teller({} events)", self.told)
    }
}

impl Teller {
    pub(crate) fn new(reader: Reader) -> Self {
        Self {
            reader,
            passages: Passages::default(),
            later: BTreeMap::new(),
            told: 0,
            now: Time::ZERO,
            views: BTreeMap::new(),
        }
    }

    pub(crate) fn tell(&mut self, at: Time, who: Who, what: &'static str, mut tale: Tale) {
        let number = self.number(at, who, &mut tale);
        let event = Event { at, who, what, number, tale };
        self.told = self.told.saturating_add(1);
        if at <= self.now {
            (self.reader)(&event);
        } else {
            self.later.insert((at, self.told), event);
        }
    }

    /// The number of a message, or of whatever else has one.
    fn number(&mut self, at: Time, who: Who, tale: &mut Tale) -> Option<u64> {
        let (from, to) = (tale.from, tale.to.first().copied());
        let Self { passages, .. } = self;
        let sent = match tale.passage {
            Passage::None => None,
            Passage::Numbered(number) => return Some(number),
            Passage::Leaves(print) => {
                return Some(passages.leaves(at, from.unwrap_or(who), &tale.to, print));
            }
            Passage::Arrives(print) => {
                let (number, left) = passages.arrives(from?, who, print)?;
                let took = at.since(left) / 1_000;
                let took = format!("after {}.{:03} ms", took / 1_000, took % 1_000);
                tale.text = if tale.text.is_empty() { took } else { format!("{took}, {}", tale.text) };
                Some((number, left))
            }
            Passage::Meets(print) => passages.meets(from?, to?, print),
            Passage::Ends(print) => passages.ends(from?, to?, print),
            Passage::Becomes(old, new) => passages.becomes(from?, to?, (old, new)),
        };
        sent.map(|(number, _)| number)
    }

    /// A replica is in this view. True when it was not when somebody looked last.
    pub(crate) fn enters(&mut self, who: Who, view: (View, ReplicaId)) -> bool {
        self.views.insert(who, view) != Some(view)
    }

    /// Nobody knows in which view a replica will come back.
    pub(crate) fn forget(&mut self, who: Who) {
        self.views.remove(&who);
    }

    /// Time has come so far: everything up to now has been told.
    pub(crate) fn moves_on(&mut self, now: Time) {
        self.now = self.now.max(now);
        while let Some(first) = self.later.first_entry().filter(|first| first.key().0 <= self.now) {
            (self.reader)(&first.remove());
        }
    }
}

impl Drop for Teller {
    fn drop(&mut self) {
        self.moves_on(Time(u64::MAX));
    }
}
