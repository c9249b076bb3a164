//! Settings of consumer groups, and of the topic that holds their offsets.

use super::error::ConfigError;
use super::settings::Settings;

/// Settings of consumer groups.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GroupConfig {
    /// `group.initial.rebalance.delay.ms`.
    pub initial_rebalance_delay_ms: u64,
    /// `group.min.session.timeout.ms`, not above the greatest one.
    pub min_session_timeout_ms: i32,
    /// `group.max.session.timeout.ms`.
    pub max_session_timeout_ms: i32,
    /// `group.max.size`: members of one group, 1 or more.
    pub max_size: usize,
    /// `offset.metadata.max.bytes`.
    pub offset_metadata_max_bytes: usize,
    /// `offsets.commit.timeout.ms`.
    pub commit_timeout_ms: u64,
    /// `offsets.retention.minutes`, in milliseconds.
    pub offsets_retention_ms: i64,
    /// `offsets.retention.check.interval.ms`.
    pub retention_check_interval_ms: u64,
    /// `offsets.topic.num.partitions`.
    pub topic_partitions: i32,
    /// `offsets.topic.replication.factor`.
    pub topic_replication_factor: i32,
    /// `offsets.topic.segment.bytes`.
    pub topic_segment_bytes: u32,
}

impl Default for GroupConfig {
    /// Kafka's defaults, as the table of keys has them.
    fn default() -> Self {
        Self {
            initial_rebalance_delay_ms: 3_000,
            min_session_timeout_ms: 6_000,
            max_session_timeout_ms: 1_800_000,
            max_size: i32::MAX as usize,
            offset_metadata_max_bytes: 4_096,
            commit_timeout_ms: 5_000,
            offsets_retention_ms: 10_080 * 60_000,
            retention_check_interval_ms: 600_000,
            topic_partitions: 50,
            topic_replication_factor: 3,
            topic_segment_bytes: 100 << 20,
        }
    }
}

impl GroupConfig {
    pub(super) fn read(s: &Settings) -> Result<Self, ConfigError> {
        let (hour, day, most) = (3_600_000, 86_400_000, i64::from(i32::MAX));
        let minutes: i64 = s.number("offsets.retention.minutes", 1, most)?;
        let config = Self {
            initial_rebalance_delay_ms: s.number("group.initial.rebalance.delay.ms", 0, hour)?,
            min_session_timeout_ms: s.number("group.min.session.timeout.ms", 1, most)?,
            max_session_timeout_ms: s.number("group.max.session.timeout.ms", 1, most)?,
            max_size: s.number("group.max.size", 1, most)?,
            offset_metadata_max_bytes: s.number("offset.metadata.max.bytes", 0, most)?,
            commit_timeout_ms: s.number("offsets.commit.timeout.ms", 1, hour)?,
            offsets_retention_ms: minutes * 60_000,
            retention_check_interval_ms: s.number("offsets.retention.check.interval.ms", 1, day)?,
            topic_partitions: s.number("offsets.topic.num.partitions", 1, 1000)?,
            topic_replication_factor: s.number("offsets.topic.replication.factor", 1, 1000)?,
            topic_segment_bytes: s.number("offsets.topic.segment.bytes", 14, most)?,
        };
        if config.min_session_timeout_ms > config.max_session_timeout_ms {
            let (key, other) = ("group.min.session.timeout.ms", "group.max.session.timeout.ms");
            let most = config.max_session_timeout_ms;
            let reason = format!("it must not be more than '{other}', {most}");
            return Err(s.contradicts(key, other, config.min_session_timeout_ms, &reason));
        }
        Ok(config)
    }
}
