//! Everything that can go wrong in the log.

use std::io;
use std::path::{Path, PathBuf};

use barnabas_types::{Condition, LeaderEpoch, Offset};
use rustix::io::Errno;

use crate::batch::BatchError;

/// Everything that can go wrong in the log. The text says what is wrong and, where there is one, the remedy.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LogError {
    /// The operating system refused.
    #[error("cannot {what} {}: {source}", path.display())]
    Io {
        /// What was tried, as a verb.
        what: &'static str,
        /// On which file or directory.
        path: PathBuf,
        /// Why it was refused.
        source: io::Error,
    },
    /// The disk is full (or its quota is): nothing happened, and the same call works again once there is room.
    #[error(
        "cannot write {}: the disk is full; appends resume by themselves when there is room (add space, or lower \
         retention.bytes or retention.ms)",
        .0.display()
    )]
    Full(PathBuf),
    /// The process has no file descriptor left (or the system has none): nothing happened, and the same call works again once
    /// there is one.
    #[error(
        "cannot open {}: no file descriptor is left; appends resume by themselves when there is one (raise the limit of \
         open files, ulimit -n, or lower max.connections)",
        .0.display()
    )]
    NoDescriptor(PathBuf),
    /// [`crate::RecoveryProgress::stop`] was called.
    #[error("the recovery of this log was stopped before its end; the next start does it")]
    Stopped,
    /// The directory is locked by a living process.
    #[error(
        "another process uses this data directory, {}; stop it, or set log.dirs to another folder",
        .0.display()
    )]
    DirectoryInUse(PathBuf),
    /// `meta.properties` names another broker or cluster than this one.
    #[error(
        "{}: {key} is '{found}' there, but this broker runs with '{expected}'; start it with the setting that the \
         directory was written with, or set log.dirs to an empty folder",
        file.display()
    )]
    MetaMismatch {
        /// The `meta.properties` file.
        file: PathBuf,
        /// Which of its keys.
        key: &'static str,
        /// What the file says.
        found: String,
        /// What the broker was started with.
        expected: String,
    },
    /// `meta.properties` cannot be understood.
    #[error(
        "{}: {reason}; restore the file, or set log.dirs to an empty folder (the replicas come back from the other \
         brokers)",
        file.display()
    )]
    MetaDamaged {
        /// The `meta.properties` file.
        file: PathBuf,
        /// What is wrong.
        reason: &'static str,
    },
    /// The directory was written in a format that is newer than this version knows; nothing in it was changed.
    #[error(
        "{} is of version {version}, and this version of barnabas knows {known} at most: the directory was used by a newer one; \
         start that one again (CHANGELOG.md says which versions can go back)",
        file.display()
    )]
    NewerFormat {
        /// The `meta.properties` file.
        file: PathBuf,
        /// What it says.
        version: String,
        /// The newest version that is read.
        known: u32,
    },
    /// An earlier write or sync failed: nothing is taken until the log is opened anew, which cuts it to its last whole batch.
    #[error(
        "an earlier write or sync of this log failed; it takes nothing until it is opened again"
    )]
    Fenced,
    /// A flush plan of this log is still out: at most one at a time, because an error is reported to one sync only.
    #[error("a flush of this log is in flight")]
    FlushInFlight,
    /// Bytes that are no legal batches.
    #[error(transparent)]
    Batch(#[from] BatchError),
    /// An append that does not begin at the log end offset.
    #[error("the append begins at offset {found}, but the log ends at {log_end}")]
    NotAtEnd {
        /// Where the append begins.
        found: Offset,
        /// The LEO, exclusive.
        log_end: Offset,
    },
    /// An append with an older leader epoch than the log's last.
    #[error("the append has leader epoch {found}, but the log is at {latest}")]
    EpochDecreases {
        /// Epoch of the append.
        found: LeaderEpoch,
        /// The log's newest.
        latest: LeaderEpoch,
    },
    /// An offset outside the log.
    #[error("offset {asked} is outside [{start}, {end}]")]
    OffsetOutOfRange {
        /// What was asked for.
        asked: Offset,
        /// First offset, inclusive.
        start: Offset,
        /// LEO, the highest legal offset.
        end: Offset,
    },
    /// A stored segment does not hold what its names and sizes promise.
    #[error("{}: damaged at byte {position}: {reason}", file.display())]
    Damaged {
        /// The `.log` file.
        file: PathBuf,
        /// Where.
        position: u64,
        /// What is wrong.
        reason: &'static str,
    },
}

impl LogError {
    /// Whether it only says that the disk would have to be waited for ([`crate::Wait::Never`]).
    pub(crate) fn is_cold(&self) -> bool {
        matches!(self, Self::Io { source, .. } if source.kind() == io::ErrorKind::WouldBlock)
    }

    /// The condition that a client is told.
    #[must_use]
    pub fn condition(&self) -> Condition {
        match self {
            Self::Batch(error) => error.condition(),
            Self::OffsetOutOfRange { asked, start, end } => {
                Condition::OffsetOutOfRange { asked: *asked, start: *start, end: *end }
            }
            Self::Full(_) => Condition::LogDirFull,
            Self::NoDescriptor(_) => Condition::NoDescriptorLeft,
            _ => Condition::KafkaStorageError,
        }
    }

    /// What there is not enough of at the moment; `None` if something is wrong.
    #[must_use]
    pub fn shortage(&self) -> Option<Shortage> {
        match self {
            Self::Full(_) => Some(Shortage::Room),
            Self::NoDescriptor(_) => Some(Shortage::Descriptors),
            Self::Io { source, .. } => Shortage::of(source),
            _ => None,
        }
    }

    /// See [`is_disk_fault`].
    #[must_use]
    pub fn is_disk_fault(&self) -> bool {
        matches!(self, Self::Io { source, .. } if is_disk_fault(source))
    }

    /// [`LogError::Full`] or [`LogError::NoDescriptor`] if that is what it is: for steps that leave everything as it was then.
    pub(crate) fn or_shortage(self) -> Self {
        match (self.shortage(), self) {
            (Some(Shortage::Room), Self::Io { path, .. }) => Self::Full(path),
            (Some(Shortage::Descriptors), Self::Io { path, .. }) => Self::NoDescriptor(path),
            (_, other) => other,
        }
    }
}

/// Whether a read failed because the disk does not give what was written to it: no later try makes that good, and what lies beside
/// it is to be doubted too.
#[must_use]
pub fn is_disk_fault(error: &io::Error) -> bool {
    let faults = [Errno::IO, Errno::NXIO, Errno::UCLEAN].map(Errno::raw_os_error);
    error.raw_os_error().is_some_and(|raw| faults.contains(&raw))
}

/// Something of which there may be enough again in a moment: no reason to take a log for broken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shortage {
    /// The disk is full, or its quota is.
    Room,
    /// The process or the system has no file descriptor left.
    Descriptors,
}

impl Shortage {
    fn of(error: &io::Error) -> Option<Self> {
        let no_descriptor = [Errno::MFILE, Errno::NFILE].map(Errno::raw_os_error);
        match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Some(Self::Room),
            _ if error.raw_os_error().is_some_and(|raw| no_descriptor.contains(&raw)) => {
                Some(Self::Descriptors)
            }
            _ => None,
        }
    }
}

/// Puts the path and the attempt to an I/O error.
pub(crate) trait At<T> {
    fn at(self, what: &'static str, path: &Path) -> Result<T, LogError>;
}

impl<T> At<T> for io::Result<T> {
    fn at(self, what: &'static str, path: &Path) -> Result<T, LogError> {
        self.map_err(|source| LogError::Io { what, path: path.to_owned(), source })
    }
}
