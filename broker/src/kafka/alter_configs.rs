//! AlterConfigs (key 33), versions 0 to 2: KIP-133, KIP-226. Replaces all settings of a topic, of a broker, or of all brokers; the
//! controller decides, any broker takes the request.

use std::collections::BTreeSet;
use std::sync::Arc;

use barnabas_controller::AlterConfig;
use barnabas_types::topic_config::SettingChange;
use barnabas_types::{BrokerId, Condition, ConfigEntity, Sanitised, TopicName};
use barnabas_wire::messages::alter_configs_request::AlterConfigsResource;
use barnabas_wire::messages::alter_configs_response::AlterConfigsResourceResponse;
use barnabas_wire::messages::{AlterConfigsRequest, AlterConfigsResponse, StrBytes};

use super::error_code;
use crate::node::Node;

/// Kafka's types of resources that have settings.
pub(super) const TOPIC: i8 = 2;
pub(super) const BROKER: i8 = 4;

pub(super) async fn handle(node: Arc<Node>, request: AlterConfigsRequest) -> AlterConfigsResponse {
    let twice = named_twice(request.resources.iter().map(|r| (r.resource_type, &r.resource_name)));
    let mut response = AlterConfigsResponse::default();
    for resource in &request.resources {
        let key = (resource.resource_type, resource.resource_name.as_str().to_owned());
        let asked = check(&key, &twice).and_then(|entity| translated(entity, resource));
        let done = alter(&node, asked, request.validate_only).await;
        let mut entry = AlterConfigsResourceResponse::default();
        (entry.error_code, entry.error_message) = told(done);
        entry.resource_type = resource.resource_type;
        entry.resource_name = resource.resource_name.clone();
        response.responses.push(entry);
    }
    response
}

/// What the whole resource shall be.
fn translated(
    entity: ConfigEntity,
    resource: &AlterConfigsResource,
) -> Result<AlterConfig, Condition> {
    let mut changes = Vec::with_capacity(resource.configs.len());
    for config in &resource.configs {
        let Some(value) = &config.value else { return Err(null_value()) };
        let value = SettingChange::Set(value.as_str().to_owned());
        changes.push((config.name.as_str().to_owned(), value));
    }
    Ok(AlterConfig { entity, replace: true, changes, validate_only: false })
}

pub(super) fn null_value() -> Condition {
    Condition::InvalidRequest("a setting may not be set to null; delete it instead".into())
}

/// Resources that a request names more than once.
pub(super) fn named_twice<'a>(
    resources: impl Iterator<Item = (i8, &'a StrBytes)>,
) -> BTreeSet<(i8, String)> {
    let (mut once, mut twice) = (BTreeSet::new(), BTreeSet::new());
    for (kind, name) in resources {
        let key = (kind, name.as_str().to_owned());
        if !once.insert(key.clone()) {
            twice.insert(key);
        }
    }
    twice
}

/// Whose settings a resource names.
///
/// # Errors
/// It is neither a topic nor a broker, its name is not legal, or the request names it twice.
pub(super) fn check(
    resource: &(i8, String),
    twice: &BTreeSet<(i8, String)>,
) -> Result<ConfigEntity, Condition> {
    let (kind, name) = resource;
    if twice.contains(resource) {
        return Err(Condition::InvalidRequest("the request names this resource twice".into()));
    }
    match *kind {
        TOPIC => TopicName::new(name)
            .map(ConfigEntity::Topic)
            .map_err(|error| Condition::InvalidTopic(error.to_string())),
        // The empty name stands for all brokers.
        BROKER if name.is_empty() => Ok(ConfigEntity::Broker(None)),
        BROKER => match name.parse() {
            Ok(id) if id >= 0 => Ok(ConfigEntity::Broker(Some(BrokerId(id)))),
            _ => Err(Condition::InvalidRequest(
                "a broker is named by its id, and all of them by the empty name".into(),
            )),
        },
        other => Err(Condition::InvalidRequest(format!(
            "resources of type {other} have no settings here; topics (2) and brokers (4) have"
        ))),
    }
}

/// Has the controller do it. What Kafka's answer has no place for, the log tells.
pub(super) async fn alter(
    node: &Node,
    asked: Result<AlterConfig, Condition>,
    validate_only: bool,
) -> Result<(), Condition> {
    let asked = AlterConfig { validate_only, ..asked? };
    let entity = asked.entity.clone();
    let altered = node.controller.alter_config(asked).await?;
    if !altered.unconfirmed.is_empty() {
        let brokers: Vec<i32> = altered.unconfirmed.iter().map(|id| id.0).collect();
        tracing::warn!(
            target: "request", entity = %Sanitised::name(&entity), ?brokers,
            "the settings are stored, but these brokers have not confirmed them yet"
        );
    }
    Ok(())
}

pub(super) fn told(done: Result<(), Condition>) -> (i16, Option<StrBytes>) {
    match done {
        Ok(()) => (0, None),
        Err(condition) => (error_code(&condition), Some(condition.to_string().into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use barnabas_wire::messages::alter_configs_request::AlterableConfig;

    fn key(kind: i8, name: &str) -> (i8, String) {
        (kind, name.to_owned())
    }

    #[test]
    fn topics_and_brokers_are_altered_and_each_once() {
        let names: Vec<StrBytes> = vec!["a".into(), "b".into(), "a".into()];
        let twice = named_twice(names.iter().map(|name| (TOPIC, name)));
        let code = |resource| told(check(&resource, &twice).map(|_| ())).0;
        assert_eq!(code(key(TOPIC, "b")), 0);
        assert_eq!(code(key(TOPIC, "a")), 42);
        assert_eq!(code(key(TOPIC, "../b")), 17);
        assert_eq!(code(key(BROKER, "1")), 0);
        assert_eq!(check(&key(BROKER, ""), &twice), Ok(ConfigEntity::Broker(None)));
        assert_eq!(code(key(BROKER, "-1")), 42);
        assert_eq!(code(key(BROKER, "b")), 42);
        assert_eq!(code(key(32, "b")), 42);
    }

    #[test]
    fn everything_that_is_not_named_goes() {
        let mut config = AlterableConfig::default();
        config.name = "retention.ms".into();
        config.value = Some("5".into());
        let mut resource = AlterConfigsResource::default();
        resource.configs = vec![config.clone()];
        let asked = translated(ConfigEntity::Broker(None), &resource).unwrap();
        assert!(asked.replace);
        assert_eq!(asked.changes, [("retention.ms".into(), SettingChange::Set("5".into()))]);
        config.value = None;
        resource.configs.push(config);
        let refused = translated(ConfigEntity::Broker(None), &resource);
        assert!(matches!(refused, Err(Condition::InvalidRequest(_))));
    }
}
