//! Events as lines of fixed columns, and the meaning of columns and event names.

use super::event::Event;
use super::who::{Who, seconds};
use std::fmt::{self, Write as _};

/// The columns: title, width, meaning.
pub const COLUMNS: [(&str, usize, &str); 9] = [
    ("seconds", 15, "virtual time; `>>` before it marks what an oracle found"),
    ("who", 5, "who does it: r2 is replica 2, c0 is client 0; world is network, power and oracles"),
    ("what", 9, "what happens, as listed below"),
    ("whom", 14, "`-> r1-3` to these; `<- r2` from that one; `r0 -> r2` on the way between them"),
    ("kind", 16, "the kind of the message, fault or note"),
    ("view", 6, "the view that it belongs to"),
    ("height", 7, "the height that it belongs to"),
    ("subject", 8, "the first digits of the digest that it speaks of: a block, a bundle, a state"),
    (
        "details",
        0,
        "the rest: m17 is a message, where it leaves and where it arrives; f3 is a fault;\n\
        #17 is an operation of a client",
    ),
];

/// The names of events: the third column.
pub const EVENT_NAMES: [(&str, &str); 49] = [
    ("sends", "a message leaves, for all that are named; promises only after they are on disk"),
    ("gets", "a replica reads a message that has arrived; it may still refuse it"),
    ("refuses", "a replica does not act (fully) on what it got, and why; mostly late or known already"),
    ("notes", "a transition of the protocol, as the protocol calls it"),
    ("enters", "a replica is in another view"),
    ("timer", "a timer of the protocol was due in this turn"),
    ("syncs", "what was written to the log is durable now: a crash does not take it back"),
    ("decides", "a block is final for this height"),
    ("executes", "blocks were applied to the service, up to this height"),
    ("starts", "a replica was started on what its disk has"),
    ("crashes", "the machine of a replica loses power"),
    ("stays", "a replica that was to be started does not open, and why"),
    ("pauses", "a process stands still, until then"),
    ("drifts", "a replica's time passes faster or slower than the world's, by so many millionths"),
    ("disk", "from now on this is wrong with a replica's disk"),
    ("labours", "a replica's executor is slow, or no longer"),
    ("damage", "something that a replica's disk had is damaged for good"),
    ("dials", "two replicas are connecting"),
    ("link", "what a replica hears of a connection: back, or a gap, where frames were lost for good"),
    ("closed", "the other side has closed a connection, and why"),
    ("mood", "a Byzantine replica begins to behave in another way"),
    ("corrupted", "an honest replica is Byzantine from now on"),
    ("adrift", "a replica has met what its protocol does not promise to survive: it is judged no more"),
    ("lies", "a Byzantine replica says this in the place of what its protocol made it say"),
    ("withholds", "a Byzantine replica does not send this to those: its mood"),
    ("says", "a puppet of a test sends a message"),
    ("calls", "a client wants an operation done"),
    ("hears", "a client reads what a replica tells it"),
    ("believes", "a client has f + 1 equal answers for an operation"),
    ("is cut", "a client's connection to a replica breaks, for a while"),
    ("misuses", "a client does what no client may do"),
    ("gives up", "a client will not learn what became of an operation"),
    ("begins", "a fault begins"),
    ("ends", "a fault ends"),
    ("heals", "all faults of the network end"),
    ("parts", "a view begins in which the replicas of a scenario are divided otherwise"),
    ("weather", "the faults of the network that there are now"),
    ("plans", "the world does something that was planned"),
    ("loses", "a message is lost, and why"),
    ("doubles", "a message arrives twice"),
    ("resends", "a piece of a connection is lost and sent again: what is in it arrives late"),
    ("stalls", "bytes on a connection wait, because nothing passes"),
    ("breaks", "a connection is gone; what did not arrive is sent again on the next"),
    ("drops", "a hook of a test lets a message disappear"),
    ("holds", "a hook of a test keeps a message until it is released"),
    ("delays", "a hook of a test lets a message leave later"),
    ("alters", "a hook of a test changes a message on its way"),
    ("releases", "what hooks have held leaves"),
    ("fails", "an oracle has found what must not be: the run ends here"),
];

/// Explains the columns and event names.
#[must_use]
pub fn legend() -> String {
    let mut text = String::from("The columns of a trace:\n");
    COLUMNS.iter().for_each(|(title, _, says)| explain(&mut text, title, says));
    text.push_str("What can happen:\n");
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
            "{mark:<2}{:>13}  {:<who$}  {:<what$}  {:<whom$}  {:<kind$}  {view:<views$}  {height:<heights$}  {:<subject$}  {}",
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
