//! Which partitions of a client's fetch session have news (KIP-227): an idle one is neither looked at nor woken for.
//!
//! A look at a partition leaves a watcher there. The first news takes it out again, unless the session's fetch waits for more
//! bytes than that; so a session that nobody uses costs each of its partitions one piece of news, and a partition without
//! news costs the session nothing. A leaf lock: news come under the partition's lock, and nothing is locked under it.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::waiting::ParkedFetch;

/// The partitions of one session, by their numbers in it, that are to be looked at.
#[derive(Default)]
pub struct Ready(Mutex<State>);

#[derive(Default)]
struct State {
    /// In the order in which they are looked at.
    queue: VecDeque<u32>,
    /// By number: whether it is in the queue.
    queued: Vec<bool>,
    /// By number: whether a partition has a watcher for it.
    watched: Vec<bool>,
    /// The session's fetch that waits for bytes.
    parked: Option<Arc<ParkedFetch>>,
    closed: bool,
}

/// What a partition does after it has told its news.
#[derive(Default)]
pub(super) struct Told {
    /// The watcher stays.
    pub keep: bool,
    /// To be fired once the partition's lock is released.
    pub due: Option<Arc<ParkedFetch>>,
}

impl State {
    fn push(&mut self, index: u32) {
        let place = flag(&mut self.queued, index);
        if !std::mem::replace(place, true) {
            self.queue.push_back(index);
        }
    }
}

fn flag(flags: &mut Vec<bool>, index: u32) -> &mut bool {
    let index = index as usize;
    if index >= flags.len() {
        flags.resize(index + 1, false);
    }
    &mut flags[index]
}

impl Ready {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// So many bytes more can be read of `index`; `None`: everything about it may be different, and nobody shall wait.
    pub(super) fn news(&self, index: u32, bytes: Option<usize>) -> Told {
        let mut state = self.lock();
        if state.closed {
            return Told::default();
        }
        state.push(index);
        let told = match (&state.parked, bytes) {
            (None, _) => Told::default(),
            (Some(parked), None) => Told { keep: false, due: Some(parked.clone()) },
            (Some(parked), Some(bytes)) => {
                let due = parked.gather(bytes).then(|| parked.clone());
                Told { keep: due.is_none() && parked.is_waiting(), due }
            }
        };
        if !told.keep {
            *flag(&mut state.watched, index) = false;
        }
        told
    }

    /// A partition wants to leave a watcher for `index`: `false` if one is there, or the session is over.
    pub(super) fn watch(&self, index: u32) -> bool {
        let mut state = self.lock();
        !state.closed && !std::mem::replace(flag(&mut state.watched, index), true)
    }

    /// The watcher of `index` is gone.
    pub fn unwatched(&self, index: u32) {
        *flag(&mut self.lock().watched, index) = false;
    }

    /// Looks at `index` next time, after those that wait already.
    pub fn add(&self, index: u32) {
        self.lock().push(index);
    }

    /// Everything that is to be looked at now. News that come from now on are for the next time.
    pub fn take(&self) -> VecDeque<u32> {
        let mut state = self.lock();
        let taken = std::mem::take(&mut state.queue);
        for index in &taken {
            *flag(&mut state.queued, *index) = false;
        }
        taken
    }

    /// What is to be looked at again: `first` before everything, because there was no room for it, and `last` after everything.
    pub fn give_back(&self, first: &[u32], last: &[u32]) {
        let mut state = self.lock();
        let came = std::mem::take(&mut state.queue);
        for index in &came {
            *flag(&mut state.queued, *index) = false;
        }
        for index in first.iter().chain(&came).chain(last) {
            state.push(*index);
        }
    }

    /// The fetch that waits from now on, or none; returns the one that did.
    pub fn park(&self, parked: Option<Arc<ParkedFetch>>) -> Option<Arc<ParkedFetch>> {
        std::mem::replace(&mut self.lock().parked, parked)
    }

    /// The session is over: news are not wanted any more. Returns the fetch that waited.
    pub fn close(&self) -> Option<Arc<ParkedFetch>> {
        let mut state = self.lock();
        *state = State { closed: true, parked: state.parked.take(), ..State::default() };
        state.parked.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::connection;

    #[tokio::test]
    async fn the_first_news_takes_the_watcher_out_unless_the_fetch_waits_for_more() {
        let (out, _client) = connection().await;
        let ready = Ready::default();
        assert!(ready.watch(3) && !ready.watch(3), "one watcher a partition");
        assert!(!ready.news(3, Some(10)).keep, "nobody waits");
        assert!(ready.watch(3));
        let parked = Arc::new(ParkedFetch::new(out, 100, 0));
        ready.park(Some(parked));
        let told = ready.news(3, Some(60));
        assert!(told.keep && told.due.is_none());
        let told = ready.news(3, Some(60));
        assert!(!told.keep && told.due.is_some(), "100 bytes have come");
        assert_eq!(ready.take(), [3], "once, whatever came");
        assert!(ready.news(4, None).due.is_some());
    }

    #[test]
    fn what_had_no_room_comes_first_and_what_was_answered_last() {
        let ready = Ready::default();
        (0..4).for_each(|index| ready.add(index));
        assert_eq!(ready.take(), [0, 1, 2, 3]);
        ready.news(1, Some(1));
        ready.news(7, Some(1));
        ready.give_back(&[2, 3], &[0, 1]);
        assert_eq!(ready.take(), [2, 3, 1, 7, 0]);
        ready.close();
        assert!(!ready.watch(1), "a session that is over wants nothing");
        assert!(ready.news(1, None).due.is_none() && ready.take().is_empty());
    }
}
