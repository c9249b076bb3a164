//! What an exploration has come across, so that a green run is known not to be vacuous.

use std::sync::atomic::{AtomicU32, Ordering};

use barnabas_types::FlushMode;

use crate::broker::Broker;
use crate::node::Assigned;
use crate::protocol::Protocol;
use crate::world::{BROKERS, World};

/// Something that must be possible.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reached {
    /// A record of a later epoch than the first was acknowledged.
    AckedAfterFailover,
    /// Two brokers led at once.
    TwoLeaders,
    /// Two logs differed at one offset.
    Diverged,
    /// The partition had no leader.
    Leaderless,
    /// The ISR grew.
    IsrGrew,
    /// Every record was acknowledged and every HW was at its end, in a later epoch than the first.
    AllAckedEverywhere,
    /// A leader obeyed the second term.
    SecondTermLeads,
    /// A leader was chosen by the replicas' reports (R8).
    Recovered,
    /// A lost-tail mark went away (R7).
    MarkCleared,
    /// A controller was told that a newer one exists.
    Resigned,
    /// A move of replicas got another target.
    MoveTurned,
    /// A move of replicas ended.
    MoveEnded,
    /// A record was acknowledged by the target of a move, led by it.
    Moved,
    /// A replica was deleted with its directory.
    ReplicaDeleted,
    /// A broker that had to wait before it might stop.
    StopWaited,
    /// A broker stopped after it was told that it might.
    Stopped,
    /// A directory with another life's records was put away.
    Stray,
    /// Records were acknowledged in two lives of the topic.
    AckedInBothLives,
    /// An answer was applied to nothing: the follower stood elsewhere.
    StaleAnswer,
    /// A deletion of records was acknowledged.
    DeletionAcked,
    /// After an acknowledged deletion and a failover a record was acknowledged.
    AckedAfterDeletion,
    /// A follower began anew at its leader's log start.
    FollowerReset,
    /// A sync failed.
    SyncFailed,
    /// A sync failed, and a record was acknowledged.
    AckedDespiteFailedSync,
    /// A record was acknowledged after the change to sync was.
    AckedInSync,
    /// An operator elected uncleanly although an ISR member was registered again already.
    UncleanRace,
    /// A record was acknowledged after an operator's unclean election.
    AckedAfterUnclean,
}

impl Reached {
    /// All of them, with words.
    pub const ALL: [(Reached, &'static str); 27] = [
        (Reached::AckedAfterFailover, "acked after failover"),
        (Reached::TwoLeaders, "two leaders"),
        (Reached::Diverged, "diverged"),
        (Reached::Leaderless, "leaderless"),
        (Reached::IsrGrew, "ISR grew"),
        (Reached::AllAckedEverywhere, "all acked everywhere"),
        (Reached::SecondTermLeads, "second term leads"),
        (Reached::Recovered, "recovered from the longest log"),
        (Reached::MarkCleared, "mark cleared"),
        (Reached::Resigned, "resigned"),
        (Reached::MoveTurned, "move turned"),
        (Reached::MoveEnded, "move ended"),
        (Reached::Moved, "moved"),
        (Reached::ReplicaDeleted, "replica deleted"),
        (Reached::StopWaited, "stop had to wait"),
        (Reached::Stopped, "stopped"),
        (Reached::Stray, "stray directory"),
        (Reached::AckedInBothLives, "acked in both lives"),
        (Reached::StaleAnswer, "stale answer"),
        (Reached::DeletionAcked, "deletion acked"),
        (Reached::AckedAfterDeletion, "acked after a deletion and a failover"),
        (Reached::FollowerReset, "follower reset"),
        (Reached::SyncFailed, "sync failed"),
        (Reached::AckedDespiteFailedSync, "acked despite a failed sync"),
        (Reached::AckedInSync, "acked in sync mode"),
        (Reached::UncleanRace, "unclean election of a race"),
        (Reached::AckedAfterUnclean, "acked after an unclean election"),
    ];

    /// In words.
    #[must_use]
    pub fn words(self) -> &'static str {
        Self::ALL.iter().find(|(r, _)| *r == self).map_or("", |(_, words)| *words)
    }
}

/// The set of what was reached; shared by the checker's threads.
#[derive(Default, Debug)]
pub struct Coverage(AtomicU32);

impl Coverage {
    /// Adds one.
    pub fn add(&self, reached: Reached) {
        let bit = 1 << reached as u32;
        if self.0.load(Ordering::Relaxed) & bit == 0 {
            self.0.fetch_or(bit, Ordering::Relaxed);
        }
    }

    /// Words for what was reached.
    #[must_use]
    pub fn words(&self) -> Vec<&'static str> {
        let bits = self.0.load(Ordering::Relaxed);
        let all = Reached::ALL.iter();
        all.filter(|(r, _)| bits & (1 << *r as u32) != 0).map(|(_, words)| *words).collect()
    }
}

impl Protocol {
    /// Notes what is to be seen in a world.
    pub fn look(&self, w: &World) {
        let acked: Vec<usize> = (0..usize::from(w.history.produced))
            .filter(|n| w.history.acked & (1 << n) != 0)
            .collect();
        let leaders: Vec<&Broker> =
            w.brokers.iter().map(|b| &**b).filter(|b| b.leads().is_some()).collect();
        if acked.iter().any(|n| w.history.records[*n].0 > 0) {
            self.reach(Reached::AckedAfterFailover);
        }
        if leaders.len() > 1 {
            self.reach(Reached::TwoLeaders);
        }
        if w.node.leader.is_none() && w.exists() {
            self.reach(Reached::Leaderless);
        }
        let all = acked.len() == usize::from(self.row.records);
        let known = |b: &Broker| b.high_watermark() == usize::from(self.row.records);
        if all && w.node.leader_epoch > 0 && w.brokers.iter().all(|b| known(b)) {
            self.reach(Reached::AllAckedEverywhere);
        }
        if w.node.controller_epoch == 2 && leaders.iter().any(|b| b.heard == 2) {
            self.reach(Reached::SecondTermLeads);
        }
        if w.terms.iter().any(|t| t.over) {
            self.reach(Reached::Resigned);
        }
        if diverged(w) {
            self.reach(Reached::Diverged);
        }
        self.look_at_acked(w, &acked, &leaders);
    }

    /// What was acknowledged although, or after.
    fn look_at_acked(&self, w: &World, acked: &[usize], leaders: &[&Broker]) {
        let epoch_of = |n: &usize| w.history.records[*n].0;
        let life_of = |n: &usize| w.history.lives[*n];
        let target = Assigned::settled(self.row.target);
        let moved = w.spent.moves > 0 && w.node.assigned == target && !acked.is_empty();
        if moved && leaders.iter().any(|b| b.high_watermark() > 0) {
            self.reach(Reached::Moved);
        }
        if acked.iter().any(|n| life_of(n) == 1) && acked.iter().any(|n| life_of(n) == 2) {
            self.reach(Reached::AckedInBothLives);
        }
        let after = |n: &usize| w.history.records[*n].1 >= w.history.deleted && epoch_of(n) > 0;
        if w.history.deleted > 0 && acked.iter().any(after) {
            self.reach(Reached::AckedAfterDeletion);
        }
        if w.spent.failed_syncs > 0 && !acked.is_empty() {
            self.reach(Reached::AckedDespiteFailedSync);
        }
        let in_sync =
            |b: &&Broker| b.replica.as_ref().is_some_and(|r| r.flush_mode() == FlushMode::Sync);
        if w.history.sync_promised && !acked.is_empty() && leaders.iter().any(in_sync) {
            self.reach(Reached::AckedInSync);
        }
        let from = w.history.promised_from;
        if from > 0 && acked.iter().any(|n| epoch_of(n) >= from) {
            self.reach(Reached::AckedAfterUnclean);
        }
    }
}

/// Whether two logs differ at one offset.
fn diverged(w: &World) -> bool {
    let differ = |a: &Broker, b: &Broker| {
        let both = a.directory.records.iter().zip(&b.directory.records);
        both.into_iter().any(|(x, y)| !x.agrees(y))
    };
    let of = |n: usize| &*w.brokers[n];
    (0..BROKERS).any(|a| (0..a).any(|b| differ(of(a), of(b))))
}
