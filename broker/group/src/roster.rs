//! The members of a group, who leads them, and the protocol that they agree on.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;

use barnabas_types::Now;

use crate::event::{Join, Moment, Protocol, Waiter};
use crate::record::MemberMetadata;
use crate::settings::REBALANCE_TIMEOUT_MIN_MS;

/// One member.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Member {
    pub(crate) instance_id: Option<Arc<str>>,
    pub(crate) client_id: Arc<str>,
    pub(crate) client_host: Arc<str>,
    pub(crate) session_timeout_ms: i32,
    pub(crate) rebalance_timeout_ms: i32,
    /// In order of preference; at least one.
    pub(crate) protocols: Vec<Protocol>,
    /// Of the present generation; empty before the leader's came, or if it gave none.
    pub(crate) assignment: Bytes,
    /// Whose join waits for the generation.
    pub(crate) join: Option<Waiter>,
    /// Whose sync waits for the leader's.
    pub(crate) sync: Option<Waiter>,
    /// When the member is given up, unless it waits ([`Member::is_excused`]).
    pub(crate) session_deadline: Now,
    /// Has not completed a join yet.
    pub(crate) is_new: bool,
    /// The client knows its member id (it joined with it, or was answered).
    pub(crate) id_told: bool,
    /// Has asked for its assignment in this generation.
    pub(crate) synced: bool,
}

impl Member {
    pub(crate) fn of(join: &Join) -> Self {
        Self {
            instance_id: join.instance_id.clone(),
            client_id: join.client_id.clone(),
            client_host: join.client_host.clone(),
            session_timeout_ms: join.session_timeout_ms,
            rebalance_timeout_ms: rebalance_timeout_ms(join),
            protocols: join.protocols.clone(),
            assignment: Bytes::new(),
            join: None,
            sync: None,
            session_deadline: Now(0),
            is_new: true,
            id_told: !join.member_id.is_empty(),
            synced: false,
        }
    }

    /// A member as its record describes it.
    pub(crate) fn loaded(record: MemberMetadata, protocol: Arc<str>) -> Self {
        Self {
            instance_id: record.instance_id,
            client_id: record.client_id,
            client_host: record.client_host,
            session_timeout_ms: record.session_timeout_ms,
            rebalance_timeout_ms: record.rebalance_timeout_ms.unwrap_or(record.session_timeout_ms),
            protocols: vec![Protocol { name: protocol, metadata: record.subscription }],
            assignment: record.assignment,
            join: None,
            sync: None,
            session_deadline: Now(0),
            is_new: false,
            id_told: true,
            synced: true,
        }
    }

    /// Takes over what a further join of the same member says.
    pub(crate) fn update(&mut self, join: &Join) {
        self.protocols.clone_from(&join.protocols);
        self.session_timeout_ms = join.session_timeout_ms;
        self.rebalance_timeout_ms = rebalance_timeout_ms(join);
        self.client_id = join.client_id.clone();
        self.client_host = join.client_host.clone();
    }

    pub(crate) fn refresh(&mut self, moment: Moment) {
        self.session_deadline = later(moment.now, ms(self.session_timeout_ms));
    }

    /// Cannot send heartbeats, because a request of it waits here. A new member is not excused: its client may have
    /// given up long ago.
    pub(crate) fn is_excused(&self) -> bool {
        !self.is_new && (self.join.is_some() || self.sync.is_some())
    }

    pub(crate) fn metadata(&self, protocol: &str) -> Option<&Bytes> {
        self.protocols.iter().find(|p| &*p.name == protocol).map(|p| &p.metadata)
    }

    /// What its protocols and its assignment keep in memory.
    pub(crate) fn bytes(&self) -> usize {
        self.assignment.len() + protocols_bytes(&self.protocols)
    }

    fn supports(&self, protocol: &str) -> bool {
        self.protocols.iter().any(|p| &*p.name == protocol)
    }
}

/// Bytes of names and metadata.
pub(crate) fn protocols_bytes(protocols: &[Protocol]) -> usize {
    protocols.iter().map(|p| p.name.len() + p.metadata.len()).sum()
}

/// Version 0 of a join has no rebalance timeout.
fn rebalance_timeout_ms(join: &Join) -> i32 {
    if join.rebalance_timeout_ms < 0 { join.session_timeout_ms } else { join.rebalance_timeout_ms }
}

/// A client's timeout, never negative.
pub(crate) fn ms(timeout: i32) -> u64 {
    u64::try_from(timeout).unwrap_or(0)
}

pub(crate) fn later(now: Now, ms: u64) -> Now {
    Now(now.0.saturating_add(ms))
}

/// All members.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Roster {
    pub(crate) members: BTreeMap<Arc<str>, Member>,
    /// Static members by instance id. Invariant: exactly the members with one.
    statics: BTreeMap<Arc<str>, Arc<str>>,
    /// Invariant: a member; `None` only without members.
    pub(crate) leader: Option<Arc<str>>,
}

impl Roster {
    pub(crate) fn insert(&mut self, id: Arc<str>, member: Member) {
        if let Some(instance) = &member.instance_id {
            self.statics.insert(instance.clone(), id.clone());
        }
        self.leader.get_or_insert_with(|| id.clone());
        self.members.insert(id, member);
    }

    pub(crate) fn remove(&mut self, id: &str) -> Option<Member> {
        let member = self.members.remove(id)?;
        if let Some(instance) = &member.instance_id
            && self.statics.get(instance).is_some_and(|known| &**known == id)
        {
            self.statics.remove(instance);
        }
        if self.is_leader(id) {
            self.leader = self.members.keys().next().cloned();
        }
        Some(member)
    }

    /// Gives the static member `old` the id `new`, and its place, leadership and assignment with it. What waited for
    /// the old id is in the result.
    pub(crate) fn rename(&mut self, old: &str, new: &Arc<str>) -> Option<Member> {
        let was_leader = self.is_leader(old);
        let member = self.remove(old)?;
        let successor = Member { join: None, sync: None, is_new: false, ..member.clone() };
        self.insert(new.clone(), successor);
        if was_leader {
            self.leader = Some(new.clone());
        }
        Some(member)
    }

    pub(crate) fn static_member(&self, instance: &str) -> Option<&Arc<str>> {
        self.statics.get(instance)
    }

    pub(crate) fn is_leader(&self, id: &str) -> bool {
        self.leader.as_deref() == Some(id)
    }

    pub(crate) fn waiting_joins(&self) -> usize {
        self.members.values().filter(|member| member.join.is_some()).count()
    }

    /// The longest that a member asks for.
    pub(crate) fn rebalance_timeout_ms(&self) -> u64 {
        let asked = self.members.values().map(|member| ms(member.rebalance_timeout_ms));
        asked.fold(REBALANCE_TIMEOUT_MIN_MS, u64::max)
    }

    /// Whether one of these protocols is supported by all members but `except`, whose they are to be.
    pub(crate) fn agrees(&self, protocols: &[Protocol], except: Option<&str>) -> bool {
        protocols.iter().any(|protocol| {
            self.members
                .iter()
                .all(|(id, member)| except == Some(&**id) || member.supports(&protocol.name))
        })
    }

    /// Of the protocols that all support, the one that most prefer; of equals the first by name. `None` without
    /// members.
    pub(crate) fn select_protocol(&self) -> Option<Arc<str>> {
        let first = self.members.values().next()?;
        let supported = |p: &&Protocol| self.members.values().all(|other| other.supports(&p.name));
        let candidates: BTreeSet<_> =
            first.protocols.iter().filter(supported).map(|p| &p.name).collect();
        let mut votes = BTreeMap::<&Arc<str>, usize>::new();
        for member in self.members.values() {
            let vote = member.protocols.iter().find(|p| candidates.contains(&p.name));
            if let Some(vote) = vote {
                *votes.entry(&vote.name).or_default() += 1;
            }
        }
        let most = *votes.values().max()?;
        votes.into_iter().find(|(_, count)| *count == most).map(|(name, _)| name.clone())
    }

    /// What the members keep in memory, in bytes, besides their ids.
    pub(crate) fn bytes(&self) -> usize {
        self.members.values().map(Member::bytes).sum()
    }

    /// All topics in the members' subscriptions; `None` if one is not a subscription.
    pub(crate) fn subscribed(&self, protocol: &str) -> Option<BTreeSet<Arc<str>>> {
        let mut topics = BTreeSet::new();
        for member in self.members.values() {
            topics.extend(crate::subscription::topics(member.metadata(protocol)?)?);
        }
        Some(topics)
    }

    /// Members as they are written, each with what `assignment` says.
    pub(crate) fn records(
        &self,
        protocol: &str,
        assignment: impl Fn(&str, &Member) -> Bytes,
    ) -> Vec<MemberMetadata> {
        self.members
            .iter()
            .map(|(id, member)| MemberMetadata {
                member_id: id.clone(),
                instance_id: member.instance_id.clone(),
                client_id: member.client_id.clone(),
                client_host: member.client_host.clone(),
                rebalance_timeout_ms: Some(member.rebalance_timeout_ms),
                session_timeout_ms: member.session_timeout_ms,
                subscription: member.metadata(protocol).cloned().unwrap_or_default(),
                assignment: assignment(id, member),
            })
            .collect()
    }
}
