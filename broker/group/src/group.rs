//! One group: its phase, what it remembers, and what is the same for every request.
//!
//! ```text
//!            join                    all joined, or timeout              leader's assignment appended
//!  Empty ------------> Preparing ---------------------------> Completing ----------------------------> Stable
//!    ^                  |    ^                                    |                                      |
//!    |  nobody is left  |    |        a member joins, leaves, is silent, does not sync, changes          |
//!    +------------------+    +------------------------------------+--------------------------------------+
//!    |
//!    +--> Dead: a deletion is being appended; back to Empty if that fails
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use barnabas_types::Now;

use crate::error::GroupError;
use crate::event::{Join, WriteId};
use crate::offsets::Offsets;
use crate::record::{GroupMetadata, MemberMetadata};
use crate::roster::{Roster, protocols_bytes};
use crate::settings::MEMBER_BYTES;

/// Protocol type of consumer groups, whose members' metadata can be read.
pub(crate) const CONSUMER: &str = "consumer";

/// Where a group stands between two generations, with what belongs to that alone.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Phase {
    /// No members.
    Empty,
    /// Members are called to join.
    Preparing {
        /// Who has not joined by then is left behind.
        deadline: Now,
        /// The group was empty before: wait for more members.
        initial: Option<Initial>,
    },
    /// Members know the generation; the leader's assignment is waited for.
    Completing {
        /// Who has not synced by then is removed; `None` once all have.
        sync_deadline: Option<Now>,
        /// The append of the leader's assignment.
        storing: Option<WriteId>,
    },
    /// Members have their assignments.
    Stable {
        /// Who has not fetched its assignment by then is removed; `None` once all have.
        sync_deadline: Option<Now>,
    },
    /// A deletion is being appended.
    Dead,
}

/// The first rebalance of an empty group (KIP-134).
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Initial {
    /// No extension goes beyond.
    pub(crate) latest: Now,
    /// A member has come since the last extension.
    pub(crate) grew: bool,
}

/// A group's state, in Kafka's words.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum GroupState {
    /// No members.
    Empty,
    /// Members are called to join.
    PreparingRebalance,
    /// The leader's assignment is waited for.
    CompletingRebalance,
    /// Members have their assignments.
    Stable,
    /// Being deleted.
    Dead,
}

impl GroupState {
    /// Kafka's name of it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Empty => "Empty",
            Self::PreparingRebalance => "PreparingRebalance",
            Self::CompletingRebalance => "CompletingRebalance",
            Self::Stable => "Stable",
            Self::Dead => "Dead",
        }
    }
}

/// A static member that came back while the group is stable: answered once its new id is in the log (KIP-345).
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Rejoin {
    pub(crate) join: Join,
    pub(crate) member_id: Arc<str>,
    /// The append that carries it; `None`: waits for the one before.
    pub(crate) write: Option<WriteId>,
    /// The connection is gone: nobody to answer.
    pub(crate) gone: bool,
}

/// One group.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Group {
    pub(crate) id: Arc<str>,
    pub(crate) phase: Phase,
    /// 0 before the first; never falls.
    pub(crate) generation: i32,
    /// `None`: never had members (a simple consumer's).
    pub(crate) protocol_type: Option<Arc<str>>,
    /// Of the present generation.
    pub(crate) protocol: Option<Arc<str>>,
    pub(crate) roster: Roster,
    /// Ids that were given out (KIP-394), and until when they may join.
    pub(crate) pending: BTreeMap<Arc<str>, Now>,
    /// Wall clock, ms: since when the group is in its phase. For an empty group this is in its record (KIP-211).
    pub(crate) state_since_ms: Option<i64>,
    /// Topics of the generation's subscriptions, if they can be read.
    pub(crate) subscribed: Option<BTreeSet<Arc<str>>>,
    pub(crate) offsets: Offsets,
    /// A record of the group was ordered, so a deletion needs a tombstone.
    pub(crate) recorded: bool,
    /// That the group is empty could not be written; when to try again, unless it is deleted.
    pub(crate) retry_at: Option<Now>,
    /// In order of arrival, at most two of each static member: one that is being written and the last that came. Invariant:
    /// none outside of [`Phase::Stable`].
    pub(crate) rejoins: Vec<Rejoin>,
    /// The group's entry in the timers.
    pub(crate) timer: Option<Now>,
    /// The group's share of what members keep in memory.
    pub(crate) counted_bytes: usize,
    /// The group's share of the doubts.
    pub(crate) counted_doubts: usize,
}

impl Group {
    pub(crate) fn new(id: Arc<str>) -> Self {
        Self {
            id,
            phase: Phase::Empty,
            generation: 0,
            protocol_type: None,
            protocol: None,
            roster: Roster::default(),
            pending: BTreeMap::new(),
            state_since_ms: None,
            subscribed: None,
            offsets: Offsets::default(),
            recorded: false,
            retry_at: None,
            rejoins: Vec::new(),
            timer: None,
            counted_bytes: 0,
            counted_doubts: 0,
        }
    }

    pub(crate) fn state(&self) -> GroupState {
        match self.phase {
            Phase::Empty => GroupState::Empty,
            Phase::Preparing { .. } => GroupState::PreparingRebalance,
            Phase::Completing { .. } => GroupState::CompletingRebalance,
            Phase::Stable { .. } => GroupState::Stable,
            Phase::Dead => GroupState::Dead,
        }
    }

    pub(crate) fn is_consumer(&self) -> bool {
        self.protocol_type.as_deref() == Some(CONSUMER)
    }

    /// Whether the group is known to consume the topic, or may, for all that can be read.
    pub(crate) fn is_subscribed_to(&self, topic: &str) -> bool {
        match &self.subscribed {
            Some(topics) => topics.contains(topic),
            None => self.is_consumer(),
        }
    }

    /// Neither memory nor log needs it.
    pub(crate) fn is_vacant(&self) -> bool {
        self.phase == Phase::Empty
            && self.pending.is_empty()
            && self.offsets.is_empty()
            && !self.recorded
    }

    pub(crate) fn all_joined(&self) -> bool {
        self.pending.is_empty() && self.roster.members.values().all(|member| member.join.is_some())
    }

    pub(crate) fn compute_subscribed(&mut self) {
        self.subscribed = match &self.protocol {
            _ if !self.is_consumer() => None,
            None => Some(BTreeSet::new()),
            Some(protocol) => self.roster.subscribed(protocol),
        };
    }

    /// The record of the present generation with these members.
    pub(crate) fn metadata(
        &self,
        members: Vec<MemberMetadata>,
        leader: Option<Arc<str>>,
    ) -> GroupMetadata {
        GroupMetadata {
            protocol_type: self.protocol_type.clone().unwrap_or_else(|| "".into()),
            generation: self.generation,
            protocol: self.protocol.clone(),
            leader,
            state_since_ms: self.state_since_ms,
            members,
        }
    }

    /// # Errors
    /// `UnknownMemberId`, or `FencedInstanceId` if another member has taken over the instance id (KIP-345).
    pub(crate) fn check_member(&self, id: &str, instance: Option<&str>) -> Result<(), GroupError> {
        if let Some(instance) = instance {
            match self.roster.static_member(instance) {
                None => return Err(GroupError::UnknownMemberId),
                Some(known) if &**known != id => return Err(GroupError::FencedInstanceId),
                Some(_) => {}
            }
        }
        if self.roster.members.contains_key(id) { Ok(()) } else { Err(GroupError::UnknownMemberId) }
    }

    /// What members, those that come back and given ids keep in memory, about.
    pub(crate) fn members_bytes(&self) -> usize {
        let count = self.roster.members.len() + self.rejoins.len() + self.pending.len();
        let rejoins = self.rejoins.iter().map(|rejoin| protocols_bytes(&rejoin.join.protocols));
        self.roster.bytes() + rejoins.sum::<usize>() + count * MEMBER_BYTES
    }

    /// When something happens without an event, at the earliest.
    pub(crate) fn next_deadline(&self) -> Option<Now> {
        let phase = match &self.phase {
            Phase::Preparing { deadline, .. } => Some(*deadline),
            Phase::Completing { sync_deadline, .. } | Phase::Stable { sync_deadline } => {
                *sync_deadline
            }
            Phase::Empty => self.retry_at,
            Phase::Dead => None,
        };
        let sessions =
            self.roster.members.values().filter(|m| !m.is_excused()).map(|m| m.session_deadline);
        let pending = self.pending.values().copied();
        phase.into_iter().chain(sessions).chain(pending).min()
    }
}
