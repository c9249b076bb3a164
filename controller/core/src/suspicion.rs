//! Brokers whose process seems to be gone before their session has ended (R17): who is suspected, for how long, and within which limits.
//!
//! A suspicion may be wrong. So it only makes clean choices (`decide`), is made of half of the brokers at most, and ends when the
//! same incarnation acknowledges a push, or another registration takes the place of the suspected one.

use std::collections::BTreeMap;

use barnabas_types::{BrokerEpoch, BrokerId, Now, TopicPartition};

use crate::controller::{Controller, note};
use crate::controller_api::{BrokerRegistration, Effects};
use crate::limit::Limit;

/// How often one registration is suspected within [`SUSPICION_WINDOW_MS`]; beyond that its session is waited for. Each suspicion
/// that turns out to be wrong costs elections.
pub const SUSPICIONS_PER_REGISTRATION_MAX: u32 = 3;
/// Time in which they are counted, in milliseconds.
pub const SUSPICION_WINDOW_MS: u64 = 60_000;

/// What is remembered of a registration that was suspected.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Suspicion {
    epoch: BrokerEpoch,
    made: Limit,
    /// The limit was told of: not again until one is made, or ends.
    told: bool,
}

impl Controller {
    /// Whether the controller acts as if this broker could not be reached.
    #[must_use]
    pub fn is_suspected(&self, broker: BrokerId) -> bool {
        self.image().suspected.contains(&broker)
    }

    /// The process of a registered broker seems to be gone. Takes it out of every ISR in which another live member remains.
    pub(crate) fn suspect(
        &mut self,
        now: Now,
        (broker, epoch): (BrokerId, BrokerEpoch),
        effects: &mut Effects,
    ) {
        let registered = self.image().brokers.get(&broker).is_some_and(|b| b.epoch == epoch);
        let mine = self.image().controller.is_some_and(|(me, _)| me == broker);
        if !registered || mine || self.is_suspected(broker) {
            return;
        }
        let new = Suspicion { epoch, made: Limit::new(now), told: false };
        let mut suspicion = self.suspicions.get(&broker).copied().unwrap_or(new);
        let (suspects, live) = (self.image().suspected.len() + 1, self.image().brokers.len());
        let limit = if suspects * 2 > live {
            Some(format!("{suspects} of {live} brokers would be suspected at once"))
        } else if !suspicion.made.take(now, SUSPICIONS_PER_REGISTRATION_MAX, SUSPICION_WINDOW_MS) {
            Some(format!("it was suspected {SUSPICIONS_PER_REGISTRATION_MAX} times already"))
        } else {
            None
        };
        let who =
            format!("broker {broker} (broker epoch {epoch}, controller epoch {})", self.epoch);
        if let Some(limit) = limit {
            if !suspicion.told {
                let text =
                    format!("{who} seems to be gone, but {limit}: its session is waited for");
                note(effects, None, true, text);
            }
            self.suspicions.insert(broker, Suspicion { told: true, ..suspicion });
            return;
        }
        let text =
            format!("{who} is suspected: its stream broke, and its ports refuse connections");
        note(effects, None, true, text);
        self.suspicions.insert(broker, Suspicion { told: false, ..suspicion });
        let mut suspected = self.image().suspected.clone();
        suspected.insert(broker);
        self.image.set_suspected(suspected);
        self.settle_replicas_of(broker, effects);
    }

    /// The registered incarnation has acknowledged a push: it lives. It comes back into its ISRs like any follower.
    pub(crate) fn clear_suspicion(&mut self, broker: BrokerId, effects: &mut Effects) {
        if let Some(suspicion) = self.suspicions.get_mut(&broker) {
            suspicion.told = false;
        }
        if !self.is_suspected(broker) {
            return;
        }
        let mut suspected = self.image().suspected.clone();
        suspected.remove(&broker);
        self.image.set_suspected(suspected);
        let text = format!("broker {broker} answers again: it is no longer suspected");
        note(effects, None, true, text);
        self.settle_replicas_of(broker, effects);
    }

    /// The registrations changed: suspicions of those that are gone are void. The caller settles the partitions.
    pub(crate) fn forget_suspicions(&mut self, brokers: &BTreeMap<BrokerId, BrokerRegistration>) {
        let same = |id: &BrokerId, epoch| brokers.get(id).is_some_and(|b| b.epoch == epoch);
        self.suspicions.retain(|id, suspicion| same(id, suspicion.epoch));
        let mut suspected = self.image().suspected.clone();
        suspected.retain(|id| self.suspicions.contains_key(id));
        self.image.set_suspected(suspected);
    }

    fn settle_replicas_of(&mut self, broker: BrokerId, effects: &mut Effects) {
        let holds = |at: &TopicPartition| {
            let slot = self.topics.get(&at.topic).and_then(|t| t.slots.get(&at.partition));
            slot.is_some_and(|s| s.assignment.replicas.contains(&broker))
        };
        let concerned: Vec<TopicPartition> = self.partitions().into_iter().filter(holds).collect();
        for at in &concerned {
            self.settle(at, effects);
        }
    }
}
