//! A full example of every request of consumer groups, with the fields that the version can carry.

use barnabas_wire::messages::*;
use bytes::Bytes;

pub(crate) fn offset_commit(version: i16) -> OffsetCommitRequest {
    let mut request = OffsetCommitRequest::default();
    request.group_id = "group".into();
    request.generation_id_or_member_epoch = 3;
    request.member_id = "member".into();
    if version >= 7 {
        request.group_instance_id = Some("instance".into());
    }
    if version <= 4 {
        request.retention_time_ms = 86_400_000;
    }
    let mut topic = offset_commit_request::OffsetCommitRequestTopic::default();
    topic.name = "orders".into();
    for index in 0..2 {
        let mut partition = offset_commit_request::OffsetCommitRequestPartition::default();
        partition.partition_index = index;
        partition.committed_offset = 1 << 40;
        if version >= 6 {
            partition.committed_leader_epoch = 5;
        }
        partition.committed_metadata = (index == 0).then(|| "note".into());
        topic.partitions.push(partition);
    }
    request.topics.push(topic);
    request
}

pub(crate) fn offset_fetch(version: i16) -> OffsetFetchRequest {
    let mut request = OffsetFetchRequest::default();
    request.require_stable = version >= 7;
    if version <= 7 {
        request.group_id = "group".into();
        let mut topic = offset_fetch_request::OffsetFetchRequestTopic::default();
        topic.name = "orders".into();
        topic.partition_indexes = vec![0, 1];
        request.topics = Some(vec![topic]);
    } else {
        for all in [false, true] {
            let mut group = offset_fetch_request::OffsetFetchRequestGroup::default();
            group.group_id = "group".into();
            if version >= 9 {
                group.member_id = Some("member".into());
                group.member_epoch = 4;
            }
            let mut topic = offset_fetch_request::OffsetFetchRequestTopics::default();
            topic.name = "orders".into();
            topic.partition_indexes = vec![0, 1];
            group.topics = (!all).then(|| vec![topic]);
            request.groups.push(group);
        }
    }
    request
}

pub(crate) fn find_coordinator(version: i16) -> FindCoordinatorRequest {
    let mut request = FindCoordinatorRequest::default();
    if version <= 3 {
        request.key = "orders".into();
    } else {
        request.coordinator_keys = vec!["orders".into(), "x".into()];
    }
    if version >= 1 {
        request.key_type = 1;
    }
    request
}

pub(crate) fn join_group(version: i16) -> JoinGroupRequest {
    let mut request = JoinGroupRequest::default();
    request.group_id = "orders".into();
    request.session_timeout_ms = 30_000;
    if version >= 1 {
        request.rebalance_timeout_ms = 60_000;
    }
    request.member_id = "member".into();
    if version >= 5 {
        request.group_instance_id = Some("instance".into());
    }
    request.protocol_type = "consumer".into();
    for name in ["range", "roundrobin"] {
        let mut protocol = join_group_request::JoinGroupRequestProtocol::default();
        protocol.name = name.into();
        protocol.metadata = Bytes::from_static(b"subscription");
        request.protocols.push(protocol);
    }
    if version >= 8 {
        request.reason = Some("because".into());
    }
    request
}

pub(crate) fn heartbeat(version: i16) -> HeartbeatRequest {
    let mut request = HeartbeatRequest::default();
    request.group_id = "orders".into();
    request.generation_id = 3;
    request.member_id = "member".into();
    if version >= 3 {
        request.group_instance_id = Some("instance".into());
    }
    request
}

pub(crate) fn leave_group(version: i16) -> LeaveGroupRequest {
    let mut request = LeaveGroupRequest::default();
    request.group_id = "orders".into();
    if version <= 2 {
        request.member_id = "member".into();
        return request;
    }
    let mut member = leave_group_request::MemberIdentity::default();
    member.group_instance_id = Some("instance".into());
    if version >= 5 {
        member.reason = Some("because".into());
    }
    request.members.push(member);
    request
}

pub(crate) fn sync_group(version: i16) -> SyncGroupRequest {
    let mut request = SyncGroupRequest::default();
    request.group_id = "orders".into();
    request.generation_id = 3;
    request.member_id = "member".into();
    if version >= 3 {
        request.group_instance_id = Some("instance".into());
    }
    if version >= 5 {
        request.protocol_type = Some("consumer".into());
        request.protocol_name = Some("range".into());
    }
    let mut assignment = sync_group_request::SyncGroupRequestAssignment::default();
    assignment.member_id = "member".into();
    assignment.assignment = Bytes::from_static(b"partitions");
    request.assignments.push(assignment);
    request
}

pub(crate) fn describe_groups(version: i16) -> DescribeGroupsRequest {
    let mut request = DescribeGroupsRequest::default();
    request.groups = vec!["orders".into(), "x".into()];
    request.include_authorized_operations = version >= 3;
    request
}

pub(crate) fn list_groups(version: i16) -> ListGroupsRequest {
    let mut request = ListGroupsRequest::default();
    if version >= 4 {
        request.states_filter = vec!["Stable".into()];
    }
    if version >= 5 {
        request.types_filter = vec!["classic".into()];
    }
    request
}

pub(crate) fn delete_groups() -> DeleteGroupsRequest {
    let mut request = DeleteGroupsRequest::default();
    request.groups_names = vec!["orders".into(), "x".into()];
    request
}

pub(crate) fn offset_delete() -> OffsetDeleteRequest {
    let mut request = OffsetDeleteRequest::default();
    request.group_id = "group".into();
    let mut topic = offset_delete_request::OffsetDeleteRequestTopic::default();
    topic.name = "orders".into();
    let mut partition = offset_delete_request::OffsetDeleteRequestPartition::default();
    partition.partition_index = 4;
    topic.partitions.push(partition);
    request.topics.push(topic);
    request
}
