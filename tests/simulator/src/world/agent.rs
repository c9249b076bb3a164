//! Push streams, the broker's end: applies an update, opens and deletes replicas, keeps tombstones, reports, acknowledges.

use barnabas_controller_core::ReplicaReport;
use barnabas_replica::{Event, Replica, ReplicaOptions, StatePush};
use barnabas_types::{
    BrokerEpoch, ClusterDelta, ControllerEpoch, FlushMode, Incarnation, LeaderEpoch, Offset,
    Partition, PartitionEpoch, PartitionState, TopicImage, TopicPartition,
};

use super::{World, id_of};
use crate::coverage::Reached;
use crate::disk::Directory;
use crate::happening::{Input, Ix, Update};
use crate::mutation::Mutation;
use crate::process::Slot;

impl World {
    /// The broker is registered under a new epoch; older controllers are refused from now on (R22).
    pub(crate) fn registered(
        &mut self,
        b: Ix,
        broker_epoch: BrokerEpoch,
        controller_epoch_min: ControllerEpoch,
    ) {
        let process = &mut self.processes[b];
        process.broker_epoch = Some(broker_epoch);
        if controller_epoch_min > process.controller_epoch {
            process.controller_epoch = controller_epoch_min;
            process.image_version = 0;
        }
        // What a failed sync has fenced is opened anew with the next push: it is meant for this registration, and no older
        // one is obeyed any more. But not if this registration was asked for before the mark was made (R38).
        let before = process.slots.len();
        let marked = process.marked;
        process.slots.retain(|_, slot| !(marked && slot.replica.is_fenced()));
        let reopened = before - process.slots.len();
        let partitions: Vec<TopicPartition> = process.slots.keys().cloned().collect();
        for _ in 0..reopened {
            self.reach(Reached::SyncHealed);
        }
        for at in partitions {
            self.step_replica(b, &at, Event::Registered { broker_epoch });
            self.later(b, 1, Input::FetchNow { partition: at });
        }
    }

    /// A push arrives (R4, R22).
    pub(crate) fn pushed(&mut self, b: Ix, update: Update, from: Option<Ix>) {
        let process = &self.processes[b];
        let any_target = self.is_mutated(Mutation::NoPushTarget);
        let Some(mine) = process.broker_epoch.filter(|m| *m == update.target || any_target) else {
            self.reach(Reached::PushRefused);
            self.note(Some(b), "push refused", || format!("meant for {}", update.target));
            return;
        };
        let (controller, epoch) = update.controller;
        if epoch < process.controller_epoch {
            self.reach(Reached::PushRefused);
            self.note(Some(b), "push refused", || format!("controller {controller} of {epoch}"));
            return;
        }
        let process = &mut self.processes[b];
        // An update of this controller that was overtaken by a newer one says nothing new, and its silences are stale.
        let stale = epoch == process.controller_epoch && update.version <= process.image_version;
        if !stale || self.options.mutation == Some(Mutation::StaleFullStateDeletes) {
            let known = process.controller_epoch;
            process.controller_epoch = epoch;
            process.image_version = update.version;
            self.checkers.push_obeyed(b, epoch, known);
            self.note(Some(b), "push", || {
                format!(
                    "{}.{} full={} {:?}",
                    epoch,
                    update.version,
                    update.delta.full,
                    names(&update.delta)
                )
            });
            self.apply_update(b, mine, &update);
        }
        let reports = update
            .delta
            .topics
            .iter()
            .flat_map(|(topic, image)| {
                image
                    .partitions
                    .keys()
                    .map(|p| TopicPartition { topic: topic.clone(), partition: *p })
            })
            .filter_map(|at| self.report(b, at))
            .collect();
        let ack = Input::PushAck {
            broker: id_of(b),
            broker_epoch: mine,
            term: epoch,
            version: update.version,
            reports,
        };
        self.send(b, from.unwrap_or(b), None, ack);
    }

    fn apply_update(&mut self, b: Ix, mine: BrokerEpoch, update: &Update) {
        if self.is_mutated(Mutation::MarkClearedByPush) {
            self.disks[b].tail_lost = false;
        }
        let delta = &update.delta;
        let gone = self.processes[b].image.apply(update.controller, &update.delta);
        // First of all: one update may delete a topic and bring its next life.
        for name in &gone {
            let here: Vec<TopicPartition> =
                self.processes[b].slots.keys().filter(|at| at.topic == *name).cloned().collect();
            for at in here {
                self.drop_replica(b, &at, mine, true);
            }
        }
        if delta.brokers.is_some() {
            let here: Vec<TopicPartition> = self.processes[b].slots.keys().cloned().collect();
            for at in here {
                self.tell_draining(b, &at);
            }
        }
        for (name, topic) in &delta.topics {
            for (index, partition) in &topic.partitions {
                let at = TopicPartition { topic: name.clone(), partition: *index };
                self.adopt_partition(b, mine, &at, topic, partition);
            }
        }
        if delta.full {
            self.sweep(b, mine);
        }
        self.consider_tail_mark(b, mine);
    }

    fn tell_draining(&mut self, b: Ix, at: &TopicPartition) {
        if self.is_mutated(Mutation::DrainingAdmitted) {
            return;
        }
        let brokers = &self.processes[b].image.brokers;
        let draining = brokers.iter().filter(|(_, image)| image.draining).map(|(id, _)| *id);
        let brokers = draining.collect();
        self.step_replica(b, at, Event::Draining { brokers });
    }

    fn report(&self, b: Ix, at: TopicPartition) -> Option<(TopicPartition, ReplicaReport)> {
        let slot = self.processes[b].slots.get(&at)?;
        let report = slot.replica.report()?;
        let reported = ReplicaReport {
            incarnation: slot.incarnation,
            leader_epoch: report.leader_epoch,
            last_epoch: report.last_epoch,
            log_end: report.log_end,
        };
        Some((at, reported))
    }

    /// Brings one partition to the pushed state.
    fn adopt_partition(
        &mut self,
        b: Ix,
        mine: BrokerEpoch,
        at: &TopicPartition,
        topic: &TopicImage,
        partition: &Partition,
    ) {
        let known = self.processes[b].slots.get(at).map(|slot| slot.incarnation);
        if known.is_some_and(|known| known > topic.incarnation) {
            return;
        }
        if known != Some(topic.incarnation) {
            if known.is_some() {
                // Where the new life has no replica here, the old one goes at once.
                let assigned = partition.assigned_replicas.contains(&id_of(b));
                self.drop_replica(b, at, mine, !assigned);
            }
            if !self.open(b, at, topic.incarnation, partition) {
                self.drop_failed(b, at, topic.incarnation, partition);
                return;
            }
            self.step_replica(b, at, Event::Registered { broker_epoch: mine });
            self.tell_draining(b, at);
        }
        let assigned = partition.assigned_replicas.contains(&id_of(b));
        let slot = self.processes[b].slots.get(at);
        if !assigned && slot.is_some_and(|slot| slot.replica.is_fenced()) {
            // A fenced replica obeys nothing, but what is not wanted here any more goes all the same.
            self.processes[b].slots.remove(at);
            return self.drop_failed(b, at, topic.incarnation, partition);
        }
        self.cut_to_high_watermark(b, at, partition);
        let ignored = self.is_mutated(Mutation::MinInsyncIgnored);
        let min_insync_replicas = if ignored { 1 } else { topic.config.min_insync_replicas };
        let controller_epoch = self.processes[b].controller_epoch;
        let push = StatePush {
            controller_epoch,
            broker_epoch: mine,
            incarnation: topic.incarnation,
            partition: partition.clone(),
            min_insync_replicas,
            flush_mode: match self.is_mutated(Mutation::ModeIgnored) {
                true => self.swarm.config.flush_mode,
                false => topic.config.flush_mode,
            },
        };
        self.step_replica(b, at, Event::State(push));
        let slot = self.processes[b].slots.get(at);
        if slot.is_some_and(|slot| slot.replica.role() == barnabas_replica::Role::Deleted) {
            self.forget_replica(b, at);
        }
    }

    /// Opens the replica, unless it is not assigned here or a tombstone is newer (R22b); puts a stray directory away (R28).
    pub(crate) fn open(
        &mut self,
        b: Ix,
        at: &TopicPartition,
        incarnation: Incarnation,
        partition: &Partition,
    ) -> bool {
        let state = &partition.state;
        let asked = (incarnation, state.leader_epoch, state.partition_epoch);
        let process = &self.processes[b];
        if !partition.assigned_replicas.contains(&id_of(b))
            || process.tombstones.get(at).is_some_and(|stone| asked <= *stone)
        {
            return false;
        }
        let opened_stray = self.is_mutated(Mutation::StrayDirectoryOpened);
        let stray = self.disks[b]
            .directories
            .get(at)
            .is_some_and(|d| d.incarnation.topic_id != incarnation.topic_id);
        if stray {
            self.reach(Reached::Stray);
            if !opened_stray {
                self.disks[b].directories.remove(at);
            }
        }
        let directory = self.disks[b]
            .directories
            .entry(at.clone())
            .or_insert_with(|| Directory::new(incarnation));
        directory.incarnation = incarnation;
        if self.options.mutation == Some(Mutation::LogEndTakenForFlushed) {
            directory.recovery_point = directory.log_end();
        }
        let log = directory.open();
        self.note(Some(b), "open", || {
            format!("{at} LEO {} HW {} flushed {}", log.log_end, log.high_watermark, log.flushed)
        });
        let options = ReplicaOptions { lag_time_max_ms: self.swarm.lag_time_max_ms };
        let slot = Slot {
            replica: Replica::new(id_of(b), log, options),
            incarnation,
            pending: std::collections::BTreeMap::new(),
            deletions: std::collections::BTreeSet::new(),
            start_writing: false,
            parked: Vec::new(),
            fetching: None,
            proposing: None,
            flush_armed: false,
            refused_at: None,
            told_to: None,
            heard: (LeaderEpoch(-1), 0),
        };
        self.processes[b].slots.insert(at.clone(), slot);
        self.compared.remove(&(b, at.clone()));
        self.arm_flush(b, at);
        true
    }

    /// A replica that failed and is not open again leaves no directory when it is no longer assigned here. Before the first
    /// full state nothing is known of the directories; the sweep looks at them.
    fn drop_failed(
        &mut self,
        b: Ix,
        at: &TopicPartition,
        incarnation: Incarnation,
        partition: &Partition,
    ) {
        let directory = self.disks[b].directories.get(at);
        // Of this life, or of an earlier one, which is over then.
        let left = directory.map(|d| d.incarnation).filter(|left| *left <= incarnation);
        let assigned = partition.assigned_replicas.contains(&id_of(b));
        if let Some(left) = left.filter(|_| !assigned && self.processes[b].swept) {
            let state = &partition.state;
            let stone = (left, state.leader_epoch, state.partition_epoch);
            self.processes[b].tombstones.insert(at.clone(), stone);
            self.replica_deleted(b, at, left.czxid);
            self.disks[b].directories.remove(at);
        }
    }

    /// Ends a replica: nobody is assigned any more, so that its waiters end.
    fn drop_replica(&mut self, b: Ix, at: &TopicPartition, mine: BrokerEpoch, delete: bool) {
        let Some(slot) = self.processes[b].slots.get(at) else { return };
        let incarnation = slot.incarnation;
        let leader_epoch = slot.replica.leader_epoch().unwrap_or_default();
        let partition_epoch = slot.replica.partition_epoch().unwrap_or(PartitionEpoch(-1));
        let controller_epoch = self.processes[b].controller_epoch;
        let state = PartitionState {
            leader: None,
            leader_epoch,
            partition_epoch: PartitionEpoch(partition_epoch.0 + 1),
            controller_epoch,
            isr: Vec::new(),
        };
        let push = StatePush {
            controller_epoch,
            broker_epoch: mine,
            incarnation,
            partition: Partition { state, ..Partition::default() },
            min_insync_replicas: 1,
            flush_mode: FlushMode::Async,
        };
        self.step_replica(b, at, Event::State(push));
        if delete {
            self.forget_replica(b, at);
        } else {
            self.processes[b].slots.remove(at);
        }
    }

    /// A replica that has ended goes with its directory; its tombstone stays (R22b).
    fn forget_replica(&mut self, b: Ix, at: &TopicPartition) {
        let Some(slot) = self.processes[b].slots.remove(at) else { return };
        let incarnation = slot.incarnation;
        let leader_epoch = slot.replica.leader_epoch().unwrap_or_default();
        let partition_epoch = slot.replica.partition_epoch().unwrap_or(PartitionEpoch(-1));
        self.note(Some(b), "delete", || at.to_string());
        let stone = (incarnation, leader_epoch, partition_epoch);
        self.processes[b].tombstones.insert(at.clone(), stone);
        self.replica_deleted(b, at, incarnation.czxid);
        self.disks[b].directories.remove(at);
    }

    /// After a full state: replicas and directories of which it does not speak go (R22a).
    fn sweep(&mut self, b: Ix, mine: BrokerEpoch) {
        let me = id_of(b);
        let image = &self.processes[b].image;
        let unwanted = |at: &TopicPartition| {
            !image
                .topics
                .get(&at.topic)
                .and_then(|topic| topic.partitions.get(&at.partition))
                .is_some_and(|partition| partition.assigned_replicas.contains(&me))
        };
        let replicas: Vec<TopicPartition> =
            self.processes[b].slots.keys().filter(|at| unwanted(at)).cloned().collect();
        let directories: Vec<TopicPartition> =
            self.disks[b].directories.keys().filter(|at| unwanted(at)).cloned().collect();
        for at in replicas {
            self.drop_replica(b, &at, mine, true);
        }
        if std::mem::replace(&mut self.processes[b].swept, true) {
            return;
        }
        for at in directories {
            if let Some(directory) = self.disks[b].directories.remove(&at) {
                self.replica_deleted(b, &at, directory.incarnation.czxid);
            }
        }
    }

    /// R7: the mark goes when every replica here is an ISR member under this broker's present epoch.
    fn consider_tail_mark(&mut self, b: Ix, mine: BrokerEpoch) {
        if !self.disks[b].tail_lost {
            return;
        }
        let process = &self.processes[b];
        let me = id_of(b);
        let confirmed = process.image.topics.iter().all(|(topic, image)| {
            image.partitions.iter().all(|(index, partition)| {
                let at = TopicPartition { topic: topic.clone(), partition: *index };
                !partition.assigned_replicas.contains(&me)
                    || process.slots.get(&at).is_some_and(|s| s.replica.is_isr_member_under(mine))
            })
        });
        if confirmed {
            self.disks[b].tail_lost = false;
            self.reach(Reached::MarkCleared);
            self.note(Some(b), "mark cleared", String::new);
        }
    }

    /// HW checkpoint of every replica.
    pub(crate) fn checkpoint(&mut self, b: Ix) {
        for (at, slot) in &self.processes[b].slots {
            if let Some(directory) = self.disks[b].directories.get_mut(at) {
                let end: Offset = directory.log_end();
                directory.high_watermark = slot.replica.high_watermark().min(end);
            }
        }
    }
}

fn names(delta: &ClusterDelta) -> Vec<String> {
    delta
        .topics
        .iter()
        .flat_map(|(topic, image)| {
            image.partitions.iter().map(move |(p, partition)| {
                let s = &partition.state;
                let leader = s.leader.map_or(-1, |l| l.0);
                format!("{topic}-{p}:{leader}@{}.{}", s.leader_epoch, s.partition_epoch)
            })
        })
        .collect()
}
