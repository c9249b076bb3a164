//! The seeded simulator over the real cores: a world of three brokers, an ensemble and a network that a seed breaks and mends,
//! with the invariants checked after every event.

pub mod checkers;
pub mod coverage;
pub mod disk;
pub mod happening;
pub mod mutation;
pub mod prng;
pub mod process;
pub mod queue;
pub mod runs;
pub mod store;
pub mod swarm;
pub mod trace;
pub mod world;

pub use checkers::Violation;
pub use coverage::{Coverage, Reached};
pub use mutation::Mutation;
pub use swarm::{Operation, Swarm};
pub use trace::Trace;
pub use world::{BROKERS, Options, Outcome, Told, World};
