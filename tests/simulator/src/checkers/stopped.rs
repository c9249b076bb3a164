//! D: a broker that was told that it may stop is in no ISR and leads nothing, until it registers again.

use barnabas_types::{BrokerEpoch, BrokerId, PartitionState, TopicPartition};

use super::Checkers;

impl Checkers {
    /// The controller tells `broker`, as registered under `epoch`, that it may stop.
    pub fn may_stop(&mut self, broker: BrokerId, epoch: BrokerEpoch) {
        self.may_stop.insert(broker, epoch);
    }

    /// It is registered again, or draining no more.
    pub fn counts_again(&mut self, broker: BrokerId) {
        self.may_stop.remove(&broker);
    }

    /// D for one stored state.
    pub fn without_stopped(&mut self, at: &TopicPartition, state: &PartitionState) {
        let counted = self
            .may_stop
            .iter()
            .find(|(broker, _)| state.leader == Some(**broker) || state.in_isr(**broker));
        if let Some((broker, epoch)) = counted {
            let text = format!(
                "{at}: broker {broker}, of epoch {epoch}, was told that it may stop, and the state is {state:?}"
            );
            self.broken("D", text);
        }
    }
}
