//! The broker: sockets, tasks, waiting requests. Replication rules are decided in `barnabas-replica`, never here.

pub mod clock;
pub mod config;
pub mod connection;
pub mod control;
pub mod explain;
pub mod flush;
pub mod follower;
pub mod group;
pub mod health;
pub mod http;
pub mod journal;
mod kafka;
pub mod ledger;
pub mod logs;
pub mod metrics;
pub mod node;
pub mod partition;
pub mod storage;
#[cfg(test)]
mod testing;
pub mod timeline;
pub mod view;
pub mod zookeeper;
