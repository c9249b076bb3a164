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
    /// Millionths of bytes that are not worked off, and since when: whole bytes would be rounded each time that somebody looks.
    debt: Mutex<Option<(u128, Instant)>>,
}

const MILLION: u128 = 1_000_000;

impl Pace {
    /// `bytes` were fetched at `now` by a replica with a limit.
    pub(super) fn fetched(&self, bytes: usize, limit: u64, now: Instant) {
        let mut debt = self.debt.lock().unwrap_or_else(PoisonError::into_inner);
        let left = left_of(*debt, limit, now);
        *debt = Some((left.saturating_add(bytes as u128 * MILLION), now));
    }

    /// How long a replica with this limit must not fetch from `now` on.
    pub(super) fn pause(&self, limit: u64, now: Instant) -> Duration {
        let mut debt = self.debt.lock().unwrap_or_else(PoisonError::into_inner);
        let left = left_of(*debt, limit, now);
        *debt = (left > 0).then_some((left, now));
        let micros = left.div_ceil(u128::from(limit.max(1)));
        Duration::from_micros(u64::try_from(micros).unwrap_or(u64::MAX))
    }
}

/// What is left at `now` of a debt that shrinks by `limit` a second.
fn left_of(debt: Option<(u128, Instant)>, limit: u64, now: Instant) -> u128 {
    let Some((left, since)) = debt else { return 0 };
    let micros = now.saturating_duration_since(since).as_micros();
    left.saturating_sub(u128::from(limit).saturating_mul(micros))
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

    #[test]
    fn a_debt_is_worked_off_however_often_somebody_looks() {
        let pace = Pace::default();
        let begin = Instant::now();
        pace.fetched(1000, 1000, begin);
        let looks = (0..=10_000).map(|look| begin + Duration::from_micros(look * 100));
        let pauses: Vec<Duration> = looks.map(|now| pace.pause(1000, now)).collect();
        assert_eq!(pauses.first(), Some(&Duration::from_secs(1)));
        assert_eq!(pauses.last(), Some(&Duration::ZERO));
    }
}
