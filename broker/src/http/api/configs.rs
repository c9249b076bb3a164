//! `configs`: what is set, by whom, and whether a change needs a restart.

use barnabas_types::broker_settings::is_dynamic;
use barnabas_types::topic_config::SETTINGS;
use barnabas_types::{TopicConfig, TopicName};
use serde_json::{Value, json};

use super::super::query::Query;
use super::super::source::Source;
use super::refusal::Refusal;
use crate::config::{Source as From, values};

/// `{"scope", "configs"}`: of this broker as one of the cluster, of one broker, or of a topic.
pub(super) fn list(source: &Source, query: &Query) -> Result<Value, Refusal> {
    let node = &source.node;
    let scope = query.text("scope").unwrap_or("cluster");
    let configs = match scope.split_once(':') {
        None if scope == "cluster" => of_broker(source),
        Some(("broker", id)) if id == node.me.to_string() => of_broker(source),
        Some(("broker", id)) if id.parse::<i32>().is_ok() => {
            return Err(Refusal::not_found(format!(
                "this is broker {}; broker {id} itself knows its file",
                node.me
            )));
        }
        Some(("topic", name)) => of_topic(source, name)?,
        _ => return Err(Refusal::bad("scope must be cluster, broker:N or topic:NAME")),
    };
    Ok(json!({ "scope": scope, "configs": configs, "told_by": node.me.0 }))
}

fn one(key: &str, value: Option<&str>, default: Option<&str>, from: &str, live: bool) -> Value {
    json!({
        "key": key,
        "value": value,
        "default_value": default,
        "source": from,
        "source_detail": null,
        "live": live,
        "changed_at_ms": null,
        "differs_between_brokers": null,
    })
}

fn of_broker(source: &Source) -> Vec<Value> {
    let node = &source.node;
    let stored = &node.view.image().broker_settings;
    let shown = node.options.shown.iter().map(|shown| {
        let all = values(shown, stored, node.me);
        let (from, value) = all.first().cloned().unwrap_or((From::Default, None));
        let from = match from {
            From::Broker => "broker",
            From::Cluster => "cluster",
            From::File => "broker_file",
            From::Default => "default",
        };
        one(shown.name, value.as_deref(), shown.default.as_deref(), from, is_dynamic(shown.name))
    });
    shown.collect()
}

fn of_topic(source: &Source, name: &str) -> Result<Vec<Value>, Refusal> {
    let unknown = || Refusal::not_found(format!("there is no topic {name}"));
    let name = TopicName::new(name).map_err(|_| unknown())?;
    let image = source.node.view.image();
    let topic = image.topics.get(&name).ok_or_else(unknown)?;
    let stored = image.broker_settings.get(&None);
    let settings = SETTINGS.iter().map(|setting| {
        let value = setting.value(&topic.config);
        let default = setting.value(&TopicConfig::default());
        let of_all = stored.is_some_and(|stored| stored.contains_key(setting.broker_key));
        let from = match topic.overrides.contains_key(setting.key) {
            true => "topic",
            false if of_all => "cluster",
            false if value != default => "broker_file",
            false => "default",
        };
        one(setting.key, Some(&value), Some(&default), from, true)
    });
    Ok(settings.collect())
}
