//! Proofs of peers at the door of a replica, under every protocol: a stable checkpoint needs as many signatures as the
//! protocol's model demands, of distinct members, for exactly this statement. A proof that is accepted wrongly would make a
//! replica forget what it needs, and believe a state that nobody has.

use crate::Cluster;
use quorate_consensus::{Certificate, Checkpoint, CheckpointProof, Entry, Model};
use quorate_crypto::{AggregateSignature, Scheme, SigningKey, statement_preimage};
use quorate_protocols::REGISTRY;
use quorate_replica::{HostMessage, StateOffer, TransferMessage};
use quorate_types::codec::Wire as _;
use quorate_types::wire::frame;
use quorate_types::{
    BlockId, ClusterId, Digest, Domain, Epoch, Height, ProtocolId, ReplicaId, Signature, View,
};

/// Numbers of replicas. With some of them f + 1, n - f, 2f + 1, n and the quorum are different numbers.
const SIZES: [usize; 6] = [3, 4, 5, 6, 8, 9];
/// The height of the first checkpoint.
const FIRST: u64 = 4;
/// Time after which a lazy write of the log is on disk.
const PAUSE_NS: u64 = 2_000_000_000;

/// Returns how many signatures make a checkpoint stable: f + 1 contain an honest one, which is enough where all messages are
/// in time. Otherwise any two such sets share an honest replica (Castro and Liskov, for any n).
fn needed(entry: &Entry, n: usize) -> usize {
    let f = (entry.spec.faults)(n);
    match entry.spec.model {
        Model::Synchrony => f + 1,
        Model::PartialSynchrony | Model::Teaching => (n + f + 2) / 2,
    }
}

/// Calls a test with every protocol at every size that it supports.
fn for_each(test: impl Fn(&Entry, usize)) {
    for entry in REGISTRY {
        SIZES.iter().filter(|n| (entry.spec.faults)(**n) > 0).for_each(|n| test(entry, *n));
    }
}

/// A checkpoint that `number` distinguishes from others at its height.
fn checkpoint(height: u64, number: u8) -> Checkpoint {
    let block = BlockId(Digest([number; 32]));
    Checkpoint { height: Height(height), block, view: View(1), state: Digest([number; 32]) }
}

fn key(id: u16) -> SigningKey {
    SigningKey::from_seed(Scheme::Cheap, [id as u8 + 1; 32])
}

/// Returns each message between hosts that carries a proof.
fn carriers(proof: &CheckpointProof) -> [HostMessage; 3] {
    let offer = StateOffer { proof: proof.clone(), header: Vec::new(), chunks: Vec::new() };
    [
        HostMessage::Proof(Box::new(proof.clone())),
        HostMessage::ShownProof(Box::new(proof.clone())),
        HostMessage::Transfer(TransferMessage::State(Box::new(offer))),
    ]
}

/// Returns the proof in a message. The match names every variant, so that a new one with a proof cannot be forgotten here.
fn proof_in(message: &HostMessage) -> Option<&CheckpointProof> {
    match message {
        HostMessage::Proof(proof) | HostMessage::ShownProof(proof) => Some(proof),
        HostMessage::Transfer(transfer) => match transfer {
            TransferMessage::State(offer) => Some(&offer.proof),
            TransferMessage::AskState(_)
            | TransferMessage::NoState
            | TransferMessage::AskPiece(_)
            | TransferMessage::Piece(..)
            | TransferMessage::NoPiece(_) => None,
        },
        HostMessage::Checkpoint(_)
        | HostMessage::AskProof
        | HostMessage::Heights(_)
        | HostMessage::AskDecided(_)
        | HostMessage::Decided(..)
        | HostMessage::AskBlock { .. }
        | HostMessage::Block(_)
        | HostMessage::NoBlock(_)
        | HostMessage::Probe { .. }
        | HostMessage::ProbeAnswer { .. }
        | HostMessage::AskShow { .. }
        | HostMessage::Shown { .. } => None,
    }
}

/// A replica that hears proofs of its peer 1.
struct Door {
    cluster: Cluster,
    domain: Domain,
}

impl Door {
    fn of(entry: &Entry, n: usize) -> Self {
        let mut cluster = Cluster::of(entry.spec.name.as_str(), n);
        cluster.settle();
        let domain = cluster.genesis.committee().domain();
        Self { cluster, domain }
    }

    fn signature(&self, by: u16, checkpoint: &Checkpoint) -> Signature {
        key(by).sign(&statement_preimage(&self.domain, &checkpoint.statement()))
    }

    /// Returns the proof that the first `count` replicas sign.
    fn proof(&self, checkpoint: Checkpoint, count: usize) -> CheckpointProof {
        self.signed_by(checkpoint, 0..count as u16)
    }

    fn signed_by(&self, checkpoint: Checkpoint, ids: impl Iterator<Item = u16> + Clone) -> CheckpointProof {
        let signatures = ids.clone().map(|id| self.signature(id, &checkpoint)).collect();
        let certificate = Certificate {
            statement: checkpoint.statement(),
            signers: ids.map(ReplicaId).collect(),
            proof: AggregateSignature::List(signatures),
        };
        CheckpointProof { checkpoint, certificate }
    }

    /// Hears a proof in every message that may carry one. Returns the reason for which all are refused; `None` if the proof
    /// is believed.
    fn hears(&mut self, proof: &CheckpointProof) -> Option<&'static str> {
        self.hears_from(1, proof)
    }

    fn hears_from(&mut self, peer: u16, proof: &CheckpointProof) -> Option<&'static str> {
        let reasons = carriers(proof).map(|message| {
            assert_eq!(proof_in(&message), Some(proof));
            (message.kind(), self.hears_message(peer, &message.to_bytes()))
        });
        let (_, reason) = reasons[0];
        assert!(reasons.iter().all(|(_, other)| *other == reason), "{}: {reasons:?}", self.domain.protocol);
        reason
    }

    fn hears_message(&mut self, peer: u16, body: &[u8]) -> Option<&'static str> {
        self.cluster.left[0].rejected.clear();
        self.cluster.hosts[0].peer_frame(ReplicaId(peer), frame::HOST, body);
        self.take_turns();
        self.cluster.left[0].rejected.first().copied()
    }

    /// A proof counts once it is on disk, which may wait for other writes.
    fn take_turns(&mut self) {
        for _ in 0..2 {
            self.cluster.turn(0, || true);
            self.cluster.now = self.cluster.now.plus(PAUSE_NS);
        }
        self.cluster.turn(0, || true);
    }

    fn stable(&self) -> u64 {
        self.cluster.hosts[0].replica().status().stable.0
    }

    /// Checks that a proof is refused for this reason, also when the same peer or another one says it again.
    fn refuses(&mut self, proof: &CheckpointProof, why: &str, what: &str) {
        let before = self.stable();
        for peer in [1, 1, 2] {
            assert_eq!(self.hears_from(peer, proof), Some(why), "{}: {what}", self.domain.protocol);
            assert_eq!(self.stable(), before, "{}: {what}", self.domain.protocol);
        }
    }
}

#[test]
fn stable_checkpoint_needs_the_quorum_of_its_protocol() {
    for_each(|entry, n| {
        let mut door = Door::of(entry, n);
        let (proof, needed) = (checkpoint(FIRST, 1), needed(entry, n));
        door.refuses(&door.proof(proof, needed - 1), "too few signers", "one signer fewer than the quorum");
        assert_eq!(door.hears(&door.proof(proof, needed)), None, "{} n={n}", entry.spec.name);
        assert_eq!(door.stable(), FIRST, "{} n={n}", entry.spec.name);
    });
}

/// The checkpoints of peers become stable by themselves with the same quorum.
#[test]
fn signed_checkpoints_become_stable_with_the_quorum_of_the_protocol() {
    for_each(|entry, n| {
        let mut door = Door::of(entry, n);
        let (checkpoint, needed) = (checkpoint(FIRST, 1), needed(entry, n));
        // Replica 0 hears the others.
        for by in 1..=needed as u16 {
            assert_eq!(door.stable(), 0, "{} n={n}: {} signatures", entry.spec.name, by - 1);
            if usize::from(by) == n {
                return;
            }
            let mut body = HostMessage::Checkpoint(checkpoint).to_bytes();
            door.signature(by, &checkpoint).encode(&mut body);
            for _ in 0..2 {
                door.cluster.hosts[0].peer_frame(ReplicaId(by), frame::HOST, &body);
            }
            door.take_turns();
        }
        assert_eq!(door.stable(), FIRST, "{} n={n}", entry.spec.name);
    });
}

#[test]
fn proof_with_a_signer_twice_or_a_stranger_is_refused() {
    for_each(|entry, n| {
        let mut door = Door::of(entry, n);
        let needed = needed(entry, n);
        let good = door.proof(checkpoint(FIRST, 1), needed);
        let with = |change: &dyn Fn(&mut Certificate, &mut Vec<Signature>)| {
            let CheckpointProof { checkpoint, mut certificate } = good.clone();
            let AggregateSignature::List(mut signatures) = certificate.proof.clone();
            change(&mut certificate, &mut signatures);
            certificate.proof = AggregateSignature::List(signatures);
            CheckpointProof { checkpoint, certificate }
        };
        let fewer = (0..needed as u16 - 1).map(ReplicaId);
        let twice = with(&|certificate, signatures| {
            certificate.signers = fewer.clone().collect();
            signatures[needed - 1] = signatures[0];
        });
        door.refuses(&twice, "too few signers", "one signer twice");
        let copied = with(&|_, signatures| signatures[1] = signatures[0]);
        door.refuses(&copied, "bad signature", "the signature of one replica under the ids of two");
        let surplus = with(&|_, signatures| signatures.push(signatures[0]));
        door.refuses(&surplus, "signatures and signers differ", "more signatures than signers");
        let stranger = with(&|certificate, _| {
            certificate.signers = fewer.clone().chain([ReplicaId(n as u16)]).collect();
        });
        door.refuses(&stranger, "signer is not a member", "a signer outside of the committee");
        let other = with(&|_, signatures| {
            signatures[0] =
                key(n as u16).sign(&statement_preimage(&door.domain, &checkpoint(FIRST, 1).statement()));
        });
        door.refuses(&other, "bad signature", "the key of another committee");
        assert_eq!(door.hears(&good), None);
    });
}

#[test]
fn proof_of_another_cluster_protocol_epoch_or_checkpoint_is_refused() {
    for_each(|entry, n| {
        let mut door = Door::of(entry, n);
        let (mine, needed) = (door.domain, needed(entry, n));
        let domains = [
            ("cluster", Domain { cluster: ClusterId(Digest([8; 32])), ..mine }),
            ("protocol", Domain { protocol: ProtocolId::new("other"), ..mine }),
            ("epoch", Domain { epoch: Epoch(mine.epoch.0 + 1), ..mine }),
        ];
        for (what, domain) in domains {
            door.domain = domain;
            let proof = door.proof(checkpoint(FIRST, 1), needed);
            door.domain = mine;
            door.refuses(&proof, "bad signature", what);
        }
        let signed = checkpoint(FIRST, 1);
        let others = [
            Checkpoint { height: Height(2 * FIRST), ..signed },
            Checkpoint { block: BlockId(Digest([9; 32])), ..signed },
            Checkpoint { view: View(2), ..signed },
            Checkpoint { state: Digest([9; 32]), ..signed },
        ];
        for other in others {
            let CheckpointProof { certificate, .. } = door.proof(signed, needed);
            let borrowed = CheckpointProof { checkpoint: other, certificate: certificate.clone() };
            door.refuses(&borrowed, "proof of another checkpoint", "a certificate of another checkpoint");
            let relabelled = Certificate { statement: other.statement(), ..certificate };
            let relabelled = CheckpointProof { checkpoint: other, certificate: relabelled };
            door.refuses(&relabelled, "bad signature", "signatures of another statement");
        }
        assert_eq!(door.hears(&door.proof(signed, needed)), None);
    });
}

/// A replica checks a certificate once. That says nothing about another one for the same statement.
#[test]
fn checked_certificate_vouches_for_no_other_one() {
    for_each(|entry, n| {
        let mut door = Door::of(entry, n);
        let (signed, needed) = (checkpoint(FIRST, 1), needed(entry, n));
        let good = door.proof(signed, needed);
        assert_eq!(door.hears(&good), None);
        door.refuses(&door.proof(signed, needed - 1), "too few signers", "a part of a checked certificate");
        if needed < n {
            let CheckpointProof { checkpoint, mut certificate } = good.clone();
            certificate.signers = (1..=needed as u16).map(ReplicaId).collect();
            let moved = CheckpointProof { checkpoint, certificate };
            door.refuses(
                &moved,
                "bad signature",
                "other signers with the signatures of a checked certificate",
            );
        }
        // The next height with the signatures of the last one.
        let next = Checkpoint { height: Height(2 * FIRST), ..signed };
        let certificate = Certificate { statement: next.statement(), ..good.certificate };
        let forged = CheckpointProof { checkpoint: next, certificate };
        door.refuses(&forged, "bad signature", "another height with the signatures of a checked certificate");
        assert_eq!(door.hears(&door.proof(next, needed)), None);
        assert_eq!(door.stable(), 2 * FIRST);
    });
}

#[test]
fn checkpoint_of_a_peer_needs_its_own_signature() {
    for_each(|entry, n| {
        let mut door = Door::of(entry, n);
        let signed = checkpoint(FIRST, 1);
        let mut body = HostMessage::Checkpoint(signed).to_bytes();
        assert_eq!(door.hears_message(1, &body), Some("malformed host message"), "no signature");
        door.signature(2, &signed).encode(&mut body);
        assert_eq!(door.hears_message(1, &body), Some("bad signature"), "the signature of another replica");
        let mut body = HostMessage::Checkpoint(Checkpoint { state: Digest([9; 32]), ..signed }).to_bytes();
        door.signature(1, &signed).encode(&mut body);
        assert_eq!(door.hears_message(1, &body), Some("bad signature"), "the signature of another state");
    });
}

/// Signed checkpoints above the window of f + 1 peers show that an honest replica is far ahead. Fewer may all lie.
#[test]
fn replica_asks_for_a_proof_when_f_plus_1_peers_are_far_ahead() {
    for_each(|entry, n| {
        let mut door = Door::of(entry, n);
        let weak = (entry.spec.faults)(n) as u16 + 1;
        for by in 1..=weak.min(n as u16 - 1) {
            // Their checkpoints differ, so none becomes stable.
            let far = checkpoint(100 + FIRST * u64::from(by), 1);
            let mut body = HostMessage::Checkpoint(far).to_bytes();
            door.signature(by, &far).encode(&mut body);
            door.cluster.left[0].frames.clear();
            assert_eq!(door.hears_message(by, &body), None, "{}", entry.spec.name);
            let asks = door.cluster.left[0].host_messages().filter(|it| *it == HostMessage::AskProof).count();
            assert_eq!(asks, usize::from(by == weak), "{} n={n}: {by} are ahead", entry.spec.name);
        }
    });
}
