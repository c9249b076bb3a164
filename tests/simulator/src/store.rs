//! ZooKeeper as the protocol sees it: typed nodes with czxid and version, ephemeral owners, one-shot watches, atomic multis.

use std::collections::{BTreeMap, BTreeSet};

use barnabas_controller_core::{
    AssignmentWrite, ConfigWrite, ControllerNode, PartitionWrite, RegistrationNode, SessionId,
};
use barnabas_types::topic_config::{Naming, tolerant};
use barnabas_types::{
    Assignment, BrokerEpoch, BrokerId, BrokerImage, BrokerSettings, ConfigEntity, ControllerEpoch,
    DirectoryId, Incarnation, PartitionEpoch, PartitionState, TopicConfig, TopicId, TopicName,
    TopicPartition,
};

use crate::mutation::Mutation;

/// `/brokers/topics/T` with everything below it.
#[derive(Clone, Debug)]
pub struct TopicNode {
    /// Id and czxid.
    pub incarnation: Incarnation,
    /// Settings.
    pub config: TopicConfig,
    /// Settings as typed.
    pub overrides: BTreeMap<String, String>,
    /// Version of the settings' node.
    pub config_version: i32,
    /// How often the settings in force have changed.
    pub config_changes: u32,
    /// Version of the topic's node.
    pub version: i32,
    /// Assignment and state node.
    pub partitions: BTreeMap<i32, (Assignment, PartitionState)>,
}

/// `/brokers/ids/N`.
#[derive(Clone, Debug)]
pub struct Registration {
    /// Owner, czxid, version, directory.
    pub node: RegistrationNode,
    /// What the controller reads from it.
    pub image: BrokerImage,
}

/// A write of a term: checks `/controller_epoch` at the version of the election.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fence {
    /// The term.
    pub epoch: ControllerEpoch,
    /// Version of `/controller_epoch` after the election.
    pub version: i32,
}

/// What can be asked.
#[derive(Clone, Debug)]
#[expect(missing_docs, reason = "the fields' types and names say what they are")]
pub enum Request {
    /// Plain create, ephemeral.
    CreateRegistration { broker: BrokerId, directory: DirectoryId, tail_lost: bool },
    /// Sets or clears the mark in the registration of this epoch.
    MarkDraining { broker: BrokerId, epoch: BrokerEpoch, draining: bool },
    /// After a `sync`.
    ReadRegistration { broker: BrokerId },
    /// At a version.
    DeleteRegistration { broker: BrokerId, version: i32 },
    /// Exists with a watch.
    WatchRegistration { broker: BrokerId },
    /// After a `sync`.
    ReadEpoch,
    /// `/controller` with a watch; the epoch node is read by a request of its own afterwards.
    ReadController,
    /// The second half of `ReadController`.
    ReadEpochAfter { controller: Option<ControllerNode> },
    /// The election's multi.
    Race { broker: BrokerId, epoch: ControllerEpoch, version: i32 },
    /// One multi: `/controller_epoch` is at this version, `/controller` goes.
    DeleteController { version: i32 },
    /// `/controller_epoch`: whether the term that lets a broker stop is still in office.
    ConfirmGrant { fence: Fence, to: usize, life: u32, broker_epoch: BrokerEpoch },
    /// All registrations, with a watch on the children.
    ReadBrokers { term: ControllerEpoch },
    /// Names of the topics, and the brokers' settings.
    ListTopics { term: ControllerEpoch },
    /// One topic whole, and whether it is marked for deletion.
    ReadTopic { term: ControllerEpoch, topic: TopicName },
    /// A conditional write of a state node.
    WritePartition { fence: Fence, write: PartitionWrite },
    /// Reads the epoch node and the state node, to resolve an unknown outcome.
    ReadPartition { fence: Fence, write: PartitionWrite },
    /// A conditional write of a topic's node and a state node.
    WriteAssignment { fence: Fence, write: AssignmentWrite },
    /// Reads the epoch node and both, to resolve an unknown outcome.
    ReadAssignment { fence: Fence, write: AssignmentWrite },
    /// The second write of a move that ends in two (for a planted bug).
    EndMove { fence: Fence, partition: TopicPartition },
    /// Creates a topic.
    CreateTopic { fence: Fence, creation: Creation },
    /// Reads the epoch node and the topic, to resolve an unknown outcome.
    ReadCreated { fence: Fence, creation: Creation },
    /// Adds partitions to a topic.
    GrowTopic { fence: Fence, growth: Growth },
    /// Reads the epoch node and the topic, to resolve an unknown outcome.
    ReadGrown { fence: Fence, growth: Growth },
    /// First step of a deletion: the mark.
    MarkDelete { fence: Fence, deletion: Deletion },
    /// Reads the epoch node and a topic's settings: before a write, and to find out what became of it.
    ReadConfig { fence: Fence, write: ConfigWrite },
    /// A conditional write of a topic's settings.
    WriteConfig { fence: Fence, write: ConfigWrite, version: i32 },
    /// Second step: the tree and the mark.
    RemoveTopic { fence: Fence, deletion: Deletion },
}

impl Request {
    /// The term that asks; `None` if a candidate does.
    #[must_use]
    pub fn term(&self) -> Option<ControllerEpoch> {
        match self {
            Self::ReadBrokers { term }
            | Self::ListTopics { term }
            | Self::ReadTopic { term, .. } => Some(*term),
            Self::ConfirmGrant { fence, .. }
            | Self::WritePartition { fence, .. }
            | Self::ReadPartition { fence, .. }
            | Self::WriteAssignment { fence, .. }
            | Self::ReadAssignment { fence, .. }
            | Self::EndMove { fence, .. }
            | Self::CreateTopic { fence, .. }
            | Self::ReadCreated { fence, .. }
            | Self::GrowTopic { fence, .. }
            | Self::ReadGrown { fence, .. }
            | Self::ReadConfig { fence, .. }
            | Self::WriteConfig { fence, .. }
            | Self::MarkDelete { fence, .. }
            | Self::RemoveTopic { fence, .. } => Some(fence.epoch),
            Self::CreateRegistration { .. }
            | Self::MarkDraining { .. }
            | Self::ReadRegistration { .. }
            | Self::DeleteRegistration { .. }
            | Self::WatchRegistration { .. }
            | Self::ReadEpoch
            | Self::ReadController
            | Self::ReadEpochAfter { .. }
            | Self::DeleteController { .. }
            | Self::Race { .. } => None,
        }
    }
}

/// A topic to create.
#[derive(Clone, Debug)]
pub struct Creation {
    /// The core's name for the write.
    pub write: barnabas_controller_core::WriteId,
    /// Name.
    pub name: TopicName,
    /// Id.
    pub topic_id: TopicId,
    /// Settings as typed.
    pub overrides: BTreeMap<String, String>,
    /// First states.
    pub partitions: BTreeMap<i32, (Vec<BrokerId>, PartitionState)>,
}

/// Partitions to add.
#[derive(Clone, Debug)]
pub struct Growth {
    /// The core's name for the write.
    pub write: barnabas_controller_core::WriteId,
    /// Name.
    pub name: TopicName,
    /// Life of the topic.
    pub incarnation: Incarnation,
    /// How many there are already.
    pub first: i32,
    /// First states of the new ones.
    pub partitions: BTreeMap<i32, (Vec<BrokerId>, PartitionState)>,
}

/// A topic to delete.
#[derive(Clone, Debug)]
pub struct Deletion {
    /// The core's name for the write.
    pub write: barnabas_controller_core::WriteId,
    /// Name.
    pub name: TopicName,
}

/// What came of a request.
#[derive(Clone, Debug)]
#[expect(missing_docs, reason = "the fields' types and names say what they are")]
pub enum Answer {
    /// Applied, nothing more to say.
    Done,
    /// A node was created with this czxid.
    Created(i64),
    /// The node was there.
    NodeExists,
    /// The node was not there.
    NoNode,
    /// The node was at another version.
    BadVersion,
    /// `/controller_epoch` was at another version than the fence.
    EpochMoved,
    /// A registration.
    Registration(Option<RegistrationNode>),
    /// `/controller_epoch`.
    Epoch { epoch: ControllerEpoch, version: i32, mzxid: i64 },
    /// `/controller`.
    Controller(Option<ControllerNode>),
    /// Registered brokers.
    Brokers(BTreeMap<BrokerId, BrokerImage>),
    /// Topic names, and the brokers' settings.
    Topics(Vec<TopicName>, BrokerSettings),
    /// A topic; its deletion mark.
    Topic(Option<TopicNode>, bool),
    /// A topic's settings as typed, and the version of their node; `None`: no such life of the topic.
    Config(Option<(BTreeMap<String, String>, i32)>),
    /// A state node, `None` if it is not there.
    State(Option<PartitionState>),
    /// The session is expired: nothing was done.
    SessionExpired,
}

/// Who is told of a change; each watch fires once.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Watch {
    /// `/controller` changed.
    Controller(SessionId),
    /// The children of `/brokers/ids` changed.
    Brokers(SessionId),
    /// `/brokers/ids/N` is gone.
    Registration(SessionId),
}

/// The ensemble.
#[derive(Debug, Default)]
pub struct Store {
    zxid: i64,
    sessions_begun: i64,
    live_sessions: BTreeSet<SessionId>,
    /// `/controller_epoch` and its version.
    pub controller_epoch: (ControllerEpoch, i32),
    /// The last election.
    elected: i64,
    /// `/controller`.
    pub controller: Option<ControllerNode>,
    /// `/brokers/ids`.
    pub registrations: BTreeMap<BrokerId, Registration>,
    /// `/brokers/topics`.
    pub topics: BTreeMap<TopicName, TopicNode>,
    /// What the brokers' files say of topics.
    pub statics: TopicConfig,
    /// `/config/brokers` with the versions of its nodes.
    pub broker_settings: BTreeMap<Option<BrokerId>, (BTreeMap<String, String>, i32)>,
    /// `/admin/delete_topics`.
    pub delete_marks: BTreeSet<TopicName>,
    controller_watches: BTreeSet<SessionId>,
    broker_watches: BTreeSet<SessionId>,
    registration_watches: BTreeMap<BrokerId, BTreeSet<SessionId>>,
    fired: Vec<Watch>,
    /// Brokers that were ever drained (for a planted bug).
    drained: BTreeSet<BrokerId>,
    /// The planted bug, if any.
    pub mutation: Option<Mutation>,
}

impl Store {
    /// A new session.
    pub fn begin_session(&mut self) -> SessionId {
        self.sessions_begun += 1;
        let session = SessionId(0x1000 + self.sessions_begun);
        self.live_sessions.insert(session);
        session
    }

    /// Whether the ensemble still holds the session.
    #[must_use]
    pub fn is_live(&self, session: SessionId) -> bool {
        self.live_sessions.contains(&session)
    }

    /// Ends a session: its ephemeral nodes go. `false` if it was gone.
    pub fn expire(&mut self, session: SessionId) -> bool {
        if !self.live_sessions.remove(&session) {
            return false;
        }
        self.controller_watches.remove(&session);
        self.broker_watches.remove(&session);
        let owned: Vec<BrokerId> = self
            .registrations
            .iter()
            .filter(|(_, r)| r.node.owner == session)
            .map(|(id, _)| *id)
            .collect();
        for id in owned {
            self.remove_registration(id);
        }
        if self.controller.is_some_and(|c| c.owner == session) {
            self.delete_controller();
        }
        true
    }

    /// Deletes `/controller` (an operator's or a suspecting broker's act). `false` if it was not there.
    pub fn delete_controller(&mut self) -> bool {
        if self.controller.take().is_none() {
            return false;
        }
        self.zxid += 1;
        self.fire_controller();
        true
    }

    /// Somebody writes a partition's state node again as it is: its version rises. `false` if it is not there.
    pub fn touch_state(&mut self, partition: &TopicPartition) -> bool {
        let topic = self.topics.get_mut(&partition.topic);
        let Some((_, state)) = topic.and_then(|t| t.partitions.get_mut(&partition.partition))
        else {
            return false;
        };
        state.partition_epoch = PartitionEpoch(state.partition_epoch.0 + 1);
        self.zxid += 1;
        true
    }

    /// The watches that fired since the last call.
    pub fn take_fired(&mut self) -> Vec<Watch> {
        std::mem::take(&mut self.fired)
    }

    /// State of a partition now.
    #[must_use]
    pub fn state(&self, partition: &TopicPartition) -> Option<(&TopicNode, &PartitionState)> {
        let topic = self.topics.get(&partition.topic)?;
        Some((topic, &topic.partitions.get(&partition.partition)?.1))
    }

    /// Performs a request of a session, atomically.
    pub fn apply(&mut self, session: SessionId, request: &Request) -> Answer {
        if !self.is_live(session) {
            return Answer::SessionExpired;
        }
        match request {
            Request::CreateRegistration { broker, directory, tail_lost } => {
                self.create_registration(session, *broker, *directory, *tail_lost)
            }
            Request::MarkDraining { broker, epoch, draining } => {
                let mine = self.registrations.get_mut(broker);
                let Some(r) = mine.filter(|r| r.node.owner == session && r.node.epoch == *epoch)
                else {
                    return Answer::BadVersion;
                };
                if r.image.draining != *draining {
                    r.image.draining = *draining;
                    r.node.version += 1;
                }
                if *draining {
                    self.drained.insert(*broker);
                }
                Answer::Done
            }
            Request::ReadRegistration { broker } => {
                Answer::Registration(self.registrations.get(broker).map(|r| r.node))
            }
            Request::DeleteRegistration { broker, version } => {
                match self.registrations.get(broker) {
                    None => Answer::NoNode,
                    Some(r) if r.node.version != *version => Answer::BadVersion,
                    Some(_) => {
                        self.remove_registration(*broker);
                        Answer::Done
                    }
                }
            }
            Request::WatchRegistration { broker } => {
                if !self.registrations.contains_key(broker) {
                    return Answer::NoNode;
                }
                self.registration_watches.entry(*broker).or_default().insert(session);
                Answer::Done
            }
            Request::ReadEpoch | Request::ReadEpochAfter { .. } | Request::ConfirmGrant { .. } => {
                let (epoch, version) = self.controller_epoch;
                Answer::Epoch { epoch, version, mzxid: self.elected }
            }
            Request::ReadController => {
                self.controller_watches.insert(session);
                Answer::Controller(self.controller)
            }
            Request::DeleteController { version } => {
                let unchecked = self.mutation == Some(Mutation::ControllerDeletedUnchecked);
                if self.controller_epoch.1 != *version && !unchecked {
                    return Answer::BadVersion;
                }
                if self.delete_controller() { Answer::Done } else { Answer::NoNode }
            }
            Request::Race { broker, epoch, version } => {
                self.race(session, *broker, *epoch, *version)
            }
            Request::ReadBrokers { .. } => {
                self.broker_watches.insert(session);
                Answer::Brokers(
                    self.registrations.iter().map(|(id, r)| (*id, r.image.clone())).collect(),
                )
            }
            Request::ListTopics { .. } => {
                let settings = self.broker_settings.iter().map(|(id, (s, _))| (*id, s.clone()));
                Answer::Topics(self.topics.keys().cloned().collect(), settings.collect())
            }
            Request::ReadTopic { topic, .. } => {
                Answer::Topic(self.topics.get(topic).cloned(), self.delete_marks.contains(topic))
            }
            Request::WritePartition { fence, write } => self.write_partition(*fence, write),
            Request::ReadPartition { fence, write } => {
                if self.is_fenced(*fence) {
                    return Answer::EpochMoved;
                }
                Answer::State(self.state(&write.partition).map(|(_, state)| state.clone()))
            }
            Request::WriteAssignment { fence, write } => self.write_assignment(*fence, write),
            Request::ReadAssignment { fence, write } => {
                if self.is_fenced(*fence) {
                    return Answer::EpochMoved;
                }
                let topic = self.topics.get(&write.partition.topic);
                let of_life = topic.filter(|t| t.incarnation.topic_id == write.topic_id);
                Answer::Topic(of_life.cloned(), false)
            }
            Request::EndMove { fence, partition } => self.end_move(*fence, partition),
            Request::CreateTopic { fence, creation } => self.create_topic(*fence, creation),
            Request::ReadCreated { fence, creation } => {
                if self.is_fenced(*fence) {
                    return Answer::EpochMoved;
                }
                Answer::Topic(self.topics.get(&creation.name).cloned(), false)
            }
            Request::GrowTopic { fence, growth } => self.grow_topic(*fence, growth),
            Request::ReadGrown { fence, growth } => {
                if self.is_fenced(*fence) {
                    return Answer::EpochMoved;
                }
                Answer::Topic(self.topics.get(&growth.name).cloned(), false)
            }
            Request::MarkDelete { fence, deletion } => {
                if self.is_fenced(*fence) {
                    return Answer::EpochMoved;
                }
                if !self.topics.contains_key(&deletion.name) {
                    return Answer::NoNode;
                }
                self.zxid += 1;
                self.delete_marks.insert(deletion.name.clone());
                Answer::Done
            }
            Request::ReadConfig { fence, write } => {
                if self.is_fenced(*fence) {
                    return Answer::EpochMoved;
                }
                let name = match &write.entity {
                    ConfigEntity::Topic(name) => name,
                    ConfigEntity::Broker(broker) => {
                        let stored = self.broker_settings.get(broker).cloned();
                        return Answer::Config(Some(stored.unwrap_or_default()));
                    }
                };
                let topic = self.topics.get(name);
                let of_life = topic.filter(|t| Some(t.incarnation) == write.life);
                Answer::Config(of_life.map(|t| (t.overrides.clone(), t.config_version)))
            }
            Request::WriteConfig { fence, write, version } => {
                self.write_config(*fence, write, *version)
            }
            Request::RemoveTopic { fence, deletion } => {
                if self.is_fenced(*fence) {
                    return Answer::EpochMoved;
                }
                self.delete_marks.remove(&deletion.name);
                self.zxid += 1;
                match self.topics.remove(&deletion.name) {
                    Some(_) => Answer::Done,
                    None => Answer::NoNode,
                }
            }
        }
    }

    fn is_fenced(&self, fence: Fence) -> bool {
        fence.version != self.controller_epoch.1 && self.mutation != Some(Mutation::NoWriteChecks)
    }

    fn create_registration(
        &mut self,
        session: SessionId,
        broker: BrokerId,
        directory: DirectoryId,
        tail_lost: bool,
    ) -> Answer {
        if self.registrations.contains_key(&broker) {
            return Answer::NodeExists;
        }
        self.zxid += 1;
        let epoch = BrokerEpoch(self.zxid);
        let image = BrokerImage {
            epoch,
            host: "sim".to_owned(),
            port: 9092,
            control_address: format!("sim:{broker}"),
            rack: None,
            tail_lost,
            draining: self.mutation == Some(Mutation::DrainKeptById)
                && self.drained.contains(&broker),
        };
        let node = RegistrationNode { owner: session, epoch, version: 0, directory };
        self.registrations.insert(broker, Registration { node, image });
        self.fire_brokers();
        Answer::Created(epoch.0)
    }

    fn remove_registration(&mut self, broker: BrokerId) {
        self.zxid += 1;
        self.registrations.remove(&broker);
        for session in self.registration_watches.remove(&broker).unwrap_or_default() {
            self.fired.push(Watch::Registration(session));
        }
        self.fire_brokers();
    }

    fn race(
        &mut self,
        session: SessionId,
        broker: BrokerId,
        epoch: ControllerEpoch,
        version: i32,
    ) -> Answer {
        if self.controller_epoch.1 != version {
            return Answer::BadVersion;
        }
        if self.controller.is_some() {
            return Answer::NodeExists;
        }
        self.zxid += 1;
        self.elected = self.zxid;
        self.controller = Some(ControllerNode { owner: session, broker, czxid: self.zxid });
        self.controller_epoch = (epoch, version + 1);
        self.fire_controller();
        Answer::Done
    }

    fn write_partition(&mut self, fence: Fence, write: &PartitionWrite) -> Answer {
        if self.is_fenced(fence) {
            return Answer::EpochMoved;
        }
        let unchecked = self.mutation == Some(Mutation::NoWriteChecks);
        let Some(topic) = self.topics.get_mut(&write.partition.topic) else {
            return Answer::NoNode;
        };
        let Some((_, state)) = topic.partitions.get_mut(&write.partition.partition) else {
            return Answer::NoNode;
        };
        if state.partition_epoch != write.expected && !unchecked {
            return Answer::BadVersion;
        }
        let version = PartitionEpoch(state.partition_epoch.0 + 1);
        *state = write.state.clone();
        state.partition_epoch = version;
        self.zxid += 1;
        Answer::Done
    }

    fn write_assignment(&mut self, fence: Fence, write: &AssignmentWrite) -> Answer {
        if self.is_fenced(fence) {
            return Answer::EpochMoved;
        }
        let unchecked = self.mutation == Some(Mutation::NoWriteChecks);
        let Some(topic) = self.topics.get_mut(&write.partition.topic) else {
            return Answer::NoNode;
        };
        let Some((_, state)) = topic.partitions.get(&write.partition.partition) else {
            return Answer::NoNode;
        };
        let version = state.partition_epoch;
        let fits = topic.version == write.topic_version && version == write.expected;
        if !fits && !unchecked {
            return Answer::BadVersion;
        }
        topic.version += 1;
        for (index, (assignment, state)) in &mut topic.partitions {
            let written = write.assignments.get(index);
            assignment.clone_from(written.expect("the node names every partition"));
            if *index == write.partition.partition {
                let stays = state.leader == write.state.leader && state.isr == write.state.isr;
                if self.mutation == Some(Mutation::AssignmentKeepsVersion) && stays {
                    continue;
                }
                state.clone_from(&write.state);
                state.partition_epoch = PartitionEpoch(version.0 + 1);
            }
        }
        self.zxid += 1;
        Answer::Done
    }

    fn end_move(&mut self, fence: Fence, partition: &TopicPartition) -> Answer {
        if self.is_fenced(fence) {
            return Answer::EpochMoved;
        }
        let Some(topic) = self.topics.get_mut(&partition.topic) else { return Answer::NoNode };
        let Some((assignment, state)) = topic.partitions.get_mut(&partition.partition) else {
            return Answer::NoNode;
        };
        topic.version += 1;
        *assignment = assignment.arrived();
        state.partition_epoch = PartitionEpoch(state.partition_epoch.0 + 1);
        self.zxid += 1;
        Answer::Done
    }

    fn write_config(&mut self, fence: Fence, write: &ConfigWrite, version: i32) -> Answer {
        if self.is_fenced(fence) {
            return Answer::EpochMoved;
        }
        let unchecked = self.mutation == Some(Mutation::NoWriteChecks);
        let Some(overrides) = &write.overrides else { return Answer::Done };
        let defaults = self.topic_defaults();
        let name = match &write.entity {
            ConfigEntity::Topic(name) => name,
            ConfigEntity::Broker(broker) => {
                let stored = self.broker_settings.entry(*broker).or_default();
                if stored.1 != version && !unchecked {
                    return Answer::BadVersion;
                }
                *stored = (overrides.clone(), stored.1 + 1);
                self.zxid += 1;
                self.recompute_configs();
                return Answer::Done;
            }
        };
        let topic = self.topics.get_mut(name);
        let Some(topic) = topic.filter(|t| Some(t.incarnation) == write.life) else {
            return Answer::NoNode;
        };
        if topic.config_version != version && !unchecked {
            return Answer::BadVersion;
        }
        topic.overrides.clone_from(overrides);
        topic.config_version += 1;
        topic.config_changes += 1;
        topic.config = tolerant(Naming::Topic, &defaults, overrides).0;
        self.zxid += 1;
        Answer::Done
    }

    /// What holds for topics that do not say.
    fn topic_defaults(&self) -> TopicConfig {
        match self.broker_settings.get(&None) {
            Some((settings, _)) => tolerant(Naming::Broker, &self.statics, settings).0,
            None => self.statics,
        }
    }

    fn recompute_configs(&mut self) {
        let defaults = self.topic_defaults();
        for topic in self.topics.values_mut() {
            let config = tolerant(Naming::Topic, &defaults, &topic.overrides).0;
            if config != topic.config {
                topic.config = config;
                topic.config_changes += 1;
            }
        }
    }

    fn create_topic(&mut self, fence: Fence, creation: &Creation) -> Answer {
        if self.is_fenced(fence) {
            return Answer::EpochMoved;
        }
        if self.topics.contains_key(&creation.name) {
            return Answer::NodeExists;
        }
        self.zxid += 1;
        let czxid = self.zxid;
        let node = TopicNode {
            incarnation: Incarnation { topic_id: creation.topic_id, czxid },
            config: tolerant(Naming::Topic, &self.topic_defaults(), &creation.overrides).0,
            overrides: creation.overrides.clone(),
            config_version: 0,
            config_changes: 0,
            version: 0,
            partitions: creation
                .partitions
                .iter()
                .map(|(index, (replicas, state))| {
                    (*index, (Assignment::settled(replicas.clone()), state.clone()))
                })
                .collect(),
        };
        self.topics.insert(creation.name.clone(), node);
        Answer::Created(czxid)
    }

    fn grow_topic(&mut self, fence: Fence, growth: &Growth) -> Answer {
        if self.is_fenced(fence) {
            return Answer::EpochMoved;
        }
        let topic = self.topics.get_mut(&growth.name);
        let Some(topic) = topic.filter(|t| t.incarnation == growth.incarnation) else {
            return Answer::NoNode;
        };
        if topic.partitions.len() as i32 != growth.first {
            return Answer::BadVersion;
        }
        topic.version += 1;
        let settled = growth.partitions.iter().map(|(index, (replicas, state))| {
            (*index, (Assignment::settled(replicas.clone()), state.clone()))
        });
        topic.partitions.extend(settled);
        self.zxid += 1;
        Answer::Done
    }

    fn fire_controller(&mut self) {
        for session in std::mem::take(&mut self.controller_watches) {
            self.fired.push(Watch::Controller(session));
        }
    }

    fn fire_brokers(&mut self) {
        for session in std::mem::take(&mut self.broker_watches) {
            self.fired.push(Watch::Brokers(session));
        }
    }
}
