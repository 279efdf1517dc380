//! A few harnesses and the messages between them.

use super::lines::brief;
use super::replica::Harness;
use super::setup::Setup;
use crate::effect::{Commit, To};
use crate::message::Message;
use crate::past::OpenError;
use crate::protocol::Protocol;
use quorate_types::{Block, BlockId, Height, ReplicaId, ReplicaSet, Wire, quorum};
use std::collections::{BTreeMap, VecDeque};

/// Replicas that run the same protocol, joined by a queue that delivers in order. The host's work is done in its simplest
/// form: a wanted block is copied from the peer, decided blocks execute in order, and a checkpoint is stable when a quorum
/// has executed its height. Two replicas that decide differently stop the test.
pub struct Cluster<P: Protocol> {
    setup: Setup,
    replicas: Vec<Harness<P>>,
    down: ReplicaSet,
    network: VecDeque<(ReplicaId, ReplicaId, P::Message)>,
    /// Decisions that each replica knows.
    decided: Vec<BTreeMap<Height, BlockId>>,
    /// Decisions that any replica has ever made.
    ever: BTreeMap<Height, BlockId>,
    /// Executed blocks, which peers keep in their logs for laggards.
    kept: BTreeMap<BlockId, Block>,
    executed: Vec<Height>,
    stable: Vec<Height>,
    trace: Vec<String>,
}

impl<P: Protocol> Cluster<P> {
    /// Opens all replicas.
    ///
    /// # Errors
    /// The error of the protocol.
    pub fn open(setup: Setup, params: &P::Params) -> Result<Self, OpenError> {
        let ids = setup.committee::<P>().ids();
        let replicas: Vec<Harness<P>> =
            ids.map(|id| Harness::open(id, setup, params)).collect::<Result<_, _>>()?;
        let n = replicas.len();
        Ok(Self {
            setup,
            replicas,
            down: ReplicaSet::EMPTY,
            network: VecDeque::new(),
            decided: vec![BTreeMap::new(); n],
            ever: BTreeMap::new(),
            kept: BTreeMap::new(),
            executed: vec![Height::ZERO; n],
            stable: vec![Height::ZERO; n],
            trace: Vec::new(),
        })
    }

    /// Returns one replica.
    ///
    /// # Panics
    /// No replica has this id.
    pub fn at(&mut self, id: ReplicaId) -> &mut Harness<P> {
        self.replicas.get_mut(id.index()).expect("a member")
    }

    /// Stops a replica: from here on it neither sends nor receives.
    pub fn stop(&mut self, id: ReplicaId) {
        self.down.insert(id);
        self.network.retain(|(from, to, _)| *from != id && *to != id);
    }

    /// Starts a replica, for the first time or again, with its disk of the last sync.
    ///
    /// # Errors
    /// The error of the protocol.
    pub fn restart(&mut self, id: ReplicaId) -> Result<(), OpenError> {
        self.stop(id);
        self.down.remove(id);
        let replica = self.at(id);
        replica.crash()?;
        let (executed, logged) = (replica.written.executed, replica.written.decided.clone());
        if let Some(known) = self.decided.get_mut(id.index()) {
            known.retain(|height, _| *height <= executed);
            known.extend(logged);
        }
        if let Some(height) = self.executed.get_mut(id.index()) {
            *height = executed;
        }
        Ok(())
    }

    /// Delivers until no message is under way.
    pub fn run(&mut self) {
        self.run_where(|_, _, _| true);
    }

    /// Delivers until no message is under way. Messages for which `keep` (from, to, message) returns false are lost.
    pub fn run_where(&mut self, mut keep: impl FnMut(ReplicaId, ReplicaId, &P::Message) -> bool) {
        loop {
            self.settle();
            let Some((from, to, message)) = self.network.pop_front() else {
                break;
            };
            if !keep(from, to, &message) {
                self.trace.push(format!("{from} -x {to}  {}", brief(&message)));
                continue;
            }
            if self.at(to).window().admits(&message.place()) {
                self.trace.push(format!("{from} -> {to}  {}", brief(&message)));
                let refused = self.at(to).deliver(from, message).err();
                self.trace.extend(refused.map(|reject| format!("          refused: {reject}")));
            } else {
                self.trace.push(format!("{from} -> {to}  {} (outside the window)", brief(&message)));
            }
        }
    }

    /// Lets time pass at all replicas, then delivers messages.
    pub fn tick(&mut self, ns: u64) {
        for id in self.up() {
            self.at(id).advance(ns);
        }
        self.run();
    }

    fn up(&self) -> Vec<ReplicaId> {
        self.replicas.iter().map(Harness::me).filter(|id| !self.down.contains(*id)).collect()
    }

    fn settle(&mut self) {
        for id in self.up() {
            // An executed height or a fetched block may let the protocol go on.
            loop {
                self.at(id).settle();
                let fetched = self.serve_wants(id);
                if self.execute(id) + fetched == 0 {
                    break;
                }
            }
            for (to, message) in self.at(id).sent() {
                self.post(id, to, &message);
            }
        }
    }

    fn post(&mut self, from: ReplicaId, to: To, message: &P::Message) {
        let mut bytes = Vec::new();
        message.encode(&mut bytes);
        for peer in self.up() {
            let is_addressed = match to {
                To::All => true,
                To::One(one) => one == peer,
                To::Some(set) => set.contains(peer),
            };
            if is_addressed && peer != from {
                let copy = P::Message::from_bytes(&bytes).expect("a message can be read back");
                self.network.push_back((from, peer, copy));
            }
        }
    }

    fn serve_wants(&mut self, id: ReplicaId) -> usize {
        let mut fetched: usize = 0;
        for (wanted, peer) in self.at(id).wanted() {
            let block = self.at(peer).block(wanted).cloned().or_else(|| self.kept.get(&wanted).cloned());
            if let Some(block) = block.filter(|_| !self.down.contains(peer)) {
                self.trace.push(format!("{id} fetches {wanted:?} from {peer}"));
                self.at(id).fetched(block);
                fetched = fetched.saturating_add(1);
            }
        }
        fetched
    }

    fn execute(&mut self, id: ReplicaId) -> usize {
        let mut count: usize = 0;
        for what in self.at(id).committed() {
            let Commit::At(height, block) = what else { continue };
            self.trace.push(format!("{id} decides h{height} {block:?}"));
            self.at(id).log_decided(height, block);
            let first = *self.ever.entry(height).or_insert(block);
            assert!(first == block, "replica {id} decides {block:?} at height {height}, not {first:?}");
            if let Some(decided) = self.decided.get_mut(id.index()) {
                decided.insert(height, block);
            }
        }
        let alarms = self.at(id).alarms();
        assert!(!alarms.iter().any(|alarm| alarm.stops()), "replica {id}: {alarms:?}");
        while let Some((height, block)) = self.next_to_execute(id) {
            self.kept.extend(block.map(|block| (block.id(), block)));
            self.at(id).execute(height);
            if let Some(executed) = self.executed.get_mut(id.index()) {
                *executed = height;
            }
            if height.0.checked_rem(self.setup.checkpoint_every) == Some(0) {
                self.stabilise(height);
            }
            count = count.saturating_add(1);
        }
        count
    }

    fn next_to_execute(&mut self, id: ReplicaId) -> Option<(Height, Option<Block>)> {
        let height = self.executed.get(id.index())?.next();
        let decided = *self.decided.get(id.index())?.get(&height)?;
        if decided == BlockId::null(height) {
            return Some((height, None));
        }
        let block = self.at(id).block(decided).cloned().or_else(|| self.kept.get(&decided).cloned())?;
        Some((height, Some(block)))
    }

    /// Helps laggards as the host does with `Decided`. No protocol message carries heights that others have settled by a
    /// checkpoint; a laggard learns them from f + 1 replicas.
    pub fn serve_laggards(&mut self) {
        let settled = self.stable.iter().max().copied().unwrap_or_default();
        for id in self.up() {
            while self.executed(id) < settled {
                let height = self.executed(id).next();
                let who_knows = self.up().into_iter().filter(|other| self.executed(*other) >= height).count();
                let Some(block) =
                    self.ever.get(&height).copied().filter(|_| who_knows >= quorum::weak(self.setup.f))
                else {
                    break;
                };
                self.trace.push(format!("{id} learns that h{height} {block:?} is decided"));
                if let Some(decided) = self.decided.get_mut(id.index()) {
                    decided.insert(height, block);
                }
                self.at(id).decide(height, block);
                self.execute(id);
            }
        }
    }

    fn stabilise(&mut self, height: Height) {
        let quorum = (P::SPEC.checkpoint_quorum)(self.setup.n, self.setup.f);
        let done: Vec<ReplicaId> = self.up().into_iter().filter(|id| self.executed(*id) >= height).collect();
        if done.len() < quorum {
            return;
        }
        for id in done {
            if self.stable.get(id.index()).is_some_and(|stable| *stable < height) {
                self.trace.push(format!("{id} stable h{height}"));
                self.at(id).checkpoint(height);
                if let Some(stable) = self.stable.get_mut(id.index()) {
                    *stable = height;
                }
            }
        }
    }

    /// Returns the last height that a replica has executed.
    #[must_use]
    pub fn executed(&self, id: ReplicaId) -> Height {
        self.executed.get(id.index()).copied().unwrap_or_default()
    }

    /// Returns the decisions that a replica knows, by height.
    #[must_use]
    pub fn decided(&self, id: ReplicaId) -> BTreeMap<Height, BlockId> {
        self.decided.get(id.index()).cloned().unwrap_or_default()
    }

    /// Returns the events between the replicas since the last call, a line each.
    pub fn trace(&mut self) -> Vec<String> {
        std::mem::take(&mut self.trace)
    }
}
