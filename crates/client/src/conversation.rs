//! One connection to one replica: the hello, then frames in both directions. Bytes go in and out; the sockets belong to the
//! drivers.

use crate::cluster::{ClusterInfo, LinkMode};
use quorate_net::{Session as Channel, tls};
use quorate_types::codec::Wire;
use quorate_types::limits::{CLIENT_OUTGOING_BYTES_MAX, FRAME_BYTES_MAX};
use quorate_types::wire::{FromClient, FromReplica, VERSION};
use quorate_types::{ClientId, ReplicaId};
use rustls::ClientConfig;
use std::io::{self, IoSlice, Write};
use std::sync::Arc;

/// Bytes handed to the channel at once: enough for full records, and few enough that little is buffered twice.
const HANDOVER_BYTES: usize = 256 << 10;
/// Memory that an idle connection keeps for each direction.
const KEEP_BYTES: usize = 1 << 20;
/// Bytes of the length before each frame.
const LENGTH_BYTES: usize = 4;

/// The reason why a connection ended.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum Broken {
    #[error("{}", .0.reason())]
    Channel(quorate_net::Refusal),
    #[error("a frame of {0} bytes exceeds the limit")]
    TooLong(u32),
    #[error("a malformed message: {0}")]
    Malformed(quorate_types::DecodeError),
    #[error("the hello names replica {0}, another cluster or another version")]
    Stranger(ReplicaId),
    #[error("a message arrived before the hello")]
    NoHello,
    #[error("closed by the replica: {0}")]
    Closed(String),
}

/// The configuration for dialling a replica: made once, used for each connection.
pub(crate) struct Dial {
    id: ReplicaId,
    tls: Option<Arc<ClientConfig>>,
}

impl Dial {
    pub(crate) fn new(cluster: &ClusterInfo, id: ReplicaId) -> Result<Self, tls::TlsError> {
        let replica = cluster.replicas.get(id.index());
        let tls = match (cluster.links, replica) {
            (LinkMode::Tls, Some(replica)) => Some(tls::dial_replica(replica.link)?),
            (LinkMode::Plain, _) | (_, None) => None,
        };
        Ok(Self { id, tls })
    }
}

/// One connection.
pub(crate) struct Conversation {
    id: ReplicaId,
    channel: Channel,
    /// The beginning of a frame whose rest has not arrived yet.
    partial: Vec<u8>,
    /// Frames that wait for the channel, gathered so that many share a record.
    outgoing: Vec<u8>,
    cluster: quorate_types::ClusterId,
    greeted: bool,
}

impl Conversation {
    /// Begins a conversation: queues the hello, and the attachment of these clients.
    pub(crate) fn new(
        dial: &Dial,
        cluster: &ClusterInfo,
        clients: Vec<ClientId>,
    ) -> Result<Self, quorate_net::Refusal> {
        let channel = match &dial.tls {
            Some(config) => Channel::dial(config)?,
            None => Channel::plain(),
        };
        let mut conversation = Self {
            id: dial.id,
            channel,
            partial: Vec::new(),
            outgoing: Vec::new(),
            cluster: cluster.cluster,
            greeted: false,
        };
        conversation.send(&FromClient::Hello { version: VERSION, cluster: cluster.cluster });
        if !clients.is_empty() {
            conversation.send(&FromClient::Attach(clients));
        }
        Ok(conversation)
    }

    /// Whether the replica's hello has arrived.
    pub(crate) fn is_greeted(&self) -> bool {
        self.greeted
    }

    pub(crate) fn send(&mut self, message: &FromClient) {
        self.queue(&message.to_bytes());
    }

    /// Queues a frame; false if the queue is full and the frame was dropped. The core sends important frames again.
    pub(crate) fn queue(&mut self, frame: &[u8]) -> bool {
        let size = frame.len().saturating_add(LENGTH_BYTES);
        let Ok(length) = u32::try_from(frame.len()) else {
            return false;
        };
        if self.outgoing.len().saturating_add(size) > CLIENT_OUTGOING_BYTES_MAX {
            return false;
        }
        length.encode(&mut self.outgoing);
        self.outgoing.extend_from_slice(frame);
        true
    }

    /// Takes bytes of the socket and passes the messages in them to `sink`.
    pub(crate) fn receive(
        &mut self,
        bytes: &[u8],
        sink: &mut dyn FnMut(ReplicaId, FromReplica),
    ) -> Result<(), Broken> {
        let (partial, greeted) = (&mut self.partial, &mut self.greeted);
        let (id, cluster) = (self.id, self.cluster);
        let mut broken = None;
        let read = self.channel.read(bytes, &mut |plain| {
            let result = frames(partial, plain, &mut |frame| {
                let message = FromReplica::from_bytes(frame).map_err(Broken::Malformed)?;
                match &message {
                    FromReplica::Hello { version, cluster: theirs, id: claimed } => {
                        if (*version, *theirs, *claimed) != (VERSION, cluster, id) {
                            return Err(Broken::Stranger(*claimed));
                        }
                        *greeted = true;
                    }
                    FromReplica::Close(reason) => return Err(Broken::Closed(reason.clone())),
                    _ if !*greeted => return Err(Broken::NoHello),
                    _ => sink(id, message),
                }
                Ok(())
            });
            result.map_err(|why| {
                broken = Some(why);
                quorate_net::Refusal::Closed
            })
        });
        read.map_err(|why| broken.unwrap_or(Broken::Channel(why)))
    }

    /// Whether bytes wait to be written.
    pub(crate) fn wants_write(&self) -> bool {
        !self.outgoing.is_empty() || self.channel.pending()
    }

    /// Writes until no byte waits or the socket takes no more.
    pub(crate) fn write(&mut self, socket: &mut dyn Write) -> io::Result<()> {
        loop {
            while self.channel.pending() {
                match self.channel.write(socket) {
                    Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                    Ok(_) => {}
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) => return Err(error),
                }
            }
            // Before the end of the handshake the channel would only buffer the bytes.
            if self.outgoing.is_empty() || self.channel.is_handshaking() {
                return Ok(());
            }
            let mut handed = 0;
            for piece in self.outgoing.chunks(HANDOVER_BYTES).take(1) {
                self.channel.send(&[IoSlice::new(piece)]);
                handed = piece.len();
            }
            if handed == self.outgoing.len() {
                self.outgoing.clear();
                if self.outgoing.capacity() > KEEP_BYTES {
                    self.outgoing = Vec::new();
                }
            } else {
                self.outgoing.drain(..handed);
            }
        }
    }
}

/// Takes whole frames out of `plain`, and completes the frame that began in `partial`. Memory grows only with received bytes,
/// never with a length field.
fn frames(
    partial: &mut Vec<u8>,
    mut plain: &[u8],
    each: &mut dyn FnMut(&[u8]) -> Result<(), Broken>,
) -> Result<(), Broken> {
    while !partial.is_empty() && !plain.is_empty() {
        let wanted = match frame_size(partial)? {
            Some(size) => size,
            None => LENGTH_BYTES,
        };
        let missing = wanted.saturating_sub(partial.len());
        let (taken, rest) = plain.split_at(missing.min(plain.len()));
        partial.extend_from_slice(taken);
        plain = rest;
        if frame_size(partial)?.is_some_and(|size| size == partial.len()) {
            let frame = std::mem::take(partial);
            each(frame.get(LENGTH_BYTES..).unwrap_or_default())?;
            if frame.capacity() <= KEEP_BYTES {
                *partial = frame;
                partial.clear();
            }
        }
    }
    while let Some(size) = frame_size(plain)?
        && let Some((frame, rest)) = plain.split_at_checked(size)
    {
        each(frame.get(LENGTH_BYTES..).unwrap_or_default())?;
        plain = rest;
    }
    partial.extend_from_slice(plain);
    Ok(())
}

/// Returns the bytes of the frame that begins here, its length included; `None` before its length has arrived.
fn frame_size(bytes: &[u8]) -> Result<Option<usize>, Broken> {
    let Some(length) = bytes.first_chunk::<LENGTH_BYTES>() else {
        return Ok(None);
    };
    let length = u32::from_le_bytes(*length);
    match usize::try_from(length) {
        Ok(size) if size <= FRAME_BYTES_MAX => Ok(Some(size.saturating_add(LENGTH_BYTES))),
        _ => Err(Broken::TooLong(length)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quorate_types::mutate::{arbitrary, mutate};
    use quorate_types::rng::Rng;

    /// The frames are the same for every cut of the bytes. A length over the limit ends the stream.
    #[test]
    fn frames_are_whole_for_every_cut() {
        let bodies: Vec<Vec<u8>> = [0usize, 1, 3, 70, 5_000, 0, 2].map(|n| vec![n as u8; n]).to_vec();
        let mut stream = Vec::new();
        for body in &bodies {
            u32::try_from(body.len()).unwrap().encode(&mut stream);
            stream.extend_from_slice(body);
        }
        for cut in [1, 2, 3, 4, 5, 7, 64, 4_999, 100_000] {
            let (mut partial, mut seen) = (Vec::new(), Vec::new());
            for piece in stream.chunks(cut) {
                frames(&mut partial, piece, &mut |frame| {
                    seen.push(frame.to_vec());
                    Ok(())
                })
                .unwrap();
                assert!(partial.len() <= 5_004);
            }
            assert_eq!(seen, bodies, "cut into {cut}");
            assert!(partial.is_empty());
        }
        let mut partial = Vec::new();
        let huge = u32::try_from(FRAME_BYTES_MAX).unwrap() + 1;
        let result = frames(&mut partial, &huge.to_le_bytes(), &mut |_| Ok(()));
        assert_eq!(result, Err(Broken::TooLong(huge)));
    }

    /// Frames come out whole for any bytes of a replica, cut anywhere, and no more is kept than has arrived.
    #[test]
    fn arbitrary_streams_are_bounded() {
        let mut rng = Rng::new(1);
        let mut sample = Vec::new();
        for length in [0u32, 3, 40] {
            length.encode(&mut sample);
            sample.extend(std::iter::repeat_n(7, length as usize));
        }
        let (mut refused, mut whole) = (0, 0);
        for _ in 0..20_000 {
            let mut stream = sample.clone();
            if rng.chance(200_000) {
                stream = arbitrary(&mut rng, 200);
            } else {
                mutate(&mut rng, &mut stream, &sample);
            }
            let (mut partial, mut came, mut rest) = (Vec::new(), 0, stream.as_slice());
            while !rest.is_empty() {
                let (piece, later) = rest.split_at(1 + rng.index(rest.len()));
                rest = later;
                came += piece.len();
                let mut seen = 0;
                let result = frames(&mut partial, piece, &mut |frame| {
                    seen += frame.len();
                    Ok(())
                });
                whole += seen;
                assert!(partial.len() + seen <= came && partial.capacity() <= 4 * came + 64, "{stream:?}");
                if result.is_err() {
                    refused += 1;
                    break;
                }
            }
        }
        assert!(refused > 1_000 && whole > 100_000, "{refused} {whole}");
    }
}
