//! Opening replicas, several at a time, and hosting them.

use std::sync::Arc;

use barnabas_log::{LogConfig, LogError, Loss, LossCause};
use barnabas_replica::{LogState, Replica, ReplicaOptions};
use barnabas_types::{
    BrokerEpoch, BrokerId, FlushMode, Incarnation, LeaderEpoch, Partition, TopicImage,
    TopicPartition,
};

use super::Agent;
use crate::partition::{Aftermath, Hosted};
use crate::storage::{Lost, OpenError, Opened, Wanted};

impl Agent {
    /// Opens, several at a time, what is assigned here and not hosted yet. Replicas of an earlier life of a topic end first.
    pub(super) fn open_missing(
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
                // In sync mode nothing unflushed was promised to anybody.
                let is_async = topic.config.flush_mode == FlushMode::Async;
                let may_lack = is_async && may_have_held(self.node.me, mine, partition);
                of.push((topic.incarnation, partition.state.leader_epoch, may_lack));
            }
        }
        let results = self.storage.open_all(&wanted);
        let mut tail_lost = false;
        for ((wanted, (incarnation, leader_epoch, may_lack)), result) in
            wanted.into_iter().zip(of).zip(results)
        {
            match result {
                Ok(opened) => {
                    let (partition, log) = (wanted.partition, &opened.0);
                    let crashed = may_lack && !wanted.is_new;
                    self.tell_losses(&partition, incarnation, leader_epoch, crashed, &opened);
                    if log.recovery().tail_lost {
                        tail_lost = true;
                        self.came_back_shorter(partition, incarnation);
                    } else {
                        self.host(partition, incarnation, opened);
                    }
                }
                Err(OpenError::Stopping | OpenError::Log(LogError::Stopped)) => {}
                Err(error) => {
                    self.not_opened(wanted.partition, incarnation, leader_epoch, &error);
                }
            }
        }
        if tail_lost {
            self.tail_lost_now();
        }
    }

    /// What opening has found to be gone. What a failed sync cost was told when it failed. `may_lack`: whether a crash of the
    /// host may have taken acknowledged records that the disk never saw; then the end is not known.
    fn tell_losses(
        &self,
        partition: &TopicPartition,
        incarnation: Incarnation,
        leader_epoch: LeaderEpoch,
        may_lack: bool,
        (log, directory): &Opened,
    ) {
        let high_watermark = self.storage.high_watermark_of(directory, partition);
        let add = |loss: Loss| {
            let lost = Lost {
                partition: partition.clone(),
                incarnation,
                loss,
                leader_epoch: Some(leader_epoch),
                // Those of what is gone are cut already.
                epochs: None,
                high_watermark,
                led: None,
            };
            lost.tell(&self.node.journal);
        };
        let losses = &log.recovery().losses;
        let told = |loss: &&Loss| loss.cause != LossCause::FailedSync;
        losses.iter().filter(told).copied().for_each(add);
        // A failure of a later time marks the tail, too, and has been told.
        let mark = *self.tail_lost.borrow();
        let crashed = mark.lost && mark.failures == 0;
        if may_lack && crashed && losses.iter().all(|loss| loss.to.is_some()) {
            let end = log.log_end();
            add(Loss {
                from: end,
                to: None,
                at_least_to: end,
                bytes: 0,
                last_epoch: None,
                cause: LossCause::HostCrash,
            });
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
            let state = &partition.state;
            if self.failed.get(tp).is_some_and(|failed| failed.is_of_or_before(topic.incarnation)) {
                self.drop_failed(tp, (state.leader_epoch, state.partition_epoch));
            }
            return false;
        }
        if let Some(failed) = self.failed.get(tp) {
            let image = self.node.view.image();
            let me = image.brokers.get(&self.node.me).filter(|me| me.tail_lost).map(|me| me.epoch);
            let tail_lost_under = me.filter(|epoch| self.broker_epoch == Some(*epoch));
            if !failed.may_open(topic, partition, self.node.me, tail_lost_under) {
                return false;
            }
        }
        let asked =
            (topic.incarnation, partition.state.leader_epoch, partition.state.partition_epoch);
        self.tombstones.get(tp).is_none_or(|stone| asked > *stone)
    }

    fn host(&mut self, tp: TopicPartition, incarnation: Incarnation, (log, directory): Opened) {
        let Some(flusher) = self.flushers[directory.index()].clone() else { return };
        if self.failed.remove(&tp).is_some() {
            let (topic, partition) = (&tp.topic, tp.partition);
            let (log_start, log_end) = (log.log_start(), log.log_end());
            tracing::info!(target: "state_change", %topic, partition, %log_start, %log_end, "the log is open again");
        }
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
        self.tell_one_draining(&hosted);
        self.node.partitions.insert(hosted);
    }

    /// The first state is applied: says how long it took and what had to be scanned.
    pub(super) fn opening_over(&self) {
        let opening = self.storage.opening();
        if opening.is_settled() {
            return;
        }
        opening.settled();
        let recovered = self.storage.recovered();
        tracing::info!(
            target: "state_change", replicas = self.node.partitions.all().len(), failed = self.failed.len(),
            scanned_bytes = recovered.scanned_bytes, ms = self.node.now().0, "the first state is applied"
        );
    }
}

/// Whether this broker's replica may have held acknowledged records before the present registration: one that came to the
/// broker since has none to lose.
fn may_have_held(me: BrokerId, mine: BrokerEpoch, partition: &Partition) -> bool {
    match partition.state.isr_epoch_of(me) {
        Some(admitted_under) => admitted_under != mine,
        None => !partition.moving.adding.contains(&me),
    }
}
