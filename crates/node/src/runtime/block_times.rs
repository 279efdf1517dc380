//! Compares the time of executed blocks with the own clock.
//!
//! The leader writes its clock into a block. The application's time follows in steps of at most 10 s and never goes back:
//! see `quorate_app::At::time_ns`. So the application keeps the wrong time of one leader for long.
//!
//! A block from the future is always wrong. A block from the past may have been delayed, or the cluster was idle: it is
//! an alarm only after it has lasted.

use super::log_lines::{LineLimiter, LogLine};
use quorate_host::Stamp;
use quorate_types::{ReplicaId, Time};
use std::collections::BTreeMap;
use std::mem::discriminant;

/// The difference from the own clock above which a time is wrong.
const OFF_NS: u64 = 10_000_000_000;
/// The duration after which a time behind the own clock is wrong.
const BEHIND_FOR_NS: u64 = 60_000_000_000;
/// The time after which the alarm about a leader ends that proposes nothing while others do.
const FORGET_NS: u64 = 600_000_000_000;

/// The position of a time relative to the own clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Offset {
    Right,
    /// Nanoseconds.
    Ahead(u64),
    Behind(u64),
}

impl Offset {
    fn of(ns: u64, wall_ns: u64) -> Self {
        match (ns.saturating_sub(wall_ns), wall_ns.saturating_sub(ns)) {
            (ahead, _) if ahead > OFF_NS => Self::Ahead(ahead),
            (_, behind) if behind > OFF_NS => Self::Behind(behind),
            _ => Self::Right,
        }
    }

    fn text(self) -> String {
        match self {
            Self::Right => "right".to_owned(),
            Self::Ahead(ns) => format!("{} ahead of this machine's clock", span(ns)),
            Self::Behind(ns) => format!("{} behind this machine's clock", span(ns)),
        }
    }
}

/// Formats a span for people.
fn span(ns: u64) -> String {
    let seconds = ns / 1_000_000_000;
    match seconds {
        0..=299 => format!("{seconds} s"),
        300..=17_999 => format!("{} min", seconds / 60),
        18_000..=431_999 => format!("{} h", seconds / 3_600),
        _ => format!("{} days", seconds / 86_400),
    }
}

/// A wrong time.
#[derive(Clone, Copy, Debug)]
struct WrongTime {
    offset: Offset,
    since: Time,
    /// The time of the last comparison.
    latest: Time,
    /// The leader of the first block with it.
    first: ReplicaId,
}

impl WrongTime {
    fn is_alarm(&self) -> bool {
        matches!(self.offset, Offset::Ahead(_)) || self.latest.since(self.since) >= BEHIND_FOR_NS
    }
}

/// A change that needs a line in the log.
enum TimeChange {
    /// The time is wrong now; the text gives the number of changes since the last such line.
    Begun(WrongTime, String),
    Over,
}

impl TimeChange {
    fn line(&self, begun: impl FnOnce(&WrongTime) -> String, over: String) -> LogLine {
        match self {
            Self::Begun(wrong, often) => LogLine::Warn(format!("{}{often}", begun(wrong))),
            Self::Over => LogLine::Info(over),
        }
    }
}

/// A time that is compared for each block.
#[derive(Debug, Default)]
struct ComparedTime {
    wrong: Option<WrongTime>,
    lines: LineLimiter,
    is_reported: bool,
}

impl ComparedTime {
    fn compare(&mut self, now: Time, offset: Offset, proposer: ReplicaId) -> Option<TimeChange> {
        if offset == Offset::Right {
            return self.end();
        }
        let wrong = match self.wrong {
            Some(old) if discriminant(&old.offset) == discriminant(&offset) => {
                WrongTime { offset, latest: now, ..old }
            }
            _ => {
                self.is_reported = false;
                WrongTime { offset, since: now, latest: now, first: proposer }
            }
        };
        self.wrong = Some(wrong);
        if self.is_reported || !wrong.is_alarm() {
            return None;
        }
        let often = self.lines.count_due(now)?;
        self.is_reported = true;
        Some(TimeChange::Begun(wrong, often))
    }

    fn end(&mut self) -> Option<TimeChange> {
        self.wrong = None;
        std::mem::take(&mut self.is_reported).then_some(TimeChange::Over)
    }

    fn alarm(&self) -> Option<&WrongTime> {
        self.wrong.as_ref().filter(|wrong| wrong.is_alarm())
    }
}

/// The compared times: those of each leader's blocks, and the application's.
#[derive(Debug)]
pub(super) struct BlockTimes {
    /// By proposer of the blocks: bounded by the committee.
    leaders: BTreeMap<ReplicaId, ComparedTime>,
    application: ComparedTime,
    me: ReplicaId,
}

impl BlockTimes {
    /// Returns no times, for replica `me`.
    pub(super) fn new(me: ReplicaId) -> Self {
        Self { leaders: BTreeMap::new(), application: ComparedTime::default(), me }
    }

    /// Compares the times of an executed block with the own clock, which shows `wall_ns`. A time behind it counts only if
    /// this replica `is_current`.
    pub(super) fn check(
        &mut self,
        now: Time,
        wall_ns: u64,
        stamp: &Stamp,
        is_current: impl Fn() -> bool,
    ) -> Vec<LogLine> {
        let block = Offset::of(stamp.block_ns, wall_ns);
        let application = Offset::of(stamp.application_ns, wall_ns);
        let is_behind = |offset| matches!(offset, Offset::Behind(_));
        let counts = !(is_behind(block) || is_behind(application)) || is_current();
        let mut lines = Vec::new();
        if counts || !is_behind(block) {
            let time = self.leaders.entry(stamp.proposer).or_default();
            let change = time.compare(now, block, stamp.proposer);
            lines.extend(change.map(|change| self.leader_line(now, stamp.proposer, &change)));
        }
        if counts || !is_behind(application) {
            let change = self.application.compare(now, application, stamp.proposer);
            lines.extend(change.map(|change| self.application_line(now, &change)));
        }
        lines.extend(self.forget(now, stamp.proposer));
        lines
    }

    /// Ends the alarms about leaders that have proposed nothing for long.
    fn forget(&mut self, now: Time, proposer: ReplicaId) -> Vec<LogLine> {
        let is_old =
            |time: &ComparedTime| time.wrong.is_some_and(|wrong| now.since(wrong.latest) >= FORGET_NS);
        let others = self.leaders.iter_mut().filter(|(id, time)| **id != proposer && is_old(time));
        let over: Vec<ReplicaId> = others.filter_map(|(id, time)| time.end().map(|_| *id)).collect();
        over.into_iter().map(|id| self.leader_line(now, id, &TimeChange::Over)).collect()
    }

    /// Returns the alarms, each as a sentence.
    pub(super) fn list(&self, now: Time) -> impl Iterator<Item = String> {
        let leaders = self.leaders.iter().filter_map(|(id, time)| Some((*id, time.alarm()?)));
        let leaders = leaders.map(move |(id, wrong)| self.leader_text(now, id, wrong));
        leaders.chain(self.application.alarm().map(|wrong| self.application_text(now, wrong)))
    }

    fn leader_text(&self, now: Time, id: ReplicaId, wrong: &WrongTime) -> String {
        let (offset, since) = (wrong.offset.text(), span(now.since(wrong.since)));
        let cause = if id == self.me {
            "its clock was set while this node ran; start this node again"
        } else {
            "one of the two clocks is wrong; a node whose clock was set has to be started again"
        };
        format!("blocks of replica {id} are {offset}, for {since}: {cause}")
    }

    fn application_text(&self, now: Time, wrong: &WrongTime) -> String {
        let (offset, since, first) = (wrong.offset.text(), span(now.since(wrong.since)), wrong.first);
        let course = match wrong.offset {
            Offset::Ahead(_) => "it never goes back, and stands still until the clocks have reached it",
            _ => "it gains 10 s with each block that has requests",
        };
        format!(
            "the time that the application sees is {offset}, for {since}, first at a block of replica {first}: {course}"
        )
    }

    fn leader_line(&self, now: Time, id: ReplicaId, change: &TimeChange) -> LogLine {
        let over = format!("blocks of replica {id} do not have a wrong time any more");
        change.line(|wrong| self.leader_text(now, id, wrong), over)
    }

    fn application_line(&self, now: Time, change: &TimeChange) -> LogLine {
        let over = "the time that the application sees is right again".to_owned();
        change.line(|wrong| self.application_text(now, wrong), over)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quorate_types::Height;

    const S: u64 = 1_000_000_000;
    const YEAR: u64 = 365 * 86_400 * S;
    const WALL: u64 = 56 * YEAR;

    /// The blocks that replica 1 executes, whose clock is right.
    struct Executed {
        times: BlockTimes,
        is_behind: bool,
    }

    impl Default for Executed {
        fn default() -> Self {
            Self { times: BlockTimes::new(ReplicaId(1)), is_behind: false }
        }
    }

    impl Executed {
        /// Executes a block of a proposer at a second. Its time and the application's are in nanoseconds relative to the clock.
        fn block(&mut self, at: u64, proposer: u16, block: i64, application: i64) -> Vec<LogLine> {
            let wall_ns = WALL + at * S;
            let stamp = Stamp {
                height: Height(at),
                proposer: ReplicaId(proposer),
                block_ns: wall_ns.saturating_add_signed(block),
                application_ns: wall_ns.saturating_add_signed(application),
            };
            self.times.check(Time(at * S), wall_ns, &stamp, || !self.is_behind)
        }

        fn list(&self, at: u64) -> Vec<String> {
            self.times.list(Time(at * S)).collect()
        }
    }

    const TEN_YEARS: i64 = (10 * YEAR) as i64;
    const LIMIT: i64 = OFF_NS as i64;

    #[test]
    fn block_from_the_future_is_reported_at_once_with_its_leader() {
        let mut executed = Executed::default();
        assert!(
            executed.block(1, 0, LIMIT, LIMIT).is_empty() && executed.list(1).is_empty(),
            "the largest difference that is right"
        );
        let lines = executed.block(2, 0, TEN_YEARS, 0);
        let expected = "blocks of replica 0 are 3650 days ahead of this machine's clock, for 0 s: one of the two clocks \
            is wrong; a node whose clock was set has to be started again";
        assert_eq!(lines, [LogLine::Warn(expected.to_owned())]);
        assert!((3..30).all(|at| executed.block(at, 0, TEN_YEARS, 0).is_empty()), "once");
        assert_eq!(executed.list(32), [expected.replace("for 0 s", "for 30 s")]);
        let over = "blocks of replica 0 do not have a wrong time any more";
        assert_eq!(executed.block(33, 0, 0, 0), [LogLine::Info(over.to_owned())]);
        assert!(executed.list(33).is_empty());
    }

    #[test]
    fn application_time_that_stays_ahead_is_reported_after_clocks_are_right_again() {
        let mut executed = Executed::default();
        assert_eq!(executed.block(1, 0, TEN_YEARS, TEN_YEARS).len(), 2);
        assert_eq!(executed.block(2, 0, 0, TEN_YEARS).len(), 1, "the leader's clock is repaired");
        let [line] = &executed.list(301)[..] else { panic!("one alarm") };
        let expected = "the time that the application sees is 3650 days ahead of this machine's clock, for 5 min, first \
            at a block of replica 0: it never goes back";
        assert!(line.starts_with(expected), "{line}");
        let right = "the time that the application sees is right again";
        assert_eq!(executed.block(400, 2, 0, 0), [LogLine::Info(right.to_owned())]);
    }

    #[test]
    fn time_behind_is_an_alarm_after_it_has_lasted() {
        let mut executed = Executed::default();
        let idle = |at: u64| -25 * S as i64 + 10 * (at as i64 - 46) * S as i64;
        for at in 46..49 {
            assert!(
                executed.block(at, 0, 0, idle(at)).is_empty(),
                "the cluster was idle, and its time catches up"
            );
        }
        assert!(executed.list(3_000).is_empty(), "the last block of an idle cluster grows old");
        for at in 0..60 {
            assert!(executed.block(100 + at, 0, -LIMIT - 1, 0).is_empty());
        }
        let lines = executed.block(160, 0, -LIMIT - 1, 0);
        assert!(
            matches!(&lines[..], [LogLine::Warn(text)] if text.contains("10 s behind this machine's clock, for 60 s"))
        );
        assert_eq!(executed.list(161).len(), 1);
    }

    #[test]
    fn old_blocks_are_no_alarm_for_a_replica_that_catches_up() {
        let mut executed = Executed { is_behind: true, ..Executed::default() };
        for at in 0..200 {
            assert!(executed.block(at, 0, -1_000 * S as i64, -1_000 * S as i64).is_empty());
        }
        assert!(executed.list(200).is_empty());
        assert_eq!(executed.block(201, 0, TEN_YEARS, 0).len(), 1, "a block from the future is always wrong");
    }

    #[test]
    fn leader_that_lies_from_time_to_time_does_not_fill_the_log_and_hides_no_other() {
        let mut executed = Executed::default();
        let mut begun = 0;
        for at in 0..20 {
            let lines = executed.block(at, 0, if at % 2 == 0 { TEN_YEARS } else { 0 }, 0);
            begun += lines.iter().filter(|line| matches!(line, LogLine::Warn(_))).count();
        }
        assert_eq!(begun, 2, "in twenty seconds");
        assert_eq!(executed.block(20, 2, TEN_YEARS, 0).len(), 1);
    }

    #[test]
    fn alarm_ends_for_a_leader_that_proposes_no_more() {
        let mut executed = Executed::default();
        executed.block(1, 0, TEN_YEARS, 0);
        assert!(executed.block(600, 2, 0, 0).is_empty());
        assert_eq!(executed.list(600).len(), 1);
        assert_eq!(executed.block(601, 2, 0, 0).len(), 1);
        assert!(executed.list(601).is_empty());
    }

    #[test]
    fn own_clock_that_was_set_is_reported() {
        let mut executed = Executed::default();
        executed.block(1, 1, TEN_YEARS, 0);
        assert!(
            executed.list(1)[0].ends_with("its clock was set while this node ran; start this node again")
        );
    }

    #[test]
    fn spans_are_formatted_for_people() {
        let spans = [0, 299, 300, 18_000, 432_000].map(|seconds| span(seconds * S));
        assert_eq!(spans, ["0 s", "299 s", "5 min", "5 h", "5 days"]);
    }
}
