//! What the host does whatever the protocol: with a protocol that does nothing but stand where it is told to.

use crate::clients::{Admission, Admit};
use crate::host_message::{Heights, HostMessage};
use crate::intake::Passed;
use crate::{Checked, CheckedMessage, ConnId, Input, Output, Past, Replica, Setup, Unsealed};
use quorate_consensus::{
    Auth, Certificate, Checkpoint, CheckpointProof, Cx, Entry, Healed, Message, Model, OpenError, Place,
    Protocol, Ready, Record, RecordKey, Reject, Seal, Spec, Status, To, Verified, Window,
};
use quorate_crypto::Scheme;
use quorate_types::bundle::BundleBuilder;
use quorate_types::codec::{DecodeError, Wire};
use quorate_types::limits::POOL_PEER_IDLE_BYTES_MAX;
use quorate_types::wire::frame;
use quorate_types::{
    Authenticator, Block, BlockId, BodyLimits, Bundle, BundleKind, BundleNo, ClientAuth, Committee, Digest,
    Floors, Genesis, Height, Kind, LogEntry, Mark, Member, Payload, ProtocolId, PublicKey, ReplicaId,
    SessionId, Signature, Time, View,
};
use std::sync::Arc;

/// "Stand in this view, begun or not."
#[derive(Debug)]
struct Stand(u64, bool);

impl Message for Stand {
    fn kind(&self) -> Kind {
        Kind::new("stand")
    }
    fn place(&self) -> Place {
        Place::ANYWHERE
    }
    fn auth(&self) -> Auth {
        Auth::Linked(None)
    }
    fn encode(&self, out: &mut Vec<u8>) {
        self.0.encode(out);
        self.1.encode(out);
    }
    fn decode(_bytes: &[u8]) -> Result<Self, DecodeError> {
        Err(DecodeError::Tag("never read"))
    }
}

struct Nothing;

impl Record for Nothing {
    fn key(&self) -> RecordKey {
        RecordKey { kind: 0, height: Height::ZERO, scope: Digest::ZERO }
    }
    fn encode(&self, _out: &mut Vec<u8>) {}
    fn decode(_bytes: &[u8]) -> Result<Self, DecodeError> {
        Ok(Self)
    }
}

struct Still {
    status: Status,
}

impl Protocol for Still {
    const SPEC: Spec = Spec {
        name: ProtocolId::new("still"),
        summary: "nothing",
        model: Model::Teaching,
        faults: |_| 1,
        checkpoint_quorum: |_, _| 3,
        replies: |_, _| 2,
        votes_are_durable: true,
        votes_are_signed: false,
        local_validity: false,
        replaces_leader: true,
        rotates_leaders: false,
        first_view: View::ZERO,
        shared_params: &[],
    };
    type Message = Stand;
    type Timer = ();
    type Record = Nothing;
    type Params = toml::Table;

    fn open(
        _cx: &mut Cx<'_, Self>,
        _params: toml::Table,
        _past: quorate_consensus::Past<Nothing>,
    ) -> Result<Self, OpenError> {
        Ok(Self { status: Status { normal: true, ..Status::default() } })
    }
    fn on_message(&mut self, _cx: &mut Cx<'_, Self>, message: Verified<Stand>) -> Result<(), Reject> {
        let (Stand(view, normal), _) = message.into_parts();
        let leader = ReplicaId(u16::try_from(view % 4).unwrap());
        self.status = Status { view: View(view), leader, normal, ..self.status };
        Ok(())
    }
    fn on_timer(&mut self, _cx: &mut Cx<'_, Self>, (): ()) {}
    fn on_ready(&mut self, _cx: &mut Cx<'_, Self>, _block: BlockId, _how: Ready) {}
    fn on_checkpoint(&mut self, _cx: &mut Cx<'_, Self>, stable: &CheckpointProof) {
        self.status.committed = stable.checkpoint.height;
    }
    fn recovery(_params: &toml::Table, _committee: &Committee, _healed: &Healed) -> Time {
        Time::ZERO
    }
    fn exam_params(_delta_ns: u64, _guarded: bool) -> toml::Table {
        toml::Table::new()
    }
    fn window(&self) -> Window {
        Window { views: View::ZERO..View::MAX, heights: Height::ZERO..Height::MAX }
    }
    fn floors(&self) -> Floors {
        Floors::default()
    }
    fn status(&self) -> Status {
        self.status
    }
}

/// Replica 2 of four.
fn open() -> Replica {
    let member = |id: u8| Member { sign: PublicKey([id; 32]), link: PublicKey([100 + id; 32]) };
    let genesis = Genesis {
        protocol: Still::SPEC.name,
        f: 1,
        members: (0..4).map(member).collect(),
        client_auth: ClientAuth::Signature,
        bodies: BodyLimits::default(),
        client_window: 8,
        clients_max: 8,
        checkpoint_every: 4,
        window: 8,
        application: String::new(),
        admin: PublicKey([1; 32]),
        clients: Vec::new(),
        params: String::new(),
        salt: [0; 32],
    };
    let setup = Setup {
        me: ReplicaId(2),
        committee: Arc::new(genesis.committee()),
        genesis: Arc::new(genesis),
        params: toml::Table::new(),
        wall_offset_ns: 0,
    };
    let mut replica = Replica::open(&Entry::of::<Still>(), setup, Past::default()).unwrap();
    outputs(&mut replica);
    replica
}

fn outputs(replica: &mut Replica) -> Vec<Output> {
    std::iter::from_fn(|| replica.poll()).collect()
}

fn from_peer(from: u16, message: CheckedMessage) -> Input {
    let seal = Seal { by: ReplicaId(from), signature: None };
    Input::Peer(Checked { link: ReplicaId(from), seal, message })
}

fn stand(view: u64, normal: bool) -> Input {
    from_peer(0, CheckedMessage::Protocol(Box::new(Stand(view, normal))))
}

fn bundle(number: u64) -> Bundle {
    let session = SessionId { height: Height(1), index: 0 };
    let mut builder = BundleBuilder::new(BundleKind::Requests, PublicKey([7; 32]), session, BundleNo(number));
    builder.push(b"x");
    Bundle::parse(&builder.finish(), Authenticator::None, &BodyLimits::default()).unwrap()
}

/// Whom bundles were sent to.
fn bundles_to(outputs: &[Output]) -> Vec<To> {
    let to = outputs.iter().filter_map(|output| match output {
        Output::Send { to, frame: Unsealed::Bundle(_), .. } => Some(*to),
        _ => None,
    });
    to.collect()
}

/// Whom it was told how far this replica is.
fn told(outputs: &[Output]) -> Vec<To> {
    let told = outputs.iter().filter_map(|output| match output {
        Output::Send { to, frame: Unsealed::Host { message: HostMessage::Heights(_), .. }, .. } => Some(*to),
        _ => None,
    });
    told.collect()
}

#[test]
fn a_checkpoint_is_stable_when_its_proof_is_durable() {
    let mut replica = open();
    let checkpoint = Checkpoint { height: Height(4), ..Checkpoint::GENESIS };
    let votes = [0, 1, 3].map(|id| (ReplicaId(id), Signature([0; 64])));
    let proof = CheckpointProof { checkpoint, certificate: Certificate::of(checkpoint.statement(), &votes) };
    replica.handle(Time(1), from_peer(1, CheckedMessage::Host(HostMessage::Proof(Box::new(proof)))));
    let written: Vec<Mark> = outputs(&mut replica)
        .into_iter()
        .filter_map(|output| match output {
            Output::Persist { mark, entry: LogEntry::Proof(_) } => Some(mark),
            _ => None,
        })
        .collect();
    assert_eq!(written.len(), 1);
    assert_eq!(
        replica.status().stable,
        Height::ZERO,
        "nothing is pruned on the word of what a crash may take back"
    );
    replica.handle(Time(2), Input::Durable(Mark(written[0].0 - 1)));
    assert_eq!(replica.status().stable, Height::ZERO);
    replica.handle(Time(3), Input::Durable(written[0]));
    assert_eq!(replica.status().stable, Height(4));
}

#[test]
fn what_waits_is_forwarded_once_when_a_view_has_begun() {
    let mut replica = open();
    replica.handle(Time(1), Input::Client(ConnId(1), bundle(1)));
    assert_eq!(bundles_to(&outputs(&mut replica)), [To::One(ReplicaId(0))], "to the leader of view 0");
    replica.handle(Time(2), stand(1, false));
    assert_eq!(
        bundles_to(&outputs(&mut replica)),
        [],
        "the view has not begun, and its leader may never lead"
    );
    replica.handle(Time(3), stand(1, true));
    assert_eq!(bundles_to(&outputs(&mut replica)), [To::One(ReplicaId(1))]);
    replica.handle(Time(4), stand(1, true));
    assert_eq!(bundles_to(&outputs(&mut replica)), [], "once");
    replica.handle(Time(5), stand(2, true));
    assert_eq!(bundles_to(&outputs(&mut replica)), [], "not to itself");
    // The same leader, another view: it may have lost what it had.
    replica.handle(Time(6), stand(5, true));
    assert_eq!(bundles_to(&outputs(&mut replica)), [To::One(ReplicaId(1))]);
}

#[test]
fn how_far_it_is_is_told_in_an_idle_cluster_too() {
    const SECOND: u64 = 1_000_000_000;
    let mut replica = open();
    let mut at = Vec::new();
    for second in 1..=21u64 {
        assert!(replica.deadline().is_some());
        replica.tick(Time(second * SECOND));
        if told(&outputs(&mut replica)).contains(&To::All) {
            at.push(second);
        }
    }
    assert_eq!(at, [5, 10, 15, 20]);
}

#[test]
fn nobody_is_told_that_it_is_behind_who_is_not() {
    let mut replica = open();
    let heights = Heights { executed: Height::ZERO, kept: Height(1), stable: Height::ZERO };
    replica.handle(Time(1), from_peer(3, CheckedMessage::Host(HostMessage::Heights(heights))));
    assert_eq!(told(&outputs(&mut replica)), []);
}

/// Answers to what was asked before a restart may come before anybody has said how far it is.
#[test]
fn what_was_decided_before_its_holders_are_known_is_fetched() {
    let mut replica = open();
    let id = BlockId(Digest([5; 32]));
    for from in [1, 3] {
        let decided = HostMessage::Decided(Height(1), vec![id]);
        replica.handle(Time(1), from_peer(from, CheckedMessage::Host(decided)));
    }
    assert_eq!(replica.status().decided, Height(1));
    outputs(&mut replica);
    let heights = Heights { executed: Height(1), kept: Height(1), stable: Height::ZERO };
    replica.handle(Time(2), from_peer(3, CheckedMessage::Host(HostMessage::Heights(heights))));
    let is_ask = |output: &Output| {
        matches!(output, Output::Send { to: To::One(ReplicaId(3)), frame: Unsealed::Host { message, .. }, .. }
            if *message == HostMessage::AskBlock { id, height: Height(1), above: Height::ZERO })
    };
    assert!(outputs(&mut replica).iter().any(is_ask));
}

/// A liar that says the wrong thing about a height, and the right thing about those above, does not keep a replica from
/// what all others have: the block above names the one below.
#[test]
fn what_is_decided_above_a_gap_closes_it() {
    let mut replica = open();
    let block = |parent, height| Block {
        parent,
        height: Height(height),
        view: View(height),
        proposer: ReplicaId(0),
        time_ns: 0,
        payload: Payload::default().id(),
        extra: Digest::ZERO,
    };
    let one = block(BlockId::ZERO, 1);
    let two = block(one.id(), 2);
    let three = block(two.id(), 3);
    let lie = BlockId(Digest([5; 32]));
    for (from, first) in [(1, lie), (3, one.id())] {
        let decided = HostMessage::Decided(Height(1), vec![first, first, three.id()]);
        let heights = Heights { executed: Height(3), kept: Height(1), stable: Height::ZERO };
        replica.handle(Time(1), from_peer(from, CheckedMessage::Host(HostMessage::Heights(heights))));
        replica.handle(Time(1), from_peer(from, CheckedMessage::Host(decided)));
    }
    assert_eq!(replica.status().decided, Height::ZERO, "one peer alone says anything of 1 and 2");
    let give = |block| from_peer(3, CheckedMessage::Host(HostMessage::Block(block)));
    replica.handle(Time(2), give(three));
    assert_eq!(replica.status().decided, Height::ZERO);
    replica.handle(Time(3), give(two));
    assert_eq!(replica.status().decided, Height(3));
}

/// Nobody waits for any bundle: all were executed long ago.
struct Old;

impl Admit for Old {
    fn admit(&self, _bundle: &Bundle) -> Admission {
        Admission::Forgotten
    }
}

/// A bundle of half a megabyte that its client has not signed.
fn large(number: u64) -> Bundle {
    let session = SessionId { height: Height(1), index: 0 };
    let mut builder = BundleBuilder::new(BundleKind::Requests, PublicKey([7; 32]), session, BundleNo(number));
    for _ in 0..8 {
        builder.push(&[0; 64 << 10]);
    }
    Bundle::parse(&builder.finish(), Authenticator::Signature(Signature([1; 64])), &BodyLimits::default())
        .unwrap()
}

/// What nobody waits for is kept for blocks that may name it, as far as there is room. Where there is none, its
/// signature is not looked at; but whoever has just said what a block is made of is heard.
#[test]
fn what_would_not_be_kept_is_not_checked() {
    let replica = open();
    let mut intake = replica.intake(Scheme::Cheap);
    let mut replica = replica;
    // How many of ten were checked: none of them is signed, so all of those are refused for that.
    let mut checked = |replica: &Replica, from, payload: Option<&[u8]>| {
        let mut passed = Passed::default();
        for number in 100..110 {
            if let Some(payload) = payload.filter(|_| number == 100) {
                intake.peer_frame(ReplicaId(from), frame::PAYLOAD, payload);
            }
            intake.peer_frame(ReplicaId(from), frame::BUNDLE, large(number).sealed());
            intake.run(replica, &Old, &mut || true, &mut passed);
        }
        let reasons = |reason| passed.refused.iter().filter(|refused| refused.reason == reason).count();
        assert_eq!(reasons("bad signature") + reasons("no room for bundle"), 10);
        reasons("bad signature")
    };
    assert_eq!(checked(&replica, 1, None), 10, "there is room");
    let fit = POOL_PEER_IDLE_BYTES_MAX / large(1).size();
    for number in 1..=fit as u64 {
        let (from, bundle) = (ReplicaId(1), large(number));
        replica.handle(Time(1), Input::Bundle { from, bundle, pending: false });
    }
    assert_eq!(checked(&replica, 1, None), 0);
    assert_eq!(checked(&replica, 3, None), 10, "each peer has room of its own");
    let mut payload = Vec::new();
    Payload { bundles: vec![large(100).digest()] }.encode(&mut payload);
    assert_eq!(
        checked(&replica, 1, Some(&payload)),
        1,
        "a block may be made of it; the replica has not seen yet"
    );
}
