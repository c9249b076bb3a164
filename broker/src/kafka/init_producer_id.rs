//! InitProducerId (key 22), versions 0 to 5: KIP-98, KIP-360; an id for idempotent producers. Transactions are not served: a
//! request with a transactional id is refused.

use std::sync::Arc;
use std::time::Duration;

use barnabas_types::Condition;
use barnabas_wire::messages::{InitProducerIdRequest, InitProducerIdResponse};

use super::error_code;
use crate::node::Node;

/// How long a request may wait for a block of ids; those behind it wait for the same one.
const PATIENCE: Duration = Duration::from_secs(30);
/// What Kafka answers where there is no id.
const NO_PRODUCER_ID: i64 = -1;
const NO_PRODUCER_EPOCH: i16 = -1;

pub(super) async fn handle(
    node: Arc<Node>,
    request: InitProducerIdRequest,
) -> InitProducerIdResponse {
    let given = match request.transactional_id {
        _ if (request.producer_id == NO_PRODUCER_ID)
            != (request.producer_epoch == NO_PRODUCER_EPOCH) =>
        {
            let reason = "a producer gives both its id and its epoch, or neither (-1)";
            Err(Condition::InvalidRequest(reason.into()))
        }
        Some(_) => Err(Condition::UnsupportedVersion("transactions")),
        None => {
            let next = node.producer_ids.next(&node.controller);
            let given = tokio::time::timeout(PATIENCE, next).await;
            given.unwrap_or(Err(Condition::RequestTimedOut))
        }
    };
    let mut response = InitProducerIdResponse::default();
    match given {
        Ok(id) => {
            response.producer_id = id;
            response.producer_epoch = 0;
        }
        Err(condition) => {
            response.error_code = error_code(&condition);
            response.producer_id = NO_PRODUCER_ID;
            response.producer_epoch = NO_PRODUCER_EPOCH;
        }
    }
    response
}
