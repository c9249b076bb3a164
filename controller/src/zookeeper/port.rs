//! The port: what the shell needs of a ZooKeeper client, whatever stands behind it.

use std::future::Future;
use std::time::Duration;

use barnabas_controller_core::SessionId;
use tokio::sync::mpsc;

use super::op::{Error, Reply, Request, Watched};

/// What a session tells without being asked, in order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SessionEvent {
    /// The connection is lost; the session may live on. Stop acting.
    Disconnected,
    /// The same session is connected again. Verify that the own nodes are still the own ones, and read again what is
    /// watched.
    Reconnected,
    /// The connection has been away for half a session: act as if expired.
    HalfSessionAway,
    /// The session is gone for good. The last event.
    Expired,
    /// A one-shot watch fired.
    Watched(Watched),
}

/// Who is told how ZooKeeper answers, for figures. Called in the middle of things: it must not wait.
pub trait Observer: std::fmt::Debug + Send + Sync {
    /// A request has its reply, or an error; `unknown`: nobody knows what became of it.
    fn answered(&self, took: Duration, unknown: bool);
    /// A connection came about.
    fn connected(&self);
    /// A connection was lost.
    fn disconnected(&self);
    /// A session ended by itself.
    fn expired(&self);
}

/// Nobody.
impl Observer for () {
    fn answered(&self, _: Duration, _: bool) {}
    fn connected(&self) {}
    fn disconnected(&self) {}
    fn expired(&self) {}
}

/// Most session events that wait to be read.
pub const SESSION_EVENTS_MAX: usize = 256;

/// One session. Clones share it; [`ZooKeeper::close`] ends it for all of them.
pub trait ZooKeeper: Clone + Send + Sync + 'static {
    /// Its id.
    fn session(&self) -> SessionId;

    /// The timeout that the server granted.
    fn session_timeout(&self) -> Duration;

    /// Submits one request. A future that is dropped does not take the request back: it may still be applied.
    fn submit(&self, request: Request) -> impl Future<Output = Result<Reply, Error>> + Send;

    /// Ends the session; its ephemeral nodes go at once. Later requests give [`Error::SessionExpired`].
    fn close(&self);

    /// After [`ZooKeeper::close`]: waits until the server knows. While no server can be reached that takes for ever.
    fn ended(&self) -> impl Future<Output = ()> + Send;
}

/// Why no session came about.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ConnectError {
    /// Worth another attempt.
    #[error("{0}")]
    Unreachable(String),
    /// The connect string makes no sense.
    #[error("{0}")]
    BadAddress(String),
    /// The servers do not take the credentials.
    #[error("the servers do not take the credentials")]
    CredentialsRefused,
    /// The chroot of the connect string does not exist.
    #[error("the chroot {0} does not exist")]
    ChrootMissing(String),
}

/// Makes sessions.
pub trait Connect: Send + Sync + 'static {
    /// What a session is to us.
    type Client: ZooKeeper;

    /// One attempt to make a new session.
    fn connect(
        &self,
    ) -> impl Future<Output = Result<(Self::Client, mpsc::Receiver<SessionEvent>), ConnectError>> + Send;
}
