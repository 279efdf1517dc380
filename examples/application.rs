//! A replicated service of one's own: locks with fencing tokens.
//!
//! A lock service is what others lean on when machines fail, so it is a good thing to have on machines of which f
//! may fail or lie. `acquire NAME` answers `granted TOKEN`, with a larger token each time, or `held TOKEN`;
//! `release NAME` answers `released` or `not yours`. Whoever is protected by the lock refuses smaller tokens than
//! it has seen. `look NAME` answers `held TOKEN` or `free`.
//!
//! ```text
//! cargo run --release -p quorate --example application -- up --dir /tmp/locks
//! ```
//!
//! Start it once more with `--help` for the other commands. Clients are those of `quorate_client`, see `client.rs`;
//! the key of the first one is /tmp/locks/clients/locks.key.
//!
//! What it does not do: a holder that dies keeps its lock, because nothing here expires; and nobody limits how many
//! locks one client holds.

use quorate_app::{Application, At, BucketMap, RestoreError, Snapshot};
use quorate_node::service::{self, Service};
use quorate_types::Digest;
use std::process::ExitCode;

/// The longest name of a lock.
const NAME_BYTES_MAX: usize = 64;

/// Each lock that is held, with its token (8 bytes) and holder (32 bytes); the last token under the empty name.
#[derive(Default)]
pub struct Locks {
    map: BucketMap,
}

impl Locks {
    fn token(&self, name: &str) -> Option<u64> {
        self.map.get(name.as_bytes())?.first_chunk().map(|token| u64::from_le_bytes(*token))
    }

    fn look(&self, name: &str) -> String {
        self.token(name).map_or_else(|| "free".to_owned(), |token| format!("held {token}"))
    }

    fn acquire(&mut self, name: &str, at: &At) -> String {
        if self.token(name).is_some() {
            return self.look(name);
        }
        let token = self.token("").unwrap_or(0).saturating_add(1);
        self.map.insert(b"", &token.to_le_bytes());
        self.map.insert(name.as_bytes(), &[&token.to_le_bytes(), at.client.0.as_slice()].concat());
        format!("granted {token}")
    }

    fn release(&mut self, name: &str, at: &At) -> String {
        // The client's signature was checked before: `at.client` cannot be somebody else.
        let holder = self.map.get(name.as_bytes()).and_then(|value| value.get(8..));
        if holder != Some(at.client.0.as_slice()) {
            return "not yours".to_owned();
        }
        self.map.remove(name.as_bytes());
        "released".to_owned()
    }
}

/// `VERB NAME`, if it is that.
fn parse(op: &[u8]) -> Option<(&str, &str)> {
    let (verb, name) = std::str::from_utf8(op).ok()?.split_once(' ')?;
    (1..=NAME_BYTES_MAX).contains(&name.len()).then_some((verb, name))
}

// Replicas must agree on every byte: no clock, no randomness, no order from hashing. Whatever a client sends is
// answered, and never a panic.
impl Application for Locks {
    fn name(&self) -> &'static str {
        "locks"
    }
    fn version(&self) -> u32 {
        1
    }
    fn apply(&mut self, at: &At, op: &[u8], reply: &mut Vec<u8>) {
        let answer = match parse(op) {
            Some(("acquire", name)) => self.acquire(name, at),
            Some(("release", name)) => self.release(name, at),
            Some(("look", name)) => self.look(name),
            _ => "expected acquire, release or look, and a name".to_owned(),
        };
        reply.extend_from_slice(answer.as_bytes());
    }
    // What changes nothing can be answered without being ordered.
    fn query(&self, op: &[u8], room: usize, reply: &mut Vec<u8>) {
        let answer = parse(op).map_or_else(String::new, |(_, name)| self.look(name));
        reply.extend(answer.bytes().take(room));
    }
    // Digest and snapshot come with the map: 4,096 buckets, of which only those that changed are hashed again.
    fn digest(&mut self) -> Digest {
        self.map.digest()
    }
    fn snapshot(&mut self) -> Snapshot {
        self.map.snapshot()
    }
    fn restore(
        &mut self,
        _header: &[u8],
        chunks: &mut dyn Iterator<Item = Vec<u8>>,
    ) -> Result<(), RestoreError> {
        self.map = self.map.restore(chunks)?;
        Ok(())
    }
}

fn main() -> ExitCode {
    service::main(Service::of::<Locks>())
}

#[cfg(test)]
mod tests {
    use super::*;
    use quorate_types::PublicKey;

    fn apply(locks: &mut Locks, client: u8, op: &str) -> String {
        let at = At { client: PublicKey([client; 32]), ..At::default() };
        let mut reply = Vec::new();
        locks.apply(&at, op.as_bytes(), &mut reply);
        String::from_utf8(reply).unwrap()
    }

    #[test]
    fn a_lock_has_one_holder_and_tokens_grow() {
        let locks = &mut Locks::default();
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

    /// What a replica that was away for long lives on.
    #[test]
    fn a_snapshot_is_the_whole_state() {
        let (locks, copy) = (&mut Locks::default(), &mut Locks::default());
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
