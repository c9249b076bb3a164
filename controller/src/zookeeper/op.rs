//! What can be asked of ZooKeeper and what it can say, as values: the shell, the simulator and both ports speak these.

use barnabas_controller_core::SessionId;

/// What a node's stat says, as far as it matters here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stat {
    /// Transaction that created the node.
    pub czxid: i64,
    /// Transaction that changed the data last; the one that created the node, if none did since.
    pub mzxid: i64,
    /// Number of changes to the data.
    pub version: i32,
    /// Session that owns the node, `None` for a persistent one.
    pub owner: Option<SessionId>,
}

/// A node's content and stat.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Node {
    /// Content.
    pub data: Vec<u8>,
    /// Stat.
    pub stat: Stat,
}

/// Whether a node outlives the session that created it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CreateMode {
    /// It does.
    Persistent,
    /// It goes with the session.
    Ephemeral,
}

/// What a one-shot watch looks at.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum WatchKind {
    /// Creation, deletion and data of the node.
    Node,
    /// Its list of children (and its deletion).
    Children,
}

/// A one-shot watch that fired. What happened is not said: read again.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Watched {
    /// The watched path.
    pub path: String,
    /// What was watched.
    pub kind: WatchKind,
}

/// One operation of a [`Request::Multi`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Op {
    /// The node exists and has this version.
    Check {
        /// Path.
        path: String,
        /// Data version.
        version: i32,
    },
    /// Create a node.
    Create {
        /// Path.
        path: String,
        /// Content.
        data: Vec<u8>,
        /// Mode.
        mode: CreateMode,
    },
    /// Set the content.
    Set {
        /// Path.
        path: String,
        /// Content.
        data: Vec<u8>,
        /// Expected data version, `None`: any.
        version: Option<i32>,
    },
    /// Delete a node without children.
    Delete {
        /// Path.
        path: String,
        /// Expected data version, `None`: any.
        version: Option<i32>,
    },
}

impl Op {
    /// The path it acts on.
    #[must_use]
    pub fn path(&self) -> &str {
        match self {
            Self::Check { path, .. }
            | Self::Create { path, .. }
            | Self::Set { path, .. }
            | Self::Delete { path, .. } => path,
        }
    }

    /// Size on the wire in bytes, slightly overestimated.
    #[must_use]
    pub fn size_bytes(&self) -> usize {
        const HEADER_BYTES: usize = 64;
        let data = match self {
            Self::Create { data, .. } | Self::Set { data, .. } => data.len(),
            Self::Check { .. } | Self::Delete { .. } => 0,
        };
        HEADER_BYTES + self.path().len() + data
    }
}

/// One request. A session's requests are served in the order in which they are submitted.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Request {
    /// Makes the connected server catch up with the leader; reads after it see everything committed before it.
    Sync,
    /// Content and stat. With `watch`, a one-shot watch is armed if the node exists.
    Get {
        /// Path.
        path: String,
        /// Whether to arm a watch.
        watch: bool,
    },
    /// Whether a node exists. With `watch`, a one-shot watch is armed in both cases.
    Exists {
        /// Path.
        path: String,
        /// Whether to arm a watch.
        watch: bool,
    },
    /// Names of the children. With `watch`, a one-shot watch is armed.
    Children {
        /// Path.
        path: String,
        /// Whether to arm a watch.
        watch: bool,
    },
    /// Plain create; its stat is valid (that of a create inside a multi is not, on 3.8).
    Create {
        /// Path.
        path: String,
        /// Content.
        data: Vec<u8>,
        /// Mode.
        mode: CreateMode,
    },
    /// Plain delete.
    Delete {
        /// Path.
        path: String,
        /// Expected data version, `None`: any.
        version: Option<i32>,
    },
    /// All or nothing.
    Multi(Vec<Op>),
    /// Content and stat of many nodes in one request.
    MultiRead(Vec<String>),
}

impl Request {
    /// Size on the wire in bytes, slightly overestimated.
    #[must_use]
    pub fn size_bytes(&self) -> usize {
        const HEADER_BYTES: usize = 64;
        HEADER_BYTES
            + match self {
                Self::Sync => 0,
                Self::Get { path, .. }
                | Self::Exists { path, .. }
                | Self::Children { path, .. }
                | Self::Delete { path, .. } => path.len(),
                Self::Create { path, data, .. } => path.len() + data.len(),
                Self::Multi(ops) => ops.iter().map(Op::size_bytes).sum(),
                Self::MultiRead(paths) => paths.iter().map(|p| p.len() + HEADER_BYTES).sum(),
            }
    }
}

/// Largest request that is sent, in bytes. At about 1 MiB a server closes the connection, which looks like a network
/// failure; half of it keeps clear of that.
pub const REQUEST_BYTES_MAX: usize = 512 * 1024;

/// What one operation of a multi gave.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OpReply {
    /// Check, create or delete done. A create's stat is deliberately not here.
    Done,
    /// Set done; the new version.
    Set {
        /// New data version.
        version: i32,
    },
}

/// A successful reply, one form for each form of [`Request`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reply {
    /// To `Sync` and `Delete`.
    Done,
    /// To `Get`; a missing node is `None`, not an error.
    Node(Option<Node>),
    /// To `Exists`.
    Stat(Option<Stat>),
    /// To `Children`, sorted; a missing node is [`Error::NoNode`].
    Children(Vec<String>),
    /// To `Create`.
    Created(Stat),
    /// To `Multi`, one for each operation.
    Multi(Vec<OpReply>),
    /// To `MultiRead`, in the order asked.
    Nodes(Vec<Option<Node>>),
}

/// Why a request did not succeed. What may have happened is kept apart from what has not.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Error {
    /// Nothing was changed: the node is not there (for a create: its parent).
    #[error("node does not exist")]
    NoNode,
    /// Nothing was changed: the node is there.
    #[error("node exists")]
    NodeExists,
    /// Nothing was changed: the node has another version.
    #[error("node has another version")]
    BadVersion,
    /// Nothing was changed: the node has children.
    #[error("node has children")]
    NotEmpty,
    /// Nothing was changed: operation `index` of a multi failed.
    #[error("operation {index} of a multi failed: {error}")]
    Multi {
        /// Which operation, from 0.
        index: usize,
        /// Why: one of the four above, or `Refused`.
        error: Box<Error>,
    },
    /// Nothing was sent: the request is too large.
    #[error("request of {size_bytes} bytes is above the limit of {REQUEST_BYTES_MAX}")]
    TooLarge {
        /// Its size.
        size_bytes: usize,
    },
    /// The server refused it for good (access rights, a feature it lacks).
    #[error("refused by ZooKeeper: {0}")]
    Refused(String),
    /// It may or may not have happened, and may still happen: read again, then decide.
    #[error("outcome unknown: {0}")]
    OutcomeUnknown(String),
    /// The session is over; its ephemeral nodes are gone or going. It may or may not have happened.
    #[error("session expired")]
    SessionExpired,
}
