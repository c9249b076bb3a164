//! Reads an answer in Prometheus' text format back and checks it against the table: for tests, which must not trust the writer.

use std::collections::{BTreeMap, BTreeSet};

use crate::table::{Kind, find};

/// One sample.
#[derive(Clone, PartialEq, Debug)]
pub struct Sample {
    /// Name of the metric, without the suffixes of summaries and histograms.
    pub metric: String,
    /// `_sum`, `_count`, `_bucket`, or nothing.
    pub suffix: String,
    /// Labels.
    pub labels: BTreeMap<String, String>,
    /// Value.
    pub value: f64,
}

/// A whole answer.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Scraped {
    /// Metrics that were announced, with samples or without.
    pub metrics: BTreeSet<String>,
    /// In their order.
    pub samples: Vec<Sample>,
}

impl Scraped {
    /// Reads an answer.
    ///
    /// # Errors
    /// What is not in the format, or not as the table has it: an unknown name, another type or label, a sample twice, samples of
    /// one metric that do not follow one another.
    pub fn read(text: &str) -> Result<Self, String> {
        let (mut all, mut seen) = (Self::default(), BTreeSet::new());
        let mut present: Option<(String, Kind)> = None;
        for line in text.lines() {
            if let Some(rest) = line.strip_prefix("# HELP ") {
                let (name, help) =
                    rest.split_once(' ').ok_or_else(|| format!("no help: {line}"))?;
                let metric = find(name).ok_or_else(|| format!("{name} is not in the table"))?;
                if help != metric.help || !all.metrics.insert(name.to_owned()) {
                    return Err(format!("{name} has another help, or comes twice"));
                }
                present = Some((name.to_owned(), metric.kind));
                continue;
            }
            let (name, kind) = present.as_ref().ok_or("a sample before any metric")?;
            if let Some(rest) = line.strip_prefix("# TYPE ") {
                if rest != format!("{name} {}", kind.name()) {
                    return Err(format!("not the type of {name}: {line}"));
                }
                continue;
            }
            let sample = sample(line, name, *kind)?;
            if !seen.insert(line.rsplit_once(' ').map(|(key, _)| key.to_owned())) {
                return Err(format!("twice: {line}"));
            }
            all.samples.push(sample);
        }
        Ok(all)
    }

    /// The values of a metric whose labels have all of `labels`.
    pub fn values<'a>(
        &'a self,
        metric: &'a str,
        labels: &'a [(&'a str, &'a str)],
    ) -> impl Iterator<Item = f64> + 'a {
        let fits = move |sample: &&Sample| {
            sample.metric == metric
                && matches!(sample.suffix.as_str(), "" | "_count")
                && labels.iter().all(|(name, value)| {
                    sample.labels.get(*name).is_some_and(|found| found == value)
                })
        };
        self.samples.iter().filter(fits).map(|sample| sample.value)
    }
}

fn sample(line: &str, metric: &str, kind: Kind) -> Result<Sample, String> {
    let wrong = |what: &str| format!("{what}: {line}");
    let (key, value) = line.rsplit_once(' ').ok_or_else(|| wrong("no value"))?;
    let value = value.parse().map_err(|_| wrong("no number"))?;
    let (name, labels) = match key.split_once('{') {
        Some((name, rest)) => {
            (name, labels(rest.strip_suffix('}').ok_or_else(|| wrong("no end of labels"))?)?)
        }
        None => (key, BTreeMap::new()),
    };
    let suffix = name.strip_prefix(metric).ok_or_else(|| wrong("not of the metric before it"))?;
    let (suffixes, own): (&[&str], &str) = match kind {
        Kind::Counter | Kind::Gauge => (&[""], ""),
        Kind::Summary => (&["", "_sum", "_count"], "quantile"),
        Kind::Histogram => (&["_bucket", "_sum", "_count"], "le"),
    };
    if !suffixes.contains(&suffix) {
        return Err(wrong("not a sample of its type"));
    }
    let known = find(metric).map_or(&[][..], |metric| metric.labels);
    if let Some(label) =
        labels.keys().find(|label| *label != own && !known.contains(&label.as_str()))
    {
        return Err(wrong(&format!("{label} is no label of {metric}")));
    }
    Ok(Sample { metric: metric.to_owned(), suffix: suffix.to_owned(), labels, value })
}

fn labels(text: &str) -> Result<BTreeMap<String, String>, String> {
    let mut found = BTreeMap::new();
    let mut rest = text;
    while !rest.is_empty() {
        let (name, after) = rest.split_once("=\"").ok_or_else(|| format!("no label: {rest}"))?;
        let (mut value, mut end, mut characters) = (String::new(), None, after.char_indices());
        while let Some((at, character)) = characters.next() {
            match character {
                '"' => {
                    end = Some(at);
                    break;
                }
                '\\' => match characters.next().map(|(_, escaped)| escaped) {
                    Some('n') => value.push('\n'),
                    Some(escaped @ ('\\' | '"')) => value.push(escaped),
                    other => return Err(format!("no escape: {other:?} in {text}")),
                },
                other => value.push(other),
            }
        }
        let end = end.ok_or_else(|| format!("no end of a value: {text}"))?;
        if found.insert(name.to_owned(), value).is_some() {
            return Err(format!("{name} twice: {text}"));
        }
        rest = after[end + 1..].trim_start_matches(',');
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Labels, Text};

    #[test]
    fn what_was_written_is_read_back_whatever_its_labels_hold() {
        let hostile = "a\"b\\c\nd,e=\"}{";
        let mut text = Text::default();
        text.metric("kafka_log_log_size");
        text.sample(&Labels::none().with("topic", hostile).with("partition", 3), 17);
        let read = Scraped::read(&text.finish()).unwrap();
        assert_eq!(read.samples[0].labels["topic"], hostile);
        assert_eq!(
            read.values("kafka_log_log_size", &[("partition", "3")]).collect::<Vec<_>>(),
            [17.0]
        );
    }

    #[test]
    fn what_is_not_as_the_table_has_it_is_refused() {
        let mut text = Text::default();
        text.one("kafka_brokers", 3);
        let good = text.finish();
        assert!(Scraped::read(&good).is_ok());
        for (from, to) in [
            ("gauge", "counter"),
            ("kafka_brokers 3", "kafka_brokers three"),
            ("kafka_brokers 3", "kafka_brokers{rack=\"r\"} 3"),
            ("kafka_brokers 3", "kafka_brokers_total 3"),
            ("kafka_brokers 3", "kafka_brokers 3\nkafka_brokers 4"),
            ("# HELP kafka_brokers", "# HELP kafka_brokerz"),
        ] {
            assert!(Scraped::read(&good.replacen(from, to, 1)).is_err(), "{to}");
        }
        assert!(Scraped::read(&format!("{good}{good}")).is_err());
    }
}
