//! Draining as messages, both ways: a broker's mark, how far it has come, whether it may be stopped.

use barnabas_controller_core::{DrainProgress, Obstruction, StopVerdict};
use barnabas_proto::v1;
use barnabas_types::{Condition, TopicName, TopicPartition};

use super::admin::senseless;

fn write_obstructions(obstructions: Vec<Obstruction>) -> Vec<v1::Obstruction> {
    let write = |o: Obstruction| v1::Obstruction {
        topic: o.partition.topic.to_string(),
        partition: o.partition.partition,
        reason: o.reason,
        never: o.never,
    };
    obstructions.into_iter().map(write).collect()
}

fn read_obstructions(obstructions: Vec<v1::Obstruction>) -> Result<Vec<Obstruction>, Condition> {
    let read = |o: v1::Obstruction| {
        let topic = TopicName::new(&o.topic).map_err(|_| senseless())?;
        let partition = TopicPartition { topic, partition: o.partition };
        Ok(Obstruction { partition, reason: o.reason, never: o.never })
    };
    obstructions.into_iter().map(read).collect()
}

fn write_count(partitions: usize) -> u32 {
    u32::try_from(partitions).unwrap_or(u32::MAX)
}

fn read_count(partitions: u32) -> usize {
    usize::try_from(partitions).unwrap_or(usize::MAX)
}

pub(super) fn write_progress(answer: Result<DrainProgress, Condition>) -> v1::DrainResponse {
    use v1::drain_response::Result as Outcome;
    let outcome = match answer {
        Ok(progress) => Outcome::Progress(v1::DrainProgress {
            may_stop: progress.may_stop,
            partitions: write_count(progress.partitions),
            obstructions: write_obstructions(progress.obstructions),
        }),
        Err(condition) => Outcome::Failure((&condition).into()),
    };
    v1::DrainResponse { result: Some(outcome) }
}

pub(super) fn read_progress(response: v1::DrainResponse) -> Result<DrainProgress, Condition> {
    use v1::drain_response::Result as Outcome;
    match response.result {
        Some(Outcome::Progress(progress)) => Ok(DrainProgress {
            may_stop: progress.may_stop,
            partitions: read_count(progress.partitions),
            obstructions: read_obstructions(progress.obstructions)?,
        }),
        Some(Outcome::Failure(failure)) => Err(failure.into()),
        None => Err(senseless()),
    }
}

pub(super) fn write_verdict(answer: Result<StopVerdict, Condition>) -> v1::CanStopBrokerResponse {
    use v1::can_stop_broker_response::Result as Outcome;
    let outcome = match answer {
        Ok(verdict) => Outcome::Verdict(v1::StopVerdict {
            never: verdict.never,
            partitions: write_count(verdict.partitions),
            obstructions: write_obstructions(verdict.obstructions),
        }),
        Err(condition) => Outcome::Failure((&condition).into()),
    };
    v1::CanStopBrokerResponse { result: Some(outcome) }
}

pub(super) fn read_verdict(response: v1::CanStopBrokerResponse) -> Result<StopVerdict, Condition> {
    use v1::can_stop_broker_response::Result as Outcome;
    match response.result {
        Some(Outcome::Verdict(verdict)) => Ok(StopVerdict {
            never: verdict.never,
            partitions: read_count(verdict.partitions),
            obstructions: read_obstructions(verdict.obstructions)?,
        }),
        Some(Outcome::Failure(failure)) => Err(failure.into()),
        None => Err(senseless()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_read_back_as_written() {
        let obstructions = vec![Obstruction {
            partition: TopicPartition { topic: TopicName::new("t").unwrap(), partition: 3 },
            reason: "it is the only replica".into(),
            never: true,
        }];
        let progress =
            DrainProgress { may_stop: false, partitions: 7, obstructions: obstructions.clone() };
        assert_eq!(read_progress(write_progress(Ok(progress.clone()))), Ok(progress));
        let verdict = StopVerdict { never: true, partitions: 7, obstructions };
        assert_eq!(read_verdict(write_verdict(Ok(verdict.clone()))), Ok(verdict));
        let refused = || Condition::InvalidRequest("unknown".into());
        assert_eq!(read_progress(write_progress(Err(refused()))), Err(refused()));
        assert_eq!(read_verdict(write_verdict(Err(refused()))), Err(refused()));
        assert!(read_progress(v1::DrainResponse { result: None }).is_err());
    }
}
