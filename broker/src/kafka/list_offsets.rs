//! ListOffsets (key 2), versions 1 to 9: KIP-79 (by time), KIP-207 (never backwards after a new leader), KIP-320 (leader
//! epochs), KIP-734 (greatest timestamp, from 7), KIP-405 (first offset on local disks, from 8), KIP-1005 (last one that is on
//! none, from 9). Everything is below the HW, which is also the end of what is read committed: there are no transactions.
//!
//! What is looked for by its time and is not in the page cache is read by the threads of the log directories, without the
//! partition's lock; the other requests go on.

use std::collections::BTreeSet;
use std::sync::Arc;

use barnabas_types::{Condition, LeaderEpoch, Offset};
use barnabas_wire::messages::list_offsets_request::ListOffsetsPartition;
use barnabas_wire::messages::list_offsets_response::{
    ListOffsetsPartitionResponse, ListOffsetsTopicResponse,
};
use barnabas_wire::messages::{ListOffsetsRequest, ListOffsetsResponse};
use tokio::sync::oneshot;

use super::produce::find;
use super::{Handled, RequestContext, answer, error_code, later_on};
use crate::node::Node;
use crate::partition::{ByTime, FoundByTime, Hosted};

/// Special timestamps.
const LATEST: i64 = -1;
const EARLIEST: i64 = -2;
const MAX_TIMESTAMP: i64 = -3;
const EARLIEST_LOCAL: i64 = -4;
const LATEST_TIERED: i64 = -5;

/// First version with a leader epoch in the answer.
const LEADER_EPOCH_VERSION: i16 = 4;
/// First version that knows OFFSET_NOT_AVAILABLE; older clients get LEADER_NOT_AVAILABLE, which they retry too.
const OFFSET_NOT_AVAILABLE_VERSION: i16 = 5;
/// First version with the greatest timestamp.
const MAX_TIMESTAMP_VERSION: i16 = 7;
/// First version with the first offset on local disks: all are.
const EARLIEST_LOCAL_VERSION: i16 = 8;
/// First version with the last offset on other disks: none is.
const LATEST_TIERED_VERSION: i16 = 9;

/// Offset, timestamp and leader epoch of a record, as far as they are known.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Found {
    offset: Option<Offset>,
    timestamp_ms: Option<i64>,
    leader_epoch: Option<LeaderEpoch>,
}

/// What a look at a partition came to.
enum Looked {
    Known(Found),
    /// A disk has to be waited for.
    Cold(Cold),
}

/// What is looked for by its time.
struct Cold {
    hosted: Arc<Hosted>,
    wanted: ByTime,
    epoch: Option<LeaderEpoch>,
}

pub(super) fn handle(
    context: &RequestContext<'_>,
    request: &ListOffsetsRequest,
) -> Result<Handled, String> {
    let (mut response, version) = (ListOffsetsResponse::default(), context.version);
    let mut cold = Vec::new();
    let twice = named_twice(request);
    for topic in &request.topics {
        let mut entry = ListOffsetsTopicResponse::default();
        entry.name = topic.name.as_str().into();
        for asked in &topic.partitions {
            let index = asked.partition_index;
            if twice.contains(&(topic.name.as_str(), index)) {
                let code = error_code(&Condition::InvalidRequest(String::new()));
                entry.partitions.push(refused(index, code));
                continue;
            }
            // Whatever its replica_id says, this is a client: followers use the request between brokers, and kafka-python fills in 0.
            let found = match look_up(context.node, version, topic.name.as_str(), asked) {
                Ok(Looked::Cold(looked)) => {
                    cold.push(((response.topics.len(), entry.partitions.len()), looked));
                    Ok(Found::default())
                }
                Ok(Looked::Known(found)) => Ok(found),
                Err(condition) => Err(condition),
            };
            entry.partitions.push(partition_response(version, index, found));
        }
        response.topics.push(entry);
    }
    if cold.is_empty() {
        return answer(context, &response);
    }
    later_on(&context.node.data, context, wait_for_disks(version, response, cold))
}

/// Has the disks asked by the threads of their directories, all at once, and fills in what they found.
async fn wait_for_disks(
    version: i16,
    mut response: ListOffsetsResponse,
    cold: Vec<((usize, usize), Cold)>,
) -> ListOffsetsResponse {
    let asked: Vec<_> = cold.into_iter().map(|(at, cold)| (at, cold.read())).collect();
    for ((topic, partition), found) in asked {
        // Too many wait for this disk already: clients ask again.
        let found = found.await.unwrap_or(Err(Condition::OffsetNotAvailable));
        let place = response.topics.get_mut(topic).and_then(|t| t.partitions.get_mut(partition));
        if let Some(place) = place {
            *place = partition_response(version, place.partition_index, found);
        }
    }
    response
}

impl Cold {
    /// Closed without an answer if the directory's threads take no more.
    fn read(self) -> oneshot::Receiver<Result<Found, Condition>> {
        let (tell, told) = oneshot::channel();
        let directory = self.hosted.directory.clone();
        let _ = directory.readers().add(move || {
            let found = self.hosted.find_by_time(self.wanted, self.epoch);
            // The client may have gone.
            let _ = tell.send(found.map(|found| record(&self.hosted, found)));
        });
        told
    }
}

/// Partitions that the request names more than once, with whatever it wants of each: Kafka refuses them.
fn named_twice(request: &ListOffsetsRequest) -> BTreeSet<(&str, i32)> {
    let mut once = BTreeSet::new();
    let named = request.topics.iter().flat_map(|topic| {
        topic.partitions.iter().map(|asked| (topic.name.as_str(), asked.partition_index))
    });
    named.filter(|partition| !once.insert(*partition)).collect()
}

fn look_up(
    node: &Node,
    version: i16,
    topic: &str,
    asked: &ListOffsetsPartition,
) -> Result<Looked, Condition> {
    let hosted = find(node, topic, asked.partition_index)?;
    let epoch =
        (asked.current_leader_epoch >= 0).then_some(LeaderEpoch(asked.current_leader_epoch));
    let wanted = match asked.timestamp {
        LATEST => {
            let view = hosted.consumer_view(epoch)?;
            return Ok(Looked::Known(Found {
                offset: Some(view.high_watermark),
                timestamp_ms: None,
                leader_epoch: Some(view.leader_epoch),
            }));
        }
        special
            if special == EARLIEST
                || (special == EARLIEST_LOCAL && version >= EARLIEST_LOCAL_VERSION) =>
        {
            let view = hosted.consumer_view(epoch)?;
            return Ok(Looked::Known(Found {
                offset: Some(view.log_start),
                timestamp_ms: None,
                leader_epoch: hosted.epoch_at(view.log_start),
            }));
        }
        LATEST_TIERED if version >= LATEST_TIERED_VERSION => {
            hosted.consumer_view(epoch)?;
            return Ok(Looked::Known(Found::default()));
        }
        MAX_TIMESTAMP if version >= MAX_TIMESTAMP_VERSION => ByTime::Greatest,
        timestamp_ms if timestamp_ms >= 0 => ByTime::From(timestamp_ms),
        _ => return Err(Condition::UnsupportedVersion("this special timestamp")),
    };
    Ok(match hosted.look_by_time(wanted, epoch)? {
        FoundByTime::Record(found) => Looked::Known(record(&hosted, found)),
        FoundByTime::Cold(_) => Looked::Cold(Cold { hosted, wanted, epoch }),
    })
}

fn record(hosted: &Hosted, found: Option<(Offset, i64)>) -> Found {
    found.map_or_else(Found::default, |(offset, timestamp_ms)| Found {
        offset: Some(offset),
        timestamp_ms: Some(timestamp_ms),
        leader_epoch: hosted.epoch_at(offset),
    })
}

fn refused(index: i32, error_code: i16) -> ListOffsetsPartitionResponse {
    let mut entry = ListOffsetsPartitionResponse::default();
    entry.partition_index = index;
    entry.error_code = error_code;
    entry
}

fn partition_response(
    version: i16,
    index: i32,
    found: Result<Found, Condition>,
) -> ListOffsetsPartitionResponse {
    let found = match found {
        Ok(found) => found,
        Err(Condition::OffsetNotAvailable) if version < OFFSET_NOT_AVAILABLE_VERSION => {
            return refused(index, error_code(&Condition::LeaderNotAvailable));
        }
        Err(condition) => return refused(index, error_code(&condition)),
    };
    let mut entry = ListOffsetsPartitionResponse::default();
    entry.partition_index = index;
    entry.offset = found.offset.map_or(-1, |offset| offset.0);
    entry.timestamp = found.timestamp_ms.unwrap_or(-1);
    if version >= LEADER_EPOCH_VERSION {
        entry.leader_epoch = found.leader_epoch.map_or(-1, |epoch| epoch.0);
    }
    entry
}

#[cfg(test)]
mod tests {
    use super::*;
    use barnabas_wire::reply;

    fn answered(version: i16, found: Result<Found, Condition>) -> ListOffsetsPartitionResponse {
        let mut topic = ListOffsetsTopicResponse::default();
        topic.name = "t".into();
        topic.partitions.push(partition_response(version, 3, found));
        let mut response = ListOffsetsResponse::default();
        response.topics.push(topic);
        reply(1, version, &response).unwrap_or_else(|error| panic!("{error}"));
        response.topics[0].partitions[0].clone()
    }

    #[test]
    fn every_answer_can_be_written_at_every_version() {
        let found = Found {
            offset: Some(Offset(5)),
            timestamp_ms: Some(9),
            leader_epoch: Some(LeaderEpoch(2)),
        };
        for version in 1..=9 {
            let entry = answered(version, Ok(found));
            assert_eq!((entry.partition_index, entry.offset, entry.timestamp), (3, 5, 9));
            assert_eq!(entry.leader_epoch, if version >= 4 { 2 } else { -1 });
            let nothing = answered(version, Ok(Found::default()));
            assert_eq!((nothing.error_code, nothing.offset, nothing.timestamp), (0, -1, -1));
        }
    }

    #[test]
    fn r14_an_unknown_hw_is_said_in_the_words_of_the_version() {
        for version in 1..=9 {
            let code = answered(version, Err(Condition::OffsetNotAvailable)).error_code;
            assert_eq!(code, if version >= 5 { 78 } else { 5 }, "{version}");
        }
    }

    #[tokio::test]
    async fn special_timestamps_are_served_from_the_version_on_that_knows_them() {
        let (node, disk) = (crate::testing::node(), crate::testing::Disk::new());
        let hosted = disk.host(&node, crate::testing::tp("t", 0));
        crate::testing::state(&node, &hosted, crate::testing::push(1, 1, &[1]));
        for n in 0..3 {
            crate::testing::produce(&node, &hosted, barnabas_types::Acks::Leader, n, None);
        }
        let ask = |version, timestamp, epoch| {
            let mut asked = ListOffsetsPartition::default();
            asked.timestamp = timestamp;
            asked.current_leader_epoch = epoch;
            let found = look_up(&node, version, "t", &asked).map(|looked| match looked {
                Looked::Known(found) => found,
                Looked::Cold(cold) => {
                    record(&hosted, cold.hosted.find_by_time(cold.wanted, cold.epoch).unwrap())
                }
            });
            let entry = partition_response(version, 0, found);
            (entry.error_code, entry.offset)
        };
        let table = [
            (1, LATEST, (0, 3)),
            (1, EARLIEST, (0, 0)),
            (6, MAX_TIMESTAMP, (35, -1)),
            (7, MAX_TIMESTAMP, (0, 0)),
            (7, EARLIEST_LOCAL, (35, -1)),
            (8, EARLIEST_LOCAL, (0, 0)),
            (8, LATEST_TIERED, (35, -1)),
            (9, LATEST_TIERED, (0, -1)),
            (9, -6, (35, -1)),
            (9, i64::MAX, (0, -1)),
        ];
        for (version, timestamp, expected) in table {
            assert_eq!(ask(version, timestamp, -1), expected, "{version} {timestamp}");
        }
        for timestamp in [LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, 0] {
            assert_eq!(ask(9, timestamp, 0).0, 74, "{timestamp}");
            assert_eq!(ask(9, timestamp, 2).0, 75, "{timestamp}");
        }
    }

    #[test]
    fn partitions_that_are_named_twice_are_found() {
        let mut asked = ListOffsetsPartition::default();
        let mut topic = barnabas_wire::messages::list_offsets_request::ListOffsetsTopic::default();
        topic.name = "t".into();
        for index in [3, 4, 3] {
            asked.partition_index = index;
            topic.partitions.push(asked.clone());
        }
        let mut request = ListOffsetsRequest::default();
        request.topics = vec![topic];
        assert_eq!(named_twice(&request), [("t", 3)].into());
    }
}
