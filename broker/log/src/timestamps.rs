//! Offsets by time: which record is the first at or after a timestamp, and which has the greatest.

use std::fs::File;
use std::os::unix::fs::FileExt as _;

use barnabas_types::Offset;

use crate::batch::BatchHeader;
use crate::error::{At as _, LogError};
use crate::index::{TimeEntry, find_last_on_disk};
use crate::log::Log;
use crate::records::first_at_least;
use crate::segment::{Finder, MaxTimestamp, Segment, path_of};

impl Log {
    /// The first record with a timestamp (ms) of at least `timestamp`: its offset and its timestamp. In a compressed batch the
    /// batch's first record stands for it (and may be older). `None` if there is none.
    ///
    /// # Errors
    /// [`LogError::Io`], [`LogError::Damaged`].
    pub fn offset_for_timestamp(&self, timestamp: i64) -> Result<Option<(Offset, i64)>, LogError> {
        for (number, segment) in self.segments.iter().enumerate() {
            let max = self.max_timestamp_of(number)?;
            if max.is_none_or(|max| max.timestamp < timestamp) {
                continue;
            }
            let older = self.last_older(number, timestamp)?;
            let from = older.map_or(segment.base, |e| segment.base + i64::from(e.offset));
            let from = from.max(self.log_start);
            let file = segment.any_file(&self.dir)?;
            let finder = self.finder(number, &file);
            if let Some((position, header)) = finder.reaches(from, timestamp)? {
                let bytes = self.batch_bytes(segment, &file, position, &header)?;
                let record = first_at_least(&bytes, &header, timestamp);
                // Records of its batch below the log start are deleted.
                return Ok(record.map(|(offset, at)| (Offset(offset.max(self.log_start)), at)));
            }
        }
        Ok(None)
    }

    /// The record with the greatest timestamp (KIP-734): its offset and its timestamp, the first of equals. In a compressed
    /// batch its last record stands for it. `None` if no record has a timestamp.
    ///
    /// # Errors
    /// [`LogError::Io`], [`LogError::Damaged`].
    pub fn max_timestamp_offset(&self) -> Result<Option<(Offset, i64)>, LogError> {
        let mut best: Option<(usize, MaxTimestamp)> = None;
        for number in 0..self.segments.len() {
            if let Some(max) = self.max_timestamp_of(number)?
                && max.timestamp >= 0
                && best.is_none_or(|(_, best)| max.timestamp > best.timestamp)
            {
                best = Some((number, max));
            }
        }
        let Some((number, max)) = best else { return Ok(None) };
        let segment = &self.segments[number];
        let file = segment.any_file(&self.dir)?;
        let shallow = (Offset(max.offset), max.timestamp);
        let Some((position, header)) = self.finder(number, &file).batch_of(max.offset)? else {
            return Ok(Some(shallow));
        };
        if header.codec() != 0 {
            return Ok(Some(shallow));
        }
        let bytes = self.batch_bytes(segment, &file, position, &header)?;
        let record = first_at_least(&bytes, &header, max.timestamp);
        Ok(Some(record.map_or(shallow, |(offset, at)| (Offset(offset), at))))
    }

    fn is_active(&self, number: usize) -> bool {
        number + 1 == self.segments.len()
    }

    pub(crate) fn finder<'a>(&'a self, number: usize, file: &'a File) -> Finder<'a> {
        let tail = self.is_active(number).then_some(&self.tail);
        Finder { dir: &self.dir, segment: &self.segments[number], tail, file }
    }

    fn max_timestamp_of(&self, number: usize) -> Result<Option<MaxTimestamp>, LogError> {
        if self.is_active(number) {
            return Ok(self.tail.max_timestamp);
        }
        let segment = &self.segments[number];
        if let Some(known) = segment.max_timestamp.get() {
            return Ok(*known);
        }
        let path = path_of(&self.dir, segment.base, "timeindex");
        let last: Option<TimeEntry> = find_last_on_disk(&path, |_| true).at("read", &path)?;
        let max = last.map(|e| MaxTimestamp {
            timestamp: e.timestamp,
            offset: segment.base + i64::from(e.offset),
        });
        Ok(*segment.max_timestamp.get_or_init(|| max))
    }

    /// The last time index entry that is older than `timestamp`.
    fn last_older(&self, number: usize, timestamp: i64) -> Result<Option<TimeEntry>, LogError> {
        let path = path_of(&self.dir, self.segments[number].base, "timeindex");
        let older = |e: &TimeEntry| e.timestamp < timestamp;
        let found = if self.is_active(number) {
            self.tail.time.find_last(&path, older)
        } else {
            find_last_on_disk(&path, older)
        };
        found.at("read", &path)
    }

    fn batch_bytes(
        &self,
        segment: &Segment,
        file: &File,
        position: u64,
        header: &BatchHeader,
    ) -> Result<Vec<u8>, LogError> {
        let mut bytes = vec![0; header.size()];
        file.read_exact_at(&mut bytes, position)
            .at("read", &path_of(&self.dir, segment.base, "log"))?;
        Ok(bytes)
    }
}
