//! When the active segment is old enough to be rolled (`segment.ms`): by the times that its records say, as in Kafka, and,
//! for logs to which nobody writes any more, by the broker's clock.

use std::os::unix::fs::FileExt as _;
use std::sync::OnceLock;
use std::time::UNIX_EPOCH;

use crate::batch::{BatchHeader, HEADER_BYTES};
use crate::error::{At as _, LogError};
use crate::log::Log;
use crate::segment::path_of;

/// How old an active segment is, by two clocks.
#[derive(Debug, Default)]
pub(crate) struct Age {
    /// Greatest timestamp of its first batch, ms, once known; `None` inside: it has none.
    first_timestamp: OnceLock<Option<i64>>,
    /// When it got its first batch, ms since 1970, as far as it is known.
    began_ms: Option<i64>,
}

impl Age {
    /// Takes note of a batch that was written at `position`.
    pub(crate) fn note(&mut self, position: u64, header: &BatchHeader) {
        if position == 0 {
            self.first_timestamp = OnceLock::from(timestamp_of(header));
        }
    }
}

/// The greatest timestamp of a batch, ms; `None` if it has none.
pub(crate) fn timestamp_of(header: &BatchHeader) -> Option<i64> {
    (header.max_timestamp >= 0).then_some(header.max_timestamp)
}

impl Log {
    /// Greatest timestamp of the active segment's first batch.
    pub(crate) fn first_timestamp(&self) -> Result<Option<i64>, LogError> {
        let active = self.active();
        if active.size == 0 {
            return Ok(None);
        }
        let known = &self.tail.age.first_timestamp;
        if let Some(known) = known.get() {
            return Ok(*known);
        }
        let mut head = [0; HEADER_BYTES];
        let file = active.kept_file(&self.dir)?;
        file.read_exact_at(&mut head, 0).at("read", &path_of(&self.dir, active.base, "log"))?;
        let first = BatchHeader::parse(&head).ok().and_then(|header| timestamp_of(&header));
        Ok(*known.get_or_init(|| first))
    }

    /// At open: the active segment is as old as its file.
    pub(crate) fn note_age(&mut self) -> Result<(), LogError> {
        if self.active().size == 0 {
            return Ok(());
        }
        let path = path_of(&self.dir, self.active().base, "log");
        let metadata = std::fs::metadata(&path).at("read", &path)?;
        // Not every file system notes when a file was made.
        let made = metadata.created().or_else(|_| metadata.modified()).at("read", &path)?;
        let since = made.duration_since(UNIX_EPOCH).unwrap_or_default();
        self.tail.age.began_ms = i64::try_from(since.as_millis()).ok();
        Ok(())
    }

    /// Rolls the active segment if it holds records and its first look here (or, before a restart, its file) is longer ago
    /// than `segment.ms`, for a compacted topic also than `max.compaction.lag.ms`. Says whether it did; then flush soon.
    ///
    /// An append rolls a segment by itself when its records are further apart than that. This is for logs that get no more
    /// of them: without it their last segment would neither expire by compaction lag nor be compacted. To be called now and
    /// then on every replica. Creates a file under the caller's lock when it rolls.
    ///
    /// # Errors
    /// [`LogError::Fenced`]; [`LogError::Full`], [`LogError::NoDescriptor`]: nothing happened; [`LogError::Io`], then the log is fenced.
    pub fn roll_if_due(&mut self, now_ms: i64) -> Result<bool, LogError> {
        self.ready()?;
        if self.active().size == 0 {
            return Ok(false);
        }
        let began_ms = *self.tail.age.began_ms.get_or_insert(now_ms);
        if now_ms.saturating_sub(began_ms) <= self.config.roll_ms() {
            return Ok(false);
        }
        self.roll_now()?;
        Ok(true)
    }

    /// Rolls outside of an append: in a shortage nothing happens.
    pub(crate) fn roll_now(&mut self) -> Result<(), LogError> {
        self.roll().map_err(|error| {
            self.fenced |= error.shortage().is_none();
            error.or_shortage()
        })
    }
}
