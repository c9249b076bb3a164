//! Settings of a topic, of one broker or of all. The controller has checked them.

use barnabas_controller::AlterConfig;
use barnabas_types::durability::Trap;
use barnabas_types::topic_config::{Setting, SettingChange};
use barnabas_types::{BrokerId, ClusterImage, ConfigEntity, TopicConfig, TopicName};

use super::super::api::Refusal;
use super::made_for::{MadeFor, Part, whose};
use super::plan::{Act, Plan, Risk};
use crate::explain::cause::quoted;

/// Settings that delete records where they become smaller.
const RETENTION: [&str; 4] =
    ["retention.ms", "retention.bytes", "log.retention.ms", "log.retention.bytes"];

/// Whose settings: `cluster`, `broker:N` or `topic:NAME`.
pub(super) fn entity(image: &ClusterImage, scope: &str) -> Result<ConfigEntity, Refusal> {
    match scope.split_once(':') {
        None if scope == "cluster" => Ok(ConfigEntity::Broker(None)),
        Some(("broker", id)) => match id.parse() {
            Ok(id) if id >= 0 => Ok(ConfigEntity::Broker(Some(BrokerId(id)))),
            _ => Err(Refusal::bad("the broker must be a whole number")),
        },
        Some(("topic", name)) => {
            let name = TopicName::new(name).map_err(|error| Refusal::bad(error.to_string()))?;
            if !image.topics.contains_key(&name) {
                return Err(Refusal::not_found(format!("there is no topic {name}")));
            }
            Ok(ConfigEntity::Topic(name))
        }
        _ => Err(Refusal::bad("scope must be cluster, broker:N or topic:NAME")),
    }
}

pub(super) fn plan(image: &ClusterImage, alter: AlterConfig) -> Result<Plan, Refusal> {
    let made_for = MadeFor::of(image, Part::Settings(alter.entity.clone()));
    let mut before = TopicConfig::default();
    let (mut after, mut factor) = (None, 0);
    if let ConfigEntity::Topic(name) = &alter.entity
        && let Some(topic) = image.topics.get(name)
    {
        before = topic.config;
        let meant = topic.partitions.values().map(|p| p.assignment().original().len());
        factor = meant.min().unwrap_or(0);
        after = Some(topic.config);
    }
    let stored = match &alter.entity {
        ConfigEntity::Topic(name) => image.topics.get(name).map(|topic| &topic.overrides),
        ConfigEntity::Broker(id) => image.broker_settings.get(id),
    };
    let (mut steps, mut risks) = (Vec::new(), Vec::new());
    let mut command = match &alter.entity {
        ConfigEntity::Topic(name) => format!("barnabas topic alter {name}"),
        ConfigEntity::Broker(Some(id)) => format!("barnabas config alter --broker {id}"),
        ConfigEntity::Broker(None) => "barnabas config alter --cluster-default".to_owned(),
    };
    for (key, change) in &alter.changes {
        let was = stored.and_then(|stored| stored.get(key));
        let was_there = was.map_or_else(
            || "which is not set there".to_owned(),
            |was| format!("which is {was} there"),
        );
        match change {
            SettingChange::Set(value) => {
                steps.push(format!(
                    "{key} of {} becomes {value}, {was_there}",
                    whose(&alter.entity)
                ));
                command.push_str(&format!(" --config {}", quoted(&format!("{key}={value}"))));
                let setting = Setting::find(key).or_else(|| Setting::of_broker(key));
                if let (Some(setting), Some(after)) = (setting, after.as_mut()) {
                    // The controller has found it legal.
                    let _ = setting.read(after, value);
                }
                if RETENTION.contains(&key.as_str()) && shrinks(setting, &before, was, value) {
                    risks.push(Risk::bad(format!("records that {key}={value} does not keep are deleted, and are not to be had again")));
                }
            }
            _ => {
                steps.push(format!(
                    "{key} of {} is no longer set, {was_there}",
                    whose(&alter.entity)
                ));
                command.push_str(&format!(" --delete-config {}", quoted(key)));
            }
        }
    }
    if let Some(after) = after {
        let known = Trap::of(&before, factor);
        let new = Trap::of(&after, factor).into_iter().filter(|trap| !known.contains(trap));
        risks.extend(new.map(|trap| {
            let text = trap.advice(factor);
            match trap {
                Trap::MinInsyncOutOfReach | Trap::UncleanElections => Risk::bad(text),
                _ => Risk::warn(text),
            }
        }));
    } else {
        risks.push(Risk::warn("it holds for every topic that does not say otherwise, and for every broker that is meant"));
    }
    Ok(Plan {
        act: Act::AlterConfig(AlterConfig { validate_only: false, ..alter }),
        steps,
        moves_leaders: 0,
        copies_bytes: Some(0),
        eta_ms: None,
        risks,
        command,
        made_for,
    })
}

/// Whether a limit becomes smaller. A negative one is none.
fn shrinks(
    setting: Option<&Setting>,
    before: &TopicConfig,
    stored: Option<&String>,
    value: &str,
) -> bool {
    let limit = |text: &str| text.parse().ok().map(|n: i64| if n < 0 { i64::MAX } else { n });
    let in_force = setting.map(|setting| setting.value(before));
    let was = in_force.or_else(|| stored.cloned()).and_then(|was| limit(&was));
    match (was, limit(value)) {
        (Some(was), Some(is)) => is < was,
        _ => false,
    }
}
