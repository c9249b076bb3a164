//! Real ZooKeeper through the crate `zookeeper-client`, with its traps wrapped. Besides, only the ACLs' files touch the crate
//! ([`super::access`], [`super::protect`]).
//!
//! What is wrapped, and how: in-flight errors come in several forms, all of which mean "outcome unknown" ([`unknown`]).
//! Calls made while disconnected wait without limit, and the queue is unbounded: a timeout and a semaphore bound both. A
//! request above 1 MiB looks like a network failure: it is refused here. The client believes in its session for up to 1.4
//! times the timeout: `Disconnected` is told at once, `HalfSessionAway` after half the timeout. A leaked clone would keep the
//! session alive: the only lasting clone is in a slot that [`ZooKeeper::close`] empties. Watches are one-shot only, and
//! never two on one path and kind. A dropped client tells the server later, on a task of its own: a process that exits has to
//! wait for it ([`ZooKeeper::ended`]), or its session lives on until it expires.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use barnabas_controller_core::SessionId;
use tokio::sync::{Semaphore, mpsc, watch};
use zookeeper_client as zk;

use super::access::{Access, owned};
use super::op::{
    CreateMode, Error, Node, Op, OpReply, REQUEST_BYTES_MAX, Reply, Request, Stat, WatchKind,
    Watched,
};
use super::port::{Connect, ConnectError, Observer, SESSION_EVENTS_MAX, SessionEvent, ZooKeeper};

const FORBIDDEN: &str = "the ACL of a node does not let this session do that: the node belongs to other credentials than \
                         those that zookeeper.credentials.file names (`barnabas zookeeper check` tells whose it is)";

/// Most requests of one session under way.
const IN_FLIGHT_MAX: usize = 64;

/// Makes sessions with real servers.
#[derive(Clone, Debug)]
pub struct Servers {
    connect: String,
    session_timeout: Duration,
    access: Access,
    observer: Arc<dyn Observer>,
}

impl Servers {
    /// `connect` is `host:port[,host:port...][/chroot]`.
    #[must_use]
    pub fn new(connect: &str, session_timeout: Duration) -> Self {
        Self {
            connect: connect.to_owned(),
            session_timeout,
            access: Access::default(),
            observer: Arc::new(()),
        }
    }

    /// The same; `observer` is told how they answer.
    #[must_use]
    pub fn observed(self, observer: Arc<dyn Observer>) -> Self {
        Self { observer, ..self }
    }

    /// The same; sessions present these credentials.
    #[must_use]
    pub fn with_access(self, access: Access) -> Self {
        Self { access, ..self }
    }

    pub(super) fn access(&self) -> &Access {
        &self.access
    }

    pub(super) fn chroot(&self) -> Option<&str> {
        self.connect.find('/').map(|at| &self.connect[at..]).filter(|chroot| chroot.len() > 1)
    }
}

impl Servers {
    /// A session of the bare client, below a chroot that exists.
    pub(super) async fn client(&self) -> Result<zk::Client, ConnectError> {
        if self.connect.contains("://") {
            let reason =
                "write host:port without a scheme; TLS to ZooKeeper is not supported".to_owned();
            return Err(ConnectError::BadAddress(reason));
        }
        let connector =
            zk::Client::connector().with_session_timeout(self.session_timeout).with_fail_eagerly();
        let connector = self.access.present(connector);
        let client = connector.connect(&self.connect).await.map_err(|error| match error {
            zk::Error::BadArguments(reason) => ConnectError::BadAddress((*reason).to_owned()),
            zk::Error::AuthFailed => ConnectError::CredentialsRefused,
            error => ConnectError::Unreachable(error.to_string()),
        })?;
        if let Some(chroot) = self.chroot() {
            match tokio::time::timeout(client.session_timeout(), client.check_stat("/")).await {
                Ok(Ok(Some(_))) => {}
                Ok(Ok(None) | Err(zk::Error::NoNode)) => {
                    return Err(ConnectError::ChrootMissing(chroot.to_owned()));
                }
                Ok(Err(error)) => return Err(ConnectError::Unreachable(error.to_string())),
                Err(_) => return Err(ConnectError::Unreachable("no answer".to_owned())),
            }
        }
        Ok(client)
    }
}

impl Connect for Servers {
    type Client = Session;

    async fn connect(&self) -> Result<(Session, mpsc::Receiver<SessionEvent>), ConnectError> {
        let client = self.client().await?;
        let (events, receiver) = mpsc::channel(SESSION_EVENTS_MAX);
        self.observer.connected();
        let protects = self.access.protects();
        Ok((Session::new(client, protects, events, self.observer.clone()), receiver))
    }
}

/// One session with real servers.
#[derive(Clone, Debug)]
pub struct Session {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    id: SessionId,
    timeout: Duration,
    /// The only lasting clone; `None` once closed.
    slot: Mutex<Option<zk::Client>>,
    closed: watch::Sender<bool>,
    states: zk::StateWatcher,
    permits: Semaphore,
    /// Whether the nodes that it makes belong to its credentials.
    protects: bool,
    armed: Mutex<BTreeSet<(String, WatchKind)>>,
    events: mpsc::Sender<SessionEvent>,
    observer: Arc<dyn Observer>,
}

impl Shared {
    fn armed(&self) -> MutexGuard<'_, BTreeSet<(String, WatchKind)>> {
        self.armed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn client(&self) -> Option<zk::Client> {
        self.slot.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Session {
    fn new(
        client: zk::Client,
        protects: bool,
        events: mpsc::Sender<SessionEvent>,
        observer: Arc<dyn Observer>,
    ) -> Self {
        let states = client.state_watcher();
        let shared = Arc::new(Shared {
            id: SessionId(client.session_id().0),
            timeout: client.session_timeout(),
            slot: Mutex::new(Some(client)),
            closed: watch::Sender::new(false),
            states: states.clone(),
            permits: Semaphore::new(IN_FLIGHT_MAX),
            protects,
            armed: Mutex::new(BTreeSet::new()),
            events: events.clone(),
            observer: observer.clone(),
        });
        let closed = shared.closed.subscribe();
        tokio::spawn(tell_states(states, shared.timeout / 2, closed, events, observer));
        Self { shared }
    }

    /// Tells once when `watcher` fires, unless the session is closed before.
    fn tell(&self, path: &str, kind: WatchKind, watcher: zk::OneshotWatcher) {
        let shared = Arc::clone(&self.shared);
        let mut closed = shared.closed.subscribe();
        let path = path.to_owned();
        tokio::spawn(async move {
            let event = tokio::select! {
                event = watcher.changed() => event,
                () = until_closed(&mut closed) => return,
            };
            let watched = Watched { path, kind };
            shared.armed().remove(&(watched.path.clone(), kind));
            // The end of the session is told by the state.
            if event.event_type != zk::EventType::Session {
                let _ = shared.events.send(SessionEvent::Watched(watched)).await;
            }
        });
    }

    /// The right to arm a watch: if it is asked for, and none is armed yet. Two on one path and kind are one too many.
    fn claim(&self, path: &str, kind: WatchKind, watch: bool) -> Option<Claim<'_>> {
        let claimed = watch && self.shared.armed().insert((path.to_owned(), kind));
        claimed.then(|| Claim { session: self, path: path.to_owned(), kind, armed: false })
    }

    async fn perform(&self, client: &zk::Client, request: Request) -> Result<Reply, Error> {
        match request {
            Request::Sync => client.sync("/").await.map(|()| Reply::Done).map_err(error),
            Request::Get { path, watch } => self.get(client, &path, watch).await,
            Request::Exists { path, watch } => {
                let Some(claim) = self.claim(&path, WatchKind::Node, watch) else {
                    let stat = client.check_stat(&path).await.map_err(error)?;
                    return Ok(Reply::Stat(stat.map(stat_of)));
                };
                let (stat, watcher) = client.check_and_watch_stat(&path).await.map_err(error)?;
                claim.arm(watcher);
                Ok(Reply::Stat(stat.map(stat_of)))
            }
            Request::Children { path, watch } => self.children(client, &path, watch).await,
            Request::Create { path, data, mode } => {
                let created =
                    client.create(&path, &data, &self.options(&path, mode)).await.map_err(error)?;
                Ok(Reply::Created(stat_of(created.0)))
            }
            Request::Delete { path, version } => {
                client.delete(&path, version).await.map(|()| Reply::Done).map_err(error)
            }
            Request::Multi(ops) => self.multi(client, &ops).await,
            Request::MultiRead(paths) => multi_read(client, &paths).await,
        }
    }

    async fn get(&self, client: &zk::Client, path: &str, watch: bool) -> Result<Reply, Error> {
        let node = |data, stat| Ok(Reply::Node(Some(Node { data, stat: stat_of(stat) })));
        let found = match self.claim(path, WatchKind::Node, watch) {
            None => client.get_data(path).await,
            Some(claim) => client.get_and_watch_data(path).await.map(|(data, stat, watcher)| {
                claim.arm(watcher);
                (data, stat)
            }),
        };
        match found {
            Ok((data, stat)) => node(data, stat),
            Err(zk::Error::NoNode) => Ok(Reply::Node(None)),
            Err(failure) => Err(error(failure)),
        }
    }

    async fn children(&self, client: &zk::Client, path: &str, watch: bool) -> Result<Reply, Error> {
        let mut names = match self.claim(path, WatchKind::Children, watch) {
            None => client.list_children(path).await.map_err(error)?,
            Some(claim) => {
                let (names, watcher) = client.list_and_watch_children(path).await.map_err(error)?;
                claim.arm(watcher);
                names
            }
        };
        names.sort();
        Ok(Reply::Children(names))
    }

    async fn multi(&self, client: &zk::Client, ops: &[Op]) -> Result<Reply, Error> {
        let mut writer = client.new_multi_writer();
        for op in ops {
            match op {
                Op::Check { path, version } => writer.add_check_version(path, *version),
                Op::Create { path, data, mode } => {
                    writer.add_create(path, data, &self.options(path, *mode))
                }
                Op::Set { path, data, version } => writer.add_set_data(path, data, *version),
                Op::Delete { path, version } => writer.add_delete(path, *version),
            }
            .map_err(error)?;
        }
        match writer.commit().await {
            Ok(results) => Ok(Reply::Multi(
                results
                    .into_iter()
                    .map(|result| match result {
                        zk::MultiWriteResult::SetData { stat } => {
                            OpReply::Set { version: stat.version }
                        }
                        _ => OpReply::Done,
                    })
                    .collect(),
            )),
            Err(zk::MultiWriteError::OperationFailed { index, source }) => {
                Err(Error::Multi { index, error: Box::new(error(source)) })
            }
            Err(zk::MultiWriteError::RequestFailed { source }) => Err(error(source)),
        }
    }

    fn options(&self, path: &str, mode: CreateMode) -> zk::CreateOptions<'static> {
        let mode = match mode {
            CreateMode::Persistent => zk::CreateMode::Persistent,
            CreateMode::Ephemeral => zk::CreateMode::Ephemeral,
        };
        let anyone = zk::Acls::anyone_all();
        mode.with_acls(if self.shared.protects { owned(path).into() } else { anyone })
    }
}

/// Given back unless the watch is armed, also if the request is dropped on its way (it took too long, or whoever asked has
/// ended): a watch that was only claimed would never be armed again in this session.
struct Claim<'a> {
    session: &'a Session,
    path: String,
    kind: WatchKind,
    armed: bool,
}

impl Claim<'_> {
    fn arm(mut self, watcher: zk::OneshotWatcher) {
        self.armed = true;
        self.session.tell(&self.path, self.kind, watcher);
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        if !self.armed {
            self.session.shared.armed().remove(&(std::mem::take(&mut self.path), self.kind));
        }
    }
}

impl ZooKeeper for Session {
    fn session(&self) -> SessionId {
        self.shared.id
    }

    fn session_timeout(&self) -> Duration {
        self.shared.timeout
    }

    async fn submit(&self, request: Request) -> Result<Reply, Error> {
        let size_bytes = request.size_bytes();
        if size_bytes > REQUEST_BYTES_MAX {
            return Err(Error::TooLarge { size_bytes });
        }
        let mut closed = self.shared.closed.subscribe();
        let begun = Instant::now();
        let work = async {
            let _permit = self.shared.permits.acquire().await.map_err(|_| Error::SessionExpired)?;
            let client = self.shared.client().ok_or(Error::SessionExpired)?;
            self.perform(&client, request).await
        };
        let answer = tokio::select! {
            done = tokio::time::timeout(self.shared.timeout, work) => {
                done.unwrap_or_else(|_| Err(Error::OutcomeUnknown("no answer within the session timeout".into())))
            }
            () = until_closed(&mut closed) => Err(Error::SessionExpired),
        };
        let unknown = matches!(answer, Err(Error::OutcomeUnknown(_) | Error::SessionExpired));
        self.shared.observer.answered(begun.elapsed(), unknown);
        answer
    }

    fn close(&self) {
        self.shared.slot.lock().unwrap_or_else(PoisonError::into_inner).take();
        self.shared.closed.send_replace(true);
    }

    async fn ended(&self) {
        let mut states = self.shared.states.clone();
        while !states.state().is_terminated() {
            states.changed().await;
        }
    }
}

async fn until_closed(closed: &mut watch::Receiver<bool>) {
    let _ = closed.wait_for(|closed| *closed).await;
}

/// Tells each change of the session's state; after half a session of silence, that too.
async fn tell_states(
    mut states: zk::StateWatcher,
    half_session: Duration,
    mut closed: watch::Receiver<bool>,
    events: mpsc::Sender<SessionEvent>,
    observer: Arc<dyn Observer>,
) {
    let mut connected = true;
    let mut half_told = false;
    loop {
        let state = tokio::select! {
            state = states.changed() => state,
            () = tokio::time::sleep(half_session), if !connected && !half_told => {
                half_told = true;
                if events.send(SessionEvent::HalfSessionAway).await.is_err() {
                    return;
                }
                continue;
            }
            () = until_closed(&mut closed) => return,
        };
        let mut tell = Vec::with_capacity(2);
        match state {
            zk::SessionState::SyncConnected => {
                // A short disconnection may have been swallowed.
                if connected {
                    tell.push(SessionEvent::Disconnected);
                }
                connected = true;
                half_told = false;
                tell.push(SessionEvent::Reconnected);
            }
            zk::SessionState::Disconnected | zk::SessionState::ConnectedReadOnly => {
                connected = false;
                tell.push(SessionEvent::Disconnected);
            }
            _ => tell.push(SessionEvent::Expired),
        }
        for event in tell {
            let last = event == SessionEvent::Expired;
            match event {
                SessionEvent::Disconnected => observer.disconnected(),
                SessionEvent::Reconnected => observer.connected(),
                SessionEvent::Expired if !*closed.borrow() => observer.expired(),
                _ => {}
            }
            if events.send(event).await.is_err() || last {
                return;
            }
        }
    }
}

async fn multi_read(client: &zk::Client, paths: &[String]) -> Result<Reply, Error> {
    let mut reader = client.new_multi_reader();
    for path in paths {
        reader.add_get_data(path).map_err(error)?;
    }
    let mut nodes = Vec::with_capacity(paths.len());
    for result in reader.commit().await.map_err(error)? {
        match result {
            zk::MultiReadResult::Data { data, stat } => {
                nodes.push(Some(Node { data, stat: stat_of(stat) }))
            }
            zk::MultiReadResult::Error { err: zk::Error::NoNode } => nodes.push(None),
            zk::MultiReadResult::Error { err } => return Err(error(err)),
            _ => return Err(Error::Refused("a reply of the wrong kind to a multi-read".into())),
        }
    }
    if nodes.len() == paths.len() {
        Ok(Reply::Nodes(nodes))
    } else {
        Err(Error::Refused("a multi-read was answered with another number of nodes".into()))
    }
}

fn stat_of(stat: zk::Stat) -> Stat {
    let owner = (stat.ephemeral_owner != 0).then_some(SessionId(stat.ephemeral_owner));
    Stat { czxid: stat.czxid, mzxid: stat.mzxid, version: stat.version, owner }
}

/// The one table of the crate's errors. What is not known to have changed nothing counts as unknown.
fn error(error: zk::Error) -> Error {
    match error {
        zk::Error::NoNode => Error::NoNode,
        zk::Error::NodeExists => Error::NodeExists,
        zk::Error::BadVersion => Error::BadVersion,
        zk::Error::NotEmpty => Error::NotEmpty,
        zk::Error::SessionExpired | zk::Error::ClientClosed | zk::Error::AuthFailed => {
            Error::SessionExpired
        }
        zk::Error::NoAuth => Error::Refused(FORBIDDEN.to_owned()),
        zk::Error::BadArguments(_)
        | zk::Error::NoChildrenForEphemerals
        | zk::Error::InvalidAcl
        | zk::Error::NotReadOnly
        | zk::Error::QuotaExceeded
        | zk::Error::Unimplemented => Error::Refused(error.to_string()),
        other => Error::OutcomeUnknown(other.to_string()),
    }
}
