//! Changes of settings as messages, both ways.

use barnabas_controller_core::{AlterConfig, AlteredConfig};
use barnabas_proto::v1;
use barnabas_proto::v1::alter_config_request::Entity;
use barnabas_types::topic_config::SettingChange;
use barnabas_types::{BrokerId, Condition, ConfigEntity, TopicName};

use super::admin::senseless;

pub(super) fn write_alter(alter: &AlterConfig, forwarded: bool) -> v1::AlterConfigRequest {
    use v1::setting_change::Change;
    let changes = alter.changes.iter().map(|(key, change)| {
        let change = match change.clone() {
            SettingChange::Set(value) => Change::Set(value),
            SettingChange::Delete => Change::Delete(true),
            SettingChange::Append(words) => Change::Append(words),
            SettingChange::Subtract(words) => Change::Subtract(words),
        };
        v1::SettingChange { key: key.clone(), change: Some(change) }
    });
    v1::AlterConfigRequest {
        entity: Some(match &alter.entity {
            ConfigEntity::Topic(name) => Entity::Topic(name.to_string()),
            ConfigEntity::Broker(Some(id)) => Entity::BrokerId(id.0),
            ConfigEntity::Broker(None) => Entity::ClusterDefault(true),
        }),
        replace: alter.replace,
        changes: changes.collect(),
        validate_only: alter.validate_only,
        forwarded,
    }
}

pub(super) fn read_alter(request: v1::AlterConfigRequest) -> Result<AlterConfig, Condition> {
    use v1::setting_change::Change;
    let entity = match request.entity {
        Some(Entity::Topic(name)) => TopicName::new(&name)
            .map(ConfigEntity::Topic)
            .map_err(|error| Condition::InvalidTopic(error.to_string()))?,
        Some(Entity::BrokerId(id)) if id >= 0 => ConfigEntity::Broker(Some(BrokerId(id))),
        Some(Entity::BrokerId(id)) => {
            return Err(Condition::InvalidRequest(format!("{id} is no broker id")));
        }
        Some(Entity::ClusterDefault(true)) => ConfigEntity::Broker(None),
        Some(Entity::ClusterDefault(false)) | None => {
            let text = "settings are changed without saying whose".to_owned();
            return Err(Condition::InvalidRequest(text));
        }
    };
    let mut changes = Vec::with_capacity(request.changes.len());
    for v1::SettingChange { key, change } in request.changes {
        let change = match change {
            Some(Change::Set(value)) => SettingChange::Set(value),
            Some(Change::Delete(true)) => SettingChange::Delete,
            Some(Change::Append(words)) => SettingChange::Append(words),
            Some(Change::Subtract(words)) => SettingChange::Subtract(words),
            Some(Change::Delete(false)) | None => {
                let text = "a setting is named without what becomes of it".to_owned();
                return Err(Condition::InvalidRequest(text));
            }
        };
        changes.push((key, change));
    }
    let (replace, validate_only) = (request.replace, request.validate_only);
    Ok(AlterConfig { entity, replace, changes, validate_only })
}

pub(super) fn write_altered(answer: Result<AlteredConfig, Condition>) -> v1::AlterConfigResponse {
    use v1::alter_config_response::Result as Outcome;
    let outcome = match answer {
        Ok(altered) => Outcome::Altered(v1::AlteredConfig {
            overrides: altered.overrides.into_iter().collect(),
            unconfirmed_brokers: altered.unconfirmed.iter().map(|id| id.0).collect(),
        }),
        Err(condition) => Outcome::Failure((&condition).into()),
    };
    v1::AlterConfigResponse { result: Some(outcome) }
}

pub(super) fn read_altered(response: v1::AlterConfigResponse) -> Result<AlteredConfig, Condition> {
    use v1::alter_config_response::Result as Outcome;
    match response.result {
        Some(Outcome::Altered(altered)) => Ok(AlteredConfig {
            overrides: altered.overrides.into_iter().collect(),
            unconfirmed: altered.unconfirmed_brokers.into_iter().map(BrokerId).collect(),
        }),
        Some(Outcome::Failure(failure)) => Err(failure.into()),
        None => Err(senseless()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn a_forwarded_change_is_what_was_asked() {
        let alter = AlterConfig {
            entity: ConfigEntity::Broker(None),
            replace: true,
            changes: vec![
                ("a".into(), SettingChange::Set("1".into())),
                ("b".into(), SettingChange::Delete),
                ("c".into(), SettingChange::Append("x".into())),
                ("d".into(), SettingChange::Subtract("y".into())),
            ],
            validate_only: true,
        };
        let message = write_alter(&alter, true);
        assert!(message.forwarded);
        assert_eq!(read_alter(message.clone()), Ok(alter.clone()));
        let topic = ConfigEntity::Topic(TopicName::new("t").unwrap());
        for entity in [topic, ConfigEntity::Broker(Some(BrokerId(0)))] {
            let alter = AlterConfig { entity, ..alter.clone() };
            assert_eq!(read_alter(write_alter(&alter, false)), Ok(alter));
        }
        for entity in [None, Some(Entity::ClusterDefault(false)), Some(Entity::BrokerId(-1))] {
            let nobodys = v1::AlterConfigRequest { entity, ..message.clone() };
            assert!(matches!(read_alter(nobodys), Err(Condition::InvalidRequest(_))));
        }
        let mut bad = message;
        bad.changes[0].change = None;
        assert!(matches!(read_alter(bad), Err(Condition::InvalidRequest(_))));
    }

    #[test]
    fn answers_read_back_as_written() {
        let altered = AlteredConfig {
            overrides: BTreeMap::from([("a".into(), "1".into())]),
            unconfirmed: vec![BrokerId(2)],
        };
        let written = write_altered(Ok(altered.clone()));
        assert_eq!(read_altered(written), Ok(altered));
        let failed = Condition::InvalidConfig("bad".into());
        assert_eq!(read_altered(write_altered(Err(failed.clone()))), Err(failed));
    }
}
