//! How many bytes a second this broker takes and gives, all in all and by topic, between two looks.

use std::collections::{BTreeMap, HashMap};
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

/// Topics of which a broker tells something: if there are more it tells of none, for whoever reads it could not know of which.
pub(super) const TOPICS_TOLD_MAX: usize = 2_000;

/// Bytes a second that producers send to this broker, by topic.
#[derive(Debug, Default)]
pub(in crate::http) struct TopicRates(Mutex<Option<TopicLook>>);

#[derive(Debug)]
struct TopicLook {
    at: Instant,
    bytes: HashMap<String, u64>,
    rates: Option<BTreeMap<String, u64>>,
}

impl TopicRates {
    /// The rates of topics that have one, of the totals at `now` and before; `None`: not known yet, or too many.
    pub(super) fn note(
        &self,
        now: Instant,
        bytes: HashMap<String, u64>,
    ) -> Option<BTreeMap<String, u64>> {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let over = last.as_ref().map(|last| now.saturating_duration_since(last.at));
        let rates = match (last.as_ref(), over) {
            (Some(last), Some(over)) if over < OVER_MIN => return last.rates.clone(),
            (Some(last), Some(over)) if over <= OVER_MAX => {
                let ms = u64::try_from(over.as_millis()).unwrap_or(u64::MAX).max(1);
                let rate = |(name, bytes): (&String, &u64)| {
                    // One that came since then began with nothing.
                    let then = last.bytes.get(name).copied().unwrap_or(0);
                    let more = bytes.saturating_sub(then);
                    (more > 0).then(|| (name.clone(), more.saturating_mul(1_000) / ms))
                };
                let rates: BTreeMap<_, _> = bytes.iter().filter_map(rate).collect();
                Some(rates).filter(|rates| rates.len() <= TOPICS_TOLD_MAX)
            }
            _ => None,
        };
        *last = Some(TopicLook { at: now, bytes, rates: rates.clone() });
        rates
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

    #[test]
    fn topics_have_rates_of_their_own_and_silent_ones_none() {
        let (rates, start) = (TopicRates::default(), Instant::now());
        let at = |ms| start + Duration::from_millis(ms);
        let of = |pairs: &[(&str, u64)]| {
            pairs.iter().map(|(name, bytes)| ((*name).to_owned(), *bytes)).collect()
        };
        assert_eq!(rates.note(at(0), of(&[("a", 100), ("b", 7)])), None);
        let told = rates.note(at(2_000), of(&[("a", 1_100), ("b", 7), ("c", 40)])).unwrap();
        assert_eq!(told, BTreeMap::from([("a".to_owned(), 500), ("c".to_owned(), 20)]));
        assert_eq!(rates.note(at(2_100), HashMap::new()), Some(told), "as before");
        assert_eq!(rates.note(at(60_000), HashMap::new()), None, "nobody looked for long");
        let many = (0..=TOPICS_TOLD_MAX).map(|n| (n.to_string(), 1)).collect();
        assert_eq!(rates.note(at(62_000), many), None, "too many");
    }
}
