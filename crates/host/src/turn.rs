//! One turn: from what has arrived to what leaves.

use crate::executor::Executor;
use crate::loads::{Load, Loads, Reads};
use crate::open::{OpenFault, SnapshotProgress};
use crate::outgoing::{Outgoing, seal};
use quorate_consensus::{Alarm, LinkEvent};
use quorate_crypto::SigningKey;
use quorate_replica::{ConnId, Input, Intake, Output, Passed, Replica, Source, Unsealed};
use quorate_storage::{Disk, Store};
use quorate_types::wire::Lane;
use quorate_types::{Domain, Height, Ledger, LogEntry, Mark, ReplicaId, ReplicaSet, Time};

/// Log bytes that may wait for a sync that nobody has asked for.
const LOG_BUFFER_BYTES_MAX: usize = 4 << 20;
/// How late a timer may fire for the sake of what lies unread or unchecked. Whoever floods a replica must not keep it
/// from suspecting a leader.
const LATE_NS: u64 = 20_000_000;
/// Where safety rests on a bound on delays, what was held while the disk or the service took longer than this leaves when
/// everything that has come meanwhile was read: it may be what keeps the replica from saying it.
const LONG_NS: u64 = 5_000_000;

/// What a turn asks for more time for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Work {
    /// Another batch of body checks.
    Check,
    /// Another block to execute.
    Execute,
}

/// Why a host must stop.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    /// The disk failed, is full, or holds what cannot be.
    #[error(transparent)]
    Storage(#[from] quorate_storage::Fault),
    /// The replica has stopped for safety's sake.
    #[error("{0}")]
    Stopped(Alarm),
    /// The host could not be opened.
    #[error(transparent)]
    Open(#[from] OpenFault),
}

/// How a turn has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TurnEnd {
    /// Everything is done: sleep until something arrives or [`Host::deadline`].
    Idle,
    /// Something is left to do: look at the sockets and take another turn, without sleeping.
    Owing,
}

/// See the crate.
pub struct Host<D: Disk> {
    pub(crate) replica: Replica,
    pub(crate) intake: Intake,
    pub(crate) store: Store<D>,
    pub(crate) executor: Executor,
    pub(crate) snapshots: SnapshotProgress,
    pub(crate) key: SigningKey,
    pub(crate) domain: Domain,
    pub(crate) inputs: Vec<Input>,
    pub(crate) passed: Passed,
    pub(crate) sync_wanted: Mark,
    /// What is on the disk, where the replica does not know it yet.
    untold: Option<Mark>,
    /// Something has taken long since all that had come was known: what is held waits for that, for so many nanoseconds at most.
    stalled: Option<u64>,
    /// Since when it waits.
    put_off: Option<Time>,
    /// When it was looked at last whether something takes long.
    looked: Time,
    /// When what this turn handles was read.
    read: Time,
    loads: Loads,
    /// What the replica knows of whose bodies wait for their check.
    unchecked: ReplicaSet,
    kept: Height,
    own: Ledger,
}

impl<D: Disk> Host<D> {
    pub(crate) fn assemble(
        replica: Replica,
        intake: Intake,
        store: Store<D>,
        executor: Executor,
        snapshots: SnapshotProgress,
        key: SigningKey,
        domain: Domain,
    ) -> Self {
        Self {
            kept: store.kept().0,
            replica,
            intake,
            store,
            executor,
            snapshots,
            key,
            domain,
            inputs: Vec::new(),
            passed: Passed::default(),
            sync_wanted: Mark(0),
            untold: None,
            stalled: None,
            put_off: None,
            looked: Time::ZERO,
            read: Time::ZERO,
            loads: Loads::default(),
            unchecked: ReplicaSet::EMPTY,
            own: Ledger::default(),
        }
    }

    /// Takes in a frame of a peer. Nothing is sent while frames are handed in.
    pub fn peer_frame(&mut self, from: ReplicaId, frame_type: u8, body: &[u8]) {
        self.intake.peer_frame(from, frame_type, body);
    }

    /// Takes in a bundle of a client: authenticator and content, as they stand in its frame.
    pub fn client_bundle(&mut self, conn: ConnId, body: &[u8]) {
        self.intake.client_bundle(conn, body);
    }

    /// Something happened to a link: it is up, or has lost something ([`Host::loss`]). A link that resumes reports the gaps of its
    /// lanes one by one, so what was said last of the peer is not said again before anything else has happened.
    pub fn link(&mut self, peer: ReplicaId, event: LinkEvent) {
        let input = self.intake.link(peer, event);
        let is_known = |input: &Input| matches!(input, Input::Link(p, e) if *p == peer && *e == event);
        if !self.inputs.last().is_some_and(is_known) {
            self.inputs.push(input);
        }
    }

    /// What it is to the protocol that frames of a lane were lost for good: what the peer has said, where `is_incoming`, or what was
    /// said to it. Where safety rests on a bound on delays, a replica that may have missed something asks, and may have to fall
    /// silent: not for what it has said itself, whose loss its peer hears of, nor for bodies and answers, which are asked for
    /// anew. Else both sides say again what matters.
    #[must_use]
    pub fn loss(&self, lane: Lane, is_incoming: bool) -> LinkEvent {
        let is_word = lane == Lane::Consensus && is_incoming;
        if is_word || self.replica.delta_ns().is_none() { LinkEvent::Gap } else { LinkEvent::Back }
    }

    /// When a turn is needed although nothing arrives.
    #[must_use]
    pub fn deadline(&self) -> Option<Time> {
        self.replica.deadline()
    }

    /// Replicas of which so much waits for its check that they should not be read now.
    #[must_use]
    pub fn held(&self) -> ReplicaSet {
        self.intake.held()
    }

    /// The replica inside.
    #[must_use]
    pub fn replica(&self) -> &Replica {
        &self.replica
    }

    /// The application inside.
    #[must_use]
    pub fn executor(&self) -> &Executor {
        &self.executor
    }

    /// The application inside, for digests.
    pub fn executor_mut(&mut self) -> &mut Executor {
        &mut self.executor
    }

    /// The log inside.
    #[must_use]
    pub fn store(&self) -> &Store<D> {
        &self.store
    }

    /// What the wall clock says at `Time(0)`, where that comes after the opening.
    pub fn set_wall_offset(&mut self, ns: u64) {
        self.replica.set_wall_offset(ns);
    }

    /// How long the longest sync since the last call has taken, in nanoseconds.
    pub fn take_longest_sync_ns(&mut self) -> u64 {
        self.store.take_longest_sync_ns()
    }

    /// Ends the host and gives its disk back: for restarts in the simulator.
    pub fn into_disk(self) -> D {
        self.store.into_disk()
    }

    /// What the work so far has cost, without the network's part.
    #[must_use]
    pub fn ledger(&self) -> Ledger {
        let mut ledger = self.own;
        ledger.add(self.intake.ledger());
        ledger.add(self.store.ledger());
        (ledger.requests, ledger.bundles, ledger.blocks) = self.executor.counts();
        ledger
    }

    /// One turn. `drained` says whether everything that had arrived before `due` was handed in; if not, timers fire
    /// somewhat later, because what would have stopped them may lie unread. None fire without `due`. `more` says whether there is time for more work of a kind; it is asked after each piece.
    ///
    /// # Errors
    /// When the disk fails or the replica has stopped for safety's sake. Nothing may be sent after that.
    pub fn turn(
        &mut self,
        now: Time,
        due: Option<Time>,
        drained: bool,
        more: &mut dyn FnMut(Work) -> bool,
        out: &mut dyn Outgoing,
    ) -> Result<TurnEnd, Fault> {
        self.own.turns = self.own.turns.wrapping_add(1);
        self.check(more, out);
        let synced = self.store.ledger().syncs;
        let mut now = now;
        let (mut syncs, mut slice, mut is_first) = (0, true, true);
        let mut reads = Reads::default();
        self.read = due.unwrap_or(now);
        loop {
            self.handle(now);
            if std::mem::take(&mut is_first) {
                // No body keeps anybody from saying anything.
                self.handled(drained && self.intake.has_passed_messages(), out)?;
            }
            if let Some(due) = due {
                // The tie rule: a timer fires only after everything that had arrived before it.
                let is_drained = drained && self.intake.is_drained();
                self.replica.tick(if is_drained { due } else { due.minus(LATE_NS) });
            }
            self.looked = out.now();
            self.route(out, false)?;
            // What is not held leaves before the disk is asked.
            out.flush();
            if syncs == 0 && !self.snapshots.is_next() && self.owes_sync() {
                syncs = 1;
                self.untold = Some(self.store.write_and_sync()?);
            }
            self.look(out);
            self.release(out)?;
            // However often this turn goes round, it executes for one slice and reads for a few laggards.
            slice = slice && self.execute(more);
            self.loads.serve(&mut self.store, &mut reads, &mut self.inputs)?;
            self.look(out);
            if self.inputs.is_empty() {
                break;
            }
            // A wait that begins at an own copy begins when that has left, and not before the disk was asked.
            now = now.max(out.now());
        }
        let snapshot_needs = self.snapshots.step(syncs > 0, &mut self.store, &mut self.executor)?;
        self.look(out);
        self.own.turn_syncs_max = self.own.turn_syncs_max.max(self.store.ledger().syncs.wrapping_sub(synced));
        self.sync_wanted = self.sync_wanted.max(snapshot_needs);
        out.flush();
        let owing = self.owes_sync() || !self.intake.is_drained() || self.executor.has_work();
        let owing = owing || !self.loads.is_empty() || self.snapshots.is_busy() || self.untold.is_some();
        Ok(if owing { TurnEnd::Owing } else { TurnEnd::Idle })
    }

    fn handle(&mut self, now: Time) {
        let mut inputs = std::mem::take(&mut self.inputs);
        for input in inputs.drain(..) {
            self.replica.handle(now, input);
        }
        self.inputs = inputs;
    }

    /// What was read for this turn is handled, and `is_all` that had come. What was put off leaves now, before the disk is asked
    /// again: it would be put off for ever where the disk takes long in each turn.
    fn handled(&mut self, is_all: bool, out: &mut dyn Outgoing) -> Result<(), Fault> {
        let Some(delta_ns) = self.replica.delta_ns() else { return Ok(()) };
        self.looked = out.now();
        if self.untold.is_some() {
            // To append may take as long as to sync: what this turn writes is written before it is asked how long ago was read.
            self.route(out, false)?;
            out.flush();
        }
        // Whoever floods a replica, or talks without end, must not keep it silent.
        let is_enough =
            || self.put_off.zip(self.stalled).is_some_and(|(since, most)| self.read >= since.plus(most));
        // Who stood still between reading and this does not know what has come since.
        let is_recent = out.now().since(self.read) <= delta_ns.max(LATE_NS);
        if is_recent && (is_all || is_enough()) {
            self.stalled = None;
        }
        self.release(out)?;
        // What this turn has said itself waits for that as well.
        self.look(out);
        // A wait begins when its vote has left.
        self.handle(out.now());
        Ok(())
    }

    /// Where safety rests on a bound on delays: whether something has taken so long, the disk or the service since the last look
    /// or anything at all since the reading, that what lies unread may be what keeps the replica from saying what it holds.
    fn look(&mut self, out: &mut dyn Outgoing) {
        let Some(delta_ns) = self.replica.delta_ns() else { return };
        let now = out.now();
        let span_ns = now.since(std::mem::replace(&mut self.looked, now));
        if span_ns > delta_ns / 4 || now.since(self.read) > delta_ns / 2 {
            self.stalled = Some(delta_ns);
        } else if span_ns > LONG_NS {
            // It may take that long each time.
            self.stalled.get_or_insert(LATE_NS);
        }
    }

    /// Lets go what was held until the disk had it, before anything else asks the disk.
    fn release(&mut self, out: &mut dyn Outgoing) -> Result<(), Fault> {
        if self.untold.is_some() && self.stalled.is_some() {
            self.put_off.get_or_insert(out.now());
            return Ok(());
        }
        if let Some(mark) = self.untold.take() {
            self.put_off = None;
            self.replica.handle(out.now(), Input::Durable(mark));
            self.route(out, true)?;
            out.flush();
        }
        Ok(())
    }

    /// Checks what was handed in; answers what needs no replica.
    fn check(&mut self, more: &mut dyn FnMut(Work) -> bool, out: &mut dyn Outgoing) {
        let mut passed = std::mem::take(&mut self.passed);
        self.intake.run(&self.replica, &self.executor, &mut || more(Work::Check), &mut passed);
        for input in &passed.inputs {
            match input {
                Input::Client(conn, bundle) => out.proven(*conn, &bundle.client()),
                Input::Peer(checked) => out.passed(checked.link),
                _ => {}
            }
        }
        self.inputs.append(&mut passed.inputs);
        let unchecked = self.intake.unchecked();
        if unchecked != self.unchecked {
            self.unchecked = unchecked;
            self.inputs.push(Input::Unchecked(unchecked));
        }
        for (conn, client, reply) in passed.replies.drain(..) {
            out.reply_to(conn, &client, &reply);
        }
        for refused in passed.refused.drain(..) {
            out.rejected(refused.source, refused.kind, refused.reason, refused.is_breach);
            if let (Source::Client(conn), Some((client, bundle, why))) = (refused.source, refused.answer) {
                out.refuse(conn, &client, bundle, why);
            }
        }
        self.passed = passed;
    }

    fn owes_sync(&self) -> bool {
        self.sync_wanted > self.store.durable() || self.store.buffered() > LOG_BUFFER_BYTES_MAX
    }

    /// Does what the replica wants done. What is `released` leaves before the disk is asked again: to append may take as long as
    /// to sync.
    fn route(&mut self, out: &mut dyn Outgoing, mut released: bool) -> Result<(), Fault> {
        while let Some(output) = self.replica.poll() {
            match output {
                Output::Persist { mark, entry } => {
                    if std::mem::take(&mut released) {
                        out.flush();
                    }
                    self.store.append(mark, &entry)?;
                    if let LogEntry::Decided { height, id } = entry {
                        out.decided(height, id);
                    }
                }
                Output::Sync(mark) => self.sync_wanted = self.sync_wanted.max(mark),
                Output::Send { to, lane, frame } => {
                    let own = match &frame {
                        Unsealed::Protocol { own, .. } | Unsealed::Host { own, .. } => *own,
                        Unsealed::Bundle(_) | Unsealed::Payload(_) => None,
                    };
                    let sealed = seal(&self.key, &self.domain, frame);
                    self.own.signatures_made =
                        self.own.signatures_made.wrapping_add(u64::from(sealed.signature.is_some()));
                    out.peer(to, lane, sealed.frame_type, sealed.body);
                    // The own copy comes back after its bytes are queued to the peers.
                    if let Some(ticket) = own {
                        self.inputs.push(Input::Own(ticket, sealed.signature));
                    }
                }
                Output::Execute(block) => self.executor.push(block),
                Output::Reply { client, reply } => out.reply(&client, &reply),
                Output::Refuse { conn, client, bundle, why } => out.refuse(conn, &client, bundle, why),
                Output::Load { to, height, id } => self.queue_load(Load::Block { to, height, id }),
                Output::LoadIds { to, from } => {
                    self.queue_load(Load::Ids { to, from, ids: Vec::new() });
                }
                Output::Rejected { from, kind, why } => {
                    out.rejected(Source::Peer(from), kind, why.name(), why.is_breach());
                }
                Output::Urgent(peer) => {
                    self.intake.set_urgent(peer);
                    out.urgent(peer);
                }
                // Whatever else it wanted to say stays unsaid.
                Output::Stop(alarm) => return Err(Fault::Stopped(alarm)),
                Output::Trace(note) => out.trace(note),
            }
        }
        if self.store.take_base_due() {
            self.inputs.push(Input::Rolled);
        }
        let kept = self.store.kept().0;
        if kept != self.kept {
            self.kept = kept;
            self.inputs.push(Input::Kept(kept));
        }
        let status = self.replica.leader();
        (self.executor.view, self.executor.leader) = status;
        Ok(())
    }

    /// Executes what is decided: after the sends, so that others work while we execute. False when the time for
    /// it is used up.
    fn execute(&mut self, more: &mut dyn FnMut(Work) -> bool) -> bool {
        while let Some(executed) = self.executor.run_one() {
            self.inputs.push(Input::Executed(executed));
            if !more(Work::Execute) {
                return false;
            }
        }
        true
    }

    fn queue_load(&mut self, load: Load) {
        if let Err(load) = self.loads.push(load) {
            // It asks somebody else, and not only when it has waited in vain.
            self.inputs.push(load.in_vain());
        }
    }
}
