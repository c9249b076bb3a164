//! Every response of consumer groups, with everything set that its version can carry, at every served version.

use barnabas_wire::ApiKey;
use barnabas_wire::messages::*;
use bytes::Bytes;

use super::replies::round_trip;

#[test]
fn offsets_are_written_at_every_version() {
    round_trip::<OffsetCommitRequest>(
        ApiKey::OffsetCommit,
        |_| {
            let mut response = OffsetCommitResponse::default();
            let mut topic = offset_commit_response::OffsetCommitResponseTopic::default();
            topic.name = "orders".into();
            let mut partition = offset_commit_response::OffsetCommitResponsePartition::default();
            partition.partition_index = 1;
            partition.error_code = 12;
            topic.partitions.push(partition);
            response.topics.push(topic);
            response
        },
        OffsetCommitResponse::default,
    );
    round_trip::<OffsetFetchRequest>(
        ApiKey::OffsetFetch,
        fetched_offsets,
        OffsetFetchResponse::default,
    );
    round_trip::<OffsetDeleteRequest>(
        ApiKey::OffsetDelete,
        |_| {
            let mut response = OffsetDeleteResponse::default();
            let mut topic = offset_delete_response::OffsetDeleteResponseTopic::default();
            topic.name = "orders".into();
            let mut partition = offset_delete_response::OffsetDeleteResponsePartition::default();
            partition.error_code = 86;
            topic.partitions.push(partition);
            response.topics.push(topic);
            response
        },
        OffsetDeleteResponse::default,
    );
}

fn fetched_offsets(version: i16) -> OffsetFetchResponse {
    let mut response = OffsetFetchResponse::default();
    if version <= 7 {
        let mut topic = offset_fetch_response::OffsetFetchResponseTopic::default();
        topic.name = "orders".into();
        let mut partition = offset_fetch_response::OffsetFetchResponsePartition::default();
        partition.committed_offset = 1 << 40;
        partition.metadata = Some("note".into());
        if version >= 5 {
            partition.committed_leader_epoch = 5;
        }
        topic.partitions.push(partition);
        response.topics.push(topic);
        if version >= 2 {
            response.error_code = 16;
        }
        return response;
    }
    let mut group = offset_fetch_response::OffsetFetchResponseGroup::default();
    group.group_id = "group".into();
    group.error_code = 16;
    let mut topic = offset_fetch_response::OffsetFetchResponseTopics::default();
    topic.name = "orders".into();
    let mut partition = offset_fetch_response::OffsetFetchResponsePartitions::default();
    partition.committed_offset = 1 << 40;
    partition.committed_leader_epoch = 5;
    partition.metadata = None;
    topic.partitions.push(partition);
    group.topics.push(topic);
    response.groups.push(group);
    response
}

#[test]
fn memberships_are_written_at_every_version() {
    round_trip::<FindCoordinatorRequest>(
        ApiKey::FindCoordinator,
        |version| {
            let mut response = FindCoordinatorResponse::default();
            if version <= 3 {
                response.node_id = 1;
                response.host = "localhost".into();
                response.port = 9092;
                return response;
            }
            let mut coordinator = find_coordinator_response::Coordinator::default();
            coordinator.key = "orders".into();
            coordinator.node_id = -1;
            coordinator.error_code = 15;
            coordinator.error_message = Some("not yet".into());
            response.coordinators.push(coordinator);
            response
        },
        FindCoordinatorResponse::default,
    );
    round_trip::<JoinGroupRequest>(
        ApiKey::JoinGroup,
        |version| {
            let mut response = JoinGroupResponse::default();
            response.generation_id = 4;
            response.protocol_type = (version >= 7).then(|| "consumer".into());
            response.protocol_name = Some("range".into());
            response.leader = "member".into();
            response.skip_assignment = version >= 9;
            response.member_id = "member".into();
            let mut member = join_group_response::JoinGroupResponseMember::default();
            member.member_id = "member".into();
            if version >= 5 {
                member.group_instance_id = Some("instance".into());
            }
            member.metadata = Bytes::from_static(b"subscription");
            response.members.push(member);
            response
        },
        empty_join,
    );
    round_trip::<HeartbeatRequest>(
        ApiKey::Heartbeat,
        |_| {
            let mut response = HeartbeatResponse::default();
            response.error_code = 27;
            response
        },
        HeartbeatResponse::default,
    );
    round_trip::<LeaveGroupRequest>(
        ApiKey::LeaveGroup,
        |version| {
            let mut response = LeaveGroupResponse::default();
            if version >= 3 {
                let mut member = leave_group_response::MemberResponse::default();
                member.member_id = "member".into();
                member.group_instance_id = Some("instance".into());
                member.error_code = 25;
                response.members.push(member);
            }
            response
        },
        LeaveGroupResponse::default,
    );
    round_trip::<SyncGroupRequest>(
        ApiKey::SyncGroup,
        |version| {
            let mut response = SyncGroupResponse::default();
            if version >= 5 {
                response.protocol_type = Some("consumer".into());
                response.protocol_name = Some("range".into());
            }
            response.assignment = Bytes::from_static(b"partitions");
            response
        },
        SyncGroupResponse::default,
    );
}

/// The name of the protocol is null by default, which only version 7 and later can say.
fn empty_join() -> JoinGroupResponse {
    let mut response = JoinGroupResponse::default();
    response.protocol_name = Some(StrBytes::default());
    response
}

#[test]
fn groups_are_written_at_every_version() {
    round_trip::<DescribeGroupsRequest>(
        ApiKey::DescribeGroups,
        |version| {
            let mut response = DescribeGroupsResponse::default();
            let mut group = describe_groups_response::DescribedGroup::default();
            group.group_id = "orders".into();
            group.group_state = "Stable".into();
            group.protocol_type = "consumer".into();
            group.protocol_data = "range".into();
            let mut member = describe_groups_response::DescribedGroupMember::default();
            member.member_id = "member".into();
            if version >= 4 {
                member.group_instance_id = Some("instance".into());
            }
            member.client_id = "a client".into();
            member.client_host = "/127.0.0.1".into();
            member.member_metadata = Bytes::from_static(b"subscription");
            member.member_assignment = Bytes::from_static(b"partitions");
            group.members.push(member);
            response.groups.push(group);
            response
        },
        DescribeGroupsResponse::default,
    );
    round_trip::<ListGroupsRequest>(
        ApiKey::ListGroups,
        |version| {
            let mut response = ListGroupsResponse::default();
            response.error_code = 14;
            let mut group = list_groups_response::ListedGroup::default();
            group.group_id = "orders".into();
            group.protocol_type = "consumer".into();
            if version >= 4 {
                group.group_state = "Stable".into();
            }
            if version >= 5 {
                group.group_type = "classic".into();
            }
            response.groups.push(group);
            response
        },
        ListGroupsResponse::default,
    );
    round_trip::<DeleteGroupsRequest>(
        ApiKey::DeleteGroups,
        |_| {
            let mut response = DeleteGroupsResponse::default();
            let mut result = delete_groups_response::DeletableGroupResult::default();
            result.group_id = "orders".into();
            result.error_code = 68;
            response.results.push(result);
            response
        },
        DeleteGroupsResponse::default,
    );
}
