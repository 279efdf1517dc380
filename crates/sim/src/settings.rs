//! The settings of a world.

use crate::byzantine_kind::Byzantine;
use crate::companion::Companion;
use crate::delays::Delays;
use crate::disk::Costs;
use crate::link_conditions::LinkConditions;
use quorate_client::core::{Audience, Settings as ClientSettings};
use quorate_consensus::{Entry, Model, OpenError};
use quorate_crypto::{Scheme, SigningKey};
use quorate_types::rng::Rng;
use quorate_types::{BodyLimits, ClientAuth, Committee, Genesis, Member, PublicKey, ReplicaId};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Transport of frames between replicas.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Transport {
    /// The real links, on connections that break and are dialled again. A link reports every loss.
    Links,
    /// Datagrams, which are lost, doubled and reordered. They stress the protocol's retransmissions.
    Datagrams,
}

/// Sizes of a replica's disk and log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StorageSettings {
    /// Bytes of a segment of the log.
    pub segment_bytes: u32,
    /// Bytes of a page of the disk.
    pub page_bytes: usize,
    /// Bytes of log that are kept for replicas that lag.
    pub keep_bytes: u64,
    /// Largest number of bytes on the disk.
    pub disk_bytes_max: u64,
    /// Growth of the log, in bytes, after which a snapshot is written.
    pub snapshot_every_bytes: u64,
    /// With more missing blocks than this, a replica may take a state although its peers keep the blocks.
    pub far_heights: u64,
}

/// The behaviour of clients towards replicas.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ClientOptions {
    /// Time without an answer after which a client asks all replicas.
    pub retry_ns: u64,
    /// Longest pause between two retries.
    pub retry_ns_max: u64,
    /// Largest number of bundles of one client in flight.
    pub in_flight_max: usize,
    /// First receivers of a bundle.
    pub audience: Audience,
}

/// The parameters of the protocol.
#[derive(Clone, Debug)]
pub struct Parameters {
    /// Bound on delays that the parameters are made for, in nanoseconds.
    pub delta_ns: u64,
    /// Whether a synchronous protocol waits while the bound may not hold. Other protocols ignore it.
    pub guarded: bool,
    /// Whether the protocol starts from its parameters for the exam instead of its defaults.
    pub exam: bool,
    /// Parameters with values of their own.
    pub changed: toml::Table,
    /// Leaders of the first views, where the protocol lets the simulator set them. Empty: the protocol's own leaders.
    pub leaders: Vec<ReplicaId>,
}

/// The faulty replicas and clients from the beginning.
#[derive(Clone, Default, Debug)]
pub struct ByzantineSettings {
    /// Byzantine replicas with their hosts. The oracles judge the others only.
    pub replicas: BTreeMap<ReplicaId, Byzantine>,
    /// Whether Byzantine replicas of the same kind do the same at the same time.
    pub coalition: bool,
    /// Byzantine clients: none or one. They break rules when a plan says so.
    pub clients: usize,
}

/// The settings of a world. Every field may be changed before [`crate::World::new`].
#[derive(Clone, Debug)]
pub struct Settings {
    /// The protocol.
    pub entry: Entry,
    /// Number of replicas.
    pub n: usize,
    /// Number of faulty replicas that are tolerated.
    pub f: usize,
    /// Seed of everything that is random.
    pub seed: u64,
    /// Transport of frames between replicas.
    pub transport: Transport,
    /// Signature scheme.
    pub scheme: Scheme,
    /// Number of clients.
    pub clients: usize,
    /// Options of clients.
    pub client: ClientOptions,
    /// Link conditions while no network fault is in effect.
    pub conditions: LinkConditions,
    /// Delays of frames before they enter their link, beside the link conditions; `None` for a protocol without a
    /// bound.
    pub delays: Option<Delays>,
    /// Costs of disks and of work.
    pub costs: Costs,
    /// Sizes of disks and logs.
    pub storage: StorageSettings,
    /// Parameters of the protocol.
    pub parameters: Parameters,
    /// Heights between two checkpoints: K.
    pub checkpoint_every: u64,
    /// Heights that may be in progress above the last stable checkpoint: L.
    pub window: u64,
    /// Limits on bodies.
    pub bodies: BodyLimits,
    /// Byzantine replicas and clients.
    pub byzantine: ByzantineSettings,
    /// Whether the input of every honest replica is replayed on a second one, whose output has to be the same.
    /// Nothing else in the world depends on it.
    pub replay: bool,
    /// An application that runs beside the simulator's own in every replica.
    pub companion: Option<Companion>,
}

impl Settings {
    /// Returns settings with the smallest committee that tolerates one fault, four clients, and good links.
    #[must_use]
    pub fn new(entry: &Entry, seed: u64) -> Self {
        let n = entry.smallest(1);
        Self {
            entry: *entry,
            n,
            f: (entry.spec.faults)(n),
            seed,
            transport: Transport::Links,
            scheme: Scheme::Cheap,
            clients: 4,
            client: ClientOptions {
                retry_ns: 800_000_000,
                retry_ns_max: 2_000_000_000,
                in_flight_max: 8,
                audience: Audience::Leader,
            },
            conditions: LinkConditions::GOOD,
            delays: None,
            costs: Costs::USUAL,
            storage: StorageSettings {
                segment_bytes: 64 << 10,
                page_bytes: 512,
                keep_bytes: 512 << 10,
                disk_bytes_max: 16 << 20,
                snapshot_every_bytes: 96 << 10,
                far_heights: quorate_host::FAR_HEIGHTS,
            },
            parameters: Parameters {
                delta_ns: 20_000_000,
                guarded: false,
                exam: true,
                changed: toml::Table::new(),
                leaders: Vec::new(),
            },
            checkpoint_every: 16,
            window: 32,
            // The log's segments are small, and a body has to fit into one.
            bodies: BodyLimits {
                request_bytes_max: 4 << 10,
                bundle_requests_max: 64,
                bundle_bytes_max: 16 << 10,
                block_bundles_max: 64,
                block_requests_max: 256,
                block_bytes_max: 48 << 10,
                reply_bytes_max: 16 << 10,
            },
            byzantine: ByzantineSettings::default(),
            replay: false,
            companion: None,
        }
    }

    /// Returns the number of all clients: the requested ones, one for the reads at the end, and the Byzantine one.
    pub(crate) fn clients_in_all(&self) -> usize {
        self.clients.saturating_add(1).saturating_add(self.byzantine.clients.min(1))
    }

    /// Sets a parameter of the protocol.
    pub fn set(&mut self, name: &str, value: impl Into<toml::Value>) {
        self.parameters.changed.insert(name.to_owned(), value.into());
    }

    /// Sets the number of replicas.
    #[must_use]
    pub fn with_n(mut self, n: usize) -> Self {
        self.n = n;
        self.f = (self.entry.spec.faults)(n);
        self
    }
}

/// Whether the protocol depends on a bound on delays.
pub(crate) fn is_synchronous(entry: &Entry) -> bool {
    entry.spec.model == Model::Synchrony
}

/// The reason why a world cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum BadSettings {
    /// The genesis that follows from the settings is invalid.
    #[error(transparent)]
    Genesis(#[from] quorate_types::genesis::BadGenesis),
    /// The protocol refuses the settings.
    #[error(transparent)]
    Protocol(#[from] OpenError),
    /// A twins scenario is invalid.
    #[error("invalid scenario: {0}")]
    Scenario(String),
    /// A replica does not open on an empty disk.
    #[error("replica {replica} does not open: {why}")]
    Open {
        /// The replica.
        replica: ReplicaId,
        /// The reason.
        why: String,
    },
}

/// The keys and shared configuration that follow from settings.
pub(crate) struct Cluster {
    pub(crate) genesis: Arc<Genesis>,
    pub(crate) committee: Arc<Committee>,
    pub(crate) params: toml::Table,
    pub(crate) keys: Vec<SigningKey>,
    pub(crate) client_keys: Vec<SigningKey>,
}

impl Cluster {
    /// Makes keys and configuration. One client beyond those of the settings is for the reads at the end.
    pub(crate) fn new(settings: &Settings, rng: &mut Rng) -> Result<Self, BadSettings> {
        let entry = &settings.entry;
        let mut params = if settings.parameters.exam {
            (entry.exam_params)(settings.parameters.delta_ns, settings.parameters.guarded)?
        } else {
            (entry.params)()?
        };
        params.extend(settings.parameters.changed.clone());
        set_leaders(entry, &settings.parameters.leaders, &mut params)?;
        let mut make = |count: usize| -> Vec<SigningKey> {
            (0..count).map(|_| SigningKey::from_seed(settings.scheme, random(rng))).collect()
        };
        let keys = make(settings.n);
        let client_keys = make(settings.clients_in_all());
        let genesis = Genesis {
            protocol: entry.spec.name,
            f: u16::try_from(settings.f).unwrap_or(u16::MAX),
            members: keys.iter().map(|key| Member { sign: key.public(), link: key.public() }).collect(),
            client_auth: ClientAuth::Signature,
            bodies: settings.bodies,
            client_window: 1_024,
            clients_max: 64,
            checkpoint_every: settings.checkpoint_every,
            window: settings.window,
            application: crate::instrumented_store::APPLICATION.to_owned(),
            admin: PublicKey(random(rng)),
            clients: client_keys.iter().map(SigningKey::public).collect(),
            params: params.to_string(),
            salt: random(rng),
            base: None,
        };
        genesis.check()?;
        Ok(Self {
            committee: Arc::new(genesis.committee()),
            genesis: Arc::new(genesis),
            params,
            keys,
            client_keys,
        })
    }

    /// Returns the settings of a client core.
    pub(crate) fn client_settings(&self, settings: &Settings) -> ClientSettings {
        ClientSettings {
            cluster: self.committee.cluster,
            n: settings.n,
            f: settings.f,
            client_auth: self.genesis.client_auth,
            limits: self.genesis.bodies,
            client_window: self.genesis.client_window,
            in_flight_max: settings.client.in_flight_max,
            waiting_bytes_max: 1 << 20,
            retry_ns: settings.client.retry_ns,
            retry_ns_max: settings.client.retry_ns_max,
            first_leader: ReplicaId(0),
            audience: settings.client.audience,
        }
    }
}

/// Whether the simulator may set the leaders of the protocol's first views ([`Parameters::leaders`]).
#[must_use]
pub fn sets_leaders(entry: &Entry) -> bool {
    entry.exam_only.contains(&LEADERS)
}

/// The parameter that sets the leaders of the first views.
const LEADERS: &str = "leaders";

fn set_leaders(entry: &Entry, leaders: &[ReplicaId], params: &mut toml::Table) -> Result<(), OpenError> {
    if leaders.is_empty() {
        // The parameter is removed, so that a seed means the same as without it.
        params.remove(LEADERS);
        return Ok(());
    }
    if !sets_leaders(entry) {
        let expected = format!("no such parameter: {} chooses its leaders itself", entry.spec.name);
        return Err(OpenError::Params { name: LEADERS.to_owned(), expected });
    }
    let ids = leaders.iter().map(|id| toml::Value::Integer(i64::from(id.0)));
    params.insert(LEADERS.to_owned(), toml::Value::Array(ids.collect()));
    Ok(())
}

/// Returns 32 random bytes.
fn random(rng: &mut Rng) -> [u8; 32] {
    let mut bytes = [0; 32];
    for chunk in bytes.chunks_exact_mut(8) {
        chunk.copy_from_slice(&rng.next_u64().to_le_bytes());
    }
    bytes
}
