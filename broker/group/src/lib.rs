//! The group coordinator: given the groups of one partition of `__consumer_offsets` and an event, says what to append,
//! what to answer and when to wake it.
//!
//! Knows neither the broker nor the wire protocol: its requests and answers are plain values. Membership is soft state,
//! as in Kafka: it changes with the events. What a restart must find (the assignment of a generation, that a group is
//! empty and since when, committed offsets, deletions) changes with [`Event::Appended`], never on the wish.

mod answer;
mod commit;
mod delete;
mod effects;
mod error;
mod event;
mod expire;
mod group;
mod groups;
mod join;
mod load;
mod membership;
mod offsets;
mod read;
mod rebalance;
mod record;
mod rejoin;
mod roster;
mod settings;
mod subscription;
mod sync;
mod table;
#[cfg(test)]
mod tests;
mod tombstones;
mod turn;
mod writes;

pub use answer::{Answer, JoinRefused, Joined, JoinedMember, Left, Synced};
pub use effects::{Append, Effects, Note, OffsetsRecord};
pub use error::{AppendError, GroupError};
pub use event::{
    Commit, CommitPartition, DeleteGroup, DeleteOffsets, Event, Heartbeat, Join, Leave,
    LeaveMember, Moment, Protocol, Sync, Waiter, WriteId,
};
pub use group::GroupState;
pub use groups::Groups;
pub use load::Replayed;
pub use offsets::CommittedOffset;
pub use read::{Described, DescribedMember, Listed, OffsetRead};
pub use record::DamagedRecord;
pub use settings::{
    APPEND_BYTES_MAX, DOUBTS_MAX, GROUP_BYTES_MAX, GROUPS_MAX, MEMBERS_BYTES_MAX, MEMBERS_MAX,
    NEW_MEMBER_JOIN_TIMEOUT_MS, PROTOCOLS_BYTES_MAX, PROTOCOLS_MAX, REBALANCE_TIMEOUT_MIN_MS,
    STALL_MS, Settings, WRITE_RETRY_MS, WRITES_MAX,
};
