//! Additions of partitions as messages, both ways.

use barnabas_controller_core::CreatePartitions;
use barnabas_proto::v1;
use barnabas_types::{BrokerId, Condition, TopicName};

use super::admin::senseless;

pub(super) fn write_create(
    create: &CreatePartitions,
    forwarded: bool,
) -> v1::CreatePartitionsRequest {
    let assignment = create
        .assignment
        .iter()
        .map(|brokers| v1::Replicas { brokers: brokers.iter().map(|id| id.0).collect() });
    v1::CreatePartitionsRequest {
        name: create.name.to_string(),
        total: create.total,
        assignment: assignment.collect(),
        validate_only: create.validate_only,
        forwarded,
    }
}

pub(super) fn read_create(
    request: v1::CreatePartitionsRequest,
) -> Result<CreatePartitions, Condition> {
    let name = TopicName::new(&request.name)
        .map_err(|error| Condition::InvalidTopic(error.to_string()))?;
    let ids = |replicas: v1::Replicas| replicas.brokers.into_iter().map(BrokerId).collect();
    Ok(CreatePartitions {
        name,
        total: request.total,
        assignment: request.assignment.into_iter().map(ids).collect(),
        validate_only: request.validate_only,
    })
}

pub(super) fn write_created(
    name: String,
    answer: Result<i32, Condition>,
) -> v1::CreatePartitionsResponse {
    use v1::create_partitions_response::Result as Outcome;
    let outcome = match answer {
        Ok(partitions) => Outcome::Created(v1::CreatedPartitions { name, partitions }),
        Err(condition) => Outcome::Failure((&condition).into()),
    };
    v1::CreatePartitionsResponse { result: Some(outcome) }
}

pub(super) fn read_created(response: v1::CreatePartitionsResponse) -> Result<i32, Condition> {
    use v1::create_partitions_response::Result as Outcome;
    match response.result {
        Some(Outcome::Created(created)) => Ok(created.partitions),
        Some(Outcome::Failure(failure)) => Err(failure.into()),
        None => Err(senseless()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_forwarded_addition_is_what_was_asked() {
        let create = CreatePartitions {
            name: TopicName::new("t").unwrap(),
            total: 4,
            assignment: vec![vec![BrokerId(2), BrokerId(1)], vec![BrokerId(3), BrokerId(2)]],
            validate_only: true,
        };
        let message = write_create(&create, true);
        assert!(message.forwarded);
        assert_eq!(read_create(message.clone()), Ok(create));
        let bad = v1::CreatePartitionsRequest { name: "../x".into(), ..message };
        assert!(matches!(read_create(bad), Err(Condition::InvalidTopic(_))));
    }

    #[test]
    fn answers_read_back_as_written() {
        assert_eq!(read_created(write_created("t".into(), Ok(5))), Ok(5));
        let failed = Condition::InvalidPartitions("no increase".into());
        assert_eq!(read_created(write_created("t".into(), Err(failed.clone()))), Err(failed));
    }
}
