//! Real messages and logs of replicas, from a short simulated run of each registered protocol.

use quorate_consensus::Entry;
use quorate_protocols::REGISTRY;
use quorate_sim::{Plan, Settings, Survives, Verdict, Workload, World, ms};
use quorate_storage::{MemDisk, Store, StoreConfig};
use quorate_types::{BodyLimits, Genesis, Kind, LogEntry, ReplicaId};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::OnceLock;

/// Number of kept frames of each kind.
const EACH_MAX: usize = 6;
/// Larger frames are left out: they have the same form as smaller ones.
const BYTES_MAX: usize = 4 << 10;

/// Bodies of frames, by type and kind.
type Frames = BTreeMap<(u8, Kind), Vec<Vec<u8>>>;

/// A captured run.
pub(crate) struct Captured {
    pub(crate) entry: &'static Entry,
    pub(crate) genesis: Genesis,
    frames: Frames,
    /// Replies to the clients.
    pub(crate) replies: Vec<Vec<u8>>,
    /// The log of a replica.
    pub(crate) log: Vec<LogEntry>,
}

impl Captured {
    /// Returns the bodies of frames of this type.
    pub(crate) fn frames(&self, frame_type: u8) -> impl Iterator<Item = &Vec<u8>> {
        self.frames.iter().filter(move |((of, _), _)| *of == frame_type).flat_map(|(_, bodies)| bodies)
    }
}

/// Returns a run of each registered protocol.
pub(crate) fn captured() -> &'static [Captured] {
    static ALL: OnceLock<Vec<Captured>> = OnceLock::new();
    ALL.get_or_init(|| REGISTRY.iter().map(capture).collect())
}

fn capture(entry: &'static Entry) -> Captured {
    let mut settings = Settings::new(entry, 7);
    settings.checkpoint_every = 4;
    settings.window = 8;
    // The values are small, and the signatures are real.
    settings.scheme = quorate_crypto::Scheme::Ed25519;
    let limits = settings.bodies;
    let mut world = World::new(settings).unwrap();
    let frames: Rc<RefCell<Frames>> = Rc::default();
    let replies: Rc<RefCell<Vec<Vec<u8>>>> = Rc::default();
    let (ear, mailbox) = (Rc::clone(&frames), Rc::clone(&replies));
    world.hook(move |_, frame| {
        let mut frames = ear.borrow_mut();
        let kept = frames.entry((frame.frame_type, frame.content.kind)).or_default();
        if kept.len() < EACH_MAX && frame.body.len() <= BYTES_MAX && !kept.contains(&frame.body.to_vec()) {
            kept.push(frame.body.to_vec());
        }
        Verdict::Pass
    });
    world.hook_replies(move |_, _, message| {
        if mailbox.borrow().len() < 4 * EACH_MAX {
            mailbox.borrow_mut().push(message.to_vec());
        }
        Some(message)
    });
    world.load_all(Workload {
        operations: 40,
        pause_ns: ms(20),
        together_max: 3,
        outstanding_max: 2,
        keys: 3,
    });
    world.run_for(ms(500)).unwrap();
    if entry.spec.replaces_leader {
        world.crash(ReplicaId(0), Survives::Everything);
        world.run_for(ms(1_500)).unwrap();
        world.plan(world.now(), Plan::Start(ReplicaId(0)));
    }
    world.run_for(ms(2_000)).unwrap();
    world.unhook();
    let disk = world.image(ReplicaId(1)).unwrap();
    let frames = frames.borrow().clone();
    let replies = replies.borrow().clone();
    Captured { entry, genesis: world.genesis().clone(), frames, replies, log: entries(disk, limits) }
}

/// Returns the entries of a log, without bodies.
fn entries(disk: MemDisk, limits: BodyLimits) -> Vec<LogEntry> {
    let mut log = Vec::new();
    let config = StoreConfig { limits, ..StoreConfig::default() };
    Store::open(disk, config, &mut |entry| log.push(entry)).unwrap();
    log
}
