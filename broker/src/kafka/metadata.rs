//! Metadata (key 3), versions 0 to 13: KIP-4, KIP-112 (offline replicas), KIP-430 (what may be done, from 8), KIP-516 (topic ids
//! from 10, asked by id from 12).
//!
//! Answered from the controller's last push, also while no controller can be reached; what is not there and may be created is
//! created first (`auto_create`).

use std::collections::{BTreeMap, BTreeSet};

use barnabas_types::{
    BrokerId, BrokerImage, ClusterImage, Condition, Partition, TopicId, TopicImage, TopicName,
};
use barnabas_wire::messages::metadata_request::MetadataRequestTopic;
use barnabas_wire::messages::metadata_response::{
    MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic,
};
use barnabas_wire::messages::{MetadataRequest, MetadataResponse, StrBytes, Uuid};

use super::{
    Handled, RequestContext, answer, authorized_operations, auto_create, error_code, later,
};

/// First version in which a topic's name may be null in the answer.
const NULL_NAME_VERSION: i16 = 12;
/// First version that tells what may be done to a topic, if asked to.
const TOPIC_OPERATIONS_VERSION: i16 = 8;
/// The versions that tell what may be done to the cluster, if asked to; later DescribeCluster does.
const CLUSTER_OPERATIONS_VERSIONS: std::ops::RangeInclusive<i16> = 8..=10;

pub(super) fn handle(
    context: &RequestContext<'_>,
    request: MetadataRequest,
) -> Result<Handled, String> {
    let (node, version) = (context.node, context.version);
    let image = node.view.image();
    let wanted = auto_create::wanted(node, &image, version, &request);
    if wanted.is_empty() {
        let response =
            respond((&image, &BTreeMap::new()), node.me, &node.cluster_id.0, version, &request);
        return answer(context, &response);
    }
    let node = node.clone();
    later(context, async move {
        let told = auto_create::create(&node, wanted).await;
        let image = node.view.image();
        respond((&image, &told), node.me, &node.cluster_id.0, version, &request)
    })
}

/// `told`: what is said of topics that are not there, unless it is that.
fn respond(
    (image, told): (&ClusterImage, &BTreeMap<TopicName, Condition>),
    me: BrokerId,
    cluster_id: &str,
    version: i16,
    request: &MetadataRequest,
) -> MetadataResponse {
    let mut response = MetadataResponse::default();
    response.cluster_id = Some(cluster_id.into());
    response.controller_id = controller_id(image, me);
    response.brokers = image.brokers.iter().map(|(id, broker)| listed(*id, broker)).collect();
    response.topics = match asked_topics(version, request) {
        None => image.topics.iter().map(|(name, topic)| described(image, name, topic)).collect(),
        Some(asked) => {
            let ids = names_by_id(image, asked);
            // Each once, as in Kafka: a small request that repeats a large topic must not have a huge answer.
            let mut seen = BTreeSet::new();
            let once = asked.iter().filter(|asked| {
                seen.insert((asked.name.as_ref().map(StrBytes::as_str), asked.topic_id.to_bytes()))
            });
            once.map(|asked| one((image, told, &ids), version, asked)).collect()
        }
    };
    if request.include_topic_authorized_operations && version >= TOPIC_OPERATIONS_VERSION {
        for topic in response.topics.iter_mut().filter(|topic| topic.error_code == 0) {
            topic.topic_authorized_operations = authorized_operations::TOPIC;
        }
    }
    if request.include_cluster_authorized_operations
        && CLUSTER_OPERATIONS_VERSIONS.contains(&version)
    {
        response.cluster_authorized_operations = authorized_operations::CLUSTER;
    }
    response
}

fn listed(id: BrokerId, broker: &BrokerImage) -> MetadataResponseBroker {
    let mut entry = MetadataResponseBroker::default();
    entry.node_id = id.0;
    entry.host = broker.host.as_str().into();
    entry.port = i32::from(broker.port);
    entry.rack = broker.rack.as_deref().map(StrBytes::from);
    entry
}

/// Clients send administration to this id and give up if it is not one of the listed brokers, so it is the controller
/// if that is a live broker, else this broker or the first live one (every broker forwards); -1 if there is none.
pub(super) fn controller_id(image: &ClusterImage, me: BrokerId) -> i32 {
    let controller = image.controller.map(|(id, _)| id);
    let live = |id: &BrokerId| image.brokers.contains_key(id);
    controller
        .filter(live)
        .or(Some(me).filter(live))
        .or_else(|| image.brokers.keys().next().copied())
        .map_or(-1, |id| id.0)
}

/// `None`: all topics. In version 0 an empty list means all, later null does.
fn asked_topics(version: i16, request: &MetadataRequest) -> Option<&[MetadataRequestTopic]> {
    request.topics.as_deref().filter(|topics| version > 0 || !topics.is_empty())
}

type NamesById<'a> = BTreeMap<TopicId, &'a TopicName>;

/// The names of all topics if some are asked for by id: one look at each topic, however many ids there are.
fn names_by_id<'a>(image: &'a ClusterImage, asked: &[MetadataRequestTopic]) -> NamesById<'a> {
    if asked.iter().all(|asked| asked.name.is_some()) {
        return NamesById::new();
    }
    image.topics.iter().map(|(name, topic)| (topic.incarnation.topic_id, name)).collect()
}

fn one(
    (image, told, ids): (&ClusterImage, &BTreeMap<TopicName, Condition>, &NamesById<'_>),
    version: i16,
    asked: &MetadataRequestTopic,
) -> MetadataResponseTopic {
    let Some(name) = &asked.name else {
        return by_id(image, ids, version, asked.topic_id);
    };
    let found = TopicName::new(name.as_str())
        .map_err(|error| Condition::InvalidTopic(error.to_string()))
        .and_then(|name| match image.topics.get(&name) {
            Some(topic) => Ok(described(image, &name, topic)),
            None => Err(told.get(&name).cloned().unwrap_or(Condition::UnknownTopicOrPartition)),
        });
    found.unwrap_or_else(|condition| refused(Some(name.clone()), asked.topic_id, &condition))
}

fn by_id(
    image: &ClusterImage,
    ids: &NamesById<'_>,
    version: i16,
    id: Uuid,
) -> MetadataResponseTopic {
    let name = ids.get(&TopicId(id.to_bytes()));
    match name.and_then(|name| image.topics.get_key_value(*name)) {
        Some((name, topic)) if !id.is_zero() => described(image, name, topic),
        _ => {
            // Before version 12 the answer has no way to leave the name out.
            let name = (version < NULL_NAME_VERSION).then(StrBytes::default);
            refused(name, id, &Condition::UnknownTopicId)
        }
    }
}

fn refused(name: Option<StrBytes>, id: Uuid, condition: &Condition) -> MetadataResponseTopic {
    let mut entry = MetadataResponseTopic::default();
    entry.error_code = error_code(condition);
    entry.name = name;
    entry.topic_id = id;
    entry
}

fn described(image: &ClusterImage, name: &TopicName, topic: &TopicImage) -> MetadataResponseTopic {
    let mut entry = MetadataResponseTopic::default();
    entry.name = Some(name.as_str().into());
    entry.topic_id = Uuid::from_bytes(topic.incarnation.topic_id.0);
    entry.is_internal = name.is_internal();
    entry.partitions =
        topic.partitions.iter().map(|(index, p)| partition(image, name, *index, p)).collect();
    entry
}

/// A leader that is not registered now is no leader for clients: -1, as in Kafka.
pub(super) fn partition(
    image: &ClusterImage,
    topic: &TopicName,
    index: i32,
    partition: &Partition,
) -> MetadataResponsePartition {
    let ids = |ids: &mut dyn Iterator<Item = BrokerId>| ids.map(|id| id.0).collect::<Vec<_>>();
    let leader = partition.state.leader.filter(|id| image.brokers.contains_key(id));
    let assigned = || partition.assigned_replicas.iter().copied();
    let mut entry = MetadataResponsePartition::default();
    entry.error_code = leader.map_or(error_code(&Condition::LeaderNotAvailable), |_| 0);
    entry.partition_index = index;
    entry.leader_id = leader.map_or(-1, |id| id.0);
    entry.leader_epoch = partition.state.leader_epoch.0;
    entry.replica_nodes = ids(&mut assigned());
    entry.isr_nodes = ids(&mut partition.state.isr.iter().map(|(id, _)| *id));
    entry.offline_replicas = ids(&mut assigned().filter(|id| !image.is_online(*id, topic, index)));
    entry
}

#[cfg(test)]
mod tests {
    use super::*;
    use barnabas_types::{
        BrokerEpoch, ControllerEpoch, Incarnation, LeaderEpoch, PartitionState, TopicConfig,
        TopicPartition,
    };
    use barnabas_wire::reply;

    fn image() -> ClusterImage {
        let broker = |id: i32| {
            let broker = BrokerImage {
                epoch: BrokerEpoch(10 + i64::from(id)),
                host: format!("host-{id}"),
                port: 9092,
                control_address: "127.0.0.1:9192".into(),
                rack: (id == 1).then(|| "r1".into()),
                tail_lost: false,
                draining: false,
            };
            (BrokerId(id), broker)
        };
        let partition = |leader: Option<i32>| Partition {
            assigned_replicas: vec![BrokerId(1), BrokerId(2), BrokerId(3)],
            moving: Default::default(),
            state: PartitionState {
                leader: leader.map(BrokerId),
                leader_epoch: LeaderEpoch(7),
                isr: vec![(BrokerId(1), BrokerEpoch(11)), (BrokerId(3), BrokerEpoch(13))],
                ..PartitionState::default()
            },
        };
        let topic = TopicImage {
            incarnation: Incarnation { topic_id: TopicId([5; 16]), czxid: 1 },
            config: TopicConfig::default(),
            partitions: BTreeMap::from([
                (0, partition(Some(1))),
                (1, partition(None)),
                (2, partition(Some(3))),
            ]),
            ..TopicImage::default()
        };
        let failed = TopicPartition { topic: TopicName::new("orders").unwrap(), partition: 1 };
        ClusterImage {
            controller: Some((BrokerId(2), ControllerEpoch(4))),
            brokers: [1, 2].into_iter().map(broker).collect(),
            topics: BTreeMap::from([(TopicName::new("orders").unwrap(), topic)]),
            failed: BTreeMap::from([(BrokerId(2), BTreeSet::from([failed]))]),
            ..ClusterImage::default()
        }
    }

    fn ask(version: i16, topics: Option<Vec<MetadataRequestTopic>>) -> MetadataResponse {
        let mut request = MetadataRequest::default();
        request.topics = topics;
        respond((&image(), &BTreeMap::new()), BrokerId(1), "the-cluster", version, &request)
    }

    fn named(name: &str) -> MetadataRequestTopic {
        let mut topic = MetadataRequestTopic::default();
        topic.name = Some(name.into());
        topic
    }

    fn with_id(id: [u8; 16]) -> MetadataRequestTopic {
        let mut topic = MetadataRequestTopic::default();
        topic.name = None;
        topic.topic_id = Uuid::from_bytes(id);
        topic
    }

    #[test]
    fn every_answer_can_be_written_at_every_version() {
        for version in 0..=13 {
            let ids = (version >= 10).then(|| vec![with_id([5; 16]), with_id([6; 16])]);
            let names = vec![named("orders"), named("absent"), named("no/name")];
            for topics in [None, Some(names), ids] {
                let response = ask(version, topics);
                reply(1, version, &response).unwrap_or_else(|error| panic!("{error}"));
            }
        }
    }

    #[test]
    fn a_topic_that_is_named_often_is_described_once() {
        let response = ask(12, Some(vec![named("orders"); 1000]));
        assert_eq!(response.topics.len(), 1);
        let topics = [with_id([5; 16]), with_id([6; 16]), named("absent"), with_id([5; 16])];
        let response = ask(12, Some([topics.clone(), topics].concat()));
        let codes: Vec<_> = response.topics.iter().map(|topic| topic.error_code).collect();
        assert_eq!(codes, [0, 100, 3]);
    }

    #[test]
    fn what_may_be_done_is_told_where_it_is_asked_for_and_has_a_place() {
        for version in 0..=13 {
            let mut request = MetadataRequest::default();
            request.topics = Some(vec![named("orders"), named("absent")]);
            request.include_topic_authorized_operations = true;
            request.include_cluster_authorized_operations = true;
            let told = BTreeMap::new();
            let response = respond((&image(), &told), BrokerId(1), "c", version, &request);
            let of = |index: usize| response.topics[index].topic_authorized_operations;
            assert_eq!(of(0) != i32::MIN, version >= 8, "{version}");
            assert_eq!(of(1), i32::MIN, "nothing can be done to what is not there");
            let cluster = response.cluster_authorized_operations;
            assert_eq!(cluster != i32::MIN, (8..=10).contains(&version), "{version}");
            reply(1, version, &response).unwrap_or_else(|error| panic!("{error}"));
        }
    }

    #[test]
    fn all_topics_are_null_or_in_version_0_an_empty_list() {
        assert_eq!(ask(0, Some(Vec::new())).topics.len(), 1);
        assert_eq!(ask(1, Some(Vec::new())).topics.len(), 0);
        assert_eq!(ask(1, None).topics.len(), 1);
    }

    #[test]
    fn a_leader_that_is_gone_is_minus_one_and_the_isr_is_shown_as_kept() {
        let response = ask(12, Some(vec![named("orders")]));
        let shown: Vec<_> = response.topics[0]
            .partitions
            .iter()
            .map(|p| (p.error_code, p.leader_id, p.leader_epoch, p.isr_nodes.clone()))
            .collect();
        assert_eq!(shown, [(0, 1, 7, vec![1, 3]), (5, -1, 7, vec![1, 3]), (5, -1, 7, vec![1, 3])]);
        assert!(!response.topics[0].is_internal);
        assert_eq!(response.topics[0].partitions[0].offline_replicas, [3]);
        assert_eq!(response.topics[0].partitions[1].offline_replicas, [2, 3], "2 has reported it");
        assert_eq!(response.topics[0].topic_id, Uuid::from_bytes([5; 16]));
    }

    #[test]
    fn unknown_and_illegal_names_and_ids_have_their_codes() {
        let codes =
            |topics| ask(12, Some(topics)).topics.iter().map(|t| t.error_code).collect::<Vec<_>>();
        assert_eq!(codes(vec![named("absent"), named("no/name"), named("orders")]), [3, 17, 0]);
        assert_eq!(
            codes(vec![with_id([5; 16]), with_id([6; 16]), with_id([0; 16])]),
            [0, 100, 100]
        );
    }

    #[test]
    fn what_was_not_created_is_answered_with_the_reason() {
        let mut request = MetadataRequest::default();
        request.topics = Some(vec![named("a"), named("b"), named("orders")]);
        let name = |text| TopicName::new(text).unwrap();
        let reason = Condition::InvalidReplicationFactor("3 of 2".into());
        let told = BTreeMap::from([
            (name("a"), Condition::LeaderNotAvailable),
            (name("b"), reason),
            (name("orders"), Condition::LeaderNotAvailable),
        ]);
        let response = respond((&image(), &told), BrokerId(1), "c", 12, &request);
        let codes: Vec<i16> = response.topics.iter().map(|t| t.error_code).collect();
        assert_eq!(codes, [5, 38, 0], "ask again; why not; there meanwhile");
    }

    #[test]
    fn the_controller_id_is_always_a_listed_broker() {
        assert_eq!(ask(1, None).controller_id, 2);
        let mut image = image();
        image.controller = Some((BrokerId(9), ControllerEpoch(1)));
        assert_eq!(controller_id(&image, BrokerId(1)), 1);
        assert_eq!(controller_id(&image, BrokerId(7)), 1);
        image.brokers.clear();
        assert_eq!(controller_id(&image, BrokerId(1)), -1);
    }
}
