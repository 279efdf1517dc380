//! One client whose calls wait for their results.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "the blocking driver: this is where the client's sockets and clock live"
)]

use super::{ClientError, ClientPool, CoreId, PoolEvent};
use crate::cluster::ClusterInfo;
use crate::core::{Answer, Core, Event, Failure, Fate, LinkState, Settings, SubmitError, Ticket, Tried};
use quorate_crypto::SigningKey;
use quorate_types::limits::REGISTER_KEYS_MAX;
use quorate_types::{PublicKey, ReplicaId, Time};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// A call that has no answer after this long says what it waits for, where [`Options::waiting`] is set.
pub const WAITING_AFTER: Duration = Duration::from_secs(2);

/// How a blocking or async client behaves.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// How long a call waits for its result.
    pub timeout: Duration,
    /// Bundles in flight at most; see [`Settings::in_flight_max`].
    pub in_flight_max: usize,
    /// Hears what a call of a blocking client waits for when it has waited for [`WAITING_AFTER`]: once for each call.
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

/// A client of a cluster: each call returns when f + 1 replicas agree on its result.
///
/// Where the session is lost, the client opens another one, for later calls and for what was certainly never executed in
/// the old one: the caller does not notice. Where that is not certain the call fails with [`Failure::SessionLost`]. Nothing
/// is executed twice.
pub struct Client {
    pub(super) pool: ClientPool,
    id: CoreId,
    pub(super) options: Options,
    told: Vec<PoolEvent>,
    state: State,
    /// The call that has said what it waits for, by its beginning.
    said: Option<Instant>,
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
        let mut client = Self { pool, id, options, told: Vec::new(), state: State::Opening, said: None };
        client.within_time(|client, start| client.need_session(start))?;
        Ok(client)
    }

    /// Executes one operation and returns its result.
    ///
    /// # Errors
    /// [`ClientError::Failed`] and [`ClientError::Timeout`] say what is known of the operation's fate.
    pub fn call(&mut self, op: &[u8]) -> Result<Vec<u8>, ClientError> {
        let mut results = self.call_many([op])?;
        results.pop().ok_or(ClientError::Failed(Failure::Impossible))
    }

    /// Executes operations in their order, in as few bundles as the limits allow, and returns their results
    /// in the same order. They need not be neighbours in the cluster's order.
    ///
    /// A read that had no room in the reply of its bundle is asked again alone, after the others, if nothing in the same call
    /// may have written what it reads; see [`ClusterInfo::ask_again`]. Nothing else is executed a second time.
    ///
    /// # Errors
    /// As [`Client::call`]; the first failure ends it, whatever becomes of the others.
    pub fn call_many<'o>(
        &mut self,
        ops: impl IntoIterator<Item = &'o [u8]>,
    ) -> Result<Vec<Vec<u8>>, ClientError> {
        let ops: Vec<&[u8]> = ops.into_iter().collect();
        self.within_time(|client, start| {
            // Messages that came while nobody called are read first: they say what replicas have not executed.
            client.turn(Duration::ZERO, &mut Collected::default())?;
            client.need_session(start)?;
            let mut results = Collected::default();
            for op in &ops {
                client.submit(start, &mut results, |core, now| core.submit(now, op))?;
            }
            client.collect(start, &mut results)?;
            let mut answers = results.in_order();
            client.ask_again(start, &ops, &mut answers)?;
            Ok(answers.into_iter().map(|answer| answer.result).collect())
        })
    }

    /// Asks reads that had no room in their bundles once more, each in a bundle of its own.
    fn ask_again(
        &mut self,
        start: Instant,
        ops: &[&[u8]],
        answers: &mut [Collection],
    ) -> Result<(), ClientError> {
        let Some(rule) = self.pool.cluster.ask_again else { return Ok(()) };
        let is_again = |(index, answer): &(usize, &mut Collection)| {
            let mut later = ops.iter().skip(index.saturating_add(1)).copied();
            answer.is_shared && ops.get(*index).is_some_and(|op| (rule.0)(op, &answer.result, &mut later))
        };
        for (index, answer) in answers.iter_mut().enumerate().filter(is_again) {
            let mut again = Collected::default();
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
        results: &mut Collected,
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

    fn collect(&mut self, start: Instant, results: &mut Collected) -> Result<(), ClientError> {
        while !results.is_complete() {
            self.wait(start, results)?;
        }
        Ok(())
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
                client
                    .submit(start, &mut results, |core, now| core.submit_keys(now, keys.iter().copied()))?;
            }
            client.collect(start, &mut results)?;
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

    fn tried(&mut self, results: &Collected) -> Tried {
        let core = self.pool.core(self.id);
        let tried = core.map(|core| core.tried(&|bundle| results.expects(bundle)));
        tried.unwrap_or(Tried { is_sent: false, text: String::new() })
    }

    /// A bundle that has not left is given up when a call ends, so it never will.
    fn late(&mut self, results: &Collected) -> ClientError {
        let Tried { is_sent, text } = self.tried(results);
        let fate = if is_sent || results.answered > 0 { Fate::Unknown } else { Fate::NotExecuted };
        ClientError::Timeout { waited: self.options.timeout, tried: text, fate, trouble: self.pool.trouble() }
    }

    /// Lets the pool work once and collects what it tells.
    fn wait(&mut self, start: Instant, results: &mut Collected) -> Result<(), ClientError> {
        let waited = start.elapsed();
        let mut left = self.options.timeout.saturating_sub(waited);
        if left.is_zero() {
            return Err(self.late(results));
        }
        if let Some(say) = self.options.waiting.filter(|_| self.said != Some(start)) {
            if waited >= WAITING_AFTER {
                self.said = Some(start);
                let (tried, trouble) = (self.tried(results).text, self.pool.trouble());
                say(&format!("waiting for an answer: {tried} ({trouble})"));
            }
            left = left.min(WAITING_AFTER.saturating_sub(waited).max(Duration::from_millis(1)));
        }
        self.turn(left, results)
    }

    fn turn(&mut self, most: Duration, results: &mut Collected) -> Result<(), ClientError> {
        self.told.clear();
        self.pool.poll(most, &mut self.told)?;
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

/// The result of one operation.
struct Collection {
    result: Vec<u8>,
    /// Whether others had the same reply.
    is_shared: bool,
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
    fn in_order(&self) -> Vec<Collection> {
        let mut all = Vec::new();
        for answer in self.bundles.values() {
            if let Some(Answer::Results(results)) = answer {
                let is_shared = results.get(1).is_some();
                let results = results.iter().into_iter().flatten();
                all.extend(results.map(|result| Collection { result: result.to_vec(), is_shared }));
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
