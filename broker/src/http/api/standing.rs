//! How well a partition is, by the cluster's image alone.

use barnabas_types::{BrokerId, ClusterImage, Partition, TopicImage};
use serde_json::{Value, json};

/// The worst that holds. As in Kafka, a partition without a leader is offline and nothing else.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(in crate::http) enum State {
    /// Nobody leads.
    Offline,
    /// acks=all is refused.
    UnderMinIsr,
    /// Replicas are missing in the ISR; those that are only being added are not missed.
    UnderReplicated,
    /// Nothing is wrong.
    Online,
}

impl State {
    /// Of a partition of `topic`.
    pub(in crate::http) fn of(topic: &TopicImage, partition: &Partition) -> Self {
        let isr = partition.state.isr.len();
        let min = usize::try_from(topic.config.min_insync_replicas).unwrap_or(usize::MAX);
        if partition.state.leader.is_none() {
            Self::Offline
        } else if isr < min {
            Self::UnderMinIsr
        } else if isr < partition.assignment().original().len() {
            Self::UnderReplicated
        } else {
            Self::Online
        }
    }

    /// Its name in the API.
    pub(in crate::http) fn name(self) -> &'static str {
        match self {
            Self::Offline => "offline",
            Self::UnderMinIsr => "under_min_isr",
            Self::UnderReplicated => "under_replicated",
            Self::Online => "online",
        }
    }

    /// Its letter in the map.
    pub(super) fn letter(self) -> char {
        match self {
            Self::Offline => 'o',
            Self::UnderMinIsr => 'm',
            Self::UnderReplicated => 'r',
            Self::Online => '.',
        }
    }
}

/// How many are how unwell. What is under min ISR is under-replicated too; what is offline is neither.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Counts {
    pub(super) partitions: u64,
    pub(super) offline: u64,
    pub(super) under_min_isr: u64,
    pub(super) under_replicated: u64,
    pub(super) reassigning: u64,
    pub(super) not_preferred: u64,
}

impl Counts {
    /// Of one topic.
    pub(super) fn of(topic: &TopicImage) -> Self {
        let mut counts = Self::default();
        for partition in topic.partitions.values() {
            let state = State::of(topic, partition);
            let short = partition.state.isr.len() < partition.assignment().original().len();
            let preferred = partition.assigned_replicas.first();
            counts.partitions += 1;
            counts.offline += u64::from(state == State::Offline);
            counts.under_min_isr += u64::from(state == State::UnderMinIsr);
            counts.under_replicated += u64::from(state != State::Offline && short);
            counts.reassigning += u64::from(partition.moving.is_under_way());
            counts.not_preferred +=
                u64::from(partition.state.leader.is_some_and(|id| Some(&id) != preferred));
        }
        counts
    }

    /// Of all topics.
    pub(super) fn of_all(image: &ClusterImage) -> Self {
        image.topics.values().map(Self::of).fold(Self::default(), |sum, one| Self {
            partitions: sum.partitions + one.partitions,
            offline: sum.offline + one.offline,
            under_min_isr: sum.under_min_isr + one.under_min_isr,
            under_replicated: sum.under_replicated + one.under_replicated,
            reassigning: sum.reassigning + one.reassigning,
            not_preferred: sum.not_preferred + one.not_preferred,
        })
    }
}

/// Ids as they are outside.
pub(super) fn ids(brokers: &[BrokerId]) -> Vec<i32> {
    brokers.iter().map(|id| id.0).collect()
}

/// What the image says of a partition, in the API's words.
pub(super) fn described(
    name: &str,
    topic: &TopicImage,
    index: i32,
    partition: &Partition,
) -> Value {
    let state = &partition.state;
    let isr = state.isr_ids();
    let outside = partition.assigned_replicas.iter().filter(|id| !isr.contains(id));
    json!({
        "topic": name,
        "partition": index,
        "state": State::of(topic, partition).name(),
        "leader": state.leader.map_or(-1, |id| id.0),
        "leader_epoch": state.leader_epoch.0,
        "partition_epoch": state.partition_epoch.0,
        "controller_epoch": state.controller_epoch.0,
        "assigned_replicas": ids(&partition.assigned_replicas),
        "isr": ids(&isr),
        "osr": outside.map(|id| id.0).collect::<Vec<_>>(),
        "adding_replicas": ids(&partition.moving.adding),
        "removing_replicas": ids(&partition.moving.removing),
        "min_insync_replicas": topic.config.min_insync_replicas,
    })
}

#[cfg(test)]
pub(super) mod tests {
    use barnabas_types::{BrokerEpoch, TopicConfig, TopicName};

    use super::*;
    use crate::testing::registered;

    /// A topic `t` with min.insync.replicas 2 and one partition for each (leader, ISR), assigned to brokers 1, 2 and 3; of the brokers
    /// only `live` are registered.
    pub(in crate::http::api) fn image(live: &[i32], states: &[(i32, &[i32])]) -> ClusterImage {
        let mut image = ClusterImage::default();
        for id in live {
            image.brokers.insert(BrokerId(*id), registered(BrokerEpoch(i64::from(*id))));
        }
        let partition = |(leader, isr): &(i32, &[i32])| {
            let mut partition = Partition {
                assigned_replicas: [1, 2, 3].map(BrokerId).to_vec(),
                ..Partition::default()
            };
            partition.state.leader = Some(BrokerId(*leader)).filter(|_| *leader >= 0);
            partition.state.isr =
                isr.iter().map(|id| (BrokerId(*id), BrokerEpoch(i64::from(*id)))).collect();
            partition
        };
        let topic = TopicImage {
            config: TopicConfig { min_insync_replicas: 2, ..TopicConfig::default() },
            partitions: (0..).zip(states.iter().map(partition)).collect(),
            ..TopicImage::default()
        };
        image.topics.insert(TopicName::new("t").unwrap(), topic);
        image
    }

    #[test]
    fn the_worst_that_holds_is_the_state_and_each_is_counted_where_it_belongs() {
        let states: [(i32, &[i32]); 4] = [(1, &[1, 2, 3]), (2, &[1, 2]), (1, &[1]), (-1, &[3])];
        let image = image(&[1, 2], &states);
        let topic = image.topics.values().next().unwrap();
        let letters: String =
            topic.partitions.values().map(|p| State::of(topic, p).letter()).collect();
        assert_eq!(letters, ".rmo");
        let counts = Counts::of_all(&image);
        assert_eq!(
            counts,
            Counts {
                partitions: 4,
                offline: 1,
                under_min_isr: 1,
                under_replicated: 2,
                reassigning: 0,
                not_preferred: 1
            }
        );
        let told = described("t", topic, 3, &topic.partitions[&3]);
        assert_eq!((&told["leader"], &told["osr"]), (&json!(-1), &json!([1, 2])));
        assert_eq!(told["state"], "offline");
    }
}
