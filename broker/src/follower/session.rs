//! One fetch session with a leader: names changed positions, applies what comes back.
//!
//! One request is normally in flight; when a partition is added, changes its epoch or was flushed in sync mode while the
//! leader holds the request, a second one is sent, which makes the leader answer the first at once. Every answer echoes the position that it
//! answers, and the replica core applies it only if it still stands there (R31).

use std::collections::{BTreeMap, BTreeSet, VecDeque};
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
use crate::connection;
use crate::node::Node;
use crate::partition::{Aftermath, Flush, Hosted};

/// Requests on the way at once.
const IN_FLIGHT_MAX: usize = 2;
/// Nothing of an answer for so long after the longest wait means that the connection is dead. Far below the lag for which a follower
/// leaves the ISR, and below what TCP doubles its patience to after a cut; above any pause of a leader that is only busy.
const ANSWER_GRACE: Duration = Duration::from_secs(4);
/// First and longest wait before a refused partition is named again.
const REFUSED_RETRY_MS: (u64, u64) = (20, 500);
/// Longest wait before a replica with a limit is looked at again: the limit may have changed.
const PACED_RETRY_MAX: Duration = Duration::from_millis(500);
/// Partitions of one kind (forgotten, introduced, named) in one request: a frame stays well below the leader's limit
/// of 4 MiB, also with names of the greatest length. The rest follows in the next request.
const PARTITIONS_PER_REQUEST_MAX: usize = 8_000;
/// How long the leader may leave a request unread.
const SEND_DEADLINE: Duration = Duration::from_secs(10);
/// Look-ahead beyond the answer under way.
const LOOK_AHEAD_BYTES: usize = 4 << 10;
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
    /// Forgotten indexes with the number of requests sent before: an answer to one of those may still speak of the old
    /// partition, so the index is not given again before all of them are answered.
    resting: VecDeque<(u64, u32)>,
    /// Partitions to name in the next request.
    due: BTreeSet<u32>,
    /// Refused ones: when to name them again. At most one entry a member.
    retries: BTreeSet<(Instant, u32)>,
    /// When those outside the ISR are named again.
    outsiders_at: Instant,
    /// Requests sent and answered in this session; answers come in order.
    sent: u64,
    answered: u64,
    correlation_id: i32,
    full: bool,
}

struct Member {
    hosted: Arc<Hosted>,
    refusals: u32,
    /// Its entry among the retries.
    retry_at: Option<Instant>,
}

/// Runs until the fetcher has nothing to follow (`Ok`), must begin anew (`Ok`), or the connection fails.
pub(super) async fn run(
    fetcher: &Fetcher,
    node: &Arc<Node>,
    stream: TcpStream,
) -> Result<(), SessionError> {
    connection::prepare(&stream)?;
    let broker_epoch = node.broker_epoch().ok_or(SessionError::NotRegistered)?;
    Session::new(fetcher, node, stream, broker_epoch).run().await
}

impl<'a> Session<'a> {
    fn new(
        fetcher: &'a Fetcher,
        node: &'a Arc<Node>,
        stream: TcpStream,
        broker_epoch: BrokerEpoch,
    ) -> Self {
        Self {
            fetcher,
            node,
            stream,
            buffer: BytesMut::with_capacity(LOOK_AHEAD_BYTES),
            broker_epoch,
            indexes: BTreeMap::new(),
            members: Vec::new(),
            free: Vec::new(),
            resting: VecDeque::new(),
            due: BTreeSet::new(),
            retries: BTreeSet::new(),
            outsiders_at: Instant::now(),
            sent: 0,
            answered: 0,
            correlation_id: 0,
            full: true,
        }
    }

    async fn run(&mut self) -> Result<(), SessionError> {
        let wait = Duration::from_millis(u64::from(self.node.options.replica_fetch_wait_max_ms));
        let mut heard = Instant::now();
        loop {
            let (introduced, forgotten, over) = self.take_work();
            if over {
                return Ok(());
            }
            self.take_retries();
            if self.in_flight() == 0 {
                self.name_outsiders(wait);
            }
            if self.must_tell(&introduced, &forgotten) {
                if self.in_flight() == 0 {
                    heard = Instant::now();
                }
                self.send(introduced, forgotten).await?;
                if self.in_flight() < IN_FLIGHT_MAX && self.has_more() {
                    continue;
                }
            }
            let silent_at = heard + wait + ANSWER_GRACE;
            let retry_at = self.retries.first().map_or(silent_at, |(at, _)| *at);
            tokio::select! {
                // After a standstill of this process: first what has come meanwhile.
                biased;
                read = self.stream.read_buf(&mut self.buffer) => {
                    if read? == 0 {
                        return Err(SessionError::Closed);
                    }
                    // A part of an answer is a sign of life, too: a slow link takes its time for a large one.
                    heard = Instant::now();
                    while let Some(frame) = self.take_frame()? {
                        self.answered += 1;
                        self.apply(frame)?;
                        heard = Instant::now();
                        self.fetcher.answered(heard);
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

    fn in_flight(&self) -> usize {
        usize::try_from(self.sent.saturating_sub(self.answered)).unwrap_or(usize::MAX)
    }

    /// Whether a request is to be sent now. What was taken to be told is always told: also of a partition that is not named
    /// yet, because it rests for its limit. Later it will be named by its index.
    fn must_tell(&self, introduced: &[IntroducedPartition], forgotten: &[u32]) -> bool {
        let urgent = !self.due.is_empty() || !introduced.is_empty() || !forgotten.is_empty();
        self.in_flight() == 0 || (urgent && self.in_flight() < IN_FLIGHT_MAX)
    }

    /// Whether something is left that did not fit into the request before.
    fn has_more(&self) -> bool {
        let work = self.fetcher.work();
        !self.due.is_empty() || !work.changed.is_empty() || !work.forgotten.is_empty()
    }

    async fn send(
        &mut self,
        introduced: Vec<IntroducedPartition>,
        forgotten: Vec<u32>,
    ) -> Result<(), SessionError> {
        let request = self.request(introduced, forgotten);
        self.correlation_id = self.correlation_id.wrapping_add(1);
        let frame = request.encode(self.correlation_id, "barnabas-follower")?;
        match tokio::time::timeout(SEND_DEADLINE, self.stream.write_all(&frame)).await {
            Ok(written) => written?,
            Err(_) => return Err(SessionError::Silent(SEND_DEADLINE)),
        }
        self.sent += 1;
        Ok(())
    }

    /// Takes what changed: new partitions, indexes to forget, and whether the session is over.
    fn take_work(&mut self) -> (Vec<IntroducedPartition>, Vec<u32>, bool) {
        let mut work = self.fetcher.work();
        if work.partitions.is_empty() || work.restart {
            return (Vec::new(), Vec::new(), true);
        }
        if self.in_flight() >= IN_FLIGHT_MAX {
            return (Vec::new(), Vec::new(), false);
        }
        while let Some(&(sent, index)) = self.resting.front()
            && sent <= self.answered
        {
            self.resting.pop_front();
            self.free.push(index);
        }
        let mut forgotten = Vec::new();
        while forgotten.len() < PARTITIONS_PER_REQUEST_MAX
            && let Some(tp) = work.forgotten.pop_first()
        {
            if let Some(index) = self.indexes.remove(&tp) {
                if let Some(at) = self.members[index as usize].take().and_then(|m| m.retry_at) {
                    self.retries.remove(&(at, index));
                }
                self.due.remove(&index);
                self.resting.push_back((self.sent, index));
                forgotten.push(index);
            }
        }
        let mut introduced = Vec::new();
        let mut named = Vec::new();
        while introduced.len() < PARTITIONS_PER_REQUEST_MAX
            && let Some(tp) = work.changed.pop_first()
        {
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
                let fresh = Member { hosted, refusals: 0, retry_at: None };
                self.members[index as usize] = Some(fresh);
                self.indexes.insert(tp, index);
            }
            named.push(index);
        }
        drop(work);
        for index in named {
            self.name(index);
        }
        (introduced, forgotten, false)
    }

    fn take_retries(&mut self) {
        let now = Instant::now();
        while let Some(&(at, index)) = self.retries.first() {
            if at > now {
                return;
            }
            self.retries.pop_first();
            if let Some(member) = self.member(index) {
                member.retry_at = None;
                self.name(index);
            }
        }
    }

    /// Names the partitions of which this broker is no ISR member, though they stand where they stood. The leader judges
    /// who may join when it hears a position (R12); one that it heard just before it learnt that this follower had left
    /// the ISR would otherwise be the last, and an idle partition would stay under-replicated for ever (I12).
    fn name_outsiders(&mut self, every: Duration) {
        let now = Instant::now();
        if now < self.outsiders_at {
            return;
        }
        self.outsiders_at = now + every;
        // A refused one has its own time.
        let outside = |member: &Member| {
            member.retry_at.is_none() && !member.hosted.is_isr_member_under(self.broker_epoch)
        };
        let members = (0..).zip(&self.members);
        let outsiders: Vec<u32> = members
            .filter_map(|(index, member)| member.as_ref().filter(|m| outside(m)).map(|_| index))
            .collect();
        for index in outsiders {
            self.name(index);
        }
    }

    fn request(
        &mut self,
        introduced: Vec<IntroducedPartition>,
        forgotten: Vec<u32>,
    ) -> ReplicaFetchRequest {
        let mut positions = Vec::with_capacity(self.due.len().min(PARTITIONS_PER_REQUEST_MAX));
        while positions.len() < PARTITIONS_PER_REQUEST_MAX
            && let Some(index) = self.due.pop_first()
        {
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
            overtakes: self.in_flight() > 0,
            forgotten,
            introduced,
            positions,
        }
    }

    fn take_frame(&mut self) -> Result<Option<Bytes>, SessionError> {
        let records = self.node.options.replica_fetch_response_max_bytes as usize;
        // One batch is sent whatever its size, so the largest batch counts too.
        let max = records + self.node.options.socket_request_max_bytes + ANSWER_HEAD_BYTES_MAX;
        let Some(len) = response_len(&self.buffer, max)? else {
            self.buffer.reserve(LOOK_AHEAD_BYTES);
            return Ok(None);
        };
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
        let Some(member) = self.member(index) else { return };
        let hosted = member.hosted.clone();
        if let ReplicaFetchOutcome::Refused { error_code } = told.outcome {
            self.later(index);
            let (topic, partition) =
                (&hosted.topic_partition.topic, hosted.topic_partition.partition);
            let leader_epoch = told.echo.leader_epoch;
            tracing::debug!(target: "state_change", %topic, partition, %leader_epoch, error_code, "the leader refuses the fetch");
            return;
        }
        let Some(asked) = self.asked(&hosted, &told.echo) else {
            self.due.insert(index);
            return;
        };
        match outcome(&told.outcome, asked.log_end) {
            Ok((outcome, records)) => {
                let only_marks =
                    records.is_none() && matches!(outcome, FetchOutcome::Records { .. });
                if let (Some(limit), ReplicaFetchOutcome::Records { records, .. }) =
                    (hosted.fetch_limit(), &told.outcome)
                {
                    self.node.pace.fetched(records.len(), limit, Instant::now());
                }
                let answer = FetchAnswer { leader: self.fetcher.leader, asked, outcome };
                let mut after = Aftermath::default();
                hosted.fetch_answered(self.node.now(), answer, records, &mut after);
                after.settle(&hosted, &**self.node, flush);
                if only_marks || hosted.fetch_position() != Some(asked) {
                    self.at_once(index);
                } else {
                    // It should have moved and did not: the leader would say the same again at once.
                    self.later(index);
                }
            }
            Err(error) => {
                self.later(index);
                let (topic, partition) =
                    (&hosted.topic_partition.topic, hosted.topic_partition.partition);
                let leader_epoch = asked.leader_epoch;
                tracing::warn!(target: "state_change", %topic, partition, %leader_epoch, %error, "the leader sent damaged records; they are asked for again");
            }
        }
    }

    fn member(&mut self, index: u32) -> Option<&mut Member> {
        self.members.get_mut(index as usize).and_then(Option::as_mut)
    }

    /// Names a partition in the next request, as far as its limit allows.
    fn at_once(&mut self, index: u32) {
        if let Some(member) = self.member(index) {
            member.refusals = 0;
            self.name(index);
        }
    }

    /// The same; one that has fetched more than its limit allows waits.
    fn name(&mut self, index: u32) {
        let Some(member) = self.member(index) else { return };
        let limit = member.hosted.fetch_limit();
        let pause = limit.map_or(Duration::ZERO, |l| self.node.pace.pause(l, Instant::now()));
        if pause.is_zero() {
            self.due.insert(index);
        } else {
            self.name_after(index, pause.min(PACED_RETRY_MAX));
        }
    }

    /// Names a partition again after a wait that grows each time.
    fn later(&mut self, index: u32) {
        let Some(member) = self.member(index) else { return };
        let (first, longest) = REFUSED_RETRY_MS;
        let wait_ms = (first << member.refusals.min(6)).min(longest);
        member.refusals = member.refusals.saturating_add(1);
        self.name_after(index, Duration::from_millis(wait_ms));
    }

    fn name_after(&mut self, index: u32, wait: Duration) {
        let Some(member) = self.member(index) else { return };
        let at = Instant::now() + wait;
        let before = member.retry_at.replace(at);
        if let Some(before) = before {
            self.retries.remove(&(before, index));
        }
        self.retries.insert((at, index));
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

#[cfg(test)]
#[path = "session_tests.rs"]
mod tests;
