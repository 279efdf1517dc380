//! One client with blocking calls.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "the blocking driver: this is where the client's sockets and clock live"
)]

use super::{ClientError, ClientPool, CoreId, PoolEvent};
use crate::cluster::ClusterInfo;
use crate::core::{Answer, Core, Event, Failure, Fate, LinkState, Settings, SubmitError, Ticket, Tried};
use crate::order::Position;
use quorate_crypto::SigningKey;
use quorate_types::limits::REGISTER_KEYS_MAX;
use quorate_types::{PublicKey, ReplicaId, Time};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// The time after which a call without an answer reports its attempts, if [`Options::waiting`] is set.
pub const WAITING_AFTER: Duration = Duration::from_secs(2);

/// Options of a blocking or async client.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// The time that a call waits for its result.
    pub timeout: Duration,
    /// Bundles in flight at most; see [`Settings::in_flight_max`].
    pub in_flight_max: usize,
    /// Receives a description of the attempts of a blocking call that has waited for [`WAITING_AFTER`], once for each call.
    pub waiting: Option<fn(&str)>,
}

impl Default for Options {
    fn default() -> Self {
        Self { timeout: Duration::from_secs(30), in_flight_max: 8, waiting: None }
    }
}

impl Options {
    pub(crate) fn settings(&self, cluster: &ClusterInfo) -> Settings {
        Settings { in_flight_max: self.in_flight_max, ..Settings::of(cluster) }
    }
}

/// The place of an operation in the order, as one replica has proved it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ordered {
    /// The place of the operation's bundle.
    pub position: Position,
    /// The replica that has shown the proof.
    pub by: ReplicaId,
}

/// A client of a cluster: each call returns when f + 1 replicas agree on its result.
///
/// When the session is lost, the client opens another one, for later calls and for operations that were certainly never executed
/// in the old one. The caller does not notice. If that is not certain, the call fails with [`Failure::SessionLost`]. Nothing
/// is executed twice.
pub struct Client {
    pub(super) pool: ClientPool,
    id: CoreId,
    pub(super) options: Options,
    events: Vec<PoolEvent>,
    state: SessionState,
    /// The beginning of the call that has already reported its attempts.
    reported: Option<Instant>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum SessionState {
    Opening,
    Open,
    /// The cluster gave no session; the next call asks again.
    Refused,
}

impl Client {
    /// Connects to a cluster and opens a session.
    ///
    /// # Errors
    /// Fails when the key is not registered, the cluster gives no answer in time, or the system of this machine fails.
    pub fn connect(cluster: ClusterInfo, key: SigningKey, options: Options) -> Result<Self, ClientError> {
        let mut pool = ClientPool::new(cluster)?;
        let settings = options.settings(&pool.cluster);
        let id = pool.add(key, settings)?;
        let mut client =
            Self { pool, id, options, events: Vec::new(), state: SessionState::Opening, reported: None };
        client.within_time(|client, start| client.need_session(start))?;
        Ok(client)
    }

    /// Executes one operation and returns its result.
    ///
    /// # Errors
    /// [`ClientError::Failed`] and [`ClientError::Timeout`] contain the known fate of the operation.
    pub fn call(&mut self, op: &[u8]) -> Result<Vec<u8>, ClientError> {
        let mut results = self.call_many([op])?;
        results.pop().ok_or(ClientError::Failed(Failure::Impossible))
    }

    /// Executes operations in their order, in as few bundles as the limits allow, and returns their results
    /// in the same order. Other operations may come between them in the cluster's order.
    ///
    /// A read without room in the reply of its bundle is repeated alone, after the others. The condition: no operation of the
    /// same call may have written the data that it reads (see [`ClusterInfo::ask_again`]). Nothing else is executed a second time.
    ///
    /// # Errors
    /// As [`Client::call`]. The first failure ends the call; the other operations may still be executed.
    pub fn call_many<'o>(
        &mut self,
        ops: impl IntoIterator<Item = &'o [u8]>,
    ) -> Result<Vec<Vec<u8>>, ClientError> {
        let ops: Vec<&[u8]> = ops.into_iter().collect();
        self.within_time(|client, start| {
            // Messages that arrived between calls are read first: they show which bundles replicas have not executed.
            client.turn(Duration::ZERO, &mut CallResults::default())?;
            client.need_session(start)?;
            let mut results = CallResults::default();
            for op in &ops {
                client.submit(start, &mut results, |core, now| core.submit(now, op))?;
            }
            client.collect(start, &mut results)?;
            let mut answers = results.in_order();
            client.ask_again(start, &ops, &mut answers)?;
            Ok(answers.into_iter().map(|answer| answer.result).collect())
        })
    }

    /// Executes one operation, and returns its place in the cluster's order instead of its result. One replica proves the place:
    /// the client does not wait for f + 1 replies. The proof shows nothing about the result, not even that the service has
    /// accepted the operation.
    ///
    /// # Errors
    /// [`SubmitError::NoOrder`] if the protocol of the cluster has no such proofs: nothing was sent. [`Failure::NoOrder`] if the
    /// operation was executed and no replica has a proof. Otherwise as [`Client::call`].
    pub fn order(&mut self, op: &[u8]) -> Result<Ordered, ClientError> {
        self.within_time(|client, start| {
            client.turn(Duration::ZERO, &mut CallResults::default())?;
            client.need_session(start)?;
            let mut results = CallResults::default();
            client.submit(start, &mut results, |core, now| core.order(now, [op]))?;
            client.collect(start, &mut results)?;
            results.ordered.ok_or(ClientError::Failed(Failure::Impossible))
        })
    }

    /// Repeats reads that had no room in their bundles, each in a bundle of its own.
    fn ask_again(
        &mut self,
        start: Instant,
        ops: &[&[u8]],
        answers: &mut [OperationResult],
    ) -> Result<(), ClientError> {
        let Some(rule) = self.pool.cluster.ask_again else { return Ok(()) };
        let is_again = |(index, answer): &(usize, &mut OperationResult)| {
            let mut later = ops.iter().skip(index.saturating_add(1)).copied();
            answer.is_shared && ops.get(*index).is_some_and(|op| (rule.0)(op, &answer.result, &mut later))
        };
        for (index, answer) in answers.iter_mut().enumerate().filter(is_again) {
            let mut again = CallResults::default();
            let op = ops.get(index).copied();
            self.submit(start, &mut again, |core, now| core.submit_bundle(now, op))?;
            self.collect(start, &mut again)?;
            if let Some(alone) = again.in_order().pop() {
                *answer = alone;
            }
        }
        Ok(())
    }

    /// Hands operations to the core as soon as it takes them.
    fn submit(
        &mut self,
        start: Instant,
        results: &mut CallResults,
        mut submit: impl FnMut(&mut Core, Time) -> Result<Ticket, SubmitError>,
    ) -> Result<(), ClientError> {
        loop {
            let now = self.pool.now();
            let core = self.pool.core(self.id).ok_or(ClientError::Closed)?;
            match submit(core, now) {
                Ok(ticket) => {
                    results.expect(ticket);
                    return Ok(());
                }
                Err(SubmitError::Full) => self.wait(start, results)?,
                Err(why) => return Err(why.into()),
            }
        }
    }

    fn collect(&mut self, start: Instant, results: &mut CallResults) -> Result<(), ClientError> {
        while !results.is_complete() {
            self.wait(start, results)?;
        }
        Ok(())
    }

    /// Registers client keys; returns the number of new ones. Only the admin client may call it.
    ///
    /// # Errors
    /// As [`Client::call`].
    pub fn register(&mut self, keys: &[PublicKey]) -> Result<u32, ClientError> {
        self.within_time(|client, start| {
            client.need_session(start)?;
            let mut results = CallResults::default();
            for keys in keys.chunks(REGISTER_KEYS_MAX) {
                client
                    .submit(start, &mut results, |core, now| core.submit_keys(now, keys.iter().copied()))?;
            }
            client.collect(start, &mut results)?;
            Ok(results.registered)
        })
    }

    /// Runs a call. When it fails, its unsent bundles are abandoned, so that none leaves after the end of the call.
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
        if self.state == SessionState::Refused {
            self.pool.reopen(self.id)?;
            self.state = SessionState::Opening;
        }
        while self.state == SessionState::Opening {
            self.wait(start, &mut CallResults::default())?;
        }
        Ok(())
    }

    fn tried(&mut self, results: &CallResults) -> Tried {
        let core = self.pool.core(self.id);
        let tried = core.map(|core| core.tried(&|bundle| results.expects(bundle)));
        tried.unwrap_or(Tried { is_sent: false, text: String::new() })
    }

    /// Returns the error of a late call. A bundle that has not left is abandoned when the call ends, so it never leaves.
    fn late(&mut self, results: &CallResults) -> ClientError {
        let Tried { is_sent, text } = self.tried(results);
        let fate = if is_sent || results.answered > 0 { Fate::Unknown } else { Fate::NotExecuted };
        ClientError::Timeout { waited: self.options.timeout, tried: text, fate, trouble: self.pool.trouble() }
    }

    /// Lets the pool work once and collects its events.
    fn wait(&mut self, start: Instant, results: &mut CallResults) -> Result<(), ClientError> {
        let waited = start.elapsed();
        let mut left = self.options.timeout.saturating_sub(waited);
        if left.is_zero() {
            return Err(self.late(results));
        }
        if let Some(report) = self.options.waiting.filter(|_| self.reported != Some(start)) {
            if waited >= WAITING_AFTER {
                self.reported = Some(start);
                let (tried, trouble) = (self.tried(results).text, self.pool.trouble());
                report(&format!("waiting for an answer: {tried} ({trouble})"));
            }
            left = left.min(WAITING_AFTER.saturating_sub(waited).max(Duration::from_millis(1)));
        }
        self.turn(left, results)
    }

    fn turn(&mut self, most: Duration, results: &mut CallResults) -> Result<(), ClientError> {
        self.events.clear();
        self.pool.poll(most, &mut self.events)?;
        let (mut failed, mut lost) = (None, false);
        for event in self.events.drain(..) {
            let PoolEvent::Client(_, event) = event else {
                continue;
            };
            match event {
                Event::Opened(_) => self.state = SessionState::Open,
                Event::OpenFailed(why) => (self.state, failed) = (SessionState::Refused, Some(why)),
                Event::SessionLost => (self.state, lost) = (SessionState::Opening, true),
                Event::Done { bundle, answer, .. } => results.note(bundle, answer),
                Event::Ordered { bundle, position, by, .. } => {
                    results.note_ordered(bundle, Ordered { position, by });
                }
                Event::Failed { bundle, why, .. } if results.expects(bundle) => failed = failed.or(Some(why)),
                // The bundle belongs to an earlier call that has failed already.
                Event::Failed { .. } => {}
            }
        }
        if lost {
            self.pool.reopen(self.id)?;
        }
        failed.map_or(Ok(()), |why| Err(why.into()))
    }
}

/// The result of one operation.
struct OperationResult {
    result: Vec<u8>,
    /// Whether the reply contained further results.
    is_shared: bool,
}

/// The results of one call, as they arrive.
#[derive(Default)]
struct CallResults {
    /// The bundles of the call's operations, with their answers once these have arrived.
    bundles: BTreeMap<u64, Option<Answer>>,
    answered: usize,
    registered: u32,
    /// The place of the bundle, if the call asks for it.
    ordered: Option<Ordered>,
}

impl CallResults {
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

    fn note_ordered(&mut self, bundle: u64, ordered: Ordered) {
        if self.expects(bundle) && self.ordered.is_none() {
            self.ordered = Some(ordered);
            self.answered = self.answered.saturating_add(1);
        }
    }

    fn is_complete(&self) -> bool {
        self.answered == self.bundles.len()
    }

    /// Returns the results in the order of the operations: bundles are numbered in the order of submission, and so is the map.
    fn in_order(&self) -> Vec<OperationResult> {
        let mut all = Vec::new();
        for answer in self.bundles.values() {
            if let Some(Answer::Results(results)) = answer {
                let is_shared = results.get(1).is_some();
                let results = results.iter().into_iter().flatten();
                all.extend(results.map(|result| OperationResult { result: result.to_vec(), is_shared }));
            }
        }
        all
    }
}

/// Asks every replica of a cluster for its status. Returns for each its answer (JSON), or the reason why there is none.
///
/// # Errors
/// Fails when the system of this machine fails.
pub fn status(cluster: ClusterInfo, timeout: Duration) -> Result<Vec<Result<String, String>>, ClientError> {
    let ids: Vec<ReplicaId> = cluster.ids().collect();
    let mut pool = ClientPool::new(cluster)?;
    let mut answers: Vec<Option<Result<String, String>>> = vec![None; ids.len()];
    let mut asked = vec![false; ids.len()];
    let (start, mut events) = (Instant::now(), Vec::new());
    while answers.contains(&None) {
        let left = timeout.saturating_sub(start.elapsed());
        if left.is_zero() {
            break;
        }
        pool.poll(left, &mut events)?;
        for event in events.drain(..) {
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
