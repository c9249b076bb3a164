//! Changing settings of topics, of brokers and of the cluster: one write at a time for each of them, then the confirmation by
//! those whom it concerns ([`crate::confirmations`]).
//!
//! What holds for topics that do not say is the elected controller's file, and above it what is stored for the cluster
//! (`/config/brokers/<default>`): a change of that changes the settings in force of every topic that it reaches.

use std::collections::{BTreeMap, VecDeque};

use barnabas_types::topic_config::{Naming, altered, tolerant};
use barnabas_types::{
    BrokerId, Condition, ConfigEntity, Incarnation, TopicConfig, TopicName, TopicPartition,
    broker_settings,
};

use crate::controller::{Controller, Target, Topic, note};
use crate::controller_api::{
    AlterConfig, AlteredConfig, ConfigWrite, Effects, RequestId, WriteId, WriteOutcome,
};
use crate::drain::unregistered;
use crate::topics::check_cleanup;

/// Most changes of the settings of one topic or broker that wait for an earlier one.
const CONFIG_WAITERS_MAX: usize = 16;

type Overrides = BTreeMap<String, String>;

/// What waits, or is under way, for one topic's or broker's settings.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum Wanted {
    Alter(RequestId, AlterConfig),
    /// Read again what is stored.
    Reload,
}

/// A write or read under way.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Altering {
    write: WriteId,
    wanted: Wanted,
    /// What is written; for a read, what is in force.
    overrides: Overrides,
}

/// The changes of the settings of one topic or broker.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct Configs {
    altering: Option<Altering>,
    queue: VecDeque<Wanted>,
}

impl Controller {
    pub(crate) fn alter_config(
        &mut self,
        request: RequestId,
        alter: AlterConfig,
        effects: &mut Effects,
    ) {
        let entity = alter.entity.clone();
        if !self.is_alterable(&entity) {
            let unknown = Err(Condition::UnknownTopicOrPartition);
            return effects.config_answers.push((request, unknown));
        }
        let Some(configs) = self.configs_mut(&entity) else { return };
        if configs.queue.len() >= CONFIG_WAITERS_MAX {
            return effects.config_answers.push((request, Err(Condition::RequestTimedOut)));
        }
        configs.queue.push_back(Wanted::Alter(request, alter));
        self.next_config(&entity, effects);
    }

    pub(crate) fn reload_config(&mut self, entity: &ConfigEntity, effects: &mut Effects) {
        if !self.is_alterable(entity) {
            return;
        }
        let Some(configs) = self.configs_mut(entity) else { return };
        if !configs.queue.contains(&Wanted::Reload) {
            configs.queue.push_back(Wanted::Reload);
            self.next_config(entity, effects);
        }
    }

    fn is_alterable(&self, entity: &ConfigEntity) -> bool {
        match entity {
            ConfigEntity::Topic(name) => {
                self.topics.get(name).is_some_and(|t| t.deleting.is_none() && !t.hidden)
            }
            ConfigEntity::Broker(_) => true,
        }
    }

    fn configs_mut(&mut self, entity: &ConfigEntity) -> Option<&mut Configs> {
        match entity {
            ConfigEntity::Topic(name) => self.topics.get_mut(name).map(|topic| &mut topic.configs),
            ConfigEntity::Broker(broker) => Some(self.broker_configs.entry(*broker).or_default()),
        }
    }

    /// What is stored, as far as is known.
    pub(crate) fn stored(&self, entity: &ConfigEntity) -> Overrides {
        match entity {
            ConfigEntity::Topic(name) => {
                self.topics.get(name).map(|topic| topic.overrides.clone()).unwrap_or_default()
            }
            ConfigEntity::Broker(broker) => {
                self.image().broker_settings.get(broker).cloned().unwrap_or_default()
            }
        }
    }

    pub(crate) fn life(&self, entity: &ConfigEntity) -> Option<Incarnation> {
        match entity {
            ConfigEntity::Topic(name) => self.topics.get(name).map(|topic| topic.incarnation),
            ConfigEntity::Broker(_) => None,
        }
    }

    /// Begins what waits, until something is under way.
    fn next_config(&mut self, entity: &ConfigEntity, effects: &mut Effects) {
        loop {
            let Some(configs) = self.configs_mut(entity) else { return };
            if configs.altering.is_some() {
                return;
            }
            let Some(wanted) = configs.queue.pop_front() else {
                if let ConfigEntity::Broker(broker) = entity {
                    self.broker_configs.remove(broker);
                }
                return;
            };
            let overrides = match &wanted {
                Wanted::Reload => None,
                Wanted::Alter(request, alter) => match self.judge_config(alter) {
                    Err(condition) => {
                        effects.config_answers.push((*request, Err(condition)));
                        continue;
                    }
                    Ok(overrides) if alter.validate_only => {
                        let answer = AlteredConfig { overrides, unconfirmed: Vec::new() };
                        effects.config_answers.push((*request, Ok(answer)));
                        continue;
                    }
                    Ok(overrides) => Some(overrides),
                },
            };
            self.write_config(entity, wanted, overrides, effects);
        }
    }

    fn write_config(
        &mut self,
        entity: &ConfigEntity,
        wanted: Wanted,
        overrides: Option<Overrides>,
        effects: &mut Effects,
    ) {
        let write = self.begin_write(Target::Config(entity.clone()));
        let (expected, life) = (self.stored(entity), self.life(entity));
        let meant = overrides.clone().unwrap_or_else(|| expected.clone());
        let Some(configs) = self.configs_mut(entity) else { return };
        configs.altering = Some(Altering { write, wanted, overrides: meant });
        let entity = entity.clone();
        effects.config_writes.push(ConfigWrite { write, entity, life, expected, overrides });
    }

    /// What would be stored.
    fn judge_config(&self, alter: &AlterConfig) -> Result<Overrides, Condition> {
        let AlterConfig { entity, replace, changes, .. } = alter;
        let stored = self.stored(entity);
        let name = match entity {
            ConfigEntity::Topic(name) => name,
            ConfigEntity::Broker(broker) => {
                if let Some(broker) = broker
                    && !self.is_known(*broker)
                {
                    return Err(unregistered(*broker));
                }
                let statics = &self.defaults.topic;
                let overrides =
                    broker_settings::altered(*broker, statics, &stored, *replace, changes)?;
                if broker.is_none() {
                    self.judge_cluster_default(&overrides)?;
                }
                return Ok(overrides);
            }
        };
        let topic = self.topics.get(name).ok_or(Condition::UnknownTopicOrPartition)?;
        let (overrides, config) =
            altered(Naming::Topic, &self.topic_defaults, &stored, *replace, changes)?;
        // What was so before is no fault of this change.
        if config.cleanup != topic.config.cleanup {
            check_cleanup(name, &config)?;
        }
        if let Some((min, rf)) = unwritable(topic, &config) {
            return Err(Condition::InvalidConfig(format!(
                "min.insync.replicas {min} is above the replication factor {rf}: no producer with acks=all could ever \
                 succeed; lower min.insync.replicas or raise the replication factor"
            )));
        }
        Ok(overrides)
    }

    /// Whether there is, or was, such a broker: it is registered, has a replica, or has settings. One that is down may be given
    /// settings for its return.
    fn is_known(&self, broker: BrokerId) -> bool {
        self.image().brokers.contains_key(&broker)
            || self.image().broker_settings.contains_key(&Some(broker))
            || self.topics.values().any(|topic| {
                topic.slots.values().any(|slot| slot.assignment.replicas.contains(&broker))
            })
    }

    /// The topics that take what is stored for the cluster must be able to live with it.
    fn judge_cluster_default(&self, overrides: &Overrides) -> Result<(), Condition> {
        let (defaults, _) = tolerant(Naming::Broker, &self.defaults.topic, overrides);
        for (name, topic) in &self.topics {
            let (config, _) = tolerant(Naming::Topic, &defaults, &topic.overrides);
            if let Some((min, rf)) = unwritable(topic, &config) {
                return Err(Condition::InvalidConfig(format!(
                    "min.insync.replicas {min} is above the replication factor {rf} of topic '{name}', which does not say \
                     otherwise: no producer with acks=all could ever succeed there; lower min.insync.replicas, or set it for \
                     that topic first"
                )));
            }
        }
        Ok(())
    }

    pub(crate) fn config_written(
        &mut self,
        entity: &ConfigEntity,
        outcome: WriteOutcome,
        effects: &mut Effects,
    ) {
        let Some(configs) = self.configs_mut(entity) else { return };
        let Some(Altering { wanted, overrides, .. }) = configs.altering.take() else {
            return;
        };
        match (outcome, wanted) {
            (WriteOutcome::Applied, Wanted::Alter(request, _)) => {
                self.adopt_config(entity, overrides, "altered", effects);
                self.await_confirmation(entity, request, effects);
            }
            (WriteOutcome::Config { now }, wanted) => {
                self.adopt_config(entity, now, "changed by somebody else", effects);
                if let (Wanted::Alter(..), Some(configs)) = (&wanted, self.configs_mut(entity)) {
                    configs.queue.push_front(wanted); // decided anew, on what is stored
                }
            }
            (outcome, Wanted::Alter(request, _)) => {
                let condition = match outcome {
                    WriteOutcome::Refused { reason } => Condition::InvalidRequest(format!(
                        "the settings of {entity} were not changed: {reason}"
                    )),
                    _ => Condition::UnknownTopicOrPartition,
                };
                effects.config_answers.push((request, Err(condition)));
            }
            // The topic is gone; its deletion, or the next term, settles it.
            (_, Wanted::Reload) => {}
        }
        self.next_config(entity, effects);
    }

    /// The store holds these settings now.
    fn adopt_config(
        &mut self,
        entity: &ConfigEntity,
        overrides: Overrides,
        how: &str,
        effects: &mut Effects,
    ) {
        if self.stored(entity) == overrides {
            return;
        }
        let shown: Vec<String> = overrides.iter().map(|(k, v)| format!("{k}={v}")).collect();
        let text = format!("settings of {entity} {how}: [{}]", shown.join(", "));
        note(effects, None, false, text);
        match entity {
            ConfigEntity::Topic(name) => {
                let (config, refused) = tolerant(Naming::Topic, &self.topic_defaults, &overrides);
                note_refused(entity, &refused, effects);
                self.set_topic_config(name, config, overrides, effects);
            }
            ConfigEntity::Broker(broker) => {
                self.image.set_broker_settings(*broker, overrides);
                if broker.is_none() {
                    self.apply_cluster_default(effects);
                }
            }
        }
    }

    /// What holds for topics that do not say, from what is stored for the cluster.
    pub(crate) fn read_cluster_default(&mut self, effects: &mut Effects) {
        let entity = ConfigEntity::Broker(None);
        let (defaults, refused) =
            tolerant(Naming::Broker, &self.defaults.topic, &self.stored(&entity));
        note_refused(&entity, &refused, effects);
        self.topic_defaults = defaults;
    }

    /// Recomputes every topic's settings.
    fn apply_cluster_default(&mut self, effects: &mut Effects) {
        self.read_cluster_default(effects);
        let changed: Vec<(TopicName, TopicConfig)> = self
            .topics
            .iter()
            .map(|(name, topic)| (name, topic, self.in_force(&topic.overrides)))
            .filter(|(_, topic, config)| topic.config != *config)
            .map(|(name, _, config)| (name.clone(), config))
            .collect();
        for (name, config) in changed {
            let overrides = self.stored(&ConfigEntity::Topic(name.clone()));
            self.set_topic_config(&name, config, overrides, effects);
        }
    }

    /// The settings in force of a topic with these of its own; stored values that make no sense are as good as absent.
    pub(crate) fn in_force(&self, overrides: &Overrides) -> TopicConfig {
        tolerant(Naming::Topic, &self.topic_defaults, overrides).0
    }

    fn set_topic_config(
        &mut self,
        name: &TopicName,
        config: TopicConfig,
        overrides: Overrides,
        effects: &mut Effects,
    ) {
        let Some(topic) = self.topics.get_mut(name) else { return };
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
        let of_topics = self
            .topics
            .iter_mut()
            .map(|(name, topic)| (ConfigEntity::Topic(name.clone()), &mut topic.configs));
        let of_brokers = self
            .broker_configs
            .iter_mut()
            .map(|(id, configs)| (ConfigEntity::Broker(*id), configs));
        for (entity, configs) in of_topics.chain(of_brokers) {
            let known = fenced == Some(&Target::Config(entity));
            let under_way = configs.altering.take().map(|altering| altering.wanted);
            let waiting = configs.queue.drain(..).map(|wanted| (true, wanted));
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

/// min.insync.replicas and the least replication factor, if the change to these settings puts the one above the other. What was
/// so before is no fault of the change.
fn unwritable(topic: &Topic, config: &TopicConfig) -> Option<(u32, usize)> {
    let rf = topic.slots.values().map(|s| s.assignment.target().len()).min().unwrap_or(0);
    let min = config.min_insync_replicas;
    let changed = min != topic.config.min_insync_replicas;
    (changed && u32::try_from(rf).unwrap_or(0) < min).then_some((min, rf))
}

/// Stored values that make no sense, for an operator.
pub(crate) fn note_refused(entity: &ConfigEntity, refused: &[String], effects: &mut Effects) {
    for reason in refused {
        let text = format!("settings of {entity}: {reason}; the default is used");
        note(effects, None, true, text);
    }
}
