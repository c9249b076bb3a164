//! Compaction (`cleanup.policy=compact`): of each key the last record stays, and a tombstone for `delete.retention.ms`.
//!
//! **What is compacted.** Sealed segments below the high watermark and the flushed offset, older than
//! `min.compaction.lag.ms`. Below the *first dirty offset*, noted in `cleaner-offset-checkpoint`, a record is the last of its
//! key among those below; what lies above is *dirty*. A round reads the dirty part into an [`offset_map`], as far as that has
//! room, and writes all segments up to there anew without the records whose key has a later one. Offsets never change. Small
//! segments become one, up to `segment.bytes`. Each replica does so by itself.
//!
//! **What stays without being a last record.** Batches of transactions and batches that cannot be read; the last batch of each
//! new segment, so that no offset is used again and segments join without a hole; the last batch there of each idempotent
//! producer, so that its sequences go on. The latter two are kept without their records if need be.
//!
//! **Tombstones** stay readable for `delete.retention.ms` after the round that first met them, which notes the time in the
//! batch (KIP-534). In that round all older records of their keys went.
//!
//! The order of a pass over the logs of a data directory, by one thread that may block; "lock" is the lock that a log lives
//! behind:
//!
//! 1. For each log, lock: [`Log::roll_if_due`], [`Log::compaction_plan`]; unlock.
//! 2. [`CompactionPlan::due`] for each plan (may read files); the one with the greatest [`Round::dirty_share`] goes first.
//! 3. [`compact`], which takes the lock by itself for moments, and swaps segments under it (see [`swap`]). If it fails, the log
//!    may be fenced then: say so to whoever owns it. A full disk or damage fences nothing.
//! 4. [`crate::LogDir::write_cleaner_points`], once after all.
//!
//! A plan holds the right to compact its log: while there is one, there is no other, also not after the log was closed and
//! opened anew.

mod filter;
mod offset_map;
mod output;
mod pace;
mod reader;
mod round;
mod swap;

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::sync::{Arc, OnceLock};

use barnabas_types::Offset;

use crate::batch::{BatchHeader, HEADER_BYTES};
use crate::cached::Wait;
use crate::config::LogConfig;
use crate::disk::Folder;
use crate::error::{At as _, LogError};
use crate::log::Log;
use crate::retention::max_timestamp_on_disk;
use crate::segment::{MaxTimestamp, path_of};
use crate::shared::Compacting;

pub use pace::{Pace, StopSignal, Throttle, Unhurried};
pub use round::{Compacted, Ended, WithLog, compact};
pub(crate) use swap::finish_swaps;

/// A sealed segment as it was when the plan was made.
#[derive(Clone, Debug)]
struct Source {
    base: i64,
    end: i64,
    size: u64,
    max_timestamp: Arc<OnceLock<Option<MaxTimestamp>>>,
}

/// What compaction looks at, taken under the log's lock.
#[derive(Debug)]
pub struct CompactionPlan {
    dir: Folder,
    config: LogConfig,
    truncations: u64,
    /// What is compactable, oldest first, as far as offsets say.
    sources: Vec<Source>,
    first_dirty: i64,
    /// Producer ids with the last offset that each wrote in these segments.
    producers: Vec<(i64, i64)>,
    /// While it is held, nobody else plans for this log.
    _right: Compacting,
}

/// A compaction that is due.
#[derive(Debug)]
pub struct Round {
    plan: CompactionPlan,
    now_ms: i64,
    dirty_bytes: u64,
    total_bytes: u64,
}

impl Log {
    /// What compaction has to look at; `None` if it has nothing to do here: `cleanup.policy` without `compact`, nothing dirty
    /// that may be compacted, or another plan of this log is out. `high_watermark` (exclusive) is this replica's own. No I/O.
    #[must_use]
    pub fn compaction_plan(&self, high_watermark: Offset) -> Option<CompactionPlan> {
        if !self.config.cleanup.compact || self.fenced {
            return None;
        }
        let bound = high_watermark.0.min(self.flushed);
        let sealed = &self.segments[..self.segments.len() - 1];
        let mut sealed = &sealed[..sealed.partition_point(|s| s.end <= bound)];
        // With segments that become one the snapshots between them go: the one behind them all must be durable before.
        while let [before @ .., last] = sealed
            && (self.snapshots.is_unsynced(last.end) || !self.snapshots.stands_for_below(last.end))
        {
            sealed = before;
        }
        let noted = self.shared.cleaned_up_to(&self.topic_partition).unwrap_or_default().0;
        // A log that was cut below it by Kafka, or lost its end: nothing is known of what came since.
        let noted = if noted > self.log_end { 0 } else { noted };
        let first_dirty = noted.max(self.log_start);
        let (first, last) = (sealed.first()?, sealed.last()?);
        if last.end <= first_dirty {
            return None;
        }
        let right = self.shared.begin_compacting(&self.topic_partition)?;
        let sources = sealed
            .iter()
            .map(|s| Source {
                base: s.base,
                end: s.end,
                size: s.size,
                max_timestamp: Arc::clone(&s.max_timestamp),
            })
            .collect();
        let (first_base, end) = (first.base, last.end);
        Some(CompactionPlan {
            dir: self.dir.clone(),
            config: self.config,
            truncations: self.truncations,
            sources,
            first_dirty,
            // Below `end`, since what they wrote above may be cut off again.
            producers: self
                .producers
                .last_offsets_below(end)
                .filter(|(_, offset)| *offset >= first_base)
                .collect(),
            _right: right,
        })
    }
}

impl CompactionPlan {
    /// Whether the log is to be compacted now: enough of it is dirty (`min.cleanable.dirty.ratio`), or a dirty record is older
    /// than `max.compaction.lag.ms`. `now_ms`: ms since 1970. Reads a few bytes of segments from before the start of the
    /// process; not for under a lock.
    ///
    /// # Errors
    /// [`LogError::Io`].
    pub fn due(mut self, now_ms: i64) -> Result<Option<Round>, LogError> {
        let dirty_from = self.sources.partition_point(|s| s.end <= self.first_dirty);
        let mut kept = self.sources.len();
        if self.config.min_compaction_lag_ms > 0 {
            for (number, source) in self.sources.iter().enumerate().skip(dirty_from) {
                let youngest = self.max_timestamp(source)?;
                let age_ms = youngest.map_or(i64::MAX, |at| now_ms.saturating_sub(at));
                if age_ms < self.config.min_compaction_lag_ms {
                    kept = number;
                    break;
                }
            }
        }
        self.sources.truncate(kept);
        let bytes = |sources: &[Source]| sources.iter().map(|s| s.size).sum::<u64>();
        let dirty = &self.sources[dirty_from.min(kept)..];
        let (dirty_bytes, total_bytes) = (bytes(dirty), bytes(&self.sources));
        if dirty_bytes == 0 {
            return Ok(None);
        }
        let enough = self.config.min_cleanable_dirty_ratio.is_reached_by(dirty_bytes, total_bytes);
        if !enough && !self.is_overdue(dirty, now_ms)? {
            return Ok(None);
        }
        Ok(Some(Round { plan: self, now_ms, dirty_bytes, total_bytes }))
    }

    fn max_timestamp(&self, source: &Source) -> Result<Option<i64>, LogError> {
        let max = match source.max_timestamp.get() {
            Some(known) => *known,
            None => {
                let read = max_timestamp_on_disk(&self.dir, source.base, Wait::ForDisk)?;
                *source.max_timestamp.get_or_init(|| read)
            }
        };
        Ok(max.map(|max| max.timestamp).filter(|timestamp| *timestamp >= 0))
    }

    /// By the first batch of each segment, as in Kafka.
    fn is_overdue(&self, dirty: &[Source], now_ms: i64) -> Result<bool, LogError> {
        if self.config.max_compaction_lag_ms == i64::MAX {
            return Ok(false);
        }
        for source in dirty.iter().filter(|s| s.size > 0) {
            let path = path_of(&self.dir, source.base, "log");
            let mut head = [0; HEADER_BYTES];
            let file = File::open(&path).at("open", &path)?;
            file.read_exact_at(&mut head, 0).at("read", &path)?;
            let first = BatchHeader::parse(&head).map_or(-1, |header| header.max_timestamp);
            if first >= 0 && now_ms.saturating_sub(first) > self.config.max_compaction_lag_ms {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

impl Round {
    /// Bytes of segments that may be compacted and were not yet, and of all that may be.
    #[must_use]
    pub fn dirty_bytes(&self) -> (u64, u64) {
        (self.dirty_bytes, self.total_bytes)
    }

    /// The dirty share of the log, 0 to 1: the greatest is to be compacted first.
    #[must_use]
    pub fn dirty_share(&self) -> f64 {
        self.dirty_bytes as f64 / self.total_bytes as f64
    }
}
