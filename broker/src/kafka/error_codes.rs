//! Where a condition becomes a Kafka error code; nowhere else.

use barnabas_group::GroupError;
use barnabas_proto::convert::kafka_error_name;
use barnabas_types::Condition;

/// The code of a condition, also of one that came by name from another broker.
pub(crate) fn error_code(condition: &Condition) -> i16 {
    code_of_name(kafka_error_name(condition))
}

fn code_of_name(name: &str) -> i16 {
    match name {
        "OFFSET_OUT_OF_RANGE" => 1,
        "CORRUPT_MESSAGE" => 2,
        "UNKNOWN_TOPIC_OR_PARTITION" => 3,
        "LEADER_NOT_AVAILABLE" => 5,
        "NOT_LEADER_OR_FOLLOWER" => 6,
        // An unknown outcome, too: the client may ask again, and then learns what happened.
        "REQUEST_TIMED_OUT" | "OUTCOME_UNKNOWN" => 7,
        "REPLICA_NOT_AVAILABLE" => 9,
        "MESSAGE_TOO_LARGE" => 10,
        "STALE_CONTROLLER_EPOCH" => 11,
        "INVALID_TOPIC_EXCEPTION" => 17,
        "NOT_ENOUGH_REPLICAS" => 19,
        "NOT_ENOUGH_REPLICAS_AFTER_APPEND" => 20,
        "INVALID_REQUIRED_ACKS" => 21,
        "INVALID_TIMESTAMP" => 32,
        "UNSUPPORTED_VERSION" => 35,
        "TOPIC_ALREADY_EXISTS" => 36,
        "INVALID_PARTITIONS" => 37,
        "INVALID_REPLICATION_FACTOR" => 38,
        "INVALID_REPLICA_ASSIGNMENT" => 39,
        "INVALID_CONFIG" => 40,
        "NOT_CONTROLLER" | "CONTROLLER_NOT_AVAILABLE" => 41,
        "INVALID_REQUEST" => 42,
        "POLICY_VIOLATION" => 44,
        "OUT_OF_ORDER_SEQUENCE_NUMBER" => 45,
        "INVALID_PRODUCER_EPOCH" => 47,
        "KAFKA_STORAGE_ERROR" => 56,
        "FENCED_LEADER_EPOCH" => 74,
        "UNSUPPORTED_COMPRESSION_TYPE" => 76,
        "UNKNOWN_LEADER_EPOCH" => 75,
        "STALE_BROKER_EPOCH" => 77,
        "OFFSET_NOT_AVAILABLE" => 78,
        "PREFERRED_LEADER_NOT_AVAILABLE" => 80,
        "ELIGIBLE_LEADERS_NOT_AVAILABLE" => 83,
        "ELECTION_NOT_NEEDED" => 84,
        "NO_REASSIGNMENT_IN_PROGRESS" => 85,
        "INVALID_RECORD" => 87,
        "INVALID_UPDATE_VERSION" => 95,
        "UNKNOWN_TOPIC_ID" => 100,
        "INCONSISTENT_TOPIC_ID" => 103,
        "INELIGIBLE_REPLICA" => 107,
        _ => -1,
    }
}

/// The code of what a group's coordinator says.
pub(crate) fn group_error_code(error: GroupError) -> i16 {
    match error {
        GroupError::OffsetMetadataTooLarge => 12,
        GroupError::CoordinatorLoadInProgress => 14,
        GroupError::CoordinatorNotAvailable => 15,
        GroupError::NotCoordinator => 16,
        GroupError::IllegalGeneration => 22,
        GroupError::InconsistentGroupProtocol => 23,
        GroupError::InvalidGroupId => 24,
        GroupError::UnknownMemberId => 25,
        GroupError::InvalidSessionTimeout => 26,
        GroupError::RebalanceInProgress => 27,
        GroupError::InvalidCommitOffsetSize => 28,
        GroupError::InvalidRequest => INVALID_REQUEST,
        GroupError::PolicyViolation => 44,
        GroupError::NonEmptyGroup => 68,
        GroupError::GroupIdNotFound => 69,
        GroupError::MemberIdRequired => 79,
        GroupError::GroupMaxSizeReached => 81,
        GroupError::FencedInstanceId => 82,
        GroupError::GroupSubscribedToTopic => 86,
        GroupError::UnstableOffsetCommit => 88,
        _ => -1,
    }
}

/// Codes that have no condition of their own. This one is Kafka's answer to a client that poses as a follower.
pub(crate) const TOPIC_AUTHORIZATION_FAILED: i16 = 29;
/// A request that makes no sense.
pub(crate) const INVALID_REQUEST: i16 = 42;
/// A fetch in a session that is not there, or not any more (KIP-227): the client begins another one.
pub(crate) const FETCH_SESSION_ID_NOT_FOUND: i16 = 70;
/// A fetch that is not the session's next.
pub(crate) const INVALID_FETCH_SESSION_EPOCH: i16 = 71;
/// DescribeCluster asks for endpoints that this listener is not of, or that nothing is of (KIP-919).
pub(crate) const MISMATCHED_ENDPOINT_TYPE: i16 = 114;
/// See [`MISMATCHED_ENDPOINT_TYPE`].
pub(crate) const UNSUPPORTED_ENDPOINT_TYPE: i16 = 115;
/// A fetch that names topics otherwise than the session does (KIP-516).
pub(crate) const FETCH_SESSION_TOPIC_ID_ERROR: i16 = 106;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_condition_keeps_its_code_when_it_was_forwarded() {
        for condition in [
            Condition::TopicAlreadyExists("t".into()),
            Condition::InvalidReplicationFactor("3 of 2".into()),
            Condition::NotEnoughReplicas { isr: 1, min: 2 },
            Condition::CorruptMessage("crc"),
            Condition::UnknownOutcome("the controller changed meanwhile"),
        ] {
            let failure = barnabas_proto::v1::Failure::from(&condition);
            assert_eq!(error_code(&Condition::from(failure)), error_code(&condition));
            assert_ne!(error_code(&condition), -1);
        }
    }
}
