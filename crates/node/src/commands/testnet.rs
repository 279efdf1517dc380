//! `quorate testnet`: makes a cluster, for this machine or for several.

use super::delta;
use crate::config::{Durability, Settings, choice, parse_replicas, protocol_names, replicas_or_default};
use crate::exit::Failure;
use crate::out;
use crate::service::Service;
use crate::testnet::{Plan, Testnet};
use quorate_client::cluster::LinkMode;
use quorate_client::config::ReplicaAddresses;
use quorate_client::config::cluster_file::CLIENT_AUTH_NAMES;
use quorate_consensus::Entry;
use quorate_types::ClientAuth;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

/// The cluster to make.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Folder to make; it must not exist, or be empty
    #[arg(long)]
    out: PathBuf,
    #[command(flatten)]
    cluster: ClusterArgs,
}

/// The properties of a new cluster.
#[derive(Debug, clap::Args)]
pub struct ClusterArgs {
    /// Number of replicas [default: the smallest that tolerates one fault]
    #[arg(long, value_parser = parse_replicas::<u16>)]
    n: Option<u16>,
    /// Protocol
    #[arg(long, default_value = "pbft", value_parser = choice(protocol_names()))]
    protocol: &'static Entry,
    /// IP address of each replica, in order; loopback for all of them unless given
    #[arg(long, value_delimiter = ',')]
    addresses: Vec<IpAddr>,
    /// Replica i listens for peers on this port + 2i, and for clients on the next
    #[arg(long, default_value_t = 4_000)]
    base_port: u16,
    /// Authentication of clients; "none" is for benchmarks
    #[arg(long, default_value = "signature", value_parser = choice(CLIENT_AUTH_NAMES.to_vec()))]
    client_auth: ClientAuth,
    /// Protection of connections; "plain" is for benchmarks
    #[arg(long, default_value = "tls", value_parser = choice(LinkMode::NAMES.to_vec()))]
    link_auth: LinkMode,
    /// Durability that a promise waits for
    #[arg(long, default_value = "fsync", value_parser = choice(Durability::NAMES.to_vec()))]
    durability: Durability,
    /// Let the cluster's admin key stop the nodes through `quorate stop`, for tests
    #[arg(long)]
    allow_stop: bool,
    #[command(flatten)]
    settings: Settings,
}

impl ClusterArgs {
    /// Returns the plan of the cluster.
    ///
    /// # Errors
    /// Fails when the settings conflict.
    pub(super) fn plan(&self, service: Service) -> Result<Plan, Failure> {
        Ok(Plan {
            service,
            entry: self.protocol,
            addresses: addresses(self)?,
            client_auth: self.client_auth,
            links: self.link_auth,
            durability: self.durability,
            allow_stop: self.allow_stop,
            settings: self.settings.clone(),
        })
    }
}

/// Runs the command.
///
/// # Errors
/// Fails when the settings conflict, or the folder cannot be made.
pub fn run(args: &Args, service: Service) -> Result<(), Failure> {
    let plan = args.cluster.plan(service)?;
    let testnet = Testnet::create(&args.out, &plan)?;
    report(&testnet, &args.out, plan.is_insecure())
}

/// Prints the new cluster and the next steps.
pub(super) fn report(testnet: &Testnet, out: &Path, is_insecure: bool) -> Result<(), Failure> {
    let cluster = &testnet.cluster;
    let insecure = if is_insecure { " --insecure" } else { "" };
    let (id, n, f) = (cluster.cluster_id(), cluster.n(), cluster.genesis.f);
    out::line(format_args!("cluster {id}"))?;
    out::line(format_args!("{}, {n} replicas, tolerates {f} faulty", cluster.entry.spec.name))?;
    if let Some(warning) = testnet.warning() {
        eprintln!("warning: {warning}");
    }
    if let Some(delays) = testnet.delays().describe() {
        out::line(delays)?;
    }
    for (is_warning, line) in delta::advice(testnet, out)? {
        if is_warning {
            eprintln!("warning: {line}");
        } else {
            out::line(line)?;
        }
    }
    let out = out.display();
    out::line(format_args!("start each replica i: quorate node --config {out}/node<i>/node.toml{insecure}"))?;
    out::line(format_args!("or all of them here: quorate up --dir {out}{insecure}"))
}

fn addresses(args: &ClusterArgs) -> Result<Vec<ReplicaAddresses>, Failure> {
    let ports = replicas_or_default(args.n, args.protocol);
    let n = usize::from(ports);
    if !args.addresses.is_empty() && args.addresses.len() != n {
        let given = args.addresses.len();
        return Err(Failure::usage(format!(
            "--addresses lists {given}, expected one for each of the {n} replicas"
        )));
    }
    let last = usize::from(args.base_port).saturating_add(n.saturating_mul(2)).saturating_sub(1);
    if args.base_port == 0 || last > usize::from(u16::MAX) {
        let most = usize::from(u16::MAX).saturating_sub(n.saturating_mul(2)).saturating_add(1);
        return Err(Failure::usage(format!(
            "--base-port {}: expected 1 to {most}, since {n} replicas have two ports each, up to 65535",
            args.base_port
        )));
    }
    let ips = args.addresses.iter().copied().chain(std::iter::repeat(IpAddr::V4(Ipv4Addr::LOCALHOST)));
    let ports = (args.base_port..).step_by(2);
    let replicas = ips.zip(ports).take(n).map(|(ip, port)| ReplicaAddresses {
        peers: SocketAddr::new(ip, port),
        clients: SocketAddr::new(ip, port.saturating_add(1)),
    });
    Ok(replicas.collect())
}
