//! A running broker: what its parts share, and how they are started and stopped.

mod expiry;
mod notify;
mod producer_ids;
mod pulse;
mod run;
mod shutdown;
mod state;

pub use producer_ids::ProducerIds;
pub use run::{StartError, run};
pub use shutdown::Stop;
pub use state::{Node, Options, Parts};
