//! One client whose calls wait for their results.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "the blocking driver: this is where the client's sockets and clock live"
)]

use super::{ClientError, ClientPool, CoreId, PoolEvent};
use crate::cluster::ClusterInfo;
use crate::core::{Answer, Event, Failure, LinkState, Settings, SubmitError, Ticket};
use quorate_crypto::SigningKey;
use quorate_types::limits::REGISTER_KEYS_MAX;
use quorate_types::{PublicKey, ReplicaId};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// How a blocking or async client behaves.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// How long a call waits for its result.
    pub timeout: Duration,
    /// Bundles in flight at most; see [`Settings::in_flight_max`].
    pub in_flight_max: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self { timeout: Duration::from_secs(30), in_flight_max: 8 }
    }
}

impl Options {
    pub(crate) fn settings(&self, cluster: &ClusterInfo) -> Settings {
        Settings { in_flight_max: self.in_flight_max, ..Settings::of(cluster) }
    }
}

/// A client of a cluster: each call returns when f + 1 replicas agree on its result.
///
/// A call whose session was lost on the way fails with [`Failure::SessionLost`], and the client opens another
/// session for what was not sent yet and for later calls. Nothing is ever sent into two sessions.
pub struct Client {
    pub(super) pool: ClientPool,
    id: CoreId,
    pub(super) options: Options,
    told: Vec<PoolEvent>,
    state: State,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Opening,
    Open,
    /// The cluster gave no session; the next call asks again.
    Refused,
}

impl Client {
    /// Connects to a cluster and opens a session.
    ///
    /// # Errors
    /// When the key is not registered, the cluster gives no answer in time, or this machine refuses.
    pub fn connect(cluster: ClusterInfo, key: SigningKey, options: Options) -> Result<Self, ClientError> {
        let mut pool = ClientPool::new(cluster)?;
        let settings = options.settings(&pool.cluster);
        let id = pool.add(key, settings)?;
        let mut client = Self { pool, id, options, told: Vec::new(), state: State::Opening };
        client.within_time(|client, start| client.need_session(start))?;
        Ok(client)
    }

    /// Executes one operation and returns its result.
    ///
    /// # Errors
    /// [`ClientError::Failed`] says what is known of the operation's fate; after [`ClientError::Timeout`] it
    /// may still be executed, if it was sent.
    pub fn call(&mut self, op: &[u8]) -> Result<Vec<u8>, ClientError> {
        let mut results = self.call_many([op])?;
        results.pop().ok_or(ClientError::Failed(Failure::Impossible))
    }

    /// Executes operations in their order, in as few bundles as the limits allow, and returns their results
    /// in the same order. They need not be neighbours in the cluster's order.
    ///
    /// # Errors
    /// As [`Client::call`]; the first failure ends it, whatever becomes of the others.
    pub fn call_many<'o>(
        &mut self,
        ops: impl IntoIterator<Item = &'o [u8]>,
    ) -> Result<Vec<Vec<u8>>, ClientError> {
        self.within_time(|client, start| {
            client.need_session(start)?;
            let mut results = Collected::default();
            for op in ops {
                let ticket = loop {
                    let now = client.pool.now();
                    let core = client.pool.core(client.id).ok_or(ClientError::Closed)?;
                    match core.submit(now, op) {
                        Ok(ticket) => break ticket,
                        Err(SubmitError::Full) => client.wait(start, &mut results)?,
                        Err(why) => return Err(why.into()),
                    }
                };
                results.expect(ticket);
            }
            while !results.is_complete() {
                client.wait(start, &mut results)?;
            }
            Ok(results.in_order())
        })
    }

    /// The admin client registers client keys and is told how many of them are new.
    ///
    /// # Errors
    /// As [`Client::call`].
    pub fn register(&mut self, keys: &[PublicKey]) -> Result<u32, ClientError> {
        self.within_time(|client, start| {
            client.need_session(start)?;
            let mut results = Collected::default();
            for keys in keys.chunks(REGISTER_KEYS_MAX) {
                let now = client.pool.now();
                let core = client.pool.core(client.id).ok_or(ClientError::Closed)?;
                results.expect(core.submit_keys(now, keys.iter().copied())?);
            }
            while !results.is_complete() {
                client.wait(start, &mut results)?;
            }
            Ok(results.registered)
        })
    }

    /// Runs a call. When it fails, what has not left yet must not leave behind the caller's back.
    fn within_time<T>(
        &mut self,
        call: impl FnOnce(&mut Self, Instant) -> Result<T, ClientError>,
    ) -> Result<T, ClientError> {
        let result = call(self, Instant::now());
        let now = self.pool.now();
        if result.is_err()
            && let Some(core) = self.pool.core(self.id)
        {
            core.abandon(now);
        }
        result
    }

    fn need_session(&mut self, start: Instant) -> Result<(), ClientError> {
        if self.state == State::Refused {
            self.pool.reopen(self.id)?;
            self.state = State::Opening;
        }
        while self.state == State::Opening {
            self.wait(start, &mut Collected::default())?;
        }
        Ok(())
    }

    /// Lets the pool work once and collects what it tells.
    fn wait(&mut self, start: Instant, results: &mut Collected) -> Result<(), ClientError> {
        let left = self.options.timeout.saturating_sub(start.elapsed());
        if left.is_zero() {
            return Err(ClientError::Timeout { waited: self.options.timeout, trouble: self.pool.trouble() });
        }
        self.told.clear();
        self.pool.poll(left, &mut self.told)?;
        let (mut failed, mut lost) = (None, false);
        for event in self.told.drain(..) {
            let PoolEvent::Client(_, event) = event else {
                continue;
            };
            match event {
                Event::Opened(_) => self.state = State::Open,
                Event::OpenFailed(why) => (self.state, failed) = (State::Refused, Some(why)),
                Event::SessionLost => (self.state, lost) = (State::Opening, true),
                Event::Done { bundle, answer, .. } => results.note(bundle, answer),
                Event::Failed { bundle, why, .. } if results.expects(bundle) => failed = failed.or(Some(why)),
                // Of an earlier call that has failed already.
                Event::Failed { .. } => {}
            }
        }
        if lost {
            self.pool.reopen(self.id)?;
        }
        failed.map_or(Ok(()), |why| Err(why.into()))
    }
}

/// Results of one call as they come in.
#[derive(Default)]
struct Collected {
    /// The bundles that hold the call's operations, with their answers once they are there.
    bundles: BTreeMap<u64, Option<Answer>>,
    answered: usize,
    registered: u32,
}

impl Collected {
    fn expect(&mut self, ticket: Ticket) {
        self.bundles.entry(ticket.bundle).or_insert(None);
    }

    fn expects(&self, bundle: u64) -> bool {
        self.bundles.contains_key(&bundle)
    }

    fn note(&mut self, bundle: u64, answer: Answer) {
        if let Some(place @ None) = self.bundles.get_mut(&bundle) {
            if let Answer::Registered(count) = answer {
                self.registered = self.registered.saturating_add(count);
            }
            *place = Some(answer);
            self.answered = self.answered.saturating_add(1);
        }
    }

    fn is_complete(&self) -> bool {
        self.answered == self.bundles.len()
    }

    /// Bundles are numbered in the order of submission, so the order of the map is that of the operations.
    fn in_order(&self) -> Vec<Vec<u8>> {
        let mut all = Vec::new();
        for answer in self.bundles.values() {
            if let Some(Answer::Results(results)) = answer {
                all.extend(results.iter().into_iter().flatten().map(<[u8]>::to_vec));
            }
        }
        all
    }
}

/// Asks every replica of a cluster what it is doing. For each: its answer (JSON), or why there is none.
///
/// # Errors
/// When this machine refuses.
pub fn status(cluster: ClusterInfo, timeout: Duration) -> Result<Vec<Result<String, String>>, ClientError> {
    let ids: Vec<ReplicaId> = cluster.ids().collect();
    let mut pool = ClientPool::new(cluster)?;
    let mut answers: Vec<Option<Result<String, String>>> = vec![None; ids.len()];
    let mut asked = vec![false; ids.len()];
    let (start, mut told) = (Instant::now(), Vec::new());
    while answers.contains(&None) {
        let left = timeout.saturating_sub(start.elapsed());
        if left.is_zero() {
            break;
        }
        pool.poll(left, &mut told)?;
        for event in told.drain(..) {
            if let PoolEvent::Status(from, json) = event
                && let Some(answer) = answers.get_mut(from.index())
            {
                *answer = Some(Ok(json));
            }
        }
        for ((id, answer), asked) in ids.iter().zip(&mut answers).zip(&mut asked) {
            match pool.link(*id) {
                Some(LinkState::Up) if !*asked => *asked = pool.ask_status(*id),
                Some(LinkState::Down) if answer.is_none() => *answer = Some(Err(pool.trouble_with(*id))),
                _ => {}
            }
        }
    }
    let late = || Err("no answer in time".to_owned());
    Ok(answers.into_iter().map(|answer| answer.unwrap_or_else(late)).collect())
}
