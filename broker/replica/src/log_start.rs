//! The log start: who may raise it, from when on it counts, and who waits for a deletion (R32 to R35).
//!
//! A start is ordered first ([`crate::Effects::log_start`]) and becomes the replica's once it is durable: what a replica
//! reports of its start must survive its crash. The order stands through changes of role.

use barnabas_types::{Condition, Offset};

use crate::effects::Effects;
use crate::event::WaiterId;
use crate::replica::{Replica, RoleState};

/// A DeleteRecords request that is not answered yet.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Deletion {
    pub(crate) waiter: WaiterId,
    /// Everything below is to go.
    pub(crate) to: Offset,
}

impl Replica {
    /// Retention lets everything below `to` go, as far as the own HW reaches (R32).
    pub(crate) fn on_retention(&mut self, to: Offset, effects: &mut Effects) {
        // A reset or a cut decides where this log begins and ends; retention looks again later.
        let cutting = matches!(&self.role, RoleState::Follower(f) if f.cut_under_way().is_some());
        if cutting || self.reset_start.is_some() || self.is_over() {
            return;
        }
        self.order_log_start(to.min(self.log.high_watermark), effects);
    }

    pub(crate) fn on_delete_records(
        &mut self,
        waiter: WaiterId,
        to: Option<Offset>,
        effects: &mut Effects,
    ) {
        match self.admit_deletion(to) {
            Ok(to) => {
                self.order_log_start(to, effects);
                if let RoleState::Leader(leader) = &mut self.role {
                    leader.deletions.push(Deletion { waiter, to });
                }
            }
            Err(condition) => effects.answers.push((waiter, Err(condition))),
        }
    }

    /// R32: nothing above the HW is deleted. Returns where the log is to begin.
    fn admit_deletion(&self, to: Option<Offset>) -> Result<Offset, Condition> {
        if self.role == RoleState::Fenced {
            return Err(Condition::KafkaStorageError);
        }
        if !matches!(self.role, RoleState::Leader(_)) {
            return Err(Condition::NotLeaderOrFollower);
        }
        let (start, end) = (self.log.log_start, self.log.high_watermark);
        let to = to.unwrap_or(end);
        if to < Offset(0) || to > end {
            return Err(Condition::OffsetOutOfRange { asked: to, start, end });
        }
        Ok(to)
    }

    /// Orders that the log begin at `to`, unless a later start is ordered already.
    pub(crate) fn order_log_start(&mut self, to: Offset, effects: &mut Effects) {
        if to > self.ordered_start {
            self.ordered_start = to;
            effects.log_start = Some(to);
        }
    }

    /// The start `to` is durable. One that a reset has overtaken changes nothing.
    pub(crate) fn on_log_start_durable(&mut self, to: Offset) {
        if self.is_over() {
            return;
        }
        if let Some(start) = self.reset_start {
            if to == start {
                self.reset_start = None;
            }
            return;
        }
        if to > self.log.log_start && to <= self.ordered_start {
            self.log.log_start = to;
            self.log.epochs.truncate_from_start(to);
        }
    }

    /// A reset has emptied the log, which begins at `start` now (R35): the one way for a start to go down. No position of
    /// this log counts before that is durable, or a restart would find records of the new log below the old start.
    pub(crate) fn begin_anew(&mut self, start: Offset, effects: &mut Effects) {
        if start == self.log.log_start && start == self.ordered_start {
            return; // Durable already.
        }
        self.ordered_start = start;
        self.reset_start = Some(start);
        effects.log_start = Some(start);
    }

    fn is_over(&self) -> bool {
        matches!(self.role, RoleState::Fenced | RoleState::Deleted)
    }
}
