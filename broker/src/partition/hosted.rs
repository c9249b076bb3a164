//! One hosted partition: the replica core decides, the log obeys, both under one mutex.
//!
//! Under the mutex: stamp, pwrite, core steps (one append: microseconds). Never under it: CRC, decode, fsync, socket
//! writes, wake-ups, another partition.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock, TryLockResult};
use std::time::Duration;

use barnabas_log::{Admission, BatchHeader, Fetched, Log, LogConfig, LogError, ProduceRules};
use barnabas_metrics::Traffic;
use barnabas_replica::{
    ConsumerView, Event, FetchAnswer, FetchPosition, FetchReply, FollowerFetch, Produce,
    ProduceGap, ProposalOutcome, Replica, ReplicaReport, Role, StatePush, WaiterId,
};
use barnabas_types::{
    Acks, BrokerEpoch, BrokerId, Condition, FlushMode, Incarnation, LeaderEpoch, Now, Offset,
    Sanitised, TopicConfig, TopicPartition,
};

use tokio::sync::Notify;

use super::aftermath::Aftermath;
use super::flushing::Flushing;
use super::inner::{Inner, Input, Waiter};
use super::leadership::Leadership;
use super::noting::Noting;
use super::waiting::{FollowerSession, ParkedFetch, PendingProduce};
use crate::flush::Flusher;
use crate::storage::{Directory, LedNote};

/// Sessions, watchers and parked fetches per partition beyond which new ones are refused a place (they then time out and re-read).
pub(super) const WATCHERS_MAX: usize = 4096;
/// How long a close waits for a flush that is under way.
const CLOSE_PATIENCE: Duration = Duration::from_secs(30);

/// One replica on this broker.
pub struct Hosted {
    /// Which partition.
    pub topic_partition: TopicPartition,
    /// Which life of its topic.
    pub incarnation: Incarnation,
    /// Who flushes it: the threads of its data directory.
    pub(super) flusher: Arc<Flusher>,
    /// Where its log lies.
    pub directory: Arc<Directory>,
    /// What it has carried.
    pub traffic: Traffic,
    inner: Mutex<Inner>,
    /// How often its lock was taken: whoever finds it taken all the time knows by this whether it is the same one who has it.
    turns: AtomicU64,
    /// A background flush has ended.
    flushed: Condvar,
    pub(super) high_watermark: AtomicI64,
    produce_rules: RwLock<ProduceRules>,
    flush_timeout_ms: AtomicI64,
    /// A roll call was answered, or the role is another one.
    pub(super) roll_called: Notify,
}

/// What a produce became for one partition.
#[derive(Debug, PartialEq, Eq)]
pub enum AppendResult {
    /// Its result has been or will be given to the `PendingProduce`.
    Handed,
    /// acks=0: appended (or there already).
    Silent,
    /// acks=0: refused, and nobody waits for an answer that could say so.
    Refused,
}

/// How much of a leader's log a follower has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Copied {
    /// Who.
    pub broker: BrokerId,
    /// Whether it has fetched in the present leader epoch; if not, nothing is known.
    pub heard: bool,
    /// Bytes of the leader's files that it has.
    pub copied: u64,
    /// Bytes that it lacks.
    pub left: u64,
}

impl Hosted {
    /// A replica over an opened log.
    #[must_use]
    pub fn new(
        topic_partition: TopicPartition,
        incarnation: Incarnation,
        replica: Replica,
        log: Log,
        (directory, flusher): (Arc<Directory>, Arc<Flusher>),
    ) -> Self {
        let high_watermark = AtomicI64::new(replica.high_watermark().0);
        Self {
            topic_partition,
            incarnation,
            flusher,
            directory,
            traffic: Traffic::default(),
            inner: Mutex::new(Inner {
                replica,
                log,
                waiters: BTreeMap::new(),
                deletions: BTreeMap::new(),
                next_waiter: 0,
                parked: Vec::new(),
                doubting: Vec::new(),
                sessions: Vec::new(),
                watchers: Vec::new(),
                flushing: Flushing::default(),
                leadership: Leadership::default(),
                closed: false,
                led: None,
                noting: Noting::default(),
                told: None,
            }),
            turns: AtomicU64::new(0),
            flushed: Condvar::new(),
            high_watermark,
            produce_rules: RwLock::new(ProduceRules::from(&TopicConfig::default())),
            flush_timeout_ms: AtomicI64::new(i64::MAX),
            roll_called: Notify::new(),
        }
    }

    /// What the process before has noted of its leadership over this log. Before the first state is applied.
    pub fn led_before(&self, note: LedNote) {
        let mut inner = self.lock();
        inner.led = Some(note.led(inner.log.log_end(), inner.log.epochs()));
        inner.noting.found(note);
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Inner> {
        let inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        self.turns.fetch_add(1, Ordering::Relaxed);
        inner
    }

    /// See the field.
    pub(super) fn turns(&self) -> u64 {
        self.turns.load(Ordering::Relaxed)
    }

    pub(super) fn try_lock(&self) -> TryLockResult<MutexGuard<'_, Inner>> {
        self.inner.try_lock()
    }

    /// HW without a lock, for checkpoints and metrics.
    pub fn high_watermark(&self) -> Offset {
        Offset(self.high_watermark.load(Ordering::Acquire))
    }

    /// What a producer's batch is checked for before the append.
    pub fn produce_rules(&self) -> ProduceRules {
        *self.produce_rules.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// How long a produce request may wait for its flush; `None` in async mode, where it does not.
    pub fn flush_timeout(&self) -> Option<Duration> {
        let ms = self.flush_timeout_ms.load(Ordering::Acquire);
        u64::try_from(ms).ok().filter(|_| ms < i64::MAX).map(Duration::from_millis)
    }

    /// The settings of a push that do not belong to the replica core, or to its log alone.
    pub fn configure(&self, now: Now, config: &TopicConfig, after: &mut Aftermath) {
        *self.produce_rules.write().unwrap_or_else(PoisonError::into_inner) = config.into();
        let flush_timeout_ms = match config.flush_mode {
            FlushMode::Sync => config.flush_timeout_ms,
            FlushMode::Async => i64::MAX,
        };
        self.flush_timeout_ms.store(flush_timeout_ms, Ordering::Release);
        let mut inner = self.lock();
        inner.log.configure(LogConfig::from(config));
        inner.configure_flush(self, now, config, after);
    }

    /// The controller's desired state (R4). R22 was checked by the caller.
    pub fn state(&self, now: Now, push: StatePush, after: &mut Aftermath) {
        self.step(now, Event::State(push), after);
    }

    /// The broker registered under a new epoch.
    pub fn registered(&self, now: Now, broker_epoch: BrokerEpoch, after: &mut Aftermath) {
        self.step(now, Event::Registered { broker_epoch }, after);
    }

    /// These brokers are draining, and no others (R26).
    pub fn draining(&self, now: Now, brokers: Vec<BrokerId>, after: &mut Aftermath) {
        self.step(now, Event::Draining { brokers }, after);
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
        let waiter = inner.next_waiter();
        if let Some((pending, index)) = pending.filter(|_| acks != Acks::None) {
            let acks_one = if acks == Acks::Leader { offsets } else { 0 };
            inner.waiters.insert(waiter, Waiter { pending, index, acks_one });
        }
        if acks == Acks::All {
            inner.leadership.awaits(waiter);
        }
        let log_end = inner.log.log_end();
        let leads = matches!(inner.replica.role(), Role::Leader { .. });
        let admission = match BatchHeader::parse(records) {
            Ok(header) if leads => inner.log.admit(&header),
            // Not leading is told by the core; a batch without a header was refused before.
            _ => Ok(Admission::New),
        };
        let wanted = Produce { waiter, acks, offsets };
        let admission = match admission {
            // What is in the log already is answered as such, whatever the room.
            Ok(Admission::New) | Err(Condition::OutOfOrderSequenceNumber { .. })
                if leads && self.directory.refuses_produces() =>
            {
                Err(Condition::LogDirFull)
            }
            admission => admission,
        };
        match admission {
            Ok(Admission::New) => {
                let event = Event::Produce(wanted);
                inner.step(self, now, event, Input::Produced(records), after);
            }
            Ok(Admission::Duplicate { base, end }) if acks != Acks::None => {
                let event = Event::ProduceAgain { waiter, acks, base, end };
                inner.step(self, now, event, Input::None, after);
            }
            Ok(Admission::Duplicate { .. }) => return AppendResult::Silent,
            Err(Condition::OutOfOrderSequenceNumber { found, expected }) if acks != Acks::None => {
                let event = Event::ProduceGap(ProduceGap { waiter, acks, found, expected });
                inner.step(self, now, event, Input::None, after);
            }
            Err(condition) => {
                inner.leadership.refused(waiter);
                if let Some(Waiter { pending, index, .. }) = inner.waiters.remove(&waiter) {
                    after.finished.push((pending, index, Err(condition)));
                }
            }
        }
        match acks {
            Acks::None if inner.log.log_end() == log_end => AppendResult::Refused,
            Acks::None => AppendResult::Silent,
            Acks::Leader | Acks::All => AppendResult::Handed,
        }
    }

    /// Ends the waits of `pending` here: its request is older than its timeout.
    pub fn time_out(&self, now: Now, pending: &Arc<PendingProduce>, after: &mut Aftermath) {
        self.end_waits(now, pending, |waiter| Event::WaiterTimedOut { waiter }, after);
    }

    /// Ends the waits of `pending` that are still for a flush here: they are older than `flush.timeout.ms`.
    pub fn time_out_flush(&self, now: Now, pending: &Arc<PendingProduce>, after: &mut Aftermath) {
        self.end_waits(now, pending, |waiter| Event::FlushTimedOut { waiter }, after);
    }

    fn end_waits(
        &self,
        now: Now,
        pending: &Arc<PendingProduce>,
        event: impl Fn(WaiterId) -> Event,
        after: &mut Aftermath,
    ) {
        let mut inner = self.lock();
        let late: Vec<WaiterId> = inner
            .waiters
            .iter()
            .filter(|(_, waiter)| Arc::ptr_eq(&waiter.pending, pending))
            .map(|(id, _)| *id)
            .collect();
        for waiter in late {
            inner.step(self, now, event(waiter), Input::None, after);
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

    /// How many bytes a second this replica may fetch; `None`: no limit.
    pub fn fetch_limit(&self) -> Option<u64> {
        self.lock().replica.fetch_limit()
    }

    /// How much of this log each follower has; empty unless this replica leads.
    pub fn copies(&self) -> Vec<Copied> {
        let inner = self.lock();
        let (all, start) = (inner.log.size_bytes(), inner.log.log_start());
        let of = |follower: barnabas_replica::FollowerPosition| {
            let heard = follower.position.map(|(log_end, ..)| log_end);
            let from = heard.unwrap_or(start).max(start).min(inner.log.log_end());
            // What cannot be looked up counts as not copied.
            let left = inner.log.bytes_from(from).unwrap_or(all);
            let (broker, heard) = (follower.broker, heard.is_some());
            Copied { broker, heard, copied: all.saturating_sub(left), left }
        };
        inner.replica.follower_positions().into_iter().map(of).collect()
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

    /// The epoch that covers `offset`, for answers that carry a leader epoch.
    pub fn epoch_at(&self, offset: Offset) -> Option<LeaderEpoch> {
        self.lock().replica.epochs().epoch_at(offset)
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

    /// The leader epoch as accepted, for log lines. Takes the partition's lock.
    pub fn leader_epoch(&self) -> LeaderEpoch {
        self.lock().replica.leader_epoch().unwrap_or_default()
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

    /// Tells a follower's session of news from now on; `false` if there are too many sessions already.
    #[must_use]
    pub fn attach(&self, session: &Arc<dyn FollowerSession>, index: u32) -> bool {
        let mut inner = self.lock();
        inner.sessions.retain(|(s, i)| !(Arc::ptr_eq(s, session) && *i == index));
        let room = inner.sessions.len() < WATCHERS_MAX;
        if room {
            inner.sessions.push((session.clone(), index));
        }
        room
    }

    /// The session is over.
    pub fn detach(&self, session: &Arc<dyn FollowerSession>) {
        self.lock().sessions.retain(|(s, _)| !Arc::ptr_eq(s, session));
    }

    /// One entry of the session is over.
    pub fn detach_entry(&self, session: &Arc<dyn FollowerSession>, index: u32) {
        self.lock().sessions.retain(|(s, i)| !(Arc::ptr_eq(s, session) && *i == index));
    }

    /// Makes everything durable and takes nothing more; called on stop. Waits for a flush that is under way. Blocks.
    ///
    /// # Errors
    /// The log's error: it is then not cleanly closed.
    pub fn close(&self) -> Result<(), LogError> {
        let mut inner = self.lock();
        let result = loop {
            match inner.log.close() {
                Err(LogError::FlushInFlight) => {}
                result => break result,
            }
            let waited = self.flushed.wait_timeout(inner, CLOSE_PATIENCE);
            let (woken, late) = waited.unwrap_or_else(PoisonError::into_inner);
            inner = woken;
            if late.timed_out() {
                break Err(LogError::FlushInFlight);
            }
        };
        inner.closed = true;
        result
    }

    /// The replica was taken out of this broker: its log takes nothing more. A flush that is under way must not note a
    /// recovery point any more, for the next replica of this name would inherit it (R16).
    pub fn retire(&self) {
        let mut inner = self.lock();
        inner.log.fence();
        inner.closed = true;
    }

    /// Its directory failed: fenced, and nobody is left waiting.
    pub fn fence(&self, now: Now, after: &mut Aftermath) {
        let mut inner = self.lock();
        inner.log.fence();
        inner.step(self, now, Event::AppendFailed { waiter: None }, Input::None, after);
    }

    /// The epoch in which this broker led, by the accepted state, though the replica is fenced by now.
    pub fn led_until_fenced(&self) -> Option<LeaderEpoch> {
        let inner = self.lock();
        inner.replica.leader_epoch().filter(|_| inner.replica.is_told_to_lead())
    }

    /// Forgets the idempotent producers whose last batch is `expiration_ms` old or older; see [`Log::expire_producers`].
    /// Returns how many.
    pub fn expire_producers(&self, now_ms: i64, expiration_ms: i64) -> usize {
        self.lock().log.expire_producers(now_ms, expiration_ms)
    }

    pub(super) fn flush_ended(&self) {
        self.flushed.notify_all();
    }

    /// Producers that are not answered yet.
    #[cfg(test)]
    pub(super) fn waiters(&self) -> usize {
        self.lock().waiters.len()
    }

    /// Followers' sessions that are told of news.
    #[cfg(test)]
    pub(crate) fn sessions(&self) -> usize {
        self.lock().sessions.len()
    }

    #[cfg(test)]
    pub(crate) fn with_log<T>(&self, work: impl FnOnce(&mut Log) -> T) -> T {
        work(&mut self.lock().log)
    }

    fn step(&self, now: Now, event: Event, after: &mut Aftermath) {
        self.lock().step(self, now, event, Input::None, after);
    }

    /// Writes a state-change line with topic, partition and epoch.
    pub(super) fn log_note(&self, leader_epoch: LeaderEpoch, note: &barnabas_replica::Note) {
        let (topic, partition) = (&self.topic_partition.topic, self.topic_partition.partition);
        let text = Sanitised::sentence(&note.text);
        if note.warn {
            tracing::warn!(target: "state_change", %topic, partition, %leader_epoch, "{text}");
        } else {
            tracing::info!(target: "state_change", %topic, partition, %leader_epoch, "{text}");
        }
    }
}
