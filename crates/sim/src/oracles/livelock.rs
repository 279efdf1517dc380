//! Livelock: views repeat, and nothing is ever executed.
//!
//! A time limit has to be generous, and shows only that something took too long. This oracle instead records the
//! replicas' state once for each view that a quorum enters while a request waits. The state leaves out everything
//! that only counts up (views, heights, times).
//!
//! With an honest leader and a healed network a view executes something. All replicas lead among n views in a row; f
//! more views are granted to late replicas. Suppose that many views have passed, and each had the state of a view at
//! most one round of leaders before it. Then nothing new will happen.
//!
//! With rotating leaders, execution takes several good views in a row, and a leader may have several views. Four times
//! as many views are granted, and a few more.

use quorate_types::{Height, View};
use std::collections::VecDeque;

/// Largest number of consecutive good views until something is decided.
const CHAIN_MAX: usize = 4;

/// Returns how many consecutive views have to repeat.
pub(crate) fn views_needed(n: usize, f: usize, rotates_leaders: bool) -> usize {
    let all_lead = n.saturating_add(f);
    if rotates_leaders { all_lead.saturating_mul(4).saturating_add(CHAIN_MAX) } else { all_lead }
}

/// The livelock oracle.
#[derive(Default, Debug)]
pub(crate) struct LivelockOracle {
    /// Greatest executed height.
    height: Height,
    /// Last view that a quorum has entered.
    view: View,
    /// State of each view since then, the newest last.
    states: VecDeque<Vec<u8>>,
}

impl LivelockOracle {
    /// Checks the greatest executed height, the view that a quorum has entered, and the state without counters.
    /// Returns a description of a livelock.
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

    /// Returns the shortest cycle of at most `longest` views that contains the last `needed` ones.
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

    /// Feeds one state for each view until a livelock is found. Returns the number of views.
    fn found((n, f): (usize, usize), height: impl Fn(u64) -> u64, state: impl Fn(u64) -> u8) -> Option<u64> {
        let mut livelock = LivelockOracle::default();
        (1..400).find(|step| {
            let at = (Height(height(*step)), View(*step));
            // A second look at a view gives the same result.
            livelock.look(at, (n, n + f), || vec![state(*step)]).is_some()
                || livelock.look(at, (n, n + f), || vec![9]).is_some()
        })
    }

    #[test]
    fn repeating_views_without_execution_are_found() {
        let three = |step: u64| u8::try_from(step % 3).unwrap();
        assert_eq!(found((4, 1), |_| 0, |_| 7), Some(6), "n + f views like the one before them");
        assert_eq!(found((4, 1), |_| 0, three), Some(8));
        assert_eq!(found((10, 3), |_| 0, three), Some(16));
        assert_eq!(found((4, 1), |step| step / 6, |_| 7), None, "something is executed now and then");
        let begins_late = |step: u64| if step < 30 { u8::try_from(step + 9).unwrap() } else { three(step) };
        assert_eq!(found((4, 1), |_| 0, begins_late), Some(37));
    }

    #[test]
    fn different_views_are_no_livelock() {
        assert_eq!(found((4, 1), |_| 0, |step| u8::try_from(step % 251).unwrap()), None);
        assert_eq!(found((4, 1), |_| 0, |step| u8::try_from(step % 5).unwrap()), None, "longer than a round");
    }
}
