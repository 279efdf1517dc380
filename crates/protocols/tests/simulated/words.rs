//! What chained protocols say, read and written alike for both of them, and an ear for all that is said.

use quorate_consensus::parts::timeouts::ViewProof;
use quorate_consensus::parts::votes::BlockVote;
use quorate_consensus::parts::words;
pub(crate) use quorate_consensus::parts::words::Said;
use quorate_consensus::{Certificate, Examined, Message, Signed};
use quorate_protocols::{hotstuff, jolteon};
use quorate_sim::{Frame, Verdict, World};
use quorate_types::wire::frame::PROTOCOL;
use quorate_types::{Block, BlockId, Height, Kind, ReplicaId, Signature, View, Wire as _};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

/// How to speak a chained protocol.
pub(crate) trait Words: Default + Send + 'static {
    type Protocol: Examined<Message = Self::Message>;
    type Message: words::Words;
    const NAME: &'static str;
    /// Certificates in a row of views that commit.
    const LINKS: usize;
    const PROPOSE: Kind = <Self::Message as words::Words>::PROPOSE;
    const VOTE: Kind = <Self::Message as words::Words>::VOTE;
    const GIVE_UP: Kind = <Self::Message as words::Words>::GIVE_UP;
    const SHOW: Kind = <Self::Message as words::Words>::SHOW;

    fn message(said: Said) -> Self::Message {
        said.into()
    }

    fn said(message: Self::Message) -> Said {
        message.into()
    }

    fn say(said: Said) -> Box<dyn Message> {
        Box::new(Self::message(said))
    }

    fn read(bytes: &[u8]) -> Option<Said> {
        Self::Message::from_bytes(bytes).ok().map(Self::said)
    }
}

#[derive(Default)]
pub(crate) struct HotStuff;

impl Words for HotStuff {
    type Protocol = hotstuff::HotStuff;
    type Message = hotstuff::HotStuffMessage;
    const NAME: &'static str = "hotstuff";
    const LINKS: usize = 3;
}

#[derive(Default)]
pub(crate) struct Jolteon;

impl Words for Jolteon {
    type Protocol = jolteon::Jolteon;
    type Message = jolteon::JolteonMessage;
    const NAME: &'static str = "jolteon";
    const LINKS: usize = 2;
}

/// Makes tests of scenarios: each for both.
macro_rules! both_chained {
    ($($scenario:ident)*) => {
        mod hotstuff {
            $(#[test] fn $scenario() { super::$scenario::<crate::words::HotStuff>(); })*
        }
        mod jolteon {
            $(#[test] fn $scenario() { super::$scenario::<crate::words::Jolteon>(); })*
        }
    };
}
pub(crate) use both_chained;

/// All that replicas have said to each other.
#[derive(Default)]
pub(crate) struct Ear {
    pub(crate) blocks: BTreeMap<BlockId, Block>,
    certificates: BTreeMap<View, Certificate>,
    pub(crate) votes: Vec<(ReplicaId, Signed<BlockVote>)>,
    /// What lets into the highest view so far.
    proof: Option<(View, ViewProof)>,
    /// Whose words are not listened to.
    pub(crate) ignores: Option<ReplicaId>,
}

impl Ear {
    /// The certificate of a view. That there is but one in each was looked at.
    pub(crate) fn certificate(&self, view: View) -> Option<&Certificate> {
        self.certificates.get(&view)
    }

    /// The highest certificate.
    pub(crate) fn high(&self) -> Certificate {
        self.certificates.last_key_value().unwrap().1.clone()
    }

    /// What lets into the highest view.
    pub(crate) fn proof(&self) -> ViewProof {
        self.proof.clone().unwrap().1
    }

    /// The height of a block; zero for one that nobody has proposed.
    pub(crate) fn height(&self, id: BlockId) -> Height {
        self.blocks.get(&id).map_or(Height::ZERO, |block| block.height)
    }

    /// The highest block that the certificates so far commit by `links` of them in a row of views.
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

    fn hear_proof(&mut self, proof: &ViewProof) {
        let first = self.certificates.entry(proof.qc.view()).or_insert_with(|| proof.qc.clone());
        assert_eq!(first.block(), proof.qc.block(), "two certificates of one view");
        let given_up = proof.timeouts.as_ref().map(|timeouts| timeouts.view).unwrap_or_default();
        let view = proof.qc.view().max(given_up).next();
        if self.proof.as_ref().is_none_or(|(highest, _)| view > *highest) {
            self.proof = Some((view, proof.clone()));
        }
    }

    fn hear<W: Words>(&mut self, frame: &Frame) {
        if frame.frame_type != PROTOCOL || self.ignores == Some(frame.from) {
            return;
        }
        let signed = frame.body.split_last_chunk::<64>();
        let said = signed.and_then(|(bytes, signature)| Some((W::read(bytes)?, Signature(*signature))));
        match said {
            Some((Said::Propose(block, proof), _)) => {
                self.hear_proof(&proof);
                self.blocks.insert(block.id(), block);
            }
            Some((Said::Vote(body), signature)) => {
                self.votes.push((frame.to, Signed { body, by: frame.from, signature }));
            }
            Some((Said::GiveUp(_, proof, last_vote), _)) => {
                self.hear_proof(&proof);
                self.votes.extend(last_vote.map(|vote| (frame.to, vote)));
            }
            Some((Said::Show(_), _)) => panic!("what is shown has no signature"),
            None => {
                if let Some(Said::Show(proof)) = W::read(&frame.body) {
                    self.hear_proof(&proof);
                }
            }
        }
    }
}

/// Hears all that leaves; `judge` says what becomes of it.
pub(crate) fn listen<W: Words>(
    world: &mut World,
    mut judge: impl FnMut(&Frame, &Ear) -> Verdict + 'static,
) -> Rc<RefCell<Ear>> {
    let ear = Rc::new(RefCell::new(Ear::default()));
    let shared = Rc::clone(&ear);
    world.hook(move |_, frame| {
        let mut ear = shared.borrow_mut();
        ear.hear::<W>(frame);
        judge(frame, &ear)
    });
    ear
}
