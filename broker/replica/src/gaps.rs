//! A gap in an idempotent producer's sequences (KIP-98): told only by who surely led after the request had come.
//!
//! A leader that was deposed unawares lacks what its successor has acknowledged. Were it to say to a producer that comes back
//! with old metadata that a sequence is missing, the producer would begin anew and write a second time what it has no
//! answer for. So the leader calls the roll first (`roll_call`).

use barnabas_types::{Acks, Condition};

use crate::effects::Effects;
use crate::event::{Produce, ProduceGap, WaiterId};
use crate::leader::Leader;
use crate::replica::{Replica, RoleState};

/// A producer that is not told yet.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Gap {
    pub(crate) waiter: WaiterId,
    /// The roll call that it waits for.
    call: u64,
    found: i32,
    expected: i32,
}

impl Leader {
    /// Tells the gaps whose roll call every member of the maximal ISR has answered.
    pub(crate) fn tell_gaps(&mut self, effects: &mut Effects) {
        let answered = self.answered_call();
        while let Some(gap) = self.gaps.front().copied().filter(|gap| gap.call <= answered) {
            self.gaps.pop_front();
            let Gap { waiter, found, expected, .. } = gap;
            let told = Condition::OutOfOrderSequenceNumber { found, expected };
            effects.answers.push((waiter, Err(told)));
        }
    }

    /// Ends the wait of all gaps, which are not told.
    pub(crate) fn end_gaps(&mut self, condition: &Condition, effects: &mut Effects) {
        let ended = self.gaps.drain(..);
        effects.answers.extend(ended.map(|gap| (gap.waiter, Err(condition.clone()))));
    }
}

impl Replica {
    pub(crate) fn on_produce_gap(&mut self, gap: ProduceGap, effects: &mut Effects) {
        let ProduceGap { waiter, acks, found, expected } = gap;
        // What may pass is told first: the gap is there because the batch before it was refused for that.
        if let Err(condition) = self.admit_produce(Produce { waiter, acks, offsets: 1 }) {
            effects.answers.push((waiter, Err(condition)));
            return;
        }
        let RoleState::Leader(leader) = &mut self.role else { return };
        if acks != Acks::All {
            // What is acknowledged by one replica may be lost with it: there is nothing to protect.
            let told = Condition::OutOfOrderSequenceNumber { found, expected };
            effects.answers.push((waiter, Err(told)));
            return;
        }
        leader.gaps.push_back(Gap { waiter, call: self.roll_call + 1, found, expected });
        self.call_roll(effects);
    }
}
