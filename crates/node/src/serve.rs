//! The steps from a configuration to a replica that serves: disk, sockets and keys.

use crate::config::{Durability, NodeConfig, NodeKeys, client_auth_name};
use crate::disguise::MakeDisguise;
use crate::evidence;
use crate::exit::Failure;
use crate::out;
use crate::processes::{READY, TAKEN};
use crate::runtime::{self, Facts, Node, NodeFault, NodeSetup, RunEnd, wall_ns};
use crate::service::Service;
use crate::signals::StopRequest;
use quorate_client::cluster::LinkMode;
use quorate_client::config::ConfigError;
use quorate_client::keys;
use quorate_consensus::OpenError;
use quorate_crypto::{Scheme, SigningKey, curve_backend};
use quorate_host::{FAR_HEIGHTS, HostFault, HostSetup, OpenFault};
use quorate_net::reactor::{NetFault, PeerConfig, Security, bind};
use quorate_net::tls::LinkKey;
use quorate_replica::ReplicaSetup;
use quorate_storage::folder::{self, FolderGuard};
use quorate_storage::{Disk, FileDisk, FileDiskConfig, MemDisk, PAGE_BYTES, SEGMENT_BYTES};
use quorate_types::digest::{context, keyed_tag};
use quorate_types::{Digest, Incarnation};
use std::io::ErrorKind;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;

/// The growth of the log after which the replica writes a snapshot, unless the last snapshot wrote more. It limits the blocks
/// that a restart executes again.
const SNAPSHOT_EVERY_BYTES: u64 = 64 << 20;

/// A node with a checked configuration and its exclusive resources.
pub(crate) struct PreparedNode {
    config: NodeConfig,
    service: Service,
    keys: NodeKeys,
    folder: FolderGuard,
    peers: TcpListener,
    clients: TcpListener,
}

impl PreparedNode {
    /// Takes the exclusive resources: folder and addresses. With `has_parent` it reports an address in use to the process
    /// that started this one.
    /// `rejoins` makes a lost folder anew.
    pub(crate) fn open(
        config: NodeConfig,
        service: Service,
        (has_parent, rejoins): (bool, bool),
    ) -> Result<Self, Failure> {
        let keys = config.keys()?;
        let identity = config.cluster.identity(config.id);
        if rejoins && config.durability == Durability::None {
            let problem = "is \"none\", so the node has no promises that --rejoin could replace; start it without --rejoin";
            return Err(config.error("durability", problem).into());
        }
        if rejoins {
            let salt = keys::random_u64().map_err(Failure::run)?;
            let from = wall_ns() / 1_000_000;
            folder::format_amnesiac(&config.data_dir, &identity, salt, from)
                .map_err(|error| config.error("data_dir", error.to_string()))?;
        }
        let folder = folder::open(&config.data_dir, &identity);
        let folder = folder.map_err(|error| config.error("data_dir", error.to_string()))?;
        let listen = |field: &str, address: SocketAddr| {
            bind(address).map_err(|error| {
                if has_parent && error_kind(&error) == ErrorKind::AddrInUse {
                    // The parent may choose another address. If the parent is gone, this process ends too.
                    let _ = out::line(format_args!("{TAKEN} {address}"));
                }
                config.error(field, format!("cannot listen on {address}: {}", listen_problem(&error)))
            })
        };
        let peers = listen("listen_peers", config.listen_peers)?;
        let clients = listen("listen_clients", config.listen_clients)?;
        Ok(Self { config, service, keys, folder, peers, clients })
    }
}

/// Serves until a stop request.
pub(crate) fn serve_on_its_disk(
    node: PreparedNode,
    stop: &StopRequest,
    disguise: Option<MakeDisguise<'_>>,
) -> Result<(), Failure> {
    match node.config.durability {
        Durability::None => {
            let disk = MemDisk::volatile(SEGMENT_BYTES, PAGE_BYTES);
            serve(node, (Box::new(disk), "memory".to_owned()), stop, disguise)
        }
        Durability::Fsync | Durability::Os => {
            let disk = open_files(&node.config, &node.folder)?;
            let mode = disk.mode().to_string();
            serve(node, (Box::new(disk), mode), stop, disguise)
        }
    }
}

fn error_kind(error: &NetFault) -> ErrorKind {
    if let NetFault::Listen(error) = error { error.kind() } else { ErrorKind::Other }
}

/// Returns the reason why the node cannot listen on an address, with advice.
fn listen_problem(error: &NetFault) -> String {
    let advice = match error_kind(error) {
        ErrorKind::AddrInUse => "stop the program that uses it, or choose another address",
        ErrorKind::AddrNotAvailable => {
            "write an address of this machine, or 0.0.0.0 for all of them ([::] for IPv6)"
        }
        ErrorKind::PermissionDenied => {
            "choose a port from 1024 on, or start it with the right to use this one"
        }
        _ => "choose another address",
    };
    format!("{error}; {advice}")
}

fn open_files(config: &NodeConfig, folder: &FolderGuard) -> Result<FileDisk, Failure> {
    let durability = match config.durability {
        Durability::Os => quorate_storage::Durability::Os,
        Durability::Fsync | Durability::None => quorate_storage::Durability::Fsync,
    };
    let disk = FileDiskConfig { durability, salt: folder.salt(), ..FileDiskConfig::default() };
    FileDisk::open(folder.path(), disk).map_err(Failure::run)
}

fn serve(
    node: PreparedNode,
    (disk, log_mode): (Box<dyn Disk>, String),
    stop: &StopRequest,
    disguise: Option<MakeDisguise<'_>>,
) -> Result<(), Failure> {
    let PreparedNode { config, service, keys, folder, peers, clients } = node;
    // If no data outlives the process, the folder stays locked and is not used.
    let (folder, _held) = match config.durability {
        Durability::None => (None, Some(folder)),
        Durability::Fsync | Durability::Os => (Some(folder), None),
    };
    let mut parts = (disk, folder);
    let mut is_first = true;
    loop {
        let (disk, folder) = parts;
        let setup = NodeSetup {
            host: HostSetup {
                amnesiac_from: folder.as_ref().and_then(FolderGuard::amnesiac_from).map(Incarnation),
                ..host_setup(&config, service, &keys)?
            },
            disk,
            peers: peer_configs(&config),
            security: security(&config, &keys)?,
            // The addresses stay taken while the replica is opened anew.
            listen_peers: peers.try_clone().map_err(Failure::run)?,
            listen_clients: clients.try_clone().map_err(Failure::run)?,
            link_delays_ns: config.link_delays_ns.clone(),
            facts: facts(&config, log_mode.clone()),
            allow_stop: config.allow_stop,
            folder,
        };
        let mut node = Node::open(setup).map_err(|fault| failure(&config, &fault))?;
        if let Some(make) = disguise {
            node.disguise(make(&config, &keys));
        }
        if std::mem::take(&mut is_first) {
            report_ready(&config, stop)?;
        }
        keep_evidence(&config, &mut node);
        let end = node.run(&mut || stop.signal().is_some());
        keep_evidence(&config, &mut node);
        if node.is_stopped_by_admin() && end.is_ok() {
            return report_stop(&node, stop);
        }
        match end {
            Ok(RunEnd::Reopen) => parts = node.close(),
            Ok(RunEnd::DiskFull) => {
                let has_room = node.wait_for_room(&mut || stop.signal().is_some());
                if !has_room.map_err(|fault| failure(&config, &fault))? {
                    return report_stop(&node, stop);
                }
                // The disk is in an unknown state after its failure, so its files are opened anew.
                let (disk, folder) = node.close();
                drop(disk);
                let folder = folder.ok_or_else(|| Failure::run("the data folder is gone"))?;
                parts = (Box::new(open_files(&config, &folder)?), Some(folder));
            }
            Ok(RunEnd::Stopped) => return report_stop(&node, stop),
            Err(fault) => return Err(failure(&config, &fault)),
        }
    }
}

/// Logs the counters of a node that ends. No work is left: a promise is durable before it is sent.
fn report_stop(node: &Node, stop: &StopRequest) -> Result<(), Failure> {
    for line in node.step_lines() {
        tracing::info!("{line}");
    }
    tracing::info!("{}", node.summary());
    let by_admin = node.is_stopped_by_admin().then_some("a request of the cluster's admin");
    tracing::info!("stopped on {}", by_admin.or(stop.signal()).unwrap_or("a signal"));
    Ok(())
}

/// Keeps a state that the node has dropped, because a quorum has signed another one.
fn keep_evidence(config: &NodeConfig, node: &mut Node) {
    if let Some((wrong, room)) = node.take_diverged() {
        evidence::keep(&config.data_dir, config.genesis(), &wrong, room);
    }
}

/// Reports to the log and to the parent process that the node serves.
fn report_ready(config: &NodeConfig, stop: &StopRequest) -> Result<(), Failure> {
    let (cluster, id) = (config.cluster.cluster_id(), config.id);
    tracing::info!(
        "replica {id} of cluster {cluster} serves; peers {}, clients {}",
        config.listen_peers,
        config.listen_clients
    );
    if config.link_delays_ns.iter().any(|ns| *ns > 0) {
        tracing::warn!("links emulate delays (link_delay_ms in node.toml): for experiments only");
    }
    // The parent may request a stop as soon as it reads "ready".
    stop.begin();
    out::line(READY)
}

pub(crate) fn host_setup(
    config: &NodeConfig,
    service: Service,
    keys: &NodeKeys,
) -> Result<HostSetup, Failure> {
    let genesis = config.genesis();
    Ok(HostSetup {
        entry: *config.cluster.entry,
        replica: ReplicaSetup {
            me: config.id,
            committee: Arc::new(genesis.committee()),
            genesis: Arc::new(genesis.clone()),
            params: config.params(),
            // The value until the clock starts.
            wall_offset_ns: wall_ns(),
            secret: fresh_secret(&keys.replica)?,
        },
        key: keys.replica.clone(),
        scheme: Scheme::Ed25519,
        application: service.open(),
        amnesiac_from: None,
        keep_bytes: config.disk.keep_bytes,
        disk_bytes_max: config.disk.disk_bytes_max,
        snapshot_every_bytes: SNAPSHOT_EVERY_BYTES,
        far_heights: FAR_HEIGHTS,
    })
}

/// Returns a new secret for each opening. After a restart that lost the disk, peers must not predict values from those before
/// it. The secret depends on the key too, for a machine with poor randomness.
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
    // The opening of the protocol reports wrong parameters.
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

/// Checks the parts of a configuration that only protocol and application can check: opens a replica on an empty disk in
/// memory.
///
/// # Errors
/// A parameter that the protocol refuses, with its range, or another reason why the node would not start.
pub(crate) fn rehearse(config: &NodeConfig, service: Service, keys: &NodeKeys) -> Result<(), CannotStart> {
    let setup = host_setup(config, service, keys).map_err(CannotStart::Other)?;
    runtime::rehearse(setup).map_err(|fault| match wrong_parameter(config, &fault) {
        Some(error) => CannotStart::Parameter(error),
        None => CannotStart::Other(failure(config, &fault)),
    })
}

/// The reason why a node would not start.
#[derive(Debug)]
pub(crate) enum CannotStart {
    /// The protocol cannot use a parameter.
    Parameter(ConfigError),
    /// Another reason.
    Other(Failure),
}

fn wrong_parameter(config: &NodeConfig, fault: &NodeFault) -> Option<ConfigError> {
    match fault {
        NodeFault::Host(HostFault::Open(OpenFault::Protocol(OpenError::Params { name, expected }))) => {
            Some(config.params_error(name, expected))
        }
        _ => None,
    }
}

/// Returns the failure for a fault. A parameter that the protocol refuses is wrong configuration.
pub(crate) fn failure(config: &NodeConfig, fault: &NodeFault) -> Failure {
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
    fn advice_depends_on_the_problem_of_an_address() {
        for (kind, advice) in [
            (ErrorKind::AddrInUse, "stop the program that uses it"),
            (ErrorKind::AddrNotAvailable, "write an address of this machine"),
            (ErrorKind::PermissionDenied, "a port from 1024 on"),
            (ErrorKind::OutOfMemory, "choose another address"),
        ] {
            let text = listen_problem(&NetFault::Listen(kind.into()));
            assert!(text.contains(advice), "{text}");
            assert_eq!(
                text.contains("stop the program that uses it"),
                kind == ErrorKind::AddrInUse,
                "{text}"
            );
        }
    }

    #[test]
    fn each_opening_has_another_secret() {
        let key = SigningKey::from_seed(Scheme::Ed25519, [7; 32]);
        let [first, second] = [fresh_secret(&key).unwrap(), fresh_secret(&key).unwrap()];
        assert_ne!(first, second);
    }
}
