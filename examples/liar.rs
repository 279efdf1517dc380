//! A replica that lies, on the real network: the keys of one replica in the hands of somebody who follows no rules.
//!
//! A cluster of n = 3f + 1 replicas keeps answering correctly while f of them do this. To see it:
//!
//! ```text
//! cargo run --release -- testnet --out /tmp/cluster
//! cargo run --release -- node --config /tmp/cluster/node0/node.toml     # and 1 and 2, in terminals of their own
//! cargo run --release -p quorate-node --example liar -- /tmp/cluster 3       # instead of the fourth
//! cargo run --release -- load --cluster /tmp/cluster/cluster.toml
//! ```
//!
//! As a backup it votes for one block to some and for another to others, wherever a vote is due; as the leader it
//! proposes a different block to everybody. All the time it suspects every leader and takes it back, and asks for
//! messages that it never lacked. It serves no clients and hands out no bodies. Twins, mute replicas and such as
//! forget what they promised are in the simulator: `quorate sim --byzantine twin`.

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

/// How often it suspects, complains and proposes.
const ROUND: Duration = Duration::from_millis(50);

/// What replicas say to each other.
#[derive(Clone, PartialEq, Debug)]
struct Word(PbftMessage);

impl Wire for Word {
    fn encode(&self, out: &mut Vec<u8>) {
        self.0.encode(out);
    }
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        PbftMessage::decode(reader).map(Self)
    }
}

/// What it said, and how far the others were when it was told to stop.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Lies {
    /// Votes for blocks that it invented.
    pub votes: u64,
    /// Blocks that it invented and proposed.
    pub proposals: u64,
    /// The highest view in which somebody voted.
    pub view: View,
    /// The greatest height at which somebody voted.
    pub height: Height,
}

struct Liar {
    me: ReplicaId,
    others: Vec<ReplicaId>,
    sender: Sender<Word>,
    lies: Lies,
    round: u64,
}

impl Liar {
    /// Says something. What does not fit into the queue any more was one lie too many.
    fn say(&self, to: ReplicaId, lie: PbftMessage) {
        let _ = self.sender.send(To::One(to), Lane::Consensus, &Word(lie));
    }

    fn leads(&self, view: View) -> bool {
        let n = u64::try_from(self.others.len()).map_or(u64::MAX, |others| others.saturating_add(1));
        view.0.checked_rem(n) == Some(u64::from(self.me.0))
    }

    /// Somebody votes: so does the liar, for what was voted for and for something else.
    fn hear(&mut self, message: &PbftMessage) {
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
            self.say(*other, lie(if is_lie { invented } else { vote }));
            self.lies.votes = self.lies.votes.saturating_add(u64::from(is_lie));
        }
    }

    /// What it says without being asked.
    fn trouble(&mut self) {
        self.round = self.round.saturating_add(1);
        let (view, next) = (self.lies.view, self.lies.height.next());
        for other in &self.others {
            self.say(*other, PbftMessage::Suspect { view, on: self.round.is_multiple_of(2) });
            let lacks = |height| {
                let all = self.others.iter().copied().collect();
                MissingAtHeight { height, proposal: true, prepares: all, commits: all }
            };
            let missing = (1..=8).map(|back| lacks(self.lies.height.minus(back))).collect();
            let standing =
                StatusReport { view, normal: true, stable: Height::ZERO, executed: Height::ZERO, missing };
            self.say(*other, PbftMessage::Status(standing));
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
                self.say(*other, PbftMessage::PrePrepare { view, block });
                self.lies.proposals = self.lies.proposals.saturating_add(1);
            }
        }
    }
}

/// Takes the place of a replica of the cluster in this folder until it is told to stop.
pub fn lie(folder: &Path, me: ReplicaId, stop: &AtomicBool) -> Result<Lies, Box<dyn Error>> {
    let cluster = ClusterConfig::load(&folder.join(CLUSTER_FILE))?;
    let key = keys::read_private(&folder.join(format!("node{me}/link.key")))?;
    let link = LinkKey::from_pkcs8(key.to_pkcs8_der().ok_or("a key that has no file form")?.expose())?;
    let place = cluster.replicas.get(me.index()).ok_or("there is no such replica")?;
    let peers = cluster.genesis.members.iter().zip(&cluster.replicas);
    let peers = peers.map(|(member, at)| PeerConfig { key: member.link, address: at.peers }).collect();
    let committee = cluster.genesis.committee();
    // The mesh's own word for who one is, in the name of a replica of this cluster.
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
        if let Some(Event::Message { message: Word(message), .. }) = receiver.recv_timeout(ROUND) {
            liar.hear(&message);
        }
        if Instant::now() >= due {
            liar.trouble();
            due = Instant::now().checked_add(ROUND).ok_or("the end of time")?;
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
