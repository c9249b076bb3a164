//! The one way in which this crate changes a file system: every create, write, cut, sync, rename and removal goes through a
//! [`Disk`], so that a test can refuse, shorten or forget any of them; so does the opening of whatever is written or synced.
//! Reads are plain `std`.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::ops::Deref;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// One change, before or after it was made.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Op<'a> {
    /// A file is opened for writing; it is made if it is not there, and emptied if `truncate`.
    Create {
        /// Which file.
        path: &'a Path,
        /// Whether old content goes.
        truncate: bool,
    },
    /// A file or directory that is there is opened, to be written or synced. This changes nothing.
    Open(&'a Path),
    /// A directory is made.
    CreateDir(&'a Path),
    /// Bytes are written at a position.
    Write {
        /// Which file.
        path: &'a Path,
        /// First byte.
        position: u64,
        /// What is written there: after a shortened write, only what was.
        bytes: &'a [u8],
    },
    /// A file's length is set.
    SetLen {
        /// Which file.
        path: &'a Path,
        /// Its length from then on, in bytes.
        len: u64,
    },
    /// A file's data and length are made durable (fdatasync).
    SyncData(&'a Path),
    /// The names in a directory are made durable.
    SyncDir(&'a Path),
    /// Everything in the file system that holds this file is made durable (syncfs).
    SyncFilesystem(&'a Path),
    /// A name is given to what another one named, replacing what was there.
    Rename {
        /// The old name.
        from: &'a Path,
        /// The new one.
        to: &'a Path,
    },
    /// A file's name goes.
    Remove(&'a Path),
    /// A directory goes with all that is in it.
    RemoveDirAll(&'a Path),
}

/// What becomes of a change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// It is made.
    Perform,
    /// It is not made, and success is reported: a disk that lies.
    Pretend,
    /// Only so many bytes of a write are written, 1 or more and fewer than all; the rest is asked about as a write of its
    /// own. Other changes are made.
    Shorten(usize),
}

/// Sees every change of a [`Disk`]: for tests.
pub trait Faults: Send + Sync + std::fmt::Debug {
    /// Before it is made.
    ///
    /// # Errors
    /// The error that the change is refused with; nothing is done then.
    fn before(&self, op: &Op<'_>) -> io::Result<Verdict>;

    /// After it was made successfully.
    fn after(&self, op: &Op<'_>);
}

/// How files are changed: as they are, or under the eyes of some [`Faults`].
#[derive(Clone, Debug, Default)]
pub struct Disk(Option<Arc<dyn Faults>>);

impl Disk {
    /// The operating system's files, nothing in between.
    #[must_use]
    pub fn real() -> Self {
        Self(None)
    }

    /// The operating system's files, where `faults` sees every change and may refuse it.
    #[must_use]
    pub fn with_faults(faults: Arc<dyn Faults>) -> Self {
        Self(Some(faults))
    }

    /// Makes one change; `make` is not called if it is only pretended.
    fn perform(&self, op: Op<'_>, make: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        let Some(faults) = &self.0 else { return make() };
        if faults.before(&op)? != Verdict::Pretend {
            make()?;
            faults.after(&op);
        }
        Ok(())
    }

    fn watched(&self, file: File, path: &Path) -> DiskFile {
        let watched = self
            .0
            .as_ref()
            .map(|faults| Box::new(Watched { path: path.to_owned(), faults: Arc::clone(faults) }));
        DiskFile { file, watched }
    }

    fn open_with(&self, path: &Path, truncate: bool) -> io::Result<DiskFile> {
        let mut options = File::options();
        options.read(true).write(true).create(true).truncate(truncate);
        let mut opened = None;
        self.perform(Op::Create { path, truncate }, || {
            opened = Some(options.open(path)?);
            Ok(())
        })?;
        let file = match opened {
            Some(file) => file,
            None => File::options().read(true).write(true).open(path)?,
        };
        Ok(self.watched(file, path))
    }

    /// Makes the file, or empties it if it is there, for reading and writing.
    ///
    /// # Errors
    /// From the operating system.
    pub fn create(&self, path: &Path) -> io::Result<DiskFile> {
        self.open_with(path, true)
    }

    /// Opens the file for reading and writing; makes it if it is not there.
    ///
    /// # Errors
    /// From the operating system.
    pub fn open_or_create(&self, path: &Path) -> io::Result<DiskFile> {
        self.open_with(path, false)
    }

    /// Opens a file that is there, for reading and writing.
    ///
    /// # Errors
    /// From the operating system.
    pub fn open(&self, path: &Path) -> io::Result<DiskFile> {
        self.open_there(path, File::options().read(true).write(true))
    }

    /// As [`Disk::open`]; [`io::ErrorKind::WouldBlock`] if the disk would have to be asked where it lies.
    pub(crate) fn open_cached(&self, path: &Path) -> io::Result<DiskFile> {
        let file = crate::cached::open_to_change(path)?;
        Ok(self.watched(file, path))
    }

    /// Opens a file that is there, for reading and syncing.
    ///
    /// # Errors
    /// From the operating system.
    pub fn open_to_read(&self, path: &Path) -> io::Result<DiskFile> {
        self.open_there(path, File::options().read(true))
    }

    fn open_there(&self, path: &Path, options: &OpenOptions) -> io::Result<DiskFile> {
        if let Some(faults) = &self.0 {
            faults.before(&Op::Open(path))?;
        }
        Ok(self.watched(options.open(path)?, path))
    }

    /// Gives a file or directory another name in the same file system; a file that has it already is replaced.
    ///
    /// # Errors
    /// From the operating system.
    pub fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.perform(Op::Rename { from, to }, || fs::rename(from, to))
    }

    /// Removes a file.
    ///
    /// # Errors
    /// From the operating system.
    pub fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.perform(Op::Remove(path), || fs::remove_file(path))
    }

    /// Makes a directory.
    ///
    /// # Errors
    /// From the operating system.
    pub fn create_dir(&self, path: &Path) -> io::Result<()> {
        self.perform(Op::CreateDir(path), || fs::create_dir(path))
    }

    /// Removes a directory with all that is in it.
    ///
    /// # Errors
    /// From the operating system.
    pub fn remove_dir_all(&self, path: &Path) -> io::Result<()> {
        self.perform(Op::RemoveDirAll(path), || fs::remove_dir_all(path))
    }

    /// Makes the names in a directory durable.
    ///
    /// # Errors
    /// From the operating system.
    pub fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.perform(Op::SyncDir(path), || File::open(path)?.sync_all())
    }

    /// Makes everything in the file system of `file` durable, other files too (syncfs). Since Linux 5.8 a failed write-back
    /// of any of its files since `file` was opened is reported: it must then be taken for an error of each file that was
    /// to be synced.
    ///
    /// # Errors
    /// From the operating system.
    pub fn sync_filesystem(&self, file: &DiskFile) -> io::Result<()> {
        let path = file.watched.as_ref().map_or(Path::new(""), |w| &w.path);
        self.perform(Op::SyncFilesystem(path), || Ok(rustix::fs::syncfs(&file.file)?))
    }
}

/// A file opened through a [`Disk`]. Reads go straight to the [`File`] that it dereferences to; changes go through its own
/// methods.
#[derive(Debug)]
pub struct DiskFile {
    file: File,
    watched: Option<Box<Watched>>,
}

#[derive(Debug)]
struct Watched {
    path: PathBuf,
    faults: Arc<dyn Faults>,
}

impl Deref for DiskFile {
    type Target = File;

    fn deref(&self) -> &File {
        &self.file
    }
}

impl AsFd for DiskFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl DiskFile {
    fn perform<'a>(
        &'a self,
        op: impl FnOnce(&'a Path) -> Op<'a>,
        make: impl FnOnce(&File) -> io::Result<()>,
    ) -> io::Result<()> {
        let Some(watched) = &self.watched else { return make(&self.file) };
        let op = op(&watched.path);
        if watched.faults.before(&op)? != Verdict::Pretend {
            make(&self.file)?;
            watched.faults.after(&op);
        }
        Ok(())
    }

    /// Writes all the bytes at `position`. After an error any number of them may be in the file.
    ///
    /// # Errors
    /// From the operating system.
    pub fn write_all_at(&self, bytes: &[u8], position: u64) -> io::Result<()> {
        let Some(watched) = &self.watched else { return self.file.write_all_at(bytes, position) };
        let (mut rest, mut position) = (bytes, position);
        while !rest.is_empty() {
            let op = |bytes| Op::Write { path: &watched.path, position, bytes };
            let count = match watched.faults.before(&op(rest))? {
                Verdict::Pretend => return Ok(()),
                Verdict::Perform => rest.len(),
                Verdict::Shorten(count) => count.clamp(1, rest.len()),
            };
            let (part, after) = rest.split_at(count);
            self.file.write_all_at(part, position)?;
            watched.faults.after(&op(part));
            (rest, position) = (after, position + count as u64);
        }
        Ok(())
    }

    /// Cuts or lengthens the file.
    ///
    /// # Errors
    /// From the operating system.
    pub fn set_len(&self, len: u64) -> io::Result<()> {
        self.perform(|path| Op::SetLen { path, len }, |file| file.set_len(len))
    }

    /// Makes data and length durable (fdatasync). Never repeat it after an error: the kernel reports a failed write-back once
    /// and then forgets it (R38).
    ///
    /// # Errors
    /// From the operating system.
    pub fn sync_data(&self) -> io::Result<()> {
        self.perform(Op::SyncData, File::sync_data)
    }

    /// Makes the names in this directory durable; see [`Disk::sync_dir`].
    ///
    /// # Errors
    /// From the operating system.
    pub fn sync_names(&self) -> io::Result<()> {
        self.perform(Op::SyncDir, File::sync_all)
    }
}

/// A partition's directory on its disk.
#[derive(Clone, Debug)]
pub(crate) struct Folder {
    pub(crate) path: PathBuf,
    pub(crate) disk: Disk,
}

impl Deref for Folder {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.path
    }
}
