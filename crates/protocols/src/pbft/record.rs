//! Facts that survive a crash (§4), among them the sets Q and P, which view changes name.

use super::certified::Certified;
use super::variant::Variant;
use super::view_message::{EntryProof, NewView, ViewChange};
use super::{Instance, Pbft};
use crate::encoding::variants;
use quorate_consensus::{Record, RecordKey};
use quorate_types::{BlockId, Digest, Height, View};

/// A fact that is recorded before a message that rests on it leaves.
#[derive(Clone, PartialEq, Debug)]
pub enum PbftRecord {
    /// An entry of Q: the latest view in which this block was pre-prepared at this replica. Before PRE-PREPARE, PREPARE and the
    /// NEW-VIEW that takes it over.
    PrePrepared {
        /// Height of the block.
        height: Height,
        /// The block.
        block: BlockId,
        /// The latest view.
        view: View,
    },
    /// The entry of P: the block that prepared at this replica in the latest view in which one did. Before COMMIT.
    Prepared {
        /// Height of the block.
        height: Height,
        /// The block.
        block: BlockId,
        /// The latest view.
        view: View,
        /// Its certificates, in variant S.
        certified: Option<Box<Certified>>,
    },
    /// The current view, whether it has begun here, and the proof that let this replica in. Before any message of the view. A
    /// NEW-VIEW as proof names the blocks that the view takes over.
    Entered {
        /// The view.
        view: View,
        /// Whether the view has begun at this replica.
        normal: bool,
        /// The proof.
        proof: EntryProof,
    },
    /// The own VIEW-CHANGE, to be sent again unchanged. Its signature is made again: one key signs the same bytes the same way.
    ViewChange(Box<ViewChange>),
    /// The own NEW-VIEW, to be sent again unchanged.
    NewView(Box<NewView>),
}

const PRE_PREPARED: u8 = 1;
const PREPARED: u8 = 2;
const ENTERED: u8 = 3;
const CHANGE: u8 = 4;
const NEW: u8 = 5;

impl Record for PbftRecord {
    fn key(&self) -> RecordKey {
        // The next view supersedes facts about a view; no checkpoint does.
        let latest = |kind| RecordKey { kind, height: Height::ZERO, scope: Digest::ZERO };
        match self {
            // Q has an entry for each block, P one for each height.
            Self::PrePrepared { height, block, .. } => {
                RecordKey { kind: PRE_PREPARED, height: *height, scope: block.0 }
            }
            Self::Prepared { height, .. } => {
                RecordKey { kind: PREPARED, height: *height, scope: Digest::ZERO }
            }
            Self::Entered { .. } => latest(ENTERED),
            Self::ViewChange(_) => latest(CHANGE),
            Self::NewView(_) => latest(NEW),
        }
    }
}

variants!(PbftRecord, "pbft record":
    PRE_PREPARED = PrePrepared { height, block, view },
    PREPARED = Prepared { height, block, view, certified },
    ENTERED = Entered { view, normal, proof },
    CHANGE = ViewChange(change),
    NEW = NewView(new),
);

impl Instance {
    /// Returns whether Q names this block with this view.
    pub(super) fn is_pre_prepared(&self, block: BlockId, view: View) -> bool {
        self.pre_prepared.contains(&(block, view))
    }

    /// Returns the block that Q names with this view.
    pub(super) fn pre_prepared_in(&self, view: View) -> Option<BlockId> {
        self.pre_prepared.iter().find(|(_, latest)| *latest == view).map(|(block, _)| *block)
    }

    /// Enters a block into Q and returns the record.
    pub(super) fn pre_prepare(&mut self, height: Height, block: BlockId, view: View) -> PbftRecord {
        match self.pre_prepared.iter_mut().find(|(known, _)| *known == block) {
            Some((_, latest)) => *latest = view,
            None => self.pre_prepared.push((block, view)),
        }
        PbftRecord::PrePrepared { height, block, view }
    }

    /// Enters a block into P and returns the record.
    pub(super) fn prepare(
        &mut self,
        height: Height,
        block: BlockId,
        view: View,
        certified: Option<Certified>,
    ) -> PbftRecord {
        self.prepared = Some((block, view));
        self.certified = certified.map(Box::new);
        PbftRecord::Prepared { height, block, view, certified: self.certified.clone() }
    }
}

impl<V: Variant> Pbft<V> {
    /// Restores Q, P and the view from the log.
    pub(super) fn restore(&mut self, records: Vec<PbftRecord>) {
        for record in records {
            match record {
                PbftRecord::PrePrepared { height, block, view } => {
                    self.instance(height).pre_prepared.push((block, view));
                }
                PbftRecord::Prepared { height, block, view, certified } => {
                    let instance = self.instance(height);
                    instance.prepared = Some((block, view));
                    instance.certified = certified;
                }
                PbftRecord::Entered { view, normal, proof } => {
                    self.current.view = view;
                    self.current.normal = normal;
                    self.current.proof = proof;
                }
                PbftRecord::ViewChange(change) => self.changes.own = Some(change),
                PbftRecord::NewView(new) => self.changes.own_new_view = Some(new),
            }
        }
        self.low_view = self.lowest_view();
    }

    /// Returns the lowest view that P or Q names above the stable checkpoint, or the current one (§2: window, floors).
    pub(super) fn lowest_view(&self) -> View {
        let named = self.instances.values().flat_map(|instance| {
            instance.pre_prepared.iter().map(|(_, view)| *view).chain(instance.prepared.map(|(_, view)| view))
        });
        named.min().unwrap_or(self.current.view).min(self.current.view)
    }
}
