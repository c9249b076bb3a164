//! What is deleted on demand: offsets (OffsetDelete), groups (DeleteGroups), the offsets of deleted topics.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::answer::Answer;
use crate::effects::Note;
use crate::error::{AppendError, GroupError};
use crate::event::{DeleteGroup, DeleteOffsets};
use crate::group::{Group, Phase};
use crate::roster::later;
use crate::settings::WRITE_RETRY_MS;
use crate::table::Table;
use crate::tombstones::Batches;
use crate::turn::Turn;
use crate::writes::Tombstones;

impl Table {
    pub(crate) fn delete_offsets(&mut self, turn: &mut Turn<'_>, delete: DeleteOffsets) {
        let group =
            match self.groups.get(&delete.group).map(|group| (group.check_delete_offsets(), group))
            {
                None => Err(GroupError::GroupIdNotFound),
                Some((Err(error), _)) => Err(error),
                Some((Ok(()), group)) => Ok(group),
            };
        let group = match group {
            Ok(group) => group,
            Err(error) => return turn.answer(delete.waiter, Answer::DeleteOffsets(Err(error))),
        };
        let ordered: BTreeSet<_> = turn
            .writes
            .commits()
            .filter(|(id, ..)| **id == delete.group)
            .map(|(_, topic, partition)| (topic.clone(), partition))
            .collect();
        let mut batches = Batches::default();
        let mut results = Vec::with_capacity(delete.partitions.len());
        for (topic, partition) in &delete.partitions {
            if group.is_subscribed_to(topic) {
                results.push(Err(GroupError::GroupSubscribedToTopic));
                continue;
            }
            results.push(Ok(()));
            let is_there = group.offsets.held(topic, *partition).is_some();
            if is_there || ordered.contains(&(topic.clone(), *partition)) {
                batches.offset(&delete.group, topic, *partition);
            }
        }
        let answer = Answer::DeleteOffsets(Ok(results));
        if batches.is_empty() {
            turn.answer(delete.waiter, answer);
        } else {
            batches.append(turn, Some((delete.waiter, answer)));
        }
    }

    pub(crate) fn delete_group(&mut self, turn: &mut Turn<'_>, delete: &DeleteGroup) {
        let result = match self.groups.get_mut(&delete.group) {
            None => Err(GroupError::GroupIdNotFound),
            Some(group) => group.check_delete().map(|()| group),
        };
        match result {
            Err(error) => turn.answer(delete.waiter, Answer::DeleteGroup(Err(error))),
            Ok(group) => {
                let mut batches = Batches::default();
                group.delete(turn, &mut batches);
                batches.append(turn, Some((delete.waiter, Answer::DeleteGroup(Ok(())))));
            }
        }
    }

    /// Offsets of topics that are no more go, so that a topic of the same name does not begin in its middle.
    pub(crate) fn topics_deleted(&mut self, turn: &mut Turn<'_>, topics: &[Arc<str>]) {
        let topics: BTreeSet<&Arc<str>> = topics.iter().collect();
        let mut keys = BTreeSet::new();
        // Those in [`Phase::Dead`] too: their own deletion may fail, and nobody need ask for it again.
        for group in self.groups.values() {
            for topic in group.offsets.topics().filter(|topic| topics.contains(topic)) {
                keys.extend(
                    group.offsets.partitions(topic).map(|p| (group.id.clone(), topic.clone(), p)),
                );
            }
        }
        let ordered = turn.writes.commits().filter(|(_, topic, _)| topics.contains(topic));
        keys.extend(
            ordered.map(|(group, topic, partition)| (group.clone(), topic.clone(), partition)),
        );
        let mut batches = Batches::retried();
        for (group, topic, partition) in &keys {
            batches.offset(group, topic, *partition);
        }
        batches.append(turn, None);
    }

    /// Deletions that failed and that nobody will ask for again; those whose offset has been committed anew are void.
    pub(crate) fn retry_deletions(&mut self, turn: &mut Turn<'_>) {
        if self.retry_deletions_at.is_none_or(|at| at > turn.moment.now) {
            return;
        }
        self.retry_deletions_at = None;
        let unsettled = turn.writes.groups();
        let mut batches = Batches::retried();
        for (key, old) in std::mem::take(&mut self.failed_deletions) {
            let (group, topic, partition) = &key;
            let present = self.groups.get(group).and_then(|g| g.offsets.held(topic, *partition));
            if present != Some(&old) {
                continue;
            }
            if unsettled.contains(group) {
                // Perhaps a commit of the topic's next life: this deletion would stand behind it.
                self.failed_deletions.insert(key, old);
                self.retry_deletions_at = Some(later(turn.moment.now, WRITE_RETRY_MS));
            } else {
                batches.offset(group, topic, *partition);
            }
        }
        batches.append(turn, None);
    }

    /// The append of deletions is done.
    pub(crate) fn tombstones_appended(
        &mut self,
        turn: &mut Turn<'_>,
        tombstones: Tombstones,
        result: Result<(), AppendError>,
    ) {
        let mut failed = result.err().map(AppendError::of_group);
        if let Err(error) = result {
            let (offsets, groups) = (tombstones.offsets.len(), tombstones.groups.len());
            let text = format!(
                "the deletion of {offsets} offsets and {groups} groups was not written: {error}"
            );
            turn.effects.notes.push(Note {
                warn: true,
                group: String::new(),
                generation: -1,
                text,
            });
        }
        for (id, topic, partition) in &tombstones.offsets {
            let Some(group) = self.groups.get_mut(id) else { continue };
            if failed.is_none() {
                group.offsets.remove(topic, *partition);
            } else if let Some(held) = group.offsets.held(topic, *partition)
                && tombstones.retry
            {
                let key = (id.clone(), topic.clone(), *partition);
                self.failed_deletions.insert(key, held.clone());
                self.retry_deletions_at = Some(later(turn.moment.now, WRITE_RETRY_MS));
            }
        }
        for id in &tombstones.groups {
            let Some(group) = self.groups.get_mut(id) else { continue };
            group.phase = Phase::Empty;
            if failed.is_some() {
                continue;
            }
            // What an earlier append failed to delete remains, as it would after a restart: offsets without a group.
            let rest = std::mem::take(&mut group.offsets);
            if !rest.is_empty() {
                failed = Some(GroupError::CoordinatorNotAvailable);
            }
            let Group { timer, counted_bytes, counted_doubts, .. } = *group;
            *group = Group {
                offsets: rest,
                timer,
                counted_bytes,
                counted_doubts,
                ..Group::new(id.clone())
            };
        }
        if let Some((waiter, answer)) = tombstones.answer {
            let answer = match failed {
                None => answer,
                Some(error) => answer.failed(error),
            };
            turn.answer(waiter, answer);
        }
        let touched: BTreeSet<_> = tombstones.offsets.iter().map(|(group, ..)| group).collect();
        for id in touched.into_iter().chain(&tombstones.groups) {
            self.tidy(id);
        }
    }
}

/// Deletions that are tried again: what, and what it was.
pub(crate) type FailedDeletions = BTreeMap<(Arc<str>, Arc<str>, i32), crate::offsets::Held>;

impl Group {
    fn check_delete_offsets(&self) -> Result<(), GroupError> {
        match self.phase {
            Phase::Dead => Err(GroupError::GroupIdNotFound),
            Phase::Empty => Ok(()),
            // What others than consumers subscribe to is not known.
            Phase::Preparing { .. } | Phase::Completing { .. } | Phase::Stable { .. }
                if !self.is_consumer() =>
            {
                Err(GroupError::NonEmptyGroup)
            }
            Phase::Preparing { .. } | Phase::Completing { .. } | Phase::Stable { .. } => Ok(()),
        }
    }

    fn check_delete(&self) -> Result<(), GroupError> {
        match self.phase {
            Phase::Dead => Err(GroupError::GroupIdNotFound),
            Phase::Empty => Ok(()),
            Phase::Preparing { .. } | Phase::Completing { .. } | Phase::Stable { .. } => {
                Err(GroupError::NonEmptyGroup)
            }
        }
    }

    /// Orders the deletion of an empty group with all its offsets, those too whose commit is not settled or in
    /// doubt. Until it is done the group takes nothing new.
    pub(crate) fn delete(&mut self, turn: &Turn<'_>, batches: &mut Batches) {
        let mut keys: BTreeSet<_> =
            self.offsets.keys().map(|(topic, p, _)| (topic.clone(), p)).collect();
        let ordered = turn.writes.commits().filter(|(group, ..)| **group == self.id);
        keys.extend(ordered.map(|(_, topic, partition)| (topic.clone(), partition)));
        for (topic, partition) in &keys {
            batches.offset(&self.id, topic, *partition);
        }
        batches.group(&self.id);
        self.pending.clear();
        self.phase = Phase::Dead;
    }
}
