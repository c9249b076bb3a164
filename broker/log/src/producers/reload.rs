//! When producer snapshots are written, and how the table comes back from the newest of them and the batches after it.
//!
//! A snapshot is written for the base of each new segment, at the end of the log when it is closed, and, so that the work of
//! an opening depends on what was not flushed and not on the size of a segment, at a flush after [`INTERVAL_BYTES`] of
//! appends. It is a cache: one that cannot be written is left out, one that is damaged or does not fit the log is removed,
//! and an older one or more batches stand in.
//!
//! **What a deletion leaves.** Once segments are gone only the snapshot at the base of the first that stays tells what was
//! written in them, so it is synced before they go ([`crate::Detached::remove`]), and opening a log reads what lies below the
//! log start before it removes it: the log start may be durable and that snapshot not. Segments whose snapshot could not be
//! written (a full disk) stay as long as no later one is durable; the last such snapshot is kept in memory and tried again.
//!
//! **Which snapshot is of this log.** One at offset S says what the batches below S came to. Whatever cuts the log removes
//! the snapshots above the cut, and makes that durable before the log grows again, so one that lies at or below the end is of
//! these batches. That is not only believed: S must be where a batch begins, no row may reach S, and after an unclean stop the
//! row that was written last must be what the log holds there.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

use crate::batch::BatchHeader;
use crate::disk::DiskFile;
use crate::error::{At as _, LogError};
use crate::files::{remove_if_there, replace, sync_dir};
use crate::log::Log;
use crate::segment::path_of;
use crate::walk::{Step, Walk};

use super::Producers;
use super::snapshot::{ProducerBatch, SNAPSHOT_BYTES_MAX, decode, encode};

/// Bytes of appends after which a flush takes a snapshot.
const INTERVAL_BYTES: u64 = 32 << 20;
/// Without any snapshot no more than the last so many bytes are read back, as many as a segment of Kafka's default size has:
/// a log that never rolled asks for no more. Producers that wrote only before may begin with any sequence.
const REPLAY_BYTES_MAX: u64 = 1 << 30;
/// Chunk of the walk over batch headers: a page, since most batches are larger than it.
const CHUNK_BYTES: usize = 4096;

/// What a log knows of its producer snapshots. Those named after a segment's base go with the segment.
#[derive(Debug, Default)]
pub(crate) struct Snapshots {
    /// Offset of the newest.
    newest: Option<i64>,
    /// Offset of the one that is not named after a segment.
    stray: Option<i64>,
    /// Written and not synced yet.
    unsynced: Vec<i64>,
    /// Bytes appended since the newest.
    bytes_since: u64,
    /// Bases of segments whose snapshot could not be written, in order, as long as no later one is durable.
    missing: Vec<i64>,
    /// The content of the last of them, to be written when there is room.
    unwritten: Option<(i64, Vec<u8>)>,
}

impl Snapshots {
    pub(crate) fn appended(&mut self, bytes: usize) {
        self.bytes_since += bytes as u64;
    }

    /// Whether the one at this offset may not survive a loss of power.
    pub(crate) fn is_unsynced(&self, at: i64) -> bool {
        self.unsynced.contains(&at)
    }

    /// Offsets of those that may not survive a loss of power.
    pub(crate) fn unsynced(&self) -> &[i64] {
        &self.unsynced
    }

    /// A flush has made those at these offsets durable. (One at the flush's end may have been written since it began.)
    pub(crate) fn synced(&mut self, offsets: &[i64]) {
        self.unsynced.retain(|at| !offsets.contains(at));
        // One that is named after no segment goes with the next of its kind.
        if let Some(newest) = offsets.iter().filter(|at| Some(**at) != self.stray).max() {
            self.missing.retain(|base| base > newest);
            self.unwritten.take_if(|(base, _)| *base <= *newest);
        }
    }

    /// Whether the segments below the one with this base may go: what they held is told by a snapshot, or need not be.
    pub(crate) fn stands_for_below(&self, base: i64) -> bool {
        !self.missing.contains(&base)
    }

    fn written(&mut self, at: i64) {
        self.missing.retain(|base| *base != at);
        self.unwritten.take_if(|(base, _)| *base == at);
    }

    fn could_not_write(&mut self, base: i64, bytes: Vec<u8>) {
        if self.missing.last() != Some(&base) {
            self.missing.push(base);
        }
        self.unwritten = Some((base, bytes));
    }
}

/// Where the batches after a snapshot begin: the segment's place and the position in it.
type Place = (usize, u64);

impl Log {
    /// What is remembered of idempotent producers: by producer id, the batches of each oldest first.
    pub fn producer_batches(&self) -> impl Iterator<Item = ProducerBatch> + '_ {
        self.producers.rows()
    }

    /// Forgets the producers whose last batch is `expiration_ms` old or older (`producer.id.expiration.ms`) by its own
    /// timestamp, unless they wrote since the last call. To be called on every replica, now and then. Returns how many were
    /// forgotten.
    pub fn expire_producers(&mut self, now_ms: i64, expiration_ms: i64) -> usize {
        self.producers.expire(now_ms, expiration_ms)
    }

    /// At open: the table from the newest snapshot that is sound, then from the batches after it. `found`: the offsets of
    /// the snapshots that lie there, in order. Those that are doubtful, or of no use any more, are removed.
    pub(crate) fn open_producers(&mut self, found: &[i64], clean: bool) -> Result<(), LogError> {
        let mut from = None;
        let mut removed = false;
        let flushed = self.flushed;
        // The process before may have ended without syncing these, and a flush of this one vouches for them.
        let unsynced = || found.iter().copied().filter(|at| !clean && *at >= flushed);
        let torn = self.first_unsound(unsynced())?;
        for &at in found.iter().rev() {
            let of_segment = self.segments.binary_search_by_key(&at, |s| s.base).is_ok();
            if from.is_some() && of_segment {
                continue;
            }
            // Those from a torn one on are written anew: a later cut must find each.
            let is_whole = torn.is_none_or(|torn| at < torn);
            if from.is_none()
                && is_whole
                && let Some(place) = self.restore(at, !clean)?
            {
                from = Some(place);
                self.snapshots.newest = Some(at);
                self.snapshots.stray = (!of_segment).then_some(at);
                continue;
            }
            remove_if_there(&self.dir.disk, &path_of(&self.dir, at, "snapshot"))?;
            removed = true;
        }
        if removed {
            // Before the log can grow beyond them.
            sync_dir(&self.dir.disk, &self.dir)?;
        }
        self.snapshots.unsynced = unsynced().collect();
        self.replay(from)
    }

    /// The first of these snapshots that cannot be read.
    fn first_unsound(&self, of: impl Iterator<Item = i64>) -> Result<Option<i64>, LogError> {
        for at in of {
            let path = path_of(&self.dir, at, "snapshot");
            if read_rows(&path).at("read", &path)?.is_none() {
                return Ok(Some(at));
            }
        }
        Ok(None)
    }

    /// After a truncation to `end`: the table without what was cut off.
    pub(crate) fn cut_producers(&mut self, end: i64) -> Result<(), LogError> {
        if self.producers.cut(end) {
            return Ok(());
        }
        let stray = self.snapshots.stray.filter(|at| *at <= end);
        let mut candidates: Vec<i64> = self.segments.iter().map(|s| s.base).chain(stray).collect();
        candidates.sort_unstable();
        for at in candidates.into_iter().rev() {
            if let Some(place) = self.restore(at, false)? {
                return self.replay(Some(place));
            }
        }
        self.replay(None)
    }

    /// Before a truncation to `end`: no snapshot may outlive the batches that it tells of.
    pub(crate) fn remove_snapshots_above(&mut self, end: i64) -> Result<(), LogError> {
        let bases = self.segments.iter().rev().map(|s| s.base).take_while(|base| *base > end);
        for at in bases.chain(self.snapshots.stray.filter(|at| *at > end)) {
            remove_if_there(&self.dir.disk, &path_of(&self.dir, at, "snapshot"))?;
        }
        let above = |at: &mut i64| *at > end;
        self.snapshots.stray.take_if(above);
        self.snapshots.newest.take_if(above);
        self.snapshots.unsynced.retain(|at| *at <= end);
        self.snapshots.missing.retain(|at| *at <= end);
        self.snapshots.unwritten.take_if(|(at, _)| *at > end);
        Ok(())
    }

    /// Before the log begins anew: no producer is known, and no snapshot stays.
    pub(crate) fn reset_producers(&mut self) -> Result<(), LogError> {
        self.remove_snapshots_above(i64::MIN)?;
        self.producers.clear();
        self.snapshots = Snapshots::default();
        Ok(())
    }

    /// Takes a snapshot of the table as the batches below `at` made it. Best effort: it is a cache.
    pub(crate) fn write_snapshot(&mut self, at: i64) {
        let bytes = encode(self.producers.rows());
        let path = path_of(&self.dir, at, "snapshot");
        let of_segment = self.segments.binary_search_by_key(&at, |s| s.base).is_ok();
        if replace(&self.dir.disk, &path, &bytes).is_err() {
            if of_segment && !self.producers.is_empty() {
                self.snapshots.could_not_write(at, bytes);
            }
            return;
        }
        let before = std::mem::replace(&mut self.snapshots.stray, (!of_segment).then_some(at));
        if let Some(before) = before.filter(|before| *before != at) {
            // Best effort too: the next opening removes it.
            let _ = self.dir.disk.remove_file(&path_of(&self.dir, before, "snapshot"));
            self.snapshots.unsynced.retain(|unsynced| *unsynced != before);
        }
        self.snapshots.written(at);
        self.snapshots.newest = Some(at);
        self.snapshots.bytes_since = 0;
        if !self.producers.is_empty() {
            self.snapshots.unsynced.push(at);
            self.names_changed += 1;
        }
    }

    /// Tries again to write what could not be written at a roll.
    pub(crate) fn write_missing_snapshot(&mut self) {
        let Some((at, bytes)) = &self.snapshots.unwritten else { return };
        let at = *at;
        if replace(&self.dir.disk, &path_of(&self.dir, at, "snapshot"), bytes).is_ok() {
            self.snapshots.written(at);
            self.snapshots.newest = self.snapshots.newest.max(Some(at));
            self.snapshots.unsynced.push(at);
            self.names_changed += 1;
        }
    }

    /// For the segment that has just begun.
    pub(crate) fn snapshot_at_roll(&mut self) {
        if self.snapshots.stray == Some(self.log_end) {
            self.snapshots.stray = None;
        } else {
            self.write_snapshot(self.log_end);
        }
    }

    /// After a cut to `end`, where the next segment will begin: durable once the directory is, so that short segments after
    /// many cuts do not leave one damaged snapshot behind the other to a loss of power.
    pub(crate) fn snapshot_at_cut(&mut self, end: i64) -> Result<(), LogError> {
        self.write_snapshot(end);
        if self.snapshots.is_unsynced(end) {
            let path = path_of(&self.dir, end, "snapshot");
            let file = self.dir.disk.open_to_read(&path).at("open", &path)?;
            self.sync_cut(&file, &path)?;
        }
        Ok(())
    }

    /// At a flush, if enough was appended.
    pub(crate) fn snapshot_if_due(&mut self) {
        if self.snapshots.bytes_since >= INTERVAL_BYTES {
            self.write_snapshot(self.log_end);
        }
    }

    /// At a close: the next opening then reads no batch.
    pub(crate) fn snapshot_at_end(&mut self) {
        let empty = self.log_end == self.segments[0].base && self.producers.is_empty();
        if !self.fenced && self.snapshots.newest != Some(self.log_end) && !empty {
            self.write_snapshot(self.log_end);
        }
    }

    /// The snapshots that a flush must sync; one that is gone is none.
    pub(crate) fn unsynced_snapshots(
        &self,
    ) -> Result<impl Iterator<Item = DiskFile> + use<>, LogError> {
        let mut files = Vec::new();
        for &at in &self.snapshots.unsynced {
            let path = path_of(&self.dir, at, "snapshot");
            match self.dir.disk.open_to_read(&path) {
                Ok(file) => files.push(file),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error).at("open", &path),
            }
        }
        Ok(files.into_iter())
    }

    /// Replaces the table by the snapshot at `at`; `None` and no table if there is no sound one. `check`: its last row must
    /// be what the log holds.
    fn restore(&mut self, at: i64, check: bool) -> Result<Option<Place>, LogError> {
        self.producers.clear();
        if at < self.segments[0].base || at > self.log_end {
            return Ok(None);
        }
        let path = path_of(&self.dir, at, "snapshot");
        let Some(rows) = read_rows(&path).at("read", &path)? else { return Ok(None) };
        if rows.iter().any(|row| row.last_offset >= at) {
            return Ok(None);
        }
        let Some(place) = self.batch_at(at) else { return Ok(None) };
        let last =
            rows.iter().filter(|row| row.last_sequence >= 0).max_by_key(|row| row.last_offset);
        if check && last.is_some_and(|row| self.contradicts(row)) {
            return Ok(None);
        }
        let mut producers = Producers::default();
        rows.iter().for_each(|row| producers.restore(row));
        self.producers = producers;
        Ok(Some(place))
    }

    /// Where the batch begins that has `at` as its first offset; the end if there is none yet. `None` if a batch goes across.
    fn batch_at(&self, at: i64) -> Option<Place> {
        let index = self.segments.partition_point(|s| s.base <= at).checked_sub(1)?;
        let segment = &self.segments[index];
        if at == segment.base {
            return Some((index, 0));
        }
        if at >= segment.end {
            return Some((index, segment.size));
        }
        match self.batch_with(index, at)? {
            Some((position, header)) => (header.base_offset >= at).then_some((index, position)),
            None => Some((index, segment.size)),
        }
    }

    /// The batch of a segment that holds `offset`, or the first after it. `None` if the segment cannot be read: damage is told
    /// by whoever needs the records.
    fn batch_with(&self, index: usize, offset: i64) -> Option<Option<(u64, BatchHeader)>> {
        let segment = &self.segments[index];
        let file = segment.any_file(&self.dir).ok()?;
        self.finder(index, &file).batch_of(offset).ok()
    }

    /// Whether the log has another batch where this row says. A batch that is gone contradicts nothing.
    fn contradicts(&self, row: &ProducerBatch) -> bool {
        let after = self.segments.partition_point(|s| s.base <= row.last_offset);
        let Some(index) = after.checked_sub(1) else { return false };
        match self.batch_with(index, row.last_offset) {
            Some(Some((_, header))) => header.base_offset <= row.last_offset && !row.is_of(&header),
            _ => false,
        }
    }

    /// Takes note of the batches from `from` on; without it, of the last [`REPLAY_BYTES_MAX`]. Writes the snapshots of the
    /// segments that begin on the way.
    fn replay(&mut self, from: Option<Place>) -> Result<(), LogError> {
        let (first, position) = match from {
            Some(place) => place,
            None => self.tail_begin(REPLAY_BYTES_MAX)?,
        };
        self.snapshots.bytes_since = 0;
        for index in first..self.segments.len() {
            let segment = &self.segments[index];
            let (base, end, size) = (segment.base, segment.end, segment.size);
            let position = if index == first { position } else { 0 };
            if index > first {
                self.write_snapshot(base);
            }
            let below = index + 1 < self.segments.len() && end <= self.log_start;
            if position >= size && !below {
                continue;
            }
            let read_to = self.note_batches(index, position, below)?;
            if below && read_to != Some(end) {
                // What is torn there may be what a producer wrote last: known by an older batch it could not go on.
                self.producers.clear();
            }
            self.snapshots.bytes_since += size - position;
        }
        Ok(())
    }

    /// Takes note of the batches of a segment from `position` on; `check`: up to the first that is damaged, for what lies
    /// below the log start, where opening a log checks nothing. Returns the offset after the last.
    fn note_batches(
        &mut self,
        index: usize,
        position: u64,
        check: bool,
    ) -> Result<Option<i64>, LogError> {
        let segment = &self.segments[index];
        let path = path_of(&self.dir, segment.base, "log");
        let file = segment.any_file(&self.dir)?;
        let mut walk = Walk::new(&file, segment.size, position, CHUNK_BYTES);
        let mut read_to = None;
        while let Step::Batch(at, header) = walk.next().at("read", &path)? {
            if check && walk.crc(at, &header).at("read", &path)? != header.crc {
                break;
            }
            self.producers.note(&header);
            read_to = Some(header.next_offset());
        }
        Ok(read_to)
    }

    /// The batch boundary at or before which the last `tail_bytes` begin.
    fn tail_begin(&self, tail_bytes: u64) -> Result<Place, LogError> {
        let mut left = tail_bytes;
        for (index, segment) in self.segments.iter().enumerate().rev() {
            let Some(limit) = segment.size.checked_sub(left).filter(|limit| *limit > 0) else {
                left -= segment.size;
                continue;
            };
            let file = segment.any_file(&self.dir)?;
            // Damage before the tail is found by whoever reads there; here the walk then begins at the front.
            let found = self.finder(index, &file).boundary_below(0, limit).unwrap_or_default();
            return Ok((index, found.map_or(0, |(position, _)| position)));
        }
        Ok((0, 0))
    }
}

/// The rows of a snapshot file; `None` if there is none, or no sound one.
fn read_rows(path: &Path) -> io::Result<Option<Vec<ProducerBatch>>> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let size = file.metadata()?.len();
    if size > SNAPSHOT_BYTES_MAX {
        return Ok(None);
    }
    let mut bytes = Vec::with_capacity(usize::try_from(size).unwrap_or(0));
    file.take(SNAPSHOT_BYTES_MAX).read_to_end(&mut bytes)?;
    Ok(decode(&bytes).ok())
}

#[cfg(test)]
mod tests {
    use crate::flush::FlushStep;
    use crate::testing::{BatchBuilder, TempDir};
    use crate::{Log, LogConfig, LogDir};
    use barnabas_types::{LeaderEpoch, Offset, TopicId, TopicName, TopicPartition};

    #[test]
    fn a_flush_vouches_for_no_snapshot_that_was_written_after_it_began() {
        let temp = TempDir::new("producers-flush");
        let dir = LogDir::lock(temp.path()).unwrap();
        dir.begin_under("boot-1").unwrap();
        let tp = TopicPartition { topic: TopicName::new("t").unwrap(), partition: 0 };
        let config = LogConfig { segment_bytes: 1, ..LogConfig::default() };
        let append = |log: &mut Log, at: i64| {
            let mut batch = BatchBuilder::new().record(&[1; 60]).producer(at, 0, 0).build();
            log.append(&mut batch, Offset(at), LeaderEpoch(1)).unwrap();
        };
        let mut log = dir.open(&tp, TopicId([7; 16]), config).unwrap();
        append(&mut log, 0);
        let FlushStep::Sync(plan) = log.flush_plan().unwrap() else { panic!("appended") };
        append(&mut log, 1);
        log.flush_done(&plan, plan.run()).unwrap();
        assert_eq!((log.flushed(), log.snapshots.unsynced()), (Offset(1), &[1][..]));
        drop(log);
        // Nor does the next process take it for synced because it lies at the end of what was flushed.
        let mut log = dir.open(&tp, TopicId([7; 16]), config).unwrap();
        assert_eq!((log.flushed(), log.snapshots.unsynced()), (Offset(1), &[1][..]));
        log.flush().unwrap();
        assert_eq!(log.snapshots.unsynced(), []);
    }

    #[test]
    fn without_a_snapshot_only_the_end_of_the_log_is_read() {
        let temp = TempDir::new("producers-tail");
        let dir = LogDir::lock(temp.path()).unwrap();
        dir.begin_under("boot-1").unwrap();
        let tp = TopicPartition { topic: TopicName::new("t").unwrap(), partition: 0 };
        let config = LogConfig { segment_bytes: 400, ..LogConfig::default() };
        let mut log = dir.open(&tp, TopicId([7; 16]), config).unwrap();
        let mut size = 0;
        for id in 0..9 {
            let mut batch = BatchBuilder::new().record(&[1; 60]).producer(id, 0, 0).build();
            size = batch.len() as u64;
            log.append(&mut batch, Offset(id), LeaderEpoch(1)).unwrap();
        }
        assert!(log.segment_count() > 2);
        for (bytes, first) in [(size, 8), (size + 1, 7), (4 * size, 5), (9 * size, 0), (1 << 30, 0)]
        {
            log.producers.clear();
            let place = log.tail_begin(bytes).unwrap();
            log.replay(Some(place)).unwrap();
            let known: Vec<i64> = log.producer_batches().map(|row| row.producer_id).collect();
            assert_eq!(known, (first..9).collect::<Vec<_>>(), "the last {bytes} bytes");
        }
    }
}
