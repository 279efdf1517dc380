//! Execution of decided blocks: sessions and application under one digest and one snapshot.
//!
//! [`Execution`] turns blocks into outcomes. It executes the first bundle that is ordered under a session and number,
//! and no bundle twice. It is pure and idempotent for each height. The replica's sequencer decides the order of
//! blocks.
//!
//! * Each height is executed after the one below it. An executed height that comes again changes nothing.
//! * A panic of the application is passed on, with a text that names the operation.
//! * The application's time is strictly increasing and moves at most 10 s from one block to the next.

use crate::application::{Application, At};
use crate::panics::{escaped_start, locate_panic, operation_place};
use crate::sessions::{BundleState, KeptOutcome, SessionView, Sessions};
use crate::snapshot::{RestoreError, Snapshot, digest_of_state};
use header::Header;
use quorate_types::digest::context;
use quorate_types::limits::{SNAPSHOT_CHUNKS_MAX, SNAPSHOT_HEADER_BYTES_MAX};
use quorate_types::{
    Bundle, BundleKind, BundleNo, ChunkId, ClientId, Digest, DigestWriter, Executed, ExecutedBundle,
    FullBlock, Genesis, Height, Outcome, PublicKey, SessionId,
};
use std::cell::Cell;
use std::sync::Arc;

mod header;
#[cfg(test)]
mod tests;

/// The largest step of the application's clock from one block to the next.
const TIME_STEP_NS_MAX: u64 = 10_000_000_000;
/// The largest time that the first block may set: the year 2100. The clock can therefore never run out.
const TIME_START_NS_MAX: u64 = 4_102_444_800_000_000_000;
/// Bytes of an encoded `Outcome::Done` before the results: tag and count.
const DONE_HEADER_BYTES: usize = 1 + 4;

/// The program runs another application than genesis names.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("genesis names the application {expected:?}, but this program runs {found:?}")]
pub struct WrongApplication {
    /// The name and version in genesis.
    pub expected: String,
    /// The name and version of the running application.
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
    /// The buffer for the outcome under construction. Its reuse saves an allocation for each request.
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
    /// Returns the state at height 0. The clients of genesis and the admin client are registered, and no session is
    /// open.
    ///
    /// # Errors
    /// Fails when `application` is not the one that genesis names ("name version").
    pub fn new(genesis: &Genesis, application: Box<dyn Application>) -> Result<Self, WrongApplication> {
        let found = identity(&*application);
        if genesis.application != found {
            return Err(WrongApplication { expected: genesis.application.clone(), found });
        }
        let mut sessions = Sessions::new(genesis.clients_max, genesis.client_window);
        // Genesis has far fewer client keys than the limit.
        sessions.register(&genesis.clients);
        sessions.register(&[genesis.admin]);
        Ok(Self::first(genesis, application, sessions))
    }

    fn first(genesis: &Genesis, application: Box<dyn Application>, sessions: Sessions) -> Self {
        Self {
            application,
            sessions,
            admin: genesis.admin,
            reply_bytes_max: usize::try_from(genesis.bodies.reply_bytes_max).unwrap_or(usize::MAX),
            checkpoint_every: genesis.checkpoint_every,
            height: Height::ZERO,
            time_ns: 0,
            reply: Vec::new(),
        }
    }

    /// Returns the last executed height.
    #[must_use]
    pub fn height(&self) -> Height {
        self.height
    }

    /// Returns the application's time after the last executed block; 0 before the first. See [`At::time_ns`].
    #[must_use]
    pub fn time_ns(&self) -> u64 {
        self.time_ns
    }

    /// Whether a client may open sessions. The answer is advice, because it holds for the present height only.
    #[must_use]
    pub fn registered(&self, client: &ClientId) -> bool {
        self.sessions.registered(client)
    }

    /// Returns an open session. The answer is advice, as in [`Self::registered`].
    #[must_use]
    pub fn session(&self, session: SessionId) -> Option<SessionView> {
        self.sessions.view(session)
    }

    /// Whether a bundle was executed under this number of an open session. The answer is advice, as in
    /// [`Self::registered`].
    #[must_use]
    pub fn executed(&self, session: SessionId, number: BundleNo) -> bool {
        self.sessions.executed(session, number)
    }

    /// Returns the outcome of a bundle, as long as it is kept. The answer is advice, as in [`Self::registered`].
    #[must_use]
    pub fn kept(&self, session: SessionId, number: BundleNo) -> Option<&KeptOutcome> {
        self.sessions.kept(session, number)
    }

    /// Returns the session that a client's nonce has opened. The answer is advice, as in [`Self::registered`].
    #[must_use]
    pub fn opened(&self, client: &ClientId, nonce: BundleNo) -> Option<SessionId> {
        self.sessions.opened(client, nonce)
    }

    /// Answers a read-only operation from the present state.
    pub fn query(&self, op: &[u8], reply: &mut Vec<u8>) {
        let place = || format!("query at height {}, operation \"{}\"", self.height, escaped_start(op));
        locate_panic(place, || self.application.query(op, self.reply_bytes_max, reply));
    }

    /// Executes the next block. A block at or below the own height changes nothing. Of its bundles, only those with a
    /// known outcome are answered.
    ///
    /// # Panics
    /// Panics when the block skips a height. That is a bug of the caller, after which no answer could be trusted.
    pub fn execute(&mut self, block: &FullBlock) -> Executed {
        let mut executed = self.execute_without_digest(block);
        if executed.height == self.height && self.is_checkpoint() {
            executed.state = Some(self.digest());
        }
        executed
    }

    /// Executes the next block without computing the digest at a checkpoint. The digest takes longer than most blocks.
    ///
    /// # Panics
    /// Panics when the block skips a height.
    pub fn execute_without_digest(&mut self, block: &FullBlock) -> Executed {
        if block.height <= self.height {
            return self.answer_executed(block);
        }
        assert!(
            block.height == self.height.next(),
            "height {} cannot be executed after height {}",
            block.height,
            self.height
        );
        self.height = block.height;
        // Leaders write no time into an empty block, so such a block does not set the clock for the first time.
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

    fn answer_executed(&mut self, block: &FullBlock) -> Executed {
        let mut executed = Executed { height: block.height, ..Executed::default() };
        for bundle in &block.bundles {
            let (client, number) = (bundle.client(), bundle.number());
            let kept = match bundle.kind() {
                BundleKind::Open => self
                    .sessions
                    .opened(&client, number)
                    .map(|session| KeptOutcome::of(bundle, &Outcome::Opened(session))),
                BundleKind::Requests | BundleKind::Register => {
                    match self.sessions.bundle_state(&client, bundle.session(), number, bundle.digest()) {
                        BundleState::Kept(kept) => Some(kept),
                        _ => None,
                    }
                }
            };
            executed.bundles.extend(kept.map(|kept| answer(bundle, kept, 0)));
        }
        executed
    }

    fn open(&mut self, bundle: &Bundle, index: usize, executed: &mut Executed) -> (KeptOutcome, u32) {
        let (client, nonce) = (bundle.client(), bundle.number());
        if !self.sessions.registered(&client) {
            return (KeptOutcome::of(bundle, &Outcome::NotRegistered), 0);
        }
        // The bundle is a retransmission, whose nonce has already opened a session.
        if let Some(session) = self.sessions.opened(&client, nonce) {
            return (KeptOutcome::of(bundle, &Outcome::Opened(session)), 0);
        }
        let session = SessionId { height: self.height, index: u32::try_from(index).unwrap_or(u32::MAX) };
        self.sessions.open(client, nonce, session, &mut executed.evicted);
        (KeptOutcome::of(bundle, &Outcome::Opened(session)), 1)
    }

    fn in_session(&mut self, bundle: &Bundle) -> (KeptOutcome, u32) {
        let (session, number) = (bundle.session(), bundle.number());
        match self.sessions.bundle_state(&bundle.client(), session, number, bundle.digest()) {
            BundleState::NoSession => (KeptOutcome::of(bundle, &Outcome::NoSession), 0),
            BundleState::OutOfWindow => (KeptOutcome::of(bundle, &Outcome::OutOfWindow), 0),
            BundleState::Superseded => (KeptOutcome::of(bundle, &Outcome::Superseded), 0),
            BundleState::Forgotten => (KeptOutcome::of(bundle, &Outcome::Forgotten), 0),
            BundleState::Kept(kept) => (kept, 0),
            BundleState::Fresh => {
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

    fn register(&mut self, bundle: &Bundle) -> (KeptOutcome, u32) {
        let keys: Vec<ClientId> =
            bundle.requests().filter_map(|request| request.try_into().ok().map(PublicKey)).collect();
        let allowed = bundle.client() == self.admin;
        match allowed.then(|| self.sessions.register(&keys)).flatten() {
            Some(new) => (KeptOutcome::of(bundle, &Outcome::Registered(new)), bundle.request_count()),
            None => (KeptOutcome::of(bundle, &Outcome::NotAllowed), 0),
        }
    }

    /// Applies the requests. Encodes the results in place, as `Outcome::Done`.
    fn apply(&mut self, bundle: &Bundle) -> KeptOutcome {
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
                assert!(length.is_some(), "the application removed other results from the reply");
                let length = length.and_then(|length| u32::try_from(length).ok()).unwrap_or(u32::MAX);
                if let Some(field) = reply.get_mut(length_at..start) {
                    field.copy_from_slice(&length.to_le_bytes());
                }
                if reply.len() > *reply_bytes_max {
                    // The other requests are still applied, but their results are dropped.
                    fits = false;
                    reply.truncate(DONE_HEADER_BYTES);
                }
            }
            fits
        };
        let fits = locate_panic(|| operation_place(*height, bundle, applying.get()), apply_all);
        let reply = &self.reply;
        if fits {
            KeptOutcome::encoded(bundle, Arc::from(reply.as_slice()))
        } else {
            KeptOutcome::of(bundle, &Outcome::TooLarge)
        }
    }

    /// Returns the digest of sessions and application at this height.
    pub fn digest(&mut self) -> Digest {
        let mut writer = state_writer(self.height, self.time_ns);
        self.sessions.digest(&mut writer);
        let place = || format!("digest at height {}", self.height);
        writer.update(&locate_panic(place, || self.application.digest()).0);
        writer.finish()
    }

    /// Returns the present state. A snapshot is cheap, because it shares memory with the running service.
    pub fn snapshot(&mut self) -> Snapshot {
        let state = self.digest();
        let mut snapshot = Snapshot::default();
        let clock = self.sessions.snapshot(&mut snapshot);
        let place = || format!("snapshot at height {}", self.height);
        let application = snapshot.append(locate_panic(place, || self.application.snapshot()));
        let header_bytes = application.len();
        let manifest = Header {
            application: identity(&*self.application),
            height: self.height,
            time_ns: self.time_ns,
            clock,
            state,
            rest: application,
        };
        snapshot.set_header(manifest.to_bytes());
        // Peers that receive this state could not check it, so the service must not run with such a digest.
        assert!(
            snapshot.ids().len() <= SNAPSHOT_CHUNKS_MAX && header_bytes <= SNAPSHOT_HEADER_BYTES_MAX,
            "the snapshot of the service {} has {} chunks with those of sessions and {header_bytes} bytes of header; a snapshot \
             may have at most {SNAPSHOT_CHUNKS_MAX} and {SNAPSHOT_HEADER_BYTES_MAX}",
            identity(&*self.application),
            snapshot.ids().len()
        );
        let described = self.check_manifest(snapshot.header(), snapshot.ids());
        assert!(
            described == Ok((self.height, state)),
            "the service {} returns another digest than its snapshot has: {described:?}",
            identity(&*self.application)
        );
        snapshot
    }

    /// Checks header and chunk ids of a snapshot of this service, without its chunks. Returns the height and the digest
    /// of the state that they describe. The caller compares both with a stable checkpoint.
    ///
    /// # Errors
    /// Fails when they are no snapshot of this application, or the header names another state.
    pub fn check_manifest(
        &self,
        header: &[u8],
        chunks: &[ChunkId],
    ) -> Result<(Height, Digest), RestoreError> {
        let header = self.read_header(header)?;
        if header.rest.len() > SNAPSHOT_HEADER_BYTES_MAX || chunks.len() > SNAPSHOT_CHUNKS_MAX {
            return Err(RestoreError::Surplus);
        }
        let (sessions, application) =
            chunks.split_at_checked(self.sessions.chunks()).ok_or(RestoreError::Missing)?;
        let mut writer = state_writer(header.height, header.time_ns);
        self.sessions.digest_of(header.clock, sessions, &mut writer);
        writer.update(&digest_of_state(&header.rest, application).0);
        let found = writer.finish();
        let expected = header.state;
        if found == expected {
            Ok((header.height, found))
        } else {
            Err(RestoreError::WrongState { expected, found })
        }
    }

    pub(crate) fn application(&self) -> &dyn Application {
        &*self.application
    }

    /// Returns the numbers of chunks that keys and sessions have in a snapshot.
    pub(crate) fn session_chunks(&self) -> [usize; 2] {
        self.sessions.chunk_counts()
    }

    /// Returns the header of the application's own snapshot in one of this state.
    pub(crate) fn application_header(&self, snapshot: &Snapshot) -> Vec<u8> {
        self.read_header(snapshot.header()).map(|header| header.rest).unwrap_or_default()
    }

    /// Reads the header of a snapshot of this application.
    fn read_header(&self, header: &[u8]) -> Result<Header, RestoreError> {
        let header = Header::read(header)?;
        let expected = identity(&*self.application);
        if header.application != expected {
            return Err(RestoreError::WrongApplication { expected, found: header.application });
        }
        Ok(header)
    }

    /// Returns this state as the first one of another cluster: at height 0, with the registered keys of both clusters and
    /// without a session. Its digest is [`Genesis::base`] of that cluster.
    ///
    /// # Errors
    /// Fails when the keys are too many.
    pub fn into_base(self, genesis: &Genesis) -> Result<Self, RestoreError> {
        let limits = (genesis.clients_max, genesis.client_window);
        let keys: Vec<ClientId> = genesis.clients.iter().copied().chain([genesis.admin]).collect();
        let sessions = self.sessions.without_sessions(limits, &keys).ok_or(RestoreError::TooManyKeys)?;
        Ok(Self { time_ns: self.time_ns, ..Self::first(genesis, self.application, sessions) })
    }

    /// Replaces the state by that of a snapshot, and checks that the state has the digest in the header. Returns that
    /// digest. The caller compares it with the digest of a stable checkpoint.
    ///
    /// # Errors
    /// Fails when header and chunks are damaged, or no snapshot of this application. The state is then undefined, so
    /// the caller must restore another snapshot or stop.
    pub fn restore(
        &mut self,
        header: &[u8],
        chunks: &mut dyn Iterator<Item = Vec<u8>>,
    ) -> Result<Digest, RestoreError> {
        let Header { height, time_ns, clock, state, rest, .. } = self.read_header(header)?;
        self.sessions = self.sessions.restore(clock, chunks)?;
        let place = || format!("restore of the snapshot at height {height}");
        locate_panic(place, || self.application.restore(&rest, chunks))?;
        if chunks.next().is_some() {
            return Err(RestoreError::Surplus);
        }
        self.height = height;
        self.time_ns = time_ns;
        let found = self.digest();
        if found == state { Ok(state) } else { Err(RestoreError::WrongState { expected: state, found }) }
    }
}

/// Returns a writer for the digest of the state at this height and time.
fn state_writer(height: Height, time_ns: u64) -> DigestWriter {
    let mut writer = DigestWriter::new(&context::STATE);
    writer.update(&height.0.to_le_bytes()).update(&time_ns.to_le_bytes());
    writer
}

fn answer(bundle: &Bundle, kept: KeptOutcome, applied: u32) -> ExecutedBundle {
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
