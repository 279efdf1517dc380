//! The events of a torture, decided by a seed.

use quorate_types::ReplicaId;
use quorate_types::rng::Rng;
use serde::Serialize;
use std::fmt;
use std::time::Duration;

/// Least and greatest time for which a paused replica stays paused, in milliseconds.
const PAUSE_MS: (u64, u64) = (1_000, 30_000);
/// Least and greatest time for which a killed replica stays down, in milliseconds.
const DOWN_MS: (u64, u64) = (50, 3_000);
/// Least and greatest time of load before each event, in milliseconds. Goodput is measured in this time.
const CALM_MS: (u64, u64) = (1_500, 3_000);

/// A fault of processes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ProcessFault {
    /// SIGKILL to the leader, and a start on the same folder.
    KillLeader,
    /// SIGKILL to another replica, and a start on the same folder.
    KillBackup,
    /// SIGSTOP to the leader, and SIGCONT.
    PauseLeader,
    /// SIGSTOP to another replica, and SIGCONT.
    PauseBackup,
    /// SIGKILL to all replicas at once, and a start of all.
    KillAll,
    /// SIGKILL to a replica other than the leader, the loss of its data folder, and a start with `--rejoin`.
    WipeBackup,
}

impl ProcessFault {
    /// All faults.
    pub const ALL: [Self; 6] = [
        Self::KillLeader,
        Self::KillBackup,
        Self::PauseLeader,
        Self::PauseBackup,
        Self::KillAll,
        Self::WipeBackup,
    ];

    /// Returns the name of the fault on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::KillLeader => "kill-leader",
            Self::KillBackup => "kill-backup",
            Self::PauseLeader => "pause-leader",
            Self::PauseBackup => "pause-backup",
            Self::KillAll => "kill-all",
            Self::WipeBackup => "wipe-backup",
        }
    }

    /// Returns the number of times that the fault occurs in a stretch.
    fn share(self) -> usize {
        match self {
            Self::KillLeader | Self::KillBackup => 4,
            Self::PauseLeader => 2,
            Self::PauseBackup | Self::KillAll | Self::WipeBackup => 1,
        }
    }
}

impl fmt::Display for ProcessFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::KillLeader => "leader killed",
            Self::KillBackup => "backup killed",
            Self::PauseLeader => "leader paused",
            Self::PauseBackup => "backup paused",
            Self::KillAll => "all killed",
            Self::WipeBackup => "backup wiped",
        })
    }
}

/// A planned event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PlannedEvent {
    /// Number of the event, from 1 on.
    pub number: u64,
    /// The fault.
    pub fault: ProcessFault,
    /// Time of undisturbed load before the event.
    pub calm: Duration,
    /// Time from the kill to the start, or from the pause to its end.
    pub down: Duration,
    /// The distance of the backup from the leader, in ids.
    after_leader: u16,
}

impl PlannedEvent {
    /// Returns the victim among `n` replicas with this leader; `None`: all replicas. A backup that lies has other faults
    /// already, so another backup is the victim.
    #[must_use]
    pub fn victim(&self, leader: ReplicaId, n: u16, liar: Option<ReplicaId>) -> Option<ReplicaId> {
        let after = |steps: u16| leader.0.saturating_add(steps).checked_rem(n.max(1)).unwrap_or(0);
        let backup = ReplicaId(after(self.after_leader));
        match self.fault {
            ProcessFault::KillLeader | ProcessFault::PauseLeader => Some(leader),
            ProcessFault::KillBackup | ProcessFault::PauseBackup | ProcessFault::WipeBackup => {
                if Some(backup) == liar {
                    let is_last = self.after_leader.saturating_add(1) >= n;
                    return Some(ReplicaId(after(if is_last {
                        1
                    } else {
                        self.after_leader.saturating_add(1)
                    })));
                }
                Some(backup)
            }
            ProcessFault::KillAll => None,
        }
    }
}

/// Draws the events of one stretch after the other. Each stretch has its share of every fault, in a random order.
#[derive(Debug)]
pub struct Schedule {
    rng: Rng,
    n: u16,
    only: Vec<ProcessFault>,
    number: u64,
}

impl Schedule {
    /// Creates the schedule that a seed decides for `n` replicas and these faults.
    #[must_use]
    pub fn new(seed: u64, n: u16, only: &[ProcessFault]) -> Self {
        Self { rng: Rng::new(seed), n, only: only.to_vec(), number: 0 }
    }

    /// Returns the events of the next stretch.
    pub fn next_stretch(&mut self) -> Vec<PlannedEvent> {
        let mut faults: Vec<ProcessFault> =
            self.only.iter().flat_map(|fault| std::iter::repeat_n(*fault, fault.share())).collect();
        self.rng.shuffle(&mut faults);
        faults.into_iter().map(|fault| self.event(fault)).collect()
    }

    fn event(&mut self, fault: ProcessFault) -> PlannedEvent {
        self.number = self.number.saturating_add(1);
        let calm = Duration::from_millis(self.rng.between(CALM_MS.0, CALM_MS.1));
        let down = match fault {
            ProcessFault::PauseLeader | ProcessFault::PauseBackup => {
                Duration::from_millis(self.rng.between(PAUSE_MS.0, PAUSE_MS.1))
            }
            ProcessFault::KillLeader | ProcessFault::KillBackup | ProcessFault::WipeBackup => {
                Duration::from_millis(self.rng.between(DOWN_MS.0, DOWN_MS.1))
            }
            ProcessFault::KillAll => Duration::ZERO,
        };
        let backups = u64::from(self.n.saturating_sub(1).max(1));
        let after_leader = u16::try_from(self.rng.between(1, backups)).unwrap_or(1);
        PlannedEvent { number: self.number, fault, calm, down, after_leader }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn seed_decides_the_schedule_and_a_stretch_has_all_faults() {
        let stretches = |seed| -> Vec<Vec<PlannedEvent>> {
            let mut schedule = Schedule::new(seed, 4, &ProcessFault::ALL);
            (0..5).map(|_| schedule.next_stretch()).collect()
        };
        assert_eq!(stretches(1), stretches(1));
        assert_ne!(stretches(1), stretches(2));
        for stretch in stretches(3) {
            for fault in ProcessFault::ALL {
                assert_eq!(stretch.iter().filter(|event| event.fault == fault).count(), fault.share());
            }
        }
        let numbers: Vec<u64> = stretches(3).iter().flatten().map(|event| event.number).collect();
        assert_eq!(numbers, (1..=65).collect::<Vec<u64>>());
    }

    #[test]
    fn schedule_has_only_the_selected_faults() {
        let mut schedule = Schedule::new(1, 4, &[ProcessFault::KillAll, ProcessFault::KillLeader]);
        let faults: Vec<ProcessFault> = schedule.next_stretch().iter().map(|event| event.fault).collect();
        assert_eq!(faults.iter().filter(|fault| **fault == ProcessFault::KillAll).count(), 1);
        assert_eq!(
            faults.iter().filter(|fault| **fault == ProcessFault::KillLeader).count(),
            faults.len() - 1
        );
    }

    #[test]
    fn leader_is_the_victim_of_leader_faults_only() {
        let mut schedule = Schedule::new(9, 4, &ProcessFault::ALL);
        let events: Vec<PlannedEvent> = (0..20).flat_map(|_| schedule.next_stretch()).collect();
        let mut backups = BTreeSet::new();
        for event in events {
            match (event.fault, event.victim(ReplicaId(3), 4, None)) {
                (ProcessFault::KillLeader | ProcessFault::PauseLeader, victim) => {
                    assert_eq!(victim, Some(ReplicaId(3)));
                }
                (ProcessFault::KillAll, victim) => assert_eq!(victim, None),
                (_, Some(backup)) => {
                    backups.insert(backup);
                }
                (fault, None) => panic!("{fault}"),
            }
        }
        assert_eq!(backups, BTreeSet::from([ReplicaId(0), ReplicaId(1), ReplicaId(2)]));
    }

    #[test]
    fn backup_that_lies_is_no_victim() {
        let mut schedule = Schedule::new(9, 7, &[ProcessFault::WipeBackup, ProcessFault::KillBackup]);
        let events: Vec<PlannedEvent> = (0..40).flat_map(|_| schedule.next_stretch()).collect();
        for liar in (0..6).map(ReplicaId) {
            let victims: BTreeSet<ReplicaId> =
                events.iter().filter_map(|event| event.victim(ReplicaId(6), 7, Some(liar))).collect();
            let others: BTreeSet<ReplicaId> = (0..6).map(ReplicaId).filter(|id| *id != liar).collect();
            assert_eq!(victims, others);
        }
    }
}
