//! JoinGroup (key 11), versions 0 to 9: KIP-62 (rebalance timeout, from 1), KIP-394 (member id first, from 4), KIP-345 (static
//! members, from 5), KIP-559 (kind of group in the answer, from 7), KIP-800 (reasons, from 8), KIP-814 (from 9).

use std::sync::Arc;

use barnabas_group::{Answer, Event, GroupError, Join, JoinRefused, Joined, Protocol, Waiter};
use barnabas_wire::messages::join_group_response::JoinGroupResponseMember;
use barnabas_wire::messages::{JoinGroupRequest, JoinGroupResponse, StrBytes};
use bytes::Bytes;

use super::error_codes::group_error_code;
use super::group_calls::{WRONG_ANSWER, ask, maybe_shared, shared};
use super::{Handled, RequestContext, answer, owned};
use crate::partition::Flush;

/// First version with a rebalance timeout of its own.
const REBALANCE_TIMEOUT_VERSION: i16 = 1;
/// First version in which a new member gets its id first.
const MEMBER_ID_VERSION: i16 = 4;
/// First version with instance ids in the answer.
const INSTANCE_ID_VERSION: i16 = 5;
/// First version that tells the kind of group, and may leave the protocol's name out.
const PROTOCOL_TYPE_VERSION: i16 = 7;
/// First version that can tell a leader to leave the assignment as it is.
const SKIP_ASSIGNMENT_VERSION: i16 = 9;
/// The generation of a refusal.
const NO_GENERATION: i32 = -1;

pub(super) fn handle(
    context: &RequestContext<'_>,
    request: &JoinGroupRequest,
    flush: &mut Flush,
) -> Result<Handled, String> {
    let version = context.version;
    let member_id: Arc<str> = shared(&request.member_id);
    let Some(suffix) = unique() else {
        let refused = refused(GroupError::CoordinatorNotAvailable, &member_id);
        return answer(context, &respond(version, Err(refused)));
    };
    let asked = member_id.clone();
    let event = |waiter| Event::Join(join(context, request, (waiter, member_id, suffix)));
    let respond = move |answer: Result<Answer, GroupError>| {
        let joined = match answer {
            Ok(Answer::Join(joined)) => joined,
            Ok(_) => Err(refused(WRONG_ANSWER, &asked)),
            Err(error) => Err(refused(error, &asked)),
        };
        self::respond(version, joined)
    };
    ask(context, request.group_id.as_str(), event, respond, flush)
}

fn join(
    context: &RequestContext<'_>,
    request: &JoinGroupRequest,
    (waiter, member_id, suffix): (Waiter, Arc<str>, Arc<str>),
) -> Join {
    let version = context.version;
    let protocol =
        |protocol: &barnabas_wire::messages::join_group_request::JoinGroupRequestProtocol| {
            let metadata = Bytes::copy_from_slice(&protocol.metadata);
            Protocol { name: shared(&protocol.name), metadata }
        };
    Join {
        waiter,
        group: shared(&request.group_id),
        member_id,
        instance_id: maybe_shared(request.group_instance_id.as_ref()),
        suffix,
        client_id: context.client_id.unwrap_or_default().into(),
        client_host: context.out.peer_host().into(),
        session_timeout_ms: request.session_timeout_ms,
        rebalance_timeout_ms: if version >= REBALANCE_TIMEOUT_VERSION {
            request.rebalance_timeout_ms
        } else {
            -1
        },
        protocol_type: shared(&request.protocol_type),
        protocols: request.protocols.iter().map(protocol).collect(),
        member_id_required: version >= MEMBER_ID_VERSION,
        skip_assignment: version >= SKIP_ASSIGNMENT_VERSION,
        reason: request.reason.as_ref().map(owned),
    }
}

/// A text that nobody else has, in the form of a UUID, as Kafka's member ids end.
fn unique() -> Option<Arc<str>> {
    let mut bytes = [0_u8; 16];
    getrandom::fill(&mut bytes).ok()?;
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let parts = [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]];
    Some(parts.join("-").into())
}

fn refused(error: GroupError, member_id: &Arc<str>) -> JoinRefused {
    JoinRefused { error, member_id: member_id.clone() }
}

fn respond(version: i16, joined: Result<Joined, JoinRefused>) -> JoinGroupResponse {
    let mut response = JoinGroupResponse::default();
    match joined {
        Ok(joined) => {
            response.generation_id = joined.generation;
            if version >= PROTOCOL_TYPE_VERSION {
                response.protocol_type = Some((&*joined.protocol_type).into());
            }
            response.protocol_name = Some((&*joined.protocol_name).into());
            response.leader = (&*joined.leader).into();
            response.skip_assignment = version >= SKIP_ASSIGNMENT_VERSION && joined.skip_assignment;
            response.member_id = (&*joined.member_id).into();
            for member in joined.members {
                let mut entry = JoinGroupResponseMember::default();
                entry.member_id = (&*member.member_id).into();
                if version >= INSTANCE_ID_VERSION {
                    entry.group_instance_id = member.instance_id.map(|id| (&*id).into());
                }
                entry.metadata = member.metadata;
                response.members.push(entry);
            }
        }
        Err(JoinRefused { error, member_id }) => {
            response.error_code = group_error_code(error);
            response.generation_id = NO_GENERATION;
            response.protocol_name = (version < PROTOCOL_TYPE_VERSION).then(StrBytes::default);
            response.member_id = (&*member_id).into();
        }
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use barnabas_group::JoinedMember;
    use barnabas_wire::reply;

    #[test]
    fn every_answer_can_be_written_at_every_version() {
        let member = JoinedMember {
            member_id: "m".into(),
            instance_id: Some("i".into()),
            metadata: Bytes::from_static(b"x"),
        };
        let joined = Joined {
            member_id: "m".into(),
            generation: 3,
            protocol_type: "consumer".into(),
            protocol_name: "range".into(),
            leader: "m".into(),
            skip_assignment: true,
            members: vec![member],
        };
        for version in 0..=9 {
            let response = respond(version, Ok(joined.clone()));
            reply(1, version, &response).unwrap_or_else(|error| panic!("{error}"));
            let response =
                respond(version, Err(refused(GroupError::MemberIdRequired, &"m".into())));
            reply(1, version, &response).unwrap_or_else(|error| panic!("{error}"));
            assert_eq!((response.error_code, response.generation_id), (79, -1));
            assert_eq!(response.member_id.as_str(), "m");
        }
    }

    #[test]
    fn a_suffix_looks_like_a_uuid_and_is_not_given_twice() {
        let (a, b) = (unique().unwrap(), unique().unwrap());
        assert_ne!(a, b);
        let lengths: Vec<_> = a.split('-').map(str::len).collect();
        assert_eq!(lengths, [8, 4, 4, 4, 12]);
        assert_eq!(&a[14..15], "4");
    }
}
