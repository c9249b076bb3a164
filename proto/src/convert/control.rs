//! Pushes, their acknowledgements and ISR proposals.

use std::collections::BTreeMap;

use barnabas_types::{
    BrokerEpoch, BrokerId, BrokerSettings, ClusterDelta, ControllerEpoch, Incarnation, LeaderEpoch,
    Offset, PartitionEpoch, TopicName, TopicPartition,
};

use super::cluster::{read_isr, write_isr};
use super::failed::{read_failed, write_failed};
use super::{ConvertError, broker_id, not_negative, required, topic_name};
use crate::v1;

/// One push: what the controller wants a broker to know, and for whom and when it is meant.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StateUpdate {
    /// Who pushes.
    pub controller: BrokerId,
    /// Its term.
    pub controller_epoch: ControllerEpoch,
    /// The incarnation of the broker for which it is meant (R4).
    pub target: BrokerEpoch,
    /// Version of the image that the broker has after it.
    pub version: u64,
    /// The content.
    pub delta: ClusterDelta,
}

impl From<&StateUpdate> for v1::StateUpdate {
    fn from(value: &StateUpdate) -> Self {
        let brokers = value.delta.brokers.as_ref().map(|brokers| v1::BrokerList {
            brokers: brokers.iter().map(|(id, image)| v1::Broker::of(*id, image)).collect(),
        });
        let deleted = value.delta.deleted.iter().map(|(name, incarnation)| v1::DeletedTopic {
            name: name.to_string(),
            incarnation: Some(incarnation.into()),
        });
        Self {
            controller_id: value.controller.0,
            controller_epoch: value.controller_epoch.0,
            target_broker_epoch: value.target.0,
            version: value.version,
            full: value.delta.full,
            brokers,
            topics: value
                .delta
                .topics
                .iter()
                .map(|(name, image)| v1::Topic::of(name, image))
                .collect(),
            deleted: deleted.collect(),
            failed: value.delta.failed.as_ref().map(write_failed),
            suspected: value
                .delta
                .suspected
                .as_ref()
                .map(|suspected| v1::BrokerIds { ids: suspected.iter().map(|id| id.0).collect() }),
            broker_settings: value.delta.broker_settings.as_ref().map(write_settings),
            unreadable_topics: value.delta.unreadable.iter().map(ToString::to_string).collect(),
        }
    }
}

impl TryFrom<&v1::StateUpdate> for StateUpdate {
    type Error = ConvertError;

    fn try_from(value: &v1::StateUpdate) -> Result<Self, ConvertError> {
        let brokers = match &value.brokers {
            None if value.full => {
                return Err(ConvertError::new("brokers", "missing in a full update"));
            }
            None => None,
            Some(list) => {
                let mut brokers = BTreeMap::new();
                for broker in &list.brokers {
                    let (id, image) = broker.read()?;
                    if brokers.insert(id, image).is_some() {
                        return Err(ConvertError::new("broker.id", format!("{id} stands twice")));
                    }
                }
                Some(brokers)
            }
        };
        let mut topics = BTreeMap::new();
        for topic in &value.topics {
            let (name, image) = topic.read()?;
            if topics.insert(name, image).is_some() {
                return Err(ConvertError::new("topic.name", "stands twice"));
            }
        }
        let mut deleted: Vec<(TopicName, Incarnation)> = Vec::with_capacity(value.deleted.len());
        for topic in &value.deleted {
            let incarnation = required("deleted.incarnation", topic.incarnation.as_ref())?;
            deleted.push((topic_name("deleted.name", &topic.name)?, incarnation.try_into()?));
        }
        let named = value.unreadable_topics.iter();
        let unreadable = named.map(|name| topic_name("unreadable_topics", name));
        let failed = value.failed.as_ref().map(read_failed).transpose()?;
        let suspected = value.suspected.as_ref().map(|suspected| {
            suspected.ids.iter().map(|id| broker_id("suspected", *id)).collect::<Result<_, _>>()
        });
        let broker_settings = value.broker_settings.as_ref().map(read_settings).transpose()?;
        Ok(Self {
            controller: broker_id("controller_id", value.controller_id)?,
            controller_epoch: ControllerEpoch(not_negative(
                "controller_epoch",
                value.controller_epoch,
            )?),
            target: BrokerEpoch(not_negative("target_broker_epoch", value.target_broker_epoch)?),
            version: value.version,
            delta: ClusterDelta {
                full: value.full,
                brokers,
                topics,
                deleted,
                failed,
                suspected: suspected.transpose()?,
                broker_settings,
                unreadable: unreadable.collect::<Result<_, _>>()?,
            },
        })
    }
}

fn write_settings(settings: &BrokerSettings) -> v1::BrokerSettingsList {
    let one = |(broker, settings): (&Option<BrokerId>, &BTreeMap<String, String>)| {
        let settings = settings.clone().into_iter().collect();
        v1::BrokerSettings { broker_id: broker.map(|id| id.0), settings }
    };
    v1::BrokerSettingsList { brokers: settings.iter().map(one).collect() }
}

fn read_settings(list: &v1::BrokerSettingsList) -> Result<BrokerSettings, ConvertError> {
    let mut all = BrokerSettings::new();
    for one in &list.brokers {
        let broker =
            one.broker_id.map(|id| broker_id("broker_settings.broker_id", id)).transpose()?;
        let settings = one.settings.clone().into_iter().collect();
        if all.insert(broker, settings).is_some() {
            return Err(ConvertError::new("broker_settings.broker_id", "stands twice"));
        }
    }
    Ok(all)
}

/// What a replica tells of its log after it accepted a leaderless state (R8).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Report {
    /// Which partition.
    pub partition: TopicPartition,
    /// Life of the topic.
    pub incarnation: Incarnation,
    /// The leaderless epoch that was accepted.
    pub leader_epoch: LeaderEpoch,
    /// Epoch of the last record, `None` for an empty log.
    pub last_epoch: Option<LeaderEpoch>,
    /// LEO, exclusive.
    pub log_end: Offset,
}

/// A broker's acknowledgement of a push.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ack {
    /// The version whose transition is complete.
    pub version: u64,
    /// Who acknowledges.
    pub broker_epoch: BrokerEpoch,
    /// Logs of leaderless partitions.
    pub reports: Vec<Report>,
}

impl From<&Ack> for v1::StateAck {
    fn from(value: &Ack) -> Self {
        let reports = value.reports.iter().map(|report| v1::ReplicaReport {
            topic: report.partition.topic.to_string(),
            partition: report.partition.partition,
            incarnation: Some((&report.incarnation).into()),
            leader_epoch: report.leader_epoch.0,
            last_epoch: report.last_epoch.map_or(-1, |epoch| epoch.0),
            log_end: report.log_end.0,
        });
        Self {
            version: value.version,
            broker_epoch: value.broker_epoch.0,
            reports: reports.collect(),
        }
    }
}

impl TryFrom<&v1::StateAck> for Ack {
    type Error = ConvertError;

    fn try_from(value: &v1::StateAck) -> Result<Self, ConvertError> {
        let mut reports = Vec::with_capacity(value.reports.len());
        for report in &value.reports {
            let last_epoch = match report.last_epoch {
                -1 => None,
                epoch => Some(LeaderEpoch(not_negative("report.last_epoch", epoch)?)),
            };
            reports.push(Report {
                partition: partition(
                    "report.topic",
                    &report.topic,
                    "report.partition",
                    report.partition,
                )?,
                incarnation: required("report.incarnation", report.incarnation.as_ref())?
                    .try_into()?,
                leader_epoch: LeaderEpoch(not_negative(
                    "report.leader_epoch",
                    report.leader_epoch,
                )?),
                last_epoch,
                log_end: Offset(not_negative("report.log_end", report.log_end)?),
            });
        }
        Ok(Self {
            version: value.version,
            broker_epoch: BrokerEpoch(not_negative("broker_epoch", value.broker_epoch)?),
            reports,
        })
    }
}

/// One proposed ISR.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct IsrProposal {
    /// Which partition.
    pub partition: TopicPartition,
    /// Life of the topic.
    pub incarnation: Incarnation,
    /// The leader's epoch.
    pub leader_epoch: LeaderEpoch,
    /// Partition epoch on which the proposal builds.
    pub partition_epoch: PartitionEpoch,
    /// The proposed ISR, with the broker epochs under which the members fetched (R12).
    pub isr: Vec<(BrokerId, BrokerEpoch)>,
}

/// ISR proposals of one leader.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct IsrProposals {
    /// Who proposes.
    pub leader: BrokerId,
    /// Its broker epoch.
    pub broker_epoch: BrokerEpoch,
    /// What it proposes.
    pub proposals: Vec<IsrProposal>,
}

impl From<&IsrProposals> for v1::AlterPartitionRequest {
    fn from(value: &IsrProposals) -> Self {
        let partitions = value.proposals.iter().map(|proposal| v1::AlterPartitionItem {
            topic: proposal.partition.topic.to_string(),
            partition: proposal.partition.partition,
            incarnation: Some((&proposal.incarnation).into()),
            leader_epoch: proposal.leader_epoch.0,
            partition_epoch: proposal.partition_epoch.0,
            isr: write_isr(&proposal.isr),
        });
        Self {
            broker_id: value.leader.0,
            broker_epoch: value.broker_epoch.0,
            partitions: partitions.collect(),
        }
    }
}

impl TryFrom<&v1::AlterPartitionRequest> for IsrProposals {
    type Error = ConvertError;

    fn try_from(value: &v1::AlterPartitionRequest) -> Result<Self, ConvertError> {
        let mut proposals = Vec::with_capacity(value.partitions.len());
        for item in &value.partitions {
            proposals.push(IsrProposal {
                partition: partition("topic", &item.topic, "partition", item.partition)?,
                incarnation: required("incarnation", item.incarnation.as_ref())?.try_into()?,
                leader_epoch: LeaderEpoch(not_negative("leader_epoch", item.leader_epoch)?),
                partition_epoch: PartitionEpoch(not_negative(
                    "partition_epoch",
                    item.partition_epoch,
                )?),
                isr: read_isr(&item.isr)?,
            });
        }
        Ok(Self {
            leader: broker_id("broker_id", value.broker_id)?,
            broker_epoch: BrokerEpoch(not_negative("broker_epoch", value.broker_epoch)?),
            proposals,
        })
    }
}

pub(super) fn partition(
    topic_field: &'static str,
    topic: &str,
    index_field: &'static str,
    index: i32,
) -> Result<TopicPartition, ConvertError> {
    Ok(TopicPartition {
        topic: topic_name(topic_field, topic)?,
        partition: not_negative(index_field, index)?,
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use barnabas_types::{BrokerImage, TopicId};

    fn incarnation() -> Incarnation {
        Incarnation { topic_id: TopicId([2; 16]), czxid: 3 }
    }

    fn partition_zero() -> TopicPartition {
        TopicPartition { topic: TopicName::new("a").unwrap(), partition: 0 }
    }

    #[test]
    fn update_reads_back_as_written() {
        let broker = BrokerImage {
            epoch: BrokerEpoch(1),
            host: "h".into(),
            port: 1,
            control_address: "h:2".into(),
            rack: Some("r".into()),
            tail_lost: false,
            draining: false,
        };
        let update = StateUpdate {
            controller: BrokerId(1),
            controller_epoch: ControllerEpoch(2),
            target: BrokerEpoch(3),
            version: 4,
            delta: ClusterDelta {
                full: true,
                brokers: Some(BTreeMap::from([(BrokerId(1), broker)])),
                topics: BTreeMap::new(),
                deleted: vec![(TopicName::new("gone").unwrap(), incarnation())],
                failed: Some(BTreeMap::from([(BrokerId(1), BTreeSet::from([partition_zero()]))])),
                suspected: Some(BTreeSet::from([BrokerId(1)])),
                broker_settings: Some(BTreeMap::from([
                    (None, BTreeMap::from([("log.retention.ms".into(), "5".into())])),
                    (Some(BrokerId(2)), BTreeMap::new()),
                ])),
                unreadable: BTreeSet::from([TopicName::new("torn").unwrap()]),
            },
        };
        let message = v1::StateUpdate::from(&update);
        assert_eq!(StateUpdate::try_from(&message), Ok(update));
        let missing = v1::StateUpdate { brokers: None, ..message.clone() };
        assert_eq!(StateUpdate::try_from(&missing).unwrap_err().field, "brokers");
        let negative = v1::StateUpdate { controller_epoch: -1, ..message };
        assert_eq!(StateUpdate::try_from(&negative).unwrap_err().field, "controller_epoch");
    }

    #[test]
    fn ack_reads_back_as_written_and_nonsense_is_refused() {
        let report = Report {
            partition: partition_zero(),
            incarnation: incarnation(),
            leader_epoch: LeaderEpoch(1),
            last_epoch: None,
            log_end: Offset(0),
        };
        let ack = Ack { version: 9, broker_epoch: BrokerEpoch(5), reports: vec![report] };
        let message = v1::StateAck::from(&ack);
        assert_eq!(message.reports[0].last_epoch, -1);
        assert_eq!(Ack::try_from(&message), Ok(ack));
        let mut bad = message;
        bad.reports[0].log_end = -1;
        assert_eq!(Ack::try_from(&bad).unwrap_err().field, "report.log_end");
    }

    #[test]
    fn proposal_reads_back_as_written_and_nonsense_is_refused() {
        let proposals = IsrProposals {
            leader: BrokerId(1),
            broker_epoch: BrokerEpoch(10),
            proposals: vec![IsrProposal {
                partition: partition_zero(),
                incarnation: incarnation(),
                leader_epoch: LeaderEpoch(3),
                partition_epoch: PartitionEpoch(4),
                isr: vec![(BrokerId(1), BrokerEpoch(10)), (BrokerId(2), BrokerEpoch(11))],
            }],
        };
        let message = v1::AlterPartitionRequest::from(&proposals);
        assert_eq!(IsrProposals::try_from(&message), Ok(proposals));
        let mut bad = message.clone();
        bad.partitions[0].isr[1].broker_id = 1;
        assert_eq!(IsrProposals::try_from(&bad).unwrap_err().field, "isr.broker_id");
        let mut bad = message;
        bad.partitions[0].topic = "a/../b".into();
        assert_eq!(IsrProposals::try_from(&bad).unwrap_err().field, "topic");
    }
}
