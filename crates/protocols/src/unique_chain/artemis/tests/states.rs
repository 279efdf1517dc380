//! A5: the coordinator's state is a function of the vote chain.

use super::*;

const WEAK: usize = 3;

/// Returns the state after these votes for genesis.
fn after(votes: &[Vote]) -> ChainState {
    votes.iter().fold(ChainState::GENESIS, |state, vote| state.after(vote, Height(0), WEAK))
}

#[test]
fn a5_flags_of_f_plus_1_distinct_voters_change_the_view() {
    let votes = again(1, genesis(), BlockId::ZERO, &VoteKind::NoProgress, 4);
    assert_eq!((after(&votes[..2]).view, after(&votes[..2]).flags.len()), (View(1), 2));
    let opened = after(&votes[..3]);
    assert_eq!((opened.view, opened.anchor, opened.flags.len()), (View(2), votes[2].place(), 0));
    let later = after(&votes);
    assert_eq!((later.view, later.anchor, later.flags.len()), (View(2), votes[2].place(), 1));
}

/// Script `double-flag`: f liars that flag in each of their turns replace nobody.
#[test]
fn a5_flags_count_once_for_each_voter() {
    let turns: Vec<Vote> =
        [1, 2, 6, 7, 11, 12].map(|round| vote(round, genesis(), BlockId::ZERO, VoteKind::NoProgress)).into();
    assert_eq!((after(&turns).view, after(&turns).flags.len()), (View(1), 2));
    // The same with a replica.
    let mut bench = Bench::new();
    let mut on = genesis();
    for round in [1, 6, 11, 16] {
        let next = vote(round, on, BlockId::ZERO, VoteKind::NoProgress);
        bench.cast(&next);
        assert_eq!((bench.state(&next).view, bench.state(&next).flags.len()), (View(1), 1));
        on = next.place();
    }
}

#[test]
fn a5_evidence_changes_the_view_at_once() {
    let (one, other) = (cblock(FIRST, ROOT, 1), cblock(FIRST, ROOT, 2));
    let shown = vote(1, genesis(), BlockId::ZERO, evidence(&one, &other));
    let state = after(std::slice::from_ref(&shown));
    assert_eq!((state.view, state.anchor), (View(2), shown.place()));
}

#[test]
fn a5_other_votes_move_the_head_alone() {
    let block = cblock(FIRST, ROOT, 1);
    let flagged = vote(1, genesis(), BlockId::ZERO, VoteKind::NoProgress);
    let state =
        after(std::slice::from_ref(&flagged)).after(&data(2, flagged.place(), &block), Height(1), WEAK);
    assert_eq!((state.head, state.height, state.view), (id(&block), Height(1), View(1)));
    assert_eq!((state.anchor, state.flags.len()), (genesis(), 1), "a flag stays");
}

/// Scenario 11: voters next to the anchor equivocate. Each branch has its own instance of the view, and one later vote decides.
#[test]
fn a5_branches_have_their_own_instances() {
    let (one, other) = (cblock(FIRST, ROOT, 1), cblock(FIRST, ROOT, 2));
    let opens = vote(1, genesis(), BlockId::ZERO, evidence(&one, &other));
    let opens_too = vote(1, genesis(), BlockId::ZERO, evidence(&other, &one));
    let mut bench = Bench::new();
    bench.cast(&opens);
    // The alternate vote counts where a later one extends it.
    let next = vote_in(2, 2, opens_too.place(), BlockId::ZERO, VoteKind::Endorse);
    bench.cast(&next);
    assert!(!bench.is_accepted(&next));
    bench.take(1, UniqueMessage::Entries { entries: vec![frame(&opens_too)] });
    assert!(bench.is_accepted(&opens_too) && bench.is_accepted(&next));
    let instances = &bench.replica.protocol().state.blocks.instances;
    assert!(instances.contains_key(&opens.id()) && instances.contains_key(&opens_too.id()));
    assert_eq!(bench.state(&next).anchor, opens_too.place());
}
