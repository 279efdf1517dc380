//! What must survive a crash (§4), and what a view change reads: the sets Q and P.

use super::certified::Certified;
use super::variant::Variant;
use super::view_message::{Evidence, NewView, ViewChange};
use super::{Instance, Pbft};
use quorate_consensus::{Record, RecordKey};
use quorate_types::codec::{DecodeError, Reader, Wire};
use quorate_types::{BlockId, Digest, Height, View};

/// A fact that is written down before a message that rests on it leaves.
#[derive(Clone, PartialEq, Debug)]
pub enum PbftRecord {
    /// An entry of Q: the latest view in which this block was pre-prepared here. Before PRE-PREPARE, PREPARE and
    /// the NEW-VIEW that takes it over.
    PrePrepared {
        /// At which height.
        height: Height,
        /// Which block.
        block: BlockId,
        /// In which view, the latest.
        view: View,
    },
    /// The entry of P: what prepared here in the latest view in which anything did. Before COMMIT.
    Prepared {
        /// At which height.
        height: Height,
        /// Which block.
        block: BlockId,
        /// In which view, the latest.
        view: View,
        /// What shows it, in variant S.
        certified: Option<Box<Certified>>,
    },
    /// The current view, whether it has begun here, and why this replica is in it. Before any message of the view.
    /// With a NEW-VIEW as evidence it says what the view takes over.
    Entered {
        /// The view.
        view: View,
        /// Whether it has begun here.
        normal: bool,
        /// What let this replica in.
        evidence: Evidence,
    },
    /// The own VIEW-CHANGE, to be said again word for word. Its signature is made again: one key signs the same
    /// bytes the same way.
    ViewChange(Box<ViewChange>),
    /// The own NEW-VIEW, to be said again word for word.
    NewView(Box<NewView>),
}

const PRE_PREPARED: u8 = 1;
const PREPARED: u8 = 2;
const ENTERED: u8 = 3;
const CHANGE: u8 = 4;
const NEW: u8 = 5;

impl Record for PbftRecord {
    fn key(&self) -> RecordKey {
        // What is said of a view is superseded by the next view, and by no checkpoint.
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

impl Wire for PbftRecord {
    fn encode(&self, out: &mut Vec<u8>) {
        out.push(self.key().kind);
        match self {
            Self::PrePrepared { height, block, view } => {
                height.encode(out);
                block.encode(out);
                view.encode(out);
            }
            Self::Prepared { height, block, view, certified } => {
                height.encode(out);
                block.encode(out);
                view.encode(out);
                certified.is_some().encode(out);
                if let Some(certified) = certified {
                    certified.encode(out);
                }
            }
            Self::Entered { view, normal, evidence } => {
                view.encode(out);
                normal.encode(out);
                evidence.encode(out);
            }
            Self::ViewChange(change) => change.encode(out),
            Self::NewView(new) => new.encode(out),
        }
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        Ok(match reader.u8()? {
            PRE_PREPARED => Self::PrePrepared {
                height: Height::decode(reader)?,
                block: BlockId::decode(reader)?,
                view: View::decode(reader)?,
            },
            PREPARED => Self::Prepared {
                height: Height::decode(reader)?,
                block: BlockId::decode(reader)?,
                view: View::decode(reader)?,
                certified: match reader.bool()? {
                    true => Some(Box::new(Certified::decode(reader)?)),
                    false => None,
                },
            },
            ENTERED => Self::Entered {
                view: View::decode(reader)?,
                normal: reader.bool()?,
                evidence: Evidence::decode(reader)?,
            },
            CHANGE => Self::ViewChange(Box::new(ViewChange::decode(reader)?)),
            NEW => Self::NewView(Box::new(NewView::decode(reader)?)),
            _ => return Err(DecodeError::Tag("pbft record")),
        })
    }
}

impl Instance {
    /// Whether Q says that this block was pre-prepared here in this view.
    pub(super) fn is_pre_prepared(&self, block: BlockId, view: View) -> bool {
        self.pre_prepared.contains(&(block, view))
    }

    /// What Q says was pre-prepared here in this view.
    pub(super) fn pre_prepared_in(&self, view: View) -> Option<BlockId> {
        self.pre_prepared.iter().find(|(_, latest)| *latest == view).map(|(block, _)| *block)
    }

    /// Enters a block into Q and says what to write down.
    pub(super) fn pre_prepare(&mut self, height: Height, block: BlockId, view: View) -> PbftRecord {
        match self.pre_prepared.iter_mut().find(|(known, _)| *known == block) {
            Some((_, latest)) => *latest = view,
            None => self.pre_prepared.push((block, view)),
        }
        PbftRecord::PrePrepared { height, block, view }
    }

    /// Enters a block into P and says what to write down.
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
    /// Takes Q, P and the view back from the log.
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
                PbftRecord::Entered { view, normal, evidence } => {
                    self.view = view;
                    self.normal = normal;
                    self.evidence = evidence;
                }
                PbftRecord::ViewChange(change) => self.own_change = Some(change),
                PbftRecord::NewView(new) => self.own_new_view = Some(new),
            }
        }
        self.low_view = self.lowest_view();
    }

    /// The lowest view that P or Q names above the stable checkpoint, or the current one (§2: window, floors).
    pub(super) fn lowest_view(&self) -> View {
        let named = self.instances.values().flat_map(|instance| {
            instance.pre_prepared.iter().map(|(_, view)| *view).chain(instance.prepared.map(|(_, view)| view))
        });
        named.min().unwrap_or(self.view).min(self.view)
    }
}
