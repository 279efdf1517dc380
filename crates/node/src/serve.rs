//! From a configuration to a replica that serves: its disk, its sockets, its keys.

use crate::config::{Durability, NodeConfig, NodeKeys, client_auth_name};
use crate::exit::Failure;
use crate::out;
use crate::processes::{READY, TAKEN};
use crate::runtime::{self, Facts, Node, NodeFault, NodeSetup, wall_ns};
use crate::service::Service;
use crate::signals::StopRequest;
use quorate_client::cluster::LinkMode;
use quorate_client::config::ConfigError;
use quorate_client::keys;
use quorate_consensus::OpenError;
use quorate_crypto::{Scheme, SigningKey, curve_backend};
use quorate_host::{HostFault, HostSetup, OpenFault};
use quorate_net::reactor::{NetFault, PeerConfig, Security, bind};
use quorate_net::tls::LinkKey;
use quorate_replica::ReplicaSetup;
use quorate_storage::folder::{self, FolderGuard};
use quorate_storage::{Disk, FileDisk, FileDiskConfig, MemDisk, PAGE_BYTES, SEGMENT_BYTES};
use quorate_types::Digest;
use quorate_types::digest::{context, keyed_tag};
use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;

/// A snapshot is written when the log has grown by this much, or by as much as the last snapshot had to write where that is
/// more: what a restart has to execute again at most.
const SNAPSHOT_EVERY_BYTES: u64 = 64 << 20;

/// A node whose configuration has been checked, and what it holds for itself.
pub(crate) struct Prepared {
    config: NodeConfig,
    service: Service,
    keys: NodeKeys,
    folder: FolderGuard,
    peers: TcpListener,
    clients: TcpListener,
}

impl Prepared {
    /// Takes the resources that must belong to this node alone: folder and addresses. With `tell_parent` it reports an
    /// address in use to the process that started it.
    pub(crate) fn open(config: NodeConfig, service: Service, tell_parent: bool) -> Result<Self, Failure> {
        let keys = config.keys()?;
        let identity = config.cluster.identity(config.id);
        let folder = folder::open(&config.data_dir, &identity);
        let folder = folder.map_err(|error| config.error("data_dir", error.to_string()))?;
        let listen = |field: &str, address: SocketAddr| {
            bind(address).map_err(|error| {
                if tell_parent && trouble_of(&error) == ErrorKind::AddrInUse {
                    // The parent may choose another address; if it has gone away, so do we.
                    let _ = out::line(format_args!("{TAKEN} {address}"));
                }
                config.error(field, format!("cannot listen on {address}: {}", listening(&error)))
            })
        };
        let peers = listen("listen_peers", config.listen_peers)?;
        let clients = listen("listen_clients", config.listen_clients)?;
        Ok(Self { config, service, keys, folder, peers, clients })
    }
}

/// Serves until `stop` asks for the end.
pub(crate) fn serve_on_its_disk(node: Prepared, stop: &StopRequest) -> Result<(), Failure> {
    match node.config.durability {
        Durability::None => {
            let disk = MemDisk::volatile(SEGMENT_BYTES, PAGE_BYTES);
            serve(node, disk, "memory".to_owned(), stop)
        }
        Durability::Fsync => on_files(node, quorate_storage::Durability::Fsync, stop),
        Durability::Os => on_files(node, quorate_storage::Durability::Os, stop),
    }
}

fn trouble_of(error: &NetFault) -> ErrorKind {
    if let NetFault::Listen(error) = error { error.kind() } else { ErrorKind::Other }
}

/// Why nobody can listen there, and what to do about it.
fn listening(error: &NetFault) -> String {
    let advice = match trouble_of(error) {
        ErrorKind::AddrInUse => "stop what uses it, or choose another address",
        ErrorKind::AddrNotAvailable => {
            "write an address of this machine, or 0.0.0.0 for all of them ([::] where they are of IPv6)"
        }
        ErrorKind::PermissionDenied => {
            "choose a port from 1024 on, or start it with the right to use this one"
        }
        _ => "choose another address",
    };
    format!("{error}; {advice}")
}

fn on_files(
    node: Prepared,
    durability: quorate_storage::Durability,
    stop: &StopRequest,
) -> Result<(), Failure> {
    let disk = FileDiskConfig { durability, salt: node.folder.salt(), ..FileDiskConfig::default() };
    let disk = FileDisk::open(node.folder.path(), disk).map_err(Failure::run)?;
    let mode = disk.mode().to_string();
    serve(node, disk, mode, stop)
}

fn serve<D: Disk>(node: Prepared, disk: D, log_mode: String, stop: &StopRequest) -> Result<(), Failure> {
    let Prepared { config, service, keys, folder, peers, clients } = node;
    // Where nothing outlives the process, the folder is held and not asked.
    let (folder, _held) = match config.durability {
        Durability::None => (None, Some(folder)),
        Durability::Fsync | Durability::Os => (Some(folder), None),
    };
    let setup = NodeSetup {
        host: host_setup(&config, service, &keys)?,
        disk,
        peers: peer_configs(&config),
        security: security(&config, &keys)?,
        listen_peers: peers,
        listen_clients: clients,
        facts: facts(&config, log_mode),
        folder,
    };
    let mut node = Node::open(setup).map_err(|fault| failure(&config, &fault))?;
    let (cluster, id) = (config.cluster.cluster_id(), config.id);
    tracing::info!(
        "replica {id} of cluster {cluster} serves; peers {}, clients {}",
        config.listen_peers,
        config.listen_clients
    );
    // A process that hears "ready" may ask the node to stop at once.
    stop.begin();
    out::line(READY)?;
    match node.run(&mut || stop.signal().is_some()) {
        Ok(()) => {
            // Nothing has to be finished: a promise is on disk before anybody hears of it.
            tracing::info!("stopped on {}", stop.signal().unwrap_or("a signal"));
            Ok(())
        }
        Err(fault) => Err(failure(&config, &fault)),
    }
}

fn host_setup(config: &NodeConfig, service: Service, keys: &NodeKeys) -> Result<HostSetup, Failure> {
    let genesis = config.genesis();
    Ok(HostSetup {
        entry: *config.cluster.entry,
        replica: ReplicaSetup {
            me: config.id,
            committee: Arc::new(genesis.committee()),
            genesis: Arc::new(genesis.clone()),
            params: config.params(),
            // Until its clock begins.
            wall_offset_ns: wall_ns(),
            secret: fresh_secret(&keys.replica)?,
        },
        key: keys.replica.clone(),
        scheme: Scheme::Ed25519,
        application: service.open(),
        keep_bytes: config.disk.keep_bytes,
        disk_bytes_max: config.disk.disk_bytes_max,
        snapshot_every_bytes: SNAPSHOT_EVERY_BYTES,
    })
}

/// Another one each time: what peers heard before a restart that lost the disk must not tell them what comes after it. The
/// key is in it too, for a machine whose randomness is poor.
fn fresh_secret(key: &SigningKey) -> Result<Digest, Failure> {
    let fresh = keys::random().map_err(Failure::run)?;
    Ok(Digest(keyed_tag(&key.secret(&context::PROBE).0, &fresh)))
}

fn peer_configs(config: &NodeConfig) -> Vec<PeerConfig> {
    let members = config.genesis().members.iter().zip(&config.cluster.replicas);
    members.map(|(member, addresses)| PeerConfig { key: member.link, address: addresses.peers }).collect()
}

fn security(config: &NodeConfig, keys: &NodeKeys) -> Result<Security, Failure> {
    match config.cluster.links {
        LinkMode::Plain => Ok(Security::Plain),
        LinkMode::Tls => {
            let key =
                keys.link.to_pkcs8_der().ok_or_else(|| Failure::run("the link key has no PKCS#8 form"))?;
            LinkKey::from_pkcs8(key.expose()).map(Security::Tls).map_err(Failure::run)
        }
    }
}

fn facts(config: &NodeConfig, log_mode: String) -> Facts {
    let cluster = &config.cluster;
    // What is wrong with its parameters is said when the protocol is opened.
    let bound = (cluster.entry.synchrony)(&config.params()).ok().flatten();
    Facts {
        protocol: cluster.entry.spec.name.to_string(),
        n: cluster.n(),
        f: usize::from(cluster.genesis.f),
        durability: config.durability.name().to_owned(),
        log_mode,
        link_auth: cluster.links.name().to_owned(),
        client_auth: client_auth_name(cluster.genesis.client_auth).to_owned(),
        mode: bound.map(|bound| bound.mode().to_owned()),
        curve: curve_backend().to_owned(),
    }
}

/// Checks the parts of a configuration that only protocol and application can check: it opens a replica as the command
/// does, on an empty disk in memory.
///
/// # Errors
/// A parameter that the protocol refuses, with its range, or anything else for which the node would not start.
pub(crate) fn rehearse(config: &NodeConfig, service: Service, keys: &NodeKeys) -> Result<(), Refused> {
    let setup = host_setup(config, service, keys).map_err(Refused::Otherwise)?;
    runtime::rehearse(setup).map_err(|fault| match wrong_parameter(config, &fault) {
        Some(error) => Refused::Parameter(error),
        None => Refused::Otherwise(failure(config, &fault)),
    })
}

/// Why a node would not start.
#[derive(Debug)]
pub(crate) enum Refused {
    /// The protocol cannot use a parameter.
    Parameter(ConfigError),
    /// Anything else.
    Otherwise(Failure),
}

fn wrong_parameter(config: &NodeConfig, fault: &NodeFault) -> Option<ConfigError> {
    match fault {
        NodeFault::Host(HostFault::Open(OpenFault::Protocol(OpenError::Params { name, expected }))) => {
            Some(config.params_error(name, expected))
        }
        _ => None,
    }
}

/// Makes a failure of a fault. A parameter that only the protocol can refuse is still wrong configuration.
fn failure(config: &NodeConfig, fault: &NodeFault) -> Failure {
    if let Some(error) = wrong_parameter(config, fault) {
        return error.into();
    }
    match fault {
        NodeFault::Host(HostFault::Open(
            OpenFault::Protocol(OpenError::Committee(_)) | OpenFault::Application(_),
        )) => Failure::usage(fault),
        _ => Failure::run(fault),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_that_cannot_be_listened_on_is_told_apart() {
        for (kind, advice) in [
            (ErrorKind::AddrInUse, "stop what uses it"),
            (ErrorKind::AddrNotAvailable, "write an address of this machine"),
            (ErrorKind::PermissionDenied, "a port from 1024 on"),
            (ErrorKind::OutOfMemory, "choose another address"),
        ] {
            let said = listening(&NetFault::Listen(kind.into()));
            assert!(said.contains(advice), "{said}");
            assert_eq!(said.contains("stop what uses it"), kind == ErrorKind::AddrInUse, "{said}");
        }
    }

    #[test]
    fn each_opening_has_a_secret_of_its_own() {
        let key = SigningKey::from_seed(Scheme::Ed25519, [7; 32]);
        let [first, second] = [fresh_secret(&key).unwrap(), fresh_secret(&key).unwrap()];
        assert_ne!(first, second);
    }
}
