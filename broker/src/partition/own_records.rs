//! Records that the broker itself writes to a partition that it leads.

use std::sync::Arc;

use barnabas_replica::{Event, Produce, Role};
use barnabas_types::{Acks, Condition, LeaderEpoch, Now};

use super::aftermath::Aftermath;
use super::hosted::Hosted;
use super::inner::{Input, Waiter};
use super::waiting::PendingProduce;

impl Hosted {
    /// Appends a batch of `offsets` records as a producer with acks=all would, but only while this broker leads in `leader_epoch`:
    /// whoever knows what the log held in that epoch must not write on top of what others wrote since. The result goes to
    /// `pending`.
    pub fn append_in_epoch(
        &self,
        now: Now,
        leader_epoch: LeaderEpoch,
        offsets: i64,
        records: &mut [u8],
        pending: &Arc<PendingProduce>,
        after: &mut Aftermath,
    ) {
        let mut inner = self.lock();
        let refused = if inner.replica.role() != (Role::Leader { leader_epoch }) {
            Some(Condition::NotLeaderOrFollower)
        } else if self.directory.refuses_produces() {
            Some(Condition::LogDirFull)
        } else {
            None
        };
        if let Some(condition) = refused {
            after.finished.push((pending.clone(), 0, Err(condition)));
            return;
        }
        let waiter = inner.next_waiter();
        let pending = pending.clone();
        inner.waiters.insert(waiter, Waiter { pending, index: 0, acks_one: 0 });
        inner.leadership.awaits(waiter);
        let event = Event::Produce(Produce { waiter, acks: Acks::All, offsets });
        inner.step(self, now, event, Input::Produced(records), after);
    }
}
