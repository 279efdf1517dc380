//! Own votes and the 2 Δ after which they commit (§4, §8): those that run, and those that are over and that the guard holds
//! back (§19). `T` is what was voted for: a height of the view, or a view.

use super::{WINDOWS_IN_NEED, WINDOWS_VOTED};
use quorate_consensus::parts::synchrony::Delta;
use quorate_consensus::{Cx, Protocol};
use quorate_types::Time;
use std::collections::VecDeque;

/// A timer commits nothing within so many Δ of a doubt: a replica in doubt counts among the f, and when a slowdown ends
/// the slowest has to have entered, voted and waited before anybody relies on silence again (§19).
const CLEAN: u64 = 16;
/// Waits whose commit the guard holds back at most; a later one takes their place.
const HELD_MAX: usize = 64;

/// Since when the own vote was durable and on its way to all, and for what.
pub(super) type Wait<T> = (Time, T);

/// See the module.
#[derive(Debug)]
pub(super) struct Waits<T> {
    delta: Delta,
    /// Oldest first, as below.
    running: VecDeque<Wait<T>>,
    held: VecDeque<Wait<T>>,
}

impl<T: Copy> Waits<T> {
    pub(super) fn new(delta: Delta) -> Self {
        Self { delta, running: VecDeque::new(), held: VecDeque::new() }
    }

    /// From now on everything that contradicts a vote is here within 2 Δ.
    pub(super) fn begin(&mut self, now: Time, of: T) {
        self.running.push_back((now, of));
    }

    /// Sets the timer to the end of the oldest one that runs.
    pub(super) fn arm<P: Protocol>(&self, cx: &mut Cx<'_, P>, timer: P::Timer) {
        match self.running.front() {
            Some((since, _)) => cx.timers().set(timer, since.plus(self.delta.times(2))),
            None => cx.timers().cancel(timer),
        }
    }

    /// Takes the oldest one that is over.
    pub(super) fn next_over(&mut self, now: Time) -> Option<Wait<T>> {
        let end = self.delta.times(2);
        self.running.pop_front_if(|(since, _)| since.plus(end) <= now)
    }

    /// Keeps one that is over until it is committed; returns what there is no room for any more.
    pub(super) fn hold(&mut self, wait: Wait<T>) -> Option<T> {
        self.held.push_back(wait);
        if self.held.len() > HELD_MAX { self.held.pop_front().map(|(_, of)| of) } else { None }
    }

    /// Those that are over, newest first.
    pub(super) fn held(&self) -> Vec<Wait<T>> {
        self.held.iter().rev().copied().collect()
    }

    /// S9, R12. §19: at most f peers were late since long before the own vote was out, and since Δ after it enough have
    /// answered.
    pub(super) fn is_sound<P: Protocol>(&self, cx: &mut Cx<'_, P>, since: Time) -> bool {
        cx.sound(since.minus(self.delta.times(CLEAN)), since.plus(self.delta.times(1)))
    }

    /// S2, R6. §8, Lemma 1 a: whether a vote is cast so many heights above what is committed: no higher than where everybody
    /// hears it.
    pub(super) fn may_vote<P: Protocol>(&self, cx: &mut Cx<'_, P>, above: u64, window: u64) -> bool {
        let windows = above.div_ceil(window.max(1));
        windows <= WINDOWS_VOTED || (windows <= WINDOWS_IN_NEED && self.are_in_vain(cx))
    }

    /// Whether nothing that was voted for may still be committed by its timer, and what is voted for now may. After a long
    /// doubt no wait of before commits any more, however many there are.
    fn are_in_vain<P: Protocol>(&self, cx: &mut Cx<'_, P>) -> bool {
        let clean = self.delta.times(CLEAN);
        let now = cx.now();
        let mut is_clean = |since: Time| cx.sound(since.minus(clean), since.minus(clean));
        is_clean(now) && !self.running.iter().chain(&self.held).any(|(since, _)| is_clean(*since))
    }

    pub(super) fn retain(&mut self, keep: impl Fn(T) -> bool) {
        self.running.retain(|(_, of)| keep(*of));
        self.held.retain(|(_, of)| keep(*of));
    }

    /// Ends them all; nothing of what is returned commits.
    pub(super) fn clear(&mut self) -> Vec<T> {
        self.running.drain(..).chain(self.held.drain(..)).map(|(_, of)| of).collect()
    }
}
