//! What will happen, in the order in which it will.
//!
//! Events at equal times are ordered by class: what arrives comes before what was answered, and that before
//! what is due. Synchronous protocols rest on it: a timer fires after everything that had arrived before it.

use quorate_types::Time;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Which events come first at equal times.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum EventClass {
    /// Something reaches its destination.
    Arrival,
    /// The answer of a disk, an executor, or the world itself.
    Answer,
    /// Something is due.
    Tick,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Queue<T> {
    /// When, of which class, the how-manyth, and where in `events`: the heap moves these about, and not the events.
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
    /// Adds an event; those of equal time and class happen in the order in which they were added.
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

    /// When the next event happens.
    pub(crate) fn next_at(&self) -> Option<Time> {
        self.heap.peek().map(|Reverse((at, ..))| *at)
    }

    /// The next event.
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
    fn events_come_by_time_then_class_then_order_of_arrival() {
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
