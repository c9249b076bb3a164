//! Everything that can happen next in a world.

use crate::mutation::Mutation;
use crate::protocol::{Protocol, durable};
use crate::world::{BROKERS, Ix, Proposal, Push, World};

/// One step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// A producer's record reaches a leader.
    Produce(Ix),
    /// A follower fetches; the answer may be lost.
    Fetch {
        /// Who fetches.
        follower: Ix,
        /// The answer never arrives.
        lost: bool,
    },
    /// A broker flushes its log.
    Flush(Ix),
    /// More than the lag time passes at a leader.
    Lag(Ix),
    /// A leader's proposal gets into the net, where it stays.
    Send(Ix),
    /// A leader waits no longer for the answer to its proposal.
    GiveUp(Ix),
    /// A proposal arrives at a term.
    Alter {
        /// Which term, 0 or 1.
        term: usize,
        /// What.
        proposal: Proposal,
        /// The leader gets the answer.
        heard: bool,
    },
    /// A push arrives.
    Push(Push),
    /// A leaderless replica's report arrives at a term.
    Report {
        /// Which term.
        term: usize,
        /// Whose.
        broker: Ix,
    },
    /// A term reads the registration of a broker.
    Observe {
        /// Which term.
        term: usize,
        /// Whose.
        broker: Ix,
    },
    /// The elected term takes a live broker for gone.
    Suspect(Ix),
    /// A write under way lands; by index.
    Land(usize),
    /// A new controller is elected.
    NewTerm,
    /// A process dies.
    ProcessCrash(Ix),
    /// A host dies.
    HostCrash {
        /// Which.
        broker: Ix,
        /// What its log keeps, exclusive end.
        keeps: usize,
    },
    /// All hosts die.
    CrashOfAll {
        /// What each log keeps.
        keeps: [u8; BROKERS],
    },
    /// A session ends.
    Expire(Ix),
    /// A process starts and registers.
    Restart(Ix),
    /// A live process registers anew.
    RegisterAgain(Ix),
}

impl Protocol {
    /// What may happen next. Some of it may turn out to change nothing.
    pub fn actions(&self, w: &World, out: &mut Vec<Action>) {
        if w.broken {
            return;
        }
        for b in 0..BROKERS {
            self.broker_actions(w, b, out);
        }
        if w.spent.crashes_of_all < self.row.crashes_of_all {
            self.crashes_of_all(w, out);
        }
        out.extend(w.pushes.iter().map(|push| Action::Push(*push)));
        out.extend((0..w.flights.len()).map(Action::Land));
        for term in 0..w.terms.len() {
            self.term_actions(w, term, out);
        }
        if w.terms.len() < usize::from(self.row.terms) {
            out.push(Action::NewTerm);
        }
    }

    fn broker_actions(&self, w: &World, b: Ix, out: &mut Vec<Action>) {
        let (row, spent, broker) = (&self.row, &w.spent, &w.brokers[b]);
        let registered = w.registered[b].is_some();
        if spent.host_crashes < row.host_crashes {
            let keeps = durable(broker)..=broker.log_end();
            out.extend(keeps.map(|keeps| Action::HostCrash { broker: b, keeps }));
        }
        let Some(replica) = &broker.replica else {
            out.push(Action::Restart(b));
            if registered {
                out.push(Action::Expire(b));
            }
            return;
        };
        let may_propose = spent.proposals < row.proposals;
        if broker.leads().is_some() {
            if w.history.produced < row.records {
                out.push(Action::Produce(b));
            }
            if let Some(waiting) = broker.waiting {
                let sent = w.proposals.binary_search(&waiting).is_ok();
                if !sent && may_propose {
                    out.push(Action::Send(b));
                }
                if sent && (may_propose || self.breaks(Mutation::RefusalForgetsProposal)) {
                    out.push(Action::GiveUp(b));
                }
            } else if may_propose {
                out.push(Action::Lag(b));
            }
        } else if replica.role().leader().is_some() {
            out.push(Action::Fetch { follower: b, lost: false });
            if row.lost_answers {
                out.push(Action::Fetch { follower: b, lost: true });
            }
        }
        if self.flushes() && broker.directory.recovery_point < broker.directory.log_end() {
            out.push(Action::Flush(b));
        }
        if spent.process_crashes < row.process_crashes {
            out.push(Action::ProcessCrash(b));
        }
        if !registered {
            out.push(Action::RegisterAgain(b));
        } else if spent.expiries < row.expiries {
            out.push(Action::Expire(b));
        }
    }

    fn crashes_of_all(&self, w: &World, out: &mut Vec<Action>) {
        let range = |b: Ix| {
            let broker = &w.brokers[b];
            durable(broker) as u8..=broker.log_end() as u8
        };
        for first in range(0) {
            for second in range(1) {
                for third in range(2) {
                    out.push(Action::CrashOfAll { keeps: [first, second, third] });
                }
            }
        }
    }

    fn term_actions(&self, w: &World, term: usize, out: &mut Vec<Action>) {
        if w.terms[term].over {
            return;
        }
        let elected = term == w.present_term();
        for b in 0..BROKERS {
            if w.terms[term].seen[b] != w.registered[b] {
                out.push(Action::Observe { term, broker: b });
            }
            let member = w.node.isr[b] != 0;
            if elected && member && w.spent.suspicions < self.row.suspicions {
                out.push(Action::Suspect(b));
            }
            if elected && w.node.leader.is_none() {
                out.push(Action::Report { term, broker: b });
            }
        }
        for proposal in &w.proposals {
            out.push(Action::Alter { term, proposal: *proposal, heard: false });
            if w.brokers[usize::from(proposal.leader)].waiting == Some(*proposal) {
                out.push(Action::Alter { term, proposal: *proposal, heard: true });
            }
        }
    }

    /// The world after an action; `None` if nothing changes or a bound forbids it.
    #[must_use]
    pub fn next(&self, before: &World, action: Action) -> Option<World> {
        let mut w = before.clone();
        let step = std::panic::AssertUnwindSafe(|| {
            self.perform(&mut w, action)?;
            self.settle(&mut w);
            Some(())
        });
        match std::panic::catch_unwind(step) {
            Ok(done) => done?,
            Err(_) => w = World { broken: true, ..before.clone() },
        }
        (w != *before).then_some(w)
    }

    fn perform(&self, w: &mut World, action: Action) -> Option<()> {
        match action {
            Action::Produce(b) => self.produce(w, b),
            Action::Fetch { follower, lost } => self.fetch(w, follower, lost),
            Action::Flush(b) => self.flush(w, b),
            Action::Lag(b) => self.lag(w, b),
            Action::Send(b) => self.send(w, b),
            Action::GiveUp(b) => self.give_up(w, b),
            Action::Alter { term, proposal, heard } => self.alter(w, term, proposal, heard),
            Action::Push(push) => self.push(w, push),
            Action::Report { term, broker } => self.report(w, term, broker),
            Action::Observe { term, broker } => self.observe(w, term, broker),
            Action::Suspect(b) => self.suspect(w, b),
            Action::Land(index) => self.land_late(w, index),
            Action::NewTerm => self.new_term(w),
            Action::ProcessCrash(b) => self.process_crash(w, b),
            Action::HostCrash { broker, keeps } => self.host_crash(w, broker, keeps),
            Action::CrashOfAll { keeps } => self.crash_of_all(w, keeps),
            Action::Expire(b) => self.expire(w, b),
            Action::Restart(b) => self.restart(w, b),
            Action::RegisterAgain(b) => self.register_again(w, b),
        }
    }
}
