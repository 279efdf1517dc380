//! The operations of a run.

use super::errors::error_of;
use super::zipf::Zipf;
use crate::service_load::ServiceLoad;
use quorate_app::{KvOp, KvResult};
use quorate_history::{Call, Op};
use quorate_types::Time;
use quorate_types::codec::Wire as _;
use quorate_types::rng::Rng;
use std::collections::BTreeMap;

/// First letter after the prefix of a key with a number that belongs to one client.
pub(super) const NUMBER: char = 'n';
/// First letter after the prefix of a key with text that belongs to one client.
pub(super) const REGISTER: char = 'p';
/// First letter after the prefix of a key that clients share.
const SHARED: char = 's';
/// Operations of one client until it uses a judged key again: usually more than it has in flight.
const SPREAD: u64 = 512;
/// Bytes of an encoded put around its key and its value.
const PUT_BYTES: usize = 1 + 4 + 4;
/// Bytes of an encoded echo around its padding.
const ECHO_BYTES: usize = 1 + 4 + 4;
/// The kind of an error that a service other than the store returns.
const SERVICE_ERROR: &str = "ServiceError";
/// Decimal digits of the largest number in a value.
const NUMBER_DIGITS: usize = 20;

/// Returns the letter of a key of [`Mix::Judged`].
pub(super) fn kind_of(key: &str) -> Option<char> {
    key.rsplit('/').next().and_then(|name| name.chars().next())
}

/// The distribution of requests over keys.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum KeyDistribution {
    /// All keys are equally likely.
    Uniform,
    /// Key k, counted from 0, has a probability proportional to k + 1 to the power of minus the exponent.
    Zipf {
        /// The exponent, at least 0. With 0 all keys are equally likely.
        exponent: f64,
    },
}

impl KeyDistribution {
    /// Returns the name on the command line and in results.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Uniform => "uniform",
            Self::Zipf { .. } => "zipf",
        }
    }
}

/// A mixture of operations.
#[derive(Clone, Debug)]
pub enum Mix {
    /// Puts (and a share of gets) over a number of keys, each put of a fixed size.
    Kv {
        /// Prefix of every key. `k` and the key's number follow, with leading zeros: all keys have one length.
        prefix: String,
        /// Different keys.
        keys: u64,
        /// The distribution of requests over them.
        distribution: KeyDistribution,
        /// Bytes of one encoded put.
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
    /// Operations that can be judged: puts and increments on keys of one client, and all kinds on keys that clients share.
    /// A client uses its key again only after `spread` others, so few operations on a key overlap: the final values show
    /// lost and doubled operations. On shared keys the order matters.
    Judged {
        /// Prefix of every key: empty, or ending with `/`. Each run on the same store needs another prefix.
        prefix: String,
        /// Keys of one client, of each kind.
        spread: u64,
        /// Keys that clients share; half of all operations are on them. 0: there are none.
        shared: u64,
        /// Bytes of one encoded put.
        request_bytes: usize,
    },
    /// Operations of another service than the store.
    Service(&'static dyn ServiceLoad),
}

impl Mix {
    /// Returns judged operations for a store without other keys. `shared` is the number of keys that clients share.
    #[must_use]
    pub fn judged(shared: u64, request_bytes: usize) -> Self {
        Self::Judged { prefix: String::new(), spread: SPREAD, shared, request_bytes }
    }

    /// Returns the smallest size of an encoded put or echo, in bytes. A put has a key, and a judged one a unique number. The
    /// size is 0 for another service.
    #[must_use]
    pub fn request_bytes_min(&self, clients: usize) -> usize {
        match self {
            Self::Kv { prefix, keys, .. } => PUT_BYTES.saturating_add(Key::bytes(prefix, *keys)),
            Self::Echo { .. } => ECHO_BYTES,
            Self::Service(_) => 0,
            Self::Judged { .. } => {
                PUT_BYTES.saturating_add(self.key_bytes_max(clients)).saturating_add(NUMBER_DIGITS)
            }
        }
    }

    /// Returns the bytes of one encoded put or echo; 0 for another service.
    #[must_use]
    pub fn request_bytes(&self) -> usize {
        match self {
            Self::Kv { request_bytes, .. }
            | Self::Echo { request_bytes, .. }
            | Self::Judged { request_bytes, .. } => *request_bytes,
            Self::Service(_) => 0,
        }
    }

    /// Returns the bytes of the longest key.
    #[must_use]
    pub fn key_bytes_max(&self, clients: usize) -> usize {
        match self {
            Self::Kv { prefix, keys, .. } => Key::bytes(prefix, *keys),
            Self::Echo { .. } | Self::Service(_) => 0,
            Self::Judged { prefix, spread, shared, .. } => {
                let own = own_key(prefix, REGISTER, clients, *spread);
                own.len().max(shared_key(prefix, *shared).len())
            }
        }
    }
}

/// Produces operations.
#[derive(Debug)]
pub struct Workload {
    mix: Mix,
    rng: Rng,
    /// The source of keys that are not equally likely.
    zipf: Option<Zipf>,
    /// Operations of each client so far.
    counts: Vec<u64>,
    /// Number of values that were made for shared keys.
    made: u64,
    /// The value of each shared key in its last answer. A compare-and-swap expects this value.
    seen: BTreeMap<String, Option<String>>,
    key: Key,
    buffer: Vec<u8>,
    last: Option<Op>,
}

impl Workload {
    /// Creates a source of operations that the seed decides.
    #[must_use]
    pub fn new(mix: Mix, seed: u64, clients: usize) -> Self {
        let zipf = match &mix {
            Mix::Kv { keys, distribution: KeyDistribution::Zipf { exponent }, .. } => {
                Some(Zipf::new(*keys, *exponent))
            }
            _ => None,
        };
        Self {
            mix,
            rng: Rng::new(seed),
            zipf,
            counts: vec![0; clients],
            made: 0,
            seen: BTreeMap::new(),
            key: Key::default(),
            buffer: Vec::new(),
            last: None,
        }
    }

    /// Returns the next operation of a client, encoded.
    pub fn next(&mut self, client: usize) -> &[u8] {
        self.buffer.clear();
        let count = self.counts.get_mut(client).map_or(0, |count| {
            *count = count.saturating_add(1);
            *count
        });
        match &self.mix {
            Mix::Kv { prefix, keys, request_bytes, reads_per_mille, .. } => {
                let number = match &self.zipf {
                    Some(zipf) => zipf.draw(&mut self.rng),
                    None => self.rng.below((*keys).max(1)),
                };
                self.key.name(prefix, *keys, number);
                let key = &self.key.0;
                let read = *reads_per_mille > 0 && self.rng.below(1_000) < u64::from(*reads_per_mille);
                if read {
                    KvOp::Get { key }.encode(&mut self.buffer);
                } else {
                    put(key, count, *request_bytes, &mut self.buffer);
                }
            }
            Mix::Echo { request_bytes, reply_bytes } => {
                let padding = vec![0x5a; request_bytes.saturating_sub(ECHO_BYTES)];
                KvOp::Echo { reply_bytes: *reply_bytes, padding: &padding }.encode(&mut self.buffer);
            }
            Mix::Judged { prefix, spread, shared, request_bytes } => {
                let op = if *shared > 0 && self.rng.below(2) == 0 {
                    self.made = self.made.saturating_add(1);
                    let key = shared_key(prefix, self.rng.below(*shared));
                    shared_op(key, self.made, &mut self.rng, &self.seen)
                } else {
                    own_op(prefix, client, count, *spread, *request_bytes)
                };
                op.encode(&mut self.buffer);
                self.last = Some(op);
            }
            Mix::Service(load) => load.next(&mut self.rng, &mut self.buffer),
        }
        &self.buffer
    }

    /// Returns the kind of error that a result is, if it is one.
    #[must_use]
    pub fn error_of(&self, result: &[u8]) -> Option<String> {
        match &self.mix {
            Mix::Service(load) => load.is_error(result).then(|| SERVICE_ERROR.to_owned()),
            Mix::Kv { .. } | Mix::Echo { .. } | Mix::Judged { .. } => {
                error_of(result).map(|error| format!("{error:?}"))
            }
        }
    }

    /// Records the value in an answer. A later compare-and-swap expects it.
    pub fn learn(&mut self, op: &Op, result: &[u8]) {
        if kind_of(op.key()) != Some(SHARED) {
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

    /// Takes back the last `count` operations of a client, for which there was no room.
    pub fn undo(&mut self, client: usize, count: u32) {
        if let Some(done) = self.counts.get_mut(client) {
            *done = done.saturating_sub(u64::from(count));
        }
    }

    /// Returns the last operation for the history; `None` if operations are not judged.
    #[must_use]
    pub fn describe(&self, client: usize, at: Time) -> Option<Call> {
        self.last.clone().map(|op| Call { client, op, at })
    }
}

/// The name of a key, in a reused buffer.
#[derive(Debug, Default)]
struct Key(Vec<u8>);

impl Key {
    /// Returns the length of each of `keys` keys.
    fn bytes(prefix: &str, keys: u64) -> usize {
        prefix.len().saturating_add(1).saturating_add(digits(keys.saturating_sub(1)))
    }

    /// Writes the name of key `number` of `keys` keys.
    fn name(&mut self, prefix: &str, keys: u64, number: u64) {
        self.0.clear();
        self.0.extend_from_slice(prefix.as_bytes());
        self.0.push(b'k');
        let at = self.0.len();
        self.0.resize(Self::bytes(prefix, keys), b'0');
        write_decimal(self.0.get_mut(at..).unwrap_or_default(), number);
    }
}

/// Returns the number of decimal digits.
fn digits(number: u64) -> usize {
    let beyond_first = number.checked_ilog10().unwrap_or(0);
    usize::try_from(beyond_first).unwrap_or(NUMBER_DIGITS).saturating_add(1)
}

/// Writes the decimal digits of a number to the end of zeros. Digits without room are left out.
fn write_decimal(digits: &mut [u8], mut number: u64) {
    for digit in digits.iter_mut().rev() {
        *digit = b'0'.saturating_add(u8::try_from(number % 10).unwrap_or(0));
        number /= 10;
        if number == 0 {
            break;
        }
    }
}

fn own_key(prefix: &str, kind: char, client: usize, slot: u64) -> String {
    format!("{prefix}{kind}{client}-{slot}")
}

fn shared_key(prefix: &str, number: u64) -> String {
    format!("{prefix}{SHARED}{number}")
}

/// Returns an operation on a key that clients share. All values are numbers, so all kinds of operations suit all keys. Each
/// value is written once, so a read identifies its write.
fn shared_op(key: String, made: u64, rng: &mut Rng, seen: &BTreeMap<String, Option<String>>) -> Op {
    let value = made.saturating_mul(1_000).to_string();
    match rng.below(100) {
        0..25 => Op::Put { key, value },
        25..50 => Op::Get { key },
        50..60 => Op::Delete { key },
        60..80 => Op::Cas { expect: seen.get(&key).cloned().flatten(), key, value },
        _ => Op::Increment { key, by: 1 },
    }
}

/// Returns an operation on a key of one client. Every other operation is an increment, which shows a doubled execution.
fn own_op(prefix: &str, client: usize, count: u64, spread: u64, request_bytes: usize) -> Op {
    let slot = count.checked_rem(spread.max(1)).unwrap_or(0);
    if count.is_multiple_of(2) {
        return Op::Increment { key: own_key(prefix, NUMBER, client, slot), by: 1 };
    }
    let key = own_key(prefix, REGISTER, client, slot);
    let room = request_bytes.saturating_sub(key.len().saturating_add(PUT_BYTES));
    // A width in a format is at most 65,535.
    let mut value = vec![b'0'; room.max(digits(count))];
    write_decimal(&mut value, count);
    Op::Put { key, value: String::from_utf8(value).unwrap_or_default() }
}

/// Encodes a put of `request_bytes`, or more for a long key. The value is the number with leading zeros.
fn put(key: &[u8], count: u64, request_bytes: usize, out: &mut Vec<u8>) {
    let room = request_bytes.saturating_sub(key.len().saturating_add(PUT_BYTES));
    let mut value = vec![b'0'; room];
    write_decimal(&mut value, count);
    KvOp::Put { key, value: &value }.encode(out);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_have_the_configured_size() {
        let kv = |keys, request_bytes| Mix::Kv {
            prefix: "load/".to_owned(),
            keys,
            distribution: KeyDistribution::Uniform,
            request_bytes,
            reads_per_mille: 0,
        };
        for request_bytes in [24, 128, 4_096] {
            for mix in [
                kv(1, request_bytes),
                kv(1_000_000, request_bytes),
                Mix::Echo { request_bytes, reply_bytes: 0 },
            ] {
                assert!(mix.request_bytes_min(1) <= request_bytes, "{mix:?}");
                let mut workload = Workload::new(mix, 1, 1);
                assert_eq!(workload.next(0).len(), request_bytes);
            }
        }
        for mix in [kv(1, 0), kv(11, 0), Mix::Echo { request_bytes: 0, reply_bytes: 0 }] {
            let least = mix.request_bytes_min(1);
            assert_eq!(Workload::new(mix, 1, 1).next(0).len(), least, "without a value");
        }
        let judged = |request_bytes| Mix::Judged {
            prefix: "load/7/".to_owned(),
            spread: 4_096,
            shared: 0,
            request_bytes,
        };
        for request_bytes in [judged(0).request_bytes_min(9), 128, 200_000] {
            let mut workload = Workload::new(judged(request_bytes), 1, 9);
            assert_eq!(workload.next(8).len(), request_bytes);
        }
    }

    #[test]
    fn keys_and_values_are_text_and_keys_have_equal_length() {
        for (keys, first, last) in
            [(1, "load/k0", "load/k0"), (10, "load/k0", "load/k9"), (10_000, "load/k0000", "load/k9999")]
        {
            for (number, name) in [(0, first), (keys - 1, last)] {
                let mut key = Key::default();
                key.name("load/", keys, number);
                assert_eq!(key.0, name.as_bytes());
            }
        }
        let mix = Mix::Kv {
            prefix: "a/".to_owned(),
            keys: 100,
            distribution: KeyDistribution::Zipf { exponent: 0.99 },
            request_bytes: 30,
            reads_per_mille: 500,
        };
        let mut workload = Workload::new(mix, 1, 1);
        for count in 1..100 {
            let encoded = workload.next(0).to_vec();
            match KvOp::parse(&encoded).unwrap() {
                KvOp::Put { key, value } => {
                    assert!(key.starts_with(b"a/k") && key.len() == 5, "{key:?}");
                    assert_eq!(value, format!("{count:0>16}").as_bytes());
                }
                KvOp::Get { key } => assert!(key.starts_with(b"a/k") && key.len() == 5, "{key:?}"),
                other => panic!("{other:?}"),
            }
        }
    }

    /// The share of the first of three keys is that of the distribution.
    #[test]
    fn requests_follow_the_distribution_of_keys() {
        for (distribution, share) in
            [(KeyDistribution::Uniform, 1.0 / 3.0), (KeyDistribution::Zipf { exponent: 1.0 }, 6.0 / 11.0)]
        {
            let prefix = String::new();
            let mix = Mix::Kv { prefix, keys: 3, distribution, request_bytes: 20, reads_per_mille: 0 };
            let mut workload = Workload::new(mix, 1, 1);
            let is_first = |encoded: &[u8]| matches!(KvOp::parse(encoded), Ok(KvOp::Put { key: b"k0", .. }));
            let first = (0..10_000).filter(|_| is_first(workload.next(0))).count();
            assert!((first as f64 / 10_000.0 - share).abs() < 0.02, "{distribution:?}: {first}");
        }
    }

    #[test]
    fn judged_keys_belong_to_one_client_and_repeat_late() {
        let mix = Mix::Judged { prefix: "load/a7/".to_owned(), spread: 8, shared: 0, request_bytes: 64 };
        let mut workload = Workload::new(mix, 1, 2);
        let mut keys = Vec::new();
        for _ in 0..16 {
            workload.next(1);
            keys.push(workload.describe(1, Time(0)).unwrap().op.key().to_owned());
        }
        let is_own = |key: &String| key.starts_with("load/a7/p1-") || key.starts_with("load/a7/n1-");
        assert!(keys.iter().all(is_own), "{keys:?}");
        assert_eq!(keys.iter().collect::<std::collections::BTreeSet<_>>().len(), 8);
    }

    #[test]
    fn shared_keys_have_all_kinds_of_operations_and_unique_values() {
        let mix = Mix::Judged { prefix: "x/".to_owned(), spread: 8, shared: 5, request_bytes: 64 };
        let mut workload = Workload::new(mix, 1, 2);
        let (mut kinds, mut values, mut swaps) = (BTreeMap::new(), Vec::new(), 0);
        let mut model = quorate_history::Model::default();
        for _ in 0..2_000 {
            workload.next(0);
            let op = workload.describe(0, Time(0)).unwrap().op;
            if kind_of(op.key()) != Some(SHARED) {
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
        assert!(swaps > 100, "a swap that expects the last seen value succeeds without other writers");
        let all = values.len();
        values.sort();
        values.dedup();
        assert_eq!(values.len(), all);
    }
}
