//! What of the cluster a plan was made for. If any of it is otherwise when the plan is to be run, somebody else has been there.

use std::collections::BTreeMap;

use barnabas_types::{
    Assignment, BrokerEpoch, BrokerId, ClusterImage, ConfigEntity, Incarnation, Partition,
    PartitionEpoch, TopicName, TopicPartition,
};

/// Which part of the cluster a plan depends on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Part {
    /// There is no such topic.
    Absent(TopicName),
    /// These partitions and brokers.
    Partitions(Vec<TopicPartition>, Vec<BrokerId>),
    /// A broker with every partition of which it has a replica.
    Broker(BrokerId),
    /// What is set there.
    Settings(ConfigEntity),
}

/// One partition as it was.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Was {
    incarnation: Incarnation,
    epoch: PartitionEpoch,
    assignment: Assignment,
}

/// See the module's head.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct MadeFor {
    part: Part,
    partitions: BTreeMap<TopicPartition, Option<Was>>,
    /// Epoch and whether it drains; `None`: not registered.
    brokers: BTreeMap<BrokerId, Option<(BrokerEpoch, bool)>>,
    exists: bool,
    settings: BTreeMap<String, String>,
}

impl MadeFor {
    /// That part of the cluster as it is.
    pub(super) fn of(image: &ClusterImage, part: Part) -> Self {
        let mut this = Self {
            part,
            partitions: BTreeMap::new(),
            brokers: BTreeMap::new(),
            exists: false,
            settings: BTreeMap::new(),
        };
        let broker = |id: &BrokerId| image.brokers.get(id).map(|b| (b.epoch, b.draining));
        match &this.part {
            Part::Absent(name) => this.exists = exists(image, name),
            Part::Partitions(named, ids) => {
                let was = |at: &TopicPartition| {
                    let topic = image.topics.get(&at.topic)?;
                    Some(Was::of(topic.incarnation, topic.partitions.get(&at.partition)?))
                };
                this.partitions = named.iter().map(|at| (at.clone(), was(at))).collect();
                this.brokers = ids.iter().map(|id| (*id, broker(id))).collect();
            }
            Part::Broker(id) => {
                this.brokers.insert(*id, broker(id));
                for (name, topic) in &image.topics {
                    for (index, partition) in &topic.partitions {
                        if partition.assigned_replicas.contains(id) {
                            let at = TopicPartition { topic: name.clone(), partition: *index };
                            let was = Was::of(topic.incarnation, partition);
                            this.partitions.insert(at, Some(was));
                        }
                    }
                }
            }
            Part::Settings(ConfigEntity::Topic(name)) => {
                let topic = image.topics.get(name);
                this.exists = topic.is_some();
                this.settings = topic.map(|topic| topic.overrides.clone()).unwrap_or_default();
            }
            Part::Settings(ConfigEntity::Broker(id)) => {
                this.settings = image.broker_settings.get(id).cloned().unwrap_or_default();
            }
        }
        this
    }

    /// What is otherwise now, in one sentence; `None`: nothing.
    pub(super) fn moved_on(&self, image: &ClusterImage) -> Option<String> {
        let now = Self::of(image, self.part.clone());
        if now == *self {
            return None;
        }
        if let Some((id, before)) =
            self.brokers.iter().find(|(id, b)| now.brokers.get(id) != Some(b))
        {
            let is = now.brokers.get(id).copied().flatten();
            return Some(match (before, is) {
                (_, None) => format!("broker {id} is not registered any more"),
                (Some((_, was)), Some((_, is))) if *was != is => {
                    let word = if is { "is being drained" } else { "is no longer being drained" };
                    format!("broker {id} {word}")
                }
                _ => format!("broker {id} has registered anew"),
            });
        }
        let changed = now.partitions.iter().find(|(at, is)| self.partitions.get(at) != Some(is));
        let gone = || self.partitions.iter().find(|(at, _)| !now.partitions.contains_key(at));
        if let Some((at, is)) = changed.or_else(gone) {
            let was = self.partitions.get(at).and_then(Option::as_ref);
            let is = is.as_ref().filter(|_| now.partitions.contains_key(at));
            return Some(match (was, is) {
                (_, None) => format!("{at} is gone, or elsewhere"),
                (Some(was), Some(is)) if was.incarnation != is.incarnation => {
                    format!("topic {} was deleted and created again", at.topic)
                }
                (Some(was), Some(is)) if was.epoch != is.epoch => format!(
                    "{at} is at partition epoch {} now; the plan was made for {}",
                    is.epoch, was.epoch
                ),
                (Some(_), Some(_)) => format!("the replicas of {at} are being moved, or were"),
                (None, Some(_)) => format!("{at} has come to be"),
            });
        }
        Some(match &self.part {
            Part::Absent(name) => format!("topic {name} exists now"),
            Part::Settings(entity) if now.exists == self.exists => {
                format!("the settings of {} have changed", whose(entity))
            }
            Part::Settings(entity) => format!("{} is gone", whose(entity)),
            Part::Partitions(..) | Part::Broker(_) => "the cluster has changed".to_owned(),
        })
    }
}

impl Was {
    fn of(incarnation: Incarnation, partition: &Partition) -> Self {
        let epoch = partition.state.partition_epoch;
        Self { incarnation, epoch, assignment: partition.assignment() }
    }
}

fn exists(image: &ClusterImage, name: &TopicName) -> bool {
    image.topics.contains_key(name) || image.unreadable.contains(name)
}

/// `topic orders`, `broker 1`, `all brokers`.
pub(super) fn whose(entity: &ConfigEntity) -> String {
    match entity {
        ConfigEntity::Topic(name) => format!("topic {name}"),
        ConfigEntity::Broker(Some(id)) => format!("broker {id}"),
        ConfigEntity::Broker(None) => "all brokers".to_owned(),
    }
}
