//! What the shell may ask a replica; nothing here changes it.

use barnabas_types::{
    BrokerEpoch, BrokerId, Condition, FlushMode, Incarnation, LeaderEpoch, LeaderEpochs, Now,
    Offset, PartitionEpoch,
};

use crate::effects::Role;
use crate::event::FetchPosition;
use crate::leader::{Leader, check_leader_epoch};
use crate::replica::{Replica, RoleState};

/// What a leader tells consumers: one snapshot, so that a reader never mixes two moments.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ConsumerView {
    /// Exclusive end of what may be read.
    pub high_watermark: Offset,
    /// First offset, inclusive.
    pub log_start: Offset,
    /// LEO, exclusive.
    pub log_end: Offset,
    /// The leader's epoch.
    pub leader_epoch: LeaderEpoch,
}

/// What a replica without a leader reports to the controller (R8).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReplicaReport {
    /// The leaderless epoch that was accepted before this was said.
    pub leader_epoch: LeaderEpoch,
    /// Epoch of the last record, also of one that is deleted; `None` for a log that never had one.
    pub last_epoch: Option<LeaderEpoch>,
    /// LEO, exclusive.
    pub log_end: Offset,
}

/// What a leader knows about one follower, for describe.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FollowerPosition {
    /// Who.
    pub broker: BrokerId,
    /// Newest incarnation seen in this leader epoch.
    pub broker_epoch: Option<BrokerEpoch>,
    /// (LEO, flushed, log start) of its last fetch that counted in this leader epoch.
    pub position: Option<(Offset, Offset, Offset)>,
    /// When it was last caught up.
    pub caught_up_at: Now,
    /// When it fetched last in this leader epoch; `None` until it has.
    pub last_fetch_at: Option<Now>,
    /// Member of the committed ISR.
    pub in_isr: bool,
}

impl Replica {
    /// The present role.
    #[must_use]
    pub fn role(&self) -> Role {
        let leader_epoch = self.leader_epoch().unwrap_or_default();
        match &self.role {
            RoleState::Idle | RoleState::Fenced => Role::Idle,
            RoleState::Deleted => Role::Deleted,
            RoleState::Leaderless => Role::Leaderless { leader_epoch },
            RoleState::Leader(_) => Role::Leader { leader_epoch },
            RoleState::Follower(f) => Role::Follower { leader: f.leader, leader_epoch },
        }
    }

    /// Whether an error has stopped this replica until it is created anew.
    #[must_use]
    pub fn is_fenced(&self) -> bool {
        self.role == RoleState::Fenced
    }

    /// Whether the accepted state names this broker as leader, also if the replica is fenced by now.
    #[must_use]
    pub fn is_told_to_lead(&self) -> bool {
        self.accepted.as_ref().is_some_and(|known| known.partition.state.leader == Some(self.me))
    }

    /// Leader epoch of the accepted state.
    #[must_use]
    pub fn leader_epoch(&self) -> Option<LeaderEpoch> {
        self.accepted.as_ref().map(|a| a.partition.state.leader_epoch)
    }

    /// Partition epoch of the accepted state.
    #[must_use]
    pub fn partition_epoch(&self) -> Option<PartitionEpoch> {
        self.accepted.as_ref().map(|a| a.partition.state.partition_epoch)
    }

    /// The life of the topic that this replica belongs to; known from the first accepted state on.
    #[must_use]
    pub fn incarnation(&self) -> Option<Incarnation> {
        self.accepted.as_ref().map(|a| a.incarnation)
    }

    /// First offset, inclusive. Durable: a start that was only ordered is not this yet.
    #[must_use]
    pub fn log_start(&self) -> Offset {
        self.log.log_start
    }

    /// How far retention may raise the log start: the own HW (R32).
    #[must_use]
    pub fn log_start_max(&self) -> Offset {
        self.log.high_watermark
    }

    /// LEO, exclusive.
    #[must_use]
    pub fn log_end(&self) -> Offset {
        self.log.log_end
    }

    /// Flushed offset, exclusive.
    #[must_use]
    pub fn flushed(&self) -> Offset {
        self.log.flushed
    }

    /// High watermark, exclusive, whatever the role; consumers get it through [`Replica::consumer_view`] only.
    #[must_use]
    pub fn high_watermark(&self) -> Offset {
        self.log.high_watermark
    }

    /// Leader epochs of the log.
    #[must_use]
    pub fn epochs(&self) -> &LeaderEpochs {
        &self.log.epochs
    }

    /// `flush.mode` in force.
    #[must_use]
    pub fn flush_mode(&self) -> FlushMode {
        self.accepted.as_ref().map_or(FlushMode::Async, |a| a.flush_mode)
    }

    /// The committed ISR of the accepted state, in the order of the assignment; empty before the first one.
    #[must_use]
    pub fn isr(&self) -> &[(BrokerId, BrokerEpoch)] {
        self.accepted.as_ref().map_or(&[], |a| &a.partition.state.isr)
    }

    /// Committed ISR and everything proposed at this partition epoch (R9); the committed ISR on all but the leader.
    #[must_use]
    pub fn maximal_isr(&self) -> Vec<BrokerId> {
        let mut members: Vec<BrokerId> = self.isr().iter().map(|(id, _)| *id).collect();
        if let RoleState::Leader(leader) = &self.role {
            members
                .extend(leader.followers.iter().filter(|f| !f.in_isr && f.proposed).map(|f| f.id));
        }
        members
    }

    /// What to fetch next. `None` when this replica does not follow, while its log is being written or cut, and after a
    /// reset until the new log start is durable.
    #[must_use]
    pub fn fetch_position(&self) -> Option<FetchPosition> {
        let (RoleState::Follower(follower), Some(accepted)) = (&self.role, &self.accepted) else {
            return None;
        };
        if follower.is_busy() || !self.pending.is_empty() || self.reset_start.is_some() {
            return None;
        }
        Some(FetchPosition {
            incarnation: accepted.incarnation,
            broker_epoch: self.broker_epoch?,
            leader_epoch: accepted.partition.state.leader_epoch,
            last_epoch: self.last_epoch(),
            log_end: self.log.log_end,
            flushed: self.log.flushed,
            log_start: self.log.log_start,
        })
    }

    /// What consumers may see.
    ///
    /// # Errors
    /// [`Condition::FencedLeaderEpoch`] or [`Condition::UnknownLeaderEpoch`] if the asker knows another epoch (KIP-320),
    /// [`Condition::NotLeaderOrFollower`], [`Condition::OffsetNotAvailable`] until the HW has reached the start of this
    /// epoch (KIP-207, R14), [`Condition::KafkaStorageError`] when fenced.
    pub fn consumer_view(
        &self,
        current_leader_epoch: Option<LeaderEpoch>,
    ) -> Result<ConsumerView, Condition> {
        let (leader, leader_epoch) = self.leading(current_leader_epoch)?;
        if self.log.high_watermark < leader.epoch_start {
            return Err(Condition::OffsetNotAvailable);
        }
        Ok(ConsumerView {
            high_watermark: self.log.high_watermark,
            log_start: self.log.log_start,
            log_end: self.log.log_end,
            leader_epoch,
        })
    }

    /// OffsetForLeaderEpoch: the largest known epoch not above `asked` and its exclusive end; `None` if there is none, or
    /// if `asked` is newer than every epoch here (KIP-279): not to be told to clients while [`Replica::doubts_epoch`].
    ///
    /// # Errors
    /// As [`Replica::consumer_view`], without `OffsetNotAvailable`.
    pub fn end_offset_for_epoch(
        &self,
        current_leader_epoch: Option<LeaderEpoch>,
        asked: LeaderEpoch,
    ) -> Result<Option<(LeaderEpoch, Offset)>, Condition> {
        self.leading(current_leader_epoch)?;
        Ok(self.own_end_offset_for_epoch(asked))
    }

    /// The largest epoch of this replica's own log that is not above `asked`, and its exclusive end, whatever its role: for
    /// whoever compares replicas. What it says may be a tail that the leader has not.
    #[must_use]
    pub fn own_end_offset_for_epoch(&self, asked: LeaderEpoch) -> Option<(LeaderEpoch, Offset)> {
        let log_end = self.log.log_end;
        self.log.epochs.end_offset_for(asked, log_end).map(|(e, end)| (e, end.min(log_end)))
    }

    /// The report of R8: given only after the leaderless state was accepted with this broker in its assignment, and
    /// only when no write is under way.
    #[must_use]
    pub fn report(&self) -> Option<ReplicaReport> {
        if self.role != RoleState::Leaderless || !self.pending.is_empty() {
            return None;
        }
        let leader_epoch = self.leader_epoch()?;
        let log_end = self.log.log_end;
        // A log whose records are all deleted is no empty one: who knows less must not lead instead, and give their offsets
        // away again.
        let deleted = || self.log.epochs.latest().filter(|_| self.log.log_start > Offset(0));
        let last_epoch = self.last_epoch().or_else(deleted);
        Some(ReplicaReport { leader_epoch, last_epoch, log_end })
    }

    /// Whether the accepted state shows this broker as ISR member under exactly this broker epoch (R7). Not of a fenced
    /// replica: what it lost is not what the controller admitted (R38).
    #[must_use]
    pub fn is_isr_member_under(&self, broker_epoch: BrokerEpoch) -> bool {
        !self.is_fenced() && self.isr().contains(&(self.me, broker_epoch))
    }

    /// Producers and deletions not answered yet, also those whose append is under way.
    #[must_use]
    pub fn waiters(&self) -> usize {
        let written = match &self.role {
            RoleState::Leader(leader) => leader.waiters(),
            _ => 0,
        };
        written + self.pending.iter().filter(|p| p.waits).count()
    }

    /// Where the followers stand, in the order of the assignment; empty unless this replica leads.
    #[must_use]
    pub fn follower_positions(&self) -> Vec<FollowerPosition> {
        let RoleState::Leader(leader) = &self.role else { return Vec::new() };
        let followers = leader.followers.iter().map(|f| FollowerPosition {
            broker: f.id,
            broker_epoch: f.broker_epoch,
            position: f.position.map(|p| (p.log_end, p.flushed, p.log_start)),
            caught_up_at: f.caught_up_at,
            last_fetch_at: f.last_fetch_at(),
            in_isr: f.in_isr,
        });
        followers.collect()
    }

    /// How many bytes a second this replica may fetch; `None`: no limit. Only a replica that a move adds has one, and only
    /// until it is in the ISR: there it would hold every acknowledgement back.
    #[must_use]
    pub fn fetch_limit(&self) -> Option<u64> {
        let partition = &self.accepted.as_ref()?.partition;
        let copying =
            partition.moving.adding.contains(&self.me) && !partition.state.in_isr(self.me);
        partition.moving.throttle.filter(|_| copying)
    }

    /// Epoch of the last record, `None` for an empty log (R36).
    #[must_use]
    pub fn last_epoch(&self) -> Option<LeaderEpoch> {
        if self.log.log_start == self.log.log_end {
            return None;
        }
        self.log.epochs.epoch_at(Offset(self.log.log_end.0 - 1))
    }

    /// The leader's data and epoch, if this replica leads in the epoch that the asker knows.
    fn leading(&self, current: Option<LeaderEpoch>) -> Result<(&Leader, LeaderEpoch), Condition> {
        if self.is_fenced() {
            return Err(Condition::KafkaStorageError);
        }
        let leader_epoch = self.leader_epoch().ok_or(Condition::NotLeaderOrFollower)?;
        if let Some(asked) = current {
            check_leader_epoch(asked, leader_epoch)?;
        }
        match &self.role {
            RoleState::Leader(leader) => Ok((leader, leader_epoch)),
            _ => Err(Condition::NotLeaderOrFollower),
        }
    }
}
