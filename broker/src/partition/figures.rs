//! Where a replica and its log stand, in figures, for whoever looks at all of them: nobody is waited for.

use std::sync::{PoisonError, TryLockError};

use barnabas_replica::{FollowerPosition, Role};
use barnabas_types::{LeaderEpoch, Now, Offset};

use super::hosted::Hosted;

/// One replica at one moment. Ends of offsets are exclusive.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Figures {
    /// Its role.
    pub role: Role,
    /// It takes nothing more: its directory failed, or it was taken out.
    pub fenced: bool,
    /// As accepted.
    pub leader_epoch: Option<LeaderEpoch>,
    /// First offset.
    pub log_start: Offset,
    /// LEO.
    pub log_end: Offset,
    /// Up to here it is on disk.
    pub flushed: Offset,
    /// As this replica knows it.
    pub high_watermark: Offset,
    /// As consumers are told it if this replica leads (`None`: they are told to wait), as the leader told it last if it follows.
    pub told_high_watermark: Option<Offset>,
    /// Bytes of its segments.
    pub size_bytes: u64,
    /// How many segments.
    pub segments: usize,
    /// Bytes that are not flushed.
    pub unflushed_bytes: u64,
    /// For how long the oldest of them have been so, in ms.
    pub unflushed_age_ms: u64,
    /// For how long the flush of the oldest of them is late, in ms.
    pub flush_overdue_ms: u64,
    /// Of a leader.
    pub followers: Vec<FollowerPosition>,
}

impl Figures {
    /// Whether it leads.
    #[must_use]
    pub fn leads(&self) -> bool {
        matches!(self.role, Role::Leader { .. })
    }

    /// Records that are not flushed.
    #[must_use]
    pub fn unflushed_records(&self) -> u64 {
        self.behind(self.flushed)
    }

    /// Records that its farthest follower lacks, of those that have fetched in this leader epoch; `None`: it does not lead, or has
    /// not heard of any.
    #[must_use]
    pub fn farthest_lag(&self) -> Option<u64> {
        let positions = self.followers.iter();
        positions.filter_map(|follower| Some(self.behind(follower.position?.0))).max()
    }

    fn behind(&self, to: Offset) -> u64 {
        u64::try_from(self.log_end.0.saturating_sub(to.0)).unwrap_or(0)
    }
}

impl Hosted {
    /// Looks at the replica, unless something else has the partition's lock at this instant. Waits for no disk.
    pub fn figures(&self, now: Now) -> Option<Figures> {
        let inner = match self.try_lock() {
            Ok(inner) => inner,
            Err(TryLockError::Poisoned(poisoned)) => PoisonError::into_inner(poisoned),
            Err(TryLockError::WouldBlock) => return None,
        };
        let (replica, log) = (&inner.replica, &inner.log);
        let high_watermark = replica.high_watermark();
        let told_high_watermark = match replica.role() {
            Role::Leader { .. } => replica.consumer_view(None).ok().map(|view| view.high_watermark),
            _ => Some(high_watermark),
        };
        let flushing = &inner.flushing;
        let (unflushed_age_ms, flush_overdue_ms) = match log.log_end() > log.flushed() {
            true => (
                flushing.unflushed_since().map_or(0, |since| now.since_ms(since)),
                flushing.overdue_ms(now),
            ),
            false => (0, 0),
        };
        Some(Figures {
            role: replica.role(),
            fenced: replica.is_fenced(),
            leader_epoch: replica.leader_epoch(),
            log_start: replica.log_start(),
            log_end: log.log_end(),
            flushed: log.flushed(),
            high_watermark,
            told_high_watermark,
            size_bytes: log.size_bytes(),
            segments: log.segment_count(),
            unflushed_bytes: log.unflushed_bytes(),
            unflushed_age_ms,
            flush_overdue_ms,
            followers: replica.follower_positions(),
        })
    }
}
