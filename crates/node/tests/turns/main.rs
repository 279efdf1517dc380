//! Turns of hosts in memory: the limits of one turn, and the effects of refused messages. Each test hands frames from
//! host to host, so that it sees every turn.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::as_conversions, reason = "tests")]

mod front_door;
mod leaders;
mod steps;

use quorate_app::Kv;
use quorate_consensus::{LinkEvent, Note, To};
use quorate_crypto::{Scheme, SigningKey};
use quorate_host::{Host, HostSetup, Outgoing, StepKind, TurnEnd};
use quorate_protocols::pbft::PbftMessage;
use quorate_protocols::sync_hotstuff::SyncMessage;
use quorate_replica::{ConnId, FrameSource, HostMessage, ReplicaSetup};
use quorate_storage::MemDisk;
use quorate_types::bundle::BundleBuilder;
use quorate_types::codec::Wire as _;
use quorate_types::digest::context;
use quorate_types::wire::{Lane, NoOrder, Refusal, frame};
use quorate_types::{
    Authenticator, Block, BlockId, BodyLimits, BundleDigest, BundleKind, BundleNo, ClientAuth, ClientId,
    Digest, FrameBody, Genesis, Height, Incarnation, Kind, Member, OrderProof, PayloadId, PublicKey,
    ReplicaId, ReplyBundle, SessionId, Time, View,
};
use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

const CLIENT: ClientId = PublicKey([7; 32]);

/// The outputs of a host.
#[derive(Default)]
struct Left {
    frames: Vec<(To, u8, Vec<u8>)>,
    rejected: Vec<&'static str>,
    urgent: Vec<Option<ReplicaId>>,
    clock: Rc<Cell<u64>>,
    /// The steps with their nanoseconds.
    steps: Vec<(StepKind, u64)>,
    /// Readings of the stopwatch.
    readings: u64,
    /// The duration of a write to the sockets, in nanoseconds. It precedes the sync, like the delay of a slow disk.
    flush_ns: u64,
}

impl Outgoing for Left {
    fn now(&mut self) -> Time {
        Time(self.clock.get())
    }
    fn peer(&mut self, to: To, _: Lane, frame_type: u8, body: FrameBody) {
        self.frames.push((to, frame_type, body.to_bytes().to_vec()));
    }
    fn reply(&mut self, _: &ClientId, _: &ReplyBundle) {}
    fn reply_to(&mut self, _: ConnId, _: &ClientId, _: &ReplyBundle) {}
    fn proven(&mut self, _: ConnId, _: &ClientId) {}
    fn refuse(&mut self, _: ConnId, _: &ClientId, _: BundleDigest, _: Refusal) {}
    fn order(&mut self, _: ConnId, _: &ClientId, _: BundleDigest, _: Result<Box<OrderProof>, NoOrder>) {}
    fn flush(&mut self) {
        self.clock.set(self.clock.get() + self.flush_ns);
    }
    fn rejected(&mut self, _: FrameSource, _: Kind, reason: &'static str, _: bool) {
        self.rejected.push(reason);
    }
    fn stopwatch_ns(&mut self) -> u64 {
        self.readings += 1;
        self.readings * 10
    }
    fn step(&mut self, kind: StepKind, ns: u64) {
        self.steps.push((kind, ns));
    }
    fn trace(&mut self, _: Note) {}
    fn urgent(&mut self, peer: Option<ReplicaId>) {
        self.urgent.push(peer);
    }
}

impl Left {
    /// Returns the messages between hosts that left.
    fn host_messages(&self) -> impl Iterator<Item = HostMessage> {
        let bodies = self.frames.iter().filter(|(_, frame_type, _)| *frame_type == frame::HOST);
        // A signed message has its signature at the end.
        bodies.filter_map(|(_, _, body)| HostMessage::from_bytes(body).ok())
    }

    /// Returns the number of protocol messages of this kind that left.
    fn count(&self, kind: &str) -> usize {
        let entry = quorate_protocols::find("pbft").unwrap();
        let bodies = self.frames.iter().filter(|(_, frame_type, _)| *frame_type == frame::PROTOCOL);
        let messages = bodies.filter_map(|(_, _, body)| entry.decode_message(body).ok());
        messages.filter(|message| message.kind().as_str() == kind).count()
    }

    fn asks(&self) -> usize {
        self.host_messages().filter(|message| matches!(message, HostMessage::AskBlock { .. })).count()
    }
}

/// Replicas whose links lose no frame.
struct Cluster {
    genesis: Arc<Genesis>,
    hosts: Vec<Host>,
    left: Vec<Left>,
    now: Time,
    bundles: u64,
}

impl Cluster {
    fn new(n: usize) -> Self {
        Self::of("pbft", n)
    }

    fn of(protocol: &str, n: usize) -> Self {
        let entry = quorate_protocols::find(protocol).unwrap();
        let keys: Vec<SigningKey> =
            (0..n).map(|id| SigningKey::from_seed(Scheme::Cheap, [id as u8 + 1; 32])).collect();
        let params = (entry.params)().unwrap();
        let genesis = Arc::new(Genesis {
            protocol: entry.spec.name,
            f: (entry.spec.faults)(n) as u16,
            members: keys.iter().map(|key| Member { sign: key.public(), link: key.public() }).collect(),
            client_auth: ClientAuth::None,
            // Each bundle is a block of its own.
            bodies: BodyLimits { block_bundles_max: 1, ..BodyLimits::default() },
            client_window: 1_024,
            clients_max: 64,
            checkpoint_every: 4,
            window: 8,
            application: "kv 1".to_owned(),
            admin: PublicKey([9; 32]),
            clients: vec![CLIENT],
            params: params.to_string(),
            salt: [3; 32],
            base: None,
        });
        genesis.check().unwrap();
        let committee = Arc::new(genesis.committee());
        let mut left = Vec::new();
        let hosts = keys.into_iter().zip(committee.ids()).map(|(key, me)| {
            let replica = ReplicaSetup {
                me,
                committee: Arc::clone(&committee),
                genesis: Arc::clone(&genesis),
                params: params.clone(),
                wall_offset_ns: 1,
                secret: key.secret(&context::PROBE),
            };
            let setup = HostSetup {
                entry: *entry,
                replica,
                key,
                scheme: Scheme::Cheap,
                application: Box::new(Kv::default()),
                keep_bytes: 32 << 20,
                far_heights: quorate_host::FAR_HEIGHTS,
                disk_bytes_max: 64 << 20,
                amnesiac_from: None,
                snapshot_every_bytes: 1 << 30,
            };
            let mut out = Left::default();
            let mut host = Host::open(setup, Box::new(MemDisk::new(2 << 20, 512)), &mut out).unwrap();
            // Tests sign for all replicas.
            host.ignore_own_statements();
            left.push(out);
            host
        });
        let hosts = hosts.collect();
        Self { genesis, hosts, left, now: Time(1), bundles: 0 }
    }

    /// Takes one turn of a replica, which checks and executes as long as `more` returns true.
    fn turn(&mut self, id: usize, mut more: impl FnMut() -> bool) -> TurnEnd {
        let Self { hosts, left, now, .. } = self;
        left[id].clock.set(now.0);
        let end = hosts[id].turn(*now, Some(*now), true, &mut |_| more(), &mut left[id]).unwrap();
        *now = (*now).max(Time(left[id].clock.get()));
        end
    }

    /// Takes one turn of a replica whose sockets have more frames than it has read.
    fn flooded_turn(&mut self, id: usize) {
        let Self { hosts, left, now, .. } = self;
        hosts[id].turn(*now, Some(*now), false, &mut |_| true, &mut left[id]).unwrap();
    }

    /// Carries all frames and takes turns until every host is idle.
    fn settle(&mut self) {
        self.settle_without(None);
    }

    /// Does the same, while one host stands still.
    fn settle_without(&mut self, still: Option<usize>) {
        loop {
            let mut quiet = true;
            for id in (0..self.hosts.len()).filter(|id| Some(*id) != still) {
                for (to, frame_type, body) in std::mem::take(&mut self.left[id].frames) {
                    self.deliver(id, to, frame_type, &body);
                    quiet = false;
                }
                quiet &= self.turn(id, || true) == TurnEnd::Idle;
            }
            if quiet && self.left.iter().all(|left| left.frames.is_empty()) {
                return;
            }
        }
    }

    fn deliver(&mut self, from: usize, to: To, frame_type: u8, body: &[u8]) {
        for id in (0..self.hosts.len()).filter(|id| *id != from) {
            let is_for = match &to {
                To::All => true,
                To::One(one) => one.index() == id,
                To::Some(set) => set.iter().any(|one| one.index() == id),
            };
            if is_for {
                self.hosts[id].peer_frame(ReplicaId(from as u16), frame_type, body);
            }
        }
    }

    /// Hands a bundle of the client to the leader.
    fn bundle(&mut self, kind: BundleKind, session: SessionId) {
        self.bundle_at(0, kind, session);
    }

    fn bundle_at(&mut self, id: usize, kind: BundleKind, session: SessionId) {
        let nonsense = "nonsense is an error of the application, and executed all the same".as_bytes();
        let requests: &[&[u8]] = if kind == BundleKind::Requests { &[nonsense] } else { &[] };
        self.bundle_of(id, kind, session, requests);
    }

    fn bundle_of(&mut self, id: usize, kind: BundleKind, session: SessionId, requests: &[&[u8]]) {
        self.bundles += 1;
        let mut builder = BundleBuilder::new(kind, CLIENT, session, BundleNo(self.bundles));
        for request in requests {
            builder.push(request);
        }
        let mut body = Vec::new();
        Authenticator::None.encode(&mut body);
        body.extend(builder.finish());
        self.hosts[id].client_bundle(ConnId(1), &body);
    }

    /// Opens the client's session.
    fn session(&mut self) -> SessionId {
        self.bundle(BundleKind::Open, SessionId::default());
        self.settle();
        self.hosts[0].executor().execution().opened(&CLIENT, BundleNo(1)).unwrap()
    }

    /// Returns the ids from height 1 on that replica 0 reports to 1.
    fn decided(&mut self) -> Vec<BlockId> {
        let ask = HostMessage::AskDecided(Height(1)).to_bytes();
        self.hosts[0].peer_frame(ReplicaId(1), frame::HOST, &ask);
        self.turn(0, || true);
        let ids = self.left[0].host_messages().find_map(|message| match message {
            HostMessage::Decided(Height(1), ids) => Some(ids),
            _ => None,
        });
        ids.unwrap()
    }

    /// Lets a replica ask replica 0 for a block.
    fn ask_block(&mut self, from: u16, id: BlockId, height: u64) {
        let height = Height(height);
        let ask = HostMessage::AskBlock { id, height, above: height }.to_bytes();
        self.hosts[0].peer_frame(ReplicaId(from), frame::HOST, &ask);
    }

    /// Returns the heights of the blocks that replica 0 sent to a peer, and the number of its refusals.
    fn blocks_to(&self, peer: u16) -> (Vec<u64>, usize) {
        let (mut blocks, mut none) = (Vec::new(), 0);
        let frames = self.left[0].frames.iter();
        for (_, _, body) in
            frames.filter(|(to, kind, _)| (*to, *kind) == (To::One(ReplicaId(peer)), frame::HOST))
        {
            match HostMessage::from_bytes(body) {
                Ok(HostMessage::Block(block)) => blocks.push(block.height.0),
                Ok(HostMessage::NoBlock(_)) => none += 1,
                _ => {}
            }
        }
        (blocks, none)
    }

    /// Takes one turn of replica 0. Returns its end, and the blocks and refusals for 1.
    fn handing_turn(&mut self) -> (TurnEnd, Vec<u64>, usize) {
        self.left[0].frames.clear();
        let end = self.turn(0, || true);
        let (blocks, none) = self.blocks_to(1);
        (end, blocks, none)
    }

    fn executed(&self, id: usize) -> u64 {
        self.hosts[id].executor().execution().height().0
    }
}

/// A replica that executed everything at once after it fell behind would keep its peers waiting. A turn executes for
/// one slice, however many rounds it takes for the disk and own messages.
#[test]
fn turn_executes_for_one_slice() {
    let mut cluster = Cluster::new(1);
    let session = cluster.session();
    let before = cluster.executed(0);
    for _ in 0..5 {
        cluster.bundle(BundleKind::Requests, session);
    }
    let mut heights = Vec::new();
    // There is time for everything but a second block.
    let mut turns = 0;
    while cluster.executed(0) < before + 5 {
        turns += 1;
        assert!(turns < 50, "{heights:?}");
        let at = cluster.executed(0);
        let end = cluster.turn(0, || false);
        let executed = cluster.executed(0) - at;
        assert!(executed <= 1, "{executed} blocks in one turn");
        if executed == 1 && cluster.executed(0) < before + 5 {
            assert_eq!(end, TurnEnd::Owing, "the next turn comes without sleeping");
        }
        heights.push(cluster.executed(0));
    }
}

/// If safety rests on a bound on delays, a liar must not make others late. Bad signatures are expensive to check.
/// A turn handles the messages of all other peers, for any number of bad signatures. The rest waits for later turns.
#[test]
fn flood_of_bad_signatures_delays_no_other_peer() {
    const FLOOD: usize = 3_000;
    let mut cluster = Cluster::of("sync-hotstuff", 3);
    cluster.settle();
    let mut blame = Vec::new();
    SyncMessage::Blame(View(1)).encode(&mut blame);
    blame.extend([1; 64]);
    for _ in 0..FLOOD {
        cluster.hosts[1].peer_frame(ReplicaId(0), frame::PROTOCOL, &blame);
    }
    let probe = HostMessage::Probe { incarnation: Incarnation(1), number: 5 };
    cluster.hosts[1].peer_frame(ReplicaId(2), frame::HOST, &probe.to_bytes());
    let checked = |cluster: &Cluster| {
        let ledger = cluster.hosts[1].ledger();
        ledger.signatures_single + ledger.signatures_batched
    };
    let mut before = checked(&cluster);
    assert_eq!(cluster.turn(1, || true), TurnEnd::Owing);
    assert!((1..=256).contains(&(checked(&cluster) - before)), "{}", checked(&cluster) - before);
    let answers = |left: &Left| left.host_messages().any(|it| matches!(it, HostMessage::ProbeAnswer { .. }));
    assert!(answers(&cluster.left[1]));
    assert_eq!(
        cluster.hosts[1].paused_peers().iter().collect::<Vec<_>>(),
        [ReplicaId(0)],
        "its socket is paused"
    );
    // The peer is a suspect now.
    let mut turns = 0;
    loop {
        before = checked(&cluster);
        turns += 1;
        let end = cluster.turn(1, || true);
        assert!(checked(&cluster) - before <= 16, "{} in one turn", checked(&cluster) - before);
        if end == TurnEnd::Idle {
            break;
        }
    }
    assert!(turns > 300, "{turns}");
    assert_eq!(cluster.left[1].rejected.iter().filter(|why| **why == "bad signature").count(), FLOOD);
    assert!(cluster.hosts[1].paused_peers().is_empty());
}

/// The duration after which the release gate notices a stall.
const LONG_NS: u64 = 5_000_000;
/// Δ of `sync-hotstuff`.
const DELTA_NS: u64 = 50_000_000;

/// Returns three replicas whose safety rests on a bound on delays, and a client's session.
fn synchronous() -> (Cluster, SessionId) {
    let mut cluster = Cluster::of("sync-hotstuff", 3);
    cluster.connect();
    cluster.bundle(BundleKind::Open, SessionId::default());
    for _ in 0..400 {
        cluster.now = cluster.now.plus(DELTA_NS / 5);
        cluster.settle();
    }
    let session = cluster.hosts[0].executor().execution().opened(&CLIENT, BundleNo(1)).unwrap();
    (cluster, session)
}

impl Cluster {
    /// Reports every link as up.
    fn connect(&mut self) {
        for (id, host) in self.hosts.iter_mut().enumerate() {
            for peer in (0..self.left.len()).filter(|peer| *peer != id) {
                host.link(ReplicaId(peer as u16), LinkEvent::Back);
            }
        }
    }

    /// Delivers the frames that left a replica.
    fn carry(&mut self, from: usize) {
        for (to, frame_type, body) in std::mem::take(&mut self.left[from].frames) {
            self.deliver(from, to, frame_type, &body);
        }
    }

    /// Lets the leader, replica 1, propose a block, and replica 0 vote for it. Replica 2 receives both messages.
    fn propose(&mut self, session: SessionId) {
        self.bundle_at(1, BundleKind::Requests, session);
        for id in [1, 0, 1, 0] {
            self.turn(id, || true);
            self.carry(id);
        }
    }

    /// Returns the number of votes that have left replica 2 since the last call.
    fn votes(&mut self) -> usize {
        // Each vote has its signature at the end.
        let entry = quorate_protocols::find("sync-hotstuff").unwrap();
        let is_vote = |body: &[u8]| {
            entry.decode_frame(body).is_ok_and(|(message, _)| message.kind().as_str() == "vote")
        };
        let votes = self.left[2].frames.iter().filter(|(_, _, body)| is_vote(body)).count();
        self.carry(2);
        votes
    }
}

/// A vote from before a slow sync leaves when everything that arrived meanwhile was read. It does not wait for a turn
/// without a sync: under load there is none.
#[test]
fn vote_leaves_although_each_sync_is_slow() {
    for sync_ns in [LONG_NS + 1, DELTA_NS / 4 + 1] {
        let (mut cluster, session) = synchronous();
        cluster.left[2].flush_ns = sync_ns;
        cluster.propose(session);
        cluster.turn(2, || true);
        assert_eq!(cluster.votes(), 0, "an unread message may forbid the vote");
        for round in 0..5 {
            cluster.propose(session);
            cluster.turn(2, || true);
            assert_eq!(cluster.votes(), 1, "{round}");
        }
    }
}

/// A replica that stands still between reading and voting knows no more of later messages than one that waits for the
/// disk.
#[test]
fn vote_is_held_after_a_standstill_until_all_is_read() {
    let (mut cluster, session) = synchronous();
    let clock = Rc::clone(&cluster.left[2].clock);
    for pauses_ns in [vec![DELTA_NS / 2 + 1], vec![3 * DELTA_NS], vec![DELTA_NS / 2 + 1, DELTA_NS + 1]] {
        for pause_ns in &pauses_ns {
            cluster.propose(session);
            let mut pauses = Some(*pause_ns).into_iter();
            cluster.turn(2, || {
                clock.set(clock.get() + pauses.next().unwrap_or(0));
                true
            });
            assert_eq!(cluster.votes(), 0, "{pauses_ns:?}");
        }
        cluster.turn(2, || true);
        assert_eq!(cluster.votes(), pauses_ns.len());
    }
}

/// A write may take as long as a sync. A held vote leaves before the turn writes, or waits for another turn.
#[test]
fn held_vote_does_not_leave_after_a_slow_write() {
    let (mut cluster, session) = synchronous();
    for (write_ns, votes) in [(DELTA_NS / 4 + 1, 0), (DELTA_NS + 1, 0), (0, 3)] {
        cluster.left[2].flush_ns = write_ns;
        cluster.propose(session);
        cluster.turn(2, || true);
        assert_eq!(cluster.votes(), votes, "{write_ns}");
    }
}

/// A timer begins when its vote has left, not after the next sync.
#[test]
fn timer_begins_when_its_vote_has_left() {
    let (mut cluster, session) = synchronous();
    let slow_ns = LONG_NS + 1;
    cluster.left[2].flush_ns = slow_ns;
    for votes in [0, 1] {
        cluster.propose(session);
        let height = cluster.hosts[2].replica().status().decided;
        let began = cluster.now;
        cluster.turn(2, || true);
        assert_eq!(cluster.votes(), votes);
        if votes == 1 {
            cluster.left[2].flush_ns = 0;
            while cluster.hosts[2].replica().status().decided == height {
                cluster.now = cluster.now.plus(1_000_000);
                cluster.settle();
            }
            // The sockets were flushed twice before: for this turn's entries, and for the vote.
            let waited_ns = cluster.now.since(began.plus(2 * slow_ns));
            assert!((2 * DELTA_NS..2 * DELTA_NS + 3_000_000).contains(&waited_ns), "{waited_ns}");
        }
    }
}

/// Only a lost consensus message of the peer is a gap. A lost body or answer drops no vote that has arrived and does
/// not make the link late. Nor does the loss of own messages to a peer that was away.
#[test]
fn only_a_lost_consensus_message_of_the_peer_is_a_gap() {
    let (mut cluster, session) = synchronous();
    for (lane, is_incoming, lost) in [
        (Lane::Consensus, true, 1),
        (Lane::Consensus, false, 0),
        (Lane::Bodies, true, 0),
        (Lane::CatchUp, true, 0),
        (Lane::CatchUp, false, 0),
    ] {
        cluster.propose(session);
        let event = cluster.hosts[2].loss(lane, is_incoming);
        cluster.hosts[2].link(ReplicaId(0), event);
        cluster.left[2].rejected.clear();
        cluster.turn(2, || true);
        let swept = cluster.left[2].rejected.iter().filter(|why| **why == "before a gap").count();
        assert_eq!(usize::from(swept > 0), lost, "{lane:?} {is_incoming}");
    }
    // Without a bound both sides send again what matters, whichever frames were lost.
    let pbft = Cluster::new(4);
    for lane in Lane::ALL {
        assert!(
            [true, false].iter().all(|is_incoming| pbft.hosts[0].loss(lane, *is_incoming) == LinkEvent::Gap)
        );
    }
}

/// Reads for peers that are behind must not delay the others: a turn reads a few blocks, and no question is lost.
#[test]
fn turn_reads_a_few_blocks_for_peers_that_are_behind() {
    const PER_TURN: usize = 8;
    let mut cluster = Cluster::new(4);
    let session = cluster.session();
    for _ in 0..27 {
        cluster.bundle(BundleKind::Requests, session);
        cluster.settle();
    }
    assert_eq!(cluster.executed(0), 28);
    // These blocks are below the stable checkpoint, so they are on disk alone.
    let ids = cluster.decided();
    let asked = 20;
    for (id, height) in ids.iter().zip(1..=asked) {
        cluster.ask_block(1, *id, height);
    }
    let mut given = Vec::new();
    let mut end = TurnEnd::Owing;
    while end == TurnEnd::Owing {
        let (ends, now, _) = cluster.handing_turn();
        assert!(now.len() <= PER_TURN, "{} blocks in one turn", now.len());
        given.extend(now);
        end = ends;
    }
    assert_eq!(given, (1..=asked).collect::<Vec<u64>>());
}

/// Questions beyond the maximum wait behind the questions of the same peer: the others have turns between them. A
/// question without room is refused, so that its peer can ask another replica.
#[test]
fn questions_of_one_peer_keep_no_other_from_catching_up() {
    let mut cluster = Cluster::new(4);
    let session = cluster.session();
    for _ in 0..27 {
        cluster.bundle(BundleKind::Requests, session);
        cluster.settle();
    }
    let (ids, asked) = (cluster.decided(), 20);
    cluster.left[0].frames.clear();
    let (mut given, mut none) = (Vec::new(), 0);
    for turn in 0..5 {
        for number in 0..1_100u64 {
            cluster.ask_block(3, BlockId(Digest([number as u8; 32])), number % asked + 1);
        }
        for height in (1..=asked).filter(|_| turn == 0) {
            cluster.ask_block(1, ids[height as usize - 1], height);
        }
        let before = cluster.hosts[0].store().read_bytes();
        assert_eq!(cluster.turn(0, || true), TurnEnd::Owing);
        assert!(cluster.hosts[0].store().read_bytes() - before < 8 << 10);
        given.extend(cluster.blocks_to(1).0);
        none += cluster.blocks_to(3).1;
        cluster.left[0].frames.clear();
    }
    assert_eq!(given, (1..=asked).collect::<Vec<u64>>());
    assert!(none > 3_000, "{none}");
}

/// A block may be as long as a thousand others, so bytes count as well. No body is read for an id that was not
/// decided.
#[test]
fn turn_reads_at_most_the_bytes_of_one_full_block() {
    const LARGE: usize = 200 << 10;
    let mut cluster = Cluster::new(4);
    let session = cluster.session();
    for _ in 0..14 {
        cluster.bundle_of(0, BundleKind::Requests, session, &[[0; LARGE].as_slice(); 5]);
        cluster.settle();
    }
    let ids = cluster.decided();
    for height in 2..=9 {
        cluster.ask_block(1, ids[height - 1], height as u64);
    }
    let mut given = Vec::new();
    for blocks in [5, 3] {
        let before = cluster.hosts[0].store().read_bytes();
        let (_, now, none) = cluster.handing_turn();
        assert_eq!((now.len(), none), (blocks, 0));
        assert!(cluster.hosts[0].store().read_bytes() - before > blocks as u64 * LARGE as u64 * 5);
        given.extend(now);
    }
    assert_eq!(given, (2..=9).collect::<Vec<u64>>());
    let before = cluster.hosts[0].store().read_bytes();
    for height in 2..=9 {
        cluster.ask_block(1, ids[height - 2], height as u64);
    }
    assert_eq!(cluster.handing_turn(), (TurnEnd::Idle, Vec::new(), 8));
    assert!(cluster.hosts[0].store().read_bytes() - before < 8 << 10);
}

fn proposal(payload: PayloadId) -> PbftMessage {
    let block = Block {
        parent: BlockId::ZERO,
        height: Height(1),
        view: View(0),
        proposer: ReplicaId(0),
        time_ns: 1,
        payload,
        extra: Digest::ZERO,
    };
    PbftMessage::PrePrepare { view: View(0), block }
}

/// A proposal announces its body, so the body is not requested at once. A refused proposal announces nothing.
/// Otherwise any replica could make others request every body that the leader is already sending.
#[test]
fn refused_proposal_announces_no_body() {
    const GRACE_NS: u64 = 100_000_000;
    let mut cluster = Cluster::new(4);
    let mut frame_of = Vec::new();
    proposal(PayloadId(Digest([5; 32]))).encode(&mut frame_of);
    cluster.hosts[1].peer_frame(ReplicaId(2), frame::PROTOCOL, &frame_of);
    cluster.turn(1, || true);
    assert_eq!(cluster.left[1].rejected.len(), 1, "replica 2 does not lead: {:?}", cluster.left[1].rejected);
    cluster.now = cluster.now.plus(2 * GRACE_NS);
    cluster.hosts[1].peer_frame(ReplicaId(0), frame::PROTOCOL, &frame_of);
    cluster.turn(1, || true);
    assert_eq!(cluster.left[1].rejected.len(), 1, "the leader's is taken: {:?}", cluster.left[1].rejected);
    assert_eq!(cluster.left[1].asks(), 0, "its body is on its way");
    cluster.now = cluster.now.plus(GRACE_NS);
    cluster.turn(1, || true);
    assert!(cluster.left[1].asks() > 0, "the body has not arrived");
}

/// A flood, with which a replica never reads everything that has arrived, does not keep it from suspecting an idle
/// leader.
#[test]
fn timers_fire_under_a_flood() {
    const TREQ_NS: u64 = 400_000_000;
    const LATE_NS: u64 = 20_000_000;
    let mut cluster = Cluster::new(4);
    let session = cluster.session();
    cluster.bundle_at(1, BundleKind::Requests, session);
    cluster.flooded_turn(1);
    let arrived = cluster.now;
    cluster.now = arrived.plus(TREQ_NS + LATE_NS - 1);
    cluster.flooded_turn(1);
    assert_eq!(cluster.left[1].count("suspect"), 0, "what would have stopped the timer may lie unread");
    cluster.now = arrived.plus(TREQ_NS + LATE_NS);
    cluster.flooded_turn(1);
    assert_eq!(cluster.left[1].count("suspect"), 1);
}
