//! A connection of an attacker, which follows only the rules that the attack needs.

use quorate_net::Session;
use quorate_types::ReplyBundle;
use quorate_types::codec::Wire as _;
use quorate_types::wire::{FromReplica, frame};
use std::io::{ErrorKind, IoSlice, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// Longest time for which a test waits.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
/// Longest wait of one read before the condition is checked again.
const READ_PATIENCE: Duration = Duration::from_millis(20);

pub(crate) struct Attacker {
    stream: TcpStream,
    session: Session,
    /// Plain text that was received.
    pub(crate) heard: Vec<u8>,
    /// All bytes that were written to the socket, as an eavesdropper could record them.
    pub(crate) written: Vec<u8>,
    /// The reason of the end.
    pub(crate) end: Option<String>,
}

/// A socket whose written bytes are recorded.
struct RecordedSocket<'a>(&'a mut TcpStream, &'a mut Vec<u8>);

impl Write for RecordedSocket<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let count = self.0.write(bytes)?;
        self.1.extend_from_slice(&bytes[..count]);
        Ok(count)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Attacker {
    /// Connects without TLS.
    pub(crate) fn plain(address: SocketAddr) -> Self {
        Self::over(address, Session::plain())
    }

    pub(crate) fn over(address: SocketAddr, session: Session) -> Self {
        Self::on(TcpStream::connect(address).unwrap(), session)
    }

    pub(crate) fn on(stream: TcpStream, session: Session) -> Self {
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(READ_PATIENCE)).unwrap();
        stream.set_write_timeout(Some(Duration::from_millis(500))).unwrap();
        Self { stream, session, heard: Vec::new(), written: Vec::new(), end: None }
    }

    /// Writes until nothing is left, or the other side reads nothing for half a second.
    pub(crate) fn write(&mut self) {
        while self.session.pending() {
            match self.session.write(&mut RecordedSocket(&mut self.stream, &mut self.written)) {
                Ok(_) => {}
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => return,
                Err(error) => {
                    // Bytes that the other side sent before it closed can still be read.
                    self.end_with(&error.to_string());
                    return;
                }
            }
        }
    }

    fn end_with(&mut self, why: &str) {
        let mut rest = Vec::new();
        let _ = self.stream.read_to_end(&mut rest);
        let heard = &mut self.heard;
        let _ = self.session.read(&rest, &mut |plain| {
            heard.extend_from_slice(plain);
            Ok(())
        });
        self.end.get_or_insert(why.to_owned());
    }

    pub(crate) fn say(&mut self, plain: &[u8]) {
        self.session.send(&[IoSlice::new(plain)]);
        self.write();
    }

    /// Sends one message on the clients' port.
    pub(crate) fn say_to_replica(&mut self, message: &quorate_types::wire::FromClient) {
        self.say(&client_frame(&message.to_bytes()));
    }

    /// Reads once, with a short wait.
    pub(crate) fn read(&mut self) {
        self.write();
        let mut buffer = vec![0; 256 << 10];
        match self.stream.read(&mut buffer) {
            Ok(0) => self.end_with("closed"),
            Ok(count) => {
                let heard = &mut self.heard;
                let read = self.session.read(&buffer[..count], &mut |plain| {
                    heard.extend_from_slice(plain);
                    Ok(())
                });
                if let Err(refusal) = read {
                    self.end.get_or_insert(refusal.reason().to_owned());
                }
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            Err(error) => self.end_with(&error.to_string()),
        }
        self.write();
    }

    pub(crate) fn until(&mut self, what: &str, done: impl Fn(&Self) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !done(self) {
            assert!(
                Instant::now() < deadline,
                "{what}: end {:?}, heard {} bytes",
                self.end,
                self.heard.len()
            );
            assert!(self.end.is_none(), "{what}: ended with {:?}", self.end);
            self.read();
        }
    }

    /// Waits for the end of the connection.
    pub(crate) fn until_closed(&mut self, what: &str) {
        let deadline = Instant::now() + PATIENCE;
        while self.end.is_none() {
            assert!(Instant::now() < deadline, "{what}: still open");
            self.read();
        }
    }

    pub(crate) fn shake_hands(&mut self) {
        self.until("the handshake", |attacker| !attacker.session.is_handshaking());
        self.write();
    }

    /// Returns the messages that a replica has sent on the clients' port.
    pub(crate) fn messages(&self) -> Vec<FromReplica> {
        let mut rest = &self.heard[..];
        let mut messages = Vec::new();
        while let Some((length, body)) = rest.split_first_chunk::<4>() {
            let length = u32::from_le_bytes(*length) as usize;
            let Some((frame, next)) = body.split_at_checked(length) else { break };
            messages.push(FromReplica::from_bytes(frame).unwrap());
            rest = next;
        }
        messages
    }

    /// Returns the replies among these messages.
    pub(crate) fn replies(&self) -> Vec<ReplyBundle> {
        let replies = self.messages().into_iter().filter_map(|message| match message {
            FromReplica::Reply(_, reply) => Some(reply),
            _ => None,
        });
        replies.collect()
    }

    /// Returns the reason that the replica sent on the clients' port.
    pub(crate) fn farewell(&self) -> Option<String> {
        self.messages().into_iter().find_map(|message| match message {
            FromReplica::Close(reason) => Some(reason),
            _ => None,
        })
    }

    /// Returns the reason that the replica sent on the peers' port.
    pub(crate) fn peer_farewell(&self) -> Option<String> {
        let frames = peer_frames(&self.heard);
        frames
            .into_iter()
            .find(|(kind, _)| *kind == frame::CLOSE)
            .map(|(_, body)| String::from_utf8(body).unwrap())
    }
}

pub(crate) fn client_frame(body: &[u8]) -> Vec<u8> {
    [&u32::try_from(body.len()).unwrap().to_le_bytes()[..], body].concat()
}

/// A frame between replicas.
pub(crate) fn peer_frame(lane: u8, number: u64, kind: u8, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len() + 10).unwrap();
    [&length.to_le_bytes()[..], &[lane], &number.to_le_bytes(), &[kind], body].concat()
}

/// Types and bodies of frames between replicas.
pub(crate) fn peer_frames(mut heard: &[u8]) -> Vec<(u8, Vec<u8>)> {
    let mut frames = Vec::new();
    while let Some((length, rest)) = heard.split_first_chunk::<4>() {
        let Some((frame, next)) = rest.split_at_checked(u32::from_le_bytes(*length) as usize) else { break };
        frames.push((frame[9], frame[10..].to_vec()));
        heard = next;
    }
    frames
}
