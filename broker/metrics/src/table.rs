//! The table of all metrics: what `/metrics` serves, and nothing else. `deploy/metrics.md` is made from it.

use std::fmt::Write as _;

/// What Prometheus is to think of the figures.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Only grows, from the start of the process on.
    Counter,
    /// What is so now.
    Gauge,
    /// Quantiles of the last one to two minutes; count and sum since the start.
    Summary,
    /// Counts by size, since the start.
    Histogram,
}

/// Which brokers serve it, and so how brokers are put together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// Each broker, of itself: sum, or the greatest.
    Each,
    /// Who leads the partition (of those without a leader: the controller): sum.
    Leader,
    /// The controller alone: sum.
    Controller,
    /// Who coordinates the group: sum.
    Coordinator,
    /// Each broker, the same figure: the greatest.
    All,
}

impl Place {
    fn words(self) -> &'static str {
        match self {
            Self::Each => "each broker, of itself",
            Self::Leader => "the partition's leader",
            Self::Controller => "the controller",
            Self::Coordinator => "the group's coordinator",
            Self::All => "each broker, of the cluster",
        }
    }
}

/// One metric.
#[derive(Clone, Copy, Debug)]
pub struct Metric {
    /// Its name.
    pub name: &'static str,
    /// Its type.
    pub kind: Kind,
    /// What one of it is.
    pub unit: &'static str,
    /// Its labels; without those in brackets a sample is a sum over all.
    pub labels: &'static [&'static str],
    /// Who serves it.
    pub place: Place,
    /// What it says, in one sentence without a full stop.
    pub help: &'static str,
}

const fn row(
    name: &'static str,
    (kind, unit): (Kind, &'static str),
    labels: &'static [&'static str],
    place: Place,
    help: &'static str,
) -> Metric {
    Metric { name, kind, unit, labels, place, help }
}

const BYTES: (Kind, &str) = (Kind::Counter, "bytes");
const RECORDS: (Kind, &str) = (Kind::Counter, "records");
const REQUESTS: (Kind, &str) = (Kind::Counter, "requests");
const EVENTS: (Kind, &str) = (Kind::Counter, "events");
const NUMBER: (Kind, &str) = (Kind::Gauge, "number");
const OFFSET: (Kind, &str) = (Kind::Gauge, "offset");
const SIZE: (Kind, &str) = (Kind::Gauge, "bytes");
const FLAG: (Kind, &str) = (Kind::Gauge, "0 or 1");
const AGE: (Kind, &str) = (Kind::Gauge, "seconds");
const MS: (Kind, &str) = (Kind::Summary, "milliseconds");
const SECONDS: (Kind, &str) = (Kind::Histogram, "seconds");

const NO: &[&str] = &[];
const OF_TOPIC: &[&str] = &["topic"];
const OF_PARTITION: &[&str] = &["topic", "partition"];

use Place::{All, Controller, Coordinator, Each, Leader};

/// Every metric, in the order of the documentation.
pub const METRICS: &[Metric] = &[
    // What topics carry.
    row(
        "kafka_server_brokertopicmetrics_messagesin_total",
        RECORDS,
        OF_TOPIC,
        Leader,
        "Records appended for producers; without topic: of all",
    ),
    row(
        "kafka_server_brokertopicmetrics_bytesin_total",
        BYTES,
        OF_TOPIC,
        Leader,
        "Bytes of records appended for producers, as stored; without topic: of all",
    ),
    row(
        "kafka_server_brokertopicmetrics_bytesout_total",
        BYTES,
        OF_TOPIC,
        Leader,
        "Bytes of records answered to consumers; without topic: of all",
    ),
    row(
        "kafka_server_brokertopicmetrics_replicationbytesin_total",
        BYTES,
        OF_TOPIC,
        Each,
        "Bytes of records appended as a follower; without topic: of all",
    ),
    row(
        "kafka_server_brokertopicmetrics_replicationbytesout_total",
        BYTES,
        OF_TOPIC,
        Leader,
        "Bytes of records answered to followers; without topic: of all",
    ),
    row(
        "kafka_server_brokertopicmetrics_totalproducerequests_total",
        REQUESTS,
        OF_TOPIC,
        Each,
        "Produces, counted once for each partition that a request names; without topic: of all, unknown ones too",
    ),
    row(
        "kafka_server_brokertopicmetrics_failedproducerequests_total",
        REQUESTS,
        OF_TOPIC,
        Each,
        "Those of them that ended with an error; without topic: of all, unknown ones too",
    ),
    row(
        "kafka_server_brokertopicmetrics_totalfetchrequests_total",
        REQUESTS,
        NO,
        Each,
        "Fetches of consumers; not by topic, since a fetch session names its partitions once",
    ),
    row(
        "kafka_server_brokertopicmetrics_failedfetchrequests_total",
        REQUESTS,
        NO,
        Each,
        "Partitions in answers to consumers' fetches that were errors",
    ),
    // Replicas.
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
    // The broker.
    row(
        "kafka_server_kafkaserver_brokerstate",
        (Kind::Gauge, "Kafka's number"),
        NO,
        Each,
        "1 starting, 2 recovering or waiting for the controller, 3 running, 6 stopping",
    ),
    row(
        "kafka_server_socket_server_metrics_connection_count",
        NUMBER,
        &["listener"],
        Each,
        "Connections of clients and followers to the Kafka port",
    ),
    row(
        "kafka_network_socketserver_memorypoolused",
        SIZE,
        NO,
        Each,
        "Memory that requests of clients under way hold",
    ),
    row(
        "kafka_network_socketserver_memorypoolavailable",
        SIZE,
        NO,
        Each,
        "What is left of queued.max.request.bytes for them",
    ),
    row(
        "kafka_network_requestmetrics_requests_total",
        REQUESTS,
        &["request"],
        Each,
        "Requests answered; FetchConsumer are those of clients, FetchFollower those of followers",
    ),
    row(
        "kafka_network_requestmetrics_totaltimems",
        MS,
        &["request"],
        Each,
        "From the whole request to its finished answer, with all waiting (for the ISR, for a flush, for records), without sending",
    ),
    // Logs.
    row(
        "kafka_log_log_size",
        SIZE,
        OF_PARTITION,
        Each,
        "Bytes of the segments of a replica here; by topic: of all replicas of it here",
    ),
    row(
        "kafka_log_log_logstartoffset",
        OFFSET,
        OF_PARTITION,
        Each,
        "First offset of the replica here",
    ),
    row(
        "kafka_log_log_logendoffset",
        OFFSET,
        OF_PARTITION,
        Each,
        "Next offset of the replica here",
    ),
    row(
        "kafka_log_log_numlogsegments",
        NUMBER,
        OF_PARTITION,
        Each,
        "Segments of the replica here; by topic: of all replicas of it here",
    ),
    row(
        "kafka_log_logflushstats_logflushrateandtimems",
        MS,
        NO,
        Each,
        "Syncs of files and file systems that flushed records",
    ),
    row(
        "kafka_log_logmanager_offlinelogdirectorycount",
        NUMBER,
        NO,
        Each,
        "Log directories that are offline until a restart",
    ),
    row(
        "kafka_log_logmanager_logdirectoryoffline",
        FLAG,
        &["logdirectory"],
        Each,
        "Whether the directory is offline",
    ),
    // The controller.
    row(
        "kafka_controller_kafkacontroller_activecontrollercount",
        FLAG,
        NO,
        Each,
        "Whether this broker is the controller; the sum must be 1",
    ),
    row(
        "kafka_controller_kafkacontroller_activebrokercount",
        NUMBER,
        NO,
        Controller,
        "Registered brokers",
    ),
    row("kafka_controller_kafkacontroller_globaltopiccount", NUMBER, NO, Controller, "Topics"),
    row(
        "kafka_controller_kafkacontroller_globalpartitioncount",
        NUMBER,
        NO,
        Controller,
        "Partitions",
    ),
    row(
        "kafka_controller_kafkacontroller_offlinepartitionscount",
        NUMBER,
        NO,
        Controller,
        "Partitions without a leader that is registered",
    ),
    row(
        "kafka_controller_kafkacontroller_preferredreplicaimbalancecount",
        NUMBER,
        NO,
        Controller,
        "Partitions that another than their preferred replica leads",
    ),
    row(
        "kafka_controller_controllerstats_uncleanleaderelections_total",
        EVENTS,
        NO,
        Leader,
        "Elections of this broker from outside the ISR; told by who was elected, once it leads",
    ),
    row(
        "kafka_controller_controllerstats_leaderelectionrateandtimems",
        MS,
        NO,
        Controller,
        "Failovers that this broker recorded as the controller: from the first sign until a push told all brokers who leads (see barnabas_failover_phase_seconds for the parts)",
    ),
    // ZooKeeper.
    row(
        "kafka_server_zookeeperclientmetrics_zookeeperrequestlatencyms",
        MS,
        NO,
        Each,
        "Requests to ZooKeeper, with waiting for one of the 64 that may be under way",
    ),
    row(
        "kafka_server_sessionexpirelistener_zookeepersyncconnects_total",
        EVENTS,
        NO,
        Each,
        "Connections to ZooKeeper that came about",
    ),
    row(
        "kafka_server_sessionexpirelistener_zookeeperdisconnects_total",
        EVENTS,
        NO,
        Each,
        "Connections to ZooKeeper that were lost",
    ),
    row(
        "kafka_server_sessionexpirelistener_zookeeperexpires_total",
        EVENTS,
        NO,
        Each,
        "Sessions that ended without this broker wanting it",
    ),
    // Groups, as their coordinators count them.
    row(
        "kafka_coordinator_group_groupmetadatamanager_numgroups",
        NUMBER,
        NO,
        Coordinator,
        "Groups that this broker coordinates",
    ),
    row(
        "kafka_coordinator_group_groupmetadatamanager_numoffsets",
        NUMBER,
        NO,
        Coordinator,
        "Offsets committed in them",
    ),
    row(
        "kafka_coordinator_group_groupmetadatamanager_numgroupsempty",
        NUMBER,
        NO,
        Coordinator,
        "Those without members",
    ),
    row(
        "kafka_coordinator_group_groupmetadatamanager_numgroupspreparingrebalance",
        NUMBER,
        NO,
        Coordinator,
        "Those whose members are called to join",
    ),
    row(
        "kafka_coordinator_group_groupmetadatamanager_numgroupscompletingrebalance",
        NUMBER,
        NO,
        Coordinator,
        "Those that wait for their leader's assignment",
    ),
    row(
        "kafka_coordinator_group_groupmetadatamanager_numgroupsstable",
        NUMBER,
        NO,
        Coordinator,
        "Those whose members have their partitions",
    ),
    row(
        "kafka_coordinator_group_groupmetadatamanager_numgroupsdead",
        NUMBER,
        NO,
        Coordinator,
        "Those that are being deleted",
    ),
    // kafka_exporter.
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
        "Who leads; -1: nobody",
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
    // Our own: failovers.
    row(
        "barnabas_failovers_total",
        EVENTS,
        &["cause"],
        Controller,
        "Failovers that this broker recorded as the controller, by cause (suspicion, session_end, restart, drain, failed_replicas); see barnabas timeline",
    ),
    row(
        "barnabas_suspicions_total",
        EVENTS,
        NO,
        Controller,
        "Those of them in which the broker was suspected before its session had ended",
    ),
    row(
        "barnabas_suspicions_wrong_total",
        EVENTS,
        NO,
        Controller,
        "Those of them in which it answered again in the same life",
    ),
    row(
        "barnabas_failover_phase_seconds",
        SECONDS,
        &["phase"],
        Controller,
        "From the first sign of a failover until the phase was reached, for each broker that reached it; the phases are those of barnabas timeline",
    ),
    row(
        "barnabas_leader_changes_total",
        EVENTS,
        NO,
        Leader,
        "Partitions that this broker took over from another leader, or from nobody",
    ),
    // Flushing.
    row(
        "barnabas_flush_seconds",
        SECONDS,
        NO,
        Each,
        "Syncs of files and file systems that flushed records",
    ),
    row(
        "barnabas_flush_group_size",
        (Kind::Histogram, "partitions"),
        NO,
        Each,
        "Partitions that one sync made durable",
    ),
    row(
        "barnabas_flush_partitions_total",
        (Kind::Counter, "flushes"),
        NO,
        Each,
        "Flushes of single partitions, those within groups included",
    ),
    row(
        "barnabas_flush_failed_total",
        (Kind::Counter, "flushes"),
        NO,
        Each,
        "Those that failed: the replica counts as crashed with what was flushed",
    ),
    row(
        "barnabas_flush_unflushed_records",
        (Kind::Gauge, "records"),
        NO,
        Each,
        "Records in logs here that are not flushed: what a loss of power may take",
    ),
    row(
        "barnabas_flush_unflushed_bytes",
        SIZE,
        NO,
        Each,
        "Their bytes; where the place is not cached, those of whole segments",
    ),
    row(
        "barnabas_flush_unflushed_age_seconds",
        AGE,
        NO,
        Each,
        "How long the oldest of them has been so",
    ),
    row(
        "barnabas_flush_overdue_seconds",
        AGE,
        NO,
        Each,
        "How long the most overdue flush is late: beyond its topic's flush.ms, or at all in sync mode; 0: none is",
    ),
    // Losses.
    row(
        "barnabas_ledger_entries",
        NUMBER,
        &["class"],
        All,
        "Losses in the ledger, by what the records had been acknowledged at; see barnabas ledger",
    ),
    row(
        "barnabas_ledger_missing",
        NUMBER,
        NO,
        All,
        "Entries of the ledger that this broker knows of and does not have",
    ),
    // ZooKeeper.
    row(
        "barnabas_zookeeper_request_seconds",
        SECONDS,
        NO,
        Each,
        "Requests to ZooKeeper, with waiting for one of the 64 that may be under way",
    ),
    row(
        "barnabas_zookeeper_failed_requests_total",
        REQUESTS,
        NO,
        Each,
        "Those whose outcome is unknown: the connection or the session ended, or no answer came",
    ),
    row("barnabas_zookeeper_connected", FLAG, NO, Each, "Whether ZooKeeper can be reached"),
    row("barnabas_zookeeper_away_seconds", AGE, NO, Each, "For how long it cannot; 0: it can"),
    row("barnabas_zookeeper_registered", FLAG, NO, Each, "Whether this broker is registered"),
    // What the broker has room for.
    row(
        "barnabas_connections",
        NUMBER,
        &["kind"],
        Each,
        "Connections to the Kafka port, of clients and of followers",
    ),
    row("barnabas_connections_max", NUMBER, NO, Each, "Most connections of clients"),
    row(
        "barnabas_connections_refused_total",
        EVENTS,
        NO,
        Each,
        "Connections refused because there were too many",
    ),
    row(
        "barnabas_unread_answer_bytes",
        SIZE,
        NO,
        Each,
        "Memory that answers hold which clients have not read",
    ),
    row(
        "barnabas_log_dir_free_bytes",
        SIZE,
        &["logdirectory"],
        Each,
        "Free space of the directory's file system, as it was last looked at",
    ),
    row(
        "barnabas_log_dir_reserve_bytes",
        SIZE,
        NO,
        Each,
        "log.dir.reserve.bytes: below it leaders refuse produces",
    ),
    row(
        "barnabas_held_replicas",
        NUMBER,
        NO,
        Each,
        "Replicas whose lock something held through the whole scrape: their samples are missing in it",
    ),
    row("barnabas_broker_info", FLAG, &["broker", "version"], Each, "Always 1"),
    row("barnabas_scrape_seconds", AGE, NO, Each, "How long the scrape before this one took"),
];

/// The metric of this name.
#[must_use]
pub fn find(name: &str) -> Option<&'static Metric> {
    METRICS.iter().find(|metric| metric.name == name)
}

/// `deploy/metrics.md`.
#[must_use]
pub fn reference() -> String {
    let mut text = String::from(HEAD);
    for Metric { name, kind, unit, labels, place, help } in METRICS {
        let labels: Vec<String> = labels.iter().map(|label| format!("`{label}`")).collect();
        let (labels, kind, place) = (labels.join(", "), kind.name(), place.words());
        // Into a string nothing fails.
        let _ = writeln!(text, "| `{name}` | {kind} | {unit} | {labels} | {place} | {help} |");
    }
    text.push_str(FOOT);
    text
}

const HEAD: &str = "# Metrics

Each broker serves these at `http://HOST:9292/metrics` in Prometheus' text format. This page is made from the table in the code (`broker/metrics/src/table.rs`).

*Who* says which broker serves a sample, and so how brokers are put together: what a leader, the controller or a coordinator tells is told once in
the cluster, so a sum over all brokers is right. What each broker tells of itself is summed or compared; what each tells of the cluster is the same everywhere,
but for the last moments: take the greatest.

A figure that a broker does not have is not served as 0: the sample is absent. Counters begin at 0 with the process. Quantiles are those of the last one to two
minutes (if scrapes are rarer: since the scrape before the last), a quarter too high at most; without observations there are none.

`metrics.labels` says how fine labels are. `partition`: everything. `topic`: nothing has the label `partition`; `kafka_log_log_size` and `kafka_log_log_numlogsegments` are
sums by topic, the other metrics of partitions are left out, those of groups are `_sum`. `none`: nothing has the labels `topic` and `consumergroup` either; sums over all
stay.

| name | type | unit | labels | who | what |
|---|---|---|---|---|---|
";

const FOOT: &str = "
The names are those of the JMX exporter's usual rules for Kafka (`kafka_server_…_total` for a `Count`, quantiles as labels) and of kafka_exporter. Kafka's metrics that are
not here have no counterpart: there are no fenced brokers, no controller states, no request queue and no handler threads, and a Fetch of a session names no topics.
As in Kafka, the samples without `topic` of `kafka_server_brokertopicmetrics_…` are the sums of those with it (and of what named no topic here): a query
takes either (`topic=\"\"` or `topic!=\"\"`), never both.
";

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn names_are_unique_and_say_what_they_are() {
        let names: BTreeSet<_> = METRICS.iter().map(|metric| metric.name).collect();
        assert_eq!(names.len(), METRICS.len());
        for Metric { name, kind, help, labels, .. } in METRICS {
            let good = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
            assert!(name.chars().all(good), "{name}");
            assert_eq!(name.ends_with("_total"), *kind == Kind::Counter, "{name}");
            assert!(
                !help.is_empty() && !help.ends_with('.') && !help.contains(['\n', '\\', '|']),
                "{name}"
            );
            assert!(labels.iter().all(|label| label.chars().all(good)), "{name}");
        }
    }

    #[test]
    fn the_reference_page_is_that_of_the_table() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/metrics.md");
        if std::env::var_os("BARNABAS_WRITE_REFERENCE").is_some() {
            std::fs::write(path, reference()).unwrap();
        }
        let page = std::fs::read_to_string(path).unwrap();
        assert!(
            page == reference(),
            "deploy/metrics.md is old: BARNABAS_WRITE_REFERENCE=1 cargo test -p barnabas-metrics writes it anew"
        );
    }
}
