//! Changes of a topic's settings as messages, both ways.

use barnabas_controller_core::{AlterTopicConfig, AlteredTopicConfig};
use barnabas_proto::v1;
use barnabas_types::topic_config::SettingChange;
use barnabas_types::{BrokerId, Condition, TopicName};

use super::admin::senseless;

pub(super) fn write_alter(
    alter: &AlterTopicConfig,
    forwarded: bool,
) -> v1::AlterTopicConfigRequest {
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
    v1::AlterTopicConfigRequest {
        name: alter.name.to_string(),
        replace: alter.replace,
        changes: changes.collect(),
        validate_only: alter.validate_only,
        forwarded,
    }
}

pub(super) fn read_alter(
    request: v1::AlterTopicConfigRequest,
) -> Result<AlterTopicConfig, Condition> {
    use v1::setting_change::Change;
    let name = TopicName::new(&request.name)
        .map_err(|error| Condition::InvalidTopic(error.to_string()))?;
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
    Ok(AlterTopicConfig { name, replace, changes, validate_only })
}

pub(super) fn write_altered(
    name: String,
    answer: Result<AlteredTopicConfig, Condition>,
) -> v1::AlterTopicConfigResponse {
    use v1::alter_topic_config_response::Result as Outcome;
    let outcome = match answer {
        Ok(altered) => Outcome::Altered(v1::AlteredTopicConfig {
            name,
            overrides: altered.overrides.into_iter().collect(),
            unconfirmed_brokers: altered.unconfirmed.iter().map(|id| id.0).collect(),
        }),
        Err(condition) => Outcome::Failure((&condition).into()),
    };
    v1::AlterTopicConfigResponse { result: Some(outcome) }
}

pub(super) fn read_altered(
    response: v1::AlterTopicConfigResponse,
) -> Result<AlteredTopicConfig, Condition> {
    use v1::alter_topic_config_response::Result as Outcome;
    match response.result {
        Some(Outcome::Altered(altered)) => Ok(AlteredTopicConfig {
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
        let alter = AlterTopicConfig {
            name: TopicName::new("t").unwrap(),
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
        assert_eq!(read_alter(message.clone()), Ok(alter));
        let mut bad = message;
        bad.changes[0].change = None;
        assert!(matches!(read_alter(bad), Err(Condition::InvalidRequest(_))));
    }

    #[test]
    fn answers_read_back_as_written() {
        let altered = AlteredTopicConfig {
            overrides: BTreeMap::from([("a".into(), "1".into())]),
            unconfirmed: vec![BrokerId(2)],
        };
        let written = write_altered("t".into(), Ok(altered.clone()));
        assert_eq!(read_altered(written), Ok(altered));
        let failed = Condition::InvalidConfig("bad".into());
        assert_eq!(read_altered(write_altered("t".into(), Err(failed.clone()))), Err(failed));
    }
}
