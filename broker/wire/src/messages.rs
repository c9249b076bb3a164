//! The generated message types that handlers need. All are `#[non_exhaustive]`: begin with `Default` and assign.
//!
//! Decoded strings and records are slices of the whole request frame: copy what outlives the request. Some response
//! fields may be set only from a version on, or [`crate::reply`] refuses: ListOffsets `leader_epoch` (4), Metadata
//! topic `name` null (12), DeleteTopics `name` null (6), Metadata authorised operations (topic 8, cluster 8-10), the
//! leader hints of Produce (10), OffsetFetch `groups` and FindCoordinator `coordinators` (8 and 4, the flat fields before),
//! LeaveGroup `members` (3), JoinGroup `protocol_name` null (7) and `skip_assignment` (9).

pub use kafka_wire::{
    AlterConfigsRequest, AlterConfigsResponse, AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse, ApiVersionsRequest, ApiVersionsResponse,
    CreatePartitionsRequest, CreatePartitionsResponse, CreateTopicsRequest, CreateTopicsResponse,
    DeleteRecordsRequest, DeleteRecordsResponse, DeleteTopicsRequest, DeleteTopicsResponse,
    DescribeClusterRequest, DescribeClusterResponse, DescribeConfigsRequest,
    DescribeConfigsResponse, DescribeLogDirsRequest, DescribeLogDirsResponse,
    DescribeProducersRequest, DescribeProducersResponse, DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse, ElectLeadersRequest, ElectLeadersResponse, FetchRequest,
    FetchResponse, IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse,
    InitProducerIdRequest, InitProducerIdResponse, ListOffsetsRequest, ListOffsetsResponse,
    ListPartitionReassignmentsRequest, ListPartitionReassignmentsResponse, MetadataRequest,
    MetadataResponse, OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse, ProduceRequest,
    ProduceResponse,
};
pub use kafka_wire::{
    DeleteGroupsRequest, DeleteGroupsResponse, DescribeGroupsRequest, DescribeGroupsResponse,
    FindCoordinatorRequest, FindCoordinatorResponse, HeartbeatRequest, HeartbeatResponse,
    JoinGroupRequest, JoinGroupResponse, LeaveGroupRequest, LeaveGroupResponse, ListGroupsRequest,
    ListGroupsResponse, OffsetCommitRequest, OffsetCommitResponse, OffsetDeleteRequest,
    OffsetDeleteResponse, OffsetFetchRequest, OffsetFetchResponse, SyncGroupRequest,
    SyncGroupResponse,
};
pub use kafka_wire::{
    alter_configs_request, alter_configs_response, alter_partition_reassignments_request,
    alter_partition_reassignments_response, api_versions_request, api_versions_response,
    create_partitions_request, create_partitions_response, create_topics_request,
    create_topics_response, delete_records_request, delete_records_response, delete_topics_request,
    delete_topics_response, describe_cluster_request, describe_cluster_response,
    describe_configs_request, describe_configs_response, describe_log_dirs_request,
    describe_log_dirs_response, describe_producers_request, describe_producers_response,
    describe_topic_partitions_request, describe_topic_partitions_response, elect_leaders_request,
    elect_leaders_response, fetch_request, fetch_response, incremental_alter_configs_request,
    incremental_alter_configs_response, init_producer_id_request, init_producer_id_response,
    list_offsets_request, list_offsets_response, list_partition_reassignments_request,
    list_partition_reassignments_response, metadata_request, metadata_response,
    offset_for_leader_epoch_request, offset_for_leader_epoch_response, produce_request,
    produce_response,
};
pub use kafka_wire::{
    delete_groups_request, delete_groups_response, describe_groups_request,
    describe_groups_response, find_coordinator_request, find_coordinator_response,
    heartbeat_request, heartbeat_response, join_group_request, join_group_response,
    leave_group_request, leave_group_response, list_groups_request, list_groups_response,
    offset_commit_request, offset_commit_response, offset_delete_request, offset_delete_response,
    offset_fetch_request, offset_fetch_response, sync_group_request, sync_group_response,
};
pub use kafka_wire_core::{StrBytes, Uuid};
