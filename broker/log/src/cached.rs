//! Reads that do not wait for a disk: whoever must not be held up finds out first whether he would be.

use std::fs::{File, OpenOptions};
use std::io::{self, IoSliceMut};
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, openat2};
use rustix::io::{Errno, ReadWriteFlags, preadv2};

/// Between two bytes of a range that are asked for to know whether all of it is in the page cache: the kernel reads ahead, and
/// whoever warms a range reads, so much at once, and what came together goes together.
const PROBE_BYTES: usize = 128 << 10;

/// Whether a read may wait for the disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wait {
    /// As long as the disk takes.
    ForDisk,
    /// Not at all: what is not in memory is [`io::ErrorKind::WouldBlock`]. A file system that cannot tell is read as with
    /// [`Wait::ForDisk`].
    Never,
}

impl Wait {
    /// Opens a file that is there, for reading.
    ///
    /// # Errors
    /// From the operating system.
    pub(crate) fn open(self, path: &Path) -> io::Result<File> {
        match self {
            Self::ForDisk => File::open(path),
            Self::Never => open_cached(path, OFlags::RDONLY, File::options().read(true)),
        }
    }

    /// Reads exactly as many bytes as fit.
    ///
    /// # Errors
    /// From the operating system; [`io::ErrorKind::UnexpectedEof`] if the file ends before.
    pub(crate) fn read_exact_at(
        self,
        file: &File,
        bytes: &mut [u8],
        position: u64,
    ) -> io::Result<()> {
        if self == Self::ForDisk {
            return file.read_exact_at(bytes, position);
        }
        let mut done = 0;
        while done < bytes.len() {
            let (at, rest) = (position + done as u64, &mut bytes[done..]);
            match preadv2(file, &mut [IoSliceMut::new(rest)], at, ReadWriteFlags::NOWAIT) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(read) => done += read,
                Err(Errno::INTR) => {}
                Err(error) if cannot_tell(error) => return file.read_exact_at(rest, at),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}

/// Opens a file that is there, for reading and writing, if the disk need not be asked where it lies; otherwise
/// [`io::ErrorKind::WouldBlock`].
///
/// # Errors
/// From the operating system.
pub(crate) fn open_to_change(path: &Path) -> io::Result<File> {
    open_cached(path, OFlags::RDWR, File::options().read(true).write(true))
}

fn open_cached(path: &Path, flags: OFlags, otherwise: &OpenOptions) -> io::Result<File> {
    match openat2(CWD, path, flags | OFlags::CLOEXEC, Mode::empty(), ResolveFlags::CACHED) {
        Ok(file) => Ok(file.into()),
        Err(error) if cannot_tell(error) => otherwise.open(path),
        Err(error) => Err(error.into()),
    }
}

/// The kernel, or what filters its calls, does not know the question; or the file system does not.
fn cannot_tell(error: Errno) -> bool {
    [Errno::NOSYS, Errno::OPNOTSUPP, Errno::INVAL, Errno::PERM].contains(&error)
}

/// Whether a range of a file can be read without waiting for the disk, as far as bytes of it here and there tell. A range
/// that cannot be read is not cold: whoever reads it is told why.
pub(crate) fn is_cold(file: &File, position: u64, len: usize) -> bool {
    let last = len.saturating_sub(1);
    (0..last).step_by(PROBE_BYTES).chain([last]).any(|at| {
        let read = Wait::Never.read_exact_at(file, &mut [0], position + at as u64);
        read.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
    })
}
