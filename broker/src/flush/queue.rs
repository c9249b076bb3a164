//! Which partition is flushed next, and how many together.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use barnabas_types::{Offset, TopicPartition};

use crate::partition::{Hosted, Urgency};

/// Threads for each data directory: one for each piece of work that may be under way.
pub(super) const THREADS: usize = AWAITED_MAX + BACKGROUND_MAX + 1;
/// Syncs at the same time for which producers wait; the kernel merges them into fewer flushes of the device, and what comes
/// meanwhile gathers. 64 producers on 8 partitions, commits a second on a shared disk and on one that flushes slowly:
/// 4 at a time 26,500 and 3,000, 8 at a time 18,400 and 2,000 (`benches/flush.rs`).
const AWAITED_MAX: usize = 4;
/// More partitions than this that wait for a turn are made durable by one syncfs. 64 producers on 64 partitions, commits a
/// second and CPU for each: syncfs 3,200 and 60 µs, single files 600 and 200 µs on a file system of its own; 7,000 either
/// way, 60 and 140 µs, on one that holds much that is not ours and is flushed with it.
const PARALLEL_MAX: usize = 4;
/// Threads that may at the same time do what nobody waits for.
const BACKGROUND_MAX: usize = 3;

/// How long log starts wait after a full disk has refused them.
const FULL_RETRY: Duration = Duration::from_secs(1);

/// Partitions and where their logs are to begin; each stands here once, so it is bounded by what this broker hosts.
pub(super) type Starts = BTreeMap<TopicPartition, (Arc<Hosted>, Offset)>;

/// What one thread does next.
pub(super) enum Work {
    /// Sync the files of one partition.
    One(Arc<Hosted>),
    /// Sync the file system for all of these.
    Group(Vec<Arc<Hosted>>),
    /// Write the directory's log starts, for these.
    Starts(Starts),
}

/// A piece of work that was taken; dropped when it is done, also by a panic.
pub(super) struct Turn<'a> {
    queue: &'a Queue,
    kind: Kind,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Awaited,
    Group,
    Background,
    Starts,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.queue.done(self.kind);
    }
}

/// Partitions that wait for their flush. Each asks once until it is flushed, so the lists are bounded by what this broker
/// hosts.
#[derive(Default)]
pub(super) struct Queue {
    state: Mutex<State>,
    wake: Condvar,
}

#[derive(Default)]
struct State {
    awaited: VecDeque<Arc<Hosted>>,
    awaited_running: usize,
    background: VecDeque<Arc<Hosted>>,
    background_running: usize,
    /// A syncfs is under way. What else is awaited gathers for the next one, or its files would be synced twice.
    group_running: bool,
    /// Log starts that were ordered and are not being written yet.
    starts: Starts,
    /// They are being written: one checkpoint is enough, and in order.
    starts_running: bool,
    /// Not before this: there was no room on the disk.
    starts_at: Option<Instant>,
    stopped: bool,
}

impl State {
    /// Work that may begin now.
    fn kind(&self) -> Option<Kind> {
        let awaited = !self.group_running && self.awaited_running < AWAITED_MAX;
        if awaited && self.awaited.len() > PARALLEL_MAX {
            Some(Kind::Group)
        } else if awaited && !self.awaited.is_empty() {
            Some(Kind::Awaited)
        } else if self.starts_due(Instant::now()) == Some(Duration::ZERO) {
            Some(Kind::Starts)
        } else if self.background_running < BACKGROUND_MAX && !self.background.is_empty() {
            Some(Kind::Background)
        } else {
            None
        }
    }

    fn take(&mut self) -> Option<(Work, Kind)> {
        let kind = self.kind()?;
        let work = match kind {
            Kind::Group => {
                self.awaited_running += 1;
                self.group_running = true;
                Work::Group(self.awaited.drain(..).collect())
            }
            Kind::Awaited => {
                self.awaited_running += 1;
                Work::One(self.awaited.pop_front()?)
            }
            Kind::Starts => {
                self.starts_running = true;
                Work::Starts(std::mem::take(&mut self.starts))
            }
            Kind::Background => {
                self.background_running += 1;
                Work::One(self.background.pop_front()?)
            }
        };
        Some((work, kind))
    }

    /// How long from now until log starts are to be written; `None`: there are none, or that is under way.
    fn starts_due(&self, now: Instant) -> Option<Duration> {
        let waiting = !self.starts.is_empty() && !self.starts_running;
        waiting
            .then(|| self.starts_at.map_or(Duration::ZERO, |at| at.saturating_duration_since(now)))
    }
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn add(&self, hosted: &Arc<Hosted>, urgency: Urgency) {
        let mut state = self.lock();
        match urgency {
            Urgency::Awaited => state.awaited.push_back(hosted.clone()),
            Urgency::Background => state.background.push_back(hosted.clone()),
        }
        self.wake_for_next(state);
    }

    /// Wakes a thread if there is work that may begin. What may not gathers until other work is done.
    fn wake_for_next(&self, state: MutexGuard<'_, State>) {
        let next = state.kind().is_some();
        drop(state);
        if next {
            self.wake.notify_one();
        }
    }

    /// The next piece of work, waiting for one; `None` when stopped.
    pub(super) fn take(&self) -> Option<(Work, Turn<'_>)> {
        let mut state = self.lock();
        loop {
            if state.stopped {
                return None;
            }
            if let Some((work, kind)) = state.take() {
                // Each wakes the next, as long as there is something to do.
                self.wake_for_next(state);
                return Some((work, Turn { queue: self, kind }));
            }
            state = match state.starts_due(Instant::now()) {
                Some(left) => {
                    let waited = self.wake.wait_timeout(state, left);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
                None => self.wake.wait(state).unwrap_or_else(PoisonError::into_inner),
            };
        }
    }

    /// The partition's log is to begin at `to`, durably.
    pub(super) fn add_start(&self, hosted: &Arc<Hosted>, to: Offset) {
        let mut state = self.lock();
        state.starts.insert(hosted.topic_partition.clone(), (hosted.clone(), to));
        let running = state.starts_running;
        drop(state);
        if !running {
            self.wake.notify_one();
        }
    }

    /// The log starts are written, or could not be for want of room (`again`): then they are tried again, but for what was
    /// ordered meanwhile.
    pub(super) fn starts_done(&self, again: Starts) {
        let mut state = self.lock();
        state.starts_running = false;
        state.starts_at = (!again.is_empty()).then(|| Instant::now() + FULL_RETRY);
        for (tp, start) in again {
            state.starts.entry(tp).or_insert(start);
        }
        drop(state);
        self.wake.notify_one();
    }

    fn done(&self, kind: Kind) {
        let mut state = self.lock();
        match kind {
            Kind::Awaited => state.awaited_running -= 1,
            Kind::Group => {
                state.awaited_running -= 1;
                state.group_running = false;
            }
            Kind::Background => state.background_running -= 1,
            // Said by `starts_done`, before those are told.
            Kind::Starts => return,
        }
        // Whoever was at it writes answers now.
        self.wake_for_next(state);
    }

    pub(super) fn stop(&self) {
        self.lock().stopped = true;
        self.wake.notify_all();
    }
}
