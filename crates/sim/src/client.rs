//! A simulated client: the real client core, a workload that feeds it, and the outcome of each operation.
use crate::instrumented_store::InstrumentedStore;
use bytes::Bytes;
use quorate_app::KvResult;
use quorate_client::core::{Answer, Core, Event, Fate, LinkState, Output, Settings};
use quorate_crypto::SigningKey;
use quorate_history::{Op, OpId};
use quorate_types::codec::Wire as _;
use quorate_types::rng::Rng;
use quorate_types::wire::FromReplica;
use quorate_types::{ReplicaId, Time};
use std::collections::BTreeMap;

/// The load of a client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Workload {
    /// Number of operations in all.
    pub operations: u32,
    /// Mean pause between two bundles.
    pub pause_ns: u64,
    /// Largest number of operations that are submitted together.
    pub together_max: u32,
    /// Largest number of bundles without an answer. Further operations wait for the next pause.
    pub outstanding_max: usize,
    /// Number of keys of each kind. It is small, so that order matters.
    pub keys: u64,
}

/// An action that a client core asks for.
#[derive(Debug)]
pub(crate) enum ClientAction {
    /// Sends a message to a replica.
    Send(ReplicaId, Bytes),
    /// Reports the result of an operation.
    Answered(OpId, KvResult),
    /// Reports an operation without a result, and whether it was executed.
    Failed(OpId, Fate),
}

/// A simulated client.
#[derive(Debug)]
pub(crate) struct Client {
    core: Core,
    index: usize,
    rng: Rng,
    nonce: u64,
    /// Operations of each bundle, in order.
    bundles: BTreeMap<u64, Vec<OpId>>,
    workload: Option<Workload>,
    next_at: Option<Time>,
    /// Last known value of each key, which a compare-and-swap may expect.
    seen: BTreeMap<String, String>,
    made: u64,
    /// The scheduled event that counts; earlier ones are void.
    pub(crate) wake: Option<(Time, u64)>,
    pub(crate) wakes: u64,
}

impl Client {
    pub(crate) fn new(settings: Settings, key: SigningKey, index: usize, rng: Rng) -> Self {
        Self {
            core: Core::new(settings, key),
            index,
            rng,
            nonce: 0,
            bundles: BTreeMap::new(),
            workload: None,
            next_at: None,
            seen: BTreeMap::new(),
            made: 0,
            wake: None,
            wakes: 0,
        }
    }

    /// Asks for a session.
    pub(crate) fn open(&mut self, now: Time) {
        self.nonce = self.nonce.saturating_add(1);
        self.core.open(now, self.nonce);
    }

    /// Returns the number of sessions that the client has asked for.
    pub(crate) fn nonce(&self) -> u64 {
        self.nonce
    }

    /// Returns the client core.
    pub(crate) fn core(&self) -> &Core {
        &self.core
    }

    /// Begins a workload. Remaining operations of an earlier one are added to it.
    pub(crate) fn load(&mut self, now: Time, mut workload: Workload) {
        let left = self.workload.map_or(0, |workload| workload.operations);
        workload.operations = workload.operations.saturating_add(left);
        self.workload = Some(workload);
        self.next_at = Some(now.plus(self.rng.exponential_ns(workload.pause_ns)));
    }

    /// Returns the number of bundles without an answer.
    pub(crate) fn outstanding(&self) -> usize {
        self.core.outstanding()
    }

    /// Whether every operation is answered or has failed.
    pub(crate) fn is_done(&self) -> bool {
        self.next_at.is_none() && self.bundles.is_empty()
    }

    /// Returns the operations of the workload that are due.
    pub(crate) fn due(&mut self, now: Time) -> Vec<Op> {
        let Some(mut workload) = self.workload.filter(|_| self.next_at.is_some_and(|at| at <= now)) else {
            return Vec::new();
        };
        let mut ops = Vec::new();
        if self.outstanding() < workload.outstanding_max {
            let most = u64::from(workload.together_max.min(workload.operations));
            let count = self.rng.between(1, most);
            ops.extend((0..count).map(|_| self.make(workload.keys)));
            workload.operations =
                workload.operations.saturating_sub(u32::try_from(count).unwrap_or(u32::MAX));
        }
        self.workload = Some(workload);
        let pause = self.rng.exponential_ns(workload.pause_ns).max(1);
        self.next_at = (workload.operations > 0).then(|| now.plus(pause));
        ops
    }

    fn make(&mut self, keys: u64) -> Op {
        self.made = self.made.saturating_add(1);
        let key = format!("k{}", self.rng.below(keys));
        let value = format!("c{}-{}", self.index, self.made);
        match self.rng.below(100) {
            0..35 => Op::Put { key, value },
            35..50 => Op::Get { key },
            50..55 => Op::Delete { key },
            55..75 => {
                let expect = self.seen.get(&key).cloned();
                Op::Cas { key, expect, value }
            }
            _ => {
                let key = format!("n{}", self.rng.below(keys));
                let by = i64::try_from(self.rng.below(5)).unwrap_or(0).saturating_sub(1);
                Op::Increment { key, by }
            }
        }
    }

    /// Submits an operation. Returns false when the core accepts no more.
    pub(crate) fn submit(&mut self, now: Time, id: OpId, op: &Op) -> bool {
        let Ok(ticket) = self.core.submit(now, &InstrumentedStore::encode(id, op)) else {
            return false;
        };
        self.bundles.entry(ticket.bundle).or_default().push(id);
        true
    }

    /// Handles a message of a replica.
    pub(crate) fn receive(&mut self, now: Time, from: ReplicaId, message: &[u8]) {
        if let Ok(message) = FromReplica::from_bytes(message) {
            self.core.handle(now, from, message);
        }
    }

    /// Handles a change of the connection to a replica.
    pub(crate) fn link(&mut self, now: Time, replica: ReplicaId, state: LinkState) {
        self.core.link(now, replica, state);
    }

    /// Returns the time of the next deadline.
    pub(crate) fn deadline(&self) -> Option<Time> {
        self.core.deadline().into_iter().chain(self.next_at).min()
    }

    /// Handles expired deadlines.
    pub(crate) fn tick(&mut self, now: Time) {
        self.core.tick(now);
    }

    /// Collects the actions that the core asks for.
    pub(crate) fn poll(&mut self, now: Time, actions: &mut Vec<ClientAction>) {
        while let Some(output) = self.core.poll() {
            match output {
                Output::Send { to, frame } => actions.push(ClientAction::Send(to, frame)),
                Output::Event(event) => self.event(now, event, actions),
            }
        }
    }

    fn event(&mut self, now: Time, event: Event, actions: &mut Vec<ClientAction>) {
        match event {
            Event::Opened(_) => {}
            Event::OpenFailed(_) | Event::SessionLost => self.open(now),
            Event::Done { bundle, answer, .. } => {
                let ids = self.bundles.remove(&bundle).unwrap_or_default();
                let Answer::Results(results) = answer else { return };
                for (index, id) in ids.into_iter().enumerate() {
                    let result = u32::try_from(index).ok().and_then(|index| results.get(index));
                    let result = result.map(KvResult::from_bytes);
                    // A result that does not decode is wrong, and no operation of the workload has such a result.
                    let result = result.and_then(Result::ok).unwrap_or(KvResult::Padding(0));
                    actions.push(ClientAction::Answered(id, result));
                }
            }
            // No operation of a workload asks for its order.
            Event::Ordered { .. } => {}
            Event::Failed { bundle, why, .. } => {
                let ids = self.bundles.remove(&bundle).unwrap_or_default();
                actions.extend(ids.into_iter().map(|id| ClientAction::Failed(id, why.fate())));
            }
        }
    }

    /// Remembers the result of an operation for later compare-and-swaps.
    pub(crate) fn learn(&mut self, op: &Op, result: &KvResult) {
        match (op, result) {
            (Op::Put { key, value } | Op::Cas { key, value, .. }, KvResult::Done) => {
                self.seen.insert(key.clone(), value.clone());
            }
            (Op::Get { key }, KvResult::Value(value)) => {
                self.seen.insert(key.clone(), String::from_utf8_lossy(value).into_owned());
            }
            (Op::Get { key } | Op::Delete { key }, _) => {
                self.seen.remove(key);
            }
            _ => {}
        }
    }
}
