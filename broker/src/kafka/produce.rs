//! Produce (key 0), versions 3 to 11: KIP-98 (3), KIP-110 (zstd, from 7), KIP-467 (8), flexible (9), KIP-951 (who leads
//! instead, from 10). Batches stay opaque beyond their headers.
//!
//! Answered by whoever finishes the last partition: this connection (acks=1, errors) or the one whose follower moved the
//! high watermark (acks=all). acks=0 has no answer; an error there closes the connection, as in Kafka, so that the
//! client refreshes its metadata.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use barnabas_log::{BatchHeader, stamp_append_time, validate_produce};
use barnabas_types::{Acks, BrokerId, Condition, LeaderEpoch, TopicName};
use barnabas_wire::messages::produce_response::{
    BatchIndexAndErrorMessage, NodeEndpoint, PartitionProduceResponse, TopicProduceResponse,
};
use barnabas_wire::messages::{ProduceRequest, ProduceResponse, StrBytes};
use barnabas_wire::reply;
use bytes::{Bytes, BytesMut};
use tokio::time::Instant;

use super::{Handled, RequestContext, error_code, leader_hints, owned};
use crate::clock::unix_ms;
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
    let append_times: AppendTimes = (0..partitions).map(|_| AtomicI64::new(-1)).collect();
    let encode = encoder(context, request, append_times.clone());
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
                append_time: &append_times[index],
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

/// When the leader stamped the batch of each partition of a request (LogAppendTime), ms; -1 if it did not.
type AppendTimes = Arc<[AtomicI64]>;

/// One partition of a request.
struct Place<'a> {
    pending: &'a Arc<PendingProduce>,
    append_time: &'a AtomicI64,
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
        if hosted.topic_partition.topic.is_internal() {
            let name = self.name;
            let text =
                format!("the brokers keep their own state in '{name}': clients do not write it");
            return Err(Condition::InvalidTopic(text));
        }
        let records =
            records.filter(|r| !r.is_empty()).ok_or(Condition::InvalidRecord("no record batch"))?;
        let summary = validate_produce(records, &hosted.produce_rules(), unix_ms())
            .map_err(|error| error.condition())?;
        if self.version < ZSTD_VERSION
            && BatchHeader::parse(records).is_ok_and(|header| header.codec() == ZSTD)
        {
            return Err(Condition::UnsupportedCompressionType);
        }
        // Stamping needs bytes of our own; the frame is shared with the decoded request.
        scratch.clear();
        scratch.extend_from_slice(records);
        stamp_append_time(scratch, &summary).map_err(|error| error.condition())?;
        if let Some(append_time_ms) = summary.append_time_ms {
            self.append_time.store(append_time_ms, Ordering::Relaxed);
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
    append_times: AppendTimes,
) -> EncodeProduce {
    let topics: Vec<(String, Vec<i32>)> = request
        .topic_data
        .iter()
        .map(|t| (owned(&t.name), t.partition_data.iter().map(|p| p.index).collect()))
        .collect();
    let (correlation_id, version) = (context.correlation_id, context.version);
    let (out, view, me) = (context.out.clone(), context.node.view.clone(), context.node.me);
    let hint = move |topic: &str, index, result: Option<&ProduceResult>| {
        let Some(Err(condition)) = result else { return None };
        let wanted = version >= LEADER_HINT_VERSION && leader_hints::helps(condition);
        let topic = TopicName::new(topic).ok().filter(|_| wanted)?;
        leader_hints::leader_in(&view, me, &topic, index)
    };
    let view = context.node.view.clone();
    Box::new(move |results| {
        let mut results = results.iter().zip(append_times.iter());
        let mut response = ProduceResponse::default();
        let mut hinted = Vec::new();
        for (name, partitions) in &topics {
            let mut topic = TopicProduceResponse::default();
            topic.name = StrBytes::from(name.as_str());
            for index in partitions {
                let (result, append_time) = results.next().unzip();
                let result = result.and_then(Option::as_ref);
                let append_time_ms = append_time.map_or(-1, |time| time.load(Ordering::Relaxed));
                let mut entry = partition_response(*index, result, append_time_ms, version);
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
    append_time_ms: i64,
    version: i16,
) -> PartitionProduceResponse {
    let mut partition = PartitionProduceResponse::default();
    partition.index = index;
    partition.log_append_time_ms = -1;
    match result {
        Some(Ok((base, log_start))) => {
            partition.base_offset = base.0;
            partition.log_append_time_ms = append_time_ms;
            if version >= 5 {
                partition.log_start_offset = log_start.0;
            }
        }
        Some(Err(condition)) => {
            partition.error_code = error_code(condition);
            partition.base_offset = -1;
            if version >= 8 {
                partition.error_message = Some(StrBytes::from(condition.to_string()));
                if let Condition::InvalidRecord(_) | Condition::InvalidTimestamp { .. } = condition
                {
                    partition.record_errors.push(BatchIndexAndErrorMessage::default());
                }
            }
        }
        None => partition.error_code = -1,
    }
    partition
}

#[cfg(test)]
mod tests {
    use super::*;
    use barnabas_types::Offset;
    use barnabas_wire::messages::produce_request::{PartitionProduceData, TopicProduceData};

    fn answer(
        version: i16,
        result: &ProduceResult,
        append_time_ms: i64,
    ) -> PartitionProduceResponse {
        let mut topic = TopicProduceResponse::default();
        topic.name = "t".into();
        topic.partition_responses.push(partition_response(
            3,
            Some(result),
            append_time_ms,
            version,
        ));
        let mut response = ProduceResponse::default();
        response.responses.push(topic);
        reply(1, version, &response).unwrap_or_else(|error| panic!("{error}"));
        response.responses[0].partition_responses[0].clone()
    }

    #[test]
    fn every_answer_can_be_written_at_every_version() {
        for version in 3..=11 {
            let stamped = answer(version, &Ok((Offset(5), Offset(2))), 77);
            assert_eq!((stamped.error_code, stamped.base_offset), (0, 5));
            assert_eq!(stamped.log_append_time_ms, 77, "the leader's time, if it stamped");
            assert_eq!(answer(version, &Ok((Offset(5), Offset(2))), -1).log_append_time_ms, -1);
        }
    }

    #[test]
    fn d10_a_timestamp_out_of_bounds_has_kafkas_code_and_says_the_bounds() {
        let refused = Condition::InvalidTimestamp { timestamp: 9, least: 1, most: 5 };
        for version in 3..=11 {
            let refused = answer(version, &Err(refused.clone()), 77);
            assert_eq!((refused.error_code, refused.log_append_time_ms), (32, -1));
            assert_eq!(refused.record_errors.len(), usize::from(version >= 8));
            if version >= 8 {
                assert!(refused.error_message.unwrap().as_str().contains("[1, 5]"));
            }
        }
    }

    #[tokio::test]
    async fn h2_clients_do_not_write_to_internal_topics() {
        let (node, disk) = (crate::testing::node(), crate::testing::Disk::new());
        let (out, mut client) = crate::testing::connection().await;
        for name in ["__consumer_offsets", "__transaction_state", "t"] {
            let hosted = disk.host(&node, crate::testing::tp(name, 0));
            crate::testing::state(&node, &hosted, crate::testing::push(1, 1, &[1]));
            let mut topic = TopicProduceData::default();
            topic.name = name.into();
            let mut partition = PartitionProduceData::default();
            partition.records = Some(crate::testing::batch(0).into());
            topic.partition_data.push(partition);
            let mut request = ProduceRequest::default();
            request.acks = 1;
            request.topic_data.push(topic);
            let slot = out.reserve();
            let context = RequestContext {
                node: &node,
                out: &out,
                slot,
                version: 3,
                correlation_id: 1,
                client_id: Some("__admin_client"),
                frame: &bytes::Bytes::new(),
            };
            handle(&context, &request, &mut Flush::default()).unwrap();
            let mut answer = vec![0; 4 + 4 + 4 + 2 + name.len() + 4 + 4 + 2 + 8 + 8 + 4];
            tokio::io::AsyncReadExt::read_exact(&mut client, &mut answer).await.unwrap();
            let at = 4 + 4 + 4 + 2 + name.len() + 4 + 4;
            let code = i16::from_be_bytes([answer[at], answer[at + 1]]);
            let written = hosted.with_log(|log| log.log_end());
            assert_eq!((code, written), if name == "t" { (0, Offset(1)) } else { (17, Offset(0)) });
        }
    }

    #[tokio::test]
    async fn e6_a_refused_produce_with_acks_0_writes_nothing_and_closes() {
        let node = crate::testing::node();
        let (out, client) = crate::testing::connection().await;
        let mut data = TopicProduceData::default();
        data.name = "absent".into();
        data.partition_data.push(PartitionProduceData::default());
        let mut request = ProduceRequest::default();
        request.topic_data.push(data);
        for (acks, correlation_id) in [(0, 1), (1, 2)] {
            request.acks = acks;
            let slot = out.reserve();
            let context = RequestContext {
                node: &node,
                out: &out,
                slot,
                version: 8,
                correlation_id,
                client_id: None,
                frame: &bytes::Bytes::new(),
            };
            let mut flush = Flush::default();
            let handled = handle(&context, &request, &mut flush);
            assert_eq!(handled.is_err(), acks == 0, "an error closes the connection");
            flush.run();
            if acks == 0 {
                out.complete(slot, Vec::new());
            }
        }
        client.readable().await.unwrap();
        let mut head = [0; 8];
        assert_eq!(client.try_read(&mut head).unwrap(), head.len());
        assert_eq!(head[4..], 2_i32.to_be_bytes(), "the only answer is the second request's");
    }
}
