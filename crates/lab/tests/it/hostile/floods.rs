//! Floods: connections that send nothing, send slowly, or never read.

use super::attacker::{Attacker, PATIENCE, client_frame};
use super::clients::{Signer, outcomes};
use super::target::Target;
use quorate_app::KvOp;
use quorate_net::{Session, tls};
use quorate_types::codec::Wire as _;
use quorate_types::limits::{CLIENT_OUTGOING_BYTES_MAX, HANDSHAKE_NS_MAX};
use quorate_types::wire::FromClient;
use quorate_types::{ClientId, PublicKey, ReplicaId};
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

/// Whether the other side has closed. Received bytes are dropped.
fn is_closed(stream: &mut TcpStream) -> bool {
    let mut buffer = [0; 4_096];
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                return false;
            }
            Err(_) => return true,
        }
    }
}

fn connect(address: std::net::SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_nonblocking(true).unwrap();
    stream
}

fn descriptors(target: &Target, id: u16) -> usize {
    let pid = target.cluster.nodes.pid(ReplicaId(id)).unwrap();
    std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count()
}

#[test]
fn silent_and_slow_connections_are_closed_in_time() {
    let mut target = Target::start();
    let before = descriptors(&target, 0);
    let start = Instant::now();
    let (peers, clients) = (target.peers_of(0), target.clients_of(0));
    let mut silent: Vec<TcpStream> = (0..300).map(|_| connect(peers)).collect();
    silent.extend((0..300).map(|_| connect(clients)));
    // Some handshakes come byte by byte, and one ends before the first frame.
    let hello = {
        let mut session = Session::dial(&tls::dial_replica(target.listed(0)).unwrap()).unwrap();
        let mut hello = Vec::new();
        session.write(&mut hello).unwrap();
        hello
    };
    let mut slow: Vec<(TcpStream, usize)> =
        (0..10).flat_map(|_| [(connect(peers), 0), (connect(clients), 0)]).collect();
    let mut shaken = target.client(0);
    shaken.shake_hands();
    shaken.say(&[40, 0]);

    // The port of peers admits a limited number of strangers; further ones are closed at once.
    target.until_refused(0, "stranger 127.0.0.1", "too many connections", 200);
    assert!(descriptors(&target, 0) < before + 300 + 150 + 256, "{} descriptors", descriptors(&target, 0));
    target.is_well("silent connections");

    let deadline = start + Duration::from_nanos(HANDSHAKE_NS_MAX);
    while !silent.is_empty() || !slow.is_empty() || shaken.end.is_none() {
        assert!(
            Instant::now() < deadline + PATIENCE,
            "{} silent and {} slow connections are open, {:?}",
            silent.len(),
            slow.len(),
            shaken.end
        );
        silent.retain_mut(|stream| !is_closed(stream));
        slow.retain_mut(|(stream, sent)| {
            let said = hello.get(*sent..=*sent).is_none_or(|byte| stream.write_all(byte).is_ok());
            *sent += 1;
            said && !is_closed(stream)
        });
        shaken.read();
        thread::park_timeout(Duration::from_millis(20));
    }
    assert_eq!(shaken.farewell().as_deref(), Some("handshake took too long"));
    target.until_refused(0, "client 127.0.0.1", "handshake took too long", 311);
    target.until_refused(0, "stranger 127.0.0.1", "handshake took too long", 1);
    let deadline = Instant::now() + PATIENCE;
    while descriptors(&target, 0) > before + 8 {
        assert!(Instant::now() < deadline, "{} descriptors, {before} before", descriptors(&target, 0));
        target.serves("the deadline");
    }
    target.is_well("the deadline of silent connections");
}

#[test]
fn thousands_of_connections_and_frames_leave_no_memory() {
    let mut target = Target::start();
    for round in 0u32..10 {
        for address in [target.peers_of(0), target.clients_of(0)] {
            let mut crowd: Vec<TcpStream> = (0..150).map(|_| connect(address)).collect();
            for stream in &mut crowd {
                let _ = stream.write(&round.to_le_bytes().repeat(100));
            }
        }
        // Some frames never end, some are small and many, and some name clients that do not exist.
        let mut hoarder = target.greeted_client(0);
        let unfinished = [&(4u32 << 20).to_le_bytes()[..], &vec![2; 3 << 20]].concat();
        hoarder.say(&unfinished);
        let mut chatter = target.greeted_client(0);
        chatter.say(&client_frame(&[2]).repeat(20_000));
        let mut greedy = target.greeted_client(0);
        let names: Vec<ClientId> = (0..16_000u32)
            .map(|i| {
                let mut name = [7; 32];
                name[..8].copy_from_slice(&(u64::from(round) << 32 | u64::from(i)).to_le_bytes());
                PublicKey(name)
            })
            .collect();
        greedy.say_to_replica(&FromClient::Attach(names));
    }
    target.until_refused(0, "client 127.0.0.1", "malformed bundle", 200_000);
    target.is_well("thousands of connections and frames");
    let deadline = Instant::now() + PATIENCE;
    while target.status(0)["clients"]["attached"].as_u64().unwrap() > 100 {
        assert!(Instant::now() < deadline, "names of disconnected clients are kept");
    }
}

#[test]
fn client_that_does_not_read_is_disconnected() {
    let mut target = Target::start();
    let signer = Signer::new(&target);
    let mut at = target.greeted_client(0);
    let session = signer.open(&mut at, 5);
    // The bundle is executed once; each repetition is answered by the same reply.
    let echo = KvOp::Echo { reply_bytes: 1_000_000, padding: b"" }.to_bytes();
    let bundle = signer.requests(session, 1, &[echo]);
    at.say_to_replica(&bundle);
    at.until("the first reply", |at| outcomes(at).iter().any(|(number, _)| *number == 1));
    let frame = client_frame(&bundle.to_bytes());
    let asked = 2 * CLIENT_OUTGOING_BYTES_MAX / 1_000_000;
    for _ in 0..asked {
        at.say(&frame);
    }
    target.until_refused(0, "client 127.0.0.1", "does not read its replies", 1);
    target.is_well("a client that does not read");
    // Another reader receives the same reply at once.
    let mut reader = Attacker::over(
        target.clients_of(0),
        Session::dial(&tls::dial_replica(target.listed(0)).unwrap()).unwrap(),
    );
    reader.say_to_replica(&target.hello());
    reader.say_to_replica(&bundle);
    reader.until("the kept reply", |reader| outcomes(reader).iter().any(|(number, _)| *number == 1));
}
