//! Client and follower connections: frames in, answers out in order, waits that end by events and deadlines.

mod budget;
mod listener;
mod out;
mod piece;
mod places;
pub(crate) mod replica_session;
pub(crate) mod serve;
mod turns;

pub use budget::Budget;
pub use listener::listen;
pub(crate) use listener::prepare;
pub use out::{Out, Slot};
pub(crate) use piece::splice;
pub use piece::{FileRange, Piece};
pub use places::{ConnectionLimits, Counts, Places};
pub(crate) use turns::Turns;
