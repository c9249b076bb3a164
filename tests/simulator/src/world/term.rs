//! The controller's shell: loads the term, feeds the core, performs its effects in their order.

use std::collections::{BTreeMap, BTreeSet};

use barnabas_controller_core::{
    AlterPartition, CandidateEvent, Controller, ControllerEvent, CreatePartitions, CreateTopic,
    Defaults, Effects, Election, LoadedPartition, LoadedTopic, RequestId, Snapshot,
};
use barnabas_types::{Condition, ControllerEpoch, TopicConfig, TopicId, TopicName};

use super::{World, id_of};
use crate::coverage::Reached;
use crate::happening::{Input, Ix};
use crate::mutation::Mutation;
use crate::process::{Asker, Loading, Term};
use crate::store::{Answer, Fence, Request, TopicNode};

impl World {
    /// The effect `BeginTerm`: reads everything, then steps `Loaded`.
    pub(crate) fn begin_term(&mut self, b: Ix, epoch: ControllerEpoch, version: i32) {
        let Some(session) = self.processes[b].client.session else { return };
        self.note(Some(b), "begins term", || format!("controller epoch {epoch}"));
        if self.processes.iter().enumerate().any(|(o, p)| o != b && p.up && p.term.is_some()) {
            self.reach(Reached::TwoTerms);
        }
        let defaults = Defaults {
            num_partitions: 1,
            default_replication_factor: 3,
            topic: self.controller_config(self.swarm.config),
        };
        self.processes[b].term = Some(Term {
            controller: Controller::new(id_of(b), epoch, defaults),
            fence: Fence { epoch, version },
            session,
            loading: Some(Loading::default()),
            brokers_dirty: false,
            brokers_reading: false,
            paused: false,
            deferred: Vec::new(),
            brokers: BTreeMap::new(),
            streams: BTreeMap::new(),
            askers: BTreeMap::new(),
            switches: BTreeMap::new(),
            drainers: BTreeMap::new(),
            after_brokers: Vec::new(),
            half_ended: BTreeSet::new(),
            told_of_drains: BTreeSet::new(),
            twisted: BTreeSet::new(),
            requests: 0,
        });
        self.read_brokers(b);
    }

    pub(crate) fn end_term(&mut self, b: Ix) {
        if self.processes[b].term.take().is_some() {
            self.note(Some(b), "ends term", String::new);
        }
    }

    /// The effect `Resume`: what was held back goes on.
    pub(crate) fn resume_term(&mut self, b: Ix) {
        let Some(term) = &mut self.processes[b].term else { return };
        term.paused = false;
        for request in std::mem::take(&mut term.deferred) {
            self.ask_store(b, request);
        }
        // Watches may have fired while nobody listened: read the registrations again.
        self.brokers_changed(b);
        self.pump(b);
    }

    /// Sends a request of the term, or holds it back while disconnected.
    pub(crate) fn ask_as_controller(&mut self, b: Ix, request: Request) {
        let Some(term) = &mut self.processes[b].term else { return };
        if term.paused {
            term.deferred.push(request);
        } else {
            self.ask_store(b, request);
        }
    }

    /// `/brokers/ids` changed: read it whole, now or when the present read is done.
    pub(crate) fn brokers_changed(&mut self, b: Ix) {
        let Some(term) = &mut self.processes[b].term else { return };
        if term.brokers_reading || term.loading.is_some() {
            term.brokers_dirty = true;
        } else {
            self.read_brokers(b);
        }
    }

    fn read_brokers(&mut self, b: Ix) {
        let Some(term) = &mut self.processes[b].term else { return };
        term.brokers_reading = true;
        term.brokers_dirty = false;
        let request = Request::ReadBrokers { term: term.fence.epoch };
        self.ask_as_controller(b, request);
    }

    /// A request of a term ended.
    pub(crate) fn term_said(&mut self, b: Ix, request: Request, answer: Option<Answer>) {
        let Some(term) = &self.processes[b].term else { return };
        let mine = term.fence.epoch;
        if request.term() != Some(mine) {
            return;
        }
        match (request, answer) {
            // Reads change nothing: ask again.
            (
                request @ (Request::ReadBrokers { .. }
                | Request::ListTopics { .. }
                | Request::ReadTopic { .. }),
                None,
            ) => self.ask_as_controller(b, request),
            (Request::ConfirmGrant { fence, to, life, broker_epoch }, answer) => {
                if matches!(answer, Some(Answer::Epoch { version, .. }) if version == fence.version)
                {
                    self.grant_confirmed(b, to, life, broker_epoch);
                }
            }
            (Request::ReadBrokers { .. }, Some(Answer::Brokers(brokers))) => {
                self.brokers_read(b, brokers);
            }
            (Request::ListTopics { .. }, Some(Answer::Topics(names, settings))) => {
                if let Some(loading) = self.loading(b) {
                    loading.names = names;
                    loading.broker_settings = settings;
                }
                self.load_next(b);
            }
            (Request::ReadTopic { topic, .. }, Some(Answer::Topic(node, deleting))) => {
                let loaded = node.map(|node| self.loaded(node, deleting));
                if let Some(loading) = self.loading(b)
                    && let Some(loaded) = loaded
                {
                    loading.topics.insert(topic, loaded);
                }
                self.load_next(b);
            }
            (request, answer) => self.write_ended(b, request, answer),
        }
    }

    fn loading(&mut self, b: Ix) -> Option<&mut Loading> {
        self.processes[b].term.as_mut()?.loading.as_mut()
    }

    fn brokers_read(
        &mut self,
        b: Ix,
        mut brokers: BTreeMap<barnabas_types::BrokerId, barnabas_types::BrokerImage>,
    ) {
        self.misread_draining(b, &mut brokers);
        let Some(term) = &mut self.processes[b].term else { return };
        term.brokers_reading = false;
        term.brokers = brokers.iter().map(|(id, image)| (*id, image.epoch)).collect();
        let epoch = term.fence.epoch;
        if let Some(loading) = &mut term.loading {
            loading.brokers = brokers;
            self.ask_as_controller(b, Request::ListTopics { term: epoch });
            return;
        }
        let again = term.brokers_dirty;
        let waiting = std::mem::take(&mut term.after_brokers);
        self.step_controller(b, ControllerEvent::Brokers(brokers));
        for event in waiting {
            self.step_controller(b, event);
        }
        self.pump(b);
        if again {
            self.brokers_changed(b);
        }
    }

    fn load_next(&mut self, b: Ix) {
        let Some(term) = &mut self.processes[b].term else { return };
        let epoch = term.fence.epoch;
        let Some(loading) = &mut term.loading else { return };
        if let Some(topic) = loading.names.pop() {
            self.ask_as_controller(b, Request::ReadTopic { term: epoch, topic });
            return;
        }
        let Some(Loading { brokers, topics, broker_settings, .. }) = term.loading.take() else {
            return;
        };
        let dirty = term.brokers_dirty;
        let mut snapshot = Snapshot { brokers, topics, broker_settings, ..Snapshot::default() };
        if self.is_mutated(Mutation::NoIsrBrokerEpochs) {
            forget_isr_epochs(&mut snapshot);
        }
        self.note(Some(b), "loaded", || format!("{} topics", snapshot.topics.len()));
        self.step_controller(b, ControllerEvent::Loaded(snapshot));
        if dirty {
            self.brokers_changed(b);
        }
        self.pump(b);
    }

    fn loaded(&self, node: TopicNode, deleting: bool) -> LoadedTopic {
        let partitions = node
            .partitions
            .into_iter()
            .map(|(index, (assignment, state))| {
                (index, LoadedPartition { assignment, state: Some(state) })
            })
            .collect();
        LoadedTopic {
            incarnation: node.incarnation,
            version: node.version,
            overrides: node.overrides,
            partitions,
            deleting,
        }
    }

    fn controller_config(&self, mut config: TopicConfig) -> TopicConfig {
        if self.is_mutated(Mutation::DrainWithoutWait) {
            config.min_insync_replicas = 1;
        }
        if self.is_mutated(Mutation::UncleanThoughForbidden) {
            config.unclean_leader_election = true;
        }
        config
    }

    /// Steps the core and performs its effects in their order.
    pub(crate) fn step_controller(&mut self, b: Ix, event: ControllerEvent) {
        let now = self.now_of(b);
        let mut effects = Effects::default();
        let Some(term) = &mut self.processes[b].term else { return };
        let demanded = matches!(
            &event,
            ControllerEvent::ElectLeaders { elect, .. } if elect.election != Election::Preferred
        );
        let suspect = match &event {
            ControllerEvent::BrokerSuspected { broker, .. } => Some(*broker),
            _ => self.suspecting,
        };
        term.controller.step(now, event, &mut effects);
        if let Some(suspect) = suspect {
            self.suspicion_decided(b, suspect, &mut effects.partition_writes);
        }
        if demanded {
            for write in &effects.partition_writes {
                let built_on = (write.partition.clone(), write.expected);
                let outside = |s: &barnabas_types::PartitionState| {
                    write.state.leader.is_some_and(|leader| !s.in_isr(leader))
                };
                let before = self.store.state(&write.partition).map(|(_, state)| state);
                if before.is_some_and(outside) && !self.shown.contains(&built_on) {
                    let text = format!("{built_on:?}: elected uncleanly, and no operator saw that");
                    self.checkers.broken("R39", text);
                }
                if let Some((topic, _)) = self.store.state(&write.partition) {
                    let czxid = topic.incarnation.czxid;
                    let of = (write.partition.clone(), czxid, write.state.leader_epoch);
                    self.demanded.insert(of);
                }
            }
        }
        for write in effects.partition_writes {
            self.write_partition(b, write);
        }
        for write in effects.assignment_writes {
            self.write_assignment(b, write);
        }
        for write in effects.topic_writes {
            self.write_topic(b, write);
        }
        if effects.image_changed {
            self.pump(b);
        }
        for (request, answer) in effects.alter_answers {
            if answer.is_err() {
                self.reach(Reached::ProposalRefused);
            }
            let Some(term) = &mut self.processes[b].term else { continue };
            let Some(asker) = term.askers.remove(&request) else { continue };
            let Asker { from, life, correlation, partition, proposal } = asker;
            let input = Input::AlterAnswer { partition, correlation, proposal, answer };
            self.send(b, from, Some(life), input);
        }
        for write in effects.config_writes {
            self.write_config(b, write);
        }
        for (_, answer) in effects.failed_answers {
            if answer.is_ok() {
                self.reach(Reached::FailureReported);
            }
        }
        for (request, answer) in effects.config_answers {
            self.switch_answered(b, request, answer);
        }
        let awaited = effects.confirmations_awaited.into_iter();
        for request in awaited.chain(effects.announcements_awaited) {
            self.await_confirmation(b, request);
        }
        for (request, answer) in effects.drain_answers {
            self.drain_answered(b, request, answer);
        }
        for (_, answers) in effects.elect_answers {
            self.elections_answered(&answers);
        }
        for (_, answer) in effects.reassign_answers {
            self.note(Some(b), "move answer", || format!("{answer:?}"));
        }
        for (_, answer) in effects.create_answers {
            self.note(Some(b), "create answer", || format!("{answer:?}"));
        }
        for (_, answer) in effects.partitions_answers {
            self.note(Some(b), "grow answer", || format!("{answer:?}"));
        }
        for (_, answer) in effects.delete_answers {
            self.note(Some(b), "delete answer", || format!("{answer:?}"));
        }
        for note in effects.notes {
            self.note(Some(b), "controller", || {
                let at = note.partition.map(|p| p.to_string()).unwrap_or_default();
                format!("{at} {}", note.text)
            });
        }
        if effects.resign {
            self.note(Some(b), "resigns", String::new);
            let session = self.processes[b].term.take().map(|t| t.session);
            if let Some(session) = session {
                self.candidate(b, CandidateEvent::Resigned { session });
            }
        }
    }

    /// A proposal reaches this process, which may be no controller.
    pub(crate) fn alter_asked(
        &mut self,
        b: Ix,
        from: Ix,
        life: u32,
        correlation: u64,
        mut proposal: AlterPartition,
    ) {
        let asked = barnabas_replica::IsrProposal {
            incarnation: proposal.incarnation,
            leader_epoch: proposal.leader_epoch,
            partition_epoch: proposal.partition_epoch,
            isr: proposal.isr.clone(),
        };
        let partition = proposal.partition.clone();
        if !self.processes[b].acts_as_controller() {
            let answer = Err(Condition::NotController);
            let input = Input::AlterAnswer { partition, correlation, proposal: asked, answer };
            self.send(b, from, Some(life), input);
            return;
        }
        let unchecked = self.is_mutated(Mutation::NoMemberEpochCheck);
        let Some(term) = &mut self.processes[b].term else { return };
        if unchecked {
            for (id, epoch) in &mut proposal.isr {
                *epoch = term.brokers.get(id).copied().unwrap_or(*epoch);
            }
        }
        let request = request_id(term);
        term.askers.insert(request, Asker { from, life, correlation, partition, proposal: asked });
        let event = ControllerEvent::AlterPartition { request, proposal };
        if self.is_mutated(Mutation::DrainingAdmitted) {
            self.forget_draining_for(b, event);
        } else {
            self.step_controller(b, event);
        }
    }

    pub(crate) fn create_asked(&mut self, b: Ix, name: TopicName, topic_id: TopicId) {
        let partitions = Some(self.swarm.partitions);
        let Some(term) = &mut self.processes[b].term else { return };
        let request = request_id(term);
        let topic = CreateTopic {
            name,
            topic_id,
            partitions,
            replication_factor: Some(3),
            assignment: BTreeMap::new(),
            overrides: BTreeMap::new(),
            validate_only: false,
        };
        self.step_controller(b, ControllerEvent::CreateTopic { request, topic });
    }

    pub(crate) fn partition_asked(&mut self, b: Ix, name: TopicName) {
        let Some(term) = &mut self.processes[b].term else { return };
        let known = term.controller.image().topics.get(&name).map_or(0, |t| t.partitions.len());
        let request = request_id(term);
        let total = known as i32 + 1;
        let create = CreatePartitions { name, total, assignment: Vec::new(), validate_only: false };
        self.step_controller(b, ControllerEvent::CreatePartitions { request, create });
    }

    pub(crate) fn delete_asked(&mut self, b: Ix, topic: TopicName) {
        let Some(term) = &mut self.processes[b].term else { return };
        let request = request_id(term);
        self.step_controller(b, ControllerEvent::DeleteTopic { request, topic });
    }
}

pub(super) fn request_id(term: &mut Term) -> RequestId {
    term.requests += 1;
    RequestId(term.requests)
}

/// The planted bug: takes the registrations as they are for those under which the members were admitted.
fn forget_isr_epochs(snapshot: &mut Snapshot) {
    for topic in snapshot.topics.values_mut() {
        for partition in topic.partitions.values_mut() {
            for (id, epoch) in partition.state.iter_mut().flat_map(|state| &mut state.isr) {
                if let Some(image) = snapshot.brokers.get(id) {
                    *epoch = image.epoch;
                }
            }
        }
    }
}
