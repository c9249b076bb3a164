//! What new leaders tell of their first append and first acknowledgement.

use barnabas_types::{BrokerId, LeaderEpoch, TopicPartition};

use super::control::partition;
use super::{ConvertError, broker_id, not_negative};
use crate::v1;

/// What a leader has done in one epoch. Times are milliseconds of its monotonic clock since it took over the push that made it
/// lead.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LeaderServed {
    /// Which partition.
    pub partition: TopicPartition,
    /// In which epoch.
    pub leader_epoch: LeaderEpoch,
    /// When this is told.
    pub led_ms: u64,
    /// First append of a producer's records, `None`: none yet.
    pub first_append_ms: Option<u64>,
    /// First acknowledgement at acks=all, `None`: none yet.
    pub first_ack_ms: Option<u64>,
}

/// What one broker tells of the partitions that it leads.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LeadersServed {
    /// Who leads.
    pub leader: BrokerId,
    /// Where.
    pub partitions: Vec<LeaderServed>,
}

impl From<&LeadersServed> for v1::LeadersServed {
    fn from(value: &LeadersServed) -> Self {
        let partitions = value.partitions.iter().map(|one| v1::LeaderServed {
            topic: one.partition.topic.to_string(),
            partition: one.partition.partition,
            leader_epoch: one.leader_epoch.0,
            led_ms: one.led_ms,
            first_append_ms: one.first_append_ms,
            first_ack_ms: one.first_ack_ms,
        });
        Self { broker_id: value.leader.0, partitions: partitions.collect() }
    }
}

impl TryFrom<&v1::LeadersServed> for LeadersServed {
    type Error = ConvertError;

    fn try_from(value: &v1::LeadersServed) -> Result<Self, ConvertError> {
        let mut partitions = Vec::with_capacity(value.partitions.len());
        for one in &value.partitions {
            let of = partition("served.topic", &one.topic, "served.partition", one.partition)?;
            for time in [one.first_append_ms, one.first_ack_ms].into_iter().flatten() {
                if time > one.led_ms {
                    let text = format!("{time} is after {}", one.led_ms);
                    return Err(ConvertError::new("served.led_ms", text));
                }
            }
            partitions.push(LeaderServed {
                partition: of,
                leader_epoch: LeaderEpoch(not_negative("served.leader_epoch", one.leader_epoch)?),
                led_ms: one.led_ms,
                first_append_ms: one.first_append_ms,
                first_ack_ms: one.first_ack_ms,
            });
        }
        Ok(Self { leader: broker_id("broker_id", value.broker_id)?, partitions })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use barnabas_types::TopicName;

    #[test]
    fn what_leaders_tell_reads_back_as_written_and_nonsense_is_refused() {
        let one = LeaderServed {
            partition: TopicPartition { topic: TopicName::new("t").unwrap(), partition: 3 },
            leader_epoch: LeaderEpoch(4),
            led_ms: 700,
            first_append_ms: Some(20),
            first_ack_ms: None,
        };
        let served = LeadersServed { leader: BrokerId(2), partitions: vec![one] };
        let message = v1::LeadersServed::from(&served);
        assert_eq!(LeadersServed::try_from(&message), Ok(served));
        let mut later = message.clone();
        later.partitions[0].first_append_ms = Some(701);
        assert_eq!(LeadersServed::try_from(&later).unwrap_err().field, "served.led_ms");
        let mut nowhere = message;
        nowhere.partitions[0].topic = "../t".into();
        assert_eq!(LeadersServed::try_from(&nowhere).unwrap_err().field, "served.topic");
    }
}
