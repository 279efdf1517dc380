//! Compares execution with a model that is too simple to be wrong: lists that are searched from the beginning.

use super::*;

struct ModelSession {
    id: SessionId,
    owner: ClientId,
    nonce: u64,
    executed: BTreeMap<u64, (BundleDigest, Outcome)>,
    last: usize,
}

#[derive(Default)]
struct Model {
    sessions: Vec<ModelSession>,
    /// Operations in the order in which they were applied.
    applied: Vec<(ClientId, Vec<u8>)>,
    steps: usize,
    evicted: Vec<SessionId>,
}

impl Model {
    fn open(&mut self, bundle: &Bundle, id: SessionId, clients_max: usize) -> Outcome {
        let (owner, nonce) = (bundle.client(), bundle.number().0);
        if owner == STRANGER {
            return Outcome::NotRegistered;
        }
        if let Some(open) = self.sessions.iter().find(|s| s.owner == owner && s.nonce == nonce) {
            return Outcome::Opened(open.id);
        }
        if self.sessions.len() == clients_max {
            let oldest = (0..clients_max).min_by_key(|i| self.sessions[*i].last).unwrap();
            self.evicted.push(self.sessions.remove(oldest).id);
        }
        self.steps += 1;
        self.sessions.push(ModelSession { id, owner, nonce, executed: BTreeMap::new(), last: self.steps });
        Outcome::Opened(id)
    }

    fn ask(&mut self, bundle: &Bundle, window: u64) -> Outcome {
        let owned = |s: &&mut ModelSession| s.id == bundle.session() && s.owner == bundle.client();
        let Some(session) = self.sessions.iter_mut().find(owned) else {
            return Outcome::NoSession;
        };
        let number = bundle.number().0;
        if let Some((digest, outcome)) = session.executed.get(&number) {
            return if *digest == bundle.digest() { outcome.clone() } else { Outcome::Superseded };
        }
        let floor = (1..).find(|n| !session.executed.contains_key(n)).unwrap() - 1;
        if number > floor + window {
            return Outcome::OutOfWindow;
        }
        let results: Vec<Vec<u8>> = bundle.requests().map(<[u8]>::to_vec).collect();
        self.applied.extend(results.iter().map(|op| (bundle.client(), op.clone())));
        self.steps += 1;
        session.last = self.steps;
        let outcome = Outcome::Done(results);
        session.executed.insert(number, (bundle.digest(), outcome.clone()));
        outcome
    }
}

fn applied_by(execution: &mut Execution) -> Vec<(ClientId, Vec<u8>)> {
    let log = execution.application.snapshot().chunks().next().unwrap();
    let mut reader = Reader::new(&log);
    let mut applied = Vec::new();
    while !reader.rest().is_empty() {
        let client = reader.bytes("client", 32).unwrap().try_into().unwrap();
        reader.take(16).unwrap();
        applied.push((PublicKey(client), reader.bytes("op", usize::MAX).unwrap().to_vec()));
    }
    applied
}

/// Draws a bundle: one of an honest client, a repeated one, or one of an attacker.
fn any_bundle(rng: &mut Rng, known: &[SessionId], past: &[Bundle]) -> Bundle {
    let client = *rng.pick(&[ALICE, ALICE, BOB, BOB, STRANGER]).unwrap();
    match rng.below(10) {
        0 => open(client, rng.below(5)),
        1..4 if !past.is_empty() => rng.pick(past).unwrap().clone(),
        _ => {
            let session = rng.pick(known).copied().unwrap_or_default();
            let unknown = SessionId { height: Height(9_999), index: 1 };
            let session = if session == SessionId::default() { unknown } else { session };
            let op = format!("op{}", rng.below(3));
            ask(client, session, rng.between(1, 20), &[&op, "second"][..usize::from(rng.chance(300_000)) + 1])
        }
    }
}

fn check(seed: u64) {
    let mut rng = Rng::new(seed);
    let genesis = Genesis {
        clients_max: 1 + u32::try_from(rng.below(5)).unwrap(),
        client_window: 1 + u32::try_from(rng.below(8)).unwrap(),
        ..genesis()
    };
    let mut execution = execution_of(&genesis);
    let mut model = Model::default();
    let (mut known, mut past, mut blocks) = (Vec::new(), Vec::new(), Vec::new());
    let mut evicted = Vec::new();
    for height in 1..=60 {
        let bundles: Vec<Bundle> = (0..rng.below(6)).map(|_| any_bundle(&mut rng, &known, &past)).collect();
        let block = block(Height(height), rng.below(100), bundles);
        let executed = execution.execute(&block);
        let mut expected = Vec::new();
        for (index, bundle) in block.bundles.iter().enumerate() {
            let id = SessionId { height: Height(height), index: u32::try_from(index).unwrap() };
            let outcome = match bundle.kind() {
                BundleKind::Open => model.open(bundle, id, usize::try_from(genesis.clients_max).unwrap()),
                _ => model.ask(bundle, u64::from(genesis.client_window)),
            };
            known.extend(matches!(outcome, Outcome::Opened(_)).then_some(id));
            expected.push(outcome);
        }
        assert_eq!(outcomes(&executed), expected, "seed {seed} height {height}");
        evicted.extend(executed.evicted);
        past.extend(block.bundles.iter().cloned());
        blocks.push(block);
        if rng.chance(100_000) {
            // A restart from a snapshot, after which some blocks come once more.
            let state = execution.digest();
            execution = restored(&genesis, &execution.snapshot());
            for block in &blocks[usize::try_from(height).unwrap().saturating_sub(3)..] {
                assert_eq!(execution.execute(block).fresh(), 0, "seed {seed} height {height}");
            }
            assert_eq!(execution.digest(), state, "seed {seed} height {height}");
        }
    }
    assert_eq!(evicted, model.evicted, "seed {seed}");
    assert_eq!(applied_by(&mut execution), model.applied, "seed {seed}");
    let sessions: BTreeSet<SessionId> = model.sessions.iter().map(|session| session.id).collect();
    assert_eq!(execution.sessions.len(), sessions.len(), "seed {seed}");
    for session in model.sessions {
        let nonce = BundleNo(session.nonce);
        assert_eq!(execution.opened(&session.owner, nonce), Some(session.id), "seed {seed}");
    }
}

#[test]
fn every_bundle_is_executed_once_in_any_order() {
    for seed in 0..400 {
        check(seed);
    }
}
