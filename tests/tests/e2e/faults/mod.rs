//! Faults that clusters of this kind really had, each as its smallest scenario, judged by all oracles (`src/oracles`).
//!
//! Letters and numbers are those of a public collection of Kafka's and its kin's faults: A election and fencing of the controller,
//! B in-sync replicas and leaders, C high watermarks and truncation, E producers, G what clients are
//! told. `BARNABAS_ROUNDS=N` repeats each fault N times
//! as often as the usual run does.

mod a_controller;
mod a_registration;
mod a_zookeeper;
mod b_isr;
mod b_leaders;
mod c_epochs;
mod c_readers;
mod e_isolated;
mod e_producers;
mod g_clients;
mod suspicion;

use barnabas_tests::admin::NewTopic;
use barnabas_tests::cluster::Options;

/// Topic `t` with replication factor 3 and min.insync.replicas 2.
fn topic(partitions: i32) -> NewTopic<'static> {
    let configs = &[("min.insync.replicas", "2")];
    NewTopic { name: "t", partitions, replication_factor: 3, configs }
}

/// `{name}:{n}` for some numbers.
fn values(name: &str, numbers: std::ops::Range<usize>) -> Vec<Vec<u8>> {
    numbers.map(|n| format!("{name}:{n}").into_bytes()).collect()
}

/// A short session, the usual lag limit, and a proxy before every listener.
fn proxied(session_timeout_ms: u32) -> Options {
    Options { proxied: true, session_timeout_ms, ..Options::default() }
}
