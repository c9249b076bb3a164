//! A partition in the API's words, by the cluster's image alone.

use barnabas_types::{BrokerId, ClusterImage, Partition, Standing, TopicImage, TopicName};
use serde_json::{Value, json};

/// The letter of a standing in the map.
pub(super) fn letter(standing: Standing) -> char {
    match standing {
        Standing::Offline => 'o',
        Standing::UnderMinIsr => 'm',
        Standing::UnderReplicated => 'r',
        Standing::Online => '.',
    }
}

/// Ids as they are outside.
pub(super) fn ids(brokers: &[BrokerId]) -> Vec<i32> {
    brokers.iter().map(|id| id.0).collect()
}

/// What the image says of a partition, in the API's words.
pub(super) fn described(
    image: &ClusterImage,
    name: &TopicName,
    topic: &TopicImage,
    index: i32,
    partition: &Partition,
) -> Value {
    let state = &partition.state;
    let isr = state.isr_ids();
    let outside = partition.assigned_replicas.iter().filter(|id| !isr.contains(id));
    json!({
        "topic": name.as_str(),
        "partition": index,
        "state": Standing::of(image, name, topic, index, partition).name(),
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
    use barnabas_types::{BrokerEpoch, TopicConfig};

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
    fn a_partition_is_described_with_who_is_missing() {
        let states: [(i32, &[i32]); 4] = [(1, &[1, 2, 3]), (2, &[1, 2]), (1, &[1]), (-1, &[3])];
        let image = image(&[1, 2], &states);
        let (name, topic) = image.topics.iter().next().unwrap();
        let of = |index: i32| described(&image, name, topic, index, &topic.partitions[&index]);
        let told = of(3);
        assert_eq!((&told["leader"], &told["osr"]), (&json!(-1), &json!([1, 2])));
        let states = (0..4).map(|index| of(index)["state"].as_str().unwrap().to_owned());
        assert_eq!(
            states.collect::<Vec<_>>(),
            ["online", "under_replicated", "under_min_isr", "offline"]
        );
    }
}
