//! The one owner of this broker's desired state: applies pushes, opens and deletes replicas, keeps tombstones.
//!
//! All of it is blocking file work, so the task hands each piece to a blocking thread and waits for it; pieces never
//! run at the same time. The rules: R4 (which pushes are obeyed), R7 (when the lost-tail mark goes), R22 (which
//! deletes are obeyed, tombstones), R27 and R28 (incarnations and stray directories).

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use barnabas_log::LogConfig;
use barnabas_proto::convert::{Report, StateUpdate};
use barnabas_replica::{LogState, Replica, ReplicaOptions, StatePush};
use barnabas_types::{
    BrokerEpoch, Condition, ControllerEpoch, Incarnation, LeaderEpoch, Partition, PartitionEpoch,
    PartitionState, TopicImage, TopicName, TopicPartition,
};
use tokio::sync::{mpsc, oneshot, watch};

use crate::node::Node;
use crate::partition::{Aftermath, Flush, Hosted};
use crate::storage::{Flushers, OpenError, Opened, Storage, Wanted};

/// Messages that wait for the agent; each push stream has one update in flight, so this is never near full.
const AGENT_QUEUE_MAX: usize = 64;

enum Message {
    Update(StateUpdate, oneshot::Sender<Result<Vec<Report>, Condition>>),
    Registered { broker_epoch: BrokerEpoch, controller_epoch_min: ControllerEpoch },
    Checkpoint,
    Stop(oneshot::Sender<()>),
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
        if self.sender.send(Message::Update(update, sender)).await.is_err() {
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

    /// Writes the high watermarks and recovery points, if the agent is not busy.
    pub fn checkpoint(&self) {
        // A full queue means that the next checkpoint comes soon enough.
        let _ = self.sender.try_send(Message::Checkpoint);
    }

    /// Ends what is being opened, flushes every log, writes the clean markers, and ends the agent.
    pub async fn stop(&self) {
        self.storage.opening().stop();
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
    /// Replicas whose logs could not be opened, with the error that was logged; tried again with each checkpoint.
    offline: BTreeMap<TopicPartition, String>,
    /// The lost-tail mark (R7); whoever registers the broker listens.
    tail_lost: watch::Sender<bool>,
    swept: bool,
}

impl Agent {
    /// Starts the agent's task on the present runtime.
    #[must_use]
    pub fn start(
        node: Arc<Node>,
        storage: Arc<Storage>,
        flushers: Flushers,
        tail_lost: watch::Sender<bool>,
    ) -> AgentHandle {
        let (sender, receiver) = mpsc::channel(AGENT_QUEUE_MAX);
        tokio::spawn(Self::new(node, storage.clone(), flushers, tail_lost).run(receiver));
        AgentHandle { sender, storage }
    }

    fn new(
        node: Arc<Node>,
        storage: Arc<Storage>,
        flushers: Flushers,
        tail_lost: watch::Sender<bool>,
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
            offline: BTreeMap::new(),
            tail_lost,
            swept: false,
        }
    }

    async fn run(mut self, mut receiver: mpsc::Receiver<Message>) {
        while let Some(message) = receiver.recv().await {
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

    fn handle(&mut self, message: Message) {
        match message {
            Message::Update(update, reply) => {
                let result = self.update(&update);
                if let Err(condition) = &result {
                    let (id, epoch) = (update.controller, update.controller_epoch);
                    tracing::warn!(target: "state_change", controller = %id, controller_epoch = %epoch, %condition, "push refused");
                }
                let _ = reply.send(result);
            }
            Message::Registered { broker_epoch, controller_epoch_min } => {
                self.registered(broker_epoch, controller_epoch_min);
            }
            Message::Checkpoint => {
                self.checkpoint();
                self.open_offline();
            }
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
    }

    fn update(&mut self, update: &StateUpdate) -> Result<Vec<Report>, Condition> {
        let Some(mine) = self.broker_epoch.filter(|mine| *mine == update.target) else {
            return Err(Condition::StaleBrokerEpoch {
                asked: update.target,
                present: self.broker_epoch.unwrap_or(BrokerEpoch(-1)),
            });
        };
        if update.controller_epoch < self.controller_epoch {
            return Err(Condition::StaleControllerEpoch {
                asked: update.controller_epoch,
                known: self.controller_epoch,
            });
        }
        if update.controller_epoch > self.controller_epoch {
            self.version = 0;
        }
        if update.version < self.version {
            // Of a stream that the controller has given up: what it does not name may have been created since.
            return Err(Condition::InvalidUpdateVersion {
                reason: "a newer state of this controller was applied",
            });
        }
        self.controller_epoch = update.controller_epoch;
        self.version = update.version;
        let gone =
            self.node.view.apply((update.controller, update.controller_epoch), &update.delta);
        // First of all: one update may delete a topic and bring its next life.
        for name in &gone {
            self.delete_topic(name, mine);
        }
        let mut touched = Vec::new();
        for (name, topic) in &update.delta.topics {
            for (index, partition) in &topic.partitions {
                let tp = TopicPartition { topic: name.clone(), partition: *index };
                touched.push((tp, topic, partition));
            }
        }
        self.open_missing(mine, &touched);
        if self.storage.opening().is_stopped() {
            return Err(Condition::UnknownOutcome("the broker is stopping"));
        }
        for (tp, topic, partition) in &touched {
            self.partition(mine, tp, topic, partition);
        }
        if update.delta.full {
            self.sweep(mine);
        }
        self.consider_tail_mark(mine);
        Ok(touched.into_iter().filter_map(|(tp, ..)| self.report(tp)).collect())
    }

    /// Opens, several at a time, what is assigned here and not hosted yet. Replicas of an earlier life of a topic end first.
    fn open_missing(
        &mut self,
        mine: BrokerEpoch,
        states: &[(TopicPartition, &TopicImage, &Partition)],
    ) {
        let (mut wanted, mut of) = (Vec::new(), Vec::new());
        for (tp, topic, partition) in states {
            let assigned = partition.assigned_replicas.contains(&self.node.me);
            match self.node.partitions.get(tp.topic.as_str(), tp.partition) {
                Some(hosted) if hosted.incarnation >= topic.incarnation => continue,
                // Its directory is renamed away by the open; where the new life has no replica here, it goes at once.
                Some(older) => self.drop_replica(&older, mine, !assigned),
                None => {}
            }
            if self.may_open(assigned, tp, topic, partition) {
                let first = self.first_broker_epoch.unwrap_or_default();
                wanted.push(Wanted {
                    partition: tp.clone(),
                    topic_id: topic.incarnation.topic_id,
                    config: LogConfig::from(&topic.config),
                    is_new: topic.incarnation.czxid > first.0,
                });
                of.push((topic.incarnation, partition.state.leader_epoch));
            }
        }
        let results = self.storage.open_all(&wanted);
        for ((wanted, (incarnation, leader_epoch)), result) in
            wanted.into_iter().zip(of).zip(results)
        {
            match result {
                Ok(opened) => self.host(wanted.partition, incarnation, opened),
                Err(OpenError::Stopping) => {}
                Err(error) => self.not_opened(wanted.partition, leader_epoch, &error),
            }
        }
    }

    /// Whether the replica is assigned here and no tombstone is newer (R22b).
    fn may_open(
        &mut self,
        assigned: bool,
        tp: &TopicPartition,
        topic: &TopicImage,
        partition: &Partition,
    ) -> bool {
        if !assigned {
            self.offline.remove(tp);
            return false;
        }
        let asked =
            (topic.incarnation, partition.state.leader_epoch, partition.state.partition_epoch);
        self.tombstones.get(tp).is_none_or(|stone| asked > *stone)
    }

    fn not_opened(&mut self, tp: TopicPartition, leader_epoch: LeaderEpoch, error: &OpenError) {
        let text = error.to_string();
        if self.offline.get(&tp) != Some(&text) {
            let (topic, partition) = (&tp.topic, tp.partition);
            tracing::error!(target: "state_change", %topic, partition, %leader_epoch, %error, "the log cannot be opened; this replica is offline, and opening it is tried again and again");
            self.offline.insert(tp, text);
        }
    }

    fn host(&mut self, tp: TopicPartition, incarnation: Incarnation, (log, directory): Opened) {
        let Some(flusher) = self.flushers[directory.index()].clone() else { return };
        self.offline.remove(&tp);
        let checkpointed =
            self.storage.high_watermark_of(&directory, &tp).unwrap_or(log.log_start());
        let state = LogState {
            log_start: log.log_start(),
            log_end: log.log_end(),
            flushed: log.flushed(),
            high_watermark: checkpointed.max(log.log_start()).min(log.log_end()),
            epochs: log.epochs().clone(),
        };
        let options = ReplicaOptions { lag_time_max_ms: self.node.options.replica_lag_time_max_ms };
        let replica = Replica::new(self.node.me, state, options);
        let hosted = Arc::new(Hosted::new(tp, incarnation, replica, log, (directory, flusher)));
        if let Some(broker_epoch) = self.broker_epoch {
            let mut after = Aftermath::default();
            hosted.registered(self.node.now(), broker_epoch, &mut after);
            self.settle(&hosted, after);
        }
        self.node.partitions.insert(hosted);
    }

    /// Brings one partition to the pushed state, if it is hosted here.
    fn partition(
        &mut self,
        mine: BrokerEpoch,
        tp: &TopicPartition,
        topic: &TopicImage,
        partition: &Partition,
    ) {
        let known = self.node.partitions.get(tp.topic.as_str(), tp.partition);
        let Some(hosted) = known.filter(|hosted| hosted.incarnation == topic.incarnation) else {
            return;
        };
        let push = StatePush {
            controller_epoch: self.controller_epoch,
            broker_epoch: mine,
            incarnation: topic.incarnation,
            partition: partition.clone(),
            min_insync_replicas: topic.config.min_insync_replicas,
            flush_mode: topic.config.flush_mode,
        };
        let mut after = Aftermath::default();
        hosted.configure(self.node.now(), &topic.config, &mut after);
        hosted.state(self.node.now(), push, &mut after);
        let delete = after.wants_delete();
        self.settle(&hosted, after);
        if delete {
            self.remove(&hosted);
        }
    }

    /// Tries again what could not be opened (too many open files, a full disk): the controller, to whom the push counts as
    /// applied, will not push an unchanged state again.
    fn open_offline(&mut self) {
        let Some(mine) = self.broker_epoch.filter(|_| !self.offline.is_empty()) else { return };
        let image = self.node.view.image();
        let mut states = Vec::new();
        for tp in self.offline.keys().cloned().collect::<Vec<_>>() {
            let topic = image.topics.get(&tp.topic);
            match topic.and_then(|topic| Some((topic, topic.partitions.get(&tp.partition)?))) {
                Some((topic, partition)) => states.push((tp, topic, partition)),
                None => {
                    self.offline.remove(&tp);
                }
            }
        }
        self.open_missing(mine, &states);
        for (tp, topic, partition) in &states {
            self.partition(mine, tp, topic, partition);
        }
    }

    fn delete_topic(&mut self, name: &TopicName, mine: BrokerEpoch) {
        let all = self.node.partitions.all();
        let of_topic = all.iter().filter(|hosted| hosted.topic_partition.topic == *name);
        self.drop_replicas(of_topic, mine);
    }

    /// Ends replicas for good. Their directories go together: one by one they would hold up every other push.
    fn drop_replicas<'a>(
        &mut self,
        replicas: impl Iterator<Item = &'a Arc<Hosted>>,
        mine: BrokerEpoch,
    ) {
        let mut gone = Vec::new();
        for hosted in replicas {
            self.drop_replica(hosted, mine, false);
            self.tombstones.insert(hosted.topic_partition.clone(), hosted.accepted());
            gone.push(hosted.topic_partition.clone());
        }
        self.delete_directories(&gone);
    }

    /// After a full state: replicas and directories of which it does not speak go (R22a holds: the epoch was checked).
    fn sweep(&mut self, mine: BrokerEpoch) {
        let image = self.node.view.image();
        let me = self.node.me;
        let wanted = |tp: &TopicPartition| {
            image
                .topics
                .get(&tp.topic)
                .and_then(|topic| topic.partitions.get(&tp.partition))
                .is_some_and(|partition| partition.assigned_replicas.contains(&me))
        };
        let all = self.node.partitions.all();
        self.drop_replicas(all.iter().filter(|hosted| !wanted(&hosted.topic_partition)), mine);
        if self.swept {
            return;
        }
        self.swept = true;
        let mut gone = self.storage.partitions();
        gone.retain(|tp| !wanted(tp));
        self.delete_directories(&gone);
    }

    /// Ends a replica: nobody is assigned any more, so waiters end and followers are told.
    fn drop_replica(&mut self, hosted: &Arc<Hosted>, mine: BrokerEpoch, delete: bool) {
        let (incarnation, leader_epoch, partition_epoch) = hosted.accepted();
        let state = PartitionState {
            leader: None,
            leader_epoch,
            partition_epoch: PartitionEpoch(partition_epoch.0 + 1),
            controller_epoch: self.controller_epoch,
            isr: Vec::new(),
        };
        let push = StatePush {
            controller_epoch: self.controller_epoch,
            broker_epoch: mine,
            incarnation,
            partition: Partition { assigned_replicas: Vec::new(), state },
            min_insync_replicas: 1,
            flush_mode: barnabas_types::FlushMode::Async,
        };
        let mut after = Aftermath::default();
        hosted.state(self.node.now(), push, &mut after);
        self.settle(hosted, after);
        if delete {
            self.remove(hosted);
        } else {
            hosted.retire();
            self.node.partitions.remove(&hosted.topic_partition);
        }
    }

    fn remove(&mut self, hosted: &Arc<Hosted>) {
        hosted.retire();
        let tp = &hosted.topic_partition;
        self.tombstones.insert(tp.clone(), hosted.accepted());
        self.node.partitions.remove(tp);
        self.delete_directories(std::slice::from_ref(tp));
    }

    fn delete_directories(&self, partitions: &[TopicPartition]) {
        let result = self.storage.delete_all(partitions);
        for tp in partitions {
            let (topic, partition) = (&tp.topic, tp.partition);
            tracing::info!(target: "state_change", %topic, partition, controller_epoch = %self.controller_epoch, "replica deleted");
        }
        if let Err(error) = result {
            tracing::error!(target: "state_change", controller_epoch = %self.controller_epoch, %error, "a deleted replica's directory cannot be removed; the next start tries again");
        }
    }

    /// R7: the mark goes when every replica here is an ISR member under this broker's present epoch.
    fn consider_tail_mark(&mut self, mine: BrokerEpoch) {
        if !*self.tail_lost.borrow() {
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
                    self.tail_lost.send_replace(false);
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
        for (directory, error) in self.storage.checkpoint(high_watermarks) {
            tracing::error!(directory = %directory.path().display(), %error, "high watermarks and recovery points cannot be checkpointed");
        }
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
                tracing::error!(target: "state_change", %topic, partition, %error, "the log is not cleanly closed; its directory gets no clean marker");
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
#[path = "agent_tests.rs"]
mod tests;
