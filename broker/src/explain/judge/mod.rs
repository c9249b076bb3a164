//! From facts to causes: pure, the most important cause first.

mod broker;
mod cluster;
mod followers;
mod group;
mod headline;
mod losses;
mod moving;
mod partition;
mod ruled_out;
mod state;
mod steps;
mod unclean;
mod waiting;

pub use broker::{broker, leads};
pub use cluster::{cluster, coordination, undecided};
pub use group::{Coordinated, group, groups_waiting, is_without_groups, lags, without_coordinator};
pub use headline::{Counted, of_broker, of_cluster};
pub use losses::{Lost, losses};
pub use partition::{headline, partition};
pub use ruled_out::{Subject, ruled_out};
pub use state::{of_causes, state_of_broker, state_of_partition};
pub use waiting::{Waiting, awaited, told_once, waiting};
