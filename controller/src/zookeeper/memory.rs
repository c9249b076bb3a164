//! ZooKeeper in memory: a plain deterministic tree for the simulator. No clock, no runtime, no chance.

use std::collections::{BTreeMap, BTreeSet};

use barnabas_controller_core::SessionId;

use super::op::{
    CreateMode, Error, Node, Op, OpReply, REQUEST_BYTES_MAX, Reply, Request, Stat, WatchKind,
    Watched,
};

/// The state of one ZooKeeper service as its clients see it: every request is applied at once and in order.
///
/// What a network does (loss, delay, unknown outcomes) is for the caller to play: apply a request and drop the reply, or
/// apply it late. A late request of a dead session is refused, as by the real one.
#[derive(Clone, Debug)]
pub struct Tree {
    nodes: BTreeMap<String, Node>,
    zxid: i64,
    sessions: BTreeSet<SessionId>,
    session_next: i64,
    watches: BTreeMap<(String, WatchKind), BTreeSet<SessionId>>,
    fired: Vec<(SessionId, Watched)>,
}

impl Default for Tree {
    fn default() -> Self {
        Self::new()
    }
}

impl Tree {
    /// An empty tree, with only the root.
    #[must_use]
    pub fn new() -> Self {
        let stat = Stat { czxid: 0, mzxid: 0, version: 0, owner: None };
        Self {
            nodes: BTreeMap::from([("/".to_owned(), Node { data: Vec::new(), stat })]),
            zxid: 0,
            sessions: BTreeSet::new(),
            session_next: 0x1000,
            watches: BTreeMap::new(),
            fired: Vec::new(),
        }
    }

    /// A new session.
    pub fn open_session(&mut self) -> SessionId {
        self.zxid += 1;
        self.session_next += 1;
        let session = SessionId(self.session_next);
        self.sessions.insert(session);
        session
    }

    /// Ends a session (closed or expired): its ephemeral nodes and its watches go. No-op for a dead session.
    pub fn end_session(&mut self, session: SessionId) {
        if !self.sessions.remove(&session) {
            return;
        }
        for watchers in self.watches.values_mut() {
            watchers.remove(&session);
        }
        self.zxid += 1;
        let owned: Vec<String> = self
            .nodes
            .iter()
            .filter(|(_, node)| node.stat.owner == Some(session))
            .map(|(path, _)| path.clone())
            .collect();
        for path in owned {
            self.nodes.remove(&path);
            self.fire(&path, WatchKind::Node);
            self.fire(&path, WatchKind::Children);
            self.fire(parent_of(&path), WatchKind::Children);
        }
    }

    /// Whether the session lives.
    #[must_use]
    pub fn is_live(&self, session: SessionId) -> bool {
        self.sessions.contains(&session)
    }

    /// The node at `path`, for checks from outside.
    #[must_use]
    pub fn node(&self, path: &str) -> Option<&Node> {
        self.nodes.get(path)
    }

    /// All paths with their nodes, in order.
    pub fn nodes(&self) -> impl Iterator<Item = (&str, &Node)> {
        self.nodes.iter().map(|(path, node)| (path.as_str(), node))
    }

    /// Last transaction.
    #[must_use]
    pub fn zxid(&self) -> i64 {
        self.zxid
    }

    /// Watches that fired since the last call, in order.
    pub fn take_fired(&mut self) -> Vec<(SessionId, Watched)> {
        std::mem::take(&mut self.fired)
    }

    /// Applies one request of `session`.
    ///
    /// # Errors
    /// As real ZooKeeper: [`Error::SessionExpired`] for a dead session, and the errors of each operation. Never
    /// [`Error::OutcomeUnknown`]: that is the network's.
    pub fn apply(&mut self, session: SessionId, request: &Request) -> Result<Reply, Error> {
        if !self.is_live(session) {
            return Err(Error::SessionExpired);
        }
        let size_bytes = request.size_bytes();
        if size_bytes > REQUEST_BYTES_MAX {
            return Err(Error::TooLarge { size_bytes });
        }
        match request {
            Request::Sync => Ok(Reply::Done),
            Request::Get { path, watch } => {
                let node = self.nodes.get(path).cloned();
                if *watch && node.is_some() {
                    self.arm(session, path, WatchKind::Node);
                }
                Ok(Reply::Node(node))
            }
            Request::Exists { path, watch } => {
                if *watch {
                    self.arm(session, path, WatchKind::Node);
                }
                Ok(Reply::Stat(self.nodes.get(path).map(|node| node.stat)))
            }
            Request::Children { path, watch } => {
                let names = self.children(path).ok_or(Error::NoNode)?;
                if *watch {
                    self.arm(session, path, WatchKind::Children);
                }
                Ok(Reply::Children(names))
            }
            Request::Create { path, data, mode } => {
                let op = Op::Create { path: path.clone(), data: data.clone(), mode: *mode };
                self.commit(session, std::slice::from_ref(&op)).map_err(|(_, error)| error)?;
                self.nodes.get(path).map(|node| Reply::Created(node.stat)).ok_or(Error::NoNode)
            }
            Request::Delete { path, version } => {
                let op = Op::Delete { path: path.clone(), version: *version };
                self.commit(session, std::slice::from_ref(&op)).map_err(|(_, error)| error)?;
                Ok(Reply::Done)
            }
            Request::Multi(ops) => match self.commit(session, ops) {
                Ok(replies) => Ok(Reply::Multi(replies)),
                Err((index, error)) => Err(Error::Multi { index, error: Box::new(error) }),
            },
            Request::MultiRead(paths) => {
                Ok(Reply::Nodes(paths.iter().map(|path| self.nodes.get(path).cloned()).collect()))
            }
        }
    }

    /// Applies all operations in one transaction, or none.
    fn commit(&mut self, session: SessionId, ops: &[Op]) -> Result<Vec<OpReply>, (usize, Error)> {
        self.zxid += 1;
        let mut undo = Vec::with_capacity(ops.len());
        let mut touched = Vec::new();
        let mut replies = Vec::with_capacity(ops.len());
        for (index, op) in ops.iter().enumerate() {
            let before = self.nodes.get(op.path()).cloned();
            match self.change(session, op, &mut touched) {
                Ok(reply) => {
                    undo.push((op.path(), before));
                    replies.push(reply);
                }
                Err(error) => {
                    for (path, before) in undo.into_iter().rev() {
                        match before {
                            Some(node) => self.nodes.insert(path.to_owned(), node),
                            None => self.nodes.remove(path),
                        };
                    }
                    return Err((index, error));
                }
            }
        }
        for (path, kind) in touched {
            self.fire(&path, kind);
        }
        Ok(replies)
    }

    fn change(
        &mut self,
        session: SessionId,
        op: &Op,
        touched: &mut Vec<(String, WatchKind)>,
    ) -> Result<OpReply, Error> {
        match op {
            Op::Check { path, version } => {
                self.at_version(path, Some(*version))?;
                Ok(OpReply::Done)
            }
            Op::Create { path, data, mode } => {
                if self.nodes.contains_key(path) {
                    return Err(Error::NodeExists);
                }
                let parent = self.nodes.get(parent_of(path)).ok_or(Error::NoNode)?;
                if parent.stat.owner.is_some() {
                    return Err(Error::Refused("ephemeral node can not have children".into()));
                }
                let owner = (*mode == CreateMode::Ephemeral).then_some(session);
                let stat = Stat { czxid: self.zxid, mzxid: self.zxid, version: 0, owner };
                self.nodes.insert(path.clone(), Node { data: data.clone(), stat });
                touched.push((path.clone(), WatchKind::Node));
                touched.push((parent_of(path).to_owned(), WatchKind::Children));
                Ok(OpReply::Done)
            }
            Op::Set { path, data, version } => {
                self.at_version(path, *version)?;
                let node = self.nodes.get_mut(path).ok_or(Error::NoNode)?;
                node.data.clone_from(data);
                node.stat.version += 1;
                node.stat.mzxid = self.zxid;
                touched.push((path.clone(), WatchKind::Node));
                Ok(OpReply::Set { version: node.stat.version })
            }
            Op::Delete { path, version } => {
                self.at_version(path, *version)?;
                if self.children(path).is_some_and(|names| !names.is_empty()) {
                    return Err(Error::NotEmpty);
                }
                self.nodes.remove(path);
                touched.push((path.clone(), WatchKind::Node));
                touched.push((path.clone(), WatchKind::Children));
                touched.push((parent_of(path).to_owned(), WatchKind::Children));
                Ok(OpReply::Done)
            }
        }
    }

    fn at_version(&self, path: &str, version: Option<i32>) -> Result<(), Error> {
        let node = self.nodes.get(path).ok_or(Error::NoNode)?;
        if version.is_some_and(|version| version != node.stat.version) {
            return Err(Error::BadVersion);
        }
        Ok(())
    }

    fn children(&self, path: &str) -> Option<Vec<String>> {
        if !self.nodes.contains_key(path) {
            return None;
        }
        let prefix = if path == "/" { "/".to_owned() } else { format!("{path}/") };
        let below = self.nodes.range(prefix.clone()..).map(|(path, _)| path);
        let names = below
            .take_while(|path| path.starts_with(&prefix))
            .map(|path| &path[prefix.len()..])
            .filter(|name| !name.is_empty() && !name.contains('/'))
            .map(str::to_owned);
        Some(names.collect())
    }

    fn arm(&mut self, session: SessionId, path: &str, kind: WatchKind) {
        self.watches.entry((path.to_owned(), kind)).or_default().insert(session);
    }

    fn fire(&mut self, path: &str, kind: WatchKind) {
        let Some(watchers) = self.watches.remove(&(path.to_owned(), kind)) else { return };
        for session in watchers {
            self.fired.push((session, Watched { path: path.to_owned(), kind }));
        }
    }
}

fn parent_of(path: &str) -> &str {
    match path.rsplit_once('/') {
        Some(("", _)) | None => "/",
        Some((parent, _)) => parent,
    }
}
