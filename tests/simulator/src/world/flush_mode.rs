//! The live change of `flush.mode` (R37): the operator, the controller's write of the settings, the leaders' confirmation.

use std::collections::BTreeMap;

use barnabas_controller_core::{
    AlterConfig, AlterConfigAnswer, ConfigWrite, ControllerEvent, RequestId, WriteOutcome,
};
use barnabas_types::topic_config::SettingChange;
use barnabas_types::{ConfigEntity, ControllerEpoch, FlushMode, TopicName};

use super::World;
use super::term::request_id;
use crate::coverage::Reached;
use crate::happening::{Happening, Input, Ix};
use crate::store::{Answer, Fence, Request};

/// How long the controller waits for the leaders.
const CONFIRMATION_MS_MAX: u64 = 50;

impl World {
    /// An operator asks a controller for the other mode of a topic, or of all that do not say.
    pub(crate) fn ask_to_switch(&mut self) {
        let Some(at) = self.some_partition() else { return };
        let Some(to) = self.some_controller() else { return };
        let Some(topic) = self.store.topics.get(&at.topic) else { return };
        let mode = match topic.config.flush_mode {
            FlushMode::Async => FlushMode::Sync,
            FlushMode::Sync => FlushMode::Async,
        };
        let entity = if self.choice.chance(300) {
            self.reach(Reached::ClusterSettings);
            ConfigEntity::Broker(None)
        } else {
            ConfigEntity::Topic(at.topic)
        };
        for name in self.store.topics.keys().filter(|name| concerns(&entity, name)) {
            self.checkers.mode_wished(name, mode);
        }
        let delay = self.net.range(1, self.swarm.net_delay_ms_max);
        let input = Input::SwitchFlushMode { entity, mode };
        self.queue.after(delay, Happening::Input { to, life: None, from: None, input });
    }

    pub(crate) fn switch_asked(&mut self, b: Ix, entity: ConfigEntity, mode: FlushMode) {
        let Some(term) = &mut self.processes[b].term else { return };
        let request = request_id(term);
        term.switches.insert(request, (entity.clone(), mode));
        let value = match mode {
            FlushMode::Async => "async",
            FlushMode::Sync => "sync",
        };
        let key = match entity {
            ConfigEntity::Topic(_) => "flush.mode",
            ConfigEntity::Broker(_) => "log.flush.mode",
        };
        let changes = vec![(key.to_owned(), SettingChange::Set(value.to_owned()))];
        let alter = AlterConfig { entity, replace: false, changes, validate_only: false };
        self.step_controller(b, ControllerEvent::AlterConfig { request, alter });
    }

    pub(crate) fn switch_answered(&mut self, b: Ix, request: RequestId, answer: AlterConfigAnswer) {
        self.note(Some(b), "switch answer", || format!("{answer:?}"));
        let Some(term) = &mut self.processes[b].term else { return };
        let Some((entity, mode)) = term.switches.remove(&request) else { return };
        let Ok(altered) = answer else { return };
        let topics = self.store.topics.iter().filter(|(name, _)| concerns(&entity, name));
        let lives: Vec<(TopicName, i64)> =
            topics.map(|(name, topic)| (name.clone(), topic.incarnation.czxid)).collect();
        if mode == FlushMode::Async {
            for (name, _) in &lives {
                self.checkers.async_answered(name);
            }
            return;
        }
        if !altered.unconfirmed.is_empty() {
            return self.reach(Reached::ModeUnconfirmed);
        }
        self.reach(Reached::ModeConfirmed);
        for (name, czxid) in &lives {
            self.checkers.sync_confirmed(name, *czxid);
        }
    }

    pub(crate) fn await_confirmation(&mut self, b: Ix, request: RequestId) {
        let Some(term) = &self.processes[b].term else { return };
        let input = Input::ConfirmationDue { term: term.fence.epoch, request };
        self.later(b, CONFIRMATION_MS_MAX, input);
    }

    pub(crate) fn confirmation_due(&mut self, b: Ix, epoch: ControllerEpoch, request: RequestId) {
        if self.processes[b].term.as_ref().is_some_and(|term| term.fence.epoch == epoch) {
            self.step_controller(b, ControllerEvent::ConfirmationDue { request });
        }
    }

    /// The settings are read with their version first; the write is conditional on that.
    pub(crate) fn write_config(&mut self, b: Ix, write: ConfigWrite) {
        let Some(term) = &self.processes[b].term else { return };
        let fence = term.fence;
        self.ask_as_controller(b, Request::ReadConfig { fence, write });
    }

    /// A read or write of settings ended; `None`: it goes on.
    pub(crate) fn config_ended(
        &mut self,
        b: Ix,
        fence: Fence,
        write: ConfigWrite,
        answer: Option<Answer>,
    ) -> Option<WriteOutcome> {
        match answer {
            Some(Answer::Done) => Some(WriteOutcome::Applied),
            Some(Answer::EpochMoved) => Some(WriteOutcome::Fenced),
            Some(Answer::NoNode | Answer::Config(None)) => Some(WriteOutcome::TopicConflict),
            Some(Answer::Config(Some((now, version)))) => {
                self.config_read(b, fence, write, now, version)
            }
            // Not known, or at another version: what is there now decides.
            _ => {
                self.ask_as_controller(b, Request::ReadConfig { fence, write });
                None
            }
        }
    }

    fn config_read(
        &mut self,
        b: Ix,
        fence: Fence,
        write: ConfigWrite,
        now: BTreeMap<String, String>,
        version: i32,
    ) -> Option<WriteOutcome> {
        match &write.overrides {
            Some(overrides) if now == *overrides => Some(WriteOutcome::Applied),
            Some(_) if now == write.expected => {
                self.ask_as_controller(b, Request::WriteConfig { fence, write, version });
                None
            }
            _ => Some(WriteOutcome::Config { now }),
        }
    }
}

/// Whether settings of `entity` may change those in force of the topic.
pub(super) fn concerns(entity: &ConfigEntity, topic: &TopicName) -> bool {
    match entity {
        ConfigEntity::Topic(name) => name == topic,
        ConfigEntity::Broker(broker) => broker.is_none(),
    }
}
