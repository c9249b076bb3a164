//! Answers to requests.

use std::sync::Arc;

use bytes::Bytes;

use crate::error::GroupError;

/// The answer to one waiter.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Answer {
    /// To a Join.
    Join(Result<Joined, JoinRefused>),
    /// To a Sync.
    Sync(Result<Synced, GroupError>),
    /// To a Heartbeat.
    Heartbeat(Result<(), GroupError>),
    /// To a Leave: one result for each member in the request's order, or one for all.
    Leave(Result<Vec<Left>, GroupError>),
    /// To a Commit: one result for each partition in the request's order, or one for all.
    Commit(Result<Vec<Result<(), GroupError>>, GroupError>),
    /// To a DeleteOffsets: one result for each partition in the request's order, or one for all.
    DeleteOffsets(Result<Vec<Result<(), GroupError>>, GroupError>),
    /// To a DeleteGroup.
    DeleteGroup(Result<(), GroupError>),
}

impl Answer {
    /// The same answer if what it was to say has failed as a whole.
    pub(crate) fn failed(self, error: GroupError) -> Self {
        match self {
            Self::Join(Ok(joined)) => {
                Self::Join(Err(JoinRefused { error, member_id: joined.member_id }))
            }
            Self::Join(Err(refused)) => Self::Join(Err(JoinRefused { error, ..refused })),
            Self::Sync(_) => Self::Sync(Err(error)),
            Self::Heartbeat(_) => Self::Heartbeat(Err(error)),
            Self::Leave(_) => Self::Leave(Err(error)),
            Self::Commit(_) => Self::Commit(Err(error)),
            Self::DeleteOffsets(_) => Self::DeleteOffsets(Err(error)),
            Self::DeleteGroup(_) => Self::DeleteGroup(Err(error)),
        }
    }
}

/// A member of a generation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Joined {
    /// The member's id.
    pub member_id: Arc<str>,
    /// Generation, 1 or more.
    pub generation: i32,
    /// Kind of group.
    pub protocol_type: Arc<str>,
    /// The protocol that all members support and most prefer.
    pub protocol_name: Arc<str>,
    /// The leader's member id.
    pub leader: Arc<str>,
    /// Whether the leader must not compute an assignment (KIP-814).
    pub skip_assignment: bool,
    /// For the leader: all members; empty for the others.
    pub members: Vec<JoinedMember>,
}

/// What the leader learns of a member.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct JoinedMember {
    /// Member id.
    pub member_id: Arc<str>,
    /// `group.instance.id`.
    pub instance_id: Option<Arc<str>>,
    /// Metadata of the chosen protocol.
    pub metadata: Bytes,
}

/// A join that was refused.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct JoinRefused {
    /// Why.
    pub error: GroupError,
    /// The member id to answer with: with [`GroupError::MemberIdRequired`] the one to join with.
    pub member_id: Arc<str>,
}

/// A member's assignment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Synced {
    /// Kind of group.
    pub protocol_type: Arc<str>,
    /// Protocol of the generation.
    pub protocol_name: Arc<str>,
    /// Opaque; empty if the leader gave none.
    pub assignment: Bytes,
}

/// What became of one member of a Leave.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Left {
    /// As in the request.
    pub member_id: Arc<str>,
    /// As in the request.
    pub instance_id: Option<Arc<str>>,
    /// Result.
    pub result: Result<(), GroupError>,
}
