//! How a leader proposes to grow or shrink the ISR (R9, R12, R13, B7).

use barnabas_types::{BrokerEpoch, BrokerId, Condition, FlushMode, Now, Offset, Partition};

use crate::effects::{Effects, IsrProposal};
use crate::event::{LogState, ProposalOutcome, StatePush};
use crate::leader::Leader;
use crate::progress::FollowerProgress;
use crate::replica::{Replica, RoleState};

/// Wait before the first repetition of a proposal that was refused or not answered; doubles with each.
const BACKOFF_MIN_MS: u64 = 100;
/// Longest such wait.
const BACKOFF_MAX_MS: u64 = 2_000;

/// The proposals at the present partition epoch. At most one is open.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct ProposalState {
    open: Option<Open>,
    /// No repetition before this.
    retry_at: Now,
    /// How many were refused or not answered.
    failures: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Open {
    /// Sent, not answered.
    Sent,
    /// Written at this time; the state that says so is on its way.
    Accepted(Now),
}

impl ProposalState {
    fn may_propose(&self, now: Now) -> bool {
        self.open.is_none() && now >= self.retry_at
    }

    fn failed(&mut self, now: Now) {
        self.open = None;
        self.retry_at = Now(now.0.saturating_add(backoff_ms(self.failures, BACKOFF_MAX_MS)));
        self.failures = self.failures.saturating_add(1);
    }
}

/// The pause after one more failure than these: [`BACKOFF_MIN_MS`], doubled with each, at most `max_ms`.
pub(crate) fn backoff_ms(failures: u32, max_ms: u64) -> u64 {
    BACKOFF_MIN_MS.saturating_mul(1 << failures.min(32)).min(max_ms)
}

impl FollowerProgress {
    /// An equal end is in sync regardless of time: idle partitions never flap (B7).
    pub(crate) fn is_caught_up(
        &self,
        now: Now,
        mode: FlushMode,
        end: Offset,
        lag_time_max_ms: u64,
    ) -> bool {
        self.has_all(mode, end) || now.since_ms(self.caught_up_at) <= lag_time_max_ms
    }

    /// R12, R34: the position of this leader epoch has reached the HW and the epoch's start and lacks nothing that was
    /// deleted here. Returns the broker epoch under which it fetched.
    fn may_join(
        &self,
        log: &LogState,
        mode: FlushMode,
        epoch_start: Offset,
    ) -> Option<BrokerEpoch> {
        let position = self.position?;
        let counted = position.counted(mode);
        let reached = counted >= log.high_watermark
            && counted >= epoch_start
            && position.log_start >= log.log_start;
        self.broker_epoch.filter(|_| reached)
    }
}

impl Leader {
    /// Bars a follower that was proposed and that the controller calls ineligible. `false` if that says nothing new: it was not
    /// proposed, is barred already, or is a member, whom only the controller takes out. So refusals that
    /// follow one another without a pause end; the follower's own pause bounds the writes while it stays ineligible.
    fn bar(&mut self, now: Now, id: BrokerId, pause_max_ms: u64) -> bool {
        let refused = |f: &&mut FollowerProgress| f.id == id && f.proposed && !f.in_isr;
        let Some(follower) = self.followers.iter_mut().find(refused) else { return false };
        if follower.is_barred(now) {
            return false;
        }
        follower.bar(now, pause_max_ms);
        true
    }
}

impl Replica {
    /// B7: a gap between events says that this broker stood still, not that its followers lag. They get a full lag time
    /// from now on.
    pub(crate) fn forgive_own_stall(&mut self, now: Now) {
        let stalled = self
            .last_step
            .is_some_and(|last| now.since_ms(last) > self.options.lag_time_max_ms / 2);
        self.last_step = Some(now);
        if stalled && let RoleState::Leader(leader) = &mut self.role {
            for follower in &mut leader.followers {
                follower.caught_up_at = now;
            }
        }
    }

    pub(crate) fn on_proposal_answered(
        &mut self,
        now: Now,
        outcome: ProposalOutcome,
        effects: &mut Effects,
    ) {
        let RoleState::Leader(leader) = &mut self.role else { return };
        // If none is open, the answer is late: a newer state has settled it.
        let open = leader.proposal.open.is_some();
        match outcome {
            ProposalOutcome::Accepted { broker_epoch, state } => {
                if open {
                    leader.proposal.open = Some(Open::Accepted(now));
                }
                if let Some(accepted) = &self.accepted {
                    let push = StatePush {
                        controller_epoch: state.controller_epoch,
                        broker_epoch,
                        partition: Partition { state, ..accepted.partition.clone() },
                        ..*accepted
                    };
                    self.on_state(now, push, effects);
                }
            }
            _ if !open => {}
            // An attempt may still be applied later, so the maximal ISR stays as it is (R9).
            ProposalOutcome::Refused(condition) => {
                effects.note(false, format!("ISR proposal refused: {condition}"));
                if let Condition::IneligibleReplica(broker) = condition
                    && leader.bar(now, broker, self.options.lag_time_max_ms)
                {
                    // What is right without that follower, at once: its success withdraws every earlier attempt (R9), and no
                    // producer waits for a replica that cannot be elected.
                    self.propose(now, effects);
                } else {
                    leader.proposal.failed(now);
                }
            }
            ProposalOutcome::Unknown => {
                leader.proposal.failed(now);
                effects.note(false, "ISR proposal not answered".to_owned());
            }
        }
    }

    /// After a fetch: proposes the follower at once if it may join, or as soon as the open proposal is settled.
    pub(crate) fn maybe_expand(&mut self, now: Now, id: BrokerId, effects: &mut Effects) {
        let (RoleState::Leader(leader), Some(accepted)) = (&mut self.role, &self.accepted) else {
            return;
        };
        let Some(follower) = leader.followers.iter_mut().find(|f| f.id == id && !f.in_isr) else {
            return;
        };
        let mode = accepted.flush_mode;
        follower.join_deferred = follower.may_join(&self.log, mode, leader.epoch_start).is_some();
        self.propose_joiners(now, effects);
    }

    /// Proposes the followers that may join, if no proposal is open.
    pub(crate) fn propose_joiners(&mut self, now: Now, effects: &mut Effects) {
        let (RoleState::Leader(leader), Some(accepted)) = (&mut self.role, &self.accepted) else {
            return;
        };
        if !leader.proposal.may_propose(now) {
            return;
        }
        let mut found = false;
        // Who would be refused waits, whether it may join or not: it is looked at again when it no longer would.
        let draining = &self.draining;
        let waiting = |f: &&mut FollowerProgress| {
            f.join_deferred && !draining.contains(&f.id) && !f.is_barred(now)
        };
        for follower in leader.followers.iter_mut().filter(waiting) {
            follower.join_deferred = false;
            let may = follower.may_join(&self.log, accepted.flush_mode, leader.epoch_start);
            if follower.in_isr || may.is_none() {
                continue;
            }
            found = true;
            if !follower.proposed {
                follower.proposed = true;
                // From here on it holds the HW back, so it is judged by lag; the time begins now.
                follower.caught_up_at = now;
            }
        }
        if found {
            self.propose(now, effects);
        }
    }

    /// R26: whoever drains is not proposed any more; whoever no longer does, is.
    pub(crate) fn on_draining(&mut self, now: Now, brokers: Vec<BrokerId>, effects: &mut Effects) {
        self.draining = brokers;
        self.propose_joiners(now, effects);
    }

    pub(crate) fn on_tick(&mut self, now: Now, effects: &mut Effects) {
        let lag_time_max_ms = self.options.lag_time_max_ms;
        let mode = self.flush_mode();
        let end = self.log.counted(mode);
        let RoleState::Leader(leader) = &mut self.role else { return };
        if let Some(Open::Accepted(since)) = leader.proposal.open
            && now.since_ms(since) > lag_time_max_ms
        {
            // The state that should follow has not come: the answer may have been one to an earlier proposal.
            leader.proposal.failed(now);
        }
        let unsettled = leader.followers.iter().any(|f| {
            // Lags; or was proposed and neither admitted nor withdrawn.
            if f.in_isr { !f.is_caught_up(now, mode, end, lag_time_max_ms) } else { f.proposed }
        });
        if unsettled && leader.proposal.may_propose(now) {
            self.propose(now, effects);
        }
        self.propose_joiners(now, effects);
    }

    /// Proposes what is right now: the caught-up members of the maximal ISR. If that is the committed ISR itself, its
    /// success withdraws every earlier attempt (R9).
    fn propose(&mut self, now: Now, effects: &mut Effects) {
        let lag_time_max_ms = self.options.lag_time_max_ms;
        let mode = self.flush_mode();
        let end = self.log.counted(mode);
        let (RoleState::Leader(leader), Some(accepted), Some(broker_epoch)) =
            (&mut self.role, &self.accepted, self.broker_epoch)
        else {
            return;
        };
        let state = &accepted.partition.state;
        let Leader { followers, epoch_start, proposal, .. } = leader;
        let member = |id: BrokerId| {
            if id == self.me {
                return Some((id, broker_epoch));
            }
            let follower = followers.iter().find(|f| f.id == id && f.in_maximal_isr())?;
            if !follower.in_isr && (self.draining.contains(&id) || follower.is_barred(now)) {
                return None;
            }
            if !follower.is_caught_up(now, mode, end, lag_time_max_ms) {
                return None;
            }
            // A committed member keeps the epoch under which it was admitted: only the controller may confirm it under
            // another one, for it alone knows whether the new incarnation lost its tail (R5, R6).
            state
                .isr_epoch_of(id)
                .or_else(|| follower.may_join(&self.log, accepted.flush_mode, *epoch_start))
                .map(|epoch| (id, epoch))
        };
        let isr: Vec<_> =
            accepted.partition.assigned_replicas.iter().copied().filter_map(member).collect();
        effects.note(
            false,
            format!(
                "proposing ISR {:?} on {:?} at partition epoch {}",
                isr.iter().map(|(id, _)| id.0).collect::<Vec<_>>(),
                state.isr.iter().map(|(id, _)| id.0).collect::<Vec<_>>(),
                state.partition_epoch
            ),
        );
        proposal.open = Some(Open::Sent);
        effects.propose = Some(IsrProposal {
            incarnation: accepted.incarnation,
            leader_epoch: state.leader_epoch,
            partition_epoch: state.partition_epoch,
            isr,
        });
    }
}
