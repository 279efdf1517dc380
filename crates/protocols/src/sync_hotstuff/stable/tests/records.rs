//! What survives a crash, wherever the log ends.

use super::*;
use crate::sync_hotstuff::SyncRecord;
use quorate_consensus::harness::payload;
use quorate_consensus::{OpenError, Protocol, Record};

both! {
    all_statements_survive_a_crash;
    no_end_of_the_log_makes_a_replica_equivocate;
    certificates_are_durable_with_the_next_sync;
    end_of_the_chain_survives_a_checkpoint;
    what_was_decided_is_where_it_goes_on;
    parameters_and_committees_are_checked;
}

/// What a replica has promised, and what it knows that lets it go on.
fn memory(bench: &Bench<impl Variant>) -> String {
    let it = bench.replica.protocol();
    let said = (&it.lock, &it.first_voted, &it.voted, &it.proposed, &it.said_new_view);
    format!("{:#?}", (it.view, it.leaving.is_some(), &it.evidence, said))
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
    // A leader.
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

/// What a leader of view 2 that lies shows: blocks beside those that were shown before.
fn other_blocks() -> (Header, Header) {
    let other = header(N, 1, GENESIS.1, GENESIS, 9);
    let above = header(N, 2, id(&other), end(&other), 9);
    (other, above)
}

/// Of what is written between two syncs any part may be on disk: the harness stops where a slot is filled twice.
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

/// Some of it may be refused.
fn hear(bench: &mut Bench<impl Variant>, messages: &[(u16, SyncMessage)]) {
    for (from, message) in messages {
        let _ = bench.deliver(*from, message.clone());
    }
}

/// Comes back among peers that show it another branch.
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

/// §3: no sync of their own. §18: what was acknowledged can be shown after a cold start.
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
    // Also one that was only heard of.
    let mut bench = Bench::<V>::new();
    bench.take(4, SyncMessage::Certified(certified(N, &blocks[0])));
    bench.replica.sync();
    bench.replica.crash().unwrap();
    assert_eq!(named(&bench), [id(&blocks[0])]);
}

/// A cluster that has been idle since its last checkpoint finds its end again.
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

fn what_was_decided_is_where_it_goes_on<V: Variant>() {
    let blocks = chain(N, 1, GENESIS, &[1, 2]);
    let mut bench = Bench::<V>::new();
    bench.grow(&blocks);
    bench.pass(delta(2));
    bench.replica.log_decided(Height(1), id(&blocks[0]));
    bench.replica.log_decided(Height(2), id(&blocks[1]));
    bench.replica.sync();
    bench.replica.crash().unwrap();
    assert_eq!(bench.replica.status().committed, Height(2));
    // What f + 1 say counts, once its header is here.
    let mut bench = Bench::<V>::new();
    bench.replica.decide(Height(2), id(&blocks[1]));
    assert_eq!(bench.replica.status().committed, Height(0));
    bench.replica.fetched(blocks[0].block.clone());
    bench.replica.fetched(blocks[1].block.clone());
    assert_eq!((bench.replica.status().committed, bench.committed()), (Height(2), vec![]));
}

/// Of each fact the newest is kept, of certificates one for each height and view.
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
    let said = |view| SyncRecord::Said { view: View(view), voted: None, proposed: None, shown: None };
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
    // A checkpoint drops what has a height.
    assert_eq!(keys.map(|key| key.height.0), [0, 0, 1, 2, 1, 1, 0]);
    let on_genesis = |view| SyncRecord::Certified(certificate(view, GENESIS, 3)).key();
    assert_eq!(on_genesis(2), on_genesis(7), "nothing settles genesis");
    assert_eq!(
        SyncRecord::Settled(certified(N, &all[0])).key(),
        SyncRecord::Settled(certified(N, &all[1])).key()
    );
}

fn parameters_and_committees_are_checked<V: Variant>() {
    let open = |n: usize, f: usize, params: &SynchronyParams| {
        let setup = Setup { f, ..Setup::of::<SyncHotStuff<V>>(n) };
        Harness::<SyncHotStuff<V>>::open(r(0), setup, params).err()
    };
    let params = SynchronyParams::default();
    assert!([(3, 1), (4, 1), (5, 2), (7, 3), (7, 2)].iter().all(|(n, f)| open(*n, *f, &params).is_none()));
    assert!(
        [(2, 1), (4, 2), (6, 3)]
            .iter()
            .all(|(n, f)| matches!(open(*n, *f, &params), Some(OpenError::Committee(_))))
    );
    let wrong = SynchronyParams { delta_ms: 0, ..SynchronyParams::default() };
    assert!(matches!(open(3, 1, &wrong), Some(OpenError::Params { .. })));
    assert_eq!((V::SPEC.faults)(7), 3);
    let synchrony = <SyncHotStuff<V>>::synchrony(&params).unwrap();
    assert_eq!((synchrony.delta_ns, synchrony.guarded), (50_000_000, true));
}
