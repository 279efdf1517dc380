//! Scenarios of Apollo (its notes, §13), by their numbers. Scenario 15 and the first half of 16 are in `apollo_schedules.rs`.

use crate::apollo_run::{ApolloRun, TAU_NS, apollo, extends};
use crate::side_by_side::run_all;
use crate::support::{go, incr, level, put, r, settle, settle_honest, wait_for};
use crate::sync_exact_world::{DELTA_NS, NEAR_NS};
use quorate_consensus::parts::chain::empty_payload;
use quorate_protocols::unique_chain::apollo::Proposal;
use quorate_protocols::unique_chain::{Entry as _, UniqueMessage, skips_digest};
use quorate_sim::{Audience, LinkConditions, OpId, Settings, Survives, ms, secs, seed};
use quorate_types::{Digest, PayloadId, View};
use std::collections::{BTreeMap, BTreeSet};

/// Time after which a leader is blamed.
const WAIT_NS: u64 = 4 * DELTA_NS + TAU_NS;

fn to_all(settings: &mut Settings) {
    settings.client.audience = Audience::All;
    settings.client.retry_ns = secs(3);
}

/// Returns the rounds that messages show as skipped.
fn skipped(run: &ApolloRun) -> BTreeSet<View> {
    let mut rounds = BTreeSet::new();
    for sent in &run.network.borrow().sent {
        let skips = match &sent.message {
            UniqueMessage::Entry { skips, .. } => skips,
            UniqueMessage::Proof(proof) | UniqueMessage::Blame(proof) => &proof.skips,
            _ => continue,
        };
        rounds.extend(skips.iter().map(|skip| skip.view()));
    }
    rounds
}

/// Returns the round of the first later block with a payload.
fn carried(run: &mut ApolloRun, since: View) -> View {
    for _ in 0..2_000 {
        let blocks = (since.0..since.0 + 200).filter_map(|round| run.block(View(round)));
        if let Some((block, _)) = blocks.into_iter().find(|(block, _)| block.block.payload != empty_payload())
        {
            return block.round();
        }
        go(run.world.run_for(ms(1)), &run.world);
    }
    panic!("no leader proposes the request");
}

fn submit(run: &mut ApolloRun) -> OpId {
    run.world.submit(0, &[incr("n")])[0]
}

/// Standard seeds within the bound.
#[test]
fn seeds_within_the_bound_pass() {
    for (n, seeds) in [(3, 12), (5, 4), (7, 2)] {
        let reports =
            run_all(&(0..seeds).collect::<Vec<_>>(), |seed| seed::run(apollo(), Some(n), seed).unwrap());
        for report in reports {
            assert!(report.failure.is_none(), "n = {n} {report}");
            assert!(report.requests >= 400 && report.virtual_ns >= secs(60), "{report}");
        }
    }
}

/// S1: a block every δ, a commit (f + 1) δ after the proposal, and 2n - 3 messages. The leader of round r + f commits a δ
/// earlier.
#[test]
fn s01_block_has_its_documented_cost() {
    for n in [3, 7] {
        let mut run = ApolloRun::new(apollo(), n, |settings| {
            to_all(settings);
            settings.set("heartbeat_ms", 200);
        });
        let since = run.round(r(0));
        submit(&mut run);
        let round = carried(&mut run, since);
        let (block, _) = run.block(round).unwrap();
        let at = run.proposed(round).unwrap().at;
        let f = run.world.settings().f as u64;
        let early = run.leader(round.plus(f));
        let mut took = BTreeMap::new();
        let look = |world: &quorate_sim::World| {
            for id in world.replicas().filter(|id| world.decided(*id) >= block.block.height) {
                took.entry(id).or_insert(world.now());
            }
            took.len() < n
        };
        go(run.world.run_while("all have committed it", secs(2), look), &run.world);
        for (id, committed) in took {
            let expected = (if id == early { f } else { f + 1 }) * NEAR_NS;
            let took = committed.since(at);
            assert!((expected..expected + 20).contains(&took), "n = {n} {id}: {took}, not {expected}");
        }
        let next = run.proposed(round.next()).unwrap().at.since(at);
        assert!((NEAR_NS..NEAR_NS + 10).contains(&next), "n = {n}: {next}");
        let count = |is: &dyn Fn(&crate::apollo_run::Message) -> bool| {
            run.network.borrow().sent.iter().filter(|sent| is(&sent.message)).count()
        };
        let proposals =
            count(&|it| matches!(it, UniqueMessage::Entry { entry, .. } if entry.round() == round));
        let relays = count(&|it| matches!(it, UniqueMessage::Proof(proof) if proof.round == round.next()));
        assert_eq!(proposals + relays, 2 * n - 3, "n = {n}");
        assert_eq!(run.blames(), [], "n = {n}");
        settle(&mut run.world);
    }
}

/// Crashes the leaders of so many rounds in a row, before the first of them begins. Returns that round.
fn crash(run: &mut ApolloRun, count: u64) -> View {
    let round = run.world.replicas().map(|id| run.round(id)).max().unwrap().plus(2);
    for ahead in 0..count {
        let leader = run.leader(round.plus(ahead));
        run.world.crash(leader, Survives::Everything);
    }
    round
}

/// S2: a skip certificate of the round forms a wait and a δ after its beginning. The next block shows it and extends the block
/// before. No other replica is blamed.
#[test]
fn s02_round_of_a_crashed_leader_is_skipped_in_time() {
    for n in [3, 5] {
        let mut run = ApolloRun::new(apollo(), n, to_all);
        let round = crash(&mut run, 1);
        let next = round.next();
        while run.block(next).is_none() {
            go(run.run(ms(1)), &run.world);
        }
        let (block, skips) = run.block(next).unwrap();
        assert_eq!((skips.len(), block.parent_round), (1, round.minus(1)), "n = {n}");
        let began = run.proposed(round.minus(1)).unwrap().at;
        let took = run.proposed(next).unwrap().at.since(began);
        // The leader before enters the round at once, the others a δ later; blames take a δ, and an idle leader waits τ.
        assert!((WAIT_NS..=WAIT_NS + 2 * NEAR_NS + TAU_NS + ms(1)).contains(&took), "n = {n}: {took}");
        assert!(run.blames().iter().all(|(_, of)| *of == round), "n = {n}: {:?}", run.blames());
        let crashed = run.leader(round);
        run.world.start(crashed).unwrap();
        settle(&mut run.world);
    }
}

/// S3: three crashed leaders in a row of seven: the next block shows three certificates.
#[test]
fn s03_three_crashed_leaders_in_a_row_are_skipped() {
    let mut run = ApolloRun::new(apollo(), 7, to_all);
    let round = crash(&mut run, 3);
    let after = round.plus(3);
    while run.block(after).is_none() {
        go(run.run(ms(1)), &run.world);
    }
    let (block, skips) = run.block(after).unwrap();
    assert_eq!((skips.len(), block.parent_round), (3, round.minus(1)));
    let id = submit(&mut run);
    wait_for(&mut run.world, &[id], secs(20));
    for ahead in 0..3 {
        let leader = run.leader(round.plus(ahead));
        run.world.start(leader).unwrap();
    }
    settle(&mut run.world);
}

/// S4: two blocks in one round, for two halves: the branch that the next leader extends wins everywhere.
#[test]
fn s04_next_leader_decides_between_two_blocks() {
    for winner in [0, 1] {
        let mut run = ApolloRun::new(apollo(), 5, to_all);
        let (round, below) = run.corrupt(&[0]).unwrap();
        let blocks = [run.on(round, &below, 1), run.on(round, &below, 2)];
        // 1 leads the next round.
        run.propose(&[1, 3], &blocks[winner]);
        run.propose(&[2, 4], &blocks[1 - winner]);
        let id = submit(&mut run);
        wait_for(&mut run.world, &[id], secs(5));
        go(run.run(ms(200)), &run.world);
        let tip = run.below(run.round(r(1))).block.id();
        let has: Vec<bool> = blocks.iter().map(|(block, _)| extends(&run, tip, block.block.id())).collect();
        assert_eq!((has[winner], has[1 - winner]), (true, false), "{winner}");
        assert!(!run.honest_leader_is_blamed(round), "{:?}", run.blames());
        settle_honest(&mut run.world);
    }
}

/// S5: a leader sends its block to one replica alone, which does not lead the next round. Its relay brings the block to the next
/// leader, and no replica is blamed.
#[test]
fn s05_relay_brings_a_hidden_block_to_the_next_leader() {
    for to in [2, 3, 4] {
        let mut run = ApolloRun::new(apollo(), 5, to_all);
        let (round, below) = run.corrupt(&[0]).unwrap();
        let block = run.on(round, &below, 1);
        run.propose(&[to], &block);
        go(run.run(10 * NEAR_NS), &run.world);
        let (next, skips) = run.block(round.next()).unwrap();
        assert_eq!((next.block.parent, skips.len()), (block.0.block.id(), 0), "{to}");
        assert!(run.blames().iter().all(|(_, of)| *of < round), "{to}: {:?}", run.blames());
        settle_honest(&mut run.world);
    }
}

/// S6: the same with a silent next leader: the replica blames it with a proof, all follow, and the block stays.
#[test]
fn s06_hidden_block_stays_if_the_next_leader_is_silent() {
    let mut run = ApolloRun::new(apollo(), 5, to_all);
    let (round, below) = run.corrupt(&[0, 1]).unwrap();
    let block = run.on(round, &below, 1);
    run.propose(&[3], &block);
    go(run.run(WAIT_NS + 20 * NEAR_NS), &run.world);
    go(run.run(WAIT_NS + 20 * NEAR_NS), &run.world);
    assert!(run.blames().contains(&(r(3), round.next())), "{:?}", run.blames());
    let tip = run.below(run.round(r(2))).block.id();
    assert!(extends(&run, tip, block.0.block.id()));
    assert!(!run.honest_leader_is_blamed(round), "{:?}", run.blames());
    settle_honest(&mut run.world);
}

/// S7: a block that is sent just before the wait ends to some replicas, and after it to the others. Block and skip certificate
/// may both exist, and all agree.
#[test]
fn s07_block_at_the_end_of_the_wait_leaves_agreement() {
    for early_ns in [1, NEAR_NS, 2 * NEAR_NS + 1, 3 * NEAR_NS] {
        let mut run = ApolloRun::new(apollo(), 5, to_all);
        let (round, below) = run.corrupt(&[0, 1]).unwrap();
        let block = run.on(round, &below, 1);
        let proof = run.proof(&below, &run.block(below.round()).unwrap().1);
        run.liars_blame(&[2, 3, 4], &proof);
        go(run.run(WAIT_NS - early_ns), &run.world);
        run.propose(&[2], &block);
        go(run.run(DELTA_NS), &run.world);
        run.propose(&[3, 4], &block);
        go(run.run(20 * DELTA_NS), &run.world);
        assert!(!run.honest_leader_is_blamed(round), "{early_ns}: {:?}", run.blames());
        settle_honest(&mut run.world);
    }
}

/// S8: f false blames in each round skip no round of an honest leader.
#[test]
fn s08_f_false_blames_in_each_round_skip_nothing() {
    let mut run = ApolloRun::new(apollo(), 5, to_all);
    let (begun, _) = run.corrupt(&[0, 1]).unwrap();
    for _ in 0..400 {
        let round = run.round(r(2));
        let below = run.below(round);
        let mut proof = run.proof(&below, &run.block(below.round()).unwrap().1);
        (proof.round, proof.skips) = (round, run.skips(below.round(), round));
        // Liars alone are too few for a certificate, which they would need to blame later rounds.
        if proof.skips.iter().all(|skip| skip.signers.len() > 2) {
            run.liars_blame(&[2, 3, 4], &proof);
        }
        go(run.run(5 * ms(1)), &run.world);
    }
    let wrong: Vec<View> =
        skipped(&run).into_iter().filter(|round| *round >= begun && run.leader(*round) > r(1)).collect();
    assert_eq!(wrong, []);
    settle_honest(&mut run.world);
}

/// S9: blames of liars reach one replica alone. With its own blame it has a certificate, and all receive it.
#[test]
fn s09_certificate_of_one_replica_reaches_all() {
    let mut run = ApolloRun::new(apollo(), 5, to_all);
    let (round, below) = run.corrupt(&[0, 1]).unwrap();
    let proof = run.proof(&below, &run.block(below.round()).unwrap().1);
    // 4 has proposed the block below, and begins the round a δ before the others.
    run.liars_blame(&[4], &proof);
    let began = run.world.now();
    while run.world.replicas().any(|id| id > r(1) && run.round(id) == round) {
        go(run.run(ms(1)), &run.world);
    }
    assert!(run.world.now().since(began) <= WAIT_NS + NEAR_NS);
    let honest: Vec<_> = run.blames().into_iter().filter(|(by, of)| *by > r(1) && *of == round).collect();
    assert_eq!(honest.first().map(|(by, _)| *by), Some(r(4)));
    settle_honest(&mut run.world);
}

/// S10: a block on a parent before an honest round, with forged skip certificates, is refused.
#[test]
fn s10_forged_skip_certificates_are_refused() {
    let mut run = ApolloRun::new(apollo(), 5, to_all);
    let (round, below) = run.corrupt(&[0, 1]).unwrap();
    // The block before that of the honest leader.
    let parent = run.below(below.round());
    let too_few = run.skips(parent.round(), round);
    for skips in [vec![], too_few.clone(), [too_few.clone(), too_few].concat()] {
        let (mut block, _) = run.on(round, &parent, 5);
        block.block.extra = Proposal::bind(parent.round(), skips_digest(&skips));
        run.propose(&[2, 3, 4], &(block.clone(), skips));
        go(run.run(3 * NEAR_NS), &run.world);
        assert_eq!([2, 3, 4].map(|id| run.round(r(id))), [round; 3], "nobody accepts it");
    }
    settle_honest(&mut run.world);
}

/// S11: a leader that restarts after its proposal has left repeats the same block or sends none.
#[test]
fn s11_restarted_leader_sends_no_second_block() {
    let mut run = ApolloRun::new(apollo(), 3, to_all);
    for step in 0..12 {
        let id = submit(&mut run);
        go(run.run(ms(3) + step * ms(2)), &run.world);
        run.world.crash(r(1), [Survives::Nothing, Survives::Everything][usize::try_from(step % 2).unwrap()]);
        go(run.run(ms(5)), &run.world);
        run.world.start(r(1)).unwrap();
        wait_for(&mut run.world, &[id], secs(20));
        go(run.run(8 * DELTA_NS), &run.world);
    }
    let mut blocks = BTreeMap::new();
    for sent in &run.network.borrow().sent {
        let UniqueMessage::Entry { entry, .. } = &sent.message else { continue };
        let id = entry.block.id();
        assert_eq!(*blocks.entry(entry.round()).or_insert(id), id, "one block in round {}", entry.round());
    }
    settle(&mut run.world);
}

/// S12: a block whose body no replica has: nobody accepts it, and the round is skipped.
#[test]
fn s12_block_without_a_body_is_skipped() {
    let mut run = ApolloRun::new(apollo(), 5, to_all);
    let (round, below) = run.corrupt(&[0]).unwrap();
    let (mut block, skips) = run.on(round, &below, 1);
    block.block.payload = PayloadId(Digest([7; 32]));
    run.propose(&[1, 2], &(block.clone(), skips.clone()));
    let proof = run.proof(&block, &skips);
    run.send(0, &[3, 4], &UniqueMessage::Proof(Box::new(proof)));
    go(run.run(2 * WAIT_NS), &run.world);
    let (next, skips) = run.block(round.next()).unwrap();
    assert_eq!((next.block.parent, skips.len()), (below.block.id(), 1));
    settle_honest(&mut run.world);
}

/// S13: a replica that is cut off for 50 rounds rejoins, and blames no honest leader when it has caught up.
#[test]
fn s13_replica_that_was_cut_off_rejoins() {
    let mut run = ApolloRun::new(apollo(), 3, |settings| {
        to_all(settings);
        settings.set("heartbeat_ms", 50);
    });
    let before = run.round(r(0));
    let cut = crate::support::cut(&mut run.world, 2);
    while run.round(r(0)) < before.plus(50) {
        go(run.run(DELTA_NS), &run.world);
    }
    run.world.end_fault(cut);
    go(run.run(30 * DELTA_NS), &run.world);
    level(&mut run.world);
    let joined = run.round(r(2));
    assert!(joined.plus(2) >= run.round(r(0)), "{joined}");
    go(run.run(60 * DELTA_NS), &run.world);
    assert!(!run.honest_leader_is_blamed(joined), "{:?}", run.blames());
    settle(&mut run.world);
}

/// S14: all messages take exactly Δ. No replica is blamed.
#[test]
fn s14_delays_of_exactly_delta_are_tolerated() {
    for n in [3, 5] {
        let mut run = ApolloRun::new(apollo(), n, |settings| {
            to_all(settings);
            settings.conditions = LinkConditions::constant(DELTA_NS);
        });
        for number in 0..10 {
            let id = run.world.submit(0, &[put("k", number)])[0];
            wait_for(&mut run.world, &[id], secs(10));
        }
        assert_eq!(run.blames(), [], "n = {n}");
        settle(&mut run.world);
    }
}

/// S17: one request alone is committed after f + 1 rounds at network speed, although no other follows.
#[test]
fn s17_request_alone_is_committed_at_network_speed() {
    for n in [3, 5, 7] {
        let mut run = ApolloRun::new(apollo(), n, |settings| {
            to_all(settings);
            settings.set("heartbeat_ms", 1_000);
        });
        let since = run.round(r(0));
        let id = submit(&mut run);
        wait_for(&mut run.world, &[id], secs(4));
        let round = carried(&mut run, since);
        let took = run.world.now().since(run.proposed(round).unwrap().at);
        let f = run.world.settings().f as u64;
        // And the reply.
        assert!(took <= (f + 2) * NEAR_NS + ms(1), "n = {n}: {took}");
    }
}
