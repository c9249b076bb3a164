//! Everything that can happen to the groups of a partition. Strings are copied out of the request's frame by the shell.

use std::sync::Arc;

use bytes::Bytes;

use barnabas_types::Now;

use crate::error::AppendError;

/// Names one waiting request; chosen by the shell, unique for the life of [`crate::Groups`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Waiter(pub u64);

/// Names one append. Rises with every append of a [`crate::Groups`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct WriteId(pub u64);

/// What time it is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Moment {
    /// Monotonic, for timeouts.
    pub now: Now,
    /// Wall clock, ms since 1970, for what is written: commit timestamps, expiry.
    pub wall_ms: i64,
}

/// One event. Every event with a waiter is answered exactly once, at once or later.
#[derive(Clone, PartialEq, Debug)]
pub enum Event {
    /// JoinGroup.
    Join(Join),
    /// SyncGroup.
    Sync(Sync),
    /// Heartbeat.
    Heartbeat(Heartbeat),
    /// LeaveGroup.
    Leave(Leave),
    /// OffsetCommit.
    Commit(Commit),
    /// OffsetDelete.
    DeleteOffsets(DeleteOffsets),
    /// One group of a DeleteGroups.
    DeleteGroup(DeleteGroup),
    /// These topics were deleted: their offsets go.
    TopicsDeleted(Vec<Arc<str>>),
    /// The connection of this waiter is gone. The waiter is not answered any more.
    Gone(Waiter),
    /// An append is done (committed), or failed. Late and repeated ones are legal.
    Appended {
        /// Which.
        write: WriteId,
        /// `Err` says nothing about whether the records are in the log.
        result: Result<(), AppendError>,
    },
    /// Time has passed.
    Tick,
}

/// A JoinGroup.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Join {
    /// Who waits.
    pub waiter: Waiter,
    /// Group id.
    pub group: Arc<str>,
    /// Empty for a new member.
    pub member_id: Arc<str>,
    /// `group.instance.id` of a static member (KIP-345, version 5 on).
    pub instance_id: Option<Arc<str>>,
    /// Makes a member id unique, if one is needed: fresh for every request (Kafka takes a UUID).
    pub suffix: Arc<str>,
    /// Client id of the request's header, may be empty.
    pub client_id: Arc<str>,
    /// Address of the client, as Kafka shows it: `/127.0.0.1`.
    pub client_host: Arc<str>,
    /// Session timeout, ms.
    pub session_timeout_ms: i32,
    /// Rebalance timeout, ms; -1: as the session timeout (version 0).
    pub rebalance_timeout_ms: i32,
    /// Kind of group, `consumer` for consumers.
    pub protocol_type: Arc<str>,
    /// Protocols (assignors) in order of preference.
    pub protocols: Vec<Protocol>,
    /// Version 4 on: a new dynamic member gets an id first and joins with it (KIP-394).
    pub member_id_required: bool,
    /// Version 9 on: `skip_assignment` is understood (KIP-814).
    pub skip_assignment: bool,
    /// Why the client joins, for the log (KIP-800).
    pub reason: Option<String>,
}

/// One protocol of a member.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Protocol {
    /// Name.
    pub name: Arc<str>,
    /// What the member tells the leader, opaque (for consumers: the subscription).
    pub metadata: Bytes,
}

/// A SyncGroup.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Sync {
    /// Who waits.
    pub waiter: Waiter,
    /// Group id.
    pub group: Arc<str>,
    /// Generation of the join's answer.
    pub generation: i32,
    /// Member id.
    pub member_id: Arc<str>,
    /// `group.instance.id` (version 3 on).
    pub instance_id: Option<Arc<str>>,
    /// Version 5 on: must be the group's.
    pub protocol_type: Option<Arc<str>>,
    /// Version 5 on: must be the generation's.
    pub protocol_name: Option<Arc<str>>,
    /// The leader's assignments: member id and opaque bytes. Empty from followers.
    pub assignments: Vec<(Arc<str>, Bytes)>,
}

/// A Heartbeat.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Heartbeat {
    /// Who waits.
    pub waiter: Waiter,
    /// Group id.
    pub group: Arc<str>,
    /// Generation.
    pub generation: i32,
    /// Member id.
    pub member_id: Arc<str>,
    /// `group.instance.id` (version 3 on).
    pub instance_id: Option<Arc<str>>,
}

/// A LeaveGroup; before version 3 with one member.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Leave {
    /// Who waits.
    pub waiter: Waiter,
    /// Group id.
    pub group: Arc<str>,
    /// Who leaves.
    pub members: Vec<LeaveMember>,
}

/// One member that leaves, or is removed by its instance id.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LeaveMember {
    /// Member id; empty: by the instance id.
    pub member_id: Arc<str>,
    /// `group.instance.id`.
    pub instance_id: Option<Arc<str>>,
    /// Why, for the log (KIP-800).
    pub reason: Option<String>,
}

/// An OffsetCommit.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Commit {
    /// Who waits.
    pub waiter: Waiter,
    /// Group id.
    pub group: Arc<str>,
    /// Generation; below 0: from outside of the group (simple consumer, admin tool).
    pub generation: i32,
    /// Member id; empty from outside.
    pub member_id: Arc<str>,
    /// `group.instance.id` (version 7 on).
    pub instance_id: Option<Arc<str>>,
    /// Versions 2 to 4: how long to keep the offsets, ms; `None` for -1 and for later versions.
    pub retention_ms: Option<i64>,
    /// Version 9 on: a member of a group that is not known gets GROUP_ID_NOT_FOUND, before ILLEGAL_GENERATION.
    pub knows_group_id_not_found: bool,
    /// What to commit. The shell has answered for partitions that do not exist already.
    pub partitions: Vec<CommitPartition>,
}

/// One offset to commit.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CommitPartition {
    /// Topic.
    pub topic: Arc<str>,
    /// Partition.
    pub partition: i32,
    /// Next offset to read.
    pub offset: i64,
    /// Leader epoch of the last record read; -1: not known.
    pub leader_epoch: i32,
    /// The client's own text.
    pub metadata: String,
}

/// An OffsetDelete (KIP-496).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DeleteOffsets {
    /// Who waits.
    pub waiter: Waiter,
    /// Group id.
    pub group: Arc<str>,
    /// Topics and partitions.
    pub partitions: Vec<(Arc<str>, i32)>,
}

/// One group of a DeleteGroups (KIP-229).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DeleteGroup {
    /// Who waits.
    pub waiter: Waiter,
    /// Group id.
    pub group: Arc<str>,
}
