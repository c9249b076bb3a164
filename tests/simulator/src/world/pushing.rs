//! Push streams, the controller's end: per broker one update in flight, the next when it is acknowledged, the full image after silence.

use barnabas_controller_core::{ControllerEvent, ReplicaReport};
use barnabas_types::{BrokerEpoch, BrokerId, ClusterDelta, ControllerEpoch, TopicPartition};

use super::{World, id_of, ix_of};
use crate::coverage::Reached;
use crate::happening::{Input, Ix, Update};
use crate::mutation::Mutation;
use crate::process::{Stream, Term};

/// How long an acknowledgement may take before the stream is begun anew with the full image.
const ACK_MS_MAX: u64 = 60;

impl World {
    /// Sends each broker what it is owed.
    pub(crate) fn pump(&mut self, b: Ix) {
        let Some(term) = &mut self.processes[b].term else { return };
        if term.paused || term.loading.is_some() {
            return;
        }
        let brokers = term.brokers.clone();
        term.streams.retain(|id, s| brokers.get(id) == Some(&s.broker_epoch));
        let epoch = term.fence.epoch;
        let mut updates = Vec::new();
        for (id, broker_epoch) in brokers {
            let stream = term.streams.entry(id).or_insert(Stream {
                broker_epoch,
                acked: None,
                in_flight: None,
                only_deletes: false,
            });
            if stream.in_flight.is_some() {
                continue;
            }
            let Some((version, delta)) = term.controller.push_for(id, broker_epoch, stream.acked)
            else {
                continue;
            };
            stream.in_flight = Some(version);
            stream.only_deletes = only_deletes(&delta, id);
            let controller = (id_of(b), epoch);
            updates.push((id, Update { controller, target: broker_epoch, version, delta }));
        }
        for (id, update) in updates {
            let (broker_epoch, version) = (update.target, update.version);
            self.send(b, ix_of(id), None, Input::Push(Box::new(update)));
            let overdue = Input::PushOverdue { term: epoch, broker: id, broker_epoch, version };
            self.later(b, ACK_MS_MAX, overdue);
        }
    }

    pub(crate) fn push_acked(
        &mut self,
        b: Ix,
        broker: BrokerId,
        broker_epoch: BrokerEpoch,
        epoch: ControllerEpoch,
        version: u64,
        reports: Vec<(TopicPartition, ReplicaReport)>,
    ) {
        let Some(term) = &mut self.processes[b].term else { return };
        if term.fence.epoch != epoch {
            return;
        }
        if let Some(stream) = term.streams.get_mut(&broker)
            && stream.broker_epoch == broker_epoch
        {
            stream.acked = stream.acked.max(Some(version));
            if stream.in_flight.is_some_and(|sent| sent <= version) {
                stream.in_flight = None;
            }
        }
        let suspected = term.controller.is_suspected(broker);
        let event = ControllerEvent::PushAcked { broker, broker_epoch, version, reports };
        self.step_controller(b, event);
        let suspects = |term: &Term| term.controller.is_suspected(broker);
        if suspected && !self.processes[b].term.as_ref().is_some_and(suspects) {
            self.reach(Reached::SuspicionEnded);
        }
        self.pump(b);
    }

    pub(crate) fn push_overdue(
        &mut self,
        b: Ix,
        epoch: ControllerEpoch,
        broker: BrokerId,
        broker_epoch: BrokerEpoch,
        version: u64,
    ) {
        let mutation = self.options.mutation;
        let Some(term) = &mut self.processes[b].term else { return };
        if term.fence.epoch != epoch {
            return;
        }
        let Some(stream) = term.streams.get_mut(&broker) else { return };
        if stream.broker_epoch == broker_epoch && stream.in_flight == Some(version) {
            stream.in_flight = None;
            let forgotten = stream.only_deletes && mutation == Some(Mutation::DeletesSentOnce);
            stream.acked = forgotten.then_some(version);
            self.step_controller(b, ControllerEvent::PushBroken { broker, broker_epoch });
            self.pump(b);
            self.dial(b, ix_of(broker));
        }
    }
}

/// Whether a push says nothing to this broker but that partitions are not its own (any more).
fn only_deletes(delta: &ClusterDelta, broker: BrokerId) -> bool {
    let mut partitions = delta.topics.values().flat_map(|topic| topic.partitions.values());
    !delta.full
        && delta.brokers.is_none()
        && partitions.all(|p| !p.assigned_replicas.contains(&broker))
}
