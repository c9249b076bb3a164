//! One fetch session of a client (KIP-227): what it reads, and what it was told. An incremental fetch looks at the partitions
//! that have news or were changed by the client, in turn, and answers those that differ from what was told.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use barnabas_wire::messages::FetchRequest;
use barnabas_wire::{FetchReplyPartition, Records};

use super::super::error_codes::{
    FETCH_SESSION_ID_NOT_FOUND, FETCH_SESSION_TOPIC_ID_ERROR, INVALID_FETCH_SESSION_EPOCH,
};
use super::look::{Earlier, Found, Look, Position, TOPIC_ID_VERSION, Topic};
use crate::node::Node;
use crate::partition::{Hosted, ParkedFetch, Ready};

/// What was told of a partition with an error, so that the end of the error is told too.
const UNKNOWN: i64 = -1;

/// A session. Its lock comes before a partition's.
pub(super) struct Session {
    pub(super) id: i32,
    ready: Arc<Ready>,
    state: Mutex<State>,
}

struct State {
    /// What the next fetch must say.
    epoch: i32,
    /// Whether its topics are named by their ids; that cannot change within a session.
    by_id: bool,
    /// By number, which names the partition in `ready`.
    entries: Vec<Option<Entry>>,
    free: Vec<u32>,
    numbers: BTreeMap<Topic, BTreeMap<i32, u32>>,
    /// Looks at partitions so far: the work that the session has been.
    looks: u64,
    open: bool,
}

struct Entry {
    topic: Topic,
    position: Position,
    told_high_watermark: i64,
    told_log_start: i64,
    /// Who tells of news.
    watched: Weak<Hosted>,
}

impl Entry {
    fn tell(&mut self, reply: &FetchReplyPartition) {
        (self.told_high_watermark, self.told_log_start) = match reply.error_code {
            0 => (reply.high_watermark, reply.log_start_offset),
            _ => (UNKNOWN, UNKNOWN),
        };
    }

    /// Whether a client that knows what it was told learns something.
    fn differs(&self, look: &Look) -> bool {
        look.range.is_some()
            || look.urgent
            || look.reply.high_watermark != self.told_high_watermark
            || look.reply.log_start_offset != self.told_log_start
    }
}

/// The epoch after this one: 0 opens a session, so it is left out.
fn next(epoch: i32) -> i32 {
    epoch.checked_add(1).unwrap_or(1)
}

impl Session {
    /// A session over everything that the request names, of which the client is told `found`.
    pub(super) fn new(id: i32, version: i16, request: &FetchRequest, found: &Found) -> Self {
        let mut state = State {
            epoch: 1,
            by_id: version >= TOPIC_ID_VERSION,
            entries: Vec::new(),
            free: Vec::new(),
            numbers: BTreeMap::new(),
            looks: 0,
            open: true,
        };
        let ready = Arc::new(Ready::default());
        state.set(&ready, version, request);
        for (topic, replies) in &found.topics {
            for reply in replies {
                if let Some(entry) = state.number(topic, reply.index).and_then(|n| state.entry(n)) {
                    entry.tell(reply);
                }
            }
        }
        Self { id, ready, state: Mutex::new(state) }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many partitions it has.
    pub(super) fn partitions(&self) -> usize {
        self.lock().partitions()
    }

    /// Takes the changes of an incremental fetch in. Returns the epoch that its answer belongs to, and the number of
    /// partitions now; a fetch of this session that waits is not the newest any more, and is fired.
    ///
    /// # Errors
    /// Kafka's code for the whole answer.
    pub(super) fn begin(&self, version: i16, request: &FetchRequest) -> Result<(i32, usize), i16> {
        let mut state = self.lock();
        if !state.open {
            return Err(FETCH_SESSION_ID_NOT_FOUND);
        }
        if state.by_id != (version >= TOPIC_ID_VERSION) {
            return Err(FETCH_SESSION_TOPIC_ID_ERROR);
        }
        if state.epoch != request.session_epoch {
            return Err(INVALID_FETCH_SESSION_EPOCH);
        }
        state.epoch = next(state.epoch);
        state.set(&self.ready, version, request);
        for forgotten in &request.forgotten_topics_data {
            let topic = Topic::of(version, &forgotten.topic, forgotten.topic_id);
            for index in &forgotten.partitions {
                state.forget(&self.ready, &topic, *index);
            }
        }
        let begun = (state.epoch, state.partitions());
        let parked = self.ready.park(None);
        drop(state);
        if let Some(parked) = parked {
            parked.fire();
        }
        Ok(begun)
    }

    /// News count for `parked` from now on, unless a fetch came after the one of this epoch: that one's place is not taken.
    pub(super) fn park(&self, epoch: i32, parked: &Arc<ParkedFetch>) {
        let state = self.lock();
        if state.epoch == epoch {
            self.ready.park(Some(parked.clone()));
        }
    }

    /// Looks at what may be different, for an answer of at most `budget` bytes of records. If `answers` says so, the client is
    /// taken to be told of it; otherwise the next look finds it again.
    ///
    /// # Errors
    /// Kafka's code for the whole answer: another fetch of this session came after the one of this epoch, or it is over.
    pub(super) fn look(
        &self,
        node: &Node,
        epoch: i32,
        budget: usize,
        earlier: &Earlier,
        answers: impl FnOnce(&Found) -> bool,
    ) -> Result<(Found, bool), i16> {
        let mut state = self.lock();
        if !state.open {
            return Err(FETCH_SESSION_ID_NOT_FOUND);
        }
        if state.epoch != epoch {
            return Err(INVALID_FETCH_SESSION_EPOCH);
        }
        let mut found = Found::new(budget, earlier);
        let mut queue = self.ready.take();
        let mut looked = Vec::new();
        while !found.is_full()
            && let Some(number) = queue.pop_front()
        {
            looked.extend(state.look_at(&self.ready, node, number, &mut found));
        }
        let answered = answers(&found);
        // What had no room comes first next time, then what comes in meanwhile, then what had its turn.
        let mut first = Vec::new();
        let mut last = Vec::new();
        for Looked { number, reply, again } in looked {
            if let (true, Some(reply), Some(entry)) = (answered, &reply, state.entry(number)) {
                entry.tell(reply);
            }
            let turn = reply.is_some_and(|r| r.error_code != 0 || r.records != Records::Empty);
            if again && answered && turn {
                last.push(number);
            } else if again || (!answered && reply.is_some()) {
                first.push(number);
            }
        }
        first.extend(queue);
        self.ready.give_back(&first, &last);
        Ok((found, answered))
    }

    /// The session is over: no partition tells it anything any more, and a fetch that waits is fired.
    pub(super) fn close(&self) {
        let mut state = self.lock();
        state.open = false;
        let entries = std::mem::take(&mut state.entries);
        state.numbers.clear();
        for (number, entry) in (0..).zip(&entries) {
            if let Some(hosted) = entry.as_ref().and_then(|entry| entry.watched.upgrade()) {
                hosted.unwatch(&self.ready, number);
            }
        }
        let (session_id, looks) = (self.id, state.looks);
        drop(state);
        tracing::debug!(target: "request", session_id, looks, "a fetch session ends");
        if let Some(parked) = self.ready.close() {
            parked.fire();
        }
    }

    #[cfg(test)]
    pub(super) fn looks(&self) -> u64 {
        self.lock().looks
    }
}

/// What became of one look.
struct Looked {
    number: u32,
    /// What the answer says of it, if it says anything.
    reply: Option<FetchReplyPartition>,
    /// To be looked at again, news or not.
    again: bool,
}

impl State {
    fn partitions(&self) -> usize {
        self.entries.len() - self.free.len()
    }

    fn number(&self, topic: &Topic, index: i32) -> Option<u32> {
        self.numbers.get(topic)?.get(&index).copied()
    }

    fn entry(&mut self, number: u32) -> Option<&mut Entry> {
        self.entries.get_mut(number as usize)?.as_mut()
    }

    /// Everything that the request names is to be looked at, from where it says.
    fn set(&mut self, ready: &Ready, version: i16, request: &FetchRequest) {
        for asked in &request.topics {
            let topic = Topic::of(version, &asked.topic, asked.topic_id);
            for partition in &asked.partitions {
                let position = Position::from(partition);
                let number = match self.number(&topic, partition.partition) {
                    Some(number) => number,
                    None => self.place(&topic, position),
                };
                if let Some(entry) = self.entry(number) {
                    entry.position = position;
                }
                ready.add(number);
            }
        }
    }

    fn place(&mut self, topic: &Topic, position: Position) -> u32 {
        let entry = Entry {
            topic: topic.clone(),
            position,
            told_high_watermark: UNKNOWN,
            told_log_start: UNKNOWN,
            watched: Weak::new(),
        };
        // Bounded by SESSION_PARTITIONS_MAX and what one frame can name.
        let number = self.free.pop().unwrap_or(self.entries.len() as u32);
        match self.entries.get_mut(number as usize) {
            Some(place) => *place = Some(entry),
            None => self.entries.push(Some(entry)),
        }
        self.numbers.entry(topic.clone()).or_default().insert(position.partition, number);
        number
    }

    fn forget(&mut self, ready: &Arc<Ready>, topic: &Topic, index: i32) {
        let Some(numbers) = self.numbers.get_mut(topic) else { return };
        let Some(number) = numbers.remove(&index) else { return };
        if numbers.is_empty() {
            self.numbers.remove(topic);
        }
        let entry = self.entries.get_mut(number as usize).and_then(Option::take);
        if let Some(hosted) = entry.and_then(|entry| entry.watched.upgrade()) {
            hosted.unwatch(ready, number);
        }
        self.free.push(number);
    }

    fn look_at(
        &mut self,
        ready: &Arc<Ready>,
        node: &Node,
        number: u32,
        found: &mut Found,
    ) -> Option<Looked> {
        self.looks += 1;
        // `None`: forgotten since.
        let entry = self.entry(number)?;
        if entry.watched.strong_count() == 0 {
            // The replica that had the watcher is gone, with it.
            ready.unwatched(number);
        }
        let look = found.look(node, &entry.topic, &entry.position, Some((ready, number)));
        let again = look.more || look.watched.is_none();
        if let Some(hosted) = &look.watched {
            entry.watched = Arc::downgrade(hosted);
        }
        if !entry.differs(&look) {
            found.warm(look.cold);
            return Some(Looked { number, reply: None, again });
        }
        let topic = entry.topic.clone();
        found.add(&topic, look);
        let reply = found.topics.last().and_then(|(_, replies)| replies.last().copied());
        Some(Looked { number, reply, again })
    }
}
