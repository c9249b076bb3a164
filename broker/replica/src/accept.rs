//! Which pushed states are accepted (R4, R27), and the change of role that an accepted one brings.

use barnabas_types::{Condition, LeaderEpoch, Now, Offset, invariants};

use crate::effects::Effects;
use crate::event::StatePush;
use crate::follower::Follower;
use crate::leader::Leader;
use crate::replica::{Replica, RoleState};

/// What a push is to this replica.
enum Verdict {
    /// Newer than what is known.
    New,
    /// The state that is known already, or one of the same leadership that an answer to a proposal has overtaken: only its
    /// settings can be news. They must not be lost: whoever obeys the push confirms them (R37).
    OnlySettings,
    /// Late, misdirected or impossible.
    Refused { warn: bool, reason: &'static str },
}

impl Replica {
    pub(crate) fn on_state(&mut self, now: Now, push: StatePush, effects: &mut Effects) {
        match self.judge(&push) {
            Verdict::Refused { warn, reason } => effects.note(
                warn,
                format!(
                    "push refused ({reason}): controller epoch {}, broker epoch {}, leader epoch {}, partition epoch {}",
                    push.controller_epoch,
                    push.broker_epoch,
                    push.partition.state.leader_epoch,
                    push.partition.state.partition_epoch,
                ),
            ),
            Verdict::OnlySettings => self.adopt_settings(&push),
            Verdict::New => {
                self.controller_epoch = Some(push.controller_epoch);
                if self.log_operation_under_way() {
                    self.deferred = Some(push);
                } else {
                    self.adopt(now, push, effects);
                }
            }
        }
    }

    /// R4: the push is for this incarnation of this broker, from no older controller, and newer than what is known.
    fn judge(&self, push: &StatePush) -> Verdict {
        let refused = |warn, reason| Verdict::Refused { warn, reason };
        match self.role {
            RoleState::Fenced => return refused(false, "the partition is fenced here"),
            RoleState::Deleted => return refused(false, "the replica was deleted here"),
            _ => {}
        }
        if self.broker_epoch != Some(push.broker_epoch) {
            return refused(false, "meant for another incarnation of this broker");
        }
        if self.controller_epoch.is_some_and(|known| push.controller_epoch < known) {
            return refused(false, "from a deposed controller");
        }
        let state = &push.partition.state;
        // Deletion is "assigned to nobody" and brings no leader epoch of its own.
        let ended = push.partition.assigned_replicas.is_empty() && state.leader.is_none();
        if let Some(known) = self.deferred.as_ref().or(self.accepted.as_ref()) {
            let mine = &known.partition.state;
            if push.incarnation < known.incarnation {
                return refused(false, "an earlier life of the topic");
            }
            if push.incarnation > known.incarnation {
                return refused(
                    true,
                    "a later life of the topic, which needs a replica of its own",
                );
            }
            let same_leadership = state.leader_epoch == mine.leader_epoch
                && state.leader == mine.leader
                && state.leader == Some(self.me);
            if same_leadership && state.partition_epoch < mine.partition_epoch {
                return Verdict::OnlySettings;
            }
            if state.leader_epoch < mine.leader_epoch
                || state.partition_epoch < mine.partition_epoch
            {
                return refused(false, "older than the known state");
            }
            if state.leader_epoch == mine.leader_epoch && state.leader != mine.leader && !ended {
                return refused(true, "two leaders in one leader epoch");
            }
            if state.partition_epoch == mine.partition_epoch {
                return if state.leader_epoch == mine.leader_epoch {
                    Verdict::OnlySettings
                } else {
                    refused(true, "two states at one partition epoch")
                };
            }
        }
        let assigned = push.partition.assigned_replicas.contains(&self.me);
        if assigned && !invariants::i8_isr_within_assignment(&push.partition) {
            return refused(true, "its ISR is empty, not assigned, or without the leader");
        }
        Verdict::New
    }

    /// A repeated push may bring changed topic settings (R37: they travel inside the push).
    fn adopt_settings(&mut self, push: &StatePush) {
        self.controller_epoch = Some(push.controller_epoch);
        for known in self.accepted.iter_mut().chain(self.deferred.iter_mut()) {
            known.min_insync_replicas = push.min_insync_replicas;
            known.flush_mode = push.flush_mode;
        }
    }

    /// Takes the state that came during a log operation which is now done.
    pub(crate) fn take_deferred(&mut self, now: Now, effects: &mut Effects) {
        if !self.log_operation_under_way()
            && let Some(push) = self.deferred.take()
        {
            self.adopt(now, push, effects);
        }
    }

    fn log_operation_under_way(&self) -> bool {
        matches!(&self.role, RoleState::Follower(follower) if follower.is_busy())
    }

    fn adopt(&mut self, now: Now, push: StatePush, effects: &mut Effects) {
        let partition = &push.partition;
        let leader_epoch = partition.state.leader_epoch;
        let same_epoch = self.leader_epoch() == Some(leader_epoch);
        if !partition.assigned_replicas.contains(&self.me) {
            self.change_role(RoleState::Deleted, push, effects);
            effects.delete = true;
        } else if partition.state.leader == Some(self.me) {
            if same_epoch && let RoleState::Leader(leader) = &mut self.role {
                let end = self.log.counted(push.flush_mode);
                let lag_ms = self.options.lag_time_max_ms;
                for follower in &mut leader.followers {
                    // Proposed, and this state came of an earlier attempt without it: it is to be proposed again.
                    follower.join_deferred |= follower.proposed
                        && !partition.state.in_isr(follower.id)
                        && follower.is_caught_up(now, push.flush_mode, end, lag_ms);
                }
                leader.adopt_isr(now, self.me, partition);
                self.accepted = Some(push);
                // First what the new ISR commits: whoever lacks that is no joiner.
                self.committed(effects);
                self.propose_joiners(now, effects);
            } else {
                self.become_leader(now, push, effects);
            }
        } else if same_epoch {
            // Same leader, or still none: only ISR, assignment or settings changed.
            self.accepted = Some(push);
        } else if let Some(leader) = partition.state.leader {
            // No truncation here: only the leader's answer says where the logs part (R15).
            self.change_role(RoleState::Follower(Follower::new(leader)), push, effects);
        } else {
            self.change_role(RoleState::Leaderless, push, effects);
        }
    }

    fn become_leader(&mut self, now: Now, push: StatePush, effects: &mut Effects) {
        let leader_epoch = push.partition.state.leader_epoch;
        if let Some(latest) = self.log.epochs.latest()
            && latest >= leader_epoch
        {
            // An epoch has one leader, in one life: were it led again over a log that may have been cut since, one
            // (epoch, offset) could name two records. A restarted leader gets a new epoch (R5).
            self.end_all_waiters(&Condition::NotLeaderOrFollower, effects);
            self.accepted = Some(push);
            self.fence(
                format!("told to lead in epoch {leader_epoch}, but the log knows epoch {latest}"),
                effects,
            );
            return;
        }
        let epoch_start = self.append_end();
        // The leaderless state was accepted here before anybody could elect this replica from it (R8).
        let known = self.accepted.as_ref().map(|known| &known.partition.state);
        if known.is_some_and(|s| s.leader.is_none() && !s.in_isr(self.me)) {
            effects.led_uncleanly = Some(self.common_at_least_to(leader_epoch, epoch_start));
        }
        let leader = Leader::new(now, self.me, &push.partition, epoch_start);
        self.change_role(RoleState::Leader(leader), push, effects);
        self.log.epochs.assign(leader_epoch, epoch_start);
        effects.assign_epoch = Some((leader_epoch, epoch_start));
    }

    /// Up to where (exclusive) this log, which ends at `end`, is sure to be that of the leaders before, when it leads in
    /// `leader_epoch` without having been in the ISR. The end itself, if its newest epoch is the newest one that can have had a
    /// leader: an epoch has one log, and this is its beginning. Otherwise the end may be a tail from which later leaders' logs parted,
    /// and only what is committed here was theirs, too. That an unclean election before this one parted the logs below it is not
    /// known here; that election was recorded by whom it made the leader.
    fn common_at_least_to(&self, leader_epoch: LeaderEpoch, end: Offset) -> Offset {
        // The epoch directly before had no leader: to lose the leader ended the one before that.
        let is_newest = |latest: LeaderEpoch| latest.0 + 2 >= leader_epoch.0;
        if self.log.epochs.latest().is_some_and(is_newest) { end } else { self.log.high_watermark }
    }

    /// R11: a change of role or epoch ends all waiters without success.
    fn change_role(&mut self, role: RoleState, push: StatePush, effects: &mut Effects) {
        self.end_all_waiters(&Condition::NotLeaderOrFollower, effects);
        self.role = role;
        self.accepted = Some(push);
        effects.role_changed = Some(self.role());
    }
}
