//! Bundles that wait, and the bodies of blocks that are not executed yet.
//!
//! Nothing leaves the pool before it is executed, so a block that dies takes nothing with it. What is proposed
//! comes oldest first and fair over clients. Everything here is bounded in bytes and count.

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

/// A bundle that pends longer than this goes to all replicas, again with doubling pauses.
const SPREAD_AFTER_NS: u64 = 1_000_000_000;
/// Longest pause between two rounds of spreading one bundle.
const SPREAD_PAUSE_NS_MAX: u64 = 10_000_000_000;
/// How long a body that counts for nothing (executed already, unknown session) is kept for a block that may
/// still name it.
const ORPHAN_NS_MAX: u64 = 30_000_000_000;

/// Bundles that go to all in one round at most: an overloaded replica must not make more load.
const SPREAD_ROUND_MAX: usize = 64;
/// What one replica forwards to a new leader at most, in bundles and bytes. What is more waits until its client asks
/// all replicas, or until it goes to all because of its age.
const FORWARD_BUNDLES_MAX: usize = 1_024;
const FORWARD_BYTES_MAX: usize = 4 << 20;
/// Bundles in a block for which room is made at once.
const TAKE_EXPECTED: usize = 64;
/// Entries of bundles that are gone which the list of arrivals may hold.
const ARRIVALS_SLACK: usize = 1_024;

/// The same for the queue of one client, and for the clients' turns.
const QUEUE_SLACK: usize = 64;

/// What became of a bundle.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PoolVerdict {
    /// It is in the pool now.
    New,
    /// It was there for blocks that may name it, and counts as waiting from now on.
    Promoted,
    /// It was there already.
    Known,
    /// Too much waits, of this client or in all.
    Busy,
    /// This client uses the number for another content.
    NumberReused,
}

/// Whose bundle numbers: a session's, or a client's nonces before it has a session.
type BundleKey = (ClientId, SessionId, BundleNo);

#[derive(Debug)]
struct PooledBundle {
    bundle: Bundle,
    since: Time,
    /// Whether it counts as waiting; see `ORPHAN_NS_MAX`.
    pending: bool,
    /// Whether nothing else of its client has waited when it began to.
    first: bool,
    /// The peer whose room it takes while it does not.
    charged: Option<ReplicaId>,
    /// Whether a client handed it over itself: then other replicas may not have it.
    direct: bool,
    /// Whether it stands in a block that this replica has proposed in the current view.
    taken: bool,
    /// Whether it stands in a chain that is decided.
    decided: bool,
    /// Whether this replica has sent it to all.
    spread: bool,
    spread_at: Time,
    pause_ns: u64,
}

impl PooledBundle {
    /// Whether this is what an entry in the list of arrivals stands for, and it counts as waiting.
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
    /// Clients with something to propose, in the order of their turns.
    turns: VecDeque<ClientId>,
    /// What counts as waiting, oldest first; entries whose bundle is gone are skipped, and the first is never one.
    arrivals: VecDeque<(Time, BundleDigest)>,
    pending: usize,
    /// What those count for of whose clients nothing else has waited when they came.
    firsts: usize,
    /// Those of them that wait for their execution alone.
    decided: usize,
    bytes: usize,
    /// Bytes of what does not count as waiting: all of it, and of each peer that is charged for some.
    idle_bytes: usize,
    charges: BTreeMap<ReplicaId, usize>,
    spread_check: Option<Time>,
    rate: ExecutionRate,
}

/// What a bundle counts for.
pub(crate) fn cost(bundle: &Bundle) -> usize {
    cost_of(bundle.size(), 1)
}

/// What so many bytes in so many bundles count for.
fn cost_of(bytes: usize, bundles: usize) -> usize {
    bytes.saturating_add(bundles.saturating_mul(BUNDLE_OVERHEAD_BYTES))
}

/// Whether so many bytes and bundles leave room for one more, where there are so many halves of what clients may fill.
fn has_room(bytes: usize, bundles: usize, bundle: &Bundle, halves: usize) -> bool {
    bytes.saturating_add(bundle.size()) <= (POOL_BYTES_MAX / 2).saturating_mul(halves)
        && bundles < (POOL_BUNDLES_MAX / 2).saturating_mul(halves)
}

fn key_of(bundle: &Bundle) -> BundleKey {
    (bundle.client(), bundle.session(), bundle.number())
}

impl Pool {
    /// Whether a body is here.
    pub(crate) fn contains(&self, digest: &BundleDigest) -> bool {
        self.held.contains_key(digest)
    }

    /// A body that is here.
    pub(crate) fn get(&self, digest: &BundleDigest) -> Option<&Bundle> {
        self.held.get(digest).map(|held| &held.bundle)
    }

    /// Whether a bundle is here and counts as waiting.
    pub(crate) fn waits(&self, digest: &BundleDigest) -> bool {
        self.held.get(digest).is_some_and(|held| held.pending)
    }

    /// Whether as much waits as clients may fill.
    fn is_full(&self) -> bool {
        self.bytes.saturating_sub(self.idle_bytes) >= POOL_BYTES_MAX || self.pending >= POOL_BUNDLES_MAX
    }

    /// Whether a bundle finds room to wait. What peers sent without need takes none. A peer may add more than a client itself
    /// may, because a block may need it; and those of whom nothing waits yet find room where others have filled what is theirs.
    fn fits(&self, bundle: &Bundle, is_direct: bool) -> bool {
        let halves = match (self.own_cost(bundle), is_direct) {
            (0, _) => 4,
            (_, false) => 3,
            (_, true) => 2,
        };
        has_room(self.bytes.saturating_sub(self.idle_bytes), self.pending, bundle, halves)
    }

    /// Whether a client that brings one more bundle should hear `Busy`, where `more` will have come from others by
    /// then: too much waits for the rate at which it is executed, and more of it than its share is this client's.
    /// A large bundle finds room as easily as a small one, or its client would wait for ever among those of small
    /// ones.
    pub(crate) fn is_busy(&self, now: Time, bundle: &Bundle, more: usize) -> bool {
        let Some(oldest) = self.oldest() else { return false };
        let limit = self.rate.limit(now, oldest);
        let waiting = self.waiting_cost().saturating_add(more);
        if waiting < limit {
            return false;
        }
        let own = self.own_cost(bundle);
        if own == 0 {
            // The shares of all who wait are the limit: whoever has nothing here yet finds room above it. Also where somebody has
            // taken that: with a peer that lies a client waits here with as much as it likes.
            let firsts = self.firsts.saturating_add(more);
            return waiting >= limit.saturating_add(limit / 2) && firsts >= limit / 2;
        }
        let share = limit.checked_div(self.clients.len().max(1)).unwrap_or(limit);
        own.saturating_add(cost(bundle)) > share
    }

    fn own_cost(&self, bundle: &Bundle) -> usize {
        self.clients.get(&bundle.client()).map_or(0, |queue| cost_of(queue.bytes, queue.bundles))
    }

    /// See [`ExecutionRate::set_patience`].
    pub(crate) fn set_patience(&mut self, patience_ns: u64) {
        self.rate.set_patience(patience_ns);
    }

    /// See [`ExecutionRate::set_leads`].
    pub(crate) fn set_leads(&mut self, leads: bool) {
        self.rate.set_leads(leads);
    }

    fn waiting_cost(&self) -> usize {
        cost_of(self.bytes.saturating_sub(self.idle_bytes), self.pending)
    }

    /// Since when the oldest that counts as waiting does.
    fn oldest(&self) -> Option<Time> {
        self.arrivals.front().map(|(since, _)| *since)
    }

    /// Adds what a client handed over itself.
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

    /// Adds what a peer handed over. A block may need it, so it has twice the room of clients; `pending` is
    /// false for what is executed already or belongs to no known session. That, and what finds no room to wait, takes the
    /// room of the peer that is `charged` for it, if one is: what a block names finds room although too much waits.
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

    /// Whether a bundle that a peer handed over may count as waiting. Its client has twice the room that it has where it
    /// comes itself: with a peer that lies, or with all of them, it could fill the pool otherwise.
    fn has_room_to_wait(&self, bundle: &Bundle) -> bool {
        let queue = self.clients.get(&bundle.client());
        let (bytes, bundles) = queue.map_or((0, 0), |queue| (queue.bytes, queue.bundles));
        bytes.saturating_add(bundle.size()) <= POOL_CLIENT_BYTES_MAX.saturating_mul(2)
            && bundles < POOL_CLIENT_BUNDLES_MAX.saturating_mul(2)
            && self.fits(bundle, false)
    }

    /// Adds what the log has of a block that is not executed. It was held before the restart, by that block, however full
    /// the pool was, and nobody else may have it.
    pub(crate) fn restore(&mut self, bundle: &Bundle) {
        if !self.contains(&bundle.digest()) {
            self.insert(Time::ZERO, bundle, false, false, None);
        }
    }

    /// Whether there is room for a bundle that counts for nothing, at the charge of a peer or of nobody.
    pub(crate) fn has_idle_room(&self, bundle: &Bundle, charged: Option<ReplicaId>) -> bool {
        let used = charged.and_then(|peer| self.charges.get(&peer)).copied().unwrap_or_default();
        used.saturating_add(cost(bundle)) <= POOL_PEER_IDLE_BYTES_MAX
            && has_room(self.idle_bytes, self.held.len().saturating_sub(self.pending), bundle, 4)
    }

    /// A body that counted for nothing, because it came from the log or before its session did, is wanted by its
    /// client after all.
    fn promote(&mut self, now: Time, bundle: &Bundle, direct: bool) -> PoolVerdict {
        let digest = bundle.digest();
        let Some(held) = self.held.get_mut(&digest).filter(|held| !held.pending) else {
            return PoolVerdict::Known;
        };
        held.pending = true;
        self.decided = self.decided.saturating_add(usize::from(held.decided));
        let charged = held.charged.take();
        held.direct |= direct;
        // It waits since now.
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

    /// True where nothing else of its client waits.
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

    /// Takes bundles for a payload: one of each client in turn, within the limits of a block. They stay here,
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

    /// A block with this bundle is going to be decided: no payload of this replica needs it in this view.
    pub(crate) fn mark_taken(&mut self, digest: &BundleDigest) {
        if let Some(held) = self.held.get_mut(digest) {
            held.taken = true;
        }
    }

    /// A chain with this bundle is decided: it waits for its execution alone.
    pub(crate) fn mark_decided(&mut self, digest: &BundleDigest) {
        if let Some(held) = self.held.get_mut(digest).filter(|held| !held.decided) {
            held.decided = true;
            self.decided = self.decided.saturating_add(usize::from(held.pending));
        }
    }

    /// Notes that a bundle went to all; false when it had before.
    pub(crate) fn mark_spread(&mut self, digest: &BundleDigest) -> bool {
        match self.held.get_mut(digest) {
            Some(held) if !held.spread => {
                held.spread = true;
                true
            }
            _ => false,
        }
    }

    /// A bundle was executed: it leaves.
    pub(crate) fn executed(&mut self, now: Time, digest: &BundleDigest) {
        if let Some(held) = self.held.get(digest).filter(|held| held.pending) {
            self.rate.serve(now, cost(&held.bundle));
        }
        self.remove(digest);
    }

    /// A bundle leaves.
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
                    // Only a leader takes from the front; everywhere else, what is gone must go from here.
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
        // One bundle that stays must not keep the entries of all that came after it.
        if self.arrivals.len() > self.held.len().saturating_mul(2).saturating_add(ARRIVALS_SLACK) {
            let held = &self.held;
            self.arrivals.retain(|(since, digest)| held.get(digest).is_some_and(|held| held.since == *since));
        }
    }

    /// Turns of clients that are gone, or come twice, go when they are more than those that count.
    fn trim_turns(&mut self) {
        if self.turns.len() > self.clients.len().saturating_mul(2).saturating_add(QUEUE_SLACK) {
            let clients = &self.clients;
            let mut seen = BTreeSet::new();
            self.turns.retain(|client| {
                clients.get(client).is_some_and(|queue| !queue.waiting.is_empty()) && seen.insert(*client)
            });
        }
    }

    /// Other bundles of the same number are superseded: once one is executed the others never will be, so
    /// they no longer count as waiting.
    pub(crate) fn supersede(&mut self, client: ClientId, session: SessionId, number: BundleNo) {
        if let Some(digest) = self.numbers.get(&(client, session, number)).copied() {
            self.remove(&digest);
        }
    }

    /// The view has changed: what was proposed in the old one and is not executed waits again.
    pub(crate) fn untake(&mut self) {
        self.clients.clear();
        self.turns.clear();
        // Also what does not count as waiting: it may come to.
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

    /// What counts as waiting, for a new leader: oldest first, but before all others those that clients have handed
    /// over here, because the leader may not have them. As many as may be forwarded at once.
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

    /// Whether something waits that is not in a block of this replica.
    pub(crate) fn has_untaken(&self) -> bool {
        !self.turns.is_empty()
    }

    /// What protocols may know.
    pub(crate) fn summary(&self, lagging: bool) -> Pending {
        let oldest = self.oldest();
        let backlog_ns = self.rate.duration_ns(self.waiting_cost());
        let overloaded = lagging || self.is_full();
        let (bundles, bytes) = (self.pending, self.bytes);
        let undecided = bundles.saturating_sub(self.decided);
        Pending { bundles, undecided, bytes, oldest, overloaded, lagging, backlog_ns }
    }

    /// When [`Pool::overdue`] has something to do.
    pub(crate) fn deadline(&self) -> Option<Time> {
        if self.held.is_empty() { None } else { self.spread_check }
    }

    /// Bundles of clients that have waited so long that they go to all replicas, with `also_of_peers` those as well that
    /// a peer has handed over; drops bodies that no block has named.
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
                // What a peer handed over, it hands over to all, or this replica to the leader.
                continue;
            } else if held.spread_at <= now {
                held.pause_ns = held.pause_ns.saturating_mul(2).min(SPREAD_PAUSE_NS_MAX);
                held.spread_at = now.plus(held.pause_ns);
                held.spread = true;
                overdue.push(held.bundle.clone());
            }
            next = Some(next.map_or(held.spread_at, |at: Time| at.min(held.spread_at)));
        }
        // One look at all bodies costs time in proportion: at most ten in a second.
        self.spread_check = next.map(|at| at.max(now.plus(100_000_000)));
        for digest in orphans {
            self.remove(&digest);
        }
        overdue.sort_by_key(|bundle| (bundle.session(), bundle.number()));
        overdue
    }

    /// For status.
    pub(crate) fn size(&self) -> PoolSize {
        PoolSize {
            bundles: self.pending,
            bytes: self.bytes.saturating_sub(self.idle_bytes),
            idle_bundles: self.held.len().saturating_sub(self.pending),
            idle_bytes: self.idle_bytes,
        }
    }

    /// Bundles that wait.
    pub(crate) fn waiting(&self) -> usize {
        self.pending
    }
}
