//! One log directory while the broker runs: online or offline, and how much room it has.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use barnabas_log::{LogDir, LogError};
use rustix::fs::{Advice, fadvise};

use super::led_file::LedFile;
use super::readers::Readers;
use super::space::Space;
use crate::journal::Journal;

/// A file that is written, synced and read to find out whether a directory still can be.
const PROBE: &str = "barnabas.probe";
/// What it holds.
const PROBED: &[u8; 5] = b"probe";

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
    pub(super) space: Space,
    readers: Readers,
    led: LedFile,
    /// Where losses are written before they happen; none before the broker has it.
    journal: OnceLock<Arc<Journal>>,
}

impl Directory {
    /// `offline` says why it is not to be used.
    pub(super) fn new(
        index: usize,
        path: PathBuf,
        log_dir: Option<LogDir>,
        offline: Option<String>,
        led: LedFile,
    ) -> Self {
        let unread = offline.is_some();
        let offline = offline.map_or_else(OnceLock::new, OnceLock::from);
        let (space, readers) = (Space::default(), Readers::default());
        let journal = OnceLock::new();
        Self { index, path, log_dir, offline, unread, space, readers, led, journal }
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

    pub(super) fn tells_losses_to(&self, journal: Arc<Journal>) {
        // Once for all.
        let _ = self.journal.set(journal);
    }

    /// Where a loss is to be written before it happens.
    #[must_use]
    pub fn journal(&self) -> Option<&Journal> {
        self.journal.get().map(Arc::as_ref)
    }

    /// What its leaders note.
    #[must_use]
    pub fn led(&self) -> &LedFile {
        &self.led
    }

    /// Who reads from its disk what is not in the page cache.
    pub(crate) fn readers(&self) -> &Readers {
        &self.readers
    }

    /// Writes, syncs and reads a small file: an error means that the directory as a whole is of no use, not only one log in it.
    ///
    /// # Errors
    /// From the operating system; a full disk too, which is no fault ([`LogError::shortage`]).
    pub fn probe(&self) -> Result<(), LogError> {
        let Some(log_dir) = self.usable() else { return Ok(()) };
        let path = self.path.join(PROBE);
        barnabas_log::replace_durably(log_dir.disk(), &path, PROBED)?;
        read_back(&path).map_err(|source| LogError::Io { what: "read", path, source })
    }
}

/// From the disk itself: what has just been synced is let go of in memory first, as far as the system obliges.
fn read_back(path: &Path) -> io::Result<()> {
    let mut file = File::open(path)?;
    let _ = fadvise(&file, 0, None, Advice::DontNeed);
    let mut bytes = [0; PROBED.len()];
    file.read_exact(&mut bytes)?;
    if bytes == *PROBED { Ok(()) } else { Err(io::ErrorKind::InvalidData.into()) }
}
