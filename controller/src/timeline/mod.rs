//! The failover timeline: what a term does about brokers that fail, drain or lose the office, with the time of each step.
//!
//! It listens beside the core, which never sees it: it is given each event and what the core made of it, decides which writes, pushes
//! and ISR changes belong to which failover, and makes one record of each. Pure: times come in, records go out.
//!
//! A failover is recorded if it took a leadership or an ISR membership from somebody, or if the broker was the controller.
//! Leaders that change for other reasons (the preferred one is back, replicas are moved, a follower lags) are none.

mod failover;
mod step;
mod tracker;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use barnabas_controller_core::{Controller, ControllerEvent, WriteId, WriteOutcome};
use barnabas_types::{BrokerEpoch, BrokerId, BrokerImage};

pub(crate) use tracker::Tracker;

/// Failovers of one term that are watched at once; beyond it the oldest is told as it is and watched no longer.
pub(crate) const OPEN_MAX: usize = 32;
/// How long after the last write a first append or acknowledgement still belongs to a failover, in microseconds. Later ones say when a
/// producer had something to send.
const SERVED_WITHIN_MAX_US: i64 = 60_000_000;
/// What has come to nothing is forgotten after so long, in microseconds.
const NOTHING_AFTER_US: i64 = 5_000_000;
/// Shortest time between two reports of one failover, in microseconds.
const TELL_AGAIN_AFTER_US: i64 = 1_000_000;
/// What happens to a broker so long after a directory of it has failed is a failover of its own, in microseconds.
const DIRECTORIES_WITHIN_US: i64 = 60_000_000;

/// A point in time, read from two clocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Moment {
    /// Microseconds of the monotonic clock since the term began; below 0 before it.
    pub(crate) us: i64,
    /// Milliseconds since 1970.
    pub(crate) unix_ms: i64,
}

/// The controller before this one, as this broker saw it go. Times in microseconds since the term began, so below 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct LostController {
    pub(crate) broker: BrokerId,
    /// Its last push stream to this broker ended.
    pub(crate) stream_broke_us: Option<i64>,
    /// Its ports refused connections from here.
    pub(crate) suspected_us: Option<i64>,
    /// `/controller` was found to be gone.
    pub(crate) gone_us: Option<i64>,
    /// It was being emptied when it was heard of last.
    pub(crate) draining: bool,
}

/// What the timeline wants to know of an event of the core.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Heard {
    Loaded,
    /// The registrations as they were before.
    Registrations(BTreeMap<BrokerId, BrokerImage>),
    Suspected(BrokerId),
    StreamBroke(BrokerId, BrokerEpoch),
    Acked {
        broker: BrokerId,
        broker_epoch: BrokerEpoch,
        version: u64,
    },
    Written {
        write: WriteId,
        applied: bool,
    },
    Other,
}

impl Heard {
    /// To be taken before the core steps `event`.
    pub(crate) fn of(event: &ControllerEvent, core: &Controller) -> Self {
        match event {
            ControllerEvent::Loaded(_) => Self::Loaded,
            ControllerEvent::Brokers(_) => Self::Registrations(core.image().brokers.clone()),
            ControllerEvent::BrokerSuspected { broker, .. } => Self::Suspected(*broker),
            ControllerEvent::PushBroken { broker, broker_epoch } => {
                Self::StreamBroke(*broker, *broker_epoch)
            }
            ControllerEvent::PushAcked { broker, broker_epoch, version, .. } => {
                let (broker, broker_epoch, version) = (*broker, *broker_epoch, *version);
                Self::Acked { broker, broker_epoch, version }
            }
            ControllerEvent::Written { write, outcome } => {
                Self::Written { write: *write, applied: *outcome == WriteOutcome::Applied }
            }
            _ => Self::Other,
        }
    }
}
