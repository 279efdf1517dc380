//! Compares the time of executed blocks with the own clock.
//!
//! The leader writes its clock into a block, and the application's time follows that in steps of 10 s at most and never
//! goes back: see `quorate_app::At::time_ns`. So a wrong clock of one leader stays with the application for long.
//!
//! A block from the future is wrong whenever it is looked at. One from the past may only have been on its way, or the
//! cluster was idle: that is an alarm only where it has lasted.

use super::alarms::LogLine;
use super::rare::{Rare, of_how_many};
use quorate_host::Stamp;
use quorate_types::{ReplicaId, Time};
use std::collections::BTreeMap;

/// Times that differ by more are wrong.
const OFF_NS: u64 = 10_000_000_000;
/// Being behind is wrong when it has lasted so long.
const BEHIND_FOR_NS: u64 = 60_000_000_000;
/// A leader that has proposed nothing for so long, while others did, is not accused any more.
const FORGET_NS: u64 = 600_000_000_000;

/// A time's position relative to the own clock.
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

    fn is_like(self, other: Self) -> bool {
        matches!((self, other), (Self::Ahead(_), Self::Ahead(_)) | (Self::Behind(_), Self::Behind(_)))
    }

    fn text(self) -> String {
        match self {
            Self::Right => "right".to_owned(),
            Self::Ahead(ns) => format!("{} ahead of this machine's clock", span(ns)),
            Self::Behind(ns) => format!("{} behind this machine's clock", span(ns)),
        }
    }
}

/// A span as people say it.
fn span(ns: u64) -> String {
    let seconds = ns / 1_000_000_000;
    match seconds {
        0..=299 => format!("{seconds} s"),
        300..=17_999 => format!("{} min", seconds / 60),
        18_000..=431_999 => format!("{} h", seconds / 3_600),
        _ => format!("{} days", seconds / 86_400),
    }
}

/// A time that is off.
#[derive(Clone, Copy, Debug)]
struct Off {
    offset: Offset,
    since: Time,
    /// When it was compared last.
    latest: Time,
    /// The leader of the block at which it was seen first.
    first: ReplicaId,
}

impl Off {
    fn is_alarm(&self) -> bool {
        matches!(self.offset, Offset::Ahead(_)) || self.latest.since(self.since) >= BEHIND_FOR_NS
    }
}

/// Lines for the log.
enum News {
    /// It has begun; so many times since the last such line.
    Begun(Off, u64),
    Over,
}

/// One time that is compared again and again.
#[derive(Debug, Default)]
struct Watch {
    off: Option<Off>,
    lines: Rare,
    is_told: bool,
}

impl Watch {
    fn see(&mut self, now: Time, offset: Offset, proposer: ReplicaId) -> Option<News> {
        if offset == Offset::Right {
            return self.end();
        }
        let off = match self.off {
            Some(old) if old.offset.is_like(offset) => Off { offset, latest: now, ..old },
            _ => {
                self.is_told = false;
                Off { offset, since: now, latest: now, first: proposer }
            }
        };
        self.off = Some(off);
        if self.is_told || !off.is_alarm() {
            return None;
        }
        let count = self.lines.happened(now)?;
        self.is_told = true;
        Some(News::Begun(off, count))
    }

    fn end(&mut self) -> Option<News> {
        self.off = None;
        std::mem::take(&mut self.is_told).then_some(News::Over)
    }

    fn alarm(&self) -> Option<&Off> {
        self.off.as_ref().filter(|off| off.is_alarm())
    }
}

/// See the module.
#[derive(Debug)]
pub(super) struct BlockTimes {
    /// By who has proposed the blocks: bounded by the committee.
    leaders: BTreeMap<ReplicaId, Watch>,
    application: Watch,
    me: ReplicaId,
}

impl BlockTimes {
    /// As replica `me` sees them.
    pub(super) fn new(me: ReplicaId) -> Self {
        Self { leaders: BTreeMap::new(), application: Watch::default(), me }
    }

    /// A block was executed, while the own clock says `wall_ns`. What lies behind counts only where this replica
    /// `is_current`.
    pub(super) fn see(
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
            let watch = self.leaders.entry(stamp.proposer).or_default();
            let news = watch.see(now, block, stamp.proposer);
            lines.extend(news.map(|news| self.of_leader(now, stamp.proposer, &news)));
        }
        if counts || !is_behind(application) {
            let news = self.application.see(now, application, stamp.proposer);
            lines.extend(news.map(|news| self.of_application(now, &news)));
        }
        lines.extend(self.forget(now, stamp.proposer));
        lines
    }

    /// Those who do not propose any more are not accused for ever.
    fn forget(&mut self, now: Time, proposer: ReplicaId) -> Vec<LogLine> {
        let is_old = |watch: &Watch| watch.off.is_some_and(|off| now.since(off.latest) >= FORGET_NS);
        let others = self.leaders.iter_mut().filter(|(id, watch)| **id != proposer && is_old(watch));
        let over: Vec<ReplicaId> = others.filter_map(|(id, watch)| watch.end().map(|_| *id)).collect();
        over.into_iter().map(|id| self.of_leader(now, id, &News::Over)).collect()
    }

    /// The alarms, each as a sentence.
    pub(super) fn list(&self, now: Time) -> impl Iterator<Item = String> {
        let leaders = self.leaders.iter().filter_map(|(id, watch)| Some((*id, watch.alarm()?)));
        let leaders = leaders.map(move |(id, off)| self.leader_text(now, id, off));
        leaders.chain(self.application.alarm().map(|off| self.application_text(now, off)))
    }

    fn leader_text(&self, now: Time, id: ReplicaId, off: &Off) -> String {
        let (offset, since) = (off.offset.text(), span(now.since(off.since)));
        let cause = if id == self.me {
            "its clock was set while this node ran; start this node again"
        } else {
            "one of the two clocks is wrong; a node whose clock was set has to be started again"
        };
        format!("blocks of replica {id} are {offset}, for {since}: {cause}")
    }

    fn application_text(&self, now: Time, off: &Off) -> String {
        let (offset, since, first) = (off.offset.text(), span(now.since(off.since)), off.first);
        let course = match off.offset {
            Offset::Ahead(_) => "it never goes back, and stands until clocks have come there",
            _ => "it gains 10 s with each block that has requests",
        };
        format!(
            "the time that the application sees is {offset}, for {since}, first at a block of replica {first}: {course}"
        )
    }

    fn of_leader(&self, now: Time, id: ReplicaId, news: &News) -> LogLine {
        match news {
            News::Begun(off, count) => {
                LogLine::Warn(format!("{}{}", self.leader_text(now, id, off), of_how_many(*count)))
            }
            News::Over => LogLine::Info(format!("blocks of replica {id} do not have a wrong time any more")),
        }
    }

    fn of_application(&self, now: Time, news: &News) -> LogLine {
        match news {
            News::Begun(off, count) => {
                LogLine::Warn(format!("{}{}", self.application_text(now, off), of_how_many(*count)))
            }
            News::Over => LogLine::Info("the time that the application sees is right again".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quorate_types::Height;

    const S: u64 = 1_000_000_000;
    const YEAR: u64 = 365 * 86_400 * S;
    const WALL: u64 = 56 * YEAR;

    /// Blocks as replica 1 sees them, whose clock is right, and what the log hears.
    struct Seen {
        times: BlockTimes,
        is_behind: bool,
    }

    impl Default for Seen {
        fn default() -> Self {
            Self { times: BlockTimes::new(ReplicaId(1)), is_behind: false }
        }
    }

    impl Seen {
        /// At a second, a block of a proposer: its time and the application's, in nanoseconds beside the right one.
        fn block(&mut self, at: u64, proposer: u16, block: i64, application: i64) -> Vec<LogLine> {
            let wall_ns = WALL + at * S;
            let stamp = Stamp {
                height: Height(at),
                proposer: ReplicaId(proposer),
                block_ns: wall_ns.saturating_add_signed(block),
                application_ns: wall_ns.saturating_add_signed(application),
            };
            self.times.see(Time(at * S), wall_ns, &stamp, || !self.is_behind)
        }

        fn list(&self, at: u64) -> Vec<String> {
            self.times.list(Time(at * S)).collect()
        }
    }

    const TEN_YEARS: i64 = (10 * YEAR) as i64;
    const LIMIT: i64 = OFF_NS as i64;

    #[test]
    fn a_block_from_the_future_is_told_at_once_and_its_leader_named() {
        let mut seen = Seen::default();
        assert!(
            seen.block(1, 0, LIMIT, LIMIT).is_empty() && seen.list(1).is_empty(),
            "as far as that is right"
        );
        let lines = seen.block(2, 0, TEN_YEARS, 0);
        let expected = "blocks of replica 0 are 3650 days ahead of this machine's clock, for 0 s: one of the two clocks \
            is wrong; a node whose clock was set has to be started again";
        assert_eq!(lines, [LogLine::Warn(expected.to_owned())]);
        assert!((3..30).all(|at| seen.block(at, 0, TEN_YEARS, 0).is_empty()), "once");
        assert_eq!(seen.list(32), [expected.replace("for 0 s", "for 30 s")]);
        let over = "blocks of replica 0 do not have a wrong time any more";
        assert_eq!(seen.block(33, 0, 0, 0), [LogLine::Info(over.to_owned())]);
        assert!(seen.list(33).is_empty());
    }

    #[test]
    fn an_application_whose_time_stays_ahead_is_told_although_clocks_are_right_again() {
        let mut seen = Seen::default();
        assert_eq!(seen.block(1, 0, TEN_YEARS, TEN_YEARS).len(), 2);
        assert_eq!(seen.block(2, 0, 0, TEN_YEARS).len(), 1, "the leader's clock is repaired");
        let [line] = &seen.list(301)[..] else { panic!("one alarm") };
        let expected = "the time that the application sees is 3650 days ahead of this machine's clock, for 5 min, first \
            at a block of replica 0: it never goes back";
        assert!(line.starts_with(expected), "{line}");
        let right = "the time that the application sees is right again";
        assert_eq!(seen.block(400, 2, 0, 0), [LogLine::Info(right.to_owned())]);
    }

    #[test]
    fn a_time_behind_is_an_alarm_when_it_has_lasted() {
        let mut seen = Seen::default();
        let idle = |at: u64| -25 * S as i64 + 10 * (at as i64 - 46) * S as i64;
        for at in 46..49 {
            assert!(seen.block(at, 0, 0, idle(at)).is_empty(), "the cluster was idle, and makes up for it");
        }
        assert!(seen.list(3_000).is_empty(), "the last block of an idle cluster grows old");
        for at in 0..60 {
            assert!(seen.block(100 + at, 0, -LIMIT - 1, 0).is_empty());
        }
        let lines = seen.block(160, 0, -LIMIT - 1, 0);
        assert!(
            matches!(&lines[..], [LogLine::Warn(text)] if text.contains("10 s behind this machine's clock, for 60 s"))
        );
        assert_eq!(seen.list(161).len(), 1);
    }

    #[test]
    fn blocks_of_long_ago_are_no_alarm_for_who_catches_up() {
        let mut seen = Seen { is_behind: true, ..Seen::default() };
        for at in 0..200 {
            assert!(seen.block(at, 0, -1_000 * S as i64, -1_000 * S as i64).is_empty());
        }
        assert!(seen.list(200).is_empty());
        assert_eq!(seen.block(201, 0, TEN_YEARS, 0).len(), 1, "what comes from the future is wrong for all");
    }

    #[test]
    fn a_leader_that_lies_now_and_then_does_not_fill_the_log_and_hides_no_other() {
        let mut seen = Seen::default();
        let mut begun = 0;
        for at in 0..20 {
            let lines = seen.block(at, 0, if at % 2 == 0 { TEN_YEARS } else { 0 }, 0);
            begun += lines.iter().filter(|line| matches!(line, LogLine::Warn(_))).count();
        }
        assert_eq!(begun, 2, "in twenty seconds");
        assert_eq!(seen.block(20, 2, TEN_YEARS, 0).len(), 1);
    }

    #[test]
    fn a_leader_that_proposes_no_more_is_not_accused_for_ever() {
        let mut seen = Seen::default();
        seen.block(1, 0, TEN_YEARS, 0);
        assert!(seen.block(600, 2, 0, 0).is_empty());
        assert_eq!(seen.list(600).len(), 1);
        assert_eq!(seen.block(601, 2, 0, 0).len(), 1);
        assert!(seen.list(601).is_empty());
    }

    #[test]
    fn an_own_clock_that_was_set_is_told_as_that() {
        let mut seen = Seen::default();
        seen.block(1, 1, TEN_YEARS, 0);
        assert!(seen.list(1)[0].ends_with("its clock was set while this node ran; start this node again"));
    }

    #[test]
    fn spans_are_told_as_people_say_them() {
        let spans = [0, 299, 300, 18_000, 432_000].map(|seconds| span(seconds * S));
        assert_eq!(spans, ["0 s", "299 s", "5 min", "5 h", "5 days"]);
    }
}
