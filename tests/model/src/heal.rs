//! I12: from a reached world on, without further faults, everything that is due happens, and the partition must come to rest whole.

use barnabas_replica::ProposalOutcome;

use crate::action::Action;
use crate::protocol::Protocol;
use crate::world::{BROKERS, World};

/// Rounds of everything that is due; more than any schedule has needed.
const ROUNDS_MAX: usize = 80;

impl Protocol {
    /// Whether the partition gets its leader, its full ISR and equal logs, all of it committed, by itself.
    #[must_use]
    pub fn heals(&self, from: &World) -> bool {
        let mut healing = self.clone();
        healing.row.epochs = u8::MAX;
        healing.row.proposals = u8::MAX;
        let mut w = from.clone();
        w.spent.proposals = 0;
        for b in 0..BROKERS {
            if w.brokers[b].leads().is_some() && w.brokers[b].waiting.is_none() {
                // What the bound on proposals has swallowed times out.
                healing.proposal_failed(&mut w, b, ProposalOutcome::Unknown);
            }
        }
        healing.settle(&mut w);
        for _ in 0..ROUNDS_MAX {
            let before = w.clone();
            healing.round(&mut w);
            w.spent.proposals = 0;
            if w == before {
                break;
            }
        }
        let end = w.brokers[0].log_end();
        w.node.leader.is_some()
            && w.node.members() == 0b111
            && w.brokers.iter().all(|b| {
                b.directory.records == w.brokers[0].directory.records && b.high_watermark() == end
            })
    }

    fn round(&self, w: &mut World) {
        let term = w.present_term();
        for b in 0..BROKERS {
            self.due(w, Action::Restart(b));
            self.due(w, Action::RegisterAgain(b));
            self.due(w, Action::Observe { term, broker: b });
        }
        while !w.flights.is_empty() {
            let before = w.flights.len();
            self.due(w, Action::Land(0));
            if w.flights.len() == before {
                break;
            }
        }
        for b in 0..BROKERS {
            self.due(w, Action::Send(b));
        }
        for proposal in w.proposals.clone() {
            self.due(w, Action::Alter { term, proposal, heard: true });
        }
        for b in 0..BROKERS {
            self.due(w, Action::GiveUp(b));
        }
        for push in w.pushes.clone().into_iter().rev() {
            if usize::from(push.controller_epoch) == term + 1 {
                self.due(w, Action::Push(push));
            }
        }
        for b in 0..BROKERS {
            self.due(w, Action::Report { term, broker: b });
            self.due(w, Action::Flush(b));
            self.due(w, Action::Fetch { follower: b, lost: false });
        }
        if w.node.members() != 0b111 {
            for b in 0..BROKERS {
                if w.brokers[b].waiting.is_none() {
                    self.due(w, Action::Lag(b));
                }
            }
        }
    }

    fn due(&self, w: &mut World, action: Action) {
        if let Some(next) = self.next(w, action) {
            *w = next;
        }
    }
}
