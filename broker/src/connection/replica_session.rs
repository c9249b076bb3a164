//! A follower's fetch session on its leader: the connection is the session, and only partitions with news are answered.
//!
//! The connection's task owns the entries. Partitions reach the session through [`Shared`]: an append marks its entry
//! once and wakes the task only if a request is parked. An entry that was told something is left alone until the
//! follower names its position again.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use barnabas_log::{Looked, ReadRange, Wait};
use barnabas_replica::{FetchPosition, FetchReply, FollowerFetch};
use barnabas_types::{BrokerEpoch, Condition, Incarnation, Offset, TopicPartition};
use barnabas_wire::{
    IntroducedPartition, PARTITION_INDEX_MAX, PositionEcho, RecordSlot, ReplicaFetchOutcome,
    ReplicaFetchPartition, ReplicaFetchReply, ReplicaFetchRequest, ReplicaFetchResponse,
};
use tokio::time::Instant;

use super::out::{Out, Slot};
use super::piece::{Piece, splice};
use crate::kafka::error_code;
use crate::node::Node;
use crate::partition::{
    Aftermath, COLD_LOOKS_MAX, Flush, FollowerSession, Hosted, Readable, Warming,
};

/// Bits of a mark.
const READY: u8 = 1;
const LAZY: u8 = 2;

/// The session as its connection's task sees it.
pub(super) struct ReplicaSession {
    out: Arc<Out>,
    /// Of its connection.
    number: u64,
    shared: Arc<Shared>,
    follower: Arc<dyn FollowerSession>,
    entries: Vec<Option<Entry>>,
    parked: Option<Parked>,
    /// Requests so far.
    requests: u64,
}

/// What partitions may touch.
struct Shared {
    out: Arc<Out>,
    news: Mutex<News>,
}

#[derive(Default)]
struct News {
    marks: Vec<u8>,
    ready: Vec<u32>,
    lazy: Vec<u32>,
    parked: bool,
}

struct Entry {
    topic_partition: TopicPartition,
    incarnation: Incarnation,
    /// `None` while this broker does not host that incarnation (yet): looked up again with each position.
    hosted: Option<Arc<Hosted>>,
    position: Option<FetchPosition>,
    reply: Option<FetchReply>,
    /// Told something in the answer to this request (the first is 1); nothing more is said until the follower, which knows
    /// it, names its position again.
    told: Option<u64>,
    high_watermark_sent: Offset,
    log_start_sent: Offset,
    /// Reads of what was not in the page cache, since records were last sent, and the last of them.
    cold_reads: u32,
    warming: Option<Arc<Warming>>,
    /// The newest roll call that was told, and the first request whose answer told it.
    roll_call_sent: (u64, u64),
    /// The newest that the follower had been told when it sent its last request. Only then it is told of another one.
    roll_call_heard: u64,
}

struct Parked {
    slot: Slot,
    correlation_id: i32,
    deadline: Instant,
    max_bytes: usize,
    partition_max_bytes: usize,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, News> {
        self.news.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl FollowerSession for Shared {
    fn news(&self, index: u32, urgent: bool) {
        let wake = {
            let mut news = self.lock();
            news.mark(index, if urgent { READY } else { LAZY }) && urgent && news.parked
        };
        if wake {
            self.out.wake();
        }
    }
}

impl News {
    /// Marks an entry; `true` if it was not marked so before.
    fn mark(&mut self, index: u32, bit: u8) -> bool {
        let Some(mark) = self.marks.get_mut(index as usize) else { return false };
        if *mark & bit != 0 {
            return false;
        }
        *mark |= bit;
        if bit == READY {
            self.ready.push(index)
        } else {
            self.lazy.push(index)
        }
        true
    }

    fn take(&mut self, bit: u8) -> Vec<u32> {
        let list = std::mem::take(if bit == READY { &mut self.ready } else { &mut self.lazy });
        for index in &list {
            if let Some(mark) = self.marks.get_mut(*index as usize) {
                *mark &= !bit;
            }
        }
        list
    }
}

impl ReplicaSession {
    /// The session of the connection of this number ([`super::turns::Turns`]).
    pub(super) fn new(out: Arc<Out>, number: u64) -> Self {
        let shared = Arc::new(Shared { out: out.clone(), news: Mutex::new(News::default()) });
        Self {
            out,
            number,
            follower: shared.clone(),
            shared,
            entries: Vec::new(),
            parked: None,
            requests: 0,
        }
    }

    /// When the parked request must be answered.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.parked.as_ref().map(|parked| parked.deadline)
    }

    /// A request came: a parked one is answered with what there is, then the new positions are judged.
    pub(super) fn request(
        &mut self,
        node: &Arc<Node>,
        request: ReplicaFetchRequest,
        slot: Slot,
        correlation_id: i32,
        flush: &mut Flush,
    ) -> Result<(), String> {
        if request.cluster_id != node.cluster_id {
            return Err(format!(
                "a follower of another cluster, {:?}, asks here",
                request.cluster_id.0
            ));
        }
        // Nobody who is not registered has a turn, nor a position that counts; nor has an earlier process of the follower (R30).
        let image = node.view.image();
        let present = image.brokers.get(&request.follower);
        let present = present.is_some_and(|broker| request.broker_epoch >= broker.epoch);
        let turn = present.then(|| node.turns.of(request.follower));
        let _turn = turn.as_ref().map(|turn| turn.take(self.number, &self.out)).transpose()?;
        if self.parked.is_some() {
            self.answer(true)?;
        }
        if request.full {
            self.end();
        }
        for index in &request.forgotten {
            self.forget(*index);
        }
        for new in &request.introduced {
            self.introduce(new)?;
        }
        let before = self.requests;
        self.requests += 1;
        for position in &request.positions {
            let entry = self
                .entries
                .get_mut(position.index as usize)
                .and_then(Option::as_mut)
                .ok_or_else(|| {
                    format!("a follower names partition {} before introducing it", position.index)
                })?;
            let position_now = FetchPosition {
                incarnation: entry.incarnation,
                broker_epoch: request.broker_epoch,
                leader_epoch: position.leader_epoch,
                last_epoch: position.last_epoch,
                log_end: position.log_end,
                flushed: position.flushed,
                log_start: position.log_start,
            };
            entry.find(node, &self.follower, position.index);
            // A request that overtakes was sent before the answer to the last one had come, and after all others.
            let unseen = u64::from(request.overtakes);
            let (roll_call, answered) = entry.roll_call_sent;
            if answered + unseen <= before {
                entry.roll_call_heard = roll_call;
            }
            let fetch = FollowerFetch {
                follower: request.follower,
                position: position_now,
                heard: entry.roll_call_heard,
            };
            let told = entry.told.filter(|told| {
                request.overtakes && *told == before && entry.stands_at(&position_now)
            });
            if let Some(bit) = entry.judge(node, fetch, flush) {
                self.shared.lock().mark(position.index, bit);
            }
            // It has not seen that answer: what it stands on now is noted, and it will name itself again.
            entry.told = told;
        }
        let wait = Duration::from_millis(u64::try_from(request.max_wait_ms).unwrap_or(0));
        self.parked = Some(Parked {
            slot,
            correlation_id,
            deadline: Instant::now() + wait.min(super::serve::WAIT_MAX),
            // At least 1: with nothing to give away no partition would ever be answered.
            max_bytes: usize::try_from(request.max_bytes).unwrap_or(0).max(1),
            partition_max_bytes: usize::try_from(request.partition_max_bytes).unwrap_or(0),
        });
        self.answer(false)
    }

    /// Answers the parked request if there is news or its time is over.
    pub(super) fn answer_if_due(&mut self, now: Instant) -> Result<(), String> {
        match &self.parked {
            Some(parked) => {
                let late = parked.deadline <= now;
                self.answer(late)
            }
            None => Ok(()),
        }
    }

    /// The connection or the session is over: partitions forget it.
    pub(super) fn end(&mut self) {
        for entry in self.entries.drain(..).flatten() {
            if let Some(hosted) = entry.hosted {
                hosted.detach(&self.follower);
            }
        }
        *self.shared.lock() = News::default();
    }

    fn introduce(&mut self, new: &IntroducedPartition) -> Result<(), String> {
        if new.index >= PARTITION_INDEX_MAX {
            return Err(format!("a follower uses partition index {}", new.index));
        }
        let at = new.index as usize;
        if at > self.entries.len() {
            // Memory grows with what was introduced, never with a number that was named.
            return Err(format!("a follower skips partition indexes up to {}", new.index));
        }
        self.forget(new.index);
        if at == self.entries.len() {
            self.entries.push(None);
            self.shared.lock().marks.push(0);
        }
        let topic_partition = TopicPartition { topic: new.topic.clone(), partition: new.partition };
        self.entries[at] = Some(Entry {
            topic_partition,
            incarnation: new.incarnation,
            hosted: None,
            position: None,
            reply: None,
            told: None,
            high_watermark_sent: Offset(-1),
            log_start_sent: Offset(-1),
            cold_reads: 0,
            warming: None,
            roll_call_sent: (0, 0),
            roll_call_heard: 0,
        });
        Ok(())
    }

    fn forget(&mut self, index: u32) {
        let gone = self.entries.get_mut(index as usize).and_then(Option::take);
        if let Some(hosted) = gone.and_then(|entry| entry.hosted) {
            hosted.detach_entry(&self.follower, index);
        }
    }

    /// Builds the answer. With `late` false it is sent only if some partition has urgent news.
    fn answer(&mut self, late: bool) -> Result<(), String> {
        let Some(parked) = &self.parked else { return Ok(()) };
        let mut list = {
            let mut news = self.shared.lock();
            // While the answer is built, appends need not wake this task.
            news.parked = false;
            if news.ready.is_empty() && !late {
                news.parked = true;
                return Ok(());
            }
            news.take(READY)
        };
        let request = self.requests;
        let mut urgent = false;
        let mut gathered = Gathered::default();
        let mut budget = parked.max_bytes;
        let mut postponed = Vec::new();
        for index in list.drain(..) {
            let Some(entry) = self.entries.get_mut(index as usize).and_then(Option::as_mut) else {
                continue;
            };
            if budget == 0 {
                postponed.push(index);
                continue;
            }
            let max_bytes = budget.min(parked.partition_max_bytes);
            if let Some(bytes) =
                entry.tell(request, index, max_bytes, &self.follower, &mut gathered)
            {
                urgent = true;
                budget = budget.saturating_sub(bytes);
            }
        }
        for index in postponed {
            self.shared.lock().mark(index, READY);
        }
        if !urgent && !late {
            let mut news = self.shared.lock();
            news.parked = news.ready.is_empty();
            if news.parked {
                return Ok(());
            }
            drop(news);
            return self.answer(false);
        }
        let lazy = self.shared.lock().take(LAZY);
        for index in lazy {
            if let Some(entry) = self.entries.get_mut(index as usize).and_then(Option::as_mut) {
                entry.tell(request, index, 0, &self.follower, &mut gathered);
            }
        }
        let pieces = gathered.finish(parked.correlation_id)?;
        let slot = parked.slot;
        self.parked = None;
        self.out.complete_pieces(slot, pieces);
        Ok(())
    }
}

impl Entry {
    /// Looks for the replica: it may have come, or have been opened anew, since the last time. One that cannot tell this
    /// session of its news (it has too many already) counts as absent, so that the follower asks again.
    fn find(&mut self, node: &Node, follower: &Arc<dyn FollowerSession>, index: u32) {
        let tp = &self.topic_partition;
        let present = node
            .partitions
            .get(tp.topic.as_str(), tp.partition)
            .filter(|hosted| hosted.incarnation == self.incarnation);
        let same = match (&self.hosted, &present) {
            (Some(known), Some(present)) => Arc::ptr_eq(known, present),
            (known, present) => known.is_none() && present.is_none(),
        };
        if same {
            return;
        }
        if let Some(gone) = self.hosted.take() {
            gone.detach_entry(follower, index);
        }
        self.hosted = present.filter(|hosted| hosted.attach(follower, index));
        // Another replica counts its roll calls anew.
        (self.roll_call_sent, self.roll_call_heard) = ((0, 0), 0);
    }

    /// Whether an answer to the present position answers this one too: the flushed offset and the log start say nothing
    /// about what comes next (R31).
    fn stands_at(&self, position: &FetchPosition) -> bool {
        self.position.is_some_and(|known| {
            FetchPosition { flushed: known.flushed, log_start: known.log_start, ..*position }
                == known
        })
    }

    /// The follower stands at a new position. Returns the mark that the entry deserves.
    fn judge(&mut self, node: &Arc<Node>, fetch: FollowerFetch, flush: &mut Flush) -> Option<u8> {
        self.position = Some(fetch.position);
        self.told = None;
        self.reply = None;
        let Some(hosted) = &self.hosted else {
            self.reply = Some(FetchReply::Refused(Condition::UnknownTopicOrPartition));
            return Some(READY);
        };
        let asked = fetch.position.broker_epoch;
        let registered = node.view.image().brokers.get(&fetch.follower).map(|broker| broker.epoch);
        let present = registered.unwrap_or(BrokerEpoch(-1));
        if asked > present {
            // An incarnation of which the controller has not told yet, or a forged one: noting it would shut out the true
            // follower for the rest of this leader epoch (R30). The follower asks again.
            self.reply = Some(FetchReply::Refused(Condition::StaleBrokerEpoch { asked, present }));
            return Some(READY);
        }
        let mut after = Aftermath::default();
        let reply = hosted.follower_fetch(node.now(), fetch, &mut after);
        after.settle(hosted, &**node, flush);
        match reply {
            FetchReply::Grant(grant)
                if grant.from < grant.to || grant.roll_call > self.roll_call_sent.0 =>
            {
                Some(READY)
            }
            FetchReply::Grant(grant)
                if grant.high_watermark > self.high_watermark_sent
                    || grant.log_start > self.log_start_sent =>
            {
                Some(LAZY)
            }
            FetchReply::Grant(_) => None,
            other => {
                self.reply = Some(other);
                Some(READY)
            }
        }
    }

    /// Adds this partition's news to the answer; returns the bytes of its records, `None` if there was no news.
    fn tell(
        &mut self,
        request: u64,
        index: u32,
        max_bytes: usize,
        follower: &Arc<dyn FollowerSession>,
        gathered: &mut Gathered,
    ) -> Option<usize> {
        let position = self.position.filter(|_| self.told.is_none())?;
        let outcome = match self.reply.take() {
            Some(FetchReply::Diverging { epoch, end }) => {
                ReplicaFetchOutcome::Diverging { epoch, end }
            }
            Some(FetchReply::Reset { log_start }) => ReplicaFetchOutcome::Reset { log_start },
            Some(FetchReply::Refused(condition)) => {
                ReplicaFetchOutcome::Refused { error_code: error_code(&condition) }
            }
            Some(FetchReply::Grant(_)) | None => {
                let tell = || {
                    let follower = follower.clone();
                    move || follower.news(index, true)
                };
                self.read(request, &position, max_bytes, tell, gathered)?
            }
        };
        self.told = Some(request);
        let bytes = match &outcome {
            ReplicaFetchOutcome::Records { records, .. } => records.len,
            _ => 0,
        };
        let echo = PositionEcho {
            czxid: position.incarnation.czxid,
            leader_epoch: position.leader_epoch,
            last_epoch: position.last_epoch,
            log_end: position.log_end,
        };
        gathered.partitions.push(ReplicaFetchPartition { index, echo, outcome });
        Some(bytes)
    }

    /// What there is at this position; `None` if it is nothing, or nothing yet: `tell` makes what is called when there is more.
    fn read<T: Fn() + Send + Sync + 'static>(
        &mut self,
        request: u64,
        position: &FetchPosition,
        max_bytes: usize,
        tell: impl Fn() -> T,
        gathered: &mut Gathered,
    ) -> Option<ReplicaFetchOutcome<RecordSlot>> {
        let hosted = self.hosted.clone()?;
        let warming = self.warming.take();
        if warming.as_ref().is_some_and(|warming| !warming.is_over()) {
            self.warming = warming;
            return None;
        }
        let refused = |condition: &Condition| {
            Some(ReplicaFetchOutcome::Refused { error_code: error_code(condition) })
        };
        let wait = if self.cold_reads < COLD_LOOKS_MAX { Wait::Never } else { Wait::ForDisk };
        let read = match hosted.read_for_follower(position, max_bytes, wait) {
            Ok(read) => read,
            Err(condition) => return refused(&condition),
        };
        let Readable { high_watermark, log_start, roll_call, looked } = read;
        let (range, cold) = match looked {
            Looked::Cold(cold) => (None, Some(cold)),
            Looked::Found(range) if wait == Wait::ForDisk => (range, None),
            Looked::Found(range) => {
                let cold = range.as_ref().and_then(ReadRange::cold);
                (range, cold)
            }
        };
        if let Some(cold) = cold {
            if warming.is_some_and(|warming| warming.has_failed(&hosted.topic_partition)) {
                return refused(&Condition::KafkaStorageError);
            }
            self.warming = Warming::begin(vec![(hosted, cold)], tell());
            if self.warming.is_some() {
                self.cold_reads += 1;
                return None;
            }
            // Too many wait for that disk: then this one waits for it here.
            self.cold_reads = COLD_LOOKS_MAX;
            return self.read(request, position, max_bytes, tell, gathered);
        }
        self.cold_reads = 0;
        let (sent, _) = self.roll_call_sent;
        let calls = roll_call > sent && self.roll_call_heard == sent;
        let news =
            calls || high_watermark > self.high_watermark_sent || log_start > self.log_start_sent;
        if range.is_none() && !news {
            return None;
        }
        let records = match range.map(|range| gathered.read(&hosted, &range)).transpose() {
            Ok(slot) => slot.unwrap_or(RecordSlot { slot: 0, len: 0 }),
            Err(condition) => return refused(&condition),
        };
        // The bytes were read without the partition's lock: they are this epoch's only if this broker still leads in it.
        if records.len > 0 && !hosted.leads_in(position.leader_epoch) {
            return refused(&Condition::NotLeaderOrFollower);
        }
        hosted.traffic.copied_out(records.len as u64);
        self.high_watermark_sent = high_watermark;
        self.log_start_sent = log_start;
        if calls {
            self.roll_call_sent = (roll_call, request);
        }
        Some(ReplicaFetchOutcome::Records { high_watermark, log_start, records })
    }
}

/// The answer under way.
#[derive(Default)]
struct Gathered {
    partitions: Vec<ReplicaFetchPartition<RecordSlot>>,
    ranges: Vec<Piece>,
}

impl Gathered {
    fn read(&mut self, hosted: &Arc<Hosted>, range: &ReadRange) -> Result<RecordSlot, Condition> {
        let piece = Piece::of_range(range).map_err(|error| hosted.range_unreadable(&error))?;
        let slot = RecordSlot { slot: self.ranges.len(), len: piece.len() };
        self.ranges.push(piece);
        Ok(slot)
    }

    fn finish(self, correlation_id: i32) -> Result<Vec<Piece>, String> {
        let reply: ReplicaFetchReply =
            ReplicaFetchResponse { error_code: 0, partitions: self.partitions };
        let segments = reply.encode(correlation_id).map_err(|error| error.to_string())?;
        Ok(splice(segments.parts, &self.ranges))
    }
}

#[cfg(test)]
#[path = "replica_session_tests.rs"]
mod tests;
