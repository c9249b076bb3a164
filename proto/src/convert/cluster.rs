//! Brokers, topics and partitions.

use std::collections::BTreeMap;

use barnabas_types::{
    BrokerEpoch, BrokerId, BrokerImage, CleanupPolicy, CompressionType, ControllerEpoch, FlushMode,
    Incarnation, LeaderEpoch, Moving, Partition, PartitionEpoch, PartitionState, Ratio,
    TimestampType, TopicConfig, TopicImage, TopicName,
};

use super::{
    ConvertError, broker_id, broker_ids, not_negative, optional_broker_id, required, topic_id,
    topic_name,
};
use crate::v1;

impl From<&Incarnation> for v1::Incarnation {
    fn from(value: &Incarnation) -> Self {
        Self { topic_id: value.topic_id.0.to_vec(), czxid: value.czxid }
    }
}

impl TryFrom<&v1::Incarnation> for Incarnation {
    type Error = ConvertError;

    fn try_from(value: &v1::Incarnation) -> Result<Self, ConvertError> {
        Ok(Self {
            topic_id: topic_id("incarnation.topic_id", &value.topic_id)?,
            czxid: not_negative("incarnation.czxid", value.czxid)?,
        })
    }
}

pub(super) fn write_isr(isr: &[(BrokerId, BrokerEpoch)]) -> Vec<v1::IsrMember> {
    isr.iter().map(|(id, epoch)| v1::IsrMember { broker_id: id.0, broker_epoch: epoch.0 }).collect()
}

/// Members without a duplicate. A broker epoch of -1 is legal: "unknown" (a state written by Kafka).
pub(super) fn read_isr(
    members: &[v1::IsrMember],
) -> Result<Vec<(BrokerId, BrokerEpoch)>, ConvertError> {
    let mut isr: Vec<(BrokerId, BrokerEpoch)> = Vec::with_capacity(members.len());
    for member in members {
        let id = broker_id("isr.broker_id", member.broker_id)?;
        if member.broker_epoch < -1 {
            return Err(ConvertError::new(
                "isr.broker_epoch",
                format!("{} is below -1", member.broker_epoch),
            ));
        }
        if isr.iter().any(|(known, _)| *known == id) {
            return Err(ConvertError::new("isr.broker_id", format!("broker {id} stands twice")));
        }
        isr.push((id, BrokerEpoch(member.broker_epoch)));
    }
    Ok(isr)
}

impl From<&PartitionState> for v1::PartitionState {
    fn from(value: &PartitionState) -> Self {
        Self {
            leader: value.leader.map_or(-1, |leader| leader.0),
            leader_epoch: value.leader_epoch.0,
            partition_epoch: value.partition_epoch.0,
            controller_epoch: value.controller_epoch.0,
            isr: write_isr(&value.isr),
        }
    }
}

impl TryFrom<&v1::PartitionState> for PartitionState {
    type Error = ConvertError;

    fn try_from(value: &v1::PartitionState) -> Result<Self, ConvertError> {
        Ok(Self {
            leader: optional_broker_id("leader", value.leader)?,
            leader_epoch: LeaderEpoch(not_negative("leader_epoch", value.leader_epoch)?),
            partition_epoch: PartitionEpoch(not_negative(
                "partition_epoch",
                value.partition_epoch,
            )?),
            controller_epoch: ControllerEpoch(not_negative(
                "controller_epoch",
                value.controller_epoch,
            )?),
            isr: read_isr(&value.isr)?,
        })
    }
}

impl From<&TopicConfig> for v1::TopicConfig {
    fn from(value: &TopicConfig) -> Self {
        Self {
            min_insync_replicas: value.min_insync_replicas,
            unclean_leader_election: value.unclean_leader_election,
            flush_sync: value.flush_mode == FlushMode::Sync,
            flush_messages: value.flush_messages,
            flush_ms: value.flush_ms,
            flush_timeout_ms: value.flush_timeout_ms,
            segment_bytes: value.segment_bytes,
            segment_ms: value.segment_ms,
            segment_index_bytes: value.segment_index_bytes,
            index_interval_bytes: value.index_interval_bytes,
            max_message_bytes: value.max_message_bytes,
            compression_type: compression_number(value.compression_type),
            log_append_time: value.message_timestamp_type == TimestampType::LogAppendTime,
            message_timestamp_before_max_ms: value.message_timestamp_before_max_ms,
            message_timestamp_after_max_ms: value.message_timestamp_after_max_ms,
            cleanup_delete: value.cleanup.delete,
            cleanup_compact: value.cleanup.compact,
            retention_ms: value.retention_ms,
            retention_bytes: value.retention_bytes,
            delete_retention_ms: value.delete_retention_ms,
            min_compaction_lag_ms: value.min_compaction_lag_ms,
            max_compaction_lag_ms: value.max_compaction_lag_ms,
            min_cleanable_dirty_ratio: value.min_cleanable_dirty_ratio.millionths(),
        }
    }
}

impl TryFrom<&v1::TopicConfig> for TopicConfig {
    type Error = ConvertError;

    fn try_from(value: &v1::TopicConfig) -> Result<Self, ConvertError> {
        if value.min_insync_replicas == 0 {
            return Err(ConvertError::new("config.min_insync_replicas", "0 is not legal"));
        }
        Ok(Self {
            min_insync_replicas: value.min_insync_replicas,
            unclean_leader_election: value.unclean_leader_election,
            flush_mode: if value.flush_sync { FlushMode::Sync } else { FlushMode::Async },
            flush_messages: value.flush_messages,
            flush_ms: value.flush_ms,
            flush_timeout_ms: value.flush_timeout_ms,
            segment_bytes: value.segment_bytes,
            segment_ms: value.segment_ms,
            segment_index_bytes: value.segment_index_bytes,
            index_interval_bytes: value.index_interval_bytes,
            max_message_bytes: value.max_message_bytes,
            compression_type: compression_type(value.compression_type)?,
            message_timestamp_type: if value.log_append_time {
                TimestampType::LogAppendTime
            } else {
                TimestampType::CreateTime
            },
            message_timestamp_before_max_ms: value.message_timestamp_before_max_ms,
            message_timestamp_after_max_ms: value.message_timestamp_after_max_ms,
            cleanup: CleanupPolicy { delete: value.cleanup_delete, compact: value.cleanup_compact },
            retention_ms: value.retention_ms,
            retention_bytes: value.retention_bytes,
            delete_retention_ms: value.delete_retention_ms,
            min_compaction_lag_ms: value.min_compaction_lag_ms,
            max_compaction_lag_ms: value.max_compaction_lag_ms,
            min_cleanable_dirty_ratio: Ratio::from_millionths(value.min_cleanable_dirty_ratio),
        })
    }
}

fn compression_number(of: CompressionType) -> u32 {
    (0..).zip(CompressionType::NAMED).find(|(_, (_, named))| *named == of).map_or(0, |(n, _)| n)
}

fn compression_type(number: u32) -> Result<CompressionType, ConvertError> {
    let index = usize::try_from(number).ok();
    let named = index.and_then(|index| CompressionType::NAMED.get(index));
    let unknown = || ConvertError::new("config.compression_type", "no such number");
    named.map(|(_, of)| *of).ok_or_else(unknown)
}

impl v1::Partition {
    /// The message for a partition.
    #[must_use]
    pub fn of(index: i32, partition: &Partition) -> Self {
        let ids = |of: &[BrokerId]| of.iter().map(|id| id.0).collect();
        Self {
            index,
            assigned_replicas: ids(&partition.assigned_replicas),
            offline_replicas: Vec::new(),
            adding_replicas: ids(&partition.moving.adding),
            removing_replicas: ids(&partition.moving.removing),
            throttle: partition.moving.throttle.unwrap_or(0),
            standing: String::new(),
            state: Some((&partition.state).into()),
        }
    }

    /// Index and partition in the message.
    ///
    /// # Errors
    /// [`ConvertError`] that names the field.
    pub fn read(&self) -> Result<(i32, Partition), ConvertError> {
        let index = not_negative("partition.index", self.index)?;
        let read = Partition {
            assigned_replicas: broker_ids("partition.assigned_replicas", &self.assigned_replicas)?,
            moving: read_moving(self)?,
            state: required("partition.state", self.state.as_ref())?.try_into()?,
        };
        Ok((index, read))
    }
}

impl v1::Topic {
    /// The message for a topic, or for the part of it that is in `image`.
    #[must_use]
    pub fn of(name: &TopicName, image: &TopicImage) -> Self {
        let partitions =
            image.partitions.iter().map(|(index, partition)| v1::Partition::of(*index, partition));
        Self {
            name: name.to_string(),
            incarnation: Some((&image.incarnation).into()),
            config: Some((&image.config).into()),
            overrides: image.overrides.clone().into_iter().collect(),
            partitions: partitions.collect(),
        }
    }

    /// The topic in the message.
    ///
    /// # Errors
    /// [`ConvertError`] that names the field.
    pub fn read(&self) -> Result<(TopicName, TopicImage), ConvertError> {
        let mut partitions = BTreeMap::new();
        for partition in &self.partitions {
            let (index, read) = partition.read()?;
            if partitions.insert(index, read).is_some() {
                return Err(ConvertError::new("partition.index", format!("{index} stands twice")));
            }
        }
        let image = TopicImage {
            incarnation: required("topic.incarnation", self.incarnation.as_ref())?.try_into()?,
            config: required("topic.config", self.config.as_ref())?.try_into()?,
            overrides: self.overrides.clone().into_iter().collect(),
            partitions,
        };
        Ok((topic_name("topic.name", &self.name)?, image))
    }
}

/// Both lists name assigned replicas only.
fn read_moving(partition: &v1::Partition) -> Result<Moving, ConvertError> {
    let part = |field, ids: &[i32]| {
        let read = broker_ids(field, ids)?;
        match read.iter().find(|id| !partition.assigned_replicas.contains(&id.0)) {
            Some(id) => Err(ConvertError::new(field, format!("broker {id} is not assigned"))),
            None => Ok(read),
        }
    };
    Ok(Moving {
        adding: part("partition.adding_replicas", &partition.adding_replicas)?,
        removing: part("partition.removing_replicas", &partition.removing_replicas)?,
        throttle: Some(partition.throttle).filter(|limit| *limit > 0),
    })
}

impl v1::Broker {
    /// The message for a broker.
    #[must_use]
    pub fn of(id: BrokerId, image: &BrokerImage) -> Self {
        Self {
            id: id.0,
            epoch: image.epoch.0,
            host: image.host.clone(),
            port: u32::from(image.port),
            control_address: image.control_address.clone(),
            rack: image.rack.clone(),
            tail_lost: image.tail_lost,
            draining: image.draining,
        }
    }

    /// The broker in the message.
    ///
    /// # Errors
    /// [`ConvertError`] that names the field.
    pub fn read(&self) -> Result<(BrokerId, BrokerImage), ConvertError> {
        let port = u16::try_from(self.port);
        let image = BrokerImage {
            epoch: BrokerEpoch(not_negative("broker.epoch", self.epoch)?),
            host: address("broker.host", &self.host)?,
            port: port.map_err(|_| {
                ConvertError::new("broker.port", format!("{} is no port", self.port))
            })?,
            control_address: address("broker.control_address", &self.control_address)?,
            rack: self.rack.clone(),
            tail_lost: self.tail_lost,
            draining: self.draining,
        };
        Ok((broker_id("broker.id", self.id)?, image))
    }
}

fn address(field: &'static str, text: &str) -> Result<String, ConvertError> {
    const LENGTH_MAX: usize = 300;
    if text.is_empty() || text.len() > LENGTH_MAX || !text.bytes().all(|b| b.is_ascii_graphic()) {
        return Err(ConvertError::new(field, "not 1 to 300 visible ASCII characters"));
    }
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use barnabas_types::TopicId;

    fn topic() -> (TopicName, TopicImage) {
        let state = PartitionState {
            leader: None,
            leader_epoch: LeaderEpoch(2),
            partition_epoch: PartitionEpoch(5),
            controller_epoch: ControllerEpoch(3),
            isr: vec![(BrokerId(1), BrokerEpoch(-1)), (BrokerId(2), BrokerEpoch(9))],
        };
        let moving = Moving {
            adding: vec![BrokerId(2)],
            removing: vec![BrokerId(1)],
            throttle: Some(1_000_000),
        };
        let partition =
            Partition { assigned_replicas: vec![BrokerId(1), BrokerId(2)], moving, state };
        let image = TopicImage {
            incarnation: Incarnation { topic_id: TopicId([8; 16]), czxid: 77 },
            config: TopicConfig {
                min_insync_replicas: 2,
                compression_type: CompressionType::Zstd,
                ..TopicConfig::default()
            },
            overrides: BTreeMap::from([("min.insync.replicas".into(), "2".into())]),
            partitions: BTreeMap::from([(0, partition.clone()), (1, partition)]),
        };
        (TopicName::new("t").unwrap(), image)
    }

    #[test]
    fn topic_reads_back_as_written() {
        let (name, image) = topic();
        assert_eq!(v1::Topic::of(&name, &image).read(), Ok((name, image)));
    }

    #[test]
    fn hostile_topics_are_refused_by_field() {
        type Change = fn(&mut v1::Topic);
        let changes: [(&str, Change); 11] = [
            ("topic.name", |t| t.name = "../x".into()),
            ("topic.incarnation", |t| t.incarnation = None),
            ("incarnation.topic_id", |t| t.incarnation.as_mut().unwrap().topic_id = vec![1; 15]),
            ("partition.index", |t| t.partitions[0].index = -1),
            ("partition.index", |t| t.partitions[0].index = 1),
            ("partition.assigned_replicas", |t| t.partitions[0].assigned_replicas = vec![1, 1]),
            ("partition.adding_replicas", |t| t.partitions[0].adding_replicas = vec![3]),
            ("partition.removing_replicas", |t| t.partitions[0].removing_replicas = vec![1, 1]),
            ("leader", |t| t.partitions[0].state.as_mut().unwrap().leader = -2),
            ("config.compression_type", |t| t.config.as_mut().unwrap().compression_type = 6),
            ("config.min_insync_replicas", |t| t.config.as_mut().unwrap().min_insync_replicas = 0),
        ];
        for (field, change) in changes {
            let (name, image) = topic();
            let mut message = v1::Topic::of(&name, &image);
            change(&mut message);
            assert_eq!(message.read().unwrap_err().field, field);
        }
    }

    #[test]
    fn broker_reads_back_as_written_and_nonsense_is_refused() {
        let image = BrokerImage {
            epoch: BrokerEpoch(7),
            host: "h".into(),
            port: 9092,
            control_address: "h:9192".into(),
            rack: None,
            tail_lost: true,
            draining: true,
        };
        let message = v1::Broker::of(BrokerId(4), &image);
        assert_eq!(message.read(), Ok((BrokerId(4), image)));
        assert_eq!(v1::Broker { id: -1, ..message.clone() }.read().unwrap_err().field, "broker.id");
        assert_eq!(
            v1::Broker { port: 65536, ..message.clone() }.read().unwrap_err().field,
            "broker.port"
        );
        assert_eq!(
            v1::Broker { host: "a\nb".into(), ..message }.read().unwrap_err().field,
            "broker.host"
        );
    }
}
