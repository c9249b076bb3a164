//! The leader: takes producers' batches, serves followers' fetches and remembers where each follower stands.

use std::collections::VecDeque;

use barnabas_types::{Acks, BrokerId, Condition, FlushMode, LeaderEpoch, Now, Offset, Partition};

use crate::effects::{AppendOrder, Effects, FetchGrant, FetchReply};
use crate::event::{FetchPosition, FollowerFetch, Produce, WaiterId};
use crate::gaps::Gap;
use crate::isr::ProposalState;
use crate::log_start::Deletion;
use crate::progress::{FollowerProgress, Position};
use crate::replica::{PendingAppend, Replica, RoleState};

/// What only a leader has.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Leader {
    /// LEO at the election: first offset of this leader epoch.
    pub(crate) epoch_start: Offset,
    /// The assigned replicas except this one, in the order of the assignment.
    pub(crate) followers: Vec<FollowerProgress>,
    pub(crate) proposal: ProposalState,
    /// acks=all, in log order. Bounded by the shell's produce requests in flight, as is the next.
    waiting_all: VecDeque<Waiter>,
    /// acks=1, in log order; empty between steps in async mode without a flush bound.
    waiting_written: VecDeque<Waiter>,
    /// DeleteRecords requests. Bounded by the shell's requests in flight.
    pub(crate) deletions: Vec<Deletion>,
    /// Producers that are not told of a gap yet, in the order of their roll calls. Bounded likewise.
    pub(crate) gaps: VecDeque<Gap>,
}

/// A producer whose records are in the log and who has not been answered.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Waiter {
    waiter: WaiterId,
    base: Offset,
    end: Offset,
}

impl Leader {
    pub(crate) fn new(now: Now, me: BrokerId, partition: &Partition, epoch_start: Offset) -> Self {
        let mut leader = Self {
            epoch_start,
            followers: Vec::new(),
            proposal: ProposalState::default(),
            waiting_all: VecDeque::new(),
            waiting_written: VecDeque::new(),
            deletions: Vec::new(),
            gaps: VecDeque::new(),
        };
        leader.adopt_isr(now, me, partition);
        leader
    }

    /// A newer partition epoch in this leader epoch: its ISR is the committed one, the proposals are settled (R9, R13).
    /// Positions stay: they were reported in this leader epoch.
    pub(crate) fn adopt_isr(&mut self, now: Now, me: BrokerId, partition: &Partition) {
        let mut known = std::mem::take(&mut self.followers);
        for id in partition.assigned_replicas.iter().copied().filter(|id| *id != me) {
            let mut follower = known
                .iter()
                .position(|f| f.id == id)
                .map_or_else(|| FollowerProgress::new(now, id), |index| known.swap_remove(index));
            let admitted = partition.state.isr_epoch_of(id);
            if let Some(broker_epoch) = admitted {
                follower.see_broker_epoch(broker_epoch);
                follower.unbar();
                if !follower.in_isr {
                    // The time until it must have been caught up begins with its admission.
                    follower.caught_up_at = now;
                }
            }
            follower.in_isr = admitted.is_some();
            follower.proposed = false;
            self.followers.push(follower);
        }
        self.proposal = ProposalState::default();
    }

    /// Answers the acks=1 producers whose records lie below `durable`.
    pub(crate) fn answer_written(&mut self, durable: Offset, effects: &mut Effects) {
        answer_below(&mut self.waiting_written, durable, effects);
    }

    /// Answers the acks=all producers whose records lie below the HW.
    pub(crate) fn answer_committed(&mut self, high_watermark: Offset, effects: &mut Effects) {
        answer_below(&mut self.waiting_all, high_watermark, effects);
    }

    /// The least log start in the maximal ISR, of which this replica has `log_start`; `None` until all have reported.
    pub(crate) fn low_watermark(&self, log_start: Offset) -> Option<Offset> {
        let members = self.followers.iter().filter(|f| f.in_maximal_isr());
        members
            .map(|f| f.position.map(|p| p.log_start))
            .try_fold(log_start, |least, start| start.map(|s| least.min(s)))
    }

    /// Answers the deletions that every member of the maximal ISR has performed: none begins below `low_watermark` (R33).
    pub(crate) fn answer_deletions(&mut self, low_watermark: Offset, effects: &mut Effects) {
        self.deletions.retain(|deletion| {
            let done = deletion.to <= low_watermark;
            if done {
                effects.answers.push((deletion.waiter, Ok(low_watermark)));
            }
            !done
        });
    }

    /// Ends the acks=all producers without success.
    pub(crate) fn end_uncommitted(&mut self, condition: &Condition, effects: &mut Effects) {
        let ended = self.waiting_all.drain(..);
        effects.answers.extend(ended.map(|w| (w.waiter, Err(condition.clone()))));
    }

    /// Ends all producers and deletions without success.
    pub(crate) fn end_waiters(&mut self, condition: &Condition, effects: &mut Effects) {
        self.end_uncommitted(condition, effects);
        self.end_gaps(condition, effects);
        let written = self.waiting_written.drain(..).map(|w| w.waiter);
        let ended = written.chain(self.deletions.drain(..).map(|d| d.waiter));
        effects.answers.extend(ended.map(|waiter| (waiter, Err(condition.clone()))));
    }

    pub(crate) fn waiters(&self) -> usize {
        let produced = self.waiting_all.len() + self.waiting_written.len();
        produced + self.deletions.len() + self.gaps.len()
    }

    /// Exclusive end of a waiter's records.
    fn end_of(&self, waiter: WaiterId) -> Option<Offset> {
        let mut all = self.waiting_all.iter().chain(&self.waiting_written);
        all.find(|w| w.waiter == waiter).map(|w| w.end)
    }

    /// Drops a waiter; `false` if it is not here.
    fn forget(&mut self, waiter: WaiterId) -> bool {
        if let Some(index) = self.deletions.iter().position(|d| d.waiter == waiter) {
            self.deletions.swap_remove(index);
            return true;
        }
        if let Some(index) = self.gaps.iter().position(|gap| gap.waiter == waiter) {
            return self.gaps.remove(index).is_some();
        }
        [&mut self.waiting_all, &mut self.waiting_written].into_iter().any(|queue| {
            let found = queue.iter().position(|w| w.waiter == waiter);
            found.is_some_and(|index| queue.remove(index).is_some())
        })
    }
}

fn answer_below(queue: &mut VecDeque<Waiter>, end: Offset, effects: &mut Effects) {
    while let Some(waiter) = queue.front().copied().filter(|w| w.end <= end) {
        queue.pop_front();
        effects.answers.push((waiter.waiter, Ok(waiter.base)));
    }
}

impl Replica {
    pub(crate) fn on_produce(&mut self, produce: Produce, effects: &mut Effects) {
        match self.admit_produce(produce) {
            Ok(leader_epoch) => {
                let base = self.append_end();
                self.pending.push_back(PendingAppend {
                    waiter: produce.waiter,
                    acks: produce.acks,
                    leader_epoch,
                    base,
                    end: Offset(base.0 + produce.offsets),
                    waits: produce.acks != Acks::None,
                });
                effects.append = Some(AppendOrder {
                    waiter: Some(produce.waiter),
                    base_offset: base,
                    leader_epoch,
                });
            }
            Err(_) if produce.acks == Acks::None => {}
            Err(condition) => effects.answers.push((produce.waiter, Err(condition))),
        }
    }

    /// Batches that are in the log already: the wait takes its place among the others by its end.
    pub(crate) fn on_produce_again(
        &mut self,
        waiter: WaiterId,
        acks: Acks,
        base: Offset,
        end: Offset,
        effects: &mut Effects,
    ) {
        let produce = Produce { waiter, acks, offsets: end.0 - base.0 };
        if let Err(condition) = self.admit_produce(produce) {
            effects.answers.push((waiter, Err(condition)));
            return;
        }
        let RoleState::Leader(leader) = &mut self.role else { return };
        let queue = match acks {
            Acks::All => &mut leader.waiting_all,
            Acks::Leader | Acks::None => &mut leader.waiting_written,
        };
        let at = queue.partition_point(|w| w.end <= end);
        queue.insert(at, Waiter { waiter, base, end });
    }

    /// Whether a producer's batches would be taken now, and in which epoch.
    pub(crate) fn admit_produce(&self, produce: Produce) -> Result<LeaderEpoch, Condition> {
        if self.role == RoleState::Fenced {
            return Err(Condition::KafkaStorageError);
        }
        let (RoleState::Leader(_), Some(accepted)) = (&self.role, &self.accepted) else {
            return Err(Condition::NotLeaderOrFollower);
        };
        if produce.offsets < 1 {
            return Err(Condition::InvalidRecord("a batch without records"));
        }
        match accepted.too_few_in_sync() {
            Some(too_few) if produce.acks == Acks::All => Err(too_few),
            _ => Ok(accepted.partition.state.leader_epoch),
        }
    }

    /// A producer's batches are in the log. In whatever epoch that was ordered, the LEO is where they end.
    pub(crate) fn on_producer_appended(
        &mut self,
        now: Now,
        waiter: WaiterId,
        leader_epoch: LeaderEpoch,
        log_end: Offset,
        effects: &mut Effects,
    ) {
        let expected = self.pending.front().copied();
        let Some(pending) = expected
            .filter(|p| p.waiter == waiter && p.leader_epoch == leader_epoch && p.end == log_end)
        else {
            effects.note(
                true,
                format!(
                    "append of waiter {} to {log_end} in epoch {leader_epoch} was not ordered next",
                    waiter.0
                ),
            );
            return;
        };
        self.pending.pop_front();
        let log_end_before = self.log.log_end;
        self.log.log_end = log_end;
        let present = self.leader_epoch() == Some(leader_epoch);
        if self.flush_mode() == FlushMode::Async {
            self.end_moves(now, log_end_before);
        }
        let RoleState::Leader(leader) = &mut self.role else { return };
        if pending.waits {
            assert!(present, "R11: a waiter outlived epoch {leader_epoch}");
            let waiter = Waiter { waiter, base: pending.base, end: log_end };
            match pending.acks {
                Acks::All => leader.waiting_all.push_back(waiter),
                Acks::Leader | Acks::None => leader.waiting_written.push_back(waiter),
            }
        }
    }

    /// What counts here no longer ends at `before`. Whoever had everything until now is caught up now, however long ago it
    /// said so (B7).
    pub(crate) fn end_moves(&mut self, now: Now, before: Offset) {
        let mode = self.flush_mode();
        if let RoleState::Leader(leader) = &mut self.role {
            for follower in leader.followers.iter_mut().filter(|f| f.has_all(mode, before)) {
                follower.caught_up_at = now;
            }
        }
    }

    pub(crate) fn on_waiter_timed_out(&mut self, waiter: WaiterId, effects: &mut Effects) {
        let on_the_way = self.pending.iter_mut().find(|p| p.waiter == waiter && p.waits);
        let waited = match (on_the_way, &mut self.role) {
            (Some(pending), _) => {
                pending.waits = false;
                true
            }
            (None, RoleState::Leader(leader)) => leader.forget(waiter),
            (None, _) => false,
        };
        if waited {
            effects.answers.push((waiter, Err(Condition::RequestTimedOut)));
        }
    }

    /// Only the flush here is judged: those of the followers are waited for by the request's own timeout.
    pub(crate) fn on_flush_timed_out(&mut self, waiter: WaiterId, effects: &mut Effects) {
        let waits = match &self.role {
            RoleState::Leader(leader) => {
                let flushed = leader.end_of(waiter).is_some_and(|e| e <= self.log.flushed);
                // A gap waits for no flush.
                !flushed && !leader.gaps.iter().any(|gap| gap.waiter == waiter)
            }
            _ => true,
        };
        if waits && self.flush_mode() == FlushMode::Sync {
            self.on_waiter_timed_out(waiter, effects);
        }
    }

    pub(crate) fn on_follower_fetch(
        &mut self,
        now: Now,
        fetch: FollowerFetch,
        effects: &mut Effects,
    ) {
        if let Err(condition) = self.admit_fetch(fetch) {
            effects.fetch_reply = Some(FetchReply::Refused(condition));
            return;
        }
        // R15: divergence is judged before the position is noted.
        if let Some(reply) = self.divergence(fetch.position) {
            effects.fetch_reply = Some(reply);
            return;
        }
        let position = Position {
            log_end: fetch.position.log_end,
            flushed: fetch.position.flushed,
            log_start: fetch.position.log_start,
        };
        let (mode, log_end) = (self.flush_mode(), self.log.log_end);
        let end = self.log.counted(mode);
        if let RoleState::Leader(leader) = &mut self.role
            && let Some(follower) = leader.followers.iter_mut().find(|f| f.id == fetch.follower)
        {
            follower.note(now, position, mode, end);
            follower.heard = follower.heard.max(fetch.heard);
        }
        self.committed(effects);
        self.maybe_expand(now, fetch.follower, effects);
        effects.fetch_reply = Some(FetchReply::Grant(FetchGrant {
            from: position.log_end,
            to: log_end,
            high_watermark: self.log.high_watermark,
            log_start: self.log.log_start,
            roll_call: self.roll_call,
        }));
    }

    /// Whether the fetch is one of a follower of mine, in my epoch, by the follower's newest incarnation (R19, R29, R30).
    fn admit_fetch(&mut self, fetch: FollowerFetch) -> Result<(), Condition> {
        if self.role == RoleState::Fenced {
            return Err(Condition::KafkaStorageError);
        }
        let (RoleState::Leader(leader), Some(accepted)) = (&mut self.role, &self.accepted) else {
            return Err(Condition::NotLeaderOrFollower);
        };
        let asked = fetch.position;
        if asked.incarnation != accepted.incarnation {
            return Err(Condition::InconsistentTopicId);
        }
        check_leader_epoch(asked.leader_epoch, accepted.partition.state.leader_epoch)?;
        let Some(follower) = leader.followers.iter_mut().find(|f| f.id == fetch.follower) else {
            return Err(Condition::NotAssignedReplica(fetch.follower));
        };
        if let Some(present) = follower.broker_epoch
            && asked.broker_epoch < present
        {
            return Err(Condition::StaleBrokerEpoch { asked: asked.broker_epoch, present });
        }
        follower.see_broker_epoch(asked.broker_epoch);
        Ok(())
    }

    /// How the follower's log differs from this one, `None` if it is a prefix of it that can be continued from here.
    fn divergence(&self, follower: FetchPosition) -> Option<FetchReply> {
        let (log_start, log_end) = (self.log.log_start, self.log.log_end);
        let reset = Some(FetchReply::Reset { log_start });
        if follower.log_end < log_start {
            return reset;
        }
        let Some(last_epoch) = follower.last_epoch else {
            // R36: an empty log has no epoch to compare. Above the end here it cannot be cut, and has nothing to lose.
            let fits = follower.log_start == follower.log_end && follower.log_end <= log_end;
            return if fits { None } else { reset };
        };
        let Some(latest) = self.log.epochs.latest() else { return reset };
        // An epoch above all that are known here is not in this log: what it may share with it ends with the latest.
        let common = self.log.epochs.end_offset_for(last_epoch.min(latest), log_end);
        match common.map(|(epoch, end)| (epoch, end.min(log_end))) {
            Some((epoch, end)) if epoch == last_epoch && follower.log_end <= end => None,
            Some((epoch, end)) if end >= log_start => Some(FetchReply::Diverging { epoch, end }),
            _ => reset,
        }
    }
}

/// KIP-320: lower is fenced, higher is not known here yet.
pub(crate) fn check_leader_epoch(
    asked: LeaderEpoch,
    present: LeaderEpoch,
) -> Result<(), Condition> {
    match asked.cmp(&present) {
        std::cmp::Ordering::Less => Err(Condition::FencedLeaderEpoch { asked, present }),
        std::cmp::Ordering::Greater => Err(Condition::UnknownLeaderEpoch { asked, present }),
        std::cmp::Ordering::Equal => Ok(()),
    }
}
