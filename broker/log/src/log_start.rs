//! The log start: moving it up, and letting go of the segments below it.

use std::io;

use barnabas_types::Offset;

use crate::disk::Folder;
use crate::error::{At as _, LogError};
use crate::files::sync_dir;
use crate::log::Log;
use crate::segment::{path_of, remove_segment};

/// Segments that are out of the log already and still on disk. Dropped without [`Detached::remove`] their files stay until
/// the log is opened next.
#[derive(Debug)]
#[must_use = "the files go with Detached::remove"]
pub struct Detached {
    pub(crate) dir: Folder,
    /// Base offset and bytes, oldest first.
    pub(crate) segments: Vec<(i64, u64)>,
    /// Base of the first segment that stays.
    pub(crate) kept: i64,
}

impl Detached {
    /// Whether there is nothing to remove.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.segments.is_empty()
    }

    /// Bytes of batches in them.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.segments.iter().map(|(_, bytes)| bytes).sum()
    }

    /// Removes their files, oldest first, once the producer snapshot behind them is durable: from then on it alone says what
    /// the producers wrote in them. Outside the log's lock. Returns the bytes of batches that went. Files that are gone
    /// already (the partition was deleted meanwhile) are no error.
    ///
    /// # Errors
    /// [`LogError::Io`]; what is left goes when the log is opened next.
    pub fn remove(self) -> Result<u64, LogError> {
        let bytes = self.bytes();
        if self.is_empty() {
            return Ok(bytes);
        }
        match self.sync_snapshot() {
            Err(LogError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {}
            other => other?,
        }
        for (base, _) in self.segments {
            remove_segment(&self.dir, base)?;
        }
        Ok(bytes)
    }

    fn sync_snapshot(&self) -> Result<(), LogError> {
        let path = path_of(&self.dir, self.kept, "snapshot");
        let file = self.dir.disk.open_to_read(&path).at("open", &path)?;
        file.sync_data().at("sync", &path)?;
        sync_dir(&self.dir.disk, &self.dir)
    }
}

impl Log {
    /// First offset, inclusive. It may lie inside the first batch.
    #[must_use]
    pub fn log_start(&self) -> Offset {
        Offset(self.log_start)
    }

    /// Moves the log start up to `to`: never back, never above the LEO, not in a fenced log. Returns whether it moved.
    ///
    /// In memory only. Order: this, then [`crate::LogDir::write_log_starts`] before anything is answered or removed (R32),
    /// then [`Log::detach_below_start`], then [`Detached::remove`].
    pub fn advance_log_start(&mut self, to: Offset) -> bool {
        if self.fenced || to <= self.log_start() || to > self.log_end() {
            return false;
        }
        self.log_start = to.0;
        self.shared.set_log_start(&self.topic_partition, to);
        true
    }

    /// Takes the sealed segments that lie wholly below the log start out of the log, and forgets the leader epochs that end
    /// below it. Those without a producer snapshot behind them stay for now; one that could not be written is tried again here,
    /// and that is all the I/O. The log start must be durable before ([`crate::LogDir::write_log_starts`]): a crash that comes
    /// between is settled at open by what is durable.
    pub fn detach_below_start(&mut self) -> Detached {
        let mut below = self.segments.partition_point(|s| s.end <= self.log_start);
        // The active one stays, and so does everything in a fenced log: its files may be another's by now.
        below = below.min(self.segments.len() - 1);
        if self.fenced {
            below = 0;
        } else {
            // Not earlier: they might be written, and a crash bring the old log start back. The file keeps the old entries
            // until it is written next; opening does this again.
            self.epochs.truncate_from_start(self.log_start());
        }
        if below > 0 {
            self.write_missing_snapshot();
        }
        while below > 0 && !self.snapshots.stands_for_below(self.segments[below].base) {
            below -= 1;
        }
        let segments = self.segments.drain(..below).map(|s| (s.base, s.size)).collect();
        Detached { dir: self.dir.clone(), segments, kept: self.segments[0].base }
    }
}
