//! Offsets by time: which record is the first at or after a timestamp, and which has the greatest.
//!
//! Under the log's lock only the batch is found; whoever asked opens it after letting go of the lock, for it may be large and
//! compressed ([`TimeLookup`]).

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::PathBuf;
use std::sync::Arc;

use barnabas_types::Offset;

use crate::batch::{BatchError, BatchHeader};
use crate::cached::Wait;
use crate::disk::DiskFile;
use crate::error::{At as _, LogError};
use crate::index::{TimeEntry, find_last_on_disk};
use crate::log::Log;
use crate::records::{Records, record_bytes};
use crate::retention::max_timestamp_on_disk;
use crate::segment::{Finder, MaxTimestamp, path_of};

/// A batch that must be opened to know a record's offset and timestamp.
#[derive(Clone, Debug)]
#[must_use = "it must be resolved, without the log's lock"]
pub struct TimeLookup {
    path: PathBuf,
    file: Arc<DiskFile>,
    position: u64,
    header: BatchHeader,
    /// Records before it do not count.
    from: Offset,
    timestamp: i64,
}

impl TimeLookup {
    /// The batch's first record, at or after the offset that was asked for, whose timestamp is at least the one asked for: its
    /// offset and its timestamp, ms. `None` if the batch has no such record: then look on from [`TimeLookup::next`]. Of a
    /// batch whose records cannot be read the first offset and the greatest timestamp stand for all.
    ///
    /// # Errors
    /// [`LogError::Io`], also if the batch was cut off meanwhile.
    pub fn resolve(&self) -> Result<Option<(Offset, i64)>, LogError> {
        let header = &self.header;
        let mut batch = vec![0; header.size()];
        self.file.read_exact_at(&mut batch, self.position).at("read", &self.path)?;
        Ok(self.find(&batch).unwrap_or_else(|_| {
            let first = Offset(header.base_offset).max(self.from);
            (header.max_timestamp >= self.timestamp).then_some((first, header.max_timestamp))
        }))
    }

    fn find(&self, batch: &[u8]) -> Result<Option<(Offset, i64)>, BatchError> {
        let header = &self.header;
        let bytes = record_bytes(batch, header)?;
        for record in Records::new(&bytes, header) {
            let record = record?;
            let (offset, timestamp) = (record.offset(header), record.timestamp(header));
            if offset >= self.from.0 && timestamp >= self.timestamp {
                return Ok(Some((Offset(offset), timestamp)));
            }
        }
        Ok(None)
    }

    /// The timestamp of the batch's first record, ms, without opening the batch.
    #[must_use]
    pub fn first_timestamp(&self) -> i64 {
        self.header.base_timestamp
    }

    /// The offset after the batch.
    #[must_use]
    pub fn next(&self) -> Offset {
        Offset(self.header.next_offset())
    }
}

impl Log {
    /// The first batch, from the one with the offset `from` on, that says to have a record with a timestamp (ms) of at least
    /// `timestamp`; `None` if there is none. Index lookups and a short walk over headers.
    ///
    /// # Errors
    /// [`LogError::Io`], [`LogError::Damaged`].
    pub fn offset_for_timestamp(
        &self,
        timestamp: i64,
        from: Offset,
    ) -> Result<Option<TimeLookup>, LogError> {
        let from = from.max(self.log_start());
        let first = self.segments.partition_point(|s| s.end <= from.0);
        for number in first..self.segments.len() {
            let max = self.max_timestamp_of(number)?;
            if max.is_none_or(|max| max.timestamp < timestamp) {
                continue;
            }
            let base = self.segments[number].base;
            let older = self.last_older(number, timestamp)?;
            let older = older.map_or(base, |e| base + i64::from(e.offset));
            let file = self.segments[number].any_file(&self.dir)?;
            let found = self.finder(number, &file).reaches(older.max(from.0), timestamp)?;
            if let Some((position, header)) = found {
                return Ok(Some(self.lookup(number, file, (position, header), from, timestamp)));
            }
        }
        Ok(None)
    }

    /// The batch that holds the record with the greatest timestamp (KIP-734), the first of equals; resolve it for the record.
    /// `None` if no record has a timestamp.
    ///
    /// # Errors
    /// [`LogError::Io`], [`LogError::Damaged`].
    pub fn max_timestamp_offset(&self) -> Result<Option<TimeLookup>, LogError> {
        let mut best: Option<(usize, MaxTimestamp)> = None;
        let from = self.log_start();
        for number in 0..self.segments.len() {
            if let Some(max) = self.max_timestamp_of(number)?
                && max.timestamp >= 0
                && max.offset >= from.0
                && best.is_none_or(|(_, best)| max.timestamp > best.timestamp)
            {
                best = Some((number, max));
            }
        }
        let Some((number, max)) = best else { return Ok(None) };
        let file = self.segments[number].any_file(&self.dir)?;
        let found = self.finder(number, &file).batch_of(max.offset)?;
        Ok(found.map(|found| self.lookup(number, file, found, from, max.timestamp)))
    }

    fn lookup(
        &self,
        number: usize,
        file: Arc<DiskFile>,
        (position, header): (u64, BatchHeader),
        from: Offset,
        timestamp: i64,
    ) -> TimeLookup {
        let path = path_of(&self.dir, self.segments[number].base, "log");
        TimeLookup { path, file, position, header, from, timestamp }
    }

    fn is_active(&self, number: usize) -> bool {
        number + 1 == self.segments.len()
    }

    pub(crate) fn finder<'a>(&'a self, number: usize, file: &'a File) -> Finder<'a> {
        let tail = self.is_active(number).then_some(&self.tail);
        Finder::new(&self.dir, self.segments[number].extent(), tail, file)
    }

    pub(crate) fn max_timestamp_of(&self, number: usize) -> Result<Option<MaxTimestamp>, LogError> {
        if self.is_active(number) {
            return Ok(self.tail.max_timestamp);
        }
        let segment = &self.segments[number];
        if let Some(known) = segment.max_timestamp.get() {
            return Ok(*known);
        }
        let max = max_timestamp_on_disk(&self.dir, segment.base)?;
        Ok(*segment.max_timestamp.get_or_init(|| max))
    }

    /// The last time index entry that is older than `timestamp`.
    fn last_older(&self, number: usize, timestamp: i64) -> Result<Option<TimeEntry>, LogError> {
        let path = path_of(&self.dir, self.segments[number].base, "timeindex");
        let older = |e: &TimeEntry| e.timestamp < timestamp;
        let found = if self.is_active(number) {
            self.tail.time.find_last(&path, Wait::ForDisk, older)
        } else {
            find_last_on_disk(&path, Wait::ForDisk, older)
        };
        found.at("read", &path)
    }
}
