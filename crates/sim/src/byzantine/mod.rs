//! Byzantine hosts: replicas that break the rules without a line of any protocol.
//!
//! Each is made of what ships, held wrongly: two replicas under one key, a replica whose words are withheld from
//! some or all, a replica whose disk forgets. What one does changes from *mood* to mood; the seed decides when and
//! how. A *controlled replica* ([`crate::World::take_control`]) says what a test writes for it instead.

mod forgeries;
mod sent_messages;

pub(crate) use forgeries::{Forged, LiarTools, seal};

use crate::arrival::{Arrival, TwinHalf};
use crate::byzantine_kind::Byzantine;
use crate::frame::{BUNDLE, PAYLOAD};
use crate::places::Places;
use quorate_consensus::{Attack, AttackEntry};
use quorate_storage::MemDisk;
use quorate_types::Kind;
use quorate_types::rng::Rng;
use sent_messages::{ForgeAbout, SentMessages};
use std::fmt;

/// A mood lasts at least so long …
const MOOD_NS_MIN: u64 = 100_000_000;
/// … and so much longer in the mean.
const MOOD_NS_MEAN: u64 = 1_500_000_000;
/// Frames that a flood consists of.
const FLOOD_FRAMES: u64 = 240;

/// The kind of what a replica tells a client, as hosts tell kinds apart.
pub(crate) const REPLY: Kind = Kind::new("reply");

/// What a replica is in the world.
#[derive(Debug, Default)]
pub(crate) enum Role {
    /// It keeps the rules, and the oracles hold it to them.
    #[default]
    Honest,
    /// It breaks them.
    Byzantine(Box<Behaviour>),
    /// Its replica hears and says nothing any more; what reaches it waits here for a test.
    Controlled(Vec<Arrival>),
}

impl Role {
    /// Whether what wants to leave does.
    pub(crate) fn lets(&self, half: TwinHalf, kind: Kind, to: usize) -> bool {
        match self {
            Self::Honest => true,
            Self::Byzantine(behaviour) => behaviour.mood.lets(half, kind, to),
            Self::Controlled(_) => false,
        }
    }
}

/// How a Byzantine replica goes about it.
pub(crate) struct Behaviour {
    kind: Byzantine,
    rng: Rng,
    mood: Mood,
    /// Its mood changes no more.
    is_steady: bool,
    /// What its disk was like once.
    image: Option<MemDisk>,
    /// What it has said.
    said: SentMessages,
    /// The protocol's own attacks, and the one that is under way.
    attacks: &'static [AttackEntry],
    attack: Option<Box<dyn Attack>>,
}

impl fmt::Debug for Behaviour {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown())
    }
}

/// What it does for a while.
#[derive(Debug)]
enum Mood {
    /// What an honest replica would do.
    Plain,
    /// Each of two speaks to these; the second may read backwards what arrived together.
    Divided { first: Places, second: Places, backwards: bool },
    /// The protocol of each of two speaks to these; what hosts say to each other passes.
    Torn { first: Places, second: Places },
    /// Says nothing.
    Silent,
    /// Says nothing of the kinds that the number picks.
    Reserved(u64),
    /// Speaks to these.
    Partial(Places),
    /// Says again what it said before.
    Echo,
    /// Lies about this, so many times in a million.
    Twist { ppm: u32, what: ForgeAbout },
    /// Says everything so much later.
    Late(u64),
    /// Says everything many times, so many times in all.
    Flood { left: u64 },
    /// An attack of the protocol's own, by its place in the list.
    Attack(usize),
}

impl Mood {
    fn lets(&self, half: TwinHalf, kind: Kind, to: usize) -> bool {
        match self {
            Self::Plain
            | Self::Echo
            | Self::Twist { .. }
            | Self::Late(_)
            | Self::Flood { .. }
            | Self::Attack(_) => true,
            Self::Silent => false,
            Self::Divided { first, second, .. } => match half {
                TwinHalf::First => first.contains(to),
                TwinHalf::Second => second.contains(to),
            },
            Self::Torn { first, second } => {
                let is_host = kind.as_str().starts_with("host.") || [BUNDLE, PAYLOAD].contains(&kind);
                is_host || if half == TwinHalf::First { first.contains(to) } else { second.contains(to) }
            }
            Self::Reserved(number) => {
                let (low, high) = kind.0.split_at(kind.0.len() / 2);
                let half = |bytes: &[u8]| bytes.iter().fold(0u64, |sum, byte| (sum << 8) | u64::from(*byte));
                Rng::new(number ^ half(low) ^ half(high).rotate_left(17)).chance(500_000)
            }
            Self::Partial(to_whom) => to_whom.contains(to),
        }
    }
}

/// What a Byzantine replica does with its disk.
#[derive(Debug)]
pub(crate) enum DiskAction {
    /// Nothing.
    Nothing,
    /// Remembers what is on it.
    Remember,
    /// Loses power and finds this on it.
    Forget(Box<MemDisk>),
    /// Writes to its connections what is no frame.
    Garbage,
}

/// What a liar knows of the world when its mood changes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LiarContext {
    /// How many places there are.
    pub(crate) places: usize,
    /// How long somebody still waits before it loses its patience.
    pub(crate) patience_ns: u64,
}

impl Behaviour {
    pub(crate) fn new(kind: Byzantine, rng: Rng, attacks: &'static [AttackEntry]) -> Self {
        // Who has no attack of its own does what comes closest.
        let kind = if kind == Byzantine::Own && attacks.is_empty() { Byzantine::Mutate } else { kind };
        let (mood, said) = (Mood::Plain, SentMessages::default());
        Self { kind, rng, mood, is_steady: false, image: None, said, attacks, attack: None }
    }

    /// How long the present mood lasts, and how long an outage that belongs to it.
    pub(crate) fn spans(&mut self) -> (u64, u64) {
        let mood = MOOD_NS_MIN.saturating_add(self.rng.exponential_ns(MOOD_NS_MEAN));
        (mood, self.rng.between(5_000_000, 800_000_000))
    }

    /// The present mood, for traces.
    pub(crate) fn shown(&self) -> String {
        let image = if self.image.is_some() { ", remembers" } else { "" };
        let attack = match self.mood {
            Mood::Attack(at) => self.attacks.get(at).map(|entry| entry.name).unwrap_or_default(),
            _ => "",
        };
        format!("{}: {:?}{image} {attack}", self.kind, self.mood)
    }

    /// The present mood, in words. `names` says who stands at some places.
    pub(crate) fn told(&self, names: &dyn Fn(Places) -> String) -> String {
        let mood = match &self.mood {
            Mood::Divided { first, second, backwards } => {
                let order = if *backwards { ", the second reads backwards" } else { "" };
                format!("one half speaks to {}, the other to {}{order}", names(*first), names(*second))
            }
            Mood::Reserved(_) => "says nothing of some kinds".to_owned(),
            Mood::Partial(to) => format!("speaks to {} only", names(*to)),
            other => format!("{other:?}").to_lowercase(),
        };
        let image = if self.image.is_some() { ", remembers an older disk" } else { "" };
        format!("{}: {mood}{image}", self.kind)
    }

    pub(crate) fn remember(&mut self, image: MemDisk) {
        self.image = Some(image);
    }

    /// Another mood.
    pub(crate) fn change(&mut self, context: LiarContext, blank: impl FnOnce() -> MemDisk) -> DiskAction {
        if self.is_steady {
            return DiskAction::Nothing;
        }
        let places = context.places;
        match self.kind {
            Byzantine::Twin => self.mood = self.divide(places),
            Byzantine::Mute => {
                self.mood = match self.rng.below(4) {
                    0 => Mood::Plain,
                    1 => Mood::Silent,
                    _ => Mood::Reserved(self.rng.next_u64()),
                };
            }
            Byzantine::Favourites => {
                let served = (0..places).filter(|_| self.rng.chance(500_000));
                self.mood = Mood::Partial(Places::of(served));
            }
            Byzantine::Rollback => return self.forget(blank),
            // What keeps the rules for ever would be no liar; now and then it does, and what it sent late comes.
            _ if self.rng.below(5) == 0 => self.mood = Mood::Plain,
            Byzantine::Replay => self.mood = Mood::Echo,
            Byzantine::Mutate => self.mood = self.forge_about(ForgeAbout::Votes),
            Byzantine::CatchUp => self.mood = self.forge_about(ForgeAbout::Tales),
            Byzantine::Clients => self.mood = self.forge_about(ForgeAbout::Replies),
            Byzantine::Delay => {
                let part = self.rng.between(500, 990);
                self.mood = Mood::Late(context.patience_ns.saturating_mul(part) / 1_000);
            }
            Byzantine::Flood => {
                self.mood = Mood::Flood { left: FLOOD_FRAMES };
                return DiskAction::Garbage;
            }
            Byzantine::Own => {
                let at = self.rng.index(self.attacks.len());
                self.attack = self.attacks.get(at).map(|entry| (entry.make)());
                self.mood = Mood::Attack(at);
            }
            Byzantine::Adaptive => {}
        }
        DiskAction::Nothing
    }

    fn forge_about(&mut self, what: ForgeAbout) -> Mood {
        Mood::Twist { ppm: u32::try_from(self.rng.between(20_000, 600_000)).unwrap_or(0), what }
    }

    /// The protocol of each of two speaks to these, from now on; both hosts speak to all, so that neither falls behind.
    pub(crate) fn divide_for_good(&mut self, first: Places, second: Places) {
        self.mood = Mood::Torn { first, second };
        self.is_steady = true;
    }

    fn divide(&mut self, places: usize) -> Mood {
        let (mut first, mut second) = (Places::default(), Places::default());
        let is_open = self.rng.chance(200_000);
        for place in 0..places {
            let who = if is_open { 2 } else { self.rng.below(3) };
            let place = Places::one(place);
            if who != 1 {
                first = Places(first.0 | place.0);
            }
            if who != 0 {
                second = Places(second.0 | place.0);
            }
        }
        Mood::Divided { first, second, backwards: self.rng.chance(500_000) }
    }

    fn forget(&mut self, blank: impl FnOnce() -> MemDisk) -> DiskAction {
        match (self.image.take(), self.rng.below(8)) {
            (_, 0) => DiskAction::Forget(Box::new(blank())),
            (Some(image), 1..5) => DiskAction::Forget(Box::new(image)),
            (Some(image), 5) => {
                // It may come to this once more.
                self.image = Some(image.clone());
                DiskAction::Forget(Box::new(image))
            }
            (None, _) => DiskAction::Remember,
            (kept, _) => {
                self.image = kept;
                DiskAction::Nothing
            }
        }
    }

    /// Whether it says nothing to anybody just now.
    pub(crate) fn is_silent(&self) -> bool {
        matches!(self.mood, Mood::Silent)
    }

    /// Whether the second of two reads backwards what arrived together.
    pub(crate) fn reads_backwards(&self) -> bool {
        matches!(self.mood, Mood::Divided { backwards: true, .. })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLACES: usize = 9;
    const CONTEXT: LiarContext = LiarContext { places: PLACES, patience_ns: 1_000 };

    fn disk() -> MemDisk {
        MemDisk::new(4_096, 512)
    }

    /// What moods of a host let through, over many of them.
    fn moods(kind: Byzantine) -> Vec<Vec<bool>> {
        let mut behaviour = Behaviour::new(kind, Rng::new(5), &[]);
        let kinds = ["vote", "proposal", "bundle", "reply"].map(Kind::new);
        let mut all = Vec::new();
        for _ in 0..400 {
            behaviour.change(CONTEXT, disk);
            let mut lets = Vec::new();
            for half in [TwinHalf::First, TwinHalf::Second] {
                for kind in kinds {
                    lets.extend((0..PLACES).map(|to| behaviour.mood.lets(half, kind, to)));
                }
            }
            all.push(lets);
        }
        all
    }

    #[test]
    fn names_are_read_as_they_are_shown() {
        for kind in Byzantine::ALL {
            assert_eq!(kind.to_string().parse(), Ok(kind));
        }
        assert!("traitor".parse::<Byzantine>().unwrap_err().contains("twin, mute"));
    }

    #[test]
    fn a_mute_host_withholds_kinds_from_everybody() {
        let moods = moods(Byzantine::Mute);
        for lets in &moods {
            assert!(lets.chunks(PLACES).all(|places| places.iter().all(|let_| *let_ == places[0])));
        }
        let silent = moods.iter().filter(|lets| lets.iter().all(|let_| !let_)).count();
        assert!((60..260).contains(&silent), "{silent}");
    }

    #[test]
    fn favourites_hear_everything_and_others_nothing() {
        let moods = moods(Byzantine::Favourites);
        for lets in &moods {
            assert!(lets.chunks(PLACES).all(|places| places == &lets[..PLACES]));
        }
        assert!(moods.iter().any(|lets| lets.contains(&true) && lets.contains(&false)));
    }

    #[test]
    fn between_them_twins_speak_to_everybody() {
        let moods = moods(Byzantine::Twin);
        for lets in &moods {
            let (first, second) = lets.split_at(lets.len() / 2);
            assert!(first.iter().zip(second).all(|(first, second)| *first || *second));
        }
        let split = moods.iter().filter(|lets| lets.contains(&false)).count();
        assert!(split > 250, "{split}");
    }

    #[test]
    fn a_disk_is_remembered_before_it_comes_back() {
        let mut behaviour = Behaviour::new(Byzantine::Rollback, Rng::new(6), &[]);
        let (mut remembered, mut old, mut blank) = (0, 0, 0);
        for _ in 0..800 {
            let had = behaviour.image.is_some();
            match behaviour.change(CONTEXT, || MemDisk::new(512, 512)) {
                DiskAction::Nothing => assert!(had),
                DiskAction::Remember => {
                    assert!(!had);
                    remembered += 1;
                    behaviour.remember(disk());
                }
                DiskAction::Forget(image) => {
                    use quorate_storage::Disk as _;
                    if image.segment_bytes() == 512 { blank += 1 } else { old += 1 }
                }
                DiskAction::Garbage => panic!("its disk is all that it breaks"),
            }
        }
        assert!(remembered > 100 && old > 100 && blank > 50, "{remembered} {old} {blank}");
    }
}
