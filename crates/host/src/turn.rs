//! One turn: from arrived inputs to frames that leave.

use crate::executor::Executor;
use crate::fault::HostFault;
use crate::log_reads::{LogRead, LogReads, ReadBudget};
use crate::open::DivergedState;
use crate::outgoing::{Outgoing, seal};
use crate::release_gate::ReleaseGate;
use crate::snapshots::SnapshotProgress;
use crate::steps::StepKind;
use crate::transfer::{Transfer, TransferStatus};
use quorate_consensus::LinkEvent;
use quorate_crypto::SigningKey;
use quorate_replica::{
    CheckedMessage, ConnId, FrameSource, HostMessage, Input, Intake, Output, Passed, Replica, Unsealed,
};
use quorate_storage::{BoxedStore, Disk};
use quorate_types::wire::Lane;
use quorate_types::{
    BundleDigest, ClientId, Domain, Height, Ledger, LogEntry, Mark, ReplicaId, ReplicaSet, Time,
};
use std::collections::BTreeSet;

/// Log bytes that wait at most for a sync that no output has asked for.
const LOG_BUFFER_BYTES_MAX: usize = 4 << 20;
/// The largest delay of a timer for the sake of unread or unchecked inputs. A peer that floods a replica must not keep
/// it from suspecting a leader.
const TIMER_DELAY_NS_MAX: u64 = 20_000_000;

/// The kind of work for which a turn asks for more time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TurnWork {
    /// Another batch of body checks.
    Check,
    /// Another block to execute.
    Execute,
}

/// The state of a host at the end of a turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TurnEnd {
    /// All work is done: sleep until input arrives or until [`Host::deadline`].
    Idle,
    /// Work remains: poll the sockets and take another turn, without sleeping.
    Owing,
    /// A state of peers is on the disk. The host does no more work: close it, and open it anew on [`Host::into_disk`].
    Transferred,
}

/// The time at which queued frames leave while outputs are carried out.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
enum FlushTime {
    /// After all outputs.
    #[default]
    Late,
    /// Before the next append, which may take as long as a sync.
    BeforeAppend,
}

/// See the crate.
pub struct Host {
    pub(crate) replica: Replica,
    pub(crate) intake: Intake,
    pub(crate) store: BoxedStore,
    pub(crate) executor: Executor,
    pub(crate) snapshots: SnapshotProgress,
    pub(crate) transfer: Transfer,
    pub(crate) key: SigningKey,
    pub(crate) domain: Domain,
    pub(crate) inputs: Vec<Input>,
    pub(crate) passed: Passed,
    pub(crate) sync_wanted: Mark,
    pub(crate) gate: ReleaseGate,
    pub(crate) log_reads: LogReads,
    /// Replicas whose bodies wait for their check, as the replica knows them.
    pub(crate) unchecked: ReplicaSet,
    pub(crate) kept: Height,
    /// Heights between two checkpoints.
    pub(crate) checkpoint_every: u64,
    /// Connections that have asked for the order of a bundle.
    pub(crate) order_askers: BTreeSet<ConnId>,
    pub(crate) own: Ledger,
    /// The state that was dropped, because a quorum has signed another one.
    pub(crate) diverged: Option<DivergedState>,
}

impl Host {
    /// Takes in a frame of a peer. Nothing is sent while frames are handed in.
    pub fn peer_frame(&mut self, from: ReplicaId, frame_type: u8, body: &[u8]) {
        self.intake.peer_frame(from, frame_type, body);
    }

    /// Takes in a bundle of a client: authenticator and content, in the encoding of its frame.
    pub fn client_bundle(&mut self, conn: ConnId, body: &[u8]) {
        self.intake.client_bundle(conn, body);
    }

    /// Takes in a client's question for the order of a bundle. [`Outgoing::order`] answers it, once a block with the bundle is
    /// decided.
    pub fn ask_order(&mut self, conn: ConnId, client: ClientId, bundle: BundleDigest) {
        self.order_askers.insert(conn);
        self.inputs.push(Input::AskOrder { conn, client, bundle });
    }

    /// Notes that a client's connection is gone.
    pub fn client_gone(&mut self, conn: ConnId) {
        if self.order_askers.remove(&conn) {
            self.inputs.push(Input::Disconnected(conn));
        }
    }

    /// Takes in an event of a link: the link is up, or has lost frames ([`Host::loss`]). A link that resumes reports the
    /// gap of each lane, so an event that equals the last input is dropped.
    pub fn link(&mut self, peer: ReplicaId, event: LinkEvent) {
        let input = self.intake.link(peer, event);
        let is_known = |input: &Input| matches!(input, Input::Link(p, e) if *p == peer && *e == event);
        if !self.inputs.last().is_some_and(is_known) {
            self.inputs.push(input);
        }
    }

    /// Returns the link event for frames of a lane that are lost for good. `is_incoming` tells whether the peer or this
    /// host sent them.
    ///
    /// If safety rests on a bound on delays, a gap makes the replica ask its peers, and may stop it from voting. So
    /// only lost consensus messages of the peer are a gap. The peer hears of the loss of this host's own messages;
    /// bodies and answers are requested again. Without a bound both sides send again what matters.
    #[must_use]
    pub fn loss(&self, lane: Lane, is_incoming: bool) -> LinkEvent {
        let is_peers_message = lane == Lane::Consensus && is_incoming;
        if is_peers_message || self.replica.delta_ns().is_none() { LinkEvent::Gap } else { LinkEvent::Back }
    }

    /// Returns the time at which a turn is needed although no input arrives.
    #[must_use]
    pub fn deadline(&self) -> Option<Time> {
        [self.replica.deadline(), self.transfer.deadline()].into_iter().flatten().min()
    }

    /// Returns the reason why the disk gave no usable state; `None` when it did.
    #[must_use]
    pub fn missing_state(&self) -> Option<&str> {
        self.store.missing_state()
    }

    /// Returns the progress of a needed transfer of state; `None` when none is needed.
    #[must_use]
    pub fn transfer(&self) -> Option<TransferStatus> {
        self.transfer.status()
    }

    /// See [`Intake::ignore_own_statements`].
    pub fn ignore_own_statements(&mut self) {
        self.intake.ignore_own_statements();
    }

    /// Notes, durably, that the own states from this height on are wrong: after [`quorate_consensus::Alarm::StateDiverged`].
    /// The next opening has no state, and receives one from peers.
    ///
    /// # Errors
    /// Fails when the disk fails.
    pub fn distrust(&mut self, height: Height) -> Result<(), HostFault> {
        self.store.distrust(height)?;
        let state = self.executor.execution_mut().snapshot();
        self.diverged = Some(DivergedState { height, state });
        Ok(())
    }

    /// Returns the state that was dropped, at the opening or later, because a quorum has signed another one; once.
    pub fn take_diverged(&mut self) -> Option<DivergedState> {
        self.diverged.take()
    }

    /// Closes the host and returns its disk. Everything that binds the replica is durable.
    #[must_use]
    pub fn into_disk(self) -> Box<dyn Disk> {
        self.store.into_disk()
    }

    /// Returns the replicas whose sockets are paused, because much of theirs waits for its check (back-pressure).
    #[must_use]
    pub fn paused_peers(&self) -> ReplicaSet {
        self.intake.paused_peers()
    }

    /// Returns the replica.
    #[must_use]
    pub fn replica(&self) -> &Replica {
        &self.replica
    }

    /// Returns the application.
    #[must_use]
    pub fn executor(&self) -> &Executor {
        &self.executor
    }

    /// Returns the application, to compute digests.
    pub fn executor_mut(&mut self) -> &mut Executor {
        &mut self.executor
    }

    /// Returns the log.
    #[must_use]
    pub fn store(&self) -> &BoxedStore {
        &self.store
    }

    /// Sets the wall-clock time at `Time(0)`, where the replica's clock begins after the opening.
    pub fn set_wall_offset(&mut self, ns: u64) {
        self.replica.set_wall_offset(ns);
    }

    /// Returns the duration of the longest sync since the last call, in nanoseconds.
    pub fn take_longest_sync_ns(&mut self) -> u64 {
        self.store.take_longest_sync_ns()
    }

    /// Returns the cost of the work so far, without the network's part.
    #[must_use]
    pub fn ledger(&self) -> Ledger {
        let mut ledger = self.own;
        ledger.add(self.intake.ledger());
        ledger.add(self.store.ledger());
        (ledger.requests, ledger.bundles, ledger.blocks) = self.executor.counts();
        ledger
    }

    /// Takes one turn.
    ///
    /// * `drained` tells whether everything that had arrived before `due` was handed in. If not, timers fire up to 20 ms
    ///   late, because an unread input may stop them. Without `due` no timer fires.
    /// * `more` tells whether there is time for more work of a kind. The turn asks it after each piece.
    ///
    /// # Errors
    /// Fails when the disk fails or safety is broken. Nothing may be sent after that.
    pub fn turn(
        &mut self,
        now: Time,
        due: Option<Time>,
        drained: bool,
        more: &mut dyn FnMut(TurnWork) -> bool,
        out: &mut dyn Outgoing,
    ) -> Result<TurnEnd, HostFault> {
        let began = out.stopwatch_ns();
        let end = self.take_turn(now, due, drained, more, out)?;
        let ns = out.stopwatch_ns().saturating_sub(began);
        out.step(StepKind::Turn, ns);
        Ok(end)
    }

    fn take_turn(
        &mut self,
        now: Time,
        due: Option<Time>,
        drained: bool,
        more: &mut dyn FnMut(TurnWork) -> bool,
        out: &mut dyn Outgoing,
    ) -> Result<TurnEnd, HostFault> {
        self.own.turns = self.own.turns.wrapping_add(1);
        self.check(more, out);
        let synced = self.store.ledger().syncs;
        let mut now = now;
        let (mut syncs, mut slice, mut is_first) = (0, true, true);
        let mut budget = ReadBudget::default();
        self.gate.begin_turn(due.unwrap_or(now));
        loop {
            self.handle(now, out);
            if std::mem::take(&mut is_first) {
                // Bodies forbid no promise, so unread bodies do not count.
                self.on_handled(drained && self.intake.has_passed_messages(), out)?;
            }
            if let Some(due) = due {
                // The tie rule: a timer fires only after everything that had arrived before it.
                let is_drained = drained && self.intake.is_drained();
                self.tick(if is_drained { due } else { due.minus(TIMER_DELAY_NS_MAX) }, out);
            }
            self.gate.begin_span(out.now());
            self.route(out, FlushTime::Late)?;
            // Frames that are not held leave before the sync.
            out.flush();
            if syncs == 0 && !self.snapshots.is_next() && self.owes_sync() {
                syncs = 1;
                self.gate.on_synced(self.store.write_and_sync()?);
            }
            self.check_gate(out);
            self.release(out)?;
            // A turn executes for one slice and reads for a few peers, however many rounds this loop takes.
            slice = slice && self.execute(more)?;
            self.log_reads.serve(&mut self.store, &mut budget, &mut self.inputs)?;
            self.check_gate(out);
            if self.inputs.is_empty() {
                break;
            }
            // A timer that an own copy starts runs from the time at which its message left, not from before the sync.
            now = now.max(out.now());
        }
        if self.after_work(out, syncs > 0)? {
            return Ok(TurnEnd::Transferred);
        }
        self.own.turn_syncs_max = self.own.turn_syncs_max.max(self.store.ledger().syncs.wrapping_sub(synced));
        let owing = self.owes_sync() || !self.intake.is_drained() || self.executor.has_work();
        let owing = owing || !self.log_reads.is_empty() || self.snapshots.is_busy() || self.gate.has_mark();
        let owing = owing || self.transfer.has_work(now, &self.replica) || !self.inputs.is_empty();
        Ok(if owing { TurnEnd::Owing } else { TurnEnd::Idle })
    }

    /// Does the work of snapshots and transfers, with at most one sync, and none where the log `has_synced` in this turn.
    /// Returns whether a state of peers is installed.
    fn after_work(&mut self, out: &mut dyn Outgoing, has_synced: bool) -> Result<bool, HostFault> {
        let now = out.now();
        let state = (&self.replica, self.executor.execution());
        self.transfer.handle(now, state, &mut self.store, out)?;
        if self.transfer.takes_wanted_heights() {
            // In an idle cluster no checkpoint would come.
            let every = self.checkpoint_every.max(1);
            let next = self.executor.height().0 / every;
            self.inputs.push(Input::WantHeights(Height(next.saturating_add(1).saturating_mul(every))));
        }
        let mut is_installed = false;
        if self.transfer.is_receiving() {
            self.snapshots.abandon();
            if !has_synced {
                is_installed = self.transfer.step(now, &self.replica, &mut self.store)?;
            }
        } else {
            let needs = self.snapshots.step(has_synced, &mut self.store)?;
            self.sync_wanted = self.sync_wanted.max(needs);
        }
        self.check_gate(out);
        out.flush();
        Ok(is_installed)
    }

    /// Releases promises that the gate held back, after the inputs of this turn were handled and before the next sync.
    /// After that sync the gate might hold them again, forever where each sync is slow.
    fn on_handled(&mut self, is_complete: bool, out: &mut dyn Outgoing) -> Result<(), HostFault> {
        if !self.gate.is_guarding() {
            return Ok(());
        }
        self.gate.begin_span(out.now());
        if self.gate.has_mark() {
            // An append may take as long as a sync, so this turn's entries are appended before the gate compares times.
            self.route(out, FlushTime::Late)?;
            out.flush();
        }
        self.gate.on_handled(out.now(), is_complete);
        self.release(out)?;
        // Promises of this turn wait for a stall in the release as well.
        self.check_gate(out);
        // A timer that a vote starts runs from the time at which the vote left.
        self.handle(out.now(), out);
        Ok(())
    }

    fn check_gate(&mut self, out: &mut dyn Outgoing) {
        if self.gate.is_guarding() {
            self.gate.check(out.now());
        }
    }

    /// Reports the durable mark to the replica and sends the promises that waited for it, unless the gate holds it back.
    fn release(&mut self, out: &mut dyn Outgoing) -> Result<(), HostFault> {
        if let Some(mark) = self.gate.release(|| out.now()) {
            self.handle_one(out.now(), Input::Durable(mark), out);
            self.route(out, FlushTime::BeforeAppend)?;
            out.flush();
        }
        Ok(())
    }

    /// Checks the frames that were handed in, and answers those that need no replica.
    fn check(&mut self, more: &mut dyn FnMut(TurnWork) -> bool, out: &mut dyn Outgoing) {
        let mut passed = std::mem::take(&mut self.passed);
        let (mut more, mut cpu_ns) = (|| more(TurnWork::Check), || out.cpu_ns());
        self.intake.run(&self.replica, &self.executor, &mut more, &mut cpu_ns, &mut passed);
        for input in &passed.inputs {
            match input {
                Input::Client(conn, bundle) => out.proven(*conn, &bundle.client()),
                Input::Peer(checked) => out.passed(checked.link),
                _ => {}
            }
        }
        if passed.inputs.iter().any(is_transfer) {
            self.take_transfers(&mut passed.inputs);
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
            if let (FrameSource::Client(conn), Some((client, bundle, why))) = (refused.source, refused.answer)
            {
                out.refuse(conn, &client, bundle, why);
            }
        }
        self.passed = passed;
    }

    /// Takes out the messages that the host handles without the replica.
    fn take_transfers(&mut self, inputs: &mut Vec<Input>) {
        for input in inputs.extract_if(.., |input| is_transfer(input)) {
            if let Input::Peer(checked) = input
                && let CheckedMessage::Host(HostMessage::Transfer(message)) = checked.message
            {
                self.transfer.push(checked.link, message);
            }
        }
    }

    fn owes_sync(&self) -> bool {
        self.sync_wanted > self.store.durable() || self.store.buffered() > LOG_BUFFER_BYTES_MAX
    }

    /// Carries out the outputs of the replica, in order.
    fn route(&mut self, out: &mut dyn Outgoing, mut flush: FlushTime) -> Result<(), HostFault> {
        while let Some(output) = self.poll(out) {
            match output {
                Output::Persist { mark, entry } => {
                    if std::mem::take(&mut flush) == FlushTime::BeforeAppend {
                        out.flush();
                    }
                    self.store.append(mark, &entry)?;
                    match entry {
                        LogEntry::Decided { height, id } => out.decided(height, id),
                        LogEntry::Proof(proof) => self.snapshots.on_proof(&proof, mark),
                        _ => {}
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
                    // The replica receives the own copy after its bytes are queued to the peers.
                    if let Some(ticket) = own {
                        self.inputs.push(Input::Own(ticket, sealed.signature));
                    }
                }
                Output::Execute(block) => self.executor.push(block),
                Output::Reply { client, reply } => out.reply(&client, &reply),
                Output::Refuse { conn, client, bundle, why } => out.refuse(conn, &client, bundle, why),
                Output::Order { conn, client, bundle, answer } => out.order(conn, &client, bundle, answer),
                Output::Load { to, height, id } => self.queue_read(LogRead::Block { to, height, id }),
                Output::LoadIds { to, from } => {
                    self.queue_read(LogRead::Ids { to, from, ids: Vec::new() });
                }
                Output::Rejected { from, kind, why } => {
                    out.rejected(FrameSource::Peer(from), kind, why.name(), why.is_breach());
                }
                Output::Urgent(peer) => {
                    self.intake.set_urgent(peer);
                    out.urgent(peer);
                }
                // Discards remaining outputs.
                Output::Stop(alarm) => return Err(HostFault::Stopped(alarm)),
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

    /// Executes decided blocks. This follows the sends, so that the peers work meanwhile. Returns false when the time for
    /// it is used up.
    fn execute(&mut self, more: &mut dyn FnMut(TurnWork) -> bool) -> Result<bool, HostFault> {
        while let Some(executed) = self.executor.run_one() {
            if executed.state.is_some() && !self.transfer.is_receiving() {
                // A snapshot contains executed heights alone: these are decided for good.
                let newest = self.replica.newest_proof();
                let is_wanted = self.transfer.is_snapshot_wanted();
                let needs =
                    self.snapshots.at_checkpoint((newest, is_wanted), &mut self.store, &mut self.executor)?;
                self.sync_wanted = self.sync_wanted.max(needs);
            }
            self.inputs.push(Input::Executed(executed));
            if !more(TurnWork::Execute) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn queue_read(&mut self, read: LogRead) {
        if let Err(read) = self.log_reads.push(read) {
            // The refusal lets the peer ask another replica at once.
            self.inputs.push(read.refusal());
        }
    }
}

/// Whether the host handles this input without the replica.
fn is_transfer(input: &Input) -> bool {
    matches!(input, Input::Peer(checked) if matches!(checked.message, CheckedMessage::Host(HostMessage::Transfer(_))))
}
