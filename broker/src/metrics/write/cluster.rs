//! Partitions as the cluster's state has them: told by their leaders, and by the controller what nobody leads.

use barnabas_metrics::{Labels, Text};
use barnabas_types::{BrokerId, ClusterImage, Partition, Standing, Standings, TopicConfig};

use super::super::Detail;
use super::super::replicas::Replicas;
use super::super::scrape::{Metrics, Sources};

/// One partition of which this broker tells.
struct Line {
    labels: Labels,
    leader: i32,
    preferred: bool,
    isr: usize,
    replicas: usize,
    under_replicated: bool,
    /// First offset and high watermark.
    offsets: Option<(i64, i64)>,
}

#[derive(Default)]
struct Sums {
    led: u64,
    under_replicated: u64,
    under_min: u64,
    at_min: u64,
    moving: u64,
}

impl Sums {
    fn add(&mut self, partition: &Partition, standing: Standing, config: &TopicConfig) {
        let isr = partition.state.isr.len();
        let min = usize::try_from(config.min_insync_replicas).unwrap_or(usize::MAX);
        let served = standing != Standing::Offline;
        self.led += 1;
        self.under_replicated += u64::from(served && partition.lacks_replicas());
        self.under_min += u64::from(standing == Standing::UnderMinIsr);
        self.at_min += u64::from(served && isr == min);
        self.moving += u64::from(partition.moving.is_under_way());
    }
}

pub(in super::super) fn cluster(
    metrics: &Metrics,
    sources: &Sources,
    replicas: &Replicas,
    text: &mut Text,
) {
    let node = &sources.node;
    let image = node.view.image();
    let is_controller = node.membership.borrow().controller.is_some_and(|(id, _)| id == metrics.me);
    let (mut sums, mut lines) = (Sums::default(), Vec::new());
    for (name, topic) in &image.topics {
        for (index, partition) in &topic.partitions {
            let leader = partition.state.leader;
            let standing = Standing::of(&image, name, topic, *index, partition);
            let offline = standing == Standing::Offline;
            let leads = leader == Some(metrics.me);
            if leads {
                sums.add(partition, standing, &topic.config);
            }
            let tells = if offline { is_controller } else { leads };
            if tells && metrics.detail == Detail::Partition {
                let figures = replicas.get(name.as_str(), *index).filter(|figures| figures.leads());
                let offsets = figures.and_then(|f| Some((f.log_start.0, f.told_high_watermark?.0)));
                lines.push(Line {
                    labels: Labels::none().with("topic", name.as_str()).with("partition", index),
                    leader: leader.filter(|_| !offline).map_or(-1, |BrokerId(id)| id),
                    preferred: !offline && !partition.is_led_by_another(),
                    isr: partition.state.isr.len(),
                    replicas: partition.assigned_replicas.len(),
                    under_replicated: !offline && partition.lacks_replicas(),
                    offsets: offsets.filter(|_| leads),
                });
            }
        }
    }
    managed(&sums, text);
    let changes = &node.view.led;
    text.one("kafka_server_replicamanager_isrshrinks_total", changes.shrinks());
    text.one("kafka_server_replicamanager_isrexpands_total", changes.expands());
    text.one("barnabas_leader_changes_total", changes.taken_over());
    text.one(
        "kafka_controller_controllerstats_uncleanleaderelections_total",
        node.figures.unclean_elections(),
    );
    text.one("kafka_controller_kafkacontroller_activecontrollercount", u8::from(is_controller));
    if is_controller {
        controller(metrics, &image, text);
    }
    if metrics.detail == Detail::Partition {
        partitions(&lines, text);
    }
}

fn managed(sums: &Sums, text: &mut Text) {
    let named = [
        ("leadercount", sums.led),
        ("underreplicatedpartitions", sums.under_replicated),
        ("underminisrpartitioncount", sums.under_min),
        ("atminisrpartitioncount", sums.at_min),
        ("reassigningpartitions", sums.moving),
    ];
    for (name, value) in named {
        text.one(&format!("kafka_server_replicamanager_{name}"), value);
    }
}

fn controller(metrics: &Metrics, image: &ClusterImage, text: &mut Text) {
    let totals = Standings::of(image);
    let brokers = image.brokers.len() as u64;
    let named = [
        ("activebrokercount", brokers),
        ("globaltopiccount", image.topics.len() as u64),
        ("globalpartitioncount", totals.partitions),
        ("offlinepartitionscount", totals.offline),
        ("preferredreplicaimbalancecount", totals.not_preferred),
    ];
    for (name, value) in named {
        text.one(&format!("kafka_controller_kafkacontroller_{name}"), value);
    }
    text.one("kafka_brokers", brokers);
    if metrics.detail >= Detail::Topic {
        text.metric("kafka_topic_partitions");
        for (name, topic) in &image.topics {
            let labels = Labels::none().with("topic", name.as_str());
            text.sample(&labels, topic.partitions.len());
        }
    }
}

fn partitions(lines: &[Line], text: &mut Text) {
    type Value = fn(&Line) -> Option<i64>;
    let named: [(&str, Value); 7] = [
        ("current_offset", |line| line.offsets.map(|(_, end)| end)),
        ("oldest_offset", |line| line.offsets.map(|(start, _)| start)),
        ("in_sync_replica", |line| i64::try_from(line.isr).ok()),
        ("leader", |line| Some(line.leader.into())),
        ("leader_is_preferred", |line| Some(line.preferred.into())),
        ("replicas", |line| i64::try_from(line.replicas).ok()),
        ("under_replicated_partition", |line| Some(line.under_replicated.into())),
    ];
    for (name, value) in named {
        text.metric(&format!("kafka_topic_partition_{name}"));
        for line in lines {
            if let Some(value) = value(line) {
                text.sample(&line.labels, value);
            }
        }
    }
}
