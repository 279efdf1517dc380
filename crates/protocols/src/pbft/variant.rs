//! The two variants. In H ([`Linked`], registry entry `pbft`) the link authenticates votes. In S ([`AllSigned`], entry
//! `pbft-signed`, §9) every vote is signed, so that a VIEW-CHANGE shows certificates instead of claims. They are two
//! protocols: nothing signed in one is valid in the other.

use super::certificates::{certified_bytes, check_certified, claim_certified};
use super::certified::CERTIFIED_MAX;
use super::kinds::{COMMIT, NEW_VIEW, PRE_PREPARE, PREPARE, SUSPECT, VIEW_CHANGE};
use super::message::PbftMessage;
use super::params::PbftParams;
use super::select::{Pick, Sizes, pick_by_certificate, pick_by_word};
use super::view_message::{VIEW_CHANGE_BYTES_PER_HEIGHT, ViewChange};
use quorate_consensus::{Auth, Claims, Message, MessageRole, Model, OpenError, Place, Spec};
use quorate_types::codec::{DecodeError, Reader, Wire};
use quorate_types::limits::FRAME_CONSENSUS_BYTES_MAX;
use quorate_types::{Committee, Height, Kind, PayloadId, ProtocolId, View, quorum};
use std::fmt::Debug;

/// A variant of PBFT. Sealed by its methods: other crates cannot build their arguments.
pub trait Variant: Debug + Send + 'static {
    /// Name and properties.
    const SPEC: Spec;
    /// Whether PRE-PREPARE, PREPARE and COMMIT are signed.
    const SIGNED: bool = Self::SPEC.votes_are_signed;
    /// Messages with the authentication of this variant.
    type Message: Message + From<PbftMessage> + Into<PbftMessage>;

    /// Checks that a NEW-VIEW fits into a frame even when its view changes name the whole window.
    ///
    /// # Errors
    /// A window that does not fit.
    #[doc(hidden)]
    fn check_window(window: u64, committee: &Committee) -> Result<(), OpenError>;
    /// Checks the certificates that a VIEW-CHANGE shows for its P.
    ///
    /// # Errors
    /// The first fault.
    #[doc(hidden)]
    fn check_shown(
        change: &ViewChange,
        committee: &Committee,
        params: &PbftParams,
    ) -> Result<(), &'static str>;
    /// Picks the block that a set of view changes leaves to be decided at a height; `None` when the set is too small.
    #[doc(hidden)]
    fn pick(set: &[&ViewChange], height: Height, sizes: &Sizes) -> Option<Pick>;
}

const SPEC: Spec = Spec {
    name: ProtocolId::new("pbft"),
    summary: "PBFT with votes authenticated by links, a pipelined window and signed view changes",
    model: Model::PartialSynchrony,
    faults: quorum::byzantine_faults,
    checkpoint_quorum: quorum::byzantine,
    replies: |_, f| quorum::weak(f),
    votes_are_durable: true,
    votes_are_signed: false,
    local_validity: true,
    replaces_leader: true,
    rotates_leaders: false,
    first_view: View::ZERO,
    shared_params: &[],
    repeatable: &[SUSPECT],
    roles: &[
        (PRE_PREPARE, MessageRole::Proposal),
        (PREPARE, MessageRole::Vote),
        (COMMIT, MessageRole::Vote),
        (SUSPECT, MessageRole::ViewChange),
        (VIEW_CHANGE, MessageRole::ViewChange),
        (NEW_VIEW, MessageRole::ViewChange),
    ],
};

/// Checks that a NEW-VIEW with a view change of each replica fits into a frame. `bytes` is the size of a view change for each
/// height of the window, and `most` a further bound of the window.
fn check_window(window: u64, committee: &Committee, bytes: usize, most: usize) -> Result<(), OpenError> {
    // Half of the frame is for proofs, signatures and the blocks that the view takes over.
    let room = FRAME_CONSENSUS_BYTES_MAX / 2;
    let fits = room.checked_div(bytes.saturating_mul(committee.n())).unwrap_or(0).min(most);
    if window <= u64::try_from(fits).unwrap_or(u64::MAX) {
        return Ok(());
    }
    let expected =
        format!("at most {fits}: a NEW-VIEW names all of it for each of {} replicas", committee.n());
    Err(OpenError::Params { name: "window".to_owned(), expected })
}

/// Variant H: the link authenticates votes, P and Q are claims.
#[derive(Debug)]
pub struct Linked;

impl Variant for Linked {
    const SPEC: Spec = SPEC;
    type Message = PbftMessage;

    fn check_window(window: u64, committee: &Committee) -> Result<(), OpenError> {
        check_window(window, committee, VIEW_CHANGE_BYTES_PER_HEIGHT, usize::MAX)
    }

    fn check_shown(change: &ViewChange, _: &Committee, _: &PbftParams) -> Result<(), &'static str> {
        if change.certified.is_empty() { Ok(()) } else { Err("certificates where votes are not signed") }
    }

    fn pick(set: &[&ViewChange], height: Height, sizes: &Sizes) -> Option<Pick> {
        pick_by_word(set, height, sizes)
    }
}

/// Variant S: all votes are signed, certificates show P, and Q is not needed.
#[derive(Debug)]
pub struct AllSigned;

impl Variant for AllSigned {
    const SPEC: Spec = Spec {
        name: ProtocolId::new("pbft-signed"),
        summary: "PBFT with all votes signed: view changes carry certificates, equivocation can be proved",
        votes_are_signed: true,
        ..SPEC
    };
    type Message = SignedMessage;

    fn check_window(window: u64, committee: &Committee) -> Result<(), OpenError> {
        check_window(window, committee, certified_bytes(committee), CERTIFIED_MAX)
    }

    fn check_shown(
        change: &ViewChange,
        committee: &Committee,
        params: &PbftParams,
    ) -> Result<(), &'static str> {
        check_certified(change, committee, params)
    }

    fn pick(set: &[&ViewChange], height: Height, _sizes: &Sizes) -> Option<Pick> {
        Some(pick_by_certificate(set, height))
    }
}

/// A message of variant S: the same content, with a signature under each vote.
#[derive(Clone, PartialEq, Debug)]
pub struct SignedMessage(pub PbftMessage);

impl From<PbftMessage> for SignedMessage {
    fn from(message: PbftMessage) -> Self {
        Self(message)
    }
}

impl From<SignedMessage> for PbftMessage {
    fn from(message: SignedMessage) -> Self {
        message.0
    }
}

impl Message for SignedMessage {
    fn kind(&self) -> Kind {
        self.0.kind()
    }
    fn place(&self) -> Place {
        self.0.place()
    }
    // §9: the same statements as in H, signed.
    fn auth(&self) -> Auth {
        match self.0.auth() {
            Auth::Linked(Some(vote)) if [PRE_PREPARE, PREPARE, COMMIT].contains(&vote.kind) => {
                Auth::Signed(vote)
            }
            other => other,
        }
    }
    fn once(&self) -> bool {
        self.0.once()
    }
    fn claims(&self, claims: &mut Claims<'_>) {
        claim_certified(&self.0, claims);
        self.0.claims(claims);
    }
    fn bodies(&self, out: &mut Vec<PayloadId>) {
        self.0.bodies(out);
    }
}

impl Wire for SignedMessage {
    fn encode(&self, buf: &mut Vec<u8>) {
        self.0.encode_any(buf);
    }
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        PbftMessage::decode_any(reader).map(Self)
    }
}
