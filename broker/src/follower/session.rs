//! One fetch session with a leader: names changed positions, applies what comes back.
//!
//! One request is normally in flight; when a partition is added or changes its epoch while the leader holds the request,
//! a second one is sent, which makes the leader answer the first at once. Every answer echoes the position that it
//! answers, and the replica core applies it only if it still stands there (R31).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use barnabas_log::{BatchError, Fetched, check_fetched};
use barnabas_replica::{FetchAnswer, FetchOutcome, FetchPosition};
use barnabas_types::{BrokerEpoch, Condition, Offset, TopicPartition};
use barnabas_wire::{
    IntroducedPartition, PartitionPosition, PositionEcho, ReplicaFetchOutcome,
    ReplicaFetchPartition, ReplicaFetchRequest, ReplicaFetchResponse, response_len,
};
use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::Instant;

use super::fetcher::Fetcher;
use crate::node::Node;
use crate::partition::{Aftermath, Flush, Hosted};

/// Requests on the way at once.
const IN_FLIGHT_MAX: usize = 2;
/// An answer later than the longest wait by this much means that the connection is dead.
const ANSWER_GRACE: Duration = Duration::from_secs(10);
/// First and longest wait before a refused partition is named again.
const REFUSED_RETRY_MS: (u64, u64) = (20, 500);
/// Room for heads beside the records in an answer.
const ANSWER_HEAD_BYTES_MAX: usize = 16 << 20;

/// Why a session ends.
#[derive(Debug, thiserror::Error)]
pub(super) enum SessionError {
    #[error("{0}")]
    Io(#[from] std::io::Error),
    #[error("the leader closed the connection")]
    Closed,
    #[error("no answer within {0:?}")]
    Silent(Duration),
    #[error("{0}")]
    Frame(#[from] barnabas_wire::FrameError),
    #[error("{0}")]
    Encode(#[from] barnabas_wire::ReplyError),
    #[error("the leader refuses the session with error {0}")]
    Refused(i16),
    #[error("this broker is not registered")]
    NotRegistered,
}

struct Session<'a> {
    fetcher: &'a Fetcher,
    node: &'a Arc<Node>,
    stream: TcpStream,
    buffer: BytesMut,
    broker_epoch: BrokerEpoch,
    indexes: BTreeMap<TopicPartition, u32>,
    members: Vec<Option<Member>>,
    free: Vec<u32>,
    /// Partitions to name in the next request.
    due: Vec<u32>,
    /// Refused ones: when to name them again.
    retries: BTreeMap<(Instant, u32), ()>,
    in_flight: usize,
    correlation_id: i32,
    full: bool,
}

struct Member {
    hosted: Arc<Hosted>,
    refusals: u32,
}

/// Runs until the fetcher has nothing to follow (`Ok`), must begin anew (`Ok`), or the connection fails.
pub(super) async fn run(
    fetcher: &Fetcher,
    node: &Arc<Node>,
    stream: TcpStream,
) -> Result<(), SessionError> {
    stream.set_nodelay(true)?;
    let broker_epoch = node.broker_epoch().ok_or(SessionError::NotRegistered)?;
    let mut session = Session {
        fetcher,
        node,
        stream,
        buffer: BytesMut::new(),
        broker_epoch,
        indexes: BTreeMap::new(),
        members: Vec::new(),
        free: Vec::new(),
        due: Vec::new(),
        retries: BTreeMap::new(),
        in_flight: 0,
        correlation_id: 0,
        full: true,
    };
    session.run().await
}

impl Session<'_> {
    async fn run(&mut self) -> Result<(), SessionError> {
        let wait = Duration::from_millis(u64::from(self.node.options.replica_fetch_wait_max_ms));
        let mut answered = Instant::now();
        loop {
            let (introduced, forgotten, over) = self.take_work();
            if over {
                return Ok(());
            }
            self.take_retries();
            let urgent = !self.due.is_empty() || !forgotten.is_empty();
            if self.in_flight == 0 || (urgent && self.in_flight < IN_FLIGHT_MAX) {
                let request = self.request(introduced, forgotten);
                self.correlation_id = self.correlation_id.wrapping_add(1);
                let frame = request.encode(self.correlation_id, "barnabas-follower")?;
                self.stream.write_all(&frame).await?;
                self.in_flight += 1;
                if self.in_flight == 1 {
                    answered = Instant::now();
                }
            }
            let silent_at = answered + wait + ANSWER_GRACE;
            let retry_at = self.retries.keys().next().map_or(silent_at, |(at, _)| *at);
            tokio::select! {
                read = self.stream.read_buf(&mut self.buffer) => {
                    if read? == 0 {
                        return Err(SessionError::Closed);
                    }
                    while let Some(frame) = self.take_frame()? {
                        self.in_flight = self.in_flight.saturating_sub(1);
                        answered = Instant::now();
                        self.apply(frame)?;
                    }
                }
                () = self.fetcher.wake.notified() => {}
                () = tokio::time::sleep_until(retry_at.min(silent_at)) => {
                    if Instant::now() >= silent_at {
                        return Err(SessionError::Silent(wait + ANSWER_GRACE));
                    }
                }
            }
        }
    }

    /// Takes what changed: new partitions, indexes to forget, and whether the session is over.
    fn take_work(&mut self) -> (Vec<IntroducedPartition>, Vec<u32>, bool) {
        let mut work = self.fetcher.work();
        if work.partitions.is_empty() || work.restart {
            return (Vec::new(), Vec::new(), true);
        }
        if self.in_flight >= IN_FLIGHT_MAX {
            return (Vec::new(), Vec::new(), false);
        }
        let mut forgotten = Vec::new();
        for tp in std::mem::take(&mut work.forgotten) {
            if let Some(index) = self.indexes.remove(&tp) {
                self.members[index as usize] = None;
                self.free.push(index);
                forgotten.push(index);
            }
        }
        let mut introduced = Vec::new();
        for tp in std::mem::take(&mut work.changed) {
            let Some(hosted) = work.partitions.get(&tp).cloned() else { continue };
            let known = self.indexes.get(&tp).copied();
            let same = known
                .and_then(|index| self.members[index as usize].as_ref())
                .is_some_and(|member| Arc::ptr_eq(&member.hosted, &hosted));
            let index = known.unwrap_or_else(|| {
                self.free.pop().unwrap_or_else(|| {
                    self.members.push(None);
                    u32::try_from(self.members.len() - 1).unwrap_or(u32::MAX)
                })
            });
            if !same {
                introduced.push(IntroducedPartition {
                    index,
                    topic: tp.topic.clone(),
                    partition: tp.partition,
                    incarnation: hosted.incarnation,
                });
                self.members[index as usize] = Some(Member { hosted, refusals: 0 });
                self.indexes.insert(tp, index);
            }
            self.due.push(index);
        }
        (introduced, forgotten, false)
    }

    fn take_retries(&mut self) {
        let now = Instant::now();
        while let Some((&(at, index), ())) = self.retries.first_key_value() {
            if at > now {
                return;
            }
            self.retries.pop_first();
            self.due.push(index);
        }
    }

    fn request(
        &mut self,
        introduced: Vec<IntroducedPartition>,
        forgotten: Vec<u32>,
    ) -> ReplicaFetchRequest {
        self.due.sort_unstable();
        self.due.dedup();
        let mut positions = Vec::with_capacity(self.due.len());
        for index in self.due.drain(..) {
            let Some(member) = self.members.get(index as usize).and_then(Option::as_ref) else {
                continue;
            };
            match member.hosted.fetch_position() {
                Some(position) if position.broker_epoch == self.broker_epoch => {
                    positions.push(PartitionPosition {
                        index,
                        leader_epoch: position.leader_epoch,
                        last_epoch: position.last_epoch,
                        log_end: position.log_end,
                        flushed: position.flushed,
                        log_start: position.log_start,
                    });
                }
                // Not following at this instant: the next role change names it again.
                _ => {}
            }
        }
        let options = &self.node.options;
        ReplicaFetchRequest {
            cluster_id: self.node.cluster_id.clone(),
            follower: self.node.me,
            broker_epoch: self.broker_epoch,
            max_wait_ms: i32::try_from(options.replica_fetch_wait_max_ms).unwrap_or(i32::MAX),
            min_bytes: 1,
            max_bytes: i32::try_from(options.replica_fetch_response_max_bytes).unwrap_or(i32::MAX),
            partition_max_bytes: i32::try_from(options.replica_fetch_max_bytes).unwrap_or(i32::MAX),
            full: std::mem::take(&mut self.full),
            forgotten,
            introduced,
            positions,
        }
    }

    fn take_frame(&mut self) -> Result<Option<Bytes>, SessionError> {
        let records = self.node.options.replica_fetch_response_max_bytes as usize;
        // One batch is sent whatever its size, so the largest batch counts too.
        let max = records + self.node.options.socket_request_max_bytes + ANSWER_HEAD_BYTES_MAX;
        let Some(len) = response_len(&self.buffer, max)? else { return Ok(None) };
        if self.buffer.len() < len {
            self.buffer.reserve((len - self.buffer.len()).min(1 << 20));
            return Ok(None);
        }
        Ok(Some(self.buffer.split_to(len).freeze()))
    }

    fn apply(&mut self, frame: Bytes) -> Result<(), SessionError> {
        let (_, response) = ReplicaFetchResponse::decode(&frame)?;
        if response.error_code != 0 {
            return Err(SessionError::Refused(response.error_code));
        }
        let mut flush = Flush::default();
        for partition in response.partitions {
            self.apply_one(partition, &mut flush);
        }
        Ok(())
    }

    fn apply_one(&mut self, told: ReplicaFetchPartition<Bytes>, flush: &mut Flush) {
        let index = told.index;
        let Some(member) = self.members.get_mut(index as usize).and_then(Option::as_mut) else {
            return;
        };
        let hosted = member.hosted.clone();
        if let ReplicaFetchOutcome::Refused { error_code } = told.outcome {
            let (first, longest) = REFUSED_RETRY_MS;
            let wait_ms = (first << member.refusals.min(6)).min(longest);
            member.refusals += 1;
            self.retries.insert((Instant::now() + Duration::from_millis(wait_ms), index), ());
            let (topic, partition) =
                (&hosted.topic_partition.topic, hosted.topic_partition.partition);
            let leader_epoch = told.echo.leader_epoch;
            tracing::debug!(target: "state_change", %topic, partition, %leader_epoch, error_code, "the leader refuses the fetch");
            return;
        }
        member.refusals = 0;
        self.due.push(index);
        let Some(asked) = self.asked(&hosted, &told.echo) else { return };
        match outcome(&told.outcome, asked.log_end) {
            Ok((outcome, records)) => {
                let answer = FetchAnswer { leader: self.fetcher.leader, asked, outcome };
                let mut after = Aftermath::default();
                hosted.fetch_answered(self.node.now(), answer, records, &mut after);
                after.settle(&hosted, &**self.node, flush);
            }
            Err(error) => {
                let (topic, partition) =
                    (&hosted.topic_partition.topic, hosted.topic_partition.partition);
                let leader_epoch = asked.leader_epoch;
                tracing::warn!(target: "state_change", %topic, partition, %leader_epoch, %error, "the leader sent damaged records; they are asked for again");
            }
        }
    }

    /// The position that the answer names, in the core's words; `None` if it speaks of another incarnation.
    fn asked(&self, hosted: &Hosted, echo: &PositionEcho) -> Option<FetchPosition> {
        let present = hosted.fetch_position()?;
        (hosted.incarnation.czxid == echo.czxid).then_some(FetchPosition {
            incarnation: hosted.incarnation,
            broker_epoch: self.broker_epoch,
            leader_epoch: echo.leader_epoch,
            last_epoch: echo.last_epoch,
            log_end: echo.log_end,
            flushed: present.flushed,
            log_start: present.log_start,
        })
    }
}

/// Into the core's words: where the records end, and which epochs they carry.
fn outcome(
    told: &ReplicaFetchOutcome<Bytes>,
    from: Offset,
) -> Result<(FetchOutcome, Option<Fetched<'_>>), BatchError> {
    Ok(match told {
        ReplicaFetchOutcome::Records { high_watermark, log_start, records } => {
            let fetched = if records.is_empty() { None } else { Some(check_fetched(records)?) };
            let outcome = FetchOutcome::Records {
                end: fetched.as_ref().map_or(from, Fetched::end),
                epochs: fetched.as_ref().map_or_else(Vec::new, |f| f.epochs().to_vec()),
                high_watermark: *high_watermark,
                log_start: *log_start,
            };
            (outcome, fetched)
        }
        ReplicaFetchOutcome::Diverging { epoch, end } => {
            (FetchOutcome::Diverging { epoch: *epoch, end: *end }, None)
        }
        ReplicaFetchOutcome::Reset { log_start } => {
            (FetchOutcome::Reset { log_start: *log_start }, None)
        }
        ReplicaFetchOutcome::Refused { .. } => {
            (FetchOutcome::Refused(Condition::NotLeaderOrFollower), None)
        }
    })
}
