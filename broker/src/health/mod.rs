//! The broker's own health: whether it serves its partitions, and what stands in the way. Served over HTTP by `http`.
//!
//! *Ready* means: the controller's first state is here and every log that it names was opened (or found to be unusable), at
//! least one log directory is online, and no stop was asked for. That ZooKeeper is away changes nothing: brokers go on
//! serving. A single failed directory changes nothing either, for the partitions in the others are served; it is shown.

mod state;

pub use state::Health;
