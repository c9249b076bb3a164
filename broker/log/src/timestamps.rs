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
use crate::cached::{Wait, is_cold};
use crate::disk::DiskFile;
use crate::error::{At as _, LogError};
use crate::index::{TimeEntry, find_last_on_disk};
use crate::log::Log;
use crate::read::{ColdRead, Sought};
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

    /// What has to be read first, if the batch is not in the page cache.
    #[must_use]
    pub fn cold(&self) -> Option<ColdRead> {
        let cold = is_cold(&self.file, self.position, self.header.size());
        cold.then(|| ColdRead::of_batch(self.file.clone(), self.position, &self.header))
    }
}

/// What a look by time came to that was not to wait for the disk.
#[derive(Debug)]
pub enum LookedByTime {
    /// The batch, if there is one; itself it may still be cold ([`TimeLookup::cold`]).
    Found(Option<TimeLookup>),
    /// Look again after this was read.
    Cold(ColdRead),
}

impl Log {
    /// The first batch, from the one with the offset `from` on, that says to have a record with a timestamp (ms) of at least
    /// `timestamp`; `None` if there is none. Index lookups and a short walk over headers; waits for the disk.
    ///
    /// # Errors
    /// [`LogError::Io`], [`LogError::Damaged`].
    pub fn offset_for_timestamp(
        &self,
        timestamp: i64,
        from: Offset,
    ) -> Result<Option<TimeLookup>, LogError> {
        match self.look_for_timestamp(timestamp, from, Wait::ForDisk)? {
            LookedByTime::Found(found) => Ok(found),
            LookedByTime::Cold(_) => Ok(None),
        }
    }

    /// As [`Log::offset_for_timestamp`], which waits for the disk as it is told.
    ///
    /// # Errors
    /// As [`Log::offset_for_timestamp`].
    pub fn look_for_timestamp(
        &self,
        timestamp: i64,
        from: Offset,
        wait: Wait,
    ) -> Result<LookedByTime, LogError> {
        let from = from.max(self.log_start());
        let first = self.segments.partition_point(|s| s.end <= from.0);
        for number in first..self.segments.len() {
            match self.reaches(number, timestamp, from, wait) {
                Ok(None) => {}
                Ok(found) => return Ok(LookedByTime::Found(found)),
                Err(error) => {
                    let sought = Sought::From { offset: from.0, timestamp };
                    return self.cold(number, sought, wait, error);
                }
            }
        }
        Ok(LookedByTime::Found(None))
    }

    fn reaches(
        &self,
        number: usize,
        timestamp: i64,
        from: Offset,
        wait: Wait,
    ) -> Result<Option<TimeLookup>, LogError> {
        if self.max_timestamp_of(number, wait)?.is_none_or(|max| max.timestamp < timestamp) {
            return Ok(None);
        }
        let base = self.segments[number].base;
        let older = self.last_older(number, timestamp, wait)?;
        let older = older.map_or(base, |e| base + i64::from(e.offset));
        let file = self.segments[number].any_file_if(&self.dir, wait)?;
        let finder = self.finder(number, &file).waiting(wait);
        let found = finder.reaches(older.max(from.0), timestamp)?;
        Ok(found.map(|found| self.lookup(number, file.clone(), found, from, timestamp)))
    }

    /// The batch that holds the record with the greatest timestamp (KIP-734), the first of equals; resolve it for the record.
    /// `None` if no record has a timestamp. Waits for the disk.
    ///
    /// # Errors
    /// [`LogError::Io`], [`LogError::Damaged`].
    pub fn max_timestamp_offset(&self) -> Result<Option<TimeLookup>, LogError> {
        match self.look_for_max_timestamp(Wait::ForDisk)? {
            LookedByTime::Found(found) => Ok(found),
            LookedByTime::Cold(_) => Ok(None),
        }
    }

    /// As [`Log::max_timestamp_offset`], which waits for the disk as it is told.
    ///
    /// # Errors
    /// As [`Log::max_timestamp_offset`].
    pub fn look_for_max_timestamp(&self, wait: Wait) -> Result<LookedByTime, LogError> {
        let mut best: Option<(usize, MaxTimestamp)> = None;
        let from = self.log_start();
        for number in 0..self.segments.len() {
            let max = match self.max_timestamp_of(number, wait) {
                Ok(max) => max,
                Err(error) => return self.cold(number, Sought::Greatest, wait, error),
            };
            if let Some(max) = max
                && max.timestamp >= 0
                && max.offset >= from.0
                && best.is_none_or(|(_, best)| max.timestamp > best.timestamp)
            {
                best = Some((number, max));
            }
        }
        let Some((number, max)) = best else { return Ok(LookedByTime::Found(None)) };
        match self.holds(number, max, from, wait) {
            Ok(found) => Ok(LookedByTime::Found(found)),
            Err(error) => self.cold(number, Sought::At(max.offset), wait, error),
        }
    }

    fn holds(
        &self,
        number: usize,
        max: MaxTimestamp,
        from: Offset,
        wait: Wait,
    ) -> Result<Option<TimeLookup>, LogError> {
        let file = self.segments[number].any_file_if(&self.dir, wait)?;
        let found = self.finder(number, &file).waiting(wait).batch_of(max.offset)?;
        Ok(found.map(|found| self.lookup(number, file.clone(), found, from, max.timestamp)))
    }

    /// What to read if `error` only says that the disk would have to be waited for.
    fn cold(
        &self,
        number: usize,
        sought: Sought,
        wait: Wait,
        error: LogError,
    ) -> Result<LookedByTime, LogError> {
        if wait != Wait::Never || !error.is_cold() {
            return Err(error);
        }
        let extent = self.segments[number].extent();
        Ok(LookedByTime::Cold(ColdRead::by_time(self.dir.clone(), extent, sought)))
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

    fn max_timestamp_of(
        &self,
        number: usize,
        wait: Wait,
    ) -> Result<Option<MaxTimestamp>, LogError> {
        if self.is_active(number) {
            return Ok(self.tail.max_timestamp);
        }
        let segment = &self.segments[number];
        if let Some(known) = segment.max_timestamp.get() {
            return Ok(*known);
        }
        let max = max_timestamp_on_disk(&self.dir, segment.base, wait)?;
        Ok(*segment.max_timestamp.get_or_init(|| max))
    }

    /// The last time index entry that is older than `timestamp`.
    fn last_older(
        &self,
        number: usize,
        timestamp: i64,
        wait: Wait,
    ) -> Result<Option<TimeEntry>, LogError> {
        let path = path_of(&self.dir, self.segments[number].base, "timeindex");
        let older = |e: &TimeEntry| e.timestamp < timestamp;
        let found = if self.is_active(number) {
            self.tail.time.find_last(&path, wait, older)
        } else {
            find_last_on_disk(&path, wait, older)
        };
        found.at("read", &path)
    }
}
