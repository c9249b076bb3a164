//! Where the value of a broker's setting comes from: its own in ZooKeeper, that of all brokers there, its file, the default.

use barnabas_types::broker_settings::OwnSetting;
use barnabas_types::topic_config::Setting;
use barnabas_types::{BrokerId, BrokerSettings};

use super::Shown;

/// Where a value comes from, the strongest first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Source {
    /// Stored in ZooKeeper for this broker.
    Broker,
    /// Stored in ZooKeeper for all brokers.
    Cluster,
    /// The broker's file.
    File,
    /// Nobody says anything.
    Default,
}

impl Source {
    /// Its name in answers of the administration.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Broker => "broker",
            Self::Cluster => "cluster",
            Self::File => "file",
            Self::Default => "default",
        }
    }
}

/// Every value that a setting has somewhere, the one in force first; never empty. `me`: the broker whose file `shown` is of.
#[must_use]
pub fn values(
    shown: &Shown,
    settings: &BrokerSettings,
    me: BrokerId,
) -> Vec<(Source, Option<String>)> {
    let stored = |whose: Option<BrokerId>| settings.get(&whose).and_then(|s| s.get(shown.name));
    let mut values = Vec::new();
    // What holds for topics is one thing in the whole cluster: what somebody stored for one broker means nothing.
    if OwnSetting::find(shown.name).is_some()
        && let Some(value) = stored(Some(me))
    {
        values.push((Source::Broker, Some(value.clone())));
    }
    if (OwnSetting::find(shown.name).is_some() || Setting::of_broker(shown.name).is_some())
        && let Some(value) = stored(None)
    {
        values.push((Source::Cluster, Some(value.clone())));
    }
    if shown.given {
        values.push((Source::File, shown.value.clone()));
    }
    values.push((Source::Default, shown.default.clone()));
    values
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use barnabas_types::topic_config::Kind;

    use super::*;

    fn shown(name: &'static str, given: bool) -> Shown {
        Shown {
            name,
            value: Some("1".into()),
            given,
            default: Some("0".into()),
            kind: Kind::Long,
            meaning: "",
        }
    }

    #[test]
    fn the_strongest_comes_first() {
        let map = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
            pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
        };
        let own = "log.cleaner.backoff.ms";
        let settings = BrokerSettings::from([
            (None, map(&[(own, "2"), ("log.retention.ms", "3"), ("broker.id", "9")])),
            (Some(BrokerId(1)), map(&[(own, "4"), ("log.retention.ms", "5")])),
        ]);
        let of = |name, given, me| -> Vec<(Source, String)> {
            let values = values(&shown(name, given), &settings, BrokerId(me));
            values.into_iter().map(|(s, v)| (s, v.unwrap())).collect()
        };
        let pair = |source, text: &str| (source, text.to_owned());
        let (cluster, file) = (pair(Source::Cluster, "2"), pair(Source::File, "1"));
        let default = pair(Source::Default, "0");
        let all = [pair(Source::Broker, "4"), cluster.clone(), file.clone(), default.clone()];
        assert_eq!(of(own, true, 1), all);
        assert_eq!(of(own, false, 2), [cluster, default.clone()]);
        let of_topics = [pair(Source::Cluster, "3"), default.clone()];
        assert_eq!(of("log.retention.ms", false, 1), of_topics);
        assert_eq!(of("broker.id", true, 1), [file, default]);
    }
}
