//! Retention: up to which offset the oldest segments are too old (`retention.ms`) or too many (`retention.bytes`).
//!
//! The order of a pass over one log, as a cleanup thread does it; "lock" is the lock that the log lives behind:
//!
//! 1. lock: [`Log::roll_if_due`], then [`Log::retention_plan`]; unlock.
//! 2. [`RetentionPlan::point`], which may read files. It says where the log should begin.
//! 3. lock: [`Log::settle_retention`], which rolls an active segment that is expired too and says how far the log start may go
//!    now; [`Log::advance_log_start`] to there, never beyond the high watermark (R32); unlock.
//! 4. [`crate::LogDir::write_log_starts`], once for all logs of the directory.
//! 5. lock: [`Log::detach_below_start`]; unlock; [`crate::Detached::remove`]. This whatever the policy: what lies below the log
//!    start (DeleteRecords) is gone for compacted topics too.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::UNIX_EPOCH;

use barnabas_types::Offset;

use crate::cached::Wait;
use crate::config::LogConfig;
use crate::error::{At as _, LogError};
use crate::index::{TimeEntry, find_last_on_disk};
use crate::log::Log;
use crate::segment::{MaxTimestamp, path_of};

/// One segment as it was when the plan was made.
#[derive(Debug)]
struct Candidate {
    base: i64,
    end: i64,
    size: u64,
    max_timestamp: Arc<OnceLock<Option<MaxTimestamp>>>,
}

/// What retention looks at, taken under the log's lock.
#[derive(Debug)]
pub struct RetentionPlan {
    dir: PathBuf,
    config: LogConfig,
    truncations: u64,
    log_start: i64,
    /// Oldest first; the last is active.
    segments: Vec<Candidate>,
}

impl Log {
    /// What retention has to look at; `None` if it has nothing to do here: `cleanup.policy` without `delete`, or no bound.
    /// No I/O.
    #[must_use]
    pub fn retention_plan(&self) -> Option<RetentionPlan> {
        let config = self.config;
        let bounded = config.retention_ms >= 0 || config.retention_bytes >= 0;
        if !config.cleanup.delete || !bounded || self.fenced {
            return None;
        }
        let mut segments: Vec<Candidate> = self
            .segments
            .iter()
            .map(|s| Candidate {
                base: s.base,
                end: s.end,
                size: s.size,
                max_timestamp: Arc::clone(&s.max_timestamp),
            })
            .collect();
        if let Some(active) = segments.last_mut() {
            // Its own is not known before it is sealed.
            active.max_timestamp = Arc::new(OnceLock::from(self.tail.max_timestamp));
        }
        let dir = self.dir.path.clone();
        let log_start = self.log_start().0;
        Some(RetentionPlan { dir, config, truncations: self.truncations, log_start, segments })
    }

    /// Takes the point of a plan: rolls the active segment if all of it is to go, and says how far the log start may advance;
    /// `None` if nowhere, or if the log was cut or begun anew since the plan was made.
    ///
    /// # Errors
    /// [`LogError::Fenced`]; from a roll [`LogError::Full`], and [`LogError::Io`], then the log is fenced.
    pub fn settle_retention(
        &mut self,
        plan: &RetentionPlan,
        point: Offset,
    ) -> Result<Option<Offset>, LogError> {
        self.ready()?;
        if plan.truncations != self.truncations {
            return Ok(None);
        }
        let mut to = point.0;
        let active = plan.segments.last().map_or(0, |s| s.base);
        if to > active {
            if self.log_end == to && self.active().base == active {
                self.roll_now()?;
            } else if self.segments.binary_search_by_key(&to, |s| s.base).is_err() {
                // It has grown since, and not by a segment: what was added is not expired.
                to = active;
            }
        }
        Ok((to > self.log_start().0).then_some(Offset(to)))
    }
}

impl RetentionPlan {
    /// Where the log should begin: after the last of its oldest segments that are too old or too many, each wholly below
    /// `high_watermark` (exclusive; this replica's own, R32). `None` if nothing is to go. Reads the end of a time index for
    /// segments of before the start of the process; not for under a lock.
    ///
    /// A segment is too old if its greatest timestamp is more than `retention.ms` before `now_ms` (ms since 1970). A timestamp
    /// that lies in the future counts for no more than when the file was last written and
    /// `message.timestamp.after.max.ms` (KIP-937), so that no record holds a segment for ever; a segment without any
    /// timestamp is as old as its file. The oldest segments are too many while without them at least `retention.bytes` stay.
    ///
    /// # Errors
    /// [`LogError::Io`].
    pub fn point(&self, now_ms: i64, high_watermark: Offset) -> Result<Option<Offset>, LogError> {
        let mut excess = u64::try_from(self.config.retention_bytes).ok().map(|retained| {
            let live = self.segments.iter().filter(|s| s.end > self.log_start);
            live.map(|s| s.size).sum::<u64>().saturating_sub(retained)
        });
        let mut point = None;
        for segment in &self.segments {
            if segment.end <= self.log_start {
                // Below the log start already.
                continue;
            }
            if segment.end > high_watermark.0 || segment.size == 0 {
                break;
            }
            let too_many = excess.is_some_and(|excess| excess >= segment.size);
            match if too_many { Ok(true) } else { self.is_too_old(segment, now_ms) } {
                Ok(true) => {}
                Ok(false) => break,
                // Somebody else has removed it meanwhile.
                Err(LogError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                    break;
                }
                Err(error) => return Err(error),
            }
            excess = excess.map(|excess| excess.saturating_sub(segment.size));
            point = Some(Offset(segment.end));
        }
        Ok(point)
    }

    fn is_too_old(&self, segment: &Candidate, now_ms: i64) -> Result<bool, LogError> {
        if self.config.retention_ms < 0 {
            return Ok(false);
        }
        let max = match segment.max_timestamp.get() {
            Some(known) => *known,
            None => {
                let read = max_timestamp_on_disk(&self.dir, segment.base, Wait::ForDisk)?;
                *segment.max_timestamp.get_or_init(|| read)
            }
        };
        let stated = max.map(|max| max.timestamp).filter(|timestamp| *timestamp >= 0);
        let youngest_ms = match stated {
            Some(timestamp) if timestamp <= now_ms => timestamp,
            Some(timestamp) => {
                let written_ms = self.written_ms(segment)?;
                timestamp.min(written_ms.saturating_add(self.config.timestamp_after_max_ms))
            }
            None => self.written_ms(segment)?,
        };
        Ok(now_ms.saturating_sub(youngest_ms) > self.config.retention_ms)
    }

    /// When the segment's file was last written to, ms since 1970.
    fn written_ms(&self, segment: &Candidate) -> Result<i64, LogError> {
        let path = path_of(&self.dir, segment.base, "log");
        let modified = fs::metadata(&path).and_then(|m| m.modified()).at("read", &path)?;
        let since = modified.duration_since(UNIX_EPOCH).unwrap_or_default();
        Ok(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
    }
}

/// The greatest timestamp of a sealed segment: the last entry of its time index.
pub(crate) fn max_timestamp_on_disk(
    dir: &Path,
    base: i64,
    wait: Wait,
) -> Result<Option<MaxTimestamp>, LogError> {
    let path = path_of(dir, base, "timeindex");
    let last: Option<TimeEntry> = find_last_on_disk(&path, wait, |_| true).at("read", &path)?;
    Ok(last.map(|entry| MaxTimestamp {
        timestamp: entry.timestamp,
        offset: base + i64::from(entry.offset),
    }))
}
