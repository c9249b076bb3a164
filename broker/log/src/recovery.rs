//! Opening a log: what lies in its directory is trusted after a clean stop, and scanned from the recovery point otherwise.
//!
//! The scan checks each batch (CRC, whole, offsets that go on, epochs that do not decrease), cuts at the first that fails,
//! drops the segments after it, and rebuilds indexes and epochs above the recovery point from the batches.

use std::collections::BTreeSet;
use std::fs;

use barnabas_types::{EpochStart, LeaderEpoch, LeaderEpochs, Offset};

use crate::batch::{BatchError, BatchHeader};
use crate::checkpoint::{read_epochs, write_epochs};
use crate::disk::Folder;
use crate::error::{At as _, LogError};
use crate::files::{remove_if_there, sync_dir};
use crate::index::SparseIndex;
use crate::log::LogConfig;
use crate::segment::{MaxTimestamp, Segment, Tail, entry_fits, path_of, remove_segment};
use crate::walk::{LOOKUP_CHUNK_BYTES, SCAN_CHUNK_BYTES, Step, Walk};

/// What opening a log had to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Recovery {
    /// Bytes of batches that were read and checked.
    pub scanned_bytes: u64,
    /// What was cut off, if anything.
    pub cut: Option<Cut>,
}

/// What recovery cut off: everything from the first damaged batch on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cut {
    /// The LEO after the cut, exclusive: the first offset that is gone, if records were there.
    pub at: Offset,
    /// Bytes that were dropped, later segments included.
    pub bytes: u64,
    /// What was wrong with the first of them.
    pub reason: BatchError,
}

/// How the log was left.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Start {
    /// Flushed and closed.
    Clean,
    /// Otherwise: what lies above the recovery point may be anything.
    Unclean { recovery_point: Offset },
}

/// What an opened log consists of.
pub(crate) struct Opened {
    pub(crate) segments: Vec<Segment>,
    pub(crate) tail: Tail,
    pub(crate) epochs: LeaderEpochs,
    pub(crate) recovery: Recovery,
    pub(crate) names_changed: bool,
    /// Offsets of the producer snapshots that lie there, in order.
    pub(crate) snapshots: Vec<i64>,
}

/// Opens a partition directory; makes the first segment if there is none.
pub(crate) fn open(dir: &Folder, config: &LogConfig, start: Start) -> Result<Opened, LogError> {
    let Listed { mut segments, snapshots, removed: mut names_changed } = list(dir)?;
    if segments.is_empty() {
        segments.push(Segment::create(dir, 0)?);
        names_changed = true;
    }
    let last = segments.len() - 1;
    let (first_scanned, strict, from) = match start {
        Start::Clean => (last, false, From::LastEntry),
        Start::Unclean { recovery_point } => {
            let after = segments.partition_point(|s| s.base <= recovery_point.0);
            (after.saturating_sub(1), true, From::EntryBelow(recovery_point.0))
        }
    };
    for segment in &mut segments[..first_scanned] {
        rebuild_missing_indexes(dir, segment, config)?;
    }
    let scanned = scan_from(dir, &mut segments, config, first_scanned, from, strict)?;
    names_changed |= scanned.sealed_any || scanned.recovery.cut.is_some();
    let found = read_epochs(dir)?;
    let epochs = settle_epochs(dir, &segments, found.clone(), &scanned, strict)?;
    if found.as_ref() != Some(&epochs) && !(found.is_none() && epochs.entries().is_empty()) {
        write_epochs(dir, &epochs)?;
        names_changed = true;
    }
    let Scans { tail, recovery, .. } = scanned;
    Ok(Opened { segments, tail, epochs, recovery, names_changed, snapshots })
}

/// What lies in a partition's directory.
struct Listed {
    /// Oldest first, with file sizes.
    segments: Vec<Segment>,
    /// Offsets of the producer snapshots, in order.
    snapshots: Vec<i64>,
    /// Leftovers of an interrupted step were there, and are gone.
    removed: bool,
}

/// Lists a directory, and removes leftovers of an interrupted step.
fn list(dir: &Folder) -> Result<Listed, LogError> {
    let mut snapshots = Vec::new();
    let mut logs = BTreeSet::new();
    let mut indexes = BTreeSet::new();
    let mut removed = false;
    for entry in fs::read_dir(&dir.path).at("list", dir)? {
        let entry = entry.at("list", dir)?;
        let name = entry.file_name();
        let Some((stem, kind)) = name.to_str().and_then(|n| n.rsplit_once('.')) else { continue };
        if kind == "tmp" {
            remove_if_there(&dir.disk, &entry.path())?;
        }
        let numbered = stem.len() == 20 && stem.bytes().all(|b| b.is_ascii_digit());
        let Some(base) = stem.parse::<i64>().ok().filter(|_| numbered) else { continue };
        match kind {
            "log" => {
                logs.insert(base);
            }
            "snapshot" => {
                snapshots.push(base);
            }
            "index" | "timeindex" | "txnindex" => {
                indexes.insert((base, entry.path()));
            }
            _ => {}
        }
    }
    for (base, path) in indexes {
        if !logs.contains(&base) {
            remove_if_there(&dir.disk, &path)?;
            removed = true;
        }
    }
    let bases: Vec<i64> = logs.into_iter().collect();
    let mut segments = Vec::with_capacity(bases.len());
    for (number, &base) in bases.iter().enumerate() {
        let path = path_of(dir, base, "log");
        let size = fs::metadata(&path).at("read", &path)?.len();
        let end = bases.get(number + 1).copied().unwrap_or(base);
        segments.push(Segment::new(base, end, size));
    }
    snapshots.sort_unstable();
    Ok(Listed { segments, snapshots, removed })
}

/// A sealed segment below the recovery point whose indexes are gone gets new ones; its batches are not checked.
fn rebuild_missing_indexes(
    dir: &Folder,
    segment: &mut Segment,
    config: &LogConfig,
) -> Result<(), LogError> {
    let there = ["index", "timeindex"].iter().all(|kind| path_of(dir, segment.base, kind).exists());
    if there {
        return Ok(());
    }
    let scanned = scan(dir, segment, config, From::Beginning, false)?;
    seal(dir, segment, scanned.tail)
}

fn seal(dir: &Folder, segment: &mut Segment, mut tail: Tail) -> Result<(), LogError> {
    tail.note_time(segment.base);
    tail.write_indexes(dir, segment.base)?;
    let _ = segment.max_timestamp.set(tail.max_timestamp);
    segment.indexes_unsynced = true;
    Ok(())
}

/// What scanning a log's last segments came to.
struct Scans {
    tail: Tail,
    recovery: Recovery,
    /// Where the scan began.
    first_base: Option<i64>,
    runs: Vec<EpochStart>,
    sealed_any: bool,
}

/// Scans the segments from `first` on, cuts at the first damage, and leaves the last one active.
fn scan_from(
    dir: &Folder,
    segments: &mut Vec<Segment>,
    config: &LogConfig,
    first: usize,
    from: From,
    strict: bool,
) -> Result<Scans, LogError> {
    let mut all = Scans {
        tail: Tail::empty(),
        recovery: Recovery::default(),
        first_base: None,
        runs: Vec::new(),
        sealed_any: false,
    };
    for number in first.. {
        let segment = &segments[number];
        let before = all.runs.last().map(|r| r.epoch.0);
        let begin = if number == first { from } else { From::Beginning };
        let mut scanned = scan_after(dir, segment, config, begin, strict, before)?;
        if scanned.damage.is_some() && !strict {
            // A clean marker over a damaged tail: trust nothing of this segment.
            scanned = scan_after(dir, segment, config, From::Beginning, true, before)?;
        }
        all.recovery.scanned_bytes += scanned.checked_bytes;
        all.first_base = all.first_base.or(scanned.first_base);
        all.runs.extend(scanned.runs);
        let next = segments.get(number + 1);
        // A segment that was lost whole or in part leaves a hole: what follows is no prefix.
        let hole = next
            .filter(|next| next.base != scanned.end)
            .map(|next| BatchError::OffsetOrder { found: next.base, expected: scanned.end });
        let segment = &mut segments[number];
        let file_size = std::mem::replace(&mut segment.size, scanned.size);
        segment.end = scanned.end;
        if let Some(reason) = scanned.damage.or(hole) {
            let later: u64 = segments[number + 1..].iter().map(|s| s.size).sum();
            let bytes = file_size - scanned.size + later;
            cut(dir, segments, number)?;
            all.recovery.cut = Some(Cut { at: Offset(scanned.end), bytes, reason });
        }
        if number + 1 == segments.len() {
            all.tail = scanned.tail;
            break;
        }
        seal(dir, &mut segments[number], scanned.tail)?;
        all.sealed_any = true;
    }
    Ok(all)
}

/// Drops the segments after `number`, newest first, and cuts this one's file to its whole batches.
fn cut(dir: &Folder, segments: &mut Vec<Segment>, number: usize) -> Result<(), LogError> {
    while segments.len() > number + 1 {
        let Some(dropped) = segments.pop() else { break };
        remove_segment(dir, dropped.base)?;
    }
    let segment = &segments[number];
    let path = path_of(dir, segment.base, "log");
    segment.kept_file(dir)?.set_len(segment.size).at("truncate", &path)?;
    sync_dir(&dir.disk, dir)
}

/// The leader epochs: those of the checkpoint, above the scan's beginning those of the batches, and all from the batches if
/// the checkpoint is missing or does not fit them.
fn settle_epochs(
    dir: &Folder,
    segments: &[Segment],
    found: Option<LeaderEpochs>,
    scans: &Scans,
    strict: bool,
) -> Result<LeaderEpochs, LogError> {
    let end = segments.last().map_or(0, |s| s.end);
    let mut settled = None;
    if let Some(mut epochs) = found {
        // An epoch that was assigned and has no record yet.
        let last = epochs.entries().last().copied();
        if let (true, Some(first_base)) = (strict, scans.first_base) {
            epochs.truncate_from_end(Offset(first_base));
            for run in &scans.runs {
                epochs.assign(run.epoch, run.start_offset);
            }
            if let Some(unused) = last.filter(|last| last.start_offset.0 == end) {
                epochs.assign(unused.epoch, unused.start_offset);
            }
        }
        epochs.truncate_from_end(Offset(end.saturating_add(1)));
        let fits = |run: &EpochStart| epochs.epoch_at(run.start_offset) == Some(run.epoch);
        if scans.runs.iter().all(fits) {
            settled = Some(epochs);
        }
    }
    match settled {
        Some(epochs) => Ok(epochs),
        None => epochs_of_batches(dir, segments),
    }
}

fn epochs_of_batches(dir: &Folder, segments: &[Segment]) -> Result<LeaderEpochs, LogError> {
    let mut epochs = LeaderEpochs::new();
    for segment in segments {
        let file = segment.any_file(dir)?;
        let mut walk = Walk::new(&file, segment.size, 0, LOOKUP_CHUNK_BYTES);
        while let Step::Batch(_, header) =
            walk.next().at("read", &path_of(dir, segment.base, "log"))?
        {
            epochs.assign(LeaderEpoch(header.partition_leader_epoch), Offset(header.base_offset));
        }
    }
    Ok(epochs)
}

/// Where a scan begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum From {
    /// At the segment's first byte; its indexes are made anew.
    Beginning,
    /// At the batch of the last index entry.
    LastEntry,
    /// At the batch of the last index entry that lies wholly below this offset.
    EntryBelow(i64),
}

/// What scanning one segment came to.
pub(crate) struct Scanned {
    /// Indexes and boundaries as if the batches had just been appended.
    pub(crate) tail: Tail,
    /// Offset after the last whole batch.
    pub(crate) end: i64,
    /// Bytes up to there.
    pub(crate) size: u64,
    /// Why it ends before the file does.
    damage: Option<BatchError>,
    first_base: Option<i64>,
    runs: Vec<EpochStart>,
    checked_bytes: u64,
}

/// Scans one segment of `segment.size` bytes. `strict`: checks CRCs, and offsets must go on without a hole.
pub(crate) fn scan(
    dir: &Folder,
    segment: &Segment,
    config: &LogConfig,
    from: From,
    strict: bool,
) -> Result<Scanned, LogError> {
    scan_after(dir, segment, config, from, strict, None)
}

fn scan_after(
    dir: &Folder,
    segment: &Segment,
    config: &LogConfig,
    from: From,
    strict: bool,
    epoch_before: Option<i32>,
) -> Result<Scanned, LogError> {
    let file = segment.any_file(dir)?;
    let path = path_of(dir, segment.base, "log");
    let (tail, position, expected) = begin(dir, segment, &file, from)?;
    let mut scanned = Scanned {
        tail,
        end: expected,
        size: position,
        damage: None,
        first_base: None,
        runs: Vec::new(),
        checked_bytes: 0,
    };
    let chunk = if strict { SCAN_CHUNK_BYTES } else { LOOKUP_CHUNK_BYTES };
    let mut walk = Walk::new(&file, segment.size, position, chunk);
    let mut epoch = epoch_before;
    loop {
        let (position, header) = match walk.next().at("read", &path)? {
            Step::Batch(position, header) => (position, header),
            Step::Bad(_, reason) => {
                scanned.damage = Some(reason);
                break;
            }
            Step::End => break,
        };
        if let Err(reason) = check(&header, segment.base, scanned.end, epoch, strict) {
            scanned.damage = Some(reason);
            break;
        }
        if strict {
            let computed = walk.crc(position, &header).at("read", &path)?;
            if computed != header.crc {
                scanned.damage = Some(BatchError::Crc { stored: header.crc, computed });
                break;
            }
            scanned.checked_bytes += header.size() as u64;
        }
        if epoch != Some(header.partition_leader_epoch) {
            epoch = Some(header.partition_leader_epoch);
            scanned.runs.push(EpochStart {
                epoch: LeaderEpoch(header.partition_leader_epoch),
                start_offset: Offset(header.base_offset),
            });
        }
        scanned.first_base = scanned.first_base.or(Some(header.base_offset));
        scanned.tail.note(segment.base, position, &header, config.index_interval_bytes);
        scanned.end = header.next_offset();
        scanned.size = position + header.size() as u64;
    }
    Ok(scanned)
}

fn check(
    header: &BatchHeader,
    segment_base: i64,
    expected: i64,
    epoch: Option<i32>,
    strict: bool,
) -> Result<(), BatchError> {
    header.check_stored()?;
    let found = header.base_offset;
    let in_order = if strict { found == expected } else { found >= expected };
    if !in_order || header.last_offset() - segment_base > i64::from(i32::MAX) {
        return Err(BatchError::OffsetOrder { found, expected });
    }
    match epoch {
        Some(before) if header.partition_leader_epoch < before => {
            Err(BatchError::EpochOrder { found: header.partition_leader_epoch, before })
        }
        _ => Ok(()),
    }
}

/// The state in which a scan begins: indexes up to the entry, its position, and the base offset that is expected there.
fn begin(
    dir: &Folder,
    segment: &Segment,
    file: &fs::File,
    from: From,
) -> Result<(Tail, u64, i64), LogError> {
    let (index_path, time_path) =
        (path_of(dir, segment.base, "index"), path_of(dir, segment.base, "timeindex"));
    let mut tail = Tail::empty();
    let below = match from {
        From::Beginning => segment.base,
        From::LastEntry => i64::MAX,
        From::EntryBelow(offset) => offset,
    };
    if below > segment.base {
        tail.index = SparseIndex::load(&index_path).at("read", &index_path)?;
        tail.time = SparseIndex::load(&time_path).at("read", &time_path)?;
        let wanted = |offset: u32| segment.base + i64::from(offset) < below;
        let entry =
            tail.index.find_last(&index_path, |e| wanted(e.offset)).at("read", &index_path)?;
        if let Some(entry) = entry
            && let Some(header) =
                entry_fits(file, segment, entry).at("read", &path_of(dir, segment.base, "log"))?
        {
            if tail.index.last() != Some(entry) {
                let keep =
                    tail.index.keep_while(&dir.disk, &index_path, |e| e.offset <= entry.offset);
                keep.at("truncate", &index_path)?;
            }
            if tail.time.last().is_some_and(|last| last.offset > entry.offset) {
                let keep =
                    tail.time.keep_while(&dir.disk, &time_path, |e| e.offset <= entry.offset);
                keep.at("truncate", &time_path)?;
            }
            tail.max_timestamp = tail.time.last().map(|last| MaxTimestamp {
                timestamp: last.timestamp,
                offset: segment.base + i64::from(last.offset),
            });
            return Ok((tail, u64::from(entry.position), header.base_offset));
        }
    }
    tail.index.clear(&dir.disk, &index_path).at("remove", &index_path)?;
    tail.time.clear(&dir.disk, &time_path).at("remove", &time_path)?;
    Ok((tail, 0, segment.base))
}
