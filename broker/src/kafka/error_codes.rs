//! Where a condition becomes a Kafka error code; nowhere else.

use barnabas_types::Condition;

/// The code of a condition.
pub(crate) fn error_code(condition: &Condition) -> i16 {
    match condition {
        Condition::OffsetOutOfRange { .. } => 1,
        Condition::CorruptMessage(_) => 2,
        Condition::UnknownTopicOrPartition => 3,
        Condition::LeaderNotAvailable => 5,
        Condition::NotLeaderOrFollower => 6,
        Condition::RequestTimedOut | Condition::UnknownOutcome(_) => 7,
        Condition::MessageTooLarge { .. } => 10,
        Condition::StaleControllerEpoch { .. } => 11,
        Condition::InvalidTopic(_) => 17,
        Condition::NotEnoughReplicas { .. } => 19,
        Condition::NotEnoughReplicasAfterAppend => 20,
        Condition::InvalidRequiredAcks => 21,
        Condition::UnsupportedVersion(_) => 35,
        Condition::TopicAlreadyExists(_) => 36,
        Condition::InvalidPartitions(_) => 37,
        Condition::InvalidReplicationFactor(_) => 38,
        Condition::InvalidReplicaAssignment(_) => 39,
        Condition::InvalidConfig(_) => 40,
        Condition::NotController | Condition::NoController => 41,
        Condition::InvalidRequest(_) => 42,
        Condition::KafkaStorageError => 56,
        Condition::FencedLeaderEpoch { .. } => 74,
        Condition::UnknownLeaderEpoch { .. } => 75,
        Condition::StaleBrokerEpoch { .. } => 77,
        Condition::OffsetNotAvailable => 78,
        Condition::InvalidRecord(_) => 87,
        Condition::InvalidUpdateVersion { .. } => 95,
        Condition::UnknownTopicId => 100,
        Condition::InconsistentTopicId => 103,
        // The replica is not (any more) one that this leader serves: the follower asks again after its next push.
        Condition::NotAssignedReplica(_) => 9,
        _ => -1,
    }
}

/// Codes that have no condition of their own.
pub(crate) const CLUSTER_AUTHORIZATION_FAILED: i16 = 29;
/// See KIP-227: this broker answers every fetch in full and opens no session for clients.
pub(crate) const FETCH_SESSION_ID_NOT_FOUND: i16 = 70;
