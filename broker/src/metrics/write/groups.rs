//! Groups, their members, and how far they are behind.

use std::collections::BTreeMap;

use barnabas_group::GroupState;
use barnabas_metrics::{Labels, Text};

use super::super::Detail;
use super::super::groups::GroupFigures;
use super::super::replicas::Replicas;
use super::super::scrape::Metrics;

const STATES: [(&str, GroupState); 5] = [
    ("empty", GroupState::Empty),
    ("preparingrebalance", GroupState::PreparingRebalance),
    ("completingrebalance", GroupState::CompletingRebalance),
    ("stable", GroupState::Stable),
    ("dead", GroupState::Dead),
];

/// What a group has committed in one partition.
struct Line {
    labels: Labels,
    offset: i64,
    lag: Option<i64>,
}

pub(in super::super) fn groups(
    metrics: &Metrics,
    groups: &[GroupFigures],
    replicas: &Replicas,
    text: &mut Text,
) {
    let manager = "kafka_coordinator_group_groupmetadatamanager_num";
    text.one(&format!("{manager}groups"), groups.len());
    let offsets: usize = groups.iter().map(|group| group.offsets.len()).sum();
    text.one(&format!("{manager}offsets"), offsets);
    for (name, state) in STATES {
        let count = groups.iter().filter(|group| group.state == state).count();
        text.one(&format!("{manager}groups{name}"), count);
    }
    if metrics.detail == Detail::None {
        return;
    }
    text.metric("kafka_consumergroup_members");
    for group in groups {
        text.sample(&Labels::none().with("consumergroup", &group.group), group.members);
    }
    let (mut lines, mut sums) = (Vec::new(), Vec::new());
    for group in groups {
        let of_group = Labels::none().with("consumergroup", &group.group);
        let mut topics: BTreeMap<&str, (i64, Option<i64>)> = BTreeMap::new();
        for (topic, partition, offset) in &group.offsets {
            let end =
                replicas.get(topic, *partition).and_then(|figures| figures.told_high_watermark);
            let lag = end.map(|end| end.0.saturating_sub(*offset).max(0));
            let (sum, all) = topics.entry(topic).or_insert((0, Some(0)));
            *sum = sum.saturating_add(*offset);
            *all = all.zip(lag).map(|(all, lag)| all.saturating_add(lag));
            if metrics.detail == Detail::Partition {
                let labels = of_group.clone().with("topic", topic).with("partition", partition);
                lines.push(Line { labels, offset: *offset, lag });
            }
        }
        sums.extend(topics.into_iter().map(|(topic, (offset, lag))| Line {
            labels: of_group.clone().with("topic", topic),
            offset,
            lag,
        }));
    }
    if metrics.detail == Detail::Partition {
        both(("kafka_consumergroup_current_offset", "kafka_consumergroup_lag"), &lines, text);
    }
    both(("kafka_consumergroup_current_offset_sum", "kafka_consumergroup_lag_sum"), &sums, text);
}

fn both((offset, lag): (&str, &str), lines: &[Line], text: &mut Text) {
    text.metric(offset);
    for line in lines {
        text.sample(&line.labels, line.offset);
    }
    text.metric(lag);
    for line in lines {
        if let Some(lag) = line.lag {
            text.sample(&line.labels, lag);
        }
    }
}
