//! Arbitrary messages of replicas. In this world f replicas send mutations of earlier messages, each validly signed
//! with their own keys. Such a message passes the intake, so a handler has to judge it.
//!
//! The messages come from the run itself. At first every replica is honest and the run records messages, also while a
//! leader is away. Then f controlled replicas receive the others' messages and resend them with another view, height,
//! digest or byte. Every mutation that still decodes is signed anew. Finally the controlled replicas fall silent, and
//! the others have to keep the protocol's promises.
//!
//! Nothing here knows a protocol: the run is handed an [`Entry`].

mod message_pool;

use crate::disk::Survives;
use crate::oracles::Failure;
use crate::settings::{BadSettings, Settings, Transport};
use crate::world::World;
use crate::{ControlledInput, Verdict, Workload, ms, secs};
use message_pool::{FuzzedMessage, MessagePool};
use quorate_consensus::{Entry, To};
use quorate_types::digest::hex;
use quorate_types::rng::Rng;
use quorate_types::{Kind, ReplicaId, ReplicaSet};
use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

/// Number of last messages that a failure shows.
const SHOWN_MAX: usize = 12;
/// The load of clients, over and over.
const WORKLOAD: Workload =
    Workload { operations: 30, pause_ns: ms(20), together_max: 4, outstanding_max: 4, keys: 3 };
/// Durations of the honest phases: with a leader, without it, and with it again.
const LEARNING_NS: [u64; 3] = [ms(600), ms(1_500), ms(900)];
/// Longest time until all replicas are at one height once all clients have their answers.
const SETTLE_NS: u64 = secs(30);
/// Interval between runs that replay their replicas.
const REPLAY_EVERY: u64 = 8;

/// The result of a run.
#[derive(Clone, PartialEq, Debug)]
pub struct FuzzReport {
    /// The seed.
    pub seed: u64,
    /// The finding of an oracle.
    pub failure: Option<Failure>,
    /// Messages of protocol and host to honest replicas, one for each receiver. Bodies do not count.
    pub said: u64,
    /// Number of those messages that passed the intake of their receiver.
    pub passed: u64,
    /// Number of messages of each kind.
    pub kinds: BTreeMap<Kind, u64>,
    /// Refused messages by reason, of all replicas, intakes and handlers.
    pub refused: BTreeMap<&'static str, u64>,
    /// Number of decided heights.
    pub heights: u64,
    /// The last messages, for people.
    pub last: Vec<String>,
}

impl fmt::Display for FuzzReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.failure {
            None => write!(
                f,
                "seed {}: {} messages, {} reached a handler, {} heights",
                self.seed, self.said, self.passed, self.heights
            ),
            Some(failure) => {
                write!(f, "seed {}: {failure}\nlast messages:\n{}", self.seed, self.last.join("\n"))
            }
        }
    }
}

/// Runs a seed until this many messages have been sent, and then until the cluster has settled.
///
/// # Errors
/// Returns an error when the protocol does not support this number of replicas.
pub fn run(entry: &Entry, n: Option<usize>, seed: u64, messages: u64) -> Result<FuzzReport, BadSettings> {
    let mut rng = Rng::new(seed ^ 0xf022_f022_f022_f022);
    let mut settings = Settings::new(entry, seed);
    if let Some(n) = n {
        settings = settings.with_n(n);
    }
    settings.transport = if rng.chance(500_000) { Transport::Links } else { Transport::Datagrams };
    settings.checkpoint_every = rng.between(4, 24);
    settings.window = settings.checkpoint_every.saturating_mul(rng.between(2, 4));
    // As in standard runs: no replica may lag behind the kept log, and view changes take room.
    settings.storage.keep_bytes = 8 << 20;
    settings.storage.segment_bytes = 512 << 10;
    settings.storage.snapshot_every_bytes = 256 << 10;
    settings.replay = seed.is_multiple_of(REPLAY_EVERY);
    let mut liars: Vec<ReplicaId> = (0..settings.n)
        .skip(usize::from(!entry.spec.replaces_leader))
        .filter_map(|id| u16::try_from(id).ok().map(ReplicaId))
        .collect();
    rng.shuffle(&mut liars);
    liars.truncate(settings.f);
    let world = World::new(settings)?;
    let mut run = Run {
        world,
        liars,
        pool: MessagePool::new(*entry, rng.fork()),
        rng,
        messages,
        said: 0,
        before: 0,
        kinds: BTreeMap::new(),
        last: VecDeque::new(),
    };
    // The first failure stays in the world.
    let ran = catch_unwind(AssertUnwindSafe(|| run.run_phases()));
    if let Err(payload) = ran {
        run.world.note_panic(&*payload);
    }
    Ok(run.report())
}

struct Run {
    world: World,
    liars: Vec<ReplicaId>,
    pool: MessagePool,
    rng: Rng,
    messages: u64,
    said: u64,
    /// Messages that passed an intake while their senders were honest.
    before: u64,
    kinds: BTreeMap<Kind, u64>,
    last: VecDeque<String>,
}

impl Run {
    fn report(self) -> FuzzReport {
        FuzzReport {
            seed: self.world.settings().seed,
            failure: self.world.failure().cloned(),
            said: self.said,
            passed: self.passed().saturating_sub(self.before),
            kinds: self.kinds,
            refused: self.world.rejected().clone(),
            heights: self.world.height().0,
            last: self.last.into(),
        }
    }

    fn passed(&self) -> u64 {
        self.liars.iter().map(|id| self.world.passed(*id)).sum()
    }

    fn run_phases(&mut self) -> Result<(), Failure> {
        self.record_honest()?;
        self.before = self.passed();
        for liar in &self.liars {
            self.world.take_control(*liar);
        }
        let began = self.world.now();
        while self.said < self.messages {
            self.keep_clients_busy();
            self.record_input();
            for _ in 0..self.rng.between(1, 6) {
                self.send_one();
            }
            let pause = self.rng.exponential_ns(ms(1));
            self.world.run_for(pause)?;
        }
        let outage_ns = self.world.now().since(began);
        self.recover(outage_ns)
    }

    /// Records messages while every replica is honest.
    fn record_honest(&mut self) -> Result<(), Failure> {
        let [with, without, again] = LEARNING_NS;
        let recorded: Rc<RefCell<Vec<(u8, Kind, crate::Bytes)>>> = Rc::default();
        let recorder = Rc::clone(&recorded);
        self.world.hook(move |_, frame| {
            recorder.borrow_mut().push((frame.frame_type, frame.content.kind, frame.body.clone()));
            Verdict::Pass
        });
        // A request waits at all times, or no replica would miss the leader.
        let span_ns = LEARNING_NS.iter().sum::<u64>();
        let operations = u32::try_from(span_ns / ms(20)).unwrap_or(u32::MAX);
        self.world.load_all(Workload { operations, ..WORKLOAD });
        self.world.run_for(with)?;
        let leader = self.world.status(ReplicaId(0)).map(|status| status.leader).unwrap_or_default();
        if self.world.settings().entry.spec.replaces_leader {
            self.world.crash(leader, Survives::Nothing);
        }
        self.world.run_for(without)?;
        self.world.plan(self.world.now(), crate::Plan::Start(leader));
        self.world.run_for(again)?;
        self.world.unhook();
        for (frame_type, kind, body) in recorded.borrow_mut().drain(..) {
            self.pool.record(frame_type, kind, &body);
        }
        Ok(())
    }

    fn keep_clients_busy(&mut self) {
        if self.world.all_done() {
            self.world.load_all(WORKLOAD);
        }
    }

    /// Records the input of the controlled replicas. It is the newest, and closest to messages that the others would
    /// accept.
    fn record_input(&mut self) {
        for liar in &self.liars {
            for recorded in self.world.received(*liar) {
                if let ControlledInput::Frame { frame_type, body, content, .. } = recorded {
                    self.pool.record(frame_type, content.kind, &body);
                }
            }
        }
    }

    /// Sends one message of a controlled replica to one replica or to all.
    fn send_one(&mut self) {
        let honest: Vec<ReplicaId> = self.world.honest().collect();
        let (Some(liar), Some(whom)) = (self.rng.pick(&self.liars).copied(), self.rng.pick(&honest).copied())
        else {
            return;
        };
        let Some(status) = self.world.status(whom) else { return };
        let Some(FuzzedMessage { kind, frame_type, bytes, statement }) = self.pool.make(&status) else {
            return;
        };
        let mut body = bytes;
        if let Some(statement) = statement {
            body.extend_from_slice(&self.world.sign(liar, &statement).0);
        }
        let to: ReplicaSet = if self.rng.chance(400_000) {
            [whom].into_iter().collect()
        } else {
            honest.into_iter().collect()
        };
        let repeats = if self.rng.chance(50_000) { 2 } else { 1 };
        if message_pool::is_message(frame_type) {
            let receivers = u64::try_from(to.len()).unwrap_or(u64::MAX).saturating_mul(repeats);
            self.said = self.said.saturating_add(receivers);
            let count = self.kinds.entry(kind).or_default();
            *count = count.saturating_add(receivers);
        }
        if self.last.len() >= SHOWN_MAX {
            self.last.pop_front();
        }
        let now = self.world.now();
        self.last.push_back(format!("{now} r{liar} to {to:?}: {kind} (type {frame_type}) {}", hex(&body)));
        for _ in 0..repeats {
            self.world.send_frame_as(liar, To::Some(to), frame_type, body.clone().into());
        }
    }

    /// Silences the controlled replicas. The others have to recover within the protocol's bound and agree in the end.
    fn recover(&mut self, outage_ns: u64) -> Result<(), Failure> {
        let world = &mut self.world;
        let bound = world.recovery(outage_ns, secs(2));
        world.watch_for_livelock();
        let before = world.history().records().len();
        world.load_all(Workload { operations: 8, ..WORKLOAD });
        let is_new = |world: &World| {
            world.history().records().iter().skip(before).any(|record| record.answered.is_some())
        };
        world.run_while("a new operation is answered", bound.0, |world| !is_new(world))?;
        let rest = bound.0.saturating_add(SETTLE_NS);
        world.run_while("all clients have their answers", rest, |world| !world.all_done())?;
        world.check_none_failed()?;
        let level = "all honest replicas are at one height";
        world.run_while(level, SETTLE_NS, |world| !world.is_level())?;
        world.read_back()?;
        world.run_while(level, SETTLE_NS, |world| !world.is_level())?;
        world.check_settled()
    }
}
