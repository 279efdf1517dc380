//! Replicas, their messages and delays, their disks, and the clock.

use crate::oracle::{Oracle, Voted};
use quorate_consensus::harness::{Harness, Setup, brief, payload};
use quorate_consensus::parts::chain::empty_payload;
use quorate_consensus::parts::synchrony::SynchronyParams;
use quorate_consensus::{Claims, Commit, Message, PayloadRef, Protocol, Ready, To};
use quorate_types::rng::Rng;
use quorate_types::{Block, BlockId, Committee, ReplicaId, Time, View, Wire as _};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::ops::RangeFrom;
use std::rc::Rc;

const DELTA_NS: u64 = 10_000_000;
/// Maximum number of events in a run.
const STEPS_MAX: usize = 20_000;

/// A form of the protocol, and the messages of liars for it.
pub(crate) trait Form: Sized {
    /// The protocol, which may have a flaw.
    type Protocol: Protocol<Params = SynchronyParams>;
    /// Messages of its replicas, as they are on the wire.
    type Message: Message;
    /// Common knowledge of all liars.
    type Knowledge;
    const NAME: &'static str;
    /// Fastest delay as a fraction of Δ: the rotating form has a view in each two delays.
    const FASTEST: u64;
    /// Whether a replica commits only by votes of its current view, perhaps for a block of an earlier one. Otherwise votes of
    /// the block's view commit it.
    const COMMITS_IN_ITS_VIEW: bool;
    fn knowledge(n: u16, liars: &[ReplicaId]) -> Self::Knowledge;
    /// Returns a report of this recovery stage.
    fn stage_report(is_running: bool) -> Self::Message;
    /// Adds a message to the knowledge of liars.
    fn learn(knowledge: &mut Self::Knowledge, from: ReplicaId, message: &Self::Message);
    /// Returns the answer of liars to an opening replica; `None` if the message is no question.
    fn answer(knowledge: &Self::Knowledge, rng: &mut Rng, asked: &Self::Message) -> Option<Self::Message>;
    /// Returns the next lies, given the views of the honest replicas.
    fn lie(
        knowledge: &mut Self::Knowledge,
        rng: &mut Rng,
        views: (u64, u64),
    ) -> Vec<(ReplicaId, Self::Message)>;
    /// Returns the blocks whose headers a message hands on.
    fn blocks(message: &Self::Message) -> Vec<&Block>;
    /// Returns view and block of a vote.
    fn vote(message: &Self::Message) -> Option<(View, quorate_types::Height, BlockId)>;
    /// Returns the proposed block: its bodies travel with it.
    fn proposes(message: &Self::Message) -> Option<BlockId>;
}

type Replica<F> = Harness<<F as Form>::Protocol>;

enum Event<F: Form> {
    Deliver {
        from: ReplicaId,
        to: usize,
        message: Rc<F::Message>,
    },
    Sync(usize),
    /// A request for a block has reached a peer.
    Asked {
        by: usize,
        peer: usize,
        block: BlockId,
    },
    Body {
        to: usize,
        block: BlockId,
    },
    /// A probe that was sent at this time is answered.
    Sound {
        at: usize,
        sent: Time,
    },
    Offer(usize),
    Lie,
    /// All replicas lose power, and restart.
    Cut,
    Open(usize),
}

/// A run.
pub(crate) struct Hunt<F: Form> {
    rng: Rng,
    n: u16,
    committee: Committee,
    now: u64,
    /// Longest delay of a message.
    bound: u64,
    is_guarded: bool,
    replicas: BTreeMap<usize, Replica<F>>,
    liars: Vec<usize>,
    /// Replicas without power.
    down: BTreeSet<usize>,
    knowledge: F::Knowledge,
    oracle: Oracle,
    queue: BinaryHeap<Reverse<(u64, u64)>>,
    events: BTreeMap<u64, Event<F>>,
    next: u64,
    /// Delay of a link: 0 is the minimum, 1 is random, 2 is the maximum, 3 is any of these.
    links: BTreeMap<(usize, usize), u8>,
    last: BTreeMap<(usize, usize), u64>,
    disks: BTreeMap<usize, u64>,
    syncing: BTreeSet<usize>,
    /// Whether disks stall now and then.
    stalls: bool,
    bodies: BTreeMap<usize, BTreeSet<BlockId>>,
    /// Questions to liars, with their askers.
    asked: Vec<(usize, BlockId)>,
    /// Whether liars send different messages to the two sides.
    sides: [Vec<usize>; 2],
    told: BTreeSet<(usize, u16, Vec<u8>)>,
    lies_left: u64,
    lies: u64,
    /// Payloads of clients. There is always one, because empty blocks may be committed late.
    payloads: RangeFrom<u64>,
    trace: Option<Vec<String>>,
}

impl<F: Form> Hunt<F> {
    pub(crate) fn new(n: u16, seed: u64, traces: bool) -> Self {
        let mut rng = Rng::new(seed);
        let size = usize::from(n);
        let f = (size - 1) / 2;
        let mut ids: Vec<usize> = (0..size).collect();
        // Leaders of the first views can do most.
        if rng.chance(400_000) {
            rng.shuffle(&mut ids);
        }
        let (liars, honest) = ids.split_at(f);
        let (mut liars, mut honest) = (liars.to_vec(), honest.to_vec());
        liars.sort_unstable();
        let is_guarded = rng.chance(300_000);
        let exam = SynchronyParams::exam(DELTA_NS, is_guarded);
        let heartbeat_ms = exam.delta_ms * (1 + rng.below(3));
        let params = SynchronyParams { drift_ppm: 0, heartbeat_ms, ..exam };
        // Δ holds, and is almost used up. Another test covers timers at the same moment.
        let bound = if is_guarded { DELTA_NS / 2 - 2 } else { DELTA_NS - 2 };
        let setup = Setup::of::<F::Protocol>(size);
        let open = |id: &usize| {
            let mut replica = Harness::open(replica_id(*id), setup, &params).unwrap();
            replica.answer_otherwise(None);
            (*id, replica)
        };
        let replicas = honest.iter().map(open).collect();
        rng.shuffle(&mut honest);
        let cut = 1 + rng.index(honest.len() - 1);
        let sides = [honest[..cut].to_vec(), honest[cut..].to_vec()];
        let kind = u8::try_from(rng.below(4)).unwrap();
        let pairs = honest.iter().flat_map(|from| honest.iter().map(move |to| (*from, *to)));
        let links =
            pairs.map(|pair| (pair, if kind == 1 { u8::try_from(rng.below(3)).unwrap() } else { kind }));
        let links = links.collect();
        let disks = honest.iter().map(|id| (*id, if rng.chance(150_000) { rng.below(bound / 3) } else { 0 }));
        let disks = disks.collect();
        let stalls = rng.chance(150_000);
        let knowledge = F::knowledge(n, &liars.iter().map(|id| replica_id(*id)).collect::<Vec<_>>());
        Self {
            n,
            committee: setup.committee::<F::Protocol>(),
            now: 0,
            bound,
            is_guarded,
            replicas,
            liars,
            down: BTreeSet::new(),
            knowledge,
            oracle: Oracle::default(),
            queue: BinaryHeap::new(),
            events: BTreeMap::new(),
            next: 0,
            links,
            last: BTreeMap::new(),
            disks,
            stalls,
            syncing: BTreeSet::new(),
            bodies: honest.iter().map(|id| (*id, BTreeSet::new())).collect(),
            asked: Vec::new(),
            sides,
            told: BTreeSet::new(),
            lies_left: 10 + rng.below(50),
            lies: 0,
            payloads: 1_000_000..,
            trace: traces.then(Vec::new),
            rng,
        }
    }

    pub(crate) fn commits(&self) -> u64 {
        u64::try_from(self.oracle.commits()).unwrap()
    }

    pub(crate) fn lies(&self) -> u64 {
        self.lies
    }

    pub(crate) fn trace(&self) -> String {
        self.trace.as_ref().map(|lines| lines.join("\n")).unwrap_or_default()
    }

    fn note(&mut self, line: impl FnOnce() -> String) {
        if let Some(trace) = &mut self.trace {
            let deltas = self.now * 1_000 / DELTA_NS;
            trace.push(format!("{:3}.{:03} {}", deltas / 1_000, deltas % 1_000, line()));
        }
    }

    fn push(&mut self, at: u64, event: Event<F>) {
        self.events.insert(self.next, event);
        self.queue.push(Reverse((at.max(self.now), self.next)));
        self.next += 1;
    }

    fn honest(&self) -> Vec<usize> {
        self.replicas.keys().copied().collect()
    }

    /// Returns the violation, if any.
    pub(crate) fn run(&mut self) -> Option<String> {
        let (liars, guarded, sides) = (self.liars.clone(), self.is_guarded, self.sides.clone());
        self.note(|| format!("liars {liars:?}, guarded {guarded}, sides {sides:?}"));
        self.begin();
        let most = if self.rng.chance(800_000) { 10 } else { 40 };
        let mut end = DELTA_NS * (6 + self.rng.below(most));
        if self.rng.chance(250_000) {
            let at = DELTA_NS + self.rng.below(end);
            self.push(at, Event::Cut);
            end = at + DELTA_NS * (10 + self.rng.below(most));
        }
        for _ in 0..STEPS_MAX {
            let timers = self.replicas.iter().filter(|(id, _)| !self.down.contains(id));
            let timer = timers.filter_map(|(id, replica)| Some((replica.deadline()?.0, *id))).min();
            let event = self.queue.peek().map(|Reverse((at, _))| *at);
            let Some(at) = timer.map(|(at, _)| at).into_iter().chain(event).min().filter(|at| *at <= end)
            else {
                break;
            };
            self.now = self.now.max(at);
            if event == Some(at) {
                let Some(Reverse((_, key))) = self.queue.pop() else { break };
                let Some(event) = self.events.remove(&key) else { break };
                self.happen(event);
            } else if let Some((_, id)) = timer {
                self.with(id, |_| {});
            }
            if let Some(found) = self.oracle.found() {
                return Some(found.clone());
            }
        }
        None
    }

    /// Opens all replicas. They run within one delay of each other.
    fn begin(&mut self) {
        for id in self.honest() {
            let at = if self.rng.chance(500_000) { 0 } else { self.rng.below(self.bound) };
            let peers: Vec<ReplicaId> =
                (0..self.n).map(ReplicaId).filter(|peer| *peer != replica_id(id)).collect();
            let some = self.some(20);
            let Some(replica) = self.replicas.get_mut(&id) else { continue };
            replica.advance(at);
            for is_running in [false, true] {
                for peer in &peers {
                    let _ = replica.deliver(*peer, recode(&F::stage_report(is_running)));
                }
            }
            replica.offer(some);
            if self.is_guarded {
                replica.answer_sound(None, Time::ZERO);
            }
            // Earlier questions are forgotten.
            replica.sent();
            self.push(at + 1, Event::Sync(id));
        }
        self.lie_later();
    }

    /// Schedules lies at any time, and often just before or after a timer.
    fn lie_later(&mut self) {
        if self.lies_left == 0 {
            return;
        }
        self.lies_left -= 1;
        let due =
            self.replicas.values().filter_map(Harness::deadline).map(|at| at.0).min().unwrap_or(self.now);
        let at = match self.rng.below(8) {
            0 => due.saturating_sub(2),
            1 => due + 1,
            2 => due.saturating_sub(self.bound) + self.rng.below(3),
            3 => self.now + self.bound - self.rng.below(3),
            4 | 5 => self.now + 1,
            _ => self.now + self.rng.below(DELTA_NS),
        };
        self.push(at, Event::Lie);
    }

    fn happen(&mut self, event: Event<F>) {
        match event {
            Event::Deliver { from, to, message } => self.deliver(from, to, &message, true),
            Event::Sync(id) => self.sync(id),
            Event::Asked { by, peer, block } => {
                if self.bodies.get(&peer).is_some_and(|bodies| bodies.contains(&block))
                    && !self.down.contains(&peer)
                {
                    let back = self.delay(peer, by);
                    self.push(self.now + back, Event::Body { to: by, block });
                }
            }
            Event::Body { to, block } => self.give(to, block),
            Event::Sound { at, sent } => self.with(at, |replica| replica.sound(None, sent)),
            Event::Offer(id) => {
                let more = self.some(1);
                self.with(id, |replica| replica.offer(more));
            }
            Event::Lie => {
                self.lie();
                self.lie_later();
            }
            Event::Cut => self.cut(),
            Event::Open(id) => self.open(id),
        }
    }

    /// Calls a replica at the present time, and performs its effects.
    fn with(&mut self, id: usize, does: impl FnOnce(&mut Replica<F>)) {
        let Some(replica) = self.replicas.get_mut(&id).filter(|_| !self.down.contains(&id)) else { return };
        let ns = self.now.saturating_sub(replica.now().0);
        replica.advance(ns);
        does(replica);
        self.absorb(id, false);
        let mut disk = self.disks.get(&id).copied().unwrap_or_default();
        if self.stalls && self.rng.chance(50_000) {
            // A disk may stall for any time: only own votes are late (§4).
            disk = self.rng.below(6 * DELTA_NS);
        }
        if disk == 0 && !self.syncing.contains(&id) {
            self.sync(id);
        } else if self.syncing.insert(id) {
            self.push(self.now + disk, Event::Sync(id));
        }
    }

    /// Schedules a sync for a message, or for the reply of a commit.
    fn sync(&mut self, id: usize) {
        self.syncing.remove(&id);
        let Some(replica) = self.replicas.get_mut(&id).filter(|_| !self.down.contains(&id)) else { return };
        // Held messages leave now, and own copies arrive now.
        replica.stand_still(self.now.saturating_sub(replica.now().0));
        replica.settle();
        self.absorb(id, true);
    }

    fn cut(&mut self) {
        self.note(|| "POWER FAILS".to_owned());
        self.oracle.forget();
        self.events.retain(|_, event| matches!(event, Event::Lie));
        let kept: Vec<(u64, u64)> = self.queue.drain().map(|Reverse(key)| key).collect();
        self.queue.extend(kept.into_iter().filter(|(_, key)| self.events.contains_key(key)).map(Reverse));
        self.last.clear();
        self.syncing.clear();
        self.lies_left += 30;
        for id in self.honest() {
            self.down.insert(id);
            let at = self.now + self.rng.below(3 * DELTA_NS);
            self.push(at, Event::Open(id));
        }
    }

    fn open(&mut self, id: usize) {
        self.down.remove(&id);
        self.note(|| format!("{id} is opened"));
        let (now, is_guarded) = (self.now, self.is_guarded);
        let Some(replica) = self.replicas.get_mut(&id) else { return };
        // No earlier timer is set any more.
        let kept = self.rng.index(replica.unsynced() + 1);
        replica.crash_after(kept).unwrap();
        replica.advance(now.saturating_sub(replica.now().0));
        // Bodies of blocks that were not durable are lost.
        let bodies = self.bodies.entry(id).or_default();
        let lost: Vec<BlockId> =
            bodies.iter().filter(|block| replica.block(**block).is_none()).copied().collect();
        for block in lost {
            bodies.remove(&block);
            replica.answer(block, None);
        }
        if is_guarded {
            replica.answer_sound(None, Time(now));
        }
        let some = self.some(20);
        self.with(id, |replica| replica.offer(some));
    }

    fn some(&mut self, count: usize) -> Vec<PayloadRef> {
        self.payloads.by_ref().take(count).map(payload).collect()
    }

    /// Delivers a body and some of those below it.
    fn give(&mut self, to: usize, block: BlockId) {
        let Some(here) = self.bodies.get(&to) else { return };
        let (mut path, mut at) = (Vec::new(), block);
        while let Some(known) = self.oracle.get(at).filter(|_| !here.contains(&at)) {
            path.push(known.clone());
            at = known.parent;
            if self.rng.chance(300_000) {
                break;
            }
        }
        for block in path.into_iter().rev() {
            let id = block.id();
            self.bodies.entry(to).or_default().insert(id);
            self.note(|| format!("  {to} gets {id:?}"));
            self.with(to, |replica| replica.fetched(block));
        }
    }

    fn deliver(&mut self, from: ReplicaId, to: usize, message: &F::Message, has_body: bool) {
        if self.down.contains(&to) {
            return;
        }
        let proposed = F::proposes(message).filter(|_| has_body);
        let empty =
            F::blocks(message).into_iter().filter(|block| block.payload == empty_payload()).map(Block::id);
        let here: Vec<BlockId> = empty.chain(proposed).collect();
        self.bodies.entry(to).or_default().extend(&here);
        let mut said = String::new();
        let bytes = recode::<F::Message, <F::Protocol as Protocol>::Message>(message);
        self.with(to, |replica| {
            if replica.window().admits(&message.place()) {
                here.into_iter().for_each(|id| replica.answer(id, Some(Ready::Valid)));
                said = replica.deliver(from, bytes).err().map(|why| format!(" ({why})")).unwrap_or_default();
            } else {
                said = " (outside)".to_owned();
            }
        });
        self.note(|| format!("  {from} -> {to} {}{said}", brief(message)));
    }

    fn absorb(&mut self, id: usize, is_held: bool) {
        let Some(replica) = self.replicas.get_mut(&id) else { return };
        let (sent, wanted, committed) = (replica.sent(), replica.wanted(), replica.committed());
        let (fresh, lines, notes) = (replica.asked_fresh(), replica.lines(), replica.notes());
        let view = F::COMMITS_IN_ITS_VIEW.then(|| replica.status().view);
        if let Some(alarm) = replica.alarms().iter().find(|alarm| alarm.stops()) {
            let found = format!("{id}: {alarm}");
            self.oracle.find(found);
        }
        let is_telling =
            |line: &&String| ["note", "timer", "want"].iter().any(|start| line.starts_with(start));
        lines.iter().filter(is_telling).for_each(|line| self.note(|| format!("    {id}: {line}")));
        let has_committed = !committed.is_empty();
        // Each commit has a note that names its rule.
        let rules: Vec<&str> =
            notes.iter().map(|note| note.what).filter(|what| what.starts_with("committed")).collect();
        assert_eq!(committed.len(), rules.len(), "{notes:?}");
        for (what, rule) in committed.into_iter().zip(rules) {
            let Commit::Chain(block) = what else { continue };
            self.note(|| format!("{id} COMMITS {block:?} ({rule})"));
            self.oracle.committed(id, view, block, rule != "committed by votes");
            self.log(id, block);
        }
        sent.into_iter().for_each(|(to, message)| self.send(id, to, &recode(&message), is_held));
        for (block, peer) in wanted {
            self.want(id, usize::from(peer.0), block);
        }
        for sent in fresh {
            let sent = sent.max(Time(self.now));
            let back = self.rng.below(DELTA_NS);
            self.push(sent.0 + back, Event::Sound { at: id, sent });
        }
        if has_committed && let Some(replica) = self.replicas.get_mut(&id) {
            // Clients receive the reply when the commit is durable.
            replica.sync();
            self.oracle.acknowledged(id);
            self.absorb(id, true);
        }
    }

    /// Records a commit, as the host does.
    fn log(&mut self, id: usize, block: BlockId) {
        let Some(replica) = self.replicas.get_mut(&id) else { return };
        let mut at = block;
        while let Some(known) = self.oracle.get(at) {
            replica.log_decided(known.height, at);
            at = known.parent;
        }
    }

    fn want(&mut self, id: usize, peer: usize, block: BlockId) {
        if self.replicas.contains_key(&peer) {
            let there = self.delay(id, peer);
            self.push(self.now + there, Event::Asked { by: id, peer, block });
        } else {
            self.asked.push((id, block));
            if self.rng.chance(200_000) {
                let at = self.now + self.rng.below(DELTA_NS);
                self.push(at, Event::Body { to: id, block });
            }
        }
    }

    fn delay(&mut self, from: usize, to: usize) -> u64 {
        let kind = match self.links.get(&(from, to)) {
            Some(3) => self.rng.below(3),
            kind => u64::from(kind.copied().unwrap_or_default()),
        };
        match kind {
            0 => DELTA_NS / F::FASTEST + self.rng.below(1_000),
            1 => 1 + self.rng.below(self.bound - 1),
            _ => self.bound - self.rng.below(3),
        }
    }

    /// Returns the verdict of the intake on the claims of a message.
    fn claims_hold(&self, message: &F::Message) -> Result<(), &'static str> {
        let mut claims = Claims::new(&self.committee, self.committee.weak());
        message.claims(&mut claims);
        claims.finish().map(|_| ())
    }

    fn send(&mut self, id: usize, to: To, message: &F::Message, is_held: bool) {
        let from = replica_id(id);
        if let Err(why) = self.claims_hold(message) {
            self.oracle
                .find(format!("{id} sends a message that every intake refuses ({why}): {}", brief(message)));
        }
        F::learn(&mut self.knowledge, from, message);
        F::blocks(message).into_iter().for_each(|block| self.oracle.block(block.clone()));
        if let Some((view, height, block)) = F::vote(message) {
            self.oracle.voted(Voted { by: id, view, height, block });
        }
        if let Some(block) = F::proposes(message) {
            self.bodies.entry(id).or_default().insert(block);
            let at = self.now + self.rng.below(DELTA_NS);
            self.push(at, Event::Offer(id));
        }
        self.note(|| format!("{id} sends to {to:?}: {}", brief(message)));
        let message = Rc::new(recode::<F::Message, F::Message>(message));
        let disk = if is_held { self.disks.get(&id).copied().unwrap_or_default() } else { 0 };
        let is_for = |peer: usize| match to {
            To::All => peer != id,
            To::One(one) => one == replica_id(peer),
            To::Some(set) => set.contains(replica_id(peer)),
        };
        for peer in self.honest().into_iter().filter(|peer| is_for(*peer)) {
            let at = self.now + self.delay(id, peer).min(self.bound - disk);
            let last = self.last.entry((id, peer)).or_default();
            *last = at.max(*last);
            let at = *last;
            self.push(at, Event::Deliver { from, to: peer, message: Rc::clone(&message) });
        }
        for liar in self.liars.clone().into_iter().filter(|liar| is_for(*liar)) {
            if let Some(answer) = F::answer(&self.knowledge, &mut self.rng, &message) {
                let at = self.now + self.rng.below(DELTA_NS);
                let message = Rc::new(answer);
                self.push(at, Event::Deliver { from: replica_id(liar), to: id, message });
            }
        }
        if self.rng.chance(150_000) {
            self.lie_later();
        }
    }

    fn lie(&mut self) {
        if self.rng.chance(120_000) && !self.asked.is_empty() {
            let (to, block) = self.asked[self.rng.index(self.asked.len())];
            return self.give(to, block);
        }
        let views = self.replicas.values().map(|replica| replica.status().view.0);
        let range = (views.clone().min().unwrap_or(1), views.max().unwrap_or(1));
        let said = F::lie(&mut self.knowledge, &mut self.rng, range);
        let honest = self.honest();
        let to = match self.rng.below(8) {
            0 | 1 => honest,
            2 | 3 => self.sides[0].clone(),
            4 | 5 => self.sides[1].clone(),
            _ => vec![honest[self.rng.index(honest.len())]],
        };
        let has_body = self.rng.chance(600_000);
        for (from, message) in said {
            // A message that the intake refuses reaches no replica.
            if self.claims_hold(&message).is_err() {
                continue;
            }
            F::blocks(&message).into_iter().for_each(|block| self.oracle.block(block.clone()));
            let mut bytes = Vec::new();
            message.encode(&mut bytes);
            for peer in &to {
                if self.told.insert((*peer, from.0, bytes.clone())) {
                    self.lies += 1;
                    self.deliver(from, *peer, &message, has_body);
                }
            }
        }
    }
}

fn replica_id(id: usize) -> ReplicaId {
    ReplicaId(u16::try_from(id).unwrap())
}

/// Converts a message between the right protocol and a flawed one.
fn recode<A: Message, B: Message>(message: &A) -> B {
    let mut bytes = Vec::new();
    message.encode(&mut bytes);
    B::from_bytes(&bytes).unwrap()
}
