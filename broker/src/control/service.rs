//! The gRPC service `BrokerControl`: one stream of pushes per controller, acknowledged when applied; what leaders know of followers,
//! and how this broker is; the journal for other brokers.

use std::pin::Pin;
use std::sync::Arc;

use barnabas_controller::{PushStream, PushStreams};
use barnabas_proto::convert::{Ack, StateUpdate};
use barnabas_proto::v1;
use barnabas_proto::v1::broker_control_server::BrokerControl;
use barnabas_types::ControllerEpoch;
use tokio::sync::{Semaphore, mpsc};
use tokio_stream::Stream;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};

use super::agent::AgentHandle;
use super::copies;
use crate::explain::Explainer;

/// Acknowledgements that wait to be sent; the controller has one update in flight.
const ACKS_MAX: usize = 2;
/// Questions about followers that are answered at once; the controller asks one for each of its own callers, and does without
/// an answer. Each of them looks at up to a thousand logs, twice.
const DESCRIPTIONS_MAX: usize = 8;
/// Brokers that read the journal at once; each has one question on its way.
const READERS_MAX: usize = 256;
/// Questions about health that are answered at once: each costs little, and whoever is refused takes this broker for ill.
const HEALTH_QUESTIONS_MAX: usize = 64;

/// Serves pushes, and questions about followers and health.
pub struct PushService {
    agent: AgentHandle,
    explainer: Arc<Explainer>,
    descriptions: Semaphore,
    readers: Semaphore,
    health_questions: Semaphore,
    open: PushStreams,
}

impl PushService {
    /// A service that hands updates to `agent`, looks at the broker and its replicas through `explainer`, and counts the streams
    /// in `open`.
    #[must_use]
    pub fn new(agent: AgentHandle, explainer: Arc<Explainer>, open: PushStreams) -> Self {
        Self {
            agent,
            explainer,
            descriptions: Semaphore::new(DESCRIPTIONS_MAX),
            readers: Semaphore::new(READERS_MAX),
            health_questions: Semaphore::new(HEALTH_QUESTIONS_MAX),
            open,
        }
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
        let (agent, streams) = (self.agent.clone(), self.open.clone());
        let node = self.explainer.node().clone();
        tokio::spawn(async move {
            let mut open: Option<PushStream> = None;
            while let Ok(Some(update)) = updates.message().await {
                // A stream is of one term: the controller begins another one with its next.
                let epoch = ControllerEpoch(update.controller_epoch);
                let open = open.get_or_insert_with(|| streams.opened(epoch));
                let answer = one(&agent, update).await;
                let image = node.view.image();
                let own = image.controller.and_then(|(id, _)| image.brokers.get(&id));
                open.says_draining(own.is_some_and(|own| own.draining));
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
        let Ok(_place) = self.descriptions.try_acquire() else {
            return Err(Status::resource_exhausted("too many such questions at once: ask again"));
        };
        let node = self.explainer.node().clone();
        Ok(Response::new(copies::describe(node, request.into_inner()).await))
    }

    async fn describe_health(
        &self,
        request: Request<v1::DescribeHealthRequest>,
    ) -> Result<Response<v1::BrokerHealth>, Status> {
        let Ok(_place) = self.health_questions.try_acquire() else {
            return Err(Status::resource_exhausted("too many such questions at once: ask again"));
        };
        Ok(Response::new(self.explainer.own_health(request.into_inner()).await))
    }

    async fn read_journal(
        &self,
        request: Request<v1::ReadJournalRequest>,
    ) -> Result<Response<v1::ReadJournalResponse>, Status> {
        let Ok(_place) = self.readers.try_acquire() else {
            return Err(Status::resource_exhausted("too many read the journal at once: ask again"));
        };
        Ok(Response::new(self.explainer.node().journal.read(&request.into_inner()).await?))
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

#[cfg(test)]
mod tests {
    use std::sync::Weak;

    use tokio::sync::watch;
    use tokio::task::JoinSet;

    use super::*;
    use crate::control::{Agent, TailMark};
    use crate::health::Health;
    use crate::partition::Outward;
    use crate::testing::{Disk, ME, node};

    #[tokio::test]
    async fn questions_beyond_the_bound_are_refused_and_cost_nothing() {
        let (node, disk) = (node(), Disk::new());
        let outward: Weak<dyn Outward> = Arc::downgrade(&node) as _;
        let flushers = disk.storage.start_flushers(&outward);
        let mark = watch::channel(TailMark::default()).0;
        let agent = Agent::start(node.clone(), disk.storage.clone(), flushers, mark);
        let explainer = Explainer::new(node, disk.storage.clone(), Health::new(ME, 0));
        let service = Arc::new(PushService::new(agent, explainer, PushStreams::default()));
        let mut asking = JoinSet::new();
        for _ in 0..=DESCRIPTIONS_MAX {
            let service = service.clone();
            let request = Request::new(v1::DescribeFollowersRequest::default());
            asking.spawn(async move { service.describe_followers(request).await });
        }
        let told = asking.join_all().await;
        let refused: Vec<_> = told.into_iter().filter_map(Result::err).collect();
        assert_eq!(
            refused.iter().map(Status::code).collect::<Vec<_>>(),
            [tonic::Code::ResourceExhausted]
        );
        let again = Request::new(v1::DescribeFollowersRequest::default());
        assert!(service.describe_followers(again).await.is_ok(), "their places are free again");
    }
}
