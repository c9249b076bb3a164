//! IncrementalAlterConfigs (key 44), versions 0 and 1: KIP-339. Changes settings of a topic or of brokers key by key; the
//! controller decides, any broker takes the request.

use std::sync::Arc;

use barnabas_controller::AlterConfig;
use barnabas_types::topic_config::SettingChange;
use barnabas_types::{Condition, ConfigEntity};
use barnabas_wire::messages::incremental_alter_configs_request::{
    AlterConfigsResource, AlterableConfig,
};
use barnabas_wire::messages::incremental_alter_configs_response::AlterConfigsResourceResponse;
use barnabas_wire::messages::{IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse};

use super::alter_configs::{alter, check, named_twice, null_value, told};
use crate::node::Node;

pub(super) async fn handle(
    node: Arc<Node>,
    request: IncrementalAlterConfigsRequest,
) -> IncrementalAlterConfigsResponse {
    let twice = named_twice(request.resources.iter().map(|r| (r.resource_type, &r.resource_name)));
    let mut response = IncrementalAlterConfigsResponse::default();
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

fn translated(
    entity: ConfigEntity,
    resource: &AlterConfigsResource,
) -> Result<AlterConfig, Condition> {
    let one = |config: &AlterableConfig| Ok((config.name.as_str().to_owned(), change(config)?));
    let changes = resource.configs.iter().map(one).collect::<Result<_, Condition>>()?;
    Ok(AlterConfig { entity, replace: false, changes, validate_only: false })
}

/// Kafka's operation codes.
fn change(config: &AlterableConfig) -> Result<SettingChange, Condition> {
    let value = || config.value.as_ref().map(|v| v.as_str().to_owned()).ok_or_else(null_value);
    match config.config_operation {
        0 => Ok(SettingChange::Set(value()?)),
        1 => Ok(SettingChange::Delete),
        2 => Ok(SettingChange::Append(value()?)),
        3 => Ok(SettingChange::Subtract(value()?)),
        other => Err(Condition::InvalidRequest(format!(
            "operation {other} is not known; 0 sets, 1 deletes, 2 appends, 3 subtracts"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(operation: i8, value: Option<&str>) -> AlterableConfig {
        let mut config = AlterableConfig::default();
        config.name = "cleanup.policy".into();
        config.config_operation = operation;
        config.value = value.map(Into::into);
        config
    }

    #[test]
    fn operations_are_translated() {
        let mut resource = AlterConfigsResource::default();
        resource.configs = vec![
            config(0, Some("a")),
            config(1, Some("ignored")),
            config(2, Some("b")),
            config(3, Some("c")),
        ];
        let asked = translated(ConfigEntity::Broker(None), &resource).unwrap();
        assert!(!asked.replace);
        let changes: Vec<_> = asked.changes.into_iter().map(|(_, change)| change).collect();
        assert_eq!(
            changes,
            [
                SettingChange::Set("a".into()),
                SettingChange::Delete,
                SettingChange::Append("b".into()),
                SettingChange::Subtract("c".into()),
            ]
        );
        for bad in [config(0, None), config(2, None), config(4, Some("x")), config(-1, None)] {
            assert!(matches!(change(&bad), Err(Condition::InvalidRequest(_))), "{bad:?}");
        }
    }
}
