//! SyncGroup (key 14), versions 0 to 5: KIP-345 (static members, from 3), KIP-559 (kind of group and protocol, from 5).

use barnabas_group::{Answer, Event, GroupError, Sync, Synced, Waiter};
use barnabas_wire::messages::{SyncGroupRequest, SyncGroupResponse};
use bytes::Bytes;

use super::error_codes::group_error_code;
use super::group_calls::{WRONG_ANSWER, ask, maybe_shared, shared};
use super::{Handled, RequestContext};
use crate::partition::Flush;

/// First version that names the kind of group and the protocol.
const PROTOCOL_VERSION: i16 = 5;

pub(super) fn handle(
    context: &RequestContext<'_>,
    request: &SyncGroupRequest,
    flush: &mut Flush,
) -> Result<Handled, String> {
    let version = context.version;
    let respond = move |answer: Result<Answer, GroupError>| {
        let synced = answer.and_then(|answer| match answer {
            Answer::Sync(synced) => synced,
            _ => Err(WRONG_ANSWER),
        });
        self::respond(version, synced)
    };
    let event = |waiter| Event::Sync(sync(request, waiter));
    ask(context, request.group_id.as_str(), event, respond, flush)
}

fn sync(request: &SyncGroupRequest, waiter: Waiter) -> Sync {
    let assigned = request.assignments.iter();
    Sync {
        waiter,
        group: shared(&request.group_id),
        generation: request.generation_id,
        member_id: shared(&request.member_id),
        instance_id: maybe_shared(request.group_instance_id.as_ref()),
        protocol_type: maybe_shared(request.protocol_type.as_ref()),
        protocol_name: maybe_shared(request.protocol_name.as_ref()),
        assignments: assigned
            .map(|a| (shared(&a.member_id), Bytes::copy_from_slice(&a.assignment)))
            .collect(),
    }
}

fn respond(version: i16, synced: Result<Synced, GroupError>) -> SyncGroupResponse {
    let mut response = SyncGroupResponse::default();
    match synced {
        Ok(synced) => {
            if version >= PROTOCOL_VERSION {
                response.protocol_type = Some((&*synced.protocol_type).into());
                response.protocol_name = Some((&*synced.protocol_name).into());
            }
            response.assignment = synced.assignment;
        }
        Err(error) => response.error_code = group_error_code(error),
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use barnabas_wire::reply;

    #[test]
    fn every_answer_can_be_written_at_every_version() {
        for version in 0..=5 {
            let synced = Synced {
                protocol_type: "consumer".into(),
                protocol_name: "range".into(),
                assignment: Bytes::from_static(b"x"),
            };
            for synced in [Ok(synced), Err(GroupError::RebalanceInProgress)] {
                let code = if synced.is_ok() { 0 } else { 27 };
                let response = respond(version, synced);
                assert_eq!(response.error_code, code);
                reply(1, version, &response).unwrap_or_else(|error| panic!("{error}"));
            }
        }
    }
}
