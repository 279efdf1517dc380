//! Attacks that only somebody who knows this family would think of: what the exam's `own` host does here. Sections are those
//! of `sync-hotstuff`.
//!
//! | attack | against |
//! |---|---|
//! | equivocate | one block at a place (§2): two blocks, told to every second replica, and votes for both |
//! | late contradictions | what silence proves (§8): the second block comes when a wait for the first may just be over |
//! | told to one | what one replica alone has (§4, §6): proposals, votes and proofs for one replica in each view |
//! | low locks | what a view goes on from (§6, §11): the lowest lock for all, or for every second replica |
//! | blames | leaving only when f + 1 blame (§5): blames each view that it hears of, before some |
//! | forgetting | what shows what was acknowledged (§18): tells who comes back that it runs, and knows of nothing |

use super::message::{Answer, NOTIFY, STATUS, SyncMessage, VOTE};
use super::words::{Header, Lock};
use quorate_consensus::parts::returning::Standing;
use quorate_consensus::{AttackEntry, Certificate, Message, Place, Retelling, Scene, Signed};
use quorate_types::{Block, BlockId, Height, Kind, ReplicaId, View};
use std::collections::{BTreeMap, VecDeque};

/// Certificates, own headers and contradictions that an attacker remembers, of each.
const REMEMBERED: usize = 64;
/// With each message that a replica is told it hears one of the contradictions that wait for it, so often in a million.
const LATE_PPM: u32 = 150_000;
/// It contradicts itself at one of so many places: a view has to live for something to be lost in it.
const SELDOM: u64 = 5;
/// A replica alone is told everything in so many views in a row.
const VIEWS_FOR_ONE: u64 = 3;

/// What the attacks do to the messages of a form of the protocol.
pub(super) trait Words: Message + Clone {
    /// Headers of this form.
    type Header: Clone + Send;

    /// The same about a block that is a nanosecond younger, where it is about a block that this replica has proposed.
    fn retold(&self, scene: &Scene<'_>) -> Option<Self>;
    /// What it rests on, with the height of its block.
    fn certificate(&self) -> Option<(Certificate, Height)>;
    /// The same on a lower lock.
    fn lowered(&self, known: &mut Known<Self>, scene: &Scene<'_>) -> Option<Self>;
    /// A blame.
    fn blame(view: View) -> Self;
    /// Without all that it should show, where it is an answer to who comes back.
    fn forgotten(self) -> Self;
    /// Whether it is a proposal, or shows what has become of a view.
    fn is_shown(kind: Kind) -> bool;
}

/// The attacks on a form with these messages.
pub(super) const fn attacks<M: Words>() -> &'static [AttackEntry] {
    &[
        AttackEntry {
            name: "equivocate",
            about: "Proposes two blocks at each place and votes for both.",
            make: || Box::new(Own::<M>::new(equivocate)),
        },
        AttackEntry {
            name: "late contradictions",
            about: "Contradicts itself when others may just rely on that it has not.",
            make: || Box::new(Own::<M>::new(contradict_late)),
        },
        AttackEntry {
            name: "told to one",
            about: "Proposes, votes and shows what ends a view before one replica alone.",
            make: || Box::new(Own::<M>::new(tell_one)),
        },
        AttackEntry {
            name: "low locks",
            about: "Goes on from the lowest block that it can show, before some or all.",
            make: || Box::new(Own::<M>::new(lock_low)),
        },
        AttackEntry {
            name: "blames",
            about: "Blames every leader, before some.",
            make: || Box::new(Own::<M>::new(blame_all)),
        },
        AttackEntry {
            name: "forgetting",
            about: "Tells who comes back that nothing has happened.",
            make: || Box::new(Own::<M>::new(forget)),
        },
    ]
}

type Own<M> = Retelling<M, M, Known<M>>;

/// What an attacker remembers.
pub(super) struct Known<M: Words> {
    /// The lowest certificate of each view that it has shown, with the height of its block.
    lowest: BTreeMap<View, (Certificate, Height)>,
    /// What its own headers became.
    became: BTreeMap<BlockId, M::Header>,
    /// Contradictions, for whom they wait.
    late: VecDeque<(ReplicaId, M)>,
}

impl<M: Words> Default for Known<M> {
    fn default() -> Self {
        Self { lowest: BTreeMap::new(), became: BTreeMap::new(), late: VecDeque::new() }
    }
}

impl<M: Words> Known<M> {
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

    /// The lowest certificate that one may go on from in a view: as old as any, or of the view before.
    pub(super) fn low(&self, view: View, oldest: bool) -> Option<&(Certificate, Height)> {
        let mut before = self.lowest.range(..view).map(|(_, known)| known);
        if oldest { before.next() } else { before.next_back() }
    }

    /// What an own header has become.
    pub(super) fn became(&self, id: BlockId) -> Option<&M::Header> {
        self.became.get(&id)
    }

    /// Another header in the place of an own one.
    pub(super) fn becomes(&mut self, id: BlockId, header: M::Header) {
        self.became.insert(id, header);
        while self.became.len() > REMEMBERED {
            self.became.pop_first();
        }
    }
}

/// The same payload a nanosecond later: another block, and a valid one.
pub(super) fn other(block: &Block) -> Block {
    Block { time_ns: block.time_ns.saturating_add(1), ..block.clone() }
}

fn is_odd(to: ReplicaId) -> bool {
    !to.0.is_multiple_of(2)
}

/// What contradicts a message, where this is a place for it.
fn contradiction<M: Words>(said: &M, scene: &Scene<'_>) -> Option<M> {
    let place = said.place();
    let is_chosen = place.view.0.wrapping_add(place.height.0).is_multiple_of(SELDOM);
    if is_chosen { said.retold(scene) } else { None }
}

fn equivocate<M: Words>(_: &mut Known<M>, scene: &mut Scene<'_>, to: ReplicaId, said: M) -> Vec<M> {
    let Some(second) = contradiction(&said, scene) else { return vec![said] };
    match (said.kind() == VOTE, is_odd(to)) {
        (true, false) => vec![said, second],
        (true, true) => vec![second, said],
        (false, false) => vec![said],
        (false, true) => vec![second],
    }
}

fn contradict_late<M: Words>(known: &mut Known<M>, scene: &mut Scene<'_>, to: ReplicaId, said: M) -> Vec<M> {
    let mut all = Vec::new();
    if scene.rng.chance(LATE_PPM)
        && let Some(place) = known.late.iter().position(|(waits, _)| *waits == to)
        && let Some((_, late)) = known.late.remove(place)
    {
        all.push(late);
    }
    if let Some(second) = contradiction(&said, scene) {
        if known.late.len() >= REMEMBERED {
            known.late.pop_front();
        }
        known.late.push_back((to, second));
    }
    all.insert(0, said);
    all
}

fn tell_one<M: Words>(_: &mut Known<M>, scene: &mut Scene<'_>, to: ReplicaId, said: M) -> Vec<M> {
    let kind = said.kind();
    let is_for_one = M::is_shown(kind) || [VOTE, NOTIFY].contains(&kind);
    let one = scene.committee.rotate(said.place().view.0 / VIEWS_FOR_ONE);
    if is_for_one && one != to { Vec::new() } else { vec![said] }
}

fn lock_low<M: Words>(known: &mut Known<M>, scene: &mut Scene<'_>, to: ReplicaId, said: M) -> Vec<M> {
    known.note(&said);
    // The same for all in every second view.
    let is_told = is_odd(to) || said.place().view.0.is_multiple_of(2);
    let low = if is_told { said.lowered(known, scene) } else { None };
    vec![low.unwrap_or(said)]
}

fn blame_all<M: Words>(_: &mut Known<M>, scene: &mut Scene<'_>, to: ReplicaId, said: M) -> Vec<M> {
    let view = said.place().view;
    let mut all = vec![said];
    if view != Place::ANYWHERE.view && (is_odd(to) || scene.rng.chance(LATE_PPM)) {
        all.push(M::blame(view));
        all.push(M::blame(view.next()));
    }
    all
}

fn forget<M: Words>(_: &mut Known<M>, _: &mut Scene<'_>, _: ReplicaId, said: M) -> Vec<M> {
    vec![said.forgotten()]
}

fn retold(header: &Signed<Header>, scene: &Scene<'_>) -> Option<Signed<Header>> {
    (header.by == scene.me).then(|| {
        let body = Header { block: other(&header.body.block), base: header.body.base };
        let signature = (scene.sign)(&body.statement());
        Signed { body, by: scene.me, signature }
    })
}

impl Words for SyncMessage {
    type Header = Header;

    fn retold(&self, scene: &Scene<'_>) -> Option<Self> {
        match self {
            Self::Propose { header, parent } => {
                let header = Header { block: other(&header.block), base: header.base };
                Some(Self::Propose { header, parent: parent.clone() })
            }
            Self::Vote(header) => Some(Self::Vote(retold(header, scene)?)),
            _ => None,
        }
    }

    fn certificate(&self) -> Option<(Certificate, Height)> {
        let certificate = match self {
            Self::Propose { parent: certificate, .. } | Self::Certified(certificate) => certificate,
            Self::NewView { lock, .. } | Self::Status { lock, .. } => &lock.tip,
            _ => return None,
        };
        Some((certificate.clone(), certificate.statement.height))
    }

    fn lowered(&self, known: &mut Known<Self>, _: &Scene<'_>) -> Option<Self> {
        let view = self.place().view;
        let is_status = self.kind() == STATUS;
        let lock = known
            .low(view, is_status)
            .map_or_else(Lock::genesis, |(tip, _)| Lock { responsive: None, tip: tip.clone() });
        match self {
            Self::Status { .. } => Some(Self::Status { view, lock }),
            Self::NewView { .. } => Some(Self::NewView { view, lock }),
            _ => None,
        }
    }

    fn blame(view: View) -> Self {
        Self::Blame(view)
    }

    fn forgotten(self) -> Self {
        let Self::Answer(answer) = self else { return self };
        Self::Answer(Box::new(Answer::bare(answer.incarnation, Standing::Running)))
    }

    fn is_shown(kind: Kind) -> bool {
        use super::message::{CERTIFIED, EVIDENCE, NEW_VIEW, PROPOSE};
        [PROPOSE, NEW_VIEW, EVIDENCE, CERTIFIED].contains(&kind)
    }
}
