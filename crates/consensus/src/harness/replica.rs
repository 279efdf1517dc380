//! One replica's protocol with its disk, its clock and its effects.

use super::answer_table::AnswerTable;
use super::lines::line;
use super::setup::Setup;
use crate::effect::{Commit, Effect, Hold, Note, To};
use crate::host_view::{Env, PayloadRef, Ready};
use crate::message::{Message, Seal, Verified};
use crate::parts::block_tree::BlockTree;
use crate::parts::certificate::{CHECKPOINT_KIND, Certificate, Checkpoint, CheckpointProof};
use crate::past::{OpenError, Past};
use crate::protocol::{Cx, LinkEvent, Protocol};
use crate::record::RecordKey;
use crate::reject::{Alarm, Reject};
use crate::status::{Status, Window};
use crate::timers::Timers;
use quorate_types::{
    Block, BlockId, Committee, Digest, Floors, Height, Incarnation, Kind, ReplicaId, Signature, Slot, Time,
    View, Wire,
};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// State that survives a crash.
#[derive(Clone, Debug, Default)]
pub(super) struct Disk {
    records: BTreeMap<RecordKey, Vec<u8>>,
    guard: BTreeMap<Slot, Digest>,
    /// The last view in which a message of each kind may have been sent.
    reserved: BTreeMap<Kind, View>,
    blocks: BTreeMap<BlockId, Block>,
    pub(super) decided: BTreeMap<Height, BlockId>,
    pub(super) executed: Height,
    stable: Option<Checkpoint>,
}

/// Environment of the handlers, and their effects.
struct Surroundings {
    me: ReplicaId,
    committee: Arc<Committee>,
    now: Time,
    blocks: BlockTree,
    table: AnswerTable,
    effects: Vec<Effect>,
}

impl Surroundings {
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

/// One replica's protocol with a host for tests.
pub struct Harness<P: Protocol> {
    setup: Setup,
    params: toml::Table,
    incarnation: Incarnation,
    world: Surroundings,
    timers: Timers<P::Timer>,
    protocol: Option<P>,
    /// State written so far.
    pub(super) written: Disk,
    /// State as of the last sync: the part of `written` that survives a crash.
    synced: Disk,
    /// The last view of each kind in which a message may have been sent before the last restart.
    dead: BTreeMap<Kind, View>,
    /// Records written since the last sync, in order.
    unsynced: Vec<(RecordKey, Vec<u8>)>,
    /// Messages that wait for the disk.
    held: VecDeque<(To, Vec<u8>)>,
    /// Own copies of messages that did not wait for the disk.
    copies: VecDeque<Vec<u8>>,
    /// Messages that have left.
    left: Vec<(To, P::Message)>,
    lines: Vec<String>,
    committed: Vec<Commit>,
    notes: Vec<Note>,
    wanted: Vec<(BlockId, ReplicaId)>,
    alarms: Vec<Alarm>,
}

impl<P: Protocol> Harness<P> {
    /// Opens the protocol of one replica on an empty disk.
    ///
    /// # Errors
    /// The error of the protocol.
    pub fn open(me: ReplicaId, setup: Setup, params: &P::Params) -> Result<Self, OpenError> {
        let world = Surroundings {
            me,
            committee: Arc::new(setup.committee::<P>()),
            now: Time::ZERO,
            blocks: BlockTree::default(),
            table: AnswerTable::default(),
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
            notes: Vec::new(),
            wanted: Vec::new(),
            alarms: Vec::new(),
        };
        harness.start()?;
        Ok(harness)
    }

    /// Stops the replica at once and opens it again with its disk of the last [`Harness::sync`].
    ///
    /// # Errors
    /// The error of the protocol.
    pub fn crash(&mut self) -> Result<(), OpenError> {
        self.written = self.synced.clone();
        self.dead.clone_from(&self.synced.reserved);
        self.unsynced.clear();
        self.held.clear();
        self.copies.clear();
        self.left.clear();
        self.start()
    }

    /// Stops the replica in the middle of writing and opens it again: the first `records` records since the last sync are
    /// on disk as well. A log may end between any two.
    ///
    /// # Errors
    /// The error of the protocol.
    pub fn crash_after(&mut self, records: usize) -> Result<(), OpenError> {
        let written = std::mem::take(&mut self.unsynced);
        self.synced.records.extend(written.into_iter().take(records));
        self.crash()
    }

    /// Returns the number of records written since the last sync.
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
        let past = Past {
            records: self.written.records.values().cloned().collect(),
            checkpoint: self.written.stable.map_or_else(CheckpointProof::genesis, unsigned_proof),
            blocks: self.written.blocks.values().cloned().collect(),
            executed: self.written.executed,
            decided: self.written.decided.iter().map(|(height, id)| (*height, *id)).collect(),
            incarnation: self.incarnation,
            window: self.setup.window,
            checkpoint_every: self.setup.checkpoint_every,
            forgotten: Floors::default(),
        };
        let past = past.decode().expect("a record can be read back");
        let params = self.params.clone().try_into().expect("parameters can be read back");
        let opened = P::open(&mut Cx::new(&mut self.world.env(), &mut self.timers), params, past);
        self.protocol = Some(opened?);
        self.absorb();
        Ok(())
    }

    /// Calls one handler and carries out its effects.
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
                    assert!(
                        P::Record::from_bytes(&bytes).is_ok(),
                        "a record that cannot be read back: {key:?}"
                    );
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
                Effect::Commit(what) => self.committed.push(what),
                Effect::Note(note) => self.notes.push(note),
                Effect::Want(block, from) => self.wanted.push((block, from)),
                Effect::Alarm(alarm) => self.alarms.push(alarm),
                Effect::CatchUp(_) | Effect::Urgent(_) | Effect::Accuse(_) => {}
            }
        }
    }

    fn queue(&mut self, to: To, hold: Hold, message: &dyn Message) {
        let statement = message.auth().statement();
        if let Some(statement) = statement.filter(|_| message.once()) {
            assert!(hold != Hold::No, "{message:?} fills its slot only once and must be held");
            let is_dead = self.dead.get(&statement.kind).is_some_and(|dead| statement.view <= *dead);
            assert!(!is_dead, "sent in a slot that may have been used before the restart: {message:?}");
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

    /// Makes everything written durable. Held messages leave, and own copies arrive.
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

    /// Syncs until no message is held.
    pub fn settle(&mut self) {
        while !self.held.is_empty() || !self.copies.is_empty() {
            self.sync();
        }
    }

    /// Delivers a verified message from another replica.
    ///
    /// # Errors
    /// The error of the protocol.
    pub fn deliver(&mut self, from: ReplicaId, message: P::Message) -> Result<(), Reject> {
        let signature = message.auth().is_signed().then_some(Signature([0; 64]));
        let verified = Verified::new(message, from, Seal { by: from, signature });
        self.step(|protocol, cx| protocol.on_message(cx, verified))
    }

    /// Offers payloads: requests of clients for that many blocks.
    pub fn offer(&mut self, payloads: impl IntoIterator<Item = PayloadRef>) {
        self.world.table.payloads.extend(payloads);
        self.step(|protocol, cx| protocol.on_pending(cx));
    }

    /// Sets the arrival time of the oldest waiting bundle and whether this replica is behind with its own work.
    pub fn waits(&mut self, oldest: Option<Time>, overloaded: bool) {
        self.world.table.oldest = oldest;
        self.world.table.overloaded = overloaded;
        self.step(|protocol, cx| protocol.on_pending(cx));
    }

    /// Sets whether this replica lags behind with its own execution. The protocol sees it at the next event.
    pub fn lags(&mut self, lagging: bool) {
        self.world.table.lagging = lagging;
    }

    /// Sets the expected time for the execution of all waiting bundles. The protocol sees it at the next event.
    pub fn backlog(&mut self, ns: u64) {
        self.world.table.backlog_ns = ns;
    }

    /// Sets the answer about blocks that [`Harness::answer`] does not name; valid at the start.
    pub fn answer_otherwise(&mut self, ready: Option<Ready>) {
        self.world.table.otherwise = ready;
    }

    /// Sets the answer about a block, without an event for the protocol.
    pub fn answer(&mut self, block: BlockId, ready: Option<Ready>) {
        self.world.table.answers.insert(block, ready);
    }

    /// Sets the bytes of a block's bodies; 0 at the start.
    pub fn body_bytes(&mut self, block: BlockId, bytes: usize) {
        self.world.table.body_bytes.insert(block, bytes);
    }

    /// Makes a block ready.
    pub fn ready(&mut self, block: BlockId, how: Ready) {
        self.answer(block, Some(how));
        self.step(|protocol, cx| protocol.on_ready(cx, block, how));
    }

    /// Delivers a block that was fetched from a peer.
    pub fn fetched(&mut self, block: Block) {
        let id = block.id();
        self.world.blocks.insert(block);
        self.ready(id, Ready::Valid);
    }

    /// Executes a decided height.
    pub fn execute(&mut self, height: Height) {
        self.written.executed = height;
        self.step(|protocol, cx| protocol.on_executed(cx, height, 1));
    }

    /// Logs a decision, of the protocol or of f + 1 peers, without an event for the protocol.
    pub fn log_decided(&mut self, height: Height, block: BlockId) {
        self.written.decided.insert(height, block);
    }

    /// Reports a decision of f + 1 peers.
    pub fn decide(&mut self, height: Height, block: BlockId) {
        self.log_decided(height, block);
        self.step(|protocol, cx| protocol.on_decided(cx, height, block));
    }

    /// Makes a checkpoint stable: the host forgets records and blocks at or below it, then the protocol handles it.
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

    /// Removes all blocks from the disk: damage that no honest disk does.
    pub fn lose_blocks(&mut self) {
        self.written.blocks.clear();
        self.synced.blocks.clear();
    }

    /// Reports an event of a link.
    pub fn link(&mut self, peer: ReplicaId, what: LinkEvent) {
        self.step(|protocol, cx| protocol.on_link(cx, peer, what));
    }

    /// Sets the answer of [`Cx::sound`] from here on, without an event for the protocol. `last_doubt` is the last moment of
    /// doubt; `Time::MAX` is doubt that lasts. `fresh` is the time of the last probe that enough peers have answered in
    /// time. All is sound at the start.
    pub fn answer_sound(&mut self, last_doubt: Option<Time>, fresh: Time) {
        (self.world.table.last_doubt, self.world.table.fresh) = (last_doubt, fresh);
    }

    /// Sets the answer of [`Cx::sound`], and the protocol handles the change.
    pub fn sound(&mut self, last_doubt: Option<Time>, fresh: Time) {
        self.answer_sound(last_doubt, fresh);
        self.step(P::on_sound);
    }

    /// Returns the freshness of probes that the protocol has asked for in vain since the last call. The host sends one
    /// more probe for each.
    pub fn asked_fresh(&mut self) -> Vec<Time> {
        std::mem::take(&mut self.world.table.asked)
    }

    /// Lets time pass; due timers fire in order. Returns the number of timers that fired.
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

    /// Lets time pass within one turn: timers that become due wait for the next turn.
    pub fn stand_still(&mut self, ns: u64) {
        self.world.now = self.world.now.plus(ns);
    }

    /// Returns the due time of the next timer.
    #[must_use]
    pub fn deadline(&self) -> Option<Time> {
        self.timers.deadline()
    }
    /// Returns when this timer fires, `None` where it is not set.
    #[must_use]
    pub fn timer(&self, timer: P::Timer) -> Option<Time> {
        self.timers.get(timer)
    }
    /// Returns the present time.
    #[must_use]
    pub fn now(&self) -> Time {
        self.world.now
    }
    /// Returns the id of this replica.
    #[must_use]
    pub fn me(&self) -> ReplicaId {
        self.world.me
    }
    /// Returns the protocol.
    ///
    /// # Panics
    /// The last [`Harness::crash`] did not open the replica again.
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
    /// Returns a known block.
    #[must_use]
    pub fn block(&self, id: BlockId) -> Option<&Block> {
        self.world.blocks.get(id).map(|block| &**block)
    }
    /// Returns the number of known blocks.
    #[must_use]
    pub fn block_count(&self) -> usize {
        self.world.blocks.len()
    }
    /// Returns the keys of all live records, in order.
    #[must_use]
    pub fn records(&self) -> Vec<RecordKey> {
        self.written.records.keys().copied().collect()
    }

    /// Returns the messages that have left since the last call.
    pub fn sent(&mut self) -> Vec<(To, P::Message)> {
        std::mem::take(&mut self.left)
    }
    /// Returns the effects since the last call, a line each, in order.
    pub fn lines(&mut self) -> Vec<String> {
        std::mem::take(&mut self.lines)
    }
    /// Returns the decisions since the last call.
    pub fn committed(&mut self) -> Vec<Commit> {
        std::mem::take(&mut self.committed)
    }
    /// Returns the notes since the last call, in order.
    pub fn notes(&mut self) -> Vec<Note> {
        std::mem::take(&mut self.notes)
    }
    /// Returns the blocks that the protocol has wanted since the last call, with the replica asked.
    pub fn wanted(&mut self) -> Vec<(BlockId, ReplicaId)> {
        std::mem::take(&mut self.wanted)
    }
    /// Returns the blocks that the protocol has marked as proposed since the last call.
    pub fn already_proposed(&mut self) -> Vec<BlockId> {
        std::mem::take(&mut self.world.table.proposed)
    }
    /// Returns all alarms so far.
    #[must_use]
    pub fn alarms(&self) -> &[Alarm] {
        &self.alarms
    }
}

/// Returns the proof of a checkpoint, without signatures: no harness checks any.
fn unsigned_proof(checkpoint: Checkpoint) -> CheckpointProof {
    let statement = checkpoint.statement();
    CheckpointProof {
        checkpoint,
        certificate: Certificate { statement, ..Certificate::genesis(CHECKPOINT_KIND) },
    }
}

fn read<P: Protocol>(bytes: &[u8]) -> P::Message {
    P::Message::from_bytes(bytes).expect("a message can be read back")
}
