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

/// What is known of one key of the log. `None`: a doubt, that is a commit whose append ended with an unknown outcome
/// while nothing was committed. Nobody reads it, but the log may have it, so a deletion must delete it there.
pub(crate) type Held = Option<CommittedOffset>;

/// Offsets by topic and partition, and doubts.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Offsets {
    held: BTreeMap<Arc<str>, BTreeMap<i32, Held>>,
    doubts: usize,
}

impl Offsets {
    /// Neither offsets nor doubts.
    pub(crate) fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    pub(crate) fn get(&self, topic: &str, partition: i32) -> Option<&CommittedOffset> {
        self.held(topic, partition)?.as_ref()
    }

    /// What a deletion of the key would delete, at the most; `None`: nothing.
    pub(crate) fn held(&self, topic: &str, partition: i32) -> Option<&Held> {
        self.held.get(topic)?.get(&partition)
    }

    /// How many keys are in doubt.
    pub(crate) fn doubts(&self) -> usize {
        self.doubts
    }

    pub(crate) fn put(&mut self, topic: Arc<str>, partition: i32, offset: CommittedOffset) {
        let old = self.held.entry(topic).or_default().insert(partition, Some(offset));
        self.doubts -= usize::from(old == Some(None));
    }

    /// A commit ended with an unknown outcome. An offset that is held says enough: its deletion is ordered behind.
    pub(crate) fn doubt(&mut self, topic: Arc<str>, partition: i32) {
        self.held.entry(topic).or_default().entry(partition).or_insert_with(|| {
            self.doubts += 1;
            None
        });
    }

    pub(crate) fn remove(&mut self, topic: &str, partition: i32) {
        if let Some(partitions) = self.held.get_mut(topic) {
            self.doubts -= usize::from(partitions.remove(&partition) == Some(None));
            if partitions.is_empty() {
                self.held.remove(topic);
            }
        }
    }

    /// Those in doubt too, as in all that follows but [`Offsets::iter`].
    pub(crate) fn topics(&self) -> impl Iterator<Item = &Arc<str>> {
        self.held.keys()
    }

    pub(crate) fn partitions(&self, topic: &str) -> impl Iterator<Item = i32> {
        self.held.get(topic).into_iter().flat_map(|partitions| partitions.keys().copied())
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = (&Arc<str>, i32, &Held)> {
        self.held.iter().flat_map(|(topic, partitions)| {
            partitions.iter().map(move |(partition, held)| (topic, *partition, held))
        })
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Arc<str>, i32, &CommittedOffset)> {
        self.keys().filter_map(|(topic, partition, held)| Some((topic, partition, held.as_ref()?)))
    }
}
