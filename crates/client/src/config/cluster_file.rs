//! `cluster.toml`: genesis, and the addresses of the replicas. Equal at every node and client.
//!
//! A node checks the parameters of the protocol too; a client need not know the protocol.

#![allow(clippy::disallowed_methods, reason = "reads configuration files")]

use super::addresses::{AddressUse, identity};
use super::error::ConfigError;
use super::fields::{
    ADDRESS_CLIENTS, ADMIN, APPLICATION, AUTH, BASE, BLOCK_BUNDLES, BLOCK_BYTES, BLOCK_REQUESTS,
    BUNDLE_BYTES, BUNDLE_REQUESTS, CHECKPOINT_EVERY, CLIENT_WINDOW, CLIENTS, CLIENTS_MAX, F, GENESIS, ID,
    LINK, LINK_AUTH, PEERS, PROTOCOL, REPLICAS, REPLY_BYTES, REQUEST_BYTES, SALT, SIGN, WINDOW,
};
use super::reader::{EXPECTED_KEY, Origin, Section, Source, read_key};
use crate::cluster::{ClusterInfo, LinkMode};
use quorate_types::limits;
use quorate_types::{BodyLimits, ClientAuth, Digest, Genesis, Member, ProtocolId, PublicKey};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::Path;

/// The name of the file that all nodes and clients share.
pub const CLUSTER_FILE: &str = "cluster.toml";

/// The ways of client authentication, with their names.
pub const CLIENT_AUTH_NAMES: [(&str, ClientAuth); 2] =
    [("signature", ClientAuth::Signature), ("none", ClientAuth::None)];

/// The addresses of one replica.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReplicaAddresses {
    /// The address at which its peers reach it.
    pub peers: SocketAddr,
    /// The address at which clients reach it.
    pub clients: SocketAddr,
}

/// `cluster.toml`, read and checked as far as no protocol is needed.
#[derive(Clone, Debug)]
pub struct ClusterFile {
    /// The values that must be equal everywhere.
    pub genesis: Genesis,
    /// The protection of connections.
    pub links: LinkMode,
    /// The addresses of the replicas, by id.
    pub replicas: Vec<ReplicaAddresses>,
    /// The line of each field.
    pub origin: Origin,
}

/// The parts of the file that depend on the protocols that a program knows.
pub trait Protocols {
    /// A protocol.
    type Protocol;

    /// Takes the protocol out of the table of genesis.
    ///
    /// # Errors
    /// Fails when there is no such protocol.
    fn take(&self, genesis: &mut Section<'_>) -> Result<(ProtocolId, Self::Protocol), ConfigError>;

    /// Takes the protocol's shared parameters out of the file. Returns their canonical text, and the line of each.
    ///
    /// # Errors
    /// Fails when they do not suit the protocol.
    fn take_params(
        &self,
        source: &Source,
        root: &mut Section<'_>,
        protocol: &mut Self::Protocol,
    ) -> Result<(String, BTreeMap<String, usize>), ConfigError>;
}

/// The protocols of a program without a registry: it accepts every name and all parameters.
struct UnregisteredProtocols;

impl Protocols for UnregisteredProtocols {
    type Protocol = String;

    fn take(&self, genesis: &mut Section<'_>) -> Result<(ProtocolId, String), ConfigError> {
        let expected =
            "the name of a protocol with at most 16 letters (a longer name of it is for nodes alone)";
        let name = genesis.value(&PROTOCOL, expected, |value| {
            value.as_str().filter(|name| is_name(name)).map(str::to_owned)
        })?;
        Ok((ProtocolId::new(&name), name))
    }

    fn take_params(
        &self,
        source: &Source,
        root: &mut Section<'_>,
        protocol: &mut String,
    ) -> Result<(String, BTreeMap<String, usize>), ConfigError> {
        let Some(protocols) = root.optional("protocol")? else { return Ok((String::new(), BTreeMap::new())) };
        // The table may have a longer name of the protocol. A node checks the name.
        let names = protocols.names();
        if let [_, other, ..] = names.as_slice() {
            let problem =
                format!("expected one table of parameters; this cluster runs {protocol}; remove the other");
            return Err(protocols.error_at(other, problem));
        }
        let text: toml::Table = source.text().parse().unwrap_or_default();
        let tables = text.get("protocol").and_then(toml::Value::as_table);
        let params = tables.and_then(|tables| tables.values().next()).and_then(toml::Value::as_table);
        Ok((params.map(toml::Table::to_string).unwrap_or_default(), BTreeMap::new()))
    }
}

fn is_name(text: &str) -> bool {
    (1..=16).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic())
}

impl ClusterFile {
    /// Reads and checks a `cluster.toml` with any protocol.
    ///
    /// # Errors
    /// Fails with the first thing that is wrong.
    pub fn load(file: &Path) -> Result<Self, ConfigError> {
        Self::read(&Source::read(file)?, &UnregisteredProtocols).map(|(file, _)| file)
    }

    /// Reads and checks a file whose protocol is one of these.
    ///
    /// # Errors
    /// Fails with the first thing that is wrong.
    pub fn read<P: Protocols>(source: &Source, protocols: &P) -> Result<(Self, P::Protocol), ConfigError> {
        let mut root = source.parse()?;
        let links = root.choice(&LINK_AUTH, &LinkMode::NAMES)?;
        let mut section = root.section(GENESIS)?;
        let (id, mut protocol) = protocols.take(&mut section)?;
        let mut genesis = read_genesis(&mut section, id)?;
        let mut origin = source.origin();
        origin.add(section.finish()?);
        let (params, lines) = protocols.take_params(source, &mut root, &mut protocol)?;
        genesis.params = params;
        origin.add(lines);
        let mut replicas = Vec::new();
        for mut section in root.list(REPLICAS)? {
            let (member, addresses) = read_replica(&mut section, replicas.len())?;
            genesis.members.push(member);
            replicas.push(addresses);
            origin.add(section.finish()?);
        }
        origin.add(root.finish()?);
        let file = Self { genesis, links, replicas, origin };
        file.check()?;
        Ok((file, protocol))
    }

    /// Returns the cluster as a client sees it.
    #[must_use]
    pub fn info(&self) -> ClusterInfo {
        ClusterInfo::at(&self.genesis, self.links, self.replicas.iter().map(|replica| replica.clients))
    }

    /// Checks fields against each other.
    fn check(&self) -> Result<(), ConfigError> {
        let genesis = &self.genesis;
        genesis.check().map_err(|bad| {
            let field =
                if bad.field == REPLICAS { bad.field.to_owned() } else { format!("genesis.{}", bad.field) };
            self.origin.error(&field, format!("expected {}; correct it", bad.expected))
        })?;
        let mut keys = BTreeSet::new();
        for (index, member) in genesis.members.iter().enumerate() {
            for (name, key) in [(SIGN.name, member.sign), (LINK.name, member.link)] {
                if !keys.insert(key) {
                    let problem = "this key is at another place of the list too; expected two distinct keys for each replica; correct one of them";
                    return Err(self.origin.error(&format!("{REPLICAS}[{index}].{name}"), problem));
                }
            }
        }
        self.check_addresses()
    }

    /// Checks that no two sockets have one address.
    fn check_addresses(&self) -> Result<(), ConfigError> {
        let mut taken = BTreeMap::new();
        for (index, replica) in self.replicas.iter().enumerate() {
            for (name, address) in [(PEERS.name, replica.peers), (ADDRESS_CLIENTS.name, replica.clients)] {
                let field = format!("{REPLICAS}[{index}].{name}");
                if let Some(other) = taken.get(&identity(&address)) {
                    let problem = format!(
                        "{address} is {other} already; expected distinct addresses for peers and for clients of each replica; correct one of them"
                    );
                    return Err(self.origin.error(&field, problem));
                }
                taken.insert(identity(&address), field);
            }
        }
        Ok(())
    }
}

impl ClusterInfo {
    /// Reads the cluster from `cluster.toml`, named by its path or by the path of its folder. No read is sent again,
    /// unless the caller sets [`ClusterInfo::ask_again`].
    ///
    /// # Errors
    /// Fails with the first thing that is wrong with the file.
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        let inside = path.join(CLUSTER_FILE);
        ClusterFile::load(if path.is_dir() { &inside } else { path }).map(|file| file.info())
    }
}

fn read_genesis(section: &mut Section<'_>, protocol: ProtocolId) -> Result<Genesis, ConfigError> {
    Ok(Genesis {
        protocol,
        f: section.number(&F, 0..=255)?,
        client_auth: section.choice(&AUTH, &CLIENT_AUTH_NAMES)?,
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
        base: section
            .names()
            .iter()
            .any(|name| name == BASE.name)
            .then(|| section.bytes32(&BASE).map(Digest))
            .transpose()?,
        // The values of other places of the file follow.
        members: Vec::new(),
        params: String::new(),
    })
}

fn read_replica(section: &mut Section<'_>, index: usize) -> Result<(Member, ReplicaAddresses), ConfigError> {
    let index = index.to_string();
    let expected = format!("{index}, since the entries stand in order");
    section.value(&ID, &expected, |value| (value.as_integer()?.as_str() == index).then_some(()))?;
    let member = Member { sign: section.key(&SIGN)?, link: section.key(&LINK)? };
    let addresses = ReplicaAddresses {
        peers: section.address(&PEERS, AddressUse::Dial)?,
        clients: section.address(&ADDRESS_CLIENTS, AddressUse::Dial)?,
    };
    Ok((member, addresses))
}

#[cfg(test)]
mod tests;
