//! Worlds of Sync HotStuff and Opt Sync with exact message delays, and with one leader that sends the messages of the test.

use crate::support::{begin, go, incr, level, r, settle_honest, wait_for, world_of};
use quorate_consensus::parts::chain::empty_payload;
use quorate_consensus::{Certificate, Entry, To};
use quorate_protocols::sync_hotstuff::{Header, SyncMessage, bind_base, vote};
use quorate_sim::{
    Byzantine, Costs, Frame, KvResult, LinkConditions, Settings, Survives, Transport, Verdict, World, ms,
    secs,
};
use quorate_types::{Block, BlockId, Height, ReplicaId, ReplicaSet, Time, View};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// Δ of these worlds.
pub(crate) const DELTA_NS: u64 = ms(100);
/// Delay of a message.
pub(crate) const NEAR_NS: u64 = ms(10);
/// τ of these worlds.
pub(crate) const HEARTBEAT_NS: u64 = 2 * DELTA_NS;

pub(crate) fn sync_hotstuff() -> &'static Entry {
    quorate_protocols::find("sync-hotstuff").unwrap()
}

pub(crate) fn optsync() -> &'static Entry {
    quorate_protocols::find("optsync").unwrap()
}

/// Makes tests of scenarios, each for both protocols.
macro_rules! both_synchronous {
    ($($scenario:ident)*) => {
        mod sync_hotstuff {
            $(#[test] fn $scenario() { super::$scenario(crate::sync_exact_world::sync_hotstuff()); })*
        }
        mod optsync {
            $(#[test] fn $scenario() { super::$scenario(crate::sync_exact_world::optsync()); })*
        }
    };
}
pub(crate) use both_synchronous;

/// A message of the protocol with its time.
#[derive(Clone, Debug)]
pub(crate) struct Sent {
    pub(crate) at: Time,
    pub(crate) from: ReplicaId,
    pub(crate) message: SyncMessage,
}

/// All messages between replicas.
#[derive(Default)]
pub(crate) struct MessageLog {
    pub(crate) sent: Vec<Sent>,
    /// Proposals: in each view the first one at each height.
    pub(crate) headers: BTreeMap<(View, Height), Header>,
}

impl MessageLog {
    fn hear(&mut self, at: Time, frame: &Frame) {
        let whole = entry_decodes(&frame.body);
        let Some(message) = whole.or_else(|| entry_decodes(frame.body.split_last_chunk::<64>()?.0)) else {
            return;
        };
        if let SyncMessage::Propose { header, .. } = &message {
            let place = (header.block.view, header.block.height);
            self.headers.entry(place).or_insert_with(|| header.clone());
        }
        self.sent.push(Sent { at, from: frame.from, message });
    }

    /// Returns when the first message that `is` accepts has left.
    pub(crate) fn first(&self, is: impl Fn(&Sent) -> bool) -> Option<Time> {
        self.sent.iter().find(|sent| is(sent)).map(|sent| sent.at)
    }

    /// Returns when a block was proposed at a place.
    pub(crate) fn proposed(&self, place: (View, Height)) -> Option<Time> {
        self.first(|sent| {
            matches!(&sent.message, SyncMessage::Propose { header, .. } if (header.block.view, header.block.height) == place)
        })
    }

    /// Returns how many such messages have left.
    pub(crate) fn count(&self, is: impl Fn(&Sent) -> bool) -> usize {
        self.sent.iter().filter(|sent| is(sent)).count()
    }
}

fn entry_decodes(body: &[u8]) -> Option<SyncMessage> {
    use quorate_types::Wire as _;
    SyncMessage::from_bytes(body).ok()
}

/// Observes all messages; `judge` decides the fate of each.
pub(crate) fn listen(
    world: &mut World,
    mut judge: impl FnMut(Time, &Frame) -> Verdict + 'static,
) -> Rc<RefCell<MessageLog>> {
    let message_log = Rc::new(RefCell::new(MessageLog::default()));
    let shared = Rc::clone(&message_log);
    world.hook(move |now, frame| {
        if frame.frame_type == quorate_types::wire::frame::PROTOCOL {
            shared.borrow_mut().hear(now, frame);
        }
        judge(now, frame)
    });
    message_log
}

/// Returns a world in which every message takes exactly [`NEAR_NS`] and all else no time; clocks are right, and no guard
/// holds anything back.
pub(crate) fn exact(entry: &Entry, n: usize, seed: u64, change: impl FnOnce(&mut Settings)) -> World {
    let mut world = world_of(entry, seed, |settings| {
        *settings = settings.clone().with_n(n);
        settings.parameters.delta_ns = DELTA_NS;
        settings.transport = Transport::Links;
        (settings.conditions, settings.costs) = (LinkConditions::constant(NEAR_NS), Costs::NONE);
        (settings.checkpoint_every, settings.window) = (64, 128);
        settings.set("drift_ppm", 0);
        settings.set("guarded", false);
        change(settings);
    });
    world.take_exact_times();
    world
}

/// S15: all lose power right after a client has its answer, and recover in any order. No timer commits before its replica
/// runs again. One replica lies from then on, by silence or by messages: acknowledged requests survive. `listen` begins to
/// observe a world. It returns a function that takes the replicas that have reported since its last call that they run.
pub(crate) fn acknowledged_request_survives_a_power_cut_of_all<R: FnMut() -> Vec<ReplicaId>>(
    entry: &Entry,
    listen: impl Fn(&mut World) -> R,
) {
    let orders: [[u16; 3]; 6] = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];
    for (seed, order) in (0..).zip(orders) {
        let mut world = exact(entry, 3, 150 + seed, |_| {});
        let mut take_reports = listen(&mut world);
        begin(&mut world);
        level(&mut world);
        for round in 0..3 {
            let id = world.submit(0, &[incr("n")])[0];
            wait_for(&mut world, &[id], secs(5));
            let known = world.highest();
            take_reports();
            for replica in world.replicas() {
                world.crash(replica, Survives::Nothing);
            }
            for replica in order {
                go(world.run_for(ms(10 + 40 * round)), &world);
                world.start(r(replica)).unwrap();
            }
            let mut running: BTreeSet<ReplicaId> = take_reports().into_iter().collect();
            while !world.replicas().all(|id| running.contains(&id)) {
                go(world.run_for(ms(1)), &world);
                running.extend(take_reports());
                let early = world.replicas().find(|id| world.decided(*id) > known && !running.contains(id));
                assert_eq!(early, None, "{order:?}: no commit before the replica runs");
            }
        }
        let liar = r(order[0]);
        match seed % 2 {
            0 => world.take_control(liar),
            _ => world.corrupt_now(liar, Byzantine::Own),
        }
        let id = world.submit(1, &[incr("n")])[0];
        wait_for(&mut world, &[id], secs(30));
        let result = world.history().get(id).unwrap().result.clone();
        assert_eq!(result, Some(KvResult::Number(4)), "{order:?}");
        settle_honest(&mut world);
    }
}

/// The first leader is a controlled replica, and all others are at one height in its view.
pub(crate) struct ControlledLeader {
    pub(crate) world: World,
    pub(crate) message_log: Rc<RefCell<MessageLog>>,
    pub(crate) controlled: ReplicaId,
}

impl ControlledLeader {
    /// `judge` sets the delays of its messages and of messages to it.
    pub(crate) fn new(
        entry: &Entry,
        n: usize,
        seed: u64,
        judge: impl FnMut(Time, &Frame) -> Verdict + 'static,
    ) -> Self {
        let mut world = exact(entry, n, seed, |_| {});
        let message_log = listen(&mut world, judge);
        begin(&mut world);
        level(&mut world);
        let controlled = ReplicaId(0);
        assert_eq!(world.status(ReplicaId(1)).unwrap().leader, controlled);
        world.take_control(controlled);
        // Its earlier honest messages arrive.
        go(world.run_for(3 * NEAR_NS), &world);
        Self { world, message_log, controlled }
    }

    pub(crate) fn others(&self) -> Vec<ReplicaId> {
        self.world.replicas().filter(|id| *id != self.controlled).collect()
    }

    pub(crate) fn send(&mut self, to: &[ReplicaId], message: &SyncMessage) {
        let to = To::Some(to.iter().copied().collect::<ReplicaSet>());
        self.world.send_as(self.controlled, to, message);
    }

    /// Returns the last header that was proposed in the first view, with its height and id.
    pub(crate) fn tip(&self) -> (Height, BlockId) {
        let message_log = self.message_log.borrow();
        let last = message_log.headers.iter().rfind(|((view, _), _)| *view == View(1));
        last.map(|((_, height), header)| (*height, header.block.id())).unwrap()
    }

    /// Returns an empty header of the controlled replica in the first view on top of a block; its time distinguishes it.
    pub(crate) fn header(&self, (height, parent): (Height, BlockId), time_ns: u64) -> Header {
        let block = Block {
            parent,
            height: height.next(),
            view: View(1),
            proposer: self.controlled,
            time_ns,
            payload: empty_payload(),
            extra: bind_base(BlockId::ZERO),
        };
        Header { block, base: BlockId::ZERO }
    }

    /// Returns a certificate of f + 1 replicas, the controlled replica among them.
    pub(crate) fn certificate(&self, view: View, (height, block): (Height, BlockId)) -> Certificate {
        let statement = vote(view, height, block);
        let signers = self.world.replicas().take(self.world.settings().f + 1);
        let votes: Vec<_> = signers.map(|by| (by, self.world.sign(by, &statement))).collect();
        Certificate::of(statement, &votes)
    }

    /// Returns the proposal of a header on top of a certified block.
    pub(crate) fn proposal(&self, on: (Height, BlockId), header: &Header) -> SyncMessage {
        SyncMessage::Propose { header: header.clone(), parent: self.certificate(View(1), on) }
    }

    /// Whether a replica has committed this block.
    pub(crate) fn has(&self, id: ReplicaId, height: Height) -> bool {
        self.world.decided(id) >= height
    }
}

/// Returns the view of a replica.
pub(crate) fn view(world: &World, id: ReplicaId) -> View {
    world.status(id).unwrap().view
}
