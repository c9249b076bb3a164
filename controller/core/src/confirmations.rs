//! Who has confirmed a stored change of settings (R37).
//!
//! The settings in force travel with every leadership that is pushed, so whoever leads knows them. A change is answered when
//! the present leader of each partition has acknowledged them together with its leadership: it fetches from no earlier leader
//! any more, so that none of these can commit a record under the old settings. (That it knew them as a follower is not enough:
//! its leader may be deposed, not know it, and still be followed.) Only acks=1 promises nothing then.

use std::collections::{BTreeMap, BTreeSet};

use barnabas_types::{BrokerId, ConfigEntity, Incarnation, TopicImage, TopicName};

use crate::controller::Controller;
use crate::controller_api::{AlteredConfig, Effects, RequestId};

/// A stored change that waits for those whom it concerns.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Confirming {
    entity: ConfigEntity,
    /// Life of the topic, if it is one.
    life: Option<Incarnation>,
    /// The image from which on the settings are in force.
    version: u64,
    overrides: BTreeMap<String, String>,
}

impl Controller {
    pub(crate) fn await_confirmation(
        &mut self,
        entity: &ConfigEntity,
        request: RequestId,
        effects: &mut Effects,
    ) {
        let confirming = Confirming {
            entity: entity.clone(),
            life: self.life(entity),
            version: self.version(),
            overrides: self.stored(entity),
        };
        self.confirming.insert(request, confirming);
        effects.confirmations_awaited.push(request);
    }

    /// Those whom the settings concern and who have not acknowledged them: a topic's present leaders; the broker, if it is
    /// live; for the cluster every live broker, and every present leader, live or not.
    fn unconfirmed(&self, confirming: &Confirming) -> Vec<BrokerId> {
        let live = |b: &BrokerId| self.image().brokers.contains_key(b);
        let lacks = |b: &BrokerId| !self.has_acked(b, confirming.version);
        let concerned: BTreeSet<BrokerId> = match &confirming.entity {
            ConfigEntity::Topic(name) => {
                let topic = self.image().topics.get(name);
                let Some(topic) = topic.filter(|t| Some(t.incarnation) == confirming.life) else {
                    return Vec::new(); // deleted since
                };
                self.unconfirmed_leaders(name, topic, confirming.version).collect()
            }
            ConfigEntity::Broker(Some(id)) => {
                Some(*id).filter(live).filter(lacks).into_iter().collect()
            }
            ConfigEntity::Broker(None) => {
                let topics = self.image().topics.iter();
                let leaders = topics.flat_map(|(name, topic)| {
                    self.unconfirmed_leaders(name, topic, confirming.version)
                });
                self.image().brokers.keys().copied().filter(lacks).chain(leaders).collect()
            }
        };
        concerned.into_iter().collect()
    }

    /// Leaders of a topic's partitions that have not acknowledged the version, or not their partition as it is now.
    fn unconfirmed_leaders<'a>(
        &'a self,
        name: &'a TopicName,
        topic: &'a TopicImage,
        version: u64,
    ) -> impl Iterator<Item = BrokerId> + 'a {
        topic.partitions.iter().filter_map(move |(index, partition)| {
            let version = version.max(self.image.version_of(name, *index));
            partition.state.leader.filter(|leader| !self.has_acked(leader, version))
        })
    }

    pub(crate) fn has_acked(&self, broker: &BrokerId, version: u64) -> bool {
        self.acked.get(broker).is_some_and(|acked| *acked >= version)
    }

    /// Answers the changes that everybody concerned has confirmed.
    pub(crate) fn confirm(&mut self, effects: &mut Effects) {
        if self.confirming.is_empty() {
            return;
        }
        // Looking at the live brokers first spares a look at every partition in nearly all steps.
        let live = |c: &Confirming| {
            c.entity != ConfigEntity::Broker(None)
                || self.image().brokers.keys().all(|b| self.has_acked(b, c.version))
        };
        let confirmed = |c: &Confirming| live(c) && self.unconfirmed(c).is_empty();
        let done: Vec<RequestId> =
            self.confirming.iter().filter(|(_, c)| confirmed(c)).map(|(r, _)| *r).collect();
        for request in done {
            self.confirmation_due(request, effects);
        }
    }

    /// Answers a stored change with those who have not confirmed it; a no-op if it was answered.
    pub(crate) fn confirmation_due(&mut self, request: RequestId, effects: &mut Effects) {
        let Some(confirming) = self.confirming.remove(&request) else { return };
        let unconfirmed = self.unconfirmed(&confirming);
        let answer = AlteredConfig { overrides: confirming.overrides, unconfirmed };
        effects.config_answers.push((request, Ok(answer)));
    }
}
