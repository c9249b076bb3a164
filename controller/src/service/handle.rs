//! Asking the controller of this process, if it is the elected one.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

use barnabas_controller_core::{
    AlterConfig, AlterPartition, AlterPartitionAnswer, AlteredConfig, CreatePartitions,
    CreateTopic, DrainProgress, ElectLeaders, ElectLeadersAnswer, Reassign, StopVerdict,
};
use barnabas_proto::convert::{IsrProposals, LeadersServed};
use barnabas_types::{
    BrokerEpoch, BrokerId, Condition, ControllerEpoch, FailedReplicas, Partition, TopicId,
    TopicName, TopicPartition,
};
use tokio::sync::{mpsc, oneshot, watch};

use crate::membership::Asked;
use crate::open::random_id;
use crate::term::{TermEvent, TermHandle};

/// How long a request may wait for the controller.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

/// A topic to create, as a user asks for it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct NewTopic {
    /// Name, not checked yet.
    pub name: String,
    /// Number of partitions; `None`: `num.partitions`.
    pub partitions: Option<i32>,
    /// Replication factor; `None`: `default.replication.factor`.
    pub replication_factor: Option<i32>,
    /// Manual assignment by partition index; the two above are then absent.
    pub assignment: BTreeMap<i32, Vec<BrokerId>>,
    /// Settings as typed.
    pub overrides: BTreeMap<String, String>,
    /// Only check.
    pub validate_only: bool,
}

/// What was created (or would be, with `validate_only`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CreatedTopic {
    /// Its id; none if it was only checked.
    pub topic_id: Option<TopicId>,
    /// Its partitions.
    pub partitions: i32,
    /// Replicas of each.
    pub replication_factor: i32,
}

/// Moves of replicas, as a user asks for them (KIP-455).
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ReplicaMoves {
    /// Topic (not checked yet), partition and wish of each.
    Partitions(Vec<(String, i32, Reassign)>),
    /// All partitions of a topic get this replication factor; the controller chooses the brokers.
    ReplicationFactor {
        /// Topic, not checked yet.
        topic: String,
        /// Replicas of each partition afterwards.
        replication_factor: i32,
        /// As in [`Reassign::To`].
        throttle: Option<u64>,
    },
}

/// What became of one of them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReplicaMoved {
    /// Topic, as in the request.
    pub topic: String,
    /// Partition.
    pub partition: i32,
    /// Stored, or why not.
    pub outcome: Result<(), Condition>,
}

/// The controller, while this process is it. Cheap to clone.
#[derive(Clone, Debug)]
pub struct ControllerHandle {
    term: watch::Receiver<Option<TermHandle>>,
    session: mpsc::Sender<Asked>,
}

impl ControllerHandle {
    pub(crate) fn new(
        term: watch::Receiver<Option<TermHandle>>,
        session: mpsc::Sender<Asked>,
    ) -> Self {
        Self { term, session }
    }

    /// The handle of a process that is never the controller and has no session: for tests of what surrounds it.
    #[must_use]
    pub fn absent() -> Self {
        Self { term: watch::channel(None).1, session: mpsc::channel(1).0 }
    }

    /// Takes a block of producer ids from ZooKeeper, in this process's own session: it needs no controller.
    ///
    /// # Errors
    /// [`Condition::NoController`] while there is no session with ZooKeeper (a block may be lost, none is given twice).
    pub(crate) async fn producer_ids(&self) -> Result<Range<i64>, Condition> {
        let (answer, taken) = oneshot::channel();
        let asked = async {
            self.session.send(Asked::ProducerIds(answer)).await.ok()?;
            taken.await.ok()
        };
        match tokio::time::timeout(ANSWER_TIMEOUT, asked).await {
            Ok(Some(Ok(block))) => Ok(block),
            Ok(Some(Err(error))) => {
                tracing::warn!(target: "controller", %error, "no producer ids");
                Err(Condition::NoController)
            }
            Ok(None) => Err(Condition::NoController),
            Err(_) => Err(Condition::RequestTimedOut),
        }
    }

    /// The term, while this process is the controller.
    #[must_use]
    pub fn epoch(&self) -> Option<ControllerEpoch> {
        self.term.borrow().as_ref().map(|term| term.epoch)
    }

    fn term(&self) -> Result<TermHandle, Condition> {
        self.term.borrow().clone().ok_or(Condition::NotController)
    }

    /// Puts ISR proposals of one leader before the controller. Answers in the order of the proposals.
    ///
    /// A proposal that was not answered because the controller lost its office or was too slow has an unknown outcome for
    /// the leader, whatever the condition says (R9).
    pub async fn alter_partitions(&self, proposals: IsrProposals) -> Vec<AlterPartitionAnswer> {
        let mut waiting = Vec::with_capacity(proposals.proposals.len());
        for proposal in proposals.proposals {
            let proposal = AlterPartition {
                leader: proposals.leader,
                broker_epoch: proposals.broker_epoch,
                partition: proposal.partition,
                incarnation: proposal.incarnation,
                leader_epoch: proposal.leader_epoch,
                partition_epoch: proposal.partition_epoch,
                isr: proposal.isr,
            };
            waiting.push(self.submit(|answer| TermEvent::Alter(proposal, answer)).await);
        }
        let mut answers = Vec::with_capacity(waiting.len());
        for answer in waiting {
            answers.push(match answer {
                Ok(answer) => answered(answer, Condition::NotController).await,
                Err(condition) => Err(condition),
            });
        }
        answers
    }

    /// Creates a topic.
    ///
    /// # Errors
    /// What is wrong with it; [`Condition::NotController`] if this process is not the controller, and
    /// [`Condition::UnknownOutcome`] if it ceased to be while it worked on it.
    pub async fn create_topic(&self, topic: NewTopic) -> Result<CreatedTopic, Condition> {
        self.term()?;
        let name = TopicName::new(&topic.name)
            .map_err(|error| Condition::InvalidTopic(error.to_string()))?;
        let topic_id = TopicId(random_id().map_err(Condition::InvalidRequest)?);
        let validate_only = topic.validate_only;
        let topic = CreateTopic {
            name,
            topic_id,
            partitions: topic.partitions,
            replication_factor: topic.replication_factor,
            assignment: topic.assignment,
            overrides: topic.overrides,
            validate_only,
        };
        let answer = self.submit(|answer| TermEvent::Create(topic, answer)).await?;
        let lost = Condition::UnknownOutcome("the controller changed while it created the topic");
        let (topic_id, partitions, replication_factor) = answered(answer, lost).await?;
        let topic_id = (!validate_only).then_some(topic_id);
        Ok(CreatedTopic { topic_id, partitions, replication_factor })
    }

    /// Deletes a topic.
    ///
    /// # Errors
    /// As [`Self::create_topic`].
    pub async fn delete_topic(&self, name: &str) -> Result<TopicId, Condition> {
        self.term()?;
        let name =
            TopicName::new(name).map_err(|error| Condition::InvalidTopic(error.to_string()))?;
        let answer = self.submit(|answer| TermEvent::Delete(name, answer)).await?;
        let lost = Condition::UnknownOutcome("the controller changed while it deleted the topic");
        answered(answer, lost).await
    }

    /// Adds partitions to a topic; how many it has then.
    ///
    /// # Errors
    /// As [`Self::create_topic`].
    pub async fn create_partitions(&self, create: CreatePartitions) -> Result<i32, Condition> {
        let answer = self.submit(|answer| TermEvent::CreatePartitions(create, answer)).await?;
        let lost =
            Condition::UnknownOutcome("the controller changed while it added the partitions");
        answered(answer, lost).await
    }

    /// Changes settings. Returns when they are stored and everybody concerned has confirmed them, or has not
    /// for some seconds.
    ///
    /// # Errors
    /// As [`Self::create_topic`].
    pub async fn alter_config(&self, alter: AlterConfig) -> Result<AlteredConfig, Condition> {
        let answer = self.submit(|answer| TermEvent::AlterConfig(alter, answer)).await?;
        let lost =
            Condition::UnknownOutcome("the controller changed while it altered the settings");
        answered(answer, lost).await
    }

    /// Begins, changes or cancels moves of replicas. Each partition has its own answer, in the order of the request.
    ///
    /// # Errors
    /// Nothing was tried: [`Condition::NotController`], or a whole topic is to be changed and cannot be.
    pub async fn reassign(&self, wanted: ReplicaMoves) -> Result<Vec<ReplicaMoved>, Condition> {
        self.term()?;
        let moves = match wanted {
            ReplicaMoves::Partitions(moves) => moves,
            ReplicaMoves::ReplicationFactor { topic, replication_factor, throttle } => {
                let name = TopicName::new(&topic)
                    .map_err(|error| Condition::InvalidTopic(error.to_string()))?;
                let resize =
                    self.submit(|answer| TermEvent::Resize(name, replication_factor, answer));
                let targets = answered(resize.await?, Condition::NotController).await?;
                let to = |replicas| Reassign::To { replicas, throttle };
                let moves = targets.into_iter().map(|(index, to_)| (topic.clone(), index, to(to_)));
                moves.collect()
            }
        };
        let mut waiting = Vec::with_capacity(moves.len());
        for (topic, partition, wish) in moves {
            let answer = match TopicName::new(&topic) {
                Ok(name) => {
                    let at = TopicPartition { topic: name, partition };
                    self.submit(|answer| TermEvent::Reassign(at, wish, answer)).await
                }
                // Such a topic cannot exist.
                Err(_) => Err(Condition::UnknownTopicOrPartition),
            };
            waiting.push((topic, partition, answer));
        }
        let mut results = Vec::with_capacity(waiting.len());
        for (topic, partition, answer) in waiting {
            let lost = Condition::UnknownOutcome("the controller changed meanwhile");
            let outcome = match answer {
                Ok(answer) => answered(answer, lost).await,
                Err(condition) => Err(condition),
            };
            results.push(ReplicaMoved { topic, partition, outcome });
        }
        Ok(results)
    }

    /// The partitions whose replicas are being moved: with the replicas of both ends, and what is being added and removed.
    ///
    /// # Errors
    /// [`Condition::NotController`].
    pub async fn reassignments(&self) -> Result<BTreeMap<TopicPartition, Partition>, Condition> {
        answered(self.submit(TermEvent::Reassignments).await?, Condition::NotController).await
    }

    /// Takes a broker's report of the replicas that it cannot serve.
    ///
    /// # Errors
    /// [`Condition::StaleBrokerEpoch`] if the controller knows another registration (or not yet this one),
    /// [`Condition::InvalidRequest`] if it has taken a newer report, [`Condition::NotController`].
    pub async fn report_failed(&self, report: FailedReplicas) -> Result<(), Condition> {
        let answer = self.submit(|answer| TermEvent::Failed(report, answer)).await?;
        answered(answer, Condition::NotController).await
    }

    /// Takes what new leaders tell of their first append and acknowledgement, for the timeline.
    ///
    /// # Errors
    /// [`Condition::NotController`].
    pub async fn report_served(&self, served: LeadersServed) -> Result<(), Condition> {
        let term = self.term()?;
        let sent = term.inbox.send(TermEvent::Served(served)).await;
        sent.map_err(|_| Condition::NotController)
    }

    /// Lets the registration of this broker say that it drains, or no longer does (R25). The controller has to be told:
    /// [`Self::drain`].
    ///
    /// # Errors
    /// [`Condition::NoController`] while the broker is not registered (it may be in a moment), or the mark could not be made.
    pub(crate) async fn mark_draining(&self, draining: bool) -> Result<BrokerEpoch, Condition> {
        let (answer, marked) = oneshot::channel();
        let asked = async {
            self.session.send(Asked::Draining(draining, answer)).await.ok()?;
            marked.await.ok()
        };
        match tokio::time::timeout(ANSWER_TIMEOUT, asked).await {
            Ok(epoch) => epoch.ok_or(Condition::NoController),
            Err(_) => Err(Condition::RequestTimedOut),
        }
    }

    /// How far a broker whose registration says `draining` has come (R26).
    ///
    /// # Errors
    /// [`Condition::StaleBrokerEpoch`] if it is registered anew, [`Condition::InvalidRequest`] if it is not draining,
    /// [`Condition::NotController`].
    pub(crate) async fn drain(
        &self,
        broker: (BrokerId, BrokerEpoch),
        draining: bool,
    ) -> Result<DrainProgress, Condition> {
        let answer = self.submit(|answer| TermEvent::Drain(broker, draining, answer)).await?;
        answered(answer, Condition::NotController).await
    }

    /// Whether a broker may be stopped.
    ///
    /// # Errors
    /// It is not registered; [`Condition::NotController`].
    pub(crate) async fn can_stop(&self, broker: BrokerId) -> Result<StopVerdict, Condition> {
        let answer = self.submit(|answer| TermEvent::CanStop(broker, answer)).await?;
        answered(answer, Condition::NotController).await
    }

    /// Elects leaders.
    ///
    /// # Errors
    /// [`Condition::NotController`]; [`Condition::UnknownOutcome`] if this process ceased to be the controller meanwhile.
    pub(crate) async fn elect_leaders(
        &self,
        elect: ElectLeaders,
    ) -> Result<ElectLeadersAnswer, Condition> {
        let answer = self.submit(|answer| TermEvent::Elect(elect, answer)).await?;
        let lost = Condition::UnknownOutcome("the controller changed while it elected leaders");
        answered(answer, lost).await
    }

    async fn submit<T>(
        &self,
        event: impl FnOnce(oneshot::Sender<T>) -> TermEvent,
    ) -> Result<oneshot::Receiver<T>, Condition> {
        let term = self.term()?;
        let (sender, receiver) = oneshot::channel();
        match tokio::time::timeout(ANSWER_TIMEOUT, term.inbox.send(event(sender))).await {
            Ok(Ok(())) => Ok(receiver),
            Ok(Err(_)) => Err(Condition::NotController),
            Err(_) => Err(Condition::RequestTimedOut),
        }
    }
}

async fn answered<T>(
    answer: oneshot::Receiver<Result<T, Condition>>,
    lost: Condition,
) -> Result<T, Condition> {
    match tokio::time::timeout(ANSWER_TIMEOUT, answer).await {
        Ok(Ok(answer)) => answer,
        Ok(Err(_)) => Err(lost),
        Err(_) => Err(Condition::UnknownOutcome("the controller has not answered")),
    }
}
