//! DeleteGroups (key 42), versions 0 to 2: KIP-229.

use std::sync::Arc;

use barnabas_group::{Answer, DeleteGroup, Event, GroupError};
use barnabas_wire::messages::delete_groups_response::DeletableGroupResult;
use barnabas_wire::messages::{DeleteGroupsRequest, DeleteGroupsResponse};

use super::error_codes::group_error_code;
use super::group_calls::{WRONG_ANSWER, shared};
use crate::node::Node;

pub(super) async fn handle(node: Arc<Node>, request: DeleteGroupsRequest) -> DeleteGroupsResponse {
    let ids: Vec<Arc<str>> = request.groups_names.iter().map(shared).collect();
    drop(request);
    // All are asked before the first answer is waited for: each takes a write.
    let asked: Vec<_> = ids.into_iter().map(|id| (id.clone(), ask(&node, id))).collect();
    let mut response = DeleteGroupsResponse::default();
    for (id, answer) in asked {
        let deleted = match answer {
            Ok(answer) => answer.await.unwrap_or(Err(GroupError::NotCoordinator)),
            Err(error) => Err(error),
        };
        let deleted = deleted.and_then(|answer| match answer {
            Answer::DeleteGroup(deleted) => deleted,
            _ => Err(WRONG_ANSWER),
        });
        let mut entry = DeletableGroupResult::default();
        entry.group_id = (&*id).into();
        entry.error_code = deleted.err().map_or(0, group_error_code);
        response.results.push(entry);
    }
    response
}

fn ask(
    node: &Node,
    group: Arc<str>,
) -> Result<tokio::sync::oneshot::Receiver<Result<Answer, GroupError>>, GroupError> {
    let coordinator = node.groups.of_group(&group)?;
    let waiter = node.groups.next_waiter();
    Ok(coordinator.request(waiter, Event::DeleteGroup(DeleteGroup { waiter, group })))
}
