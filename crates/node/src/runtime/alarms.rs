//! Alarms about the cluster as this replica sees it, for `status` and the log: states that differ, and blocks with a wrong
//! time. The replica continues all the same.

use super::block_times::BlockTimes;
use super::rare::{Rare, of_how_many};
use quorate_host::Executor;
use quorate_replica::{Divergence, Quorum, Replica, ReplicaState};
use quorate_types::{Height, ReplicaId, ReplicaSet, Time};

/// A line for the log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum LogLine {
    /// Something is wrong that the cluster may not survive.
    Error(String),
    /// Something is wrong.
    Warn(String),
    /// It is over.
    Info(String),
}

impl LogLine {
    #[cfg(test)]
    fn text(&self) -> &str {
        match self {
            Self::Error(text) | Self::Warn(text) | Self::Info(text) => text,
        }
    }

    pub(super) fn log(self) {
        match self {
            Self::Error(text) => tracing::error!("{text}"),
            Self::Warn(text) => tracing::warn!("{text}"),
            Self::Info(text) => tracing::info!("{text}"),
        }
    }
}

/// See the module.
#[derive(Debug)]
pub(super) struct Alarms {
    states: States,
    times: BlockTimes,
}

impl Alarms {
    /// Of replica `me`.
    pub(super) fn new(me: ReplicaId) -> Self {
        Self { states: States::default(), times: BlockTimes::new(me) }
    }

    /// All alarms, each as a sentence; empty when all is well.
    pub(super) fn list(&self, now: Time) -> Vec<String> {
        self.states.differing.iter().cloned().chain(self.times.list(now)).collect()
    }

    /// Looks at what replicas say of checkpoints.
    pub(super) fn look_at_states(&mut self, now: Time, replica: &Replica) -> Vec<LogLine> {
        self.states.look(now, replica.checkpoints_received(), || replica.differing())
    }

    /// Compares the time of the blocks that were executed with the own clock, which says `wall_ns`.
    pub(super) fn look_at_times(
        &mut self,
        now: Time,
        wall_ns: u64,
        replica: &Replica,
        executor: &Executor,
    ) -> Vec<LogLine> {
        // A replica that is catching up executes old blocks.
        let is_current = || {
            let status = replica.status();
            status.state == ReplicaState::Current && status.executed == status.decided
        };
        let stamps = executor.stamps().iter();
        stamps.flat_map(|stamp| self.times.see(now, wall_ns, stamp, is_current)).collect()
    }
}

/// The subject of a line: the same is not told again.
type About = (Height, Quorum, ReplicaSet);

/// States that differ.
#[derive(Debug, Default)]
struct States {
    /// Checkpoint messages that had been heard at the last look.
    heard: u64,
    differing: Vec<String>,
    told: Vec<About>,
    /// Lines of each kind.
    lines: [Rare; 3],
}

impl States {
    fn look(&mut self, now: Time, heard: u64, differing: impl FnOnce() -> Vec<Divergence>) -> Vec<LogLine> {
        if heard == self.heard {
            return Vec::new();
        }
        self.heard = heard;
        let differing = differing();
        let was_wrong = !std::mem::take(&mut self.differing).is_empty();
        self.differing = differing.iter().map(Divergence::to_string).collect();
        let mut lines = Vec::new();
        let mut about = Vec::new();
        for (divergence, text) in differing.iter().zip(&self.differing) {
            let who = divergence.states.first().map(|(_, who)| *who).unwrap_or_default();
            // While votes come in, those who differ are not known yet.
            let who = if divergence.quorum == Quorum::Reached { who } else { ReplicaSet::EMPTY };
            let this = (divergence.height, divergence.quorum, who);
            about.push(this);
            let [open, never, reached] = &mut self.lines;
            let rare = match divergence.quorum {
                Quorum::Open => open,
                Quorum::Never => never,
                Quorum::Reached => reached,
            };
            if !self.told.contains(&this)
                && let Some(count) = rare.happened(now)
            {
                lines.push(LogLine::Error(format!("{text}{}", of_how_many(count))));
            }
        }
        self.told = about;
        if was_wrong && self.differing.is_empty() {
            lines.push(LogLine::Info("no states differ any more".to_owned()));
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::super::rare::LINE_EVERY_NS;
    use super::*;
    use quorate_consensus::Checkpoint;
    use quorate_types::Digest;

    fn divergence(height: u64, quorum: Quorum) -> Divergence {
        let height = Height(height);
        let say = |state, who: &[u16]| {
            let checkpoint = Checkpoint { height, state: Digest([state; 32]), ..Checkpoint::GENESIS };
            (checkpoint, who.iter().copied().map(ReplicaId).collect())
        };
        let states = vec![say(1, &[2]), say(2, &[0, 1])];
        Divergence { me: ReplicaId(0), height, states, silent: ReplicaSet::EMPTY, quorum }
    }

    fn texts(lines: &[LogLine]) -> Vec<&str> {
        lines.iter().map(LogLine::text).collect()
    }

    #[test]
    fn states_that_differ_are_an_alarm_and_an_error_in_the_log() {
        let mut states = States::default();
        assert!(states.look(Time(1), 0, || panic!("nobody has said anything")).is_empty());
        let lines = states.look(Time(1), 1, || vec![divergence(128, Quorum::Open)]);
        let expected = "states differ at height 128, no quorum so far: replica 2 signed 0101010101010101, replica 1 and \
            this one (0) signed 0202020202020202";
        assert_eq!(lines, [LogLine::Error(expected.to_owned())]);
        assert_eq!(states.differing, [expected]);
        // Worse news is told at once, the same news is not.
        let lines = states.look(Time(2), 2, || vec![divergence(128, Quorum::Never)]);
        assert!(texts(&lines)[0].starts_with("states differ at height 128, no quorum: "), "{lines:?}");
        assert!(states.look(Time(3), 3, || vec![divergence(128, Quorum::Never)]).is_empty());
        let lines = states.look(Time(4), 4, Vec::new);
        assert_eq!(lines, [LogLine::Info("no states differ any more".to_owned())]);
        assert!(states.differing.is_empty());
    }

    #[test]
    fn a_replica_that_differs_at_each_checkpoint_does_not_fill_the_log() {
        let mut states = States::default();
        let mut lines = 0;
        for height in 1..1_000u64 {
            lines += states.look(Time(height), height, || vec![divergence(height, Quorum::Reached)]).len();
        }
        assert_eq!(lines, 1);
        let late = states.look(Time(1 + LINE_EVERY_NS), 1_000, || vec![divergence(1_000, Quorum::Reached)]);
        assert!(texts(&late)[0].ends_with("(999 times since the last such line)"), "{late:?}");
    }
}
