//! Properties of a protocol.

use quorate_types::{Kind, ProtocolId, View, quorum};
use std::fmt;
use std::time::Duration;

/// Timing model of a protocol.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Model {
    /// Safe always; live when delays are bounded from some unknown time on.
    PartialSynchrony,
    /// Delays are at most a known Δ.
    Synchrony,
    /// For teaching: tolerates no fault of its leader.
    Teaching,
}

/// The purpose of a message in a protocol, for measurements. A later one counts where a step sends messages of several roles.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum MessageRole {
    /// The message votes for a block.
    Vote,
    /// The message proposes a block.
    Proposal,
    /// The message leaves a view whose leader has failed, or begins the next one.
    ViewChange,
}

/// Properties of a protocol.
#[derive(Clone, Copy, Debug)]
pub struct Spec {
    /// Name in the registry, on the command line and in every signature.
    pub name: ProtocolId,
    /// One sentence.
    pub summary: &'static str,
    /// Timing model.
    pub model: Model,
    /// Faulty replicas tolerated among n.
    pub faults: fn(n: usize) -> usize,
    /// Signatures that make a checkpoint stable.
    pub checkpoint_quorum: fn(n: usize, f: usize) -> usize,
    /// Equal replies that a client needs.
    pub replies: fn(n: usize, f: usize) -> usize,
    /// Whether a commit rests on votes that were durable before they were sent. If not, the host holds replies until
    /// bodies and decided ids are in the own log.
    pub votes_are_durable: bool,
    /// Whether each vote carries a signature of its own, so that a view change shows certificates of votes. The
    /// certificates take room in frames and in the log, in proportion to n and to the window.
    pub votes_are_signed: bool,
    /// Whether the protocol tolerates bodies that are valid at some replicas only (MAC vectors). No host reads it yet: it
    /// waits for bundles with MAC vectors.
    pub local_validity: bool,
    /// Whether the leader can be replaced. Without, replica 0 leads for ever, and a silent leader stops the cluster.
    pub replaces_leader: bool,
    /// Whether leaders follow each other while nothing goes wrong. The replica that receives a bundle from a client then
    /// sends it to all at once: another leader would lead by the time it reached the present one.
    pub rotates_leaders: bool,
    /// First view.
    pub first_view: View,
    /// Parameters that must be equal everywhere and are therefore in genesis.
    pub shared_params: &'static [&'static str],
    /// The kinds of statements that a replica may sign again with another subject ([`crate::Message::once`] is false). They
    /// promise nothing, and the guard does not know them.
    pub repeatable: &'static [Kind],
    /// The roles of the kinds of messages. Other kinds have no role: requests for missing data, their answers, and reports
    /// of progress.
    pub roles: &'static [(Kind, MessageRole)],
}

impl Spec {
    /// Returns the role of a kind of messages.
    #[must_use]
    pub fn role(&self, kind: Kind) -> Option<MessageRole> {
        self.roles.iter().find(|(named, _)| *named == kind).map(|(_, role)| *role)
    }

    /// Returns the number of running replicas that a cluster needs to serve clients.
    #[must_use]
    pub const fn serving(&self, n: usize, f: usize) -> usize {
        match self.model {
            // f + 1 vote, and of the others f may be away.
            Model::Synchrony => quorum::all_honest(n, f),
            Model::PartialSynchrony | Model::Teaching => quorum::byzantine(n, f),
        }
    }
}

/// Needs of the host's synchrony guard.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Synchrony {
    /// Δ.
    pub delta_ns: u64,
    /// Whether the guard is on.
    pub guarded: bool,
}

impl Synchrony {
    /// Returns `guarded` or `unguarded`.
    pub fn mode(&self) -> &'static str {
        if self.guarded { "guarded" } else { "unguarded" }
    }
}

/// The form that all reports use.
impl fmt::Display for Synchrony {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "delta {:?}, {}", Duration::from_nanos(self.delta_ns), self.mode())
    }
}
