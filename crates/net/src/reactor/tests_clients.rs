//! Tests of clients and strangers.

use super::*;
use crate::frame::{Assembler, client_frame_bytes, client_header, put_control};
use crate::session::Session;
use crate::tls;
use quorate_types::Wire;
use quorate_types::limits::{CLIENT_OUTGOING_BYTES_MAX, FRAME_BYTES_MAX, HANDSHAKE_NS_MAX};
use quorate_types::wire::{FromReplica, PeerHello, VERSION};
use std::io::{Read, Write};
use std::net::TcpStream;

/// A client, or a stranger on the clients' port.
struct Guest {
    stream: TcpStream,
    session: Session,
    assembler: Assembler<4>,
    received: Vec<Vec<u8>>,
    closed: bool,
}

impl Guest {
    fn dial(stage: &Stage, node: &Node) -> Self {
        let session = if stage.tls {
            let replica = usize::from(node.reactor.me.0);
            Session::dial(&tls::dial_replica(stage.peers[replica].key).unwrap()).unwrap()
        } else {
            Session::plain()
        };
        Self::with(node.clients.unwrap(), session)
    }

    fn with(address: SocketAddr, session: Session) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_nonblocking(true).unwrap();
        Self {
            stream,
            session,
            assembler: Assembler::new(client_frame_bytes, 0),
            received: Vec::new(),
            closed: false,
        }
    }

    fn send(&mut self, body: &[u8]) {
        let header = client_header(body.len()).unwrap();
        self.raw(&[&header[..], body].concat());
    }

    fn raw(&mut self, bytes: &[u8]) {
        self.session.send(&[std::io::IoSlice::new(bytes)]);
        self.pass();
    }

    fn pass(&mut self) {
        while self.session.pending() && self.session.write(&mut self.stream).is_ok() {}
        let mut buffer = [0; 65_536];
        match self.stream.read(&mut buffer) {
            Ok(0) => self.closed = true,
            Ok(count) => {
                let (assembler, received) = (&mut self.assembler, &mut self.received);
                let read = self.session.read(&buffer[..count], &mut |plain| {
                    assembler.feed(plain, &mut |_, body| {
                        received.push(body.to_vec());
                        Ok(())
                    })
                });
                self.closed |= read.is_err();
            }
            Err(error) => self.closed |= error.kind() != ErrorKind::WouldBlock,
        }
    }

    fn close_reason(&self) -> Option<String> {
        match FromReplica::from_bytes(self.received.last()?) {
            Ok(FromReplica::Close(reason)) => Some(reason),
            _ => None,
        }
    }
}

fn serve(stage: &Stage, change: impl FnOnce(&mut NetConfig)) -> Node {
    let mut config = stage.config(0, 1);
    config.listen_clients = Some(loopback());
    change(&mut config);
    Node::new(config)
}

/// Runs passes of a node and its guests until `done`.
fn until(
    stage: &mut Stage,
    node: &mut Node,
    guests: &mut [&mut Guest],
    done: impl Fn(&Node, &[&mut Guest]) -> bool,
) {
    for _ in 0..PASSES_MAX {
        if done(node, guests) {
            return;
        }
        stage.pass(&mut [node]);
        guests.iter_mut().for_each(|guest| guest.pass());
    }
    panic!("the event that the test waits for has not come: {:?}", node.seen);
}

fn conns(node: &Node) -> Vec<ConnId> {
    let up = |seen: &Seen| match seen {
        Seen::ClientUp(conn) => Some(*conn),
        _ => None,
    };
    node.seen.iter().filter_map(up).collect()
}

fn is_refused(node: &Node, reason: &str) -> bool {
    node.refusals()
        .iter()
        .any(|(who, text)| matches!(who, Who::Client(_) | Who::Stranger(_)) && *text == reason)
}

#[test]
fn replies_of_a_pass_leave_in_one_write_for_each_client() {
    for tls in [true, false] {
        let mut stage = Stage::new(1, tls);
        let mut node = serve(&stage, |_| ());
        let (mut ann, mut bob) = (Guest::dial(&stage, &node), Guest::dial(&stage, &node));
        for i in 0..100u8 {
            ann.send(&[b'a', i]);
            bob.send(&[b'b', i]);
        }
        until(&mut stage, &mut node, &mut [&mut ann, &mut bob], |node, _| {
            let asked = |seen: &&Seen| matches!(seen, Seen::Client(..));
            node.seen.iter().filter(asked).count() == 200
        });
        assert!(node.reactor.sockets.iter().all(|(_, socket)| socket.stream.nodelay().unwrap()));
        let before = *node.reactor.ledger();
        let mut asked = std::collections::BTreeMap::<ConnId, Vec<Vec<u8>>>::new();
        for seen in std::mem::take(&mut node.seen) {
            if let Seen::Client(conn, body) = seen {
                asked.entry(conn).or_default().push(body);
            }
        }
        for (conn, bodies) in &asked {
            for body in bodies {
                node.reactor.send_client(*conn, &|out| out.extend_from_slice(body)).unwrap();
            }
        }
        node.reactor.flush(stage.now);
        assert_eq!(node.reactor.ledger().since(&before).writes, 2, "one write for each connection");
        until(&mut stage, &mut node, &mut [&mut ann, &mut bob], |_, guests| {
            guests.iter().all(|guest| guest.received.len() == 100)
        });
        for (guest, name) in [(&ann, b'a'), (&bob, b'b')] {
            assert!(guest.received.iter().eq((0..100).map(|i| vec![name, i]).collect::<Vec<_>>().iter()));
        }
        drop(ann);
        until(&mut stage, &mut node, &mut [&mut bob], |node, _| node.reactor.clients() == 1);
        let gone = node.seen.iter().find_map(|seen| match seen {
            Seen::ClientDown(conn) => Some(*conn),
            _ => None,
        });
        let gone = gone.unwrap();
        assert_eq!(node.reactor.send_client(gone, &|_| ()), Err(SendError::Gone));
        node.reactor.close_client(gone, "twice");
        node.reactor.vouch(gone);
        let settled = node.reactor.deadline();
        assert_eq!(settled, None, "idle clients cause no wake-up");
    }
}

/// Messages that wait in a socket are unseen by the limits of the pool. A client is therefore read repeatedly, by turns with the
/// others, up to a bound.
#[test]
fn busy_clients_are_read_by_turns_up_to_the_bound_of_a_pass() {
    let mut stage = Stage::new(1, false);
    let mut node = serve(&stage, |_| ());
    let (mut ann, mut bob) = (Guest::dial(&stage, &node), Guest::dial(&stage, &node));
    until(&mut stage, &mut node, &mut [&mut ann, &mut bob], |node, _| conns(node).len() == 2);
    let most = CLIENT_TURN_COST + READ_BYTES;
    let mut busiest = 0;
    for _ in 0..PASSES_MAX {
        for guest in [&mut ann, &mut bob] {
            if !guest.session.pending() {
                (0..100).for_each(|_| guest.send(&[7; 10_000]));
            }
            guest.pass();
        }
        let before = *node.reactor.ledger();
        stage.pass(&mut [&mut node]);
        let used = node.reactor.ledger().since(&before);
        assert!(used.bytes_in <= u64::try_from(most).unwrap(), "{} in one pass", used.bytes_in);
        busiest = used.bytes_in.max(busiest);
        let heard = std::mem::take(&mut node.seen);
        let both = conns_of(&heard);
        if busiest > 3 * u64::try_from(READ_BYTES).unwrap() && both == 2 {
            return;
        }
    }
    panic!("{busiest} bytes in one pass at most");
}

/// Returns the number of clients whose messages arrived.
fn conns_of(seen: &[Seen]) -> usize {
    let heard = seen.iter().filter_map(|seen| match seen {
        Seen::Client(conn, _) => Some(*conn),
        _ => None,
    });
    heard.collect::<std::collections::BTreeSet<_>>().len()
}

#[test]
fn closed_client_receives_its_replies_and_the_reason() {
    let mut stage = Stage::new(1, true);
    let mut node = serve(&stage, |_| ());
    let mut guest = Guest::dial(&stage, &node);
    guest.send(b"hello");
    until(&mut stage, &mut node, &mut [&mut guest], |node, _| conns(node).len() == 1);
    let conn = conns(&node)[0];
    let reply = vec![7; 900_000];
    for _ in 0..3 {
        node.reactor.send_client(conn, &|out| out.extend_from_slice(&reply)).unwrap();
    }
    node.reactor.close_client(conn, "another cluster");
    until(&mut stage, &mut node, &mut [&mut guest], |_, guests| guests[0].closed);
    assert_eq!(guest.close_reason().as_deref(), Some("another cluster"));
    assert_eq!(guest.received.len(), 4);
    assert!(guest.received[..3].iter().all(|body| *body == reply));
    assert!(node.seen.contains(&Seen::ClientDown(conn)));
    drop(guest);
    until(&mut stage, &mut node, &mut [], |node, _| node.reactor.sockets.iter().count() == 0);
}

#[test]
fn last_message_and_end_that_arrive_together_are_both_noticed() {
    for tls in [true, false] {
        let mut stage = Stage::new(1, tls);
        let mut node = serve(&stage, |_| ());
        let mut guest = Guest::dial(&stage, &node);
        guest.send(b"first");
        until(&mut stage, &mut node, &mut [&mut guest], |node, _| conns(node).len() == 1);
        let conn = conns(&node)[0];
        guest.send(b"last");
        drop(guest);
        until(&mut stage, &mut node, &mut [], |node, _| node.seen.contains(&Seen::ClientDown(conn)));
        assert!(node.seen.contains(&Seen::Client(conn, b"last".to_vec())), "tls: {tls}");
        assert_eq!(node.reactor.sockets.iter().count(), 0);
    }
}

#[test]
fn oversize_frames_and_garbage_are_refused_with_the_reason() {
    for tls in [true, false] {
        let mut stage = Stage::new(1, tls);
        let mut node = serve(&stage, |_| ());
        let mut guest = Guest::dial(&stage, &node);
        let header = u32::try_from(FRAME_BYTES_MAX + 1).unwrap().to_le_bytes();
        guest.raw(&header);
        until(&mut stage, &mut node, &mut [&mut guest], |_, guests| guests[0].closed);
        assert_eq!(guest.close_reason().as_deref(), Some("frame too large"));
        assert!(is_refused(&node, "frame too large"));
        let mut guest = Guest::dial(&stage, &node);
        guest.raw(&[0; 4]);
        until(&mut stage, &mut node, &mut [&mut guest], |_, guests| guests[0].closed);
        assert_eq!(guest.close_reason().as_deref(), Some("frame shorter than its header"));
        assert_eq!(node.reactor.clients(), 0);
    }
    let mut stage = Stage::new(1, true);
    let mut node = serve(&stage, |_| ());
    let mut garbage = Guest::with(node.clients.unwrap(), Session::plain());
    garbage.raw(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n");
    until(&mut stage, &mut node, &mut [&mut garbage], |_, guests| guests[0].closed);
    assert!(is_refused(&node, "what arrived is not TLS"));
    assert_eq!(conns(&node), [], "the stranger never became a client");
}

#[test]
fn strangers_on_the_port_of_peers_are_refused_with_the_reason() {
    let mut stage = Stage::new(3, false);
    let mut node = stage.start(1);
    let address = stage.peers[1].address;
    let mut odd = u32::MAX.to_le_bytes().to_vec();
    odd.extend_from_slice(&[0; 20]);
    let mut cases =
        vec![(odd, "frame too large"), (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n".to_vec(), "unknown lane")];
    // Only a known replica with a higher id is the right end of a link.
    for id in [0, 1, 3, u16::MAX] {
        let Identity { cluster, epoch, protocol, incarnation, .. } = stage.config(0, 1).identity;
        let hello = PeerHello {
            version: VERSION,
            cluster,
            epoch,
            protocol,
            id: ReplicaId(id),
            incarnation,
            peer_incarnation: Incarnation(0),
            next: [0; 3],
        };
        let mut bytes = Vec::new();
        put_control(&mut bytes, frame::HELLO, &hello.to_bytes());
        cases.push((bytes, Refusal::OtherReplica.reason()));
    }
    for (bytes, reason) in cases {
        node.seen.clear();
        let mut stranger = Guest::with(address, Session::plain());
        stranger.raw(&bytes);
        until(&mut stage, &mut node, &mut [&mut stranger], |_, guests| guests[0].closed);
        assert!(is_refused(&node, reason), "{:?}", node.refusals());
    }
}

#[test]
fn connection_without_a_frame_in_time_is_closed() {
    for tls in [true, false] {
        let mut stage = Stage::new(2, tls);
        let mut node = serve(&stage, |_| ());
        let peers = stage.peers[0].address;
        let mut silent = Guest::with(node.clients.unwrap(), Session::plain());
        let mut drip = Guest::dial(&stage, &node);
        let mut half_open = Guest::with(peers, Session::plain());
        let mut spoke = Guest::dial(&stage, &node);
        drip.raw(&[9, 0]);
        spoke.send(b"in time");
        until(&mut stage, &mut node, &mut [&mut silent, &mut drip, &mut half_open, &mut spoke], |node, _| {
            let spoke = node.seen.iter().any(|seen| matches!(seen, Seen::Client(..)));
            spoke && node.reactor.sockets.iter().count() == 4
        });
        let due = node.reactor.deadline().unwrap();
        assert!(due.0 <= HANDSHAKE_NS_MAX + stage.now.0);
        stage.now = stage.now.plus(HANDSHAKE_NS_MAX);
        until(&mut stage, &mut node, &mut [&mut silent, &mut drip, &mut half_open], |_, guests| {
            guests.iter().all(|guest| guest.closed)
        });
        let slow = Refusal::TooSlow.reason();
        assert_eq!(node.refusals().iter().filter(|(_, text)| *text == slow).count(), 3);
        assert_eq!(drip.close_reason().as_deref(), Some(slow));
        spoke.send(b"still here");
        until(&mut stage, &mut node, &mut [&mut spoke], |node, _| {
            let frames = |seen: &&Seen| matches!(seen, Seen::Client(..));
            node.seen.iter().filter(frames).count() == 2
        });
    }
}

#[test]
fn silent_clients_make_room_when_all_places_are_taken_and_others_stay() {
    let mut stage = Stage::new(1, true);
    let mut node = serve(&stage, |config| config.client_connections_max = 4);
    let mut guests: Vec<Guest> = Vec::new();
    for i in 0..3u8 {
        let mut guest = Guest::dial(&stage, &node);
        guest.send(&[i]);
        guests.push(guest);
    }
    until(&mut stage, &mut node, &mut guests.iter_mut().collect::<Vec<_>>(), |node, _| {
        node.seen.iter().filter(|seen| matches!(seen, Seen::Client(..))).count() == 3
    });
    let mut silent = Guest::dial(&stage, &node);
    until(&mut stage, &mut node, &mut [&mut silent], |node, _| node.reactor.clients() == 4);
    let mut fifth = Guest::dial(&stage, &node);
    fifth.send(b"room for me");
    until(&mut stage, &mut node, &mut [&mut silent, &mut fifth], |node, guests| {
        guests[0].closed
            && node.seen.iter().any(|seen| matches!(seen, Seen::Client(_, body) if body == b"room for me"))
    });
    let mut sixth = Guest::dial(&stage, &node);
    until(&mut stage, &mut node, &mut [&mut sixth], |_, guests| guests[0].closed);
    assert!(is_refused(&node, "too many connections"));
    assert_eq!(node.reactor.clients(), 4);
    guests[0].send(b"still here");
    until(&mut stage, &mut node, &mut [&mut guests[0]], |node, _| {
        node.seen.iter().any(|seen| matches!(seen, Seen::Client(_, body) if body == b"still here"))
    });
}

#[test]
fn client_that_does_not_read_is_cut_off_and_holds_no_memory() {
    let mut stage = Stage::new(1, false);
    let mut node = serve(&stage, |_| ());
    let mut guest = Guest::dial(&stage, &node);
    guest.send(b"send me much");
    until(&mut stage, &mut node, &mut [&mut guest], |node, _| conns(node).len() == 1);
    let conn = conns(&node)[0];
    let too_large = vec![0; FRAME_BYTES_MAX + 1];
    let oversize = node.reactor.send_client(conn, &|out| out.extend_from_slice(&too_large));
    assert_eq!(oversize, Err(SendError::Oversize));
    let reply = vec![7; 1 << 20];
    let mut sent = 0usize;
    while node.reactor.send_client(conn, &|out| out.extend_from_slice(&reply)).is_ok() {
        sent += reply.len();
        node.reactor.flush(stage.now);
        assert!(sent < 2 * CLIENT_OUTGOING_BYTES_MAX);
    }
    assert!(sent >= CLIENT_OUTGOING_BYTES_MAX - (2 << 20));
    assert_eq!(node.reactor.send_client(conn, &|out| out.extend_from_slice(&reply)), Err(SendError::Gone));
    stage.pass(&mut [&mut node]);
    assert!(is_refused(&node, "does not read its replies"));
    assert!(node.seen.contains(&Seen::ClientDown(conn)));
    assert_eq!(node.reactor.clients(), 0);
}

#[test]
fn unfinished_frames_of_all_clients_together_are_bounded() {
    let mut stage = Stage::new(1, false);
    let mut node = serve(&stage, |_| ());
    let mut honest = Guest::dial(&stage, &node);
    honest.send(b"honest");
    let header = client_header(FRAME_BYTES_MAX).unwrap();
    let rest = vec![0; FRAME_BYTES_MAX - 1];
    let mut hoarders = Vec::new();
    for _ in 0..18 {
        let mut guest = Guest::dial(&stage, &node);
        guest.send(b"begins");
        guest.raw(&[&header[..], &rest].concat());
        hoarders.push(guest);
    }
    until(&mut stage, &mut node, &mut hoarders.iter_mut().collect::<Vec<_>>(), |node, _| {
        node.refusals().iter().filter(|(_, text)| *text == "too many bytes in unfinished frames").count() >= 2
    });
    honest.send(b"still here");
    until(&mut stage, &mut node, &mut [&mut honest], |node, _| {
        node.seen.iter().any(|seen| matches!(seen, Seen::Client(_, body) if body == b"still here"))
    });
}

#[test]
fn flood_of_connections_does_not_stop_links_or_clients() {
    let mut stage = Stage::new(2, true);
    let mut a = serve(&stage, |_| ());
    let mut b = stage.start(1);
    stage.connect(&mut [&mut a, &mut b]);
    let mut honest = Guest::dial(&stage, &a);
    honest.send(b"before");
    let mut flood = Vec::new();
    for round in 0..60usize {
        for address in [stage.peers[0].address, a.clients.unwrap()] {
            for _ in 0..4 {
                let mut stranger = TcpStream::connect(address).unwrap();
                let _ = stranger.write(&[round as u8; 300]);
                flood.push(stranger);
            }
        }
        b.send(0, Lane::Consensus, &format!("{round}"));
        a.send(1, Lane::Consensus, &format!("{round}"));
        // A few passes suffice: the strangers before the frames do not delay them.
        for _ in 0..8 {
            stage.pass(&mut [&mut a, &mut b]);
            honest.pass();
        }
    }
    stage.until(&mut [&mut a, &mut b], |nodes| nodes[0].from(1).len() == 60 && nodes[1].from(0).len() == 60);
    honest.send(b"after");
    until(&mut stage, &mut a, &mut [&mut honest], |node, _| {
        node.seen.iter().any(|seen| matches!(seen, Seen::Client(_, body) if body == b"after"))
    });
    assert!(!a.seen.contains(&Seen::Down(1)));
    drop(flood);
    stage.now = stage.now.plus(2 * HANDSHAKE_NS_MAX);
    until(&mut stage, &mut a, &mut [&mut honest], |node, _| node.reactor.sockets.iter().count() <= 2);
}

#[test]
fn half_open_strangers_make_room_for_a_replica() {
    let mut stage = Stage::new(2, true);
    let mut a = stage.start(0);
    let strangers: Vec<TcpStream> =
        (0..200).map(|_| TcpStream::connect(stage.peers[0].address).unwrap()).collect();
    stage.until(&mut [&mut a], |nodes| {
        nodes[0].refusals().len() >= 100 && nodes[0].reactor.peer_entrance.unsettled.len() <= 70
    });
    let mut b = stage.start(1);
    stage.connect(&mut [&mut a, &mut b]);
    drop(strangers);
}

#[test]
fn unproved_client_makes_room_after_its_time_when_all_places_are_taken() {
    let mut stage = Stage::new(1, true);
    let mut node = serve(&stage, |config| config.client_connections_max = 4);
    let mut guests: Vec<Guest> = Vec::new();
    for i in 0..4u8 {
        let mut guest = Guest::dial(&stage, &node);
        guest.send(&[i]);
        until(&mut stage, &mut node, &mut [&mut guest], |node, _| {
            node.seen.iter().any(|seen| matches!(seen, Seen::Client(_, body) if *body == [i]))
        });
        guests.push(guest);
    }
    for conn in &conns(&node)[..2] {
        node.reactor.vouch(*conn);
    }
    let mut early = Guest::dial(&stage, &node);
    until(&mut stage, &mut node, &mut [&mut early], |_, guests| guests[0].closed);
    stage.now = stage.now.plus(HANDSHAKE_NS_MAX);
    for i in 4..6u8 {
        let mut guest = Guest::dial(&stage, &node);
        guest.send(&[i]);
        until(&mut stage, &mut node, &mut [&mut guest], |node, _| {
            node.seen.iter().any(|seen| matches!(seen, Seen::Client(_, body) if *body == [i]))
        });
        guests.push(guest);
    }
    until(&mut stage, &mut node, &mut guests.iter_mut().collect::<Vec<_>>(), |_, guests| {
        guests[2].closed && guests[3].closed
    });
    assert_eq!(guests[2].close_reason().as_deref(), Some("too many connections"));
    let mut late = Guest::dial(&stage, &node);
    until(&mut stage, &mut node, &mut [&mut late], |_, guests| guests[0].closed);
    assert_eq!(node.reactor.clients(), 4, "two clients are vouched for, two have time left");
    assert!(!guests[0].closed && !guests[1].closed && !guests[4].closed && !guests[5].closed);
}
