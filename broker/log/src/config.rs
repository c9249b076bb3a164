//! Settings of a log, as its topic has them; all of them can change while it is open.

use barnabas_types::{CleanupPolicy, Ratio, TopicConfig};

use crate::log::Log;

const HOUR_MS: i64 = 3_600_000;
const DAY_MS: i64 = 24 * HOUR_MS;

/// Settings of a log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LogConfig {
    /// `segment.bytes`: a segment is rolled before it would grow beyond this (a single larger batch gets one of its own).
    pub segment_bytes: u32,
    /// `segment.ms`: a segment is rolled when it is older than this; see [`Log::roll_if_due`].
    pub segment_ms: i64,
    /// `index.interval.bytes`: about one index entry for so many bytes.
    pub index_interval_bytes: u32,
    /// `segment.index.bytes`: a segment is rolled before its offset index would grow beyond this.
    pub segment_index_bytes: u32,
    /// `cleanup.policy`.
    pub cleanup: CleanupPolicy,
    /// `retention.ms`: segments older than this are deleted; negative: never.
    pub retention_ms: i64,
    /// `retention.bytes`: the oldest segments are deleted while this much would stay; negative: never.
    pub retention_bytes: i64,
    /// `delete.retention.ms`: how long a tombstone stays readable after the compaction that first met it.
    pub delete_retention_ms: i64,
    /// `min.compaction.lag.ms`: segments with a record younger than this are not compacted.
    pub min_compaction_lag_ms: i64,
    /// `max.compaction.lag.ms`: records older than this are compacted whatever the dirty ratio.
    pub max_compaction_lag_ms: i64,
    /// `min.cleanable.dirty.ratio`: share of the compactable bytes that must be dirty before they are compacted.
    pub min_cleanable_dirty_ratio: Ratio,
    /// `message.timestamp.after.max.ms` (KIP-937): no record counts as younger than its file by more than this.
    pub timestamp_after_max_ms: i64,
}

impl LogConfig {
    /// Kafka's defaults.
    pub const DEFAULT: Self = Self {
        segment_bytes: 1024 * 1024 * 1024,
        segment_ms: 7 * DAY_MS,
        index_interval_bytes: 4096,
        segment_index_bytes: 10 * 1024 * 1024,
        cleanup: CleanupPolicy { delete: true, compact: false },
        retention_ms: 7 * DAY_MS,
        retention_bytes: -1,
        delete_retention_ms: DAY_MS,
        min_compaction_lag_ms: 0,
        max_compaction_lag_ms: i64::MAX,
        min_cleanable_dirty_ratio: Ratio::from_millionths(500_000),
        timestamp_after_max_ms: HOUR_MS,
    };

    /// How old a segment may become before it is rolled: a compacted one no older than the records that it keeps from being
    /// compacted may be (KIP-354).
    pub(crate) fn roll_ms(&self) -> i64 {
        if self.cleanup.compact {
            self.segment_ms.min(self.max_compaction_lag_ms)
        } else {
            self.segment_ms
        }
    }
}

impl Default for LogConfig {
    fn default() -> Self {
        Self::DEFAULT
    }
}

impl From<&TopicConfig> for LogConfig {
    fn from(topic: &TopicConfig) -> Self {
        Self {
            segment_bytes: topic.segment_bytes,
            segment_ms: topic.segment_ms,
            index_interval_bytes: topic.index_interval_bytes,
            segment_index_bytes: topic.segment_index_bytes,
            cleanup: topic.cleanup,
            retention_ms: topic.retention_ms,
            retention_bytes: topic.retention_bytes,
            delete_retention_ms: topic.delete_retention_ms,
            min_compaction_lag_ms: topic.min_compaction_lag_ms,
            max_compaction_lag_ms: topic.max_compaction_lag_ms,
            min_cleanable_dirty_ratio: topic.min_cleanable_dirty_ratio,
            timestamp_after_max_ms: topic.message_timestamp_after_max_ms,
        }
    }
}

impl Log {
    /// These settings from now on. What they say of segments holds from the next append, roll, retention or compaction on.
    pub fn configure(&mut self, config: LogConfig) {
        self.config = config;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_topic_without_settings_of_its_own_has_the_defaults() {
        assert_eq!(LogConfig::from(&TopicConfig::default()), LogConfig::DEFAULT);
    }

    #[test]
    fn a_compacted_segment_is_rolled_before_its_records_are_overdue() {
        let config = LogConfig { max_compaction_lag_ms: 5, ..LogConfig::DEFAULT };
        assert_eq!(config.roll_ms(), 7 * DAY_MS);
        let cleanup = CleanupPolicy { delete: false, compact: true };
        assert_eq!(LogConfig { cleanup, ..config }.roll_ms(), 5);
    }
}
