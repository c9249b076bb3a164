//! Asking the controller wherever it is: in this process, or over gRPC at the elected broker.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use barnabas_controller_core::{
    AlterConfig, AlterPartitionAnswer, AlteredConfig, CreatePartitions, DrainProgress,
    ElectLeaders, ElectLeadersAnswer, StopVerdict,
};
use barnabas_proto::convert::{IsrProposals, LeadersServed};
use barnabas_proto::v1;
use barnabas_proto::v1::admin_client::AdminClient;
use barnabas_proto::v1::controller_control_client::ControllerControlClient;
use barnabas_types::{
    BrokerEpoch, BrokerId, ClusterId, ClusterImage, Condition, ConfigEntity, FailedReplicas,
    Partition, Sanitised, TopicId, TopicImage, TopicPartition,
};
use tokio::sync::watch;
use tokio::time::Instant;
use tonic::transport::{Channel, Endpoint};

use super::handle::{ControllerHandle, CreatedTopic, NewTopic, ReplicaMoved, ReplicaMoves};
use super::{admin, control, draining, electing, partitions, reassign, settings};
use crate::membership::Membership;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
const KEEP_ALIVE: Duration = Duration::from_secs(2);
const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(4);
/// How long the elected broker may take to answer.
const CALL_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a creation or deletion waits for a controller to be elected before it is answered without having been tried.
const ELECTION_PATIENCE: Duration = Duration::from_secs(10);
/// How long an answered creation may wait until this broker knows the topic, too.
const VIEW_PATIENCE: Duration = Duration::from_secs(2);
/// How often the address of a newly elected controller is looked for.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// What the broker knows of the cluster, from the controller's last push.
pub trait ClusterView: Send + Sync + 'static {
    /// The image.
    fn image(&self) -> Arc<ClusterImage>;
    /// This broker.
    fn me(&self) -> BrokerId;
    /// The cluster.
    fn cluster_id(&self) -> ClusterId;
    /// This broker's settings in force, or (`cluster_default`) those that are stored for all brokers.
    fn settings(&self, cluster_default: bool) -> Vec<v1::BrokerSetting>;
    /// Changes with each new image.
    fn changes(&self) -> watch::Receiver<u64>;
}

/// Asks the controller, wherever it is. Cheap to clone.
#[derive(Clone)]
pub struct ControllerClient {
    local: ControllerHandle,
    membership: watch::Receiver<Membership>,
    view: Arc<dyn ClusterView>,
    /// The connection to the controller's address.
    channel: Arc<Mutex<Option<(String, Channel)>>>,
}

impl std::fmt::Debug for ControllerClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ControllerClient").field("me", &self.view.me()).finish_non_exhaustive()
    }
}

impl ControllerClient {
    /// A client for the broker whose view of the cluster is `view`.
    #[must_use]
    pub fn new(
        local: ControllerHandle,
        membership: watch::Receiver<Membership>,
        view: Arc<dyn ClusterView>,
    ) -> Self {
        Self { local, membership, view, channel: Arc::default() }
    }

    /// Proposes ISRs. Answers in the order of the proposals.
    ///
    /// # Errors
    /// [`Condition::NoController`] if nothing was sent; [`Condition::UnknownOutcome`] if it was, and no answer came: the
    /// proposals may yet be applied (R9).
    pub async fn alter_partitions(
        &self,
        proposals: IsrProposals,
    ) -> Result<Vec<AlterPartitionAnswer>, Condition> {
        if self.local.epoch().is_some() {
            return Ok(self.local.alter_partitions(proposals).await);
        }
        let channel = self.connected().await?;
        let count = proposals.proposals.len();
        let mut client = ControllerControlClient::new(channel);
        let response = self
            .called(client.alter_partition(v1::AlterPartitionRequest::from(&proposals)))
            .await?;
        let answers: Vec<AlterPartitionAnswer> =
            response.results.into_iter().map(control::read_answer).collect();
        if answers.len() != count {
            return Err(Condition::UnknownOutcome(
                "the controller answered another number of proposals",
            ));
        }
        Ok(answers)
    }

    /// Tells the controller which replicas of this broker cannot be served: all of them. Whoever calls this sends it again
    /// after every error, after each change and registration, and to each new controller ([`Membership::controller`]).
    ///
    /// # Errors
    /// As [`ControllerHandle::report_failed`]; [`Condition::NoController`] or [`Condition::UnknownOutcome`] as
    /// [`Self::alter_partitions`].
    pub async fn report_failed(&self, report: FailedReplicas) -> Result<(), Condition> {
        if self.local.epoch().is_some() {
            return self.local.report_failed(report).await;
        }
        let mut client = ControllerControlClient::new(self.connected().await?);
        let message = v1::FailedReplicas::from(&report);
        match self.called(client.report_failed_replicas(message)).await?.failure {
            None => Ok(()),
            Some(failure) => Err(failure.into()),
        }
    }

    /// Tells the controller of the first appends and acknowledgements of leaders here; it does no harm to tell it twice.
    ///
    /// # Errors
    /// As [`ControllerHandle::report_served`], or as [`Self::alter_partitions`].
    pub async fn report_served(&self, served: LeadersServed) -> Result<(), Condition> {
        if self.local.epoch().is_some() {
            return self.local.report_served(served).await;
        }
        let mut client = ControllerControlClient::new(self.connected().await?);
        let message = v1::LeadersServed::from(&served);
        match self.called(client.report_served(message)).await?.failure {
            None => Ok(()),
            Some(failure) => Err(failure.into()),
        }
    }

    /// Creates a topic; waits a little while nobody is controller, and then until this broker knows the topic, so that
    /// whoever asks it next finds what it was told.
    ///
    /// # Errors
    /// The controller's condition, or as [`Self::alter_partitions`].
    pub async fn create_topic(&self, topic: NewTopic) -> Result<CreatedTopic, Condition> {
        let attempt = || async {
            if self.local.epoch().is_some() {
                return self.local.create_topic(topic.clone()).await;
            }
            self.forward_create(&topic).await
        };
        let created = self.patiently(attempt).await?;
        if let Some(id) = created.topic_id {
            self.until_known(id).await;
        }
        Ok(created)
    }

    /// Asks again while nobody is controller, for as long as an election may take.
    async fn patiently<T, F>(&self, attempt: impl Fn() -> F) -> Result<T, Condition>
    where
        F: Future<Output = Result<T, Condition>>,
    {
        let deadline = Instant::now() + ELECTION_PATIENCE;
        loop {
            match attempt().await {
                Err(condition) if not_tried(&condition) && Instant::now() < deadline => {
                    self.look_again().await;
                }
                // Whoever asked is told about the cluster, not about this broker.
                Err(Condition::NotController) => return Err(Condition::NoController),
                answer => return answer,
            }
        }
    }

    /// Whether this broker has its connection to ZooKeeper.
    pub(super) fn is_connected(&self) -> bool {
        self.membership.borrow().connected
    }

    /// Whether a controller has told this broker of the cluster; waits for it as long as for an election.
    pub(super) async fn is_informed(&self) -> bool {
        let mut changes = self.view.changes();
        let deadline = Instant::now() + ELECTION_PATIENCE;
        loop {
            changes.mark_unchanged();
            if self.view.image().controller.is_some() {
                return true;
            }
            match tokio::time::timeout_at(deadline, changes.changed()).await {
                Ok(Ok(())) => {}
                Ok(Err(_)) | Err(_) => return false,
            }
        }
    }

    /// Until the topic is in this broker's view; the creation is done either way.
    async fn until_known(&self, id: TopicId) {
        self.until_shown(|image| {
            image.topics.values().any(|topic| topic.incarnation.topic_id == id)
        })
        .await;
    }

    async fn until_shown(&self, shown: impl Fn(&ClusterImage) -> bool) {
        let mut changes = self.view.changes();
        let deadline = Instant::now() + VIEW_PATIENCE;
        loop {
            changes.mark_unchanged();
            if shown(&self.view.image()) {
                return;
            }
            match tokio::time::timeout_at(deadline, changes.changed()).await {
                Ok(Ok(())) => {}
                Ok(Err(_)) | Err(_) => return,
            }
        }
    }

    /// Deletes a topic; waits a little while nobody is controller.
    ///
    /// # Errors
    /// As [`Self::create_topic`].
    pub async fn delete_topic(&self, name: &str) -> Result<TopicId, Condition> {
        self.patiently(|| async {
            if self.local.epoch().is_some() {
                return self.local.delete_topic(name).await;
            }
            self.forward_delete(name).await
        })
        .await
    }

    /// Adds partitions to a topic; waits a little while nobody is controller, and then until this broker knows them.
    ///
    /// # Errors
    /// As [`Self::create_topic`].
    pub async fn create_partitions(&self, create: CreatePartitions) -> Result<i32, Condition> {
        let attempt = || async {
            if self.local.epoch().is_some() {
                return self.local.create_partitions(create.clone()).await;
            }
            self.forward_create_partitions(&create).await
        };
        let total = self.patiently(attempt).await?;
        if !create.validate_only {
            self.until_shown(|image| {
                let topic = image.topics.get(&create.name);
                let known = |topic: &TopicImage| i32::try_from(topic.partitions.len());
                topic.is_none_or(|topic| known(topic).is_ok_and(|known| known >= total))
            })
            .await;
        }
        Ok(total)
    }

    /// Changes settings; waits a little while nobody is controller, and then until this broker knows the new ones.
    ///
    /// # Errors
    /// As [`Self::create_topic`].
    pub async fn alter_config(&self, alter: AlterConfig) -> Result<AlteredConfig, Condition> {
        let attempt = || async {
            if self.local.epoch().is_some() {
                return self.local.alter_config(alter.clone()).await;
            }
            self.forward_alter(&alter).await
        };
        let altered = self.patiently(attempt).await?;
        if !alter.validate_only {
            self.until_in_force(&alter.entity, &altered).await;
        }
        Ok(altered)
    }

    /// Begins, changes or cancels moves of replicas; waits a little while nobody is controller.
    ///
    /// # Errors
    /// Nothing was tried; as [`ControllerHandle::reassign`], or as [`Self::alter_partitions`].
    pub async fn reassign(&self, wanted: ReplicaMoves) -> Result<Vec<ReplicaMoved>, Condition> {
        self.patiently(|| async {
            if self.local.epoch().is_some() {
                return self.local.reassign(wanted.clone()).await;
            }
            self.forward_reassign(&wanted).await
        })
        .await
    }

    /// The partitions whose replicas are being moved; waits a little while nobody is controller.
    ///
    /// # Errors
    /// As [`Self::alter_partitions`].
    pub async fn reassignments(&self) -> Result<BTreeMap<TopicPartition, Partition>, Condition> {
        self.patiently(|| async {
            if self.local.epoch().is_some() {
                return self.local.reassignments().await;
            }
            self.forward_reassignments().await
        })
        .await
    }

    /// Until the settings are in this broker's view; they are stored either way.
    async fn until_in_force(&self, entity: &ConfigEntity, altered: &AlteredConfig) {
        self.until_shown(|image| match entity {
            ConfigEntity::Topic(name) => {
                let topic = image.topics.get(name);
                topic.is_none_or(|topic| topic.overrides == altered.overrides)
            }
            ConfigEntity::Broker(broker) => {
                let shown = image.broker_settings.get(broker);
                shown.map_or(altered.overrides.is_empty(), |shown| *shown == altered.overrides)
            }
        })
        .await;
    }

    /// A block of producer ids that nobody else has; not the controller's business, but asked at the same place.
    ///
    /// # Errors
    /// [`Condition::NoController`] while ZooKeeper cannot be reached.
    pub async fn producer_ids(&self) -> Result<Range<i64>, Condition> {
        self.local.producer_ids().await
    }

    /// Lets the registration of this broker say that it drains, or no longer does. [`Self::drain`] tells the controller.
    ///
    /// # Errors
    /// [`Condition::NoController`] while the broker is not registered or ZooKeeper cannot be reached; try again.
    pub async fn mark_draining(&self, draining: bool) -> Result<BrokerEpoch, Condition> {
        self.local.mark_draining(draining).await
    }

    /// How far this broker, which is marked so under `broker_epoch`, has come (R26).
    ///
    /// # Errors
    /// [`Condition::StaleBrokerEpoch`] if it is registered anew, [`Condition::InvalidRequest`] if its registration says
    /// otherwise; [`Condition::NoController`] or [`Condition::UnknownOutcome`] as [`Self::alter_partitions`].
    pub async fn drain(
        &self,
        broker_epoch: BrokerEpoch,
        draining: bool,
    ) -> Result<DrainProgress, Condition> {
        let broker = self.view.me();
        if self.local.epoch().is_some() {
            return self.local.drain((broker, broker_epoch), draining).await;
        }
        let mut client = ControllerControlClient::new(self.connected().await?);
        let request =
            v1::DrainRequest { broker_id: broker.0, broker_epoch: broker_epoch.0, draining };
        draining::read_progress(self.called(client.drain(request)).await?)
    }

    /// Drains or undrains a broker, this one or another, on behalf of an operator.
    ///
    /// # Errors
    /// [`Condition::InvalidRequest`] if it is not registered; as [`Self::mark_draining`] and [`Self::drain`]; what another broker
    /// says, or [`Condition::UnknownOutcome`] if it does not answer. The same again does no harm.
    pub async fn set_broker_draining(
        &self,
        broker: BrokerId,
        draining: bool,
    ) -> Result<DrainProgress, Condition> {
        if broker == self.view.me() {
            return self.set_draining(draining).await;
        }
        self.set_draining_of(broker, draining).await
    }

    /// Drains or undrains this broker on behalf of an operator: marks the registration, then tells the controller.
    ///
    /// # Errors
    /// As [`Self::mark_draining`] and [`Self::drain`]. The mark may stand all the same; the same again does no harm.
    async fn set_draining(&self, draining: bool) -> Result<DrainProgress, Condition> {
        let deadline = Instant::now() + ELECTION_PATIENCE;
        loop {
            let answer = match self.mark_draining(draining).await {
                Ok(epoch) => self.drain(epoch, draining).await,
                Err(condition) => Err(condition),
            };
            match answer {
                Err(condition) if repeatable(&condition) && Instant::now() < deadline => {
                    self.look_again().await;
                }
                Err(Condition::NotController) => return Err(Condition::NoController),
                answer => return answer,
            }
        }
    }

    /// The same for another broker, by asking it.
    ///
    /// # Errors
    /// [`Condition::InvalidRequest`] if it is not registered, [`Condition::UnknownOutcome`] if it does not answer; what it
    /// says.
    async fn set_draining_of(
        &self,
        broker: BrokerId,
        draining: bool,
    ) -> Result<DrainProgress, Condition> {
        let known = self.view.image().brokers.get(&broker).map(|b| b.control_address.clone());
        let address = known.ok_or_else(|| {
            Condition::InvalidRequest(format!(
                "broker {broker} is not registered; see who is with: barnabas broker list"
            ))
        })?;
        let unanswered = || Condition::UnknownOutcome("the broker has not answered");
        let channel = endpoint(&address).ok_or_else(unanswered)?;
        let channel = channel.connect().await.map_err(|_| unanswered())?;
        let request =
            v1::SetBrokerDrainingRequest { broker_id: broker.0, draining, forwarded: true };
        let answer = AdminClient::new(channel).set_broker_draining(request).await;
        draining::read_progress(answer.map_err(|_| unanswered())?.into_inner())
    }

    /// Whether a broker may be stopped.
    ///
    /// # Errors
    /// It is not registered; [`Condition::NoController`] or [`Condition::UnknownOutcome`].
    pub async fn can_stop(&self, broker: BrokerId) -> Result<StopVerdict, Condition> {
        let deadline = Instant::now() + ELECTION_PATIENCE;
        loop {
            let answer = if self.local.epoch().is_some() {
                self.local.can_stop(broker).await
            } else {
                self.forward_can_stop(broker).await
            };
            match answer {
                Err(condition) if repeatable(&condition) && Instant::now() < deadline => {
                    self.look_again().await;
                }
                Err(Condition::NotController) => return Err(Condition::NoController),
                answer => return answer,
            }
        }
    }

    /// Elects leaders; waits a little while nobody is controller.
    ///
    /// # Errors
    /// As [`Self::create_topic`].
    pub async fn elect_leaders(
        &self,
        elect: ElectLeaders,
    ) -> Result<ElectLeadersAnswer, Condition> {
        self.patiently(|| async {
            if self.local.epoch().is_some() {
                return self.local.elect_leaders(elect.clone()).await;
            }
            self.forward_elect(&elect).await
        })
        .await
    }

    async fn forward_can_stop(&self, broker: BrokerId) -> Result<StopVerdict, Condition> {
        let mut client = AdminClient::new(self.connected().await?);
        let request = v1::CanStopBrokerRequest { broker_id: broker.0, forwarded: true };
        draining::read_verdict(self.called(client.can_stop_broker(request)).await?)
    }

    async fn forward_elect(&self, elect: &ElectLeaders) -> Result<ElectLeadersAnswer, Condition> {
        let mut client = AdminClient::new(self.connected().await?);
        let request = electing::write_elect(elect, true);
        electing::read_elected(self.called(client.elect_leaders(request)).await?)
    }

    async fn forward_create(&self, topic: &NewTopic) -> Result<CreatedTopic, Condition> {
        let mut client = AdminClient::new(self.connected().await?);
        let request = admin::write_new_topic(topic, true);
        admin::read_created(&self.called(client.create_topic(request)).await?)
    }

    async fn forward_create_partitions(&self, create: &CreatePartitions) -> Result<i32, Condition> {
        let mut client = AdminClient::new(self.connected().await?);
        let request = partitions::write_create(create, true);
        partitions::read_created(self.called(client.create_partitions(request)).await?)
    }

    async fn forward_alter(&self, alter: &AlterConfig) -> Result<AlteredConfig, Condition> {
        let mut client = AdminClient::new(self.connected().await?);
        let request = settings::write_alter(alter, true);
        settings::read_altered(self.called(client.alter_config(request)).await?)
    }

    async fn forward_reassign(
        &self,
        wanted: &ReplicaMoves,
    ) -> Result<Vec<ReplicaMoved>, Condition> {
        let mut client = AdminClient::new(self.connected().await?);
        let request = reassign::write_moves(wanted, true);
        reassign::read_moved(self.called(client.alter_partition_reassignments(request)).await?)
    }

    async fn forward_reassignments(
        &self,
    ) -> Result<BTreeMap<TopicPartition, Partition>, Condition> {
        let mut client = AdminClient::new(self.connected().await?)
            .max_decoding_message_size(barnabas_proto::PUSH_BYTES_MAX);
        let request = v1::ListPartitionReassignmentsRequest { progress: false, forwarded: true };
        reassign::read_listed(self.called(client.list_partition_reassignments(request)).await?)
    }

    async fn forward_delete(&self, name: &str) -> Result<TopicId, Condition> {
        let mut client = AdminClient::new(self.connected().await?);
        let request = v1::DeleteTopicRequest { name: name.to_owned(), forwarded: true };
        admin::read_deleted(&self.called(client.delete_topic(request)).await?)
    }

    /// Until the membership changes, or the image may know the controller's address.
    async fn look_again(&self) {
        let mut membership = self.membership.clone();
        membership.mark_unchanged();
        let _ = tokio::time::timeout(LOOK_AGAIN, membership.changed()).await;
    }

    fn address(&self) -> Option<String> {
        let image = self.view.image();
        let elected = self.membership.borrow().controller.or(image.controller);
        let (controller, _) = elected.filter(|(id, _)| *id != self.view.me())?;
        image.brokers.get(&controller).map(|broker| broker.control_address.clone())
    }

    /// A connection to the controller. Nothing was sent if there is none.
    async fn connected(&self) -> Result<Channel, Condition> {
        let address = self.address().ok_or(Condition::NoController)?;
        let known = self.channel.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some((_, channel)) = known.filter(|(known, _)| *known == address) {
            return Ok(channel);
        }
        let endpoint = endpoint(&address).ok_or(Condition::NoController)?;
        let channel = endpoint.connect().await.map_err(|_| Condition::NoController)?;
        let entry = Some((address, channel.clone()));
        *self.channel.lock().unwrap_or_else(PoisonError::into_inner) = entry;
        Ok(channel)
    }

    /// A call's answer. After a failure the connection is dropped, so that the next one begins with a dial.
    async fn called<T>(
        &self,
        call: impl Future<Output = Result<tonic::Response<T>, tonic::Status>>,
    ) -> Result<T, Condition> {
        match call.await {
            Ok(response) => Ok(response.into_inner()),
            Err(status) => {
                self.channel.lock().unwrap_or_else(PoisonError::into_inner).take();
                tracing::debug!(target: "controller", code = ?status.code(), message = %Sanitised::sentence(status.message()), "call to the controller failed");
                match status.code() {
                    tonic::Code::InvalidArgument => {
                        Err(Condition::InvalidRequest(status.message().to_owned()))
                    }
                    _ => Err(Condition::UnknownOutcome("the connection to the controller broke")),
                }
            }
        }
    }
}

/// How another broker is reached; `None`: that is no address.
fn endpoint(address: &str) -> Option<Endpoint> {
    let endpoint = Endpoint::from_shared(format!("http://{address}")).ok()?;
    Some(
        endpoint
            .tcp_nodelay(true)
            .connect_timeout(CONNECT_TIMEOUT)
            .timeout(CALL_TIMEOUT)
            .http2_keep_alive_interval(KEEP_ALIVE)
            .keep_alive_timeout(KEEP_ALIVE_TIMEOUT),
    )
}

/// Whether what changes nothing, or does no harm if it is done twice, may be asked again.
fn repeatable(condition: &Condition) -> bool {
    not_tried(condition) || matches!(condition, Condition::UnknownOutcome(_))
}

/// Whether the condition says that nothing was attempted, so that another attempt is harmless.
fn not_tried(condition: &Condition) -> bool {
    matches!(condition, Condition::NotController | Condition::NoController)
}
