//! Truncation: cutting the end (R15) and beginning anew at another offset (R35).

use std::path::Path;
use std::sync::Arc;

use barnabas_types::{LeaderEpochs, Offset};

use crate::disk::DiskFile;
use crate::error::{At as _, LogError};
use crate::files::{remove_if_there, sync_dir};
use crate::log::Log;
use crate::loss::{Loss, LossCause};
use crate::recovery::{From, Scanned, scan};
use crate::segment::{Finder, Segment, Tail, path_of, remove_segment};

impl Log {
    /// Cuts the log to the exclusive end `end`; if that lies inside a batch, to the base of this batch, and if that lies below
    /// the log start, the log is empty at its start then. An `end` at or above the LEO changes nothing. Returns what is
    /// gone, if anything. Truncation lowers the flushed offset and, durably and first, the recovery point (R16).
    ///
    /// Removes, cuts and syncs files and the directory under the caller's lock: it is durable when it returns.
    ///
    /// # Errors
    /// [`LogError::OffsetOutOfRange`] if `end` is below the log start, [`LogError::Full`], [`LogError::NoDescriptor`]: nothing
    /// happened.
    /// [`LogError::Fenced`]; [`LogError::Io`] and [`LogError::Damaged`] fence the log.
    pub fn truncate_to(&mut self, end: Offset) -> Result<Option<Loss>, LogError> {
        self.ready()?;
        if end >= self.log_end() {
            return Ok(None);
        }
        if end < self.log_start() {
            let (start, log_end) = (self.log_start(), self.log_end());
            return Err(LogError::OffsetOutOfRange { asked: end, start, end: log_end });
        }
        self.cut_to(end.0, LossCause::Truncated)
    }

    /// What [`Log::truncate_to`] is going to drop; `None`: nothing. Nothing is changed.
    ///
    /// # Errors
    /// As there, but nothing is fenced.
    pub fn would_truncate(&self, end: Offset) -> Result<Option<Loss>, LogError> {
        if end >= self.log_end() || end < self.log_start() {
            return Ok(None);
        }
        let index = self.segments.partition_point(|s| s.base <= end.0).saturating_sub(1);
        let kept = self.kept_below(index, end.0)?;
        let empty = kept.end < self.log_start || (index == 0 && kept.size == 0);
        // What lies below the log start goes with the rest then.
        let stays = match empty {
            true => 0,
            false => self.segments[..index].iter().map(|s| s.size).sum::<u64>() + kept.size,
        };
        let bytes = self.size_bytes().saturating_sub(stays);
        let from = if empty { self.log_start } else { kept.end };
        let newest = self.epochs.latest();
        Ok(Some(Loss::exact(from, self.log_end, bytes, newest, LossCause::Truncated)))
    }

    /// What [`Log::reset_to`] is going to drop; `None`: nothing.
    #[must_use]
    pub fn would_reset(&self) -> Option<Loss> {
        let (from, to, newest) = (self.log_start, self.log_end, self.epochs.latest());
        (from < to).then(|| Loss::exact(from, to, self.size_bytes(), newest, LossCause::Reset))
    }

    /// Syncs a file that was cut. Rare enough to be done under the log's lock.
    pub(crate) fn sync_cut(&self, file: &DiskFile, path: &Path) -> Result<(), LogError> {
        file.sync_data().at("sync", path).inspect_err(|_| {
            self.shared.sync_failed(&self.topic_partition, self.flushed());
        })
    }

    /// What follows a failed sync (R38): everything above the flushed offset goes, on descriptors that were opened since.
    pub(crate) fn cut_to_flushed(&mut self) -> Result<(), LogError> {
        if self.flushed < self.log_end {
            let loss = self.cut_to(self.flushed, LossCause::FailedSync)?;
            self.recovery.losses.extend(loss);
        }
        self.shared.sync_failure_settled(&self.topic_partition);
        Ok(())
    }

    fn cut_to(&mut self, end: i64, cause: LossCause) -> Result<Option<Loss>, LogError> {
        let (before, size, newest) = (self.log_end, self.size_bytes(), self.epochs.latest());
        let index = self.segments.partition_point(|s| s.base <= end).saturating_sub(1);
        // Nothing has happened yet.
        let kept = self.kept_below(index, end).map_err(|error| {
            self.fenced |= error.shortage().is_none();
            error.or_shortage()
        })?;
        // Nothing is left of the first segment, or only what is deleted.
        let empty = kept.end < self.log_start || (index == 0 && kept.size == 0);
        if empty {
            self.begin_at(self.log_start)?;
        } else {
            self.note_end(kept.end)?;
            self.cut_files(index, kept).inspect_err(|_| self.fenced = true)?;
        }
        let bytes = size - self.size_bytes();
        Ok(Some(Loss::exact(self.log_end, before, bytes, newest, cause)))
    }

    /// Makes it durable that the log will end at `end` or below.
    fn note_end(&mut self, end: i64) -> Result<(), LogError> {
        self.shared.lower_to(&self.topic_partition, Offset(end)).map_err(|error| {
            self.fenced |= error.shortage().is_none();
            error.or_shortage()
        })
    }

    /// What stays of a segment that is cut at the batch which holds `end`, as if it had just been scanned.
    fn kept_below(&self, index: usize, end: i64) -> Result<Scanned, LogError> {
        let segment = &self.segments[index];
        let tail = (index + 1 == self.segments.len()).then_some(&self.tail);
        let file = segment.any_file(&self.dir)?;
        let finder = Finder::new(&self.dir, segment.extent(), tail, &file);
        let found = finder.batch_of(end)?;
        let size = found.map_or(segment.size, |(at, _)| at);
        let cut = Segment::new(segment.base, end, size);
        let scanned = scan(&self.dir, &cut, &self.config, From::EntryBelow(end))?;
        if scanned.end > end || scanned.size != size {
            let reason = "it ends elsewhere than its offsets";
            return Err(segment.damaged(&self.dir, scanned.size, reason));
        }
        Ok(scanned)
    }

    fn cut_files(&mut self, index: usize, kept: Scanned) -> Result<(), LogError> {
        self.truncations += 1;
        self.flushed = self.flushed.min(kept.end);
        self.remove_snapshots_above(kept.end)?;
        // Newest first: whatever a crash leaves is a prefix.
        while self.segments.len() > index + 1 {
            self.remove_last()?;
        }
        let segment = &mut self.segments[index];
        let path = path_of(&self.dir, segment.base, "log");
        if kept.size == 0 {
            // A new file of that name: see `Segment::is_cut`.
            remove_if_there(&self.dir.disk, &path)?;
            *segment = Segment::create(&self.dir, segment.base)?;
        }
        let file = Arc::clone(segment.kept_file(&self.dir)?);
        file.set_len(kept.size).at("truncate", &path)?;
        segment.cut(kept.end, kept.size);
        segment.is_cut = kept.size > 0;
        // Durable before anything is written behind it: a later segment, or the recovery point, must not vouch for bytes that
        // a loss of power brings back.
        self.sync_cut(&file, &path)?;
        self.tail = kept.tail;
        self.log_end = kept.end;
        let mut epochs = self.epochs.clone();
        epochs.truncate_from_end(Offset(kept.end));
        self.keep_epochs(epochs)?;
        self.cut_producers(kept.end)?;
        self.snapshot_at_cut(kept.end)?;
        sync_dir(&self.dir.disk, &self.dir)
    }

    /// Takes epochs over that say less than the file: a shortage does not stand in the way.
    fn keep_epochs(&mut self, epochs: LeaderEpochs) -> Result<(), LogError> {
        self.epochs.clone_from(&epochs);
        match self.store_epochs(epochs) {
            Err(error) if error.shortage().is_some() => self.epochs_stale = true,
            other => other?,
        }
        Ok(())
    }

    fn remove_last(&mut self) -> Result<(), LogError> {
        match self.segments.pop() {
            Some(segment) => remove_segment(&self.dir, segment.base),
            None => Ok(()),
        }
    }

    /// Drops everything and begins an empty log at `start`: log start = LEO = flushed = `start` (R35), the only step that
    /// may move the log start back. Returns what is gone, if anything.
    ///
    /// Removes files, writes checkpoints durably and syncs the directory under the caller's lock.
    ///
    /// # Errors
    /// [`LogError::Full`], [`LogError::NoDescriptor`]: nothing happened. [`LogError::Fenced`]; [`LogError::Io`], then the log is fenced.
    pub fn reset_to(&mut self, start: Offset) -> Result<Option<Loss>, LogError> {
        self.ready()?;
        let (from, to) = (self.log_start, self.log_end);
        let (bytes, newest) = (self.size_bytes(), self.epochs.latest());
        self.begin_at(start.0)?;
        Ok((from < to).then(|| Loss::exact(from, to, bytes, newest, LossCause::Reset)))
    }

    fn begin_at(&mut self, start: i64) -> Result<(), LogError> {
        // First of all the log start, durably: from then on a crash leaves the old log with this start, or, if that is
        // beyond its end, an empty log there.
        self.note_end(start)?;
        let noted = self.shared.replace_log_start(&self.topic_partition, Offset(start));
        noted.map_err(|error| {
            self.fenced |= error.shortage().is_none();
            error.or_shortage()
        })?;
        self.truncations += 1;
        self.begin_files_at(start).inspect_err(|_| self.fenced = true)
    }

    fn begin_files_at(&mut self, start: i64) -> Result<(), LogError> {
        self.reset_producers()?;
        self.tail = Tail::empty();
        (self.log_start, self.log_end, self.flushed) = (start, start, start);
        self.rewrite = None;
        // Never without a segment, also after an error on the way.
        let old = std::mem::replace(&mut self.segments, vec![Segment::new(start, start, 0)]);
        for segment in old.into_iter().rev() {
            remove_segment(&self.dir, segment.base)?;
        }
        self.segments = vec![Segment::create(&self.dir, start)?];
        self.keep_epochs(LeaderEpochs::new())?;
        sync_dir(&self.dir.disk, &self.dir)?;
        self.shared.set_recovery_point(&self.topic_partition, Offset(start));
        Ok(())
    }
}
