//! Topic settings as people type them, read into values; Kafka's names, ranges and defaults.

use std::collections::BTreeMap;

use barnabas_types::{Condition, TopicConfig, nearest};

/// All known keys.
pub const KEYS: [&str; 4] =
    ["max.message.bytes", "min.insync.replicas", "segment.bytes", "unclean.leader.election.enable"];

/// Smallest `segment.bytes` (Kafka's).
const SEGMENT_BYTES_MIN: u32 = 14;

/// Reads settings that a user gave. What is not given has its default.
///
/// # Errors
/// [`Condition::InvalidConfig`] for an unknown key, with the nearest known one, and for a value out of range.
pub fn from_overrides(
    defaults: &TopicConfig,
    overrides: &BTreeMap<String, String>,
) -> Result<TopicConfig, Condition> {
    let mut config = *defaults;
    for (key, value) in overrides {
        set(&mut config, key, value).map_err(Condition::InvalidConfig)?;
    }
    Ok(config)
}

/// Reads settings that are stored. Keys of Kafka that mean nothing here are skipped; a bad value is named in the second
/// part and its default used.
#[must_use]
pub fn tolerant(
    defaults: &TopicConfig,
    overrides: &BTreeMap<String, String>,
) -> (TopicConfig, Vec<String>) {
    let mut config = *defaults;
    let mut refused = Vec::new();
    for (key, value) in overrides {
        if KEYS.contains(&key.as_str())
            && let Err(reason) = set(&mut config, key, value)
        {
            refused.push(reason);
        }
    }
    (config, refused)
}

/// The value in force of every key, as text, for describe.
#[must_use]
pub fn effective(config: &TopicConfig) -> BTreeMap<&'static str, String> {
    BTreeMap::from([
        ("max.message.bytes", config.max_message_bytes.to_string()),
        ("min.insync.replicas", config.min_insync_replicas.to_string()),
        ("segment.bytes", config.segment_bytes.to_string()),
        ("unclean.leader.election.enable", config.unclean_leader_election.to_string()),
    ])
}

fn set(config: &mut TopicConfig, key: &str, value: &str) -> Result<(), String> {
    match key {
        "min.insync.replicas" => config.min_insync_replicas = number(key, value, 1)?,
        "segment.bytes" => config.segment_bytes = number(key, value, SEGMENT_BYTES_MIN)?,
        "max.message.bytes" => config.max_message_bytes = number(key, value, 0)?,
        "unclean.leader.election.enable" => {
            config.unclean_leader_election = match value.trim().to_ascii_lowercase().as_str() {
                "true" => true,
                "false" => false,
                _ => return Err(format!("{key} must be true or false, not '{}'", shown(value))),
            };
        }
        _ => {
            let hint = match nearest(key, KEYS) {
                Some(known) => format!("; did you mean {known}?"),
                None => format!("; known are {}", KEYS.join(", ")),
            };
            return Err(format!("unknown topic setting '{}'{hint}", shown(key)));
        }
    }
    Ok(())
}

/// A number from `least` to Kafka's largest, 2^31 - 1.
fn number(key: &str, value: &str, least: u32) -> Result<u32, String> {
    let most = i32::MAX.unsigned_abs();
    value.trim().parse().ok().filter(|n| (least..=most).contains(n)).ok_or_else(|| {
        format!("{key} must be a whole number from {least} to {most}, not '{}'", shown(value))
    })
}

/// Text of a user, cut and without control characters, for a message.
fn shown(text: &str) -> String {
    text.chars().take(80).map(|c| if c.is_control() { '?' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
    }

    #[test]
    fn settings_are_read() {
        let config = from_overrides(
            &TopicConfig::default(),
            &map(&[("min.insync.replicas", "2"), ("unclean.leader.election.enable", "TRUE")]),
        )
        .unwrap();
        assert_eq!(config.min_insync_replicas, 2);
        assert!(config.unclean_leader_election);
        assert_eq!(config.segment_bytes, TopicConfig::default().segment_bytes);
        assert_eq!(
            from_overrides(&TopicConfig::default(), &BTreeMap::new()),
            Ok(TopicConfig::default())
        );
    }

    #[test]
    fn an_unknown_key_is_refused_with_the_nearest_one() {
        let error = from_overrides(&TopicConfig::default(), &map(&[("min.insync.replica", "2")]))
            .unwrap_err()
            .to_string();
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
        ] {
            let error = from_overrides(&TopicConfig::default(), &map(&[(key, value)])).unwrap_err();
            assert!(
                matches!(error, Condition::InvalidConfig(text) if text.contains(key) && text.contains(value))
            );
        }
    }

    #[test]
    fn stored_settings_of_kafka_are_skipped_and_bad_ones_named() {
        let stored =
            map(&[("retention.ms", "1"), ("segment.bytes", "x"), ("min.insync.replicas", "3")]);
        let (config, refused) = tolerant(&TopicConfig::default(), &stored);
        assert_eq!(config.min_insync_replicas, 3);
        assert_eq!(refused.len(), 1);
        assert!(refused[0].contains("segment.bytes"));
    }
}
