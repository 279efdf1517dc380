//! More scenarios of `optsync` §11, by their numbers. Replicas 0 to f - 1 lie, and lead the first views, unless a test says
//! otherwise.

use crate::opt_schedules::{
    cut_just_after_a_decision, decide_in_secret, decided_just_before_the_end, hidden_ancestor_of_five,
    hidden_ancestor_of_seven, hidden_ancestor_of_three, votes_just_after_the_end,
};
use crate::support::{begin, go, level, settle, wait_for};
use crate::sync_exact_world::{DELTA_NS, NEAR_NS, exact, listen, optsync, view};
use crate::sync_flaws::{Believed, LexicographicLock, ThreeQuarters};
use crate::sync_museum::ROWS;
use crate::sync_planned_run::{End, PlannedRun};
use quorate_consensus::Entry;
use quorate_consensus::flawed::Flawed;
use quorate_protocols::sync_hotstuff::{Header, Lock, Optimistic, SyncHotStuff, SyncMessage};
use quorate_sim::{Oracle, Survives, Verdict, World, ms, secs};
use quorate_types::{ReplicaId, View};
use std::cell::Cell;
use std::rc::Rc;

fn end_of(header: &Header) -> End {
    (header.block.height, header.block.id())
}

fn has(planned: &PlannedRun, id: u16, header: &Header) -> bool {
    planned.world.decided(ReplicaId(id)) >= header.block.height
}

/// O5: of seven, 3, 4 and 5 are shown B, and 6 is shown B'. The liars' votes complete q_R for B at 3. 6 never commits B', and
/// the next views extend B: the agreement oracle compares them.
#[test]
fn o05_equivocating_leader_causes_no_fork() {
    for (seen_by_3, commits) in [(true, true), (false, false)] {
        let mut planned = PlannedRun::new(optsync(), 7, &[0, 1, 2], |_| {});
        let tip = planned.tip();
        let (one, two) = (planned.first(tip, 1), planned.first(tip, 2));
        // No replica knows the other block before the votes are counted.
        planned.takes(&[6], &[3, 4, 5], None, DELTA_NS / 2);
        planned.takes(&[3, 4, 5], &[6], None, DELTA_NS / 2);
        planned.propose(&[3, 4, 5], &one);
        planned.propose(&[6], &two);
        if seen_by_3 {
            planned.liars_vote(&[3], &one);
        }
        planned.run(2 * NEAR_NS + ms(1)).unwrap();
        assert_eq!(has(&planned, 3, &one), commits);
        planned.run(3 * DELTA_NS).unwrap();
        assert!(
            planned
                .world
                .honest()
                .all(|id| view(&planned.world, id) > View(1) || !planned.world.status(id).unwrap().normal)
        );
        planned.close().unwrap();
        let blocks: Vec<_> =
            planned.message_log.borrow().headers.values().map(|header| header.block.parent).collect();
        assert!(!blocks.contains(&two.block.id()), "no block extends B'");
        assert!(!commits || blocks.contains(&one.block.id()), "the next views extend B");
    }
}

/// O6: 2 of five decides just before evidence of the end of the view arrives. All others hold the deciding certificate when
/// they enter the next view.
#[test]
fn o06_all_hold_a_deciding_certificate_when_they_enter() {
    let mut planned = PlannedRun::new(optsync(), 5, &[0, 1], |_| {});
    let one = planned.first(planned.tip(), 1);
    decide_in_secret(&mut planned, DELTA_NS, false, false).unwrap();
    assert!(has(&planned, 2, &one));
    let message_log = planned.message_log.borrow();
    let locks = message_log.sent.iter().filter_map(|sent| match &sent.message {
        SyncMessage::Status { view: View(2), lock } => Some((sent.from, lock)),
        _ => None,
    });
    let mut seen = 0;
    for (by, lock) in locks {
        let responsive = lock.responsive.as_ref().map(|high| high.block());
        assert_eq!((responsive, lock.tip.block()), (Some(one.block.id()), one.block.id()), "{by}");
        seen += 1;
    }
    assert_eq!(seen, 3);
    drop(message_log);
    planned.close().unwrap();
    decided_just_before_the_end(optsync()).unwrap();
    votes_just_after_the_end(optsync()).unwrap();
}

fn is_caught(id: &str) -> bool {
    ROWS.iter().find(|row| row.id == id).unwrap().catch().is_some()
}

/// O7: without NOTIFY, or with Δ instead of 2 Δ, the schedule of O6 forks.
#[test]
fn o07_mutations_fork() {
    assert!(is_caught("Z1") && is_caught("Z2"));
}

/// O8: a replica with the higher tip refuses a hidden responsive certificate of an ancestor; the plain rank would accept it.
#[test]
fn o08_hidden_certificate_of_an_ancestor_is_refused() {
    let flawed = Entry::of::<Flawed<SyncHotStuff<Optimistic>, LexicographicLock>>();
    for schedule in [hidden_ancestor_of_three, hidden_ancestor_of_five, hidden_ancestor_of_seven] {
        schedule(optsync()).unwrap();
        assert_eq!(schedule(&flawed).unwrap_err().oracle, Oracle::Agreement);
    }
}

/// O9: of five, 0 and 4 lie, and 1 leads the second view. The lock of 1 conflicts with the responsive certificate that 2
/// receives after it has left the first view. All extend the lock that 1 picks.
#[test]
fn o09_leader_resolves_locks_on_conflicting_branches() {
    let mut planned = PlannedRun::new(optsync(), 5, &[0, 4], |_| {});
    let tip = planned.tip();
    let (one, other) = (planned.first(tip, 1), planned.first(tip, 2));
    let above = planned.first(end_of(&other), 1);
    for from in [1, 2, 3] {
        planned.takes(&[from], &[1, 2, 3], None, DELTA_NS / 2);
    }
    planned.propose(&[2, 3], &one);
    planned.propose(&[1], &other);
    planned.run(2 * NEAR_NS).unwrap();
    planned.propose(&[1], &above);
    planned.run(NEAR_NS + ms(5)).unwrap();
    planned.liars_vote(&[1], &other);
    planned.liars_vote(&[1], &above);
    // All know both blocks, and have left the view.
    planned.run(DELTA_NS).unwrap();
    let responsive = planned.certificate_of(View(1), end_of(&one), 4).unwrap();
    planned.send(0, &[2], &SyncMessage::Notify(responsive.clone()));
    planned.run(6 * DELTA_NS).unwrap();
    assert_eq!(planned.voters(View(2), end_of(&one)), [1, 2, 3].map(ReplicaId));
    let message_log = planned.message_log.borrow();
    let lock_of = |id: u16| {
        let says = |sent: &&crate::sync_exact_world::Sent| sent.from == ReplicaId(id);
        message_log.sent.iter().filter(says).find_map(|sent| match &sent.message {
            SyncMessage::Status { view: View(2), lock } | SyncMessage::NewView { view: View(2), lock } => {
                Some(lock.clone())
            }
            _ => None,
        })
    };
    let shown = Lock { responsive: Some(responsive.clone()), tip: responsive };
    assert_eq!(lock_of(2).unwrap().name(), shown.name());
    assert_eq!(lock_of(3).unwrap().tip.block(), tip.1, "the other replica has neither block");
    assert_eq!(
        planned.voters(View(1), end_of(&above)),
        [ReplicaId(1)],
        "the leader alone has seen the other branch"
    );
    assert_eq!(lock_of(1).unwrap().name(), shown.name(), "the leader extends that block");
    drop(message_log);
    planned.close().unwrap();
}

/// O10: the vote that completes q_R arrives a millisecond before the 2 Δ are over. It decides, and the timer commits nothing:
/// each block is committed once.
#[test]
fn o10_last_vote_just_before_the_timer_commits_once() {
    let mut planned = PlannedRun::honest(optsync(), 3, |_| {});
    planned.corrupt(&[2]);
    let mut done = 0;
    let mut last = planned.tip();
    while done < 5 {
        planned.run(ms(1)).unwrap();
        if planned.tip() == last {
            continue;
        }
        last = planned.tip();
        let header = planned.message_log.borrow().headers[&(View(1), last.0)].clone();
        let at = planned.message_log.borrow().proposed((View(1), last.0)).unwrap();
        // The vote reaches 0, and δ later 1: a millisecond before their 2 Δ are over.
        let decides = at.plus(2 * DELTA_NS - ms(1));
        planned.world.run_until(decides.minus(NEAR_NS)).unwrap();
        planned.votes(2, &[0], &header);
        planned.world.run_until(decides.minus(1)).unwrap();
        assert!(!has(&planned, 0, &header));
        planned.world.run_until(decides).unwrap();
        planned.votes(2, &[1], &header);
        planned.run(10).unwrap();
        assert!(has(&planned, 0, &header), "decided by the vote");
        // The NOTIFY of 0 reaches 1 at the same moment.
        planned.world.run_until(decides.plus(NEAR_NS).minus(1)).unwrap();
        assert!(!has(&planned, 1, &header));
        planned.run(12).unwrap();
        assert!(has(&planned, 1, &header), "decided by the vote");
        planned.run(ms(5)).unwrap();
        let told = planned.message_log.borrow().count(|sent| {
            matches!(&sent.message, SyncMessage::Notify(certificate) if certificate.block() == header.block.id())
        });
        assert_eq!(told, 4, "each has sent NOTIFY to both others once");
        done += 1;
    }
    planned.close().unwrap();
}

/// O11: the leader crashes as soon as one replica has decided; the base of the next leader extends the decided block.
#[test]
fn o11_decision_survives_a_crash_of_the_leader() {
    for survives in [Survives::Nothing, Survives::Everything] {
        let mut world = exact(optsync(), 5, 11, |_| {});
        let apart = Rc::new(Cell::new(false));
        let is_apart = Rc::clone(&apart);
        let message_log = listen(&mut world, move |_, frame| {
            let lags = is_apart.get()
                && frame.to != ReplicaId(2)
                && ["vote", "notify"].contains(&frame.content.kind.as_str());
            if lags { Verdict::Delay(DELTA_NS / 2) } else { Verdict::Pass }
        });
        begin(&mut world);
        level(&mut world);
        apart.set(true);
        let height = world.highest();
        let id = world.submit(0, &[crate::support::incr("n")])[0];
        let waits = |world: &World| world.decided(ReplicaId(2)) <= height;
        go(world.run_while("one has decided", secs(1), waits), &world);
        let decided = world.decided(ReplicaId(2));
        assert!(
            world.replicas().filter(|id| *id != ReplicaId(2)).all(|id| world.decided(id) < decided),
            "alone"
        );
        world.crash(ReplicaId(0), survives);
        wait_for(&mut world, &[id], secs(10));
        let next = |world: &World| world.replicas().skip(1).any(|id| view(world, id) < View(2));
        go(world.run_while("the next view", secs(5), next), &world);
        let is_said =
            || message_log.borrow().count(|sent| matches!(sent.message, SyncMessage::NewView { .. })) > 0;
        go(world.run_while("its leader has sent a proposal", secs(5), |_| !is_said()), &world);
        let message_log = message_log.borrow();
        let base = message_log.sent.iter().find_map(|sent| match &sent.message {
            SyncMessage::NewView { lock, .. } => Some(lock.tip.statement.height),
            _ => None,
        });
        assert!(base.unwrap() >= decided);
        drop(message_log);
        world.unhook();
        world.start(ReplicaId(0)).unwrap();
        settle(&mut world);
    }
}

/// O12: if exactly 3n/4 votes decide, two blocks are decided: among three, and among seven with two replicas each for B and B'.
#[test]
fn o12_quorum_that_is_too_small_by_one_forks() {
    assert!(is_caught("Z4"));
    let flawed = Entry::of::<Flawed<SyncHotStuff<ThreeQuarters>, Believed>>();
    for (entry, forks) in [(optsync(), false), (&flawed, true)] {
        let mut planned = PlannedRun::new(entry, 7, &[0, 1, 2], |_| {});
        let tip = planned.tip();
        for (to, time_ns) in [([3, 4], 1), ([5, 6], 2)] {
            let header = planned.first(tip, time_ns);
            planned.propose(&to, &header);
            planned.liars_vote(&to, &header);
        }
        planned.takes(&[3, 4], &[5, 6], None, DELTA_NS / 2);
        planned.takes(&[5, 6], &[3, 4], None, DELTA_NS / 2);
        let result = planned.run(DELTA_NS);
        assert_eq!(result.err().map(|failure| failure.oracle), forks.then_some(Oracle::Agreement));
        if !forks {
            planned.close().unwrap();
        }
    }
}

/// §15: a decided block survives a cold start, although the repeated votes do not prove it.
#[test]
fn o15_decision_survives_a_power_cut_of_all() {
    cut_just_after_a_decision(optsync()).unwrap();
}
