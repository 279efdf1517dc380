//! Attacks on Artemis: the exam's `own` host runs them. Sections are those of `artemis`.
//!
//! | attack | against |
//! |---|---|
//! | equivocate | one vote in a round (§8): votes of all kinds, on any parents that it can prove, one of them or none to each replica |
//! | late votes | the wait for a voter (§7): votes and blocks arrive after later messages |
//! | told to one | knowledge of one replica alone (§6): votes, relays and blocks for one replica in each view |
//! | false blames | skip certificates of f + 1 blames (§8): blames each round that it knows of |
//! | unanswered | fetches within the grace (§7): answers no question for votes or blocks |
//! | false flags | flags of f voters (§2): flags the coordinator in each turn, whatever it has sent |
//! | endorse alone | progress by others (§6): endorses in each turn, whatever the coordinator has sent |
//! | older branch | the unique chain (§3): votes for older blocks, and on older votes |
//! | silent coordinator | flags of f + 1 voters (§8): sends no block |
//! | slow coordinator | the silence S (§5): sends each block after later messages |
//! | two halves | one block in a slot (§5): two blocks for each height, one to each half of the replicas |
//! | random subsets | fetches of blocks (§6): sends each block to some replicas |
//! | forgetting | votes that others have forgotten (§16): answers recovering peers that it runs, and shows nothing |

use super::super::attack_memory::{KnownSkips, LateMessages, REMEMBERED};
use super::super::entry::{Entry as _, EntryRef, Framed, RoundProof, skips_digest};
use super::super::message::{Answer, UniqueMessage};
use super::message::{ArtemisMessage, CBlock};
use super::vote::{Evidence, Vote, VoteKind};
use crate::attack_table::{attack_table, other};
use quorate_consensus::parts::recovery::RecoveryStage;
use quorate_consensus::{AttackEntry, Message as _, Retelling, Scene, Signed};
use quorate_types::{Block, BlockId, Height, ReplicaId, View};
use std::collections::{BTreeMap, VecDeque};

type Message = UniqueMessage<Vote, ArtemisMessage>;
type Own = Retelling<Message, Message, Memory>;

/// Votes that an equivocating voter signs in one round.
const VOTES: usize = 4;
/// Probability in millionths that a late message follows another one.
const LATE_PPM: u32 = 150_000;
/// Probability in millionths that a replica receives a block of a coordinator that serves some.
const SERVED_PPM: u32 = 500_000;
/// Consecutive rounds in which one replica alone receives everything.
const ROUNDS_FOR_ONE: u64 = 3;

/// The attacks on Artemis.
pub(super) const ATTACKS: &[AttackEntry] = attack_table! { Own, hears remember:
    "equivocate" = equivocate, "Signs up to four votes in each of its rounds, of all kinds and on different parents.";
    "late votes" = vote_late, "Sends its votes and blocks after later messages.";
    "told to one" = tell_one, "Sends votes, relays and blocks to one replica alone.";
    "false blames" = blame_all, "Blames every voter towards all replicas.";
    "unanswered" = answer_nothing, "Answers no question for votes or blocks.";
    "false flags" = flag_always, "Flags the coordinator in each of its rounds.";
    "endorse alone" = endorse_always, "Endorses in each of its rounds, whatever the coordinator has sent.";
    "older branch" = vote_for_older, "Votes for older blocks, and on older votes.";
    "silent coordinator" = coordinate_nothing, "Sends no block.";
    "slow coordinator" = coordinate_late, "Sends its blocks after later messages.";
    "two halves" = coordinate_two_halves, "Sends two blocks for each height, one to each half of the replicas.";
    "random subsets" = coordinate_some, "Sends each block to some replicas.";
    "forgetting" = forget, "Answers recovering peers with no content.";
};

/// Memory of an attacker.
#[derive(Default)]
struct Memory {
    /// Known votes, by round.
    votes: BTreeMap<View, Vec<Vote>>,
    skips: KnownSkips,
    /// Known heads of votes, in the order of their arrival.
    heads: VecDeque<BlockId>,
    /// Votes of the rounds in which it is the voter.
    signed: BTreeMap<View, Vec<Message>>,
    /// Own blocks by height and id, each with the second block at its place.
    doubles: BTreeMap<(Height, BlockId), (CBlock, CBlock)>,
    late: LateMessages<Message>,
}

impl Memory {
    fn note_vote(&mut self, vote: &Vote) {
        let of_round = self.votes.entry(vote.round).or_default();
        if of_round.len() < VOTES && !of_round.contains(vote) {
            of_round.push(vote.clone());
        }
        if !self.heads.contains(&vote.block) {
            self.heads.push_back(vote.block);
        }
        while self.votes.len() > REMEMBERED {
            self.votes.pop_first();
        }
        while self.heads.len() > REMEMBERED {
            self.heads.pop_front();
        }
    }

    /// Remembers the content of a message.
    fn note(&mut self, message: &Message) {
        match message {
            UniqueMessage::Entry { entry, skips } => {
                self.note_vote(entry);
                self.skips.note(skips);
            }
            UniqueMessage::Proof(proof) | UniqueMessage::Blame(proof) => {
                self.skips.note(&proof.skips);
                if let Some(tip) = &proof.tip {
                    self.note_vote(&tip.entry);
                    self.skips.note(&tip.skips);
                }
            }
            _ => {}
        }
    }

    /// Returns endorsing votes on every earlier vote that it may extend, the lowest first.
    fn on_all_parents(&self, vote: &Vote) -> Vec<Message> {
        let parents = self.votes.range(..vote.round).flat_map(|(_, votes)| votes);
        let extended = parents.filter(|parent| parent.place() != vote.parent).filter_map(|parent| {
            let skips = self.skips.between(parent.round, vote.round)?;
            let (place, view, block) = (parent.place(), parent.view, parent.block);
            let kind = VoteKind::Endorse;
            let entry =
                Vote { parent: place, skips: skips_digest(&skips), view, block, kind, ..vote.clone() };
            Some(UniqueMessage::Entry { entry, skips })
        });
        extended.collect()
    }

    /// Returns the head of the parent of a vote, if it is known.
    fn head_below(&self, parent: EntryRef) -> Option<BlockId> {
        if parent == EntryRef::GENESIS {
            return Some(BlockId::ZERO);
        }
        let votes = self.votes.get(&parent.round)?;
        votes.iter().find(|vote| vote.place() == parent).map(|vote| vote.block)
    }

    /// Returns the same vote with this kind for the head of its parent.
    fn on_head(&self, vote: &Vote, kind: VoteKind) -> Option<Vote> {
        Some(Vote { block: self.head_below(vote.parent)?, kind, ..vote.clone() })
    }

    /// Returns the votes of one round, made once: all replicas hear of the same ones.
    fn of_round(&mut self, vote: &Vote, make: impl FnOnce(&mut Self) -> Vec<Message>) -> Vec<Message> {
        if !self.signed.contains_key(&vote.round) {
            let all = make(self);
            all.iter().for_each(|message| self.note(message));
            self.signed.insert(vote.round, all);
        }
        while self.signed.len() > REMEMBERED {
            self.signed.pop_first();
        }
        self.signed.get(&vote.round).cloned().unwrap_or_default()
    }

    /// Returns the second block at the place of an own one, on the second branch.
    fn double(&mut self, first: &CBlock) -> CBlock {
        let Block { height, parent, .. } = first.block;
        let below = self.doubles.get(&(height.minus(1), parent)).map(|(_, second)| second.block.id());
        let mut block = other(&first.block);
        block.parent = below.unwrap_or(parent);
        let second = CBlock { block, anchor: first.anchor };
        self.doubles.insert((height, first.block.id()), (first.clone(), second.clone()));
        while self.doubles.len() > REMEMBERED {
            self.doubles.pop_first();
        }
        second
    }
}

/// Remembers a message to the attacker. Its own messages do not show the parents of its votes.
fn remember(memory: &mut Memory, heard: Message) {
    memory.note(&heard);
}

fn signed(body: CBlock, scene: &Scene<'_>) -> Signed<CBlock> {
    let signature = (scene.sign)(&body.statement());
    Signed { body, by: scene.me, signature }
}

/// Returns evidence against itself.
fn own_evidence((first, second): &(CBlock, CBlock), scene: &Scene<'_>) -> VoteKind {
    let evidence = Evidence { first: signed(first.clone(), scene), second: signed(second.clone(), scene) };
    VoteKind::Equivocation(Box::new(evidence))
}

fn is_block(message: &Message) -> bool {
    matches!(message, UniqueMessage::Own(ArtemisMessage::CBlock(_)))
}

fn equivocate(memory: &mut Memory, scene: &mut Scene<'_>, _: ReplicaId, said: Message) -> Vec<Message> {
    memory.note(&said);
    if let UniqueMessage::Own(ArtemisMessage::CBlock(block)) = &said {
        memory.double(block);
    }
    let UniqueMessage::Entry { entry, skips } = &said else { return vec![said] };
    let own = memory.doubles.values().rev().find(|(first, _)| first.block.view == entry.view);
    let own = own.map(|blocks| own_evidence(blocks, scene));
    let mut all = memory.of_round(entry, |memory| {
        let again = |entry: Vote| UniqueMessage::Entry { entry, skips: skips.clone() };
        let kinds = [VoteKind::NoProgress, VoteKind::Endorse].into_iter().chain(own);
        let others = kinds.filter_map(|kind| memory.on_head(entry, kind)).map(again);
        let older = memory.on_all_parents(entry).into_iter().take(1);
        std::iter::once(said.clone()).chain(others).chain(older).collect()
    });
    let chosen = scene.rng.index(all.len().saturating_add(1));
    if chosen < all.len() { vec![all.swap_remove(chosen)] } else { Vec::new() }
}

fn vote_late(memory: &mut Memory, scene: &mut Scene<'_>, to: ReplicaId, said: Message) -> Vec<Message> {
    postponed(memory, scene, to, said, |message| {
        matches!(message, UniqueMessage::Entry { .. }) || is_block(message)
    })
}

fn coordinate_late(memory: &mut Memory, scene: &mut Scene<'_>, to: ReplicaId, said: Message) -> Vec<Message> {
    postponed(memory, scene, to, said, is_block)
}

/// Sends some messages after later ones.
fn postponed(
    memory: &mut Memory,
    scene: &mut Scene<'_>,
    to: ReplicaId,
    said: Message,
    is_late: fn(&Message) -> bool,
) -> Vec<Message> {
    let late = if scene.rng.chance(LATE_PPM) { memory.late.take(to) } else { None };
    let mut all: Vec<Message> = late.into_iter().collect();
    if is_late(&said) && scene.rng.chance(2 * LATE_PPM) {
        memory.late.postpone(to, said);
    } else {
        all.insert(0, said);
    }
    all
}

fn tell_one(_: &mut Memory, scene: &mut Scene<'_>, to: ReplicaId, said: Message) -> Vec<Message> {
    let is_for_one = matches!(said, UniqueMessage::Entry { .. } | UniqueMessage::Proof(_)) || is_block(&said);
    let one = scene.committee.rotate(said.place().view.0 / ROUNDS_FOR_ONE);
    if is_for_one && one != to { Vec::new() } else { vec![said] }
}

fn blame_all(_: &mut Memory, scene: &mut Scene<'_>, _: ReplicaId, said: Message) -> Vec<Message> {
    let proof = match &said {
        UniqueMessage::Entry { entry, skips } => {
            let signature = (scene.sign)(&entry.statement());
            let tip = Framed { entry: entry.clone(), skips: skips.clone(), signature };
            let round = entry.round.next();
            Some(RoundProof { round, tip: Some(tip), skips: Vec::new(), resync: false })
        }
        UniqueMessage::Proof(proof) => Some(RoundProof::clone(proof)),
        _ => None,
    };
    let blame = proof.map(|proof| UniqueMessage::Blame(Box::new(proof)));
    std::iter::once(said).chain(blame).collect()
}

fn answer_nothing(_: &mut Memory, _: &mut Scene<'_>, _: ReplicaId, said: Message) -> Vec<Message> {
    match said {
        UniqueMessage::Entries { .. } | UniqueMessage::Own(ArtemisMessage::Blocks { .. }) => Vec::new(),
        other => vec![other],
    }
}

/// Casts a vote of one kind in each round, for the head of its parent.
fn always(memory: &mut Memory, said: Message, kind: VoteKind) -> Vec<Message> {
    memory.note(&said);
    let UniqueMessage::Entry { entry, skips } = &said else { return vec![said] };
    memory.of_round(entry, |memory| match memory.on_head(entry, kind) {
        Some(entry) => vec![UniqueMessage::Entry { entry, skips: skips.clone() }],
        None => vec![said.clone()],
    })
}

fn flag_always(memory: &mut Memory, _: &mut Scene<'_>, _: ReplicaId, said: Message) -> Vec<Message> {
    always(memory, said, VoteKind::NoProgress)
}

fn endorse_always(memory: &mut Memory, _: &mut Scene<'_>, _: ReplicaId, said: Message) -> Vec<Message> {
    always(memory, said, VoteKind::Endorse)
}

fn vote_for_older(memory: &mut Memory, scene: &mut Scene<'_>, _: ReplicaId, said: Message) -> Vec<Message> {
    memory.note(&said);
    let UniqueMessage::Entry { entry, skips } = &said else { return vec![said] };
    let is_older_parent = scene.rng.chance(SERVED_PPM);
    let head = memory.heads.get(scene.rng.index(memory.heads.len().max(1))).copied();
    memory.of_round(entry, |memory| {
        let lowest = memory.on_all_parents(entry).into_iter().next().filter(|_| is_older_parent);
        let older = || {
            let entry = Vote { block: head?, kind: VoteKind::Data, ..entry.clone() };
            Some(UniqueMessage::Entry { entry, skips: skips.clone() })
        };
        vec![lowest.or_else(older).unwrap_or_else(|| said.clone())]
    })
}

fn coordinate_nothing(_: &mut Memory, _: &mut Scene<'_>, _: ReplicaId, said: Message) -> Vec<Message> {
    if is_block(&said) { Vec::new() } else { vec![said] }
}

/// Keeps two branches apart: each half of the replicas receives one of them.
fn coordinate_two_halves(
    memory: &mut Memory,
    _: &mut Scene<'_>,
    to: ReplicaId,
    said: Message,
) -> Vec<Message> {
    let UniqueMessage::Own(ArtemisMessage::CBlock(first)) = &said else { return vec![said] };
    if to.0.is_multiple_of(2) {
        return vec![said];
    }
    vec![UniqueMessage::Own(ArtemisMessage::CBlock(memory.double(first)))]
}

fn coordinate_some(_: &mut Memory, scene: &mut Scene<'_>, _: ReplicaId, said: Message) -> Vec<Message> {
    if is_block(&said) && !scene.rng.chance(SERVED_PPM) { Vec::new() } else { vec![said] }
}

fn forget(_: &mut Memory, _: &mut Scene<'_>, _: ReplicaId, said: Message) -> Vec<Message> {
    let UniqueMessage::Answer(answer) = said else { return vec![said] };
    let proof = RoundProof { round: View(1), tip: None, skips: Vec::new(), resync: false };
    let (incarnation, stage) = (answer.incarnation, RecoveryStage::Running);
    vec![UniqueMessage::Answer(Box::new(Answer { incarnation, stage, proof, last: None }))]
}
