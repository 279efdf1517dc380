//! Events as lines of fixed columns, and the meaning of columns and event names.

use super::event::Event;
use super::who::{Who, seconds};
use std::fmt::{self, Write as _};

/// The columns: title, width, meaning.
pub const COLUMNS: [(&str, usize, &str); 9] = [
    ("seconds", 15, "virtual time; `>>` before it marks the finding of an oracle"),
    ("who", 5, "the actor: r2 is replica 2, c0 is client 0; world is network, power and oracles"),
    ("what", 9, "the event, as listed below"),
    ("whom", 14, "receivers `-> r1-3`, sender `<- r2`, or both `r0 -> r2` for a message in flight"),
    ("kind", 16, "the kind of the message, fault or note"),
    ("view", 6, "the view of the message"),
    ("height", 7, "the height of the message"),
    ("subject", 8, "the first digits of the subject's digest: a block, a bundle, a state"),
    (
        "details",
        0,
        "the rest: m17 numbers a message at departure and arrival, f3 a fault;\n\
        #17 is an operation of a client",
    ),
];

/// The names of events: the third column.
pub const EVENT_NAMES: [(&str, &str); 49] = [
    ("sends", "a message leaves for the named receivers; promises only after they are on disk"),
    ("gets", "a replica reads a message that has arrived; it may still refuse it"),
    ("refuses", "a replica ignores a message or part of it, and why; mostly late or known already"),
    ("notes", "a transition of the protocol, with the protocol's name for it"),
    ("enters", "a replica enters another view"),
    ("timer", "a timer of the protocol has expired in this turn"),
    ("syncs", "written bytes of the log are durable now: they survive a crash"),
    ("decides", "a block is final for this height"),
    ("executes", "the service has applied blocks up to this height"),
    ("starts", "a replica is started on its disk"),
    ("crashes", "the machine of a replica loses power, or the process dies"),
    ("stays", "a replica does not start, and why"),
    ("pauses", "a process pauses until then"),
    ("drifts", "a replica's time runs faster or slower than the world's, in millionths"),
    ("disk", "a replica's disk fails like this from now on"),
    ("executor", "a replica's executor becomes slow, or normal again"),
    ("damage", "bytes on a replica's disk are damaged for good"),
    ("dials", "two replicas are connecting"),
    ("link", "the state of a connection: back, or a gap, where frames were lost for good"),
    ("closed", "the peer has closed a connection, and why"),
    ("behaves", "a Byzantine replica changes its behaviour"),
    ("corrupted", "an honest replica is Byzantine from now on"),
    ("exempt", "a replica is exempt from judgement: its protocol does not cover the fault it met"),
    ("lies", "a Byzantine replica sends this instead of its protocol's message"),
    ("withholds", "a Byzantine replica does not send this to those receivers"),
    ("says", "a replica that a test controls sends a message"),
    ("calls", "a client submits an operation"),
    ("hears", "a client receives a message of a replica"),
    ("believes", "a client accepts f + 1 equal answers to an operation"),
    ("is cut", "a client's connection to a replica breaks, for a while"),
    ("breaches", "a client breaks a rule of clients"),
    ("gives up", "a client cannot learn the outcome of an operation"),
    ("begins", "a fault begins"),
    ("ends", "a fault ends"),
    ("heals", "all faults of the network end"),
    ("partition", "a view of a twins scenario begins, with a partition of its own"),
    ("faults", "the network faults in effect"),
    ("plans", "a planned event happens"),
    ("loses", "a message is lost, and why"),
    ("doubles", "a message arrives twice"),
    ("resends", "a piece of a connection is lost and resent, so its content arrives late"),
    ("stalls", "bytes on a connection wait, because the link is cut"),
    ("breaks", "a connection is closed; missing bytes are resent on the next one"),
    ("drops", "a hook of a test drops a message"),
    ("holds", "a hook of a test holds a message until its release"),
    ("delays", "a hook of a test delays a message"),
    ("alters", "a hook of a test changes a message in flight"),
    ("releases", "the messages that hooks held leave"),
    ("fails", "an oracle has fired: the run ends here"),
];

/// Explains the columns and event names.
#[must_use]
pub fn legend() -> String {
    let mut text = String::from("The columns of a trace:\n");
    COLUMNS.iter().for_each(|(title, _, says)| explain(&mut text, title, says));
    text.push_str("The events:\n");
    EVENT_NAMES.iter().for_each(|(word, says)| explain(&mut text, word, says));
    text
}

fn explain(text: &mut String, word: &str, says: &str) {
    for (index, line) in says.lines().enumerate() {
        let _ = writeln!(text, "  {:<9}  {line}", if index == 0 { word } else { "" });
    }
}

/// Returns the titles of the columns, on one line that begins with `#`.
#[must_use]
pub fn heading() -> String {
    let mut line = String::new();
    for (index, (title, width, _)) in COLUMNS.into_iter().enumerate() {
        let _ = match index {
            0 => write!(line, "#{title:>w$}", w = width.saturating_sub(1)),
            _ => write!(line, "  {title:<width$}"),
        };
    }
    line
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let details = &self.details;
        let mark = if self.what == "fails" { ">>" } else { "" };
        let view = details.view.map(|view| format!("v{view}")).unwrap_or_default();
        let height = details.height.map(|height| format!("h{height}")).unwrap_or_default();
        let [_, (_, who, _), (_, what, _), (_, whom, _), (_, kind, _), (_, views, _), ..] = COLUMNS;
        let [.., (_, heights, _), (_, subject, _), _] = COLUMNS;
        let line = format!(
            "{mark:<2}{:>13}  {:<who$}  {:<what$}  {:<whom$}  {:<kind$}  {view:<views$}  {height:<heights$}  \
             {:<subject$}  {}",
            seconds(self.at),
            self.who,
            self.what,
            whom_text(self),
            details.kind,
            details.subject,
            details_text(self),
        );
        f.write_str(line.trim_end())
    }
}

/// Returns the fourth column.
fn whom_text(event: &Event) -> String {
    let to = compact_names(&event.details.to);
    match (event.details.from, to.is_empty()) {
        (None, true) => String::new(),
        (None, false) => format!("-> {to}"),
        (Some(from), true) => format!("<- {from}"),
        (Some(from), false) => format!("{from} -> {to}"),
    }
}

/// Returns the last column.
fn details_text(event: &Event) -> String {
    let sign = match event.what {
        "begins" | "ends" => 'f',
        _ => 'm',
    };
    let text = event.details.text.replace('\n', "; ");
    match event.number {
        Some(number) if text.is_empty() => format!("{sign}{number}"),
        Some(number) => format!("{sign}{number}, {text}"),
        None => text,
    }
}

/// Formats actors as `r0 r2-4 c1`: neighbours form a range.
#[must_use]
pub(crate) fn compact_names(whos: &[Who]) -> String {
    let place = |who: &Who| match who {
        Who::World => (0, 0),
        Who::Replica(id) => (1, id.index()),
        Who::Client(index) => (2, *index),
    };
    let mut text = String::new();
    let mut rest = whos;
    while let Some((first, others)) = rest.split_first() {
        let (sort, number) = place(first);
        let follows = |(away, who): &(usize, &Who)| place(who) == (sort, number.saturating_add(*away));
        let run = (1..).zip(others).take_while(follows).count();
        let gap = if text.is_empty() { "" } else { " " };
        let _ = match run {
            0 => write!(text, "{gap}{first}"),
            _ => write!(text, "{gap}{first}-{}", number.saturating_add(run)),
        };
        rest = others.get(run..).unwrap_or_default();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::EventDetails;
    use quorate_types::{Height, ReplicaId, Time, View};

    fn replicas(ids: &[u16]) -> Vec<Who> {
        ids.iter().map(|id| Who::Replica(ReplicaId(*id))).collect()
    }

    #[test]
    fn neighbours_form_a_range() {
        for (ids, text) in [
            (&[][..], ""),
            (&[3], "r3"),
            (&[0, 1], "r0-1"),
            (&[0, 2, 3, 4, 6], "r0 r2-4 r6"),
            (&[4, 3], "r4 r3"),
        ] {
            assert_eq!(compact_names(&replicas(ids)), text);
        }
        assert_eq!(compact_names(&[Who::Replica(ReplicaId(1)), Who::Client(2), Who::Client(3)]), "r1 c2-3");
    }

    #[test]
    fn legend_fits_a_terminal() {
        let long: Vec<String> =
            legend().lines().filter(|line| line.chars().count() > 98).map(str::to_owned).collect();
        assert!(long.is_empty(), "{long:#?}");
    }

    #[test]
    fn columns_are_aligned_with_the_heading() {
        let details = EventDetails::kind("pre-prepare").to(replicas(&[1, 2, 3])).about("ab12cd34");
        let details = details.at(Some(View(3)), Some(Height(17))).and("412 bytes");
        let who = Who::Replica(ReplicaId(0));
        let event = Event { at: Time(12_000_000_345), who, what: "sends", number: Some(9), details };
        let (heading, line) = (heading(), event.to_string());
        for (title, text) in [
            ("who", "r0"),
            ("what", "sends"),
            ("whom", "-> r1-3"),
            ("kind", "pre-prepare"),
            ("view", "v3"),
            ("height", "h17"),
            ("subject", "ab12cd34"),
            ("details", "m9, 412 bytes"),
        ] {
            let at = heading.find(&format!("  {title}")).unwrap() + 2;
            assert!(line[at..].starts_with(text), "{title}\n{heading}\n{line}");
        }
        assert!(line.starts_with("   12.000000345  r0 "), "{line}");
    }

    #[test]
    fn finding_is_marked_and_stays_on_one_line() {
        let details = EventDetails::text("agreement: two\nlines");
        let event = Event { at: Time(1), who: Who::World, what: "fails", number: None, details };
        let line = event.to_string();
        assert!(line.starts_with(">>  0.000000001  world  fails "), "{line}");
        assert!(line.ends_with("  agreement: two; lines"), "{line}");
    }
}
