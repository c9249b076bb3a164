//! The scheduler: what happens next, ordered by virtual time and then by the order of scheduling.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

struct Scheduled<E> {
    at_ms: u64,
    sequence: u64,
    event: E,
}

impl<E> PartialEq for Scheduled<E> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}
impl<E> Eq for Scheduled<E> {}
impl<E> PartialOrd for Scheduled<E> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
impl<E> Ord for Scheduled<E> {
    /// Reversed: the heap gives the greatest, we want the earliest.
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at_ms, other.sequence).cmp(&(self.at_ms, self.sequence))
    }
}

/// Events to come.
pub struct Queue<E> {
    heap: BinaryHeap<Scheduled<E>>,
    now_ms: u64,
    sequence: u64,
}

impl<E> Default for Queue<E> {
    fn default() -> Self {
        Self { heap: BinaryHeap::new(), now_ms: 0, sequence: 0 }
    }
}

impl<E> Queue<E> {
    /// Virtual time, in milliseconds since the world began.
    #[must_use]
    pub fn now_ms(&self) -> u64 {
        self.now_ms
    }

    /// Schedules `event` `delay_ms` from now.
    pub fn after(&mut self, delay_ms: u64, event: E) {
        self.at(self.now_ms + delay_ms, event);
    }

    /// Schedules `event` at a moment, now at the earliest.
    pub fn at(&mut self, at_ms: u64, event: E) {
        self.sequence += 1;
        let at_ms = at_ms.max(self.now_ms);
        self.heap.push(Scheduled { at_ms, sequence: self.sequence, event });
    }

    /// Moves the clock to the next event and takes it.
    pub fn pop(&mut self) -> Option<E> {
        let next = self.heap.pop()?;
        assert!(next.at_ms >= self.now_ms, "time does not go back");
        self.now_ms = next.at_ms;
        Some(next.event)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn same_moment_keeps_the_order_of_scheduling() {
        let mut queue = Queue::default();
        queue.after(5, "c");
        queue.after(1, "a");
        queue.after(1, "b");
        assert_eq!(
            [queue.pop(), queue.pop(), queue.pop(), queue.pop()],
            [Some("a"), Some("b"), Some("c"), None]
        );
        assert_eq!(queue.now_ms(), 5);
    }
}
