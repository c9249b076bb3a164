//! The replica's state and the dispatch of events to the role that handles them.

use std::collections::VecDeque;

use barnabas_types::{
    Acks, BrokerEpoch, BrokerId, Condition, ControllerEpoch, FlushMode, LeaderEpoch, Now, Offset,
    invariants,
};

use crate::effects::Effects;
use crate::event::{Event, FlushBound, LogState, StatePush, WaiterId};
use crate::follower::Follower;
use crate::leader::Leader;

/// Settings of the broker that a replica acts on.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ReplicaOptions {
    /// `replica.lag.time.max.ms`: a follower that was last caught up longer ago than this leaves the ISR. 1 or greater.
    pub lag_time_max_ms: u64,
}

/// One partition's replica on one broker, for one incarnation of its topic.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Replica {
    pub(crate) me: BrokerId,
    pub(crate) options: ReplicaOptions,
    /// `None` until the broker has registered; before that no push is for us.
    pub(crate) broker_epoch: Option<BrokerEpoch>,
    /// Highest controller epoch from which a push was accepted (R4).
    pub(crate) controller_epoch: Option<ControllerEpoch>,
    /// The log as the completed operations left it. Invariant I3: log_start <= HW <= LEO, flushed <= LEO.
    pub(crate) log: LogState,
    /// The newest accepted state, with the settings in force.
    pub(crate) accepted: Option<StatePush>,
    pub(crate) role: RoleState,
    /// Producers' appends that were ordered and are not written yet, in log order. They outlive a change of role: their
    /// bytes reach the log all the same. At most as many as the shell has produce requests in flight.
    pub(crate) pending: VecDeque<PendingAppend>,
    /// A newer state that came while a follower's append or truncation was under way. It is taken when that is done, as
    /// if it had come then: the epochs of half-written records must not meet an election.
    pub(crate) deferred: Option<StatePush>,
    /// The greatest log start that was ordered and may not be durable yet; the present one if there is no order.
    pub(crate) ordered_start: Offset,
    /// The log start of a reset that is not durable yet.
    pub(crate) reset_start: Option<Offset>,
    /// The last roll call (see the module of that name). Not of the leadership: an answer of an earlier one must not count for a later one.
    pub(crate) roll_call: u64,
    /// How far answers may run ahead of the flushed offset in async mode.
    pub(crate) flush_bound: FlushBound,
    /// Draining brokers, as far as this one was told (R26).
    pub(crate) draining: Vec<BrokerId>,
    /// When the last event was stepped: a long gap is a stall of this broker, not a lag of its followers (B7).
    pub(crate) last_step: Option<Now>,
}

/// The role with the data that only this role has.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) enum RoleState {
    /// Nothing accepted yet.
    Idle,
    /// Stopped by an error; refuses everything until the replica is created anew.
    Fenced,
    /// No longer assigned here.
    Deleted,
    /// The accepted state says leader -1.
    Leaderless,
    Leader(Leader),
    Follower(Follower),
}

/// A producer's append that was ordered and is not written yet.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct PendingAppend {
    pub(crate) waiter: WaiterId,
    pub(crate) acks: Acks,
    pub(crate) leader_epoch: LeaderEpoch,
    /// First offset, inclusive.
    pub(crate) base: Offset,
    /// Exclusive end.
    pub(crate) end: Offset,
    /// `false` once the waiter was answered (role change, timeout), or if nobody ever waits (acks=0).
    pub(crate) waits: bool,
}

impl Replica {
    /// A replica over a log that was just opened. It knows no state: the broker epoch comes with
    /// [`Event::Registered`], the role with the first [`Event::State`].
    ///
    /// A checkpointed HW below the log start is raised to it, one above the LEO is lowered to it.
    #[must_use]
    pub fn new(me: BrokerId, log: LogState, options: ReplicaOptions) -> Self {
        let mut log = log;
        assert!(log.log_start <= log.log_end, "the log ends before it starts");
        log.high_watermark = log.high_watermark.clamp(log.log_start, log.log_end);
        log.flushed = log.flushed.min(log.log_end);
        let ordered_start = log.log_start;
        Self {
            me,
            options,
            broker_epoch: None,
            controller_epoch: None,
            log,
            accepted: None,
            role: RoleState::Idle,
            pending: VecDeque::new(),
            deferred: None,
            ordered_start,
            reset_start: None,
            roll_call: 0,
            flush_bound: FlushBound::default(),
            draining: Vec::new(),
            last_step: None,
        }
    }

    /// Handles one event. `effects` must be empty or cleared ([`Effects::clear`]); what is to be done is added to it.
    ///
    /// # Panics
    /// On a broken invariant (I3, I7, I8): the shell fences the partition.
    pub fn step(&mut self, now: Now, event: Event, effects: &mut Effects) {
        self.forgive_own_stall(now);
        let answered = self.answered_calls();
        match event {
            Event::Registered { broker_epoch } => self.on_registered(broker_epoch, effects),
            Event::State(push) => self.on_state(now, push, effects),
            Event::Produce(produce) => self.on_produce(produce, effects),
            Event::ProduceAgain { waiter, acks, base, end } => {
                self.on_produce_again(waiter, acks, base, end, effects);
            }
            Event::ProduceGap(gap) => self.on_produce_gap(gap, effects),
            Event::RollCall => self.on_roll_call(effects),
            Event::Appended { waiter: Some(waiter), leader_epoch, log_end } => {
                self.on_producer_appended(now, waiter, leader_epoch, log_end, effects);
            }
            Event::Appended { waiter: None, leader_epoch, log_end } => {
                self.on_fetched_appended(leader_epoch, log_end, effects);
                self.take_deferred(now, effects);
            }
            Event::AppendFailed { .. } => self.on_append_failed(effects),
            Event::AppendRefused { waiter, condition } => {
                self.on_append_refused(waiter, &condition, effects);
                self.take_deferred(now, effects);
            }
            Event::Truncated { log_start, log_end, flushed } => {
                self.on_truncated(log_start, log_end, flushed, effects);
                self.take_deferred(now, effects);
            }
            Event::Flushed { to } => self.on_flushed(now, to),
            Event::FlushBound(bound) => self.flush_bound = bound,
            Event::FlushTimedOut { waiter } => self.on_flush_timed_out(waiter, effects),
            Event::FollowerFetch(fetch) => self.on_follower_fetch(now, fetch, effects),
            Event::FetchAnswered(answer) => self.on_fetch_answered(answer, effects),
            Event::ProposalAnswered(outcome) => self.on_proposal_answered(now, outcome, effects),
            Event::RetentionReached { to } => self.on_retention(to, effects),
            Event::DeleteRecords { waiter, to } => self.on_delete_records(waiter, to, effects),
            Event::LogStartDurable { to } => self.on_log_start_durable(to),
            Event::WaiterTimedOut { waiter } => self.on_waiter_timed_out(waiter, effects),
            Event::Draining { brokers } => self.on_draining(now, brokers, effects),
            Event::Tick => self.on_tick(now, effects),
        }
        self.committed(effects);
        effects.roll_call_answered = self.answered_calls() > answered;
        self.assert_invariants();
    }

    fn on_registered(&mut self, broker_epoch: BrokerEpoch, effects: &mut Effects) {
        if self.broker_epoch.is_some_and(|mine| broker_epoch < mine) {
            effects.note(true, format!("registration with a lower broker epoch {broker_epoch}"));
            return;
        }
        self.broker_epoch = Some(broker_epoch);
    }

    /// An append failed: the bytes at the end of the log are unknown, so nothing more may be said about this partition.
    fn on_append_failed(&mut self, effects: &mut Effects) {
        if matches!(self.role, RoleState::Fenced | RoleState::Deleted) {
            return;
        }
        self.end_all_waiters(&Condition::KafkaStorageError, effects);
        self.pending.clear();
        self.fence("an append failed".to_owned(), effects);
    }

    /// There is no room: nothing was written, and the log is whole. Only the newest order can be refused.
    fn on_append_refused(
        &mut self,
        waiter: Option<WaiterId>,
        condition: &Condition,
        effects: &mut Effects,
    ) {
        match waiter {
            // The follower stands where it stood; what it lacks is fetched again.
            None => self.drop_operation(),
            Some(waiter) => {
                let newest = self.pending.back().copied().filter(|p| p.waiter == waiter);
                let Some(refused) = newest else { return };
                self.pending.pop_back();
                if refused.waits {
                    effects.answers.push((waiter, Err(condition.clone())));
                }
            }
        }
    }

    /// Stops this replica until it is created anew.
    pub(crate) fn fence(&mut self, why: String, effects: &mut Effects) {
        self.role = RoleState::Fenced;
        self.deferred = None;
        effects.role_changed = Some(self.role());
        effects.note(true, format!("the partition is fenced on this broker: {why}"));
    }

    fn on_flushed(&mut self, now: Now, to: Offset) {
        let mut to = to.min(self.log.log_end);
        if let RoleState::Follower(follower) = &self.role
            && let Some(cut) = follower.cut_under_way()
        {
            to = to.min(cut);
        }
        if self.flush_mode() == FlushMode::Sync && to > self.log.flushed {
            self.end_moves(now, self.log.flushed);
        }
        self.log.flushed = self.log.flushed.max(to);
    }

    /// Exclusive end of the log once all ordered appends of producers are written.
    pub(crate) fn append_end(&self) -> Offset {
        self.pending.back().map_or(self.log.log_end, |p| p.end)
    }

    /// Ends every waiter without success: those whose records are written and those whose are still on the way.
    pub(crate) fn end_all_waiters(&mut self, condition: &Condition, effects: &mut Effects) {
        if let RoleState::Leader(leader) = &mut self.role {
            leader.end_waiters(condition, effects);
        }
        for pending in self.pending.iter_mut().filter(|p| p.waits) {
            pending.waits = false;
            effects.answers.push((pending.waiter, Err(condition.clone())));
        }
    }

    fn assert_invariants(&self) {
        let log = &self.log;
        assert!(
            invariants::i3_offsets_in_order(
                log.log_start,
                log.high_watermark,
                log.log_end,
                log.flushed
            ),
            "I3: log start {}, HW {}, LEO {}, flushed {}",
            log.log_start,
            log.high_watermark,
            log.log_end,
            log.flushed,
        );
    }
}
