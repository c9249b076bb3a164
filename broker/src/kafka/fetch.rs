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

/// Largest answer, in bytes of records, whatever the client asks for: what one slow reader can hold in memory.
const RESPONSE_BYTES_MAX: usize = 8 << 20;

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

#[cfg(test)]
mod tests {
    use barnabas_replica::{FetchPosition, FollowerFetch};
    use barnabas_types::{Acks, BrokerEpoch, BrokerId};
    use barnabas_wire::messages::StrBytes;
    use barnabas_wire::messages::fetch_request::FetchTopic;

    use super::*;
    use crate::connection::Out;
    use crate::partition::{Aftermath, Flush, Hosted};
    use crate::testing::{Disk, LIFE, connection, node, produce, push, state, tp};

    /// Broker 1 leads `t-0` in epoch 1; broker 2 is in the ISR.
    struct Rig {
        node: Arc<Node>,
        hosted: Arc<Hosted>,
        out: Arc<Out>,
        _disk: Disk,
        _client: tokio::net::TcpStream,
    }

    impl Rig {
        async fn new() -> Self {
            let (node, disk) = (node(), Disk::new());
            let hosted = disk.host(&node, tp("t", 0));
            state(&node, &hosted, push(1, 1, &[1, 2]));
            let (out, client) = connection().await;
            Self { node, hosted, out, _disk: disk, _client: client }
        }

        fn ask(&self, request: FetchRequest) -> Handled {
            let context = RequestContext {
                node: &self.node,
                out: &self.out,
                slot: self.out.reserve(),
                version: 11,
                correlation_id: 1,
            };
            handle(&context, request).unwrap()
        }

        /// One record more in the log, not committed.
        fn write(&self, sequence: i32) {
            produce(&self.node, &self.hosted, Acks::None, sequence, None);
        }

        fn commit(&self, log_end: i64) {
            let position = FetchPosition {
                incarnation: LIFE,
                broker_epoch: BrokerEpoch(102),
                leader_epoch: LeaderEpoch(1),
                last_epoch: Some(LeaderEpoch(1)),
                log_end: Offset(log_end),
                flushed: Offset(log_end),
                log_start: Offset(0),
            };
            let fetch = FollowerFetch { follower: BrokerId(2), position };
            let mut after = Aftermath::default();
            self.hosted.follower_fetch(self.node.now(), fetch, &mut after);
            after.settle(&self.hosted, &*self.node, &mut Flush::default());
        }

        fn found(&self, request: &FetchRequest) -> (i16, usize) {
            let found = read(&self.node, request);
            (found.topics[0].1[0].error_code, found.bytes)
        }
    }

    fn request(from: i64) -> FetchRequest {
        let mut partition = FetchPartition::default();
        partition.partition = 0;
        partition.fetch_offset = from;
        partition.current_leader_epoch = -1;
        partition.partition_max_bytes = 1 << 20;
        let mut topic = FetchTopic::default();
        topic.topic = StrBytes::from("t");
        topic.partitions.push(partition);
        let mut request = FetchRequest::default();
        request.replica_id = -1;
        request.max_wait_ms = 60_000;
        request.min_bytes = 1;
        request.max_bytes = 1 << 20;
        request.session_id = 0;
        request.session_epoch = -1;
        request.topics.push(topic);
        request
    }

    #[tokio::test]
    async fn a_fetch_waits_until_records_are_committed() {
        let rig = Rig::new().await;
        let Handled::Fetch(mut waiting) = rig.ask(request(0)) else { panic!("it waits") };
        rig.write(0);
        assert!(!waiting.parked.is_fired(), "written is not committed");
        rig.commit(1);
        assert!(waiting.parked.is_fired());
        rig.out.woken().await;
        assert!(waiting.answer(&rig.node, false).unwrap().is_some());
        assert!(matches!(rig.ask(request(0)), Handled::Answered(_)), "there is something now");
    }

    #[tokio::test]
    async fn a_change_of_role_ends_the_wait() {
        let rig = Rig::new().await;
        let Handled::Fetch(mut waiting) = rig.ask(request(0)) else { panic!("it waits") };
        state(&rig.node, &rig.hosted, push(2, 2, &[1, 2]));
        assert!(waiting.parked.is_fired());
        assert!(waiting.answer(&rig.node, false).unwrap().is_some());
    }

    #[tokio::test]
    async fn too_few_bytes_renew_the_wait_and_its_end_gives_them() {
        let rig = Rig::new().await;
        let mut asked = request(0);
        asked.min_bytes = 1 << 16;
        let Handled::Fetch(mut waiting) = rig.ask(asked) else { panic!("it waits") };
        rig.write(0);
        rig.commit(1);
        assert!(!waiting.parked.is_fired());
        waiting.parked.fire();
        assert!(waiting.answer(&rig.node, false).unwrap().is_none());
        assert!(!waiting.parked.is_fired(), "parked anew");
        assert!(waiting.answer(&rig.node, true).unwrap().is_some());
    }

    #[tokio::test]
    async fn a_client_that_waits_for_nothing_is_answered_at_once() {
        let rig = Rig::new().await;
        for change in [
            |r: &mut FetchRequest| r.min_bytes = 0,
            |r: &mut FetchRequest| r.max_wait_ms = 0,
            |r: &mut FetchRequest| r.max_wait_ms = -1,
            |r: &mut FetchRequest| r.topics.clear(),
        ] {
            let mut asked = request(0);
            change(&mut asked);
            assert!(matches!(rig.ask(asked), Handled::Answered(_)));
        }
    }

    #[tokio::test]
    async fn limits_below_one_batch_give_one_batch() {
        let rig = Rig::new().await;
        rig.write(0);
        rig.write(1);
        rig.commit(2);
        let (code, both) = rig.found(&request(0));
        assert_eq!(code, 0);
        let mut narrow = request(0);
        narrow.topics[0].partitions[0].partition_max_bytes = 0;
        assert_eq!(rig.found(&narrow), (0, both / 2));
        let mut narrow = request(0);
        narrow.max_bytes = -1;
        assert_eq!(rig.found(&narrow), (0, both / 2));
    }

    #[tokio::test]
    async fn errors_are_kafkas_and_end_the_wait() {
        let rig = Rig::new().await;
        rig.write(0);
        // Between HW and LEO there is nothing to read, and nothing wrong.
        assert_eq!(rig.found(&request(1)), (0, 0));
        type Change = fn(&mut FetchRequest);
        let changes: [(Change, i16); 5] = [
            (|r| r.topics[0].partitions[0].fetch_offset = 2, 1),
            (|r| r.topics[0].partitions[0].partition = 7, 3),
            (|r| r.topics[0].partitions[0].current_leader_epoch = 0, 74),
            (|r| r.topics[0].partitions[0].current_leader_epoch = 2, 75),
            (|r| r.replica_id = 2, 29),
        ];
        for (change, code) in changes {
            let mut asked = request(0);
            change(&mut asked);
            assert_eq!(rig.found(&asked), (code, 0));
            assert!(matches!(rig.ask(asked), Handled::Answered(_)));
        }
    }
}
