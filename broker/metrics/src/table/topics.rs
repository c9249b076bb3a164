//! What topics carry, under Kafka's names.

use super::Place::{Each, Leader};
use super::{BYTES, Metric, NO, OF_TOPIC, RECORDS, REQUESTS, row};

/// In the order of the documentation.
pub(super) const METRICS: &[Metric] = &[
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
];
