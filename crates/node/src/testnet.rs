//! The creation of clusters: keys, configuration, one formatted folder for each node. [`crate::layout`] names the files.

use crate::config::{
    Applied, ClusterConfig, DiskLimits, Durability, LinkDelays, NodeConfig, NodeKeys, Settings,
};
use crate::exit::Failure;
use crate::layout::{ADMIN_KEY, node_file, node_folder};
use crate::ports::free_addresses;
use crate::processes::{NotReady, Processes};
use crate::serve::{CannotStart, rehearse};
use crate::service::Service;
use quorate_app::{Execution, Snapshot};
use quorate_client::cluster::LinkMode;
use quorate_client::config::CLUSTER_FILE;
use quorate_client::config::{ConfigError, ReplicaAddresses};
use quorate_client::keys;
use quorate_consensus::{Entry, Synchrony};
use quorate_crypto::SigningKey;
use quorate_storage::folder::{self, Identity};
use quorate_storage::{Fault, FileDisk, FileDiskConfig, Store, StoreConfig};
use quorate_types::limits::REPLICAS_MAX;
use quorate_types::{BodyLimits, ClientAuth, Genesis, Height, Member, ReplicaId};
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The time that nodes have until they serve.
const START_PATIENCE: Duration = Duration::from_secs(20);
/// The largest number of times that a start chooses new ports.
pub(crate) const MOVES_MAX: u32 = 10;

/// The cluster to make.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The service that it replicates.
    pub service: Service,
    /// The protocol.
    pub entry: &'static Entry,
    /// The addresses of each replica; their number is n.
    pub addresses: Vec<ReplicaAddresses>,
    /// The authentication of clients.
    pub client_auth: ClientAuth,
    /// The protection of connections.
    pub links: LinkMode,
    /// The durability that a promise waits for.
    pub durability: Durability,
    /// Whether the admin's key may stop the nodes.
    pub allow_stop: bool,
    /// Further settings that differ from the defaults.
    pub settings: Settings,
}

impl Plan {
    /// Whether nodes of such a cluster start only with `--insecure`.
    #[must_use]
    pub fn is_insecure(&self) -> bool {
        self.client_auth == ClientAuth::None
            || self.links == LinkMode::Plain
            || self.durability == Durability::None
    }
}

/// Checks that the nodes of a cluster with these settings would start, and writes nothing.
///
/// # Errors
/// Fails with the field and the expected value.
pub fn check(entry: &'static Entry, n: usize, settings: &Settings) -> Result<(), Failure> {
    // The addresses differ from each other, and are never used.
    let address = |port: usize| SocketAddr::from(([127, 0, 0, 1], u16::try_from(port).unwrap_or(u16::MAX)));
    let addresses = (1..=n.min(REPLICAS_MAX))
        .map(|at| ReplicaAddresses { peers: address(at), clients: address(REPLICAS_MAX.saturating_add(at)) });
    let plan = Plan {
        service: Service::KV,
        entry,
        addresses: addresses.collect(),
        client_auth: ClientAuth::Signature,
        links: LinkMode::Tls,
        durability: Durability::Fsync,
        allow_stop: false,
        settings: settings.clone(),
    };
    ClusterDraft::new(&plan, None).map(drop)
}

/// A new cluster.
#[derive(Debug)]
pub struct Testnet {
    dir: PathBuf,
    durability: Durability,
    /// Whether the admin's key may stop the nodes. All nodes have the same, at first that of the plan.
    pub allow_stop: bool,
    /// The shared configuration.
    pub cluster: ClusterConfig,
    /// The parameters of the protocol that nodes may choose. All nodes have the same, at first those of the plan.
    pub params: toml::Table,
    disk: DiskLimits,
    delays: LinkDelays,
}

/// A checked cluster before its files are written.
struct ClusterDraft {
    service: Service,
    durability: Durability,
    allow_stop: bool,
    applied: Applied,
    admin: SigningKey,
    client: SigningKey,
    /// By id.
    keys: Vec<NodeKeys>,
    /// The state at height 0; `None` for the first state of the service.
    base: Option<Snapshot>,
}

impl ClusterDraft {
    /// Makes the keys, and checks the configuration as its nodes do: reads it from the text of its files, and opens a
    /// replica with it.
    ///
    /// # Errors
    /// Fails when no node would start, with the field and the expected value.
    fn new(plan: &Plan, state: Option<Execution>) -> Result<Self, Failure> {
        let n = plan.addresses.len();
        if n == 0 || n > REPLICAS_MAX {
            return Err(Failure::usage(format!("{n} replicas: expected 1 to {REPLICAS_MAX}")));
        }
        let new_key = || keys::generate().map_err(Failure::run);
        let (admin, client) = (new_key()?, new_key()?);
        let mut keys = Vec::new();
        for _ in 0..n {
            keys.push(NodeKeys { replica: new_key()?, link: new_key()? });
        }
        let member = |keys: &NodeKeys| Member { sign: keys.replica.public(), link: keys.link.public() };
        let members = keys.iter().map(member).collect();
        let mut applied = plan.settings.apply(cluster(plan, members, &admin, &client)?)?;
        let mut base = None;
        if let Some(state) = state {
            let genesis = &mut applied.cluster.genesis;
            let mut state = state.into_base(genesis).map_err(Failure::usage)?;
            genesis.base = Some(state.digest());
            base = Some(state.snapshot());
        }
        let (service, durability, allow_stop) = (plan.service, plan.durability, plan.allow_stop);
        let draft = Self { service, durability, allow_stop, applied, admin, client, keys, base };
        draft.check()?;
        Ok(draft)
    }

    fn check(&self) -> Result<(), Failure> {
        let cluster = self.applied.cluster.as_read().map_err(|error| refused(&error))?;
        for (id, addresses) in cluster.ids().zip(&cluster.replicas) {
            let Applied { local_params, disk, delays, .. } = &self.applied;
            let chosen = (local_params, *disk, delays);
            let node = node_config(&cluster, (id, *addresses), (self.durability, self.allow_stop), chosen);
            let node = node.as_read().map_err(|error| refused(&error))?;
            // The check of the parameters is the same for all replicas.
            let first = self.keys.first().filter(|_| id == ReplicaId(0));
            match first.map(|keys| rehearse(&node, self.service, keys)) {
                Some(Err(CannotStart::Parameter(error))) => return Err(refused(&error)),
                Some(Err(CannotStart::Other(failure))) => return Err(failure),
                Some(Ok(())) | None => {}
            }
        }
        Ok(())
    }

    fn write(self, dir: &Path) -> Result<Testnet, Failure> {
        create_folder(&dir.join("clients"))?;
        let write = |file: PathBuf, key| keys::write_private(&file, key).map_err(Failure::run);
        write(dir.join(ADMIN_KEY), &self.admin)?;
        write(dir.join(self.service.client_key()), &self.client)?;
        let Applied { cluster, local_params: params, disk, delays } = self.applied;
        for (id, keys) in cluster.ids().zip(&self.keys) {
            let folder = node_folder(dir, id);
            create_folder(&folder)?;
            write(folder.join("replica.key"), &keys.replica)?;
            write(folder.join("link.key"), &keys.link)?;
            let salt = keys::random_u64().map_err(Failure::run)?;
            let (data, identity) = (folder.join("data"), cluster.identity(id));
            folder::format(&data, &identity, salt).map_err(Failure::run)?;
            if let Some(base) = &self.base {
                write_base(&data, &identity, (&cluster.genesis, &disk), base)?;
            }
        }
        let Self { durability, allow_stop, .. } = self;
        let testnet = Testnet { dir: dir.to_owned(), durability, allow_stop, cluster, params, disk, delays };
        testnet.write()?;
        Ok(testnet)
    }
}

/// Returns the failure for an error in a configuration that no file has yet.
fn refused(error: &ConfigError) -> Failure {
    let option = if error.field.starts_with("replicas") { "--addresses" } else { "--set" };
    Failure::usage(format!("{option}: {}: {}", error.field, error.problem))
}

/// Returns the configuration of a replica's node.
fn node_config(
    cluster: &ClusterConfig,
    (id, listen): (ReplicaId, ReplicaAddresses),
    (durability, allow_stop): (Durability, bool),
    (params, disk, delays): (&toml::Table, DiskLimits, &LinkDelays),
) -> NodeConfig {
    let mut node = NodeConfig::new(cluster.clone(), id, listen);
    (node.durability, node.allow_stop, node.disk) = (durability, allow_stop, disk);
    node.local_params.clone_from(params);
    node.link_delays_ns = delays.from(id);
    node
}

impl Testnet {
    /// Makes a cluster in a folder that does not exist or is empty. `cluster.toml` is the last file: with it the cluster is
    /// complete.
    ///
    /// # Errors
    /// Fails when the folder is not empty, no node would start with this configuration, or a file cannot be written. The files
    /// made so far are removed.
    pub fn create(dir: &Path, plan: &Plan) -> Result<Self, Failure> {
        Self::create_with(dir, plan, None)
    }

    /// Makes a cluster as [`Testnet::create`] does. It begins with the state of another cluster: with its values and its
    /// registered keys, at height 0 and without sessions.
    ///
    /// # Errors
    /// As [`Testnet::create`], and when a node has no room for the state.
    pub fn create_with(dir: &Path, plan: &Plan, state: Option<Execution>) -> Result<Self, Failure> {
        plan.service.check_name()?;
        let existed = dir.exists();
        if existed && !is_empty(dir)? {
            let problem =
                "is not empty, and no file is ever overwritten; choose another folder or remove this one";
            return Err(Failure::usage(format!("{} {problem}", dir.display())));
        }
        let draft = ClusterDraft::new(plan, state)?;
        let made = draft.write(dir);
        if made.is_err() {
            clean(dir, existed);
        }
        made
    }

    /// Returns a warning about a cluster that tolerates no fault.
    #[must_use]
    pub fn warning(&self) -> Option<String> {
        let (entry, n) = (self.cluster.entry, self.cluster.n());
        let name = entry.spec.name;
        (self.cluster.genesis.f == 0).then(|| match entry.smallest(1) {
            least if least > n => format!(
                "{name} with {n} replicas tolerates no faulty replica; expected at least {least} replicas"
            ),
            _ => format!("{name} with {n} replicas tolerates no faulty replica"),
        })
    }

    /// Returns the emulated delays between the replicas.
    #[must_use]
    pub fn delays(&self) -> &LinkDelays {
        &self.delays
    }

    /// Returns the bound on delays that the protocol assumes, if any.
    ///
    /// # Errors
    /// Fails when the parameters of the protocol are wrong.
    pub fn bound(&self) -> Result<Option<Synchrony>, Failure> {
        let mut params = self.cluster.params.clone();
        params.extend(self.params.clone());
        (self.cluster.entry.synchrony)(&params).map_err(Failure::usage)
    }

    /// Gives the replicas other addresses, before the first start.
    ///
    /// # Errors
    /// Fails when the files cannot be written.
    pub fn move_to(&mut self, addresses: Vec<ReplicaAddresses>) -> Result<(), Failure> {
        self.cluster.replicas = addresses;
        self.write()
    }

    /// Starts all nodes of a new cluster, and waits until they serve. If another program uses a port meanwhile, the cluster gets
    /// other ports.
    ///
    /// # Errors
    /// Fails when a node does not serve, or ports are in use again and again.
    pub fn start(&mut self, nodes: &mut Processes) -> Result<(), Failure> {
        let ids = nodes.ids();
        let mut moves = 0;
        loop {
            nodes.start_all()?;
            match nodes.wait_ready(&ids, START_PATIENCE) {
                Ok(()) => return Ok(()),
                Err(NotReady::Taken(_)) if moves < MOVES_MAX => {
                    moves += 1;
                    nodes.stop_all();
                    self.move_to(free_addresses(ids.len())?)?;
                }
                Err(why) => return Err(why.into()),
            }
        }
    }

    /// Writes the present configuration, before the first start.
    ///
    /// # Errors
    /// Fails when the files cannot be written.
    pub fn write(&self) -> Result<(), Failure> {
        for (id, addresses) in self.cluster.ids().zip(&self.cluster.replicas) {
            let chosen = (&self.params, self.disk, &self.delays);
            let node =
                node_config(&self.cluster, (id, *addresses), (self.durability, self.allow_stop), chosen);
            replace(&node_file(&self.dir, id), &node.to_toml())?;
        }
        replace(&self.dir.join(CLUSTER_FILE), &self.cluster.to_toml())
    }
}

fn cluster(
    plan: &Plan,
    members: Vec<Member>,
    admin: &SigningKey,
    client: &SigningKey,
) -> Result<ClusterConfig, Failure> {
    let spec = &plan.entry.spec;
    let defaults = (plan.entry.params)().map_err(Failure::run)?;
    let is_shared = |name: &String| spec.shared_params.contains(&name.as_str());
    let shared: toml::Table = defaults.into_iter().filter(|(name, _)| is_shared(name)).collect();
    let genesis = Genesis {
        protocol: spec.name,
        f: u16::try_from((spec.faults)(members.len())).map_err(Failure::run)?,
        members,
        client_auth: plan.client_auth,
        bodies: BodyLimits::default(),
        client_window: 16_384,
        clients_max: 4_096,
        checkpoint_every: 128,
        window: 256,
        application: plan.service.name(),
        admin: admin.public(),
        clients: vec![client.public()],
        params: shared.to_string(),
        salt: keys::random().map_err(Failure::run)?,
        base: None,
    };
    genesis.check().map_err(Failure::usage)?;
    Ok(ClusterConfig::new(genesis, plan.entry, shared, plan.links, plan.addresses.clone()))
}

/// Writes the first state of a cluster into the data folder of a new replica.
fn write_base(
    data: &Path,
    identity: &Identity,
    (genesis, limits): (&Genesis, &DiskLimits),
    state: &Snapshot,
) -> Result<(), Failure> {
    let folder = folder::open(data, identity).map_err(Failure::run)?;
    let disk = FileDiskConfig { salt: folder.salt(), ..FileDiskConfig::default() };
    let disk = FileDisk::open(data, disk).map_err(Failure::run)?;
    let config = StoreConfig {
        limits: genesis.bodies,
        window: genesis.window,
        keep_bytes: limits.keep_bytes,
        disk_bytes_max: limits.disk_bytes_max,
        ..StoreConfig::default()
    };
    let write = || -> Result<(), Fault> {
        let mut store = Store::open(disk, config, &mut |_| {})?;
        let mut writer = store.begin_snapshot(Height::ZERO, state.header().to_vec(), state.ids())?;
        for index in writer.needed().clone() {
            let mut chunk = Vec::new();
            state.encode(index, &mut chunk);
            store.write_chunk(&mut writer, index, &chunk)?;
        }
        store.commit_snapshot(writer)
    };
    write().map_err(|fault| Failure::run(format!("{}: {fault}", data.display())))
}

fn failed(path: &Path) -> impl FnOnce(io::Error) -> Failure + '_ {
    move |error| Failure::run(format!("{}: {error}", path.display()))
}

fn is_empty(dir: &Path) -> Result<bool, Failure> {
    fs::read_dir(dir)
        .map(|mut entries| entries.next().is_none())
        .map_err(|error| Failure::usage(format!("{}: {error}", dir.display())))
}

fn create_folder(path: &Path) -> Result<(), Failure> {
    fs::create_dir_all(path).map_err(failed(path))
}

/// Replaces a file atomically: after a crash the old or the new one is complete.
fn replace(path: &Path, text: &str) -> Result<(), Failure> {
    let new = path.with_extension("new");
    let write = || {
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).open(&new)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&new, path)
    };
    write().map_err(failed(path))
}

/// Removes the files of a failed attempt from a folder that was empty or did not exist.
fn clean(dir: &Path, existed: bool) {
    // The caller reports the failure of the attempt, which matters more than one of the removal.
    if !existed {
        let _ = fs::remove_dir_all(dir);
        return;
    }
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let _ = fs::remove_dir_all(entry.path());
    }
}

#[cfg(test)]
mod tests;
