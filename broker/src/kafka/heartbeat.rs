//! Heartbeat (key 12), versions 0 to 4: KIP-345 (static members, from 3).

use barnabas_group::{Answer, Event, GroupError, Heartbeat};
use barnabas_wire::messages::{HeartbeatRequest, HeartbeatResponse};

use super::error_codes::group_error_code;
use super::group_calls::{WRONG_ANSWER, ask, maybe_shared, shared};
use super::{Handled, RequestContext};
use crate::partition::Flush;

pub(super) fn handle(
    context: &RequestContext<'_>,
    request: &HeartbeatRequest,
    flush: &mut Flush,
) -> Result<Handled, String> {
    let event = |waiter| {
        Event::Heartbeat(Heartbeat {
            waiter,
            group: shared(&request.group_id),
            generation: request.generation_id,
            member_id: shared(&request.member_id),
            instance_id: maybe_shared(request.group_instance_id.as_ref()),
        })
    };
    ask(context, request.group_id.as_str(), event, respond, flush)
}

fn respond(answer: Result<Answer, GroupError>) -> HeartbeatResponse {
    let beaten = answer.and_then(|answer| match answer {
        Answer::Heartbeat(beaten) => beaten,
        _ => Err(WRONG_ANSWER),
    });
    let mut response = HeartbeatResponse::default();
    response.error_code = beaten.err().map_or(0, group_error_code);
    response
}
