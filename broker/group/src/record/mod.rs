//! The records of `__consumer_offsets`, byte for byte Kafka's.

mod bytes;
mod group_metadata;
mod key;
mod offset_commit;

pub(crate) use bytes::{NAME_BYTES_MAX, cut};
pub(crate) use group_metadata::{GroupMetadata, MemberMetadata};
pub(crate) use key::Key;
pub(crate) use offset_commit::OffsetCommit;

/// Why a record cannot be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum DamagedRecord {
    /// It ends before its fields do.
    #[error("the record ends too early")]
    Truncated,
    /// A length is negative, or larger than what is there.
    #[error("a length is impossible")]
    Length,
    /// A string is not UTF-8.
    #[error("a string is not UTF-8")]
    NotUtf8,
    /// A value of a version that is not known.
    #[error("value version {0} is not known")]
    Version(i16),
    /// Members without a protocol, or a leader without members.
    #[error("the fields contradict one another")]
    Contradiction,
}
