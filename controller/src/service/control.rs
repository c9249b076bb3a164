//! The gRPC service by which leaders propose ISRs and brokers tell of replicas that they cannot serve.

use barnabas_controller_core::AlterPartitionAnswer;
use barnabas_proto::MESSAGE_BYTES_MAX;
use barnabas_proto::convert::{IsrProposals, LeadersServed};
use barnabas_proto::v1;
use barnabas_proto::v1::controller_control_server::{ControllerControl, ControllerControlServer};
use barnabas_types::{BrokerEpoch, BrokerId, Condition, FailedReplicas, PartitionState};
use tonic::{Request, Response, Status};

use super::draining;
use super::handle::ControllerHandle;

/// Serves `ControllerControl`; acts only while this process is the controller.
#[derive(Clone, Debug)]
pub struct ControllerControlService {
    handle: ControllerHandle,
}

impl ControllerControlService {
    /// The service, ready to be added to a server.
    #[must_use]
    pub fn server(handle: ControllerHandle) -> ControllerControlServer<Self> {
        ControllerControlServer::new(Self { handle }).max_decoding_message_size(MESSAGE_BYTES_MAX)
    }
}

#[tonic::async_trait]
impl ControllerControl for ControllerControlService {
    async fn alter_partition(
        &self,
        request: Request<v1::AlterPartitionRequest>,
    ) -> Result<Response<v1::AlterPartitionResponse>, Status> {
        let proposals = IsrProposals::try_from(request.get_ref())?;
        let answers = self.handle.alter_partitions(proposals).await;
        let results = answers.iter().map(write_answer).collect();
        Ok(Response::new(v1::AlterPartitionResponse { results }))
    }

    async fn report_failed_replicas(
        &self,
        request: Request<v1::FailedReplicas>,
    ) -> Result<Response<v1::FailedReplicasAnswer>, Status> {
        let report = FailedReplicas::try_from(request.get_ref())?;
        let failure = self.handle.report_failed(report).await.err();
        Ok(Response::new(v1::FailedReplicasAnswer { failure: failure.as_ref().map(Into::into) }))
    }

    async fn drain(
        &self,
        request: Request<v1::DrainRequest>,
    ) -> Result<Response<v1::DrainResponse>, Status> {
        let v1::DrainRequest { broker_id, broker_epoch, draining } = request.into_inner();
        let broker = (BrokerId(broker_id), BrokerEpoch(broker_epoch));
        let answer = self.handle.drain(broker, draining).await;
        Ok(Response::new(draining::write_progress(answer)))
    }

    async fn report_served(
        &self,
        request: Request<v1::LeadersServed>,
    ) -> Result<Response<v1::LeadersServedAnswer>, Status> {
        let served = LeadersServed::try_from(request.get_ref())?;
        let failure = self.handle.report_served(served).await.err();
        Ok(Response::new(v1::LeadersServedAnswer { failure: failure.as_ref().map(Into::into) }))
    }
}

fn write_answer(answer: &AlterPartitionAnswer) -> v1::AlterPartitionResult {
    use v1::alter_partition_result::Result as Outcome;
    let outcome = match answer {
        Ok(state) => Outcome::State(state.into()),
        Err(condition) => Outcome::Failure(condition.into()),
    };
    let ineligible_broker = match answer {
        Err(Condition::IneligibleReplica(broker)) => Some(broker.0),
        _ => None,
    };
    v1::AlterPartitionResult { result: Some(outcome), ineligible_broker }
}

/// One answer to a proposal. One that makes no sense counts as an unknown outcome. The leader has to know which follower is
/// ineligible, to withdraw it (R9).
pub(super) fn read_answer(result: v1::AlterPartitionResult) -> AlterPartitionAnswer {
    use v1::alter_partition_result::Result as Outcome;
    let senseless = Condition::UnknownOutcome("the controller's answer makes no sense");
    let ineligible = result.ineligible_broker.map(BrokerId);
    match result.result {
        Some(Outcome::State(state)) => PartitionState::try_from(&state).map_err(|_| senseless),
        Some(Outcome::Failure(failure)) => Err(match (Condition::from(failure), ineligible) {
            (Condition::Remote { name, .. }, Some(broker)) if name == "INELIGIBLE_REPLICA" => {
                Condition::IneligibleReplica(broker)
            }
            (condition, _) => condition,
        }),
        None => Err(senseless),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r9_a_leader_is_told_which_follower_is_ineligible() {
        let told = write_answer(&Err(Condition::IneligibleReplica(BrokerId(3))));
        assert_eq!(read_answer(told.clone()), Err(Condition::IneligibleReplica(BrokerId(3))));
        let nobody = v1::AlterPartitionResult { ineligible_broker: None, ..told };
        assert!(matches!(read_answer(nobody), Err(Condition::Remote { .. })));
        let other = write_answer(&Err(Condition::NotController));
        assert_eq!(other.ineligible_broker, None);
        let odd = v1::AlterPartitionResult { ineligible_broker: Some(3), ..other };
        assert_eq!(read_answer(odd), Err(Condition::NotController), "the name decides");
    }
}
