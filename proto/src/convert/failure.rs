//! Conditions as they cross a process border: Kafka's error name and a sentence.

use barnabas_types::Condition;

use crate::v1;

/// Kafka's name of a condition; for one that came from another process, the name that it came with.
#[must_use]
pub fn kafka_error_name(condition: &Condition) -> &str {
    match condition {
        Condition::NotLeaderOrFollower => "NOT_LEADER_OR_FOLLOWER",
        Condition::LeaderNotAvailable => "LEADER_NOT_AVAILABLE",
        Condition::FencedLeaderEpoch { .. } => "FENCED_LEADER_EPOCH",
        Condition::UnknownLeaderEpoch { .. } => "UNKNOWN_LEADER_EPOCH",
        Condition::UnknownTopicOrPartition => "UNKNOWN_TOPIC_OR_PARTITION",
        Condition::UnknownTopicId => "UNKNOWN_TOPIC_ID",
        Condition::InconsistentTopicId => "INCONSISTENT_TOPIC_ID",
        Condition::NotEnoughReplicas { .. } => "NOT_ENOUGH_REPLICAS",
        Condition::NotEnoughReplicasAfterAppend => "NOT_ENOUGH_REPLICAS_AFTER_APPEND",
        Condition::RequestTimedOut => "REQUEST_TIMED_OUT",
        Condition::OffsetOutOfRange { .. } => "OFFSET_OUT_OF_RANGE",
        Condition::OffsetNotAvailable => "OFFSET_NOT_AVAILABLE",
        Condition::StaleBrokerEpoch { .. } => "STALE_BROKER_EPOCH",
        Condition::StaleControllerEpoch { .. } => "STALE_CONTROLLER_EPOCH",
        Condition::InvalidUpdateVersion { .. } => "INVALID_UPDATE_VERSION",
        Condition::IneligibleReplica(_) => "INELIGIBLE_REPLICA",
        Condition::PreferredLeaderNotAvailable(_) => "PREFERRED_LEADER_NOT_AVAILABLE",
        Condition::EligibleLeadersNotAvailable(_) => "ELIGIBLE_LEADERS_NOT_AVAILABLE",
        Condition::ElectionNotNeeded(_) => "ELECTION_NOT_NEEDED",
        Condition::NotController => "NOT_CONTROLLER",
        // Kafka has no such error; only our own processes see this name.
        Condition::NoController => "CONTROLLER_NOT_AVAILABLE",
        // Nor this one: a client is told that its request has timed out.
        Condition::UnknownOutcome(_) => "OUTCOME_UNKNOWN",
        Condition::TopicAlreadyExists(_) => "TOPIC_ALREADY_EXISTS",
        Condition::InvalidTopic(_) => "INVALID_TOPIC_EXCEPTION",
        Condition::InvalidPartitions(_) => "INVALID_PARTITIONS",
        Condition::InvalidReplicationFactor(_) => "INVALID_REPLICATION_FACTOR",
        Condition::InvalidReplicaAssignment(_) => "INVALID_REPLICA_ASSIGNMENT",
        Condition::NoReassignmentInProgress => "NO_REASSIGNMENT_IN_PROGRESS",
        Condition::InvalidConfig(_) => "INVALID_CONFIG",
        Condition::InvalidRequest(_) => "INVALID_REQUEST",
        Condition::PolicyViolation(_) => "POLICY_VIOLATION",
        Condition::InvalidRequiredAcks => "INVALID_REQUIRED_ACKS",
        Condition::UnsupportedCompressionType => "UNSUPPORTED_COMPRESSION_TYPE",
        Condition::CorruptMessage(_) => "CORRUPT_MESSAGE",
        Condition::InvalidRecord(_) => "INVALID_RECORD",
        Condition::InvalidTimestamp { .. } => "INVALID_TIMESTAMP",
        Condition::MessageTooLarge { .. } => "MESSAGE_TOO_LARGE",
        Condition::OutOfOrderSequenceNumber { .. } => "OUT_OF_ORDER_SEQUENCE_NUMBER",
        Condition::InvalidProducerEpoch => "INVALID_PRODUCER_EPOCH",
        Condition::KafkaStorageError | Condition::LogDirFull | Condition::NoDescriptorLeft => {
            "KAFKA_STORAGE_ERROR"
        }
        Condition::NotAssignedReplica(_) => "REPLICA_NOT_AVAILABLE",
        Condition::UnsupportedVersion(_) => "UNSUPPORTED_VERSION",
        Condition::Remote { name, .. } => name,
        _ => "UNKNOWN_SERVER_ERROR",
    }
}

/// Names whose condition carries numbers that a sentence cannot give back, and that are worth a retry.
const RETRIABLE: [&str; 4] =
    ["FENCED_LEADER_EPOCH", "UNKNOWN_LEADER_EPOCH", "NOT_ENOUGH_REPLICAS", "OUTCOME_UNKNOWN"];

/// Longest name and sentence taken from another process, in bytes.
const NAME_BYTES_MAX: usize = 64;
const MESSAGE_BYTES_MAX: usize = 2000;

impl From<&Condition> for v1::Failure {
    fn from(value: &Condition) -> Self {
        Self { name: kafka_error_name(value).to_owned(), message: value.to_string() }
    }
}

impl From<v1::Failure> for Condition {
    /// The same condition if its name says all; else [`Condition::Remote`], which keeps the name and the sentence.
    fn from(value: v1::Failure) -> Self {
        let text = || cut(&value.message, MESSAGE_BYTES_MAX);
        match value.name.as_str() {
            "NOT_LEADER_OR_FOLLOWER" => Self::NotLeaderOrFollower,
            "LEADER_NOT_AVAILABLE" => Self::LeaderNotAvailable,
            "UNKNOWN_TOPIC_OR_PARTITION" => Self::UnknownTopicOrPartition,
            "UNKNOWN_TOPIC_ID" => Self::UnknownTopicId,
            "INCONSISTENT_TOPIC_ID" => Self::InconsistentTopicId,
            "NOT_ENOUGH_REPLICAS_AFTER_APPEND" => Self::NotEnoughReplicasAfterAppend,
            "REQUEST_TIMED_OUT" => Self::RequestTimedOut,
            "OFFSET_NOT_AVAILABLE" => Self::OffsetNotAvailable,
            "NOT_CONTROLLER" => Self::NotController,
            "CONTROLLER_NOT_AVAILABLE" => Self::NoController,
            "INVALID_TOPIC_EXCEPTION" => Self::InvalidTopic(text()),
            "INVALID_PARTITIONS" => Self::InvalidPartitions(text()),
            "INVALID_REPLICATION_FACTOR" => Self::InvalidReplicationFactor(text()),
            "INVALID_REPLICA_ASSIGNMENT" => Self::InvalidReplicaAssignment(text()),
            "NO_REASSIGNMENT_IN_PROGRESS" => Self::NoReassignmentInProgress,
            "INVALID_CONFIG" => Self::InvalidConfig(text()),
            "INVALID_REQUEST" => Self::InvalidRequest(text()),
            "POLICY_VIOLATION" => Self::PolicyViolation(text()),
            "INVALID_REQUIRED_ACKS" => Self::InvalidRequiredAcks,
            "UNSUPPORTED_COMPRESSION_TYPE" => Self::UnsupportedCompressionType,
            "PREFERRED_LEADER_NOT_AVAILABLE" => Self::PreferredLeaderNotAvailable(text()),
            "ELIGIBLE_LEADERS_NOT_AVAILABLE" => Self::EligibleLeadersNotAvailable(text()),
            "ELECTION_NOT_NEEDED" => Self::ElectionNotNeeded(text()),
            "KAFKA_STORAGE_ERROR" => Self::KafkaStorageError,
            name => Self::Remote {
                name: cut(name, NAME_BYTES_MAX),
                message: text(),
                retriable: RETRIABLE.contains(&name),
            },
        }
    }
}

fn cut(text: &str, bytes_max: usize) -> String {
    let mut end = text.len().min(bytes_max);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text[..end].chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use barnabas_types::{BrokerEpoch, BrokerId, LeaderEpoch};

    #[test]
    fn name_sentence_and_retriability_survive_the_wire() {
        let conditions = [
            Condition::NotLeaderOrFollower,
            Condition::LeaderNotAvailable,
            Condition::FencedLeaderEpoch { asked: LeaderEpoch(1), present: LeaderEpoch(2) },
            Condition::UnknownLeaderEpoch { asked: LeaderEpoch(3), present: LeaderEpoch(2) },
            Condition::UnknownTopicOrPartition,
            Condition::UnknownTopicId,
            Condition::InconsistentTopicId,
            Condition::NotEnoughReplicas { isr: 1, min: 2 },
            Condition::StaleBrokerEpoch { asked: BrokerEpoch(1), present: BrokerEpoch(2) },
            Condition::InvalidUpdateVersion { reason: "old" },
            Condition::NotController,
            Condition::NoController,
            Condition::TopicAlreadyExists("t".into()),
            Condition::InvalidTopic("bad".into()),
            Condition::NoReassignmentInProgress,
            Condition::InvalidConfig("bad".into()),
            Condition::InvalidReplicationFactor("3 of 2".into()),
            Condition::PolicyViolation("compacted".into()),
            Condition::UnknownOutcome("ZooKeeper"),
            Condition::KafkaStorageError,
            Condition::IneligibleReplica(BrokerId(3)),
            Condition::PreferredLeaderNotAvailable("dead".into()),
            Condition::EligibleLeadersNotAvailable("dead".into()),
            Condition::ElectionNotNeeded("it leads".into()),
        ];
        for condition in conditions {
            let failure = v1::Failure::from(&condition);
            let back = Condition::from(failure.clone());
            assert_eq!(v1::Failure::from(&back), failure);
            assert_eq!(back.is_retriable(), condition.is_retriable(), "{condition:?}");
        }
    }

    #[test]
    fn an_unknown_name_keeps_its_text() {
        let failure = v1::Failure { name: "FROM_THE_FUTURE".into(), message: "what\nnow".into() };
        let condition = Condition::from(failure);
        assert_eq!(condition.to_string(), "what?now");
        assert_eq!(kafka_error_name(&condition), "FROM_THE_FUTURE");
        assert!(!condition.is_retriable());
        let long = v1::Failure { name: "x".repeat(1000), message: "ä".repeat(5000) };
        assert!(Condition::from(long).to_string().len() <= MESSAGE_BYTES_MAX);
    }
}
