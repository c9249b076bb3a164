//! The one owner of this broker's desired state: applies pushes, opens and deletes replicas, keeps tombstones.
//!
//! All of it is blocking file work, so the task hands each piece to a blocking thread and waits for it; pieces never
//! run at the same time. The rules: R4 (which pushes are obeyed), R7 (when the lost-tail mark goes), R22 (which
//! deletes are obeyed, tombstones), R27 and R28 (incarnations and stray directories).

use std::collections::BTreeMap;
use std::sync::Arc;

use barnabas_log::{LogConfig, LogDir};
use barnabas_proto::convert::{Report, StateUpdate};
use barnabas_replica::{LogState, Replica, ReplicaOptions, StatePush};
use barnabas_types::{
    BrokerEpoch, Condition, ControllerEpoch, Incarnation, LeaderEpoch, Partition, PartitionEpoch,
    PartitionState, TopicImage, TopicName, TopicPartition,
};
use tokio::sync::{mpsc, oneshot, watch};

use crate::flush::Flusher;
use crate::node::Node;
use crate::partition::{Aftermath, Flush, Hosted};

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

    /// Flushes every log, writes the clean marker, and ends the agent.
    pub async fn stop(&self) {
        let (sender, receiver) = oneshot::channel();
        if self.sender.send(Message::Stop(sender)).await.is_ok() {
            let _ = receiver.await;
        }
    }
}

/// See the module's head.
pub struct Agent {
    node: Arc<Node>,
    log_dir: LogDir,
    flusher: Arc<Flusher>,
    broker_epoch: Option<BrokerEpoch>,
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
        log_dir: LogDir,
        flusher: Arc<Flusher>,
        tail_lost: watch::Sender<bool>,
    ) -> AgentHandle {
        let (sender, receiver) = mpsc::channel(AGENT_QUEUE_MAX);
        tokio::spawn(Self::new(node, log_dir, flusher, tail_lost).run(receiver));
        AgentHandle { sender }
    }

    fn new(
        node: Arc<Node>,
        log_dir: LogDir,
        flusher: Arc<Flusher>,
        tail_lost: watch::Sender<bool>,
    ) -> Self {
        Self {
            node,
            log_dir,
            flusher,
            broker_epoch: None,
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
                self.partition(mine, &tp, topic, partition);
                touched.push(tp);
            }
        }
        if update.delta.full {
            self.sweep(mine);
        }
        self.consider_tail_mark(mine);
        Ok(touched.into_iter().filter_map(|tp| self.report(tp)).collect())
    }

    /// Brings one partition to the pushed state.
    fn partition(
        &mut self,
        mine: BrokerEpoch,
        tp: &TopicPartition,
        topic: &TopicImage,
        partition: &Partition,
    ) {
        let assigned = partition.assigned_replicas.contains(&self.node.me);
        let known = self.node.partitions.get(tp.topic.as_str(), tp.partition);
        let hosted = match known {
            Some(hosted) if hosted.incarnation > topic.incarnation => return,
            Some(hosted) if hosted.incarnation == topic.incarnation => hosted,
            Some(older) => {
                // Its directory is renamed away by the open; where the new life has no replica here, it goes at once.
                self.drop_replica(&older, mine, !assigned);
                let Some(hosted) = self.open_if(assigned, tp, topic, partition) else { return };
                hosted
            }
            None => {
                let Some(hosted) = self.open_if(assigned, tp, topic, partition) else { return };
                hosted
            }
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

    /// Opens the replica, unless it is not assigned here or a tombstone is newer (R22b).
    fn open_if(
        &mut self,
        assigned: bool,
        tp: &TopicPartition,
        topic: &TopicImage,
        partition: &Partition,
    ) -> Option<Arc<Hosted>> {
        if !assigned {
            self.offline.remove(tp);
            return None;
        }
        let asked =
            (topic.incarnation, partition.state.leader_epoch, partition.state.partition_epoch);
        if self.tombstones.get(tp).is_some_and(|stone| asked <= *stone) {
            return None;
        }
        let config = LogConfig::from(&topic.config);
        let log = match self.log_dir.open(tp, topic.incarnation.topic_id, config) {
            Ok(log) => log,
            Err(error) => {
                let text = error.to_string();
                if self.offline.get(tp) != Some(&text) {
                    let (topic, partition) = (&tp.topic, tp.partition);
                    let leader_epoch = asked.1;
                    tracing::error!(target: "state_change", %topic, partition, %leader_epoch, %error, "the log cannot be opened; this replica is offline, and opening it is tried again and again");
                    self.offline.insert(tp.clone(), text);
                }
                return None;
            }
        };
        self.offline.remove(tp);
        let checkpointed = self.log_dir.high_watermark_of(tp).unwrap_or(log.log_start());
        let state = LogState {
            log_start: log.log_start(),
            log_end: log.log_end(),
            flushed: log.flushed(),
            high_watermark: checkpointed.max(log.log_start()).min(log.log_end()),
            epochs: log.epochs().clone(),
        };
        let options = ReplicaOptions { lag_time_max_ms: self.node.options.replica_lag_time_max_ms };
        let replica = Replica::new(self.node.me, state, options);
        let hosted = Arc::new(Hosted::new(
            tp.clone(),
            topic.incarnation,
            replica,
            log,
            self.flusher.clone(),
        ));
        if let Some(broker_epoch) = self.broker_epoch {
            let mut after = Aftermath::default();
            hosted.registered(self.node.now(), broker_epoch, &mut after);
            self.settle(&hosted, after);
        }
        self.node.partitions.insert(hosted.clone());
        Some(hosted)
    }

    /// Tries again what could not be opened (too many open files, a full disk): the controller, to whom the push counts as
    /// applied, will not push an unchanged state again.
    fn open_offline(&mut self) {
        let Some(mine) = self.broker_epoch.filter(|_| !self.offline.is_empty()) else { return };
        let image = self.node.view.image();
        for tp in self.offline.keys().cloned().collect::<Vec<_>>() {
            let topic = image.topics.get(&tp.topic);
            match topic.and_then(|topic| Some((topic, topic.partitions.get(&tp.partition)?))) {
                Some((topic, partition)) => self.partition(mine, &tp, topic, partition),
                None => {
                    self.offline.remove(&tp);
                }
            }
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
        match self.log_dir.partitions() {
            Ok(found) => {
                let gone: Vec<_> =
                    found.into_iter().map(|(tp, _)| tp).filter(|tp| !wanted(tp)).collect();
                self.delete_directories(&gone);
            }
            Err(error) => {
                tracing::error!(target: "state_change", controller_epoch = %self.controller_epoch, %error, "the data directory cannot be listed; nothing is swept");
            }
        }
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
        let result = self.log_dir.delete_all(partitions);
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
            match self.log_dir.clear_tail_lost() {
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
        let high_watermarks: BTreeMap<_, _> = self
            .node
            .partitions
            .all()
            .iter()
            .map(|hosted| (hosted.topic_partition.clone(), hosted.high_watermark()))
            .collect();
        if let Err(error) = self.log_dir.write_high_watermarks(&high_watermarks) {
            tracing::error!(%error, "the high watermarks cannot be checkpointed");
        }
        if let Err(error) = self.log_dir.write_recovery_points() {
            tracing::error!(%error, "the recovery points cannot be checkpointed");
        }
    }

    fn stop(&mut self) {
        // Nothing is written any more; what a follower's answer under way still brings finds the log closed.
        self.node.followers.stop_all();
        self.checkpoint();
        let mut clean = true;
        for hosted in self.node.partitions.all() {
            if let Err(error) = hosted.close() {
                clean = false;
                let (topic, partition) =
                    (&hosted.topic_partition.topic, hosted.topic_partition.partition);
                tracing::error!(target: "state_change", %topic, partition, %error, "the log is not cleanly closed; no clean marker is written");
            }
        }
        if let Err(error) = self.log_dir.close(clean) {
            tracing::error!(%error, "the clean marker cannot be written; the next start recovers the logs");
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
