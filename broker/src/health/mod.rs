//! Health over HTTP: `/health/live` (the process answers) and `/health/ready` (it serves its partitions), in JSON.
//!
//! *Ready* means: the controller's first state is here and every log that it names was opened (or found to be unusable), at
//! least one log directory is online, and no stop was asked for. That ZooKeeper is away changes nothing: brokers go on
//! serving. A single failed directory changes nothing either, for the partitions in the others are served; it is shown.

mod server;
mod state;

pub use server::serve;
pub use state::Health;
