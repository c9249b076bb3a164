//! One segment: a `.log` file with its two indexes, and how a batch is found in it.

use std::cell::OnceCell;
use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use crate::batch::BatchHeader;
use crate::cached::Wait;
use crate::disk::{DiskFile, Folder};
use crate::error::{At as _, LogError};
use crate::files::remove_if_there;
use crate::index::{IndexFile, OffsetEntry, SparseIndex, TimeEntry};
use crate::roll::Age;
use crate::walk::{LOOKUP_CHUNK_BYTES, Step, Walk};

/// Batch boundaries that the tail remembers, so that readers near the end of the log need no index and no scan.
const BOUNDARIES_MAX: usize = 32;

/// The files of a segment beside its `.log`.
pub(crate) const SIDE_FILES: [&str; 4] = ["index", "timeindex", "txnindex", "snapshot"];

/// Path of a segment's file: 20 digits of the base offset and the kind.
pub(crate) fn path_of(dir: &Path, base: i64, kind: &str) -> PathBuf {
    dir.join(format!("{base:020}.{kind}"))
}

/// Removes the files of a segment, the `.log` first: what a crash leaves of the others belongs to no segment.
pub(crate) fn remove_segment(dir: &Folder, base: i64) -> Result<(), LogError> {
    remove_if_there(&dir.disk, &path_of(dir, base, "log"))?;
    SIDE_FILES.iter().try_for_each(|kind| remove_if_there(&dir.disk, &path_of(dir, base, kind)))
}

/// A timestamp and the last offset of the first batch that reached it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct MaxTimestamp {
    pub(crate) timestamp: i64,
    pub(crate) offset: i64,
}

/// A segment as the log knows it. The last one of a log is active and has a [`Tail`] besides.
#[derive(Debug)]
pub(crate) struct Segment {
    /// Offset that its files are named after.
    pub(crate) base: i64,
    /// Exclusive end: the next segment's base, or the LEO.
    pub(crate) end: i64,
    /// Bytes of whole batches in the `.log` file.
    pub(crate) size: u64,
    /// Open while it is written to or not flushed yet.
    file: OnceLock<Arc<DiskFile>>,
    /// Greatest timestamp, once known; shared with those who look at it outside the log's lock.
    pub(crate) max_timestamp: Arc<OnceLock<Option<MaxTimestamp>>>,
    /// Its index files were written and not synced since it was sealed.
    pub(crate) indexes_unsynced: bool,
    /// Records that were readable were cut off its end since it was opened: the next append begins a new file. Somebody may
    /// still be sending the range that is gone, and must find the end of the file there, never other records.
    pub(crate) is_cut: bool,
    /// The file of a segment that is not kept open, as long as somebody reads it: all its readers share one descriptor.
    reading: Mutex<Weak<DiskFile>>,
}

impl Segment {
    pub(crate) fn new(base: i64, end: i64, size: u64) -> Self {
        Self {
            base,
            end,
            size,
            file: OnceLock::new(),
            max_timestamp: Arc::default(),
            indexes_unsynced: false,
            is_cut: false,
            reading: Mutex::default(),
        }
    }

    /// What of it does not change while its bytes stay.
    pub(crate) fn extent(&self) -> Extent {
        Extent { base: self.base, end: self.end, size: self.size }
    }

    fn open_file(&self, dir: &Folder, wait: Wait) -> Result<Arc<DiskFile>, LogError> {
        let path = path_of(dir, self.base, "log");
        let opened = match wait {
            Wait::ForDisk => dir.disk.open(&path),
            Wait::Never => dir.disk.open_cached(&path),
        };
        opened.map(Arc::new).at("open", &path)
    }

    /// Creates the file anew, empty, and keeps it open.
    pub(crate) fn create(dir: &Folder, base: i64) -> Result<Self, LogError> {
        let segment = Self::new(base, base, 0);
        let path = path_of(dir, base, "log");
        let file = dir.disk.create(&path).at("create", &path)?;
        let _ = segment.file.set(Arc::new(file));
        Ok(segment)
    }

    /// The file, kept open from now on.
    pub(crate) fn kept_file(&self, dir: &Folder) -> Result<&Arc<DiskFile>, LogError> {
        self.kept_file_if(dir, Wait::ForDisk)
    }

    /// The same, which waits for the disk as it is told.
    pub(crate) fn kept_file_if(
        &self,
        dir: &Folder,
        wait: Wait,
    ) -> Result<&Arc<DiskFile>, LogError> {
        if let Some(file) = self.file.get() {
            return Ok(file);
        }
        let file = self.open_file(dir, wait)?;
        Ok(self.file.get_or_init(|| file))
    }

    /// The file, opened for its present readers only unless it is open already.
    pub(crate) fn any_file(&self, dir: &Folder) -> Result<Arc<DiskFile>, LogError> {
        self.any_file_if(dir, Wait::ForDisk)
    }

    /// The same, which waits for the disk as it is told.
    pub(crate) fn any_file_if(&self, dir: &Folder, wait: Wait) -> Result<Arc<DiskFile>, LogError> {
        if let Some(file) = self.file.get() {
            return Ok(Arc::clone(file));
        }
        let mut reading = self.reading.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(file) = reading.upgrade() {
            return Ok(file);
        }
        let file = self.open_file(dir, wait)?;
        *reading = Arc::downgrade(&file);
        Ok(file)
    }

    /// Takes note that the file was cut; the file stays open.
    pub(crate) fn cut(&mut self, end: i64, size: u64) {
        (self.end, self.size) = (end, size);
        self.max_timestamp = Arc::default();
        self.indexes_unsynced = false;
    }

    /// Lets go of the file.
    pub(crate) fn release(&mut self) {
        self.file.take();
    }

    pub(crate) fn damaged(&self, dir: &Path, position: u64, reason: &'static str) -> LogError {
        self.extent().damaged(dir, position, reason)
    }
}

/// Offsets and bytes of a segment, as whoever looks for something in it without the log's lock knows them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Extent {
    /// As [`Segment::base`].
    pub(crate) base: i64,
    /// As [`Segment::end`].
    pub(crate) end: i64,
    /// As [`Segment::size`].
    pub(crate) size: u64,
}

impl Extent {
    fn damaged(self, dir: &Path, position: u64, reason: &'static str) -> LogError {
        LogError::Damaged { file: path_of(dir, self.base, "log"), position, reason }
    }
}

/// Where a batch lies.
#[derive(Clone, Copy, Debug)]
struct Boundary {
    base: i64,
    /// The offset after its last record.
    end: i64,
    position: u64,
}

/// What only the active segment has: its growing indexes and the last batch boundaries.
#[derive(Debug)]
pub(crate) struct Tail {
    pub(crate) index: SparseIndex<OffsetEntry>,
    pub(crate) time: SparseIndex<TimeEntry>,
    /// Bytes of batches since the last index entry.
    pub(crate) bytes_since_index: u64,
    pub(crate) max_timestamp: Option<MaxTimestamp>,
    /// How old the segment is.
    pub(crate) age: Age,
    /// The last batches, none left out up to the end.
    boundaries: VecDeque<Boundary>,
}

impl Tail {
    pub(crate) fn empty() -> Self {
        Self {
            index: SparseIndex::empty(),
            time: SparseIndex::empty(),
            bytes_since_index: 0,
            max_timestamp: None,
            age: Age::default(),
            boundaries: VecDeque::new(),
        }
    }

    /// Takes note of the batch that was written at `position` of the segment with this base.
    pub(crate) fn note(
        &mut self,
        base: i64,
        position: u64,
        header: &BatchHeader,
        interval_bytes: u32,
    ) {
        let last_offset = header.last_offset();
        self.age.note(position, header);
        // A batch that compaction left without a record stands for no time.
        if header.record_count > 0
            && self.max_timestamp.is_none_or(|max| header.max_timestamp > max.timestamp)
        {
            self.max_timestamp =
                Some(MaxTimestamp { timestamp: header.max_timestamp, offset: last_offset });
        }
        if self.bytes_since_index > u64::from(interval_bytes)
            && let (Ok(offset), Ok(position)) =
                (u32::try_from(last_offset - base), u32::try_from(position))
        {
            self.index.push(OffsetEntry { offset, position });
            self.note_time(base);
            self.bytes_since_index = 0;
        }
        self.bytes_since_index += header.size() as u64;
        if self.boundaries.len() >= BOUNDARIES_MAX {
            self.boundaries.pop_front();
        }
        let (base, end) = (header.base_offset, header.next_offset());
        self.boundaries.push_back(Boundary { base, end, position });
    }

    /// Adds a time index entry if the greatest timestamp grew since the last one.
    pub(crate) fn note_time(&mut self, base: i64) {
        let Some(max) = self.max_timestamp else { return };
        // -1 is no timestamp, and no entry (as in Kafka).
        let grew = max.timestamp > self.time.last().map_or(-1, |last| last.timestamp);
        if grew && let Ok(offset) = u32::try_from(max.offset - base) {
            self.time.push(TimeEntry { timestamp: max.timestamp, offset });
        }
    }

    /// Writes the waiting index entries; creates both files if need be.
    pub(crate) fn write_indexes(&mut self, dir: &Folder, base: i64) -> Result<(), LogError> {
        let path = path_of(dir, base, "index");
        self.index.write_pending(&dir.disk, &path).at("write", &path)?;
        let path = path_of(dir, base, "timeindex");
        self.time.write_pending(&dir.disk, &path).at("write", &path)
    }

    /// Where the batch with `offset`, or the first one after it, begins, and its base: known only for the last batches.
    pub(crate) fn boundary_of(&self, offset: i64) -> Option<(u64, i64)> {
        let first = self.boundaries.partition_point(|b| b.end <= offset);
        // The one before it may lie further back than what is remembered.
        if first == 0 && self.boundaries.front()?.base > offset {
            return None;
        }
        let found = self.boundaries.get(first)?;
        Some((found.position, found.base))
    }

    /// The last boundary at or below a position: known only for the last batches.
    pub(crate) fn boundary_below(&self, position: u64) -> Option<(u64, i64)> {
        let after = self.boundaries.partition_point(|b| b.position <= position);
        let found = self.boundaries.get(after.checked_sub(1)?)?;
        Some((found.position, found.base))
    }

    /// The boundary that follows the remembered batch at `position`; `None` if that is the last batch.
    pub(crate) fn boundary_after(&self, position: u64) -> Option<(u64, i64)> {
        let after = self.boundaries.partition_point(|b| b.position <= position);
        self.boundaries.get(after).map(|b| (b.position, b.base))
    }
}

/// Which records are looked for: `[from, to)`, and how many bytes of them at most.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted {
    pub(crate) from: i64,
    pub(crate) to: i64,
    pub(crate) max_bytes: usize,
}

/// A run of whole batches: where it begins in the file, and where it stops in bytes and offsets, exclusive.
pub(crate) type Span = (u64, (u64, i64));

/// Finds batches in one segment.
pub(crate) struct Finder<'a> {
    dir: &'a Folder,
    extent: Extent,
    /// Only for the active segment.
    tail: Option<&'a Tail>,
    file: &'a File,
    wait: Wait,
    /// Opened by the first lookup, for all of them.
    index: OnceCell<Option<IndexFile>>,
}

impl<'a> Finder<'a> {
    pub(crate) fn new(
        dir: &'a Folder,
        extent: Extent,
        tail: Option<&'a Tail>,
        file: &'a File,
    ) -> Self {
        Self { dir, extent, tail, file, wait: Wait::ForDisk, index: OnceCell::new() }
    }

    /// The same, which waits for the disk as it is told.
    pub(crate) fn waiting(self, wait: Wait) -> Self {
        Self { wait, ..self }
    }

    /// The last index entry in the file for which `wanted` holds.
    fn find_written(
        &self,
        wanted: &impl Fn(&OffsetEntry) -> bool,
    ) -> io::Result<Option<OffsetEntry>> {
        let count = self.tail.map_or(u64::MAX, |tail| tail.index.written());
        if count == 0 {
            return Ok(None);
        }
        let index = match self.index.get() {
            Some(index) => index,
            None => {
                let path = path_of(self.dir, self.extent.base, "index");
                let opened = IndexFile::open(&path, self.wait)?;
                self.index.get_or_init(|| opened)
            }
        };
        let found = index.as_ref().map(|index| index.find_last(count, self.wait, wanted));
        Ok(found.transpose()?.flatten().map(|(_, entry)| entry))
    }

    fn hint(&self, wanted: impl Fn(&OffsetEntry) -> bool) -> Result<u64, LogError> {
        let pending = self.tail.and_then(|tail| tail.index.find_last_pending(&wanted));
        let entry = match pending {
            Some(entry) => Some(entry),
            None => self
                .find_written(&wanted)
                .at("read", &path_of(self.dir, self.extent.base, "index"))?,
        };
        let Some(entry) = entry else { return Ok(0) };
        let fits = entry_fits(self.file, self.extent, entry, self.wait)
            .at("read", &path_of(self.dir, self.extent.base, "log"))?;
        Ok(if fits.is_some() { u64::from(entry.position) } else { 0 })
    }

    /// The first batch from `position` on for which `found` holds; `None` if there is none.
    fn walk(
        &self,
        position: u64,
        mut found: impl FnMut(u64, &BatchHeader) -> bool,
    ) -> Result<Option<(u64, BatchHeader)>, LogError> {
        let mut walk =
            Walk::new(self.file, self.extent.size, position, LOOKUP_CHUNK_BYTES).waiting(self.wait);
        loop {
            let step = walk.next().at("read", &path_of(self.dir, self.extent.base, "log"))?;
            match step {
                Step::Batch(at, header) if found(at, &header) => return Ok(Some((at, header))),
                Step::Batch(..) => {}
                Step::End => return Ok(None),
                Step::Bad(at, _) => {
                    return Err(self.extent.damaged(self.dir, at, "no whole batch"));
                }
            }
        }
    }

    /// The batch that holds `offset`, or the first one after it; `None` if the segment ends before.
    pub(crate) fn batch_of(&self, offset: i64) -> Result<Option<(u64, BatchHeader)>, LogError> {
        let base = self.extent.base;
        let from = self.hint(|e| base + i64::from(e.offset) <= offset)?;
        self.walk(from, |_, header| header.last_offset() >= offset)
    }

    /// The last batch boundary at or below `limit` and above `from` (itself a boundary), with the offset there; `None` if the
    /// batch at `from` ends beyond `limit`.
    pub(crate) fn boundary_below(
        &self,
        from: u64,
        limit: u64,
    ) -> Result<Option<(u64, i64)>, LogError> {
        let hint = self.hint(|e| u64::from(e.position) <= limit)?;
        let mut boundary = None;
        self.walk(hint.max(from), |at, header| {
            if at > from && at <= limit {
                boundary = Some((at, header.base_offset));
            }
            at + header.size() as u64 > limit
        })?;
        Ok(boundary)
    }

    /// As [`crate::Log::read`], from this segment; the outer `None` if the segment has nothing from there on.
    pub(crate) fn range(&self, wanted: Wanted) -> Result<Option<Option<Span>>, LogError> {
        let Some((position, first)) = self.batch_of(wanted.from)? else {
            return Ok(None);
        };
        let mut stop = (self.extent.size, self.extent.end);
        if wanted.to < self.extent.end
            && let Some((at, header)) = self.batch_of(wanted.to)?
        {
            stop = (at, header.base_offset);
        }
        if stop.0 <= position {
            return Ok(Some(None));
        }
        let limit = position.saturating_add(wanted.max_bytes as u64);
        if stop.0 > limit {
            let one = (position + first.size() as u64, first.next_offset());
            stop = self.boundary_below(position, limit)?.unwrap_or(one);
        }
        Ok(Some(Some((position, stop))))
    }

    /// The first batch, from the one with `offset` on, whose greatest timestamp is at least `timestamp`.
    pub(crate) fn reaches(
        &self,
        offset: i64,
        timestamp: i64,
    ) -> Result<Option<(u64, BatchHeader)>, LogError> {
        let base = self.extent.base;
        let from = self.hint(|e| base + i64::from(e.offset) <= offset)?;
        self.walk(from, |_, header| {
            header.last_offset() >= offset && header.max_timestamp >= timestamp
        })
    }
}

/// The header that an index entry points at, if it is the batch that the entry means.
pub(crate) fn entry_fits(
    file: &File,
    extent: Extent,
    entry: OffsetEntry,
    wait: Wait,
) -> io::Result<Option<BatchHeader>> {
    let position = u64::from(entry.position);
    let chunk_bytes = crate::batch::HEADER_BYTES;
    match Walk::new(file, extent.size, position, chunk_bytes).waiting(wait).next()? {
        Step::Batch(_, header) if header.last_offset() == extent.base + i64::from(entry.offset) => {
            Ok(Some(header))
        }
        _ => Ok(None),
    }
}
