//! The door of a replica, and a run of its protocol that shows messages with proofs.

use super::more::more;
use super::rebind::rebind;
use quorate_consensus::{Certificate, Claim, Claims, Entry, Message};
use quorate_crypto::Scheme;
use quorate_replica::{
    Admission, Admit, FrameSource, Input, Intake, Passed, Replica, ReplicaSetup, RestoredLog,
};
use quorate_sim::{Byzantine, Settings, Survives, Verdict, Workload, World, ms};
use quorate_types::wire::frame;
use quorate_types::{Bundle, Committee, Digest, Domain, Kind, ReplicaId, Signature, Statement};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

/// Number of messages of each shape that are damaged.
const EACH_MAX: usize = 2;
/// Rounds of signing after which every signature inside of a signed message is right.
const ROUNDS_MAX: usize = 4;
/// Bytes of a signature.
const SIGNATURE_BYTES: usize = 64;

/// A message from a run.
#[derive(Clone)]
pub(super) struct Seen {
    pub(super) from: ReplicaId,
    pub(super) kind: Kind,
    pub(super) body: Vec<u8>,
}

/// A replica at whose door the messages of the run are heard again.
pub(super) struct Door {
    pub(super) entry: &'static Entry,
    pub(super) committee: Arc<Committee>,
    pub(super) seen: Vec<Seen>,
    world: World,
    replica: Replica,
    intake: Intake,
}

/// Attacks that make honest replicas show evidence. Each protocol has one of them at most.
const EQUIVOCATIONS: [&str; 2] = ["two halves", "equivocate"];

/// Returns a number of replicas for which f + 1, the quorum, n - f and n are different numbers, and q_R as well.
fn size(entry: &Entry) -> usize {
    if entry.spec.name.as_str() == "optsync" { 8 } else { 6 }
}

impl Door {
    pub(super) fn of(entry: &'static Entry) -> Self {
        let mut settings = Settings::new(entry, 7).with_n(size(entry));
        settings.checkpoint_every = 4;
        settings.window = 8;
        let equivocation = EQUIVOCATIONS
            .iter()
            .find_map(|name| entry.attacks.iter().position(|attack| attack.name == *name));
        settings.entry.attacks = equivocation.map_or(&[], |at| &entry.attacks[at..=at]);
        let mut world = World::new(settings).unwrap();
        let seen = run(entry, &mut world);
        let genesis = world.genesis().clone();
        let committee = Arc::new(genesis.committee());
        let setup = ReplicaSetup {
            me: ReplicaId(0),
            committee: Arc::clone(&committee),
            params: genesis.params.parse().unwrap(),
            genesis: Arc::new(genesis),
            wall_offset_ns: 1,
            secret: Digest([7; 32]),
        };
        let replica = Replica::open(entry, setup, RestoredLog::default()).unwrap();
        let mut intake = replica.intake(Scheme::Cheap);
        // The world signs for all replicas.
        intake.ignore_own_statements();
        let mut door = Self { entry, committee, seen, world, replica, intake };
        let more = more(&door);
        door.seen.extend(more);
        door
    }

    /// Returns a message of a replica, signed where it is.
    pub(super) fn said(&self, from: ReplicaId, message: &dyn Message) -> Seen {
        Seen { from, kind: message.kind(), body: self.world.seal(from, message).to_vec() }
    }

    /// Hears a message. Returns the reason for which the intake refuses it.
    pub(super) fn hears(&mut self, from: ReplicaId, body: &[u8]) -> Option<&'static str> {
        let mut passed = Passed::default();
        self.intake.peer_frame(from, frame::PROTOCOL, body);
        while !self.intake.is_drained() {
            self.intake.run(&self.replica, &Nobody, &mut || true, &mut || 0, &mut passed);
        }
        self.intake.run(&self.replica, &Nobody, &mut || true, &mut || 0, &mut passed);
        match (&*passed.inputs, &*passed.refused) {
            ([Input::Peer(_)], []) => None,
            ([], [refused]) if matches!(refused.source, FrameSource::Peer(_)) => Some(refused.reason),
            other => panic!("{other:?}"),
        }
    }

    pub(super) fn sign(&self, by: ReplicaId, statement: &Statement) -> Signature {
        self.world.sign(by, statement)
    }

    pub(super) fn sign_in(&self, by: ReplicaId, domain: &Domain, statement: &Statement) -> Signature {
        self.world.sign_in(by, domain, statement)
    }

    /// Returns the certificate that these replicas have signed.
    pub(super) fn certificate(
        &self,
        statement: Statement,
        by: impl Iterator<Item = ReplicaId>,
    ) -> Certificate {
        let votes: Vec<_> = by.map(|by| (by, self.sign(by, &statement))).collect();
        Certificate::of(statement, &votes)
    }

    pub(super) fn claims(&self, body: &[u8]) -> Result<Vec<Claim>, &'static str> {
        claims_of(self.entry, &self.committee, &*self.message(body))
    }

    fn message(&self, body: &[u8]) -> Box<dyn Message> {
        self.entry.decode_frame(body).unwrap().0
    }

    /// Puts other bytes at a place of a message. Binds and signs again whatever follows from them.
    pub(super) fn with(&self, seen: &Seen, at: usize, old: usize, new: &[u8]) -> Vec<u8> {
        let mut body = seen.body[..at].to_vec();
        body.extend(new);
        body.extend(&seen.body[at + old..]);
        let mut body = rebind(self.entry, body);
        for _ in 0..ROUNDS_MAX {
            let Ok(claims) = self.claims(&body) else { break };
            for claim in claims {
                if let Claim::Signature { by, statement, signature } = claim {
                    replace(&mut body, &signature.0, &self.sign(by, &statement).0);
                }
            }
        }
        self.seal(seen.from, &mut body);
        body
    }

    /// Signs a message anew.
    pub(super) fn seal(&self, by: ReplicaId, body: &mut Vec<u8>) {
        let auth = self.message(body).auth();
        if let (true, Some(statement)) = (auth.is_signed(), auth.statement()) {
            body.truncate(body.len() - SIGNATURE_BYTES);
            body.extend(self.sign(by, &statement).0);
        }
    }
}

struct Nobody;

impl Admit for Nobody {
    fn admit(&self, _: &Bundle) -> Admission {
        panic!("no bundle is heard");
    }
}

/// Returns the claims of a message.
fn claims_of(
    entry: &Entry,
    committee: &Committee,
    message: &dyn Message,
) -> Result<Vec<Claim>, &'static str> {
    let quorum = (entry.spec.checkpoint_quorum)(committee.n(), committee.f);
    let mut claims = Claims::new(committee, quorum);
    message.claims(&mut claims);
    claims.finish()
}

/// Returns all places of some bytes.
pub(super) fn places<'a>(body: &'a [u8], bytes: &'a [u8]) -> impl Iterator<Item = usize> + 'a {
    body.windows(bytes.len()).enumerate().filter(move |(_, window)| *window == bytes).map(|(at, _)| at)
}

fn replace(body: &mut [u8], old: &[u8], new: &[u8]) {
    let all: Vec<usize> = if old == new { Vec::new() } else { places(body, old).collect() };
    all.into_iter().for_each(|at| body[at..at + new.len()].copy_from_slice(new));
}

type Shapes = BTreeMap<(Kind, Vec<String>), Vec<Seen>>;

/// Runs a world whose leaders crash and recover, and one equivocates at the end. Returns messages of honest replicas with
/// claims, a few of each shape.
fn run(entry: &'static Entry, world: &mut World) -> Vec<Seen> {
    let committee = world.genesis().committee();
    let shapes: Rc<RefCell<Shapes>> = Rc::default();
    let liar: Rc<Cell<Option<ReplicaId>>> = Rc::default();
    let (ear, liars) = (Rc::clone(&shapes), Rc::clone(&liar));
    world.hook(move |_, frame| {
        if frame.frame_type == frame::PROTOCOL && Some(frame.from) != liars.get() {
            let (message, _) = entry.decode_frame(&frame.body).unwrap();
            let shape = shape(&claims_of(entry, &committee, &*message).unwrap());
            let kind = frame.content.kind;
            let seen = Seen { from: frame.from, kind, body: frame.body.to_vec() };
            let mut shapes = ear.borrow_mut();
            if !shape.is_empty() {
                let kept = shapes.entry((kind, shape)).or_default();
                if kept.len() < EACH_MAX && kept.iter().all(|kept| kept.body != seen.body) {
                    kept.push(seen);
                }
            }
        }
        Verdict::Pass
    });
    let workload =
        Workload { operations: 90, pause_ns: ms(20), together_max: 3, outstanding_max: 2, keys: 3 };
    world.load_all(workload);
    world.run_for(ms(500)).unwrap();
    for _ in 0..2 * usize::from(entry.spec.replaces_leader) {
        let leader = world.leader().unwrap_or(ReplicaId(0));
        world.crash(leader, Survives::Everything);
        world.run_for(ms(1_200)).unwrap();
        world.start(leader).unwrap();
        world.run_for(ms(600)).unwrap();
    }
    if !world.settings().entry.attacks.is_empty() {
        liar.set(world.leader());
        world.corrupt_now(liar.get().unwrap(), Byzantine::Own);
        world.run_for(ms(1_000)).unwrap();
    }
    world.unhook();
    shapes.take().into_values().flatten().collect()
}

/// Returns the statements that a message claims, each once.
fn shape(claims: &[Claim]) -> Vec<String> {
    let mut shape: Vec<String> = claims
        .iter()
        .map(|claim| match claim {
            Claim::Signature { statement, .. } => format!("signature of {}", statement.kind),
            Claim::Certificate(certificate) => format!("certificate of {}", certificate.statement.kind),
        })
        .collect();
    shape.sort_unstable();
    shape.dedup();
    shape
}
