use super::clock::CLOCK_SPAN_NS;
use super::*;
use quorate_types::limits::{CLOCK_SAMPLES_MAX, PROBES_UNANSWERED_MAX, ROUND_TRIPS_MAX};
use quorate_types::{ClusterId, Epoch, Member, ProtocolId, PublicKey};

const MS: u64 = 1_000_000;
const SECRET: Digest = Digest([5; 32]);
/// Δ; probes go every 10 ms.
const DELTA_NS: u64 = 40 * MS;
/// The head start of a replica that begins rounds.
const SOONER_NS: u64 = 10 * MS / 16;
const LIFE: Incarnation = Incarnation(3);

fn committee(n: u8, f: usize) -> Committee {
    let member = |id: u8| Member { sign: PublicKey([id; 32]), link: PublicKey([100 + id; 32]) };
    Committee {
        cluster: ClusterId::ZERO,
        protocol: ProtocolId::new("still"),
        epoch: Epoch(0),
        f,
        members: (0..n).map(member).collect(),
    }
}

/// Returns the number of the probes of a round.
fn number_of(round: u64) -> u64 {
    probe_number(SECRET, LIFE, round)
}

/// Replica 0 of n that tolerate f, with peers whose answers the test gives. Times are in milliseconds.
struct Rig {
    guard: SynchronyGuard,
    /// Probes that were sent: round, time, and receivers.
    sent: Vec<(u64, u64, ReplicaSet)>,
}

impl Rig {
    /// Returns a guard whose protocol always has work.
    fn of(n: u8, f: usize, guarded: bool) -> Self {
        let mut rig = Self::idle(n, f, guarded);
        rig.guard.schedule.work_until = Time::MAX;
        rig
    }

    fn idle(n: u8, f: usize, guarded: bool) -> Self {
        let bound = Synchrony { delta_ns: DELTA_NS, guarded };
        Self {
            guard: SynchronyGuard::new(bound, ReplicaId(0), &committee(n, f), LIFE, SECRET),
            sent: Vec::new(),
        }
    }

    /// Takes the probe that is due now.
    fn probe(&mut self, ms: u64) -> Option<u64> {
        let (to, message) = self.guard.take_probe(Time(ms * MS))?;
        match (to, message) {
            (To::Some(to), HostMessage::Probe { incarnation, number }) => {
                assert_eq!(incarnation, LIFE);
                let round = self.guard.rounds - 1;
                assert_eq!(number, number_of(round));
                self.sent.push((round, ms, to));
                Some(round)
            }
            other => panic!("{other:?}"),
        }
    }

    /// Advances the time: everything that has arrived was handled.
    fn tick(&mut self, ms: u64) {
        self.guard.tick(Time(ms * MS), Time(ms * MS));
        self.probe(ms);
    }

    /// Answers the probe of a round.
    fn answer_with(&mut self, ms: u64, peer: u16, round: u64, held_ms: u64) -> Result<(), Reject> {
        let (now, number) = (Time(ms * MS), number_of(round));
        self.guard.before_input(now);
        self.guard.on_answer(now, ReplicaId(peer), LIFE, number, (held_ms * MS, now))
    }

    fn answer(&mut self, ms: u64, peer: u16, round: u64) {
        self.answer_with(ms, peer, round, 0).unwrap();
    }

    fn late(&self) -> Vec<u16> {
        self.guard.status().late.iter().map(|(id, _)| id.0).collect()
    }

    fn sound(&mut self, ms: u64, since: u64, fresh: u64) -> bool {
        self.guard.sound(Time(ms * MS), Time(since * MS), Time(fresh * MS))
    }

    /// Runs the guard while these peers answer every probe 1 ms after it was sent.
    fn run(&mut self, from: u64, until: u64, peers: &[u16]) {
        for ms in from..until {
            let now = Time(ms * MS);
            let due: Vec<(u64, ReplicaSet)> = self
                .sent
                .iter()
                .filter(|(_, at, _)| at + 1 == ms)
                .map(|(number, _, to)| (*number, *to))
                .collect();
            for (number, to) in due {
                for peer in peers.iter().filter(|peer| to.contains(ReplicaId(**peer))) {
                    self.answer(ms, *peer, number);
                }
            }
            self.guard.tick(now, now);
            self.probe(ms);
        }
    }
}

#[test]
fn every_peer_is_probed_four_times_in_delta() {
    let mut rig = Rig::of(3, 1, true);
    rig.run(0, 100, &[1, 2]);
    let times: Vec<u64> = rig.sent.iter().map(|(_, at, _)| *at).collect();
    assert_eq!(times, (0..10).map(|k| k * 10).collect::<Vec<u64>>());
    assert!(rig.sent.iter().all(|(_, _, to)| to.len() == 2 && !to.contains(ReplicaId(0))));
    let numbers: Vec<u64> = rig.sent.iter().map(|(number, _, _)| *number).collect();
    assert_eq!(numbers, (0..10).collect::<Vec<u64>>());
    assert_eq!(rig.guard.status().probes, 20);
}

#[test]
fn answer_after_exactly_delta_is_in_time_and_a_later_one_is_not() {
    for (took, held, late) in [
        (40, 0, false),
        (41, 0, true),
        (10, 30, false),
        (10, 31, true),
        (0, 0, false),
        (0, u64::MAX / MS, true),
    ] {
        let mut rig = Rig::of(3, 1, true);
        rig.tick(0);
        rig.answer_with(took, 1, 0, held).unwrap();
        assert_eq!(rig.late().contains(&1), late, "after {took} ms, and {held} ms held");
    }
}

#[test]
fn unanswered_probe_makes_its_peer_late_after_exactly_delta() {
    let mut rig = Rig::of(3, 1, true);
    rig.tick(0);
    rig.tick(10);
    rig.answer(20, 1, 0);
    rig.answer(20, 1, 1);
    assert_eq!(rig.guard.deadline(), Time(20 * MS - SOONER_NS), "the next probe");
    (20..40).for_each(|ms| rig.tick(ms));
    assert_eq!(rig.late(), []);
    assert_eq!(rig.guard.overdue_at, Some(Time(40 * MS)), "the probe of 0");
    // An answer at this very moment precedes the check.
    rig.guard.before_input(Time(40 * MS));
    assert_eq!(rig.late(), []);
    rig.tick(40);
    assert_eq!(rig.late(), [2]);
    assert_eq!(rig.guard.status().late, [(ReplicaId(2), Time(40 * MS))]);
    // The next probe of 2 is overdue too, and changes nothing.
    (41..60).for_each(|ms| rig.tick(ms));
    assert_eq!(rig.guard.status().late, [(ReplicaId(2), Time(40 * MS))]);
}

#[test]
fn peer_that_answers_in_time_again_is_no_longer_late() {
    let mut rig = Rig::of(3, 1, true);
    (0..=45).for_each(|ms| rig.tick(ms));
    assert_eq!(rig.late(), [1, 2], "probes of 0 are unanswered");
    rig.answer(46, 1, 0);
    assert_eq!(rig.late(), [1, 2], "it took 46 ms");
    rig.answer(46, 1, 1);
    assert_eq!(rig.late(), [2], "36 ms");
    assert_eq!(rig.answer_with(46, 1, 1, 0), Err(Reject::Stale), "once");
}

#[test]
fn answers_without_a_matching_probe_are_refused() {
    let mut rig = Rig::of(3, 1, true);
    rig.tick(0);
    assert_eq!(rig.answer_with(1, 1, 1, 0), Err(Reject::Stale), "not sent yet");
    let guess =
        |rig: &mut Rig, number| rig.guard.on_answer(Time(MS), ReplicaId(1), LIFE, number, (0, Time(0)));
    for number in (0..100).chain([u64::MAX]) {
        assert_eq!(guess(&mut rig, number), Err(Reject::Stale));
    }
    assert_eq!(rig.answer_with(1, 0, 0, 0), Err(Reject::WrongSender), "itself");
    assert_eq!(rig.answer_with(1, 9, 0, 0), Err(Reject::WrongSender));
    let earlier = rig.guard.on_answer(Time(MS), ReplicaId(1), Incarnation(2), 99, (0, Time(0)));
    assert_eq!(earlier, Ok(()), "a probe of another incarnation");
    assert!(!rig.sound(1, 0, 0));
    assert_eq!(rig.guard.status().max_ns, 0, "nothing was measured");
}

#[test]
fn more_than_f_late_peers_are_doubt() {
    let mut rig = Rig::of(5, 2, true);
    rig.run(0, 100, &[1, 2, 3, 4]);
    assert_eq!(rig.guard.doubt(), (false, 0));
    rig.run(100, 200, &[1, 2]);
    assert_eq!(rig.late(), [3, 4]);
    assert_eq!(rig.guard.doubt(), (false, 0), "f are no doubt");
    assert!(!rig.guard.take_change());
    rig.run(200, 300, &[1]);
    assert_eq!(rig.guard.doubt(), (true, 1));
    assert!(rig.guard.take_change());
    assert!(!rig.guard.take_change(), "reported once");
    // The last probe that 2 has answered was sent at 190; that of 200 is due at 240.
    assert_eq!(rig.guard.status().late[0], (ReplicaId(2), Time(240 * MS)));
    assert!(!rig.sound(300, 299, 0));
    assert_eq!(rig.guard.status().last_doubt, Some(Time(300 * MS)), "while it lasts: now");
    rig.run(300, 310, &[1, 2]);
    assert!(!rig.guard.doubt().0);
    assert!(rig.guard.take_change());
    let last = rig.guard.status().last_doubt.unwrap();
    assert_eq!(last, Time(301 * MS), "2 has answered the probe of 300");
    assert!(!rig.sound(320, 301, 0), "there was doubt at that moment");
    assert!(rig.sound(320, 302, 0));
}

/// Six replicas with f = 2: f + 1 is neither n - f, nor a quorum, nor n. Of the others, n - f - 1 are honest.
#[test]
fn f_plus_1_late_peers_are_doubt_where_n_is_larger_than_2f_plus_1() {
    let mut rig = Rig::of(6, 2, true);
    rig.run(0, 100, &[1, 2, 3, 4, 5]);
    rig.run(100, 200, &[1, 2, 3]);
    assert!(!rig.guard.doubt().0, "two may lie");
    assert!(rig.sound(200, 101, 110), "three have answered since");
    rig.run(200, 300, &[1, 2]);
    assert!(rig.guard.doubt().0);
}

/// After a standstill a replica handles all waiting inputs at once. All answers among them are late, although those of
/// one peer are handled before those of the next.
#[test]
fn replica_is_in_doubt_after_a_standstill() {
    let mut rig = Rig::of(3, 1, true);
    rig.run(0, 92, &[1, 2]);
    let number = rig.probe(100).unwrap();
    rig.answer(400, 1, number);
    assert!(rig.guard.doubt().0, "the answer of 2 waits behind it, and is as late");
    let newer = rig.probe(400).unwrap();
    rig.answer(401, 1, newer);
    assert_eq!((rig.late(), rig.guard.doubt()), (vec![2], (false, 1)));
    assert!(!rig.sound(401, 400, 0), "and there was doubt");
}

#[test]
fn gap_makes_a_peer_late_until_a_newer_probe_is_answered() {
    let mut rig = Rig::of(3, 1, true);
    rig.run(0, 35, &[1, 2]);
    rig.guard.on_gap(Time(35 * MS), ReplicaId(1));
    assert_eq!(rig.late(), [1]);
    assert!(!rig.guard.doubt().0, "one of two");
    assert_eq!(rig.answer_with(36, 1, 3, 0), Err(Reject::Stale), "that was sent before");
    assert_eq!(rig.late(), [1]);
    rig.guard.on_gap(Time(37 * MS), ReplicaId(2));
    assert!(rig.guard.doubt().0 && rig.guard.take_change());
    rig.tick(40);
    rig.answer(41, 1, 4);
    assert_eq!(rig.late(), [2]);
    assert!(!rig.guard.doubt().0 && rig.guard.take_change());
    // A late answer to the newer probe clears the gap, and is late itself.
    (41..=85).for_each(|ms| rig.tick(ms));
    rig.answer(86, 2, 4);
    assert!(rig.late().contains(&2));
    rig.answer(86, 2, 8);
    assert!(!rig.late().contains(&2));
}

#[test]
fn sound_needs_fresh_answers_of_all_but_f_peers() {
    let mut rig = Rig::of(5, 2, true);
    rig.tick(0);
    assert!(!rig.sound(0, 0, 0), "no peer has answered");
    rig.answer(1, 1, 0);
    assert!(!rig.sound(1, 0, 0));
    rig.answer(1, 4, 0);
    assert!(rig.sound(1, 0, 0), "n - f - 1 are 2");
    rig.tick(10);
    rig.answer(12, 1, 1);
    rig.answer(12, 2, 1);
    assert!(rig.sound(12, 0, 10));
    assert!(!rig.sound(12, 0, 11));
}

#[test]
fn request_for_freshness_sends_a_probe_and_reports_its_answers() {
    let mut rig = Rig::of(3, 1, true);
    rig.run(0, 23, &[1, 2]);
    assert!(!rig.sound(23, 0, 23));
    assert_eq!(rig.guard.deadline(), Time(23 * MS));
    let number = rig.probe(23).unwrap();
    assert!(!rig.sound(24, 0, 23) && !rig.sound(24, 0, 22), "asked again before an answer has arrived");
    assert_eq!(rig.probe(24), None, "one is on its way");
    assert!(!rig.guard.take_change());
    rig.answer(25, 2, number);
    assert!(rig.guard.take_change());
    assert!(rig.sound(25, 0, 23));
    rig.answer(25, 1, number);
    assert!(!rig.guard.take_change(), "the protocol waits no more");
}

#[test]
fn late_answer_is_not_fresh() {
    let mut rig = Rig::of(3, 1, true);
    rig.run(0, 23, &[1, 2]);
    assert!(!rig.sound(23, 0, 23));
    let number = rig.probe(23).unwrap();
    rig.answer_with(24, 1, number, 40).unwrap();
    assert!(!rig.guard.take_change());
    assert!(!rig.sound(24, 0, 23));
    rig.answer(24, 2, number);
    assert!(rig.guard.take_change() && rig.sound(24, 0, 23), "1 is late, and one may be");
}

#[test]
fn freshness_of_a_future_moment_is_probed_at_that_moment() {
    let mut rig = Rig::of(3, 1, true);
    rig.run(0, 21, &[1, 2]);
    assert!(!rig.sound(21, 0, 25));
    assert_eq!(rig.probe(24), None);
    assert_eq!(rig.guard.deadline(), Time(25 * MS));
    assert!(rig.probe(25).is_some());
}

#[test]
fn request_for_freshness_in_doubt_sends_no_probe() {
    let mut rig = Rig::of(3, 1, true);
    (0..=41).for_each(|ms| rig.tick(ms));
    assert!(rig.guard.doubt().0);
    assert!(!rig.sound(42, 0, 42));
    assert_eq!(rig.probe(42), None);
}

#[test]
fn unguarded_protocol_is_always_sound_and_measured_all_the_same() {
    let mut rig = Rig::of(3, 1, false);
    assert!(rig.sound(0, 0, 0), "no peer has answered");
    rig.run(0, 100, &[]);
    assert_eq!(rig.guard.doubt(), (true, 1));
    assert!(rig.sound(100, 0, 100));
    assert!(!rig.guard.take_change());
    assert_eq!(rig.late(), [1, 2]);
    assert!(rig.guard.status().probes > 0);
}

#[test]
fn single_replica_is_sound() {
    let mut rig = Rig::of(1, 0, true);
    assert_eq!(rig.probe(0), None);
    assert!(rig.sound(5, 0, 5));
    assert_eq!(rig.guard.deadline(), Time(10 * MS - SOONER_NS));
}

/// A peer that is gone costs bounded memory, and its link one frame in a second.
#[test]
fn peer_that_is_gone_is_probed_once_in_a_second() {
    let mut rig = Rig::of(3, 1, true);
    rig.run(0, 5_000, &[1]);
    let to_gone: Vec<u64> =
        rig.sent.iter().filter(|(_, _, to)| to.contains(ReplicaId(2))).map(|(_, at, _)| *at).collect();
    let before = u64::try_from(PROBES_UNANSWERED_MAX).unwrap() * 10;
    assert_eq!(to_gone.iter().filter(|at| **at < before).count(), PROBES_UNANSWERED_MAX);
    let seldom: Vec<u64> = to_gone.iter().copied().filter(|at| *at >= before).collect();
    assert!(seldom.windows(2).all(|pair| pair[1] - pair[0] >= 1_000), "{seldom:?}");
    assert!((3..=5).contains(&seldom.len()), "{seldom:?}");
    assert_eq!(rig.guard.peers[&ReplicaId(2)].unanswered.len(), PROBES_UNANSWERED_MAX);
    assert_eq!(rig.guard.status().late[0].1, Time(40 * MS), "since the first of them");
    // The peer has recovered, and answers the probes that its link has kept.
    let kept: Vec<u64> = rig
        .sent
        .iter()
        .filter(|(_, _, to)| to.contains(ReplicaId(2)))
        .map(|(number, _, _)| *number)
        .collect();
    for number in kept {
        let _ = rig.answer_with(5_000, 2, number, 0);
    }
    rig.run(5_000, 5_050, &[1, 2]);
    assert_eq!(rig.late(), []);
    assert!(rig.sent.iter().rev().take(4).all(|(_, _, to)| to.contains(ReplicaId(2))));
}

/// A probe is not forgotten before it can be overdue, however often freshness is requested.
#[test]
fn frequent_requests_for_freshness_hide_no_late_peer() {
    let mut rig = Rig::of(3, 1, true);
    for step in 0..400 {
        let now = Time(step * MS / 10);
        rig.guard.tick(now, now);
        rig.guard.sound(now, Time(0), now);
        rig.guard.take_probe(now);
    }
    assert_eq!(rig.late(), []);
    assert!(rig.guard.peers[&ReplicaId(1)].unanswered.len() <= PROBES_UNANSWERED_MAX);
    rig.tick(40);
    assert_eq!(rig.late(), [1, 2]);
}

#[test]
fn status_has_the_last_round_trips() {
    let mut rig = Rig::of(3, 1, true);
    let mut took = |ms: u64| {
        let now = rig.guard.schedule.next;
        let Some((_, HostMessage::Probe { number, .. })) = rig.guard.take_probe(now) else {
            panic!("no probe")
        };
        let at = now.plus(ms * MS);
        rig.guard.on_answer(at, ReplicaId(1), LIFE, number, (0, at)).unwrap();
        rig.guard.on_answer(at, ReplicaId(2), LIFE, number, (0, at)).unwrap();
        let status = rig.guard.status();
        (status.p999_ns / MS, status.max_ns / MS)
    };
    assert_eq!(took(900), (0, 0), "the peers may have started after it was sent");
    assert_eq!(took(2), (2, 2));
    assert_eq!(took(9), (9, 9), "of four the longest");
    for _ in 0..1_200 {
        took(2);
    }
    assert_eq!(took(2), (2, 9), "two of 2,406");
    for _ in 0..ROUND_TRIPS_MAX {
        took(3);
    }
    assert_eq!(took(3), (3, 3), "forgotten");
    assert_eq!(rig.guard.measured.round_trips.len(), ROUND_TRIPS_MAX);
}

/// A clock that is fast or slow by this rate, compared over answers with varying delays.
#[test]
fn drift_of_a_clock_is_measured() {
    for ppm in [0i64, 100, -100, 5_000] {
        let mut clock = PeerClock::default();
        let mut jitter = quorate_types::rng::Rng::new(7);
        for step in 1..=600u64 {
            let sent = step * 100 * MS;
            let (there, back) = (jitter.below(3 * MS) + MS, jitter.below(3 * MS) + MS);
            let own = i128::from(sent + there);
            let theirs = own + own * i128::from(ppm) / 1_000_000 + 77_000_000_000;
            let round_trip = there + back;
            clock.note(Time(sent + round_trip / 2), Time(theirs.try_into().unwrap()), round_trip);
            assert!(step > 200 || clock.drift_ppm().is_none(), "too early");
        }
        let found = clock.drift_ppm().unwrap();
        assert!((found - ppm).abs() <= 25, "{found} of {ppm}");
        assert!(clock.samples.len() <= 7);
    }
}

#[test]
fn clock_times_of_a_liar_are_harmless() {
    let mut clock = PeerClock::default();
    for step in 0..1_000u64 {
        let theirs = if step % 2 == 0 { u64::MAX } else { 0 };
        clock.note(Time(step * CLOCK_SPAN_NS), Time(theirs), 0);
    }
    clock.note(Time(u64::MAX), Time(u64::MAX), u64::MAX);
    let _ = clock.drift_ppm();
    let mut clock = PeerClock::default();
    for (step, theirs) in [(0, 0), (1, u64::MAX), (2, u64::MAX)] {
        clock.note(Time(step * CLOCK_SPAN_NS), Time(theirs), 0);
    }
    assert!(clock.drift_ppm().unwrap() > 1_000_000);
    for step in 3..1_000 {
        clock.note(Time(step * CLOCK_SPAN_NS), Time(u64::MAX), 0);
    }
    assert_eq!(clock.samples.len(), CLOCK_SAMPLES_MAX);
}

/// The status has the clock with the largest drift, in either direction.
#[test]
fn status_has_the_largest_drift() {
    let mut rig = Rig::of(3, 1, true);
    for step in 0..60u64 {
        let now = Time(step * 1_000 * MS);
        rig.guard.schedule.next = now;
        let Some((_, HostMessage::Probe { number, .. })) = rig.guard.take_probe(now) else {
            panic!("no probe")
        };
        for (peer, per_second) in [(1, 1_000_000_000 + 20_000), (2, 1_000_000_000 - 50_000)] {
            let theirs = Time(step * per_second);
            rig.guard.on_answer(now, ReplicaId(peer), LIFE, number, (0, theirs)).unwrap();
        }
    }
    assert_eq!(rig.guard.status().drift_ppm, Some(-50));
    rig.guard.on_gap(Time(60_000 * MS), ReplicaId(2));
    assert_eq!(rig.guard.status().drift_ppm, Some(20), "that peer may have another clock now");
}

#[test]
fn status_line_names_round_trips_late_peers_and_doubt() {
    let mut rig = Rig::of(3, 1, true);
    rig.tick(0);
    rig.answer(1, 1, 0);
    rig.tick(10);
    rig.answer(13, 1, 1);
    let calm = "guarded: round trips 3.0ms (p99.9), 3.0ms (max) of 40.0ms";
    assert_eq!(rig.guard.status().to_string(), calm);
    (14..=45).for_each(|ms| rig.tick(ms));
    rig.guard.on_gap(Time(45 * MS), ReplicaId(1));
    let line = format!("{calm}, 1 late since 45000000, 2 late since 40000000, in doubt");
    assert_eq!(rig.guard.status().to_string(), line);
}

/// A replica that stood still has probed no peer meanwhile. No peer is late by its own doing, and the replica doubts
/// all the same, until they have answered.
#[test]
fn standstill_longer_than_delta_is_doubt() {
    for handles_first in [false, true] {
        let mut rig = Rig::of(3, 1, true);
        rig.run(0, 105, &[1, 2]);
        assert!(!rig.guard.status().doubt && rig.guard.status().lags == 0);
        // The next probe is due. Doubt begins just after Δ.
        let due = 110 * MS - SOONER_NS;
        if handles_first {
            rig.guard.before_input(Time(due + DELTA_NS));
            assert!(!rig.guard.status().doubt);
            rig.guard.before_input(Time(due + DELTA_NS + 1));
            assert!(rig.guard.status().doubt && rig.late() == [1, 2]);
            rig.guard.before_input(Time(151 * MS));
        }
        let number = rig.probe(151).unwrap();
        let status = rig.guard.status();
        assert!(status.doubt && status.doubts == 1, "once: {status:?}");
        assert_eq!((status.lags, status.lag_max_ns), (1, 151 * MS - due));
        rig.answer(152, 1, number);
        assert!(!rig.guard.status().doubt && rig.late() == [2]);
        rig.answer(152, 2, number);
        assert!(rig.late().is_empty());
        assert!(
            !rig.sound(152, 100, 151) && rig.sound(153, 153, 151),
            "the time of the standstill is unknown"
        );
    }
}

/// Timers come first where no input has arrived.
#[test]
fn standstill_is_doubt_before_timers_fire() {
    let mut rig = Rig::of(3, 1, true);
    rig.run(0, 105, &[1, 2]);
    rig.guard.tick(Time(151 * MS), Time(151 * MS));
    assert!(!rig.sound(151, 50, 50) && rig.late() == [1, 2]);
}

/// A probe that leaves a little late is no doubt. It is counted from a quarter of Δ on.
#[test]
fn late_round_is_counted_from_a_quarter_of_delta() {
    let mut rig = Rig::of(3, 1, true);
    rig.run(0, 105, &[1, 2]);
    rig.probe(119).unwrap();
    assert_eq!(rig.guard.status().lags, 0);
    rig.probe(139).unwrap();
    let status = rig.guard.status();
    assert_eq!((status.lags, status.lag_max_ns, status.doubt), (1, 10 * MS + SOONER_NS, false));
}

/// The probe of a peer prompts the own round, at the earliest half a period after the last one. A peer that floods
/// gains no more than that. A replica that was prompted waits a little longer than one that began, so that the roles
/// stay.
#[test]
fn probe_of_a_peer_prompts_the_own_round() {
    let mut rig = Rig::of(3, 1, true);
    rig.guard.on_probe(Time(0));
    assert_eq!(rig.probe(0), Some(0), "the first round needs no prompt");
    assert_eq!(rig.guard.schedule.next, Time(10 * MS - SOONER_NS));
    for ms in 1..5 {
        rig.guard.on_probe(Time(ms * MS));
        assert_eq!(rig.probe(ms), None);
    }
    rig.guard.on_probe(Time(5 * MS));
    assert_eq!(rig.probe(5), Some(1));
    assert_eq!(rig.guard.schedule.next, Time(15 * MS));
    assert_eq!(rig.probe(15), Some(2), "no peer has prompted it");
    assert_eq!(rig.guard.schedule.next, Time(25 * MS - SOONER_NS));
}

/// Probes go each 2 Δ while the protocol receives no message. After one they go at once, and each quarter of Δ until 3
/// Δ after the last message.
#[test]
fn idle_protocol_is_probed_at_the_slower_pace() {
    let times = |rig: &Rig| rig.sent.iter().map(|(_, at, _)| *at).collect::<Vec<u64>>();
    let mut rig = Rig::idle(3, 1, true);
    rig.run(0, 100, &[1, 2]);
    assert_eq!(times(&rig), [0, 10, 85], "each 2 Δ, less a sixteenth, rounded up");
    // The message arrives in the middle of a round.
    rig.guard.on_protocol_message(Time(100 * MS));
    rig.run(100, 105, &[1, 2]);
    rig.guard.on_protocol_message(Time(105 * MS));
    rig.run(105, 310, &[1, 2]);
    let often: Vec<u64> = (0..13).map(|k| 100 + k * 10).collect();
    assert_eq!(times(&rig)[3..16], often, "until 225");
    assert_eq!(times(&rig)[16..], [230, 305]);
    // The message arrives just after a round: the next follows a quarter of Δ after it.
    rig.guard.on_protocol_message(Time(310 * MS));
    rig.run(310, 320, &[1, 2]);
    assert_eq!(times(&rig)[18..], [315]);
    assert_eq!((rig.guard.status().lags, rig.guard.status().doubts), (0, 0));
}

/// The same holds for a protocol that does not use the guard's answers.
#[test]
fn unguarded_protocol_is_probed_at_the_slower_pace() {
    let mut rig = Rig::of(3, 1, false);
    rig.run(0, 200, &[]);
    let times: Vec<u64> = rig.sent.iter().map(|(_, at, _)| *at).collect();
    assert!(rig.guard.status().doubt);
    assert_eq!(times, [0, 75, 150]);
}

/// In doubt peers are probed often, so that it ends soon. The pace stays for as long as a replica may wait for its
/// end. One late peer alone changes nothing.
#[test]
fn peers_are_probed_at_the_fast_pace_in_doubt() {
    let mut rig = Rig::idle(3, 1, true);
    rig.run(0, 200, &[1]);
    let calm = rig.sent.len();
    assert_eq!((calm, rig.late()), (4, vec![2]));
    rig.run(200, 400, &[]);
    let first = rig.guard.status().late.first().map(|(_, since)| since.0 / MS);
    assert_eq!(first, Some(275), "the probe of 235 is unanswered");
    let after: Vec<u64> = rig.sent.iter().map(|(_, at, _)| *at).filter(|at| *at >= 200).collect();
    assert_eq!(after[..4], [235, 275, 285, 295], "in doubt since 275");
    // The doubt ends a millisecond after the probe at 400, or after one just before.
    rig.run(400, 2_000, &[1, 2]);
    assert_eq!(rig.guard.status().doubts, 1);
    let last = rig.guard.status().last_doubt.unwrap().0 / MS;
    assert!((400..420).contains(&last), "{last}");
    let until = last + 20 * 40;
    let often = rig.sent.iter().filter(|(_, at, _)| (last..=until).contains(at)).count();
    let seldom = rig.sent.iter().filter(|(_, at, _)| *at > until + 10).count();
    assert!((79..=82).contains(&often), "{often} in 20 times Δ");
    assert!((1_570 - (until - 400)) / 75 >= seldom as u64 - 1 && seldom > 5, "{seldom} after {until}");
}
