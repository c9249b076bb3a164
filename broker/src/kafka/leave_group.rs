//! LeaveGroup (key 13), versions 0 to 5: KIP-345 (several members, by instance id, from 3), KIP-800 (reasons, from 5).

use barnabas_group::{Answer, Event, GroupError, Leave, LeaveMember, Left};
use barnabas_wire::messages::leave_group_response::MemberResponse;
use barnabas_wire::messages::{LeaveGroupRequest, LeaveGroupResponse};

use super::error_codes::group_error_code;
use super::group_calls::{WRONG_ANSWER, ask, maybe_shared, shared};
use super::{Handled, RequestContext, owned};
use crate::partition::Flush;

/// First version that names several members.
const MEMBERS_VERSION: i16 = 3;

pub(super) fn handle(
    context: &RequestContext<'_>,
    request: &LeaveGroupRequest,
    flush: &mut Flush,
) -> Result<Handled, String> {
    let version = context.version;
    let respond = move |answer: Result<Answer, GroupError>| {
        let left = answer.and_then(|answer| match answer {
            Answer::Leave(left) => left,
            _ => Err(WRONG_ANSWER),
        });
        self::respond(version, left)
    };
    let event = |waiter| {
        let (group, members) = (shared(&request.group_id), members(version, request));
        Event::Leave(Leave { waiter, group, members })
    };
    ask(context, request.group_id.as_str(), event, respond, flush)
}

/// The two forms of the request as one list.
fn members(version: i16, request: &LeaveGroupRequest) -> Vec<LeaveMember> {
    if version < MEMBERS_VERSION {
        let member_id = shared(&request.member_id);
        return vec![LeaveMember { member_id, instance_id: None, reason: None }];
    }
    let member =
        |member: &barnabas_wire::messages::leave_group_request::MemberIdentity| LeaveMember {
            member_id: shared(&member.member_id),
            instance_id: maybe_shared(member.group_instance_id.as_ref()),
            reason: member.reason.as_ref().map(owned),
        };
    request.members.iter().map(member).collect()
}

fn respond(version: i16, left: Result<Vec<Left>, GroupError>) -> LeaveGroupResponse {
    let mut response = LeaveGroupResponse::default();
    match left {
        Err(error) => response.error_code = group_error_code(error),
        Ok(left) if version < MEMBERS_VERSION => {
            let refused = left.into_iter().find_map(|left| left.result.err());
            response.error_code = refused.map_or(0, group_error_code);
        }
        Ok(left) => {
            for left in left {
                let mut entry = MemberResponse::default();
                entry.member_id = (&*left.member_id).into();
                entry.group_instance_id = left.instance_id.map(|id| (&*id).into());
                entry.error_code = left.result.err().map_or(0, group_error_code);
                response.members.push(entry);
            }
        }
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use barnabas_wire::reply;

    #[test]
    fn one_member_is_answered_for_all_and_several_each() {
        let left = |result| Left { member_id: "m".into(), instance_id: Some("i".into()), result };
        for version in 0..=5 {
            let both = vec![left(Ok(())), left(Err(GroupError::UnknownMemberId))];
            let response = respond(version, Ok(both));
            reply(1, version, &response).unwrap_or_else(|error| panic!("{error}"));
            let codes: Vec<i16> = response.members.iter().map(|m| m.error_code).collect();
            let expected = if version < 3 { (25, vec![]) } else { (0, vec![0, 25]) };
            assert_eq!((response.error_code, codes), expected);
            let refused = respond(version, Err(GroupError::NotCoordinator));
            reply(1, version, &refused).unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(refused.error_code, 16);
        }
    }
}
