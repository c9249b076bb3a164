//! The one owner of this broker's desired state: applies pushes, opens and deletes replicas, keeps tombstones.
//!
//! All of it is blocking file work, so the task hands each piece to a blocking thread and waits for it; pieces never
//! run at the same time. The rules: R4 (which pushes are obeyed), R7 (when the lost-tail mark goes), R22 (which
//! deletes are obeyed, tombstones), R27 and R28 (incarnations and stray directories).

mod apply;
mod failed;
mod open;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use barnabas_proto::convert::{Report, StateUpdate};
use barnabas_types::{
    BrokerEpoch, BrokerId, Condition, ControllerEpoch, Incarnation, LeaderEpoch, PartitionEpoch,
    Sanitised, TopicPartition,
};
use tokio::sync::{mpsc, oneshot, watch};

use crate::node::Node;
use crate::partition::{Aftermath, Flush, Hosted, LogFailure};
use crate::storage::{Flushers, Storage};
use failed::Failed;

/// Messages that wait for the agent; each push stream has one update in flight, so this is never near full.
const AGENT_QUEUE_MAX: usize = 64;

enum Message {
    Update(Box<StateUpdate>, oneshot::Sender<Result<Vec<Report>, Condition>>),
    Registered { broker_epoch: BrokerEpoch, controller_epoch_min: ControllerEpoch },
    Checkpoint,
    LogsFailed(Vec<(Arc<Hosted>, LogFailure)>),
    Retry,
    Stop(oneshot::Sender<()>),
}

/// The lost-tail mark, as whoever registers the broker must know it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TailMark {
    /// What every registration says until it is cleared (R7).
    pub lost: bool,
    /// Syncs that failed in this process: with each the broker must register anew (R38).
    pub failures: u64,
}

/// Sends work to the agent.
#[derive(Clone)]
pub struct AgentHandle {
    sender: mpsc::Sender<Message>,
    storage: Arc<Storage>,
}

impl AgentHandle {
    /// Applies a push; answers when the transition is complete.
    ///
    /// # Errors
    /// The push is refused: stale epoch.
    pub async fn update(&self, update: StateUpdate) -> Result<Vec<Report>, Condition> {
        let (sender, receiver) = oneshot::channel();
        let stopped = Condition::UnknownOutcome("the broker is stopping");
        if self.sender.send(Message::Update(Box::new(update), sender)).await.is_err() {
            return Err(stopped);
        }
        receiver.await.unwrap_or(Err(stopped))
    }

    /// The broker is registered under a new epoch; controllers older than `controller_epoch_min` are refused (R22).
    pub async fn registered(
        &self,
        broker_epoch: BrokerEpoch,
        controller_epoch_min: ControllerEpoch,
    ) {
        let message = Message::Registered { broker_epoch, controller_epoch_min };
        // A closed channel means that the broker is stopping; then there is nobody to tell.
        let _ = self.sender.send(message).await;
    }

    /// Whether the first state is applied: before that this broker serves nobody.
    #[must_use]
    pub fn serves(&self) -> bool {
        self.storage.opening().is_settled()
    }

    /// Writes the high watermarks and recovery points, if the agent is not busy.
    pub fn checkpoint(&self) {
        // A full queue means that the next checkpoint comes soon enough.
        let _ = self.sender.try_send(Message::Checkpoint);
    }

    /// Ends what is being opened, flushes every log, writes the clean markers, and ends the agent.
    pub async fn stop(&self) {
        self.storage.stop_opening();
        let (sender, receiver) = oneshot::channel();
        if self.sender.send(Message::Stop(sender)).await.is_ok() {
            let _ = receiver.await;
        }
    }
}

/// See the module's head.
pub struct Agent {
    node: Arc<Node>,
    storage: Arc<Storage>,
    /// The flush threads of each directory, in their order; none for one that is offline.
    flushers: Flushers,
    broker_epoch: Option<BrokerEpoch>,
    /// The first one: topics of a later czxid are younger than this process.
    first_broker_epoch: Option<BrokerEpoch>,
    controller_epoch: ControllerEpoch,
    /// Version of the newest image that was applied in the present controller's term.
    version: u64,
    /// R22b: what was deleted here; older pushes never bring it back.
    tombstones: BTreeMap<TopicPartition, (Incarnation, LeaderEpoch, PartitionEpoch)>,
    /// Replicas that are assigned here and cannot be served.
    failed: BTreeMap<TopicPartition, Failed>,
    /// Whoever registers the broker listens.
    tail_lost: watch::Sender<TailMark>,
    /// Draining brokers, as the replicas here were told (R26).
    draining: Vec<BrokerId>,
    swept: bool,
    /// Directories whose checkpoints could not be written the last time.
    checkpoints_fail: Vec<usize>,
}

impl Agent {
    /// Starts the agent's task on the present runtime.
    #[must_use]
    pub fn start(
        node: Arc<Node>,
        storage: Arc<Storage>,
        flushers: Flushers,
        tail_lost: watch::Sender<TailMark>,
    ) -> AgentHandle {
        let (sender, receiver) = mpsc::channel(AGENT_QUEUE_MAX);
        tokio::spawn(Self::new(node, storage.clone(), flushers, tail_lost).run(receiver));
        AgentHandle { sender, storage }
    }

    fn new(
        node: Arc<Node>,
        storage: Arc<Storage>,
        flushers: Flushers,
        tail_lost: watch::Sender<TailMark>,
    ) -> Self {
        Self {
            node,
            storage,
            flushers,
            broker_epoch: None,
            first_broker_epoch: None,
            controller_epoch: ControllerEpoch(0),
            version: 0,
            tombstones: BTreeMap::new(),
            failed: BTreeMap::new(),
            tail_lost,
            draining: Vec::new(),
            swept: false,
            checkpoints_fail: Vec::new(),
        }
    }

    async fn run(mut self, mut receiver: mpsc::Receiver<Message>) {
        while let Some(message) = self.next(&mut receiver).await {
            let stop = matches!(message, Message::Stop(_));
            let done = tokio::task::spawn_blocking(move || {
                self.handle(message);
                self
            });
            match done.await {
                Ok(agent) if !stop => self = agent,
                Ok(_) => return,
                Err(panic) => {
                    // A broken invariant in a core. Serving on with half-applied state could lose acknowledged records.
                    tracing::error!(target: "state_change", %panic, "the control agent failed; the broker stops");
                    std::process::abort();
                }
            }
        }
    }

    /// What is to be done next; `None`: nobody can order anything any more.
    async fn next(&self, receiver: &mut mpsc::Receiver<Message>) -> Option<Message> {
        let retry = async {
            match self.next_retry() {
                Some(at) => {
                    let wait_ms = at.0.saturating_sub(self.node.now().0);
                    tokio::time::sleep(Duration::from_millis(wait_ms)).await;
                }
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            failures = self.node.failed.taken() => Some(Message::LogsFailed(failures)),
            message = receiver.recv() => message,
            () = retry => Some(Message::Retry),
        }
    }

    fn handle(&mut self, message: Message) {
        match message {
            Message::Update(update, reply) => {
                let result = self.update(&update);
                if let Err(condition) = &result {
                    let (id, epoch) = (update.controller, update.controller_epoch);
                    tracing::warn!(target: "state_change", controller = %id, controller_epoch = %epoch, condition = %Sanitised::sentence(&condition), "push refused");
                }
                let _ = reply.send(result);
            }
            Message::Registered { broker_epoch, controller_epoch_min } => {
                self.registered(broker_epoch, controller_epoch_min);
            }
            Message::Checkpoint => self.checkpoint(),
            Message::LogsFailed(failures) => self.logs_failed(failures),
            Message::Retry => self.retry(),
            Message::Stop(done) => {
                self.stop();
                let _ = done.send(());
            }
        }
    }

    fn registered(&mut self, broker_epoch: BrokerEpoch, controller_epoch_min: ControllerEpoch) {
        self.broker_epoch = Some(broker_epoch);
        self.first_broker_epoch.get_or_insert(broker_epoch);
        if controller_epoch_min > self.controller_epoch {
            (self.controller_epoch, self.version) = (controller_epoch_min, 0);
        }
        for hosted in self.node.partitions.all() {
            let mut after = Aftermath::default();
            hosted.registered(self.node.now(), broker_epoch, &mut after);
            self.settle(&hosted, after);
        }
        self.node.followers.broker_epoch_changed();
        self.tell_failed();
        // What waited for this registration (R38).
        self.retry_now();
    }

    /// R7: the mark goes when every replica here is an ISR member under this broker's present epoch.
    fn consider_tail_mark(&mut self, mine: BrokerEpoch) {
        if !self.tail_lost.borrow().lost {
            return;
        }
        let image = self.node.view.image();
        let confirmed = image.topics.iter().all(|(name, topic)| {
            topic.partitions.iter().all(|(index, partition)| {
                !partition.assigned_replicas.contains(&self.node.me)
                    || self
                        .node
                        .partitions
                        .get(name.as_str(), *index)
                        .is_some_and(|hosted| hosted.is_isr_member_under(mine))
            })
        });
        if confirmed {
            match self.storage.clear_tail_lost() {
                Ok(()) => {
                    self.tail_lost.send_modify(|mark| mark.lost = false);
                    tracing::info!(target: "state_change", broker_epoch = %mine, "the lost-tail mark is cleared: every replica is in its ISR again");
                }
                Err(error) => {
                    tracing::error!(target: "state_change", %error, "the lost-tail mark cannot be cleared");
                }
            }
        }
    }

    fn report(&self, partition: TopicPartition) -> Option<Report> {
        let hosted = self.node.partitions.get(partition.topic.as_str(), partition.partition)?;
        let said = hosted.report()?;
        Some(Report {
            partition,
            incarnation: hosted.incarnation,
            leader_epoch: said.leader_epoch,
            last_epoch: said.last_epoch,
            log_end: said.log_end,
        })
    }

    fn checkpoint(&mut self) {
        let mut high_watermarks = vec![BTreeMap::new(); self.storage.directories().len()];
        for hosted in self.node.partitions.all() {
            let of_directory = &mut high_watermarks[hosted.directory.index()];
            of_directory.insert(hosted.topic_partition.clone(), hosted.high_watermark());
        }
        let mut failing = Vec::new();
        for (directory, error) in self.storage.checkpoint(high_watermarks) {
            if !self.checkpoints_fail.contains(&directory.index()) {
                tracing::error!(directory = %directory.path().display(), %error, "high watermarks and recovery points cannot be checkpointed; it is tried again and again");
            }
            failing.push(directory.index());
        }
        self.checkpoints_fail = failing;
    }

    fn stop(&mut self) {
        // Nothing is written any more; what a follower's answer under way still brings finds the log closed.
        self.node.followers.stop_all();
        self.checkpoint();
        let mut queues = vec![VecDeque::new(); self.storage.directories().len()];
        for hosted in self.node.partitions.all() {
            queues[hosted.directory.index()].push_back(hosted);
        }
        self.storage.on_threads(queues, &|_, hosted: Arc<Hosted>| {
            if let Err(error) = hosted.close() {
                let (topic, partition) =
                    (&hosted.topic_partition.topic, hosted.topic_partition.partition);
                let leader_epoch = hosted.leader_epoch();
                tracing::error!(target: "state_change", %topic, partition, %leader_epoch, %error, "the log is not cleanly closed; its directory gets no clean marker");
            }
        });
        // A directory with a log that was not closed well keeps the marker away by itself.
        for (directory, error) in self.storage.close(true) {
            tracing::error!(directory = %directory.path().display(), %error, "the clean marker cannot be written; the next start recovers the logs");
        }
    }

    fn settle(&self, hosted: &Arc<Hosted>, after: Aftermath) {
        let mut flush = Flush::default();
        after.settle(hosted, &*self.node, &mut flush);
    }
}

#[cfg(test)]
mod tests;
