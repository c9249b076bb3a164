//! The gRPC service `BrokerControl`: one stream of pushes per controller, acknowledged when applied; what leaders know of followers.

use std::pin::Pin;
use std::sync::Arc;

use barnabas_proto::convert::{Ack, StateUpdate};
use barnabas_proto::v1;
use barnabas_proto::v1::broker_control_server::BrokerControl;
use tokio::sync::mpsc;
use tokio_stream::Stream;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};

use super::agent::AgentHandle;
use super::copies;
use crate::node::Node;

/// Acknowledgements that wait to be sent; the controller has one update in flight.
const ACKS_MAX: usize = 2;

/// Serves pushes, and questions about followers.
pub struct PushService {
    agent: AgentHandle,
    node: Arc<Node>,
}

impl PushService {
    /// A service that hands updates to `agent`, and looks at the replicas of `node`.
    #[must_use]
    pub fn new(agent: AgentHandle, node: Arc<Node>) -> Self {
        Self { agent, node }
    }
}

#[tonic::async_trait]
impl BrokerControl for PushService {
    type PushStream = Pin<Box<dyn Stream<Item = Result<v1::StateAck, Status>> + Send>>;

    async fn push(
        &self,
        request: Request<Streaming<v1::StateUpdate>>,
    ) -> Result<Response<Self::PushStream>, Status> {
        let mut updates = request.into_inner();
        let (sender, receiver) = mpsc::channel(ACKS_MAX);
        let agent = self.agent.clone();
        tokio::spawn(async move {
            while let Ok(Some(update)) = updates.message().await {
                let answer = one(&agent, update).await;
                let refused = answer.is_err();
                if sender.send(answer).await.is_err() || refused {
                    return;
                }
            }
        });
        Ok(Response::new(Box::pin(ReceiverStream::new(receiver))))
    }

    async fn describe_followers(
        &self,
        request: Request<v1::DescribeFollowersRequest>,
    ) -> Result<Response<v1::DescribeFollowersResponse>, Status> {
        Ok(Response::new(copies::describe(self.node.clone(), request.into_inner()).await))
    }
}

/// Applies one update. A refusal ends the stream; the controller begins anew with a full state, or finds itself deposed.
async fn one(agent: &AgentHandle, update: v1::StateUpdate) -> Result<v1::StateAck, Status> {
    let update = StateUpdate::try_from(&update)?;
    // The acknowledgement is one of the incarnation that the update was for; a new registration may come meanwhile (R8).
    let (version, broker_epoch) = (update.version, update.target);
    let reports = agent
        .update(update)
        .await
        .map_err(|condition| Status::failed_precondition(condition.to_string()))?;
    Ok((&Ack { version, broker_epoch, reports }).into())
}
