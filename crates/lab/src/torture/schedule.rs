//! The faults of a run, decided by a seed.

use quorate_types::ReplicaId;
use quorate_types::rng::Rng;
use serde::Serialize;
use std::fmt;
use std::time::Duration;

/// Time for which a paused replica stays paused.
const PAUSE: Duration = Duration::from_secs(5);
/// A killed replica stays away between so many milliseconds.
const DOWN_MS: (u64, u64) = (50, 3_000);
/// Milliseconds of load before each event, over which goodput is measured.
const CALM_MS: (u64, u64) = (1_500, 3_000);

/// A fault.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Fault {
    /// SIGKILL to the leader, and a start on the same folder.
    KillLeader,
    /// The same to another replica.
    KillBackup,
    /// SIGSTOP to the leader, and SIGCONT.
    PauseLeader,
    /// The same to another replica.
    PauseBackup,
    /// SIGKILL to all at once, and a cold start.
    KillAll,
}

impl Fault {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::KillLeader, Self::KillBackup, Self::PauseLeader, Self::PauseBackup, Self::KillAll];

    /// As the command line calls it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::KillLeader => "kill-leader",
            Self::KillBackup => "kill-backup",
            Self::PauseLeader => "pause-leader",
            Self::PauseBackup => "pause-backup",
            Self::KillAll => "kill-all",
        }
    }

    /// Number of times that it occurs in a stretch.
    fn share(self) -> usize {
        match self {
            Self::KillLeader | Self::KillBackup => 4,
            Self::PauseLeader => 2,
            Self::PauseBackup | Self::KillAll => 1,
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::KillLeader => "leader killed",
            Self::KillBackup => "backup killed",
            Self::PauseLeader => "leader paused",
            Self::PauseBackup => "backup paused",
            Self::KillAll => "all killed",
        })
    }
}

/// One event to come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Event {
    /// Counted from 1.
    pub number: u64,
    /// The fault.
    pub fault: Fault,
    /// Load before it, while nothing happens.
    pub calm: Duration,
    /// From the kill to the start, or from the pause to its end.
    pub down: Duration,
    /// Which backup: so many replicas after the leader.
    after_leader: u16,
}

impl Event {
    /// The replica that it happens to, of `n` that this one leads; `None`: all.
    #[must_use]
    pub fn victim(&self, leader: ReplicaId, n: u16) -> Option<ReplicaId> {
        let backup = leader.0.saturating_add(self.after_leader).checked_rem(n.max(1)).unwrap_or(0);
        match self.fault {
            Fault::KillLeader | Fault::PauseLeader => Some(leader),
            Fault::KillBackup | Fault::PauseBackup => Some(ReplicaId(backup)),
            Fault::KillAll => None,
        }
    }
}

/// Draws events: stretch after stretch, each with its share of every fault, in an order of its own.
#[derive(Debug)]
pub struct Schedule {
    rng: Rng,
    n: u16,
    only: Vec<Fault>,
    number: u64,
}

impl Schedule {
    /// The schedule that a seed decides for `n` replicas and these faults.
    #[must_use]
    pub fn new(seed: u64, n: u16, only: &[Fault]) -> Self {
        Self { rng: Rng::new(seed), n, only: only.to_vec(), number: 0 }
    }

    /// The events of the next stretch.
    pub fn stretch(&mut self) -> Vec<Event> {
        let mut faults: Vec<Fault> =
            self.only.iter().flat_map(|fault| std::iter::repeat_n(*fault, fault.share())).collect();
        self.rng.shuffle(&mut faults);
        faults.into_iter().map(|fault| self.event(fault)).collect()
    }

    fn event(&mut self, fault: Fault) -> Event {
        self.number = self.number.saturating_add(1);
        let calm = Duration::from_millis(self.rng.between(CALM_MS.0, CALM_MS.1));
        let down = match fault {
            Fault::PauseLeader | Fault::PauseBackup => PAUSE,
            Fault::KillLeader | Fault::KillBackup => {
                Duration::from_millis(self.rng.between(DOWN_MS.0, DOWN_MS.1))
            }
            Fault::KillAll => Duration::ZERO,
        };
        let backups = u64::from(self.n.saturating_sub(1).max(1));
        let after_leader = u16::try_from(self.rng.between(1, backups)).unwrap_or(1);
        Event { number: self.number, fault, calm, down, after_leader }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn a_seed_decides_and_a_stretch_has_everything() {
        let stretches = |seed| -> Vec<Vec<Event>> {
            let mut schedule = Schedule::new(seed, 4, &Fault::ALL);
            (0..5).map(|_| schedule.stretch()).collect()
        };
        assert_eq!(stretches(1), stretches(1));
        assert_ne!(stretches(1), stretches(2));
        for stretch in stretches(3) {
            for fault in Fault::ALL {
                assert_eq!(stretch.iter().filter(|event| event.fault == fault).count(), fault.share());
            }
        }
        let numbers: Vec<u64> = stretches(3).iter().flatten().map(|event| event.number).collect();
        assert_eq!(numbers, (1..=60).collect::<Vec<u64>>());
    }

    #[test]
    fn other_faults_than_those_asked_for_do_not_come() {
        let mut schedule = Schedule::new(1, 4, &[Fault::KillAll, Fault::KillLeader]);
        let faults: Vec<Fault> = schedule.stretch().iter().map(|event| event.fault).collect();
        assert_eq!(faults.iter().filter(|fault| **fault == Fault::KillAll).count(), 1);
        assert_eq!(faults.iter().filter(|fault| **fault == Fault::KillLeader).count(), faults.len() - 1);
    }

    #[test]
    fn the_leader_is_the_victim_exactly_where_it_is_meant() {
        let mut schedule = Schedule::new(9, 4, &Fault::ALL);
        let events: Vec<Event> = (0..20).flat_map(|_| schedule.stretch()).collect();
        let mut backups = BTreeSet::new();
        for event in events {
            match (event.fault, event.victim(ReplicaId(3), 4)) {
                (Fault::KillLeader | Fault::PauseLeader, victim) => assert_eq!(victim, Some(ReplicaId(3))),
                (Fault::KillAll, victim) => assert_eq!(victim, None),
                (_, Some(backup)) => {
                    backups.insert(backup);
                }
                (fault, None) => panic!("{fault}"),
            }
        }
        assert_eq!(backups, BTreeSet::from([ReplicaId(0), ReplicaId(1), ReplicaId(2)]));
    }
}
