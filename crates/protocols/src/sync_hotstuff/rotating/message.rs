//! Messages of the rotating form (§11, §17).

use super::super::statements::{
    ANSWER, ASK, BLAME, CERTIFICATE_BYTES, CERTIFIED, EVIDENCE, PROPOSE, SHOW, STATUS, VOTE, blame,
    claim_blames,
};
use super::evidence::ViewEvidence;
use super::header::{Header, claim_votes, status, vote};
use crate::encoding::variants;
use quorate_consensus::parts::recovery::RecoveryStage;
use quorate_consensus::{Auth, Certificate, Claims, Message, Place, Signed};
use quorate_types::{Height, Incarnation, Kind, PayloadId, View};

/// Maximum number of certificates in an ANSWER: the highest one, and that of the parent of its header.
pub(super) const CERTIFICATES_MAX: usize = 2;

/// A message of the rotating form.
#[derive(Clone, PartialEq, Debug)]
pub enum RotatingMessage {
    /// The leader of a view proposes a block.
    Propose {
        /// The block, and the view of its parent's certificate.
        header: Header,
        /// That certificate.
        parent: Certificate,
    },
    /// A vote for this block, which hands its header on: one message, held.
    Vote(Signed<Header>),
    /// The sender leaves the view of this certificate, or votes for a block that extends the certified one.
    Certified(Certificate),
    /// The sender has left the view of this header by its certificate before it could vote for it.
    Show(Signed<Header>),
    /// Report to the leader of a view: the sender enters it with this lock, and without a certificate of the view before.
    Status {
        /// The view.
        view: View,
        /// The lock.
        lock: Certificate,
    },
    /// The leader of this view makes no progress.
    Blame(View),
    /// Silence in this view proves nothing.
    Evidence(ViewEvidence),
    /// Question of a replica that has just been opened or has missed messages.
    Ask {
        /// Incarnation of the sender.
        incarnation: Incarnation,
    },
    /// Answer to a recovering replica, and report to all when the sender's recovery stage has changed.
    Answer(Box<Answer>),
}

variants!(RotatingMessage, "sync-hotstuff-rr message":
    0 = Propose { header, parent },
    1 = Vote(header),
    2 = Certified(certificate),
    3 = Status { view, lock },
    4 = Blame(view),
    5 = Evidence(evidence),
    6 = Ask { incarnation },
    7 = Answer(answer),
    8 = Show(header),
);

/// State of a replica for a recovering peer (§18).
#[derive(Clone, PartialEq, Debug)]
pub struct Answer {
    /// Incarnation of the asker; zero for a report without a question.
    pub incarnation: Incarnation,
    /// Recovery stage of the sender.
    pub stage: RecoveryStage,
    /// Blames by which the sender has left a view last.
    pub blames: Option<Certificate>,
    /// Its highest certificate, and that of the parent of the header.
    pub certificates: Vec<Certificate>,
    /// The proposal of its view's leader.
    pub header: Option<Signed<Header>>,
    /// Its last own vote.
    pub voted: Option<Signed<Signed<Header>>>,
}

quorate_types::wire_struct!(Answer {
    incarnation,
    stage,
    blames,
    certificates[CERTIFICATES_MAX, CERTIFICATE_BYTES],
    header,
    voted
});

impl Answer {
    /// Returns an answer that reports nothing but the sender's recovery stage.
    #[must_use]
    pub fn bare(incarnation: Incarnation, stage: RecoveryStage) -> Self {
        Self { incarnation, stage, blames: None, certificates: Vec::new(), header: None, voted: None }
    }

    fn claim(&self, claims: &mut Claims<'_>) {
        if let Some(blames) = &self.blames {
            claim_blames(blames, claims);
        }
        for certificate in &self.certificates {
            claim_votes(certificate, claims);
        }
        if let Some(header) = &self.header {
            Header::claim(header, claims);
        }
        if let Some(Signed { body: header, by, signature }) = &self.voted {
            Header::claim(header, claims);
            let block = &header.body.block;
            claims.signature(*by, vote(block.view, block.id()), signature);
        }
    }
}

impl Message for RotatingMessage {
    fn kind(&self) -> Kind {
        match self {
            Self::Propose { .. } => PROPOSE,
            Self::Vote(_) => VOTE,
            Self::Certified(_) => CERTIFIED,
            Self::Show(_) => SHOW,
            Self::Status { .. } => STATUS,
            Self::Blame(_) => BLAME,
            Self::Evidence(_) => EVIDENCE,
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
            Self::Vote(header) | Self::Show(header) => {
                let block = &header.body.block;
                Place { view: block.view, height: block.height, certified: false }
            }
            Self::Certified(certificate) => about(certificate.view(), true),
            Self::Status { view, .. } => about(*view, true),
            Self::Blame(view) => about(*view, false),
            Self::Evidence(evidence) => about(evidence.view(), true),
            // A replica that is behind or ahead must be heard.
            Self::Ask { .. } | Self::Answer(_) => Place::ANYWHERE,
        }
    }

    fn auth(&self) -> Auth {
        match self {
            Self::Propose { header, .. } => Auth::Signed(header.statement()),
            Self::Vote(header) => {
                let block = &header.body.block;
                Auth::Signed(vote(block.view, block.id()))
            }
            Self::Status { view, lock } => Auth::Signed(status(*view, lock)),
            Self::Blame(view) => Auth::Signed(blame(*view)),
            Self::Certified(_) | Self::Show(_) | Self::Evidence(_) => Auth::Relay,
            Self::Ask { .. } | Self::Answer(_) => Auth::Linked(None),
        }
    }

    /// A blame promises nothing: it may be sent again.
    fn once(&self) -> bool {
        !matches!(self, Self::Blame(_))
    }

    fn claims(&self, claims: &mut Claims<'_>) {
        match self {
            Self::Propose { header, parent } => header.claim_proposal(parent, claims),
            Self::Vote(header) | Self::Show(header) => Header::claim(header, claims),
            Self::Certified(certificate) => claim_votes(certificate, claims),
            Self::Status { view, lock } => {
                if lock.view() >= *view {
                    return claims.refuse("lock of no earlier view");
                }
                claim_votes(lock, claims);
            }
            Self::Evidence(evidence) => evidence.claim(claims),
            Self::Blame(_) | Self::Ask { .. } => {}
            Self::Answer(answer) => answer.claim(claims),
        }
    }

    fn bodies(&self, out: &mut Vec<PayloadId>) {
        if let Self::Propose { header, .. } = self {
            out.push(header.block.payload);
        }
    }
}
