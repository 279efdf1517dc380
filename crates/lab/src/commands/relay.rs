//! `quorate relay`: the relay test of the network. A leader broadcasts some bytes, every node sends them back, and the next
//! round begins when all have answered. Each node is a process of its own on loopback.

mod nodes;

use clap::Args;
use clap::builder::RangedU64ValueParser;
use nodes::{Leader, Setup, follow};
use quorate_client::cluster::LinkMode;
use quorate_node::config::{choice, parse_replicas};
use quorate_node::exit::Failure;
use quorate_node::out;
use quorate_node::ports::free;
use serde::Serialize;
use std::io::Read as _;
use std::net::{Ipv4Addr, SocketAddr};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Equal parts of the run. The median of their times counts.
const PARTS: u32 = 10;

/// Arguments of `quorate relay`.
#[derive(Args, Debug)]
pub struct RelayArgs {
    /// Number of nodes, the leader included
    #[arg(long, default_value_t = 20, value_parser = parse_replicas::<u16>)]
    n: u16,
    /// Number of rounds
    #[arg(long, default_value_t = 20_000, value_parser = clap::value_parser!(u32).range(i64::from(PARTS)..))]
    rounds: u32,
    /// Bytes of a message
    #[arg(long, default_value_t = 500, value_parser = RangedU64ValueParser::<usize>::new().range(1..=BYTES_MAX))]
    bytes: usize,
    /// Protection of connections
    #[arg(long, default_value = "tls", value_parser = choice(LinkMode::NAMES.to_vec()))]
    link_auth: LinkMode,
    /// The same as `--link-auth plain`
    #[arg(long, conflicts_with = "link_auth")]
    plain: bool,
    /// Use the channels of the mesh, with a thread of their own in each process, instead of the reactor inside the loop
    #[arg(long)]
    mesh: bool,
    /// Print one JSON object instead of a line of text
    #[arg(long)]
    json: bool,
    /// The id of this process, in the processes that the leader starts
    #[arg(long, hide = true, requires = "addresses")]
    node: Option<u16>,
    /// The addresses of all nodes, by id
    #[arg(long, hide = true, value_delimiter = ',')]
    addresses: Vec<SocketAddr>,
}

/// The greatest message. It fits a frame of every lane.
const BYTES_MAX: u64 = 64 << 10;

/// The result of a relay test.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct RelayFigures {
    /// Nodes, the leader included.
    pub n: u16,
    /// Rounds.
    pub rounds: u32,
    /// Bytes of a message.
    pub bytes: usize,
    /// Protection of connections: `tls` or `plain`.
    pub link_auth: &'static str,
    /// The driver of the network: `reactor` or `mesh`.
    pub driver: &'static str,
    /// Microseconds of a round: the median of ten parts of the run.
    pub round_us: f64,
    /// Microseconds of a round in the fastest part.
    pub round_min_us: f64,
    /// Microseconds of a round in the slowest part.
    pub round_max_us: f64,
    /// The leader's system calls in a round; `None` for a mesh, whose thread keeps its own counts.
    #[serde(flatten)]
    pub calls: Option<CallsPerRound>,
}

/// The leader's system calls in a round.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct CallsPerRound {
    /// Reads.
    pub reads_per_round: f64,
    /// Writes.
    pub writes_per_round: f64,
    /// Returns from the poll.
    pub wake_ups_per_round: f64,
}

/// Runs the test, or one of its nodes.
///
/// # Errors
/// Fails when the system gives no processes or ports, or when a node does not answer in time.
pub fn run(args: &RelayArgs) -> Result<(), Failure> {
    let link_auth = if args.plain { LinkMode::Plain } else { args.link_auth };
    let setup = Setup { link_auth, by_mesh: args.mesh };
    if let Some(me) = args.node {
        // The leader holds the other end: this process ends with it.
        std::thread::spawn(|| {
            let _ = std::io::stdin().read(&mut [0]);
            std::process::exit(0);
        });
        return follow(setup, me, &args.addresses);
    }
    if args.n < 2 {
        return Err(Failure::usage("--n 1: expected a leader and at least one other node"));
    }
    let figures = lead(args, setup)?;
    if args.json { out::json(&figures) } else { out::line(text(&figures)) }
}

/// Processes that end when this value is dropped.
struct Followers(Vec<Child>);

impl Drop for Followers {
    fn drop(&mut self) {
        for child in &mut self.0 {
            // A process that has ended already needs no signal.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn lead(args: &RelayArgs, setup: Setup) -> Result<RelayFigures, Failure> {
    let ports = free(usize::from(args.n)).map_err(Failure::run)?;
    let addresses: Vec<SocketAddr> =
        ports.into_iter().map(|port| SocketAddr::from((Ipv4Addr::LOCALHOST, port))).collect();
    let _followers = start(args, setup, &addresses)?;
    let mut leader = Leader::connect(setup, &addresses, args.bytes)?;
    let rounds = args.rounds / PARTS;
    let mut parts = Vec::new();
    for _ in 0..PARTS {
        parts.push(leader.rounds(rounds)?);
    }
    parts.sort();
    let per_round = |part: Option<&Duration>| {
        part.map_or(0.0, |part| part.as_secs_f64() * 1e6 / f64::from(rounds.max(1)))
    };
    let all = f64::from(rounds.saturating_mul(PARTS).max(1));
    Ok(RelayFigures {
        n: args.n,
        rounds: rounds.saturating_mul(PARTS),
        bytes: args.bytes,
        link_auth: setup.link_auth.name(),
        driver: if setup.by_mesh { "mesh" } else { "reactor" },
        round_us: per_round(parts.get(parts.len() / 2)),
        round_min_us: per_round(parts.first()),
        round_max_us: per_round(parts.last()),
        calls: leader.calls().map(|calls| CallsPerRound {
            reads_per_round: calls.reads / all,
            writes_per_round: calls.writes / all,
            wake_ups_per_round: calls.wake_ups / all,
        }),
    })
}

fn start(args: &RelayArgs, setup: Setup, addresses: &[SocketAddr]) -> Result<Followers, Failure> {
    let list: Vec<String> = addresses.iter().map(SocketAddr::to_string).collect();
    let exe = std::env::current_exe().map_err(Failure::run)?;
    let mut followers = Followers(Vec::new());
    for id in 1..args.n {
        let mut command = Command::new(&exe);
        command.args(["relay", "--node", &id.to_string(), "--addresses", &list.join(",")]);
        command.args(["--link-auth", setup.link_auth.name()]);
        command.args(setup.by_mesh.then_some("--mesh"));
        let child = command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn();
        let failed = |error| Failure::run(format!("cannot start node {id} of {}: {error}", args.n));
        followers.0.push(child.map_err(failed)?);
    }
    Ok(followers)
}

fn text(figures: &RelayFigures) -> String {
    let calls = figures.calls.map_or_else(String::new, |calls| {
        format!(
            "; leader, per round: {:.1} reads, {:.1} writes, {:.1} wake-ups",
            calls.reads_per_round, calls.writes_per_round, calls.wake_ups_per_round
        )
    });
    format!(
        "n = {}, {} bytes, {}, {}: {:.1} us per round (best part {:.1}, worst {:.1}){calls}",
        figures.n,
        figures.bytes,
        figures.link_auth,
        figures.driver,
        figures.round_us,
        figures.round_min_us,
        figures.round_max_us
    )
}
