//! What `/metrics` says: counters that belong to no partition, and the scrape that gathers everything when it is asked for.
//!
//! Nothing is computed while nobody looks. Hot paths add to atomics of their own (a partition's `Traffic`, `Requests`, a flusher's
//! histograms) and never format, allocate or lock for it. Names, types and help are in `barnabas-metrics`, and nothing is served
//! that is not in its table. Replicas are looked at without waiting for their locks, so that a write that hangs holds up no scrape.

mod detail;
mod failovers;
mod groups;
mod led;
mod node;
mod quantiles;
mod replicas;
mod requests;
mod scrape;
#[cfg(test)]
mod tests;
mod write;
mod zookeeper;

pub use detail::Detail;
pub use failovers::FailoverFigures;
pub use led::LedChanges;
pub use node::NodeFigures;
pub use requests::Requests;
pub use scrape::Metrics;
pub use zookeeper::ZooKeeperFigures;
