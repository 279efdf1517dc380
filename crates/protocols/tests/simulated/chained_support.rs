//! Messages of chained protocols for tests, and a listener that collects all that replicas send.

use quorate_consensus::parts::timeouts::ViewProof;
use quorate_consensus::parts::votes::BlockVote;
use quorate_consensus::{Certificate, Entry, Message, Signed};
pub(crate) use quorate_protocols::chained::{
    Chained, ChainedMessage, Content, HotStuff, HotStuff2, Jolteon, PROPOSE, Rules, VOTE,
};
use quorate_sim::{Frame, Verdict, World};
use quorate_types::wire::frame::PROTOCOL;
use quorate_types::{Block, BlockId, Height, ReplicaId, Signature, View, Wire as _};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

/// Returns the protocol with these rules.
pub(crate) fn entry<R: Rules>() -> &'static Entry {
    quorate_protocols::find(R::SPEC.name.as_str()).unwrap()
}

/// Returns the message with this content.
pub(crate) fn boxed<R: Rules>(content: Content) -> Box<dyn Message> {
    Box::new(ChainedMessage::<R>::from(content))
}

/// Reads the content of a message.
pub(crate) fn read<R: Rules>(bytes: &[u8]) -> Option<Content> {
    ChainedMessage::<R>::from_bytes(bytes).ok().map(Content::from)
}

/// Makes tests of scenarios, one for each rule set.
macro_rules! for_each_rule_set {
    ($($scenario:ident)*) => {
        mod hotstuff {
            $(#[test] fn $scenario() { super::$scenario::<crate::chained_support::HotStuff>(); })*
        }
        mod jolteon {
            $(#[test] fn $scenario() { super::$scenario::<crate::chained_support::Jolteon>(); })*
        }
        mod hotstuff2 {
            $(#[test] fn $scenario() { super::$scenario::<crate::chained_support::HotStuff2>(); })*
        }
    };
}
pub(crate) use for_each_rule_set;

/// The blocks, certificates and votes that replicas have sent.
#[derive(Default)]
pub(crate) struct Listener {
    pub(crate) blocks: BTreeMap<BlockId, Block>,
    certificates: BTreeMap<View, Certificate>,
    /// Votes with their receivers.
    pub(crate) votes: Vec<(ReplicaId, Signed<BlockVote>)>,
    /// The proof of the highest view so far.
    proof: Option<(View, ViewProof)>,
    /// The replica whose messages do not count.
    pub(crate) ignores: Option<ReplicaId>,
}

impl Listener {
    /// Returns the certificate of a view. The listener has checked that there is but one.
    pub(crate) fn certificate(&self, view: View) -> Option<&Certificate> {
        self.certificates.get(&view)
    }

    /// Returns the highest certificate.
    pub(crate) fn high(&self) -> Certificate {
        self.certificates.last_key_value().unwrap().1.clone()
    }

    /// Returns the proof of the highest view.
    pub(crate) fn proof(&self) -> ViewProof {
        self.proof.clone().unwrap().1
    }

    /// Returns the height of a block, zero for one that was not proposed.
    pub(crate) fn height(&self, id: BlockId) -> Height {
        self.blocks.get(&id).map_or(Height::ZERO, |block| block.height)
    }

    /// Returns the highest block that `links` certificates of consecutive views commit.
    pub(crate) fn committed(&self, links: usize) -> Height {
        let heights = self.certificates.values().filter_map(|qc| {
            let mut at = self.blocks.get(&qc.block())?;
            for _ in 1..links {
                let below = self.blocks.get(&at.parent)?;
                if at.view != below.view.next() {
                    return None;
                }
                at = below;
            }
            Some(at.height)
        });
        heights.max().unwrap_or_default()
    }

    fn note_proof(&mut self, proof: &ViewProof) {
        let first = self.certificates.entry(proof.qc.view()).or_insert_with(|| proof.qc.clone());
        assert_eq!(first.block(), proof.qc.block(), "two certificates of one view");
        let failed = proof.timeouts.as_ref().map(|timeouts| timeouts.view).unwrap_or_default();
        let view = proof.qc.view().max(failed).next();
        if self.proof.as_ref().is_none_or(|(highest, _)| view > *highest) {
            self.proof = Some((view, proof.clone()));
        }
    }

    fn note<R: Rules>(&mut self, frame: &Frame) {
        if frame.frame_type != PROTOCOL || self.ignores == Some(frame.from) {
            return;
        }
        let signed = frame.body.split_last_chunk::<64>();
        let content = signed.and_then(|(bytes, signature)| Some((read::<R>(bytes)?, Signature(*signature))));
        match content {
            Some((Content::Propose(block, proof), _)) => {
                self.note_proof(&proof);
                self.blocks.insert(block.id(), block);
            }
            Some((Content::Vote(body), signature)) => {
                self.votes.push((frame.to, Signed { body, by: frame.from, signature }));
            }
            Some((Content::Timeout(_, proof, last_vote), _)) => {
                self.note_proof(&proof);
                self.votes.extend(last_vote.map(|vote| (frame.to, vote)));
            }
            Some((Content::Advance(_), _)) => panic!("an ADVANCE has no signature"),
            None => {
                if let Some(Content::Advance(proof)) = read::<R>(&frame.body) {
                    self.note_proof(&proof);
                }
            }
        }
    }
}

/// Listens to all frames; `judge` decides about each of them.
pub(crate) fn listen<R: Rules>(
    world: &mut World,
    mut judge: impl FnMut(&Frame, &Listener) -> Verdict + 'static,
) -> Rc<RefCell<Listener>> {
    let listener = Rc::new(RefCell::new(Listener::default()));
    let shared = Rc::clone(&listener);
    world.hook(move |_, frame| {
        let mut listener = shared.borrow_mut();
        listener.note::<R>(frame);
        judge(frame, &listener)
    });
    listener
}
