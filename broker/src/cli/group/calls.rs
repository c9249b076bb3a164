//! The questions about a group that its coordinator, and the leaders of its partitions, answer.

use std::collections::BTreeMap;

use barnabas_wire::messages::describe_groups_response::DescribedGroup;
use barnabas_wire::messages::list_groups_response::ListedGroup;
use barnabas_wire::messages::offset_commit_request::{
    OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use barnabas_wire::messages::{
    DeleteGroupsRequest, DescribeGroupsRequest, FindCoordinatorRequest, ListGroupsRequest,
    OffsetCommitRequest, OffsetFetchRequest,
};

use super::super::CliError;
use super::super::ask::printable;
use super::super::kafka::{ByPartition, Cluster};

/// What a group has committed in a partition.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Committed {
    pub(super) offset: i64,
    pub(super) leader_epoch: Option<i32>,
    pub(super) metadata: String,
}

impl Cluster<'_> {
    /// Id of the broker that coordinates a group.
    pub(super) fn coordinator(&self, group: &str) -> Result<i32, CliError> {
        let mut request = FindCoordinatorRequest::default();
        request.key = group.into();
        let mut last =
            CliError::Unreachable("no broker is registered at present; try again".to_owned());
        for broker in self.brokers() {
            match self.call(broker, 2, &request) {
                Ok(answer) if answer.error_code == 0 => return Ok(answer.node_id),
                Ok(answer) => last = refusal(group, answer.error_code),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// All groups with their coordinators. Every broker must answer: a list with gaps would say that groups are gone.
    pub(super) fn groups(&self) -> Result<Vec<(i32, ListedGroup)>, CliError> {
        let mut all = Vec::new();
        for broker in self.brokers() {
            let answer = self.call(broker, 4, &ListGroupsRequest::default())?;
            if answer.error_code != 0 {
                return Err(CliError::NotNow(format!(
                    "broker {broker} has not read all its groups yet; try again"
                )));
            }
            all.extend(answer.groups.into_iter().map(|group| (broker, group)));
        }
        Ok(all)
    }

    pub(super) fn describe(
        &self,
        coordinator: i32,
        group: &str,
    ) -> Result<DescribedGroup, CliError> {
        let mut request = DescribeGroupsRequest::default();
        request.groups.push(group.into());
        let answer = self.call(coordinator, 5, &request)?;
        let described = answer.groups.into_iter().next().ok_or_else(|| empty(coordinator))?;
        match described.error_code {
            0 => Ok(described),
            code => Err(refusal(group, code)),
        }
    }

    pub(super) fn delete(&self, group: &str) -> Result<(), CliError> {
        let coordinator = self.coordinator(group)?;
        let mut request = DeleteGroupsRequest::default();
        request.groups_names.push(group.into());
        let answer = self.call(coordinator, 2, &request)?;
        let result = answer.results.first().ok_or_else(|| empty(coordinator))?;
        match result.error_code {
            0 => Ok(()),
            code => Err(refusal(group, code)),
        }
    }

    /// Everything that a group has committed.
    pub(super) fn committed(
        &self,
        coordinator: i32,
        group: &str,
    ) -> Result<ByPartition<Committed>, CliError> {
        let mut request = OffsetFetchRequest::default();
        request.group_id = group.into();
        request.topics = None;
        let answer = self.call(coordinator, 7, &request)?;
        if answer.error_code != 0 {
            return Err(refusal(group, answer.error_code));
        }
        let mut committed = BTreeMap::new();
        for topic in answer.topics {
            for partition in topic.partitions {
                let one = Committed {
                    offset: partition.committed_offset,
                    leader_epoch: Some(partition.committed_leader_epoch).filter(|e| *e >= 0),
                    metadata: partition
                        .metadata
                        .map_or_else(String::new, |m| m.as_str().to_owned()),
                };
                committed.insert((topic.name.as_str().to_owned(), partition.partition_index), one);
            }
        }
        Ok(committed)
    }

    /// Commits offsets from outside of the group, which must have no members.
    pub(super) fn commit(
        &self,
        group: &str,
        offsets: &ByPartition<i64>,
    ) -> Result<ByPartition<i16>, CliError> {
        let coordinator = self.coordinator(group)?;
        let mut request = OffsetCommitRequest::default();
        request.group_id = group.into();
        request.generation_id_or_member_epoch = -1;
        for ((name, index), offset) in offsets {
            if request.topics.last().is_none_or(|topic| topic.name.as_str() != name) {
                let mut topic = OffsetCommitRequestTopic::default();
                topic.name = name.as_str().into();
                request.topics.push(topic);
            }
            let mut partition = OffsetCommitRequestPartition::default();
            partition.partition_index = *index;
            partition.committed_offset = *offset;
            partition.committed_leader_epoch = -1;
            partition.committed_metadata = Some("".into());
            if let Some(topic) = request.topics.last_mut() {
                topic.partitions.push(partition);
            }
        }
        let answer = self.call(coordinator, 7, &request)?;
        let codes = answer.topics.into_iter().flat_map(|topic| {
            let name = topic.name.as_str().to_owned();
            let one = move |p: &barnabas_wire::messages::offset_commit_response::OffsetCommitResponsePartition| {
                ((name.clone(), p.partition_index), p.error_code)
            };
            topic.partitions.iter().map(one).collect::<Vec<_>>()
        });
        Ok(codes.collect())
    }
}

fn empty(broker: i32) -> CliError {
    CliError::Refused(format!("broker {broker} gave an empty answer"))
}

/// Kafka's error codes about a group as one sentence; most answers have no place for text.
pub(super) fn refusal(group: &str, code: i16) -> CliError {
    let group = printable(group);
    match code {
        14..=16 => CliError::NotNow(format!(
            "the coordinator of group '{group}' is not available at present (Kafka's error {code}); try again. The topic \
             __consumer_offsets is created with the first group, on as many brokers as offsets.topic.replication.factor says"
        )),
        22 | 25 | 27 | 68 => CliError::NotNow(format!(
            "group '{group}' has members; stop its consumers first (`barnabas group describe` shows them)"
        )),
        69 => CliError::Refused(format!(
            "there is no group '{group}'; `barnabas group list` shows those that are"
        )),
        code => CliError::Refused(format!(
            "the coordinator of group '{group}' refused with Kafka's error code {code}"
        )),
    }
}
