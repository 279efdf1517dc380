//! S17, R16: the leader is read first.

use super::*;

every_form! {
    s17_leader_of_the_view_is_read_first / r16_leader_of_the_view_is_read_first: in_every_view;
    s17_leader_is_read_first_after_a_restart / r16_leader_is_read_first_after_a_restart: after_a_restart;
}

/// Returns the changes of the urgent peer since the last call.
fn urgent<F: TestForm>(bench: &mut Bench<F>) -> Vec<String> {
    bench.replica.lines().into_iter().filter(|line| line.starts_with("urgent")).collect()
}

/// Returns the only change when a view begins: none comes first where this replica leads.
fn begins<F: TestForm>(view: u64) -> Vec<String> {
    let leader = Some(leads(N, view)).filter(|leader| *leader != r(F::ME));
    vec![format!("urgent {leader:?}")]
}

fn in_every_view<F: TestForm>() {
    let mut bench = Bench::<F>::opened(F::ME, N);
    assert_eq!(urgent(&mut bench), begins::<F>(1), "also while it is silent");
    bench.replica.advance(F::WARM_UP);
    bench.run();
    bench.extend(&F::blocks(1));
    let first = bench.view();
    urgent(&mut bench);
    for view in first..first + 6 {
        bench.next_view();
        assert_eq!(urgent(&mut bench), begins::<F>(view + 1));
    }
    // A view may be left before this replica has entered it.
    let left = bench.view() + 3;
    let peer = bench.peers()[0];
    bench.take(peer, F::blamed(N, left));
    assert_eq!((bench.view(), urgent(&mut bench)), (left, begins::<F>(left)));
    let mut leader = Bench::<F>::opened(0, N);
    assert_eq!(urgent(&mut leader), Vec::<String>::new(), "it leads the first view");
}

fn after_a_restart<F: TestForm>() {
    let mut bench = Bench::<F>::new();
    bench.next_view();
    urgent(&mut bench);
    bench.replica.crash().unwrap();
    assert_eq!((bench.view(), urgent(&mut bench)), (2, begins::<F>(2)));
}
