//! What the logs of a data directory share with it: checkpoints, and how each log was left.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use barnabas_types::{Offset, TopicPartition};

use crate::checkpoint::{read_offsets, write_offsets};
use crate::disk::Disk;
use crate::error::LogError;
use crate::recovery::Start;

const HIGH_WATERMARKS: &str = "replication-offset-checkpoint";
const RECOVERY_POINTS: &str = "recovery-point-offset-checkpoint";

/// What a directory's logs share with it.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) disk: Disk,
    path: PathBuf,
    state: Mutex<State>,
    /// Held while a checkpoint is written, so that an older snapshot never replaces a newer one.
    writer: Mutex<()>,
}

#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) high_watermarks: BTreeMap<TopicPartition, Offset>,
    pub(crate) recovery_points: BTreeMap<TopicPartition, Offset>,
    /// Flushed and closed, by the process before (clean marker) or by this one: no scan at the next open.
    pub(crate) whole: BTreeSet<TopicPartition>,
    /// Open, or not closed well, or left by an unclean stop and not opened since: while there is one, no clean marker.
    pub(crate) unclean: BTreeSet<TopicPartition>,
}

impl Shared {
    /// Reads what the checkpoints of a directory say.
    pub(crate) fn read(disk: Disk, path: &Path) -> Result<Self, LogError> {
        let state = State {
            high_watermarks: read_offsets(&path.join(HIGH_WATERMARKS))?,
            recovery_points: read_offsets(&path.join(RECOVERY_POINTS))?,
            ..State::default()
        };
        Ok(Self { disk, path: path.to_owned(), state: Mutex::new(state), writer: Mutex::new(()) })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        // A panic elsewhere leaves plain maps behind, whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// At the beginning of a run: how the partitions on disk were left.
    pub(crate) fn begin(&self, partitions: BTreeSet<TopicPartition>, clean: bool) {
        let mut state = self.state();
        let (whole, unclean) =
            if clean { (partitions, BTreeSet::new()) } else { (BTreeSet::new(), partitions) };
        (state.whole, state.unclean) = (whole, unclean);
    }

    /// Notes a recovery point; [`LogDir::write_recovery_points`] makes it durable.
    pub(crate) fn set_recovery_point(&self, tp: &TopicPartition, to: Offset) {
        self.state().recovery_points.insert(tp.clone(), to);
    }

    /// Lowers a recovery point durably, before the bytes below the old one change (R16).
    pub(crate) fn lower_recovery_point(
        &self,
        tp: &TopicPartition,
        to: Offset,
    ) -> Result<(), LogError> {
        {
            let mut state = self.state();
            match state.recovery_points.get_mut(tp) {
                Some(point) if *point > to => *point = to,
                _ => return Ok(()),
            }
        }
        self.write_recovery_points()
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
    pub(crate) fn opening(&self, tp: &TopicPartition) -> Start {
        let mut state = self.state();
        state.unclean.insert(tp.clone());
        if state.whole.remove(tp) {
            Start::Clean
        } else {
            let recovery_point = state.recovery_points.get(tp).copied().unwrap_or_default();
            Start::Unclean { recovery_point }
        }
    }

    /// The directories of these partitions are gone: nothing that was noted of them holds for later ones of the same names.
    pub(crate) fn forget(&self, partitions: &[TopicPartition]) -> Result<(), LogError> {
        let (mut had_mark, mut had_point) = (false, false);
        {
            let mut state = self.state();
            for tp in partitions {
                state.whole.remove(tp);
                state.unclean.remove(tp);
                had_mark |= state.high_watermarks.remove(tp).is_some();
                had_point |= state.recovery_points.remove(tp).is_some();
            }
        }
        if had_mark {
            self.write_high_watermarks()?;
        }
        if had_point {
            self.write_recovery_points()?;
        }
        Ok(())
    }

    /// Writes the high watermarks durably.
    pub(crate) fn write_high_watermarks(&self) -> Result<(), LogError> {
        let _writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        let marks = self.state().high_watermarks.clone();
        write_offsets(&self.disk, &self.path.join(HIGH_WATERMARKS), &marks)
    }
}
