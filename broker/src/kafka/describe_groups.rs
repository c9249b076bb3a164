//! DescribeGroups (key 15), versions 0 to 5: KIP-345 (instance ids, from 4). A group that is not known is "Dead", as in Kafka.

use std::collections::BTreeSet;
use std::sync::Arc;

use barnabas_group::{Described, GroupError, GroupState};
use barnabas_wire::messages::describe_groups_response::{DescribedGroup, DescribedGroupMember};
use barnabas_wire::messages::{DescribeGroupsRequest, DescribeGroupsResponse};

use super::error_codes::group_error_code;
use super::group_calls::shared;
use crate::node::Node;

/// First version with instance ids.
const INSTANCE_ID_VERSION: i16 = 4;

pub(super) async fn handle(
    node: Arc<Node>,
    version: i16,
    request: DescribeGroupsRequest,
) -> DescribeGroupsResponse {
    let ids = asked(&request);
    drop(request);
    let mut response = DescribeGroupsResponse::default();
    for id in ids {
        let described = match node.groups.of_group(&id) {
            Ok(coordinator) => {
                let wanted = id.clone();
                coordinator.look(move |groups| groups.describe(&wanted)).await
            }
            Err(error) => Err(error),
        };
        response.groups.push(group(version, &id, described));
    }
    response
}

/// The groups asked for, each once: a small request that repeats a large group must not have a huge answer.
fn asked(request: &DescribeGroupsRequest) -> Vec<Arc<str>> {
    let mut seen = BTreeSet::new();
    request.groups.iter().filter(|id| seen.insert(id.as_str())).map(shared).collect()
}

fn group(
    version: i16,
    id: &str,
    described: Result<Option<Described>, GroupError>,
) -> DescribedGroup {
    let mut entry = DescribedGroup::default();
    entry.group_id = id.into();
    match described {
        Err(error) => entry.error_code = group_error_code(error),
        Ok(None) => entry.group_state = GroupState::Dead.name().into(),
        Ok(Some(described)) => {
            entry.group_state = described.state.name().into();
            entry.protocol_type = (&*described.protocol_type).into();
            entry.protocol_data = (&*described.protocol).into();
            for member in described.members {
                let mut one = DescribedGroupMember::default();
                one.member_id = (&*member.member_id).into();
                if version >= INSTANCE_ID_VERSION {
                    one.group_instance_id = member.instance_id.map(|id| (&*id).into());
                }
                one.client_id = (&*member.client_id).into();
                one.client_host = (&*member.client_host).into();
                one.member_metadata = member.metadata;
                one.member_assignment = member.assignment;
                entry.members.push(one);
            }
        }
    }
    entry
}

#[cfg(test)]
mod tests {
    use super::*;
    use barnabas_group::DescribedMember;
    use barnabas_wire::reply;
    use bytes::Bytes;

    #[test]
    fn a_group_that_is_named_often_is_described_once() {
        let mut request = DescribeGroupsRequest::default();
        request.groups = ["b", "a", "b", "a", "c"].map(Into::into).to_vec();
        assert_eq!(asked(&request), ["b", "a", "c"].map(Arc::from));
    }

    #[test]
    fn every_answer_can_be_written_at_every_version() {
        let member = DescribedMember {
            member_id: "m".into(),
            instance_id: Some("i".into()),
            client_id: "c".into(),
            client_host: "/127.0.0.1".into(),
            metadata: Bytes::from_static(b"x"),
            assignment: Bytes::from_static(b"y"),
        };
        let described = Described {
            state: GroupState::Stable,
            generation: 2,
            protocol_type: "consumer".into(),
            protocol: "range".into(),
            leader: Some("m".into()),
            members: vec![member],
            state_since_ms: None,
        };
        for version in 0..=5 {
            let mut response = DescribeGroupsResponse::default();
            response.groups = vec![
                group(version, "g", Ok(Some(described.clone()))),
                group(version, "none", Ok(None)),
                group(version, "elsewhere", Err(GroupError::NotCoordinator)),
            ];
            reply(1, version, &response).unwrap_or_else(|error| panic!("{error}"));
            let shown: Vec<_> =
                response.groups.iter().map(|g| (g.error_code, g.group_state.as_str())).collect();
            assert_eq!(shown, [(0, "Stable"), (0, "Dead"), (16, "")]);
        }
    }
}
