//! Requests for elections as messages, both ways.

use barnabas_controller_core::{ElectLeaders, ElectLeadersAnswer, ElectPartition, Election};
use barnabas_proto::v1;
use barnabas_types::{
    BrokerId, Condition, PartitionEpoch, PartitionState, TopicName, TopicPartition,
};

use super::admin::senseless;

pub(super) fn write_elect(elect: &ElectLeaders, forwarded: bool) -> v1::ElectLeadersRequest {
    let (unclean, to) = match elect.election {
        Election::Preferred => (false, None),
        Election::Unclean { to } => (true, to.map(|id| id.0)),
    };
    let partitions = elect.partitions.iter().map(|one| v1::ElectPartition {
        topic: one.partition.topic.to_string(),
        partition: one.partition.partition,
        partition_epoch: one.expected.map(|epoch| epoch.0),
    });
    v1::ElectLeadersRequest { unclean, to, partitions: partitions.collect(), forwarded }
}

pub(super) fn read_elect(request: v1::ElectLeadersRequest) -> Result<ElectLeaders, Condition> {
    let invalid = |text: &str| Condition::InvalidRequest(text.to_owned());
    let election = match (request.unclean, request.to) {
        (true, to) => Election::Unclean { to: to.map(BrokerId) },
        (false, None) => Election::Preferred,
        (false, Some(_)) => {
            return Err(invalid("a leader can be named for unclean elections only"));
        }
    };
    let read = |one: v1::ElectPartition| {
        let topic =
            TopicName::new(&one.topic).map_err(|e| Condition::InvalidTopic(e.to_string()))?;
        if request.unclean && one.partition_epoch.is_none() {
            return Err(invalid(
                "an unclean election needs the partition epoch at which it was decided on",
            ));
        }
        let partition = TopicPartition { topic, partition: one.partition };
        Ok(ElectPartition { partition, expected: one.partition_epoch.map(PartitionEpoch) })
    };
    let partitions = request.partitions.into_iter().map(read).collect::<Result<_, _>>()?;
    Ok(ElectLeaders { election, partitions })
}

pub(super) fn write_elected(
    answer: Result<ElectLeadersAnswer, Condition>,
) -> v1::ElectLeadersResponse {
    use v1::elected_partition::Result as Outcome;
    let results = match answer {
        Ok(results) => results,
        Err(condition) => {
            let failure = Some((&condition).into());
            return v1::ElectLeadersResponse { failure, results: Vec::new() };
        }
    };
    let write = |(at, result): (TopicPartition, Result<PartitionState, Condition>)| {
        let outcome = match &result {
            Ok(state) => Outcome::State(state.into()),
            Err(condition) => Outcome::Failure(condition.into()),
        };
        let (topic, partition) = (at.topic.to_string(), at.partition);
        v1::ElectedPartition { topic, partition, result: Some(outcome) }
    };
    v1::ElectLeadersResponse { failure: None, results: results.into_iter().map(write).collect() }
}

pub(super) fn read_elected(
    response: v1::ElectLeadersResponse,
) -> Result<ElectLeadersAnswer, Condition> {
    use v1::elected_partition::Result as Outcome;
    if let Some(failure) = response.failure {
        return Err(failure.into());
    }
    let read = |one: v1::ElectedPartition| {
        let topic = TopicName::new(&one.topic).map_err(|_| senseless())?;
        let result = match one.result {
            Some(Outcome::State(state)) => {
                Ok(PartitionState::try_from(&state).map_err(|_| senseless())?)
            }
            Some(Outcome::Failure(failure)) => Err(failure.into()),
            None => return Err(senseless()),
        };
        Ok((TopicPartition { topic, partition: one.partition }, result))
    };
    response.results.into_iter().map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(partition: i32) -> TopicPartition {
        TopicPartition { topic: TopicName::new("t").unwrap(), partition }
    }

    #[test]
    fn requests_and_answers_read_back_as_written() {
        let of = |election, expected| ElectLeaders {
            election,
            partitions: vec![ElectPartition { partition: at(1), expected }],
        };
        for elect in [
            of(Election::Preferred, None),
            of(Election::Unclean { to: None }, Some(PartitionEpoch(7))),
            of(Election::Unclean { to: Some(BrokerId(2)) }, Some(PartitionEpoch(0))),
        ] {
            assert_eq!(read_elect(write_elect(&elect, true)), Ok(elect));
        }
        let answer = vec![
            (at(0), Ok(PartitionState::default())),
            (at(1), Err(Condition::ElectionNotNeeded("it leads".into()))),
        ];
        assert_eq!(read_elected(write_elected(Ok(answer.clone()))), Ok(answer));
        let refused = Err(Condition::NotController);
        assert_eq!(read_elected(write_elected(refused.clone())), refused);
    }

    #[test]
    fn r39_an_unclean_election_names_the_epoch_that_was_shown() {
        let blind = ElectLeaders {
            election: Election::Unclean { to: None },
            partitions: vec![ElectPartition { partition: at(1), expected: None }],
        };
        assert!(matches!(
            read_elect(write_elect(&blind, false)),
            Err(Condition::InvalidRequest(_))
        ));
    }
}
