//! Since when what is wrong has been so, as one broker has seen it: a pure account of the pushes that it applied.

use std::collections::BTreeMap;

use barnabas_types::{
    BrokerId, BrokerImage, ClusterDelta, ClusterImage, Now, Partition, Standing, TopicConfig,
    TopicName, TopicPartition,
};

/// Brokers that are gone and are remembered; those with the smallest ids stay.
const DEPARTED_MAX: usize = 1_000;
/// Deleted topics that are remembered, the latest ones.
const DELETED_MAX: usize = 100;

/// When something began.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Since {
    /// When it was seen first.
    pub at: Now,
    /// It was there when this broker began to look: it may be older.
    pub at_least: bool,
}

impl Since {
    /// How long ago that is, and whether it may be longer.
    #[must_use]
    pub fn age_ms(self, now: Now) -> (u64, bool) {
        (now.0.saturating_sub(self.at.0), self.at_least)
    }
}

/// A broker that was registered, and no longer is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Departed {
    /// Its last registration.
    pub broker: BrokerImage,
    /// When it was gone.
    pub since: Since,
}

/// What is wrong with a partition, and since when.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Unwell {
    /// Nobody serves it.
    pub offline: Option<Since>,
    /// Its ISR is smaller than its replicas before any move.
    pub short: Option<Since>,
    /// Its ISR is smaller than min.insync.replicas.
    pub below_min: Option<Since>,
    /// Its replicas are being moved.
    pub moving: Option<Since>,
}

impl Unwell {
    fn is_well(&self) -> bool {
        *self == Self::default()
    }
}

/// A topic that was deleted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Deleted {
    /// When this broker heard of it.
    pub since: Since,
    /// The replicas of each partition that it had.
    pub replicas: BTreeMap<i32, Vec<BrokerId>>,
}

/// See the module's head. At most one entry for each partition that is unwell.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Ages {
    departed: BTreeMap<BrokerId, Departed>,
    unwell: BTreeMap<TopicPartition, Unwell>,
    deleted: BTreeMap<TopicName, Deleted>,
}

impl Ages {
    /// A push was applied: `before` became `after`, and `gone` are the topics that are no more.
    pub fn note(
        &mut self,
        now: Now,
        before: &ClusterImage,
        after: &ClusterImage,
        (delta, gone): (&ClusterDelta, &[TopicName]),
    ) {
        let since = Since { at: now, at_least: before.controller.is_none() };
        for (id, broker) in &before.brokers {
            if !after.brokers.contains_key(id) {
                self.departed.insert(*id, Departed { broker: broker.clone(), since });
            }
        }
        self.departed.retain(|id, _| !after.brokers.contains_key(id));
        while self.departed.len() > DEPARTED_MAX {
            self.departed.pop_last();
        }
        for name in gone {
            self.unwell.retain(|at, _| at.topic != *name);
            if let Some(topic) = before.topics.get(name) {
                let replicas = topic.partitions.iter();
                let replicas = replicas.map(|(p, of)| (*p, of.assigned_replicas.clone()));
                let deleted = Deleted { since, replicas: replicas.collect() };
                self.deleted.insert(name.clone(), deleted);
            }
        }
        while self.deleted.len() > DELETED_MAX {
            let oldest = self.deleted.iter().min_by_key(|(_, deleted)| deleted.since.at);
            let Some(oldest) = oldest.map(|(name, _)| name.clone()) else { break };
            self.deleted.remove(&oldest);
        }
        for name in delta.topics.keys().filter(|name| after.topics.contains_key(*name)) {
            self.deleted.remove(name);
        }
        // Who leads may be gone without a word of what it leads.
        let leaders = delta.full
            || delta.brokers.is_some()
            || delta.failed.is_some()
            || delta.suspected.is_some();
        for (name, topic) in &after.topics {
            let changed = delta.topics.get(name);
            if !leaders && changed.is_none() {
                continue;
            }
            let named = |index| changed.is_some_and(|of| of.partitions.contains_key(index));
            for (index, partition) in &topic.partitions {
                if leaders || named(index) {
                    let at = TopicPartition { topic: name.clone(), partition: *index };
                    let standing = Standing::of(after, name, topic, *index, partition);
                    self.note_partition(since, at, (&topic.config, partition), standing);
                }
            }
        }
    }

    fn note_partition(
        &mut self,
        since: Since,
        at: TopicPartition,
        (config, partition): (&TopicConfig, &Partition),
        standing: Standing,
    ) {
        let known = self.unwell.get(&at).copied().unwrap_or_default();
        let kept = |is: bool, known: Option<Since>| is.then(|| known.unwrap_or(since));
        let unwell = Unwell {
            offline: kept(standing == Standing::Offline, known.offline),
            short: kept(partition.lacks_replicas(), known.short),
            below_min: kept(partition.is_under_min(config), known.below_min),
            moving: kept(partition.moving.is_under_way(), known.moving),
        };
        if unwell.is_well() {
            self.unwell.remove(&at);
        } else {
            self.unwell.insert(at, unwell);
        }
    }

    /// A broker that was registered while this one looked, and is not now.
    #[must_use]
    pub fn departed(&self, broker: BrokerId) -> Option<&Departed> {
        self.departed.get(&broker)
    }

    /// All of them.
    pub fn all_departed(&self) -> impl Iterator<Item = (BrokerId, &Departed)> {
        self.departed.iter().map(|(id, departed)| (*id, departed))
    }

    /// All topics that were deleted while this broker looked, and have not come again.
    pub fn all_deleted(&self) -> impl Iterator<Item = (&TopicName, &Deleted)> {
        self.deleted.iter()
    }

    /// Since when what is wrong with a partition has been so.
    #[must_use]
    pub fn unwell(&self, at: &TopicPartition) -> Unwell {
        self.unwell.get(at).copied().unwrap_or_default()
    }

    /// A topic that was deleted while this broker looked, and has not come again.
    #[must_use]
    pub fn deleted(&self, topic: &TopicName) -> Option<&Deleted> {
        self.deleted.get(topic)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::explain::tests::{World, at};

    #[test]
    fn what_is_wrong_has_an_age_until_it_is_well_again() {
        let mut ages = Ages::default();
        let empty = ClusterImage::default();
        let mut well = World::new(&[1, 2], &[1, 2]).image;
        let full = ClusterDelta { full: true, topics: well.topics.clone(), ..Default::default() };
        ages.note(Now(5), &empty, &well, (&full, &[]));
        assert_eq!(ages.unwell(&at()), Unwell::default());
        let mut sick = World::new(&[1, 2], &[1]).image;
        sick.brokers.remove(&BrokerId(2));
        let delta = ClusterDelta { topics: sick.topics.clone(), ..Default::default() };
        ages.note(Now(10), &well, &sick, (&delta, &[]));
        ages.note(Now(20), &sick, &sick, (&delta, &[]));
        let began = Since { at: Now(10), at_least: false };
        assert_eq!(ages.unwell(&at()).short, Some(began), "the first time counts");
        assert_eq!(ages.departed(BrokerId(2)).unwrap().since, began);
        assert_eq!(began.age_ms(Now(25)), (15, false));
        // The leader's process is gone, then its session, then it leads no more: one age.
        let mut dies = sick.clone();
        dies.suspected.insert(BrokerId(1));
        let suspected =
            ClusterDelta { suspected: Some(dies.suspected.clone()), ..Default::default() };
        ages.note(Now(22), &sick, &dies, (&suspected, &[]));
        let mut dead = sick.clone();
        dead.brokers.remove(&BrokerId(1));
        let ended = ClusterDelta { brokers: Some(dead.brokers.clone()), ..Default::default() };
        ages.note(Now(24), &dies, &dead, (&ended, &[]));
        assert_eq!(ages.unwell(&at()).offline, Some(Since { at: Now(22), at_least: false }));
        let healed = ClusterDelta { topics: well.topics.clone(), ..Default::default() };
        ages.note(Now(30), &dead, &well, (&healed, &[]));
        assert!(ages.unwell(&at()).is_well() && ages.departed(BrokerId(2)).is_none());

        let before = well.clone();
        let gone = at().topic;
        well.topics.remove(&gone);
        ages.note(Now(40), &before, &well, (&ClusterDelta::default(), std::slice::from_ref(&gone)));
        let replicas = &ages.deleted(&gone).unwrap().replicas;
        assert_eq!(replicas[&0], [BrokerId(1), BrokerId(2)]);
        // Whoever has just begun to look does not know since when.
        let mut late = Ages::default();
        late.note(Now(7), &empty, &sick, (&ClusterDelta { full: true, ..delta }, &[]));
        assert!(late.unwell(&at()).short.unwrap().at_least);
    }
}
