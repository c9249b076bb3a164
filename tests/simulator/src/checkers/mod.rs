//! The invariants, checked from outside after every event on what it could have changed. One file per kind.

mod acked;
mod agreement;
mod history;
mod isr;
mod leaders;
mod liveness;
mod stopped;
mod visible;

use std::collections::BTreeMap;

use barnabas_types::{BrokerEpoch, BrokerId, ControllerEpoch, TopicPartition};

use crate::disk::Record;

pub use agreement::ReplicaView;
pub use history::{Deletion, History, Promise};
pub use isr::{StateWrite, WriteKind};
pub use liveness::judge;

/// A broken invariant.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Violation {
    /// Which: I1, I6, LM ...
    pub invariant: &'static str,
    /// What was seen.
    pub text: String,
}

/// One life of a partition: name and czxid of its topic.
pub type Life = (TopicPartition, i64);

/// What the checkers remember of the run.
#[derive(Default)]
pub struct Checkers {
    /// The first broken invariant.
    pub violation: Option<Violation>,
    histories: BTreeMap<Life, History>,
    /// Value of `/controller_epoch` as last seen.
    controller_epoch: ControllerEpoch,
    /// Hosts that died, or replicas whose sync failed.
    pub host_crashes: u32,
    /// Brokers that were told that they may stop, and of which epoch.
    may_stop: BTreeMap<BrokerId, BrokerEpoch>,
    /// Losses that the loss table allows, met by a new leader.
    pub losses_met: u64,
}

impl Checkers {
    /// Notes a broken invariant; the first one counts.
    pub fn broken(&mut self, invariant: &'static str, text: String) {
        if self.violation.is_none() {
            self.violation = Some(Violation { invariant, text });
        }
    }

    /// Begins a life of a partition.
    pub fn topic_created(&mut self, life: Life, history: History) {
        self.histories.insert(life, history);
    }

    /// Ends it: what was promised ends with the topic.
    pub fn topic_deleted(&mut self, life: &Life) {
        self.histories.remove(life);
    }

    /// A host crash destroyed copies of these records.
    pub fn copies_lost(&mut self, life: &Life, records: &[Record]) {
        if let Some(history) = self.histories.get_mut(life) {
            history.lost_copies(records);
        }
    }

    /// What is remembered of a life.
    #[must_use]
    pub fn history(&self, life: &Life) -> Option<&History> {
        self.histories.get(life)
    }

    /// The controller epoch never goes down in the store.
    pub fn controller_epoch(&mut self, now: ControllerEpoch) {
        if now < self.controller_epoch {
            let before = self.controller_epoch;
            self.broken("I9", format!("/controller_epoch fell from {before} to {now}"));
        }
        self.controller_epoch = now;
    }

    /// I10: a broker never acts on an older controller epoch than one that it acted on before.
    pub fn push_obeyed(&mut self, broker: usize, obeyed: ControllerEpoch, known: ControllerEpoch) {
        if obeyed < known {
            self.broken(
                "I10",
                format!("broker {} obeyed controller epoch {obeyed} after {known}", broker + 1),
            );
        }
    }
}
