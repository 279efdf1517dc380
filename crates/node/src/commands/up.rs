//! `quorate up`: a local cluster until Ctrl-C, one process per replica.

use crate::config::{
    ClusterConfig, Durability, NodeConfig, Settings, choice, client_auth_name, protocol_names,
    replicas_or_default,
};
use crate::exit::Failure;
use crate::layout::node_file;
use crate::out;
use crate::ports::free_addresses;
use crate::processes::{Event, Processes};
use crate::service::Service;
use crate::testnet::{MOVES_MAX, Plan, Testnet};
use quorate_client::cluster::LinkMode;
use quorate_client::config::CLUSTER_FILE;
use quorate_client::config::cluster_file::CLIENT_AUTH_NAMES;
use quorate_consensus::Entry;
use quorate_types::ClientAuth;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The time after which the command names the nodes that do not serve yet.
const PATIENCE: Duration = Duration::from_secs(10);

/// The cluster to run. An option that is not given has the value with which the folder was made.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Folder of the cluster; made if it does not exist
    #[arg(long)]
    dir: PathBuf,
    /// Number of replicas [default for a new folder: the smallest that tolerates one fault]
    #[arg(long)]
    n: Option<u16>,
    /// Protocol [default for a new folder: pbft]
    #[arg(long, value_parser = choice(protocol_names()))]
    protocol: Option<&'static Entry>,
    /// Durability that a promise waits for [default for a new folder: fsync]
    #[arg(long, value_parser = choice(Durability::NAMES.to_vec()))]
    durability: Option<Durability>,
    /// Protection of connections [default for a new folder: tls]
    #[arg(long, value_parser = choice(LinkMode::NAMES.to_vec()))]
    link_auth: Option<LinkMode>,
    /// Authentication of clients [default for a new folder: signature]
    #[arg(long, value_parser = choice(CLIENT_AUTH_NAMES.to_vec()))]
    client_auth: Option<ClientAuth>,
    /// Run although client or link authentication or durability is switched off
    #[arg(long)]
    insecure: bool,
    /// Let the cluster's admin key stop the nodes through `quorate stop`, for tests; this command then ends too
    #[arg(long)]
    allow_stop: bool,
    #[command(flatten)]
    settings: Settings,
}

/// A local cluster.
struct LocalCluster {
    cluster: ClusterConfig,
    processes: Processes,
    /// A cluster that has never served: its nodes may get other ports.
    new: Option<Testnet>,
    moves: u32,
}

/// Runs the command until a stop request.
///
/// # Errors
/// Fails when flags conflict with the folder, a node does not start, or all of them have ended.
pub fn run(args: &Args, service: Service) -> Result<(), Failure> {
    let new = if args.dir.join(CLUSTER_FILE).exists() {
        if let Some(option) = args.settings.first() {
            let problem =
                "is for new clusters, and the folder has a cluster; leave it out, or use another --dir";
            return Err(Failure::usage(format!("{option} {problem}")));
        }
        None
    } else {
        let testnet = Testnet::create(&args.dir, &plan(args, service)?)?;
        if let Some(warning) = testnet.warning() {
            eprintln!("warning: {warning}");
        }
        if let Some(delays) = testnet.delays().describe() {
            out::line(delays)?;
        }
        Some(testnet)
    };
    let cluster = check(args)?;
    cluster.check_service(service)?;
    let binary = std::env::current_exe()
        .map_err(|error| Failure::run(format!("cannot find the file of this program: {error}")))?;
    let processes = Processes::new(binary, &args.dir, cluster.ids(), args.insecure);
    let mut up = LocalCluster { cluster, processes, new, moves: 0 };
    up.processes.watch_signals()?;
    up.print(&args.dir)?;
    if up.start()? {
        out::line(crate::processes::READY)?;
        up.watch()?;
    }
    up.processes.stop_all();
    Ok(())
}

fn plan(args: &Args, service: Service) -> Result<Plan, Failure> {
    let entry = args.protocol.or_else(|| quorate_protocols::find("pbft"));
    let entry = entry.ok_or_else(|| Failure::usage("--protocol: expected one"))?;
    let plan = Plan {
        service,
        entry,
        addresses: free_addresses(usize::from(replicas_or_default(args.n, entry)))?,
        client_auth: args.client_auth.unwrap_or_default(),
        links: args.link_auth.unwrap_or_default(),
        durability: args.durability.unwrap_or_default(),
        allow_stop: args.allow_stop,
        settings: args.settings.clone(),
    };
    // The check precedes the creation, so that a later call without the flag makes a safe cluster.
    if plan.is_insecure() && !args.insecure {
        return Err(Failure::usage(
            "client or link authentication or durability would be switched off; leave the flag out, or add --insecure for a benchmark",
        ));
    }
    Ok(plan)
}

/// Reads the configuration of all nodes, and compares it with the flags.
fn check(args: &Args) -> Result<ClusterConfig, Failure> {
    let file = args.dir.join(CLUSTER_FILE);
    let cluster = ClusterConfig::load(&file)?;
    let differs = |flag: &str, wanted: &str, found: &str, file: &Path| {
        let file = file.display();
        Failure::usage(format!(
            "--{flag} {wanted} conflicts with {file}, which has {found}; leave the flag out, or use another --dir"
        ))
    };
    if let Some(n) = args.n.filter(|n| usize::from(*n) != cluster.n()) {
        return Err(differs("n", &n.to_string(), &format!("{} replicas", cluster.n()), &file));
    }
    let protocol = cluster.entry.spec.name;
    if let Some(wanted) = args.protocol.filter(|entry| entry.spec.name != protocol) {
        return Err(differs("protocol", wanted.spec.name.as_str(), protocol.as_str(), &file));
    }
    if let Some(wanted) = args.link_auth.filter(|auth| *auth != cluster.links) {
        return Err(differs("link-auth", wanted.name(), cluster.links.name(), &file));
    }
    let auth = cluster.genesis.client_auth;
    if let Some(wanted) = args.client_auth.filter(|wanted| *wanted != auth) {
        return Err(differs("client-auth", client_auth_name(wanted), client_auth_name(auth), &file));
    }
    for id in cluster.ids() {
        let file = node_file(&args.dir, id);
        let node = NodeConfig::load(&file)?;
        if node.id != id || node.cluster.cluster_id() != cluster.cluster_id() {
            let problem = format!(
                "expected {id} and this folder's cluster.toml; the folder holds nodes of different clusters"
            );
            return Err(node.error("id", problem).into());
        }
        if let Some(wanted) = args.durability.filter(|wanted| *wanted != node.durability) {
            return Err(differs("durability", wanted.name(), node.durability.name(), &file));
        }
        if args.allow_stop && !node.allow_stop {
            return Err(Failure::usage(format!(
                "--allow-stop conflicts with {}, which has allow_stop = false; leave the flag out, or write \
                 allow_stop = true in each node.toml",
                file.display()
            )));
        }
        if let Some(error) = node.insecure().filter(|_| !args.insecure) {
            return Err(error.into());
        }
    }
    Ok(cluster)
}

impl LocalCluster {
    fn print(&self, dir: &Path) -> Result<(), Failure> {
        let (cluster, dir) = (&self.cluster, dir.display());
        let (name, n, f) = (cluster.entry.spec.name, cluster.n(), cluster.genesis.f);
        out::line(format_args!(
            "cluster {}: {name}, {n} replicas, tolerates {f} faulty, in {dir}",
            cluster.cluster_id()
        ))
    }

    /// Starts all nodes and waits until they serve. Returns false after a stop request.
    fn start(&mut self) -> Result<bool, Failure> {
        self.processes.start_all()?;
        let mut is_reported = false;
        let mut deadline = Instant::now().checked_add(PATIENCE);
        while !self.processes.all_ready() {
            match self.processes.next_event(deadline) {
                Some(Event::Ready(id)) => self.print_node(id)?,
                Some(Event::Taken(_, address)) => self.move_away(&address)?,
                Some(Event::Gone(gone)) => {
                    // A node with wrong configuration ends with exit code 2, and so does this command.
                    return Err(if gone.code == Some(2) {
                        Failure::usage(gone.line)
                    } else {
                        Failure::run(gone.line)
                    });
                }
                Some(Event::Stop) => return Ok(false),
                None if !is_reported => {
                    eprintln!("still waiting for {}", self.waiting());
                    (is_reported, deadline) = (true, None);
                }
                None => {}
            }
        }
        Ok(true)
    }

    fn print_node(&self, id: quorate_types::ReplicaId) -> Result<(), Failure> {
        let Some(addresses) = self.cluster.replicas.get(id.index()) else { return Ok(()) };
        let (peers, clients) = (addresses.peers, addresses.clients);
        out::line(format_args!("node {id} serves: peers {peers}, clients {clients}"))
    }

    fn waiting(&self) -> String {
        let waiting = self.processes.ids().into_iter().filter(|id| !self.processes.is_ready(*id));
        let names: Vec<String> = waiting.map(|id| format!("node {id}")).collect();
        names.join(", ")
    }

    /// Gives a cluster that has never served other ports, and starts all nodes again.
    fn move_away(&mut self, address: &str) -> Result<(), Failure> {
        let Some(testnet) = &mut self.new else {
            return Err(Failure::usage(format!(
                "{address} is taken by another program; stop it, or change the address in cluster.toml and node.toml"
            )));
        };
        self.moves = self.moves.saturating_add(1);
        if self.moves > MOVES_MAX {
            return Err(Failure::run(format!(
                "{address} is taken, like the addresses before; this machine has no free ports: stop other programs"
            )));
        }
        self.processes.stop_all();
        testnet.move_to(free_addresses(self.cluster.n())?)?;
        self.cluster = testnet.cluster.clone();
        self.processes.start_all()
    }

    /// Reports nodes that end, until a stop request. The others continue. A node ends with exit code 0 only on request: then
    /// the admin has stopped it.
    fn watch(&mut self) -> Result<(), Failure> {
        let mut is_clean = true;
        while self.processes.running() > 0 {
            match self.processes.next_event(None) {
                Some(Event::Gone(gone)) => {
                    eprintln!("{}", gone.line);
                    is_clean = is_clean && gone.code == Some(0);
                }
                Some(Event::Stop) => return Ok(()),
                Some(Event::Ready(_) | Event::Taken(..)) | None => {}
            }
        }
        if is_clean { Ok(()) } else { Err(Failure::run("no node runs any more")) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::node_folder;
    use crate::processes::tests::program;
    use quorate_types::ReplicaId;
    use std::fs;
    use tempfile::TempDir;

    /// The behaviour of a node: it finds its address in use once for each line in `taken`, then serves.
    const DOES: &str = "cd \"$(dirname \"$3\")\"\n\
        if [ -s taken ]; then sed -i 1d taken; echo taken 127.0.0.1:7; exit 2; fi\n\
        echo ready; [ -p pipe ] || mkfifo pipe; exec cat pipe\n";

    fn up(taken: u32) -> (TempDir, LocalCluster) {
        let folder = tempfile::tempdir().unwrap();
        let dir = folder.path().join("cluster");
        let plan = Plan {
            service: Service::KV,
            entry: quorate_protocols::find("pbft").unwrap(),
            addresses: free_addresses(4).unwrap(),
            client_auth: ClientAuth::Signature,
            links: LinkMode::Tls,
            durability: Durability::Fsync,
            allow_stop: false,
            settings: Settings::default(),
        };
        let testnet = Testnet::create(&dir, &plan).unwrap();
        for id in testnet.cluster.ids() {
            fs::write(node_folder(&dir, id).join("does"), DOES).unwrap();
        }
        let lines = "x\n".repeat(usize::try_from(taken).unwrap());
        fs::write(node_folder(&dir, ReplicaId(2)).join("taken"), lines).unwrap();
        let cluster = testnet.cluster.clone();
        let processes = Processes::new(program(folder.path()), &dir, cluster.ids(), false);
        (folder, LocalCluster { cluster, processes, new: Some(testnet), moves: 0 })
    }

    #[test]
    fn new_cluster_gets_other_ports_if_some_are_taken() {
        let (folder, mut up) = up(2);
        let before = up.cluster.clone();
        assert!(up.start().unwrap());
        assert_eq!((up.moves, up.processes.running()), (2, 4));
        let after = ClusterConfig::load(&folder.path().join("cluster").join(CLUSTER_FILE)).unwrap();
        assert_eq!(after.cluster_id(), before.cluster_id());
        assert_ne!(after.replicas, before.replicas);
        for id in after.ids() {
            let node = NodeConfig::load(&node_file(&folder.path().join("cluster"), id)).unwrap();
            assert_eq!(node.listen_clients, after.replicas[id.index()].clients);
        }
    }

    #[test]
    fn cluster_that_has_served_keeps_its_addresses() {
        let (_folder, mut up) = up(1);
        up.new = None;
        let failure = up.start().unwrap_err();
        assert_eq!(failure.code(), 2);
        assert!(failure.to_string().starts_with("127.0.0.1:7 is taken by another program"), "{failure}");
    }

    #[test]
    fn new_ports_are_chosen_a_limited_number_of_times() {
        let (_folder, mut up) = up(1_000);
        let failure = up.start().unwrap_err();
        assert_eq!((failure.code(), up.moves), (1, MOVES_MAX + 1));
    }
}
