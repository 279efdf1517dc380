//! Execution of decided blocks: sessions and application under one digest and one snapshot.
//!
//! [`Execution`] turns blocks into outcomes. The first bundle that is ordered under a session and number is
//! executed, and no bundle is executed twice. It is pure, idempotent for each height, and has no opinion on
//! which block comes next: that is decided by the replica's sequencer.
//!
//! * A height is executed after the one before it. A height that was executed before changes nothing.
//! * A panic of the application goes on, with a text that names the operation.
//! * Time as the application sees it is strictly increasing and never jumps more than 10 s between blocks.

use crate::application::{Application, At};
use crate::panics::{place, start_of, told};
use crate::sessions::{Kept, SessionView, Sessions, Standing};
use crate::snapshot::{RestoreError, Snapshot};
use quorate_types::codec::put_bytes;
use quorate_types::digest::context;
use quorate_types::{
    Bundle, BundleKind, BundleNo, ClientId, Digest, DigestWriter, Executed, ExecutedBundle, FullBlock,
    Genesis, Height, Outcome, PublicKey, Reader, ReplyBundle, SessionId, Wire,
};
use std::cell::Cell;
use std::sync::Arc;

#[cfg(test)]
mod tests;

/// Format of the header of a snapshot.
const FORMAT: u16 = 1;
/// The application's clock moves at most this far from one block to the next.
const TIME_STEP_NS_MAX: u64 = 10_000_000_000;
/// The first block may set the application's clock to the year 2100 at most, so that it can never run out.
const TIME_START_NS_MAX: u64 = 4_102_444_800_000_000_000;
/// An encoded `Outcome::Done` before its results: tag and count.
const DONE_HEADER_BYTES: usize = 1 + 4;

/// The replica runs another application than its genesis says.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("genesis names the application {expected:?}, this program runs {found:?}")]
pub struct WrongApplication {
    /// What genesis says.
    pub expected: String,
    /// What runs here.
    pub found: String,
}

/// Sessions and application at one height.
pub struct Execution {
    application: Box<dyn Application>,
    sessions: Sessions,
    admin: ClientId,
    reply_bytes_max: usize,
    checkpoint_every: u64,
    height: Height,
    time_ns: u64,
    /// The outcome that is being made; reused, so that a request costs no allocation here.
    reply: Vec<u8>,
}

impl std::fmt::Debug for Execution {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Execution({}, {} sessions)", self.height, self.sessions.len())
    }
}

fn identity(application: &dyn Application) -> String {
    format!("{} {}", application.name(), application.version())
}

impl Execution {
    /// The state at height 0: the clients of genesis and the admin client are registered, no session is open.
    ///
    /// # Errors
    /// When `application` is not the one that genesis names ("name version").
    pub fn new(genesis: &Genesis, application: Box<dyn Application>) -> Result<Self, WrongApplication> {
        let found = identity(&*application);
        if genesis.application != found {
            return Err(WrongApplication { expected: genesis.application.clone(), found });
        }
        let mut sessions = Sessions::new(genesis.clients_max, genesis.client_window);
        // Genesis limits its clients to far fewer keys than there is room for.
        sessions.register(&genesis.clients);
        sessions.register(&[genesis.admin]);
        Ok(Self {
            application,
            sessions,
            admin: genesis.admin,
            reply_bytes_max: usize::try_from(genesis.bodies.reply_bytes_max).unwrap_or(usize::MAX),
            checkpoint_every: genesis.checkpoint_every,
            height: Height::ZERO,
            time_ns: 0,
            reply: Vec::new(),
        })
    }

    /// The last height that was executed.
    #[must_use]
    pub fn height(&self) -> Height {
        self.height
    }

    /// The time that the last executed block has given the application: see [`At::time_ns`]. 0 before the first.
    #[must_use]
    pub fn time_ns(&self) -> u64 {
        self.time_ns
    }

    /// Whether a client may open sessions. Advice: true of the present height only.
    #[must_use]
    pub fn registered(&self, client: &ClientId) -> bool {
        self.sessions.registered(client)
    }

    /// An open session. Advice, as above.
    #[must_use]
    pub fn session(&self, session: SessionId) -> Option<SessionView> {
        self.sessions.view(session)
    }

    /// Whether a bundle was executed under this number of an open session. Advice, as above.
    #[must_use]
    pub fn executed(&self, session: SessionId, number: BundleNo) -> bool {
        self.sessions.executed(session, number)
    }

    /// The outcome of a bundle, as long as it is kept. Advice, as above.
    #[must_use]
    pub fn kept(&self, session: SessionId, number: BundleNo) -> Option<&Kept> {
        self.sessions.kept(session, number)
    }

    /// The session that a client's nonce has opened. Advice, as above.
    #[must_use]
    pub fn opened(&self, client: &ClientId, nonce: BundleNo) -> Option<SessionId> {
        self.sessions.opened(client, nonce)
    }

    /// Answers an operation that changes nothing from the present state.
    pub fn query(&self, op: &[u8], reply: &mut Vec<u8>) {
        let place = || format!("query at height {}, operation \"{}\"", self.height, start_of(op));
        told(place, || self.application.query(op, self.reply_bytes_max, reply));
    }

    /// Executes the next block. A block at or below the own height changes nothing, and only those of its
    /// bundles are answered whose outcome is still known.
    ///
    /// # Panics
    /// When a height is left out: the caller's bug, after which no answer could be trusted.
    pub fn execute(&mut self, block: &FullBlock) -> Executed {
        let mut executed = self.execute_unstated(block);
        if executed.height == self.height && self.is_checkpoint() {
            executed.state = Some(self.digest());
        }
        executed
    }

    /// The same, and nobody is told the state at a checkpoint: working it out takes longer than most blocks.
    ///
    /// # Panics
    /// As above.
    pub fn execute_unstated(&mut self, block: &FullBlock) -> Executed {
        if block.height <= self.height {
            return self.answer_again(block);
        }
        assert!(
            block.height == self.height.next(),
            "height {} is executed after {}",
            block.height,
            self.height
        );
        self.height = block.height;
        // Leaders write no time into an empty block: it does not set a clock that was never set.
        let sets = |time_ns| self.time_ns > 0 || time_ns > 0 || !block.bundles.is_empty();
        if let Some(header) = block.block.as_ref().filter(|header| sets(header.time_ns)) {
            self.advance_time(header.time_ns);
        }
        let mut executed = Executed {
            height: block.height,
            bundles: Vec::with_capacity(block.bundles.len()),
            ..Executed::default()
        };
        for (index, bundle) in block.bundles.iter().enumerate() {
            let (kept, applied) = match bundle.kind() {
                BundleKind::Open => self.open(bundle, index, &mut executed),
                BundleKind::Requests | BundleKind::Register => self.in_session(bundle),
            };
            executed.bundles.push(answer(bundle, kept, applied));
        }
        executed
    }

    fn is_checkpoint(&self) -> bool {
        self.height.0.checked_rem(self.checkpoint_every) == Some(0)
    }

    fn advance_time(&mut self, block_ns: u64) {
        self.time_ns = if self.time_ns == 0 {
            block_ns.clamp(1, TIME_START_NS_MAX)
        } else {
            let least = self.time_ns.saturating_add(1);
            block_ns.clamp(least, self.time_ns.saturating_add(TIME_STEP_NS_MAX))
        };
    }

    fn answer_again(&mut self, block: &FullBlock) -> Executed {
        let mut executed = Executed { height: block.height, ..Executed::default() };
        for bundle in &block.bundles {
            let (client, number) = (bundle.client(), bundle.number());
            let kept = match bundle.kind() {
                BundleKind::Open => self
                    .sessions
                    .opened(&client, number)
                    .map(|session| keep(bundle, &Outcome::Opened(session))),
                BundleKind::Requests | BundleKind::Register => {
                    match self.sessions.standing(&client, bundle.session(), number, bundle.digest()) {
                        Standing::Kept(kept) => Some(kept),
                        _ => None,
                    }
                }
            };
            executed.bundles.extend(kept.map(|kept| answer(bundle, kept, 0)));
        }
        executed
    }

    fn open(&mut self, bundle: &Bundle, index: usize, executed: &mut Executed) -> (Kept, u32) {
        let (client, nonce) = (bundle.client(), bundle.number());
        if !self.sessions.registered(&client) {
            return (keep(bundle, &Outcome::NotRegistered), 0);
        }
        // A retransmission: the nonce names the session that it has opened.
        if let Some(session) = self.sessions.opened(&client, nonce) {
            return (keep(bundle, &Outcome::Opened(session)), 0);
        }
        let session = SessionId { height: self.height, index: u32::try_from(index).unwrap_or(u32::MAX) };
        self.sessions.open(client, nonce, session, &mut executed.evicted);
        (keep(bundle, &Outcome::Opened(session)), 1)
    }

    fn in_session(&mut self, bundle: &Bundle) -> (Kept, u32) {
        let (session, number) = (bundle.session(), bundle.number());
        match self.sessions.standing(&bundle.client(), session, number, bundle.digest()) {
            Standing::NoSession => (keep(bundle, &Outcome::NoSession), 0),
            Standing::OutOfWindow => (keep(bundle, &Outcome::OutOfWindow), 0),
            Standing::Superseded => (keep(bundle, &Outcome::Superseded), 0),
            Standing::Forgotten => (keep(bundle, &Outcome::Forgotten), 0),
            Standing::Kept(kept) => (kept, 0),
            Standing::Fresh => {
                let (kept, applied) = if bundle.kind() == BundleKind::Register {
                    self.register(bundle)
                } else {
                    (self.apply(bundle), bundle.request_count())
                };
                self.sessions.record(session, number, kept.clone());
                (kept, applied)
            }
        }
    }

    fn register(&mut self, bundle: &Bundle) -> (Kept, u32) {
        let keys: Vec<ClientId> =
            bundle.requests().filter_map(|request| request.try_into().ok().map(PublicKey)).collect();
        let allowed = bundle.client() == self.admin;
        match allowed.then(|| self.sessions.register(&keys)).flatten() {
            Some(new) => (keep(bundle, &Outcome::Registered(new)), bundle.request_count()),
            None => (keep(bundle, &Outcome::NotAllowed), 0),
        }
    }

    /// Applies the requests. The results are encoded where they are made: as `Outcome::Done`.
    fn apply(&mut self, bundle: &Bundle) -> Kept {
        let Self { application, reply, reply_bytes_max, height, time_ns, .. } = self;
        let mut at = At { height: *height, time_ns: *time_ns, client: bundle.client(), room: 0 };
        reply.clear();
        reply.push(0);
        reply.extend_from_slice(&bundle.request_count().to_le_bytes());
        let applying = Cell::new(0);
        let apply_all = || {
            let mut fits = true;
            for (index, op) in bundle.requests().enumerate() {
                applying.set(index);
                let length_at = reply.len();
                reply.extend_from_slice(&[0; 4]);
                let start = reply.len();
                at.room = if fits { reply_bytes_max.saturating_sub(start) } else { 0 };
                application.apply(&at, op, reply);
                let length = reply.len().checked_sub(start);
                assert!(length.is_some(), "an application took results out of its reply");
                let length = length.and_then(|length| u32::try_from(length).ok()).unwrap_or(u32::MAX);
                if let Some(field) = reply.get_mut(length_at..start) {
                    field.copy_from_slice(&length.to_le_bytes());
                }
                if reply.len() > *reply_bytes_max {
                    // The other requests are applied all the same, but nobody will see their results.
                    fits = false;
                    reply.truncate(DONE_HEADER_BYTES);
                }
            }
            fits
        };
        let fits = told(|| place(*height, bundle, applying.get()), apply_all);
        let reply = &self.reply;
        if fits {
            keep_encoded(bundle, Arc::from(reply.as_slice()))
        } else {
            keep(bundle, &Outcome::TooLarge)
        }
    }

    /// Digest of sessions and application at this height.
    pub fn digest(&mut self) -> Digest {
        let mut writer = DigestWriter::new(&context::STATE);
        writer.update(&self.height.0.to_le_bytes()).update(&self.time_ns.to_le_bytes());
        self.sessions.digest(&mut writer);
        let place = || format!("digest at height {}", self.height);
        writer.update(&told(place, || self.application.digest()).0);
        writer.finish()
    }

    /// The present state. Cheap: it shares memory with the running service.
    pub fn snapshot(&mut self) -> Snapshot {
        let state = self.digest();
        let mut snapshot = Snapshot::default();
        let clock = self.sessions.snapshot(&mut snapshot);
        let place = || format!("snapshot at height {}", self.height);
        let application = snapshot.append(told(place, || self.application.snapshot()));
        let mut header = Vec::new();
        FORMAT.encode(&mut header);
        put_bytes(&mut header, identity(&*self.application).as_bytes());
        self.height.encode(&mut header);
        self.time_ns.encode(&mut header);
        clock.encode(&mut header);
        state.encode(&mut header);
        header.extend_from_slice(&application);
        snapshot.set_header(header);
        snapshot
    }

    /// Replaces the state by that of a snapshot, checks that it has the digest that its header promises, and
    /// returns that digest; whether it is the digest of a stable checkpoint is for the caller to compare.
    ///
    /// # Errors
    /// When header and chunks are not a snapshot of this application, or damaged. The state is then
    /// undefined: restore another snapshot or stop.
    pub fn restore(
        &mut self,
        header: &[u8],
        chunks: &mut dyn Iterator<Item = Vec<u8>>,
    ) -> Result<Digest, RestoreError> {
        let mut reader = Reader::new(header);
        let format = reader.u16()?;
        if format != FORMAT {
            return Err(RestoreError::WrongFormat(format));
        }
        let found = reader.text("application", 256)?;
        let expected = identity(&*self.application);
        if found != expected {
            let found = found.to_owned();
            return Err(RestoreError::WrongApplication { expected, found });
        }
        let height = Height::decode(&mut reader)?;
        let time_ns = reader.u64()?;
        let clock = reader.u64()?;
        let state = Digest::decode(&mut reader)?;
        self.sessions = self.sessions.restore(clock, chunks)?;
        let place = || format!("restore of the snapshot at height {height}");
        told(place, || self.application.restore(reader.rest(), chunks))?;
        if chunks.next().is_some() {
            return Err(RestoreError::Surplus);
        }
        self.height = height;
        self.time_ns = time_ns;
        let found = self.digest();
        if found == state { Ok(state) } else { Err(RestoreError::WrongState { expected: state, found }) }
    }
}

fn keep(bundle: &Bundle, outcome: &Outcome) -> Kept {
    keep_encoded(bundle, Arc::from(outcome.to_bytes()))
}

fn keep_encoded(bundle: &Bundle, outcome: Arc<[u8]>) -> Kept {
    Kept { bundle: bundle.digest(), result: ReplyBundle::result_digest(&outcome), outcome }
}

fn answer(bundle: &Bundle, kept: Kept, applied: u32) -> ExecutedBundle {
    ExecutedBundle {
        client: bundle.client(),
        session: bundle.session(),
        number: bundle.number(),
        bundle: bundle.digest(),
        result: kept.result,
        outcome: kept.outcome,
        applied,
    }
}
