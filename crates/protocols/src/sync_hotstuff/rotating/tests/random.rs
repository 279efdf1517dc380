//! One replica among peers that send arbitrary messages, with a stalling disk and power cuts. No slot is ever filled twice
//! (the harness stops there). Votes go up from view to view, and no parent is below the lock. A silent replica signs nothing.
//! No timer commits a block after an uncertified view, or a vote of before a silence.

use super::*;
use quorate_consensus::{LinkEvent, Ready};
use quorate_types::rng::Rng;
use std::collections::{BTreeMap, BTreeSet};

/// Views whose leaders lie; this replica leads the one after.
const LYING: u64 = 4;

/// Proposals of lying leaders.
struct World {
    headers: Vec<Header>,
}

impl World {
    fn draw(rng: &mut Rng) -> Self {
        let mut headers: Vec<Header> = Vec::new();
        for view in 1..=LYING {
            for number in 0..1 + rng.below(3) {
                let last = headers.last().filter(|last| last.block.view < View(view));
                let on = match last {
                    Some(last) if rng.chance(600_000) => tip(last),
                    _ => {
                        let below: Vec<Tip> =
                            headers.iter().filter(|it| it.block.view < View(view)).map(tip).collect();
                        rng.pick(&below).copied().unwrap_or(GENESIS)
                    }
                };
                headers.push(header(view, on, number));
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

    fn evidence(&self, rng: &mut Rng, view: u64) -> ViewEvidence {
        let (one, two) = (self.of_view(rng, view), self.of_view(rng, view));
        match rng.below(3) {
            0 if one != two => conflict(one, two),
            1 if one != two => ViewEvidence::Certificates(Box::new((certified(one), certified(two)))),
            _ => ViewEvidence::Blames(blames(view)),
        }
    }

    fn answer(&self, rng: &mut Rng, view: u64) -> Answer {
        let mut answer =
            stands([RecoveryStage::Silent, RecoveryStage::Voting, RecoveryStage::Running][rng.index(3)]);
        answer.blames = rng.chance(30_000).then(|| blames(view));
        if rng.chance(50_000) {
            answer.certificates = vec![certified(self.any(rng))];
        }
        answer.header = rng.chance(300_000).then(|| signed(self.of_view(rng, view)));
        answer
    }

    /// Returns a message of some peer, with the peer.
    fn message(&self, rng: &mut Rng, near: u64) -> (u16, RotatingMessage) {
        let view = if rng.chance(900_000) { near.min(LYING) } else { 1 + rng.below(LYING) };
        let header = self.of_view(rng, view);
        let (leader, peer) = (header.block.proposer.0, u16::try_from(rng.below(5)).unwrap());
        match rng.below(14) {
            0..=3 => (leader, proposal(header)),
            4 if rng.chance(300_000) => (peer, shows(header)),
            5 if rng.chance(300_000) => (peer, status(view + 1, certified(header))),
            6 => (peer, RotatingMessage::Answer(Box::new(self.answer(rng, view)))),
            7 if rng.chance(300_000) => (peer, RotatingMessage::Blame(View(view))),
            8 if rng.chance(100_000) => (peer, RotatingMessage::Evidence(self.evidence(rng, view))),
            9 if rng.chance(500_000) => (peer, voted(self.any(rng))),
            _ => (peer, voted(header)),
        }
    }
}

/// Statements and commits of the replica so far.
struct Seen {
    headers: BTreeMap<BlockId, Header>,
    /// View of its last vote, of all incarnations.
    last: View,
    /// Views of votes since it was opened or fell silent.
    fresh: BTreeSet<u64>,
    votes: usize,
    commits: usize,
}

impl Seen {
    fn new(world: &World) -> Self {
        let headers = world.headers.iter().map(|header| (id(header), header.clone())).collect();
        Self { headers, last: View(0), fresh: BTreeSet::new(), votes: 0, commits: 0 }
    }

    fn take(&mut self, bench: &mut Bench, was_silent: bool) {
        let lines = bench.replica.lines();
        let is_silent = bench.stage() == RecoveryStage::Silent;
        for line in &lines {
            assert!(!(was_silent && is_silent && line.starts_with("hold")), "{lines:#?}");
            if let Some(place) = line.strip_prefix("note voted v") {
                let (view, _) = place.split_once(' ').unwrap();
                self.fresh.insert(view.parse().unwrap());
            } else if line.starts_with("note fell silent") {
                self.fresh.clear();
            }
        }
        let protocol = bench.replica.protocol();
        if let Some(voted) = &protocol.state.voted
            && voted.body.block.view == protocol.view
        {
            assert!(
                voted.body.parent_view >= protocol.state.lock.view(),
                "{voted:?} {:?}",
                protocol.state.lock
            );
        }
        for message in bench.sent() {
            if let RotatingMessage::Show(header) = &message {
                self.fresh.insert(header.body.block.view.0);
            }
            if let RotatingMessage::Vote(header) = &message {
                let view = header.body.block.view;
                assert!(view >= self.last, "{view} after {}", self.last);
                self.votes += usize::from(view > self.last);
                self.last = view;
                self.headers.insert(id(&header.body), header.body.clone());
            }
        }
        for block in bench.timer_commits() {
            let header = &self.headers[&block];
            assert_eq!(header.parent_view.next(), header.block.view, "{lines:#?}");
            assert!(self.fresh.contains(&header.block.view.0), "{header:?} {lines:#?}");
            self.commits += 1;
        }
    }
}

/// Causes one event. True after a power cut.
fn step(world: &World, bench: &mut Bench, rng: &mut Rng) -> bool {
    match rng.below(100) {
        0..=54 => {
            let (from, message) = world.message(rng, bench.view());
            if from != bench.replica.me().0
                && claims_hold(&message).is_ok()
                && bench.replica.window().admits(&message.place())
            {
                let _ = bench.deliver(from, message);
            }
        }
        55..=64 => bench.replica.settle(),
        65..=67 => bench.replica.sync(),
        68..=77 => {
            bench.replica.advance([1, quarter(), delta(1), delta(2), delta(5) + heartbeat()][rng.index(5)]);
        }
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
        _ => bench.replica.settle(),
    }
    false
}

#[test]
fn no_input_makes_a_replica_equivocate() {
    let (mut votes, mut commits) = (0, 0);
    for seed in 0..1_500 {
        let mut rng = Rng::new(seed);
        let world = World::draw(&mut rng);
        let mut bench = Bench::new();
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
        (votes, commits) = (votes + seen.votes, commits + seen.commits);
    }
    assert!(votes > 1_000 && commits > 100, "{votes} {commits}: the test tests something");
}
