//! The broker: sockets, tasks, waiting requests. Replication rules are decided in `barnabas-replica`, never here.

mod clock;
pub mod config;
mod connection;
mod control;
mod follower;
mod kafka;
pub mod node;
mod partition;
mod view;
pub mod zookeeper;
