//! I12: from a reached world on, without further faults, everything that is due happens, and the partition must come to rest whole.

use barnabas_replica::ProposalOutcome;

use crate::action::Action;
use crate::broker::{Broker, Stopping};
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
        w.messages.clear();
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
        is_whole(&w)
    }

    fn round(&self, w: &mut World) {
        let term = w.present_term();
        for b in 0..BROKERS {
            self.due(w, Action::Restart(b));
            if w.brokers[b].is_fenced() || w.registered[b].is_none() {
                self.due(w, Action::RegisterAgain(b));
            }
            self.due(w, Action::Observe { term, broker: b });
            if w.stop_requests[b] != 0 {
                self.due(w, Action::AskToStop(b));
            }
            if w.brokers[b].stopping == Stopping::Granted {
                self.due(w, Action::Stop(b));
            }
        }
        if !w.exists() {
            self.due(w, Action::CreateTopic);
        }
        if w.terms[term].planted.split {
            self.due(w, Action::EndMove);
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
            self.due(w, Action::Acknowledge { term, broker: b });
        }
        if w.node.members() != w.node.assigned.mask() {
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

/// A leader, nobody moves, everybody who holds the partition is in the ISR with all of it, and nobody else has any of it.
fn is_whole(w: &World) -> bool {
    let assigned = w.node.assigned;
    let Some(leader) = w.node.leader.filter(|_| w.exists() && !assigned.moves()) else {
        return false;
    };
    let leader = &w.brokers[usize::from(leader)];
    let end = leader.log_end();
    let same = |b: &Broker| {
        let both = b.directory.records.iter().zip(&leader.directory.records);
        b.log_end() == end
            && both.into_iter().all(|(x, y)| x.agrees(y))
            && b.high_watermark() == end
    };
    w.node.members() == assigned.mask()
        && w.brokers.iter().enumerate().all(|(n, b)| {
            if assigned.has(n) { same(b) } else { b.life() == 0 && b.replica.is_none() }
        })
}
