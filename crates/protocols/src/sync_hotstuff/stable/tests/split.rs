//! S4 without conflicting statements, and checks that a header is signed by its leader.

use super::*;
use crate::sync_hotstuff::Split;
use quorate_consensus::Claims;
use quorate_types::Wire;

both! {
    s4_two_branches_far_apart_end_the_view;
    s4_header_at_or_below_its_base_is_a_conflict;
    s4_only_headers_of_the_leader_end_a_view;
    s4_split_is_proved_at_every_voted_height;
    s4_header_with_a_false_height_proves_nothing;
    split_is_proved_by_the_blocks_between;
    more_replicas_allow_shorter_proofs;
}

/// After a power cut, two branches of one view may be known only by the last votes of two replicas. They are so far apart
/// that no two statements conflict. A replica on the higher branch must not commit it, and the others must learn of the
/// split.
fn s4_two_branches_far_apart_end_the_view<V: Variant>() {
    let (blocks, other) = (chain(N, 1, GENESIS, &[1, 2, 3, 4]), header(N, 1, GENESIS.1, GENESIS, 9));
    let opened = |heard: &[&Header]| {
        let mut bench = Bench::<V>::opened(ME, N);
        blocks[..2].iter().for_each(|block| bench.replica.fetched(block.block.clone()));
        heard.iter().for_each(|header| _ = bench.deliver(2, voted(header)));
        bench.take(4, SyncMessage::Certified(certified(N, &blocks[1])));
        bench.run();
        bench
    };
    let split = |high: &Header, between: &[&Header]| {
        let between = between.iter().map(|header| header.block.clone()).collect();
        QuitEvidence::Split(Box::new(Split { low: signed(&other), high: signed(high), between }))
    };
    let mut bench = opened(&[&blocks[2]]);
    assert_eq!(bench.votes(), [id(&blocks[2])]);
    let contradicted = Err(Reject::NotNow("its leader has equivocated"));
    assert_eq!(bench.deliver(2, voted(&other)), contradicted);
    let evidence = evidence_in(&bench.said());
    assert_eq!(evidence, [split(&blocks[2], &[&blocks[1]])]);
    [0, 4].into_iter().for_each(|from| _ = bench.deliver(from, voted(&blocks[2])));
    assert!(bench.is_quiet());
    bench.pass(delta(3));
    assert_eq!(bench.committed(), []);
    // Every replica that receives the proof leaves the view, also without those blocks.
    let evidence = SyncMessage::Evidence(evidence[0].clone());
    assert_eq!(claims_hold::<V>(&evidence), Ok(()));
    let mut peer = Bench::<V>::running(4, N);
    peer.take(2, evidence);
    assert!(peer.is_quiet());
    // Also if the other header arrived first.
    let mut bench = opened(&[&other, &blocks[2]]);
    assert_eq!(evidence_in(&bench.said()), [split(&blocks[2], &[&blocks[1]])]);
    assert_eq!((bench.votes(), bench.is_quiet()), (vec![], true));
    // Also if the blocks between arrive last.
    let mut bench = Bench::<V>::new();
    bench.take(2, voted(&other));
    bench.take(2, voted(&blocks[2]));
    assert!(!bench.is_quiet());
    blocks[..2].iter().for_each(|block| bench.replica.fetched(block.block.clone()));
    assert_eq!(evidence_in(&bench.said()), [split(&blocks[2], &[&blocks[1]])]);
    // The proof starts at the next known header.
    let mut bench = opened(&[&blocks[1], &blocks[2]]);
    assert_eq!(bench.votes(), [id(&blocks[1]), id(&blocks[2])]);
    assert_eq!(bench.deliver(2, voted(&other)), contradicted);
    let said = bench.said();
    let conflict = |it: &QuitEvidence| matches!(it, QuitEvidence::Conflict(_));
    assert!(evidence_in(&said).iter().any(conflict), "two adjacent statements are enough: {said:?}");
}

/// Otherwise it would conflict with nothing, and keep its only receiver from voting.
fn s4_header_at_or_below_its_base_is_a_conflict<V: Variant>() {
    let blocks = chain(N, 1, GENESIS, &[1, 2, 3]);
    let (base, tip) = (end(&blocks[2]), certified(N, &blocks[2]));
    let below = |height: u64, parent: BlockId| header(N, 2, base.1, (Height(height - 1), parent), 7);
    let beside = |height| BlockId::null(Height(height));
    for wrong in [below(1, BlockId::ZERO), below(3, id(&blocks[1])), below(4, beside(3))] {
        for (is_first, is_second) in [(false, false), (true, false), (true, true)] {
            let mut bench = Bench::<V>::new();
            bench.grow(&blocks);
            bench.next_view();
            bench.clear();
            if is_second {
                // Its ancestry is unknown.
                bench.take(4, voted(&header(N, 2, base.1, (Height(9), beside(9)), 7)));
            }
            let header = (4, voted(&wrong));
            let statement = (1, new_view(2, &lock(tip.clone())));
            let (first, second) = if is_first { (header, statement) } else { (statement, header) };
            bench.take(first.0, first.1);
            assert!(bench.deliver(second.0, second.1).is_err(), "{wrong:?}");
            assert!(bench.is_quiet(), "{wrong:?}");
            let [evidence] = &evidence_in(&bench.said())[..] else { panic!("one proof") };
            assert_eq!(claims_hold::<V>(&SyncMessage::Evidence(evidence.clone())), Ok(()));
        }
    }
    // A header above the base does not conflict.
    let mut bench = Bench::<V>::new();
    bench.grow(&blocks);
    bench.next_view();
    let above = chain(N, 2, base, &[1, 2]);
    bench.take(4, voted(&above[1]));
    bench.take(1, new_view(2, &lock(tip)));
    bench.take(4, voted(&above[0]));
    assert!(!bench.is_quiet());
}

/// Any replica can sign a PROPOSE of any view, but only the leader's counts. A replica that accepted another one would leave
/// the view alone, with a proof that nobody accepts.
fn s4_only_headers_of_the_leader_end_a_view<V: Variant>() {
    let blocks = chain(N, 1, GENESIS, &[1]);
    for height in [3, 999, 1 << 40] {
        let mut lie = header(N, 2, BlockId::null(Height(5)), (Height(height), BlockId::ZERO), 1);
        for proposer in [1, 4] {
            let mut bench = Bench::<V>::new();
            bench.grow(&blocks);
            lie.block.proposer = r(proposer);
            let below = (Height(height), BlockId::null(Height(height)));
            let parent = certificate(2, below, weak(N));
            lie.block.parent = parent.block();
            let proposal = SyncMessage::Propose { header: lie.clone(), parent };
            assert_eq!(bench.deliver(4, proposal.clone()), Err(Reject::WrongSender));
            bench.next_view();
            bench.clear();
            assert_eq!(bench.deliver(4, proposal), Err(Reject::WrongSender));
            bench.take(1, new_view(2, &lock(certified(N, &blocks[0]))));
            assert_eq!((bench.first_votes(), bench.is_quiet()), (vec![id(&blocks[0])], false));
        }
    }
}

/// The height of a header is not bound to that of its parent. A replica that took this for a split would leave the view alone,
/// because nobody else would accept that proof.
fn s4_header_with_a_false_height_proves_nothing<V: Variant>() {
    let blocks = chain(N, 1, GENESIS, &[1, 2, 3]);
    for (height, parent) in [(3, &blocks[0]), (4, &blocks[0]), (9, &blocks[1])] {
        let mut bench = Bench::<V>::new();
        bench.grow(&blocks[..2]);
        bench.clear();
        let high = header(N, 1, GENESIS.1, (Height(height - 1), id(parent)), 9);
        let _ = bench.deliver(4, voted(&high));
        for evidence in evidence_in(&bench.said()) {
            assert_eq!(claims_hold::<V>(&SyncMessage::Evidence(evidence)), Ok(()));
        }
        // It conflicts with adjacent headers nevertheless.
        bench.pass(1);
        if !bench.is_quiet() {
            let next = header(N, 1, GENESIS.1, (Height(height - 1), BlockId::null(Height(height - 1))), 7);
            assert_eq!(bench.deliver(2, voted(&next)), Err(Reject::NotNow("its leader has equivocated")));
        }
        assert!(bench.is_quiet());
    }
}

/// For every window, so that every proof fits into a message.
fn s4_split_is_proved_at_every_voted_height<V: Variant>() {
    let setup = Setup { window: 4_096, ..Setup::of::<SyncHotStuff<V>>(usize::from(N)) };
    let replica = Harness::open(r(ME), setup, &SynchronyParams::default()).unwrap();
    let mut bench = Bench::<V> { replica, n: N };
    bench.run();
    let (blocks, other) =
        (chain(N, 1, GENESIS, &(1..=1_000).collect::<Vec<u64>>()), header(N, 1, GENESIS.1, GENESIS, 9_999));
    blocks.iter().for_each(|block| bench.replica.fetched(block.block.clone()));
    bench.clear();
    bench.take(4, SyncMessage::Certified(certified(N, &blocks[998])));
    for (vote, voter) in [(999, 4), (767, 4), (998, 2)] {
        bench.take(voter, voted(&blocks[vote]));
    }
    assert_eq!(bench.votes(), [id(&blocks[767])], "no higher");
    assert!(bench.deliver(2, voted(&other)).is_err());
    let [evidence] = &evidence_in(&bench.said())[..] else { panic!("one proof") };
    let message = SyncMessage::Evidence(evidence.clone());
    let mut bytes = Vec::new();
    message.encode(&mut bytes);
    assert_eq!(SyncMessage::from_bytes(&bytes), Ok(message.clone()));
    assert_eq!(claims_hold::<V>(&message), Ok(()));
}

/// Each replica hands the proof on to all, and it arrives in time.
fn more_replicas_allow_shorter_proofs<V: Variant>() {
    let n = 65;
    let blocks = chain(n, 1, GENESIS, &(1..=200).collect::<Vec<u64>>());
    let other = header(n, 1, GENESIS.1, GENESIS, 999);
    let committee = Setup::of::<SyncHotStuff<V>>(usize::from(n)).committee::<SyncHotStuff<V>>();
    let holds = |high: usize| {
        let between = blocks[1..high].iter().rev().map(|header| header.block.clone()).collect();
        let split = Split { low: signed(&other), high: signed(&blocks[high]), between };
        assert!(split.holds());
        let mut claims = Claims::new(&committee, usize::from(weak(n)));
        SyncMessage::Evidence(QuitEvidence::Split(Box::new(split))).claims(&mut claims);
        claims.finish().is_ok()
    };
    assert_eq!([2, 190, 191].map(holds), [true, true, false]);
}

fn split_is_proved_by_the_blocks_between<V: Variant>() {
    let (blocks, other) = (chain(N, 1, GENESIS, &[1, 2, 3, 4]), header(N, 1, GENESIS.1, GENESIS, 9));
    let between = vec![blocks[2].block.clone(), blocks[1].block.clone()];
    let good = Split { low: signed(&other), high: signed(&blocks[3]), between };
    let holds = |split: &Split| {
        claims_hold::<V>(&SyncMessage::Evidence(QuitEvidence::Split(Box::new(split.clone()))))
    };
    assert_eq!(holds(&good), Ok(()));
    type Change<'a> = Box<dyn Fn(&mut Split) + 'a>;
    let wrong: [(&str, Change); 9] = [
        ("it lies on the chain", Box::new(|it| it.low = signed(&blocks[0]))),
        ("one is missing", Box::new(|it| _ = it.between.pop())),
        ("the first is missing", Box::new(|it| _ = it.between.remove(0))),
        ("one too many", Box::new(|it| it.between.push(blocks[0].block.clone()))),
        ("made up", Box::new(|it| it.between[1].time_ns += 1)),
        ("in another order", Box::new(|it| it.between.reverse())),
        ("upside down", Box::new(|it| std::mem::swap(&mut it.low, &mut it.high))),
        ("of another view", Box::new(|it| it.low = signed(&header(N, 6, GENESIS.1, GENESIS, 9)))),
        ("of somebody else", Box::new(|it| it.low.by = r(1))),
    ];
    for (what, change) in wrong {
        let mut split = good.clone();
        change(&mut split);
        assert!(holds(&split).is_err(), "{what}");
    }
}
