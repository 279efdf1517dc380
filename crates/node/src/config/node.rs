//! `node.toml`: the settings that may differ between nodes.

use super::cluster::{ClusterConfig, name_of};
use super::link_delay::{expected_delays, read_delays, show_delays};
use super::params::{self, ParamsKind};
use super::writer::TomlWriter;
use crate::layout::NODE_FILE;
use quorate_client::cluster::LinkMode;
use quorate_client::config::addresses::AddressUse;
use quorate_client::config::fields::{GENESIS, limit_names};
use quorate_client::config::reader::{Field, Origin, Source};
use quorate_client::config::{ConfigError, ReplicaAddresses, show_size};
use quorate_client::keys;
use quorate_crypto::SigningKey;
use quorate_types::{ClientAuth, Genesis, PublicKey, ReplicaId};
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

/// The durability that a promise waits for before it is sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Durability {
    /// The disk has the promise.
    #[default]
    Fsync,
    /// The operating system has the promise. It survives a crash of the process, but not of the machine.
    Os,
    /// No record is written: for tests.
    None,
}

impl Durability {
    /// All kinds of durability with their names.
    pub const NAMES: [(&'static str, Self); 3] =
        [("fsync", Self::Fsync), ("os", Self::Os), ("none", Self::None)];

    /// Returns the name in files and on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        name_of(&Self::NAMES, self)
    }
}

/// The placement of work on threads that this version has.
const INLINE: &str = "inline";

const LOG_LEVELS: [(&str, tracing::Level); 5] = [
    ("error", tracing::Level::ERROR),
    ("warn", tracing::Level::WARN),
    ("info", tracing::Level::INFO),
    ("debug", tracing::Level::DEBUG),
    ("trace", tracing::Level::TRACE),
];

/// The least disk space beyond the log that is kept for laggards: for snapshots and segments in use.
const DISK_RESERVE_BYTES: u64 = 256 << 20;
const KEEP_BYTES_MIN: u64 = 16 << 20;
const DISK_BYTES_CEILING: u64 = 64 << 40;

/// Limits on the disk space of a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DiskLimits {
    /// Bytes of disk that may be used.
    pub disk_bytes_max: u64,
    /// Bytes of decided blocks that are kept for laggards.
    pub keep_bytes: u64,
}

impl Default for DiskLimits {
    fn default() -> Self {
        Self { disk_bytes_max: 8 << 30, keep_bytes: 1 << 30 }
    }
}

impl DiskLimits {
    /// Names of the fields.
    pub(super) const NAMES: [&'static str; 2] = [DISK_BYTES.name, KEEP_BYTES.name];

    /// Returns the field of this name.
    pub(super) fn field_mut(&mut self, name: &str) -> Option<&mut u64> {
        match Self::NAMES.iter().position(|known| *known == name) {
            Some(0) => Some(&mut self.disk_bytes_max),
            Some(_) => Some(&mut self.keep_bytes),
            None => None,
        }
    }
}

/// `node.toml` with the `cluster.toml` that it names, read and checked.
#[derive(Clone, Debug)]
pub struct NodeConfig {
    /// The configuration that is equal everywhere.
    pub cluster: ClusterConfig,
    /// The id of the replica.
    pub id: ReplicaId,
    /// The path of `cluster.toml`; in the file, a relative path begins at the folder of the file.
    pub cluster_file: PathBuf,
    /// The folder of log and snapshots.
    pub data_dir: PathBuf,
    /// The address on which the node listens for other replicas.
    pub listen_peers: SocketAddr,
    /// The address on which the node listens for clients.
    pub listen_clients: SocketAddr,
    /// The file of the key that signs statements.
    pub replica_key: PathBuf,
    /// The file of the key that is shown on connections.
    pub link_key: PathBuf,
    /// The durability that a promise waits for.
    pub durability: Durability,
    /// Limits on the disk space.
    pub disk: DiskLimits,
    /// The level of the log.
    pub log: tracing::Level,
    /// The emulated one-way delays of frames to each replica, in nanoseconds, by id; empty for none.
    pub link_delays_ns: Vec<u64>,
    /// Whether the admin's key may stop the node.
    pub allow_stop: bool,
    /// The local parameters of the protocol that the file sets.
    pub local_params: toml::Table,
    origin: Origin,
}

/// The private keys of a node.
#[derive(Clone, Debug)]
pub struct NodeKeys {
    /// The key that signs statements and nothing else.
    pub replica: SigningKey,
    /// The key that is shown on connections.
    pub link: SigningKey,
}

quorate_client::config_fields! {
    /// Fields of `node.toml` outside all tables, in the order of generated files.
    #[cfg(test)]
    pub(super) NODE_FIELDS of
    ID: "id", "0", Never, "Number of this replica in cluster.toml.";
    CLUSTER: "cluster", "\"../cluster.toml\"", AtStart,
        "The file that all nodes share. Relative paths begin at the folder of this node.toml.";
    DATA_DIR: "data_dir", "\"data\"", AtStart,
        "Folder of the log and the snapshots. `quorate testnet` makes it, and it belongs to this replica alone.\n\
         Move the folder before you change its name here.";
    LISTEN_PEERS: "listen_peers", "\"127.0.0.1:4000\"", AtStart,
        "Address on which this node listens for other replicas.";
    LISTEN_CLIENTS: "listen_clients", "\"127.0.0.1:4001\"", AtStart,
        "Address on which this node listens for clients.";
    REPLICA_KEY: "replica_key", "\"replica.key\"", AtStart,
        "File of the private key that signs statements; its owner alone may read it. The key never changes.";
    LINK_KEY: "link_key", "\"link.key\"", AtStart,
        "File of the private key of connections; its owner alone may read it. The key never changes.";
    DURABILITY: "durability", "\"fsync\"", AtStart,
        "The write that a promise waits for: \"fsync\" (the disk has it), \"os\" (the operating system has it: a power cut\n\
         can break the promise), \"none\" (there is none: for tests, and such nodes need --insecure).";
    PLACEMENT: "placement", "\"inline\"", AtStart, "Assignment of work to threads: \"inline\" is everything on one.";
    DISK_BYTES: "disk_bytes_max", "\"8GiB\"", AtStart,
        "Disk space of the data folder at most; at least the sum of keep_bytes and 256MiB.";
    KEEP_BYTES: "keep_bytes", "\"1GiB\"", AtStart,
        "Decided blocks kept for replicas that were away. A replica that misses more receives the state of the others.";
    RECORD: "record", "false", Never, "Recording of inputs for a replay. It is not part of this version: false.";
    LOG: "log", "\"info\"", AtStart, "Least severity of the lines on the error stream.";
    LINK_DELAY: "link_delay_ms", "[0, 20, 20, 20]", AtStart,
        "Emulated one-way delays, for experiments: milliseconds that frames to each replica wait before they leave, in the\n\
         order of cluster.toml, with fractions. Without the field, with [] and with 0 there is no delay.";
    ALLOW_STOP: "allow_stop", "false", AtStart,
        "Whether the cluster's admin key may stop this node through `quorate stop`: true for clusters of a test.";
}

impl NodeConfig {
    /// Returns the configuration of a new node with keys and data in one folder, and `cluster.toml` above it.
    #[must_use]
    pub fn new(cluster: ClusterConfig, id: ReplicaId, listen: ReplicaAddresses) -> Self {
        Self {
            cluster,
            id,
            cluster_file: "../cluster.toml".into(),
            data_dir: "data".into(),
            listen_peers: listen.peers,
            listen_clients: listen.clients,
            replica_key: "replica.key".into(),
            link_key: "link.key".into(),
            durability: Durability::default(),
            disk: DiskLimits::default(),
            log: tracing::Level::INFO,
            link_delays_ns: Vec::new(),
            allow_stop: false,
            local_params: toml::Table::new(),
            origin: Source::of(NODE_FILE, "").origin(),
        }
    }

    /// Reads and checks a `node.toml` and the `cluster.toml` that it names. Paths in the result are relative to
    /// the current folder, or absolute.
    ///
    /// # Errors
    /// Fails with the first thing that is wrong in either file.
    pub fn load(file: &Path) -> Result<Self, ConfigError> {
        Self::read(&Source::read(file)?, ClusterConfig::load)
    }

    /// Returns this configuration as a node reads it from its file: a problem of the file is an error.
    ///
    /// # Errors
    /// As [`NodeConfig::load`].
    pub fn as_read(&self) -> Result<Self, ConfigError> {
        Self::read(&Source::of(NODE_FILE, &self.to_toml()), |_| Ok(self.cluster.clone()))
    }

    fn read(
        source: &Source,
        cluster: impl FnOnce(&Path) -> Result<ClusterConfig, ConfigError>,
    ) -> Result<Self, ConfigError> {
        let mut root = source.parse()?;
        let mut origin = source.origin();
        let id: u16 = root.number(&ID, 0..=u64::from(u16::MAX))?;
        let cluster_file = origin.resolve(&root.path(&CLUSTER)?);
        let mut config = Self {
            cluster: cluster(&cluster_file)?,
            id: ReplicaId(id),
            cluster_file,
            data_dir: origin.resolve(&root.path(&DATA_DIR)?),
            listen_peers: root.address(&LISTEN_PEERS, AddressUse::Listen)?,
            listen_clients: root.address(&LISTEN_CLIENTS, AddressUse::Listen)?,
            replica_key: origin.resolve(&root.path(&REPLICA_KEY)?),
            link_key: origin.resolve(&root.path(&LINK_KEY)?),
            durability: root.choice(&DURABILITY, &Durability::NAMES)?,
            disk: DiskLimits {
                disk_bytes_max: root.size(
                    &DISK_BYTES,
                    KEEP_BYTES_MIN.saturating_add(DISK_RESERVE_BYTES)..=DISK_BYTES_CEILING,
                )?,
                keep_bytes: root.size(&KEEP_BYTES, KEEP_BYTES_MIN..=DISK_BYTES_CEILING)?,
            },
            log: root.choice(&LOG, &LOG_LEVELS)?,
            // Clusters of earlier versions do not have the field.
            link_delays_ns: if root.names().iter().any(|name| name == LINK_DELAY.name) {
                root.value(&LINK_DELAY, &expected_delays(), read_delays)?
            } else {
                Vec::new()
            },
            allow_stop: root.value(&ALLOW_STOP, "true or false", |value| value.as_bool())?,
            local_params: toml::Table::new(),
            origin: origin.clone(),
        };
        root.choice(&PLACEMENT, &[(INLINE, ())])?;
        root.value(&RECORD, "false", |value| value.as_bool().filter(|record| !record))?;
        let (params, lines) = params::read(source, &mut root, config.cluster.entry, ParamsKind::Local)?;
        config.local_params = params;
        origin.add(lines);
        origin.add(root.finish()?);
        config.origin = origin;
        config.check()?;
        Ok(config)
    }

    /// Returns the parameters of the protocol that are set, shared and local.
    #[must_use]
    pub fn params(&self) -> toml::Table {
        let mut params = self.cluster.params.clone();
        params.extend(self.local_params.clone());
        params
    }

    /// Returns genesis, which contains the values that must be equal everywhere.
    #[must_use]
    pub fn genesis(&self) -> &Genesis {
        &self.cluster.genesis
    }

    /// Returns an error about a parameter that only the protocol can check.
    #[must_use]
    pub fn params_error(&self, name: &str, expected: &str) -> ConfigError {
        let problem = format!("expected {expected}; correct it");
        if limit_names().contains(&name) {
            return self.cluster.error(&format!("{GENESIS}.{name}"), problem);
        }
        let field = format!("{}.{name}", params::table_path(self.cluster.entry));
        if self.cluster.params.contains_key(name) {
            self.cluster.error(&field, problem)
        } else {
            self.error(&field, problem)
        }
    }

    /// Reads the private keys, which must be those that `cluster.toml` lists.
    ///
    /// # Errors
    /// Fails when a file cannot be read, is readable by others, or holds another key than `cluster.toml` lists.
    pub fn keys(&self) -> Result<NodeKeys, ConfigError> {
        let member = self.genesis().members.get(self.id.index());
        let member = member.ok_or_else(|| self.error(ID.name, "not a replica of this cluster"))?;
        Ok(NodeKeys {
            replica: self.key(&REPLICA_KEY, &self.replica_key, "sign", member.sign)?,
            link: self.key(&LINK_KEY, &self.link_key, "link", member.link)?,
        })
    }

    fn key(
        &self,
        field: &Field,
        file: &Path,
        listed_as: &str,
        listed: PublicKey,
    ) -> Result<SigningKey, ConfigError> {
        let key = keys::read_private(file).map_err(|error| self.error(field.name, error.to_string()))?;
        if key.public() == listed {
            return Ok(key);
        }
        let problem = format!(
            "{} holds the key {}, but cluster.toml lists {listed} as replicas[{}].{listed_as}; use that replica's own key file",
            file.display(),
            key.public(),
            self.id
        );
        Err(self.error(field.name, problem))
    }

    /// Returns an error about a setting that is for benchmarks and tests only. A node with such a setting starts only with
    /// `--insecure`.
    #[must_use]
    pub fn insecure(&self) -> Option<ConfigError> {
        if self.genesis().client_auth == ClientAuth::None {
            let problem = "\"none\" lets anybody act for any client; make a cluster with \"signature\", or start with --insecure for a benchmark";
            return Some(self.cluster.error("genesis.client_auth", problem));
        }
        if self.cluster.links == LinkMode::Plain {
            let problem = "\"plain\" lets anybody act for any replica; write link_auth = \"tls\", or start with --insecure for a benchmark";
            return Some(self.cluster.error("link_auth", problem));
        }
        if self.durability == Durability::None {
            let problem = "\"none\" forgets promises at every restart; write durability = \"fsync\", or start with --insecure for a test";
            return Some(self.error(DURABILITY.name, problem));
        }
        None
    }

    /// Returns an error about a field of this file.
    #[must_use]
    pub fn error(&self, field: &str, problem: impl Into<String>) -> ConfigError {
        self.origin.error(field, problem)
    }

    fn check(&self) -> Result<(), ConfigError> {
        let n = self.cluster.n();
        if self.id.index() >= n {
            let problem = format!(
                "expected a whole number from 0 to {}, since {} lists {n} replicas; correct it",
                n.saturating_sub(1),
                self.cluster_file.display()
            );
            return Err(self.error(ID.name, problem));
        }
        if same_socket(self.listen_peers, self.listen_clients) {
            let problem = "is the address of listen_peers too; peers and clients need a port each";
            return Err(self.error(LISTEN_CLIENTS.name, problem));
        }
        let least = self.disk.keep_bytes.saturating_add(DISK_RESERVE_BYTES);
        if self.disk.disk_bytes_max < least {
            let problem = format!(
                "expected at least the sum of keep_bytes and 256MiB, which is {}; raise it, or lower keep_bytes",
                show_size(least)
            );
            return Err(self.error(DISK_BYTES.name, problem));
        }
        let delays = self.link_delays_ns.len();
        if delays != 0 && delays != n {
            let problem = format!(
                "expected one number for each of the {n} replicas, or [] for no delay, found {delays} numbers; correct it"
            );
            return Err(self.error(LINK_DELAY.name, problem));
        }
        Ok(())
    }

    /// Returns the file, with an explanation of each field.
    #[must_use]
    pub fn to_toml(&self) -> String {
        let mut out = TomlWriter::new();
        let cluster = self.cluster.cluster_id();
        out.comment(&format!("Node of replica {} in Quorate cluster {cluster}.", self.id));
        out.gap();
        out.value(&ID, self.id);
        out.text(&CLUSTER, self.cluster_file.display());
        out.text(&DATA_DIR, self.data_dir.display());
        out.text(&LISTEN_PEERS, self.listen_peers);
        out.text(&LISTEN_CLIENTS, self.listen_clients);
        out.text(&REPLICA_KEY, self.replica_key.display());
        out.text(&LINK_KEY, self.link_key.display());
        out.text(&DURABILITY, self.durability.name());
        out.text(&PLACEMENT, INLINE);
        out.size(&DISK_BYTES, self.disk.disk_bytes_max);
        out.size(&KEEP_BYTES, self.disk.keep_bytes);
        out.value(&RECORD, false);
        out.text(&LOG, name_of(&LOG_LEVELS, self.log));
        out.value(&LINK_DELAY, show_delays(&self.link_delays_ns));
        out.value(&ALLOW_STOP, self.allow_stop);
        self.write_params(&mut out);
        out.finish()
    }

    /// Writes the parameters that are set, and as comments the defaults of the rest.
    fn write_params(&self, out: &mut TomlWriter) {
        let spec = &self.cluster.entry.spec;
        let defaults = params::defaults(self.cluster.entry);
        let local: Vec<(&String, &toml::Value)> =
            defaults.iter().filter(|(name, _)| !spec.shared_params.contains(&name.as_str())).collect();
        if local.is_empty() {
            return;
        }
        out.gap();
        out.comment("Parameters of the protocol that each node may choose. A parameter that is not set has its default.");
        out.header(&params::table_path(self.cluster.entry));
        for (name, default) in local {
            match self.local_params.get(name) {
                Some(value) => out.raw(&format!("{name} = {value}")),
                None => out.comment(&format!("{name} = {default}")),
            }
        }
    }
}

/// Whether two listeners would use the same port of the same address.
fn same_socket(a: SocketAddr, b: SocketAddr) -> bool {
    let any = |ip: IpAddr| ip.is_unspecified();
    a.port() == b.port() && (a.ip() == b.ip() || any(a.ip()) || any(b.ip()))
}
