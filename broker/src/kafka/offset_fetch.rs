//! OffsetFetch (key 9), versions 1 to 9: all offsets of a group (from 2), KIP-320 (leader epochs, from 5), KIP-447 (stable
//! offsets, from 7), KIP-709 (several groups, from 8).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use barnabas_group::{CommittedOffset, GroupError, Groups, OffsetRead};
use barnabas_wire::messages::offset_fetch_response::{
    OffsetFetchResponseGroup, OffsetFetchResponsePartition, OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic, OffsetFetchResponseTopics,
};
use barnabas_wire::messages::{OffsetFetchRequest, OffsetFetchResponse, StrBytes};

use super::error_codes::group_error_code;
use super::group_calls::shared;
use crate::node::Node;

/// First version with an error for the whole request.
const ERROR_VERSION: i16 = 2;
/// First version with leader epochs.
const LEADER_EPOCH_VERSION: i16 = 5;
/// First version that asks for several groups.
const GROUPS_VERSION: i16 = 8;

/// What is asked of one group: topics and partitions, `None` for all.
#[derive(Clone)]
struct Asked {
    group_id: Arc<str>,
    topics: Option<Vec<(Arc<str>, Vec<i32>)>>,
}

/// One partition of an answer.
type Fetched = (i32, Result<Option<CommittedOffset>, GroupError>);

pub(super) async fn handle(
    node: Arc<Node>,
    version: i16,
    request: OffsetFetchRequest,
) -> OffsetFetchResponse {
    let mut groups = Vec::new();
    for asked in asked(version, &request) {
        let found = match node.groups.of_group(&asked.group_id) {
            Ok(coordinator) => {
                let wanted = asked.clone();
                coordinator.look(move |groups| read(groups, &wanted)).await
            }
            Err(error) => Err(error),
        };
        groups.push((asked, found));
    }
    respond(version, groups)
}

/// The two forms of the request as one list, in which each group and of it each partition is named once: a small
/// request that repeats what has much to tell must not have a huge answer. Names are copied, so that the request's
/// frame can go.
fn asked(version: i16, request: &OffsetFetchRequest) -> Vec<Asked> {
    if version < GROUPS_VERSION {
        let topics = request.topics.as_ref();
        let topics = topics.map(|t| once(t.iter().map(|t| (&t.name, &t.partition_indexes[..]))));
        return vec![Asked { group_id: shared(&request.group_id), topics }];
    }
    let mut by_group = BTreeMap::<&str, Vec<usize>>::new();
    for (index, group) in request.groups.iter().enumerate() {
        by_group.entry(group.group_id.as_str()).or_default().push(index);
    }
    let of_group = |group_id: &StrBytes| {
        let named = by_group.remove(group_id.as_str())?;
        let topics = named.iter().map(|index| request.groups[*index].topics.as_ref());
        let topics: Option<Vec<_>> = topics.collect();
        let topics = topics.map(|all| {
            once(all.into_iter().flatten().map(|t| (&t.name, &t.partition_indexes[..])))
        });
        Some(Asked { group_id: shared(group_id), topics })
    };
    request.groups.iter().map(|group| &group.group_id).filter_map(of_group).collect()
}

/// Topics and their partitions, without those that were there before.
fn once<'a>(topics: impl Iterator<Item = (&'a StrBytes, &'a [i32])>) -> Vec<(Arc<str>, Vec<i32>)> {
    let mut seen = BTreeSet::new();
    let of_topic = |(name, partitions): (&'a StrBytes, &'a [i32])| {
        let new = partitions.iter().filter(|index| seen.insert((name.as_str(), **index)));
        (shared(name), new.copied().collect())
    };
    topics.map(of_topic).collect()
}

fn read(groups: &Groups, asked: &Asked) -> Vec<(Arc<str>, Vec<Fetched>)> {
    let Some(topics) = &asked.topics else {
        let mut all: Vec<(Arc<str>, Vec<Fetched>)> = Vec::new();
        for (topic, partition, offset) in groups.offsets(&asked.group_id) {
            let fetched = (partition, Ok(Some(offset.clone())));
            match all.last_mut() {
                Some((last, partitions)) if last == topic => partitions.push(fetched),
                _ => all.push((topic.clone(), vec![fetched])),
            }
        }
        return all;
    };
    let one =
        |topic: &str, partition: i32| match groups.committed(&asked.group_id, topic, partition) {
            OffsetRead::Committed(offset) => (partition, Ok(Some(offset.clone()))),
            OffsetRead::None => (partition, Ok(None)),
        };
    let of_topic = |(topic, partitions): &(Arc<str>, Vec<i32>)| {
        (topic.clone(), partitions.iter().map(|partition| one(topic, *partition)).collect())
    };
    topics.iter().map(of_topic).collect()
}

type Found = Result<Vec<(Arc<str>, Vec<Fetched>)>, GroupError>;

fn respond(version: i16, groups: Vec<(Asked, Found)>) -> OffsetFetchResponse {
    let mut response = OffsetFetchResponse::default();
    for (asked, found) in groups {
        if version >= GROUPS_VERSION {
            let mut group = OffsetFetchResponseGroup::default();
            group.group_id = (&*asked.group_id).into();
            match found {
                Ok(topics) => group.topics = topics.into_iter().map(of_group).collect(),
                Err(error) => group.error_code = group_error_code(error),
            }
            response.groups.push(group);
            continue;
        }
        let topics = match found {
            Ok(topics) => topics,
            Err(error) if version >= ERROR_VERSION => {
                response.error_code = group_error_code(error);
                continue;
            }
            // Each partition says it.
            Err(error) => asked
                .topics
                .unwrap_or_default()
                .into_iter()
                .map(|(topic, partitions)| {
                    (topic, partitions.into_iter().map(|index| (index, Err(error))).collect())
                })
                .collect(),
        };
        response.topics = topics.into_iter().map(|topic| of_request(version, topic)).collect();
    }
    response
}

/// Offset, leader epoch, metadata and error code of a partition.
fn fields(found: Result<Option<CommittedOffset>, GroupError>) -> (i64, i32, StrBytes, i16) {
    match found {
        Ok(Some(offset)) => {
            let epoch = offset.leader_epoch.unwrap_or(-1);
            (offset.offset, epoch, offset.metadata.as_str().into(), 0)
        }
        Ok(None) => (-1, -1, StrBytes::default(), 0),
        Err(error) => (-1, -1, StrBytes::default(), group_error_code(error)),
    }
}

fn of_group((name, partitions): (Arc<str>, Vec<Fetched>)) -> OffsetFetchResponseTopics {
    let mut topic = OffsetFetchResponseTopics::default();
    topic.name = (&*name).into();
    for (index, found) in partitions {
        let mut entry = OffsetFetchResponsePartitions::default();
        let (offset, epoch, metadata, code) = fields(found);
        (entry.partition_index, entry.committed_offset, entry.error_code) = (index, offset, code);
        entry.committed_leader_epoch = epoch;
        entry.metadata = Some(metadata);
        topic.partitions.push(entry);
    }
    topic
}

fn of_request(
    version: i16,
    (name, partitions): (Arc<str>, Vec<Fetched>),
) -> OffsetFetchResponseTopic {
    let mut topic = OffsetFetchResponseTopic::default();
    topic.name = (&*name).into();
    for (index, found) in partitions {
        let mut entry = OffsetFetchResponsePartition::default();
        let (offset, epoch, metadata, code) = fields(found);
        (entry.partition_index, entry.committed_offset, entry.error_code) = (index, offset, code);
        if version >= LEADER_EPOCH_VERSION {
            entry.committed_leader_epoch = epoch;
        }
        entry.metadata = Some(metadata);
        topic.partitions.push(entry);
    }
    topic
}

#[cfg(test)]
mod tests {
    use super::*;
    use barnabas_wire::messages::offset_fetch_request::{
        OffsetFetchRequestGroup, OffsetFetchRequestTopics,
    };
    use barnabas_wire::reply;

    #[test]
    fn what_is_named_often_is_told_once() {
        let topic = |name: &str, partitions: &[i32]| {
            let mut topic = OffsetFetchRequestTopics::default();
            (topic.name, topic.partition_indexes) = (name.into(), partitions.to_vec());
            topic
        };
        let group = |id: &str, topics| {
            let mut group = OffsetFetchRequestGroup::default();
            (group.group_id, group.topics) = (id.into(), topics);
            group
        };
        let mut request = OffsetFetchRequest::default();
        request.groups = vec![
            group("g", Some(vec![topic("t", &[1, 0, 1]), topic("s", &[0])])),
            group("all", None),
            group("g", Some(vec![topic("t", &[0, 2])])),
            group("all", Some(vec![topic("t", &[0])])),
            group("all", None),
        ];
        let asked: Vec<_> =
            asked(8, &request).into_iter().map(|a| (a.group_id.to_string(), a.topics)).collect();
        let topics: Vec<(Arc<str>, Vec<i32>)> =
            vec![("t".into(), vec![1, 0]), ("s".into(), vec![0]), ("t".into(), vec![2])];
        assert_eq!(asked, [("g".to_owned(), Some(topics)), ("all".to_owned(), None)]);
    }

    #[test]
    fn every_answer_can_be_written_at_every_version_and_errors_are_where_the_version_has_them() {
        let offset = CommittedOffset {
            offset: 5,
            leader_epoch: Some(3),
            metadata: "note".to_owned(),
            commit_timestamp_ms: 1,
            expire_timestamp_ms: None,
        };
        let asked = Asked { group_id: "g".into(), topics: Some(vec![("t".into(), vec![0, 1])]) };
        for version in 1..=9 {
            let found = vec![("t".into(), vec![(0, Ok(Some(offset.clone()))), (1, Ok(None))])];
            let response = respond(version, vec![(asked.clone(), Ok(found))]);
            reply(1, version, &response).unwrap_or_else(|error| panic!("{error}"));
            let offsets: Vec<i64> = if version >= 8 {
                response.groups[0].topics[0].partitions.iter().map(|p| p.committed_offset).collect()
            } else {
                response.topics[0].partitions.iter().map(|p| p.committed_offset).collect()
            };
            assert_eq!(offsets, [5, -1]);

            let refused = Err(GroupError::CoordinatorLoadInProgress);
            let response = respond(version, vec![(asked.clone(), refused)]);
            reply(1, version, &response).unwrap_or_else(|error| panic!("{error}"));
            match version {
                1 => {
                    let partitions = &response.topics[0].partitions;
                    assert!(partitions.iter().all(|p| p.error_code == 14) && partitions.len() == 2);
                }
                2..=7 => assert_eq!((response.error_code, response.topics.len()), (14, 0)),
                _ => assert_eq!(response.groups[0].error_code, 14),
            }
        }
    }
}
