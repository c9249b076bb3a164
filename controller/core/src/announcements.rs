//! Who has heard that a topic was created, was deleted or has more partitions. That is answered once every live broker shows it,
//! so that whoever asks any of them next finds what it was told.
//!
//! A broker that cannot hear holds nobody up: one whose stream of pushes is broken, or that has exhausted the shell's patience,
//! is not waited for until it acknowledges something again.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{Hash, Hasher};

use barnabas_types::{BrokerEpoch, BrokerId, TopicId};

use crate::controller::Controller;
use crate::controller_api::{Effects, RequestId};

/// What is stored and shown, and not answered yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Announced {
    /// Id, partitions, replication factor.
    Created((TopicId, i32, i32)),
    /// How many partitions there are now.
    Grown(i32),
    Deleted(TopicId),
}

/// Answers that wait, each for a caller's request, which bounds them. No part of the hash: they change nothing that is decided.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Announcements {
    /// With the version of the image that every live broker must have acknowledged.
    waiting: BTreeMap<RequestId, (u64, Announced)>,
    /// Live brokers that are not waited for.
    deaf: BTreeSet<BrokerId>,
}

impl Hash for Announcements {
    fn hash<H: Hasher>(&self, _state: &mut H) {}
}

impl Announcements {
    /// The broker has acknowledged something, or is another incarnation.
    pub(crate) fn hears(&mut self, broker: BrokerId) {
        self.deaf.remove(&broker);
    }
}

impl Controller {
    /// Answers the request once every live broker has heard of the change that this step has made to the image.
    pub(crate) fn announce(
        &mut self,
        request: RequestId,
        announced: Announced,
        effects: &mut Effects,
    ) {
        self.announcements.waiting.insert(request, (self.version(), announced));
        effects.announcements_awaited.push(request);
    }

    /// The stream of pushes to this incarnation of a broker has ended, or was not to be had.
    pub(crate) fn push_broken(&mut self, broker: BrokerId, broker_epoch: BrokerEpoch) {
        if self.image().brokers.get(&broker).is_some_and(|b| b.epoch == broker_epoch) {
            self.announcements.deaf.insert(broker);
        }
    }

    fn unheard(&self, version: u64) -> impl Iterator<Item = BrokerId> + '_ {
        let waited_for = |b: &BrokerId| !self.announcements.deaf.contains(b);
        let live = self.image().brokers.keys().copied().filter(waited_for);
        live.filter(move |b| !self.has_acked(b, version))
    }

    /// Answers what everybody has heard of.
    pub(crate) fn answer_announced(&mut self, effects: &mut Effects) {
        let waiting = &self.announcements.waiting;
        let heard = |(_, (version, _)): &(&RequestId, &(u64, Announced))| {
            self.unheard(*version).next().is_none()
        };
        let done: Vec<RequestId> = waiting.iter().filter(heard).map(|(r, _)| *r).collect();
        for request in done {
            self.end_announcement(request, effects);
        }
    }

    /// The shell waits no longer: who has not heard of it by now is not waited for next time. A no-op if it was answered.
    pub(crate) fn announcement_due(&mut self, request: RequestId, effects: &mut Effects) {
        let Some((version, _)) = self.announcements.waiting.get(&request) else { return };
        let silent: Vec<BrokerId> = self.unheard(*version).collect();
        self.announcements.deaf.extend(silent);
        self.end_announcement(request, effects);
    }

    /// The term is over: what is stored is stored.
    pub(crate) fn end_announcements(&mut self, effects: &mut Effects) {
        for request in self.announcements.waiting.keys().copied().collect::<Vec<_>>() {
            self.end_announcement(request, effects);
        }
    }

    fn end_announcement(&mut self, request: RequestId, effects: &mut Effects) {
        match self.announcements.waiting.remove(&request).map(|(_, announced)| announced) {
            Some(Announced::Created(topic)) => effects.create_answers.push((request, Ok(topic))),
            Some(Announced::Grown(total)) => effects.partitions_answers.push((request, Ok(total))),
            Some(Announced::Deleted(id)) => effects.delete_answers.push((request, Ok(id))),
            None => {}
        }
    }
}
