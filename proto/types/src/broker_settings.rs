//! Settings that are changed while brokers run, of all of them or of one, as ZooKeeper holds them (`/config/brokers`).
//!
//! Two kinds: what holds for topics that do not say, which is one thing in the whole cluster because the controller decides
//! with it; and a few settings of the brokers' own work, for all or for one broker.

use std::collections::{BTreeMap, BTreeSet};

use crate::topic_config::{Naming, SettingChange, altered as altered_of_topics, shown};
use crate::{BrokerId, Condition, Setting, TopicConfig, TopicName};

/// Who has settings in ZooKeeper.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum ConfigEntity {
    /// A topic.
    Topic(TopicName),
    /// A broker; `None`: what holds for all brokers (`<default>`).
    Broker(Option<BrokerId>),
}

impl std::fmt::Display for ConfigEntity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Topic(name) => write!(f, "topic {name}"),
            Self::Broker(Some(id)) => write!(f, "broker {id}"),
            Self::Broker(None) => f.write_str("the cluster"),
        }
    }
}

/// Settings of brokers as typed, by broker; `None`: those of all brokers. Whoever has none has no entry.
pub type BrokerSettings = BTreeMap<Option<BrokerId>, BTreeMap<String, String>>;

/// A setting of a broker's own work that is changed while it runs: a whole number.
#[derive(Clone, Copy, Debug)]
pub struct OwnSetting {
    /// Kafka's name.
    pub key: &'static str,
    /// Least and greatest value, both legal.
    pub range: (i64, i64),
}

/// All of them, ordered by key.
pub const OWN_SETTINGS: &[OwnSetting] = &[
    OwnSetting { key: "log.cleaner.backoff.ms", range: (1, 86_400_000) },
    OwnSetting { key: "log.cleaner.io.max.bytes.per.second", range: (1024, i64::MAX) },
];

impl OwnSetting {
    /// The setting with this name.
    #[must_use]
    pub fn find(key: &str) -> Option<&'static Self> {
        OWN_SETTINGS.iter().find(|setting| setting.key == key)
    }

    fn read(&self, value: &str) -> Result<i64, String> {
        let (least, most) = self.range;
        let number = value.trim().parse().ok().filter(|n| (least..=most).contains(n));
        number.ok_or_else(|| {
            let key = self.key;
            format!("{key} must be a whole number from {least} to {most}, not '{}'", shown(value))
        })
    }
}

/// Whether the setting can be changed while brokers run.
#[must_use]
pub fn is_dynamic(key: &str) -> bool {
    Setting::of_broker(key).is_some() || OwnSetting::find(key).is_some()
}

/// The value of a broker's own setting that is in force above its file: its own first, then that of all brokers; `None` if
/// neither is stored, or makes sense.
#[must_use]
pub fn own_value(settings: &BrokerSettings, broker: BrokerId, key: &str) -> Option<i64> {
    let setting = OwnSetting::find(key)?;
    [Some(broker), None].iter().find_map(|whose| {
        let value = settings.get(whose)?.get(key)?;
        setting.read(value).ok()
    })
}

/// What is stored after `changes` to what was `stored` for `broker` (`None`: for all). `statics`: what holds for topics that
/// do not say where nothing is stored. With `replace`, what the changes do not set goes.
///
/// # Errors
/// [`Condition::InvalidConfig`] for a key that cannot be changed while brokers run, with the nearest one that can, for a bad
/// value, and for what holds for topics at a single broker; [`Condition::InvalidRequest`] for a key named twice.
pub fn altered(
    broker: Option<BrokerId>,
    statics: &TopicConfig,
    stored: &BTreeMap<String, String>,
    replace: bool,
    changes: &[(String, SettingChange)],
) -> Result<BTreeMap<String, String>, Condition> {
    let is_own = |(key, _): &&(String, SettingChange)| OwnSetting::find(key).is_some();
    let of_topics: Vec<_> = changes.iter().filter(|c| !is_own(c)).cloned().collect();
    if let Some(id) = broker
        && let Some((key, _)) = of_topics.iter().find(|(key, _)| Setting::of_broker(key).is_some())
    {
        return Err(Condition::InvalidConfig(format!(
            "{key} holds for topics, which all brokers serve alike: set it for the cluster, not for broker {id}"
        )));
    }
    let (mut overrides, _) =
        altered_of_topics(Naming::Broker, statics, stored, replace, &of_topics)?;
    let mut named = BTreeSet::new();
    for (key, change) in changes.iter().filter(is_own) {
        if !named.insert(key) {
            return Err(Condition::InvalidRequest(format!("{key} is named twice")));
        }
        match change {
            SettingChange::Set(value) => {
                let read = OwnSetting::find(key).map(|setting| setting.read(value));
                let number = read.unwrap_or(Ok(0)).map_err(Condition::InvalidConfig)?;
                overrides.insert(key.clone(), number.to_string());
            }
            SettingChange::Delete => {
                overrides.remove(key);
            }
            SettingChange::Append(_) | SettingChange::Subtract(_) => {
                let text = format!("{key} is no list: it can be set or deleted");
                return Err(Condition::InvalidConfig(text));
            }
        }
    }
    Ok(overrides)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
    }

    fn set(key: &str, value: &str) -> (String, SettingChange) {
        (key.to_owned(), SettingChange::Set(value.to_owned()))
    }

    fn after(
        broker: Option<BrokerId>,
        stored: &[(&str, &str)],
        replace: bool,
        changes: &[(String, SettingChange)],
    ) -> Result<BTreeMap<String, String>, Condition> {
        altered(broker, &TopicConfig::default(), &map(stored), replace, changes)
    }

    #[test]
    fn the_cluster_has_topics_defaults_and_brokers_settings() {
        let stored = [("log.retention.ms", "5"), ("background.threads", "9")];
        let changes = [
            set("log.cleaner.backoff.ms", " 7 "),
            set("log.segment.bytes", "1024"),
            ("log.retention.ms".to_owned(), SettingChange::Delete),
        ];
        let both = map(&[
            ("log.cleaner.backoff.ms", "7"),
            ("log.segment.bytes", "1024"),
            ("background.threads", "9"),
        ]);
        assert_eq!(after(None, &stored, false, &changes), Ok(both));
        let only = after(None, &stored, true, &changes[..1]).unwrap();
        assert_eq!(only, map(&[("log.cleaner.backoff.ms", "7")]));
        let policy = ("log.cleanup.policy".to_owned(), SettingChange::Append("compact".into()));
        let list = after(None, &[], false, &[policy]).unwrap();
        assert_eq!(list, map(&[("log.cleanup.policy", "delete,compact")]));
    }

    #[test]
    fn what_cannot_be_changed_is_refused_with_the_reason() {
        let one = Some(BrokerId(2));
        for (broker, change, part) in [
            (one, set("log.retention.ms", "5"), "set it for the cluster, not for broker 2"),
            (None, set("log.retention.mss", "5"), "did you mean log.retention.ms?"),
            (one, set("broker.id", "5"), "a broker's file"),
            (None, set("log.retention.ms", "x"), "log.retention.ms must be"),
            (one, set("log.cleaner.backoff.ms", "0"), "from 1 to 86400000, not '0'"),
            (
                one,
                ("log.cleaner.backoff.ms".to_owned(), SettingChange::Append("1".into())),
                "no list",
            ),
        ] {
            let error = after(broker, &[], false, std::slice::from_ref(&change)).unwrap_err();
            assert!(
                matches!(&error, Condition::InvalidConfig(text) if text.contains(part)),
                "{error}"
            );
        }
        let twice = [set("log.cleaner.backoff.ms", "1"), set("log.cleaner.backoff.ms", "2")];
        assert!(matches!(after(one, &[], false, &twice), Err(Condition::InvalidRequest(_))));
    }

    #[test]
    fn a_brokers_own_value_comes_before_that_of_all() {
        let key = "log.cleaner.backoff.ms";
        let mut settings = BrokerSettings::from([(None, map(&[(key, "5")]))]);
        assert_eq!(own_value(&settings, BrokerId(2), key), Some(5));
        settings.insert(Some(BrokerId(2)), map(&[(key, "6")]));
        assert_eq!(own_value(&settings, BrokerId(2), key), Some(6));
        assert_eq!(own_value(&settings, BrokerId(1), key), Some(5));
        settings.insert(Some(BrokerId(1)), map(&[(key, "nonsense")]));
        assert_eq!(own_value(&settings, BrokerId(1), key), Some(5));
        assert_eq!(own_value(&settings, BrokerId(1), "log.dirs"), None);
    }
}
