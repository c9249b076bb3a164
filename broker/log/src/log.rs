//! One partition's log: its state, opening and closing. Appends, reads, flushes, truncation are in files of their own.

use std::path::Path;
use std::sync::Arc;

use barnabas_types::{LeaderEpochs, Offset, TopicPartition};

use crate::config::LogConfig;
use crate::disk::Folder;
use crate::error::LogError;
use crate::flush::Rewrite;
use crate::loss::{Loss, LossCause};
use crate::producers::{Producers, Snapshots};
use crate::recovery::{self, Noted, Recovery, Start};
use crate::segment::{Segment, Tail};
use crate::shared::Shared;

/// One partition's log. Meant to live behind one mutex; see the crate's page for what to do outside of it.
#[derive(Debug)]
pub struct Log {
    pub(crate) shared: Arc<Shared>,
    pub(crate) topic_partition: TopicPartition,
    pub(crate) dir: Folder,
    pub(crate) config: LogConfig,
    /// Oldest first, never empty; the last is active.
    pub(crate) segments: Vec<Segment>,
    pub(crate) tail: Tail,
    pub(crate) epochs: LeaderEpochs,
    /// The epoch checkpoint says something else than `epochs`: a full disk kept it from being written.
    pub(crate) epochs_stale: bool,
    pub(crate) producers: Producers,
    pub(crate) snapshots: Snapshots,
    pub(crate) log_start: i64,
    pub(crate) log_end: i64,
    pub(crate) flushed: i64,
    /// Changes of file names or of the epoch checkpoint, and how many of them are synced.
    pub(crate) names_changed: u64,
    pub(crate) names_synced: u64,
    /// Bytes above the recovery point that must be written again before they may count as flushed (R16).
    pub(crate) rewrite: Option<Rewrite>,
    /// Truncations so far: a sync that began before one proves nothing for what was written after it.
    pub(crate) truncations: u64,
    pub(crate) flush_in_flight: bool,
    pub(crate) fenced: bool,
    /// Closed, or given up by its owner: another log may have its name by now, so nothing is noted for it any more.
    pub(crate) retired: bool,
    pub(crate) recovery: Recovery,
}

impl Log {
    /// Opens what lies in `dir` (an existing partition directory, perhaps without any segment).
    pub(crate) fn open(
        shared: Arc<Shared>,
        topic_partition: TopicPartition,
        dir: Folder,
        config: LogConfig,
        noted: Noted,
    ) -> Result<Self, LogError> {
        let opened = recovery::open(&dir, &config, &noted, &shared.progress)?;
        let log_end = opened.segments.last().map_or(0, |s| s.end);
        let log_start = opened.log_start;
        let flushed = noted.recovery_point().clamp(log_start, log_end.max(log_start));
        let mut log = Self {
            shared,
            topic_partition,
            dir,
            config,
            segments: opened.below.into_iter().chain(opened.segments).collect(),
            tail: opened.tail,
            epochs: opened.epochs,
            epochs_stale: false,
            producers: Producers::default(),
            snapshots: Snapshots::default(),
            log_start,
            log_end,
            flushed,
            names_changed: u64::from(opened.names_changed),
            names_synced: 0,
            rewrite: None,
            truncations: 0,
            flush_in_flight: false,
            fenced: false,
            retired: false,
            recovery: opened.recovery,
        };
        if log.recovery.tail_lost {
            // The mark first; then the checkpoints, so that this loss is told once.
            log.shared.mark_tail_lost()?;
            log.shared.lower_to(&log.topic_partition, Offset(log_end))?;
        }
        log.open_producers(&opened.snapshots, noted.start == Start::Clean)?;
        // Not earlier: they may be all that is left of what the producers wrote.
        log.detach_below_start().remove()?;
        if let Start::FailedSync { .. } = noted.start {
            log.cut_to_flushed()?;
        }
        log.plan_rewrite()?;
        log.note_age()?;
        log.shared.set_recovery_point(&log.topic_partition, Offset(log.flushed));
        if log.log_start > 0 {
            log.shared.set_log_start(&log.topic_partition, Offset(log.log_start));
        }
        Ok(log)
    }

    /// LEO, exclusive: the next offset.
    #[must_use]
    pub fn log_end(&self) -> Offset {
        Offset(self.log_end)
    }

    /// Everything below is durable. After an unclean stop this is the recovery point, whatever the log holds (R16).
    #[must_use]
    pub fn flushed(&self) -> Offset {
        Offset(self.flushed)
    }

    /// Leader epochs of the log.
    #[must_use]
    pub fn epochs(&self) -> &LeaderEpochs {
        &self.epochs
    }

    /// Bytes of all segments.
    #[must_use]
    pub fn size_bytes(&self) -> u64 {
        self.segments.iter().map(|s| s.size).sum()
    }

    /// How many segments there are, 1 or more.
    #[must_use]
    pub fn segment_count(&self) -> usize {
        self.segments.len()
    }

    /// The partition's directory.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.dir
    }

    /// What the last open had to scan and cut.
    #[must_use]
    pub fn recovery(&self) -> &Recovery {
        &self.recovery
    }

    /// What is in the log and not flushed, as a loss with this cause: what a failed sync costs at most.
    #[must_use]
    pub fn unflushed(&self, cause: LossCause) -> Option<Loss> {
        let from = self.flushed.max(self.log_start);
        let segments = self.segments.iter().filter(|s| s.end > from);
        // Bytes of whole segments, and all of the one in which it begins: it is not worth a lookup.
        let bytes = segments.map(|s| s.size).sum();
        let newest = self.epochs.latest();
        (from < self.log_end).then(|| Loss::exact(from, self.log_end, bytes, newest, cause))
    }

    /// Whether an earlier error stopped this log; see [`LogError::Fenced`].
    #[must_use]
    pub fn is_fenced(&self) -> bool {
        self.fenced
    }

    /// Takes nothing more until it is opened again. Reads of what is there go on.
    pub fn fence(&mut self) {
        (self.fenced, self.retired) = (true, true);
    }

    pub(crate) fn ready(&self) -> Result<(), LogError> {
        if self.fenced { Err(LogError::Fenced) } else { Ok(()) }
    }

    /// The active segment. `segments` is never empty.
    pub(crate) fn active(&self) -> &Segment {
        &self.segments[self.segments.len() - 1]
    }

    pub(crate) fn active_mut(&mut self) -> &mut Segment {
        let last = self.segments.len() - 1;
        &mut self.segments[last]
    }

    /// Flushes everything, writes the index files, and takes nothing more: the log counts as cleanly closed.
    ///
    /// # Errors
    /// [`LogError::Fenced`], [`LogError::FlushInFlight`] or [`LogError::Io`]: not cleanly closed; the directory will not get its
    /// clean-shutdown marker.
    pub fn close(&mut self) -> Result<(), LogError> {
        self.settle_epochs()?;
        self.snapshot_at_end();
        self.flush()?;
        let base = self.active().base;
        self.tail.write_indexes(&self.dir, base)?;
        self.fence();
        self.shared.closed(&self.topic_partition);
        Ok(())
    }
}
