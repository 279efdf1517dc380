//! What travels: the frames of links between replicas, and the messages between clients and replicas.
//! `docs/wire.md` describes this file and carries its hash.

use crate::bundle::Authenticator;
use crate::codec::{DecodeError, Reader, Wire, put_bytes};
use crate::ids::{BundleDigest, ClientId, ClusterId, Epoch, Incarnation, ProtocolId, PublicKey, ReplicaId};
use crate::limits::{ATTACHED_PER_CONNECTION_MAX, REASON_BYTES_MAX, STATUS_BYTES_MAX};
use crate::reply::ReplyBundle;

/// Version of the wire format. Both sides must have the same.
pub const VERSION: u16 = 1;

/// Lanes of a link, in the order in which they are served. Frames of one lane stay in order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Lane {
    /// Protocol messages and checkpoints.
    Consensus,
    /// Bodies.
    Bodies,
    /// What helps a laggard.
    CatchUp,
}

impl Lane {
    /// All lanes in their order.
    pub const ALL: [Self; 3] = [Self::Consensus, Self::Bodies, Self::CatchUp];

    /// The lane as it stands in a frame.
    #[must_use]
    pub const fn tag(self) -> u8 {
        match self {
            Self::Consensus => 0,
            Self::Bodies => 1,
            Self::CatchUp => 2,
        }
    }

    /// The lane of a tag.
    #[must_use]
    pub const fn from_tag(tag: u8) -> Option<Self> {
        match tag {
            0 => Some(Self::Consensus),
            1 => Some(Self::Bodies),
            2 => Some(Self::CatchUp),
            _ => None,
        }
    }

    /// Bytes of one frame on this lane at most.
    #[must_use]
    pub const fn frame_bytes_max(self) -> usize {
        match self {
            Self::Consensus => crate::limits::FRAME_CONSENSUS_BYTES_MAX,
            Self::Bodies | Self::CatchUp => crate::limits::FRAME_BYTES_MAX,
        }
    }
}

/// Types of frames between replicas (the `u8` after the sequence number).
pub mod frame {
    /// A protocol message; ends with a 64-byte signature where the message is `Signed`.
    pub const PROTOCOL: u8 = 1;
    /// A host message.
    pub const HOST: u8 = 2;
    /// A bundle: authenticator and content.
    pub const BUNDLE: u8 = 3;
    /// A payload: the list of bundle digests of a block.
    pub const PAYLOAD: u8 = 4;
    /// Only acknowledges (made and consumed by the link itself).
    pub const ACK: u8 = 5;
    /// First frame of a connection (made and consumed by the link itself).
    pub const HELLO: u8 = 6;
    /// Why the connection is being closed (made and consumed by the link itself).
    pub const CLOSE: u8 = 7;
}

/// First frame in both directions of a link: both sides must agree on all but the last three fields.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PeerHello {
    /// [`VERSION`].
    pub version: u16,
    /// Which cluster.
    pub cluster: ClusterId,
    /// Which committee.
    pub epoch: Epoch,
    /// Which protocol.
    pub protocol: ProtocolId,
    /// Who speaks.
    pub id: ReplicaId,
    /// Its incarnation: sequence numbers start again with each.
    pub incarnation: Incarnation,
    /// The incarnation of the other side that `next` counts frames of; zero when it knows none.
    pub heard: Incarnation,
    /// Next sequence number expected from the other side, for each lane.
    pub next: [u64; 3],
}

impl Wire for PeerHello {
    fn encode(&self, out: &mut Vec<u8>) {
        self.version.encode(out);
        self.cluster.encode(out);
        self.epoch.encode(out);
        self.protocol.encode(out);
        self.id.encode(out);
        self.incarnation.encode(out);
        self.heard.encode(out);
        for next in self.next {
            next.encode(out);
        }
    }
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self {
            version: reader.u16()?,
            cluster: ClusterId::decode(reader)?,
            epoch: Epoch::decode(reader)?,
            protocol: ProtocolId::decode(reader)?,
            id: ReplicaId::decode(reader)?,
            incarnation: Incarnation::decode(reader)?,
            heard: Incarnation::decode(reader)?,
            next: [reader.u64()?, reader.u64()?, reader.u64()?],
        })
    }
}

/// What a client says. On the wire: `u32` length and this.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FromClient {
    /// First message of a connection.
    Hello {
        /// [`VERSION`].
        version: u16,
        /// Which cluster the client means.
        cluster: ClusterId,
    },
    /// This connection wants the replies for these clients.
    Attach(Vec<ClientId>),
    /// A bundle; its content is checked by [`crate::Bundle::parse`].
    Bundle {
        /// What vouches for it.
        authenticator: Authenticator,
        /// The encoded content: all the rest of the message.
        content: Vec<u8>,
    },
    /// What is this replica doing? Ten a second.
    Status,
}

/// Tag of [`FromClient::Bundle`]: the server finds the content in its read buffer without copying it.
pub const CLIENT_BUNDLE_TAG: u8 = 2;

impl Wire for FromClient {
    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Hello { version, cluster } => {
                out.push(0);
                version.encode(out);
                cluster.encode(out);
            }
            Self::Attach(clients) => {
                out.push(1);
                crate::codec::put_list(out, clients);
            }
            Self::Bundle { authenticator, content } => {
                out.push(CLIENT_BUNDLE_TAG);
                authenticator.encode(out);
                out.extend_from_slice(content);
            }
            Self::Status => out.push(3),
        }
    }
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(match reader.u8()? {
            0 => Self::Hello { version: reader.u16()?, cluster: ClusterId::decode(reader)? },
            1 => Self::Attach(reader.list("clients", ATTACHED_PER_CONNECTION_MAX, 32, PublicKey::decode)?),
            CLIENT_BUNDLE_TAG => Self::Bundle {
                authenticator: Authenticator::decode(reader)?,
                content: reader.take_rest().to_vec(),
            },
            3 => Self::Status,
            _ => return Err(DecodeError::Tag("client message")),
        })
    }
}

/// Why a bundle was not taken. Advice: never a result, and one replica may lie about it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, PartialOrd, Ord)]
pub enum Refusal {
    /// Too much waits already; try again later.
    Busy,
    /// The authenticator does not hold.
    BadSignature,
    /// The form is wrong or a limit is exceeded.
    Malformed,
    /// The height that opened the session is executed, and there is no such session of this client.
    NoSession,
    /// Another bundle was seen under this number.
    NumberReused,
    /// The number lies too far above the floor of the session, as far as this replica has executed.
    OutOfWindow,
    /// The client is not registered.
    NotRegistered,
    /// Executed, and the results are no longer kept.
    Forgotten,
    /// The height that opened the session is not executed here yet.
    Behind,
}

impl Refusal {
    const ALL: [Self; 9] = [
        Self::Busy,
        Self::BadSignature,
        Self::Malformed,
        Self::NoSession,
        Self::NumberReused,
        Self::OutOfWindow,
        Self::NotRegistered,
        Self::Forgotten,
        Self::Behind,
    ];

    /// Whether a client that keeps to the rules never hears this.
    #[must_use]
    pub const fn is_breach(self) -> bool {
        matches!(self, Self::BadSignature | Self::Malformed | Self::NumberReused)
    }
}

impl Wire for Refusal {
    fn encode(&self, out: &mut Vec<u8>) {
        let tag = Self::ALL.iter().position(|refusal| refusal == self).unwrap_or_default();
        out.push(u8::try_from(tag).unwrap_or_default());
    }
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let tag = usize::from(reader.u8()?);
        Self::ALL.get(tag).copied().ok_or(DecodeError::Tag("refusal"))
    }
}

/// What a replica says to a client.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FromReplica {
    /// First message of a connection.
    Hello {
        /// [`VERSION`].
        version: u16,
        /// Which cluster.
        cluster: ClusterId,
        /// Who speaks.
        id: ReplicaId,
    },
    /// The result of a bundle, addressed to its client.
    Reply(ClientId, ReplyBundle),
    /// A bundle was not taken.
    Refused {
        /// Whose bundle.
        client: ClientId,
        /// Which content.
        bundle: BundleDigest,
        /// Why.
        why: Refusal,
    },
    /// The answer to [`FromClient::Status`]: JSON.
    Status(String),
    /// The connection is about to be closed, for this reason.
    Close(String),
}

impl Wire for FromReplica {
    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Hello { version, cluster, id } => {
                out.push(0);
                version.encode(out);
                cluster.encode(out);
                id.encode(out);
            }
            Self::Reply(client, reply) => {
                out.push(1);
                client.encode(out);
                reply.encode(out);
            }
            Self::Refused { client, bundle, why } => {
                out.push(2);
                client.encode(out);
                bundle.encode(out);
                why.encode(out);
            }
            Self::Status(json) => {
                out.push(3);
                put_bytes(out, json.as_bytes());
            }
            Self::Close(reason) => {
                out.push(4);
                put_bytes(out, reason.as_bytes());
            }
        }
    }
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(match reader.u8()? {
            0 => Self::Hello {
                version: reader.u16()?,
                cluster: ClusterId::decode(reader)?,
                id: ReplicaId::decode(reader)?,
            },
            1 => Self::Reply(PublicKey::decode(reader)?, ReplyBundle::decode(reader)?),
            2 => Self::Refused {
                client: PublicKey::decode(reader)?,
                bundle: BundleDigest::decode(reader)?,
                why: Refusal::decode(reader)?,
            },
            3 => Self::Status(reader.text("status", STATUS_BYTES_MAX)?.to_owned()),
            4 => Self::Close(reader.text("reason", REASON_BYTES_MAX)?.to_owned()),
            _ => return Err(DecodeError::Tag("replica message")),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::Signature;

    #[test]
    fn client_messages_round_trip() {
        for message in [
            FromClient::Hello { version: VERSION, cluster: ClusterId::ZERO },
            FromClient::Attach(vec![PublicKey([1; 32]), PublicKey([2; 32])]),
            FromClient::Bundle { authenticator: Authenticator::None, content: vec![1, 2, 3] },
            FromClient::Bundle {
                authenticator: Authenticator::Signature(Signature([9; 64])),
                content: vec![],
            },
            FromClient::Status,
        ] {
            assert_eq!(FromClient::from_bytes(&message.to_bytes()), Ok(message));
        }
    }

    #[test]
    fn every_refusal_has_its_own_tag() {
        for refusal in Refusal::ALL {
            assert_eq!(Refusal::from_bytes(&refusal.to_bytes()), Ok(refusal));
        }
    }
}
