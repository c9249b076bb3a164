//! Controlled shutdown: a broker marks its registration, asks, is told that it may stop, and stops (R25, R26).

use barnabas_controller_core::{ControllerEvent, RequestId};
use barnabas_types::BrokerEpoch;

use crate::broker::Stopping;
use crate::mutation::Mutation;
use crate::node::{Push, Registration};
use crate::planted::Twist;
use crate::protocol::Protocol;
use crate::reached::Reached;
use crate::world::{Ix, World, id_of};

impl Protocol {
    /// A broker is told to stop: it marks its registration, then asks.
    pub(crate) fn want_stop(&self, w: &mut World, b: Ix) -> Option<()> {
        w.spent.stops += 1;
        let broker = w.brokers[b].edit();
        broker.stopping = Stopping::Wanted;
        w.stop_requests[b] = broker.epoch;
        let registration = w.registered[b].as_mut()?;
        registration.draining = true;
        Some(())
    }

    /// Its request, which stays in the net until it is granted, reaches the elected term.
    pub(crate) fn ask_to_stop(&self, w: &mut World, b: Ix) -> Option<()> {
        let k = w.present_term();
        let asked = w.stop_requests[b];
        if self.breaks(Mutation::StopGrantedEarly) {
            grant(w, b, asked);
            return Some(());
        }
        let present = w.terms[k].seen[b]?;
        if self.breaks(Mutation::DrainOfAnyEpoch) && present.epoch != asked {
            w.terms[k].edit().planted.drained |= 1 << b;
            return self.tell(w, k, b, Some(present), Twist::None);
        }
        let epoch = BrokerEpoch(i64::from(asked));
        let draining = true;
        if !w.terms[k].controller.knows_draining(id_of(b), epoch, draining) {
            return None; // it reads the registrations first
        }
        let (request, broker) = (RequestId(0), id_of(b));
        let event = ControllerEvent::Drain { request, broker, broker_epoch: epoch, draining };
        let answers = self.step_controller(w, k, event, Twist::None)?;
        match answers.drains.first() {
            Some(Ok(progress)) if progress.may_stop => grant(w, b, asked),
            Some(Ok(progress)) if progress.partitions > 0 => self.reach(Reached::StopWaited),
            _ => {}
        }
        Some(())
    }

    /// The broker stops: everything is flushed, the mark says so, the session is closed.
    pub(crate) fn stop_cleanly(&self, w: &mut World, b: Ix) -> Option<()> {
        if w.brokers[b].stopping == Stopping::Granted {
            self.reach(Reached::Stopped);
        }
        let broker = w.brokers[b].edit();
        broker.stop();
        let end = broker.directory.log_end();
        broker.directory.flushed(end);
        w.registered[b] = None;
        Some(())
    }

    /// A registration as a term with a planted bug takes it.
    pub(crate) fn misread_draining(&self, w: &World, k: usize, b: Ix, of: Registration) -> bool {
        match self.row.mutation {
            // Only the term that was asked knows.
            Some(Mutation::DrainInMemoryOnly) => of.draining && k == 0,
            Some(Mutation::DrainKeptById | Mutation::DrainOfAnyEpoch) => {
                of.draining || w.terms[k].planted.drained & (1 << b) != 0
            }
            _ => of.draining,
        }
    }
}

impl World {
    /// Whether anybody waits for acknowledgements of pushes.
    pub(crate) fn counts_acknowledgements(&self) -> bool {
        self.spent.switches > 0 || self.stop_requests.iter().any(|asked| *asked != 0)
    }

    /// Nobody waits any more: what was acknowledged does not matter, so that equal futures are equal worlds.
    pub(crate) fn forget_versions(&mut self) {
        if self.counts_acknowledgements() {
            return;
        }
        for b in 0..self.brokers.len() {
            if self.brokers[b].applied != (0, 0) {
                self.brokers[b].edit().applied = (0, 0);
            }
        }
        for push in std::mem::take(&mut self.pushes) {
            self.offer(Push { version: 0, ..push });
        }
    }
}

fn grant(w: &mut World, b: Ix, asked: u8) {
    w.stop_requests[b] = 0;
    let broker = w.brokers[b].edit();
    if broker.up() && broker.stopping == Stopping::Wanted && broker.epoch == asked {
        broker.stopping = Stopping::Granted;
    }
    w.forget_versions();
}
