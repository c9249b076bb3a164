//! Sparse indexes of a segment: `.index` (offset to position) and `.timeindex` (timestamp to offset), as Kafka writes them.
//!
//! New entries wait in memory and are written some at a time, so that a log needs no descriptor and no buffer for them while
//! it is idle. They are hints: whoever follows one checks it against the batch that it names.

use std::fs::File;
use std::io;
use std::path::Path;

use crate::cached::Wait;
use crate::disk::Disk;

/// Entries that wait before they are written to the file together.
const PENDING_MAX: usize = 64;
/// Entries that a lookup reads in one go once it has narrowed the file down.
const BLOCK_ENTRIES: u64 = 1024;

/// A fixed-size entry. Offsets are relative to the segment's base offset.
pub(crate) trait Entry: Copy {
    const BYTES: usize;
    fn put(self, out: &mut Vec<u8>);
    fn get(bytes: &[u8]) -> Self;
}

/// The batch whose last offset is `offset` begins at byte `position`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct OffsetEntry {
    pub(crate) offset: u32,
    pub(crate) position: u32,
}

/// Up to the batch whose last offset is `offset`, the greatest timestamp is `timestamp`; that batch has it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct TimeEntry {
    pub(crate) timestamp: i64,
    pub(crate) offset: u32,
}

fn part<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut out = [0; N];
    out.copy_from_slice(&bytes[at..at + N]);
    out
}

impl Entry for OffsetEntry {
    const BYTES: usize = 8;

    fn put(self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.offset.to_be_bytes());
        out.extend_from_slice(&self.position.to_be_bytes());
    }

    fn get(bytes: &[u8]) -> Self {
        Self {
            offset: u32::from_be_bytes(part(bytes, 0)),
            position: u32::from_be_bytes(part(bytes, 4)),
        }
    }
}

impl Entry for TimeEntry {
    const BYTES: usize = 12;

    fn put(self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.timestamp.to_be_bytes());
        out.extend_from_slice(&self.offset.to_be_bytes());
    }

    fn get(bytes: &[u8]) -> Self {
        Self {
            timestamp: i64::from_be_bytes(part(bytes, 0)),
            offset: u32::from_be_bytes(part(bytes, 8)),
        }
    }
}

/// One index file with the entries that are not written yet. The file may not exist: then it has no entry.
#[derive(Debug)]
pub(crate) struct SparseIndex<E> {
    written: u64,
    pending: Vec<E>,
    last: Option<E>,
}

impl<E: Entry> SparseIndex<E> {
    pub(crate) fn empty() -> Self {
        Self { written: 0, pending: Vec::new(), last: None }
    }

    /// Takes over what a file holds, without reading more than its last entry.
    pub(crate) fn load(path: &Path) -> io::Result<Self> {
        let file = match File::open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self::empty()),
            Err(error) => return Err(error),
        };
        let written = file.metadata()?.len() / E::BYTES as u64;
        let last =
            if written == 0 { None } else { Some(read_entry(&file, written - 1, Wait::ForDisk)?) };
        Ok(Self { written, pending: Vec::new(), last })
    }

    pub(crate) fn last(&self) -> Option<E> {
        self.last
    }

    /// Bytes that the file has or will have.
    pub(crate) fn bytes(&self) -> u64 {
        (self.written + self.pending.len() as u64) * E::BYTES as u64
    }

    pub(crate) fn push(&mut self, entry: E) {
        self.pending.push(entry);
        self.last = Some(entry);
    }

    /// Whether enough entries wait to be worth a write.
    pub(crate) fn is_due(&self) -> bool {
        self.pending.len() >= PENDING_MAX
    }

    /// Writes what waits; creates the file if need be. After an error the entries keep waiting.
    pub(crate) fn write_pending(&mut self, disk: &Disk, path: &Path) -> io::Result<()> {
        let file = disk.open_or_create(path)?;
        let mut bytes = Vec::with_capacity(self.pending.len() * E::BYTES);
        for entry in &self.pending {
            entry.put(&mut bytes);
        }
        file.write_all_at(&bytes, self.written * E::BYTES as u64)?;
        self.written += self.pending.len() as u64;
        self.pending = Vec::new();
        Ok(())
    }

    /// The last entry for which `wanted` holds, if any; `wanted` must hold for a prefix of the entries.
    pub(crate) fn find_last(
        &self,
        path: &Path,
        wait: Wait,
        wanted: impl Fn(&E) -> bool,
    ) -> io::Result<Option<E>> {
        match self.find_last_pending(&wanted) {
            None if self.written > 0 => {
                let file = IndexFile::open(path, wait)?;
                let found = file.map(|file| file.find_last(self.written, wait, &wanted));
                Ok(found.transpose()?.flatten().map(|(_, entry)| entry))
            }
            found => Ok(found),
        }
    }

    /// As [`SparseIndex::find_last`], if it is one of those that are not written yet.
    pub(crate) fn find_last_pending(&self, wanted: impl Fn(&E) -> bool) -> Option<E> {
        let after = self.pending.partition_point(wanted);
        self.pending.get(after.checked_sub(1)?).copied()
    }

    /// Entries in the file.
    pub(crate) fn written(&self) -> u64 {
        self.written
    }

    /// Keeps only the entries for which `wanted` holds (a prefix), in memory and in the file.
    pub(crate) fn keep_while(
        &mut self,
        disk: &Disk,
        path: &Path,
        wanted: impl Fn(&E) -> bool,
    ) -> io::Result<()> {
        let kept = self.pending.partition_point(&wanted);
        self.pending.truncate(kept);
        if kept == 0 {
            let file = IndexFile::open(path, Wait::ForDisk)?;
            let found = file.map(|file| file.find_last(self.written, Wait::ForDisk, &wanted));
            let found = found.transpose()?.flatten();
            let keep = found.map_or(0, |(at, _)| at + 1);
            match disk.open(path) {
                Ok(file) => file.set_len(keep * E::BYTES as u64)?,
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
            self.written = keep;
            self.last = found.map(|(_, entry)| entry);
        } else {
            self.last = self.pending.last().copied();
        }
        Ok(())
    }

    /// Forgets everything and removes the file.
    pub(crate) fn clear(&mut self, disk: &Disk, path: &Path) -> io::Result<()> {
        *self = Self::empty();
        match disk.remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }
}

fn read_entry<E: Entry>(file: &File, at: u64, wait: Wait) -> io::Result<E> {
    let mut bytes = [0; 16];
    let bytes = &mut bytes[..E::BYTES];
    wait.read_exact_at(file, bytes, at * E::BYTES as u64)?;
    Ok(E::get(bytes))
}

/// As [`SparseIndex::find_last`], for a segment that nobody writes to: all entries are in the file.
pub(crate) fn find_last_on_disk<E: Entry>(
    path: &Path,
    wait: Wait,
    wanted: impl Fn(&E) -> bool,
) -> io::Result<Option<E>> {
    let file = IndexFile::open(path, wait)?;
    let found = file.map(|file| file.find_last(u64::MAX, wait, &wanted));
    Ok(found.transpose()?.flatten().map(|(_, entry)| entry))
}

/// An index file, opened for one lookup or several.
#[derive(Debug)]
pub(crate) struct IndexFile {
    file: File,
    bytes: u64,
}

impl IndexFile {
    /// `None`: there is none.
    pub(crate) fn open(path: &Path, wait: Wait) -> io::Result<Option<Self>> {
        let file = match wait.open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let bytes = file.metadata()?.len();
        Ok(Some(Self { file, bytes }))
    }

    /// The last of the first `count` entries for which `wanted` holds, with its number.
    pub(crate) fn find_last<E: Entry>(
        &self,
        count: u64,
        wait: Wait,
        wanted: &impl Fn(&E) -> bool,
    ) -> io::Result<Option<(u64, E)>> {
        // Entries below `low` are wanted, those from `high` on are not.
        let (mut low, mut high) = (0, count.min(self.bytes / E::BYTES as u64));
        while high - low > BLOCK_ENTRIES {
            let middle = low + (high - low) / 2;
            if wanted(&read_entry(&self.file, middle, wait)?) {
                low = middle;
            } else {
                high = middle;
            }
        }
        let mut block = vec![0; usize::try_from(high - low).unwrap_or(0) * E::BYTES];
        wait.read_exact_at(&self.file, &mut block, low * E::BYTES as u64)?;
        let mut found = None;
        for (number, bytes) in (low..).zip(block.chunks_exact(E::BYTES)) {
            let entry = E::get(bytes);
            if !wanted(&entry) {
                break;
            }
            found = Some((number, entry));
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TempDir;

    #[test]
    fn lookups_find_every_entry_in_file_and_memory() {
        let dir = TempDir::new("index");
        let path = dir.path().join("x.index");
        let mut index = SparseIndex::empty();
        for i in 0..3000_u32 {
            index.push(OffsetEntry { offset: i * 10, position: i * 100 });
            if index.is_due() && i < 2900 {
                index.write_pending(&Disk::real(), &path).unwrap();
            }
        }
        assert!(!index.pending.is_empty() && index.written > 0);
        for target in [0, 9, 10, 5555, 28_790, 29_500, 29_990, 40_000] {
            let found =
                index.find_last(&path, Wait::ForDisk, |e| e.offset <= target).unwrap().unwrap();
            assert_eq!(found.offset, (target / 10 * 10).min(29_990), "target {target}");
        }
        assert_eq!(index.find_last(&path, Wait::ForDisk, |_| false).unwrap(), None);
        for keep in [29_500, 700, 0] {
            index.keep_while(&Disk::real(), &path, |e| e.offset <= keep).unwrap();
            assert_eq!(index.last().unwrap().offset, keep);
        }
        index.push(OffsetEntry { offset: 55, position: 5 });
        index.write_pending(&Disk::real(), &path).unwrap();
        let loaded = SparseIndex::<OffsetEntry>::load(&path).unwrap();
        assert_eq!((loaded.written, loaded.last().unwrap().offset), (2, 55));
    }
}
