//! What a histogram has counted lately: quantiles since the start of the broker would hide what is going on now.

use std::collections::VecDeque;

use crate::histogram::Counts;

/// How far back a window goes at least, if it was looked at often enough, in milliseconds.
pub const WINDOW_MS: u64 = 60_000;
/// Moments that are remembered: the last one that is old enough, and younger ones.
const KEPT_MAX: usize = 2;

/// Earlier counts of one histogram. It is looked at by scrapes alone.
#[derive(Debug, Default)]
pub struct Window {
    earlier: VecDeque<(u64, Counts)>,
}

impl Window {
    /// What was counted in the last one to two minutes (longer if nobody looked meanwhile; since the beginning at first), when `now`
    /// is what there is at `now_ms` of a clock that never goes back.
    pub fn recent(&mut self, now_ms: u64, now: &Counts) -> Counts {
        while self.earlier.len() >= KEPT_MAX
            && self.earlier.get(1).is_some_and(|(at, _)| now_ms.saturating_sub(*at) >= WINDOW_MS)
        {
            self.earlier.pop_front();
        }
        let recent = self.earlier.front().map_or_else(|| now.clone(), |(_, then)| now.since(then));
        let last = self.earlier.back().map(|(at, _)| *at);
        if last.is_none_or(|at| now_ms.saturating_sub(at) >= WINDOW_MS) {
            self.earlier.push_back((now_ms, now.clone()));
        }
        recent
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Histogram;

    #[test]
    fn a_window_covers_one_to_two_minutes() {
        let (histogram, mut window) = (Histogram::default(), Window::default());
        let mut counted = Vec::new();
        for second in 0..600_u64 {
            histogram.observe(1);
            if second % 15 == 0 {
                counted.push(window.recent(second * 1000, &histogram.counts()).count());
            }
        }
        assert_eq!(counted[0], 1, "at first: all that there is");
        assert!(counted[8..].iter().all(|n| (60..=120).contains(n)), "{counted:?}");
        assert!(window.earlier.len() <= KEPT_MAX);
    }

    #[test]
    fn whoever_looks_seldom_gets_what_came_since() {
        let (histogram, mut window) = (Histogram::default(), Window::default());
        histogram.observe(1);
        window.recent(0, &histogram.counts());
        histogram.observe(2);
        let late = window.recent(10 * WINDOW_MS, &histogram.counts());
        assert_eq!((late.count(), late.sum()), (1, 2));
    }
}
