//! CreatePartitions (key 37), versions 0 to 3: KIP-195. The controller decides; any broker takes the request.

use std::sync::Arc;

use barnabas_controller::CreatePartitions;
use barnabas_types::{BrokerId, Condition, TopicName};
use barnabas_wire::messages::create_partitions_request::CreatePartitionsTopic;
use barnabas_wire::messages::create_partitions_response::CreatePartitionsTopicResult;
use barnabas_wire::messages::{CreatePartitionsRequest, CreatePartitionsResponse, StrBytes};

use super::create_topics::{deadline, named_twice};
use super::error_code;
use super::several::several;
use crate::node::Node;

pub(super) async fn handle(
    node: Arc<Node>,
    request: CreatePartitionsRequest,
) -> CreatePartitionsResponse {
    let deadline = deadline(request.timeout_ms);
    let twice = named_twice(request.topics.iter().map(|topic| topic.name.as_str()));
    let create = |topic: &CreatePartitionsTopic| {
        let asked = if twice.contains(topic.name.as_str()) {
            Err(Condition::InvalidRequest("the request names this topic more than once".into()))
        } else {
            translated(topic, request.validate_only)
        };
        let node = node.clone();
        async move {
            let created = node.controller.create_partitions(asked?);
            let created = tokio::time::timeout_at(deadline, created).await;
            created.unwrap_or(Err(Condition::RequestTimedOut))
        }
    };
    let done = several(request.topics.iter().map(create)).await;
    let mut response = CreatePartitionsResponse::default();
    let results = request.topics.iter().zip(&done);
    response.results = results.map(|(topic, done)| result(topic.name.as_str(), done)).collect();
    response
}

/// The same wish in the words of the administration. What it means is checked by the controller.
fn translated(
    topic: &CreatePartitionsTopic,
    validate_only: bool,
) -> Result<CreatePartitions, Condition> {
    let name = TopicName::new(topic.name.as_str())
        .map_err(|error| Condition::InvalidTopic(error.to_string()))?;
    let assigned = topic.assignments.iter().flatten();
    Ok(CreatePartitions {
        name,
        total: topic.count,
        assignment: assigned
            .map(|a| a.broker_ids.iter().copied().map(BrokerId).collect())
            .collect(),
        validate_only,
    })
}

fn result(name: &str, done: &Result<i32, Condition>) -> CreatePartitionsTopicResult {
    let mut entry = CreatePartitionsTopicResult::default();
    entry.name = name.into();
    if let Err(condition) = done {
        entry.error_code = error_code(condition);
        entry.error_message = Some(StrBytes::from(condition.to_string()));
    }
    entry
}

#[cfg(test)]
mod tests {
    use super::*;
    use barnabas_wire::messages::create_partitions_request::CreatePartitionsAssignment;
    use barnabas_wire::reply;

    #[test]
    fn a_topic_is_translated_with_or_without_an_assignment() {
        let mut topic = CreatePartitionsTopic::default();
        topic.name = "orders".into();
        topic.count = 3;
        let asked = translated(&topic, true).unwrap();
        assert_eq!((asked.total, asked.assignment.len(), asked.validate_only), (3, 0, true));
        let mut assignment = CreatePartitionsAssignment::default();
        assignment.broker_ids = vec![2, 1];
        topic.assignments = Some(vec![assignment]);
        let asked = translated(&topic, false).unwrap();
        assert_eq!(asked.assignment, [vec![BrokerId(2), BrokerId(1)]]);
        topic.name = "../x".into();
        assert!(matches!(translated(&topic, false), Err(Condition::InvalidTopic(_))));
    }

    #[test]
    fn every_answer_can_be_written_at_every_version() {
        for version in 0..=3 {
            let mut response = CreatePartitionsResponse::default();
            response.results.push(result("orders", &Ok(3)));
            let refused = Condition::InvalidPartitions("no increase".into());
            response.results.push(result("orders", &Err(refused)));
            let codes: Vec<i16> = response.results.iter().map(|r| r.error_code).collect();
            assert_eq!(codes, [0, 37]);
            reply(1, version, &response).unwrap_or_else(|error| panic!("{error}"));
        }
    }
}
