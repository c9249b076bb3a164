//! Opening replicas, several at a time, and hosting them.

use std::sync::Arc;

use barnabas_log::{LogConfig, LogError, Loss, LossCause};
use barnabas_replica::{LogState, Replica, ReplicaOptions};
use barnabas_types::{
    BrokerEpoch, BrokerId, FlushMode, Incarnation, LeaderEpoch, Offset, Partition, PartitionState,
    TopicImage, TopicPartition,
};
use serde_json::json;

use super::Agent;
use crate::journal::Kind;
use crate::partition::{Aftermath, Hosted};
use crate::storage::{LedNote, Lost, NoteKey, OpenError, Opened, Wanted};

/// Replicas that are gone with a log directory, each of which is told by itself; the rest is counted.
const GONE_MAX: usize = 100;

/// What a replica that is opened after a crash of the host, or without a directory, may lack of what it had acknowledged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Lack {
    Nothing,
    /// What the disk never saw.
    Tail,
    /// All: it was held here, and nothing of it is there.
    All,
}

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
                let may_lack = match (self.storage.has(tp), topic.config.flush_mode) {
                    _ if !may_have_held(self.node.me, mine, partition) => Lack::Nothing,
                    (false, _) => Lack::All,
                    (true, FlushMode::Async) if self.storage.host_crashed() => Lack::Tail,
                    // In sync mode nothing unflushed was promised to anybody.
                    (true, FlushMode::Async | FlushMode::Sync) => Lack::Nothing,
                };
                of.push((topic.incarnation, partition.state.clone(), may_lack));
            }
        }
        let results = self.storage.open_all(&wanted);
        // A failure of a later time marks the tail, too, and has been told.
        let mark = *self.tail_lost.borrow();
        let crashed = mark.lost && mark.failures == 0;
        let (mut tail_lost, mut gone) = (false, 0);
        for ((wanted, (incarnation, state, may_lack)), result) in
            wanted.into_iter().zip(of).zip(results)
        {
            match result {
                Ok(opened) => {
                    let (partition, log) = (wanted.partition, &opened.0);
                    let mut may_lack =
                        if crashed && !wanted.is_new { may_lack } else { Lack::Nothing };
                    if may_lack == Lack::All {
                        gone += 1;
                        may_lack = if gone > GONE_MAX { Lack::Nothing } else { may_lack };
                    }
                    let key =
                        NoteKey { topic_id: incarnation.topic_id, partition: partition.partition };
                    let led = (may_lack == Lack::Tail)
                        .then(|| opened.1.led().of_crash(key))
                        .flatten()
                        .filter(|note| led_until_crash(self.node.me, note, &state));
                    let of = (incarnation, state.leader_epoch);
                    self.tell_losses(&partition, of, (may_lack, led), &opened);
                    if log.recovery().tail_lost {
                        tail_lost = true;
                        self.came_back_shorter(partition, incarnation);
                    } else {
                        self.host(partition, incarnation, opened);
                    }
                }
                Err(OpenError::Stopping | OpenError::Log(LogError::Stopped)) => {}
                Err(error) => {
                    self.not_opened(wanted.partition, incarnation, state.leader_epoch, &error);
                }
            }
        }
        if tail_lost {
            self.tail_lost_now();
        }
        if gone > GONE_MAX {
            self.tell_more_gone(gone - GONE_MAX);
        }
    }

    /// So many replicas more are gone with a log directory.
    fn tell_more_gone(&self, replicas: usize) {
        tracing::warn!(target: "state_change", replicas, "more replicas begin empty: their directories were not there");
        let detail = format!(
            "{replicas} more replicas of this broker begin empty, of any topic: nothing of them was found in the log directories"
        );
        self.node.journal.add(
            Kind::Loss,
            json!({ "cause": "directory_lost", "replicas": replicas, "class": "unknown", "detail": detail }),
        );
    }

    /// What opening has found to be gone. What a failed sync cost was told when it failed. Of what `may_lack` the end is not known.
    fn tell_losses(
        &self,
        partition: &TopicPartition,
        (incarnation, leader_epoch): (Incarnation, LeaderEpoch),
        (may_lack, led_until_crash): (Lack, Option<LedNote>),
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
                led_until_crash,
            };
            lost.tell(&self.node.journal);
        };
        let losses = &log.recovery().losses;
        let told = |loss: &&Loss| loss.cause != LossCause::FailedSync;
        losses.iter().filter(told).copied().for_each(add);
        let (from, cause) = match may_lack {
            Lack::Nothing => return,
            Lack::Tail => (log.log_end(), LossCause::HostCrash),
            Lack::All => (log.log_start(), LossCause::DirectoryLost),
        };
        if losses.iter().all(|loss| loss.to.is_some()) {
            // Epochs never fall in a log: what came after this record and is gone was of the same epoch, or of a newer one.
            let led = led_until_crash.map(|note| note.epoch);
            let last_epoch = led.or_else(|| log.epochs().epoch_at(Offset(from.0 - 1)));
            add(Loss { from, to: None, at_least_to: from, bytes: 0, last_epoch, cause });
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
            let leader_epoch = log.epochs().latest().unwrap_or_default();
            tracing::info!(target: "state_change", %topic, partition, %leader_epoch, %log_start, %log_end, "the log is open again");
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
        // After a crash of the host a note may be older than what it speaks of.
        let key = NoteKey { topic_id: incarnation.topic_id, partition: tp.partition };
        let note = directory.led().of_process(key).filter(|_| !self.tail_lost.borrow().lost);
        let hosted = Arc::new(Hosted::new(tp, incarnation, replica, log, (directory, flusher)));
        if let Some(note) = note {
            hosted.led_before(note);
        }
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

/// Whether the leadership of which `note` speaks lasted until the host crashed, and nobody has led since: the partition was left without
/// a leader in the next epoch. Each epoch has one leader at most, and a change of leader is a new epoch.
fn led_until_crash(me: BrokerId, note: &LedNote, state: &PartitionState) -> bool {
    state.leader_epoch == note.epoch.next() && state.leader.is_none_or(|leader| leader == me)
}

/// Whether this broker's replica may have held acknowledged records before the present registration: one that came to the
/// broker since has none to lose.
fn may_have_held(me: BrokerId, mine: BrokerEpoch, partition: &Partition) -> bool {
    match partition.state.isr_epoch_of(me) {
        Some(admitted_under) => admitted_under != mine,
        None => !partition.moving.adding.contains(&me),
    }
}
