//! Reading: finds the byte range that answers a fetch; the bytes are read after the log's lock is released.

use std::io;
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;

use barnabas_types::Offset;

use crate::disk::DiskFile;
use crate::error::LogError;
use crate::log::Log;
use crate::segment::{Finder, Segment, Tail};

/// Whole batches that lie back to back in one segment file.
///
/// The range stays readable after the segment is deleted. What is at or above the high watermark can be cut by a truncation
/// between [`Log::read`] and the reading; other bytes never come in its place, because no file is written to again behind
/// a cut.
#[derive(Clone, Debug)]
pub struct ReadRange {
    /// The file.
    pub file: Arc<DiskFile>,
    /// First byte.
    pub position: u64,
    /// Bytes, 61 or more.
    pub len: usize,
    /// Where to go on reading: the offset after the last record of the range, exclusive.
    pub end: Offset,
}

impl ReadRange {
    /// Appends the bytes to `out`.
    ///
    /// # Errors
    /// From the operating system; [`io::ErrorKind::UnexpectedEof`] if the file was cut since. `out` is as before then.
    pub fn read_into(&self, out: &mut Vec<u8>) -> io::Result<()> {
        let before = out.len();
        out.resize(before + self.len, 0);
        let result = self.file.read_exact_at(&mut out[before..], self.position);
        if result.is_err() {
            out.truncate(before);
        }
        result
    }
}

impl Log {
    /// Where the records `[from, to)` lie: on batch boundaries, beginning with the batch that holds `from`, without a batch
    /// that reaches beyond `to` (exclusive), at least one batch even if it is larger than `max_bytes`, from one segment only.
    /// `None` if there is no whole batch below `to`.
    ///
    /// Near the end of the log this costs no I/O; elsewhere two index lookups and two short scans, whatever the log holds.
    ///
    /// # Errors
    /// [`LogError::OffsetOutOfRange`] if `from` is outside `[log start, LEO]`; [`LogError::Io`], [`LogError::Damaged`].
    pub fn read(
        &self,
        from: Offset,
        to: Offset,
        max_bytes: usize,
    ) -> Result<Option<ReadRange>, LogError> {
        let (start, end) = (self.log_start(), self.log_end());
        if from < start {
            return Err(LogError::OffsetOutOfRange { asked: from, start, end });
        }
        self.read_kept(from, to, max_bytes)
    }

    /// As [`Log::read`], but also what lies below a log start that was moved up ([`Log::advance_log_start`]) and is not detached
    /// yet: until the new start is durable, the old one is in force.
    ///
    /// # Errors
    /// As [`Log::read`]; [`LogError::OffsetOutOfRange`] below the first segment.
    pub fn read_kept(
        &self,
        from: Offset,
        to: Offset,
        max_bytes: usize,
    ) -> Result<Option<ReadRange>, LogError> {
        let first = self.segments.first().map_or(self.log_end, |s| s.base);
        let (start, end) = (self.log_start().min(Offset(first)), self.log_end());
        if from < start || from > end {
            return Err(LogError::OffsetOutOfRange { asked: from, start, end });
        }
        let to = to.min(end);
        if from >= to {
            return Ok(None);
        }
        let after = self.segments.partition_point(|s| s.base <= from.0);
        for number in after.saturating_sub(1)..self.segments.len() {
            // Records were compacted away up to the end of a segment: then the next one has the first that is left.
            if let Some(found) = self.read_in(number, from, to, max_bytes)? {
                return Ok(found);
            }
        }
        Ok(None)
    }

    /// How many bytes the log has from `from` on, the batch that holds `from` included; 0 at the LEO. Costs a lookup in one
    /// index.
    ///
    /// # Errors
    /// As [`Log::read_kept`].
    pub fn bytes_from(&self, from: Offset) -> Result<u64, LogError> {
        let Some(within) = self.read_kept(from, self.log_end(), usize::MAX)? else { return Ok(0) };
        let behind = self.segments.iter().filter(|s| s.base >= within.end.0).map(|s| s.size);
        Ok(within.len as u64 + behind.sum::<u64>())
    }

    /// As [`Log::read`], from one segment; the outer `None` if it has nothing from `from` on.
    fn read_in(
        &self,
        number: usize,
        from: Offset,
        to: Offset,
        max_bytes: usize,
    ) -> Result<Option<Option<ReadRange>>, LogError> {
        let segment = &self.segments[number];
        let active = number + 1 == self.segments.len();
        if active && let Some((position, _)) = self.tail.boundary_of(from.0) {
            return self.read_near_end(segment, position, to.0, max_bytes).map(Some);
        }
        let file = if active {
            Arc::clone(segment.kept_file(&self.dir)?)
        } else {
            segment.any_file(&self.dir)?
        };
        let tail: Option<&Tail> = active.then_some(&self.tail);
        let finder = Finder { dir: &self.dir, segment, tail, file: &file };
        let Some((position, first)) = finder.batch_of(from.0)? else {
            return Ok(None);
        };
        let mut stop = (segment.size, segment.end);
        if to.0 < segment.end
            && let Some((at, header)) = finder.batch_of(to.0)?
        {
            stop = (at, header.base_offset);
        }
        if stop.0 <= position {
            return Ok(Some(None));
        }
        let limit = position.saturating_add(max_bytes as u64);
        if stop.0 > limit {
            let one = (position + first.size() as u64, first.next_offset());
            stop = finder.boundary_below(position, limit)?.unwrap_or(one);
        }
        Ok(Some(Some(range(file, position, stop))))
    }

    /// As [`Log::read`], from a batch whose successors are all remembered.
    fn read_near_end(
        &self,
        segment: &Segment,
        position: u64,
        to: i64,
        max_bytes: usize,
    ) -> Result<Option<ReadRange>, LogError> {
        let mut stop = (segment.size, segment.end);
        if to < segment.end
            && let Some(boundary) = self.tail.boundary_of(to)
        {
            stop = boundary;
        }
        if stop.0 <= position {
            return Ok(None);
        }
        let limit = position.saturating_add(max_bytes as u64);
        if stop.0 > limit {
            let below = self.tail.boundary_below(limit).filter(|(at, _)| *at > position);
            let one = self.tail.boundary_after(position).unwrap_or(stop);
            stop = below.unwrap_or(one);
        }
        let file = Arc::clone(segment.kept_file(&self.dir)?);
        Ok(Some(range(file, position, stop)))
    }
}

fn range(file: Arc<DiskFile>, position: u64, (stop, end): (u64, i64)) -> ReadRange {
    let len = usize::try_from(stop - position).unwrap_or(usize::MAX);
    ReadRange { file, position, len, end: Offset(end) }
}
