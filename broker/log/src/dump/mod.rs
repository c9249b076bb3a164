//! Reads the files of a data directory, of a partition, or one of them, and says what is in them and where they are damaged.
//!
//! A pure reader: it takes no lock and changes nothing, so it may look at the directory of a running broker. What it finds
//! goes to the caller item by item, so that memory does not grow with the files. It never panics on what the files hold.

mod directory;
mod index;
mod item;
mod records;
mod segment;
mod text;

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

pub use item::{
    Batch, FileEnd, Item, Kind, OffsetEntry, Partition, Record, Shown, TimeEntry, Unshown, Wrong,
};

use crate::segment::path_of;

/// What to look at.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Options {
    /// Of a file: the records of its batches too. Of a directory: what is in its files too.
    pub deep: bool,
}

/// How many things were not as they should be.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Outcome {
    /// [`Item::Damage`]s.
    pub damaged: u64,
    /// [`Item::Incomplete`]s: ends of files that a broker may be writing.
    pub incomplete: u64,
}

/// Why nothing, or not all, could be dumped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DumpError {
    /// The operating system refused.
    #[error("cannot read {}: {source}", path.display())]
    Io {
        /// Of which file or directory.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// No file of a data directory has such a name.
    #[error(
        "{} is no file of a data directory (.log, .index, .timeindex, .txnindex, .snapshot, a checkpoint, partition.metadata, \
         meta.properties)",
        .0.display()
    )]
    UnknownFile(PathBuf),
    /// Neither a data directory nor a partition's.
    #[error(
        "{} holds neither partitions nor segments; name a data directory (one of log.dirs), a partition's directory, or a file",
        .0.display()
    )]
    UnknownDirectory(PathBuf),
}

/// Dumps a file, a partition's directory, or a data directory; `sink` gets what is found, in order.
///
/// # Errors
/// [`DumpError`]: what was found before stands.
pub fn dump(
    path: &Path,
    options: Options,
    sink: &mut dyn FnMut(&Item<'_>),
) -> Result<Outcome, DumpError> {
    let is_dir = std::fs::metadata(path).map_err(|source| io_error(path, source))?.is_dir();
    let mut out = Out { sink, outcome: Outcome::default(), muted: false };
    if is_dir {
        directory::dump(path, options, &mut out)?;
    } else {
        let kind = Kind::of(path).ok_or_else(|| DumpError::UnknownFile(path.to_owned()))?;
        dump_file(path, kind, options, &mut out)?;
    }
    Ok(out.outcome)
}

fn dump_file(
    path: &Path,
    kind: Kind,
    options: Options,
    out: &mut Out<'_>,
) -> Result<FileEnd, DumpError> {
    let file = File::open(path).map_err(|source| io_error(path, source))?;
    let size_bytes = file.metadata().map_err(|source| io_error(path, source))?.len();
    let input = Input { path, file, size_bytes };
    out.always(&Item::File { path, kind, size_bytes });
    let end = match kind {
        Kind::Log => segment::dump(&input, options, out),
        Kind::OffsetIndex => index::dump_offsets(&input, out),
        Kind::TimeIndex => index::dump_times(&input, out),
        Kind::TransactionIndex => index::dump_transactions(&input, out),
        Kind::Snapshot => index::dump_snapshot(&input, out),
        Kind::LeaderEpochs => text::dump_epochs(&input, out),
        Kind::OffsetCheckpoint => text::dump_offsets(&input, out),
        Kind::MetaProperties => text::dump_properties(&input, '=', text::META, out),
        Kind::PartitionMetadata => text::dump_properties(&input, ':', text::PARTITION, out),
    };
    let end = end.map_err(|source| io_error(path, source))?;
    out.always(&Item::FileEnd(&end));
    Ok(end)
}

fn io_error(path: &Path, source: io::Error) -> DumpError {
    DumpError::Io { path: path.to_owned(), source }
}

/// Where findings go.
struct Out<'a> {
    sink: &'a mut dyn FnMut(&Item<'_>),
    outcome: Outcome,
    /// Only what is wrong, and what is summed up, goes on.
    muted: bool,
}

impl Out<'_> {
    /// A piece of a file's content.
    fn content(&mut self, item: &Item<'_>) {
        if !self.muted {
            (self.sink)(item);
        }
    }

    fn always(&mut self, item: &Item<'_>) {
        (self.sink)(item);
    }

    fn damage(&mut self, position: u64, last_good_offset: Option<i64>, wrong: Wrong) {
        self.outcome.damaged += 1;
        (self.sink)(&Item::Damage { position, last_good_offset, wrong });
    }

    fn incomplete(&mut self, position: u64, bytes: u64, last_good_offset: Option<i64>) {
        self.outcome.incomplete += 1;
        (self.sink)(&Item::Incomplete { position, bytes, last_good_offset });
    }
}

/// A file that is being read.
struct Input<'a> {
    path: &'a Path,
    file: File,
    /// When it was opened: it may grow meanwhile.
    size_bytes: u64,
}

impl Input<'_> {
    /// The base offset in the name of a segment's file.
    fn base(&self) -> Option<i64> {
        base_of(self.path)
    }

    /// Whether a broker may be writing to the file: it has grown since it was opened, or no segment follows in the directory.
    fn is_growing(&self) -> io::Result<bool> {
        if self.file.metadata()?.len() > self.size_bytes {
            return Ok(true);
        }
        let (Some(base), Some(dir)) = (self.base(), self.path.parent()) else { return Ok(true) };
        let dir = if dir.as_os_str().is_empty() { Path::new(".") } else { dir };
        for entry in std::fs::read_dir(dir)? {
            let path = entry?.path();
            if Kind::of(&path) == Some(Kind::Log) && base_of(&path).is_some_and(|b| b > base) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The `.log` beside this file; `None` if there is none.
    fn log(&self) -> io::Result<Option<(File, u64)>> {
        let (Some(base), Some(dir)) = (self.base(), self.path.parent()) else { return Ok(None) };
        match File::open(path_of(dir, base, "log")) {
            Ok(file) => {
                let size = file.metadata()?.len();
                Ok(Some((file, size)))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// Reads as much as there is; how much.
fn read_up_to(file: &File, bytes: &mut [u8], position: u64) -> io::Result<usize> {
    let mut read = 0;
    while read < bytes.len() {
        match file.read_at(&mut bytes[read..], position + read as u64) {
            Ok(0) => break,
            Ok(count) => read += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(read)
}

/// The number that a segment's file is named after.
fn base_of(path: &Path) -> Option<i64> {
    let stem = path.file_stem()?.to_str()?;
    (stem.len() == 20 && stem.bytes().all(|b| b.is_ascii_digit())).then(|| stem.parse().ok())?
}
