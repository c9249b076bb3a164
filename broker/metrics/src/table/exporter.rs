//! The names of kafka_exporter.

use super::Place::{Controller, Coordinator, Leader};
use super::{FLAG, Kind, Metric, NO, NUMBER, OF_PARTITION, OF_TOPIC, OFFSET, row};

/// In the order of the documentation.
pub(super) const METRICS: &[Metric] = &[
    row("kafka_brokers", NUMBER, NO, Controller, "Registered brokers"),
    row("kafka_topic_partitions", NUMBER, OF_TOPIC, Controller, "Partitions of the topic"),
    row(
        "kafka_topic_partition_current_offset",
        OFFSET,
        OF_PARTITION,
        Leader,
        "Where consumers find no more records: the high watermark",
    ),
    row("kafka_topic_partition_oldest_offset", OFFSET, OF_PARTITION, Leader, "First offset"),
    row(
        "kafka_topic_partition_in_sync_replica",
        NUMBER,
        OF_PARTITION,
        Leader,
        "Members of the ISR",
    ),
    row(
        "kafka_topic_partition_leader",
        (Kind::Gauge, "broker id"),
        OF_PARTITION,
        Leader,
        "Who leads; -1: nobody serves it",
    ),
    row(
        "kafka_topic_partition_leader_is_preferred",
        FLAG,
        OF_PARTITION,
        Leader,
        "Whether the first of the assigned replicas leads",
    ),
    row("kafka_topic_partition_replicas", NUMBER, OF_PARTITION, Leader, "Assigned replicas"),
    row(
        "kafka_topic_partition_under_replicated_partition",
        FLAG,
        OF_PARTITION,
        Leader,
        "Whether the ISR lacks an assigned replica",
    ),
    row(
        "kafka_consumergroup_members",
        NUMBER,
        &["consumergroup"],
        Coordinator,
        "Members of the group",
    ),
    row(
        "kafka_consumergroup_current_offset",
        OFFSET,
        &["consumergroup", "topic", "partition"],
        Coordinator,
        "The offset that the group committed",
    ),
    row(
        "kafka_consumergroup_lag",
        (Kind::Gauge, "records"),
        &["consumergroup", "topic", "partition"],
        Coordinator,
        "Records up to the high watermark that the group has not committed; of partitions of which the coordinator has a replica (it may be replica.fetch.wait.max.ms behind). The recording rule barnabas:consumergroup_lag has all",
    ),
    row(
        "kafka_consumergroup_current_offset_sum",
        OFFSET,
        &["consumergroup", "topic"],
        Coordinator,
        "The sum of the committed offsets of a topic",
    ),
    row(
        "kafka_consumergroup_lag_sum",
        (Kind::Gauge, "records"),
        &["consumergroup", "topic"],
        Coordinator,
        "The sum of kafka_consumergroup_lag over a topic; served only if the coordinator has a replica of every partition in which the group has committed",
    ),
];
