//! What a coordinator is told and must not miss: results of its writes, connections that are gone, topics that were deleted.
//!
//! Nobody who tells it may wait, and nothing may be refused, so the queue has no bound of its own. Its length is bounded by
//! what the coordinator has ordered or taken: one result a write under way (`barnabas_group::WRITES_MAX`), one end a request
//! (`INBOX_MAX` and what waits in the groups), and the topics that there are.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use barnabas_group::{AppendError, Waiter, WriteId};
use tokio::sync::Notify;

/// See the module's head.
pub(super) enum Signal {
    /// `attempt`: of which reading of the partition the write is.
    Appended {
        attempt: u64,
        write: WriteId,
        result: Result<(), AppendError>,
    },
    Gone(Waiter),
    TopicsDeleted(Vec<Arc<str>>),
}

/// The queue; one coordinator takes from it.
#[derive(Default)]
pub(super) struct Signals {
    queue: Mutex<VecDeque<Signal>>,
    wake: Notify,
}

impl Signals {
    fn lock(&self) -> MutexGuard<'_, VecDeque<Signal>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn send(&self, signal: Signal) {
        self.lock().push_back(signal);
        self.wake.notify_one();
    }

    /// The next one, if there is one.
    pub(super) fn next(&self) -> Option<Signal> {
        self.lock().pop_front()
    }

    /// Waits for the next one; may be dropped while it waits.
    pub(super) async fn taken(&self) -> Signal {
        loop {
            if let Some(signal) = self.next() {
                return signal;
            }
            self.wake.notified().await;
        }
    }
}
