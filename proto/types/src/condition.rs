//! What can be wrong with a request, as values; each becomes a Kafka error code in one table at the broker's edge.

use crate::{BrokerEpoch, BrokerId, ControllerEpoch, LeaderEpoch, Offset};

/// A condition that ends a request without success. The text says what is wrong and, where there is one, the remedy.
#[derive(Clone, PartialEq, Eq, Hash, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Condition {
    /// This broker does not lead the partition (any more).
    #[error("this broker does not lead the partition; refresh the metadata and ask the leader")]
    NotLeaderOrFollower,
    /// The partition has no leader at present.
    #[error("the partition has no leader at present")]
    LeaderNotAvailable,
    /// The request's leader epoch is older than the partition's.
    #[error("leader epoch {asked} is older than the present one, {present}")]
    FencedLeaderEpoch {
        /// What the request said.
        asked: LeaderEpoch,
        /// What this broker knows.
        present: LeaderEpoch,
    },
    /// The request's leader epoch is newer than this broker has been told.
    #[error("leader epoch {asked} is newer than the one known here, {present}")]
    UnknownLeaderEpoch {
        /// What the request said.
        asked: LeaderEpoch,
        /// What this broker knows.
        present: LeaderEpoch,
    },
    /// No such topic or partition here.
    #[error("no such topic or partition")]
    UnknownTopicOrPartition,
    /// The topic id is not that of the present topic of this name (R27, R29).
    #[error("the topic id does not name a present topic")]
    UnknownTopicId,
    /// The topic id or incarnation of the request differs from the one here.
    #[error("the topic was re-created: its id differs from the one in the request")]
    InconsistentTopicId,
    /// |committed ISR| < min.insync.replicas before the append.
    #[error("the ISR has {isr} members, min.insync.replicas asks for {min}")]
    NotEnoughReplicas {
        /// Committed ISR size.
        isr: u32,
        /// What the topic asks for.
        min: u32,
    },
    /// The record was appended, but the ISR fell below min.insync.replicas before it was committed.
    #[error("appended, but the ISR fell below min.insync.replicas before it was committed")]
    NotEnoughReplicasAfterAppend,
    /// The request waited longer than its timeout.
    #[error("the request waited longer than its timeout")]
    RequestTimedOut,
    /// An offset outside the log.
    #[error("offset {asked} is outside [{start}, {end}]")]
    OffsetOutOfRange {
        /// What the request said.
        asked: Offset,
        /// Log start offset, inclusive.
        start: Offset,
        /// Highest legal offset.
        end: Offset,
    },
    /// The leader's HW has not reached the start of its epoch yet (KIP-207, R14).
    #[error("the new leader does not know the high watermark yet; try again")]
    OffsetNotAvailable,
    /// A message names another incarnation of a broker than the present one.
    #[error("broker epoch {asked} is stale, the present one is {present}")]
    StaleBrokerEpoch {
        /// What the message said.
        asked: BrokerEpoch,
        /// What is known.
        present: BrokerEpoch,
    },
    /// A message of a deposed controller.
    #[error("controller epoch {asked} is older than {known}")]
    StaleControllerEpoch {
        /// What the message said.
        asked: ControllerEpoch,
        /// The highest epoch known here.
        known: ControllerEpoch,
    },
    /// An ISR proposal that does not fit the present state.
    #[error("the ISR proposal is refused: {reason}")]
    InvalidUpdateVersion {
        /// Why.
        reason: &'static str,
    },
    /// A proposed ISR names a replica that may not join one: its broker is being drained (R26, KIP-841), or suspected (R17).
    #[error("broker {0} may not join an ISR: it is being drained, or seems to be gone")]
    IneligibleReplica(BrokerId),
    /// The preferred replica cannot lead now (KIP-460).
    #[error("{0}")]
    PreferredLeaderNotAvailable(String),
    /// No replica can be elected now (KIP-460).
    #[error("{0}")]
    EligibleLeadersNotAvailable(String),
    /// The partition has the leader that the election would give it (KIP-460).
    #[error("{0}")]
    ElectionNotNeeded(String),
    /// This broker is not the controller.
    #[error("this broker is not the controller")]
    NotController,
    /// No controller is elected at present, or it cannot be reached.
    #[error(
        "no controller can be reached; see whether ZooKeeper is (barnabas cluster describe), and try again"
    )]
    NoController,
    /// The topic exists.
    #[error("topic '{0}' exists")]
    TopicAlreadyExists(String),
    /// Not a legal topic name.
    #[error("{0}")]
    InvalidTopic(String),
    /// Not a legal number of partitions.
    #[error("{0}")]
    InvalidPartitions(String),
    /// Replication factor not legal, or above the number of live brokers.
    #[error("{0}")]
    InvalidReplicationFactor(String),
    /// A manual assignment that cannot be.
    #[error("{0}")]
    InvalidReplicaAssignment(String),
    /// A move of replicas is to be cancelled or changed, and none is under way (KIP-455).
    #[error("no reassignment of the partition is under way")]
    NoReassignmentInProgress,
    /// A topic setting that is unknown or has a bad value.
    #[error("{0}")]
    InvalidConfig(String),
    /// The request is not well-formed.
    #[error("{0}")]
    InvalidRequest(String),
    /// The topic's settings forbid what was asked for.
    #[error("{0}")]
    PolicyViolation(String),
    /// A codec that the request's version does not know (KIP-110).
    #[error(
        "zstd needs version 7 of Produce or a newer one: update the client, or use another codec"
    )]
    UnsupportedCompressionType,
    /// `acks` is none of -1, 0, 1.
    #[error("required acks must be -1, 0 or 1")]
    InvalidRequiredAcks,
    /// A batch that is damaged or not allowed.
    #[error("corrupt record batch: {0}")]
    CorruptMessage(&'static str),
    /// A batch that is well-formed but not allowed (for instance compressed with a codec of a later version).
    #[error("invalid record batch: {0}")]
    InvalidRecord(&'static str),
    /// A producer's timestamp that the topic does not allow (KIP-937), ms; the bounds are inclusive.
    #[error(
        "timestamp {timestamp} is outside [{least}, {most}], which message.timestamp.before.max.ms and \
         message.timestamp.after.max.ms allow now"
    )]
    InvalidTimestamp {
        /// The record's.
        timestamp: i64,
        /// The oldest that is allowed.
        least: i64,
        /// The newest that is allowed.
        most: i64,
    },
    /// A batch of an idempotent producer that does not go on from its last one (KIP-98).
    #[error("sequence {found} does not go on from the producer's last batch, {expected} is next")]
    OutOfOrderSequenceNumber {
        /// First sequence of the batch.
        found: i32,
        /// What would go on.
        expected: i32,
    },
    /// A batch of an older incarnation of an idempotent producer (KIP-98).
    #[error("a newer incarnation of this producer has written")]
    InvalidProducerEpoch,
    /// A batch above `max.message.bytes`.
    #[error("record batch of {size_bytes} bytes is above max.message.bytes")]
    MessageTooLarge {
        /// Size of the batch.
        size_bytes: usize,
    },
    /// The disk failed; the partition is fenced.
    #[error("the log directory failed; the partition is fenced on this broker")]
    KafkaStorageError,
    /// The disk is full: nothing was appended.
    #[error(
        "the disk of the leader's log directory is full; nothing was appended, and appends resume by themselves when \
         there is room"
    )]
    LogDirFull,
    /// No file could be opened for want of a descriptor: nothing was appended.
    #[error(
        "the leader has no file descriptor left to open the next file of the log; nothing was appended, and appends resume \
         by themselves when there is one"
    )]
    NoDescriptorLeft,
    /// The replica is not assigned to the asking broker.
    #[error("broker {0} is not an assigned replica")]
    NotAssignedReplica(BrokerId),
    /// A request or feature that this broker does not serve.
    #[error("not supported: {0}")]
    UnsupportedVersion(&'static str),
    /// The outcome of a write to ZooKeeper is not known.
    #[error("the outcome is not known: {0}; read the state again before you retry")]
    UnknownOutcome(&'static str),
    /// A condition that came from another process and has no exact counterpart here.
    #[error("{message}")]
    Remote {
        /// Kafka's error name, as received.
        name: String,
        /// The sentence for people, as received.
        message: String,
        /// Whether the name is one of the retriable ones.
        retriable: bool,
    },
}

impl Condition {
    /// Whether the same request may succeed later without a change by the caller.
    #[must_use]
    pub fn is_retriable(&self) -> bool {
        matches!(
            self,
            Self::NotLeaderOrFollower
                | Self::LeaderNotAvailable
                | Self::FencedLeaderEpoch { .. }
                | Self::UnknownLeaderEpoch { .. }
                | Self::UnknownTopicOrPartition
                | Self::UnknownTopicId
                | Self::NotEnoughReplicas { .. }
                | Self::NotEnoughReplicasAfterAppend
                | Self::RequestTimedOut
                | Self::OffsetNotAvailable
                | Self::PreferredLeaderNotAvailable(_)
                | Self::EligibleLeadersNotAvailable(_)
                | Self::NotController
                | Self::NoController
                | Self::KafkaStorageError
                | Self::LogDirFull
                | Self::NoDescriptorLeft
                | Self::UnknownOutcome(_)
                | Self::Remote { retriable: true, .. }
        )
    }
}
