//! The behaviour of a replica apart from its protocol: the protocol here only enters the views that it is ordered to.

use crate::clients::{Admission, Admit};
use crate::host_message::{Heights, HostMessage};
use crate::intake::Passed;
use crate::{Checked, CheckedMessage, ConnId, Input, Output, Replica, ReplicaSetup, RestoredLog, Unsealed};
use quorate_consensus::{
    Alarm, Auth, Certificate, Checkpoint, CheckpointProof, Cx, Entry, Examined, Healed, LinkEvent, Message,
    Model, Note, OpenError, Place, Protocol, Ready, Record, RecordKey, Reject, Seal, Spec, Status, Synchrony,
    To, Verified, Window,
};
use quorate_crypto::Scheme;
use quorate_types::bundle::BundleBuilder;
use quorate_types::codec::{DecodeError, Reader, Wire};
use quorate_types::limits::POOL_PEER_IDLE_BYTES_MAX;
use quorate_types::wire::{Lane, frame};
use quorate_types::{
    Authenticator, Block, BlockId, BodyLimits, Bundle, BundleKind, BundleNo, ClientAuth, Committee, Digest,
    Floors, Genesis, Height, Incarnation, Kind, LogEntry, Mark, Member, Payload, ProtocolId, PublicKey,
    ReplicaId, SessionId, Signature, Time, View,
};
use std::sync::Arc;

/// An order for the protocol.
#[derive(Clone, Copy, Debug)]
enum Order {
    /// Enter this view, begun or not.
    Stand(u64, bool),
    /// Ask whether all was sound since the first time, with answers to probes from the second time on: now, and
    /// whenever the answer may have changed.
    Ask(Time, Time),
    /// Raise the alarm that a message was late.
    Complain,
    /// Make a promise, which waits for the disk.
    Promise,
}

impl Message for Order {
    fn kind(&self) -> Kind {
        Kind::new("order")
    }
    fn place(&self) -> Place {
        Place::ANYWHERE
    }
    fn auth(&self) -> Auth {
        Auth::Linked(None)
    }
}

impl Wire for Order {
    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(format!("{self:?}").as_bytes());
    }
    fn decode(_: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Err(DecodeError::Tag("never read"))
    }
}

struct Nothing;

impl Record for Nothing {
    fn key(&self) -> RecordKey {
        RecordKey { kind: 0, height: Height::ZERO, scope: Digest::ZERO }
    }
}

impl Wire for Nothing {
    fn encode(&self, _out: &mut Vec<u8>) {}
    fn decode(_: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self)
    }
}

struct Still {
    status: Status,
    asks: Option<(Time, Time)>,
}

impl Still {
    fn ask(&self, cx: &mut Cx<'_, Self>) {
        if let Some((since, fresh)) = self.asks {
            let what = if cx.sound(since, fresh) { "sound" } else { "not sound" };
            cx.note(Note { what, view: View::ZERO, height: Height::ZERO });
        }
    }
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
        repeatable: &[],
        roles: &[],
    };
    type Message = Order;
    type Timer = ();
    type Record = Nothing;
    type Params = toml::Table;

    fn open(
        _cx: &mut Cx<'_, Self>,
        _params: toml::Table,
        _past: quorate_consensus::Past<Nothing>,
    ) -> Result<Self, OpenError> {
        Ok(Self { status: Status { normal: true, ..Status::default() }, asks: None })
    }
    fn on_message(&mut self, cx: &mut Cx<'_, Self>, message: Verified<Order>) -> Result<(), Reject> {
        match message.into_parts().0 {
            Order::Stand(view, normal) => {
                let leader = ReplicaId(u16::try_from(view % 4).unwrap());
                self.status = Status { view: View(view), leader, normal, ..self.status };
            }
            Order::Ask(since, fresh) => {
                self.asks = Some((since, fresh));
                self.ask(cx);
            }
            Order::Complain => {
                let view = self.status.view;
                cx.alarm(Alarm::SynchronyDoubt { view, peer: None, why: "no certificate" });
            }
            Order::Promise => {
                cx.record(&Nothing);
                cx.send(To::All, Order::Promise);
            }
        }
        Ok(())
    }
    fn on_timer(&mut self, _cx: &mut Cx<'_, Self>, (): ()) {}
    fn on_sound(&mut self, cx: &mut Cx<'_, Self>) {
        cx.note(Note { what: "heard", view: View::ZERO, height: Height::ZERO });
        self.ask(cx);
    }
    fn on_ready(&mut self, _cx: &mut Cx<'_, Self>, _block: BlockId, _how: Ready) {}
    fn on_checkpoint(&mut self, _cx: &mut Cx<'_, Self>, stable: &CheckpointProof) {
        self.status.committed = stable.checkpoint.height;
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

impl Examined for Still {
    fn recovery(_params: &toml::Table, _committee: &Committee, _healed: &Healed) -> Time {
        Time::ZERO
    }
    fn exam_params(_delta_ns: u64, _guarded: bool) -> toml::Table {
        toml::Table::new()
    }
}

/// Opens replica 2 of four.
pub(crate) fn open() -> Replica {
    open_on(RestoredLog::default())
}

pub(crate) fn open_on(log: RestoredLog) -> Replica {
    open_as(&Entry::of::<Still>(), log)
}

/// Δ of [`bounded`]: probes go every 10 ms.
const DELTA_NS: u64 = 40_000_000;
const MS: u64 = 1_000_000;

/// Opens replica 2 of four, with a protocol that assumes a bound on delays and whose votes are not durable.
pub(crate) fn bounded() -> Replica {
    let entry = Entry::of::<Still>();
    let entry = Entry {
        spec: Spec { votes_are_durable: false, model: Model::Synchrony, ..entry.spec },
        synchrony: |_| Ok(Some(Synchrony { delta_ns: DELTA_NS, guarded: true })),
        ..entry
    };
    open_as(&entry, RestoredLog::default())
}

fn open_as(entry: &Entry, log: RestoredLog) -> Replica {
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
        base: None,
    };
    let setup = ReplicaSetup {
        me: ReplicaId(2),
        committee: Arc::new(genesis.committee()),
        genesis: Arc::new(genesis),
        params: toml::Table::new(),
        wall_offset_ns: 0,
        secret: Digest([7; 32]),
    };
    let mut replica = Replica::open(entry, setup, log).unwrap();
    outputs(&mut replica);
    replica
}

pub(crate) fn outputs(replica: &mut Replica) -> Vec<Output> {
    std::iter::from_fn(|| replica.poll()).collect()
}

pub(crate) fn from_peer(from: u16, message: CheckedMessage) -> Input {
    let seal = Seal { by: ReplicaId(from), signature: None };
    Input::Peer(Checked { link: ReplicaId(from), seal, message })
}

fn order(order: Order) -> Input {
    from_peer(0, CheckedMessage::Protocol(Box::new(order)))
}

fn stand(view: u64, normal: bool) -> Input {
    order(Order::Stand(view, normal))
}

pub(crate) fn bundle(number: u64) -> Bundle {
    let session = SessionId { height: Height(1), index: 0 };
    let mut builder = BundleBuilder::new(BundleKind::Requests, PublicKey([7; 32]), session, BundleNo(number));
    builder.push(b"x");
    Bundle::parse(&builder.finish(), Authenticator::None, &BodyLimits::default()).unwrap()
}

/// Returns the receivers of bundles.
fn bundles_to(outputs: &[Output]) -> Vec<To> {
    let to = outputs.iter().filter_map(|output| match output {
        Output::Send { to, frame: Unsealed::Bundle(_), .. } => Some(*to),
        _ => None,
    });
    to.collect()
}

/// Returns the receivers of this replica's heights.
fn told(outputs: &[Output]) -> Vec<To> {
    let told = outputs.iter().filter_map(|output| match output {
        Output::Send { to, frame: Unsealed::Host { message: HostMessage::Heights(_), .. }, .. } => Some(*to),
        _ => None,
    });
    told.collect()
}

#[test]
fn checkpoint_is_stable_when_its_proof_is_durable() {
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
    assert_eq!(replica.status().stable, Height::ZERO, "a crash may lose the proof, so nothing is pruned yet");
    replica.handle(Time(2), Input::Durable(Mark(written[0].0 - 1)));
    assert_eq!(replica.status().stable, Height::ZERO);
    replica.handle(Time(3), Input::Durable(written[0]));
    assert_eq!(replica.status().stable, Height(4));
}

#[test]
fn pending_bundles_are_forwarded_once_when_a_view_has_begun() {
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
    // The same leader in another view may have lost the bundles.
    replica.handle(Time(6), stand(5, true));
    assert_eq!(bundles_to(&outputs(&mut replica)), [To::One(ReplicaId(1))]);
}

#[test]
fn heights_are_announced_in_an_idle_cluster_too() {
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
fn peer_that_is_not_behind_receives_no_heights() {
    let mut replica = open();
    let heights = Heights { executed: Height::ZERO, kept: Height(1), stable: Height::ZERO };
    replica.handle(Time(1), from_peer(3, CheckedMessage::Host(HostMessage::Heights(heights))));
    assert_eq!(told(&outputs(&mut replica)), []);
}

/// A liar reports a wrong id for one height and right ids above it. A replica still learns what all others have: the
/// block above names the one below.
#[test]
fn decision_above_a_gap_closes_it() {
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
    replica.tick(Time(1));
    assert_eq!(replica.status().decided, Height::ZERO, "one peer alone reports 1 and 2");
    let give = |block| from_peer(3, CheckedMessage::Host(HostMessage::Block(block)));
    replica.handle(Time(2), give(three));
    assert_eq!(replica.status().decided, Height::ZERO);
    replica.handle(Time(3), give(two));
    assert_eq!(replica.status().decided, Height(3));
}

/// An executor that has executed all bundles long ago.
pub(crate) struct Old;

impl Admit for Old {
    fn admit(&self, _bundle: &Bundle) -> Admission {
        Admission::Forgotten
    }
}

/// Returns a bundle of half a megabyte without a valid signature.
pub(crate) fn large(number: u64) -> Bundle {
    let session = SessionId { height: Height(1), index: 0 };
    let mut builder = BundleBuilder::new(BundleKind::Requests, PublicKey([7; 32]), session, BundleNo(number));
    for _ in 0..8 {
        builder.push(&[0; 64 << 10]);
    }
    Bundle::parse(&builder.finish(), Authenticator::Signature(Signature([1; 64])), &BodyLimits::default())
        .unwrap()
}

/// The pool keeps idle bodies for blocks that may name them, as far as there is room. Without room, their signatures
/// are not checked. Bodies of a peer that has just sent a payload are checked all the same.
#[test]
fn bundle_without_room_is_not_checked() {
    let replica = open();
    let mut intake = replica.intake(Scheme::Cheap);
    let mut replica = replica;
    // Returns the number of checked bundles among ten: none is signed, so each checked one is refused for that.
    let mut checked = |replica: &Replica, from, payload: Option<&[u8]>| {
        let mut passed = Passed::default();
        for number in 100..110 {
            if let Some(payload) = payload.filter(|_| number == 100) {
                intake.peer_frame(ReplicaId(from), frame::PAYLOAD, payload);
            }
            intake.peer_frame(ReplicaId(from), frame::BUNDLE, large(number).sealed());
            intake.run(replica, &Old, &mut || true, &mut || 0, &mut passed);
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
    assert_eq!(checked(&replica, 1, Some(&payload)), 1, "a block that the replica has not seen may need it");
}

/// Returns the number of the probes of a round.
fn number(round: u64) -> u64 {
    crate::synchrony::probe_number(Digest([7; 32]), Incarnation(1), round)
}

/// Returns the probes that were sent: round, and number of receivers.
fn probes(outputs: &[Output]) -> Vec<(u64, usize)> {
    let probe = |output: &Output| match output {
        Output::Send { to, lane, frame: Unsealed::Host { message, .. } } => match (to, message) {
            (To::Some(to), HostMessage::Probe { number, .. }) => {
                assert_eq!(*lane, Lane::Consensus);
                Some(((0..9).find(|round| self::number(*round) == *number).unwrap(), to.len()))
            }
            _ => None,
        },
        _ => None,
    };
    outputs.iter().filter_map(probe).collect()
}

fn notes(outputs: &[Output]) -> Vec<&'static str> {
    let note = |output: &Output| match output {
        Output::Trace(note) => Some(note.what),
        _ => None,
    };
    outputs.iter().filter_map(note).collect()
}

fn answer(replica: &Replica, from: u16, round: u64) -> Input {
    let (incarnation, number, at) = (replica.incarnation(), number(round), Time(0));
    let answer = HostMessage::ProbeAnswer { incarnation, number, oldest_ns: 0, at };
    from_peer(from, CheckedMessage::Host(answer))
}

/// Returns the answers to probes among these outputs.
fn answers(outputs: &[Output]) -> Vec<HostMessage> {
    let answer = |output: &Output| match output {
        Output::Send { lane: Lane::Consensus, frame: Unsealed::Host { message, .. }, .. } => {
            matches!(message, HostMessage::ProbeAnswer { .. }).then(|| message.clone())
        }
        _ => None,
    };
    outputs.iter().filter_map(answer).collect()
}

/// A probe is answered from the handler, whatever the disk does, and the answer has the delay of the disk.
#[test]
fn probe_is_answered_at_once() {
    let mut replica = bounded();
    let (incarnation, number) = (Incarnation(77), 5);
    let probe = || from_peer(1, CheckedMessage::Host(HostMessage::Probe { incarnation, number }));
    let answer = |oldest_ns, at| HostMessage::ProbeAnswer { incarnation, number, oldest_ns, at };
    replica.handle(Time(MS), probe());
    assert_eq!(answers(&outputs(&mut replica)), [answer(0, Time(MS))]);
    replica.handle(Time(2 * MS), order(Order::Promise));
    replica.handle(Time(9 * MS), probe());
    let out = outputs(&mut replica);
    assert_eq!(answers(&out), [answer(7 * MS, Time(9 * MS))], "the promise has waited for 7 ms");
    let record = out.iter().find_map(|output| match output {
        Output::Persist { mark, entry: LogEntry::Record(_) } => Some(*mark),
        _ => None,
    });
    replica.handle(Time(10 * MS), Input::Durable(record.unwrap()));
    replica.handle(Time(11 * MS), probe());
    assert_eq!(answers(&outputs(&mut replica)), [answer(0, Time(11 * MS))]);
}

#[test]
fn replica_without_a_bound_neither_probes_nor_answers() {
    let mut replica = open();
    replica.tick(Time(100 * MS));
    assert_eq!(probes(&outputs(&mut replica)), []);
    for message in [
        HostMessage::Probe { incarnation: Incarnation(1), number: 0 },
        HostMessage::ProbeAnswer { incarnation: Incarnation(1), number: 0, oldest_ns: 0, at: Time(0) },
    ] {
        replica.handle(Time(100 * MS), from_peer(1, CheckedMessage::Host(message)));
        let out = outputs(&mut replica);
        assert!(answers(&out).is_empty());
        assert!(matches!(out[..], [Output::Rejected { from: ReplicaId(1), why: Reject::Invalid(_), .. }]));
    }
    replica.handle(Time(100 * MS), order(Order::Ask(Time(99 * MS), Time(100 * MS))));
    assert_eq!(notes(&outputs(&mut replica)), ["sound"], "no peer is asked");
    assert_eq!((replica.doubt(), replica.status().guard), (None, None));
}

#[test]
fn protocol_hears_when_doubt_begins_and_ends() {
    let mut replica = bounded();
    let mut heard = Vec::new();
    for ms in 0..=60 {
        assert!(replica.deadline().unwrap() <= Time((ms + 10) * MS));
        replica.tick(Time(ms * MS));
        let out = outputs(&mut replica);
        let expected = if ms % 10 == 0 { vec![(ms / 10, 3)] } else { vec![] };
        assert_eq!(probes(&out), expected, "{ms} ms");
        heard.extend(notes(&out).into_iter().map(|note| (ms, note)));
        // The messages of the protocol set the pace.
        if ms == 5 {
            replica.handle(Time(ms * MS), stand(0, true));
            assert_eq!(outputs(&mut replica).len(), 0);
        }
        if ms == 35 {
            let answer = answer(&replica, 1, 2);
            replica.handle(Time(ms * MS), answer);
        }
    }
    assert_eq!(heard, [(40, "heard")], "two of three are late, and f is 1");
    assert_eq!(replica.doubt(), Some((true, 1)));
    let status = replica.status();
    assert!(status.to_string().contains("guarded"), "{status}");
    let late = [0, 3].map(|id| (ReplicaId(id), Time(40 * MS)));
    assert_eq!(status.guard.unwrap().late, late, "the probe to 1 at 30 is not due");
    for from in [1, 3] {
        let answer = answer(&replica, from, 6);
        replica.handle(Time(61 * MS), answer);
        let expected: &[&str] = if from == 3 { &["heard"] } else { &[] };
        assert_eq!(notes(&outputs(&mut replica)), expected);
    }
    assert_eq!(replica.doubt(), Some((false, 1)));
    // A gap is reported at once.
    for peer in [1, 3] {
        replica.handle(Time(62 * MS), Input::Link(ReplicaId(peer), LinkEvent::Gap));
    }
    assert_eq!(notes(&outputs(&mut replica)), ["heard"]);
    assert_eq!(replica.doubt(), Some((true, 2)));
}

/// If the protocol asks for fresh answers, a probe goes at once, and the protocol hears of the answers.
#[test]
fn request_for_freshness_sends_a_probe_at_once() {
    let mut replica = bounded();
    replica.tick(Time(0));
    for from in [0, 1, 3] {
        let answer = answer(&replica, from, 0);
        replica.handle(Time(MS), answer);
    }
    outputs(&mut replica);
    replica.handle(Time(3 * MS), order(Order::Ask(Time(MS), Time(3 * MS))));
    let out = outputs(&mut replica);
    assert_eq!((notes(&out), probes(&out)), (vec!["not sound"], vec![(1, 3)]));
    for (from, expected) in [(0, vec![]), (1, vec!["heard", "sound"]), (3, vec![])] {
        let answer = answer(&replica, from, 1);
        replica.handle(Time(4 * MS), answer);
        let out = outputs(&mut replica);
        assert_eq!((notes(&out), probes(&out)), (expected, vec![]), "n - f - 1 are 2");
    }
    replica.handle(Time(5 * MS), answer(&replica, 1, 1));
    let why = outputs(&mut replica);
    assert!(matches!(why[..], [Output::Rejected { from: ReplicaId(1), why: Reject::Stale, .. }]), "{why:?}");
}

/// A missing answer is late although inputs are handled only now: a replica that stood still does not report missed
/// time as sound.
#[test]
fn standstill_is_noticed_before_the_protocol_asks() {
    let mut replica = bounded();
    replica.tick(Time(0));
    outputs(&mut replica);
    replica.handle(Time(500 * MS), order(Order::Ask(Time(MS), Time(0))));
    let out = outputs(&mut replica);
    assert_eq!(notes(&out), ["not sound", "heard", "not sound"]);
    assert_eq!(probes(&out), [(1, 3)], "the next round was due long ago");
}

#[test]
fn synchrony_alarm_does_not_stop_the_replica() {
    let mut replica = bounded();
    for times in 1..=3 {
        replica.handle(Time(times * MS), order(Order::Complain));
        let out = outputs(&mut replica);
        assert_eq!(notes(&out), ["no certificate"]);
        assert!(!out.iter().any(|output| matches!(output, Output::Stop(_))));
        assert_eq!(replica.doubted().1, times);
    }
    let status = replica.status();
    // The alarm was raised while a message of 0 was handled.
    let last = "the bound on delays does not hold in view 0: no certificate (replica 0)";
    assert_eq!(
        (status.alarms.stopped, status.alarms.doubts, status.alarms.last_doubt.unwrap().to_string()),
        (None, 3, last.to_owned())
    );
    replica.handle(Time(9 * MS), stand(4, true));
    assert_eq!(replica.status().view, View(4), "the replica continues");
}

/// Returns the heights to execute.
fn executed(outputs: &[Output]) -> Vec<Height> {
    let height = |output: &Output| match output {
        Output::Execute(block) => Some(block.height),
        _ => None,
    };
    outputs.iter().filter_map(height).collect()
}

/// Returns the marks of decisions in the log.
fn decided(outputs: &[Output]) -> Vec<Mark> {
    let mark = |output: &Output| match output {
        Output::Persist { mark, entry: LogEntry::Decided { .. } } => Some(*mark),
        _ => None,
    };
    outputs.iter().filter_map(mark).collect()
}

/// Returns the mark up to which the log is to be synced.
fn asked(outputs: &[Output]) -> Option<Mark> {
    let mark = |output: &Output| match output {
        Output::Sync(mark) => Some(*mark),
        _ => None,
    };
    outputs.iter().filter_map(mark).max()
}

/// Without durable votes the log alone knows the decision: it is durable before any client or peer hears of the
/// execution.
#[test]
fn block_without_durable_votes_is_executed_when_its_decision_is_durable() {
    // The second of three blocks answers a client.
    let (bundle, empty) = (bundle(1), Payload::default());
    let payload = Payload { bundles: vec![bundle.digest()] };
    let block = |parent, height, payload: &Payload| Block {
        parent,
        height: Height(height),
        view: View(1),
        proposer: ReplicaId(0),
        time_ns: 0,
        payload: payload.id(),
        extra: Digest::ZERO,
    };
    let two = block(BlockId::null(Height(1)), 2, &payload);
    let three = block(two.id(), 3, &empty);
    let ids = vec![BlockId::null(Height(1)), two.id(), three.id()];
    let give = |message| from_peer(3, CheckedMessage::Host(message));
    let learn = |replica: &mut Replica| {
        replica.handle(Time(1), order(Order::Promise));
        outputs(replica);
        for from in [1, 3] {
            let heights = Heights { executed: Height(3), kept: Height(1), stable: Height::ZERO };
            replica.handle(Time(1), from_peer(from, CheckedMessage::Host(HostMessage::Heights(heights))));
            let ids = HostMessage::Decided(Height(1), ids.clone());
            replica.handle(Time(1), from_peer(from, CheckedMessage::Host(ids)));
        }
        replica.tick(Time(1));
        let first = outputs(replica);
        for block in [three.clone(), two.clone()] {
            replica.handle(Time(4), give(HostMessage::Block(block)));
        }
        for payload in [&payload, &empty] {
            replica.handle(Time(4), Input::Payload(ReplicaId(3), Arc::new(payload.clone())));
        }
        let bundle = Input::Bundle { from: ReplicaId(3), bundle: bundle.clone(), pending: false };
        replica.handle(Time(4), bundle);
        (first, outputs(replica))
    };

    let (first, then) = learn(&mut open());
    assert_eq!(executed(&first), [Height(1)]);
    assert_eq!(executed(&then), [Height(2), Height(3)], "its voters have durable votes");

    let mut replica = bounded();
    let (first, then) = learn(&mut replica);
    assert_eq!((executed(&first), decided(&first).len()), (vec![], 1));
    assert_eq!(asked(&first), None, "no client waits for an empty block");
    assert_eq!(replica.status().decided, Height(3));
    let marks = decided(&then);
    assert_eq!((executed(&then), marks.len()), (vec![], 2));
    assert_eq!(asked(&then), marks.first().copied(), "at once, and for the block that answers a client");
    replica.handle(Time(5), Input::Durable(Mark(marks[0].0 - 1)));
    assert_eq!(executed(&outputs(&mut replica)), [Height(1)]);
    replica.handle(Time(6), Input::Durable(marks[0]));
    assert_eq!(executed(&outputs(&mut replica)), [Height(2)]);
    replica.handle(Time(7), Input::Durable(marks[1]));
    assert_eq!(executed(&outputs(&mut replica)), [Height(3)], "not before its own mark");
}
