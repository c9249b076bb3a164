//! The fetch of a follower: our own request between brokers, because Kafka's has no place for the flushed offset and
//! the topic's incarnation (R15, R27, R37).
//!
//! The connection is the session, one request is in flight on it (a second one for what cannot wait). A partition is introduced once, with an index that
//! names it from then on; a request carries only the positions that changed since the one before, an answer only the
//! partitions with news. `full` (always set on the first request of a connection) forgets all that was introduced
//! before. An index stands for one incarnation: a re-created topic's partitions are introduced anew. The follower
//! applies an answer only if the echo is still where it stands (R31).

use barnabas_types::{
    BrokerEpoch, BrokerId, ClusterId, Incarnation, LeaderEpoch, Offset, TopicName,
};
use bytes::Bytes;

/// Session-local partition indexes are below this, so that a leader may keep a session in a plain vector.
pub const PARTITION_INDEX_MAX: u32 = 200_000;

/// What a follower asks of a leader. Version 0.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReplicaFetchRequest {
    /// Refused by a broker of another cluster.
    pub cluster_id: ClusterId,
    /// Who asks.
    pub follower: BrokerId,
    /// Under which registration (R30).
    pub broker_epoch: BrokerEpoch,
    /// How long the leader may wait for `min_bytes`, in ms.
    pub max_wait_ms: i32,
    /// Answer as soon as this many bytes of records are there (or anything else is news); 1 normally.
    pub min_bytes: i32,
    /// Budget for all records of the answer, in bytes; the first batch is sent whatever its size.
    pub max_bytes: i32,
    /// Budget for the records of one partition, in bytes.
    pub partition_max_bytes: i32,
    /// Begins the session anew; what earlier requests introduced is forgotten.
    pub full: bool,
    /// Sent while the request before was not answered yet: where a position is the one that the leader has just answered,
    /// only its flushed offset and log start are news, and the records on their way need not be sent again. It also says which
    /// answers the follower had before it sent this: all, or all but the last.
    pub overtakes: bool,
    /// Partitions that no longer belong to the session. Done before `introduced`, so an index may be given again.
    pub forgotten: Vec<u32>,
    /// New partitions. Each has its position in `positions`.
    pub introduced: Vec<IntroducedPartition>,
    /// Positions that changed since the last request, of partitions introduced now or earlier.
    pub positions: Vec<PartitionPosition>,
}

/// Gives a partition its index.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct IntroducedPartition {
    /// Below [`PARTITION_INDEX_MAX`].
    pub index: u32,
    /// The topic.
    pub topic: TopicName,
    /// Its partition, 0 or greater.
    pub partition: i32,
    /// Which life of the topic (R29).
    pub incarnation: Incarnation,
}

/// Where the follower stands in one partition (R15).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PartitionPosition {
    /// As introduced.
    pub index: u32,
    /// Leader epoch in which it follows.
    pub leader_epoch: LeaderEpoch,
    /// Epoch of the last record in its log, `None` for an empty log (R36).
    pub last_epoch: Option<LeaderEpoch>,
    /// LEO, exclusive: the next offset wanted.
    pub log_end: Offset,
    /// Flushed offset, exclusive.
    pub flushed: Offset,
    /// First offset, inclusive.
    pub log_start: Offset,
}

/// The position that an answer answers: compare it with where the follower stands now (R31).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PositionEcho {
    /// czxid of the topic's incarnation.
    pub czxid: i64,
    /// As asked.
    pub leader_epoch: LeaderEpoch,
    /// As asked.
    pub last_epoch: Option<LeaderEpoch>,
    /// As asked.
    pub log_end: Offset,
}

/// A leader's answer. `R` is where the records are: [`Bytes`] as received, [`RecordSlot`] as sent.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReplicaFetchResponse<R> {
    /// Kafka's error code for the whole request (stale broker epoch, wrong cluster, no such session), 0 for none.
    pub error_code: i16,
    /// Partitions with news only.
    pub partitions: Vec<ReplicaFetchPartition<R>>,
}

/// An answer before its records are spliced in.
pub type ReplicaFetchReply = ReplicaFetchResponse<RecordSlot>;

/// Records that the sender splices in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RecordSlot {
    /// The caller's name for the range.
    pub slot: usize,
    /// Bytes; 0 for none.
    pub len: usize,
}

/// News of one partition.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ReplicaFetchPartition<R> {
    /// As introduced.
    pub index: u32,
    /// What this answers.
    pub echo: PositionEcho,
    /// The news.
    pub outcome: ReplicaFetchOutcome<R>,
}

/// What the leader says of one partition.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ReplicaFetchOutcome<R> {
    /// Records from the echoed LEO on, possibly none (then only HW or log start are news).
    Records {
        /// The leader's HW, exclusive.
        high_watermark: Offset,
        /// The leader's log start, inclusive.
        log_start: Offset,
        /// Whole batches; the first may begin below the echoed LEO if the log is empty.
        records: R,
    },
    /// The logs diverge: the largest epoch of the leader that is not above the follower's last, and its exclusive end.
    Diverging {
        /// That epoch.
        epoch: LeaderEpoch,
        /// Its exclusive end at the leader.
        end: Offset,
    },
    /// Nothing in common at or above the leader's log start: drop everything, begin there (R35).
    Reset {
        /// The leader's log start.
        log_start: Offset,
    },
    /// Refused; ask again later.
    Refused {
        /// Kafka's error code.
        error_code: i16,
    },
}

impl ReplicaFetchResponse<Bytes> {
    /// The whole request is refused with `error_code`.
    #[must_use]
    pub fn refused(error_code: i16) -> ReplicaFetchReply {
        ReplicaFetchReply { error_code, partitions: Vec::new() }
    }
}
