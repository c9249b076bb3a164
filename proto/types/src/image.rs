//! What the cluster looks like: brokers, topics, partitions. The controller pushes it, brokers act on it and serve it to clients.

use std::collections::BTreeMap;

use crate::{
    BrokerEpoch, BrokerId, ControllerEpoch, Incarnation, LeaderEpoch, PartitionEpoch, TopicName,
};

/// When a produce request is answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Acks {
    /// acks=0: never answered.
    None,
    /// acks=1: answered when the leader has written it (in sync mode: flushed).
    Leader,
    /// acks=all (-1): answered when it is below the high watermark.
    All,
}

/// Which positions count for the high watermark (R10).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
pub enum FlushMode {
    /// Written to the page cache counts.
    #[default]
    Async,
    /// Only flushed records count, on the leader and on every ISR member.
    Sync,
}

/// Topic settings that replication and the controller act on; the leader takes them from the push, never from elsewhere (R37).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TopicConfig {
    /// `min.insync.replicas`, 1 or greater.
    pub min_insync_replicas: u32,
    /// `unclean.leader.election.enable`.
    pub unclean_leader_election: bool,
    /// `flush.mode`.
    pub flush_mode: FlushMode,
    /// `segment.bytes`: a segment is rolled before it would grow beyond this.
    pub segment_bytes: u32,
    /// `max.message.bytes`: the largest record batch taken from a producer.
    pub max_message_bytes: u32,
}

impl Default for TopicConfig {
    /// Kafka's defaults.
    fn default() -> Self {
        Self {
            min_insync_replicas: 1,
            unclean_leader_election: false,
            flush_mode: FlushMode::Async,
            segment_bytes: 1024 * 1024 * 1024,
            max_message_bytes: 1024 * 1024 + 12,
        }
    }
}

/// What the partition's state node says, with its version.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct PartitionState {
    /// The leader, `None` = -1 outside.
    pub leader: Option<BrokerId>,
    /// Epoch of the present leader choice (also of the choice of "no leader").
    pub leader_epoch: LeaderEpoch,
    /// Version of the state node.
    pub partition_epoch: PartitionEpoch,
    /// Epoch of the controller that wrote it.
    pub controller_epoch: ControllerEpoch,
    /// Committed ISR in the order of the assignment, each member with the broker epoch under which it was admitted or
    /// last confirmed (R2, `isr_broker_epochs`). Invariant I8: a subset of the assigned replicas; the leader is in it.
    pub isr: Vec<(BrokerId, BrokerEpoch)>,
}

impl PartitionState {
    /// The broker epoch under which `broker` is an ISR member, `None` if it is not one.
    #[must_use]
    pub fn isr_epoch_of(&self, broker: BrokerId) -> Option<BrokerEpoch> {
        self.isr.iter().find(|(id, _)| *id == broker).map(|(_, epoch)| *epoch)
    }

    /// Whether `broker` is a committed ISR member, under whatever broker epoch.
    #[must_use]
    pub fn in_isr(&self, broker: BrokerId) -> bool {
        self.isr_epoch_of(broker).is_some()
    }

    /// Ids of the ISR members.
    #[must_use]
    pub fn isr_ids(&self) -> Vec<BrokerId> {
        self.isr.iter().map(|(id, _)| *id).collect()
    }
}

/// One partition: who holds it and its state.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Partition {
    /// Assigned replicas (AR); the first is the preferred leader.
    pub assigned_replicas: Vec<BrokerId>,
    /// Leader, epochs and ISR.
    pub state: PartitionState,
}

/// One live broker, as registered.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BrokerImage {
    /// czxid of its registration.
    pub epoch: BrokerEpoch,
    /// Advertised host of the Kafka listener.
    pub host: String,
    /// Advertised port of the Kafka listener.
    pub port: u16,
    /// `host:port` at which the broker's gRPC services are reached.
    pub control_address: String,
    /// `broker.rack`.
    pub rack: Option<String>,
    /// The broker may have lost the tail of its logs (R6, R7).
    pub tail_lost: bool,
}

/// One topic with all its partitions.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TopicImage {
    /// Which life of the name this is.
    pub incarnation: Incarnation,
    /// Settings in force.
    pub config: TopicConfig,
    /// By partition index; indexes are dense from 0.
    pub partitions: BTreeMap<i32, Partition>,
}

/// The whole cluster as one controller sees it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ClusterImage {
    /// Who wrote this image.
    pub controller: Option<(BrokerId, ControllerEpoch)>,
    /// Live brokers.
    pub brokers: BTreeMap<BrokerId, BrokerImage>,
    /// Topics.
    pub topics: BTreeMap<TopicName, TopicImage>,
}

/// What one push carries: the full image, or what changed since an earlier version of the same controller's image.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ClusterDelta {
    /// `true`: everything is here, and what is absent does not exist. `false`: only what changed.
    pub full: bool,
    /// All live brokers, if any broker changed (the list is short).
    pub brokers: Option<BTreeMap<BrokerId, BrokerImage>>,
    /// Changed topics with their changed partitions only (all partitions if `full`).
    pub topics: BTreeMap<TopicName, TopicImage>,
    /// Topics that were deleted, with the incarnation that was.
    pub deleted: Vec<(TopicName, Incarnation)>,
}

impl ClusterImage {
    /// Takes over a push. A full one replaces everything; the topics that it no longer names are returned, as are those
    /// that a delta names as deleted. The caller has checked the controller's epoch; pushes of one controller come in order.
    pub fn apply(
        &mut self,
        controller: (BrokerId, ControllerEpoch),
        delta: &ClusterDelta,
    ) -> Vec<TopicName> {
        let gone: Vec<TopicName> = if delta.full {
            self.topics.keys().filter(|name| !delta.topics.contains_key(*name)).cloned().collect()
        } else {
            let known = |name: &TopicName| self.topics.get(name).map(|topic| topic.incarnation);
            let deleted = delta.deleted.iter();
            deleted
                .filter(|(name, incarnation)| known(name).is_some_and(|i| i <= *incarnation))
                .map(|(name, _)| name.clone())
                .collect()
        };
        self.controller = Some(controller);
        if let Some(brokers) = &delta.brokers {
            self.brokers.clone_from(brokers);
        } else if delta.full {
            self.brokers.clear();
        }
        for name in &gone {
            self.topics.remove(name);
        }
        for (name, topic) in &delta.topics {
            self.merge(name, topic, delta.full);
        }
        gone
    }

    /// Takes over a changed topic; a partition's older state never replaces a newer one of the same incarnation (R27).
    fn merge(&mut self, name: &TopicName, topic: &TopicImage, full: bool) {
        match self.topics.get_mut(name) {
            Some(known) if known.incarnation == topic.incarnation => {
                known.config = topic.config;
                for (index, partition) in &topic.partitions {
                    let newer = known.partitions.get(index).is_none_or(|p| {
                        (p.state.leader_epoch, p.state.partition_epoch)
                            <= (partition.state.leader_epoch, partition.state.partition_epoch)
                    });
                    if newer {
                        known.partitions.insert(*index, partition.clone());
                    }
                }
                if full {
                    known.partitions.retain(|index, _| topic.partitions.contains_key(index));
                }
            }
            Some(known) if known.incarnation > topic.incarnation => {}
            _ => {
                self.topics.insert(name.clone(), topic.clone());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TopicId;

    fn topic(czxid: i64, leader_epoch: i32, partition_epoch: i32) -> TopicImage {
        let state = PartitionState {
            leader_epoch: LeaderEpoch(leader_epoch),
            partition_epoch: PartitionEpoch(partition_epoch),
            ..PartitionState::default()
        };
        let partition = Partition { assigned_replicas: vec![BrokerId(1)], state };
        TopicImage {
            incarnation: Incarnation { topic_id: TopicId([1; 16]), czxid },
            config: TopicConfig::default(),
            partitions: BTreeMap::from([(0, partition)]),
        }
    }

    fn push(full: bool, topics: Vec<(&str, TopicImage)>) -> ClusterDelta {
        ClusterDelta {
            full,
            brokers: full.then(BTreeMap::new),
            topics: topics.into_iter().map(|(n, t)| (TopicName::new(n).unwrap(), t)).collect(),
            deleted: Vec::new(),
        }
    }

    #[test]
    fn r27_an_older_state_never_replaces_a_newer_one() {
        let mut image = ClusterImage::default();
        let me = (BrokerId(1), ControllerEpoch(1));
        image.apply(me, &push(true, vec![("t", topic(5, 3, 7))]));
        image.apply(me, &push(false, vec![("t", topic(5, 3, 6))]));
        image.apply(me, &push(false, vec![("t", topic(4, 9, 9))]));
        let known = &image.topics[&TopicName::new("t").unwrap()];
        assert_eq!(known.incarnation.czxid, 5);
        assert_eq!(known.partitions[&0].state.partition_epoch, PartitionEpoch(7));
    }

    #[test]
    fn a_full_push_names_what_is_gone() {
        let mut image = ClusterImage::default();
        let me = (BrokerId(1), ControllerEpoch(1));
        image.apply(me, &push(true, vec![("a", topic(5, 0, 0)), ("b", topic(6, 0, 0))]));
        let gone = image.apply(me, &push(true, vec![("b", topic(6, 0, 0))]));
        assert_eq!(gone, vec![TopicName::new("a").unwrap()]);
    }
}
