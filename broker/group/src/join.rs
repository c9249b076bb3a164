//! JoinGroup: who may become a member, and when that calls the others.

use std::sync::Arc;

use crate::answer::Answer;
use crate::error::GroupError;
use crate::event::Join;
use crate::group::{Group, Phase};
use crate::record::{NAME_BYTES_MAX, cut};
use crate::roster::{Member, later, ms, protocols_bytes};
use crate::settings::{
    GROUP_BYTES_MAX, NEW_MEMBER_JOIN_TIMEOUT_MS, PROTOCOLS_BYTES_MAX, PROTOCOLS_MAX, Settings,
};
use crate::turn::Turn;

/// Bytes of the client id that go into a member id.
const CLIENT_ID_IN_MEMBER_ID_BYTES_MAX: usize = 255;

/// What can be said of a join without its group.
pub(crate) fn check(join: &Join, settings: &Settings) -> Result<(), GroupError> {
    let session_ms = ms(join.session_timeout_ms);
    let bytes = protocols_bytes(&join.protocols);
    let names = [&join.member_id, &join.client_id, &join.client_host, &join.protocol_type];
    let names_fit = names.iter().all(|name| name.len() <= NAME_BYTES_MAX)
        && join.protocols.iter().all(|p| p.name.len() <= NAME_BYTES_MAX)
        && join.instance_id.as_ref().is_none_or(|i| !i.is_empty() && i.len() <= NAME_BYTES_MAX / 2);
    if join.group.is_empty() || join.group.len() > NAME_BYTES_MAX {
        Err(GroupError::InvalidGroupId)
    } else if session_ms < settings.session_timeout_min_ms
        || session_ms > settings.session_timeout_max_ms
    {
        Err(GroupError::InvalidSessionTimeout)
    } else if join.protocols.len() > PROTOCOLS_MAX || bytes > PROTOCOLS_BYTES_MAX || !names_fit {
        Err(GroupError::InvalidRequest)
    } else if join.protocol_type.is_empty() || join.protocols.is_empty() {
        Err(GroupError::InconsistentGroupProtocol)
    } else {
        Ok(())
    }
}

impl Group {
    /// A join that [`check`] let through.
    pub(crate) fn join(&mut self, turn: &mut Turn<'_>, join: Join) {
        if self.phase == Phase::Dead {
            turn.refuse_join(join.waiter, GroupError::CoordinatorNotAvailable, &join.member_id);
        } else if !self.has_room_for(&join, turn.settings.size_max()) {
            turn.refuse_join(join.waiter, GroupError::GroupMaxSizeReached, &"".into());
            if self.roster.members.contains_key(&join.member_id) {
                self.remove_member(turn, &join.member_id);
                let why = format!("there is no room for member {:?} any more", join.member_id);
                self.members_changed(turn, &why);
            }
        } else if !self.fits(&join) {
            turn.refuse_join(join.waiter, GroupError::InconsistentGroupProtocol, &join.member_id);
        } else if join.member_id.is_empty() {
            self.join_new(turn, join);
        } else if self.pending.contains_key(&join.member_id) && join.instance_id.is_none() {
            let id = join.member_id.clone();
            self.add_member(turn, join, id);
        } else {
            self.join_known(turn, &join);
        }
    }

    /// `group.max.size` (KIP-389) counts members and ids that were given out. If it was lowered under a group, those
    /// who rejoin first stay.
    fn has_room_for(&self, join: &Join, size_max: usize) -> bool {
        let id = &join.member_id;
        let own = self.roster.members.get(id).map_or(0, Member::bytes);
        if self.roster.bytes() - own + protocols_bytes(&join.protocols) > GROUP_BYTES_MAX {
            return false;
        }
        let replaces =
            join.instance_id.as_ref().is_some_and(|i| self.roster.static_member(i).is_some());
        if self.pending.contains_key(id) || (id.is_empty() && replaces) {
            return true;
        }
        match self.roster.members.get(id) {
            Some(member) => {
                let preparing = matches!(self.phase, Phase::Preparing { .. });
                !preparing || member.join.is_some() || self.roster.waiting_joins() < size_max
            }
            None => self.roster.members.len() + self.pending.len() < size_max,
        }
    }

    /// Whether the member's kind of protocols is the group's, and they go with those of all others.
    pub(crate) fn fits(&self, join: &Join) -> bool {
        let is_empty = self.roster.members.is_empty();
        if !is_empty && self.protocol_type.as_ref() != Some(&join.protocol_type) {
            return false;
        }
        let of_instance = join.instance_id.as_ref().and_then(|i| self.roster.static_member(i));
        let own = if join.member_id.is_empty() { of_instance } else { Some(&join.member_id) };
        let has_others = self.roster.members.keys().any(|id| Some(id) != own);
        !has_others || self.roster.agrees(&join.protocols, own.map(|id| &**id))
    }

    fn join_new(&mut self, turn: &mut Turn<'_>, join: Join) {
        let id: Arc<str> = match &join.instance_id {
            Some(instance) => format!("{instance}-{}", join.suffix).into(),
            None => {
                let client_id = cut(&join.client_id, CLIENT_ID_IN_MEMBER_ID_BYTES_MAX);
                format!("{client_id}-{}", join.suffix).into()
            }
        };
        if join.instance_id.is_some() {
            self.join_static(turn, join, id);
        } else if join.member_id_required {
            self.pending.insert(id.clone(), later(turn.moment.now, ms(join.session_timeout_ms)));
            turn.refuse_join(join.waiter, GroupError::MemberIdRequired, &id);
        } else {
            self.add_member(turn, join, id);
        }
    }

    /// A new member waits for the generation. Its session cannot run, since it has no id yet or cannot send while it
    /// waits, so it has one long time for all.
    pub(crate) fn add_member(&mut self, turn: &mut Turn<'_>, join: Join, id: Arc<str>) {
        if let Phase::Preparing { initial: Some(initial), .. } = &mut self.phase {
            initial.grew = true;
        }
        self.pending.remove(&id);
        if self.roster.members.is_empty() {
            self.protocol_type = Some(join.protocol_type.clone());
        }
        let mut member = Member::of(&join);
        member.join = Some(join.waiter);
        member.session_deadline = later(turn.moment.now, NEW_MEMBER_JOIN_TIMEOUT_MS);
        self.roster.insert(id.clone(), member);
        turn.wait(join.waiter, &self.id);
        let reason = join.reason.as_deref().unwrap_or("not given");
        self.members_changed(turn, &format!("new member {id:?}, its reason: {reason:?}"));
    }

    fn join_known(&mut self, turn: &mut Turn<'_>, join: &Join) {
        let id = &join.member_id;
        if let Err(error) = self.check_member(id, join.instance_id.as_deref()) {
            return turn.refuse_join(join.waiter, error, id);
        }
        let unchanged = self.roster.members.get(id).is_some_and(|m| m.protocols == join.protocols);
        let leads = self.roster.is_leader(id);
        match self.phase {
            // The answer to its first join may not have reached it.
            Phase::Completing { .. } if unchanged => {
                let joined = self.joined(id, leads);
                turn.answer(join.waiter, Answer::Join(Ok(joined)));
            }
            // A leader calls the others, for instance when topics have changed; a follower does not.
            Phase::Stable { .. } if unchanged && !leads => {
                let joined = self.joined(id, false);
                turn.answer(join.waiter, Answer::Join(Ok(joined)));
            }
            Phase::Preparing { .. } | Phase::Completing { .. } | Phase::Stable { .. } => {
                self.rejoin(turn, join, id);
                let what =
                    if unchanged { "the leader joins again" } else { "a member has changed" };
                let reason = join.reason.as_deref().unwrap_or("not given");
                self.members_changed(turn, &format!("{what}: {id:?}, its reason: {reason:?}"));
            }
            Phase::Empty | Phase::Dead => {
                turn.refuse_join(join.waiter, GroupError::UnknownMemberId, id)
            }
        }
    }

    /// A member waits for the next generation.
    pub(crate) fn rejoin(&mut self, turn: &mut Turn<'_>, join: &Join, id: &Arc<str>) {
        let Some(member) = self.roster.members.get_mut(id) else { return };
        member.update(join);
        // The client has asked again, perhaps on another connection: what it asked there is void.
        if let Some(earlier) = member.join.replace(join.waiter) {
            turn.refuse_join(earlier, GroupError::RebalanceInProgress, id);
        }
        turn.wait(join.waiter, &self.id);
    }
}
