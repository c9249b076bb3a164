//! One hosted partition: the replica core decides, the log obeys, both under one mutex.
//!
//! Under the mutex: stamp, pwrite, core steps (one append: microseconds). Never under it: CRC, decode, fsync, socket
//! writes, wake-ups, another partition.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use barnabas_log::{Admission, BatchHeader, Fetched, FlushStep, Log, LogError, ReadRange};
use barnabas_replica::{
    ConsumerView, Effects, Event, FetchAnswer, FetchPosition, FetchReply, FollowerFetch, Produce,
    ProposalOutcome, Replica, ReplicaReport, Role, StatePush, WaiterId,
};
use barnabas_types::{
    Acks, BrokerEpoch, Condition, Incarnation, LeaderEpoch, Now, Offset, TopicConfig,
    TopicPartition,
};

use super::aftermath::Aftermath;
use super::waiting::{FollowerSession, ParkedFetch, PendingProduce};

/// Sessions and parked fetches per partition beyond which new ones are refused a place (they then time out and re-read).
const WATCHERS_MAX: usize = 4096;

/// One replica on this broker.
pub struct Hosted {
    /// Which partition.
    pub topic_partition: TopicPartition,
    /// Which life of its topic.
    pub incarnation: Incarnation,
    inner: Mutex<Inner>,
    high_watermark: AtomicI64,
    max_message_bytes: AtomicI64,
}

struct Inner {
    replica: Replica,
    log: Log,
    waiters: BTreeMap<WaiterId, (Arc<PendingProduce>, usize)>,
    next_waiter: u64,
    parked: Vec<Arc<ParkedFetch>>,
    sessions: Vec<(Arc<dyn FollowerSession>, u32)>,
}

/// What a produce became for one partition.
#[derive(Debug, PartialEq, Eq)]
pub enum AppendResult {
    /// Its result has been or will be given to the `PendingProduce`.
    Handed,
    /// acks=0: appended or refused, nobody is told.
    Silent,
}

/// A range of a partition that may be read after the lock is released.
pub struct ReadSlice {
    /// What the partition looked like at that instant.
    pub view: ConsumerView,
    /// The bytes, if there are any.
    pub range: Option<ReadRange>,
}

/// Bytes that belong to an event.
enum Input<'a> {
    None,
    Produced(&'a mut [u8]),
    Fetched(Option<Fetched<'a>>),
}

impl Hosted {
    /// A replica over an opened log.
    #[must_use]
    pub fn new(
        topic_partition: TopicPartition,
        incarnation: Incarnation,
        replica: Replica,
        log: Log,
    ) -> Self {
        let high_watermark = AtomicI64::new(replica.high_watermark().0);
        Self {
            topic_partition,
            incarnation,
            inner: Mutex::new(Inner {
                replica,
                log,
                waiters: BTreeMap::new(),
                next_waiter: 0,
                parked: Vec::new(),
                sessions: Vec::new(),
            }),
            high_watermark,
            max_message_bytes: AtomicI64::new(i64::from(TopicConfig::default().max_message_bytes)),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// HW without a lock, for checkpoints and metrics.
    pub fn high_watermark(&self) -> Offset {
        Offset(self.high_watermark.load(Ordering::Acquire))
    }

    /// `max.message.bytes` in force, without a lock: checked before the append.
    pub fn max_message_bytes(&self) -> usize {
        usize::try_from(self.max_message_bytes.load(Ordering::Acquire)).unwrap_or(usize::MAX)
    }

    /// The settings of a push that do not belong to the replica core.
    pub fn configure(&self, config: &TopicConfig) {
        self.max_message_bytes.store(i64::from(config.max_message_bytes), Ordering::Release);
        self.lock().log.set_segment_bytes(config.segment_bytes);
    }

    /// The controller's desired state (R4). R22 was checked by the caller.
    pub fn state(&self, now: Now, push: StatePush, after: &mut Aftermath) {
        self.step(now, Event::State(push), after);
    }

    /// The broker registered under a new epoch.
    pub fn registered(&self, now: Now, broker_epoch: BrokerEpoch, after: &mut Aftermath) {
        self.step(now, Event::Registered { broker_epoch }, after);
    }

    /// Time passed.
    pub fn tick(&self, now: Now, after: &mut Aftermath) {
        self.step(now, Event::Tick, after);
    }

    /// The controller answered, or did not answer, a proposal.
    pub fn proposal_answered(&self, now: Now, outcome: ProposalOutcome, after: &mut Aftermath) {
        self.step(now, Event::ProposalAnswered(outcome), after);
    }

    /// Appends a producer's batches (already checked). The result goes to `pending`; acks=0 has none.
    pub fn produce(
        &self,
        now: Now,
        acks: Acks,
        offsets: i64,
        records: &mut [u8],
        pending: Option<(Arc<PendingProduce>, usize)>,
        after: &mut Aftermath,
    ) -> AppendResult {
        let mut inner = self.lock();
        let waiter = WaiterId(inner.next_waiter);
        inner.next_waiter += 1;
        let handed = match pending {
            Some(pending) if acks != Acks::None => {
                inner.waiters.insert(waiter, pending);
                AppendResult::Handed
            }
            _ => AppendResult::Silent,
        };
        let leads = matches!(inner.replica.role(), Role::Leader { .. });
        let admission = match BatchHeader::parse(records) {
            Ok(header) if leads => inner.log.admit(&header),
            // Not leading is told by the core; a batch without a header was refused before.
            _ => Ok(Admission::New),
        };
        match admission {
            Ok(Admission::New) => {
                let event = Event::Produce(Produce { waiter, acks, offsets });
                inner.step(self, now, event, Input::Produced(records), after);
            }
            Ok(Admission::Duplicate { base, end }) if acks != Acks::None => {
                let event = Event::ProduceAgain { waiter, acks, base, end };
                inner.step(self, now, event, Input::None, after);
            }
            Ok(Admission::Duplicate { .. }) => {}
            Err(condition) => {
                if let Some((pending, index)) = inner.waiters.remove(&waiter) {
                    after.finished.push((pending, index, Err(condition)));
                }
            }
        }
        handed
    }

    /// Ends the waits of `pending` here: its request is older than its timeout.
    pub fn time_out(&self, now: Now, pending: &Arc<PendingProduce>, after: &mut Aftermath) {
        let mut inner = self.lock();
        let late: Vec<WaiterId> = inner
            .waiters
            .iter()
            .filter(|(_, (p, _))| Arc::ptr_eq(p, pending))
            .map(|(id, _)| *id)
            .collect();
        for waiter in late {
            inner.step(self, now, Event::WaiterTimedOut { waiter }, Input::None, after);
        }
    }

    /// A follower's fetch: what it may read.
    pub fn follower_fetch(
        &self,
        now: Now,
        fetch: FollowerFetch,
        after: &mut Aftermath,
    ) -> FetchReply {
        let reply = self.lock().step(self, now, Event::FollowerFetch(fetch), Input::None, after);
        reply.unwrap_or(FetchReply::Refused(Condition::NotLeaderOrFollower))
    }

    /// What there is for a follower that stands at `position` and was granted before: HW, log start, and a range.
    ///
    /// # Errors
    /// If this broker does not lead in that epoch any more.
    pub fn read_for_follower(
        &self,
        position: &FetchPosition,
        max_bytes: usize,
    ) -> Result<(Offset, Offset, Option<ReadRange>), Condition> {
        let inner = self.lock();
        let present = inner.replica.leader_epoch().unwrap_or_default();
        if inner.replica.role() != (Role::Leader { leader_epoch: position.leader_epoch }) {
            return Err(if position.leader_epoch < present {
                Condition::FencedLeaderEpoch { asked: position.leader_epoch, present }
            } else {
                Condition::NotLeaderOrFollower
            });
        }
        let end = inner.replica.log_end();
        let range = if position.log_end < end {
            inner
                .log
                .read(position.log_end, end, max_bytes)
                .map_err(|_| Condition::KafkaStorageError)?
        } else {
            None
        };
        Ok((inner.replica.high_watermark(), inner.replica.log_start(), range))
    }

    /// What a follower asks next, if it follows.
    pub fn fetch_position(&self) -> Option<FetchPosition> {
        self.lock().replica.fetch_position()
    }

    /// The leader answered this follower's fetch; `records` are the checked records that came with it.
    pub fn fetch_answered(
        &self,
        now: Now,
        answer: FetchAnswer,
        records: Option<Fetched<'_>>,
        after: &mut Aftermath,
    ) {
        self.lock().step(self, now, Event::FetchAnswered(answer), Input::Fetched(records), after);
    }

    /// What a consumer may see now.
    ///
    /// # Errors
    /// Not the leader, wrong epoch (KIP-320), HW not known yet (KIP-207).
    pub fn consumer_view(
        &self,
        current_leader_epoch: Option<LeaderEpoch>,
    ) -> Result<ConsumerView, Condition> {
        self.lock().replica.consumer_view(current_leader_epoch)
    }

    /// What a consumer may read from `from`: one snapshot of view and range.
    ///
    /// # Errors
    /// As [`Hosted::consumer_view`], and `OffsetOutOfRange`.
    pub fn read_for_consumer(
        &self,
        from: Offset,
        current_leader_epoch: Option<LeaderEpoch>,
        max_bytes: usize,
    ) -> Result<ReadSlice, Condition> {
        let inner = self.lock();
        let view = inner.replica.consumer_view(current_leader_epoch)?;
        if from < view.log_start || from > view.log_end {
            return Err(Condition::OffsetOutOfRange {
                asked: from,
                start: view.log_start,
                end: view.high_watermark,
            });
        }
        let range = if from < view.high_watermark && max_bytes > 0 {
            inner
                .log
                .read(from, view.high_watermark, max_bytes)
                .map_err(|_| Condition::KafkaStorageError)?
        } else {
            None
        };
        Ok(ReadSlice { view, range })
    }

    /// First record at or after a time, below the HW (ListOffsets by time); `None` if there is none.
    ///
    /// # Errors
    /// As [`Hosted::consumer_view`].
    pub fn offset_for_timestamp(
        &self,
        timestamp_ms: i64,
        current_leader_epoch: Option<LeaderEpoch>,
    ) -> Result<Option<(Offset, i64)>, Condition> {
        let inner = self.lock();
        let view = inner.replica.consumer_view(current_leader_epoch)?;
        let found = inner
            .log
            .offset_for_timestamp(timestamp_ms)
            .map_err(|_| Condition::KafkaStorageError)?;
        Ok(found.filter(|(offset, _)| *offset < view.high_watermark))
    }

    /// The record with the greatest timestamp (ListOffsets -3, KIP-734).
    ///
    /// # Errors
    /// As [`Hosted::consumer_view`].
    pub fn max_timestamp(
        &self,
        current_leader_epoch: Option<LeaderEpoch>,
    ) -> Result<Option<(Offset, i64)>, Condition> {
        let inner = self.lock();
        let view = inner.replica.consumer_view(current_leader_epoch)?;
        let found = inner.log.max_timestamp_offset().map_err(|_| Condition::KafkaStorageError)?;
        Ok(found.filter(|(offset, _)| *offset < view.high_watermark))
    }

    /// The epoch that covers `offset`, for answers that carry a leader epoch.
    pub fn epoch_at(&self, offset: Offset) -> Option<LeaderEpoch> {
        self.lock().replica.epochs().epoch_at(offset)
    }

    /// OffsetForLeaderEpoch (KIP-101, KIP-320).
    ///
    /// # Errors
    /// Not the leader, wrong epoch.
    pub fn end_offset_for_epoch(
        &self,
        current_leader_epoch: Option<LeaderEpoch>,
        asked: LeaderEpoch,
    ) -> Result<Option<(LeaderEpoch, Offset)>, Condition> {
        self.lock().replica.end_offset_for_epoch(current_leader_epoch, asked)
    }

    /// The replica's answer for R8 while the accepted state is leaderless.
    pub fn report(&self) -> Option<ReplicaReport> {
        self.lock().replica.report()
    }

    /// Whether the accepted state shows this broker in the ISR under `broker_epoch` (R7).
    pub fn is_isr_member_under(&self, broker_epoch: BrokerEpoch) -> bool {
        self.lock().replica.is_isr_member_under(broker_epoch)
    }

    /// Present role.
    pub fn role(&self) -> Role {
        self.lock().replica.role()
    }

    /// Whether this broker leads in exactly this epoch.
    pub fn leads_in(&self, leader_epoch: LeaderEpoch) -> bool {
        self.lock().replica.role() == Role::Leader { leader_epoch }
    }

    /// (incarnation, leader epoch, partition epoch) as accepted, for tombstones (R22).
    pub fn accepted(&self) -> (Incarnation, LeaderEpoch, barnabas_types::PartitionEpoch) {
        let inner = self.lock();
        (
            self.incarnation,
            inner.replica.leader_epoch().unwrap_or_default(),
            inner.replica.partition_epoch().unwrap_or_default(),
        )
    }

    /// Tells `fetch` of bytes and role changes from now on.
    pub fn park(&self, fetch: &Arc<ParkedFetch>) {
        let mut inner = self.lock();
        inner.parked.retain(|p| !p.is_fired());
        if inner.parked.len() < WATCHERS_MAX {
            inner.parked.push(fetch.clone());
        }
    }

    /// Tells a follower's session of news from now on.
    pub fn attach(&self, session: &Arc<dyn FollowerSession>, index: u32) {
        let mut inner = self.lock();
        inner.sessions.retain(|(s, i)| !(Arc::ptr_eq(s, session) && *i == index));
        if inner.sessions.len() < WATCHERS_MAX {
            inner.sessions.push((session.clone(), index));
        }
    }

    /// The session is over.
    pub fn detach(&self, session: &Arc<dyn FollowerSession>) {
        self.lock().sessions.retain(|(s, _)| !Arc::ptr_eq(s, session));
    }

    /// One entry of the session is over.
    pub fn detach_entry(&self, session: &Arc<dyn FollowerSession>, index: u32) {
        self.lock().sessions.retain(|(s, i)| !(Arc::ptr_eq(s, session) && *i == index));
    }

    /// Makes what is written by now durable. Blocks on the disk, never under the partition's lock.
    pub fn flush(&self, now: Now, after: &mut Aftermath) {
        loop {
            let mut inner = self.lock();
            let step = inner.log.flush_plan();
            let plan = match step {
                Ok(FlushStep::Sync(plan)) => plan,
                Ok(FlushStep::Rewriting) => continue,
                // One flush at a time: the other one covers this, or the next roll asks again.
                Ok(FlushStep::Nothing) | Err(LogError::FlushInFlight) => return,
                Err(error) => return inner.failed(self, now, None, &error, after),
            };
            drop(inner);
            let result = plan.run();
            let mut inner = self.lock();
            match inner.log.flush_done(&plan, result) {
                Ok(to) => {
                    inner.step(self, now, Event::Flushed { to }, Input::None, after);
                }
                Err(error) => inner.failed(self, now, None, &error, after),
            }
            return;
        }
    }

    /// Makes everything durable and takes nothing more; called on stop.
    ///
    /// # Errors
    /// The log's error: it is then not cleanly closed.
    pub fn close(&self) -> Result<(), LogError> {
        self.lock().log.close()
    }

    fn step(&self, now: Now, event: Event, after: &mut Aftermath) {
        self.lock().step(self, now, event, Input::None, after);
    }

    /// Writes a state-change line with topic, partition and epoch.
    pub(super) fn log_note(&self, leader_epoch: LeaderEpoch, note: &barnabas_replica::Note) {
        let (topic, partition) = (&self.topic_partition.topic, self.topic_partition.partition);
        if note.warn {
            tracing::warn!(target: "state_change", %topic, partition, %leader_epoch, "{}", note.text);
        } else {
            tracing::info!(target: "state_change", %topic, partition, %leader_epoch, "{}", note.text);
        }
    }
}

impl Inner {
    /// Steps the core and performs its effects in their order; completions are stepped on the way.
    fn step(
        &mut self,
        hosted: &Hosted,
        now: Now,
        event: Event,
        mut input: Input<'_>,
        after: &mut Aftermath,
    ) -> Option<FetchReply> {
        let mut effects = Effects::default();
        self.replica.step(now, event, &mut effects);
        if let Some(end) = effects.truncate_to {
            let done = self.log.truncate_to(end).map(|_| ());
            self.truncated(hosted, now, done, after);
        }
        if let Some(start) = effects.reset_to {
            let done = self.log.reset_to(start);
            self.truncated(hosted, now, done, after);
        }
        if let Some((epoch, start)) = effects.assign_epoch
            && let Err(error) = self.log.assign_epoch(epoch, start)
        {
            self.failed(hosted, now, None, &error, after);
        }
        if let Some(order) = effects.append {
            let done = match &mut input {
                Input::Produced(records) => {
                    self.log.append(records, order.base_offset, order.leader_epoch).map(Some)
                }
                Input::Fetched(fetched) => match fetched.take() {
                    Some(fetched) => self.log.append_fetched(fetched).map(Some),
                    None => Ok(None),
                },
                Input::None => Ok(None),
            };
            match done {
                Ok(appended) => {
                    after.rolled |= appended.as_ref().is_some_and(|a| a.rolled);
                    let log_end = self.log.log_end();
                    let (waiter, leader_epoch) = (order.waiter, order.leader_epoch);
                    let grown = log_end.0 - order.base_offset.0;
                    self.step(
                        hosted,
                        now,
                        Event::Appended { waiter, leader_epoch, log_end },
                        Input::None,
                        after,
                    );
                    if grown > 0 {
                        after.news.extend(self.sessions.iter().map(|(s, i)| (s.clone(), *i, true)));
                    }
                }
                Err(error) => self.failed(hosted, now, order.waiter, &error, after),
            }
        }
        self.pass_on(hosted, &mut effects, after);
        effects.fetch_reply
    }

    /// Effects 4 to 10: nothing of them touches the log.
    fn pass_on(&mut self, hosted: &Hosted, effects: &mut Effects, after: &mut Aftermath) {
        for (waiter, result) in effects.answers.drain(..) {
            if let Some((pending, index)) = self.waiters.remove(&waiter) {
                let log_start = self.replica.log_start();
                after.finished.push((pending, index, result.map(|base| (base, log_start))));
            }
        }
        if let Some(high_watermark) = effects.high_watermark {
            self.publish_high_watermark(hosted, high_watermark, after);
        }
        if let Some(role) = effects.role_changed {
            after.due_fetches.append(&mut self.parked);
            after.news.extend(self.sessions.iter().map(|(s, i)| (s.clone(), *i, true)));
            after.role = Some(role);
        }
        if let Some(proposal) = effects.propose.take() {
            after.proposal = Some(proposal);
        }
        after.delete |= effects.delete;
        let leader_epoch = self.replica.leader_epoch().unwrap_or_default();
        after.notes.extend(effects.notes.drain(..).map(|note| (leader_epoch, note)));
    }

    fn publish_high_watermark(&mut self, hosted: &Hosted, to: Offset, after: &mut Aftermath) {
        let before = hosted.high_watermark.swap(to.0, Ordering::AcqRel);
        after.news.extend(self.sessions.iter().map(|(s, i)| (s.clone(), *i, false)));
        if to.0 <= before || self.parked.is_empty() {
            return;
        }
        // Near the end of the log this is a look at remembered boundaries.
        let from = Offset(before).max(self.log.log_start());
        let range = self.log.read(from, to, usize::MAX).ok().flatten();
        let bytes = range.map_or(1, |range| range.len);
        self.parked.retain(|fetch| {
            if fetch.gather(bytes) {
                after.due_fetches.push(fetch.clone());
            }
            !fetch.is_fired()
        });
    }

    fn truncated(
        &mut self,
        hosted: &Hosted,
        now: Now,
        done: Result<(), LogError>,
        after: &mut Aftermath,
    ) {
        match done {
            Ok(()) => {
                let event = Event::Truncated {
                    log_start: self.log.log_start(),
                    log_end: self.log.log_end(),
                    flushed: self.log.flushed(),
                };
                self.step(hosted, now, event, Input::None, after);
                let present = self.replica.high_watermark();
                hosted.high_watermark.store(present.0, Ordering::Release);
            }
            Err(error) => self.failed(hosted, now, None, &error, after),
        }
    }

    /// The log failed: this partition is fenced until it is opened anew, and says so.
    fn failed(
        &mut self,
        hosted: &Hosted,
        now: Now,
        waiter: Option<WaiterId>,
        error: &LogError,
        after: &mut Aftermath,
    ) {
        if self.replica.role() == Role::Deleted {
            // Its files may be gone already.
            return;
        }
        let (topic, partition) = (&hosted.topic_partition.topic, hosted.topic_partition.partition);
        let leader_epoch = self.replica.leader_epoch().unwrap_or_default();
        tracing::error!(
            target: "state_change", %topic, partition, %leader_epoch, %error,
            "the log failed; the partition is fenced on this broker until it restarts"
        );
        self.step(hosted, now, Event::AppendFailed { waiter }, Input::None, after);
    }
}
