//! Truncation: cutting the end (R15) and beginning anew at another offset (R35).

use barnabas_types::Offset;

use crate::error::{At as _, LogError};
use crate::files::{remove_if_there, sync_dir};
use crate::log::Log;
use crate::recovery::{From, scan};
use crate::segment::{Finder, SIDE_FILES, Segment, Tail, path_of, remove_segment};

impl Log {
    /// Cuts the log to the exclusive end `end`; if that lies inside a batch, to the base of this batch. An `end` at or above
    /// the LEO changes nothing. Returns the new LEO. Truncation lowers the flushed offset and, durably and first, the
    /// recovery point (R16).
    ///
    /// Removes and cuts files, and syncs the directory, under the caller's lock.
    ///
    /// # Errors
    /// [`LogError::OffsetOutOfRange`] if `end` is below the log start (nothing happened); [`LogError::Fenced`];
    /// [`LogError::Io`] and [`LogError::Damaged`] fence the log.
    pub fn truncate_to(&mut self, end: Offset) -> Result<Offset, LogError> {
        self.ready()?;
        if end >= self.log_end() {
            return Ok(self.log_end());
        }
        if end < self.log_start() {
            let (start, log_end) = (self.log_start(), self.log_end());
            return Err(LogError::OffsetOutOfRange { asked: end, start, end: log_end });
        }
        self.cut_to(end.0).inspect_err(|_| self.fenced = true)?;
        Ok(self.log_end())
    }

    fn cut_to(&mut self, end: i64) -> Result<(), LogError> {
        let index = self.segments.partition_point(|s| s.base <= end).saturating_sub(1);
        let (position, new_end) = self.cut_point(index, end)?;
        self.truncations += 1;
        self.shared.lower_recovery_point(&self.topic_partition, Offset(new_end))?;
        self.flushed = self.flushed.min(new_end);
        self.remove_snapshots_above(new_end)?;
        // Newest first: whatever a crash leaves is a prefix.
        while self.segments.len() > index + 1 {
            self.remove_last()?;
        }
        let segment = &mut self.segments[index];
        let path = path_of(&self.dir, segment.base, "log");
        segment.kept_file(&self.dir)?.set_len(position).at("truncate", &path)?;
        segment.cut(new_end, position);
        let scanned = scan(&self.dir, segment, &self.config, From::EntryBelow(new_end), false)?;
        if scanned.end != new_end || scanned.size != position {
            return Err(segment.damaged(
                &self.dir,
                scanned.size,
                "it ends elsewhere than its offsets",
            ));
        }
        self.tail = scanned.tail;
        self.log_end = new_end;
        self.epochs.truncate_from_end(Offset(new_end));
        self.write_epochs()?;
        self.cut_producers(new_end)?;
        sync_dir(&self.dir.disk, &self.dir)
    }

    /// Position and base offset of the batch that holds `end`.
    fn cut_point(&self, index: usize, end: i64) -> Result<(u64, i64), LogError> {
        let segment = &self.segments[index];
        let tail = (index + 1 == self.segments.len()).then_some(&self.tail);
        let file = segment.any_file(&self.dir)?;
        let finder = Finder { dir: &self.dir, segment, tail, file: &file };
        Ok(finder
            .batch_of(end)?
            .map_or((segment.size, segment.end), |(at, header)| (at, header.base_offset)))
    }

    fn remove_last(&mut self) -> Result<(), LogError> {
        let Some(segment) = self.segments.pop() else { return Ok(()) };
        remove_segment(&self.dir, segment.base)
    }

    /// Drops everything and begins an empty log at `start`: log start = LEO = flushed = `start` (R35).
    ///
    /// Removes files and syncs the directory under the caller's lock.
    ///
    /// # Errors
    /// [`LogError::Fenced`]; [`LogError::Io`], then the log is fenced.
    pub fn reset_to(&mut self, start: Offset) -> Result<(), LogError> {
        self.ready()?;
        self.begin_at(start.0).inspect_err(|_| self.fenced = true)
    }

    fn begin_at(&mut self, start: i64) -> Result<(), LogError> {
        self.truncations += 1;
        self.shared.lower_recovery_point(&self.topic_partition, Offset(start))?;
        self.reset_producers()?;
        // The new segment first: a directory without any segment would begin at 0 after a crash, and a log start that goes
        // back is worse than an old log, which a crash before the last removal leaves.
        let fresh = if self.segments.iter().any(|s| s.base == start) {
            None
        } else {
            let fresh = Segment::create(&self.dir, start)?;
            sync_dir(&self.dir.disk, &self.dir)?;
            Some(fresh)
        };
        let mut kept = fresh;
        while let Some(base) = self.segments.last().map(|s| s.base) {
            if base == start {
                self.segments.pop();
                kept = Some(Segment::create(&self.dir, start)?);
                for kind in SIDE_FILES {
                    remove_if_there(&self.dir.disk, &path_of(&self.dir, start, kind))?;
                }
            } else {
                self.remove_last()?;
            }
        }
        self.segments.extend(kept);
        self.tail = Tail::empty();
        (self.log_end, self.flushed) = (start, start);
        self.rewrite = None;
        self.epochs.clear();
        self.write_epochs()?;
        sync_dir(&self.dir.disk, &self.dir)?;
        self.shared.set_recovery_point(&self.topic_partition, Offset(start));
        Ok(())
    }
}
