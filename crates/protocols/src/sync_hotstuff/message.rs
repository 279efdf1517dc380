//! What replicas say to each other (§17; `optsync` §14).

use super::words::{Evidence, Header, Lock, LockName, Word, blame, claim_votes, leader, responsive_quorum};
use quorate_consensus::parts::returning::Standing;
use quorate_consensus::{Auth, Certificate, Claims, Message, Place, Seal, Signed};
use quorate_types::block::BLOCK_BYTES;
use quorate_types::codec::{DecodeError, Reader, Wire, put_list};
use quorate_types::{BlockId, Height, Incarnation, Kind, PayloadId, Signature, View};

/// Statement of a PROPOSE.
pub const PROPOSE: Kind = Kind::new("propose");
/// Statement of a VOTE and of a FIRST-VOTE; certificates are made of these.
pub const VOTE: Kind = Kind::new("vote");
/// Statement of a NEW-VIEW.
pub const NEW_VIEW: Kind = Kind::new("new-view");
/// Statement of a STATUS.
pub const STATUS: Kind = Kind::new("status");
/// Statement of a BLAME.
pub const BLAME: Kind = Kind::new("blame");
const FIRST_VOTE: Kind = Kind::new("first-vote");
pub(super) const EVIDENCE: Kind = Kind::new("evidence");
const FORWARD: Kind = Kind::new("forward");
/// A NOTIFY states nothing of its own.
pub const NOTIFY: Kind = Kind::new("notify");
pub(super) const SHOW: Kind = Kind::new("show");
const LACK: Kind = Kind::new("lack");
pub(super) const CERTIFIED: Kind = Kind::new("certified");
pub(super) const ASK: Kind = Kind::new("ask");
pub(super) const ANSWER: Kind = Kind::new("answer");

/// Headers that one ANSWER shows at most.
pub(super) const HEADERS_MAX: usize = 32;
/// Certificates that one ANSWER shows at most: of two views, two of each.
pub(super) const CERTIFICATES_MAX: usize = 4;
/// Contradictions of leaders in a row at most, and the blames before them: as many as can be faulty.
pub(super) const EVIDENCE_MAX: usize = quorate_types::limits::REPLICAS_MAX;
/// Bytes of a signed header, and of a certificate at least: its statement.
const HEADER_BYTES: usize = 2 + BLOCK_BYTES + 32 + 64;
const CERTIFICATE_BYTES: usize = 16 + 8 + 8 + 32 + 32;
/// Blames; what contradicts itself is longer.
pub(super) const EVIDENCE_BYTES: usize = 1 + CERTIFICATE_BYTES;

/// A message of this protocol.
#[derive(Clone, PartialEq, Debug)]
pub enum SyncMessage {
    /// The leader of a view: vote for this block.
    Propose {
        /// The block and the base of its view.
        header: Header,
        /// A certificate of this view for its parent.
        parent: Certificate,
    },
    /// I vote for this block, and hand its header on: one message, held.
    Vote(Signed<Header>),
    /// I go on from this block in this view.
    FirstVote {
        /// The view.
        view: View,
        /// The base's height.
        height: Height,
        /// The base.
        base: BlockId,
    },
    /// The leader of a view that follows a failed one: it goes on from the tip of this lock.
    NewView {
        /// The view.
        view: View,
        /// The highest lock that it was told of.
        lock: Lock,
    },
    /// To the leader of a view: I enter it with this lock.
    Status {
        /// The view.
        view: View,
        /// The lock.
        lock: Lock,
    },
    /// The leader of this view does nothing.
    Blame(View),
    /// This view is over, and why.
    Evidence(Evidence),
    /// What the leader of a view has said to me.
    Forward {
        /// Its NEW-VIEW, with its signature.
        word: Signed<NewViewWord>,
    },
    /// These votes decide at once (Opt Sync).
    Notify(Certificate),
    /// You have shown me a header, and I lack a certificate of its view for its parent.
    Lack {
        /// The view.
        view: View,
        /// The parent's height.
        height: Height,
        /// The parent.
        block: BlockId,
    },
    /// For who lacks it: the parent or something above it is certified.
    Certified(Certificate),
    /// I have just been opened, or have missed something: what has become of the view?
    Ask {
        /// Which opening of the asker.
        incarnation: Incarnation,
        /// Headers up to here are known to it.
        above: Height,
    },
    /// For who asks; and for all when the sender's standing has changed.
    Answer(Box<Answer>),
}

/// A NEW-VIEW as its leader signed it.
#[derive(Clone, PartialEq, Debug)]
pub struct NewViewWord {
    /// The view.
    pub view: View,
    /// The lock, with its certificates.
    pub lock: Lock,
}

impl NewViewWord {
    /// What is signed of it.
    #[must_use]
    pub fn word(&self) -> Word {
        Word::NewView(self.view, self.lock.name())
    }

    /// One that its leader has signed, as one of the words of a view.
    pub(super) fn signed_word(word: &Signed<Self>) -> Signed<Word> {
        Signed { body: word.body.word(), by: word.by, signature: word.signature }
    }

    /// Claims that its certificates are valid and older than the view.
    fn claim(&self, claims: &mut Claims<'_>) {
        if self.lock.view() >= self.view {
            return claims.refuse("lock of no earlier view");
        }
        self.lock.claim(claims);
    }
}

impl Wire for NewViewWord {
    fn encode(&self, out: &mut Vec<u8>) {
        self.view.encode(out);
        self.lock.encode(out);
    }
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self { view: View::decode(reader)?, lock: Lock::decode(reader)? })
    }
}

/// What a replica tells one that comes back (§18).
#[derive(Clone, PartialEq, Debug)]
pub struct Answer {
    /// Which opening asked; zero where nobody did.
    pub incarnation: Incarnation,
    /// What the sender may do.
    pub standing: Standing,
    /// Why the view before the sender's was left, or its own one, from the last blames on; none in the first view.
    pub evidence: Vec<Evidence>,
    /// Its highest certificates of the last two views, responsive ones as well.
    pub certificates: Vec<Certificate>,
    /// The NEW-VIEW of its view.
    pub new_view: Option<Signed<NewViewWord>>,
    /// What the leader of its view has proposed above what the asker knows, lowest first.
    pub headers: Vec<Signed<Header>>,
    /// Its last own vote.
    pub voted: Option<Signed<Signed<Header>>>,
}

impl Answer {
    /// One that shows nothing but where its sender stands.
    #[must_use]
    pub fn bare(incarnation: Incarnation, standing: Standing) -> Self {
        Self {
            incarnation,
            standing,
            evidence: Vec::new(),
            certificates: Vec::new(),
            new_view: None,
            headers: Vec::new(),
            voted: None,
        }
    }

    fn claim(&self, claims: &mut Claims<'_>) {
        // Each header is one signature; and what the rest may show is more than one message does.
        claims.make_room(HEADERS_MAX.saturating_mul(2));
        for evidence in &self.evidence {
            evidence.claim(claims);
        }
        let weak = claims.committee().weak();
        for certificate in &self.certificates {
            claim_votes(certificate, weak, claims);
        }
        if let Some(Signed { body, by, signature }) = &self.new_view {
            claim_new_view(body, (*by, signature), claims);
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

fn claim_new_view(
    word: &NewViewWord,
    (by, signature): (quorate_types::ReplicaId, &Signature),
    claims: &mut Claims<'_>,
) {
    if by != leader(claims.committee(), word.view) {
        return claims.refuse("new view of somebody who does not lead");
    }
    claims.signature(by, word.word().statement(), signature);
    word.claim(claims);
}

impl Wire for Answer {
    fn encode(&self, out: &mut Vec<u8>) {
        self.incarnation.encode(out);
        self.standing.encode(out);
        put_list(out, &self.evidence);
        put_list(out, &self.certificates);
        self.new_view.encode(out);
        put_list(out, &self.headers);
        self.voted.encode(out);
    }
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self {
            incarnation: Incarnation::decode(reader)?,
            standing: Standing::decode(reader)?,
            evidence: reader.list("evidence", EVIDENCE_MAX, EVIDENCE_BYTES, Evidence::decode)?,
            certificates: reader.list(
                "certificates",
                CERTIFICATES_MAX,
                CERTIFICATE_BYTES,
                Certificate::decode,
            )?,
            new_view: Option::decode(reader)?,
            headers: reader.list("headers", HEADERS_MAX, HEADER_BYTES, Signed::decode)?,
            voted: Option::decode(reader)?,
        })
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
            Self::Forward { word } => about(word.body.view, true),
            Self::Notify(certificate) | Self::Certified(certificate) => {
                let (view, height) = super::words::rank(certificate);
                Place { view, height, certified: true }
            }
            // Whoever is behind, or ahead, must be heard.
            Self::Ask { .. } | Self::Answer(_) => Place::ANYWHERE,
        }
    }

    fn auth(&self) -> Auth {
        match self {
            Self::Propose { header, .. } => Auth::Signed(header.statement()),
            Self::Vote(header) => Auth::Signed(header.body.vote()),
            Self::FirstVote { view, height, base } => Auth::Signed(super::words::vote(*view, *height, *base)),
            Self::NewView { view, lock } => Auth::Signed(Word::NewView(*view, lock.name()).statement()),
            Self::Status { view, lock } => Auth::Signed(LockName::status(&lock.name(), *view)),
            Self::Blame(view) => Auth::Signed(blame(*view)),
            Self::Evidence(_) | Self::Forward { .. } | Self::Notify(_) | Self::Certified(_) => Auth::Relay,
            Self::Lack { .. } | Self::Ask { .. } | Self::Answer(_) => Auth::Linked(None),
        }
    }

    /// A blame promises nothing and is not held.
    fn once(&self) -> bool {
        !matches!(self, Self::Blame(_))
    }

    fn claims(&self, claims: &mut Claims<'_>) {
        match self {
            Self::Propose { header, parent } => {
                if let Err(why) = header.check_parent(parent) {
                    return claims.refuse(why);
                }
                let weak = claims.committee().weak();
                claim_votes(parent, weak, claims);
            }
            Self::Vote(header) => Header::claim(header, claims),
            Self::FirstVote { .. } | Self::Blame(_) | Self::Lack { .. } | Self::Ask { .. } => {}
            Self::Certified(certificate) => {
                let weak = claims.committee().weak();
                claim_votes(certificate, weak, claims);
            }
            Self::NewView { view, lock } => NewViewWord { view: *view, lock: lock.clone() }.claim(claims),
            Self::Status { lock, .. } => lock.claim(claims),
            Self::Evidence(evidence) => evidence.claim(claims),
            Self::Forward { word: Signed { body, by, signature } } => {
                claim_new_view(body, (*by, signature), claims);
            }
            Self::Notify(certificate) => {
                let quorum = responsive_quorum(claims.committee().n());
                if certificate.is_genesis() {
                    return claims.refuse("nobody has voted for genesis");
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

impl Wire for SyncMessage {
    fn encode(&self, out: &mut Vec<u8>) {
        out.push(self.tag());
        match self {
            Self::Propose { header, parent } => {
                header.encode(out);
                parent.encode(out);
            }
            Self::Vote(header) => header.encode(out),
            Self::FirstVote { view, height, base: block } | Self::Lack { view, height, block } => {
                view.encode(out);
                height.encode(out);
                block.encode(out);
            }
            Self::NewView { view, lock } | Self::Status { view, lock } => {
                view.encode(out);
                lock.encode(out);
            }
            Self::Blame(view) => view.encode(out),
            Self::Evidence(evidence) => evidence.encode(out),
            Self::Forward { word } => word.encode(out),
            Self::Notify(certificate) | Self::Certified(certificate) => certificate.encode(out),
            Self::Ask { incarnation, above } => {
                incarnation.encode(out);
                above.encode(out);
            }
            Self::Answer(answer) => answer.encode(out),
        }
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(match r.u8()? {
            0 => Self::Propose { header: Header::decode(r)?, parent: Certificate::decode(r)? },
            1 => Self::Vote(Signed::decode(r)?),
            2 => Self::FirstVote {
                view: View::decode(r)?,
                height: Height::decode(r)?,
                base: BlockId::decode(r)?,
            },
            3 => Self::NewView { view: View::decode(r)?, lock: Lock::decode(r)? },
            4 => Self::Status { view: View::decode(r)?, lock: Lock::decode(r)? },
            5 => Self::Blame(View::decode(r)?),
            6 => Self::Evidence(Evidence::decode(r)?),
            7 => Self::Forward { word: Signed::decode(r)? },
            8 => Self::Notify(Certificate::decode(r)?),
            9 => Self::Ask { incarnation: Incarnation::decode(r)?, above: Height::decode(r)? },
            10 => Self::Answer(Box::new(Answer::decode(r)?)),
            11 => {
                Self::Lack { view: View::decode(r)?, height: Height::decode(r)?, block: BlockId::decode(r)? }
            }
            12 => Self::Certified(Certificate::decode(r)?),
            _ => return Err(DecodeError::Tag("sync-hotstuff message")),
        })
    }
}

impl SyncMessage {
    /// The header of a block that is proposed or voted for, as its leader has signed it.
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

    fn tag(&self) -> u8 {
        match self {
            Self::Propose { .. } => 0,
            Self::Vote(_) => 1,
            Self::FirstVote { .. } => 2,
            Self::NewView { .. } => 3,
            Self::Status { .. } => 4,
            Self::Blame(_) => 5,
            Self::Evidence(_) => 6,
            Self::Forward { .. } => 7,
            Self::Notify(_) => 8,
            Self::Ask { .. } => 9,
            Self::Answer(_) => 10,
            Self::Lack { .. } => 11,
            Self::Certified(_) => 12,
        }
    }
}
