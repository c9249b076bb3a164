//! When to look at a partition again for `flush.ms`: one thread for a data directory, asleep until the next time is due.

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use barnabas_types::Now;

use crate::partition::Hosted;

/// Times with the partitions to look at. A partition has one time that counts, and another only where its setting was
/// lowered meanwhile.
#[derive(Default)]
pub(super) struct Timer {
    state: Mutex<State>,
    wake: Condvar,
}

#[derive(Default)]
struct State {
    /// By time and then by number, so that equal times do not replace one another.
    due: BTreeMap<(Now, u64), Weak<Hosted>>,
    next: u64,
    stopped: bool,
}

impl Timer {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn add(&self, at: Now, hosted: &Arc<Hosted>) {
        let mut state = self.lock();
        let earliest = state.due.first_key_value().is_none_or(|((first, _), _)| at < *first);
        let number = state.next;
        state.next += 1;
        state.due.insert((at, number), Arc::downgrade(hosted));
        drop(state);
        if earliest {
            self.wake.notify_one();
        }
    }

    /// The next partition whose time has come, and that time; `None` when stopped. `now` reads the clock, `None`: the broker
    /// is gone.
    pub(super) fn take(&self, now: impl Fn() -> Option<Now>) -> Option<(Now, Arc<Hosted>)> {
        let mut state = self.lock();
        loop {
            if state.stopped {
                return None;
            }
            let Some(&(at, number)) = state.due.keys().next() else {
                state = self.wake.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            let left_ms = at.0.saturating_sub(now()?.0);
            if left_ms > 0 {
                let waited = self.wake.wait_timeout(state, Duration::from_millis(left_ms));
                state = waited.unwrap_or_else(PoisonError::into_inner).0;
            } else if let Some(hosted) = state.due.remove(&(at, number)).and_then(|h| h.upgrade()) {
                return Some((at, hosted));
            }
        }
    }

    pub(super) fn stop(&self) {
        self.lock().stopped = true;
        self.wake.notify_one();
    }
}
