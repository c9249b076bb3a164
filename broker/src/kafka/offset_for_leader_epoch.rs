//! OffsetForLeaderEpoch (key 23), versions 2 to 4: KIP-101, KIP-279, KIP-320 (consumers detect truncation). Flexible
//! from 4.
//!
//! Whoever compares replicas asks with replica_id -2, in Kafka the consumer that reads from a follower on purpose: then each replica answers
//! from its own log, whether it leads or not.

use std::sync::Arc;

use barnabas_types::{Condition, LeaderEpoch, Offset};
use barnabas_wire::messages::offset_for_leader_epoch_request::OffsetForLeaderPartition;
use barnabas_wire::messages::offset_for_leader_epoch_response::{
    EpochEndOffset, OffsetForLeaderTopicResult,
};
use barnabas_wire::messages::{OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse};
use tokio::time::{Instant, timeout_at};

use super::fetch::ROLL_CALL_WAIT;
use super::produce::find;
use super::{Handled, RequestContext, answer, error_code, later_on, owned};
use crate::node::Node;
use crate::partition::{Aftermath, EpochEnd, Flush, Hosted};

/// Asks any replica (`DEBUGGING_REPLICA_ID` in Kafka).
const ANY_REPLICA: i32 = -2;

type End = Result<Option<(LeaderEpoch, Offset)>, Condition>;

/// What can be said of one partition.
enum Looked {
    Answered(End),
    Doubted(Doubt),
}

/// A partition whose leader asks its ISR first.
struct Doubt {
    hosted: Arc<Hosted>,
    present: Option<LeaderEpoch>,
    asked: LeaderEpoch,
    call: u64,
}

/// Answers at once, unless an epoch is asked for that only a successor of this leader may know.
pub(super) fn handle(
    context: &RequestContext<'_>,
    request: &OffsetForLeaderEpochRequest,
    flush: &mut Flush,
) -> Result<Handled, String> {
    let mut topics = Vec::with_capacity(request.topics.len());
    let mut in_doubt = false;
    for topic in &request.topics {
        let mut partitions = Vec::with_capacity(topic.partitions.len());
        for asked in &topic.partitions {
            // Whatever its replica_id says, this is a client: followers use the request between brokers.
            let looked = match request.replica_id {
                ANY_REPLICA => Looked::Answered(own(context.node, topic.topic.as_str(), asked)),
                _ => look_up(context.node, topic.topic.as_str(), asked, flush),
            };
            in_doubt |= matches!(looked, Looked::Doubted(_));
            partitions.push((asked.partition, looked));
        }
        // A copy: the frame is not to be kept alive by it.
        topics.push((owned(&topic.topic), partitions));
    }
    if in_doubt {
        let deadline = Instant::now() + ROLL_CALL_WAIT;
        return later_on(
            &context.node.data,
            context,
            after_doubts(context.node.clone(), deadline, topics),
        );
    }
    let mut response = OffsetForLeaderEpochResponse::default();
    for (name, partitions) in topics {
        let ends = partitions.into_iter().filter_map(|(index, looked)| match looked {
            Looked::Answered(end) => Some(partition_response(index, end)),
            Looked::Doubted(_) => None,
        });
        response.topics.push(topic_response(name, ends.collect()));
    }
    answer(context, &response)
}

/// What this replica has, whatever its role.
fn own(node: &Node, topic: &str, asked: &OffsetForLeaderPartition) -> End {
    let hosted = find(node, topic, asked.partition)?;
    Ok(hosted.own_end_offset_for_epoch(LeaderEpoch(asked.leader_epoch)))
}

fn look_up(
    node: &Arc<Node>,
    topic: &str,
    asked: &OffsetForLeaderPartition,
    flush: &mut Flush,
) -> Looked {
    let hosted = match find(node, topic, asked.partition) {
        Ok(hosted) => hosted,
        Err(condition) => return Looked::Answered(Err(condition)),
    };
    let present =
        (asked.current_leader_epoch >= 0).then_some(LeaderEpoch(asked.current_leader_epoch));
    let asked = LeaderEpoch(asked.leader_epoch);
    let mut after = Aftermath::default();
    let end = hosted.end_offset_for_epoch(node.now(), present, asked, None, &mut after);
    after.settle(&hosted, &**node, flush);
    match end {
        Ok(EpochEnd::Known(end)) => Looked::Answered(Ok(end)),
        Ok(EpochEnd::Doubted(call)) => Looked::Doubted(Doubt { hosted, present, asked, call }),
        Err(condition) => Looked::Answered(Err(condition)),
    }
}

async fn after_doubts(
    node: Arc<Node>,
    deadline: Instant,
    topics: Vec<(String, Vec<(i32, Looked)>)>,
) -> OffsetForLeaderEpochResponse {
    let mut response = OffsetForLeaderEpochResponse::default();
    for (name, partitions) in topics {
        let mut ends = Vec::with_capacity(partitions.len());
        for (index, looked) in partitions {
            let end = match looked {
                Looked::Answered(end) => end,
                Looked::Doubted(doubt) => doubt.settled(&node, deadline).await,
            };
            ends.push(partition_response(index, end));
        }
        response.topics.push(topic_response(name, ends));
    }
    response
}

impl Doubt {
    /// The answer once the maximal ISR has confirmed the leader. If it has not by the deadline, the client is to look for the leader
    /// and to ask again: "never known" would make it reset its position.
    async fn settled(&self, node: &Node, deadline: Instant) -> End {
        loop {
            // From before the look on, so that none is missed.
            let roll_called = self.hosted.roll_called();
            if let EpochEnd::Known(end) = self.look(node)? {
                return Ok(end);
            }
            if timeout_at(deadline, roll_called).await.is_err() {
                return Err(Condition::NotLeaderOrFollower);
            }
        }
    }

    fn look(&self, node: &Node) -> Result<EpochEnd, Condition> {
        let (present, call) = (self.present, Some(self.call));
        // With a call nothing is ordered.
        let mut nothing = Aftermath::default();
        self.hosted.end_offset_for_epoch(node.now(), present, self.asked, call, &mut nothing)
    }
}

fn topic_response(name: String, partitions: Vec<EpochEndOffset>) -> OffsetForLeaderTopicResult {
    let mut entry = OffsetForLeaderTopicResult::default();
    entry.topic = name.into();
    entry.partitions = partitions;
    entry
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
    use std::pin::pin;

    use barnabas_replica::{FetchPosition, FollowerFetch};
    use barnabas_types::{BrokerEpoch, BrokerId};
    use barnabas_wire::reply;

    use super::*;
    use crate::testing::{Disk, LIFE, node, push, state, tp};

    /// Broker 1 leads `t-0` in epoch 1; broker 2 is in the ISR.
    fn leader(isr: &[i32]) -> (Arc<Node>, Disk, Arc<Hosted>) {
        let (node, disk) = (node(), Disk::new());
        let hosted = disk.host(&node, tp("t", 0));
        state(&node, &hosted, push(1, 1, isr));
        (node, disk, hosted)
    }

    /// A client whose metadata may be old: it names no present epoch, or the one of this leader.
    fn ask(node: &Arc<Node>, present: i32, epoch: i32) -> Looked {
        let mut asked = OffsetForLeaderPartition::default();
        (asked.partition, asked.current_leader_epoch, asked.leader_epoch) = (0, present, epoch);
        look_up(node, "t", &asked, &mut Flush::default())
    }

    fn doubt(node: &Arc<Node>, present: i32, epoch: i32) -> Doubt {
        match ask(node, present, epoch) {
            Looked::Doubted(doubt) => doubt,
            Looked::Answered(end) => panic!("it is told at once: {end:?}"),
        }
    }

    fn soon() -> Instant {
        Instant::now() + std::time::Duration::from_secs(60)
    }

    /// A fetch of broker 2, after it has heard this roll call.
    fn hear(node: &Arc<Node>, hosted: &Arc<Hosted>, heard: u64) {
        let position = FetchPosition {
            incarnation: LIFE,
            broker_epoch: BrokerEpoch(102),
            leader_epoch: LeaderEpoch(1),
            last_epoch: None,
            log_end: Offset(0),
            flushed: Offset(0),
            log_start: Offset(0),
        };
        let fetch = FollowerFetch { follower: BrokerId(2), position, heard };
        let mut after = Aftermath::default();
        hosted.follower_fetch(node.now(), fetch, &mut after);
        after.settle(hosted, &**node, &mut Flush::default());
    }

    #[tokio::test]
    async fn an_epoch_to_come_is_called_unknown_once_the_isr_has_answered_the_roll_call() {
        let (node, _disk, hosted) = leader(&[1, 2]);
        for (call, present) in [(1, -1), (2, 1)] {
            let doubt = doubt(&node, present, 2);
            let mut told = pin!(doubt.settled(&node, soon()));
            hear(&node, &hosted, call - 1);
            tokio::select! {
                biased;
                end = &mut told => panic!("the call before was for another request: {end:?}"),
                () = std::future::ready(()) => {}
            }
            hear(&node, &hosted, call);
            assert_eq!(told.await, Ok(None));
        }
    }

    #[tokio::test]
    async fn a_deposed_leader_says_who_leads_and_not_that_there_is_no_such_epoch() {
        let (node, _disk, hosted) = leader(&[1, 2]);
        let late = doubt(&node, -1, 2);
        let doubt = doubt(&node, -1, 2);
        assert_eq!(late.settled(&node, Instant::now()).await, Err(Condition::NotLeaderOrFollower));
        let mut told = pin!(doubt.settled(&node, soon()));
        tokio::select! {
            biased;
            end = &mut told => panic!("nobody has answered: {end:?}"),
            () = std::future::ready(()) => {}
        }
        state(&node, &hosted, push(2, 2, &[1, 2]));
        assert_eq!(told.await, Err(Condition::NotLeaderOrFollower));
    }

    #[tokio::test]
    async fn what_no_successor_can_know_is_told_at_once() {
        let (node, _disk, hosted) = leader(&[1, 2]);
        let known = |looked| match looked {
            Looked::Answered(end) => end,
            Looked::Doubted(_) => panic!("it waits"),
        };
        assert_eq!(known(ask(&node, -1, 1)), Ok(Some((LeaderEpoch(1), Offset(0)))));
        assert_eq!(known(ask(&node, -1, 0)), Ok(None), "older than all of the log");
        let (asked, present) = (LeaderEpoch(2), LeaderEpoch(1));
        assert_eq!(known(ask(&node, 2, 2)), Err(Condition::UnknownLeaderEpoch { asked, present }));
        state(&node, &hosted, push(1, 2, &[1]));
        assert_eq!(known(ask(&node, -1, 3)), Ok(None), "nobody else can be elected");
    }

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
