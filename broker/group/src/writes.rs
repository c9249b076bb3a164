//! Appends that were ordered and are not settled yet, in log order.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use bytes::Bytes;

use crate::answer::Answer;
use crate::error::{AppendError, GroupError};
use crate::event::{Waiter, WriteId};
use crate::offsets::CommittedOffset;

/// What an append is for; done when it is acknowledged.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Purpose {
    /// The leader's assignment of a generation.
    Assignment { group: Arc<str>, assignments: Vec<(Arc<str>, Bytes)> },
    /// A group is empty.
    Empty { group: Arc<str> },
    /// Static members under new ids.
    Rejoins { group: Arc<str> },
    /// Offsets, with the answer in case of success.
    Commit {
        group: Arc<str>,
        waiter: Waiter,
        offsets: Vec<(Arc<str>, i32, CommittedOffset)>,
        results: Vec<Result<(), GroupError>>,
    },
    /// Deletions.
    Tombstones(Tombstones),
}

/// What one append deletes.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct Tombstones {
    pub(crate) offsets: Vec<(Arc<str>, Arc<str>, i32)>,
    pub(crate) groups: Vec<Arc<str>>,
    /// Who waits, with the answer in case of success.
    pub(crate) answer: Option<(Waiter, Answer)>,
    /// Try again if it fails: nobody else will ask for it.
    pub(crate) retry: bool,
}

/// One append.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Write {
    pub(crate) id: WriteId,
    pub(crate) purpose: Purpose,
    result: Option<Result<(), AppendError>>,
}

/// All of them. Completions may come in any order; they are settled in that of the log, so that memory goes through the
/// states that a replay of the log would.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct Writes {
    next: u64,
    queue: VecDeque<Write>,
}

impl Writes {
    pub(crate) fn order(&mut self, purpose: Purpose) -> WriteId {
        let id = WriteId(self.next);
        self.next += 1;
        self.queue.push_back(Write { id, purpose, result: None });
        id
    }

    /// Notes a completion. Unknown and repeated ones say nothing new; `false` for them.
    pub(crate) fn complete(&mut self, id: WriteId, result: Result<(), AppendError>) -> bool {
        let found = self.queue.binary_search_by_key(&id, |write| write.id);
        match found {
            Ok(index) if self.queue[index].result.is_none() => {
                self.queue[index].result = Some(result);
                true
            }
            Ok(_) | Err(_) => false,
        }
    }

    /// The oldest write, if it is complete.
    pub(crate) fn settled(&mut self) -> Option<(Write, Result<(), AppendError>)> {
        let result = self.queue.front()?.result?;
        self.queue.pop_front().map(|write| (write, result))
    }

    /// All that were ordered, for the end.
    pub(crate) fn take(&mut self) -> impl Iterator<Item = Write> {
        std::mem::take(&mut self.queue).into_iter()
    }

    #[cfg(test)]
    pub(crate) fn purpose(&self, id: WriteId) -> Option<&Purpose> {
        self.queue.iter().find(|write| write.id == id).map(|write| &write.purpose)
    }

    pub(crate) fn len(&self) -> usize {
        self.queue.len()
    }

    /// Offsets whose commit is not settled: group, topic, partition.
    pub(crate) fn commits(&self) -> impl Iterator<Item = (&Arc<str>, &Arc<str>, i32)> {
        self.queue.iter().flat_map(|write| {
            let commit = match &write.purpose {
                Purpose::Commit { group, offsets, .. } => Some((group, offsets)),
                Purpose::Assignment { .. }
                | Purpose::Empty { .. }
                | Purpose::Rejoins { .. }
                | Purpose::Tombstones(_) => None,
            };
            commit.into_iter().flat_map(|(group, offsets)| {
                offsets.iter().map(move |(topic, partition, _)| (group, topic, *partition))
            })
        })
    }

    /// Groups of which something is not settled.
    pub(crate) fn groups(&self) -> BTreeSet<Arc<str>> {
        let mut groups = BTreeSet::new();
        for write in &self.queue {
            match &write.purpose {
                Purpose::Assignment { group, .. }
                | Purpose::Empty { group }
                | Purpose::Rejoins { group }
                | Purpose::Commit { group, .. } => {
                    groups.insert(group.clone());
                }
                Purpose::Tombstones(tombstones) => {
                    groups.extend(tombstones.offsets.iter().map(|(group, ..)| group.clone()));
                    groups.extend(tombstones.groups.iter().cloned());
                }
            }
        }
        groups
    }
}
