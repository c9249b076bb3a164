//! The candidate's shell: owns the session, performs the candidate's effects in order, begins and ends terms.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant as StdInstant, SystemTime, UNIX_EPOCH};

use barnabas_controller_core::{Candidate, CandidateEffect, CandidateEvent, Defaults, SessionId};
use barnabas_proto::v1;
use barnabas_proto::znode::{BrokerNode, paths};
use barnabas_types::{BrokerEpoch, BrokerId, ControllerEpoch, Now};
use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::dial::{Dialled, dial};
use crate::drive::{self, Backoff};
use crate::error::Error;
use crate::follow::{self, PushStreams};
use crate::open::{Identity, Live, ensure_tree, same_cluster};
use crate::predecessor::Predecessor;
use crate::service::Rebalance;
use crate::term::{self, RunningTerm, TermHandle};
use crate::translate::{Answer, CandidateCall, GivenUp, MarkDraining, Renewed, TakeProducerIds};
use crate::zookeeper::{
    Connect, Error as ZkError, Reply, Request, SessionEvent, WatchKind, Watched, ZooKeeper,
};

/// This broker's place in the cluster, as far as ZooKeeper has told.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Membership {
    /// Epoch of the present registration, `None` while not registered. The broker goes on serving meanwhile.
    pub broker_epoch: Option<BrokerEpoch>,
    /// Pushes of an older controller are refused (R22): `/controller_epoch` as read after the registration.
    pub controller_epoch_min: ControllerEpoch,
    /// Who is controller, and in which term; `None` while nobody is known.
    pub controller: Option<(BrokerId, ControllerEpoch)>,
    /// Whether ZooKeeper can be reached at present.
    pub connected: bool,
    /// What ZooKeeper granted the present or the last session, which may be other than what was asked for; 0 before the first.
    pub session_timeout_ms: u64,
}

/// What the shell is started with.
pub(crate) struct Setting<C: Connect> {
    pub(crate) me: BrokerId,
    pub(crate) connect: C,
    pub(crate) first: Live<C::Client>,
    /// Of which cluster the first session was.
    pub(crate) cluster: Identity,
    /// What the next registration says.
    pub(crate) registration: watch::Receiver<BrokerNode>,
    pub(crate) defaults: Defaults,
    pub(crate) rebalance: Option<Rebalance>,
    /// `failover.suspicion.enable`.
    pub(crate) suspicion: bool,
    pub(crate) membership: watch::Sender<Membership>,
    pub(crate) term: watch::Sender<Option<TermHandle>>,
    /// Told once, at the first registration or when it cannot be.
    pub(crate) started: oneshot::Sender<Result<BrokerEpoch, Error>>,
    pub(crate) stop: watch::Receiver<bool>,
    pub(crate) asked: mpsc::Receiver<Asked>,
    /// The broker wants to be registered anew.
    pub(crate) anew: Arc<Notify>,
    /// The push streams that are open here.
    pub(crate) pushes: PushStreams,
    /// Takes the records of failovers.
    pub(crate) failovers: mpsc::Sender<v1::Failover>,
}

/// Most questions that wait for the shell; whoever comes later waits for room.
pub(crate) const ASKED_MAX: usize = 64;
/// Longest wait, at a stop, for ZooKeeper to know that the session is over.
const LEAVE_MAX: Duration = Duration::from_secs(2);

/// What others want done in the session. Dropped unanswered if there is none.
pub(crate) enum Asked {
    ProducerIds(oneshot::Sender<Result<Range<i64>, GivenUp>>),
    /// Let the registration say that the broker drains, or no longer does. Answered with its epoch; dropped unanswered while
    /// there is none, or while it is renewed.
    Draining(bool, oneshot::Sender<BrokerEpoch>),
    /// This broker, which is said to be the controller, has no push stream here: see whether its process is gone. Dropped
    /// when that is done.
    LookForController(BrokerId, oneshot::Sender<()>),
}

/// What a task of the shell brings back.
enum Done<C: Connect> {
    Connected(Live<C::Client>),
    Answered(Option<CandidateEvent>),
    /// Somebody else's question; the answer has gone there.
    Asked,
    /// The mark of a draining broker was written, or not.
    Marked,
    /// The registration is watched, or is gone already; or the controller was looked for.
    Watched(Option<CandidateEvent>),
    /// A stranger holds our id; whether it can be reached, and how it presents itself.
    Stranger {
        event: Option<CandidateEvent>,
        reachable: bool,
        address: String,
        owner: SessionId,
    },
}

struct Shell<C: Connect> {
    me: BrokerId,
    connect: Arc<C>,
    candidate: Candidate,
    first: Option<Live<C::Client>>,
    cluster: Identity,
    /// The newest controller epoch that was heard of.
    newest: ControllerEpoch,
    live: Option<Live<C::Client>>,
    registration: watch::Receiver<BrokerNode>,
    defaults: Defaults,
    rebalance: Option<Rebalance>,
    suspicion: bool,
    begun: Instant,
    membership: watch::Sender<Membership>,
    handle: watch::Sender<Option<TermHandle>>,
    term: Option<RunningTerm>,
    tasks: JoinSet<Done<C>>,
    /// Unknown outcomes in a row.
    unknown: Backoff,
    started: Option<oneshot::Sender<Result<BrokerEpoch, Error>>>,
    /// When a stranger was first met in this process, and when to look again.
    stranger_since: Option<Instant>,
    look_again: Option<Instant>,
    /// The registration is being marked: it is not renewed meanwhile, or the mark could land on the next one.
    marking: bool,
    /// The registration is being renewed: it is not marked meanwhile.
    renewing: bool,
    pushes: PushStreams,
    failovers: mpsc::Sender<v1::Failover>,
    predecessor: Predecessor,
}

/// Runs until told to stop, or until the first registration turns out to be impossible.
pub(crate) async fn run<C: Connect>(setting: Setting<C>) {
    let Setting {
        me,
        connect,
        first,
        cluster,
        registration,
        defaults,
        rebalance,
        suspicion,
        membership,
        term,
        started,
        mut stop,
        mut asked,
        anew,
        pushes,
        failovers,
    } = setting;
    let directory = registration.borrow().directory_id;
    let mut shell = Shell {
        me,
        connect: Arc::new(connect),
        candidate: Candidate::new(me, directory),
        first: Some(first),
        cluster,
        newest: ControllerEpoch(0),
        live: None,
        registration,
        defaults,
        rebalance,
        suspicion,
        begun: Instant::now(),
        membership,
        handle: term,
        term: None,
        tasks: JoinSet::new(),
        unknown: Backoff::zookeeper(),
        started: Some(started),
        stranger_since: None,
        look_again: None,
        marking: false,
        renewing: false,
        pushes,
        failovers,
        predecessor: Predecessor::default(),
    };
    let mut effects = Vec::new();
    shell.candidate.start(&mut effects);
    shell.perform(effects).await;
    loop {
        let event = tokio::select! {
            biased;
            _ = async { stop.wait_for(|stop| *stop).await.map(|_| ()) } => break,
            event = next_event(&mut shell.live) => shell.session_event(event),
            () = ended(&mut shell.term) => shell.term_ended(),
            Some(done) = shell.tasks.join_next(), if !shell.tasks.is_empty() => match done {
                Ok(done) => match shell.task_done(done) {
                    Ok(event) => event,
                    Err(error) => {
                        if let Some(started) = shell.started.take() {
                            let _ = started.send(Err(error));
                        }
                        break;
                    }
                },
                Err(error) => {
                    tracing::error!(target: "controller", %error, "a request to ZooKeeper was not finished");
                    shell.session().map(|session| CandidateEvent::OutcomeUnknown { session })
                }
            },
            Some(asked) = asked.recv() => {
                shell.asked(asked);
                None
            }
            () = anew.notified(), if !shell.marking => {
                shell.renewing = true;
                shell.session().map(|session| CandidateEvent::RegisterAnew { session })
            }
            () = until(shell.look_again) => {
                shell.look_again = None;
                shell.session().map(|session| CandidateEvent::RegistrationGone { session })
            }
        };
        if let Some(event) = event {
            shell.step(event).await;
        }
    }
    shell.leave().await;
}

async fn next_event<Z>(live: &mut Option<Live<Z>>) -> Option<SessionEvent> {
    match live {
        Some((_, events)) => events.recv().await,
        None => std::future::pending().await,
    }
}

async fn ended(term: &mut Option<RunningTerm>) {
    match term {
        Some(term) => term.ended().await,
        None => std::future::pending().await,
    }
}

async fn until(instant: Option<Instant>) {
    match instant {
        Some(instant) => tokio::time::sleep_until(instant).await,
        None => std::future::pending().await,
    }
}

fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

impl<C: Connect> Shell<C> {
    fn session(&self) -> Option<SessionId> {
        self.live.as_ref().map(|(client, _)| client.session())
    }

    async fn step(&mut self, event: CandidateEvent) {
        tracing::debug!(target: "controller", broker = self.me.0, ?event, "candidate");
        self.predecessor.heard(&event, StdInstant::now());
        let mut effects = Vec::new();
        self.candidate.step(event, &mut effects);
        self.perform(effects).await;
    }

    /// What the session told, as the candidate's event. `None` (the client is gone) counts as expired.
    fn session_event(&mut self, event: Option<SessionEvent>) -> Option<CandidateEvent> {
        let session = self.session()?;
        let event = event.unwrap_or(SessionEvent::Expired);
        match event {
            SessionEvent::Disconnected => {
                tracing::warn!(target: "controller", broker = self.me.0, "disconnected from ZooKeeper");
                self.set(|m| m.connected = false);
                Some(CandidateEvent::Disconnected { session })
            }
            SessionEvent::Reconnected => {
                self.set(|m| m.connected = true);
                if let Some(term) = &self.term {
                    term.brokers_changed();
                    term.configs_changed();
                }
                Some(CandidateEvent::Reconnected { session })
            }
            SessionEvent::HalfSessionAway => Some(CandidateEvent::HalfSessionAway { session }),
            SessionEvent::Expired => Some(CandidateEvent::Expired { session }),
            SessionEvent::Watched(Watched { path, kind }) => {
                if path == paths::CONTROLLER {
                    return Some(CandidateEvent::ControllerChanged { session });
                }
                if path == paths::broker(self.me) && kind == WatchKind::Node {
                    // Changed or gone: look.
                    self.look_again = None;
                    self.watch_registration();
                    return Some(CandidateEvent::RegistrationGone { session });
                }
                match (&self.term, path.as_str()) {
                    (Some(term), paths::BROKER_IDS) => term.brokers_changed(),
                    (Some(term), paths::CONFIG_CHANGES) => term.configs_changed(),
                    _ => {}
                }
                None
            }
        }
    }

    /// The term ended by itself: it was fenced, or gave up.
    fn term_ended(&mut self) -> Option<CandidateEvent> {
        self.drop_term();
        self.session().map(|session| CandidateEvent::Resigned { session })
    }

    fn drop_term(&mut self) -> Option<RunningTerm> {
        self.handle.send_replace(None);
        self.set(|m| m.controller = None);
        self.term.take()
    }

    fn task_done(&mut self, done: Done<C>) -> Result<Option<CandidateEvent>, Error> {
        match done {
            Done::Connected(live) => {
                let session = live.0.session();
                self.live = Some(live);
                Ok(Some(self.connected(session)))
            }
            Done::Asked => Ok(None),
            Done::Watched(event) => Ok(event),
            Done::Marked => {
                self.marking = false;
                Ok(None)
            }
            Done::Answered(event) => {
                if !matches!(event, Some(CandidateEvent::OutcomeUnknown { .. })) {
                    self.unknown.reset();
                }
                Ok(event)
            }
            Done::Stranger { event, reachable, address, owner } => {
                if event.is_some() {
                    return Ok(event);
                }
                let timeout = self
                    .live
                    .as_ref()
                    .map_or(Duration::ZERO, |(client, _)| client.session_timeout());
                let since = *self.stranger_since.get_or_insert_with(Instant::now);
                // A dead one's node goes with its session; a live one's is there for good.
                let patience = timeout + timeout / 2;
                if self.started.is_some() && (reachable || since.elapsed() > patience) {
                    return Err(Error::IdTaken { broker: self.me, address, session: owner.0 });
                }
                tracing::warn!(
                    target: "controller", broker = self.me.0, %address, session = format!("{:#x}", owner.0),
                    "another broker is registered under this id; waiting for it to go"
                );
                self.look_again = Some(Instant::now() + timeout);
                Ok(None)
            }
        }
    }

    fn connected(&self, session: SessionId) -> CandidateEvent {
        tracing::info!(target: "controller", broker = self.me.0, session = format!("{:#x}", session.0), "connected to ZooKeeper");
        let granted =
            self.live.as_ref().map_or(Duration::ZERO, |(client, _)| client.session_timeout());
        self.set(|m| {
            m.connected = true;
            m.session_timeout_ms = u64::try_from(granted.as_millis()).unwrap_or(u64::MAX);
        });
        CandidateEvent::Connected { session }
    }

    fn set(&self, change: impl FnOnce(&mut Membership)) {
        self.membership.send_if_modified(|membership| {
            let before = *membership;
            change(membership);
            *membership != before
        });
    }

    /// Performs effects in order; a first connection is at hand, so it may bring on further ones.
    async fn perform(&mut self, effects: Vec<CandidateEffect>) {
        let mut left = VecDeque::from(effects);
        while let Some(effect) = left.pop_front() {
            if let Some(event) = self.perform_one(effect).await {
                let mut more = Vec::new();
                self.candidate.step(event, &mut more);
                left.extend(more);
            }
        }
    }

    async fn perform_one(&mut self, effect: CandidateEffect) -> Option<CandidateEvent> {
        match effect {
            CandidateEffect::Connect => return self.renew(),
            CandidateEffect::Registered { epoch, controller_epoch_min } => {
                self.newest = self.newest.max(controller_epoch_min);
                self.registered(epoch, controller_epoch_min)
            }
            CandidateEffect::Unregistered => self.set(|m| m.broker_epoch = None),
            CandidateEffect::BeginTerm { epoch, version } => {
                self.newest = self.newest.max(epoch);
                self.begin_term(epoch, version)
            }
            CandidateEffect::EndTerm => {
                if let Some(term) = self.drop_term() {
                    term.end().await;
                    tracing::info!(target: "controller", broker = self.me.0, "controller term ended");
                }
            }
            CandidateEffect::Follow { controller, epoch } => {
                let known = self.membership.borrow().controller;
                if known != Some((controller, epoch)) {
                    tracing::info!(target: "controller", broker = self.me.0, controller = controller.0, controller_epoch = epoch.0, "following the controller");
                }
                self.newest = self.newest.max(epoch);
                self.set(|m| m.controller = Some((controller, epoch)));
                self.predecessor.known(controller, epoch);
            }
            CandidateEffect::Pause => {
                if let Some(term) = &self.term {
                    term.pause(true);
                }
            }
            CandidateEffect::Resume => {
                if let Some(term) = &self.term {
                    term.pause(false);
                    term.brokers_changed();
                    term.configs_changed();
                }
            }
            CandidateEffect::Note(text) => {
                tracing::info!(target: "controller", broker = self.me.0, "{text}")
            }
            call => self.call(&call),
        }
        None
    }

    /// Drops every client of the old session, then makes a new one.
    fn renew(&mut self) -> Option<CandidateEvent> {
        self.tasks.abort_all();
        self.tasks = JoinSet::new();
        self.look_again = None;
        // Their requests, if any are left, end with the session.
        (self.marking, self.renewing) = (false, false);
        if let Some((client, _)) = self.live.take() {
            client.close();
        }
        self.set(|m| {
            m.connected = false;
            m.controller = None;
        });
        if let Some(live) = self.first.take() {
            let session = live.0.session();
            self.live = Some(live);
            return Some(self.connected(session));
        }
        let (connect, me) = (Arc::clone(&self.connect), self.me);
        let (cluster, known) = (self.cluster.clone(), self.newest);
        self.tasks.spawn(async move {
            let mut backoff = Backoff::new(Duration::from_millis(50), Duration::from_secs(1));
            loop {
                match connect.connect().await {
                    Ok(live) => match same_cluster(&live.0, &cluster, known).await {
                        Ok(()) => return Done::Connected(live),
                        Err(why) => {
                            tracing::error!(target: "controller", broker = me.0, "{why}");
                            live.0.close();
                            tokio::time::sleep(backoff.wait()).await;
                        }
                    },
                    Err(error) => {
                        tracing::warn!(target: "controller", broker = me.0, %error, "no ZooKeeper session yet");
                        tokio::time::sleep(backoff.wait()).await;
                    }
                }
            }
        });
        None
    }

    fn registered(&mut self, epoch: BrokerEpoch, controller_epoch_min: ControllerEpoch) {
        tracing::info!(
            target: "controller", broker = self.me.0, broker_epoch = epoch.0,
            controller_epoch_min = controller_epoch_min.0, "registered"
        );
        self.stranger_since = None;
        self.renewing = false;
        self.set(|m| {
            m.broker_epoch = Some(epoch);
            m.controller_epoch_min = m.controller_epoch_min.max(controller_epoch_min);
        });
        if let Some(started) = self.started.take() {
            let _ = started.send(Ok(epoch));
        }
        self.watch_registration();
    }

    /// Watches the registration: an operator or a tool may delete it, and only its owner can make another. Nothing to do
    /// while there is none.
    fn watch_registration(&mut self) {
        let (Some((client, _)), Some(epoch)) = (&self.live, self.membership.borrow().broker_epoch)
        else {
            return;
        };
        let (client, me) = (client.clone(), self.me);
        self.tasks.spawn(async move {
            let mut backoff = Backoff::zookeeper();
            loop {
                let watch = Request::Exists { path: paths::broker(me), watch: true };
                let gone = match client.submit(watch).await {
                    Ok(Reply::Stat(stat)) => stat.is_none_or(|stat| stat.czxid != epoch.0),
                    // Told as an event of the session.
                    Err(ZkError::SessionExpired) => false,
                    _ => {
                        tokio::time::sleep(backoff.wait()).await;
                        continue;
                    }
                };
                let session = client.session();
                return Done::Watched(gone.then_some(CandidateEvent::RegistrationGone { session }));
            }
        });
    }

    fn begin_term(&mut self, epoch: ControllerEpoch, version: i32) {
        let Some((client, _)) = &self.live else { return };
        tracing::info!(target: "controller", broker = self.me.0, controller_epoch = epoch.0, "elected controller");
        let term = term::begin(term::Beginning {
            me: self.me,
            epoch,
            epoch_version: version,
            client: client.clone(),
            defaults: self.defaults,
            rebalance: self.rebalance,
            suspicion: self.suspicion,
            lost: self.predecessor.lost(&self.pushes),
            failovers: self.failovers.clone(),
        });
        self.predecessor.known(self.me, epoch);
        self.handle.send_replace(Some(term.handle()));
        self.term = Some(term);
        self.set(|m| m.controller = Some((self.me, epoch)));
    }

    /// Asks ZooKeeper; the answer comes back as a task's end.
    fn call(&mut self, effect: &CandidateEffect) {
        let Some((client, _)) = &self.live else { return };
        let session = client.session();
        let registration = self.registration.borrow().clone();
        let Some((call, requests)) =
            CandidateCall::new(effect, session, self.me, &registration, now_ms())
        else {
            return;
        };
        let (client, me) = (client.clone(), self.me);
        let stranger = matches!(effect, CandidateEffect::AwaitRegistrationGone);
        let wait = self.unknown.wait();
        let own_address = registration.control_address;
        self.tasks.spawn(async move {
            let answers = drive::in_order(&client, requests).await;
            let event = call.event(&answers);
            if stranger {
                return look_at_stranger::<C>(&client, me, &own_address, event).await;
            }
            if matches!(event, Some(CandidateEvent::OutcomeUnknown { .. })) {
                settle(&client, me, &answers, wait).await;
            }
            Done::Answered(event)
        });
    }

    fn asked(&mut self, asked: Asked) {
        let Some((client, _)) = &self.live else { return };
        let (client, me) = (client.clone(), self.me);
        match asked {
            Asked::LookForController(controller, done) => {
                let (session, begun) = (client.session(), self.begun);
                self.tasks.spawn(async move {
                    let gone = follow::gone(&client, controller).await;
                    if let Some(owner) = gone {
                        tracing::warn!(target: "controller", broker = me.0, controller = controller.0, session = format!("{:#x}", owner.0), "the controller seems to be gone: its ports refuse connections");
                    }
                    let now = Now(u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX));
                    drop(done);
                    let suspected =
                        |owner| CandidateEvent::ControllerSuspected { session, owner, now };
                    Done::Watched(gone.map(suspected))
                });
            }
            Asked::ProducerIds(answer) => {
                self.tasks.spawn(async move {
                    let _ = answer.send(drive::run(&client, TakeProducerIds::new(me)).await);
                    Done::Asked
                });
            }
            Asked::Draining(draining, answer) => {
                let Some(epoch) = self.membership.borrow().broker_epoch else { return };
                if self.marking || self.renewing {
                    return;
                }
                self.marking = true;
                let mark = MarkDraining::new(me, client.session(), epoch, draining);
                self.tasks.spawn(async move {
                    match drive::run(&client, mark).await {
                        Ok(Ok(())) => {
                            let _ = answer.send(epoch);
                        }
                        Ok(Err(Renewed)) => {}
                        Err(error) => {
                            tracing::warn!(target: "controller", broker = me.0, broker_epoch = epoch.0, %error, "the registration was not marked");
                        }
                    }
                    Done::Marked
                });
            }
        }
    }

    async fn leave(mut self) {
        if let Some(term) = self.drop_term() {
            term.end().await;
        }
        self.tasks.abort_all();
        if let Some((client, _)) = self.live.take() {
            client.close();
            // The process may exit as soon as this returns.
            if tokio::time::timeout(LEAVE_MAX, client.ended()).await.is_err() {
                tracing::warn!(target: "controller", broker = self.me.0, "ZooKeeper does not answer: the session ends by its timeout");
            }
        }
        self.set(|m| {
            *m =
                Membership { controller_epoch_min: m.controller_epoch_min, ..Membership::default() }
        });
    }
}

/// Before the next attempt after an unknown outcome: a pause, and the base tree if somebody removed it.
async fn settle<Z: ZooKeeper>(client: &Z, me: BrokerId, answers: &[Answer], wait: Duration) {
    if let Some(Err(error)) = answers.last() {
        tracing::warn!(target: "controller", broker = me.0, %error, "asking ZooKeeper again");
    }
    tokio::time::sleep(wait).await;
    let missing = !matches!(answers.last(), Some(Err(ZkError::OutcomeUnknown(_))));
    if missing && let Err(error) = ensure_tree(client).await {
        tracing::warn!(target: "controller", broker = me.0, %error, "the base tree cannot be made");
    }
}

/// Whether the broker that holds our id answers at its control address. At `own_address` we would hear ourselves: we have
/// bound it, so the other one is dead.
async fn look_at_stranger<C: Connect>(
    client: &C::Client,
    me: BrokerId,
    own_address: &str,
    event: Option<CandidateEvent>,
) -> Done<C> {
    let mut stranger = (false, "unknown address".to_owned(), SessionId(0));
    if event.is_none() {
        let get = Request::Get { path: paths::broker(me), watch: false };
        if let Ok(Reply::Node(Some(node))) = client.submit(get).await {
            stranger.2 = node.stat.owner.unwrap_or(SessionId(0));
            if let Ok(read) = BrokerNode::parse(me, &node.data) {
                stranger.1 = format!("{}:{}", read.host, read.port);
                let other = read.control_address != own_address;
                stranger.0 = other && dial(&read.control_address).await == Dialled::Accepted;
            }
        }
    }
    Done::Stranger { event, reachable: stranger.0, address: stranger.1, owner: stranger.2 }
}
