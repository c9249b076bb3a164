//! A histogram that costs two atomic additions an observation: fixed buckets, four to a power of two.

use std::array::from_fn;
use std::sync::atomic::{AtomicU64, Ordering};

/// How many buckets there are. The last one begins at 7/8 of 2^27 (two minutes in microseconds) and has no end.
pub const BUCKETS: usize = 104;

/// Whole numbers (microseconds, partitions) by size. Wrong by a quarter at most, in the quantiles that are told of it.
#[derive(Debug)]
pub struct Histogram {
    buckets: [AtomicU64; BUCKETS],
    sum: AtomicU64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { buckets: from_fn(|_| AtomicU64::new(0)), sum: AtomicU64::new(0) }
    }
}

impl Histogram {
    /// Counts one observation.
    pub fn observe(&self, value: u64) {
        self.buckets[bucket_of(value)].fetch_add(1, Ordering::Relaxed);
        self.sum.fetch_add(value, Ordering::Relaxed);
    }

    /// What was counted so far. Observations that come meanwhile may be in it or not.
    #[must_use]
    pub fn counts(&self) -> Counts {
        let buckets = from_fn(|i| self.buckets[i].load(Ordering::Relaxed));
        Counts { buckets, sum: self.sum.load(Ordering::Relaxed) }
    }
}

/// What a [`Histogram`] had counted at one moment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Counts {
    buckets: [u64; BUCKETS],
    sum: u64,
}

impl Default for Counts {
    fn default() -> Self {
        Self { buckets: [0; BUCKETS], sum: 0 }
    }
}

impl Counts {
    /// How many observations.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// Their sum.
    #[must_use]
    pub fn sum(&self) -> u64 {
        self.sum
    }

    /// What came after `earlier`, which was taken of the same histogram.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            buckets: from_fn(|i| self.buckets[i].saturating_sub(earlier.buckets[i])),
            sum: self.sum.saturating_sub(earlier.sum),
        }
    }

    /// Both together.
    pub fn add(&mut self, other: &Self) {
        for (mine, others) in self.buckets.iter_mut().zip(&other.buckets) {
            *mine += others;
        }
        self.sum += other.sum;
    }

    /// How many observations are at most 2^`power`; exact for powers from 0 to 26.
    #[must_use]
    pub fn at_most(&self, power: u32) -> u64 {
        self.buckets
            .iter()
            .enumerate()
            .filter(|(i, _)| end_of(*i) <= 1 << power)
            .map(|(_, n)| n)
            .sum()
    }

    /// The value below which a share `quantile` (0 to 1) of the observations lies, as far as the buckets tell; `None` without any.
    #[must_use]
    #[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    pub fn quantile(&self, quantile: f64) -> Option<f64> {
        let count = self.count();
        if count == 0 {
            return None;
        }
        let rank = ((count as f64 * quantile).ceil() as u64).clamp(1, count);
        let mut before = 0;
        for (i, in_bucket) in self.buckets.iter().enumerate() {
            if before + in_bucket >= rank {
                let start = i.checked_sub(1).map_or(0, end_of) as f64;
                let share = (rank - before) as f64 / *in_bucket as f64;
                return Some(start + (end_of(i) as f64 - start) * share);
            }
            before += in_bucket;
        }
        None
    }
}

/// Buckets hold what is above the end of the one before and at most their own end.
fn bucket_of(value: u64) -> usize {
    let below = value.saturating_sub(1);
    if below < 4 {
        return usize::try_from(below).unwrap_or(0);
    }
    let octave = 63 - below.leading_zeros();
    let quarter = (below >> (octave - 2)) & 3;
    let bucket = u64::from(octave - 1) * 4 + quarter;
    usize::try_from(bucket).unwrap_or(BUCKETS).min(BUCKETS - 1)
}

/// Greatest value of a bucket.
fn end_of(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    if bucket < 4 {
        return bucket + 1;
    }
    let (octave, quarter) = (bucket / 4 + 1, bucket % 4);
    (4 + quarter + 1) << (octave - 2)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn buckets_follow_one_another_without_a_hole() {
        for bucket in 0..BUCKETS - 1 {
            let end = end_of(bucket);
            assert_eq!(bucket_of(end), bucket, "{end}");
            assert_eq!(bucket_of(end + 1), bucket + 1, "{end} + 1");
        }
        assert_eq!((bucket_of(0), bucket_of(u64::MAX)), (0, BUCKETS - 1));
        assert_eq!(end_of(BUCKETS - 1), 1 << 27);
    }

    #[test]
    fn nothing_has_no_quantile() {
        assert_eq!(Histogram::default().counts().quantile(0.5), None);
    }

    #[test]
    fn counts_of_a_time_are_those_after_its_beginning() {
        let histogram = Histogram::default();
        histogram.observe(7);
        let earlier = histogram.counts();
        histogram.observe(1_000);
        let since = histogram.counts().since(&earlier);
        assert_eq!((since.count(), since.sum()), (1, 1_000));
        let mut both = earlier;
        both.add(&since);
        assert_eq!(both, histogram.counts());
    }

    proptest! {
        #[test]
        fn quantiles_are_wrong_by_a_quarter_at_most_and_bounds_are_exact(
            mut values in proptest::collection::vec(1..100_000_000_u64, 1..200),
            share in 1..100_u32,
        ) {
            let histogram = Histogram::default();
            values.iter().for_each(|value| histogram.observe(*value));
            values.sort_unstable();
            let counts = histogram.counts();
            prop_assert_eq!(counts.count(), values.len() as u64);
            prop_assert_eq!(counts.sum(), values.iter().sum::<u64>());
            for power in 0..27 {
                let exact = values.iter().filter(|value| **value <= 1 << power).count();
                prop_assert_eq!(counts.at_most(power), exact as u64);
            }
            let quantile = f64::from(share) / 100.0;
            let rank = ((values.len() as f64 * quantile).ceil() as usize).clamp(1, values.len());
            let (exact, told) = (values[rank - 1] as f64, counts.quantile(quantile).unwrap());
            prop_assert!((told - exact).abs() <= exact / 4.0 + 1.0, "{told} for {exact}");
        }
    }
}
