//! Waits of 2 Δ after which own votes commit (§4, §8): running waits, and waits that are over and that the guard holds back
//! (§19). `T` names the voted block: by its height in the view, or by its view.

use quorate_consensus::parts::synchrony::Delta;
use quorate_consensus::{Cx, Protocol};
use quorate_types::Time;
use std::collections::VecDeque;

/// Δ after a doubt in which no timer commits: a replica in doubt counts among the f. After a slowdown the slowest replica must
/// have entered, voted and waited before any replica relies on silence again (§19).
const CLEAN: u64 = 16;
/// Maximum number of waits that the guard holds back; a later one replaces the oldest.
const HELD_MAX: usize = 64;

/// Wait after an own vote.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wait<T> {
    /// Time since which the vote is durable and on its way to all.
    out: Time,
    /// Time since which silence counts.
    since: Time,
    /// Time since which a certificate is on its way to all: shown by this replica, or formed by the votes of all.
    with_all: Option<Time>,
    /// Block that was voted for.
    pub(super) of: T,
}

impl<T> Wait<T> {
    /// Whether all replicas have a certificate of the block, or will have it.
    pub(super) fn is_with_all(&self) -> bool {
        self.with_all.is_some()
    }

    /// Returns the end of the wait. S7, R12. §8: it is 2 Δ after the vote, and Δ after its certificate was on its way to all. A
    /// replica may leave the view too late for its evidence to end this wait. Voter or not, it has the certificate before it
    /// enters the next view.
    fn end(&self, delta: Delta) -> Time {
        let silence = self.since.plus(delta.times(2));
        self.with_all.map_or_else(|| self.latest(delta), |at| silence.max(at.plus(delta.times(1))))
    }

    /// Returns until when a certificate counts. A replica that has missed the header may cast a conflicting vote from 6 Δ after
    /// the vote on. By then it has known for 3 Δ which block the certificate is for.
    fn latest(&self, delta: Delta) -> Time {
        self.out.plus(delta.times(2))
    }
}

/// Waits of a replica.
#[derive(Debug, Default)]
pub(super) struct Waits<T> {
    delta: Delta,
    /// Running waits, oldest first.
    running: VecDeque<Wait<T>>,
    /// Waits that are over, oldest first.
    held: VecDeque<Wait<T>>,
    /// Last setting of the timer.
    check: Time,
}

impl<T: Copy> Waits<T> {
    pub(super) fn new(delta: Delta) -> Self {
        Self { delta, running: VecDeque::new(), held: VecDeque::new(), check: Time::ZERO }
    }

    /// Begins a wait, but not before `from`: within 2 Δ all conflicting statements arrive. `is_with_all`: all have its
    /// certificate.
    pub(super) fn begin(&mut self, now: Time, from: Time, of: T, is_with_all: bool) {
        self.running.push_back(Wait {
            out: now,
            since: now.max(from),
            with_all: is_with_all.then_some(now),
            of,
        });
    }

    /// Notes that a certificate is on its way to all. `covers` selects the votes that it covers.
    pub(super) fn note_with_all(&mut self, now: Time, covers: impl Fn(T) -> bool) {
        let delta = self.delta;
        let open =
            self.running.iter_mut().filter(|wait| wait.with_all.is_none() && now <= wait.latest(delta));
        open.filter(|wait| covers(wait.of)).for_each(|wait| wait.with_all = Some(now));
    }

    /// Returns votes for which no certificate counts any more.
    pub(super) fn past(&self, now: Time) -> impl Iterator<Item = T> {
        let delta = self.delta;
        let past =
            self.running.iter().filter(move |wait| wait.with_all.is_none() && now > wait.latest(delta));
        past.map(|wait| wait.of)
    }

    /// Returns votes whose certificate must be shown now, half of Δ after the vote: it still arrives in time.
    pub(super) fn to_show(&self, now: Time) -> Vec<T> {
        let due = self.running.iter().take_while(|wait| self.show_at(wait) <= now);
        due.filter(|wait| wait.with_all.is_none()).map(|wait| wait.of).collect()
    }

    fn show_at(&self, wait: &Wait<T>) -> Time {
        wait.out.plus(self.delta.quarter().saturating_mul(2))
    }

    /// Returns the next time at which a running wait is over or must be shown. The caller sets the timer to it.
    pub(super) fn next_check(&mut self, now: Time) -> Option<Time> {
        let over = self.running.iter().map(|wait| wait.end(self.delta)).min()?;
        // A certificate that is due already is shown as soon as it is known.
        let open = self.running.iter().filter(|wait| wait.with_all.is_none());
        let shows = open.map(|wait| self.show_at(wait)).filter(|at| *at > now).min();
        self.check = shows.map_or(over, |at| over.min(at));
        Some(self.check)
    }

    /// Sets the timer to the next check.
    pub(super) fn arm<P: Protocol>(&mut self, cx: &mut Cx<'_, P>, timer: P::Timer) {
        match self.next_check(cx.now()) {
            Some(at) => cx.timers().set(timer, at),
            None => cx.timers().cancel(timer),
        }
    }

    /// Takes the oldest wait that was over when the timer was due. The clock may have moved on, and messages that have arrived
    /// since may be unread: the tie rule covers that as well (§4).
    pub(super) fn next_over(&mut self) -> Option<Wait<T>> {
        let (delta, check) = (self.delta, self.check);
        // A wait that begins late does not delay those behind it.
        let over = self.running.iter().position(|wait| wait.end(delta) <= check)?;
        self.running.remove(over)
    }

    /// Keeps a wait that is over until it is committed. Returns the oldest one if there is no more room for it.
    pub(super) fn hold(&mut self, wait: Wait<T>) -> Option<T> {
        self.held.push_back(wait);
        if self.held.len() > HELD_MAX { self.held.pop_front().map(|wait| wait.of) } else { None }
    }

    /// Returns waits that are over, newest first.
    pub(super) fn held(&self) -> Vec<Wait<T>> {
        self.held.iter().rev().copied().collect()
    }

    /// Whether the guard is sound for a wait. S9, R12. §19: at most f peers were late since long before the own vote left.
    /// Enough peers have answered since all had the certificate, or since Δ after the vote.
    pub(super) fn is_sound<P: Protocol>(&self, cx: &mut Cx<'_, P>, wait: &Wait<T>) -> bool {
        let fresh = wait.since.plus(self.delta.times(1)).max(wait.with_all.unwrap_or_default());
        cx.sound(wait.since.minus(self.delta.times(CLEAN)), fresh)
    }

    /// Whether no earlier vote may still be committed by its timer, and a vote of now may. After a long doubt no earlier wait
    /// commits, however many there are.
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

    /// Ends all waits and returns their votes: no timer commits them.
    pub(super) fn clear(&mut self) -> Vec<T> {
        self.running.drain(..).chain(self.held.drain(..)).map(|wait| wait.of).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use quorate_consensus::parts::synchrony::SynchronyParams;

    /// A turn may be late, and messages may be unread: a timer commits only the waits for which it was set.
    #[test]
    fn timer_ends_waits_that_were_over_when_it_was_due() {
        let delta = SynchronyParams::default().delta();
        let mut waits = Waits::new(delta);
        let two = delta.times(2);
        waits.begin(Time(0), Time(0), 1, true);
        waits.begin(Time(5), Time(0), 2, true);
        assert_eq!(waits.next_check(Time(5)), Some(Time(two)));
        let over: Vec<i32> = std::iter::from_fn(|| waits.next_over()).map(|wait| wait.of).collect();
        assert_eq!(over, [1], "the clock does not count");
        assert_eq!(waits.next_check(Time(two + 9)), Some(Time(two + 5)));
        assert_eq!(waits.next_over().map(|wait| wait.of), Some(2));
    }

    /// A later wait does not move the check: a certificate shown too late does not count.
    #[test]
    fn wait_is_checked_while_its_certificate_may_be_shown() {
        let delta = SynchronyParams::default().delta();
        let half = 2 * delta.quarter();
        let mut waits = Waits::new(delta);
        waits.begin(Time(0), Time(0), 1, false);
        waits.begin(Time(5), Time(0), 2, true);
        assert_eq!(waits.next_check(Time(5)), Some(Time(half)));
        assert_eq!(waits.to_show(Time(half)), [1]);
    }

    /// Silence may count from a later time, but the certificate is due as early as ever.
    #[test]
    fn late_wait_needs_its_certificate_no_later() {
        let delta = SynchronyParams::default().delta();
        let (late, two) = (Time(delta.times(3)), delta.times(2));
        let begun = |with_all: Option<u64>| {
            let mut waits = Waits::new(delta);
            waits.begin(Time(0), late, 1, false);
            assert_eq!(waits.next_check(Time(0)), Some(Time(2 * delta.quarter())));
            assert_eq!(waits.to_show(Time(2 * delta.quarter())), [1]);
            with_all.into_iter().for_each(|at| waits.note_with_all(Time(at), |_| true));
            let end = waits.next_check(Time(two));
            (end, waits.next_over().map(|wait| wait.is_with_all()))
        };
        assert_eq!(begun(Some(two)), (Some(late.plus(two)), Some(true)));
        assert_eq!(begun(Some(two + 1)), (Some(Time(two)), Some(false)));
        assert_eq!(begun(None), (Some(Time(two)), Some(false)));
        // It does not delay those behind it either.
        let mut waits = Waits::new(delta);
        waits.begin(Time(0), late, 1, true);
        waits.begin(Time(1), Time(0), 2, false);
        assert_eq!(waits.next_check(Time(two)), Some(Time(two + 1)));
        assert_eq!(waits.next_over().map(|wait| (wait.of, wait.is_with_all())), Some((2, false)));
        assert!(waits.next_over().is_none() && waits.to_show(Time(two + 1)).is_empty());
    }
}
