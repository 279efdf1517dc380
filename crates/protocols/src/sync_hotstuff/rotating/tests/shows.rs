//! R10 with a certificate before its header: a replica does not vote in a view that it has left, and shows the header instead.

use super::*;

fn shown(said: &[RotatingMessage]) -> Vec<BlockId> {
    let header = |message: &RotatingMessage| {
        if let RotatingMessage::Show(header) = message { Some(id(&header.body)) } else { None }
    };
    said.iter().filter_map(header).collect()
}

/// Returns a replica that has left the first view by the certificate of its block.
fn overtaken(first: &Header) -> Bench {
    let mut bench = Bench::new();
    bench.take(1, shows(first));
    bench.said();
    bench
}

fn hears(bench: &mut Bench, header: &Header) {
    let _ = bench.deliver(header.block.proposer.0, proposal(header));
}

/// With fast links one liar of three could let all certificates arrive before their headers.
#[test]
fn r10_certificate_before_its_header_delays_no_commit() {
    let blocks = chain(1, GENESIS, 2);
    let mut bench = overtaken(&blocks[0]);
    hears(&mut bench, &blocks[0]);
    assert_eq!(shown(&bench.sent()), [id(&blocks[0])], "unheld");
    hears(&mut bench, &blocks[0]);
    assert_eq!(shown(&bench.sent()), [], "once");
    bench.pass(delta(2) - 1);
    assert_eq!(bench.timer_commits(), []);
    bench.pass(1);
    assert_eq!(bench.timer_commits(), [id(&blocks[0])]);
    // The header arrived first, and its body after the certificate.
    let mut bench = Bench::new();
    bench.replica.answer(id(&blocks[0]), None);
    hears(&mut bench, &blocks[0]);
    bench.take(1, shows(&blocks[0]));
    assert_eq!(shown(&bench.said()), []);
    bench.replica.fetched(blocks[0].block.clone());
    assert_eq!(shown(&bench.sent()), [id(&blocks[0])]);
    // The header arrived several views later.
    let mut bench = Bench::new();
    blocks.iter().for_each(|block| bench.take(1, shows(block)));
    bench.said();
    blocks.iter().for_each(|block| hears(&mut bench, block));
    assert_eq!(shown(&bench.sent()), [id(&blocks[0]), id(&blocks[1])]);
    bench.pass(delta(2));
    assert_eq!(bench.timer_commits(), [id(&blocks[1])]);
}

/// Every event that ends the wait of a vote ends this wait as well, also if it came before the header.
#[test]
fn r11_header_of_a_broken_view_is_not_shown() {
    let blocks = chain(1, GENESIS, 2);
    let other = header(1, GENESIS, 9);
    let conflict = RotatingMessage::Evidence(conflict(&blocks[0], &other));
    for what in [conflict, blamed(1), shows(&other), voted(&other)] {
        let mut bench = overtaken(&blocks[0]);
        let _ = bench.deliver(3, what.clone());
        bench.said();
        hears(&mut bench, &blocks[0]);
        assert_eq!(shown(&bench.said()), [], "{what:?}");
        let mut bench = overtaken(&blocks[0]);
        hears(&mut bench, &blocks[0]);
        bench.pass(delta(2) - 1);
        let _ = bench.deliver(3, what.clone());
        bench.pass(delta(20));
        assert_eq!(bench.timer_commits(), [], "{what:?}");
    }
}

#[test]
fn r9_header_of_a_view_after_an_uncertified_one_is_not_shown() {
    let first = header(1, GENESIS, 1);
    let third = header(3, tip(&first), 3);
    let mut bench = Bench::new();
    bench.grow(std::slice::from_ref(&first));
    bench.pass(delta(2));
    bench.timer_commits();
    bench.take(1, shows(&third));
    bench.said();
    hears(&mut bench, &third);
    assert_eq!(shown(&bench.said()), []);
}

/// The wait for an own vote above commits both. If that wait ends too early, there is another one.
#[test]
fn r10_later_wait_is_enough() {
    let blocks = chain(1, GENESIS, 2);
    let mut bench = overtaken(&blocks[0]);
    bench.replica.fetched(blocks[0].block.clone());
    hears(&mut bench, &blocks[1]);
    assert_eq!(bench.votes(), [id(&blocks[1])]);
    hears(&mut bench, &blocks[0]);
    assert_eq!(shown(&bench.said()), []);
    let other = header(2, tip(&blocks[0]), 9);
    let _ = bench.deliver(3, voted(&other));
    assert_eq!(shown(&bench.said()), [id(&blocks[0])], "its leader has equivocated");
}

/// §18: statements of before the end of silence are known only from answers, and those are about their own view.
#[test]
fn r14_headers_of_views_before_the_end_of_silence_are_not_shown() {
    let blocks = chain(1, GENESIS, 2);
    let mut bench = overtaken(&blocks[0]);
    bench.replica.sync();
    bench.replica.crash().unwrap();
    bench.replica.fetched(blocks[0].block.clone());
    bench.run();
    bench.said();
    assert_eq!(bench.view(), 2);
    hears(&mut bench, &blocks[0]);
    assert_eq!(shown(&bench.said()), []);
    bench.take(1, shows(&blocks[1]));
    hears(&mut bench, &blocks[1]);
    assert_eq!(shown(&bench.said()), [id(&blocks[1])], "of later ones");
}

/// A shown header counts as any header: two of one view are a conflict.
#[test]
fn r11_shown_header_may_prove_a_conflict() {
    let (first, other) = (header(1, GENESIS, 1), header(1, GENESIS, 9));
    let mut bench = Bench::new();
    bench.propose(&first);
    bench.said();
    assert_eq!(bench.deliver(3, RotatingMessage::Show(signed(&other))), Err(CONFLICT));
    let said = bench.sent();
    assert!(
        said.iter().any(|it| matches!(it, RotatingMessage::Evidence(ViewEvidence::Conflict(_)))),
        "{said:?}"
    );
}

/// A certificate skips the views below it, and their certificates arrive later. All replicas receive them as well. Otherwise
/// a liar that lets others skip each view could delay every commit.
#[test]
fn r10_skipped_certificate_delays_no_commit() {
    let blocks = chain(1, GENESIS, 3);
    let mut bench = Bench::new();
    bench.take(1, shows(&blocks[2]));
    bench.said();
    bench.take(1, shows(&blocks[0]));
    assert_eq!(certified_in(&bench.sent()), [id(&blocks[0])], "unheld");
    bench.take(2, shows(&blocks[0]));
    assert_eq!(certified_in(&bench.sent()), [], "once");
    hears(&mut bench, &blocks[0]);
    assert_eq!(shown(&bench.sent()), [id(&blocks[0])]);
    bench.pass(delta(2) - 1);
    assert_eq!(bench.timer_commits(), []);
    bench.pass(1);
    assert_eq!(bench.timer_commits(), [id(&blocks[0])]);
    // A certificate that is not kept is not shown either.
    let blocks = chain(1, GENESIS, u64::from(N) + 2);
    let mut bench = Bench::new();
    bench.take(1, shows(&blocks[usize::from(N) + 1]));
    bench.said();
    blocks[..3].iter().for_each(|block| bench.take(1, shows(block)));
    assert_eq!(certified_in(&bench.sent()), [id(&blocks[2])]);
}
