//! Clients in the world.

use super::reporting::FrameReader;
use super::{Event, World};
use crate::arrival::Arrival;
use crate::client::{ClientAction, Workload};
use crate::oracles::{Failure, Oracle};
use crate::queue::EventClass;
use crate::secs;
use crate::settings::is_synchronous;
use crate::trace::{Fingerprint, Transit, Who};
use bytes::Bytes;
use quorate_client::core::{Fate, LinkState};
use quorate_history::{Op, OpId, is_explained_by, judge, result_text};
use quorate_types::codec::Wire as _;
use quorate_types::{ReplicaId, Time};

/// Longest time of a fresh client for its session and its reads.
const READING_NS: u64 = secs(10);

impl World {
    /// Starts a client: it connects and asks for a session.
    pub(super) fn begin_client(&mut self, client: usize) {
        for id in self.replicas() {
            if self.is_running(id) {
                self.connect_client(client, id, 0);
            }
        }
        let now = self.now;
        if let Some(client) = self.clients.get_mut(client) {
            client.open(now);
        }
        self.serve_client(client);
    }

    /// Connects a client to a replica after a while. From then on the replica knows where to send replies.
    pub(super) fn connect_client(&mut self, client: usize, replica: ReplicaId, after_ns: u64) {
        let at = self.now.plus(after_ns);
        let state = LinkState::Up;
        self.queue.push(at, EventClass::Arrival, Event::Link { client, replica, state });
    }

    /// Returns the clients that have started.
    pub(super) fn begun(&self) -> Vec<usize> {
        (0..self.clients.len())
            .filter(|at| self.clients.get(*at).is_some_and(|client| client.nonce() > 0))
            .collect()
    }

    pub(super) fn client_link(&mut self, client: usize, replica: ReplicaId, state: LinkState) {
        // The replica may have stopped or started since the event was scheduled.
        if self.is_running(replica) != (state == LinkState::Up) {
            return;
        }
        let now = self.now;
        let Some(known) = self.clients.get_mut(client) else { return };
        known.link(now, replica, state);
        let key = known.core().client();
        if let Some(slot) = self.slot_mut(replica) {
            match state {
                LinkState::Up => slot.attach(client, key),
                LinkState::Down => slot.detach(client),
            }
        }
        self.serve_client(client);
    }

    /// Gives a client a workload from now on.
    pub fn load(&mut self, client: usize, workload: Workload) {
        let now = self.now;
        if let Some(client) = self.clients.get_mut(client) {
            client.load(now, workload);
        }
        self.serve_client(client);
    }

    /// Gives all clients a workload but the last, which is for the reads at the end.
    pub fn load_all(&mut self, workload: Workload) {
        for client in 0..self.settings.clients {
            self.load(client, workload);
        }
    }

    /// Submits operations of a client together. Returns their ids in the history.
    pub fn submit(&mut self, client: usize, ops: &[Op]) -> Vec<OpId> {
        let ids = ops.iter().map(|op| self.call(client, op.clone())).collect();
        self.serve_client(client);
        ids
    }

    fn call(&mut self, client: usize, op: Op) -> OpId {
        let now = self.now;
        let id = self.history.call(now, client, op.clone());
        self.oracles.order.called(id);
        self.trace
            .note(now, Who::Client(client), "calls", &[&id.0.to_le_bytes()], || format!("#{} {op}", id.0));
        let taken = self.clients.get_mut(client).is_some_and(|client| client.submit(now, id, &op));
        if !taken {
            // The operation was never sent.
            self.counters.failed_ops = self.counters.failed_ops.saturating_add(1);
        }
        id
    }

    /// Sends a message on a client's connection that the client never sent.
    pub fn forge_client_message(&mut self, client: usize, replica: ReplicaId, message: Bytes) {
        self.send_from_client(client, replica, message);
    }

    /// Sends a message on a replica's connection to a client that the replica never sent.
    pub fn forge_reply(&mut self, client: usize, from: ReplicaId, message: Bytes) {
        let now = self.now;
        self.queue.push(now, EventClass::Arrival, Event::Hears { client, from, message });
    }

    /// Returns the session of a client.
    #[must_use]
    pub fn session(&self, client: usize) -> Option<quorate_types::SessionId> {
        self.clients.get(client).and_then(|client| client.core().session())
    }

    /// Whether a client has the answers to all its operations.
    #[must_use]
    pub fn is_done(&self, client: usize) -> bool {
        self.clients.get(client).is_none_or(|client| client.is_done())
    }

    /// Whether all clients have the answers to all their operations.
    #[must_use]
    pub fn all_done(&self) -> bool {
        self.clients.iter().all(|client| client.is_done())
    }

    /// Returns the counters of a client.
    #[must_use]
    pub fn client_counters(&self, client: usize) -> quorate_client::core::Counters {
        self.clients.get(client).map(|client| *client.core().counters()).unwrap_or_default()
    }

    pub(super) fn client_receives(&mut self, client: usize, from: ReplicaId, message: &Bytes) {
        let now = self.now;
        let Self { trace, settings, cluster, .. } = self;
        trace.note(now, Who::Client(client), "hears", &[&from.0.to_le_bytes(), message], || {
            let details = FrameReader { settings, cluster }.answer(message).from(Who::Replica(from));
            details.transit(Transit::Arrives(Fingerprint::of(message)))
        });
        if let Some(client) = self.clients.get_mut(client) {
            client.receive(now, from, message);
            if self.mutations.clients_are_credulous {
                let n = u16::try_from(self.settings.n).unwrap_or(u16::MAX).max(1);
                client.receive(now, ReplicaId(from.0.saturating_add(1) % n), message);
            }
        }
        self.serve_client(client);
    }

    pub(super) fn client_if_due(&mut self, client: usize, ticket: u64) {
        let now = self.now;
        let Some(known) = self.clients.get_mut(client) else { return };
        if known.wake.is_none_or(|(_, current)| current != ticket) {
            return;
        }
        known.wake = None;
        known.tick(now);
        let due = known.due(now);
        for op in due {
            self.call(client, op);
        }
        self.serve_client(client);
    }

    /// Carries out the actions of a client core, and schedules its next deadline.
    pub(super) fn serve_client(&mut self, client: usize) {
        let now = self.now;
        let mut actions = std::mem::take(&mut self.buffers.actions);
        while let Some(known) = self.clients.get_mut(client) {
            known.poll(now, &mut actions);
            if actions.is_empty() {
                break;
            }
            for action in actions.drain(..) {
                match action {
                    ClientAction::Send(to, frame) => self.send_from_client(client, to, frame),
                    ClientAction::Answered(id, result) => self.answered(client, id, result),
                    ClientAction::Failed(id, fate) => self.failed(client, id, fate),
                }
            }
        }
        self.buffers.actions = actions;
        let Some(known) = self.clients.get_mut(client) else { return };
        let Some(at) = known.deadline().map(|at| at.max(now.plus(1))) else { return };
        if known.wake.is_none_or(|(planned, _)| at < planned) {
            known.wakes = known.wakes.saturating_add(1);
            known.wake = Some((at, known.wakes));
            let event = Event::Client(client, known.wakes);
            self.queue.push(at, EventClass::Tick, event);
        }
    }

    fn answered(&mut self, client: usize, id: OpId, result: quorate_app::KvResult) {
        let now = self.now;
        self.trace.note(
            now,
            Who::Client(client),
            "believes",
            &[&id.0.to_le_bytes(), &result.to_bytes()],
            || format!("#{} {}", id.0, result_text(&result)),
        );
        let verdict = self.oracles.order.answered(id, &result);
        self.judge(now, verdict);
        if let (Some(record), Some(client)) = (self.history.get(id), self.clients.get_mut(client)) {
            client.learn(&record.op, &result);
        }
        self.history.answer(now, id, result);
    }

    fn failed(&mut self, client: usize, id: OpId, fate: Fate) {
        self.counters.failed_ops = self.counters.failed_ops.saturating_add(1);
        self.trace.note(self.now, Who::Client(client), "gives up", &[&id.0.to_le_bytes()], || {
            format!("#{}: {fate:?}", id.0)
        });
        if fate == Fate::NotExecuted {
            let verdict = self.oracles.order.not_executed(id);
            self.judge(self.now, verdict);
        }
    }

    pub(super) fn place(&self, client: usize) -> usize {
        self.settings.n.saturating_add(client)
    }

    /// Sends a message of a client.
    pub(super) fn send_from_client(&mut self, client: usize, to: ReplicaId, message: Bytes) {
        self.record_client_message(client, &message);
        let (now, from) = (self.now, self.place(client));
        let Self { trace, settings, cluster, .. } = self;
        trace.note(now, Who::Client(client), "sends", &[&to.0.to_le_bytes(), &message], || {
            let details = FrameReader { settings, cluster }.request(&message).to([Who::Replica(to)]);
            details.transit(Transit::Leaves(Fingerprint::of(&message)))
        });
        self.count_faults(self.network.map.get(from, to.index()).faults);
        match self.network.client_channels.post(
            &mut self.rngs.network,
            &self.network.map,
            now,
            from,
            to.index(),
        ) {
            Some(at) => {
                let arrival = Arrival::Client { index: client, message };
                self.queue.push(at, EventClass::Arrival, Event::Arrives(to, arrival));
            }
            None => self.report_lost_client_message(now, from, to.index(), &message),
        }
    }

    /// Sends a message to a client.
    pub(super) fn reply(&mut self, at: Time, from: ReplicaId, client: usize, message: Bytes) {
        let to = self.place(client);
        let message = match &mut self.hooks.reply {
            Some(hook) => hook(from, client, message),
            None => Some(message),
        };
        let Some(message) = message else { return };
        let Self { trace, settings, cluster, .. } = self;
        trace.report(at, Who::Replica(from), "sends", || {
            let details = FrameReader { settings, cluster }.answer(&message).to([Who::Client(client)]);
            details.transit(Transit::Leaves(Fingerprint::of(&message)))
        });
        self.count_faults(self.network.map.get(from.index(), to).faults);
        match self.network.client_channels.post(
            &mut self.rngs.network,
            &self.network.map,
            at,
            from.index(),
            to,
        ) {
            Some(at) => self.queue.push(at, EventClass::Arrival, Event::Hears { client, from, message }),
            None => self.report_lost_client_message(at, from.index(), to, &message),
        }
    }

    /// Reads every key with a fresh client, whose answers the oracles judge. The replicas' answers count, not their
    /// state.
    ///
    /// # Errors
    /// Returns a finding of an oracle, or an error when answers are late.
    pub fn read_back(&mut self) -> Result<(), Failure> {
        let span_ns = self.reading_ns();
        let reader = self.settings.clients;
        let mut keys: Vec<String> =
            self.history.records().iter().map(|record| record.op.key().to_owned()).collect();
        keys.sort_unstable();
        keys.dedup();
        if keys.is_empty() {
            return Ok(());
        }
        self.begin_client(reader);
        let ops: Vec<Op> = keys.into_iter().map(|key| Op::Get { key }).collect();
        self.submit(reader, &ops);
        self.run_while("a fresh client has read every key", span_ns, |world| !world.is_done(reader))?;
        if self.failed_ops_of(reader) > 0 {
            let what = "a fresh client was refused".to_owned();
            self.judge(self.now, Err((Oracle::Liveness, what)));
        }
        self.so_far()
    }

    /// Returns the longest time of a fresh client for its session and its reads. With a bound on delays, each of them
    /// may meet silent leaders, for as long as honest leaders of an idle cluster are.
    fn reading_ns(&self) -> u64 {
        let each = if is_synchronous(&self.settings.entry) { self.recovery(0, 0).0 } else { 0 };
        READING_NS.max(each.saturating_mul(2))
    }

    /// Judges the answers of clients. If the replicas' order explains all answers, it is a proof. Only otherwise is
    /// another order searched for, which may take seconds.
    pub(super) fn judge_history(&mut self) {
        let records = self.history.records();
        if is_explained_by(records, self.oracles.order.operations()) {
            return;
        }
        let findings = judge(records);
        let illegal = findings.illegal.into_iter().map(|illegal| illegal.picture).next();
        let undecided = findings.undecided.len();
        let too_hard = || {
            format!(
                "{undecided} keys are too expensive to judge, and the replicas' order does not explain their \
                     answers"
            )
        };
        if let Some(what) = illegal.or_else(|| (undecided > 0).then(too_hard)) {
            self.judge(self.now, Err((Oracle::Linearizable, what)));
        }
    }

    fn failed_ops_of(&self, client: usize) -> usize {
        let records = self.history.records().iter();
        records.filter(|record| record.client == client && record.answered.is_none()).count()
    }
}
