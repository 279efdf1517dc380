//! The replica and its steps: an input, a tick, or a poll.

use crate::amnesia::Amnesia;
use crate::checkpoint::Checkpoints;
use crate::host_services::HostServices;
use crate::input::Input;
use crate::order::OrderQuestions;
use crate::outbox::Outbox;
use crate::output::Output;
use crate::peer_exchange::PeerExchange;
use crate::recording::{Sink, StepRecorder};
use crate::sequencer::Sequencer;
use crate::setup::ReplicaSetup;
use crate::status::AlarmStatus;
use crate::synchrony::SynchronyGuard;
use crate::window::WindowCell;
use quorate_consensus::parts::block_tree::BlockTree;
use quorate_consensus::{AnyProtocol, Effect, Entry, MessageRole, Status};
use quorate_types::{BlockId, Height, Incarnation, Time, View};
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

/// One replica.
pub struct Replica {
    pub(crate) entry: Entry,
    pub(crate) setup: ReplicaSetup,
    pub(crate) incarnation: Incarnation,
    /// The way back of a replica that has lost its disk; `None` for one that remembers its promises.
    pub(crate) amnesia: Option<Amnesia>,
    /// Whether nothing is executed before a state has come from peers.
    pub(crate) awaits_state: bool,
    pub(crate) running: RunningProtocol,
    pub(crate) blocks: BlockTree,
    pub(crate) services: HostServices,
    pub(crate) outbox: Outbox,
    pub(crate) sequencer: Sequencer,
    pub(crate) peers: PeerExchange,
    pub(crate) checkpoints: Checkpoints,
    pub(crate) logged: LoggedBlocks,
    pub(crate) orders: OrderQuestions,
    pub(crate) alarms: AlarmStatus,
    pub(crate) out: VecDeque<Output>,
    pub(crate) now: Time,
    pub(crate) recorder: Option<StepRecorder>,
}

/// The protocol, with the effects that it asks for and the state that it reported last.
pub(crate) struct RunningProtocol {
    pub(crate) protocol: Box<dyn AnyProtocol>,
    /// Effects of the last call that are not carried out yet.
    pub(crate) effects: Vec<Effect>,
    /// Its status at the end of the last step.
    pub(crate) status: Status,
    /// The last view to whose leader this replica has forwarded pending bundles.
    pub(crate) forwarded: View,
    /// Whether the pending bundles have changed and the protocol was not told yet.
    pub(crate) pending_changed: bool,
    /// The role of the messages that it has sent in the last step; the highest one if there are several.
    pub(crate) sent_role: Option<MessageRole>,
    /// The window, shared with the intake.
    pub(crate) window: Arc<WindowCell>,
}

/// The blocks that the log has.
#[derive(Debug)]
pub(crate) struct LoggedBlocks {
    /// Blocks of the tree whose header and payload are in the log.
    pub(crate) ids: BTreeSet<BlockId>,
    /// The first decided height whose block the log still keeps.
    pub(crate) kept: Height,
}

impl std::fmt::Debug for Replica {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.status())
    }
}

impl Replica {
    /// Takes in an event. Never fires timers.
    pub fn handle(&mut self, now: Time, input: Input) {
        if let Some(recorder) = &mut self.recorder {
            recorder.input(now, &input);
        }
        self.running.sent_role = None;
        if self.alarms.stopped.is_some() {
            return;
        }
        self.now = self.now.max(now);
        if let Some(guard) = &mut self.services.synchrony {
            guard.before_input(self.now);
        }
        match input {
            Input::Peer(checked) => self.on_peer(checked),
            Input::Client(conn, bundle) => self.on_client(conn, bundle),
            Input::Bundle { from, bundle, pending } => self.on_bundle(from, bundle, pending),
            Input::Payload(from, payload) => {
                let now = self.now;
                self.services.bodies.add_payload(&self.services.pool, &self.blocks, (now, from), payload);
            }
            Input::Own(ticket, signature) => self.on_own(ticket, signature),
            Input::Durable(mark) => self.on_durable(mark),
            Input::Executed(executed) => self.on_executed(executed),
            Input::Link(peer, event) => self.on_link(peer, event),
            Input::Stored(to, id, block) => self.on_stored(to, id, block),
            Input::StoredIds(to, from, ids) => self.on_stored_ids(to, from, ids),
            Input::Kept(height) => self.logged.kept = height,
            Input::Rolled => self.write_base(),
            Input::Unchecked(peers) => self.services.bodies.unchecked = peers,
            Input::AskOrder { conn, client, bundle } => self.on_ask_order(conn, client, bundle),
            Input::Disconnected(conn) => self.orders.disconnect(conn),
            Input::OwnStatement(statement) => self.on_own_statement(&statement),
            Input::WantHeights(until) => {
                self.services.wanted.want(until, self.sequencer.contiguous());
                self.running.pending_changed = true;
            }
        }
        self.settle();
        self.send_probe();
    }

    /// Fires due timers, in the order of (time, timer). The driver calls it after everything that had arrived by `due`
    /// was handled, or a little later where more input keeps arriving.
    pub fn tick(&mut self, due: Time) {
        if let Some(recorder) = &mut self.recorder {
            recorder.tick(due);
        }
        self.running.sent_role = None;
        if self.alarms.stopped.is_some() {
            return;
        }
        self.now = self.now.max(due);
        self.tick_guard(due);
        while self.alarms.stopped.is_none() && self.running.protocol.deadline().is_some_and(|at| at <= due) {
            self.call(|protocol, env| protocol.fire(env, due));
            self.settle();
        }
        self.tick_host();
        self.settle();
        self.send_probe();
    }

    /// Returns the next output; `None` when there is no more.
    pub fn poll(&mut self) -> Option<Output> {
        // The protocol proposes after all inputs that the driver has handed in, so that blocks fill by themselves.
        if self.is_poll_a_step() {
            (self.running.pending_changed, self.running.sent_role) = (false, None);
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

    /// Whether the next [`Replica::poll`] tells the protocol that the pool has changed, so that it may propose.
    #[must_use]
    pub fn is_poll_a_step(&self) -> bool {
        self.running.pending_changed && self.alarms.stopped.is_none()
    }

    /// Returns the role of the messages that the protocol has sent in the last step: an input, a tick, or a poll that is a
    /// step. If there are several, the highest one counts. `None` if it has sent none with a role.
    #[must_use]
    pub fn sent_role(&self) -> Option<MessageRole> {
        self.running.sent_role
    }

    /// Sets the wall-clock time at `Time(0)`. An opening may take long, and where the replica's clock begins after it,
    /// that time is unknown before.
    pub fn set_wall_offset(&mut self, ns: u64) {
        assert!(self.recorder.is_none(), "a replay begins with the offset of the setup");
        self.services.wall_offset_ns = ns;
    }

    /// Records every following step of this replica into `sink`. A [`Replay`] needs all steps, so call this before the
    /// first.
    ///
    /// [`Replay`]: crate::Replay
    pub fn record(&mut self, sink: Sink) {
        self.recorder = Some(StepRecorder::new(sink));
    }

    /// Returns the time at which [`Replica::tick`] has work to do.
    #[must_use]
    pub fn deadline(&self) -> Option<Time> {
        if self.alarms.stopped.is_some() {
            return None;
        }
        let deadlines = [
            self.running.protocol.deadline(),
            self.services.bodies.deadline(),
            self.services.pool.deadline(),
            self.outbox.deadline(),
            self.peers.decisions.deadline(),
            self.services.synchrony.as_ref().map(SynchronyGuard::deadline),
            Some(self.peers.announce_at),
            self.amnesia.as_ref().map(Amnesia::deadline),
        ];
        deadlines.into_iter().flatten().min()
    }
}
