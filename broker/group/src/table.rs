//! All groups of a partition, and when each wants to be woken.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use barnabas_types::Now;

use crate::answer::{Answer, JoinRefused};
use crate::commit;
use crate::delete::FailedDeletions;
use crate::error::{AppendError, GroupError};
use crate::event::{Commit, Event, Join, Waiter};
use crate::group::{Group, Phase};
use crate::join;
use crate::roster::{later, protocols_bytes};
use crate::settings::{DOUBTS_MAX, GROUPS_MAX, MEMBER_BYTES, MEMBERS_BYTES_MAX, WRITE_RETRY_MS};
use crate::turn::Turn;
use crate::writes::{Purpose, Write};

#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct Table {
    pub(crate) groups: BTreeMap<Arc<str>, Group>,
    /// One entry a group that has a deadline, at that or before it.
    timers: BTreeSet<(Now, Arc<str>)>,
    /// What all members keep in memory.
    members_bytes: usize,
    /// Keys in doubt, of all groups.
    doubts: usize,
    /// The next look for expired offsets.
    pub(crate) check_at: Now,
    pub(crate) failed_deletions: FailedDeletions,
    pub(crate) retry_deletions_at: Option<Now>,
}

impl Table {
    /// The earliest of all deadlines.
    pub(crate) fn wake_at(&self) -> Now {
        let group = self.timers.first().map(|(at, _)| *at);
        group.into_iter().chain(self.retry_deletions_at).fold(self.check_at, Now::min)
    }

    pub(crate) fn step(&mut self, turn: &mut Turn<'_>, event: Event) {
        match event {
            Event::Join(join) => self.join(turn, join),
            Event::Sync(sync) => {
                match self.groups.get_mut(&sync.group) {
                    Some(group) => group.sync(turn, &sync),
                    None => turn.refuse_sync(sync.waiter, GroupError::UnknownMemberId),
                }
                self.tidy(&sync.group);
            }
            Event::Heartbeat(heartbeat) => {
                // Moves a deadline to a later time only: the timer finds out by itself.
                let group = self.groups.get_mut(&heartbeat.group);
                let result = group
                    .map_or(Err(GroupError::UnknownMemberId), |g| g.heartbeat(turn, &heartbeat));
                turn.answer(heartbeat.waiter, Answer::Heartbeat(result));
            }
            Event::Leave(leave) => {
                let group = self.groups.get_mut(&leave.group);
                let result = group
                    .map_or(Err(GroupError::UnknownMemberId), |group| group.leave(turn, &leave));
                turn.answer(leave.waiter, Answer::Leave(result));
                self.tidy(&leave.group);
            }
            Event::Commit(commit) => self.commit(turn, commit),
            Event::DeleteOffsets(delete) => self.delete_offsets(turn, delete),
            Event::DeleteGroup(delete) => {
                self.delete_group(turn, &delete);
                self.tidy(&delete.group);
            }
            Event::TopicsDeleted(topics) => self.topics_deleted(turn, &topics),
            Event::Gone(waiter) => self.gone(turn, waiter),
            Event::Appended { write, result } => {
                turn.writes.complete(write, result);
                while let Some((write, result)) = turn.writes.settled() {
                    self.settle(turn, write, result);
                }
            }
            Event::Tick => {}
        }
    }

    fn join(&mut self, turn: &mut Turn<'_>, join: Join) {
        if let Err(error) = join::check(&join, turn.settings) {
            return turn.refuse_join(join.waiter, error, &join.member_id);
        }
        let id = join.group.clone();
        if !self.groups.contains_key(&id) {
            // Whoever has a member id got it from a group that is no more.
            if !join.member_id.is_empty() {
                return turn.refuse_join(join.waiter, GroupError::UnknownMemberId, &join.member_id);
            }
            if self.groups.len() >= GROUPS_MAX {
                return turn.refuse_join(join.waiter, GroupError::PolicyViolation, &join.member_id);
            }
        }
        if self.members_bytes + protocols_bytes(&join.protocols) + MEMBER_BYTES > MEMBERS_BYTES_MAX
        {
            return turn.refuse_join(join.waiter, GroupError::PolicyViolation, &join.member_id);
        }
        let group = self.groups.entry(id.clone()).or_insert_with(|| Group::new(id.clone()));
        group.join(turn, join);
        self.tidy(&id);
    }

    fn commit(&mut self, turn: &mut Turn<'_>, commit: Commit) {
        let is_full = self.groups.len() >= GROUPS_MAX;
        let is_doubtful = self.doubts >= DOUBTS_MAX;
        let group = self.groups.get_mut(&commit.group);
        let error = match &group {
            None if is_full => Some(GroupError::PolicyViolation),
            group if is_doubtful && !commit::is_known(&commit, group.as_deref()) => {
                Some(GroupError::CoordinatorNotAvailable)
            }
            group => commit::check(&commit, group.as_deref()).err(),
        };
        if let Some(error) = error {
            return turn.answer(commit.waiter, Answer::Commit(Err(error)));
        }
        if let Some(group) = group {
            group.refresh(turn, &commit.member_id);
        }
        commit::append(turn, commit);
    }

    fn gone(&mut self, turn: &mut Turn<'_>, waiter: Waiter) {
        let Some(id) = turn.waiting.remove(&waiter) else { return };
        if let Some(group) = self.groups.get_mut(&id) {
            group.gone(turn, waiter);
        }
        self.tidy(&id);
    }

    /// An append is done, and all before it are.
    fn settle(&mut self, turn: &mut Turn<'_>, write: Write, result: Result<(), AppendError>) {
        match write.purpose {
            Purpose::Assignment { group: id, assignments } => {
                if let Some(group) = self.groups.get_mut(&id) {
                    group.assignment_appended(turn, write.id, assignments, result);
                }
                self.tidy(&id);
            }
            Purpose::Rejoins { group: id } => {
                if let Some(group) = self.groups.get_mut(&id) {
                    group.rejoins_appended(turn, write.id, result);
                }
                self.tidy(&id);
            }
            Purpose::Empty { group: id } => {
                if let Some(group) = self.groups.get_mut(&id)
                    && let (Phase::Empty | Phase::Dead, Err(error)) = (&group.phase, result)
                {
                    turn.note(
                        group,
                        true,
                        format!("that the group is empty was not written: {error}"),
                    );
                    group.retry_at = Some(later(turn.moment.now, WRITE_RETRY_MS));
                }
                self.tidy(&id);
            }
            Purpose::Commit { group: id, waiter, offsets, results } => {
                let group = self.groups.entry(id.clone()).or_insert_with(|| Group::new(id.clone()));
                for (topic, partition, offset) in offsets {
                    match result {
                        Ok(()) => group.offsets.put(topic, partition, offset),
                        Err(error) if error.is_unknown() => group.offsets.doubt(topic, partition),
                        Err(_) => {}
                    }
                }
                if group.is_vacant() || group.offsets.doubts() != group.counted_doubts {
                    self.tidy(&id);
                }
                commit::answer(turn, waiter, results, result);
            }
            Purpose::Tombstones(tombstones) => self.tombstones_appended(turn, tombstones, result),
        }
    }

    /// Does what is due by now, once for each group: what that makes due at once waits for the next step, so that no
    /// group can hold up the others.
    pub(crate) fn tick(&mut self, turn: &mut Turn<'_>) {
        let mut due = Vec::new();
        while self.timers.first().is_some_and(|(at, _)| *at <= turn.moment.now) {
            due.extend(self.timers.pop_first().map(|(_, id)| id));
        }
        for id in due {
            if let Some(group) = self.groups.get_mut(&id) {
                group.timer = None;
                group.tick(turn);
            }
            self.tidy(&id);
        }
        self.retry_deletions(turn);
        self.expire(turn);
    }

    /// After a change of a group: forgets it if nothing needs it, or sees that it is woken in time.
    pub(crate) fn tidy(&mut self, id: &Arc<str>) {
        let Some(group) = self.groups.get_mut(id) else { return };
        let bytes = group.members_bytes();
        self.members_bytes = self.members_bytes - group.counted_bytes + bytes;
        group.counted_bytes = bytes;
        self.doubts = self.doubts - group.counted_doubts + group.offsets.doubts();
        group.counted_doubts = group.offsets.doubts();
        let next = if group.is_vacant() { None } else { group.next_deadline() };
        match (group.timer, next) {
            // An entry that is too early does no harm.
            (Some(timer), Some(next)) if timer <= next => {}
            (timer, next) => {
                if let Some(timer) = timer {
                    self.timers.remove(&(timer, id.clone()));
                }
                group.timer = next;
                self.timers.extend(next.map(|next| (next, id.clone())));
            }
        }
        if group.is_vacant() {
            self.groups.remove(id);
        }
    }
}

impl Event {
    /// Refuses a client's request as a whole; `None` for events without a waiter.
    pub(crate) fn refused(self, error: GroupError) -> Option<(Waiter, Answer)> {
        Some(match self {
            Self::Join(join) => {
                (join.waiter, Answer::Join(Err(JoinRefused { error, member_id: join.member_id })))
            }
            Self::Sync(sync) => (sync.waiter, Answer::Sync(Err(error))),
            Self::Heartbeat(heartbeat) => (heartbeat.waiter, Answer::Heartbeat(Err(error))),
            Self::Leave(leave) => (leave.waiter, Answer::Leave(Err(error))),
            Self::Commit(commit) => (commit.waiter, Answer::Commit(Err(error))),
            Self::DeleteOffsets(delete) => (delete.waiter, Answer::DeleteOffsets(Err(error))),
            Self::DeleteGroup(delete) => (delete.waiter, Answer::DeleteGroup(Err(error))),
            Self::TopicsDeleted(_) | Self::Gone(_) | Self::Appended { .. } | Self::Tick => {
                return None;
            }
        })
    }
}
