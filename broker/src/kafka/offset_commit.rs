//! OffsetCommit (key 8), versions 2 to 9: KIP-211 (no retention time from 5), KIP-320 (leader epochs, from 6), KIP-345 (static
//! members, from 7).

use std::sync::Arc;

use barnabas_group::{Answer, Commit, CommitPartition, Event, GroupError, Waiter};
use barnabas_types::{ClusterImage, Condition, TopicImage, TopicName};
use barnabas_wire::messages::offset_commit_request::OffsetCommitRequestTopic;
use barnabas_wire::messages::offset_commit_response::{
    OffsetCommitResponsePartition, OffsetCommitResponseTopic,
};
use barnabas_wire::messages::{OffsetCommitRequest, OffsetCommitResponse};

use super::error_codes::group_error_code;
use super::group_calls::{WRONG_ANSWER, ask, maybe_shared, shared};
use super::{Handled, RequestContext, answer, error_code, owned};
use crate::partition::Flush;

/// Last version with a retention time.
const RETENTION_VERSION_MAX: i16 = 4;
/// First version in which an unknown group is told as such.
const GROUP_ID_NOT_FOUND_VERSION: i16 = 9;

pub(super) fn handle(
    context: &RequestContext<'_>,
    request: &OffsetCommitRequest,
    flush: &mut Flush,
) -> Result<Handled, String> {
    let image = context.node.view.image();
    let (mut topics, mut partitions) = (Vec::new(), Vec::new());
    for topic in &request.topics {
        topics.push(asked(&image, topic, &mut partitions));
    }
    if partitions.is_empty() {
        return answer(context, &respond(topics, Ok(Vec::new())));
    }
    let respond = move |answer: Result<Answer, GroupError>| {
        let committed = answer.and_then(|answer| match answer {
            Answer::Commit(committed) => committed,
            _ => Err(WRONG_ANSWER),
        });
        self::respond(topics, committed)
    };
    let event = |waiter| Event::Commit(commit(context.version, request, (waiter, partitions)));
    ask(context, request.group_id.as_str(), event, respond, flush)
}

/// A topic of the request: its name, its partitions, and whether each exists and so was asked of the coordinator.
struct Asked {
    name: Arc<str>,
    partitions: Vec<(i32, bool)>,
}

fn asked(
    image: &ClusterImage,
    topic: &OffsetCommitRequestTopic,
    commits: &mut Vec<CommitPartition>,
) -> Asked {
    let name = shared(&topic.name);
    let known: Option<&TopicImage> =
        TopicName::new(&name).ok().and_then(|name| image.topics.get(&name));
    let mut partitions = Vec::with_capacity(topic.partitions.len());
    for partition in &topic.partitions {
        let index = partition.partition_index;
        let exists = known.is_some_and(|topic| topic.partitions.contains_key(&index));
        partitions.push((index, exists));
        if exists {
            commits.push(CommitPartition {
                topic: name.clone(),
                partition: index,
                offset: partition.committed_offset,
                leader_epoch: partition.committed_leader_epoch,
                metadata: partition.committed_metadata.as_ref().map(owned).unwrap_or_default(),
            });
        }
    }
    Asked { name, partitions }
}

fn commit(
    version: i16,
    request: &OffsetCommitRequest,
    (waiter, partitions): (Waiter, Vec<CommitPartition>),
) -> Commit {
    let retention_ms = request.retention_time_ms;
    Commit {
        waiter,
        group: shared(&request.group_id),
        generation: request.generation_id_or_member_epoch,
        member_id: shared(&request.member_id),
        instance_id: maybe_shared(request.group_instance_id.as_ref()),
        retention_ms: (version <= RETENTION_VERSION_MAX && retention_ms >= 0)
            .then_some(retention_ms),
        knows_group_id_not_found: version >= GROUP_ID_NOT_FOUND_VERSION,
        partitions,
    }
}

/// `committed`: one result for each partition that exists, or one for all of them.
fn respond(
    topics: Vec<Asked>,
    committed: Result<Vec<Result<(), GroupError>>, GroupError>,
) -> OffsetCommitResponse {
    let mut results = committed.as_ref().ok().into_iter().flatten();
    let mut response = OffsetCommitResponse::default();
    for topic in topics {
        let mut entry = OffsetCommitResponseTopic::default();
        entry.name = (&*topic.name).into();
        for (index, exists) in topic.partitions {
            let mut partition = OffsetCommitResponsePartition::default();
            partition.partition_index = index;
            partition.error_code = match (exists, &committed) {
                (false, _) => error_code(&Condition::UnknownTopicOrPartition),
                (true, Err(error)) => group_error_code(*error),
                (true, Ok(_)) => match results.next() {
                    Some(result) => result.err().map_or(0, group_error_code),
                    None => group_error_code(WRONG_ANSWER),
                },
            };
            entry.partitions.push(partition);
        }
        response.topics.push(entry);
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use barnabas_wire::reply;

    #[test]
    fn each_partition_has_its_own_result_also_beside_unknown_ones() {
        let topics = || {
            let of = |name: &str, partitions| Asked { name: name.into(), partitions };
            vec![of("a", vec![(0, true), (7, false)]), of("b", vec![(1, true)])]
        };
        let codes = |response: &OffsetCommitResponse| -> Vec<i16> {
            let partitions = response.topics.iter().flat_map(|topic| &topic.partitions);
            partitions.map(|partition| partition.error_code).collect()
        };
        for version in 2..=9 {
            let some = respond(topics(), Ok(vec![Ok(()), Err(GroupError::OffsetMetadataTooLarge)]));
            assert_eq!(codes(&some), [0, 3, 12]);
            reply(1, version, &some).unwrap_or_else(|error| panic!("{error}"));
            let none = respond(topics(), Err(GroupError::IllegalGeneration));
            assert_eq!(codes(&none), [22, 3, 22]);
            reply(1, version, &none).unwrap_or_else(|error| panic!("{error}"));
        }
    }
}
