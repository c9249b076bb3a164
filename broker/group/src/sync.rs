//! SyncGroup: the leader's assignment is appended, then everybody gets its own.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;

use crate::answer::{Answer, Synced};
use crate::effects::OffsetsRecord;
use crate::error::{AppendError, GroupError};
use crate::event::{Sync, WriteId};
use crate::group::{Group, Phase};
use crate::record::Key;
use crate::turn::Turn;
use crate::writes::Purpose;

impl Group {
    pub(crate) fn sync(&mut self, turn: &mut Turn<'_>, sync: &Sync) {
        if let Err(error) = self.check_sync(sync) {
            return turn.refuse_sync(sync.waiter, error);
        }
        let id = &sync.member_id;
        let stable = matches!(self.phase, Phase::Stable { .. });
        let synced = self.synced(id);
        let Some(member) = self.roster.members.get_mut(id) else { return };
        member.synced = true;
        if stable {
            member.refresh(turn.moment);
            turn.answer(sync.waiter, Answer::Sync(Ok(synced)));
        } else {
            if let Some(earlier) = member.sync.replace(sync.waiter) {
                turn.refuse_sync(earlier, GroupError::RebalanceInProgress);
            }
            turn.wait(sync.waiter, &self.id);
        }
        if self.roster.members.values().all(|member| member.synced)
            && let Phase::Completing { sync_deadline, .. } | Phase::Stable { sync_deadline } =
                &mut self.phase
        {
            *sync_deadline = None;
        }
        if self.roster.is_leader(id)
            && matches!(self.phase, Phase::Completing { storing: None, .. })
        {
            self.store_assignment(turn, &sync.assignments);
        }
    }

    fn check_sync(&self, sync: &Sync) -> Result<(), GroupError> {
        let differs = |asked: &Option<Arc<str>>, own: &Option<Arc<str>>| {
            asked.is_some() && own.is_some() && asked != own
        };
        if self.phase == Phase::Dead {
            return Err(GroupError::CoordinatorNotAvailable);
        }
        self.check_member(&sync.member_id, sync.instance_id.as_deref())?;
        if sync.generation != self.generation {
            return Err(GroupError::IllegalGeneration);
        }
        if differs(&sync.protocol_type, &self.protocol_type)
            || differs(&sync.protocol_name, &self.protocol)
        {
            return Err(GroupError::InconsistentGroupProtocol);
        }
        match self.phase {
            Phase::Preparing { .. } => Err(GroupError::RebalanceInProgress),
            Phase::Completing { .. } | Phase::Stable { .. } => Ok(()),
            Phase::Empty | Phase::Dead => Err(GroupError::UnknownMemberId),
        }
    }

    fn synced(&self, id: &str) -> Synced {
        Synced {
            protocol_type: self.protocol_type.clone().unwrap_or_else(|| "".into()),
            protocol_name: self.protocol.clone().unwrap_or_else(|| "".into()),
            assignment: self
                .roster
                .members
                .get(id)
                .map(|m| m.assignment.clone())
                .unwrap_or_default(),
        }
    }

    /// Appends the generation with its assignment. Members that the leader forgot get an empty one; names that are no
    /// members are ignored.
    fn store_assignment(&mut self, turn: &mut Turn<'_>, assignments: &[(Arc<str>, Bytes)]) {
        let given: BTreeMap<&str, &Bytes> =
            assignments.iter().map(|(id, bytes)| (&**id, bytes)).collect();
        let protocol = self.protocol.clone().unwrap_or_else(|| "".into());
        let members = self
            .roster
            .records(&protocol, |id, _| given.get(id).copied().cloned().unwrap_or_default());
        let assignments =
            members.iter().map(|m| (m.member_id.clone(), m.assignment.clone())).collect();
        let value = self.metadata(members, self.roster.leader.clone()).encode();
        let records = vec![OffsetsRecord { key: Key::group(&self.id), value: Some(value) }];
        let write =
            turn.append(Purpose::Assignment { group: self.id.clone(), assignments }, records);
        self.recorded = true;
        if let Phase::Completing { storing, .. } = &mut self.phase {
            *storing = Some(write);
        }
    }

    /// The append of an assignment is done. It means nothing to a group that has gone on to another rebalance.
    pub(crate) fn assignment_appended(
        &mut self,
        turn: &mut Turn<'_>,
        write: WriteId,
        assignments: Vec<(Arc<str>, Bytes)>,
        result: Result<(), AppendError>,
    ) {
        let Phase::Completing { storing: Some(storing), sync_deadline } = self.phase else {
            return;
        };
        if storing != write {
            return;
        }
        if let Err(error) = result {
            self.end_syncs(turn, error.of_group());
            return self
                .prepare_rebalance(turn, &format!("the assignment was not stored: {error}"));
        }
        for (id, assignment) in assignments {
            if let Some(member) = self.roster.members.get_mut(&id) {
                member.assignment = assignment;
            }
        }
        self.phase = Phase::Stable { sync_deadline };
        self.state_since_ms = Some(turn.moment.wall_ms);
        turn.note(self, false, "stable".to_owned());
        let ids: Vec<_> = self.roster.members.keys().cloned().collect();
        for id in ids {
            let synced = self.synced(&id);
            let Some(member) = self.roster.members.get_mut(&id) else { continue };
            if let Some(waiter) = member.sync.take() {
                member.refresh(turn.moment);
                turn.answer(waiter, Answer::Sync(Ok(synced)));
            }
        }
    }
}
