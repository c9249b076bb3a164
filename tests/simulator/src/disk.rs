//! A broker's disk: survives a process crash whole (page cache) and a host crash without a random part of what was not flushed.

use std::collections::BTreeMap;

use barnabas_replica::LogState;
use barnabas_types::{DirectoryId, Incarnation, LeaderEpoch, LeaderEpochs, Offset, TopicPartition};

use crate::prng::Prng;

/// One record: `value` is unique in the world, so that two records never look alike.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Record {
    /// Leader epoch stamped into its batch.
    pub epoch: LeaderEpoch,
    /// The payload.
    pub value: u64,
    /// czxid of the topic for which it was produced (invariant T).
    pub topic_czxid: i64,
}

/// The directory of one partition.
#[derive(Clone, Debug)]
pub struct Directory {
    /// From the partition metadata file; decides whether the directory is stray (R28).
    pub incarnation: Incarnation,
    /// Records from offset 0.
    pub records: Vec<Record>,
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

    /// What opening it after an unclean stop says: flushed is the recovery point (R16).
    #[must_use]
    pub fn open(&self) -> LogState {
        LogState {
            log_start: Offset(0),
            log_end: self.log_end(),
            flushed: self.recovery_point.min(self.log_end()),
            high_watermark: self.high_watermark.min(self.log_end()),
            epochs: self.epochs.clone(),
        }
    }

    /// Epoch of the last record.
    #[must_use]
    pub fn last_epoch(&self) -> Option<LeaderEpoch> {
        self.records.last().map(|r| r.epoch)
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
    /// Partitions.
    pub directories: BTreeMap<TopicPartition, Directory>,
}

impl Disk {
    /// An empty disk.
    #[must_use]
    pub fn new(directory_id: DirectoryId) -> Self {
        Self { directory_id, boot: 1, last_boot: 1, tail_lost: false, directories: BTreeMap::new() }
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
            let gone = directory.read(end, directory.log_end()).0;
            directory.truncate(end);
            if !gone.is_empty() {
                lost.push((partition.clone(), gone));
            }
        }
        lost
    }

    /// A process starts: it marks a tail that a host crash may have cost (R6, R7). `true` if the mark is set.
    pub fn start(&mut self) -> bool {
        if self.boot != self.last_boot {
            self.tail_lost = true;
            self.last_boot = self.boot;
        }
        self.tail_lost
    }
}
