//! A Byzantine replica on the real network: a program with the keys of one replica that follows no rules.
//!
//! A cluster of n = 3f + 1 replicas keeps answering correctly while f of them run this program. To try it:
//!
//! ```text
//! cargo run --release -- testnet --out /tmp/cluster
//! cargo run --release -- node --config /tmp/cluster/node0/node.toml     # and 1 and 2, in terminals of their own
//! cargo run --release -p quorate-node --example liar -- /tmp/cluster 3       # instead of the fourth
//! cargo run --release -- load --cluster /tmp/cluster/cluster.toml
//! ```
//!
//! As a backup it equivocates in each vote; as the leader it proposes a different block to each peer. In each round it
//! suspects every leader or withdraws the suspicion, and requests messages that it has. It serves no clients and sends no
//! bodies. The simulator has twins, mute replicas and replicas that forget their promises: `quorate sim --byzantine twin`.

use quorate_client::config::CLUSTER_FILE;
use quorate_client::keys;
use quorate_net::mesh::{self, Event, Mesh, Sender, To};
use quorate_net::{Identity, LinkKey, NetConfig, PeerConfig, Security, reactor};
use quorate_node::config::ClusterConfig;
use quorate_protocols::pbft::{MissingAtHeight, PbftMessage, StatusReport, Vote};
use quorate_types::wire::Lane;
use quorate_types::{Block, BlockId, DecodeError, Digest, Height, PayloadId, Reader, ReplicaId, View, Wire};
use std::error::Error;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The period of suspicions, requests and proposals.
const ROUND: Duration = Duration::from_millis(50);

/// A message between replicas.
#[derive(Clone, PartialEq, Debug)]
struct PeerMessage(PbftMessage);

impl Wire for PeerMessage {
    fn encode(&self, out: &mut Vec<u8>) {
        self.0.encode(out);
    }
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        PbftMessage::decode(reader).map(Self)
    }
}

/// The lies that were sent, and the progress of the other replicas at the end.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Lies {
    /// Votes for invented blocks.
    pub votes: u64,
    /// Proposals of invented blocks.
    pub proposals: u64,
    /// The highest view of a vote.
    pub view: View,
    /// The greatest height of a vote.
    pub height: Height,
}

struct Liar {
    me: ReplicaId,
    others: Vec<ReplicaId>,
    sender: Sender<PeerMessage>,
    lies: Lies,
    round: u64,
}

impl Liar {
    /// Sends a lie; a full queue drops it.
    fn send(&self, to: ReplicaId, lie: PbftMessage) {
        let _ = self.sender.send(To::One(to), Lane::Consensus, &PeerMessage(lie));
    }

    fn leads(&self, view: View) -> bool {
        let n = u64::try_from(self.others.len()).map_or(u64::MAX, |others| others.saturating_add(1));
        view.0.checked_rem(n) == Some(u64::from(self.me.0))
    }

    /// Answers a vote: sends the same vote to some peers, and a vote for an invented block to the others.
    fn equivocate(&mut self, message: &PbftMessage) {
        let (vote, lie): (Vote, fn(Vote) -> PbftMessage) = match message {
            PbftMessage::PrePrepare { view, block } => {
                (Vote { view: *view, height: block.height, block: block.id() }, PbftMessage::Prepare)
            }
            PbftMessage::Prepare(vote) => (*vote, PbftMessage::Prepare),
            PbftMessage::Commit(vote) => (*vote, PbftMessage::Commit),
            _ => return,
        };
        self.lies.view = self.lies.view.max(vote.view);
        self.lies.height = self.lies.height.max(vote.height);
        let invented = Vote { block: BlockId(Digest([7; 32])), ..vote };
        for (place, other) in self.others.iter().enumerate() {
            let is_lie = place.is_multiple_of(2);
            self.send(*other, lie(if is_lie { invented } else { vote }));
            self.lies.votes = self.lies.votes.saturating_add(u64::from(is_lie));
        }
    }

    /// Sends the suspicions, requests and proposals of one round.
    fn disturb(&mut self) {
        self.round = self.round.saturating_add(1);
        let (view, next) = (self.lies.view, self.lies.height.next());
        for other in &self.others {
            self.send(*other, PbftMessage::Suspect { view, on: self.round.is_multiple_of(2) });
            let lacks = |height| {
                let all = self.others.iter().copied().collect();
                MissingAtHeight { height, proposal: true, prepares: all, commits: all }
            };
            let missing = (1..=8).map(|back| lacks(self.lies.height.minus(back))).collect();
            let status =
                StatusReport { view, normal: true, stable: Height::ZERO, executed: Height::ZERO, missing };
            self.send(*other, PbftMessage::Status(status));
        }
        if self.leads(view) {
            for (place, other) in (0u8..).zip(&self.others) {
                let block = Block {
                    parent: BlockId::ZERO,
                    height: next,
                    view,
                    proposer: self.me,
                    time_ns: self.round,
                    payload: PayloadId(Digest([place; 32])),
                    extra: Digest::ZERO,
                };
                self.send(*other, PbftMessage::PrePrepare { view, block });
                self.lies.proposals = self.lies.proposals.saturating_add(1);
            }
        }
    }
}

/// Takes the place of a replica of the cluster in this folder until `stop` is set.
pub fn lie(folder: &Path, me: ReplicaId, stop: &AtomicBool) -> Result<Lies, Box<dyn Error>> {
    let cluster = ClusterConfig::load(&folder.join(CLUSTER_FILE))?;
    let key = keys::read_private(&folder.join(format!("node{me}/link.key")))?;
    let link = LinkKey::from_pkcs8(
        key.to_pkcs8_der().ok_or("the link key has no PKCS#8 form; use an Ed25519 key")?.expose(),
    )?;
    let place = cluster
        .replicas
        .get(me.index())
        .ok_or("no replica of the cluster has this number; name one of cluster.toml")?;
    let peers = cluster.genesis.members.iter().zip(&cluster.replicas);
    let peers = peers.map(|(member, at)| PeerConfig { key: member.link, address: at.peers }).collect();
    let committee = cluster.genesis.committee();
    // The identity of a mesh, with cluster and epoch of this cluster.
    let identity = Identity {
        cluster: committee.cluster,
        epoch: committee.epoch,
        ..mesh::identity(committee.protocol, me)
    };
    let listener = reactor::bind(place.peers)?;
    let (sender, receiver) = Mesh::open(NetConfig::new(identity, peers, Security::Tls(link), listener))?;
    let others = cluster.ids().filter(|id| *id != me).collect();
    let mut liar = Liar { me, others, sender, lies: Lies::default(), round: 0 };
    let mut due = Instant::now();
    while !stop.load(Ordering::Relaxed) {
        if let Some(Event::Message { message: PeerMessage(message), .. }) = receiver.recv_timeout(ROUND) {
            liar.equivocate(&message);
        }
        if Instant::now() >= due {
            liar.disturb();
            due = Instant::now().checked_add(ROUND).ok_or("the clock has reached its end")?;
        }
    }
    Ok(liar.lies)
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(folder), Some(id)) = (arguments.next(), arguments.next()) else {
        return Err("expected the folder of a cluster and the number of a replica that does not run".into());
    };
    let me = ReplicaId(id.parse()?);
    println!("replica {me} lies; Ctrl-C ends it");
    let lies = lie(Path::new(&folder), me, &AtomicBool::new(false))?;
    println!("{lies:?}");
    Ok(())
}
