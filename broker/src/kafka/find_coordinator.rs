//! FindCoordinator (key 10), versions 0 to 6: KIP-98 (kinds of keys, from 1), KIP-699 (several at once, from 4). Only groups have a
//! coordinator. The first question of all creates the offsets topic. Whom this names may hear of the topic later than this broker: it
//! asks for patience until then ([`crate::group::Coordinators::of_group`]).

use std::sync::Arc;

use barnabas_group::GroupError;
use barnabas_types::{BrokerId, BrokerImage, ClusterImage};
use barnabas_wire::messages::find_coordinator_response::Coordinator;
use barnabas_wire::messages::{FindCoordinatorRequest, FindCoordinatorResponse, StrBytes};

use super::error_codes::{INVALID_REQUEST, group_error_code};
use super::{Handled, RequestContext, answer, later};
use crate::group;
use crate::node::Node;

/// The kind of key that names a group.
const GROUP: i8 = 0;
/// First version that asks for several.
const BATCH_VERSION: i16 = 4;

pub(super) fn handle(
    context: &RequestContext<'_>,
    request: FindCoordinatorRequest,
) -> Result<Handled, String> {
    let (node, version) = (context.node, context.version);
    if request.key_type != GROUP || group::offsets_topic(&node.view.image()).is_some() {
        return answer(context, &respond(node, version, &request));
    }
    let node = node.clone();
    later(context, async move {
        // Without the topic every group is answered "not available", and its client asks again.
        let _ = group::ensure(&node).await;
        respond(&node, version, &request)
    })
}

fn respond(
    node: &Arc<Node>,
    version: i16,
    request: &FindCoordinatorRequest,
) -> FindCoordinatorResponse {
    let image = node.view.image();
    let of = |key: &StrBytes| coordinator(&image, request.key_type, key.as_str());
    let mut response = FindCoordinatorResponse::default();
    if version >= BATCH_VERSION {
        response.coordinators =
            request.coordinator_keys.iter().map(|key| entry(key, of(key))).collect();
        return response;
    }
    let entry = entry(&request.key, of(&request.key));
    (response.node_id, response.host, response.port) = (entry.node_id, entry.host, entry.port);
    response.error_code = entry.error_code;
    if version >= 1 {
        response.error_message = entry.error_message;
    }
    response
}

/// Why there is no coordinator: code and words.
type Refused = (i16, String);

fn coordinator<'a>(
    image: &'a ClusterImage,
    key_type: i8,
    key: &str,
) -> Result<(BrokerId, &'a BrokerImage), Refused> {
    if key_type != GROUP {
        let text = "only groups (key type 0) have a coordinator here: transactions are not served";
        return Err((INVALID_REQUEST, text.to_owned()));
    }
    let unavailable =
        |text: String| Err((group_error_code(GroupError::CoordinatorNotAvailable), text));
    let Some(topic) = group::offsets_topic(image) else {
        return unavailable(format!(
            "the topic {} is not there yet; it needs as many live brokers as offsets.topic.replication.factor says",
            group::OFFSETS_TOPIC
        ));
    };
    let partition = group::partition_of(key, topic.partitions.len());
    let leader = topic.partitions.get(&partition).and_then(|p| p.state.leader);
    match leader.and_then(|id| image.brokers.get(&id).map(|broker| (id, broker))) {
        Some(found) => Ok(found),
        None => unavailable(format!(
            "partition {partition} of {} has no leader at present",
            group::OFFSETS_TOPIC
        )),
    }
}

fn entry(key: &StrBytes, found: Result<(BrokerId, &BrokerImage), Refused>) -> Coordinator {
    let mut entry = Coordinator::default();
    entry.key = key.clone();
    match found {
        Ok((id, broker)) => {
            entry.node_id = id.0;
            entry.host = broker.host.as_str().into();
            entry.port = i32::from(broker.port);
        }
        Err((code, text)) => {
            (entry.node_id, entry.port) = (-1, -1);
            entry.error_code = code;
            entry.error_message = Some(text.into());
        }
    }
    entry
}
