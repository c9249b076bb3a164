//! How many bytes a second this broker takes and gives, between two looks.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Two looks of which a rate is made lie at least so far apart.
const OVER_MIN: Duration = Duration::from_secs(1);
/// And at most: what lies farther back says nothing of now.
const OVER_MAX: Duration = Duration::from_secs(10);

/// See the module's head.
#[derive(Debug, Default)]
pub(in crate::http) struct Rates(Mutex<Option<Look>>);

#[derive(Clone, Copy, Debug)]
struct Look {
    at: Instant,
    /// In and out, since the broker's start.
    bytes: (u64, u64),
    rate: Option<(u64, u64)>,
}

impl Rates {
    /// Bytes a second in and out, of the totals at `now` and before; `None`: not known yet.
    pub(super) fn note(&self, now: Instant, bytes: (u64, u64)) -> Option<(u64, u64)> {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let over = last.map(|last| now.saturating_duration_since(last.at));
        let rate = match (*last, over) {
            (Some(last), Some(over)) if over < OVER_MIN => return last.rate,
            (Some(last), Some(over)) if over <= OVER_MAX => {
                let ms = u64::try_from(over.as_millis()).unwrap_or(u64::MAX).max(1);
                let of = |now: u64, then: u64| now.saturating_sub(then).saturating_mul(1_000) / ms;
                Some((of(bytes.0, last.bytes.0), of(bytes.1, last.bytes.1)))
            }
            _ => None,
        };
        *last = Some(Look { at: now, bytes, rate });
        rate
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_of_the_last_seconds_or_not_known() {
        let (rates, start) = (Rates::default(), Instant::now());
        let at = |ms| start + Duration::from_millis(ms);
        assert_eq!(rates.note(at(0), (100, 0)), None);
        assert_eq!(rates.note(at(500), (900, 0)), None, "too early");
        assert_eq!(rates.note(at(2_000), (1_100, 400)), Some((500, 200)));
        assert_eq!(rates.note(at(2_500), (9_999, 999)), Some((500, 200)), "as before");
        assert_eq!(rates.note(at(60_000), (99_999, 999)), None, "nobody looked for long");
    }
}
