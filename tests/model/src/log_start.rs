//! Where logs begin: deletions that a client asks a leader for, and retention (R32 to R36).

use barnabas_replica::{Event, WaiterId};
use barnabas_types::{Condition, Offset};

use crate::mutation::Mutation;
use crate::protocol::Protocol;
use crate::reached::Reached;
use crate::world::{Ix, World, offset};

/// Who waits for a deletion; producers have the numbers of their records.
pub(crate) const DELETION: WaiterId = WaiterId(100);

impl Protocol {
    /// Exclusive end of what a deletion or retention may be asked for at this broker.
    pub(crate) fn deletable_at(&self, w: &World, b: Ix) -> usize {
        let broker = &w.brokers[b];
        let above = [Mutation::DeletionAboveHighWatermark, Mutation::RetentionAboveHighWatermark];
        let above = self.row.mutation.is_some_and(|m| above.contains(&m));
        if above { broker.log_end() } else { broker.high_watermark() }
    }

    /// A client asks a leader to delete what is below `to`.
    pub(crate) fn delete_records(&self, w: &mut World, b: Ix, to: u8) -> Option<()> {
        w.brokers[b].leads()?;
        w.spent.deletions += 1;
        w.history.deletable = w.history.deletable.max(to);
        if self.breaks(Mutation::DeletionAboveHighWatermark) {
            drop_segments(w, b, to);
            return Some(());
        }
        if self.breaks(Mutation::DeletionAnsweredAtOnce) {
            w.history.deleted = w.history.deleted.max(to);
        }
        let to = Some(offset(usize::from(to)));
        self.step_replica(w, b, Event::DeleteRecords { waiter: DELETION, to });
        Some(())
    }

    pub(crate) fn deletion_answered(&self, w: &mut World, result: Result<Offset, Condition>) {
        if let Ok(to) = result {
            // The low watermark: what was asked for, or more.
            w.history.deleted = w.history.deleted.max(to.0 as u8);
            self.reach(Reached::DeletionAcked);
        }
    }

    /// Retention drops what is below `to` on one broker.
    pub(crate) fn retain(&self, w: &mut World, b: Ix, to: u8) -> Option<()> {
        w.brokers[b].replica.as_ref()?;
        w.spent.retentions += 1;
        w.history.deletable = w.history.deletable.max(to);
        if self.breaks(Mutation::RetentionAboveHighWatermark) {
            drop_segments(w, b, to);
            return Some(());
        }
        let to = offset(usize::from(to));
        self.step_replica(w, b, Event::RetentionReached { to });
        Some(())
    }
}

/// The segments go, and nobody has asked the replica.
fn drop_segments(w: &mut World, b: Ix, to: u8) {
    let directory = &mut w.brokers[b].edit().directory;
    let to = offset(usize::from(to)).max(directory.log_start);
    directory.log_start = to;
    directory.start_written(to, true);
}
