//! Descriptions of the cluster as one broker knows it.

use barnabas_proto::v1;
use barnabas_types::{BrokerId, ClusterId, ClusterImage, TopicName};

pub(super) fn cluster(
    image: &ClusterImage,
    cluster_id: &ClusterId,
    me: BrokerId,
) -> v1::DescribeClusterResponse {
    let mut response = v1::DescribeClusterResponse {
        cluster_id: cluster_id.to_string(),
        controller_id: image.controller.map_or(-1, |(id, _)| id.0),
        controller_epoch: image.controller.map_or(0, |(_, epoch)| epoch.0),
        brokers: image.brokers.iter().map(|(id, broker)| v1::Broker::of(*id, broker)).collect(),
        topics: count(image.topics.len()),
        answered_by: me.0,
        ..Default::default()
    };
    for topic in image.topics.values() {
        for partition in topic.partitions.values() {
            let isr = partition.state.isr.len();
            response.partitions += 1;
            response.offline_partitions += i32::from(partition.state.leader.is_none());
            response.under_replicated_partitions +=
                i32::from(isr < partition.assigned_replicas.len());
            let min = usize::try_from(topic.config.min_insync_replicas).unwrap_or(usize::MAX);
            response.under_min_isr_partitions += i32::from(isr < min);
        }
    }
    response
}

pub(super) fn topics(image: &ClusterImage, names: &[String]) -> v1::DescribeTopicsResponse {
    let mut response = v1::DescribeTopicsResponse::default();
    if names.is_empty() {
        response.topics =
            image.topics.iter().map(|(name, topic)| v1::Topic::of(name, topic)).collect();
        return response;
    }
    for name in names {
        let known = TopicName::new(name).ok().and_then(|name| image.topics.get_key_value(&name));
        match known {
            Some((name, topic)) => response.topics.push(v1::Topic::of(name, topic)),
            None => response.missing.push(name.clone()),
        }
    }
    response
}

fn count(len: usize) -> i32 {
    i32::try_from(len).unwrap_or(i32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use barnabas_types::{BrokerEpoch, Partition, PartitionState, TopicConfig, TopicImage};

    #[test]
    fn troubled_partitions_are_counted() {
        let partition = |leader: Option<i32>, isr: &[i32]| Partition {
            assigned_replicas: vec![BrokerId(1), BrokerId(2), BrokerId(3)],
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
        };
        let mut image = ClusterImage::default();
        image.topics.insert(TopicName::new("t").unwrap(), topic);
        let told = cluster(&image, &ClusterId("c".into()), BrokerId(2));
        assert_eq!((told.topics, told.partitions, told.controller_id), (1, 3, -1));
        assert_eq!(told.offline_partitions, 1);
        assert_eq!(told.under_replicated_partitions, 2);
        assert_eq!(told.under_min_isr_partitions, 1);
        let told = topics(&image, &["t".into(), "no".into(), "/".into()]);
        assert_eq!(told.topics.len(), 1);
        assert_eq!(told.missing, vec!["no".to_owned(), "/".to_owned()]);
    }
}
