//! How fast replicas that are being added are copied: at most so many bytes a second for the whole broker.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// What the copies of this broker have taken beyond their limit. Shared by all fetch sessions.
///
/// An answer is taken whole, and then there is a pause until its bytes are worked off: the limit holds on the average, the
/// partitions that are not being copied never wait.
#[derive(Default)]
pub struct Pace {
    /// Bytes that are not worked off, and since when.
    debt: Mutex<Option<(u64, Instant)>>,
}

impl Pace {
    /// `bytes` were fetched at `now` by a replica with a limit.
    pub(super) fn fetched(&self, bytes: usize, limit: u64, now: Instant) {
        let mut debt = self.debt.lock().unwrap_or_else(PoisonError::into_inner);
        let left = left_of(*debt, limit, now);
        *debt = Some((left.saturating_add(bytes as u64), now));
    }

    /// How long a replica with this limit must not fetch from `now` on.
    pub(super) fn pause(&self, limit: u64, now: Instant) -> Duration {
        let mut debt = self.debt.lock().unwrap_or_else(PoisonError::into_inner);
        let left = left_of(*debt, limit, now);
        *debt = (left > 0).then_some((left, now));
        Duration::from_millis(left.saturating_mul(1000).div_ceil(limit.max(1)))
    }
}

/// What is left at `now` of a debt that shrinks by `limit` a second.
fn left_of(debt: Option<(u64, Instant)>, limit: u64, now: Instant) -> u64 {
    let Some((bytes, since)) = debt else { return 0 };
    let micros = now.saturating_duration_since(since).as_micros();
    let paid = u128::from(limit) * micros / 1_000_000;
    bytes.saturating_sub(u64::try_from(paid).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_holds_on_the_average_and_may_change_at_any_time() {
        let pace = Pace::default();
        let begin = Instant::now();
        let at = |ms: u64| begin + Duration::from_millis(ms);
        assert_eq!(pace.pause(1000, at(0)), Duration::ZERO, "nothing was fetched");
        pace.fetched(5000, 1000, at(0));
        pace.fetched(1000, 1000, at(1000));
        assert_eq!(pace.pause(1000, at(1000)), Duration::from_secs(5), "all copies share it");
        assert_eq!(pace.pause(5000, at(1000)), Duration::from_secs(1), "another limit, at once");
        assert_eq!(pace.pause(1000, at(4000)), Duration::from_secs(2));
        assert_eq!(pace.pause(1000, at(6000)), Duration::ZERO);
        assert_eq!(pace.pause(1000, at(99_000)), Duration::ZERO, "no credit for idle times");
    }
}
