//! A replicated service of another program: locks with fencing tokens.
//!
//! Other systems rely on a lock service when machines fail, so it belongs on machines of which f may fail or lie.
//! `acquire NAME` answers `granted TOKEN`, with a larger token each time, or `held TOKEN`. `release NAME` answers
//! `released` or `not yours`. `look NAME` answers `held TOKEN` or `free`. A resource that the lock protects refuses tokens
//! that are smaller than one it has seen.
//!
//! ```text
//! cargo run --release -p quorate-node --example application -- up --dir /tmp/locks          # in one terminal
//! cargo run --release -p quorate-node --example application -- call --cluster /tmp/locks 'acquire printer'
//! ```
//!
//! `--help` lists the other commands. `client.rs` is a client as a program; `service_lab.rs` puts this service under load,
//! into the simulator and under torture.
//!
//! Limits: a holder that dies keeps its lock, because no lock expires; a client may hold any number of locks.

use quorate_app::{At, BucketMap, MapApplication, OnMap};
use quorate_node::Service;
use std::process::ExitCode;

/// The longest name of a lock.
const NAME_BYTES_MAX: usize = 64;

/// The rules of the service. Its state is a map: the name of each held lock with its token (8 bytes) and holder
/// (32 bytes), and the last token under the empty name. Digest, snapshot and restore come with the map.
pub struct Locks;

fn token(locks: &BucketMap, name: &str) -> Option<u64> {
    locks.get(name.as_bytes())?.first_chunk().map(|token| u64::from_le_bytes(*token))
}

fn look(locks: &BucketMap, name: &str) -> String {
    token(locks, name).map_or_else(|| "free".to_owned(), |token| format!("held {token}"))
}

fn acquire(locks: &mut BucketMap, name: &str, at: &At) -> String {
    if token(locks, name).is_some() {
        return look(locks, name);
    }
    let token = token(locks, "").unwrap_or(0).saturating_add(1);
    locks.insert(b"", &token.to_le_bytes());
    locks.insert(name.as_bytes(), &[&token.to_le_bytes(), at.client.0.as_slice()].concat());
    format!("granted {token}")
}

fn release(locks: &mut BucketMap, name: &str, at: &At) -> String {
    // The client's signature was checked before: `at.client` cannot be another client.
    let holder = locks.get(name.as_bytes()).and_then(|value| value.get(8..));
    if holder != Some(at.client.0.as_slice()) {
        return "not yours".to_owned();
    }
    locks.remove(name.as_bytes());
    "released".to_owned()
}

/// Splits `VERB NAME`, if the operation is that.
fn parse(op: &[u8]) -> Option<(&str, &str)> {
    let (verb, name) = std::str::from_utf8(op).ok()?.split_once(' ')?;
    (1..=NAME_BYTES_MAX).contains(&name.len()).then_some((verb, name))
}

// Replicas must agree on every byte: no clock, no randomness, no order from hashing. Every operation has an answer, and
// none makes the service panic.
impl MapApplication for Locks {
    const NAME: &'static str = "locks";
    const VERSION: u32 = 1;

    fn apply(locks: &mut BucketMap, at: &At, op: &[u8], reply: &mut Vec<u8>) {
        let answer = match parse(op) {
            Some(("acquire", name)) => acquire(locks, name, at),
            Some(("release", name)) => release(locks, name, at),
            Some(("look", name)) => look(locks, name),
            _ => "expected acquire, release or look, and a name".to_owned(),
        };
        reply.extend_from_slice(answer.as_bytes());
    }

    // An operation that changes nothing can be answered without being ordered.
    fn query(locks: &BucketMap, op: &[u8], room: usize, reply: &mut Vec<u8>) {
        let answer = parse(op).map_or_else(String::new, |(_, name)| look(locks, name));
        reply.extend(answer.bytes().take(room));
    }
}

fn main() -> ExitCode {
    quorate_node::main(Service::of::<OnMap<Locks>>())
}

#[cfg(test)]
mod tests {
    use super::*;
    use quorate_app::Application as _;
    use quorate_types::PublicKey;

    fn apply(locks: &mut OnMap<Locks>, client: u8, op: &str) -> String {
        let at = At { client: PublicKey([client; 32]), ..At::default() };
        let mut reply = Vec::new();
        locks.apply(&at, op.as_bytes(), &mut reply);
        String::from_utf8(reply).unwrap()
    }

    #[test]
    fn lock_has_one_holder_and_tokens_grow() {
        let locks = &mut OnMap::<Locks>::default();
        assert_eq!(apply(locks, 1, "acquire a"), "granted 1");
        assert_eq!(apply(locks, 2, "acquire a"), "held 1");
        assert_eq!(apply(locks, 2, "release a"), "not yours");
        assert_eq!(apply(locks, 1, "release a"), "released");
        assert_eq!(apply(locks, 1, "release a"), "not yours");
        assert_eq!(apply(locks, 2, "acquire a"), "granted 2");
        assert_eq!(apply(locks, 2, "acquire b"), "granted 3");
        assert_eq!(
            (apply(locks, 1, "look b"), apply(locks, 1, "look c")),
            ("held 3".to_owned(), "free".to_owned())
        );
        for nonsense in ["", "acquire", "acquire ", "steal a", &format!("acquire {}", "x".repeat(65))] {
            assert_eq!(apply(locks, 1, nonsense), "expected acquire, release or look, and a name");
        }
    }

    /// A replica that is far behind recovers from a snapshot.
    #[test]
    fn snapshot_is_the_whole_state() {
        let (locks, copy) = (&mut OnMap::<Locks>::default(), &mut OnMap::<Locks>::default());
        apply(locks, 1, "acquire a");
        let snapshot = locks.snapshot();
        copy.restore(snapshot.header(), &mut snapshot.chunks()).unwrap();
        assert_eq!(copy.digest(), locks.digest());
        for locks in [locks, copy] {
            assert_eq!(apply(locks, 1, "release a"), "released");
            assert_eq!(apply(locks, 2, "acquire a"), "granted 2");
        }
    }
}
