//! What the logs of a data directory share with it: checkpoints, and how each log was left.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use barnabas_types::{Offset, TopicPartition};

use crate::checkpoint::{read_offsets, write_offsets};
use crate::disk::Disk;
use crate::error::LogError;
use crate::files::replace_durably;
use crate::progress::RecoveryProgress;
use crate::recovery::{Noted, Start};

pub(crate) const TAIL_LOST: &str = "barnabas.tail_lost";
const HIGH_WATERMARKS: &str = "replication-offset-checkpoint";
pub(crate) const RECOVERY_POINTS: &str = "recovery-point-offset-checkpoint";
const LOG_STARTS: &str = "log-start-offset-checkpoint";
const CLEANER_POINTS: &str = "cleaner-offset-checkpoint";

/// What a directory's logs share with it.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) disk: Disk,
    /// Checkpoints that made no sense.
    pub(crate) damaged: Vec<PathBuf>,
    pub(crate) progress: Arc<RecoveryProgress>,
    path: PathBuf,
    state: Mutex<State>,
    /// Held while a checkpoint is written, so that an older snapshot never replaces a newer one.
    writer: Mutex<()>,
}

#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) high_watermarks: BTreeMap<TopicPartition, Offset>,
    pub(crate) recovery_points: BTreeMap<TopicPartition, Offset>,
    /// Log starts above 0.
    pub(crate) log_starts: BTreeMap<TopicPartition, Offset>,
    /// Partitions whose noted log start is not durable yet.
    pub(crate) starts_unwritten: BTreeSet<TopicPartition>,
    /// First dirty offsets of compacted logs.
    pub(crate) cleaner_points: BTreeMap<TopicPartition, Offset>,
    /// Logs of which a compaction is planned or under way.
    pub(crate) compacting: BTreeSet<TopicPartition>,
    /// Logs whose sync failed in this process, with what was flushed before (R38).
    pub(crate) failed_syncs: BTreeMap<TopicPartition, Offset>,
    /// The recovery points of before this run could not be read: what has none may hold anything.
    pub(crate) points_lost: bool,
    /// Checkpoints on disk (high watermarks, recovery points, log starts, cleaner points) that may still name partitions
    /// that are gone.
    pub(crate) stale: [bool; 4],
    /// Flushed and closed, by the process before (clean marker) or by this one: no scan at the next open.
    pub(crate) whole: BTreeSet<TopicPartition>,
    /// Open, or not closed well, or left by an unclean stop and not opened since: while there is one, no clean marker.
    pub(crate) unclean: BTreeSet<TopicPartition>,
}

impl Shared {
    /// Reads what the checkpoints of a directory say.
    pub(crate) fn read(disk: Disk, path: &Path) -> Result<Self, LogError> {
        let mut damaged = Vec::new();
        let mut read = |name: &str| -> Result<_, LogError> {
            let found = read_offsets(&path.join(name))?;
            damaged.extend(found.damaged.then(|| path.join(name)));
            Ok(found)
        };
        let points = read(RECOVERY_POINTS)?;
        let state = State {
            high_watermarks: read(HIGH_WATERMARKS)?.offsets,
            log_starts: read(LOG_STARTS)?.offsets,
            cleaner_points: read(CLEANER_POINTS)?.offsets,
            recovery_points: points.offsets,
            points_lost: points.damaged,
            ..State::default()
        };
        Ok(Self {
            disk,
            damaged,
            progress: Arc::default(),
            path: path.to_owned(),
            state: Mutex::new(state),
            writer: Mutex::new(()),
        })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        // A panic elsewhere leaves plain maps behind, whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// At the beginning of a run: how the partitions on disk were left.
    pub(crate) fn begin(
        &self,
        partitions: BTreeSet<TopicPartition>,
        clean: bool,
    ) -> Result<(), LogError> {
        let missing = !self.path.join(RECOVERY_POINTS).exists();
        if missing && partitions.is_empty() {
            // From now on a directory with partitions and without this file has lost it.
            self.write_recovery_points()?;
        }
        let mut state = self.state();
        state.points_lost |= missing && !partitions.is_empty();
        let (whole, unclean) =
            if clean { (partitions, BTreeSet::new()) } else { (BTreeSet::new(), partitions) };
        (state.whole, state.unclean) = (whole, unclean);
        Ok(())
    }

    /// Makes the lost-tail mark durable.
    pub(crate) fn mark_tail_lost(&self) -> Result<(), LogError> {
        let _writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        replace_durably(&self.disk, &self.path.join(TAIL_LOST), b"")
    }

    /// Notes a recovery point; [`LogDir::write_recovery_points`] makes it durable.
    pub(crate) fn set_recovery_point(&self, tp: &TopicPartition, to: Offset) {
        self.state().recovery_points.insert(tp.clone(), to);
    }

    /// Before the log is cut to `end`: lowers its recovery point (R16), its high watermark and its first dirty offset durably,
    /// so that they never lie above what it holds.
    pub(crate) fn lower_to(&self, tp: &TopicPartition, end: Offset) -> Result<(), LogError> {
        let lower = |map: &mut BTreeMap<TopicPartition, Offset>| match map.get_mut(tp) {
            Some(noted) if *noted > end => {
                *noted = end;
                true
            }
            _ => false,
        };
        let (point, mark, clean) = {
            let state = &mut *self.state();
            (
                lower(&mut state.recovery_points),
                lower(&mut state.high_watermarks),
                lower(&mut state.cleaner_points),
            )
        };
        if point {
            self.write_recovery_points()?;
        }
        if clean {
            self.write_cleaner_points()?;
        }
        if mark { self.write_high_watermarks() } else { Ok(()) }
    }

    /// Notes a log start; [`LogDir::write_log_starts`] makes it durable.
    pub(crate) fn set_log_start(&self, tp: &TopicPartition, to: Offset) {
        let mut state = self.state();
        if state.log_starts.insert(tp.clone(), to) != Some(to) {
            state.starts_unwritten.insert(tp.clone());
        }
    }

    /// Before a log is opened (again): what it is opened with must not change through a crash.
    pub(crate) fn settle_log_start(&self, tp: &TopicPartition) -> Result<(), LogError> {
        let unwritten = self.state().starts_unwritten.contains(tp);
        if unwritten { self.write_log_starts() } else { Ok(()) }
    }

    /// Notes a log start, up or down, durably; after an error the old one is noted still.
    pub(crate) fn replace_log_start(
        &self,
        tp: &TopicPartition,
        to: Offset,
    ) -> Result<(), LogError> {
        let (before, unwritten) = {
            let mut state = self.state();
            (state.log_starts.insert(tp.clone(), to), state.starts_unwritten.contains(tp))
        };
        if before.unwrap_or_default() == to && !unwritten {
            return Ok(());
        }
        self.write_log_starts().inspect_err(|_| {
            let mut state = self.state();
            match before {
                Some(before) => state.log_starts.insert(tp.clone(), before),
                None => state.log_starts.remove(tp),
            };
        })
    }

    /// Writes the log starts durably.
    pub(crate) fn write_log_starts(&self) -> Result<(), LogError> {
        let _writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        let (starts, unwritten) = {
            let mut state = self.state();
            (state.log_starts.clone(), std::mem::take(&mut state.starts_unwritten))
        };
        write_offsets(&self.disk, &self.path.join(LOG_STARTS), &starts)
            .inspect_err(|_| self.state().starts_unwritten.extend(unwritten))
    }

    /// A sync of the log failed: the next opening cuts it to what was flushed before (R38).
    pub(crate) fn sync_failed(&self, tp: &TopicPartition, flushed: Offset) {
        let mut state = self.state();
        let noted = state.failed_syncs.entry(tp.clone()).or_insert(flushed);
        *noted = flushed.min(*noted);
    }

    /// The log was cut to what was flushed before its sync failed.
    pub(crate) fn sync_failure_settled(&self, tp: &TopicPartition) {
        self.state().failed_syncs.remove(tp);
    }

    /// Writes the recovery points durably.
    pub(crate) fn write_recovery_points(&self) -> Result<(), LogError> {
        let _writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        let points = self.state().recovery_points.clone();
        write_offsets(&self.disk, &self.path.join(RECOVERY_POINTS), &points)
    }

    /// The log was flushed and closed.
    pub(crate) fn closed(&self, tp: &TopicPartition) {
        let mut state = self.state();
        state.unclean.remove(tp);
        state.whole.insert(tp.clone());
    }

    /// The log is about to be opened: says how it was left, and counts it as unclean from now on.
    pub(crate) fn opening(&self, tp: &TopicPartition) -> Noted {
        let mut state = self.state();
        state.unclean.insert(tp.clone());
        let whole = state.whole.remove(tp);
        let recovery_point = state.recovery_points.get(tp).copied();
        let start = if let Some(flushed) = state.failed_syncs.get(tp) {
            Start::FailedSync { flushed: *flushed }
        } else if whole {
            Start::Clean
        } else {
            let known = recovery_point.or((!state.points_lost).then_some(Offset(0)));
            Start::Unclean { recovery_point: known }
        };
        let high_watermark = state.high_watermarks.get(tp).copied();
        Noted {
            start,
            log_start: state.log_starts.get(tp).copied(),
            reached: high_watermark.max(recovery_point).unwrap_or_default(),
        }
    }

    /// The directories of these partitions are gone: nothing that was noted of them holds for later ones of the same names.
    pub(crate) fn forget(&self, partitions: &[TopicPartition]) -> Result<(), LogError> {
        let [mark, point, start, clean] = {
            let mut state = self.state();
            // What could not be written the last time: a crash must not give it to a later partition of the same name.
            let [mut had_mark, mut had_point, mut had_start, mut had_clean] =
                std::mem::take(&mut state.stale);
            for tp in partitions {
                state.whole.remove(tp);
                state.unclean.remove(tp);
                had_mark |= state.high_watermarks.remove(tp).is_some();
                had_point |= state.recovery_points.remove(tp).is_some();
                had_start |= state.log_starts.remove(tp).is_some();
                had_clean |= state.cleaner_points.remove(tp).is_some();
                state.starts_unwritten.remove(tp);
                state.failed_syncs.remove(tp);
            }
            [had_mark, had_point, had_start, had_clean]
        };
        type Write = fn(&Shared) -> Result<(), LogError>;
        let writes: [(bool, Write); 4] = [
            (mark, Self::write_high_watermarks),
            (point, Self::write_recovery_points),
            (start, Self::write_log_starts),
            (clean, Self::write_cleaner_points),
        ];
        let results = writes.map(|(stale, write)| if stale { write(self) } else { Ok(()) });
        self.state().stale = results.each_ref().map(Result::is_err);
        results.into_iter().collect()
    }

    /// Up to where a log was compacted, exclusive.
    pub(crate) fn cleaned_up_to(&self, tp: &TopicPartition) -> Option<Offset> {
        self.state().cleaner_points.get(tp).copied()
    }

    /// Notes up to where a log was compacted; [`LogDir::write_cleaner_points`] makes it durable.
    pub(crate) fn set_cleaned_up_to(&self, tp: &TopicPartition, to: Offset) {
        self.state().cleaner_points.insert(tp.clone(), to);
    }

    /// Writes the first dirty offsets durably.
    pub(crate) fn write_cleaner_points(&self) -> Result<(), LogError> {
        let _writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        let points = self.state().cleaner_points.clone();
        write_offsets(&self.disk, &self.path.join(CLEANER_POINTS), &points)
    }

    /// The right to compact a log; `None` while somebody has it.
    pub(crate) fn begin_compacting(self: &Arc<Self>, tp: &TopicPartition) -> Option<Compacting> {
        let begun = self.state().compacting.insert(tp.clone());
        begun.then(|| Compacting { shared: Arc::clone(self), topic_partition: tp.clone() })
    }

    /// Writes the high watermarks durably.
    pub(crate) fn write_high_watermarks(&self) -> Result<(), LogError> {
        let _writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        let marks = self.state().high_watermarks.clone();
        write_offsets(&self.disk, &self.path.join(HIGH_WATERMARKS), &marks)
    }
}

/// The right to compact a log, as long as this value lives.
#[derive(Debug)]
pub(crate) struct Compacting {
    shared: Arc<Shared>,
    topic_partition: TopicPartition,
}

impl Drop for Compacting {
    fn drop(&mut self) {
        self.shared.state().compacting.remove(&self.topic_partition);
    }
}
