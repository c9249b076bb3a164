//! Every response, at its default and with everything set that its version can carry, at every served version.

use barnabas_wire::messages::*;
use barnabas_wire::{ApiKey, ReplyError, api_versions_response, decode_response, reply};
use bytes::Bytes;
use kafka_wire::{KafkaRequest, RequestResponsePair};

/// Encodes and reads back with the client's side.
pub(crate) fn round_trip<Q: RequestResponsePair>(
    key: ApiKey,
    full: impl Fn(i16) -> Q::Response,
    null_free_default: impl Fn() -> Q::Response,
) where
    Q::Response: PartialEq + std::fmt::Debug,
{
    assert_eq!(<Q as KafkaRequest>::API_KEY.value(), key.number());
    for version in key.api().min_served..=key.api().max {
        for response in [null_free_default(), full(version)] {
            let frame = reply(5, version, &response).unwrap_or_else(|e| panic!("{e}"));
            let size = i32::from_be_bytes(*frame.first_chunk::<4>().unwrap());
            assert_eq!(size as usize + 4, frame.len(), "{key} {version}");
            let (correlation_id, read) =
                decode_response::<Q>(version, frame.clone()).unwrap_or_else(|e| panic!("{e}"));
            assert_eq!(correlation_id, 5);
            let again = reply(5, version, &read).unwrap();
            assert_eq!(again, frame, "{key} {version}");
        }
    }
}

#[test]
fn produce_fetch_and_offsets_are_written_at_every_version() {
    round_trip::<ProduceRequest>(ApiKey::Produce, produce, ProduceResponse::default);
    round_trip::<FetchRequest>(ApiKey::Fetch, fetch, FetchResponse::default);
    round_trip::<ListOffsetsRequest>(
        ApiKey::ListOffsets,
        list_offsets,
        ListOffsetsResponse::default,
    );
    round_trip::<OffsetForLeaderEpochRequest>(
        ApiKey::OffsetForLeaderEpoch,
        |_| offset_for_leader_epoch(),
        OffsetForLeaderEpochResponse::default,
    );
    round_trip::<InitProducerIdRequest>(
        ApiKey::InitProducerId,
        |_| init_producer_id(),
        InitProducerIdResponse::default,
    );
}

#[test]
fn metadata_topics_and_versions_are_written_at_every_version() {
    round_trip::<MetadataRequest>(ApiKey::Metadata, metadata, MetadataResponse::default);
    round_trip::<ApiVersionsRequest>(
        ApiKey::ApiVersions,
        |_| api_versions_response(),
        ApiVersionsResponse::default,
    );
    round_trip::<CreateTopicsRequest>(
        ApiKey::CreateTopics,
        create_topics,
        CreateTopicsResponse::default,
    );
    round_trip::<DeleteTopicsRequest>(
        ApiKey::DeleteTopics,
        delete_topics,
        DeleteTopicsResponse::default,
    );
    round_trip::<DeleteRecordsRequest>(
        ApiKey::DeleteRecords,
        |_| delete_records(),
        DeleteRecordsResponse::default,
    );
}

#[test]
fn descriptions_are_written_at_every_version() {
    round_trip::<DescribeLogDirsRequest>(
        ApiKey::DescribeLogDirs,
        |version| {
            use describe_log_dirs_response::*;
            let mut topic = DescribeLogDirsTopic::default();
            topic.name = "orders".into();
            let mut partition = DescribeLogDirsPartition::default();
            partition.partition_size = 1 << 40;
            topic.partitions.push(partition);
            let mut result = DescribeLogDirsResult::default();
            result.log_dir = "/d".into();
            result.topics.push(topic);
            if version >= 4 {
                (result.total_bytes, result.usable_bytes) = (9, 7);
            }
            let mut response = DescribeLogDirsResponse::default();
            response.results.push(result);
            response
        },
        DescribeLogDirsResponse::default,
    );
    round_trip::<DescribeClusterRequest>(
        ApiKey::DescribeCluster,
        |_| {
            let mut broker = describe_cluster_response::DescribeClusterBroker::default();
            broker.host = "h".into();
            let mut response = DescribeClusterResponse::default();
            response.error_message = Some("why".into());
            response.cluster_id = "c".into();
            response.brokers.push(broker);
            response.cluster_authorized_operations = 8096;
            response
        },
        DescribeClusterResponse::default,
    );
    round_trip::<DescribeProducersRequest>(
        ApiKey::DescribeProducers,
        |_| {
            use describe_producers_response::*;
            let mut partition = PartitionResponse::default();
            partition.error_message = Some("why".into());
            partition.active_producers.push(ProducerState::default());
            let mut topic = TopicResponse::default();
            topic.partitions.push(partition);
            let mut response = DescribeProducersResponse::default();
            response.topics.push(topic);
            response
        },
        DescribeProducersResponse::default,
    );
    round_trip::<DescribeTopicPartitionsRequest>(
        ApiKey::DescribeTopicPartitions,
        |_| {
            use describe_topic_partitions_response::*;
            let mut partition = DescribeTopicPartitionsResponsePartition::default();
            partition.replica_nodes = vec![1, 2];
            partition.eligible_leader_replicas = Some(Vec::new());
            let mut topic = DescribeTopicPartitionsResponseTopic::default();
            topic.name = Some("orders".into());
            topic.partitions.push(partition);
            let mut response = DescribeTopicPartitionsResponse::default();
            response.topics.push(topic);
            response.next_cursor = Some(Cursor::default());
            response
        },
        DescribeTopicPartitionsResponse::default,
    );
}

#[test]
fn moves_are_written_at_every_version() {
    round_trip::<AlterPartitionReassignmentsRequest>(
        ApiKey::AlterPartitionReassignments,
        |_| {
            use alter_partition_reassignments_response::{
                ReassignablePartitionResponse, ReassignableTopicResponse,
            };
            let mut response = AlterPartitionReassignmentsResponse::default();
            let mut topic = ReassignableTopicResponse::default();
            topic.name = "orders".into();
            let mut partition = ReassignablePartitionResponse::default();
            partition.partition_index = 3;
            partition.error_code = 85;
            partition.error_message = Some("none".into());
            topic.partitions.push(partition);
            response.responses.push(topic);
            response
        },
        AlterPartitionReassignmentsResponse::default,
    );
    round_trip::<ListPartitionReassignmentsRequest>(
        ApiKey::ListPartitionReassignments,
        |_| {
            use list_partition_reassignments_response::{
                OngoingPartitionReassignment, OngoingTopicReassignment,
            };
            let mut response = ListPartitionReassignmentsResponse::default();
            let mut topic = OngoingTopicReassignment::default();
            topic.name = "orders".into();
            let mut partition = OngoingPartitionReassignment::default();
            partition.replicas = vec![4, 2, 1];
            partition.adding_replicas = vec![4];
            partition.removing_replicas = vec![1];
            topic.partitions.push(partition);
            response.topics.push(topic);
            response
        },
        ListPartitionReassignmentsResponse::default,
    );
}

#[test]
fn settings_are_written_at_every_version() {
    round_trip::<DescribeConfigsRequest>(
        ApiKey::DescribeConfigs,
        describe_configs,
        DescribeConfigsResponse::default,
    );
    round_trip::<AlterConfigsRequest>(
        ApiKey::AlterConfigs,
        |_| {
            let mut response = AlterConfigsResponse::default();
            let mut resource = alter_configs_response::AlterConfigsResourceResponse::default();
            resource.error_code = 40;
            resource.error_message = Some("bad".into());
            resource.resource_type = 2;
            resource.resource_name = "orders".into();
            response.responses.push(resource);
            response
        },
        AlterConfigsResponse::default,
    );
    round_trip::<CreatePartitionsRequest>(
        ApiKey::CreatePartitions,
        |_| {
            let mut response = CreatePartitionsResponse::default();
            let mut topic = create_partitions_response::CreatePartitionsTopicResult::default();
            topic.name = "orders".into();
            topic.error_code = 37;
            topic.error_message = Some("no increase".into());
            response.results.push(topic);
            response
        },
        CreatePartitionsResponse::default,
    );
    round_trip::<ElectLeadersRequest>(
        ApiKey::ElectLeaders,
        |version| {
            let mut response = ElectLeadersResponse::default();
            response.error_code = if version >= 1 { 41 } else { 0 };
            let mut topic = elect_leaders_response::ReplicaElectionResult::default();
            topic.topic = "orders".into();
            let mut partition = elect_leaders_response::PartitionResult::default();
            partition.partition_id = 3;
            partition.error_code = 84;
            partition.error_message = Some("it leads".into());
            topic.partition_result.push(partition);
            response.replica_election_results.push(topic);
            response
        },
        ElectLeadersResponse::default,
    );
    round_trip::<IncrementalAlterConfigsRequest>(
        ApiKey::IncrementalAlterConfigs,
        |_| {
            use incremental_alter_configs_response::AlterConfigsResourceResponse;
            let mut response = IncrementalAlterConfigsResponse::default();
            let mut resource = AlterConfigsResourceResponse::default();
            resource.error_code = 40;
            resource.error_message = Some("bad".into());
            resource.resource_type = 2;
            resource.resource_name = "orders".into();
            response.responses.push(resource);
            response
        },
        IncrementalAlterConfigsResponse::default,
    );
}

fn describe_configs(version: i16) -> DescribeConfigsResponse {
    let mut response = DescribeConfigsResponse::default();
    let mut result = describe_configs_response::DescribeConfigsResult::default();
    result.resource_type = 2;
    result.resource_name = "orders".into();
    let mut config = describe_configs_response::DescribeConfigsResourceResult::default();
    config.name = "retention.ms".into();
    config.value = Some("5".into());
    config.config_source = 1;
    if version >= 3 {
        config.config_type = 5;
        config.documentation = Some("how long".into());
    }
    let mut synonym = describe_configs_response::DescribeConfigsSynonym::default();
    synonym.name = "log.retention.ms".into();
    synonym.source = 5;
    config.synonyms.push(synonym);
    result.configs.push(config);
    response.results.push(result);
    response
}

#[test]
fn a_field_that_the_version_cannot_carry_is_an_error_with_key_version_and_field() {
    let error = reply(1, 3, &list_offsets(4)).unwrap_err();
    assert!(matches!(error, ReplyError::Encode { key: ApiKey::ListOffsets, version: 3, .. }));
    let text = error.to_string();
    for part in ["ListOffsets", "version 3", "LeaderEpoch"] {
        assert!(text.contains(part), "{text}");
    }
    let mut nameless = metadata(8);
    nameless.topics[0].name = None;
    let text = reply(1, 8, &nameless).unwrap_err().to_string();
    assert!(text.contains("Metadata") && text.contains("Name"), "{text}");
}

#[test]
fn nothing_is_written_at_a_version_that_is_not_served() {
    let expected = ReplyError::NotServed { key: 3, version: 14 };
    assert_eq!(reply(1, 14, &metadata(12)), Err(expected));
    let vote = kafka_wire::VoteResponse::default();
    assert_eq!(reply(1, 0, &vote), Err(ReplyError::NotServed { key: 52, version: 0 }));
}

fn produce(version: i16) -> ProduceResponse {
    let mut response = ProduceResponse::default();
    let mut topic = produce_response::TopicProduceResponse::default();
    topic.name = "orders".into();
    let mut partition = produce_response::PartitionProduceResponse::default();
    partition.index = 1;
    partition.error_code = 7;
    partition.base_offset = 1 << 33;
    if version >= 8 {
        partition.error_message = Some("why".into());
    }
    if version >= 5 {
        partition.log_start_offset = 4;
    }
    if version >= 10 {
        partition.current_leader.leader_id = 2;
        partition.current_leader.leader_epoch = 9;
        let mut endpoint = produce_response::NodeEndpoint::default();
        endpoint.node_id = 2;
        endpoint.host = "h".into();
        response.node_endpoints.push(endpoint);
    }
    topic.partition_responses.push(partition);
    response.responses.push(topic);
    response
}

fn fetch(version: i16) -> FetchResponse {
    let mut response = FetchResponse::default();
    let mut topic = fetch_response::FetchableTopicResponse::default();
    if version >= 13 {
        topic.topic_id = Uuid::from_bytes([3; 16]);
    } else {
        topic.topic = "orders".into();
    }
    let mut partition = fetch_response::PartitionData::default();
    partition.high_watermark = 9;
    partition.records = Some(Bytes::from_static(b"records"));
    topic.partitions.push(partition);
    response.responses.push(topic);
    response
}

fn list_offsets(version: i16) -> ListOffsetsResponse {
    let mut response = ListOffsetsResponse::default();
    let mut topic = list_offsets_response::ListOffsetsTopicResponse::default();
    topic.name = "orders".into();
    let mut partition = list_offsets_response::ListOffsetsPartitionResponse::default();
    partition.partition_index = 1;
    partition.offset = 12;
    partition.timestamp = 5;
    if version >= 4 {
        partition.leader_epoch = 3;
    }
    topic.partitions.push(partition);
    response.topics.push(topic);
    response
}

fn offset_for_leader_epoch() -> OffsetForLeaderEpochResponse {
    let mut response = OffsetForLeaderEpochResponse::default();
    let mut topic = offset_for_leader_epoch_response::OffsetForLeaderTopicResult::default();
    topic.topic = "orders".into();
    let mut partition = offset_for_leader_epoch_response::EpochEndOffset::default();
    partition.leader_epoch = 3;
    partition.end_offset = 12;
    topic.partitions.push(partition);
    response.topics.push(topic);
    response
}

fn init_producer_id() -> InitProducerIdResponse {
    let mut response = InitProducerIdResponse::default();
    response.producer_id = 1000;
    response.producer_epoch = 2;
    response
}

fn metadata(version: i16) -> MetadataResponse {
    let mut response = MetadataResponse::default();
    let mut broker = metadata_response::MetadataResponseBroker::default();
    broker.node_id = 1;
    broker.host = "localhost".into();
    broker.port = 9092;
    broker.rack = Some("r".into());
    response.brokers.push(broker);
    response.cluster_id = Some("AAAAAAAAAAAAAAAAAAAAAA".into());
    response.controller_id = 1;
    let mut topic = metadata_response::MetadataResponseTopic::default();
    topic.name = Some("orders".into());
    topic.topic_id = Uuid::from_bytes([3; 16]);
    if version >= 8 {
        topic.topic_authorized_operations = 8;
    }
    let mut partition = metadata_response::MetadataResponsePartition::default();
    partition.leader_id = 1;
    partition.leader_epoch = 2;
    partition.replica_nodes = vec![1, 2];
    partition.isr_nodes = vec![1];
    partition.offline_replicas = vec![2];
    topic.partitions.push(partition);
    response.topics.push(topic);
    response
}

fn create_topics(version: i16) -> CreateTopicsResponse {
    let mut response = CreateTopicsResponse::default();
    let mut topic = create_topics_response::CreatableTopicResult::default();
    topic.name = "orders".into();
    topic.error_code = 36;
    topic.error_message = Some("exists".into());
    topic.topic_id = Uuid::from_bytes([3; 16]);
    if version >= 5 {
        topic.num_partitions = 3;
        topic.replication_factor = 2;
        topic.configs = Some(vec![create_topics_response::CreatableTopicConfigs::default()]);
    }
    response.topics.push(topic);
    response
}

fn delete_records() -> DeleteRecordsResponse {
    let mut response = DeleteRecordsResponse::default();
    let mut topic = delete_records_response::DeleteRecordsTopicResult::default();
    topic.name = "orders".into();
    let mut partition = delete_records_response::DeleteRecordsPartitionResult::default();
    partition.partition_index = 1;
    partition.low_watermark = 1 << 40;
    partition.error_code = 6;
    topic.partitions.push(partition);
    response.topics.push(topic);
    response
}

fn delete_topics(version: i16) -> DeleteTopicsResponse {
    let mut response = DeleteTopicsResponse::default();
    let mut topic = delete_topics_response::DeletableTopicResult::default();
    topic.name = Some("orders".into());
    topic.error_code = 3;
    topic.error_message = Some("unknown".into());
    response.responses.push(topic);
    if version >= 6 {
        let mut nameless = delete_topics_response::DeletableTopicResult::default();
        nameless.topic_id = Uuid::from_bytes([3; 16]);
        response.responses.push(nameless);
    }
    response
}
