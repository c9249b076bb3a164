//! What the cleanup threads do with one partition: rolling by age, retention, forgetting producers, compaction.
//!
//! Files are read and written without the partition's lock; under it are decisions and, at a roll, the making of a file.

use barnabas_log::{CompactionPlan, Log, LogError};
use barnabas_replica::Event;
use barnabas_types::Now;

use super::aftermath::Aftermath;
use super::hosted::Hosted;
use super::inner::{Inner, Input};

impl Hosted {
    /// One look: rolls an active segment that is old enough, and lets go what retention says; the log start moves once that is durable, on every replica by itself and never above its high watermark (R32).
    /// `wall_ms`: the broker's clock, milliseconds since 1970.
    pub fn clean(&self, now: Now, wall_ms: i64, after: &mut Aftermath) {
        let (plan, log_start_max) = {
            let mut inner = self.lock();
            if inner.closed || inner.log.is_fenced() {
                return;
            }
            let rolled = inner.log.roll_if_due(wall_ms).map(|rolled| rolled.then_some(()));
            inner.rolled(self, now, rolled, after);
            (inner.log.retention_plan(), inner.replica.log_start_max())
        };
        let Some(plan) = plan else { return };
        let point = plan.point(wall_ms, log_start_max);
        let mut inner = self.lock();
        if inner.closed || inner.log.is_fenced() {
            return;
        }
        let segments = inner.log.segment_count();
        let settled = match point {
            Ok(Some(point)) => inner.log.settle_retention(&plan, point),
            Ok(None) => return,
            Err(error) => Err(error),
        };
        let rolled = inner.log.segment_count() > segments;
        match settled {
            Ok(to) => {
                inner.rolled(self, now, Ok(rolled.then_some(())), after);
                if let Some(to) = to {
                    inner.step(self, now, Event::RetentionReached { to }, Input::None, after);
                }
            }
            Err(error) => inner.rolled(self, now, Err(error), after),
        }
    }

    /// What compaction has to look at, and the right to compact this log; `None` if there is nothing.
    pub(crate) fn compaction_plan(&self) -> Option<CompactionPlan> {
        let inner = self.lock();
        if inner.closed {
            return None;
        }
        let high_watermark = inner.replica.high_watermark();
        inner.log.compaction_plan(high_watermark)
    }

    /// The log under its lock, for a compaction that swaps segments.
    pub(crate) fn with_log_to_compact(&self, work: &mut dyn FnMut(&mut Log)) {
        work(&mut self.lock().log);
    }

    /// A compaction ended with an error: where it has left the log fenced, the partition is; and where the disk does not give what was
    /// written, or takes no more of it.
    pub(crate) fn compaction_failed(&self, now: Now, error: &LogError, after: &mut Aftermath) {
        let mut inner = self.lock();
        if inner.log.is_fenced() && !inner.closed {
            inner.failed(self, now, None, error, after);
        } else if error.is_disk_fault() {
            inner.read_failed(self, now, error, after);
        }
    }
}

impl Inner {
    /// A roll outside of an append: what was sealed is flushed soon. A shortage changes nothing.
    fn rolled(
        &mut self,
        hosted: &Hosted,
        now: Now,
        rolled: Result<Option<()>, LogError>,
        after: &mut Aftermath,
    ) {
        match rolled {
            Ok(None) => {}
            Ok(Some(())) => {
                self.flushing.sealed();
                self.ask_for_flush(now, after);
            }
            Err(error) if error.shortage().is_some() || matches!(error, LogError::Fenced) => {}
            Err(error) => self.failed(hosted, now, None, &error, after),
        }
    }
}
