//! Replicas that cannot be served: a broker's report of its own, and the list of all in a push.

use std::collections::{BTreeMap, BTreeSet};

use barnabas_types::{
    BrokerEpoch, FailedByBroker, FailedReplicas, Incarnation, TopicName, TopicPartition,
};

use super::control::partition;
use super::{ConvertError, broker_id, not_negative, required};
use crate::v1;

pub(super) fn write_failed(failed: &FailedByBroker) -> v1::FailedReplicaList {
    let of_broker = |(id, replicas): (&barnabas_types::BrokerId, &BTreeSet<TopicPartition>)| {
        let replicas = replicas.iter().map(|at| (at, None));
        v1::FailedReplicasOfBroker { broker_id: id.0, topics: by_topic(replicas) }
    };
    v1::FailedReplicaList { brokers: failed.iter().map(of_broker).collect() }
}

pub(super) fn read_failed(list: &v1::FailedReplicaList) -> Result<FailedByBroker, ConvertError> {
    let mut failed = FailedByBroker::new();
    for broker in &list.brokers {
        let id = broker_id("failed.broker_id", broker.broker_id)?;
        let mut replicas = BTreeSet::new();
        for topic in &broker.topics {
            for index in &topic.partitions {
                replicas.insert(partition(
                    "failed.topic",
                    &topic.topic,
                    "failed.partition",
                    *index,
                )?);
            }
        }
        if failed.insert(id, replicas).is_some() {
            return Err(ConvertError::new("failed.broker_id", format!("{id} stands twice")));
        }
    }
    Ok(failed)
}

/// Groups what is ordered by topic.
fn by_topic<'a>(
    replicas: impl Iterator<Item = (&'a TopicPartition, Option<&'a Incarnation>)>,
) -> Vec<v1::FailedReplicasOfTopic> {
    let mut topics: Vec<v1::FailedReplicasOfTopic> = Vec::new();
    let mut last: Option<(&TopicName, Option<&Incarnation>)> = None;
    for (at, incarnation) in replicas {
        if last != Some((&at.topic, incarnation)) {
            last = Some((&at.topic, incarnation));
            topics.push(v1::FailedReplicasOfTopic {
                topic: at.topic.to_string(),
                incarnation: incarnation.map(Into::into),
                partitions: Vec::new(),
            });
        }
        if let Some(topic) = topics.last_mut() {
            topic.partitions.push(at.partition);
        }
    }
    topics
}

impl From<&FailedReplicas> for v1::FailedReplicas {
    fn from(value: &FailedReplicas) -> Self {
        Self {
            broker_id: value.broker.0,
            broker_epoch: value.broker_epoch.0,
            sequence: value.sequence,
            topics: by_topic(value.replicas.iter().map(|(at, life)| (at, Some(life)))),
        }
    }
}

impl TryFrom<&v1::FailedReplicas> for FailedReplicas {
    type Error = ConvertError;

    fn try_from(value: &v1::FailedReplicas) -> Result<Self, ConvertError> {
        let mut replicas = BTreeMap::new();
        for topic in &value.topics {
            let life: Incarnation =
                required("failed.incarnation", topic.incarnation.as_ref())?.try_into()?;
            for index in &topic.partitions {
                let at = partition("failed.topic", &topic.topic, "failed.partition", *index)?;
                if replicas.insert(at, life).is_some() {
                    return Err(ConvertError::new(
                        "failed.partition",
                        format!("{index} stands twice"),
                    ));
                }
            }
        }
        Ok(Self {
            broker: broker_id("broker_id", value.broker_id)?,
            broker_epoch: BrokerEpoch(not_negative("broker_epoch", value.broker_epoch)?),
            sequence: value.sequence,
            replicas,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use barnabas_types::{BrokerId, TopicId};

    fn at(topic: &str, partition: i32) -> TopicPartition {
        TopicPartition { topic: TopicName::new(topic).unwrap(), partition }
    }

    #[test]
    fn report_reads_back_as_written_and_nonsense_is_refused() {
        let life = |czxid| Incarnation { topic_id: TopicId([1; 16]), czxid };
        let report = FailedReplicas {
            broker: BrokerId(2),
            broker_epoch: BrokerEpoch(20),
            sequence: 3,
            replicas: BTreeMap::from([
                (at("a", 0), life(5)),
                (at("a", 7), life(5)),
                (at("b", 1), life(6)),
            ]),
        };
        let message = v1::FailedReplicas::from(&report);
        assert_eq!(message.topics.len(), 2, "grouped by topic");
        assert_eq!(FailedReplicas::try_from(&message), Ok(report));
        let mut bad = message.clone();
        bad.topics[0].incarnation = None;
        assert_eq!(FailedReplicas::try_from(&bad).unwrap_err().field, "failed.incarnation");
        let mut bad = message.clone();
        bad.topics[0].partitions.push(7);
        assert_eq!(FailedReplicas::try_from(&bad).unwrap_err().field, "failed.partition");
        let mut bad = message;
        bad.topics[1].topic = "../b".into();
        assert_eq!(FailedReplicas::try_from(&bad).unwrap_err().field, "failed.topic");
    }
}
