//! One replica's protocol driven by hand, for the tests of protocols.
//!
//! A [`Harness`] is the smallest host there is: it keeps what the protocol records, holds what must be held,
//! hands own copies back, and remembers every slot that was filled. It has no pool, no bodies and no network;
//! what the protocol asks about those is answered from a table. A [`Cluster`] is a few of them with a queue
//! of messages between them.
//!
//! It stops the test by an assertion when the protocol does what no protocol may do: fill one slot twice, say
//! unheld what may be said only once, or write a record or message that cannot be read back.
//!
//! This is deliberately not the simulator: no faults but those a test makes, no delays, no oracles.

#![allow(clippy::expect_used, reason = "test support: a failed expectation is a failed test")]

mod cluster;

pub use cluster::Cluster;

use crate::context::{Cx, Env, HostView, PayloadRef, Pending, Ready};
use crate::effect::{Basis, Commit, Effect, Hold, To};
use crate::message::{Message, Seal, Verified};
use crate::parts::block_tree::BlockTree;
use crate::parts::certificate::{CHECKPOINT_KIND, Certificate, Checkpoint, CheckpointProof};
use crate::protocol::{LinkEvent, OpenError, Past, Protocol, Record, RecordKey, Status, Window};
use crate::reject::{Alarm, Reject};
use crate::timers::Timers;
use quorate_types::digest::context;
use quorate_types::{
    Block, BlockId, ClusterId, Committee, Digest, Epoch, Floors, Height, Incarnation, Kind, Member,
    PayloadId, PublicKey, ReplicaId, Signature, Slot, Time, View,
};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// The cluster that a protocol believes to be in.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    /// Replicas.
    pub n: usize,
    /// Faulty ones tolerated.
    pub f: usize,
    /// L.
    pub window: u64,
    /// K.
    pub checkpoint_every: u64,
}

impl Setup {
    /// `n` replicas that tolerate as many faults as the protocol says, K = 8 and L = 16.
    #[must_use]
    pub fn of<P: Protocol>(n: usize) -> Self {
        Self { n, f: (P::SPEC.faults)(n), window: 16, checkpoint_every: 8 }
    }

    /// The committee, with keys that nobody has.
    #[must_use]
    pub fn committee<P: Protocol>(&self) -> Committee {
        let key = |name: &str, id: usize| {
            PublicKey(Digest::of(&context::PROTOCOL, format!("{name} key {id}").as_bytes()).0)
        };
        Committee {
            cluster: ClusterId::ZERO,
            protocol: P::SPEC.name,
            epoch: Epoch(0),
            f: self.f,
            members: (0..self.n).map(|id| Member { sign: key("sign", id), link: key("link", id) }).collect(),
        }
    }
}

/// The host's answers, from a table.
#[derive(Debug)]
struct Table {
    /// What is said of blocks by name.
    answers: BTreeMap<BlockId, Option<Ready>>,
    /// What is said of all other blocks that are in the tree.
    otherwise: Option<Ready>,
    /// Payloads that the protocol has not asked for yet.
    payloads: VecDeque<PayloadRef>,
    /// Payloads of our own making: their bodies are here.
    own: BTreeSet<PayloadId>,
    /// Blocks whose content the protocol wants to be left out of new ones.
    proposed: Vec<BlockId>,
    /// Since when the oldest bundle waits that a client has sent here.
    oldest: Option<Time>,
    overloaded: bool,
    lagging: bool,
    backlog_ns: u64,
    /// The latest moment of doubt.
    last_doubt: Option<Time>,
    /// Enough peers have answered in time a probe that was sent then.
    fresh: Time,
    /// What was asked for in vain because no answer was fresh enough.
    asked: Vec<Time>,
}

impl HostView for Table {
    fn ready(&self, blocks: &BlockTree, block: BlockId) -> Option<Ready> {
        if let Some(answer) = self.answers.get(&block) {
            return *answer;
        }
        let known = blocks.get(block).filter(|_| !blocks.is_bare(block))?;
        if self.own.contains(&known.payload) { Some(Ready::Valid) } else { self.otherwise }
    }
    fn pending(&self) -> Pending {
        let waiting = usize::from(self.oldest.is_some());
        let bundles = self.payloads.len().saturating_add(waiting);
        let (overloaded, backlog_ns) = (self.overloaded, self.backlog_ns);
        Pending {
            bundles,
            undecided: bundles,
            bytes: bundles,
            oldest: self.oldest,
            overloaded,
            lagging: self.lagging,
            backlog_ns,
        }
    }
    fn payload_after(&mut self, _now: Time, _blocks: &BlockTree, _parent: BlockId) -> Option<PayloadRef> {
        let payload = self.payloads.pop_front()?;
        self.own.insert(payload.id);
        Some(payload)
    }
    fn chain_decided(&mut self, _blocks: &BlockTree, _block: BlockId) {}
    fn already_proposed(&mut self, _blocks: &BlockTree, block: BlockId) {
        self.proposed.push(block);
    }
    fn sound(&mut self, _now: Time, since: Time, fresh: Time) -> bool {
        if self.last_doubt.is_some_and(|last| last >= since) {
            return false;
        }
        if self.fresh < fresh {
            self.asked.push(fresh);
            return false;
        }
        true
    }
}

/// A payload for tests: its digest names the number.
#[must_use]
pub fn payload(number: u64) -> PayloadRef {
    let id = PayloadId(Digest::of(&context::PAYLOAD, &number.to_le_bytes()));
    PayloadRef { id, requests: 1, bytes: 100, time_ns: number }
}

/// What survives a crash.
#[derive(Clone, Debug, Default)]
struct Disk {
    records: BTreeMap<RecordKey, Vec<u8>>,
    guard: BTreeMap<Slot, Digest>,
    /// The last view in which something of a kind may have been said.
    reserved: BTreeMap<Kind, View>,
    blocks: BTreeMap<BlockId, Block>,
    decided: BTreeMap<Height, BlockId>,
    executed: Height,
    stable: Option<Checkpoint>,
}

/// What handlers see, and what they want done.
struct World {
    me: ReplicaId,
    committee: Arc<Committee>,
    now: Time,
    blocks: BlockTree,
    table: Table,
    effects: Vec<Effect>,
}

impl World {
    fn env(&mut self) -> Env<'_> {
        Env {
            now: self.now,
            me: self.me,
            committee: &self.committee,
            blocks: &mut self.blocks,
            host: &mut self.table,
            effects: &mut self.effects,
        }
    }
}

/// One replica's protocol with a host made for tests.
pub struct Harness<P: Protocol> {
    setup: Setup,
    params: toml::Table,
    incarnation: Incarnation,
    world: World,
    timers: Timers<P::Timer>,
    protocol: Option<P>,
    /// What was written, and what of it would be there after a crash.
    written: Disk,
    synced: Disk,
    /// Where something may have been said before the last restart.
    dead: BTreeMap<Kind, View>,
    /// Records written since, in order.
    unsynced: Vec<(RecordKey, Vec<u8>)>,
    /// What waits for the disk, and what left.
    held: VecDeque<(To, Vec<u8>)>,
    /// Own copies of what did not wait for the disk.
    copies: VecDeque<Vec<u8>>,
    left: Vec<(To, P::Message)>,
    lines: Vec<String>,
    committed: Vec<(Commit, Basis)>,
    wanted: Vec<(BlockId, ReplicaId)>,
    alarms: Vec<Alarm>,
}

impl<P: Protocol> Harness<P> {
    /// Opens the protocol of one replica on an empty disk.
    ///
    /// # Errors
    /// What the protocol says.
    pub fn open(me: ReplicaId, setup: Setup, params: &P::Params) -> Result<Self, OpenError> {
        let table = Table {
            answers: BTreeMap::new(),
            otherwise: Some(Ready::Valid),
            payloads: VecDeque::new(),
            own: BTreeSet::new(),
            proposed: Vec::new(),
            oldest: None,
            overloaded: false,
            lagging: false,
            backlog_ns: 0,
            last_doubt: None,
            fresh: Time::MAX,
            asked: Vec::new(),
        };
        let world = World {
            me,
            committee: Arc::new(setup.committee::<P>()),
            now: Time::ZERO,
            blocks: BlockTree::default(),
            table,
            effects: Vec::new(),
        };
        let mut harness = Self {
            setup,
            params: toml::Table::try_from(params).expect("parameters can be written"),
            incarnation: Incarnation::ZERO,
            world,
            timers: Timers::default(),
            protocol: None,
            written: Disk::default(),
            synced: Disk::default(),
            dead: BTreeMap::new(),
            unsynced: Vec::new(),
            held: VecDeque::new(),
            copies: VecDeque::new(),
            left: Vec::new(),
            lines: Vec::new(),
            committed: Vec::new(),
            wanted: Vec::new(),
            alarms: Vec::new(),
        };
        harness.start()?;
        Ok(harness)
    }

    /// Stops the replica at once and opens it again with what was on disk at the last [`Harness::sync`].
    ///
    /// # Errors
    /// What the protocol says.
    pub fn crash(&mut self) -> Result<(), OpenError> {
        self.written = self.synced.clone();
        self.dead.clone_from(&self.synced.reserved);
        self.unsynced.clear();
        self.held.clear();
        self.copies.clear();
        self.left.clear();
        self.start()
    }

    /// The same in the middle of writing: of the records since the last sync the first so many are on disk as well. A
    /// log ends between any two.
    ///
    /// # Errors
    /// What the protocol says.
    pub fn crash_after(&mut self, records: usize) -> Result<(), OpenError> {
        let written = std::mem::take(&mut self.unsynced);
        self.synced.records.extend(written.into_iter().take(records));
        self.crash()
    }

    /// How many records were written since the last sync.
    #[must_use]
    pub fn unsynced(&self) -> usize {
        self.unsynced.len()
    }

    fn start(&mut self) -> Result<(), OpenError> {
        self.protocol = None;
        self.timers = Timers::default();
        self.incarnation = self.incarnation.next();
        self.world.table.payloads.clear();
        self.world.blocks = BlockTree::default();
        for block in self.written.blocks.values() {
            self.world.blocks.insert(block.clone());
        }
        let records = self.written.records.values().map(|bytes| P::Record::decode(bytes));
        let past = Past {
            records: records.collect::<Result<_, _>>().expect("a record can be read back"),
            checkpoint: self.written.stable.map_or_else(CheckpointProof::genesis, unsigned_proof),
            blocks: self.written.blocks.values().cloned().collect(),
            executed: self.written.executed,
            decided: self.written.decided.iter().map(|(height, id)| (*height, *id)).collect(),
            incarnation: self.incarnation,
            window: self.setup.window,
            checkpoint_every: self.setup.checkpoint_every,
        };
        let params = self.params.clone().try_into().expect("parameters can be read back");
        let opened = P::open(&mut Cx::new(&mut self.world.env(), &mut self.timers), params, past);
        self.protocol = Some(opened?);
        self.absorb();
        Ok(())
    }

    /// Calls one handler and takes in what it wants done.
    fn step<T>(&mut self, handler: impl FnOnce(&mut P, &mut Cx<'_, P>) -> T) -> T {
        let protocol = self.protocol.as_mut().expect("the replica is open");
        let result = handler(protocol, &mut Cx::new(&mut self.world.env(), &mut self.timers));
        self.absorb();
        result
    }

    fn absorb(&mut self) {
        for (id, block) in self.world.blocks.iter() {
            self.written.blocks.entry(*id).or_insert_with(|| Block::clone(block));
        }
        for effect in std::mem::take(&mut self.world.effects) {
            self.lines.push(line(&effect));
            match effect {
                Effect::Record { key, bytes } => {
                    assert!(P::Record::decode(&bytes).is_ok(), "a record that cannot be read back: {key:?}");
                    self.unsynced.push((key, bytes.clone()));
                    self.written.records.insert(key, bytes);
                }
                Effect::Reserve(kind, view) => {
                    let reserved = self.written.reserved.entry(kind).or_default();
                    *reserved = view.max(*reserved);
                }
                Effect::Send { to, hold, message } => self.queue(to, hold, &*message),
                Effect::Withdraw(kind, view) => self.held.retain(|(_, bytes)| {
                    let statement = read::<P>(bytes).auth().statement();
                    statement.is_none_or(|it| (it.kind, it.view) != (kind, view))
                }),
                Effect::Commit(what, basis) => self.committed.push((what, basis)),
                Effect::Want(block, from) => self.wanted.push((block, from)),
                Effect::Alarm(alarm) => self.alarms.push(alarm),
                Effect::CatchUp(_) | Effect::Urgent(_) | Effect::Accuse(_) | Effect::Note(_) => {}
            }
        }
    }

    fn queue(&mut self, to: To, hold: Hold, message: &dyn Message) {
        let statement = message.auth().statement();
        if let Some(statement) = statement.filter(|_| message.once()) {
            assert!(hold != Hold::No, "{message:?} may be said once and must be held");
            let is_dead = self.dead.get(&statement.kind).is_some_and(|dead| statement.view <= *dead);
            assert!(!is_dead, "said where something may have been said before the restart: {message:?}");
            let subject = *self.written.guard.entry(statement.slot()).or_insert(statement.subject);
            assert!(subject == statement.subject, "two statements for one slot: {message:?}");
        }
        let mut bytes = Vec::new();
        message.encode(&mut bytes);
        let is_reserved = |disk: &Disk| {
            statement.is_some_and(|said| disk.reserved.get(&said.kind).is_some_and(|view| said.view <= *view))
        };
        match hold {
            Hold::UntilDurable => self.held.push_back((to, bytes)),
            Hold::Reserved if !is_reserved(&self.synced) => self.held.push_back((to, bytes)),
            Hold::Reserved | Hold::No => {
                self.left.push((to, read::<P>(&bytes)));
                if statement.is_some() {
                    self.copies.push_back(bytes);
                }
            }
        }
    }

    /// The disk has everything that was written: what was held leaves, and own copies come back.
    pub fn sync(&mut self) {
        self.synced = self.written.clone();
        self.unsynced.clear();
        for bytes in std::mem::take(&mut self.copies) {
            self.own_copy(&bytes);
        }
        for (to, bytes) in std::mem::take(&mut self.held) {
            let message = read::<P>(&bytes);
            let is_stated = message.auth().statement().is_some();
            self.left.push((to, message));
            if is_stated {
                self.own_copy(&bytes);
            }
        }
    }

    fn own_copy(&mut self, bytes: &[u8]) {
        let copy = read::<P>(bytes);
        let signature = copy.auth().is_signed().then_some(Signature([0; 64]));
        let verified = Verified::new(copy, self.world.me, Seal { by: self.world.me, signature });
        let result = self.step(|protocol, cx| protocol.on_message(cx, verified));
        if let Err(reject) = result {
            self.lines.push(format!("own copy: {reject}"));
        }
    }

    /// Syncs until nothing is held any more.
    pub fn settle(&mut self) {
        while !self.held.is_empty() || !self.copies.is_empty() {
            self.sync();
        }
    }

    /// A verified message from another replica.
    ///
    /// # Errors
    /// What the protocol says.
    pub fn deliver(&mut self, from: ReplicaId, message: P::Message) -> Result<(), Reject> {
        let signature = message.auth().is_signed().then_some(Signature([0; 64]));
        let verified = Verified::new(message, from, Seal { by: from, signature });
        self.step(|protocol, cx| protocol.on_message(cx, verified))
    }

    /// Clients want this many blocks' worth of requests.
    pub fn offer(&mut self, payloads: impl IntoIterator<Item = PayloadRef>) {
        self.world.table.payloads.extend(payloads);
        self.step(|protocol, cx| protocol.on_pending(cx));
    }

    /// Since when the oldest bundle of a client waits, and whether this replica is behind with its own work.
    pub fn waits(&mut self, oldest: Option<Time>, overloaded: bool) {
        self.world.table.oldest = oldest;
        self.world.table.overloaded = overloaded;
        self.step(|protocol, cx| protocol.on_pending(cx));
    }

    /// Whether this replica lags behind with its own execution; heard with the next thing that happens.
    pub fn lags(&mut self, lagging: bool) {
        self.world.table.lagging = lagging;
    }

    /// How long what waits will take; heard with the next thing that happens.
    pub fn backlog(&mut self, ns: u64) {
        self.world.table.backlog_ns = ns;
    }

    /// What the host says of blocks that [`Harness::answer`] does not name; valid at the start.
    pub fn answer_otherwise(&mut self, ready: Option<Ready>) {
        self.world.table.otherwise = ready;
    }

    /// What the host says of a block when it is asked. Does not tell the protocol.
    pub fn answer(&mut self, block: BlockId, ready: Option<Ready>) {
        self.world.table.answers.insert(block, ready);
    }

    /// A block has become ready.
    pub fn ready(&mut self, block: BlockId, how: Ready) {
        self.answer(block, Some(how));
        self.step(|protocol, cx| protocol.on_ready(cx, block, how));
    }

    /// A block came from a peer.
    pub fn fetched(&mut self, block: Block) {
        let id = block.id();
        self.world.blocks.insert(block);
        self.ready(id, Ready::Valid);
    }

    /// A decided height was executed.
    pub fn execute(&mut self, height: Height) {
        self.written.executed = height;
        self.step(|protocol, cx| protocol.on_executed(cx, height, 1));
    }

    /// The host has accepted this as decided, from the protocol or from f + 1 peers. Only the latter is told.
    pub fn log_decided(&mut self, height: Height, block: BlockId) {
        self.written.decided.insert(height, block);
    }

    /// f + 1 peers say that this is decided.
    pub fn decide(&mut self, height: Height, block: BlockId) {
        self.log_decided(height, block);
        self.step(|protocol, cx| protocol.on_decided(cx, height, block));
    }

    /// A checkpoint is stable: the host forgets what lies at or below it, then tells the protocol.
    pub fn checkpoint(&mut self, height: Height) {
        let block = self.written.decided.get(&height).copied().unwrap_or(BlockId::ZERO);
        let stable = Checkpoint { height, block, view: View::ZERO, state: Digest::ZERO };
        self.written.stable = Some(stable);
        self.written.records.retain(|key, _| key.height == Height::ZERO || key.height > height);
        self.written.blocks.retain(|_, block| block.height > height);
        self.written.decided.retain(|decided, _| *decided > height);
        self.world.blocks.prune(height);
        let proof = unsigned_proof(stable);
        self.step(|protocol, cx| protocol.on_checkpoint(cx, &proof));
        let floors = self.floors();
        let is_live = |slot: &Slot| {
            let view =
                floors.views.iter().find(|(kind, _)| *kind == slot.kind).map_or(View::ZERO, |floor| floor.1);
            slot.view >= view && (slot.height == Height::ZERO || slot.height >= floors.height)
        };
        self.written.guard.retain(|slot, _| is_live(slot));
    }

    /// The disk loses all blocks: damage that no honest disk does.
    pub fn lose_blocks(&mut self) {
        self.written.blocks.clear();
        self.synced.blocks.clear();
    }

    /// Something happened to a link.
    pub fn link(&mut self, peer: ReplicaId, what: LinkEvent) {
        self.step(|protocol, cx| protocol.on_link(cx, peer, what));
    }

    /// What [`Cx::sound`] says from here on: when there was doubt last, and up to when probes that were sent have been
    /// answered in time by enough peers. All is sound at the start; `Time::MAX` as the last doubt is doubt that lasts. Does
    /// not tell the protocol.
    pub fn answer_sound(&mut self, last_doubt: Option<Time>, fresh: Time) {
        (self.world.table.last_doubt, self.world.table.fresh) = (last_doubt, fresh);
    }

    /// The same, and the protocol hears that the answer may be another one.
    pub fn sound(&mut self, last_doubt: Option<Time>, fresh: Time) {
        self.answer_sound(last_doubt, fresh);
        self.step(P::on_sound);
    }

    /// Of which moments the protocol has asked in vain, since the last call, whether answers to probes are so fresh: the
    /// host sends one more probe for each.
    pub fn asked_fresh(&mut self) -> Vec<Time> {
        std::mem::take(&mut self.world.table.asked)
    }

    /// Time passes; timers that become due fire in order. How many fired.
    pub fn advance(&mut self, ns: u64) -> usize {
        let until = self.world.now.plus(ns);
        let mut fired = 0usize;
        while let Some(at) = self.timers.deadline().filter(|at| *at <= until) {
            self.world.now = self.world.now.max(at);
            if let Some(timer) = self.timers.pop_due(at) {
                self.lines.push(format!("timer {timer:?}"));
                self.step(|protocol, cx| protocol.on_timer(cx, timer));
                fired = fired.saturating_add(1);
            }
        }
        self.world.now = until;
        fired
    }

    /// Time passes in a turn that takes so long: timers that become due wait for the next one.
    pub fn stand_still(&mut self, ns: u64) {
        self.world.now = self.world.now.plus(ns);
    }

    /// When the next timer fires.
    #[must_use]
    pub fn deadline(&self) -> Option<Time> {
        self.timers.deadline()
    }
    /// Returns when this timer fires, `None` where it is not set.
    #[must_use]
    pub fn timer(&self, timer: P::Timer) -> Option<Time> {
        self.timers.get(timer)
    }
    /// The present time.
    #[must_use]
    pub fn now(&self) -> Time {
        self.world.now
    }
    /// Who this is.
    #[must_use]
    pub fn me(&self) -> ReplicaId {
        self.world.me
    }
    /// The protocol.
    ///
    /// # Panics
    /// When the last [`Harness::crash`] did not open it again.
    #[must_use]
    pub fn protocol(&self) -> &P {
        self.protocol.as_ref().expect("the replica is open")
    }
    /// See [`Protocol::window`].
    #[must_use]
    pub fn window(&self) -> Window {
        self.protocol().window()
    }
    /// See [`Protocol::floors`].
    #[must_use]
    pub fn floors(&self) -> Floors {
        self.protocol().floors()
    }
    /// See [`Protocol::status`].
    #[must_use]
    pub fn status(&self) -> Status {
        self.protocol().status()
    }
    /// A block that is known here.
    #[must_use]
    pub fn block(&self, id: BlockId) -> Option<&Block> {
        self.world.blocks.get(id).map(|block| &**block)
    }
    /// Blocks that are known here.
    #[must_use]
    pub fn block_count(&self) -> usize {
        self.world.blocks.len()
    }
    /// What was recorded and is still alive: keys in order.
    #[must_use]
    pub fn records(&self) -> Vec<RecordKey> {
        self.written.records.keys().copied().collect()
    }

    /// What left since the last call.
    pub fn sent(&mut self) -> Vec<(To, P::Message)> {
        std::mem::take(&mut self.left)
    }
    /// What was wanted done since the last call, a line each, in order.
    pub fn lines(&mut self) -> Vec<String> {
        std::mem::take(&mut self.lines)
    }
    /// What was decided since the last call.
    pub fn committed(&mut self) -> Vec<(Commit, Basis)> {
        std::mem::take(&mut self.committed)
    }
    /// Which blocks were asked of whom since the last call.
    pub fn wanted(&mut self) -> Vec<(BlockId, ReplicaId)> {
        std::mem::take(&mut self.wanted)
    }
    /// Blocks that count as proposed already since the last call.
    pub fn already_proposed(&mut self) -> Vec<BlockId> {
        std::mem::take(&mut self.world.table.proposed)
    }
    /// Alarms so far.
    #[must_use]
    pub fn alarms(&self) -> &[Alarm] {
        &self.alarms
    }
}

/// The proof of a checkpoint, without signatures: no harness checks any.
fn unsigned_proof(checkpoint: Checkpoint) -> CheckpointProof {
    let statement = checkpoint.statement();
    CheckpointProof {
        checkpoint,
        certificate: Certificate { statement, ..Certificate::genesis(CHECKPOINT_KIND) },
    }
}

fn read<P: Protocol>(bytes: &[u8]) -> P::Message {
    P::Message::decode(bytes).expect("a message can be read back")
}

/// A message in a few words: kind, view, height and subject; all of it where it states nothing.
#[must_use]
pub fn words(message: &dyn Message) -> String {
    match message.auth().statement() {
        Some(said) => format!("{} v{} h{} {:?}", said.kind, said.view, said.height, said.subject),
        None => format!("{message:?}"),
    }
}

fn line(effect: &Effect) -> String {
    match effect {
        Effect::Record { key, .. } => {
            let scope = if key.scope.is_zero() { String::new() } else { format!(" {:?}", key.scope) };
            format!("record {} h{}{scope}", key.kind, key.height)
        }
        Effect::Reserve(kind, view) => format!("reserve {kind} v{view}"),
        Effect::Withdraw(kind, view) => format!("withdraw {kind} v{view}"),
        Effect::Send { to, hold: Hold::UntilDurable, message } => {
            format!("hold {to:?}: {}", words(&**message))
        }
        Effect::Send { to, hold: Hold::Reserved, message } => {
            format!("reserved {to:?}: {}", words(&**message))
        }
        Effect::Send { to, hold: Hold::No, message } => format!("send {to:?}: {}", words(&**message)),
        Effect::Commit(Commit::At(height, id), basis) => format!("commit h{height} {id:?} {basis:?}"),
        Effect::Commit(Commit::Chain(id), basis) => format!("commit chain {id:?} {basis:?}"),
        Effect::Want(block, from) => format!("want {block:?} from {from}"),
        Effect::CatchUp(proof) => format!("catch up h{}", proof.checkpoint.height),
        Effect::Urgent(peer) => format!("urgent {peer:?}"),
        Effect::Accuse(evidence) => format!("accuse {}", evidence.by),
        Effect::Alarm(alarm) => format!("alarm: {alarm}"),
        Effect::Note(note) => format!("note {} v{} h{}", note.what, note.view, note.height),
    }
}
