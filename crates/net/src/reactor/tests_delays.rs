//! Tests of links with an emulated delay. The test moves the time, so a delay costs passes and no waiting.

use super::*;
use crate::reactor::delay::DelayLine;

const DELAY_NS: u64 = 20_000_000;

/// Starts a node of two whose frames to the other one have a delay.
fn start(stage: &Stage, me: u16, delay_ns: u64) -> Node {
    let mut config = stage.config(me, 1);
    config.delays_ns = vec![delay_ns; 2];
    Node::new(config)
}

fn line_of(node: &mut Node) -> &mut DelayLine {
    let key = node.reactor.peers.iter().flatten().next().unwrap().socket.unwrap();
    node.reactor.sockets.get_mut(key).unwrap().line.as_mut().unwrap()
}

fn is_any_lost(node: &Node) -> bool {
    node.seen.iter().any(|seen| matches!(seen, Seen::Lost(..)))
}

#[test]
fn round_trip_takes_the_delays_of_both_directions() {
    for tls in [true, false] {
        for (there, back) in [(DELAY_NS, DELAY_NS), (DELAY_NS, 0), (0, DELAY_NS)] {
            let mut stage = Stage::new(2, tls);
            let (mut a, mut b) = (start(&stage, 0, there), start(&stage, 1, back));
            stage.connect(&mut [&mut a, &mut b]);
            let sent = stage.now;
            a.send(1, Lane::Consensus, "ping");
            stage.until(&mut [&mut a, &mut b], |nodes| nodes[1].from(0).len() == 1);
            assert!(stage.now.since(sent) >= there, "{}", stage.now);
            let answered = stage.now;
            b.send(0, Lane::Consensus, "pong");
            stage.until(&mut [&mut a, &mut b], |nodes| nodes[0].from(1).len() == 1);
            assert!(stage.now.since(answered) >= back, "{}", stage.now);
            let delays = [&a, &b].map(|node| node.reactor.peers()[0].delay_ns);
            assert_eq!(delays, [there, back]);
            assert_eq!([&a, &b].map(|node| node.reactor.has_delays()), [there > 0, back > 0]);
        }
    }
}

#[test]
fn many_frames_are_under_way_at_once() {
    const COUNT: usize = 200;
    let mut stage = Stage::new(2, true);
    let (mut a, mut b) = (start(&stage, 0, DELAY_NS), start(&stage, 1, DELAY_NS));
    stage.connect(&mut [&mut a, &mut b]);
    let begin = stage.now;
    let mut sent = Vec::new();
    for number in 0..COUNT {
        a.send(1, Lane::ALL[number % 3], &number.to_string());
        sent.push(stage.now);
        stage.pass(&mut [&mut a, &mut b]);
    }
    assert_eq!(b.from(0).len(), 0, "all are under way");
    while b.from(0).len() < COUNT {
        assert!(stage.now.since(begin) < DELAY_NS * COUNT as u64 / 2, "frames wait for each other");
        let before = b.from(0).len();
        stage.pass(&mut [&mut a, &mut b]);
        let arrived = before..b.from(0).len();
        assert!(sent[arrived].iter().all(|sent| stage.now.since(*sent) >= DELAY_NS));
    }
    assert!(b.from(0).iter().enumerate().all(|(number, text)| *text == number.to_string()));
}

#[test]
fn wait_ends_when_the_next_frame_is_due() {
    let mut stage = Stage::new(2, true);
    let (mut a, mut b) = (start(&stage, 0, DELAY_NS), start(&stage, 1, 0));
    stage.connect(&mut [&mut a, &mut b]);
    stage.settle(&mut [&mut a, &mut b]);
    let sent = stage.now;
    for (later, body) in [(0, "one"), (7, "two")] {
        a.send(1, Lane::Consensus, body);
        a.reactor.flush(sent.plus(later));
        assert_eq!(a.reactor.deadline(), Some(sent.plus(DELAY_NS)));
        assert!(!a.reactor.left_over(), "the next wait sleeps");
    }
    a.reactor.flush(sent.plus(DELAY_NS));
    assert_eq!(a.reactor.deadline(), Some(sent.plus(DELAY_NS).plus(7)));
    a.reactor.flush(sent.plus(DELAY_NS).plus(7));
    assert_eq!(a.reactor.deadline(), None);
    stage.until(&mut [&mut b], |nodes| nodes[0].from(0) == ["one", "two"]);
    stage.settle(&mut [&mut a, &mut b]);
}

#[test]
fn delayed_frames_arrive_once_and_in_order_across_cut_connections() {
    const COUNT: usize = 300;
    for tls in [true, false] {
        let mut stage = Stage::new(2, tls);
        let (mut a, mut b) = (start(&stage, 0, DELAY_NS / 20), start(&stage, 1, DELAY_NS / 10));
        stage.connect(&mut [&mut a, &mut b]);
        let mut rng = Rng::new(9);
        let mut sent = 0;
        while sent < COUNT {
            for _ in 0..rng.between(1, 10) {
                a.send(1, Lane::Consensus, &sent.to_string());
                b.send(0, Lane::Consensus, &sent.to_string());
                sent += 1;
            }
            for _ in 0..rng.below(30) {
                stage.pass(&mut [&mut a, &mut b]);
            }
            if rng.chance(200_000) {
                let cutter = if rng.chance(500_000) { &mut a } else { &mut b };
                let other = ReplicaId(1 - cutter.reactor.me.0);
                cutter.reactor.disconnect(other);
                stage.pass(&mut [&mut a, &mut b]);
                stage.connect(&mut [&mut a, &mut b]);
            }
        }
        stage.until(&mut [&mut a, &mut b], |nodes| {
            nodes[0].from(1).len() >= sent && nodes[1].from(0).len() >= sent
        });
        let all: Vec<String> = (0..sent).map(|number| number.to_string()).collect();
        assert_eq!((a.from(1), b.from(0)), (all.clone(), all));
        assert!(!is_any_lost(&a) && !is_any_lost(&b));
        assert!(a.reactor.peers()[0].connections > 5);
    }
}

#[test]
fn full_line_pauses_its_link_and_loses_nothing() {
    const HELD_MAX: usize = 64 << 10;
    let mut stage = Stage::new(2, true);
    let (mut a, mut b) = (start(&stage, 0, DELAY_NS), start(&stage, 1, 0));
    stage.connect(&mut [&mut a, &mut b]);
    stage.settle(&mut [&mut a, &mut b]);
    *line_of(&mut a) = DelayLine::holding(DELAY_NS, HELD_MAX);
    let bodies: Vec<String> = (0..4_000).map(|number| format!("{number:0500}")).collect();
    for body in &bodies {
        a.send(1, Lane::Bodies, body);
    }
    a.reactor.flush(stage.now);
    assert!(line_of(&mut a).is_full() && a.reactor.peers()[0].queued_bytes > 1_000_000);
    assert!(!a.reactor.left_over(), "the next wait sleeps");
    stage.until(&mut [&mut a, &mut b], |nodes| nodes[1].from(0).len() == bodies.len());
    assert_eq!(b.from(0), bodies);
    assert!(!is_any_lost(&a) && !is_any_lost(&b));
}

#[test]
fn reason_of_a_closed_connection_passes_a_long_delay() {
    let mut stage = Stage::new(2, true);
    let (mut a, mut b) = (start(&stage, 0, LINGER_NS * 3 / 2), start(&stage, 1, 0));
    stage.connect(&mut [&mut a, &mut b]);
    a.send(1, Lane::Consensus, "before it");
    a.reactor.flush(stage.now);
    let key = a.reactor.peer(ReplicaId(1)).unwrap().socket.unwrap();
    a.reactor.refuse(key, Refusal::BadControl);
    stage.until(&mut [&mut a, &mut b], |nodes| nodes[1].is_refused(Refusal::BadControl.reason()));
    assert_eq!(b.from(0), ["before it"]);
}

#[test]
fn delays_without_an_entry_for_each_replica_are_refused() {
    let stage = Stage::new(2, true);
    for delays in [vec![1], vec![1; 3], vec![0, LINK_DELAY_NS_MAX + 1]] {
        let mut config = stage.config(0, 1);
        config.delays_ns = delays;
        assert!(matches!(Reactor::new(config), Err(NetFault::Configuration(_))));
    }
    let mut config = stage.config(0, 1);
    config.delays_ns = vec![LINK_DELAY_NS_MAX, 0];
    assert!(!Reactor::new(config).unwrap().has_delays(), "a replica has no link to itself");
}
