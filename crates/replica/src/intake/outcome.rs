//! Results of a run of the intake: passed inputs, refused frames, kept replies.

use crate::host_message::BUNDLE_KIND;
use crate::input::Input;
use crate::output::ConnId;
use quorate_types::wire::Refusal;
use quorate_types::{Bundle, BundleDigest, ClientId, Kind, Ledger, ReplicaId, ReplyBundle};

/// The kind of a frame that could not be decoded.
pub(super) const UNKNOWN: Kind = Kind::new("unknown");

/// The counters and the clock of signature checks.
pub(super) struct CheckCosts<'c> {
    pub(super) ledger: &'c mut Ledger,
    /// Returns the CPU time of this thread, in nanoseconds. The reading is a system call: one pair for each batch.
    pub(super) cpu_ns: &'c mut (dyn FnMut() -> u64 + 'c),
}

/// The sender of a frame.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum FrameSource {
    /// A replica.
    Peer(ReplicaId),
    /// A client's connection.
    Client(ConnId),
}

/// A refused frame.
#[derive(Clone, PartialEq, Debug)]
pub struct RefusedFrame {
    /// The sender.
    pub source: FrameSource,
    /// The kind of message, as far as it was decoded.
    pub kind: Kind,
    /// The reason, as a short constant name for counters.
    pub reason: &'static str,
    /// Whether no honest sender sends such a frame.
    pub is_breach: bool,
    /// The answer to its client, where it is a bundle.
    pub answer: Option<(ClientId, BundleDigest, Refusal)>,
}

/// The results of a run of the intake.
#[derive(Debug, Default)]
pub struct Passed {
    /// Inputs for the replica.
    pub inputs: Vec<Input>,
    /// Refused frames.
    pub refused: Vec<RefusedFrame>,
    /// Kept replies to bundles that were executed before, each with the connection that asked.
    pub replies: Vec<(ConnId, ClientId, ReplyBundle)>,
}

impl RefusedFrame {
    /// Returns a refusal of a frame that no honest sender sends.
    pub(super) fn breach(source: FrameSource, kind: Kind, reason: &'static str) -> Self {
        Self { source, kind, reason, is_breach: true, answer: None }
    }

    /// Returns a refusal of a message that an honest replica may send too: the replica is behind or ahead, or sends more
    /// than there is room for.
    pub(super) fn harmless(from: ReplicaId, kind: Kind, reason: &'static str) -> Self {
        Self { source: FrameSource::Peer(from), kind, reason, is_breach: false, answer: None }
    }

    /// Returns a refusal of a bundle, with the answer to its client where a client handed it over.
    pub(super) fn bundle(source: FrameSource, reason: &'static str, bundle: &Bundle, why: Refusal) -> Self {
        let is_direct = matches!(source, FrameSource::Client(_));
        let answer = is_direct.then(|| (bundle.client(), bundle.digest(), why));
        Self { source, kind: BUNDLE_KIND, reason, is_breach: why.is_breach(), answer }
    }
}
