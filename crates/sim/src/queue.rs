//! What will happen, in the order in which it will.
//!
//! Events at equal times are ordered by class: what arrives comes before what was answered, and that before
//! what is due. Synchronous protocols rest on it: a timer fires after everything that had arrived before it.

use quorate_types::Time;
use std::cmp::Ordering;
use std::collections::BinaryHeap;

/// Which events come first at equal times.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Class {
    /// Something reaches its destination.
    Arrival,
    /// The answer of a disk, an executor, or the world itself.
    Answer,
    /// Something is due.
    Tick,
}

#[derive(Debug)]
struct Entry<T> {
    at: Time,
    class: Class,
    number: u64,
    event: T,
}

impl<T> Entry<T> {
    fn key(&self) -> (Time, Class, u64) {
        (self.at, self.class, self.number)
    }
}

impl<T> PartialEq for Entry<T> {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl<T> Eq for Entry<T> {}

impl<T> PartialOrd for Entry<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> Ord for Entry<T> {
    /// The heap gives its greatest first, so the earliest is the greatest.
    fn cmp(&self, other: &Self) -> Ordering {
        other.key().cmp(&self.key())
    }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Queue<T> {
    heap: BinaryHeap<Entry<T>>,
    next: u64,
}

impl<T> Default for Queue<T> {
    fn default() -> Self {
        Self { heap: BinaryHeap::new(), next: 0 }
    }
}

impl<T> Queue<T> {
    /// Adds an event; those of equal time and class happen in the order in which they were added.
    pub(crate) fn push(&mut self, at: Time, class: Class, event: T) {
        let number = self.next;
        self.next = number.wrapping_add(1);
        self.heap.push(Entry { at, class, number, event });
    }

    /// When the next event happens.
    pub(crate) fn next_at(&self) -> Option<Time> {
        self.heap.peek().map(|entry| entry.at)
    }

    /// The next event.
    pub(crate) fn pop(&mut self) -> Option<(Time, T)> {
        self.heap.pop().map(|entry| (entry.at, entry.event))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_by_time_then_class_then_order_of_arrival() {
        let mut queue = Queue::default();
        for (at, class, event) in [
            (2, Class::Tick, 'f'),
            (2, Class::Arrival, 'c'),
            (1, Class::Tick, 'b'),
            (2, Class::Answer, 'e'),
            (2, Class::Arrival, 'd'),
            (1, Class::Answer, 'a'),
        ] {
            queue.push(Time(at), class, event);
        }
        assert_eq!(queue.next_at(), Some(Time(1)));
        let order: String = std::iter::from_fn(|| queue.pop()).map(|(_, event)| event).collect();
        assert_eq!(order, "abcdef");
    }
}
