//! What one life of a partition has promised, and what the loss table excuses.

use std::collections::BTreeMap;

use barnabas_types::{BrokerId, FlushMode, LeaderEpoch, Offset, PartitionEpoch, TopicConfig};

use crate::disk::Record;

/// A record that somebody relies on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Promise {
    /// The record.
    pub record: Record,
    /// Epoch of the leader that promised it.
    pub made_in: LeaderEpoch,
    /// It was on the disks of all who counted, and `flush.mode` was sync: how often it had become async before.
    pub flushed: Option<u32>,
}

/// A deletion that was acknowledged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Deletion {
    /// Everything below is gone.
    pub to: Offset,
    /// Epoch of the leader that acknowledged it.
    pub made_in: LeaderEpoch,
    /// That leader had no record of its own epoch.
    pub wrote_nothing: bool,
    /// Hosts that had died before.
    pub host_crashes: u32,
}

/// One life of a partition.
#[derive(Clone, Debug)]
pub struct History {
    /// Settings; `flush_mode` is the stored one.
    pub config: TopicConfig,
    /// How often `flush.mode` has become async.
    pub(super) async_times: u32,
    /// It was changed to sync, and every leader has confirmed that: the leader epoch then.
    pub(super) sync_confirmed: Option<LeaderEpoch>,
    /// Wishes for async that are not answered.
    pub(super) async_wishes: u32,
    /// Leader by epoch, as the store had it (I1).
    pub(super) chosen: BTreeMap<LeaderEpoch, BrokerId>,
    /// Who took up the role in an epoch: broker and life (I1).
    pub(super) claimed: BTreeMap<LeaderEpoch, (usize, u32)>,
    /// Newest epochs in the store (I2).
    pub(super) newest: (LeaderEpoch, PartitionEpoch),
    /// By offset: which record each epoch put there (LM).
    pub(super) names: Vec<Vec<Record>>,
    /// By offset: what consumers have seen (V).
    pub(super) visible: Vec<Promise>,
    /// By offset and epoch: acknowledged at acks=all (I6).
    pub(super) acked: BTreeMap<(i64, LeaderEpoch), Promise>,
    /// Greatest offset up to which a replica was allowed to delete.
    pub(super) deletable_to: Offset,
    /// Acknowledged deletions (DR).
    pub(super) deletions: Vec<Deletion>,
    /// The newest leader that began: its epoch and the log with which it began.
    pub(super) newest_leader: Option<(LeaderEpoch, Vec<Record>)>,
    /// Epochs of unclean elections.
    pub(super) unclean: Vec<LeaderEpoch>,
    /// Epochs of elections from the longest log (R8).
    pub(super) recovered: Vec<LeaderEpoch>,
    /// Copies of a record (by value) that host crashes destroyed.
    pub(super) copies_lost: BTreeMap<u64, u32>,
    /// The greatest HW shown in each leader epoch (I4).
    pub(super) shown: BTreeMap<LeaderEpoch, Offset>,
    /// The last leader that began without something promised, and its log then.
    pub(super) lossy: Option<(LeaderEpoch, Vec<Record>)>,
}

impl History {
    /// A new life.
    #[must_use]
    pub fn new(config: TopicConfig) -> Self {
        Self {
            config,
            async_times: u32::from(config.flush_mode == FlushMode::Async),
            sync_confirmed: None,
            async_wishes: 0,
            chosen: BTreeMap::new(),
            claimed: BTreeMap::new(),
            newest: (LeaderEpoch(-1), PartitionEpoch(-1)),
            names: Vec::new(),
            visible: Vec::new(),
            acked: BTreeMap::new(),
            deletable_to: Offset(0),
            deletions: Vec::new(),
            newest_leader: None,
            unclean: Vec::new(),
            recovered: Vec::new(),
            copies_lost: BTreeMap::new(),
            shown: BTreeMap::new(),
            lossy: None,
        }
    }

    /// A host crash destroyed a copy of these.
    pub fn lost_copies(&mut self, records: &[Record]) {
        for record in records {
            *self.copies_lost.entry(record.value).or_default() += 1;
        }
    }

    /// Whether the loss table allows that a leader of `epoch` begins without what was promised: an unclean election
    /// between promise and leader, or (unless it was flushed) as many copies destroyed by host crashes as min.insync asks for.
    #[must_use]
    pub(super) fn excused(&self, promise: &Promise, epoch: LeaderEpoch) -> bool {
        let unclean = self.unclean.iter().any(|u| promise.made_in < *u && *u <= epoch);
        let lost = self.copies_lost.get(&promise.record.value).copied().unwrap_or(0);
        // What was flushed everywhere stays so, and whoever joins has flushed it too, until the mode becomes async (R37).
        let safe = promise.flushed == Some(self.async_times);
        unclean || (lost >= self.config.min_insync_replicas && !safe)
    }

    /// How a promise made now by a leader in this mode is protected; see [`Promise::flushed`].
    #[must_use]
    pub(super) fn flushed_by(&self, mode: FlushMode) -> Option<u32> {
        let sync = mode == FlushMode::Sync && self.config.flush_mode == FlushMode::Sync;
        sync.then_some(self.async_times)
    }

    /// The same for a deletion: an unclean election; or an election from the longest log, which looks at the end of a log and
    /// not at its start, after as many host crashes as min.insync asks for, or through the gap of [`Self::lost_by_recovery`].
    #[must_use]
    pub(super) fn excuses_deletion(
        &self,
        deletion: &Deletion,
        epoch: LeaderEpoch,
        host_crashes: u32,
    ) -> bool {
        let between = |e: &LeaderEpoch| deletion.made_in < *e && *e <= epoch;
        let crashed = host_crashes - deletion.host_crashes >= self.config.min_insync_replicas;
        let may_recover = crashed || deletion.wrote_nothing;
        self.unclean.iter().any(between) || (may_recover && self.recovered.iter().any(between))
    }

    /// A known gap of R8, which compares (epoch of the last record, LEO): a deposed leader of epoch e that went on appending
    /// beats the replicas on which a leader of epoch e + 1 has committed older records without writing one of its own.
    /// What was shown, and not acknowledged in its own epoch, can then be lost without a copy being destroyed. It is
    /// closed by comparing the last epoch in which a replica's log was confirmed, instead of its last record's.
    #[must_use]
    pub(super) fn lost_by_recovery(&self, promise: &Promise, epoch: LeaderEpoch) -> bool {
        promise.record.epoch < promise.made_in
            && self.recovered.iter().any(|r| promise.made_in < *r && *r <= epoch)
    }

    /// Whether what a leader of `epoch` says is of a time before an allowed loss: nobody relies on it any more.
    #[must_use]
    pub(super) fn is_before_loss(&self, epoch: LeaderEpoch) -> bool {
        self.lossy.as_ref().is_some_and(|(lossy, _)| epoch < *lossy)
            || self.unclean.iter().any(|u| epoch < *u)
    }
}

/// How many records two logs have in common from the start.
#[must_use]
pub(super) fn common_prefix(a: &[Record], b: &[Record]) -> usize {
    a.iter().zip(b).take_while(|(x, y)| x.agrees(y)).count()
}
