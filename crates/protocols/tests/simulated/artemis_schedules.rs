//! Golden schedules of Artemis (`artemis` §21), and scenario 14: each schedule forks replicas that lack the rule that it names,
//! and no others.

use crate::apollo_flaws::{NoRelay, RestartBlames};
use crate::artemis::coordinator_at_the_end_of_a_slow_link;
use crate::artemis_flaws::{FetchedThenDirect, NoGrace, TimerWithoutS};
use crate::artemis_run::{
    Controlled, Load, Message, Protocol, SILENCE_NS, against, count, listen, registered, view, world_of,
};
use crate::chained_museum::Row;
use crate::support::{begin, go, incr, level, r, settle, wait_for};
use crate::sync_exact_world::{DELTA_NS, NEAR_NS};
use crate::sync_planned_run::answer_probes;
use quorate_consensus::flawed::{Flaw, Flawed};
use quorate_consensus::parts::recovery::RecoveryStage;
use quorate_consensus::{Alarm, Entry, To};
use quorate_protocols::unique_chain::artemis::{Vote, VoteKind};
use quorate_protocols::unique_chain::{Answer, Artemis, RoundProof, UniqueMessage};
use quorate_sim::{
    Change, Failure, Fault, NetworkFault, Oracle, Places, Settings, Survives, Verdict, ms, secs,
};
use quorate_types::{Incarnation, Time, View};
use std::cell::Cell;
use std::rc::Rc;

const SOUND: Entry = Entry::of::<Protocol>();

const fn flawed<F: Flaw<Protocol>>() -> Entry {
    Entry::of::<Flawed<Protocol, F>>()
}

/// Longest delay of a message in these schedules: a little less than Δ, for the nanoseconds of turns.
const FAR_NS: u64 = DELTA_NS - ms(1);

/// Time after which a voter is blamed.
const ROUND_NS: u64 = 4 * DELTA_NS + SILENCE_NS;

/// Runs until a time after the begin of a schedule.
fn run_until(c: &mut Controlled, began: Time, ns: u64) -> Result<(), Failure> {
    c.world.run_until(began.plus(ns))
}

/// The first voter is the coordinator, and lies. It sends a block and a vote to some replicas, and others to the rest. Returns
/// both votes.
fn two_votes(c: &mut Controlled, first: &[u16], second: &[u16]) -> [Vote; 2] {
    let tip = c.tip();
    let mut number = 0;
    [first, second].map(|to| {
        number += 1;
        let block = Controlled::block(&c.last, number);
        let vote = c.vote(&tip, block.block.id(), VoteKind::Data);
        c.emit(to, &block);
        c.cast(to, &vote);
        vote
    })
}

/// Returns the failure of a schedule. An honest voter that honest replicas blame is one even if no oracle sees a fork.
fn blameless(c: &mut Controlled, since: View) -> Result<(), Failure> {
    c.world.run_for(secs(3))?;
    assert!(
        !c.honest_voter_is_blamed(since),
        "no fork, but an honest voter is blamed: {:?}",
        c.log.borrow().blames
    );
    Ok(())
}

/// Scenario 15, no relay: 0 of three lies. It sends a vote to 2, and much later another one to 1, the next voter. With the relay
/// of 2 the next voter extends the first one long before.
fn relay_to_the_next_voter(entry: &Entry) -> Result<(), Failure> {
    let mut c = Controlled::before_a_fork(entry, 3, &[0], Load::Idle, |_| {});
    let (began, tip) = (c.world.now(), c.tip());
    c.takes(&[1], &[2], FAR_NS);
    let (one, two) = (Controlled::block(&c.last, 1), Controlled::block(&c.last, 2));
    let (first, second) =
        (c.vote(&tip, one.block.id(), VoteKind::Data), c.vote(&tip, two.block.id(), VoteKind::Data));
    c.emit(&[2], &one);
    c.cast(&[2], &first);
    run_until(&mut c, began, ROUND_NS - ms(100))?;
    c.liars_blame(&[2], &first);
    // The wait of 1 for the liar's vote is about to end.
    run_until(&mut c, began, ROUND_NS - ms(35))?;
    c.emit(&[1], &two);
    c.emit(&[1], &Controlled::block(&two.block, 3));
    c.cast(&[1], &second);
    run_until(&mut c, began, ROUND_NS + 2 * DELTA_NS)?;
    blameless(&mut c, first.round)
}

/// Scenario 15, grace 0: of five, 0 and 1 lie and vote in two consecutive rounds. 4 alone receives the votes of one branch and 3
/// those of another one, which adds no block. The honest voter of the third round has to fetch the first branch from 4, and then
/// waits S for its suspicion. So its vote arrives when the wait of 3 is about to end, and 3 has to fetch that branch from the
/// voter.
fn vote_at_the_last_moment(entry: &Entry) -> Result<(), Failure> {
    let mut c = Controlled::before_a_fork(entry, 5, &[0, 1], Load::Idle, |_| {});
    let (began, tip) = (c.world.now(), c.tip());
    c.takes(&[2, 3, 4], &[2, 3, 4], FAR_NS);
    let block = Controlled::block(&c.last, 1);
    let one = c.vote(&tip, block.block.id(), VoteKind::Data);
    let other = c.vote(&tip, tip.block, VoteKind::Endorse);
    let [one_more, other_more] = [&one, &other].map(|vote| c.vote(vote, vote.block, VoteKind::Endorse));
    c.emit(&[4], &block);
    c.cast(&[4], &one);
    c.cast(&[3], &other);
    run_until(&mut c, began, ms(1))?;
    c.cast(&[4], &one_more);
    // The voter accepts the first branch first.
    run_until(&mut c, began, ms(4))?;
    c.cast(&[3], &other_more);
    // A relay and a fetch take less than 3 Δ. The coordinator is silent towards the voter from then on.
    run_until(&mut c, began, 3 * DELTA_NS - ms(5))?;
    c.emit(&[2], &block);
    run_until(&mut c, began, 6 * DELTA_NS)?;
    c.liars_blame(&[3], &other_more);
    run_until(&mut c, began, ROUND_NS + 4 * DELTA_NS)?;
    blameless(&mut c, one.round)
}

/// timer-without-S: 0 of three lies, and sends two votes. The next voter waits S for its suspicion.
fn voter_that_waits_for_its_suspicion(entry: &Entry) -> Result<(), Failure> {
    let mut c = Controlled::before_a_fork(entry, 3, &[0], Load::Idle, |_| {});
    let began = c.world.now();
    let [first, second] = two_votes(&mut c, &[1], &[2]);
    run_until(&mut c, began, 3 * DELTA_NS)?;
    c.liars_blame(&[2], &second);
    run_until(&mut c, began, ROUND_NS)?;
    blameless(&mut c, first.round)
}

/// §7: 0 of three lies. Its blocks reach 2 alone, and 1 has to fetch them before it votes. Then the liar sends its own copies to 1,
/// each one shortly before 1 would suspect it.
fn direct_copies_of_voted_blocks(entry: &Entry) -> Result<(), Failure> {
    let mut c = Controlled::before_a_fork(entry, 3, &[0], Load::Idle, |_| {});
    let (began, tip) = (c.world.now(), c.tip());
    let one = Controlled::block(&c.last, 1);
    let two = Controlled::block(&one.block, 2);
    let first = c.vote(&tip, two.block.id(), VoteKind::Data);
    for block in [&one, &two] {
        c.emit(&[2], block);
    }
    c.cast(&[2], &first);
    for (count, block) in [(1, &one), (2, &two)] {
        run_until(&mut c, began, count * SILENCE_NS - ms(50))?;
        c.emit(&[1], block);
    }
    run_until(&mut c, began, ROUND_NS + DELTA_NS)?;
    blameless(&mut c, first.round)
}

#[test]
fn s07_direct_copies_of_voted_blocks_delay_no_honest_vote() {
    assert_eq!(direct_copies_of_voted_blocks(registered()), Ok(()));
}

/// restart-blames: 0 of three lies, and sends two votes. 1 extends and commits the first one while 2 is down. 2 recovers with the
/// second one, and must not blame the round of 1 before 1 has answered.
fn restart_after_a_missed_vote(entry: &Entry) -> Result<(), Failure> {
    // The last block has a request: so the disk of 2 is synced when its vote commits that block.
    let mut c = Controlled::before_a_fork(entry, 3, &[0], Load::Busy, |_| {});
    let began = c.world.now();
    let [first, second] = two_votes(&mut c, &[1], &[2]);
    let one = Controlled::block(&c.last, 1);
    c.emit(&[1], &Controlled::block(&one.block, 3));
    run_until(&mut c, began, NEAR_NS + ms(2))?;
    c.world.crash(r(2), Survives::Everything);
    run_until(&mut c, began, ms(60))?;
    c.takes(&[1], &[2], FAR_NS);
    c.world.start(r(2)).unwrap();
    let opened = c.world.now();
    let proof = RoundProof { round: View(1), tip: None, skips: Vec::new(), resync: false };
    let stands = Answer { incarnation: Incarnation::ZERO, stage: RecoveryStage::Running, proof, last: None };
    for at in [50, 200] {
        run_until(&mut c, opened, at * ms(1))?;
        let message: Message = UniqueMessage::Answer(Box::new(stands.clone()));
        c.world.send_as(r(0), To::One(r(2)), &message);
    }
    run_until(&mut c, opened, ROUND_NS - ms(5))?;
    for _ in 0..4 {
        c.liars_blame(&[2], &second);
        c.world.run_for(ms(5))?;
    }
    run_until(&mut c, opened, 2 * ROUND_NS)?;
    blameless(&mut c, first.round)
}

/// slow-all, slow-link: 0 of three lies and sends two votes. Messages between 1 and 2 are 20 Δ late from then on. In slow-link
/// the liar answers probes at once.
fn two_votes_and_a_slow_link(
    entry: &Entry,
    change: impl FnOnce(&mut Settings),
    answers_probes: bool,
    tolerated: &[Oracle],
) -> (Controlled, Result<(), Failure>) {
    let mut c = Controlled::before_a_fork(entry, 3, &[0], Load::Idle, change);
    tolerated.iter().for_each(|oracle| c.world.tolerate(*oracle));
    let [_, second] = two_votes(&mut c, &[1], &[2]);
    let one = Controlled::block(&c.last, 1);
    c.emit(&[1], &Controlled::block(&one.block, 3));
    let (from, to) = (Places::one(1), Places::one(2));
    let change = Change::Late { by_ns: 20 * DELTA_NS, until: Time::ZERO };
    let slow = NetworkFault { from, to, both_ways: true, change, fault: Some(Fault::BeyondDelta) };
    c.world.begin_fault(slow);
    let began = c.world.now();
    let mut result = Ok(());
    while result.is_ok() && c.world.now() < began.plus(ROUND_NS + DELTA_NS) {
        result = c.world.run_for(ms(5));
        if answers_probes {
            let liars = c.liars.clone();
            answer_probes(&mut c.world, &liars);
        }
        c.liars_blame(&[2], &second);
    }
    (c, result)
}

fn slower_than_delta(entry: &Entry) -> Result<(), Failure> {
    let as_entry = |settings: &mut Settings| drop(settings.parameters.changed.remove("guarded"));
    let (mut c, result) = two_votes_and_a_slow_link(entry, as_entry, false, &[]);
    result?;
    c.world.run_for(50 * DELTA_NS)
}

/// Entry with the guard, whatever the world sets, and without it.
const GUARDED: Entry = Entry { exam_params: |delta_ns, _| (SOUND.exam_params)(delta_ns, true), ..SOUND };
const UNGUARDED: Entry = Entry { exam_params: |delta_ns, _| (SOUND.exam_params)(delta_ns, false), ..SOUND };

/// A replica stops if the other branch reaches it before the oracle sees the fork.
const CAUGHT_BY: &[Oracle] = &[Oracle::Agreement, Oracle::Stopped];

/// Rows of the museum.
pub(crate) const ROWS: &[Row] = &[
    Row::of_schedule(
        "V1",
        (
            "a restarted replica blames a voter whose vote it has missed",
            "artemis, script `restart-blames`: waits begin at once after a restart, and answers bring nothing",
        ),
        (SOUND, flawed::<RestartBlames<Artemis, ROUND_NS>>()),
        CAUGHT_BY,
        |entry, _| restart_after_a_missed_vote(entry).err(),
    ),
    Row::of_schedule(
        "V2",
        (
            "the next voter does not learn that its round has begun, and is blamed",
            "artemis, scenario 15: no relay is sent",
        ),
        (SOUND, flawed::<NoRelay>()),
        CAUGHT_BY,
        |entry, _| relay_to_the_next_voter(entry).err(),
    ),
    Row::of_schedule(
        "V3",
        (
            "a voter is blamed while its ancestors are being fetched from it",
            "artemis, scenario 15: the voter's own copy prolongs no wait",
        ),
        (SOUND, flawed::<NoGrace>()),
        CAUGHT_BY,
        |entry, _| vote_at_the_last_moment(entry).err(),
    ),
    Row::of_schedule(
        "V4",
        (
            "a voter is blamed while it waits for a block or for its suspicion",
            "artemis, script `timer-without-S`: 4 delta",
        ),
        (SOUND, flawed::<TimerWithoutS>()),
        CAUGHT_BY,
        |entry, _| voter_that_waits_for_its_suspicion(entry).err(),
    ),
    Row::of_schedule(
        "V5",
        (
            "replicas blame each other's rounds when all messages are slow",
            "artemis, script `slow-all`: the guard does not stop blames",
        ),
        (GUARDED, UNGUARDED),
        CAUGHT_BY,
        |entry, _| slower_than_delta(entry).err(),
    ),
];

#[test]
fn schedules_fork_without_the_rule_that_they_name() {
    let missed: Vec<&str> = ROWS.iter().filter(|row| row.catch().is_none()).map(|row| row.id).collect();
    assert!(missed.is_empty(), "{missed:?}");
}

/// Script `fetched-then-direct`: no oracle judges a flag, so this mutation has no row. The slow link of scenario 12 shows it.
#[test]
fn coordinator_is_flagged_where_direct_copies_of_fetched_blocks_are_ignored() {
    let flags = coordinator_at_the_end_of_a_slow_link(&flawed::<FetchedThenDirect>(), 3, 2);
    assert!(!flags.is_empty() && flags.iter().all(|(_, by, _)| *by == r(2)), "{flags:?}");
}

/// S14: a slow link of the coordinator alone causes changes of the view, and no fork.
#[test]
fn s14_slow_coordinator_is_replaced_without_a_fork() {
    let mut world = world_of(registered(), 3, 14, |settings| settings.set("guarded", true));
    let slow = Rc::new(Cell::new(false));
    let is_slow = Rc::clone(&slow);
    let log = listen(&mut world, move |_, frame| {
        let is_late = is_slow.get() && frame.from == r(0) && frame.content.kind.as_str() == "cblock";
        if is_late { Verdict::Delay(12 * DELTA_NS) } else { Verdict::Pass }
    });
    begin(&mut world);
    level(&mut world);
    slow.set(true);
    let id = world.submit(0, &[incr("n")])[0];
    wait_for(&mut world, &[id], secs(20));
    go(world.run_while("the view changes", secs(20), |world| view(world, 1) == View(1)), &world);
    assert_eq!(count(&world, "blame"), 0, "{:?}", against(&log, Time::ZERO));
    slow.set(false);
    go(world.run_for(secs(3)), &world);
    settle(&mut world);
}

/// S14, slow-all: the oracle of agreement sees the fork of unguarded replicas. Guarded ones do not fork.
#[test]
fn s14_slowdown_of_all_messages_forks_unguarded_replicas_alone() {
    let failure = slower_than_delta(&UNGUARDED).unwrap_err();
    assert_eq!(failure.oracle, Oracle::Agreement, "{failure}");
    assert_eq!(slower_than_delta(&GUARDED), Ok(()));
}

/// S14, slow-link: with the guard on, and only one link slow, replicas fork. Both raise the alarm: the first one that learns the
/// other's chain stops, and the other one reports the late vote of the first.
#[test]
fn s14_slow_link_forks_guarded_replicas_and_both_raise_the_alarm() {
    let guarded = |settings: &mut Settings| settings.set("guarded", true);
    let (_, result) = two_votes_and_a_slow_link(registered(), guarded, true, &[]);
    let failure = result.unwrap_err();
    assert_eq!(failure.oracle, Oracle::Agreement, "{failure}");
    let tolerated = [Oracle::Agreement, Oracle::Stopped];
    let (mut c, result) = two_votes_and_a_slow_link(registered(), guarded, true, &tolerated);
    result.unwrap();
    let fork = c.last.height.next();
    assert!([1, 2].iter().all(|id| c.world.decided(r(*id)) >= fork), "both have committed their own block");
    c.world.run_for(100 * DELTA_NS).unwrap();
    let running: Vec<u16> = [1, 2].into_iter().filter(|id| c.world.is_running(r(*id))).collect();
    assert!(running.len() < 2, "the first to learn the other's chain raises the alarm and stops");
    for id in running {
        let doubt = c.world.status(r(id)).unwrap().alarms.last_doubt;
        let Some(Alarm::SynchronyDoubt { peer: Some(peer), .. }) = doubt else { panic!("{id}: {doubt:?}") };
        assert_eq!(peer, r(3 - id), "the operator sees the other one");
    }
}
