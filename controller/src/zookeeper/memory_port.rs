//! The port over the tree in memory, with faults that a test can order.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use barnabas_controller_core::SessionId;
use tokio::sync::mpsc;

use super::memory::Tree;
use super::op::{Error, Reply, Request};
use super::port::{Connect, ConnectError, SESSION_EVENTS_MAX, SessionEvent, ZooKeeper};

/// A ZooKeeper in this process. Clones share it.
#[derive(Clone, Debug)]
pub struct Memory {
    shared: Arc<Mutex<Shared>>,
    session_timeout: Duration,
}

#[derive(Debug, Default)]
struct Shared {
    tree: Tree,
    events: BTreeMap<SessionId, mpsc::Sender<SessionEvent>>,
    unreachable: bool,
    /// Requests until the one whose reply is lost.
    lose_in: Option<usize>,
}

impl Memory {
    /// An empty service. Sessions end only when told to; `session_timeout` is what clients are told.
    #[must_use]
    pub fn new(session_timeout: Duration) -> Self {
        Self { shared: Arc::default(), session_timeout }
    }

    /// Looks at the tree, or changes it as a foreign client would.
    pub fn with_tree<T>(&self, look: impl FnOnce(&mut Tree) -> T) -> T {
        let mut shared = self.lock();
        let seen = look(&mut shared.tree);
        shared.deliver();
        seen
    }

    /// Ends a session as the server does when it hears nothing.
    pub fn expire(&self, session: SessionId) {
        let mut shared = self.lock();
        shared.tree.end_session(session);
        shared.deliver();
        if let Some(events) = shared.events.remove(&session) {
            let _ = events.try_send(SessionEvent::Expired);
        }
    }

    /// Tells a session something.
    pub fn tell(&self, session: SessionId, event: SessionEvent) {
        if let Some(events) = self.lock().events.get(&session) {
            let _ = events.try_send(event);
        }
    }

    /// While `true`, no new session comes about.
    pub fn set_unreachable(&self, unreachable: bool) {
        self.lock().unreachable = unreachable;
    }

    /// Of the requests from now on, number `index` (from 0) is applied, but its reply is lost.
    pub fn lose_reply(&self, index: usize) {
        self.lock().lose_in = Some(index);
    }

    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shared {
    /// Hands out what fired. A session that leaves [`SESSION_EVENTS_MAX`] events unread loses further ones.
    fn deliver(&mut self) {
        for (session, watched) in self.tree.take_fired() {
            if let Some(events) = self.events.get(&session) {
                let _ = events.try_send(SessionEvent::Watched(watched));
            }
        }
    }
}

impl Connect for Memory {
    type Client = MemorySession;

    async fn connect(&self) -> Result<(MemorySession, mpsc::Receiver<SessionEvent>), ConnectError> {
        let mut shared = self.lock();
        if shared.unreachable {
            return Err(ConnectError::Unreachable("made unreachable".into()));
        }
        let id = shared.tree.open_session();
        let (sender, receiver) = mpsc::channel(SESSION_EVENTS_MAX);
        shared.events.insert(id, sender);
        Ok((MemorySession { memory: self.clone(), id }, receiver))
    }
}

/// One session with the tree in memory.
#[derive(Clone, Debug)]
pub struct MemorySession {
    memory: Memory,
    id: SessionId,
}

impl ZooKeeper for MemorySession {
    fn session(&self) -> SessionId {
        self.id
    }

    fn session_timeout(&self) -> Duration {
        self.memory.session_timeout
    }

    async fn submit(&self, request: Request) -> Result<Reply, Error> {
        let answer = {
            let mut shared = self.memory.lock();
            let answer = shared.tree.apply(self.id, &request);
            shared.deliver();
            match shared.lose_in {
                Some(0) => {
                    shared.lose_in = None;
                    Err(Error::OutcomeUnknown("the reply was lost".into()))
                }
                left => {
                    shared.lose_in = left.map(|left| left - 1);
                    answer
                }
            }
        };
        // A real reply never comes within the same turn.
        tokio::task::yield_now().await;
        answer
    }

    fn close(&self) {
        let mut shared = self.memory.lock();
        shared.tree.end_session(self.id);
        shared.events.remove(&self.id);
        shared.deliver();
    }

    async fn ended(&self) {}
}
