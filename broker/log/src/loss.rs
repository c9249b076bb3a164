//! What the log itself dropped: an offset range as exact as the bytes tell, and why.

use std::fs::File;
use std::io;

use barnabas_types::{LeaderEpoch, Offset};

use crate::batch::{BatchError, BatchHeader};
use crate::walk::{SCAN_CHUNK_BYTES, Step, Walk};

/// Records that were in this log, or were promised to be, and are not any more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Loss {
    /// The first offset that is gone, inclusive.
    pub from: Offset,
    /// Where it ends, exclusive; `None` if nothing tells (the bytes are damaged up to their end).
    pub to: Option<Offset>,
    /// Records below this offset (exclusive) are gone for sure; [`Loss::from`] if not even one is known.
    pub at_least_to: Offset,
    /// Bytes of segment files that were dropped; 0 if they were missing already.
    pub bytes: u64,
    /// The newest leader epoch among what is gone, as far as it could be read.
    pub last_epoch: Option<LeaderEpoch>,
    /// Why.
    pub cause: LossCause,
}

/// Why records are gone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum LossCause {
    /// Recovery found a batch that is torn, damaged or out of order, and cut there.
    Damaged(BatchError),
    /// The log ends below what its own checkpoints say was there: below the high watermark, or below what was flushed.
    Missing,
    /// [`crate::Log::truncate_to`].
    Truncated,
    /// [`crate::Log::reset_to`].
    Reset,
    /// The host went down without a stop, and what was appended after the last flush may never have reached the disk. It leaves
    /// no trace there: whoever knows of the crash says so, the log cannot.
    HostCrash,
    /// This replica was made the leader though it was no ISR member: what others acknowledged beyond its end may be lost. Whoever
    /// knows of the election says so, the log cannot.
    UncleanElection,
    /// The replica was moved away from a broker that led until then, and had acknowledged it alone. Whoever leads knows, the log does not.
    Removed,
    /// Nothing of the replica was found where it was held before: its directory was emptied, replaced or taken away. Whoever knows that
    /// it was held says so, the log cannot.
    DirectoryLost,
    /// A sync failed: what was written since the last good one does not count (R38).
    FailedSync,
}

impl Loss {
    /// `[from, to)`, known exactly.
    pub(crate) fn exact(
        from: i64,
        to: i64,
        bytes: u64,
        last_epoch: Option<LeaderEpoch>,
        cause: LossCause,
    ) -> Self {
        let (from, to) = (Offset(from), Offset(to));
        Self { from, to: Some(to), at_least_to: to, bytes, last_epoch, cause }
    }
}

impl Loss {
    /// Leaves out what lies below the log start: it was deleted. Returns whether anything is left.
    pub(crate) fn clip(&mut self, log_start: Offset) -> bool {
        self.from = self.from.max(log_start);
        self.at_least_to = self.at_least_to.max(self.from);
        self.to = self.to.map(|to| to.max(self.from));
        self.to != Some(self.from)
    }
}

/// A look at bytes that are about to be dropped.
#[derive(Debug)]
pub(crate) struct Survey {
    end: i64,
    epoch: Option<i32>,
    /// Whether the last bytes seen were whole batches.
    exact: bool,
}

impl Survey {
    pub(crate) fn new(from: i64) -> Self {
        Self { end: from, epoch: None, exact: true }
    }

    /// Takes note of `[position, size)` of a segment's file. Only batches with a right CRC say anything about offsets.
    pub(crate) fn look(&mut self, file: &File, position: u64, size: u64) -> io::Result<()> {
        let mut walk = Walk::new(file, size, position, SCAN_CHUNK_BYTES);
        loop {
            match walk.next()? {
                Step::Batch(at, header) => {
                    self.exact = self.goes_on(&header) && walk.crc(at, &header)? == header.crc;
                    if self.exact {
                        self.end = header.next_offset();
                        self.epoch = self.epoch.max(Some(header.partition_leader_epoch));
                    }
                }
                Step::Bad(..) => {
                    self.exact = false;
                    return Ok(());
                }
                Step::End => return Ok(()),
            }
        }
    }

    /// A later segment is named after this offset: records up to there were written once.
    pub(crate) fn name(&mut self, base: i64) {
        self.end = self.end.max(base);
    }

    fn goes_on(&self, header: &BatchHeader) -> bool {
        header.check_stored().is_ok()
            && header.base_offset >= self.end
            && self.epoch.is_none_or(|epoch| header.partition_leader_epoch >= epoch)
    }

    pub(crate) fn loss(&self, from: i64, bytes: u64, cause: LossCause) -> Loss {
        let end = Offset(self.end);
        Loss {
            from: Offset(from),
            to: self.exact.then_some(end),
            at_least_to: end,
            bytes,
            last_epoch: self.epoch.map(LeaderEpoch),
            cause,
        }
    }
}
