//! What chained protocols say, in words that all of them have: for whatever concerns all of them alike.
//!
//! Each protocol has messages of its own, named as its paper names them. Attacks and tests are written once, in these.

use super::timeouts::ViewProof;
use super::votes::BlockVote;
use crate::message::{Message, Signed};
use quorate_types::{Block, Kind, View};

/// A message.
#[derive(Clone, PartialEq, Debug)]
pub enum Said {
    /// The leader of a view: vote for this block, which rests on what lets into the view.
    Propose(Block, ViewProof),
    /// I vote for this block.
    Vote(BlockVote),
    /// This view, which that let me into, leads to nothing; and my last vote.
    GiveUp(View, ViewProof, Option<Signed<BlockVote>>),
    /// Why I am in my view.
    Show(ViewProof),
}

/// A protocol's messages.
pub trait Words: Message + Clone + From<Said> + Into<Said> {
    /// The statement of a proposal.
    const PROPOSE: Kind;
    /// The statement of a vote.
    const VOTE: Kind;
    /// The statement that gives a view up.
    const GIVE_UP: Kind;
    /// What shows why one is in one's view.
    const SHOW: Kind;
}
