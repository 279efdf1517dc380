//! The world: virtual time, replicas, clients, and all events between them.
//!
//! The world has one queue of events and one random number generator for each purpose, but no clock and no threads.
//! So a seed decides a run, byte for byte. Replicas are [`quorate_host::Host`]s, so the code that ships runs here;
//! only disk, network and time are simulated.

mod byzantine;
mod byzantine_client;
mod clients;
mod controlled_input;
mod exact;
mod faults;
mod file_damage;
mod links;
mod mutations;
mod network;
mod operator_view;
mod plan;
mod reporting;
mod state;
mod synchrony;
mod turns;
mod twins;
mod twins_schedule;
mod views;

use crate::arrival::Arrival;
use crate::client::Client;
use crate::disk::SharedDisk;
use crate::frame::{Content, Frame, Verdict};
use crate::oracles::{Failure, Oracle};
use crate::queue::{EventClass, Queue};
use crate::replica_slot::{ReplicaSlot, Running};
use crate::settings::{BadSettings, Cluster, Settings, Transport};
use crate::trace::{Trace, Who};
use bytes::Bytes;
use quorate_app::panic_text;
use quorate_client::core::LinkState;
use quorate_consensus::{Healed, Synchrony};
use quorate_crypto::{SigningKey, bundle_preimage};
use quorate_history::History;
use quorate_replica::ReplicaStatus;
use quorate_storage::{Disk as _, MemDisk};
use quorate_types::bundle::bundle_digest;
use quorate_types::codec::Wire as _;
use quorate_types::rng::Rng;
use quorate_types::wire::FromClient;
use quorate_types::{Authenticator, ClientId, Digest, Genesis, Height, Kind, Ledger, ReplicaId, Time};
use state::{Buffers, ByzantineClient, Counters, Hooks, Mutations, Network, Oracles, Rngs, Roles};
use std::any::Any;
use std::collections::BTreeMap;
use twins_schedule::TwinsSchedule;

pub use controlled_input::ControlledInput;
pub use file_damage::FileDamage;
pub use plan::Plan;

/// An event.
#[derive(Debug)]
enum Event {
    /// An arrival at a replica.
    Arrives(ReplicaId, Arrival),
    /// The arrival of a message at a client.
    Hears { client: usize, from: ReplicaId, message: Bytes },
    /// A change of a client's connection to a replica.
    Link { client: usize, replica: ReplicaId, state: LinkState },
    /// The departure of a delayed frame.
    Leaves(Box<Frame>),
    /// The departure of a frame that has waited, if its sender still has the same life.
    Enters { frame: Box<Frame>, life: u64 },
    /// An attempt of two replicas to connect.
    Dial { pair: usize, attempt: u64 },
    /// The end of a connection that was cut for too long.
    Breaks { pair: usize, conn: u64 },
    /// A turn of a replica.
    Turn(ReplicaId, u64),
    /// An expired deadline of a client.
    Client(usize, u64),
    /// A change of a Byzantine replica's mood.
    Mood(ReplicaId),
    /// A planned event.
    Plan(Box<Plan>),
    /// A check of every replica by the oracles.
    Look,
}

/// Interval of checks of every replica.
const LOOK_NS: u64 = 1_000_000_000;

/// A deterministic world of replicas and clients.
pub struct World {
    settings: Settings,
    cluster: Cluster,
    now: Time,
    queue: Queue<Event>,
    slots: Vec<ReplicaSlot>,
    clients: Vec<Client>,
    network: Network,
    hooks: Hooks,
    trace: Trace,
    history: History,
    oracles: Oracles,
    roles: Roles,
    rngs: Rngs,
    counters: Counters,
    byzantine_client: ByzantineClient,
    mutations: Mutations,
    buffers: Buffers,
    /// The partitions of a twins scenario, where one is run.
    schedule: Option<Box<TwinsSchedule>>,
}

impl World {
    /// Makes a world in which all replicas are started and all clients ask for their sessions.
    ///
    /// # Errors
    /// Returns an error when the settings do not suit the protocol.
    pub fn new(settings: Settings) -> Result<Self, BadSettings> {
        Self::with_trace(settings, Trace::default())
    }

    /// Makes a world with a trace that may have a reader.
    ///
    /// # Errors
    /// Returns an error when the settings do not suit the protocol.
    pub fn with_trace(settings: Settings, trace: Trace) -> Result<Self, BadSettings> {
        Self::with_schedule(settings, trace, None)
    }

    fn with_schedule(
        settings: Settings,
        trace: Trace,
        schedule: Option<Box<TwinsSchedule>>,
    ) -> Result<Self, BadSettings> {
        let mut rng = Rng::new(settings.seed);
        let cluster = Cluster::new(&settings, &mut rng.fork())?;
        let (n, places) = (settings.n, settings.n.saturating_add(settings.clients_in_all()));
        let mut slot_rng = rng.fork();
        let slot = |id| {
            let disk = MemDisk::new(settings.storage.segment_bytes, settings.storage.page_bytes);
            ReplicaSlot::new(id, SharedDisk::new(disk, settings.costs), &mut slot_rng)
        };
        let slots = cluster.committee.ids().map(slot).collect();
        let (mut client_rng, client_settings) = (rng.fork(), cluster.client_settings(&settings));
        let keys = cluster.client_keys.iter().enumerate();
        let clients = keys
            .map(|(index, key)| Client::new(client_settings, key.clone(), index, client_rng.fork()))
            .collect();
        let mut world = Self {
            network: Network::new(&settings, places),
            hooks: Hooks::default(),
            oracles: Oracles::new(&settings, &cluster.params),
            cluster,
            slots,
            clients,
            now: Time::ZERO,
            queue: Queue::default(),
            trace,
            history: History::default(),
            roles: Roles::default(),
            rngs: Rngs { network: rng.fork(), crash: rng.fork(), roles: rng.fork() },
            counters: Counters::new(n),
            byzantine_client: ByzantineClient::default(),
            mutations: Mutations::default(),
            buffers: Buffers::default(),
            schedule,
            settings,
        };
        world.begin()?;
        Ok(world)
    }

    fn begin(&mut self) -> Result<(), BadSettings> {
        self.assign_roles();
        for id in self.cluster.committee.ids() {
            self.start(id).map_err(|why| BadSettings::Open { replica: id, why })?;
        }
        for client in 0..self.settings.clients {
            self.begin_client(client);
        }
        self.begin_byzantine_client();
        self.queue.push(Time(LOOK_NS), EventClass::Answer, Event::Look);
        Ok(())
    }

    /// Returns the settings.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Returns the bound on delays that the protocol assumes, if any.
    #[must_use]
    pub fn bound(&self) -> Option<Synchrony> {
        (self.settings.entry.synchrony)(&self.cluster.params).ok().flatten()
    }

    /// Returns the shared configuration of the cluster.
    #[must_use]
    pub fn genesis(&self) -> &Genesis {
        &self.cluster.genesis
    }

    /// Returns the id of a client.
    #[must_use]
    pub fn client_id(&self, client: usize) -> Option<ClientId> {
        self.cluster.client_keys.get(client).map(SigningKey::public)
    }

    /// Returns a message with this bundle, signed by a client that need not be its author. Byzantine clients send
    /// such messages.
    #[must_use]
    pub fn bundle_signed_by(&self, client: usize, content: Vec<u8>) -> Bytes {
        let preimage = bundle_preimage(self.cluster.committee.cluster, bundle_digest(&content));
        let authenticator = match self.cluster.client_keys.get(client) {
            Some(key) => Authenticator::Signature(key.sign(&preimage)),
            None => Authenticator::None,
        };
        Bytes::from(FromClient::Bundle { authenticator, content }.to_bytes())
    }

    /// Returns the current time.
    #[must_use]
    pub fn now(&self) -> Time {
        self.now
    }

    /// Returns the first finding of an oracle. The world stops at it.
    #[must_use]
    pub fn failure(&self) -> Option<&Failure> {
        self.oracles.failure.as_ref()
    }

    /// Returns the first finding of an oracle as an error.
    fn so_far(&self) -> Result<(), Failure> {
        self.oracles.failure.clone().map_or(Ok(()), Err)
    }

    /// Returns the trace.
    pub fn trace(&mut self) -> &mut Trace {
        &mut self.trace
    }

    /// Returns the hash of all transitions so far.
    #[must_use]
    pub fn trace_hash(&self) -> Digest {
        self.trace.hash()
    }

    /// Returns the operations as the clients saw them.
    #[must_use]
    pub fn history(&self) -> &History {
        &self.history
    }

    /// Runs until a moment, or until an oracle fires.
    ///
    /// # Errors
    /// Returns the finding of an oracle.
    pub fn run_until(&mut self, end: Time) -> Result<(), Failure> {
        self.run_shown(end, |_| {})
    }

    /// Runs for a span.
    ///
    /// # Errors
    /// Returns the finding of an oracle.
    pub fn run_for(&mut self, span_ns: u64) -> Result<(), Failure> {
        self.run_until(self.now.plus(span_ns))
    }

    /// Runs while `goes_on` holds; it is checked after every event. `what` names the awaited condition.
    ///
    /// # Errors
    /// Returns the finding of an oracle, and [`Oracle::Liveness`] when the condition still holds after the span.
    pub fn run_while(
        &mut self,
        what: &str,
        span_ns: u64,
        mut goes_on: impl FnMut(&Self) -> bool,
    ) -> Result<(), Failure> {
        self.run_on(what, span_ns, &mut goes_on)
    }

    /// Is [`Self::run_while`], compiled once for all conditions.
    fn run_on(
        &mut self,
        what: &str,
        span_ns: u64,
        goes_on: &mut dyn FnMut(&Self) -> bool,
    ) -> Result<(), Failure> {
        let end = self.now.plus(span_ns);
        while goes_on(self) {
            if self.queue.next_at().is_none_or(|at| at > end) {
                self.now = self.now.max(end);
                let why = format!("waited in vain for: {what}\n{}", self.status_lines());
                let oracle = if self.is_lost() { Oracle::Durability } else { Oracle::Liveness };
                self.judge(self.now, Err((oracle, why)));
            }
            self.so_far()?;
            self.step();
        }
        self.so_far()
    }

    /// Whether an executed height is lost: no sound replica has it.
    fn is_lost(&self) -> bool {
        let height = self.height();
        self.sound().all(|id| self.is_running(id) && self.executed(id) < height)
    }

    /// Returns the status of each replica, one line each.
    pub(crate) fn status_lines(&self) -> String {
        let line = |id| match self.status(id) {
            Some(status) => status.to_string(),
            None => format!("replica {id} is down"),
        };
        self.replicas().map(line).collect::<Vec<_>>().join("\n")
    }

    fn step(&mut self) {
        let Some((at, event)) = self.queue.pop() else { return };
        self.now = self.now.max(at);
        self.trace.advance(self.now);
        match event {
            Event::Arrives(id, arrival) => self.arrive(id, arrival),
            Event::Hears { client, from, message } => self.client_receives(client, from, &message),
            Event::Link { client, replica, state } => self.client_link(client, replica, state),
            Event::Leaves(frame) => self.transmit(self.now, &frame),
            Event::Enters { frame, life } => self.enter_after_wait(&frame, life),
            Event::Dial { pair, attempt } => self.dial(pair, attempt),
            Event::Breaks { pair, conn } => self.break_if_cut(pair, conn),
            Event::Turn(id, ticket) => self.turn_if_due(id, ticket),
            Event::Client(index, ticket) => self.client_if_due(index, ticket),
            Event::Mood(id) => self.change_mood(id),
            Event::Plan(plan) => self.carry_out(*plan),
            Event::Look => self.look(),
        }
    }

    /// Calls `hook` for every frame that leaves from now on.
    pub fn hook(&mut self, hook: impl FnMut(Time, &Frame) -> Verdict + 'static) {
        self.hooks.frame = Some(Box::new(hook));
    }

    /// Calls `hook` for every reply from now on, with sender, client and message.
    pub fn hook_replies(&mut self, hook: impl FnMut(ReplicaId, usize, Bytes) -> Option<Bytes> + 'static) {
        self.hooks.reply = Some(Box::new(hook));
    }

    /// Removes the hooks.
    pub fn unhook(&mut self) {
        self.hooks.frame = None;
        self.hooks.reply = None;
    }

    /// Sends the held frames.
    pub fn release(&mut self) {
        for frame in std::mem::take(&mut self.network.held) {
            self.report_frame(self.now, "releases", &frame, "");
            self.transmit(self.now, &frame);
        }
    }

    /// Records a failed assertion. The world cannot continue.
    pub(crate) fn note_panic(&mut self, payload: &(dyn Any + Send)) {
        self.judge(self.now, Err((Oracle::Panic, panic_text(payload).to_owned())));
    }

    /// Fails with this oracle if a condition does not hold now.
    pub(crate) fn check(&mut self, oracle: Oracle, what: &str, holds: bool) -> Result<(), Failure> {
        if !holds {
            self.judge(self.now, Err((oracle, format!("does not hold: {what}"))));
        }
        self.so_far()
    }

    /// Checks that no operation has ended without an answer.
    pub(crate) fn check_none_failed(&mut self) -> Result<(), Failure> {
        if self.counters.failed_ops > 0 {
            let what = format!("{} operations ended without an answer", self.counters.failed_ops);
            self.judge(self.now, Err((Oracle::Liveness, what)));
        }
        self.so_far()
    }

    /// Ignores findings of this oracle from now on, because a test provokes them.
    pub fn tolerate(&mut self, oracle: Oracle) {
        self.oracles.tolerated.insert(oracle);
    }

    /// Records the judgement of an oracle. The first failure stays.
    fn judge(&mut self, at: Time, verdict: crate::oracles::Judged) {
        if let (Err((oracle, what)), None) = (verdict, &self.oracles.failure)
            && !self.oracles.tolerated.contains(&oracle)
        {
            self.trace.note(at, Who::World, "fails", &[what.as_bytes()], || format!("{oracle}: {what}"));
            self.oracles.failure = Some(Failure { at, oracle, what });
        }
    }

    fn look(&mut self) {
        for id in self.honest().collect::<Vec<_>>() {
            if let Some(status) = self.status(id) {
                let window = if self.mutations.bounds_are_tight { 8 } else { self.cluster.genesis.window };
                // Apollo and Artemis serve so many rounds to a replica that comes back.
                let follows = ["apollo", "artemis"].contains(&self.settings.entry.spec.name.as_str());
                let served = if follows && !self.mutations.bounds_are_tight { 1_024 } else { 0 };
                let verdict = crate::oracles::check_bounds(window, served, &status);
                self.judge(self.now, verdict);
            }
        }
        self.queue.push(self.now.plus(LOOK_NS), EventClass::Answer, Event::Look);
    }

    fn slot(&self, id: ReplicaId) -> Option<&ReplicaSlot> {
        self.slots.get(id.index())
    }

    /// Returns the process of a replica that runs.
    fn running(&self, id: ReplicaId) -> Option<&Running> {
        self.slot(id)?.running.as_deref()
    }

    fn slot_mut(&mut self, id: ReplicaId) -> Option<&mut ReplicaSlot> {
        self.slots.get_mut(id.index())
    }

    /// Returns all replicas.
    pub fn replicas(&self) -> impl Iterator<Item = ReplicaId> + use<> {
        self.cluster.committee.ids()
    }

    /// Whether a replica runs.
    #[must_use]
    pub fn is_running(&self, id: ReplicaId) -> bool {
        self.running(id).is_some()
    }

    /// Returns the status of a running replica.
    #[must_use]
    pub fn status(&self, id: ReplicaId) -> Option<ReplicaStatus> {
        self.running(id).map(|running| running.host.replica().status())
    }

    /// Returns the last executed height of a replica, or zero while it does not run.
    #[must_use]
    pub fn executed(&self, id: ReplicaId) -> Height {
        self.running(id).map_or(Height::ZERO, |running| running.executed)
    }

    /// Returns the height up to which a replica has decided everything, or zero while it does not run. The replica
    /// has executed less while decisions wait for its disk.
    #[must_use]
    pub fn decided(&self, id: ReplicaId) -> Height {
        self.status(id).map_or(Height::ZERO, |status| status.decided)
    }

    /// Returns the greatest height that a running honest replica has decided.
    #[must_use]
    pub fn highest(&self) -> Height {
        self.honest().map(|id| self.decided(id)).max().unwrap_or_default()
    }

    /// Returns the greatest height that an honest replica has executed.
    #[must_use]
    pub fn height(&self) -> Height {
        self.oracles.order.height()
    }

    /// Returns the costs of a replica since its start.
    #[must_use]
    pub fn ledger(&self, id: ReplicaId) -> Ledger {
        self.running(id).map(|running| running.host.ledger()).unwrap_or_default()
    }

    /// Returns the number of steps of a replica's machine so far: changes of its disk, and flushes.
    #[must_use]
    pub fn steps(&self, id: ReplicaId) -> u64 {
        self.slot(id).map_or(0, |slot| slot.machine.disk.watch(|watch| watch.steps))
    }

    /// Returns the number of completed syncs of a replica's disk.
    #[must_use]
    pub fn syncs(&self, id: ReplicaId) -> u64 {
        self.slot(id).map_or(0, |slot| slot.machine.disk.watch(|watch| watch.syncs))
    }

    /// Returns the number of turns of a replica.
    #[must_use]
    pub fn turns(&self, id: ReplicaId) -> u64 {
        self.slot(id).map_or(0, |slot| slot.agenda.turns)
    }

    /// Returns the number of bytes on a replica's disk.
    #[must_use]
    pub fn disk_bytes(&self, id: ReplicaId) -> u64 {
        self.slot(id).map_or(0, |slot| slot.machine.disk.used_bytes())
    }

    /// Returns the number of log segments and of snapshots on a replica's disk.
    #[must_use]
    pub fn disk_parts(&self, id: ReplicaId) -> (u32, usize) {
        let image = self.image(id);
        image.map_or((0, 0), |disk| (disk.segments(), disk.blobs().map_or(0, |blobs| blobs.len())))
    }

    /// Returns the number of sent frames by kind: one for each receiver.
    #[must_use]
    pub fn sent(&self) -> &BTreeMap<Kind, u64> {
        &self.counters.sent
    }

    /// Returns the number of refused messages by reason.
    #[must_use]
    pub fn rejected(&self) -> &BTreeMap<&'static str, u64> {
        &self.counters.rejected
    }

    /// Returns the number of leader replacements that sound replicas have seen since they were opened.
    pub(crate) fn view_changes(&self) -> u64 {
        self.sound().filter_map(|id| self.status(id)).map(|status| status.view_changes).sum()
    }

    /// Returns the number of applied operations.
    #[must_use]
    pub fn applied(&self) -> u64 {
        self.oracles.order.applied()
    }

    /// Returns the number of operations that failed at their client. Their fate is unknown.
    #[must_use]
    pub fn failed_ops(&self) -> u64 {
        self.counters.failed_ops
    }

    /// Returns the number of states that replicas have received from their peers.
    #[must_use]
    pub fn transfers(&self) -> u64 {
        self.counters.transfers
    }

    /// Returns the number of running replicas that have lost their disk and are not back.
    #[must_use]
    pub fn amnesiacs(&self) -> u64 {
        let away = self.replicas().filter_map(|id| self.status(id)).filter(|status| status.amnesia.is_some());
        u64::try_from(away.count()).unwrap_or(u64::MAX)
    }

    /// Returns the number of different promises that were judged.
    #[must_use]
    pub fn promises(&self) -> u64 {
        self.oracles.promises.checked()
    }

    /// Judges the final state. All sound replicas run, have executed the same, and have the state that follows from
    /// the order of operations. All clients have their answers.
    pub fn check_settled(&mut self) -> Result<(), Failure> {
        let mut first: Option<(ReplicaId, Height, Digest)> = None;
        for id in self.sound().collect::<Vec<_>>() {
            let Some(slot) = self.slots.get_mut(id.index()) else { continue };
            let Some(running) = &mut slot.running else {
                self.judge(self.now, Err((Oracle::Liveness, format!("replica {id} does not run"))));
                continue;
            };
            let height = running.host.executor().execution().height();
            let digest = running.host.executor_mut().execution_mut().digest();
            let (other, other_height, other_digest) = *first.get_or_insert((id, height, digest));
            let status = running.host.replica().status();
            let verdict = if height != other_height {
                let what = format!(
                    "replica {other} is at height {other_height}, replica {id} at {height}: {status}"
                );
                Err((Oracle::Liveness, what))
            } else if digest != other_digest {
                let what = format!(
                    "at height {height} replica {other} has state {other_digest:?}, replica {id} {digest:?}"
                );
                Err((Oracle::Agreement, what))
            } else {
                Ok(())
            };
            self.judge(self.now, verdict);
        }
        let waiting: Vec<usize> = (0..self.clients.len()).filter(|at| !self.is_done(*at)).collect();
        if !waiting.is_empty() {
            let open = self.history.records().iter().filter(|record| record.answered.is_none()).count();
            let what = format!("clients {waiting:?} still wait; {open} operations have no answer");
            self.judge(self.now, Err((Oracle::Liveness, what)));
        }
        self.judge_history();
        self.so_far()
    }

    /// Returns the protocol's bound on the time until the first new execution if everything heals now. It depends on
    /// the length of the outage, and on the time to fetch missing data.
    #[must_use]
    pub fn recovery(&self, outage_ns: u64, fetch_ns: u64) -> Time {
        let healed = Healed {
            delta_ns: self.settings.parameters.delta_ns,
            outage_ns,
            client_retry_ns: self.settings.client.retry_ns_max,
            fetch_ns,
            restarted: self.slots.iter().filter(|slot| slot.running.is_none() || slot.opens > 1).count(),
        };
        let recovery = self.settings.entry.recovery;
        // Every replica was opened with these parameters.
        recovery(&self.cluster.params, &self.cluster.committee, &healed).unwrap_or_default()
    }

    /// Returns the image of a replica's disk that a crash would leave now if no unsynced byte survived.
    #[must_use]
    pub fn image(&self, id: ReplicaId) -> Option<MemDisk> {
        self.slot(id).map(|slot| slot.machine.disk.synced_image())
    }

    fn kind_of(&self, frame_type: u8, body: &[u8]) -> Content {
        Content::of(&self.settings.entry, frame_type, body)
    }

    fn is_datagrams(&self) -> bool {
        self.settings.transport == Transport::Datagrams
    }
}
