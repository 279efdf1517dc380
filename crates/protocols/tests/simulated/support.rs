//! Helpers of several tests.

use quorate_consensus::{Entry, Message, To};
use quorate_protocols::pbft::{PbftMessage, SignedMessage, VIEW_CHANGE};
use quorate_sim::{
    Change, ControlledInput, Costs, Frame, LinkConditions, NetworkFault, Op, OpId, Places, Settings,
    Survives, Transport, Verdict, World, ms, secs,
};
use quorate_types::bundle::bundle_digest;
use quorate_types::codec::Wire as _;
use quorate_types::wire::{FromClient, frame};
use quorate_types::{Kind, Payload, ReplicaId, View};

/// The protocol of most tests.
pub(crate) fn pbft() -> &'static Entry {
    quorate_protocols::find("pbft").unwrap()
}

/// PBFT with all votes signed.
pub(crate) fn pbft_signed() -> &'static Entry {
    quorate_protocols::find("pbft-signed").unwrap()
}

/// Makes tests of scenarios, each for both variants of PBFT.
macro_rules! both {
    ($($scenario:ident)*) => {
        mod pbft {
            $(#[test] fn $scenario() { super::$scenario(crate::support::pbft()); })*
        }
        mod pbft_signed {
            $(#[test] fn $scenario() { super::$scenario(crate::support::pbft_signed()); })*
        }
    };
}
pub(crate) use both;

pub(crate) fn r(id: u16) -> ReplicaId {
    ReplicaId(id)
}

pub(crate) fn put(key: &str, value: impl ToString) -> Op {
    Op::Put { key: key.to_owned(), value: value.to_string() }
}

pub(crate) fn incr(key: &str) -> Op {
    Op::Increment { key: key.to_owned(), by: 1 }
}

/// Returns a world of four replicas with this seed.
pub(crate) fn world(seed: u64, change: impl FnOnce(&mut Settings)) -> World {
    world_of(pbft(), seed, change)
}

pub(crate) fn world_of(entry: &Entry, seed: u64, change: impl FnOnce(&mut Settings)) -> World {
    let mut settings = Settings::new(entry, seed);
    change(&mut settings);
    World::new(settings).unwrap()
}

/// Checkpoints every 4 heights, and a window of 8.
pub(crate) fn short_window(settings: &mut Settings) {
    settings.checkpoint_every = 4;
    settings.window = 8;
}

/// Treq and T0 of these worlds.
pub(crate) const TREQ_NS: u64 = ms(160);
/// See [`TREQ_NS`].
pub(crate) const T0_NS: u64 = ms(160);
/// Treq + T0, two rounds of messages, and a client's retry.
pub(crate) const VIEW_CHANGE_NS: u64 = TREQ_NS + T0_NS + secs(1);

/// The delay of every message in a world in which only messages take time.
pub(crate) const DELAY_NS: u64 = ms(1);

/// Returns a world in which only messages take time, all of them the same. It serves to count delays.
pub(crate) fn constant_of(entry: &Entry, seed: u64) -> World {
    world_of(entry, seed, |settings| {
        settings.conditions = LinkConditions::constant(DELAY_NS);
        settings.costs = Costs::NONE;
    })
}

/// Stops a replica, applies `change` to it, and starts it again.
pub(crate) fn restart(world: &mut World, id: ReplicaId, change: impl FnOnce(&mut World)) {
    world.crash(id, Survives::Everything);
    go(world.run_for(ms(100)), world);
    change(world);
    world.start(id).unwrap();
    go(world.run_for(secs(1)), world);
}

/// Runs until all clients have their sessions.
pub(crate) fn begin(world: &mut World) {
    let clients = world.settings().clients;
    let open = |world: &World| (0..clients).all(|client| world.session(client).is_some());
    go(world.run_while("all clients have their sessions", secs(10), |world| !open(world)), world);
}

/// Panics if an oracle has reported a failure.
pub(crate) fn go(result: Result<(), quorate_sim::Failure>, world: &World) {
    if let Err(failure) = result {
        let settings = world.settings();
        panic!("{} seed {} {:?}: {failure}", settings.entry.spec.name, settings.seed, settings.transport);
    }
}

/// Submits one operation and runs until it is answered.
pub(crate) fn ask(world: &mut World, client: usize, op: Op) -> OpId {
    let id = world.submit(client, &[op])[0];
    wait_for(world, &[id], secs(60));
    id
}

/// Makes so many requests, one after the other, over five keys. Returns the number of heights that they took.
pub(crate) fn many(world: &mut World, bundles: usize) -> u64 {
    let height = world.height();
    for value in 0..bundles {
        let op: Op = put(&format!("k{}", value % 5), format!("{value:0>200}"));
        ask(world, value % 4, op);
    }
    world.height().since(height)
}

/// Cuts one replica off from all others and from clients until the network fault ends.
pub(crate) fn cut(world: &mut World, who: usize) -> u64 {
    let one = Places::one(who);
    world.begin_fault(NetworkFault {
        from: one,
        to: one.others(),
        both_ways: true,
        change: Change::Cut,
        fault: None,
    })
}

/// Runs until these operations are answered.
pub(crate) fn wait_for(world: &mut World, ids: &[OpId], span_ns: u64) {
    let waits = |world: &World| ids.iter().any(|id| world.history().get(*id).unwrap().answered.is_none());
    go(world.run_while("operations are answered", span_ns, waits), world);
}

/// Runs until a client's bundle has reached a controlled replica, forwards its bytes to all replicas, and returns its
/// payload.
pub(crate) fn spread_bundle(world: &mut World, controlled: ReplicaId) -> Payload {
    for _ in 0..2_000 {
        go(world.run_for(ms(1)), world);
        for heard in world.received(controlled) {
            let ControlledInput::Client(_, message) = heard else { continue };
            let Ok(FromClient::Bundle { content, .. }) = FromClient::from_bytes(&message) else { continue };
            let payload = Payload { bundles: vec![bundle_digest(&content)] };
            world.send_frame_as(controlled, To::All, frame::BUNDLE, message.slice(1..));
            world.send_frame_as(controlled, To::All, frame::PAYLOAD, payload.to_bytes().into());
            return payload;
        }
    }
    panic!("no bundle has reached the controlled replica");
}

/// Returns the latency of an operation.
pub(crate) fn latency(world: &World, id: OpId) -> u64 {
    let record = world.history().get(id).unwrap();
    record.answered.unwrap().since(record.call)
}

/// Runs until all running replicas are at one height, and judges the end.
pub(crate) fn settle(world: &mut World) {
    let is_level = |world: &World| {
        let height = world.height();
        world.all_done() && world.replicas().all(|id| world.executed(id) == height)
    };
    go(world.run_while("all replicas are at one height", secs(30), |world| !is_level(world)), world);
    go(world.read_back(), world);
    go(world.run_while("all replicas have executed the reads", secs(10), |world| !is_level(world)), world);
    let settled = world.check_settled();
    go(settled, world);
}

/// Runs until the honest replicas are at one height.
pub(crate) fn level(world: &mut World) {
    let done = |world: &World| world.all_done() && world.is_level();
    go(world.run_while("the honest replicas are at one height", secs(30), |world| !done(world)), world);
}

/// Judges the end like [`settle`] when some replicas are not honest.
pub(crate) fn settle_honest(world: &mut World) {
    level(world);
    go(world.read_back(), world);
    level(world);
    let settled = world.check_settled();
    go(settled, world);
}

/// Returns the number of refusals with this reason.
pub(crate) fn refused(world: &World, reason: &str) -> u64 {
    world.rejected().get(reason).copied().unwrap_or_default()
}

/// Drops all frames that `drops` accepts.
pub(crate) fn drop_frames(world: &mut World, mut drops: impl FnMut(&Frame) -> bool + 'static) {
    world.hook(move |_, frame| if drops(frame) { Verdict::Drop } else { Verdict::Pass });
}

/// Returns the view of a running replica.
pub(crate) fn view(world: &World, id: ReplicaId) -> View {
    world.status(id).unwrap().view
}

/// Returns the bound that the protocol promises, from now, after the last fault, to the next execution. No body that
/// these worlds lack takes long to fetch.
pub(crate) fn recovery(world: &World, outage_ns: u64) -> u64 {
    world.recovery(outage_ns, 0).0
}

/// Checks that no replica has left the first view or sent a message about it.
pub(crate) fn no_view_change(world: &World) {
    assert_eq!(sent(world, VIEW_CHANGE), 0, "no replica leaves the view");
    for id in world.replicas().filter(|id| world.is_running(*id)) {
        assert_eq!(view(world, id), View(0), "replica {id}");
    }
}

/// Returns a message of PBFT as its variant seals it.
pub(crate) fn message(entry: &Entry, message: PbftMessage) -> Box<dyn Message> {
    if entry.spec.votes_are_signed { Box::new(SignedMessage(message)) } else { Box::new(message) }
}

/// Returns the number of frames of this kind so far.
pub(crate) fn sent(world: &World, kind: Kind) -> u64 {
    world.sent().get(&kind).copied().unwrap_or_default()
}

pub(crate) const SURVIVES: [Survives; 3] = [Survives::Nothing, Survives::Some, Survives::Everything];
pub(crate) const TRANSPORTS: [Transport; 2] = [Transport::Links, Transport::Datagrams];
