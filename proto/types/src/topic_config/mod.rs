//! Topic settings as people type them, read into values: one table with Kafka's names, ranges, and the broker's keys for their defaults.

mod alter;

use std::collections::BTreeMap;

pub use alter::{SettingChange, altered};

use crate::broker_settings::OWN_SETTINGS;
use crate::{
    CleanupPolicy, CompressionType, Condition, FlushMode, Ratio, TimestampType, TopicConfig,
    nearest,
};

/// One setting of a topic.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// Its name in a topic's configuration.
    pub key: &'static str,
    /// Its name in a broker's configuration, where the value stands for the topics that do not say.
    pub broker_key: &'static str,
    /// What it does, one clause.
    pub meaning: &'static str,
    field: fn(&mut TopicConfig) -> Field<'_>,
}

/// Under which names settings are given.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Naming {
    /// A topic's own.
    Topic,
    /// Those under which brokers give what holds for topics that do not say.
    Broker,
}

impl Naming {
    fn find(self, key: &str) -> Option<&'static Setting> {
        match self {
            Self::Topic => Setting::find(key),
            Self::Broker => Setting::of_broker(key),
        }
    }

    fn name(self, setting: &Setting) -> &'static str {
        match self {
            Self::Topic => setting.key,
            Self::Broker => setting.broker_key,
        }
    }
}

/// Kafka's type of a setting (DescribeConfigs, KIP-569).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// `true` or `false`.
    Boolean,
    /// A name of a few.
    String,
    /// 32 bit.
    Int,
    /// 64 bit.
    Long,
    /// A fraction.
    Double,
    /// Names, separated by commas.
    List,
}

/// Where a setting's value is, and which values it may have.
enum Field<'a> {
    Int(&'a mut u32, u32),
    Long(&'a mut i64, i64),
    Switch(&'a mut bool),
    Compression(&'a mut CompressionType),
    Flush(&'a mut FlushMode),
    Timestamps(&'a mut TimestampType),
    Cleanup(&'a mut CleanupPolicy),
    Share(&'a mut Ratio),
}

macro_rules! settings {
    ($($key:literal, $broker_key:literal, $variant:ident($($field:ident).+ $(, $least:literal)?), $meaning:literal;)*) => {
        /// Every setting, ordered by key.
        pub const SETTINGS: &[Setting] = &[$(Setting {
            key: $key,
            broker_key: $broker_key,
            meaning: $meaning,
            field: |config| Field::$variant(&mut config.$($field).+ $(, $least)?),
        }),*];
    };
}

settings! {
    "cleanup.policy", "log.cleanup.policy", Cleanup(cleanup), "what becomes of old records: their segments are deleted, or only the last record of each key is kept";
    "compression.type", "compression.type", Compression(compression_type), "how batches are stored: as their producers compressed them, or compressed anew by the leader";
    "delete.retention.ms", "log.cleaner.delete.retention.ms", Long(delete_retention_ms, 0), "how long a tombstone stays readable in a compacted log";
    "flush.messages", "log.flush.interval.messages", Long(flush_messages, 1), "a log is flushed when so many records are not";
    "flush.mode", "log.flush.mode", Flush(flush_mode), "async: a record counts once written; sync: only once flushed";
    "flush.ms", "log.flush.interval.ms", Long(flush_ms, 0), "a log is flushed when a record has not been for so long";
    "flush.timeout.ms", "log.flush.timeout.ms", Long(flush_timeout_ms, 1), "how long a producer waits for a flush before it is answered with an error";
    "index.interval.bytes", "log.index.interval.bytes", Int(index_interval_bytes, 0), "about one index entry for so many bytes";
    "max.compaction.lag.ms", "log.cleaner.max.compaction.lag.ms", Long(max_compaction_lag_ms, 1), "a record older than this is compacted whatever the dirty ratio";
    "max.message.bytes", "message.max.bytes", Int(max_message_bytes, 0), "largest record batch taken from a producer";
    "message.timestamp.after.max.ms", "log.message.timestamp.after.max.ms", Long(message_timestamp_after_max_ms, 0), "how far a producer's timestamp may lie ahead of the broker's clock";
    "message.timestamp.before.max.ms", "log.message.timestamp.before.max.ms", Long(message_timestamp_before_max_ms, 0), "how far a producer's timestamp may lie behind the broker's clock";
    "message.timestamp.type", "log.message.timestamp.type", Timestamps(message_timestamp_type), "whose clock a record's timestamp is of";
    "min.cleanable.dirty.ratio", "log.cleaner.min.cleanable.ratio", Share(min_cleanable_dirty_ratio), "share of the log that must be uncompacted before it is compacted";
    "min.compaction.lag.ms", "log.cleaner.min.compaction.lag.ms", Long(min_compaction_lag_ms, 0), "a record younger than this is not compacted";
    "min.insync.replicas", "min.insync.replicas", Int(min_insync_replicas, 1), "ISR members that acks=all asks for";
    "retention.bytes", "log.retention.bytes", Long(retention_bytes, -1), "the oldest segments go while more than this would stay; -1: no bound";
    "retention.ms", "log.retention.ms", Long(retention_ms, -1), "segments older than this go; -1: no bound";
    "segment.bytes", "log.segment.bytes", Int(segment_bytes, 14), "size of a log segment";
    "segment.index.bytes", "log.index.size.max.bytes", Int(segment_index_bytes, 8), "size of a segment's offset index";
    "segment.ms", "log.roll.ms", Long(segment_ms, 1), "a segment is closed when its first record is older than this";
    "unclean.leader.election.enable", "unclean.leader.election.enable", Switch(unclean_leader_election), "whether a replica outside the ISR may lead when no member can; loses records";
}

impl Setting {
    /// The setting with this name.
    #[must_use]
    pub fn find(key: &str) -> Option<&'static Self> {
        SETTINGS.iter().find(|setting| setting.key == key)
    }

    /// The setting whose default a broker gives under this key.
    #[must_use]
    pub fn of_broker(broker_key: &str) -> Option<&'static Self> {
        SETTINGS.iter().find(|setting| setting.broker_key == broker_key)
    }

    /// Reads a value into `config`.
    ///
    /// # Errors
    /// What a value looks like, in words that fit after "expected".
    pub fn read(&self, config: &mut TopicConfig, value: &str) -> Result<(), String> {
        let field = (self.field)(config);
        let form = field.form();
        if field.read(value.trim()) { Ok(()) } else { Err(form) }
    }

    /// The value in `config`, as Kafka writes it.
    #[must_use]
    pub fn value(&self, config: &TopicConfig) -> String {
        let mut copy = *config;
        (self.field)(&mut copy).value()
    }

    /// Its type.
    #[must_use]
    pub fn kind(&self) -> Kind {
        match (self.field)(&mut TopicConfig::default()) {
            Field::Int(..) => Kind::Int,
            Field::Long(..) => Kind::Long,
            Field::Switch(_) => Kind::Boolean,
            Field::Compression(_) | Field::Flush(_) | Field::Timestamps(_) => Kind::String,
            Field::Cleanup(_) => Kind::List,
            Field::Share(_) => Kind::Double,
        }
    }

    /// What a value looks like, in words that fit after "expected".
    #[must_use]
    pub fn form(&self) -> String {
        (self.field)(&mut TopicConfig::default()).form()
    }
}

impl Field<'_> {
    /// Takes the value if it is a legal one.
    fn read(self, value: &str) -> bool {
        match self {
            // Kafka's ints are signed.
            Self::Int(to, least) => {
                put(to, value, |n| (least..=i32::MAX.unsigned_abs()).contains(n))
            }
            Self::Long(to, least) => put(to, value, |n| *n >= least),
            Self::Switch(to) => match value.to_ascii_lowercase().as_str() {
                "true" => assign(to, true),
                "false" => assign(to, false),
                _ => false,
            },
            Self::Compression(to) => {
                let named = CompressionType::NAMED.iter().find(|(name, _)| *name == value);
                named.is_some_and(|(_, found)| assign(to, *found))
            }
            Self::Flush(to) => match value.to_ascii_lowercase().as_str() {
                "async" => assign(to, FlushMode::Async),
                "sync" => assign(to, FlushMode::Sync),
                _ => false,
            },
            Self::Timestamps(to) => match value {
                "CreateTime" => assign(to, TimestampType::CreateTime),
                "LogAppendTime" => assign(to, TimestampType::LogAppendTime),
                _ => false,
            },
            Self::Cleanup(to) => {
                let mut policy = CleanupPolicy { delete: false, compact: false };
                let known = value.split(',').all(|word| match word.trim() {
                    "delete" => assign(&mut policy.delete, true),
                    "compact" => assign(&mut policy.compact, true),
                    _ => false,
                });
                known && assign(to, policy)
            }
            Self::Share(to) => match value.parse::<f64>() {
                #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
                // in 0..=1,000,000
                Ok(share) if (0.0..=1.0).contains(&share) => {
                    let millionths = (share * f64::from(Ratio::ONE.millionths())).round() as u32;
                    assign(to, Ratio::from_millionths(millionths))
                }
                _ => false,
            },
        }
    }

    fn value(&self) -> String {
        match self {
            Self::Int(n, _) => n.to_string(),
            Self::Long(n, _) => n.to_string(),
            Self::Switch(on) => on.to_string(),
            Self::Compression(of) => {
                let named = CompressionType::NAMED.iter().find(|(_, found)| found == *of);
                named.map_or_else(String::new, |(name, _)| (*name).to_owned())
            }
            Self::Flush(FlushMode::Async) => "async".to_owned(),
            Self::Flush(FlushMode::Sync) => "sync".to_owned(),
            Self::Timestamps(TimestampType::CreateTime) => "CreateTime".to_owned(),
            Self::Timestamps(TimestampType::LogAppendTime) => "LogAppendTime".to_owned(),
            Self::Cleanup(policy) => match (policy.compact, policy.delete) {
                (true, true) => "compact,delete".to_owned(),
                (true, false) => "compact".to_owned(),
                (false, _) => "delete".to_owned(),
            },
            Self::Share(ratio) => {
                (f64::from(ratio.millionths()) / f64::from(Ratio::ONE.millionths())).to_string()
            }
        }
    }

    fn form(&self) -> String {
        match self {
            Self::Int(_, least) => format!("a whole number from {least} to {}", i32::MAX),
            Self::Long(_, least) => format!("a whole number from {least} to {}", i64::MAX),
            Self::Switch(_) => "true or false".to_owned(),
            Self::Compression(_) => {
                let names = CompressionType::NAMED.map(|(name, _)| name);
                format!("one of {}", names.join(", "))
            }
            Self::Flush(_) => "async or sync".to_owned(),
            Self::Timestamps(_) => "CreateTime or LogAppendTime".to_owned(),
            Self::Cleanup(_) => "delete, compact, or compact,delete".to_owned(),
            Self::Share(_) => "a number from 0 to 1".to_owned(),
        }
    }
}

fn assign<T>(to: &mut T, value: T) -> bool {
    *to = value;
    true
}

fn put<T: std::str::FromStr>(to: &mut T, value: &str, legal: impl Fn(&T) -> bool) -> bool {
    value.parse().ok().filter(legal).is_some_and(|value| assign(to, value))
}

/// Reads settings that a user gave. What is not given has its default.
///
/// # Errors
/// [`Condition::InvalidConfig`] for an unknown key, with the nearest known one, for a value out of range, and for values
/// that contradict each other.
pub fn from_overrides(
    defaults: &TopicConfig,
    overrides: &BTreeMap<String, String>,
) -> Result<TopicConfig, Condition> {
    let mut config = *defaults;
    for (key, value) in overrides {
        set(Naming::Topic, &mut config, key, value).map_err(Condition::InvalidConfig)?;
    }
    contradictions(&config)?;
    Ok(config)
}

/// Values that are legal each, but not together.
fn contradictions(config: &TopicConfig) -> Result<(), Condition> {
    if config.min_compaction_lag_ms > config.max_compaction_lag_ms {
        return Err(Condition::InvalidConfig(format!(
            "min.compaction.lag.ms is {}, more than max.compaction.lag.ms, {}",
            config.min_compaction_lag_ms, config.max_compaction_lag_ms
        )));
    }
    Ok(())
}

/// Reads settings that are stored. Keys of Kafka that mean nothing here are skipped; a bad value is named in the second
/// part and its default used.
#[must_use]
pub fn tolerant(
    naming: Naming,
    defaults: &TopicConfig,
    overrides: &BTreeMap<String, String>,
) -> (TopicConfig, Vec<String>) {
    let mut config = *defaults;
    let mut refused = Vec::new();
    for (key, value) in overrides {
        if naming.find(key).is_some()
            && let Err(reason) = set(naming, &mut config, key, value)
        {
            refused.push(reason);
        }
    }
    (config, refused)
}

/// The value in force of every key, as text, for describe.
#[must_use]
pub fn effective(config: &TopicConfig) -> BTreeMap<&'static str, String> {
    SETTINGS.iter().map(|setting| (setting.key, setting.value(config))).collect()
}

fn set(naming: Naming, config: &mut TopicConfig, key: &str, value: &str) -> Result<(), String> {
    known(naming, key)?
        .read(config, value)
        .map_err(|form| format!("{key} must be {form}, not '{}'", shown(value)))
}

/// The setting of this name.
///
/// # Errors
/// There is none; with the nearest one.
fn known(naming: Naming, key: &str) -> Result<&'static Setting, String> {
    naming.find(key).ok_or_else(|| {
        let names = || SETTINGS.iter().map(|setting| naming.name(setting));
        let own = OWN_SETTINGS.iter().filter(|_| naming == Naming::Broker).map(|own| own.key);
        let hint = match nearest(key, names().chain(own.clone())) {
            Some(known) => format!("; did you mean {known}?"),
            None => format!("; known are {}", names().chain(own).collect::<Vec<_>>().join(", ")),
        };
        let key = shown(key);
        match naming {
            Naming::Topic => format!("unknown topic setting '{key}'{hint}"),
            Naming::Broker => format!(
                "'{key}' cannot be changed while brokers run: if it is a setting at all, it is one of a broker's file, read at its start{hint}"
            ),
        }
    })
}

/// Text of a user, cut and without control characters, for a message.
pub(crate) fn shown(text: &str) -> String {
    text.chars().take(80).map(|c| if c.is_control() { '?' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
    }

    fn read(pairs: &[(&str, &str)]) -> Result<TopicConfig, Condition> {
        from_overrides(&TopicConfig::default(), &map(pairs))
    }

    #[test]
    fn settings_are_read() {
        let config =
            read(&[("min.insync.replicas", "2"), ("unclean.leader.election.enable", "TRUE")])
                .unwrap();
        assert_eq!(config.min_insync_replicas, 2);
        assert!(config.unclean_leader_election);
        assert_eq!(config.segment_bytes, TopicConfig::default().segment_bytes);
        let config = read(&[
            ("flush.mode", "sync"),
            ("cleanup.policy", "compact, delete"),
            ("min.cleanable.dirty.ratio", "0.01"),
            ("message.timestamp.type", "LogAppendTime"),
            ("retention.ms", "-1"),
        ])
        .unwrap();
        assert_eq!(config.flush_mode, FlushMode::Sync);
        assert_eq!(config.cleanup, CleanupPolicy { delete: true, compact: true });
        assert_eq!(config.min_cleanable_dirty_ratio.millionths(), 10_000);
        assert_eq!(config.message_timestamp_type, TimestampType::LogAppendTime);
        assert_eq!(config.retention_ms, -1);
        assert_eq!(read(&[]), Ok(TopicConfig::default()));
    }

    #[test]
    fn what_is_shown_can_be_read_back() {
        let config = TopicConfig {
            compression_type: CompressionType::Lz4,
            flush_mode: FlushMode::Sync,
            cleanup: CleanupPolicy { delete: false, compact: true },
            min_cleanable_dirty_ratio: Ratio::from_millionths(123_456),
            message_timestamp_type: TimestampType::LogAppendTime,
            retention_bytes: 7,
            unclean_leader_election: true,
            ..TopicConfig::default()
        };
        let shown: BTreeMap<_, _> =
            effective(&config).into_iter().map(|(k, v)| (k.to_owned(), v)).collect();
        assert_eq!(shown.len(), SETTINGS.len());
        assert_eq!(from_overrides(&TopicConfig::default(), &shown), Ok(config));
    }

    #[test]
    fn keys_are_ordered_and_unique_on_both_sides() {
        assert!(SETTINGS.windows(2).all(|pair| pair[0].key < pair[1].key));
        for setting in SETTINGS {
            let same = SETTINGS.iter().filter(|other| other.broker_key == setting.broker_key);
            assert_eq!(same.count(), 1, "{}", setting.broker_key);
        }
    }

    #[test]
    fn an_unknown_key_is_refused_with_the_nearest_one() {
        let error = read(&[("min.insync.replica", "2")]).unwrap_err().to_string();
        assert_eq!(
            error,
            "unknown topic setting 'min.insync.replica'; did you mean min.insync.replicas?"
        );
    }

    #[test]
    fn values_out_of_range_are_refused() {
        for (key, value) in [
            ("min.insync.replicas", "0"),
            ("segment.bytes", "13"),
            ("segment.bytes", "2147483648"),
            ("max.message.bytes", "-1"),
            ("unclean.leader.election.enable", "yes"),
            ("compression.type", "Gzip"),
            ("flush.mode", "often"),
            ("flush.messages", "0"),
            ("cleanup.policy", ""),
            ("cleanup.policy", "compact,none"),
            ("min.cleanable.dirty.ratio", "1.1"),
            ("min.cleanable.dirty.ratio", "NaN"),
            ("retention.ms", "-2"),
            ("retention.ms", "9223372036854775808"),
        ] {
            let error = read(&[(key, value)]).unwrap_err();
            assert!(
                matches!(error, Condition::InvalidConfig(text) if text.contains(key) && text.contains(value))
            );
        }
        let lags = [("min.compaction.lag.ms", "10"), ("max.compaction.lag.ms", "9")];
        assert!(matches!(read(&lags), Err(Condition::InvalidConfig(_))));
    }

    #[test]
    fn stored_settings_of_kafka_are_skipped_and_bad_ones_named() {
        let stored =
            map(&[("preallocate", "true"), ("segment.bytes", "x"), ("min.insync.replicas", "3")]);
        let (config, refused) = tolerant(Naming::Topic, &TopicConfig::default(), &stored);
        assert_eq!(config.min_insync_replicas, 3);
        assert_eq!(refused.len(), 1);
        assert!(refused[0].contains("segment.bytes"));
    }
}
