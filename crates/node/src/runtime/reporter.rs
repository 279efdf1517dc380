//! Reports for the operator: the cause of slowness of this replica, and the present leader. Each line names the disk or the
//! machine that causes it. Repeated events have few lines.

use super::log_lines::{LineLimiter, LogLine};
use quorate_consensus::Alarm;
use quorate_replica::GuardStatus;
use quorate_types::{Height, ReplicaId, Time, View};

/// The least time of a sync, or of a pass of the loop, that delays all others: half of the shortest timeout. Where the
/// protocol assumes a bound on delays, a quarter of the bound counts if it is shorter.
const SLOW_NS: u64 = 200_000_000;
/// The period of the inspection of all round trips.
const ROUND_TRIPS_CHECK_NS: u64 = 1_000_000_000;
/// The least time between two lines about round trips.
const ROUND_TRIPS_LINE_NS: u64 = 60_000_000_000;
/// The period of the check whether peers keep the next height.
const BEHIND_CHECK_NS: u64 = 1_000_000_000;

/// Events since the start, and the due lines about them.
#[derive(Debug, Default)]
pub(super) struct EventReporter {
    syncs: LineLimiter,
    pauses: LineLimiter,
    views: LineLimiter,
    view: View,
    longest_sync_ns: u64,
    longest_pause_ns: u64,
    doubts: LineLimiter,
    /// The number of doubts that were counted.
    doubts_counted: u64,
    /// Whether the last line about doubt reports a present doubt.
    doubt_reported: bool,
    alarms: LineLimiter,
    alarms_counted: u64,
    /// Whether the last line about the peers' logs reports that no peer keeps the next height.
    behind_reported: bool,
    behind_check_at: Time,
    round_trips_check_at: Time,
    round_trips_line_at: Time,
    /// The bound on delays.
    delta_ns: Option<u64>,
}

impl EventReporter {
    /// Returns a reporter without events. `delta_ns` is the bound on delays that the protocol assumes.
    pub(super) fn new(delta_ns: Option<u64>) -> Self {
        Self { delta_ns, ..Self::default() }
    }

    /// Notes the duration of a pass of the loop and of its longest sync.
    pub(super) fn after_pass(&mut self, now: Time, pass_ns: u64, sync_ns: u64) -> Option<LogLine> {
        self.longest_sync_ns = self.longest_sync_ns.max(sync_ns);
        self.longest_pause_ns = self.longest_pause_ns.max(pass_ns);
        let slow_ns = self.delta_ns.map_or(SLOW_NS, |delta_ns| SLOW_NS.min(delta_ns / 4));
        let of = self.delta_ns.map_or(String::new(), |delta_ns| format!(" of delta_ms = {}", ms(delta_ns)));
        let (pass_ms, sync_ms) = (ms(pass_ns), ms(sync_ns));
        if sync_ns >= slow_ns {
            let often = self.syncs.count_due(now)?;
            Some(LogLine::Warn(format!(
                "the disk of data_dir took {sync_ms} ms{of} for a sync{often}: it is slow, busy or failing"
            )))
        } else if pass_ns >= slow_ns {
            let often = self.pauses.count_due(now)?;
            Some(LogLine::Warn(format!(
                "this replica stood still for {pass_ms} ms{of}{often}: the machine is busy, the application is slow, or the \
                 process was stopped"
            )))
        } else {
            None
        }
    }

    /// Notes the view after each pass, and reports another view with its reason. Of many views in a short time the first has
    /// a line at once, and the last when the silence ends.
    pub(super) fn view(
        &mut self,
        now: Time,
        view: View,
        leader: ReplicaId,
        reason: impl FnOnce() -> String,
    ) -> Option<LogLine> {
        if view != self.view {
            self.view = view;
            self.views.count();
        }
        let often = self.views.due(now)?;
        let reason = match reason() {
            // There was no view change in this incarnation.
            none if none.is_empty() => "this replica has started in it".to_owned(),
            reason => reason,
        };
        Some(LogLine::Info(format!("view {view}, led by replica {leader}{often}: {reason}")))
    }

    /// Notes after each pass whether more than f peers are late, and the number of such doubts so far. Reports the beginning
    /// of a doubt, and the end of a reported one. `guard` gives the details.
    pub(super) fn doubt(
        &mut self,
        now: Time,
        (doubt, doubts): (bool, u64),
        guard: impl FnOnce() -> Option<GuardStatus>,
    ) -> Option<LogLine> {
        if doubts != self.doubts_counted {
            self.doubts_counted = doubts;
            self.doubts.count();
        }
        if let Some(often) = self.doubts.due(now) {
            self.doubt_reported = true;
            let guard = guard()?;
            let bound = ms(guard.bound.delta_ns);
            let late: Vec<String> = guard.late.iter().map(|(id, _)| id.to_string()).collect();
            let ids =
                if late.is_empty() { String::new() } else { format!(" (replicas {})", late.join(", ")) };
            let effect = if guard.bound.guarded {
                "this replica decides nothing by silence"
            } else {
                "in mode unguarded this replica ignores it"
            };
            return Some(LogLine::Warn(format!(
                "too many replicas{ids} are later than delta_ms = {bound} allows{often}: {effect} until that is over"
            )));
        }
        let is_over = self.doubt_reported && !doubt;
        self.doubt_reported &= doubt;
        is_over.then(|| LogLine::Warn("enough replicas answer within delta_ms again".to_owned()))
    }

    /// Checks after each pass whether no peer keeps the next height any more. Reports the beginning and the end.
    pub(super) fn too_far_behind(
        &mut self,
        now: Time,
        is_out: impl FnOnce() -> bool,
        next: Height,
    ) -> Option<LogLine> {
        // The answer takes a list of all peers, so the check is rare.
        if now < self.behind_check_at {
            return None;
        }
        self.behind_check_at = now.plus(BEHIND_CHECK_NS);
        let is_out = is_out();
        if is_out == self.behind_reported {
            return None;
        }
        self.behind_reported = is_out;
        Some(LogLine::Warn(if is_out {
            format!(
                "this replica is too far behind: no peer keeps height {next} any more. It receives a state of its peers, and counts \
                 among the f faulty replicas until then"
            )
        } else {
            format!("a peer keeps height {next} again: this replica can catch up")
        }))
    }

    /// Notes after each pass the last alarm of the protocol that did not stop it, and the number of such alarms.
    pub(super) fn alarm(&mut self, now: Time, alarm: Option<Alarm>, alarms: u64) -> Option<LogLine> {
        if alarms != self.alarms_counted {
            self.alarms_counted = alarms;
            self.alarms.count();
        }
        let often = self.alarms.due(now)?;
        Some(LogLine::Warn(format!("{}{often}", alarm?)))
    }

    /// Inspects the round trips from time to time after a pass, and reports them when they come near the bound.
    pub(super) fn round_trips(
        &mut self,
        now: Time,
        guard: impl FnOnce() -> Option<GuardStatus>,
    ) -> Option<LogLine> {
        if now < self.round_trips_check_at || now < self.round_trips_line_at {
            return None;
        }
        self.round_trips_check_at = now.plus(ROUND_TRIPS_CHECK_NS);
        let guard = guard().filter(|guard| guard.p999_ns > guard.bound.delta_ns / 2)?;
        self.round_trips_line_at = now.plus(ROUND_TRIPS_LINE_NS);
        let (bound, longest) = (ms(guard.bound.delta_ns), ms(guard.max_ns));
        let took = guard.p999_ns / 1_000;
        Some(LogLine::Warn(format!(
            "one of 1000 round trips takes more than {took} us, the longest {longest} ms, of delta_ms = {bound}: a cluster \
             with a larger delta_ms would be safer"
        )))
    }

    /// Returns the longest sync and the longest pass of the loop so far, in milliseconds.
    pub(super) fn longest_ms(&self) -> (u64, u64) {
        (ms(self.longest_sync_ns), ms(self.longest_pause_ns))
    }
}

fn ms(ns: u64) -> u64 {
    ns / 1_000_000
}

#[cfg(test)]
mod tests {
    use super::super::log_lines::LINE_EVERY_NS;
    use super::*;
    use quorate_consensus::Synchrony;

    fn text(line: Option<LogLine>) -> String {
        line.unwrap().text().to_owned()
    }

    #[test]
    fn slow_disk_is_named_in_few_lines() {
        let mut reporter = EventReporter::default();
        assert_eq!(reporter.after_pass(Time(1), SLOW_NS - 1, SLOW_NS - 1), None, "fast enough");
        let line = text(reporter.after_pass(Time(2), 2 * SLOW_NS, SLOW_NS));
        assert!(line.starts_with("the disk of data_dir took 200 ms"), "{line}");
        let line = text(reporter.after_pass(Time(3), SLOW_NS, 0));
        assert!(line.starts_with("this replica stood still for 200 ms"), "the disk is not to blame: {line}");
        for now in 4..20 {
            assert_eq!(reporter.after_pass(Time(now), SLOW_NS, SLOW_NS), None);
        }
        let line = text(reporter.after_pass(Time(2 + LINE_EVERY_NS), SLOW_NS, SLOW_NS));
        assert!(line.contains("(17 times since the last such line)"), "{line}");
        assert_eq!(reporter.longest_ms(), (200, 400));
    }

    #[test]
    fn quarter_of_the_bound_on_delays_is_slow() {
        let mut reporter = EventReporter::new(Some(50_000_000));
        assert_eq!(reporter.after_pass(Time(1), 12_000_000, 12_000_000), None);
        let line = text(reporter.after_pass(Time(2), 14_000_000, 13_000_000));
        assert!(line.starts_with("the disk of data_dir took 13 ms of delta_ms = 50 for a sync"), "{line}");
        let line = text(reporter.after_pass(Time(3), 40_000_000, 0));
        assert!(line.starts_with("this replica stood still for 40 ms of delta_ms = 50:"), "{line}");
    }

    #[test]
    fn new_view_is_reported_with_its_reason() {
        let mut reporter = EventReporter::default();
        let mut leads = |now, view| {
            reporter.view(Time(now), View(view), ReplicaId(1), || "a request was overdue".to_owned())
        };
        assert_eq!(leads(1, 0), None, "the first view needs no line");
        assert_eq!(text(leads(2, 1)), "view 1, led by replica 1: a request was overdue");
        assert_eq!(leads(3, 1), None);
        // Many view changes in a short time do not fill the log.
        assert!((2..1_000).all(|view| leads(4, view).is_none()));
        // The last view is reported although no further event happens.
        assert_eq!(leads(1 + LINE_EVERY_NS, 999), None);
        let line = text(leads(2 + LINE_EVERY_NS, 999));
        assert!(line.starts_with("view 999, led by replica 1 (998 times since"), "{line}");
        assert_eq!(leads(3 + 2 * LINE_EVERY_NS, 999), None);
    }

    fn guard(p999_ms: u64, late: &[u16]) -> GuardStatus {
        GuardStatus {
            bound: Synchrony { delta_ns: 50_000_000, guarded: true },
            p999_ns: p999_ms * 1_000_000,
            max_ns: 40_000_000,
            late: late.iter().map(|id| (ReplicaId(*id), Time(1))).collect(),
            doubt: !late.is_empty(),
            doubts: 1,
            last_doubt: None,
            drift_ppm: None,
            probes: 0,
            lags: 0,
            lag_max_ns: 0,
        }
    }

    #[test]
    fn doubt_is_reported_when_it_begins_and_when_it_ends() {
        let mut reporter = EventReporter::default();
        let mut doubt =
            |now, doubt, doubts| reporter.doubt(Time(now), (doubt, doubts), || Some(guard(9, &[1, 2])));
        assert_eq!(doubt(1, false, 0), None);
        let line = text(doubt(2, true, 1));
        assert!(
            line.contains(
                "(replicas 1, 2) are later than delta_ms = 50 allows: this replica decides nothing"
            ),
            "{line}"
        );
        assert_eq!(doubt(3, true, 1), None);
        assert!(text(doubt(4, false, 1)).starts_with("enough replicas"));
        // A repeated doubt has one line when the last line is old enough, and one for its end.
        assert!((5..100).all(|count| doubt(count, count % 2 == 0, count).is_none()));
        let line = text(doubt(2 + LINE_EVERY_NS, false, 99));
        assert!(line.contains("(95 times since the last such line)"), "{line}");
        assert!(text(doubt(3 + LINE_EVERY_NS, false, 99)).starts_with("enough replicas"));
        assert_eq!(doubt(3 + 2 * LINE_EVERY_NS, false, 99), None);
    }

    #[test]
    fn alarm_that_stops_nothing_is_reported_in_few_lines() {
        let mut reporter = EventReporter::default();
        let alarm = Alarm::SynchronyDoubt { view: View(3), peer: None, why: "no certificate" };
        assert_eq!(reporter.alarm(Time(1), None, 0), None);
        let line = text(reporter.alarm(Time(2), Some(alarm), 1));
        assert_eq!(line, "the bound on delays does not hold in view 3: no certificate");
        assert_eq!(reporter.alarm(Time(3), Some(alarm), 1), None);
        assert_eq!(reporter.alarm(Time(4), Some(alarm), 2), None);
        assert!(reporter.alarm(Time(2 + LINE_EVERY_NS), Some(alarm), 2).is_some());
    }

    #[test]
    fn round_trips_near_the_bound_are_reported_once_a_minute() {
        let mut reporter = EventReporter::default();
        let mut inspections = 0;
        let mut reported = 0;
        for tenth in 0..1_300u64 {
            let line = reporter.round_trips(Time(tenth * 100_000_000), || {
                inspections += 1;
                Some(guard(if tenth < 50 { 25 } else { 26 }, &[]))
            });
            if let Some(line) = line {
                reported += 1;
                assert!(
                    line.text().starts_with("one of 1000 round trips takes more than 26000 us"),
                    "{line:?}"
                );
            }
        }
        assert_eq!(
            (reported, inspections),
            (3, 8),
            "lines begin in the fifth second, and no inspection is superfluous"
        );
    }

    #[test]
    fn replica_that_starts_in_a_later_view_reports_it() {
        let mut reporter = EventReporter::default();
        let line = text(reporter.view(Time(1), View(5), ReplicaId(1), String::new));
        assert_eq!(line, "view 5, led by replica 1: this replica has started in it");
    }

    #[test]
    fn replica_too_far_behind_is_reported_once_and_when_it_is_over() {
        let mut reporter = EventReporter::default();
        let mut out = |second: u64, is_out, next| {
            reporter.too_far_behind(Time(second * BEHIND_CHECK_NS), || is_out, Height(next))
        };
        assert_eq!(out(1, false, 7), None);
        assert_eq!(out(1, true, 7), None, "the check is rare");
        assert!(text(out(2, true, 7)).contains("no peer keeps height 7 any more"));
        assert_eq!(out(3, true, 7), None);
        assert!(text(out(4, false, 7)).contains("can catch up"));
        assert_eq!(out(5, false, 8), None);
    }
}
