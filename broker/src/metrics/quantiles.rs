//! Quantiles of the last one to two minutes, for the operator's page; where nothing came in those, of all since the start.

use barnabas_metrics::Counts;

use super::scrape::Metrics;

/// Whoever looks at the page looks at windows of its own: those of scrapes begin when somebody scrapes.
const FLUSHES: &str = "page: flushes";
const ZOOKEEPER: &str = "page: zookeeper";
const QUANTILE: f64 = 0.99;

impl Metrics {
    /// How long syncs of this broker took, in ms, the 99th of a hundred; `None`: there were none.
    #[must_use]
    pub fn flush_ms_p99(&self) -> Option<f64> {
        let (took, ..) = self.flushes()?;
        self.lately(FLUSHES, &took)
    }

    /// The same of ZooKeeper's answers to this broker.
    #[must_use]
    pub fn zookeeper_ms_p99(&self) -> Option<f64> {
        self.lately(ZOOKEEPER, &self.zookeeper.requests())
    }

    /// A quiet cluster writes nothing to ZooKeeper for hours: what it took last is then the best that is known.
    fn lately(&self, name: &str, now: &Counts) -> Option<f64> {
        quantile_ms(&self.recent(name, now)).or_else(|| quantile_ms(now))
    }
}

/// Of microseconds, to a tenth of a millisecond.
fn quantile_ms(counts: &Counts) -> Option<f64> {
    counts.quantile(QUANTILE).map(|us| (us / 100.0).round() / 10.0)
}

#[cfg(test)]
mod tests {
    use barnabas_metrics::Histogram;

    use super::*;

    #[test]
    fn microseconds_become_tenths_of_milliseconds_and_nothing_stays_unknown() {
        let histogram = Histogram::default();
        assert_eq!(quantile_ms(&histogram.counts()), None);
        (0..100).for_each(|_| histogram.observe(2_048));
        let told = quantile_ms(&histogram.counts()).unwrap();
        assert!((1.7..=2.1).contains(&told), "{told}");
        assert_eq!(quantile_ms(&Counts::default()), None);
    }
}
