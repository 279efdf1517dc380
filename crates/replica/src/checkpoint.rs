//! Checkpoints: one scheme for all protocols.
//!
//! Each replica signs its state every K heights. A quorum of equal signatures makes the checkpoint stable. Then
//! entries below it are pruned, and the protocol's window moves.

use crate::divergence::{Divergence, Quorum, by_state};
use crate::outbox::Outbox;
use quorate_consensus::{Certificate, Checkpoint, CheckpointProof};
use quorate_crypto::AggregateSignature;
use quorate_types::{Height, Mark, ReplicaId, ReplicaSet, Signature, Time};
use std::collections::BTreeMap;

/// Checkpoints above the window that are remembered for one sender.
const FAR_PER_SENDER: usize = 2;

/// The pause between two questions for the newest proof.
const ASK_PAUSE_NS: u64 = 1_000_000_000;

/// The pause between two answers to one peer that reports its heights: half of the pause between such reports.
const HELP_PAUSE_NS: u64 = 500_000_000;

/// See the module.
#[derive(Debug)]
pub(crate) struct Checkpoints {
    stable: CheckpointProof,
    /// A proof that is being made durable before it counts.
    coming: Option<CheckpointProof>,
    /// The mark of that proof in the log.
    pub(crate) proof_mark: Option<Mark>,
    /// The earliest time of the next question for a proof.
    ask_at: Time,
    window: u64,
    quorum: usize,
    signed: BTreeMap<Height, BTreeMap<ReplicaId, (Checkpoint, Signature)>>,
    /// Own checkpoints above the stable one.
    own: BTreeMap<Height, Checkpoint>,
    /// The time at which each peer was helped last.
    helped: BTreeMap<ReplicaId, Time>,
    /// Replicas whose last checkpoint conflicts with one that a quorum has signed, with its proof: at most one for
    /// each replica.
    contradicted: BTreeMap<ReplicaId, (Checkpoint, CheckpointProof)>,
    /// The number of checkpoint messages so far.
    received: u64,
}

impl Checkpoints {
    pub(crate) fn new(stable: CheckpointProof, window: u64, quorum: usize) -> Self {
        Self {
            stable,
            coming: None,
            proof_mark: None,
            ask_at: Time::ZERO,
            window,
            quorum,
            signed: BTreeMap::new(),
            own: BTreeMap::new(),
            helped: BTreeMap::new(),
            contradicted: BTreeMap::new(),
            received: 0,
        }
    }

    /// Whether it is time to help a peer with proofs and signatures. A report of heights costs the peer nothing, and
    /// every answer costs this replica signatures.
    pub(crate) fn may_help(&mut self, peer: ReplicaId, now: Time) -> bool {
        let due = self.helped.get(&peer).is_none_or(|last| now.since(*last) >= HELP_PAUSE_NS);
        if due {
            self.helped.insert(peer, now);
        }
        due
    }

    /// Whether it is time to ask peers for a proof; if so, notes that they are asked.
    pub(crate) fn may_ask(&mut self, now: Time) -> bool {
        let due = self.ask_at <= now;
        if due {
            self.ask_at = now.plus(ASK_PAUSE_NS);
        }
        due
    }

    /// Whether the coming proof has become durable; true once.
    pub(crate) fn take_durable_proof(&mut self, outbox: &Outbox) -> bool {
        self.proof_mark.take_if(|mark| outbox.is_durable(*mark)).is_some()
    }

    /// Returns the newest stable checkpoint whose proof is durable.
    pub(crate) fn stable(&self) -> &CheckpointProof {
        &self.stable
    }

    /// Returns the newest proof in the log, durable or not.
    pub(crate) fn newest_proof(&self) -> &CheckpointProof {
        self.coming.as_ref().unwrap_or(&self.stable)
    }

    /// Returns the height of that checkpoint.
    pub(crate) fn height(&self) -> Height {
        self.stable.checkpoint.height
    }

    fn newest(&self) -> Height {
        self.newest_proof().checkpoint.height
    }

    /// Notes a checkpoint that this replica has executed.
    pub(crate) fn note_own(&mut self, checkpoint: Checkpoint) {
        if checkpoint.height > self.height() {
            self.own.insert(checkpoint.height, checkpoint);
        }
    }

    /// Takes in a signed checkpoint, of a peer or the own copy. Returns the proof when the checkpoint becomes stable
    /// by it.
    pub(crate) fn add(
        &mut self,
        by: ReplicaId,
        checkpoint: Checkpoint,
        signature: Signature,
    ) -> Option<CheckpointProof> {
        let height = checkpoint.height;
        self.received = self.received.saturating_add(1);
        if height <= self.newest() {
            self.compare(by, checkpoint);
            return None;
        }
        self.signed.entry(height).or_default().entry(by).or_insert((checkpoint, signature));
        self.forget_far(by);
        let votes = self.signed.get(&height)?;
        let equal: Vec<(ReplicaId, Signature)> = votes
            .iter()
            .filter(|(_, (voted, _))| *voted == checkpoint)
            .map(|(by, (_, signature))| (*by, *signature))
            .collect();
        (equal.len() >= self.quorum).then(|| CheckpointProof {
            checkpoint,
            certificate: Certificate {
                statement: checkpoint.statement(),
                signers: equal.iter().map(|(by, _)| *by).collect(),
                proof: AggregateSignature::List(equal.into_iter().map(|(_, signature)| signature).collect()),
            },
        })
    }

    /// Keeps the newest few checkpoints of a sender above the window, and those inside it.
    fn forget_far(&mut self, by: ReplicaId) {
        let edge = self.height().plus(self.window);
        let far: Vec<Height> = self
            .signed
            .range(edge.next()..)
            .filter(|(_, votes)| votes.contains_key(&by))
            .map(|(height, _)| *height)
            .collect();
        for height in far.iter().rev().skip(FAR_PER_SENDER) {
            if let Some(votes) = self.signed.get_mut(height) {
                votes.remove(&by);
            }
        }
        self.signed.retain(|_, votes| !votes.is_empty());
    }

    /// Returns the replicas that have signed a checkpoint above the window: f + 1 of them mean that this replica is
    /// far behind.
    pub(crate) fn far_ahead(&self) -> ReplicaSet {
        let edge = self.height().plus(self.window);
        self.signed.range(edge.next()..).flat_map(|(_, votes)| votes.keys().copied()).collect()
    }

    /// Prepares a checked proof to become the stable checkpoint once it is durable. Returns false when it is not newer
    /// than the present one.
    pub(crate) fn prepare(&mut self, proof: CheckpointProof) -> bool {
        let newer = proof.checkpoint.height > self.newest();
        if newer {
            let signed = self.signed.get(&proof.checkpoint.height).into_iter().flatten();
            let signed: Vec<(ReplicaId, Checkpoint)> =
                signed.map(|(by, (checkpoint, _))| (*by, *checkpoint)).collect();
            self.coming = Some(proof);
            self.received = self.received.saturating_add(1);
            signed.into_iter().for_each(|(by, checkpoint)| self.compare(by, checkpoint));
        }
        newer
    }

    /// Remembers a replica whose checkpoint conflicts with a quorum's, until it agrees at a later one.
    pub(crate) fn compare(&mut self, by: ReplicaId, checkpoint: Checkpoint) {
        let proofs = self.coming.iter().chain([&self.stable]);
        let Some(proof) = proofs.into_iter().find(|proof| proof.checkpoint.height == checkpoint.height)
        else {
            return;
        };
        if proof.checkpoint != checkpoint {
            self.contradicted.insert(by, (checkpoint, proof.clone()));
        } else if self.contradicted.get(&by).is_some_and(|(old, _)| old.height < checkpoint.height) {
            self.contradicted.remove(&by);
        }
    }

    /// Returns the number of checkpoint messages so far: [`Self::differing`] has changed at most that often.
    pub(crate) fn received(&self) -> u64 {
        self.received
    }

    /// Returns the heights at which replicas have signed different states: conflicts with a quorum, and heights
    /// without a quorum.
    pub(crate) fn differing(&self, me: ReplicaId, all: ReplicaSet) -> Vec<Divergence> {
        let mut differing: Vec<Divergence> = Vec::new();
        for (by, (signed, proof)) in &self.contradicted {
            let signers = (proof.checkpoint, proof.certificate.signers);
            let states = vec![(*signed, ReplicaSet::from_iter([*by])), signers];
            let (height, silent) = (signed.height, ReplicaSet::EMPTY);
            differing.push(Divergence { me, height, states, silent, quorum: Quorum::Reached });
        }
        for (height, votes) in self.signed.iter().filter(|(height, _)| **height > self.newest()) {
            let states = by_state(votes.iter().map(|(by, (checkpoint, _))| (*by, *checkpoint)));
            let silent: ReplicaSet = all.iter().filter(|id| !votes.contains_key(id)).collect();
            let most = states.last().map_or(0, |(_, who)| who.len());
            let is_open = most.saturating_add(silent.len()) >= self.quorum;
            let quorum = if is_open { Quorum::Open } else { Quorum::Never };
            // While a quorum is possible, liars can sign any state of heights that no replica has executed.
            if states.len() > 1 && (!is_open || votes.contains_key(&me)) {
                differing.push(Divergence { me, height: *height, states, silent, quorum });
            }
        }
        differing
    }

    /// Returns this replica's own checkpoints that are not stable yet, with its signatures.
    pub(crate) fn own_signed(&self, me: ReplicaId) -> Vec<(Checkpoint, Signature)> {
        self.signed.values().filter_map(|votes| votes.get(&me)).copied().collect()
    }

    /// Whether a checkpoint of this replica waits for the others.
    pub(crate) fn waits(&self) -> bool {
        self.own.keys().any(|height| *height > self.newest())
    }

    /// Returns this replica's own checkpoint where it conflicts with a stable one.
    pub(crate) fn diverged(&self, stable: &Checkpoint) -> Option<Checkpoint> {
        self.own.get(&stable.height).copied().filter(|own| own != stable)
    }

    /// Returns the checkpoint that a quorum has signed at this height, as far as the proof is stored, durable or not.
    pub(crate) fn proved(&self, height: Height) -> Option<Checkpoint> {
        let proofs = std::iter::once(&self.stable).chain(&self.coming);
        proofs.map(|proof| proof.checkpoint).find(|checkpoint| checkpoint.height == height)
    }

    /// Makes the durable proof the stable checkpoint.
    pub(crate) fn install(&mut self) -> Option<&CheckpointProof> {
        let proof = self.coming.take()?;
        let height = proof.checkpoint.height;
        self.stable = proof;
        self.signed.retain(|signed, _| *signed > height);
        self.own.retain(|own, _| *own > height);
        Some(&self.stable)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quorate_types::{BlockId, Digest, View};

    fn checkpoint(height: u64, state: u8) -> Checkpoint {
        Checkpoint { height: Height(height), block: BlockId::ZERO, view: View(0), state: Digest([state; 32]) }
    }

    fn sign(by: u16) -> (ReplicaId, Signature) {
        (ReplicaId(by), Signature([1; 64]))
    }

    #[test]
    fn peer_is_helped_at_most_twice_a_second() {
        let mut checkpoints = Checkpoints::new(CheckpointProof::genesis(), 256, 3);
        let mut helped = |peer: u16, ms: u64| checkpoints.may_help(ReplicaId(peer), Time(ms * 1_000_000));
        assert!(helped(1, 0) && helped(2, 1), "each peer has its own pause");
        assert!(!helped(1, 499) && helped(1, 500) && !helped(1, 999) && helped(1, 1_000));
    }

    #[test]
    fn quorum_of_equal_signatures_makes_a_checkpoint_stable() {
        let mut checkpoints = Checkpoints::new(CheckpointProof::genesis(), 256, 3);
        let add = |checkpoints: &mut Checkpoints, by: u16, state: u8| {
            let (by, signature) = sign(by);
            checkpoints.add(by, checkpoint(128, state), signature)
        };
        assert!(add(&mut checkpoints, 0, 1).is_none());
        assert!(add(&mut checkpoints, 0, 1).is_none(), "a sender counts once");
        assert!(add(&mut checkpoints, 1, 2).is_none(), "another state does not count");
        assert!(add(&mut checkpoints, 2, 1).is_none());
        let proof = add(&mut checkpoints, 3, 1).unwrap();
        assert_eq!(proof.certificate.signers.len(), 3);
        checkpoints.note_own(checkpoint(128, 2));
        assert!(checkpoints.diverged(&proof.checkpoint).is_some());
        assert_eq!(checkpoints.proved(proof.checkpoint.height), None);
        assert!(checkpoints.prepare(proof.clone()) && !checkpoints.prepare(proof.clone()));
        assert_eq!(checkpoints.proved(Height(128)), Some(proof.checkpoint), "before it is durable");
        assert_eq!(checkpoints.height(), Height(0), "not before it is durable");
        checkpoints.install();
        assert_eq!(checkpoints.height(), Height(128));
    }

    #[test]
    fn checkpoints_of_one_sender_are_bounded() {
        let mut checkpoints = Checkpoints::new(CheckpointProof::genesis(), 256, 3);
        for height in 0..10_000 {
            let (by, signature) = sign(3);
            checkpoints.add(by, checkpoint(1_000 + height, 0), signature);
        }
        assert!(checkpoints.signed.len() <= FAR_PER_SENDER);
        assert_eq!(checkpoints.far_ahead().len(), 1);
    }
}
