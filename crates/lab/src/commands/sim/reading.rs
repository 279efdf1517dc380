//! Reading along in one run: as lines, and as a drawing.

use quorate_node::commands::arguments::refuse;
use quorate_node::config::parse_seconds;
use quorate_node::exit::Failure;
use quorate_node::out;
use quorate_sim::Report;
use quorate_sim::trace::{Caption, Drawing, Event, Pick, heading, legend};
use quorate_types::{ReplicaId, Time};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::path::PathBuf;
use std::rc::Rc;
use std::str::FromStr;

/// Options for reading along.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct ReadArgs {
    /// Print what happens in the run, one line each, in columns that are explained first; needs --seed
    #[arg(long, requires = "seed")]
    pub(super) trace: bool,
    /// Draw the run as a space-time diagram, on a page of HTML that needs no network; needs --seed
    #[arg(long, value_name = "FILE", requires = "seed")]
    pub(super) html: Option<PathBuf>,
    /// Trace and drawing begin at this second of virtual time
    #[arg(long, value_name = "SECONDS", requires = "seed")]
    from: Option<Seconds>,
    /// Trace and drawing end at this second of virtual time
    #[arg(long, value_name = "SECONDS", requires = "seed")]
    to: Option<Seconds>,
    /// Trace and drawing show the last so many seconds of the run: those before the failure, where it fails
    #[arg(long, value_name = "SECONDS", requires = "seed")]
    last: Option<Seconds>,
    /// Of the trace, only lines of these: who (r2, c0, world), view (v3), height (h17), what happens (refuses), kind of
    /// message (prepare). Several of one sort are alternatives: r1,r3,h17 is what r1 and r3 did at height 17
    #[arg(long, value_name = "LIST", requires = "trace")]
    only: Option<Pick>,
}

impl ReadArgs {
    /// Its options, and whether they are given.
    pub(super) fn given(&self) -> Vec<(&'static str, bool)> {
        vec![
            ("--trace", self.trace),
            ("--html", self.html.is_some()),
            ("--from", self.from.is_some()),
            ("--to", self.to.is_some()),
            ("--last", self.last.is_some()),
            ("--only", self.only.is_some()),
        ]
    }

    /// Which part is shown matters only where something is.
    pub(super) fn check(&self) -> Result<(), Failure> {
        if self.trace || self.html.is_some() {
            return Ok(());
        }
        refuse(&self.given(), "it is about a trace or a drawing; ask for one with --trace or --html")
    }
}

/// A moment of a run, or a span, as the command line names it: 12.345, 500ms.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Seconds(Time);

impl FromStr for Seconds {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let nanos = u64::try_from(parse_seconds(text)?.as_nanos());
        nanos.map(|nanos| Self(Time(nanos))).map_err(|_| "expected fewer seconds".to_owned())
    }
}

/// The reader of a run.
struct Desk {
    args: ReadArgs,
    only: Pick,
    drawing: Option<Drawing>,
    /// Events that may be among the last.
    kept: VecDeque<Event>,
}

impl Desk {
    fn hear(&mut self, event: &Event) {
        let ReadArgs { from, to, last, .. } = &self.args;
        let is_early = from.is_some_and(|Seconds(from)| event.at < from);
        let is_late = to.is_some_and(|Seconds(to)| event.at > to);
        if (is_early || is_late) && event.what != "fails" {
            return;
        }
        match *last {
            None => self.show(event),
            Some(Seconds(last)) => {
                self.kept.push_back(event.clone());
                while self.kept.front().is_some_and(|first| event.at.since(first.at) > last.0) {
                    self.kept.pop_front();
                }
            }
        }
    }

    fn show(&mut self, event: &Event) {
        if self.args.trace && self.only.takes(event) {
            // A reader that goes away early must not stop the run: its verdict is what counts.
            let _ = out::line(event);
        }
        if let Some(drawing) = &mut self.drawing {
            drawing.add(event);
        }
    }
}

/// Somebody who reads along.
pub(super) struct Reading(Rc<RefCell<Desk>>);

impl Reading {
    /// Begins, and says what the columns mean. `n` replicas and `clients` clients take part.
    pub(super) fn begin(args: &ReadArgs, n: usize, clients: usize) -> Result<Self, Failure> {
        if args.trace {
            for line in legend().lines() {
                out::line(format!("# {line}"))?;
            }
            out::line(heading())?;
        }
        let replicas = (0..u16::try_from(n).unwrap_or(u16::MAX)).map(ReplicaId);
        let drawing = args.html.is_some().then(|| Drawing::new(replicas, clients));
        let only = args.only.clone().unwrap_or_default();
        let desk = Desk { args: args.clone(), only, drawing, kept: VecDeque::new() };
        Ok(Self(Rc::new(RefCell::new(desk))))
    }

    /// The reader of the trace.
    pub(super) fn reader(&self) -> impl FnMut(&Event) + 'static {
        let desk = Rc::clone(&self.0);
        move |event| desk.borrow_mut().hear(event)
    }

    /// The run is over. `again` is the command that repeats it.
    pub(super) fn end(self, protocol: &str, report: &Report, again: &str) -> Result<(), Failure> {
        let mut desk = self.0.borrow_mut();
        for event in std::mem::take(&mut desk.kept) {
            desk.show(&event);
        }
        if desk.args.trace {
            for line in verdict(report, again) {
                out::line(format!("# {line}").trim_end())?;
            }
        }
        if let (Some(file), Some(drawing)) = (&desk.args.html, &desk.drawing) {
            let page = drawing.page(&caption(protocol, report, again));
            let written = std::fs::write(file, &page);
            written.map_err(|error| Failure::run(format!("{}: {error}", file.display())))?;
            let megabytes = page.len() / 100_000;
            eprintln!(
                "{}: {} events, {}.{} MB",
                file.display(),
                drawing.count(),
                megabytes / 10,
                megabytes % 10
            );
        }
        Ok(())
    }
}

/// The result of the run, for readers who do not know the code.
pub(super) fn verdict(report: &Report, again: &str) -> Vec<String> {
    let mut lines = Vec::new();
    let mut say = |text: String| lines.extend(text.lines().map(str::to_owned));
    say("-".repeat(100));
    match &report.failure {
        None => say(format!("No oracle has found anything. {report}")),
        Some(failure) => {
            say(format!("FAILED: {failure}"));
            say(format!("What that means: {}", failure.oracle.meaning()));
        }
    }
    say(report.facts());
    say(format!("Again:             {again}"));
    if report.failure.is_some() {
        say(format!("What led to it:    {again} --trace --last 1"));
        say(format!("As a drawing:      {again} --html run.html"));
    }
    lines
}

fn caption(protocol: &str, report: &Report, again: &str) -> Caption {
    let failure = report.failure.as_ref();
    let hosts = report.byzantine.iter().map(|(id, host)| (format!("r{id}"), host.name().to_owned()));
    Caption {
        title: format!("{protocol}, seed {}", report.seed),
        verdict: match failure {
            Some(failure) => {
                let what = failure.what.lines().next().unwrap_or_default();
                format!("FAILED, {}: {what}", failure.oracle)
            }
            None => "no oracle has found anything".to_owned(),
        },
        facts: report.facts(),
        about: verdict(report, again).join("\n"),
        failure: report.failure.clone(),
        hosts: hosts.collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_read_as_they_are_printed() {
        for (text, nanos) in [
            ("12", Some(12_000_000_000)),
            ("0.000000345", Some(345)),
            ("500ms", Some(500_000_000)),
            ("-1", None),
            ("soon", None),
            ("NaN", None),
            ("1e30", None),
        ] {
            assert_eq!(text.parse().ok().map(|Seconds(Time(nanos))| nanos), nanos, "{text}");
        }
    }
}
