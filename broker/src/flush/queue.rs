//! Which partition is flushed next, and how many together.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use barnabas_types::{Offset, TopicPartition};

use crate::partition::{Hosted, Urgency};

/// Threads for each data directory: so many files are synced at the same time, which the kernel merges into few flushes of
/// the device. Eight are as good as sixteen.
pub(super) const THREADS: usize = 8;
/// More partitions than this that wait for a flush are made durable by one syncfs: the same commits a second as syncing
/// them in parallel, for a quarter of the CPU.
const PARALLEL_MAX: usize = 16;
/// Threads that may at the same time do what nobody waits for: the others stay free for producers in sync mode.
const BACKGROUND_MAX: usize = 4;

/// How long log starts wait after a full disk has refused them.
const FULL_RETRY: Duration = Duration::from_secs(1);

/// Partitions and where their logs are to begin; each stands here once, so it is bounded by what this broker hosts.
pub(super) type Starts = BTreeMap<TopicPartition, (Arc<Hosted>, Offset)>;

/// What one thread does next.
pub(super) enum Work {
    /// Sync the files of one partition.
    One(Arc<Hosted>, Urgency),
    /// Sync the file system for all of these.
    Group(Vec<Arc<Hosted>>),
    /// Write the directory's log starts, for these.
    Starts(Starts),
}

/// A piece of work that was taken; dropped when it is done, also by a panic.
pub(super) struct Turn<'a> {
    queue: &'a Queue,
    is_group: bool,
    is_background: bool,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.queue.done(self);
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
    fn take(&mut self) -> Option<Work> {
        if !self.group_running {
            if self.awaited.len() > PARALLEL_MAX {
                self.group_running = true;
                return Some(Work::Group(self.awaited.drain(..).collect()));
            }
            if let Some(hosted) = self.awaited.pop_front() {
                return Some(Work::One(hosted, Urgency::Awaited));
            }
        }
        if self.starts_due(Instant::now()) == Some(Duration::ZERO) {
            self.starts_running = true;
            return Some(Work::Starts(std::mem::take(&mut self.starts)));
        }
        if self.background_running < BACKGROUND_MAX
            && let Some(hosted) = self.background.pop_front()
        {
            self.background_running += 1;
            return Some(Work::One(hosted, Urgency::Background));
        }
        None
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
        let gathers = urgency == Urgency::Awaited && state.group_running;
        drop(state);
        if !gathers {
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
            if let Some(work) = state.take() {
                let is_group = matches!(work, Work::Group(_));
                let is_background = matches!(work, Work::One(_, Urgency::Background));
                return Some((work, Turn { queue: self, is_group, is_background }));
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

    fn done(&self, turn: &Turn<'_>) {
        if !turn.is_group && !turn.is_background {
            return;
        }
        let mut state = self.lock();
        state.background_running -= usize::from(turn.is_background);
        state.group_running &= !turn.is_group;
        let gathered = if turn.is_group { state.awaited.len() } else { 0 };
        drop(state);
        // This thread asks for the next piece itself; above the limit that is all there is.
        if (2..=PARALLEL_MAX).contains(&gathered) {
            self.wake.notify_all();
        }
    }

    pub(super) fn stop(&self) {
        self.lock().stopped = true;
        self.wake.notify_all();
    }
}
