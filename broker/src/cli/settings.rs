//! Settings on the command line: `barnabas topic alter`, `barnabas config`, and how `topic describe` shows a topic's.

use std::collections::{BTreeMap, HashMap};

use barnabas_proto::v1::alter_config_request::Entity;
use barnabas_proto::v1::alter_config_response::Result as Altered;
use barnabas_proto::v1::setting_change::Change;
use barnabas_proto::v1::{AlterConfigRequest, AlteredConfig, SettingChange, Topic};
use barnabas_types::TopicConfig;
use barnabas_types::topic_config::SETTINGS;
use clap::{ArgGroup, Args};
use serde_json::{Value, json};

use super::ask::{ask, empty_answer, failure, printable};
use super::table::print_json;
use super::{Asking, CliError, key_value};

#[derive(Args, Debug)]
pub(super) struct AlterArgs {
    /// The topic.
    name: String,
    #[command(flatten)]
    changes: Changes,
    #[command(flatten)]
    asking: Asking,
}

/// What shall become of settings.
#[derive(Args, Debug)]
#[command(group = ArgGroup::new("changes").args(["set", "deleted"]).required(true).multiple(true))]
pub(super) struct Changes {
    /// A setting and its new value, such as retention.ms=3600000 (of brokers: log.retention.ms=3600000); may be repeated.
    #[arg(long = "config", value_name = "K=V", value_parser = key_value)]
    set: Vec<(String, String)>,
    /// A setting that shall no longer be set here: what is above it holds again; may be repeated.
    #[arg(long = "delete-config", value_name = "K")]
    deleted: Vec<String>,
    /// Check everything and change nothing.
    #[arg(long)]
    pub(super) validate_only: bool,
}

pub(super) fn alter(args: AlterArgs) -> Result<(), CliError> {
    let AlterArgs { name, changes, asking } = args;
    let validate_only = changes.validate_only;
    let altered = match change(Entity::Topic(name.clone()), changes, &asking)? {
        Altered::Altered(altered) => altered,
        Altered::Failure(refusal) if refusal.name == "UNKNOWN_TOPIC_OR_PARTITION" => {
            return Err(super::topic::absent(&name));
        }
        Altered::Failure(refusal) => return Err(failure(&refusal)),
    };
    say_altered(
        ("name", json!(name)),
        &format!("topic '{}'", printable(&name)),
        altered,
        validate_only,
        &asking,
    );
    Ok(())
}

/// Asks for the change.
pub(super) fn change(
    entity: Entity,
    changes: Changes,
    asking: &Asking,
) -> Result<Altered, CliError> {
    let Changes { set, deleted, validate_only } = changes;
    let set = set.into_iter().map(|(key, value)| (key, Change::Set(value)));
    let deleted = deleted.into_iter().map(|key| (key, Change::Delete(true)));
    let changes =
        set.chain(deleted).map(|(key, change)| SettingChange { key, change: Some(change) });
    let request = AlterConfigRequest {
        entity: Some(entity),
        replace: false,
        changes: changes.collect(),
        validate_only,
        forwarded: false,
    };
    let answer = ask(asking, |mut client| async move { client.alter_config(request).await })?;
    answer.result.ok_or_else(|| empty_answer(asking))
}

/// Shows what has become of the settings of `whose`; `key` names them in JSON.
pub(super) fn say_altered(
    key: (&str, Value),
    whose: &str,
    altered: AlteredConfig,
    validate_only: bool,
    asking: &Asking,
) {
    let overrides: BTreeMap<_, _> = altered.overrides.into_iter().collect();
    if asking.json {
        let mut answer = json!({
            "configs": overrides, "validate_only": validate_only,
            "unconfirmed_brokers": altered.unconfirmed_brokers,
        });
        answer[key.0] = key.1;
        print_json(&answer);
        return;
    }
    let shown: Vec<String> =
        overrides.iter().map(|(k, v)| format!("{}={}", printable(k), printable(v))).collect();
    say!(
        "{} {whose}: {}",
        if validate_only { "would alter" } else { "altered" },
        if shown.is_empty() { "no settings of its own".to_owned() } else { shown.join("  ") }
    );
    if !altered.unconfirmed_brokers.is_empty() {
        let ids: Vec<String> = altered.unconfirmed_brokers.iter().map(i32::to_string).collect();
        say!(
            "stored; not yet confirmed by broker {}, which may go on under the old settings until it is heard of",
            ids.join(", ")
        );
    }
}

/// Where the value of a setting comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Source {
    Topic,
    /// Stored for the cluster.
    Cluster,
    /// The controller's file.
    File,
    Default,
}

impl Source {
    fn name(self) -> &'static str {
        match self {
            Self::Topic => "topic",
            Self::Cluster => "cluster",
            Self::File => "file",
            Self::Default => "default",
        }
    }
}

/// What is stored for the cluster.
type ClusterSettings = HashMap<String, String>;

/// Every setting in force: key, value, source.
fn in_force(topic: &Topic, cluster: &ClusterSettings) -> Vec<(&'static str, String, Source)> {
    let Some(Ok(config)) = topic.config.as_ref().map(TopicConfig::try_from) else {
        return Vec::new();
    };
    let built_in = TopicConfig::default();
    let of = |setting: &'static barnabas_types::topic_config::Setting| {
        let value = setting.value(&config);
        let source = if topic.overrides.contains_key(setting.key) {
            Source::Topic
        } else if cluster.contains_key(setting.broker_key) {
            Source::Cluster
        } else if value == setting.value(&built_in) {
            Source::Default
        } else {
            Source::File
        };
        (setting.key, value, source)
    };
    SETTINGS.iter().map(of).collect()
}

/// The settings in force, numbers and switches as such, and the source of each.
pub(super) fn as_json(topic: &Topic, cluster: &ClusterSettings) -> (Value, Value) {
    let settings = in_force(topic, cluster);
    let typed =
        |text: &str| serde_json::from_str(text).unwrap_or_else(|_| Value::String(text.to_owned()));
    let values = settings.iter().map(|(key, value, _)| ((*key).to_owned(), typed(value)));
    let sources =
        settings.iter().map(|(key, _, source)| ((*key).to_owned(), Value::from(source.name())));
    (values.collect(), sources.collect())
}

/// The settings that somebody chose, on one line; the other defaults would drown them. `None`: none.
pub(super) fn as_line(topic: &Topic, cluster: &ClusterSettings) -> Option<String> {
    let chosen: Vec<String> = in_force(topic, cluster)
        .into_iter()
        .filter_map(|(key, value, source)| match source {
            Source::Topic => Some(format!("{key}={value}")),
            Source::Cluster => Some(format!("{key}={value} (cluster)")),
            Source::File => Some(format!("{key}={value} (file)")),
            Source::Default => None,
        })
        .collect();
    (!chosen.is_empty()).then(|| chosen.join("  "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chosen_settings_are_shown_with_their_source() {
        let config = TopicConfig {
            retention_ms: 5,
            min_insync_replicas: 2,
            flush_ms: 1000,
            ..TopicConfig::default()
        };
        let topic = Topic {
            config: Some((&config).into()),
            overrides: [
                ("retention.ms", "5"),
                ("min.insync.replicas", "2"),
                ("segment.ms", "604800000"),
            ]
            .map(|(k, v)| (k.to_owned(), v.to_owned()))
            .into(),
            ..Topic::default()
        };
        let cluster = [("log.flush.timeout.ms", "30000"), ("log.retention.ms", "7")]
            .map(|(k, v)| (k.to_owned(), v.to_owned()))
            .into();
        assert_eq!(
            as_line(&topic, &cluster).unwrap(),
            "flush.ms=1000 (file)  flush.timeout.ms=30000 (cluster)  min.insync.replicas=2  retention.ms=5  segment.ms=604800000"
        );
        let (values, sources) = as_json(&topic, &cluster);
        assert_eq!(sources["flush.ms"], "file", "as `config describe` calls it");
        assert_eq!(sources["flush.timeout.ms"], "cluster", "though it is the default");
        assert_eq!(values.as_object().unwrap().len(), SETTINGS.len());
        assert_eq!(
            (&values["retention.ms"], &sources["retention.ms"]),
            (&json!(5), &json!("topic"))
        );
        assert_eq!(sources["segment.ms"], "topic", "said by the topic, though it is the default");
        assert_eq!(
            (&values["flush.mode"], &sources["flush.mode"]),
            (&json!("async"), &json!("default"))
        );
        assert_eq!(
            as_line(
                &Topic { config: Some((&TopicConfig::default()).into()), ..Topic::default() },
                &ClusterSettings::new()
            ),
            None
        );
    }
}
