//! What the broker has room for, and what it says of itself.

use super::Place::Each;
use super::{AGE, EVENTS, FLAG, Metric, NO, NUMBER, SIZE, row};

/// In the order of the documentation.
pub(super) const METRICS: &[Metric] = &[
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
