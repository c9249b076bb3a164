//! Moves of replicas as messages, both ways.

use std::collections::BTreeMap;

use barnabas_controller_core::Reassign;
use barnabas_proto::v1;
use barnabas_types::{BrokerId, Condition, Partition, TopicName, TopicPartition};

use super::admin::senseless;
use super::handle::{ReplicaMoved, ReplicaMoves};

pub(super) fn write_moves(
    wanted: &ReplicaMoves,
    forwarded: bool,
) -> v1::AlterPartitionReassignmentsRequest {
    use v1::reassignment::Wish;
    let mut request = v1::AlterPartitionReassignmentsRequest { forwarded, ..Default::default() };
    match wanted {
        ReplicaMoves::Partitions(moves) => {
            let written = moves.iter().map(|(topic, partition, wish)| v1::Reassignment {
                topic: topic.clone(),
                partition: *partition,
                wish: Some(match wish {
                    Reassign::To { replicas, throttle } => Wish::To(v1::ReplicaTarget {
                        replicas: replicas.iter().map(|id| id.0).collect(),
                        throttle: *throttle,
                    }),
                    Reassign::Cancel => Wish::Cancel(true),
                    Reassign::Throttle(limit) => Wish::Limit(*limit),
                }),
            });
            request.partitions = written.collect();
        }
        ReplicaMoves::ReplicationFactor { topic, replication_factor, throttle } => {
            request.replication_factor = Some(v1::ReplicationFactor {
                topic: topic.clone(),
                replication_factor: *replication_factor,
                throttle: *throttle,
            });
        }
    }
    request
}

pub(super) fn read_moves(
    request: v1::AlterPartitionReassignmentsRequest,
) -> Result<ReplicaMoves, Condition> {
    use v1::reassignment::Wish;
    let bad = |text: &str| Err(Condition::InvalidRequest(text.to_owned()));
    if let Some(v1::ReplicationFactor { topic, replication_factor, throttle }) =
        request.replication_factor
    {
        if !request.partitions.is_empty() {
            return bad("give either partitions, or a topic's replication factor");
        }
        return Ok(ReplicaMoves::ReplicationFactor { topic, replication_factor, throttle });
    }
    let mut moves = Vec::with_capacity(request.partitions.len());
    for v1::Reassignment { topic, partition, wish } in request.partitions {
        let wish = match wish {
            Some(Wish::To(v1::ReplicaTarget { replicas, throttle })) => {
                let replicas = replicas.into_iter().map(BrokerId).collect();
                Reassign::To { replicas, throttle }
            }
            Some(Wish::Cancel(true)) => Reassign::Cancel,
            Some(Wish::Limit(limit)) => Reassign::Throttle(limit),
            Some(Wish::Cancel(false)) | None => {
                return bad("a partition is named without what becomes of it");
            }
        };
        moves.push((topic, partition, wish));
    }
    Ok(ReplicaMoves::Partitions(moves))
}

pub(super) fn write_moved(
    answer: Result<Vec<ReplicaMoved>, Condition>,
) -> v1::AlterPartitionReassignmentsResponse {
    let results = match answer {
        Ok(results) => results,
        Err(condition) => {
            let failure = Some((&condition).into());
            return v1::AlterPartitionReassignmentsResponse { results: Vec::new(), failure };
        }
    };
    let written = results.into_iter().map(|moved| v1::ReassignmentResult {
        topic: moved.topic,
        partition: moved.partition,
        failure: moved.outcome.err().as_ref().map(Into::into),
    });
    v1::AlterPartitionReassignmentsResponse { results: written.collect(), failure: None }
}

pub(super) fn read_moved(
    response: v1::AlterPartitionReassignmentsResponse,
) -> Result<Vec<ReplicaMoved>, Condition> {
    if let Some(failure) = response.failure {
        return Err(failure.into());
    }
    let read = response.results.into_iter().map(|result| ReplicaMoved {
        topic: result.topic,
        partition: result.partition,
        outcome: result.failure.map_or(Ok(()), |failure| Err(failure.into())),
    });
    Ok(read.collect())
}

pub(super) fn write_listed(
    answer: Result<BTreeMap<TopicPartition, Partition>, Condition>,
) -> v1::ListPartitionReassignmentsResponse {
    match answer {
        Ok(all) => {
            let written = all.iter().map(|(at, partition)| v1::PartitionReassignment {
                topic: at.topic.to_string(),
                partition: Some(v1::Partition::of(at.partition, partition)),
                progress: Vec::new(),
            });
            v1::ListPartitionReassignmentsResponse { partitions: written.collect(), failure: None }
        }
        Err(condition) => v1::ListPartitionReassignmentsResponse {
            partitions: Vec::new(),
            failure: Some((&condition).into()),
        },
    }
}

pub(super) fn read_listed(
    response: v1::ListPartitionReassignmentsResponse,
) -> Result<BTreeMap<TopicPartition, Partition>, Condition> {
    if let Some(failure) = response.failure {
        return Err(failure.into());
    }
    let mut all = BTreeMap::new();
    for listed in response.partitions {
        let topic = TopicName::new(&listed.topic).map_err(|_| senseless())?;
        let read = listed.partition.ok_or_else(senseless)?.read();
        let (partition, read) = read.map_err(|_| senseless())?;
        all.insert(TopicPartition { topic, partition }, read);
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use barnabas_types::Assignment;

    #[test]
    fn forwarded_moves_are_what_was_asked() {
        let to = Reassign::To { replicas: vec![BrokerId(2), BrokerId(3)], throttle: Some(0) };
        let moves = ReplicaMoves::Partitions(vec![
            ("t".into(), 0, to),
            ("t".into(), 1, Reassign::Cancel),
            ("/".into(), -1, Reassign::Throttle(7)),
        ]);
        let message = write_moves(&moves, true);
        assert!(message.forwarded);
        assert_eq!(read_moves(message.clone()), Ok(moves));
        let resize = ReplicaMoves::ReplicationFactor {
            topic: "t".into(),
            replication_factor: 3,
            throttle: None,
        };
        let other = write_moves(&resize, false);
        assert_eq!(read_moves(other.clone()), Ok(resize));
        let both =
            v1::AlterPartitionReassignmentsRequest { partitions: message.partitions, ..other };
        assert!(matches!(read_moves(both.clone()), Err(Condition::InvalidRequest(_))));
        let mut nothing = both;
        nothing.replication_factor = None;
        nothing.partitions[0].wish = None;
        assert!(matches!(read_moves(nothing), Err(Condition::InvalidRequest(_))));
    }

    #[test]
    fn answers_read_back_as_written() {
        let moved = |outcome| ReplicaMoved { topic: "t".into(), partition: 4, outcome };
        let results = vec![moved(Ok(())), moved(Err(Condition::NoReassignmentInProgress))];
        assert_eq!(read_moved(write_moved(Ok(results.clone()))), Ok(results));
        let failed = Condition::UnknownTopicOrPartition;
        assert_eq!(read_moved(write_moved(Err(failed.clone()))), Err(failed.clone()));
        let at = TopicPartition { topic: TopicName::new("t").unwrap(), partition: 4 };
        let settled = Assignment::settled(vec![BrokerId(1), BrokerId(2)]);
        let Assignment { replicas, moving } = settled.towards(&[BrokerId(3)], Some(9));
        let partition = Partition { assigned_replicas: replicas, moving, ..Partition::default() };
        let all = BTreeMap::from([(at, partition)]);
        assert_eq!(read_listed(write_listed(Ok(all.clone()))), Ok(all));
        assert_eq!(read_listed(write_listed(Err(failed.clone()))), Err(failed));
    }
}
