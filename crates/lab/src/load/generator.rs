//! The load generator, which sends requests when they are due, and meters the answers.

use super::arrivals::{Arrivals, Due};
use super::errors::{NO_ANSWER, SESSION_LOST};
use super::meter::Meter;
use super::numbers::{nanos, own_cpu_ns};
use super::options::{LoadError, LoadOptions, STATUS_PATIENCE};
use super::progress::{Next, Progress, Watch};
use super::summary::LoadSummary;
use super::workload::Workload;
use quorate_client::core::{Answer, Event, Failure, Prepared, SubmitError};
use quorate_client::driver::{ClientPool, CoreId, PoolEvent};
use quorate_crypto::SigningKey;
use quorate_history::{Call, History};
use quorate_types::{BodyLimits, ReplicaId, Time};
use serde_json::Value;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::Duration;

/// Clients without room that a step asks in a row, at most: each costs an encoded request.
const FULL_MAX: usize = 256;

/// A bundle that waits for its answer.
#[derive(Default)]
pub(super) struct Flight {
    /// The due times of its requests.
    due: Due,
    pub(super) calls: Vec<Call>,
}

/// The result of an attempt to send a bundle.
enum Sent {
    /// The bundle was sent, with this number of requests.
    Yes(usize),
    /// There is no room: the same requests are sent later.
    Full,
    /// The bundle can never be sent.
    Never,
}

/// A generator with its connections and sessions.
pub struct Generator {
    pub(super) pool: ClientPool,
    pub(super) options: LoadOptions,
    pub(super) cores: Vec<CoreId>,
    pub(super) workload: Workload,
    pub(super) turn: usize,
    pub(super) flights: BTreeMap<(CoreId, u64), Flight>,
    pub(super) prepared: VecDeque<(CoreId, Prepared, u32)>,
    pub(super) in_flight: usize,
    pub(super) events: Vec<PoolEvent>,
    pub(super) statuses: HashMap<ReplicaId, Value>,
    pub(super) history: History,
    pub(super) meter: Meter,
    /// The attempts at bundles that had no answer at the end.
    pub(super) unanswered: Option<String>,
}

impl Generator {
    /// Connects, registers the clients' keys through the admin key, and opens their sessions.
    ///
    /// # Errors
    /// Fails when the cluster does not connect, register the keys and open the sessions in time.
    pub fn connect(pool: ClientPool, admin: SigningKey, options: LoadOptions) -> Result<Self, LoadError> {
        let workload = Workload::new(options.mix.clone(), options.seed, options.clients);
        let mut generator = Self {
            pool,
            cores: Vec::new(),
            workload,
            turn: 0,
            flights: BTreeMap::new(),
            prepared: VecDeque::new(),
            in_flight: 0,
            events: Vec::new(),
            statuses: HashMap::new(),
            history: History::default(),
            meter: Meter::new(Time::ZERO, Time::ZERO, Time::ZERO),
            unanswered: None,
            options,
        };
        generator.open_sessions(admin)?;
        generator.prepare()?;
        Ok(generator)
    }

    /// Builds and signs requests before the run.
    fn prepare(&mut self) -> Result<(), LoadError> {
        let bundle = self.options.bundle.unwrap_or(1).max(1);
        let limits = self.pool.settings().limits;
        let mut left = self.options.presign;
        while left > 0 {
            let id = self.next_core();
            let count = bundle.min(u32::try_from(left).unwrap_or(u32::MAX));
            let operations: Vec<Vec<u8>> =
                (0..count).map(|_| self.workload.next(self.turn).to_vec()).collect();
            let Some(core) = self.pool.core(id) else { break };
            let prepared = core
                .prepare(operations.iter().map(Vec::as_slice))
                .map_err(|why| refused(&limits, "cannot prepare requests", why))?;
            self.prepared.push_back((id, prepared, count));
            left = left.saturating_sub(usize::try_from(count).unwrap_or(left));
        }
        Ok(())
    }

    fn next_core(&mut self) -> CoreId {
        self.turn = self.turn.wrapping_add(1).checked_rem(self.cores.len()).unwrap_or(0);
        self.cores.get(self.turn).copied().unwrap_or(CoreId(0))
    }

    /// Offers the load, waits for requests in flight, and returns the summary.
    ///
    /// # Errors
    /// Fails when the driver fails or the cluster refuses such requests.
    pub fn run(&mut self, watch: &mut Watch<'_>) -> Result<LoadSummary, LoadError> {
        let begin = self.pool.now();
        let warm = begin.plus(nanos(self.options.warmup));
        let end = warm.plus(nanos(self.options.seconds));
        let meter = Meter::new(begin, warm, end);
        self.meter = match self.options.timeline {
            Some(interval) => meter.with_timeline(nanos(interval)),
            None => meter,
        };
        let presigned = self.options.presign > 0;
        let mut arrivals = Arrivals::new(&self.options, begin, end);
        let mut is_warm = false;
        let mut cpu_before = own_cpu_ns();
        let mut report_at = begin;
        while self.pool.now() < end && !(presigned && self.prepared.is_empty() && self.in_flight == 0) {
            let now = self.pool.now();
            if !is_warm && now >= warm {
                is_warm = true;
                cpu_before = own_cpu_ns();
                self.ask_all();
            }
            self.step(&mut arrivals)?;
            if now >= report_at {
                report_at = now.plus(100_000_000);
                if self.report(watch, begin, end)? == Next::End {
                    arrivals.close(self.pool.now());
                    break;
                }
            }
        }
        self.meter.close(self.pool.now());
        self.meter.generator_cpu_ns = own_cpu_ns().saturating_sub(cpu_before);
        let before = std::mem::take(&mut self.statuses);
        let asked = self.ask_all();
        self.drain(&mut arrivals, asked, watch, (begin, end))?;
        self.meter.unsent(&arrivals);
        Ok(LoadSummary::new(&self.options, &self.meter, &before, &self.statuses))
    }

    /// Sends requests that are due, and handles events.
    fn step(&mut self, arrivals: &mut Arrivals) -> Result<(), LoadError> {
        let now = self.pool.now();
        self.offer(now, arrivals)?;
        let wait = arrivals.wait(now).min(Duration::from_millis(20));
        self.pool.poll(wait, &mut self.events)?;
        self.take_answers();
        Ok(())
    }

    fn report(&mut self, watch: &mut Watch<'_>, begin: Time, end: Time) -> Result<Next, LoadError> {
        let progress = self.progress(begin, end);
        match watch(&progress) {
            Next::Stop => Err(LoadError::Stopped),
            next => Ok(next),
        }
    }

    fn progress(&mut self, begin: Time, end: Time) -> Progress {
        let now = self.pool.now();
        Progress {
            gap: Duration::from_nanos(std::mem::take(&mut self.meter.gap_ns)),
            elapsed: Duration::from_nanos(now.since(begin)),
            planned: Duration::from_nanos(end.since(begin)),
            sent: self.meter.counts.sent,
            acknowledged: self.meter.counts.acknowledged,
            silent: Duration::from_nanos(now.since(self.meter.last_reply)),
        }
    }

    /// Submits all bundles that are due.
    fn offer(&mut self, now: Time, arrivals: &mut Arrivals) -> Result<(), LoadError> {
        let bundle = self.options.bundle.unwrap_or(1).max(1);
        let mut full_in_a_row = 0usize;
        while let Some(due) = arrivals.next(now, bundle, self.in_flight) {
            match self.submit(now, &due)? {
                Sent::Yes(requests) => {
                    full_in_a_row = 0;
                    self.in_flight = self.in_flight.saturating_add(requests);
                    self.meter.sent(&due);
                }
                Sent::Full => {
                    arrivals.put_back(due);
                    full_in_a_row = full_in_a_row.saturating_add(1);
                    // Another client may have room. A prepared bundle belongs to its client.
                    if self.options.presign > 0 || full_in_a_row >= self.cores.len().min(FULL_MAX) {
                        break;
                    }
                }
                Sent::Never => {
                    self.meter.sent(&due);
                    self.meter.failed(&due, SESSION_LOST);
                }
            }
        }
        Ok(())
    }

    /// Submits one bundle, or one request if the client forms the bundles.
    fn submit(&mut self, now: Time, due: &Due) -> Result<Sent, LoadError> {
        if self.options.presign > 0 {
            return Ok(self.submit_prepared(now, due));
        }
        let requests: u32 = due.iter().map(|(_, requests)| *requests).sum();
        let id = self.next_core();
        let turn = self.turn;
        let mut calls = Vec::new();
        let Some(core) = self.pool.core(id) else { return Ok(Sent::Full) };
        let submitted = if self.options.bundle.is_none() {
            let operation = self.workload.next(turn);
            let submitted = core.submit(now, operation);
            if self.options.history && submitted.is_ok() {
                calls.extend(self.workload.describe(turn, now));
            }
            submitted
        } else {
            let mut encoded = Vec::new();
            let mut ends = Vec::new();
            for _ in 0..requests {
                encoded.extend_from_slice(self.workload.next(turn));
                ends.push(encoded.len());
                if self.options.history {
                    calls.extend(self.workload.describe(turn, now));
                }
            }
            let mut start = 0;
            let parts = ends.iter().map(|end| {
                let part = encoded.get(start..*end).unwrap_or_default();
                start = *end;
                part
            });
            core.submit_bundle(now, parts)
        };
        match submitted {
            Ok(ticket) => {
                let flight = self.flights.entry((id, ticket.bundle)).or_default();
                flight.due.extend_from_slice(due);
                flight.calls.append(&mut calls);
                Ok(Sent::Yes(usize::try_from(requests).unwrap_or(usize::MAX)))
            }
            // A lost session is opened again. The requests stay due since the same time.
            Err(SubmitError::Full | SubmitError::NoSession) => {
                self.workload.undo(turn, requests);
                Ok(Sent::Full)
            }
            Err(why) => Err(refused(&self.pool.settings().limits, "cannot send requests", why)),
        }
    }

    fn submit_prepared(&mut self, now: Time, due: &Due) -> Sent {
        let Some((id, prepared, requests)) = self.prepared.pop_front() else { return Sent::Full };
        let Some(core) = self.pool.core(id) else { return Sent::Full };
        match core.submit_prepared(now, prepared) {
            Ok(ticket) => {
                let flight = Flight { due: due.clone(), calls: Vec::new() };
                self.flights.insert((id, ticket.bundle), flight);
                Sent::Yes(usize::try_from(requests).unwrap_or(usize::MAX))
            }
            Err((SubmitError::Full, prepared)) => {
                self.prepared.push_front((id, *prepared, requests));
                Sent::Full
            }
            // The bundle was signed for a session that was lost.
            Err(_) => Sent::Never,
        }
    }

    pub(super) fn take_answers(&mut self) {
        let now = self.pool.now();
        let mut events = std::mem::take(&mut self.events);
        for event in events.drain(..) {
            match event {
                PoolEvent::Client(id, Event::Done { bundle, answer, requests, repeats, .. }) => {
                    self.done(now, (id, bundle), &answer, requests);
                    let counts = &mut self.meter.counts;
                    counts.repeats = counts.repeats.saturating_add(u64::from(repeats));
                }
                PoolEvent::Client(id, Event::Failed { bundle, requests, why }) => {
                    self.failed((id, bundle), requests, why);
                }
                PoolEvent::Client(id, Event::SessionLost | Event::OpenFailed(_)) => {
                    // A lost session is opened again. Its bundles in flight have failed already.
                    let counts = &mut self.meter.counts;
                    counts.sessions_lost = counts.sessions_lost.saturating_add(1);
                    if self.pool.reopen(id).is_err() {
                        tracing::warn!("a session could not be opened again");
                    }
                }
                PoolEvent::Status(id, json) => {
                    self.statuses.insert(id, serde_json::from_str(&json).unwrap_or(Value::Null));
                }
                // The load asks for results, never for places or for a stop.
                PoolEvent::Client(_, Event::Opened(_) | Event::Ordered { .. }) | PoolEvent::Stop(..) => {}
            }
        }
        self.events = events;
    }

    fn done(&mut self, now: Time, key: (CoreId, u64), answer: &Answer, requests: u32) {
        let Some(flight) = self.flights.remove(&key) else { return };
        self.in_flight = self.in_flight.saturating_sub(usize::try_from(requests).unwrap_or(0));
        let Answer::Results(results) = answer else { return };
        let errors = results.iter().into_iter().flatten().map(|result| self.workload.error_of(result));
        self.meter.answered(now, &flight.due, errors);
        if self.options.history {
            let results = results.iter().into_iter().flatten();
            for (call, result) in flight.calls.into_iter().zip(results) {
                self.workload.learn(&call.op, result);
                self.history.returned(call, now, result);
            }
        }
    }

    fn failed(&mut self, key: (CoreId, u64), requests: u32, why: Failure) {
        let Some(flight) = self.flights.remove(&key) else { return };
        tracing::warn!("{requests} requests have failed: {why}");
        self.in_flight = self.in_flight.saturating_sub(usize::try_from(requests).unwrap_or(0));
        self.give_up(flight, &format!("{why:?}"));
    }

    fn give_up(&mut self, flight: Flight, kind: &str) {
        self.meter.failed(&flight.due, kind);
        for call in flight.calls {
            self.history.unknown(call);
        }
    }

    /// Sends due requests that found no room, and waits for requests in flight and for statuses.
    fn drain(
        &mut self,
        arrivals: &mut Arrivals,
        asked: usize,
        watch: &mut Watch<'_>,
        (begin, end): (Time, Time),
    ) -> Result<(), LoadError> {
        let (stopped, drain) = (self.pool.now(), nanos(self.options.drain));
        loop {
            let waited = self.pool.now().since(stopped);
            let has_requests = (arrivals.has_remaining() || self.in_flight > 0) && waited < drain;
            let has_statuses = self.statuses.len() < asked && waited < nanos(STATUS_PATIENCE);
            if !has_requests && !has_statuses {
                break;
            }
            self.step(arrivals)?;
            self.report(watch, begin, end)?;
        }
        self.meter.finish(self.pool.now(), arrivals.has_remaining() || self.in_flight > 0);
        self.give_up_all();
        Ok(())
    }

    pub(super) fn give_up_all(&mut self) {
        self.in_flight = 0;
        // The attempts of one client show the cause. It is the same for the others.
        if let Some((id, _)) = self.flights.keys().next().copied()
            && let Some(core) = self.pool.core(id)
        {
            self.unanswered = Some(core.tried(&|_| true).text);
        }
        for (_, flight) in std::mem::take(&mut self.flights) {
            self.give_up(flight, NO_ANSWER);
        }
    }

    /// Requests the status of every replica. Returns the number of expected answers.
    fn ask_all(&mut self) -> usize {
        let n = u16::try_from(self.pool.settings().n).unwrap_or(u16::MAX);
        self.statuses.clear();
        (0..n).filter(|id| self.pool.ask_status(ReplicaId(*id))).count()
    }

    /// Takes the recorded history since the last call.
    #[must_use]
    pub fn take_history(&mut self) -> History {
        std::mem::take(&mut self.history)
    }

    /// Describes the attempts of one client whose requests had no answer at the end.
    #[must_use]
    pub fn unanswered(&self) -> Option<&str> {
        self.unanswered.as_deref()
    }

    /// Returns the current time, on the clock of the history.
    #[must_use]
    pub fn now(&self) -> Time {
        self.pool.now()
    }
}

/// Describes why requests were refused. For a request that is too large, the text names the limits.
fn refused(limits: &BodyLimits, what: &str, why: SubmitError) -> LoadError {
    LoadError::Stuck(match why {
        SubmitError::TooLarge { .. } => format!(
            "{what}: {why} (request_bytes_max = {}, bundle_requests_max = {}, bundle_bytes_max = {})",
            limits.request_bytes_max, limits.bundle_requests_max, limits.bundle_bytes_max
        ),
        _ => format!("{what}: {why}"),
    })
}
