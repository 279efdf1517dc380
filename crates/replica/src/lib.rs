//! # quorate-replica
//!
//! Everything a replica is, minus I/O: the front door, the pool, bodies, promises, order, checkpoints and
//! catching up, around one protocol that it knows only as `dyn AnyProtocol`.
//!
//! ```text
//! bytes ─▶ Intake ─▶ Input ─▶ Replica::handle ─▶ Output ─▶ log, links, executor
//!          decode,            pool · bodies · protocol · outbox · sequencer · checkpoints
//!          window,
//!          signatures
//! ```
//!
//! * Where a message is checked: [`intake`]. Nothing unchecked gets past it.
//! * Where a promise is held: `outbox.rs`. Nothing that binds leaves before its mark is durable.
//! * Where order is decided: `sequencer.rs`, and in no other file.
//!
//! A replica is a pure function of its inputs: no clock, no randomness, no I/O. The driver gives inputs with
//! their time, drains [`Replica::poll`], and sleeps until [`Replica::deadline`].

#![cfg_attr(test, allow(clippy::as_conversions, reason = "test data"))]

mod bodies;
mod checkpoint;
mod clients;
mod decided;
mod divergence;
mod encoding;
#[cfg(test)]
mod encoding_tests;
mod host;
mod host_message;
#[cfg(test)]
mod host_tests;
mod input;
pub mod intake;
mod outbox;
mod output;
mod pace;
mod past;
mod peers;
mod pool;
mod recording;
mod sequencer;
mod status;
mod step;
#[cfg(test)]
mod step_tests;
mod synchrony;

pub use clients::{Admission, Admit};
pub use divergence::{Divergence, Quorum};
pub use host_message::{Heights, HostMessage};
pub use input::{Checked, CheckedMessage, Input};
pub use intake::{Intake, Passed, Refused, Source};
pub use output::{ConnId, Names, Output, Ticket, Unsealed};
pub use past::{BadPast, Past};
pub use recording::{Replay, Sink, Unlike};
pub use status::{PoolSize, ReplicaStatus, State};
pub use synchrony::GuardStatus;

use checkpoint::Checkpoints;
use decided::Decided;
use host::Host;
use intake::WindowCell;
use outbox::Outbox;
use quorate_consensus::parts::block_tree::BlockTree;
use quorate_consensus::{Alarm, AnyProtocol, Effect, Entry, Env, OpenError, Spec, Status};
use quorate_types::{
    BlockId, Committee, Digest, FullBlock, Genesis, Height, Incarnation, LogEntry, Mark, ReplicaId, Time,
    View,
};
use recording::Recorder;
use sequencer::Sequencer;
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use synchrony::SynchronyGuard;

/// What a replica is opened with, beside its past.
#[derive(Clone)]
pub struct Setup {
    /// Who this replica is.
    pub me: ReplicaId,
    /// The committee.
    pub committee: Arc<Committee>,
    /// The shared configuration.
    pub genesis: Arc<Genesis>,
    /// Parameters of the protocol: those of genesis and the local ones.
    pub params: toml::Table,
    /// Wall-clock nanoseconds at `Time(0)`.
    pub wall_offset_ns: u64,
    /// What its peers do not know: what they must not foretell comes of it. Another one at each opening, because a disk
    /// that was wiped counts incarnations anew, and what was said in the first life would be said again. Where
    /// nothing is at stake, [`SigningKey::secret`] gives one that is the same each time.
    ///
    /// [`SigningKey::secret`]: quorate_crypto::SigningKey::secret
    pub secret: Digest,
}

impl std::fmt::Debug for Setup {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Without the secret.
        f.debug_struct("Setup").field("me", &self.me).field("params", &self.params).finish_non_exhaustive()
    }
}

/// One replica.
pub struct Replica {
    entry: Entry,
    protocol: Box<dyn AnyProtocol>,
    setup: Setup,
    others: Vec<ReplicaId>,
    incarnation: Incarnation,
    blocks: BlockTree,
    host: Host,
    outbox: Outbox,
    sequencer: Sequencer,
    decided: Decided,
    handed: peers::Handed,
    checkpoints: Checkpoints,
    /// Mark of a stable proof that waits to be durable.
    proof_mark: Option<Mark>,
    /// Decided blocks that go to the executor when their mark is durable, in order: where no promise says what was
    /// decided, the own log has to, before anybody acts on it or hears of it.
    unsynced: VecDeque<(Mark, FullBlock)>,
    ask_proof_at: Time,
    /// When peers are told how far this replica is: soon after something was executed, and now and then anyway.
    announce_at: Time,
    kept: Height,
    /// Blocks whose header and payload are in the log.
    logged: BTreeSet<BlockId>,
    effects: Vec<Effect>,
    out: VecDeque<Output>,
    pending_changed: bool,
    last: Status,
    /// A block that is decided with its ancestors, of which a header is missing.
    unrooted: Option<BlockId>,
    /// The last view to whose leader this replica has forwarded what waits.
    forwarded: View,
    window: Arc<WindowCell>,
    now: Time,
    stopped: Option<Alarm>,
    contradictions: u64,
    /// What was raised last that does not stop the replica, and how often.
    doubted: (Option<Alarm>, u64),
    recorder: Option<Recorder>,
}

impl std::fmt::Debug for Replica {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.status())
    }
}

impl Replica {
    /// Opens a replica on what its log kept. Its first outputs write the new incarnation: the host makes them
    /// durable before it opens any link, or sequence numbers of two incarnations could be confused.
    ///
    /// # Errors
    /// When parameters or committee do not suit the protocol, or the past contradicts itself.
    pub fn open(entry: &Entry, setup: Setup, past: Past) -> Result<Self, OpenError> {
        let committee = Arc::clone(&setup.committee);
        let checkpoint_quorum = (entry.spec.checkpoint_quorum)(committee.n(), committee.f);
        let incarnation = past.incarnation.next();
        let (stable, executed) = (past.stable.clone(), past.executed);
        let above = stable.checkpoint.height.next();
        let decided: Vec<(Height, BlockId)> = past.decided.range(above..).map(|(h, id)| (*h, *id)).collect();

        let mut host = Host::new(&setup, synchrony_guard(entry, &setup, incarnation)?);
        host.note_executed(decided.iter().filter(|(height, _)| *height <= executed).map(|(_, id)| *id));
        let (mut blocks, logged) = restore_blocks(&past, &mut host);
        let mut out = VecDeque::new();
        let raw = protocol_past(&past, &setup.genesis, &blocks, decided.clone());
        let mut outbox = Outbox::restore(past.guard, past.floors, past.records);
        outbox.persist(LogEntry::Incarnation(incarnation), &mut out);
        out.push_back(Output::Sync(outbox.appended()));

        let mut effects = Vec::new();
        let mut env = Env {
            now: Time::ZERO,
            me: setup.me,
            committee: &committee,
            blocks: &mut blocks,
            host: &mut host,
            effects: &mut effects,
        };
        let protocol = (entry.open)(&mut env, &setup.params, raw)?;
        host.pool.set_patience(protocol.status().patience_ns);
        let mut replica = Self {
            entry: *entry,
            last: Status::default(),
            unrooted: None,
            forwarded: View::ZERO,
            window: Arc::new(WindowCell::default()),
            protocol,
            others: committee.others(setup.me).collect(),
            incarnation,
            blocks,
            host,
            outbox,
            sequencer: Sequencer::restore(executed, decided),
            decided: Decided::new(committee.weak()),
            handed: peers::Handed::default(),
            checkpoints: Checkpoints::new(stable, setup.genesis.window, checkpoint_quorum),
            proof_mark: None,
            unsynced: VecDeque::new(),
            ask_proof_at: Time::ZERO,
            announce_at: Time(step::ANNOUNCE_IDLE_NS),
            kept: past.kept,
            logged,
            effects,
            out,
            pending_changed: false,
            now: Time::ZERO,
            stopped: None,
            contradictions: 0,
            doubted: (None, 0),
            recorder: None,
            setup,
        };
        replica.sign_again(&past.states, above);
        replica.settle();
        Ok(replica)
    }

    /// Own checkpoints that are not stable are signed again: the signatures may never have left.
    fn sign_again(&mut self, states: &[(Height, Digest)], above: Height) {
        for (height, state) in states {
            if let Some(id) = self.sequencer.decided(*height).filter(|_| *height >= above)
                // A checkpoint names the view of its block: who has not kept that knows no more what it signed.
                && (self.blocks.get(id).is_some() || id == BlockId::null(*height))
            {
                self.sign_checkpoint(*height, id, *state);
            }
        }
    }

    /// Takes an event in. Never fires timers.
    pub fn handle(&mut self, now: Time, input: Input) {
        if let Some(recorder) = &mut self.recorder {
            recorder.input(now, &input);
        }
        if self.stopped.is_some() {
            return;
        }
        self.now = self.now.max(now);
        if let Some(guard) = &mut self.host.synchrony {
            guard.before(self.now);
        }
        match input {
            Input::Peer(checked) => self.on_peer(checked),
            Input::Client(conn, bundle) => self.on_client(conn, bundle),
            Input::Bundle { from, bundle, pending } => self.on_bundle(from, bundle, pending),
            Input::Payload(from, payload) => {
                self.host.bodies.add_payload(&self.host.pool, &self.blocks, from, payload);
            }
            Input::Own(ticket, signature) => self.on_own(ticket, signature),
            Input::Durable(mark) => self.on_durable(mark),
            Input::Executed(executed) => self.on_executed(executed),
            Input::Link(peer, event) => self.on_link(peer, event),
            Input::Stored(to, id, block) => self.on_stored(to, id, block),
            Input::StoredIds(to, from, ids) => self.on_stored_ids(to, from, ids),
            Input::Kept(height) => self.kept = height,
            Input::Rolled => self.write_base(),
            Input::Unchecked(peers) => self.host.bodies.set_unchecked(peers),
        }
        self.settle();
        self.send_probe();
    }

    /// Fires what is due, in the order of (time, timer). The driver calls it when everything that had arrived by
    /// `due` was handled, or a little later where more comes than can be handled.
    pub fn tick(&mut self, due: Time) {
        if let Some(recorder) = &mut self.recorder {
            recorder.tick(due);
        }
        if self.stopped.is_some() {
            return;
        }
        self.now = self.now.max(due);
        self.tick_guard(due);
        while self.stopped.is_none() && self.protocol.deadline().is_some_and(|at| at <= due) {
            self.call(|protocol, env| protocol.fire(env, due));
            self.settle();
        }
        self.tick_host();
        self.settle();
        self.send_probe();
    }

    /// The next thing that the host must do; `None` when there is nothing more.
    pub fn poll(&mut self) -> Option<Output> {
        // Proposing waits for the end of what the driver has handed in, so that blocks fill by themselves.
        if self.pending_changed && self.stopped.is_none() {
            self.pending_changed = false;
            self.call(|protocol, env| protocol.on_pending(env));
            self.settle();
            self.send_probe();
        }
        let output = self.out.pop_front();
        if let Some(recorder) = &mut self.recorder {
            recorder.poll(output.as_ref());
        }
        output
    }

    /// What the wall clock says at `Time(0)`. To open a replica may take long, and where its clock begins only then, that is
    /// not known before.
    pub fn set_wall_offset(&mut self, ns: u64) {
        assert!(self.recorder.is_none(), "whoever replays it begins with the offset of the setup");
        self.setup.wall_offset_ns = ns;
        self.host.wall_offset_ns = ns;
    }

    /// From now on every step of this replica goes to `sink`: for [`Replay`], which wants all of them, so this
    /// is called before the first.
    pub fn record(&mut self, sink: Sink) {
        self.recorder = Some(Recorder::new(sink));
    }

    /// When [`Replica::tick`] has something to do.
    #[must_use]
    pub fn deadline(&self) -> Option<Time> {
        if self.stopped.is_some() {
            return None;
        }
        let deadlines = [
            self.protocol.deadline(),
            self.host.bodies.deadline(),
            self.host.pool.deadline(),
            self.outbox.deadline(),
            self.decided.deadline(),
            self.host.synchrony.as_ref().map(SynchronyGuard::deadline),
            Some(self.announce_at),
        ];
        deadlines.into_iter().flatten().min()
    }

    /// The front door for this replica: checks what its inputs are made of.
    #[must_use]
    pub fn intake(&self, scheme: quorate_crypto::Scheme) -> Intake {
        Intake::new(&self.entry, &self.setup, scheme, Arc::clone(&self.window))
    }

    /// Whether a body is here already: no block needs it once more.
    #[must_use]
    pub fn holds(&self, bundle: &quorate_types::BundleDigest) -> bool {
        self.host.pool.contains(bundle)
    }

    /// Whether a bundle that nobody waits for would be kept for the blocks that may name it: then the intake need not
    /// check one that would not.
    #[must_use]
    pub fn has_room(&self, from: ReplicaId, bundle: &quorate_types::Bundle) -> bool {
        self.host.bodies.awaits(&bundle.digest()) || self.host.pool.has_idle_room(bundle, Some(from))
    }

    /// Whether the client of a new bundle would hear `Busy`, where bundles that count for `more` are let in before it:
    /// then the intake need not check it.
    #[must_use]
    pub fn is_busy(&self, bundle: &quorate_types::Bundle, more: usize) -> bool {
        self.host.pool.is_busy(self.now, bundle, more)
    }

    /// Whether a bundle is here and counts as waiting: the intake need not look at it again.
    #[must_use]
    pub fn awaits(&self, bundle: &quorate_types::BundleDigest) -> bool {
        self.host.pool.waits(bundle)
    }

    /// What it is doing.
    #[must_use]
    pub fn status(&self) -> ReplicaStatus {
        let next = self.sequencer.contiguous().next();
        let state = if self.stopped.is_some() {
            State::Stopped
        } else if self.is_out() {
            State::Out
        } else if self.decided.vouched() > next {
            State::CatchingUp
        } else {
            State::Current
        };
        ReplicaStatus {
            id: self.setup.me,
            incarnation: self.incarnation,
            state,
            view: self.last.view,
            leader: self.last.leader,
            normal: self.last.normal,
            last_view_change: self.last.last_view_change,
            view_changes: self.last.view_changes,
            decided: self.sequencer.contiguous(),
            executed: self.sequencer.executed(),
            stable: self.checkpoints.height(),
            kept: self.kept,
            pool: self.host.pool.size(),
            outbox: self.outbox.size(),
            blocks: self.blocks.len(),
            timers: self.protocol.timers(),
            alarm: self.stopped.map(|alarm| alarm.to_string()),
            contradictions: self.contradictions,
            guard: self.host.synchrony.as_ref().map(SynchronyGuard::status),
            doubted: self.doubted.1,
            last_doubted: self.doubted.0.map(|alarm| alarm.to_string()),
        }
    }

    /// Bundles that wait for their execution.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.host.pool.waiting()
    }

    /// Up to where every height is decided, and the last height executed.
    #[must_use]
    pub fn decided_and_executed(&self) -> (Height, Height) {
        (self.sequencer.contiguous(), self.sequencer.executed())
    }

    /// Whether no peer keeps the next height any more: [`State::Out`].
    #[must_use]
    pub fn is_out(&self) -> bool {
        self.decided.is_out(self.sequencer.contiguous().next())
    }

    /// Whether more than f peers are late, and how often that has begun; `None` where the protocol assumes no bound.
    #[must_use]
    pub fn doubt(&self) -> Option<(bool, u64)> {
        self.host.synchrony.as_ref().map(SynchronyGuard::doubt)
    }

    /// What the synchrony guard measures: all of it is looked at for the answer.
    #[must_use]
    pub fn guard(&self) -> Option<GuardStatus> {
        self.host.synchrony.as_ref().map(SynchronyGuard::status)
    }

    /// The last alarm that did not stop the replica, and how many there were.
    #[must_use]
    pub fn doubted(&self) -> (Option<Alarm>, u64) {
        self.doubted
    }

    /// Where replicas have signed different states, as far as this one has heard; empty when all is well. Told until
    /// whoever differs agrees again at a later checkpoint.
    #[must_use]
    pub fn differing(&self) -> Vec<Divergence> {
        self.checkpoints.differing(self.setup.me, self.setup.committee.ids().collect())
    }

    /// How often somebody has said something of a checkpoint: only then can [`Replica::differing`] have changed.
    #[must_use]
    pub fn checkpoints_heard(&self) -> u64 {
        self.checkpoints.heard()
    }

    /// Its view and the leader of that view.
    #[must_use]
    pub fn leader(&self) -> (View, ReplicaId) {
        (self.last.view, self.last.leader)
    }

    /// The protocol's properties.
    #[must_use]
    pub fn spec(&self) -> &Spec {
        &self.entry.spec
    }

    /// Number of this opening.
    #[must_use]
    pub fn incarnation(&self) -> Incarnation {
        self.incarnation
    }

    /// The newest stable checkpoint.
    #[must_use]
    pub fn stable(&self) -> &quorate_consensus::CheckpointProof {
        self.checkpoints.stable()
    }
}

/// Returns the state from the log with which the protocol is opened.
fn protocol_past(
    past: &Past,
    genesis: &Genesis,
    blocks: &BlockTree,
    decided: Vec<(Height, BlockId)>,
) -> quorate_consensus::Past<Vec<u8>> {
    quorate_consensus::Past {
        records: past.records.values().cloned().collect(),
        checkpoint: past.stable.clone(),
        blocks: blocks.iter().map(|(_, block)| (**block).clone()).collect(),
        executed: past.executed,
        decided,
        incarnation: past.incarnation.next(),
        window: genesis.window,
        checkpoint_every: genesis.checkpoint_every,
    }
}

/// What watches the bound on delays, where the protocol assumes one.
fn synchrony_guard(
    entry: &Entry,
    setup: &Setup,
    incarnation: Incarnation,
) -> Result<Option<SynchronyGuard>, OpenError> {
    let bound = (entry.synchrony)(&setup.params)?;
    Ok(bound.map(|bound| SynchronyGuard::new(bound, setup.me, &setup.committee, incarnation, setup.secret)))
}

/// The blocks above the stable checkpoint and the bodies that the log has of them.
fn restore_blocks(past: &Past, host: &mut Host) -> (BlockTree, BTreeSet<BlockId>) {
    let stable = past.stable.checkpoint;
    let (mut blocks, mut logged) = (BlockTree::default(), BTreeSet::new());
    blocks.set_root(stable.block);
    for bundle in &past.bodies {
        host.pool.restore(bundle);
    }
    for (id, (block, payload)) in past.blocks.iter().filter(|(_, (block, _))| block.height > stable.height) {
        host.bodies.add_own_payload(&host.pool, &blocks, Arc::clone(payload));
        blocks.insert((**block).clone());
        if host.is_executed(id) {
            host.bodies.note_executed(*id);
        }
        logged.insert(*id);
    }
    host.bodies.executed(&blocks, past.executed);
    for id in blocks.take_fresh() {
        host.bodies.watch(&host.pool, &blocks, id);
    }
    (blocks, logged)
}
