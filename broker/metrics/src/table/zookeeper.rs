//! ZooKeeper, as a client of it sees it.

use super::Place::Each;
use super::{AGE, EVENTS, FLAG, MS, Metric, NO, REQUESTS, SECONDS, row};

/// Under Kafka's names.
pub(super) const KAFKA: &[Metric] = &[
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
];

/// Under our own.
pub(super) const OWN: &[Metric] = &[
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
];
