//! A broker's settings as they are shown to administrators.

use barnabas_types::TopicConfig;
use barnabas_types::topic_config::{Kind, Setting};

use super::error::ConfigError;
use super::keys::{KEYS, Key};
use super::settings::Settings;

/// One setting of this broker. None is secret.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Shown {
    /// Kafka's name.
    pub name: &'static str,
    /// The value in force, `None` if there is none.
    pub value: Option<String>,
    /// Whether the configuration file says it.
    pub given: bool,
    /// What holds where the file does not say it.
    pub default: Option<String>,
    /// Its type.
    pub kind: Kind,
    /// What it does, one clause.
    pub meaning: &'static str,
}

/// Every key, in the order of the documentation. `topic` is what holds for topics that do not say, as read.
pub(super) fn shown(settings: &Settings, topic: &TopicConfig) -> Result<Vec<Shown>, ConfigError> {
    KEYS.iter().map(|key| one(settings, topic, key)).collect()
}

fn one(settings: &Settings, topic: &TopicConfig, key: &Key) -> Result<Shown, ConfigError> {
    let default = Some(key.default.clone()).filter(|text| !text.is_empty());
    let of_topics = Setting::of_broker(key.name);
    let (value, given) = match of_topics {
        // Kafka's coarser words for times end in the same value.
        Some(setting) => {
            let value = setting.value(topic);
            let given = settings.entry(key.name).is_some() || Some(&value) != default.as_ref();
            (Some(value), given)
        }
        None => (settings.raw(key.name)?, settings.entry(key.name).is_some()),
    };
    let kind = of_topics.map_or_else(|| kind(key), Setting::kind);
    Ok(Shown { name: key.name, value, given, default, kind, meaning: key.meaning })
}

/// The type, as the form of its values tells it.
fn kind(key: &Key) -> Kind {
    let form = key.form.as_str();
    let starts = |words: &[&str]| words.iter().any(|word| form.starts_with(word));
    match form {
        _ if starts(&["true or false"]) => Kind::Boolean,
        _ if starts(&["a whole number", "milliseconds", "bytes"]) => Kind::Long,
        _ if starts(&["a list", "one or more"]) => Kind::List,
        _ => Kind::String,
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::BrokerConfig;
    use super::*;

    #[test]
    fn every_key_is_shown_with_its_value_its_type_and_whether_the_file_gave_it() {
        let text = "broker.id: 7\nlog.dirs: [/a, /b]\nzookeeper.connect: localhost:2181\n\
                    log.retention.hours: 2\nmin.insync.replicas: 1\n";
        let config = BrokerConfig::parse(Path::new("b.yaml"), text).unwrap();
        assert_eq!(config.shown.len(), KEYS.len());
        let find = |name: &str| {
            let shown = config.shown.iter().find(|shown| shown.name == name).unwrap();
            (shown.value.as_deref(), shown.given, shown.kind)
        };
        assert_eq!(find("broker.id"), (Some("7"), true, Kind::Long));
        assert_eq!(find("log.dirs"), (Some("/a,/b"), true, Kind::List));
        assert_eq!(find("broker.rack"), (None, false, Kind::String));
        assert_eq!(find("log.cleaner.enable"), (Some("true"), false, Kind::Boolean));
        assert_eq!(find("log.retention.ms"), (Some("7200000"), true, Kind::Long));
        assert_eq!(find("min.insync.replicas"), (Some("1"), true, Kind::Int));
        assert_eq!(find("log.flush.mode"), (Some("async"), false, Kind::String));
    }
}
