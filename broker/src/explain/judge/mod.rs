//! From facts to causes: pure, the most important cause first.

mod broker;
mod cluster;
mod followers;
mod group;
mod headline;
mod partition;
mod unclean;

pub use broker::{broker, leads};
pub use cluster::{cluster, coordination};
pub use group::{Coordinated, group};
pub use headline::{Counted, of_broker, of_cluster};
pub use partition::{headline, partition};
