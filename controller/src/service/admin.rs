//! The gRPC service `Admin`: changes go to the controller, descriptions come from what this broker knows.

use std::sync::Arc;

use barnabas_proto::MESSAGE_BYTES_MAX;
use barnabas_proto::v1;
use barnabas_proto::v1::admin_server::{Admin, AdminServer};
use barnabas_types::{BrokerId, Condition, TopicId};
use tokio::sync::Semaphore;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status};

use super::client::{ClusterView, ControllerClient};
use super::handle::{ControllerHandle, CreatedTopic, NewTopic};
use super::timeline::{FailoverHistory, Reader};
use super::{describe, draining, electing, partitions, progress, reassign, settings};

/// Most who read the timeline of one broker at once.
const TIMELINE_READERS_MAX: usize = 64;

/// What a broker has of the ledger of lost records.
pub trait Ledger: Send + Sync + 'static {
    /// A page of it, in the order of times. May take its time: it is called on a thread that may block.
    ///
    /// # Errors
    /// The request names a place that cannot be.
    fn list(&self, request: &v1::ListLossesRequest) -> Result<v1::ListLossesResponse, Status>;
}

/// Who tells what is wrong: the broker, which knows its disks, links and groups.
#[tonic::async_trait]
pub trait Explains: Send + Sync + 'static {
    /// What cannot be found out is part of the answer.
    ///
    /// # Errors
    /// `RESOURCE_EXHAUSTED` if too many ask at once: the same question may be asked again.
    async fn explain(&self, request: v1::ExplainRequest) -> Result<v1::ExplainResponse, Status>;
}

/// How much the broker logs.
pub trait LogLevels: Send + Sync + 'static {
    /// Changes what is asked for, or nothing of it, and tells how it is then; `broker_id` is the caller's to fill in. Never blocks.
    fn log_levels(&self, request: v1::LogLevelsRequest) -> v1::LogLevelsResponse;
}

/// What only the broker can answer.
pub struct Served {
    /// The ledger of lost records.
    pub ledger: Arc<dyn Ledger>,
    /// The failovers of the cluster.
    pub failovers: Arc<dyn FailoverHistory>,
    /// What is wrong with something.
    pub explains: Arc<dyn Explains>,
    /// Its log.
    pub logs: Arc<dyn LogLevels>,
}

/// Serves `Admin` on every broker.
#[derive(Clone)]
pub struct AdminService {
    local: ControllerHandle,
    anywhere: ControllerClient,
    view: Arc<dyn ClusterView>,
    failovers: Arc<dyn FailoverHistory>,
    /// Places for those who read the timeline.
    timeline_readers: Arc<Semaphore>,
    ledger: Arc<dyn Ledger>,
    explains: Arc<dyn Explains>,
    logs: Arc<dyn LogLevels>,
}

impl std::fmt::Debug for AdminService {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AdminService").field("me", &self.view.me()).finish_non_exhaustive()
    }
}

impl AdminService {
    /// The service, ready to be added to a server.
    #[must_use]
    pub fn server(
        local: ControllerHandle,
        anywhere: ControllerClient,
        view: Arc<dyn ClusterView>,
        served: Served,
    ) -> AdminServer<Self> {
        let Served { ledger, failovers, explains, logs } = served;
        let timeline_readers = Arc::new(Semaphore::new(TIMELINE_READERS_MAX));
        AdminServer::new(Self {
            local,
            anywhere,
            view,
            ledger,
            failovers,
            timeline_readers,
            explains,
            logs,
        })
        .max_decoding_message_size(MESSAGE_BYTES_MAX)
    }

    /// Until this broker knows the cluster: an empty answer would say that there is nothing.
    async fn informed(&self) -> Result<(), Status> {
        if self.anywhere.is_informed().await {
            return Ok(());
        }
        let me = self.view.me();
        Err(Status::unavailable(format!("no controller has told broker {me} of the cluster yet")))
    }
}

#[tonic::async_trait]
impl Admin for AdminService {
    type TimelineStream = ReceiverStream<Result<v1::Failover, Status>>;

    async fn timeline(
        &self,
        request: Request<v1::TimelineRequest>,
    ) -> Result<Response<Self::TimelineStream>, Status> {
        let Ok(place) = self.timeline_readers.clone().try_acquire_owned() else {
            return Err(Status::resource_exhausted(format!(
                "{TIMELINE_READERS_MAX} read the timeline here already; ask another broker"
            )));
        };
        let reader = Reader::new(self.failovers.clone(), request.into_inner());
        Ok(Response::new(ReceiverStream::new(reader.start(place))))
    }

    async fn create_topic(
        &self,
        request: Request<v1::CreateTopicRequest>,
    ) -> Result<Response<v1::CreateTopicResponse>, Status> {
        let request = request.into_inner();
        let forwarded = request.forwarded;
        let name = request.name.clone();
        let answer = match read_new_topic(request) {
            Err(condition) => Err(condition),
            // A forwarded request is never forwarded again.
            Ok(topic) if forwarded => self.local.create_topic(topic).await,
            Ok(topic) => self.anywhere.create_topic(topic).await,
        };
        Ok(Response::new(write_created(name, &answer)))
    }

    async fn delete_topic(
        &self,
        request: Request<v1::DeleteTopicRequest>,
    ) -> Result<Response<v1::DeleteTopicResponse>, Status> {
        let request = request.into_inner();
        let answer = if request.forwarded {
            self.local.delete_topic(&request.name).await
        } else {
            self.anywhere.delete_topic(&request.name).await
        };
        Ok(Response::new(write_deleted(request.name, &answer)))
    }

    async fn create_partitions(
        &self,
        request: Request<v1::CreatePartitionsRequest>,
    ) -> Result<Response<v1::CreatePartitionsResponse>, Status> {
        let request = request.into_inner();
        let (name, forwarded) = (request.name.clone(), request.forwarded);
        let answer = match partitions::read_create(request) {
            Err(condition) => Err(condition),
            Ok(create) if forwarded => self.local.create_partitions(create).await,
            Ok(create) => self.anywhere.create_partitions(create).await,
        };
        Ok(Response::new(partitions::write_created(name, answer)))
    }

    async fn alter_config(
        &self,
        request: Request<v1::AlterConfigRequest>,
    ) -> Result<Response<v1::AlterConfigResponse>, Status> {
        let request = request.into_inner();
        let forwarded = request.forwarded;
        let answer = match settings::read_alter(request) {
            Err(condition) => Err(condition),
            Ok(alter) if forwarded => self.local.alter_config(alter).await,
            Ok(alter) => self.anywhere.alter_config(alter).await,
        };
        Ok(Response::new(settings::write_altered(answer)))
    }

    async fn describe_broker_config(
        &self,
        request: Request<v1::DescribeBrokerConfigRequest>,
    ) -> Result<Response<v1::DescribeBrokerConfigResponse>, Status> {
        self.informed().await?;
        let settings = self.view.settings(request.get_ref().cluster_default);
        let broker_id = self.view.me().0;
        Ok(Response::new(v1::DescribeBrokerConfigResponse { broker_id, settings }))
    }

    async fn elect_leaders(
        &self,
        request: Request<v1::ElectLeadersRequest>,
    ) -> Result<Response<v1::ElectLeadersResponse>, Status> {
        let request = request.into_inner();
        let forwarded = request.forwarded;
        let answer = match electing::read_elect(request) {
            Err(condition) => Err(condition),
            Ok(elect) if forwarded => self.local.elect_leaders(elect).await,
            Ok(elect) => self.anywhere.elect_leaders(elect).await,
        };
        Ok(Response::new(electing::write_elected(answer)))
    }

    async fn set_broker_draining(
        &self,
        request: Request<v1::SetBrokerDrainingRequest>,
    ) -> Result<Response<v1::DrainResponse>, Status> {
        let v1::SetBrokerDrainingRequest { broker_id, draining, forwarded } = request.into_inner();
        let (broker, me) = (BrokerId(broker_id), self.view.me());
        let answer = if forwarded && broker != me {
            let text = format!("this is broker {me}, not broker {broker}");
            Err(Condition::InvalidRequest(text))
        } else {
            self.anywhere.set_broker_draining(broker, draining).await
        };
        Ok(Response::new(draining::write_progress(answer)))
    }

    async fn can_stop_broker(
        &self,
        request: Request<v1::CanStopBrokerRequest>,
    ) -> Result<Response<v1::CanStopBrokerResponse>, Status> {
        let v1::CanStopBrokerRequest { broker_id, forwarded } = request.into_inner();
        let broker = BrokerId(broker_id);
        let answer = if forwarded {
            self.local.can_stop(broker).await
        } else {
            self.anywhere.can_stop(broker).await
        };
        Ok(Response::new(draining::write_verdict(answer)))
    }

    async fn alter_partition_reassignments(
        &self,
        request: Request<v1::AlterPartitionReassignmentsRequest>,
    ) -> Result<Response<v1::AlterPartitionReassignmentsResponse>, Status> {
        let request = request.into_inner();
        let forwarded = request.forwarded;
        let answer = match reassign::read_moves(request) {
            Err(condition) => Err(condition),
            Ok(wanted) if forwarded => self.local.reassign(wanted).await,
            Ok(wanted) => self.anywhere.reassign(wanted).await,
        };
        Ok(Response::new(reassign::write_moved(answer)))
    }

    async fn list_partition_reassignments(
        &self,
        request: Request<v1::ListPartitionReassignmentsRequest>,
    ) -> Result<Response<v1::ListPartitionReassignmentsResponse>, Status> {
        let request = request.into_inner();
        let answer = if request.forwarded {
            self.local.reassignments().await
        } else {
            self.anywhere.reassignments().await
        };
        let mut response = reassign::write_listed(answer);
        if request.progress {
            progress::ask_leaders(&self.view.image(), &mut response.partitions).await;
        }
        Ok(Response::new(response))
    }

    async fn describe_cluster(
        &self,
        _request: Request<v1::DescribeClusterRequest>,
    ) -> Result<Response<v1::DescribeClusterResponse>, Status> {
        let (image, cluster_id) = (self.view.image(), self.view.cluster_id());
        let mut response = describe::cluster(&image, &cluster_id, self.view.me());
        response.zookeeper_connected = self.anywhere.is_connected();
        Ok(Response::new(response))
    }

    async fn describe_topics(
        &self,
        request: Request<v1::DescribeTopicsRequest>,
    ) -> Result<Response<v1::DescribeTopicsResponse>, Status> {
        self.informed().await?;
        Ok(Response::new(describe::topics(&self.view.image(), &request.get_ref().names)))
    }

    // Not only once this broker knows the cluster: the ledger is for the times when that is in trouble.
    async fn list_losses(
        &self,
        request: Request<v1::ListLossesRequest>,
    ) -> Result<Response<v1::ListLossesResponse>, Status> {
        let ledger = self.ledger.clone();
        let listed = tokio::task::spawn_blocking(move || ledger.list(request.get_ref())).await;
        let listed = listed.map_err(|error| Status::internal(error.to_string()))?;
        Ok(Response::new(listed?))
    }

    async fn explain(
        &self,
        request: Request<v1::ExplainRequest>,
    ) -> Result<Response<v1::ExplainResponse>, Status> {
        Ok(Response::new(self.explains.explain(request.into_inner()).await?))
    }

    async fn log_levels(
        &self,
        request: Request<v1::LogLevelsRequest>,
    ) -> Result<Response<v1::LogLevelsResponse>, Status> {
        let answer = self.logs.log_levels(request.into_inner());
        Ok(Response::new(v1::LogLevelsResponse { broker_id: self.view.me().0, ..answer }))
    }
}

pub(super) fn write_new_topic(topic: &NewTopic, forwarded: bool) -> v1::CreateTopicRequest {
    let assignment = topic.assignment.iter().map(|(partition, brokers)| v1::Assignment {
        partition: *partition,
        brokers: brokers.iter().map(|id| id.0).collect(),
    });
    v1::CreateTopicRequest {
        name: topic.name.clone(),
        partitions: topic.partitions,
        replication_factor: topic.replication_factor,
        configs: topic.overrides.clone().into_iter().collect(),
        assignment: assignment.collect(),
        validate_only: topic.validate_only,
        forwarded,
    }
}

fn read_new_topic(request: v1::CreateTopicRequest) -> Result<NewTopic, Condition> {
    let mut topic = NewTopic {
        name: request.name,
        partitions: request.partitions,
        replication_factor: request.replication_factor,
        overrides: request.configs.into_iter().collect(),
        validate_only: request.validate_only,
        ..NewTopic::default()
    };
    for assignment in request.assignment {
        let brokers = assignment.brokers.into_iter().map(BrokerId).collect();
        if topic.assignment.insert(assignment.partition, brokers).is_some() {
            let text = format!("partition {} is assigned twice", assignment.partition);
            return Err(Condition::InvalidReplicaAssignment(text));
        }
    }
    Ok(topic)
}

fn write_created(
    name: String,
    answer: &Result<CreatedTopic, Condition>,
) -> v1::CreateTopicResponse {
    use v1::create_topic_response::Result as Outcome;
    let outcome = match answer {
        Ok(created) => Outcome::Created(v1::CreatedTopic {
            name,
            topic_id: created.topic_id.map(|id| id.0.to_vec()).unwrap_or_default(),
            partitions: created.partitions,
            replication_factor: created.replication_factor,
        }),
        Err(condition) => Outcome::Failure(condition.into()),
    };
    v1::CreateTopicResponse { result: Some(outcome) }
}

pub(super) fn read_created(response: &v1::CreateTopicResponse) -> Result<CreatedTopic, Condition> {
    use v1::create_topic_response::Result as Outcome;
    match &response.result {
        Some(Outcome::Created(created)) => Ok(CreatedTopic {
            topic_id: match created.topic_id.as_slice() {
                [] => None,
                bytes => Some(topic_id(bytes)?),
            },
            partitions: created.partitions,
            replication_factor: created.replication_factor,
        }),
        Some(Outcome::Failure(failure)) => Err(failure.clone().into()),
        None => Err(senseless()),
    }
}

fn write_deleted(name: String, answer: &Result<TopicId, Condition>) -> v1::DeleteTopicResponse {
    use v1::delete_topic_response::Result as Outcome;
    let outcome = match answer {
        // The life of the topic is over; its czxid is of no use to anybody any more.
        Ok(id) => Outcome::Deleted(v1::DeletedTopic {
            name,
            incarnation: Some(v1::Incarnation { topic_id: id.0.to_vec(), czxid: 0 }),
        }),
        Err(condition) => Outcome::Failure(condition.into()),
    };
    v1::DeleteTopicResponse { result: Some(outcome) }
}

pub(super) fn read_deleted(response: &v1::DeleteTopicResponse) -> Result<TopicId, Condition> {
    use v1::delete_topic_response::Result as Outcome;
    match &response.result {
        Some(Outcome::Deleted(deleted)) => {
            let incarnation = deleted.incarnation.as_ref().ok_or_else(senseless)?;
            topic_id(&incarnation.topic_id)
        }
        Some(Outcome::Failure(failure)) => Err(failure.clone().into()),
        None => Err(senseless()),
    }
}

fn topic_id(bytes: &[u8]) -> Result<TopicId, Condition> {
    bytes.try_into().map(TopicId).map_err(|_| senseless())
}

pub(super) fn senseless() -> Condition {
    Condition::UnknownOutcome("the controller's answer makes no sense")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn a_forwarded_creation_is_what_was_asked() {
        let topic = NewTopic {
            name: "t".into(),
            partitions: None,
            replication_factor: None,
            assignment: BTreeMap::from([(0, vec![BrokerId(1), BrokerId(2)])]),
            overrides: BTreeMap::from([("a".into(), "b".into())]),
            validate_only: true,
        };
        let message = write_new_topic(&topic, true);
        assert!(message.forwarded);
        assert_eq!(read_new_topic(message.clone()), Ok(topic));
        let mut twice = message;
        twice.assignment.push(twice.assignment[0].clone());
        assert!(matches!(read_new_topic(twice), Err(Condition::InvalidReplicaAssignment(_))));
    }

    #[test]
    fn answers_read_back_as_written() {
        let created =
            CreatedTopic { topic_id: Some(TopicId([3; 16])), partitions: 2, replication_factor: 3 };
        assert_eq!(read_created(&write_created("t".into(), &Ok(created))), Ok(created));
        let checked = CreatedTopic { topic_id: None, ..created };
        assert_eq!(read_created(&write_created("t".into(), &Ok(checked))), Ok(checked));
        let failed = Err(Condition::InvalidTopic("bad".into()));
        assert_eq!(read_created(&write_created("t".into(), &failed)), failed);
        assert_eq!(
            read_deleted(&write_deleted("t".into(), &Ok(TopicId([4; 16])))),
            Ok(TopicId([4; 16]))
        );
        assert!(read_deleted(&v1::DeleteTopicResponse { result: None }).is_err());
    }
}
