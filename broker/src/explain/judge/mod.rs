//! From facts to causes: pure, the most important cause first.

mod broker;
mod cluster;
mod followers;
mod group;
mod partition;
mod unclean;

pub use broker::broker;
pub use cluster::{cluster, coordination};
pub use group::{Coordinated, group};
pub use partition::{headline, partition};
