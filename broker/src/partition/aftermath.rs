//! What an event on a partition leaves to do once the partition's lock is released.

use std::sync::Arc;

use barnabas_replica::{IsrProposal, Note, Role};
use barnabas_types::LeaderEpoch;

use super::hosted::Hosted;
use super::waiting::{FollowerSession, ParkedFetch, PendingProduce, ProduceResult};
use crate::connection::Out;

/// Collected under the lock, performed after it by [`Aftermath::settle`].
#[derive(Default)]
pub struct Aftermath {
    pub(super) finished: Vec<(Arc<PendingProduce>, usize, ProduceResult)>,
    pub(super) due_fetches: Vec<Arc<ParkedFetch>>,
    pub(super) news: Vec<(Arc<dyn FollowerSession>, u32, bool)>,
    pub(super) proposal: Option<IsrProposal>,
    pub(super) role: Option<Role>,
    pub(super) delete: bool,
    pub(super) rolled: bool,
    pub(super) notes: Vec<(LeaderEpoch, Note)>,
}

/// What must go on beyond the partition itself.
pub trait Outward {
    /// Send this proposal to the controller.
    fn propose(&self, partition: &Arc<Hosted>, proposal: IsrProposal);
    /// A segment was sealed: flush it in the background.
    fn flush_soon(&self, partition: &Arc<Hosted>);
    /// The role changed: follow somebody else, or nobody.
    fn role_changed(&self, partition: &Arc<Hosted>, role: Role);
}

impl Aftermath {
    /// Whether the replica asked to be deleted (R22 was checked by the caller).
    pub fn wants_delete(&self) -> bool {
        self.delete
    }

    /// Performs everything. `flush` collects connections whose answers are finished; the caller flushes each once.
    pub fn settle(self, partition: &Arc<Hosted>, outward: &dyn Outward, flush: &mut Flush) {
        for (pending, index, result) in self.finished {
            if let Some(out) = pending.finish(index, result) {
                flush.add(out);
            }
        }
        for fetch in self.due_fetches {
            fetch.fire();
        }
        for (session, index, urgent) in self.news {
            session.news(index, urgent);
        }
        for (leader_epoch, note) in self.notes {
            partition.log_note(leader_epoch, &note);
        }
        if let Some(proposal) = self.proposal {
            outward.propose(partition, proposal);
        }
        if self.rolled {
            outward.flush_soon(partition);
        }
        if let Some(role) = self.role {
            outward.role_changed(partition, role);
        }
    }
}

/// Connections to flush, each once.
#[derive(Default)]
pub struct Flush {
    outs: Vec<Arc<Out>>,
}

impl Flush {
    /// Adds a connection.
    pub fn add(&mut self, out: Arc<Out>) {
        if !self.outs.iter().any(|o| Arc::ptr_eq(o, &out)) {
            self.outs.push(out);
        }
    }

    /// Sends what is finished on each.
    pub fn run(&mut self) {
        for out in self.outs.drain(..) {
            out.flush();
        }
    }
}

impl Drop for Flush {
    fn drop(&mut self) {
        self.run();
    }
}
