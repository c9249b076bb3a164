//! A broker's disk: survives a process crash whole (page cache) and a host crash without a random part of what was not flushed.

use std::collections::BTreeMap;

use barnabas_replica::LogState;
use barnabas_types::{DirectoryId, Incarnation, LeaderEpoch, LeaderEpochs, Offset, TopicPartition};

use crate::prng::Prng;

/// One record: `value` is unique in the world, so that two records never look alike.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Record {
    /// Leader epoch stamped into its batch.
    pub epoch: LeaderEpoch,
    /// The payload.
    pub value: u64,
    /// czxid of the topic for which it was produced (invariant T).
    pub topic_czxid: i64,
}

impl Record {
    /// What stands where a record was deleted, or was never fetched because it was deleted before.
    pub const HOLE: Record = Record { epoch: LeaderEpoch(-1), value: 0, topic_czxid: 0 };

    /// Whether nothing is here any more.
    #[must_use]
    pub fn is_hole(&self) -> bool {
        self.value == 0
    }

    /// Whether two logs agree here: a deleted record contradicts nothing.
    #[must_use]
    pub fn agrees(&self, other: &Record) -> bool {
        self == other || self.is_hole() || other.is_hole()
    }
}

/// The directory of one partition.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Directory {
    /// From the partition metadata file; decides whether the directory is stray (R28).
    pub incarnation: Incarnation,
    /// Records from offset 0; below the log start there may be holes.
    pub records: Vec<Record>,
    /// Where the log begins as the running process has it: also an order that is not durable yet.
    pub log_start: Offset,
    /// Log-start checkpoint, inclusive.
    pub log_start_checkpoint: Offset,
    /// Base of the first segment: nothing below it is there any more, whatever the checkpoint says.
    pub base: Offset,
    /// Leader-epoch checkpoint.
    pub epochs: LeaderEpochs,
    /// Exclusive end of what survives a host crash for certain.
    pub durable: Offset,
    /// Recovery point checkpoint, exclusive; at most `durable`.
    pub recovery_point: Offset,
    /// High-watermark checkpoint, exclusive.
    pub high_watermark: Offset,
    /// Grows with every truncation: a flush that began before it proves nothing afterwards.
    pub truncations: u64,
}

impl Directory {
    /// An empty log.
    #[must_use]
    pub fn new(incarnation: Incarnation) -> Self {
        Self {
            incarnation,
            records: Vec::new(),
            log_start: Offset(0),
            log_start_checkpoint: Offset(0),
            base: Offset(0),
            epochs: LeaderEpochs::new(),
            durable: Offset(0),
            recovery_point: Offset(0),
            high_watermark: Offset(0),
            truncations: 0,
        }
    }

    /// LEO, exclusive.
    #[must_use]
    pub fn log_end(&self) -> Offset {
        Offset(self.records.len() as i64)
    }

    /// What opening it after an unclean stop says: flushed is the recovery point (R16); a log that ends below its start is
    /// begun anew there, for the start never goes back (R32).
    #[must_use]
    pub fn open(&mut self) -> LogState {
        self.log_start = self.log_start_checkpoint.max(self.base);
        if self.log_end() <= self.log_start {
            // What is left was deleted already. The epoch that covers the start says how far the log had come (R8).
            self.epochs.truncate_from_end(Offset(self.log_start.0 + 1));
            if self.log_end() < self.log_start {
                self.empty_at(self.log_start);
            }
        } else {
            self.epochs.truncate_from_end(self.log_end());
        }
        self.epochs.truncate_from_start(self.log_start);
        LogState {
            log_start: self.log_start,
            log_end: self.log_end(),
            flushed: self.recovery_point.min(self.log_end()),
            high_watermark: self.high_watermark.min(self.log_end()).max(self.log_start),
            epochs: self.epochs.clone(),
        }
    }

    /// Epoch of the last record.
    #[must_use]
    pub fn last_epoch(&self) -> Option<LeaderEpoch> {
        let last = self.records.last().filter(|_| self.log_start < self.log_end());
        last.filter(|r| !r.is_hole()).map(|r| r.epoch)
    }

    /// What of the start survives a crash of the process: the checkpoint, or the name of the first segment.
    #[must_use]
    pub fn durable_start(&self) -> Offset {
        self.log_start_checkpoint.max(self.base)
    }

    /// Drops everything and begins an empty log at `start` (R35).
    pub fn reset(&mut self, start: Offset) {
        self.empty_at(start);
        self.epochs = LeaderEpochs::new();
        self.log_start = start;
        self.base = start;
    }

    fn empty_at(&mut self, start: Offset) {
        self.records.clear();
        self.records.resize(usize::try_from(start.0).unwrap_or(0), Record::HOLE);
        self.durable = start;
        self.recovery_point = start;
        self.high_watermark = start;
        self.truncations += 1;
    }

    /// The log-start checkpoint is written; segments below it may go now.
    pub fn start_written(&mut self, to: Offset, segments_go: bool) {
        self.log_start_checkpoint = to;
        if segments_go && to > self.base {
            self.base = to;
            let end = usize::try_from(to.0).unwrap_or(0).min(self.records.len());
            self.records[..end].fill(Record::HOLE);
        }
    }

    /// Appends one record and keeps the epoch checkpoint in step.
    pub fn append(&mut self, record: Record) {
        let offset = self.log_end();
        self.epochs.assign(record.epoch, offset);
        self.records.push(record);
    }

    /// Cuts to the exclusive end `end`.
    pub fn truncate(&mut self, end: Offset) {
        if end > self.log_end() {
            return;
        }
        self.records.truncate(usize::try_from(end.0).unwrap_or(0));
        self.epochs.truncate_from_end(end);
        self.durable = self.durable.min(end);
        self.recovery_point = self.recovery_point.min(end);
        self.high_watermark = self.high_watermark.min(end);
        self.truncations += 1;
    }

    /// Loses what is above `end`, which is told; the epoch checkpoint, a file of its own, is settled when it is opened.
    pub fn cut(&mut self, end: Offset) -> Vec<Record> {
        let mut gone = self.read(end, self.log_end()).0;
        gone.retain(|record| !record.is_hole());
        let epochs = self.epochs.clone();
        self.truncate(end);
        self.epochs = epochs;
        gone
    }

    /// Everything below `to` is on the disk.
    pub fn flushed(&mut self, to: Offset) {
        self.durable = self.durable.max(to.min(self.log_end()));
        self.recovery_point = self.durable;
    }

    /// The records in `[from, to)` and the first offset of each epoch's run among them.
    #[must_use]
    pub fn read(&self, from: Offset, to: Offset) -> (Vec<Record>, Vec<(LeaderEpoch, Offset)>) {
        let first = usize::try_from(from.0).unwrap_or(0).min(self.records.len());
        let last = usize::try_from(to.0).unwrap_or(0).clamp(first, self.records.len());
        let records = self.records[first..last].to_vec();
        let mut runs: Vec<(LeaderEpoch, Offset)> = Vec::new();
        for (index, record) in records.iter().enumerate() {
            if runs.last().is_none_or(|(epoch, _)| *epoch != record.epoch) {
                runs.push((record.epoch, Offset(from.0 + index as i64)));
            }
        }
        (records, runs)
    }
}

/// All that a broker keeps when its process dies.
#[derive(Clone, Debug)]
pub struct Disk {
    /// Id of the log directory.
    pub directory_id: DirectoryId,
    /// Names one boot of the host.
    pub boot: u64,
    /// The boot under which the last process ran; another one without a clean marker = tail maybe lost.
    pub last_boot: u64,
    /// The durable mark of R7.
    pub tail_lost: bool,
    /// The last process flushed everything before it ended.
    pub clean: bool,
    /// There is no room for records now.
    pub full: bool,
    /// The next sync of a log fails.
    pub sync_fails: bool,
    /// Partitions.
    pub directories: BTreeMap<TopicPartition, Directory>,
}

impl Disk {
    /// An empty disk.
    #[must_use]
    pub fn new(directory_id: DirectoryId) -> Self {
        Self {
            directory_id,
            boot: 1,
            last_boot: 1,
            tail_lost: false,
            clean: false,
            full: false,
            sync_fails: false,
            directories: BTreeMap::new(),
        }
    }

    /// The host dies: each log keeps a random length between what is durable and its end.
    /// Returns what was lost, by partition.
    pub fn lose_tails(&mut self, prng: &mut Prng) -> Vec<(TopicPartition, Vec<Record>)> {
        self.boot += 1;
        let mut lost = Vec::new();
        for (partition, directory) in &mut self.directories {
            let at_risk = (directory.log_end().0 - directory.durable.0) as u64;
            // All of it as often as not: half-way cuts are the rarer case.
            let kept = if prng.chance(500) { 0 } else { prng.range(0, at_risk) };
            let end = Offset(directory.durable.0 + kept as i64);
            let gone = directory.cut(end);
            if !gone.is_empty() {
                lost.push((partition.clone(), gone));
            }
        }
        lost
    }

    /// A process starts: it marks a tail that a host crash may have cost (R6, R7). `true` if the mark is set.
    pub fn start(&mut self) -> bool {
        let clean = std::mem::take(&mut self.clean);
        if self.boot != self.last_boot {
            self.tail_lost |= !clean;
            self.last_boot = self.boot;
        }
        self.tail_lost
    }
}
