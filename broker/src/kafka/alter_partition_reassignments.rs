//! AlterPartitionReassignments (key 45), version 0: KIP-455. Begins, changes or cancels moves of replicas; the controller
//! decides, any broker takes the request. Each partition has its own answer.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use barnabas_controller::{Reassign, ReplicaMoved, ReplicaMoves};
use barnabas_types::{BrokerId, Condition};
use barnabas_wire::messages::alter_partition_reassignments_response::{
    ReassignablePartitionResponse, ReassignableTopicResponse,
};
use barnabas_wire::messages::{
    AlterPartitionReassignmentsRequest, AlterPartitionReassignmentsResponse, StrBytes,
};

use super::create_topics::deadline;
use super::error_code;
use crate::node::Node;

/// A partition of the request, and what becomes of it.
type Asked = (String, i32, Option<Vec<i32>>);

pub(super) async fn handle(
    node: Arc<Node>,
    request: AlterPartitionReassignmentsRequest,
) -> AlterPartitionReassignmentsResponse {
    let deadline = deadline(request.timeout_ms);
    let asked = asked(&request);
    let moves = ReplicaMoves::Partitions(moves(&asked));
    let moved = match tokio::time::timeout_at(deadline, node.controller.reassign(moves)).await {
        Ok(answer) => answer,
        Err(_) => Err(Condition::RequestTimedOut),
    };
    answer(&asked, moved)
}

fn asked(request: &AlterPartitionReassignmentsRequest) -> Vec<Asked> {
    let mut asked = Vec::new();
    for topic in &request.topics {
        for partition in &topic.partitions {
            let name = topic.name.as_str().to_owned();
            asked.push((name, partition.partition_index, partition.replicas.clone()));
        }
    }
    asked
}

/// Those that are named once. Null replicas: the move that is under way is cancelled.
fn moves(asked: &[Asked]) -> Vec<(String, i32, Reassign)> {
    let twice = named_twice(asked);
    let once = asked.iter().filter(|one| !twice.contains(&(one.0.as_str(), one.1)));
    once.map(|(topic, partition, replicas)| {
        let wish = match replicas {
            None => Reassign::Cancel,
            Some(ids) => Reassign::To {
                replicas: ids.iter().copied().map(BrokerId).collect(),
                throttle: None,
            },
        };
        (topic.clone(), *partition, wish)
    })
    .collect()
}

/// The partitions that the request names more than once. A request may name very many.
fn named_twice(asked: &[Asked]) -> BTreeSet<(&str, i32)> {
    let mut named = BTreeSet::new();
    let all = asked.iter().map(|(topic, partition, _)| (topic.as_str(), *partition));
    all.filter(|one| !named.insert(*one)).collect()
}

fn answer(
    asked: &[Asked],
    moved: Result<Vec<ReplicaMoved>, Condition>,
) -> AlterPartitionReassignmentsResponse {
    let mut response = AlterPartitionReassignmentsResponse::default();
    response.error_message = None;
    let moved = match moved {
        Ok(moved) => moved,
        Err(condition) => {
            response.error_code = error_code(&condition);
            response.error_message = Some(StrBytes::from(condition.to_string()));
            Vec::new()
        }
    };
    let failed = response.error_code;
    let named_twice = named_twice(asked);
    let outcomes: BTreeMap<(&str, i32), &Result<(), Condition>> =
        moved.iter().map(|m| ((m.topic.as_str(), m.partition), &m.outcome)).collect();
    for one in asked {
        let (name, partition, _) = one;
        let mut entry = ReassignablePartitionResponse::default();
        entry.partition_index = *partition;
        entry.error_message = None;
        let twice = || Condition::InvalidRequest("the request names this partition twice".into());
        let outcome = match outcomes.get(&(name.as_str(), *partition)) {
            _ if named_twice.contains(&(name.as_str(), *partition)) => Err(twice()),
            Some(outcome) => (*outcome).clone(),
            None if failed != 0 => Ok(()),
            None => Err(Condition::UnknownOutcome("the controller has not answered")),
        };
        if let Err(condition) = outcome {
            entry.error_code = error_code(&condition);
            entry.error_message = Some(StrBytes::from(condition.to_string()));
        } else {
            entry.error_code = failed;
        }
        match response.responses.last_mut().filter(|topic| topic.name.as_str() == name) {
            Some(topic) => topic.partitions.push(entry),
            None => {
                let mut topic = ReassignableTopicResponse::default();
                topic.name = StrBytes::from(name.clone());
                topic.partitions.push(entry);
                response.responses.push(topic);
            }
        }
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    fn three() -> Vec<Asked> {
        vec![
            ("t".into(), 0, Some(vec![1, 2])),
            ("t".into(), 1, None),
            ("u".into(), 0, Some(vec![3])),
            ("u".into(), 0, Some(vec![4])),
        ]
    }

    #[test]
    fn each_partition_has_its_own_answer() {
        let asked = three();
        let moves = moves(&asked);
        let to = Reassign::To { replicas: vec![BrokerId(1), BrokerId(2)], throttle: None };
        assert_eq!(moves, vec![("t".into(), 0, to), ("t".into(), 1, Reassign::Cancel)]);
        let moved = vec![
            ReplicaMoved { topic: "t".into(), partition: 0, outcome: Ok(()) },
            ReplicaMoved {
                topic: "t".into(),
                partition: 1,
                outcome: Err(Condition::NoReassignmentInProgress),
            },
        ];
        let response = answer(&asked, Ok(moved));
        let codes = |topic: usize| -> Vec<i16> {
            response.responses[topic].partitions.iter().map(|p| p.error_code).collect()
        };
        assert_eq!((response.error_code, codes(0), codes(1)), (0, vec![0, 85], vec![42, 42]));
        barnabas_wire::reply(1, 0, &response).unwrap_or_else(|error| panic!("{error}"));
    }

    #[test]
    fn a_controller_that_cannot_be_reached_is_told_on_both_levels() {
        let asked: Vec<Asked> = three().into_iter().take(2).collect();
        let response = answer(&asked, Err(Condition::NoController));
        assert_eq!(response.error_code, 41);
        assert!(response.responses[0].partitions.iter().all(|p| p.error_code == 41));
    }
}
