//! What consumers and followers read of a partition, and how consumers hear of more.

use std::io;
use std::sync::Arc;

use barnabas_log::{ColdRead, LogError, Looked, ProducerBatch, ReadRange, Wait};
use barnabas_replica::{ConsumerView, Event, FetchPosition, Role};
use barnabas_types::{Condition, LeaderEpoch, Now, Offset};

use super::aftermath::{Aftermath, Flush};
use super::hosted::{Hosted, WATCHERS_MAX};
use super::inner::{Inner, Input};
use super::ready::Ready;
use super::waiting::ParkedFetch;

/// What a consumer wants to read of a partition.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ConsumerRead {
    /// From this offset on, inclusive.
    pub from: Offset,
    /// The leader epoch that it knows, if it says so (KIP-320).
    pub current_leader_epoch: Option<LeaderEpoch>,
    /// The epoch of the last record that it has read, if it says so (KIP-595).
    pub last_fetched_epoch: Option<LeaderEpoch>,
    /// Most bytes; 0: none. A single batch may be larger.
    pub max_bytes: usize,
    /// The roll call that was made for this request ([`Hosted::wait_for_roll_call`]).
    pub roll_call: Option<u64>,
}

impl ConsumerRead {
    /// From `from` on, by who says nothing about epochs.
    #[must_use]
    pub fn at(from: Offset, max_bytes: usize) -> Self {
        Self {
            from,
            current_leader_epoch: None,
            last_fetched_epoch: None,
            max_bytes,
            roll_call: None,
        }
    }
}

/// A range of a partition that may be read after the lock is released.
pub struct ReadSlice {
    /// What the partition looked like at that instant.
    pub view: ConsumerView,
    /// The bytes, if there are any.
    pub range: Option<ReadRange>,
    /// There are some, but where they lie is not in memory; then there is no range.
    pub cold: Option<ColdRead>,
    /// The consumer has read records that this log does not have: the largest epoch here that is not above its last one, and
    /// that epoch's exclusive end (KIP-595). There is no range then.
    pub diverging: Option<(LeaderEpoch, Offset)>,
    /// What is asked for is not in this log, but whether that is because this broker was deposed is not known: to be asked
    /// again after a roll call. There is no range then, and no watcher was left.
    pub doubted: bool,
    /// The watcher has been left here, or was there already.
    pub watched: bool,
}

/// What a leader has for a follower.
pub struct Readable {
    /// Exclusive end of what is committed.
    pub high_watermark: Offset,
    /// First offset, inclusive.
    pub log_start: Offset,
    /// The roll call that the answer makes known ([`barnabas_replica::Replica::roll_call`]).
    pub roll_call: u64,
    /// Records from the follower's log end on, if there are any, or what must be read of the disk first.
    pub looked: Looked,
}

impl Hosted {
    /// What there is for a follower that stands at `position` and was granted before. Waits for the disk as it is told, with the
    /// partition's lock.
    ///
    /// # Errors
    /// If this broker does not lead in that epoch any more.
    pub fn read_for_follower(
        self: &Arc<Self>,
        position: &FetchPosition,
        max_bytes: usize,
        wait: Wait,
    ) -> Result<Readable, Condition> {
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
        let looked = if position.log_end < end {
            match inner.log.look(position.log_end, end, max_bytes, wait) {
                Ok(looked) => looked,
                Err(error) => {
                    drop(inner);
                    return Err(self.unreadable(&error));
                }
            }
        } else {
            Looked::Found(None)
        };
        Ok(Readable {
            high_watermark: inner.replica.high_watermark(),
            log_start: inner.replica.log_start(),
            roll_call: inner.replica.roll_call(),
            looked,
        })
    }

    /// What a consumer may read: one snapshot of view and range. `watcher` is told of the next news after it. Waits for the
    /// disk as it is told, with the partition's lock.
    ///
    /// # Errors
    /// As [`Hosted::consumer_view`], and `OffsetOutOfRange`, also if the consumer's last epoch is one that this log never had;
    /// but for what is below the log start only after a roll call, if there is anybody to call.
    pub fn read_for_consumer(
        self: &Arc<Self>,
        read: &ConsumerRead,
        watcher: Option<(&Arc<Ready>, u32)>,
        wait: Wait,
    ) -> Result<ReadSlice, Condition> {
        let mut inner = self.lock();
        let view = inner.replica.consumer_view(read.current_leader_epoch)?;
        let out_of_range = Condition::OffsetOutOfRange {
            asked: read.from,
            start: view.log_start,
            end: view.high_watermark,
        };
        if read.from < view.log_start {
            return Err(out_of_range);
        }
        let diverging = match read.last_fetched_epoch {
            Some(last) => inner.diverging(read.from, last),
            None => Ok(None),
        };
        let diverging = match diverging {
            Ok(None) if read.from > view.log_end => Err(()),
            other => other,
        };
        let Ok(diverging) = diverging else {
            let doubted = inner.replica.doubts_end(read.roll_call);
            let nothing = ReadSlice {
                view,
                range: None,
                cold: None,
                diverging: None,
                doubted,
                watched: false,
            };
            return if doubted { Ok(nothing) } else { Err(out_of_range) };
        };
        let wanted = diverging.is_none() && read.from < view.high_watermark && read.max_bytes > 0;
        let looked = if wanted {
            match inner.log.look(read.from, view.high_watermark, read.max_bytes, wait) {
                Ok(looked) => looked,
                Err(error) => {
                    drop(inner);
                    return Err(self.unreadable(&error));
                }
            }
        } else {
            Looked::Found(None)
        };
        let (range, cold) = match looked {
            Looked::Found(range) => (range, None),
            Looked::Cold(cold) => (None, Some(cold)),
        };
        let watched = watcher.is_some_and(|(ready, index)| inner.watch(ready, index));
        Ok(ReadSlice { view, range, cold, diverging, doubted: false, watched })
    }

    /// What was to be read cannot be: what whoever wanted it is told. If it is the disk that does not give it, this replica is of no
    /// use any more, and its directory is looked at, as after a write that failed. Takes the partition's lock.
    pub fn unreadable(self: &Arc<Self>, error: &LogError) -> Condition {
        let (topic, partition) = (&self.topic_partition.topic, self.topic_partition.partition);
        let leader_epoch = self.leader_epoch();
        tracing::error!(target: "state_change", %topic, partition, %leader_epoch, %error, "a log cannot be read");
        if error.is_disk_fault()
            && let Some(outward) = self.flusher.outward()
        {
            let mut after = Aftermath::default();
            self.lock().read_failed(self, outward.now(), error, &mut after);
            after.settle(self, &*outward, &mut Flush::default());
        }
        Condition::KafkaStorageError
    }

    /// [`Hosted::unreadable`], of a read of a range of its files.
    pub fn range_unreadable(self: &Arc<Self>, error: &io::Error) -> Condition {
        let source =
            error.raw_os_error().map_or_else(|| error.kind().into(), io::Error::from_raw_os_error);
        let path = self.directory.path().join(self.topic_partition.to_string());
        self.unreadable(&LogError::Io { what: "read", path, source })
    }

    /// `fetch` is for what this log does not have: it is fired once the maximal ISR has answered the roll call `call`, which is
    /// made now if none was made for this request, or when the role changes. Returns the call's number.
    pub fn wait_for_roll_call(
        &self,
        now: Now,
        call: Option<u64>,
        fetch: &Arc<ParkedFetch>,
        after: &mut Aftermath,
    ) -> u64 {
        let mut inner = self.lock();
        inner.doubting.retain(|f| !f.is_fired());
        if inner.doubting.len() < WATCHERS_MAX {
            inner.doubting.push(fetch.clone());
        }
        let call = call.unwrap_or_else(|| {
            inner.step(self, now, Event::RollCall, Input::None, after);
            inner.replica.roll_call()
        });
        if !inner.replica.doubts_end(Some(call)) {
            after.due_fetches.push(fetch.clone());
        }
        call
    }

    /// Bytes of the log's files, and how far its end is behind the HW.
    pub fn size_and_lag(&self) -> (u64, i64) {
        let inner = self.lock();
        let lag = inner.replica.high_watermark().0 - inner.log.log_end().0;
        (inner.log.size_bytes(), lag.max(0))
    }

    /// When the record at `offset`, or the first after it, was written, ms of Unix time, by the timestamp of its batch's first record.
    /// `None`: it does not lead, has no such record, something holds its lock, or the disk does not tell. Index lookups; no batch is
    /// opened.
    pub fn written_at(&self, offset: Offset) -> Option<i64> {
        let inner = self.try_lock().ok()?;
        let view = inner.replica.consumer_view(None).ok()?;
        if offset >= view.high_watermark {
            return None;
        }
        // A disk that fails is noticed by those who read and write there.
        let found = inner.log.offset_for_timestamp(0, offset.max(view.log_start)).ok()??;
        Some(found.first_timestamp())
    }

    /// What is remembered of idempotent producers: by producer id, the batches of each oldest first.
    ///
    /// # Errors
    /// Not the leader.
    pub fn producers(&self) -> Result<Vec<ProducerBatch>, Condition> {
        let inner = self.lock();
        match inner.replica.role() {
            Role::Leader { .. } => Ok(inner.log.producer_batches().collect()),
            _ => Err(Condition::NotLeaderOrFollower),
        }
    }

    /// The session's entry is over, or the session: no news for it any more.
    pub fn unwatch(&self, ready: &Arc<Ready>, index: u32) {
        self.lock().watchers.retain(|(r, i)| !(Arc::ptr_eq(r, ready) && *i == index));
        ready.unwatched(index);
    }

    /// Fetch sessions of clients that want news.
    #[cfg(test)]
    pub(crate) fn watchers(&self) -> usize {
        self.lock().watchers.len()
    }
}

impl Inner {
    /// Whether a consumer whose last record below `from` is of epoch `last` has read what is not in this log: the largest epoch
    /// here that is not above `last`, and its exclusive end. `Err`: `last` is newer than all that this log ever knew.
    fn diverging(
        &self,
        from: Offset,
        last: LeaderEpoch,
    ) -> Result<Option<(LeaderEpoch, Offset)>, ()> {
        let epochs = self.replica.epochs();
        if epochs.latest().is_some_and(|latest| last > latest) {
            return Err(());
        }
        let (epoch, end) = match epochs.end_offset_for(last, self.replica.log_end()) {
            Some(found) => found,
            // Of an epoch whose records are all deleted: it ended where the first that is left begins, at the latest.
            None => match epochs.entries().first() {
                Some(first) => (last, first.start_offset),
                None => return Ok(None),
            },
        };
        Ok((epoch < last || end < from).then_some((epoch, end)))
    }

    fn watch(&mut self, ready: &Arc<Ready>, index: u32) -> bool {
        if self.watchers.len() >= WATCHERS_MAX {
            return self.watchers.iter().any(|(r, i)| Arc::ptr_eq(r, ready) && *i == index);
        }
        if ready.watch(index) {
            self.watchers.push((ready.clone(), index));
        }
        true
    }
}
