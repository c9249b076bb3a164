//! Prometheus' text format, version 0.0.4, written into one buffer.
//!
//! Names, types and help come from the table; labels are encoded once and used for every metric of the same thing, so that a
//! sample costs no allocation.

use std::fmt::{Display, Write as _};

use crate::histogram::Counts;
use crate::table::{Kind, Metric, find};

/// The quantiles of summaries, as Kafka's dashboards ask for them.
const QUANTILES: [(&str, f64); 5] =
    [("0.5", 0.5), ("0.75", 0.75), ("0.95", 0.95), ("0.99", 0.99), ("0.999", 0.999)];
/// Bounds of histograms are these powers of two, and infinity.
const BOUND_POWERS: [u32; 11] = [6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26];
/// Bounds of histograms of numbers of things.
const SIZE_POWERS: [u32; 8] = [0, 1, 2, 3, 4, 6, 8, 10];

/// Labels of a sample in their encoded form, without braces.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Labels(String);

impl Labels {
    /// None.
    #[must_use]
    pub fn none() -> Self {
        Self::default()
    }

    /// One more. The value may be any text; the name is one that this program has.
    #[must_use]
    pub fn with(self, name: &str, value: impl Display) -> Self {
        self.with_any(name, &value)
    }

    /// Not generic, so that it is compiled here, with optimisation.
    fn with_any(mut self, name: &str, value: &dyn Display) -> Self {
        if !self.0.is_empty() {
            self.0.push(',');
        }
        self.0.push_str(name);
        self.0.push_str("=\"");
        // Into a string nothing fails.
        let _ = write!(Escaped(&mut self.0), "{value}");
        self.0.push('"');
        self
    }
}

/// Escapes what a label's value must not hold.
struct Escaped<'a>(&'a mut String);

impl std::fmt::Write for Escaped<'_> {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        for character in text.chars() {
            match character {
                '\\' => self.0.push_str("\\\\"),
                '"' => self.0.push_str("\\\""),
                '\n' => self.0.push_str("\\n"),
                other => self.0.push(other),
            }
        }
        Ok(())
    }
}

/// A scrape's answer under way. Samples of one metric are written together.
#[derive(Debug, Default)]
pub struct Text {
    out: String,
    metric: Option<&'static Metric>,
}

impl Text {
    /// With room for so many bytes.
    #[must_use]
    pub fn with_room(bytes: usize) -> Self {
        Self { out: String::with_capacity(bytes), metric: None }
    }

    /// Begins the samples of a metric of the table.
    ///
    /// # Panics
    /// If the table has no metric of this name.
    pub fn metric(&mut self, name: &str) {
        let metric = find(name);
        assert!(metric.is_some(), "{name} is no metric of the table");
        self.metric = metric;
        if let Some(Metric { name, kind, help, .. }) = metric {
            let _ = writeln!(self.out, "# HELP {name} {help}\n# TYPE {name} {}", kind.name());
        }
    }

    /// One sample.
    pub fn sample(&mut self, labels: &Labels, value: impl Display) {
        self.line("", labels, "", &value);
    }

    /// A metric with one sample and no labels.
    pub fn one(&mut self, name: &str, value: impl Display) {
        self.metric(name);
        self.sample(&Labels::none(), value);
    }

    /// The samples of a summary: quantiles of `recent`, count and sum of `all`, each observation divided by `unit`.
    #[allow(clippy::cast_precision_loss)]
    pub fn summary(&mut self, labels: &Labels, recent: &Counts, all: &Counts, unit: f64) {
        for (name, quantile) in QUANTILES {
            // Without observations there is no quantile, and nothing is said.
            if let Some(value) = recent.quantile(quantile) {
                self.line("", labels, &format!("quantile=\"{name}\""), &(value / unit));
            }
        }
        self.line("_sum", labels, "", &(all.sum() as f64 / unit));
        self.line("_count", labels, "", &all.count());
    }

    /// The samples of a histogram of microseconds, in seconds.
    #[allow(clippy::cast_precision_loss)]
    pub fn seconds(&mut self, labels: &Labels, counts: &Counts) {
        self.buckets(labels, counts, &BOUND_POWERS, 1e6);
    }

    /// The samples of a histogram of numbers of things.
    pub fn sizes(&mut self, labels: &Labels, counts: &Counts) {
        self.buckets(labels, counts, &SIZE_POWERS, 1.0);
    }

    #[allow(clippy::cast_precision_loss)]
    fn buckets(&mut self, labels: &Labels, counts: &Counts, powers: &[u32], unit: f64) {
        for power in powers {
            let bound = (1_u64 << power) as f64 / unit;
            self.line("_bucket", labels, &format!("le=\"{bound}\""), &counts.at_most(*power));
        }
        let count = counts.count();
        self.line("_bucket", labels, "le=\"+Inf\"", &count);
        self.line("_sum", labels, "", &(counts.sum() as f64 / unit));
        self.line("_count", labels, "", &count);
    }

    /// Not generic, as above.
    fn line(&mut self, suffix: &str, labels: &Labels, more: &str, value: &dyn Display) {
        let Some(metric) = self.metric else { return };
        let out = &mut self.out;
        out.push_str(metric.name);
        out.push_str(suffix);
        if !labels.0.is_empty() || !more.is_empty() {
            out.push('{');
            out.push_str(&labels.0);
            if !labels.0.is_empty() && !more.is_empty() {
                out.push(',');
            }
            out.push_str(more);
            out.push('}');
        }
        // Into a string nothing fails.
        let _ = writeln!(out, " {value}");
    }

    /// The whole answer.
    #[must_use]
    pub fn finish(self) -> String {
        self.out
    }
}

impl Kind {
    /// As the format spells it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Summary => "summary",
            Self::Histogram => "histogram",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Histogram;

    #[test]
    fn samples_are_written_with_their_labels_escaped() {
        let mut text = Text::default();
        text.metric("kafka_log_log_size");
        text.sample(&Labels::none().with("topic", "a\"b\\c\nd").with("partition", 3), 17);
        text.one("kafka_brokers", 3);
        let expected = "kafka_log_log_size{topic=\"a\\\"b\\\\c\\nd\",partition=\"3\"} 17\n";
        let said = text.finish();
        assert!(said.contains(expected), "{said}");
        assert!(said.starts_with("# HELP kafka_log_log_size "), "{said}");
        assert!(said.contains("\n# TYPE kafka_brokers gauge\nkafka_brokers 3\n"), "{said}");
    }

    #[test]
    fn a_summary_has_quantiles_of_late_and_counts_since_the_beginning() {
        let histogram = Histogram::default();
        histogram.observe(1_000);
        let mut text = Text::default();
        text.metric("kafka_network_requestmetrics_totaltimems");
        let all = histogram.counts();
        text.summary(&Labels::none().with("request", "Produce"), &all.since(&all), &all, 1e3);
        text.summary(&Labels::none().with("request", "Fetch"), &all, &all, 1e3);
        let said = text.finish();
        let name = "kafka_network_requestmetrics_totaltimems";
        assert!(!said.contains("request=\"Produce\",quantile"), "{said}");
        assert!(said.contains(&format!("{name}_sum{{request=\"Produce\"}} 1\n")), "{said}");
        assert!(said.contains(&format!("{name}_count{{request=\"Fetch\"}} 1\n")), "{said}");
        assert!(said.contains("request=\"Fetch\",quantile=\"0.99\"} 1.024\n"), "{said}");
    }

    #[test]
    fn buckets_of_a_histogram_accumulate() {
        let histogram = Histogram::default();
        [1, 64, 65, 2_000_000, u64::from(u32::MAX)].iter().for_each(|us| histogram.observe(*us));
        let mut text = Text::default();
        text.metric("barnabas_flush_seconds");
        text.seconds(&Labels::none(), &histogram.counts());
        let said = text.finish();
        for line in [
            "barnabas_flush_seconds_bucket{le=\"0.000064\"} 2\n",
            "barnabas_flush_seconds_bucket{le=\"0.000256\"} 3\n",
            "barnabas_flush_seconds_bucket{le=\"4.194304\"} 4\n",
            "barnabas_flush_seconds_bucket{le=\"+Inf\"} 5\n",
            "barnabas_flush_seconds_count 5\n",
        ] {
            assert!(said.contains(line), "{line} in {said}");
        }
    }
}
