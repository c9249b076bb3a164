//! One log directory while the broker runs: online or offline, and how much room it has.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use barnabas_log::{LogDir, LogError};

use super::readers::Readers;

/// A file that is written and synced to find out whether a directory still can be.
const PROBE: &str = "barnabas.probe";

/// How much room there is in a directory's file system, measured by `log.dir.reserve.bytes`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(u8)]
pub enum Room {
    /// Twice the reserve or more.
    Enough = 0,
    /// Less than twice the reserve: somebody should see to it.
    Low = 1,
    /// Less than the reserve: leaders refuse produces; followers, retention and deletions go on.
    Exhausted = 2,
}

/// One of `log.dirs`.
#[derive(Debug)]
pub struct Directory {
    index: usize,
    path: PathBuf,
    /// `None` if it could not be locked or read at the start.
    log_dir: Option<LogDir>,
    /// Why it is offline; once it is, it stays so until the broker restarts: what it holds may be anything.
    offline: OnceLock<String>,
    unread: bool,
    room: AtomicU8,
    free_bytes: AtomicU64,
    total_bytes: AtomicU64,
    readers: Readers,
}

impl Directory {
    /// `offline` says why it is not to be used.
    pub(super) fn new(
        index: usize,
        path: PathBuf,
        log_dir: Option<LogDir>,
        offline: Option<String>,
    ) -> Self {
        let unread = offline.is_some();
        let offline = offline.map_or_else(OnceLock::new, OnceLock::from);
        let room = AtomicU8::new(Room::Enough as u8);
        let (free_bytes, total_bytes) = (AtomicU64::new(u64::MAX), AtomicU64::new(u64::MAX));
        let readers = Readers::default();
        Self { index, path, log_dir, offline, unread, room, free_bytes, total_bytes, readers }
    }

    pub(super) fn into_log_dir(self) -> Option<LogDir> {
        self.log_dir
    }

    /// Its place in `log.dirs`, from 0.
    #[must_use]
    pub fn index(&self) -> usize {
        self.index
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The directory itself, also if it has failed since the start.
    #[must_use]
    pub fn log_dir(&self) -> Option<&LogDir> {
        self.log_dir.as_ref()
    }

    /// The directory itself, if it is online.
    #[must_use]
    pub fn usable(&self) -> Option<&LogDir> {
        self.log_dir.as_ref().filter(|_| self.offline.get().is_none())
    }

    /// Why it is offline; `None`: it is online.
    #[must_use]
    pub fn offline_reason(&self) -> Option<&str> {
        self.offline.get().map(String::as_str)
    }

    /// Whether it was offline from the start on, so that nobody knows what it holds.
    #[must_use]
    pub fn was_never_read(&self) -> bool {
        self.unread
    }

    /// Takes it out of use until the broker restarts. `false` if it was offline already.
    pub fn fail(&self, reason: String) -> bool {
        self.offline.set(reason).is_ok()
    }

    /// Who reads from its disk what is not in the page cache.
    pub(crate) fn readers(&self) -> &Readers {
        &self.readers
    }

    /// Writes and syncs a small file: an error means that the directory as a whole is of no use, not only one log in it.
    ///
    /// # Errors
    /// From the operating system; a full disk too, which is no fault ([`LogError::is_full`]).
    pub fn probe(&self) -> Result<(), LogError> {
        let Some(log_dir) = self.usable() else { return Ok(()) };
        let path = self.path.join(PROBE);
        barnabas_log::replace_durably(log_dir.disk(), &path, b"probe")
    }

    /// How much room there is, as of the last look.
    #[must_use]
    pub fn room(&self) -> Room {
        match self.room.load(Ordering::Relaxed) {
            0 => Room::Enough,
            1 => Room::Low,
            _ => Room::Exhausted,
        }
    }

    /// Whether leaders here refuse produces for want of room.
    #[must_use]
    pub fn refuses_produces(&self) -> bool {
        self.room() == Room::Exhausted
    }

    /// Bytes that are free, as of the last look; `None` before it.
    #[must_use]
    pub fn free_bytes(&self) -> Option<u64> {
        Some(self.free_bytes.load(Ordering::Relaxed)).filter(|bytes| *bytes != u64::MAX)
    }

    /// Bytes of its file system, as of the last look; `None` before it.
    #[must_use]
    pub fn total_bytes(&self) -> Option<u64> {
        Some(self.total_bytes.load(Ordering::Relaxed)).filter(|bytes| *bytes != u64::MAX)
    }

    pub(super) fn set_total(&self, total_bytes: u64) {
        self.total_bytes.store(total_bytes, Ordering::Relaxed);
    }

    /// Takes note of a look; returns the room before it.
    pub(super) fn set_free(&self, free_bytes: u64, reserve_bytes: u64) -> Room {
        let before = self.room();
        let room = if free_bytes < reserve_bytes {
            Room::Exhausted
        } else if free_bytes < reserve_bytes.saturating_mul(2) {
            Room::Low
        } else {
            Room::Enough
        };
        self.free_bytes.store(free_bytes, Ordering::Relaxed);
        self.room.store(room as u8, Ordering::Relaxed);
        before
    }
}
