//! A run as a space-time diagram: one page of HTML that needs neither a network nor another file.
//!
//! The page has the events in columns of numbers, with a table of the strings that they refer to. A script in the
//! page draws them. A run of a minute has some hundred thousand events, so the script draws only the visible ones.

use super::event::Event;
use super::lines::{COLUMNS, heading, legend};
use super::who::Who;
use crate::oracles::Failure;
use quorate_history::quoted;
use quorate_types::Time;
use std::collections::BTreeMap;
use std::fmt::{Display, Write as _};

const PAGE: &str = include_str!("view.html");
const SCRIPT: &str = concat!(include_str!("run.js"), "\n", include_str!("view.js"));

/// The texts of the page about the run.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Caption {
    /// The run.
    pub title: String,
    /// The result in a few words.
    pub verdict: String,
    /// The conditions of the run.
    pub facts: String,
    /// The finding, and the command that repeats the run.
    pub about: String,
    /// The failure.
    pub failure: Option<Failure>,
    /// Byzantine replicas, with their hosts.
    pub hosts: BTreeMap<String, String>,
}

/// A table of strings, each once.
#[derive(Debug)]
struct Table {
    places: BTreeMap<String, usize>,
    strings: Vec<String>,
}

impl Table {
    /// Returns the index of a string. The empty string has index zero.
    fn place(&mut self, text: &str) -> usize {
        if let Some(place) = self.places.get(text) {
            return *place;
        }
        let place = self.strings.len();
        self.strings.push(text.to_owned());
        self.places.insert(text.to_owned(), place);
        place
    }
}

impl Default for Table {
    fn default() -> Self {
        let mut table = Self { places: BTreeMap::new(), strings: Vec::new() };
        table.place("");
        table
    }
}

/// The columns of the page.
const FIELDS: [&str; 11] =
    ["at", "who", "what", "from", "to", "kind", "view", "height", "subject", "text", "number"];

/// A drawing of a run.
#[derive(Default, Debug)]
pub struct Drawing {
    lanes: Vec<Who>,
    table: Table,
    columns: [String; FIELDS.len()],
    first: Option<Time>,
    last: Time,
    count: u64,
}

impl Drawing {
    /// Creates a page with lanes for these clients and replicas.
    #[must_use]
    pub fn new(replicas: impl IntoIterator<Item = quorate_types::ReplicaId>, clients: usize) -> Self {
        let clients = (0..clients).map(Who::Client);
        Self { lanes: clients.chain(replicas.into_iter().map(Who::Replica)).collect(), ..Self::default() }
    }

    /// Adds an event. Events have to be added in the order of time.
    pub fn add(&mut self, event: &Event) {
        let details = &event.details;
        let to: Vec<String> = details.to.iter().map(Who::to_string).collect();
        let from = details.from.map(|from| from.to_string()).unwrap_or_default();
        let before = if self.first.is_some() { self.last } else { Time::ZERO };
        let text = details.text.replace('\n', "; ");
        let strings = [
            event.who.to_string(),
            event.what.to_owned(),
            from,
            to.join(" "),
            details.kind.clone(),
            details.subject.clone(),
            text,
        ];
        let [who, what, from, to, kind, subject, text] =
            strings.map(|text| u64::try_from(self.table.place(&text)).unwrap_or(0));
        // Zero means none, so view zero and height zero are stored as one.
        let view = details.view.map_or(0, |view| view.0.saturating_add(1));
        let height = details.height.map_or(0, |height| height.0.saturating_add(1));
        let number = event.number.unwrap_or(0);
        let at = event.at.since(before);
        let row = [at, who, what, from, to, kind, view, height, subject, text, number];
        for (column, value) in self.columns.iter_mut().zip(row) {
            let _ = write!(column, "{value},");
        }
        self.first.get_or_insert(event.at);
        self.last = self.last.max(event.at);
        self.count = self.count.saturating_add(1);
    }

    /// Returns the number of events.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Returns the page.
    #[must_use]
    pub fn page(&self, caption: &Caption) -> String {
        let title = escaped(&caption.title);
        let page = PAGE.replace("{{title}}", &title).replace("{{script}}", SCRIPT.trim_end());
        // The run's texts are inserted last, so that nothing in them is taken for a placeholder.
        let (before, after) = page.split_once("{{data}}").unwrap_or((&page, ""));
        format!("{before}{}{after}", self.data(caption))
    }

    fn data(&self, caption: &Caption) -> String {
        let failure = caption.failure.as_ref();
        let hosts = caption.hosts.iter().map(|(who, host)| format!("{}:{}", string(who), string(host)));
        let fields = [
            ("begin", self.first.unwrap_or_default().0.to_string()),
            ("end", self.last.0.to_string()),
            ("failure", failure.map_or("null".to_owned(), |failure| failure.at.0.to_string())),
            ("oracle", string(&failure.map(|failure| failure.oracle.to_string()).unwrap_or_default())),
            ("verdict", string(&caption.verdict)),
            ("facts", string(&caption.facts)),
            ("about", string(&format!("{}\n{MOUSE}\n{}", caption.about, legend()))),
            ("heading", string(&heading())),
            ("columns", array(COLUMNS.iter().map(|(_, width, _)| width))),
            ("lanes", array(self.lanes.iter().map(|who| string(&who.to_string())))),
            ("hosts", format!("{{{}}}", hosts.collect::<Vec<_>>().join(","))),
            ("strings", array(self.table.strings.iter().map(|text| string(text)))),
        ];
        let mut data = String::from("{");
        for (name, value) in fields {
            let _ = writeln!(data, "{}:{value},", string(name));
        }
        let columns = FIELDS.iter().zip(&self.columns);
        let columns =
            columns.map(|(name, column)| format!("{}:[{}]", string(name), column.trim_end_matches(',')));
        data.push_str(&columns.collect::<Vec<_>>().join(",\n"));
        data.push('}');
        data
    }
}

/// Help for the reader of the page.
const MOUSE: &str = "\
The diagram: time runs from left to right, every actor has a lane, every arrow is a message.
  wheel            zoom; with shift, or sideways: move; + - and the arrow keys do the same
  drag             move; in the strip below: jump
  hover            the lines of the element under the pointer
  click            the lines around it, below
  buttons          switch lanes, kinds of messages and marks; a double click leaves only that one
  red cross        a message that was lost, drawn part of its way; a dashed one with a ring never arrived
  band on a lane   the view that the replica is in; dashed: it is down
  bars on top      faults of the network while they last
  red line         the finding of the oracle
";

/// Returns JSON that may be part of HTML.
fn string(text: &str) -> String {
    quoted(text).replace('<', "\\u003c")
}

fn array(items: impl Iterator<Item = impl Display>) -> String {
    let items: Vec<String> = items.map(|item| item.to_string()).collect();
    format!("[{}]", items.join(","))
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::oracles::Oracle;
    use crate::trace::EventDetails;
    use quorate_types::{ReplicaId, View};

    fn page() -> String {
        let mut drawing = Drawing::new((0..4).map(ReplicaId), 2);
        let details = EventDetails::kind("vote").to([Who::Replica(ReplicaId(1))]).at(Some(View(0)), None);
        let details = details.and("</script> {{data}} \"x\"");
        for at in [5, 9] {
            let who = Who::Replica(ReplicaId(0));
            drawing.add(&Event {
                at: Time(at),
                who,
                what: "sends",
                number: Some(3),
                details: details.clone(),
            });
        }
        let failure = Failure { at: Time(9), oracle: Oracle::Agreement, what: "two <blocks>".to_owned() };
        drawing.page(&Caption {
            title: "a & b".to_owned(),
            failure: Some(failure),
            hosts: BTreeMap::from([("r2".to_owned(), "twin".to_owned())]),
            ..Caption::default()
        })
    }

    #[test]
    fn page_needs_no_other_file() {
        let page = page();
        for outside in ["http", "src=", "href=", "@import", "url(", "fetch(", "import("] {
            assert!(!page.contains(outside), "{outside}");
        }
        assert!(page.contains("<title>a &amp; b</title>"));
        for tag in ["html", "head", "body", "header", "script", "style", "canvas", "noscript", "pre"] {
            let opened =
                page.matches(&format!("<{tag}>")).count() + page.matches(&format!("<{tag} ")).count();
            assert_eq!(opened, page.matches(&format!("</{tag}>")).count(), "{tag}");
        }
    }

    #[test]
    fn page_has_every_actor_and_event() {
        let page = page();
        assert!(page.contains(r#""lanes":["c0","c1","r0","r1","r2","r3"]"#));
        assert!(page.contains(r#""hosts":{"r2":"twin"}"#));
        assert!(page.contains(r#""strings":["","r0","sends","r1","vote","\u003c/script> {{data}} \"x\""]"#));
        assert!(page.contains(r#""at":[5,4]"#) && page.contains(r#""who":[1,1]"#));
        assert!(page.contains(r#""view":[1,1]"#) && page.contains(r#""number":[3,3]"#));
        assert!(page.contains(r#""failure":9"#) && page.contains(r#""oracle":"agreement""#));
    }
}
