//! The front door: decode → window → known? → signatures, in batches → [`Input`].
//!
//! The core never verifies, and nothing unchecked gets past this file. Consensus messages come first, as many of each
//! peer as a run has time for, and bodies after them in slices. Whatever is refused is counted with its source and reason, and a client hears why.

mod keys;
mod lines;
mod queue;
mod shares;
#[cfg(test)]
mod tests;
mod window;

pub use window::WindowCell;

use crate::clients::{Admission, Admit};
use crate::output::ConnId;
use crate::step::BUNDLE_KIND;
use crate::{Checked, CheckedMessage, HostMessage, Input, Replica, Setup, pool};
use keys::ClientKeys;
use lines::{Lines, Numbered, WaitingMessage};
use queue::{Waiting, WaitingBundle};
use quorate_consensus::{Auth, Claim, Claims, Entry, LinkEvent, Seal};
use quorate_crypto::{AggregateSignature, Batch, CommitteeKeys, Scheme, bundle_preimage, statement_preimage};
use quorate_types::codec::Wire;
use quorate_types::limits::CERTIFICATES_REMEMBERED_MAX;
use quorate_types::wire::{Refusal, frame};
use quorate_types::{
    Authenticator, Bundle, BundleDigest, ClientAuth, ClientId, Committee, Digest, Domain, Genesis, Kind,
    Ledger, Payload, Reader, ReplicaId, ReplicaSet, ReplyBundle, Signature,
};
use shares::{Limits, SUSPECT_CHECKS_MAX, SUSPECT_COST_MAX, Shares, Turns};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Signatures of bundles in one batch at most: the sweet spot where four replicas share two cores.
const BATCH_MAX: usize = 256;
/// Size of the batches for clients that have sent a bad signature lately.
const SUSPECT_BATCH_MAX: usize = 8;
/// Good bundles after which a client is no longer suspected.
const SUSPECT_PENANCE: u32 = 64;
/// Clients that are suspected at most.
const SUSPECTS_MAX: usize = 1_024;

/// What nobody understands.
const UNKNOWN: Kind = Kind::new("unknown");

/// Who handed something over.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Source {
    /// A replica.
    Peer(ReplicaId),
    /// A client's connection.
    Client(ConnId),
}

/// Something was refused.
#[derive(Clone, PartialEq, Debug)]
pub struct Refused {
    /// Who handed it over.
    pub source: Source,
    /// What kind of message it was, as far as it was understood.
    pub kind: Kind,
    /// Why, as a short constant name for counters.
    pub reason: &'static str,
    /// Whether nobody honest hands over such a thing.
    pub is_breach: bool,
    /// What its client hears, where it is a bundle.
    pub answer: Option<(ClientId, BundleDigest, Refusal)>,
}

/// What a run of the intake leads to.
#[derive(Debug, Default)]
pub struct Passed {
    /// Inputs for the replica.
    pub inputs: Vec<Input>,
    /// What was refused.
    pub refused: Vec<Refused>,
    /// Bundles that were executed before, with the reply that is kept, for the connection that asked.
    pub replies: Vec<(ConnId, ClientId, ReplyBundle)>,
}

/// See the module.
pub struct Intake {
    entry: Entry,
    committee: Arc<Committee>,
    genesis: Arc<Genesis>,
    domain: Domain,
    scheme: Scheme,
    keys: Option<Arc<CommitteeKeys>>,
    checkpoint_quorum: usize,
    window: Arc<WindowCell>,
    messages: Lines,
    /// The messages that are being checked; empty between runs.
    taken: Vec<Numbered>,
    limits: Limits,
    turns: Turns,
    bundles: Waiting,
    /// The batch that is being checked; empty between batches.
    batch: Vec<(WaitingBundle, bool)>,
    /// Inputs that need no signature, in order of arrival.
    plain: Vec<Input>,
    refused: Vec<Refused>,
    certificates: BTreeSet<Digest>,
    client_keys: ClientKeys,
    /// Who has sent a signature that does not hold.
    suspected: ReplicaSet,
    /// Of whom so much waits that no more should be read.
    held: ReplicaSet,
    suspects: BTreeMap<ClientId, u32>,
    urgent: Option<ReplicaId>,
    /// Who has handed over payloads that the replica has not seen yet: the bundles behind them may be wanted.
    bringing: ReplicaSet,
    ledger: Ledger,
}

impl std::fmt::Debug for Intake {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Intake({} messages, {} bundles wait)", self.messages.len(), self.bundles.len())
    }
}

impl Intake {
    pub(crate) fn new(entry: &Entry, setup: &Setup, scheme: Scheme, window: Arc<WindowCell>) -> Self {
        let committee = Arc::clone(&setup.committee);
        Self {
            entry: *entry,
            domain: committee.domain(),
            checkpoint_quorum: (entry.spec.checkpoint_quorum)(committee.n(), committee.f),
            // A committee with a key that is none signs nothing that holds.
            keys: CommitteeKeys::new(scheme, &committee).ok().map(Arc::new),
            limits: Limits::of(committee.n()),
            committee,
            genesis: Arc::clone(&setup.genesis),
            scheme,
            window,
            messages: Lines::default(),
            taken: Vec::new(),
            turns: Turns::default(),
            bundles: Waiting::default(),
            batch: Vec::new(),
            plain: Vec::new(),
            refused: Vec::new(),
            certificates: BTreeSet::new(),
            client_keys: ClientKeys::default(),
            suspected: ReplicaSet::EMPTY,
            held: ReplicaSet::EMPTY,
            suspects: BTreeMap::new(),
            urgent: None,
            bringing: ReplicaSet::EMPTY,
            ledger: Ledger::default(),
        }
    }

    /// What its work has cost.
    #[must_use]
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// Whose messages come first just now.
    pub fn set_urgent(&mut self, peer: Option<ReplicaId>) {
        self.urgent = peer;
    }

    /// Whether everything that was handed in has passed or was refused.
    #[must_use]
    pub fn is_drained(&self) -> bool {
        self.messages.is_empty() && self.bundles.is_empty() && self.plain.is_empty()
    }

    /// The same of all that replicas say, but for bodies.
    #[must_use]
    pub fn has_passed_messages(&self) -> bool {
        self.messages.is_empty()
    }

    /// Replicas of which so much waits that nothing more should be handed in until it has passed.
    #[must_use]
    pub fn held(&self) -> ReplicaSet {
        self.held
    }

    /// Replicas whose bodies wait for their check.
    #[must_use]
    pub fn unchecked(&self) -> ReplicaSet {
        self.bundles.peers().collect()
    }

    fn refuse(&mut self, source: Source, kind: Kind, reason: &'static str) {
        self.refused.push(Refused { source, kind, reason, is_breach: true, answer: None });
    }

    /// Refuses what an honest replica may send as well: it is behind or ahead, or sends more than there is room for.
    fn pass_over(&mut self, from: ReplicaId, kind: Kind, reason: &'static str) {
        let source = Source::Peer(from);
        self.refused.push(Refused { source, kind, reason, is_breach: false, answer: None });
    }

    /// Something happened to a link; what the replica hears of it. The gap comes before what waits of the peer, so an answer
    /// among that would close a gap that is younger: it goes with what was lost, and the protocol asks anew. Bodies
    /// stay: they say themselves what they are.
    pub fn link(&mut self, peer: ReplicaId, event: LinkEvent) -> Input {
        if event == LinkEvent::Gap {
            self.messages.note_gap(peer);
        }
        Input::Link(peer, event)
    }

    /// Takes in the body of a frame of a peer.
    pub fn peer_frame(&mut self, from: ReplicaId, frame_type: u8, body: &[u8]) {
        let source = Source::Peer(from);
        let result = match frame_type {
            frame::PROTOCOL => self.protocol_frame(from, body),
            frame::HOST => self.host_frame(from, body),
            frame::BUNDLE => self.peer_bundle(from, body),
            frame::PAYLOAD => match Payload::from_bytes(body) {
                Ok(payload) => {
                    self.plain.push(Input::Payload(from, Arc::new(payload)));
                    Ok(())
                }
                Err(_) => Err((UNKNOWN, "malformed payload")),
            },
            _ => Err((UNKNOWN, "unknown frame type")),
        };
        if let Err((kind, reason)) = result {
            self.refuse(source, kind, reason);
        }
    }

    fn protocol_frame(&mut self, from: ReplicaId, body: &[u8]) -> Result<(), (Kind, &'static str)> {
        let decoded = self.entry.decode_frame(body);
        let (message, signature) = decoded.map_err(|_| (UNKNOWN, "malformed message"))?;
        if let Err(reason) = self.window.check(&message.place()) {
            self.pass_over(from, message.kind(), reason);
            return Ok(());
        }
        let mut claims = Claims::new(&self.committee, self.checkpoint_quorum);
        message.claims(&mut claims);
        let claims = claims.finish().map_err(|why| (message.kind(), why))?;
        let auth = message.auth();
        self.wait(from, body.len(), CheckedMessage::Protocol(message), (auth, signature), claims);
        Ok(())
    }

    fn host_frame(&mut self, from: ReplicaId, body: &[u8]) -> Result<(), (Kind, &'static str)> {
        const MALFORMED: (Kind, &str) = (UNKNOWN, "malformed host message");
        let mut reader = Reader::new(body);
        let message = HostMessage::decode(&mut reader).map_err(|_| MALFORMED)?;
        let auth = message.auth();
        let signature = if auth.is_signed() {
            Some(Signature::decode(&mut reader).map_err(|_| MALFORMED)?)
        } else {
            None
        };
        reader.finish().map_err(|_| MALFORMED)?;
        let mut claims = Claims::new(&self.committee, self.checkpoint_quorum);
        message.claims(&mut claims);
        let claims = claims.finish().map_err(|why| (message.kind(), why))?;
        self.wait(from, body.len(), CheckedMessage::Host(message), (auth, signature), claims);
        Ok(())
    }

    /// Notes what has to hold before a message counts.
    fn wait(
        &mut self,
        from: ReplicaId,
        bytes: usize,
        message: CheckedMessage,
        (auth, signature): (Auth, Option<Signature>),
        claims: Vec<Claim>,
    ) {
        let (mut checks, mut certificates) = (Vec::new(), Vec::new());
        // A direct frame must be signed by the peer of the link.
        if let (Auth::Signed(statement), Some(signature)) = (auth, signature) {
            checks.push((from, statement_preimage(&self.domain, &statement), signature));
        }
        for claim in claims {
            match claim {
                Claim::Signature { by, statement, signature } => {
                    checks.push((by, statement_preimage(&self.domain, &statement), signature));
                }
                Claim::Certificate(certificate) => {
                    let digest = certificate.digest();
                    if self.certificates.contains(&digest) {
                        self.ledger.cache_hits = self.ledger.cache_hits.saturating_add(1);
                        continue;
                    }
                    let preimage = statement_preimage(&self.domain, &certificate.statement);
                    let AggregateSignature::List(signatures) = &certificate.proof;
                    for (by, signature) in certificate.signers.iter().zip(signatures) {
                        checks.push((by, preimage, *signature));
                    }
                    certificates.push(digest);
                }
            }
        }
        let cost = shares::cost(bytes, checks.len());
        self.messages.push(WaitingMessage { from, cost, message, signature, checks, certificates });
    }

    fn peer_bundle(&mut self, from: ReplicaId, body: &[u8]) -> Result<(), (Kind, &'static str)> {
        if !self.bundles.has_room_for_peer(from, body.len()) {
            self.pass_over(from, BUNDLE_KIND, "too many bodies");
            return Ok(());
        }
        let bundle = self.parse_bundle(body).map_err(|why| (BUNDLE_KIND, why))?;
        self.bundles.push(Source::Peer(from), bundle);
        Ok(())
    }

    /// Takes in a bundle of a client: authenticator and content, as they stand in its frame.
    pub fn client_bundle(&mut self, conn: ConnId, body: &[u8]) {
        let source = Source::Client(conn);
        match self.parse_bundle(body) {
            Ok(bundle) if !self.bundles.has_room_for_client(source, bundle.size()) => {
                self.answer(source, "busy", &bundle, Refusal::Busy);
            }
            Ok(bundle) => self.bundles.push(source, bundle),
            Err(reason) => {
                let digest = quorate_types::bundle::bundle_digest(content_of(body));
                let answer = Some((ClientId::default(), digest, Refusal::Malformed));
                self.refused.push(Refused { source, kind: BUNDLE_KIND, reason, is_breach: true, answer });
            }
        }
    }

    fn parse_bundle(&mut self, body: &[u8]) -> Result<Bundle, &'static str> {
        let bundle = Bundle::parse_sealed(body, &self.genesis.bodies).map_err(|_| "malformed bundle")?;
        let size = u64::try_from(bundle.size()).unwrap_or(0);
        self.ledger.body_bytes_hashed = self.ledger.body_bytes_hashed.saturating_add(size);
        self.ledger.body_bytes_copied = self.ledger.body_bytes_copied.saturating_add(size);
        Ok(bundle)
    }

    fn answer(&mut self, source: Source, reason: &'static str, bundle: &Bundle, why: Refusal) {
        let answer = matches!(source, Source::Client(_)).then(|| (bundle.client(), bundle.digest(), why));
        let is_breach = why.is_breach();
        self.refused.push(Refused { source, kind: BUNDLE_KIND, reason, is_breach, answer });
    }

    /// Checks what waits: messages, then bundles as long as `more` says so (asked between batches).
    pub fn run(
        &mut self,
        replica: &Replica,
        admit: &dyn Admit,
        more: &mut dyn FnMut() -> bool,
        out: &mut Passed,
    ) {
        self.run_messages(out);
        self.bringing = self.plain.iter().filter_map(brings).collect();
        out.inputs.append(&mut self.plain);
        while !self.bundles.is_empty() {
            self.run_bundles(replica, admit, out);
            if !more() {
                break;
            }
        }
        out.refused.append(&mut self.refused);
    }

    fn run_messages(&mut self, out: &mut Passed) {
        self.held = ReplicaSet::EMPTY;
        self.drop_before_gaps();
        if self.messages.is_empty() {
            return;
        }
        let mut taken = self.take_messages();
        let mut verdicts = self.verdicts(taken.iter().flat_map(|(_, waiting)| &waiting.checks)).into_iter();
        let mut passed = Vec::with_capacity(taken.len());
        for (_, waiting) in taken.drain(..) {
            let WaitingMessage { from, message, signature, checks, certificates, .. } = waiting;
            // Every verdict of this message is taken, or the next message would be judged by what is left.
            let mut good = true;
            for holds in verdicts.by_ref().take(checks.len()) {
                good &= holds;
            }
            if good {
                self.remember(certificates);
                let seal = Seal { by: from, signature };
                passed.push(Input::Peer(Checked { link: from, seal, message }));
            } else {
                self.suspected.insert(from);
                self.refuse(Source::Peer(from), kind_of(&message), "bad signature");
            }
        }
        if let Some(urgent) = self.urgent {
            // Stable: the order inside each link stays.
            passed.sort_by_key(|input| !matches!(input, Input::Peer(checked) if checked.link == urgent));
        }
        out.inputs.append(&mut passed);
        // Its room is used again.
        self.taken = taken;
    }

    /// For each signature, whether it holds.
    fn verdicts<'c>(
        &mut self,
        checks: impl Iterator<Item = &'c (ReplicaId, [u8; 32], Signature)>,
    ) -> Vec<bool> {
        let claims = checks.map(|(by, preimage, signature)| (*by, preimage, signature));
        match &self.keys {
            Some(keys) => keys.check(claims, &mut self.ledger),
            None => claims.map(|_| false).collect(),
        }
    }

    /// Checks a piece of the first message of a suspect, which is dearer than a suspect is worth in a run. When what is left of
    /// it is not, it is checked as any other.
    fn check_piece(&mut self, from: ReplicaId) {
        let Some(waiting) = self.messages.first(from) else { return };
        let rest = waiting.checks.len().saturating_sub(SUSPECT_CHECKS_MAX);
        let piece = waiting.checks.split_off(rest);
        if self.verdicts(piece.iter()).contains(&false) {
            if let Some(waiting) = self.messages.pop(from) {
                self.refuse(Source::Peer(from), kind_of(&waiting.message), "bad signature");
            }
        } else {
            self.messages.lessen(from, SUSPECT_COST_MAX);
        }
    }

    fn drop_before_gaps(&mut self) {
        for waiting in self.messages.take_before_gaps() {
            self.pass_over(waiting.from, kind_of(&waiting.message), "before a gap");
        }
    }

    /// Takes the messages of this run: all, or of each peer what its share allows.
    fn take_messages(&mut self) -> Vec<Numbered> {
        let mut taken = std::mem::take(&mut self.taken);
        let shares = Shares::of(self.limits, self.messages.wants(), self.suspected, self.turns);
        let Some(mut shares) = shares else {
            self.messages.take(None, &mut taken);
            return taken;
        };
        self.turns = shares.turns();
        if let Some(from) = shares.in_pieces() {
            self.check_piece(from);
        }
        self.messages.take(Some(&mut shares), &mut taken);
        self.held = self.limits.held(self.messages.wants());
        taken
    }

    fn remember(&mut self, certificates: Vec<Digest>) {
        for digest in certificates {
            if self.certificates.len() >= CERTIFICATES_REMEMBERED_MAX {
                self.certificates.pop_first();
            }
            self.certificates.insert(digest);
        }
    }

    /// Takes the next bundles that need their authenticator checked, and checks them.
    fn run_bundles(&mut self, replica: &Replica, admit: &dyn Admit, out: &mut Passed) {
        let mut batch = std::mem::take(&mut self.batch);
        let (mut suspected, mut let_in) = (false, 0usize);
        while batch.len() < if suspected { SUSPECT_BATCH_MAX } else { BATCH_MAX } {
            let Some(next) = self.bundles.front() else { break };
            let suspect = self.suspects.contains_key(&next.client());
            if !batch.is_empty() && suspect != suspected {
                break;
            }
            suspected = suspect;
            let Some(waiting) = self.bundles.pop() else { break };
            if let Some(pending) = self.admit(&waiting, replica, admit, let_in, out) {
                // What peers bring keeps no client out before it is known whether it holds.
                let is_direct = matches!(waiting.source, Source::Client(_));
                let_in = let_in.saturating_add(if is_direct { pool::cost(&waiting.bundle) } else { 0 });
                batch.push((waiting, pending));
            }
        }
        self.check_bundles(&mut batch, out);
        self.batch = batch;
    }

    /// What needs no cryptography to decide about a bundle, after others that count for `let_in` were let in. `Some` when
    /// its authenticator must hold: whether the bundle then counts as waiting.
    fn admit(
        &mut self,
        waiting: &WaitingBundle,
        replica: &Replica,
        admit: &dyn Admit,
        let_in: usize,
        out: &mut Passed,
    ) -> Option<bool> {
        let WaitingBundle { source, bundle } = waiting;
        if replica.awaits(&bundle.digest()) {
            self.ledger.cache_hits = self.ledger.cache_hits.saturating_add(1);
            return None;
        }
        let admission = admit.admit(bundle);
        let is_new = admission == Admission::New;
        // A body that is here for blocks alone (from the log, or because it came before its session) may be wanted
        // by its client all the same, who must hear what became of it.
        if !is_new && matches!(source, Source::Peer(_)) && replica.holds(&bundle.digest()) {
            self.ledger.cache_hits = self.ledger.cache_hits.saturating_add(1);
            return None;
        }
        if is_new && matches!(source, Source::Client(_)) && replica.is_busy(bundle, let_in) {
            self.answer(*source, "busy", bundle, Refusal::Busy);
            return None;
        }
        if !is_new
            && let Source::Peer(from) = source
            && !self.bringing.contains(*from)
            && !replica.has_room(*from, bundle)
        {
            self.pass_over(*from, BUNDLE_KIND, "no room for bundle");
            return None;
        }
        let size = u64::try_from(bundle.size()).unwrap_or(0);
        if is_new || matches!(source, Source::Peer(_)) {
            self.ledger.body_bytes_new = self.ledger.body_bytes_new.saturating_add(size);
            // A block may name a body that counts for nothing here: peers may hand it over all the same.
            return Some(is_new);
        }
        match admission {
            Admission::Executed(reply) => {
                if let Source::Client(conn) = source {
                    out.replies.push((*conn, bundle.client(), *reply));
                }
            }
            Admission::NumberReused => self.answer(*source, "number reused", bundle, Refusal::NumberReused),
            Admission::Forgotten => self.answer(*source, "forgotten", bundle, Refusal::Forgotten),
            Admission::OutOfWindow => self.answer(*source, "out of window", bundle, Refusal::OutOfWindow),
            Admission::NoSession => self.answer(*source, "no session", bundle, Refusal::NoSession),
            Admission::Behind => self.answer(*source, "behind", bundle, Refusal::Behind),
            Admission::NotRegistered => {
                self.answer(*source, "not registered", bundle, Refusal::NotRegistered);
            }
            Admission::New => {}
        }
        None
    }

    fn check_bundles(&mut self, batch: &mut Vec<(WaitingBundle, bool)>, out: &mut Passed) {
        let cluster = self.committee.cluster;
        let verdicts = if self.genesis.client_auth == ClientAuth::None {
            batch.iter().map(|(waiting, _)| *waiting.bundle.authenticator() == Authenticator::None).collect()
        } else {
            let keys: Vec<_> = batch
                .iter()
                .map(|(waiting, _)| self.client_keys.get(self.scheme, waiting.bundle.client()))
                .collect();
            let mut signatures = Batch::with_capacity(batch.len());
            let signed = batch.iter().zip(&keys).map(|((waiting, _), key)| {
                match (key, waiting.bundle.authenticator()) {
                    (Some(key), Authenticator::Signature(signature)) => Some((key, waiting, signature)),
                    _ => None,
                }
            });
            for (key, waiting, signature) in signed.clone().flatten() {
                signatures.push(key, &bundle_preimage(cluster, waiting.bundle.digest()), signature);
            }
            let mut holds = signatures.check(&mut self.ledger).into_iter();
            signed.map(|signed| signed.is_some() && holds.next().unwrap_or(false)).collect::<Vec<bool>>()
        };
        for ((WaitingBundle { source, bundle }, pending), holds) in batch.drain(..).zip(verdicts) {
            if !holds {
                self.suspect(bundle.client());
                self.answer(source, "bad signature", &bundle, Refusal::BadSignature);
                continue;
            }
            self.forgive(bundle.client());
            out.inputs.push(match source {
                Source::Peer(from) => Input::Bundle { from, bundle, pending },
                Source::Client(conn) => Input::Client(conn, bundle),
            });
        }
    }

    fn suspect(&mut self, client: ClientId) {
        if self.suspects.len() < SUSPECTS_MAX || self.suspects.contains_key(&client) {
            self.suspects.insert(client, SUSPECT_PENANCE);
        }
    }

    fn forgive(&mut self, client: ClientId) {
        if let Some(penance) = self.suspects.get_mut(&client) {
            *penance = penance.saturating_sub(1);
            if *penance == 0 {
                self.suspects.remove(&client);
            }
        }
    }
}

fn kind_of(message: &CheckedMessage) -> Kind {
    match message {
        CheckedMessage::Protocol(message) => message.kind(),
        CheckedMessage::Host(message) => message.kind(),
    }
}

/// Who hands over a payload with this.
fn brings(input: &Input) -> Option<ReplicaId> {
    match input {
        Input::Payload(from, _) => Some(*from),
        _ => None,
    }
}

/// The content behind the authenticator, as far as there is one.
fn content_of(body: &[u8]) -> &[u8] {
    let mut reader = Reader::new(body);
    match Authenticator::decode(&mut reader) {
        Ok(_) => reader.take_rest(),
        Err(_) => body,
    }
}
