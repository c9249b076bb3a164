//! The candidate's shell: its effects become requests, the answers become its events.

use barnabas_controller_core::{CandidateEffect, CandidateEvent, SessionId};
use barnabas_types::BrokerEpoch;

use super::{World, id_of, ix_of};
use crate::coverage::Reached;
use crate::happening::{Input, Ix};
use crate::mutation::Mutation;
use crate::store::{Answer, Request};

/// When a broker that follows a controller first looks whether that is there.
const FIRST_DIAL_MS: u64 = 10;

impl World {
    /// Steps the candidate and performs what it wants, in order.
    pub(crate) fn candidate(&mut self, b: Ix, event: CandidateEvent) {
        let mut effects = Vec::new();
        self.processes[b].candidate.step(event, &mut effects);
        self.perform_candidate(b, effects);
    }

    pub(crate) fn start_candidate(&mut self, b: Ix) {
        let mut effects = Vec::new();
        self.processes[b].candidate.start(&mut effects);
        self.perform_candidate(b, effects);
    }

    fn perform_candidate(&mut self, b: Ix, effects: Vec<CandidateEffect>) {
        let broker = id_of(b);
        for effect in effects {
            match effect {
                CandidateEffect::Connect => self.connect(b),
                CandidateEffect::CreateRegistration => {
                    let directory = self.disks[b].directory_id;
                    let tail_lost =
                        self.disks[b].tail_lost && !self.is_mutated(Mutation::TailLossUnreported);
                    self.processes[b].marked = self.disks[b].tail_lost;
                    let request = Request::CreateRegistration { broker, directory, tail_lost };
                    self.ask_store(b, request);
                }
                CandidateEffect::ReadRegistration => {
                    self.ask_store(b, Request::ReadRegistration { broker });
                }
                CandidateEffect::DeleteRegistration { version } => {
                    self.ask_store(b, Request::DeleteRegistration { broker, version });
                }
                CandidateEffect::AwaitRegistrationGone => {
                    self.ask_store(b, Request::WatchRegistration { broker });
                    if let Some(session) = self.processes[b].client.session {
                        self.later(b, 200, Input::AwaitedEnough { session });
                    }
                }
                CandidateEffect::ReadEpoch => self.ask_store(b, Request::ReadEpoch),
                CandidateEffect::ReadController => self.ask_store(b, Request::ReadController),
                CandidateEffect::DeleteController { version } => {
                    self.ask_store(b, Request::DeleteController { version });
                }
                CandidateEffect::Race { epoch, version } => {
                    self.ask_store(b, Request::Race { broker, epoch, version });
                }
                CandidateEffect::Registered { epoch, controller_epoch_min } => {
                    self.note(Some(b), "registered", || {
                        format!("broker epoch {epoch}, controller epoch min {controller_epoch_min}")
                    });
                    if self.is_mutated(Mutation::MarkClearedByRegistering) {
                        self.disks[b].tail_lost = false;
                    }
                    self.registered(b, epoch, controller_epoch_min);
                    // A delete that an earlier incarnation sent may still land: the own node is watched, too.
                    self.ask_store(b, Request::WatchRegistration { broker });
                }
                CandidateEffect::Unregistered => self.note(Some(b), "unregistered", String::new),
                CandidateEffect::BeginTerm { epoch, version } => self.begin_term(b, epoch, version),
                CandidateEffect::EndTerm => self.end_term(b),
                CandidateEffect::Follow { controller, epoch } => {
                    self.note(Some(b), "follows", || format!("controller {controller}, {epoch}"));
                    if self.swarm.suspicion {
                        self.later(b, FIRST_DIAL_MS, Input::Dial { to: ix_of(controller) });
                    }
                }
                CandidateEffect::Pause => {
                    if let Some(term) = &mut self.processes[b].term {
                        term.paused = true;
                    }
                }
                CandidateEffect::Resume => self.resume_term(b),
                CandidateEffect::Note(text) => self.note(Some(b), "candidate", || text),
            }
        }
    }

    /// A request of this process ended; `None`: with an unknown outcome.
    pub(crate) fn store_said(
        &mut self,
        b: Ix,
        session: SessionId,
        request: Request,
        answer: Option<Answer>,
    ) {
        if request.term().is_some() {
            return self.term_said(b, request, answer);
        }
        if let Request::MarkDraining { epoch, draining, .. } = request {
            return self.marked_draining(b, (epoch, draining), answer.as_ref());
        }
        let event = match (&request, answer) {
            (Request::WatchRegistration { .. }, None) => return self.ask_store(b, request),
            (Request::WatchRegistration { .. }, Some(Answer::NoNode)) => {
                CandidateEvent::RegistrationGone { session }
            }
            (Request::WatchRegistration { .. }, Some(_)) => return,
            (_, None) => CandidateEvent::OutcomeUnknown { session },
            (Request::CreateRegistration { .. }, Some(Answer::Created(czxid))) => {
                CandidateEvent::RegistrationCreated { session, epoch: BrokerEpoch(czxid) }
            }
            (Request::CreateRegistration { .. }, Some(_)) => {
                CandidateEvent::RegistrationExists { session }
            }
            (Request::ReadRegistration { .. }, Some(Answer::Registration(node))) => {
                CandidateEvent::RegistrationRead { session, node }
            }
            (Request::DeleteRegistration { .. }, Some(_)) => {
                CandidateEvent::RegistrationDeleteTried { session }
            }
            (Request::DeleteController { .. }, Some(_)) => {
                CandidateEvent::ControllerDeleteTried { session }
            }
            (Request::ReadEpoch, Some(Answer::Epoch { epoch, version, .. })) => {
                CandidateEvent::EpochRead { session, epoch, version }
            }
            (Request::ReadController, Some(Answer::Controller(controller))) => {
                return self.ask_store(b, Request::ReadEpochAfter { controller });
            }
            (
                Request::ReadEpochAfter { controller },
                Some(Answer::Epoch { epoch, version, mzxid }),
            ) => {
                let node = *controller;
                CandidateEvent::ControllerRead { session, node, epoch, version, mzxid }
            }
            (Request::Race { epoch, version, .. }, Some(Answer::Done)) => {
                if epoch.0 > 1 {
                    self.reach(Reached::ControllerChange);
                }
                CandidateEvent::RaceWon { session, epoch: *epoch, version: version + 1 }
            }
            (Request::Race { .. }, Some(_)) => CandidateEvent::RaceLost { session },
            (_, Some(_)) => CandidateEvent::OutcomeUnknown { session },
        };
        self.candidate(b, event);
    }

    /// A wait for a stranger's node is never endless.
    pub(crate) fn awaited_enough(&mut self, b: Ix, session: SessionId) {
        if self.processes[b].client.session == Some(session) {
            self.candidate(b, CandidateEvent::RegistrationGone { session });
        }
    }
}
