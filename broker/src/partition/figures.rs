//! What a replica and its log come to in figures, for whoever monitors the broker.

use std::sync::{PoisonError, TryLockError};

use barnabas_replica::Role;
use barnabas_types::{Now, Offset};

use super::hosted::Hosted;

/// One replica at one moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Figures {
    /// First offset.
    pub log_start: Offset,
    /// Next offset.
    pub log_end: Offset,
    /// The high watermark, exclusive, as far as it is known here: as consumers are told it if this replica leads (`None`: they are
    /// told to wait), as the leader told it last if it follows.
    pub high_watermark: Option<Offset>,
    /// Whether it leads.
    pub leads: bool,
    /// Bytes of its segments.
    pub size_bytes: u64,
    /// How many segments.
    pub segments: usize,
    /// Records that are not flushed.
    pub unflushed_records: u64,
    /// Their bytes.
    pub unflushed_bytes: u64,
    /// For how long the oldest of them has been so, in ms.
    pub unflushed_age_ms: u64,
    /// Records that its farthest follower lacks, of those that have fetched in this leader epoch; `None`: it does not lead, or has
    /// not heard of any.
    pub farthest_lag: Option<u64>,
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
        let leads = matches!(replica.role(), Role::Leader { .. });
        let high_watermark = match leads {
            true => replica.consumer_view(None).ok().map(|view| view.high_watermark),
            false => Some(replica.high_watermark()),
        };
        let log_end = log.log_end();
        let behind = |to: Offset| u64::try_from(log_end.0.saturating_sub(to.0)).unwrap_or(0);
        let positions = replica.follower_positions().into_iter();
        let lags = positions.filter_map(|follower| Some(behind(follower.position?.0)));
        let unflushed_records = behind(log.flushed());
        Some(Figures {
            log_start: replica.log_start(),
            log_end,
            high_watermark,
            leads,
            size_bytes: log.size_bytes(),
            segments: log.segment_count(),
            unflushed_records,
            unflushed_bytes: log.unflushed_bytes(),
            unflushed_age_ms: match unflushed_records {
                0 => 0,
                _ => inner.flushing.unflushed_since().map_or(0, |since| now.since_ms(since)),
            },
            farthest_lag: lags.max(),
        })
    }
}
