//! Registered keys, and the executed bundles of each session.
//!
//! Registered keys and open sessions are state: they are equal at every replica, hashed, and part of the snapshot.
//! Exactly-once execution therefore holds across restarts, view changes and state transfer.
//!
//! * A session keeps its newest outcomes within [`allowance`] bytes, which depends on the state alone.
//! * A client with too many sessions loses its own least recently executed one. If all clients together have too
//!   many, the least recently executed session of all is evicted.

use crate::buckets::{Bucket, Buckets};
use crate::snapshot::{Chunk, RestoreError, Snapshot, digest_of_state};
use crate::window::Window;
use quorate_types::codec::{put_bytes, put_length};
use quorate_types::limits::{
    KEPT_BYTES_TOTAL, KEPT_OVERHEAD_BYTES, KEPT_SESSION_BYTES_MAX, KEPT_SESSION_BYTES_MIN, KEYS_MAX,
    REPLY_BYTES_CEILING, SESSIONS_PER_CLIENT_MAX,
};
use quorate_types::{
    Bundle, BundleDigest, BundleNo, ChunkId, ClientId, DecodeError, Digest, DigestWriter, Outcome, PublicKey,
    Reader, ReplyBundle, SessionId, Wire,
};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

#[cfg(test)]
mod tests;

const KEY_BUCKETS: usize = 256;
const SESSION_BUCKETS_MAX: usize = 1_024;

/// The kept outcome of an executed bundle.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KeptOutcome {
    /// The digest of the executed bundle.
    pub bundle: BundleDigest,
    /// The digest of `outcome`.
    pub result: Digest,
    /// The encoded [`quorate_types::Outcome`].
    pub outcome: Arc<[u8]>,
}

impl KeptOutcome {
    pub(crate) fn of(bundle: &Bundle, outcome: &Outcome) -> Self {
        Self::encoded(bundle, Arc::from(outcome.to_bytes()))
    }

    pub(crate) fn encoded(bundle: &Bundle, outcome: Arc<[u8]>) -> Self {
        Self { bundle: bundle.digest(), result: ReplyBundle::result_digest(&outcome), outcome }
    }

    fn charge(&self) -> usize {
        self.outcome.len().saturating_add(KEPT_OVERHEAD_BYTES)
    }
}

/// The public data of a session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SessionView {
    /// The client that opened the session.
    pub owner: ClientId,
    /// The number up to which all bundles were executed.
    pub floor: BundleNo,
    /// The largest number that the session executes now.
    pub ceiling: BundleNo,
}

/// Returns the bytes of outcomes that a session may keep while `open` sessions are open.
fn allowance(open: usize) -> usize {
    KEPT_BYTES_TOTAL
        .checked_div(open)
        .unwrap_or(KEPT_SESSION_BYTES_MAX)
        .clamp(KEPT_SESSION_BYTES_MIN, KEPT_SESSION_BYTES_MAX)
}

/// One run of a client.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Session {
    owner: ClientId,
    nonce: BundleNo,
    /// The value of `Sessions::clock` at the session's last execution.
    last_executed: u64,
    window: Window,
    kept: BTreeMap<BundleNo, KeptOutcome>,
    /// The keys of `kept` in order of execution, which is the order of forgetting.
    order: VecDeque<BundleNo>,
    /// The sum of the charges of `kept`.
    kept_bytes: usize,
}

impl Session {
    fn new(owner: ClientId, nonce: BundleNo, last_executed: u64) -> Self {
        Self {
            owner,
            nonce,
            last_executed,
            window: Window::new(),
            kept: BTreeMap::new(),
            order: VecDeque::new(),
            kept_bytes: 0,
        }
    }

    fn keep(&mut self, number: BundleNo, kept: KeptOutcome) {
        self.kept_bytes = self.kept_bytes.saturating_add(kept.charge());
        self.kept.insert(number, kept);
        self.order.push_back(number);
    }

    fn forget_beyond(&mut self, bytes: usize) {
        while self.kept_bytes > bytes {
            let Some(number) = self.order.pop_front() else {
                break;
            };
            if let Some(gone) = self.kept.remove(&number) {
                self.kept_bytes = self.kept_bytes.saturating_sub(gone.charge());
            }
        }
    }
}

impl Wire for Session {
    fn encode(&self, out: &mut Vec<u8>) {
        self.owner.encode(out);
        self.nonce.encode(out);
        self.last_executed.encode(out);
        self.window.encode(out);
        put_length(out, self.order.len());
        for number in &self.order {
            if let Some(kept) = self.kept.get(number) {
                number.encode(out);
                kept.bundle.encode(out);
                put_bytes(out, &kept.outcome);
            }
        }
    }
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let mut session = Self::new(PublicKey::decode(reader)?, BundleNo::decode(reader)?, reader.u64()?);
        session.window = Window::decode(reader)?;
        let bytes = usize::try_from(REPLY_BYTES_CEILING).unwrap_or(usize::MAX);
        for _ in 0..reader.length("kept outcomes", usize::MAX)? {
            let number = BundleNo::decode(reader)?;
            let bundle = BundleDigest::decode(reader)?;
            let outcome: Arc<[u8]> = Arc::from(reader.bytes("outcome", bytes)?);
            let result = ReplyBundle::result_digest(&outcome);
            if session.kept.contains_key(&number) || !session.window.contains(number) {
                return Err(DecodeError::Value("session"));
            }
            session.keep(number, KeptOutcome { bundle, result, outcome });
        }
        Ok(session)
    }
}

#[derive(Clone, Default)]
struct SessionBucket(BTreeMap<SessionId, Session>);

/// Returns the number of buckets. A small limit on sessions gives about one bucket for each.
fn session_buckets(clients_max: usize) -> usize {
    clients_max.min(SESSION_BUCKETS_MAX).next_power_of_two()
}

fn session_bucket(id: SessionId, buckets: usize) -> usize {
    let sum = id.height.0.wrapping_add(u64::from(id.index));
    usize::try_from(sum).unwrap_or(usize::MAX) & (buckets - 1)
}

impl Chunk for SessionBucket {
    fn encode(&self, out: &mut Vec<u8>) {
        put_length(out, self.0.len());
        for (id, session) in &self.0 {
            id.encode(out);
            session.encode(out);
        }
    }
}

impl Bucket for SessionBucket {
    fn decode(reader: &mut Reader<'_>, index: usize, buckets: usize) -> Result<Self, DecodeError> {
        let mut sessions = BTreeMap::new();
        for _ in 0..reader.length("sessions of a bucket", usize::MAX)? {
            let id = SessionId::decode(reader)?;
            let ascending = sessions.last_key_value().is_none_or(|(last, _)| *last < id);
            if !ascending || session_bucket(id, buckets) != index {
                return Err(DecodeError::Value("sessions"));
            }
            sessions.insert(id, Session::decode(reader)?);
        }
        Ok(Self(sessions))
    }
}

#[derive(Clone, Default)]
struct KeyBucket(BTreeSet<ClientId>);

fn key_bucket(key: &ClientId) -> usize {
    usize::from(key.0[0])
}

impl Chunk for KeyBucket {
    fn encode(&self, out: &mut Vec<u8>) {
        put_length(out, self.0.len());
        for key in &self.0 {
            key.encode(out);
        }
    }
}

impl Bucket for KeyBucket {
    fn decode(reader: &mut Reader<'_>, index: usize, _buckets: usize) -> Result<Self, DecodeError> {
        let keys = reader.list("keys", KEYS_MAX, 32, PublicKey::decode)?;
        let ascending = keys.is_sorted_by(|a, b| a < b);
        if !ascending || keys.iter().any(|key| key_bucket(key) != index) {
            return Err(DecodeError::Value("keys"));
        }
        Ok(Self(keys.into_iter().collect()))
    }
}

/// The state of a bundle, by its number in its session.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum BundleState {
    /// The session is unknown, or belongs to another client.
    NoSession,
    /// The number lies too far above the floor.
    OutOfWindow,
    /// The bundle is not executed yet and is to be executed now.
    Fresh,
    /// The bundle was executed before, with this outcome.
    Kept(KeptOutcome),
    /// Another bundle was executed under the number.
    Superseded,
    /// A bundle was executed under the number, but its digest is no longer kept.
    Forgotten,
}

fn add_digests(writer: &mut DigestWriter, clock: u64, digests: [Digest; 2]) {
    writer.update(&clock.to_le_bytes()).update(digests.map(|digest| digest.0).as_flattened());
}

/// Registered keys and open sessions.
pub(crate) struct Sessions {
    clients_max: usize,
    client_window: u64,
    keys: Buckets<KeyBucket>,
    sessions: Buckets<SessionBucket>,
    /// The number of openings and executed bundles, from which sessions have their age.
    clock: u64,
    // The following fields are derived from those above.
    key_count: usize,
    by_client: BTreeMap<(ClientId, BundleNo), SessionId>,
    by_age: BTreeMap<u64, SessionId>,
}

impl Sessions {
    pub(crate) fn new(clients_max: u32, client_window: u32) -> Self {
        let clients_max = usize::try_from(clients_max).unwrap_or(usize::MAX).max(1);
        Self {
            clients_max,
            client_window: u64::from(client_window),
            keys: Buckets::new(KEY_BUCKETS),
            sessions: Buckets::new(session_buckets(clients_max)),
            clock: 0,
            key_count: 0,
            by_client: BTreeMap::new(),
            by_age: BTreeMap::new(),
        }
    }

    /// Returns the registered keys without any session, under the limits of another cluster, and registers the keys of that
    /// cluster. `None` if there are too many keys.
    pub(crate) fn without_sessions(self, limits: (u32, u32), keys: &[ClientId]) -> Option<Self> {
        let mut sessions = Self::new(limits.0, limits.1);
        (sessions.keys, sessions.key_count) = (self.keys, self.key_count);
        sessions.register(keys)?;
        Some(sessions)
    }

    pub(crate) fn registered(&self, key: &ClientId) -> bool {
        self.keys.get(key_bucket(key)).0.contains(key)
    }

    /// Registers keys and returns the number of new ones. Without room for all, registers none and returns `None`.
    pub(crate) fn register(&mut self, keys: &[ClientId]) -> Option<u32> {
        let new: BTreeSet<&ClientId> = keys.iter().filter(|key| !self.registered(key)).collect();
        let count = self.key_count.saturating_add(new.len());
        if count > KEYS_MAX {
            return None;
        }
        for key in &new {
            self.keys.get_mut(key_bucket(key)).0.insert(**key);
        }
        self.key_count = count;
        u32::try_from(new.len()).ok()
    }

    /// Returns the session that a client's nonce has opened.
    pub(crate) fn opened(&self, client: &ClientId, nonce: BundleNo) -> Option<SessionId> {
        self.by_client.get(&(*client, nonce)).copied()
    }

    fn sessions_at(&self, id: SessionId) -> &SessionBucket {
        self.sessions.get(session_bucket(id, self.sessions.count()))
    }

    fn sessions_at_mut(&mut self, id: SessionId) -> &mut SessionBucket {
        let bucket = session_bucket(id, self.sessions.count());
        self.sessions.get_mut(bucket)
    }

    /// Opens a session. Adds evicted sessions to `evicted`.
    pub(crate) fn open(
        &mut self,
        client: ClientId,
        nonce: BundleNo,
        id: SessionId,
        evicted: &mut Vec<SessionId>,
    ) {
        let own = || self.by_client.range((client, BundleNo::ZERO)..=(client, BundleNo::MAX));
        let oldest_own = (own().count() >= SESSIONS_PER_CLIENT_MAX)
            .then(|| own().min_by_key(|(_, id)| self.get(**id).map(|session| session.last_executed)))
            .flatten()
            .map(|(_, id)| *id);
        let oldest = (self.len() >= self.clients_max)
            .then(|| self.by_age.first_key_value().map(|(_, id)| *id))
            .flatten();
        if let Some(gone) = oldest_own.or(oldest) {
            self.evict(gone);
            evicted.push(gone);
        }
        self.clock = self.clock.saturating_add(1);
        let session = Session::new(client, nonce, self.clock);
        self.index(id, client, nonce, self.clock);
        self.sessions_at_mut(id).0.insert(id, session);
    }

    fn index(&mut self, id: SessionId, client: ClientId, nonce: BundleNo, last: u64) {
        self.by_client.insert((client, nonce), id);
        self.by_age.insert(last, id);
    }

    fn evict(&mut self, id: SessionId) {
        if let Some(session) = self.sessions_at_mut(id).0.remove(&id) {
            self.by_client.remove(&(session.owner, session.nonce));
            self.by_age.remove(&session.last_executed);
        }
    }

    /// Returns the number of open sessions.
    pub(crate) fn len(&self) -> usize {
        self.by_age.len()
    }

    fn get(&self, id: SessionId) -> Option<&Session> {
        self.sessions_at(id).0.get(&id)
    }

    pub(crate) fn view(&self, id: SessionId) -> Option<SessionView> {
        self.get(id).map(|session| {
            let floor = session.window.floor();
            SessionView { owner: session.owner, floor, ceiling: floor.plus(self.client_window) }
        })
    }

    pub(crate) fn kept(&self, id: SessionId, number: BundleNo) -> Option<&KeptOutcome> {
        self.get(id)?.kept.get(&number)
    }

    pub(crate) fn executed(&self, id: SessionId, number: BundleNo) -> bool {
        self.get(id).is_some_and(|session| session.window.contains(number))
    }

    pub(crate) fn bundle_state(
        &self,
        client: &ClientId,
        id: SessionId,
        number: BundleNo,
        bundle: BundleDigest,
    ) -> BundleState {
        let Some(session) = self.get(id).filter(|session| session.owner == *client) else {
            return BundleState::NoSession;
        };
        if session.window.contains(number) {
            return match session.kept.get(&number) {
                Some(kept) if kept.bundle == bundle => BundleState::Kept(kept.clone()),
                Some(_) => BundleState::Superseded,
                None => BundleState::Forgotten,
            };
        }
        if number.since(session.window.floor()) > self.client_window {
            BundleState::OutOfWindow
        } else {
            BundleState::Fresh
        }
    }

    /// Records the execution of a bundle whose state was `Fresh`.
    pub(crate) fn record(&mut self, id: SessionId, number: BundleNo, kept: KeptOutcome) {
        let allowance = allowance(self.len());
        let bucket = session_bucket(id, self.sessions.count());
        let Some(session) = self.sessions.get_mut(bucket).0.get_mut(&id) else {
            return;
        };
        self.clock = self.clock.saturating_add(1);
        self.by_age.remove(&session.last_executed);
        self.by_age.insert(self.clock, id);
        session.last_executed = self.clock;
        session.window.insert(number);
        session.keep(number, kept);
        session.forget_beyond(allowance);
    }

    /// Adds keys, sessions and clock to the digest of the state.
    pub(crate) fn digest(&mut self, writer: &mut DigestWriter) {
        let (keys, sessions) = (self.keys.digest(), self.sessions.digest());
        add_digests(writer, self.clock, [keys, sessions]);
    }

    /// Returns the number of chunks in a snapshot.
    pub(crate) fn chunks(&self) -> usize {
        self.chunk_counts().iter().sum()
    }

    /// Returns the numbers of chunks that keys and sessions have in a snapshot.
    pub(crate) fn chunk_counts(&self) -> [usize; 2] {
        [self.keys.count(), self.sessions.count()]
    }

    /// Adds the sessions of a snapshot with this clock and these chunks, as many as [`Self::chunks`] says, to the digest
    /// of its state.
    pub(crate) fn digest_of(&self, clock: u64, chunks: &[ChunkId], writer: &mut DigestWriter) {
        let (keys, sessions) = chunks.split_at(self.keys.count().min(chunks.len()));
        add_digests(writer, clock, [keys, sessions].map(|ids| digest_of_state(&[], ids)));
    }

    /// Adds the chunks to a snapshot. Returns the clock, which the header of the snapshot carries.
    pub(crate) fn snapshot(&mut self, into: &mut Snapshot) -> u64 {
        self.keys.snapshot(into);
        self.sessions.snapshot(into);
        self.clock
    }

    /// Returns the sessions of a snapshot, under the limits of `self`.
    pub(crate) fn restore(
        &self,
        clock: u64,
        chunks: &mut dyn Iterator<Item = Vec<u8>>,
    ) -> Result<Self, RestoreError> {
        let keys = Buckets::<KeyBucket>::restore(KEY_BUCKETS, chunks)?;
        let sessions = Buckets::<SessionBucket>::restore(self.sessions.count(), chunks)?;
        let index: Vec<_> = sessions
            .iter()
            .flat_map(|bucket| &bucket.0)
            .map(|(id, session)| (*id, session.owner, session.nonce, session.last_executed))
            .collect();
        let mut restored = Self {
            clients_max: self.clients_max,
            client_window: self.client_window,
            key_count: keys.iter().map(|bucket| bucket.0.len()).sum(),
            keys,
            sessions,
            clock,
            by_client: BTreeMap::new(),
            by_age: BTreeMap::new(),
        };
        let count = index.len();
        for (id, client, nonce, last) in index {
            restored.index(id, client, nonce, last);
        }
        // No execution gives two sessions the same nonce or the same age.
        if restored.by_client.len() != count || restored.by_age.len() != count {
            return Err(DecodeError::Value("sessions").into());
        }
        Ok(restored)
    }
}
