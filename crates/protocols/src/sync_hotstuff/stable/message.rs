//! Messages of the stable form (§17; `optsync` §14).

use super::super::statements::{
    ANSWER, ASK, BLAME, CERTIFICATE_BYTES, CERTIFIED, EVIDENCE, FIRST_VOTE, FORWARD, LACK, NEW_VIEW, NOTIFY,
    PROPOSE, STATUS, VOTE, blame,
};
use super::evidence::{EVIDENCE_BYTES, EVIDENCE_MAX, QuitEvidence};
use super::statements::{
    Header, LeaderStatement, Lock, LockName, SyncNewView, claim_certificate, claim_votes, rank, vote,
};
use crate::encoding::variants;
use quorate_consensus::parts::recovery::RecoveryStage;
use quorate_consensus::{Auth, Certificate, Claims, Message, Place, Seal, Signed};
use quorate_types::block::BLOCK_BYTES;
use quorate_types::{BlockId, Height, Incarnation, Kind, PayloadId, View};

/// Maximum number of headers in an ANSWER.
pub(super) const HEADERS_MAX: usize = 32;
/// Maximum number of certificates in an ANSWER: of two views, two of each.
pub(super) const CERTIFICATES_MAX: usize = 4;
/// Bytes of a signed header.
const HEADER_BYTES: usize = 2 + BLOCK_BYTES + 32 + 64;

/// A message of the stable form.
#[derive(Clone, PartialEq, Debug)]
pub enum SyncMessage {
    /// The leader of a view proposes a block.
    Propose {
        /// The block and the base of its view.
        header: Header,
        /// A certificate of this view for its parent.
        parent: Certificate,
    },
    /// A vote for this block, which hands its header on: one message, held.
    Vote(Signed<Header>),
    /// A vote for the base of a view.
    FirstVote {
        /// The view.
        view: View,
        /// The base's height.
        height: Height,
        /// The base.
        base: BlockId,
    },
    /// The leader of a view that follows a failed one extends the tip of this lock.
    NewView {
        /// The view.
        view: View,
        /// The highest lock that was reported to the leader.
        lock: Lock,
    },
    /// Report to the leader of a view: the sender enters it with this lock.
    Status {
        /// The view.
        view: View,
        /// The lock.
        lock: Lock,
    },
    /// The leader of this view makes no progress.
    Blame(View),
    /// This view is over.
    Evidence(QuitEvidence),
    /// A NEW-VIEW with the signature of its leader, handed on.
    Forward {
        /// The NEW-VIEW.
        new_view: Signed<SyncNewView>,
    },
    /// These votes decide at once (Opt Sync).
    Notify(Certificate),
    /// Answer to a header: the sender lacks a certificate of its view for its parent.
    Lack {
        /// The view.
        view: View,
        /// The parent's height.
        height: Height,
        /// The parent.
        block: BlockId,
    },
    /// A certificate of a block that the receiver may lack, or of a block above it.
    Certified(Certificate),
    /// Question of a replica that has just been opened or has missed messages.
    Ask {
        /// Incarnation of the sender.
        incarnation: Incarnation,
        /// Headers up to this height are known to it.
        above: Height,
    },
    /// Answer to a recovering replica, and report to all when the sender's recovery stage has changed.
    Answer(Box<Answer>),
}

variants!(SyncMessage, "sync-hotstuff message":
    0 = Propose { header, parent },
    1 = Vote(header),
    2 = FirstVote { view, height, base },
    3 = NewView { view, lock },
    4 = Status { view, lock },
    5 = Blame(view),
    6 = Evidence(evidence),
    7 = Forward { new_view },
    8 = Notify(certificate),
    9 = Ask { incarnation, above },
    10 = Answer(answer),
    11 = Lack { view, height, block },
    12 = Certified(certificate),
);

/// State of a replica for a recovering peer (§18).
#[derive(Clone, PartialEq, Debug)]
pub struct Answer {
    /// Incarnation of the asker; zero for a report without a question.
    pub incarnation: Incarnation,
    /// Recovery stage of the sender.
    pub stage: RecoveryStage,
    /// Evidence by which the sender's view or the one before was left, from the last blames on; none in the first view.
    pub evidence: Vec<QuitEvidence>,
    /// Its highest certificates of the last two views, responsive ones as well.
    pub certificates: Vec<Certificate>,
    /// The NEW-VIEW of its view.
    pub new_view: Option<Signed<SyncNewView>>,
    /// Headers of its view's leader above the height that the asker knows, lowest first.
    pub headers: Vec<Signed<Header>>,
    /// Its last own vote.
    pub voted: Option<Signed<Signed<Header>>>,
}

quorate_types::wire_struct!(Answer {
    incarnation,
    stage,
    evidence[EVIDENCE_MAX, EVIDENCE_BYTES],
    certificates[CERTIFICATES_MAX, CERTIFICATE_BYTES],
    new_view,
    headers[HEADERS_MAX, HEADER_BYTES],
    voted
});

impl Answer {
    /// Returns an answer that reports nothing but the sender's recovery stage.
    #[must_use]
    pub fn bare(incarnation: Incarnation, stage: RecoveryStage) -> Self {
        Self {
            incarnation,
            stage,
            evidence: Vec::new(),
            certificates: Vec::new(),
            new_view: None,
            headers: Vec::new(),
            voted: None,
        }
    }

    fn claim(&self, claims: &mut Claims<'_>) {
        // Each header has one signature, and the rest may have more than another message.
        claims.make_room(HEADERS_MAX.saturating_mul(2));
        for evidence in &self.evidence {
            evidence.claim(claims);
        }
        for certificate in &self.certificates {
            claim_certificate(certificate, claims);
        }
        if let Some(new_view) = &self.new_view {
            SyncNewView::claim_signed(new_view, claims);
        }
        for header in &self.headers {
            Header::claim(header, claims);
        }
        if let Some(Signed { body: header, by, signature }) = &self.voted {
            Header::claim(header, claims);
            claims.signature(*by, header.body.vote(), signature);
        }
    }
}

impl Message for SyncMessage {
    fn kind(&self) -> Kind {
        match self {
            Self::Propose { .. } => PROPOSE,
            Self::Vote(_) => VOTE,
            Self::FirstVote { .. } => FIRST_VOTE,
            Self::NewView { .. } => NEW_VIEW,
            Self::Status { .. } => STATUS,
            Self::Blame(_) => BLAME,
            Self::Evidence(_) => EVIDENCE,
            Self::Forward { .. } => FORWARD,
            Self::Notify(_) => NOTIFY,
            Self::Lack { .. } => LACK,
            Self::Certified(_) => CERTIFIED,
            Self::Ask { .. } => ASK,
            Self::Answer(_) => ANSWER,
        }
    }

    fn place(&self) -> Place {
        let about = |view, certified| Place { view, height: Height::ZERO, certified };
        match self {
            Self::Propose { header: Header { block, .. }, .. } => {
                Place { view: block.view, height: block.height, certified: true }
            }
            Self::Vote(header) => {
                let block = &header.body.block;
                Place { view: block.view, height: block.height, certified: false }
            }
            Self::FirstVote { view, height, .. } | Self::Lack { view, height, .. } => {
                Place { view: *view, height: *height, certified: false }
            }
            Self::NewView { view, .. } | Self::Status { view, .. } => about(*view, true),
            Self::Blame(view) => about(*view, false),
            Self::Evidence(evidence) => about(evidence.view(), true),
            Self::Forward { new_view } => about(new_view.body.view, true),
            Self::Notify(certificate) | Self::Certified(certificate) => {
                let (view, height) = rank(certificate);
                Place { view, height, certified: true }
            }
            // A replica that is behind or ahead must be heard.
            Self::Ask { .. } | Self::Answer(_) => Place::ANYWHERE,
        }
    }

    fn auth(&self) -> Auth {
        match self {
            Self::Propose { header, .. } => Auth::Signed(header.statement()),
            Self::Vote(header) => Auth::Signed(header.body.vote()),
            Self::FirstVote { view, height, base } => Auth::Signed(vote(*view, *height, *base)),
            Self::NewView { view, lock } => {
                Auth::Signed(LeaderStatement::NewView(*view, lock.name()).statement())
            }
            Self::Status { view, lock } => Auth::Signed(LockName::status(&lock.name(), *view)),
            Self::Blame(view) => Auth::Signed(blame(*view)),
            Self::Evidence(_) | Self::Forward { .. } | Self::Notify(_) | Self::Certified(_) => Auth::Relay,
            Self::Lack { .. } | Self::Ask { .. } | Self::Answer(_) => Auth::Linked(None),
        }
    }

    /// A blame promises nothing: it may be sent again, and is not held.
    fn once(&self) -> bool {
        !matches!(self, Self::Blame(_))
    }

    fn claims(&self, claims: &mut Claims<'_>) {
        match self {
            Self::Propose { header, parent } => {
                if let Err(why) = header.check_parent(parent) {
                    return claims.refuse(why);
                }
                claim_certificate(parent, claims);
            }
            Self::Vote(header) => Header::claim(header, claims),
            Self::FirstVote { .. } | Self::Blame(_) | Self::Lack { .. } | Self::Ask { .. } => {}
            Self::Certified(certificate) => claim_certificate(certificate, claims),
            Self::NewView { view, lock } => SyncNewView { view: *view, lock: lock.clone() }.claim(claims),
            Self::Status { lock, .. } => lock.claim(claims),
            Self::Evidence(evidence) => evidence.claim(claims),
            Self::Forward { new_view } => SyncNewView::claim_signed(new_view, claims),
            Self::Notify(certificate) => {
                let quorum = claims.committee().responsive();
                if certificate.is_genesis() {
                    return claims.refuse("genesis has no votes");
                }
                claim_votes(certificate, quorum, claims);
            }
            Self::Answer(answer) => answer.claim(claims),
        }
    }

    fn bodies(&self, out: &mut Vec<PayloadId>) {
        if let Self::Propose { header, .. } = self {
            out.push(header.block.payload);
        }
    }
}

impl SyncMessage {
    /// Returns the header of a block that is proposed or voted for, with the signature of its leader.
    pub(super) fn header(&self, seal: &Seal) -> Option<Signed<Header>> {
        match self {
            Self::Vote(header) => Some(header.clone()),
            Self::Propose { header, .. } => {
                let signature = seal.signature?;
                Some(Signed { body: header.clone(), by: seal.by, signature })
            }
            _ => None,
        }
    }
}
