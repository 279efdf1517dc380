//! `cluster.toml` as a node reads it: with a registered protocol and checked parameters.

use super::params::{self, ParamsKind};
use super::writer::TomlWriter;
use crate::service::Service;
use quorate_client::cluster::{AskAgain, ClusterInfo, LinkMode};
use quorate_client::config::cluster_file::{CLIENT_AUTH_NAMES, Protocols};
use quorate_client::config::fields::{
    ADDRESS_CLIENTS, ADMIN, APPLICATION, AUTH, BASE, BLOCK_BUNDLES, BLOCK_BYTES, BLOCK_REQUESTS,
    BUNDLE_BYTES, BUNDLE_REQUESTS, CHECKPOINT_EVERY, CLIENT_WINDOW, CLIENTS, CLIENTS_MAX, F, GENESIS,
    GENESIS_ABOUT, ID, LINK, LINK_AUTH, PEERS, PROTOCOL, REPLICAS, REPLICAS_ABOUT, REPLY_BYTES,
    REQUEST_BYTES, SALT, SIGN, WINDOW,
};
use quorate_client::config::reader::{Origin, Section, Source};
use quorate_client::config::{CLUSTER_FILE, ClusterFile, ConfigError, ReplicaAddresses};
use quorate_consensus::{Entry, Model};
use quorate_storage::folder::Identity;
use quorate_types::digest::hex;
use quorate_types::limits;
use quorate_types::{ClientAuth, ClusterId, Genesis, ProtocolId, ReplicaId};
use std::collections::BTreeMap;
use std::path::Path;

/// Returns the name of a way of client authentication in files and on the command line.
#[must_use]
pub fn client_auth_name(auth: ClientAuth) -> &'static str {
    name_of(&CLIENT_AUTH_NAMES, auth)
}

pub(super) fn name_of<T: PartialEq>(names: &[(&'static str, T)], value: T) -> &'static str {
    names.iter().find(|(_, other)| *other == value).map_or("?", |(name, _)| name)
}

/// Returns all protocols with their names, and with their longer names.
#[must_use]
pub fn protocol_names() -> Vec<(&'static str, &'static Entry)> {
    let short = quorate_protocols::REGISTRY.iter().map(|entry| (entry.spec.name.as_str(), entry));
    let long = quorate_protocols::LONG_NAMES.into_iter();
    short.chain(long.filter_map(|(name, _)| Some((name, quorate_protocols::find(name)?)))).collect()
}

/// Returns the number of replicas of a cluster; the default is the smallest that tolerates one fault.
#[must_use]
pub fn replicas_or_default(n: Option<u16>, entry: &Entry) -> u16 {
    n.unwrap_or_else(|| u16::try_from(entry.smallest(1)).unwrap_or(u16::MAX))
}

/// Reads a number of replicas from the command line.
///
/// # Errors
/// Fails when no cluster has so many.
pub fn parse_replicas<T: From<u16>>(text: &str) -> Result<T, String> {
    let n = text.parse::<u16>().ok().filter(|n| *n > 0 && usize::from(*n) <= limits::REPLICAS_MAX);
    n.map(T::from).ok_or_else(|| format!("expected 1 to {} replicas", limits::REPLICAS_MAX))
}

/// The protocols of the registry.
struct Registered;

impl Protocols for Registered {
    type Protocol = (&'static Entry, toml::Table);

    fn take(&self, genesis: &mut Section<'_>) -> Result<(ProtocolId, Self::Protocol), ConfigError> {
        let entry = genesis.choice(&PROTOCOL, &protocol_names())?;
        Ok((entry.spec.name, (entry, toml::Table::new())))
    }

    fn take_params(
        &self,
        source: &Source,
        root: &mut Section<'_>,
        (entry, params): &mut Self::Protocol,
    ) -> Result<(String, BTreeMap<String, usize>), ConfigError> {
        let (table, lines) = params::read(source, root, entry, ParamsKind::Shared)?;
        *params = table;
        Ok((params.to_string(), lines))
    }
}

/// `cluster.toml`, read and checked.
#[derive(Clone, Debug)]
pub struct ClusterConfig {
    /// The values that must be equal everywhere.
    pub genesis: Genesis,
    /// The protocol that genesis names.
    pub entry: &'static Entry,
    /// The protocol's shared parameters: the content of `genesis.params`.
    pub params: toml::Table,
    /// The protection of connections.
    pub links: LinkMode,
    /// The addresses of the replicas, by id.
    pub replicas: Vec<ReplicaAddresses>,
    origin: Origin,
}

const BOUND_ABOUT: &str =
    "The cluster is safe only while messages keep the bound delta_ms: see docs/bound.md of Quorate.";

impl ClusterConfig {
    /// Returns a cluster that no file has yet.
    #[must_use]
    pub fn new(
        genesis: Genesis,
        entry: &'static Entry,
        params: toml::Table,
        links: LinkMode,
        replicas: Vec<ReplicaAddresses>,
    ) -> Self {
        let origin = Source::of(CLUSTER_FILE, "").origin();
        Self { genesis, entry, params, links, replicas, origin }
    }

    /// Reads and checks a `cluster.toml`.
    ///
    /// # Errors
    /// Fails with the first thing that is wrong.
    pub fn load(file: &Path) -> Result<Self, ConfigError> {
        Self::read(&Source::read(file)?)
    }

    /// Returns this configuration as it is read from its file: a problem of the file is an error.
    ///
    /// # Errors
    /// As [`ClusterConfig::load`].
    pub fn as_read(&self) -> Result<Self, ConfigError> {
        Self::read(&Source::of(CLUSTER_FILE, &self.to_toml()))
    }

    pub(super) fn read(source: &Source) -> Result<Self, ConfigError> {
        let (file, (entry, params)) = ClusterFile::read(source, &Registered)?;
        let ClusterFile { genesis, links, replicas, origin } = file;
        let config = Self { genesis, entry, params, links, replicas, origin };
        config.check()?;
        Ok(config)
    }

    /// Returns the identity of the cluster.
    #[must_use]
    pub fn cluster_id(&self) -> ClusterId {
        self.genesis.cluster_id()
    }

    /// Returns the identity that the data folder of a replica must have.
    #[must_use]
    pub fn identity(&self, id: ReplicaId) -> Identity {
        Identity { cluster: self.cluster_id(), replica: id, protocol: self.genesis.protocol }
    }

    /// Returns the number of replicas.
    #[must_use]
    pub fn n(&self) -> usize {
        self.replicas.len()
    }

    /// Returns the number of running replicas that the cluster needs to serve clients.
    pub(crate) fn serving_needed(&self) -> usize {
        self.entry.spec.serving(self.n(), usize::from(self.genesis.f))
    }

    /// Returns f + 1: at least one of so many replicas is honest. Equal reports of so many replicas are believed.
    pub(crate) fn reports_needed(&self) -> usize {
        self.genesis.committee().weak()
    }

    /// Returns all ids in order.
    pub fn ids(&self) -> impl Iterator<Item = ReplicaId> + use<> {
        self.genesis.committee().ids()
    }

    /// Returns the cluster as a client sees it.
    #[must_use]
    pub fn client_info(&self) -> ClusterInfo {
        let addresses = self.replicas.iter().map(|replica| replica.clients);
        let is_store = self.genesis.application == Service::KV.name();
        let ask_again = is_store.then_some(AskAgain(quorate_app::may_ask_again));
        ClusterInfo { ask_again, ..ClusterInfo::at(&self.genesis, self.links, addresses) }
    }

    /// Returns an error about a field of this file.
    pub(super) fn error(&self, field: &str, problem: impl Into<String>) -> ConfigError {
        self.origin.error(field, problem)
    }

    /// Checks that this is a cluster of `service`.
    ///
    /// # Errors
    /// Fails when it is one of another service, or of another version of it.
    pub fn check_service(&self, service: Service) -> Result<(), ConfigError> {
        let (expected, found) = (service.name(), &self.genesis.application);
        if *found == expected {
            return Ok(());
        }
        let problem = format!(
            "expected \"{expected}\", the service of this program, found \"{found}\"; use the program that made the cluster"
        );
        Err(self.error("genesis.application", problem))
    }

    /// Checks that the protocol tolerates f faulty replicas.
    fn check(&self) -> Result<(), ConfigError> {
        let most = (self.entry.spec.faults)(self.n());
        if usize::from(self.genesis.f) <= most {
            return Ok(());
        }
        let (name, n) = (self.entry.spec.name, self.n());
        let problem = format!(
            "expected at most {most}: {name} with {n} replicas tolerates no more; lower f or add replicas"
        );
        Err(self.error("genesis.f", problem))
    }

    /// Returns the file, with an explanation of each field.
    #[must_use]
    pub fn to_toml(&self) -> String {
        let mut out = TomlWriter::new();
        out.comment(&format!(
            "Quorate cluster {}.\nThe same file at every node and every client; no secrets.",
            self.cluster_id()
        ));
        out.gap();
        out.text(&LINK_AUTH, self.links.name());
        self.write_genesis(&mut out);
        if !self.params.is_empty() {
            out.gap();
            out.comment("Parameters of the protocol that must be equal everywhere.");
            if self.entry.spec.model == Model::Synchrony {
                out.comment(BOUND_ABOUT);
            }
            out.header(&params::table_path(self.entry));
            out.raw(&self.params.to_string());
        }
        out.gap();
        out.comment(REPLICAS_ABOUT);
        for (index, (member, addresses)) in self.genesis.members.iter().zip(&self.replicas).enumerate() {
            out.gap();
            out.header(&format!("[{}]", REPLICAS));
            out.bare(&ID, index);
            out.bare_text(&SIGN, member.sign);
            out.bare_text(&LINK, member.link);
            out.bare_text(&PEERS, addresses.peers);
            out.bare_text(&ADDRESS_CLIENTS, addresses.clients);
        }
        out.finish()
    }

    fn write_genesis(&self, out: &mut TomlWriter) {
        let genesis = &self.genesis;
        let bodies = &genesis.bodies;
        out.gap();
        out.comment(GENESIS_ABOUT);
        out.header(GENESIS);
        out.text(&PROTOCOL, self.entry.spec.name);
        out.value(&F, genesis.f);
        out.text(&AUTH, client_auth_name(genesis.client_auth));
        out.size(&REQUEST_BYTES, bodies.request_bytes_max);
        out.value(&BUNDLE_REQUESTS, bodies.bundle_requests_max);
        out.size(&BUNDLE_BYTES, bodies.bundle_bytes_max);
        out.value(&BLOCK_BUNDLES, bodies.block_bundles_max);
        out.value(&BLOCK_REQUESTS, bodies.block_requests_max);
        out.size(&BLOCK_BYTES, bodies.block_bytes_max);
        out.size(&REPLY_BYTES, bodies.reply_bytes_max);
        out.value(&CLIENT_WINDOW, genesis.client_window);
        out.value(&CLIENTS_MAX, genesis.clients_max);
        out.value(&CHECKPOINT_EVERY, genesis.checkpoint_every);
        out.value(&WINDOW, genesis.window);
        out.text(&APPLICATION, &genesis.application);
        out.text(&ADMIN, genesis.admin);
        out.texts(&CLIENTS, &genesis.clients);
        out.text(&SALT, hex(&genesis.salt));
        if let Some(base) = &genesis.base {
            out.text(&BASE, base);
        }
    }
}
