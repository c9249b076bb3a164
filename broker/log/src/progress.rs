//! How far the opening of a data directory's logs has come, and the way to end it early.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::error::LogError;

/// How far the opening of logs has come: counters that any thread may read, and a stop switch.
#[derive(Debug, Default)]
pub struct RecoveryProgress {
    partitions_total: AtomicU64,
    partitions_done: AtomicU64,
    bytes_total: AtomicU64,
    bytes_done: AtomicU64,
    stopped: AtomicBool,
}

impl RecoveryProgress {
    /// Partitions that were on disk when the run began.
    #[must_use]
    pub fn partitions_total(&self) -> u64 {
        self.partitions_total.load(Ordering::Relaxed)
    }

    /// How many of them are open by now, or could not be opened.
    #[must_use]
    pub fn partitions_done(&self) -> u64 {
        self.partitions_done.load(Ordering::Relaxed)
    }

    /// Bytes to be scanned of the logs whose opening has begun; it grows with each that has to be scanned.
    #[must_use]
    pub fn bytes_total(&self) -> u64 {
        self.bytes_total.load(Ordering::Relaxed)
    }

    /// How many of them are scanned.
    #[must_use]
    pub fn bytes_done(&self) -> u64 {
        self.bytes_done.load(Ordering::Relaxed)
    }

    /// Ends every scan soon: openings under way, and later ones that would have to scan, fail with [`LogError::Stopped`].
    /// Nothing on disk is worse for it; what was opened before can still be flushed and closed.
    pub fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
    }

    pub(crate) fn check(&self) -> Result<(), LogError> {
        if self.stopped.load(Ordering::Relaxed) { Err(LogError::Stopped) } else { Ok(()) }
    }

    pub(crate) fn begin(&self, partitions: usize) {
        self.partitions_total.store(partitions as u64, Ordering::Relaxed);
        self.partitions_done.store(0, Ordering::Relaxed);
    }

    pub(crate) fn opened(&self) {
        let done = self.partitions_done.load(Ordering::Relaxed);
        // A partition that is made anew, or opened again, is none of those that were there.
        if done < self.partitions_total() {
            self.partitions_done.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(crate) fn add_bytes(&self, bytes: u64) {
        self.bytes_total.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn did_bytes(&self, bytes: u64) {
        self.bytes_done.fetch_add(bytes, Ordering::Relaxed);
    }
}
