//! Logs and their directories.

use super::Place::Each;
use super::{FLAG, MS, Metric, NO, NUMBER, OF_PARTITION, OFFSET, SIZE, row};

/// In the order of the documentation.
pub(super) const METRICS: &[Metric] = &[
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
];
