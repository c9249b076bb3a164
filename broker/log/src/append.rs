//! Appending: the leader's and the follower's, segment rolls, leader epochs, and taking back what a failed write left.

use std::sync::Arc;

use barnabas_types::{Condition, LeaderEpoch, LeaderEpochs, Offset};

use crate::batch::{BatchHeader, Batches};
use crate::check::{Fetched, check_fetched, stamp};
use crate::checkpoint::write_epochs;
use crate::error::{At as _, LogError, Shortage};
use crate::files::sync_dir;
use crate::log::Log;
use crate::producers::Admission;
use crate::recovery::{From, scan};
use crate::roll::timestamp_of;
use crate::segment::{Segment, Tail, path_of, remove_segment};

/// No segment grows beyond this: positions and relative offsets in the indexes are 32-bit and signed in Kafka.
const SEGMENT_BYTES_MAX: u64 = i32::MAX.unsigned_abs() as u64;

/// Where an append may end early for want of a file descriptor.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stop {
    /// All of it or nothing: a producer is answered for the whole.
    Nowhere,
    /// Where the next segment begins: a follower fetches the rest again.
    BetweenSegments,
}

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
    /// Bytes that were written, those of files beside the segment not counted.
    pub bytes: u64,
}

impl Log {
    /// Persists that `epoch` begins at `start`, before its first append. An epoch not newer than the latest changes nothing.
    ///
    /// Whole on disk after a crash of the process; synced with the next flush, before a flushed offset is claimed.
    ///
    /// # Errors
    /// [`LogError::Full`], [`LogError::NoDescriptor`]: nothing happened. [`LogError::Io`] (the log is fenced then),
    /// [`LogError::Fenced`].
    pub fn assign_epoch(&mut self, epoch: LeaderEpoch, start: Offset) -> Result<(), LogError> {
        self.ready()?;
        self.settle_epochs()?;
        let last = self.epochs.entries().last();
        if last.is_some_and(|last| last.epoch == epoch && last.start_offset <= start) {
            return Ok(());
        }
        let mut epochs = self.epochs.clone();
        if epochs.assign(epoch, start) { self.store_epochs(epochs) } else { Ok(()) }
    }

    /// Writes these epochs and, if that worked, takes them over. In a shortage nothing happens.
    pub(crate) fn store_epochs(&mut self, epochs: LeaderEpochs) -> Result<(), LogError> {
        self.names_changed += 1;
        match write_epochs(&self.dir, &epochs) {
            Ok(()) => {
                self.epochs = epochs;
                self.epochs_stale = false;
                Ok(())
            }
            Err(error) => {
                self.fenced |= error.shortage().is_none();
                Err(error.or_shortage())
            }
        }
    }

    /// Writes the epoch checkpoint if a shortage kept it from being written before.
    pub(crate) fn settle_epochs(&mut self) -> Result<(), LogError> {
        if self.epochs_stale { self.store_epochs(self.epochs.clone()) } else { Ok(()) }
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
    /// [`LogError::NotAtEnd`], [`LogError::EpochDecreases`], [`LogError::Batch`]: nothing happened. [`LogError::Full`],
    /// [`LogError::NoDescriptor`]: nothing happened, and the same append works once there is enough again. [`LogError::Io`]:
    /// nothing of it counts, the file was cut back as far as possible, and the log is fenced.
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
        let rolled = self.write(records, Stop::Nowhere)?;
        let bytes = records.len() as u64;
        Ok(Appended { log_end: self.log_end(), epochs: Vec::new(), rolled, bytes })
    }

    /// A follower's append of a leader's records as they are: checks them ([`check_fetched`]), then [`Log::append_fetched`].
    ///
    /// # Errors
    /// As [`Log::append_fetched`], and [`LogError::Batch`] (nothing happened).
    pub fn append_as_follower(&mut self, records: &[u8]) -> Result<Appended, LogError> {
        self.append_fetched(check_fetched(records)?)
    }

    /// A follower's append of checked records. They must begin at the LEO or after it (records between were compacted away),
    /// and their epochs must not be older than the log's.
    ///
    /// An empty log that begins at S (after [`Log::reset_to`]) also takes a first batch that begins below S and ends above:
    /// its records below S were deleted. The log start stays S.
    ///
    /// Without a file descriptor for the next segment the batches that go before it are appended, and no more.
    ///
    /// # Errors
    /// [`LogError::NotAtEnd`], [`LogError::EpochDecreases`], [`LogError::Full`], [`LogError::NoDescriptor`]: nothing happened.
    /// [`LogError::Io`] as for [`Log::append`].
    pub fn append_fetched(&mut self, fetched: Fetched<'_>) -> Result<Appended, LogError> {
        self.ready()?;
        self.settle_epochs()?;
        let base = fetched.base.0;
        if base < self.log_end && !self.takes_below_start(&fetched) {
            return Err(LogError::NotAtEnd { found: fetched.base, log_end: self.log_end() });
        }
        let mut epochs = self.enter_epochs(&fetched.epochs)?;
        if base < self.active().base {
            self.name_after(base)?;
        }
        let rolled = self.write(fetched.bytes, Stop::BetweenSegments)?;
        let log_end = self.log_end();
        epochs.retain(|(_, start)| *start < log_end);
        Ok(Appended { log_end, epochs, rolled, bytes: fetched.bytes.len() as u64 })
    }

    /// Whether the log is empty and its start lies inside the first batch.
    fn takes_below_start(&self, fetched: &Fetched<'_>) -> bool {
        let empty = self.segments.len() == 1 && self.active().size == 0;
        let reaches = |header: BatchHeader| header.next_offset() > self.log_start;
        empty && BatchHeader::parse(fetched.bytes).is_ok_and(reaches)
    }

    /// Names the empty log's only segment after a batch that begins below the log start.
    fn name_after(&mut self, base: i64) -> Result<(), LogError> {
        let created = Segment::create(&self.dir, base);
        let mut segment = created.map_err(|error| {
            self.fenced |= error.shortage().is_none();
            error.or_shortage()
        })?;
        segment.end = self.log_end;
        let old = self.active().base;
        self.names_changed += 1;
        self.segments = vec![segment];
        self.tail = Tail::empty();
        // If it stays, opening the log drops it: it begins before the one before it ends.
        let _ = remove_segment(&self.dir, old);
        Ok(())
    }

    /// Takes note of the records' epochs; returns them as the log counts them.
    fn enter_epochs(
        &mut self,
        runs: &[(LeaderEpoch, Offset)],
    ) -> Result<Vec<(LeaderEpoch, Offset)>, LogError> {
        let start = self.log_start();
        let runs: Vec<_> = runs.iter().map(|&(epoch, from)| (epoch, from.max(start))).collect();
        let Some(&(first, _)) = runs.first() else { return Ok(runs) };
        let mut epochs = self.epochs.clone();
        if epochs.latest().is_some_and(|latest| latest > first) {
            // An epoch in which this replica led without a record gives way to the records of the elected log.
            epochs.truncate_from_end(self.log_end());
        }
        if let Some(latest) = epochs.latest().filter(|latest| first < *latest) {
            return Err(LogError::EpochDecreases { found: first, latest });
        }
        for &(epoch, start) in &runs {
            epochs.assign(epoch, start);
        }
        if epochs != self.epochs {
            self.store_epochs(epochs)?;
        }
        Ok(runs)
    }

    /// Writes whole, consecutive batches at the end; whether a segment was sealed. After an error nothing of them counts;
    /// unless it was a shortage and everything could be taken back, the log is fenced.
    fn write(&mut self, records: &[u8], stop: Stop) -> Result<bool, LogError> {
        let (segments, size, log_end) = (self.segments.len(), self.active().size, self.log_end);
        match self.write_parts(records) {
            Ok(()) => Ok(self.segments.len() > segments),
            // Files are opened before and after a write, never within one.
            Err(error) if error.shortage() == Some(Shortage::Descriptors) => {
                if self.log_end == log_end && self.segments.len() == segments {
                    return Err(error.or_shortage());
                }
                if stop == Stop::BetweenSegments {
                    self.forget_epochs_above_end();
                    return Ok(self.segments.len() > segments);
                }
                // Taking back needs descriptors too. Nothing of it is acknowledged; the log that is opened again has the batches
                // that were written, whole. Clients send single batches, which never get here.
                self.fenced = true;
                Err(error)
            }
            Err(error) => {
                let taken_back = self.take_back(segments, size, log_end);
                if error.shortage().is_some() && taken_back.is_ok() {
                    return Err(error.or_shortage());
                }
                self.fenced = true;
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
        let limit = if index_full || active.is_cut {
            active.size
        } else {
            u64::from(self.config.segment_bytes).min(SEGMENT_BYTES_MAX)
        };
        let mut first_timestamp = self.first_timestamp()?;
        let mut fits = 0;
        for batch in Batches::new(records) {
            let header = batch?.header;
            let after = active.size + (fits + header.size()) as u64;
            let first = active.size == 0 && fits == 0;
            let distance = header.last_offset() - active.base;
            let apart_ms = first_timestamp.map_or(0, |at| header.max_timestamp.saturating_sub(at));
            let due = apart_ms > self.config.roll_ms();
            if !first && (after > limit || distance > i64::from(i32::MAX) || due) {
                break;
            }
            if first {
                first_timestamp = timestamp_of(&header);
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
    pub(crate) fn roll(&mut self) -> Result<(), LogError> {
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
        self.snapshot_at_roll();
        Ok(())
    }

    /// After a failed write: back to the state before it. After an error here opening the log again cuts what is left.
    fn take_back(&mut self, segments: usize, size: u64, log_end: i64) -> Result<(), LogError> {
        // Batches before the failing one were noted; a repeated one must not be taken for one that is in the log.
        let noted = self.log_end > log_end;
        self.log_end = log_end;
        let dropped: Vec<Segment> = self.segments.drain(segments..).collect();
        self.active_mut().cut(log_end, size);
        self.tail = Tail::empty();
        for segment in dropped.iter().rev() {
            remove_segment(&self.dir, segment.base)?;
        }
        let active = self.active();
        let path = path_of(&self.dir, active.base, "log");
        let file = Arc::clone(active.kept_file(&self.dir)?);
        file.set_len(size).at("truncate", &path)?;
        // The next append has the same offset, perhaps in the same epoch: after a loss of power it must not be these bytes
        // that are found there.
        self.sync_cut(&file, &path)?;
        if !dropped.is_empty() {
            sync_dir(&self.dir.disk, &self.dir)?;
        }
        let scanned = scan(&self.dir, active, &self.config, From::EntryBelow(log_end))?;
        if scanned.size != size {
            return Err(active.damaged(&self.dir, scanned.size, "no whole batch"));
        }
        self.tail = scanned.tail;
        self.forget_epochs_above_end();
        if noted {
            self.remove_snapshots_above(log_end)
                .and_then(|()| self.cut_producers(log_end))
                .inspect_err(|_| self.producers.clear())?;
        }
        Ok(())
    }

    /// Later epochs of a follower's append that did not come to be, or not yet.
    fn forget_epochs_above_end(&mut self) {
        let mut epochs = self.epochs.clone();
        epochs.truncate_from_end(Offset(self.log_end.saturating_add(1)));
        self.epochs_stale |= epochs != self.epochs;
        self.epochs = epochs;
    }
}
