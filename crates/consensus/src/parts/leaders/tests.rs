use super::*;
use crate::parts::chain::{bind_certificate, empty_payload};
use quorate_types::{ClusterId, Epoch, Member, ProtocolId, PublicKey};
use std::collections::BTreeSet;

const POLICIES: [LeaderPolicy; 4] =
    [LeaderPolicy::RoundRobin, LeaderPolicy::Terms, LeaderPolicy::Stable, LeaderPolicy::Avoiding];
const LINKS: usize = 3;

fn committee(n: u8) -> Committee {
    let member = |id| Member { sign: PublicKey([id; 32]), link: PublicKey([id; 32]) };
    Committee {
        cluster: ClusterId::ZERO,
        protocol: ProtocolId::new("test"),
        epoch: Epoch(0),
        f: usize::from(n - 1) / 3,
        members: (0..n).map(member).collect(),
    }
}

fn leaders(policy: LeaderPolicy, committee: &Committee) -> Leaders {
    Leaders::new(policy, 8, LINKS, Vec::new(), committee).unwrap().remembering(128).unwrap()
}

/// Random numbers of a seed; a view is lost by chance once in so many.
struct Dice(u64, Option<u64>);

impl Dice {
    fn chance(&mut self) -> bool {
        self.1.is_some_and(|of| self.below(of) == 0)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

/// A chain whose blocks have the leaders of the policy.
struct Grown {
    tree: BlockTree,
    tips: Vec<Tip>,
}

/// Grows a chain of `blocks` blocks. Replicas in `silent` lose their views, and some more views are lost by chance.
fn grow(policy: LeaderPolicy, committee: &Committee, blocks: u64, silent: &[u16], dice: &mut Dice) -> Grown {
    let (mut tree, mut tips) = (BlockTree::default(), vec![Tip::GENESIS]);
    let mut judge = leaders(policy, committee);
    let mut view = FIRST_VIEW;
    while (tips.len() as u64) <= blocks {
        let below = *tips.last().unwrap();
        let leader = judge.leader(committee, &tree, view, below.id).unwrap();
        if silent.contains(&leader.0) || dice.chance() {
            // The votes for the block before were for this leader.
            if below.view.next() == view && below.height > Height::ZERO {
                tips.pop();
            }
            view = judge.after(view);
            continue;
        }
        let block = Block {
            parent: below.id,
            height: below.height.next(),
            view,
            proposer: leader,
            time_ns: 0,
            payload: empty_payload(),
            extra: bind_certificate(below.view, below.id),
        };
        let id = block.id();
        tips.push(Tip::of(&block, id));
        tree.insert(block);
        view = view.next();
    }
    Grown { tree, tips }
}

/// Compares the leaders of the views after a block at two replicas. Returns whether the second one knows all of them.
fn agree(
    one: &mut Leaders,
    other: &mut Leaders,
    committee: &Committee,
    tree: &BlockTree,
    tip: Tip,
    what: &str,
) -> bool {
    let mut knows = true;
    for ahead in 1..=4 * 7 * 4 * 2 {
        let view = View(tip.view.0 + ahead);
        let right = one.leader(committee, tree, view, tip.id).unwrap();
        match other.leader(committee, tree, view, tip.id) {
            Some(leader) => assert_eq!(leader, right, "{what}: view {view} after {tip:?}"),
            None => knows = false,
        }
    }
    knows
}

/// The same certificate gives the same answer at three replicas: one that has seen all blocks, one restored from its
/// record, and one that knows nothing below a checkpoint. The last one may have no answer, but has no wrong one.
#[test]
fn known_leaders_are_the_same_at_all_replicas() {
    for policy in POLICIES {
        for seed in 0..6 {
            let committee = committee([4, 7][seed as usize % 2]);
            let silent: &[u16] = [&[][..], &[1], &[2]][seed as usize % 3];
            let by_chance = (seed < 3).then_some(40);
            let mut dice = Dice(seed, by_chance);
            let Grown { tree, tips } = grow(policy, &committee, 700, silent, &mut dice);
            let mut sees_all = leaders(policy, &committee);
            let at = 40 + dice.below(60) as usize;
            let mut restored = leaders(policy, &committee);
            if let Some(history) = leaders(policy, &committee).history(&committee, &tree, tips[at].id) {
                let bytes = history.to_bytes();
                restored.restore(LeaderHistory::from_bytes(&bytes).unwrap(), &committee);
            }
            // The tree of the third replica begins at the checkpoint.
            let (mut cut, mut knows_nothing) = (BlockTree::default(), leaders(policy, &committee));
            knows_nothing.known.clear();
            cut.set_root(tips[at].id);
            for tip in &tips[at + 1..] {
                cut.insert((**tree.get(tip.id).unwrap()).clone());
            }
            knows_nothing.begin(&committee, &cut, tips[at]);
            let what = format!("{policy:?} seed {seed}");
            let mut last = false;
            for tip in &tips[at..] {
                assert!(agree(&mut sees_all, &mut restored, &committee, &tree, *tip, &what), "{what}");
                last = agree(&mut sees_all, &mut knows_nothing, &committee, &cut, *tip, &what);
            }
            assert!(last, "{what}: in the end the third replica knows the leaders");
        }
    }
}

/// Headers below a checkpoint arrive late: the replica waits for them and then gives the answers of all others. Meanwhile it
/// records the history of the block committed before.
#[test]
fn leader_is_unknown_until_late_headers_arrive() {
    for policy in [LeaderPolicy::Stable, LeaderPolicy::Avoiding] {
        let committee = committee(4);
        let Grown { tree, tips } = grow(policy, &committee, 300, &[3], &mut Dice(5, Some(40)));
        let mut late = leaders(policy, &committee);
        let mut here = BlockTree::default();
        let add = |here: &mut BlockTree, from: usize, to: usize| {
            for tip in &tips[from..to] {
                here.insert((**tree.get(tip.id).unwrap()).clone());
            }
        };
        add(&mut here, 1, 101);
        late.keep_up(&committee, &here, tips[100].id);
        let written = late.settle(&committee, &here, tips[200], tips[100]).cloned().unwrap();
        assert_eq!(written.height(), Height(100), "the last known history");
        late.keep_up(&committee, &here, tips[200].id);
        assert_eq!(late.leader(&committee, &here, View(tips[200].view.0 + 1), tips[200].id), None);
        add(&mut here, 101, 301);
        late.keep_up(&committee, &here, tips[200].id);
        here.prune(Height(200));
        let mut sees_all = leaders(policy, &committee);
        for tip in &tips[200..] {
            assert!(agree(&mut sees_all, &mut late, &committee, &tree, *tip, "late"));
        }
        assert!(late.known.values().all(|history| history.height() >= Height(200)));
        assert_eq!(
            late.settle(&committee, &here, tips[264], tips[290]).map(LeaderHistory::height),
            Some(Height(264))
        );
    }
}

/// With `avoiding`, failed replicas are skipped once their failure is committed: at most f, and for some time. After a long
/// time without a commit every replica has its turn.
#[test]
fn avoiding_skips_failed_replicas() {
    let committee = committee(7);
    let Grown { tree, tips } = grow(LeaderPolicy::Avoiding, &committee, 1_200, &[2, 5], &mut Dice(1, None));
    let lost: u64 = tips.windows(2).map(|pair| u64::from(pair[1].view != pair[0].view.next())).sum();
    assert!(lost < 1_200 / 20, "{lost} views or terms in 1,200 blocks lead to nothing");
    let proposers = |from: usize, to: usize| -> BTreeSet<u16> {
        tips[from..to].iter().map(|tip| tree.get(tip.id).unwrap().proposer.0).collect()
    };
    assert_eq!(proposers(60, 120), [0, 1, 3, 4, 6].into(), "all live replicas lead");
    let mut judge = leaders(LeaderPolicy::Avoiding, &committee);
    let tip = tips[100];
    let mut led = |from: u64, to: u64| -> BTreeSet<u16> {
        (from..to)
            .map(|ahead| judge.leader(&committee, &tree, View(tip.view.0 + ahead), tip.id).unwrap().0)
            .collect()
    };
    assert!(led(1, 4 * 4 - 3).is_disjoint(&[2, 5].into()), "f terms may fail, and one may be under way");
    assert_eq!(led(4 * 4, 4 * 4 + 28), (0..7).collect(), "without a commit all replicas have their turn");
}

/// A replica that starts from a checkpoint alone knows the leaders as soon as f failures are known, even while replicas go
/// on failing.
#[test]
fn f_known_failures_suffice_to_know_the_leader() {
    let committee = committee(4);
    let Grown { tree, tips } = grow(LeaderPolicy::Avoiding, &committee, 300, &[], &mut Dice(7, Some(9)));
    let (mut cut, mut new) = (BlockTree::default(), leaders(LeaderPolicy::Avoiding, &committee));
    new.known.clear();
    cut.set_root(tips[60].id);
    new.begin(&committee, &cut, tips[60]);
    let mut knows_from = None;
    for tip in &tips[61..] {
        cut.insert((**tree.get(tip.id).unwrap()).clone());
        let leader = new.leader(&committee, &cut, tip.view.next(), tip.id);
        assert!(knows_from.is_none() || leader.is_some(), "{tip:?}: known before, unknown now");
        knows_from = knows_from.or(leader.map(|_| tip.height));
    }
    assert!(knows_from.is_some_and(|height| height < Height(100)), "{knows_from:?}");
}

/// T7: among any 3f + 1 replicas with f silent, round-robin has three honest leaders in a row. One term is long enough for a
/// commit.
#[test]
fn round_robin_has_three_honest_leaders_in_a_row() {
    for f in 1..=3u32 {
        let n = 3 * f + 1;
        let silent_sets = (0u32..1 << n).filter(|set| set.count_ones() == f);
        for set in silent_sets {
            let honest = |view: u32| set >> (view % n) & 1 == 0;
            assert!((0..n).any(|view| honest(view) && honest(view + 1) && honest(view + 2)), "{n} {set:b}");
        }
    }
    assert!(AVOIDING_TERM > LINKS as u64, "proposers of all links, and one that shows the last certificate");
}

/// Parameters out of range are refused.
#[test]
fn parameters_out_of_range_are_refused() {
    let committee = committee(4);
    let open =
        |term, set: &[u16]| Leaders::new(LeaderPolicy::Terms, term, LINKS, set.to_vec(), &committee).is_ok();
    assert!(open(1, &[]) && open(TERM_MAX, &[3]));
    assert!(!open(0, &[]) && !open(TERM_MAX + 1, &[]) && !open(1, &[4]));
}

/// A replica that catches up asks about each new block, above the same missing headers.
#[test]
fn missing_headers_are_looked_up_once_and_found_when_they_arrive() {
    let committee = committee(4);
    let grown = grow(LeaderPolicy::Stable, &committee, 300, &[1], &mut Dice(7, Some(9)));
    let block = |at: usize| Block::clone(grown.tree.get(grown.tips[at].id).unwrap());
    let mut tree = BlockTree::default();
    let mut late = leaders(LeaderPolicy::Stable, &committee);
    for at in (1..100).chain(102..200) {
        tree.insert(block(at));
    }
    for at in 201..300 {
        tree.insert(block(at));
        let id = grown.tips[at].id;
        let (gap, steps) = late.gap(&tree, id);
        assert_eq!(gap, Some(grown.tips[200].id));
        assert!(steps < 3, "{steps} blocks above the gap were looked up again");
        assert!(late.learn(&committee, &tree, id).is_none());
    }
    let top = grown.tips[299].id;
    tree.insert(block(200));
    assert!(late.learn(&committee, &tree, top).is_none());
    assert_eq!(late.gap(&tree, top), (Some(grown.tips[101].id), 1), "the lower gap is next");
    tree.insert(block(101));
    tree.insert(block(100));
    assert!(late.learn(&committee, &tree, grown.tips[250].id).is_some());
    assert!(late.learn(&committee, &tree, top).is_some());
    let mut judge = leaders(LeaderPolicy::Stable, &committee);
    judge.learn(&committee, &grown.tree, top).unwrap();
    assert_eq!(late.known.get(&top), judge.known.get(&top));
}

/// Among seven, f = 2: of three replicas that have failed, the last two are left out, for f + 2 turns of four views without a
/// commit.
#[test]
fn f_replicas_are_left_out_for_f_plus_2_turns() {
    let committee = committee(7);
    let leaders = leaders(LeaderPolicy::Avoiding, &committee);
    let leader = |view, failures: [u64; 7]| {
        let mut history = LeaderHistory::genesis(7);
        history.committed = (Tip { height: Height(40), ..Tip::GENESIS }, failures.map(Height).into());
        leaders.by_history(&committee, View(view), &history).unwrap().0
    };
    let by_turn = [0, 4, 8].map(|view| leader(view, [10, 20, 30, 0, 0, 0, 0]));
    assert_eq!(by_turn[0], 0, "the oldest failure");
    assert!(by_turn[1..].iter().all(|id| ![1, 2].contains(id)), "{by_turn:?}");
    // The turn of replica 4 begins in view 16, the last one of this rule.
    assert_ne!(leader(16, [0, 0, 0, 0, 10, 0, 0]), 4);
    assert_eq!(leader(17, [0, 0, 0, 0, 10, 0, 0]), 4);
}
