//! Appending: the leader's and the follower's, segment rolls, leader epochs, and taking back what a failed write left.

use barnabas_types::{Condition, LeaderEpoch, Offset};

use crate::batch::{BatchHeader, Batches};
use crate::check::{Fetched, check_fetched, stamp};
use crate::checkpoint::write_epochs;
use crate::error::{At as _, LogError};
use crate::log::Log;
use crate::producers::Admission;
use crate::segment::{Segment, Tail, path_of, remove_segment};

/// No segment grows beyond this: positions and relative offsets in the indexes are 32-bit and signed in Kafka.
const SEGMENT_BYTES_MAX: u64 = i32::MAX.unsigned_abs() as u64;

/// What an append came to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Appended {
    /// LEO after it, exclusive.
    pub log_end: Offset,
    /// A follower's append: the first offset of each run of leader epochs in the records. Empty for a leader's (its epoch is
    /// the one that it gave).
    pub epochs: Vec<(LeaderEpoch, Offset)>,
    /// A segment was sealed: flush soon, so that its descriptor is let go and the next recovery does not scan it.
    pub rolled: bool,
}

impl Log {
    /// Persists that `epoch` begins at `start`, before its first append. An epoch not newer than the latest changes nothing.
    ///
    /// Whole on disk after a crash of the process; synced with the next flush, before a flushed offset is claimed.
    ///
    /// # Errors
    /// [`LogError::Io`] (the log is fenced then), [`LogError::Fenced`].
    pub fn assign_epoch(&mut self, epoch: LeaderEpoch, start: Offset) -> Result<(), LogError> {
        self.ready()?;
        if self.epochs.assign(epoch, start) { self.write_epochs() } else { Ok(()) }
    }

    pub(crate) fn write_epochs(&mut self) -> Result<(), LogError> {
        self.names_changed += 1;
        write_epochs(&self.dir, &self.epochs).inspect_err(|_| self.fenced = true)
    }

    /// Whether a producer's batch is new, or in the log already (KIP-98). To be asked before [`Log::append`].
    ///
    /// # Errors
    /// [`Condition::OutOfOrderSequenceNumber`], [`Condition::InvalidProducerEpoch`].
    pub fn admit(&self, header: &BatchHeader) -> Result<Admission, Condition> {
        self.producers.admit(header)
    }

    /// The leader's append: stamps the batches (checked before by [`crate::validate_produce`]) with consecutive offsets from
    /// `base_offset` on and with the epoch, and writes them; they are in the file (page cache) when it returns.
    ///
    /// One write for the whole slice, unless a segment ends within it.
    ///
    /// # Errors
    /// [`LogError::NotAtEnd`], [`LogError::EpochDecreases`], [`LogError::Batch`]: nothing happened. [`LogError::Io`]: nothing
    /// of it counts, the file was cut back as far as possible, and the log is fenced.
    pub fn append(
        &mut self,
        records: &mut [u8],
        base_offset: Offset,
        leader_epoch: LeaderEpoch,
    ) -> Result<Appended, LogError> {
        self.ready()?;
        if base_offset.0 != self.log_end {
            return Err(LogError::NotAtEnd { found: base_offset, log_end: self.log_end() });
        }
        if let Some(latest) = self.epochs.latest().filter(|latest| leader_epoch < *latest) {
            return Err(LogError::EpochDecreases { found: leader_epoch, latest });
        }
        stamp(records, base_offset, leader_epoch)?;
        self.assign_epoch(leader_epoch, base_offset)?;
        let rolled = self.write(records)?;
        Ok(Appended { log_end: self.log_end(), epochs: Vec::new(), rolled })
    }

    /// A follower's append of a leader's records as they are: checks them ([`check_fetched`]), then [`Log::append_fetched`].
    ///
    /// # Errors
    /// As [`Log::append_fetched`], and [`LogError::Batch`] (nothing happened).
    pub fn append_as_follower(&mut self, records: &[u8]) -> Result<Appended, LogError> {
        self.append_fetched(check_fetched(records)?)
    }

    /// A follower's append of checked records. They must begin at the LEO, and their epochs must not be older than the log's.
    ///
    /// # Errors
    /// [`LogError::NotAtEnd`], [`LogError::EpochDecreases`]: nothing happened. [`LogError::Io`] as for [`Log::append`].
    pub fn append_fetched(&mut self, fetched: Fetched<'_>) -> Result<Appended, LogError> {
        self.ready()?;
        if fetched.base.0 != self.log_end {
            return Err(LogError::NotAtEnd { found: fetched.base, log_end: self.log_end() });
        }
        self.enter_epochs(&fetched.epochs)?;
        let rolled = self.write(fetched.bytes)?;
        Ok(Appended { log_end: self.log_end(), epochs: fetched.epochs, rolled })
    }

    fn enter_epochs(&mut self, runs: &[(LeaderEpoch, Offset)]) -> Result<(), LogError> {
        let Some(&(first, _)) = runs.first() else { return Ok(()) };
        let mut epochs = self.epochs.clone();
        if epochs.latest().is_some_and(|latest| latest > first) {
            // An epoch in which this replica led without a record gives way to the records of the elected log.
            epochs.truncate_from_end(self.log_end());
        }
        if let Some(latest) = epochs.latest().filter(|latest| first < *latest) {
            return Err(LogError::EpochDecreases { found: first, latest });
        }
        for &(epoch, start) in runs {
            epochs.assign(epoch, start);
        }
        if epochs == self.epochs {
            return Ok(());
        }
        self.epochs = epochs;
        self.write_epochs()
    }

    /// Writes whole, consecutive batches at the end. After an error nothing of them counts and the log is fenced.
    fn write(&mut self, records: &[u8]) -> Result<bool, LogError> {
        let (segments, size, log_end) = (self.segments.len(), self.active().size, self.log_end);
        match self.write_parts(records) {
            Ok(()) => Ok(self.segments.len() > segments),
            Err(error) => {
                self.fenced = true;
                self.cut_back(segments, size, log_end);
                Err(error)
            }
        }
    }

    fn write_parts(&mut self, records: &[u8]) -> Result<(), LogError> {
        let mut rest = records;
        while !rest.is_empty() {
            let fits = self.fitting(rest)?;
            if fits == 0 {
                self.roll()?;
                continue;
            }
            let (part, after) = rest.split_at(fits);
            let active = self.active();
            active
                .kept_file(&self.dir)?
                .write_all_at(part, active.size)
                .at("write", &path_of(&self.dir, active.base, "log"))?;
            self.note(part)?;
            rest = after;
        }
        Ok(())
    }

    /// How many leading bytes of the batches the active segment takes: whole batches; at least one if it is empty.
    fn fitting(&self, records: &[u8]) -> Result<usize, LogError> {
        let active = self.active();
        let index_full = self.tail.index.bytes() + 8 > u64::from(self.config.segment_index_bytes);
        let limit = if index_full {
            active.size
        } else {
            u64::from(self.config.segment_bytes).min(SEGMENT_BYTES_MAX)
        };
        let mut fits = 0;
        for batch in Batches::new(records) {
            let header = batch?.header;
            let after = active.size + (fits + header.size()) as u64;
            let first = active.size == 0 && fits == 0;
            let distance = header.last_offset() - active.base;
            if !first && (after > limit || distance > i64::from(i32::MAX)) {
                break;
            }
            fits += header.size();
        }
        Ok(fits)
    }

    /// Takes note of batches that were written at the end of the active segment.
    fn note(&mut self, records: &[u8]) -> Result<(), LogError> {
        let base = self.active().base;
        let mut position = self.active().size;
        for batch in Batches::new(records) {
            let header = batch?.header;
            self.tail.note(base, position, &header, self.config.index_interval_bytes);
            self.producers.note(&header);
            position += header.size() as u64;
            self.log_end = header.next_offset();
        }
        let log_end = self.log_end;
        let active = self.active_mut();
        active.size = position;
        active.end = log_end;
        self.snapshots.appended(records.len());
        if self.tail.index.is_due() {
            // The records are written; an index entry that cannot be is tried again with the next ones, and at the latest
            // fails the roll or the close.
            let _ = self.tail.write_indexes(&self.dir, base);
        }
        Ok(())
    }

    /// Seals the active segment and begins the next one at the LEO. Creates a file under the caller's lock; syncing its name
    /// is left to the next flush.
    fn roll(&mut self) -> Result<(), LogError> {
        let base = self.active().base;
        self.tail.note_time(base);
        self.tail.write_indexes(&self.dir, base)?;
        let next = Segment::create(&self.dir, self.log_end)?;
        let max_timestamp = self.tail.max_timestamp;
        let sealed = self.active_mut();
        let _ = sealed.max_timestamp.set(max_timestamp);
        sealed.indexes_unsynced = true;
        self.segments.push(next);
        self.tail = Tail::empty();
        self.names_changed += 1;
        self.write_snapshot(self.log_end);
        Ok(())
    }

    /// Best effort after a failed write: the log is fenced, and opening it again cuts what is left here.
    fn cut_back(&mut self, segments: usize, size: u64, log_end: i64) {
        for dropped in self.segments.drain(segments..).rev() {
            let _ = remove_segment(&self.dir, dropped.base);
        }
        // Batches before the failing one were noted; a repeated one must not be taken for one that is in the log.
        let noted = self.log_end > log_end;
        self.log_end = log_end;
        self.tail = Tail::empty();
        let dir = self.dir.clone();
        let active = self.active_mut();
        active.size = size;
        active.end = log_end;
        if let Ok(file) = active.kept_file(&dir) {
            let _ = file.set_len(size);
        }
        let cut = |log: &mut Self| {
            log.remove_snapshots_above(log_end)?;
            log.cut_producers(log_end)
        };
        if noted && cut(self).is_err() {
            self.producers.clear();
        }
    }
}
