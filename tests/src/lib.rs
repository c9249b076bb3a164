//! The cluster harness: real ZooKeeper, real broker processes, real clients, faults between them, and a ledger that counts.
//!
//! Nothing here knows a rule of replication: what the product does is judged from outside, from ZooKeeper's nodes, from what
//! clients were told and from the bytes that come back.

pub mod admin;
pub mod bench;
pub mod client;
pub mod cluster;
pub mod corpus;
pub mod demonstration;
pub mod failover;
pub mod kcat;
pub mod ledger;
pub mod ledger_runs;
pub mod load;
pub mod losses;
pub mod machines;
pub mod network;
pub mod oracles;
pub mod page;
pub mod pages;
pub mod ports;
pub mod power;
pub mod power_cut;
pub mod prng;
pub mod proxy;
pub mod replicas;
pub mod scale;
pub mod scene;
pub mod sessions;
pub mod shim;
pub mod soak;
pub mod wait;
pub mod znodes;

/// Why a step of a test or of the demonstration did not succeed: one sentence.
pub type Fault = Box<dyn std::error::Error + Send + Sync>;

/// Shorthand for a step that may fail.
pub type Outcome<T> = Result<T, Fault>;
