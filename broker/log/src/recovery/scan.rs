//! The scan of a log's segments: checks batches, cuts at the first that fails, rebuilds the indexes.

use std::fs::File;

use barnabas_types::{EpochStart, LeaderEpoch, Offset};

use super::{Recovery, joins};
use crate::batch::{BatchError, BatchHeader};
use crate::cached::Wait;
use crate::config::LogConfig;
use crate::disk::Folder;
use crate::error::{At as _, LogError};
use crate::files::sync_dir;
use crate::index::SparseIndex;
use crate::loss::{Loss, LossCause, Survey};
use crate::progress::RecoveryProgress;
use crate::segment::{Finder, MaxTimestamp, Segment, Tail, entry_fits, path_of, remove_segment};
use crate::walk::{LOOKUP_CHUNK_BYTES, SCAN_CHUNK_BYTES, Step, Walk};

/// How to scan.
#[derive(Clone, Copy)]
pub(super) struct Scanner<'a> {
    pub(super) dir: &'a Folder,
    pub(super) config: &'a LogConfig,
    pub(super) progress: &'a RecoveryProgress,
    /// Checks CRCs.
    pub(super) strict: bool,
    /// Offsets may jump between segments: nobody knows any more which of them may have been compacted (by Kafka).
    pub(super) holes: bool,
}

/// What scanning a log's last segments came to.
pub(super) struct Scans {
    pub(super) tail: Tail,
    pub(super) recovery: Recovery,
    /// Where the scan began.
    pub(super) first_base: Option<i64>,
    pub(super) runs: Vec<EpochStart>,
    pub(super) sealed_any: bool,
}

/// Seals a segment that was scanned: writes its indexes.
pub(super) fn seal(dir: &Folder, segment: &mut Segment, mut tail: Tail) -> Result<(), LogError> {
    tail.note_time(segment.base);
    tail.write_indexes(dir, segment.base)?;
    let _ = segment.max_timestamp.set(tail.max_timestamp);
    segment.indexes_unsynced = true;
    Ok(())
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
    pub(super) damage: Option<BatchError>,
    /// Position of the last batch if it does not follow the one before it without a hole, and what could be wrong with it.
    jump: Option<(u64, BatchError)>,
    first_base: Option<i64>,
    runs: Vec<EpochStart>,
    checked_bytes: u64,
}

/// Scans one segment of `segment.size` bytes by its headers.
pub(crate) fn scan(
    dir: &Folder,
    segment: &Segment,
    config: &LogConfig,
    from: From,
) -> Result<Scanned, LogError> {
    let progress = &RecoveryProgress::default();
    Scanner { dir, config, progress, strict: false, holes: true }.scan_after(segment, from, None)
}

impl Scanner<'_> {
    /// Scans the segments from `first` on, cuts at the first damage, and leaves the last one active.
    pub(super) fn scan_from(
        &self,
        segments: &mut Vec<Segment>,
        first: usize,
        from: From,
    ) -> Result<Scans, LogError> {
        let mut all = Scans {
            tail: Tail::empty(),
            recovery: Recovery::default(),
            first_base: None,
            runs: Vec::new(),
            sealed_any: false,
        };
        if self.strict {
            self.progress.add_bytes(segments[first..].iter().map(|s| s.size).sum());
        }
        for number in first.. {
            let segment = &segments[number];
            let before = all.runs.last().map(|r| r.epoch.0);
            let begin = if number == first { from } else { From::Beginning };
            let mut scanned = self.scan_after(segment, begin, before)?;
            if scanned.damage.is_some() && !self.strict {
                // A clean marker over a damaged tail: trust nothing of this segment.
                let strict = Scanner { strict: true, ..*self };
                scanned = strict.scan_after(segment, From::Beginning, before)?;
            }
            let next = segments.get(number + 1).map(|next| next.base);
            let back = next.is_some_and(|next| next < scanned.end)
                || matches!(scanned.damage, Some(BatchError::OffsetOrder { .. }));
            if let (true, Some(jump)) = (back, scanned.jump) {
                scanned = self.before_jump(segment, before, jump)?;
            }
            all.recovery.scanned_bytes += scanned.checked_bytes;
            all.first_base = all.first_base.or(scanned.first_base);
            all.runs.extend(scanned.runs);
            // A segment that was lost whole or in part leaves a hole: what follows is no prefix.
            let hole = next.and_then(|next| joins(next, scanned.end, self.holes));
            let segment = &mut segments[number];
            let file_size = std::mem::replace(&mut segment.size, scanned.size);
            if let Some(reason) = scanned.damage.or(hole) {
                segment.end = scanned.end;
                self.cut(segments, number, file_size, reason, &mut all.recovery)?;
            }
            if number + 1 == segments.len() {
                segments[number].end = scanned.end;
                all.tail = scanned.tail;
                break;
            }
            seal(self.dir, &mut segments[number], scanned.tail)?;
            all.sealed_any = true;
        }
        self.end_in_a_batch(segments, &mut all)?;
        Ok(all)
    }

    /// A log ends where its last batch ends. An empty segment whose predecessor does not reach up to it names an end that nothing
    /// leads to: a follower that is below could never get there, and would stay out of the ISR for ever.
    fn end_in_a_batch(&self, segments: &mut Vec<Segment>, all: &mut Scans) -> Result<(), LogError> {
        while let [.., before, last] = &segments[..]
            && last.size == 0
        {
            let (number, found) = (segments.len() - 2, last.base);
            let file = before.any_file(self.dir)?;
            let finder = Finder::new(self.dir, before.extent(), None, &file);
            match finder.batch_of(found - 1) {
                Ok(Some(_)) => break,
                Ok(None) | Err(LogError::Damaged { .. }) => {}
                Err(error) => return Err(error),
            }
            let lenient = Scanner { strict: false, ..*self };
            let scanned = lenient.scan_after(before, From::LastEntry, None)?;
            let expected = scanned.end;
            let file_size = before.size;
            segments[number].cut(expected, scanned.size);
            let reason = scanned.damage.unwrap_or(BatchError::OffsetOrder { found, expected });
            let later = all.recovery.losses.pop();
            self.cut(segments, number, file_size, reason, &mut all.recovery)?;
            if let (Some(later), Some(loss)) = (later, all.recovery.losses.last_mut()) {
                // What was cut from the segment that is gone now: one loss, with what is known of its end.
                *loss = Loss { from: loss.from, bytes: loss.bytes + later.bytes, ..later };
            }
            all.tail = scanned.tail;
        }
        Ok(())
    }

    /// A batch jumped ahead, and the next one does not: it is the first that is wrong. Its base offset lies outside its CRC.
    fn before_jump(
        &self,
        segment: &Segment,
        epoch_before: Option<i32>,
        (position, reason): (u64, BatchError),
    ) -> Result<Scanned, LogError> {
        let cut = Segment::new(segment.base, segment.end, position);
        let mut scanned = self.scan_after(&cut, From::Beginning, epoch_before)?;
        scanned.damage = scanned.damage.or(Some(reason));
        Ok(scanned)
    }

    /// Drops the segments after `number`, newest first, and cuts this one's file to its whole batches.
    fn cut(
        &self,
        segments: &mut Vec<Segment>,
        number: usize,
        file_size: u64,
        reason: BatchError,
        recovery: &mut Recovery,
    ) -> Result<(), LogError> {
        let dir = self.dir;
        let segment = &segments[number];
        let (end, size, path) = (segment.end, segment.size, path_of(dir, segment.base, "log"));
        let file = segment.kept_file(dir)?;
        let mut survey = Survey::new(end);
        survey.look(file, size, file_size).at("read", &path)?;
        let mut bytes = file_size - size;
        for later in &segments[number + 1..] {
            survey.name(later.base);
            let path = path_of(dir, later.base, "log");
            survey.look(&*later.any_file(dir)?, 0, later.size).at("read", &path)?;
            bytes += later.size;
        }
        while segments.len() > number + 1 {
            let Some(dropped) = segments.pop() else { break };
            remove_segment(dir, dropped.base)?;
        }
        let file = segments[number].kept_file(dir)?;
        file.set_len(size).at("truncate", &path)?;
        // Before anything is written behind it, or vouches for it.
        file.sync_data().at("sync", &path)?;
        recovery.losses.push(survey.loss(end, bytes, LossCause::Damaged(reason)));
        sync_dir(&dir.disk, dir)
    }

    /// Scans one segment of `segment.size` bytes; the batch before it has this epoch.
    pub(super) fn scan_after(
        &self,
        segment: &Segment,
        from: From,
        epoch_before: Option<i32>,
    ) -> Result<Scanned, LogError> {
        let dir = self.dir;
        let file = segment.any_file(dir)?;
        let path = path_of(dir, segment.base, "log");
        let (tail, position, expected) = begin(dir, segment, &file, from)?;
        let mut scanned = Scanned {
            tail,
            end: expected,
            size: position,
            damage: None,
            jump: None,
            first_base: None,
            runs: Vec::new(),
            checked_bytes: 0,
        };
        if self.strict {
            self.progress.did_bytes(position);
        }
        let chunk = if self.strict { SCAN_CHUNK_BYTES } else { LOOKUP_CHUNK_BYTES };
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
            if let Err(reason) = check(&header, segment.base, scanned.end, epoch) {
                scanned.damage = Some(reason);
                break;
            }
            if self.strict {
                self.progress.check()?;
                let computed = walk.crc(position, &header).at("read", &path)?;
                if computed != header.crc {
                    scanned.damage = Some(BatchError::Crc { stored: header.crc, computed });
                    break;
                }
                scanned.checked_bytes += header.size() as u64;
                self.progress.did_bytes(header.size() as u64);
            }
            if epoch != Some(header.partition_leader_epoch) {
                epoch = Some(header.partition_leader_epoch);
                scanned.runs.push(EpochStart {
                    epoch: LeaderEpoch(header.partition_leader_epoch),
                    start_offset: Offset(header.base_offset),
                });
            }
            let (found, expected) = (header.base_offset, scanned.end);
            let jump = BatchError::OffsetOrder { found, expected };
            scanned.jump = (found > expected).then_some((position, jump));
            scanned.first_base = scanned.first_base.or(Some(header.base_offset));
            scanned.tail.note(segment.base, position, &header, self.config.index_interval_bytes);
            scanned.end = header.next_offset();
            scanned.size = position + header.size() as u64;
        }
        if self.strict {
            // What is cut counts as done.
            self.progress.did_bytes(segment.size - scanned.size);
        }
        Ok(scanned)
    }
}

fn check(
    header: &BatchHeader,
    segment_base: i64,
    expected: i64,
    epoch: Option<i32>,
) -> Result<(), BatchError> {
    header.check_stored()?;
    let found = header.base_offset;
    if found < expected || header.last_offset() - segment_base > i64::from(i32::MAX) {
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
    file: &File,
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
        let entry = tail
            .index
            .find_last(&index_path, Wait::ForDisk, |e| wanted(e.offset))
            .at("read", &index_path)?;
        if let Some(entry) = entry
            && let Some(header) = entry_fits(file, segment.extent(), entry, Wait::ForDisk)
                .at("read", &path_of(dir, segment.base, "log"))?
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
