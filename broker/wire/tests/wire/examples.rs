//! A full example of every request, with the fields that the version can carry; read by the end-to-end tests, too.

use barnabas_types::{
    BrokerEpoch, BrokerId, ClusterId, Incarnation, LeaderEpoch, Offset, TopicId, TopicName,
};
use barnabas_wire::messages::*;
use barnabas_wire::{
    ApiKey, IntroducedPartition, KafkaRequest, PartitionPosition, ReplicaFetchRequest,
    RequestResponsePair, SERVED, decode_response, encode_request,
};
use bytes::Bytes;

use super::group_examples as groups;

/// Reads the whole frame of an answer at a version; its correlation id.
pub(crate) type ReadAnswer = fn(i16, Bytes) -> Result<i32, String>;

/// Calls `check` with every served key and version.
pub(crate) fn each_version(mut check: impl FnMut(ApiKey, i16)) {
    for row in SERVED {
        for version in row.min_served..=row.max {
            check(row.key, version);
        }
    }
}

/// A frame of a full request.
pub(crate) fn request_frame(key: ApiKey, version: i16) -> Bytes {
    example(key, version).0
}

/// A frame of a full request, and how its answer is read.
pub(crate) fn example(key: ApiKey, version: i16) -> (Bytes, ReadAnswer) {
    fn read<Q: RequestResponsePair>(version: i16, frame: Bytes) -> Result<i32, String> {
        let (correlation_id, _) =
            decode_response::<Q>(version, frame).map_err(|error| error.to_string())?;
        Ok(correlation_id)
    }
    fn frame<Q: KafkaRequest + RequestResponsePair>(
        version: i16,
        request: &Q,
    ) -> (Bytes, ReadAnswer) {
        let frame = encode_request(77, "a client", version, request);
        (frame.expect("the example fits its version"), read::<Q>)
    }
    match key {
        ApiKey::Produce => frame(version, &produce()),
        ApiKey::Fetch => frame(version, &fetch(version)),
        ApiKey::ListOffsets => frame(version, &list_offsets(version)),
        ApiKey::Metadata => frame(version, &metadata(version)),
        ApiKey::OffsetCommit => frame(version, &groups::offset_commit(version)),
        ApiKey::OffsetFetch => frame(version, &groups::offset_fetch(version)),
        ApiKey::FindCoordinator => frame(version, &groups::find_coordinator(version)),
        ApiKey::JoinGroup => frame(version, &groups::join_group(version)),
        ApiKey::Heartbeat => frame(version, &groups::heartbeat(version)),
        ApiKey::LeaveGroup => frame(version, &groups::leave_group(version)),
        ApiKey::SyncGroup => frame(version, &groups::sync_group(version)),
        ApiKey::DescribeGroups => frame(version, &groups::describe_groups(version)),
        ApiKey::ListGroups => frame(version, &groups::list_groups(version)),
        ApiKey::DeleteGroups => frame(version, &groups::delete_groups()),
        ApiKey::OffsetDelete => frame(version, &groups::offset_delete()),
        ApiKey::ApiVersions => frame(version, &api_versions(version)),
        ApiKey::CreateTopics => frame(version, &create_topics()),
        ApiKey::DeleteTopics => frame(version, &delete_topics(version)),
        ApiKey::DeleteRecords => frame(version, &delete_records()),
        ApiKey::InitProducerId => frame(version, &init_producer_id(version)),
        ApiKey::OffsetForLeaderEpoch => frame(version, &offset_for_leader_epoch(version)),
        ApiKey::DescribeConfigs => frame(version, &describe_configs(version)),
        ApiKey::AlterConfigs => frame(version, &alter_configs()),
        ApiKey::CreatePartitions => frame(version, &create_partitions()),
        ApiKey::ElectLeaders => frame(version, &elect_leaders(version)),
        ApiKey::IncrementalAlterConfigs => frame(version, &incremental_alter_configs()),
        ApiKey::AlterPartitionReassignments => frame(version, &alter_partition_reassignments()),
        ApiKey::ListPartitionReassignments => frame(version, &list_partition_reassignments()),
        ApiKey::DescribeLogDirs => frame(version, &describe_log_dirs()),
        ApiKey::DescribeCluster => frame(version, &describe_cluster(version)),
        ApiKey::DescribeProducers => frame(version, &describe_producers()),
        ApiKey::DescribeTopicPartitions => frame(version, &describe_topic_partitions()),
        ApiKey::ReplicaFetch => {
            let frame = replica_fetch().encode(77, "a client").expect("the example fits");
            (frame, |_, _| Err("followers' answers are not read here".to_owned()))
        }
    }
}

pub(crate) fn produce() -> ProduceRequest {
    let mut request = ProduceRequest::default();
    request.acks = -1;
    request.timeout_ms = 30_000;
    for name in ["orders", "x"] {
        let mut topic = produce_request::TopicProduceData::default();
        topic.name = name.into();
        for index in 0..2 {
            let mut partition = produce_request::PartitionProduceData::default();
            partition.index = index;
            partition.records = (index == 0).then(|| Bytes::from(vec![7; 300]));
            topic.partition_data.push(partition);
        }
        request.topic_data.push(topic);
    }
    request
}

fn fetch(version: i16) -> FetchRequest {
    let mut request = FetchRequest::default();
    request.max_wait_ms = 500;
    request.min_bytes = 1;
    request.max_bytes = 1 << 20;
    request.isolation_level = 1;
    let mut topic = fetch_request::FetchTopic::default();
    if version >= 13 {
        topic.topic_id = Uuid::from_bytes([9; 16]);
    } else {
        topic.topic = "orders".into();
    }
    for index in 0..3 {
        let mut partition = fetch_request::FetchPartition::default();
        partition.partition = index;
        partition.fetch_offset = 1 << 40;
        partition.partition_max_bytes = 1 << 20;
        if version >= 9 {
            partition.current_leader_epoch = 5;
        }
        if version >= 12 {
            partition.last_fetched_epoch = 4;
        }
        topic.partitions.push(partition);
    }
    request.topics.push(topic);
    if version >= 7 {
        (request.session_id, request.session_epoch) = (1 << 30, 7);
        let mut forgotten = fetch_request::ForgottenTopic::default();
        if version >= 13 {
            forgotten.topic_id = Uuid::from_bytes([8; 16]);
        } else {
            forgotten.topic = "old".into();
        }
        forgotten.partitions = vec![1, 2];
        request.forgotten_topics_data.push(forgotten);
    }
    request
}

fn describe_log_dirs() -> DescribeLogDirsRequest {
    let mut topic = describe_log_dirs_request::DescribableLogDirTopic::default();
    topic.topic = "orders".into();
    topic.partitions = vec![0, 2];
    let mut request = DescribeLogDirsRequest::default();
    request.topics = Some(vec![topic]);
    request
}

fn describe_cluster(version: i16) -> DescribeClusterRequest {
    let mut request = DescribeClusterRequest::default();
    request.include_cluster_authorized_operations = true;
    if version >= 1 {
        request.endpoint_type = 2;
    }
    request
}

fn describe_producers() -> DescribeProducersRequest {
    let mut topic = describe_producers_request::TopicRequest::default();
    topic.name = "orders".into();
    topic.partition_indexes = vec![0, 2];
    let mut request = DescribeProducersRequest::default();
    request.topics.push(topic);
    request
}

fn describe_topic_partitions() -> DescribeTopicPartitionsRequest {
    let mut topic = describe_topic_partitions_request::TopicRequest::default();
    topic.name = "orders".into();
    let mut cursor = describe_topic_partitions_request::Cursor::default();
    cursor.topic_name = "orders".into();
    cursor.partition_index = 5;
    let mut request = DescribeTopicPartitionsRequest::default();
    request.topics.push(topic);
    request.response_partition_limit = 100;
    request.cursor = Some(cursor);
    request
}

fn list_offsets(version: i16) -> ListOffsetsRequest {
    let mut request = ListOffsetsRequest::default();
    let mut topic = list_offsets_request::ListOffsetsTopic::default();
    topic.name = "orders".into();
    let mut partition = list_offsets_request::ListOffsetsPartition::default();
    partition.partition_index = 2;
    partition.timestamp = -1;
    if version >= 4 {
        partition.current_leader_epoch = 3;
    }
    topic.partitions.push(partition);
    request.topics.push(topic);
    request
}

fn metadata(version: i16) -> MetadataRequest {
    let mut request = MetadataRequest::default();
    let mut topic = metadata_request::MetadataRequestTopic::default();
    topic.name = Some("orders".into());
    request.topics = Some(vec![topic]);
    if version >= 4 {
        request.allow_auto_topic_creation = false;
    }
    request
}

fn api_versions(version: i16) -> ApiVersionsRequest {
    let mut request = ApiVersionsRequest::default();
    if version >= 3 {
        request.client_software_name = "client".into();
        request.client_software_version = "1.0".into();
    }
    request
}

fn create_topics() -> CreateTopicsRequest {
    let mut request = CreateTopicsRequest::default();
    request.timeout_ms = 1000;
    let mut topic = create_topics_request::CreatableTopic::default();
    topic.name = "orders".into();
    topic.num_partitions = 3;
    topic.replication_factor = 2;
    let mut config = create_topics_request::CreatableTopicConfig::default();
    config.name = "flush.mode".into();
    config.value = Some("sync".into());
    topic.configs.push(config);
    let mut assigned = create_topics_request::CreatableTopic::default();
    assigned.name = "assigned".into();
    let mut assignment = create_topics_request::CreatableReplicaAssignment::default();
    assignment.broker_ids = vec![1, 2, 3];
    assigned.assignments.push(assignment);
    request.topics = vec![topic, assigned];
    request
}

fn delete_topics(version: i16) -> DeleteTopicsRequest {
    let mut request = DeleteTopicsRequest::default();
    request.timeout_ms = 1000;
    if version >= 6 {
        let mut by_name = delete_topics_request::DeleteTopicState::default();
        by_name.name = Some("orders".into());
        let mut by_id = delete_topics_request::DeleteTopicState::default();
        by_id.topic_id = Uuid::from_bytes([9; 16]);
        request.topics = vec![by_name, by_id];
    } else {
        request.topic_names = vec!["orders".into(), "x".into()];
    }
    request
}

fn delete_records() -> DeleteRecordsRequest {
    let mut request = DeleteRecordsRequest::default();
    request.timeout_ms = 1000;
    let mut topic = delete_records_request::DeleteRecordsTopic::default();
    topic.name = "orders".into();
    for (index, offset) in [(0, -1), (1, 1 << 40)] {
        let mut partition = delete_records_request::DeleteRecordsPartition::default();
        partition.partition_index = index;
        partition.offset = offset;
        topic.partitions.push(partition);
    }
    request.topics.push(topic);
    request
}

fn init_producer_id(version: i16) -> InitProducerIdRequest {
    let mut request = InitProducerIdRequest::default();
    request.transaction_timeout_ms = 60_000;
    if version >= 3 {
        request.producer_id = 5;
        request.producer_epoch = 1;
    }
    request
}

fn offset_for_leader_epoch(version: i16) -> OffsetForLeaderEpochRequest {
    let mut request = OffsetForLeaderEpochRequest::default();
    if version >= 3 {
        request.replica_id = -1;
    }
    let mut topic = offset_for_leader_epoch_request::OffsetForLeaderTopic::default();
    topic.topic = "orders".into();
    let mut partition = offset_for_leader_epoch_request::OffsetForLeaderPartition::default();
    partition.partition = 1;
    partition.leader_epoch = 4;
    partition.current_leader_epoch = 5;
    topic.partitions.push(partition);
    request.topics.push(topic);
    request
}

fn describe_configs(version: i16) -> DescribeConfigsRequest {
    let mut request = DescribeConfigsRequest::default();
    request.include_synonyms = true;
    request.include_documentation = version >= 3;
    for (name, keys) in [("orders", None), ("x", Some(vec!["retention.ms".into()]))] {
        let mut resource = describe_configs_request::DescribeConfigsResource::default();
        resource.resource_type = 2;
        resource.resource_name = name.into();
        resource.configuration_keys = keys;
        request.resources.push(resource);
    }
    request
}

fn alter_configs() -> AlterConfigsRequest {
    let mut request = AlterConfigsRequest::default();
    request.validate_only = true;
    let mut resource = alter_configs_request::AlterConfigsResource::default();
    resource.resource_type = 2;
    resource.resource_name = "orders".into();
    for value in [None, Some("5".into())] {
        let mut config = alter_configs_request::AlterableConfig::default();
        config.name = "retention.ms".into();
        config.value = value;
        resource.configs.push(config);
    }
    request.resources.push(resource);
    request
}

fn create_partitions() -> CreatePartitionsRequest {
    let mut request = CreatePartitionsRequest::default();
    request.timeout_ms = 30_000;
    request.validate_only = true;
    for (name, assigned) in [("orders", None), ("x", Some(vec![1, 2]))] {
        let mut topic = create_partitions_request::CreatePartitionsTopic::default();
        topic.name = name.into();
        topic.count = 4;
        topic.assignments = assigned.map(|brokers| {
            let mut assignment = create_partitions_request::CreatePartitionsAssignment::default();
            assignment.broker_ids = brokers;
            vec![assignment]
        });
        request.topics.push(topic);
    }
    request
}

fn elect_leaders(version: i16) -> ElectLeadersRequest {
    let mut request = ElectLeadersRequest::default();
    request.election_type = i8::from(version >= 1);
    let mut topic = elect_leaders_request::TopicPartitions::default();
    topic.topic = "orders".into();
    topic.partitions = vec![0, 3];
    request.topic_partitions = Some(vec![topic]);
    request.timeout_ms = 9000;
    request
}

fn alter_partition_reassignments() -> AlterPartitionReassignmentsRequest {
    use alter_partition_reassignments_request::{ReassignablePartition, ReassignableTopic};
    let mut request = AlterPartitionReassignmentsRequest::default();
    request.timeout_ms = 30_000;
    let mut topic = ReassignableTopic::default();
    topic.name = "orders".into();
    for replicas in [Some(vec![1, 2, 4]), None] {
        let mut partition = ReassignablePartition::default();
        partition.partition_index = i32::from(replicas.is_none());
        partition.replicas = replicas;
        topic.partitions.push(partition);
    }
    request.topics.push(topic);
    request
}

fn list_partition_reassignments() -> ListPartitionReassignmentsRequest {
    use list_partition_reassignments_request::ListPartitionReassignmentsTopics;
    let mut request = ListPartitionReassignmentsRequest::default();
    request.timeout_ms = 30_000;
    let mut topic = ListPartitionReassignmentsTopics::default();
    topic.name = "orders".into();
    topic.partition_indexes = vec![0, 1];
    request.topics = Some(vec![topic]);
    request
}

fn incremental_alter_configs() -> IncrementalAlterConfigsRequest {
    let mut request = IncrementalAlterConfigsRequest::default();
    request.validate_only = true;
    let mut resource = incremental_alter_configs_request::AlterConfigsResource::default();
    resource.resource_type = 2;
    resource.resource_name = "orders".into();
    for (operation, value) in [(0, Some("5".into())), (1, None)] {
        let mut config = incremental_alter_configs_request::AlterableConfig::default();
        config.name = "retention.ms".into();
        config.config_operation = operation;
        config.value = value;
        resource.configs.push(config);
    }
    request.resources.push(resource);
    request
}

pub(crate) fn replica_fetch() -> ReplicaFetchRequest {
    let introduced = |index, topic: &str, partition| IntroducedPartition {
        index,
        topic: TopicName::new(topic).unwrap(),
        partition,
        incarnation: Incarnation { topic_id: TopicId([7; 16]), czxid: 0x1_0000_0002 },
    };
    let position = |index, last_epoch| PartitionPosition {
        index,
        leader_epoch: LeaderEpoch(4),
        last_epoch,
        log_end: Offset(1 << 40),
        flushed: Offset(12),
        log_start: Offset(3),
    };
    ReplicaFetchRequest {
        cluster_id: ClusterId::from_bytes([1; 16]),
        follower: BrokerId(2),
        broker_epoch: BrokerEpoch(0x2_0000_0001),
        max_wait_ms: 500,
        min_bytes: 1,
        max_bytes: 10 << 20,
        partition_max_bytes: 1 << 20,
        full: true,
        overtakes: true,
        forgotten: vec![5, 6],
        introduced: vec![introduced(0, "orders", 3), introduced(9, &"x".repeat(249), i32::MAX)],
        positions: vec![position(0, Some(LeaderEpoch(4))), position(9, None)],
    }
}
