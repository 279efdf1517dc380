//! Going in circles: the same states again and again, view after view, and nothing is ever executed.
//!
//! A time limit says only that something took too long; it has to be generous, or it cries wolf. Here the states of the
//! replicas are written down as often as a protocol notes a transition, apart from what counts up anyway (views, times),
//! and a cycle that was gone through often enough is a failure long before the limit. What counts as often enough:
//! every replica could have led several times in it.

use quorate_types::{Height, View};

/// States that are remembered.
const REMEMBERED: usize = 512;
/// Longest cycle that is looked for.
const CYCLE_MAX: usize = 96;
/// A cycle has to have been gone through so many times …
const ROUNDS: usize = 4;
/// … while so many views were entered for each replica.
const VIEWS_PER_REPLICA: u64 = 4;

/// See the module.
#[derive(Default, Debug)]
pub(crate) struct Lasso {
    /// The greatest height that was executed when the states began to be written down.
    height: Height,
    /// The view at that moment.
    view: View,
    states: Vec<Vec<u8>>,
}

impl Lasso {
    /// Looks at the state that all are in together, without what counts up. What goes in circles, for people.
    pub(crate) fn look(&mut self, height: Height, view: View, n: usize, state: Vec<u8>) -> Option<String> {
        if height > self.height || self.states.is_empty() {
            *self = Self { height, view, states: Vec::new() };
        }
        if self.states.last() == Some(&state) {
            return None;
        }
        if self.states.len() >= REMEMBERED {
            self.states.drain(..REMEMBERED / 2);
        }
        self.states.push(state);
        let views = view.0.saturating_sub(self.view.0);
        if views < VIEWS_PER_REPLICA.saturating_mul(u64::try_from(n).unwrap_or(u64::MAX)) {
            return None;
        }
        let cycle = self.cycle()?;
        Some(format!(
            "the same {cycle} states of all replicas come again and again, {ROUNDS} times in a row by now; {views} views \
             have passed since height {} was executed, and nothing was since",
            self.height
        ))
    }

    /// The shortest cycle that the last states are several rounds of.
    fn cycle(&self) -> Option<usize> {
        (1..=CYCLE_MAX).find(|length| {
            let needed = length.saturating_mul(ROUNDS);
            let Some(from) = self.states.len().checked_sub(needed) else { return false };
            let tail = self.states.get(from..).unwrap_or_default();
            tail.iter().zip(tail.iter().skip(*length)).all(|(a, b)| a == b)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Feeds states, one a view, until something is found; how many it took.
    fn found(n: usize, height: impl Fn(u64) -> u64, state: impl Fn(u64) -> u8) -> Option<u64> {
        let mut lasso = Lasso::default();
        (0..400).find(|step| lasso.look(Height(height(*step)), View(*step), n, vec![state(*step)]).is_some())
    }

    #[test]
    fn states_that_repeat_while_nothing_is_executed_are_found() {
        let three = |step: u64| u8::try_from(step % 3).unwrap();
        assert_eq!(found(4, |_| 7, three), Some(16), "as soon as all could have led four times");
        assert_eq!(found(10, |_| 7, three), Some(40));
        assert_eq!(found(4, |step| step / 10, three), None, "something is executed now and then");
        let begins_late = |step: u64| if step < 30 { u8::try_from(step + 9).unwrap() } else { three(step) };
        assert_eq!(found(4, |_| 7, begins_late), Some(41), "after four rounds");
    }

    #[test]
    fn states_that_differ_are_no_circle() {
        assert_eq!(found(4, |_| 7, |step| u8::try_from(step % 251).unwrap()), None);
    }
}
