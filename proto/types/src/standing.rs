//! How well a partition is, by the cluster's image alone: the one definition for everybody who tells it.

use crate::{BrokerId, ClusterImage, Partition, TopicConfig, TopicImage, TopicName};

/// The worst that holds of a partition; the worst first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Standing {
    /// Nobody serves it: it has no leader, or one that is not registered, is suspected, or cannot serve its replica. As in Kafka, what is
    /// offline is nothing else.
    Offline,
    /// It is served, and acks=all is refused.
    UnderMinIsr,
    /// It is served, and replicas are missing in the ISR; those that are only being added are not missed.
    UnderReplicated,
    /// Nothing is wrong.
    Online,
}

impl Standing {
    /// Of partition `index` of a topic of `image`.
    #[must_use]
    pub fn of(
        image: &ClusterImage,
        name: &TopicName,
        topic: &TopicImage,
        index: i32,
        partition: &Partition,
    ) -> Self {
        if image.serving_leader(name, index, partition).is_none() {
            Self::Offline
        } else if partition.is_under_min(&topic.config) {
            Self::UnderMinIsr
        } else if partition.lacks_replicas() {
            Self::UnderReplicated
        } else {
            Self::Online
        }
    }

    /// Its word, outside: `offline`, `under_min_isr`, `under_replicated` or `online`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Offline => "offline",
            Self::UnderMinIsr => "under_min_isr",
            Self::UnderReplicated => "under_replicated",
            Self::Online => "online",
        }
    }
}

impl ClusterImage {
    /// The leader of a partition of this image, if it serves, as far as the controller knows: it is registered, not suspected, and has
    /// not reported that it cannot.
    #[must_use]
    pub fn serving_leader(
        &self,
        name: &TopicName,
        index: i32,
        partition: &Partition,
    ) -> Option<BrokerId> {
        let leader = partition.state.leader?;
        let serves = self.is_online(leader, name, index) && !self.suspected.contains(&leader);
        serves.then_some(leader)
    }
}

impl Partition {
    /// Whether the ISR is smaller than the replicas before any move: those that are only being added are not missed (as in Kafka).
    #[must_use]
    pub fn lacks_replicas(&self) -> bool {
        let meant = match self.moving.is_under_way() {
            false => self.assigned_replicas.len(),
            true => self.assignment().original().len(),
        };
        self.state.isr.len() < meant
    }

    /// Whether the ISR is smaller than `min.insync.replicas`.
    #[must_use]
    pub fn is_under_min(&self, config: &TopicConfig) -> bool {
        let min = usize::try_from(config.min_insync_replicas).unwrap_or(usize::MAX);
        self.state.isr.len() < min
    }

    /// Whether somebody else than its preferred leader leads it.
    #[must_use]
    pub fn is_led_by_another(&self) -> bool {
        self.state.leader.is_some_and(|leader| Some(&leader) != self.assigned_replicas.first())
    }
}

/// How many partitions are how unwell. What is under min ISR is mostly under-replicated too; what is offline is neither.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Standings {
    /// All of them.
    pub partitions: u64,
    /// Nobody serves these.
    pub offline: u64,
    /// These refuse acks=all.
    pub under_min_isr: u64,
    /// In the ISR of these, replicas are missing.
    pub under_replicated: u64,
    /// Of these, replicas are being moved.
    pub reassigning: u64,
    /// Somebody else than the preferred leader leads these.
    pub not_preferred: u64,
}

impl Standings {
    /// Of one topic of `image`.
    #[must_use]
    pub fn of_topic(image: &ClusterImage, name: &TopicName, topic: &TopicImage) -> Self {
        let mut counts = Self::default();
        for (index, partition) in &topic.partitions {
            let standing = Standing::of(image, name, topic, *index, partition);
            let served = standing != Standing::Offline;
            counts.partitions += 1;
            counts.offline += u64::from(!served);
            counts.under_min_isr += u64::from(standing == Standing::UnderMinIsr);
            counts.under_replicated += u64::from(served && partition.lacks_replicas());
            counts.reassigning += u64::from(partition.moving.is_under_way());
            counts.not_preferred += u64::from(partition.is_led_by_another());
        }
        counts
    }

    /// Of all topics.
    #[must_use]
    pub fn of(image: &ClusterImage) -> Self {
        let topics = image.topics.iter().map(|(name, topic)| Self::of_topic(image, name, topic));
        topics.fold(Self::default(), |sum, one| Self {
            partitions: sum.partitions + one.partitions,
            offline: sum.offline + one.offline,
            under_min_isr: sum.under_min_isr + one.under_min_isr,
            under_replicated: sum.under_replicated + one.under_replicated,
            reassigning: sum.reassigning + one.reassigning,
            not_preferred: sum.not_preferred + one.not_preferred,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::*;
    use crate::{BrokerEpoch, BrokerImage, Moving, TopicPartition};

    fn broker(id: i32) -> (BrokerId, BrokerImage) {
        let broker = BrokerImage {
            epoch: BrokerEpoch(i64::from(id)),
            host: "h".to_owned(),
            port: 1,
            control_address: "h:2".to_owned(),
            rack: None,
            tail_lost: false,
            draining: false,
        };
        (BrokerId(id), broker)
    }

    /// A topic with min.insync.replicas 2 and one partition, assigned to brokers 1, 2 and 3.
    fn image(live: &[i32], leader: Option<i32>, isr: &[i32]) -> ClusterImage {
        let mut partition = Partition {
            assigned_replicas: [1, 2, 3].map(BrokerId).to_vec(),
            ..Partition::default()
        };
        partition.state.leader = leader.map(BrokerId);
        partition.state.isr =
            isr.iter().map(|id| (BrokerId(*id), BrokerEpoch(i64::from(*id)))).collect();
        let config = TopicConfig { min_insync_replicas: 2, ..TopicConfig::default() };
        let partitions = BTreeMap::from([(0, partition)]);
        let topic = TopicImage { config, partitions, ..TopicImage::default() };
        ClusterImage {
            brokers: live.iter().map(|id| broker(*id)).collect(),
            topics: BTreeMap::from([(TopicName::new("t").unwrap(), topic)]),
            ..ClusterImage::default()
        }
    }

    fn standing(image: &ClusterImage) -> Standing {
        let (name, topic) = image.topics.iter().next().unwrap();
        Standing::of(image, name, topic, 0, &topic.partitions[&0])
    }

    #[test]
    fn the_worst_that_holds_is_told() {
        use Standing::{Offline, Online, UnderMinIsr, UnderReplicated};
        type Row = (&'static [i32], Option<i32>, &'static [i32], Standing);
        const ALL: [i32; 3] = [1, 2, 3];
        let table: [Row; 7] = [
            (&ALL, Some(1), &[1, 2, 3], Online),
            (&ALL, Some(2), &[1, 2, 3], Online),
            (&ALL, Some(1), &[1, 2], UnderReplicated),
            (&ALL, Some(1), &[1], UnderMinIsr),
            (&ALL, None, &[1, 2, 3], Offline),
            (&ALL, None, &[1], Offline),
            (&[2, 3], Some(1), &[1, 2, 3], Offline),
        ];
        for (live, leader, isr, expected) in table {
            assert_eq!(
                standing(&image(live, leader, isr)),
                expected,
                "{live:?} {leader:?} {isr:?}"
            );
        }
        // Each of a failing leader's own ways.
        let mut suspected = image(&ALL, Some(1), &[1]);
        suspected.suspected = BTreeSet::from([BrokerId(1)]);
        assert_eq!(standing(&suspected), Offline);
        let mut failed = image(&ALL, Some(1), &[1, 2, 3]);
        let at = TopicPartition { topic: TopicName::new("t").unwrap(), partition: 0 };
        failed.failed.insert(BrokerId(1), BTreeSet::from([at]));
        assert_eq!(standing(&failed), Offline);
    }

    /// From the death of the leader of a partition that nobody else can lead, to its return: what is pushed at each moment.
    #[test]
    fn a_partition_is_offline_from_the_suspicion_of_its_only_leader_to_its_return() {
        let words = |moments: &[ClusterImage]| -> Vec<&'static str> {
            moments.iter().map(|image| standing(image).name()).collect()
        };
        let led = image(&[1, 2, 3], Some(3), &[3]);
        let suspected = ClusterImage { suspected: [BrokerId(3)].into(), ..led.clone() };
        let ended = image(&[1, 2], Some(3), &[3]);
        let leaderless = image(&[1, 2], None, &[3]);
        let moments = [led.clone(), suspected, ended, leaderless, led];
        assert_eq!(
            words(&moments),
            ["under_min_isr", "offline", "offline", "offline", "under_min_isr"]
        );
        // Where another member leads at once it never is.
        let suspected =
            ClusterImage { suspected: [BrokerId(3)].into(), ..image(&[1, 2, 3], Some(1), &[1, 2]) };
        assert_eq!(words(&[suspected]), ["under_replicated"]);
    }

    #[test]
    fn each_is_counted_where_it_belongs() {
        let mut image = image(&[1, 2], Some(1), &[1]);
        let topic = image.topics.values_mut().next().unwrap();
        let shape = |leader: Option<i32>, isr: &[i32]| {
            let mut partition = topic.partitions[&0].clone();
            partition.state.leader = leader.map(BrokerId);
            partition.state.isr = isr.iter().map(|id| (BrokerId(*id), BrokerEpoch(1))).collect();
            partition
        };
        let mut growing = shape(Some(1), &[1, 2]);
        growing.moving = Moving { adding: vec![BrokerId(3)], ..Moving::default() };
        let more =
            [shape(Some(2), &[1, 2, 3]), shape(Some(2), &[2, 1]), shape(None, &[3]), growing];
        topic.partitions.extend((1..).zip(more));
        let expected = Standings {
            partitions: 5,
            offline: 1,
            under_min_isr: 1,
            under_replicated: 2,
            reassigning: 1,
            not_preferred: 2,
        };
        assert_eq!(Standings::of(&image), expected);
        assert!(!image.topics.values().next().unwrap().partitions[&4].lacks_replicas());
    }
}
