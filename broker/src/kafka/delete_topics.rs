//! DeleteTopics (key 20), versions 1 to 6: KIP-4, KIP-599 (messages from 5), KIP-516 (by id in 6). The controller
//! decides; any broker takes the request.

use std::collections::BTreeSet;
use std::sync::Arc;

use barnabas_types::{Condition, TopicId, TopicName};
use barnabas_wire::messages::delete_topics_request::DeleteTopicState;
use barnabas_wire::messages::delete_topics_response::DeletableTopicResult;
use barnabas_wire::messages::{DeleteTopicsRequest, DeleteTopicsResponse, StrBytes, Uuid};

use super::create_topics::{deadline, named_twice};
use super::error_code;
use super::several::several;
use crate::node::Node;

/// First version that names topics by id, too.
const ID_VERSION: i16 = 6;
/// First version with a message for an error.
const MESSAGE_VERSION: i16 = 5;

pub(super) async fn handle(
    node: Arc<Node>,
    version: i16,
    request: DeleteTopicsRequest,
) -> DeleteTopicsResponse {
    let deadline = deadline(request.timeout_ms);
    let topics = asked_topics(version, request);
    let named = topics.iter().filter_map(|topic| topic.name.as_deref());
    let twice: BTreeSet<String> = named_twice(named).into_iter().map(str::to_owned).collect();
    let name_of = |topic: &DeleteTopicState| match topic.name.as_ref() {
        Some(name) if twice.contains(name.as_str()) => {
            Err(Condition::InvalidRequest("the request names this topic more than once".into()))
        }
        Some(_) if !topic.topic_id.is_zero() => {
            Err(Condition::InvalidRequest("give a topic's name or its id, not both".into()))
        }
        Some(name) => TopicName::new(name.as_str())
            .map_err(|error| Condition::InvalidTopic(error.to_string())),
        None => node
            .view
            .topic_by_id(TopicId(topic.topic_id.to_bytes()))
            .ok_or(Condition::UnknownTopicId),
    };
    let names: Vec<Result<TopicName, Condition>> = topics.iter().map(name_of).collect();
    let delete = |name: &Result<TopicName, Condition>| {
        let (node, name) = (node.clone(), name.clone());
        async move { delete(&node, &name?, deadline).await }
    };
    let deleted = several(names.iter().map(delete)).await;
    let mut response = DeleteTopicsResponse::default();
    for ((topic, name), deleted) in topics.into_iter().zip(names).zip(deleted) {
        let found = name.ok().map(|name| StrBytes::from(name.as_str()));
        let shown = topic.name.or(found);
        response.responses.push(result(version, shown, topic.topic_id, deleted));
    }
    response
}

/// The two forms of the request as one list.
fn asked_topics(version: i16, request: DeleteTopicsRequest) -> Vec<DeleteTopicState> {
    if version >= ID_VERSION {
        return request.topics;
    }
    let by_name = |name| {
        let mut topic = DeleteTopicState::default();
        topic.name = Some(name);
        topic
    };
    request.topic_names.into_iter().map(by_name).collect()
}

async fn delete(
    node: &Node,
    name: &TopicName,
    deadline: tokio::time::Instant,
) -> Result<TopicId, Condition> {
    match tokio::time::timeout_at(deadline, node.controller.delete_topic(name.as_str())).await {
        Ok(answer) => answer,
        Err(_) => Err(Condition::RequestTimedOut),
    }
}

fn result(
    version: i16,
    name: Option<StrBytes>,
    asked_id: Uuid,
    deleted: Result<TopicId, Condition>,
) -> DeletableTopicResult {
    let mut entry = DeletableTopicResult::default();
    // Null only where the version has a place for it.
    entry.name = if version >= ID_VERSION { name } else { Some(name.unwrap_or_default()) };
    entry.topic_id = asked_id;
    match deleted {
        Ok(id) => entry.topic_id = Uuid::from_bytes(id.0),
        Err(condition) => {
            entry.error_code = error_code(&condition);
            if version >= MESSAGE_VERSION {
                entry.error_message = Some(StrBytes::from(condition.to_string()));
            }
        }
    }
    entry
}

#[cfg(test)]
mod tests {
    use super::*;
    use barnabas_wire::reply;

    #[test]
    fn every_answer_can_be_written_at_every_version() {
        let id = Uuid::from_bytes([3; 16]);
        for version in 1..=6 {
            let mut response = DeleteTopicsResponse::default();
            let done = result(version, Some("t".into()), Uuid::ZERO, Ok(TopicId([3; 16])));
            assert_eq!(done.topic_id, id);
            response.responses.push(done);
            let unknown = result(version, None, id, Err(Condition::UnknownTopicId));
            assert_eq!(unknown.error_code, 100);
            response.responses.push(unknown);
            reply(1, version, &response).unwrap_or_else(|error| panic!("{error}"));
        }
    }

    #[test]
    fn old_versions_name_topics_in_a_list_of_their_own() {
        let mut request = DeleteTopicsRequest::default();
        request.topic_names = vec!["a".into(), "b".into()];
        let names = |version| {
            let topics = asked_topics(version, request.clone());
            topics.into_iter().filter_map(|t| t.name).collect::<Vec<_>>()
        };
        assert_eq!(names(5), [StrBytes::from("a"), StrBytes::from("b")]);
        assert!(names(6).is_empty());
    }
}
