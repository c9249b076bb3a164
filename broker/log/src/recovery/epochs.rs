//! The leader epochs of a log that is being opened: those of the checkpoint, corrected by the batches.

use barnabas_types::{EpochStart, LeaderEpoch, LeaderEpochs, Offset};

use super::scan::Scanner;
use crate::error::{At as _, LogError};
use crate::segment::{Segment, path_of};
use crate::walk::{LOOKUP_CHUNK_BYTES, Step, Walk};

/// What the scan saw.
pub(super) struct Scanned<'a> {
    /// Where it began, if it checked what it saw.
    pub(super) first_base: Option<i64>,
    /// The first batch of each epoch.
    pub(super) runs: &'a [EpochStart],
    pub(super) log_start: i64,
}

/// The leader epochs: those of the checkpoint, above the scan's beginning those of the batches, and all from the batches if
/// the checkpoint is missing or does not fit them.
pub(super) fn settle(
    scanner: &Scanner<'_>,
    segments: &[Segment],
    found: Option<LeaderEpochs>,
    scanned: &Scanned<'_>,
) -> Result<LeaderEpochs, LogError> {
    let end = segments.last().map_or(0, |s| s.end);
    let mut settled = None;
    if let Some(mut epochs) = found {
        // An epoch that was assigned and has no record yet.
        let last = epochs.entries().last().copied();
        if let Some(first_base) = scanned.first_base {
            epochs.truncate_from_end(Offset(first_base));
            for run in scanned.runs {
                epochs.assign(run.epoch, run.start_offset);
            }
            if let Some(unused) = last.filter(|last| last.start_offset.0 == end) {
                epochs.assign(unused.epoch, unused.start_offset);
            }
        }
        epochs.truncate_from_end(Offset(end.saturating_add(1)));
        epochs.truncate_from_start(Offset(scanned.log_start));
        let fits = |run: &EpochStart| {
            epochs.epoch_at(run.start_offset.max(Offset(scanned.log_start))) == Some(run.epoch)
        };
        // What lies below the log start has no entry any more.
        let next_starts = scanned.runs.iter().skip(1).map(|run| Some(run.start_offset.0));
        let mut runs = scanned.runs.iter().zip(next_starts.chain([None]));
        // They may begin above it if the log start was lost and is an older one now.
        let covers =
            end <= scanned.log_start || epochs.epoch_at(Offset(scanned.log_start)).is_some();
        if covers
            && runs
                .all(|(run, next)| next.is_some_and(|next| next <= scanned.log_start) || fits(run))
        {
            settled = Some(epochs);
        }
    }
    match settled {
        Some(epochs) => Ok(epochs),
        None => of_batches(scanner, segments, scanned.log_start),
    }
}

fn of_batches(
    scanner: &Scanner<'_>,
    segments: &[Segment],
    log_start: i64,
) -> Result<LeaderEpochs, LogError> {
    let dir = scanner.dir;
    let mut epochs = LeaderEpochs::new();
    // The first epoch begins with the log, also where compaction has removed its first records.
    let mut from = log_start;
    for segment in segments {
        let file = segment.any_file(dir)?;
        let mut walk = Walk::new(&file, segment.size, 0, LOOKUP_CHUNK_BYTES);
        while let Step::Batch(_, header) =
            walk.next().at("read", &path_of(dir, segment.base, "log"))?
        {
            scanner.progress.check()?;
            let start = header.base_offset.min(from);
            epochs.assign(LeaderEpoch(header.partition_leader_epoch), Offset(start));
            from = i64::MAX;
        }
    }
    epochs.truncate_from_start(Offset(log_start));
    Ok(epochs)
}
