//! `cluster.toml`: genesis, and beside it how to reach the replicas. Equal at every node and client.

use super::addresses::{Use, identity};
use super::error::ConfigError;
use super::params::{self, Kind};
use super::reader::{EXPECTED_KEY, Field, Origin, Section, Source, read_key};
use super::writer::Writer;
use crate::service::Service;
use quorate_client::cluster::{AskAgain, ClusterInfo, LinkMode, ReplicaInfo};
use quorate_consensus::{Entry, Model};
use quorate_types::digest::hex;
use quorate_types::limits;
use quorate_types::{BodyLimits, ClientAuth, ClusterId, Genesis, Member, PublicKey, ReplicaId};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::Path;

/// How connections are protected.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum LinkAuth {
    /// TLS 1.3 that accepts exactly the listed keys.
    #[default]
    Tls,
    /// Nothing: benchmarks only.
    Plain,
}

impl LinkAuth {
    /// All with their names.
    pub const NAMES: [(&'static str, Self); 2] = [("tls", Self::Tls), ("plain", Self::Plain)];

    /// The name in files and on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        name_of(&Self::NAMES, self)
    }
}

const CLIENT_AUTH: [(&str, ClientAuth); 2] =
    [("signature", ClientAuth::Signature), ("none", ClientAuth::None)];

/// The name of a way of client authentication in files and on the command line.
#[must_use]
pub fn client_auth_name(auth: ClientAuth) -> &'static str {
    name_of(&CLIENT_AUTH, auth)
}

/// All ways of client authentication with their names.
#[must_use]
pub fn client_auth_names() -> Vec<(&'static str, ClientAuth)> {
    CLIENT_AUTH.to_vec()
}

/// All protocols with their names, and with longer ones that stand for them.
#[must_use]
pub fn protocol_names() -> Vec<(&'static str, &'static Entry)> {
    let short = quorate_protocols::REGISTRY.iter().map(|entry| (entry.spec.name.as_str(), entry));
    let long = quorate_protocols::LONG_NAMES.into_iter();
    short.chain(long.filter_map(|(name, _)| Some((name, quorate_protocols::find(name)?)))).collect()
}

/// How many replicas a cluster has unless it is said: as few as tolerate one fault.
#[must_use]
pub fn replicas_or_default(n: Option<u16>, entry: &Entry) -> u16 {
    n.unwrap_or_else(|| u16::try_from(quorate_sim::smallest(entry, 1)).unwrap_or(u16::MAX))
}

/// Reads a number of replicas from the command line.
///
/// # Errors
/// When no cluster has so many.
pub fn parse_replicas<T: From<u16>>(text: &str) -> Result<T, String> {
    let n = text.parse::<u16>().ok().filter(|n| *n > 0 && usize::from(*n) <= limits::REPLICAS_MAX);
    n.map(T::from).ok_or_else(|| format!("expected 1 to {} replicas", limits::REPLICAS_MAX))
}

pub(super) fn name_of<T: PartialEq>(names: &[(&'static str, T)], value: T) -> &'static str {
    names.iter().find(|(_, other)| *other == value).map_or("?", |(name, _)| name)
}

/// Where one replica is reached.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReplicaAddresses {
    /// By its peers.
    pub peers: SocketAddr,
    /// By clients.
    pub clients: SocketAddr,
}

/// `cluster.toml`, read and checked.
#[derive(Clone, Debug)]
pub struct ClusterConfig {
    /// What must be equal everywhere.
    pub genesis: Genesis,
    /// The protocol that genesis names.
    pub entry: &'static Entry,
    /// The protocol's shared parameters: what `genesis.params` says.
    pub params: toml::Table,
    /// How connections are protected.
    pub link_auth: LinkAuth,
    /// Where the replicas are reached, by id.
    pub replicas: Vec<ReplicaAddresses>,
    origin: Option<Origin>,
}

const LINK_AUTH: Field = Field {
    name: "link_auth",
    about: "How connections are protected: \"tls\", or \"plain\" (benchmarks only; nodes start with --insecure alone).",
    example: "\"tls\"",
};
pub(super) const GENESIS: &str = "genesis";
const GENESIS_ABOUT: &str = "What must be equal everywhere, because it decides what is valid and what the state is. Its \
    digest, with the\nreplicas' keys, is the identity of the cluster: changing anything here makes another one.";
const PROTOCOL: Field =
    Field { name: "protocol", about: "The protocol that orders requests.", example: "\"pbft\"" };
const F: Field = Field { name: "f", about: "Faulty replicas tolerated.", example: "1" };
const AUTH: Field = Field {
    name: "client_auth",
    about: "How clients prove who they are: \"signature\", or \"none\" (benchmarks only).",
    example: "\"signature\"",
};
const REQUEST_BYTES: Field =
    Field { name: "request_bytes_max", about: "The largest request.", example: "\"256KiB\"" };
const BUNDLE_REQUESTS: Field =
    Field { name: "bundle_requests_max", about: "Requests in one bundle at most.", example: "4096" };
const BUNDLE_BYTES: Field =
    Field { name: "bundle_bytes_max", about: "The largest bundle.", example: "\"1MiB\"" };
const BLOCK_BUNDLES: Field =
    Field { name: "block_bundles_max", about: "Bundles in one block at most.", example: "256" };
const BLOCK_REQUESTS: Field = Field {
    name: "block_requests_max",
    about: "Requests in one block at most. A single bundle always fits.",
    example: "1048576",
};
const BLOCK_BYTES: Field = Field {
    name: "block_bytes_max",
    about: "The largest block. A single bundle always fits.",
    example: "\"4MiB\"",
};
const REPLY_BYTES: Field =
    Field { name: "reply_bytes_max", about: "The largest result of one bundle.", example: "\"1MiB\"" };
const CLIENT_WINDOW: Field =
    Field { name: "client_window", about: "Bundles that one session may have in flight.", example: "16384" };
const CLIENTS_MAX: Field = Field {
    name: "clients_max",
    about: "Sessions that are open at the same time. Beyond it the one that was used least recently ends.",
    example: "4096",
};
const CHECKPOINT_EVERY: Field =
    Field { name: "checkpoint_every", about: "Blocks between two checkpoints (K).", example: "128" };
const WINDOW: Field = Field {
    name: "window",
    about: "Blocks above the last stable checkpoint that may be in use (L): a multiple of checkpoint_every.",
    example: "256",
};
const APPLICATION: Field =
    Field { name: "application", about: "Name and version of the service.", example: "\"kv 1\"" };
const ADMIN: Field = Field {
    name: "admin",
    about: "Key of the client that may register the keys of others.",
    example: "\"0123…\"",
};
const CLIENTS: Field =
    Field { name: "clients", about: "Keys of clients that are registered from the start.", example: "[]" };
const SALT: Field =
    Field { name: "salt", about: "Random, so that no two clusters are the same.", example: "\"0123…\"" };
const BOUND_ABOUT: &str =
    "The cluster is safe only while messages keep the bound delta_ms: see docs/bound.md of Quorate.";
const REPLICAS: &str = "replicas";
const REPLICAS_ABOUT: &str = "The replicas. `sign` and `link` are the public halves of replica.key and link.key and part \
    of the identity\nof the cluster; the addresses are not.";
const ID: Field = Field { name: "id", about: "0, 1, 2 … in order.", example: "0" };
const SIGN: Field =
    Field { name: "sign", about: "The key that signs its statements.", example: "\"0123…\"" };
const LINK: Field =
    Field { name: "link", about: "The key that it shows on connections.", example: "\"0123…\"" };
const PEERS: Field =
    Field { name: "peers", about: "Where other replicas reach it.", example: "\"127.0.0.1:4000\"" };
const ADDRESS_CLIENTS: Field =
    Field { name: "clients", about: "Where clients reach it.", example: "\"127.0.0.1:4001\"" };

impl ClusterConfig {
    /// A cluster that was put together by the program itself.
    #[must_use]
    pub fn new(
        genesis: Genesis,
        entry: &'static Entry,
        params: toml::Table,
        link_auth: LinkAuth,
        replicas: Vec<ReplicaAddresses>,
    ) -> Self {
        Self { genesis, entry, params, link_auth, replicas, origin: None }
    }

    /// Reads and checks a `cluster.toml`.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn load(file: &Path) -> Result<Self, ConfigError> {
        Self::read(&Source::read(file)?)
    }

    /// This configuration as it is read from its file: what would be wrong with the file is an error here.
    ///
    /// # Errors
    /// As [`ClusterConfig::load`].
    pub fn as_read(&self) -> Result<Self, ConfigError> {
        Self::read(&Source::of("cluster.toml", &self.to_toml()))
    }

    pub(super) fn read(source: &Source) -> Result<Self, ConfigError> {
        let mut root = source.parse()?;
        let link_auth = root.choice(&LINK_AUTH, &LinkAuth::NAMES)?;
        let mut section = root.section(GENESIS)?;
        let (mut genesis, entry) = read_genesis(&mut section)?;
        let mut origin = source.origin();
        origin.add(section.finish()?);
        let (params, lines) = params::read(source, &mut root, entry, Kind::Shared)?;
        genesis.params = params.to_string();
        origin.add(lines);
        let mut replicas = Vec::new();
        for mut section in root.list(REPLICAS)? {
            let (member, addresses) = read_replica(&mut section, replicas.len())?;
            genesis.members.push(member);
            replicas.push(addresses);
            origin.add(section.finish()?);
        }
        origin.add(root.finish()?);
        let config = Self { genesis, entry, params, link_auth, replicas, origin: Some(origin) };
        config.check()?;
        Ok(config)
    }

    /// Which cluster this is.
    #[must_use]
    pub fn cluster_id(&self) -> ClusterId {
        self.genesis.cluster_id()
    }

    /// How many replicas there are.
    #[must_use]
    pub fn n(&self) -> usize {
        self.replicas.len()
    }

    /// All ids in order.
    pub fn ids(&self) -> impl Iterator<Item = ReplicaId> + use<> {
        self.genesis.committee().ids()
    }

    /// Where clients reach the replicas, by id.
    #[must_use]
    pub fn client_addresses(&self) -> Vec<SocketAddr> {
        self.replicas.iter().map(|replica| replica.clients).collect()
    }

    /// What a client needs to know.
    #[must_use]
    pub fn client_info(&self) -> ClusterInfo {
        let genesis = &self.genesis;
        let replicas = genesis.members.iter().zip(&self.replicas);
        ClusterInfo {
            cluster: self.cluster_id(),
            f: usize::from(genesis.f),
            client_auth: genesis.client_auth,
            limits: genesis.bodies,
            client_window: genesis.client_window,
            links: match self.link_auth {
                LinkAuth::Tls => LinkMode::Tls,
                LinkAuth::Plain => LinkMode::Plain,
            },
            ask_again: (genesis.application == Service::KV.name())
                .then_some(AskAgain(quorate_app::may_ask_again)),
            replicas: replicas
                .map(|(member, addresses)| ReplicaInfo { link: member.link, address: addresses.clients })
                .collect(),
        }
    }

    /// An error about a field of this file.
    pub(super) fn error(&self, field: &str, problem: impl Into<String>) -> ConfigError {
        match &self.origin {
            Some(origin) => origin.error(field, problem),
            None => ConfigError {
                file: "cluster.toml".into(),
                line: None,
                field: field.to_owned(),
                problem: problem.into(),
            },
        }
    }

    /// Checks that this is a cluster of `service`.
    ///
    /// # Errors
    /// When it is one of another service, or of another version of it.
    pub fn check_service(&self, service: Service) -> Result<(), ConfigError> {
        let (expected, found) = (service.name(), &self.genesis.application);
        if *found == expected {
            return Ok(());
        }
        let problem = format!(
            "expected \"{expected}\", which is what this program runs, found \"{found}\"; use the program that the cluster was made with"
        );
        Err(self.error("genesis.application", problem))
    }

    /// Checks fields against each other.
    fn check(&self) -> Result<(), ConfigError> {
        let genesis = &self.genesis;
        genesis.check().map_err(|bad| {
            let field =
                if bad.field == REPLICAS { bad.field.to_owned() } else { format!("genesis.{}", bad.field) };
            self.error(&field, format!("expected {}; correct it", bad.expected))
        })?;
        let most = (self.entry.spec.faults)(self.n());
        if usize::from(genesis.f) > most {
            let (name, n) = (self.entry.spec.name, self.n());
            let problem = format!(
                "expected at most {most}: {name} with {n} replicas tolerates no more; lower f or add replicas"
            );
            return Err(self.error("genesis.f", problem));
        }
        let mut keys = BTreeSet::new();
        for (index, member) in genesis.members.iter().enumerate() {
            for (name, key) in [(SIGN.name, member.sign), (LINK.name, member.link)] {
                if !keys.insert(key) {
                    let problem = "this key stands at another place of the list already; every replica has two keys of its own";
                    return Err(self.error(&format!("{}[{index}].{name}", REPLICAS), problem));
                }
            }
        }
        self.check_addresses()
    }

    /// No two sockets have one address.
    fn check_addresses(&self) -> Result<(), ConfigError> {
        let mut taken = BTreeMap::new();
        for (index, replica) in self.replicas.iter().enumerate() {
            for (name, address) in [(PEERS.name, replica.peers), (ADDRESS_CLIENTS.name, replica.clients)] {
                let field = format!("{REPLICAS}[{index}].{name}");
                if let Some(other) = taken.get(&identity(&address)) {
                    let problem = format!(
                        "{address} is {other} already; every replica has an address of its own for peers, and one for clients"
                    );
                    return Err(self.error(&field, problem));
                }
                taken.insert(identity(&address), field);
            }
        }
        Ok(())
    }

    /// The file, with every field explained.
    #[must_use]
    pub fn to_toml(&self) -> String {
        let mut out = Writer::new();
        out.comment(&format!(
            "Quorate cluster {}.\nThe same file at every node and every client; no secrets.",
            self.cluster_id()
        ));
        out.gap();
        out.text(&LINK_AUTH, self.link_auth.name());
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

    fn write_genesis(&self, out: &mut Writer) {
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
    }
}

/// Limits that a cluster may be made with: the fields of genesis that no other option decides.
pub(super) fn limit_names() -> [&'static str; 11] {
    [
        &REQUEST_BYTES,
        &BUNDLE_REQUESTS,
        &BUNDLE_BYTES,
        &BLOCK_BUNDLES,
        &BLOCK_REQUESTS,
        &BLOCK_BYTES,
        &REPLY_BYTES,
        &CLIENT_WINDOW,
        &CLIENTS_MAX,
        &CHECKPOINT_EVERY,
        &WINDOW,
    ]
    .map(|field| field.name)
}

fn read_genesis(section: &mut Section<'_>) -> Result<(Genesis, &'static Entry), ConfigError> {
    let entry = section.choice(&PROTOCOL, &protocol_names())?;
    let genesis = Genesis {
        protocol: entry.spec.name,
        f: section.number(&F, 0..=255)?,
        client_auth: section.choice(&AUTH, &CLIENT_AUTH)?,
        bodies: BodyLimits {
            request_bytes_max: section.size(&REQUEST_BYTES, 1..=limits::REQUEST_BYTES_CEILING.into())?,
            bundle_requests_max: section
                .number(&BUNDLE_REQUESTS, 1..=limits::BUNDLE_REQUESTS_CEILING.into())?,
            bundle_bytes_max: section.size(&BUNDLE_BYTES, 1..=limits::BUNDLE_BYTES_CEILING.into())?,
            block_bundles_max: section.number(&BLOCK_BUNDLES, 1..=limits::BLOCK_BUNDLES_CEILING.into())?,
            block_requests_max: section.number(&BLOCK_REQUESTS, 1..=limits::BLOCK_REQUESTS_CEILING.into())?,
            block_bytes_max: section.size(&BLOCK_BYTES, 1..=limits::BLOCK_BYTES_CEILING.into())?,
            reply_bytes_max: section.size(&REPLY_BYTES, 1..=limits::REPLY_BYTES_CEILING.into())?,
        },
        client_window: section.number(&CLIENT_WINDOW, 1..=limits::WINDOW_CEILING.into())?,
        clients_max: section.number(&CLIENTS_MAX, 1..=limits::CLIENTS_CEILING.into())?,
        checkpoint_every: section.number(&CHECKPOINT_EVERY, 2..=1 << 20)?,
        window: section.number(&WINDOW, 4..=1 << 22)?,
        application: section.value(&APPLICATION, "name and version of a service", |value| {
            value.as_str().map(str::to_owned)
        })?,
        admin: section.key(&ADMIN)?,
        clients: section.value(
            &CLIENTS,
            &format!("a list, each entry {EXPECTED_KEY} and none twice"),
            |value| {
                let keys: Option<Vec<PublicKey>> =
                    value.as_array()?.iter().map(|key| read_key(key.get_ref().as_str()?)).collect();
                keys.filter(|keys| keys.iter().collect::<BTreeSet<_>>().len() == keys.len())
            },
        )?,
        salt: section.bytes32(&SALT)?,
        // They stand at other places of the file.
        members: Vec::new(),
        params: String::new(),
    };
    Ok((genesis, entry))
}

fn read_replica(section: &mut Section<'_>, index: usize) -> Result<(Member, ReplicaAddresses), ConfigError> {
    let index = index.to_string();
    let expected = format!("{index}, since the entries stand in order");
    section.value(&ID, &expected, |value| (value.as_integer()?.as_str() == index).then_some(()))?;
    let member = Member { sign: section.key(&SIGN)?, link: section.key(&LINK)? };
    let addresses = ReplicaAddresses {
        peers: section.address(&PEERS, Use::Dial)?,
        clients: section.address(&ADDRESS_CLIENTS, Use::Dial)?,
    };
    Ok((member, addresses))
}
