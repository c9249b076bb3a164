//! The segment that takes the place of a group of segments, while it is written beside them.

use std::time::SystemTime;

use crate::batch::BatchHeader;
use crate::disk::{DiskFile, Folder};
use crate::error::{At as _, LogError};
use crate::files::{remove_if_there, sync_dir};
use crate::index::SparseIndex;
use crate::segment::{MaxTimestamp, Tail, path_of};

/// Bytes gathered before they are written.
const WRITE_BYTES: usize = 1 << 20;
/// No segment grows beyond this: positions are signed 32-bit numbers in Kafka.
const SEGMENT_BYTES_MAX: u64 = i32::MAX.unsigned_abs() as u64;

/// Files of a segment that is being written, and not part of a log yet (Kafka's name).
pub(super) const CLEANED: [&str; 3] = ["log.cleaned", "index.cleaned", "timeindex.cleaned"];

pub(super) struct Output<'a> {
    dir: &'a Folder,
    base: i64,
    interval_bytes: u32,
    file: DiskFile,
    tail: Tail,
    written: u64,
    /// Batches that are not written yet.
    pub(super) waiting: Vec<u8>,
}

/// A whole segment in `.cleaned` files, durable.
#[derive(Debug)]
pub(super) struct Cleaned {
    pub(super) base: i64,
    pub(super) size: u64,
    pub(super) max_timestamp: Option<MaxTimestamp>,
}

impl<'a> Output<'a> {
    pub(super) fn create(
        dir: &'a Folder,
        base: i64,
        interval_bytes: u32,
    ) -> Result<Self, LogError> {
        let path = path_of(dir, base, CLEANED[0]);
        let file = dir.disk.create(&path).at("create", &path)?;
        let (tail, waiting) = (Tail::empty(), Vec::new());
        Ok(Self { dir, base, interval_bytes, file, tail, written: 0, waiting })
    }

    /// Takes note of the batch that was put at the end of `waiting`, and writes if that is enough.
    pub(super) fn note(&mut self, header: &BatchHeader) -> Result<(), LogError> {
        let end = self.written + self.waiting.len() as u64;
        if end > SEGMENT_BYTES_MAX {
            let file = path_of(self.dir, self.base, CLEANED[0]);
            let reason = "compacted it would be larger than 2 GiB; lower segment.bytes";
            return Err(LogError::Damaged { file, position: self.written, reason });
        }
        let position = end - header.size() as u64;
        self.tail.note(self.base, position, header, self.interval_bytes);
        if self.waiting.len() >= WRITE_BYTES { self.write() } else { Ok(()) }
    }

    fn write(&mut self) -> Result<(), LogError> {
        let path = path_of(self.dir, self.base, CLEANED[0]);
        self.file.write_all_at(&self.waiting, self.written).at("write", &path)?;
        self.written += self.waiting.len() as u64;
        self.waiting.clear();
        Ok(())
    }

    pub(super) fn size(&self) -> u64 {
        self.written + self.waiting.len() as u64
    }

    /// Writes what waits and the indexes, and makes the files durable; `modified`: when what it stands for was last written
    /// to, which retention may go by.
    pub(super) fn finish(mut self, modified: Option<SystemTime>) -> Result<Cleaned, LogError> {
        self.write()?;
        let (dir, base) = (self.dir, self.base);
        let path = path_of(dir, base, CLEANED[0]);
        if let Some(modified) = modified {
            // The one change that no `Disk` sees: it is no content.
            self.file.set_modified(modified).at("set the time of", &path)?;
        }
        self.file.sync_data().at("sync", &path)?;
        self.tail.note_time(base);
        let path = path_of(dir, base, CLEANED[1]);
        write_index(dir, &mut self.tail.index, &path)?;
        let path = path_of(dir, base, CLEANED[2]);
        write_index(dir, &mut self.tail.time, &path)?;
        sync_dir(&dir.disk, dir)?;
        Ok(Cleaned { base, size: self.written, max_timestamp: self.tail.max_timestamp })
    }
}

fn write_index<E: crate::index::Entry>(
    dir: &Folder,
    index: &mut SparseIndex<E>,
    path: &std::path::Path,
) -> Result<(), LogError> {
    // What an interrupted compaction left there may be longer.
    remove_if_there(&dir.disk, path)?;
    index.write_pending(&dir.disk, path).at("write", path)?;
    let file = dir.disk.open_to_read(path).at("open", path)?;
    file.sync_data().at("sync", path)
}

/// Removes the files of an output that comes to nothing. Best effort: opening the log removes them, or the next output
/// replaces them.
pub(super) fn discard(dir: &Folder, base: i64) {
    for kind in CLEANED {
        let _ = remove_if_there(&dir.disk, &path_of(dir, base, kind));
    }
}
