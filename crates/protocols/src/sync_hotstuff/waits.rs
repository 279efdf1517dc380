//! Own votes and the 2 Δ after which they commit (§4, §8): those that run, and those that are over and that the guard holds
//! back (§19). `T` is what was voted for: a height of the view, or a view.

use quorate_consensus::parts::synchrony::Delta;
use quorate_consensus::{Cx, Protocol};
use quorate_types::Time;
use std::collections::VecDeque;

/// A timer commits nothing within so many Δ of a doubt: a replica in doubt counts among the f, and when a slowdown ends
/// the slowest has to have entered, voted and waited before anybody relies on silence again (§19).
const CLEAN: u64 = 16;
/// Waits whose commit the guard holds back at most; a later one takes their place.
const HELD_MAX: usize = 64;

/// An own vote that is with all, and for what.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wait<T> {
    /// Since when it was durable and on its way to all.
    out: Time,
    /// Since when silence counts.
    since: Time,
    /// Since when a certificate of it is: shown by this replica, or made of the votes of all.
    with_all: Option<Time>,
    pub(super) of: T,
}

impl<T> Wait<T> {
    /// Whether there is a certificate of it, and all have it or will.
    pub(super) fn is_with_all(&self) -> bool {
        self.with_all.is_some()
    }

    /// S7, R12. §8: 2 Δ after the vote, and Δ after its certificate was on its way to all. Whoever leaves the view too late
    /// for its evidence to end this wait has the certificate before it enters the next view, whether it has voted or not.
    fn end(&self, delta: Delta) -> Time {
        let silence = self.since.plus(delta.times(2));
        self.with_all.map_or_else(|| self.latest(delta), |at| silence.max(at.plus(delta.times(1))))
    }

    /// Until then a certificate counts. Whoever has missed what was voted for may vote beside it from 6 Δ after the vote on, and has
    /// known for 3 Δ by then what the certificate is for.
    fn latest(&self, delta: Delta) -> Time {
        self.out.plus(delta.times(2))
    }
}

/// See the module.
#[derive(Debug)]
pub(super) struct Waits<T> {
    delta: Delta,
    /// Oldest first, as below.
    running: VecDeque<Wait<T>>,
    held: VecDeque<Wait<T>>,
    /// What the timer was set to last.
    look: Time,
}

impl<T: Copy> Waits<T> {
    pub(super) fn new(delta: Delta) -> Self {
        Self { delta, running: VecDeque::new(), held: VecDeque::new(), look: Time::default() }
    }

    /// From now on, but not before `from`, everything that contradicts a vote is here within 2 Δ. `is_with_all`: its certificate
    /// is with all.
    pub(super) fn begin(&mut self, now: Time, from: Time, of: T, is_with_all: bool) {
        self.running.push_back(Wait {
            out: now,
            since: now.max(from),
            with_all: is_with_all.then_some(now),
            of,
        });
    }

    /// A certificate is on its way to all; for which of the votes it is one.
    pub(super) fn note_with_all(&mut self, now: Time, proves: impl Fn(T) -> bool) {
        let delta = self.delta;
        let open =
            self.running.iter_mut().filter(|wait| wait.with_all.is_none() && now <= wait.latest(delta));
        open.filter(|wait| proves(wait.of)).for_each(|wait| wait.with_all = Some(now));
    }

    /// Votes for which no certificate counts any more.
    pub(super) fn past(&self, now: Time) -> impl Iterator<Item = T> {
        let delta = self.delta;
        let past =
            self.running.iter().filter(move |wait| wait.with_all.is_none() && now > wait.latest(delta));
        past.map(|wait| wait.of)
    }

    /// Votes whose certificate should be with all by now, and is not: half of Δ later it still comes in time.
    pub(super) fn to_show(&self, now: Time) -> Vec<T> {
        let due = self.running.iter().take_while(|wait| self.show_at(wait) <= now);
        due.filter(|wait| wait.with_all.is_none()).map(|wait| wait.of).collect()
    }

    fn show_at(&self, wait: &Wait<T>) -> Time {
        wait.out.plus(self.delta.quarter().saturating_mul(2))
    }

    /// When one that runs is to be looked at next: it is over, or its certificate should be with all. The timer has to be
    /// set to that.
    pub(super) fn next_look(&mut self, now: Time) -> Option<Time> {
        let over = self.running.iter().map(|wait| wait.end(self.delta)).min()?;
        // One that should be with all by now is shown as soon as it can be.
        let open = self.running.iter().filter(|wait| wait.with_all.is_none());
        let shows = open.map(|wait| self.show_at(wait)).filter(|at| *at > now).min();
        self.look = shows.map_or(over, |at| over.min(at));
        Some(self.look)
    }

    /// Sets the timer to that.
    pub(super) fn arm<P: Protocol>(&mut self, cx: &mut Cx<'_, P>, timer: P::Timer) {
        match self.next_look(cx.now()) {
            Some(at) => cx.timers().set(timer, at),
            None => cx.timers().cancel(timer),
        }
    }

    /// Takes the oldest one that was over when the timer was due. The clock may be further, and what has come since may lie
    /// unread: the tie rule is for that as well (§4).
    pub(super) fn next_over(&mut self) -> Option<Wait<T>> {
        let (delta, look) = (self.delta, self.look);
        // One that begins late does not hold up those behind it.
        let over = self.running.iter().position(|wait| wait.end(delta) <= look)?;
        self.running.remove(over)
    }

    /// Keeps one that is over until it is committed; returns what there is no room for any more.
    pub(super) fn hold(&mut self, wait: Wait<T>) -> Option<T> {
        self.held.push_back(wait);
        if self.held.len() > HELD_MAX { self.held.pop_front().map(|wait| wait.of) } else { None }
    }

    /// Those that are over, newest first.
    pub(super) fn held(&self) -> Vec<Wait<T>> {
        self.held.iter().rev().copied().collect()
    }

    /// S9, R12. §19: at most f peers were late since long before the own vote was out, and since all had the certificate, or
    /// Δ after the vote, enough have answered.
    pub(super) fn is_sound<P: Protocol>(&self, cx: &mut Cx<'_, P>, wait: &Wait<T>) -> bool {
        let fresh = wait.since.plus(self.delta.times(1)).max(wait.with_all.unwrap_or_default());
        cx.sound(wait.since.minus(self.delta.times(CLEAN)), fresh)
    }

    /// Whether nothing that was voted for may still be committed by its timer, and what is voted for now may. After a long
    /// doubt no wait of before commits any more, however many there are.
    pub(super) fn are_in_vain<P: Protocol>(&self, cx: &mut Cx<'_, P>) -> bool {
        let clean = self.delta.times(CLEAN);
        let now = cx.now();
        let mut is_clean = |since: Time| cx.sound(since.minus(clean), since.minus(clean));
        is_clean(now) && !self.running.iter().chain(&self.held).any(|wait| is_clean(wait.since))
    }

    pub(super) fn retain(&mut self, keep: impl Fn(T) -> bool) {
        self.running.retain(|wait| keep(wait.of));
        self.held.retain(|wait| keep(wait.of));
    }

    /// Ends them all; nothing of what is returned commits.
    pub(super) fn clear(&mut self) -> Vec<T> {
        self.running.drain(..).chain(self.held.drain(..)).map(|wait| wait.of).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quorate_consensus::parts::synchrony::SynchronyParams;

    /// A turn may be late, and what has come meanwhile lies unread: its timers commit what they were set for.
    #[test]
    fn a_timer_ends_what_was_over_when_it_was_due() {
        let delta = SynchronyParams::default().delta();
        let mut waits = Waits::new(delta);
        let two = delta.times(2);
        waits.begin(Time(0), Time(0), 1, true);
        waits.begin(Time(5), Time(0), 2, true);
        assert_eq!(waits.next_look(Time(5)), Some(Time(two)));
        let over: Vec<i32> = std::iter::from_fn(|| waits.next_over()).map(|wait| wait.of).collect();
        assert_eq!(over, [1], "whatever the clock says");
        assert_eq!(waits.next_look(Time(two + 9)), Some(Time(two + 5)));
        assert_eq!(waits.next_over().map(|wait| wait.of), Some(2));
    }

    /// Whatever begins after it: else it is looked at when it is too late.
    #[test]
    fn each_wait_is_looked_at_while_its_certificate_may_be_shown() {
        let delta = SynchronyParams::default().delta();
        let half = 2 * delta.quarter();
        let mut waits = Waits::new(delta);
        waits.begin(Time(0), Time(0), 1, false);
        waits.begin(Time(5), Time(0), 2, true);
        assert_eq!(waits.next_look(Time(5)), Some(Time(half)));
        assert_eq!(waits.to_show(Time(half)), [1]);
    }

    /// Silence may count from later on; the certificate is shown, and has to be there, as early as ever.
    #[test]
    fn a_wait_that_begins_late_wants_its_certificate_no_later() {
        let delta = SynchronyParams::default().delta();
        let (late, two) = (Time(delta.times(3)), delta.times(2));
        let begun = |with_all: Option<u64>| {
            let mut waits = Waits::new(delta);
            waits.begin(Time(0), late, 1, false);
            assert_eq!(waits.next_look(Time(0)), Some(Time(2 * delta.quarter())));
            assert_eq!(waits.to_show(Time(2 * delta.quarter())), [1]);
            with_all.into_iter().for_each(|at| waits.note_with_all(Time(at), |_| true));
            let end = waits.next_look(Time(two));
            (end, waits.next_over().map(|wait| wait.is_with_all()))
        };
        assert_eq!(begun(Some(two)), (Some(late.plus(two)), Some(true)));
        assert_eq!(begun(Some(two + 1)), (Some(Time(two)), Some(false)));
        assert_eq!(begun(None), (Some(Time(two)), Some(false)));
        // Nor does it hold up those behind it.
        let mut waits = Waits::new(delta);
        waits.begin(Time(0), late, 1, true);
        waits.begin(Time(1), Time(0), 2, false);
        assert_eq!(waits.next_look(Time(two)), Some(Time(two + 1)));
        assert_eq!(waits.next_over().map(|wait| (wait.of, wait.is_with_all())), Some((2, false)));
        assert!(waits.next_over().is_none() && waits.to_show(Time(two + 1)).is_empty());
    }
}
