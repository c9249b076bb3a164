//! What the log says: replayed record by record, before the first request.

use std::sync::Arc;

use crate::group::{Group, Phase};
use crate::groups::Groups;
use crate::record::{DamagedRecord, GroupMetadata, Key, OffsetCommit};
use crate::roster::{Member, later};
use crate::table::Table;
use crate::turn::Turn;

/// What became of a replayed record.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Replayed {
    /// It counts.
    Applied,
    /// Its key is of a version that is not known: written by a later Kafka, or about another kind of group.
    Skipped {
        /// The version.
        key_version: i16,
    },
    /// It cannot be read; what it was about stays as earlier records left it. To be told to the operator.
    Damaged {
        /// The group, if the key could be read.
        group: Option<Arc<str>>,
        /// Why.
        error: DamagedRecord,
    },
}

impl Groups {
    /// Takes one record of the log, in the log's order. `value` is `None` for a tombstone.
    pub fn replay(&mut self, key: &[u8], value: Option<&[u8]>) -> Replayed {
        let key = match Key::decode(key) {
            Ok(key) => key,
            Err(error) => return Replayed::Damaged { group: None, error },
        };
        let (group, result) = match key {
            Key::Unknown { version } => return Replayed::Skipped { key_version: version },
            Key::Offset { group, topic, partition } => {
                let offset = value.map(OffsetCommit::decode).transpose();
                (
                    group.clone(),
                    offset.map(|offset| self.table.replay_offset(&group, topic, partition, offset)),
                )
            }
            Key::Group { group } => {
                let metadata = value.map(GroupMetadata::decode).transpose();
                (group.clone(), metadata.map(|metadata| self.table.replay_group(&group, metadata)))
            }
        };
        match result {
            Ok(()) => Replayed::Applied,
            Err(error) => Replayed::Damaged { group: Some(group), error },
        }
    }
}

impl Table {
    fn replay_offset(
        &mut self,
        id: &Arc<str>,
        topic: Arc<str>,
        partition: i32,
        offset: Option<OffsetCommit>,
    ) {
        let group = self.groups.entry(id.clone()).or_insert_with(|| Group::new(id.clone()));
        match offset {
            Some(offset) => group.offsets.put(topic, partition, offset.into()),
            None => group.offsets.remove(&topic, partition),
        }
        if group.is_vacant() {
            self.groups.remove(id);
        }
    }

    fn replay_group(&mut self, id: &Arc<str>, metadata: Option<GroupMetadata>) {
        let offsets = self.groups.remove(id).map(|group| group.offsets).unwrap_or_default();
        let group = match metadata {
            None => Group { offsets, ..Group::new(id.clone()) },
            Some(metadata) => Group { offsets, ..Group::loaded(id.clone(), metadata) },
        };
        if !group.is_vacant() {
            self.groups.insert(id.clone(), group);
        }
    }

    /// Sessions begin, and groups that are larger than the broker now allows rebalance: those who come first stay.
    pub(crate) fn loaded(&mut self, turn: &mut Turn<'_>) {
        self.check_at = later(turn.moment.now, turn.settings.retention_check_interval_ms);
        let ids: Vec<_> = self.groups.keys().cloned().collect();
        for id in &ids {
            if let Some(group) = self.groups.get_mut(id) {
                for member in group.roster.members.values_mut() {
                    member.refresh(turn.moment);
                }
                if group.roster.members.len() > turn.settings.size_max() {
                    group.prepare_rebalance(turn, "the group has more members than group.max.size");
                }
            }
            self.tidy(id);
        }
    }
}

impl Group {
    /// A group as its record describes it: stable in its last generation, or empty.
    fn loaded(id: Arc<str>, metadata: GroupMetadata) -> Self {
        let mut group = Self::new(id);
        group.recorded = true;
        group.generation = metadata.generation;
        group.protocol_type = Some(metadata.protocol_type).filter(|kind| !kind.is_empty());
        group.state_since_ms = metadata.state_since_ms;
        if let Some(protocol) = metadata.protocol.filter(|_| !metadata.members.is_empty()) {
            for member in metadata.members {
                let id = member.member_id.clone();
                group.roster.insert(id, Member::loaded(member, protocol.clone()));
            }
            if let Some(leader) = metadata.leader.filter(|id| group.roster.members.contains_key(id))
            {
                group.roster.leader = Some(leader);
            }
            group.protocol = Some(protocol);
            group.phase = Phase::Stable { sync_deadline: None };
        }
        group.compute_subscribed();
        group
    }
}
