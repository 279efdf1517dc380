//! Alarms about the cluster as this replica sees it, for `status` and the log: states that differ, and blocks with a wrong
//! time. They do not stop the replica.

use super::block_times::BlockTimes;
use super::log_lines::{LineLimiter, LogLine};
use quorate_host::Executor;
use quorate_replica::{Divergence, Quorum, Replica, ReplicaState};
use quorate_types::{Height, ReplicaId, ReplicaSet, Time};

/// The present alarms.
#[derive(Debug)]
pub(super) struct Alarms {
    states: DifferingStates,
    times: BlockTimes,
}

impl Alarms {
    /// Returns no alarms, for replica `me`.
    pub(super) fn new(me: ReplicaId) -> Self {
        Self { states: DifferingStates::default(), times: BlockTimes::new(me) }
    }

    /// Returns all alarms, each as a sentence.
    pub(super) fn list(&self, now: Time) -> Vec<String> {
        self.states.present.iter().cloned().chain(self.times.list(now)).collect()
    }

    /// Compares the states that replicas have signed in checkpoints.
    pub(super) fn check_states(&mut self, now: Time, replica: &Replica) -> Vec<LogLine> {
        self.states.check(now, replica.checkpoints_received(), || replica.differing())
    }

    /// Compares the time of the executed blocks with the own clock, which shows `wall_ns`.
    pub(super) fn check_times(
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
        stamps.flat_map(|stamp| self.times.check(now, wall_ns, stamp, is_current)).collect()
    }
}

/// The subject of a line: one subject has one line.
type AlarmSubject = (Height, Quorum, ReplicaSet);

/// Checkpoints in which states differ.
#[derive(Debug, Default)]
struct DifferingStates {
    /// The number of checkpoint messages that had arrived at the last check.
    received: u64,
    /// The alarms.
    present: Vec<String>,
    /// The subjects of the alarms.
    reported: Vec<AlarmSubject>,
    /// The limit on lines of each kind.
    lines: [LineLimiter; 3],
}

impl DifferingStates {
    fn check(
        &mut self,
        now: Time,
        received: u64,
        differing: impl FnOnce() -> Vec<Divergence>,
    ) -> Vec<LogLine> {
        if received == self.received {
            return Vec::new();
        }
        self.received = received;
        let differing = differing();
        let was_wrong = !self.present.is_empty();
        self.present = differing.iter().map(Divergence::to_string).collect();
        let mut lines = Vec::new();
        let mut subjects = Vec::new();
        for (divergence, text) in differing.iter().zip(&self.present) {
            let signers = divergence.states.first().map(|(_, signers)| *signers).unwrap_or_default();
            // Before a quorum has signed one state, the wrong replicas are not known.
            let signers = if divergence.quorum == Quorum::Reached { signers } else { ReplicaSet::EMPTY };
            let subject = (divergence.height, divergence.quorum, signers);
            subjects.push(subject);
            let [open, never, reached] = &mut self.lines;
            let limiter = match divergence.quorum {
                Quorum::Open => open,
                Quorum::Never => never,
                Quorum::Reached => reached,
            };
            if !self.reported.contains(&subject)
                && let Some(often) = limiter.count_due(now)
            {
                lines.push(LogLine::Error(format!("{text}{often}")));
            }
        }
        self.reported = subjects;
        if was_wrong && self.present.is_empty() {
            lines.push(LogLine::Info("no states differ any more".to_owned()));
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::super::log_lines::LINE_EVERY_NS;
    use super::*;
    use quorate_consensus::Checkpoint;
    use quorate_types::Digest;

    fn divergence(height: u64, quorum: Quorum) -> Divergence {
        let height = Height(height);
        let signed = |state, signers: &[u16]| {
            let checkpoint = Checkpoint { height, state: Digest([state; 32]), ..Checkpoint::GENESIS };
            (checkpoint, signers.iter().copied().map(ReplicaId).collect())
        };
        let states = vec![signed(1, &[2]), signed(2, &[0, 1])];
        Divergence { me: ReplicaId(0), height, states, silent: ReplicaSet::EMPTY, quorum }
    }

    fn texts(lines: &[LogLine]) -> Vec<&str> {
        lines.iter().map(LogLine::text).collect()
    }

    #[test]
    fn states_that_differ_are_an_alarm_and_an_error_in_the_log() {
        let mut states = DifferingStates::default();
        assert!(states.check(Time(1), 0, || panic!("no checkpoint has arrived")).is_empty());
        let lines = states.check(Time(1), 1, || vec![divergence(128, Quorum::Open)]);
        let expected = "states differ at height 128, no quorum so far: replica 2 signed 0101010101010101, replica 1 and \
            this one (0) signed 0202020202020202";
        assert_eq!(lines, [LogLine::Error(expected.to_owned())]);
        assert_eq!(states.present, [expected]);
        // A worse alarm has a line at once, the same alarm has none.
        let lines = states.check(Time(2), 2, || vec![divergence(128, Quorum::Never)]);
        assert!(texts(&lines)[0].starts_with("states differ at height 128, no quorum: "), "{lines:?}");
        assert!(states.check(Time(3), 3, || vec![divergence(128, Quorum::Never)]).is_empty());
        let lines = states.check(Time(4), 4, Vec::new);
        assert_eq!(lines, [LogLine::Info("no states differ any more".to_owned())]);
        assert!(states.present.is_empty());
    }

    #[test]
    fn replica_that_differs_at_each_checkpoint_does_not_fill_the_log() {
        let mut states = DifferingStates::default();
        let mut lines = 0;
        for height in 1..1_000u64 {
            lines += states.check(Time(height), height, || vec![divergence(height, Quorum::Reached)]).len();
        }
        assert_eq!(lines, 1);
        let late = states.check(Time(1 + LINE_EVERY_NS), 1_000, || vec![divergence(1_000, Quorum::Reached)]);
        assert!(texts(&late)[0].ends_with("(999 times since the last such line)"), "{late:?}");
    }
}
