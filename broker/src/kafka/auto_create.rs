//! Topics that are created because a client asks for them (`auto.create.topics.enable`), as Kafka does it in Metadata: producers
//! allow it, consumers mostly do not. They get the cluster's defaults.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use barnabas_controller::NewTopic;
use barnabas_types::{ClusterImage, Condition, Sanitised, TopicName};
use barnabas_wire::messages::MetadataRequest;

use crate::node::Node;

/// First version in which a client says whether it allows the creation; before it, asking is allowing.
const ALLOW_VERSION: i16 = 4;
/// Topics that one request creates; a client that wants more is told to ask again.
const CREATIONS_PER_REQUEST_MAX: usize = 20;
/// How long a client's answer waits for its topics.
const PATIENCE: Duration = Duration::from_secs(5);

/// The topics that the request names, that are not there, and that may be created.
pub(super) fn wanted(
    node: &Node,
    image: &ClusterImage,
    version: i16,
    request: &MetadataRequest,
) -> BTreeSet<TopicName> {
    if !node.options.auto_create_topics
        || (version >= ALLOW_VERSION && !request.allow_auto_topic_creation)
    {
        return BTreeSet::new();
    }
    let named = request.topics.iter().flatten().filter_map(|topic| topic.name.as_ref());
    named
        .filter_map(|name| TopicName::new(name.as_str()).ok())
        .filter(|name| !name.is_internal() && !image.topics.contains_key(name))
        .collect()
}

/// Creates them. What the client is told of those that it does not find in the image then: why not, or to ask again.
pub(super) async fn create(
    node: &Node,
    wanted: BTreeSet<TopicName>,
) -> BTreeMap<TopicName, Condition> {
    let deadline = tokio::time::Instant::now() + PATIENCE;
    let mut told = BTreeMap::new();
    for (index, name) in wanted.into_iter().enumerate() {
        let refused = if index < CREATIONS_PER_REQUEST_MAX {
            match tokio::time::timeout_at(deadline, one(node, &name)).await {
                Ok(Err(condition)) => Some(condition),
                Ok(Ok(())) | Err(_) => None,
            }
        } else {
            None
        };
        told.insert(name, refused.unwrap_or(Condition::LeaderNotAvailable));
    }
    told
}

/// `Ok`: it is created, or the client shall ask again.
async fn one(node: &Node, name: &TopicName) -> Result<(), Condition> {
    let Ok(_place) = node.auto_creations.try_acquire() else { return Ok(()) };
    let topic = NewTopic { name: name.to_string(), ..NewTopic::default() };
    match node.controller.create_topic(topic).await {
        Ok(_) => {
            tracing::info!(target: "request", topic = %name, "created on demand of a client");
            Ok(())
        }
        Err(Condition::TopicAlreadyExists(_)) => Ok(()),
        Err(condition) if condition.is_retriable() => Ok(()),
        Err(condition) => {
            // Clients ask again and again, and are told why each time.
            tracing::debug!(target: "request", topic = %name, condition = %Sanitised::sentence(&condition), "not created on demand of a client");
            Err(condition)
        }
    }
}

#[cfg(test)]
mod tests {
    use barnabas_types::{BrokerId, ClusterDelta, ControllerEpoch, TopicImage};
    use barnabas_wire::messages::metadata_request::MetadataRequestTopic;

    use super::*;
    use crate::testing::node;

    fn request(names: &[&str], allow: bool) -> MetadataRequest {
        let mut request = MetadataRequest::default();
        request.allow_auto_topic_creation = allow;
        let named = |name: &&str| {
            let mut topic = MetadataRequestTopic::default();
            topic.name = Some((*name).into());
            topic
        };
        request.topics = Some(names.iter().map(named).collect());
        request
    }

    #[tokio::test]
    async fn only_what_is_asked_for_by_name_allowed_legal_and_absent_is_created() {
        let node = node();
        let there = TopicName::new("there").unwrap();
        let delta = ClusterDelta {
            full: true,
            brokers: Some(BTreeMap::new()),
            topics: BTreeMap::from([(there, TopicImage::default())]),
            ..ClusterDelta::default()
        };
        node.view.apply((BrokerId(1), ControllerEpoch(1)), &delta);
        let image = node.view.image();
        let names = |version, request: &MetadataRequest| -> Vec<String> {
            wanted(&node, &image, version, request).iter().map(ToString::to_string).collect()
        };
        let asked = &["b", "there", "a", "a", "no/name", "__consumer_offsets"];
        assert_eq!(names(12, &request(asked, true)), ["a", "b"]);
        assert_eq!(names(12, &request(asked, false)), [""; 0]);
        assert_eq!(names(3, &request(asked, false)), ["a", "b"]);
        let mut all = request(&[], true);
        all.topics = None;
        assert_eq!(names(12, &all), [""; 0]);
    }

    #[tokio::test]
    async fn without_a_place_the_client_is_told_to_ask_again() {
        let node = node();
        let all = u32::try_from(node.auto_creations.available_permits()).unwrap();
        let _taken = node.auto_creations.acquire_many(all).await.unwrap();
        let name = TopicName::new("a").unwrap();
        let told = create(&node, [name.clone()].into()).await;
        assert_eq!(told, BTreeMap::from([(name, Condition::LeaderNotAvailable)]));
    }
}
