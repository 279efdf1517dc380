//! A18: state after a crash.

use super::*;

/// The voter repeats its own vote and signs no other one in its round.
#[test]
fn a18_no_second_vote_in_a_round_after_a_restart() {
    let blocks = stream(FIRST, ROOT, 2);
    for kept in 0..=4 {
        let mut bench = Bench::voter(&[], &blocks[..1]);
        bench.replica.sync();
        bench.skip_to(5, None);
        bench.replica.crash_after(kept).unwrap();
        bench.replica.advance(2 * silence());
        bench.emit(&blocks[0]);
        let _ = bench.deliver(0, sends(&blocks[1]));
        bench.run();
        bench.skip_to_round(5);
        bench.pass(silence());
        let said: Vec<Vote> = bench.votes().into_iter().filter(|vote| vote.round == View(5)).collect();
        let first = said.first().cloned().unwrap();
        assert!(said.iter().all(|vote| *vote == first), "kept {kept}: {said:?}");
    }
}

impl Bench {
    /// Skips the rounds up to one on genesis, unless the replica is past it.
    fn skip_to_round(&mut self, round: u64) {
        if self.round() < round {
            self.skip_to(round, None);
        }
    }
}

/// §4: the vote path, its blocks and their signatures are durable with the next own vote, so a replica can show them after a
/// cold start.
#[test]
fn a18_accepted_votes_and_their_blocks_survive_with_the_own_vote() {
    let blocks = stream(FIRST, ROOT, 2);
    let first = data(1, genesis(), &blocks[0]);
    let second = data(2, first.place(), &blocks[1]);
    let mut bench = Bench::voter(&[first.clone(), second.clone()], &blocks);
    bench.skip_to(5, Some(&second));
    let own = bench.votes().pop().unwrap();
    bench.replica.crash().unwrap();
    assert_eq!((own.parent, bench.replica.protocol().entries.tip()), (second.place(), second.place()));
    assert!(bench.is_accepted(&first) && bench.is_accepted(&second));
    assert_eq!(bench.state(&second).head, id(&blocks[1]));
    bench.take(2, UniqueMessage::Own(ArtemisMessage::WantBlocks { id: id(&blocks[1]), above: Height(0) }));
    bench.take(2, UniqueMessage::Want { id: second.id(), above: View(0) });
    let said = bench.said();
    assert!(said.contains(&(To::One(r(2)), hands_on(&blocks))), "{said:?}");
    let path = vec![frame(&first), frame(&second)];
    assert!(said.contains(&(To::One(r(2)), UniqueMessage::Entries { entries: path })), "{said:?}");
}

/// A peer may be behind by a few rounds after a power cut of all, and this replica the only honest one that has their blocks.
#[test]
fn a18_blocks_below_the_committed_vote_are_served_after_a_restart() {
    let blocks = stream(FIRST, ROOT, 9);
    let mut votes: Vec<Vote> = Vec::new();
    for (round, block) in (1..).zip(&blocks) {
        votes.push(data(round, votes.last().map_or_else(genesis, Vote::place), block));
    }
    let mut bench = Bench::new();
    blocks[..5].iter().for_each(|block| bench.emit(block));
    bench.grow(&votes[..4]);
    bench.replica.sync();
    let committed = bench.replica.protocol().entries.base().round;
    assert!(committed > View(1), "there are blocks below the committed one");
    bench.replica.crash().unwrap();
    bench.replica.sync();
    blocks[4..].iter().for_each(|block| bench.emit(block));
    assert!(bench.is_accepted(&votes[4]), "the own vote");
    bench.grow(&votes[5..]);
    assert!(bench.replica.protocol().entries.base().round > committed, "another vote is committed");
    bench.take(2, UniqueMessage::Own(ArtemisMessage::WantBlocks { id: id(&blocks[8]), above: Height(0) }));
    let said = bench.said();
    assert!(said.contains(&(To::One(r(2)), hands_on(&blocks))), "{said:?}");
}

/// The state is a function of the whole chain, whose older votes are dropped.
#[test]
fn a18_state_after_the_committed_vote_survives() {
    let opens = again(1, genesis(), BlockId::ZERO, &VoteKind::NoProgress, 3);
    let second = In { view: 2, anchor: opens[2].id() };
    let blocks = stream(second, ROOT, 1);
    let mut votes = vec![vote_in(2, 4, opens[2].place(), id(&blocks[0]), VoteKind::Data)];
    for round in [6, 7, 8] {
        let on = votes.last().unwrap().place();
        votes.push(vote_in(2, round, on, id(&blocks[0]), VoteKind::NoProgress));
    }
    let mut bench = Bench::new();
    bench.grow(&opens);
    bench.emit(&blocks[0]);
    bench.grow(&votes[..2]);
    let flagged = bench.state(&votes[1]);
    assert_eq!(flagged.flags.len(), 1);
    bench.grow(&votes[2..3]);
    assert_eq!(bench.committed(), [id(&blocks[0])]);
    bench.replica.sync();
    bench.replica.log_decided(Height(1), id(&blocks[0]));
    bench.replica.crash().unwrap();
    let base = bench.replica.protocol().entries.base();
    assert_eq!(base, votes[0].place());
    let state = bench.replica.protocol().state_after(base).unwrap();
    assert_eq!((state.view, state.anchor, state.head), (View(2), opens[2].place(), id(&blocks[0])));
    assert_eq!(bench.state(&votes[2]).flags.len(), 2, "votes above it are accepted again");
    assert!(bench.replica.protocol().state.blocks.instances.contains_key(&second.anchor));
    bench.run();
    bench.grow(&votes[3..]);
    assert_eq!(bench.state(&votes[3]).view, View(3));
}
