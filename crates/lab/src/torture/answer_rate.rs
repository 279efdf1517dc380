//! The rate of answers: the longest gap, and the recovery of the rate after it.

use crate::load::Progress;
use std::time::Duration;

/// Goodput has recovered if it is high enough in a window of this length.
const WINDOW: Duration = Duration::from_secs(1);
/// The share of the earlier goodput, in thousandths, from which on goodput has recovered.
const RECOVERED_PER_MILLE: u128 = 900;

/// Answers over time, from the reports of the load.
#[derive(Debug, Default)]
pub struct AnswerRate {
    /// Times of reports, and the number of answers until then.
    samples: Vec<(Duration, u64)>,
    gap: Duration,
    silent: Duration,
}

impl AnswerRate {
    /// Adds a report of the load.
    pub fn add(&mut self, progress: &Progress) {
        self.samples.push((progress.elapsed, progress.acknowledged));
        self.gap = self.gap.max(progress.gap);
        self.silent = progress.silent;
    }

    /// Returns the time of the last report.
    #[must_use]
    pub fn now(&self) -> Duration {
        self.samples.last().map_or(Duration::ZERO, |(at, _)| *at)
    }

    /// Returns the number of answers until then.
    #[must_use]
    pub fn acknowledged(&self) -> u64 {
        self.samples.last().map_or(0, |(_, count)| *count)
    }

    /// Returns the goodput since the last call, and begins the next measurement.
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

    /// Returns the longest time without an answer since [`Self::begin`].
    #[must_use]
    pub fn gap(&self) -> Duration {
        self.gap.max(self.silent)
    }

    /// Returns the time from [`Self::begin`] until goodput recovered, if it has.
    #[must_use]
    pub fn recovered_after(&self, before: &Goodput) -> Option<Duration> {
        let (begin, _) = self.samples.first()?;
        self.samples.iter().find_map(|(from, first)| {
            let (to, last) = self.samples.iter().find(|(to, _)| to.saturating_sub(*from) >= WINDOW)?;
            let goodput = Goodput { answers: last.saturating_sub(*first), span: to.saturating_sub(*from) };
            goodput.has_recovered(before).then(|| from.saturating_sub(*begin))
        })
    }
}

/// Answers in a span of time.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Goodput {
    /// Number of answers.
    pub answers: u64,
    /// The span of time.
    pub span: Duration,
}

impl Goodput {
    /// Returns the answers in each second; 0 for an empty span.
    #[must_use]
    pub fn per_second(&self) -> u64 {
        let answers = u128::from(self.answers).saturating_mul(1_000_000_000);
        u64::try_from(answers.checked_div(self.span.as_nanos()).unwrap_or(0)).unwrap_or(u64::MAX)
    }

    fn has_recovered(&self, before: &Self) -> bool {
        let now = u128::from(self.answers).saturating_mul(before.span.as_nanos()).saturating_mul(1_000);
        let earlier = u128::from(before.answers).saturating_mul(self.span.as_nanos());
        now >= earlier.saturating_mul(RECOVERED_PER_MILLE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Adds tenths of a second, each with its number of answers, its longest gap, and the silence at its end.
    fn add(rate: &mut AnswerRate, tenths: &[(u64, u64, u64)]) {
        let ms = Duration::from_millis;
        for (answers, gap, silent) in tenths {
            let (elapsed, acknowledged) = (rate.now() + ms(100), rate.acknowledged() + answers);
            let (gap, silent) = (ms(*gap), ms(*silent));
            rate.add(&Progress { elapsed, acknowledged, gap, silent, ..Progress::default() });
        }
    }

    #[test]
    fn gap_and_recovery_time_are_measured() {
        let mut rate = AnswerRate::default();
        add(&mut rate, &[(100, 9, 1); 21]);
        let before = rate.begin();
        assert_eq!((before.answers, before.per_second()), (2_000, 1_000));
        // Half a second without answers, then a slow second, then the earlier rate.
        add(&mut rate, &[(0, 0, 100), (0, 0, 200), (0, 0, 300), (0, 0, 400), (0, 0, 500)]);
        assert_eq!((rate.gap(), rate.recovered_after(&before)), (Duration::from_millis(500), None));
        add(&mut rate, &[(50, 560, 1)]);
        add(&mut rate, &[(50, 12, 1); 9]);
        assert_eq!((rate.gap(), rate.recovered_after(&before)), (Duration::from_millis(560), None));
        add(&mut rate, &[(100, 9, 1); 8]);
        assert_eq!(
            rate.recovered_after(&before),
            Some(Duration::from_millis(1_300)),
            "two tenths of ten may be slow"
        );
        rate.begin();
        assert_eq!(rate.gap(), Duration::from_millis(1), "a new measurement has begun");
    }

    #[test]
    fn recovery_time_is_zero_without_a_dip() {
        let mut rate = AnswerRate::default();
        add(&mut rate, &[(100, 9, 1); 21]);
        let before = rate.begin();
        add(&mut rate, &[(91, 20, 1); 9]);
        assert_eq!(rate.recovered_after(&before), None, "the window is not over");
        add(&mut rate, &[(91, 20, 1)]);
        assert_eq!(rate.recovered_after(&before), Some(Duration::ZERO));
        assert_eq!(AnswerRate::default().recovered_after(&before), None);
        assert_eq!(Goodput::default().per_second(), 0);
    }
}
