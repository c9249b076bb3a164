//! Replicas and their leaders: Kafka's ReplicaManager and fetchers.

use super::Place::{Each, Leader};
use super::{EVENTS, Kind, Metric, NO, NUMBER, row};

/// In the order of the documentation.
pub(super) const METRICS: &[Metric] = &[
    row(
        "kafka_server_replicamanager_leadercount",
        NUMBER,
        NO,
        Each,
        "Partitions that this broker leads",
    ),
    row(
        "kafka_server_replicamanager_partitioncount",
        NUMBER,
        NO,
        Each,
        "Replicas that this broker hosts",
    ),
    row(
        "kafka_server_replicamanager_offlinereplicacount",
        NUMBER,
        NO,
        Each,
        "Replicas of this broker that it cannot serve: their log or their directory failed",
    ),
    row(
        "kafka_server_replicamanager_underreplicatedpartitions",
        NUMBER,
        NO,
        Leader,
        "Partitions led here whose ISR lacks an assigned replica",
    ),
    row(
        "kafka_server_replicamanager_underminisrpartitioncount",
        NUMBER,
        NO,
        Leader,
        "Partitions led here whose ISR is below min.insync.replicas: acks=all is refused",
    ),
    row(
        "kafka_server_replicamanager_atminisrpartitioncount",
        NUMBER,
        NO,
        Leader,
        "Partitions led here whose ISR has exactly min.insync.replicas members",
    ),
    row(
        "kafka_server_replicamanager_reassigningpartitions",
        NUMBER,
        NO,
        Leader,
        "Partitions led here whose replicas are being moved",
    ),
    row(
        "kafka_server_replicamanager_isrshrinks_total",
        EVENTS,
        NO,
        Leader,
        "ISR changes of partitions led here that took a member out",
    ),
    row(
        "kafka_server_replicamanager_isrexpands_total",
        EVENTS,
        NO,
        Leader,
        "ISR changes of partitions led here that took a member in",
    ),
    row(
        "kafka_server_replicafetchermanager_maxlag",
        (Kind::Gauge, "records"),
        NO,
        Leader,
        "Records that the farthest follower of a partition led here lacks; told by the leader, so a dead follower counts too",
    ),
    row(
        "kafka_server_replicafetchermanager_failedpartitionscount",
        NUMBER,
        NO,
        Each,
        "Replicas that this broker would have to fetch for and cannot: as offlinereplicacount",
    ),
    row(
        "kafka_server_replicafetchermanager_deadthreadcount",
        NUMBER,
        NO,
        Each,
        "Leaders that this broker follows and has no working connection to",
    ),
];
