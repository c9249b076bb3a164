//! Client and follower connections: frames in, answers out in order, waits that end by events and deadlines.

mod listener;
mod out;
pub(crate) mod replica_session;
pub(crate) mod serve;

pub use listener::listen;
pub use out::{Out, Slot};
