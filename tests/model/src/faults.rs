//! What breaks: processes, hosts, sessions; and the return of each.

use crate::mutation::Mutation;
use crate::protocol::Protocol;
use crate::world::{BROKERS, Ix, Planted, Registration, World, offset};

impl Protocol {
    /// The process dies; its page cache stays.
    pub(crate) fn process_crash(&self, w: &mut World, b: Ix) -> Option<()> {
        if !w.brokers[b].up() {
            return None;
        }
        w.spent.process_crashes += 1;
        stop(w, b);
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
        self.open(w, b);
        Some(())
    }

    /// A live process registers anew.
    pub(crate) fn register_again(&self, w: &mut World, b: Ix) -> Option<()> {
        let broker = &w.brokers[b];
        if !broker.up() || w.registered[b].is_some_and(|r| r.epoch == broker.epoch) {
            return None;
        }
        self.register(w, b);
        self.registered(w, b);
        Some(())
    }

    fn register(&self, w: &mut World, b: Ix) {
        let epoch = w.next_epoch;
        w.next_epoch += 1;
        let reads_controller_epoch = self.breaks(Mutation::NoIsrBrokerEpochsButControllerEpochRead);
        let heard = if reads_controller_epoch { w.controller_epoch } else { 0 };
        let forgets_mark = self.breaks(Mutation::MarkClearedByRegistering);
        let broker = w.brokers[b].edit();
        broker.epoch = epoch;
        broker.heard = broker.heard.max(heard);
        w.registered[b] =
            Some(Registration { epoch, tail_lost: broker.tail_lost && self.row.tail_loss_told });
        if forgets_mark {
            broker.tail_lost = false;
        }
    }
}

/// The process is gone with all that it knew; its HW is checkpointed.
fn stop(w: &mut World, b: Ix) {
    let broker = w.brokers[b].edit();
    let high_watermark = broker.high_watermark();
    broker.directory.high_watermark = offset(high_watermark);
    broker.replica = None;
    broker.heard = 0;
    broker.clock = 0;
    broker.waiting = None;
    broker.planted = Planted { led: broker.planted.led, ..Planted::default() };
}

fn lose_tail(w: &mut World, b: Ix, keeps: usize) {
    if w.brokers[b].up() {
        stop(w, b);
    }
    let directory = &mut w.brokers[b].edit().directory;
    directory.cut(offset(keeps));
    // What was found there after the crash is on the disk.
    directory.flushed(offset(keeps));
    // The epoch checkpoint is durable with the next flush only: an epoch without a record may be forgotten.
    directory.epochs.truncate_from_end(offset(keeps));
    directory.truncations = 0;
    w.brokers[b].edit().tail_lost = true;
}
