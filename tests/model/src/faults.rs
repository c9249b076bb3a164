//! What breaks: processes, hosts, sessions; and the return of each.

use barnabas_types::Offset;

use crate::broker::{Broker, Planted, Stopping};
use crate::mutation::Mutation;
use crate::node::Registration;
use crate::protocol::Protocol;
use crate::world::{BROKERS, Ix, World, offset};

impl Protocol {
    /// The process dies; its page cache stays.
    pub(crate) fn process_crash(&self, w: &mut World, b: Ix) -> Option<()> {
        if !w.brokers[b].up() {
            return None;
        }
        w.spent.process_crashes += 1;
        let forgets_start = self.breaks(Mutation::LogStartForgotten);
        let broker = w.brokers[b].edit();
        broker.stop();
        if forgets_start {
            broker.directory.log_start_checkpoint = Offset(0);
        }
        Some(())
    }

    /// The host dies and leaves the log up to `keeps`, exclusive.
    pub(crate) fn host_crash(&self, w: &mut World, b: Ix, keeps: usize) -> Option<()> {
        w.spent.host_crashes += 1;
        lose_tail(w, b, keeps);
        Some(())
    }

    /// All hosts die at once, also those whose process is dead already.
    pub(crate) fn crash_of_all(&self, w: &mut World, keeps: [u8; BROKERS]) -> Option<()> {
        w.spent.crashes_of_all += 1;
        for (b, keeps) in keeps.into_iter().enumerate() {
            lose_tail(w, b, usize::from(keeps));
        }
        Some(())
    }

    /// The session of a process ends: of a dead one at any time, of a live one if the bound allows.
    pub(crate) fn expire(&self, w: &mut World, b: Ix) -> Option<()> {
        w.registered[b].take()?;
        w.spent.expiries += u8::from(w.brokers[b].up());
        Some(())
    }

    /// A process starts and registers.
    pub(crate) fn restart(&self, w: &mut World, b: Ix) -> Option<()> {
        if w.brokers[b].up() {
            return None;
        }
        self.register(w, b);
        w.brokers[b].edit().running = true;
        Some(())
    }

    /// A live process registers anew.
    pub(crate) fn register_again(&self, w: &mut World, b: Ix) -> Option<()> {
        let broker = &w.brokers[b];
        let registered = w.registered[b].is_some_and(|r| r.epoch == broker.epoch);
        if !broker.up() || (registered && !broker.is_fenced()) {
            return None;
        }
        self.register(w, b);
        self.registered(w, b);
        Some(())
    }

    fn register(&self, w: &mut World, b: Ix) {
        let epoch = w.next_epoch;
        w.next_epoch += 1;
        // Where nothing is deleted, R2, R3 and the target of a push do without.
        let reads_controller_epoch = self.breaks(Mutation::NoIsrBrokerEpochsButControllerEpochRead)
            || (self.row.deletes() && !self.breaks(Mutation::ControllerEpochNotRead));
        let heard = if reads_controller_epoch { w.controller_epoch } else { 0 };
        let forgets_mark = self.breaks(Mutation::MarkClearedByRegistering);
        if !self.breaks(Mutation::DrainOfAnyEpoch) {
            w.stop_requests[b] = 0;
            w.forget_versions();
        }
        let broker = w.brokers[b].edit();
        broker.epoch = epoch;
        broker.heard = broker.heard.max(heard);
        let tail_lost = broker.tail_lost && self.row.tail_loss_told;
        w.registered[b] = Some(Registration { epoch, tail_lost, draining: false });
        if forgets_mark {
            broker.tail_lost = false;
        }
    }
}

impl Broker {
    /// The process is gone with all that it knew; its HW is checkpointed.
    pub(crate) fn stop(&mut self) {
        self.close();
        self.running = false;
        self.heard = 0;
        self.tombstone = None;
        self.applied = (0, 0);
        self.clock = 0;
        self.stopping = Stopping::No;
        let Planted { led, bad, .. } = self.planted;
        self.planted = Planted { led, bad, ..Planted::default() };
    }
}

fn lose_tail(w: &mut World, b: Ix, keeps: usize) {
    if w.brokers[b].up() {
        w.brokers[b].edit().stop();
    }
    let directory = &mut w.brokers[b].edit().directory;
    if directory.incarnation.czxid == 0 {
        w.brokers[b].edit().tail_lost = true;
        return;
    }
    directory.cut(offset(keeps));
    // What was found there after the crash is on the disk.
    directory.flushed(offset(keeps));
    // The epoch checkpoint is durable with the next flush only: an epoch without a record may be forgotten.
    directory.epochs.truncate_from_end(offset(keeps));
    directory.truncations = 0;
    let broker = w.brokers[b].edit();
    broker.tail_lost = true;
    broker.planted.bad = None;
}
