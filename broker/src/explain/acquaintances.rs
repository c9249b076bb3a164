//! How the processes of other brokers are found and started again: asked while they live, for when they do not answer any more.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use barnabas_controller::ClusterView as _;
use barnabas_proto::v1;
use barnabas_types::{BrokerEpoch, BrokerId};
use tokio::time::Instant;

use super::Explainer;
use super::facts::{BrokerFacts, Process, Reached};
use super::gather::{ANSWER_MAX, health};

/// Brokers that are remembered.
const KNOWN_MAX: usize = 1_000;
/// Pause before a broker that did not answer is asked again.
const AGAIN: Duration = Duration::from_secs(2);

/// What brokers told of their processes, each under its newest registration.
#[derive(Debug, Default)]
pub(super) struct Acquaintances(Mutex<BTreeMap<BrokerId, Process>>);

impl Acquaintances {
    fn note(&self, id: BrokerId, told: &v1::BrokerHealth) {
        let Some(process) = &told.process else { return };
        let process = Process {
            epoch: BrokerEpoch(told.broker_epoch),
            pid: process.pid,
            config_file: process.config_file.clone(),
        };
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if told.broker_epoch == 0 && known.get(&id).is_some_and(|old| old.pid == process.pid) {
            // It has lost its registration, and is the same process.
            return;
        }
        if known.len() < KNOWN_MAX || known.contains_key(&id) {
            known.insert(id, process);
        }
    }

    fn knows(&self, id: BrokerId, epoch: BrokerEpoch) -> bool {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.get(&id).is_some_and(|process| process.epoch == epoch)
    }

    /// All of them, with what was told just now.
    pub(super) fn with(
        &self,
        now: &BTreeMap<BrokerId, BrokerFacts>,
    ) -> BTreeMap<BrokerId, Process> {
        for (id, found) in now {
            if let Reached::Answered(told) = &found.reached {
                self.note(*id, told);
            }
        }
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Explainer {
    /// Asks each broker that registers, until this one ends.
    pub async fn get_acquainted(self: Arc<Self>) {
        let mut changes = self.node.view.changes();
        loop {
            changes.borrow_and_update();
            let mut missed = false;
            let image = self.node.view.image();
            for (id, broker) in &image.brokers {
                if *id == self.node.me || self.acquaintances.knows(*id, broker.epoch) {
                    continue;
                }
                let request = v1::DescribeHealthRequest::default();
                let deadline = Instant::now() + ANSWER_MAX;
                match health(&broker.control_address, request, deadline).await {
                    Reached::Answered(told) => self.acquaintances.note(*id, &told),
                    _ => missed = true,
                }
                // One that does not know of its registration yet is asked again, too.
                missed |= !self.acquaintances.knows(*id, broker.epoch);
            }
            let changed = async {
                if missed {
                    tokio::time::timeout(AGAIN, changes.changed()).await.unwrap_or(Ok(()))
                } else {
                    changes.changed().await
                }
            };
            if changed.await.is_err() {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_broker_told_is_remembered_for_its_registration() {
        let known = Acquaintances::default();
        let process = |pid| Some(v1::ProcessHealth { pid, config_file: "/b.yaml".to_owned() });
        let told = |broker_epoch, pid| v1::BrokerHealth {
            broker_epoch,
            process: process(pid),
            ..Default::default()
        };
        known.note(BrokerId(2), &told(7, 70));
        assert!(known.knows(BrokerId(2), BrokerEpoch(7)));
        assert!(
            !known.knows(BrokerId(2), BrokerEpoch(8)) && !known.knows(BrokerId(1), BrokerEpoch(7))
        );
        let answers = |reached| BrokerFacts {
            kafka: String::new(),
            admin: String::new(),
            reached,
            listener: super::super::facts::Listener::NotTried,
        };
        let now = BTreeMap::from([
            (BrokerId(1), answers(Reached::Refused)),
            (BrokerId(2), answers(Reached::Answered(Box::new(told(8, 80))))),
        ]);
        let all = known.with(&now);
        assert_eq!((all.len(), all[&BrokerId(2)].pid), (1, 80), "the newest word counts");
    }
}
