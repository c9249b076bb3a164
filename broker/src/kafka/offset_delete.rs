//! OffsetDelete (key 47), version 0: KIP-496.

use std::sync::Arc;

use barnabas_group::{Answer, DeleteOffsets, Event, GroupError};
use barnabas_wire::messages::offset_delete_response::{
    OffsetDeleteResponsePartition, OffsetDeleteResponseTopic,
};
use barnabas_wire::messages::{OffsetDeleteRequest, OffsetDeleteResponse};

use super::error_codes::group_error_code;
use super::group_calls::{WRONG_ANSWER, ask, shared};
use super::{Handled, RequestContext};
use crate::partition::Flush;

pub(super) fn handle(
    context: &RequestContext<'_>,
    request: &OffsetDeleteRequest,
    flush: &mut Flush,
) -> Result<Handled, String> {
    let topics: Vec<(Arc<str>, Vec<i32>)> = request
        .topics
        .iter()
        .map(|t| (shared(&t.name), t.partitions.iter().map(|p| p.partition_index).collect()))
        .collect();
    let partitions: Vec<(Arc<str>, i32)> = topics
        .iter()
        .flat_map(|(name, all)| all.iter().map(|index| (name.clone(), *index)))
        .collect();
    let respond = move |answer: Result<Answer, GroupError>| {
        let deleted = answer.and_then(|answer| match answer {
            Answer::DeleteOffsets(deleted) => deleted,
            _ => Err(WRONG_ANSWER),
        });
        self::respond(topics, deleted)
    };
    let event = |waiter| {
        Event::DeleteOffsets(DeleteOffsets { waiter, group: shared(&request.group_id), partitions })
    };
    ask(context, request.group_id.as_str(), event, respond, flush)
}

fn respond(
    topics: Vec<(Arc<str>, Vec<i32>)>,
    deleted: Result<Vec<Result<(), GroupError>>, GroupError>,
) -> OffsetDeleteResponse {
    let mut response = OffsetDeleteResponse::default();
    let results = match deleted {
        Ok(results) => results,
        Err(error) => {
            response.error_code = group_error_code(error);
            return response;
        }
    };
    let mut results = results.into_iter();
    for (name, partitions) in topics {
        let mut topic = OffsetDeleteResponseTopic::default();
        topic.name = (&*name).into();
        for index in partitions {
            let mut entry = OffsetDeleteResponsePartition::default();
            entry.partition_index = index;
            let result = results.next().unwrap_or(Err(WRONG_ANSWER));
            entry.error_code = result.err().map_or(0, group_error_code);
            topic.partitions.push(entry);
        }
        response.topics.push(topic);
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use barnabas_wire::reply;

    #[test]
    fn each_partition_has_its_own_result() {
        let topics = || vec![("a".into(), vec![0]), ("b".into(), vec![4])];
        let response = respond(topics(), Ok(vec![Ok(()), Err(GroupError::GroupSubscribedToTopic)]));
        reply(1, 0, &response).unwrap_or_else(|error| panic!("{error}"));
        let codes = response.topics.iter().map(|topic| topic.partitions[0].error_code);
        assert_eq!(codes.collect::<Vec<_>>(), [0, 86]);
        let refused = respond(topics(), Err(GroupError::GroupIdNotFound));
        reply(1, 0, &refused).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!((refused.error_code, refused.topics.len()), (69, 0));
    }
}
