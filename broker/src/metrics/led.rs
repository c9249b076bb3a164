//! What the controller's pushes change of the partitions that a broker leads: taken over, ISR smaller, ISR greater.

use std::sync::atomic::{AtomicU64, Ordering};

use barnabas_types::{BrokerId, ClusterDelta, ClusterImage, PartitionState};

/// Counted with each push. Changes that follow one another within one push are one.
#[derive(Debug, Default)]
pub struct LedChanges {
    taken_over: AtomicU64,
    shrinks: AtomicU64,
    expands: AtomicU64,
}

impl LedChanges {
    /// `delta` comes on top of `before`.
    pub fn note(&self, me: BrokerId, before: &ClusterImage, delta: &ClusterDelta) {
        for (name, topic) in &delta.topics {
            let known = before.topics.get(name).filter(|t| t.incarnation == topic.incarnation);
            let Some(known) = known else { continue };
            for (index, partition) in &topic.partitions {
                if let Some(before) = known.partitions.get(index) {
                    self.changed(me, &before.state, &partition.state);
                }
            }
        }
    }

    fn changed(&self, me: BrokerId, before: &PartitionState, now: &PartitionState) {
        let version = |state: &PartitionState| (state.leader_epoch, state.partition_epoch);
        if now.leader != Some(me) || version(now) <= version(before) {
            return;
        }
        let lacks = |this: &PartitionState, other: &PartitionState| {
            other.isr.iter().any(|(id, _)| !this.in_isr(*id))
        };
        let count =
            |counter: &AtomicU64, is: bool| counter.fetch_add(u64::from(is), Ordering::Relaxed);
        let led = before.leader == Some(me);
        count(&self.taken_over, !led);
        count(&self.shrinks, led && lacks(now, before));
        count(&self.expands, led && lacks(before, now));
    }

    /// Partitions that were taken over from another leader, or from nobody.
    #[must_use]
    pub fn taken_over(&self) -> u64 {
        self.taken_over.load(Ordering::Relaxed)
    }

    /// ISRs that a member left while this broker led.
    #[must_use]
    pub fn shrinks(&self) -> u64 {
        self.shrinks.load(Ordering::Relaxed)
    }

    /// ISRs that a member came into while this broker led.
    #[must_use]
    pub fn expands(&self) -> u64 {
        self.expands.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use barnabas_types::{LeaderEpoch, Partition, PartitionEpoch, TopicImage, TopicName};

    use super::*;
    use crate::testing::{LIFE, ME, epoch_of};

    #[test]
    fn changes_count_at_the_leader_once() {
        let topic = |leader: Option<i32>, epochs: (i32, i32), isr: &[i32]| {
            let state = PartitionState {
                leader: leader.map(BrokerId),
                leader_epoch: LeaderEpoch(epochs.0),
                partition_epoch: PartitionEpoch(epochs.1),
                isr: isr.iter().map(|id| (BrokerId(*id), epoch_of(BrokerId(*id)))).collect(),
                ..PartitionState::default()
            };
            let partition = Partition { state, ..Partition::default() };
            let partitions = [(0, partition)].into();
            let topic = TopicImage { incarnation: LIFE, partitions, ..TopicImage::default() };
            ClusterDelta {
                topics: [(TopicName::new("t").unwrap(), topic)].into(),
                ..ClusterDelta::default()
            }
        };
        let (changes, mut image) = (LedChanges::default(), ClusterImage::default());
        let told = |c: &LedChanges| (c.taken_over(), c.shrinks(), c.expands());
        let controller = (ME, barnabas_types::ControllerEpoch(1));
        for (delta, expected) in [
            // A new topic is no change of leaders.
            (topic(Some(1), (0, 0), &[1, 2, 3]), (0, 0, 0)),
            (topic(Some(1), (0, 1), &[1, 2]), (0, 1, 0)),
            (topic(Some(1), (0, 1), &[1, 2]), (0, 1, 0)),
            (topic(Some(1), (0, 2), &[1, 2, 3]), (0, 1, 1)),
            // One left and another came.
            (topic(Some(1), (0, 3), &[1, 2, 4]), (0, 2, 2)),
            // Another leads, whose changes are its own.
            (topic(Some(2), (1, 4), &[2, 4]), (0, 2, 2)),
            (topic(None, (2, 5), &[2]), (0, 2, 2)),
            (topic(Some(1), (3, 6), &[1]), (1, 2, 2)),
            // Of before.
            (topic(Some(1), (0, 1), &[1, 2]), (1, 2, 2)),
        ] {
            changes.note(ME, &image, &delta);
            image.apply(controller, &delta);
            assert_eq!(told(&changes), expected, "{delta:?}");
        }
    }
}
