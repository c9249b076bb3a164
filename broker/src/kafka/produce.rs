//! Produce (key 0), versions 3 to 11: KIP-98 (3), KIP-110 (zstd, from 7), KIP-467 (8), flexible (9), KIP-951 (who leads
//! instead, from 10). Batches stay opaque beyond their headers.
//!
//! Answered by whoever finishes the last partition: this connection (acks=1, errors) or the one whose follower moved the
//! high watermark (acks=all). acks=0 has no answer; an error there closes the connection, as in Kafka, so that the
//! client refreshes its metadata.

use std::cell::Cell;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use barnabas_log::{
    BatchError, BatchHeader, ProduceRules, recompressed, refused_records, stamp_append_time,
    validate_produce,
};
use barnabas_types::{Acks, BrokerId, Condition, LeaderEpoch, TopicName};
use barnabas_wire::messages::produce_response::{
    BatchIndexAndErrorMessage, NodeEndpoint, PartitionProduceResponse, TopicProduceResponse,
};
use barnabas_wire::messages::{ProduceRequest, ProduceResponse, StrBytes};
use barnabas_wire::reply;
use bytes::{Bytes, BytesMut};
use tokio::time::Instant;

use super::{Handled, RequestContext, error_code, leader_hints, owned};
use crate::clock::{since_boot, unix_ms};
use crate::connection::serve::WAIT_MAX;
use crate::node::Node;
use crate::partition::{
    Aftermath, AppendResult, EncodeProduce, Flush, Hosted, PendingProduce, ProduceResult,
};
use crate::view::View;

/// First version whose clients may send zstd: an older one could not read it again.
const ZSTD_VERSION: i16 = 7;
/// The codec's number in a batch.
const ZSTD: i16 = 4;
/// First version that tells which records were refused.
const RECORD_ERRORS_VERSION: i16 = 8;
/// Most records that one answer names: a compressed batch of a few bytes can hold millions.
const RECORD_ERRORS_MAX: usize = 10_000;
/// First version that tells who leads instead.
const LEADER_HINT_VERSION: i16 = 10;

/// A produce request that may run into its timeout.
pub(crate) struct ProduceWait {
    /// The request.
    pub pending: Arc<PendingProduce>,
    /// When it is late.
    pub deadline: Instant,
    /// Where it waits.
    pub partitions: Vec<Arc<Hosted>>,
    /// When it has waited for `flush.timeout.ms` in a partition in sync mode; at most one time each.
    pub flush_deadlines: Vec<(Instant, Arc<Hosted>)>,
}

pub(super) fn handle(
    context: &RequestContext<'_>,
    request: &ProduceRequest,
    flush: &mut Flush,
) -> Result<Handled, String> {
    let acks = match request.acks {
        0 => Ok(Acks::None),
        1 => Ok(Acks::Leader),
        -1 => Ok(Acks::All),
        _ => Err(Condition::InvalidRequiredAcks),
    };
    let partitions = request.topic_data.iter().map(|topic| topic.partition_data.len()).sum();
    let besides: Besides = (0..partitions).map(|_| Beside::default()).collect();
    let encode = encoder(context, request, besides.clone());
    let record_errors_left = Cell::new(RECORD_ERRORS_MAX);
    if partitions == 0 {
        let answer = encode(&[]);
        return Ok(Handled::Answered(if request.acks == 0 { Vec::new() } else { answer }));
    }
    let pending =
        Arc::new(PendingProduce::new(context.out.clone(), context.slot, partitions, encode));
    let refused = match &request.transactional_id {
        Some(_) => Err(Condition::UnsupportedVersion("transactions")),
        None => acks,
    };
    let mut waits = Vec::new();
    let mut failed = false;
    let mut index = 0;
    let mut scratch = BytesMut::new();
    for topic in &request.topic_data {
        for data in &topic.partition_data {
            let at = Place {
                pending: &pending,
                beside: &besides[index],
                record_errors_left: &record_errors_left,
                index,
                version: context.version,
                name: topic.name.as_str(),
                partition: data.index,
            };
            let done = refused.clone().and_then(|acks| {
                at.append(context.node, acks, data.records.as_ref(), &mut scratch, flush)
            });
            match done {
                Ok(hosted) => waits.push(hosted),
                Err(condition) => {
                    failed = true;
                    refused_here(context.node, &at, refused.is_ok());
                    // With acks=0 nothing may be written: the client reads no answer.
                    if request.acks != 0
                        && let Some(out) = pending.finish(index, Err(condition))
                    {
                        flush.add(out);
                    }
                }
            }
            index += 1;
        }
    }
    if request.acks == 0 {
        // No answer, whatever was wrong: the client does not read one.
        if failed {
            return Err(
                "a produce request with acks=0 failed; its client must refresh its metadata"
                    .to_owned(),
            );
        }
        return Ok(Handled::Answered(Vec::new()));
    }
    if pending.is_done() {
        return Ok(Handled::Later);
    }
    let timeout = Duration::from_millis(u64::try_from(request.timeout_ms).unwrap_or(0));
    let now = Instant::now();
    let deadline = now + timeout.min(WAIT_MAX);
    let of_flush = waits.iter().filter_map(|hosted| {
        let late = now + hosted.flush_timeout()?.min(WAIT_MAX);
        (late < deadline).then(|| (late, hosted.clone()))
    });
    let flush_deadlines = of_flush.collect();
    Ok(Handled::Produce(ProduceWait { pending, deadline, partitions: waits, flush_deadlines }))
}

/// What the answer says of a partition beside its result.
struct Beside {
    /// When the leader stamped the batch (LogAppendTime), ms; -1 if it did not.
    append_time_ms: AtomicI64,
    /// Records for which the batch was refused: their numbers in it, and why.
    refused: OnceLock<Vec<(i32, BatchError)>>,
}

impl Default for Beside {
    fn default() -> Self {
        Self { append_time_ms: AtomicI64::new(-1), refused: OnceLock::new() }
    }
}

type Besides = Arc<[Beside]>;

/// One partition of a request.
struct Place<'a> {
    pending: &'a Arc<PendingProduce>,
    beside: &'a Beside,
    /// How many more records this answer may name.
    record_errors_left: &'a Cell<usize>,
    index: usize,
    version: i16,
    name: &'a str,
    partition: i32,
}

impl Place<'_> {
    /// Checks and appends; the replica hands the result to the pending request, now or later.
    fn append(
        &self,
        node: &Arc<Node>,
        acks: Acks,
        records: Option<&Bytes>,
        scratch: &mut BytesMut,
        flush: &mut Flush,
    ) -> Result<Arc<Hosted>, Condition> {
        let hosted = find(node, self.name, self.partition)?;
        hosted.traffic.produce_asked();
        if acks != Acks::All && node.pulse.is_doubtful(since_boot()) {
            // Another one may lead by now, and nobody else would have to know these records for their acknowledgement.
            return Err(Condition::NotLeaderOrFollower);
        }
        if hosted.topic_partition.topic.is_internal() {
            let name = self.name;
            let text =
                format!("the brokers keep their own state in '{name}': clients do not write it");
            return Err(Condition::InvalidTopic(text));
        }
        let records =
            records.filter(|r| !r.is_empty()).ok_or(Condition::InvalidRecord("no record batch"))?;
        let (rules, now_ms) = (hosted.produce_rules(), unix_ms());
        let mut summary = validate_produce(records, &rules, now_ms)
            .map_err(|error| self.refused(error, records, &rules, now_ms))?;
        if self.version < ZSTD_VERSION
            && BatchHeader::parse(records).is_ok_and(|header| header.codec() == ZSTD)
        {
            return Err(Condition::UnsupportedCompressionType);
        }
        let recompressed =
            recompressed(records, &rules, &mut summary).map_err(|error| error.condition())?;
        // Stamping needs bytes of our own; the frame is shared with the decoded request.
        scratch.clear();
        scratch.extend_from_slice(recompressed.as_deref().unwrap_or(records));
        stamp_append_time(scratch, &summary).map_err(|error| error.condition())?;
        if let Some(append_time_ms) = summary.append_time_ms {
            self.beside.append_time_ms.store(append_time_ms, Ordering::Relaxed);
        }
        let mut after = Aftermath::default();
        let pending = (acks != Acks::None).then(|| (self.pending.clone(), self.index));
        let result =
            hosted.produce(node.now(), acks, summary.offsets, scratch, pending, &mut after);
        after.settle(&hosted, &**node, flush);
        match result {
            AppendResult::Refused => Err(Condition::NotLeaderOrFollower),
            AppendResult::Handed | AppendResult::Silent => Ok(hosted),
        }
    }

    /// Why the batch is refused. If some of its records are to blame, the client is told which; a timestamp is named before a
    /// missing key, as in Kafka.
    fn refused(
        &self,
        error: BatchError,
        records: &[u8],
        rules: &ProduceRules,
        now_ms: i64,
    ) -> Condition {
        if !error.is_of_records() || self.version < RECORD_ERRORS_VERSION {
            return error.condition();
        }
        let left = self.record_errors_left.get();
        let refused = refused_records(records, rules, now_ms, left);
        self.record_errors_left.set(left - refused.len());
        let timestamp = refused.iter().find(|r| matches!(r.1, BatchError::Timestamp { .. }));
        let told = timestamp.map_or(error, |(_, error)| *error);
        let _ = self.beside.refused.set(refused);
        told.condition()
    }
}

/// Counts a produce that came to nothing here; `tried`: its partition was looked for, and has counted it if it is here.
fn refused_here(node: &Node, at: &Place<'_>, tried: bool) {
    let hosted = node.partitions.get(at.name, at.partition);
    let counted = tried && hosted.is_some();
    let traffic = hosted.as_ref().map_or(&node.figures.strays, |hosted| &hosted.traffic);
    if !counted {
        traffic.produce_asked();
    }
    traffic.produce_failed();
}

/// The replica here, or why there is none.
pub(super) fn find(node: &Node, topic: &str, partition: i32) -> Result<Arc<Hosted>, Condition> {
    if let Some(hosted) = node.partitions.get(topic, partition) {
        return Ok(hosted);
    }
    let known = barnabas_types::TopicName::new(topic).ok().and_then(|name| {
        node.view.image().topics.get(&name).map(|t| t.partitions.contains_key(&partition))
    });
    match known {
        Some(true) => Err(Condition::NotLeaderOrFollower),
        Some(false) | None => Err(Condition::UnknownTopicOrPartition),
    }
}

/// Makes the answer from the results; names and indexes are copied so that the frame can go.
fn encoder(
    context: &RequestContext<'_>,
    request: &ProduceRequest,
    besides: Besides,
) -> EncodeProduce {
    let topics: Vec<(String, Vec<i32>)> = request
        .topic_data
        .iter()
        .map(|t| (owned(&t.name), t.partition_data.iter().map(|p| p.index).collect()))
        .collect();
    let (correlation_id, version) = (context.correlation_id, context.version);
    let (out, view, me) = (context.out.clone(), context.node.view.clone(), context.node.me);
    let (node, alone) = (context.node.clone(), request.acks != -1);
    let hint = move |topic: &str, index, result: Option<&ProduceResult>| {
        let Some(Err(condition)) = result else { return None };
        let wanted = version >= LEADER_HINT_VERSION && leader_hints::helps(condition);
        let topic = TopicName::new(topic).ok().filter(|_| wanted)?;
        leader_hints::leader_in(&view, me, &topic, index)
    };
    let view = context.node.view.clone();
    let deposed = Err(Condition::NotLeaderOrFollower);
    Box::new(move |results| {
        // The process may have stood still since the append: the record may be lost by now, and is not acknowledged.
        let doubtful = alone && node.pulse.is_doubtful(since_boot());
        let mut results = results.iter().zip(besides.iter());
        let mut response = ProduceResponse::default();
        let mut hinted = Vec::new();
        for (name, partitions) in &topics {
            let mut topic = TopicProduceResponse::default();
            topic.name = StrBytes::from(name.as_str());
            for index in partitions {
                let Some((result, beside)) = results.next() else { break };
                let result = result.as_ref().map(|result| match result {
                    Ok(_) if doubtful => &deposed,
                    told => told,
                });
                let mut entry = partition_response(*index, result, beside, version);
                if let Some((leader, epoch)) = hint(name, *index, result) {
                    tell_leader(&mut entry, leader, epoch);
                    hinted.push(leader);
                }
                topic.partition_responses.push(entry);
            }
            response.responses.push(topic);
        }
        response.node_endpoints = endpoints(&view, hinted);
        match reply(correlation_id, version, &response) {
            Ok(bytes) => vec![bytes],
            Err(error) => {
                tracing::error!(target: "request", %error, "a produce answer could not be encoded; the connection is closed");
                out.close();
                Vec::new()
            }
        }
    })
}

fn tell_leader(entry: &mut PartitionProduceResponse, leader: BrokerId, epoch: LeaderEpoch) {
    entry.current_leader.leader_id = leader.0;
    entry.current_leader.leader_epoch = epoch.0;
}

fn endpoints(view: &View, hinted: Vec<BrokerId>) -> Vec<NodeEndpoint> {
    let told = leader_hints::endpoints(view, hinted.into_iter()).into_iter().map(|node| {
        let mut endpoint = NodeEndpoint::default();
        endpoint.node_id = node.broker.0;
        endpoint.host = StrBytes::from(node.host);
        endpoint.port = node.port;
        endpoint.rack = node.rack.map(StrBytes::from);
        endpoint
    });
    told.collect()
}

fn partition_response(
    index: i32,
    result: Option<&ProduceResult>,
    beside: &Beside,
    version: i16,
) -> PartitionProduceResponse {
    let mut partition = PartitionProduceResponse::default();
    partition.index = index;
    partition.log_append_time_ms = -1;
    match result {
        Some(Ok((base, log_start))) => {
            partition.base_offset = base.0;
            partition.log_append_time_ms = beside.append_time_ms.load(Ordering::Relaxed);
            if version >= 5 {
                partition.log_start_offset = log_start.0;
            }
        }
        Some(Err(condition)) => {
            partition.error_code = error_code(condition);
            partition.base_offset = -1;
            if version >= RECORD_ERRORS_VERSION {
                partition.error_message = Some(StrBytes::from(condition.to_string()));
                let refused = beside.refused.get().into_iter().flatten();
                partition.record_errors = refused.map(record_error).collect();
            }
        }
        None => partition.error_code = -1,
    }
    partition
}

fn record_error((number, error): &(i32, BatchError)) -> BatchIndexAndErrorMessage {
    let mut entry = BatchIndexAndErrorMessage::default();
    entry.batch_index = *number;
    // What the bounds are is said once, for the batch.
    let text = match error {
        BatchError::Timestamp { found, .. } => {
            StrBytes::from(format!("timestamp {found} is out of bounds"))
        }
        _ => StrBytes::from("it has no key, and the topic is compacted"),
    };
    entry.batch_index_error_message = Some(text);
    entry
}

#[cfg(test)]
#[path = "produce_tests.rs"]
mod tests;
