//! The rate of answers: the gap without any, and the return to the rate before it.

use crate::load::Progress;
use std::time::Duration;

/// Goodput is back where it stays for so long at...
const WINDOW: Duration = Duration::from_secs(1);
/// ...so many thousandths of what it was.
const BACK_PER_MILLE: u128 = 900;

/// Answers over time, as the load has reported them.
#[derive(Debug, Default)]
pub struct Pulse {
    /// When, and how many answers there had been.
    samples: Vec<(Duration, u64)>,
    gap: Duration,
    silent: Duration,
}

impl Pulse {
    /// The load says where it stands.
    pub fn note(&mut self, progress: &Progress) {
        self.samples.push((progress.elapsed, progress.acknowledged));
        self.gap = self.gap.max(progress.gap);
        self.silent = progress.silent;
    }

    /// The time of the load.
    #[must_use]
    pub fn now(&self) -> Duration {
        self.samples.last().map_or(Duration::ZERO, |(at, _)| *at)
    }

    /// Answers so far.
    #[must_use]
    pub fn acknowledged(&self) -> u64 {
        self.samples.last().map_or(0, |(_, count)| *count)
    }

    /// Gives the answers since the last call. From now on only what comes counts.
    pub fn begin(&mut self) -> Goodput {
        let goodput = match (self.samples.first(), self.samples.last()) {
            (Some((from, first)), Some((to, last))) => {
                Goodput { answers: last.saturating_sub(*first), span: to.saturating_sub(*from) }
            }
            _ => Goodput::default(),
        };
        self.samples = self.samples.last().copied().into_iter().collect();
        self.gap = Duration::ZERO;
        goodput
    }

    /// Longest time without an answer since [`Self::begin`].
    #[must_use]
    pub fn gap(&self) -> Duration {
        self.gap.max(self.silent)
    }

    /// Returns the time after [`Self::begin`] at which answers came as often as before again, if they do.
    #[must_use]
    pub fn back(&self, before: &Goodput) -> Option<Duration> {
        let (begin, _) = self.samples.first()?;
        self.samples.iter().find_map(|(from, first)| {
            let (to, last) = self.samples.iter().find(|(to, _)| to.saturating_sub(*from) >= WINDOW)?;
            let here = Goodput { answers: last.saturating_sub(*first), span: to.saturating_sub(*from) };
            here.is_back(before).then(|| from.saturating_sub(*begin))
        })
    }
}

/// Answers in a time.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Goodput {
    /// Number of answers.
    pub answers: u64,
    /// In how long.
    pub span: Duration,
}

impl Goodput {
    /// In a second; 0 where there was no time.
    #[must_use]
    pub fn per_second(&self) -> u64 {
        let answers = u128::from(self.answers).saturating_mul(1_000_000_000);
        u64::try_from(answers.checked_div(self.span.as_nanos()).unwrap_or(0)).unwrap_or(u64::MAX)
    }

    fn is_back(&self, before: &Self) -> bool {
        let here = u128::from(self.answers).saturating_mul(before.span.as_nanos()).saturating_mul(1_000);
        let there = u128::from(before.answers).saturating_mul(self.span.as_nanos());
        here >= there.saturating_mul(BACK_PER_MILLE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A tenth of a second each: so many answers, the longest gap in it, silence at its end.
    fn pulse(pulse: &mut Pulse, tenths: &[(u64, u64, u64)]) {
        let ms = Duration::from_millis;
        for (answers, gap, silent) in tenths {
            let (elapsed, acknowledged) = (pulse.now() + ms(100), pulse.acknowledged() + answers);
            let (gap, silent) = (ms(*gap), ms(*silent));
            pulse.note(&Progress { elapsed, acknowledged, gap, silent, ..Progress::default() });
        }
    }

    #[test]
    fn a_gap_is_measured_and_its_end() {
        let mut calm = Pulse::default();
        pulse(&mut calm, &[(100, 9, 1); 21]);
        let before = calm.begin();
        assert_eq!((before.answers, before.per_second()), (2_000, 1_000));
        // Half a second of nothing, then a slow second, then as before.
        pulse(&mut calm, &[(0, 0, 100), (0, 0, 200), (0, 0, 300), (0, 0, 400), (0, 0, 500)]);
        assert_eq!((calm.gap(), calm.back(&before)), (Duration::from_millis(500), None));
        pulse(&mut calm, &[(50, 560, 1)]);
        pulse(&mut calm, &[(50, 12, 1); 9]);
        assert_eq!((calm.gap(), calm.back(&before)), (Duration::from_millis(560), None));
        pulse(&mut calm, &[(100, 9, 1); 8]);
        assert_eq!(calm.back(&before), Some(Duration::from_millis(1_300)), "two tenths of ten may be slow");
        calm.begin();
        assert_eq!(calm.gap(), Duration::from_millis(1), "what was before is forgotten");
    }

    #[test]
    fn without_a_dip_it_was_never_away() {
        let mut calm = Pulse::default();
        pulse(&mut calm, &[(100, 9, 1); 21]);
        let before = calm.begin();
        pulse(&mut calm, &[(91, 20, 1); 9]);
        assert_eq!(calm.back(&before), None, "it is too early to say");
        pulse(&mut calm, &[(91, 20, 1)]);
        assert_eq!(calm.back(&before), Some(Duration::ZERO));
        assert_eq!(Pulse::default().back(&before), None);
        assert_eq!(Goodput::default().per_second(), 0);
    }
}
