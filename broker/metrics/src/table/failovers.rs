//! Failovers and their phases; names of our own, as in all files below.

use super::Place::{Controller, Leader};
use super::{EVENTS, Metric, NO, SECONDS, row};

/// In the order of the documentation.
pub(super) const METRICS: &[Metric] = &[
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
];
