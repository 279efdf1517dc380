//! The trace of a run: a running hash of every transition. While the trace has a reader, it also reports each
//! transition as an [`Event`], and more events that are no transitions.
//!
//! Only bytes feed the hash, never the details for readers. So the hash of a seed does not depend on a reader, and a
//! run without one does not pay for it.
//!
//! * [`Event`]: an event. Its `Display` is a line of the columns that [`heading`] names and [`legend`] explains.
//! * [`Pick`]: a selection of events.
//! * [`Drawing`]: the run as a space-time diagram, on a page that needs no network.

mod drawing;
mod event;
mod lines;
mod pick;
mod reporter;
mod transits;
mod who;

pub use drawing::{Caption, Drawing};
pub use event::{Event, EventDetails};
pub(crate) use lines::compact_names;
pub use lines::{COLUMNS, EVENT_NAMES, heading, legend};
pub use pick::Pick;
pub(crate) use transits::{Fingerprint, Transit};
pub use who::Who;
pub(crate) use who::seconds;

use quorate_types::digest::Context;
use quorate_types::{Digest, DigestWriter, ReplicaId, Time, View};
use reporter::Reporter;
use std::fmt;

static CONTEXT: Context = Context::new("quorate simulation trace v1");
/// The hash function is fastest on large pieces.
const PIECE_BYTES: usize = 16 << 10;

/// The trace of a run.
pub struct Trace {
    hash: DigestWriter,
    piece: Vec<u8>,
    reporter: Option<Box<Reporter>>,
    count: u64,
}

impl fmt::Debug for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Trace({} transitions)", self.count)
    }
}

impl Default for Trace {
    fn default() -> Self {
        Self {
            hash: DigestWriter::new(&CONTEXT),
            piece: Vec::with_capacity(PIECE_BYTES.saturating_mul(2)),
            reporter: None,
            count: 0,
        }
    }
}

impl Trace {
    /// Sets a reader, which receives the events in the order of time from now on. The last events arrive when the
    /// world is dropped. A reader from the beginning needs [`crate::World::with_trace`].
    pub fn set_reader(&mut self, reader: impl FnMut(&Event) + 'static) {
        self.reporter = Some(Box::new(Reporter::new(Box::new(reader))));
    }

    /// Whether the trace has a reader.
    pub(crate) fn has_reader(&self) -> bool {
        self.reporter.is_some()
    }

    /// Notes a transition: `bytes` feed the hash, `details` are for the reader.
    pub(crate) fn note<T: Into<EventDetails>>(
        &mut self,
        now: Time,
        who: Who,
        what: &'static str,
        bytes: &[&[u8]],
        details: impl FnOnce() -> T,
    ) {
        self.count = self.count.saturating_add(1);
        self.piece.extend_from_slice(&now.0.to_le_bytes());
        self.piece.extend_from_slice(&who.tag());
        self.put(hashed_name(what).as_bytes());
        for bytes in bytes {
            self.put(bytes);
        }
        if self.piece.len() >= PIECE_BYTES {
            self.hash.update(&self.piece);
            self.piece.clear();
        }
        if let Some(reporter) = &mut self.reporter {
            reporter.report(now, who, what, details().into());
        }
    }

    /// Reports an event to the reader that is no transition itself.
    pub(crate) fn report(
        &mut self,
        at: Time,
        who: Who,
        what: &'static str,
        details: impl FnOnce() -> EventDetails,
    ) {
        if let Some(reporter) = &mut self.reporter {
            reporter.report(at, who, what, details());
        }
    }

    /// Reports the view of a replica, if it has changed. `None`: the replica is down.
    pub(crate) fn report_view(&mut self, at: Time, id: ReplicaId, view: Option<(View, ReplicaId)>) {
        let who = Who::Replica(id);
        let Some(reporter) = &mut self.reporter else { return };
        match view {
            None => reporter.forget(who),
            Some(view) if reporter.enters(who, view) => {
                let details = EventDetails::text(format!("led by r{}", view.1)).at(Some(view.0), None);
                reporter.report(at, who, "enters", details);
            }
            Some(_) => {}
        }
    }

    /// Advances the time.
    pub(crate) fn advance(&mut self, now: Time) {
        if let Some(reporter) = &mut self.reporter {
            reporter.advance(now);
        }
    }

    fn put(&mut self, bytes: &[u8]) {
        let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        self.piece.extend_from_slice(&length.to_le_bytes());
        self.piece.extend_from_slice(bytes);
    }

    /// Returns the number of transitions.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Returns the hash of all transitions so far.
    #[must_use]
    pub fn hash(&self) -> Digest {
        let mut whole = self.hash.clone();
        whole.update(&self.piece);
        whole.finish()
    }
}

/// Returns the name under which an event feeds the hash. Some events have a plainer name for readers, and the hash of
/// a seed must not depend on it.
fn hashed_name(what: &'static str) -> &'static str {
    match what {
        "behaves" => "mood",
        "breaches" => "misuses",
        "executor" => "labours",
        "exempt" => "adrift",
        "faults" => "weather",
        "partition" => "parts",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;
    use std::rc::Rc;

    type Lines = Rc<RefCell<Vec<String>>>;

    fn read(trace: &mut Trace) -> Lines {
        let lines = Lines::default();
        let written = Rc::clone(&lines);
        trace.set_reader(move |event| written.borrow_mut().push(event.to_string()));
        lines
    }

    fn run(trace: &mut Trace, steps: u64) {
        for step in 0..steps {
            let bytes = step.to_le_bytes();
            trace.note(Time(step), Who::Client(3), "sends", &[&bytes], || format!("step {step}"));
            trace.report(Time(step), Who::World, "loses", || EventDetails::text("and that is no transition"));
        }
    }

    #[test]
    fn reader_does_not_change_the_hash() {
        let (mut silent, mut loud) = (Trace::default(), Trace::default());
        let lines = read(&mut loud);
        run(&mut silent, 2_000);
        run(&mut loud, 2_000);
        assert_eq!((silent.hash(), silent.count()), (loud.hash(), loud.count()));
        drop(loud);
        assert_eq!(lines.borrow().len(), 4_000);
        assert!(lines.borrow()[14].starts_with("    0.000000007  c3     sends "), "{}", lines.borrow()[14]);
    }

    #[test]
    fn events_are_reported_in_the_order_of_time() {
        let mut trace = Trace::default();
        let lines = read(&mut trace);
        let mut tell = |at, text: &str| {
            trace.report(Time(at), Who::World, "plans", || EventDetails::text(text));
        };
        tell(0, "a");
        tell(5, "e");
        tell(3, "c");
        tell(3, "d");
        trace.advance(Time(2));
        trace.report(Time(2), Who::World, "plans", || EventDetails::text("b"));
        trace.advance(Time(3));
        let told = || lines.borrow().iter().filter_map(|line| line.chars().last()).collect::<String>();
        assert_eq!(told(), "abcd");
        drop(trace);
        assert_eq!(told(), "abcde", "what is left when it ends");
    }

    #[test]
    fn arrival_has_the_number_of_its_departure() {
        let mut trace = Trace::default();
        let lines = read(&mut trace);
        let (a, b) = (Who::Replica(ReplicaId(0)), Who::Replica(ReplicaId(1)));
        let fingerprint = Fingerprint::of(b"vote");
        trace.report(Time(0), a, "sends", || {
            EventDetails::kind("vote").to([b]).transit(Transit::Leaves(fingerprint))
        });
        trace.advance(Time(1_234_567));
        trace.report(Time(1_234_567), b, "gets", || {
            EventDetails::kind("vote").from(a).transit(Transit::Arrives(fingerprint))
        });
        let ends: Vec<String> =
            lines.borrow().iter().map(|line| line.split("  ").last().unwrap().trim().to_owned()).collect();
        assert_eq!(ends, ["m1", "m1, after 1.234 ms"]);
    }

    #[test]
    fn unchanged_view_is_reported_once() {
        let mut trace = Trace::default();
        let lines = read(&mut trace);
        let (id, view) = (ReplicaId(0), Some((View(3), ReplicaId(3))));
        for view in [view, view, None, view] {
            trace.report_view(Time(0), id, view);
        }
        assert_eq!(lines.borrow().len(), 2, "{lines:?}");
    }

    #[test]
    fn every_byte_changes_the_hash() {
        let hash = |who, bytes: &[&[u8]]| {
            let mut trace = Trace::default();
            trace.note(Time(1), who, "x", bytes, String::new);
            trace.hash()
        };
        let base = hash(Who::Client(1), &[b"ab", b"c"]);
        assert_ne!(base, hash(Who::Client(1), &[b"a", b"bc"]));
        assert_ne!(base, hash(Who::Client(2), &[b"ab", b"c"]));
        assert_ne!(base, hash(Who::Replica(ReplicaId(1)), &[b"ab", b"c"]));
    }
}
