//! Everything that can happen next in a world.

use crate::broker::Stopping;
use crate::mutation::Mutation;
use crate::node::{Mask, Proposal, Push, brokers_in};
use crate::protocol::{Protocol, durable};
use crate::world::{BROKERS, Ix, World};

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
    /// A follower's request gets into the net.
    Request(Ix),
    /// A message arrives; by index.
    Deliver(usize),
    /// A message is lost; by index.
    Lose(usize),
    /// An operator wants the partition on these brokers, as a bit mask.
    Reassign(Mask),
    /// The elected term writes who holds the partition after a move, apart from its end (a planted bug).
    EndMove,
    /// An operator deletes the topic.
    DeleteTopic,
    /// An operator makes it again.
    CreateTopic,
    /// A broker wants to stop.
    WantStop(Ix),
    /// Its request reaches the elected term.
    AskToStop(Ix),
    /// It stops, everything flushed.
    Stop(Ix),
    /// A client asks a leader to delete records.
    DeleteRecords {
        /// Which leader.
        leader: Ix,
        /// All below this offset.
        to: u8,
    },
    /// Retention drops what is below an offset.
    Retain {
        /// Where.
        broker: Ix,
        /// Which offset.
        to: u8,
    },
    /// A sync of the log fails.
    SyncFails {
        /// Where.
        broker: Ix,
        /// The process dies before it has noted that.
        dies: bool,
    },
    /// A broker that cannot serve its replica says so to a term.
    ReportFailed {
        /// Which term.
        term: usize,
        /// Who.
        broker: Ix,
    },
    /// An operator wants sync mode.
    SwitchToSync,
    /// A broker's acknowledgement of its newest push reaches the term that pushed.
    Acknowledge {
        /// Which term.
        term: usize,
        /// Whose.
        broker: Ix,
    },
    /// An operator is shown that nobody leads.
    Show,
    /// An operator elects uncleanly.
    ElectUncleanly,
}

impl Protocol {
    /// What may happen next. Some of it may turn out to change nothing.
    pub fn actions(&self, w: &World, out: &mut Vec<Action>) {
        if w.broken {
            return;
        }
        // Who never holds the partition has no part in it.
        for b in brokers_in(self.row.holders()) {
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
        for index in 0..w.messages.len() {
            out.extend([Action::Deliver(index), Action::Lose(index)]);
        }
        self.operator_actions(w, out);
    }

    fn operator_actions(&self, w: &World, out: &mut Vec<Action>) {
        let (row, spent) = (&self.row, &w.spent);
        if w.terms[w.present_term()].over {
            return;
        }
        if spent.moves < row.moves {
            out.extend([Action::Reassign(row.target), Action::Reassign(row.assigned)]);
        }
        if w.terms[w.present_term()].planted.split {
            out.push(Action::EndMove);
        }
        if spent.lives < row.lives && w.exists() {
            out.push(Action::DeleteTopic);
        }
        if !w.exists() {
            out.push(Action::CreateTopic);
        }
        let asking = (0..BROKERS).filter(|b| w.stop_requests[*b] != 0);
        out.extend(asking.map(Action::AskToStop));
        if spent.switches < row.switches {
            out.push(Action::SwitchToSync);
        }
        if spent.unclean < row.unclean_elections && w.node.leader.is_none() {
            out.push(Action::ElectUncleanly);
            if row.shown_earlier {
                out.push(Action::Show);
            }
        }
    }

    fn broker_actions(&self, w: &World, b: Ix, out: &mut Vec<Action>) {
        let (row, spent, broker) = (&self.row, &w.spent, &w.brokers[b]);
        let registered = w.registered[b].is_some();
        if spent.host_crashes < row.host_crashes {
            let keeps = durable(broker)..=broker.log_end();
            out.extend(keeps.map(|keeps| Action::HostCrash { broker: b, keeps }));
        }
        if !broker.up() {
            out.push(Action::Restart(b));
            if registered {
                out.push(Action::Expire(b));
            }
            return;
        }
        self.process_actions(w, b, out);
        let Some(replica) = &broker.replica else { return };
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
            } else if may_propose && !row.available {
                out.push(Action::Lag(b));
            }
            if spent.deletions < row.deletions {
                let to = broker.directory.log_start.0 as u8 + 1..=self.deletable_at(w, b) as u8;
                out.extend(to.map(|to| Action::DeleteRecords { leader: b, to }));
            }
        } else if replica.role().leader().is_some() && row.messages > 0 {
            if w.messages.len() < usize::from(row.messages) {
                out.push(Action::Request(b));
            }
        } else if replica.role().leader().is_some() {
            out.push(Action::Fetch { follower: b, lost: false });
            if row.lost_answers {
                out.push(Action::Fetch { follower: b, lost: true });
            }
        }
        let unflushed = broker.directory.recovery_point < broker.directory.log_end();
        if self.flushes() && unflushed && !replica.is_fenced() {
            out.push(Action::Flush(b));
            if spent.failed_syncs < row.failed_syncs {
                out.push(Action::SyncFails { broker: b, dies: false });
                out.push(Action::SyncFails { broker: b, dies: true });
            }
        }
        if spent.retentions < row.retentions {
            let to = broker.directory.log_start.0 as u8 + 1..=self.deletable_at(w, b) as u8;
            out.extend(to.map(|to| Action::Retain { broker: b, to }));
        }
    }

    /// What becomes of a process, whatever it holds.
    fn process_actions(&self, w: &World, b: Ix, out: &mut Vec<Action>) {
        let (row, spent, broker) = (&self.row, &w.spent, &w.brokers[b]);
        let registered = w.registered[b].is_some();
        if spent.process_crashes < row.process_crashes {
            out.push(Action::ProcessCrash(b));
        }
        if !registered || broker.is_fenced() {
            out.push(Action::RegisterAgain(b));
        } else if spent.expiries < row.expiries {
            out.push(Action::Expire(b));
        }
        match broker.stopping {
            Stopping::No if spent.stops < row.stops && registered => out.push(Action::WantStop(b)),
            Stopping::Granted => out.push(Action::Stop(b)),
            Stopping::Wanted if row.stops_anyway => out.push(Action::Stop(b)),
            _ => {}
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
            if elected && w.node.leader.is_none() && w.exists() {
                out.push(Action::Report { term, broker: b });
            }
            if w.brokers[b].is_fenced() {
                out.push(Action::ReportFailed { term, broker: b });
            }
            // Leaders are waited for, and whoever wants to stop.
            let awaited = w.node.leader == Some(b as u8) || w.brokers[b].stopping != Stopping::No;
            if awaited && usize::from(w.brokers[b].applied.0) == term + 1 {
                out.push(Action::Acknowledge { term, broker: b });
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
            Action::Request(b) => self.request(w, b),
            Action::Deliver(index) => self.deliver(w, index),
            Action::Lose(index) => {
                w.messages.remove(index);
                Some(())
            }
            Action::Reassign(target) => self.reassign(w, target),
            Action::EndMove => self.end_move(w),
            Action::DeleteTopic => self.delete_topic(w),
            Action::CreateTopic => self.create_topic(w),
            Action::WantStop(b) => self.want_stop(w, b),
            Action::AskToStop(b) => self.ask_to_stop(w, b),
            Action::Stop(b) => self.stop_cleanly(w, b),
            Action::DeleteRecords { leader, to } => self.delete_records(w, leader, to),
            Action::Retain { broker, to } => self.retain(w, broker, to),
            Action::SyncFails { broker, dies } => self.sync_fails(w, broker, dies),
            Action::ReportFailed { term, broker } => self.report_failed(w, term, broker),
            Action::SwitchToSync => self.switch_to_sync(w),
            Action::Acknowledge { term, broker } => self.acknowledge(w, term, broker),
            Action::Show => self.show(w),
            Action::ElectUncleanly => self.elect_uncleanly(w),
        }
    }
}
