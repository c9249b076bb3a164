//! Fetch (key 1), versions 4 to 12: KIP-74 (at least one batch), KIP-227 (sessions: answered in full, id 0), KIP-320
//! (leader epochs), KIP-392 (rack ignored), KIP-595 (leader hints in version 12). Consumers see records below the HW.
//!
//! A fetch that finds less than `min_bytes` parks itself on its partitions; an append that makes it due wakes the
//! connection, which then reads again. There is no polling.

use std::sync::Arc;
use std::time::Duration;

use barnabas_log::ReadRange;
use barnabas_types::{Condition, LeaderEpoch, Offset, TopicName};
use barnabas_wire::messages::FetchRequest;
use barnabas_wire::messages::fetch_request::FetchPartition;
use barnabas_wire::{FetchReply, FetchReplyPartition, FetchReplyTopic, Records};
use bytes::Bytes;
use tokio::time::Instant;

use super::error_codes::{CLUSTER_AUTHORIZATION_FAILED, FETCH_SESSION_ID_NOT_FOUND};
use super::produce::find;
use super::{Handled, RequestContext, error_code};
use crate::connection::Slot;
use crate::connection::replica_session::splice;
use crate::connection::serve::WAIT_MAX;
use crate::node::Node;
use crate::partition::ParkedFetch;

/// Largest answer, in bytes of records, whatever the client asks for.
const RESPONSE_BYTES_MAX: usize = 50 << 20;

/// A fetch that waits for bytes.
pub(crate) struct WaitingFetch {
    /// Its place among the answers.
    pub slot: Slot,
    /// When it is answered with what there is.
    pub deadline: Instant,
    /// What partitions touch.
    pub parked: Arc<ParkedFetch>,
    request: FetchRequest,
    version: i16,
    correlation_id: i32,
}

pub(super) fn handle(
    context: &RequestContext<'_>,
    request: FetchRequest,
) -> Result<Handled, String> {
    let (node, version, correlation_id) = (context.node, context.version, context.correlation_id);
    if request.session_id != 0 && request.session_epoch > 0 {
        let reply = FetchReply { error_code: FETCH_SESSION_ID_NOT_FOUND, ..FetchReply::default() };
        return Ok(Handled::Answered(finish(&reply, correlation_id, version, &[])?));
    }
    let first = read(node, &request);
    let wait = Duration::from_millis(u64::try_from(request.max_wait_ms).unwrap_or(0));
    if first.is_due(&request) || wait.is_zero() {
        return Ok(Handled::Answered(first.encode(correlation_id, version)?));
    }
    let fetch = WaitingFetch {
        slot: context.slot,
        deadline: Instant::now() + wait.min(WAIT_MAX),
        parked: Arc::new(ParkedFetch::new(context.out.clone(), min_bytes(&request), 0)),
        request,
        version,
        correlation_id,
    };
    fetch.park(node);
    // What came between the first look and the parking woke nobody, so look once more.
    match fetch.again(node, false)? {
        Some(answer) => {
            fetch.parked.cancel();
            Ok(Handled::Answered(answer))
        }
        None => Ok(Handled::Fetch(fetch)),
    }
}

impl WaitingFetch {
    /// The answer, if the fetch is due now (or `late`); otherwise it is parked anew.
    pub(crate) fn answer(
        &mut self,
        node: &Arc<Node>,
        late: bool,
    ) -> Result<Option<Vec<Bytes>>, String> {
        if let Some(answer) = self.again(node, late)? {
            return Ok(Some(answer));
        }
        self.parked = Arc::new(self.parked.renewed(min_bytes(&self.request)));
        self.park(node);
        self.again(node, false)
    }

    fn again(&self, node: &Arc<Node>, late: bool) -> Result<Option<Vec<Bytes>>, String> {
        let found = read(node, &self.request);
        if late || found.is_due(&self.request) {
            return found.encode(self.correlation_id, self.version).map(Some);
        }
        self.parked.gathered(found.bytes);
        Ok(None)
    }

    fn park(&self, node: &Arc<Node>) {
        for topic in &self.request.topics {
            for partition in &topic.partitions {
                if let Some(hosted) = node.partitions.get(topic.topic.as_str(), partition.partition)
                {
                    hosted.park(&self.parked);
                }
            }
        }
    }
}

/// 0: the client waits for nothing.
fn min_bytes(request: &FetchRequest) -> usize {
    usize::try_from(request.min_bytes).unwrap_or(0)
}

/// What one look at all partitions found.
struct Found {
    topics: Vec<(String, Vec<FetchReplyPartition>)>,
    ranges: Vec<ReadRange>,
    bytes: usize,
    urgent: bool,
}

fn read(node: &Arc<Node>, request: &FetchRequest) -> Found {
    let mut budget = usize::try_from(request.max_bytes).unwrap_or(0).clamp(1, RESPONSE_BYTES_MAX);
    let mut found = Found { topics: Vec::new(), ranges: Vec::new(), bytes: 0, urgent: false };
    for topic in &request.topics {
        let name = topic.topic.as_str();
        let mut partitions = Vec::with_capacity(topic.partitions.len());
        for asked in &topic.partitions {
            let reply = found.partition(node, name, asked, request.replica_id, budget);
            if let Records::Segment { len, .. } = reply.records {
                budget = budget.saturating_sub(len);
            }
            partitions.push(reply);
        }
        found.topics.push((name.to_owned(), partitions));
    }
    found
}

impl Found {
    fn is_due(&self, request: &FetchRequest) -> bool {
        self.urgent || self.topics.is_empty() || self.bytes >= min_bytes(request)
    }

    fn partition(
        &mut self,
        node: &Arc<Node>,
        name: &str,
        asked: &FetchPartition,
        replica_id: i32,
        budget: usize,
    ) -> FetchReplyPartition {
        let index = asked.partition;
        if replica_id >= 0 {
            // Followers use the request between brokers; a client that claims to be one is refused (KIP-98 words: 29).
            self.urgent = true;
            return FetchReplyPartition::error(index, CLUSTER_AUTHORIZATION_FAILED);
        }
        let epoch =
            (asked.current_leader_epoch >= 0).then_some(LeaderEpoch(asked.current_leader_epoch));
        let mut max_bytes = usize::try_from(asked.partition_max_bytes).unwrap_or(0).min(budget);
        if self.bytes == 0 {
            // KIP-74: whatever the limits, the first partition with records gives a batch, or the client never moves on.
            max_bytes = max_bytes.max(1);
        }
        let read = find(node, name, index).and_then(|hosted| {
            hosted.read_for_consumer(Offset(asked.fetch_offset), epoch, max_bytes)
        });
        match read {
            Ok(slice) => {
                let mut reply = FetchReplyPartition::error(index, 0);
                reply.high_watermark = slice.view.high_watermark.0;
                reply.last_stable_offset = slice.view.high_watermark.0;
                reply.log_start_offset = slice.view.log_start.0;
                if let Some(range) =
                    slice.range.filter(|range| range.len <= budget || self.bytes == 0)
                {
                    self.bytes += range.len;
                    reply.records = Records::Segment { slot: self.ranges.len(), len: range.len };
                    self.ranges.push(range);
                }
                reply
            }
            Err(condition) => {
                self.urgent = true;
                let mut reply = FetchReplyPartition::error(index, error_code(&condition));
                reply.current_leader = hint(node, name, index, &condition);
                reply
            }
        }
    }

    /// Reads the ranges (no lock is held any more) and writes the answer. What cannot be read is an error of its partition,
    /// not of the others.
    fn encode(&self, correlation_id: i32, version: i16) -> Result<Vec<Bytes>, String> {
        let mut ranges = Vec::with_capacity(self.ranges.len());
        for range in &self.ranges {
            let mut bytes = Vec::new();
            ranges.push(range.read_into(&mut bytes).map(|()| Bytes::from(bytes)));
        }
        let readable = |name: &str, reply: &FetchReplyPartition| {
            let Records::Segment { slot, .. } = reply.records else { return *reply };
            let Some(Err(error)) = ranges.get(slot) else { return *reply };
            let partition = reply.index;
            tracing::error!(target: "request", topic = %name, partition, %error, "a log cannot be read");
            FetchReplyPartition::error(partition, error_code(&Condition::KafkaStorageError))
        };
        let topics = self
            .topics
            .iter()
            .map(|(name, partitions)| {
                let partitions = partitions.iter().map(|reply| readable(name, reply)).collect();
                FetchReplyTopic { name, partitions }
            })
            .collect();
        let ranges: Vec<Bytes> = ranges.into_iter().map(Result::unwrap_or_default).collect();
        let reply = FetchReply { throttle_time_ms: 0, error_code: 0, topics };
        finish(&reply, correlation_id, version, &ranges)
    }
}

fn finish(
    reply: &FetchReply<'_>,
    correlation_id: i32,
    version: i16,
    ranges: &[Bytes],
) -> Result<Vec<Bytes>, String> {
    let segments = reply.write(correlation_id, version).map_err(|error| error.to_string())?;
    Ok(splice(segments.parts, ranges))
}

/// Who leads instead, for answers that send the client elsewhere.
fn hint(
    node: &Node,
    name: &str,
    index: i32,
    condition: &Condition,
) -> Option<(barnabas_types::BrokerId, LeaderEpoch)> {
    if !matches!(condition, Condition::NotLeaderOrFollower | Condition::FencedLeaderEpoch { .. }) {
        return None;
    }
    let image = node.view.image();
    let state = &image.topics.get(&TopicName::new(name).ok()?)?.partitions.get(&index)?.state;
    state.leader.map(|leader| (leader, state.leader_epoch))
}
