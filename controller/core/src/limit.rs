//! How often something may happen within a span of time.

use barnabas_types::Now;

/// Counts what happened since `since`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Limit {
    since: Now,
    count: u32,
}

impl Limit {
    /// Nothing has happened; the first span begins at `now`.
    pub(crate) fn new(now: Now) -> Self {
        Self { since: now, count: 0 }
    }

    /// Whether it may happen once more, at most `max` times within `span_ms`; if so, it counts.
    pub(crate) fn take(&mut self, now: Now, max: u32, span_ms: u64) -> bool {
        if now.since_ms(self.since) >= span_ms {
            *self = Self::new(now);
        }
        let may = self.count < max;
        self.count += u32::from(may);
        may
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_many_within_a_span_and_again_in_the_next() {
        let mut limit = Limit::new(Now(100));
        let taken: Vec<bool> =
            [100, 150, 199, 200, 250, 260].map(|now| limit.take(Now(now), 2, 100)).into();
        assert_eq!(taken, [true, true, false, true, true, false]);
    }
}
