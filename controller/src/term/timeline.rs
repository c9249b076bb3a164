//! The shell of the timeline: reads the clocks, and gives the records of failovers to the broker.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use barnabas_controller_core::{Controller, Effects};
use barnabas_proto::convert::LeadersServed;
use barnabas_proto::v1;
use barnabas_types::{BrokerId, ControllerEpoch};
use tokio::sync::mpsc;

use crate::predecessor::Lost;
use crate::timeline::{Heard, LostController, Moment, Tracker};

/// See the module's head. What is due is told; what was not due when the term ends is told at its end.
pub(super) struct Timeline {
    tracker: Tracker,
    begun: Instant,
    records: mpsc::Sender<v1::Failover>,
}

impl Timeline {
    /// The term began at `begun`, after `lost` was the controller.
    pub(super) fn new(
        (me, epoch): (BrokerId, ControllerEpoch),
        begun: Instant,
        lost: Option<Lost>,
        records: mpsc::Sender<v1::Failover>,
    ) -> Self {
        let before =
            |at: Option<Instant>| at.map(|at| -micros(begun.saturating_duration_since(at)));
        let lost = lost.map(|lost| LostController {
            broker: lost.controller,
            stream_broke_us: before(lost.stream_broke),
            suspected_us: before(lost.suspected),
            gone_us: before(lost.gone),
            draining: lost.draining,
        });
        let tracker = Tracker::new(me, epoch, lost, moment(begun));
        Self { tracker, begun, records }
    }

    pub(super) fn stepped(&mut self, heard: &Heard, core: &Controller, effects: &Effects) {
        self.tracker.stepped(moment(self.begun), heard, core, effects);
    }

    pub(super) fn sent(&mut self, updates: impl IntoIterator<Item = (BrokerId, u64)>) {
        let us = micros(self.begun.elapsed());
        for (broker, version) in updates {
            self.tracker.sent(us, broker, version);
        }
    }

    pub(super) fn served(&mut self, served: &LeadersServed) {
        self.tracker.served(micros(self.begun.elapsed()), served);
    }

    /// Tells what is due, and says when there is more.
    pub(super) fn tell(&mut self) -> Option<tokio::time::Instant> {
        let us = micros(self.begun.elapsed());
        if self.tracker.due_us().is_some_and(|due| due <= us) {
            self.give(us);
        }
        let due_us = self.tracker.due_us()?;
        let due = Duration::from_micros(u64::try_from(due_us).unwrap_or(0));
        Some(tokio::time::Instant::from_std(self.begun + due))
    }

    fn give(&mut self, us: i64) {
        for record in self.tracker.due(us) {
            if let Err(error) = self.records.try_send(record) {
                tracing::warn!(target: "controller", %error, "the record of a failover is not kept");
            }
        }
    }
}

impl Drop for Timeline {
    fn drop(&mut self) {
        self.give(i64::MAX);
    }
}

fn moment(begun: Instant) -> Moment {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let unix_ms = i64::try_from(since.as_millis()).unwrap_or(i64::MAX);
    Moment { us: micros(begun.elapsed()), unix_ms }
}

fn micros(time: Duration) -> i64 {
    i64::try_from(time.as_micros()).unwrap_or(i64::MAX)
}
