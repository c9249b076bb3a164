//! Tells failovers apart: which broker each write is about, when its failure was first seen, and who has heard of the outcome.

use std::collections::BTreeMap;

use barnabas_controller_core::{Controller, Effects, TopicWrite, WriteId};
use barnabas_proto::convert::LeadersServed;
use barnabas_proto::v1;
use barnabas_types::{
    BrokerEpoch, BrokerId, BrokerImage, ControllerEpoch, PartitionEpoch, PartitionState,
    TopicPartition,
};

use super::failover::{Change, Failover, Written};
use super::step::{Cause, Step};
use super::{Heard, LostController, Moment, OPEN_MAX};

/// What has been seen of a broker since it last acknowledged something, in microseconds since the term began.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Signs {
    stream_broke_us: Option<i64>,
    suspected_us: Option<i64>,
    session_ended_us: Option<i64>,
    restarted_us: Option<i64>,
    /// Since when its registration says that it drains; not ended by an acknowledgement.
    drain_us: Option<i64>,
}

/// See the module's head. One a term.
#[derive(Debug)]
pub(crate) struct Tracker {
    me: BrokerId,
    epoch: ControllerEpoch,
    /// Of brokers that are or were registered in this term.
    signs: BTreeMap<BrokerId, Signs>,
    /// At most [`OPEN_MAX`], the oldest first.
    open: Vec<Failover>,
    number_next: u32,
    /// Writes under way that concern one of them, by number. Bounded by what the core has under way.
    writes: BTreeMap<WriteId, (Written, Vec<(u32, Change)>)>,
    /// The version that was last given to each broker's stream, and when.
    sent: BTreeMap<BrokerId, (u64, i64)>,
    /// Failovers that are watched no longer and have not been told as they were in the end. At most [`OPEN_MAX`].
    last_words: Vec<v1::Failover>,
}

impl Tracker {
    /// The term begins. `lost` is the controller before, if this broker followed one.
    pub(crate) fn new(
        me: BrokerId,
        epoch: ControllerEpoch,
        lost: Option<LostController>,
        at: Moment,
    ) -> Self {
        let mut tracker = Self {
            me,
            epoch,
            signs: BTreeMap::new(),
            open: Vec::new(),
            number_next: 1,
            writes: BTreeMap::new(),
            sent: BTreeMap::new(),
            last_words: Vec::new(),
        };
        if let Some(lost) = lost {
            let cause = match lost.suspected_us {
                _ if lost.draining => Cause::Drain,
                Some(_) => Cause::Suspicion,
                None => Cause::SessionEnd,
            };
            let failover = tracker.begin((lost.broker, None), cause, at);
            failover.was_controller = true;
            failover.reached(Step::ControllerLost, lost.stream_broke_us);
            failover.reached(Step::ControllerSuspected, lost.suspected_us);
            failover.reached(Step::ControllerGone, lost.gone_us);
            failover.reached(Step::ControllerElected, Some(at.us));
        }
        tracker
    }

    /// The core has stepped what was `heard`, with these effects.
    pub(crate) fn stepped(
        &mut self,
        at: Moment,
        heard: &Heard,
        core: &Controller,
        effects: &Effects,
    ) {
        match heard {
            Heard::Loaded => self.loaded(at, core),
            Heard::Registrations(before) => self.registrations(at, before, core),
            Heard::Suspected(broker) if core.is_suspected(*broker) => {
                self.signs.entry(*broker).or_default().suspected_us.get_or_insert(at.us);
            }
            Heard::StreamBroke(broker, epoch) if epoch_of(core, *broker) == Some(*epoch) => {
                self.signs.entry(*broker).or_default().stream_broke_us.get_or_insert(at.us);
            }
            Heard::Acked { broker, broker_epoch, version } => {
                self.acked(at, (*broker, *broker_epoch), *version, core);
            }
            Heard::Written { write, applied } => self.written(at, *write, *applied, core),
            Heard::Suspected(_) | Heard::StreamBroke(..) | Heard::Other => {}
        }
        for write in &effects.partition_writes {
            let stored = (write.expected, &write.state);
            self.ordered(at, write.write, &write.partition, stored, core);
        }
        for write in &effects.assignment_writes {
            let stored = (write.expected, &write.state);
            self.ordered(at, write.write, &write.partition, stored, core);
        }
        if let Heard::Suspected(broker) = heard
            && core.is_suspected(*broker)
        {
            self.look_for_stuck(*broker, at, core);
        }
        for write in &effects.topic_writes {
            if let TopicWrite::Delete { name, .. } = write {
                for failover in &mut self.open {
                    failover.deleted(at.us, |partition| partition.topic == *name);
                }
            }
        }
        for failover in &mut self.open {
            let live = core.image().brokers.keys().copied().filter(|b| !core.is_suspected(*b));
            if failover.look_at_pushes(live) {
                tracing::info!(
                    target: "controller", controller_epoch = self.epoch.0, broker = failover.broker.0,
                    cause = failover.cause.as_str(), number = failover.number,
                    "every live broker knows what follows from this failure"
                );
            }
        }
    }

    /// An update of this version was given to the stream of a broker.
    pub(crate) fn sent(&mut self, us: i64, broker: BrokerId, version: u64) {
        self.sent.insert(broker, (version, us));
    }

    /// A leader has told what it has done in its present epochs.
    pub(crate) fn served(&mut self, us: i64, served: &LeadersServed) {
        for told in &served.partitions {
            for failover in self.open.iter_mut().rev() {
                if failover.served(us, served.leader, told) {
                    break;
                }
            }
        }
    }

    /// When something is to be told next; `i64::MIN`: now.
    pub(crate) fn due_us(&self) -> Option<i64> {
        let next = self.open.iter().filter_map(Failover::due_us).min();
        if self.last_words.is_empty() { next } else { Some(i64::MIN) }
    }

    /// What is due: each failover that has begun, or has got further, as it stands now.
    pub(crate) fn due(&mut self, us: i64) -> Vec<v1::Failover> {
        let mut told = std::mem::take(&mut self.last_words);
        let controller = (self.me, self.epoch);
        for failover in &mut self.open {
            if failover.due_us().is_some_and(|due| due <= us) {
                told.push(failover.tell(us, controller));
            }
        }
        self.open.retain(|failover| !failover.is_closed(us));
        told
    }

    fn begin(
        &mut self,
        broker: (BrokerId, Option<BrokerEpoch>),
        cause: Cause,
        at: Moment,
    ) -> &mut Failover {
        if self.open.len() >= OPEN_MAX {
            let mut oldest = self.open.remove(0);
            if oldest.due_us().is_some() && self.last_words.len() < OPEN_MAX {
                self.last_words.push(oldest.tell(at.us, (self.me, self.epoch)));
            }
        }
        let number = self.number_next;
        self.number_next += 1;
        self.open.push(Failover::new(number, broker, cause, at));
        let last = self.open.len() - 1;
        &mut self.open[last]
    }

    /// The open failover of a broker to which this failure belongs, or a new one.
    fn of_broker(
        &mut self,
        (broker, entry): (BrokerId, BrokerEpoch),
        cause: Cause,
        at: Moment,
    ) -> &mut Failover {
        let signs = self.signs.get(&broker).copied().unwrap_or_default();
        let known = self.open.iter().position(|f| f.broker == broker && f.joins(entry, at));
        let failover = match known {
            Some(place) => &mut self.open[place],
            None => self.begin((broker, Some(entry)), cause, at),
        };
        failover.broker_epoch.get_or_insert(entry);
        if failover.was_controller
            && failover.cause == Cause::SessionEnd
            && cause == Cause::Suspicion
        {
            failover.cause = cause; // somebody else has suspected it first
        }
        if cause == Cause::FailedReplicas {
            failover.reached(Step::ReplicasFailed, Some(at.us));
        }
        if cause != Cause::Drain {
            failover.reached(Step::StreamBroke, signs.stream_broke_us);
        }
        failover.reached(Step::DrainRequested, signs.drain_us);
        failover.reached(Step::Suspected, signs.suspected_us);
        failover.reached(Step::SessionEnded, signs.session_ended_us);
        failover.reached(Step::Restarted, signs.restarted_us);
        failover
    }

    fn loaded(&mut self, at: Moment, core: &Controller) {
        for (broker, image) in &core.image().brokers {
            if image.draining {
                self.signs.entry(*broker).or_default().drain_us = Some(at.us);
            }
        }
        for failover in &mut self.open {
            failover.reached(Step::Loaded, Some(at.us));
            failover.must_know(core.version());
            failover.broker_epoch =
                epoch_of(core, failover.broker).or_else(|| entry_of(core, failover.broker));
        }
    }

    fn registrations(
        &mut self,
        at: Moment,
        before: &BTreeMap<BrokerId, BrokerImage>,
        core: &Controller,
    ) {
        let now = &core.image().brokers;
        for (broker, image) in before {
            let signs = self.signs.entry(*broker).or_default();
            match now.get(broker) {
                None => signs.session_ended_us = Some(at.us),
                Some(registered) if registered.epoch != image.epoch => {
                    signs.restarted_us = Some(at.us);
                }
                Some(_) => {}
            }
        }
        for (broker, image) in now {
            let signs = self.signs.entry(*broker).or_default();
            if image.draining {
                signs.drain_us.get_or_insert(at.us);
            } else {
                signs.drain_us = None;
                let drained = |f: &&mut Failover| f.broker == *broker && f.cause == Cause::Drain;
                self.open.iter_mut().filter(drained).for_each(|failover| failover.over = true);
            }
        }
    }

    fn acked(
        &mut self,
        at: Moment,
        (broker, epoch): (BrokerId, BrokerEpoch),
        version: u64,
        core: &Controller,
    ) {
        if epoch_of(core, broker) != Some(epoch) {
            return;
        }
        let signs = self.signs.entry(broker).or_default();
        let wrong = signs.suspected_us.is_some();
        *signs = Signs { drain_us: signs.drain_us, ..Signs::default() };
        let sent = self.sent.get(&broker).filter(|(of, _)| *of == version).map(|(_, us)| *us);
        for failover in &mut self.open {
            failover.acked(at.us, broker, version, sent);
            if failover.broker == broker
                && failover.heard_of(epoch)
                && wrong
                && failover.broker_epoch == Some(epoch)
            {
                failover.answered(at.us);
            }
        }
    }

    /// What a broker that is suspected leads alone stays with it until its session ends or it answers.
    fn look_for_stuck(&mut self, broker: BrokerId, at: Moment, core: &Controller) {
        let lives = |(member, entry): &(BrokerId, BrokerEpoch)| {
            epoch_of(core, *member) == Some(*entry) && !core.is_suspected(*member)
        };
        let mut alone = Vec::new();
        for (topic, image) in &core.image().topics {
            for (partition, known) in &image.partitions {
                if known.state.leader == Some(broker) && !known.state.isr.iter().any(lives) {
                    let (topic, partition) = (topic.clone(), *partition);
                    alone.push(TopicPartition { topic, partition });
                }
            }
        }
        let Some(epoch) = epoch_of(core, broker).filter(|_| !alone.is_empty()) else { return };
        let failover = self.of_broker((broker, epoch), Cause::Suspicion, at);
        alone.iter().for_each(|partition| failover.stuck(partition));
    }

    /// Why a broker would lose the ISR entry `entry` of a partition; `None`: not by a failure.
    fn cause(
        &self,
        broker: BrokerId,
        entry: BrokerEpoch,
        partition: &TopicPartition,
        core: &Controller,
    ) -> Option<Cause> {
        let failed = core.image().failed.get(&broker);
        match core.image().brokers.get(&broker) {
            None => Some(Cause::SessionEnd),
            Some(registered) if registered.epoch != entry => Some(Cause::Restart),
            Some(_) if core.is_suspected(broker) => Some(Cause::Suspicion),
            Some(_) if failed.is_some_and(|failed| failed.contains(partition)) => {
                Some(Cause::FailedReplicas)
            }
            Some(registered) if registered.draining => Some(Cause::Drain),
            Some(_) => None,
        }
    }

    /// A write was ordered: of a partition's state, at this version, to that state.
    fn ordered(
        &mut self,
        at: Moment,
        write: WriteId,
        partition: &TopicPartition,
        (expected, next): (PartitionEpoch, &PartitionState),
        core: &Controller,
    ) {
        let topic = core.image().topics.get(&partition.topic);
        let Some(known) = topic.and_then(|topic| topic.partitions.get(&partition.partition)) else {
            return;
        };
        let before = &known.state;
        if before.partition_epoch != expected {
            return;
        }
        let mut concerned: Vec<(u32, Change)> = Vec::new();
        for &(broker, entry) in &before.isr {
            let leaves = next.isr_epoch_of(broker) != Some(entry);
            let led = before.leader == Some(broker) && (leaves || next.leader != Some(broker));
            // Without a leader nothing is left to lose; what is written then is the way back.
            if before.leader.is_none() || !(leaves || led) {
                continue;
            }
            if let Some(cause) = self.cause(broker, entry, partition, core) {
                let failover = self.of_broker((broker, entry), cause, at);
                failover.ordered(at.us);
                let change = if led { Change::Moved } else { Change::Shrunk };
                concerned.push((failover.number, change));
            }
        }
        for failover in self.open.iter().filter(|f| f.waits_for(partition)) {
            if !concerned.iter().any(|(number, _)| *number == failover.number) {
                concerned.push((failover.number, Change::Other));
            }
        }
        if concerned.is_empty() {
            return;
        }
        let change = Written {
            partition: partition.clone(),
            isr_before: before.isr.len(),
            isr_after: next.isr.iter().map(|(member, _)| *member).collect(),
            assigned: known.assigned_replicas.clone(),
            leader: next.leader,
            leader_epoch: next.leader_epoch,
        };
        self.writes.insert(write, (change, concerned));
    }

    fn written(&mut self, at: Moment, write: WriteId, applied: bool, core: &Controller) {
        let Some((write, concerned)) = self.writes.remove(&write) else { return };
        for (number, change) in concerned {
            let Some(failover) = self.open.iter_mut().find(|f| f.number == number) else {
                continue; // watched no longer
            };
            if applied {
                failover.written(at.us, change, &write, core.version());
            } else {
                failover.not_written(change);
            }
        }
    }
}

fn epoch_of(core: &Controller, broker: BrokerId) -> Option<BrokerEpoch> {
    core.image().brokers.get(&broker).map(|registered| registered.epoch)
}

/// The epoch under which a broker that is not registered was last admitted to an ISR.
fn entry_of(core: &Controller, broker: BrokerId) -> Option<BrokerEpoch> {
    let topics = core.image().topics.values();
    let partitions = topics.flat_map(|topic| topic.partitions.values());
    partitions.filter_map(|partition| partition.state.isr_epoch_of(broker)).max()
}
