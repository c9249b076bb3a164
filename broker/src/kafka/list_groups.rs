//! ListGroups (key 16), versions 0 to 5: KIP-518 (states, from 4), KIP-848 (types, from 5; all groups here are "classic"). Each
//! broker lists the groups that it coordinates.

use std::sync::Arc;

use barnabas_group::{GroupError, Listed};
use barnabas_wire::messages::list_groups_response::ListedGroup;
use barnabas_wire::messages::{ListGroupsRequest, ListGroupsResponse, StrBytes};

use super::error_codes::group_error_code;
use crate::node::Node;

/// First version with states.
const STATES_VERSION: i16 = 4;
/// First version with types.
const TYPES_VERSION: i16 = 5;
/// The type of every group here.
const CLASSIC: &str = "classic";

pub(super) async fn handle(
    node: Arc<Node>,
    version: i16,
    request: ListGroupsRequest,
) -> ListGroupsResponse {
    let (mut listed, mut loading) = (Vec::new(), false);
    for coordinator in node.groups.all() {
        match coordinator.look(|groups| groups.list().collect::<Vec<_>>()).await {
            Ok(groups) => listed.extend(groups),
            Err(GroupError::NotCoordinator) => {}
            Err(_) => loading = true,
        }
    }
    respond(version, &request, &listed, loading)
}

/// `loading`: there may be more.
fn respond(
    version: i16,
    request: &ListGroupsRequest,
    listed: &[Listed],
    loading: bool,
) -> ListGroupsResponse {
    let mut response = ListGroupsResponse::default();
    if loading {
        response.error_code = group_error_code(GroupError::CoordinatorLoadInProgress);
    }
    let wanted = |filter: &[StrBytes], value: &str| {
        filter.is_empty() || filter.iter().any(|one| one.as_str().eq_ignore_ascii_case(value))
    };
    if !wanted(&request.types_filter, CLASSIC) {
        return response;
    }
    for group in listed.iter().filter(|group| wanted(&request.states_filter, group.state.name())) {
        let mut entry = ListedGroup::default();
        entry.group_id = (&*group.group).into();
        entry.protocol_type = (&*group.protocol_type).into();
        if version >= STATES_VERSION {
            entry.group_state = group.state.name().into();
        }
        if version >= TYPES_VERSION {
            entry.group_type = CLASSIC.into();
        }
        response.groups.push(entry);
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use barnabas_group::GroupState;
    use barnabas_wire::reply;

    #[test]
    fn filters_are_kafkas_and_every_answer_can_be_written() {
        let group =
            |id: &str, state| Listed { group: id.into(), state, protocol_type: "consumer".into() };
        let listed = [group("a", GroupState::Stable), group("b", GroupState::Empty)];
        let ids = |response: &ListGroupsResponse| -> Vec<String> {
            response.groups.iter().map(|g| g.group_id.as_str().to_owned()).collect()
        };
        for version in 0..=5 {
            let response = respond(version, &ListGroupsRequest::default(), &listed, true);
            reply(1, version, &response).unwrap_or_else(|error| panic!("{error}"));
            assert_eq!((response.error_code, ids(&response)), (14, vec!["a".into(), "b".into()]));
        }
        let mut request = ListGroupsRequest::default();
        request.states_filter = vec!["empty".into(), "unheard of".into()];
        assert_eq!(ids(&respond(5, &request, &listed, false)), ["b"]);
        request.states_filter.clear();
        request.types_filter = vec!["Consumer".into()];
        assert!(ids(&respond(5, &request, &listed, false)).is_empty());
        request.types_filter = vec!["Classic".into()];
        assert_eq!(ids(&respond(5, &request, &listed, false)).len(), 2);
    }
}
