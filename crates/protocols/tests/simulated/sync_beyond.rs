//! Runs beyond the bound (`sync-hotstuff` §14, scenarios 13, 16, 17; §19; `optsync` §11, scenario 13). The promises of the
//! guard hold, and its known limits are seen to fork.

use crate::opt_schedules::notify_that_is_late;
use crate::support::{begin, go, level, put, recovery, settle, wait_for};
use crate::sync_cold::short_slowdown;
use crate::sync_exact_world::{DELTA_NS, NEAR_NS, both_synchronous, exact, listen, optsync, view};
use crate::sync_planned_run::{PlannedRun, ids};
use quorate_consensus::Entry;
use quorate_protocols::sync_hotstuff::SyncMessage;
use quorate_sim::{
    Change, Failure, Fault, LinkConditions, NetworkFault, Oracle, Places, Verdict, World, ms, secs,
};
use quorate_types::{Height, ReplicaId, Time, View};
use std::cell::Cell;
use std::rc::Rc;

both_synchronous! {
    s13_slow_links_of_some_replicas_fork_guarded_ones_too
    s16_slowdown_of_all_messages_forks_no_guarded_replica
    s16_slowdown_of_all_messages_forks_unguarded_replicas
    s16_slowdown_of_an_idle_cluster_causes_no_fork
    s16_commits_resume_after_a_slowdown_of_any_length
    s17_delays_within_half_of_delta_cause_no_doubt
    s19_slow_direction_is_noticed_at_one_end
    s19_slowdown_between_two_probes_is_noticed_or_forks
}

/// Delays all messages between these replicas by so much from now on.
fn late(world: &mut World, among: &[u16], by_ns: u64) -> u64 {
    let places = Places::of(ids(among).into_iter().map(ReplicaId::index));
    let change = Change::Late { by_ns, until: Time::ZERO };
    world.begin_fault(NetworkFault {
        from: places,
        to: places,
        both_ways: true,
        change,
        fault: Some(Fault::BeyondDelta),
    })
}

/// Delays messages from one replica to the other.
fn late_one_way(world: &mut World, (from, to): (u16, u16), by_ns: u64) {
    let (from, to) = (Places::one(usize::from(from)), Places::one(usize::from(to)));
    let change = Change::Late { by_ns, until: Time::ZERO };
    world.begin_fault(NetworkFault { from, to, both_ways: false, change, fault: Some(Fault::BeyondDelta) });
}

/// Returns a world without doubt for longer than any wait after a doubt; then the first f replicas lie. The guard is on, off,
/// or as the entry's own parameters say.
fn calm(entry: &Entry, n: usize, guarded: Option<bool>) -> PlannedRun {
    let mut planned = PlannedRun::honest(entry, n, |settings| match guarded {
        Some(guarded) => settings.set("guarded", guarded),
        None => drop(settings.parameters.changed.remove("guarded")),
    });
    planned.run(30 * DELTA_NS).unwrap();
    let liars: Vec<u16> = (0..u16::try_from((n - 1) / 2).unwrap()).collect();
    planned.corrupt(&liars);
    planned
}

/// Sends B to the first honest replica and B' to the last one, each with the votes of all liars.
fn equivocate(planned: &mut PlannedRun) {
    let f = u16::try_from(planned.liars.len()).unwrap();
    let tip = planned.tip();
    for (to, time_ns) in [(f, 1), (2 * f, 2)] {
        let header = planned.first(tip, time_ns);
        planned.propose(&[to], &header);
        planned.liars_vote(&[to], &header);
    }
}

fn doubted(world: &World, id: u16) -> u64 {
    world.status(ReplicaId(id)).unwrap().alarms.doubts
}

/// S13 with the guard on: replica 0 of three lies, and answers probes at once. Messages between replicas 1 and 2 are 5 Δ
/// late. One late peer of two is no doubt (§19, "not promised"): they fork, and raise the alarm when they notice.
fn s13_slow_links_of_some_replicas_fork_guarded_ones_too(entry: &Entry) {
    let fork = |planned: &mut PlannedRun| {
        planned.answers_probes = true;
        planned.run(NEAR_NS).unwrap();
        late(&mut planned.world, &[1, 2], 5 * DELTA_NS);
        equivocate(planned);
        planned.run(3 * DELTA_NS)
    };
    let mut planned = calm(entry, 3, Some(true));
    let failure = fork(&mut planned).unwrap_err();
    assert_eq!(failure.oracle, Oracle::Agreement, "{failure}");

    let mut planned = calm(entry, 3, Some(true));
    planned.world.tolerate(Oracle::Agreement);
    let before = planned.world.highest();
    fork(&mut planned).unwrap();
    for id in [1, 2] {
        let status = planned.world.status(ReplicaId(id)).unwrap();
        assert_eq!(status.decided, before.next(), "each has committed its own block");
        let guard = status.guard.unwrap();
        assert!(!guard.doubt, "{guard}");
        assert!(
            guard.late.iter().any(|(late, _)| late.0 == 3 - id),
            "the operator sees the late peer: {guard}"
        );
    }
    // §19 (2): both raise the alarm when the late vote of the other one arrives.
    let voted = planned
        .message_log
        .borrow()
        .sent
        .iter()
        .rev()
        .find_map(|sent| matches!(sent.message, SyncMessage::Vote(_)).then_some(sent.at));
    let heard = voted.unwrap().plus(5 * DELTA_NS + NEAR_NS);
    planned.world.run_until(heard.minus(ms(1))).unwrap();
    let silent = [1, 2].map(|id| doubted(&planned.world, id));
    planned.world.run_until(heard.plus(ms(1))).unwrap();
    for (id, before) in [1, 2].into_iter().zip(silent) {
        assert!(doubted(&planned.world, id) > before, "{id} has noticed the late message");
    }
}

/// §19 (1): one direction between two honest replicas becomes slower than Δ. Within 1.25 Δ at least one of the two reports
/// that the other is late, and no other replica reports anything. In an idle cluster it takes up to 3 Δ (§24).
fn s19_slow_direction_is_noticed_at_one_end(entry: &Entry) {
    for (is_busy, link, after_ms) in
        [(true, (1, 2), 0), (true, (2, 1), 7), (true, (0, 2), 13), (false, (1, 2), 20), (false, (2, 0), 60)]
    {
        let mut planned = PlannedRun::honest(entry, 3, |settings| {
            settings.set("guarded", true);
            settings.set("heartbeat_ms", i64::try_from(60 * DELTA_NS / 1_000_000).unwrap());
        });
        planned.run(30 * DELTA_NS).unwrap();
        if is_busy {
            planned.world.submit(0, &[put("k", 1)]);
            planned.run(DELTA_NS / 2).unwrap();
        }
        planned.run(ms(after_ms)).unwrap();
        let late = |world: &World, id: u16| -> Vec<u16> {
            let guard = world.status(ReplicaId(id)).unwrap().guard.unwrap();
            guard.late.iter().map(|(late, _)| late.0).collect()
        };
        assert!((0..3).all(|id| late(&planned.world, id).is_empty()), "{link:?}");
        late_one_way(&mut planned.world, link, 3 * DELTA_NS);
        planned.run(if is_busy { DELTA_NS + DELTA_NS / 4 } else { 3 * DELTA_NS } + 1).unwrap();
        let (from, to) = link;
        let seen = [(from, to), (to, from)].map(|(by, of)| late(&planned.world, by) == [of]);
        assert!(seen[0] || seen[1], "{link:?}: {seen:?}");
        assert!(late(&planned.world, 3 - from - to).is_empty(), "{link:?}: the third one");
    }
}

/// §19 does not promise to notice a slowdown shorter than two probe periods. This one is noticed: a late message delays all
/// later messages of its link, answers to probes too (ADR 0011). Without the guard the same run forks.
fn s19_slowdown_between_two_probes_is_noticed_or_forks(entry: &Entry) {
    for span_ms in [3, 8, 14, 20, 30, 50] {
        assert_eq!(short_slowdown(entry, ms(span_ms), true), Ok(()), "for {span_ms} ms");
        let failure = short_slowdown(entry, ms(span_ms), false).unwrap_err();
        assert_eq!(failure.oracle, Oracle::Agreement, "for {span_ms} ms: {failure}");
    }
}

/// Delay of all messages in a slowdown.
const LATE_NS: u64 = 7 * DELTA_NS;

/// Slows down all messages of honest replicas, so long after they are shown two blocks, and for so long. Returns the oracle's
/// verdict up to the first new agreement after the heal.
fn slows_down(
    entry: &Entry,
    n: usize,
    guarded: Option<bool>,
    after_ns: u64,
    span_ns: u64,
) -> Result<(), Failure> {
    let mut planned = calm(entry, n, guarded);
    let honest: Vec<u16> = (u16::try_from(planned.liars.len()).unwrap()..u16::try_from(n).unwrap()).collect();
    let before = |world: &World, id: u16| world.status(ReplicaId(id)).unwrap().guard.unwrap().doubts;
    equivocate(&mut planned);
    planned.run(after_ns)?;
    let doubts: Vec<u64> = honest.iter().map(|id| before(&planned.world, *id)).collect();
    let network_fault = late(&mut planned.world, &honest, LATE_NS);
    // §19 (1): within 1.25 Δ, or within 3 Δ in an idle cluster. One nanosecond more for events at that very moment.
    let is_guarded = planned.world.status(ReplicaId(honest[0])).unwrap().guard.unwrap().bound.guarded;
    let alarm_ns = DELTA_NS + if is_guarded { DELTA_NS / 4 } else { 2 * DELTA_NS } + 1;
    planned.run(alarm_ns.min(span_ns))?;
    if span_ns >= alarm_ns {
        for (id, doubts) in honest.iter().zip(doubts) {
            assert!(before(&planned.world, *id) > doubts, "{id} is in doubt");
        }
    }
    planned.run(span_ns.saturating_sub(alarm_ns))?;
    planned.world.end_fault(network_fault);
    // Messages on their way arrive, and no replica has moved on before.
    let height = planned.world.highest();
    let (bound, healed) = (recovery(&planned.world, 0), planned.world.now().plus(LATE_NS));
    planned.world.submit(0, &[put("k", 1)]);
    let is_old = |world: &World| world.highest() <= height;
    planned.world.run_while(
        "something new is committed",
        healed.since(planned.world.now()) + bound,
        is_old,
    )?;
    planned.close()
}

/// S16, §19 (3): all messages are slower than Δ for at least two probe periods, and then in time again. No two conflicting
/// blocks are committed, all replicas are in doubt within 1.25 Δ, and the next commit comes within the bound of §21.
fn s16_slowdown_of_all_messages_forks_no_guarded_replica(entry: &Entry) {
    for (number, after) in [0, 1, 4, 9, 11, 14, 19, 21].into_iter().enumerate() {
        let (n, after_ns) = ([3, 5][number % 2], after * DELTA_NS / 10);
        for span_ns in [DELTA_NS / 2, 2 * DELTA_NS, 7 * DELTA_NS] {
            let result = slows_down(entry, n, Some(true), after_ns, span_ns);
            assert_eq!(result, Ok(()), "n = {n}, {after_ns} ns after, for {span_ns} ns");
        }
    }
}

/// The oracle fires without the guard: the same run forks (M30).
fn s16_slowdown_of_all_messages_forks_unguarded_replicas(entry: &Entry) {
    for n in [3, 5] {
        let failure = slows_down(entry, n, Some(false), NEAR_NS / 2, 7 * DELTA_NS).unwrap_err();
        assert_eq!(failure.oracle, Oracle::Agreement, "n = {n}: {failure}");
    }
}

/// After a long idle time all messages are late for a while. Replicas that know of a block are in doubt. A replica without it
/// probes seldom and may notice nothing. The leader shows two blocks before or after the heal.
fn s16_slowdown_of_an_idle_cluster_causes_no_fork(entry: &Entry) {
    for (number, span) in [1, 2, 4, 8, 12].into_iter().enumerate() {
        for (turn, at) in [0, 1, 3, 7, 13, 20].into_iter().enumerate() {
            let n = [3, 5][(number + turn) % 2];
            let mut planned = PlannedRun::honest(entry, n, |settings| {
                settings.set("guarded", true);
                settings.set("heartbeat_ms", i64::try_from(60 * DELTA_NS / 1_000_000).unwrap());
            });
            planned.run(30 * DELTA_NS).unwrap();
            let (size, f) = (u16::try_from(n).unwrap(), u16::try_from((n - 1) / 2).unwrap());
            planned.corrupt(&(0..f).collect::<Vec<u16>>());
            // Between two empty blocks the guard probes at its slow rate.
            planned.run(7 * DELTA_NS).unwrap();
            let honest: Vec<u16> = (f..size).collect();
            let (before, span_ns) = (at * DELTA_NS / 4, span * DELTA_NS / 4);
            let slow = late(&mut planned.world, &honest, LATE_NS);
            if before < span_ns {
                planned.run(before).unwrap();
                equivocate(&mut planned);
                planned.run(span_ns - before).unwrap();
                planned.world.end_fault(slow);
            } else {
                planned.run(span_ns).unwrap();
                planned.world.end_fault(slow);
                planned.run(before - span_ns).unwrap();
                equivocate(&mut planned);
            }
            let result = planned.run(40 * DELTA_NS).and_then(|()| planned.close());
            assert_eq!(
                result,
                Ok(()),
                "n = {n}, slow for {span_ns} ns, two blocks {before} ns after its begin"
            );
        }
    }
}

/// S16, "for any time": messages are so slow that views continue and no timer commits, until honest replicas have voted at all
/// permitted heights. After the slowdown a new block is committed.
pub(crate) fn s16_commits_resume_after_a_slowdown_of_any_length(entry: &Entry) {
    for (n, span) in [(3, 600), (5, 400)] {
        let mut world = exact(entry, n, 160, |settings| {
            settings.set("guarded", true);
            (settings.checkpoint_every, settings.window) = (2, 4);
        });
        let f = u16::try_from(n / 2).unwrap();
        let (is_slow, highest) = (Rc::new(Cell::new(false)), Rc::new(Cell::new(Height::ZERO)));
        let (shared, seen) = (Rc::clone(&is_slow), Rc::clone(&highest));
        world.hook(move |_, frame| {
            seen.set(seen.get().max(frame.content.height));
            // Each replica receives votes of f others, so only timers commit.
            let rank = frame.from.0 - u16::from(frame.from > frame.to);
            match (frame.content.kind.as_str(), shared.get()) {
                ("vote", _) if rank >= f => Verdict::Drop,
                (_, true) => Verdict::Delay(DELTA_NS * 7 / 10),
                _ => Verdict::Pass,
            }
        });
        begin(&mut world);
        level(&mut world);
        is_slow.set(true);
        world.submit(0, &[put("k", 1)]);
        go(world.run_for(span * DELTA_NS), &world);
        let (height, highest) = (world.highest(), highest.get());
        assert!(highest.since(height) > 8 * 4, "n = {n}: {highest} proposed, {height} committed");
        is_slow.set(false);
        let bound = 2 * recovery(&world, 0);
        let is_old = |world: &World| world.highest() <= height;
        go(world.run_while("something new is committed", bound, is_old), &world);
        settle(&mut world);
    }
}

/// `optsync` §16: q_R votes decide at once even in doubt, and the guard on *entering* a view protects that decision. 2 and 3
/// of five vote for B. All honest messages are late from just before the decision of 2, also its NOTIFY. 3 and 4 are shown
/// another block, leave the view, and have waited long before NOTIFY arrives.
pub(crate) fn decided_in_a_slowdown(entry: &Entry) -> Result<(), Failure> {
    let mut planned = calm(entry, 5, None);
    let tip = planned.tip();
    let lock = planned.lock(View(1), tip);
    let (one, two) = (planned.first(tip, 1), planned.first(tip, 2));
    // B reaches 4 too late for a vote.
    planned.takes(&[2, 3], &[4], None, DELTA_NS / 2);
    planned.propose(&[2, 3], &one);
    planned.run(2 * NEAR_NS + 1)?;
    assert_eq!(planned.voters(View(1), (one.block.height, one.block.id())), ids(&[2, 3]));
    let slow = late(&mut planned.world, &[2, 3, 4], LATE_NS);
    planned.liars_vote(&[2], &one);
    planned.propose(&[3, 4], &two);
    planned.run(NEAR_NS + 1)?;
    assert!(planned.world.decided(ReplicaId(2)) >= one.block.height, "2 has decided");
    planned.run(4 * DELTA_NS)?;
    planned.lead(View(2), lock, &[3, 4], 1)?;
    planned.world.end_fault(slow);
    planned.run(10 * DELTA_NS)?;
    planned.close()
}

/// M30, for the museum: the entry switches the guard.
pub(crate) fn slower_than_delta(entry: &Entry) -> Result<(), Failure> {
    slows_down(entry, 3, None, NEAR_NS / 2, 7 * DELTA_NS)
}

/// S17: with the guard on and message delays up to Δ/2 no replica is ever in doubt. A commit takes the time of §9, up to a
/// probe period and one round trip.
fn s17_delays_within_half_of_delta_cause_no_doubt(entry: &Entry) {
    for (n, delay_ns) in [
        (3, NEAR_NS),
        (3, DELTA_NS / 4),
        (3, DELTA_NS / 2 - 1_000),
        (5, DELTA_NS / 2 - 1_000),
        (7, DELTA_NS / 4),
    ] {
        let mut world = exact(entry, n, 17, |settings| {
            settings.conditions = LinkConditions::constant(delay_ns);
            settings.client.retry_ns = secs(3);
            settings.set("guarded", true);
        });
        let message_log = listen(&mut world, |_, _| Verdict::Pass);
        begin(&mut world);
        go(world.run_for(30 * DELTA_NS), &world);
        let doubts = |world: &World| -> Vec<u64> {
            world.replicas().map(|id| world.status(id).unwrap().guard.unwrap().doubts).collect()
        };
        let before = doubts(&world);
        for number in 0..10 {
            level(&mut world);
            let height = world.highest();
            let id = world.submit(0, &[put("k", number)])[0];
            let is_old = |world: &World| world.decided(ReplicaId(1)) <= height;
            go(world.run_while("it is committed", secs(3), is_old), &world);
            let place = (View(1), world.decided(ReplicaId(1)));
            let at = message_log.borrow().proposed(place).unwrap();
            let took = world.now().since(at);
            let is_fast = entry.spec.name == optsync().spec.name;
            let expected = if is_fast { 2 * delay_ns } else { delay_ns + 2 * DELTA_NS };
            let most = expected + DELTA_NS / 4 + 2 * delay_ns;
            assert!(
                (expected..=most).contains(&took),
                "n = {n} {delay_ns}: {took}, not {expected} to {most}"
            );
            wait_for(&mut world, &[id], secs(3));
        }
        assert_eq!(doubts(&world), before, "n = {n} {delay_ns}");
        assert!(world.replicas().all(|id| view(&world, id) == View(1)));
    }
}

/// Opt Sync S13: NOTIFY takes 3 Δ while the others change views. They fork, and raise the alarm when it arrives.
#[test]
fn o13_late_notify_forks_and_is_noticed() {
    let five = || PlannedRun::new(optsync(), 5, &[0, 1], |_| {});
    let failure = notify_that_is_late(&mut five()).unwrap_err();
    assert_eq!(failure.oracle, Oracle::Agreement, "{failure}");
    let mut planned = five();
    planned.world.tolerate(Oracle::Agreement);
    notify_that_is_late(&mut planned).unwrap();
    assert!(doubted(&planned.world, 2) > 0, "the other side has noticed the late NOTIFY");
    for id in [3, 4] {
        // Both replicas that had left the view raise it. `last_doubted` is the last reason.
        let status = planned.world.status(ReplicaId(id)).unwrap();
        let said = status.alarms.last_doubt.unwrap().to_string();
        assert!(status.alarms.doubts > 0 && said.contains("the committed block"), "{id}: {said}");
        // §11: the link is named.
        assert!(said.ends_with("(replica 2)"), "{id}: {said}");
    }
}
