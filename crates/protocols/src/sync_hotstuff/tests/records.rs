//! State after a crash.

use super::*;
use quorate_consensus::{OpenError, Protocol as _};
use quorate_types::Height;

every_form! {
    decided_blocks_survive_a_crash / decided_blocks_survive_a_crash: decided;
    parameters_and_committees_are_checked / parameters_and_committees_are_checked: parameters;
}

fn decided<F: TestForm>() {
    let blocks = F::blocks(2);
    let ids = [0, 1].map(|at| blocks[at].block.id());
    let mut bench = Bench::<F>::new();
    bench.extend(&blocks);
    bench.pass(delta(2));
    bench.replica.log_decided(Height(1), ids[0]);
    bench.replica.log_decided(Height(2), ids[1]);
    bench.replica.sync();
    bench.replica.crash().unwrap();
    assert_eq!(bench.replica.status().committed, Height(2));
    // A block that f + 1 peers report as decided counts once its header is known.
    let mut bench = Bench::<F>::new();
    bench.replica.decide(Height(2), ids[1]);
    assert_eq!(bench.replica.status().committed, Height(0));
    bench.replica.fetched(blocks[0].block.clone());
    bench.replica.fetched(blocks[1].block.clone());
    assert_eq!((bench.replica.status().committed, bench.committed()), (Height(2), vec![]));
}

fn parameters<F: TestForm>() {
    let open = |n: usize, f: usize, params: &SynchronyParams| {
        let setup = Setup { f, ..Setup::of::<SyncHotStuff<F>>(n) };
        Harness::<SyncHotStuff<F>>::open(r(0), setup, params).err()
    };
    let params = SynchronyParams::default();
    assert!([(3, 1), (4, 1), (5, 2), (7, 3), (7, 2)].iter().all(|(n, f)| open(*n, *f, &params).is_none()));
    let bad = [(2, 1), (4, 2), (6, 3)];
    assert!(bad.iter().all(|(n, f)| matches!(open(*n, *f, &params), Some(OpenError::Committee(_)))));
    let wrong = SynchronyParams { delta_ms: 0, ..SynchronyParams::default() };
    assert!(matches!(open(3, 1, &wrong), Some(OpenError::Params { .. })));
    assert_eq!((F::SPEC.faults)(7), 3);
    let synchrony = SyncHotStuff::<F>::synchrony(&params).unwrap();
    assert_eq!((synchrony.delta_ns, synchrony.guarded), (50_000_000, true));
}
