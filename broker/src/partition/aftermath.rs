//! What an event on a partition leaves to do once the partition's lock is released.

use std::sync::Arc;

use barnabas_log::Loss;
use barnabas_replica::{IsrProposal, Note, Role};
use barnabas_types::{BrokerId, LeaderEpoch, Now, Offset};
use tokio::sync::oneshot;

use super::flushing::Urgency;
use super::hosted::Hosted;
use super::log_start::DeleteResult;
use super::waiting::{FollowerSession, ParkedFetch, PendingProduce, ProduceResult};
use crate::connection::Out;
use crate::storage::Lost;

/// Collected under the lock, performed after it by [`Aftermath::settle`].
#[derive(Default)]
pub struct Aftermath {
    pub(super) finished: Vec<(Arc<PendingProduce>, usize, ProduceResult)>,
    pub(super) deleted: Vec<(oneshot::Sender<DeleteResult>, DeleteResult)>,
    pub(super) due_fetches: Vec<Arc<ParkedFetch>>,
    pub(super) news: Vec<(Arc<dyn FollowerSession>, u32, bool)>,
    pub(super) proposal: Option<IsrProposal>,
    pub(super) role: Option<Role>,
    pub(super) delete: bool,
    pub(super) log_start: Option<Offset>,
    pub(super) flush: Option<Urgency>,
    pub(super) look_at: Option<Now>,
    pub(super) position: Option<BrokerId>,
    pub(super) failure: Option<LogFailure>,
    pub(super) lost: Vec<Lost>,
    pub(super) led_uncleanly: bool,
    /// To be told when the leaders' notes are durable.
    pub(super) note_sync: bool,
    pub(super) notes: Vec<(LeaderEpoch, Note)>,
}

/// A log that takes nothing more.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LogFailure {
    /// The replica's leader epoch at that time.
    pub leader_epoch: LeaderEpoch,
    /// What failed.
    pub kind: FailureKind,
    /// Why, in words.
    pub text: String,
    /// A sync failed: what was in the log and not flushed, which does not count any more (R38). It is told to
    /// [`Outward::records_lost`] too.
    pub loss: Option<Loss>,
    /// What the operating system said (EIO, ENOSPC), if it was that.
    pub os_error: Option<i32>,
}

/// What failed in a log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FailureKind {
    /// A write, or another change of its files: opened again, it has everything that was written before.
    Files,
    /// A read that the disk does not answer ([`barnabas_log::is_disk_fault`]): not opened again before the broker restarts, for an
    /// opening reads the end of the log only, and would find nothing wrong.
    Read,
    /// A sync: what was not flushed before it does not count any more (R38).
    Sync,
    /// An invariant of the replica in memory: not opened again before the broker restarts.
    Invariant,
}

/// What must go on beyond the partition itself.
pub trait Outward: Send + Sync {
    /// The present time.
    fn now(&self) -> Now;
    /// Send this proposal to the controller.
    fn propose(&self, partition: &Arc<Hosted>, proposal: IsrProposal);
    /// The role changed: follow somebody else, or nobody.
    fn role_changed(&self, partition: &Arc<Hosted>, role: Role);
    /// The flushed offset moved in sync mode: the leader must hear of it at once.
    fn position_moved(&self, partition: &Arc<Hosted>, leader: BrokerId);
    /// Its log failed: the partition is fenced, nobody waits on it any more. Called once for each log. What R38 demands
    /// beyond that (the durable mark, the cut, the new registration) begins here.
    fn log_failed(&self, partition: &Arc<Hosted>, failure: LogFailure);
    /// Its log dropped records, or does not count on them any more.
    fn records_lost(&self, lost: &Lost);
    /// An unclean election made it the leader.
    fn led_uncleanly(&self);
}

impl Aftermath {
    /// Whether the replica asked to be deleted (R22 was checked by the caller).
    pub fn wants_delete(&self) -> bool {
        self.delete
    }

    /// Performs everything. `flush` collects connections whose answers are finished; the caller flushes each once.
    pub fn settle(self, partition: &Arc<Hosted>, outward: &dyn Outward, flush: &mut Flush) {
        // First of all: the next flush may run while the answers to this one are written.
        if let Some(urgency) = self.flush {
            partition.flusher.add(partition, urgency);
        }
        if let Some(to) = self.log_start {
            partition.flusher.write_start(partition, to);
        }
        if let Some(at) = self.look_at {
            partition.flusher.look_at(at, partition);
        }
        if self.note_sync {
            partition.directory.led().tell_synced(partition.clone());
        }
        for (pending, index, result) in self.finished {
            if result.is_err() {
                partition.traffic.produce_failed();
            }
            if let Some(out) = pending.finish(index, result) {
                flush.add(out);
            }
        }
        for (deletion, result) in self.deleted {
            // Who asked may have gone.
            let _ = deletion.send(result);
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
        if let Some(leader) = self.position {
            outward.position_moved(partition, leader);
        }
        if let Some(role) = self.role {
            outward.role_changed(partition, role);
        }
        if self.led_uncleanly {
            outward.led_uncleanly();
        }
        for lost in &self.lost {
            outward.records_lost(lost);
        }
        if let Some(failure) = self.failure {
            outward.log_failed(partition, failure);
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
