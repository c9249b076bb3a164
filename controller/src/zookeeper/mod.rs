//! ZooKeeper behind a small port: requests and replies as values, an adapter for real servers, a model in memory.

mod access;
mod adapter;
pub mod memory;
mod memory_port;
mod op;
mod port;
mod protect;

pub use access::{Access, Credentials, Held, Scheme};
pub use adapter::{Servers, Session};
pub use memory_port::{Memory, MemorySession};
pub use op::{
    CreateMode, Error, Node, Op, OpReply, REQUEST_BYTES_MAX, Reply, Request, Stat, WatchKind,
    Watched,
};
pub use port::{Connect, ConnectError, Observer, SESSION_EVENTS_MAX, SessionEvent, ZooKeeper};
pub use protect::{Found, WalkError, Walked, Wish};
