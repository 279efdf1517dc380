//! The queue of future events.
//!
//! Events at equal times are ordered by class: arrivals, then answers, then ticks. Synchronous protocols depend on
//! it: a timer fires after every arrival up to its time.

use quorate_types::Time;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Classes of events, in their order at equal times.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum EventClass {
    /// An arrival at its destination.
    Arrival,
    /// An answer of a disk, an executor, or the world itself.
    Answer,
    /// An expired deadline.
    Tick,
}

/// A queue of events in the order of time.
#[derive(Debug)]
pub(crate) struct Queue<T> {
    /// Time, class, sequence number, and index in `events`. The heap moves these instead of the events.
    heap: BinaryHeap<Reverse<(Time, EventClass, u64, usize)>>,
    events: Vec<Option<T>>,
    free: Vec<usize>,
    next: u64,
}

impl<T> Default for Queue<T> {
    fn default() -> Self {
        Self { heap: BinaryHeap::new(), events: Vec::new(), free: Vec::new(), next: 0 }
    }
}

impl<T> Queue<T> {
    /// Adds an event. Events of equal time and class keep the order in which they were added.
    pub(crate) fn push(&mut self, at: Time, class: EventClass, event: T) {
        let number = self.next;
        self.next = number.wrapping_add(1);
        let place = self.free.pop().unwrap_or_else(|| {
            self.events.push(None);
            self.events.len().saturating_sub(1)
        });
        if let Some(room) = self.events.get_mut(place) {
            *room = Some(event);
        }
        self.heap.push(Reverse((at, class, number, place)));
    }

    /// Returns the time of the next event.
    pub(crate) fn next_at(&self) -> Option<Time> {
        self.heap.peek().map(|Reverse((at, ..))| *at)
    }

    /// Removes and returns the next event.
    pub(crate) fn pop(&mut self) -> Option<(Time, T)> {
        let Reverse((at, _, _, place)) = self.heap.pop()?;
        let event = self.events.get_mut(place)?.take()?;
        self.free.push(place);
        Some((at, event))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_ordered_by_time_class_and_insertion() {
        let mut queue = Queue::default();
        for (at, class, event) in [
            (2, EventClass::Tick, 'f'),
            (2, EventClass::Arrival, 'c'),
            (1, EventClass::Tick, 'b'),
            (2, EventClass::Answer, 'e'),
            (2, EventClass::Arrival, 'd'),
            (1, EventClass::Answer, 'a'),
        ] {
            queue.push(Time(at), class, event);
        }
        assert_eq!(queue.next_at(), Some(Time(1)));
        let order: String = std::iter::from_fn(|| queue.pop()).map(|(_, event)| event).collect();
        assert_eq!(order, "abcdef");
    }
}
