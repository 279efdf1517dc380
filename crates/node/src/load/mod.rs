//! The load generator: open loop (without coordinated omission) or closed loop, against a running cluster.
//!
//! Latency runs from the moment a request *should* have been sent to the f + 1st equal reply after execution.
//! In the open loop that moment comes from the rate alone, so a slow cluster cannot slow the questions down and
//! look fast. What has no answer at the end is an error, never a zero.

mod history;
mod judge;
mod sessions;
mod summary;
mod workload;

pub use history::{Entry, History, Operation};
pub use judge::{Verdict, judge};
pub use summary::{Latency, ReplicaUse, Summary};
pub use workload::{Mix, Workload};

use hdrhistogram::Histogram;
use quorate_client::core::{Answer, Event, Failure, Prepared, Settings, SubmitError};
use quorate_client::driver::{ClientError, ClientPool, CoreId, PoolEvent};
use quorate_crypto::SigningKey;
use quorate_types::{ReplicaId, Time};
use serde_json::Value;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::Duration;

/// How load is offered.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Pace {
    /// So many requests in flight: the next is sent when one has its answer.
    Closed {
        /// Requests without an answer.
        in_flight: usize,
    },
    /// So many requests in a second, whatever the answers do.
    Open {
        /// Requests in a second.
        rate: f64,
    },
}

/// What to offer.
#[derive(Clone, Debug)]
pub struct LoadOptions {
    /// Clients, each with a key and a session of its own; they take turns.
    pub clients: usize,
    /// Decides keys and operations.
    pub seed: u64,
    /// Requests in a bundle; `None`: whatever waits when a bundle can be sent.
    pub bundle: Option<u32>,
    /// How load is offered.
    pub pace: Pace,
    /// What the requests are.
    pub mix: Mix,
    /// Time before figures count.
    pub warmup: Duration,
    /// Time that figures count.
    pub seconds: Duration,
    /// Requests to build and sign before the run; the run ends when they are used up.
    pub presign: usize,
    /// Whether every operation is remembered and judged.
    pub history: bool,
}

/// Why there is no result.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The client's driver failed.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The cluster did not do its part in time.
    #[error("{0}")]
    Stuck(String),
}

/// How long a cluster may take to connect, register keys and open sessions, and to answer what is in flight
/// at the end.
const PATIENCE: Duration = Duration::from_secs(30);

/// What a caller may want to do while load runs.
pub trait Watch {
    /// Called about ten times in a second.
    fn look(&mut self, progress: &Progress);
}

/// Nobody watches.
impl Watch for () {
    fn look(&mut self, _: &Progress) {}
}

/// Where a run stands.
#[derive(Clone, Copy, Debug, Default)]
pub struct Progress {
    /// Since the first request.
    pub elapsed: Duration,
    /// The whole run, warm-up included.
    pub planned: Duration,
    /// Requests sent.
    pub sent: u64,
    /// Requests answered.
    pub acknowledged: u64,
    /// Since the last answer.
    pub silent: Duration,
}

struct Flight {
    /// When its requests should have been sent; one entry stands for all when they are equal.
    due: Vec<Time>,
    operations: Vec<Operation>,
    requests: u32,
}

/// A generator with its connections and sessions.
pub struct Generator {
    pool: ClientPool,
    options: LoadOptions,
    cores: Vec<CoreId>,
    workload: Workload,
    turn: usize,
    flights: BTreeMap<(CoreId, u64), Flight>,
    prepared: VecDeque<(CoreId, Prepared, u32)>,
    in_flight: usize,
    told: Vec<PoolEvent>,
    history: History,
    counts: Counts,
    histogram: Histogram<u64>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    sent: u64,
    acknowledged: u64,
    errors: u64,
    repeats: u64,
    first_reply: Option<Time>,
    last_reply: Option<Time>,
    longest_gap_ns: u64,
    /// Answers that count in the figures.
    measured: u64,
}

impl Generator {
    /// Connects, registers the clients' keys through the admin key, and opens their sessions.
    ///
    /// # Errors
    /// When the cluster does not do its part in time.
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
            told: Vec::new(),
            history: History::default(),
            counts: Counts::default(),
            histogram: summary::histogram(),
            options,
        };
        generator.open_sessions(admin)?;
        generator.prepare()?;
        Ok(generator)
    }

    /// Builds and signs requests before the run.
    fn prepare(&mut self) -> Result<(), LoadError> {
        let bundle = self.options.bundle.unwrap_or(1).max(1);
        let mut left = self.options.presign;
        while left > 0 {
            let id = self.next_core();
            let count = bundle.min(u32::try_from(left).unwrap_or(u32::MAX));
            let operations: Vec<Vec<u8>> =
                (0..count).map(|_| self.workload.next(self.turn).encoded().to_vec()).collect();
            let Some(core) = self.pool.core(id) else { break };
            let prepared = core
                .prepare(operations.iter().map(Vec::as_slice))
                .map_err(|why| LoadError::Stuck(format!("cannot prepare requests: {why}")))?;
            self.prepared.push_back((id, prepared, count));
            left = left.saturating_sub(usize::try_from(count).unwrap_or(left));
        }
        Ok(())
    }

    fn next_core(&mut self) -> CoreId {
        self.turn = self.turn.wrapping_add(1).checked_rem(self.cores.len()).unwrap_or(0);
        self.cores.get(self.turn).copied().unwrap_or(CoreId(0))
    }

    /// Offers the load, waits for what is in flight, and sums up.
    ///
    /// # Errors
    /// When the driver fails.
    pub fn run(&mut self, watch: &mut dyn Watch) -> Result<Summary, LoadError> {
        let begin = self.pool.now();
        let warm = begin.plus(nanos(self.options.warmup));
        let end = warm.plus(nanos(self.options.seconds));
        let mut before = None;
        let mut look_at = begin;
        let mut arrivals = Arrivals::new(self.options.pace, begin);
        let presigned = self.options.presign > 0;
        while self.pool.now() < end && !(presigned && self.prepared.is_empty()) {
            let now = self.pool.now();
            if before.is_none() && now >= warm {
                before = Some(self.ask_all()?);
                self.histogram = summary::histogram();
                self.counts.measured = 0;
                self.counts.first_reply = None;
            }
            self.offer(now, &mut arrivals);
            let wait = arrivals.wait(now).min(Duration::from_millis(20));
            self.pool.poll(wait, &mut self.told)?;
            self.take_answers(before.is_some());
            if now >= look_at {
                look_at = now.plus(100_000_000);
                watch.look(&self.progress(begin, end));
            }
        }
        let stopped = self.pool.now();
        let measured = self.counts.measured;
        let last = self.counts.last_reply;
        let after = self.ask_all()?;
        self.drain(begin, end, watch)?;
        let window = last.unwrap_or(stopped).since(self.counts.first_reply.unwrap_or(warm));
        Ok(self.sum_up(window, measured, &before.unwrap_or_default(), &after))
    }

    fn progress(&self, begin: Time, end: Time) -> Progress {
        let now = self.pool.now();
        Progress {
            elapsed: Duration::from_nanos(now.since(begin)),
            planned: Duration::from_nanos(end.since(begin)),
            sent: self.counts.sent,
            acknowledged: self.counts.acknowledged,
            silent: Duration::from_nanos(now.since(self.counts.last_reply.unwrap_or(begin))),
        }
    }

    /// Submits everything whose time has come.
    fn offer(&mut self, now: Time, arrivals: &mut Arrivals) {
        loop {
            let bundle = self.options.bundle.unwrap_or(1).max(1);
            let Some(due) = arrivals.next(now, bundle, self.in_flight) else { return };
            let count = usize::try_from(bundle).unwrap_or(1);
            if !self.submit(now, bundle, &due) {
                arrivals.put_back(due);
                return;
            }
            self.in_flight = self.in_flight.saturating_add(count);
            self.counts.sent = self.counts.sent.saturating_add(u64::from(bundle));
        }
    }

    /// Submits one bundle (or, where bundles form by themselves, one request). False when there is no room.
    fn submit(&mut self, now: Time, bundle: u32, due: &[Time]) -> bool {
        if self.options.presign > 0 {
            return self.submit_prepared(now, due);
        }
        let id = self.next_core();
        let turn = self.turn;
        let mut operations = Vec::new();
        let Some(core) = self.pool.core(id) else { return false };
        let submitted = if self.options.bundle.is_none() {
            let operation = self.workload.next(turn);
            let submitted = core.submit(now, operation.encoded());
            if self.options.history && submitted.is_ok() {
                operations.push(self.workload.describe(turn, now));
            }
            submitted
        } else {
            let mut encoded = Vec::new();
            let mut ends = Vec::new();
            for _ in 0..bundle {
                encoded.extend_from_slice(self.workload.next(turn).encoded());
                ends.push(encoded.len());
                if self.options.history {
                    operations.push(self.workload.describe(turn, now));
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
                let flight = self.flights.entry((id, ticket.bundle)).or_insert_with(|| Flight {
                    due: Vec::new(),
                    operations: Vec::new(),
                    requests: 0,
                });
                flight.due.extend_from_slice(due);
                flight.operations.append(&mut operations);
                flight.requests = flight.requests.saturating_add(bundle);
                true
            }
            Err(SubmitError::Full) => {
                self.workload.undo(turn, bundle);
                false
            }
            Err(_) => {
                self.counts.errors = self.counts.errors.saturating_add(u64::from(bundle));
                true
            }
        }
    }

    fn submit_prepared(&mut self, now: Time, due: &[Time]) -> bool {
        let Some((id, prepared, requests)) = self.prepared.pop_front() else { return false };
        let Some(core) = self.pool.core(id) else { return false };
        match core.submit_prepared(now, prepared) {
            Ok(ticket) => {
                let flight = Flight { due: due.to_vec(), operations: Vec::new(), requests };
                self.flights.insert((id, ticket.bundle), flight);
                true
            }
            Err((SubmitError::Full, prepared)) => {
                self.prepared.push_front((id, prepared, requests));
                false
            }
            Err(_) => {
                self.counts.errors = self.counts.errors.saturating_add(u64::from(requests));
                true
            }
        }
    }

    fn take_answers(&mut self, measure: bool) {
        let now = self.pool.now();
        let mut told = std::mem::take(&mut self.told);
        for event in told.drain(..) {
            match event {
                PoolEvent::Client(id, Event::Done { bundle, answer, requests, repeats, .. }) => {
                    self.done(now, (id, bundle), &answer, requests, measure);
                    self.counts.repeats = self.counts.repeats.saturating_add(u64::from(repeats));
                }
                PoolEvent::Client(id, Event::Failed { bundle, requests, why }) => {
                    self.failed((id, bundle), requests, why);
                }
                PoolEvent::Client(id, Event::SessionLost | Event::OpenFailed(_)) => {
                    // A session that is gone is opened anew; what it had in flight has failed already.
                    if self.pool.reopen(id).is_err() {
                        tracing::warn!("a session could not be opened again");
                    }
                }
                PoolEvent::Client(_, Event::Opened(_)) | PoolEvent::Status(..) => {}
            }
        }
        self.told = told;
    }

    fn done(&mut self, now: Time, key: (CoreId, u64), answer: &Answer, requests: u32, measure: bool) {
        let Some(flight) = self.flights.remove(&key) else { return };
        self.in_flight = self.in_flight.saturating_sub(usize::try_from(requests).unwrap_or(0));
        let counts = &mut self.counts;
        counts.acknowledged = counts.acknowledged.saturating_add(u64::from(requests));
        if let Some(last) = counts.last_reply {
            counts.longest_gap_ns = counts.longest_gap_ns.max(now.since(last));
        }
        counts.last_reply = Some(now);
        if measure {
            counts.first_reply.get_or_insert(now);
            counts.measured = counts.measured.saturating_add(u64::from(requests));
            match flight.due.as_slice() {
                [due] => self.histogram.saturating_record_n(now.since(*due), u64::from(requests)),
                all => all.iter().for_each(|due| self.histogram.saturating_record(now.since(*due))),
            }
        }
        if self.options.history
            && let Answer::Results(results) = answer
        {
            let results = results.iter().into_iter().flatten();
            for (operation, result) in flight.operations.into_iter().zip(results) {
                self.history.returned(operation, now, result);
            }
        }
    }

    fn failed(&mut self, key: (CoreId, u64), requests: u32, why: Failure) {
        let Some(flight) = self.flights.remove(&key) else { return };
        tracing::warn!("{requests} requests have failed: {why}");
        self.in_flight = self.in_flight.saturating_sub(usize::try_from(requests).unwrap_or(0));
        self.counts.errors = self.counts.errors.saturating_add(u64::from(requests));
        for operation in flight.operations {
            self.history.unknown(operation);
        }
    }

    /// Waits for what is in flight.
    fn drain(&mut self, begin: Time, end: Time, watch: &mut dyn Watch) -> Result<(), LoadError> {
        let until = self.pool.now().plus(nanos(PATIENCE));
        while self.in_flight > 0 && self.pool.now() < until {
            self.pool.poll(Duration::from_millis(20), &mut self.told)?;
            self.take_answers(false);
            watch.look(&self.progress(begin, end));
        }
        for (_, flight) in std::mem::take(&mut self.flights) {
            self.counts.errors = self.counts.errors.saturating_add(u64::from(flight.requests));
            for operation in flight.operations {
                self.history.unknown(operation);
            }
        }
        Ok(())
    }

    /// The status of every replica that answers in time.
    fn ask_all(&mut self) -> Result<HashMap<ReplicaId, Value>, LoadError> {
        let n = u16::try_from(self.pool.settings().n).unwrap_or(u16::MAX);
        let asked: Vec<ReplicaId> = (0..n).map(ReplicaId).filter(|id| self.pool.ask_status(*id)).collect();
        let mut answers = HashMap::new();
        let until = self.pool.now().plus(2_000_000_000);
        while answers.len() < asked.len() && self.pool.now() < until {
            let mut told = Vec::new();
            self.pool.poll(Duration::from_millis(20), &mut told)?;
            for event in told {
                match event {
                    PoolEvent::Status(id, json) => {
                        answers.insert(id, serde_json::from_str(&json).unwrap_or(Value::Null));
                    }
                    other => self.told.push(other),
                }
            }
            self.take_answers(false);
        }
        Ok(answers)
    }

    fn sum_up(
        &self,
        window_ns: u64,
        measured: u64,
        before: &HashMap<ReplicaId, Value>,
        after: &HashMap<ReplicaId, Value>,
    ) -> Summary {
        let seconds = Duration::from_nanos(window_ns).as_secs_f64();
        Summary::new(summary::Measured {
            options: &self.options,
            seconds,
            measured,
            sent: self.counts.sent,
            acknowledged: self.counts.acknowledged,
            errors: self.counts.errors,
            repeats: self.counts.repeats,
            longest_gap_ns: self.counts.longest_gap_ns,
            histogram: &self.histogram,
            before,
            after,
        })
    }

    /// What every operation did, where it was asked for.
    #[must_use]
    pub fn into_history(self) -> History {
        self.history
    }
}

/// When requests are due.
struct Arrivals {
    pace: Pace,
    begin: Time,
    count: u64,
    back: Option<Vec<Time>>,
}

impl Arrivals {
    fn new(pace: Pace, begin: Time) -> Self {
        Self { pace, begin, count: 0, back: None }
    }

    fn at(&self, index: u64) -> Time {
        match self.pace {
            Pace::Closed { .. } => self.begin,
            Pace::Open { rate } => {
                let offset = summary::float(index) / rate;
                self.begin.plus(nanos(Duration::from_secs_f64(offset)))
            }
        }
    }

    /// The due times of the next bundle, if it is time for one.
    fn next(&mut self, now: Time, bundle: u32, in_flight: usize) -> Option<Vec<Time>> {
        match self.pace {
            Pace::Closed { in_flight: most } => {
                let room = in_flight.saturating_add(usize::try_from(bundle).unwrap_or(1)) <= most.max(1);
                (room || in_flight == 0).then(|| vec![now])
            }
            Pace::Open { .. } => {
                if let Some(back) = self.back.take() {
                    return Some(back);
                }
                let last = self.count.saturating_add(u64::from(bundle));
                if self.at(last.saturating_sub(1)) > now {
                    return None;
                }
                let due = (self.count..last).map(|index| self.at(index)).collect();
                self.count = last;
                Some(due)
            }
        }
    }

    /// There was no room: the same requests are still due, and grow old.
    fn put_back(&mut self, due: Vec<Time>) {
        if matches!(self.pace, Pace::Open { .. }) {
            self.back = Some(due);
        }
    }

    fn wait(&self, now: Time) -> Duration {
        match self.pace {
            Pace::Closed { .. } => Duration::from_millis(20),
            Pace::Open { .. } => Duration::from_nanos(self.at(self.count).since(now)),
        }
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Settings of the generator's clients: they may have as much in flight as the run asks for.
pub(crate) fn settings(pool: &ClientPool, options: &LoadOptions) -> Settings {
    let mut settings = pool.settings();
    if options.bundle.is_some() || options.presign > 0 {
        // The run says how many bundles are in flight, not the client.
        settings.in_flight_max = usize::try_from(settings.client_window).unwrap_or(usize::MAX);
    }
    settings
}
