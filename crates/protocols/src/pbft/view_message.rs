//! Messages that change the view (`pbft` variant H, §2, §8).
//!
//! A VIEW-CHANGE is signed, because it travels inside NEW-VIEW and ENTRY. P and Q are claims of the sender: no replica can
//! check them, and `select` survives f liars.

use super::certified::{CERTIFIED_MAX, Certified};
use super::kinds::{NEW_VIEW, VIEW_CHANGE};
use quorate_consensus::{CheckpointProof, Claims, Signed};
use quorate_types::codec::{DecodeError, Reader, Wire, put_length, put_list};
use quorate_types::digest::context;
use quorate_types::limits::REPLICAS_MAX;
use quorate_types::{BlockId, Digest, Height, Statement, View};

/// Blocks of one height that Q may name (§8); beyond it the oldest are omitted.
pub(super) const Q_PER_HEIGHT_MAX: usize = 64;
/// Entries of Q that one VIEW-CHANGE may name, on average for each height of the window (§8). A liar must not make a NEW-VIEW
/// so large that its leader can neither record nor send it. An honest replica has more entries only where every height of
/// the window was pre-prepared with so many different blocks and none of them decided. Then it omits the oldest.
const Q_ENTRIES_PER_HEIGHT: usize = 4;

/// Returns the largest number of entries of Q in one VIEW-CHANGE.
pub(super) fn q_entries_max(window: u64) -> usize {
    usize::try_from(window).unwrap_or(usize::MAX).saturating_mul(Q_ENTRIES_PER_HEIGHT)
}

/// Largest size of a VIEW-CHANGE of variant H, in bytes for each height of the window.
pub(super) const VIEW_CHANGE_BYTES_PER_HEIGHT: usize = (1 + Q_ENTRIES_PER_HEIGHT) * ENTRY_BYTES;

/// Largest number of entries of P or Q in one message. The size of a frame is a far tighter bound.
const ENTRIES_MAX: usize = 1 << 20;
/// Bytes of a [`BlockClaim`].
const ENTRY_BYTES: usize = 8 + 32 + 8;
/// Approximate size of a VIEW-CHANGE without its entries, in bytes.
const CHANGE_BYTES: usize = 512;

/// An entry of P or Q: a block, with the latest view in which it prepared (P) or was pre-prepared (Q).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BlockClaim {
    /// Height of the block.
    pub height: Height,
    /// The block.
    pub block: BlockId,
    /// The latest view.
    pub view: View,
}

/// A VIEW-CHANGE: the sender has left all views below this one, and claims P and Q.
#[derive(Clone, PartialEq, Debug)]
pub struct ViewChange {
    /// The view to enter.
    pub view: View,
    /// Proof of the sender's stable checkpoint; its height is h.
    pub proof: CheckpointProof,
    /// P: for each height the block that prepared in the latest view in which one did, by height.
    pub prepared: Vec<BlockClaim>,
    /// Q: blocks that were pre-prepared, by height and block; empty in variant S.
    pub pre_prepared: Vec<BlockClaim>,
    /// Variant S: certificates of the entries of P, in their order; empty in variant H.
    pub certified: Vec<Certified>,
}

/// A NEW-VIEW: the view changes that begin a view, and the blocks that they leave to be decided.
#[derive(Clone, PartialEq, Debug)]
pub struct NewView {
    /// The view.
    pub view: View,
    /// V: at least Q view changes for exactly this view, by sender.
    pub changes: Vec<Signed<ViewChange>>,
    /// X: result of `select`, from the first height above their newest stable checkpoint on.
    pub picks: Vec<(Height, BlockId)>,
}

/// Proof that lets an honest replica into a view, to be checked by a replica that is behind (§8).
#[derive(Clone, PartialEq, Debug)]
pub enum EntryProof {
    /// No proof: for the first view, and for a view entered from it by suspicions.
    Nothing,
    /// The NEW-VIEW of this view, or of the one before.
    NewView(Box<Signed<NewView>>),
    /// Q view changes for the view before or later ones, or f + 1 for this view or later ones.
    ViewChanges(Vec<Signed<ViewChange>>),
}

impl ViewChange {
    /// Returns the statement of the sender: H(h, proof, P, Q) fills the slot of its view.
    #[must_use]
    pub fn statement(&self) -> Statement {
        // The statement is computed often, and its input grows with the window.
        let entries = self.prepared.len().saturating_add(self.pre_prepared.len());
        let mut bytes = Vec::with_capacity(entries.saturating_mul(ENTRY_BYTES).saturating_add(CHANGE_BYTES));
        bytes.extend_from_slice(b"pbft view change");
        self.encode(&mut bytes);
        Statement::new(VIEW_CHANGE, self.view, Height::ZERO, Digest::of(&context::PROTOCOL, &bytes))
    }

    /// Returns h.
    #[must_use]
    pub fn stable(&self) -> Height {
        self.proof.checkpoint.height
    }

    /// Returns the entry of P at a height.
    pub(super) fn prepared_at(&self, height: Height) -> Option<&BlockClaim> {
        let at = self.prepared.binary_search_by_key(&height, |entry| entry.height).ok()?;
        self.prepared.get(at)
    }

    /// Returns the entry of Q for a block at a height.
    pub(super) fn pre_prepared_at(&self, height: Height, block: BlockId) -> Option<&BlockClaim> {
        let key = (height, block);
        let at = self.pre_prepared.binary_search_by_key(&key, |entry| (entry.height, entry.block)).ok()?;
        self.pre_prepared.get(at)
    }

    /// Checks all that §8 demands of a VIEW-CHANGE beyond its signatures.
    pub(super) fn check(&self, window: u64) -> Result<(), &'static str> {
        let stable = self.stable();
        let is_outside = |entry: &&BlockClaim| {
            entry.height <= stable || entry.height.since(stable) > window || entry.view >= self.view
        };
        if self.view == View::ZERO {
            return Err("view change to the first view");
        }
        if self.prepared.iter().chain(&self.pre_prepared).any(|entry| is_outside(&entry)) {
            return Err("entry outside of the view change");
        }
        let ascends = |entries: &[BlockClaim]| {
            entries.windows(2).all(|pair| matches!(pair, [a, b] if a.key() < b.key()))
        };
        // At most one entry of P per height: in this order P is a function of the height.
        let single = self.prepared.windows(2).all(|pair| matches!(pair, [a, b] if a.height < b.height));
        if !single || !ascends(&self.pre_prepared) {
            return Err("entries out of order");
        }
        let crowded = self.pre_prepared.windows(Q_PER_HEIGHT_MAX.saturating_add(1)).any(
            |run| matches!((run.first(), run.last()), (Some(first), Some(last)) if first.height == last.height),
        );
        if crowded {
            return Err("too many blocks at one height");
        }
        if self.pre_prepared.len() > q_entries_max(window) { Err("too many entries") } else { Ok(()) }
    }
}

impl BlockClaim {
    fn key(&self) -> (Height, BlockId) {
        (self.height, self.block)
    }
}

impl NewView {
    /// Returns the statement of the leader: H(V ids, X) fills the slot of its view.
    #[must_use]
    pub fn statement(&self) -> Statement {
        let mut bytes = b"pbft new view".to_vec();
        put_length(&mut bytes, self.changes.len());
        for change in &self.changes {
            change.by.encode(&mut bytes);
            change.body.statement().encode(&mut bytes);
        }
        put_list(&mut bytes, &self.picks);
        Statement::new(NEW_VIEW, self.view, Height::ZERO, Digest::of(&context::PROTOCOL, &bytes))
    }
}

impl EntryProof {
    pub(super) fn claims(&self, claims: &mut Claims<'_>) {
        match self {
            Self::Nothing => {}
            Self::NewView(signed) => {
                claims.signature(signed.by, signed.body.statement(), &signed.signature);
                claim_all(&signed.body.changes, claims);
            }
            Self::ViewChanges(changes) => claim_all(changes, claims),
        }
    }
}

/// Claims every signature of view changes, to be checked before a handler sees the message.
pub(super) fn claim_all(changes: &[Signed<ViewChange>], claims: &mut Claims<'_>) {
    for change in changes {
        claims.signature(change.by, change.body.statement(), &change.signature);
        claims.checkpoint(&change.body.proof);
    }
}

quorate_types::wire_struct!(BlockClaim { height, block, view });

quorate_types::wire_struct!(ViewChange {
    view,
    proof,
    prepared[ENTRIES_MAX, ENTRY_BYTES],
    pre_prepared[ENTRIES_MAX, ENTRY_BYTES],
    certified[CERTIFIED_MAX, CERTIFIED_BYTES_MIN]
});

/// Smallest size of a [`Certified`]: two statements of kind, view, height, scope and subject.
const CERTIFIED_BYTES_MIN: usize = 2 * (8 + 8 + 32 + 32);

/// Smallest size of a signed view change: sender, view, three counts and the signature.
const SIGNED_BYTES_MIN: usize = 2 + 8 + 4 + 4 + 4 + 64;

/// Decodes view changes of distinct senders, in the order of their ids: no sender counts twice.
fn read_changes(reader: &mut Reader<'_>) -> Result<Vec<Signed<ViewChange>>, DecodeError> {
    let changes = reader.list("view changes", REPLICAS_MAX, SIGNED_BYTES_MIN, Wire::decode)?;
    let distinct =
        changes.windows(2).all(|pair: &[Signed<ViewChange>]| matches!(pair, [a, b] if a.by < b.by));
    if distinct { Ok(changes) } else { Err(DecodeError::Value("senders of view changes")) }
}

impl Wire for NewView {
    fn encode(&self, out: &mut Vec<u8>) {
        self.view.encode(out);
        put_list(out, &self.changes);
        put_list(out, &self.picks);
    }
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(Self {
            view: View::decode(reader)?,
            changes: read_changes(reader)?,
            picks: reader.list("picks", ENTRIES_MAX, 8 + 32, Wire::decode)?,
        })
    }
}

impl Wire for EntryProof {
    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Nothing => out.push(0),
            Self::NewView(signed) => {
                out.push(1);
                signed.encode(out);
            }
            Self::ViewChanges(changes) => {
                out.push(2);
                put_list(out, changes);
            }
        }
    }
    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        match reader.u8()? {
            0 => Ok(Self::Nothing),
            1 => Wire::decode(reader).map(Self::NewView),
            2 => read_changes(reader).map(Self::ViewChanges),
            _ => Err(DecodeError::Tag("entry proof")),
        }
    }
}
