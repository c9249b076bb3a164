//! OffsetCommit: who may commit, and what the log gets.

use crate::effects::OffsetsRecord;
use crate::error::{AppendError, GroupError};
use crate::event::{Commit, CommitPartition, Moment};
use crate::group::{Group, Phase};
use crate::offsets::CommittedOffset;
use crate::record::{Key, NAME_BYTES_MAX};
use crate::settings::{Settings, WRITES_MAX};
use crate::turn::Turn;
use crate::writes::Purpose;
use crate::{Answer, Waiter};

/// Whether the commit may be made; `group` is `None` if there is none.
pub(crate) fn check(commit: &Commit, group: Option<&Group>) -> Result<(), GroupError> {
    if commit.group.len() > NAME_BYTES_MAX {
        return Err(GroupError::InvalidGroupId);
    }
    match group {
        Some(group) => group.check_commit(commit),
        // From outside: it makes a group without members (a simple consumer's, or an operator's).
        None if commit.generation < 0 => Ok(()),
        None if commit.knows_group_id_not_found => Err(GroupError::GroupIdNotFound),
        None => Err(GroupError::IllegalGeneration),
    }
}

/// Whether all that it commits is held or in doubt already.
pub(crate) fn is_known(commit: &Commit, group: Option<&Group>) -> bool {
    let is_held = |p: &CommitPartition| {
        group.is_some_and(|group| group.offsets.held(&p.topic, p.partition).is_some())
    };
    commit.partitions.iter().all(is_held)
}

impl Group {
    fn check_commit(&self, commit: &Commit) -> Result<(), GroupError> {
        let from_outside = commit.generation < 0;
        match self.phase {
            Phase::Dead => return Err(GroupError::CoordinatorNotAvailable),
            Phase::Empty if from_outside => return Ok(()),
            Phase::Empty
            | Phase::Preparing { .. }
            | Phase::Completing { .. }
            | Phase::Stable { .. } => {}
        }
        if from_outside && commit.member_id.is_empty() && commit.instance_id.is_none() {
            return Err(GroupError::UnknownMemberId);
        }
        self.check_member(&commit.member_id, commit.instance_id.as_deref())?;
        if commit.generation != self.generation {
            return Err(GroupError::IllegalGeneration);
        }
        // The member knows the generation but not yet what it is to read.
        if matches!(self.phase, Phase::Completing { .. }) {
            return Err(GroupError::RebalanceInProgress);
        }
        Ok(())
    }
}

/// Orders the append of a commit that [`check`] let through, or answers it at once if there is nothing to append.
pub(crate) fn append(turn: &mut Turn<'_>, commit: Commit) {
    let mut results = Vec::with_capacity(commit.partitions.len());
    let mut offsets = Vec::new();
    let mut records = Vec::new();
    for partition in commit.partitions {
        if let Err(error) = check_partition(&partition, turn.settings) {
            results.push(Err(error));
            continue;
        }
        let offset = committed(&partition, commit.retention_ms, turn.moment);
        records.push(OffsetsRecord {
            key: Key::offset(&commit.group, &partition.topic, partition.partition),
            value: Some(offset.record().encode()),
        });
        offsets.push((partition.topic, partition.partition, offset));
        results.push(Ok(()));
    }
    let Commit { waiter, group, .. } = commit;
    if records.is_empty() {
        turn.answer(waiter, Answer::Commit(Ok(results)));
    } else if turn.writes.len() >= WRITES_MAX {
        turn.answer(waiter, Answer::Commit(Err(GroupError::CoordinatorNotAvailable)));
    } else {
        turn.append(Purpose::Commit { group, waiter, offsets, results }, records);
    }
}

fn check_partition(partition: &CommitPartition, settings: &Settings) -> Result<(), GroupError> {
    let bytes_max = settings.offset_metadata_bytes_max.min(NAME_BYTES_MAX);
    if partition.metadata.len() > bytes_max {
        Err(GroupError::OffsetMetadataTooLarge)
    } else if partition.topic.len() > NAME_BYTES_MAX {
        Err(GroupError::InvalidRequest)
    } else {
        Ok(())
    }
}

fn committed(
    partition: &CommitPartition,
    retention_ms: Option<i64>,
    moment: Moment,
) -> CommittedOffset {
    CommittedOffset {
        offset: partition.offset,
        leader_epoch: (partition.leader_epoch >= 0).then_some(partition.leader_epoch),
        metadata: partition.metadata.clone(),
        commit_timestamp_ms: moment.wall_ms,
        expire_timestamp_ms: retention_ms.map(|ms| moment.wall_ms.saturating_add(ms)),
    }
}

/// The answer to a commit whose append is done.
pub(crate) fn answer(
    turn: &mut Turn<'_>,
    waiter: Waiter,
    results: Vec<Result<(), GroupError>>,
    result: Result<(), AppendError>,
) {
    let results = match result {
        Ok(()) => results,
        Err(error) => {
            results.into_iter().map(|partition| partition.and(Err(error.of_commit()))).collect()
        }
    };
    turn.answer(waiter, Answer::Commit(Ok(results)));
}
