//! From one generation to the next: members are called, join, and are told the generation.

use bytes::Bytes;

use crate::answer::{Answer, Joined, JoinedMember};
use crate::effects::OffsetsRecord;
use crate::error::GroupError;
use crate::group::{Group, Initial, Phase};
use crate::record::Key;
use crate::roster::later;
use crate::turn::Turn;
use crate::writes::Purpose;

impl Group {
    /// A member came, went, or wants something else.
    pub(crate) fn members_changed(&mut self, turn: &mut Turn<'_>, why: &str) {
        match self.phase {
            Phase::Empty | Phase::Completing { .. } | Phase::Stable { .. } => {
                self.prepare_rebalance(turn, why)
            }
            Phase::Preparing { .. } => self.maybe_complete_join(turn),
            Phase::Dead => {}
        }
    }

    /// Calls the members. Whoever waits for an assignment must join again.
    pub(crate) fn prepare_rebalance(&mut self, turn: &mut Turn<'_>, why: &str) {
        self.end_syncs(turn, GroupError::RebalanceInProgress);
        let timeout_ms = self.roster.rebalance_timeout_ms();
        let was_empty = self.phase == Phase::Empty;
        turn.note(self, false, format!("rebalance from {}: {why}", self.state().name()));
        self.phase = if was_empty {
            let delay_ms = turn.settings.initial_rebalance_delay_ms;
            Phase::Preparing {
                deadline: later(turn.moment.now, delay_ms),
                initial: Some(Initial {
                    latest: later(turn.moment.now, timeout_ms.max(delay_ms)),
                    grew: false,
                }),
            }
        } else {
            Phase::Preparing { deadline: later(turn.moment.now, timeout_ms), initial: None }
        };
        self.state_since_ms = Some(turn.moment.wall_ms);
        self.retry_at = None;
        self.resume_rejoins(turn);
        self.maybe_complete_join(turn);
    }

    /// Ends the join phase if nobody is missing. The first one of an empty group ends by time alone.
    pub(crate) fn maybe_complete_join(&mut self, turn: &mut Turn<'_>) {
        if matches!(self.phase, Phase::Preparing { initial: None, .. }) && self.all_joined() {
            self.complete_join(turn);
        }
    }

    /// The time of the join phase is over: extend the first one if it still grows, else go on with whoever is there.
    pub(crate) fn join_phase_expired(&mut self, turn: &mut Turn<'_>) {
        if let Phase::Preparing { deadline, initial: Some(initial) } = &mut self.phase
            && initial.grew
            && *deadline < initial.latest
        {
            initial.grew = false;
            *deadline =
                later(*deadline, turn.settings.initial_rebalance_delay_ms).min(initial.latest);
            return;
        }
        self.complete_join(turn);
    }

    /// The next generation, of those who joined and of the static members.
    fn complete_join(&mut self, turn: &mut Turn<'_>) {
        let left_behind: Vec<_> = self
            .roster
            .members
            .iter()
            .filter(|(_, member)| member.join.is_none() && member.instance_id.is_none())
            .map(|(id, _)| id.clone())
            .collect();
        for id in &left_behind {
            self.roster.remove(id);
            turn.note(self, false, format!("member {id:?} has not joined in time"));
        }
        let joined =
            self.roster.members.iter().find(|(_, m)| m.join.is_some()).map(|(id, _)| id.clone());
        match joined {
            None if self.roster.members.is_empty() => self.become_empty(turn),
            None => {
                // Only static members, all of them away: their sessions end this.
                let timeout_ms = self.roster.rebalance_timeout_ms();
                self.phase = Phase::Preparing {
                    deadline: later(turn.moment.now, timeout_ms),
                    initial: None,
                };
            }
            Some(joined) => {
                let leader = self.roster.leader.as_ref();
                let leads = leader.and_then(|leader| self.roster.members.get(leader));
                if leads.is_none_or(|leader| leader.join.is_none()) {
                    self.roster.leader = Some(joined);
                }
                self.begin_generation(turn);
            }
        }
    }

    /// Tells every member that waits its place in the new generation.
    fn begin_generation(&mut self, turn: &mut Turn<'_>) {
        self.generation = self.generation.saturating_add(1);
        self.protocol = self.roster.select_protocol();
        assert!(self.protocol.is_some(), "members without a common protocol");
        self.compute_subscribed();
        let sync_deadline = Some(later(turn.moment.now, self.roster.rebalance_timeout_ms()));
        self.phase = Phase::Completing { sync_deadline, storing: None };
        self.state_since_ms = Some(turn.moment.wall_ms);
        let members = self.roster.members.len();
        turn.note(self, false, format!("new generation of {members} members"));
        let ids: Vec<_> = self.roster.members.keys().cloned().collect();
        for id in ids {
            let leads = self.roster.is_leader(&id);
            let joined = self.joined(&id, leads);
            let Some(member) = self.roster.members.get_mut(&id) else { continue };
            member.is_new = false;
            member.id_told = true;
            member.synced = false;
            member.assignment = Bytes::new();
            member.refresh(turn.moment);
            if let Some(waiter) = member.join.take() {
                turn.answer(waiter, Answer::Join(Ok(joined)));
            }
        }
    }

    /// The answer to a member's join in the present generation; with all members if `leads`.
    pub(crate) fn joined(&self, member_id: &std::sync::Arc<str>, leads: bool) -> Joined {
        let protocol_name = self.protocol.clone().unwrap_or_else(|| "".into());
        let members = if leads { self.joined_members(&protocol_name) } else { Vec::new() };
        Joined {
            member_id: member_id.clone(),
            generation: self.generation,
            protocol_type: self.protocol_type.clone().unwrap_or_else(|| "".into()),
            protocol_name,
            leader: self.roster.leader.clone().unwrap_or_else(|| "".into()),
            skip_assignment: false,
            members,
        }
    }

    fn joined_members(&self, protocol: &str) -> Vec<JoinedMember> {
        self.roster
            .members
            .iter()
            .map(|(id, member)| JoinedMember {
                member_id: id.clone(),
                instance_id: member.instance_id.clone(),
                metadata: member.metadata(protocol).cloned().unwrap_or_default(),
            })
            .collect()
    }

    /// The last member is gone: a generation without members. Its record says since when (KIP-211).
    fn become_empty(&mut self, turn: &mut Turn<'_>) {
        self.generation = self.generation.saturating_add(1);
        self.protocol = None;
        self.phase = Phase::Empty;
        self.state_since_ms = Some(turn.moment.wall_ms);
        self.compute_subscribed();
        turn.note(self, false, "the group is empty".to_owned());
        self.write_empty(turn);
    }

    /// Writes that the group is empty; again, if it failed before.
    pub(crate) fn write_empty(&mut self, turn: &mut Turn<'_>) {
        self.retry_at = None;
        self.recorded = true;
        let value = self.metadata(Vec::new(), None).encode();
        let records = vec![OffsetsRecord { key: Key::group(&self.id), value: Some(value) }];
        turn.append(Purpose::Empty { group: self.id.clone() }, records);
    }

    /// Answers every sync that waits, and lets the sessions run again.
    pub(crate) fn end_syncs(&mut self, turn: &mut Turn<'_>, error: GroupError) {
        for member in self.roster.members.values_mut() {
            if let Some(waiter) = member.sync.take() {
                member.refresh(turn.moment);
                turn.refuse_sync(waiter, error);
            }
        }
    }
}
