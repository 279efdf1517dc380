//! Going in circles: view after view the same, and nothing is ever executed.
//!
//! A time limit says only that something took too long; it has to be generous, or it cries wolf. Here the state of the
//! replicas is written down once for each view that a quorum of them has entered while somebody waits, apart from what counts up anyway (views,
//! heights, times). With an honest leader and a healed network a view executes something, and among n views in a row
//! all replicas lead; f more are granted to those that come late. When so many have passed, and in each the state was
//! that of the view one round of leaders or less before, nothing new will come. Where leaders follow each other in good
//! times as well, something is executed after several good views in a row: and a leader may
//! have several: four times as many are granted, and a few more.

use quorate_types::{Height, View};
use std::collections::VecDeque;

/// Good views in a row that decide something, where it takes several, at most.
const CHAIN_MAX: usize = 4;

/// How many views in a row have to be alike.
pub(crate) fn views_needed(n: usize, f: usize, rotates_leaders: bool) -> usize {
    let all_lead = n.saturating_add(f);
    if rotates_leaders { all_lead.saturating_mul(4).saturating_add(CHAIN_MAX) } else { all_lead }
}

/// See the module.
#[derive(Default, Debug)]
pub(crate) struct LivelockOracle {
    /// The greatest height that was executed.
    height: Height,
    /// The last view that a quorum had entered.
    view: View,
    /// A state for each view since then, the newest last.
    states: VecDeque<Vec<u8>>,
}

impl LivelockOracle {
    /// Looks at where all are together: the greatest height that anybody has executed, the view that a quorum has
    /// entered, and the state without what counts up. What goes in circles, for people.
    pub(crate) fn look(
        &mut self,
        (height, view): (Height, View),
        (n, needed): (usize, usize),
        state: impl FnOnce() -> Vec<u8>,
    ) -> Option<String> {
        if height > self.height {
            *self = Self { height, view, states: VecDeque::new() };
        }
        if view <= self.view {
            return None;
        }
        self.view = view;
        if self.states.len() >= needed.saturating_add(n) {
            self.states.pop_front();
        }
        self.states.push_back(state());
        let length = self.cycle(n, needed)?;
        Some(format!(
            "nothing was executed since height {}, and each of the last {needed} views has begun as the one {length} \
             before it did",
            self.height
        ))
    }

    /// The shortest cycle of at most so many views that the last `needed` of them belong to.
    fn cycle(&self, longest: usize, needed: usize) -> Option<usize> {
        (1..=longest).find(|length| {
            let Some(from) = self.states.len().checked_sub(needed.saturating_add(*length)) else {
                return false;
            };
            let tail = self.states.iter().skip(from);
            tail.clone().zip(tail.skip(*length)).all(|(a, b)| a == b)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Feeds states, one a view, until something is found; how many views it took.
    fn found((n, f): (usize, usize), height: impl Fn(u64) -> u64, state: impl Fn(u64) -> u8) -> Option<u64> {
        let mut livelock = LivelockOracle::default();
        (1..400).find(|step| {
            let at = (Height(height(*step)), View(*step));
            // Looking twice at one view says no more than looking once.
            livelock.look(at, (n, n + f), || vec![state(*step)]).is_some()
                || livelock.look(at, (n, n + f), || vec![9]).is_some()
        })
    }

    #[test]
    fn views_that_repeat_while_nothing_is_executed_are_found() {
        let three = |step: u64| u8::try_from(step % 3).unwrap();
        assert_eq!(found((4, 1), |_| 0, |_| 7), Some(6), "n + f views like the one before them");
        assert_eq!(found((4, 1), |_| 0, three), Some(8));
        assert_eq!(found((10, 3), |_| 0, three), Some(16));
        assert_eq!(found((4, 1), |step| step / 6, |_| 7), None, "something is executed now and then");
        let begins_late = |step: u64| if step < 30 { u8::try_from(step + 9).unwrap() } else { three(step) };
        assert_eq!(found((4, 1), |_| 0, begins_late), Some(37));
    }

    #[test]
    fn views_that_differ_are_no_circle() {
        assert_eq!(found((4, 1), |_| 0, |step| u8::try_from(step % 251).unwrap()), None);
        assert_eq!(found((4, 1), |_| 0, |step| u8::try_from(step % 5).unwrap()), None, "longer than a round");
    }
}
