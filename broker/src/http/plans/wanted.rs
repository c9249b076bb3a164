//! What an operator asks for, as it comes: `{"action": …}`, bounded and without unknown fields.

use std::collections::BTreeMap;

use barnabas_types::{BrokerId, TopicName, TopicPartition};
use serde::Deserialize;

use super::super::api::Refusal;

/// Partitions that one plan may name.
pub(super) const PARTITIONS_MAX: usize = 1_000;
/// Settings that one plan may change, or a new topic may have.
const SETTINGS_MAX: usize = 100;

/// See the module's head.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(tag = "action", rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum Wanted {
    CreateTopic {
        topic: String,
        #[serde(default)]
        partitions: Option<i32>,
        #[serde(default)]
        replication_factor: Option<i32>,
        #[serde(default)]
        configs: BTreeMap<String, String>,
    },
    /// Of all partitions that their preferred replica does not lead, or of these.
    ElectPreferred {
        #[serde(default)]
        partitions: Option<Vec<At>>,
    },
    Drain {
        broker: i32,
    },
    Undrain {
        broker: i32,
    },
    Reassign {
        partitions: Vec<Target>,
        /// Most bytes a second that a broker fetches for new replicas; 0: no limit.
        #[serde(default)]
        throttle: Option<u64>,
    },
    /// `scope`: cluster, broker:N or topic:NAME, as in the answer to `configs`.
    AlterConfig {
        scope: String,
        #[serde(default)]
        set: BTreeMap<String, String>,
        #[serde(default)]
        delete: Vec<String>,
    },
}

/// One partition.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct At {
    pub(super) topic: String,
    pub(super) partition: i32,
}

impl At {
    /// Its name, if there can be such a one.
    pub(super) fn read(&self) -> Result<TopicPartition, Refusal> {
        let topic = TopicName::new(&self.topic).map_err(|error| Refusal::bad(error.to_string()))?;
        Ok(TopicPartition { topic, partition: self.partition })
    }
}

/// One partition, and who shall have it, the preferred leader first.
#[derive(Clone, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Target {
    pub(super) topic: String,
    pub(super) partition: i32,
    pub(super) replicas: Vec<i32>,
}

impl Target {
    pub(super) fn at(&self) -> At {
        At { topic: self.topic.clone(), partition: self.partition }
    }

    pub(super) fn replicas(&self) -> Vec<BrokerId> {
        self.replicas.iter().copied().map(BrokerId).collect()
    }
}

impl Wanted {
    /// Reads a body.
    pub(super) fn read(body: &[u8]) -> Result<Self, Refusal> {
        let wanted: Self = serde_json::from_slice(body)
            .map_err(|error| Refusal::bad(format!("this is no plan: {error}")))?;
        let (partitions, settings) = match &wanted {
            Self::CreateTopic { configs, .. } => (0, configs.len()),
            Self::ElectPreferred { partitions } => (partitions.as_ref().map_or(0, Vec::len), 0),
            Self::Reassign { partitions, .. } => (partitions.len(), 0),
            Self::AlterConfig { set, delete, .. } => (0, set.len() + delete.len()),
            Self::Drain { .. } | Self::Undrain { .. } => (0, 0),
        };
        if partitions > PARTITIONS_MAX || settings > SETTINGS_MAX {
            return Err(Refusal::bad(format!(
                "a plan names at most {PARTITIONS_MAX} partitions and {SETTINGS_MAX} settings"
            )));
        }
        Ok(wanted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_action_is_read_and_what_is_none_is_refused_in_words() {
        let read = |text: &str| Wanted::read(text.as_bytes());
        assert_eq!(read(r#"{"action": "drain", "broker": 2}"#), Ok(Wanted::Drain { broker: 2 }));
        assert_eq!(
            read(r#"{"action": "elect_preferred"}"#),
            Ok(Wanted::ElectPreferred { partitions: None })
        );
        let moved = r#"{"action": "reassign", "partitions": [{"topic": "t", "partition": 0, "replicas": [1, 2]}]}"#;
        assert!(matches!(read(moved), Ok(Wanted::Reassign { throttle: None, .. })));
        for bad in [
            "",
            "null",
            "[]",
            "{}",
            r#"{"action": "delete_topic", "topic": "t"}"#,
            r#"{"action": "drain"}"#,
            r#"{"action": "drain", "broker": "2"}"#,
            r#"{"action": "drain", "broker": 2.5}"#,
            r#"{"action": "drain", "broker": 99999999999}"#,
            r#"{"action": "drain", "broker": 2, "force": true}"#,
            r#"{"action": "reassign", "partitions": [], "throttle": -1}"#,
            &format!("{}{}", "[".repeat(10_000), "]".repeat(10_000)),
        ] {
            let said = read(bad).unwrap_err().message;
            assert!(said.starts_with("this is no plan: "), "{bad:.40}: {said}");
        }
        let many = r#"{"topic": "t", "partition": 0},"#.repeat(PARTITIONS_MAX + 1);
        let many = format!(
            r#"{{"action": "elect_preferred", "partitions": [{}]}}"#,
            &many[..many.len() - 1]
        );
        assert!(read(&many).unwrap_err().message.contains("at most 1000"));
    }
}
