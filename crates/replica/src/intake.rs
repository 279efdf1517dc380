//! The intake: decode → window → known? → signatures, in batches → [`Input`].
//!
//! The core never verifies, and nothing unchecked gets past the intake. Messages of peers come first, as many of each
//! peer as a run has time for. Bodies follow in batches. Each refused frame is counted with its sender and reason, and
//! a client receives the reason.

mod bundle_checks;
mod bundle_queues;
mod client_keys;
mod message_checks;
mod message_queues;
mod outcome;
mod shares;
#[cfg(test)]
mod tests;

pub use outcome::{FrameSource, Passed, RefusedFrame};

use crate::clients::Admit;
use crate::host_message::{BUNDLE_KIND, HostMessage};
use crate::input::{CheckedMessage, Input};
use crate::output::ConnId;
use crate::replica::Replica;
use crate::setup::ReplicaSetup;
use crate::window::WindowCell;
use bundle_checks::{BundleChecks, BundleRun};
use message_checks::MessageChecks;
use message_queues::WaitingMessage;
use outcome::{CheckCosts, UNKNOWN};
use quorate_consensus::{Auth, Claim, Claims, Entry, LinkEvent};
use quorate_crypto::{AggregateSignature, CommitteeKeys, Scheme, statement_preimage};
use quorate_types::codec::Wire;
use quorate_types::wire::{Refusal, frame};
use quorate_types::{
    Authenticator, Bundle, ClientId, Committee, Domain, Genesis, Kind, Ledger, Payload, Reader, ReplicaId,
    ReplicaSet, Signature,
};
use std::sync::Arc;

/// See the module.
pub struct Intake {
    entry: Entry,
    /// This replica; `None` if it does not compare its statements with its log.
    me: Option<ReplicaId>,
    committee: Arc<Committee>,
    genesis: Arc<Genesis>,
    domain: Domain,
    checkpoint_quorum: usize,
    window: Arc<WindowCell>,
    messages: MessageChecks,
    bundles: BundleChecks,
    /// Inputs that need no signature, in order of arrival.
    plain: Vec<Input>,
    refused: Vec<RefusedFrame>,
    ledger: Ledger,
}

impl std::fmt::Debug for Intake {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "Intake({} messages, {} bundles wait)",
            self.messages.queues.len(),
            self.bundles.queues.len()
        )
    }
}

impl Replica {
    /// Returns the intake of this replica, which checks the frames that its inputs come from.
    #[must_use]
    pub fn intake(&self, scheme: Scheme) -> Intake {
        Intake::new(&self.entry, &self.setup, scheme, Arc::clone(&self.running.window))
    }
}

impl Intake {
    fn new(entry: &Entry, setup: &ReplicaSetup, scheme: Scheme, window: Arc<WindowCell>) -> Self {
        let committee = Arc::clone(&setup.committee);
        // If a key of the committee is no key, no signature holds.
        let keys = CommitteeKeys::new(scheme, &committee).ok().map(Arc::new);
        Self {
            entry: *entry,
            me: Some(setup.me),
            domain: committee.domain(),
            checkpoint_quorum: (entry.spec.checkpoint_quorum)(committee.n(), committee.f),
            messages: MessageChecks::new(keys, committee.n()),
            bundles: BundleChecks::new(committee.cluster, setup.genesis.client_auth, scheme),
            committee,
            genesis: Arc::clone(&setup.genesis),
            window,
            plain: Vec::new(),
            refused: Vec::new(),
            ledger: Ledger::default(),
        }
    }

    /// Stops comparing shown statements of this replica with its log. A simulated liar does not stop when it contradicts
    /// itself.
    pub fn ignore_own_statements(&mut self) {
        self.me = None;
    }

    /// Returns the cost of its work so far.
    #[must_use]
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// Sets the peer whose messages come first from now on.
    pub fn set_urgent(&mut self, peer: Option<ReplicaId>) {
        self.messages.urgent = peer;
    }

    /// Whether everything that was handed in has passed or was refused.
    #[must_use]
    pub fn is_drained(&self) -> bool {
        self.has_passed_messages() && self.bundles.queues.is_empty() && self.plain.is_empty()
    }

    /// Whether all messages of replicas have passed or were refused; bodies do not count.
    #[must_use]
    pub fn has_passed_messages(&self) -> bool {
        self.messages.queues.is_empty()
    }

    /// Returns the peers whose sockets are paused: so much of theirs waits that nothing more should be handed in until it
    /// has passed (back-pressure).
    #[must_use]
    pub fn paused_peers(&self) -> ReplicaSet {
        self.messages.paused
    }

    /// Returns the replicas whose bodies wait for their check.
    #[must_use]
    pub fn unchecked(&self) -> ReplicaSet {
        self.bundles.queues.peers().collect()
    }

    /// Takes in an event of a link. Returns the input for the replica.
    ///
    /// A gap reaches the replica before the messages of the peer that wait here, and an answer among them would close a
    /// newer gap. So these messages are dropped with the lost ones, and the protocol asks again. Bodies stay, because
    /// they do not depend on order.
    pub fn link(&mut self, peer: ReplicaId, event: LinkEvent) -> Input {
        if event == LinkEvent::Gap {
            self.messages.queues.note_gap(peer);
        }
        Input::Link(peer, event)
    }

    /// Takes in the body of a frame of a peer.
    pub fn peer_frame(&mut self, from: ReplicaId, frame_type: u8, body: &[u8]) {
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
            self.refused.push(RefusedFrame::breach(FrameSource::Peer(from), kind, reason));
        }
    }

    fn protocol_frame(&mut self, from: ReplicaId, body: &[u8]) -> Result<(), (Kind, &'static str)> {
        let decoded = self.entry.decode_frame(body);
        let (message, signature) = decoded.map_err(|_| (UNKNOWN, "malformed message"))?;
        if let Err(reason) = self.window.check(&message.place()) {
            self.refused.push(RefusedFrame::harmless(from, message.kind(), reason));
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

    /// Queues a message with the signatures and certificates that must hold.
    fn wait(
        &mut self,
        from: ReplicaId,
        bytes: usize,
        message: CheckedMessage,
        (auth, signature): (Auth, Option<Signature>),
        claims: Vec<Claim>,
    ) {
        let (mut checks, mut certificates, mut own) = (Vec::new(), Vec::new(), Vec::new());
        // A direct frame must be signed by the peer of the link.
        if let (Auth::Signed(statement), Some(signature)) = (auth, signature) {
            checks.push((from, statement_preimage(&self.domain, &statement), signature));
        }
        for claim in claims {
            match claim {
                Claim::Signature { by, statement, signature } => {
                    own.extend(Some(statement).filter(|_| Some(by) == self.me));
                    checks.push((by, statement_preimage(&self.domain, &statement), signature));
                }
                Claim::Certificate(certificate) => {
                    let digest = certificate.digest();
                    if self.messages.is_checked(&digest) {
                        self.ledger.cache_hits = self.ledger.cache_hits.saturating_add(1);
                        continue;
                    }
                    let preimage = statement_preimage(&self.domain, &certificate.statement);
                    let AggregateSignature::List(signatures) = &certificate.proof;
                    for (by, signature) in certificate.signers.iter().zip(signatures) {
                        checks.push((by, preimage, *signature));
                    }
                    let signers = &certificate.signers;
                    own.extend(self.me.filter(|me| signers.contains(*me)).map(|_| certificate.statement));
                    certificates.push(digest);
                }
            }
        }
        let cost = shares::cost(bytes, checks.len());
        self.messages.queues.push(WaitingMessage {
            from,
            cost,
            message,
            signature,
            checks,
            certificates,
            own,
        });
    }

    fn peer_bundle(&mut self, from: ReplicaId, body: &[u8]) -> Result<(), (Kind, &'static str)> {
        let source = FrameSource::Peer(from);
        if !self.bundles.queues.has_room(source, body.len()) {
            self.refused.push(RefusedFrame::harmless(from, BUNDLE_KIND, "too many bodies"));
            return Ok(());
        }
        let bundle = self.parse_bundle(body).map_err(|why| (BUNDLE_KIND, why))?;
        self.bundles.queues.push(source, bundle);
        Ok(())
    }

    /// Takes in a bundle of a client: authenticator and content, in the encoding of its frame.
    pub fn client_bundle(&mut self, conn: ConnId, body: &[u8]) {
        let source = FrameSource::Client(conn);
        match self.parse_bundle(body) {
            Ok(bundle) if !self.bundles.queues.has_room(source, bundle.size()) => {
                self.refused.push(RefusedFrame::bundle(source, "busy", &bundle, Refusal::Busy));
            }
            Ok(bundle) => self.bundles.queues.push(source, bundle),
            Err(reason) => {
                let digest = quorate_types::bundle::bundle_digest(content_of(body));
                let answer = Some((ClientId::default(), digest, Refusal::Malformed));
                self.refused
                    .push(RefusedFrame { answer, ..RefusedFrame::breach(source, BUNDLE_KIND, reason) });
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

    /// Checks what waits: messages of peers, then batches of bundles as long as `more` returns true after a batch. `cpu_ns`
    /// returns the CPU time of this thread in nanoseconds, or always 0 where nobody measures.
    pub fn run(
        &mut self,
        replica: &Replica,
        admit: &dyn Admit,
        more: &mut dyn FnMut() -> bool,
        cpu_ns: &mut dyn FnMut() -> u64,
        out: &mut Passed,
    ) {
        let mut costs = CheckCosts { ledger: &mut self.ledger, cpu_ns: &mut *cpu_ns };
        self.messages.run(&mut costs, &mut out.inputs, &mut self.refused);
        self.bundles.begin_run(self.plain.iter().filter_map(payload_sender).collect());
        out.inputs.append(&mut self.plain);
        while !self.bundles.queues.is_empty() {
            let costs = CheckCosts { ledger: &mut self.ledger, cpu_ns: &mut *cpu_ns };
            let refused = &mut self.refused;
            self.bundles.run_batch(&mut BundleRun { replica, admit, costs, refused, out: &mut *out });
            if !more() {
                break;
            }
        }
        out.refused.append(&mut self.refused);
    }
}

/// Returns the sender of a payload.
fn payload_sender(input: &Input) -> Option<ReplicaId> {
    match input {
        Input::Payload(from, _) => Some(*from),
        _ => None,
    }
}

/// Returns the content after the authenticator, as far as there is one.
fn content_of(body: &[u8]) -> &[u8] {
    let mut reader = Reader::new(body);
    match Authenticator::decode(&mut reader) {
        Ok(_) => reader.take_rest(),
        Err(_) => body,
    }
}
