//! The ensemble's client: sessions, requests in order, lost answers, late writes, broken and healed connections.

use barnabas_controller_core::{CandidateEvent, SessionId};

use super::World;
use crate::coverage::Reached;
use crate::happening::{Happening, Input, Ix};
use crate::process::StoreClient;
use crate::store::{Answer, Request, Watch};

impl World {
    /// Sends a request in the present session; without one it is forgotten (its owner goes with the session).
    pub(crate) fn ask_store(&mut self, b: Ix, request: Request) {
        let Some(session) = self.processes[b].client.session else { return };
        let id = self.correlation();
        let life = self.processes[b].life;
        self.processes[b].client.pending.insert(id, request.clone());
        if !self.store_link[b] {
            self.later(b, 2, Input::StoreUnknown { session, id });
            return;
        }
        let max = self.swarm.store_delay_ms_max;
        let mut arrival = self.queue.now_ms() + self.fate.range(1, max);
        let mut answered = true;
        if !self.healed && self.fate.chance(self.swarm.store_unknown_permille) {
            self.reach(Reached::UnknownOutcome);
            let patience = self.fate.range(1, 12);
            self.later(b, patience, Input::StoreUnknown { session, id });
            answered = false;
            match self.fate.below(3) {
                0 => return, // never arrives
                1 => {}      // applied, the answer is lost
                _ => {
                    self.reach(Reached::LateWrite);
                    arrival += self.fate.range(10, 150);
                }
            }
        }
        // One connection: requests arrive in the order in which they were sent.
        arrival = arrival.max(self.store_order[b].0);
        self.store_order[b].0 = arrival;
        self.queue.at(arrival, Happening::Store { from: b, life, session, id, request, answered });
    }

    /// A request reaches the ensemble.
    pub(crate) fn store_hears(
        &mut self,
        b: Ix,
        life: u32,
        session: SessionId,
        id: u64,
        request: Request,
        answered: bool,
    ) {
        // Cut on the way: some get through, their answers never do.
        if !self.store_link[b] && self.fate.chance(500) {
            return;
        }
        let answer = self.apply(session, &request);
        self.note(Some(b), "store", || format!("{request:?} -> {answer:?}"));
        if answered && self.store_link[b] {
            let at = self.answer_moment(b);
            let input = Input::StoreAnswer { session, id, answer };
            self.queue.at(at, Happening::Input { to: b, life: Some(life), from: None, input });
        }
        self.deliver_watches();
    }

    fn answer_moment(&mut self, b: Ix) -> u64 {
        let max = self.swarm.store_delay_ms_max;
        let at = (self.queue.now_ms() + self.fate.range(1, max)).max(self.store_order[b].1);
        self.store_order[b].1 = at;
        at
    }

    /// Tells those whose watches fired.
    pub(crate) fn deliver_watches(&mut self) {
        for watch in self.store.take_fired() {
            let (Watch::Controller(session)
            | Watch::Brokers(session)
            | Watch::Registration(session)) = watch;
            let Some(b) = self.session_owner.get(&session).copied() else { continue };
            let mut at = self.answer_moment(b);
            if !self.healed && self.fate.chance(100) {
                at += self.fate.range(5, 60); // a slow notification
            }
            let input = Input::Watch(watch);
            self.queue.at(at, Happening::Input { to: b, life: None, from: None, input });
        }
    }

    pub(crate) fn watch_fired(&mut self, b: Ix, watch: Watch) {
        let (Watch::Controller(session) | Watch::Brokers(session) | Watch::Registration(session)) =
            watch;
        if self.processes[b].client.session != Some(session) {
            return;
        }
        if !self.store_link[b] {
            // The client sets its watches again once it is back, and is told then.
            self.later(b, 10, Input::Watch(watch));
            return;
        }
        self.note(Some(b), "watch", || format!("{watch:?}"));
        match watch {
            Watch::Controller(_) => {
                self.candidate(b, CandidateEvent::ControllerChanged { session })
            }
            Watch::Registration(_) => {
                self.candidate(b, CandidateEvent::RegistrationGone { session })
            }
            Watch::Brokers(_) => self.brokers_changed(b),
        }
    }

    pub(crate) fn store_answered(&mut self, b: Ix, session: SessionId, id: u64, answer: Answer) {
        if self.processes[b].client.session != Some(session) {
            return;
        }
        let Some(request) = self.processes[b].client.pending.remove(&id) else { return };
        if matches!(answer, Answer::SessionExpired) {
            self.store_expired(b, session);
            return;
        }
        self.store_said(b, session, request, Some(answer));
    }

    pub(crate) fn store_unknown(&mut self, b: Ix, session: SessionId, id: u64) {
        if self.processes[b].client.session != Some(session) {
            return;
        }
        let Some(request) = self.processes[b].client.pending.remove(&id) else { return };
        self.note(Some(b), "unknown", || format!("{request:?}"));
        self.store_said(b, session, request, None);
    }

    /// The effect `Connect`: a new client; the old one is gone with all that it asked.
    pub(crate) fn connect(&mut self, b: Ix) {
        self.leave_session(b);
        if !self.processes[b].client.connecting {
            self.processes[b].client.connecting = true;
            let delay = self.fate.range(1, 8);
            self.later(b, delay, Input::TryConnect);
        }
    }

    fn leave_session(&mut self, b: Ix) {
        let client = &mut self.processes[b].client;
        let connecting = client.connecting;
        let left = client.session;
        *client = StoreClient { connecting, ..StoreClient::default() };
        if let Some(session) = left.filter(|s| self.store.is_live(*s)) {
            self.processes[b].left.insert(session);
            self.expire_later(session);
        }
    }

    pub(crate) fn try_connect(&mut self, b: Ix) {
        if !self.store_link[b] {
            self.later(b, 15, Input::TryConnect);
            return;
        }
        let session = self.store.begin_session();
        self.session_owner.insert(session, b);
        if !self.healed && self.fate.chance(self.swarm.store_unknown_permille) {
            // The handshake's answer is lost: a session that nobody uses (A1).
            self.expire_later(session);
            self.later(b, 15, Input::TryConnect);
            return;
        }
        let client = &mut self.processes[b].client;
        client.connecting = false;
        client.connected = true;
        client.session = Some(session);
        self.note(Some(b), "session", || format!("{session:?}"));
        self.candidate(b, CandidateEvent::Connected { session });
    }

    /// The ensemble stops hearing of a session: it expires after the timeout unless it is heard of again.
    pub(crate) fn expire_later(&mut self, session: SessionId) {
        let generation = *self.session_generation.entry(session).or_default();
        let timeout = self.swarm.session_timeout_ms;
        self.queue.after(timeout, Happening::SessionTimeout { session, generation });
    }

    /// The session was heard of.
    pub(crate) fn heard(&mut self, session: SessionId) {
        *self.session_generation.entry(session).or_default() += 1;
    }

    pub(crate) fn session_timeout(&mut self, session: SessionId, generation: u64) {
        if self.session_generation.get(&session).copied().unwrap_or(0) != generation {
            return;
        }
        self.expire(session);
    }

    /// The ensemble ends a session.
    pub(crate) fn expire(&mut self, session: SessionId) {
        if self.store.expire(session) {
            let owner = self.session_owner.get(&session).copied();
            self.note(owner, "expired", || format!("{session:?}"));
            self.deliver_watches();
            self.check_availability();
        }
    }

    /// The client learns that its session is gone.
    pub(crate) fn store_expired(&mut self, b: Ix, session: SessionId) {
        if self.processes[b].client.session != Some(session) || self.store.is_live(session) {
            return;
        }
        self.note(Some(b), "learns expiry", || format!("{session:?}"));
        self.processes[b].client.pending.clear();
        self.processes[b].client.connected = false;
        self.candidate(b, CandidateEvent::Expired { session });
    }

    /// Cuts a broker off from the ensemble, until `HealStore`.
    pub(crate) fn cut_store(&mut self, b: Ix) {
        if !self.store_link[b] {
            return;
        }
        self.store_link[b] = false;
        self.note(Some(b), "cut store", String::new);
        let sessions: Vec<SessionId> = self.live_sessions_of(b);
        for session in sessions {
            self.expire_later(session);
        }
        if let Some(session) = self.processes[b].client.session {
            let generation = self.session_generation.get(&session).copied().unwrap_or(0);
            let notice = self.fate.range(1, 15);
            self.later(b, notice, Input::StoreDown { session });
            let half = self.swarm.session_timeout_ms / 2 + notice;
            self.later(b, half, Input::StoreHalfAway { session, generation });
        }
    }

    fn live_sessions_of(&self, b: Ix) -> Vec<SessionId> {
        self.session_owner
            .iter()
            .filter(|(session, owner)| **owner == b && self.store.is_live(**session))
            .map(|(session, _)| *session)
            .collect()
    }

    pub(crate) fn heal_store(&mut self, b: Ix) {
        if self.store_link[b] {
            return;
        }
        self.store_link[b] = true;
        self.note(Some(b), "heal store", String::new);
        if let Some(session) = self.processes[b].client.session
            && self.processes[b].up
        {
            if !self.processes[b].paused {
                self.heard(session);
            }
            let delay = self.fate.range(16, 30);
            self.later(b, delay, Input::StoreUp { session });
        }
    }

    pub(crate) fn store_down(&mut self, b: Ix, session: SessionId) {
        let client = &mut self.processes[b].client;
        if client.session != Some(session) || !client.connected {
            return;
        }
        client.connected = false;
        let pending = std::mem::take(&mut client.pending);
        self.note(Some(b), "disconnected", String::new);
        self.candidate(b, CandidateEvent::Disconnected { session });
        for request in pending.into_values() {
            self.store_said(b, session, request, None);
        }
    }

    pub(crate) fn store_up(&mut self, b: Ix, session: SessionId) {
        if self.processes[b].client.session != Some(session) || !self.store_link[b] {
            return;
        }
        self.store_down(b, session);
        if self.store.is_live(session) {
            self.heard(session);
            self.processes[b].client.connected = true;
            self.note(Some(b), "reconnected", String::new);
            self.candidate(b, CandidateEvent::Reconnected { session });
        } else {
            self.store_expired(b, session);
        }
    }

    pub(crate) fn store_half_away(&mut self, b: Ix, session: SessionId, generation: u64) {
        let same = self.session_generation.get(&session).copied().unwrap_or(0) == generation;
        let client = &self.processes[b].client;
        if !same || self.store_link[b] || client.session != Some(session) || client.connected {
            return;
        }
        self.note(Some(b), "half away", String::new);
        self.candidate(b, CandidateEvent::HalfSessionAway { session });
    }

    /// A process dies or stops: the ensemble does not hear of its sessions any more.
    pub(crate) fn silence(&mut self, b: Ix) {
        for session in self.live_sessions_of(b) {
            self.expire_later(session);
        }
    }
}
