//! The model: every interleaving of one partition's real cores, with crashes, suspicions and two controllers, within small bounds.
//!
//! The state is what the cores are (`Controller` per term, `Replica` per broker) with an abstract disk, store and network around
//! them. stateright explores it breadth first and checks the invariants in every state.

pub mod action;
pub mod check;
mod faults;
mod heal;
pub mod losses;
pub mod mutation;
mod planted;
pub mod properties;
pub mod protocol;
pub mod reached;
mod replicas;
pub mod row;
pub mod rows;
pub mod shared;
mod terms;
pub mod world;

pub use check::{Finding, explore, find_loss};
pub use mutation::Mutation;
pub use protocol::Protocol;
pub use row::Row;
