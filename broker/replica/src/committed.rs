//! What is committed: the one place that advances a leader's high watermark and answers its waiters.

use barnabas_types::{Condition, FlushMode, Offset};

use crate::effects::Effects;
use crate::progress::Position;
use crate::replica::{Replica, RoleState};

impl Replica {
    /// Called after every input change. Does nothing unless this replica leads.
    ///
    /// committed = min over the maximal ISR of the positions reported in this leader epoch (R10); a member that has not
    /// reported one holds everything back. The HW follows only while |committed ISR| >= min.insync.replicas and never
    /// goes down. A waiter succeeds only here, and only in the epoch of its append: a change of epoch has ended all
    /// others before (R11).
    ///
    /// After a switch from async to sync the HW may be above what is flushed: it stays (I4), but nobody is answered on it
    /// before every member has flushed as far (R37).
    pub(crate) fn committed(&mut self, effects: &mut Effects) {
        let (RoleState::Leader(leader), Some(accepted)) = (&mut self.role, &self.accepted) else {
            return;
        };
        if self.reset_start.is_some() {
            // Where this log begins is not durable yet, so nothing in it counts.
            return;
        }
        let mode = accepted.flush_mode;
        let durable = self.log.counted(mode);
        let too_few = accepted.too_few_in_sync();
        let mut acknowledged = self.log.high_watermark;
        if too_few.is_none() {
            let committed = leader
                .followers
                .iter()
                .filter(|f| f.in_maximal_isr())
                .map(|f| f.position.map(|p| p.counted(mode)))
                .try_fold(durable, |least, position| position.map(|p| least.min(p)));
            if let Some(committed) = committed
                && committed > self.log.high_watermark
            {
                self.log.high_watermark = committed;
                effects.high_watermark = Some(committed);
                let within = |p: Option<Position>| p.is_some_and(|p| committed <= p.counted(mode));
                assert!(
                    committed <= durable
                        && leader
                            .followers
                            .iter()
                            .all(|f| !f.in_maximal_isr() || within(f.position)),
                    "I7: HW {committed} is above a member of the maximal ISR"
                );
            }
            acknowledged = match mode {
                FlushMode::Async => self.log.high_watermark,
                FlushMode::Sync => committed.unwrap_or_default().min(self.log.high_watermark),
            };
        }
        let bound = self.flush_bound.answered_below(mode, self.log.flushed);
        leader.answer_written(durable.min(bound), effects);
        if let Some(too_few) = too_few {
            // B4: they cannot be committed before the ISR grows again; say so now, not by a timeout.
            leader.end_uncommitted(&Condition::NotEnoughReplicasAfterAppend, effects);
            leader.end_gaps(&too_few, effects);
            return;
        }
        leader.answer_committed(acknowledged.min(bound), effects);
        if !leader.deletions.is_empty()
            && let Some(low_watermark) = leader.low_watermark(self.log.log_start)
        {
            leader.answer_deletions(low_watermark, effects);
        }
        leader.tell_gaps(effects);
    }

    /// Moves a follower's HW: never above its own LEO, never down (R15).
    pub(crate) fn follow_high_watermark(&mut self, leaders: Offset, effects: &mut Effects) {
        let high_watermark = leaders.min(self.log.log_end);
        if high_watermark > self.log.high_watermark {
            self.log.high_watermark = high_watermark;
            effects.high_watermark = Some(high_watermark);
        }
    }
}
