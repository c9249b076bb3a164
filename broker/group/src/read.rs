//! What can be asked without changing anything.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;

use crate::group::{GroupState, Phase};
use crate::groups::Groups;
use crate::offsets::CommittedOffset;

/// One committed offset, as OffsetFetch wants it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OffsetRead<'a> {
    /// The last acknowledged commit.
    Committed(&'a CommittedOffset),
    /// None.
    None,
}

/// A group in a list.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Listed {
    /// Group id.
    pub group: Arc<str>,
    /// State.
    pub state: GroupState,
    /// Kind of group; empty if it never had members.
    pub protocol_type: Arc<str>,
}

/// A group with its members.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Described {
    /// State.
    pub state: GroupState,
    /// Present generation, 0 before the first.
    pub generation: i32,
    /// Kind of group; empty if it never had members.
    pub protocol_type: Arc<str>,
    /// Protocol of a stable group; else empty.
    pub protocol: Arc<str>,
    /// The leader's member id.
    pub leader: Option<Arc<str>>,
    /// Members by id.
    pub members: Vec<DescribedMember>,
    /// Wall clock, ms: since when the group is in this state, if that is known.
    pub state_since_ms: Option<i64>,
}

/// A member of a described group.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DescribedMember {
    /// Member id.
    pub member_id: Arc<str>,
    /// `group.instance.id` of a static member.
    pub instance_id: Option<Arc<str>>,
    /// Client id.
    pub client_id: Arc<str>,
    /// Address, as Kafka shows it.
    pub client_host: Arc<str>,
    /// Metadata of the protocol of a stable group; else empty.
    pub metadata: Bytes,
    /// Assignment in a stable group; else empty.
    pub assignment: Bytes,
}

impl Groups {
    /// The last acknowledged commit of a partition. Without transactions none is ever unstable.
    #[must_use]
    pub fn committed(&self, group: &str, topic: &str, partition: i32) -> OffsetRead<'_> {
        let group = self.table.groups.get(group);
        match group.and_then(|group| group.offsets.get(topic, partition)) {
            Some(offset) => OffsetRead::Committed(offset),
            None => OffsetRead::None,
        }
    }

    /// All committed offsets of a group, by topic and partition.
    pub fn offsets(&self, group: &str) -> impl Iterator<Item = (&Arc<str>, i32, &CommittedOffset)> {
        self.table.groups.get(group).into_iter().flat_map(|group| group.offsets.iter())
    }

    /// Topics for which anything is committed.
    #[must_use]
    pub fn committed_topics(&self) -> BTreeSet<Arc<str>> {
        self.table.groups.values().flat_map(|group| group.offsets.topics().cloned()).collect()
    }

    /// When the offset goes if nothing changes, wall clock ms; `None`: not while the group is as it is (KIP-211).
    #[must_use]
    pub fn expires_at_ms(&self, group: &str, topic: &str, partition: i32) -> Option<i64> {
        let group = self.table.groups.get(group)?;
        group.expires_at_ms(topic, group.offsets.get(topic, partition)?, &self.settings)
    }

    /// All groups, by id.
    pub fn list(&self) -> impl Iterator<Item = Listed> {
        self.table.groups.values().map(|group| Listed {
            group: group.id.clone(),
            state: group.state(),
            protocol_type: group.protocol_type.clone().unwrap_or_else(|| "".into()),
        })
    }

    /// All groups, by id, with their states and numbers of members.
    pub fn sizes(&self) -> impl Iterator<Item = (&Arc<str>, GroupState, usize)> {
        let groups = self.table.groups.values();
        groups.map(|group| (&group.id, group.state(), group.roster.members.len()))
    }

    /// A group; `None` if there is none (for DescribeGroups: `Dead`).
    #[must_use]
    pub fn describe(&self, group: &str) -> Option<Described> {
        let group = self.table.groups.get(group)?;
        let protocol =
            group.protocol.clone().filter(|_| matches!(group.phase, Phase::Stable { .. }));
        let member = |(id, member): (&Arc<str>, &crate::roster::Member)| {
            let metadata =
                protocol.as_ref().and_then(|protocol| member.metadata(protocol).cloned());
            DescribedMember {
                member_id: id.clone(),
                instance_id: member.instance_id.clone(),
                client_id: member.client_id.clone(),
                client_host: member.client_host.clone(),
                assignment: if metadata.is_some() {
                    member.assignment.clone()
                } else {
                    Bytes::new()
                },
                metadata: metadata.unwrap_or_default(),
            }
        };
        Some(Described {
            state: group.state(),
            generation: group.generation,
            protocol_type: group.protocol_type.clone().unwrap_or_else(|| "".into()),
            leader: group.roster.leader.clone(),
            members: group.roster.members.iter().map(member).collect(),
            state_since_ms: group.state_since_ms,
            protocol: protocol.unwrap_or_else(|| "".into()),
        })
    }
}
