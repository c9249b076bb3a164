//! The broker as a whole: its state, its requests, its connections.

use super::Place::Each;
use super::{Kind, MS, Metric, NO, NUMBER, REQUESTS, SIZE, row};

/// In the order of the documentation.
pub(super) const METRICS: &[Metric] = &[
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
];
