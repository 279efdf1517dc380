//! The trace of one run: as lines, and as a drawing.

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

/// Options of trace and drawing.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct ReadArgs {
    /// Print the events of the run, one on each line, after an explanation of the columns; needs --seed
    #[arg(long, requires = "seed")]
    pub(super) trace: bool,
    /// Draw the run as a space-time diagram, on an HTML page that needs no network; needs --seed
    #[arg(long, value_name = "FILE", requires = "seed")]
    pub(super) html: Option<PathBuf>,
    /// Trace and drawing begin at this second of virtual time
    #[arg(long, value_name = "SECONDS", requires = "seed")]
    from: Option<Seconds>,
    /// Trace and drawing end at this second of virtual time
    #[arg(long, value_name = "SECONDS", requires = "seed")]
    to: Option<Seconds>,
    /// Trace and drawing show this many last seconds of the run: those before the failure, if it fails
    #[arg(long, value_name = "SECONDS", requires = "seed")]
    last: Option<Seconds>,
    /// Restrict the trace to lines with these: place (r2, c0, world), view (v3), height (h17), event (refuses), kind of
    /// message (prepare). Several of one sort are alternatives: r1,r3,h17 selects r1 and r3 at height 17
    #[arg(long, value_name = "LIST", requires = "trace")]
    only: Option<Pick>,
}

impl ReadArgs {
    /// Returns the names of the options, and whether they are given.
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

    /// Checks that options for a part come with a trace or a drawing.
    pub(super) fn check(&self) -> Result<(), Failure> {
        if self.trace || self.html.is_some() {
            return Ok(());
        }
        refuse(&self.given(), "the option is for a trace or a drawing; add --trace or --html")
    }
}

/// A time or a span of a run on the command line: 12.345, 500ms.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Seconds(Time);

impl FromStr for Seconds {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let nanos = u64::try_from(parse_seconds(text)?.as_nanos());
        nanos.map(|nanos| Self(Time(nanos))).map_err(|_| "expected fewer seconds".to_owned())
    }
}

/// The state of the reader of a trace.
struct TraceReader {
    args: ReadArgs,
    only: Pick,
    drawing: Option<Drawing>,
    /// Events that may belong to the last seconds.
    kept: VecDeque<Event>,
}

impl TraceReader {
    fn add(&mut self, event: &Event) {
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
            // A closed output must not stop the run, because the verdict counts.
            let _ = out::line(event);
        }
        if let Some(drawing) = &mut self.drawing {
            drawing.add(event);
        }
    }
}

/// A trace that is being printed and drawn.
pub(super) struct Reading(Rc<RefCell<TraceReader>>);

impl Reading {
    /// Begins a trace with an explanation of its columns. `n` replicas and `clients` clients take part.
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
        let reader = TraceReader { args: args.clone(), only, drawing, kept: VecDeque::new() };
        Ok(Self(Rc::new(RefCell::new(reader))))
    }

    /// Returns the reader of the trace.
    pub(super) fn reader(&self) -> impl FnMut(&Event) + 'static {
        let reader = Rc::clone(&self.0);
        move |event| reader.borrow_mut().add(event)
    }

    /// Ends the trace. `again` is the command that repeats the run.
    pub(super) fn end(self, protocol: &str, report: &Report, again: &str) -> Result<(), Failure> {
        let mut reader = self.0.borrow_mut();
        for event in std::mem::take(&mut reader.kept) {
            reader.show(&event);
        }
        if reader.args.trace {
            for line in verdict(report, again) {
                out::line(format!("# {line}").trim_end())?;
            }
        }
        if let (Some(file), Some(drawing)) = (&reader.args.html, &reader.drawing) {
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

/// Describes the result of the run for readers who do not know the code.
pub(super) fn verdict(report: &Report, again: &str) -> Vec<String> {
    let mut lines = Vec::new();
    let mut add = |text: String| lines.extend(text.lines().map(str::to_owned));
    add("-".repeat(100));
    match &report.failure {
        None => add(format!("No oracle has found anything. {report}")),
        Some(failure) => {
            add(format!("FAILED: {failure}"));
            add(format!("What that means: {}", failure.oracle.meaning()));
        }
    }
    add(report.facts());
    add(format!("Again:             {again}"));
    if report.failure.is_some() {
        add(format!("What led to it:    {again} --trace --last 1"));
        add(format!("As a drawing:      {again} --html run.html"));
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
    fn printed_moments_can_be_parsed() {
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
