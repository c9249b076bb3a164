//! Replicas that live brokers cannot serve (R38): reported by their brokers, bound to the registration, stored nowhere.
//!
//! A new controller knows of none until the brokers have reported, which they do to each new controller. Meanwhile it may
//! elect a sole ISR member that cannot serve: nothing is acknowledged by that one, and its report undoes the choice.

use std::collections::BTreeSet;

use barnabas_types::{BrokerEpoch, BrokerId, Condition, FailedReplicas, TopicPartition};

use crate::controller::{Controller, note};
use crate::controller_api::{Effects, RequestId};

impl Controller {
    /// Takes a broker's report and settles every partition for which it says something new.
    pub(crate) fn replicas_failed(
        &mut self,
        request: RequestId,
        report: FailedReplicas,
        effects: &mut Effects,
    ) {
        let answer = self.judge_report(&report);
        let taken = answer.is_ok();
        effects.failed_answers.push((request, answer));
        if !taken {
            return;
        }
        let broker = report.broker;
        self.failure_reports.insert(broker, report.sequence);
        let mut now: BTreeSet<TopicPartition> = BTreeSet::new();
        for (at, incarnation) in report.replicas {
            let topic = self.topics.get(&at.topic).filter(|t| t.incarnation == incarnation);
            let slot = topic.and_then(|t| t.slots.get(&at.partition));
            if slot.is_some_and(|s| s.assignment.replicas.contains(&broker)) {
                now.insert(at);
            }
        }
        let before = self.image().failed.get(&broker).cloned().unwrap_or_default();
        self.image.set_failed(broker, now.clone());
        for at in before.symmetric_difference(&now) {
            let failed = now.contains(at);
            let Some(slot) = self.slot_mut(at) else { continue };
            slot.failed.retain(|b| *b != broker);
            if failed {
                slot.failed.push(broker);
                note(
                    effects,
                    Some(at.clone()),
                    true,
                    format!("broker {broker} cannot serve its replica"),
                );
            } else {
                note(
                    effects,
                    Some(at.clone()),
                    false,
                    format!("broker {broker} can serve its replica again"),
                );
                // It acknowledged the state without having taken it over; what it has to tell of its log (R8) comes with the
                // next acknowledgement.
                self.image.push_again(&at.topic, at.partition);
            }
            self.settle(at, effects);
        }
    }

    fn judge_report(&self, report: &FailedReplicas) -> Result<(), Condition> {
        let present = self.image().brokers.get(&report.broker).map(|b| b.epoch);
        if present != Some(report.broker_epoch) {
            return Err(Condition::StaleBrokerEpoch {
                asked: report.broker_epoch,
                present: present.unwrap_or(BrokerEpoch(-1)),
            });
        }
        let newest = self.failure_reports.get(&report.broker).copied().unwrap_or(0);
        if report.sequence < newest {
            return Err(Condition::InvalidRequest(format!(
                "report {} of failed replicas is older than report {newest}, which was taken",
                report.sequence
            )));
        }
        Ok(())
    }

    /// These brokers registered anew or are gone: what they reported is void. The caller settles the partitions.
    pub(crate) fn forget_failures(&mut self, brokers: &[BrokerId]) {
        for broker in brokers {
            self.failure_reports.remove(broker);
            let before = self.image().failed.get(broker).cloned().unwrap_or_default();
            for at in &before {
                if let Some(slot) = self.slot_mut(at) {
                    slot.failed.retain(|b| b != broker);
                }
            }
            self.image.set_failed(*broker, BTreeSet::new());
        }
    }
}
