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

/// A broker's word on what it carries that is older says nothing of now.
const TOLD_FOR_MS: u64 = 10_000;

/// `{"topics": [...]}`.
pub(super) async fn topics(source: &Source) -> Result<Value, Refusal> {
    let (image, brokers) = (source.node.view.image(), source.peers.brokers(source).await);
    let told = source.aside.run(move || {
        let one = |(name, topic)| one(&image, name, topic, &brokers);
        image.topics.iter().map(one).collect::<Vec<_>>()
    });
    let topics = told.await.ok_or_else(Refusal::failed)?;
    Ok(json!({ "topics": topics }))
}

fn one(
    image: &ClusterImage,
    name: &TopicName,
    topic: &TopicImage,
    brokers: &BTreeMap<BrokerId, Told>,
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
        "bytes": told(topic, brokers, bytes(name)),
        "bytes_in_per_s": told(topic, brokers, bytes_in_per_s(name)),
        "offline_partitions": counts.offline,
        "under_min_isr_partitions": counts.under_min_isr,
        "under_replicated_partitions": counts.under_replicated,
        "durability": durability(&topic.config, replication_factor),
    })
}

/// What the leaders of a topic tell of it, together; null if one of them does not tell, or has for too long not.
fn told(
    topic: &TopicImage,
    brokers: &BTreeMap<BrokerId, Told>,
    one: impl Fn(&Told) -> Option<u64>,
) -> Option<u64> {
    let leaders = topic.partitions.values().filter_map(|partition| partition.state.leader);
    let leaders: BTreeSet<BrokerId> = leaders.collect();
    let of = |id: &BrokerId| one(brokers.get(id).filter(|told| told.age_ms() < TOLD_FOR_MS)?);
    leaders.iter().map(of).sum()
}

/// Bytes a second that producers send to a broker for a topic. Who tells of others has nothing to tell of this one.
fn bytes_in_per_s(name: &TopicName) -> impl Fn(&Told) -> Option<u64> {
    |told| {
        let rates = told.said.get("topics_in_per_s")?.as_object()?;
        rates.get(name.as_str()).map_or(Some(0), Value::as_u64)
    }
}

/// Bytes of the partitions of a topic that a broker leads: those of one replica of each.
fn bytes(name: &TopicName) -> impl Fn(&Told) -> Option<u64> {
    |told| told.said.get("topics_led_bytes")?.get(name.as_str())?.as_u64()
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
    use barnabas_types::Partition;

    use super::*;

    #[test]
    fn a_figure_of_a_topic_is_known_if_every_leader_tells_of_it() {
        let name = TopicName::new("t").unwrap();
        let led = |leader: i32| {
            let mut partition = Partition::default();
            partition.state.leader = Some(BrokerId(leader));
            partition
        };
        let partitions = [(0, led(1)), (1, led(2)), (2, led(1)), (3, Partition::default())];
        let topic = TopicImage { partitions: partitions.into(), ..TopicImage::default() };
        let says = |said| Told::now(said);
        let rate = |brokers: &BTreeMap<_, _>| told(&topic, brokers, bytes_in_per_s(&name));
        let size = |brokers: &BTreeMap<_, _>| told(&topic, brokers, bytes(&name));
        let one = json!({ "topics_in_per_s": { "t": 7 }, "topics_led_bytes": { "t": 100 } });
        let mut brokers = BTreeMap::from([(BrokerId(1), says(one))]);
        assert_eq!((rate(&brokers), size(&brokers)), (None, None), "one has not told");
        brokers.insert(BrokerId(2), says(json!({ "state": "registered" })));
        assert_eq!((rate(&brokers), size(&brokers)), (None, None), "an earlier version");
        let two = json!({ "topics_in_per_s": { "other": 1 }, "topics_led_bytes": { "t": 11 } });
        brokers.insert(BrokerId(2), says(two));
        assert_eq!((rate(&brokers), size(&brokers)), (Some(7), Some(111)));
    }

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
