//! What the requests of consumer groups share: the way to a group's coordinator and back.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use barnabas_group::{Answer, Event, GroupError, Waiter};
use barnabas_wire::{KafkaResponse, reply};

use super::{Handled, RequestContext, answer};
use crate::group::{GroupWait, Reply};
use crate::partition::Flush;

/// Hands a request to the coordinator of its group; whoever has the answer completes the slot. `respond` turns it into the
/// response.
pub(super) fn ask<R: KafkaResponse>(
    context: &RequestContext<'_>,
    group_id: &str,
    event: impl FnOnce(Waiter) -> Event,
    respond: impl FnOnce(Result<Answer, GroupError>) -> R + Send + 'static,
    flush: &mut Flush,
) -> Result<Handled, String> {
    let groups = &context.node.groups;
    let coordinator = match groups.of_group(group_id) {
        Ok(coordinator) => coordinator,
        Err(error) => return answer(context, &respond(Err(error))),
    };
    let (out, slot) = (context.out.clone(), context.slot);
    let (correlation_id, version) = (context.correlation_id, context.version);
    let answered = Arc::new(AtomicBool::new(false));
    let done = answered.clone();
    let mut reply = Reply::new(move |answer, flush| {
        match reply(correlation_id, version, &respond(answer)) {
            Ok(bytes) => {
                out.complete(slot, vec![bytes]);
                flush.add(out);
            }
            Err(error) => {
                tracing::error!(target: "request", %error, "an answer could not be encoded; the connection is closed");
                out.close();
            }
        }
        done.store(true, Ordering::Release);
    });
    reply.hold(context.frame.clone());
    let waiter = groups.next_waiter();
    let gone = reply.gone();
    coordinator.ask(waiter, event(waiter), reply, flush);
    Ok(Handled::Group(GroupWait::new(coordinator, waiter, answered, gone)))
}

/// A text of a request, so that the request's frame is not kept alive by it.
pub(super) fn shared(text: &barnabas_wire::messages::StrBytes) -> Arc<str> {
    text.as_str().into()
}

/// As [`shared`], where there may be none.
pub(super) fn maybe_shared(text: Option<&barnabas_wire::messages::StrBytes>) -> Option<Arc<str>> {
    text.map(shared)
}

/// An answer of another kind than the request's: a fault of the coordinator's, told as such.
pub(super) const WRONG_ANSWER: GroupError = GroupError::UnknownServerError;
