//! Reading: finds the byte range that answers a fetch; the bytes are read after the log's lock is released.

use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;

use barnabas_types::Offset;

use crate::batch::BatchHeader;
use crate::cached::{Wait, is_cold};
use crate::disk::{DiskFile, Folder};
use crate::error::{At as _, LogError};
use crate::index::{TimeEntry, find_last_on_disk};
use crate::log::Log;
use crate::retention::max_timestamp_on_disk;
use crate::segment::{Extent, Finder, Segment, Tail, Wanted, path_of};

/// What whoever waits for a cold range reads of it at once, only to have it in the page cache.
const WARM_CHUNK_BYTES: usize = 128 << 10;

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

    /// What has to be read first, if the range, or some of it, is not in the page cache, as far as a few of its bytes tell.
    #[must_use]
    pub fn cold(&self) -> Option<ColdRead> {
        let cold = is_cold(&self.file, self.position, self.len);
        cold.then(|| ColdRead(Cold::Range(self.clone())))
    }
}

/// What a look came to that was not to wait for the disk.
#[derive(Debug)]
pub enum Looked {
    /// As [`Log::read`] says; its bytes themselves may still be cold ([`ReadRange::cold`]).
    Found(Option<ReadRange>),
    /// Where the records lie is not in memory either: look again after this was read.
    Cold(ColdRead),
}

/// What somebody must read who may wait for the disk, so that others find it in the page cache. Needs no lock.
#[derive(Debug)]
pub struct ColdRead(Cold);

#[derive(Debug)]
enum Cold {
    /// These bytes.
    Range(ReadRange),
    /// Where these offsets lie in a segment, and the bytes there.
    Lookup { dir: Folder, extent: Extent, wanted: Wanted },
    /// Where this lies in a segment, and the batch there.
    ByTime { dir: Folder, extent: Extent, sought: Sought },
}

/// What is looked for in a segment by its time.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Sought {
    /// The first batch, from the one with `offset` on, whose greatest timestamp is at least `timestamp`.
    From { offset: i64, timestamp: i64 },
    /// The greatest timestamp.
    Greatest,
    /// The batch with this offset, which has it.
    At(i64),
}

impl ColdRead {
    /// The first offset of the segment in which it looks for something; `None`: it reads what was found.
    #[must_use]
    pub fn looks_in(&self) -> Option<i64> {
        match &self.0 {
            Cold::Range(_) => None,
            Cold::Lookup { extent, .. } | Cold::ByTime { extent, .. } => Some(extent.base),
        }
    }

    /// One batch.
    pub(crate) fn of_batch(file: Arc<DiskFile>, position: u64, header: &BatchHeader) -> Self {
        let stop = (position + header.size() as u64, header.next_offset());
        Self(Cold::Range(range(file, position, stop)))
    }

    /// What is looked for by time.
    pub(crate) fn by_time(dir: Folder, extent: Extent, sought: Sought) -> Self {
        Self(Cold::ByTime { dir, extent, sought })
    }

    /// Reads it.
    ///
    /// # Errors
    /// The disk gives it no more.
    pub fn run(&self) -> io::Result<()> {
        let done = match &self.0 {
            Cold::Range(range) => warm(range),
            Cold::Lookup { dir, extent, wanted } => look_up(dir, *extent, *wanted),
            Cold::ByTime { dir, extent, sought } => match seek(dir, *extent, *sought) {
                Err(LogError::Io { source, .. }) => Err(source),
                // Nothing, or other batches than there were: the next look knows.
                Ok(()) | Err(_) => Ok(()),
            },
        };
        match done {
            // The segment is gone, was cut, or another one has its place: the next look knows.
            Err(e) if matches!(e.kind(), ErrorKind::NotFound | ErrorKind::UnexpectedEof) => Ok(()),
            done => done,
        }
    }
}

fn look_up(dir: &Folder, extent: Extent, wanted: Wanted) -> io::Result<()> {
    let file = Arc::new(dir.disk.open_to_read(&path_of(dir, extent.base, "log"))?);
    match Finder::new(dir, extent, None, &file).range(wanted) {
        Ok(Some(Some((position, stop)))) => warm(&range(file, position, stop)),
        Err(LogError::Io { source, .. }) => Err(source),
        // Nothing, or other batches than there were: as above.
        Ok(_) | Err(_) => Ok(()),
    }
}

fn seek(dir: &Folder, extent: Extent, sought: Sought) -> Result<(), LogError> {
    if !matches!(sought, Sought::At(_)) {
        max_timestamp_on_disk(dir, extent.base, Wait::ForDisk)?;
    }
    let path = path_of(dir, extent.base, "log");
    let file = Arc::new(dir.disk.open_to_read(&path).at("open", &path)?);
    let finder = Finder::new(dir, extent, None, &file);
    let found = match sought {
        Sought::Greatest => return Ok(()),
        Sought::At(offset) => finder.batch_of(offset)?,
        Sought::From { offset, timestamp } => {
            let path = path_of(dir, extent.base, "timeindex");
            let older = |entry: &TimeEntry| entry.timestamp < timestamp;
            let older = find_last_on_disk(&path, Wait::ForDisk, older).at("read", &path)?;
            let older = older.map_or(extent.base, |e| extent.base + i64::from(e.offset));
            finder.reaches(older.max(offset), timestamp)?
        }
    };
    let Some((position, header)) = found else { return Ok(()) };
    let stop = (position + header.size() as u64, header.next_offset());
    warm(&range(file.clone(), position, stop)).at("read", &path)
}

fn warm(range: &ReadRange) -> io::Result<()> {
    let mut chunk = vec![0; range.len.min(WARM_CHUNK_BYTES)];
    let end = range.position + range.len as u64;
    for at in (range.position..end).step_by(WARM_CHUNK_BYTES) {
        let len = usize::try_from(end - at).unwrap_or(usize::MAX).min(WARM_CHUNK_BYTES);
        range.file.read_exact_at(&mut chunk[..len], at)?;
    }
    Ok(())
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
        match self.look(from, to, max_bytes, Wait::ForDisk)? {
            Looked::Found(range) => Ok(range),
            Looked::Cold(_) => Ok(None),
        }
    }

    /// As [`Log::read_kept`], which waits for the disk as it is told.
    ///
    /// # Errors
    /// As [`Log::read_kept`].
    pub fn look(
        &self,
        from: Offset,
        to: Offset,
        max_bytes: usize,
        wait: Wait,
    ) -> Result<Looked, LogError> {
        let first = self.segments.first().map_or(self.log_end, |s| s.base);
        let (start, end) = (self.log_start().min(Offset(first)), self.log_end());
        if from < start || from > end {
            return Err(LogError::OffsetOutOfRange { asked: from, start, end });
        }
        let to = to.min(end);
        if from >= to {
            return Ok(Looked::Found(None));
        }
        let wanted = Wanted { from: from.0, to: to.0, max_bytes };
        let after = self.segments.partition_point(|s| s.base <= from.0);
        for number in after.saturating_sub(1)..self.segments.len() {
            // Records were compacted away up to the end of a segment: then the next one has the first that is left.
            match self.read_in(number, wanted, wait) {
                Ok(Some(found)) => return Ok(Looked::Found(found)),
                Ok(None) => {}
                Err(error) if wait == Wait::Never && error.is_cold() => {
                    let (dir, extent) = (self.dir.clone(), self.segments[number].extent());
                    return Ok(Looked::Cold(ColdRead(Cold::Lookup { dir, extent, wanted })));
                }
                Err(error) => return Err(error),
            }
        }
        Ok(Looked::Found(None))
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

    /// Bytes that are not flushed. Waits for no disk: where the place is not in memory, all of the segment counts.
    #[must_use]
    pub fn unflushed_bytes(&self) -> u64 {
        let from = Offset(self.flushed.max(self.log_start));
        if from.0 >= self.log_end {
            return 0;
        }
        let looked = self.look(from, self.log_end(), usize::MAX, Wait::Never);
        let (within, from) = match looked {
            Ok(Looked::Found(Some(range))) => (range.len as u64, range.end.0),
            _ => (0, from.0),
        };
        let behind = self.segments.iter().filter(|s| s.end > from).map(|s| s.size);
        within + behind.sum::<u64>()
    }

    /// As [`Log::read`], from one segment; the outer `None` if it has nothing from `from` on.
    fn read_in(
        &self,
        number: usize,
        wanted: Wanted,
        wait: Wait,
    ) -> Result<Option<Option<ReadRange>>, LogError> {
        let segment = &self.segments[number];
        let active = number + 1 == self.segments.len();
        if active && let Some((position, _)) = self.tail.boundary_of(wanted.from) {
            return self.read_near_end(segment, position, wanted, wait).map(Some);
        }
        let file = if active {
            Arc::clone(segment.kept_file_if(&self.dir, wait)?)
        } else {
            segment.any_file_if(&self.dir, wait)?
        };
        let tail: Option<&Tail> = active.then_some(&self.tail);
        let finder = Finder::new(&self.dir, segment.extent(), tail, &file).waiting(wait);
        let found = finder.range(wanted)?;
        Ok(found.map(|found| found.map(|(position, stop)| range(file, position, stop))))
    }

    /// As [`Log::read`], from a batch whose successors are all remembered.
    fn read_near_end(
        &self,
        segment: &Segment,
        position: u64,
        Wanted { to, max_bytes, .. }: Wanted,
        wait: Wait,
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
        let file = Arc::clone(segment.kept_file_if(&self.dir, wait)?);
        Ok(Some(range(file, position, stop)))
    }
}

fn range(file: Arc<DiskFile>, position: u64, (stop, end): (u64, i64)) -> ReadRange {
    let len = usize::try_from(stop - position).unwrap_or(usize::MAX);
    ReadRange { file, position, len, end: Offset(end) }
}
