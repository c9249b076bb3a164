//! The candidate: session, registration and race for `/controller`, decided only from what ZooKeeper says in the present session.

use barnabas_types::{BrokerEpoch, BrokerId, ControllerEpoch, DirectoryId, Now};

use crate::candidate_api::{
    CandidateEffect as Effect, CandidateEvent as Event, ControllerNode, RegistrationNode, SessionId,
};
use crate::limit::Limit;

/// Most controllers that this process deposes within [`DEPOSITIONS_WINDOW_MS`] because they seem to be gone; beyond that their
/// sessions are waited for.
pub const DEPOSITIONS_MAX: u32 = 3;
/// Time in which they are counted, in milliseconds.
pub const DEPOSITIONS_WINDOW_MS: u64 = 60_000;

/// What the candidate waits for. At most one request is under way; watches come by themselves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    /// Not started.
    Idle,
    /// `Connect` is under way.
    Connecting,
    /// `CreateRegistration` is under way.
    Creating,
    /// `ReadRegistration` is under way, to find out who holds our id.
    Looking,
    /// `DeleteRegistration` of our earlier incarnation is under way.
    Deleting,
    /// A stranger holds our id; its node is watched.
    AwaitingGone,
    /// Registered under this epoch; the first `ReadEpoch` is under way (R22).
    ReadingEpoch(BrokerEpoch),
    /// `ReadRegistration` is under way, to see whether the registration outlived a disconnection.
    Verifying,
    /// `ReadController` is under way.
    ReadingController,
    /// `DeleteController` is under way: its owner seems to be gone, or is our own dead incarnation.
    Deposing,
    /// `Race` is under way.
    Racing,
    /// Elected; `/controller` is watched.
    Elected,
    /// Somebody else is controller; `/controller` is watched.
    Following,
}

/// What is known of the present session. Dropped as a whole with it: nothing of an earlier session survives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Session {
    id: SessionId,
    connected: bool,
    /// The broker epoch, once the broker was told.
    registered: Option<BrokerEpoch>,
    /// The term: controller epoch and version of its node.
    term: Option<(ControllerEpoch, i32)>,
    /// `Pause` was given and not taken back.
    paused: bool,
    /// The epoch node as read before the last race: that race is won iff `/controller` is ours and the node is at (e + 1, v + 1).
    attempt: Option<(ControllerEpoch, i32)>,
    /// An answer was lost or came while disconnected: ask again once connected.
    ask_again: bool,
    /// Reconnected while a request was under way: verify when it ends, whatever it says.
    verify: bool,
    /// `/controller` changed while it was being read: read it once more.
    changed: bool,
    /// The broker wants another broker epoch: once at rest, its registration is deleted and created again. The session stays,
    /// and with it the term.
    anew: bool,
    /// A registration was asked for and is not in force yet: what it says was settled then.
    creating: bool,
    /// The wish came after that: it asks for the one after.
    anew_after: bool,
    /// Who owned `/controller` when it was read last, and the version of `/controller_epoch` that its election wrote. `None`:
    /// nobody, or an election came between the two reads, so that the version is not known.
    followed: Option<(SessionId, i32)>,
}

/// Owns the session, the registration and the race. One per process, for its whole life.
#[derive(Debug)]
pub struct Candidate {
    me: BrokerId,
    directory: DirectoryId,
    stage: Stage,
    session: Option<Session>,
    /// Session of our earlier incarnation, of which the directory lock proved that it is dead.
    predecessor: Option<SessionId>,
    /// Controllers that were deposed because they seemed to be gone.
    depositions: Limit,
}

impl Candidate {
    /// A candidate for broker `me`; `directory` is the id of its locked log directory.
    #[must_use]
    pub fn new(me: BrokerId, directory: DirectoryId) -> Self {
        Self {
            me,
            directory,
            stage: Stage::Idle,
            session: None,
            predecessor: None,
            depositions: Limit::new(Now(0)),
        }
    }

    /// Begins: asks for the first session. A second call does nothing.
    pub fn start(&mut self, effects: &mut Vec<Effect>) {
        if self.stage == Stage::Idle {
            self.go(Stage::Connecting, Effect::Connect, effects);
        }
    }

    /// The term in force: controller epoch and the version of its node that every write checks. `None` while not elected.
    #[must_use]
    pub fn term(&self) -> Option<(ControllerEpoch, i32)> {
        self.session.and_then(|s| s.term)
    }

    /// Takes one event, appends what is to be done.
    pub fn step(&mut self, event: Event, effects: &mut Vec<Effect>) {
        if let Event::Connected { session } = event {
            return self.connected(session, effects);
        }
        let id = session_of(&event);
        let Some(session) = self.session.as_mut().filter(|s| s.id == id) else {
            return; // an answer of an earlier session
        };
        match event {
            Event::Expired { .. } => self.start_over("the session expired", effects),
            Event::HalfSessionAway { .. } => {
                self.start_over("disconnected for half a session", effects);
            }
            Event::Disconnected { .. } => {
                session.connected = false;
                if session.term.is_some() && !session.paused {
                    session.paused = true;
                    effects.push(Effect::Pause);
                }
            }
            Event::Reconnected { .. } => self.reconnected(effects),
            Event::ControllerChanged { .. } => self.controller_changed(effects),
            Event::ControllerSuspected { owner, now, .. } => self.suspected(owner, now, effects),
            Event::Resigned { .. } => {
                if session.term.is_some() {
                    // The shell has stopped already; said again so that no term can outlive this.
                    self.end_term(effects);
                    self.read_after_resignation(effects);
                }
            }
            // A shell that watches our own node says so, too: look whether it is still ours, now or when the request
            // under way has ended. (While disconnected: once reconnected, in any case.)
            Event::RegistrationGone { .. }
                if session.registered.is_some() && self.stage != Stage::AwaitingGone =>
            {
                if session.anew {
                    return; // by our own hand
                }
                let resting = matches!(self.stage, Stage::Elected | Stage::Following);
                match (session.connected, resting) {
                    (true, true) => self.verify(effects),
                    (true, false) => session.verify = true,
                    (false, _) => {}
                }
            }
            Event::RegisterAnew { .. } if session.creating => session.anew_after = true,
            Event::RegisterAnew { .. } => session.anew = true,
            answer => self.answered(answer, effects),
        }
        self.begin_anew(effects);
    }

    /// Looks for the registration that is to be renewed, once nothing else is under way.
    fn begin_anew(&mut self, effects: &mut Vec<Effect>) {
        let wanted = self.session.is_some_and(|s| s.anew && s.connected);
        if wanted && matches!(self.stage, Stage::Elected | Stage::Following) {
            self.go(Stage::Looking, Effect::ReadRegistration, effects);
        }
    }

    /// An answer to the request under way (or to one that is not: then it is noted and ignored).
    fn answered(&mut self, answer: Event, effects: &mut Vec<Effect>) {
        let Some(session) = &mut self.session else { return };
        if !answers(self.stage, &answer) {
            effects.push(Effect::Note(format!("ignored while {:?}: {answer:?}", self.stage)));
            return;
        }
        if !session.connected {
            session.ask_again = true;
            return;
        }
        if session.verify {
            session.verify = false;
            return self.verify(effects);
        }
        match answer {
            Event::RegistrationCreated { epoch, .. } => self.registered(epoch, effects),
            Event::RegistrationExists { .. } | Event::RegistrationDeleteTried { .. } => {
                self.go(Stage::Looking, Effect::ReadRegistration, effects);
            }
            Event::RegistrationGone { .. } => {
                self.go(Stage::Creating, Effect::CreateRegistration, effects);
            }
            Event::RegistrationRead { node, .. } => self.registration_read(node, effects),
            Event::EpochRead { epoch, .. } => {
                if let Stage::ReadingEpoch(mine) = self.stage {
                    session.registered = Some(mine);
                    session.anew = std::mem::take(&mut session.anew_after);
                    session.creating = false;
                    effects.push(Effect::Registered { epoch: mine, controller_epoch_min: epoch });
                    self.go(Stage::ReadingController, Effect::ReadController, effects);
                }
            }
            Event::ControllerRead { node, epoch, version, mzxid, .. } => {
                let known = node.filter(|node| node.czxid == mzxid);
                session.followed = known.map(|node| (node.owner, version));
                self.controller_read(node, epoch, version, effects);
            }
            Event::ControllerDeleteTried { .. } => {
                self.predecessor = None; // once: what did not help does not help again
                self.go(Stage::ReadingController, Effect::ReadController, effects);
            }
            Event::RaceWon { epoch, version, .. } => {
                self.elected(epoch, version, effects);
                // Arms the watch that tells when somebody deletes our node.
                self.go(Stage::ReadingController, Effect::ReadController, effects);
            }
            Event::RaceLost { .. } => {
                self.go(Stage::ReadingController, Effect::ReadController, effects);
            }
            // `OutcomeUnknown`; everything else is no answer.
            _ => self.ask_again(effects),
        }
    }

    fn connected(&mut self, id: SessionId, effects: &mut Vec<Effect>) {
        match self.session {
            Some(session) if session.id == id => return,
            Some(_) => self.leave("another session took the place of this one", effects),
            None if self.stage != Stage::Connecting => {
                effects.push(Effect::Note("a session came without being asked for".to_owned()));
                return;
            }
            None => {}
        }
        self.session = Some(Session {
            id,
            connected: true,
            registered: None,
            term: None,
            paused: false,
            attempt: None,
            ask_again: false,
            verify: false,
            changed: false,
            anew: false,
            creating: false,
            anew_after: false,
            followed: None,
        });
        self.go(Stage::Creating, Effect::CreateRegistration, effects);
    }

    /// Ends everything that the session carried.
    fn leave(&mut self, why: &str, effects: &mut Vec<Effect>) {
        let Some(session) = self.session.take() else { return };
        effects.push(Effect::Note(format!("leaving session {:#x}: {why}", session.id.0)));
        if session.term.is_some() {
            effects.push(Effect::EndTerm);
        }
        if session.registered.is_some() {
            effects.push(Effect::Unregistered);
        }
    }

    /// Drops the session and asks for a new one: the answer to whatever cannot be true of a sound session. Closing it
    /// also removes its `/controller` and its registration.
    fn start_over(&mut self, why: &str, effects: &mut Vec<Effect>) {
        self.leave(why, effects);
        self.go(Stage::Connecting, Effect::Connect, effects);
    }

    fn reconnected(&mut self, effects: &mut Vec<Effect>) {
        let Some(session) = &mut self.session else { return };
        if session.connected {
            return;
        }
        session.connected = true;
        let known = session.registered.is_some();
        let resting = matches!(self.stage, Stage::Elected | Stage::Following);
        if known && (resting || session.ask_again) {
            self.verify(effects);
        } else if known {
            session.verify = true;
        } else if session.ask_again {
            self.ask_again(effects);
        } else if self.stage == Stage::AwaitingGone {
            self.go(Stage::Looking, Effect::ReadRegistration, effects);
        }
    }

    /// Is the registration still ours? The controller node is read next.
    fn verify(&mut self, effects: &mut Vec<Effect>) {
        self.go(Stage::Verifying, Effect::ReadRegistration, effects);
    }

    /// The outcome of the request under way is unknown: read what it may have changed, then decide.
    fn ask_again(&mut self, effects: &mut Vec<Effect>) {
        match self.stage {
            Stage::Idle | Stage::Connecting => {}
            Stage::Creating | Stage::Looking | Stage::Deleting | Stage::AwaitingGone => {
                self.go(Stage::Looking, Effect::ReadRegistration, effects);
            }
            Stage::ReadingEpoch(_) => self.go(self.stage, Effect::ReadEpoch, effects),
            Stage::Verifying => self.verify(effects),
            Stage::ReadingController
            | Stage::Deposing
            | Stage::Racing
            | Stage::Elected
            | Stage::Following => {
                self.go(Stage::ReadingController, Effect::ReadController, effects);
            }
        }
    }

    fn controller_changed(&mut self, effects: &mut Vec<Effect>) {
        match (self.stage, &mut self.session) {
            (Stage::Elected | Stage::Following, Some(s)) if s.connected => {
                self.go(Stage::ReadingController, Effect::ReadController, effects);
            }
            // It may have fired before or after the read that is under way saw the node.
            (Stage::ReadingController, Some(s)) => s.changed = true,
            // Disconnected, verifying, racing: a read follows anyway.
            _ => {}
        }
    }

    /// After a resignation: read `/controller`, unless a request that ends in reading it is under way.
    fn read_after_resignation(&mut self, effects: &mut Vec<Effect>) {
        let Some(session) = &mut self.session else { return };
        match self.stage {
            Stage::Elected if session.connected => {
                self.go(Stage::ReadingController, Effect::ReadController, effects);
            }
            // The read under way may be older than the write that was fenced.
            Stage::ReadingController => session.changed = true,
            _ => {}
        }
    }

    /// Deletes `/controller` of an owner that seems to be gone, unless that happens too often. A controller that lives finds
    /// itself deposed, as after any deletion, and whatever it writes after the next election is fenced.
    fn suspected(&mut self, owner: SessionId, now: Now, effects: &mut Vec<Effect>) {
        let Some(session) = &self.session else { return };
        let rests = session.connected && self.stage == Stage::Following;
        let Some((_, version)) = session.followed.filter(|f| rests && f.0 == owner) else { return };
        if !self.depositions.take(now, DEPOSITIONS_MAX, DEPOSITIONS_WINDOW_MS) {
            return; // its session ends by itself
        }
        effects.push(Effect::Note(format!(
            "deleting /controller of session {:#x}: its owner seems to be gone",
            owner.0
        )));
        self.go(Stage::Deposing, Effect::DeleteController { version }, effects);
    }

    fn registered(&mut self, epoch: BrokerEpoch, effects: &mut Vec<Effect>) {
        self.go(Stage::ReadingEpoch(epoch), Effect::ReadEpoch, effects);
    }

    fn registration_read(&mut self, node: Option<RegistrationNode>, effects: &mut Vec<Effect>) {
        let Some(session) = self.session else { return };
        let mine = node.filter(|n| n.owner == session.id);
        if let Some(node) = mine.filter(|n| session.anew && session.registered == Some(n.epoch)) {
            effects.push(Effect::Note(format!(
                "registering anew: deleting the registration of epoch {}",
                node.epoch
            )));
            effects.push(Effect::Unregistered);
            let delete = Effect::DeleteRegistration { version: node.version };
            return self.go(Stage::Deleting, delete, effects);
        }
        if self.stage == Stage::Verifying && !session.anew {
            if mine.map(|n| n.epoch) == session.registered {
                self.go(Stage::ReadingController, Effect::ReadController, effects);
            } else {
                self.start_over("the registration is no longer ours", effects);
            }
            return;
        }
        match node {
            None => self.go(Stage::Creating, Effect::CreateRegistration, effects),
            Some(node) if node.owner == session.id => self.registered(node.epoch, effects),
            Some(node) if node.directory == self.directory => {
                effects.push(Effect::Note(format!(
                    "deleting the registration of this broker's earlier incarnation (epoch {})",
                    node.epoch
                )));
                self.predecessor = Some(node.owner);
                let delete = Effect::DeleteRegistration { version: node.version };
                self.go(Stage::Deleting, delete, effects);
            }
            Some(node) => {
                effects.push(Effect::Note(format!(
                    "another live process is registered as broker {}: epoch {}, directory {}; stop it, or give this \
                     broker another broker.id",
                    self.me, node.epoch, node.directory
                )));
                self.go(Stage::AwaitingGone, Effect::AwaitRegistrationGone, effects);
            }
        }
    }

    /// Decides from `/controller` and the epoch node alone: elected or not is a matter of the owner's session, never of the id.
    fn controller_read(
        &mut self,
        node: Option<ControllerNode>,
        epoch: ControllerEpoch,
        version: i32,
        effects: &mut Vec<Effect>,
    ) {
        let Some(session) = &mut self.session else { return };
        let again = std::mem::take(&mut session.changed);
        match node {
            Some(node) if node.owner == session.id => {
                return self.own_node(epoch, version, again, effects);
            }
            Some(node) if Some(node.owner) == self.predecessor && session.followed.is_some() => {
                self.end_term(effects);
                effects.push(Effect::Note(
                    "deleting /controller of this broker's earlier incarnation".to_owned(),
                ));
                return self.go(Stage::Deposing, Effect::DeleteController { version }, effects);
            }
            Some(node) => {
                self.end_term(effects);
                effects.push(Effect::Follow { controller: node.broker, epoch });
                self.stage = Stage::Following;
            }
            None => {
                self.end_term(effects);
                return self.race(epoch, version, effects);
            }
        }
        if again {
            self.go(Stage::ReadingController, Effect::ReadController, effects);
        }
    }

    /// `/controller` is owned by our session.
    fn own_node(
        &mut self,
        epoch: ControllerEpoch,
        version: i32,
        again: bool,
        effects: &mut Vec<Effect>,
    ) {
        let Some(session) = &mut self.session else { return };
        let won = session.attempt.is_some_and(|(e, v)| {
            e.0.checked_add(1) == Some(epoch.0) && v.checked_add(1) == Some(version)
        });
        match session.term {
            Some(term) if term == (epoch, version) => {
                if session.paused {
                    session.paused = false;
                    effects.push(Effect::Resume);
                }
                self.stage = Stage::Elected;
            }
            None if won => self.elected(epoch, version, effects),
            // The node is ours, yet a newer epoch is somebody else's; our node cannot be deleted except with the session.
            _ => {
                return self.start_over(
                    "/controller is ours but /controller_epoch is not that of our election",
                    effects,
                );
            }
        }
        if again {
            self.go(Stage::ReadingController, Effect::ReadController, effects);
        }
    }

    fn elected(&mut self, epoch: ControllerEpoch, version: i32, effects: &mut Vec<Effect>) {
        let Some(session) = &mut self.session else { return };
        session.attempt = None;
        session.term = Some((epoch, version));
        session.paused = false;
        self.stage = Stage::Elected;
        effects.push(Effect::BeginTerm { epoch, version });
    }

    fn end_term(&mut self, effects: &mut Vec<Effect>) {
        let Some(session) = &mut self.session else { return };
        session.attempt = None;
        session.paused = false;
        if session.term.take().is_some() {
            effects.push(Effect::EndTerm);
        }
    }

    fn race(&mut self, epoch: ControllerEpoch, version: i32, effects: &mut Vec<Effect>) {
        let Some(session) = &mut self.session else { return };
        let Some(next) = epoch.0.checked_add(1) else {
            effects.push(Effect::Note("/controller_epoch has reached its maximum".to_owned()));
            self.stage = Stage::Following;
            return;
        };
        session.attempt = Some((epoch, version));
        let race = Effect::Race { epoch: ControllerEpoch(next), version };
        self.go(Stage::Racing, race, effects);
    }

    /// Gives an order and waits for its answer.
    fn go(&mut self, stage: Stage, order: Effect, effects: &mut Vec<Effect>) {
        if let Some(session) = &mut self.session {
            session.ask_again = false;
            session.creating |= order == Effect::CreateRegistration;
        }
        self.stage = stage;
        effects.push(order);
    }
}

/// Whether `event` can be the answer to the request under way.
fn answers(stage: Stage, event: &Event) -> bool {
    match event {
        Event::RegistrationCreated { .. } | Event::RegistrationExists { .. } => {
            stage == Stage::Creating
        }
        Event::RegistrationRead { .. } => matches!(stage, Stage::Looking | Stage::Verifying),
        Event::RegistrationDeleteTried { .. } => stage == Stage::Deleting,
        Event::RegistrationGone { .. } => stage == Stage::AwaitingGone,
        Event::EpochRead { .. } => matches!(stage, Stage::ReadingEpoch(_)),
        Event::ControllerRead { .. } => stage == Stage::ReadingController,
        Event::ControllerDeleteTried { .. } => stage == Stage::Deposing,
        Event::RaceWon { .. } | Event::RaceLost { .. } => stage == Stage::Racing,
        Event::OutcomeUnknown { .. } => !matches!(stage, Stage::Idle | Stage::Connecting),
        _ => false,
    }
}

fn session_of(event: &Event) -> SessionId {
    match *event {
        Event::Connected { session }
        | Event::Expired { session }
        | Event::Disconnected { session }
        | Event::Reconnected { session }
        | Event::HalfSessionAway { session }
        | Event::RegistrationCreated { session, .. }
        | Event::RegistrationExists { session }
        | Event::RegistrationRead { session, .. }
        | Event::RegistrationDeleteTried { session }
        | Event::RegistrationGone { session }
        | Event::EpochRead { session, .. }
        | Event::ControllerRead { session, .. }
        | Event::ControllerDeleteTried { session }
        | Event::ControllerSuspected { session, .. }
        | Event::ControllerChanged { session }
        | Event::RaceWon { session, .. }
        | Event::RaceLost { session }
        | Event::OutcomeUnknown { session }
        | Event::RegisterAnew { session }
        | Event::Resigned { session } => session,
    }
}
