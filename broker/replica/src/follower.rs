//! The follower: applies the leader's answers to its log, each only while it stands where the request said (R15, R31).

use barnabas_types::{BrokerId, LeaderEpoch, Offset};

use crate::effects::{AppendOrder, Effects};
use crate::event::{FetchAnswer, FetchOutcome, FetchPosition};
use crate::replica::{Replica, RoleState};

/// What only a follower has.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Follower {
    pub(crate) leader: BrokerId,
    /// The log operation under way, at most one.
    operation: Option<Operation>,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum Operation {
    /// Writing fetched records.
    Append(Fetched),
    /// Cutting to this exclusive end.
    Truncate(Offset),
    /// Dropping everything and beginning here.
    Reset(Offset),
}

/// What a fetch answer brings; it counts once its records are written.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Fetched {
    end: Offset,
    epochs: Vec<(LeaderEpoch, Offset)>,
    high_watermark: Offset,
    log_start: Offset,
}

impl Follower {
    pub(crate) fn new(leader: BrokerId) -> Self {
        Self { leader, operation: None }
    }

    /// Whether an append, truncation or reset is under way.
    pub(crate) fn is_busy(&self) -> bool {
        self.operation.is_some()
    }

    /// The end to which a truncation or reset under way cuts.
    pub(crate) fn cut_under_way(&self) -> Option<Offset> {
        match self.operation {
            Some(Operation::Truncate(to) | Operation::Reset(to)) => Some(to),
            Some(Operation::Append(_)) | None => None,
        }
    }
}

impl Replica {
    pub(crate) fn on_fetch_answered(&mut self, answer: FetchAnswer, effects: &mut Effects) {
        // R31: late and duplicate answers are ordinary; they find the replica elsewhere.
        let Some(present) = self.fetch_position().filter(|p| is_same(p, &answer.asked)) else {
            return;
        };
        if !matches!(&self.role, RoleState::Follower(f) if f.leader == answer.leader) {
            return;
        }
        match answer.outcome {
            FetchOutcome::Records { end, epochs, high_watermark, log_start } => {
                let fetched = Fetched { end, epochs, high_watermark, log_start };
                self.take_records(present, fetched, effects);
            }
            FetchOutcome::Diverging { epoch, end } => self.cut(present, epoch, end, effects),
            FetchOutcome::Reset { log_start } => self.reset(log_start, effects),
            FetchOutcome::Refused(_) => {}
        }
    }

    fn take_records(&mut self, present: FetchPosition, fetched: Fetched, effects: &mut Effects) {
        if let Some(fault) = fault_of(&present, &fetched) {
            effects.note(true, format!("fetch answer at {} ignored: {fault}", present.log_end));
        } else if fetched.end == present.log_end {
            self.take_marks(fetched.high_watermark, fetched.log_start, effects);
        } else {
            effects.append = Some(AppendOrder {
                waiter: None,
                base_offset: present.log_end,
                leader_epoch: present.leader_epoch,
            });
            self.begin(Operation::Append(fetched));
        }
    }

    /// R15: cut to where the leader's epoch ends in both logs, never to a high watermark; then ask again.
    fn cut(
        &mut self,
        present: FetchPosition,
        epoch: LeaderEpoch,
        end: Offset,
        effects: &mut Effects,
    ) {
        let log = &self.log;
        let own_end =
            log.epochs.end_offset_for(epoch, log.log_end).map_or(log.log_start, |(_, end)| end);
        // What a start was ordered for is gone from the log already, durable or not.
        let floor = self.ordered_start;
        let to = end.min(own_end).max(floor);
        if present.last_epoch.is_none_or(|last| epoch > last) || to >= log.log_end {
            effects.note(
                true,
                format!("diverging epoch {epoch}, end {end}, ignored: it cuts nothing here"),
            );
            return;
        }
        effects.note(
            to < log.high_watermark,
            format!(
                "truncating to {to}: the leader's epoch {epoch} ends at {end}, here at {own_end}; LEO {}, HW {}",
                log.log_end, log.high_watermark
            ),
        );
        if to == floor && floor > Offset(0) {
            // Nothing is left. A start may lie within a batch, where no log can be cut.
            effects.reset_to = Some(to);
            self.begin(Operation::Reset(to));
            return;
        }
        effects.truncate_to = Some(to);
        self.begin(Operation::Truncate(to));
    }

    /// R35: nothing in common at or above the leader's log start.
    fn reset(&mut self, log_start: Offset, effects: &mut Effects) {
        // A new copy has nothing to lose.
        effects.note(
            self.log.log_end > self.log.log_start,
            format!(
                "dropping {} to {}: no common epoch at or above the leader's log start {log_start}",
                self.log.log_start, self.log.log_end
            ),
        );
        effects.reset_to = Some(log_start);
        self.begin(Operation::Reset(log_start));
    }

    fn begin(&mut self, operation: Operation) {
        if let RoleState::Follower(follower) = &mut self.role {
            follower.operation = Some(operation);
        }
    }

    pub(crate) fn on_fetched_appended(
        &mut self,
        leader_epoch: LeaderEpoch,
        log_end: Offset,
        effects: &mut Effects,
    ) {
        let present = self.leader_epoch() == Some(leader_epoch);
        let RoleState::Follower(follower) = &mut self.role else {
            effects.note(true, format!("append of fetched records to {log_end} was not ordered"));
            return;
        };
        let fetched = match follower.operation.take() {
            Some(Operation::Append(fetched)) if present && fetched.end == log_end => fetched,
            other => {
                follower.operation = other;
                effects
                    .note(true, format!("append of fetched records to {log_end} was not ordered"));
                return;
            }
        };
        // An epoch in which this replica led without a record gives way, also to an older epoch of a record.
        let base = self.log.log_end;
        self.log.epochs.truncate_from_end(base);
        for (epoch, start) in fetched.epochs {
            self.log.epochs.assign(epoch, start.max(base));
        }
        self.log.log_end = log_end;
        self.take_marks(fetched.high_watermark, fetched.log_start, effects);
    }

    /// R15, R34: the leader's HW and log start, as far as this log reaches.
    fn take_marks(&mut self, high_watermark: Offset, log_start: Offset, effects: &mut Effects) {
        self.follow_high_watermark(high_watermark, effects);
        self.order_log_start(log_start.min(self.log.high_watermark), effects);
    }

    /// The log operation under way was refused before it began.
    pub(crate) fn drop_operation(&mut self) {
        if let RoleState::Follower(follower) = &mut self.role {
            follower.operation = None;
        }
    }

    pub(crate) fn on_truncated(
        &mut self,
        log_start: Offset,
        log_end: Offset,
        flushed: Offset,
        effects: &mut Effects,
    ) {
        let operation = match &mut self.role {
            RoleState::Follower(follower) => follower.operation.take(),
            _ => None,
        };
        let log_start = match operation {
            Some(Operation::Truncate(_)) => {
                self.log.epochs.truncate_from_end(log_end);
                // The log may have begun to drop what an order speaks of that is not durable yet.
                self.log.log_start
            }
            Some(Operation::Reset(_)) => {
                self.log.epochs.clear();
                self.begin_anew(log_start, effects);
                log_start
            }
            other => {
                if let Some(operation) = other {
                    self.begin(operation);
                }
                effects.note(true, format!("truncation to {log_end} was not ordered"));
                return;
            }
        };
        let high_watermark = self.log.high_watermark.clamp(log_start, log_end);
        if high_watermark != self.log.high_watermark {
            effects.high_watermark = Some(high_watermark);
        }
        self.log.high_watermark = high_watermark;
        self.log.log_start = log_start;
        self.log.log_end = log_end;
        self.log.flushed = flushed.min(log_end);
    }
}

/// R31: incarnation, broker epoch, leader epoch, LEO and last epoch are what the request said. Not the flushed offset or
/// the log start: they move by themselves and say nothing about the end of the log.
fn is_same(present: &FetchPosition, asked: &FetchPosition) -> bool {
    present.incarnation == asked.incarnation
        && present.broker_epoch == asked.broker_epoch
        && present.leader_epoch == asked.leader_epoch
        && present.log_end == asked.log_end
        && present.last_epoch == asked.last_epoch
}

/// What is wrong with an answer's records, if anything.
fn fault_of(present: &FetchPosition, fetched: &Fetched) -> Option<&'static str> {
    if fetched.end < present.log_end {
        return Some("it ends before it begins");
    }
    let epochs = &fetched.epochs;
    if fetched.end > present.log_end && epochs.is_empty() {
        return Some("records without a leader epoch");
    }
    let first_epoch = epochs.first().map(|(epoch, _)| *epoch);
    if present.last_epoch.is_some() && first_epoch.is_some() && first_epoch < present.last_epoch {
        return Some("leader epochs go backwards");
    }
    let rising = epochs.windows(2).all(|pair| pair[0].0 < pair[1].0 && pair[0].1 < pair[1].1);
    let inside =
        epochs.iter().all(|(epoch, start)| *epoch <= present.leader_epoch && *start < fetched.end);
    (!rising || !inside).then_some("leader epochs out of order")
}
