//! Golden schedules of Apollo (its notes, §23): each forks replicas that lack the rule that it names, and no others.

use crate::apollo_flaws::{ForeignGrace, NoGrace, NoRelay, RestartBlames, ShortRound};
use crate::apollo_run::{ApolloRun, TAU_NS, apollo};
use crate::chained_museum::Row;
use crate::sync_exact_world::{DELTA_NS, NEAR_NS};
use quorate_consensus::flawed::{Flaw, Flawed};
use quorate_consensus::parts::chain::empty_payload;
use quorate_consensus::parts::recovery::RecoveryStage;
use quorate_consensus::{Alarm, Entry};
use quorate_protocols::unique_chain::{Answer, Apollo, RoundProof, UniqueChain, UniqueMessage};
use quorate_sim::{Audience, Change, Failure, Fault, NetworkFault, Oracle, Places, Settings, Survives, ms};
use quorate_types::{Incarnation, ReplicaId, Time, View};

const SOUND: Entry = Entry::of::<UniqueChain<Apollo>>();

const fn flawed<F: Flaw<UniqueChain<Apollo>>>() -> Entry {
    Entry::of::<Flawed<UniqueChain<Apollo>, F>>()
}

/// Longest delay of a message in these schedules: a little less than Δ, for the nanoseconds of turns.
const FAR_NS: u64 = DELTA_NS - ms(1);

/// Returns the failure of a schedule. An honest leader that honest replicas blame is one even if no oracle sees a fork.
fn blameless(run: &mut ApolloRun, since: View) -> Result<(), Failure> {
    run.end()?;
    assert!(
        !run.honest_leader_is_blamed(since),
        "no fork, but an honest leader is blamed: {:?}",
        run.blames()
    );
    Ok(())
}

/// no-relay: 0 of three lies. It sends B to 2, and much later B' to 1, the next leader. With the relay of 2 the leader extends
/// B long before.
pub(crate) fn relay_to_the_next_leader(entry: &Entry) -> Result<(), Failure> {
    let mut run = ApolloRun::new(entry, 3, |_| {});
    let (round, below) = run.corrupt(&[0])?;
    let began = run.world.now();
    run.takes(&[1], &[2], FAR_NS);
    let (one, two) = (run.on(round, &below, 1), run.on(round, &below, 2));
    run.propose(&[2], &one);
    run.run_until(began.plus(375 * ms(1)))?;
    run.propose(&[1], &two);
    let proof = run.proof(&one.0, &one.1);
    run.liars_blame(&[2], &proof);
    run.run_until(began.plus(5 * DELTA_NS))?;
    blameless(&mut run, round)
}

/// no-grace, foreign-grace, short-timer: of five, 0 and 1 lie and lead rounds v and v + 1. 4 alone receives the blocks of one
/// branch and 3 those of another one, both at the last moment before their relays. The honest leader of round v + 2 has to
/// fetch the first branch from 4, so its block arrives after 4 Δ. Then 3 has to fetch that branch from the leader. A liar hands
/// the header of the leader's block to 3 before, and answers nothing.
pub(crate) fn block_at_the_last_moment(entry: &Entry) -> Result<(), Failure> {
    let mut run = ApolloRun::new(entry, 5, |_| {});
    let (round, below) = run.corrupt(&[0, 1])?;
    let began = run.world.now();
    run.takes(&[2, 3, 4], &[2, 3, 4], FAR_NS);
    let next = round.next();
    let (one, other) = (run.on(round, &below, 1), run.on(round, &below, 2));
    let (one_more, other_more) = (run.on(next, &one.0, 3), run.on(next, &other.0, 4));
    run.propose(&[4], &one);
    run.propose(&[3], &other);
    run.run_until(began.plus(ms(1)))?;
    run.propose(&[4], &one_more);
    run.run_until(began.plus(ms(2)))?;
    run.propose(&[3], &other_more);
    run.run_until(began.plus(2 * DELTA_NS))?;
    let proof = run.proof(&other_more.0, &other_more.1);
    run.liars_blame(&[3], &proof);
    // The leader's block leaves 3 Δ + τ after the relay.
    let third = next.next();
    while run.block(third).is_none() && run.world.now() < began.plus(4 * DELTA_NS) {
        run.run(ms(1))?;
    }
    run.run(NEAR_NS)?;
    if let Some((entry, skips)) = run.block(third) {
        let proof = run.proof(&entry, &skips);
        run.send(0, &[3], &UniqueMessage::Proof(Box::new(proof)));
    }
    run.run_until(began.plus(8 * DELTA_NS))?;
    blameless(&mut run, round)
}

/// restart-blames: 0 of three lies. It sends B to 1 and B' to 2. 1 extends and commits B while 2 is down. 2 recovers with B',
/// and must not blame the round of 1 before 1 has answered.
pub(crate) fn restart_after_a_missed_block(entry: &Entry) -> Result<(), Failure> {
    let mut run = ApolloRun::new(entry, 3, |settings| settings.client.audience = Audience::All);
    // The block below has a request: so the disk of 2 is synced when B' commits that block.
    run.is_busy = true;
    let (round, below) = run.corrupt(&[0])?;
    assert!(below.block.payload != empty_payload(), "the block below has a request");
    let began = run.world.now();
    let (one, two) = (run.on(round, &below, 1), run.on(round, &below, 2));
    run.propose(&[1], &one);
    run.propose(&[2], &two);
    run.run_until(began.plus(NEAR_NS + ms(2)))?;
    run.world.crash(ReplicaId(2), Survives::Everything);
    run.run_until(began.plus(60 * ms(1)))?;
    run.takes(&[1], &[2], FAR_NS);
    run.world.start(ReplicaId(2)).unwrap();
    let opened = run.world.now();
    let proof = RoundProof { round: View(1), tip: None, skips: Vec::new(), resync: false };
    let stands = Answer { incarnation: Incarnation::ZERO, stage: RecoveryStage::Running, proof, last: None };
    for at in [50, 200] {
        run.run_until(opened.plus(at * ms(1)))?;
        run.send(0, &[2], &UniqueMessage::Answer(Box::new(stands.clone())));
    }
    run.run_until(opened.plus(4 * DELTA_NS - ms(5)))?;
    let proof = run.proof(&two.0, &two.1);
    for _ in 0..4 {
        run.liars_blame(&[2], &proof);
        run.run(ms(5))?;
    }
    run.run_until(opened.plus(8 * DELTA_NS))?;
    run.end()
}

/// slow-all, slow-link: 0 of three lies and sends B to 1 and B' to 2. Messages between 1 and 2 are 7 Δ late from then on. In
/// slow-link the liar answers probes at once.
fn two_blocks(
    entry: &Entry,
    change: impl FnOnce(&mut Settings),
    answers_probes: bool,
    tolerated: &[Oracle],
) -> (ApolloRun, Result<(), Failure>) {
    let mut run = ApolloRun::new(entry, 3, change);
    tolerated.iter().for_each(|oracle| run.world.tolerate(*oracle));
    run.answers_probes = answers_probes;
    // Longer than any wait after a doubt.
    run.run(30 * DELTA_NS).unwrap();
    let (round, below) = run.corrupt(&[0]).unwrap();
    let (one, two) = (run.on(round, &below, 1), run.on(round, &below, 2));
    let (from, to) = (Places::one(1), Places::one(2));
    let change = Change::Late { by_ns: 7 * DELTA_NS, until: Time::ZERO };
    let slow = NetworkFault { from, to, both_ways: true, change, fault: Some(Fault::BeyondDelta) };
    run.world.begin_fault(slow);
    run.propose(&[1], &one);
    run.propose(&[2], &two);
    let began = run.world.now();
    let proof = run.proof(&two.0, &two.1);
    let mut result = Ok(());
    while result.is_ok() && run.world.now() < began.plus(6 * DELTA_NS) {
        result = run.run(ms(20));
        run.liars_blame(&[2], &proof);
    }
    (run, result)
}

pub(crate) fn slower_than_delta(entry: &Entry) -> Result<(), Failure> {
    let (mut run, result) =
        two_blocks(entry, |settings| drop(settings.parameters.changed.remove("guarded")), false, &[]);
    result?;
    run.run(20 * DELTA_NS)
}

/// Entry with the guard, whatever the world sets, and without it.
const GUARDED: Entry = Entry { exam_params: |delta_ns, _| (SOUND.exam_params)(delta_ns, true), ..SOUND };
const UNGUARDED: Entry = Entry { exam_params: |delta_ns, _| (SOUND.exam_params)(delta_ns, false), ..SOUND };

const CAUGHT_BY: &[Oracle] = &[Oracle::Agreement];

/// Rows of the museum.
pub(crate) const ROWS: &[Row] = &[
    Row::of_schedule(
        "W1",
        (
            "a restarted replica blames a leader whose block it has missed",
            "apollo, script `restart-blames`: waits begin at once after a restart, and answers bring nothing",
        ),
        (SOUND, flawed::<RestartBlames<Apollo, { 4 * DELTA_NS + TAU_NS }>>()),
        CAUGHT_BY,
        |entry, _| restart_after_a_missed_block(entry).err(),
    ),
    Row::of_schedule(
        "W2",
        (
            "the next leader does not learn that its round has begun, and is blamed",
            "apollo, script `no-relay`: no relay is sent",
        ),
        (SOUND, flawed::<NoRelay>()),
        CAUGHT_BY,
        |entry, _| relay_to_the_next_leader(entry).err(),
    ),
    Row::of_schedule(
        "W3",
        (
            "a leader is blamed while its ancestors are being fetched from it",
            "apollo, script `no-grace`: the leader's own copy prolongs no wait",
        ),
        (SOUND, flawed::<NoGrace>()),
        CAUGHT_BY,
        |entry, _| block_at_the_last_moment(entry).err(),
    ),
    Row::of_schedule(
        "W4",
        (
            "a silent forwarder uses up the time for the fetch from the leader",
            "apollo, script `foreign-grace`: the first header prolongs the wait, whoever hands it on",
        ),
        (SOUND, flawed::<ForeignGrace>()),
        CAUGHT_BY,
        |entry, _| block_at_the_last_moment(entry).err(),
    ),
    Row::of_schedule(
        "W5",
        (
            "the wait for a leader is too short for a relay, a fetch and a proposal",
            "apollo, script `short-timer`: 3 delta + tau",
        ),
        (SOUND, flawed::<ShortRound>()),
        CAUGHT_BY,
        |entry, _| block_at_the_last_moment(entry).err(),
    ),
    Row::of_schedule(
        "W6",
        (
            "replicas blame each other's rounds when all messages are slow",
            "apollo, script `slow-all`: the guard does not stop blames",
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

/// Scenario 16, slow-link: with the guard on, and only one link slow, replicas fork. Both raise the alarm. The first one that
/// learns the other's chain stops, and the other one reports the late block of the first.
#[test]
fn s16_slow_link_forks_guarded_replicas_and_both_raise_the_alarm() {
    let guarded = |settings: &mut Settings| settings.set("guarded", true);
    let (mut run, result) = two_blocks(apollo(), guarded, true, &[]);
    let result = result.and_then(|()| run.run(10 * DELTA_NS));
    let failure = result.unwrap_err();
    assert_eq!(failure.oracle, Oracle::Agreement, "{failure}");
    let (mut run, result) = two_blocks(apollo(), guarded, true, &[Oracle::Agreement, Oracle::Stopped]);
    result.unwrap();
    for id in [1, 2].map(ReplicaId) {
        assert!(
            run.world.status(id).is_none_or(|status| status.decided.0 % 8 == 0),
            "{id} has committed its own block"
        );
    }
    run.run(30 * DELTA_NS).unwrap();
    let running: Vec<ReplicaId> =
        [1, 2].map(ReplicaId).into_iter().filter(|id| run.world.is_running(*id)).collect();
    assert!(running.len() < 2, "the first to learn the other's chain raises the alarm and stops");
    for id in running {
        let doubt = run.world.status(id).unwrap().alarms.last_doubt;
        let Some(Alarm::SynchronyDoubt { peer: Some(peer), .. }) = doubt else { panic!("{id}: {doubt:?}") };
        assert_eq!(peer.0, 3 - id.0, "the operator sees the other one");
    }
}
