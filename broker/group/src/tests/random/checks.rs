//! What must hold after every step, and what when everything has come to rest.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;

use crate::group::{Group, Phase};
use crate::offsets::Offsets;
use crate::{GroupState, Groups, OffsetRead};

/// Group and topic.
pub(super) type Key = (Arc<str>, Arc<str>);

/// An acknowledged commit: value and wall clock.
pub(super) type Acknowledged = BTreeMap<Key, (i64, i64)>;

#[derive(Default)]
pub(super) struct Checks {
    /// The newest acknowledged commit of each group and topic; an ordered deletion removes it.
    pub(super) acknowledged: Acknowledged,
    /// Of which groups and topics the deletion was acknowledged, and nothing was committed since.
    pub(super) deleted: BTreeSet<Key>,
    /// Generation of each group at the last look, in this coordinator's term.
    generations: BTreeMap<Arc<str>, i32>,
    /// What members were assigned, by term, group and generation: one request's assignments or none.
    assignments: BTreeMap<(u64, Arc<str>, i32), Bytes>,
    /// For which generation each of them was made.
    made_for: BTreeMap<Bytes, i32>,
}

impl Checks {
    pub(super) fn new_term(&mut self) {
        self.generations.clear();
    }

    pub(super) fn every_step(
        &mut self,
        groups: &Groups,
        size_max: usize,
        wall_ms: i64,
        retention_ms: i64,
    ) -> Result<(), String> {
        let table = &groups.table.groups;
        // A group that was deleted may come again under its name, from its first generation on.
        self.generations.retain(|id, _| table.contains_key(id));
        self.assignments.retain(|(_, id, _), _| table.contains_key(id));
        for (id, group) in table {
            check_group(group, size_max).map_err(|error| format!("{id}: {error}"))?;
            let last = self.generations.insert(id.clone(), group.generation).unwrap_or(0);
            let deleted = group.generation == 0 && !group.recorded;
            if group.generation < last && !deleted {
                return Err(format!("{id}: generation {} after {last}", group.generation));
            }
        }
        for (group, topic) in &self.deleted {
            if let OffsetRead::Committed(offset) = groups.committed(group, topic, 0) {
                return Err(format!("{group} {topic}: {offset:?} is there, and was deleted"));
            }
        }
        for ((group, topic), (value, committed_ms)) in &self.acknowledged {
            match groups.committed(group, topic, 0) {
                OffsetRead::Committed(offset) if offset.offset < *value => {
                    return Err(format!(
                        "{group} {topic}: offset {} after {value} was acknowledged",
                        offset.offset
                    ));
                }
                OffsetRead::None if wall_ms - committed_ms < retention_ms => {
                    return Err(format!("{group} {topic}: acknowledged offset {value} is lost"));
                }
                OffsetRead::Committed(_) | OffsetRead::None => {}
            }
        }
        Ok(())
    }

    /// All members of a generation are assigned by one and the same request of the leader.
    pub(super) fn assigned(
        &mut self,
        term: u64,
        group: &Arc<str>,
        generation: i32,
        assignment: &Bytes,
    ) -> Result<(), String> {
        if assignment.is_empty() {
            return Ok(());
        }
        let first = self
            .assignments
            .entry((term, group.clone(), generation))
            .or_insert_with(|| assignment.clone());
        if first != assignment {
            return Err(format!(
                "{group}: generation {generation} is assigned twice, {first:?} and {assignment:?}"
            ));
        }
        if *self.made_for.entry(assignment.clone()).or_insert(generation) != generation {
            return Err(format!(
                "{group}: generation {generation} has {assignment:?} of another generation"
            ));
        }
        Ok(())
    }
}

fn check_group(group: &Group, size_max: usize) -> Result<(), String> {
    let members = &group.roster.members;
    if members.len() + group.pending.len() > size_max {
        return Err(format!("{} members and {} ids given out", members.len(), group.pending.len()));
    }
    match &group.roster.leader {
        Some(leader) if !members.contains_key(leader) => {
            return Err(format!("the leader {leader} is no member"));
        }
        None if !members.is_empty() => return Err("members without a leader".to_owned()),
        Some(_) | None => {}
    }
    for (id, member) in members {
        let known =
            member.instance_id.as_ref().map(|instance| group.roster.static_member(instance));
        if known.is_some_and(|known| known != Some(id)) {
            return Err(format!("static member {id} is not found by its instance id"));
        }
        if group.pending.contains_key(id) {
            return Err(format!("{id} is a member and is still to join"));
        }
        let may_join = matches!(group.phase, Phase::Preparing { .. });
        let may_sync = matches!(group.phase, Phase::Completing { .. });
        if (member.join.is_some() && !may_join) || (member.sync.is_some() && !may_sync) {
            return Err(format!("{id} waits in state {}", group.state().name()));
        }
    }
    if !members.is_empty() && group.roster.select_protocol().is_none() {
        return Err("members without a common protocol".to_owned());
    }
    if !group.rejoins.is_empty() && !matches!(group.phase, Phase::Stable { .. }) {
        return Err("a static member waits for the log outside of a stable group".to_owned());
    }
    if matches!(group.phase, Phase::Empty | Phase::Dead) && !members.is_empty() {
        return Err("an empty group with members".to_owned());
    }
    match (group.timer, group.next_deadline()) {
        (None, Some(_)) => Err("a deadline without a timer".to_owned()),
        (Some(timer), Some(deadline)) if timer > deadline => {
            Err("a timer behind its deadline".to_owned())
        }
        _ => Ok(()),
    }
}

/// Nothing is under way: a coordinator over the same log knows the same.
impl Groups {
    /// What an unsettled append is for.
    pub(super) fn purpose_of(&self, write: crate::WriteId) -> Option<crate::writes::Purpose> {
        self.writes.purpose(write).cloned()
    }
}

/// What was acknowledged is there, or something later that was not; what is not even in doubt is not there.
fn same_offsets(memory: &Offsets, loaded: &Offsets) -> Result<(), String> {
    for (topic, partition, _) in memory.keys().chain(loaded.keys()) {
        let after = loaded.get(topic, partition);
        let is_same = match memory.held(topic, partition) {
            Some(Some(before)) => after.is_some_and(|after| after.offset >= before.offset),
            Some(None) => true,
            None => after.is_none(),
        };
        if !is_same {
            let before = memory.held(topic, partition);
            return Err(format!("{topic}-{partition}: {before:?} and {after:?}"));
        }
    }
    Ok(())
}

pub(super) fn same_after_restart(memory: &Groups, loaded: &Groups) -> Result<(), String> {
    for (id, group) in &memory.table.groups {
        let other = loaded.table.groups.get(id);
        same_offsets(&group.offsets, other.map_or(&Offsets::default(), |other| &other.offsets))
            .map_err(|what| format!("{id}: other offsets after a restart: {what}"))?;
        // That it is empty is still to be written.
        if group.retry_at.is_some() {
            continue;
        }
        let Some(other) = other else {
            let soft = matches!(
                group.state(),
                GroupState::PreparingRebalance | GroupState::CompletingRebalance
            );
            if soft || (!group.recorded && group.offsets.iter().next().is_none()) {
                continue;
            }
            return Err(format!("{id} ({}) is gone after a restart", group.state().name()));
        };
        if other.generation > group.generation {
            return Err(format!(
                "{id}: generation {} after a restart, {} before",
                other.generation, group.generation
            ));
        }
        let (before, after) = (memory.describe(id), loaded.describe(id));
        let (Some(before), Some(after)) = (before, after) else { continue };
        match before.state {
            GroupState::Stable
                if (&before.members, before.generation) != (&after.members, after.generation) =>
            {
                return Err(format!("{id}: other members after a restart: {before:?} {after:?}"));
            }
            GroupState::Empty if before != after => {
                return Err(format!("{id}: empty otherwise after a restart: {before:?} {after:?}"));
            }
            _ => {}
        }
    }
    let forgotten = loaded.table.groups.keys().find(|id| !memory.table.groups.contains_key(*id));
    forgotten.map_or(Ok(()), |id| Err(format!("{id} is back after a restart")))
}
