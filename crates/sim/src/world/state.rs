//! The parts of a world's state.

use super::links::{ClientChannels, OldFrame, ReplicaPair};
use crate::byzantine_kind::Byzantine;
use crate::client::ClientAction;
use crate::delays::Waits;
use crate::fault::Fault;
use crate::frame::{Frame, Verdict};
use crate::link_conditions::Map;
use crate::network_fault::NetworkFault;
use crate::oracles::{Failure, LivelockOracle, Oracle, OrderOracle, PacemakerOracle, PromiseOracle};
use crate::replica_slot::ConnectionEvent;
use crate::settings::Settings;
use crate::turn_output::TurnOutput;
use bytes::Bytes;
use quorate_types::rng::Rng;
use quorate_types::{Kind, ReplicaId, Time};
use std::collections::{BTreeMap, BTreeSet};

/// The number of the first fault that has no number of its own. A plan numbers its faults from 1 on.
const FIRST_FAULT_NUMBER: u64 = 1 << 32;

/// Decides about a frame that leaves a replica.
pub(super) type FrameHook = Box<dyn FnMut(Time, &Frame) -> Verdict>;
/// Decides about a reply: the reply passes, is replaced, or (`None`) never leaves.
pub(super) type ReplyHook = Box<dyn FnMut(ReplicaId, usize, Bytes) -> Option<Bytes>>;

/// The links between replicas and clients, and the faults on them.
pub(super) struct Network {
    pub(super) map: Map,
    /// Network faults in effect, with their numbers.
    pub(super) faults: Vec<(u64, NetworkFault)>,
    pub(super) next_fault_number: u64,
    pub(super) pairs: Vec<ReplicaPair>,
    pub(super) client_channels: ClientChannels,
    pub(super) next_conn: u64,
    /// Frames that a hook holds.
    pub(super) held: Vec<Frame>,
    /// Frames that wait before they enter their links.
    pub(super) waits: Waits,
    /// Sampled datagrams that may arrive again.
    pub(super) old: Vec<OldFrame>,
    pub(super) datagrams_sent: u64,
}

impl Network {
    pub(super) fn new(settings: &Settings, places: usize) -> Self {
        Self {
            map: Map::new(places, settings.conditions),
            faults: Vec::new(),
            next_fault_number: FIRST_FAULT_NUMBER,
            pairs: ReplicaPair::all(settings.n),
            client_channels: ClientChannels::new(places),
            next_conn: 1,
            held: Vec::new(),
            waits: Waits::new(settings.seed),
            old: Vec::new(),
            datagrams_sent: 0,
        }
    }
}

/// Decisions of a test about traffic.
#[derive(Default)]
pub(super) struct Hooks {
    pub(super) frame: Option<FrameHook>,
    pub(super) reply: Option<ReplyHook>,
}

/// The oracles and their findings.
pub(super) struct Oracles {
    pub(super) order: OrderOracle,
    pub(super) promises: PromiseOracle,
    /// The livelock oracle. It runs only while the protocol promises progress.
    pub(super) livelock: Option<LivelockOracle>,
    /// The pacemaker oracle, for protocols that leave views by certificate only.
    pub(super) pacemaker: Option<PacemakerOracle>,
    /// The first finding. The world stops there.
    pub(super) failure: Option<Failure>,
    /// Oracles whose findings are expected and therefore no failure.
    pub(super) tolerated: BTreeSet<Oracle>,
}

impl Oracles {
    pub(super) fn new(settings: &Settings, params: &toml::Table) -> Self {
        Self {
            order: OrderOracle::new(settings.entry.spec.votes_are_durable),
            promises: PromiseOracle::new(settings.n),
            livelock: None,
            pacemaker: PacemakerOracle::of(settings, params),
            failure: None,
            tolerated: BTreeSet::new(),
        }
    }
}

/// The replicas that are not judged as honest ones, or are known to be faulty.
#[derive(Default)]
pub(super) struct Roles {
    /// Replicas that have been Byzantine at any time, with their host.
    pub(super) byzantine: BTreeMap<ReplicaId, Byzantine>,
    /// Replicas that have equivocated, with both statements.
    pub(super) equivocators: BTreeMap<ReplicaId, String>,
    /// Replicas whose frames a hook has changed. A refusal of such a frame is no accusation.
    pub(super) altered: BTreeSet<ReplicaId>,
    /// Byzantine replicas that the oracles judge as honest ones.
    pub(super) trusted: BTreeSet<ReplicaId>,
    /// Replicas that have met a fault which their protocol does not promise to survive.
    pub(super) exempt: BTreeSet<ReplicaId>,
}

/// A random number generator for each purpose, so that one purpose does not disturb another.
pub(super) struct Rngs {
    pub(super) network: Rng,
    pub(super) crash: Rng,
    pub(super) roles: Rng,
}

/// Counters of a run.
pub(super) struct Counters {
    /// Effects of each fault.
    pub(super) faults: BTreeMap<Fault, u64>,
    /// Frames of each kind, one for each receiver.
    pub(super) sent: BTreeMap<Kind, u64>,
    /// Refused messages by reason.
    pub(super) rejected: BTreeMap<&'static str, u64>,
    /// Messages of each replica that passed the intake of another.
    pub(super) passed: Vec<u64>,
    /// Operations that failed at their client.
    pub(super) failed_ops: u64,
    /// States that replicas have received from their peers.
    pub(super) transfers: u64,
}

impl Counters {
    pub(super) fn new(n: usize) -> Self {
        Self {
            faults: BTreeMap::new(),
            sent: BTreeMap::new(),
            rejected: BTreeMap::new(),
            passed: vec![0; n],
            failed_ops: 0,
            transfers: 0,
        }
    }
}

/// Buffers that are reused from event to event.
#[derive(Default)]
pub(super) struct Buffers {
    pub(super) output: TurnOutput,
    /// Output of the second replica of a twin.
    pub(super) output_of_second: TurnOutput,
    pub(super) connection_events: Vec<ConnectionEvent>,
    pub(super) actions: Vec<ClientAction>,
    pub(super) bytes: Vec<u8>,
    /// Receivers of the frame that is being sent.
    pub(super) receivers: Vec<ReplicaId>,
}

/// Deliberate flaws of the world itself.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Mutations {
    /// Whether the bounds are those of a small window, whatever the window is.
    pub(super) bounds_are_tight: bool,
    /// Whether clients count each reply twice.
    pub(super) clients_are_credulous: bool,
}

/// The state of the Byzantine client.
#[derive(Debug, Default)]
pub(super) struct ByzantineClient {
    /// Recorded messages of others.
    pub(super) recorded: Vec<Bytes>,
    pub(super) recorded_count: usize,
    /// The last bundle number in use.
    pub(super) number: u64,
}
