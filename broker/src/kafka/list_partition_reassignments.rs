//! ListPartitionReassignments (key 46), version 0: KIP-455. The controller answers; any broker takes the request.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use barnabas_types::{BrokerId, Condition, Partition, TopicPartition};
use barnabas_wire::messages::list_partition_reassignments_response::{
    OngoingPartitionReassignment, OngoingTopicReassignment,
};
use barnabas_wire::messages::{
    ListPartitionReassignmentsRequest, ListPartitionReassignmentsResponse, StrBytes,
};

use super::create_topics::deadline;
use super::error_code;
use crate::node::Node;

/// The partitions that are asked for; `None`: all.
type Wanted = Option<BTreeSet<(String, i32)>>;

pub(super) async fn handle(
    node: Arc<Node>,
    request: ListPartitionReassignmentsRequest,
) -> ListPartitionReassignmentsResponse {
    let deadline = deadline(request.timeout_ms);
    let wanted = wanted(&request);
    let listed = match tokio::time::timeout_at(deadline, node.controller.reassignments()).await {
        Ok(answer) => answer,
        Err(_) => Err(Condition::RequestTimedOut),
    };
    answer(&wanted, listed)
}

fn wanted(request: &ListPartitionReassignmentsRequest) -> Wanted {
    let topics = request.topics.as_ref()?;
    let of = topics.iter().flat_map(|topic| {
        topic.partition_indexes.iter().map(|index| (topic.name.as_str().to_owned(), *index))
    });
    Some(of.collect())
}

/// Partitions that are not being moved are not named, whether they exist or not, as in Kafka.
fn answer(
    wanted: &Wanted,
    listed: Result<BTreeMap<TopicPartition, Partition>, Condition>,
) -> ListPartitionReassignmentsResponse {
    let mut response = ListPartitionReassignmentsResponse::default();
    response.error_message = None;
    let listed = match listed {
        Ok(listed) => listed,
        Err(condition) => {
            response.error_code = error_code(&condition);
            response.error_message = Some(StrBytes::from(condition.to_string()));
            return response;
        }
    };
    let ids = |of: &[BrokerId]| -> Vec<i32> { of.iter().map(|id| id.0).collect() };
    for (at, partition) in listed {
        let asked = |all: &BTreeSet<(String, i32)>| {
            all.contains(&(at.topic.as_str().to_owned(), at.partition))
        };
        if !wanted.as_ref().is_none_or(asked) {
            continue;
        }
        let mut entry = OngoingPartitionReassignment::default();
        entry.partition_index = at.partition;
        entry.replicas = ids(&partition.assigned_replicas);
        entry.adding_replicas = ids(&partition.moving.joining());
        entry.removing_replicas = ids(&partition.moving.removing);
        match response.topics.last_mut().filter(|topic| topic.name.as_str() == at.topic.as_str()) {
            Some(topic) => topic.partitions.push(entry),
            None => {
                let mut topic = OngoingTopicReassignment::default();
                topic.name = StrBytes::from(at.topic.to_string());
                topic.partitions.push(entry);
                response.topics.push(topic);
            }
        }
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use barnabas_types::{Assignment, TopicName};

    #[test]
    fn moves_are_listed_as_their_difference() {
        let ids = |of: &[i32]| -> Vec<BrokerId> { of.iter().map(|id| BrokerId(*id)).collect() };
        let settled = Assignment::settled(ids(&[1, 2]));
        let twice = settled.towards(&ids(&[1, 3]), None).towards(&ids(&[1, 4]), None);
        let Assignment { replicas: assigned_replicas, moving } = twice;
        let partition = Partition { assigned_replicas, moving, ..Partition::default() };
        let at = |index| TopicPartition { topic: TopicName::new("t").unwrap(), partition: index };
        let listed = BTreeMap::from([(at(0), partition.clone()), (at(1), partition)]);
        let response = answer(&None, Ok(listed.clone()));
        let first = &response.topics[0].partitions[0];
        assert_eq!(response.topics[0].partitions.len(), 2);
        assert_eq!(first.replicas, vec![1, 4, 3, 2]);
        assert_eq!((&first.adding_replicas, &first.removing_replicas), (&vec![4], &vec![3, 2]));
        barnabas_wire::reply(1, 0, &response).unwrap_or_else(|error| panic!("{error}"));
        let some = Some(BTreeSet::from([("t".to_owned(), 1), ("x".to_owned(), 0)]));
        let response = answer(&some, Ok(listed.clone()));
        assert_eq!(response.topics[0].partitions.len(), 1);
        assert_eq!(response.topics[0].partitions[0].partition_index, 1);
        assert!(answer(&Some(BTreeSet::new()), Ok(listed)).topics.is_empty());
        assert_eq!(answer(&None, Err(Condition::NoController)).error_code, 41);
    }
}
