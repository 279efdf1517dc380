//! Byzantine hosts: replicas that break the rules without a line of any protocol.
//!
//! A host consists of the parts that ship, used wrongly. Examples are two replicas under one key, a replica whose
//! messages are withheld from some or all, and a replica whose disk forgets. Its behaviour changes from *mood* to
//! mood; the seed decides when and how. A *controlled replica* ([`crate::World::take_control`]) sends what a test
//! decides instead.

mod forgeries;
mod liar;
mod sent_messages;

pub(crate) use forgeries::{Forged, LiarTools, seal};
pub use liar::Liar;

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

/// Shortest duration of a mood.
const MOOD_NS_MIN: u64 = 100_000_000;
/// Mean duration of a mood beyond the shortest.
const MOOD_NS_MEAN: u64 = 1_500_000_000;
/// Number of extra frames in a flood.
const FLOOD_FRAMES: u64 = 240;

/// The kind of a reply to a client, for moods that distinguish kinds.
pub(crate) const REPLY: Kind = Kind::new("reply");

/// The role of a replica in the world.
#[derive(Debug, Default)]
pub(crate) enum Role {
    /// The replica keeps the rules, and the oracles judge it.
    #[default]
    Honest,
    /// The replica breaks the rules.
    Byzantine(Box<Behaviour>),
    /// The replica neither receives nor sends by itself. Its input waits here for a test.
    Controlled(Vec<Arrival>),
}

impl Role {
    /// Whether a message of this kind may leave for a place.
    pub(crate) fn allows(&self, half: TwinHalf, kind: Kind, to: usize) -> bool {
        match self {
            Self::Honest => true,
            Self::Byzantine(behaviour) => behaviour.mood.allows(half, kind, to),
            Self::Controlled(_) => false,
        }
    }
}

/// The behaviour of a Byzantine replica.
pub(crate) struct Behaviour {
    kind: Byzantine,
    rng: Rng,
    mood: Mood,
    /// Whether the mood changes no more.
    is_steady: bool,
    /// An earlier image of the disk.
    image: Option<MemDisk>,
    /// Messages that the replica has sent.
    sent: SentMessages,
    /// Attacks that the protocol's folder defines, and the current one.
    attacks: &'static [AttackEntry],
    attack: Option<Box<dyn Attack>>,
}

impl fmt::Debug for Behaviour {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown())
    }
}

/// A behaviour for a while.
#[derive(Debug)]
enum Mood {
    /// The replica behaves like an honest one.
    Plain,
    /// Each half of a twin sends to these places. The second half may process simultaneous arrivals in reverse order.
    Divided { first: Places, second: Places, backwards: bool },
    /// The protocol of each half of a twin sends to these places. Messages between hosts pass to all.
    Torn { first: Places, second: Places },
    /// The replica sends nothing.
    Silent,
    /// The replica sends nothing of the kinds that the number selects.
    Reserved(u64),
    /// The replica sends to these places only.
    Partial(Places),
    /// The replica resends earlier messages.
    Echo,
    /// The replica changes messages of this group, at a rate in millionths.
    Twist { ppm: u32, what: ForgeAbout },
    /// The replica sends everything later by this time.
    Late(u64),
    /// The replica sends copies, up to this number in all.
    Flood { left: u64 },
    /// The replica runs an attack of the protocol's folder, by its index in the list.
    Attack(usize),
}

impl Mood {
    fn allows(&self, half: TwinHalf, kind: Kind, to: usize) -> bool {
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

/// An action of a Byzantine replica on its disk or connections.
#[derive(Debug)]
pub(crate) enum DiskAction {
    /// No action.
    Nothing,
    /// Remembers the current image of the disk.
    Remember,
    /// Loses power and recovers with this image.
    Forget(Box<MemDisk>),
    /// Writes bytes that are no frame to its connections.
    Garbage,
}

/// Facts about the world that a mood may depend on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LiarContext {
    /// Number of places.
    pub(crate) places: usize,
    /// Remaining time of some honest replica's timer.
    pub(crate) patience_ns: u64,
}

impl Behaviour {
    pub(crate) fn new(kind: Byzantine, rng: Rng, attacks: &'static [AttackEntry]) -> Self {
        // A protocol without attacks gets the kind that comes closest.
        let kind = if kind == Byzantine::Own && attacks.is_empty() { Byzantine::Mutate } else { kind };
        let (mood, sent) = (Mood::Plain, SentMessages::default());
        Self { kind, rng, mood, is_steady: false, image: None, sent, attacks, attack: None }
    }

    /// Returns the duration of the current mood, and of an outage that belongs to it.
    pub(crate) fn spans(&mut self) -> (u64, u64) {
        let mood = MOOD_NS_MIN.saturating_add(self.rng.exponential_ns(MOOD_NS_MEAN));
        (mood, self.rng.between(5_000_000, 800_000_000))
    }

    /// Returns the current mood for the trace hash. The text is part of every seed's hash: it may not change.
    pub(crate) fn shown(&self) -> String {
        let image = if self.image.is_some() { ", remembers" } else { "" };
        let attack = match self.mood {
            Mood::Attack(at) => self.attacks.get(at).map(|entry| entry.name).unwrap_or_default(),
            _ => "",
        };
        format!("{}: {:?}{image} {attack}", self.kind, self.mood)
    }

    /// Returns the current mood in words. `names` formats places.
    pub(crate) fn description(&self, names: &dyn Fn(Places) -> String) -> String {
        let mood = match &self.mood {
            Mood::Divided { first, second, backwards } => {
                let order = if *backwards { ", the second reverses its input" } else { "" };
                format!("one half sends to {}, the other to {}{order}", names(*first), names(*second))
            }
            Mood::Reserved(_) => "sends nothing of some kinds".to_owned(),
            Mood::Partial(to) => format!("sends to {} only", names(*to)),
            other => format!("{other:?}").to_lowercase(),
        };
        let image = if self.image.is_some() { ", remembers an older disk" } else { "" };
        format!("{}: {mood}{image}", self.kind)
    }

    pub(crate) fn remember(&mut self, image: MemDisk) {
        self.image = Some(image);
    }

    /// Changes the mood.
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
            // A host keeps the rules now and then, so that frames which it delayed can arrive.
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

    /// Restricts the protocol of each half of a twin to these receivers for good. Both hosts send to all, so that
    /// neither lags.
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
                // The host may use the image once more.
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

    /// Whether the replica sends nothing to anybody now.
    pub(crate) fn is_silent(&self) -> bool {
        matches!(self.mood, Mood::Silent)
    }

    /// Whether the second half of a twin processes simultaneous arrivals in reverse order.
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

    /// Returns the permissions of a host's moods, over many of them.
    fn moods(kind: Byzantine) -> Vec<Vec<bool>> {
        let mut behaviour = Behaviour::new(kind, Rng::new(5), &[]);
        let kinds = ["vote", "proposal", "bundle", "reply"].map(Kind::new);
        let mut all = Vec::new();
        for _ in 0..400 {
            behaviour.change(CONTEXT, disk);
            let mut allowed = Vec::new();
            for half in [TwinHalf::First, TwinHalf::Second] {
                for kind in kinds {
                    allowed.extend((0..PLACES).map(|to| behaviour.mood.allows(half, kind, to)));
                }
            }
            all.push(allowed);
        }
        all
    }

    #[test]
    fn displayed_names_parse() {
        for kind in Byzantine::ALL.iter().copied() {
            assert_eq!(kind.to_string().parse(), Ok(kind));
        }
        assert!("traitor".parse::<Byzantine>().unwrap_err().contains("twin, mute"));
    }

    #[test]
    fn mute_host_withholds_kinds_from_all_replicas() {
        let moods = moods(Byzantine::Mute);
        for allowed in &moods {
            assert!(allowed.chunks(PLACES).all(|places| places.iter().all(|let_| *let_ == places[0])));
        }
        let silent = moods.iter().filter(|allowed| allowed.iter().all(|let_| !let_)).count();
        assert!((60..260).contains(&silent), "{silent}");
    }

    #[test]
    fn favourites_receive_everything_and_others_nothing() {
        let moods = moods(Byzantine::Favourites);
        for allowed in &moods {
            assert!(allowed.chunks(PLACES).all(|places| places == &allowed[..PLACES]));
        }
        assert!(moods.iter().any(|allowed| allowed.contains(&true) && allowed.contains(&false)));
    }

    #[test]
    fn twins_together_send_to_all_replicas() {
        let moods = moods(Byzantine::Twin);
        for allowed in &moods {
            let (first, second) = allowed.split_at(allowed.len() / 2);
            assert!(first.iter().zip(second).all(|(first, second)| *first || *second));
        }
        let split = moods.iter().filter(|allowed| allowed.contains(&false)).count();
        assert!(split > 250, "{split}");
    }

    #[test]
    fn disk_image_is_remembered_before_it_is_restored() {
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
