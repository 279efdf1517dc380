use crate::pbft::select::{Selected, Sizes, select};
use crate::pbft::{AllSigned, BlockClaim, Linked, Variant, ViewChange};
use quorate_consensus::CheckpointProof;
use quorate_types::digest::context;
use quorate_types::rng::Rng;
use quorate_types::{BlockId, Digest, Height, View};
use std::collections::{BTreeMap, BTreeSet};

pub(super) const OF_FOUR: Sizes = Sizes { quorum: 3, weak: 2, window: 16 };

pub(super) fn id(number: u64) -> BlockId {
    BlockId(Digest::of(&context::BLOCK, &number.to_le_bytes()))
}

/// Returns a view change; entries are (height, block, view).
pub(super) fn change(view: u64, p: &[(u64, BlockId, u64)], q: &[(u64, BlockId, u64)]) -> ViewChange {
    let entries = |list: &[(u64, BlockId, u64)]| {
        let mut entries: Vec<BlockClaim> = list
            .iter()
            .map(|(height, block, view)| BlockClaim {
                height: Height(*height),
                block: *block,
                view: View(*view),
            })
            .collect();
        entries.sort_by_key(|entry| (entry.height, entry.block));
        entries
    };
    ViewChange {
        view: View(view),
        proof: CheckpointProof::genesis(),
        prepared: entries(p),
        pre_prepared: entries(q),
        certified: Vec::new(),
    }
}

pub(super) fn at_height(mut change: ViewChange, stable: u64) -> ViewChange {
    change.proof.checkpoint.height = Height(stable);
    change
}

fn picks(set: &[ViewChange]) -> Option<Vec<(u64, BlockId)>> {
    let selected = select(&set.iter().collect::<Vec<_>>(), OF_FOUR, Linked::pick)?;
    Some(selected.picks.into_iter().map(|(height, block)| (height.0, block)).collect())
}

/// Returns view changes: one replica has prepared this block at height 1, and others have accepted it.
fn prepared(block: u64, view: u64) -> ViewChange {
    change(5, &[(1, id(block), view)], &[(1, id(block), view)])
}

fn accepted(block: u64, view: u64) -> ViewChange {
    change(5, &[], &[(1, id(block), view)])
}

fn empty() -> ViewChange {
    change(5, &[], &[])
}

#[test]
fn v5_a_quorum_is_needed() {
    assert_eq!(picks(&[empty(), empty()]), None);
    assert_eq!(picks(&[empty(), empty(), empty()]), Some(vec![]));
}

#[test]
fn v5_a_prepared_block_is_taken_over() {
    // Scenario 5: a replica outside of the quorum has decided the block; one of the quorum has prepared it.
    assert_eq!(picks(&[prepared(1, 0), accepted(1, 0), empty()]), Some(vec![(1, id(1))]));
    // Scenario 7: the highest view wins, in any order.
    let mut set = vec![prepared(1, 1), prepared(3, 3), accepted(3, 3)];
    assert_eq!(picks(&set), Some(vec![(1, id(3))]));
    set.reverse();
    assert_eq!(picks(&set), Some(vec![(1, id(3))]));
}

#[test]
fn v5_the_highest_view_comes_first() {
    // Both blocks pass A1 and A2: block 1 of view 1, and block 3 of view 3.
    let (one, three) = ((1, id(1), 1), (1, id(3), 3));
    let set = [
        change(5, &[one], &[one, three]),
        change(5, &[three], &[three]),
        change(5, &[], &[one]),
        change(5, &[], &[]),
    ];
    assert_eq!(picks(&set), Some(vec![(1, id(3))]));
}

#[test]
fn v5_invented_claim_is_never_selected() {
    // Scenario 6. One liar, in P and in Q: A2 fails for its block. For the prepared block A1 fails until the fourth view
    // change arrives.
    let liar = change(5, &[(1, id(9), 4)], &[(1, id(9), 4)]);
    assert_eq!(picks(&[liar.clone(), prepared(1, 0), accepted(1, 0)]), None);
    assert_eq!(picks(&[liar.clone(), prepared(1, 0), accepted(1, 0), empty()]), Some(vec![(1, id(1))]));
    // The others have prepared no block: B fails until the fourth view change arrives.
    assert_eq!(picks(&[liar.clone(), empty(), empty()]), None);
    assert_eq!(picks(&[liar, empty(), empty(), empty()]), Some(vec![]));
}

#[test]
fn v5_the_view_of_an_acceptance_counts() {
    // f + 1 replicas have accepted the block, but one of them in an older view than that of the claim.
    assert_eq!(picks(&[prepared(1, 3), accepted(1, 2), empty()]), None);
    assert_eq!(picks(&[prepared(1, 3), accepted(1, 4), empty()]), Some(vec![(1, id(1))]));
}

#[test]
fn v5_gaps_are_null_and_nothing_follows_the_last() {
    let both = change(5, &[(2, id(2), 0), (4, id(4), 0)], &[(2, id(2), 0), (4, id(4), 0), (6, id(6), 0)]);
    let null = |height| (height, BlockId::null(Height(height)));
    let expected = vec![null(1), (2, id(2)), null(3), (4, id(4))];
    assert_eq!(picks(&[both.clone(), both.clone(), both]), Some(expected));
}

/// A null block that an earlier view took over may be prepared and decided like any other, so it is taken over, also at the
/// end. Omitted, it would leave its height to the next leader, who could get another block decided.
#[test]
fn v5_a_null_block_that_was_prepared_is_taken_over() {
    let null = BlockId::null(Height(2));
    let entries = [(1, id(1), 2), (2, null, 2)];
    let holds = change(5, &entries, &entries);
    let expected = vec![(1, id(1)), (2, null)];
    assert_eq!(picks(&[holds.clone(), holds.clone(), empty()]), Some(expected.clone()));
    // The choice by certificate takes it over as well.
    let set = [holds.clone(), empty(), empty()];
    let selected = select(&set.iter().collect::<Vec<_>>(), OF_FOUR, AllSigned::pick).unwrap();
    let selected: Vec<_> = selected.picks.into_iter().map(|(height, block)| (height.0, block)).collect();
    assert_eq!(selected, expected);
}

#[test]
fn v5_stable_heights_are_settled() {
    let old = change(5, &[(8, id(8), 0), (9, id(9), 0)], &[(8, id(8), 0), (9, id(9), 0)]);
    let set = [at_height(empty(), 8), old.clone(), old];
    let selected = select(&set.iter().collect::<Vec<_>>(), OF_FOUR, Linked::pick);
    assert_eq!(selected, Some(Selected { min: Height(8), picks: vec![(Height(9), id(9))] }));
}

/// Knowledge of an honest replica about one height, over many views, with f liars.
#[derive(Clone, Default)]
struct Honest {
    p: Option<(BlockId, u64)>,
    q: BTreeMap<BlockId, u64>,
}

impl Honest {
    fn says(&self, view: u64) -> ViewChange {
        let p: Vec<_> = self.p.iter().map(|(block, view)| (1, *block, *view)).collect();
        let q: Vec<_> = self.q.iter().map(|(block, view)| (1, *block, *view)).collect();
        change(view, &p, &q)
    }
}

struct History {
    rng: Rng,
    n: usize,
    f: usize,
    honest: Vec<Honest>,
    decided: BTreeSet<BlockId>,
}

impl History {
    fn sizes(&self) -> Sizes {
        Sizes { quorum: (self.n + self.f + 2) / 2, weak: self.f + 1, window: 16 }
    }

    fn liar(&mut self, view: u64) -> ViewChange {
        let entry = |rng: &mut Rng| (1, id(rng.below(4)), rng.below(view));
        let p: Vec<_> = if self.rng.chance(700_000) { vec![entry(&mut self.rng)] } else { vec![] };
        let mut q = BTreeMap::new();
        for _ in 0..self.rng.below(4) {
            let (_, block, view) = entry(&mut self.rng);
            q.insert(block, view);
        }
        let q: Vec<_> = q.into_iter().map(|(block, view)| (1, block, view)).collect();
        change(view, &p, &q)
    }

    /// Returns the NEW-VIEW of a malicious leader: of many random sets, one that selects another block than the decided one, if
    /// there is any. `None` when the set is too small.
    fn new_view(&mut self, said: &[ViewChange], view: u64, evil: bool) -> Option<Option<BlockId>> {
        let sizes = self.sizes();
        let mut last = None;
        for _ in 0..if evil { 8 } else { 1 } {
            let mut set = said.to_vec();
            self.rng.shuffle(&mut set);
            let liars = self.rng.index(self.f + 1);
            let least = sizes.quorum - liars;
            let honest = least + self.rng.index(set.len() - least + 1);
            set.truncate(honest);
            for _ in 0..liars {
                let liar = self.liar(view);
                set.push(liar);
            }
            let Some(selected) = select(&set.iter().collect::<Vec<_>>(), sizes, Linked::pick) else {
                continue;
            };
            let picked = selected.picks.first().map(|(_, block)| *block);
            if picked.is_none_or(|block| !self.decided.contains(&block)) || last.is_none() {
                last = Some(picked);
            }
        }
        last
    }

    fn view(&mut self, view: u64) {
        let quorum = self.sizes().quorum;
        let evil = self.rng.chance(500_000);
        let said: Vec<ViewChange> = self.honest.iter().map(|honest| honest.says(view)).collect();
        let common = if view == 0 { Some(None) } else { self.new_view(&said, view, evil) };
        // Receivers of each block in this view. A view may also begin at some replicas only.
        let mut told: BTreeMap<BlockId, Vec<usize>> = BTreeMap::new();
        for who in 0..self.honest.len() {
            if self.rng.chance(200_000) {
                continue;
            }
            let begun = if view == 0 {
                Some(None)
            } else if evil {
                self.new_view(&said, view, true)
            } else {
                common
            };
            let block = match begun {
                None => continue,
                Some(Some(block)) => block,
                // The height is free: an honest leader proposes one block, a faulty one any blocks.
                Some(None) if evil => id(self.rng.below(4)),
                Some(None) => id(view % 4),
            };
            self.honest[who].q.insert(block, view);
            told.entry(block).or_default().push(who);
        }
        for (block, whom) in told {
            // Liars prepare and commit everything.
            if whom.len() + self.f < quorum {
                continue;
            }
            let prepare: Vec<usize> =
                whom.into_iter().filter(|_| self.rng.chance(if evil { 600_000 } else { 850_000 })).collect();
            for who in &prepare {
                self.honest[*who].p = Some((block, view));
            }
            if prepare.len() + self.f >= quorum {
                self.decided.insert(block);
            }
        }
    }
}

#[test]
fn v5_random_histories_of_one_height_stay_safe_and_never_stick() {
    for (n, f, runs) in [(4, 1, 4_000), (7, 2, 1_500)] {
        let mut decisions = 0;
        for seed in 0..runs {
            let mut history = History {
                rng: Rng::new(seed),
                n,
                f,
                honest: vec![Honest::default(); n - f],
                decided: BTreeSet::new(),
            };
            for view in 0..6 {
                if view > 0 {
                    // All honest view changes suffice, whatever all liars add.
                    let mut set: Vec<ViewChange> =
                        history.honest.iter().map(|honest| honest.says(view)).collect();
                    let honest = select(&set.iter().collect::<Vec<_>>(), history.sizes(), Linked::pick);
                    assert!(honest.is_some(), "n = {n}, seed {seed}: stuck in view {view}");
                    for _ in 0..f {
                        let liar = history.liar(view);
                        set.push(liar);
                    }
                    let all = select(&set.iter().collect::<Vec<_>>(), history.sizes(), Linked::pick);
                    assert!(all.is_some(), "n = {n}, seed {seed}: stuck in view {view} by liars");
                }
                history.view(view);
                assert!(history.decided.len() <= 1, "n = {n}, seed {seed}: two decided by view {view}");
            }
            decisions += history.decided.len();
        }
        assert!(decisions as u64 > runs / 4, "n = {n}: {decisions} decisions are too few to be a test");
    }
}
