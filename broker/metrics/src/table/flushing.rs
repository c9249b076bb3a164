//! Flushing, by log directory.

use super::Place::Each;
use super::{AGE, Kind, Metric, NO, SECONDS, SIZE, row};

/// In the order of the documentation.
pub(super) const METRICS: &[Metric] = &[
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
];
