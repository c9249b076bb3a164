//! What can be wrong with a request to a group, and with an append; the broker's edge turns each into Kafka's code.

/// Why a request was refused. Names are Kafka's.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GroupError {
    /// The coordinator reads the partition (14, retriable).
    #[error("the coordinator is loading this group; try again")]
    CoordinatorLoadInProgress,
    /// The write did not get through, or the group is just being deleted (15, retriable).
    #[error("the group cannot be changed right now; try again")]
    CoordinatorNotAvailable,
    /// This broker does not coordinate the group any more (16, retriable).
    #[error("this broker does not coordinate the group; find the coordinator again")]
    NotCoordinator,
    /// The generation is not the present one (22).
    #[error("the generation is not the present one; join the group again")]
    IllegalGeneration,
    /// The member's protocols have none that all others support, or another type (23).
    #[error("the protocol type or the protocols do not fit those of the group's other members")]
    InconsistentGroupProtocol,
    /// The group id is empty (24).
    #[error("the group id must not be empty")]
    InvalidGroupId,
    /// No such member (25).
    #[error("no such member in the group; join again without a member id")]
    UnknownMemberId,
    /// Session timeout outside the broker's bounds (26).
    #[error(
        "the session timeout is outside group.min.session.timeout.ms and group.max.session.timeout.ms"
    )]
    InvalidSessionTimeout,
    /// The group rebalances (27).
    #[error("the group is rebalancing; join again")]
    RebalanceInProgress,
    /// The commit does not fit into one batch (28).
    #[error(
        "the offsets of one commit do not fit into one batch of __consumer_offsets; commit fewer partitions at once"
    )]
    InvalidCommitOffsetSize,
    /// The metadata of an offset is too long (12).
    #[error("the metadata of the offset is longer than offset.metadata.max.bytes")]
    OffsetMetadataTooLarge,
    /// Malformed (42).
    #[error("the request is not well-formed, or names too many or too large protocols")]
    InvalidRequest,
    /// A bound of this broker (44).
    #[error("the coordinator holds as many groups, or as much for their members, as it may")]
    PolicyViolation,
    /// The group has members (68).
    #[error("the group has members; stop its consumers first")]
    NonEmptyGroup,
    /// No such group (69).
    #[error("no such group")]
    GroupIdNotFound,
    /// The member was given an id and must join with it (79, KIP-394).
    #[error("join again with the member id of this answer")]
    MemberIdRequired,
    /// The group is full (81, KIP-389).
    #[error("the group has group.max.size members, or they keep as much as one group may")]
    GroupMaxSizeReached,
    /// Another member has taken over the instance id (82, KIP-345).
    #[error("another member with the same group.instance.id has joined")]
    FencedInstanceId,
    /// The group consumes the topic (86, KIP-496).
    #[error("the group is subscribed to the topic; its offsets cannot be deleted")]
    GroupSubscribedToTopic,
    /// A transaction that commits this offset has not ended (88, KIP-447).
    #[error("a transaction that commits this offset is still open; try again")]
    UnstableOffsetCommit,
    /// A broken invariant, or a group whose record does not fit into a batch (-1).
    #[error("the group's record could not be written; see the broker's log")]
    UnknownServerError,
}

/// Why an append failed, as the shell tells it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, thiserror::Error)]
pub enum AppendError {
    /// The ISR is below min.insync.replicas, before or after the append.
    #[error("too few replicas in sync")]
    NotEnoughReplicas,
    /// Not committed within `offsets.commit.timeout.ms`; may be committed later.
    #[error("not committed in time")]
    TimedOut,
    /// This broker leads the partition no more, or in another epoch.
    #[error("not the leader of the partition")]
    NotLeader,
    /// The disk failed or is full.
    #[error("the disk failed or is full")]
    Storage,
    /// Larger than the topic allows.
    #[error("larger than the topic allows")]
    TooLarge,
    /// Anything else.
    #[error("the append failed")]
    Other,
}

impl AppendError {
    /// Whether the records may be in the log in spite of it, or come to be.
    pub(crate) fn is_unknown(self) -> bool {
        match self {
            Self::TooLarge => false,
            Self::NotEnoughReplicas
            | Self::TimedOut
            | Self::NotLeader
            | Self::Storage
            | Self::Other => true,
        }
    }

    /// What a client that waits for a group's record is told (Kafka's table).
    pub(crate) fn of_group(self) -> GroupError {
        match self {
            Self::NotEnoughReplicas | Self::TimedOut => GroupError::CoordinatorNotAvailable,
            Self::NotLeader | Self::Storage => GroupError::NotCoordinator,
            Self::TooLarge | Self::Other => GroupError::UnknownServerError,
        }
    }

    /// What a client that waits for an offset commit is told.
    pub(crate) fn of_commit(self) -> GroupError {
        match self {
            Self::TooLarge => GroupError::InvalidCommitOffsetSize,
            Self::NotEnoughReplicas
            | Self::TimedOut
            | Self::NotLeader
            | Self::Storage
            | Self::Other => self.of_group(),
        }
    }
}
