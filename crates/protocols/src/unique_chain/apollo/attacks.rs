//! Attacks on Apollo: the exam's `own` host runs them. Sections are those of the notes about Apollo.
//!
//! | attack | against |
//! |---|---|
//! | equivocate | one block in a round (§8): up to three blocks on any parents that it can prove, one of them or none to each replica |
//! | late proposals | the wait for a leader (§6): proposals arrive after later messages, round by round |
//! | told to one | knowledge of one replica alone (§5): proposals and relays for one replica in each round |
//! | false blames | skip certificates of f + 1 blames (§8): blames each round that it knows of |
//! | unanswered | fetches within the grace (§6): answers no question for entries |
//! | headers alone | headers without bodies (§11, pitfalls 6 and 9): relays instead of proposals, and no answers |
//! | old tips | proofs of the highest round (§5): shows older proofs, and extends older blocks |
//! | forgetting | entries that others have forgotten (§17): answers recovering peers that it runs, and shows nothing |

use super::super::attack_memory::{KnownSkips, LateMessages, REMEMBERED};
use super::super::entry::{Entry as _, Framed, RoundProof, skips_digest};
use super::super::message::{Answer, UniqueMessage};
use super::proposal::{NoMessage, Proposal};
use crate::attack_table::{attack_table, other};
use quorate_consensus::parts::recovery::RecoveryStage;
use quorate_consensus::{AttackEntry, Certificate, Message as _, Retelling, Scene};
use quorate_types::{Block, ReplicaId, View};
use std::collections::{BTreeMap, VecDeque};

type Message = UniqueMessage<Proposal, NoMessage>;
type Own = Retelling<Message, Message, Memory>;

/// Blocks that an equivocating leader signs in one round.
const BLOCKS: usize = 3;
/// Probability in millionths that a late message follows another one.
const LATE_PPM: u32 = 150_000;
/// Consecutive rounds in which one replica alone receives everything.
const ROUNDS_FOR_ONE: u64 = 3;

/// The attacks on Apollo.
pub(super) const ATTACKS: &[AttackEntry] = attack_table! { Own:
    "equivocate" = equivocate, "Signs up to three blocks in each of its rounds, on different parents.";
    "late proposals" = propose_late, "Sends its proposals after later messages.";
    "told to one" = tell_one, "Sends proposals and relays to one replica alone.";
    "false blames" = blame_all, "Blames every leader towards all replicas.";
    "unanswered" = answer_nothing, "Answers no question for entries.";
    "headers alone" = show_headers, "Shows the headers of its blocks instead of its proposals, and answers no question.";
    "old tips" = show_old_tips, "Shows old round proofs, and extends old blocks.";
    "forgetting" = forget, "Answers recovering peers with no content.";
};

/// Memory of an attacker.
#[derive(Default)]
struct Memory {
    /// Known blocks, by round.
    blocks: BTreeMap<View, Vec<Proposal>>,
    skips: KnownSkips,
    proofs: VecDeque<RoundProof<Proposal>>,
    /// Blocks of the rounds that it leads.
    signed: BTreeMap<View, Vec<Message>>,
    late: LateMessages<Message>,
}

impl Memory {
    fn note_block(&mut self, block: &Proposal) {
        let of_round = self.blocks.entry(block.round()).or_default();
        if of_round.len() < BLOCKS && !of_round.contains(block) {
            of_round.push(block.clone());
        }
        while self.blocks.len() > REMEMBERED {
            self.blocks.pop_first();
        }
    }

    /// Remembers the content of its own message.
    fn note(&mut self, message: &Message) {
        match message {
            UniqueMessage::Entry { entry, skips } => {
                self.note_block(entry);
                self.skips.note(skips);
            }
            UniqueMessage::Proof(proof) | UniqueMessage::Blame(proof) => {
                self.skips.note(&proof.skips);
                if let Some(tip) = &proof.tip {
                    self.note_block(&tip.entry);
                    self.skips.note(&tip.skips);
                }
                self.proofs.push_back(RoundProof::clone(proof));
                if self.proofs.len() > REMEMBERED {
                    self.proofs.pop_front();
                }
            }
            _ => {}
        }
    }

    /// Returns the block on every earlier block that it may extend, the lowest first.
    fn on_all_parents(&self, block: &Block) -> Vec<Message> {
        let parents = self.blocks.range(..block.view).flat_map(|(_, blocks)| blocks);
        let extended = parents.filter_map(|parent| {
            let skips = self.skips.between(parent.round(), block.view)?;
            Some(extending(block, parent, skips))
        });
        extended.collect()
    }

    /// Returns the blocks that it signs in the round of this one.
    fn signed_beside(&mut self, entry: &Proposal, skips: &[Certificate]) -> Vec<Message> {
        let round = entry.round();
        if !self.signed.contains_key(&round) {
            let second = Proposal { block: other(&entry.block), parent_round: entry.parent_round };
            let mut all = vec![UniqueMessage::Entry { entry: entry.clone(), skips: skips.to_vec() }];
            all.push(UniqueMessage::Entry { entry: second.clone(), skips: skips.to_vec() });
            all.extend(self.on_all_parents(&second.block).into_iter().take(1));
            all.iter().for_each(|message| self.note(message));
            self.signed.insert(round, all);
        }
        while self.signed.len() > REMEMBERED {
            self.signed.pop_first();
        }
        self.signed.get(&round).cloned().unwrap_or_default()
    }
}

/// Returns the same block on another parent.
fn extending(block: &Block, parent: &Proposal, skips: Vec<Certificate>) -> Message {
    let parent_round = parent.round();
    let block = Block {
        parent: parent.block.id(),
        height: parent.block.height.next(),
        extra: Proposal::bind(parent_round, skips_digest(&skips)),
        ..block.clone()
    };
    UniqueMessage::Entry { entry: Proposal { block, parent_round }, skips }
}

/// Returns the proof of the round after an own block.
fn proof_by(entry: &Proposal, skips: &[Certificate], scene: &Scene<'_>) -> RoundProof<Proposal> {
    let signature = (scene.sign)(&entry.statement());
    let tip = Framed { entry: entry.clone(), skips: skips.to_vec(), signature };
    RoundProof { round: entry.round().next(), tip: Some(tip), skips: Vec::new(), resync: false }
}

fn equivocate(memory: &mut Memory, scene: &mut Scene<'_>, _: ReplicaId, said: Message) -> Vec<Message> {
    memory.note(&said);
    let UniqueMessage::Entry { entry, skips } = &said else { return vec![said] };
    let mut all = memory.signed_beside(entry, skips);
    let chosen = scene.rng.index(all.len().saturating_add(1));
    if chosen < all.len() { vec![all.swap_remove(chosen)] } else { Vec::new() }
}

fn propose_late(memory: &mut Memory, scene: &mut Scene<'_>, to: ReplicaId, said: Message) -> Vec<Message> {
    let late = if scene.rng.chance(LATE_PPM) { memory.late.take(to) } else { None };
    let mut all: Vec<Message> = late.into_iter().collect();
    match said {
        UniqueMessage::Entry { .. } if scene.rng.chance(2 * LATE_PPM) => memory.late.postpone(to, said),
        _ => all.insert(0, said),
    }
    all
}

fn tell_one(_: &mut Memory, scene: &mut Scene<'_>, to: ReplicaId, said: Message) -> Vec<Message> {
    let is_for_one = matches!(said, UniqueMessage::Entry { .. } | UniqueMessage::Proof(_));
    let one = scene.committee.rotate(said.place().view.0 / ROUNDS_FOR_ONE);
    if is_for_one && one != to { Vec::new() } else { vec![said] }
}

fn blame_all(_: &mut Memory, scene: &mut Scene<'_>, _: ReplicaId, said: Message) -> Vec<Message> {
    let proof = match &said {
        UniqueMessage::Entry { entry, skips } => Some(proof_by(entry, skips, scene)),
        UniqueMessage::Proof(proof) => Some(RoundProof::clone(proof)),
        _ => None,
    };
    let blame = proof.map(|proof| UniqueMessage::Blame(Box::new(proof)));
    std::iter::once(said).chain(blame).collect()
}

fn answer_nothing(_: &mut Memory, _: &mut Scene<'_>, _: ReplicaId, said: Message) -> Vec<Message> {
    if matches!(said, UniqueMessage::Entries { .. }) { Vec::new() } else { vec![said] }
}

fn show_headers(_: &mut Memory, scene: &mut Scene<'_>, _: ReplicaId, said: Message) -> Vec<Message> {
    match said {
        UniqueMessage::Entries { .. } => Vec::new(),
        UniqueMessage::Entry { entry, skips } => {
            vec![UniqueMessage::Proof(Box::new(proof_by(&entry, &skips, scene)))]
        }
        other => vec![other],
    }
}

fn show_old_tips(memory: &mut Memory, scene: &mut Scene<'_>, _: ReplicaId, said: Message) -> Vec<Message> {
    memory.note(&said);
    let old = memory.proofs.get(scene.rng.index(memory.proofs.len().max(1))).cloned();
    match (said, old) {
        (UniqueMessage::Proof(_), Some(old)) => vec![UniqueMessage::Proof(Box::new(old))],
        (UniqueMessage::Blame(_), Some(old)) => vec![UniqueMessage::Blame(Box::new(old))],
        (UniqueMessage::Entry { entry, skips }, _) => {
            let round = entry.round();
            if !memory.signed.contains_key(&round) {
                let lowest = memory.on_all_parents(&entry.block).into_iter().next();
                let chosen = lowest.unwrap_or(UniqueMessage::Entry { entry, skips });
                memory.signed.insert(round, vec![chosen]);
            }
            memory.signed.get(&round).cloned().unwrap_or_default()
        }
        (other, _) => vec![other],
    }
}

fn forget(_: &mut Memory, _: &mut Scene<'_>, _: ReplicaId, said: Message) -> Vec<Message> {
    let UniqueMessage::Answer(answer) = said else { return vec![said] };
    let proof = RoundProof { round: View(1), tip: None, skips: Vec::new(), resync: false };
    let (incarnation, stage) = (answer.incarnation, RecoveryStage::Running);
    vec![UniqueMessage::Answer(Box::new(Answer { incarnation, stage, proof, last: None }))]
}
