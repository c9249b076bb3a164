//! What this broker knows of the cluster: the controller's pushes, applied in order; served to clients and to itself.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

use barnabas_controller::ClusterView;
use tokio::sync::watch;

use barnabas_types::{
    BrokerId, ClusterDelta, ClusterId, ClusterImage, ControllerEpoch, TopicId, TopicImage,
    TopicName,
};

/// The newest image. Written by the control agent alone, read by everybody.
pub struct View {
    me: BrokerId,
    cluster_id: ClusterId,
    image: RwLock<Arc<ClusterImage>>,
    changes: watch::Sender<u64>,
}

impl ClusterView for View {
    fn image(&self) -> Arc<ClusterImage> {
        View::image(self)
    }

    fn me(&self) -> BrokerId {
        self.me
    }

    fn cluster_id(&self) -> ClusterId {
        self.cluster_id.clone()
    }

    fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }
}

impl View {
    /// Nothing is known yet.
    #[must_use]
    pub fn new(me: BrokerId, cluster_id: ClusterId) -> Self {
        Self { me, cluster_id, image: RwLock::default(), changes: watch::Sender::new(0) }
    }

    /// The present image; cheap.
    pub fn image(&self) -> Arc<ClusterImage> {
        self.image.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Applies a push. A full one replaces everything; the topics that it no longer names are returned.
    /// The caller has checked the controller's epoch; pushes of one controller come in order.
    pub fn apply(
        &self,
        controller: (BrokerId, ControllerEpoch),
        delta: &ClusterDelta,
    ) -> Vec<TopicName> {
        let mut image = ClusterImage::clone(&self.image());
        let gone = if delta.full {
            image.topics.keys().filter(|name| !delta.topics.contains_key(*name)).cloned().collect()
        } else {
            delta
                .deleted
                .iter()
                .filter(|(name, incarnation)| {
                    image.topics.get(name).is_some_and(|t| t.incarnation <= *incarnation)
                })
                .map(|(name, _)| name.clone())
                .collect::<Vec<_>>()
        };
        image.controller = Some(controller);
        if let Some(brokers) = &delta.brokers {
            image.brokers.clone_from(brokers);
        } else if delta.full {
            image.brokers = BTreeMap::new();
        }
        for name in &gone {
            image.topics.remove(name);
        }
        for (name, topic) in &delta.topics {
            merge(&mut image, name, topic, delta.full);
        }
        *self.image.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(image);
        self.changes.send_modify(|version| *version += 1);
        gone
    }

    /// The topic with this id.
    pub fn topic_by_id(&self, id: TopicId) -> Option<TopicName> {
        let image = self.image();
        image
            .topics
            .iter()
            .find(|(_, topic)| topic.incarnation.topic_id == id)
            .map(|(name, _)| name.clone())
    }
}

/// Takes over a changed topic; a partition's older state never replaces a newer one of the same incarnation (R27).
fn merge(image: &mut ClusterImage, name: &TopicName, topic: &TopicImage, full: bool) {
    let known = image.topics.get_mut(name);
    match known {
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
            image.topics.insert(name.clone(), topic.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use barnabas_types::{
        Incarnation, LeaderEpoch, Partition, PartitionEpoch, PartitionState, TopicConfig,
    };

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
        let view = View::new(BrokerId(1), ClusterId::default());
        let me = (BrokerId(1), ControllerEpoch(1));
        view.apply(me, &push(true, vec![("t", topic(5, 3, 7))]));
        view.apply(me, &push(false, vec![("t", topic(5, 3, 6))]));
        view.apply(me, &push(false, vec![("t", topic(4, 9, 9))]));
        let image = view.image();
        let known = &image.topics[&TopicName::new("t").unwrap()];
        assert_eq!(known.incarnation.czxid, 5);
        assert_eq!(known.partitions[&0].state.partition_epoch, PartitionEpoch(7));
    }

    #[test]
    fn a_full_push_names_what_is_gone() {
        let view = View::new(BrokerId(1), ClusterId::default());
        let me = (BrokerId(1), ControllerEpoch(1));
        view.apply(me, &push(true, vec![("a", topic(5, 0, 0)), ("b", topic(6, 0, 0))]));
        let gone = view.apply(me, &push(true, vec![("b", topic(6, 0, 0))]));
        assert_eq!(gone, vec![TopicName::new("a").unwrap()]);
    }
}
