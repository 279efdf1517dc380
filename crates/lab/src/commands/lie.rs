//! `quorate lie`: a Byzantine replica of a real cluster, under any protocol.

use clap::Args;
use quorate_node::commands::node;
use quorate_node::config::{NodeConfig, NodeKeys, choice};
use quorate_node::disguise::Disguise;
use quorate_node::exit::Failure;
use quorate_node::runtime::NodeClock;
use quorate_node::service::Service;
use quorate_sim::{Bytes, Byzantine, Liar};
use quorate_types::{FrameBody, ReplicaId};

/// Arguments of `quorate lie`.
#[derive(Args, Debug)]
pub struct LieArgs {
    #[command(flatten)]
    node: node::Args,
    /// The way in which it lies; `quorate sim --faults` explains each
    #[arg(long, default_value = "own", value_parser = choice(hosts()))]
    host: Byzantine,
    /// Seed of its lies
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// Returns the hosts that exist on a real network, with their names.
pub(crate) fn hosts() -> Vec<(&'static str, Byzantine)> {
    Liar::HOSTS.iter().map(|host| (host.name(), *host)).collect()
}

/// A liar with the clock of its node.
struct Disguised {
    liar: Liar,
    clock: NodeClock,
    /// Buffer of frames.
    frames: Vec<(u8, Bytes)>,
}

impl Disguise for Disguised {
    fn says(&mut self, to: ReplicaId, frame_type: u8, body: &FrameBody, out: &mut Vec<(u8, FrameBody)>) {
        self.liar.says(self.clock.now(), to, (frame_type, &body.to_bytes()), &mut self.frames);
        out.extend(self.frames.drain(..).map(|(frame_type, body)| (frame_type, FrameBody::from(body))));
    }

    fn hears(&mut self, frame_type: u8, body: &[u8]) {
        self.liar.hears(frame_type, body);
    }
}

impl Drop for Disguised {
    fn drop(&mut self) {
        tracing::info!("{} frames were lies", self.liar.lies());
    }
}

/// Runs a replica that lies, until a stop request.
///
/// # Errors
/// Fails as `quorate node` does.
pub fn run(args: &LieArgs, service: Service) -> Result<(), Failure> {
    node::run_liar(&args.node, service, &|config: &NodeConfig, keys: &NodeKeys| {
        tracing::warn!("this replica is Byzantine on purpose: {}, seed {}", args.host, args.seed);
        let committee = config.genesis().committee();
        let of_protocol = (config.cluster.entry, &committee);
        let liar = Liar::new(args.host, args.seed, of_protocol, (config.id, keys.replica.clone()));
        Box::new(Disguised { liar, clock: NodeClock::default(), frames: Vec::new() })
    })
}
