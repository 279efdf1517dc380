use super::*;
use crate::kv::{Kv, KvOp, KvResult};
use quorate_types::bundle::BundleBuilder;
use quorate_types::codec::put_bytes;
use quorate_types::limits::{KEPT_SESSION_BYTES_MIN, REGISTER_KEYS_MAX, SESSIONS_PER_CLIENT_MAX};
use quorate_types::rng::Rng;
use quorate_types::{
    Authenticator, Block, BlockId, BodyLimits, BundleDigest, ClientAuth, PayloadId, ProtocolId, Reader,
    ReplicaId, ReplyBundle, View, Wire,
};
use std::collections::{BTreeMap, BTreeSet};

mod model;
mod panics;

const ADMIN: ClientId = PublicKey([99; 32]);
const ALICE: ClientId = PublicKey([1; 32]);
const BOB: ClientId = PublicKey([2; 32]);
const STRANGER: ClientId = PublicKey([3; 32]);

/// An application that records all operations in order. The result of an operation `N bytes` has N bytes. Any other
/// operation returns its own bytes.
#[derive(Default)]
struct Recorder {
    log: Vec<u8>,
}

impl crate::snapshot::Chunk for Vec<u8> {
    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self);
    }
}

impl Application for Recorder {
    fn name(&self) -> &'static str {
        "recorder"
    }
    fn version(&self) -> u32 {
        3
    }
    fn apply(&mut self, at: &At, op: &[u8], reply: &mut Vec<u8>) {
        put_bytes(&mut self.log, &at.client.0);
        self.log.extend_from_slice(&at.height.0.to_le_bytes());
        self.log.extend_from_slice(&at.time_ns.to_le_bytes());
        put_bytes(&mut self.log, op);
        let text = std::str::from_utf8(op).unwrap_or_default();
        match text.strip_suffix(" bytes").and_then(|n| n.parse::<usize>().ok()) {
            Some(bytes) => reply.resize(reply.len() + bytes, 7),
            None => reply.extend_from_slice(op),
        }
    }
    fn query(&self, _op: &[u8], room: usize, reply: &mut Vec<u8>) {
        reply.extend_from_slice(format!("{room}").as_bytes());
    }
    fn snapshot(&mut self) -> Snapshot {
        let mut snapshot = Snapshot::new(vec![5]);
        snapshot.add(Arc::new(self.log.clone()));
        snapshot
    }
    fn restore(
        &mut self,
        header: &[u8],
        chunks: &mut dyn Iterator<Item = Vec<u8>>,
    ) -> Result<(), RestoreError> {
        assert_eq!(header, [5]);
        self.log = chunks.next().ok_or(RestoreError::Missing)?;
        Ok(())
    }
}

fn genesis() -> Genesis {
    Genesis {
        protocol: ProtocolId::new("pbft"),
        f: 1,
        members: vec![],
        client_auth: ClientAuth::None,
        bodies: BodyLimits { reply_bytes_max: 1_000, ..BodyLimits::default() },
        client_window: 10,
        clients_max: 3,
        checkpoint_every: 4,
        window: 8,
        application: "recorder 3".to_owned(),
        admin: ADMIN,
        clients: vec![ALICE, BOB],
        params: String::new(),
        salt: [0; 32],
        base: None,
    }
}

fn execution_of(genesis: &Genesis) -> Execution {
    Execution::new(genesis, Box::new(Recorder::default())).unwrap()
}

fn bundle(kind: BundleKind, client: ClientId, session: SessionId, number: u64, requests: &[&[u8]]) -> Bundle {
    let mut builder = BundleBuilder::new(kind, client, session, BundleNo(number));
    for request in requests {
        builder.push(request);
    }
    Bundle::parse(&builder.finish(), Authenticator::None, &BodyLimits::default()).unwrap()
}

fn open(client: ClientId, nonce: u64) -> Bundle {
    bundle(BundleKind::Open, client, SessionId::default(), nonce, &[])
}

fn ask(client: ClientId, session: SessionId, number: u64, requests: &[&str]) -> Bundle {
    let requests: Vec<&[u8]> = requests.iter().map(|request| request.as_bytes()).collect();
    bundle(BundleKind::Requests, client, session, number, &requests)
}

fn block(height: Height, time_ns: u64, bundles: Vec<Bundle>) -> FullBlock {
    let block = Block {
        parent: BlockId::ZERO,
        height,
        view: View(0),
        proposer: ReplicaId(0),
        time_ns,
        payload: PayloadId::ZERO,
        extra: Digest::ZERO,
    };
    FullBlock { height, id: block.id(), block: Some(block), bundles }
}

/// Executes the next block. Its time is one millisecond later.
fn next(execution: &mut Execution, bundles: &[&Bundle]) -> Executed {
    let height = execution.height.next();
    let bundles = bundles.iter().map(|bundle| (*bundle).clone()).collect();
    execution.execute(&block(height, 1_000_000 * height.0, bundles))
}

fn outcomes(executed: &Executed) -> Vec<Outcome> {
    let decode = |bundle: &ExecutedBundle| {
        assert_eq!(bundle.result, ReplyBundle::result_digest(&bundle.outcome));
        Outcome::from_bytes(&bundle.outcome).unwrap()
    };
    executed.bundles.iter().map(decode).collect()
}

fn run(execution: &mut Execution, bundle: &Bundle) -> Outcome {
    let executed = next(execution, &[bundle]);
    assert_eq!(executed.bundles[0].bundle, bundle.digest());
    outcomes(&executed).remove(0)
}

fn session_of(execution: &mut Execution, client: ClientId, nonce: u64) -> SessionId {
    match run(execution, &open(client, nonce)) {
        Outcome::Opened(session) => session,
        other => panic!("{other:?}"),
    }
}

fn done(results: &[&str]) -> Outcome {
    Outcome::Done(results.iter().map(|result| result.as_bytes().to_vec()).collect())
}

fn restored(genesis: &Genesis, snapshot: &Snapshot) -> Execution {
    let mut execution = execution_of(genesis);
    execution.restore(snapshot.header(), &mut snapshot.chunks()).unwrap();
    execution
}

#[test]
fn first_bundle_of_a_number_is_executed_once() {
    let execution = &mut execution_of(&genesis());
    let session = session_of(execution, ALICE, 5);
    let first = ask(ALICE, session, 1, &["a", ""]);
    let executed = next(execution, &[&first]);
    assert_eq!((outcomes(&executed), executed.fresh()), (vec![done(&["a", ""])], 2));
    let state = execution.application.digest();
    let again = next(execution, &[&first, &first]);
    assert_eq!((outcomes(&again), again.fresh()), (vec![done(&["a", ""]); 2], 0));
    assert_eq!(run(execution, &ask(ALICE, session, 1, &["b"])), Outcome::Superseded);
    assert_eq!(execution.application.digest(), state);
}

#[test]
fn only_the_owner_uses_a_session() {
    let execution = &mut execution_of(&genesis());
    let session = session_of(execution, ALICE, 5);
    let state = execution.application.digest();
    assert_eq!(run(execution, &ask(BOB, session, 1, &["b"])), Outcome::NoSession);
    let elsewhere = SessionId { height: Height(77), index: 0 };
    assert_eq!(run(execution, &ask(ALICE, elsewhere, 1, &["a"])), Outcome::NoSession);
    assert_eq!(run(execution, &open(STRANGER, 1)), Outcome::NotRegistered);
    assert_eq!(execution.application.digest(), state);
    assert_eq!(execution.opened(&STRANGER, BundleNo(1)), None);
    assert!(!execution.executed(session, BundleNo(1)), "another client's bundle has used up the number");
}

#[test]
fn nonce_opens_one_session() {
    let execution = &mut execution_of(&genesis());
    let executed = next(execution, &[&open(ALICE, 5), &open(BOB, 5), &open(ALICE, 5), &open(ALICE, 6)]);
    let id = |index| SessionId { height: Height(1), index };
    let expected = [0, 1, 0, 3].map(|index| Outcome::Opened(id(index)));
    assert_eq!(outcomes(&executed), expected);
    assert_eq!(executed.bundles.iter().map(|bundle| bundle.applied).collect::<Vec<_>>(), [1, 1, 0, 1]);
    assert_eq!(execution.opened(&ALICE, BundleNo(6)), Some(id(3)));
    assert_eq!(run(execution, &open(BOB, 5)), Outcome::Opened(id(1)));
}

#[test]
fn number_beyond_the_window_is_refused() {
    let execution = &mut execution_of(&genesis());
    let session = session_of(execution, ALICE, 5);
    let mut ask = |number| run(execution, &ask(ALICE, session, number, &["x"]));
    assert_eq!(ask(11), Outcome::OutOfWindow);
    assert_eq!(ask(10), done(&["x"]), "the last number of the window");
    assert_eq!(ask(11), Outcome::OutOfWindow, "the floor has passed a gap");
    assert_eq!(ask(u64::MAX), Outcome::OutOfWindow);
    for number in [2, 1] {
        assert_eq!(ask(number), done(&["x"]));
    }
    assert_eq!(ask(12), done(&["x"]), "the window moves by two after 1 and 2");
    assert_eq!(ask(13), Outcome::OutOfWindow);
    let view = execution.session(session).unwrap();
    assert_eq!((view.owner, view.floor, view.ceiling), (ALICE, BundleNo(2), BundleNo(12)));
}

#[test]
fn least_recently_executed_session_is_evicted_first() {
    let execution = &mut execution_of(&genesis());
    let a = session_of(execution, ALICE, 1);
    let b = session_of(execution, BOB, 1);
    let c = session_of(execution, ALICE, 2);
    run(execution, &ask(ALICE, a, 1, &["x"]));
    // A duplicate executes nothing, so it does not make a session younger. The same nonce again does not either.
    run(execution, &open(BOB, 1));
    let executed = next(execution, &[&open(BOB, 2), &ask(BOB, b, 1, &["x"]), &ask(ALICE, c, 1, &["x"])]);
    assert_eq!(executed.evicted, [b]);
    assert_eq!(outcomes(&executed)[1..], [Outcome::NoSession, done(&["x"])]);
    assert_eq!(execution.opened(&BOB, BundleNo(1)), None);
    let executed = next(execution, &[&open(BOB, 3), &open(BOB, 4)]);
    assert_eq!(executed.evicted.first(), Some(&a));
    assert_eq!(executed.evicted.len(), 2);
    assert!(execution.session(c).is_some(), "the most recently executed session was evicted");
}

#[test]
fn client_with_too_many_sessions_evicts_its_own() {
    let execution = &mut execution_of(&Genesis { clients_max: 10_000, ..genesis() });
    let bobs = session_of(execution, BOB, 1);
    let first = session_of(execution, ALICE, 1);
    let second = session_of(execution, ALICE, 2);
    run(execution, &ask(ALICE, first, 1, &["x"]));
    let mut evicted = Vec::new();
    for nonce in 3..u64::try_from(SESSIONS_PER_CLIENT_MAX).unwrap() + 3 {
        evicted.extend(next(execution, &[&open(ALICE, nonce)]).evicted);
    }
    assert_eq!(evicted[..1], [second], "the client's least recently executed session goes first");
    assert_eq!(evicted.len(), 2);
    assert!(execution.session(bobs).is_some());
}

#[test]
fn only_the_admin_registers_keys() {
    let execution = &mut execution_of(&genesis());
    let admin = session_of(execution, ADMIN, 1);
    let alice = session_of(execution, ALICE, 1);
    let register =
        |client, session, number, keys: &[&[u8]]| bundle(BundleKind::Register, client, session, number, keys);
    let theft = register(ALICE, alice, 1, &[&STRANGER.0]);
    assert_eq!(run(execution, &theft), Outcome::NotAllowed);
    assert!(!execution.registered(&STRANGER));
    let order = register(ADMIN, admin, 1, &[&STRANGER.0, &ALICE.0, &STRANGER.0]);
    let executed = next(execution, &[&order, &open(STRANGER, 1), &order]);
    let outcomes = outcomes(&executed);
    assert_eq!(outcomes[0], Outcome::Registered(1), "one of the three keys is new");
    assert!(matches!(outcomes[1], Outcome::Opened(_)), "the new client may open a session at once");
    assert_eq!(outcomes[2], outcomes[0], "a duplicate has the same outcome");
    assert_eq!(executed.fresh(), 3 + 1);
    assert_eq!(run(execution, &ask(ALICE, alice, 1, &["x"])), Outcome::Superseded, "the number is used up");
}

#[test]
fn number_of_registered_keys_is_bounded() {
    let mut sessions = Sessions::new(1, 1);
    let keys = |from: u32, count: usize| -> Vec<ClientId> {
        let key = |i: usize| {
            let mut key = [0; 32];
            key[..4].copy_from_slice(&(from + u32::try_from(i).unwrap()).to_le_bytes());
            PublicKey(key)
        };
        (0..count).map(key).collect()
    };
    let max = quorate_types::limits::KEYS_MAX;
    assert_eq!(sessions.register(&keys(0, max - 1)), Some(u32::try_from(max).unwrap() - 1));
    assert_eq!(sessions.register(&keys(1 << 24, 2)), None, "there is no room for both keys");
    assert_eq!(sessions.register(&keys(0, REGISTER_KEYS_MAX)), Some(0), "registered keys need no room");
    assert_eq!(sessions.register(&keys(1 << 24, 1)), Some(1));
    assert_eq!(sessions.register(&keys(1 << 25, 1)), None);
}

#[test]
fn bundle_with_too_large_results_still_changes_the_state() {
    let execution = &mut execution_of(&genesis());
    let session = session_of(execution, ALICE, 1);
    // 5 bytes precede the results, and 4 precede each.
    assert!(matches!(run(execution, &ask(ALICE, session, 1, &["991 bytes"])), Outcome::Done(_)));
    let too_large = ask(ALICE, session, 2, &["992 bytes", "after"]);
    let executed = next(execution, &[&too_large]);
    assert_eq!((outcomes(&executed), executed.fresh()), (vec![Outcome::TooLarge], 2));
    let in_sum = ask(ALICE, session, 3, &["500 bytes", "500 bytes", "1 bytes"]);
    assert_eq!(run(execution, &in_sum), Outcome::TooLarge);
    assert_eq!(run(execution, &too_large), Outcome::TooLarge, "the outcome is kept like any other");
    let snapshot = execution.application.snapshot();
    let log = snapshot.chunks().next().unwrap();
    let applied = |text: &str| log.windows(text.len()).filter(|at| *at == text.as_bytes()).count();
    assert_eq!((applied("after"), applied("1 bytes")), (1, 2), "\"991 bytes\" has one of them");
}

/// Only the last outcomes are kept. An older bundle that comes again is not executed a second time.
#[test]
fn bundle_with_forgotten_outcome_is_not_executed_again() {
    let genesis = Genesis {
        client_window: 1 << 20,
        clients_max: 100_000,
        bodies: BodyLimits::default(),
        clients: vec![ALICE],
        ..genesis()
    };
    let execution = &mut execution_of(&genesis);
    let admin = session_of(execution, ADMIN, 1);
    // There are so many sessions of others that each has only the smallest share.
    let keys: Vec<[u8; 32]> = (0..8u8).map(|i| [100 + i; 32]).collect();
    let keys: Vec<&[u8]> = keys.iter().map(|key| &key[..]).collect();
    run(execution, &bundle(BundleKind::Register, ADMIN, admin, 1, &keys));
    for i in 0..8 {
        let opens: Vec<_> = (0..200).map(|nonce| open(PublicKey([100 + i; 32]), nonce)).collect();
        next(execution, &opens.iter().collect::<Vec<_>>());
    }
    let session = session_of(execution, ALICE, 1);
    let large = ask(ALICE, session, 1, &[&format!("{KEPT_SESSION_BYTES_MIN} bytes")]);
    assert!(matches!(run(execution, &large), Outcome::Done(_)));
    assert_eq!(run(execution, &large), Outcome::Forgotten, "the outcome is larger than the whole share");
    let bundles: Vec<_> = (2..=41).map(|number| ask(ALICE, session, number, &["863 bytes"])).collect();
    // Each takes 863 + 9 + 128 bytes, so the share has room for the last 16.
    let late = ask(ALICE, session, 50, &["863 bytes"]);
    for bundle in bundles.iter().chain([&late]) {
        run(execution, bundle);
    }
    let state = execution.application.digest();
    for (i, bundle) in bundles.iter().chain([&late]).enumerate() {
        let outcome = run(execution, bundle);
        assert_eq!(outcome == Outcome::Forgotten, i < 41 - 16, "{i}: {outcome:?}");
    }
    assert_eq!(
        run(execution, &ask(ALICE, session, 2, &["other"])),
        Outcome::Forgotten,
        "the digest of a forgotten bundle is unknown"
    );
    assert_eq!(execution.application.digest(), state);
    assert!(execution.executed(session, BundleNo(2)) && execution.kept(session, BundleNo(2)).is_none());
    assert_eq!(execution.kept(session, BundleNo(50)).map(|kept| kept.bundle), Some(late.digest()));
}

#[test]
fn height_is_executed_once() {
    let execution = &mut execution_of(&genesis());
    let session = session_of(execution, ALICE, 1);
    let bundles =
        vec![ask(ALICE, session, 1, &["a"]), ask(ALICE, session, 99, &["out of window"]), open(ALICE, 1)];
    let block = block(Height(2), 1, bundles);
    let first = execution.execute(&block);
    for _ in 0..2 {
        run(execution, &open(BOB, 1));
    }
    let state = execution.digest();
    let again = execution.execute(&block);
    assert_eq!(execution.digest(), state);
    assert_eq!((again.height, again.fresh(), again.state), (Height(2), 0, None));
    assert_eq!(outcomes(&again), [outcomes(&first)[0].clone(), outcomes(&first)[2].clone()], "what is known");
    let checkpoint = execution.execute(&FullBlock::null(Height(4)));
    assert_eq!(checkpoint.state, Some(state), "a block was executed a second time");
}

#[test]
#[should_panic(expected = "height 2 cannot be executed after height 0")]
fn execution_with_a_skipped_height_panics() {
    execution_of(&genesis()).execute(&FullBlock::null(Height(2)));
}

#[test]
fn time_always_grows_and_by_bounded_steps() {
    let execution = &mut execution_of(&genesis());
    let start = 1_700_000_000_000_000_000;
    let step = TIME_STEP_NS_MAX;
    let mut at = |time_ns| {
        let height = execution.height.next();
        execution.execute(&block(height, time_ns, vec![]));
        execution.time_ns
    };
    let times = [start, start, 0, start + 50, u64::MAX, u64::MAX, start].map(&mut at);
    let late = start + 50 + step;
    assert_eq!(times, [start, start + 1, start + 2, start + 50, late, late + step, late + step + 1]);
    execution.execute(&FullBlock::null(execution.height.next()));
    assert_eq!(execution.time_ns, times[6], "a null block has changed the time");
    let execution = &mut execution_of(&genesis());
    execution.execute(&block(Height(1), u64::MAX, vec![]));
    assert_eq!(execution.time_ns, TIME_START_NS_MAX, "a lying first leader has used up the clock");
    // Leaders write no time into an empty block. A clock that began with 1970 would gain 10 s a block.
    let execution = &mut execution_of(&genesis());
    execution.execute(&block(Height(1), 0, vec![]));
    assert_eq!(execution.time_ns, 0);
    execution.execute(&block(Height(2), start, vec![open(ALICE, 1)]));
    assert_eq!(execution.time_ns, start, "the first block with a time has not set the clock");
}

#[test]
fn digests_come_at_checkpoints_and_bind_sessions() {
    let execution = &mut execution_of(&genesis());
    let session = session_of(execution, ALICE, 1);
    let states: Vec<_> = (2..=8).map(|_| next(execution, &[]).state.is_some()).collect();
    assert_eq!(states, [false, false, true, false, false, false, true]);
    // The application state is the same in either order, but the sessions differ.
    let bundles = [ask(ALICE, session, 1, &["x"]), ask(ALICE, session, 2, &["x"])];
    let snapshot = execution.snapshot();
    let digest_of = |order: [usize; 2]| {
        let mut execution = restored(&genesis(), &snapshot);
        next(&mut execution, &order.map(|i| &bundles[i]));
        (execution.application.digest(), execution.digest())
    };
    let (one, other) = (digest_of([0, 1]), digest_of([1, 0]));
    assert_eq!(one.0, other.0);
    assert_ne!(one.1, other.1);
}

#[test]
fn restored_execution_behaves_like_the_original() {
    let genesis = genesis();
    let execution = &mut execution_of(&genesis);
    let admin = session_of(execution, ADMIN, 1);
    let alice = session_of(execution, ALICE, 1);
    run(execution, &bundle(BundleKind::Register, ADMIN, admin, 1, &[&STRANGER.0]));
    for number in [1, 2, 5] {
        run(execution, &ask(ALICE, alice, number, &["x"]));
    }
    let snapshot = execution.snapshot();
    let other = &mut restored(&genesis, &snapshot);
    assert_eq!(other.height(), execution.height());
    for bundle in [
        ask(ALICE, alice, 5, &["x"]),
        ask(ALICE, alice, 5, &["y"]),
        ask(ALICE, alice, 13, &["y"]),
        ask(ALICE, alice, 12, &["y"]),
        open(ALICE, 1),
        open(STRANGER, 1),
        open(STRANGER, 2),
        open(STRANGER, 3),
        ask(ALICE, alice, 3, &["x"]),
    ] {
        let (one, two) = (next(execution, &[&bundle]), next(other, &[&bundle]));
        assert_eq!(one, two);
        assert_eq!(execution.digest(), other.digest());
    }
}

#[test]
fn damaged_snapshots_are_refused() {
    let genesis = genesis();
    let execution = &mut execution_of(&genesis);
    let session = session_of(execution, ALICE, 1);
    run(execution, &ask(ALICE, session, 1, &["x"]));
    let snapshot = execution.snapshot();
    let chunks: Vec<Vec<u8>> = snapshot.chunks().collect();
    let restore = |header: &[u8], chunks: Vec<Vec<u8>>| {
        execution_of(&genesis).restore(header, &mut chunks.into_iter()).err()
    };
    let header = snapshot.header().to_vec();
    assert_eq!(restore(&header, chunks.clone()), None);
    // The last byte is the header of the recorder, which asserts it itself.
    for at in 0..header.len() - 1 {
        let mut bad = header.clone();
        bad[at] ^= 1;
        assert!(restore(&bad, chunks.clone()).is_some(), "byte {at} of the header");
        assert!(restore(&header[..at], chunks.clone()).is_some(), "header cut at {at}");
    }
    for (i, chunk) in chunks.iter().enumerate().filter(|(_, chunk)| chunk.len() > 4) {
        let mut damaged = chunks.clone();
        for at in 0..chunk.len() {
            damaged[i][at] ^= 1;
            assert!(restore(&header, damaged.clone()).is_some(), "byte {at} of chunk {i}");
            damaged[i][at] ^= 1;
        }
    }
    let mut short = chunks.clone();
    short.pop();
    assert_eq!(restore(&header, short), Some(RestoreError::Missing));
    let mut long = chunks;
    long.push(vec![]);
    assert_eq!(restore(&header, long), Some(RestoreError::Surplus));
    let mut kv =
        Execution::new(&Genesis { application: "kv 1".to_owned(), ..genesis.clone() }, Box::new(Kv::new()))
            .unwrap();
    assert!(matches!(
        kv.restore(&header, &mut snapshot.chunks()),
        Err(RestoreError::WrongApplication { .. })
    ));
}

#[test]
fn application_that_genesis_does_not_name_is_refused() {
    let error = Execution::new(&genesis(), Box::new(Kv::new())).unwrap_err();
    assert_eq!((error.expected.as_str(), error.found.as_str()), ("recorder 3", "kv 1"));
}

#[test]
fn store_is_executed_and_queried() {
    let genesis = Genesis { application: "kv 1".to_owned(), bodies: BodyLimits::default(), ..genesis() };
    let execution = &mut Execution::new(&genesis, Box::new(Kv::new())).unwrap();
    let session = session_of(execution, ALICE, 1);
    let put = KvOp::Put { key: b"k", value: b"v" }.to_bytes();
    let get = KvOp::Get { key: b"k" }.to_bytes();
    let bundle = bundle(BundleKind::Requests, ALICE, session, 1, &[&put, &get, b"\xff"]);
    let results =
        [KvResult::Done, KvResult::Value(b"v".to_vec()), KvResult::Error(crate::kv::KvError::Malformed)];
    let results = results.map(|result| result.to_bytes()).to_vec();
    assert_eq!(run(execution, &bundle), Outcome::Done(results));
    let mut reply = Vec::new();
    execution.query(&get, &mut reply);
    assert_eq!(KvResult::from_bytes(&reply), Ok(KvResult::Value(b"v".to_vec())));
}

/// One long result does not cost the bundle its other results, because the application knows the remaining room.
#[test]
fn operations_receive_the_remaining_room_of_the_reply() {
    let mut genesis = Genesis { application: "kv 1".to_owned(), ..genesis() };
    genesis.bodies.reply_bytes_max = 1_000;
    let execution = &mut Execution::new(&genesis, Box::new(Kv::new())).unwrap();
    let session = session_of(execution, ALICE, 1);
    let echo = |reply_bytes| KvOp::Echo { reply_bytes, padding: b"" }.to_bytes();
    // The third is preceded by 5 bytes and by 4 bytes for each result. The second result is an error of 2 bytes.
    let left = 1_000 - 5 - (4 + 600) - (4 + 2) - 4;
    let requests = [echo(600), echo(600), echo(left)];
    let requests: Vec<&[u8]> = requests.iter().map(|request| &request[..]).collect();
    let results =
        [KvResult::Padding(600), KvResult::Error(crate::kv::KvError::NoRoom), KvResult::Padding(left)];
    let results = results.map(|result| result.to_bytes()).to_vec();
    let bundle = bundle(BundleKind::Requests, ALICE, session, 1, &requests);
    assert_eq!(run(execution, &bundle), Outcome::Done(results));
}

/// A cluster that is made from a backup keeps values and keys of clients, and begins without sessions at height 0.
#[test]
fn state_of_one_cluster_becomes_the_first_one_of_another() {
    let old = Genesis { application: "kv 1".to_owned(), bodies: BodyLimits::default(), ..genesis() };
    let mut execution = Execution::new(&old, Box::new(Kv::new())).unwrap();
    execution.sessions.register(&[PublicKey([77; 32])]);
    execution.sessions.open(PublicKey([77; 32]), BundleNo(1), SessionId::default(), &mut Vec::new());
    let put = KvOp::Put { key: b"k", value: b"v" }.to_bytes();
    execution.application.apply(&At::default(), &put, &mut Vec::new());
    (execution.height, execution.time_ns) = (Height(640), 5_000);

    let new =
        Genesis { clients: vec![PublicKey([78; 32])], admin: PublicKey([79; 32]), clients_max: 9, ..old };
    let mut base = execution.into_base(&new).unwrap();
    assert_eq!((base.height(), base.time_ns(), base.sessions.len()), (Height::ZERO, 5_000, 0));
    for key in [77, 78, 79] {
        assert!(base.registered(&PublicKey([key; 32])), "key {key}");
    }
    // A replica of the new cluster restores the state from its disk.
    let snapshot = base.snapshot();
    let mut restored = Execution::new(&new, Box::new(Kv::new())).unwrap();
    assert_eq!(restored.restore(snapshot.header(), &mut snapshot.chunks()), Ok(base.digest()));
    let mut reply = Vec::new();
    restored.query(&KvOp::Get { key: b"k" }.to_bytes(), &mut reply);
    assert!(reply.ends_with(b"v"), "{reply:?}");
}
