//! Opening a log: what lies in its directory is trusted after a clean stop, and scanned from the recovery point otherwise.
//!
//! The scan checks each batch (CRC, whole, offsets that increase, epochs that do not decrease), cuts at the first that fails,
//! drops the segments after it, and rebuilds indexes and epochs above the recovery point from the batches.
//!
//! **Holes.** Inside a segment offsets may jump (records that compaction removed, here or on the leader that they were
//! fetched from). Between segments they may not: a segment is named after the end of the one before it, and whoever rewrites
//! a segment keeps its last offset (if need be in an empty batch). So a segment that was lost, whole or in part, is seen.

mod epochs;
mod list;
mod scan;

use barnabas_types::{LeaderEpochs, Offset};

use crate::batch::BatchError;
use crate::checkpoint::{read_epochs, write_epochs};
use crate::config::LogConfig;
use crate::disk::Folder;
use crate::error::LogError;
use crate::loss::{Loss, LossCause};
use crate::progress::RecoveryProgress;
use crate::segment::{Segment, Tail, remove_segment};

pub(crate) use scan::{From, Scanned, scan};
use scan::{Scanner, Scans};

/// What opening a log had to do.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Recovery {
    /// Bytes of batches that were read and checked.
    pub scanned_bytes: u64,
    /// What is gone, in order; at most one entry for each cause.
    pub losses: Vec<Loss>,
    /// The log ends below its own checkpointed high watermark or below what it had flushed: this replica has lost records
    /// that may be committed. The directory's lost-tail mark is set then (R6, R7), also under the same boot id.
    pub tail_lost: bool,
}

impl Recovery {
    /// What was cut off because it was damaged.
    #[must_use]
    pub fn cut(&self) -> Option<&Loss> {
        self.losses.iter().find(|loss| matches!(loss.cause, LossCause::Damaged(_)))
    }
}

/// How the log was left.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Start {
    /// Flushed and closed.
    Clean,
    /// Otherwise: what lies above the recovery point may be anything. `None`: the recovery points were lost.
    Unclean { recovery_point: Option<Offset> },
    /// By this process, after a sync failed: what lies above this offset does not count (R38).
    FailedSync { flushed: Offset },
}

/// What was noted of a log before it is opened.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Noted {
    pub(crate) start: Start,
    pub(crate) log_start: Option<Offset>,
    /// The log was known to reach up to here: its high watermark, or what was flushed.
    pub(crate) reached: Offset,
}

impl Noted {
    /// Up to where the log is taken as it is, exclusive, before it is cut to what it holds.
    pub(crate) fn recovery_point(&self) -> i64 {
        match self.start {
            Start::Clean => i64::MAX,
            Start::Unclean { recovery_point } => recovery_point.unwrap_or_default().0,
            Start::FailedSync { flushed } => flushed.0,
        }
    }
}

/// What an opened log consists of.
pub(crate) struct Opened {
    /// Wholly below the log start, oldest first, as they lie there. They are to go once it is known what they say of
    /// producers: the snapshot behind them may not have survived.
    pub(crate) below: Vec<Segment>,
    pub(crate) segments: Vec<Segment>,
    pub(crate) tail: Tail,
    pub(crate) epochs: LeaderEpochs,
    pub(crate) log_start: i64,
    pub(crate) recovery: Recovery,
    pub(crate) names_changed: bool,
    /// Offsets of the producer snapshots that lie there, in order.
    pub(crate) snapshots: Vec<i64>,
}

/// Opens a partition directory; makes the first segment if there is none.
pub(crate) fn open(
    dir: &Folder,
    config: &LogConfig,
    noted: &Noted,
    progress: &RecoveryProgress,
) -> Result<Opened, LogError> {
    let noted_start = noted.log_start.unwrap_or_default().0;
    let mut listed = list::list(dir)?;
    let mut below = listed.take_below(noted_start);
    // What was made before an unclean stop may never have been synced.
    let mut names_changed = listed.removed || !below.is_empty() || noted.start != Start::Clean;
    if listed.segments.is_empty() {
        listed.segments.push(Segment::create(dir, noted_start)?);
        names_changed = true;
    }
    let last = listed.segments.len() - 1;
    let recovery_point = noted.recovery_point();
    let (first_scanned, from) = match noted.start {
        Start::Clean => (last, From::LastEntry),
        Start::Unclean { .. } | Start::FailedSync { .. } => {
            let after = listed.segments.partition_point(|s| s.base <= recovery_point);
            (after.saturating_sub(1), From::EntryBelow(recovery_point))
        }
    };
    let scanner = Scanner {
        dir,
        config,
        progress,
        strict: noted.start != Start::Clean,
        holes: noted.start == (Start::Unclean { recovery_point: None }),
    };
    listed.rebuild_missing_indexes(&scanner, first_scanned)?;
    let (mut segments, snapshots) = (listed.segments, listed.snapshots);
    let Scans { mut tail, mut recovery, first_base, runs, sealed_any } =
        scanner.scan_from(&mut segments, first_scanned, from)?;
    names_changed |= sealed_any || !recovery.losses.is_empty();
    let end = segments.last().map_or(0, |s| s.end);
    let log_start = segments.first().map_or(0, |s| s.base).max(noted_start);
    note_missing(&mut recovery, noted, end.max(log_start));
    recovery.losses.retain_mut(|loss| loss.clip(Offset(log_start)));
    let found = read_epochs(dir)?;
    let epochs = if end < log_start {
        // All that is left was deleted already. The log start never goes back (R32).
        while let Some(segment) = segments.pop().or_else(|| below.pop()) {
            remove_segment(dir, segment.base)?;
        }
        segments.push(Segment::create(dir, log_start)?);
        tail = Tail::empty();
        names_changed = true;
        // The epoch that covers the start says still how far the log had come (R8). None that began above it does: its
        // leader's log was longer than what is left here.
        let mut epochs = found.clone().unwrap_or_default();
        epochs.truncate_from_end(Offset(log_start.saturating_add(1)));
        epochs.truncate_from_start(Offset(log_start));
        epochs
    } else {
        let scanned = epochs::Scanned {
            first_base: first_base.filter(|_| scanner.strict),
            runs: &runs,
            log_start,
        };
        epochs::settle(&scanner, &segments, found.clone(), &scanned)?
    };
    if found.as_ref() != Some(&epochs) && !(found.is_none() && epochs.entries().is_empty()) {
        write_epochs(dir, &epochs)?;
        names_changed = true;
    }
    Ok(Opened { below, segments, tail, epochs, log_start, recovery, names_changed, snapshots })
}

/// The log ends at `end`: is that below what it is known to have reached?
fn note_missing(recovery: &mut Recovery, noted: &Noted, end: i64) {
    let reached = noted.reached;
    if end >= reached.0 {
        return;
    }
    recovery.tail_lost = true;
    match recovery.losses.last_mut() {
        Some(cut) => {
            cut.at_least_to = cut.at_least_to.max(reached);
            cut.to = cut.to.filter(|to| *to >= reached);
        }
        None => recovery.losses.push(Loss {
            from: Offset(end),
            to: None,
            at_least_to: reached,
            bytes: 0,
            last_epoch: None,
            cause: LossCause::Missing,
        }),
    }
}

/// Why a segment that should begin at `expected` and begins at `found` cannot follow; `holes`: it may begin later.
fn joins(found: i64, expected: i64, holes: bool) -> Option<BatchError> {
    let fits = found == expected || (holes && found > expected);
    (!fits).then_some(BatchError::OffsetOrder { found, expected })
}
