//! How many requests were answered, and how long they took.

use std::time::Duration;

use barnabas_metrics::{Counts, Histogram};
use barnabas_wire::{ApiKey, SERVED};

/// By request, all connections together: two additions for each request, none for its records.
#[derive(Debug)]
pub struct Requests {
    /// By the key's number; Kafka's numbers leave gaps.
    by_number: Vec<Option<(ApiKey, Histogram)>>,
    of_followers: Histogram,
}

impl Default for Requests {
    fn default() -> Self {
        let mut by_number = Vec::new();
        for api in SERVED {
            let at = number(api.key);
            if by_number.len() <= at {
                by_number.resize_with(at + 1, || None);
            }
            by_number[at] = Some((api.key, Histogram::default()));
        }
        Self { by_number, of_followers: Histogram::default() }
    }
}

fn number(key: ApiKey) -> usize {
    usize::try_from(key as i16).unwrap_or(usize::MAX)
}

impl Requests {
    /// A request has its answer.
    pub fn answered(&self, key: ApiKey, took: Duration) {
        let histogram = match self.by_number.get(number(key)) {
            Some(Some((_, histogram))) => histogram,
            // The one key that is not Kafka's.
            _ => &self.of_followers,
        };
        histogram.observe(u64::try_from(took.as_micros()).unwrap_or(u64::MAX));
    }

    /// Kafka's name of each request that is served here, and how long it took, in microseconds.
    pub fn counts(&self) -> impl Iterator<Item = (&'static str, Counts)> + '_ {
        let clients = self.by_number.iter().flatten().map(|(key, histogram)| {
            let name = if *key == ApiKey::Fetch { "FetchConsumer" } else { key.name() };
            (name, histogram.counts())
        });
        clients.chain([("FetchFollower", self.of_followers.counts())])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_request_has_a_histogram_of_its_own() {
        let requests = Requests::default();
        let mut expected = 0;
        for api in SERVED {
            expected += 1;
            (0..expected).for_each(|_| requests.answered(api.key, Duration::from_micros(5)));
        }
        requests.answered(ApiKey::ReplicaFetch, Duration::from_micros(7));
        let counts: Vec<_> =
            requests.counts().map(|(name, counts)| (name, counts.count())).collect();
        assert_eq!(counts.len(), SERVED.len() + 1);
        let mut told: Vec<u64> = counts.iter().map(|(_, count)| *count).collect();
        assert_eq!(told.pop(), Some(1));
        told.sort_unstable();
        assert_eq!(told, (1..=expected).collect::<Vec<u64>>());
        assert!(counts.iter().any(|(name, _)| *name == "FetchConsumer"));
    }
}
