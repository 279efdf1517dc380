//! Attacks on this family: the exam's `own` host runs them. Sections are those of `sync-hotstuff`.
//!
//! | attack | against |
//! |---|---|
//! | equivocate | one block at a place (§2): two blocks, sent to every second replica each, and votes for both |
//! | late contradictions | silence as a proof (§8): the second block arrives when a wait for the first may just be over |
//! | told to one | knowledge of one replica alone (§4, §6): proposals, votes and proofs for one replica in each view |
//! | low locks | the base of a view (§6, §11): the lowest lock for all, or for every second replica |
//! | blames | leaving only after f + 1 blames (§5): blames each view that it knows of, to some replicas |
//! | forgetting | proofs of acknowledged blocks (§18): answers recovering peers that it runs, and shows nothing |

use super::statements::{NOTIFY, VOTE};
use crate::attack_table::attack_table;
use quorate_consensus::{AttackEntry, Certificate, Message, Place, Retelling, Scene};
use quorate_types::{BlockId, Height, Kind, ReplicaId, View};
use std::collections::{BTreeMap, VecDeque};

/// Maximum number of remembered certificates, own headers and conflicting messages, of each.
const REMEMBERED: usize = 64;
/// Probability in millionths that a message to a replica is followed by a conflicting one that waits for it.
const LATE_PPM: u32 = 150_000;
/// The attacker equivocates at one of so many places: a view must last for anything to be lost in it.
const SELDOM: u64 = 5;
/// Consecutive views in which one replica alone receives everything.
const VIEWS_FOR_ONE: u64 = 3;

/// A message of a form, as the attacks change it.
pub trait AttackMessage: Message + Clone {
    /// Headers of this form.
    type Header: Clone + Send;
    /// Kinds of messages that propose, or show the end of a view.
    const PROPOSE_OR_SHOW: &'static [Kind];

    /// Returns the same message about a block with a time one nanosecond later, if this replica has proposed its block.
    fn equivocated(&self, scene: &Scene<'_>) -> Option<Self>;
    /// Returns the certificate of the parent or lock, with the height of its block.
    fn certificate(&self) -> Option<(Certificate, Height)>;
    /// Returns the same message on a lower lock.
    fn lowered(&self, memory: &mut AttackMemory<Self>, scene: &Scene<'_>) -> Option<Self>;
    /// Returns a blame.
    fn blame(view: View) -> Self;
    /// Removes all content of an answer to a recovering peer.
    fn forgotten(self) -> Self;
}

/// Returns the attacks on a form with these messages.
pub(super) const fn attacks<M: AttackMessage>() -> &'static [AttackEntry] {
    attack_table! { Own<M>:
        "equivocate" = equivocate, "Proposes two blocks at each place and votes for both.";
        "late contradictions" = equivocate_late, "Sends its second block just when a wait of the others may end.";
        "told to one" = tell_one, "Sends proposals, votes and the proofs that end a view to one replica alone.";
        "low locks" = lock_low, "Extends the lowest block for which it has a proof, towards some replicas or all.";
        "blames" = blame_all, "Blames every leader towards some replicas.";
        "forgetting" = forget, "Answers recovering peers with no content.";
    }
}

type Own<M> = Retelling<M, M, AttackMemory<M>>;

/// Memory of an attacker.
pub struct AttackMemory<M: AttackMessage> {
    /// Lowest certificate of each view that it has shown, with the height of its block.
    lowest: BTreeMap<View, (Certificate, Height)>,
    /// Headers that have replaced its own.
    became: BTreeMap<BlockId, M::Header>,
    /// Conflicting messages, and the replicas for which they wait.
    late: VecDeque<(ReplicaId, M)>,
}

impl<M: AttackMessage> Default for AttackMemory<M> {
    fn default() -> Self {
        Self { lowest: BTreeMap::new(), became: BTreeMap::new(), late: VecDeque::new() }
    }
}

impl<M: AttackMessage> AttackMemory<M> {
    fn note(&mut self, message: &M) {
        if let Some((certificate, height)) = message.certificate() {
            let known =
                self.lowest.entry(certificate.view()).or_insert_with(|| (certificate.clone(), height));
            if height < known.1 {
                *known = (certificate, height);
            }
        }
        while self.lowest.len() > REMEMBERED {
            self.lowest.pop_first();
        }
    }

    /// Returns the lowest certificate that may be extended in a view: the oldest one, or one of the view before.
    pub(super) fn low(&self, view: View, oldest: bool) -> Option<&(Certificate, Height)> {
        let mut before = self.lowest.range(..view).map(|(_, known)| known);
        if oldest { before.next() } else { before.next_back() }
    }

    /// Returns the header that has replaced an own one.
    pub(super) fn became(&self, id: BlockId) -> Option<&M::Header> {
        self.became.get(&id)
    }

    /// Replaces an own header.
    pub(super) fn becomes(&mut self, id: BlockId, header: M::Header) {
        self.became.insert(id, header);
        while self.became.len() > REMEMBERED {
            self.became.pop_first();
        }
    }
}

fn is_odd(to: ReplicaId) -> bool {
    !to.0.is_multiple_of(2)
}

/// Returns a message that conflicts with this one, if the attacker equivocates at its place.
fn conflicting<M: AttackMessage>(said: &M, scene: &Scene<'_>) -> Option<M> {
    let place = said.place();
    let is_chosen = place.view.0.wrapping_add(place.height.0).is_multiple_of(SELDOM);
    if is_chosen { said.equivocated(scene) } else { None }
}

fn equivocate<M: AttackMessage>(
    _: &mut AttackMemory<M>,
    scene: &mut Scene<'_>,
    to: ReplicaId,
    said: M,
) -> Vec<M> {
    let Some(second) = conflicting(&said, scene) else { return vec![said] };
    match (said.kind() == VOTE, is_odd(to)) {
        (true, false) => vec![said, second],
        (true, true) => vec![second, said],
        (false, false) => vec![said],
        (false, true) => vec![second],
    }
}

fn equivocate_late<M: AttackMessage>(
    memory: &mut AttackMemory<M>,
    scene: &mut Scene<'_>,
    to: ReplicaId,
    said: M,
) -> Vec<M> {
    let mut all = Vec::new();
    if scene.rng.chance(LATE_PPM)
        && let Some(place) = memory.late.iter().position(|(waits, _)| *waits == to)
        && let Some((_, late)) = memory.late.remove(place)
    {
        all.push(late);
    }
    if let Some(second) = conflicting(&said, scene) {
        if memory.late.len() >= REMEMBERED {
            memory.late.pop_front();
        }
        memory.late.push_back((to, second));
    }
    all.insert(0, said);
    all
}

fn tell_one<M: AttackMessage>(
    _: &mut AttackMemory<M>,
    scene: &mut Scene<'_>,
    to: ReplicaId,
    said: M,
) -> Vec<M> {
    let kind = said.kind();
    let is_for_one = M::PROPOSE_OR_SHOW.contains(&kind) || [VOTE, NOTIFY].contains(&kind);
    let one = scene.committee.rotate(said.place().view.0 / VIEWS_FOR_ONE);
    if is_for_one && one != to { Vec::new() } else { vec![said] }
}

fn lock_low<M: AttackMessage>(
    memory: &mut AttackMemory<M>,
    scene: &mut Scene<'_>,
    to: ReplicaId,
    said: M,
) -> Vec<M> {
    memory.note(&said);
    // All replicas receive the same in every second view.
    let is_lowered = is_odd(to) || said.place().view.0.is_multiple_of(2);
    let low = if is_lowered { said.lowered(memory, scene) } else { None };
    vec![low.unwrap_or(said)]
}

fn blame_all<M: AttackMessage>(
    _: &mut AttackMemory<M>,
    scene: &mut Scene<'_>,
    to: ReplicaId,
    said: M,
) -> Vec<M> {
    let view = said.place().view;
    let mut all = vec![said];
    if view != Place::ANYWHERE.view && (is_odd(to) || scene.rng.chance(LATE_PPM)) {
        all.push(M::blame(view));
        all.push(M::blame(view.next()));
    }
    all
}

fn forget<M: AttackMessage>(_: &mut AttackMemory<M>, _: &mut Scene<'_>, _: ReplicaId, said: M) -> Vec<M> {
    vec![said.forgotten()]
}
