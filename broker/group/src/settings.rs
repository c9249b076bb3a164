//! What the coordinator is configured with, and the bounds that are not configured.

/// Unsettled writes of one partition; further commits are told to come again. The shell's bound on requests in flight
/// is far below it.
pub const WRITES_MAX: usize = 100_000;

/// Groups of one partition. A request that would create one more is refused.
pub const GROUPS_MAX: usize = 100_000;

/// Offsets of one partition about which the log may say more than was acknowledged: their commits ended with an unknown
/// outcome. Beyond, commits of offsets that are not known yet are told to come again, so that none is forgotten; every
/// look for expired offsets deletes these. Commits that are under way may go above.
pub const DOUBTS_MAX: usize = 100_000;

/// Members of one group and ids that it has given out, whatever `group.max.size` says: the record of more would not
/// fit into a batch, and what a join costs grows with them.
pub const MEMBERS_MAX: usize = 10_000;

/// What one member or given id is taken to keep in memory besides its protocols and assignment, in bytes.
pub(crate) const MEMBER_BYTES: usize = 1 << 10;

/// Protocols (assignors) that one member may name.
pub const PROTOCOLS_MAX: usize = 64;

/// Bytes of names and metadata of the protocols that one member names. A group's record must fit into one batch.
pub const PROTOCOLS_BYTES_MAX: usize = 512 << 10;

/// Bytes of protocols and assignments that the members of one group keep. Its record must fit into one batch, which is
/// smaller by default; a group above this could never become stable.
pub const GROUP_BYTES_MAX: usize = 8 << 20;

/// Bytes that all members in one partition keep. Joins that would need more are refused.
pub const MEMBERS_BYTES_MAX: usize = 256 << 20;

/// Bytes of keys and values that the tombstones of one append take, at most; what is more goes into further appends.
pub const APPEND_BYTES_MAX: usize = 256 << 10;

/// How long the first join of a member waits at most: its client may have given up and come back as another member.
pub const NEW_MEMBER_JOIN_TIMEOUT_MS: u64 = 300_000;

/// A rebalance waits at least so long, whatever its members ask for: one that waits for nothing would begin again and
/// again while a static member is away.
pub const REBALANCE_TIMEOUT_MIN_MS: u64 = 1_000;

/// After a failed write that no client waits for, it is tried again so much later.
pub const WRITE_RETRY_MS: u64 = 1_000;

/// A step that comes later than this after the promised time is a stall of the coordinator, not silence of its members.
pub const STALL_MS: u64 = 1_000;

/// The settings of the broker that groups act on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Settings {
    /// `group.initial.rebalance.delay.ms` (KIP-134): how long the first rebalance of an empty group waits for more
    /// members; each new one extends it, up to the rebalance timeout.
    pub initial_rebalance_delay_ms: u64,
    /// `group.min.session.timeout.ms`, inclusive.
    pub session_timeout_min_ms: u64,
    /// `group.max.session.timeout.ms`, inclusive.
    pub session_timeout_max_ms: u64,
    /// `group.max.size` (KIP-389): members and those that were given an id and have not joined yet; 1 or more. At most
    /// [`MEMBERS_MAX`] count.
    pub group_size_max: usize,
    /// `offset.metadata.max.bytes`: bytes of metadata that go with one committed offset, inclusive.
    pub offset_metadata_bytes_max: usize,
    /// `offsets.retention.minutes`, in ms (KIP-211).
    pub offsets_retention_ms: u64,
    /// `offsets.retention.check.interval.ms`; 1 or more.
    pub retention_check_interval_ms: u64,
}

impl Settings {
    /// `group.max.size` as far as it goes.
    pub(crate) fn size_max(&self) -> usize {
        self.group_size_max.min(MEMBERS_MAX)
    }
}

impl Default for Settings {
    /// Kafka's defaults.
    fn default() -> Self {
        Self {
            initial_rebalance_delay_ms: 3_000,
            session_timeout_min_ms: 6_000,
            session_timeout_max_ms: 1_800_000,
            group_size_max: i32::MAX as usize,
            offset_metadata_bytes_max: 4_096,
            offsets_retention_ms: 7 * 24 * 3_600_000,
            retention_check_interval_ms: 600_000,
        }
    }
}
