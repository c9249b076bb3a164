//! InitProducerId (key 22), versions 0 to 4: KIP-98; an id for idempotent producers. Transactions are not served: a
//! request with a transactional id is refused.

use std::sync::Arc;

use barnabas_types::Condition;
use barnabas_wire::messages::{InitProducerIdRequest, InitProducerIdResponse};

use super::error_code;
use crate::node::Node;

/// What Kafka answers where there is no id.
const NO_PRODUCER_ID: i64 = -1;

pub(super) async fn handle(
    node: Arc<Node>,
    request: InitProducerIdRequest,
) -> InitProducerIdResponse {
    let given = match request.transactional_id {
        Some(_) => Err(Condition::UnsupportedVersion("transactions")),
        None => node.producer_ids.next(&node.controller).await,
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
            response.producer_epoch = -1;
        }
    }
    response
}
