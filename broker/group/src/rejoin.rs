//! Static members that come back (KIP-345): the same instance id, a new member id.

use std::sync::Arc;

use crate::answer::Answer;
use crate::effects::OffsetsRecord;
use crate::error::{AppendError, GroupError};
use crate::event::{Join, WriteId};
use crate::group::{Group, Phase, Rejoin};
use crate::record::Key;
use crate::turn::Turn;
use crate::writes::Purpose;

impl Group {
    /// A static member without a member id. If it replaces one and changes nothing, the group stays as it is: only the
    /// new id must be in the log before anybody hears of it.
    pub(crate) fn join_static(&mut self, turn: &mut Turn<'_>, join: Join, new: Arc<str>) {
        let instance = join.instance_id.clone().unwrap_or_else(|| "".into());
        let Some(old) = self.roster.static_member(&instance).cloned() else {
            return self.add_member(turn, join, new);
        };
        if matches!(self.phase, Phase::Stable { .. }) && self.keeps_protocol(&old, &join) {
            self.end_unwritten_rejoin(turn, &instance);
            turn.wait(join.waiter, &self.id);
            self.rejoins.push(Rejoin { join, member_id: new, write: None, gone: false });
            return self.write_rejoins(turn);
        }
        self.replace(turn, &old, &new);
        self.rejoin(turn, &join, &new);
        self.members_changed(turn, &format!("static member {instance:?} is back as {new:?}"));
    }

    /// The client has asked again, perhaps on another connection: what it asked before is void, unless it is being written. So
    /// no more than two joins of a static member wait here.
    fn end_unwritten_rejoin(&mut self, turn: &mut Turn<'_>, instance: &str) {
        let same = |rejoin: &mut Rejoin| {
            rejoin.write.is_none() && rejoin.join.instance_id.as_deref() == Some(instance)
        };
        for rejoin in self.rejoins.extract_if(.., same).filter(|rejoin| !rejoin.gone) {
            turn.refuse_join(rejoin.join.waiter, GroupError::FencedInstanceId, &"".into());
        }
    }

    /// Whether the generation's protocol stays if the member supports what the join says.
    fn keeps_protocol(&self, old: &str, join: &Join) -> bool {
        let mut roster = self.roster.clone();
        if let Some(member) = roster.members.get_mut(old) {
            member.update(join);
        }
        roster.select_protocol() == self.protocol
    }

    /// Gives the member its new id; whoever waits under the old one is fenced.
    fn replace(&mut self, turn: &mut Turn<'_>, old: &Arc<str>, new: &Arc<str>) {
        let Some(replaced) = self.roster.rename(old, new) else { return };
        if let Some(waiter) = replaced.join {
            turn.refuse_join(waiter, GroupError::FencedInstanceId, old);
        }
        if let Some(waiter) = replaced.sync {
            turn.refuse_sync(waiter, GroupError::FencedInstanceId);
        }
        if let Some(member) = self.roster.members.get_mut(new) {
            member.refresh(turn.moment);
        }
    }

    /// One append at a time carries all static members that came back: a record holds the whole group.
    fn write_rejoins(&mut self, turn: &mut Turn<'_>) {
        let under_way = self.rejoins.iter().any(|rejoin| rejoin.write.is_some());
        if under_way || self.rejoins.is_empty() {
            return;
        }
        let mut roster = self.roster.clone();
        for rejoin in &self.rejoins {
            let instance = rejoin.join.instance_id.as_deref().unwrap_or_default();
            let Some(old) = roster.static_member(instance).cloned() else { continue };
            roster.rename(&old, &rejoin.member_id);
            if let Some(member) = roster.members.get_mut(&rejoin.member_id) {
                member.update(&rejoin.join);
            }
        }
        let protocol = self.protocol.clone().unwrap_or_else(|| "".into());
        let members = roster.records(&protocol, |_, member| member.assignment.clone());
        let value = self.metadata(members, roster.leader.clone()).encode();
        let records = vec![OffsetsRecord { key: Key::group(&self.id), value: Some(value) }];
        let write = turn.append(Purpose::Rejoins { group: self.id.clone() }, records);
        for rejoin in &mut self.rejoins {
            rejoin.write = Some(write);
        }
    }

    /// The append of these rejoins is done. A group that has left the generation meanwhile has taken them along already
    /// ([`Group::resume_rejoins`]).
    pub(crate) fn rejoins_appended(
        &mut self,
        turn: &mut Turn<'_>,
        write: WriteId,
        result: Result<(), AppendError>,
    ) {
        let (done, rest) = std::mem::take(&mut self.rejoins)
            .into_iter()
            .partition(|rejoin| rejoin.write == Some(write));
        self.rejoins = rest;
        let done: Vec<Rejoin> = done;
        if let Err(error) = result
            && !done.is_empty()
        {
            turn.note(self, true, format!("new ids of static members were not written: {error}"));
        }
        for rejoin in done {
            match result {
                Ok(()) => self.apply_rejoin(turn, &rejoin),
                Err(error) if !rejoin.gone => {
                    turn.refuse_join(rejoin.join.waiter, error.of_group(), &"".into());
                }
                Err(_) => {}
            }
        }
        if result.is_ok() {
            self.compute_subscribed();
        }
        self.write_rejoins(turn);
    }

    fn apply_rejoin(&mut self, turn: &mut Turn<'_>, rejoin: &Rejoin) {
        let instance = rejoin.join.instance_id.as_deref().unwrap_or_default();
        let Some(old) = self.roster.static_member(instance).cloned() else { return };
        let leader_before = self.roster.leader.clone();
        self.replace(turn, &old, &rejoin.member_id);
        if let Some(member) = self.roster.members.get_mut(&rejoin.member_id) {
            member.update(&rejoin.join);
            member.refresh(turn.moment);
        }
        turn.note(
            self,
            false,
            format!("static member {instance:?} is back as {:?}", rejoin.member_id),
        );
        if rejoin.gone {
            return;
        }
        // A leader that understands it is told to keep the assignment (KIP-814). To one that does not, the leader's old
        // id is given: it takes itself for a follower and fetches its assignment.
        let leads = self.roster.is_leader(&rejoin.member_id);
        let skip_assignment = rejoin.join.skip_assignment && leads;
        let mut joined = self.joined(&rejoin.member_id, skip_assignment);
        joined.skip_assignment = skip_assignment;
        if let Some(leader) = leader_before.filter(|_| !rejoin.join.skip_assignment) {
            joined.leader = leader;
        }
        turn.answer(rejoin.join.waiter, Answer::Join(Ok(joined)));
    }

    /// The generation ends: static members that wait for an append join the next one, in the order in which they came.
    pub(crate) fn resume_rejoins(&mut self, turn: &mut Turn<'_>) {
        for rejoin in std::mem::take(&mut self.rejoins) {
            if rejoin.gone {
                continue;
            }
            let Rejoin { join, member_id, .. } = rejoin;
            if self.fits(&join) {
                self.join_static(turn, join, member_id);
            } else {
                turn.refuse_join(join.waiter, GroupError::InconsistentGroupProtocol, &"".into());
            }
        }
    }
}
