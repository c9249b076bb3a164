//! Staying and leaving: heartbeats, LeaveGroup, silence, and connections that are gone.

use std::sync::Arc;

use crate::answer::Left;
use crate::error::GroupError;
use crate::event::{Heartbeat, Leave, LeaveMember, Waiter};
use crate::group::{Group, Phase};
use crate::turn::Turn;

impl Group {
    pub(crate) fn heartbeat(
        &mut self,
        turn: &mut Turn<'_>,
        heartbeat: &Heartbeat,
    ) -> Result<(), GroupError> {
        if self.phase == Phase::Dead {
            return Err(GroupError::CoordinatorNotAvailable);
        }
        self.check_member(&heartbeat.member_id, heartbeat.instance_id.as_deref())?;
        if heartbeat.generation != self.generation {
            return Err(GroupError::IllegalGeneration);
        }
        self.refresh(turn, &heartbeat.member_id);
        match self.phase {
            Phase::Preparing { .. } => Err(GroupError::RebalanceInProgress),
            Phase::Completing { .. } | Phase::Stable { .. } => Ok(()),
            Phase::Empty | Phase::Dead => Err(GroupError::UnknownMemberId),
        }
    }

    /// The member lives.
    pub(crate) fn refresh(&mut self, turn: &Turn<'_>, id: &str) {
        if let Some(member) = self.roster.members.get_mut(id) {
            member.refresh(turn.moment);
        }
    }

    pub(crate) fn leave(
        &mut self,
        turn: &mut Turn<'_>,
        leave: &Leave,
    ) -> Result<Vec<Left>, GroupError> {
        if self.phase == Phase::Dead {
            return Err(GroupError::CoordinatorNotAvailable);
        }
        let mut removed = Vec::new();
        let mut left = Vec::new();
        for member in &leave.members {
            let result = self.leaving(member).map(|id| {
                if self.pending.remove(&id).is_none() {
                    self.remove_member(turn, &id);
                    removed.push(id);
                }
            });
            left.push(Left {
                member_id: member.member_id.clone(),
                instance_id: member.instance_id.clone(),
                result,
            });
        }
        if removed.is_empty() {
            self.maybe_complete_join(turn);
        } else {
            self.members_changed(turn, &format!("{removed:?} left"));
        }
        Ok(left)
    }

    /// The member or pending id that is to go. An operator removes a static member by its instance id alone.
    fn leaving(&self, member: &LeaveMember) -> Result<Arc<str>, GroupError> {
        let (id, instance) = (&member.member_id, &member.instance_id);
        if id.is_empty() {
            let known = instance.as_ref().and_then(|instance| self.roster.static_member(instance));
            return known.cloned().ok_or(GroupError::UnknownMemberId);
        }
        if self.pending.contains_key(id) {
            return Ok(id.clone());
        }
        self.check_member(id, instance.as_deref()).map(|()| id.clone())
    }

    /// Removes a member. What waits under its id is told that it is unknown, so that a client that lives joins anew.
    pub(crate) fn remove_member(&mut self, turn: &mut Turn<'_>, id: &Arc<str>) {
        let Some(member) = self.roster.remove(id) else { return };
        if let Some(waiter) = member.join {
            turn.refuse_join(waiter, GroupError::UnknownMemberId, &"".into());
        }
        if let Some(waiter) = member.sync {
            turn.refuse_sync(waiter, GroupError::UnknownMemberId);
        }
    }

    /// The connection behind a join or sync is gone: nobody must wait for its answer. Its client may come back under
    /// its id within the session timeout; if it never heard its id, it cannot.
    pub(crate) fn gone(&mut self, turn: &mut Turn<'_>, waiter: Waiter) {
        self.rejoins.retain_mut(|rejoin| {
            rejoin.gone |= rejoin.join.waiter == waiter;
            !rejoin.gone || rejoin.write.is_some()
        });
        let found = self
            .roster
            .members
            .iter_mut()
            .find(|(_, member)| member.join == Some(waiter) || member.sync == Some(waiter));
        let Some((id, member)) = found else { return };
        let (id, joined) = (id.clone(), member.join == Some(waiter));
        if joined {
            member.join = None;
        } else {
            member.sync = None;
        }
        if joined && member.is_new && !member.id_told && member.instance_id.is_none() {
            self.remove_member(turn, &id);
            self.members_changed(turn, &format!("the client of new member {id:?} is gone"));
        } else {
            member.refresh(turn.moment);
        }
    }

    /// Does what is due.
    pub(crate) fn tick(&mut self, turn: &mut Turn<'_>) {
        let now = turn.moment.now;
        let pending_before = self.pending.len();
        self.pending.retain(|_, deadline| *deadline > now);
        let silent: Vec<_> = self
            .roster
            .members
            .iter()
            .filter(|(_, member)| !member.is_excused() && member.session_deadline <= now)
            .map(|(id, _)| id.clone())
            .collect();
        for id in &silent {
            self.remove_member(turn, id);
        }
        if !silent.is_empty() {
            self.members_changed(
                turn,
                &format!("{silent:?} were silent for their session timeout"),
            );
        } else if self.pending.len() < pending_before {
            self.maybe_complete_join(turn);
        }
        match self.phase {
            Phase::Preparing { deadline, .. } if deadline <= now => self.join_phase_expired(turn),
            Phase::Completing { sync_deadline: Some(deadline), .. }
            | Phase::Stable { sync_deadline: Some(deadline) }
                if deadline <= now =>
            {
                self.sync_phase_expired(turn);
            }
            Phase::Empty
            | Phase::Preparing { .. }
            | Phase::Completing { .. }
            | Phase::Stable { .. }
            | Phase::Dead => {}
        }
        if self.phase == Phase::Empty && self.retry_at.is_some_and(|at| at <= now) {
            self.write_empty(turn);
        }
    }

    /// Members that joined the generation and did not ask for their assignment are removed.
    fn sync_phase_expired(&mut self, turn: &mut Turn<'_>) {
        let missing: Vec<_> = self
            .roster
            .members
            .iter()
            .filter(|(_, m)| !m.synced)
            .map(|(id, _)| id.clone())
            .collect();
        for id in &missing {
            self.remove_member(turn, id);
        }
        assert!(!missing.is_empty(), "a sync deadline although all have synced");
        self.prepare_rebalance(turn, &format!("{missing:?} did not ask for their assignment"));
    }
}
