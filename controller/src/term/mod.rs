//! One term of the controller: a single task owns the core, feeds it events in order and performs its effects.

mod owner;
mod push;
mod timeline;
mod waiters;
mod writes;

use std::collections::BTreeMap;
use std::sync::Arc;

use barnabas_controller_core::{
    AlterConfig, AlterConfigAnswer, AlterPartition, AlterPartitionAnswer, CreatePartitions,
    CreatePartitionsAnswer, CreateTopic, CreateTopicAnswer, Defaults, DrainProgress, ElectLeaders,
    ElectLeadersAnswer, Reassign, StopVerdict,
};
use barnabas_proto::convert::LeadersServed;
use barnabas_proto::v1;
use barnabas_types::{
    BrokerEpoch, BrokerId, Condition, ControllerEpoch, FailedReplicas, Partition, TopicId,
    TopicName, TopicPartition,
};
use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio::task::JoinHandle;

use crate::predecessor::Lost;
use crate::service::Rebalance;
use crate::zookeeper::ZooKeeper;

/// Most requests and acknowledgements that wait for the owner task; whoever comes later waits for room.
const INBOX_MAX: usize = 1024;

/// What comes to the owner task from outside.
#[derive(Debug)]
pub(crate) enum TermEvent {
    Alter(AlterPartition, oneshot::Sender<AlterPartitionAnswer>),
    Create(CreateTopic, oneshot::Sender<CreateTopicAnswer>),
    Delete(TopicName, oneshot::Sender<Result<TopicId, Condition>>),
    CreatePartitions(CreatePartitions, oneshot::Sender<CreatePartitionsAnswer>),
    AlterConfig(AlterConfig, oneshot::Sender<AlterConfigAnswer>),
    Failed(FailedReplicas, oneshot::Sender<Result<(), Condition>>),
    /// A broker and its epoch; what its registration says now.
    Drain((BrokerId, BrokerEpoch), bool, oneshot::Sender<Result<DrainProgress, Condition>>),
    CanStop(BrokerId, oneshot::Sender<Result<StopVerdict, Condition>>),
    Elect(ElectLeaders, oneshot::Sender<Result<ElectLeadersAnswer, Condition>>),
    Reassign(TopicPartition, Reassign, oneshot::Sender<Result<(), Condition>>),
    Reassignments(oneshot::Sender<Result<Reassignments, Condition>>),
    Resize(TopicName, i32, oneshot::Sender<Result<BTreeMap<i32, Vec<BrokerId>>, Condition>>),
    Push(push::Ready),
    /// Nothing can be told at present to this incarnation of a broker.
    PushBroken(BrokerId, BrokerEpoch),
    /// The ports of this incarnation of a broker refuse connections.
    Gone(BrokerId, BrokerEpoch),
    /// New leaders tell what they have done; for the timeline alone.
    Served(LeadersServed),
}

/// Partitions whose replicas are being moved.
pub(crate) type Reassignments = BTreeMap<TopicPartition, Partition>;

/// How other tasks reach the term.
#[derive(Clone, Debug)]
pub(crate) struct TermHandle {
    pub(crate) epoch: ControllerEpoch,
    pub(crate) inbox: mpsc::Sender<TermEvent>,
}

/// A term under way, as its beginner holds it.
pub(crate) struct RunningTerm {
    handle: TermHandle,
    paused: watch::Sender<bool>,
    brokers_changed: Arc<Notify>,
    configs_changed: Arc<Notify>,
    task: JoinHandle<()>,
}

impl RunningTerm {
    pub(crate) fn handle(&self) -> TermHandle {
        self.handle.clone()
    }

    /// While paused, nothing is decided, written or newly pushed; requests wait.
    pub(crate) fn pause(&self, paused: bool) {
        self.paused.send_replace(paused);
    }

    /// The registrations must be read again.
    pub(crate) fn brokers_changed(&self) {
        self.brokers_changed.notify_one();
    }

    /// Others may have changed settings.
    pub(crate) fn configs_changed(&self) {
        self.configs_changed.notify_one();
    }

    /// Ends when the term ends by itself.
    pub(crate) async fn ended(&mut self) {
        if let Err(error) = (&mut self.task).await {
            tracing::error!(
                target: "controller", controller_epoch = self.handle.epoch.0, %error,
                "the controller's task failed; resigning"
            );
        }
    }

    /// Ends it and everything that it started. Returns when nothing of it runs any more.
    pub(crate) async fn end(self) {
        self.task.abort();
        let _ = self.task.await;
    }
}

/// What a term begins with.
pub(crate) struct Beginning<Z> {
    pub(crate) me: BrokerId,
    pub(crate) epoch: ControllerEpoch,
    /// Every write checks `/controller_epoch` at this version.
    pub(crate) epoch_version: i32,
    pub(crate) client: Z,
    pub(crate) defaults: Defaults,
    pub(crate) rebalance: Option<Rebalance>,
    /// `failover.suspicion.enable`.
    pub(crate) suspicion: bool,
    /// The controller before, as far as this broker saw it go.
    pub(crate) lost: Option<Lost>,
    /// Takes the records of failovers.
    pub(crate) failovers: mpsc::Sender<v1::Failover>,
}

/// Begins a term.
pub(crate) fn begin<Z: ZooKeeper>(beginning: Beginning<Z>) -> RunningTerm {
    let epoch = beginning.epoch;
    let (sender, inbox) = mpsc::channel(INBOX_MAX);
    let paused = watch::Sender::new(false);
    let brokers_changed = Arc::new(Notify::new());
    let configs_changed = Arc::new(Notify::new());
    let owner = owner::Owner::new(owner::Setting {
        beginning,
        inbox,
        to_inbox: sender.clone(),
        paused: paused.subscribe(),
        brokers_changed: Arc::clone(&brokers_changed),
        configs_changed: Arc::clone(&configs_changed),
    });
    let task = tokio::spawn(owner.run());
    RunningTerm {
        handle: TermHandle { epoch, inbox: sender },
        paused,
        brokers_changed,
        configs_changed,
        task,
    }
}
