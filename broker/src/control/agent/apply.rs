//! What a push changes: which replicas there are, what each is told, which directories go.

use std::sync::Arc;

use barnabas_proto::convert::{Report, StateUpdate};
use barnabas_replica::StatePush;
use barnabas_types::{
    BrokerEpoch, Condition, LeaderEpoch, Partition, PartitionEpoch, PartitionState, TopicImage,
    TopicName, TopicPartition,
};

use super::Agent;
use crate::partition::{Aftermath, Hosted};

impl Agent {
    pub(super) fn update(&mut self, update: &StateUpdate) -> Result<Vec<Report>, Condition> {
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
        self.node.groups.topics_deleted(&gone);
        self.tell_draining();
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
        self.tell_failed();
        self.opening_over();
        self.consider_tail_mark(mine);
        Ok(touched.into_iter().filter_map(|(tp, ..)| self.report(tp)).collect())
    }

    /// Tells the replicas here which brokers are draining, if that has changed (R26).
    fn tell_draining(&mut self) {
        let image = self.node.view.image();
        let draining = image.brokers.iter().filter(|(_, b)| b.draining).map(|(id, _)| *id);
        let draining: Vec<_> = draining.collect();
        if draining == self.draining {
            return;
        }
        self.draining = draining;
        for hosted in self.node.partitions.all() {
            self.tell_one_draining(&hosted);
        }
    }

    pub(super) fn tell_one_draining(&self, hosted: &Arc<Hosted>) {
        let mut after = Aftermath::default();
        hosted.draining(self.node.now(), self.draining.clone(), &mut after);
        self.settle(hosted, after);
    }

    /// Brings one partition to the pushed state, if it is hosted here.
    pub(super) fn partition(
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

    /// Its replicas end; the directories of those that failed go too.
    fn delete_topic(&mut self, name: &TopicName, mine: BrokerEpoch) {
        let all = self.node.partitions.all();
        let of_topic = all.iter().filter(|hosted| hosted.topic_partition.topic == *name);
        self.drop_replicas(of_topic, mine);
        let failed: Vec<_> = self.failed.keys().filter(|tp| tp.topic == *name).cloned().collect();
        for tp in failed {
            // Nothing of this life is ever taken again.
            self.drop_failed(&tp, (LeaderEpoch(i32::MAX), PartitionEpoch(i32::MAX)));
        }
    }

    /// Ends replicas for good. Their directories go together: one by one they would hold up every other push.
    fn drop_replicas<'a>(
        &mut self,
        replicas: impl Iterator<Item = &'a Arc<Hosted>>,
        mine: BrokerEpoch,
    ) {
        let mut gone = Vec::new();
        for hosted in replicas {
            self.end_replica(hosted, mine);
            gone.push(hosted.topic_partition.clone());
        }
        self.delete_directories(&gone);
    }

    /// Ends a replica for good; its directory stays for now.
    fn end_replica(&mut self, hosted: &Arc<Hosted>, mine: BrokerEpoch) {
        self.drop_replica(hosted, mine, false);
        self.tombstones.insert(hosted.topic_partition.clone(), hosted.accepted());
    }

    /// After a full state: replicas and directories of which it does not speak go (R22a holds: the epoch was checked).
    fn sweep(&mut self, mine: BrokerEpoch) {
        let image = self.node.view.image();
        let me = self.node.me;
        let wanted = |tp: &TopicPartition| {
            // What cannot be read may be ours.
            image.unreadable.contains(&tp.topic)
                || image
                    .topics
                    .get(&tp.topic)
                    .and_then(|topic| topic.partitions.get(&tp.partition))
                    .is_some_and(|partition| partition.assigned_replicas.contains(&me))
        };
        let mut gone = Vec::new();
        for hosted in self.node.partitions.all() {
            if !wanted(&hosted.topic_partition) {
                self.end_replica(&hosted, mine);
                gone.push(hosted.topic_partition.clone());
            }
        }
        self.set_aside(&gone);
        if self.swept {
            return;
        }
        self.swept = true;
        let mut gone = self.storage.partitions();
        gone.retain(|tp| !wanted(tp));
        self.set_aside(&gone);
    }

    /// What a full state does not speak of was deleted or moved away while the broker did not hear of it, or ZooKeeper has
    /// forgotten it (an older backup): that cannot be told apart here, so it is kept for a week.
    fn set_aside(&self, partitions: &[TopicPartition]) {
        let result = self.storage.set_aside(partitions);
        for tp in partitions {
            let (topic, partition) = (&tp.topic, tp.partition);
            tracing::warn!(target: "state_change", %topic, partition, controller_epoch = %self.controller_epoch, "ZooKeeper does not assign this replica here any more: its directory is set aside as *-stray, and removed by the first start after a week");
        }
        if let Err(error) = result {
            tracing::error!(target: "state_change", controller_epoch = %self.controller_epoch, %error, "a directory cannot be set aside; the next start tries again");
        }
    }

    /// Ends a replica: nobody is assigned any more, so waiters end and followers are told.
    pub(super) fn drop_replica(&mut self, hosted: &Arc<Hosted>, mine: BrokerEpoch, delete: bool) {
        let (incarnation, leader_epoch, partition_epoch) = hosted.accepted();
        let state = PartitionState {
            leader: None,
            leader_epoch,
            partition_epoch: PartitionEpoch(partition_epoch.0 + 1),
            controller_epoch: self.controller_epoch,
            isr: Vec::new(),
        };
        // None: the topic is gone, too.
        let image = self.node.view.image();
        let tp = &hosted.topic_partition;
        let topic = image.topics.get(&tp.topic).filter(|topic| topic.incarnation == incarnation);
        let present = topic.and_then(|topic| topic.partitions.get(&tp.partition));
        let assigned = present.map(|partition| partition.assigned_replicas.clone());
        let assigned_replicas =
            assigned.filter(|assigned| !assigned.contains(&self.node.me)).unwrap_or_default();
        let push = StatePush {
            controller_epoch: self.controller_epoch,
            broker_epoch: mine,
            incarnation,
            partition: Partition { state, assigned_replicas, ..Partition::default() },
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

    pub(super) fn delete_directories(&self, partitions: &[TopicPartition]) {
        let result = self.storage.delete_all(partitions);
        for tp in partitions {
            let (topic, partition) = (&tp.topic, tp.partition);
            let leader_epoch = self.tombstones.get(tp).map_or(-1, |(_, epoch, _)| epoch.0);
            tracing::info!(target: "state_change", %topic, partition, leader_epoch, controller_epoch = %self.controller_epoch, "replica deleted");
        }
        if let Err(error) = result {
            tracing::error!(target: "state_change", controller_epoch = %self.controller_epoch, %error, "a deleted replica's directory cannot be removed; the next start tries again");
        }
    }
}
