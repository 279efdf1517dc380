//! The trace of a run: a running hash of every transition, always; one line for each, when somebody wants them.
//!
//! What feeds the hash is bytes and never the lines, so the hash of a seed is the same whether or not anyone
//! reads along.

use quorate_types::digest::Context;
use quorate_types::{Digest, DigestWriter, ReplicaId, Time};
use std::fmt;

static CONTEXT: Context = Context::new("quorate simulation trace v1");
/// The hash function is fastest on large pieces.
const PIECE_BYTES: usize = 16 << 10;

/// Who does something.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Who {
    /// The world: faults begin and end.
    World,
    /// A replica.
    Replica(ReplicaId),
    /// A client, by its place in the world.
    Client(usize),
}

impl fmt::Display for Who {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self {
            Self::World => "world".to_owned(),
            Self::Replica(id) => format!("r{id}"),
            Self::Client(index) => format!("c{index}"),
        };
        f.pad(&text)
    }
}

impl Who {
    fn tag(self) -> [u8; 9] {
        let (kind, number) = match self {
            Self::World => (0, 0),
            Self::Replica(id) => (1, u64::from(id.0)),
            Self::Client(index) => (2, u64::try_from(index).unwrap_or(u64::MAX)),
        };
        let [a, b, c, d, e, f, g, h] = number.to_le_bytes();
        [kind, a, b, c, d, e, f, g, h]
    }
}

/// Who reads along, line by line.
pub(crate) type Reader = Box<dyn FnMut(&str)>;

/// See the module.
pub struct Trace {
    hash: DigestWriter,
    piece: Vec<u8>,
    reader: Option<Reader>,
    count: u64,
}

impl fmt::Debug for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Trace({} transitions)", self.count)
    }
}

impl Default for Trace {
    fn default() -> Self {
        Self {
            hash: DigestWriter::new(&CONTEXT),
            piece: Vec::with_capacity(PIECE_BYTES.saturating_mul(2)),
            reader: None,
            count: 0,
        }
    }
}

impl Trace {
    /// From now on every transition is told to `reader` as one line of fixed columns.
    pub fn read_along(&mut self, reader: impl FnMut(&str) + 'static) {
        self.reader = Some(Box::new(reader));
    }

    /// Notes a transition: `bytes` feed the hash, `detail` is for people.
    pub(crate) fn note(
        &mut self,
        now: Time,
        who: Who,
        what: &'static str,
        bytes: &[&[u8]],
        detail: impl FnOnce() -> String,
    ) {
        self.count = self.count.saturating_add(1);
        self.piece.extend_from_slice(&now.0.to_le_bytes());
        self.piece.extend_from_slice(&who.tag());
        self.put(what.as_bytes());
        for bytes in bytes {
            self.put(bytes);
        }
        if self.piece.len() >= PIECE_BYTES {
            self.hash.update(&self.piece);
            self.piece.clear();
        }
        if let Some(reader) = &mut self.reader {
            let (seconds, rest) = (now.0 / 1_000_000_000, now.0 % 1_000_000_000);
            let line = format!("{seconds:>5}.{rest:09}  {who:<5}  {what:<10}  {}", detail());
            reader(line.trim_end());
        }
    }

    fn put(&mut self, bytes: &[u8]) {
        let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        self.piece.extend_from_slice(&length.to_le_bytes());
        self.piece.extend_from_slice(bytes);
    }

    /// How many transitions there were.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The hash of all transitions so far.
    #[must_use]
    pub fn hash(&self) -> Digest {
        let mut whole = self.hash.clone();
        whole.update(&self.piece);
        whole.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;
    use std::rc::Rc;

    fn run(trace: &mut Trace, steps: u64) {
        for step in 0..steps {
            let bytes = step.to_le_bytes();
            trace.note(Time(step), Who::Client(3), "sends", &[&bytes], || format!("step {step}"));
        }
    }

    #[test]
    fn reading_along_changes_nothing() {
        let lines = Rc::new(RefCell::new(Vec::new()));
        let (mut silent, mut loud) = (Trace::default(), Trace::default());
        let written = Rc::clone(&lines);
        loud.read_along(move |line| written.borrow_mut().push(line.to_owned()));
        run(&mut silent, 2_000);
        run(&mut loud, 2_000);
        assert_eq!(silent.hash(), loud.hash());
        assert_eq!(lines.borrow()[7], "    0.000000007  c3     sends       step 7");
    }

    #[test]
    fn every_byte_counts() {
        let hash = |who, bytes: &[&[u8]]| {
            let mut trace = Trace::default();
            trace.note(Time(1), who, "x", bytes, String::new);
            trace.hash()
        };
        let base = hash(Who::Client(1), &[b"ab", b"c"]);
        assert_ne!(base, hash(Who::Client(1), &[b"a", b"bc"]));
        assert_ne!(base, hash(Who::Client(2), &[b"ab", b"c"]));
        assert_ne!(base, hash(Who::Replica(ReplicaId(1)), &[b"ab", b"c"]));
    }
}
