//! A table of named timers inside the replica. The host asks for the next deadline and sleeps once.

use quorate_types::Time;

/// Due time of each timer. Setting a timer again moves it.
#[derive(Clone, Debug)]
pub struct Timers<K> {
    // A protocol has a handful of timers: a list beats a tree, and its order never matters.
    due: Vec<(Time, K)>,
}

impl<K> Default for Timers<K> {
    fn default() -> Self {
        Self { due: Vec::new() }
    }
}

impl<K: Copy + Ord> Timers<K> {
    /// Sets or moves a timer.
    pub fn set(&mut self, timer: K, at: Time) {
        match self.due.iter_mut().find(|(_, known)| *known == timer) {
            Some((time, _)) => *time = at,
            None => self.due.push((at, timer)),
        }
    }

    /// Cancels a timer; nothing happens when it is not set.
    pub fn cancel(&mut self, timer: K) {
        self.due.retain(|(_, known)| *known != timer);
    }

    /// Keeps only the timers for which `keep` returns true.
    pub fn retain(&mut self, mut keep: impl FnMut(K) -> bool) {
        self.due.retain(|(_, timer)| keep(*timer));
    }

    /// Returns the due time of a timer; `None` when it is not set.
    #[must_use]
    pub fn get(&self, timer: K) -> Option<Time> {
        self.due.iter().find(|(_, known)| *known == timer).map(|(time, _)| *time)
    }

    /// Returns the due time of the next timer.
    #[must_use]
    pub fn deadline(&self) -> Option<Time> {
        self.due.iter().map(|(time, _)| *time).min()
    }

    /// Takes the next timer that is due, in the order of (time, timer).
    pub fn pop_due(&mut self, due: Time) -> Option<K> {
        let next = self.due.iter().filter(|(time, _)| *time <= due).min().copied()?;
        self.due.retain(|entry| *entry != next);
        Some(next.1)
    }

    /// Returns all timers with their due times, in order: for status.
    #[must_use]
    pub fn entries(&self) -> Vec<(Time, K)> {
        let mut entries = self.due.clone();
        entries.sort_unstable();
        entries
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timers_fire_in_order_of_due_time_and_name() {
        let mut timers = Timers::default();
        timers.set('b', Time(5));
        timers.set('a', Time(5));
        timers.set('c', Time(3));
        timers.set('d', Time(9));
        timers.set('d', Time(6));
        timers.cancel('x');
        assert_eq!(timers.deadline(), Some(Time(3)));
        let fired: Vec<char> = std::iter::from_fn(|| timers.pop_due(Time(5))).collect();
        assert_eq!(fired, ['c', 'a', 'b']);
        assert_eq!(timers.get('d'), Some(Time(6)));
        timers.retain(|timer| timer != 'd');
        assert_eq!(timers.deadline(), None);
    }
}
