//! What a protocol is.

use crate::attack::AttackEntry;
use crate::context::{Cx, Ready};
use crate::figures::Figures;
use crate::message::{Message, Place, Verified};
use crate::pace::Pace;
use crate::parts::certificate::CheckpointProof;
use crate::reject::Reject;
use quorate_types::{
    Block, BlockId, Committee, DecodeError, Digest, Floors, Height, Incarnation, ProtocolId, ReplicaId, Time,
    View, quorum,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt::{self, Debug};
use std::ops::Range;
use std::time::Duration;

/// A protocol, as one state machine of handlers.
///
/// Handlers never wait, never read a clock and never see an unchecked signature. What they want done they say
/// through [`Cx`].
pub trait Protocol: Sized + Send + 'static {
    /// Its properties, as the host and the documentation need them.
    const SPEC: Spec;
    /// Attacks of its own, for simulators: a protocol's folder keeps them in `byzantine.rs`.
    const ATTACKS: &'static [AttackEntry] = &[];
    /// What it costs when nothing goes wrong. The tests of the registry demand it of every protocol there.
    const FIGURES: Option<Figures> = None;
    /// Parameters that the simulator may set and no node may: the files of nodes do not show them, and refuse them.
    const EXAM_ONLY: &'static [&'static str] = &[];
    /// Parameters that decide how it works, each with the values that the exam draws from.
    const CHOICES: &'static [Choice] = &[];
    /// What replicas say to each other.
    type Message: Message;
    /// Its timers.
    type Timer: Copy + Ord + Debug + Send;
    /// What silence about it would betray: locks, entered views.
    type Record: Record;
    /// Its parameters; those named in `Spec::shared_params` stand in genesis, the others in `node.toml`, but for those
    /// named in `EXAM_ONLY`.
    type Params: Default + Serialize + DeserializeOwned;

    /// Starts, or starts again with what the log kept.
    ///
    /// # Errors
    /// When the parameters are out of range or the past contradicts itself.
    fn open(cx: &mut Cx<'_, Self>, params: Self::Params, past: Past<Self::Record>)
    -> Result<Self, OpenError>;

    /// A verified message, or the own copy of one that was sent.
    ///
    /// # Errors
    /// Why nothing (more) was done; effects made before stand.
    fn on_message(&mut self, cx: &mut Cx<'_, Self>, message: Verified<Self::Message>) -> Result<(), Reject>;

    /// A timer is due.
    fn on_timer(&mut self, cx: &mut Cx<'_, Self>, timer: Self::Timer);

    /// A block, its ancestors up to the root and all their bodies are here and checked.
    fn on_ready(&mut self, cx: &mut Cx<'_, Self>, block: BlockId, how: Ready);

    /// Clients wait, or the oldest waiting bundle changed.
    fn on_pending(&mut self, cx: &mut Cx<'_, Self>) {
        let _ = cx;
    }

    /// A height was executed; `fresh` requests were applied for the first time.
    fn on_executed(&mut self, cx: &mut Cx<'_, Self>, height: Height, fresh: u32) {
        let _ = (cx, height, fresh);
    }

    /// f + 1 peers say that this was decided; the protocol itself has not said so.
    fn on_decided(&mut self, cx: &mut Cx<'_, Self>, height: Height, block: BlockId) {
        let _ = (cx, height, block);
    }

    /// A newer checkpoint is stable and its proof durable: advance watermarks, prune.
    fn on_checkpoint(&mut self, cx: &mut Cx<'_, Self>, stable: &CheckpointProof) {
        let _ = (cx, stable);
    }

    /// Something happened to the link to a peer.
    fn on_link(&mut self, cx: &mut Cx<'_, Self>, peer: ReplicaId, what: LinkEvent) {
        let _ = (cx, peer, what);
    }

    /// Synchronous protocols: [`Cx::sound`] may answer otherwise now. Doubt has begun or ended, or answers are here for
    /// which it was asked in vain.
    fn on_sound(&mut self, cx: &mut Cx<'_, Self>) {
        let _ = cx;
    }

    /// From a healed network to the first new commit, at most. The exam holds the protocol to it.
    fn recovery(params: &Self::Params, committee: &Committee, healed: &Healed) -> Time;

    /// Parameters for the exam, whose network heals to delays of at most `delta_ns`.
    fn exam_params(delta_ns: u64, guarded: bool) -> Self::Params;

    /// By which notes an observer sees why views are left; `None` for protocols that leave them without a certificate.
    fn pace(params: &Self::Params) -> Option<Pace> {
        let _ = params;
        None
    }

    /// What the host's synchrony guard needs; `None` for protocols that assume no bound.
    fn synchrony(params: &Self::Params) -> Option<Synchrony> {
        let _ = params;
        None
    }

    /// What is worth verifying now.
    fn window(&self) -> Window;

    /// Below which views and heights a slot is dead.
    fn floors(&self) -> Floors;

    /// Where it stands: for people, oracles and clients.
    fn status(&self) -> Status;
}

/// A parameter that decides how a protocol works, and some of its values.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Choice {
    /// The parameter, a text.
    pub name: &'static str,
    /// What it may be.
    pub values: &'static [&'static str],
}

/// A fact that must survive a crash.
pub trait Record: Sized {
    /// A later record with the same key replaces this one. One with a height is dropped when a checkpoint at or
    /// above that height is stable.
    fn key(&self) -> RecordKey;
    /// Appends the encoding.
    fn encode(&self, out: &mut Vec<u8>);
    /// Reads a record that fills `bytes`.
    ///
    /// # Errors
    /// When the bytes are not a record: the log is of another version, or damaged.
    fn decode(bytes: &[u8]) -> Result<Self, DecodeError>;
}

/// Which fact a record states.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct RecordKey {
    /// Which kind of record, as the protocol numbers them.
    pub kind: u8,
    /// The height it is about; 0 for one that no checkpoint makes obsolete.
    pub height: Height,
    /// The branch or block it is about; zero where the height says enough.
    pub scope: Digest,
}

/// What a protocol is opened with.
#[derive(Clone, Debug)]
pub struct Past<R> {
    /// The newest record of every key that is still alive, in the order of their keys.
    pub records: Vec<R>,
    /// The newest stable checkpoint; genesis at the first start.
    pub checkpoint: CheckpointProof,
    /// Undecided and recently decided blocks above the checkpoint; they are in the block tree already.
    pub blocks: Vec<Block>,
    /// The last height that was executed.
    pub executed: Height,
    /// What was decided above the checkpoint, as far as this replica knows.
    pub decided: Vec<(Height, BlockId)>,
    /// Number of this opening, from 1.
    pub incarnation: Incarnation,
    /// L: heights above the stable checkpoint that may be in use. From genesis.
    pub window: u64,
    /// K: heights between two checkpoints. From genesis.
    pub checkpoint_every: u64,
}

/// Why a protocol does not start.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum OpenError {
    /// A parameter is out of range.
    #[error("parameter {name}: {expected}")]
    Params {
        /// Which.
        name: String,
        /// What was expected.
        expected: String,
    },
    /// n and f do not suit the protocol.
    #[error("{0}")]
    Committee(String),
    /// What the log kept is not what this protocol writes.
    #[error("the log does not fit the protocol: {0}")]
    Past(String),
}

/// What happened to a link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LinkEvent {
    /// Something was lost for good; where safety rests on a bound on delays, something that the peer has said.
    Gap,
    /// The peer is connected (again), or only what is asked for anew was lost.
    Back,
}

/// Messages worth verifying. Views and heights outside are refused before any cryptography; a message that
/// carries a certificate may lie above.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Window {
    /// Views.
    pub views: Range<View>,
    /// Heights; 0 (statements about a view) is always inside.
    pub heights: Range<Height>,
}

impl Window {
    /// Whether a message at this place is worth verifying.
    #[must_use]
    pub fn admits(&self, place: &Place) -> bool {
        let view = place.view >= self.views.start && (place.certified || place.view < self.views.end);
        let height =
            place.height >= self.heights.start && (place.certified || place.height < self.heights.end);
        view && (height || place.height == Height::ZERO)
    }
}

/// Where a protocol stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Status {
    /// Current view.
    pub view: View,
    /// Leader of that view.
    pub leader: ReplicaId,
    /// Whether the view is in normal operation.
    pub normal: bool,
    /// Highest height it is locked on or has prepared; 0 for none.
    pub locked: Height,
    /// Highest height it has committed itself.
    pub committed: Height,
    /// Why the last view change happened, in a few constant words; empty before the first.
    pub last_view_change: &'static str,
    /// Views that were left since the replica was opened.
    pub view_changes: u64,
    /// After so long without being executed a request counts against a leader that nobody has suspected yet; 0: it
    /// never does. The host lets no more wait than is executed in half of this time.
    pub patience_ns: u64,
}

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

/// A protocol's properties.
#[derive(Clone, Copy, Debug)]
pub struct Spec {
    /// Its name in the registry, on the command line and in every signature.
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
    /// Whether a commit rests on votes that were durable before they were sent. If not, replies are held until
    /// bodies and decided ids are in the own log.
    pub votes_are_durable: bool,
    /// Whether votes are signed one by one, so that a change of views shows certificates of them. They take room in
    /// frames and in the log, in proportion to n and to the window.
    pub votes_are_signed: bool,
    /// Whether the protocol can live with bodies that are valid at some replicas only (MAC vectors).
    pub local_validity: bool,
    /// Whether its leader can be replaced. Without, replica 0 leads for ever, and stops the cluster when it is silent.
    pub replaces_leader: bool,
    /// Whether leaders follow each other while nothing goes wrong. Then whoever hears a client hands its bundle to all at
    /// once: by the time it reached the leader, another one would lead.
    pub rotates_leaders: bool,
    /// The view in which it begins.
    pub first_view: View,
    /// Parameters that must be equal everywhere and stand in genesis.
    pub shared_params: &'static [&'static str],
}

impl Spec {
    /// Replicas that have to be at work before a cluster counts as one that serves.
    #[must_use]
    pub const fn serving(&self, n: usize, f: usize) -> usize {
        match self.model {
            // f + 1 vote, and of the others f may be away.
            Model::Synchrony => quorum::all_honest(n, f),
            Model::PartialSynchrony | Model::Teaching => quorum::byzantine(n, f),
        }
    }
}

/// What is known of an outage when the network has healed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Healed {
    /// Delays are at most this from now on.
    pub delta_ns: u64,
    /// How long it lasted.
    pub outage_ns: u64,
    /// Longest pause between two retransmissions of a client.
    pub client_retry_ns: u64,
    /// Time to fetch what is missing at the configured bandwidth.
    pub fetch_ns: u64,
    /// Replicas that were started again, or are about to be.
    pub restarted: usize,
}

/// What the host's synchrony guard needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Synchrony {
    /// Δ.
    pub delta_ns: u64,
    /// Whether the guard is on.
    pub guarded: bool,
}

impl Synchrony {
    /// `guarded` or `unguarded`.
    pub fn mode(&self) -> &'static str {
        if self.guarded { "guarded" } else { "unguarded" }
    }
}

/// As every report says it.
impl fmt::Display for Synchrony {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "delta {:?}, {}", Duration::from_nanos(self.delta_ns), self.mode())
    }
}
