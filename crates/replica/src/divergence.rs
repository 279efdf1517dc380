//! States that differ: replicas have signed different checkpoints of one height.
//!
//! One that differs from what a quorum has signed is faulty, or its machine is. Where no state can reach a quorum any more
//! the application itself is at fault: no checkpoint becomes stable, and everything stops where the window ends. A single
//! signature may be a lie, so what is said is who says what.

use quorate_consensus::Checkpoint;
use quorate_types::digest::hex;
use quorate_types::{Height, ReplicaId, ReplicaSet};
use std::fmt;

/// Bytes of a digest that are shown: enough to tell states apart, and to find them in `status`.
const SHOWN_BYTES: usize = 8;

/// What the signatures that are here lead to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Quorum {
    /// A quorum has signed the last of the states: whoever says another one is faulty.
    Reached,
    /// None has so far, and a state may still reach one.
    Open,
    /// No state can reach a quorum any more.
    Never,
}

/// Checkpoints of one height that differ.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Divergence {
    /// Which replica sees it.
    pub me: ReplicaId,
    /// The height after whose execution states differ.
    pub height: Height,
    /// Each checkpoint with those who have signed it: fewest first.
    pub says: Vec<(Checkpoint, ReplicaSet)>,
    /// Those that have signed nothing of this height yet; empty where a quorum is reached.
    pub silent: ReplicaSet,
    /// What comes of it.
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
        for (at, (checkpoint, who)) in self.says.iter().enumerate() {
            let gap = if at > 0 { ", " } else { "" };
            let say = if who.len() == 1 { "says" } else { "say" };
            write!(f, "{gap}{} {say} {}", names(*who, self.me), self.shown(checkpoint))?;
        }
        if !self.silent.is_empty() {
            let have = if self.silent.len() == 1 { "has" } else { "have" };
            write!(f, "; {} {have} said nothing yet", names(self.silent, self.me))?;
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
    /// The state; where that does not tell two checkpoints apart, the block and its view too.
    fn shown(&self, checkpoint: &Checkpoint) -> String {
        let short = |bytes: &[u8]| hex(bytes.get(..SHOWN_BYTES).unwrap_or(bytes));
        let state = short(&checkpoint.state.0);
        let is_alike =
            |(other, _): &&(Checkpoint, ReplicaSet)| other.state == checkpoint.state && other != checkpoint;
        match self.says.iter().find(is_alike) {
            Some(_) => {
                format!("{state} of block {} in view {}", short(&checkpoint.block.0.0), checkpoint.view)
            }
            None => state,
        }
    }
}

/// "replica 2", "replicas 0 and 1", "replica 0 and this one (3)".
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

/// Checkpoints with those who have signed them, fewest first.
pub(crate) fn by_state(
    votes: impl Iterator<Item = (ReplicaId, Checkpoint)>,
) -> Vec<(Checkpoint, ReplicaSet)> {
    let mut says: Vec<(Checkpoint, ReplicaSet)> = Vec::new();
    for (by, checkpoint) in votes {
        match says.iter_mut().find(|(known, _)| *known == checkpoint) {
            Some((_, who)) => {
                who.insert(by);
            }
            None => says.push((checkpoint, ReplicaSet::from_iter([by]))),
        }
    }
    says.sort_by_key(|(_, who)| who.len());
    says
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

    /// Replica 3 of four, of which one may be faulty; and of the peers with what they have signed, in this order.
    fn heard(votes: &[(u16, Checkpoint)]) -> Checkpoints {
        let mut checkpoints = Checkpoints::new(CheckpointProof::genesis(), 256, 3);
        for (by, checkpoint) in votes {
            hear(&mut checkpoints, *by, *checkpoint);
        }
        checkpoints
    }

    fn hear(checkpoints: &mut Checkpoints, by: u16, checkpoint: Checkpoint) {
        if let Some(proof) = checkpoints.add(ReplicaId(by), checkpoint, Signature([0; 64])) {
            assert!(checkpoints.prepare(proof));
            checkpoints.install();
        }
    }

    fn told(checkpoints: &Checkpoints) -> Vec<String> {
        let differing = checkpoints.differing(ME, (0..4).map(ReplicaId).collect());
        differing.iter().map(Divergence::to_string).collect()
    }

    #[test]
    fn states_that_are_equal_are_no_news() {
        assert!(told(&heard(&[])).is_empty());
        assert!(
            told(&heard(&[(0, checkpoint(128, 1)), (3, checkpoint(128, 1)), (1, checkpoint(256, 2))]))
                .is_empty()
        );
    }

    #[test]
    fn two_states_are_told_at_once_with_those_who_have_not_spoken() {
        let one = heard(&[(2, checkpoint(128, 1)), (3, checkpoint(128, 2))]);
        let expected = "states differ at height 128, no quorum so far: replica 2 says 0101010101010101, this one (3) \
            says 0202020202020202; replicas 0 and 1 have said nothing yet";
        assert_eq!(told(&one), [expected]);
        let others = heard(&[(2, checkpoint(128, 1)), (1, checkpoint(128, 2))]);
        assert!(
            told(&others).is_empty(),
            "liars may say what they like of what this replica has not executed"
        );
    }

    #[test]
    fn where_no_state_can_have_a_quorum_that_is_said() {
        let split = [(0, 1), (1, 1), (2, 2), (3, 2)].map(|(by, state)| (by, checkpoint(128, state)));
        let line = told(&heard(&split)).remove(0);
        let expected = "states differ at height 128, no quorum: replicas 0 and 1 say 0101010101010101, replica 2 and \
            this one (3) say 0202020202020202; no checkpoint becomes stable";
        assert!(line.starts_with(expected), "{line}");
        // Nobody needs to hear the last one for that.
        let each = [(0, 1), (1, 2), (2, 3)].map(|(by, state)| (by, checkpoint(128, state)));
        let line = told(&heard(&each)).remove(0);
        assert!(
            line.contains("no quorum: replica 0 says") && line.contains("; this one (3) has said nothing"),
            "{line}"
        );
    }

    #[test]
    fn who_contradicts_a_quorum_is_named_until_it_agrees_again() {
        let equal = [0, 1, 3].map(|by| (by, checkpoint(128, 1)));
        let expected = "states differ at height 128 from the one that a quorum has signed: replica 2 says \
            0202020202020202, replicas 0, 1 and this one (3) say 0101010101010101";
        let (mut early, mut late) = (vec![(2, checkpoint(128, 2))], equal.to_vec());
        early.extend(equal);
        late.push((2, checkpoint(128, 2)));
        for votes in [early, late] {
            let mut checkpoints = heard(&votes);
            assert_eq!(told(&checkpoints), [expected]);
            for by in [0, 1, 3] {
                hear(&mut checkpoints, by, checkpoint(256, 5));
            }
            assert_eq!(told(&checkpoints), [expected], "it has not said anything since");
            hear(&mut checkpoints, 2, checkpoint(256, 5));
            assert!(told(&checkpoints).is_empty());
        }
    }

    #[test]
    fn equal_states_of_different_blocks_are_told_apart() {
        let other = Checkpoint { view: View(7), ..checkpoint(128, 1) };
        let line = told(&heard(&[(2, other), (3, checkpoint(128, 1))])).remove(0);
        assert!(
            line.contains("replica 2 says 0101010101010101 of block 0000000000000000 in view 7,"),
            "{line}"
        );
    }

    #[test]
    fn a_liar_fills_no_memory() {
        let mut checkpoints = heard(&[]);
        for height in (128..128 * 200).step_by(128) {
            for by in [0, 1, 3] {
                hear(&mut checkpoints, by, checkpoint(height, 1));
            }
            hear(&mut checkpoints, 2, checkpoint(height, 2));
        }
        assert_eq!(told(&checkpoints).len(), 1, "one word of each replica");
    }
}
