//! Syncs that fail (R38), and the flush mode as brokers are told it (R37).

use barnabas_controller_core::{ControllerEvent, RequestId};
use barnabas_replica::Event;
use barnabas_types::{BrokerEpoch, FailedReplicas};

use crate::mutation::Mutation;
use crate::node::{Push, incarnation};
use crate::planted::Twist;
use crate::protocol::{Protocol, durable};
use crate::reached::Reached;
use crate::world::{Ix, World, id_of, partition};

impl Protocol {
    /// A sync of the log fails: the system has marked the pages clean that it could not write. The process may die before it
    /// has noted that.
    pub(crate) fn sync_fails(&self, w: &mut World, b: Ix, dies: bool) -> Option<()> {
        w.spent.failed_syncs += 1;
        self.reach(Reached::SyncFailed);
        let kept = durable(&w.brokers[b]) as u8;
        let broker = w.brokers[b].edit();
        if dies {
            broker.stop();
            // The next process writes again what lies above the recovery point, before it counts (R16).
            broker.planted.bad = self.breaks(Mutation::NotWrittenAgain).then_some(kept);
            return Some(());
        }
        if self.breaks(Mutation::SecondSyncCounts) {
            broker.planted.bad = Some(kept);
            return Some(());
        }
        self.step_replica(w, b, Event::AppendFailed { waiter: None });
        let broker = w.brokers[b].edit();
        broker.waiting = None;
        if self.breaks(Mutation::FailedSuffixKept) {
            broker.planted.bad = Some(kept);
            return Some(());
        }
        broker.tail_lost = true;
        let end = broker.directory.recovery_point;
        broker.directory.cut(end);
        broker.directory.truncations = 0;
        Some(())
    }

    /// A broker tells a term that it cannot serve its replica.
    pub(crate) fn report_failed(&self, w: &mut World, k: usize, b: Ix) -> Option<()> {
        let broker = &w.brokers[b];
        if !broker.is_fenced() {
            return None;
        }
        let report = FailedReplicas {
            broker: id_of(b),
            broker_epoch: BrokerEpoch(i64::from(broker.epoch)),
            sequence: 1,
            replicas: [(partition(), incarnation(broker.life()))].into(),
        };
        let event = ControllerEvent::ReplicasFailed { request: RequestId(0), report };
        self.step_controller(w, k, event, Twist::None)?;
        Some(())
    }

    /// Whether a broker obeys a push in sync mode.
    pub(crate) fn mode_told(&self, w: &mut World, push: Push) -> bool {
        if !self.breaks(Mutation::ModeApartFromLeadership) {
            return push.sync;
        }
        // Told apart: when the leadership is known already, and never by the push that brings it.
        let broker = w.brokers[usize::from(push.to)].edit();
        let known = broker.replica.as_ref().and_then(|r| r.leader_epoch());
        if known.is_some_and(|epoch| epoch.0 == i32::from(push.node.leader_epoch)) {
            broker.planted.sync = push.sync;
        }
        broker.planted.sync
    }
}
