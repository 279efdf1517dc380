//! Tests of meshes in one process. Each wait has a deadline.

use super::*;
use crate::reactor::{PeerConfig, Security, bind};
use crate::tls::LinkKey;
use quorate_types::limits::FRAME_BYTES_MAX;

const PATIENCE: Duration = Duration::from_secs(60);

fn configs(n: u8) -> Vec<NetConfig> {
    let key = |seed: u8| LinkKey::from_pkcs8(&LinkKey::pkcs8_of_seed(&[seed; 32])).unwrap();
    let listeners: Vec<_> = (0..n).map(|_| bind("127.0.0.1:0".parse().unwrap()).unwrap()).collect();
    let peers: Vec<PeerConfig> = listeners
        .iter()
        .zip(0..)
        .map(|(listener, id)| PeerConfig { key: key(id).public(), address: listener.local_addr().unwrap() })
        .collect();
    listeners
        .into_iter()
        .zip(0..)
        .map(|(listener, id)| {
            let identity = identity(ProtocolId::new("test"), ReplicaId(u16::from(id)));
            NetConfig::new(identity, peers.clone(), Security::Tls(key(id)), listener)
        })
        .collect()
}

/// Returns the next event that does not concern connections.
fn next<M>(receiver: &Receiver<M>) -> Event<M> {
    loop {
        match receiver.recv_timeout(PATIENCE).expect("an event in time") {
            Event::Up(_) | Event::Down(_) => {}
            event => return event,
        }
    }
}

fn wait_for<M: PartialEq>(receiver: &Receiver<M>, wanted: &Event<M>) {
    while receiver.recv_timeout(PATIENCE).expect("an event in time") != *wanted {}
}

#[test]
fn messages_arrive_at_their_receivers_alone() {
    let ends: Vec<_> = configs(3).into_iter().map(|config| Mesh::<u64>::open(config).unwrap()).collect();
    let [(a, from_a), (_, from_b), (c, from_c)] = &ends[..] else { panic!() };
    let lane = Lane::Bodies;
    let some = [ReplicaId(0), ReplicaId(1)].into_iter().collect();
    a.send(To::All, lane, &1).unwrap();
    a.send(To::One(ReplicaId(2)), lane, &2).unwrap();
    c.send(To::Some(some), lane, &3).unwrap();
    let message = |from, message| Event::Message { from: ReplicaId(from), lane, message };
    assert_eq!(next(from_a), message(2, 3));
    let mut at_b = [next(from_b), next(from_b)];
    at_b.sort_by_key(|event| *event != message(0, 1));
    assert_eq!(at_b, [message(0, 1), message(2, 3)]);
    assert_eq!([next(from_c), next(from_c)], [message(0, 1), message(0, 2)]);
    while let Some(event) = from_c.try_recv() {
        assert!(!matches!(event, Event::Message { .. }), "{event:?}");
    }
}

#[test]
fn slow_receiver_slows_its_peers_down_and_loses_nothing() {
    let mut configs = configs(2);
    let (b, from_b) = Mesh::<u64>::open(configs.pop().unwrap()).unwrap();
    let (a, from_a) = Mesh::<u64>::open(configs.pop().unwrap()).unwrap();
    const COUNT: u64 = 20_000;
    for number in 0..COUNT {
        while let Err(full) = b.send(To::All, Lane::Consensus, &number) {
            assert_eq!(full, NotSent::Full);
            thread::yield_now();
        }
    }
    // No receiver reads at a, so its thread waits, and the messages of a fill its queue.
    let start = Instant::now();
    while a.send(To::All, Lane::Consensus, &0) != Err(NotSent::Full) {
        assert!(start.elapsed() < PATIENCE);
    }
    let mut expected = 0;
    while expected < COUNT {
        // The receiver of b must take a's messages, or b becomes slow in turn.
        while from_b.try_recv().is_some() {}
        match from_a.recv_timeout(Duration::from_millis(1)) {
            Some(Event::Message { message, .. }) => {
                assert_eq!(message, expected);
                expected += 1;
            }
            Some(Event::Up(_)) => {}
            Some(event) => panic!("{event:?}"),
            None => assert!(start.elapsed() < PATIENCE),
        }
    }
}

#[test]
fn malformed_message_is_reported() {
    let mut configs = configs(2);
    let (b, _from_b) = Mesh::<u64>::open(configs.pop().unwrap()).unwrap();
    let (_a, from_a) = Mesh::<u32>::open(configs.pop().unwrap()).unwrap();
    b.send(To::All, Lane::Consensus, &1).unwrap();
    assert_eq!(next(&from_a), Event::Malformed { from: ReplicaId(1), why: DecodeError::Trailing });
}

#[test]
fn mesh_ends_with_its_handles() {
    let mut configs = configs(2);
    let (b, from_b) = Mesh::<u64>::open(configs.pop().unwrap()).unwrap();
    let (a, from_a) = Mesh::<u64>::open(configs.pop().unwrap()).unwrap();
    wait_for(&from_a, &Event::Up(ReplicaId(1)));
    let second = b.clone();
    drop(b);
    second.send(To::All, Lane::Consensus, &7).unwrap();
    assert!(matches!(next(&from_a), Event::Message { message: 7, .. }));
    drop(second);
    wait_for(&from_a, &Event::Down(ReplicaId(1)));
    while from_b.recv().is_some() {}
    drop(from_a);
    let start = Instant::now();
    while a.send(To::All, Lane::Consensus, &8) != Err(NotSent::Ended) {
        assert!(start.elapsed() < PATIENCE);
    }
}

#[test]
fn oversize_message_is_refused() {
    struct Large;
    impl Wire for Large {
        fn encode(&self, out: &mut Vec<u8>) {
            out.resize(FRAME_BYTES_MAX, 0);
        }
        fn decode(_: &mut quorate_types::Reader<'_>) -> Result<Self, DecodeError> {
            Ok(Self)
        }
    }
    let (a, _events) = Mesh::<Large>::open(configs(1).pop().unwrap()).unwrap();
    assert!(matches!(a.send(To::All, Lane::Bodies, &Large), Err(NotSent::Oversize(_))));
    assert_eq!(a.send(To::All, Lane::Consensus, &Large), Ok(()));
}
