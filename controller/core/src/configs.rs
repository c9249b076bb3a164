//! Changing a topic's settings: one write at a time for each topic, then the leaders' confirmation (R37).
//!
//! The settings in force travel with every leadership that is pushed, so whoever leads knows them. A change is answered when
//! the present leader of each partition has acknowledged a push with the new ones: from then on no record is acknowledged
//! under the old ones, except by a deposed leader, whose acknowledgements promise nothing (acks=1).

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use barnabas_types::topic_config::{altered, tolerant};
use barnabas_types::{BrokerId, Condition, Incarnation, TopicConfig, TopicName, TopicPartition};

use crate::controller::{Controller, Target, Topic, note};
use crate::controller_api::{
    AlterTopicConfig, AlteredTopicConfig, ConfigWrite, Effects, RequestId, WriteId, WriteOutcome,
};

/// Most changes of one topic's settings that wait for an earlier one.
const CONFIG_WAITERS_MAX: usize = 16;

/// What waits, or is under way, for one topic's settings.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum Wanted {
    Alter(RequestId, AlterTopicConfig),
    /// Read again what is stored.
    Reload,
}

/// A write or read under way.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Altering {
    write: WriteId,
    wanted: Wanted,
    /// What is written; for a read, what is in force.
    overrides: BTreeMap<String, String>,
    config: TopicConfig,
}

/// The changes of one topic's settings.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct Configs {
    altering: Option<Altering>,
    queue: VecDeque<Wanted>,
}

/// A stored change that waits for the leaders.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Confirming {
    name: TopicName,
    incarnation: Incarnation,
    /// The image from which on the settings are in force.
    version: u64,
    overrides: BTreeMap<String, String>,
}

impl Controller {
    pub(crate) fn alter_config(
        &mut self,
        request: RequestId,
        alter: AlterTopicConfig,
        effects: &mut Effects,
    ) {
        let name = alter.name.clone();
        let Some(topic) = self.alterable(&name) else {
            let unknown = Err(Condition::UnknownTopicOrPartition);
            return effects.config_answers.push((request, unknown));
        };
        if topic.configs.queue.len() >= CONFIG_WAITERS_MAX {
            return effects.config_answers.push((request, Err(Condition::RequestTimedOut)));
        }
        topic.configs.queue.push_back(Wanted::Alter(request, alter));
        self.next_config(&name, effects);
    }

    pub(crate) fn reload_config(&mut self, name: &TopicName, effects: &mut Effects) {
        let Some(topic) = self.alterable(name) else { return };
        if !topic.configs.queue.contains(&Wanted::Reload) {
            topic.configs.queue.push_back(Wanted::Reload);
            self.next_config(name, effects);
        }
    }

    fn alterable(&mut self, name: &TopicName) -> Option<&mut Topic> {
        self.topics.get_mut(name).filter(|t| t.deleting.is_none() && !t.hidden)
    }

    /// Begins what waits, until something is under way.
    fn next_config(&mut self, name: &TopicName, effects: &mut Effects) {
        loop {
            let Some(topic) = self.topics.get_mut(name) else { return };
            if topic.configs.altering.is_some() {
                return;
            }
            let Some(wanted) = topic.configs.queue.pop_front() else { return };
            let (overrides, config) = match &wanted {
                Wanted::Reload => (None, topic.config),
                Wanted::Alter(request, alter) => match self.judge_config(alter) {
                    Err(condition) => {
                        effects.config_answers.push((*request, Err(condition)));
                        continue;
                    }
                    Ok((overrides, _)) if alter.validate_only => {
                        let answer = AlteredTopicConfig { overrides, unconfirmed: Vec::new() };
                        effects.config_answers.push((*request, Ok(answer)));
                        continue;
                    }
                    Ok((overrides, config)) => (Some(overrides), config),
                },
            };
            self.write_config(name, wanted, overrides, config, effects);
        }
    }

    fn write_config(
        &mut self,
        name: &TopicName,
        wanted: Wanted,
        overrides: Option<BTreeMap<String, String>>,
        config: TopicConfig,
        effects: &mut Effects,
    ) {
        let write = self.begin_write(Target::Config(name.clone()));
        let Some(topic) = self.topics.get_mut(name) else { return };
        let expected = topic.overrides.clone();
        let meant = overrides.clone().unwrap_or_else(|| expected.clone());
        topic.configs.altering = Some(Altering { write, wanted, overrides: meant, config });
        let (name, incarnation) = (name.clone(), topic.incarnation);
        effects.config_writes.push(ConfigWrite { write, name, incarnation, expected, overrides });
    }

    fn judge_config(
        &self,
        alter: &AlterTopicConfig,
    ) -> Result<(BTreeMap<String, String>, TopicConfig), Condition> {
        let topic = self.topics.get(&alter.name).ok_or(Condition::UnknownTopicOrPartition)?;
        let (overrides, config) =
            altered(&self.defaults.topic, &topic.overrides, alter.replace, &alter.changes)?;
        let rf = topic.slots.values().map(|s| s.assigned.len()).min().unwrap_or(0);
        let min = config.min_insync_replicas;
        // What was so before is no fault of this change.
        if min != topic.config.min_insync_replicas && u32::try_from(rf).unwrap_or(0) < min {
            return Err(Condition::InvalidConfig(format!(
                "min.insync.replicas {min} is above the replication factor {rf}: no producer with acks=all could ever \
                 succeed; lower min.insync.replicas or raise the replication factor"
            )));
        }
        Ok((overrides, config))
    }

    pub(crate) fn config_written(
        &mut self,
        name: &TopicName,
        outcome: WriteOutcome,
        effects: &mut Effects,
    ) {
        let Some(topic) = self.topics.get_mut(name) else { return };
        let Some(Altering { wanted, overrides, config, .. }) = topic.configs.altering.take() else {
            return;
        };
        match (outcome, wanted) {
            (WriteOutcome::Applied, Wanted::Alter(request, _)) => {
                self.adopt_config(name, config, overrides, "altered", effects);
                self.await_confirmation(name, request, effects);
            }
            (WriteOutcome::Config { now }, wanted) => {
                self.config_found(name, now, effects);
                if let (Wanted::Alter(..), Some(topic)) = (&wanted, self.topics.get_mut(name)) {
                    topic.configs.queue.push_front(wanted); // decided anew, on what is stored
                }
            }
            (outcome, Wanted::Alter(request, _)) => {
                let condition = match outcome {
                    WriteOutcome::Refused { reason } => Condition::InvalidRequest(format!(
                        "the settings of topic '{name}' were not changed: {reason}"
                    )),
                    _ => Condition::UnknownTopicOrPartition,
                };
                effects.config_answers.push((request, Err(condition)));
            }
            // The topic is gone; its deletion, or the next term, settles it.
            (_, Wanted::Reload) => {}
        }
        self.next_config(name, effects);
    }

    /// The store holds settings that somebody else has written.
    fn config_found(
        &mut self,
        name: &TopicName,
        now: BTreeMap<String, String>,
        effects: &mut Effects,
    ) {
        let (config, refused) = tolerant(&self.defaults.topic, &now);
        for reason in refused {
            let text = format!("settings of topic {name}: {reason}; the default is used");
            note(effects, None, true, text);
        }
        self.adopt_config(name, config, now, "changed by somebody else", effects);
    }

    fn adopt_config(
        &mut self,
        name: &TopicName,
        config: TopicConfig,
        overrides: BTreeMap<String, String>,
        how: &str,
        effects: &mut Effects,
    ) {
        let Some(topic) = self.topics.get_mut(name) else { return };
        if topic.config == config && topic.overrides == overrides {
            return;
        }
        let shown: Vec<String> = overrides.iter().map(|(k, v)| format!("{k}={v}")).collect();
        let text = format!("settings of topic {name} {how}: [{}]", shown.join(", "));
        note(effects, None, false, text);
        let unclean = config.unclean_leader_election && !topic.config.unclean_leader_election;
        // A draining broker may wait for a lower min.insync.replicas.
        let concerned = unclean || !self.draining.is_empty();
        topic.config = config;
        topic.overrides.clone_from(&overrides);
        let indexes: Vec<i32> = topic.slots.keys().copied().filter(|_| concerned).collect();
        self.image.set_config(name, config, overrides);
        for partition in indexes {
            self.settle(&TopicPartition { topic: name.clone(), partition }, effects);
        }
    }

    fn await_confirmation(&mut self, name: &TopicName, request: RequestId, effects: &mut Effects) {
        let version = self.version();
        let Some(topic) = self.topics.get(name) else { return };
        let (incarnation, overrides) = (topic.incarnation, topic.overrides.clone());
        let confirming = Confirming { name: name.clone(), incarnation, version, overrides };
        self.confirming.insert(request, confirming);
        effects.confirmations_awaited.push(request);
    }

    /// The present leaders that have not acknowledged the settings.
    fn unconfirmed(&self, confirming: &Confirming) -> Vec<BrokerId> {
        let topic = self.image().topics.get(&confirming.name);
        let Some(topic) = topic.filter(|t| t.incarnation == confirming.incarnation) else {
            return Vec::new(); // deleted since
        };
        let leaders: BTreeSet<BrokerId> =
            topic.partitions.values().filter_map(|p| p.state.leader).collect();
        let acked = |b: &BrokerId| self.acked.get(b).copied().unwrap_or(0);
        leaders.into_iter().filter(|b| acked(b) < confirming.version).collect()
    }

    /// Answers the changes that every leader has confirmed.
    pub(crate) fn confirm(&mut self, effects: &mut Effects) {
        if self.confirming.is_empty() {
            return;
        }
        let confirmed = |c: &Confirming| self.unconfirmed(c).is_empty();
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
        let answer = AlteredTopicConfig { overrides: confirming.overrides, unconfirmed };
        effects.config_answers.push((request, Ok(answer)));
    }

    /// Ends what waits for a topic that goes.
    pub(crate) fn abandon_configs(
        &mut self,
        configs: &mut Configs,
        condition: &Condition,
        effects: &mut Effects,
    ) {
        let under_way = configs.altering.take().map(|altering| {
            self.writes.remove(&altering.write);
            altering.wanted
        });
        for wanted in under_way.into_iter().chain(configs.queue.drain(..)) {
            if let Wanted::Alter(request, _) = wanted {
                effects.config_answers.push((request, Err(condition.clone())));
            }
        }
    }

    /// The term is over. What is stored is stored; what becomes of a write under way is not known, unless it was `fenced`.
    pub(crate) fn abandon_all_configs(&mut self, fenced: Option<&Target>, effects: &mut Effects) {
        for request in self.confirming.keys().copied().collect::<Vec<_>>() {
            self.confirmation_due(request, effects);
        }
        for (name, topic) in &mut self.topics {
            let known = fenced == Some(&Target::Config(name.clone()));
            let under_way = topic.configs.altering.take().map(|altering| altering.wanted);
            let waiting = topic.configs.queue.drain(..).map(|wanted| (true, wanted));
            for (untried, wanted) in under_way.map(|w| (known, w)).into_iter().chain(waiting) {
                let Wanted::Alter(request, _) = wanted else { continue };
                let why = if untried {
                    Condition::NotController
                } else {
                    Condition::UnknownOutcome("the controller was deposed meanwhile")
                };
                effects.config_answers.push((request, Err(why)));
            }
        }
    }
}
