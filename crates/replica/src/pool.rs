//! The pool: bundles that wait, and the bodies of blocks that are not executed yet.
//!
//! A bundle stays in the pool until it is executed, so a block that is never decided takes no bundle with it.
//! Proposals take the oldest bundles first, fair over clients. All content is bounded in bytes and count.

use crate::execution_rate::ExecutionRate;
use crate::status::PoolSize;
use quorate_consensus::Pending;
use quorate_types::limits::{
    BUNDLE_OVERHEAD_BYTES, POOL_BUNDLES_MAX, POOL_BYTES_MAX, POOL_CLIENT_BUNDLES_MAX, POOL_CLIENT_BYTES_MAX,
    POOL_PEER_IDLE_BYTES_MAX,
};
use quorate_types::{BodyLimits, Bundle, BundleDigest, BundleNo, ClientId, ReplicaId, SessionId, Time};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

#[cfg(test)]
mod tests;

/// The time after which a pending bundle goes to all replicas, and again with doubling pauses.
const SPREAD_AFTER_NS: u64 = 1_000_000_000;
/// The longest pause between two rounds of spreading one bundle.
const SPREAD_PAUSE_NS_MAX: u64 = 10_000_000_000;
/// The time for which a body is kept that does not count as pending (executed already, or unknown session): a block
/// may still name it.
const ORPHAN_NS_MAX: u64 = 30_000_000_000;

/// Bundles that go to all replicas in one round at most: an overloaded replica must not create more load.
const SPREAD_ROUND_MAX: usize = 64;
/// The maximum that a replica forwards to a new leader, in bundles and bytes. Other bundles wait until their client
/// asks all replicas, or until their age sends them to all.
const FORWARD_BUNDLES_MAX: usize = 1_024;
const FORWARD_BYTES_MAX: usize = 4 << 20;
/// Bundles of a block for which memory is reserved at once.
const TAKE_EXPECTED: usize = 64;
/// Entries of removed bundles that the list of arrivals may hold.
const ARRIVALS_SLACK: usize = 1_024;

/// Stale entries that the queue of one client, and the clients' turns, may hold.
const QUEUE_SLACK: usize = 64;

/// The result of adding a bundle.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PoolVerdict {
    /// The bundle was added.
    New,
    /// The bundle was stored for blocks that may name it, and counts as pending from now on.
    Promoted,
    /// The bundle was stored already.
    Known,
    /// Too many bundles wait, of this client or in all.
    Busy,
    /// The client uses the number for another content.
    NumberReused,
}

/// A bundle's number in its session, or a client's nonce before it has a session.
type BundleKey = (ClientId, SessionId, BundleNo);

#[derive(Debug)]
struct PooledBundle {
    bundle: Bundle,
    since: Time,
    /// Whether the bundle counts as pending; see `ORPHAN_NS_MAX`.
    pending: bool,
    /// Whether it was its client's only pending bundle on arrival.
    first: bool,
    /// The peer whose room it takes while it does not count as pending.
    charged: Option<ReplicaId>,
    /// Whether its client handed it over directly: then other replicas may not have it.
    direct: bool,
    /// Whether a block has it that this replica has proposed in the current view.
    taken: bool,
    /// Whether a decided chain has it.
    decided: bool,
    /// Whether this replica has sent it to all.
    spread: bool,
    spread_at: Time,
    pause_ns: u64,
}

impl PooledBundle {
    /// Whether the bundle counts as pending since this time. An entry of the list of arrivals with another time is
    /// stale.
    fn waits_since(&self, since: Time) -> bool {
        self.pending && self.since == since
    }
}

#[derive(Debug, Default)]
struct ClientQueue {
    waiting: VecDeque<BundleDigest>,
    bundles: usize,
    bytes: usize,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Pool {
    held: BTreeMap<BundleDigest, PooledBundle>,
    numbers: BTreeMap<BundleKey, BundleDigest>,
    clients: BTreeMap<ClientId, ClientQueue>,
    /// Clients with bundles to propose, in the order of their turns.
    turns: VecDeque<ClientId>,
    /// Pending bundles, oldest first. Entries of removed bundles are skipped, and the first entry is never one.
    arrivals: VecDeque<(Time, BundleDigest)>,
    pending: usize,
    /// Total cost of bundles that were their client's only pending bundle on arrival.
    firsts: usize,
    /// Pending bundles that are decided and not executed.
    decided: usize,
    bytes: usize,
    /// Bytes of bodies that do not count as pending. `charges` has the cost of those for which a peer is charged.
    idle_bytes: usize,
    charges: BTreeMap<ReplicaId, usize>,
    spread_check: Option<Time>,
    pub(crate) rate: ExecutionRate,
}

/// Returns the cost of a bundle.
pub(crate) fn cost(bundle: &Bundle) -> usize {
    cost_of(bundle.size(), 1)
}

/// Returns the cost of bundles with this number of bytes.
fn cost_of(bytes: usize, bundles: usize) -> usize {
    bytes.saturating_add(bundles.saturating_mul(BUNDLE_OVERHEAD_BYTES))
}

/// Whether there is room for one more bundle beside these. `halves` counts halves of the room of clients.
fn has_room(bytes: usize, bundles: usize, bundle: &Bundle, halves: usize) -> bool {
    bytes.saturating_add(bundle.size()) <= (POOL_BYTES_MAX / 2).saturating_mul(halves)
        && bundles < (POOL_BUNDLES_MAX / 2).saturating_mul(halves)
}

fn key_of(bundle: &Bundle) -> BundleKey {
    (bundle.client(), bundle.session(), bundle.number())
}

impl Pool {
    /// Whether the pool has a body.
    pub(crate) fn contains(&self, digest: &BundleDigest) -> bool {
        self.held.contains_key(digest)
    }

    /// Returns a stored body.
    pub(crate) fn get(&self, digest: &BundleDigest) -> Option<&Bundle> {
        self.held.get(digest).map(|held| &held.bundle)
    }

    /// Whether the pool has a bundle that counts as pending.
    pub(crate) fn waits(&self, digest: &BundleDigest) -> bool {
        self.held.get(digest).is_some_and(|held| held.pending)
    }

    /// Whether pending bundles fill the room of clients.
    fn is_full(&self) -> bool {
        self.bytes.saturating_sub(self.idle_bytes) >= POOL_BYTES_MAX || self.pending >= POOL_BUNDLES_MAX
    }

    /// Whether a bundle finds room as a pending one. Idle bodies take none of this room. A peer may add more than a
    /// client may, because a block may need the bundle. Clients without pending bundles find room where others have
    /// filled theirs.
    fn fits(&self, bundle: &Bundle, is_direct: bool) -> bool {
        let halves = match (self.own_cost(bundle), is_direct) {
            (0, _) => 4,
            (_, false) => 3,
            (_, true) => 2,
        };
        has_room(self.bytes.saturating_sub(self.idle_bytes), self.pending, bundle, halves)
    }

    /// Whether a client that brings one more bundle should receive `Busy`, after bundles of cost `more` from others.
    ///
    /// That is so when too much waits for the rate of execution, and this client has more of it than its share. A
    /// large bundle finds room as easily as a small one: otherwise its client would wait forever among clients of
    /// small ones.
    pub(crate) fn is_busy(&self, now: Time, bundle: &Bundle, more: usize) -> bool {
        let Some(oldest) = self.oldest() else { return false };
        let limit = self.rate.limit(now, oldest);
        let waiting = self.waiting_cost().saturating_add(more);
        if waiting < limit {
            return false;
        }
        let own = self.own_cost(bundle);
        if own == 0 {
            // The shares of all waiting clients add up to the limit, so a client without pending bundles finds room above
            // it. It does so even where another client fills that room: with a lying peer a client can add any amount.
            let firsts = self.firsts.saturating_add(more);
            return waiting >= limit.saturating_add(limit / 2) && firsts >= limit / 2;
        }
        let share = limit.checked_div(self.clients.len().max(1)).unwrap_or(limit);
        own.saturating_add(cost(bundle)) > share
    }

    fn own_cost(&self, bundle: &Bundle) -> usize {
        self.clients.get(&bundle.client()).map_or(0, |queue| cost_of(queue.bytes, queue.bundles))
    }

    fn waiting_cost(&self) -> usize {
        cost_of(self.bytes.saturating_sub(self.idle_bytes), self.pending)
    }

    /// Returns the time since which the oldest pending bundle waits.
    fn oldest(&self) -> Option<Time> {
        self.arrivals.front().map(|(since, _)| *since)
    }

    /// Adds a bundle that its client handed over directly.
    pub(crate) fn add_from_client(&mut self, now: Time, bundle: &Bundle) -> PoolVerdict {
        if self.waits(&bundle.digest()) {
            return PoolVerdict::Known;
        }
        if self.numbers.contains_key(&key_of(bundle)) {
            return PoolVerdict::NumberReused;
        }
        let full = self.clients.get(&bundle.client()).is_some_and(|queue| {
            queue.bundles >= POOL_CLIENT_BUNDLES_MAX
                || queue.bytes.saturating_add(bundle.size()) > POOL_CLIENT_BYTES_MAX
        });
        if full || !self.fits(bundle, true) || self.is_busy(now, bundle, 0) {
            return PoolVerdict::Busy;
        }
        if self.contains(&bundle.digest()) {
            return self.promote(now, bundle, true);
        }
        self.insert(now, bundle, true, true, None);
        PoolVerdict::New
    }

    /// Adds a bundle that a peer handed over. A block may need it, so it has twice the room of a client's.
    ///
    /// `pending` is false for an executed bundle and for one of an unknown session. Such a bundle, and one without
    /// room as a pending one, takes the room of the `charged` peer. Without a charged peer a block needs it, and it
    /// finds room although too much waits.
    pub(crate) fn add_from_peer(
        &mut self,
        now: Time,
        bundle: &Bundle,
        pending: bool,
        charged: Option<ReplicaId>,
    ) -> PoolVerdict {
        let waits = pending && self.has_room_to_wait(bundle);
        if self.contains(&bundle.digest()) {
            return if waits { self.promote(now, bundle, false) } else { PoolVerdict::Known };
        }
        if !waits && !self.has_idle_room(bundle, charged) {
            return PoolVerdict::Busy;
        }
        self.insert(now, bundle, waits, false, charged);
        PoolVerdict::New
    }

    /// Whether a bundle that a peer handed over may count as pending. Its client has twice the room of direct bundles.
    /// Without this limit a client with lying peers could fill the pool.
    fn has_room_to_wait(&self, bundle: &Bundle) -> bool {
        let queue = self.clients.get(&bundle.client());
        let (bytes, bundles) = queue.map_or((0, 0), |queue| (queue.bytes, queue.bundles));
        bytes.saturating_add(bundle.size()) <= POOL_CLIENT_BYTES_MAX.saturating_mul(2)
            && bundles < POOL_CLIENT_BUNDLES_MAX.saturating_mul(2)
            && self.fits(bundle, false)
    }

    /// Adds a body from the log, of a block that is not executed. That block held it before the restart, however full
    /// the pool was, and peers may not have it.
    pub(crate) fn restore(&mut self, bundle: &Bundle) {
        if !self.contains(&bundle.digest()) {
            self.insert(Time::ZERO, bundle, false, false, None);
        }
    }

    /// Whether there is room for an idle bundle, at the charge of this peer or of none.
    pub(crate) fn has_idle_room(&self, bundle: &Bundle, charged: Option<ReplicaId>) -> bool {
        let used = charged.and_then(|peer| self.charges.get(&peer)).copied().unwrap_or_default();
        used.saturating_add(cost(bundle)) <= POOL_PEER_IDLE_BYTES_MAX
            && has_room(self.idle_bytes, self.held.len().saturating_sub(self.pending), bundle, 4)
    }

    /// Makes an idle body count as pending because its client waits for it after all. The body came from the log, or
    /// before its session.
    fn promote(&mut self, now: Time, bundle: &Bundle, direct: bool) -> PoolVerdict {
        let digest = bundle.digest();
        let Some(held) = self.held.get_mut(&digest).filter(|held| !held.pending) else {
            return PoolVerdict::Known;
        };
        held.pending = true;
        self.decided = self.decided.saturating_add(usize::from(held.decided));
        let charged = held.charged.take();
        held.direct |= direct;
        // The bundle waits since now.
        held.since = now;
        held.spread_at = now.plus(SPREAD_AFTER_NS);
        self.spread_check = Some(self.spread_check.map_or(held.spread_at, |at| at.min(held.spread_at)));
        let first = self.one_more_waits(now, bundle);
        if let Some(held) = self.held.get_mut(&digest) {
            held.first = first;
        }
        self.no_longer_idle(bundle, charged);
        PoolVerdict::Promoted
    }

    fn no_longer_idle(&mut self, bundle: &Bundle, charged: Option<ReplicaId>) {
        self.idle_bytes = self.idle_bytes.saturating_sub(bundle.size());
        if let Some(peer) = charged
            && let Some(used) = self.charges.get_mut(&peer)
        {
            *used = used.saturating_sub(cost(bundle));
        }
    }

    fn insert(
        &mut self,
        now: Time,
        bundle: &Bundle,
        pending: bool,
        direct: bool,
        charged: Option<ReplicaId>,
    ) {
        let (digest, size) = (bundle.digest(), bundle.size());
        self.bytes = self.bytes.saturating_add(size);
        let spread_at = now.plus(SPREAD_AFTER_NS);
        self.spread_check = Some(self.spread_check.map_or(spread_at, |at| at.min(spread_at)));
        let mut first = false;
        if pending {
            first = self.one_more_waits(now, bundle);
        } else {
            self.idle_bytes = self.idle_bytes.saturating_add(size);
            if let Some(peer) = charged {
                let used = self.charges.entry(peer).or_default();
                *used = used.saturating_add(cost(bundle));
            }
        }
        let held = PooledBundle {
            bundle: bundle.clone(),
            since: now,
            pending,
            first,
            charged: charged.filter(|_| !pending),
            direct,
            taken: false,
            decided: false,
            spread: false,
            spread_at,
            pause_ns: SPREAD_AFTER_NS,
        };
        self.held.insert(digest, held);
    }

    /// Counts one more pending bundle. Returns whether it is its client's only one.
    fn one_more_waits(&mut self, now: Time, bundle: &Bundle) -> bool {
        let first = self.own_cost(bundle) == 0;
        if first {
            self.firsts = self.firsts.saturating_add(cost(bundle));
        }
        if self.pending == 0 {
            self.rate.begin(now);
        }
        self.pending = self.pending.saturating_add(1);
        self.arrivals.push_back((now, bundle.digest()));
        self.numbers.entry(key_of(bundle)).or_insert(bundle.digest());
        self.queue_up(bundle.client(), bundle.digest(), bundle.size());
        first
    }

    fn queue_up(&mut self, client: ClientId, digest: BundleDigest, size: usize) {
        let queue = self.clients.entry(client).or_default();
        if queue.waiting.is_empty() {
            self.turns.push_back(client);
        }
        queue.waiting.push_back(digest);
        queue.bundles = queue.bundles.saturating_add(1);
        queue.bytes = queue.bytes.saturating_add(size);
    }

    /// Takes bundles for a payload: one of each client in turn, within the limits of a block. They stay in the pool,
    /// marked as taken.
    pub(crate) fn take(&mut self, limits: &BodyLimits) -> Vec<Bundle> {
        let most = usize::try_from(limits.block_bundles_max).unwrap_or(usize::MAX);
        let room = usize::try_from(limits.block_bytes_max).unwrap_or(usize::MAX);
        let mut taken = Vec::with_capacity(most.min(TAKE_EXPECTED));
        let (mut bytes, mut requests) = (0usize, 0u32);
        while taken.len() < most {
            let Some(client) = self.turns.front().copied() else {
                break;
            };
            let Some(queue) = self.clients.get_mut(&client) else {
                self.turns.pop_front();
                continue;
            };
            let next = queue.waiting.front().and_then(|digest| self.held.get_mut(digest));
            if let Some(held) = next.filter(|held| !held.taken) {
                let (with, more) = (
                    bytes.saturating_add(held.bundle.size()),
                    requests.saturating_add(held.bundle.request_count()),
                );
                if !taken.is_empty() && (with > room || more > limits.block_requests_max) {
                    break;
                }
                (bytes, requests) = (with, more);
                held.taken = true;
                taken.push(held.bundle.clone());
            }
            queue.waiting.pop_front();
            self.turns.pop_front();
            if !queue.waiting.is_empty() {
                self.turns.push_back(client);
            }
        }
        taken
    }

    /// Marks a bundle as taken: another block with it is going to be decided, so no payload of this replica needs it
    /// in this view.
    pub(crate) fn mark_taken(&mut self, digest: &BundleDigest) {
        if let Some(held) = self.held.get_mut(digest) {
            held.taken = true;
        }
    }

    /// Marks a bundle as decided: it waits for its execution alone.
    pub(crate) fn mark_decided(&mut self, digest: &BundleDigest) {
        if let Some(held) = self.held.get_mut(digest).filter(|held| !held.decided) {
            held.decided = true;
            self.decided = self.decided.saturating_add(usize::from(held.pending));
        }
    }

    /// Marks a bundle as spread. Returns false when it was spread before.
    pub(crate) fn mark_spread(&mut self, digest: &BundleDigest) -> bool {
        match self.held.get_mut(digest) {
            Some(held) if !held.spread => {
                held.spread = true;
                true
            }
            _ => false,
        }
    }

    /// Removes an executed bundle.
    pub(crate) fn executed(&mut self, now: Time, digest: &BundleDigest) {
        if let Some(held) = self.held.get(digest).filter(|held| held.pending) {
            self.rate.serve(now, cost(&held.bundle));
        }
        self.remove(digest);
    }

    /// Removes a bundle.
    pub(crate) fn remove(&mut self, digest: &BundleDigest) {
        let Some(held) = self.held.remove(digest) else {
            return;
        };
        let bundle = &held.bundle;
        self.bytes = self.bytes.saturating_sub(bundle.size());
        if held.pending {
            self.pending = self.pending.saturating_sub(1);
            self.decided = self.decided.saturating_sub(usize::from(held.decided));
            if held.first {
                self.firsts = self.firsts.saturating_sub(cost(bundle));
            }
            if self.numbers.get(&key_of(bundle)) == Some(digest) {
                self.numbers.remove(&key_of(bundle));
            }
            if let Some(queue) = self.clients.get_mut(&bundle.client()) {
                queue.bundles = queue.bundles.saturating_sub(1);
                queue.bytes = queue.bytes.saturating_sub(bundle.size());
                if queue.bundles == 0 {
                    self.clients.remove(&bundle.client());
                } else if queue.waiting.len() > queue.bundles.saturating_mul(2).saturating_add(QUEUE_SLACK) {
                    // Only a leader takes from the front of the queue. Elsewhere removed bundles must be dropped here.
                    let held = &self.held;
                    queue.waiting.retain(|digest| held.contains_key(digest));
                }
            }
            self.trim_turns();
        } else {
            self.no_longer_idle(bundle, held.charged);
        }
        while let Some((since, digest)) = self.arrivals.front()
            && !self.held.get(digest).is_some_and(|held| held.waits_since(*since))
        {
            self.arrivals.pop_front();
        }
        // One bundle that stays must not keep the entries of all later ones.
        if self.arrivals.len() > self.held.len().saturating_mul(2).saturating_add(ARRIVALS_SLACK) {
            let held = &self.held;
            self.arrivals.retain(|(since, digest)| held.get(digest).is_some_and(|held| held.since == *since));
        }
    }

    /// Drops turns of clients that are gone, and repeated ones, when they outnumber the valid ones.
    fn trim_turns(&mut self) {
        if self.turns.len() > self.clients.len().saturating_mul(2).saturating_add(QUEUE_SLACK) {
            let clients = &self.clients;
            let mut seen = BTreeSet::new();
            self.turns.retain(|client| {
                clients.get(client).is_some_and(|queue| !queue.waiting.is_empty()) && seen.insert(*client)
            });
        }
    }

    /// Removes a pending bundle whose number another bundle has used: it is superseded and will never be executed.
    pub(crate) fn supersede(&mut self, client: ClientId, session: SessionId, number: BundleNo) {
        if let Some(digest) = self.numbers.get(&(client, session, number)).copied() {
            self.remove(&digest);
        }
    }

    /// Makes the bundles of the old view's proposals wait again, apart from executed ones: the view has changed.
    pub(crate) fn untake(&mut self) {
        self.clients.clear();
        self.turns.clear();
        // Idle bodies too: they may come to count as pending.
        self.held.values_mut().for_each(|held| held.taken = false);
        let again: Vec<(ClientId, BundleDigest, usize)> = self
            .arrivals
            .iter()
            .filter_map(|(since, digest)| {
                let held = self.held.get(digest)?;
                let counts = held.waits_since(*since);
                counts.then(|| (held.bundle.client(), *digest, held.bundle.size()))
            })
            .collect();
        for (client, digest, size) in again {
            self.queue_up(client, digest, size);
        }
    }

    /// Returns the pending bundles to forward to a new leader, up to the maximum. Bundles that clients handed over
    /// here come first, because the leader may not have them. Then comes the oldest.
    pub(crate) fn to_forward(&self) -> Vec<Bundle> {
        let held = |digest| self.held.get(digest);
        let waiting = || {
            let arrivals = self.arrivals.iter();
            arrivals.filter_map(|(since, digest)| {
                held(digest).filter(|held: &&PooledBundle| held.waits_since(*since))
            })
        };
        let direct = waiting().filter(|held| held.direct);
        let others = waiting().filter(|held| !held.direct);
        let mut room = FORWARD_BYTES_MAX;
        let fits = |held: &&PooledBundle| {
            let left = room.checked_sub(held.bundle.size());
            room = left.unwrap_or(room);
            left.is_some()
        };
        let chosen = direct.chain(others).take(FORWARD_BUNDLES_MAX).take_while(fits);
        chosen.map(|held| held.bundle.clone()).collect()
    }

    /// Whether a bundle waits that no block of this replica has.
    pub(crate) fn has_untaken(&self) -> bool {
        !self.turns.is_empty()
    }

    /// Returns the pool's state as protocols see it.
    pub(crate) fn summary(&self, lagging: bool) -> Pending {
        let oldest = self.oldest();
        let backlog_ns = self.rate.duration_ns(self.waiting_cost());
        let overloaded = lagging || self.is_full();
        let (bundles, bytes) = (self.pending, self.bytes);
        let undecided = bundles.saturating_sub(self.decided);
        Pending { bundles, undecided, bytes, oldest, overloaded, lagging, backlog_ns }
    }

    /// Returns the time at which [`Pool::overdue`] has work to do.
    pub(crate) fn deadline(&self) -> Option<Time> {
        if self.held.is_empty() { None } else { self.spread_check }
    }

    /// Takes the bundles of clients that have waited so long that they go to all replicas; with `also_of_peers` those
    /// of peers too. Drops bodies that no block has named.
    pub(crate) fn overdue(&mut self, now: Time, also_of_peers: bool) -> Vec<Bundle> {
        let mut overdue = Vec::new();
        if self.spread_check.is_none_or(|at| at > now) {
            return overdue;
        }
        let mut orphans = Vec::new();
        let mut next: Option<Time> = None;
        for (digest, held) in &mut self.held {
            if !held.pending {
                if now.since(held.since) >= ORPHAN_NS_MAX {
                    orphans.push(*digest);
                    continue;
                }
                held.spread_at = held.since.plus(ORPHAN_NS_MAX);
            } else if !(held.direct || also_of_peers) || overdue.len() >= SPREAD_ROUND_MAX {
                // The peer sends it to all itself, or this replica sends it to the leader.
                continue;
            } else if held.spread_at <= now {
                held.pause_ns = held.pause_ns.saturating_mul(2).min(SPREAD_PAUSE_NS_MAX);
                held.spread_at = now.plus(held.pause_ns);
                held.spread = true;
                overdue.push(held.bundle.clone());
            }
            next = Some(next.map_or(held.spread_at, |at: Time| at.min(held.spread_at)));
        }
        // One pass over all bodies takes time in proportion to them: at most ten in a second.
        self.spread_check = next.map(|at| at.max(now.plus(100_000_000)));
        for digest in orphans {
            self.remove(&digest);
        }
        overdue.sort_by_key(|bundle| (bundle.session(), bundle.number()));
        overdue
    }

    /// Returns the size, for status.
    pub(crate) fn size(&self) -> PoolSize {
        PoolSize {
            bundles: self.pending,
            bytes: self.bytes.saturating_sub(self.idle_bytes),
            idle_bundles: self.held.len().saturating_sub(self.pending),
            idle_bytes: self.idle_bytes,
        }
    }

    /// Returns the number of pending bundles.
    pub(crate) fn waiting(&self) -> usize {
        self.pending
    }
}
