//! One replica among peers that send arbitrary messages, with a stalling disk and power cuts. No slot is ever filled twice
//! (the harness stops there). Votes of a view are on one chain, a silent replica signs nothing, and no timer commits a vote
//! of before a silence.

use super::*;
use quorate_consensus::harness::payload;
use quorate_consensus::{LinkEvent, Ready};
use quorate_types::rng::Rng;
use std::collections::{BTreeMap, BTreeSet};

both! {
    no_input_makes_a_replica_equivocate;
}

/// Proposals of lying leaders in three views.
struct World {
    headers: Vec<Header>,
}

impl World {
    fn draw(rng: &mut Rng) -> Self {
        let mut headers: Vec<Header> = Vec::new();
        for view in 1..=3 {
            let mut bases = vec![GENESIS];
            if view > 1 {
                bases = (0..2).map(|_| end(&headers[rng.index(headers.len())])).collect();
            }
            let lies = rng.chance(400_000);
            for base in bases.into_iter().take(if lies { 2 } else { 1 }) {
                let main = chain(N, view, base, &[1, 2, 3]);
                let side = chain_on(N, view, base.1, end(&main[0]), &[4, 5]);
                let other = chain(N, view, base, &[6, 7]);
                headers.extend(if lies { [main, side, other].concat() } else { main });
            }
        }
        Self { headers }
    }

    fn any(&self, rng: &mut Rng) -> &Header {
        &self.headers[rng.index(self.headers.len())]
    }

    /// Returns a header of this view, if possible.
    fn of_view(&self, rng: &mut Rng, view: u64) -> &Header {
        let fitting: Vec<&Header> = self.headers.iter().filter(|it| it.block.view == View(view)).collect();
        rng.pick(&fitting).copied().unwrap_or(&self.headers[0])
    }

    fn lock(&self, rng: &mut Rng, before: u64) -> Lock {
        let tip = self.any(rng);
        if tip.block.view.0 >= before {
            return Lock::genesis();
        }
        let responsive = rng.chance(300_000).then(|| certificate(tip.block.view.0, end(tip), 4));
        Lock { responsive, tip: certified(N, tip) }
    }

    fn answer(&self, rng: &mut Rng, view: u64) -> Answer {
        let stage = [RecoveryStage::Silent, RecoveryStage::Voting, RecoveryStage::Running][rng.index(3)];
        let mut answer = stands(stage);
        if rng.chance(50_000) {
            answer.evidence = vec![blames(N, view)];
        }
        if rng.chance(300_000) {
            answer.certificates = vec![certified(N, self.any(rng))];
        }
        if rng.chance(300_000) {
            answer.headers = vec![signed(self.of_view(rng, view))];
        }
        if rng.chance(300_000) && view > 1 {
            let body = SyncNewView { view: View(view), lock: self.lock(rng, view) };
            answer.new_view = Some(Signed { body, by: leads(N, view), signature: SIGNATURE });
        }
        answer
    }

    /// Returns a message of some peer, with the peer.
    fn message(&self, rng: &mut Rng, near: u64) -> (u16, SyncMessage) {
        let view = if rng.chance(800_000) { near.min(3) } else { 1 + rng.below(3) };
        let header = if rng.chance(800_000) { self.of_view(rng, view) } else { self.any(rng) };
        let leader = header.block.proposer.0;
        let peer = u16::try_from(rng.below(5)).unwrap();
        match rng.below(15) {
            0..=2 => (leader, proposal(N, header)),
            3..=5 => (peer, voted(header)),
            6 => (peer, first_vote(view, (header.block.height.minus(1), header.base))),
            7 => (leads(N, view).0, new_view(view, &self.lock(rng, view))),
            8 => (peer, forward(N, view, &self.lock(rng, view))),
            9 if rng.chance(300_000) => {
                (peer, SyncMessage::Status { view: View(view), lock: self.lock(rng, view) })
            }
            10 => (
                peer,
                SyncMessage::Certified(certificate(
                    view,
                    (header.block.height.minus(1), header.block.parent),
                    3,
                )),
            ),
            11 => (peer, SyncMessage::Notify(certificate(header.block.view.0, end(header), 4))),
            12 => (peer, SyncMessage::Answer(Box::new(self.answer(rng, view)))),
            13 if rng.chance(300_000) => (peer, SyncMessage::Blame(View(view))),
            14 if rng.chance(100_000) => (peer, SyncMessage::Evidence(blames(N, view))),
            14 => {
                let (height, block) = end(header);
                (peer, SyncMessage::Lack { view: View(view), height, block })
            }
            _ => (peer, voted(header)),
        }
    }
}

/// Statements and commits of the replica so far.
struct Seen {
    /// All proposals.
    headers: BTreeMap<BlockId, Header>,
    /// Blocks of its votes in each view, of all incarnations.
    votes: BTreeMap<View, BTreeSet<BlockId>>,
    /// View and height of votes since it was opened or fell silent.
    fresh: BTreeSet<(u64, u64)>,
    commits: [usize; 2],
}

impl Seen {
    fn new(world: &World) -> Self {
        let headers = world.headers.iter().map(|header| (id(header), header.clone())).collect();
        Self { headers, votes: BTreeMap::new(), fresh: BTreeSet::new(), commits: [0, 0] }
    }

    fn is_above(&self, high: BlockId, low: BlockId) -> bool {
        let mut at = high;
        while at != low {
            let Some(header) = self.headers.get(&at) else { return false };
            at = header.block.parent;
        }
        true
    }

    fn take<V: Variant>(&mut self, bench: &mut Bench<V>, was_silent: bool) {
        let lines = bench.replica.lines();
        let is_silent = bench.stage() == RecoveryStage::Silent;
        for line in &lines {
            assert!(!(was_silent && is_silent && line.starts_with("hold")), "{lines:#?}");
            if let Some(place) = line.strip_prefix("note voted v") {
                let (view, height) = place.split_once(" h").unwrap();
                self.fresh.insert((view.parse().unwrap(), height.parse().unwrap()));
            } else if line.starts_with("note fell silent") {
                self.fresh.clear();
            }
        }
        for message in bench.sent() {
            let (view, block) = match &message {
                SyncMessage::Vote(header) => {
                    self.headers.insert(id(&header.body), header.body.clone());
                    (header.body.block.view, id(&header.body))
                }
                SyncMessage::FirstVote { view, base, .. } => (*view, *base),
                _ => continue,
            };
            self.votes.entry(view).or_default().insert(block);
            let votes = &self.votes[&view];
            let is_comparable =
                |other: &BlockId| self.is_above(block, *other) || self.is_above(*other, block);
            assert!(votes.iter().all(is_comparable), "two chains in view {view}: {votes:?}");
        }
        for (block, basis) in bench.committed() {
            let header = &self.headers[&block];
            let place = (header.block.view.0, header.block.height.0);
            self.commits[usize::from(basis == CommitRule::Timer)] += 1;
            assert!(basis == CommitRule::Votes || self.fresh.contains(&place), "{place:?} {lines:#?}");
        }
    }
}

/// Causes one event. True after a power cut.
fn step<V: Variant>(world: &World, bench: &mut Bench<V>, rng: &mut Rng) -> bool {
    match rng.below(100) {
        0..=54 => {
            let (from, message) = world.message(rng, bench.view());
            if from != bench.replica.me().0
                && claims_hold::<V>(&message).is_ok()
                && bench.replica.window().admits(&message.place())
            {
                let _ = bench.deliver(from, message);
            }
        }
        55..=64 => bench.replica.settle(),
        65..=67 => bench.replica.sync(),
        68..=77 => bench.wait([1, quarter(), delta(1), delta(2), delta(4) + heartbeat()][rng.index(5)]),
        78..=81 => bench.replica.fetched(world.any(rng).block.clone()),
        82 => bench.replica.answer(id(world.any(rng)), None),
        83..=84 => bench.replica.ready(id(world.any(rng)), Ready::Valid),
        85..=86 => bench.replica.offer([payload(rng.below(9))]),
        87 => bench.replica.sound(Some(bench.now()), Time::MAX),
        88 => bench.replica.sound(None, bench.now().minus(delta(1))),
        89..=90 => bench.replica.sound(None, Time::MAX),
        91 => {
            let peers = bench.peers();
            bench.replica.link(r(peers[rng.index(peers.len())]), LinkEvent::Gap);
        }
        92..=96 => bench.answers(&stands(RecoveryStage::Running)),
        97 => {
            let kept = rng.index(bench.replica.unsynced() + 1);
            bench.replica.crash_after(kept).unwrap();
            return true;
        }
        98 => {
            bench.replica.crash().unwrap();
            return true;
        }
        _ if rng.chance(700_000) => bench.replica.settle(),
        _ => {
            // Sometimes f + 1 blame the view.
            let evidence = SyncMessage::Evidence(blames(N, bench.view()));
            let _ = bench.deliver(bench.peers()[0], evidence);
        }
    }
    false
}

fn no_input_makes_a_replica_equivocate<V: Variant>() {
    let mut commits = [0, 0];
    let mut votes = 0;
    for seed in 0..1_000 {
        let mut rng = Rng::new(seed);
        let world = World::draw(&mut rng);
        // The others lead the three views, and lie.
        let me = 3 + u16::try_from(rng.below(2)).unwrap();
        let mut bench = Bench::<V>::running(me, N);
        let mut seen = Seen::new(&world);
        for _ in 0..200 {
            let was_silent = bench.stage() == RecoveryStage::Silent;
            // Messages that left before the power cut count.
            seen.take(&mut bench, was_silent);
            if step(&world, &mut bench, &mut rng) {
                seen.fresh.clear();
            }
            seen.take(&mut bench, was_silent);
            if bench.replica.alarms().iter().any(|alarm| alarm.stops()) {
                break;
            }
        }
        commits = [commits[0] + seen.commits[0], commits[1] + seen.commits[1]];
        votes += seen.votes.values().map(BTreeSet::len).sum::<usize>();
    }
    assert!(votes > 1_000 && commits[1] > 100, "{votes} {commits:?}: the test tests something");
    assert_eq!(commits[0] > 50, V::responsive_quorum(5).is_some(), "{commits:?}");
}
