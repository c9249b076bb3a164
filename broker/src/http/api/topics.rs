//! `topics`: which topics suffer, and what each survives.

use std::collections::{BTreeMap, BTreeSet};

use barnabas_types::durability::{Fault, survives};
use barnabas_types::{
    Acks, BrokerId, CleanupPolicy, ClusterImage, FlushMode, Standings, TopicConfig, TopicImage,
    TopicName,
};
use serde_json::{Value, json};

use super::super::glance::Told;
use super::super::source::Source;
use super::refusal::Refusal;
use crate::node::Node;

/// A broker's word on what it carries that is older says nothing of now.
const TOLD_FOR_MS: u64 = 10_000;

/// `{"topics": [...]}`.
pub(super) async fn topics(source: &Source) -> Result<Value, Refusal> {
    let (node, brokers) = (source.node.clone(), source.peers.brokers(source).await);
    let told = tokio::task::spawn_blocking(move || {
        let image = node.view.image();
        let one =
            |(name, topic)| one(&node, &image, name, topic, bytes_in_per_s(name, topic, &brokers));
        image.topics.iter().map(one).collect::<Vec<_>>()
    });
    let topics = told.await.map_err(|error| Refusal::not_ready(error.to_string()))?;
    Ok(json!({ "topics": topics }))
}

fn one(
    node: &Node,
    image: &ClusterImage,
    name: &TopicName,
    topic: &TopicImage,
    bytes_in: Option<u64>,
) -> Value {
    let counts = Standings::of_topic(image, name, topic);
    let meant = topic.partitions.values().map(|p| p.assignment().original().len());
    let replication_factor = meant.min().unwrap_or(0);
    let CleanupPolicy { delete, compact } = topic.config.cleanup;
    let policy = match (delete, compact) {
        (true, true) => "compact,delete",
        (false, true) => "compact",
        _ => "delete",
    };
    json!({
        "name": name.as_str(),
        "topic_id": topic.incarnation.topic_id.to_string(),
        "partition_count": counts.partitions,
        "replication_factor": replication_factor,
        "min_insync_replicas": topic.config.min_insync_replicas,
        "flush_mode": if topic.config.flush_mode == FlushMode::Sync { "sync" } else { "async" },
        "cleanup_policy": policy,
        "bytes": bytes(node, name, topic),
        "bytes_in_per_s": bytes_in,
        "offline_partitions": counts.offline,
        "under_min_isr_partitions": counts.under_min_isr,
        "under_replicated_partitions": counts.under_replicated,
        "durability": durability(&topic.config, replication_factor),
    })
}

/// Bytes of one replica of each partition, those of this broker; null if it does not have one of each.
fn bytes(node: &Node, name: &TopicName, topic: &TopicImage) -> Option<u64> {
    let now = node.now();
    let own =
        |index: &i32| Some(node.partitions.get(name.as_str(), *index)?.figures(now)?.size_bytes);
    topic.partitions.keys().map(own).sum()
}

/// What producers send to its leaders, as these tell; null if one of them does not, or has for too long not.
fn bytes_in_per_s(
    name: &TopicName,
    topic: &TopicImage,
    brokers: &BTreeMap<BrokerId, Told>,
) -> Option<u64> {
    let leaders = topic.partitions.values().filter_map(|partition| partition.state.leader);
    let leaders: BTreeSet<BrokerId> = leaders.collect();
    let of = |id: &BrokerId| {
        let told = brokers.get(id).filter(|told| told.age_ms() < TOLD_FOR_MS)?;
        let rates = told.said.get("topics_in_per_s")?.as_object()?;
        // Who tells of others has nothing to tell of this one.
        rates.get(name.as_str()).map_or(Some(0), Value::as_u64)
    };
    leaders.iter().map(of).sum()
}

/// From the loss table.
fn durability(config: &TopicConfig, replication_factor: usize) -> Value {
    let kept =
        |acks, fault| replication_factor > 0 && survives(config, replication_factor, acks, fault);
    let word = |acks, fault| if kept(acks, fault) { "survives" } else { "may_lose" };
    let of = |acks| {
        json!({
            "one_broker_crash": word(acks, Fault::BrokerCrash),
            "one_power_cut": word(acks, Fault::PowerCut),
            "full_power_cut": word(acks, Fault::PowerCutOfAll),
        })
    };
    let survived = Fault::ALL.iter().filter(|fault| kept(Acks::All, **fault));
    let survived: Vec<String> = survived.map(ToString::to_string).collect();
    let sentence = match &survived[..] {
        [] => "acks=all survives nothing for sure".to_owned(),
        names => format!("acks=all survives {}", super::listed(names)),
    };
    json!({ "sentence": sentence, "acks_all": of(Acks::All), "acks_1": of(Acks::Leader) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_topic_survives_is_said_in_words() {
        let config = TopicConfig { min_insync_replicas: 2, ..TopicConfig::default() };
        let told = durability(&config, 3);
        assert_eq!(told["sentence"], "acks=all survives one broker crash and one power cut");
        assert_eq!(told["acks_all"]["full_power_cut"], "may_lose");
        assert_eq!(told["acks_1"]["one_broker_crash"], "may_lose");
        let unclean = TopicConfig { unclean_leader_election: true, ..TopicConfig::default() };
        assert_eq!(durability(&unclean, 2)["sentence"], "acks=all survives nothing for sure");
        assert_eq!(durability(&config, 0)["acks_all"]["one_broker_crash"], "may_lose");
    }
}
