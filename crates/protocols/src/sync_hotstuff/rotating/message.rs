//! What replicas say to each other where leaders follow each other (§11, §17).

use super::super::message::{ANSWER, ASK, BLAME, CERTIFIED, EVIDENCE, PROPOSE, SHOW, STATUS, VOTE};
use super::super::words::{blame, claim_blames};
use super::words::{Evidence, Header, claim_votes, status, vote};
use quorate_consensus::parts::returning::Standing;
use quorate_consensus::{Auth, Certificate, Claims, Message, Place, Signed};
use quorate_types::codec::{DecodeError, Reader, Wire, put_list};
use quorate_types::{Height, Incarnation, Kind, PayloadId, View};

/// Certificates that one ANSWER shows at most: the highest one, and that of the parent of the header that it shows.
pub(super) const CERTIFICATES_MAX: usize = 2;
/// Bytes of a certificate at least: its statement.
const CERTIFICATE_BYTES: usize = 16 + 8 + 8 + 32 + 32;

/// A message of this protocol.
#[derive(Clone, PartialEq, Debug)]
pub enum RotatingMessage {
    /// The leader of a view: vote for this block.
    Propose {
        /// The block, and where its parent was certified.
        header: Header,
        /// That certificate.
        parent: Certificate,
    },
    /// I vote for this block, and hand its header on: one message, held.
    Vote(Signed<Header>),
    /// I leave the view of this certificate, or vote for what rests on it.
    Certified(Certificate),
    /// I have left the view of this header by its certificate before I could vote for it: this is what I would have voted for.
    Show(Signed<Header>),
    /// To the leader of a view: I enter it with this lock, and without a certificate of the view before.
    Status {
        /// The view.
        view: View,
        /// The lock.
        lock: Certificate,
    },
    /// The leader of this view does nothing.
    Blame(View),
    /// Nobody may rely on silence in this view, and why.
    Evidence(Evidence),
    /// I have just been opened, or have missed something: what has become of the view?
    Ask {
        /// Which opening of the asker.
        incarnation: Incarnation,
    },
    /// For who asks; and for all when the sender's standing has changed.
    Answer(Box<Answer>),
}

/// What a replica tells one that comes back (§18).
#[derive(Clone, PartialEq, Debug)]
pub struct Answer {
    /// Which opening asked; zero where nobody did.
    pub incarnation: Incarnation,
    /// What the sender may do.
    pub standing: Standing,
    /// Blames by which the last view was left that was left so.
    pub blames: Option<Certificate>,
    /// Its highest certificate, and the one that the header rests on.
    pub certificates: Vec<Certificate>,
    /// What the leader of its view has proposed.
    pub header: Option<Signed<Header>>,
    /// Its last own vote.
    pub voted: Option<Signed<Signed<Header>>>,
}

impl Answer {
    /// One that shows nothing but where its sender stands.
    #[must_use]
    pub fn bare(incarnation: Incarnation, standing: Standing) -> Self {
        Self { incarnation, standing, blames: None, certificates: Vec::new(), header: None, voted: None }
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

impl Wire for Answer {
    fn encode(&self, out: &mut Vec<u8>) {
        self.incarnation.encode(out);
        self.standing.encode(out);
        self.blames.encode(out);
        put_list(out, &self.certificates);
        self.header.encode(out);
        self.voted.encode(out);
    }
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self {
            incarnation: Incarnation::decode(reader)?,
            standing: Standing::decode(reader)?,
            blames: Option::decode(reader)?,
            certificates: reader.list(
                "certificates",
                CERTIFICATES_MAX,
                CERTIFICATE_BYTES,
                Certificate::decode,
            )?,
            header: Option::decode(reader)?,
            voted: Option::decode(reader)?,
        })
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
            // Whoever is behind, or ahead, must be heard.
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

    /// A blame promises nothing.
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

impl Wire for RotatingMessage {
    fn encode(&self, out: &mut Vec<u8>) {
        out.push(self.tag());
        match self {
            Self::Propose { header, parent } => {
                header.encode(out);
                parent.encode(out);
            }
            Self::Vote(header) | Self::Show(header) => header.encode(out),
            Self::Certified(certificate) => certificate.encode(out),
            Self::Status { view, lock } => {
                view.encode(out);
                lock.encode(out);
            }
            Self::Blame(view) => view.encode(out),
            Self::Evidence(evidence) => evidence.encode(out),
            Self::Ask { incarnation } => incarnation.encode(out),
            Self::Answer(answer) => answer.encode(out),
        }
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(match r.u8()? {
            0 => Self::Propose { header: Header::decode(r)?, parent: Certificate::decode(r)? },
            1 => Self::Vote(Signed::decode(r)?),
            2 => Self::Certified(Certificate::decode(r)?),
            3 => Self::Status { view: View::decode(r)?, lock: Certificate::decode(r)? },
            4 => Self::Blame(View::decode(r)?),
            5 => Self::Evidence(Evidence::decode(r)?),
            6 => Self::Ask { incarnation: Incarnation::decode(r)? },
            7 => Self::Answer(Box::new(Answer::decode(r)?)),
            8 => Self::Show(Signed::decode(r)?),
            _ => return Err(DecodeError::Tag("sync-hotstuff-rr message")),
        })
    }
}

impl RotatingMessage {
    fn tag(&self) -> u8 {
        match self {
            Self::Propose { .. } => 0,
            Self::Vote(_) => 1,
            Self::Certified(_) => 2,
            Self::Status { .. } => 3,
            Self::Blame(_) => 4,
            Self::Evidence(_) => 5,
            Self::Ask { .. } => 6,
            Self::Answer(_) => 7,
            Self::Show(_) => 8,
        }
    }
}
