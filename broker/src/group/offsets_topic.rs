//! The topic that holds the groups' offsets: which partition a group belongs to, and how the topic comes to be.

use std::collections::BTreeMap;
use std::time::Duration;

use barnabas_controller::{ClusterView as _, NewTopic};
use barnabas_group::GroupError;
use barnabas_types::{ClusterImage, Condition, Sanitised, TopicImage, TopicName};

use crate::node::Node;

/// Kafka's name of the topic.
pub(crate) const OFFSETS_TOPIC: &str = "__consumer_offsets";

/// How long a client's question waits for the topic and its leaders; it asks again after that.
const PATIENCE: Duration = Duration::from_secs(5);

/// The partition of a group, as every Kafka client and tool computes it: Java's hash of the group id, modulo `partitions`.
pub(crate) fn partition_of(group_id: &str, partitions: usize) -> i32 {
    let hash = group_id
        .encode_utf16()
        .fold(0_i32, |hash, unit| hash.wrapping_mul(31).wrapping_add(i32::from(unit)));
    let partitions = i32::try_from(partitions).unwrap_or(i32::MAX).max(1);
    // Kafka's abs: the one number without a positive twin counts as 0.
    hash.checked_abs().unwrap_or(0) % partitions
}

/// The topic in `image`, if it is there.
pub(crate) fn of(image: &ClusterImage) -> Option<&TopicImage> {
    image.topics.get(&TopicName::new(OFFSETS_TOPIC).ok()?)
}

/// Whether the topic is there; if not, it is created with the settings of this broker's file. With fewer live brokers than
/// it is to have replicas nothing is created: a topic with too few copies would stay so.
pub(crate) async fn ensure(node: &Node) -> Result<(), GroupError> {
    let made = tokio::time::timeout(PATIENCE, make(node)).await;
    match made.unwrap_or(Err(Condition::RequestTimedOut)) {
        Ok(()) => Ok(()),
        Err(condition) => {
            // Clients ask again and again.
            tracing::debug!(target: "request", topic = OFFSETS_TOPIC, condition = %Sanitised::sentence(&condition), "the offsets topic is not there");
            Err(GroupError::CoordinatorNotAvailable)
        }
    }
}

async fn make(node: &Node) -> Result<(), Condition> {
    if of(&node.view.image()).is_some() {
        return Ok(());
    }
    let config = &node.options.groups;
    let (live, wanted) = (node.view.image().brokers.len(), config.topic_replication_factor);
    if usize::try_from(wanted).is_ok_and(|wanted| live < wanted) {
        let text = format!("{live} brokers are live, offsets.topic.replication.factor is {wanted}");
        return Err(Condition::InvalidReplicationFactor(text));
    }
    // One creation at a time; who waits for it finds the topic, or tries itself.
    let _one = node.groups.creating.lock().await;
    if of(&node.view.image()).is_none() {
        match node.controller.create_topic(new_topic(node)).await {
            Ok(_) => tracing::info!(
                target: "request", topic = OFFSETS_TOPIC, partitions = config.topic_partitions,
                replication_factor = wanted, "created for the first group"
            ),
            Err(Condition::TopicAlreadyExists(_)) => {}
            Err(condition) => return Err(condition),
        }
    }
    let mut changes = node.view.changes();
    while of(&node.view.image()).is_none_or(|topic| !is_led(topic)) {
        if changes.changed().await.is_err() {
            break;
        }
    }
    Ok(())
}

/// Compacted, in segments of its own size; min.insync.replicas is named where the default would let no commit through.
fn new_topic(node: &Node) -> NewTopic {
    let config = &node.options.groups;
    let mut overrides = BTreeMap::from([
        ("cleanup.policy".to_owned(), "compact".to_owned()),
        ("segment.bytes".to_owned(), config.topic_segment_bytes.to_string()),
    ]);
    let replicas = config.topic_replication_factor;
    if i64::from(node.options.min_insync_replicas) > i64::from(replicas) {
        overrides.insert("min.insync.replicas".to_owned(), replicas.to_string());
    }
    NewTopic {
        name: OFFSETS_TOPIC.to_owned(),
        partitions: Some(config.topic_partitions),
        replication_factor: Some(replicas),
        overrides,
        ..NewTopic::default()
    }
}

fn is_led(topic: &TopicImage) -> bool {
    topic.partitions.values().all(|partition| partition.state.leader.is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The numbers are Java's: `"console-consumer-1".hashCode()` and so on.
    #[test]
    fn a_group_belongs_to_the_partition_that_kafka_would_choose() {
        for (group, hash) in [
            ("", 0),
            ("a", 97),
            ("group", 98_629_247),
            ("polygenelubricants", i32::MIN),
            ("ä", 228),
            ("\u{1f600}", 1_772_899),
        ] {
            let expected = if hash == i32::MIN { 0 } else { hash.abs() % 50 };
            assert_eq!(partition_of(group, 50), expected, "{group}");
        }
        assert_eq!(partition_of("group", 1), 0);
        assert_eq!(partition_of("group", 0), 0, "no division by zero");
    }
}
