//! The model: every interleaving of one partition's real cores, with crashes, suspicions and two controllers, within small bounds.
//!
//! The state is what the cores are (`Controller` per term, `Replica` per broker) with an abstract disk, store and network around
//! them. stateright explores it breadth first and checks the invariants in every state.

pub mod action;
pub mod broker;
pub mod check;
mod drains;
mod faults;
mod heal;
mod log_start;
pub mod losses;
pub mod mutation;
mod mutations;
pub mod net;
pub mod node;
mod openings;
mod operator;
mod planted;
mod planted_moves;
pub mod properties;
pub mod protocol;
mod pushes;
pub mod reached;
mod replicas;
pub mod row;
pub mod rows;
pub mod shared;
mod syncs;
mod terms;
pub mod world;
mod writes;

pub use check::{Finding, explore, find, find_loss};
pub use mutation::Mutation;
pub use protocol::Protocol;
pub use row::Row;
