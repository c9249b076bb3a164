//! Descriptions of the cluster as one broker knows it.

use std::collections::BTreeSet;

use barnabas_proto::v1;
use barnabas_types::{
    BrokerId, ClusterId, ClusterImage, Standing, Standings, TopicImage, TopicName,
};

pub(super) fn cluster(
    image: &ClusterImage,
    cluster_id: &ClusterId,
    me: BrokerId,
) -> v1::DescribeClusterResponse {
    let counts = Standings::of(image);
    let told = |counted: u64| i32::try_from(counted).unwrap_or(i32::MAX);
    let partitions = image.topics.values().flat_map(|topic| topic.partitions.values());
    let missing: BTreeSet<i32> = partitions
        .flat_map(|partition| &partition.assigned_replicas)
        .filter(|id| !image.brokers.contains_key(id))
        .map(|id| id.0)
        .collect();
    v1::DescribeClusterResponse {
        cluster_id: cluster_id.to_string(),
        controller_id: image.controller.map_or(-1, |(id, _)| id.0),
        controller_epoch: image.controller.map_or(0, |(_, epoch)| epoch.0),
        brokers: image.brokers.iter().map(|(id, broker)| v1::Broker::of(*id, broker)).collect(),
        topics: count(image.topics.len()),
        failed_replicas: count(image.failed.values().map(BTreeSet::len).sum()),
        answered_by: me.0,
        partitions: told(counts.partitions),
        offline_partitions: told(counts.offline),
        under_replicated_partitions: told(counts.under_replicated),
        under_min_isr_partitions: told(counts.under_min_isr),
        suspected: image.suspected.iter().map(|id| id.0).collect(),
        missing: missing.into_iter().collect(),
        // What the image does not tell.
        zookeeper_connected: false,
    }
}

pub(super) fn topics(image: &ClusterImage, names: &[String]) -> v1::DescribeTopicsResponse {
    let stored = image.broker_settings.get(&None).cloned().unwrap_or_default();
    let mut response = v1::DescribeTopicsResponse {
        cluster_settings: stored.into_iter().collect(),
        ..Default::default()
    };
    if names.is_empty() {
        response.topics =
            image.topics.iter().map(|(name, topic)| described(image, name, topic)).collect();
        return response;
    }
    for name in names {
        let known = TopicName::new(name).ok().and_then(|name| image.topics.get_key_value(&name));
        match known {
            Some((name, topic)) => response.topics.push(described(image, name, topic)),
            None => response.missing.push(name.clone()),
        }
    }
    response
}

fn described(image: &ClusterImage, name: &TopicName, topic: &TopicImage) -> v1::Topic {
    let mut message = v1::Topic::of(name, topic);
    for partition in &mut message.partitions {
        let known = topic.partitions.get(&partition.index);
        let standing = known.map(|of| Standing::of(image, name, topic, partition.index, of));
        partition.standing = standing.map_or("", Standing::name).to_owned();
        let online = |id: &i32| image.is_online(BrokerId(*id), name, partition.index);
        partition.offline_replicas =
            partition.assigned_replicas.iter().filter(|id| !online(id)).copied().collect();
    }
    message
}

fn count(len: usize) -> i32 {
    i32::try_from(len).unwrap_or(i32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use barnabas_types::{
        BrokerEpoch, BrokerImage, Partition, PartitionState, TopicConfig, TopicPartition,
    };

    #[test]
    fn troubled_partitions_are_counted() {
        let partition = |leader: Option<i32>, isr: &[i32]| Partition {
            assigned_replicas: vec![BrokerId(1), BrokerId(2), BrokerId(3)],
            moving: Default::default(),
            state: PartitionState {
                leader: leader.map(BrokerId),
                isr: isr.iter().map(|id| (BrokerId(*id), BrokerEpoch(1))).collect(),
                ..PartitionState::default()
            },
        };
        let topic = TopicImage {
            incarnation: Default::default(),
            config: TopicConfig { min_insync_replicas: 2, ..TopicConfig::default() },
            partitions: [
                partition(Some(1), &[1, 2, 3]),
                partition(Some(1), &[1, 2]),
                partition(None, &[3]),
            ]
            .into_iter()
            .enumerate()
            .map(|(index, partition)| (count(index), partition))
            .collect(),
            ..TopicImage::default()
        };
        let mut image = ClusterImage::default();
        image.topics.insert(TopicName::new("t").unwrap(), topic);
        for id in 1..=2 {
            let broker = BrokerImage {
                epoch: BrokerEpoch(1),
                host: "h".into(),
                port: 1,
                control_address: "h:2".into(),
                rack: None,
                tail_lost: false,
                draining: false,
            };
            image.brokers.insert(BrokerId(id), broker);
        }
        let at = TopicPartition { topic: TopicName::new("t").unwrap(), partition: 1 };
        image.failed.insert(BrokerId(2), BTreeSet::from([at]));
        image.suspected.insert(BrokerId(2));
        let told = cluster(&image, &ClusterId("c".into()), BrokerId(2));
        assert_eq!((told.topics, told.partitions, told.controller_id), (1, 3, -1));
        assert_eq!(told.offline_partitions, 1);
        assert_eq!(told.under_replicated_partitions, 1, "what is offline is nothing else");
        assert_eq!(told.under_min_isr_partitions, 0);
        assert_eq!((&told.suspected[..], &told.missing[..]), (&[2][..], &[3][..]));
        assert_eq!(told.failed_replicas, 1);
        let told = topics(&image, &["t".into(), "no".into(), "/".into()]);
        assert_eq!(told.topics.len(), 1);
        let offline: Vec<_> =
            told.topics[0].partitions.iter().map(|p| p.offline_replicas.clone()).collect();
        assert_eq!(offline, [vec![3], vec![2, 3], vec![3]]);
        let standings = told.topics[0].partitions.iter().map(|p| p.standing.as_str());
        assert_eq!(standings.collect::<Vec<_>>(), ["online", "under_replicated", "offline"]);
        assert_eq!(told.missing, vec!["no".to_owned(), "/".to_owned()]);
    }
}
