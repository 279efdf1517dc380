//! State after a crash, for every end of the log.

use super::*;
use crate::sync_hotstuff::SyncRecord;
use quorate_consensus::Record;
use quorate_consensus::harness::payload;

both! {
    all_statements_survive_a_crash;
    no_end_of_the_log_makes_a_replica_equivocate;
    certificates_are_durable_with_the_next_sync;
    end_of_the_chain_survives_a_checkpoint;
}

/// Returns the statements of a replica, and its way into the view, as text.
fn memory(bench: &Bench<impl Variant>) -> String {
    let it = bench.replica.protocol();
    let in_view = &it.in_view;
    let said =
        (&it.state.lock, &in_view.first_voted, &in_view.voted, &in_view.proposed, &in_view.own_new_view);
    format!("{:#?}", (it.view, it.leaving.is_some(), &it.state.evidence, said))
}

fn all_statements_survive_a_crash<V: Variant>() {
    let blocks = chain(N, 1, GENESIS, &[1, 2]);
    let base = end(&blocks[0]);
    let next = header(N, 2, base.1, base, 5);
    let check = |bench: &mut Bench<V>| {
        bench.replica.settle();
        bench.replica.sync();
        let before = memory(bench);
        bench.replica.crash().unwrap();
        assert_eq!(memory(bench), before);
        bench.run();
        bench.replica.settle();
        assert_eq!(memory(bench), before);
    };
    let mut bench = Bench::<V>::new();
    check(&mut bench);
    bench.grow(&blocks[..1]);
    check(&mut bench);
    bench.blame();
    check(&mut bench);
    bench.pass(delta(V::WAIT));
    assert_eq!(bench.view(), 2);
    check(&mut bench);
    bench.take(1, new_view(2, &lock(certified(N, &blocks[0]))));
    check(&mut bench);
    bench.propose(&next);
    check(&mut bench);
    assert_eq!(bench.replica.protocol().in_view.voted, Some(signed(&next)));
    // The same for a leader.
    let mut bench = Bench::<V>::running(1, N);
    bench.grow(&blocks[..1]);
    bench.next_view();
    bench.pass(delta(2));
    check(&mut bench);
    bench.replica.offer([payload(1)]);
    for voter in [0, 4] {
        bench.take(voter, first_vote(2, base));
    }
    check(&mut bench);
    assert!(
        bench.replica.protocol().in_view.proposed.is_some()
            && bench.replica.protocol().in_view.own_new_view.is_some()
    );
}

type Step<V> = fn(&mut Bench<V>);

/// Returns blocks of a lying leader of view 2: they conflict with those that were shown before.
fn other_blocks() -> (Header, Header) {
    let other = header(N, 1, GENESIS.1, GENESIS, 9);
    let above = header(N, 2, id(&other), end(&other), 9);
    (other, above)
}

/// Any part of the records between two syncs may be durable. The harness stops if a slot is filled twice.
fn no_end_of_the_log_makes_a_replica_equivocate<V: Variant>() {
    fn blocks() -> Vec<Header> {
        chain(N, 1, GENESIS, &[1, 2])
    }
    fn next() -> Header {
        let base = end(&blocks()[0]);
        header(N, 2, base.1, base, 5)
    }
    let steps: [Step<V>; 8] = [
        |bench| hear(bench, &[(0, proposal(N, &blocks()[0]))]),
        |bench| hear(bench, &bench.few().into_iter().map(|it| (it, voted(&blocks()[0]))).collect::<Vec<_>>()),
        |bench| hear(bench, &[(0, SyncMessage::Evidence(blames(N, 1)))]),
        |bench| bench.wait(delta(V::WAIT)),
        |bench| hear(bench, &[(1, new_view(2, &lock(certified(N, &blocks()[0]))))]),
        |bench| bench.wait(delta(2)),
        |bench| {
            bench.replica.offer([payload(1)]);
            hear(bench, &[0, 4].map(|voter| (voter, first_vote(2, end(&blocks()[0])))));
        },
        |bench| hear(bench, &[(1, proposal(N, &next()))]),
    ];
    let mut cases = 0;
    for me in [1, ME] {
        for last in 0..steps.len() {
            for synced in [false, true] {
                let mut kept = 0;
                loop {
                    let mut bench = Bench::<V>::running(me, N);
                    for step in &steps[..last] {
                        step(&mut bench);
                        bench.replica.settle();
                    }
                    steps[last](&mut bench);
                    if synced {
                        bench.replica.settle();
                    }
                    if kept > bench.replica.unsynced() {
                        break;
                    }
                    bench.replica.crash_after(kept).unwrap();
                    misled(&mut bench);
                    (kept, cases) = (kept + 1, cases + 1);
                }
            }
        }
    }
    assert!(cases > 40, "{cases}");
}

/// Delivers messages, some of which may be refused.
fn hear(bench: &mut Bench<impl Variant>, messages: &[(u16, SyncMessage)]) {
    for (from, message) in messages {
        let _ = bench.deliver(*from, message.clone());
    }
}

/// Recovers among peers that show another branch.
fn misled(bench: &mut Bench<impl Variant>) {
    let (other, above) = other_blocks();
    let first = chain(N, 1, GENESIS, &[1]).remove(0);
    bench.replica.fetched(first.block.clone());
    bench.replica.fetched(header(N, 2, id(&first), end(&first), 5).block);
    bench.replica.fetched(other.block.clone());
    bench.run();
    bench.replica.offer([payload(7)]);
    let shown = lock(certified(N, &other));
    let messages = [
        (0, proposal(N, &other)),
        (0, SyncMessage::Evidence(blames(N, 1))),
        (1, new_view(2, &shown)),
        (4, SyncMessage::Status { view: View(2), lock: shown }),
        (1, proposal(N, &above)),
        (0, first_vote(2, end(&other))),
        (4, first_vote(2, end(&other))),
    ];
    for _ in 0..2 {
        for message in &messages {
            hear(bench, std::slice::from_ref(message));
            bench.pass(delta(1));
        }
    }
}

/// §3: they need no sync of their own. §18: acknowledged blocks can be proved after a cold start.
fn certificates_are_durable_with_the_next_sync<V: Variant>() {
    let blocks = chain(N, 1, GENESIS, &[1]);
    let mut bench = Bench::<V>::new();
    bench.propose(&blocks[0]);
    bench.replica.settle();
    bench.replica.lines();
    bench.vote(bench.few(), &blocks[0]);
    let lines = bench.replica.lines();
    assert!(
        !lines.iter().any(|line| line.starts_with("hold")) && bench.replica.unsynced() == 1,
        "{lines:#?}"
    );
    let named = |bench: &Bench<V>| {
        let newest = bench.replica.protocol().state.certificates.newest();
        newest.iter().map(Certificate::block).collect::<Vec<_>>()
    };
    bench.replica.sync();
    bench.replica.crash().unwrap();
    assert_eq!(named(&bench), [id(&blocks[0])]);
    // Also a certificate that was only received.
    let mut bench = Bench::<V>::new();
    bench.take(4, SyncMessage::Certified(certified(N, &blocks[0])));
    bench.replica.sync();
    bench.replica.crash().unwrap();
    assert_eq!(named(&bench), [id(&blocks[0])]);
}

/// A cluster that has been idle since its last checkpoint finds the end of its chain.
fn end_of_the_chain_survives_a_checkpoint<V: Variant>() {
    let blocks = chain(N, 1, GENESIS, &[1, 2, 3, 4, 5, 6, 7, 8]);
    let mut bench = Bench::<V>::new();
    bench.grow(&blocks);
    bench.pass(delta(2));
    let head = bench.replica.protocol().chain.committed();
    assert_eq!(head.height, Height(8));
    bench.replica.log_decided(head.height, head.id);
    bench.replica.checkpoint(head.height);
    bench.replica.sync();
    bench.replica.crash().unwrap();
    assert_eq!(bench.replica.status().committed, Height(8));
    let newest = bench.replica.protocol().state.certificates.newest();
    assert_eq!(newest.iter().map(Certificate::block).collect::<Vec<_>>(), [head.id]);
    bench.run();
    let next = chain_on(N, 1, GENESIS.1, (head.height, head.id), &[9]);
    bench.take(4, voted(&next[0]));
    assert!(bench.votes().contains(&id(&next[0])));
}

/// The newest record of each fact is kept, and one certificate for each height and view.
#[test]
fn records_replace_each_other() {
    let all = chain(N, 1, GENESIS, &[1, 2]);
    let entered = |view| SyncRecord::Entered {
        view: View(view),
        quit: false,
        evidence: Vec::new(),
        lock: Lock::genesis(),
        first_voted: None,
    };
    let said = |view| SyncRecord::Said { view: View(view), voted: None, proposed: None, new_view: None };
    assert_eq!(entered(1).key(), entered(2).key());
    assert_eq!(said(1).key(), said(2).key());
    let keys = [
        entered(1).key(),
        said(1).key(),
        SyncRecord::Certified(certified(N, &all[0])).key(),
        SyncRecord::Certified(certified(N, &all[1])).key(),
        SyncRecord::Certified(certificate(2, end(&all[0]), 3)).key(),
        SyncRecord::Responsive(certified(N, &all[0])).key(),
        SyncRecord::Settled(certified(N, &all[0])).key(),
    ];
    let distinct: std::collections::BTreeSet<_> = keys.iter().collect();
    assert_eq!(distinct.len(), keys.len());
    // A checkpoint drops records with a height.
    assert_eq!(keys.map(|key| key.height.0), [0, 0, 1, 2, 1, 1, 0]);
    let on_genesis = |view| SyncRecord::Certified(certificate(view, GENESIS, 3)).key();
    assert_eq!(on_genesis(2), on_genesis(7), "no checkpoint settles genesis");
    assert_eq!(
        SyncRecord::Settled(certified(N, &all[0])).key(),
        SyncRecord::Settled(certified(N, &all[1])).key()
    );
}
