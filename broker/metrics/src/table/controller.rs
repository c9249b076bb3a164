//! The controller: what is told once for the whole cluster.

use super::Place::{Controller, Each, Leader};
use super::{EVENTS, FLAG, MS, Metric, NO, NUMBER, row};

/// In the order of the documentation.
pub(super) const METRICS: &[Metric] = &[
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
        "Partitions that nobody serves: without a leader, or with one that is not registered, is suspected, or cannot serve its replica",
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
];
