//! ElectLeaders (key 43), versions 0 to 2: KIP-183 (preferred leaders), KIP-460 (unclean elections). The controller elects; any
//! broker takes the request.

use std::collections::BTreeMap;
use std::sync::Arc;

use barnabas_controller::{ElectLeaders, ElectLeadersAnswer, ElectPartition, Election};
use barnabas_types::{ClusterImage, Condition, TopicName, TopicPartition};
use barnabas_wire::messages::elect_leaders_response::{PartitionResult, ReplicaElectionResult};
use barnabas_wire::messages::{ElectLeadersRequest, ElectLeadersResponse, StrBytes};

use super::create_topics::deadline;
use super::error_code;
use crate::node::Node;

/// Kafka's number of an election of the preferred leader, and of an unclean one.
const PREFERRED: i8 = 0;
const UNCLEAN: i8 = 1;
/// First version with an error of the whole request.
const ERROR_VERSION: i16 = 1;

pub(super) async fn handle(
    node: Arc<Node>,
    version: i16,
    request: ElectLeadersRequest,
) -> ElectLeadersResponse {
    let deadline = deadline(request.timeout_ms);
    let image = node.view.image();
    let named = named(&request);
    let election = match request.election_type {
        PREFERRED => Election::Preferred,
        UNCLEAN => Election::Unclean { to: None },
        _ => {
            let unknown = Condition::InvalidRequest("no such election".to_owned());
            return failed(version, named, &unknown);
        }
    };
    // Names that cannot be are answered here; the controller is asked for the rest.
    let mut results: Results = Vec::new();
    let all = request.topic_partitions.is_none();
    let partitions = match request.topic_partitions {
        None => every_partition(&image, election),
        Some(topics) => {
            let mut asked = Vec::new();
            for topic in topics {
                for partition in topic.partitions {
                    match TopicName::new(topic.topic.as_str()) {
                        Ok(topic) => asked.push(TopicPartition { topic, partition }),
                        Err(error) => {
                            let invalid = Condition::InvalidTopic(error.to_string());
                            results.push((topic.topic.to_string(), partition, Err(invalid)));
                        }
                    }
                }
            }
            asked
        }
    };
    let elect = ElectLeaders { election, partitions: expecting(&image, election, partitions) };
    let answer = if elect.partitions.is_empty() {
        Ok(ElectLeadersAnswer::new())
    } else {
        match tokio::time::timeout_at(deadline, node.controller.elect_leaders(elect)).await {
            Ok(answer) => answer,
            Err(_) => Err(Condition::RequestTimedOut),
        }
    };
    match answer {
        Err(condition) => failed(version, named, &condition),
        Ok(answer) => {
            let answer = answer.into_iter();
            results.extend(
                answer.map(|(at, result)| (at.topic.to_string(), at.partition, result.map(|_| ()))),
            );
            // Asked about all partitions, Kafka leaves out those that need nothing.
            let needless = |r: &Result<(), Condition>| {
                r.as_ref().is_err_and(|c| matches!(c, Condition::ElectionNotNeeded(_)))
            };
            results.retain(|(_, _, result)| !(all && needless(result)));
            response(results)
        }
    }
}

type Results = Vec<(String, i32, Result<(), Condition>)>;

/// Those for which such an election could change something, as far as this broker knows.
fn every_partition(image: &ClusterImage, election: Election) -> Vec<TopicPartition> {
    let mut found = Vec::new();
    for (topic, of_topic) in &image.topics {
        for (index, partition) in &of_topic.partitions {
            let leader = partition.state.leader;
            let wanted = match election {
                Election::Preferred => leader != partition.assigned_replicas.first().copied(),
                Election::Unclean { .. } => leader.is_none(),
            };
            if wanted {
                found.push(TopicPartition { topic: topic.clone(), partition: *index });
            }
        }
    }
    found
}

/// R39: an unclean election is one of the state that this broker knows, not of whatever has come since.
fn expecting(
    image: &ClusterImage,
    election: Election,
    partitions: Vec<TopicPartition>,
) -> Vec<ElectPartition> {
    let epoch = |at: &TopicPartition| {
        let partition = image.topics.get(&at.topic)?.partitions.get(&at.partition)?;
        Some(partition.state.partition_epoch)
    };
    let one = |partition: TopicPartition| {
        let expected = match election {
            Election::Preferred => None,
            // One that is not known here is known nowhere, or not yet: at the epoch of a new one nobody can be missing.
            Election::Unclean { .. } => Some(epoch(&partition).unwrap_or_default()),
        };
        ElectPartition { partition, expected }
    };
    partitions.into_iter().map(one).collect()
}

/// The partitions that the request names, of legal names or not.
fn named(request: &ElectLeadersRequest) -> Vec<(String, i32)> {
    let topics = request.topic_partitions.iter().flatten();
    let of =
        topics.flat_map(|topic| topic.partitions.iter().map(|p| (topic.topic.to_string(), *p)));
    of.collect()
}

/// Told on both levels, as Kafka does: the first version has no error of the whole request.
fn failed(version: i16, named: Vec<(String, i32)>, condition: &Condition) -> ElectLeadersResponse {
    let each = named.into_iter().map(|(topic, p)| (topic, p, Err(condition.clone())));
    let mut response = response(each.collect());
    if version >= ERROR_VERSION {
        response.error_code = error_code(condition);
    }
    response
}

fn response(results: Results) -> ElectLeadersResponse {
    let mut by_topic: BTreeMap<String, Vec<PartitionResult>> = BTreeMap::new();
    for (topic, partition, result) in results {
        let mut entry = PartitionResult::default();
        entry.partition_id = partition;
        entry.error_message = None;
        if let Err(condition) = result {
            entry.error_code = error_code(&condition);
            entry.error_message = Some(StrBytes::from(condition.to_string()));
        }
        by_topic.entry(topic).or_default().push(entry);
    }
    let mut response = ElectLeadersResponse::default();
    for (topic, partitions) in by_topic {
        let mut entry = ReplicaElectionResult::default();
        entry.topic = StrBytes::from(topic);
        entry.partition_result = partitions;
        response.replica_election_results.push(entry);
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use barnabas_types::{BrokerId, Partition, PartitionEpoch, PartitionState, TopicImage};
    use barnabas_wire::reply;

    #[test]
    fn every_answer_can_be_written_at_every_version() {
        let results = || {
            let needless = Condition::ElectionNotNeeded("it leads".into());
            let gone = Condition::EligibleLeadersNotAvailable("all are dead".into());
            let preferred = Condition::PreferredLeaderNotAvailable("it is dead".into());
            vec![
                ("t".to_owned(), 0, Ok(())),
                ("t".to_owned(), 1, Err(needless)),
                ("u".to_owned(), 0, Err(gone)),
                ("u".to_owned(), 1, Err(preferred)),
            ]
        };
        let written = response(results());
        let codes: Vec<i16> = written
            .replica_election_results
            .iter()
            .flat_map(|topic| topic.partition_result.iter().map(|p| p.error_code))
            .collect();
        assert_eq!(codes, [0, 84, 83, 80]);
        for version in 0..=2 {
            reply(1, version, &written).unwrap_or_else(|error| panic!("{error}"));
            let refused = failed(version, vec![("t".to_owned(), 3)], &Condition::NoController);
            let told = &refused.replica_election_results[0].partition_result[0];
            assert_eq!((told.partition_id, told.error_code), (3, 41));
            assert_eq!(refused.error_code, if version == 0 { 0 } else { 41 });
            reply(1, version, &refused).unwrap_or_else(|error| panic!("{error}"));
        }
    }

    #[test]
    fn r39_an_unclean_election_is_of_the_state_that_this_broker_knows() {
        let partition = |leader: Option<i32>, epoch| Partition {
            assigned_replicas: vec![BrokerId(1), BrokerId(2)],
            moving: Default::default(),
            state: PartitionState {
                leader: leader.map(BrokerId),
                partition_epoch: PartitionEpoch(epoch),
                ..PartitionState::default()
            },
        };
        let mut image = ClusterImage::default();
        let topic = TopicName::new("t").unwrap();
        let partitions = [partition(Some(1), 3), partition(Some(2), 4), partition(None, 5)];
        let partitions = (0..).zip(partitions).collect();
        image.topics.insert(topic, TopicImage { partitions, ..TopicImage::default() });
        let indexes = |election| {
            every_partition(&image, election).iter().map(|at| at.partition).collect::<Vec<_>>()
        };
        assert_eq!(indexes(Election::Preferred), [1, 2]);
        let unclean = Election::Unclean { to: None };
        assert_eq!(indexes(unclean), [2]);
        let asked = expecting(&image, unclean, every_partition(&image, unclean));
        assert_eq!(asked[0].expected, Some(PartitionEpoch(5)));
    }
}
