//! Draining, controlled shutdown and elections on demand (R25, R26, R39): the broker's end, the controller's end, the operator.

use barnabas_controller_core::{
    ControllerEvent, DrainProgress, ElectLeaders, ElectLeadersAnswer, ElectPartition, Election,
    RequestId,
};
use barnabas_types::{
    BrokerEpoch, BrokerId, BrokerImage, Condition, PartitionEpoch, TopicPartition,
};

use super::term::request_id;
use super::{World, id_of, ix_of};
use crate::coverage::Reached;
use crate::happening::{Happening, Input, Ix};
use crate::mutation::Mutation;
use crate::process::Drain;
use crate::store::{Answer, Request};

/// Pause before a draining broker asks again.
const ASK_AGAIN_MS: u64 = 15;
/// How long operators think about an unclean election.
const OPERATOR_HESITATES_MS: u64 = 100;

impl World {
    /// An operator drains a broker, or undrains one that is drained; a shutdown is left alone.
    pub(crate) fn drain_or_undrain(&mut self) {
        let Some(b) = self.some_running() else { return };
        match &self.processes[b].drain {
            Some(drain) if drain.shutdown => {}
            Some(drain) if drain.wanted => self.begin_drain(b, false, false),
            _ => self.begin_drain(b, true, false),
        }
    }

    /// SIGTERM: the broker drains, then stops; after a while in any case, unless shutdowns are all that happens.
    pub fn shut_down(&mut self, b: Ix) {
        let process = &self.processes[b];
        if !process.up || process.drain.as_ref().is_some_and(|drain| drain.shutdown) {
            return;
        }
        self.reach(Reached::Shutdown);
        self.begin_drain(b, true, true);
        if !self.swarm.only_shutdowns {
            let patience = self.choice.range(20, 600);
            self.later(b, patience, Input::ShutdownOver);
        }
    }

    fn begin_drain(&mut self, b: Ix, wanted: bool, shutdown: bool) {
        self.note(Some(b), "drain", || format!("{wanted}, to stop: {shutdown}"));
        self.processes[b].drain = Some(Drain { wanted, shutdown, marked: None });
        self.later(b, 0, Input::DrainNow);
    }

    /// The fault phase is over: nobody stops any more, nobody stays drained.
    pub(crate) fn end_drains(&mut self) {
        for b in 0..self.swarm.brokers {
            if self.processes[b].up && self.processes[b].drain.is_some() {
                self.begin_drain(b, false, false);
            }
        }
    }

    /// The broker's own loop: marks its registration, then asks the controller.
    pub(crate) fn drain_now(&mut self, b: Ix) {
        let process = &self.processes[b];
        let Some(drain) = process.drain.clone() else { return };
        let epoch = process.broker_epoch;
        self.later(b, ASK_AGAIN_MS, Input::DrainNow);
        let Some(epoch) = epoch else { return };
        if drain.marked != Some(epoch) {
            let (broker, draining) = (id_of(b), drain.wanted);
            self.ask_store(b, Request::MarkDraining { broker, epoch, draining });
            return;
        }
        let controller = self.processes[b].image.controller.map(|(id, _)| ix_of(id));
        let life = self.processes[b].life;
        if let Some(to) = controller {
            let ask = Input::DrainAsk { life, broker_epoch: epoch, draining: drain.wanted };
            self.send(b, to, None, ask);
        }
    }

    /// The registration was marked, or not.
    pub(crate) fn marked_draining(
        &mut self,
        b: Ix,
        (epoch, draining): (BrokerEpoch, bool),
        answer: Option<&Answer>,
    ) {
        let done = matches!(answer, Some(Answer::Done));
        if let Some(drain) = &mut self.processes[b].drain
            && done
            && drain.wanted == draining
        {
            drain.marked = Some(epoch);
        }
    }

    /// A broker asks this process, which may be no controller, how far its drain has come.
    pub(crate) fn drain_asked(
        &mut self,
        b: Ix,
        from: Ix,
        life: u32,
        (broker_epoch, draining): (BrokerEpoch, bool),
    ) {
        if !self.processes[b].acts_as_controller() {
            return;
        }
        let broker = id_of(from);
        let Some(term) = &mut self.processes[b].term else { return };
        term.told_of_drains.insert((broker, broker_epoch));
        if !term.controller.knows_draining(broker, broker_epoch, draining) {
            // It asks again, and is known then.
            return self.brokers_changed(b);
        }
        let request = request_id(term);
        term.drainers.insert(request, (from, life, broker_epoch, draining));
        let event = ControllerEvent::Drain { request, broker, broker_epoch, draining };
        self.step_controller(b, event);
    }

    /// The controller's answer to a drain goes out.
    pub(crate) fn drain_answered(
        &mut self,
        b: Ix,
        request: RequestId,
        answer: Result<DrainProgress, Condition>,
    ) {
        let Some(term) = &mut self.processes[b].term else { return };
        let Some((to, life, broker_epoch, draining)) = term.drainers.remove(&request) else {
            return;
        };
        let mut may_stop = answer.as_ref().is_ok_and(|progress| progress.may_stop);
        if answer.as_ref().is_ok_and(|progress| progress.partitions > 0) {
            self.reach(Reached::DrainWaited);
            may_stop |= self.is_mutated(Mutation::StopGrantedEarly);
        }
        let Some(term) = &self.processes[b].term else { return };
        if may_stop {
            // Only the controller that is in office may say so: another one could have admitted the broker since.
            let fence = term.fence;
            let confirm = Request::ConfirmGrant { fence, to, life, broker_epoch };
            return self.ask_as_controller(b, confirm);
        }
        let refused = answer.is_err();
        let told = Input::DrainAnswer { broker_epoch, draining, may_stop: false, refused };
        self.send(b, to, Some(life), told);
    }

    /// The controller was still in office when it said that a broker may stop.
    pub(crate) fn grant_confirmed(&mut self, b: Ix, to: Ix, life: u32, broker_epoch: BrokerEpoch) {
        let granted =
            Input::DrainAnswer { broker_epoch, draining: true, may_stop: true, refused: false };
        self.send(b, to, Some(life), granted);
    }

    /// From this moment on D holds of the broker, unless it has registered again or was undrained meanwhile.
    pub(crate) fn grant_begins(&mut self, to: Ix, broker_epoch: BrokerEpoch) {
        let registration = self.store.registrations.get(&id_of(to));
        if registration.is_some_and(|r| r.node.epoch == broker_epoch && r.image.draining) {
            self.checkers.may_stop(id_of(to), broker_epoch);
            self.check_granted();
        }
    }

    /// The draining broker hears how far it has come.
    pub(crate) fn drain_progressed(
        &mut self,
        b: Ix,
        (broker_epoch, draining): (BrokerEpoch, bool),
        may_stop: bool,
        refused: bool,
    ) {
        let process = &mut self.processes[b];
        let present = process.broker_epoch;
        let Some(drain) = process.drain.as_mut().filter(|drain| drain.wanted == draining) else {
            return;
        };
        if refused {
            drain.marked = None;
        }
        let (shutdown, wanted) = (drain.shutdown, drain.wanted);
        if !wanted && !refused {
            process.drain = None;
        } else if may_stop && shutdown && present == Some(broker_epoch) {
            self.reach(Reached::StopGranted);
            // Flushing takes its time; meanwhile nothing may count on this broker again.
            let delay = self.choice.range(1, 60);
            self.later(b, delay, Input::StopNow);
        }
    }

    /// The patience with a shutdown is over.
    pub(crate) fn shutdown_over(&mut self, b: Ix) {
        if self.processes[b].drain.as_ref().is_some_and(|drain| drain.shutdown) {
            self.reach(Reached::StoppedAnyway);
            self.stop_now(b);
        }
    }

    /// Flushes, writes the clean marker, closes the session, ends the process (R26d); it starts again later.
    pub(crate) fn stop_now(&mut self, b: Ix) {
        if self.processes[b].drain.as_ref().is_none_or(|drain| !drain.shutdown) {
            return;
        }
        let whole = self.processes[b].slots.values().all(|slot| !slot.replica.is_fenced());
        let disk = &mut self.disks[b];
        if whole && !disk.sync_fails {
            for directory in disk.directories.values_mut() {
                directory.flushed(directory.log_end());
            }
            disk.clean = true;
        }
        let session = self.processes[b].client.session;
        self.end_process(b, "stop");
        let down = self.choice.range(1, self.swarm.down_ms_max);
        self.queue.after(down, Happening::Restart { broker: b });
        if let Some(session) = session {
            self.expire(session);
        }
    }

    /// An operator wants another leader for some partition.
    pub(crate) fn ask_for_election(&mut self, unclean: bool) {
        let mut all = self.all_partitions();
        if unclean {
            // Nobody asks for one where somebody leads.
            all.retain(|at| self.store.state(at).is_some_and(|(_, state)| state.leader.is_none()));
        }
        let Some(partition) = self.some_of(&all) else { return };
        let Some(to) = self.some_controller() else { return };
        let Some((_, state)) = self.store.state(&partition) else { return };
        let expected = unclean.then_some(state.partition_epoch);
        // Who gives records up hesitates: the partition may be another one by then.
        let after_ms = if unclean { OPERATOR_HESITATES_MS } else { 3 };
        let input = Input::Elect { partition, unclean: expected };
        self.queue.after(after_ms, Happening::Input { to, life: None, from: None, input });
    }

    /// A request for an election reaches a process. Before an unclean one the registrations are read again (R39).
    pub(crate) fn election_asked(
        &mut self,
        b: Ix,
        partition: TopicPartition,
        unclean: Option<PartitionEpoch>,
    ) {
        if !self.processes[b].acts_as_controller() {
            return;
        }
        let Some(term) = &mut self.processes[b].term else { return };
        let request = request_id(term);
        let election = match unclean {
            Some(_) => Election::Unclean { to: None },
            None => Election::Preferred,
        };
        if let Some(shown) = unclean {
            self.shown.insert((partition.clone(), shown));
        }
        let expected = unclean.filter(|_| !self.is_mutated(Mutation::UncleanOfAnyVersion));
        let partitions = vec![ElectPartition { partition, expected }];
        let elect = ElectLeaders { election, partitions };
        let event = ControllerEvent::ElectLeaders { request, elect };
        if unclean.is_some() {
            let Some(term) = &mut self.processes[b].term else { return };
            term.after_brokers.push(event);
            self.brokers_changed(b);
        } else {
            self.step_controller(b, event);
        }
    }

    pub(crate) fn elections_answered(&mut self, answers: &ElectLeadersAnswer) {
        for (_, answer) in answers {
            if answer.is_ok() {
                self.reach(Reached::ElectedOnDemand);
            }
        }
    }

    /// What a controller reads of the registrations, with the planted bugs: only what it was told itself, or nothing.
    pub(crate) fn misread_draining(
        &self,
        b: Ix,
        brokers: &mut std::collections::BTreeMap<BrokerId, BrokerImage>,
    ) {
        if !self.is_mutated(Mutation::DrainInMemoryOnly) {
            return;
        }
        let told = self.processes[b].term.as_ref().map(|term| &term.told_of_drains);
        for (id, image) in brokers {
            image.draining &= told.is_some_and(|told| told.contains(&(*id, image.epoch)));
        }
    }

    /// The planted bug: a proposal is judged as if nobody were draining.
    pub(crate) fn forget_draining_for(&mut self, b: Ix, event: ControllerEvent) {
        let Some(term) = &self.processes[b].term else { return };
        let brokers = term.controller.image().brokers.clone();
        let mut forgetful = brokers.clone();
        forgetful.values_mut().for_each(|image| image.draining = false);
        self.step_controller(b, ControllerEvent::Brokers(forgetful));
        self.step_controller(b, event);
        self.step_controller(b, ControllerEvent::Brokers(brokers));
    }

    /// D for everything that is stored, after a broker was told that it may stop.
    pub(crate) fn check_granted(&mut self) {
        let mut states = Vec::new();
        for (name, topic) in &self.store.topics {
            for (index, (_, state)) in &topic.partitions {
                let at = TopicPartition { topic: name.clone(), partition: *index };
                states.push((at, state.clone()));
            }
        }
        for (at, state) in states {
            self.checkers.without_stopped(&at, &state);
        }
    }

    /// AV in runs where shutdowns are all that happens.
    pub(crate) fn check_availability(&mut self) {
        if !self.swarm.only_shutdowns || self.healed {
            return;
        }
        let registrations = &self.store.registrations;
        let is_live = |id: BrokerId, entry: BrokerEpoch| {
            registrations.get(&id).is_some_and(|r| r.node.epoch == entry)
        };
        let mut broken = None;
        for (name, topic) in &self.store.topics {
            let min = usize::try_from(self.swarm.config.min_insync_replicas).unwrap_or(1);
            for (index, (_, state)) in &topic.partitions {
                let live = state.isr.iter().filter(|m| is_live(m.0, m.1));
                let led = state.leader.is_some_and(|leader| {
                    state.isr_epoch_of(leader).is_some_and(|entry| is_live(leader, entry))
                });
                if !led || live.count() < min {
                    broken = Some(format!("{name}-{index}: {state:?}"));
                }
            }
        }
        if let Some(text) = broken {
            self.checkers.broken("AV", text);
        }
    }
}
