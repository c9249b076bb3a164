//! A running broker: what its parts share, and how they are started and stopped.

mod run;
mod state;

pub use run::{StartError, run};
pub use state::{Node, Options, Parts};
