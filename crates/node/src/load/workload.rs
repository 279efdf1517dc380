//! What the requests are.

use super::history::{Kind, NUMBER, Operation};
use quorate_app::KvOp;
use quorate_types::Time;
use quorate_types::rng::Rng;

/// A mixture of operations.
#[derive(Clone, PartialEq, Debug)]
pub enum Mix {
    /// Puts (and a share of gets) over a number of keys, each request of a fixed size.
    Kv {
        /// Different keys.
        keys: u64,
        /// Bytes of one encoded request.
        request_bytes: usize,
        /// Share of gets, in thousandths.
        reads_per_mille: u32,
    },
    /// Requests and replies of fixed sizes that change nothing.
    Echo {
        /// Bytes of one encoded request.
        request_bytes: usize,
        /// Bytes of one reply.
        reply_bytes: u32,
    },
    /// Puts and increments whose outcome can be judged: every key belongs to one client, and a client uses a
    /// key again only after `spread` other operations, which is more than it has in flight.
    Judged {
        /// Keys of one client.
        spread: u64,
        /// Bytes of one encoded put.
        request_bytes: usize,
    },
}

/// Produces operations.
#[derive(Debug)]
pub struct Workload {
    mix: Mix,
    rng: Rng,
    /// Operations of each client so far.
    counts: Vec<u64>,
    buffer: Vec<u8>,
    last: Option<Described>,
}

#[derive(Clone, Debug)]
struct Described {
    kind: Kind,
    key: String,
    arg: Option<String>,
}

/// The operation that was produced last.
#[derive(Debug)]
pub struct Produced<'a>(&'a [u8]);

impl Produced<'_> {
    /// The request.
    #[must_use]
    pub fn encoded(&self) -> &[u8] {
        self.0
    }
}

impl Workload {
    /// A source of operations that the seed decides.
    #[must_use]
    pub fn new(mix: Mix, seed: u64, clients: usize) -> Self {
        Self { mix, rng: Rng::new(seed), counts: vec![0; clients], buffer: Vec::new(), last: None }
    }

    /// The next operation of a client.
    pub fn next(&mut self, client: usize) -> Produced<'_> {
        self.buffer.clear();
        let count = self.counts.get_mut(client).map_or(0, |count| {
            *count = count.saturating_add(1);
            *count
        });
        match self.mix {
            Mix::Kv { keys, request_bytes, reads_per_mille } => {
                let key = self.rng.below(keys.max(1)).to_le_bytes();
                let read = reads_per_mille > 0 && self.rng.below(1_000) < u64::from(reads_per_mille);
                if read {
                    KvOp::Get { key: &key }.encode(&mut self.buffer);
                } else {
                    put(&key, count, request_bytes, &mut self.buffer);
                }
            }
            Mix::Echo { request_bytes, reply_bytes } => {
                let padding = vec![0x5a; request_bytes.saturating_sub(9)];
                KvOp::Echo { reply_bytes, padding: &padding }.encode(&mut self.buffer);
            }
            Mix::Judged { spread, request_bytes } => {
                let slot = count.checked_rem(spread.max(1)).unwrap_or(0);
                // Every other operation counts, so that one executed twice is seen.
                let described = if count.is_multiple_of(2) {
                    let key = format!("{NUMBER}{client}-{slot}");
                    KvOp::Increment { key: key.as_bytes(), by: 1 }.encode(&mut self.buffer);
                    Described { kind: Kind::Incr, key, arg: Some("1".to_owned()) }
                } else {
                    let key = format!("p{client}-{slot}");
                    let room = request_bytes.saturating_sub(key.len().saturating_add(9));
                    let value = format!("{count:0>room$}");
                    KvOp::Put { key: key.as_bytes(), value: value.as_bytes() }.encode(&mut self.buffer);
                    Described { kind: Kind::Put, key, arg: Some(value) }
                };
                self.last = Some(described);
            }
        }
        Produced(&self.buffer)
    }

    /// There was no room for the last `count` operations of a client: they come again.
    pub fn undo(&mut self, client: usize, count: u32) {
        if let Some(done) = self.counts.get_mut(client) {
            *done = done.saturating_sub(u64::from(count));
        }
    }

    /// The last operation, for the history.
    #[must_use]
    pub fn describe(&self, client: usize, call: Time) -> Operation {
        let described =
            self.last.clone().unwrap_or(Described { kind: Kind::Put, key: String::new(), arg: None });
        Operation {
            client: u64::try_from(client).unwrap_or(u64::MAX),
            kind: described.kind,
            key: described.key,
            arg: described.arg,
            call,
        }
    }
}

/// A put of exactly `request_bytes` where that is possible.
fn put(key: &[u8], count: u64, request_bytes: usize, out: &mut Vec<u8>) {
    let room = request_bytes.saturating_sub(key.len().saturating_add(9));
    let mut value = vec![0x5a; room];
    if let Some(head) = value.get_mut(..8) {
        head.copy_from_slice(&count.to_le_bytes());
    }
    KvOp::Put { key, value: &value }.encode(out);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_have_the_size_that_was_asked_for() {
        for request_bytes in [24, 128, 4_096] {
            for mix in [
                Mix::Kv { keys: 10, request_bytes, reads_per_mille: 0 },
                Mix::Echo { request_bytes, reply_bytes: 0 },
            ] {
                let mut workload = Workload::new(mix, 1, 1);
                assert_eq!(workload.next(0).encoded().len(), request_bytes);
            }
        }
    }

    #[test]
    fn judged_keys_belong_to_one_client_and_come_again_late() {
        let mut workload = Workload::new(Mix::Judged { spread: 8, request_bytes: 64 }, 1, 2);
        let mut keys = Vec::new();
        for _ in 0..16 {
            workload.next(1);
            keys.push(workload.describe(1, Time(0)).key);
        }
        assert!(keys.iter().all(|key| key[1..].starts_with('1')));
        assert_eq!(keys.iter().collect::<std::collections::BTreeSet<_>>().len(), 8);
    }
}
