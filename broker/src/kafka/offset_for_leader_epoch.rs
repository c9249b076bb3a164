//! OffsetForLeaderEpoch (key 23), versions 2 to 4: KIP-101, KIP-279, KIP-320 (consumers detect truncation). Flexible
//! from 4.

use barnabas_types::{Condition, LeaderEpoch, Offset};
use barnabas_wire::messages::offset_for_leader_epoch_request::OffsetForLeaderPartition;
use barnabas_wire::messages::offset_for_leader_epoch_response::{
    EpochEndOffset, OffsetForLeaderTopicResult,
};
use barnabas_wire::messages::{OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse};

use super::produce::find;
use super::{RequestContext, error_code};
use crate::node::Node;

type End = Result<Option<(LeaderEpoch, Offset)>, Condition>;

pub(super) fn handle(
    context: &RequestContext<'_>,
    request: &OffsetForLeaderEpochRequest,
) -> OffsetForLeaderEpochResponse {
    let mut response = OffsetForLeaderEpochResponse::default();
    for topic in &request.topics {
        let mut entry = OffsetForLeaderTopicResult::default();
        entry.topic = topic.topic.clone();
        for asked in &topic.partitions {
            // Whatever its replica_id says, this is a client: followers use the request between brokers.
            let end = look_up(context.node, topic.topic.as_str(), asked);
            entry.partitions.push(partition_response(asked.partition, end));
        }
        response.topics.push(entry);
    }
    response
}

fn look_up(node: &Node, topic: &str, asked: &OffsetForLeaderPartition) -> End {
    let present =
        (asked.current_leader_epoch >= 0).then_some(LeaderEpoch(asked.current_leader_epoch));
    find(node, topic, asked.partition)?
        .end_offset_for_epoch(present, LeaderEpoch(asked.leader_epoch))
}

fn refused(index: i32, error_code: i16) -> EpochEndOffset {
    let mut entry = EpochEndOffset::default();
    entry.partition = index;
    entry.error_code = error_code;
    entry
}

/// An epoch that this log never had is answered with -1 and -1, without an error (KIP-279).
fn partition_response(index: i32, end: End) -> EpochEndOffset {
    match end {
        Ok(end) => {
            let mut entry = EpochEndOffset::default();
            entry.partition = index;
            entry.leader_epoch = end.map_or(-1, |(epoch, _)| epoch.0);
            entry.end_offset = end.map_or(-1, |(_, offset)| offset.0);
            entry
        }
        Err(condition) => refused(index, error_code(&condition)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use barnabas_wire::reply;

    #[test]
    fn every_answer_can_be_written_at_every_version() {
        let present = LeaderEpoch(5);
        let ends: [(End, (i16, i32, i64)); 3] = [
            (Ok(Some((LeaderEpoch(2), Offset(9)))), (0, 2, 9)),
            (Ok(None), (0, -1, -1)),
            (Err(Condition::FencedLeaderEpoch { asked: LeaderEpoch(1), present }), (74, -1, -1)),
        ];
        for version in 2..=4 {
            for (end, expected) in ends.clone() {
                let entry = partition_response(3, end);
                assert_eq!((entry.error_code, entry.leader_epoch, entry.end_offset), expected);
                let mut topic = OffsetForLeaderTopicResult::default();
                topic.topic = "t".into();
                topic.partitions.push(entry);
                let mut response = OffsetForLeaderEpochResponse::default();
                response.topics.push(topic);
                reply(1, version, &response).unwrap_or_else(|error| panic!("{error}"));
            }
        }
    }
}
