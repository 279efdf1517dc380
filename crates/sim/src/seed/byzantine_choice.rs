//! The choice of Byzantine replicas of a run.

use crate::byzantine_kind::Byzantine;
use quorate_types::ReplicaId;
use quorate_types::rng::Rng;
use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

/// The choice of Byzantine hosts of a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ByzantineChoice {
    /// The seed draws: in half of all seeds f replicas, each with a host of its own.
    #[default]
    Drawn,
    /// No replica is Byzantine.
    Nobody,
    /// In every seed f - 1 replicas have a host that the seed draws, and one honest replica loses its disk and comes back.
    Wiped,
    /// In every seed f replicas have this host.
    All(Byzantine),
    /// In every seed this many replicas have this host. More than f break the protocol's promises.
    Many(Byzantine, usize),
}

/// The Byzantine replicas of a run.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ByzantineHosts {
    /// The replicas with their hosts.
    pub who: BTreeMap<ReplicaId, Byzantine>,
    /// Whether all of them do the same at the same time.
    pub as_one: bool,
    /// The honest replica that loses its disk.
    pub wiped: Option<ReplicaId>,
}

impl ByzantineChoice {
    /// Returns the names that [`ByzantineChoice::from_str`] accepts.
    #[must_use]
    pub fn names() -> Vec<&'static str> {
        ["drawn", "none", "wiped"].into_iter().chain(Byzantine::ALL.iter().map(|kind| kind.name())).collect()
    }

    /// Draws the Byzantine replicas of a seed. The first `spared` replicas are honest.
    pub(crate) fn draw(self, seed: u64, n: usize, f: usize, spared: u16) -> ByzantineHosts {
        // A generator of its own keeps the faults independent of the hosts.
        let mut rng = Rng::new(seed ^ 0xb12a_0717_e11e_0a75);
        let is_half = rng.chance(500_000);
        let count = match self {
            Self::Drawn if is_half => f,
            Self::Drawn | Self::Nobody => 0,
            Self::All(_) => f,
            Self::Many(_, count) => count,
            Self::Wiped => f.saturating_sub(1),
        };
        let mut ids: Vec<u16> = (spared..u16::try_from(n).unwrap_or(u16::MAX)).collect();
        rng.shuffle(&mut ids);
        let mut any = || rng.pick(Byzantine::ALL).copied().unwrap_or(Byzantine::Twin);
        let first = any();
        let mut kinds: Vec<Byzantine> = (0..count)
            .map(|_| match self {
                Self::All(kind) | Self::Many(kind, _) => kind,
                // An adaptive host makes another replica lie, in addition to itself.
                Self::Wiped => {
                    Some(any()).filter(|kind| *kind != Byzantine::Adaptive).unwrap_or(Byzantine::Twin)
                }
                Self::Drawn | Self::Nobody => any(),
            })
            .collect();
        // Several hosts may act as one.
        let as_one = count > 1 && self == Self::Drawn && rng.chance(300_000);
        if as_one {
            kinds.fill(first);
        }
        let wiped = ids.get(count).copied().map(ReplicaId).filter(|_| self == Self::Wiped);
        let who = ids.into_iter().map(ReplicaId).zip(kinds).collect();
        ByzantineHosts { who, as_one, wiped }
    }
}

impl fmt::Display for ByzantineChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Drawn => f.write_str("drawn"),
            Self::Nobody => f.write_str("none"),
            Self::Wiped => f.write_str("wiped"),
            Self::All(kind) => write!(f, "{kind}"),
            Self::Many(kind, count) => write!(f, "{kind}:{count}"),
        }
    }
}

impl FromStr for ByzantineChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let unknown =
            || format!("expected one of {}, or a host and a number such as twin:2", Self::names().join(", "));
        match (text, text.split_once(':')) {
            ("drawn", _) => Ok(Self::Drawn),
            ("none", _) => Ok(Self::Nobody),
            ("wiped", _) => Ok(Self::Wiped),
            (_, Some((kind, count))) => {
                let count = count.parse().map_err(|_| unknown())?;
                Ok(Self::Many(kind.parse().map_err(|_| unknown())?, count))
            }
            (kind, None) => kind.parse().map(Self::All).map_err(|_| unknown()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_of_all_seeds_have_f_hosts_of_every_kind() {
        for (n, f) in [(4, 1), (7, 2)] {
            let (mut with, mut together, mut kinds) = (0, 0, BTreeMap::new());
            for seed in 0..1_000 {
                let ByzantineHosts { who: drawn, as_one, .. } = ByzantineChoice::Drawn.draw(seed, n, f, 0);
                let others = ByzantineChoice::Drawn.draw(seed, n, f, 1).who;
                together += u32::from(as_one);
                assert!(others.len() == drawn.len() && !others.contains_key(&ReplicaId(0)), "seed {seed}");
                assert!(drawn.is_empty() || drawn.len() == f, "seed {seed}");
                with += u32::from(!drawn.is_empty());
                drawn.values().for_each(|kind| *kinds.entry(*kind).or_insert(0) += 1);
            }
            assert!((450..550).contains(&with), "{with}");
            assert!(kinds.len() == 12 && kinds.values().all(|count| *count > 15), "{kinds:?}");
            assert_eq!(together > 80, f > 1, "{together} of them act as one");
        }
    }

    #[test]
    fn displayed_choices_parse() {
        for name in ByzantineChoice::names() {
            assert_eq!(name.parse::<ByzantineChoice>().map(|hosts| hosts.to_string()), Ok(name.to_owned()));
        }
        let two = ByzantineChoice::Many(Byzantine::Twin, 2);
        assert_eq!("twin:2".parse(), Ok(two));
        assert_eq!((two.to_string().as_str(), two.draw(9, 4, 1, 0).who.len()), ("twin:2", 2));
        assert!("twins".parse::<ByzantineChoice>().unwrap_err().contains("favourites"));
        assert!(ByzantineChoice::Nobody.draw(3, 7, 2, 0).who.is_empty());
    }

    #[test]
    fn wiped_replica_is_honest_and_counts_among_the_faulty_ones() {
        for seed in 0..200 {
            let hosts = ByzantineChoice::Wiped.draw(seed, 7, 2, 1);
            let wiped = hosts.wiped.unwrap();
            assert!(
                hosts.who.len() == 1 && !hosts.who.contains_key(&wiped) && wiped != ReplicaId(0),
                "{hosts:?}"
            );
            assert!(hosts.who.values().all(|kind| *kind != Byzantine::Adaptive), "{hosts:?}");
        }
    }
}
