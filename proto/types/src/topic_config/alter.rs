//! Changing the settings that a topic overrides: whole, or key by key (KIP-339).

use std::collections::{BTreeMap, BTreeSet};

use super::{Kind, Naming, Setting, contradictions, known, set, shown, tolerant};
use crate::{Condition, TopicConfig};

/// What becomes of one setting.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum SettingChange {
    /// It gets this value.
    Set(String),
    /// It is no longer overridden: the default holds.
    Delete,
    /// These are added to a list (`cleanup.policy`).
    Append(String),
    /// These are taken out of a list.
    Subtract(String),
}

/// Kafka's limits of replicas' copying (KIP-73), for topics and for brokers. Here a limit is part of the move itself and ends with
/// it, so there are none to set; `kafka-reassign-partitions --verify` deletes them all the same, and finds nothing.
const THROTTLES_OF_KAFKA: [&str; 5] = [
    "leader.replication.throttled.replicas",
    "follower.replication.throttled.replicas",
    "leader.replication.throttled.rate",
    "follower.replication.throttled.rate",
    "replica.alter.log.dirs.io.max.bytes.per.second",
];

/// The overrides after `changes` to those that are `stored`, and the settings that are then in force.
///
/// Keys are those of `naming`. With `replace`, what the changes do not set is no longer overridden. What is stored and not named by them is not judged:
/// keys of Kafka that mean nothing here stay as they are.
///
/// # Errors
/// [`Condition::InvalidConfig`] for an unknown key, with the nearest known one, a value out of range, values that contradict
/// each other, and a change that the setting's type does not allow; [`Condition::InvalidRequest`] for a key named twice.
pub fn altered(
    naming: Naming,
    defaults: &TopicConfig,
    stored: &BTreeMap<String, String>,
    replace: bool,
    changes: &[(String, SettingChange)],
) -> Result<(BTreeMap<String, String>, TopicConfig), Condition> {
    let mut overrides = if replace { BTreeMap::new() } else { stored.clone() };
    let mut named = BTreeSet::new();
    for (key, change) in changes {
        if !named.insert(key) {
            return Err(Condition::InvalidRequest(format!("{} is named twice", shown(key))));
        }
        one(naming, (defaults, stored), &mut overrides, key, change)
            .map_err(Condition::InvalidConfig)?;
    }
    let (config, _) = tolerant(naming, defaults, &overrides);
    contradictions(&config)?;
    Ok((overrides, config))
}

fn one(
    naming: Naming,
    (defaults, stored): (&TopicConfig, &BTreeMap<String, String>),
    overrides: &mut BTreeMap<String, String>,
    key: &str,
    change: &SettingChange,
) -> Result<(), String> {
    let value = match change {
        SettingChange::Delete => {
            let is_stored = overrides.remove(key).is_some() || stored.contains_key(key);
            if !is_stored && !THROTTLES_OF_KAFKA.contains(&key) {
                known(naming, key)?;
            }
            return Ok(());
        }
        SettingChange::Set(value) => value.trim().to_owned(),
        SettingChange::Append(words) | SettingChange::Subtract(words) => {
            let setting = known(naming, key)?;
            if setting.kind() != Kind::List {
                return Err(format!("{key} is no list: it can be set or deleted"));
            }
            let mut list = present_list(naming, defaults, overrides, setting);
            let words: Vec<String> = words.split(',').map(|w| w.trim().to_owned()).collect();
            list.retain(|word| !words.contains(word));
            if matches!(change, SettingChange::Append(_)) {
                list.extend(words);
            }
            list.join(",")
        }
    };
    let mut judged = *defaults;
    set(naming, &mut judged, key, &value)?;
    overrides.insert(key.to_owned(), value);
    Ok(())
}

/// The words of a list as it is in force.
fn present_list(
    naming: Naming,
    defaults: &TopicConfig,
    overrides: &BTreeMap<String, String>,
    setting: &Setting,
) -> Vec<String> {
    let (config, _) = tolerant(naming, defaults, overrides);
    setting.value(&config).split(',').map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FlushMode;

    fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
    }

    fn to(key: &str, value: &str) -> (String, SettingChange) {
        (key.to_owned(), SettingChange::Set(value.to_owned()))
    }

    fn delete(key: &str) -> (String, SettingChange) {
        (key.to_owned(), SettingChange::Delete)
    }

    fn alter(
        stored: &[(&str, &str)],
        replace: bool,
        changes: &[(String, SettingChange)],
    ) -> Result<(BTreeMap<String, String>, TopicConfig), Condition> {
        altered(Naming::Topic, &TopicConfig::default(), &map(stored), replace, changes)
    }

    #[test]
    fn the_limits_that_kafka_sets_beside_a_move_can_be_deleted_and_not_set() {
        let defaults = TopicConfig::default();
        for naming in [Naming::Topic, Naming::Broker] {
            for key in THROTTLES_OF_KAFKA {
                let after = altered(naming, &defaults, &map(&[]), false, &[delete(key)]);
                assert_eq!(after.map(|(overrides, _)| overrides), Ok(map(&[])), "{key}");
                assert!(altered(naming, &defaults, &map(&[]), false, &[to(key, "1")]).is_err());
            }
        }
    }

    #[test]
    fn what_is_not_named_stays_unless_all_is_replaced() {
        let stored = [("retention.ms", "5"), ("flush.mode", "async"), ("preallocate", "true")];
        let changes = [to("flush.mode", " sync "), delete("retention.ms")];
        let (overrides, config) = alter(&stored, false, &changes).unwrap();
        assert_eq!(overrides, map(&[("flush.mode", "sync"), ("preallocate", "true")]));
        assert_eq!(config.flush_mode, FlushMode::Sync);
        assert_eq!(config.retention_ms, TopicConfig::default().retention_ms);
        let (overrides, _) = alter(&stored, true, &changes[..1]).unwrap();
        assert_eq!(overrides, map(&[("flush.mode", "sync")]));
    }

    #[test]
    fn a_stored_value_that_makes_no_sense_hinders_nobody_and_can_be_mended() {
        let stored = [("segment.bytes", "x"), ("made.up", "y")];
        let (overrides, config) = alter(&stored, false, &[to("retention.ms", "7")]).unwrap();
        assert_eq!(overrides.len(), 3);
        assert_eq!(config.segment_bytes, TopicConfig::default().segment_bytes);
        let changes = [delete("segment.bytes"), delete("made.up")];
        assert_eq!(alter(&stored, false, &changes).unwrap().0, map(&[]));
    }

    #[test]
    fn lists_are_added_to_and_taken_from() {
        let append = |words: &str| ("cleanup.policy".into(), SettingChange::Append(words.into()));
        let subtract =
            |words: &str| ("cleanup.policy".into(), SettingChange::Subtract(words.into()));
        let (overrides, config) = alter(&[], false, &[append("compact")]).unwrap();
        assert!(config.cleanup.compact && config.cleanup.delete);
        assert_eq!(overrides, map(&[("cleanup.policy", "delete,compact")]));
        let both = [("cleanup.policy", "compact,delete")];
        let (_, config) = alter(&both, false, &[subtract("delete")]).unwrap();
        assert!(config.cleanup.compact && !config.cleanup.delete);
        let bad = [
            append("shrink"),
            subtract("delete"),
            ("retention.ms".into(), SettingChange::Append("1".into())),
        ];
        for change in bad {
            let error = alter(&[], false, std::slice::from_ref(&change)).unwrap_err();
            assert!(matches!(error, Condition::InvalidConfig(_)), "{change:?}: {error}");
        }
    }

    #[test]
    fn bad_changes_are_named() {
        for (change, text) in [
            (to("flush.mod", "sync"), "did you mean flush.mode?"),
            (delete("flush.mod"), "did you mean flush.mode?"),
            (to("flush.mode", "often"), "must be async or sync, not 'often'"),
            (to("min.compaction.lag.ms", "9223372036854775807"), ""),
        ] {
            let stored = [("max.compaction.lag.ms", "5")];
            let error = alter(&stored, false, std::slice::from_ref(&change)).unwrap_err();
            assert!(matches!(&error, Condition::InvalidConfig(said) if said.contains(text)));
        }
        let twice = [to("retention.ms", "1"), delete("retention.ms")];
        assert!(matches!(alter(&[], false, &twice), Err(Condition::InvalidRequest(_))));
    }
}
