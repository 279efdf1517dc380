//! Arbitrary, validly signed messages of members, for every registered protocol. Registering a protocol is enough.

use crate::runner::{seed, setting};
use quorate_consensus::parts::certificate::CheckpointProof;
use quorate_consensus::{
    Abstention, AnyProtocol, Entry, Env, LinkEvent, Message, OpenError, Ready, Reject, Seal, Status, Timed,
    Window,
};
use quorate_protocols::{REGISTRY, find};
use quorate_sim::{Oracle, fuzz};
use quorate_types::{BlockId, Committee, Floors, Height, Kind, OrderChain, ReplicaId, Time, View};
use std::collections::BTreeMap;
use std::thread;
use std::time::Instant;

/// Messages of each kind of a protocol. Kinds of the host count over all protocols, because their handlers are the same.
const MESSAGES: u64 = 1_000;
/// A kind that is never received cannot be changed. This factor limits the number of all messages.
const KINDS_MAX: u64 = 40;
/// Messages in one world.
const EACH: u64 = 1_500;
/// One of this many seeds has room for two Byzantine replicas.
const LARGE_EVERY: u64 = 4;

#[test]
fn handlers_survive_random_messages() {
    let messages = setting("QUORATE_FUZZ_MESSAGES").unwrap_or(MESSAGES);
    let of_hosts = thread::scope(|scope| {
        let each = REGISTRY.iter().map(|entry| scope.spawn(move || bears_nonsense(entry, messages)));
        let each: Vec<_> = each.collect();
        let mut of_hosts = BTreeMap::new();
        for kinds in each {
            let kinds: Kinds = kinds.join().unwrap();
            for (kind, count) in kinds.into_iter().filter(|(kind, _)| is_of_hosts(kind)) {
                *of_hosts.entry(kind).or_insert(0) += count;
            }
        }
        of_hosts
    });
    println!("hosts, over all protocols: {of_hosts:?}");
    assert!(of_hosts.values().all(|count| *count * 2 > messages), "{of_hosts:?}");
}

type Kinds = BTreeMap<Kind, u64>;

fn is_of_hosts(kind: &Kind) -> bool {
    kind.as_str().starts_with("host.")
}

fn bears_nonsense(entry: &Entry, messages: u64) -> Kinds {
    let (name, first, start) = (entry.spec.name, seed(), Instant::now());
    let (mut said, mut passed, mut worlds) = (0, 0, 0);
    let (mut kinds, mut refused) = (Kinds::new(), BTreeMap::new());
    let least = |kinds: &Kinds| {
        kinds.iter().filter(|(kind, _)| !is_of_hosts(kind)).map(|(_, count)| *count).min().unwrap_or(0)
    };
    let is_enough = |kinds: &Kinds, said: u64| least(kinds) >= messages || said >= messages * KINDS_MAX;
    while !is_enough(&kinds, said) {
        let (seed, each) = (first.wrapping_add(worlds), EACH);
        let n = seed.is_multiple_of(LARGE_EVERY).then_some(7);
        let report = fuzz::run(entry, n, seed, each).unwrap();
        assert!(
            report.failure.is_none(),
            "{name}: {report}\nagain: QUORATE_FUZZ_SEED={seed} cargo test -p quorate-lab --test fuzz handlers"
        );
        assert!(report.heights > 0, "{name}: {report}");
        said += report.said;
        passed += report.passed;
        worlds += 1;
        report.kinds.into_iter().for_each(|(kind, count)| *kinds.entry(kind).or_insert(0) += count);
        report.refused.into_iter().for_each(|(why, count)| *refused.entry(why).or_insert(0) += count);
        if worlds.is_multiple_of(20) {
            let least = least(&kinds);
            eprintln!("{name}: {least} of {messages} messages of each kind, {said} in all, {worlds} worlds");
        }
    }
    println!(
        "{name}: {said} messages in {worlds} worlds, {passed} reached a handler ({} %), {} ms",
        passed * 100 / said,
        start.elapsed().as_millis()
    );
    println!("{name}: {kinds:?}\n{name}: refused {refused:?}");
    assert!(passed * 2 >= said, "{name}: {passed} of {said} messages reach a handler: at least half have to");
    kinds
}

/// A seed decides the messages and their effects.
#[test]
fn seed_decides_the_random_messages() {
    let run = || fuzz::run(&REGISTRY[0], None, 5, 200).unwrap();
    let (first, second) = (run(), run());
    assert!(first.said >= 200, "{first}");
    assert_eq!(first, second);
}

/// PBFT with a handler that panics on large heights.
struct Fragile(Box<dyn AnyProtocol>);

impl Fragile {
    fn open(
        env: &mut Env<'_>,
        params: &toml::Table,
        past: quorate_consensus::Past<Vec<u8>>,
    ) -> Result<Box<dyn AnyProtocol>, OpenError> {
        Ok(Box::new(Self((find("pbft").unwrap().open)(env, params, past)?)))
    }
}

impl AnyProtocol for Fragile {
    fn on_message(
        &mut self,
        env: &mut Env<'_>,
        link: ReplicaId,
        seal: Seal,
        message: Box<dyn Message>,
    ) -> Result<(), Reject> {
        let statement = message.auth().statement();
        assert!(statement.is_none_or(|said| said.height <= self.0.status().committed.plus(9)), "on purpose");
        self.0.on_message(env, link, seal, message)
    }
    fn fire(&mut self, env: &mut Env<'_>, due: Time) -> bool {
        self.0.fire(env, due)
    }
    fn on_ready(&mut self, env: &mut Env<'_>, block: BlockId, how: Ready) {
        self.0.on_ready(env, block, how);
    }
    fn on_pending(&mut self, env: &mut Env<'_>) {
        self.0.on_pending(env);
    }
    fn on_executed(&mut self, env: &mut Env<'_>, height: Height, fresh: u32) {
        self.0.on_executed(env, height, fresh);
    }
    fn on_decided(&mut self, env: &mut Env<'_>, height: Height, block: BlockId) {
        self.0.on_decided(env, height, block);
    }
    fn on_checkpoint(&mut self, env: &mut Env<'_>, stable: &CheckpointProof) {
        self.0.on_checkpoint(env, stable);
    }
    fn on_link(&mut self, env: &mut Env<'_>, peer: ReplicaId, what: LinkEvent) {
        self.0.on_link(env, peer, what);
    }
    fn on_sound(&mut self, env: &mut Env<'_>) {
        self.0.on_sound(env);
    }
    fn show(&mut self, env: &mut Env<'_>, peer: ReplicaId) {
        self.0.show(env, peer);
    }
    fn proven_view(&self) -> View {
        self.0.proven_view()
    }
    fn shown_floors(&self) -> Vec<(Kind, View)> {
        self.0.shown_floors()
    }
    fn leave_view(&mut self, env: &mut Env<'_>) {
        self.0.leave_view(env);
    }
    fn abstain(&mut self, env: &mut Env<'_>) -> Abstention {
        self.0.abstain(env)
    }
    fn remember(&mut self, env: &mut Env<'_>) -> bool {
        self.0.remember(env)
    }
    fn deadline(&self) -> Option<Time> {
        self.0.deadline()
    }
    fn timers(&self) -> Vec<Timed> {
        self.0.timers()
    }
    fn window(&self) -> Window {
        self.0.window()
    }
    fn floors(&self) -> Floors {
        self.0.floors()
    }
    fn status(&self) -> Status {
        self.0.status()
    }
    fn order_chain(&self, committee: &Committee, block: BlockId) -> Option<OrderChain> {
        self.0.order_chain(committee, block)
    }
}

/// A handler that panics on a random message is found, and the last message is shown.
#[test]
fn handler_that_panics_is_found() {
    let entry = Entry { open: Fragile::open, ..*find("pbft").unwrap() };
    let report = fuzz::run(&entry, None, 1, 3_000).unwrap();
    let failure = report.failure.as_ref().expect("it was not found");
    assert_eq!((failure.oracle, failure.what.as_str()), (Oracle::Panic, "on purpose"), "{report}");
    assert!(report.said < 3_000 && !report.last.is_empty(), "{report}");
}
