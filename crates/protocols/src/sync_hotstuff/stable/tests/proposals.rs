//! S5: proposals of a leader.

use super::super::split::voted_ahead_max;
use super::*;
use quorate_consensus::LinkEvent;
use quorate_consensus::harness::payload;

both! {
    s5_the_leader_proposes_on_certificates_of_its_view;
    s5_an_idle_leader_proposes_after_a_heartbeat;
    s5_nothing_is_proposed_while_silent_or_after_leaving;
    s5_proposal_is_durable_before_it_leaves;
    s5_a_later_view_begins_with_its_base;
    s5_recovered_leader_continues;
    s5_full_window_limits_the_leader;
    s5_voted_heights_limit_the_leader;
}

fn proposals(bench: &mut Bench<impl Variant>) -> Vec<(Header, Certificate)> {
    let said = bench.said().into_iter();
    said.filter_map(|it| {
        if let SyncMessage::Propose { header, parent } = it { Some((header, parent)) } else { None }
    })
    .collect()
}

/// Returns the one proposal since the last call.
fn proposed(bench: &mut Bench<impl Variant>) -> (Header, Certificate) {
    let mut proposals = proposals(bench);
    assert_eq!(proposals.len(), 1, "{proposals:#?}");
    proposals.remove(0)
}

/// §13, 8 (optsync §10, 8): f + 1 votes are enough, fewer are not.
fn s5_the_leader_proposes_on_certificates_of_its_view<V: Variant>() {
    let mut bench = Bench::<V>::running(0, N);
    bench.replica.offer([1, 2, 3].map(payload));
    let (first, parent) = proposed(&mut bench);
    assert_eq!((first.block.height, first.block.parent, first.base), (Height(1), GENESIS.1, GENESIS.1));
    assert!(parent.is_genesis());
    assert_eq!((first.block.payload, first.block.proposer), (payload(1).id, r(0)));
    bench.take(1, voted(&first));
    bench.replica.offer([]);
    assert_eq!(proposals(&mut bench), [], "the own vote and one other");
    bench.take(2, voted(&first));
    let (second, parent) = proposed(&mut bench);
    assert_eq!((second.block.height, second.block.parent), (Height(2), id(&first)));
    assert_eq!(parent.statement, certified(N, &first).statement);
    assert_eq!(parent.signers.len(), usize::from(weak(N)));
    // A received certificate is enough as well.
    bench.take(4, SyncMessage::Certified(certified(N, &second)));
    assert_eq!(proposed(&mut bench).0.block.parent, id(&second));
}

/// §13, 8: the others would blame it.
fn s5_an_idle_leader_proposes_after_a_heartbeat<V: Variant>() {
    // Also at its first start, before any request.
    let mut bench = Bench::<V>::running(0, N);
    bench.pass(heartbeat() - 1);
    assert_eq!(proposals(&mut bench), []);
    bench.pass(1);
    let (first, _) = proposed(&mut bench);
    assert_eq!(first.block.payload, empty_payload());
    bench.vote([1, 2], &first);
    bench.pass(heartbeat() - 1);
    assert_eq!(proposals(&mut bench), []);
    // A request is proposed at once.
    bench.replica.offer([payload(1)]);
    let (second, _) = proposed(&mut bench);
    assert_eq!(second.block.payload, payload(1).id);
    bench.pass(1);
    assert_eq!(proposals(&mut bench), [], "nothing is certified");
    bench.vote([1, 2], &second);
    bench.pass(heartbeat() - 1);
    assert_eq!(proposals(&mut bench), [], "a heartbeat from now, not from before");
    bench.pass(1);
    assert_eq!(proposed(&mut bench).0.block.parent, id(&second));
}

fn s5_nothing_is_proposed_while_silent_or_after_leaving<V: Variant>() {
    let mut bench = Bench::<V>::opened(0, N);
    bench.replica.offer([payload(1)]);
    bench.pass(heartbeat());
    assert_eq!(proposals(&mut bench), []);
    bench.run();
    assert_eq!(proposed(&mut bench).0.block.payload, payload(1).id);
    let mut bench = Bench::<V>::running(0, N);
    bench.blame();
    bench.replica.offer([payload(1)]);
    assert_eq!(proposals(&mut bench), []);
    bench.pass(delta(V::WAIT));
    bench.pass(heartbeat());
    assert_eq!((proposals(&mut bench), bench.view()), (vec![], 2), "another one leads");
    // A replica with gaps of more than f peers falls silent.
    let mut bench = Bench::<V>::running(0, N);
    for peer in [1, 2, 3] {
        bench.replica.link(r(peer), LinkEvent::Gap);
    }
    bench.replica.offer([payload(1)]);
    assert_eq!(proposals(&mut bench), []);
    bench.answers(&stands(RecoveryStage::Running));
    assert_eq!(proposed(&mut bench).0.block.payload, payload(1).id);
}

fn s5_proposal_is_durable_before_it_leaves<V: Variant>() {
    let mut bench = Bench::<V>::running(0, N);
    bench.replica.offer([payload(1)]);
    let lines = bench.replica.lines();
    assert!(line(&lines, "record 2") < line(&lines, "hold All: propose v1 h1"), "{lines:#?}");
    assert_eq!(bench.sent(), [], "nothing leaves before it is durable");
    let (first, _) = proposed(&mut bench);
    bench.replica.crash().unwrap();
    bench.replica.offer([payload(2)]);
    bench.run();
    let (again, _) = proposed(&mut bench);
    assert_eq!(again, first);
    // The next block extends it, on the durable certificate.
    bench.vote([1, 2], &first);
    let (second, _) = proposed(&mut bench);
    bench.replica.crash().unwrap();
    bench.replica.offer([payload(3)]);
    bench.run();
    assert_eq!(proposed(&mut bench).0, second);
}

fn s5_a_later_view_begins_with_its_base<V: Variant>() {
    let mut bench = Bench::<V>::running(1, N);
    let blocks = chain(N, 1, GENESIS, &[1]);
    bench.grow(&blocks);
    bench.next_view();
    bench.replica.offer([payload(1)]);
    bench.pass(delta(2));
    let base = end(&blocks[0]);
    let said = bench.said();
    assert!(said.contains(&first_vote(2, base)), "{said:#?}");
    assert!(!said.iter().any(|it| matches!(it, SyncMessage::Propose { .. })));
    bench.take(0, first_vote(2, base));
    assert_eq!(proposals(&mut bench), []);
    bench.take(4, first_vote(2, base));
    let (next, parent) = proposed(&mut bench);
    assert_eq!((next.base, next.block.parent, next.block.view), (base.1, base.1, View(2)));
    assert_eq!(next.block.extra, bind_base(base.1));
    assert_eq!(parent.statement, certificate(2, base, weak(N)).statement);
}

/// It receives its own NEW-VIEW last if the base was certified before the power cut.
fn s5_recovered_leader_continues<V: Variant>() {
    let mut bench = Bench::<V>::running(1, N);
    let blocks = chain(N, 1, GENESIS, &[1]);
    bench.grow(&blocks);
    bench.next_view();
    bench.pass(delta(2));
    bench.replica.settle();
    for voter in [0, 4] {
        bench.take(voter, first_vote(2, end(&blocks[0])));
    }
    bench.replica.settle();
    bench.replica.crash().unwrap();
    bench.replica.fetched(blocks[0].block.clone());
    let mut answer = stands(RecoveryStage::Running);
    answer.certificates = vec![certificate(2, end(&blocks[0]), weak(N))];
    bench.answers(&answer);
    assert_eq!(bench.stage(), RecoveryStage::Running);
    bench.clear();
    bench.pass(heartbeat());
    assert_eq!(proposed(&mut bench).0.block.parent, id(&blocks[0]));
}

fn s5_full_window_limits_the_leader<V: Variant>() {
    let mut bench = Bench::<V>::running(0, N);
    let window = Setup::of::<SyncHotStuff<V>>(usize::from(N)).window;
    bench.replica.offer((1..100).map(payload));
    let mut count = 0;
    while let Some((header, _)) = proposals(&mut bench).pop() {
        count += 1;
        bench.vote([1, 2], &header);
    }
    assert_eq!(count, window);
    // A checkpoint moves it on.
    let committed = bench.replica.status().committed;
    bench.pass(delta(2));
    assert!(bench.replica.status().committed > committed);
    let head = bench.replica.protocol().chain.committed();
    bench.replica.log_decided(head.height, head.id);
    bench.replica.checkpoint(head.height);
    assert_eq!(proposals(&mut bench).len(), 1);
}

/// Without commits the leader slows down long before nobody votes any more: it would be blamed for that.
fn s5_voted_heights_limit_the_leader<V: Variant>() {
    let setup = Setup { window: 4_096, ..Setup::of::<SyncHotStuff<V>>(usize::from(N)) };
    let replica = Harness::open(r(0), setup, &SynchronyParams::default()).unwrap();
    let mut bench = Bench::<V> { replica, n: N };
    bench.run();
    bench.replica.offer((1..1_000).map(payload));
    let mut count = 0;
    while let Some((header, _)) = proposals(&mut bench).pop() {
        count += 1;
        bench.vote([1, 2], &header);
    }
    assert_eq!(count, voted_ahead_max(usize::from(N)) / 2);
    // Empty blocks continue.
    bench.pass(heartbeat());
    assert_eq!(proposals(&mut bench).len(), 1);
}
