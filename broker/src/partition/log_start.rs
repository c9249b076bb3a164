//! What moves a partition's log start: retention, deletions asked for by clients, and the completion of both.

use barnabas_log::{Detached, LogError};
use barnabas_replica::{Event, WaiterId};
use barnabas_types::{Condition, Now, Offset};
use tokio::sync::oneshot;

use super::aftermath::Aftermath;
use super::hosted::Hosted;
use super::inner::Input;

/// What became of a deletion: the low watermark of the partition.
pub type DeleteResult = Result<Offset, Condition>;

/// A deletion under way.
#[derive(Debug)]
pub struct Deletion {
    waiter: WaiterId,
    /// The result. Closed without one if the replica ends.
    pub done: oneshot::Receiver<DeleteResult>,
}

impl Hosted {
    /// How far retention may raise the log start (R32).
    pub fn log_start_max(&self) -> Offset {
        self.lock().replica.log_start_max()
    }

    /// Retention lets everything below `to` go.
    pub fn retention_reached(&self, now: Now, to: Offset, after: &mut Aftermath) {
        self.lock().step(self, now, Event::RetentionReached { to }, Input::None, after);
    }

    /// The log start `to` that was ordered is durable.
    pub fn log_start_durable(&self, now: Now, to: Offset, after: &mut Aftermath) {
        let mut inner = self.lock();
        let before = inner.replica.log_start();
        inner.step(self, now, Event::LogStartDurable { to }, Input::None, after);
        if inner.replica.log_start() != before {
            // A deletion may wait for those who follow, or for this follower.
            after.news.extend(inner.sessions.iter().map(|(s, i)| (s.clone(), *i, true)));
            inner.tell_watchers(Some(0), after);
            after.position = inner.replica.role().leader();
        }
    }

    /// The log start that was ordered cannot be made durable: like a log that fails.
    pub(crate) fn log_start_failed(&self, now: Now, error: &LogError, after: &mut Aftermath) {
        self.lock().failed(self, now, None, error, after);
    }

    /// Takes the segments out of the log that lie below its durable start; their files are the caller's to remove.
    pub(crate) fn detach_below_start(&self) -> Detached {
        self.lock().log.detach_below_start()
    }

    /// A client wants everything below `to` deleted (`None`: below the HW).
    pub fn delete_records(&self, now: Now, to: Option<Offset>, after: &mut Aftermath) -> Deletion {
        let (sender, done) = oneshot::channel();
        let mut inner = self.lock();
        let waiter = inner.next_waiter();
        inner.deletions.insert(waiter, sender);
        let event = Event::DeleteRecords { waiter, to };
        inner.step(self, now, event, Input::None, after);
        Deletion { waiter, done }
    }

    /// The deletion is older than its timeout: it ends, unless it has ended already.
    pub fn time_out_deletion(&self, now: Now, deletion: &Deletion, after: &mut Aftermath) {
        let event = Event::WaiterTimedOut { waiter: deletion.waiter };
        self.lock().step(self, now, event, Input::None, after);
    }
}
