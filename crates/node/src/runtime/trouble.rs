//! News for the operator: the cause where this replica is slow, and the present leader. Each line names the disk or the
//! machine that causes it, and is repeated rarely, however often it happens.

use super::rare::{Rare, of_how_many};
use quorate_consensus::Alarm;
use quorate_replica::GuardStatus;
use quorate_types::{Height, ReplicaId, Time, View};

/// A sync, or a pass of the loop, that takes longer holds everybody up: half of the shortest timeout; or a quarter of the
/// bound on delays, where the protocol assumes one.
const SLOW_NS: u64 = 200_000_000;
/// Period in which all round trips are inspected, and least time between two lines about them.
const ROUND_TRIPS_LOOK_NS: u64 = 1_000_000_000;
const ROUND_TRIPS_LINE_NS: u64 = 60_000_000_000;
/// Whether peers keep the next height is looked at this often.
const OUT_LOOK_NS: u64 = 1_000_000_000;

/// Events, and the lines about them that are due.
#[derive(Debug, Default)]
pub(super) struct Trouble {
    disk: Rare,
    pause: Rare,
    views: Rare,
    view: View,
    longest_sync_ns: u64,
    longest_pause_ns: u64,
    doubts: Rare,
    /// Number of doubts that have begun, as far as they were noted.
    doubts_seen: u64,
    /// Whether the last line about doubt says that there is some.
    doubt_told: bool,
    alarms: Rare,
    alarms_seen: u64,
    /// Whether the last line about the peers' logs says that none keeps the next height.
    out_told: bool,
    out_look_at: Time,
    round_trips_look_at: Time,
    round_trips_line_at: Time,
    /// The bound on delays.
    delta_ns: Option<u64>,
}

impl Trouble {
    /// `delta_ns`: the bound on delays that the protocol assumes.
    pub(super) fn new(delta_ns: Option<u64>) -> Self {
        Self { delta_ns, ..Self::default() }
    }

    /// A pass of the loop is over: how long it took, and how long the longest sync in it.
    pub(super) fn passed(&mut self, now: Time, pass_ns: u64, sync_ns: u64) -> Option<String> {
        self.longest_sync_ns = self.longest_sync_ns.max(sync_ns);
        self.longest_pause_ns = self.longest_pause_ns.max(pass_ns);
        let slow_ns = self.delta_ns.map_or(SLOW_NS, |delta_ns| SLOW_NS.min(delta_ns / 4));
        let of = self.delta_ns.map_or(String::new(), |delta_ns| format!(" of delta_ms = {}", ms(delta_ns)));
        if sync_ns >= slow_ns {
            let often = of_how_many(self.disk.happened(now)?);
            let ms = ms(sync_ns);
            Some(format!(
                "the disk of data_dir took {ms} ms{of} for a sync{often}: it is slow, busy or failing"
            ))
        } else if pass_ns >= slow_ns {
            let often = of_how_many(self.pause.happened(now)?);
            let ms = ms(pass_ns);
            Some(format!(
                "this replica stood still for {ms} ms{of}{often}: the machine is busy, the application slow, or somebody had \
                 stopped it"
            ))
        } else {
            None
        }
    }

    /// Notes the leader and the view after each pass, and reports another view with its reason. Of many views in a short
    /// time it reports the first at once, and the one that stays when the silence ends.
    pub(super) fn leads(
        &mut self,
        now: Time,
        view: View,
        leader: ReplicaId,
        why: impl FnOnce() -> String,
    ) -> Option<String> {
        if view != self.view {
            self.view = view;
            self.views.note();
        }
        let often = of_how_many(self.views.tell(now)?);
        let why = match why() {
            // It has seen no view change in this life.
            none if none.is_empty() => "this replica has started in it".to_owned(),
            why => why,
        };
        Some(format!("view {view}, led by replica {leader}{often}: {why}"))
    }

    /// Whether more than f peers are late, and how often that has begun; asked after each pass. `guard` says more. Tells
    /// when it begins, and when what was told of is over.
    pub(super) fn doubt(
        &mut self,
        now: Time,
        (doubt, doubts): (bool, u64),
        guard: impl FnOnce() -> Option<GuardStatus>,
    ) -> Option<String> {
        if doubts != self.doubts_seen {
            self.doubts_seen = doubts;
            self.doubts.note();
        }
        if let Some(count) = self.doubts.tell(now) {
            self.doubt_told = true;
            let (often, guard) = (of_how_many(count), guard()?);
            let bound = ms(guard.bound.delta_ns);
            let late: Vec<String> = guard.late.iter().map(|(id, _)| id.to_string()).collect();
            let who =
                if late.is_empty() { String::new() } else { format!(" (replicas {})", late.join(", ")) };
            let what = if guard.bound.guarded { "nothing is decided by silence" } else { "nobody heeds it" };
            return Some(format!(
                "too many replicas{who} are later than delta_ms = {bound} allows{often}: {what} until that is over"
            ));
        }
        if self.doubt_told && !doubt {
            self.doubt_told = false;
            return Some("enough replicas answer within delta_ms again".to_owned());
        }
        None
    }

    /// Whether no peer keeps the next height any more; asked after each pass. Tells when it begins and when it is over.
    pub(super) fn out(&mut self, now: Time, is_out: impl FnOnce() -> bool, next: Height) -> Option<String> {
        // The answer takes a list of all peers, so it is not asked for each time.
        if now < self.out_look_at {
            return None;
        }
        self.out_look_at = now.plus(OUT_LOOK_NS);
        let is_out = is_out();
        if is_out == self.out_told {
            return None;
        }
        self.out_told = is_out;
        Some(if is_out {
            format!(
                "this replica is too far behind: no peer keeps height {next} any more, so it cannot catch up. It counts among the f \
                 faulty ones"
            )
        } else {
            format!("a peer keeps height {next} again: this replica can catch up")
        })
    }

    /// The last alarm of the protocol that did not stop it, and how many there were; asked after each pass.
    pub(super) fn alarmed(&mut self, now: Time, alarm: Option<Alarm>, alarms: u64) -> Option<String> {
        if alarms != self.alarms_seen {
            self.alarms_seen = alarms;
            self.alarms.note();
        }
        let often = of_how_many(self.alarms.tell(now)?);
        Some(format!("{}{often}", alarm?))
    }

    /// Asked after each pass: now and then looks at what round trips take, and says so when they come near the bound.
    pub(super) fn round_trips(
        &mut self,
        now: Time,
        guard: impl FnOnce() -> Option<GuardStatus>,
    ) -> Option<String> {
        if now < self.round_trips_look_at || now < self.round_trips_line_at {
            return None;
        }
        self.round_trips_look_at = now.plus(ROUND_TRIPS_LOOK_NS);
        let guard = guard().filter(|guard| guard.p999_ns > guard.bound.delta_ns / 2)?;
        self.round_trips_line_at = now.plus(ROUND_TRIPS_LINE_NS);
        let (bound, longest) = (ms(guard.bound.delta_ns), ms(guard.max_ns));
        let took = guard.p999_ns / 1_000;
        Some(format!(
            "one of 1000 round trips takes more than {took} us, the longest {longest} ms, of delta_ms = {bound}: a cluster \
             with a larger delta_ms would be safer"
        ))
    }

    /// The longest sync and the longest pass of the loop so far, in milliseconds.
    pub(super) fn longest_ms(&self) -> (u64, u64) {
        (ms(self.longest_sync_ns), ms(self.longest_pause_ns))
    }
}

fn ms(ns: u64) -> u64 {
    ns / 1_000_000
}

#[cfg(test)]
mod tests {
    use super::super::rare::LINE_EVERY_NS;
    use super::*;
    use quorate_consensus::Synchrony;

    #[test]
    fn a_slow_disk_is_named_and_not_again_at_once() {
        let mut trouble = Trouble::default();
        assert_eq!(trouble.passed(Time(1), SLOW_NS - 1, SLOW_NS - 1), None, "quick enough");
        let line = trouble.passed(Time(2), 2 * SLOW_NS, SLOW_NS).unwrap();
        assert!(line.starts_with("the disk of data_dir took 200 ms"), "{line}");
        let line = trouble.passed(Time(3), SLOW_NS, 0).unwrap();
        assert!(line.starts_with("this replica stood still for 200 ms"), "the disk is not to blame: {line}");
        for now in 4..20 {
            assert_eq!(trouble.passed(Time(now), SLOW_NS, SLOW_NS), None);
        }
        let line = trouble.passed(Time(2 + LINE_EVERY_NS), SLOW_NS, SLOW_NS).unwrap();
        assert!(line.contains("(17 times since the last such line)"), "{line}");
        assert_eq!(trouble.longest_ms(), (200, 400));
    }

    #[test]
    fn where_delays_are_bounded_a_quarter_of_the_bound_is_slow() {
        let mut trouble = Trouble::new(Some(50_000_000));
        assert_eq!(trouble.passed(Time(1), 12_000_000, 12_000_000), None);
        let line = trouble.passed(Time(2), 14_000_000, 13_000_000).unwrap();
        assert!(line.starts_with("the disk of data_dir took 13 ms of delta_ms = 50 for a sync"), "{line}");
        let line = trouble.passed(Time(3), 40_000_000, 0).unwrap();
        assert!(line.starts_with("this replica stood still for 40 ms of delta_ms = 50:"), "{line}");
    }

    #[test]
    fn a_new_view_is_told_with_its_reason() {
        let mut trouble = Trouble::default();
        let mut leads = |now, view| {
            trouble.leads(Time(now), View(view), ReplicaId(1), || "a request was overdue".to_owned())
        };
        assert_eq!(leads(1, 0), None, "the first view is no news");
        assert_eq!(leads(2, 1).unwrap(), "view 1, led by replica 1: a request was overdue");
        assert_eq!(leads(3, 1), None);
        // Replicas that chase each other through views do not fill the log.
        assert!((2..1_000).all(|view| leads(4, view).is_none()));
        // Where it ended is told, although nothing happens any more.
        assert_eq!(leads(1 + LINE_EVERY_NS, 999), None);
        let line = leads(2 + LINE_EVERY_NS, 999).unwrap();
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
    fn doubt_is_told_when_it_begins_and_when_it_ends() {
        let mut trouble = Trouble::default();
        let mut doubt =
            |now, doubt, doubts| trouble.doubt(Time(now), (doubt, doubts), || Some(guard(9, &[1, 2])));
        assert_eq!(doubt(1, false, 0), None);
        let line = doubt(2, true, 1).unwrap();
        assert!(line.contains("(replicas 1, 2) are later than delta_ms = 50 allows: nothing"), "{line}");
        assert_eq!(doubt(3, true, 1), None);
        assert!(doubt(4, false, 1).unwrap().starts_with("enough replicas"));
        // It comes and goes: told once, when the last line is old enough, and then where it ended.
        assert!((5..100).all(|count| doubt(count, count % 2 == 0, count).is_none()));
        let line = doubt(2 + LINE_EVERY_NS, false, 99).unwrap();
        assert!(line.contains("(95 times since the last such line)"), "{line}");
        assert!(doubt(3 + LINE_EVERY_NS, false, 99).unwrap().starts_with("enough replicas"));
        assert_eq!(doubt(3 + 2 * LINE_EVERY_NS, false, 99), None);
    }

    #[test]
    fn an_alarm_that_stops_nothing_is_told_now_and_then() {
        let mut trouble = Trouble::default();
        let alarm = Alarm::SynchronyDoubt { view: View(3), peer: None, why: "no certificate" };
        assert_eq!(trouble.alarmed(Time(1), None, 0), None);
        let line = trouble.alarmed(Time(2), Some(alarm), 1).unwrap();
        assert_eq!(line, "the bound on delays does not hold in view 3: no certificate");
        assert_eq!(trouble.alarmed(Time(3), Some(alarm), 1), None);
        assert_eq!(trouble.alarmed(Time(4), Some(alarm), 2), None);
        assert!(trouble.alarmed(Time(2 + LINE_EVERY_NS), Some(alarm), 2).is_some());
    }

    #[test]
    fn round_trips_near_the_bound_are_told_once_in_a_minute() {
        let mut trouble = Trouble::default();
        let mut looks = 0;
        let mut told = 0;
        for tenth in 0..1_300u64 {
            let line = trouble.round_trips(Time(tenth * 100_000_000), || {
                looks += 1;
                Some(guard(if tenth < 50 { 25 } else { 26 }, &[]))
            });
            if let Some(line) = line {
                told += 1;
                assert!(line.starts_with("one of 1000 round trips takes more than 26000 us"), "{line}");
            }
        }
        assert_eq!(
            (told, looks),
            (3, 8),
            "from the fifth second on, and all are looked at no more often than needed"
        );
    }

    #[test]
    fn a_replica_that_starts_in_a_later_view_says_so() {
        let mut trouble = Trouble::default();
        let line = trouble.leads(Time(1), View(5), ReplicaId(1), String::new).unwrap();
        assert_eq!(line, "view 5, led by replica 1: this replica has started in it");
    }

    #[test]
    fn a_replica_too_far_behind_says_so_once_and_when_it_is_over() {
        let mut trouble = Trouble::default();
        let mut out =
            |second: u64, is_out, next| trouble.out(Time(second * OUT_LOOK_NS), || is_out, Height(next));
        assert_eq!(out(1, false, 7), None);
        assert_eq!(out(1, true, 7), None, "not looked at again at once");
        assert!(out(2, true, 7).unwrap().contains("no peer keeps height 7 any more"));
        assert_eq!(out(3, true, 7), None);
        assert!(out(4, false, 7).unwrap().contains("can catch up"));
        assert_eq!(out(5, false, 8), None);
    }
}
