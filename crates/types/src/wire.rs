//! The wire format: frames of links between replicas, and messages between clients and replicas.
//! `docs/wire.md` describes this file and carries its hash.

use crate::bundle::Authenticator;
use crate::codec::{DecodeError, Reader, Wire, put_bytes, put_tagged};
use crate::ids::{
    BundleDigest, ClientId, ClusterId, Epoch, Incarnation, ProtocolId, PublicKey, ReplicaId, Signature,
};
use crate::limits::{ATTACHED_PER_CONNECTION_MAX, REASON_BYTES_MAX, STATUS_BYTES_MAX};
use crate::order_proof::OrderProof;
use crate::reply::ReplyBundle;

/// Version of the wire format. Both sides must have the same.
pub const VERSION: u16 = 2;

/// Lanes of a link, in the order in which they are served. Frames of one lane stay in order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Lane {
    /// Protocol messages and checkpoints.
    Consensus,
    /// Bodies.
    Bodies,
    /// Blocks, ids and snapshots for a laggard.
    CatchUp,
}

impl Lane {
    /// All lanes in their order.
    pub const ALL: [Self; 3] = [Self::Consensus, Self::Bodies, Self::CatchUp];

    /// Returns the byte that stands for the lane in a frame.
    #[must_use]
    pub const fn tag(self) -> u8 {
        match self {
            Self::Consensus => 0,
            Self::Bodies => 1,
            Self::CatchUp => 2,
        }
    }

    /// Returns the lane of a tag.
    #[must_use]
    pub const fn from_tag(tag: u8) -> Option<Self> {
        match tag {
            0 => Some(Self::Consensus),
            1 => Some(Self::Bodies),
            2 => Some(Self::CatchUp),
            _ => None,
        }
    }

    /// Returns the largest number of bytes of a frame on this lane.
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
    /// A protocol message. It ends with a 64-byte signature if the message is `Signed`.
    pub const PROTOCOL: u8 = 1;
    /// A host message.
    pub const HOST: u8 = 2;
    /// A bundle: authenticator and content.
    pub const BUNDLE: u8 = 3;
    /// A payload: the list of bundle digests of a block.
    pub const PAYLOAD: u8 = 4;
    /// An acknowledgement without content. Links create and consume it themselves.
    pub const ACK: u8 = 5;
    /// The first frame of a connection. Links create and consume it themselves.
    pub const HELLO: u8 = 6;
    /// The reason why the connection is being closed. Links create and consume it themselves.
    pub const CLOSE: u8 = 7;
}

/// The first frame in both directions of a link. Both sides must agree on version, cluster, epoch and protocol.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PeerHello {
    /// [`VERSION`].
    pub version: u16,
    /// The id of the cluster.
    pub cluster: ClusterId,
    /// The epoch of the committee.
    pub epoch: Epoch,
    /// The protocol that the cluster runs.
    pub protocol: ProtocolId,
    /// The replica that sends the hello.
    pub id: ReplicaId,
    /// The sender's incarnation. Sequence numbers start again with each.
    pub incarnation: Incarnation,
    /// The incarnation of the other side whose frames `next` counts. Zero stands for none.
    pub peer_incarnation: Incarnation,
    /// The next sequence number expected from the other side, for each lane.
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
        self.peer_incarnation.encode(out);
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
            peer_incarnation: Incarnation::decode(reader)?,
            next: [reader.u64()?, reader.u64()?, reader.u64()?],
        })
    }
}

/// A message from a client. On the wire, a `u32` length precedes it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FromClient {
    /// The first message of a connection.
    Hello {
        /// [`VERSION`].
        version: u16,
        /// The cluster that the client expects.
        cluster: ClusterId,
    },
    /// A request for the replies of these clients on this connection.
    Attach(Vec<ClientId>),
    /// A bundle. [`crate::Bundle::parse`] checks its content.
    Bundle {
        /// The proof that the bundle comes from its client.
        authenticator: Authenticator,
        /// The encoded content: all the rest of the message.
        content: Vec<u8>,
    },
    /// A request for the replica's status, at most ten in a second.
    Status,
    /// A request for a proof of the order of a bundle. A replica answers once a block with the bundle is decided.
    AskOrder {
        /// The client that asks; the answer names it.
        client: ClientId,
        /// The digest of the bundle.
        bundle: BundleDigest,
    },
    /// A request of the admin to stop the node, at most ten in a second.
    Stop {
        /// The incarnation to stop: the request has no effect after a restart.
        incarnation: Incarnation,
        /// The admin key's signature over cluster, replica and incarnation.
        signature: Signature,
    },
}

/// The tag of [`FromClient::Bundle`]. With it the server finds the content in its read buffer without copying it.
pub const CLIENT_BUNDLE_TAG: u8 = 2;

impl Wire for FromClient {
    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Hello { version, cluster } => put_tagged(out, 0, &[version, cluster]),
            Self::Attach(clients) => {
                out.push(1);
                crate::codec::put_list(out, clients);
            }
            Self::Bundle { authenticator, content } => {
                put_tagged(out, CLIENT_BUNDLE_TAG, &[authenticator]);
                out.extend_from_slice(content);
            }
            Self::Status => out.push(3),
            Self::AskOrder { client, bundle } => put_tagged(out, 4, &[client, bundle]),
            Self::Stop { incarnation, signature } => put_tagged(out, 5, &[incarnation, signature]),
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
            4 => Self::AskOrder { client: PublicKey::decode(reader)?, bundle: BundleDigest::decode(reader)? },
            5 => Self::Stop {
                incarnation: Incarnation::decode(reader)?,
                signature: Signature::decode(reader)?,
            },
            _ => return Err(DecodeError::Tag("client message")),
        })
    }
}

/// The reason why a replica refused a bundle. It is advice and never a result, because one replica may lie.
#[derive(Clone, Copy, PartialEq, Eq, Debug, PartialOrd, Ord)]
pub enum Refusal {
    /// Too many bundles wait already. The client should try again later.
    Busy,
    /// The authenticator does not hold.
    BadSignature,
    /// The bundle is malformed or exceeds a limit.
    Malformed,
    /// The height that opened the session is executed, and this client has no such session.
    NoSession,
    /// The replica has received another bundle with this number.
    NumberReused,
    /// The number lies too far above the floor that the session has at this replica.
    OutOfWindow,
    /// The client is not registered.
    NotRegistered,
    /// The bundle is executed, and its results are no longer kept.
    Forgotten,
    /// The replica has not yet executed the height that opened the session.
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

    /// Whether only a client that breaks the rules receives this refusal.
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

/// The reason why a replica shows no proof of order. It is advice, because one replica may lie.
#[derive(Clone, Copy, PartialEq, Eq, Debug, PartialOrd, Ord)]
pub enum NoOrder {
    /// The protocol of the cluster has no proofs of order.
    NoProofs,
    /// The bundle is ordered, and this replica does not have the evidence (any more).
    NotKept,
    /// Too many questions of the connection wait already. The client should ask again later.
    Busy,
}

impl NoOrder {
    /// All reasons in the order of their tags.
    pub const ALL: [Self; 3] = [Self::NoProofs, Self::NotKept, Self::Busy];

    /// Returns the reason as text, for people.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::NoProofs => "this protocol has no proofs of order",
            Self::NotKept => "the bundle is ordered, and the replica no longer has the proof",
            Self::Busy => "too many questions for order wait",
        }
    }
}

impl Wire for NoOrder {
    fn encode(&self, out: &mut Vec<u8>) {
        let tag = Self::ALL.iter().position(|why| why == self).unwrap_or_default();
        out.push(u8::try_from(tag).unwrap_or_default());
    }
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let tag = usize::from(reader.u8()?);
        Self::ALL.get(tag).copied().ok_or(DecodeError::Tag("no order"))
    }
}

/// The answer of a replica to a request to stop.
#[derive(Clone, Copy, PartialEq, Eq, Debug, PartialOrd, Ord)]
pub enum StopAnswer {
    /// The node stops.
    Accepted,
    /// The configuration of the node does not allow it.
    NotAllowed,
    /// The request names another incarnation of the node.
    OtherIncarnation,
    /// The signature is not that of the admin key over this cluster, this replica and this incarnation.
    BadSignature,
}

impl StopAnswer {
    /// All answers in the order of their tags.
    pub const ALL: [Self; 4] = [Self::Accepted, Self::NotAllowed, Self::OtherIncarnation, Self::BadSignature];

    /// Returns the answer as text, for people: a refusal with its remedy.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::Accepted => "the node stops",
            Self::NotAllowed => {
                "its node.toml has allow_stop = false; write allow_stop = true and start the node again, or end its \
                 process with SIGTERM"
            }
            Self::OtherIncarnation => {
                "the request was signed for another incarnation, so the node has started again meanwhile; send the \
                 request again"
            }
            Self::BadSignature => {
                "the signature is not that of this cluster's admin key; use the file clients/admin.key of this cluster"
            }
        }
    }
}

impl Wire for StopAnswer {
    fn encode(&self, out: &mut Vec<u8>) {
        let tag = Self::ALL.iter().position(|answer| answer == self).unwrap_or_default();
        out.push(u8::try_from(tag).unwrap_or_default());
    }
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let tag = usize::from(reader.u8()?);
        Self::ALL.get(tag).copied().ok_or(DecodeError::Tag("answer to a stop"))
    }
}

/// A message from a replica to a client.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FromReplica {
    /// The first message of a connection.
    Hello {
        /// [`VERSION`].
        version: u16,
        /// The id of the cluster.
        cluster: ClusterId,
        /// The replica that sends the message.
        id: ReplicaId,
    },
    /// The result of a bundle, addressed to its client.
    Reply(ClientId, ReplyBundle),
    /// A bundle was refused.
    Refused {
        /// The client of the bundle.
        client: ClientId,
        /// The digest of the bundle.
        bundle: BundleDigest,
        /// The reason.
        why: Refusal,
    },
    /// The answer to [`FromClient::Status`], as JSON.
    Status(String),
    /// The reason why the replica is about to close the connection.
    Close(String),
    /// A proof of order. It proves nothing about the results of the bundle.
    Order {
        /// The client that has asked.
        client: ClientId,
        /// The digest of the bundle.
        bundle: BundleDigest,
        /// The proof.
        proof: Box<OrderProof>,
    },
    /// There is no proof of order.
    NoOrder {
        /// The client that has asked.
        client: ClientId,
        /// The digest of the bundle.
        bundle: BundleDigest,
        /// The reason.
        why: NoOrder,
    },
    /// The answer to [`FromClient::Stop`].
    Stop(StopAnswer),
}

impl Wire for FromReplica {
    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Hello { version, cluster, id } => put_tagged(out, 0, &[version, cluster, id]),
            Self::Reply(client, reply) => put_tagged(out, 1, &[client, reply]),
            Self::Refused { client, bundle, why } => put_tagged(out, 2, &[client, bundle, why]),
            Self::Status(json) => {
                out.push(3);
                put_bytes(out, json.as_bytes());
            }
            Self::Close(reason) => {
                out.push(4);
                put_bytes(out, reason.as_bytes());
            }
            Self::Order { client, bundle, proof } => put_tagged(out, 5, &[client, bundle, proof]),
            Self::NoOrder { client, bundle, why } => put_tagged(out, 6, &[client, bundle, why]),
            Self::Stop(answer) => put_tagged(out, 7, &[answer]),
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
            5 => Self::Order {
                client: PublicKey::decode(reader)?,
                bundle: BundleDigest::decode(reader)?,
                proof: Box::decode(reader)?,
            },
            6 => Self::NoOrder {
                client: PublicKey::decode(reader)?,
                bundle: BundleDigest::decode(reader)?,
                why: NoOrder::decode(reader)?,
            },
            7 => Self::Stop(StopAnswer::decode(reader)?),
            _ => return Err(DecodeError::Tag("replica message")),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
            FromClient::AskOrder { client: PublicKey([1; 32]), bundle: BundleDigest::ZERO },
            FromClient::Stop { incarnation: Incarnation(7), signature: Signature([9; 64]) },
        ] {
            assert_eq!(FromClient::from_bytes(&message.to_bytes()), Ok(message));
        }
    }

    #[test]
    fn reasons_have_distinct_tags() {
        for refusal in Refusal::ALL {
            assert_eq!(Refusal::from_bytes(&refusal.to_bytes()), Ok(refusal));
        }
        for why in NoOrder::ALL {
            assert_eq!(NoOrder::from_bytes(&why.to_bytes()), Ok(why));
        }
        for answer in StopAnswer::ALL {
            assert_eq!(StopAnswer::from_bytes(&answer.to_bytes()), Ok(answer));
            let message = FromReplica::Stop(answer);
            assert_eq!(FromReplica::from_bytes(&message.to_bytes()), Ok(message));
        }
    }
}
