//! CreateTopics (key 19), versions 2 to 7: KIP-4, KIP-464 (defaults from 4), KIP-525 (what was made, from 5), KIP-516
//! (topic ids from 7). The controller decides; any broker takes the request.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use barnabas_controller::{CreatedTopic, NewTopic};
use barnabas_types::{BrokerId, Condition, TopicName};
use barnabas_wire::messages::create_topics_request::{CreatableTopic, CreatableTopicConfig};
use barnabas_wire::messages::create_topics_response::{
    CreatableTopicConfigs, CreatableTopicResult,
};
use barnabas_wire::messages::{CreateTopicsRequest, CreateTopicsResponse, StrBytes, Uuid};

use super::describe_configs::DYNAMIC_TOPIC_CONFIG;
use super::error_code;
use super::several::several;
use crate::connection::serve::WAIT_MAX;
use crate::node::Node;

/// First version that tells number of partitions and replication factor.
const DETAILS_VERSION: i16 = 5;

pub(super) async fn handle(
    node: Arc<Node>,
    version: i16,
    request: CreateTopicsRequest,
) -> CreateTopicsResponse {
    let deadline = deadline(request.timeout_ms);
    let twice = named_twice(request.topics.iter().map(|topic| topic.name.as_str()));
    let create = |topic: &CreatableTopic| {
        let asked = if twice.contains(topic.name.as_str()) {
            Err(Condition::InvalidRequest("the request names this topic more than once".into()))
        } else {
            translated(topic, request.validate_only)
        };
        let node = node.clone();
        async move { create(&node, asked?, deadline).await }
    };
    let made = several(request.topics.iter().map(create)).await;
    let mut response = CreateTopicsResponse::default();
    let results = request.topics.iter().zip(made);
    response.topics = results.map(|(topic, made)| result(version, topic, made)).collect();
    response
}

/// Names that a request gives more than once.
pub(super) fn named_twice<'a>(names: impl Iterator<Item = &'a str>) -> BTreeSet<&'a str> {
    let mut once = BTreeSet::new();
    names.filter(|name| !once.insert(*name)).collect()
}

/// When a request with this timeout is late; a negative one is late at once.
pub(super) fn deadline(timeout_ms: i32) -> tokio::time::Instant {
    let timeout = Duration::from_millis(u64::try_from(timeout_ms).unwrap_or(0));
    tokio::time::Instant::now() + timeout.min(WAIT_MAX)
}

async fn create(
    node: &Node,
    asked: NewTopic,
    deadline: tokio::time::Instant,
) -> Result<CreatedTopic, Condition> {
    match tokio::time::timeout_at(deadline, node.controller.create_topic(asked)).await {
        Ok(answer) => answer,
        Err(_) => Err(Condition::RequestTimedOut),
    }
}

/// The same wish in the words of the administration. What it means is checked by the controller; a name that cannot be need
/// not be asked about.
fn translated(topic: &CreatableTopic, validate_only: bool) -> Result<NewTopic, Condition> {
    TopicName::new(topic.name.as_str())
        .map_err(|error| Condition::InvalidTopic(error.to_string()))?;
    let manual = !topic.assignments.is_empty();
    if manual && (topic.num_partitions != -1 || topic.replication_factor != -1) {
        return Err(Condition::InvalidRequest(
            "give either an assignment, or numbers of partitions and replicas (both -1 with an assignment)".into(),
        ));
    }
    let mut overrides = BTreeMap::new();
    for config in &topic.configs {
        let Some(value) = &config.value else {
            return Err(Condition::InvalidConfig("a topic setting may not be null".into()));
        };
        if overrides.insert(config.name.as_str().to_owned(), value.as_str().to_owned()).is_some() {
            return Err(Condition::InvalidConfig("a topic setting is given twice".into()));
        }
    }
    let mut assignment = BTreeMap::new();
    for manual in &topic.assignments {
        let brokers = manual.broker_ids.iter().copied().map(BrokerId).collect();
        if assignment.insert(manual.partition_index, brokers).is_some() {
            return Err(Condition::InvalidReplicaAssignment(
                "a partition is assigned twice".into(),
            ));
        }
    }
    Ok(NewTopic {
        name: topic.name.as_str().to_owned(),
        partitions: (topic.num_partitions != -1).then_some(topic.num_partitions),
        replication_factor: (topic.replication_factor != -1)
            .then_some(i32::from(topic.replication_factor)),
        assignment,
        overrides,
        validate_only,
    })
}

fn result(
    version: i16,
    topic: &CreatableTopic,
    made: Result<CreatedTopic, Condition>,
) -> CreatableTopicResult {
    let mut entry = CreatableTopicResult::default();
    entry.name = topic.name.clone();
    // Null and not empty where all went well, as in Kafka: clients compare.
    entry.error_message = None;
    match made {
        Ok(created) => {
            // All zeros if it was only checked, as in Kafka.
            entry.topic_id = Uuid::from_bytes(created.topic_id.unwrap_or_default().0);
            if version >= DETAILS_VERSION {
                entry.num_partitions = created.partitions;
                entry.replication_factor = i16::try_from(created.replication_factor).unwrap_or(-1);
                // Those that it was given; DescribeConfigs tells all. Never null: Kafka's own client cannot bear that.
                entry.configs = Some(topic.configs.iter().map(own_setting).collect());
            }
        }
        Err(condition) => {
            entry.error_code = error_code(&condition);
            entry.error_message = Some(StrBytes::from(condition.to_string()));
        }
    }
    entry
}

fn own_setting(config: &CreatableTopicConfig) -> CreatableTopicConfigs {
    let mut entry = CreatableTopicConfigs::default();
    entry.name = config.name.clone();
    entry.value = config.value.clone();
    entry.config_source = DYNAMIC_TOPIC_CONFIG;
    entry
}

#[cfg(test)]
mod tests {
    use super::*;
    use barnabas_types::TopicId;
    use barnabas_wire::messages::create_topics_request::{
        CreatableReplicaAssignment, CreatableTopicConfig,
    };
    use barnabas_wire::reply;

    fn topic() -> CreatableTopic {
        let mut topic = CreatableTopic::default();
        topic.name = "orders".into();
        topic.num_partitions = 6;
        topic.replication_factor = 3;
        topic
    }

    #[test]
    fn every_answer_can_be_written_at_every_version() {
        let created =
            CreatedTopic { topic_id: Some(TopicId([7; 16])), partitions: 6, replication_factor: 3 };
        for version in 2..=7 {
            let mut response = CreateTopicsResponse::default();
            let mut wish = topic();
            let mut config = CreatableTopicConfig::default();
            (config.name, config.value) = ("retention.ms".into(), Some("1".into()));
            wish.configs = vec![config];
            response.topics.push(result(version, &wish, Ok(created)));
            if version >= DETAILS_VERSION {
                let told = response.topics[0].configs.as_ref().unwrap();
                assert_eq!((told.len(), told[0].value.clone()), (1, Some("1".into())));
            }
            let exists = Condition::TopicAlreadyExists("orders".into());
            response.topics.push(result(version, &wish, Err(exists)));
            assert_eq!(response.topics[1].error_code, 36);
            reply(1, version, &response).unwrap_or_else(|error| panic!("{error}"));
        }
    }

    #[test]
    fn minus_one_stands_for_the_default() {
        let asked = translated(&topic(), true).unwrap();
        assert_eq!((asked.partitions, asked.replication_factor), (Some(6), Some(3)));
        assert!(asked.validate_only);
        let mut defaults = topic();
        defaults.num_partitions = -1;
        defaults.replication_factor = -1;
        let asked = translated(&defaults, false).unwrap();
        assert_eq!((asked.partitions, asked.replication_factor), (None, None));
    }

    #[test]
    fn an_assignment_excludes_numbers() {
        let mut manual = topic();
        let mut assignment = CreatableReplicaAssignment::default();
        assignment.broker_ids = vec![1, 2];
        manual.assignments.push(assignment);
        assert!(matches!(translated(&manual, false), Err(Condition::InvalidRequest(_))));
        manual.num_partitions = -1;
        manual.replication_factor = -1;
        let asked = translated(&manual, false).unwrap();
        assert_eq!(asked.assignment, BTreeMap::from([(0, vec![BrokerId(1), BrokerId(2)])]));
    }

    #[test]
    fn a_name_that_cannot_be_is_not_asked_about() {
        let mut wish = topic();
        wish.name = "../x".into();
        assert!(matches!(translated(&wish, false), Err(Condition::InvalidTopic(_))));
    }

    #[test]
    fn a_null_or_double_setting_is_refused() {
        let mut config = CreatableTopicConfig::default();
        config.name = "segment.bytes".into();
        config.value = None;
        let mut wish = topic();
        wish.configs = vec![config.clone()];
        assert!(matches!(translated(&wish, false), Err(Condition::InvalidConfig(_))));
        config.value = Some("1024".into());
        wish.configs = vec![config.clone()];
        assert_eq!(translated(&wish, false).unwrap().overrides["segment.bytes"], "1024");
        wish.configs = vec![config.clone(), config];
        assert!(matches!(translated(&wish, false), Err(Condition::InvalidConfig(_))));
    }
}
