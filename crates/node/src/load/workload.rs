//! What the requests are.

use super::history::Call;
use quorate_app::{KvOp, KvResult};
use quorate_sim::Op;
use quorate_types::Time;
use quorate_types::codec::Wire as _;
use quorate_types::rng::Rng;
use std::collections::BTreeMap;

/// First letter of the keys that hold numbers, each of one client.
pub(super) const NUMBER: char = 'n';
/// First letter of the keys that are only put to, each of one client.
pub(super) const REGISTER: char = 'p';
/// First letter of the keys that clients share.
const SHARED: char = 's';

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
    /// Operations that can be judged. Puts and increments on keys that belong to one client each, which uses a
    /// key again only after `spread` others, so that few operations on it overlap: what they leave says what was
    /// lost or done twice. And operations of all kinds on keys that clients share, where order matters.
    Judged {
        /// Part of the name of every key: what another run has left in the store is under other names.
        run: u32,
        /// Keys of one client, of each kind.
        spread: u64,
        /// Keys that clients share; half of all operations are on them. 0: there are none.
        shared: u64,
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
    /// Values that were made for shared keys.
    made: u64,
    /// What each shared key held when an operation on it was answered last: what a swap may expect.
    seen: BTreeMap<String, Option<String>>,
    buffer: Vec<u8>,
    last: Option<Op>,
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
        Self {
            mix,
            rng: Rng::new(seed),
            counts: vec![0; clients],
            made: 0,
            seen: BTreeMap::new(),
            buffer: Vec::new(),
            last: None,
        }
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
            Mix::Judged { run, spread, shared, request_bytes } => {
                let op = if shared > 0 && self.rng.below(2) == 0 {
                    self.shared(run, shared)
                } else {
                    own(run, client, count, spread, request_bytes)
                };
                op.encode(&mut self.buffer);
                self.last = Some(op);
            }
        }
        Produced(&self.buffer)
    }

    /// An operation on a key that clients share. All values are numbers, so that all kinds suit all keys, and each
    /// is written once, so that whoever sees it knows where it is from.
    fn shared(&mut self, run: u32, keys: u64) -> Op {
        let key = format!("{SHARED}{run:x}-{}", self.rng.below(keys));
        self.made = self.made.saturating_add(1);
        let value = self.made.saturating_mul(1_000).to_string();
        match self.rng.below(100) {
            0..25 => Op::Put { key, value },
            25..50 => Op::Get { key },
            50..60 => Op::Delete { key },
            60..80 => Op::Cas { expect: self.seen.get(&key).cloned().flatten(), key, value },
            _ => Op::Increment { key, by: 1 },
        }
    }

    /// An operation was answered: what later swaps may expect.
    pub fn learn(&mut self, op: &Op, result: &[u8]) {
        if !op.key().starts_with(SHARED) {
            return;
        }
        let held = match (op, KvResult::from_bytes(result)) {
            (Op::Put { value, .. } | Op::Cas { value, .. }, Ok(KvResult::Done)) => Some(value.clone()),
            (_, Ok(KvResult::Value(value))) => String::from_utf8(value).ok(),
            (_, Ok(KvResult::Number(number))) => Some(number.to_string()),
            (Op::Delete { .. }, _) | (_, Ok(KvResult::Absent)) => None,
            _ => return,
        };
        self.seen.insert(op.key().to_owned(), held);
    }

    /// There was no room for the last `count` operations of a client: they come again.
    pub fn undo(&mut self, client: usize, count: u32) {
        if let Some(done) = self.counts.get_mut(client) {
            *done = done.saturating_sub(u64::from(count));
        }
    }

    /// The last operation, for the history; `None` where operations are not judged.
    #[must_use]
    pub fn describe(&self, client: usize, at: Time) -> Option<Call> {
        self.last.clone().map(|op| Call { client, op, at })
    }
}

/// An operation on a key of one client. Every other one counts, so that one executed twice is seen.
fn own(run: u32, client: usize, count: u64, spread: u64, request_bytes: usize) -> Op {
    let slot = count.checked_rem(spread.max(1)).unwrap_or(0);
    if count.is_multiple_of(2) {
        return Op::Increment { key: format!("{NUMBER}{run:x}-{client}-{slot}"), by: 1 };
    }
    let key = format!("{REGISTER}{run:x}-{client}-{slot}");
    let room = request_bytes.saturating_sub(key.len().saturating_add(9));
    Op::Put { key, value: format!("{count:0>room$}") }
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
        let mix = Mix::Judged { run: 0xa7, spread: 8, shared: 0, request_bytes: 64 };
        let mut workload = Workload::new(mix, 1, 2);
        let mut keys = Vec::new();
        for _ in 0..16 {
            workload.next(1);
            keys.push(workload.describe(1, Time(0)).unwrap().op.key().to_owned());
        }
        assert!(keys.iter().all(|key| key[1..].starts_with("a7-1-")), "{keys:?}");
        assert_eq!(keys.iter().collect::<std::collections::BTreeSet<_>>().len(), 8);
    }

    #[test]
    fn shared_keys_see_every_kind_and_each_value_once() {
        let mix = Mix::Judged { run: 0, spread: 8, shared: 5, request_bytes: 64 };
        let mut workload = Workload::new(mix, 1, 2);
        let (mut kinds, mut values, mut swaps) = (BTreeMap::new(), Vec::new(), 0);
        let mut model = quorate_sim::Model::default();
        for _ in 0..2_000 {
            workload.next(0);
            let op = workload.describe(0, Time(0)).unwrap().op;
            if !op.key().starts_with(SHARED) {
                continue;
            }
            let result = model.apply(&op);
            assert!(!matches!(result, KvResult::Error(_)), "{op:?}: {result:?}");
            workload.learn(&op, &result.to_bytes());
            *kinds.entry(op.name()).or_insert(0) += 1;
            match op {
                Op::Put { value, .. } => values.push(value),
                Op::Cas { value, .. } => {
                    swaps += u64::from(result == KvResult::Done);
                    values.push(value);
                }
                _ => {}
            }
        }
        assert!(kinds.len() == 5 && kinds.values().all(|count| *count > 50), "{kinds:?}");
        assert!(swaps > 100, "who expects what was seen last is right as long as nobody else writes");
        let all = values.len();
        values.sort();
        values.dedup();
        assert_eq!(values.len(), all);
    }
}
