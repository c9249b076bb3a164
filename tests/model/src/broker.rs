//! A broker of the model: its disk, and its process if it runs.

use barnabas_replica::{Replica, Role};
use barnabas_simulator::disk::Directory;

use crate::node::Proposal;

/// How far a broker has come with its stop (R25, R26).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Stopping {
    /// It serves.
    #[default]
    No,
    /// It wants to stop.
    Wanted,
    /// It was told that it may.
    Granted,
}

/// A broker: its disk, and its process if it runs.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Broker {
    /// The process runs.
    pub running: bool,
    /// Present broker epoch.
    pub epoch: u8,
    /// The core; `None` while the process is down, or has heard of no state that names this broker.
    pub replica: Option<Replica>,
    /// What survives the process. Of life 0: there is no directory.
    pub directory: Directory,
    /// The durable mark of R7.
    pub tail_lost: bool,
    /// Highest controller epoch obeyed by this process; in rows in which something is deleted, at least the one that was read
    /// after the registration (R22a).
    pub heard: u8,
    /// The newest state after which this process had no replica any more (R22b): life, leader epoch, partition epoch.
    pub tombstone: Option<(u8, u8, u8)>,
    /// The newest push that was obeyed, as acknowledgements name it: term, version of its image.
    pub applied: (u8, u8),
    /// The process's clock, in milliseconds; stands still but for [`crate::action::Action::Lag`].
    pub clock: u64,
    /// The proposal that waits for its answer.
    pub waiting: Option<Proposal>,
    /// Its way to a stop.
    pub stopping: Stopping,
    /// For planted bugs.
    pub planted: Planted,
}

/// What planted bugs remember.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Planted {
    /// Records whose producers a change of epoch should have ended.
    pub outlived: u8,
    /// Durable: the greatest leader epoch led.
    pub led: Option<u8>,
    /// Partition epoch at which a proposal was refused.
    pub refused_at: Option<i32>,
    /// Durable: from this offset on the system takes pages for written that are not (a failed sync marked them clean).
    pub bad: Option<u8>,
    /// The mode that was told apart from leaderships.
    pub sync: bool,
    /// What was reported in an earlier spell without a leader: last epoch plus 1, LEO.
    pub reported: Option<(u8, u8)>,
}

impl Broker {
    /// Whether the process runs.
    #[must_use]
    pub fn up(&self) -> bool {
        self.running
    }

    /// The epoch in which it leads.
    #[must_use]
    pub fn leads(&self) -> Option<i32> {
        match self.replica.as_ref()?.role() {
            Role::Leader { leader_epoch } => Some(leader_epoch.0),
            _ => None,
        }
    }

    /// Whether it follows in this epoch.
    #[must_use]
    pub fn follows_in(&self, epoch: i32) -> bool {
        let role = self.replica.as_ref().map(Replica::role);
        matches!(role, Some(Role::Follower { leader_epoch, .. }) if leader_epoch.0 == epoch)
    }

    /// Whether its replica serves nothing since a sync of its log failed (R38).
    #[must_use]
    pub fn is_fenced(&self) -> bool {
        self.replica.as_ref().is_some_and(Replica::is_fenced)
    }

    /// The life that it leads or follows in.
    #[must_use]
    pub fn acts_in(&self) -> Option<u8> {
        let replica = self.replica.as_ref()?;
        let acts = matches!(replica.role(), Role::Leader { .. } | Role::Follower { .. });
        acts.then(|| replica.incarnation().map_or(0, |i| i.czxid as u8))
    }

    /// The life of its directory; 0: there is none.
    #[must_use]
    pub fn life(&self) -> u8 {
        self.directory.incarnation.czxid as u8
    }

    /// LEO of what is on the disk.
    #[must_use]
    pub fn log_end(&self) -> usize {
        self.directory.log_end().0 as usize
    }

    /// HW: of the process, else the checkpoint.
    #[must_use]
    pub fn high_watermark(&self) -> usize {
        let present = self.replica.as_ref().map(Replica::high_watermark);
        // A replica that was fenced and cut still names the one that it had.
        present.unwrap_or(self.directory.high_watermark).min(self.directory.log_end()).0 as usize
    }

    /// Id of the record at an offset; 0: none.
    #[must_use]
    pub fn record(&self, offset: usize) -> u64 {
        self.directory.records.get(offset).map_or(0, |r| r.value)
    }
}
