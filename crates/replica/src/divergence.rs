//! Divergence: replicas have signed different checkpoints of one height.
//!
//! A replica that differs from a quorum is faulty, or its machine is. If no state can reach a quorum the
//! application itself is at fault: no checkpoint becomes stable, and execution stops at the end of the window. A
//! single signature may be a lie, so the report names every signer with its state.

use quorate_consensus::Checkpoint;
use quorate_types::digest::hex;
use quorate_types::{Height, ReplicaId, ReplicaSet};
use std::fmt;

/// Bytes of a digest that are shown: enough to tell states apart, and to find them in `status`.
const SHOWN_BYTES: usize = 8;

/// The quorum that the received signatures allow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Quorum {
    /// A quorum has signed the last of the states. A replica with another one is faulty.
    Reached,
    /// No state has a quorum so far, and one may still reach it.
    Open,
    /// No state can reach a quorum any more.
    Never,
}

/// Checkpoints of one height that differ.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Divergence {
    /// The replica that reports the divergence.
    pub me: ReplicaId,
    /// The height after whose execution states differ.
    pub height: Height,
    /// Each checkpoint with its signers: fewest signers first.
    pub states: Vec<(Checkpoint, ReplicaSet)>,
    /// Replicas that have signed no checkpoint of this height yet; empty where a quorum is reached.
    pub silent: ReplicaSet,
    /// The quorum that is possible.
    pub quorum: Quorum,
}

impl fmt::Display for Divergence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "states differ at height {}", self.height)?;
        f.write_str(match self.quorum {
            Quorum::Reached => " from the one that a quorum has signed: ",
            Quorum::Open => ", no quorum so far: ",
            Quorum::Never => ", no quorum: ",
        })?;
        for (at, (checkpoint, who)) in self.states.iter().enumerate() {
            let gap = if at > 0 { ", " } else { "" };
            write!(f, "{gap}{} signed {}", names(*who, self.me), self.shown(checkpoint))?;
        }
        if !self.silent.is_empty() {
            write!(f, "; {} signed nothing so far", names(self.silent, self.me))?;
        }
        if self.quorum == Quorum::Never {
            f.write_str(
                "; no checkpoint becomes stable, and nothing is executed beyond the window: the application is not \
                 deterministic, or more machines are faulty than the cluster tolerates",
            )?;
        }
        Ok(())
    }
}

impl Divergence {
    /// Formats the state. If that does not tell two checkpoints apart, the block and its view follow.
    fn shown(&self, checkpoint: &Checkpoint) -> String {
        let short = |bytes: &[u8]| hex(bytes.get(..SHOWN_BYTES).unwrap_or(bytes));
        let state = short(&checkpoint.state.0);
        let is_alike =
            |(other, _): &&(Checkpoint, ReplicaSet)| other.state == checkpoint.state && other != checkpoint;
        match self.states.iter().find(is_alike) {
            Some(_) => {
                format!("{state} of block {} in view {}", short(&checkpoint.block.0.0), checkpoint.view)
            }
            None => state,
        }
    }
}

/// Formats names: "replica 2", "replicas 0 and 1", "replica 0 and this one (3)".
fn names(who: ReplicaSet, me: ReplicaId) -> String {
    let mut names: Vec<String> = who.iter().filter(|id| *id != me).map(|id| id.to_string()).collect();
    let kind = match names.len() {
        0 => "",
        1 => "replica ",
        _ => "replicas ",
    };
    if who.contains(me) {
        names.push(format!("this one ({me})"));
    }
    let last = names.pop().unwrap_or_default();
    if names.is_empty() { format!("{kind}{last}") } else { format!("{kind}{} and {last}", names.join(", ")) }
}

/// Groups signers by checkpoint, fewest first.
pub(crate) fn by_state(
    votes: impl Iterator<Item = (ReplicaId, Checkpoint)>,
) -> Vec<(Checkpoint, ReplicaSet)> {
    let mut states: Vec<(Checkpoint, ReplicaSet)> = Vec::new();
    for (by, checkpoint) in votes {
        match states.iter_mut().find(|(known, _)| *known == checkpoint) {
            Some((_, who)) => {
                who.insert(by);
            }
            None => states.push((checkpoint, ReplicaSet::from_iter([by]))),
        }
    }
    states.sort_by_key(|(_, who)| who.len());
    states
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checkpoint::Checkpoints;
    use quorate_consensus::CheckpointProof;
    use quorate_types::{BlockId, Digest, Signature, View};

    const ME: ReplicaId = ReplicaId(3);

    fn checkpoint(height: u64, state: u8) -> Checkpoint {
        Checkpoint { height: Height(height), block: BlockId::ZERO, view: View(0), state: Digest([state; 32]) }
    }

    /// The checkpoints of replica 3 of four, with f = 1, after these votes in this order.
    fn after_votes(votes: &[(u16, Checkpoint)]) -> Checkpoints {
        let mut checkpoints = Checkpoints::new(CheckpointProof::genesis(), 256, 3);
        for (by, checkpoint) in votes {
            take_vote(&mut checkpoints, *by, *checkpoint);
        }
        checkpoints
    }

    fn take_vote(checkpoints: &mut Checkpoints, by: u16, checkpoint: Checkpoint) {
        if let Some(proof) = checkpoints.add(ReplicaId(by), checkpoint, Signature([0; 64])) {
            assert!(checkpoints.prepare(proof));
            checkpoints.install();
        }
    }

    fn reports(checkpoints: &Checkpoints) -> Vec<String> {
        let differing = checkpoints.differing(ME, (0..4).map(ReplicaId).collect());
        differing.iter().map(Divergence::to_string).collect()
    }

    #[test]
    fn equal_states_are_no_divergence() {
        assert!(reports(&after_votes(&[])).is_empty());
        assert!(
            reports(&after_votes(&[
                (0, checkpoint(128, 1)),
                (3, checkpoint(128, 1)),
                (1, checkpoint(256, 2))
            ]))
            .is_empty()
        );
    }

    #[test]
    fn two_states_are_reported_at_once_with_replicas_that_signed_nothing() {
        let one = after_votes(&[(2, checkpoint(128, 1)), (3, checkpoint(128, 2))]);
        let expected = "states differ at height 128, no quorum so far: replica 2 signed 0101010101010101, this one (3) \
            signed 0202020202020202; replicas 0 and 1 signed nothing so far";
        assert_eq!(reports(&one), [expected]);
        let others = after_votes(&[(2, checkpoint(128, 1)), (1, checkpoint(128, 2))]);
        assert!(reports(&others).is_empty(), "liars may sign any state that this replica has not executed");
    }

    #[test]
    fn impossible_quorum_is_reported() {
        let split = [(0, 1), (1, 1), (2, 2), (3, 2)].map(|(by, state)| (by, checkpoint(128, state)));
        let line = reports(&after_votes(&split)).remove(0);
        let expected = "states differ at height 128, no quorum: replicas 0 and 1 signed 0101010101010101, replica 2 and \
            this one (3) signed 0202020202020202; no checkpoint becomes stable";
        assert!(line.starts_with(expected), "{line}");
        // The last replica need not vote for that.
        let each = [(0, 1), (1, 2), (2, 3)].map(|(by, state)| (by, checkpoint(128, state)));
        let line = reports(&after_votes(&each)).remove(0);
        assert!(
            line.contains("no quorum: replica 0 signed") && line.contains("; this one (3) signed nothing"),
            "{line}"
        );
    }

    #[test]
    fn replica_in_conflict_with_a_quorum_is_named_until_it_agrees_again() {
        let equal = [0, 1, 3].map(|by| (by, checkpoint(128, 1)));
        let expected = "states differ at height 128 from the one that a quorum has signed: replica 2 signed \
            0202020202020202, replicas 0, 1 and this one (3) signed 0101010101010101";
        let (mut early, mut late) = (vec![(2, checkpoint(128, 2))], equal.to_vec());
        early.extend(equal);
        late.push((2, checkpoint(128, 2)));
        for votes in [early, late] {
            let mut checkpoints = after_votes(&votes);
            assert_eq!(reports(&checkpoints), [expected]);
            for by in [0, 1, 3] {
                take_vote(&mut checkpoints, by, checkpoint(256, 5));
            }
            assert_eq!(reports(&checkpoints), [expected], "replica 2 signed nothing since");
            take_vote(&mut checkpoints, 2, checkpoint(256, 5));
            assert!(reports(&checkpoints).is_empty());
        }
    }

    #[test]
    fn equal_states_of_different_blocks_are_distinguished() {
        let other = Checkpoint { view: View(7), ..checkpoint(128, 1) };
        let line = reports(&after_votes(&[(2, other), (3, checkpoint(128, 1))])).remove(0);
        assert!(
            line.contains("replica 2 signed 0101010101010101 of block 0000000000000000 in view 7,"),
            "{line}"
        );
    }

    #[test]
    fn conflicts_of_one_replica_are_bounded() {
        let mut checkpoints = after_votes(&[]);
        for height in (128..128 * 200).step_by(128) {
            for by in [0, 1, 3] {
                take_vote(&mut checkpoints, by, checkpoint(height, 1));
            }
            take_vote(&mut checkpoints, 2, checkpoint(height, 2));
        }
        assert_eq!(reports(&checkpoints).len(), 1, "one conflict for each replica");
    }
}
