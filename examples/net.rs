//! The network alone: two programs that know each other's keys exchange messages through `quorate_net::mesh`.
//!
//! Connections are TLS 1.3, and each side accepts exactly the key that it expects. Messages arrive once and in order,
//! also across reconnects, or both sides receive a report of the loss. In this example both ends live in one program, and Anna
//! asks Ben for squares: `cargo run --release -p quorate-net --example net`. The example `relay` measures the speed.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "the program's own thread and sockets; the crate's pure parts have none"
)]

use quorate_net::mesh::{self, Event, Mesh, Receiver, Sender, To};
use quorate_net::{LinkKey, NetConfig, PeerConfig, Security, reactor};
use quorate_types::wire::Lane;
use quorate_types::{DecodeError, ProtocolId, Reader, ReplicaId, Wire};
use std::error::Error;
use std::net::TcpListener;
use std::thread;

const ANNA: ReplicaId = ReplicaId(0);
const BEN: ReplicaId = ReplicaId(1);

#[derive(Clone, PartialEq, Eq, Debug)]
enum Message {
    Square(u64),
    Is(u64),
}

// Each message has exactly one encoding, and no length in it can cause an allocation.
impl Wire for Message {
    fn encode(&self, out: &mut Vec<u8>) {
        let (tag, number) = match self {
            Self::Square(number) => (0, number),
            Self::Is(number) => (1, number),
        };
        out.push(tag);
        number.encode(out);
    }
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        match reader.u8()? {
            0 => reader.u64().map(Self::Square),
            1 => reader.u64().map(Self::Is),
            _ => Err(DecodeError::Tag("message")),
        }
    }
}

type End = (Sender<Message>, Receiver<Message>);

/// Opens one end. A real program reads its key from a file, and has the public keys and addresses of all members.
fn open(
    me: ReplicaId,
    key: LinkKey,
    peers: &[PeerConfig],
    listener: TcpListener,
) -> Result<End, Box<dyn Error>> {
    let identity = mesh::identity(ProtocolId::new("squares"), me);
    Ok(Mesh::open(NetConfig::new(identity, peers.to_vec(), Security::Tls(key), listener))?)
}

fn ben((sender, receiver): End) -> Result<(), mesh::NotSent> {
    while let Some(event) = receiver.recv() {
        if let Event::Message { from, lane, message: Message::Square(number) } = event {
            sender.send(To::One(from), lane, &Message::Is(number.saturating_mul(number)))?;
        }
    }
    Ok(())
}

/// Returns the squares of these numbers, computed by Ben.
fn squares(numbers: &[u64]) -> Result<Vec<u64>, Box<dyn Error>> {
    let key = |seed| LinkKey::from_pkcs8(&LinkKey::pkcs8_of_seed(&[seed; 32])); // For an example only: these keys are no secret.
    let (annas, bens) = (key(1)?, key(2)?);
    let listeners = (reactor::bind("127.0.0.1:0".parse()?)?, reactor::bind("127.0.0.1:0".parse()?)?);
    let peers = [
        PeerConfig { key: annas.public(), address: listeners.0.local_addr()? },
        PeerConfig { key: bens.public(), address: listeners.1.local_addr()? },
    ];
    let (sender, receiver) = open(ANNA, annas, &peers, listeners.0)?;
    let end = open(BEN, bens, &peers, listeners.1)?;
    thread::spawn(|| ben(end));
    // No peer is connected yet: messages wait.
    for number in numbers {
        sender.send(To::One(BEN), Lane::Consensus, &Message::Square(*number))?;
    }
    let mut answers = Vec::new();
    while answers.len() < numbers.len() {
        match receiver.recv().ok_or("the mesh has ended")? {
            Event::Message { message: Message::Is(number), .. } => answers.push(number),
            Event::Up(peer) => println!("connected to {peer}"),
            event => println!("{event:?}"),
        }
    }
    Ok(answers)
}

fn main() -> Result<(), Box<dyn Error>> {
    println!("{:?}", squares(&[1, 2, 3, 4])?);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ben_answers_each_number_with_its_square() {
        let numbers: Vec<u64> = (0..1_000).collect();
        let expected: Vec<u64> = numbers.iter().map(|number| number * number).collect();
        assert_eq!(squares(&numbers).unwrap(), expected);
    }

    #[test]
    fn message_decodes_from_its_own_encoding_alone() {
        for message in [Message::Square(7), Message::Is(u64::MAX)] {
            assert_eq!(Message::from_bytes(&message.to_bytes()), Ok(message));
        }
        assert!(Message::from_bytes(&[2; 9]).is_err());
    }
}
