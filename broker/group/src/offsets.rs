//! The committed offsets of one group.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::record::OffsetCommit;

/// What a group committed for one partition.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CommittedOffset {
    /// Next offset to read.
    pub offset: i64,
    /// Leader epoch of the last record read, if the client told it.
    pub leader_epoch: Option<i32>,
    /// The client's own text.
    pub metadata: String,
    /// Wall clock, ms.
    pub commit_timestamp_ms: i64,
    /// Wall clock, ms: from when on it may go, in place of the broker's retention; only if the client asked for it
    /// (OffsetCommit 2-4).
    pub expire_timestamp_ms: Option<i64>,
}

impl From<OffsetCommit> for CommittedOffset {
    fn from(record: OffsetCommit) -> Self {
        Self {
            offset: record.offset,
            leader_epoch: record.leader_epoch,
            metadata: record.metadata,
            commit_timestamp_ms: record.commit_timestamp_ms,
            expire_timestamp_ms: record.expire_timestamp_ms,
        }
    }
}

impl CommittedOffset {
    pub(crate) fn record(&self) -> OffsetCommit {
        OffsetCommit {
            offset: self.offset,
            leader_epoch: self.leader_epoch,
            metadata: self.metadata.clone(),
            commit_timestamp_ms: self.commit_timestamp_ms,
            expire_timestamp_ms: self.expire_timestamp_ms,
        }
    }
}

/// Offsets by topic and partition.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Offsets(BTreeMap<Arc<str>, BTreeMap<i32, CommittedOffset>>);

impl Offsets {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn get(&self, topic: &str, partition: i32) -> Option<&CommittedOffset> {
        self.0.get(topic)?.get(&partition)
    }

    pub(crate) fn put(&mut self, topic: Arc<str>, partition: i32, offset: CommittedOffset) {
        self.0.entry(topic).or_default().insert(partition, offset);
    }

    pub(crate) fn remove(&mut self, topic: &str, partition: i32) {
        if let Some(partitions) = self.0.get_mut(topic) {
            partitions.remove(&partition);
            if partitions.is_empty() {
                self.0.remove(topic);
            }
        }
    }

    pub(crate) fn topics(&self) -> impl Iterator<Item = &Arc<str>> {
        self.0.keys()
    }

    pub(crate) fn partitions(&self, topic: &str) -> impl Iterator<Item = i32> {
        self.0.get(topic).into_iter().flat_map(|partitions| partitions.keys().copied())
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Arc<str>, i32, &CommittedOffset)> {
        self.0.iter().flat_map(|(topic, partitions)| {
            partitions.iter().map(move |(partition, offset)| (topic, *partition, offset))
        })
    }
}
