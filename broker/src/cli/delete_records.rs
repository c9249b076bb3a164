//! `barnabas topic delete-records`: asks the partition's leader over the Kafka protocol, as Kafka's own tools do.

use barnabas_proto::v1::{DescribeClusterRequest, DescribeTopicsRequest};
use barnabas_wire::messages::delete_records_request::{DeleteRecordsPartition, DeleteRecordsTopic};
use barnabas_wire::messages::{DeleteRecordsRequest, DeleteRecordsResponse};
use clap::Args;
use serde_json::json;

use super::ask::{ask, printable};
use super::table::print_json;
use super::topic::absent;
use super::{Asking, CliError};

/// Version of the request.
const VERSION: i16 = 2;
/// How long the leader may wait for the ISR.
const TIMEOUT_MS: i32 = 30_000;
#[derive(Args, Debug)]
pub(super) struct DeleteRecordsArgs {
    /// The topic.
    name: String,
    /// The partition.
    #[arg(long, value_name = "P", value_parser = clap::value_parser!(i32).range(0..))]
    partition: i32,
    /// The first offset that stays; -1: everything that is committed goes.
    #[arg(long, value_name = "OFFSET", allow_negative_numbers = true, value_parser = clap::value_parser!(i64).range(-1..))]
    before: i64,
    #[command(flatten)]
    asking: Asking,
}

pub(super) fn delete_records(args: &DeleteRecordsArgs) -> Result<(), CliError> {
    let DeleteRecordsArgs { name, partition, before, asking } = args;
    let leader = leader(name, *partition, asking)?;
    let mut of_partition = DeleteRecordsPartition::default();
    of_partition.partition_index = *partition;
    of_partition.offset = *before;
    let mut topic = DeleteRecordsTopic::default();
    topic.name = name.as_str().into();
    topic.partitions.push(of_partition);
    let mut request = DeleteRecordsRequest::default();
    request.timeout_ms = TIMEOUT_MS;
    request.topics.push(topic);
    let response = exchange(&leader, &request)?;
    let result = response.topics.first().and_then(|topic| topic.partitions.first());
    let result = result
        .ok_or_else(|| CliError::Refused(format!("the broker at {leader} gave an empty answer")))?;
    if result.error_code != 0 {
        return Err(refusal(name, *partition, *before, result.error_code));
    }
    if asking.json {
        print_json(&json!({
            "name": name, "partition": partition, "low_watermark": result.low_watermark,
        }));
    } else {
        say!(
            "topic '{}' partition {partition} begins at offset {}",
            printable(name),
            result.low_watermark
        );
    }
    Ok(())
}

/// Address of the partition's leader for clients.
fn leader(name: &str, partition: i32, asking: &Asking) -> Result<String, CliError> {
    let request = DescribeTopicsRequest { names: vec![name.to_owned()] };
    let topics = ask(asking, |mut client| async move { client.describe_topics(request).await })?;
    let topic = topics.topics.first().ok_or_else(|| absent(name))?;
    let found = topic.partitions.iter().find(|p| p.index == partition).ok_or_else(|| {
        CliError::Refused(format!(
            "topic '{}' has no partition {partition}; `barnabas topic describe` shows those it has",
            printable(name)
        ))
    })?;
    let leader = found.state.as_ref().map_or(-1, |state| state.leader);
    let request = DescribeClusterRequest {};
    let cluster = ask(asking, |mut client| async move { client.describe_cluster(request).await })?;
    let broker = cluster.brokers.iter().find(|broker| broker.id == leader);
    broker.map(|broker| format!("{}:{}", broker.host, broker.port)).ok_or_else(|| {
        CliError::Refused(format!(
            "partition {partition} of topic '{}' has no leader now; try again when it has one",
            printable(name)
        ))
    })
}

fn exchange(
    address: &str,
    request: &DeleteRecordsRequest,
) -> Result<DeleteRecordsResponse, CliError> {
    let unreachable = |error: &dyn std::fmt::Display| {
        CliError::Unreachable(format!(
            "the leader at {address} did not answer ({error}); records may be deleted all the same, try again"
        ))
    };
    super::kafka::exchange(address, VERSION, request).map_err(|error| unreachable(&error))
}

/// Kafka's error codes as one sentence; the answer has no place for text.
fn refusal(name: &str, partition: i32, before: i64, code: i16) -> CliError {
    let whose = format!("partition {partition} of topic '{}'", printable(name));
    CliError::Refused(match code {
        1 => format!(
            "offset {before} is above what is committed in {whose}, which only may be deleted"
        ),
        3 => format!("{whose} is not there; `barnabas topic describe` shows those that are"),
        6 => format!("the leader of {whose} has changed meanwhile; try again"),
        7 => format!(
            "not every in-sync replica of {whose} has let go of the records in time; try again: until it succeeds they may come back"
        ),
        19 | 20 => format!(
            "{whose} has fewer in-sync replicas than min.insync.replicas; try again when it has more"
        ),
        44 => format!(
            "records of {whose} are deleted by key: cleanup.policy does not contain 'delete'"
        ),
        code => format!("the leader of {whose} refused with Kafka's error code {code}"),
    })
}
