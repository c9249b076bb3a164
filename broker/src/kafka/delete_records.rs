//! DeleteRecords (key 21), versions 0 to 2: KIP-107. The leader answers once every member of the ISR has let go of the
//! records (R33), so that no failover shows them again; -1 stands for the high watermark.

use std::sync::Arc;

use barnabas_types::{Condition, Offset};
use barnabas_wire::messages::delete_records_request::DeleteRecordsPartition;
use barnabas_wire::messages::delete_records_response::{
    DeleteRecordsPartitionResult, DeleteRecordsTopicResult,
};
use barnabas_wire::messages::{DeleteRecordsRequest, DeleteRecordsResponse, StrBytes};
use tokio::time::Instant;

use super::create_topics::deadline;
use super::produce::find;
use super::{Handled, RequestContext, error_code, later};
use crate::node::Node;
use crate::partition::{Aftermath, DeleteResult, Deletion, Flush, Hosted};

/// Stands for "everything below the high watermark".
const HIGH_WATERMARK: i64 = -1;
/// What Kafka answers where there is no low watermark.
const NO_LOW_WATERMARK: i64 = -1;

/// One partition of a request.
struct Asked {
    index: i32,
    begun: Result<(Arc<Hosted>, Deletion), Condition>,
}

pub(super) fn handle(
    context: &RequestContext<'_>,
    request: DeleteRecordsRequest,
    flush: &mut Flush,
) -> Result<Handled, String> {
    let deadline = deadline(request.timeout_ms);
    let mut topics = Vec::with_capacity(request.topics.len());
    for topic in request.topics {
        // A copy: the frame is not to be kept alive by it.
        let name = topic.name.as_str().to_owned();
        let asked = |partition: DeleteRecordsPartition| Asked {
            index: partition.partition_index,
            begun: begin(context.node, &name, &partition, flush),
        };
        let partitions: Vec<Asked> = topic.partitions.into_iter().map(asked).collect();
        topics.push((name, partitions));
    }
    later(context, finish(context.node.clone(), deadline, topics))
}

/// Orders the deletion; nothing of it waits here.
fn begin(
    node: &Arc<Node>,
    topic: &str,
    asked: &DeleteRecordsPartition,
    flush: &mut Flush,
) -> Result<(Arc<Hosted>, Deletion), Condition> {
    let hosted = find(node, topic, asked.partition_index)?;
    let image = node.view.image();
    let config = image.topics.get(&hosted.topic_partition.topic).map(|topic| &topic.config);
    if config.is_some_and(|config| !config.cleanup.delete) {
        return Err(Condition::PolicyViolation(
            "records are deleted by key here: cleanup.policy does not contain 'delete'".into(),
        ));
    }
    let to = (asked.offset != HIGH_WATERMARK).then_some(Offset(asked.offset));
    let mut after = Aftermath::default();
    let deletion = hosted.delete_records(node.now(), to, &mut after);
    after.settle(&hosted, &**node, flush);
    Ok((hosted, deletion))
}

async fn finish(
    node: Arc<Node>,
    deadline: Instant,
    topics: Vec<(String, Vec<Asked>)>,
) -> DeleteRecordsResponse {
    let mut response = DeleteRecordsResponse::default();
    for (name, partitions) in topics {
        let mut entry = DeleteRecordsTopicResult::default();
        entry.name = StrBytes::from(name);
        for asked in partitions {
            let done = match asked.begun {
                Ok((hosted, deletion)) => wait(&node, deadline, hosted, deletion).await,
                Err(condition) => Err(condition),
            };
            entry.partitions.push(result(asked.index, done));
        }
        response.topics.push(entry);
    }
    response
}

async fn wait(
    node: &Arc<Node>,
    deadline: Instant,
    hosted: Arc<Hosted>,
    mut deletion: Deletion,
) -> DeleteResult {
    if let Ok(done) = tokio::time::timeout_at(deadline, &mut deletion.done).await {
        return done.unwrap_or(Err(Condition::KafkaStorageError));
    }
    let node = node.clone();
    // The partition's lock is held during writes: a slow disk must not hold the control runtime.
    let ended = tokio::task::spawn_blocking(move || {
        let mut after = Aftermath::default();
        hosted.time_out_deletion(node.now(), &deletion, &mut after);
        after.settle(&hosted, &*node, &mut Flush::default());
        // It may have succeeded at the last moment.
        deletion.done.try_recv().unwrap_or(Err(Condition::RequestTimedOut))
    });
    ended.await.unwrap_or(Err(Condition::RequestTimedOut))
}

fn result(index: i32, done: DeleteResult) -> DeleteRecordsPartitionResult {
    let mut entry = DeleteRecordsPartitionResult::default();
    entry.partition_index = index;
    match done {
        Ok(low_watermark) => entry.low_watermark = low_watermark.0,
        Err(condition) => {
            entry.low_watermark = NO_LOW_WATERMARK;
            entry.error_code = error_code(&condition);
        }
    }
    entry
}

#[cfg(test)]
mod tests {
    use super::*;
    use barnabas_wire::reply;

    #[test]
    fn every_answer_can_be_written_at_every_version() {
        let mut topic = DeleteRecordsTopicResult::default();
        topic.name = "orders".into();
        topic.partitions.push(result(0, Ok(Offset(7))));
        let start = Offset(3);
        let out = Condition::OffsetOutOfRange { asked: Offset(9), start, end: Offset(7) };
        let refused = [
            (out, 1),
            (Condition::UnknownTopicOrPartition, 3),
            (Condition::NotLeaderOrFollower, 6),
            (Condition::RequestTimedOut, 7),
            (Condition::PolicyViolation("compacted".into()), 44),
            (Condition::KafkaStorageError, 56),
        ];
        for (condition, code) in refused {
            let entry = result(1, Err(condition));
            assert_eq!((entry.error_code, entry.low_watermark), (code, NO_LOW_WATERMARK));
            topic.partitions.push(entry);
        }
        let mut response = DeleteRecordsResponse::default();
        response.topics.push(topic);
        for version in 0..=2 {
            reply(1, version, &response).unwrap_or_else(|error| panic!("{error}"));
        }
    }
}
